"""SPEC K2, K5, K6 with several nodes: lost copies are made again, forgotten nodes are left out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest

from raw_resp import encode
from tuque.core.copies.ack import on_ackjob, on_deljob
from tuque.core.copies.federation import send_jobs
from tuque.core.model.job import ACKED, ACTIVE, QUEUED
from tuque.core.model.stats import GC_ACKED
from tuque.core.msgs.bus import (
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
from world import World

Make = Callable[..., World]


def left(world: World) -> int:
    """What all nodes together have left to repair."""
    return sum(repair_left(n) for n in world.cores)


def settle(world: World, limit_ms: int = 20_000) -> int:
    """Wait until nothing is left to repair; how long that took, ms."""
    start_ms = world.now_ms
    world.settle()
    while left(world) > 0:
        world.pass_ms(50)
        assert world.now_ms - start_ms < limit_ms, f"{left(world)} left"
    return world.now_ms - start_ms


def lose(world: World, i: int) -> None:
    """Restart a node without its memory."""
    world.restart(i)
    world.link()


def join_unscanned(world: World, new: int, *others: int, is_gone: bool = False) -> None:
    """Nodes meet a new life of another one, which may be gone again before they look at jobs."""
    cores = [world.node(i).core for i in others]
    for n in cores:
        n.is_loading = True
    for i in others:
        world.join(i, new)
    if is_gone:
        world.isolate(new)
    for n in cores:
        n.is_loading = False


def by_rank(world: World, id: bytes, among: list[int]) -> list[int]:
    """Nodes, the one that acts for the job first."""
    return sorted(among, key=lambda i: rank(id, world.node(i).core.node_id), reverse=True)


# ---- a node without its memory


@pytest.mark.parametrize("repl", [2, 3])
def test_rolling_restart_loses_nothing(make_world: Make, repl: int) -> None:
    """K5.5 `CLUSTER REPAIR` shows how many jobs wait for repair or for a reply to ASK. When all
    nodes show 0, the next node may be restarted."""
    world = make_world(3, journal="off")
    ids = [world.at(k % 3).add(retry=5, replicate=repl) for k in range(30)]
    for i in (0, 1, 2, 0):
        lose(world, i)
        settle(world)
        assert all(len(world.copies(id)) >= repl for id in ids)
    world.pass_ms(8_000)
    got = [id for i in range(3) for _ in range(60) for id in world.at(i).get()]
    assert set(got) == set(ids)


def test_any_node_takes_the_copy(make_world: Make) -> None:
    """K5.3 The reachable holder with the highest rank sends REPLJOB to as many other reachable
    nodes as are missing
    """
    world = make_world(4, journal="off")
    ids = [world.at(0).add(replicate=3) for _ in range(40)]
    world.restart(1)
    world.isolate(1)
    # It started anew, and is gone again before it takes anything.
    join_unscanned(world, 1, 0, 2, 3, is_gone=True)
    world.settle()
    settle(world)
    for id in ids:
        assert world.copies(id) == [0, 2, 3]
        assert all(world.believed(i, id) == [0, 2, 3] for i in (0, 2, 3))
    world.link()
    lose(world, 2)
    settle(world)
    assert {tuple(world.copies(id)) for id in ids} == {(0, 2, 3), (0, 1, 3)}


def test_acked_jobs_are_kept_until_the_node_knows(make_world: Make) -> None:
    """K5.1 Acked jobs keep it, as not confirmed: it makes a tombstone (A4.1) before the jobs go."""
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3)
    world.restart(1)
    assert on_ackjob(world.node(0).core, id)
    world.pass_ms(3_000)
    assert world.states(id) == [ACKED, -1, ACKED]
    world.link()
    world.pass_ms(1)
    assert world.node(1).core.tombs.has(id)
    world.pass_ms(5_000)
    assert world.holders(id) == []
    assert left(world) == 0


def test_what_is_sent_to_a_new_life_stays(make_world: Make) -> None:
    """K5.1 Copies received or reported after the restart stay valid, even during the scan."""
    world = make_world(2, journal="off")
    world.at(0).add(b"other", replicate=2, retry=100)
    id = world.at(0).add(replicate=1, retry=100)
    world.restart(1)
    n = world.node(0).core
    join_unscanned(world, 1, 0)
    assert [walk.pos for walk in n.losses.walks] == [0]
    assert on_dequeue(n, id)
    send_jobs(n, world.slot(0, 1), b"q", [n.jobs[id]])
    repair_tick(n)
    assert n.losses.repaired == 1, "the other job has lost its copy"
    assert world.believed(0, id) == [0, 1]
    world.settle()
    assert world.states(id) == [ACTIVE, QUEUED]
    assert on_ackjob(n, id)
    world.settle()
    assert world.at(1).get() == []


def test_what_a_node_said_of_an_ack_is_gone_with_it(make_world: Make) -> None:
    """K5.1 Acked jobs keep it, as not confirmed: it makes a tombstone (A4.1) before the jobs go."""
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3)
    world.isolate(2)
    assert on_ackjob(world.node(0).core, id)
    world.settle()
    assert world.node(0).core.jobs[id].confirmed >> world.slot(0, 1) & 1
    world.restart(1)
    world.link(0, 1)
    assert world.node(1).core.tombs.has(id)


def test_who_is_met_for_the_first_time_has_lost_nothing(make_world: Make) -> None:
    """K5.2 For the ALO jobs that the node may have, this node asks all other holders with ASK
    whether they have them."""
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3)
    n, slot = world.node(0).core, world.slot(0, 1)
    del n.lives[slot]  # it was named by others, and had no link yet
    world.forget_heard()
    on_incarnation(n, slot, True, 1)
    world.settle()
    assert world.believed(0, id) == [0, 1, 2]
    assert [(a, b) for a, b, m in world.heard(Ask)] == [(0, 1)]


def test_nothing_comes_back_by_hearsay(make_world: Make) -> None:
    """K2.2 A node is a member of a set in one incarnation. Before a message names a set, SLOTS
    names the node and incarnation of each number. A member in an older incarnation than the one
    known here is removed, or asked (K5.7).
    """
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3)
    world.restart(1)
    join_unscanned(world, 1, 0)  # node 2 has not met the new life of node 1
    world.node(0).core.limits.repair_per_second = 0
    world.node(0).core.reachable = 0
    world.settle()
    assert world.believed(0, id) == [0, 2]
    n = world.node(2).core
    peer = n.peers[world.slot(2, 0)]
    introduce(n, peer.slot, n.jobs[id].holders)
    say(n, peer.slot, Holders(id, n.jobs[id].holders))
    assert world.believed(2, id) == [0, 1, 2]
    world.settle()
    assert world.believed(0, id) == [0, 2]
    world.link(2, 1)
    assert world.believed(2, id) in ([0, 2], [0, 1, 2])


def test_who_restarted_is_a_member_before_it_is_met(make_world: Make) -> None:
    """K2.2 One in a newer incarnation counts before this node has met it."""
    world = make_world(3, journal="off")
    world.restart(1)
    world.link(0, 1)  # node 2 has not met the new life of node 1
    world.cut(1, 2)
    id = world.at(0).add(replicate=1)
    n = world.node(0).core
    n.jobs[id].holders |= 1 << world.slot(0, 1)
    peer = world.slot(0, 2)
    introduce(n, peer, n.jobs[id].holders)
    world.settle()
    assert slots_of(translate(world.node(2).core, world.slot(2, 0), n.jobs[id].holders)) == sorted(
        [world.slot(2, 0), world.slot(2, 1)]
    )


# ---- a node with a journal


def test_what_it_lacks_is_asked_for(make_world: Make) -> None:
    """K5.2 For the ALO jobs that the node may have, this node asks all other holders with ASK
    whether they have them, and the node itself if that began with a journal or is met for the
    first time. What was believed before no longer counts. LACK replies with the ids that are
    unknown there; its sender leaves the holders of these jobs.
    """
    world = make_world(4, journal="always")
    ids = [world.at(0).add(replicate=3) for _ in range(30)]
    gone, unlucky = [id for id in ids if world.copies(id) == [0, 1, 2]][:2]
    victim, other = 1, 2
    on_deljob(world.node(victim).core, gone)
    on_deljob(world.node(other).core, unlucky)  # nobody knows; a restart of another node tells
    world.settle()
    assert len(world.copies(gone)) == 2 and left(world) == 0
    world.restart(victim)
    world.forget_heard()
    for i in (0, 2, 3):
        world.join(victim, i)
    settle(world)
    assert len(world.copies(gone)) == 3
    assert len(world.copies(unlucky)) == 3
    asked = [m for _, b, m in world.heard(Ask) if b == victim]
    assert all(len(m.ids) <= 500 for m in asked)
    for i, n in enumerate(world.cores):
        for id in n.jobs:
            assert world.believed(i, id) == world.copies(id), (i, id)


def test_a_silent_node_is_asked_again(make_world: Make) -> None:
    """K5.2 A loading node does not reply. ASK is repeated every 3 s, and when a link comes up."""
    world = make_world(2, journal="always")
    id = world.at(0).add(replicate=2)
    world.restart(1)
    world.node(1).core.is_loading = True
    world.link()
    world.pass_ms(5_000)
    assert left(world) > 0
    world.node(1).core.is_loading = False
    world.pass_ms(3_000)
    assert left(world) == 0
    asks = [(a, b) for a, b, m in world.heard(Ask)]
    assert asks.count((0, 1)) >= 2
    world.restart(1)
    world.join(0, 1)
    world.hold(1, 0)
    world.settle()
    assert left(world) > 0
    world.cut(0, 1)
    assert repair_left(world.node(0).core) == 0  # nothing can be done before there is a link
    world.link(0, 1)
    assert world.copies(id) == [0, 1] and left(world) == 0


def test_acked_jobs_are_told_before_lack(make_world: Make) -> None:
    """K5.2 The sender of ASK becomes a holder."""
    world = make_world(3, journal="always")
    id, other = world.at(0).add(replicate=3), world.at(0).add(replicate=2)
    world.restart(1)
    on_ackjob(world.node(0).core, id)
    on_ackjob(world.node(2).core, id)
    world.settle()
    world.link()
    world.pass_ms(3_000)
    assert world.copies(id) == []
    holder = next(i for i in world.copies(other) if i != 0)
    world.node(0).core.jobs[other].holders = 1
    world.restart(holder)
    world.link()
    world.pass_ms(3_000)
    assert world.believed(0, other) == [0, holder]


# ---- repair


def test_fewest_copies_first_at_a_limited_rate(make_world: Make) -> None:
    """K5.3 An open ALO job with fewer than REPLICATE holders is repaired, fewest copies first,
    at a limited rate"""
    world = make_world(4, journal="off")
    three = [world.at(0).add(replicate=3) for _ in range(40)]
    two = [world.at(0).add(replicate=2) for _ in range(40)]
    for n in world.cores:
        n.limits.repair_per_second = 100
    world.forget_heard()
    lose(world, 1)
    assert settle(world) >= 200
    for wire in permutations(world.numbers(), 2):
        order = [m.id for a, b, m in world.heard(ReplJob) if (a, b) == wire]
        kinds = [id in three for id in order]
        assert kinds == sorted(kinds), "jobs with one copy left come first"
    assert all(len(world.copies(id)) == 3 for id in three)
    assert all(len(world.copies(id)) == 2 for id in two)


def test_who_does_not_keep_it_is_asked_and_passed_over(make_world: Make) -> None:
    """K5.3 A node that is silent for a second is asked as in K5.2; if it has no copy, another one
    is chosen."""
    world = make_world(5, journal="off")
    ids = [world.at(0).add(replicate=3) for _ in range(30)]
    full = world.node(4).core
    full.limits.memory_bytes = full.used_bytes() + 1  # takes no copies
    before = len(full.jobs)
    lose(world, 1)
    settle(world)
    assert len(full.jobs) == before
    for id in ids:
        assert len(world.copies(id)) == 3
        assert sorted(world.believed(0, id)) == world.copies(id)


def test_a_job_waits_for_a_node_that_can_take_it(make_world: Make) -> None:
    """K5.3 without one the job waits."""
    world = make_world(4, journal="off")
    world.leave(3)
    id = world.at(0).add(replicate=3)
    world.restart(1)
    world.forget(0, 1)
    world.forget(2, 1)
    world.pass_ms(30_000)
    assert world.copies(id) == [0, 2]
    assert [repair_left(world.node(i).core) for i in (0, 2)] == [1, 1]
    world.leave(3, False)
    settle(world, 5_000)
    assert world.copies(id) == [0, 2, 3]


def test_all_holders_hear_of_the_new_one(make_world: Make) -> None:
    """K5.3 These become holders, and each that has stored the job sends GOTJOB to all holders
    (R2.6).

    R2.6 A copy made by repair is confirmed to all holders."""
    world = make_world(4, journal="off")
    id = world.at(0).add(replicate=3)
    lost = next(i for i in (1, 2, 3) if i in world.copies(id))
    world.forget_heard()
    lose(world, lost)
    settle(world)
    new = world.copies(id)
    heard = [b for _, b, m in world.heard(GotJob) if id in m.ids]
    assert len(heard) == 2 and len(new) == 3
    assert all(world.believed(i, id) == new for i in new)


def test_a_holder_that_was_away_hears_of_the_new_one(make_world: Make) -> None:
    """K5.6 The node that made copies (K5.3) sends HOLDERS to a holder without a link when that
    is linked again.
    """
    world = make_world(4, journal="off")
    ids = [id for _ in range(20) if world.copies(id := world.at(0).add(replicate=3)) == [0, 1, 2]]
    world.isolate(2)
    world.restart(1)
    world.link(0, 1)
    settle(world)
    assert ids and all(3 in world.copies(id) for id in ids)
    world.cut(0, 3)
    world.link(0, 2)
    world.cut(0, 2)
    assert all(world.believed(2, id) == [0, 1, 2, 3] for id in ids)


def test_copies_keep_their_times_and_counts(make_world: Make) -> None:
    """R2.5 A copy made by repair (K5.3) takes the due time of the sender, in its first delay
    that of the other copies.
    """
    world = make_world(3, journal="off")
    waits, late = (
        world.at(0).add(replicate=3, retry=60),
        world.at(0).add(b"l", replicate=3, delay=100),
    )
    assert world.at(0).get() == [waits]
    world.node(0).core.jobs[waits].nacks = world.node(2).core.jobs[waits].nacks = 3
    world.pass_ms(20_000)
    lose(world, 1)
    settle(world)
    copy = world.node(1).core.jobs[waits]
    assert copy.nacks == 3
    assert 30_000 < copy.qtime_ms - world.now_ms <= 41_000
    retry_ms = world.node(0).core.jobs[late].retry_s * 1000
    assert world.node(1).core.jobs[late].qtime_ms - world.now_ms >= 75_000 + retry_ms
    world.pass_ms(30_000)
    assert [world.at(i).get() for i in range(3)] == [[], [], []]  # nobody has it early
    world.pass_ms(12_000)
    assert sum(n.jobs[waits].state == QUEUED for n in world.cores) == 1


def test_at_most_once_jobs_are_not_copied(make_world: Make) -> None:
    """K5.3 An open ALO job with fewer than REPLICATE holders is repaired"""
    world = make_world(3, journal="off")
    id = world.at(0).add(retry=0, replicate=1)
    world.forget_heard()
    for i in (1, 2):
        lose(world, i)
    settle(world)
    assert world.copies(id) == [0]
    assert not [m for _, _, m in world.heard(ReplJob)]


# ---- the node whose turn it is


def test_the_next_rank_takes_over(make_world: Make) -> None:
    """K5.4 An unreachable holder is skipped."""
    world = make_world(4, journal="off")
    id = world.at(0).add(replicate=3)
    holders = world.copies(id)
    first, second, third = by_rank(world, id, holders)
    world.isolate(first)
    world.restart(third)
    spare = next(i for i in range(4) if i not in holders)
    world.link(second, third)
    world.link(third, spare)
    settle(world, 30_000)
    assert len(world.copies(id)) >= 3
    assert first in world.believed(second, id)  # it may be there still


def test_the_others_check(make_world: Make) -> None:
    """K5.4 The other holders count copies too. If a job lacks copies for 2 s, they ask the holder
    whose turn it is; it replies with HOLDERS, and examines the job itself."""
    world = make_world(4, journal="off")
    for _ in range(20):
        id = world.at(0).add(replicate=3)
        first, second, third = by_rank(world, id, world.copies(id))
        world.restart(third)
        world.link(first, third)  # the first repairs at once, on the third or the spare one
        world.pass_ms(5_000)
        world.link(second, third)  # and the second learns of the loss only now
        spare = next(i for i in range(4) if i not in (first, second, third))
        world.link(spare, third)
        settle(world)
        assert len(world.copies(id)) == 3, "no copy more than asked for"
        assert world.believed(second, id) == world.copies(id)


def test_a_walk_goes_on_while_jobs_change(make_world: Make) -> None:
    """K5.1 If the node began without a journal, and another incarnation of it was known, it
    leaves the holders of every unacked job, by a scan.
    """
    world = make_world(3, journal="off")
    world.at(0).put(encode("ADDJOB", "q", "body", 0, "REPLICATE", 3) * 5_000)
    ids = [world.node(0).core.jobs[id] for id in world.at(0).take_all()]
    assert all(job.state == QUEUED for job in ids)
    world.restart(1)
    world.link(0, 1)
    world.link(1, 2)
    n: Node = world.node(0).core
    for job in ids[:4_000:2]:
        on_ackjob(n, job.id)
    settle(world)
    world.pass_ms(5_000)
    for job in ids:
        if job.id in n.jobs:
            assert world.copies(job.id) == [0, 1, 2]
    assert len(n.jobs) == 3_000
    assert [m for _, _, m in world.heard(Lack)]


def test_who_knows_of_more_copies_says_so(make_world: Make) -> None:
    """K5.4 If a job lacks copies for 2 s, they ask the holder whose turn it is; it replies with
    HOLDERS, and examines the job itself."""
    world = make_world(4, journal="off")
    id = world.at(0).add(replicate=3)
    first, second, third = by_rank(world, id, world.copies(id))
    n = world.node(second).core
    world.cut(second, third)
    lose_copy(n, n.jobs[id], world.slot(second, third))  # which is not true
    assert repair_left(n) == 1
    world.forget_heard()
    assert 1_900 < settle(world) < 3_000
    assert world.believed(second, id) == sorted((first, second, third))
    assert [m.is_short for a, _, m in world.heard(Ask) if a == second] == [True]
    assert not [m for _, _, m in world.heard(ReplJob)]


def test_answers_in_order(make_world: Make) -> None:
    """K5.2 LACK replies with the ids that are unknown there; its sender leaves the holders of these
    jobs."""
    world = make_world(3, journal="off")
    here, acked, gone = (world.at(0).add(replicate=3) for _ in range(3))
    world.isolate(2)
    on_ackjob(world.node(0).core, acked)
    on_ackjob(world.node(0).core, gone)
    world.settle()
    n, slot = world.node(0).core, world.slot(0, 1)
    unregister(n, n.jobs[gone], GC_ACKED)
    n.tombs.keep(gone, n.now_ms + 9_000)
    on_ask(n, slot, Ask(7, [b"D" * 40, here, acked, gone], False, b""))
    said = [m for m in n.peers[slot].outbox if not isinstance(m, Slots)]
    assert [type(m) for m in said] == [SetAck, SetAck, Lack]
    assert [m.id for m in said if isinstance(m, SetAck)] == [acked, gone]
    assert said[2] == Lack(7, [b"D" * 40])
    n.peers[slot].outbox.clear()


def test_who_is_not_helped_does_it_alone(make_world: Make) -> None:
    """K5.4 After 10 s they repair it themselves."""
    world = make_world(4, journal="off")
    id = world.at(0).add(replicate=3)
    _, second, third = by_rank(world, id, world.copies(id))
    world.restart(third)
    world.link(second, third)  # the first cannot learn that it started anew
    world.pass_ms(9_000)
    assert len(world.copies(id)) == 2
    settle(world)
    assert len(world.copies(id)) == 3
    assert {m.id for a, _, m in world.heard(ReplJob) if a == second} == {id}
