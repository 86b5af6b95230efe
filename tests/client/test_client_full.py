"""Nodes that take no jobs: the client adds at another one, and stays for all else."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from client_nodes import ADDED, ID, Connect, ScriptedNode, hello_of

from own_log import lines_of
from tuque.client.commands import calls
from tuque.errors import Misconf, OutOfMemory
from until import until
from world import World
from world_clients import ClientAt

MakeWorld = Callable[..., World]
DISK = {"disk_free_min": "1mb"}


def short_of_disk(world: World, i: int) -> None:
    """The node has too little room."""
    world.disk(i).full(100_000)
    world.wire(i).add("seen", "b")
    world.pass_ms(2_000)


def no_journal(world: World, i: int) -> None:
    """The journal of the node cannot be written."""
    world.disk(i).fail(writes=1_000_000)
    world.wire(i).send("ADDJOB", "seen", "b", 100, "ASYNC", "REPLICATE", 1)
    world.pass_ms(10)


def out_of_memory(world: World, i: int) -> None:
    """The node has more than it may."""
    assert world.wire(i)("CONFIG", "SET", "maxmemory", "1") == b"OK"


def used_by(client: ClientAt) -> int:
    """The number of the node that the client uses: any of them at first."""
    return int(client.node.partition(":")[0].rpartition(".")[2]) - 1


FULL = pytest.mark.parametrize("fill", [short_of_disk, no_journal, out_of_memory])


@FULL
def test_a_full_node_loses_no_add(
    make_world: MakeWorld, fill: Callable[[World, int], None], caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(3, **DISK)
    client = world.client(0, others=True)
    job_id = client.addjob("q", b"b", replicate=1)
    at = used_by(client)
    fill(world, at)
    before = len(world.node(at).core.jobs)
    caplog.set_level(logging.WARNING, "tuque.client")
    for _ in range(5):
        assert client.addjob("q", b"b", replicate=1).startswith("D-")
    found = client.run_all([calls.addjob("q", b"b", replicate=1) for _ in range(20)])
    assert all(isinstance(one, str) for one in found)
    assert len(world.node(at).core.jobs) == before
    said = [line for line in lines_of(caplog, "tuque.client") if "takes no jobs" in line]
    assert len(said) == 1
    assert client.show(job_id) is not None  # all else stays with its node


@FULL
def test_when_all_are_full_the_caller_hears_it(
    make_world: MakeWorld, fill: Callable[[World, int], None]
) -> None:
    world = make_world(3, **DISK)
    client = world.client(0, others=True)
    client.addjob("q", b"b", replicate=1)
    for i in range(3):
        fill(world, i)
    for _ in range(2):
        with pytest.raises((OutOfMemory, Misconf)):
            client.addjob("q", b"b", replicate=1)
    found = client.run_all([calls.addjob("q", b"b", replicate=1) for _ in range(3)])
    assert all(isinstance(one, OutOfMemory | Misconf) for one in found)


def test_a_node_that_has_room_again_gets_jobs(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuque.client.transport.face.FULL_S", 0.1)
    world = make_world(2)
    client = world.client(0, others=True)
    client.addjob("q", b"b", replicate=1)
    at = used_by(client)
    out_of_memory(world, at)
    client.addjob("q", b"b", replicate=1)
    assert world.wire(at)("CONFIG", "SET", "maxmemory", "0") == b"OK"
    before = len(world.node(at).core.jobs)

    def is_back() -> bool:
        client.addjob("q", b"b", replicate=1)
        return len(world.node(at).core.jobs) > before

    until(is_back)


def test_the_leader_of_a_tube_is_the_only_one(make_world: MakeWorld) -> None:
    """Other nodes only name it: the refusal is the answer."""
    world = make_world(3)
    world.run("TUBE", "CREATE", "t", "tasks")
    world.pass_ms(1_000)
    out_of_memory(world, 0)
    client = world.client(0, others=True)
    with pytest.raises(OutOfMemory):
        client.addjob("t", b"b")


@pytest.mark.parametrize("code", ["OOM", "DISKFULL", "MISCONF"])
def test_both_faces(
    connect: Connect, node: ScriptedNode, other_node: ScriptedNode, code: str
) -> None:
    """The call goes to the other node, and the next one at once."""
    node.answers |= {"ADDJOB": f"-{code} no room\r\n".encode(), "QLEN": b":7\r\n"}
    other_node.answers |= {"ADDJOB": ADDED}
    node.answers["HELLO"] = hello_of(("", node.port, 1), ("127.0.0.1", other_node.port, 1))
    client = connect(node.url)
    assert [client.addjob("q", b"b") for _ in range(2)] == [ID, ID]
    assert client.qlen("q") == 7
    assert [words[0] for words in node.asked].count(b"ADDJOB") == 1
