"""`python -m demo`."""

from __future__ import annotations

from demo.main import demo

demo(prog_name="python -m demo")
