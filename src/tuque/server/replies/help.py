"""HELP and usage from the command table; the progress of the journal's load (SPEC C4, J5.7)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tuque.server.journal.committer import Committer
from tuque.server.state.client import Client
from tuque.server.state.server import Server
from tuque.store.replay import READING, RESTORING
from tuque.wire.commands.arguments import ArgError, Misuse
from tuque.wire.commands.bounds import CONTAINERS
from tuque.wire.commands.commands import Command
from tuque.wire.proto.resp import Status

WORD_SHOWN: Final = 64

READ_SHARE: Final = 70  # percent of a load's time spent on reading; then the jobs are entered


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


def load_share(committer: Committer | None) -> float:
    """Percent of the load that is done, 0 to 100."""
    loader = None if committer is None else committer.loaded
    if loader is None:
        return 0.0
    if loader.stage == READING:
        total: i64 = loader.total_bytes
        return float(READ_SHARE) * float(loader.loaded_bytes) / float(total) if total > 0 else 0.0
    jobs = len(loader.order)
    if loader.stage == RESTORING and jobs > 0:
        return READ_SHARE + float(100 - READ_SHARE) * float(loader.restored) / float(jobs)
    return float(READ_SHARE)
