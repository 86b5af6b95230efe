"""The bus of one pump, and another end that does what no node should (SPEC B1, B2, K1)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pump_box import PumpBox, digest
from raw_resp import encode

from tuque.core.msgs.bus import Heartbeat, Pause, Refusal
from tuque.server.bus.peers import HANDSHAKE_MS, YOUNG_MAX, Bus
from tuque.server.startup.joining import open_bus, prepare_bus
from tuque.wire.bus import BusError
from tuque.wire.handshake import Conn
from tuque.wire.msgs.cards import Card

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

    def __init__(self, node: Node, secret: str = SECRET, **card: Any) -> None:
        self.node = node
        self.sock = socket.create_connection(("127.0.0.1", int(node.bus.port)))
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.refusal = ""
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
                        self.refusal = message.text
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


def test_so_many_handshakes_at_once(node: Node) -> None:
    strangers = [Stranger(node) for _ in range(YOUNG_MAX + 3)]
    assert [one.is_open() for one in strangers[:4]] == [False, False, False, True]
    assert all(one.is_open() for one in strangers[4:])
    for one in strangers:
        one.sock.close()


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
    node.bus.put(link, bytes(1 << 20), -1)
    assert link.is_closed and node.bus.figures.overfull == 1
    node.turns()
    assert node.bus.crowded == 0 and not node.server.is_crowded
    assert node.box.n.reachable_count == 0


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
