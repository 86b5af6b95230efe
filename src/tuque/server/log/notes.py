"""The log of the server for all its modules; what repeats is said once a minute."""

from __future__ import annotations

import logging
from typing import Final, final

log: Final = logging.getLogger("tuque.server")

AGAIN_MS: Final = 60_000
TEXTS_MAX: Final = 1_000
LINES_MAX: Final = 100  # said in one minute: strangers choose what stands in some of them


@final
class Notes:
    """What was said lately, so that nobody outside can fill the disk with the log."""

    def __init__(self) -> None:
        self.said: dict[str, int] = {}  # until when it is not said again
        self.since_ms = 0  # begin of the minute
        self.lines = 0  # said in it
        self.left_out = 0  # not said in it

    def may_say(self, now_ms: int, text: str) -> bool:
        """Whether the text is new, and there is room for one more line in this minute."""
        if now_ms < self.said.get(text, 0):
            return False
        if not self.since_ms <= now_ms < self.since_ms + AGAIN_MS:
            if self.left_out > 0:
                log.info("%d more lines of the last minute were left out", self.left_out)
            self.since_ms = now_ms
            self.lines = self.left_out = 0
        if self.lines >= LINES_MAX:
            self.left_out += 1
            return False
        self.lines += 1
        if len(self.said) >= TEXTS_MAX:
            self.said.clear()
        self.said[text] = now_ms + AGAIN_MS
        return True


_notes: Final = Notes()


def say_all_again() -> None:
    """Forget what was said: another process begins here (simulator)."""
    _notes.said.clear()
    _notes.since_ms = _notes.lines = _notes.left_out = 0


def say_once(now_ms: int, text: str) -> None:
    """Write the text to the log, unless that was done less than a minute ago."""
    if _notes.may_say(now_ms, text):
        log.info("%s", text)


def warn_once(now_ms: int, address: str, text: str) -> None:
    """Say why a connection is closed; for one address (without its port) once a minute."""
    host = address.rpartition(":")[0]
    if _notes.may_say(now_ms, f"{host} {text}"):
        log.warning("closing %s: %s", address, text)


@final
class Bugs:
    """[C3.12] Errors of our own in one node: counted, and logged once a minute for each place."""

    def __init__(self) -> None:
        self.count = 0
        self.notes = Notes()

    def tell(self, now_ms: int, what: str, error: Exception) -> None:
        """Count the error; log it with its traceback. `what` says where it happened, and for whom.

        The exception is the one that is being handled.
        """
        self.count += 1
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        if self.notes.may_say(now_ms, f"{type(error).__name__} {place}"):
            log.error("internal error %s", what, exc_info=error)
