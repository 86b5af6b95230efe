"""Outcomes and results of tasks at all nodes (SPEC T48.6), without a server."""

from __future__ import annotations

from test_tube_lives import LivesLab, add, begin, take
from votes_lab import TIMEOUT_MS

from tuque.core.life.outcomes import is_settled, on_done, own_fields, watch
from tuque.core.node.node import Node
from tuque.core.queues.procedures import check


def result_of(n: Node, id: bytes) -> object:
    """What RESULT says without asking others: state and result; None: this node does not know."""
    fields = own_fields(n, id)
    return None if fields is None else (fields["state"], fields["result"])


def done(lab: LivesLab, result: bytes = b"42", keep_ms: int = 600_000) -> bytes:
    """A task that was done at the leader; nothing is carried yet."""
    n = lab.leader()
    id = add(n, keep_ms=keep_ms)
    assert take(n) == [id]
    assert on_done(n, id, begin(n, id), result, 1)
    return id


def test_a_result_is_at_all_nodes() -> None:
    """T48.6 Its outcome and result, kept for KEEP, are among the changes that followers get
    (T18.2), and a new replica gets those that are kept still."""
    lab = LivesLab()
    id = done(lab)
    lab.run()
    assert [result_of(n, id) for n in lab.nodes] == [(b"done", b"42")] * 3
    fields = own_fields(lab.nodes[0], id)
    assert fields is not None and fields == own_fields(lab.nodes[2], id)
    lab.lose_leader()
    assert [result_of(n, id) for n in lab.nodes] == [(b"done", b"42")] * 3
    late = next(i for i in range(3) if i != lab.runs_at()[0])
    lab.lose_journal(late)
    lab.live(TIMEOUT_MS)
    assert result_of(lab.nodes[late], id) == (b"done", b"42")
    lab.live(600_000)
    for n in lab.nodes:
        assert result_of(n, id) is None and len(n.life.ended_in) == 0
        check(n)


def test_a_replica_that_was_away_gets_the_results() -> None:
    lab = LivesLab()
    away = next(i for i in range(3) if i != lab.runs_at()[0])
    lab.isolate(away)
    ids = [done(lab, b"%d" % i) for i in range(5)]
    lab.run()
    lab.live(1_000)
    lab.heal()
    lab.live(2_000)
    for i, id in enumerate(ids):
        assert result_of(lab.nodes[away], id) == (b"done", b"%d" % i)
    check(lab.nodes[away])


def test_a_result_is_shown_when_enough_nodes_have_it() -> None:
    """T48.6 The leader shows them once so many nodes have them as SYNC asks (T18.5)."""
    lab = LivesLab()
    n = lab.leader()
    id = done(lab)
    watch(n, 77, [id], 0)
    lab.served[lab.runs_at()[0]].clear()
    assert not is_settled(n, id) and result_of(n, id) == (b"running", None)
    lab.run()
    assert is_settled(n, id) and result_of(n, id) == (b"done", b"42")
    assert list(lab.served[lab.runs_at()[0]]) == [77]


def test_a_follower_asks_where_two_nodes_are_not_enough() -> None:
    """T48.6 A follower shows them if two are enough, and its replica is complete; otherwise it
    asks the other nodes (W15)."""
    lab = LivesLab(5, 3)
    id = done(lab)
    lab.run()
    leader = lab.runs_at()[0]
    for i in range(5):
        n = lab.nodes[i]
        assert n.life.known(id) is not None
        assert result_of(n, id) == ((b"done", b"42") if i == leader else None)
        assert is_settled(n, id) == (i == leader)


def test_an_end_that_was_lost_with_the_leader() -> None:
    """T48.6 A follower that gets the task from the next leader drops what it had of the end: that
    was lost with the last one."""
    lab = LivesLab()
    n = lab.leader()
    id = add(n, keep_ms=600_000)
    assert take(n) == [id]
    run = begin(n, id)
    lab.run()
    gone = lab.runs_at()[0]
    lab.isolate(gone)
    n.now_ms = lab.now_ms
    n.reachable_count = 2  # it has not noticed yet
    assert on_done(n, id, run, b"lost", 1)
    lab.live(4 * TIMEOUT_MS)
    assert lab.runs_at() != [gone]
    assert n.life.known(id) is not None and result_of(n, id) != (b"done", b"lost")
    lab.heal()
    lab.live(4 * TIMEOUT_MS)
    assert n.life.known(id) is None
    at = lab.leader()
    assert take(at) == [id]  # its ttr is over
    assert on_done(at, id, begin(at, id), b"mine", 1)
    lab.run()
    assert [result_of(one, id) for one in lab.nodes] == [(b"done", b"mine")] * 3


def test_the_bound_of_a_follower() -> None:
    """T48.6 Each node keeps them within its own `results-max-bytes`."""
    lab = LivesLab()
    small = next(i for i in range(3) if i != lab.runs_at()[0])
    lab.nodes[small].limits.results_bytes = 10_000
    ids = [done(lab, b"r" * 1_000) for _ in range(20)]
    lab.run()
    n = lab.nodes[small]
    assert 0 < n.life.kept_bytes <= 10_000 and n.life.kept_dropped > 0
    assert n.life.known(ids[0]) is None and n.life.known(ids[-1]) is not None
    assert all(result_of(lab.leader(), id) == (b"done", b"r" * 1_000) for id in ids)
    check(n)
