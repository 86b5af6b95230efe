"""Replies that refuse, for RESP and for IPROTO, and internal errors (SPEC C3.12, T13, T15.5)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tuque.core.model.errors import LEAVING as LEAVING_CODE
from tuque.core.model.errors import ROWS, Refusal
from tuque.core.queues.procedures import check
from tuque.server.state.client import Client
from tuque.server.state.server import Server
from tuque.tubes.model.errors import TubeError
from tuque.wire.proto.iproto import E_READ_ONLY, IprotoError

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


# ---- Internal errors: the reply, and whether the node may continue (SPEC C3.12)
#
# An exception in a command or in a client's input gives that client an error or closes its
# connection. The node goes on if its tables are consistent; otherwise it stops.


def on_fault(s: Server, c: Client, name: str, written: int, error: Exception) -> None:
    """The command raised an unexpected exception. AssertionError when the node must stop."""
    look_into(s, f"in {name}, asked by {c.address}", error)
    del c.out[written:]
    if c.is_blocked and c.chore is None and c.number not in s.n.waiters:
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
