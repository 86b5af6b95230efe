"""SPEC R with several nodes: copies before the reply, external replication, adds that fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from test_a_cluster import sent

from raw_resp import encode
from tuque.core.copies.ack import on_ackjob, on_deljob
from tuque.core.copies.replicate import copy_of
from tuque.core.dispatch.messages import on_message
from tuque.core.model.job import ACTIVE, IN_TRANSIT, QUEUED, WAIT_REPL
from tuque.core.model.job_id import IdMaker, is_genuine, tube_mark
from tuque.core.model.stats import ADD_FAILED
from tuque.core.msgs.bus import (
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
from world import World

Make = Callable[..., World]

NOREPL = "NOREPL Not enough reachable nodes for the requested replication level"
LOST = "NOREPL Too few nodes are left for the copies: the job is withdrawn"
TIMEOUT = "NOREPL Timeout reached before replicating to the requested number of nodes"


SUSPECTED_MS = 30_000  # after so long without a link a node is not expected any more


def told(world: World, i: int) -> list[Any]:
    """What the producers at node i were told since the last look: ids or errors."""
    return world.at(i).take_all()


def ask(world: World, *words: str | int) -> bytes:
    """A client asks node 0 for a job; its id, before any other node has heard of it."""
    world.at(0).put(encode("ADDJOB", "q", "body", 0, *words))
    while not world.node(0).core.jobs:
        assert world.step()
    (id,) = world.node(0).core.jobs
    return id


def step_until(world: World, kind: type) -> None:
    """Go on until a message of that kind has arrived."""
    while not sent(world, kind):
        assert world.step()


def test_ids_prove_the_cluster(make_world: Make) -> None:
    """G6.5 8 are a keyed code over the other 16, with a key from the cluster secret. It is
    checked before anything is stored for an unknown id.
    """
    world = make_world(1, journal="off")
    ids = [world.node(0).core.ids.make(3600, 1 + i % 2) for i in range(300)]
    assert len(set(ids)) == 300
    assert all(is_genuine(b"", id) for id in ids)
    assert not any(is_genuine(b"other", id) for id in ids)
    for place in (2, 11, 24, 26, 30, 37):
        forged = bytearray(ids[0])
        forged[place] = ord("7") if forged[place] != ord("7") else ord("8")
        assert not is_genuine(b"", bytes(forged)), place


def test_ids_of_tasks_name_their_tube() -> None:
    """G6.8 For a tube's task the first 3 characters of the keyed code are turned by a code over
    the tube's name, so each node that knows the tube can tell it (T17.8).
    """
    maker = IdMaker(b"c0ffee00" * 5, b"seed", b"key")
    other = IdMaker(b"decade00" * 5, b"seed", b"key")
    names = [b"tube %d" % i for i in range(500)]
    ids = {name: maker.make_task(3600, b"", tube_mark(name)) for name in names}
    assert not any(other.knows(id) for id in ids.values()), "no tube is known"
    for name in names:
        other.add_tube(name)
    marks = [tube_mark(name) for name in names]
    alone = [name for name in names if marks.count(tube_mark(name)) == 1]
    assert len(alone) > 490
    for name in names:
        assert other.knows(ids[name]) and not is_genuine(b"key", ids[name])
        assert other.tube_of(ids[name]) == (name if name in alone else b"")
    assert other.tube_of(other.make(3600, 1)) == b""
    id = ids[alone[0]]
    for place in (2, 11, 24, 26, 30, 37):
        forged = bytearray(id)
        forged[place] = ord("7") if forged[place] != ord("7") else ord("8")
        assert other.mark_in(bytes(forged)) == -1, place
    other.take_keys([b"new key", b"key"])
    assert other.tube_of(id) == alone[0]
    other.drop_tube(alone[0])
    assert not other.knows(id) and other.mark_in(id) == tube_mark(alone[0])


def test_producer_waits_for_the_copies(make_world: Make) -> None:
    """R1.10 (cluster) Otherwise the state is wait-repl. REPLJOB goes to n - 1 randomly chosen
    reachable nodes, late ones (K4.3) last, which become holders. The producer waits, and its
    timeout is armed (R5).
    """
    world = make_world(5, journal="off")
    id = ask(world, "REPLICATE", 3)
    assert world.node(0).core.jobs[id].state == WAIT_REPL
    assert not world.at(0).unread
    world.settle()
    assert told(world, 0) == [id]
    assert len(sent(world, ReplJob)) == 2
    assert len(world.holders(id)) == 3
    drawn = {tuple(world.holders(world.at(0).add(replicate=3))) for _ in range(60)}
    assert len(drawn) == 6  # all pairs out of four


def test_async_does_not_wait(make_world: Make) -> None:
    """R1.10 ASYNC sends the same messages and does not wait."""
    world = make_world(3, journal="off")
    id = ask(world, "REPLICATE", 3, "ASYNC")
    assert world.node(0).core.jobs[id].state == QUEUED
    world.settle()
    assert world.states(id) == [QUEUED, ACTIVE, ACTIVE]
    assert sent(world, GotJob) == []
    assert told(world, 0) == [id]


def test_acked_is_not_copied_again(make_world: Make) -> None:
    """R2.2 Tombstone or acked record: the reply is SETACK with its holder set (none for a
    tombstone). Nothing is stored; this is no copy.
    """
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=2, retry=10)
    holder = next(i for i in (1, 2) if id in world.node(i).core.jobs)
    late = copy_of(world.node(0).core, world.slot(0, holder), world.node(0).core.jobs[id], 0)
    on_ackjob(world.node(0).core, id)
    world.settle()
    assert world.states(id) == [-1, -1, -1]
    world.forget_heard()
    peer = world.node(0).core.peers[world.slot(0, holder)]
    peer.outbox.append(late)
    peer.is_dirty = True
    world.node(0).core.dirty_peers.append(peer)
    world.settle()
    assert id not in world.node(holder).core.jobs
    assert (holder, 0) in sent(world, SetAck)
    assert sent(world, GotJob) == []


def test_known_job_joins_holders(make_world: Make) -> None:
    """R2.3 Known: the holder sets are merged. GOTJOB is sent unless the sender asked for no
    reply.
    """
    world = make_world(3, journal="off")
    world.isolate(2)
    id = world.at(0).add(replicate=2)
    world.link()
    job = world.node(0).core.jobs[id]
    job.holders |= 1 << world.slot(0, 2)
    slot = world.slot(0, 1)
    message = copy_of(world.node(0).core, slot, job, 0)
    world.node(0).core.peers[slot].outbox.append(message)
    world.node(0).core.peers[slot].is_dirty = True
    world.node(0).core.dirty_peers.append(world.node(0).core.peers[slot])
    world.forget_heard()
    world.settle()
    assert world.node(1).core.jobs[id].holders == 1 | 1 << world.slot(1, 0) | 1 << world.slot(1, 2)
    assert sent(world, GotJob) == [(1, 0)]


@pytest.mark.parametrize("why", ["memory", "leaving", "loading", "paused"])
def test_who_takes_no_copy(make_world: Make, why: str) -> None:
    """R2.4 Memory at level 1 or above, this node leaves or loads, or the input of the queue is
    paused: the job is dropped without GOTJOB.
    """
    world = make_world(2, journal="off")
    id = ask(world, "REPLICATE", 2)
    other = world.node(1).core
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
    world.settle()
    assert sent(world, ReplJob) == [(0, 1)]
    assert id not in other.jobs
    assert sent(world, GotJob) == []
    assert told(world, 0) == ([LOST] if why == "leaving" else [])


def test_a_copy_is_active_and_waits_longer(make_world: Make) -> None:
    """R2.5 The due time of an ALO job is now + the remaining delay + retry + J. An AMO copy has no
    custody and due time 0.
    """
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2, retry=10, delay=5)
    copy = world.node(1).core.jobs[id]
    assert copy.state == ACTIVE
    assert 15_000 <= copy.qtime_ms - world.now_ms < 15_500
    world.node(0).core.is_leaving = True
    world.hold(1, 0)  # its answer does not come, so that no custody is passed
    amo = world.at(0).begin_add(replicate=1, retry=0, timeout_ms=5_000)
    world.settle()
    copy = world.node(1).core.jobs[amo]
    assert copy.qtime_ms == 0
    assert copy.flags & IN_TRANSIT
    assert world.at(1).get() == []


def test_late_answer_makes_a_holder(make_world: Make) -> None:
    """R3.1 The sender joins the holders in its current incarnation."""
    world = make_world(4, journal="off")
    world.hold(1, 0)
    world.hold(2, 0)
    world.at(0).send_add("q", "body", replicate=2)
    (id,) = world.node(0).core.jobs
    world.pass_ms(200)
    world.release(1, 0)
    world.release(2, 0)
    world.settle()
    holders = {
        0,
        *(i for i in (1, 2, 3) if world.node(0).core.jobs[id].holders >> world.slot(0, i) & 1),
    }
    assert holders >= set(world.holders(id))


def test_failed_add_is_undone_everywhere(make_world: Make) -> None:
    """R3.2 If the ADDJOB of the job failed within the last 10 minutes, the reply is DELJOB.

    R5.2 DELJOB goes to every holder, to an unlinked one when it is linked again. The record is
    unregistered with cause add-failed.
    """
    world = make_world(2, journal="off")
    world.hold(1, 0)
    id = world.at(0).begin_add(replicate=2, timeout_ms=300)
    world.settle()
    assert id in world.node(1).core.jobs
    world.pass_ms(299)
    assert told(world, 0) == []
    world.pass_ms(1)
    assert told(world, 0) == [TIMEOUT]
    world.release(1, 0)
    world.settle()
    assert world.holders(id) == []
    assert world.node(0).core.ledger.add_failed == 1
    world.hold(1, 0)
    id = world.at(0).begin_add(replicate=2, timeout_ms=60_000)
    world.settle()
    world.cut(0, 1)
    world.pass_ms(SUSPECTED_MS)
    assert told(world, 0) == [], "its timeout is not over"
    assert id in world.node(1).core.jobs
    world.link()
    world.release(1, 0)
    world.pass_ms(2_000)
    assert told(world, 0) == [id]


def test_enough_copies(make_world: Make) -> None:
    """R3.4 The sender joins the confirmed set. With n members the state becomes active, R1.9
    applies, the producer gets its id, and the set is emptied.

    R3.3 The job is not in wait-repl: nothing more.
    """
    world = make_world(3, journal="off")
    world.hold(2, 0)
    id = world.at(0).begin_add(replicate=3, timeout_ms=5_000)
    job = world.node(0).core.jobs[id]
    assert job.state == WAIT_REPL
    world.release(2, 0)
    world.settle()
    assert job.state == QUEUED
    assert told(world, 0) == [id]
    assert job.confirmed == 0
    world.pass_ms(10_000)
    assert told(world, 0) == []


def test_surplus_is_released(make_world: Make) -> None:
    """R3.4 Holders that did not confirm get RELEASE: such a holder drops its copy of an
    undelivered ALO job if n others have one, and sends LEFT to them.
    """
    world = make_world(4, journal="off")
    for i in (1, 2, 3):
        world.hold(i, 0)
    id = world.at(0).begin_add(replicate=2, timeout_ms=5_000)
    world.settle()
    world.pass_ms(49)
    assert len(world.holders(id)) == 2
    world.pass_ms(1)
    assert len(world.holders(id)) == 3
    first = world.heard()[[isinstance(m, ReplJob) for _, _, m in world.heard()].index(True)][1]
    world.release(first, 0)
    world.settle()
    assert told(world, 0) == [id]
    for i in (1, 2, 3):
        world.release(i, 0)
    world.settle()
    assert sorted(world.holders(id)) == sorted([0, first])
    assert len(sent(world, Release)) >= 1
    assert world.node(0).core.jobs[id].holders == 1 | 1 << world.slot(0, first)


def test_one_more_node_every_50_ms(make_world: Make) -> None:
    """R4.1 (cluster) Every 50 ms, as long as a job waits for copies, one more reachable node
    becomes a holder, while there are fewer than 2n holders.

    R4.2 REPLJOB goes to it, and HOLDERS with the new set to the nodes that confirmed."""
    world = make_world(6, journal="off")
    for i in range(1, 6):
        world.hold(i, 0)
    id = world.at(0).begin_add(replicate=2)
    counts = []
    for _ in range(6):
        world.settle()
        counts.append(len(world.holders(id)))
        world.pass_ms(50)
    assert counts == [2, 3, 4, 4, 4, 4]
    world = make_world(6, journal="off")
    for i in range(1, 6):
        world.hold(i, 0)
    id = world.at(0).begin_add(replicate=3)
    world.settle()
    one = next(i for i in range(1, 6) if id in world.node(i).core.jobs)
    world.release(one, 0)
    world.pass_ms(50)
    assert (0, one) in sent(world, Holders)
    copy = world.node(one).core.jobs[id]
    assert copy.holders.bit_count() == world.node(0).core.jobs[id].holders.bit_count() == 4


def test_resend_backs_off(make_world: Make) -> None:
    """R4.3 REPLJOB is repeated to a holder that did not reply after 50, 100, 200 ms ..., at most
    every 2 s, while the link has room.
    """
    world = make_world(2, journal="off", bus_buffer_limit="1mb")
    world.hold(1, 0)
    world.at(0).begin_add(replicate=2)
    world.settle()
    times: list[int] = []
    for _ in range(240):  # 12 s
        times += [world.now_ms] * (len(sent(world, ReplJob)) - len(times))
        world.pass_ms(50)
    gaps = [later - then for then, later in itertools.pairwise(times)]
    assert gaps == [50, 100, 200, 400, 800, 1600, 2000, 2000, 2000, 2000]
    count = len(times)
    world.fill(0, 1)
    world.pass_ms(10_000)
    world.release(0, 1)
    assert world.linked(0, 1)
    assert len(sent(world, ReplJob)) == count


def test_unreachable_copies_fail_at_once(make_world: Make) -> None:
    """R5.3 If so few nodes are expected (K4.4) that n copies are impossible, the ADDJOB does
    this: With timeout 0 it ends: `-NOREPL Too few nodes are left for the copies: the job is
    withdrawn`.
    """
    world = make_world(3, journal="off")
    world.hold(1, 0)
    id = world.at(0).begin_add(replicate=3)
    world.pass_ms(1000)
    assert told(world, 0) == []
    world.cut(0, 1)
    world.pass_ms(SUSPECTED_MS)
    assert told(world, 0) == [LOST]
    assert world.holders(id) in ([], [1])


def test_a_late_node_gets_copies_last(make_world: Make) -> None:
    """K4.3 The default of REPLICATE counts this node, unless it takes no copies (R1.5), and the
    reachable ones that are not late. A node is late that was silent for 2 s.

    R1.10 REPLJOB goes to n - 1 randomly chosen reachable nodes, late ones (K4.3) last, which become
    holders.
    """
    world = make_world(4, journal="off")
    world.stall(3, 10_000)
    world.pass_ms(3_100)
    for _ in range(20):
        assert 3 not in world.holders(world.at(0).add(replicate=3))
    world.stall(2, 3_000)
    id = world.at(0).begin_add()
    world.pass_ms(900)
    assert told(world, 0) == []
    world.pass_ms(2_000)
    assert told(world, 0) == [id]
    assert len(world.holders(world.at(0).add())) == 2
    world.pass_ms(8_000)
    assert len(world.holders(world.at(0).add())) == 3


def test_by_default_as_many_copies_as_are_possible_suffice(make_world: Make) -> None:
    """R5.3 Without REPLICATE it waits for as many copies as are possible without late nodes (K4.3),
    one at least; K5.3 makes the missing ones.
    """
    world = make_world(3, journal="off")
    world.hold(1, 0)
    id = world.at(0).begin_add()
    world.pass_ms(1000)
    assert told(world, 0) == []
    world.cut(0, 1)
    world.pass_ms(SUSPECTED_MS)
    assert told(world, 0) == [id]
    assert set(world.holders(id)) >= {0, 2}
    world.link()
    world.pass_ms(10_000)
    assert world.holders(id) == [0, 1, 2]
    world.hold(1, 0)
    world.hold(2, 0)
    id = world.at(0).begin_add()
    world.cut(0, 1)
    world.cut(0, 2)
    world.pass_ms(SUSPECTED_MS)
    assert told(world, 0) == [id], "the own copy is all that is possible"


def test_a_node_that_leaves_withdraws_no_job(make_world: Make) -> None:
    """R5.3 Without REPLICATE it waits for as many copies as are possible without late nodes (K4.3),
    one at least
    """
    world = make_world(3, journal="off")
    world.hold(1, 0)
    world.leave(1)
    id = world.at(0).begin_add()  # it asks a node of which it does not know yet that it leaves
    world.settle()
    assert told(world, 0) == []
    world.release(1, 0)
    world.pass_ms(1000)
    assert told(world, 0) == [id]


def test_external_replication(make_world: Make) -> None:
    """R6.1 (cluster) External replication: as R1.10, but REPLJOB goes to n other nodes, and this
    node is no holder.

    R6.2 repeated until ENQUEUED. Then the record here is unregistered with cause moved."""
    for retry_s in (10, 0):
        world = make_world(3, journal="off")
        world.node(0).core.is_leaving = True
        id = world.at(0).add(replicate=1 if retry_s == 0 else 2, retry=retry_s)
        assert world.states(id)[0] == -1
        assert QUEUED in world.states(id)
        assert world.node(0).core.ledger.moved == 1
        server = world.states(id).index(QUEUED)
        assert world.at(server).get() == [id]
        assert world.at(server).get() == []


def test_enqueue_is_repeated_until_answered(make_world: Make) -> None:
    """R8.1 The reply is ENQUEUED, also to a repeated ENQUEUE.

    R8.2 For an AMO job custody comes with the message; it is in the journal before the reply."""
    world = make_world(2, journal="off")
    world.node(0).core.is_leaving = True
    id = ask(world, "REPLICATE", 1, "RETRY", 0)
    step_until(world, GotJob)
    world.hold(1, 0)
    world.pass_ms(500)
    assert world.at(1).get() == [id]
    assert len(sent(world, Enqueue)) > 1
    assert world.at(1).get() == []
    world.release(1, 0)
    world.pass_ms(2000)
    assert world.holders(id) == [1]
    assert world.at(1).get() == []


@pytest.mark.parametrize("retry_s", [0, 5])
def test_an_offer_to_a_node_that_lost_the_job_ends(make_world: Make, retry_s: int) -> None:
    """R8.4 Unknown and no tombstone: the reply is LEFT, unless the journal is still loading. The
    sender then chooses another node for an ALO job (R6.2).
    """
    world = make_world(3, journal="off")
    world.node(0).core.is_leaving = True
    id = ask(world, "REPLICATE", 1 if retry_s == 0 else 2, "RETRY", retry_s)
    step_until(world, ReplJob)
    for other in (1, 2):
        world.hold(0, other)
    world.settle()  # GOTJOB; ENQUEUE waits
    server = next(
        i for i in (1, 2) if world.slot(0, i) == world.node(0).core.adding[id].server_slot
    )
    on_deljob(world.node(server).core, id)  # it was evicted, or an old disk came back
    for other in (1, 2):
        world.release(0, other)
    world.pass_ms(3_000)
    assert id not in world.node(0).core.adding
    assert world.node(0).core.ledger.moved == 1
    served = [id for i in (1, 2) for id in world.at(i).get()]
    assert served == ([] if retry_s == 0 else [id])


def test_delay_is_passed_on(make_world: Make) -> None:
    """R8.1 A job that is active and undelivered here is enqueued silently (G3) with delay 0,
    else its due time is now + delay.
    """
    world = make_world(2, journal="off")
    world.node(0).core.is_leaving = True
    id = world.at(0).add(replicate=1, retry=0, delay=3)
    world.pass_ms(2_900)
    assert world.at(1).get() == []
    world.pass_ms(120)
    assert world.at(1).get() == [id]


@pytest.mark.parametrize("delay_ms", [0, 3_000])
def test_a_late_enqueue_does_not_queue_a_job_twice(make_world: Make, delay_ms: int) -> None:
    """R8.1 Nothing changes for an ALO job that another holder has queued or handed out."""
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2, retry=20, delay=5)
    assert on_enqueue(world.node(1).core, id)
    world.settle()
    assert world.states(id) == [ACTIVE, QUEUED]
    due_ms = world.node(0).core.jobs[id].qtime_ms
    for state in (QUEUED, ACTIVE):
        on_message(world.node(0).core, world.slot(0, 1), Enqueue(id, delay_ms))
        world.settle()
        assert world.states(id) == [ACTIVE, state]
        if state == QUEUED:
            assert world.node(0).core.jobs[id].qtime_ms == due_ms
            assert world.at(1).get() == [id]


def test_paused_queue_does_not_refuse_custody(make_world: Make) -> None:
    """R8.3 A paused input does not refuse the job: it stays active, its due time postponed by
    retry (ALO) or 1 s (AMO).
    """
    from tuque.core.queues.deliver import set_pause

    world = make_world(2, journal="off")
    world.node(0).core.is_leaving = True
    id = ask(world, "REPLICATE", 1, "RETRY", 0)
    step_until(world, ReplJob)
    set_pause(world.node(1).core, b"q", PAUSE_IN)
    world.settle()
    assert world.states(id) == [-1, ACTIVE]
    set_pause(world.node(1).core, b"q", 0)
    world.pass_ms(1_100)
    assert world.at(1).get() == [id]


def test_producer_that_goes_away(make_world: Make) -> None:
    """R7.1 A client disconnects while its ADDJOB waits: as R5.2."""
    world = make_world(2, journal="off")
    world.hold(1, 0)
    producer = world.at(0)
    id = producer.begin_add(replicate=2, timeout_ms=5_000)
    assert world.holders(id) == [0, 1]
    producer.close()
    world.settle()
    assert world.holders(id) == []
    assert not producer.unread
    assert (0, 1) in sent(world, DelJob)
    assert world.node(0).core.ledger.add_failed == 1
    assert ADD_FAILED == 9


def test_a_producer_that_has_its_id_may_go_away(make_world: Make) -> None:
    """R6.2 When n nodes have confirmed (with ASYNC: one), the producer gets its id."""
    world = make_world(2, journal="off")
    world.node(0).core.is_leaving = True
    producer = world.at(0)
    id = ask(world, "REPLICATE", 1, "RETRY", 10)
    step_until(world, GotJob)
    world.hold(0, 1)
    assert told(world, 0) == [id]
    assert world.states(id)[0] != -1
    producer.close()
    world.release(0, 1)
    world.settle()
    assert world.states(id) == [-1, QUEUED]


def test_removed_while_waiting(make_world: Make) -> None:
    """G2.4 (cluster) A producer that waits for the job gets `-NOREPL job removed (expired?) before
    the requested replication level was achieved`.
    """
    world = make_world(2, journal="off")
    world.hold(1, 0)
    world.at(0).begin_add(replicate=2, ttl=1)
    world.pass_ms(1_100)
    assert told(world, 0) == [
        "NOREPL job removed (expired?) before the requested replication level was achieved"
    ]
