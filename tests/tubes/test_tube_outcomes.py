"""Outcomes and results of tasks at all nodes (SPEC T48.6), without a server."""

from __future__ import annotations

from test_tube_lives import LivesWorld, add, begin, take
from tubes_world import TIMEOUT_MS

from tuque.core.copies.ack import on_deadletter
from tuque.core.life.outcomes import is_settled, on_done
from tuque.core.life.shown import own_fields
from tuque.core.node.node import Node
from tuque.core.queues.procedures import check


def result_of(n: Node, id: bytes) -> object:
    """What RESULT says without asking others: state and result; None: this node does not know."""
    fields = own_fields(n, id)
    return None if fields is None else (fields["state"], fields["result"])


def done(world: LivesWorld, result: bytes = b"42", keep_ms: int = 600_000) -> bytes:
    """A task that was done at the leader; nothing is carried yet."""
    n = world.leading()
    id = add(n, keep_ms=keep_ms)
    assert take(n) == [id]
    assert on_done(n, id, begin(n, id), result, 1)
    return id


def test_a_result_is_at_all_nodes() -> None:
    """T48.6 Its outcome and result, kept for KEEP, are among the changes that followers and new
    replicas get (T18.2).
    """
    world = LivesWorld()
    id = done(world)
    world.settle()
    assert [result_of(n, id) for n in world.cores] == [(b"done", b"42")] * 3
    fields = own_fields(world.nodes[0].core, id)
    assert fields is not None and fields == own_fields(world.nodes[2].core, id)
    world.lose_leader()
    assert [result_of(n, id) for n in world.cores] == [(b"done", b"42")] * 3
    late = next(i for i in range(3) if i != world.runs_at()[0])
    world.lose_journal(late)
    world.pass_ms(TIMEOUT_MS)
    assert result_of(world.nodes[late].core, id) == (b"done", b"42")
    world.pass_ms(600_000)
    for n in world.cores:
        assert result_of(n, id) is None and len(n.life.ended_in) == 0
        check(n)


def test_a_task_whose_body_goes_on_elsewhere_is_dead_at_all_nodes() -> None:
    """W7.2 DEADLETTER the outcome `dead` with its reason, also of a task."""
    world = LivesWorld()
    n = world.leading()
    id = add(n, keep_ms=600_000)
    assert take(n) == [id]
    begin(n, id)
    on_deadletter(n, n.jobs[id], b"letters", b"no use")
    world.settle()
    world.lose_leader()
    for core in world.cores:
        seen = own_fields(core, id)
        assert seen is not None and (seen["state"], seen["reason"]) == (b"dead", b"no use")
        check(core)


def test_a_replica_that_was_away_gets_the_results() -> None:
    world = LivesWorld()
    away = next(i for i in range(3) if i != world.runs_at()[0])
    world.isolate(away)
    ids = [done(world, b"%d" % i) for i in range(5)]
    world.settle()
    world.pass_ms(1_000)
    world.link()
    world.pass_ms(2_000)
    for i, id in enumerate(ids):
        assert result_of(world.nodes[away].core, id) == (b"done", b"%d" % i)
    check(world.nodes[away].core)


def test_a_result_is_shown_when_enough_nodes_have_it() -> None:
    """T48.6 The leader shows them once as many nodes have them as SYNC asks."""
    world = LivesWorld()
    n, at = world.leading(), world.leads()
    for i in world.numbers():
        world.hold(i, at)
    id = done(world)
    wire = world.wire(at)
    assert wire("WAITJOB", 0, id) is None
    assert not is_settled(n, id) and result_of(n, id) == (b"running", None)
    world.release_all()
    assert is_settled(n, id) and result_of(n, id) == (b"done", b"42")
    assert wire.take() is not None


def test_a_follower_asks_where_two_nodes_are_not_enough() -> None:
    """T48.6 A follower with a complete replica shows them if two are enough; else it asks (W15)."""
    world = LivesWorld(5, 3)
    id = done(world)
    world.settle()
    leader = world.runs_at()[0]
    for i in range(5):
        n = world.nodes[i].core
        assert n.life.known(id) is not None
        assert result_of(n, id) == ((b"done", b"42") if i == leader else None)
        assert is_settled(n, id) == (i == leader)


def test_an_end_that_was_lost_with_the_leader() -> None:
    """T48.6 If it gets the task from the next leader, it drops the end."""
    world = LivesWorld()
    n = world.leading()
    id = add(n, keep_ms=600_000)
    assert take(n) == [id]
    run = begin(n, id)
    world.settle()
    gone = world.runs_at()[0]
    assert on_done(n, id, run, b"lost", 1)
    world.isolate(gone)  # before it says so
    world.pass_ms(4 * TIMEOUT_MS)
    assert world.runs_at() != [gone]
    assert n.life.known(id) is not None and result_of(n, id) != (b"done", b"lost")
    world.link()
    world.pass_ms(4 * TIMEOUT_MS)
    assert n.life.known(id) is None
    at = world.leading()
    assert take(at) == [id]  # its ttr is over
    assert on_done(at, id, begin(at, id), b"mine", 1)
    world.settle()
    assert [result_of(one, id) for one in world.cores] == [(b"done", b"mine")] * 3


def test_the_bound_of_a_follower() -> None:
    """T48.6 each node keeps them within its own `results-max-bytes`."""
    world = LivesWorld()
    small = next(i for i in range(3) if i != world.runs_at()[0])
    world.nodes[small].core.limits.results_bytes = 10_000
    ids = [done(world, b"r" * 1_000) for _ in range(20)]
    world.settle()
    n = world.nodes[small].core
    assert 0 < n.life.kept_bytes <= 10_000 and n.life.kept_dropped > 0
    assert n.life.known(ids[0]) is None and n.life.known(ids[-1]) is not None
    assert all(result_of(world.leading(), id) == (b"done", b"r" * 1_000) for id in ids)
    check(n)
