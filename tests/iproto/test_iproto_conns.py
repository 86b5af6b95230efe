"""Connections of IPROTO: greeting, requests without tubes, logins, limits (SPEC I1-I5)."""

from __future__ import annotations

from pathlib import Path
from uuid import RFC_4122, UUID

import pytest

from iproto_raw import IprotoBox, Said, request
from tuque.server.start.doors import UsersError, read_users
from tuque.server.state.server import uuid_of
from tuque.wire.proto.iproto import error_reply, ok_reply, secret_of

USERS = """
# who may log in
admin sesame all
bob   #%s
guest nopass
"""


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """A file of users."""
    path = tmp_path / "users"
    path.write_text(USERS % secret_of(b"s3cret").hex())
    return path


def test_greeting_and_ping(box: IprotoBox) -> None:
    """I1.1, I4.1"""
    one, two = box.conn(), box.conn()
    assert one.greeting.startswith(b"Tarantool 2.6.0 (Binary) c0ffee00-c0ff-4e00-80ff-ee00c0ffee00")
    assert one.greeting[:64] == two.greeting[:64]
    assert one.salt != two.salt and len(one.salt) == 32
    assert one.hear(one.ask(64)) == Said(1, 0, None)
    one.send(bytes.fromhex("ce00000005820040 0103"))
    assert one.receive() == ok_reply(3)


@pytest.mark.parametrize("digit", "0123456789abcdef")
def test_every_node_has_a_uuid_that_net_box_takes(digit: str) -> None:
    """I1.1: two digits say that it is of version 4; with e or f as digit 17 it would be none."""
    node_id = "ab" * 8 + digit + "ab" * 7 + "cd" * 4 + "e"
    uuid = UUID(uuid_of(node_id.encode()).decode())
    assert (uuid.version, uuid.variant) == (4, RFC_4122)
    same = [one == other for one, other in zip(uuid.hex, node_id, strict=False)]
    assert same.count(False) <= 2


def test_a_pipeline_is_one_write(box: IprotoBox) -> None:
    """C8.2"""
    conn = box.conn()
    conn.send(b"".join(request(64, sync) for sync in range(100)))
    said = b"".join(ok_reply(sync) for sync in range(100))
    assert conn.receive() == said


def test_schema_is_empty(box: IprotoBox) -> None:
    """I4.2, I4.3"""
    conn = box.conn()
    for space in (281, 289, 277):
        assert (
            conn.hear(conn.ask(1, {0x10: space, 0x12: (1 << 64) - 1, 0x14: 2, 0x20: []})).data == []
        )
    assert conn.hear(conn.ask(1, {0x10: 512, 0x20: []}))[1:] == (36, "Space '512' does not exist")


def test_other_types(box: IprotoBox) -> None:
    """I4.6, I4.7"""
    conn = box.conn()
    conn.send(request(73, 5, {0x54: 4, 0x55: [0, 1]}))
    assert conn.receive().endswith(bytes.fromhex("82 54 01 55 90"))
    assert conn.hear(conn.ask(2, {}))[1:] == (48, "Unknown request type 2")
    assert conn.hear(conn.ask(10, {0x21: []})).code == 69
    assert conn.hear(conn.ask(10, {0x22: 5})).code == 20
    assert conn.hear(conn.ask(10, {0x22: "queue.put", 0x21: {}})).code in (20, 33)


@pytest.mark.parametrize(
    "bytes_", [b"\xc1", b"GET / HTTP/1.1\r\n\r\n" + b"x" * 100, b"\xce\xff\0\0\0"]
)
def test_a_broken_stream_is_told_and_closed(box: IprotoBox, bytes_: bytes) -> None:
    """I2.3, I2.4"""
    conn = box.conn()
    conn.send(request(64, 1) + bytes_ + request(64, 2))
    assert conn.hear() == Said(1, 0, None)
    said = conn.hear()
    assert (said.sync, said.code) == (0, 20)
    assert said.data.startswith("Invalid MsgPack - ")
    assert not conn.is_open()


def test_a_bad_body_is_told_and_the_connection_goes_on(box: IprotoBox) -> None:
    """I2.5"""
    conn = box.conn()
    conn.send(bytes.fromhex("07 82 000a 0107 81 21") + request(64, 8))
    assert conn.hear() == Said(7, 20, "Invalid MsgPack - packet body")
    assert conn.hear() == Said(8, 0, None)


def test_logins(tmp_path: Path, users: Path) -> None:
    """I5.1-I5.5"""
    box = IprotoBox(tmp_path)
    try:
        box.server.users = read_users(str(users))
        conn = box.conn()
        denied = "Execute access to function 'queue.state' is denied for user '%s'"
        assert conn.call("queue.state") == Said(1, 42, denied % "guest")
        assert conn.log_in("admin", "sesame").code == 0
        assert conn.call("queue.nothing").code == 33
        wrong = "User not found or supplied credentials are invalid"
        assert conn.log_in("admin", "sesam")[1:] == (47, wrong)
        assert conn.call("queue.state")[1:] == (42, denied % "guest")
        assert conn.log_in("eve", "x")[1:] == (47, wrong), "it tells who is a user"
        assert conn.log_in("bob", "s3cret").code == 0
        assert conn.call("queue.state")[1:] == (42, denied % "bob")
        assert conn.hear(conn.ask(7, {0x23: "guest", 0x21: []})).code == 0
        assert conn.hear(conn.ask(7, {0x23: "bob", 0x21: []}))[1:] == (
            20,
            "Invalid MsgPack - authentication request body",
        )
        short = conn.hear(conn.ask(7, {0x23: "bob", 0x21: ["chap-sha1", "x" * 19]}))
        assert short[1:] == (20, "Invalid MsgPack - invalid scramble size")
        assert conn.log_in("guest", "").code == 47, "a guest has no password to prove"
    finally:
        box.close()


def test_strangers_send_small_frames(tmp_path: Path) -> None:
    """I2.3, I5.5: with a requirepass and no file of users nobody is let in."""
    box = IprotoBox(tmp_path, requirepass="hidden")
    try:
        conn = box.conn()
        assert conn.call("queue.state").code == 42
        conn.send(request(10, 9, {0x22: "x" * 20_000}))
        assert conn.hear().data.startswith("Invalid MsgPack - too big packet size")
        assert not conn.is_open()
    finally:
        box.close()


def test_the_frame_limit_follows_the_login(box: IprotoBox) -> None:
    """I2.3"""
    conn = box.conn()
    name = "x" * 1_000_000
    assert conn.call(name).data == f"Procedure '{name}' is not defined"
    box.server.max_bulk = 1000
    late = box.conn()
    late.send(b"\xce" + (2 << 20).to_bytes(4, "big"))
    assert late.hear().code == 20


BAD_USERS = [
    "bob",
    "bob a b",
    "bob nopass",
    "bob #12",
    "bob #" + "z" * 40,
    "a b\na c",
    "guest x all",
    "a b c d",
]


@pytest.mark.parametrize("text", BAD_USERS)
def test_a_file_of_users_that_is_no_good(tmp_path: Path, text: str) -> None:
    """I5.6"""
    path = tmp_path / "users"
    path.write_text(text)
    with pytest.raises(UsersError):
        read_users(str(path))


def test_half_a_request_and_silence(box: IprotoBox) -> None:
    """I1.3, C2.5"""
    conn = box.conn()
    conn.send(request(64, 1)[:7])
    box.pass_ms(10)
    assert conn.is_open()
    box.pass_ms(31_000)
    box.pass_ms(200)
    assert not conn.is_open()


def test_a_reader_that_does_not_read_is_closed(tmp_path: Path) -> None:
    """C2.6"""
    box = IprotoBox(tmp_path, client_output_buffer_limit="normal 1mb 0 0")
    try:
        conn = box.conn()
        ping = request(64, 1) * 2_000
        for _ in range(200):
            conn.sock.setblocking(False)
            try:
                conn.sock.send(ping)
            except BlockingIOError:
                pass
            except ConnectionError:
                break
            box.pump.turn(0)
        assert box.server.figures.output_closed == 1
        assert len(box.server.wired) == 0
    finally:
        box.close()


def test_clients_beyond_the_limit(tmp_path: Path) -> None:
    """I1.3, C1.1"""
    box = IprotoBox(tmp_path, maxclients="1")
    try:
        conn = box.conn()
        with pytest.raises(ConnectionError):
            box.conn()
        assert conn.hear(conn.ask(64)).code == 0
        assert box.server.figures.rejected == 1
    finally:
        box.close()


def test_a_half_closed_client_gets_its_replies(box: IprotoBox) -> None:
    conn = box.conn()
    conn.send(request(64, 1) * 3)
    conn.sock.shutdown(1)
    assert [conn.hear().sync for _ in range(3)] == [1, 1, 1]
    assert not conn.is_open()


def test_random_bytes_never_stop_the_server(box: IprotoBox) -> None:
    """I2: a good client beside strangers is served."""
    good = box.conn()
    for seed in range(60):
        conn = box.conn()
        noise = bytes((seed * 7919 + at * at * 31 + at) % 256 for at in range(300))
        conn.send(
            noise if seed % 2 else request(10, 1, {0x22: "queue.state", 0x21: []})[:5] + noise
        )
        conn.close()
        box.pump.turn(0)
    assert good.hear(good.ask(64)).code == 0
    assert error_reply(1, 20, b"x")
