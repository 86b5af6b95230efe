"""TIME, COMMAND, SHUTDOWN, BGREWRITEAOF, LOADJOB (SPEC C7.6)."""

from __future__ import annotations

from time import time_ns
from typing import Final

from tuque.logtext import facts
from tuque.server.startup.journaling import save_for_restart
from tuque.server.state.client import Client
from tuque.server.state.state import Server, log
from tuque.server.users.account import meant
from tuque.wire.commands.arguments import ArgError, Misuse
from tuque.wire.commands.commands import Command
from tuque.wire.commands.rights import BY_ROW
from tuque.wire.proto.resp import Status

BAD_COMMAND: Final = b"ERR Unknown subcommand or wrong number of arguments."
SHUTDOWN_FAILED: Final = b"ERR Errors trying to SHUTDOWN. Check logs."
LOADJOB_ONLY: Final = b"ERR LOADJOB is a special command only processed from AOF"


def cmd_time(s: Server, c: Client, args: list[bytes]) -> None:
    """TIME: unix seconds, microseconds."""
    seconds, rest_ns = divmod(time_ns(), 1_000_000_000)
    c.reply([b"%d" % seconds, b"%d" % (rest_ns // 1000)])


def cmd_command(s: Server, c: Client, args: list[bytes]) -> None:
    """COMMAND [COUNT | INFO name ... | DOCS [name ...] | LIST | GETKEYS ...]."""
    word = args[1].upper() if len(args) > 1 else b""
    if word == b"":
        c.reply([command_row(command, c.resp3) for command in s.table.values()])
    elif word == b"COUNT" and len(args) == 2:
        c.reply(len(s.table))
    elif word == b"INFO":
        found = [s.table.get(name.upper()) for name in args[2:]]
        c.reply([None if one is None else command_row(one, c.resp3) for one in found])
    elif word == b"DOCS":
        names = [name.upper() for name in args[2:]] or list(s.table)
        docs = [s.table[name] for name in names if name in s.table]
        c.reply({command.wire_name: command_docs(command) for command in docs})
    elif word == b"LIST" and len(args) == 2:
        c.reply([command.wire_name for command in s.table.values()])
    elif word in (b"GETKEYS", b"GETKEYSANDFLAGS"):
        raise ArgError(b"ERR The command has no key arguments")
    else:
        raise ArgError(BAD_COMMAND)


def command_row(command: Command, resp3: bool) -> list[object]:
    """Name, arity, flags, three zeros, as no command has keys, and its categories (N2.1).

    Redis clients on RESP3 expect three more lists: tips, keys, parts.
    """
    flags: list[object] = [Status(flag) for flag in command.flags]
    row: list[object] = [command.wire_name, int(command.arity), flags, 0, 0, 0]
    row.append([Status(f"@{name}") for name in categories_of(command)])
    return [*row, [], [], []] if resp3 else row


def categories_of(command: Command) -> list[str]:
    """Its categories, or those of its subcommands."""
    own = [unit for unit in meant(command.wire_name.decode()) if unit.row != command.name]
    units = own or [BY_ROW[command.name]]
    return sorted({name for unit in units for name in unit.categories})


def command_docs(command: Command) -> dict[str, object]:
    """Help and typing hints for redis-cli."""
    docs: dict[str, object] = {
        "summary": command.summary,
        "since": "1.0.0",
        "group": command.group,
    }
    if command.syntax:
        argument = {"name": command.syntax, "type": "string", "display_text": command.syntax}
        docs["arguments"] = [argument]
    return docs


def cmd_shutdown(s: Server, c: Client, args: list[bytes]) -> None:
    """SHUTDOWN [REWRITE-AOF|SAVE|NOSAVE]: no reply, the connection ends with the server.

    If REWRITE-AOF fails to save, the server goes on. After the save no command runs (the pump
    checks `stop_requested`), so that no job is delivered twice.
    """
    mode = args[1].upper() if len(args) == 2 else b""
    if len(args) > 2 or mode not in (b"", b"REWRITE-AOF", b"SAVE", b"NOSAVE"):
        raise Misuse(args[1] if len(args) == 2 else args[2])
    if mode == b"REWRITE-AOF" and not s.is_loading:
        problem = save_for_restart(s)
        if problem:
            log.error(
                "SHUTDOWN REWRITE-AOF: %(reason)s; the server goes on",
                facts("shutdown_refused", reason=problem),
            )
            raise ArgError(SHUTDOWN_FAILED)
    s.stop_requested = "shutdown"
    c.is_closing = True


def cmd_bgrewriteaof(s: Server, c: Client, args: list[bytes]) -> None:
    """BGREWRITEAOF: rewrite the journal in slices while commands run."""
    if s.committer is None:
        raise ArgError(b"ERR there is no journal to rewrite: CONFIG SET appendonly yes starts one")
    if s.committer.is_rewriting():
        raise ArgError(b"ERR Background append only file rewriting already in progress")
    s.committer.ask_rewrite()
    c.reply(Status("Background append only file rewriting started"))


def cmd_loadjob(s: Server, c: Client, args: list[bytes]) -> None:
    """LOADJOB is refused: only Disque's log files contain it."""
    raise ArgError(LOADJOB_ONLY)
