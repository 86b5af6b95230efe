"""Replies as text: for a terminal, for pipes, raw, CSV and JSON, or as a table of facts.

Decides how a reply looks, which commands reply with names and values, and what helps after an
error. It must not know where the reply came from.
"""

from __future__ import annotations

import base64
import difflib
import re
import time
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from tuque import terminal
from tuque.client.transport.conn import ErrorReply, Status
from tuque.client.transport.raw_link import Reply
from tuque.errors import TubeHome, reply_error
from tuque.terminal import json_line, printable

NAMED = {0x07: "\\a", 0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r", 0x22: '\\"', 0x5C: "\\\\"}

# Their replies are text for people: a terminal gets it unchanged.
PLAIN_TEXT = {
    (b"INFO",),
    (b"CLUSTER", b"NODES"),
    (b"CLUSTER", b"INFO"),
    (b"CLIENT", b"LIST"),
    (b"CLIENT", b"INFO"),
    (b"LATENCY", b"GRAPH"),
    (b"LATENCY", b"DOCTOR"),
}


def answers_plain_text(words: list[bytes]) -> bool:
    """Whether the command replies with text that a terminal shows unquoted."""
    upper = [word.upper() for word in words[:2]]
    return tuple(upper) in PLAIN_TEXT or tuple(upper[:1]) in PLAIN_TEXT


def quote(data: bytes) -> str:
    """Write bytes in double quotes, with all but printable ASCII escaped."""
    out = []
    for byte in data:
        if byte in NAMED:
            out.append(NAMED[byte])
        elif 0x20 <= byte < 0x7F:
            out.append(chr(byte))
        else:
            out.append(f"\\x{byte:02x}")
    return f'"{"".join(out)}"'


def for_terminal(reply: Reply, indent: str = "") -> str:
    """Show the type of every reply, nested ones numbered; ends without a newline."""
    if reply is None:
        return "(nil)"
    if isinstance(reply, ErrorReply):
        return f"(error) {printable(str(reply))}"
    if isinstance(reply, bool):
        return "(true)" if reply else "(false)"
    if isinstance(reply, int):
        return f"(integer) {reply}"
    if isinstance(reply, float):
        return f"(double) {reply:g}"
    if isinstance(reply, bytes):
        return quote(reply)
    if isinstance(reply, (list, dict)):
        return _numbered(reply, indent)
    return printable(str(reply))


def _numbered(reply: list[Reply] | dict[bytes, Reply], indent: str) -> str:
    if not reply:
        return "(empty list or set)" if isinstance(reply, list) else "(empty hash)"
    mark = ")" if isinstance(reply, list) else "#"
    width = len(str(len(reply)))
    deeper = indent + " " * (width + 2)
    lines = []
    if isinstance(reply, list):
        bodies = [for_terminal(one, deeper) for one in reply]
    else:
        bodies = [f"{quote(key)} => {for_terminal(one, deeper)}" for key, one in reply.items()]
    for number, body in enumerate(bodies, 1):
        lines.append(f"{indent if number > 1 else ''}{number:>{width}}{mark} {body}")
    return "\n".join(lines)


def clean(data: bytes) -> bytes:
    """Text, with control characters and invalid UTF-8 as `\\xHH`.

    Line ends and tabs stay.
    """
    if data.isascii() and data.replace(b"\n", b"").replace(b"\t", b"").decode().isprintable():
        return data
    text = data.decode("utf-8", "backslashreplace").replace("\r\n", "\n")
    return "".join([one if one in "\n\t" else printable(one) for one in text]).encode()


def plain(reply: Reply, delimiter: bytes = b"\n") -> bytes:
    """Like `raw`, but clean: for pipes, whose other end may be a terminal."""
    if isinstance(reply, list):
        return delimiter.join([plain(one, delimiter) for one in reply])
    if isinstance(reply, dict):
        return delimiter.join(
            [part for key, one in reply.items() for part in (clean(key), plain(one, delimiter))]
        )
    return clean(raw(reply))


def raw(reply: Reply, delimiter: bytes = b"\n") -> bytes:
    """The bytes unchanged; arrays joined by the delimiter, nil as nothing."""
    if reply is None:
        return b""
    if isinstance(reply, bytes):
        return reply
    if isinstance(reply, list):
        return delimiter.join(raw(one, delimiter) for one in reply)
    if isinstance(reply, dict):
        return delimiter.join(
            part for key, one in reply.items() for part in (key, raw(one, delimiter))
        )
    if isinstance(reply, bool):
        return b"1" if reply else b"0"
    return str(reply).encode("utf-8", "surrogateescape")


def csv(reply: Reply) -> str:
    """One line of comma separated values, strings quoted."""
    if reply is None:
        return "NIL"
    if isinstance(reply, ErrorReply):
        return f"ERROR,{quote(reply.encode())}"
    if isinstance(reply, bytes):
        return quote(reply)
    if isinstance(reply, Status):
        return quote(reply.encode())
    if isinstance(reply, list):
        return ",".join(csv(one) for one in reply)
    if isinstance(reply, dict):
        return ",".join(f"{quote(key)},{csv(one)}" for key, one in reply.items())
    return str(reply)


def as_json(reply: Reply) -> str:
    """One line of JSON, from which the bytes of each value can be read back.

    Bytes are a string if they are UTF-8, else `{"base64": "..."}`; errors are `{"error": "..."}`.
    A RESP3 map with a key of other bytes is an array of keys and values. Unprintable characters
    become `\\uNNNN`, so that they cannot control the terminal.
    """
    return json_line(_plain(reply))


def _plain(reply: Reply) -> Any:
    if isinstance(reply, bytes):
        try:
            return reply.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(reply).decode()}
    if isinstance(reply, ErrorReply):
        return {"error": str(reply)}
    if isinstance(reply, list):
        return [_plain(one) for one in reply]
    if isinstance(reply, dict):
        pairs = [(_plain(key), _plain(one)) for key, one in reply.items()]
        if all(isinstance(key, str) for key, _ in pairs):
            return dict(pairs)
        return [part for pair in pairs for part in pair]
    return str(reply) if isinstance(reply, Status) else reply


# ---- Replies of names and values as a table for terminals.
#
# Decides which commands reply so, and how a value is shown with its unit.


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
        label = terminal.paint(printable(name).ljust(width), bold=True)
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
        text = str(value) if name in PLAIN else terminal.number(value)
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


# ---- Help from the command table, and advice on errors

LOCAL = {
    "help": ("[command|@group]", "Show the commands, one command, or a group."),
    "connect": ("host port", "Go to another node."),
    "clear": ("", "Clear the screen."),
    "exit": ("", "Leave; so do quit and Ctrl-D."),
}

TUBE_ADVICE = {  # errors in the texts of Tarantool's module
    "Unknown tube type": "`TUBE DRIVERS` lists the types",
    "already exists": "IFNOTEXISTS takes the tube that is there, if it has that type; "
    "a queue that has jobs can only become one of type tasks: choose another name then",
    "There are taken tasks": "`TUBE RELEASEALL` gives them back, `TUBE TRUNCATE` removes all tasks",
}


class Row(NamedTuple):
    """What the prompt needs to know of one command."""

    name: str
    group: str
    syntax: str
    summary: str

    @property
    def usage(self) -> str:
        return f"{self.name} {self.syntax}".strip()

    @property
    def ways(self) -> str:
        """The usage, one line per subcommand."""
        if self.syntax.startswith("["):
            return self.usage
        return "\n".join(f"{self.name} {way}".strip() for way in self.syntax.split(" | "))


@cache
def commands() -> dict[str, Row]:
    """Return the table by upper-case name; read when first needed.

    The file is made from the table of the node by tools/docs.py: no node is installed here.
    """
    lines = files("tuque.cli").joinpath("commands.txt").read_text("utf-8").splitlines()
    rows = [Row(*line.split("\t")) for line in lines]
    return {row.name: row for row in rows}


def keywords(name: str) -> list[str]:
    """Return the literal words in a command's syntax, such as NOHANG and FROM."""
    row = commands().get(name.upper())
    if row is None:
        return []
    found = re.findall(r"[A-Z][A-Z-]+|\b(?:in|out|all|none|state|bcast|yes|no)\b", row.syntax)
    return list(dict.fromkeys(found))


def describe(word: str) -> str:
    """Return the help for a command, an `@group`, or everything."""
    table = commands()
    if not word:
        lines = ["Here:"]
        lines += [f"  {name} {args}".ljust(26) + text for name, (args, text) in LOCAL.items()]
        lines.append("A number before a command repeats it: 5 PING")
        for group in dict.fromkeys(row.group for row in table.values()):
            names = " ".join(row.name for row in table.values() if row.group == group)
            lines.append(f"@{group}: {names}")
        return "\n".join(lines)
    if word.startswith("@"):
        rows = [row for row in table.values() if row.group == word[1:].lower()]
        if rows:
            return "\n".join(f"{row.usage}\n    {row.summary}" for row in rows)
        groups = ", ".join("@" + one for one in dict.fromkeys(row.group for row in table.values()))
        return f"no group {word}; there are {groups}"
    row = table.get(word.upper())
    if row is not None:
        return f"{row.ways}\n{row.summary}\ngroup: @{row.group}"
    return unknown(word)


def unknown(name: str) -> str:
    """Return a line with commands similar to an unknown one."""
    near = difflib.get_close_matches(name.upper(), list(commands()), 3, 0.5)
    return f"no command {name}" + (f"; did you mean {' or '.join(near)}?" if near else "")


def usage_of(row: Row, words: list[bytes]) -> str:
    """The usage of a command; of the subcommand in `words` only, if it has several."""
    ways = row.ways.splitlines()
    word = words[1].upper().decode("utf-8", "replace") if len(words) > 1 else ""
    near = [way for way in ways if way.split()[:2] == [row.name, word]]
    if len(ways) > 1 and not near:
        return f"`help {row.name}` shows its subcommands"
    return f"usage: {near[0] if near else row.usage}"


def advice(error: str, words: list[bytes]) -> str:
    """Return advice on an error reply, or nothing if its own text is enough."""
    name = words[0].decode("utf-8", "replace").upper() if words else ""
    row = commands().get(name)
    if row is None and name.startswith("-"):
        return f"{words[0].decode('utf-8', 'replace')} is no option; `tuque cli --help` shows them"
    if row is None:
        return unknown(name) if "unknown command" in error.lower() else ""
    wrong = ("wrong number of arguments", "syntax error", "subcommand or number of arguments")
    if any(what in error.lower() for what in wrong):
        return "" if f": use {name}" in error else usage_of(row, words)
    refusal = reply_error(error)
    if isinstance(refusal, TubeHome):
        host, _, port = refusal.home.rpartition(":")
        host = host.strip("[]")
        command = f"tuque cli -h {host} -p {port}"
        return f"ask the leader: `{command}`, in the prompt `connect {host} {port}`"
    for fragment, what in TUBE_ADVICE.items():
        if name == "TUBE" and fragment in error:
            return what
    return refusal.advice
