"""What a client says of a task goes to the leader, even if the node in use has no replica."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import NULL
from world import World
from world_clients import ClientAt

MakeWorld = Callable[..., World]


def with_tube(make_world: MakeWorld) -> World:
    """Three nodes; node 1 leads a tube."""
    world = make_world(3)
    with world.client(1) as client:
        client.tube("t").create("tasks", ttr=30)
    world.until(lambda: world.leader("t") == 1)
    world.pass_ms(100)
    return world


def fill(world: World) -> None:
    """Twenty tasks for the tube."""
    with world.client(1) as client:
        for i in range(20):
            client.addjob("t", str(i), keep=60)
    world.pass_ms(100)


def at_first(world: World) -> ClientAt:
    """A client that uses node 0, and knows the others."""
    for _ in range(100):
        client = world.client(0, others=True)
        client.qlen("other")
        if client.node == "10.0.0.1:7711":
            return client
        client.close()
    raise AssertionError("it never began there")


def left(world: World) -> int:
    """How many tasks the leader has in all."""
    return len(world.node(1).tubes.by_name[b"t"].tasks)


@pytest.mark.parametrize("fault", ["journal off", "disk full"])
@pytest.mark.parametrize("how", ["one", "many", "pipeline"])
def test_done_goes_where_the_task_was_taken(make_world: MakeWorld, fault: str, how: str) -> None:
    """C3.6 (cluster) About a tube that another node leads, or a task of it that this node knows:
    `-TUBEHOME` (T17.3).

    The node in use follows no more: its journal was turned off, or its disk is full.
    """
    world = with_tube(make_world)
    if fault == "journal off":
        assert world.wire(0)("CONFIG", "SET", "appendonly", "no") == b"OK"
    else:
        world.disk(0).full()
    fill(world)
    world.pass_ms(3_000)
    with at_first(world) as client:
        count = left(world)
        jobs = client.getjob("t", count=100, with_meta=True)
        assert len(jobs) == count
        runs = [run.run for run in client.start(*(job.id for job in jobs), worker="w")]
        pairs = list(zip([job.id for job in jobs], runs, strict=True))
        if how == "one":
            done = sum(client.done(id, run) for id, run in pairs)
        elif how == "many":
            done = client.done_many(*pairs)
        else:
            with client.pipeline() as p:
                p.qlen("other")
                for id, run in pairs:
                    p.done(id, run)
                done = sum(p.execute()[1:])
    assert (done, left(world)) == (count, 0)


def test_done_at_a_node_that_knows_nothing_ends_the_task(make_world: MakeWorld) -> None:
    """T1.12 (cluster) ACKJOB and DONE at a node that does not know the task yet, or has no replica,
    reply 0: there it is an unknown id (A3.4, W14.6). The leader that gets this SETACK without
    holders acts as if the client, without a session, had asked it.
    """
    world = with_tube(make_world)
    assert world.wire(0)("CONFIG", "SET", "appendonly", "no") == b"OK"
    fill(world)
    leader = world.wire(1)
    count = left(world)
    rows = leader("GETJOB", "COUNT", "100", "FROM", "t")
    ids = [row[1] for row in rows]
    assert len(ids) == count
    runs = leader("START", "WORKER", "w", *ids)
    wire = world.wire(0)
    assert wire("DONE", ids[0], runs[0][0], "RESULT", "42") == 0
    assert wire("ACKJOB", ids[1]) == 0
    rest = [word for id, run in zip(ids[2:], runs[2:], strict=True) for word in (id, run[0])]
    assert wire("DONE", *rest) == 0
    world.until(lambda: left(world) == 0)
    fields = leader("RESULT", ids[0])
    assert dict(zip(fields[::2], fields[1::2], strict=True))[b"result"] == b"42"
    world.pass_ms(60_000)
    assert leader("GETJOB", "NOHANG", "FROM", "t") == NULL
