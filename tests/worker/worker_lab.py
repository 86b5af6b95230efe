"""Workers of a test as processes, and what their tasks did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from program import SOURCE, Program, StartProgram

__all__ = ["HERE", "SOURCE", "Did", "Program", "StartWorker"]
HERE = Path(__file__).parent

StartWorker = StartProgram
Did = Callable[[], list[str]]
