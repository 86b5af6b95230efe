"""In the place of the helpers of Dramatiq's tests, which its sources leave out."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from dramatiq import Worker

RABBITMQ_CREDENTIALS = None
skip_in_ci = skip_on_windows = pytest.mark.skipif(False, reason="")
skip_on_pypy = pytest.mark.skipif(platform.python_implementation() == "PyPy", reason="PyPy")


@contextmanager
def worker(*words: Any, **options: Any) -> Iterator[Worker]:
    """A worker, while the block runs."""
    made = Worker(*words, **options)
    made.start()
    try:
        yield made
    finally:
        made.stop()
