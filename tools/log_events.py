"""Reads the log calls of server and worker: their events, for docs/logs.md and its test.

A call is `log.warning("... %(reason)s", facts("accept_failed", reason=error))`; without fields
`facts` is its `extra`. `say_once` has the same arguments after the time.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LEVELS = ("debug", "info", "warning", "error", "exception", "critical")
SHOWN_LEVEL = {"exception": "error"}
NAME = re.compile(r"[a-z][a-z0-9_]*")
FIELD = re.compile(r"%\((\w+)\)")
# What every line in JSON has, and what lines about a job have.
TAKEN = {"time", "level", "process", "logger", "event", "message", "trace"}


@dataclass(frozen=True, order=True)
class Line:
    """One log call: who logs it, its event, level, text, and the fields of its facts."""

    program: str
    event: str
    level: str
    text: str
    fields: tuple[str, ...]


class LogFault(Exception):
    """A log call that has no event, or whose fields are not those of its text."""


def lines_of(src: Path, program: str) -> list[Line]:
    """The log lines of `server` or `worker`, in order of their events. Raises LogFault."""
    found: set[Line] = set()
    for path in sorted((src / program).rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Call):
                for line in read(call, program):
                    check(line, f"{path.relative_to(src)}:{call.lineno}")
                    found.add(line)
                if is_bare(call):
                    where = f"{path.relative_to(src)}:{call.lineno}"
                    raise LogFault(f'{where}: no event; write log.info("...", facts("name", ...))')
    return sorted(found)


def is_log(call: ast.Call) -> str:
    """The level of a log call, or empty; the texts of `say_once` are of level info."""
    by = call.func
    if isinstance(by, ast.Name) and by.id == "say_once":
        return "info"
    is_ours = isinstance(by, ast.Attribute) and isinstance(by.value, ast.Name)
    if is_ours and by.value.id in ("log", "logger", "_log") and by.attr in LEVELS:
        return SHOWN_LEVEL.get(by.attr, by.attr)
    return ""


def told_of(call: ast.Call) -> ast.Call | None:
    """The `facts(...)` of a log call."""
    values = [*call.args, *[one.value for one in call.keywords if one.arg == "extra"]]
    for value in values:
        if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "facts":
            return value
    return None


def is_bare(call: ast.Call) -> bool:
    """Whether a call logs without an event; those that pass on what they are given do not."""
    if not is_log(call) or told_of(call) is not None:
        return False
    return not any(isinstance(one, ast.Name) and one.id == "told" for one in call.args)


def read(call: ast.Call, program: str) -> Iterator[Line]:
    """The lines of a log call: two where the event depends on something."""
    level, told = is_log(call), told_of(call)
    if not level or told is None:
        return
    texts = [one for one in call.args if is_text(one)]
    text = "" if not texts else texts[0].value
    fields = tuple(one.arg for one in told.keywords if one.arg is not None)
    first = told.args[0]
    names = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
    for name in names:
        yield Line(program, name.value if is_text(name) else "", level, text, fields)


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def check(line: Line, where: str) -> None:
    """Raise LogFault unless name, text and fields fit together."""
    if not NAME.fullmatch(line.event):
        raise LogFault(f"{where}: the name of the event is not small letters and underscores")
    if not line.text:
        raise LogFault(f"{where}: the text is not written in the call")
    if set(FIELD.findall(line.text)) != set(line.fields):
        raise LogFault(f"{where}: {line.event}: the fields are not those of the text")
    if TAKEN & set(line.fields):
        raise LogFault(f"{where}: {line.event}: every line has a field of that name")


def table(lines: list[Line]) -> list[str]:
    """The rows of docs/logs.md."""
    out = ["| Event | Level | Text |", "|---|---|---|"]
    for one in lines:
        text = FIELD.sub(r"<\1>", one.text)
        text = re.sub(r">[.\d]*[sdf]", ">", text).replace("|", "\\|").replace("`", "'")
        out.append(f"| `{one.event}` | {one.level} | `{text}` |")
    return out
