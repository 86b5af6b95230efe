"""IPROTO requests as operators see them: in MONITOR, SLOWLOG, LATENCY (SPEC I4.9, C7.5).

A request is shown in words, like a RESP command: its type, the function, the arguments. A
password's proof is hidden.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tuque.server.log.monitoring import REDACTED, feed_monitors, note_latency, note_slow
from tuque.server.state.iproto_connection import Wired
from tuque.server.state.state import Server
from tuque.wire.commands.tube_arguments import shown
from tuque.wire.proto.iproto import (
    AUTH,
    EXPRESSION,
    FUNCTION,
    SPACE,
    USER,
    IprotoError,
    Request,
    type_name,
)
from tuque.wire.proto.msgpack import (
    ARRAY,
    MAP,
    NIL,
    Value,
)

ARGS_MAX: Final = 32
EVENT: Final = "iproto-request"


def see(s: Server, w: Wired, request: Request) -> None:
    """[C7.5] Show a running request to every monitor."""
    feed_monitors(s, w, words_of(request))


def note_spent(s: Server, request: Request, spent_ns: int) -> None:
    """Record a slow request for the slow log or the latency events."""
    if 0 <= s.slow_ns <= spent_ns:
        note_slow(s, words_of(request), spent_ns)
    note_latency(s, EVENT, spent_ns)


def words_of(request: Request) -> list[bytes]:
    """The request in words."""
    words = [type_name(request.type)]
    for key in (FUNCTION, EXPRESSION, SPACE, USER):
        value = request.body.get(int(key))
        if value is not None:
            words.append(word_of(value))
    if request.type == AUTH:
        return [*words, REDACTED]
    try:
        return words + [word_of(value) for value in request.arguments(ARGS_MAX)]
    except IprotoError:
        return words


def word_of(value: Value) -> bytes:
    """A value as one word: strings bare, the rest as JSON; other bytes as they are."""
    if value.kind == NIL:
        return b"null"
    if value.kind not in (ARRAY, MAP):
        return shown(value)
    try:
        return msgspec.json.encode(msgspec.msgpack.decode(value.raw()))
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return value.raw()
