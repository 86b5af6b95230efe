"""What a client says of a task goes to the leader, even if the node in use has no replica."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import NULL
from tuque.errors import TubeHome
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
    """C3.6 (cluster) About a tube that another node leads, or a task of it: `-TUBEHOME` (T17.3,
    T17.8).

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


SAYS = {
    "ACKJOB": "ACKJOB {id}",
    "FASTACK": "FASTACK {id}",
    "DELJOB": "DELJOB {id}",
    "NACK": "NACK {id}",
    "ENQUEUE": "ENQUEUE {id}",
    "DEQUEUE": "DEQUEUE {id}",
    "DEADLETTER": "DEADLETTER {id} dead",
    "START": "START WORKER w {id}",
    "WORKING": "WORKING {id} {run}",
    "PROGRESS": "PROGRESS {id} {run} half",
    "RELEASE": "RELEASE {id} {run}",
    "FAIL": "FAIL {id} {run} FINAL",
    "DONE": "DONE {id} {run}",
    "UPDATEJOB": "UPDATEJOB {id} PRI 5",
}


def unknown_at_first(world: World, fault: str) -> None:
    """Let node 0 hear of no more tasks."""
    if fault == "journal off":
        assert world.wire(0)("CONFIG", "SET", "appendonly", "no") == b"OK"
    elif fault == "disk full":
        world.disk(0).full()
    else:
        world.cut(0, 1)
        world.cut(0, 2)


@pytest.mark.parametrize("fault", ["journal off", "disk full", "cut off"])
@pytest.mark.parametrize("word", SAYS)
def test_who_does_not_know_a_task_names_the_leader(
    make_world: MakeWorld, word: str, fault: str
) -> None:
    """T17.8 Commands that change a job or its run are refused as in T17.3 for each id that names
    a tube of another node (G6.8)
    """
    world = with_tube(make_world)
    unknown_at_first(world, fault)
    with world.client(1) as client:
        client.addjob("t", "x", keep=60)
        (job,) = client.getjob("t")
        (run,) = client.start(job.id, worker="w")
        assert job.id.encode() not in world.node(0).core.jobs
        said = SAYS[word].format(id=job.id, run=run.run)
        refused = str(world.wire(0)(*said.split()))
        assert refused == "TUBEHOME 10.0.0.2:7711 Tube 't' has its leader there"
        assert client.done(job.id, run.run) == 1
        assert client.done(job.id, run.run) == 0  # only the leader knows that it had ended
    assert str(world.wire(0)("DONE", job.id, run.run)).startswith("TUBEHOME")


def test_a_task_of_a_temporary_tube_is_its_leaders(make_world: MakeWorld) -> None:
    """T17.8: no other node has a replica of it."""
    world = make_world(3)
    with world.client(1) as client:
        client.tube("t").create("tasks", ttr=30, temporary=True)
        world.pass_ms(100)
        client.addjob("t", "x")
        (job,) = client.getjob("t")
    with at_first(world) as other:
        assert other.done(job.id, "-") == 1
    assert left(world) == 0


def test_tasks_of_two_leaders_are_not_sent_back_and_forth(make_world: MakeWorld) -> None:
    """One command goes to one node: each of the leaders would name the other one."""
    world = make_world(3)
    for at, name in ((1, "a"), (2, "b")):
        with world.client(at) as client:
            client.tube(name).create("tasks", ttr=30)
            client.addjob(name, "x")
        world.pass_ms(300)
    with at_first(world) as client:
        jobs = client.getjob("a", with_meta=True) + client.getjob("b", with_meta=True)
        calls = world.node(0).server.figures.commands + world.node(2).server.figures.commands
        with pytest.raises(TubeHome):
            client.ackjob(*(job.id for job in jobs))
        more = world.node(0).server.figures.commands + world.node(2).server.figures.commands - calls
        assert more < 5
        assert [client.ackjob(job.id) for job in jobs] == [1, 1]


def test_a_job_of_a_queue_is_nobodys_task(make_world: MakeWorld) -> None:
    """A3.4, and W7.1: 0 also of a job of a queue that it does not know."""
    world = with_tube(make_world)
    with world.client(1) as client:
        ids = [client.addjob("q", "x", replicate=1) for _ in range(2)]
        client.getjob("q", count=2)
    wire = world.wire(0)
    assert (wire("ACKJOB", ids[0]), wire("DONE", ids[1], "-")) == (0, 0)
    world.until(lambda: not world.node(1).core.jobs)


def test_a_node_that_knows_nothing_says_so(make_world: MakeWorld) -> None:
    """T17.9 A task of a tube that this node does not know, while not all nodes are reachable
    (T17.8): `-NOQUORUM this node does not know the tube of task <id>, and not all nodes are in
    reach: try again soon`.
    """
    world = make_world(3)
    world.cut(0, 1)
    world.cut(0, 2)
    with world.client(1) as client:
        client.tube("t").create("tasks", ttr=30)
        world.pass_ms(100)
        client.addjob("t", "x")
        (job,) = client.getjob("t")
    refused = str(world.wire(0)("DONE", job.id, "-"))
    assert refused == (
        f"NOQUORUM this node does not know the tube of task {job.id}, and not all nodes are in "
        "reach: try again soon"
    )
    world.link()
    world.until(lambda: str(world.wire(0)("DONE", job.id, "-")).startswith("TUBEHOME"))


def without_mark(world: World) -> None:
    """From now on ids do not name their tube, as those of an earlier version."""
    world.node(1).tubes.by_name[b"t"].mark = 0


def test_done_at_a_node_that_knows_nothing_ends_the_task(make_world: MakeWorld) -> None:
    """T1.12 (cluster) A task that was made before ids named tubes (G6.8) is an unknown id at a
    node without it: ACKJOB and DONE reply 0 there (A3.4, W14.6). The leader that gets this
    SETACK without holders, or FASTACK (A7.2), which is sent once, acts as if the client, without
    a session, had asked it.
    """
    world = with_tube(make_world)
    without_mark(world)
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


@pytest.mark.parametrize("word", ["DONE", "ACKJOB", "FASTACK"])
def test_what_was_said_while_cut_off_counts_later(make_world: MakeWorld, word: str) -> None:
    """T1.12 It does not answer while it may not (T17.3, T19.2, T18.5), so that the node asks again.

    T1.12 or FASTACK (A7.2), which is sent once."""
    world = with_tube(make_world)
    without_mark(world)
    if word == "FASTACK":
        assert world.wire(0)("CONFIG", "SET", "appendonly", "no") == b"OK"
    else:
        world.cut(0, 1)
        world.cut(0, 2)
    fill(world)
    leader = world.wire(1)
    ids = [row[1] for row in leader("GETJOB", "COUNT", "100", "FROM", "t")]
    runs = leader("START", "WORKER", "w", *ids)
    for id, run in zip(ids, runs, strict=True):
        words = (word, id, run[0]) if word == "DONE" else (word, id)
        assert world.wire(0)(*words) == 0
    world.link()
    world.until(lambda: left(world) == 0, 20_000)
