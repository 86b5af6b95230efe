"""SPEC K2, K5, K6 with several nodes: lost copies are made again, forgotten nodes are left out."""

from __future__ import annotations

import pytest

from cluster_lab import Lab, believed, copies
from tuque.core.copies.ack import on_ackjob, on_deljob
from tuque.core.copies.federation import send_jobs
from tuque.core.model.job import ACKED, ACTIVE, QUEUED
from tuque.core.model.stats import GC_ACKED
from tuque.core.msgs import (
    Ask,
    GotJob,
    Holders,
    Lack,
    ReplJob,
    SetAck,
    Slots,
)
from tuque.core.node.node import Node
from tuque.core.node.peers import (
    introduce,
    rank,
    say,
    slots_of,
    translate,
)
from tuque.core.queues.procedures import unregister
from tuque.core.queues.requeue import on_dequeue
from tuque.core.repair.node_loss import lose_copy, on_ask, on_incarnation, repair_left, repair_tick


def left(lab: Lab) -> int:
    """What all nodes together have left to repair."""
    return sum(repair_left(n) for n in lab.nodes)


def settle(lab: Lab, limit_ms: int = 20_000) -> int:
    """Wait until nothing is left to repair; how long that took, ms."""
    start_ms = lab.now_ms
    lab.run()
    while left(lab) > 0:
        lab.pass_ms(50)
        assert lab.now_ms - start_ms < limit_ms, f"{left(lab)} left"
    return lab.now_ms - start_ms


def lose(lab: Lab, i: int) -> None:
    """Restart a node without its memory."""
    lab.die(i)
    lab.revive(i)


def by_rank(lab: Lab, id: bytes, among: list[int]) -> list[int]:
    """Nodes, the one that acts for the job first."""
    return sorted(among, key=lambda i: rank(id, lab.nodes[i].node_id), reverse=True)


# ---- a node without its memory


@pytest.mark.parametrize("repl", [2, 3])
def test_rolling_restart_loses_nothing(repl: int) -> None:
    """K5.5 `CLUSTER REPAIR` shows how many jobs wait for repair or for a reply to ASK. When all
    nodes show 0, the next node may be restarted."""
    lab = Lab(3)
    ids = [lab.add(k % 3, retry_s=5, replicate=repl) for k in range(30)]
    for i in (0, 1, 2, 0):
        lose(lab, i)
        settle(lab)
        assert all(len(copies(lab, id)) >= repl for id in ids)
    lab.pass_ms(8_000)
    got = [id for i in range(3) for _ in range(60) for id in lab.get(i)]
    assert set(got) == set(ids)


def test_any_node_takes_the_copy() -> None:
    """K5.3 The reachable holder with the highest rank sends REPLJOB to as many reachable nodes as
    are missing, chosen from those that are not holders."""
    lab = Lab(4)
    ids = [lab.add(0, replicate=3) for _ in range(40)]
    lab.die(1)
    lab.isolate(1)
    for i in (0, 2, 3):  # it started anew, and is gone again before it takes anything
        lab.link(i, 1)
        lab.cut(i, 1)
    lab.run()
    settle(lab)
    for id in ids:
        assert copies(lab, id) == [0, 2, 3]
        assert all(believed(lab, i, id) == [0, 2, 3] for i in (0, 2, 3))
    lab.heal()
    lose(lab, 2)
    settle(lab)
    assert {tuple(copies(lab, id)) for id in ids} == {(0, 2, 3), (0, 1, 3)}


def test_acked_jobs_are_kept_until_the_node_knows() -> None:
    """K5.1 Acked jobs keep it, as not confirmed: it makes a tombstone (A4.1) before the jobs go."""
    lab = Lab(3)
    id = lab.add(0, replicate=3)
    lab.die(1)
    assert on_ackjob(lab.nodes[0], id)
    lab.pass_ms(3_000)
    assert lab.states_of(id) == [ACKED, -1, ACKED]
    lab.revive(1)
    lab.pass_ms(1)
    assert lab.nodes[1].tombs.has(id)
    lab.pass_ms(5_000)
    assert lab.holders_of(id) == []
    assert left(lab) == 0


def test_what_is_sent_to_a_new_life_stays() -> None:
    """K5.1 Copies received or reported after the restart stay valid, even while the scan is
    running."""
    lab = Lab(2)
    lab.add(0, b"other", replicate=2, retry_s=100)
    id = lab.add(0, replicate=1, retry_s=100)
    lab.die(1)
    lab.link(0, 1)
    n = lab.nodes[0]
    assert [walk.pos for walk in n.losses.walks] == [0]
    assert on_dequeue(n, id)
    send_jobs(n, lab.slot(0, 1), b"q", [n.jobs[id]])
    repair_tick(n)
    assert n.losses.repaired == 1, "the other job has lost its copy"
    assert believed(lab, 0, id) == [0, 1]
    lab.run()
    assert lab.states_of(id) == [ACTIVE, QUEUED]
    assert on_ackjob(n, id)
    lab.run()
    assert lab.get(1) == []


def test_what_a_node_said_of_an_ack_is_gone_with_it() -> None:
    """K5.1 Acked jobs keep it, as not confirmed: it makes a tombstone (A4.1) before the jobs go."""
    lab = Lab(3)
    id = lab.add(0, replicate=3)
    lab.isolate(2)
    assert on_ackjob(lab.nodes[0], id)
    lab.run()
    assert lab.nodes[0].jobs[id].confirmed >> lab.slot(0, 1) & 1
    lab.die(1)
    lab.link(0, 1)
    lab.run()
    assert lab.nodes[1].tombs.has(id)


def test_who_is_met_for_the_first_time_has_lost_nothing() -> None:
    """K5.2 For the ALO jobs that the node may have, this node asks all other holders with ASK
    whether they have them."""
    lab = Lab(3)
    id = lab.add(0, replicate=3)
    n, slot = lab.nodes[0], lab.slot(0, 1)
    del n.lives[slot]  # it was named by others, and had no link yet
    lab.log.clear()
    on_incarnation(n, slot, True, 1)
    lab.run()
    assert believed(lab, 0, id) == [0, 1, 2]
    assert [(a, b) for a, b, m in lab.log if isinstance(m, Ask)] == [(0, 1)]


def test_nothing_comes_back_by_hearsay() -> None:
    """K2.2 A node is a member of a set in one incarnation. Before a message names a set, SLOTS says
    which node in which incarnation each number means. A member in an older incarnation than the one
    known here is removed, so that hearsay does not restore what a restarted node has lost, or it is
    asked (K5.7)."""
    lab = Lab(3)
    id = lab.add(0, replicate=3)
    lab.die(1)
    lab.link(0, 1)  # node 2 has not met the new life of node 1
    lab.nodes[0].limits.repair_per_second = 0
    lab.nodes[0].reachable = 0
    lab.run()
    assert believed(lab, 0, id) == [0, 2]
    n = lab.nodes[2]
    peer = n.peers[lab.slot(2, 0)]
    introduce(n, peer.slot, n.jobs[id].holders)
    say(n, peer.slot, Holders(id, n.jobs[id].holders))
    assert believed(lab, 2, id) == [0, 1, 2]
    lab.run()
    assert believed(lab, 0, id) == [0, 2]
    lab.link(2, 1)
    lab.run()
    assert believed(lab, 2, id) in ([0, 2], [0, 1, 2])


def test_who_restarted_is_a_member_before_it_is_met() -> None:
    """K2.2 A member in a newer incarnation has restarted, and counts as a member before this node
    has met it."""
    lab = Lab(3)
    lab.die(1)
    lab.link(0, 1)  # node 2 has not met the new life of node 1
    lab.cut(1, 2)
    id = lab.add(0, replicate=1)
    n = lab.nodes[0]
    n.jobs[id].holders |= 1 << lab.slot(0, 1)
    peer = lab.slot(0, 2)
    introduce(n, peer, n.jobs[id].holders)
    lab.run()
    assert slots_of(translate(lab.nodes[2], lab.slot(2, 0), n.jobs[id].holders)) == sorted(
        [lab.slot(2, 0), lab.slot(2, 1)]
    )


# ---- a node with a journal


def test_what_it_lacks_is_asked_for() -> None:
    """K5.2 For the ALO jobs that the node may have, this node asks all other holders with ASK
    whether they have them. It also asks the node itself, if that began with a journal or is met for
    the first time. What was believed before no longer counts. LACK replies with the ids that are
    unknown there; its sender leaves the holders of these jobs."""
    lab = Lab(4, has_journal=True)
    ids = [lab.add(0, replicate=3) for _ in range(30)]
    gone, unlucky = [id for id in ids if copies(lab, id) == [0, 1, 2]][:2]
    victim, other = 1, 2
    on_deljob(lab.nodes[victim], gone)
    on_deljob(lab.nodes[other], unlucky)  # nobody knows; a restart of another node tells
    lab.run()
    assert len(copies(lab, gone)) == 2 and left(lab) == 0
    lab.die(victim)
    lab.log.clear()
    lab.revive(victim)
    settle(lab)
    assert len(copies(lab, gone)) == 3
    assert len(copies(lab, unlucky)) == 3
    asked = [m for _, b, m in lab.log if isinstance(m, Ask) and b == victim]
    assert all(len(m.ids) <= 500 for m in asked)
    for i, n in enumerate(lab.nodes):
        for id in n.jobs:
            assert believed(lab, i, id) == copies(lab, id), (i, id)


def test_a_silent_node_is_asked_again() -> None:
    """K5.2 A loading node does not reply. ASK is repeated every 3 s, and when a link comes up."""
    lab = Lab(2, has_journal=True)
    id = lab.add(0, replicate=2)
    lab.die(1)
    lab.nodes[1].is_loading = True
    lab.revive(1)
    lab.pass_ms(5_000)
    assert left(lab) > 0
    lab.nodes[1].is_loading = False
    lab.pass_ms(3_000)
    assert left(lab) == 0
    asks = [(a, b) for a, b, m in lab.log if isinstance(m, Ask)]
    assert asks.count((0, 1)) >= 2
    lab.die(1)
    lab.hold(1, 0)
    lab.link(0, 1)
    lab.hold(1, 0)
    lab.run()
    assert left(lab) > 0
    lab.cut(0, 1)
    assert repair_left(lab.nodes[0]) == 0  # nothing can be done before there is a link
    lab.link(0, 1)
    lab.run()
    assert copies(lab, id) == [0, 1] and left(lab) == 0


def test_acked_jobs_are_told_before_lack() -> None:
    """K5.2 The sender of ASK becomes a holder."""
    lab = Lab(3, has_journal=True)
    id, other = lab.add(0, replicate=3), lab.add(0, replicate=2)
    lab.die(1)
    on_ackjob(lab.nodes[0], id)
    on_ackjob(lab.nodes[2], id)
    lab.run()
    lab.revive(1)
    lab.pass_ms(3_000)
    assert copies(lab, id) == []
    holder = next(i for i in copies(lab, other) if i != 0)
    lab.nodes[0].jobs[other].holders = 1
    lab.die(holder)
    lab.revive(holder)
    lab.pass_ms(3_000)
    assert believed(lab, 0, other) == [0, holder]


# ---- repair


def test_fewest_copies_first_at_a_limited_rate() -> None:
    """K5.3 An open ALO job with fewer than REPLICATE holders is repaired, fewest copies first,
    at a limited rate"""
    lab = Lab(4)
    three = [lab.add(0, replicate=3) for _ in range(40)]
    two = [lab.add(0, replicate=2) for _ in range(40)]
    for n in lab.nodes:
        n.limits.repair_per_second = 100
    lab.log.clear()
    lose(lab, 1)
    assert settle(lab) >= 200
    for wire in sorted(lab.wires):
        order = [m.id for a, b, m in lab.log if isinstance(m, ReplJob) and (a, b) == wire]
        kinds = [id in three for id in order]
        assert kinds == sorted(kinds), "jobs with one copy left come first"
    assert all(len(copies(lab, id)) == 3 for id in three)
    assert all(len(copies(lab, id)) == 2 for id in two)


def test_who_does_not_keep_it_is_asked_and_passed_over() -> None:
    """K5.3 A node that is silent for a second is asked as in K5.2; if it has no copy, another one
    is chosen."""
    lab = Lab(5)
    ids = [lab.add(0, replicate=3) for _ in range(30)]
    full = lab.nodes[4]
    full.limits.memory_bytes = full.used_bytes() + 1  # takes no copies
    before = len(full.jobs)
    lose(lab, 1)
    settle(lab)
    assert len(full.jobs) == before
    for id in ids:
        assert len(copies(lab, id)) == 3
        assert sorted(believed(lab, 0, id)) == copies(lab, id)


def test_a_job_waits_for_a_node_that_can_take_it() -> None:
    """K5.3 Without a node to send to, the job waits until one is reachable."""
    lab = Lab(4)
    lab.isolate(3)
    id = lab.add(0, replicate=3)
    lab.die(1)
    lab.forget(0, 1)
    lab.forget(2, 1)
    lab.pass_ms(30_000)
    assert copies(lab, id) == [0, 2]
    assert [repair_left(lab.nodes[i]) for i in (0, 2)] == [1, 1]
    lab.link(0, 3)
    lab.link(2, 3)
    settle(lab, 5_000)
    assert copies(lab, id) == [0, 2, 3]


def test_all_holders_hear_of_the_new_one() -> None:
    """K5.3 These become holders, and each that has stored the job sends GOTJOB to all holders
    (R2.6).

    R2.6 A copy made by repair is confirmed to all holders."""
    lab = Lab(4)
    id = lab.add(0, replicate=3)
    lost = next(i for i in (1, 2, 3) if i in copies(lab, id))
    lab.log.clear()
    lose(lab, lost)
    settle(lab)
    new = copies(lab, id)
    heard = [b for _, b, m in lab.log if isinstance(m, GotJob) and id in m.ids]
    assert len(heard) == 2 and len(new) == 3
    assert all(believed(lab, i, id) == new for i in new)


def test_a_holder_that_was_away_hears_of_the_new_one() -> None:
    """K5.6 A holder that is not linked when copies are made (K5.3) gets HOLDERS from the node that
    made them once they are linked again."""
    lab = Lab(4)
    ids = [id for _ in range(20) if copies(lab, id := lab.add(0, replicate=3)) == [0, 1, 2]]
    lab.isolate(2)
    lab.die(1)
    lab.link(0, 1)
    settle(lab)
    assert ids and all(3 in copies(lab, id) for id in ids)
    lab.cut(0, 3)
    lab.link(0, 2)
    lab.run()
    lab.cut(0, 2)
    assert all(believed(lab, 2, id) == [0, 1, 2, 3] for id in ids)


def test_copies_keep_their_times_and_counts() -> None:
    """R2.5 A copy made by repair (K5.3) takes the due time of the sender. During its first delay it
    takes that of the other copies."""
    lab = Lab(3)
    waits, late = lab.add(0, replicate=3, retry_s=60), lab.add(0, b"l", replicate=3, delay_s=100)
    assert lab.get(0) == [waits]
    lab.nodes[0].jobs[waits].nacks = lab.nodes[2].jobs[waits].nacks = 3
    lab.pass_ms(20_000)
    lose(lab, 1)
    settle(lab)
    copy = lab.nodes[1].jobs[waits]
    assert copy.nacks == 3
    assert 30_000 < copy.qtime_ms - lab.now_ms <= 41_000
    retry_ms = lab.nodes[0].jobs[late].retry_s * 1000
    assert lab.nodes[1].jobs[late].qtime_ms - lab.now_ms >= 75_000 + retry_ms
    lab.pass_ms(30_000)
    assert [lab.get(i) for i in range(3)] == [[], [], []]  # nobody has it early
    lab.pass_ms(12_000)
    assert sum(n.jobs[waits].state == QUEUED for n in lab.nodes) == 1


def test_at_most_once_jobs_are_not_copied() -> None:
    """K5.3 An open ALO job with fewer than REPLICATE holders is repaired"""
    lab = Lab(3)
    id = lab.add(0, retry_s=0, replicate=1)
    lab.log.clear()
    for i in (1, 2):
        lose(lab, i)
    settle(lab)
    assert copies(lab, id) == [0]
    assert not [m for _, _, m in lab.log if isinstance(m, ReplJob)]


# ---- the node whose turn it is


def test_the_next_rank_takes_over() -> None:
    """K5.4 An unreachable holder is skipped."""
    lab = Lab(4)
    id = lab.add(0, replicate=3)
    holders = copies(lab, id)
    first, second, third = by_rank(lab, id, holders)
    lab.isolate(first)
    lab.die(third)
    spare = next(i for i in range(4) if i not in holders)
    lab.link(second, third)
    lab.link(third, spare)
    settle(lab, 30_000)
    assert len(copies(lab, id)) >= 3
    assert first in believed(lab, second, id)  # it may be there still


def test_the_others_check() -> None:
    """K5.4 The other holders count copies too. If a job lacks copies for 2 s, they ask the holder
    whose turn it is; it replies with HOLDERS, and examines the job itself."""
    lab = Lab(4)
    for _ in range(20):
        id = lab.add(0, replicate=3)
        first, second, third = by_rank(lab, id, copies(lab, id))
        lab.die(third)
        lab.link(first, third)  # the first repairs at once, on the third or the spare one
        lab.pass_ms(5_000)
        lab.link(second, third)  # and the second learns of the loss only now
        spare = next(i for i in range(4) if i not in (first, second, third))
        lab.link(spare, third)
        settle(lab)
        assert len(copies(lab, id)) == 3, "no copy more than asked for"
        assert believed(lab, second, id) == copies(lab, id)


def test_a_walk_goes_on_while_jobs_change() -> None:
    """K5.1 If the node says that it began without a journal, and another incarnation of it was
    known, it leaves the holders of every unacked job."""
    lab = Lab(3)
    ids = [lab.try_add(0, b"q", replicate=3, timeout_ms=0)[0] for _ in range(5_000)]
    lab.run()
    assert all(job is not None and job.state == QUEUED for job in ids)
    lab.die(1)
    lab.link(0, 1)
    lab.link(1, 2)
    n: Node = lab.nodes[0]
    for job in ids[:4_000:2]:
        assert job is not None
        on_ackjob(n, job.id)
    settle(lab)
    lab.pass_ms(5_000)
    for job in ids:
        assert job is not None
        if job.id in n.jobs:
            assert copies(lab, job.id) == [0, 1, 2]
    assert len(n.jobs) == 3_000
    assert [m for _, _, m in lab.log if isinstance(m, Lack)]


def test_who_knows_of_more_copies_says_so() -> None:
    """K5.4 If a job lacks copies for 2 s, they ask the holder whose turn it is; it replies with
    HOLDERS, and examines the job itself."""
    lab = Lab(4)
    id = lab.add(0, replicate=3)
    first, second, third = by_rank(lab, id, copies(lab, id))
    n = lab.nodes[second]
    lab.cut(second, third)
    lose_copy(n, n.jobs[id], lab.slot(second, third))  # which is not true
    assert repair_left(n) == 1
    lab.log.clear()
    assert 1_900 < settle(lab) < 3_000
    assert believed(lab, second, id) == sorted((first, second, third))
    assert [m.is_short for a, _, m in lab.log if isinstance(m, Ask) and a == second] == [True]
    assert not [m for _, _, m in lab.log if isinstance(m, ReplJob)]


def test_answers_in_order() -> None:
    """K5.2 LACK replies with the ids that are unknown there; its sender leaves the holders of these
    jobs."""
    lab = Lab(3)
    here, acked, gone = (lab.add(0, replicate=3) for _ in range(3))
    lab.isolate(2)
    on_ackjob(lab.nodes[0], acked)
    on_ackjob(lab.nodes[0], gone)
    lab.run()
    n, slot = lab.nodes[0], lab.slot(0, 1)
    unregister(n, n.jobs[gone], GC_ACKED)
    n.tombs.keep(gone, n.now_ms + 9_000)
    on_ask(n, slot, Ask(7, [b"D" * 40, here, acked, gone], False, b""))
    said = [m for m in n.peers[slot].outbox if not isinstance(m, Slots)]
    assert [type(m) for m in said] == [SetAck, SetAck, Lack]
    assert [m.id for m in said if isinstance(m, SetAck)] == [acked, gone]
    assert said[2] == Lack(7, [b"D" * 40])
    n.peers[slot].outbox.clear()


def test_who_is_not_helped_does_it_alone() -> None:
    """K5.4 If the job lacks copies for 10 s, they repair it themselves."""
    lab = Lab(4)
    id = lab.add(0, replicate=3)
    _, second, third = by_rank(lab, id, copies(lab, id))
    lab.die(third)
    lab.link(second, third)  # the first cannot learn that it started anew
    lab.pass_ms(9_000)
    assert len(copies(lab, id)) == 2
    settle(lab)
    assert len(copies(lab, id)) == 3
    assert {m.id for a, _, m in lab.log if isinstance(m, ReplJob) and a == second} == {id}
