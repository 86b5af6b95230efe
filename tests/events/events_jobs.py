"""Jobs for the tests of the event stream."""

from __future__ import annotations

from tuque.core.model.job import Job

NOW_MS = 1_767_225_600_000  # 2026-01-01 00:00:00 UTC


def a_job(number: int = 0, queue: bytes = b"q", at_ms: int = NOW_MS) -> Job:
    """A job of 100 bytes, created at that instant with retry 300 s and TTL 1 d."""
    return Job(
        b"D-%038d" % number, queue, b"x" * 100, at_ms * 1_000_000, at_ms + 86_400_000, 300, 0, 1
    )
