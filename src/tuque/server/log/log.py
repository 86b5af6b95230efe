"""The server's log: repeated lines appear once a minute; its file and format (SPEC C10, C3.12)."""

from __future__ import annotations

import logging
import os
import sys
from typing import Final, final

from tuque.logtext import JsonFormatter, VisibleFormatter, facts

log: Final = logging.getLogger("tuque.server")

AGAIN_MS: Final = 60_000
TEXTS_MAX: Final = 1_000
LINES_MAX: Final = 100  # per minute: strangers choose part of some texts

LEVELS: Final = {
    "debug": logging.DEBUG,
    "verbose": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
}
_opened: Final[list[logging.Handler]] = []


@final
class Notes:
    """What was logged lately, so that no stranger can fill the disk through the log."""

    def __init__(self) -> None:
        self.said: dict[str, int] = {}  # not logged again before this time
        self.since_ms = 0  # start of the minute
        self.lines = 0  # logged in this minute
        self.left_out = 0  # suppressed in this minute

    def may_log(self, now_ms: int, text: str) -> bool:
        """Whether the text is new, and this minute has room for one more line."""
        if now_ms < self.said.get(text, 0):
            return False
        if not self.since_ms <= now_ms < self.since_ms + AGAIN_MS:
            if self.left_out > 0:
                log.info(
                    "%(count)d more lines of the last minute were left out",
                    facts("lines_left_out", count=self.left_out),
                )
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


def say_once(now_ms: int, text: str, told: dict[str, object]) -> None:
    """Log the text with its facts, unless it was logged less than a minute ago."""
    if _notes.may_log(now_ms, text % told):
        log.info(text, told)


def warn_once(now_ms: int, address: str, text: str) -> None:
    """Log why a connection is closed; once a minute per address (without its port)."""
    host = address.rpartition(":")[0]
    if _notes.may_log(now_ms, f"{host} {text}"):
        log.warning(
            "closing %(address)s: %(reason)s", facts("client_closed", address=address, reason=text)
        )


@final
class Bugs:
    """[C3.12] Internal errors of one node: counted, and logged once a minute per place."""

    def __init__(self) -> None:
        self.count = 0
        self.notes = Notes()

    def tell(self, now_ms: int, what: str, error: Exception) -> None:
        """Count the error; log it with its traceback. `what`: where it happened, and for whom.

        Call it in the handler of the exception.
        """
        self.count += 1
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        if self.notes.may_log(now_ms, f"{type(error).__name__} {place}"):
            log.error(
                "internal error %(where)s", facts("internal_error", where=what), exc_info=error
            )


# ---- The file of the log, and the form of its lines (SPEC C10)


class LogFile(logging.FileHandler):
    """[C10] A log that is a file; what cannot be written there is not lost (C10.4)."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Send the line to standard error, as on a full disk."""
        print(self.format(record), file=sys.stderr)


def send_log_to(handler: logging.Handler, level: str, form: str) -> None:
    """Make it the only handler of Tuque's lines in this process."""
    _opened[:] = [handler]
    root = logging.getLogger("tuque")
    root.handlers[:] = [handler]
    root.propagate = False
    shape_log(level, form)


def has_log() -> bool:
    """Whether a handler was set."""
    return len(_opened) > 0


def shape_log(level: str, form: str) -> None:
    """[C10] From the next line on: the least level, and text or json (C10.3).

    Does nothing where the log is another program's, as in tests and in the simulator.
    """
    for handler in _opened:
        handler.setFormatter(formatter_of(form))
        logging.getLogger("tuque").setLevel(LEVELS[level])


def formatter_of(form: str) -> logging.Formatter:
    """The formatter for `log-format`."""
    if form == "json":
        return JsonFormatter()
    line = f"{os.getpid()}:P %(asctime)s.%(msecs)03d %(levelname).1s %(message)s"
    return VisibleFormatter(line, datefmt="%d %b %H:%M:%S")
