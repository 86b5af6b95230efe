"""Help from the command table: usage lines, completion words, and advice on errors.

Decides the texts for people; the table itself is `tuque.wire.commands.commands`.
"""

from __future__ import annotations

import difflib
import re
from functools import cache
from typing import NamedTuple

from tuque.errors import TubeHome, reply_error

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
    """Return the table by upper-case name; imported when first needed."""
    from tuque.wire.commands.commands import ROWS

    return {row[0]: Row(row[0], row[3], row[4], row[5]) for row in ROWS}


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
    for said, what in TUBE_ADVICE.items():
        if name == "TUBE" and said in error:
            return what
    return refusal.advice
