"""The lines of the log that a test caused; threads of shared consoles and clients log beside it."""

from __future__ import annotations

import logging
import threading

import pytest


def own_records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The records that the thread of the test made."""
    return [r for r in caplog.records if r.thread == threading.get_ident()]


def own_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The messages that the thread of the test made."""
    return [r.getMessage() for r in own_records(caplog)]


def lines_of(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    """The messages of one logger, whichever thread made them."""
    return [r.getMessage() for r in caplog.records if r.name == logger]
