"""Replies that refuse, usage and HELP, and internal errors (SPEC C3.12, C4, J5.7, T13, T15.5)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tuque.core.model.errors import LEAVING as LEAVING_CODE
from tuque.core.model.errors import ROWS, Refusal
from tuque.core.queues.procedures import check
from tuque.server.journal.committer import Committer
from tuque.server.state.client import Client
from tuque.server.state.server import Server
from tuque.store.replay import READING, RESTORING
from tuque.tubes.model.errors import TubeError
from tuque.wire.commands.arguments import ArgError, Misuse
from tuque.wire.commands.commands import Command
from tuque.wire.commands.rows import CONTAINERS
from tuque.wire.proto.iproto import E_READ_ONLY, IprotoError
from tuque.wire.proto.resp import Status

LEAVING_TEXT: Final = ROWS[int(LEAVING_CODE)].text
LEAVING: Final = b"LEAVING " + LEAVING_TEXT
UNMET: Final = (
    b"LEAVING this node is not in its cluster, which knows another one at this "
    b"address: CLUSTER MEET it; or CLUSTER FORGET the other one there, and CLUSTER RESET this one"
)
FORGOTTEN: Final = (
    b"LEAVING this node was removed from its cluster by CLUSTER FORGET, and does no work: use "
    b"another one. To take it back, CLUSTER RESET it or start it without its journal, "
    b"and CLUSTER MEET it"
)
CONFLICT_TEXT: Final = (
    b"another node has the id of this one: stop one of the two, move its nodes.conf and its "
    b"journal away, and start it again"
)
CONFLICT: Final = b"CONFLICT " + CONFLICT_TEXT
IDLE: Final = {"forgotten": FORGOTTEN, "unmet": UNMET}  # why a node does no work (S6.5)
READ_ONLY: Final = b"Can't modify data because this instance is in read-only mode"
IS_READ_ONLY: Final = [b"READONLY", b"NOQUORUM"]  # READ_ONLY over IPROTO (T17.4, T19.5)
WORD_SHOWN: Final = 64

READ_SHARE: Final = 70  # percent of a load's time spent on reading; then the jobs are entered
INTERNAL: Final = b"ERR internal error, the log of the server says more"


# ---- Replies made of a code and its arguments (core/model/errors.py)
#
# RESP clients get a first word before the text (C9, T15.5), IPROTO clients a number (T13).


def error_words(code: i64, about: tuple[object, ...] = ()) -> bytes:
    """The error for RESP clients, without the `-`."""
    row = ROWS[int(code)]
    text: bytes = row.resp % about
    return b"%s %s" % (row.word, text)


def core_words(refused: Refusal) -> bytes:
    """[C9] The refusal of core for RESP clients."""
    return error_words(refused.code, refused.about)


def resp_words(error: TubeError) -> bytes:
    """[T15.5] The refusal of a tube for RESP clients."""
    return error_words(error.code, error.about)


def text_of(error: TubeError) -> bytes:
    """The text of the refusal without a first word."""
    text: bytes = ROWS[int(error.code)].text % error.about
    return text


def iproto_words(error: TubeError) -> IprotoError:
    """[T13] The refusal for IPROTO: a number, and a text without a first word (T17.4)."""
    row = ROWS[int(error.code)]
    if row.word in IS_READ_ONLY:
        return IprotoError(E_READ_ONLY, b"%s: %s" % (READ_ONLY, text_of(error)))
    return IprotoError(row.iproto, text_of(error))


# ---- Usage and HELP from the command table (SPEC C4)


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


# ---- Internal errors: the reply, and whether the node may continue (SPEC C3.12)
#
# An exception in a command or in a client's input gives that client an error or closes its
# connection. The node goes on if its tables are consistent; otherwise it stops.


def on_fault(s: Server, c: Client, name: str, written: int, error: Exception) -> None:
    """The command raised an unexpected exception. AssertionError when the node must stop."""
    look_into(s, f"in {name}, asked by {c.address}", error)
    del c.out[written:]
    if c.is_blocked and c.long_command is None and c.number not in s.n.waiters:
        c.is_blocked = False
        s.blocked -= 1
    c.error(INTERNAL)


def look_into(s: Server, what: str, error: Exception) -> None:
    """Count and log an internal error. AssertionError when the node's tables are inconsistent."""
    s.bugs.tell(s.n.now_ms, what, error)
    check(s.n)


def drop_turn(s: Server) -> None:
    """Discard what the failed turn did: no client has a reply, nothing is recorded."""
    if s.n.records is not None and s.committer is not None:
        s.n.records.take()
        s.n.records = None
    s.restart_after_ms = -1
    for c in s.clients.values():
        c.out = []
    for w in s.wired.values():
        w.out = []
