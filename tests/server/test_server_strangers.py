"""Attacks on a running node's bus by somebody who knows all but the secret (SPEC B1, B2.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from test_server_bus import flooded

from tuque.core.msgs.bus import DelJob, Pause
from tuque.server.bus.peers import COME_MS
from tuque.server.config.options import Config
from tuque.server.start.bus import is_any_door_open
from tuque.server.users.users import everything
from tuque.wire.bus import seal
from tuque.wire.bus.bus import BusError, head_of
from tuque.wire.bus.card import Greeting, Hello
from tuque.wire.bus.handshake import MAGIC
from tuque.wire.bus.seal import CODE_BYTES
from world import World
from world_strangers import ANOTHER, CARD, SECRET
from world_trace import digest

HELLO = msgspec.msgpack.encode(Hello(MAGIC, 1, 1, CARD, bytes(32)))
GREETING = msgspec.msgpack.encode(Greeting(MAGIC, 2, 2, bytes(32)))
PROOF = bytes(seal.PROOF_BYTES) + msgspec.msgpack.encode(CARD)
PASSWORD = "a password of many bytes"


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A node with a secret, and a job that nobody else may touch."""
    made = make_world(journal="off", cluster_secret=SECRET)
    made("ADDJOB", "q", "body", 0, "RETRY", 30)
    return made


def framed(payload: bytes) -> bytes:
    """A frame as in the handshake."""
    return head_of(payload, 0) + payload


def job_of(world: World) -> bytes:
    """The id of its job."""
    return next(iter(world.n.jobs))


ONE_PACKETS = {
    "a greeting and a proof": framed(GREETING) + framed(PROOF),
    "a hello without a secret": framed(HELLO),
    "a hello and its code": framed(HELLO) + framed(bytes(32)),
    "messages at once": framed(msgspec.msgpack.encode([Pause(b"q", 3, 1)])),
    "a greeting and messages": framed(GREETING) + framed(b"\x91\x92\x03\x90"),
    "a proof that ends early": framed(GREETING) + framed(PROOF[:31]),
    "an empty proof": framed(GREETING) + framed(b""),
    "no text in the card": framed(GREETING) + framed(PROOF.replace(b"\xa0", b"\xa1\xff")),
}  # fmt: skip


@pytest.mark.parametrize("packet", ONE_PACKETS.values(), ids=ONE_PACKETS)
def test_one_packet_changes_nothing(world: World, packet: bytes) -> None:
    """B2.5 Any failure while the bytes of another node are read ends that link and nothing else."""
    before = digest(world.n)
    friend = world.stranger()
    assert friend.join()
    linked = digest(world.n)
    stranger = world.stranger()
    stranger.give(packet)
    assert not stranger.is_open()
    assert friend.is_open() and world.n.reachable_count == 1
    assert digest(world.n) == linked == before
    assert world.bus.figures.refused == 1


def test_a_stranger_hears_the_same_from_every_node(make_world: Callable[..., World]) -> None:
    """B1.1 Before, it sends nothing that depends on the secret, and nothing about itself."""
    heard = set()
    for secret in (SECRET, ANOTHER):
        world = make_world(journal="off", cluster_secret=secret)
        data = world.stranger().say(framed(GREETING) + framed(PROOF))
        assert world.n.node_id not in data
        greeting = msgspec.msgpack.decode(data[8 : 8 + len(GREETING)], type=Greeting)
        heard.add(data[8 + len(GREETING) :])
        assert greeting.magic == MAGIC and len(greeting.nonce) == 32
    assert len(heard) == 1  # one refusal, without a key


def evil(world: World) -> bytes:
    """What deletes an acknowledged job."""
    return msgspec.msgpack.encode([DelJob(job_of(world), 0, 60_000)])


FORGED = {
    "a guessed code": lambda data: len(data).to_bytes(4, "big") + bytes(CODE_BYTES) + data,
    "a checksum": lambda data: framed(data) * 2,
    "a checksum of the code's size": lambda data: (
        len(data).to_bytes(4, "big") + head_of(data, 0)[4:] * 4 + data
    ),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_frame_forged_after_the_handshake_deletes_no_job(world: World, forge: object) -> None:
    """B2.7: it ends the link before it is decoded, and changes nothing. `bus_frames_refused` in
    INFO counts these frames"""
    friend = world.stranger()
    assert friend.join()
    before = digest(world.n)
    friend.give(forge(evil(world)))  # type: ignore[operator]  # a function of the table
    assert not friend.is_open()
    assert digest(world.n) == before
    assert b"bus_frames_refused:1\r\n" in world("INFO", "bus")


def test_a_frame_sent_again_is_not_heard_again(world: World) -> None:
    """B2.7 A frame that was forged, changed, repeated, left out or moved has a wrong code"""
    friend = world.stranger()
    assert friend.join()
    frame = friend.conn.encode([Pause(b"other", 1, 1)])
    friend.give(frame)
    assert friend.is_open()
    before, heard = digest(world.n), world.bus.figures.in_frames
    friend.give(frame)
    assert not friend.is_open()
    assert digest(world.n) == before and world.bus.figures.in_frames == heard
    assert world.bus.figures.frames_refused == 1


def test_forged_frames_are_logged_once_a_minute(world: World) -> None:
    """B2.7: and the log names the other end once a minute"""
    for life in range(1, 6):
        stranger = world.stranger(secret="wrong " + ANOTHER)
        stranger.give(framed(GREETING) + framed(PROOF + b"%d" % life))
    told = [line for line in world.node().log if "no link with" in line]
    assert len(told) == 1 and "127.0.0.1" in told[0]


def test_a_flood_keeps_no_node_out(world: World) -> None:
    """L1: the oldest accepted one is closed; B1.9: of one address not all are looked at"""
    flood = flooded(world, 300)
    world.pass_ms(COME_MS)  # a node dials again until it is among the first
    friend = world.stranger()
    more = [world.stranger() for _ in range(50)]
    assert friend.join()
    assert len(world.bus.unauthenticated) <= 128
    assert any(not one.is_open() for one in (*flood, *more)), "it was no flood"


# ---- a password without a secret


@pytest.fixture
def bare(make_world: Callable[..., World]) -> Callable[..., World]:
    """Makes nodes without a secret, and with nothing in its place."""

    def make(**options: object) -> World:
        made = make_world(journal="off", **options)
        made.bus.filler = b""
        return made

    return make


def test_a_password_without_a_secret_has_no_bus(bare: Callable[..., World]) -> None:
    """B1.7 With `requirepass` or a `users-file` and without a secret a node has no links: it closes
    every connection to its bus, and dials nobody. `CLUSTER MEET` says what to do."""
    world = bare(requirepass=PASSWORD)
    assert world("AUTH", PASSWORD) == b"+OK\r\n"
    reply = world("CLUSTER", "MEET", "127.0.0.1", 7711, 17711)
    assert reply.startswith(b"-ERR this node restricts its clients and has no cluster-secret")
    assert b"tuque cluster secret" in reply
    assert not world.stranger().is_open()
    host = world.host()
    world.bus.connect(host.address, host.address, 17711)
    world.settle()
    assert not host.came and len(world.bus.links) == 0
    assert b"bus_shut:1" in world("INFO", "bus")
    assert world("CONFIG", "SET", "cluster-secret", SECRET) == b"+OK\r\n"
    assert b"bus_shut:0" in world("INFO", "bus")
    assert world.stranger().join()


CLOSERS = [
    ("CONFIG", "SET", "requirepass", PASSWORD),
    ("ACL", "SETUSER", "default", "off"),
    ("ACL", "SETUSER", "default", "resetpass", f">{PASSWORD}"),
    ("ACL", "SETUSER", "default", "-acl"),
]


@pytest.mark.parametrize("closes", CLOSERS)
def test_a_closed_door_ends_the_links(
    bare: Callable[..., World], caplog: pytest.LogCaptureFixture, closes: tuple[str, ...]
) -> None:
    """B1.7 If they close the last such door, the node's links end at once, with the reason in
    the log, until a door opens again or the node gets a secret; its jobs and tubes stay as those
    of a node that is cut off.
    """
    world = bare()
    assert world("ACL", "SETUSER", "admin", "on", f">{PASSWORD}", "+@all", "~*") == b"+OK\r\n"
    friend = world.stranger()
    assert friend.join() and len(world.bus.by_slot) == 1
    assert world(*closes) == b"+OK\r\n"
    assert not friend.is_open() and len(world.bus.by_slot) == 0
    assert not world.stranger().is_open()
    assert [one for one in caplog.messages if one.startswith("no links: this node restricts")]
    # When a door opens again, or the node gets a secret, it is linked again.
    assert world("AUTH", "admin", PASSWORD) == b"+OK\r\n"
    if closes[0] == "CONFIG":
        assert world("CONFIG", "SET", "requirepass", "") == b"+OK\r\n"
    else:
        assert world("ACL", "SETUSER", "default", "on", "nopass", "+@all", "~*") == b"+OK\r\n"
    assert world.stranger().join()


@pytest.mark.parametrize("words", [["off"], ["resetpass", ">many bytes"], ["-acl"], ["resetkeys"]])
def test_users_without_a_secret_have_no_bus(bare: Callable[..., World], words: list[str]) -> None:
    """B1.7 The same holds whenever no door of the node lets every process of its machine do
    everything: `default` is off, needs a password or may not do all; or there are only ports that
    ask for a certificate, and unix sockets that others cannot write to."""
    world = bare()
    assert world("ACL", "SETUSER", "bob", "on", ">secret", "+@all", "~*") == b"+OK\r\n"
    assert not world.bus.shut
    assert world("ACL", "SETUSER", "default", *words) == b"+OK\r\n"
    assert world.bus.shut
    assert not world.stranger().is_open()


@pytest.mark.parametrize(
    ("options", "is_open"),
    [
        ({"port": 7711}, True),
        ({"port": 0}, True),
        ({"port": 0, "unixsocket": "s", "unixsocketperm": 0o700}, False),
        ({"port": 0, "unixsocket": "s", "unixsocketperm": 0o777}, True),
        ({"port": 0, "tls_port": 7713, "tls_auth_clients": "optional"}, True),
        ({"port": 0, "tls_port": 7713, "tls_auth_clients": "yes"}, False),
        ({"port": 7711, "users_file": "users"}, False),
    ],
)
def test_doors_that_let_every_process_in(options: dict[str, Any], is_open: bool) -> None:
    """B1.7 The same holds whenever no door of the node lets every process of its machine do
    everything: `default` is off, needs a password or may not do all; or there are only ports that
    ask for a certificate, and unix sockets that others cannot write to."""
    assert is_any_door_open(Config(**options), everything(b"default")) is is_open


# ---- other secrets


def test_links_under_a_secret_that_is_gone_end(world: World) -> None:
    """B1.6 A link under a secret that is no longer accepted ends, and is dialled again."""
    old = world.stranger()
    assert old.join()
    assert world("CONFIG", "SET", "cluster-secret-also", ANOTHER) == b"+OK\r\n"
    new = world.stranger(secret=ANOTHER, node_id=b"ab" * 20)
    assert old.is_open() and new.join()
    assert world("CONFIG", "SET", "cluster-secret", ANOTHER) == b"+OK\r\n"
    assert not old.is_open() and new.is_open()
    with pytest.raises(BusError, match="wrong secret"):
        world.stranger(secret=SECRET).join()


def test_ids_made_under_a_former_secret_stay_known(world: World) -> None:
    """G6.5 The key of a secret that was replaced stays known: the last 8, also after a restart."""
    n = world.n
    before = n.ids.make(60, 1)
    for number in range(3):
        secret = SECRET if number % 2 else ANOTHER
        assert world("CONFIG", "SET", "cluster-secret", secret) == b"+OK\r\n"
        assert n.ids.knows(n.ids.make(60, 1)) and n.ids.knows(before)
    assert len(n.ids.older) == 1
    kept = world.server.members.kept_text("")
    assert kept.rstrip().endswith(f"idkey {n.ids.older[0].hex()}")
    assert SECRET not in kept and ANOTHER not in kept


def test_secrets_are_in_no_log(world: World) -> None:
    """S8: No section shows secrets."""
    for name in ("cluster-secret", "cluster-secret-also"):
        world("CONFIG", "SET", name, ANOTHER)
    shown = world("SLOWLOG", "GET") + world("CONFIG", "GET", "*") + world("INFO")
    assert ANOTHER.encode() not in shown and SECRET.encode() not in shown
