"""Text of strangers in logs and on terminals: control characters are escaped.

Decides what a reader of a log may see raw. The text of an error comes from the arguments of a job
or from another program: it must not command a terminal, nor look like a line of its own.
"""

from __future__ import annotations

import logging
import re
from typing import Final

# control characters but the tab; line ends of Unicode; marks that turn the direction of text;
# halves of surrogate pairs, which cannot be written
HIDDEN: Final = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
INDENT: Final = "  "


def visible(text: str) -> str:
    r"""The text on one line: each control character as its escape, ESC as `\x1b`; tabs stay."""
    return HIDDEN.sub(_escape, text)


def visible_lines(text: str, indent: str = "") -> str:
    """The text with its line ends, each line visible and indented."""
    return "\n".join(indent + visible(line) for line in text.split("\n"))


class VisibleFormatter(logging.Formatter):
    """One line for each record, then its traceback, whose lines are indented.

    The traceback is that of `exc_info`, or the text that a record has as `trace`.
    """

    def format(self, record: logging.LogRecord) -> str:
        record.exc_text = None  # another handler may have left it raw
        text = super().format(record)
        trace = str(getattr(record, "trace", "")).rstrip()
        return f"{text}\n{visible_lines(trace, INDENT)}" if trace else text

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = visible(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:
        return visible_lines(
            super().formatException(ei),  # type: ignore[arg-type]  # its type has no name
            INDENT,
        )

    def formatStack(self, stack_info: str) -> str:
        return visible_lines(super().formatStack(stack_info), INDENT)


class VisibleMessages(logging.Filter):
    """For the logger of a library, whose handlers are the program's: makes messages visible."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = visible(record.getMessage())
        record.args = ()
        return True


def _escape(found: re.Match[str]) -> str:
    return ascii(found.group())[1:-1]
