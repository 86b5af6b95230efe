"""RESP without sockets: any split of the bytes gives the same replies, in the order asked."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuque.client.transport.conn import (
    NOTHING,
    Conn,
    ErrorReply,
    Kinds,
    Lines,
    NoReply,
    Status,
    TypedReply,
    pack,
)
from tuque.client.transport.face import greeting, read_greeting
from tuque.client.url import Address, parse
from tuque.errors import Loading, MaxClients, NoAuth, ProtocolError, ReplyError, reply_error

REPLIES: list[tuple[bytes, Any]] = [
    (b"+OK\r\n", b"OK"),
    (b":42\r\n", 42),
    (b"$-1\r\n", None),
    (b"*-1\r\n", None),
    (b"$0\r\n\r\n", b""),
    (b"$5\r\na\r\nbc\r\n", b"a\r\nbc"),
    (b"*2\r\n$1\r\nq\r\n*1\r\n:1\r\n", [b"q", [1]]),
    (b"*0\r\n", []),
    (b"#f\r\n", False),
    (b"_\r\n", None),
    (b"%1\r\n+a\r\n:1\r\n", {b"a": 1}),
]
NODE = Address("h", 1)
PUSH = b">2\r\n+invalidate\r\n*0\r\n"


@given(st.lists(st.sampled_from(REPLIES), max_size=8), st.data())
def test_any_split_gives_the_same_answers(asked: list[tuple[bytes, Any]], data: Any) -> None:
    conn = Conn(NODE)
    conn.pack([("PING",)] * len(asked))
    stream = b"".join(raw + PUSH for raw, _ in asked)
    got = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += conn.feed(stream[:size])
        stream = stream[size:]
    assert got == [value for _, value in asked]
    assert conn.unanswered == 0


def test_pack_is_resp() -> None:
    conn = Conn(NODE)
    assert conn.pack([("ADDJOB", b"q\r\n", "é", 5)]) == (
        b"*4\r\n$6\r\nADDJOB\r\n$3\r\nq\r\n\r\n$2\r\n\xc3\xa9\r\n$1\r\n5\r\n"
    )
    assert conn.unanswered == 1
    assert pack([b"PING", b"\x00"]) == b"*2\r\n$4\r\nPING\r\n$1\r\n\x00\r\n"


def test_errors_come_typed_also_inside_arrays() -> None:
    conn = Conn(NODE)
    conn.pack([("A",), ("B",)])
    first, second = conn.feed(b"-LOADING wait\r\n*2\r\n-ERR no\r\n:1\r\n")
    assert isinstance(first, Loading)
    assert first.node == "h:1"
    assert isinstance(second[0], ReplyError)


def test_what_nobody_asked_for_is_an_error() -> None:
    conn = Conn(NODE)
    with pytest.raises(ProtocolError, match="nobody asked"):
        conn.feed(b"+OK\r\n")


def test_what_is_not_resp_is_an_error() -> None:
    conn = Conn(NODE)
    conn.pack([("PING",)])
    with pytest.raises(ProtocolError, match="does not speak RESP"):
        conn.feed(b"HTTP/1.1 400 Bad Request\r\n")


def test_greeting() -> None:
    names = [c.args for c in greeting(parse("tuque://me:pw@h/?name=w"))]
    assert names == [("AUTH", b"me", b"pw"), ("CLIENT", b"SETNAME", b"w"), ("HELLO",)]
    assert [c.args for c in greeting(parse("tuque://pw@h"))] == [("AUTH", b"pw"), ("HELLO",)]


@pytest.mark.parametrize(
    ("replies", "outcome"),
    [
        ([ReplyError("ERR invalid password"), NoAuth("NOAUTH x")], ReplyError),
        ([b"OK", Loading("LOADING x")], Loading),
        ([b"OK", NoAuth("NOAUTH x")], NoAuth),
    ],
)
def test_a_greeting_that_makes_the_connection_useless(
    replies: list[Any], outcome: type[Exception]
) -> None:
    with pytest.raises(outcome):
        read_greeting(greeting(parse("tuque://pw@h")), replies)


def test_a_server_without_hello_is_good_enough() -> None:
    asked = greeting(parse("tuque://h"))
    assert read_greeting(asked, [ReplyError("ERR unknown command 'HELLO'")]) is None
    with pytest.raises(MaxClients):
        read_greeting(asked, [reply_error("ERR max number of clients reached")])


STREAM = (
    b"+OK\r\n-ERR no\r\n:5\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n*2\r\n+x\r\n*1\r\n:1\r\n"
    b"%1\r\n$1\r\nk\r\n#t\r\n_\r\n,1.5\r\n=6\r\ntxt:hi\r\n!5\r\nERR x\r\n~1\r\n:2\r\n"
    b"%1\r\n:7\r\n*0\r\n"
)
KINDS: list[TypedReply] = [
    Status("OK"), ErrorReply("ERR no"), 5, b"a\r\n", None, None, [Status("x"), [1]],
    {b"k": True}, None, 1.5, b"hi", ErrorReply("ERR x"), [2], {b"7": []},
]  # fmt: skip


@given(st.lists(st.integers(1, len(STREAM) - 1), max_size=8))
def test_kinds_do_not_depend_on_how_bytes_arrive(cuts: list[int]) -> None:
    ends = [0, *sorted(set(cuts)), len(STREAM)]
    kinds = Kinds()
    got: list[Any] = []
    for a, b in itertools.pairwise(ends):
        kinds.feed(STREAM[a:b])
        while (reply := kinds.gets()) is not NOTHING:
            got.append(reply)
    assert got == KINDS
    assert [type(one) for one in got] == [type(one) for one in KINDS]


@pytest.mark.parametrize("junk", [b"SSH", b":five\r\n", b"$x\r\n", b"*1\r\n" * 65, b"?\r\n"])
def test_what_has_no_kind(junk: bytes) -> None:
    kinds = Kinds()
    kinds.feed(junk)
    with pytest.raises(NoReply) as refused:
        kinds.gets()
    assert junk.startswith(refused.value.start)


@given(st.lists(st.sampled_from([b"+D-1", b":1", b"-LOADING wait", b"-ERR no"])), st.data())
def test_replies_of_a_line_are_counted(lines: list[bytes], data: Any) -> None:
    counted = Lines(len(lines))
    stream = b"".join(line + b"\r\n" for line in lines)
    while stream:
        assert not counted.is_complete
        size = data.draw(st.integers(1, len(stream)))
        counted.feed(stream[:size])
        stream = stream[size:]
    assert counted.is_complete
    kinds = {b"-LOADING wait": Loading, b"-ERR no": ReplyError}
    wanted = {at: kinds[line] for at, line in enumerate(lines) if line in kinds}
    assert {at: type(error) for at, error in counted.errors().items()} == wanted
