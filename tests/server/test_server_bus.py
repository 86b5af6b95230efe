"""The bus of one pump, and another end that does what no node should (SPEC B1, B2, K1)."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pump_box import PumpBox
from raw_resp import encode
from tuque.core.copies.replicate import copy_of
from tuque.core.msgs import (
    GotJob,
    Heartbeat,
    Pause,
    Refusal,
    ReplJob,
)
from tuque.core.node.peers import say
from tuque.server.bus.peers import COME_MAX, COME_MS, HANDSHAKE_MS, YOUNG_MAX, Bus
from tuque.server.log import log
from tuque.server.log.log import Notes
from tuque.server.start.bus import open_bus, prepare_bus
from tuque.wire.bus.bus import BusError
from tuque.wire.bus.card import Card
from tuque.wire.bus.handshake import Conn
from tuque.wire.bus.seal import STEP_BYTES
from world_trace import digest

ID = b"D-0a0a0a0a-VTUo3R4lebIYJdAAEwe8bf2U-05a1"
OTHER = b"0123456789" * 4
SECRET = "kY3vR8wQz1LmN5tXb7cD2fGh4jPs6aEu0oHi9ZyVxWq"
ANOTHER = "Zp0aX9sLw8dKe7fJr6gHt5yGu4iFo3pDq2zSx1cVb_M"


class Node:
    """A pump with its bus open."""

    def __init__(self, here: Path, **options: str) -> None:
        self.box = PumpBox(here, **options)
        self.server = self.box.server
        prepare_bus(self.box.pump)
        open_bus(self.box.pump)
        assert self.server.bus is not None
        self.bus: Bus = self.server.bus
        self.client = self.box.connect()

    def say(self, *words: str | bytes | int) -> bytes:
        """A command of a client; its reply."""
        return self.box.say(self.client, encode(*words))

    def turns(self, count: int = 4) -> None:
        """Let it read and answer what there is."""
        for _ in range(count):
            self.box.pump.turn(2)

    def later(self, ms: int) -> None:
        """Time passes at once."""
        self.box.n.now_ms += ms
        self.turns()


class Stranger:
    """The other end of a connection to the bus."""

    def __init__(
        self, node: Node, secret: str = SECRET, came: str = "127.0.0.1", **card: Any
    ) -> None:
        self.node = node
        self.sock = socket.create_connection(
            ("127.0.0.1", int(node.bus.port)), source_address=(came, 0)
        )
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.refusal = ""
        self.twin = ""  # what the refusal says of another node
        fields = {"node_id": OTHER, "life": 1, "mark": b"8 bytes.", "is_empty": True}
        fields.update({"port": 7711, "bus_port": 17711, "host": "", "is_meeting": False, **card})
        self.conn = Conn(True, Card(**fields), [secret.encode()], bytes(32), 1 << 30)
        node.turns()

    def send(self, data: bytes) -> None:
        """Bytes as they are."""
        self.sock.sendall(data)
        self.node.turns()

    def read(self) -> bytes | None:
        """What came; None when the node closed the connection."""
        try:
            return self.sock.recv(1 << 20) or None
        except BlockingIOError:
            return b""
        except ConnectionError:
            return None

    def is_open(self) -> bool:
        """Whether the node has the connection open."""
        data = self.read()
        while data:
            data = self.read()
        return data is not None

    def join(self) -> bool:
        """The handshake; False when the node closed the connection."""
        self.send(self.conn.take_out())
        for _ in range(8):
            data = self.read()
            if data is None:
                return False
            if data:
                for message in self.conn.feed(data):
                    if isinstance(message, Refusal):
                        self.refusal, self.twin = message.text, message.twin
                self.send(self.conn.take_out())
            self.node.turns(1)
        return self.conn.peer is not None and self.is_open()

    def says(self, *messages: Any) -> None:
        """Say something in a frame."""
        self.send(self.conn.encode(list(messages)))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path, cluster_secret=SECRET, cluster_bind="127.0.0.1")
    yield made
    made.box.check()
    made.box.close()


def test_a_stranger_with_the_secret_is_a_node(node: Node) -> None:
    """K3.2 A node learns of the others from the heartbeats of the node that it met."""
    stranger = Stranger(node)
    assert stranger.join()
    assert node.bus.figures.joined == 1 and node.box.n.reachable_count == 1
    assert OTHER in node.say("CLUSTER", "NODES")


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"\xff" * 64, encode("PING"), b"\0\0\4\1" * 16],
)
def test_garbage_ends_the_connection(node: Node, garbage: bytes) -> None:
    """B1.1 Until then a frame has at most 1 KiB and the connection lives 2 s."""
    before = digest(node.box.n)
    stranger = Stranger(node)
    stranger.send(garbage)
    if stranger.is_open():  # half a frame: it may still become one
        node.later(HANDSHAKE_MS + 1)
    assert not stranger.is_open()
    assert digest(node.box.n) == before and len(node.bus.links) == 0


def test_silence_ends_the_connection(node: Node) -> None:
    """B1.1 Until then a frame has at most 1 KiB and the connection lives 2 s."""
    stranger = Stranger(node)
    assert stranger.is_open()
    node.later(HANDSHAKE_MS - 100)
    assert stranger.is_open()
    node.later(101)
    assert not stranger.is_open()


def test_each_has_its_own_time(node: Node) -> None:
    """B1.1 the connection lives 2 s."""
    node.later(60_000)  # now the time stands still
    first = Stranger(node)
    node.later(HANDSHAKE_MS // 2)
    second = Stranger(node)
    assert node.bus.young.late_ms() == node.box.n.now_ms + HANDSHAKE_MS // 2
    node.later(HANDSHAKE_MS // 2)
    assert (first.is_open(), second.is_open()) == (False, True)
    node.later(HANDSHAKE_MS // 2)
    assert not second.is_open() and node.bus.young.late_ms() == -1


def flooded(node: Node, count: int, came: str = "127.0.0.1") -> list[Stranger]:
    """Strangers of an address, as often as it may come (B1.9)."""
    found = []
    for i in range(count):
        if i % COME_MAX == 0:
            node.later(COME_MS)
        found.append(Stranger(node, came=came))
    return found


def raw(node: Node, came: str) -> socket.socket:
    """A connection to the bus, which the node has not looked at yet."""
    address = ("127.0.0.1", int(node.bus.port))
    sock = socket.create_connection(address, source_address=(came, 0))
    sock.setblocking(False)
    return sock


def is_ended(sock: socket.socket) -> bool:
    """Whether the node has closed the connection, without a word."""
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def until(node: Node, is_so: Callable[[], bool]) -> None:
    """Turn until it is so."""
    for _ in range(15_000):
        if is_so():
            return
        node.turns(1)
    raise AssertionError("never")


def test_so_many_handshakes_at_once(node: Node) -> None:
    strangers = flooded(node, YOUNG_MAX + 3)
    assert [one.is_open() for one in strangers[:4]] == [False, False, False, True]
    assert all(one.is_open() for one in strangers[4:])
    for one in strangers:
        one.sock.close()


def test_a_flood_from_one_address_closes_its_own(node: Node) -> None:
    """L1: the oldest accepted one is closed, of the address that has most of them; those of
    members' addresses last"""
    friend = Stranger(node)
    few = [Stranger(node, came="127.0.0.5") for _ in range(3)]
    other = Stranger(node, came="127.0.0.3")
    flood = flooded(node, YOUNG_MAX, "127.0.0.2")
    assert [one.is_open() for one in flood[:6]] == [False] * 5 + [True]
    assert all(one.is_open() for one in (*few, other))
    assert friend.join(), "a node is kept out"
    node.bus.young.meet("127.0.0.2")  # where a member is, as this node knows
    more = [Stranger(node, came="127.0.0.4") for _ in range(4)]
    assert [one.is_open() for one in (*few, other)] == [False, False, True, True]
    assert [one.is_open() for one in more] == [False, True, True, True]
    assert all(one.is_open() for one in flood[5:])
    for one in (friend, *few, other, *flood, *more):
        one.sock.close()
    node.turns()
    assert len(node.bus.young) == 0 and node.bus.young.accepted == {}


def test_a_stranger_comes_so_often(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B1.9 Of an address where it knows no member a node takes 50 connections to its bus in 100 ms.
    It closes further ones at once, before anything else is done for them"""
    monkeypatch.setattr(log, "_notes", Notes())
    caplog.set_level(logging.INFO, "tuque.server")
    node.later(60_000)  # now the time stands still
    flood = [raw(node, "127.0.0.9") for _ in range(COME_MAX + 5)]
    others = [raw(node, came) for came in ("127.0.0.8", "127.0.0.1") for _ in range(3)]
    until(node, lambda: node.bus.figures.accepted + node.bus.figures.refused == len(flood) + 6)
    assert (node.bus.figures.accepted, node.bus.figures.refused) == (COME_MAX + 6, 5)
    assert [is_ended(one) for one in flood] == [False] * COME_MAX + [True] * 5
    assert not any(is_ended(one) for one in others)
    assert "no link with 127.0.0.9: too many connections" in caplog.text
    node.bus.young.meet("127.0.0.9")  # a member is there
    more = [raw(node, "127.0.0.9") for _ in range(COME_MAX + 5)]
    until(node, lambda: node.bus.figures.accepted == 2 * COME_MAX + 11)
    node.bus.young.met.clear()
    last = [raw(node, "127.0.0.9")]
    until(node, lambda: node.bus.figures.refused == 6)
    node.later(COME_MS)
    last.append(raw(node, "127.0.0.9"))
    until(node, lambda: node.bus.figures.accepted == 2 * COME_MAX + 12)
    for one in (*flood, *others, *more, *last):
        one.close()


def test_a_wrong_secret(node: Node) -> None:
    stranger = Stranger(node, ANOTHER)
    with pytest.raises(BusError, match="wrong secret"):
        stranger.join()
    assert not stranger.is_open()
    assert node.bus.figures.refused == 1
    assert node.bus.figures.joined == 0 and len(node.box.n.peers) == 1


def test_a_frame_that_does_not_decode_ends_the_link(node: Node) -> None:
    """B2.2: A frame that does not decode closes the link and is counted."""
    stranger = Stranger(node)
    assert stranger.join()
    frame = bytearray(stranger.conn.encode([Pause(b"q", 1, 1)]))
    frame[-1] ^= 1
    stranger.send(bytes(frame))
    assert not stranger.is_open()
    assert node.bus.figures.malformed == 1
    assert b"bus_closed_malformed:1" in node.say("INFO", "bus")
    assert node.box.n.reachable_count == 0 and node.box.n.queues == {}


def test_a_newer_life_replaces_the_link(node: Node) -> None:
    """K1.2: A higher incarnation of a known id replaces the lower one; frames of the lower are
    refused."""
    first = Stranger(node)
    assert first.join()
    second = Stranger(node, life=2, mark=b"9 bytes.")
    assert second.join()
    assert not first.is_open()
    assert len(node.bus.by_slot) == 1 and node.box.n.reachable_count == 1
    third = Stranger(node, life=1)
    assert not third.join()


def test_a_link_that_is_ready_late_replaces_no_later_one(node: Node) -> None:
    """K1.2 Of two links that the same end dialled, the one that was begun later counts, whichever
    is ready first: what is in the other one is older."""
    first, second, third = Stranger(node), Stranger(node), Stranger(node)
    assert second.join()
    assert not first.join()
    assert first.refusal == "there is a later link already"
    assert second.is_open() and node.box.n.reachable_count == 1
    assert third.join()
    assert not second.is_open() and node.box.n.reachable_count == 1


def test_two_nodes_with_one_id(node: Node) -> None:
    """K1.3: The same id with two incarnations alive at once is a conflict: both nodes refuse
    service and say so."""
    assert node.say("PING") == b"+PONG\r\n"
    twin = Stranger(node, node_id=node.box.n.node_id)
    assert not twin.join()
    assert "id of this one" in twin.refusal
    node.turns()
    for words in (("PING",), ("ADDJOB", "q", "b", 0), ("GETJOB", "NOHANG", "FROM", "q")):
        assert node.say(*words).startswith(b"-CONFLICT another node has the id of this one")
    assert b"cluster_state:conflict" in node.say("CLUSTER", "INFO")
    assert node.say("QUIT") == b"+OK\r\n"


def test_a_node_that_reads_nothing(node: Node) -> None:
    """B2.4: A link has a bounded send buffer."""
    node.bus.limit_bytes = 1 << 20
    stranger = Stranger(node)
    assert stranger.join()
    body = "x" * 100_000
    for _ in range(300):
        node.say("ADDJOB", "q", body, 0, "REPLICATE", 2, "ASYNC")
        if node.bus.crowded:
            break
    else:
        raise AssertionError("there is always room")
    assert node.say("ADDJOB", "q", body, 50, "REPLICATE", 2, "ASYNC") == b""
    node.box.n.now_ms += 1000
    assert node.box.hear(node.client).startswith(b"-NOREPL Timeout reached")
    link = next(iter(node.bus.by_slot.values()))
    node.bus.put(link, bytes(1 << 20))
    assert link.is_closed and node.bus.figures.overfull == 1
    node.turns()
    assert node.bus.crowded == 0 and not node.server.is_crowded
    assert node.box.n.reachable_count == 0


def test_a_large_copy_goes_in_steps(node: Node) -> None:
    """B2.8 The code of a frame of 1 MiB or more is made in steps of 512 KiB, one in a turn for each
    link; what is sent later waits behind it."""
    node.bus.limit_bytes = 1 << 20  # one frame may have any size (B2.4)
    stranger = Stranger(node)
    assert stranger.join()
    body = bytes(range(256)) * (20 << 10)
    node.say("ADDJOB", "q", "small", 0, "REPLICATE", 2, "ASYNC")
    node.say("ADDJOB", "q", body, 0, "REPLICATE", 2, "ASYNC")
    node.say("ADDJOB", "q", "later", 0, "REPLICATE", 2, "ASYNC")
    link = next(iter(node.bus.by_slot.values()))
    reader = stranger.conn
    said: list[Any] = []
    for _ in range(3_000):
        began = [(head, head.index, head.at) for head in link.heads]
        node.box.pump.turn(2)
        for head, index, at in began:
            assert head.index > 1 or head.index + head.at - index - at <= 1 + STEP_BYTES
        said += reader.feed(stranger.read() or b"")
        if len([one for one in said if isinstance(one, ReplJob)]) == 3:
            break
    assert [one.body for one in said if isinstance(one, ReplJob)] == [b"small", body, b"later"]
    assert not link.is_closed and link.waiting_bytes == 0 and not link.heads
    for job in node.box.n.jobs.values():
        copy_of(node.box.n, int(link.slot), job, 0)
        assert node.box.n.has_large == (job.body == body), "its frame is its own"
        node.box.n.has_large = False


@pytest.mark.parametrize("seq", [-1, 7])
def test_a_large_frame_waits_in_its_place(node: Node, seq: int) -> None:
    """B2.8 what is sent later waits behind it; C8.2: also behind the journal"""
    stranger = Stranger(node)
    assert stranger.join()
    slot, link = next(iter(node.bus.by_slot.items()))
    large = ReplJob(ID, b"q", bytes(3 << 20), 1, 1, 0, 1, 0, 1, 0, 0, 1, 0)
    ids = [GotJob([ID] * 40_000)]  # more than 1 MiB, too
    node.box.n.has_large = True
    for message in (Pause(b"q", 0, 1), large, Pause(b"q", 0, 2), *ids):
        say(node.box.n, slot, message)
    node.bus.settle(seq)
    assert len(link.heads) == (0 if seq == 7 else 2) and (link.wire == []) == (seq == 7)
    assert link.excess_bytes() < 2 << 20, "a large frame counts as the first"
    node.bus.release(6)
    assert (link.wire == []) == (seq == 7)
    node.bus.release(7)
    said: list[Any] = []
    for _ in range(3_000):
        node.turns(1)
        said += stranger.conn.feed(stranger.read() or b"")
        if ids[0] in said:
            break
    said = [one for one in said if isinstance(one, Pause | ReplJob | GotJob)]
    sent = [Pause(b"q", 0, 1), large, Pause(b"q", 0, 2), *ids]
    assert len(said) == len(sent) and all(a == b for a, b in zip(said, sent, strict=True))
    assert link.waiting_bytes == 0


def test_a_heartbeat_says_that_it_is_there(node: Node) -> None:
    """K4.1: A heartbeat goes over each link"""
    stranger = Stranger(node)
    assert stranger.join()
    node.later(2_000)
    heard = stranger.conn.feed(stranger.read() or b"")
    assert any(isinstance(m, Heartbeat) for m in heard)
    stranger.says(Heartbeat(1, 0, 1, 7712, []))  # it leaves
    assert node.box.n.reachable_count == 0
    assert b":7712 leaving" in node.say("CLUSTER", "NODES")


@pytest.mark.parametrize(
    ("host", "why"),
    [("no.such.host.invalid", ""), ("127.0.0.1", "Connection refused")],
)
def test_why_a_meeting_fails(node: Node, host: str, why: str) -> None:
    """K3.1: `CLUSTER NODES` shows the handshake and why it failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert node.say("CLUSTER", "MEET", host, 7711, port) == b"+OK\r\n"
    for _ in range(2_000):
        node.box.pump.turn(10)
        line = node.say("CLUSTER", "NODES")
        if b"no answer yet" not in line:
            break
    assert b"handshake 0 0 disconnected " in line and why.encode() in line


def test_without_a_secret_only_this_machine(tmp_path: Path) -> None:
    """B1.1: under the cluster secret"""
    node = Node(tmp_path)
    try:
        assert node.say("CLUSTER", "MEET", "10.1.2.3", 7711).startswith(
            b"-ERR without a cluster-secret only nodes of this machine"
        )
        node.bus.connect("10.1.2.3", "some.where", 17711)  # as a name that was looked up
        assert len(node.bus.links) == 0
        assert all(sock.getsockname()[0] in ("127.0.0.1", "::1") for sock in node.bus.sockets)
    finally:
        node.box.close()


def test_the_one_that_dialled_waits_for_the_other(node: Node) -> None:
    """B1.3 The dialling node accepts the link with the first message."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        port = listener.getsockname()[1]
        assert node.say("CLUSTER", "MEET", "127.0.0.1", 7711, port) == b"+OK\r\n"
        node.turns()
        sock, _ = listener.accept()
    with sock:
        card = Card(OTHER, 1, b"8 bytes.", True, 7711, 17711, "", False)
        conn = Conn(False, card, [SECRET.encode()], bytes(32), 1 << 30)
        sock.settimeout(5)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while conn.peer is None:
            conn.feed(sock.recv(4096))
            sock.sendall(conn.take_out())
            node.turns()
        assert len(node.bus.by_slot) == 0
        sock.sendall(conn.encode([Refusal("because\n of this")]))
        node.turns()
        assert b"handshake 0 0 disconnected because of this\n" in node.say("CLUSTER", "NODES")
        assert len(node.bus.links) == 0 and node.box.n.reachable_count == 0
