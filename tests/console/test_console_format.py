"""Every kind of reply in every mode, and replies read from any split of their bytes."""

from __future__ import annotations

import base64
import json
import socket
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuque.cli.replies import (
    answers_plain_text,
    as_json,
    clean,
    csv,
    for_terminal,
    plain,
    quote,
    raw,
)
from tuque.client.transport.conn import ErrorReply, Status
from tuque.client.transport.raw_link import Link, LinkError, Reply, Target
from tuque.client.transport.sockets import Wire
from tuque.wire.proto.strict_reader import split_inline

NESTED: Reply = [[b"q", b"D-1", b"body"], 7, None, [], Status("OK")]


@pytest.mark.parametrize(
    ("reply", "tty", "plain", "row", "text"),
    [
        (Status("OK"), "OK", b"OK", '"OK"', '"OK"'),
        (7, "(integer) 7", b"7", "7", "7"),
        (None, "(nil)", b"", "NIL", "null"),
        (b'a"\n\x00', '"a\\"\\n\\x00"', b'a"\n\x00', '"a\\"\\n\\x00"', '"a\\"\\n\\u0000"'),
        (b"\xff", '"\\xff"', b"\xff", '"\\xff"', '{"base64": "/w=="}'),
        (b"\\xff", '"\\\\xff"', b"\\xff", '"\\\\xff"', '"\\\\xff"'),
        (
            {b"\xff": 1},
            '1# "\\xff" => (integer) 1',
            b"\xff\n1",
            '"\\xff",1',
            '[{"base64": "/w=="}, 1]',
        ),
        (ErrorReply("ERR x"), "(error) ERR x", b"ERR x", 'ERROR,"ERR x"', '{"error": "ERR x"}'),
        ([], "(empty list or set)", b"", "", "[]"),
        (True, "(true)", b"1", "True", "true"),
        (1.5, "(double) 1.5", b"1.5", "1.5", "1.5"),
        ({b"a": 1}, '1# "a" => (integer) 1', b"a\n1", '"a",1', '{"a": 1}'),
    ],
)
def test_each_kind_of_reply(reply: Reply, tty: str, plain: bytes, row: str, text: str) -> None:
    assert (for_terminal(reply), raw(reply), as_json(reply)) == (tty, plain, text)
    assert csv(reply) == row


def test_nested_replies_are_numbered() -> None:
    assert for_terminal(NESTED) == (
        '1) 1) "q"\n   2) "D-1"\n   3) "body"\n2) (integer) 7\n3) (nil)\n'
        "4) (empty list or set)\n5) OK"
    )
    ten: Reply = [*[1] * 9, [2]]
    assert for_terminal(ten).splitlines()[0] == " 1) (integer) 1"
    assert for_terminal(ten).splitlines()[9] == "10) 1) (integer) 2"


def test_raw_arrays_take_the_delimiter() -> None:
    assert raw(NESTED, b"|") == b"q|D-1|body|7|||OK"
    assert plain(NESTED, b"|") == b"q|D-1|body|7|||OK"


EVIL = b"\x1b]0;title\x07\x1b[2J\xc2\x9b31m\xe2\x80\xae\r\xff\x00ok\t\xc3\xa9\n"


def test_a_pipe_gets_nothing_that_a_terminal_obeys() -> None:
    shown = "\\x1b]0;title\\x07\\x1b[2J\\x9b31m\\u202e\\r\\xff\\x00ok\té\n"
    assert clean(EVIL).decode() == shown
    assert plain([EVIL, {EVIL: EVIL}], b"\0").decode() == "\0".join([shown] * 3)
    assert plain(b"# Server\r\nport:1\r\n") == b"# Server\nport:1\n"
    assert raw(EVIL) == EVIL


@given(st.binary())
def test_no_mode_but_raw_lets_control_bytes_out(data: bytes) -> None:
    replies: list[Reply] = [data, [data], {data: data}]
    replies += [ErrorReply(data.decode("latin-1")), Status(data.decode("latin-1"))]
    for reply in replies:
        for text in (plain(reply).decode(), for_terminal(reply), csv(reply), as_json(reply)):
            assert text.replace("\n", "").replace("\t", "").isprintable()


def test_texts_for_people_are_not_quoted() -> None:
    assert answers_plain_text([b"info", b"jobs"]) and answers_plain_text([b"CLUSTER", b"nodes"])
    assert not answers_plain_text([b"CLUSTER", b"LEAVING"]) and not answers_plain_text([])


@given(st.binary())
def test_what_is_quoted_reads_back(data: bytes) -> None:
    assert split_inline(quote(data).encode()) == [data]


@given(st.recursive(st.text() | st.integers() | st.none(), st.lists, max_leaves=20))
def test_json_is_json(value: object) -> None:
    def reply(one: object) -> Reply:
        if isinstance(one, list):
            return [reply(two) for two in one]
        return one.encode("utf-8", "ignore") if isinstance(one, str) else cast("Reply", one)

    json.loads(as_json(reply(value)))


def bytes_of(value: object) -> bytes:
    """The bytes that a value of the JSON stands for."""
    if isinstance(value, str):
        return value.encode()
    assert isinstance(value, dict) and list(value) == ["base64"]
    return base64.b64decode(value["base64"])


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "backslashreplace")))
def test_bytes_can_be_read_back_from_json(data: bytes) -> None:
    assert bytes_of(json.loads(as_json(data))) == data
    assert [bytes_of(one) for one in json.loads(as_json([data, data]))] == [data, data]
    key, value = next(iter(json.loads(as_json({b"\xff": data, b"k": data})) for _ in "1"))[:2]
    assert (bytes_of(key), bytes_of(value)) == (b"\xff", data)


def test_a_node_without_a_port_for_clients_refuses() -> None:
    """Port 0 is no path of a socket."""
    link = Link(Target("127.0.0.1", 0))
    with pytest.raises(LinkError, match=r"Tuque at 127\.0\.0\.1:0: Connection refused"):
        link.call([b"PING"])
    assert str(Target(unixsocket="/run/t")) == "/run/t"


@pytest.mark.parametrize(
    ("junk", "text"),
    [
        (b"HTTP/1.1 200 OK\r\n", "it sent b'HTTP"),
        (b"*1\r\n" * 100 + b":1\r\n", "does not speak RESP"),  # it nests without an end
        (b"*1\r\n?\r\n", "does not speak RESP"),
        (b"SSH-2.0-nobody", "it sent b'SSH"),  # no whole line, and no more comes
        (b"Tarantool 2.6.0 (Binary) 0\n", "clients of Tarantool use this port"),
    ],
)
def test_a_server_that_speaks_something_else_is_told(junk: bytes, text: str) -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(5)  # a read that waits for more fails
    link = Link(Target())
    link.wire = Wire(ours)
    with ours, theirs:
        theirs.sendall(junk)
        with pytest.raises(LinkError, match="does not speak RESP") as info:
            link.read()
    assert text in str(info.value)
    assert link.wire is None
