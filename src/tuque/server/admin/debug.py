"""DEBUG: for tests and debugging (SPEC S7)."""

from __future__ import annotations

import math
import sys
from time import sleep
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
from tuque.server.replies.help import reply_help
from tuque.server.startup.journaling import LOAD_RECORDS, make_committer
from tuque.server.state.client import Client
from tuque.server.state.state import Server, log
from tuque.store.frames import JournalError
from tuque.wire.commands.arguments import NOT_INT, ArgError
from tuque.wire.proto.resp import strict_int

DENIED: Final = (
    b"DENIED DEBUG is not allowed from here: the option enable-debug-command (no, local, yes) "
    b"in the configuration file decides who may use it"
)
NO_CRASH: Final = (b"SEGFAULT", b"ASSERT", b"OOM", b"CRASH-AND-RECOVER")
SLEEP_MAX_S: Final = 3600.0
NOT_FLOAT: Final = b"ERR value is not a valid float"
RESTART_MAX_MS: Final = 3_600_000


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
        sleep(seconds(args[2]))
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
    """Run the core's consistency check; it visits every job."""
    try:
        check(s.n)
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
