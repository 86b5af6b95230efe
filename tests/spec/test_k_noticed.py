"""Steps of SPEC K, A, F, Q and R that no other test would miss, as tools/mutants.py showed."""

from __future__ import annotations

import pytest
from test_k_repair import settle
from test_q_cluster import job_at, sent, tell

from cluster_lab import Lab, believed, copies
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
from tuque.core.msgs import (
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

# ---- copies that are made again


def test_a_node_that_refused_is_tried_again() -> None:
    """K5.3 Without a node to send to, the job waits until one is reachable."""
    lab = Lab(2)
    id = lab.add(0, replicate=2)
    lab.die(1)
    set_pause(lab.nodes[1], b"q", PAUSE_IN)  # it takes no copies (R2.4)
    lab.revive(1)
    lab.pass_ms(4_000)
    assert lab.holders_of(id) == [0]
    assert lab.nodes[0].losses.short[id].targets == 0, "it said that it has none"
    set_pause(lab.nodes[1], b"q", 0)
    assert settle(lab) < 7_000
    assert copies(lab, id) == [0, 1]


def test_who_said_before_that_it_has_none_is_not_waited_for() -> None:
    """K5.3 A node that is silent for a second is asked as in K5.2; if it has no copy, another one
    is chosen."""
    lab = Lab(4)
    lab.isolate(2)
    lab.isolate(3)
    id = lab.add(0, replicate=2)
    n = lab.nodes[0]
    on_deljob(lab.nodes[1], id)
    set_pause(lab.nodes[1], b"q", PAUSE_IN)  # it takes no copies (R2.4)
    ask(n, lab.slot(0, 1), id, False)
    lab.run()
    assert n.losses.short[id].targets == 1 << lab.slot(0, 1), "it is the only one"
    lab.link(0, 2)
    assert settle(lab) < 4_000
    assert copies(lab, id) == [0, 2]


def test_a_node_without_memory_is_not_brought_back_by_who_met_it_last_before() -> None:
    """K2.2 A member in an older incarnation than the one known here is removed, so that hearsay
    does not restore what a restarted node has lost, or it is asked (K5.7)."""
    lab = Lab(3)
    lab.cut(0, 1)
    id = lab.add(0, replicate=2, retry_s=100)
    assert lab.holders_of(id) == [0, 2]
    lab.die(2)
    lab.link(1, 2)  # node 1 alone has met the new life, which began without jobs
    lab.link(0, 1)
    tell(lab, 0, 1, copy_of(lab.nodes[0], lab.slot(0, 1), job_at(lab, 0, id), 0))
    assert believed(lab, 1, id) == [0, 1]
    assert gone_from(lab.nodes[1], id) == 0


def test_a_forgotten_node_owes_no_answer() -> None:
    """K5.5 `CLUSTER REPAIR` shows how many jobs wait for repair or for a reply to ASK."""
    lab = Lab(3)
    id = lab.add(0, replicate=2, retry_s=100)
    other = next(i for i in (1, 2) if id in lab.nodes[i].jobs)
    lab.hold(other, 0)
    ask(lab.nodes[0], lab.slot(0, other), id, False)
    lab.run()
    assert repair_left(lab.nodes[0]) == 1
    lab.forget(0, other)
    assert not lab.nodes[0].losses.asking, "nor is it asked again every 3 s"
    lab.run()


def test_who_has_answered_is_believed_while_others_are_gone_through() -> None:
    """K5.2 What was believed before no longer counts."""
    lab = Lab(3)
    state, one, two = lab.nodes[0].losses, lab.slot(0, 1), lab.slot(0, 2)
    state.unsure = state.doubted = 1 << one | 1 << two
    state.walks.append(Walk(DOUBT, two, [], False))
    on_all_answered(lab.nodes[0], one)
    on_all_answered(lab.nodes[0], two)
    assert (state.unsure, state.doubted) == (1 << two, 1 << two), "its copies are not asked for yet"


@pytest.mark.parametrize("is_there", [True, False])
def test_only_its_own_word_counts(*, is_there: bool) -> None:
    """K5.7 It does not count as a copy until it confirms one itself."""
    lab = Lab(3)
    id = lab.add(0, replicate=3, retry_s=100)
    n, slot = lab.nodes[0], lab.slot(0, 2)
    job = job_at(lab, 0, id)
    note_gone(n, slot, job)
    named = 1 | (1 << slot if is_there else 0)
    hear_holders(n, slot, job, named, 0)
    assert gone_from(n, id) == (0 if is_there else 1 << slot)


def test_a_holder_that_told_late_is_known_after_a_restart() -> None:
    """R3.1 The sender joins the holders in its current incarnation.

    J2.3 The add record names the holders unless this node is the only one.
    """
    lab = Lab(3, has_journal=True)
    lab.isolate(2)
    id = lab.add(0, replicate=2, retry_s=100)
    lab.heal()
    lab.run()
    tell(lab, 2, 0, GotJob([id]))
    assert believed(lab, 0, id) == [0, 1, 2]
    lab.die(0)
    assert believed(lab, 0, id) == [0, 1, 2]


# ---- what is kept for nodes that are away has an end


def test_news_of_leaving_that_were_heard_are_not_kept() -> None:
    """K7.2 A holder that missed HOLDERS and LEFT, because it had no link, gets both when it is
    linked again: it may have acked the job, and must not take it as over while an unknown node has
    a copy."""
    lab = Lab(2)
    n, slot = lab.nodes[0], lab.slot(0, 1)
    id = lab.add(0, replicate=2)
    job = n.jobs[id]
    for number in range(3 * CLEAN_EVERY):
        job.id = b"%040d" % number
        part(n, job, 1 << slot, 2)
        n.round += 1
        n.peers[slot].echoed_round = n.round  # its heartbeat was answered: it has heard
    job.id = id
    assert len(n.losses.parted[slot]) <= CLEAN_EVERY


def test_failed_adds_are_forgotten() -> None:
    """R3.2 If the ADDJOB of the job failed within the last 10 minutes, the reply is DELJOB, so that
    the copy does not survive. For any other unknown job nothing happens: this node may have passed
    it on.
    """
    lab = Lab(2)
    lab.hold(1, 0)
    job, refused = lab.try_add(0, b"q", replicate=2, timeout_ms=300)
    assert job is not None, refused
    lab.pass_ms(300)
    n = lab.nodes[0]
    assert list(n.failed) == [job.id]
    lab.pass_ms(FAILED_KEEP_MS)
    lab.try_add(0, b"q", replicate=2, timeout_ms=300)
    lab.pass_ms(300)
    assert job.id not in n.failed


def test_what_has_ended_is_not_owed() -> None:
    """A8.1 If one of them is unreachable, it is kept until the job's expiry, rounded up to 33 s."""
    tombs = Tombs()
    tombs.bury(b"id", 10_000, 0b10, 3)
    assert tombs.owed_to(1) == [b"id"]
    tombs.tick(100_000, 0)  # its time is over, and it waits to be swept
    assert tombs.owed_to(1) == []


def test_more_held_jobs_than_one_turn_looks_at() -> None:
    """Q11.2 A held job waits for a reply of each other holder that is linked and not suspected,
    failed or loading.
    """
    lab = Lab(2)
    jobs = []
    for _ in range(SWEEP_JOBS + 5):
        jobs.append(lab.try_add(0, b"q", replicate=2, retry_s=900, is_async=1)[0])
    lab.run()
    n = lab.nodes[0]
    lab.hold(1, 0)
    for job in jobs:
        assert job is not None
        dequeue(n, job)
        keep(n, job)
    n.held.sweep_ms = n.now_ms + 1_000
    lab.pass_ms(3_500)
    assert n.held.sweep_ms > n.now_ms, "all of them were looked at, and are again in a second"
    assert next_timer_ms(n) > n.now_ms


def test_jobs_that_a_node_is_still_to_be_asked_about_keep_their_places() -> None:
    """Q11.2 A held job waits for a reply of each other holder that is linked and not suspected,
    failed or loading."""
    lab = Lab(2)
    jobs = []
    for _ in range(2 * STEP_JOBS + 3):
        jobs.append(lab.try_add(0, b"q", replicate=2, retry_s=900, is_async=1)[0])
    lab.run()
    n = lab.nodes[0]
    lab.hold(1, 0)
    ids = []
    for job in jobs:
        assert job is not None
        dequeue(n, job)
        keep(n, job)
        ids.append(job.id)
    n.held.feeds = {lab.slot(0, 1): STEP_JOBS}  # it was asked about some of them
    for id in ids[:STEP_JOBS]:
        on_deljob(n, id)
    n.held.sweep_ms = n.now_ms
    lab.pass_ms(100)
    questions = n.losses.asking[lab.slot(0, 1)].questions.values()
    assert {id for one in questions for id in one.ids} == set(ids[STEP_JOBS:])


# ---- who serves a job


def test_a_worker_who_gave_the_job_back_is_no_reason() -> None:
    """Q4.5 the message says that the sender has the job queued now, not for a NACK or ENQUEUE, and
    a worker got the job from this node or sent WORKING here.
    """
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=100)
    assert lab.get(0) == [id]
    lab.pass_ms(600)
    lab.nodes[1].now_ms = lab.now_ms
    assert on_nack(lab.nodes[1], id, 0)
    lab.run()
    assert lab.states_of(id) == [ACTIVE, QUEUED]
    lab.log.clear()
    tell(lab, 1, 0, Queued(id, HAS_QUEUED))
    assert sent(lab, Working) == []
    assert lab.states_of(id) == [ACTIVE, QUEUED]


def test_a_job_that_was_put_off_is_announced_when_it_is_queued() -> None:
    """G3.8 It is sent without a counter if the job was delivered before or postponed by a pause
    (Q2.2).
    """
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=100)
    assert lab.get(0) == [id]
    on_nack(lab.nodes[0], id, 5_000)
    lab.run()
    lab.log.clear()
    lab.pass_ms(5_500)
    assert lab.states_of(id)[0] == QUEUED
    said = [m for a, _, m in lab.log if a == 0 and isinstance(m, Queued)]
    assert said == [Queued(id, HAS_QUEUED)]


def test_a_delay_outlives_a_refusal() -> None:
    """F2.3 If the sender refuses, the jobs are queued here again."""
    lab = Lab(2)
    id = lab.add(0, replicate=1, retry_s=0, delay_s=10)
    set_pause(lab.nodes[1], b"q", PAUSE_IN)
    send_jobs(lab.nodes[0], lab.slot(0, 1), b"q", [job_at(lab, 0, id)])
    lab.run()
    assert lab.states_of(id) == [ACTIVE, -1]
    lab.pass_ms(9_900)
    assert lab.get(0) == [], "promise 6: no first delivery before the delay is over"
    lab.pass_ms(200)
    assert lab.get(0) == [id]


def test_who_was_asked_for_others_knows_all_that_were() -> None:
    """R6.2 The other nodes that were asked for a copy of an ALO job get HOLDERS too. Otherwise a
    node whose copy arrives late would know only this node, and would end the job alone.
    """
    lab = Lab(3)
    lab.nodes[0].is_leaving = True
    id = lab.add(0, replicate=2, retry_s=100)
    server = lab.states_of(id).index(QUEUED)
    other = 3 - server
    assert [m.id for a, b, m in lab.log if (a, b) == (0, other) and isinstance(m, Holders)] == [id]


def test_the_offer_of_a_delayed_job_is_answered_each_time() -> None:
    """R8.1 The reply is ENQUEUED, also to a repeated ENQUEUE."""
    lab = Lab(2)
    lab.nodes[0].is_leaving = True
    job, refused = lab.try_add(0, b"q", replicate=1, retry_s=0, delay_s=60)
    assert job is not None, refused
    lab.settle(0)
    lab.carry()  # REPLJOB, GOTJOB
    lab.hold(1, 0)
    lab.pass_ms(200)  # ENQUEUE comes, its answer does not
    lab.cut(0, 1)
    lab.link(0, 1)
    lab.pass_ms(3_000)
    assert lab.holders_of(job.id) == [1]
    assert sent(lab, Left) == [(0, 1)], "it may be passed on"


# ---- acks


def test_the_ack_of_a_job_that_is_served_here_asks_nobody() -> None:
    """A1.7 (cluster) If this node has a copy of an AMO job without custody, it first adds every
    known node, except forgotten ones, to the holder set: custody may have moved to a node that this
    one does not know as a holder (R6.2, F2.3).
    """
    lab = Lab(3)
    id = lab.add(0, replicate=1, retry_s=0)
    assert lab.get(0) == [id]
    assert on_ackjob(lab.nodes[0], id)
    assert lab.holders_of(id) == []
    lab.run()
    assert sent(lab, SetAck) == []


def test_a_holder_that_an_answer_names_is_told_at_once() -> None:
    """A5.2 The holder sets are merged."""
    lab = Lab(3)
    id = lab.add(0, replicate=3, retry_s=100)
    lab.cut(1, 2)
    lab.nodes[0].jobs[id].holders = 1 | 1 << lab.slot(0, 1)  # it has not heard of 2
    assert on_ackjob(lab.nodes[0], id)
    lab.run()
    assert (0, 2) in sent(lab, SetAck)
    assert lab.states_of(id)[2] in (ACKED, -1)


# ---- what clients and readers see


def test_no_more_copies_than_the_default() -> None:
    """K4.3 The default of REPLICATE counts the reachable nodes and this one, unless it leaves."""
    lab = Lab(5)
    assert lab.nodes[0].limits.default_replicate == 3  # R1.1: the smaller of both
    assert len(copies(lab, lab.add(0))) == 3
    lab.isolate(4)
    lab.isolate(3)
    lab.isolate(2)
    assert len(copies(lab, lab.add(0))) == 2


def test_an_end_is_told_where_the_job_is_queued() -> None:
    """E1.5 (cluster) added is written by the origin, acked by the node that got ACKJOB, expired by
    the node where the job is queued or was delivered, else by the origin: one row per job, not one
    per copy."""
    lab = Lab(3)
    for n in lab.nodes:
        n.events = Events(100, 1)
    lab.nodes[0].is_leaving = True  # it passes the job on, and forgets it (R6.2)
    id = lab.add(0, replicate=2, retry_s=100, ttl_s=2)
    server = lab.states_of(id).index(QUEUED)
    lab.pass_ms(3_000)
    told = []
    for i, n in enumerate(lab.nodes):
        assert n.events is not None
        told += [i for kind in Told(n.events.open).kinds if kind == EXPIRED]
    assert told == [server]


@pytest.mark.parametrize("how", ["new there", "known there", "nacked", "settled"])
def test_an_end_is_told_once_where_the_job_went(how: str) -> None:
    """E1.6 (cluster) A node that gave the job to another one (F2), or whose last news is that
    another node has it queued, writes no expired: the other node writes it."""
    lab = Lab(2)
    for n in lab.nodes:
        n.events = Events(1000, 1)
    copies_of = 1 if how == "new there" else 2
    ids = [lab.add(0, replicate=copies_of, retry_s=12, ttl_s=24) for _ in range(8)]
    if how == "settled":
        lab.pass_ms(11_000)  # node 1 has heard long ago that they are queued
        lab.cut(0, 1)
        lab.pass_ms(2_000)
        assert lab.states_of(ids[0]) == [QUEUED, QUEUED]
        lab.heal()
        lab.pass_ms(100)
    elif how == "nacked":
        for _ in ids:
            lab.get(0)
        lab.nodes[1].now_ms = lab.now_ms
        assert all(on_nack(lab.nodes[1], id, -1) for id in ids)
    else:
        lab.pass_ms(13_000)  # the due time after this one is after the end
        for id in ids:
            dequeue(lab.nodes[0], lab.nodes[0].jobs[id])
        send_jobs(lab.nodes[0], lab.slot(0, 1), b"q", [lab.nodes[0].jobs[id] for id in ids])
    lab.run()
    servers = {id: lab.states_of(id).index(QUEUED) for id in ids}
    assert all(sorted(lab.states_of(id)) == [ACTIVE, QUEUED] for id in ids)
    lab.pass_ms(25_000)
    assert ends_of(lab) == sorted(servers.items())


def test_the_origin_tells_the_end_of_a_job_that_is_queued_nowhere() -> None:
    """E1.5 (cluster) added is written by the origin, acked by the node that got ACKJOB, expired by
    the node where the job is queued or was delivered, else by the origin: one row per job, not one
    per copy."""
    lab = Lab(2)
    for n in lab.nodes:
        n.events = Events(1000, 1)
    ids = [lab.add(0, replicate=2, retry_s=12, ttl_s=6) for _ in range(8)]
    for id in ids:
        dequeue(lab.nodes[0], lab.nodes[0].jobs[id])
    send_jobs(lab.nodes[0], lab.slot(0, 1), b"q", [lab.nodes[0].jobs[id] for id in ids])
    lab.run()
    for id in ids:
        assert on_dequeue(lab.nodes[1], id)
    lab.run()
    assert lab.states_of(ids[0]) == [ACTIVE, ACTIVE]
    lab.pass_ms(7_000)
    assert ends_of(lab) == [(id, 0) for id in sorted(ids)]


def ends_of(lab: Lab) -> list[tuple[bytes, int]]:
    """The jobs of which an event `expired` was written, and by which node."""
    told = []
    for i, n in enumerate(lab.nodes):
        assert n.events is not None
        rows = Told(n.events.open)
        told += [
            (id, i) for id, kind in zip(rows.job_ids, rows.kinds, strict=True) if kind == EXPIRED
        ]
    return sorted(told)
