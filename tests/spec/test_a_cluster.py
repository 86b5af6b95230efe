"""SPEC A with several nodes: acks reach every holder, and then nothing is left of the job."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cluster_lab import Lab, external_twice
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
from tuque.core.msgs import (
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
    Records,
)
from tuque.core.records.read import Record, decode


def sent(lab: Lab, kind: type) -> list[tuple[int, int]]:
    """From where to where messages of that kind went, in order."""
    return [(a, b) for a, b, m in lab.log if isinstance(m, kind)]


def ack(lab: Lab, i: int, id: bytes) -> bool:
    """ACKJOB at node i, and all that follows."""
    lab.nodes[i].now_ms = lab.now_ms
    done = on_ackjob(lab.nodes[i], id)
    lab.run()
    return done


def say(lab: Lab, a: int, b: int, message: AnyMessage) -> None:
    """Node a says something to node b; its own slot numbers have been introduced."""
    peer = lab.nodes[a].peers[lab.slot(a, b)]
    peer.outbox.append(message)
    if not peer.is_dirty:
        peer.is_dirty = True
        lab.nodes[a].dirty_peers.append(peer)
    lab.run()


def kinds(records: Records) -> list[int]:
    """What was written to the journal since the last look."""
    payload, at, found = records.take(), 0, []
    while at < len(payload):
        record = Record()
        at = decode(payload, at, record)
        found.append(int(record.kind))
    return found


def spread(lab: Lab, count: int, **options: int) -> bytes:
    """A job with copies on that many nodes, from 0 on."""
    for i in range(count, len(lab.nodes)):
        lab.isolate(i)
    id = lab.add(0, replicate=count, **options)
    lab.heal()
    lab.run()
    lab.log.clear()
    return id


def test_an_ack_ends_the_job_everywhere() -> None:
    """A2.3 (cluster) Otherwise SETACK with the holder set goes to each holder that is not
    confirmed."""
    # A5.4 When A2.1 holds, DELJOB goes to all other holders and the job is unregistered.
    lab = Lab(4)
    id = spread(lab, 3)
    assert ack(lab, 1, id)
    assert sorted(sent(lab, SetAck)) == [(1, 0), (1, 2)]
    assert sorted(sent(lab, GotAck)) == [(0, 1), (2, 1)]
    assert sorted(sent(lab, DelJob)) == [(1, 0), (1, 2)]
    assert lab.holders_of(id) == []
    assert [int(n.ledger.gc_acked) for n in lab.nodes] == [1, 1, 1, 0]
    assert all(not n.acked for n in lab.nodes)


def test_two_holders_need_no_third_word() -> None:
    """A4.3 A sender that named holders is confirmed. If A2.1 then holds, the reply is DELJOB
    (A5.4)."""
    lab = Lab(2)
    id = spread(lab, 2)
    assert ack(lab, 0, id)
    assert [type(m) for _, _, m in lab.log if not isinstance(m, Slots)] == [SetAck, DelJob]
    assert lab.holders_of(id) == []


def test_a_holder_that_is_away_is_waited_for() -> None:
    """A2.1 If every holder is confirmed, forgotten nodes aside, the job is unregistered with cause
    gc-acked."""
    lab = Lab(3)
    id = spread(lab, 3, retry_s=1)
    lab.isolate(2)
    assert ack(lab, 0, id)
    assert lab.states_of(id)[:2] == [ACKED, ACKED]
    lab.pass_ms(700)
    lab.heal()
    lab.run()
    assert lab.holders_of(id) == []
    lab.pass_ms(10_000)
    assert lab.get(2) == []


def test_the_body_goes_at_once() -> None:
    """A1.4 The body is freed at once."""
    lab = Lab(2)
    n = lab.nodes[0]
    spec = AddSpec()
    spec.replicate = 2
    job = on_addjob(n, b"q", b"x" * 10_000, settle(n, spec))
    lab.run()
    lab.isolate(1)
    before = n.used_bytes()
    assert ack(lab, 0, job.id)
    assert job.body == b""
    assert before - 10_100 < n.used_bytes() < before - 9_900
    assert lab.get(0) == []


def test_producer_gets_its_id() -> None:
    """A1.6 (cluster) A producer that still waits for the job gets its id."""
    for acker in (0, 1):
        lab = Lab(2)
        lab.hold(1, 0)
        job, _ = lab.try_add(0, b"q", replicate=2)
        assert job is not None
        lab.run()
        assert job.state == WAIT_REPL
        lab.release(1, 0) if acker == 1 else None
        if acker == 1:  # the copy is acked before its GOTJOB arrives
            lab.wires[1, 0].clear()
        assert ack(lab, acker, job.id)
        assert [(a.id, a.error) for a in lab.told[0]] == [(job.id, None)]
        lab.release(1, 0)
        lab.pass_ms(5_000)
        assert lab.holders_of(job.id) == []


def test_an_external_job_is_acked_where_it_was_added() -> None:
    """A4.2 Known: the holder sets are merged. A job in wait-repl counts as complete (A1.6). Then
    A1."""
    lab = Lab(3)
    lab.nodes[0].is_leaving = True
    lab.hold(1, 0)
    lab.hold(2, 0)
    job, _ = lab.try_add(0, b"q", replicate=2)
    assert job is not None
    lab.run()
    assert lab.states_of(job.id) == [WAIT_REPL, ACTIVE, ACTIVE]
    lab.release(1, 0)
    lab.wires[1, 0].clear()  # its GOTJOB is lost
    assert ack(lab, 1, job.id)
    assert [a.id for a in lab.told[0]] == [job.id]
    lab.release(2, 0)
    lab.pass_ms(3_000)
    assert lab.holders_of(job.id) == []


@pytest.mark.parametrize("is_fast", [False, True])
@pytest.mark.parametrize("is_there", [False, True])
def test_an_ack_finds_the_custody(is_fast: bool, is_there: bool) -> None:
    """A1.7 (cluster) If this node has a copy of an AMO job without custody, it first adds every
    known node, except forgotten ones, to the holder set: custody may have moved to a node that this
    one does not know as a holder (R6.2, F2.3)."""
    lab = Lab(4)
    lab.isolate(3)
    id = external_twice(lab)
    assert lab.states_of(id)[3] == -1
    lab.heal()
    if not is_there:
        lab.hold(1, 3)  # on its way when the ack is heard of
    lab.nodes[3].now_ms = lab.now_ms
    say(lab, 3, 1, NeedJobs(b"q", 1, True))
    assert lab.states_of(id) == ([-1, -1, ACTIVE, QUEUED] if is_there else [-1, 1, 1, -1])
    if is_fast:
        assert on_fastack(lab.nodes[2], id)
    else:
        assert on_ackjob(lab.nodes[2], id)
    lab.run()
    if not is_there:
        lab.release(1, 3)
        lab.run()
    assert lab.get(3) == []
    lab.pass_ms(3_000)
    assert lab.holders_of(id) == []


def test_acked_again() -> None:
    """A3.2 For an acked one: A2. It does not count."""
    lab = Lab(3)
    id = spread(lab, 3)
    lab.hold(2, 0)
    assert ack(lab, 0, id)
    lab.log.clear()
    assert not ack(lab, 0, id)
    assert sent(lab, SetAck) == [(0, 2)]
    assert not ack(lab, 1, id)
    lab.release(2, 0)
    lab.run()
    assert lab.holders_of(id) == []


def test_who_knows_of_more_holders_asks_them() -> None:
    """A4.4 If this node knows holders that the sender did not name, it collects too (A2)."""
    lab = Lab(4)
    id = spread(lab, 3)
    lab.nodes[0].jobs[id].holders &= ~(1 << lab.slot(0, 2))
    lab.cut(0, 2)
    assert ack(lab, 0, id)
    assert (1, 2) in sent(lab, SetAck)
    assert lab.nodes[2].jobs.get(id) is None or lab.nodes[2].jobs[id].state == ACKED
    lab.pass_ms(10_000)
    assert lab.get(2) == []
    lab.heal()
    lab.run()
    assert lab.holders_of(id) == []


def test_answers_that_mean_nothing() -> None:
    """A5.1 If the job is unknown or not acked, nothing happens."""
    lab = Lab(2)
    id = spread(lab, 2)
    say(lab, 1, 0, GotAck(id, True, 3))
    say(lab, 1, 0, GotAck(lab.nodes[0].ids.make(60, 1), True, 3))
    assert lab.states_of(id) == [QUEUED, ACTIVE]
    assert lab.nodes[0].jobs[id].confirmed == 0
    assert [type(m) for _, _, m in lab.log] == [GotAck, GotAck]


def test_who_is_no_holder_does_not_confirm() -> None:
    """A5.2 The sender is confirmed in its current incarnation if it said known, or if it is a
    holder that has left a tombstone."""
    lab = Lab(4)
    id = spread(lab, 2)
    lab.hold(1, 0)
    assert ack(lab, 0, id)
    say(lab, 3, 0, GotAck(id, False, 0))
    job = lab.nodes[0].jobs[id]
    assert job.confirmed == 1
    lab.release(1, 0)
    lab.run()
    assert lab.holders_of(id) == []
    id = spread(lab, 2)
    on_deljob(lab.nodes[1], id)
    assert ack(lab, 0, id)  # node 1 left a tombstone, and is a holder
    assert lab.holders_of(id) == []


def test_tries_become_rare() -> None:
    """A6.1 A2 is repeated after 1, 2, 4, ... 180 s + J, until the collection is done or the job
    expires."""
    lab = Lab(2)
    id = spread(lab, 2, ttl_s=3600)
    lab.hold(1, 0)
    lab.hold(0, 1)
    assert ack(lab, 0, id)
    times = [lab.now_ms]
    while len(times) < 12:
        before = len(lab.wires[0, 1])
        lab.pass_ms(100)
        if len(lab.wires[0, 1]) > before:
            times.append(lab.now_ms)
    steps = [b - a for a, b in pairwise(times)]
    for step, wanted in zip(steps, [1, 2, 4, 8, 16, 32, 64, 128, 180, 180, 180], strict=True):
        assert wanted * 1000 <= step <= wanted * 1000 + 700
    lab.pass_ms(3_600_000)
    assert id not in lab.nodes[0].jobs
    assert lab.nodes[0].ledger.gc_acked == 1
    assert lab.nodes[0].ledger.expired == 0


def test_a_link_that_comes_up_is_used_at_once() -> None:
    """A6.2 When a link comes up, its node at once gets what it may have missed: SETACK of acked
    jobs that it has not confirmed, and DELJOB of tombstones that wait for it."""
    lab = Lab(3)
    ids = [spread(lab, 3) for _ in range(20)]
    lab.isolate(2)
    for id in ids[:10]:
        assert ack(lab, 0, id)
    for id in ids[10:]:
        assert on_fastack(lab.nodes[0], id)
    lab.pass_ms(400_000)
    assert len(lab.holders_of(ids[0])) == 3
    assert lab.holders_of(ids[19]) == [2]
    lab.heal()
    lab.run()
    assert all(lab.holders_of(id) == [] for id in ids)


def test_many_missed_ends() -> None:
    """A6.2 When a link comes up, its node at once gets what it may have missed: SETACK of acked
    jobs that it has not confirmed, and DELJOB of tombstones that wait for it."""
    lab = Lab(2)
    n = lab.nodes[0]
    ids = [lab.add(0, replicate=2) for _ in range(30)]
    lab.isolate(1)
    for id in ids:
        assert on_fastack(n, id)
    lab.link(0, 1)
    lab.hold(0, 1)
    peer = n.peers[lab.slot(0, 1)]
    peer.has_room = False
    lab.pass_ms(1_000)
    assert len(lab.wires[0, 1]) <= 1  # no room: they wait
    peer.has_room = True
    lab.pass_ms(100)
    lab.release(0, 1)
    lab.run()
    assert not lab.nodes[1].jobs


def test_fastack_ends_at_once() -> None:
    """A7.1 Known: the job is acked (A1) and at once unregistered here with cause gc-acked.
    (cluster) DELJOB goes to every other holder."""
    lab = Lab(3)
    id = spread(lab, 3)
    assert on_fastack(lab.nodes[1], id)
    assert id not in lab.nodes[1].jobs
    lab.run()
    assert sent(lab, DelJob) == [(1, 0), (1, 2)]
    assert sent(lab, SetAck) == []
    assert lab.holders_of(id) == []
    assert not on_fastack(lab.nodes[1], id)


def test_deleting_a_copy_says_nothing() -> None:
    """A9.1 No message is sent."""
    lab = Lab(3)
    id = spread(lab, 3)
    assert on_deljob(lab.nodes[0], id)
    lab.run()
    assert lab.log == []
    assert lab.holders_of(id) == [1, 2]


@pytest.mark.parametrize("state", ["queued", "active", "acked", "wait-repl", "unknown"])
def test_deljob_ends_any_state(state: str) -> None:
    """A10.1 If the job is known, it is unregistered with cause gc-acked, whatever its state."""
    lab = Lab(3)
    if state == "wait-repl":
        job, _ = lab.try_add(0, b"q", replicate=2)
        assert job is not None
        id = job.id
    else:
        id = spread(lab, 2)
    if state == "active":
        assert lab.get(0) == [id]
    elif state == "acked":
        lab.hold(1, 0)
        assert ack(lab, 0, id)
    elif state == "unknown":
        assert on_deljob(lab.nodes[0], id)
    gone = lab.nodes[0].ledger.gc_acked
    on_message(lab.nodes[0], lab.slot(0, 2), DelJob(id, 0, 60_000))
    assert id not in lab.nodes[0].jobs
    assert lab.nodes[0].tombs.has(id)
    assert lab.nodes[0].ledger.gc_acked == gone + (state != "unknown")
    check(lab.nodes[0])
    lab.run()
    assert [a.error for a in lab.told[0]] == [None]
    if state != "unknown":
        assert lab.holders_of(id) == []


def test_deljob_reaches_holders_the_sender_did_not_know() -> None:
    """A10.1 DELJOB also goes to holders that the sender did not name, and to nodes that have
    confirmed the ack to this one."""
    lab = Lab(4)
    id = spread(lab, 3)
    lab.nodes[0].jobs[id].holders &= ~(1 << lab.slot(0, 2))
    assert on_fastack(lab.nodes[0], id)
    lab.run()
    assert sent(lab, DelJob) == [(0, 1), (1, 2)]
    assert lab.holders_of(id) == []


def test_journal_of_an_ack() -> None:
    """A1.3 (cluster) While other holders must still learn of the ack, the record names them, and a
    reload resumes A2."""
    lab = Lab(3)
    id = spread(lab, 3)
    for n in lab.nodes:
        n.records = Records(n.node_ids)
    assert ack(lab, 0, id)
    for n in lab.nodes:
        assert n.records is not None
        assert [k for k in kinds(n.records) if k != PEER] == [ACKED_AT, REMOVE]
    id = spread(lab, 3)
    for n in lab.nodes:
        assert n.records is not None
        n.records.take()
    assert on_fastack(lab.nodes[0], id)
    lab.run()
    for n in lab.nodes:
        assert n.records is not None
        assert kinds(n.records) == [ACK]


def test_one_event_for_a_job() -> None:
    """E1.5 (cluster) added is written by the origin, acked by the node that got ACKJOB, expired by
    the node where the job is queued or was delivered, else by the origin: one row per job, not one
    per copy."""
    lab = Lab(3)
    for n in lab.nodes:
        n.events = Events(100, 1)
    id = spread(lab, 3)
    assert ack(lab, 1, id)
    kept = spread(lab, 3, ttl_s=2)
    lab.pass_ms(3_000)
    rows: dict[bytes, list[int]] = {id: [], kept: []}
    for n in lab.nodes:
        assert n.events is not None
        told = Told(n.events.open)
        assert set(told.size) <= {len(b"body")}, "an end is told while the body is there"
        for job_id, kind in zip(told.job_ids, told.kinds, strict=True):
            rows[job_id].append(kind)
    assert rows[id] == [0, 2]  # added, acked
    assert rows[kept] == [0, 5]  # added, expired


def test_what_show_tells() -> None:
    """S1.2 An acked job shows its body as null. (cluster) nodes-delivered are the holders;
    nodes-confirmed is empty unless the job is in wait-repl or acked."""
    lab = Lab(3)
    id = spread(lab, 3)
    n = lab.nodes[0]
    fields = show(n, n.jobs[id])
    delivered = fields["nodes-delivered"]
    assert isinstance(delivered, list)
    assert sorted(delivered) == sorted(o.node_id for o in lab.nodes)
    assert fields["nodes-confirmed"] == []
    assert fields["body"] == b"body"
    lab.isolate(2)
    assert ack(lab, 1, id)
    fields = show(n, n.jobs[id])
    assert fields["state"] == b"acked"
    assert fields["body"] is None
    assert fields["queue"] == b"q"
    confirmed = fields["nodes-confirmed"]
    assert confirmed == [n.node_id, lab.nodes[1].node_id]


def test_dead_letter_of_a_job_with_copies() -> None:
    """Q10.2 (cluster) This node adds the new job even when it takes no copies; copies are sent as
    with ASYNC."""
    for is_leaving in (False, True):
        lab = Lab(3)
        id = spread(lab, 3)
        assert lab.get(0) == [id]
        n = lab.nodes[0]
        n.is_leaving = is_leaving
        n.records = Records(n.node_ids)
        lab.log.clear()
        dead = on_deadletter(n, n.jobs[id], b"dead", b"why")
        assert dead.state == QUEUED
        records = kinds(n.records)
        assert records.index(ACKED_AT) > records.index(ADD)  # both in the records of one turn
        lab.run()
        assert lab.holders_of(id) == []
        assert lab.holders_of(dead.id) == ([1, 2] if is_leaving else [0, 1, 2])
        assert (0, 1) in sent(lab, ReplJob)
        served = [id for i in range(3) for id in lab.get(i, b"dead")]
        assert served == [dead.id]


def test_many_acks_in_a_turn() -> None:
    """A2.3 (cluster) Otherwise SETACK with the holder set goes to each holder that is not
    confirmed."""
    # The messages of a turn grow with its acks, not with their square.
    lab = Lab(3)
    ids = [lab.add(0, replicate=3) for _ in range(200)]
    lab.log.clear()
    for id in ids:
        assert on_ackjob(lab.nodes[2], id)
    lab.run()
    assert not any(n.jobs for n in lab.nodes)
    assert len(lab.log) <= 6 * 200 + 6


def test_moved_clocks_are_no_acks() -> None:
    """A5.1 If the job is unknown or not acked, nothing happens."""
    lab = Lab(2)
    id = spread(lab, 2)
    say(lab, 1, 0, Queued(id, 0))
    late = copy_of(lab.nodes[1], lab.slot(1, 0), lab.nodes[1].jobs[id], 0)
    assert ack(lab, 0, id)
    lab.log.clear()
    say(lab, 1, 0, late)
    assert lab.holders_of(id) == []
