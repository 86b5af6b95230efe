"""`python -m tuque` is the program `tuque`."""

from __future__ import annotations

from tuque.main import main

main()
