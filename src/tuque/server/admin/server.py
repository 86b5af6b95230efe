"""Commands about the process: TIME, COMMAND, SHUTDOWN, BGREWRITEAOF, DEBUG (SPEC C7.6, S7)."""

from __future__ import annotations

import math
import sys
import time
from typing import Final

from tuque.core.dispatch.restore import flush_all
from tuque.core.model.job import JOB_BYTES
from tuque.core.node.node import DATA_RESET
from tuque.core.node.queue import Queue
from tuque.core.queues.deliver import wake_all
from tuque.core.queues.procedures import check
from tuque.core.records.jobs import Records
from tuque.logtext import facts
from tuque.server.config.config import is_loopback
from tuque.server.config.rewrite import RewriteError, rewrite
from tuque.server.replies.errors import reply_help
from tuque.server.replies.waiting import next_sync_ms
from tuque.server.start.journal import LOAD_RECORDS, make_committer, save_for_restart
from tuque.server.state.client import Client
from tuque.server.state.server import SYNCED, Server, log
from tuque.server.users.users import meant
from tuque.store.frames import JournalError
from tuque.wire.commands.arguments import NOT_INT, ArgError, Misuse
from tuque.wire.commands.commands import BY_ROW, Command
from tuque.wire.proto.resp import Status, strict_int

BAD_COMMAND: Final = b"ERR Unknown subcommand or wrong number of arguments."
SHUTDOWN_FAILED: Final = b"ERR Errors trying to SHUTDOWN. Check logs."
LOADJOB_ONLY: Final = b"ERR LOADJOB is a special command only processed from AOF"

DENIED: Final = (
    b"DENIED DEBUG is not allowed from here: the option enable-debug-command (no, local, yes) "
    b"in the configuration file decides who may use it"
)
NO_CRASH: Final = (b"SEGFAULT", b"ASSERT", b"OOM", b"CRASH-AND-RECOVER")
SLEEP_MAX_S: Final = 3600.0
NOT_FLOAT: Final = b"ERR value is not a valid float"
ROW_WORK: Final = 15  # units for a command's row in COMMAND
RESTART_MAX_MS: Final = 3_600_000


def cmd_time(s: Server, c: Client, args: list[bytes]) -> None:
    """TIME: unix seconds, microseconds."""
    seconds, rest_ns = divmod(time.time_ns(), 1_000_000_000)
    c.reply([b"%d" % seconds, b"%d" % (rest_ns // 1000)])


def cmd_command(s: Server, c: Client, args: list[bytes]) -> None:
    """COMMAND [COUNT | INFO name ... | DOCS [name ...] | LIST | GETKEYS ...]."""
    word = args[1].upper() if len(args) > 1 else b""
    if word in (b"", b"INFO", b"DOCS", b"LIST"):
        rows = len(args) - 2 if len(args) > 2 else len(s.table)
        s.n.work += ROW_WORK * rows
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

    If REWRITE-AOF fails to save, the server continues. Without a journal no command runs after the
    save (the pump checks `stop_requested`), so that no job is delivered twice.
    """
    mode = args[1].upper() if len(args) == 2 else b""
    if len(args) > 2 or mode not in (b"", b"REWRITE-AOF", b"SAVE", b"NOSAVE"):
        raise Misuse(args[1] if len(args) == 2 else args[2])
    if mode == b"REWRITE-AOF" and not s.is_loading:
        problem = save_for_restart(s)
        if problem:
            log.error(
                "SHUTDOWN REWRITE-AOF: %(reason)s; the server continues",
                facts("shutdown_refused", reason=problem),
            )
            raise ArgError(SHUTDOWN_FAILED)
        if s.committer is None:
            s.stop_requested = "shutdown"  # what was saved must not change any more
    s.ask_end("shutdown")
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


# ---- DEBUG: for tests and debugging (SPEC S7)


def cmd_debug(s: Server, c: Client, args: list[bytes]) -> None:
    """[S7] DEBUG subcommand [argument]."""
    if not may_debug(s, c):
        raise ArgError(DENIED)
    word = args[1].upper()
    count = len(args)
    if word == b"FLUSHALL" and count == 2:
        flush(s)
        c.ok()
    elif word == b"LOADAOF" and count == 2:
        load_journal_again(s)
        c.ok()
    elif word == b"SLEEP" and count == 3:
        time.sleep(seconds(args[2]))
        c.ok()
    elif word == b"ERROR" and count == 3:
        c.error(args[2])
    elif word == b"STRUCTSIZE" and count == 2:
        c.reply(sizes())
    elif word == b"CHECK" and count == 2:
        check_all(s)
        c.ok()
    elif word == b"RESTART" and count in (2, 3):
        restart(s, c, args[2] if count == 3 else b"0")
    elif word in NO_CRASH:
        raise ArgError(b"ERR DEBUG %s is refused: this server does not crash on request" % word)
    elif word == b"HELP" and count == 2:
        reply_help(s, c, b"DEBUG")
    else:
        raise ArgError(
            b"ERR Unknown DEBUG subcommand or wrong number of arguments for '%s'" % args[1]
        )


def may_debug(s: Server, c: Client) -> bool:
    """Whether enable-debug-command allows it for this client."""
    allowed = s.cfg.enable_debug_command
    if allowed == "local":
        return c.is_unix or is_loopback(c.address.rpartition(":")[0])
    return allowed == "yes"


def flush(s: Server) -> None:
    """[S7.1] Drop all jobs and queues; waiting clients get a null array."""
    dropped = flush_all(s.n)
    wake_all(s.n, DATA_RESET)
    log.warning("DEBUG FLUSHALL: %(dropped)d jobs dropped", facts("flushed", dropped=dropped))


def load_journal_again(s: Server) -> None:
    """Finish the journal, clear memory, and load the journal as at startup."""
    committer = s.committer
    if committer is None or s.n.records is None:
        raise ArgError(b"ERR there is no journal to load: appendonly is no")
    committer.commit(s.n.records, s.n.now_ms)
    committer.settle(s.n)
    s.n.records = None
    s.committer = None
    reason = committer.close(s.n.now_ms)
    if not reason:
        flush_all(s.n)
        wake_all(s.n, DATA_RESET)
        reason = load_again(s)
    if reason:
        log.error("DEBUG LOADAOF: %(reason)s", facts("journal_reload_failed", reason=reason))
        raise ArgError(b"ERR the journal could not be loaded: " + reason.encode())


def load_again(s: Server) -> str:
    """Load the journal into the empty node and continue it; an error text or empty."""
    committer = make_committer(s.cfg, s.n.node_id, s.n.now_ms)
    try:
        committer.lock()
        loader = committer.loader(may_cut=s.cfg.aof_load_truncated)
        while not loader.step(s.n, LOAD_RECORDS):
            pass
        committer.start(s.n.now_ms)
    except JournalError as error:
        committer.close(s.n.now_ms)
        return str(error)
    s.n.records = Records(s.n.node_ids, s.n.lives)
    s.committer = committer  # the pump watches it from now on
    return ""


def seconds(word: bytes) -> float:
    """A time in seconds, with decimals, at most an hour."""
    try:
        value = float(word)
    except ValueError:
        raise ArgError(NOT_FLOAT) from None
    if not math.isfinite(value) or not 0 <= value <= SLEEP_MAX_S:
        raise ArgError(NOT_FLOAT)
    return value


def sizes() -> bytes:
    """Sizes of the main structures in bytes, as far as the interpreter knows them."""
    queue_bytes = sys.getsizeof(Queue(b"", 0, 0))
    return b"bits:64 job:%d queue:%d" % (JOB_BYTES, queue_bytes)


def check_all(s: Server) -> None:
    """Run the core's consistency check, which visits every job, and that of the alarms."""
    try:
        check(s.n)
        assert s.alarms.next_ms() == min(s.alarms.at_ms), "the first alarm"
        assert s.alarms.at(SYNCED) == next_sync_ms(s), "the alarm of replies that wait for copies"
    except AssertionError as error:
        what = str(error).partition("\n")[0]  # pytest adds lines to what an assertion says
        log.error("DEBUG CHECK: %(what)s", facts("tables_disagree", what=what))
        raise ArgError(b"ERR the tables disagree: " + what.encode()) from None


def restart(s: Server, c: Client, word: bytes) -> None:
    """Stop cleanly and start again after some ms; options changed meanwhile are kept."""
    after_ms = strict_int(word)
    if after_ms is None or not 0 <= after_ms <= RESTART_MAX_MS:
        raise ArgError(NOT_INT)
    if s.cfg.config_file:
        try:
            rewrite(s.cfg)
        except RewriteError as error:
            log.error("DEBUG RESTART: %(reason)s", facts("restart_refused", reason=error))
            raise ArgError(b"ERR failed to restart the server. Check server logs.") from None
    s.restart_after_ms = after_ms
    s.stop_requested = "restart"
    c.is_closing = True
