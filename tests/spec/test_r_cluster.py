"""SPEC R with several nodes: copies before the reply, external replication, adds that fail."""

from __future__ import annotations

import itertools

import pytest

from cluster_lab import Lab
from refusals import words_of
from tuque.core.copies.ack import on_ackjob, on_deljob
from tuque.core.copies.replicate import copy_of, on_producer_gone
from tuque.core.dispatch.messages import on_message
from tuque.core.model.job import ACTIVE, IN_TRANSIT, QUEUED, WAIT_REPL
from tuque.core.model.job_id import is_genuine
from tuque.core.model.stats import ADD_FAILED
from tuque.core.msgs import (
    DelJob,
    Enqueue,
    GotJob,
    Holders,
    Release,
    ReplJob,
    SetAck,
)
from tuque.core.node.queue import PAUSE_IN
from tuque.core.queues.requeue import on_enqueue

NOREPL = b"NOREPL Not enough reachable nodes for the requested replication level"
LOST = b"NOREPL Too few nodes are left for the copies: the job is withdrawn"
TIMEOUT = b"NOREPL Timeout reached before replicating to the requested number of nodes"


def sent(lab: Lab, kind: type) -> list[tuple[int, int]]:
    """From where to where messages of that kind went, in order."""
    return [(a, b) for a, b, m in lab.log if isinstance(m, kind)]


def told(lab: Lab, i: int) -> list[bytes]:
    """What the producers at node i were told: ids or errors."""
    return [words_of(added.error) or added.id for added in lab.told[i]]


def test_ids_prove_the_cluster() -> None:
    """G6.5 The last 8 of the 24 characters are a keyed code over the other 16; the key is derived
    from the cluster secret. The code is checked before anything is stored for an unknown id.
    """
    lab = Lab(1)
    ids = [lab.nodes[0].ids.make(3600, 1 + i % 2) for i in range(300)]
    assert len(set(ids)) == 300
    assert all(is_genuine(b"", id) for id in ids)
    assert not any(is_genuine(b"other", id) for id in ids)
    for place in (2, 11, 24, 26, 30, 37):
        forged = bytearray(ids[0])
        forged[place] = ord("7") if forged[place] != ord("7") else ord("8")
        assert not is_genuine(b"", bytes(forged)), place


def test_producer_waits_for_the_copies() -> None:
    """R1.10 (cluster) Otherwise the state is wait-repl. REPLJOB goes to n - 1 randomly chosen
    reachable nodes, which become holders. The producer waits, and its timeout is armed (R5).
    """
    lab = Lab(5)
    job, _ = lab.try_add(0, b"q", replicate=3)
    assert job is not None
    assert job.state == WAIT_REPL
    lab.settle(0)
    assert lab.told[0] == []
    lab.run()
    assert told(lab, 0) == [job.id]
    assert len(sent(lab, ReplJob)) == 2
    assert len(lab.holders_of(job.id)) == 3
    drawn = {tuple(lab.holders_of(lab.add(0, replicate=3))) for _ in range(60)}
    assert len(drawn) == 6  # all pairs out of four


def test_async_does_not_wait() -> None:
    """R1.10 ASYNC sends the same messages and does not wait."""
    lab = Lab(3)
    job, _ = lab.try_add(0, b"q", replicate=3, is_async=1)
    assert job is not None
    assert job.state == QUEUED
    lab.run()
    assert lab.states_of(job.id) == [QUEUED, ACTIVE, ACTIVE]
    assert sent(lab, GotJob) == []
    assert lab.told[0] == []


def test_acked_is_not_copied_again() -> None:
    """R2.2 This node has a tombstone or an acked record for the id: it replies with SETACK and the
    holder set that it knows (none for a tombstone). It stores nothing and does not count as a copy.
    """
    lab = Lab(3)
    id = lab.add(0, replicate=2, retry_s=10)
    holder = next(i for i in (1, 2) if id in lab.nodes[i].jobs)
    late = copy_of(lab.nodes[0], lab.slot(0, holder), lab.nodes[0].jobs[id], 0)
    on_ackjob(lab.nodes[0], id)
    lab.run()
    assert lab.states_of(id) == [-1, -1, -1]
    lab.log.clear()
    peer = lab.nodes[0].peers[lab.slot(0, holder)]
    peer.outbox.append(late)
    peer.is_dirty = True
    lab.nodes[0].dirty_peers.append(peer)
    lab.run()
    assert id not in lab.nodes[holder].jobs
    assert (holder, 0) in sent(lab, SetAck)
    assert sent(lab, GotJob) == []


def test_known_job_joins_holders() -> None:
    """R2.3 The job is known: its holder set becomes the union of both sets. GOTJOB is sent unless
    the sender asked for no reply.
    """
    lab = Lab(3)
    lab.isolate(2)
    id = lab.add(0, replicate=2)
    lab.heal()
    job = lab.nodes[0].jobs[id]
    job.holders |= 1 << lab.slot(0, 2)
    slot = lab.slot(0, 1)
    message = copy_of(lab.nodes[0], slot, job, 0)
    lab.nodes[0].peers[slot].outbox.append(message)
    lab.nodes[0].peers[slot].is_dirty = True
    lab.nodes[0].dirty_peers.append(lab.nodes[0].peers[slot])
    lab.log.clear()
    lab.run()
    assert lab.nodes[1].jobs[id].holders == 1 | 1 << lab.slot(1, 0) | 1 << lab.slot(1, 2)
    assert sent(lab, GotJob) == [(1, 0)]


@pytest.mark.parametrize("why", ["memory", "leaving", "loading", "paused"])
def test_who_takes_no_copy(why: str) -> None:
    """R2.4 Memory is at level 1 or above, this node leaves or loads, or the input of the queue is
    paused: the job is dropped without GOTJOB.
    """
    lab = Lab(2)
    other = lab.nodes[1]
    if why == "memory":
        other.limits.memory_bytes = 1
        other.base_bytes = 1
    elif why == "leaving":
        other.is_leaving = True
    elif why == "loading":
        other.is_loading = True
    else:
        from tuque.core.queues.deliver import set_pause

        set_pause(other, b"q", PAUSE_IN)
    job, _ = lab.try_add(0, b"q", replicate=2, timeout_ms=1000)
    lab.run()
    assert job is not None
    assert id not in other.jobs if (id := job.id) else False
    assert sent(lab, GotJob) == []
    assert lab.told[0] == []


def test_a_copy_is_active_and_waits_longer() -> None:
    """R2.5 The due time of an ALO job is now + the remaining delay + retry + J. An AMO copy has no
    custody and due time 0.
    """
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=10, delay_s=5)
    copy = lab.nodes[1].jobs[id]
    assert copy.state == ACTIVE
    assert 15_000 <= copy.qtime_ms - lab.now_ms < 15_500
    lab.nodes[0].is_leaving = True
    lab.hold(1, 0)  # its answer does not come, so that no custody is passed
    amo, _ = lab.try_add(0, b"q", replicate=1, retry_s=0)
    lab.run()
    assert amo is not None
    copy = lab.nodes[1].jobs[amo.id]
    assert copy.qtime_ms == 0
    assert copy.flags & IN_TRANSIT
    assert lab.get(1) == []


def test_late_answer_makes_a_holder() -> None:
    """R3.1 The sender joins the holders in its current incarnation."""
    lab = Lab(4)
    lab.hold(1, 0)
    lab.hold(2, 0)
    id = lab.add(0, replicate=2)
    lab.pass_ms(200)
    lab.release(1, 0)
    lab.release(2, 0)
    lab.run()
    holders = {0, *(i for i in (1, 2, 3) if lab.nodes[0].jobs[id].holders >> lab.slot(0, i) & 1)}
    assert holders >= set(lab.holders_of(id))


def test_failed_add_is_undone_everywhere() -> None:
    """R3.2 If the ADDJOB of the job failed within the last 10 minutes, the reply is DELJOB, so that
    the copy does not survive.

    R5.2 DELJOB goes to every holder; an unlinked holder gets it when it is linked again. The record
    is unregistered with cause add-failed.
    """
    lab = Lab(2)
    lab.hold(1, 0)
    job, _ = lab.try_add(0, b"q", replicate=2, timeout_ms=300)
    assert job is not None
    lab.run()
    assert job.id in lab.nodes[1].jobs
    lab.pass_ms(299)
    assert lab.told[0] == []
    lab.pass_ms(1)
    assert told(lab, 0) == [TIMEOUT]
    lab.release(1, 0)
    lab.run()
    assert lab.holders_of(job.id) == []
    assert lab.nodes[0].ledger.add_failed == 1
    lab.hold(1, 0)
    job, _ = lab.try_add(0, b"q", replicate=2, timeout_ms=300)
    assert job is not None
    lab.run()
    lab.cut(0, 1)
    lab.run()
    assert told(lab, 0)[1:] == [LOST]  # R5.3
    assert job.id in lab.nodes[1].jobs
    lab.heal()
    lab.run()
    assert lab.holders_of(job.id) == []


def test_enough_copies() -> None:
    """R3.4 The sender joins the confirmed set. When that set has n members, the state becomes
    active, R1.9 sets the due time or enqueues the job, the producer gets its id, and the confirmed
    set is emptied.

    R3.3 The job is not in wait-repl: nothing more.
    """
    lab = Lab(3)
    lab.hold(2, 0)
    job, _ = lab.try_add(0, b"q", replicate=3)
    assert job is not None
    lab.run()
    assert job.state == WAIT_REPL
    lab.release(2, 0)
    lab.run()
    assert job.state == QUEUED
    assert told(lab, 0) == [job.id]
    assert job.confirmed == 0
    lab.pass_ms(10_000)
    assert told(lab, 0) == [job.id]


def test_surplus_is_released() -> None:
    """R3.4 Holders that did not confirm get RELEASE: such a holder drops its copy of an ALO job
    that was not delivered if n others have one, and sends LEFT to them.
    """
    lab = Lab(4)
    for i in (1, 2, 3):
        lab.hold(i, 0)
    job, _ = lab.try_add(0, b"q", replicate=2)
    assert job is not None
    lab.run()
    lab.pass_ms(49)
    assert len(lab.holders_of(job.id)) == 2
    lab.pass_ms(1)
    assert len(lab.holders_of(job.id)) == 3
    first = lab.log[[isinstance(m, ReplJob) for _, _, m in lab.log].index(True)][1]
    lab.release(first, 0)
    lab.run()
    assert told(lab, 0) == [job.id]
    for i in (1, 2, 3):
        lab.release(i, 0)
    lab.run()
    assert sorted(lab.holders_of(job.id)) == sorted([0, first])
    assert len(sent(lab, Release)) >= 1
    assert lab.nodes[0].jobs[job.id].holders == 1 | 1 << lab.slot(0, first)


def test_one_more_node_every_50_ms() -> None:
    """R4.1 One more reachable node becomes a holder, while there are fewer than 2n holders.

    R4.2 REPLJOB goes to it. HOLDERS with the new set goes to the nodes that confirmed; they merge
    it into theirs.
    """
    lab = Lab(6)
    for i in range(1, 6):
        lab.hold(i, 0)
    job, _ = lab.try_add(0, b"q", replicate=2, timeout_ms=0)
    assert job is not None
    counts = []
    for _ in range(6):
        lab.run()
        counts.append(len(lab.holders_of(job.id)))
        lab.pass_ms(50)
    assert counts == [2, 3, 4, 4, 4, 4]
    lab = Lab(6)
    for i in range(1, 6):
        lab.hold(i, 0)
    job, _ = lab.try_add(0, b"q", replicate=3, timeout_ms=0)
    assert job is not None
    lab.run()
    one = next(i for i in range(1, 6) if job.id in lab.nodes[i].jobs)
    lab.release(one, 0)
    lab.pass_ms(50)
    assert (0, one) in sent(lab, Holders)
    copy = lab.nodes[one].jobs[job.id]
    assert copy.holders.bit_count() == job.holders.bit_count() == 4


def test_resend_backs_off() -> None:
    """R4.3 REPLJOB is repeated to a holder that did not reply after 50, 100, 200 ms and so on, at
    most every 2 s, and only while the send buffer of the link has room.
    """
    lab = Lab(2)
    lab.hold(1, 0)
    lab.try_add(0, b"q", replicate=2, timeout_ms=0)
    lab.run()
    times: list[int] = []
    for _ in range(240):  # 12 s
        times += [lab.now_ms] * (len(sent(lab, ReplJob)) - len(times))
        lab.pass_ms(50)
    gaps = [later - then for then, later in itertools.pairwise(times)]
    assert gaps == [50, 100, 200, 400, 800, 1600, 2000, 2000, 2000, 2000]
    count = len(times)
    lab.nodes[0].peers[lab.slot(0, 1)].has_room = False
    lab.pass_ms(10_000)
    assert len(sent(lab, ReplJob)) == count


def test_unreachable_copies_fail_at_once() -> None:
    """R5.3 If so few nodes are expected (K4.4) that n copies are impossible, the producer gets
    `-NOREPL Too few nodes are left for the copies: the job is withdrawn` without further waiting.
    So an ADDJOB with timeout 0 ends too.
    """
    lab = Lab(3)
    lab.hold(1, 0)
    job, _ = lab.try_add(0, b"q", replicate=3, timeout_ms=0)
    assert job is not None
    lab.pass_ms(1000)
    assert lab.told[0] == []
    lab.cut(0, 1)
    lab.run()
    assert told(lab, 0) == [LOST]
    assert lab.holders_of(job.id) in ([], [1])


def test_external_replication() -> None:
    """R6.1 This node sends REPLJOB to n other nodes and does not become a holder.

    R6.2 ENQUEUE is repeated until ENQUEUED replies to it. Then the record here is unregistered
    with cause moved.
    """
    for retry_s in (10, 0):
        lab = Lab(3)
        lab.nodes[0].is_leaving = True
        id = lab.add(0, replicate=1 if retry_s == 0 else 2, retry_s=retry_s)
        assert told(lab, 0) == [id]
        assert lab.states_of(id)[0] == -1
        assert QUEUED in lab.states_of(id)
        assert lab.nodes[0].ledger.moved == 1
        server = lab.states_of(id).index(QUEUED)
        assert lab.get(server) == [id]
        assert lab.get(server) == []


def test_enqueue_is_repeated_until_answered() -> None:
    """R8.1 The reply is ENQUEUED, also to a repeated ENQUEUE.

    R8.2 For an AMO job the message transfers custody: this node may deliver the job, and records
    that in its journal before it replies.
    """
    lab = Lab(2)
    lab.nodes[0].is_leaving = True
    job, _ = lab.try_add(0, b"q", replicate=1, retry_s=0)
    assert job is not None
    lab.settle(0)
    lab.carry()  # REPLJOB, GOTJOB
    lab.hold(1, 0)
    lab.pass_ms(500)
    assert lab.get(1) == [job.id]
    assert len(sent(lab, Enqueue)) > 1
    assert lab.get(1) == []
    lab.release(1, 0)
    lab.pass_ms(2000)
    assert lab.holders_of(job.id) == [1]
    assert lab.get(1) == []


@pytest.mark.parametrize("retry_s", [0, 5])
def test_an_offer_to_a_node_that_lost_the_job_ends(retry_s: int) -> None:
    """R8.4 If the job is unknown and has no tombstone, the reply is LEFT, unless the journal is
    still loading. The sender then chooses another node for an ALO job (R6.2).
    """
    lab = Lab(3)
    lab.nodes[0].is_leaving = True
    job, _ = lab.try_add(0, b"q", replicate=1 if retry_s == 0 else 2, retry_s=retry_s)
    assert job is not None
    lab.settle(0)
    lab.carry()  # REPLJOB
    for other in (1, 2):
        lab.hold(0, other)
    lab.carry()  # GOTJOB; ENQUEUE waits
    server = next(i for i in (1, 2) if lab.slot(0, i) == lab.nodes[0].adding[job.id].server_slot)
    on_deljob(lab.nodes[server], job.id)  # it was evicted, or an old disk came back
    for other in (1, 2):
        lab.release(0, other)
    lab.pass_ms(3_000)
    assert job.id not in lab.nodes[0].adding
    assert lab.nodes[0].ledger.moved == 1
    served = [id for i in (1, 2) for id in lab.get(i)]
    assert served == ([] if retry_s == 0 else [job.id])


def test_delay_is_passed_on() -> None:
    """R8.1 with delay 0 it is enqueued silently (G3), otherwise its due time is now + delay."""
    lab = Lab(2)
    lab.nodes[0].is_leaving = True
    id = lab.add(0, replicate=1, retry_s=0, delay_s=3)
    lab.pass_ms(2_900)
    assert lab.get(1) == []
    lab.pass_ms(120)
    assert lab.get(1) == [id]


@pytest.mark.parametrize("delay_ms", [0, 3_000])
def test_a_late_enqueue_does_not_queue_a_job_twice(delay_ms: int) -> None:
    """R8.1 Nothing changes for an ALO job that another holder has queued or handed out: ENQUEUE
    came late, and the due time stays.
    """
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=20, delay_s=5)
    assert on_enqueue(lab.nodes[1], id)
    lab.run()
    assert lab.states_of(id) == [ACTIVE, QUEUED]
    due_ms = lab.nodes[0].jobs[id].qtime_ms
    for state in (QUEUED, ACTIVE):
        on_message(lab.nodes[0], lab.slot(0, 1), Enqueue(id, delay_ms))
        lab.run()
        assert lab.states_of(id) == [ACTIVE, state]
        if state == QUEUED:
            assert lab.nodes[0].jobs[id].qtime_ms == due_ms
            assert lab.get(1) == [id]


def test_paused_queue_does_not_refuse_custody() -> None:
    """R8.3 A paused input does not refuse the job. The job waits as active, and its due time is
    postponed by retry (ALO) or 1 s (AMO).
    """
    from tuque.core.queues.deliver import set_pause

    lab = Lab(2)
    lab.nodes[0].is_leaving = True
    lab.hold(0, 1)
    job, _ = lab.try_add(0, b"q", replicate=1, retry_s=0)
    assert job is not None
    lab.settle(0)
    lab.release(0, 1)
    lab.carry()
    set_pause(lab.nodes[1], b"q", PAUSE_IN)
    lab.run()
    assert lab.states_of(job.id) == [-1, ACTIVE]
    set_pause(lab.nodes[1], b"q", 0)
    lab.pass_ms(1_100)
    assert lab.get(1) == [job.id]


def test_producer_that_goes_away() -> None:
    """R7.1 A client disconnects while its ADDJOB waits: as R5.2."""
    lab = Lab(2)
    lab.hold(1, 0)
    job, _ = lab.try_add(0, b"q", replicate=2, client=9)
    assert job is not None
    lab.run()
    on_producer_gone(lab.nodes[0], 9)
    lab.run()
    assert lab.holders_of(job.id) == []
    assert lab.told[0] == []
    assert (0, 1) in sent(lab, DelJob)
    assert lab.nodes[0].ledger.add_failed == 1
    assert ADD_FAILED == 9


def test_a_producer_that_has_its_id_may_go_away() -> None:
    """R6.2 When n nodes have confirmed (with ASYNC: one), the producer gets its id."""
    lab = Lab(2)
    lab.nodes[0].is_leaving = True
    job, _ = lab.try_add(0, b"q", replicate=1, retry_s=10, client=9)
    assert job is not None
    lab.settle(0)
    lab.carry()  # REPLJOB, GOTJOB
    lab.hold(0, 1)
    lab.run()
    assert [one.client for one in lab.told[0]] == [9]
    on_producer_gone(lab.nodes[0], 9)
    lab.release(0, 1)
    lab.run()
    assert lab.states_of(job.id) == [-1, QUEUED]
    assert len(lab.told[0]) == 1


def test_removed_while_waiting() -> None:
    """G2.4 (cluster) A producer that waits for the job gets `-NOREPL job removed (expired?) before
    the requested replication level was achieved`.
    """
    lab = Lab(2)
    lab.hold(1, 0)
    lab.try_add(0, b"q", replicate=2, ttl_s=1, timeout_ms=0)
    lab.pass_ms(1_100)
    assert told(lab, 0) == [
        b"NOREPL job removed (expired?) before the requested replication level was achieved"
    ]
