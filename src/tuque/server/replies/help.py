"""HELP of the commands that have subcommands, made from the command table."""

from __future__ import annotations

from typing import Final

from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.wire.commands.arguments import ArgError, Misuse
from tuque.wire.commands.bounds import CONTAINERS
from tuque.wire.commands.commands import Command
from tuque.wire.proto.resp import Status

WORD_SHOWN: Final = 64


def reply_help(s: Server, c: Client, name: bytes) -> None:
    """One status per subcommand, and the summary of the command."""
    command = s.table[name]
    lines: list[object] = [Status(f"{command.name} <subcommand> [argument ...]: {command.summary}")]
    for words in command.syntax.split(" | "):
        lines.append(Status(f"    {command.name} {words}"))
    c.reply(lines)


def worded(error: ArgError, command: Command, args: list[bytes]) -> bytes:
    """The text of the error; of a word that is wrong with the usage of the command."""
    return error.text + usage(command, args) if isinstance(error, Misuse) else error.text


def usage(command: Command, args: list[bytes]) -> bytes:
    """[C4] How the command, or its subcommand, is used: the end of an error (C4.6)."""
    ways = command.syntax.split(" | ")
    word = args[1][:WORD_SHOWN].decode("ascii", "replace").upper() if len(args) > 1 else ""
    chosen = [way for way in ways if word in way.partition(" ")[0].upper().split("|")]
    if len(chosen) > 0:
        ways = chosen
    elif command.name in CONTAINERS:
        ways = [", ".join([way.partition(" ")[0] for way in ways])]
    told = " | ".join([f"{command.name} {way}" for way in ways])
    return f": use {told}".encode()
