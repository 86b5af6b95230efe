"""Where the bus listens, and why a CLUSTER MEET fails (SPEC B1.4, K3.3)."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import msgspec
import pytest

from sim.machines.kernel import host_of
from tuque.server.config.config import load
from tuque.server.net.listen import (
    BUS_OFFSET,
    PORT_MAX,
    ListenError,
    open_bus_sockets,
)
from tuque.wire.bus.bus import BusError, head_of
from tuque.wire.bus.card import Greeting, Hello
from tuque.wire.bus.handshake import MAGIC, SEALED_VERSION
from world import World
from world_strangers import ANOTHER, CARD, SECRET


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A node with a secret."""
    return make_world(journal="off", cluster_secret=SECRET)


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


def test_the_log_and_cluster_info_name_the_port(make_world: Callable[..., World]) -> None:
    """B1.4 `cluster_bus_port` in CLUSTER INFO shows it."""
    world = make_world(journal="off", cluster_port=0, cluster_announce_port=7000)
    port = int(world.bus.port)
    assert f"`CLUSTER MEET <host> 7000 {port}`" in "\n".join(world.node().log)
    assert info(world)["cluster_bus_port"] == str(port)


def info(world: World) -> dict[str, str]:
    """The fields of CLUSTER INFO."""
    lines = world("CLUSTER", "INFO").decode().split("\r\n")
    return dict(line.split(":", 1) for line in lines if line.startswith("cluster_"))


def error_of(world: World) -> str:
    """What CLUSTER INFO says of the meeting that failed."""
    world.settle()
    return info(world)["cluster_meet_error"]


HERE = host_of("n0")  # the address of the node


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_node_does_not_meet_itself(world: World, host: str) -> None:
    """K3.3 A MEET that cannot succeed is refused at once: for the address of this node, for another
    machine without a secret, or while the bus is off."""
    reply = world("CLUSTER", "MEET", host, 7711, int(world.bus.port))
    assert reply.startswith(b"-ERR that is this node itself: CLUSTER MEET takes the address of")
    assert info(world)["cluster_meetings"] == "0"


def test_an_address_that_turns_out_to_be_its_own(world: World) -> None:
    port = int(world.bus.port)
    world.server.members.meet(HERE, 7711, port)  # by a name that it does not know
    assert error_of(world) == f"{HERE}:{port} that is this node itself"


def test_nothing_listens_there(world: World) -> None:
    """K3.3: shows a handshake and why it has failed so far (nothing listens there"""
    assert world("CLUSTER", "MEET", "10.0.0.77", 7711, 17711) == b"+OK\r\n"
    wanted = "10.0.0.77:17711 Connection refused: nothing listens there; `cluster_bus_port` in "
    assert error_of(world).startswith(wanted)
    assert b"Connection refused: nothing listens there" in world("CLUSTER", "NODES")


def met_in_vain(world: World, said: bytes, secret: str = "") -> str:
    """What is met is no node: it says one thing, and closes; the address."""
    host = world.host(secret=secret)
    assert world("CLUSTER", "MEET", host.address, 7711, 17711) == b"+OK\r\n"
    (dialled,) = host.came
    if secret:
        with pytest.raises(BusError, match="wrong secret"):
            dialled.join()
        said = dialled.conn.take_out()
    dialled.give(said)
    dialled.close()
    return f"{host.address}:17711"


LEAST = SEALED_VERSION + 1
NEWER = msgspec.msgpack.encode(Greeting(MAGIC, LEAST, LEAST + 2, bytes(32)))
OPEN = msgspec.msgpack.encode(Hello(MAGIC, 1, 1, CARD, bytes(32)))
WRONG = {
    "no bus": (b"-ERR unknown command\r\n", "", "not a node of Tuque, or an incompatible one"),
    "closes": (b"", "", "it closed the connection without a reply"),
    "secret": (b"", ANOTHER, "wrong secret: cluster-secret must be the same on"),
    "no secret": (head_of(OPEN, 0) + OPEN, "", "it has no cluster-secret, or an older version of"),
    "version": (
        head_of(NEWER, 0) + NEWER,
        "",
        f"no common version of the bus: it knows {LEAST} to ",
    ),
}


@pytest.mark.parametrize(("said", "secret", "why"), WRONG.values(), ids=WRONG)
def test_why_the_other_end_is_not_met(world: World, said: bytes, secret: str, why: str) -> None:
    """K3.3 nothing listens there, it is not a bus of Tuque, the secret is wrong, no common version,
    it is the node itself, or why the other node refuses."""
    there = met_in_vain(world, said, secret)
    assert error_of(world).startswith(f"{there} {why}")
    assert why.encode() in world("CLUSTER", "NODES")


def test_the_log_says_that_a_meeting_has_failed(world: World) -> None:
    """K3.3 A warning is logged when a handshake has failed for good."""
    there = met_in_vain(world, b"", ANOTHER)
    world.pass_ms(11_001)
    told = [line for line in world.node().log if "CLUSTER MEET" in line]
    assert len(told) == 1
    assert told[0].startswith(f"CLUSTER MEET {there} failed: ")


def test_a_meeting_forgets_the_error_of_the_one_before(world: World) -> None:
    """K3.3: `cluster_meet_error` in CLUSTER INFO the latest failure until that address is met"""
    there = met_in_vain(world, b"", ANOTHER)
    assert error_of(world)
    world.host()  # now it says nothing
    host, _, port = there.partition(":")
    assert world("CLUSTER", "MEET", host, 7711, port) == b"+OK\r\n"
    assert info(world)["cluster_meet_error"] == ""


def test_an_address_that_is_met_has_no_error(world: World) -> None:
    host, _, port = met_in_vain(world, b"", ANOTHER).partition(":")
    assert error_of(world)
    world.server.members.meetings.end(host, int(port))
    assert info(world)["cluster_meet_error"] == ""
