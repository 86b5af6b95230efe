"""Steps of SPEC K, A, F, Q and R that no other test would miss, as tools/mutants.py showed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_a_cluster import sent
from test_k_repair import settle

from raw_resp import encode
from told_events import Told
from tuque.core.copies.ack import on_ackjob, on_deljob
from tuque.core.copies.federation import send_jobs
from tuque.core.copies.holders import (
    CLEAN_EVERY,
    ask,
    gone_from,
    hear_holders,
    note_gone,
    on_all_answered,
    part,
)
from tuque.core.copies.replicate import FAILED_KEEP_MS, copy_of
from tuque.core.dispatch.timers import next_timer_ms
from tuque.core.model.job import ACKED, ACTIVE, QUEUED
from tuque.core.model.tombstones import Tombs
from tuque.core.msgs.bus import (
    HAS_QUEUED,
    GotJob,
    Holders,
    Left,
    Queued,
    SetAck,
    Working,
)
from tuque.core.node.queue import PAUSE_IN
from tuque.core.queues.deliver import set_pause
from tuque.core.queues.procedures import dequeue
from tuque.core.queues.requeue import on_dequeue, on_nack
from tuque.core.records.events import EXPIRED, Events
from tuque.core.repair.claims import STEP_JOBS, SWEEP_JOBS, keep
from tuque.core.repair.node_loss import repair_left
from tuque.core.tables.repair import DOUBT, Walk
from world import World

Make = Callable[..., World]

# ---- copies that are made again


def test_a_node_that_refused_is_tried_again(make_world: Make) -> None:
    """K5.3 without one the job waits."""
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2)
    world.restart(1)
    set_pause(world.node(1).core, b"q", PAUSE_IN)  # it takes no copies (R2.4)
    world.link()
    world.pass_ms(4_000)
    assert world.holders(id) == [0]
    assert world.node(0).core.losses.short[id].targets == 0, "it said that it has none"
    set_pause(world.node(1).core, b"q", 0)
    assert settle(world) < 7_000
    assert world.copies(id) == [0, 1]


def test_who_said_before_that_it_has_none_is_not_waited_for(make_world: Make) -> None:
    """K5.3 A node that is silent for a second is asked as in K5.2; if it has no copy, another one
    is chosen."""
    world = make_world(4, journal="off")
    world.isolate(2)
    world.isolate(3)
    id = world.at(0).add(replicate=2)
    n = world.node(0).core
    on_deljob(world.node(1).core, id)
    set_pause(world.node(1).core, b"q", PAUSE_IN)  # it takes no copies (R2.4)
    ask(n, world.slot(0, 1), id, False)
    world.settle()
    assert n.losses.short[id].targets == 1 << world.slot(0, 1), "it is the only one"
    world.link(0, 2)
    assert settle(world) < 4_000
    assert world.copies(id) == [0, 2]


def test_a_node_without_memory_is_not_brought_back_by_who_met_it_last_before(
    make_world: Make,
) -> None:
    """K2.2 A member in an older incarnation than the one known here is removed, or asked (K5.7)."""
    world = make_world(3, journal="off")
    world.cut(0, 1)
    id = world.at(0).add(replicate=2, retry=100)
    assert world.holders(id) == [0, 2]
    world.restart(2)
    world.link(1, 2)  # node 1 alone has met the new life, which began without jobs
    world.link(0, 1)
    world.send(0, 1, copy_of(world.node(0).core, world.slot(0, 1), world.node(0).core.jobs[id], 0))
    assert world.believed(1, id) == [0, 1]
    assert gone_from(world.node(1).core, id) == 0


def test_a_forgotten_node_owes_no_answer(make_world: Make) -> None:
    """K5.5 `CLUSTER REPAIR` shows how many jobs wait for repair or for a reply to ASK."""
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=2, retry=100)
    other = next(i for i in (1, 2) if id in world.node(i).core.jobs)
    world.hold(other, 0)
    ask(world.node(0).core, world.slot(0, other), id, False)
    world.settle()
    assert repair_left(world.node(0).core) == 1
    world.forget(0, other)
    assert not world.node(0).core.losses.asking, "nor is it asked again every 3 s"
    world.settle()


def test_who_has_answered_is_believed_while_others_are_gone_through(make_world: Make) -> None:
    """K5.2 What was believed before no longer counts."""
    world = make_world(3, journal="off")
    state, one, two = world.node(0).core.losses, world.slot(0, 1), world.slot(0, 2)
    state.unsure = state.doubted = 1 << one | 1 << two
    state.walks.append(Walk(DOUBT, two, [], False))
    on_all_answered(world.node(0).core, one)
    on_all_answered(world.node(0).core, two)
    assert (state.unsure, state.doubted) == (1 << two, 1 << two), "its copies are not asked for yet"


@pytest.mark.parametrize("is_there", [True, False])
def test_only_its_own_word_counts(make_world: Make, *, is_there: bool) -> None:
    """K5.7 It does not count as a copy until it confirms one itself."""
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3, retry=100)
    n, slot = world.node(0).core, world.slot(0, 2)
    job = world.node(0).core.jobs[id]
    note_gone(n, slot, job)
    named = 1 | (1 << slot if is_there else 0)
    hear_holders(n, slot, job, named, 0)
    assert gone_from(n, id) == (0 if is_there else 1 << slot)


def test_a_holder_that_told_late_is_known_after_a_restart(make_world: Make) -> None:
    """R3.1 The sender joins the holders in its current incarnation.

    J2.3 The add record names the holders unless this node is the only one.
    """
    world = make_world(3, journal="always")
    world.isolate(2)
    id = world.at(0).add(replicate=2, retry=100)
    world.link()
    world.send(2, 0, GotJob([id]))
    assert world.believed(0, id) == [0, 1, 2]
    world.restart(0)
    assert world.believed(0, id) == [0, 1, 2]


# ---- what is kept for nodes that are away has an end


def test_news_of_leaving_that_were_heard_are_not_kept(make_world: Make) -> None:
    """K7.2 Then a first delay that still runs continues at one of them (R8), HOLDERS with the
    nodes that have the job and LEFT go to all holders, to one without a link when it is linked
    again, and the job is unregistered with cause moved.
    """
    world = make_world(2, journal="off")
    n, slot = world.node(0).core, world.slot(0, 1)
    id = world.at(0).add(replicate=2)
    job = n.jobs[id]
    for number in range(3 * CLEAN_EVERY):
        job.id = b"%040d" % number
        part(n, job, 1 << slot, 2)
        n.round += 1
        n.peers[slot].echoed_round = n.round  # its heartbeat was answered: it has heard
    job.id = id
    assert len(n.losses.parted[slot]) <= CLEAN_EVERY


def test_failed_adds_are_forgotten(make_world: Make) -> None:
    """R3.2 If the ADDJOB of the job failed within the last 10 minutes, the reply is DELJOB. For
    any other unknown job nothing happens.
    """
    world = make_world(2, journal="off", cluster_node_timeout=2 * FAILED_KEEP_MS)
    world.hold(1, 0)
    producer = world.at(0, 1)
    id = producer.begin_add(replicate=2, timeout_ms=300)
    world.pass_ms(300)
    n = world.node(0).core
    assert producer.take().startswith("NOREPL Timeout")
    assert list(n.failed) == [id]
    world.pass_ms(FAILED_KEEP_MS)
    producer.begin_add(replicate=2, timeout_ms=300)
    world.pass_ms(300)
    assert id not in n.failed


def test_what_has_ended_is_not_owed() -> None:
    """A8.1 If one is unreachable, it is kept until the job's expiry, rounded up to 33 s."""
    tombs = Tombs()
    tombs.bury(b"id", 10_000, 0b10, 3)
    assert tombs.owed_to(1) == [b"id"]
    tombs.tick(100_000, 0)  # its time is over, and it waits to be swept
    assert tombs.owed_to(1) == []


def test_more_held_jobs_than_one_turn_looks_at(make_world: Make) -> None:
    """Q11.2 It waits for a reply of each other holder that is linked and not suspected, failed
    or loading.
    """
    world = make_world(2, journal="off")
    jobs = []
    for _ in range(SWEEP_JOBS + 5):
        id = world.at(0).add(replicate=2, retry=900, ASYNC=True)
        jobs.append(world.node(0).core.jobs[id])
    world.settle()
    n = world.node(0).core
    world.hold(1, 0)
    for job in jobs:
        dequeue(n, job)
        keep(n, job)
    n.held.sweep_ms = n.now_ms + 1_000
    world.pass_ms(3_500)
    assert n.held.sweep_ms > n.now_ms, "all of them were looked at, and are again in a second"
    assert next_timer_ms(n) > n.now_ms


def test_jobs_that_a_node_is_still_to_be_asked_about_keep_their_places(make_world: Make) -> None:
    """Q11.2 It waits for a reply of each other holder that is linked and not suspected, failed
    or loading.
    """
    world = make_world(2, journal="off")
    jobs = []
    for _ in range(2 * STEP_JOBS + 3):
        id = world.at(0).add(replicate=2, retry=900, ASYNC=True)
        jobs.append(world.node(0).core.jobs[id])
    world.settle()
    n = world.node(0).core
    world.hold(1, 0)
    ids = []
    for job in jobs:
        dequeue(n, job)
        keep(n, job)
        ids.append(job.id)
    n.held.feeds = {world.slot(0, 1): STEP_JOBS}  # it was asked about some of them
    for id in ids[:STEP_JOBS]:
        on_deljob(n, id)
    n.held.sweep_ms = n.now_ms
    world.pass_ms(100)
    questions = n.losses.asking[world.slot(0, 1)].questions.values()
    assert {id for one in questions for id in one.ids} == set(ids[STEP_JOBS:])


# ---- who serves a job


def test_a_worker_who_gave_the_job_back_is_no_reason(make_world: Make) -> None:
    """Q4.5 if the sender has the job queued, not for NACK, RELEASE or ENQUEUE, and a worker got it
    from this node or sent WORKING here
    """
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2, retry=100)
    assert world.at(0).get() == [id]
    world.pass_ms(600)
    assert on_nack(world.node(1).core, id, 0)
    world.settle()
    assert world.states(id) == [ACTIVE, QUEUED]
    world.forget_heard()
    world.send(1, 0, Queued(id, HAS_QUEUED))
    assert sent(world, Working) == []
    assert world.states(id) == [ACTIVE, QUEUED]


def test_a_job_that_was_put_off_is_announced_when_it_is_queued(make_world: Make) -> None:
    """G3.8 (cluster) An announced enqueue of an ALO job sends QUEUED to every other holder, with
    the counter that grew, or without one if the job was delivered before or postponed by a pause
    (Q2.2).
    """
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2, retry=100)
    assert world.at(0).get() == [id]
    on_nack(world.node(0).core, id, 5_000)
    world.settle()
    world.forget_heard()
    world.pass_ms(5_500)
    assert world.states(id)[0] == QUEUED
    said = [m for a, _, m in world.heard() if a == 0 and isinstance(m, Queued)]
    assert said == [Queued(id, HAS_QUEUED)]


def test_a_delay_outlives_a_refusal(make_world: Make) -> None:
    """F2.3 If the sender refuses, the jobs are queued here again."""
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=1, retry=0, delay=10)
    set_pause(world.node(1).core, b"q", PAUSE_IN)
    send_jobs(world.node(0).core, world.slot(0, 1), b"q", [world.node(0).core.jobs[id]])
    world.settle()
    assert world.states(id) == [ACTIVE, -1]
    world.pass_ms(9_900)
    assert world.at(0).get() == [], "promise 6: no first delivery before the delay is over"
    world.pass_ms(200)
    assert world.at(0).get() == [id]


def test_who_was_asked_for_others_knows_all_that_were(make_world: Make) -> None:
    """R6.2 The other nodes asked for a copy of an ALO job get HOLDERS too."""
    world = make_world(3, journal="off")
    world.node(0).core.is_leaving = True
    id = world.at(0).add(replicate=2, retry=100)
    server = world.states(id).index(QUEUED)
    other = 3 - server
    assert [
        m.id for a, b, m in world.heard() if (a, b) == (0, other) and isinstance(m, Holders)
    ] == [id]


def test_the_offer_of_a_delayed_job_is_answered_each_time(make_world: Make) -> None:
    """R8.1 The reply is ENQUEUED, also to a repeated ENQUEUE."""
    world = make_world(2, journal="off")
    world.node(0).core.is_leaving = True
    words = ("REPLICATE", 1, "RETRY", 0, "DELAY", 60)
    world.at(0).put(encode("ADDJOB", "q", "body", 0, *words))
    while not world.heard(GotJob):
        assert world.step()
    (id,) = world.node(0).core.jobs
    world.hold(1, 0)
    world.pass_ms(200)  # ENQUEUE comes, its answer does not
    world.cut(0, 1)
    world.link(0, 1)
    world.pass_ms(3_000)
    assert world.holders(id) == [1]
    assert sent(world, Left) == [(0, 1)], "it may be passed on"


# ---- acks


def test_the_ack_of_a_job_that_is_served_here_asks_nobody(make_world: Make) -> None:
    """A1.7 (cluster) If custody of an AMO job is elsewhere, every known node that is not
    forgotten first joins the holder set (R6.2, F2.3).
    """
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=1, retry=0)
    assert world.at(0).get() == [id]
    assert on_ackjob(world.node(0).core, id)
    assert world.holders(id) == []
    world.settle()
    assert sent(world, SetAck) == []


def test_a_holder_that_an_answer_names_is_told_at_once(make_world: Make) -> None:
    """A5.2 The holder sets are merged."""
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3, retry=100)
    world.cut(1, 2)
    world.node(0).core.jobs[id].holders = 1 | 1 << world.slot(0, 1)  # it has not heard of 2
    assert on_ackjob(world.node(0).core, id)
    world.settle()
    assert (0, 2) in sent(world, SetAck)
    assert world.states(id)[2] in (ACKED, -1)


# ---- what clients and readers see


def test_no_more_copies_than_the_default(make_world: Make) -> None:
    """K4.3 The default of REPLICATE counts this node, unless it takes no copies (R1.5), and the
    reachable ones that are not late.
    """
    world = make_world(5, journal="off")
    assert world.node(0).core.limits.default_replicate == 3  # R1.1: the smaller of both
    assert len(world.copies(world.at(0).add())) == 3
    world.isolate(4)
    world.isolate(3)
    world.isolate(2)
    assert len(world.copies(world.at(0).add())) == 2


def test_an_end_is_told_where_the_job_is_queued(make_world: Make) -> None:
    """E1.5 (cluster) added is written by the origin, acked by the node that got ACKJOB, expired by
    the node where the job is queued or was delivered, else by the origin: one row per job, not one
    per copy."""
    world = make_world(3, journal="off")
    for n in world.cores:
        n.events = Events(100, 1)
    world.node(0).core.is_leaving = True  # it passes the job on, and forgets it (R6.2)
    id = world.at(0).add(replicate=2, retry=100, ttl=2)
    server = world.states(id).index(QUEUED)
    world.pass_ms(3_000)
    told = []
    for i, n in enumerate(world.cores):
        assert n.events is not None
        told += [i for kind in Told(n.events.open).kinds if kind == EXPIRED]
    assert told == [server]


@pytest.mark.parametrize("how", ["new there", "known there", "nacked", "settled"])
def test_an_end_is_told_once_where_the_job_went(make_world: Make, how: str) -> None:
    """E1.6 (cluster) A node that gave the job to another one (F2), or whose last news is that
    another node has it queued, writes no expired: the other node writes it."""
    world = make_world(2, journal="off")
    for n in world.cores:
        n.events = Events(1000, 1)
    copies_of = 1 if how == "new there" else 2
    ids = [world.at(0).add(replicate=copies_of, retry=12, ttl=24) for _ in range(8)]
    if how == "settled":
        world.pass_ms(11_000)  # node 1 has heard long ago that they are queued
        world.cut(0, 1)
        world.pass_ms(2_000)
        assert world.states(ids[0]) == [QUEUED, QUEUED]
        world.link()
        world.pass_ms(100)
    elif how == "nacked":
        for _ in ids:
            world.at(0).get()
        assert all(on_nack(world.node(1).core, id, -1) for id in ids)
    else:
        world.pass_ms(13_000)  # the due time after this one is after the end
        for id in ids:
            dequeue(world.node(0).core, world.node(0).core.jobs[id])
        send_jobs(
            world.node(0).core, world.slot(0, 1), b"q", [world.node(0).core.jobs[id] for id in ids]
        )
    world.settle()
    servers = {id: world.states(id).index(QUEUED) for id in ids}
    assert all(sorted(world.states(id)) == [ACTIVE, QUEUED] for id in ids)
    world.pass_ms(25_000)
    assert ends_of(world) == sorted(servers.items())


def test_the_origin_tells_the_end_of_a_job_that_is_queued_nowhere(make_world: Make) -> None:
    """E1.5 (cluster) added is written by the origin, acked by the node that got ACKJOB, expired by
    the node where the job is queued or was delivered, else by the origin: one row per job, not one
    per copy."""
    world = make_world(2, journal="off")
    for n in world.cores:
        n.events = Events(1000, 1)
    ids = [world.at(0).add(replicate=2, retry=12, ttl=6) for _ in range(8)]
    for id in ids:
        dequeue(world.node(0).core, world.node(0).core.jobs[id])
    send_jobs(
        world.node(0).core, world.slot(0, 1), b"q", [world.node(0).core.jobs[id] for id in ids]
    )
    world.settle()
    for id in ids:
        assert on_dequeue(world.node(1).core, id)
    world.settle()
    assert world.states(ids[0]) == [ACTIVE, ACTIVE]
    world.pass_ms(7_000)
    assert ends_of(world) == [(id, 0) for id in sorted(ids)]


def ends_of(world: World) -> list[tuple[bytes, int]]:
    """The jobs of which an event `expired` was written, and by which node."""
    told = []
    for i, n in enumerate(world.cores):
        assert n.events is not None
        rows = Told(n.events.open)
        told += [
            (id, i) for id, kind in zip(rows.job_ids, rows.kinds, strict=True) if kind == EXPIRED
        ]
    return sorted(told)
