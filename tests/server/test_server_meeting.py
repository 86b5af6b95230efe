"""Where the bus listens, and why a CLUSTER MEET fails (SPEC B1.4, K3.3)."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from test_server_bus import ANOTHER, OTHER, SECRET, Node

from tuque.server.config.config import load
from tuque.server.net.listen import (
    BUS_OFFSET,
    PORT_MAX,
    ListenError,
    open_bus_sockets,
)
from tuque.wire.bus.bus import BusError, head_of
from tuque.wire.bus.card import Card, Greeting, Hello
from tuque.wire.bus.handshake import MAGIC, Conn
from until import until


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node whose bus is open, with a secret."""
    made = Node(tmp_path, cluster_secret=SECRET, cluster_bind="127.0.0.1")
    yield made
    made.box.close()


@pytest.fixture
def taken() -> Iterator[int]:
    """A port of clients; where its bus would be another program listens."""
    while True:
        sock = socket.create_server(("127.0.0.1", 0))
        port = sock.getsockname()[1] - BUS_OFFSET
        if 1024 < port <= PORT_MAX - BUS_OFFSET:
            break
        sock.close()
    with sock:
        yield port


def test_the_bus_takes_no_other_port(taken: int) -> None:
    """B1.4 If that port is in use, the start fails."""
    cfg = load(None, {}, {"port": str(taken), "cluster_bind": "127.0.0.1"})
    with pytest.raises(ListenError) as error:
        open_bus_sockets(cfg, False)
    assert str(error.value) == (
        f"can't listen on 127.0.0.1:{taken + BUS_OFFSET}: Address already in use; another program "
        "listens there; stop it or choose another --cluster-port, or set cluster-enabled no; "
        "the bus to other nodes is 10000 above the clients' port"
    )


def test_a_chosen_port_of_the_bus_must_be_had(taken: int) -> None:
    cfg = load(None, {}, {"cluster_port": str(taken + BUS_OFFSET), "cluster_bind": "127.0.0.1"})
    with pytest.raises(ListenError, match="choose another --cluster-port"):
        open_bus_sockets(cfg, False)


def test_beside_a_port_of_the_system_any_will_do(taken: int) -> None:
    """B1.4: Where the clients' port was chosen by the system (`port 0`), any free one is taken"""
    cfg = load(None, {}, {"port": str(taken), "cluster_bind": "127.0.0.1"})
    cfg.is_any_port = True
    socks = open_bus_sockets(cfg, False)
    assert socks[0].getsockname()[1] not in (0, taken + BUS_OFFSET)
    for sock in socks:
        sock.close()


def test_the_log_and_cluster_info_name_the_port(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B1.4 `cluster_bus_port` in CLUSTER INFO shows it."""
    with caplog.at_level(logging.WARNING, "tuque.server"):
        node = Node(tmp_path, cluster_bind="127.0.0.1", cluster_announce_port="7711")
    try:
        port = int(node.bus.port)
        assert f"`CLUSTER MEET <host> 7711 {port}`" in caplog.text
        assert info(node)["cluster_bus_port"] == str(port)
    finally:
        node.box.close()


def info(node: Node) -> dict[str, str]:
    """The fields of CLUSTER INFO."""
    lines = node.say("CLUSTER", "INFO").decode().split("\r\n")
    return dict(line.split(":", 1) for line in lines if line.startswith("cluster_"))


def error_of(node: Node) -> str:
    """What CLUSTER INFO says of the meeting that failed; it is waited for."""

    def look() -> str:
        node.turns(2)
        return info(node)["cluster_meet_error"]

    told: str = until(look)
    return told


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_node_does_not_meet_itself(node: Node, host: str) -> None:
    """K3.3 A MEET that cannot succeed is refused at once: for the address of this node, for another
    machine without a secret, or while the bus is off."""
    reply = node.say("CLUSTER", "MEET", host, 7711, int(node.bus.port))
    assert reply.startswith(b"-ERR that is this node itself: CLUSTER MEET takes the address of")
    assert info(node)["cluster_meetings"] == "0"


def test_an_address_that_turns_out_to_be_its_own(node: Node) -> None:
    port = int(node.bus.port)
    node.server.members.meet("127.0.0.1", 7711, port)  # by a name that it does not know
    assert error_of(node) == f"127.0.0.1:{port} that is this node itself"


def test_nothing_listens_there(node: Node) -> None:
    """K3.3: shows a handshake and why it has failed so far (nothing listens there"""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert node.say("CLUSTER", "MEET", "127.0.0.1", 7711, port) == b"+OK\r\n"
    wanted = f"127.0.0.1:{port} Connection refused: nothing listens there; `cluster_bus_port` in "
    assert error_of(node).startswith(wanted)
    assert b"Connection refused: nothing listens there" in node.say("CLUSTER", "NODES")


class There:
    """A listener in the place of another node, which says one thing and closes or not."""

    def __init__(self, node: Node, said: bytes, secret: str = "") -> None:
        with socket.create_server(("127.0.0.1", 0)) as door:
            self.port = door.getsockname()[1]
            assert node.say("CLUSTER", "MEET", "127.0.0.1", 7711, self.port) == b"+OK\r\n"
            node.turns()
            door.settimeout(10)
            self.sock, _ = door.accept()
        node.turns()
        with self.sock:
            if secret:
                card = Card(OTHER, 1, b"8 bytes.", True, 7711, 17711, "", False)
                conn = Conn(False, card, [secret.encode()], bytes(32))
                self.sock.sendall(conn.take_out())
                node.turns()
                with pytest.raises(BusError, match="wrong secret"):
                    conn.feed(self.sock.recv(4096))
                said = conn.take_out()
            self.sock.sendall(said)
            node.turns()


NEWER = msgspec.msgpack.encode(Greeting(MAGIC, 7, 9, bytes(32)))
OPEN = msgspec.msgpack.encode(
    Hello(MAGIC, 1, 1, Card(OTHER, 1, b"8 bytes.", True, 1, 2, "", False), bytes(32))
)
WRONG = {
    "no bus": (b"-ERR unknown command\r\n", "", "not a node of Tuque, or an incompatible one"),
    "closes": (b"", "", "it closed the connection without a reply"),
    "secret": (b"", ANOTHER, "wrong secret: cluster-secret must be the same on"),
    "no secret": (head_of(OPEN, 0) + OPEN, "", "it has no cluster-secret, or an older version of"),
    "version": (head_of(NEWER, 0) + NEWER, "", "no common version of the bus: it knows 7 to 9"),
}


@pytest.mark.parametrize(("said", "secret", "why"), WRONG.values(), ids=WRONG)
def test_why_the_other_end_is_not_met(node: Node, said: bytes, secret: str, why: str) -> None:
    """K3.3 nothing listens there, it is not a bus of Tuque, the secret is wrong, no common version,
    it is the node itself, or why the other node refuses."""
    there = There(node, said, secret)
    assert error_of(node).startswith(f"127.0.0.1:{there.port} {why}")
    assert why.encode() in node.say("CLUSTER", "NODES")


def test_the_log_says_that_a_meeting_has_failed(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """K3.3 A warning is logged when a handshake has failed for good."""
    there = There(node, b"", ANOTHER)
    with caplog.at_level(logging.WARNING, "tuque.server"):
        node.later(10_001)
        node.later(1_000)
    told = [r.getMessage() for r in caplog.records if "CLUSTER MEET" in r.getMessage()]
    assert len(told) == 1
    assert told[0].startswith(f"CLUSTER MEET 127.0.0.1:{there.port} failed: ")


def test_a_meeting_forgets_the_error_of_the_one_before(node: Node) -> None:
    """K3.3: `cluster_meet_error` in CLUSTER INFO the latest failure until that address is met"""
    there = There(node, b"", ANOTHER)
    assert error_of(node)
    with socket.create_server(("127.0.0.1", there.port)):  # it says nothing
        assert node.say("CLUSTER", "MEET", "127.0.0.1", 7711, there.port) == b"+OK\r\n"
        assert info(node)["cluster_meet_error"] == ""


def test_an_address_that_is_met_has_no_error(node: Node) -> None:
    there = There(node, b"", ANOTHER)
    assert error_of(node)
    node.server.members.meetings.end("127.0.0.1", there.port)
    assert info(node)["cluster_meet_error"] == ""
