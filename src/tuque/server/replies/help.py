"""HELP of the commands that have subcommands, made from the command table."""

from __future__ import annotations

from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.wire.resp import Status


def reply_help(s: Server, c: Client, name: bytes) -> None:
    """One status per subcommand, and the summary of the command."""
    command = s.table[name]
    lines: list[object] = [Status(f"{command.name} <subcommand> [argument ...]: {command.summary}")]
    for words in command.syntax.split(" | "):
        lines.append(Status(f"    {command.name} {words}"))
    c.reply(lines)
