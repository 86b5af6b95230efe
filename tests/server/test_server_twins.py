"""Two nodes with one id: what a node says, logs and refuses meanwhile (SPEC K1.3, C3.11)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import RealCluster, RealServer, cluster_info
from raw_resp import Err, Wire
from tuque.cluster.member import TWINS
from tuque.core.msgs.bus import Gossip, Heartbeat
from tuque.server.replies.errors import CONFLICT_TEXT
from until import until
from world import World
from world_strangers import SECRET, Stranger

TIMEOUT_MS = 15_000
BEAT_MS = 1_000  # a node looks so often whether the other one is seen
REFUSED = b"-CONFLICT " + CONFLICT_TEXT + b"\r\n"
AT = "another node, at %s, has the id of this one: this node does no work until that is over."
OVER = "no other node with the id of this one is seen any more"


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A node with a secret."""
    return make_world(journal="off", cluster_secret=SECRET)


def told_of_twin(world: World, by: Stranger, host: str = "127.0.0.1") -> None:
    """The other end says in a heartbeat that it sees another node of that id."""
    gossip = Gossip(world.n.node_id, host, 7060, 17_060, TWINS, 0)
    by.says(Heartbeat(1, 0, 0, 7711, [gossip]))


def test_who_waits_gets_the_refusal(world: World) -> None:
    """K1.3 clients that wait get `-CONFLICT`

    C3.11 (cluster) The command is PING or concerns jobs or queues, and another node uses the id
    of this node (K1.3)
    """
    stranger = world.stranger()
    assert stranger.join()
    assert world("ADDJOB", "kept", "b", 0, "REPLICATE", 1, "RETRY", 0).startswith(b"+D-")
    waiting = world.wire()
    assert waiting("GETJOB", "FROM", "q") is None
    told_of_twin(world, stranger)
    world.settle()
    assert waiting.hear() == REFUSED
    for words in (
        ("PING",),
        ("ADDJOB", "q", "b", 0),
        ("GETJOB", "FROM", "kept"),
        ("GETJOB", "NOHANG", "FROM", "kept"),
        ("LEASE", "LIST"),
        ("TUBE", "CREATE", "t", "fifo"),
    ):
        assert world(*words) == REFUSED
    assert b"cluster_state:conflict" in world("CLUSTER", "INFO")
    assert b" myself,conflict " in world("CLUSTER", "NODES")
    world.pass_ms(TIMEOUT_MS // 2 + BEAT_MS)
    assert world("PING") == b"+PONG\r\n"
    assert b"cluster_state:ok" in world("CLUSTER", "INFO")
    assert world("QLEN", "kept") == b":1\r\n"
    lines = world.node().log
    assert [line for line in lines if line.startswith(AT % "127.0.0.1:7060")], lines
    assert lines.count(OVER) == 1


def test_no_job_is_delivered_in_the_turn_of_the_news(world: World) -> None:
    """K1.3 Both nodes refuse service, and say so, until the conflict is over."""
    stranger = world.stranger()
    assert stranger.join()
    world("ADDJOB", "kept", "b", 0, "REPLICATE", 1, "RETRY", 0)
    waiting = world.wire()
    assert waiting("GETJOB", "FROM", "q") is None
    world.server.members.on_duplicate_id("host:1", TIMEOUT_MS)  # the clients come next in this turn
    assert world.server.conflict == ""
    assert world("GETJOB", "NOHANG", "FROM", "kept") == REFUSED
    assert waiting.hear() == REFUSED


def test_a_refusal_says_where_the_other_one_is(world: World) -> None:
    """K1.3 The refusal then names the address of the other one."""
    twin = world.stranger(node_id=world.n.node_id, life=world.server.identity.life)
    assert not twin.join()
    assert twin.twin == f":{world.server.members.port}", "the node itself"
    world.settle()
    line = AT % "127.0.0.1:7711"
    assert [one for one in world.node().log if one.startswith(line)]


def test_a_newer_incarnation_goes_on(world: World) -> None:
    """K1.3 An older incarnation that learns of a newer one in this way (K1.2) refuses service too;
    the newer one serves.
    """
    old = world.stranger(node_id=world.n.node_id, life=world.server.identity.life - 1)
    assert not old.join()
    assert old.twin != ""
    assert world("PING") == b"+PONG\r\n"
    new = world.stranger(node_id=world.n.node_id, life=world.server.identity.life + 1)
    assert not new.join()
    assert new.twin == ""
    assert world("PING") == REFUSED


@pytest.mark.parametrize(
    ("life", "text"), [(1, "a newer incarnation"), (2, "two nodes with this id are alive")]
)
def test_a_refused_node_is_told_when_both_are_alive(world: World, life: int, text: str) -> None:
    """K1.3 Both are alive if a heartbeat of one arrives after the other was refused.

    K1.3 The refusal then names the address of the other one.
    """
    stranger = world.stranger(life=2)
    assert stranger.join()
    stranger.says(Heartbeat(1, 0, 0, 7711, []))
    for number, twin in enumerate(("", "", "127.0.0.1:7711")):
        world.pass_ms(100)
        double = world.stranger(life=life, mark=b"another.", port=7060, bus_port=17_060)
        assert not double.join()
        assert double.twin == twin and double.refusal.startswith(text)
        if number == 1:
            world.pass_ms(100)
            stranger.says(Heartbeat(2, 0, 0, 7711, []))
    assert (b" conflict " in world("CLUSTER", "NODES")) == (life == 2)


# ---- real nodes


def copied(node: RealServer, place: Path) -> RealServer:
    """A copy of the node's directory, for another node, once it names the second one."""
    conf = node.directory / "nodes.conf"
    until(lambda: len(re.findall(r"^[0-9a-f]{40} ", conf.read_text(), re.M)) == 2, node.log)
    shutil.copytree(node.directory, place)
    return RealServer(place, *node.flags)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[RealCluster]:
    """Two nodes with journals, and a short time until silence is suspected."""
    flags = ("--appendonly", "yes", "--cluster-node-timeout", 1000)
    cluster = RealCluster(tmp_path / "cluster", 2, *flags)
    yield cluster
    cluster.end()


def state(node: RealServer) -> str:
    """Whether the node says that it has a conflict."""
    with Wire(node.port) as wire:
        return cluster_info(wire)["cluster_state"]


def all_of(wire: Wire, queue: str) -> list[bytes]:
    """The bodies that the node delivers without waiting."""
    jobs = wire("GETJOB", "NOHANG", "COUNT", 50, "FROM", queue)
    return [job[2] for job in jobs] if isinstance(jobs, list) else []


def test_a_copy_of_a_running_node(two: RealCluster, tmp_path: Path) -> None:
    """K1.3 An older incarnation that learns of a newer one in this way (K1.2) refuses service too;
    the newer one serves.
    """
    two.start()
    old = two.nodes[0]
    with old.wire() as wire, old.wire() as blocked:
        for i in range(20):
            wire.add("once", f"{i}", "RETRY", 0, "REPLICATE", 1)
        blocked.send("GETJOB", "FROM", "never")
        copy = copied(old, tmp_path / "copy")
        with copy.start():
            until(lambda: state(old) == "conflict", old.log)
            refused = Err("CONFLICT " + CONFLICT_TEXT.decode())
            assert blocked.read() == refused
            got: list[bytes] = []
            with copy.wire() as new, two.wire(1) as third:
                for _ in range(4):
                    assert wire("GETJOB", "NOHANG", "COUNT", 50, "FROM", "once") == refused
                    got += all_of(third, "once") + all_of(new, "once")
            assert sorted(got) == sorted(b"%d" % i for i in range(20))
            assert b" myself,conflict " in wire("CLUSTER", "NODES")
            assert state(copy) == "ok"
            assert AT % f"127.0.0.1:{copy.port}" in old.log()
        until(lambda: state(old) == "ok", old.log)
        assert OVER in old.log()


def test_a_copy_of_a_stopped_node(two: RealCluster, tmp_path: Path) -> None:
    """K1.3 Two live incarnations of one id with the same count are a conflict."""
    two.start()
    first = two.nodes[0]
    first.end()
    copy = copied(first, tmp_path / "copy")
    first.start()
    with copy.start():
        for node, other in ((first, copy), (copy, first)):
            until(lambda node=node: state(node) == "conflict", node.log)
            with Wire(node.port) as wire:
                assert wire("PING") == Err("CONFLICT " + CONFLICT_TEXT.decode())
            assert AT % f"127.0.0.1:{other.port}" in node.log()
        with two.wire(1) as third:
            until(lambda: b" conflict " in third("CLUSTER", "NODES"), two.nodes[1].log)
    until(lambda: state(first) == "ok", first.log)
    two.wait_formed()
    with Wire(first.port) as wire:
        assert wire("PING") == b"PONG"
