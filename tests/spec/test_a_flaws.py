"""The flaws of the published protocol about acks: each one played out, and the job stays done.

The numbers are those of the column "Source" in SPEC.md, section D.
"""

from __future__ import annotations

import pytest
from test_a_cluster import ack, say, sent, spread
from test_a_stray import stray_ack

from cluster_lab import Lab
from tuque.core.copies.ack import on_fastack
from tuque.core.copies.ack_gc import on_loaded, on_unknown_ack
from tuque.core.copies.replicate import copy_of, send_copies
from tuque.core.dispatch.restore import after_load
from tuque.core.model.job import ACKED, ACTIVE, BODYLESS, WAIT_REPL
from tuque.core.msgs import (
    DelJob,
    GotAck,
    GotJob,
    SetAck,
)
from tuque.core.node.tables import enter_job, leave_job


def is_done(lab: Lab, id: bytes, span_ms: int = 30_000) -> bool:
    """Whether nobody hands the job out or keeps it, however long one waits."""
    lab.heal()
    lab.pass_ms(span_ms)
    seen = any(id in lab.get(i) for i in range(len(lab.nodes)))
    return not seen and lab.holders_of(id) == []


def restart(lab: Lab, i: int) -> None:
    """A node starts anew from its journal, with the links that it had."""
    others = [b for a, b in sorted(lab.linked) if a == i]
    lab.die(i)
    for b in others:
        lab.link(min(i, b), max(i, b))
    lab.run()


def moved(lab: Lab, count: int) -> bytes:
    """A job with copies on nodes 0..count-1 that was fetched at the last node."""
    last = len(lab.nodes) - 1
    id = spread(lab, count, retry_s=2)
    lab.wait(last, client=9)
    assert [job.id for job in lab.served[last][9]] == [id]
    return id


def test_f1_an_importer_is_a_holder() -> None:
    """A2.1 Sets are compared, never their sizes."""
    # Flaw-F1: a job is added at one node and fetched and acked at another; no fault at all.
    lab = Lab(2)
    id = moved(lab, 1)
    assert ack(lab, 1, id)
    assert (1, 0) in sent(lab, SetAck)
    assert is_done(lab, id)


def test_f1_every_holder_is_asked() -> None:
    """A2.1 If every holder is confirmed, forgotten nodes aside, the job is unregistered with cause
    gc-acked.
    """
    # Flaw-F1: copies on 0 and 1, fetched at 2, which acks while 1 is away.
    lab = Lab(3)
    id = moved(lab, 2)
    lab.isolate(1)
    assert ack(lab, 2, id)
    assert lab.states_of(id) == [ACKED, ACTIVE, ACKED]
    assert is_done(lab, id)
    lab = Lab(3)
    id = moved(lab, 2)
    lab.isolate(1)
    lab.pass_ms(1_000)
    assert ack(lab, 2, id)
    lab.die(2)  # the one that was told by the worker is gone with its memory
    lab.link(0, 1)
    lab.run()
    assert lab.states_of(id)[:2] in ([-1, -1], [ACKED, ACKED])
    lab.pass_ms(10_000)
    assert lab.get(0) == []
    assert lab.get(1) == []


@pytest.mark.parametrize("who", [[0, 1], [1, 0], [0], [1]])
def test_f4_an_ack_outlives_restarts(who: list[int]) -> None:
    """A1.3 (cluster) While other holders must still learn of the ack, the record names them, and a
    reload resumes A2.
    """
    # Flaw-F4: all that know of the ack start anew from their journals, then the third comes back.
    lab = Lab(3, has_journal=True)
    id = spread(lab, 3, retry_s=1)
    lab.isolate(2)
    assert ack(lab, 0, id)
    for i in who:
        restart(lab, i)
    assert lab.states_of(id)[:2] == [ACKED, ACKED]
    restart(lab, 2)
    assert is_done(lab, id)


def test_f4_a_memory_that_was_lost_leaves_another() -> None:
    """A2.3 (cluster) Otherwise SETACK with the holder set goes to each holder that is not
    confirmed."""
    # Flaw-F4 without journals: the acking node dies, the other one that knows goes on collecting.
    lab = Lab(3)
    id = spread(lab, 3, retry_s=1)
    lab.isolate(2)
    assert ack(lab, 0, id)
    lab.die(0)
    lab.link(1, 2)
    lab.run()
    lab.pass_ms(5_000)
    assert lab.states_of(id) == [-1, ACKED, ACKED] or lab.holders_of(id) == []
    assert lab.get(2) == []
    lab.revive(0)
    assert is_done(lab, id)


def test_f5_not_known_is_not_never() -> None:
    """A4.1 Unknown: a tombstone is made first, then GOTACK(unknown) is sent."""
    # Flaw-F5: 0 sends a copy to 2 on a slow link; the ack of 1 overtakes it.
    lab = Lab(3)
    id = spread(lab, 2, retry_s=1)
    lab.hold(0, 2)
    n = lab.nodes[0]
    send_copies(n, n.jobs[id], [lab.slot(0, 2)], 0)
    lab.nodes[1].jobs[id].holders |= 1 << lab.slot(1, 2)  # HOLDERS told it so (R4.2)
    lab.run()
    assert ack(lab, 1, id)
    assert (2, 1) in sent(lab, GotAck)
    assert lab.nodes[2].tombs.has(id)
    lab.release(0, 2)
    lab.run()
    assert id not in lab.nodes[2].jobs
    assert is_done(lab, id)


def test_f5_heartbeats_do_not_open_the_door() -> None:
    """A4.1 The tombstone stays until DELJOB"""
    # Flaw-F5, later: heartbeats pass, a cut node still has the job and makes a copy on 2.
    lab = Lab(3)
    id = spread(lab, 2, retry_s=2)
    lab.cut(0, 1)
    lab.nodes[1].jobs[id].holders |= 1 << lab.slot(1, 2)
    assert ack(lab, 1, id)
    for _ in range(5):
        lab.beat()
    n = lab.nodes[0]
    send_copies(n, n.jobs[id], [lab.slot(0, 2)], 0)
    lab.run()
    assert id not in lab.nodes[2].jobs
    assert lab.states_of(id)[0] in (ACKED, -1)  # and so 0 has heard of it
    assert is_done(lab, id)


def test_f6_sets_not_sizes() -> None:
    """A4.4 If this node knows holders that the sender did not name, it collects too (A2)."""
    # Flaw-F6: 0 believes {0, 1, 2}, 1 believes {0, 1, 3}: as many, and not the same.
    lab = Lab(4)
    id = spread(lab, 4, retry_s=1)
    lab.nodes[0].jobs[id].holders &= ~(1 << lab.slot(0, 3))
    lab.nodes[1].jobs[id].holders &= ~(1 << lab.slot(1, 2))
    lab.isolate(3)
    lab.log.clear()
    assert ack(lab, 0, id)
    for i in (0, 1):
        job = lab.nodes[i].jobs[id]
        assert job.state == ACKED
        assert job.holders >> lab.slot(i, 3) & 1
    assert is_done(lab, id)


def test_f6_deljob_does_not_destroy_what_is_known() -> None:
    """A10.1 DELJOB also goes to holders that the sender did not name, and to nodes that have
    confirmed the ack to this one.
    """
    # Flaw-F6: FASTACK at 0, which does not know that 1 gave a copy to 2.
    lab = Lab(3)
    id = spread(lab, 2, retry_s=1)
    lab.cut(0, 1)
    n = lab.nodes[1]
    send_copies(n, n.jobs[id], [lab.slot(1, 2)], 0)
    lab.run()
    lab.isolate(2)
    assert on_fastack(lab.nodes[0], id)
    lab.link(0, 1)
    lab.run()
    assert lab.states_of(id) == [-1, -1, ACTIVE]
    assert is_done(lab, id)


def test_f9_a_leaving_node_passes_acks_on() -> None:
    """A3.4 A leaving node makes the record, and is not safe to stop before the record has ended
    (K7.3): a node that it informed may die before it has recorded the ack.
    """
    lab = Lab(3)
    id = spread(lab, 2, retry_s=1)
    assert lab.get(0) == [id]
    lab.nodes[2].is_leaving = True
    on_unknown_ack(lab.nodes[2], 1, id)
    assert lab.nodes[2].strays
    lab.run()
    assert lab.nodes[2].strays == {}
    assert is_done(lab, id)


def test_f9_a_node_short_of_memory_passes_acks_on() -> None:
    """A3.4 At memory level 2 the node only forwards the SETACK and makes no record;"""
    lab = Lab(3)
    id = spread(lab, 2, retry_s=1)
    assert lab.get(0) == [id]
    n = lab.nodes[2]
    n.limits.memory_bytes = 1
    n.base_bytes = 1_000
    on_unknown_ack(n, 1, id)
    assert n.strays == {}
    lab.run()
    assert is_done(lab, id)


def test_f10_forged_ids_cost_nothing() -> None:
    """A3.4 (cluster) An unknown id whose TTL field says ALO and whose keyed code is right: the node
    makes a record without a body in state acked, at most 1000 at a time for one client.
    """
    lab = Lab(3)
    n = lab.nodes[0]
    lab.isolate(2)
    genuine = n.ids.make(3600, 1)
    for i in range(2_000):
        on_unknown_ack(n, 1, b"%s%08d%s" % (genuine[:27], i, genuine[35:]))
        on_unknown_ack(n, 1, b"D-%08d-%024d-05a1" % (i, i))
    lab.run()
    assert not n.jobs
    assert lab.log == [] or sent(lab, SetAck) == []
    assert n.used_bytes() == 0


def test_f10_the_ack_of_a_long_job_does_not_end_before_it() -> None:
    """A3.4 It ends at the latest 2 minutes after the time that the TTL field gives."""
    lab = Lab(3)
    id = spread(lab, 2, ttl_s=90, retry_s=30)
    lab.isolate(2)
    stray_ack(lab, 2, id)
    lab.pass_ms(88_000)
    assert lab.nodes[2].jobs[id].flags & BODYLESS
    assert is_done(lab, id, 1_000)


def test_f11_a_forgotten_node_is_not_waited_for() -> None:
    """K6.2 The node leaves the holders and confirmed sets of every job."""
    lab = Lab(3)
    before, after = spread(lab, 3), spread(lab, 3)
    lab.isolate(2)
    assert ack(lab, 0, before)
    assert lab.holders_of(before) == [0, 1, 2]
    for i in (0, 1):
        lab.forget(i, 2)
    lab.pass_ms(1_000)
    assert ack(lab, 1, after)
    assert lab.holders_of(before) == [2]
    assert lab.holders_of(after) == [2]
    assert not lab.nodes[0].acked


def test_f11_while_it_is_forgotten() -> None:
    """A2.1 If every holder is confirmed, forgotten nodes aside, the job is unregistered with cause
    gc-acked.
    """
    # Sets that arrive late still name the node.
    lab = Lab(3)
    id = spread(lab, 3)
    lab.isolate(2)
    lab.forget(0, 2)
    assert ack(lab, 1, id)
    lab.pass_ms(1_000)
    assert id not in lab.nodes[0].jobs or lab.nodes[0].jobs[id].holders >> lab.slot(0, 2) & 1 == 0
    lab.forget(1, 2)
    lab.pass_ms(300_000)
    assert lab.holders_of(id) == [2]


def test_f17_a_loading_node_vouches_for_nothing() -> None:
    """A4.1 A node that still loads its journal does not reply."""
    lab = Lab(2)
    id = spread(lab, 2, retry_s=1)
    other = lab.nodes[1]
    copy = other.jobs[id]
    leave_job(other, copy)  # it has not been read yet
    other.job_bytes, held = 0, other.job_bytes
    other.wheel.cancel(copy)
    other.ledger.replicated -= 1
    other.is_loading = True
    assert ack(lab, 0, id)
    assert (0, 1) in sent(lab, SetAck)
    assert sent(lab, GotAck) == []
    assert not other.tombs.has(id)
    assert lab.states_of(id) == [ACKED, -1]
    enter_job(other, copy)
    other.job_bytes = held
    other.wheel.arm(copy, lab.now_ms)
    other.ledger.replicated += 1
    other.is_loading = False
    on_loaded(other)
    assert is_done(lab, id)


def test_f17_deljob_while_loading() -> None:
    """A10.1 A node that is loading keeps the id and applies it at the end."""
    lab = Lab(3)
    id, other = spread(lab, 3), spread(lab, 3)
    n = lab.nodes[1]
    n.is_loading = True
    unread = n.ids.make(60, 1)
    assert on_fastack(lab.nodes[0], id)
    say(lab, 0, 1, DelJob(unread, 0, 60_000))
    assert id in n.jobs
    assert not n.tombs.has(unread)
    n.is_loading = False
    after_load(n)
    lab.run()
    assert list(n.jobs) == [other]
    assert n.tombs.has(id)
    assert n.tombs.has(unread)
    assert n.late_deletes == {}


def test_the_ack_and_its_copies_cross() -> None:
    """A5.2 The holder sets are merged."""
    # The job is acked at its origin while the producer waits; copies answer later, in any order.
    for released in ([1, 2, 3], [3, 2, 1], [2, 1, 3]):
        lab = Lab(4)
        for i in (1, 2, 3):
            lab.hold(i, 0)
            lab.hold(0, i)
        job, _ = lab.try_add(0, b"q", replicate=3, retry_s=1)
        assert job is not None
        lab.pass_ms(120)
        assert job.state == WAIT_REPL
        assert ack(lab, 0, job.id)
        for i in released:
            lab.release(0, i)
            lab.run()
            lab.release(i, 0)
            lab.run()
        assert is_done(lab, job.id)


def test_a_copy_that_answers_late_is_told() -> None:
    """A5.2 The holder sets are merged."""
    # GOTJOB of a node that the acked record does not name: it has a copy, and must hear.
    lab = Lab(4)
    id = spread(lab, 3, retry_s=1)
    lab.isolate(2)
    assert ack(lab, 0, id)
    lab.cut(0, 3)
    late = copy_of(lab.nodes[1], lab.slot(1, 3), lab.nodes[2].jobs[id], 0)
    say(lab, 1, 3, late)
    lab.link(0, 3)
    say(lab, 3, 0, GotJob([id]))
    assert lab.states_of(id)[3] in (ACKED, -1)
    assert is_done(lab, id)


def test_f6_what_the_sender_knew_is_kept() -> None:
    """A4.2 Known: the holder sets are merged."""
    # The acking node alone knows of the copy at 2, and dies.
    lab = Lab(3)
    id = spread(lab, 2, retry_s=1)
    lab.cut(0, 1)
    n = lab.nodes[0]
    send_copies(n, n.jobs[id], [lab.slot(0, 2)], 0)
    lab.run()
    lab.isolate(2)
    lab.link(0, 1)
    assert ack(lab, 0, id)
    lab.die(0)
    lab.link(1, 2)
    lab.run()
    assert lab.states_of(id)[1:] in ([-1, -1], [ACKED, ACKED])
    lab.revive(0)
    assert is_done(lab, id)


def test_f11_at_the_moment_of_forgetting() -> None:
    """A2.1 If every holder is confirmed, forgotten nodes aside, the job is unregistered with cause
    gc-acked.
    """
    # The walk that takes the node out of all sets has not come to this job yet.
    lab = Lab(2)
    id = spread(lab, 2)
    lab.isolate(1)
    lab.nodes[0].forgotten |= 1 << lab.slot(0, 1)
    assert ack(lab, 0, id)
    assert id not in lab.nodes[0].jobs
    assert lab.nodes[0].tombs.count() == 0


def test_f6_a_node_that_started_anew_is_asked() -> None:
    """A5.2 The holder sets are merged."""
    # 0 has the copy of the new life of 2; 1 has not met that life yet. The ack is said at 1.
    lab = Lab(3)
    lab.die(2)
    lab.link(0, 2)
    lab.run()
    job, _ = lab.try_add(0, b"q", replicate=3, retry_s=1)
    assert job is not None
    lab.run()
    assert len(lab.holders_of(job.id)) == 3
    lab.cut(0, 2)
    assert ack(lab, 1, job.id)
    assert lab.states_of(job.id)[1] == ACKED
    assert is_done(lab, job.id)
