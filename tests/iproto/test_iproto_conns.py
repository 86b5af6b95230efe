"""Connections of IPROTO: greeting, requests without tubes, logins, limits (SPEC I1-I5)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import RFC_4122, UUID

import pytest

from iproto_raw import Said, request
from tuque.server.start.doors import UsersError, read_users
from tuque.server.state.server import uuid_of
from tuque.wire.proto.iproto import error_reply, ok_reply, secret_of
from world import World

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


def test_greeting_and_ping(world: World) -> None:
    """I1.1, I4.1"""
    one, two = world.iproto(), world.iproto()
    assert one.greeting.startswith(b"Tarantool 2.6.0 (Binary) 0a0a0a0a-0a0a-4a0a-8a0a-0a0a0a0a0a0a")
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


def test_a_pipeline_is_one_write(world: World) -> None:
    """C8.2"""
    conn = world.iproto()
    conn.send(b"".join(request(64, sync) for sync in range(100)))
    said = b"".join(ok_reply(sync) for sync in range(100))
    assert conn.receive() == said


def test_schema_is_empty(world: World) -> None:
    """I4.2, I4.3"""
    conn = world.iproto()
    for space in (281, 289, 277):
        assert (
            conn.hear(conn.ask(1, {0x10: space, 0x12: (1 << 64) - 1, 0x14: 2, 0x20: []})).data == []
        )
    assert conn.hear(conn.ask(1, {0x10: 512, 0x20: []}))[1:] == (36, "Space '512' does not exist")


def test_other_types(world: World) -> None:
    """I4.6, I4.7"""
    conn = world.iproto()
    conn.send(request(73, 5, {0x54: 4, 0x55: [0, 1]}))
    assert conn.receive().endswith(bytes.fromhex("82 54 01 55 90"))
    assert conn.hear(conn.ask(2, {}))[1:] == (48, "Unknown request type 2")
    assert conn.hear(conn.ask(10, {0x21: []})).code == 69
    assert conn.hear(conn.ask(10, {0x22: 5})).code == 20
    assert conn.hear(conn.ask(10, {0x22: "queue.put", 0x21: {}})).code in (20, 33)


@pytest.mark.parametrize(
    "bytes_", [b"\xc1", b"GET / HTTP/1.1\r\n\r\n" + b"x" * 100, b"\xce\xff\0\0\0"]
)
def test_a_broken_stream_is_told_and_closed(world: World, bytes_: bytes) -> None:
    """I2.3, I2.4"""
    conn = world.iproto()
    conn.send(request(64, 1) + bytes_ + request(64, 2))
    assert conn.hear() == Said(1, 0, None)
    said = conn.hear()
    assert (said.sync, said.code) == (0, 20)
    assert said.data.startswith("Invalid MsgPack - ")
    assert not conn.is_open()


def test_a_bad_body_is_told_and_the_connection_goes_on(world: World) -> None:
    """I2.5"""
    conn = world.iproto()
    conn.send(bytes.fromhex("07 82 000a 0107 81 21") + request(64, 8))
    assert conn.hear() == Said(7, 20, "Invalid MsgPack - packet body")
    assert conn.hear() == Said(8, 0, None)


def test_logins(make_world: Callable[..., World], users: Path) -> None:
    """I5.1-I5.5"""
    world = make_world()
    world.server.users = read_users(str(users))
    conn = world.iproto()
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


def test_strangers_send_small_frames(make_world: Callable[..., World]) -> None:
    """I2.3, I5.5: with a requirepass and no file of users nobody is let in."""
    world = make_world(requirepass="hidden")
    conn = world.iproto()
    assert conn.call("queue.state").code == 42
    conn.send(request(10, 9, {0x22: "x" * 20_000}))
    assert conn.hear().data.startswith("Invalid MsgPack - too big packet size")
    assert not conn.is_open()


def test_the_frame_limit_follows_the_login(world: World) -> None:
    """I2.3"""
    conn = world.iproto()
    name = "x" * 1_000_000
    assert conn.call(name).data == f"Procedure '{name}' is not defined"
    world.server.max_bulk = 1000
    late = world.iproto()
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


def test_half_a_request_and_silence(world: World) -> None:
    """I1.3, C2.5"""
    conn = world.iproto()
    conn.send(request(64, 1)[:7])
    world.pass_ms(10)
    assert conn.is_open()
    world.pass_ms(31_000)
    world.pass_ms(200)
    assert not conn.is_open()


def test_a_reader_that_does_not_read_is_closed(make_world: Callable[..., World]) -> None:
    """C2.6"""
    world = make_world(client_output_buffer_limit="normal 1mb 0 0")
    conn = world.iproto()
    ping = request(64, 1) * 2_000
    conn.stop_reading()
    for _ in range(200):
        conn.send(ping)
    assert world.server.figures.output_closed == 1
    assert len(world.server.wired) == 0


def test_clients_beyond_the_limit(make_world: Callable[..., World]) -> None:
    """I1.3, C1.1"""
    world = make_world(maxclients="1")
    conn = world.iproto()
    with pytest.raises(ConnectionError):
        world.iproto()
    assert conn.hear(conn.ask(64)).code == 0
    assert world.server.figures.rejected == 1


def test_a_half_closed_client_gets_its_replies(world: World) -> None:
    conn = world.iproto()
    conn.put(request(64, 1) * 3)
    conn.stop_writing()
    assert [conn.hear().sync for _ in range(3)] == [1, 1, 1]
    assert not conn.is_open()


def test_random_bytes_never_stop_the_server(world: World) -> None:
    """I2: a good client beside strangers is served."""
    good = world.iproto()
    for seed in range(60):
        conn = world.iproto()
        noise = bytes((seed * 7919 + at * at * 31 + at) % 256 for at in range(300))
        conn.send(
            noise if seed % 2 else request(10, 1, {0x22: "queue.state", 0x21: []})[:5] + noise
        )
        conn.close()
        world.settle()
    assert good.hear(good.ask(64)).code == 0
    assert error_reply(1, 20, b"x")
