"""The flaws of the published protocol about acks: each one played out, and the job stays done.

The numbers are those of docs/from-disque.md, F.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_a_cluster import ack, say, sent, spread
from test_a_stray import stray_ack

from tuque.core.copies.ack import on_fastack
from tuque.core.copies.ack_gc import on_loaded, on_unknown_ack
from tuque.core.copies.replicate import copy_of, send_copies
from tuque.core.dispatch.restore import after_load
from tuque.core.model.job import ACKED, ACTIVE, BODYLESS, WAIT_REPL
from tuque.core.msgs.bus import (
    DelJob,
    GotAck,
    GotJob,
    SetAck,
)
from tuque.core.node.tables import enter_job, leave_job
from world import World

Make = Callable[..., World]


def is_done(world: World, id: bytes, span_ms: int = 30_000) -> bool:
    """Whether nobody hands the job out or keeps it, however long one waits."""
    world.link()
    world.pass_ms(span_ms)
    seen = any(id in world.at(i).get() for i in world.numbers())
    return not seen and world.holders(id) == []


def restart(world: World, i: int) -> None:
    """A node starts anew from its journal, with the links that it had."""
    others = [b for b in world.numbers() if b != i and world.linked(i, b)]
    world.restart(i)
    for b in others:
        world.link(i, b)
    world.settle()


def moved(world: World, count: int) -> bytes:
    """A job with copies on nodes 0..count-1 that was fetched at the last node."""
    last = len(world.nodes) - 1
    id = spread(world, count, retry=2)
    world.at(last, 9).wait()
    assert world.at(last, 9).served() == [id]
    return id


def test_f1_an_importer_is_a_holder(make_world: Make) -> None:
    """A2.1 Sets are compared, never their sizes."""
    # Flaw-F1: a job is added at one node and fetched and acked at another; no fault at all.
    world = make_world(2, journal="off")
    id = moved(world, 1)
    assert ack(world, 1, id)
    assert (1, 0) in sent(world, SetAck)
    assert is_done(world, id)


def test_f1_every_holder_is_asked(make_world: Make) -> None:
    """A2.1 If every holder is confirmed, forgotten nodes aside, the job is unregistered with cause
    gc-acked.
    """
    # Flaw-F1: copies on 0 and 1, fetched at 2, which acks while 1 is away.
    world = make_world(3, journal="off")
    id = moved(world, 2)
    world.isolate(1)
    assert ack(world, 2, id)
    assert world.states(id) == [ACKED, ACTIVE, ACKED]
    assert is_done(world, id)
    world = make_world(3, journal="off")
    id = moved(world, 2)
    world.isolate(1)
    world.pass_ms(1_000)
    assert ack(world, 2, id)
    world.restart(2)  # the one that was told by the worker is gone with its memory
    world.link(0, 1)
    assert world.states(id)[:2] in ([-1, -1], [ACKED, ACKED])
    world.pass_ms(10_000)
    assert world.at(0).get() == []
    assert world.at(1).get() == []


@pytest.mark.parametrize("who", [[0, 1], [1, 0], [0], [1]])
def test_f4_an_ack_outlives_restarts(make_world: Make, who: list[int]) -> None:
    """A1.3 (cluster) While other holders must still learn of the ack, the record names them, and a
    reload resumes A2.
    """
    # Flaw-F4: all that know of the ack start anew from their journals, then the third comes back.
    world = make_world(3, journal="always")
    id = spread(world, 3, retry=1)
    world.isolate(2)
    assert ack(world, 0, id)
    for i in who:
        restart(world, i)
    assert world.states(id)[:2] == [ACKED, ACKED]
    restart(world, 2)
    assert is_done(world, id)


def test_f4_a_memory_that_was_lost_leaves_another(make_world: Make) -> None:
    """A2.3 (cluster) Otherwise SETACK with the holder set goes to each holder that is not
    confirmed."""
    # Flaw-F4 without journals: the acking node dies, the other one that knows goes on collecting.
    world = make_world(3, journal="off")
    id = spread(world, 3, retry=1)
    world.isolate(2)
    assert ack(world, 0, id)
    world.restart(0)
    world.link(1, 2)
    world.pass_ms(5_000)
    assert world.states(id) == [-1, ACKED, ACKED] or world.holders(id) == []
    assert world.at(2).get() == []
    world.link()
    assert is_done(world, id)


def test_f5_not_known_is_not_never(make_world: Make) -> None:
    """A4.1 Unknown: a tombstone is made first, then GOTACK(unknown) is sent."""
    # Flaw-F5: 0 sends a copy to 2 on a slow link; the ack of 1 overtakes it.
    world = make_world(3, journal="off")
    id = spread(world, 2, retry=1)
    world.hold(0, 2)
    n = world.node(0).core
    send_copies(n, n.jobs[id], [world.slot(0, 2)], 0)
    world.node(1).core.jobs[id].holders |= 1 << world.slot(1, 2)  # HOLDERS told it so (R4.2)
    world.settle()
    assert ack(world, 1, id)
    assert (2, 1) in sent(world, GotAck)
    assert world.node(2).core.tombs.has(id)
    world.release(0, 2)
    assert id not in world.node(2).core.jobs
    assert is_done(world, id)


def test_f5_heartbeats_do_not_open_the_door(make_world: Make) -> None:
    """A4.1 The tombstone stays until DELJOB"""
    # Flaw-F5, later: heartbeats pass, a cut node still has the job and makes a copy on 2.
    world = make_world(3, journal="off")
    id = spread(world, 2, retry=2)
    world.cut(0, 1)
    world.node(1).core.jobs[id].holders |= 1 << world.slot(1, 2)
    assert ack(world, 1, id)
    for _ in range(5):
        world.beat()
    n = world.node(0).core
    send_copies(n, n.jobs[id], [world.slot(0, 2)], 0)
    world.settle()
    assert id not in world.node(2).core.jobs
    assert world.states(id)[0] in (ACKED, -1)  # and so 0 has heard of it
    assert is_done(world, id)


def test_f6_sets_not_sizes(make_world: Make) -> None:
    """A4.4 If this node knows holders that the sender did not name, it collects too (A2)."""
    # Flaw-F6: 0 believes {0, 1, 2}, 1 believes {0, 1, 3}: as many, and not the same.
    world = make_world(4, journal="off")
    id = spread(world, 4, retry=1)
    world.node(0).core.jobs[id].holders &= ~(1 << world.slot(0, 3))
    world.node(1).core.jobs[id].holders &= ~(1 << world.slot(1, 2))
    world.isolate(3)
    world.forget_heard()
    assert ack(world, 0, id)
    for i in (0, 1):
        job = world.node(i).core.jobs[id]
        assert job.state == ACKED
        assert job.holders >> world.slot(i, 3) & 1
    assert is_done(world, id)


def test_f6_deljob_does_not_destroy_what_is_known(make_world: Make) -> None:
    """A10.1 DELJOB also goes to holders that the sender did not name, and to nodes that have
    confirmed the ack to this one.
    """
    # Flaw-F6: FASTACK at 0, which does not know that 1 gave a copy to 2.
    world = make_world(3, journal="off")
    id = spread(world, 2, retry=1)
    world.cut(0, 1)
    n = world.node(1).core
    send_copies(n, n.jobs[id], [world.slot(1, 2)], 0)
    world.settle()
    world.isolate(2)
    assert on_fastack(world.node(0).core, id)
    world.link(0, 1)
    assert world.states(id) == [-1, -1, ACTIVE]
    assert is_done(world, id)


def test_f9_a_leaving_node_passes_acks_on(make_world: Make) -> None:
    """A3.4 A leaving node makes the record, and is not safe to stop before the record has ended
    (K7.3): a node that it informed may die before it has recorded the ack.
    """
    world = make_world(3, journal="off")
    id = spread(world, 2, retry=1)
    assert world.at(0).get() == [id]
    world.node(2).core.is_leaving = True
    on_unknown_ack(world.node(2).core, 1, id)
    assert world.node(2).core.strays
    world.settle()
    assert world.node(2).core.strays == {}
    assert is_done(world, id)


def test_f9_a_node_short_of_memory_passes_acks_on(make_world: Make) -> None:
    """A3.4 At memory level 2 the node only forwards the SETACK and makes no record;"""
    world = make_world(3, journal="off")
    id = spread(world, 2, retry=1)
    assert world.at(0).get() == [id]
    n = world.node(2).core
    n.limits.memory_bytes = 1
    n.base_bytes = 1_000
    on_unknown_ack(n, 1, id)
    assert n.strays == {}
    world.settle()
    assert is_done(world, id)


def test_f10_forged_ids_cost_nothing(make_world: Make) -> None:
    """A3.4 (cluster) An unknown id whose keyed code is right: the node
    makes a record without a body in state acked, at most 1000 at a time for one client.
    """
    world = make_world(3, journal="off")
    n = world.node(0).core
    world.isolate(2)
    used_bytes = n.used_bytes()
    genuine = n.ids.make(3600, 1)
    for i in range(2_000):
        on_unknown_ack(n, 1, b"%s%08d%s" % (genuine[:27], i, genuine[35:]))
        on_unknown_ack(n, 1, b"D-%08d-%024d-05a1" % (i, i))
    world.settle()
    assert not n.jobs
    assert world.heard() == [] or sent(world, SetAck) == []
    assert n.used_bytes() == used_bytes


def test_f10_the_ack_of_a_long_job_does_not_end_before_it(make_world: Make) -> None:
    """A3.4 It ends at the latest 2 minutes after the time that the TTL field gives."""
    world = make_world(3, journal="off")
    id = spread(world, 2, ttl=90, retry=30)
    world.isolate(2)
    stray_ack(world, 2, id)
    world.pass_ms(88_000)
    assert world.node(2).core.jobs[id].flags & BODYLESS
    assert is_done(world, id, 1_000)


def test_f11_a_forgotten_node_is_not_waited_for(make_world: Make) -> None:
    """K6.2 The node leaves the holders and confirmed sets of every job."""
    world = make_world(3, journal="off")
    before, after = spread(world, 3), spread(world, 3)
    world.isolate(2)
    assert ack(world, 0, before)
    assert world.holders(before) == [0, 1, 2]
    for i in (0, 1):
        world.forget(i, 2)
    world.pass_ms(1_000)
    assert ack(world, 1, after)
    assert world.holders(before) == [2]
    assert world.holders(after) == [2]
    assert not world.node(0).core.acked


def test_f11_while_it_is_forgotten(make_world: Make) -> None:
    """A2.1 If every holder is confirmed, forgotten nodes aside, the job is unregistered with cause
    gc-acked.
    """
    # Sets that arrive late still name the node.
    world = make_world(3, journal="off")
    id = spread(world, 3)
    world.isolate(2)
    world.forget(0, 2)
    assert ack(world, 1, id)
    world.pass_ms(1_000)
    assert (
        id not in world.node(0).core.jobs
        or world.node(0).core.jobs[id].holders >> world.slot(0, 2) & 1 == 0
    )
    assert world.node(1).core.forgotten >> world.slot(1, 2) & 1, "it was told"
    world.pass_ms(200_000)
    assert world.holders(id) == [2]


def test_f17_a_loading_node_vouches_for_nothing(make_world: Make) -> None:
    """A4.1 A node that still loads does not reply."""
    world = make_world(2, journal="off")
    id = spread(world, 2, retry=1)
    other = world.node(1).core
    copy = other.jobs[id]
    leave_job(other, copy)  # it has not been read yet
    other.job_bytes, held = 0, other.job_bytes
    other.wheel.cancel(copy)
    other.ledger.replicated -= 1
    other.is_loading = True
    assert ack(world, 0, id)
    assert (0, 1) in sent(world, SetAck)
    assert sent(world, GotAck) == []
    assert not other.tombs.has(id)
    assert world.states(id) == [ACKED, -1]
    enter_job(other, copy)
    other.job_bytes = held
    other.wheel.arm(copy, world.now_ms)
    other.ledger.replicated += 1
    other.is_loading = False
    on_loaded(other)
    assert is_done(world, id)


def test_f17_deljob_while_loading(make_world: Make) -> None:
    """A10.1 A node that is loading applies it at the end."""
    world = make_world(3, journal="off")
    id, other = spread(world, 3), spread(world, 3)
    n = world.node(1).core
    n.is_loading = True
    unread = n.ids.make(60, 1)
    assert on_fastack(world.node(0).core, id)
    say(world, 0, 1, DelJob(unread, 0, 60_000))
    assert id in n.jobs
    assert not n.tombs.has(unread)
    n.is_loading = False
    after_load(n)
    world.settle()
    assert list(n.jobs) == [other]
    assert n.tombs.has(id)
    assert n.tombs.has(unread)
    assert n.late_deletes == {}


def test_the_ack_and_its_copies_cross(make_world: Make) -> None:
    """A5.2 The holder sets are merged."""
    # The job is acked at its origin while the producer waits; copies answer later, in any order.
    for released in ([1, 2, 3], [3, 2, 1], [2, 1, 3]):
        world = make_world(4, journal="off")
        for i in (1, 2, 3):
            world.hold(i, 0)
            world.hold(0, i)
        job = world.node(0).core.jobs[world.at(0, 1).begin_add(replicate=3, retry=1)]
        world.pass_ms(120)
        assert job.state == WAIT_REPL
        assert ack(world, 0, job.id)
        for i in released:
            world.release(0, i)
            world.release(i, 0)
        assert is_done(world, job.id)


def test_a_copy_that_answers_late_is_told(make_world: Make) -> None:
    """A5.2 The holder sets are merged."""
    # GOTJOB of a node that the acked record does not name: it has a copy, and must hear.
    world = make_world(4, journal="off")
    id = spread(world, 3, retry=1)
    world.isolate(2)
    assert ack(world, 0, id)
    world.cut(0, 3)
    late = copy_of(world.node(1).core, world.slot(1, 3), world.node(2).core.jobs[id], 0)
    say(world, 1, 3, late)
    world.link(0, 3)
    say(world, 3, 0, GotJob([id]))
    assert world.states(id)[3] in (ACKED, -1)
    assert is_done(world, id)


def test_f6_what_the_sender_knew_is_kept(make_world: Make) -> None:
    """A4.2 Known: the holder sets are merged."""
    # The acking node alone knows of the copy at 2, and dies.
    world = make_world(3, journal="off")
    id = spread(world, 2, retry=1)
    world.cut(0, 1)
    n = world.node(0).core
    send_copies(n, n.jobs[id], [world.slot(0, 2)], 0)
    world.settle()
    world.isolate(2)
    world.link(0, 1)
    assert ack(world, 0, id)
    world.restart(0)
    world.link(1, 2)
    assert world.states(id)[1:] in ([-1, -1], [ACKED, ACKED])
    world.link()
    assert is_done(world, id)


def test_f11_at_the_moment_of_forgetting(make_world: Make) -> None:
    """A2.1 If every holder is confirmed, forgotten nodes aside, the job is unregistered with cause
    gc-acked.
    """
    # The walk that takes the node out of all sets has not come to this job yet.
    world = make_world(2, journal="off")
    id = spread(world, 2)
    world.isolate(1)
    world.node(0).core.forgotten |= 1 << world.slot(0, 1)
    assert ack(world, 0, id)
    assert id not in world.node(0).core.jobs
    assert world.node(0).core.tombs.count() == 0


def test_f6_a_node_that_started_anew_is_asked(make_world: Make) -> None:
    """A5.2 The holder sets are merged."""
    # 0 has the copy of the new life of 2; 1 has not met that life yet. The ack is said at 1.
    world = make_world(3, journal="off")
    world.restart(2)
    world.link(0, 2)
    id = world.at(0).add(replicate=3, retry=1)
    assert len(world.holders(id)) == 3
    world.cut(0, 2)
    assert ack(world, 1, id)
    assert world.states(id)[1] == ACKED
    assert is_done(world, id)
