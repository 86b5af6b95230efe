"""Replies of names and values as a table for terminals.

Decides which commands reply so, and how a value is shown with its unit.
"""

from __future__ import annotations

import time
from typing import Final

from tuque.console.terminal import look
from tuque.console.terminal.format import printable, quote
from tuque.console.terminal.link import ErrorReply, Reply

FACTS: Final = {
    (b"QSTAT",),
    (b"SHOW",),
    (b"TUBE", b"INFO"),
    (b"TUBE", b"HOME"),
    (b"LEASE", b"INFO"),
}
# units by field name; other numbers are plain counts
UNITS: Final = {
    "age": "s",
    "oldest": "s",
    "idle": "s",
    "import-rate": "jobs/s",
    "delay": "s",
    "retry": "s",
    "ttl": "s",
    "ttr": "s",
    "next-requeue-within": "ms",
    "next-awake-within": "ms",
    "last-heard-ms": "ms",
}
PLAIN: Final = ("epoch", "next-id", "task")  # numbers that name something have no commas
NS: Final = 1_000_000_000


def answers_facts(words: list[bytes]) -> bool:
    """Whether the command replies with names and values in turn."""
    upper = [word.upper() for word in words[:2]]
    return tuple(upper) in FACTS or tuple(upper[:1]) in FACTS


def as_facts(reply: Reply) -> str:
    """A line per name and value; empty if the reply is something else."""
    if not isinstance(reply, list) or not reply or len(reply) % 2:
        return ""
    names = reply[::2]
    if not all(isinstance(name, bytes) for name in names):
        return ""
    shown = [name.decode("utf-8", "backslashreplace") for name in names if isinstance(name, bytes)]
    width = max(map(len, shown))
    lines = []
    for name, value in zip(shown, reply[1::2], strict=True):
        label = look.paint(printable(name).ljust(width), bold=True)
        lines.append(f"{label}  {shown_value(name, value)}")
    return "\n".join(lines)


def shown_value(name: str, value: Reply) -> str:
    """A value with its unit; nothing is `-`."""
    if value is None or value == b"" or value == []:
        return "-"
    if name == "ctime" and isinstance(value, int):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value // NS))
    if isinstance(value, ErrorReply):
        return f"(error) {value}"
    if isinstance(value, int) and not isinstance(value, bool):
        text = str(value) if name in PLAIN else look.number(value)
        return f"{text} {UNITS[name]}" if name in UNITS else text
    if isinstance(value, bytes):
        return as_text(value)
    if isinstance(value, list):
        return ", ".join(inner(one) for one in value)
    return str(value)


def inner(value: Reply) -> str:
    """A value inside another one."""
    if isinstance(value, list):
        return " ".join(inner(one) for one in value)
    return as_text(value) if isinstance(value, bytes) else str(value)


def as_text(value: bytes) -> str:
    """Bytes as text if printable, else in quotes."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return quote(value)
    return text if text.isprintable() else quote(value)
