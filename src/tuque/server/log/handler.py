"""Where the log of a server goes, and how its lines look (SPEC C10)."""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

from tuque.logtext import JsonFormatter, VisibleFormatter

LEVELS: Final = {
    "debug": logging.DEBUG,
    "verbose": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
}
_opened: Final[list[logging.Handler]] = []


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
