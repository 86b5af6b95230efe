"""SPEC Y8: leased jobs with other holders."""

from __future__ import annotations

import pytest

from cluster_lab import Lab
from tuque.core.copies.ack import on_ackjob
from tuque.core.copies.requeue_messages import rank
from tuque.core.leases.fetch import on_fetch
from tuque.core.leases.leases import (
    commit,
    on_next,
    on_open,
    on_release,
    on_touch,
)
from tuque.core.model.errors import LEASE_LEAVING
from tuque.core.model.job import ACKED, ACTIVE, QUEUED
from tuque.core.msgs import (
    HAS_QUEUED,
    Delivered,
    Queued,
    WillQueue,
    Working,
)
from tuque.core.node.peers import say
from tuque.core.tables.leases import Group, is_leased


def lease(lab: Lab, i: int, count: int = 100, ttl_ms: int = 60_000) -> Group:
    """A group at node i that has taken a batch."""
    n = lab.nodes[i]
    n.now_ms = lab.now_ms
    epoch, error = on_open(n, b"g", b"me", [b"q"])
    assert error is None and epoch > 0
    g = n.leases.groups[b"g"]
    taken, error = on_next(n, 7, g, 1, count, 1 << 30, 2, ttl_ms)
    assert error is None and taken > 0
    lab.run()
    return g


@pytest.mark.parametrize(("retry_s", "first_ms"), [(4, 0), (10, 500)])
def test_other_holders_are_told(retry_s: int, first_ms: int) -> None:
    """Y8.1 half a second after the lease began, or at once if retry is at most 5 s, and then every
    half of the retry time.
    """
    lab = Lab(3)
    id = lab.add(0, replicate=3, retry_s=retry_s)
    start_ms = lab.now_ms
    lab.log.clear()
    lease(lab, 0)
    seen = []
    while lab.now_ms < start_ms + first_ms + retry_s * 2_000:
        for a, b, m in lab.log:
            if isinstance(m, Working) and (a, b) == (0, 1):
                assert m.id == id and m.left_ms == retry_s * 1000
                seen.append(lab.now_ms - start_ms)
        lab.log.clear()
        lab.pass_ms(100)
    assert seen == [first_ms + i * retry_s * 500 for i in range(len(seen))]
    assert len(seen) >= 4


def test_a_full_link() -> None:
    """While a link takes no more (B2.4) nobody is told; afterwards all are (Y8.1)."""
    lab = Lab(3)
    for _ in range(5):
        lab.add(0, replicate=3, retry_s=10)
    lease(lab, 0)
    lab.log.clear()
    peer = lab.nodes[0].peers[lab.slot(0, 2)]
    peer.has_room = False
    lab.pass_ms(2_000)
    assert not [m for _, _, m in lab.log if isinstance(m, Working)]
    peer.has_room = True
    lab.pass_ms(100)
    assert len([m for _, _, m in lab.log if isinstance(m, Working)]) == 10


def test_nobody_else_hands_it_out() -> None:
    """No other node hands a leased job out, however long the lease lives (Y8.1)."""
    lab = Lab(3)
    ids = [lab.add(0, replicate=3, retry_s=2) for _ in range(20)]
    g = lease(lab, 0)
    for _ in range(30):
        lab.pass_ms(1000)
        lab.nodes[0].now_ms = lab.now_ms
        on_touch(lab.nodes[0], g, 0)
        assert lab.get(1) == [] and lab.get(2) == [] and lab.get(0) == []
    for id in ids:
        assert lab.states_of(id) == [ACTIVE] * 3
    assert commit(lab.nodes[0], b"g", g.epoch, 1) == 20
    lab.run()
    lab.pass_ms(2_000)
    assert all(lab.holders_of(id) == [] for id in ids)


def test_after_the_lease() -> None:
    """Y7.2 Then its ALO jobs go back into their queues, even if the input of a queue is paused.
    They count as additional deliveries. The event `requeued` is written with the cause lease.
    """
    lab = Lab(3)
    id = lab.add(0, replicate=3, retry_s=10)
    lease(lab, 0, ttl_ms=5_000)
    lab.pass_ms(4_000)
    assert lab.states_of(id) == [ACTIVE] * 3
    lab.pass_ms(1_500)
    assert lab.states_of(id) == [QUEUED, ACTIVE, ACTIVE]
    assert [int(n.jobs[id].deliveries) for n in lab.nodes] == [1, 1, 1]


def test_release_with_other_holders() -> None:
    """A job that is given back is queued here, and the others know (Y5.3)."""
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=10)
    g = lease(lab, 0)
    assert on_release(lab.nodes[0], g) == 1
    lab.run()
    assert lab.states_of(id) == [QUEUED, ACTIVE]
    lab.pass_ms(60_000)
    lab.log.clear()
    assert not any(isinstance(m, Working) for _, _, m in lab.log), "nobody says that it is leased"


def test_a_question_about_it() -> None:
    """Y8.2 The reply to a WILLQUEUE about a leased job is DELIVERED with its whole retry time."""
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=10)
    lease(lab, 0)
    lab.pass_ms(4_700)
    lab.log.clear()
    assert say(lab.nodes[1], lab.slot(1, 0), WillQueue([id]))
    lab.run()
    assert [m.left_ms for _, _, m in lab.log if isinstance(m, Delivered)] == [10_000]


def test_another_holder_that_queued_it() -> None:
    """A holder that had no link and queued the job hears of the lease when it is back (Y8.1)."""
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=4)
    lease(lab, 0, ttl_ms=600_000)
    lab.isolate(0)
    lab.pass_ms(10_000)
    assert lab.states_of(id) == [ACTIVE, QUEUED]
    assert is_leased(lab.nodes[0].jobs[id])
    lab.heal()
    lab.pass_ms(3_000)
    assert lab.states_of(id) == [ACTIVE, ACTIVE]
    assert is_leased(lab.nodes[0].jobs[id])
    assert rank(id, lab.nodes[0].node_id) != rank(id, lab.nodes[1].node_id)


@pytest.mark.parametrize("message", [Queued, Working])
def test_what_others_say_of_it(message: type) -> None:
    """No message gives a leased job a due time (Y2.1, Y6.2)."""
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=4)
    lease(lab, 0, ttl_ms=600_000)
    assert say(lab.nodes[1], lab.slot(1, 0), message(id, HAS_QUEUED))
    lab.run()
    assert is_leased(lab.nodes[0].jobs[id])
    assert lab.nodes[0].jobs[id].qtime_ms == 0


def test_an_ack_elsewhere() -> None:
    """An ACKJOB at another node takes the job out of its batch (Y6.1)."""
    lab = Lab(2)
    one, two = (lab.add(0, replicate=2, retry_s=4) for _ in range(2))
    g = lease(lab, 0)
    lab.nodes[1].now_ms = lab.now_ms
    assert on_ackjob(lab.nodes[1], one)
    lab.run()
    rows = on_fetch(lab.nodes[0], 1, g, 1, 1, 0, 9, 1 << 20, True)
    assert [job.id for job in rows.jobs] == [two]
    assert commit(lab.nodes[0], b"g", g.epoch, 1) == 1
    lab.run()


def test_acked_in_its_batch_before_a_restart() -> None:
    """A job that was acked while it was leased, and is collected still, comes back as acked."""
    lab = Lab(2, has_journal=True)
    id = lab.add(0, replicate=2, retry_s=4)
    lease(lab, 0, ttl_ms=600_000)
    lab.isolate(0)
    lab.nodes[0].now_ms = lab.now_ms
    assert on_ackjob(lab.nodes[0], id)
    lab.run()
    lab.die(0)
    assert lab.nodes[0].jobs[id].state == ACKED
    lab.revive(0)
    lab.pass_ms(5_000)
    assert id not in lab.nodes[0].jobs
    lab.nodes[0].leases.check()


def test_restart_with_other_holders() -> None:
    """A lease lives on over a restart: the other holders hear of it again (Y9.3, Y8.1)."""
    lab = Lab(2, has_journal=True)
    id = lab.add(0, replicate=2, retry_s=4)
    lease(lab, 0, ttl_ms=600_000)
    lab.pass_ms(1_000)
    lab.die(0)
    lab.pass_ms(1_000)
    lab.revive(0)
    lab.log.clear()
    lab.pass_ms(20_000)
    assert len([m for a, _, m in lab.log if isinstance(m, Working) and a == 0]) >= 9
    assert is_leased(lab.nodes[0].jobs[id])
    assert lab.states_of(id) == [ACTIVE, ACTIVE]


def test_a_leaving_node() -> None:
    """Y8.3 A leaving node begins no batch (`-LEAVING`). Leased jobs stay with it until their lease
    ends.
    """
    lab = Lab(3)
    ids = [lab.add(0, replicate=2, retry_s=10) for _ in range(5)]
    n = lab.nodes[0]
    g = lease(lab, 0, count=3, ttl_ms=30_000)
    lab.leave(0)
    lab.pass_ms(20_000)
    assert [id in n.jobs for id in ids] == [True] * 3 + [False] * 2
    taken, refused = on_next(n, 7, g, 2, 1, 1 << 20, 1, 30_000)
    assert taken == 0 and refused is not None and refused.code == LEASE_LEAVING
    assert commit(n, b"g", g.epoch, 1) == 3
    lab.pass_ms(20_000)
    assert len(n.jobs) == 0
