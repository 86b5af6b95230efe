"""SPEC A with several nodes: acks reach every holder, and then nothing is left of the job."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from test_f_moving import external_twice

from told_events import Told
from tuque.core.copies.ack import (
    on_ackjob,
    on_deadletter,
    on_deljob,
    on_fastack,
)
from tuque.core.copies.add import on_addjob, settle
from tuque.core.copies.replicate import copy_of
from tuque.core.dispatch.messages import on_message
from tuque.core.model.job import ACKED, ACTIVE, QUEUED, WAIT_REPL, AddSpec
from tuque.core.msgs.bus import (
    AnyMessage,
    DelJob,
    GotAck,
    NeedJobs,
    Queued,
    ReplJob,
    SetAck,
    Slots,
)
from tuque.core.queues.procedures import check
from tuque.core.queues.views import show
from tuque.core.records.events import Events
from tuque.core.records.jobs import (
    ACK,
    ACKED_AT,
    ADD,
    PEER,
    REMOVE,
)
from world import NodeAt, World

Make = Callable[..., World]


def sent(world: World, kind: type) -> list[tuple[int, int]]:
    """From where to where messages of that kind went, in order."""
    return [(a, b) for a, b, m in world.heard(kind)]


def ack(world: World, i: int, id: bytes) -> bool:
    """ACKJOB at node i, and all that follows."""
    done = on_ackjob(world.node(i).core, id)
    world.settle()
    return done


def say(world: World, a: int, b: int, message: AnyMessage) -> None:
    """Node a says something to node b; its own slot numbers have been introduced."""
    peer = world.node(a).core.peers[world.slot(a, b)]
    peer.outbox.append(message)
    if not peer.is_dirty:
        peer.is_dirty = True
        world.node(a).core.dirty_peers.append(peer)
    world.settle()


def kinds(node: NodeAt) -> list[int]:
    """What was written to the journal since the last look."""
    return [int(record.kind) for record in node.records()]


def spread(world: World, count: int, **options: int) -> bytes:
    """A job with copies on that many nodes, from 0 on."""
    for i in range(count, len(world.nodes)):
        world.isolate(i)
    id = world.at(0).add(replicate=count, **options)
    world.link()
    world.forget_heard()
    return id


def test_an_ack_ends_the_job_everywhere(make_world: Make) -> None:
    """A2.3 (cluster) Otherwise SETACK with the holder set goes to each holder that is not
    confirmed."""
    # A5.4 When A2.1 holds, DELJOB goes to all other holders and the job is unregistered.
    world = make_world(4, journal="off")
    id = spread(world, 3)
    assert ack(world, 1, id)
    assert sorted(sent(world, SetAck)) == [(1, 0), (1, 2)]
    assert sorted(sent(world, GotAck)) == [(0, 1), (2, 1)]
    assert sorted(sent(world, DelJob)) == [(1, 0), (1, 2)]
    assert world.holders(id) == []
    assert [int(n.ledger.gc_acked) for n in world.cores] == [1, 1, 1, 0]
    assert all(not n.acked for n in world.cores)


def test_two_holders_need_no_third_word(make_world: Make) -> None:
    """A4.3 A sender that named holders is confirmed. If A2.1 then holds, the reply is DELJOB
    (A5.4)."""
    world = make_world(2, journal="off")
    id = spread(world, 2)
    assert ack(world, 0, id)
    assert [type(m) for _, _, m in world.heard() if not isinstance(m, Slots)] == [SetAck, DelJob]
    assert world.holders(id) == []


def test_a_holder_that_is_away_is_waited_for(make_world: Make) -> None:
    """A2.1 If every holder is confirmed, forgotten nodes aside, the job is unregistered with cause
    gc-acked."""
    world = make_world(3, journal="off")
    id = spread(world, 3, retry=1)
    world.isolate(2)
    assert ack(world, 0, id)
    assert world.states(id)[:2] == [ACKED, ACKED]
    world.pass_ms(700)
    world.link()
    assert world.holders(id) == []
    world.pass_ms(10_000)
    assert world.at(2).get() == []


def test_the_body_goes_at_once(make_world: Make) -> None:
    """A1.4 The body is freed at once."""
    world = make_world(2, journal="off")
    n = world.node(0).core
    spec = AddSpec()
    spec.replicate = 2
    job = on_addjob(n, b"q", b"x" * 10_000, settle(n, spec))
    world.settle()
    world.isolate(1)
    before = n.used_bytes()
    assert ack(world, 0, job.id)
    assert job.body == b""
    assert before - 10_100 < n.used_bytes() < before - 9_900
    assert world.at(0).get() == []


def test_producer_gets_its_id(make_world: Make) -> None:
    """A1.6 (cluster) A producer that still waits for the job gets its id."""
    for acker in (0, 1):
        world = make_world(2, journal="off")
        world.hold(1, 0)
        producer = world.at(0, 1)
        id = producer.begin_add(replicate=2)
        assert world.states(id)[0] == WAIT_REPL
        if acker == 1:  # the copy is acked, and its GOTJOB is lost
            world.cut(0, 1)
            assert ack(world, 1, id)
            assert producer.take() is None
            world.link(0, 1)
        else:
            assert ack(world, 0, id)
        assert producer.take() == id
        world.release(1, 0)
        world.pass_ms(5_000)
        assert world.holders(id) == []


def test_an_external_job_is_acked_where_it_was_added(make_world: Make) -> None:
    """A4.2 Known: the holder sets are merged. A job in wait-repl counts as complete (A1.6). Then
    A1."""
    world = make_world(3, journal="off")
    world.node(0).core.is_leaving = True
    world.hold(1, 0)
    world.hold(2, 0)
    producer = world.at(0, 1)
    id = producer.begin_add(replicate=2)
    assert world.states(id) == [WAIT_REPL, ACTIVE, ACTIVE]
    world.cut(0, 1)  # its GOTJOB is lost
    world.join(0, 1)
    assert ack(world, 1, id)
    assert producer.take() == id
    world.release(2, 0)
    world.pass_ms(3_000)
    assert world.holders(id) == []


@pytest.mark.parametrize("is_fast", [False, True])
@pytest.mark.parametrize("is_there", [False, True])
def test_an_ack_finds_the_custody(make_world: Make, is_fast: bool, is_there: bool) -> None:
    """A1.7 (cluster) If custody of an AMO job is elsewhere, every known node that is not
    forgotten first joins the holder set (R6.2, F2.3).
    """
    world = make_world(4, journal="off")
    world.isolate(3)
    id = external_twice(world)
    assert world.states(id)[3] == -1
    for i in range(3):
        world.link(i, 3)
    if not is_there:
        world.hold(1, 3)  # on its way when the ack is heard of
    say(world, 3, 1, NeedJobs(b"q", 1, True))
    assert world.states(id) == ([-1, -1, ACTIVE, QUEUED] if is_there else [-1, 1, 1, -1])
    if is_fast:
        assert on_fastack(world.node(2).core, id)
    else:
        assert on_ackjob(world.node(2).core, id)
    world.settle()
    if not is_there:
        world.release(1, 3)
    assert world.at(3).get() == []
    world.pass_ms(3_000)
    assert world.holders(id) == []


def test_acked_again(make_world: Make) -> None:
    """A3.2 For an acked one: A2. It does not count."""
    world = make_world(3, journal="off")
    id = spread(world, 3)
    world.hold(2, 0)
    assert ack(world, 0, id)
    world.forget_heard()
    assert not ack(world, 0, id)
    assert sent(world, SetAck) == [(0, 2)]
    assert not ack(world, 1, id)
    world.release(2, 0)
    assert world.holders(id) == []


def test_who_knows_of_more_holders_asks_them(make_world: Make) -> None:
    """A4.4 If this node knows holders that the sender did not name, it collects too (A2)."""
    world = make_world(4, journal="off")
    id = spread(world, 3)
    world.node(0).core.jobs[id].holders &= ~(1 << world.slot(0, 2))
    world.cut(0, 2)
    assert ack(world, 0, id)
    assert (1, 2) in sent(world, SetAck)
    assert world.node(2).core.jobs.get(id) is None or world.node(2).core.jobs[id].state == ACKED
    world.pass_ms(10_000)
    assert world.at(2).get() == []
    world.link()
    assert world.holders(id) == []


def test_answers_that_mean_nothing(make_world: Make) -> None:
    """A5.1 If the job is unknown or not acked, nothing happens."""
    world = make_world(2, journal="off")
    id = spread(world, 2)
    say(world, 1, 0, GotAck(id, True, 3))
    say(world, 1, 0, GotAck(world.node(0).core.ids.make(60, 1), True, 3))
    assert world.states(id) == [QUEUED, ACTIVE]
    assert world.node(0).core.jobs[id].confirmed == 0
    assert [type(m) for _, _, m in world.heard()] == [GotAck, GotAck]


def test_who_is_no_holder_does_not_confirm(make_world: Make) -> None:
    """A5.2 The sender is confirmed in its current incarnation if it said known, or if it is a
    holder that has left a tombstone."""
    world = make_world(4, journal="off")
    id = spread(world, 2)
    world.hold(1, 0)
    assert ack(world, 0, id)
    say(world, 3, 0, GotAck(id, False, 0))
    job = world.node(0).core.jobs[id]
    assert job.confirmed == 1
    world.release(1, 0)
    assert world.holders(id) == []
    id = spread(world, 2)
    on_deljob(world.node(1).core, id)
    assert ack(world, 0, id)  # node 1 left a tombstone, and is a holder
    assert world.holders(id) == []


def test_tries_become_rare(make_world: Make) -> None:
    """A6.1 A2 is repeated after 1, 2, 4, ... 180 s + J, until the collection is done or the job
    expires."""
    world = make_world(2, journal="off", cluster_node_timeout=8_000_000)
    id = spread(world, 2, ttl=1000)
    world.hold(1, 0)
    assert ack(world, 0, id)
    times = [world.now_ms]
    while len(times) < 12:
        world.forget_heard()
        world.pass_ms(400)
        if (0, 1) in sent(world, SetAck):
            times.append(world.now_ms)
    steps = [b - a for a, b in pairwise(times)]
    for step, wanted in zip(steps, [1, 2, 4, 8, 16, 32, 64, 128, 180, 180, 180], strict=True):
        assert wanted * 1000 <= step <= wanted * 1000 + 700
    world.pass_ms(300_000)
    assert id not in world.node(0).core.jobs
    assert world.node(0).core.ledger.gc_acked == 1
    assert world.node(0).core.ledger.expired == 0


def test_a_link_that_comes_up_is_used_at_once(make_world: Make) -> None:
    """A6.2 On a new link its node at once gets SETACK of acked jobs that it has not confirmed,
    and DELJOB of tombstones that wait for it.
    """
    world = make_world(3, journal="off")
    ids = [spread(world, 3) for _ in range(20)]
    world.isolate(2)
    for id in ids[:10]:
        assert ack(world, 0, id)
    for id in ids[10:]:
        assert on_fastack(world.node(0).core, id)
    world.pass_ms(200_000)
    assert len(world.holders(ids[0])) == 3
    assert world.holders(ids[19]) == [2]
    world.link()
    assert all(world.holders(id) == [] for id in ids)


def test_many_missed_ends(make_world: Make) -> None:
    """A6.2 On a new link its node at once gets SETACK of acked jobs that it has not confirmed,
    and DELJOB of tombstones that wait for it.
    """
    world = make_world(2, journal="off", bus_buffer_limit="1mb")
    n = world.node(0).core
    ids = [world.at(0).add(replicate=2) for _ in range(30)]
    world.isolate(1)
    for id in ids:
        assert on_fastack(n, id)
    world.link(0, 1)
    assert not world.node(1).core.jobs
    ids = [world.at(0).add(replicate=2) for _ in range(30)]
    world.fill(0, 1)
    for id in ids:
        assert on_fastack(n, id)
    world.forget_heard()
    world.pass_ms(1_000)
    assert sent(world, DelJob) == []  # no room: they wait
    assert len(world.node(1).core.jobs) == 30
    world.release(0, 1)
    assert not world.node(1).core.jobs


def test_fastack_ends_at_once(make_world: Make) -> None:
    """A7.1 Known: the job is acked (A1) and at once unregistered here with cause gc-acked.
    (cluster) DELJOB goes to every other holder."""
    world = make_world(3, journal="off")
    id = spread(world, 3)
    assert on_fastack(world.node(1).core, id)
    assert id not in world.node(1).core.jobs
    world.settle()
    assert sent(world, DelJob) == [(1, 0), (1, 2)]
    assert sent(world, SetAck) == []
    assert world.holders(id) == []
    assert not on_fastack(world.node(1).core, id)


def test_deleting_a_copy_says_nothing(make_world: Make) -> None:
    """A9.1 No message is sent."""
    world = make_world(3, journal="off")
    id = spread(world, 3)
    assert on_deljob(world.node(0).core, id)
    world.settle()
    assert world.heard() == []
    assert world.holders(id) == [1, 2]


@pytest.mark.parametrize("state", ["queued", "active", "acked", "wait-repl", "unknown"])
def test_deljob_ends_any_state(make_world: Make, state: str) -> None:
    """A10.1 A known job is unregistered with cause gc-acked, whatever its state"""
    world = make_world(3, journal="off")
    if state == "wait-repl":
        world.hold(1, 0)
        world.hold(2, 0)
        id = world.at(0, 1).begin_add(replicate=2)
    else:
        id = spread(world, 2)
    if state == "active":
        assert world.at(0).get() == [id]
    elif state == "acked":
        world.hold(1, 0)
        assert ack(world, 0, id)
    elif state == "unknown":
        assert on_deljob(world.node(0).core, id)
    gone = world.node(0).core.ledger.gc_acked
    on_message(world.node(0).core, world.slot(0, 2), DelJob(id, 0, 60_000))
    assert id not in world.node(0).core.jobs
    assert world.node(0).core.tombs.has(id)
    assert world.node(0).core.ledger.gc_acked == gone + (state != "unknown")
    check(world.node(0).core)
    world.settle()
    if state == "wait-repl":
        assert world.at(0, 1).take() == id
        world.release(1, 0)
        world.release(2, 0)
    if state != "unknown":
        assert world.holders(id) == []


def test_deljob_reaches_holders_the_sender_did_not_know(make_world: Make) -> None:
    """A10.1 DELJOB also goes to holders that the sender did not name, and to nodes that have
    confirmed the ack to this one."""
    world = make_world(4, journal="off")
    id = spread(world, 3)
    world.node(0).core.jobs[id].holders &= ~(1 << world.slot(0, 2))
    assert on_fastack(world.node(0).core, id)
    world.settle()
    assert sent(world, DelJob) == [(0, 1), (1, 2)]
    assert world.holders(id) == []


def test_journal_of_an_ack(make_world: Make) -> None:
    """A1.3 (cluster) While other holders must still learn of the ack, the record names them, and a
    reload resumes A2."""
    world = make_world(3)
    id = spread(world, 3)
    for node in world.nodes:
        node.records()
    assert ack(world, 0, id)
    for node in world.nodes:
        assert [k for k in kinds(node) if k != PEER] == [ACKED_AT, REMOVE]
    id = spread(world, 3)
    for node in world.nodes:
        node.records()
    assert on_fastack(world.node(0).core, id)
    world.settle()
    for node in world.nodes:
        assert kinds(node) == [ACK]


def test_one_event_for_a_job(make_world: Make) -> None:
    """E1.5 (cluster) added is written by the origin, acked by the node that got ACKJOB, expired by
    the node where the job is queued or was delivered, else by the origin: one row per job, not one
    per copy."""
    world = make_world(3, journal="off")
    for n in world.cores:
        n.events = Events(100, 1)
    id = spread(world, 3)
    assert ack(world, 1, id)
    kept = spread(world, 3, ttl=2)
    world.pass_ms(3_000)
    rows: dict[bytes, list[int]] = {id: [], kept: []}
    for n in world.cores:
        assert n.events is not None
        told = Told(n.events.open)
        assert set(told.size) <= {len(b"body")}, "an end is told while the body is there"
        for job_id, kind in zip(told.job_ids, told.kinds, strict=True):
            rows[job_id].append(kind)
    assert rows[id] == [0, 2]  # added, acked
    assert rows[kept] == [0, 5]  # added, expired


def test_what_show_tells(make_world: Make) -> None:
    """S1.2 An acked job: body null. (cluster) nodes-delivered are the holders; nodes-confirmed
    is empty unless the job is in wait-repl or acked.
    """
    world = make_world(3, journal="off")
    id = spread(world, 3)
    n = world.node(0).core
    fields = show(n, n.jobs[id])
    delivered = fields["nodes-delivered"]
    assert isinstance(delivered, list)
    assert sorted(delivered) == sorted(o.node_id for o in world.cores)
    assert fields["nodes-confirmed"] == []
    assert fields["body"] == b"body"
    world.isolate(2)
    assert ack(world, 1, id)
    fields = show(n, n.jobs[id])
    assert fields["state"] == b"acked"
    assert fields["body"] is None
    assert fields["queue"] == b"q"
    confirmed = fields["nodes-confirmed"]
    assert confirmed == [n.node_id, world.node(1).core.node_id]


def test_dead_letter_of_a_job_with_copies(make_world: Make) -> None:
    """Q10.2 (cluster) This node adds the new job even when it takes no copies; copies are sent as
    with ASYNC."""
    for is_leaving in (False, True):
        world = make_world(3)
        id = spread(world, 3)
        assert world.at(0).get() == [id]
        n = world.node(0).core
        n.is_leaving = is_leaving
        world.node(0).records()
        world.forget_heard()
        dead = on_deadletter(n, n.jobs[id], b"dead", b"why")
        assert dead.state == QUEUED
        assert n.records is not None
        assert n.records.count >= 2  # both in the records of one turn
        world.settle()
        records = kinds(world.node(0))
        assert records.index(ACKED_AT) > records.index(ADD)
        assert world.holders(id) == []
        assert world.holders(dead.id) == ([1, 2] if is_leaving else [0, 1, 2])
        assert (0, 1) in sent(world, ReplJob)
        takers = (1, 2) if is_leaving else (0, 1, 2)
        for i in takers:
            world.at(i, 7).wait(b"dead")
        world.pass_ms(1_000)
        served = [id for i in takers for id in world.at(i, 7).served()]
        assert served == [dead.id]


def test_many_acks_in_a_turn(make_world: Make) -> None:
    """A2.3 (cluster) Otherwise SETACK with the holder set goes to each holder that is not
    confirmed."""
    # The messages of a turn grow with its acks, not with their square.
    world = make_world(3, journal="off")
    ids = [world.at(0).add(replicate=3) for _ in range(200)]
    world.forget_heard()
    for id in ids:
        assert on_ackjob(world.node(2).core, id)
    world.settle()
    assert not any(n.jobs for n in world.cores)
    assert len(world.heard()) <= 6 * 200 + 6


def test_moved_clocks_are_no_acks(make_world: Make) -> None:
    """A5.1 If the job is unknown or not acked, nothing happens."""
    world = make_world(2, journal="off")
    id = spread(world, 2)
    say(world, 1, 0, Queued(id, 0))
    late = copy_of(world.node(1).core, world.slot(1, 0), world.node(1).core.jobs[id], 0)
    assert ack(world, 0, id)
    world.forget_heard()
    say(world, 1, 0, late)
    assert world.holders(id) == []
