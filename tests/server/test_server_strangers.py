"""Attacks on a running node's bus by somebody who knows all but the secret (SPEC B1, B2.7)."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_server_bus import ANOTHER, OTHER, SECRET, Node, Stranger, flooded

from tuque.core.msgs import DelJob, Heartbeat, Pause
from tuque.server.bus.peers import COME_MS
from tuque.server.config.options import Config
from tuque.server.log import log
from tuque.server.log.log import Notes
from tuque.server.start.bus import is_any_door_open
from tuque.server.users.users import everything
from tuque.wire.bus import seal
from tuque.wire.bus.bus import BusError, head_of
from tuque.wire.bus.card import Card, Greeting, Hello
from tuque.wire.bus.handshake import MAGIC, Conn
from tuque.wire.bus.seal import CODE_BYTES
from world_trace import digest

CARD = Card(OTHER, 1, b"8 bytes.", True, 7711, 17711, "", False)
HELLO = msgspec.msgpack.encode(Hello(MAGIC, 1, 1, CARD, bytes(32)))
GREETING = msgspec.msgpack.encode(Greeting(MAGIC, 2, 2, bytes(32)))
PROOF = bytes(seal.PROOF_BYTES) + msgspec.msgpack.encode(CARD)
BOTH = {"cluster_secret": SECRET, "cluster_bind": "127.0.0.1"}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node with a secret, and a job that nobody else may touch."""
    made = Node(tmp_path, **BOTH)
    made.say("ADDJOB", "q", "body", 0, "RETRY", 30)
    yield made
    made.box.check()
    made.box.close()


def framed(payload: bytes) -> bytes:
    """A frame as in the handshake."""
    return head_of(payload, 0) + payload


def job_of(node: Node) -> bytes:
    """The id of its job."""
    return next(iter(node.box.n.jobs))


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
def test_one_packet_changes_nothing(node: Node, packet: bytes) -> None:
    """B2.5 Any failure while the bytes of another node are read, before or after authentication and
    whoever dialled, ends that link and nothing else."""
    before = digest(node.box.n)
    friend = Stranger(node)
    assert friend.join()
    linked = digest(node.box.n)
    stranger = Stranger(node)
    stranger.send(packet)
    assert not stranger.is_open()
    assert friend.is_open() and node.box.n.reachable_count == 1
    assert digest(node.box.n) == linked == before
    assert node.bus.figures.refused == 1


def test_a_stranger_hears_the_same_from_every_node(tmp_path: Path) -> None:
    """B1.1 Before, it sends nothing that depends on the secret, and nothing about itself."""
    heard = set()
    for name, secret in (("a", SECRET), ("b", ANOTHER)):
        (tmp_path / name).mkdir()
        node = Node(tmp_path / name, cluster_secret=secret, cluster_bind="127.0.0.1")
        stranger = Stranger(node)
        stranger.send(framed(GREETING) + framed(PROOF))
        data = stranger.read() or b""
        assert node.box.n.node_id not in data
        greeting = msgspec.msgpack.decode(data[8 : 8 + len(GREETING)], type=Greeting)
        heard.add(data[8 + len(GREETING) :])
        assert greeting.magic == MAGIC and len(greeting.nonce) == 32
        node.box.close()
    assert len(heard) == 1  # one refusal, without a key


def evil(node: Node) -> bytes:
    """What deletes an acknowledged job."""
    return msgspec.msgpack.encode([DelJob(job_of(node), 0, 60_000)])


FORGED = {
    "a guessed code": lambda data: len(data).to_bytes(4, "big") + bytes(CODE_BYTES) + data,
    "a checksum": lambda data: framed(data) * 2,
    "a checksum of the code's size": lambda data: (
        len(data).to_bytes(4, "big") + head_of(data, 0)[4:] * 4 + data
    ),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_frame_forged_after_the_handshake_deletes_no_job(node: Node, forge: object) -> None:
    """B2.7: it ends the link before it is decoded, and changes nothing. `bus_frames_refused` in
    INFO counts these frames"""
    friend = Stranger(node)
    assert friend.join()
    before = digest(node.box.n)
    friend.send(forge(evil(node)))  # type: ignore[operator]  # a function of the table
    assert not friend.is_open()
    assert digest(node.box.n) == before
    assert b"bus_frames_refused:1\r\n" in node.say("INFO", "bus")


def test_a_frame_sent_again_is_not_heard_again(node: Node) -> None:
    """B2.7 A frame that was forged, changed, repeated, left out or moved has a wrong code"""
    friend = Stranger(node)
    assert friend.join()
    frame = friend.conn.encode([Pause(b"other", 1, 1)])
    friend.send(frame)
    assert friend.is_open()
    before, heard = digest(node.box.n), node.bus.figures.in_frames
    friend.send(frame)
    assert not friend.is_open()
    assert digest(node.box.n) == before and node.bus.figures.in_frames == heard
    assert node.bus.figures.frames_refused == 1


def test_forged_frames_are_logged_once_a_minute(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B2.7: and the log names the other end once a minute"""
    monkeypatch.setattr(log, "_notes", Notes())
    with caplog.at_level(logging.INFO, "tuque.server"):
        for life in range(1, 6):
            stranger = Stranger(node, "wrong " + ANOTHER)
            stranger.send(framed(GREETING) + framed(PROOF + b"%d" % life))
    told = [r.getMessage() for r in caplog.records if "no link with" in r.getMessage()]
    assert len(told) == 1 and "127.0.0.1" in told[0]


def test_a_flood_keeps_no_node_out(node: Node) -> None:
    """L1: the oldest accepted one is closed; B1.9: of one address not all are looked at"""
    flood = flooded(node, 300)
    node.later(COME_MS)  # a node dials again until it is among the first
    friend = Stranger(node)
    more = [Stranger(node) for _ in range(50)]
    assert friend.join()
    assert len(node.bus.young) <= 128
    for one in flood + more:
        one.sock.close()


# ---- a password without a secret


def test_a_password_without_a_secret_has_no_bus(tmp_path: Path) -> None:
    """B1.7 With `requirepass` or a `users-file` and without a secret a node has no links: it closes
    every connection to its bus, and dials nobody. `CLUSTER MEET` says what to do."""
    node = Node(tmp_path, requirepass="a password of many bytes")
    try:
        assert node.say("AUTH", "a password of many bytes") == b"+OK\r\n"
        reply = node.say("CLUSTER", "MEET", "127.0.0.1", 7711, 17711)
        assert reply.startswith(b"-ERR this node restricts its clients and has no cluster-secret")
        assert b"tuque cluster secret" in reply
        stranger = Stranger(node)
        assert not stranger.is_open()
        node.bus.connect("127.0.0.1", "127.0.0.1", 17711)
        assert len(node.bus.links) == 0
        assert b"bus_shut:1" in node.say("INFO", "bus")
        assert node.say("CONFIG", "SET", "cluster-secret", SECRET) == b"+OK\r\n"
        assert b"bus_shut:0" in node.say("INFO", "bus")
        assert Stranger(node).join()
    finally:
        node.box.close()


def test_a_password_comes_after_the_secret(tmp_path: Path) -> None:
    """B1.7 While a node without a secret has links, CONFIG SET refuses to set `requirepass`, and
    ACL SETUSER to close `default`: all nodes need a secret first."""
    node = Node(tmp_path)
    try:
        friend = open_friend(node)
        reply = node.say("CONFIG", "SET", "requirepass", "a password of many bytes")
        assert reply.startswith(b"-ERR CONFIG SET requirepass: this node is linked")
        assert b"tuque cluster secret" in reply
        assert node.say("ACL", "SETUSER", "bob", "on", "nopass", "+@all", "~*") == b"+OK\r\n"
        for words in (["off"], ["resetpass", ">a password of many bytes"], ["-acl"]):
            reply = node.say("ACL", "SETUSER", "default", *words)
            assert reply.startswith(b"-ERR ACL SETUSER default: this node is linked")
        assert node.say("PING") == b"+PONG\r\n"
        friend.close()
        node.turns()
        reply = node.say("CONFIG", "SET", "requirepass", "a password of many bytes")
        assert reply == b"+OK\r\n"
        assert node.bus.shut
    finally:
        node.box.close()


@pytest.mark.parametrize("words", [["off"], ["resetpass", ">many bytes"], ["-acl"], ["resetkeys"]])
def test_users_without_a_secret_have_no_bus(tmp_path: Path, words: list[str]) -> None:
    """B1.7 The same holds whenever no door of the node lets every process of its machine do
    everything: `default` is off, needs a password or may not do all; or there are only ports that
    ask for a certificate, and unix sockets that others cannot write to."""
    node = Node(tmp_path)
    try:
        assert node.say("ACL", "SETUSER", "bob", "on", ">secret", "+@all", "~*") == b"+OK\r\n"
        assert not node.bus.shut
        assert node.say("ACL", "SETUSER", "default", *words) == b"+OK\r\n"
        assert node.bus.shut
        assert not Stranger(node).is_open()
    finally:
        node.box.close()


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


def open_friend(node: Node) -> socket.socket:
    """A node of this machine, without a secret, that is linked."""
    sock = socket.create_connection(("127.0.0.1", int(node.bus.port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    conn = Conn(True, CARD, [], bytes(32), 1 << 30)
    node.turns()
    sock.settimeout(5)
    while conn.peer is None:
        sock.sendall(conn.take_out())
        node.turns()
        conn.feed(sock.recv(1 << 16))
    sock.sendall(conn.take_out())
    sock.sendall(conn.encode([Heartbeat(1, 0, 0, 7711, [])]))
    node.turns()
    assert len(node.bus.by_slot) == 1
    return sock


# ---- other secrets


def test_links_under_a_secret_that_is_gone_end(node: Node) -> None:
    """B1.6 A link under a secret that is no longer accepted ends, and is dialled again."""
    old = Stranger(node)
    assert old.join()
    assert node.say("CONFIG", "SET", "cluster-secret-also", ANOTHER) == b"+OK\r\n"
    new = Stranger(node, ANOTHER, node_id=b"ab" * 20)
    assert old.is_open() and new.join()
    assert node.say("CONFIG", "SET", "cluster-secret", ANOTHER) == b"+OK\r\n"
    assert not old.is_open() and new.is_open()
    with pytest.raises(BusError, match="wrong secret"):
        Stranger(node).join()


def test_ids_made_under_a_former_secret_stay_known(node: Node) -> None:
    """G6.5 The key of a secret that was replaced stays known: the last 8, also after a restart."""
    n = node.box.n
    before = n.ids.make(60, 1)
    for number in range(3):
        secret = SECRET if number % 2 else ANOTHER
        assert node.say("CONFIG", "SET", "cluster-secret", secret) == b"+OK\r\n"
        assert n.ids.knows(n.ids.make(60, 1)) and n.ids.knows(before)
    assert len(n.ids.older) == 1
    kept = node.server.members.kept_text("")
    assert kept.rstrip().endswith(f"idkey {n.ids.older[0].hex()}")
    assert SECRET not in kept and ANOTHER not in kept


def test_secrets_are_in_no_log(node: Node) -> None:
    """S8: No section shows secrets."""
    for name in ("cluster-secret", "cluster-secret-also"):
        node.say("CONFIG", "SET", name, ANOTHER)
    shown = node.say("SLOWLOG", "GET") + node.say("CONFIG", "GET", "*") + node.say("INFO")
    assert ANOTHER.encode() not in shown and SECRET.encode() not in shown
