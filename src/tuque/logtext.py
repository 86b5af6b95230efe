"""Lines of logs: their event and facts, as text or as JSON, with control characters escaped.

Decides what a reader of a log may see raw, and how server and worker write JSON. The text of an
error comes from the arguments of a job or from another program: it must not command a terminal,
nor look like a line of its own.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from typing import Any, Final

import msgspec

# control characters but the tab; line ends of Unicode; marks that turn the direction of text;
# halves of surrogate pairs, which cannot be written
HIDDEN: Final = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
HALVES: Final = re.compile(r"[\ud800-\udfff]")
INDENT: Final = "  "


def facts(event: str, **found: object) -> dict[str, object]:
    """[C10] What a line tells programs: the name of its event, and what its text says (C10.1).

    The one argument of a log call, whose text names the fields: `"%(seconds).1f s"`; its `extra` if
    there are none. Names of events are stable; docs/logs.md lists them.
    """
    return {"event": event, **found}


def visible(text: str) -> str:
    r"""The text on one line: each control character as its escape, ESC as `\x1b`; tabs stay.

    A byte of a name that is not UTF-8 is `\xff`, as in all outputs and reports.
    """
    return HIDDEN.sub(_escape, text)


def writable(text: str) -> str:
    r"""The text for what takes only UTF-8, as JSON and tables: a byte that is none is `\xff`."""
    return HALVES.sub(_escape, text)


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


class JsonFormatter(logging.Formatter):
    """[C10] One object a line: time, level, process, logger, event, message, fields, trace (C10.2).

    Lines that are not Tuque's have no event.
    """

    def format(self, record: logging.LogRecord) -> str:
        told = record.args if isinstance(record.args, dict) else {}
        found: dict[str, Any] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(),
            "level": record.levelname.lower(),
            "process": record.process,
            "logger": record.name,
        }
        event = told.get("event") or getattr(record, "event", "")
        if event:
            found["event"] = event
        found["message"] = record.getMessage()
        found |= {name: value for name, value in told.items() if name not in found}
        found |= self.more(record)
        trace = str(getattr(record, "trace", ""))
        if record.exc_info:
            trace = self.formatException(record.exc_info)
        line = {name: _writable(value) for name, value in found.items()}
        if trace:
            line["trace"] = writable(trace)
        return msgspec.json.encode(line).decode()

    def more(self, record: logging.LogRecord) -> dict[str, Any]:
        """What a program adds to each line."""
        return {}


def _writable(value: object) -> object:
    """A value that JSON can have; what is not a number becomes visible text."""
    if isinstance(value, bool | int | float):
        return value
    return None if value is None else visible(str(value))


class VisibleMessages(logging.Filter):
    """For the logger of a library, whose handlers are the program's: makes messages visible."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = visible(record.getMessage())
        record.args = ()
        return True


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    if 0xDC80 <= code <= 0xDCFF:  # a byte, as to_text of the client keeps it
        return f"\\x{code & 0xFF:02x}"
    return ascii(found.group())[1:-1]
