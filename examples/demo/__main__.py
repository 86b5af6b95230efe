"""`python -m tuque.demo`."""

from __future__ import annotations

from tuque.demo.main import demo

demo(prog_name="python -m tuque.demo")
