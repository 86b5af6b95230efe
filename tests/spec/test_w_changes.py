"""SPEC W10 and W16: the holders of a job agree before it is changed or cancelled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tuque.core.copies.federation import on_needjobs
from tuque.core.dispatch.messages import on_message
from tuque.core.life.cancel_update import (
    DECIDE,
    ENDED,
    FLAGGED,
    OVER,
    on_cancel,
    on_update,
)
from tuque.core.life.outcomes import on_done
from tuque.core.life.runs import on_fail, on_release
from tuque.core.life.start import on_start
from tuque.core.model.errors import (
    ACKED_ALREADY,
    ATWORK,
    CANCELLED_JOB,
    DEAD_LETTER,
    DELIVERED_OUT,
    NOT_ASKED,
    RESTING,
)
from tuque.core.model.job import ACTIVE, QUEUED, WAIT_REPL, Update
from tuque.core.msgs.bus import JobAsk, LifeAt, NeedJobs, UpdateAt
from tuque.core.node.peers import rank
from tuque.core.queues.requeue import on_enqueue, on_nack
from tuque.core.tables.work import Change
from world import World
from world_lives import add, at, cancel, fail, got_at, life, phases, start, stranger

Make = Callable[..., World]


def changed(body: bytes | None = b"new", delay_ms: int = -1) -> Update:
    """An UPDATEJOB."""
    update = Update()
    update.body, update.delay_ms = body, delay_ms
    return update


def begin(world: World, i: int, id: bytes, update: Update | None = None) -> Change:
    """UPDATEJOB at node i, which waits for the holders."""
    refused, change = on_update(at(world, i), id, update or changed())
    assert refused is None and change is not None
    return change


def update(world: World, i: int, id: bytes, update: Update | None = None) -> int:
    """UPDATEJOB at node i; the code of its error, -1 for OK."""
    refused, change = on_update(at(world, i), id, update or changed())
    world.settle()
    if change is not None:
        assert change.is_over
        refused = change.refused
    return -1 if refused is None else int(refused.code)


def bodies(world: World, id: bytes) -> list[bytes]:
    """The body at each node."""
    return [n.jobs[id].body for n in world.cores]


def nothing_under_way(world: World) -> bool:
    """Whether no node waits for holders."""
    return not any(n.life.updates for n in world.cores)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_update_at_any_holder(make_world: Make, where: int) -> None:
    """W10.3 (cluster) Of a job with copies one holder decides (W16). OK comes when all holders in
    reach have the change.
    """
    world = make_world(3, journal="off")
    first, id, last = add(world), add(world), add(world)
    due = [n.jobs[id].qtime_ms for n in world.cores]
    jobs_in = at(world, 0).queues[b"q"].jobs_in
    wanted = changed()
    wanted.headers, wanted.attempts, wanted.ttl_ms = b"\x01h\x01\x00w", 9, 60_000
    assert update(world, where, id, wanted) == -1
    assert bodies(world, id) == [b"new"] * 3 and nothing_under_way(world)
    for i, n in enumerate(world.cores):
        assert life(world, i, id).headers == b"\x01h\x01\x00w"
        assert life(world, i, id).terms.attempts == 9
        assert n.jobs[id].expire_ms == n.now_ms + 60_000
        assert n.jobs[id].nacks == n.jobs[id].deliveries == 0
    assert at(world, 0).queues[b"q"].jobs_in == jobs_in
    assert due[1:] == [n.jobs[id].qtime_ms for n in world.cores[1:]]
    assert world.at(0).get() + world.at(0).get() + world.at(0).get() == [first, id, last]


@pytest.mark.parametrize("where", [1, 2])
def test_update_of_a_job_that_another_node_handed_out(make_world: Make, where: int) -> None:
    """W16.2 If it is not queued and does not rest, UPDATEJOB gets the error, and nothing is
    changed.

    W16.8 Otherwise the reply is `flagged`.
    """
    world = make_world(3, journal="off")
    id = add(world)
    assert world.at(0).get() == [id]  # nobody else has heard of it
    due = [n.jobs[id].qtime_ms for n in world.cores]
    assert update(world, where, id) == DELIVERED_OUT
    assert bodies(world, id) == [b"body"] * 3 and nothing_under_way(world)
    assert due == [n.jobs[id].qtime_ms for n in world.cores]
    assert on_start(at(world, 0), id, b"w", 7) is None
    assert update(world, where, id) == ATWORK
    assert cancel(world, where, id) == FLAGGED
    world.pass_ms(60)
    assert life(world, 0, id).is_cancelled and phases(world, id) == ["running"] * 3
    assert on_done(at(world, 0), id, life(world, 0, id).run, b"42")
    world.settle()
    assert phases(world, id) == ["done"] * 3
    assert update(world, where, id) == ACKED_ALREADY
    assert cancel(world, where, id) == OVER


def test_a_job_handed_out_again_at_once(make_world: Make) -> None:
    """W16.2 A holder answers that the job is queued there, that it rests, that a worker has it, or
    that it is over, dead or leased.
    """
    world = make_world(3, journal="off")
    id = add(world)
    world.at(0).get()
    assert on_release(at(world, 0), id, start(world, 0, id), 0)
    assert world.at(0).get() == [id]
    assert update(world, 2, id) == DELIVERED_OUT


def test_the_node_at_which_the_job_is_queued_decides(make_world: Make) -> None:
    """W16.1 Else it asks the other reachable holders, and the one at which the job is queued
    decides

    W16.3 The node that decides checks and changes the job, and sends LIFE with the body to the
    other reachable holders, which confirm it.
    """
    world = make_world(3, journal="off")
    id = add(world)
    change = begin(world, 2, id, changed(b"n" * 5_000))
    assert not change.is_over and at(world, 2).life.change_bytes > 5_000  # M1.1
    world.settle()
    assert change.is_over and change.refused is None
    assert bodies(world, id) == [b"n" * 5_000] * 3
    sent = [(a, b) for a, b, m in world.heard(LifeAt) if m.edit is not None]
    assert sorted(sent) == [(0, 1), (0, 2)]
    assert world.at(0).get() == [id]
    assert [n.life.change_bytes for n in world.cores] == [0, 0, 0] and nothing_under_way(world)


def test_a_job_that_is_handed_out_before_its_node_decides(make_world: Make) -> None:
    """W16.3 The node that decides checks and changes the job

    W10.2 Errors change nothing.
    """
    world = make_world(3, journal="off")
    id = add(world)
    world.hold(2, 0)
    change = begin(world, 2, id)
    assert world.at(0).get() == [id]
    world.release(2, 0)
    world.settle()
    assert change.refused is not None and change.refused.code == DELIVERED_OUT
    assert bodies(world, id) == [b"body"] * 3


def test_a_job_that_rests_everywhere(make_world: Make) -> None:
    """W16.1 if it is queued nowhere, the one of the highest rank (Q4.3)."""
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3, retry=30, delay=600)
    highest = max(range(3), key=lambda i: rank(id, at(world, i).node_id))
    for where in range(3):
        body = b"%d" % where
        assert update(world, where, id, changed(body)) == -1 and bodies(world, id) == [body] * 3
    senders = {a for a, _, m in world.heard(LifeAt) if m.edit is not None}
    assert senders == {highest}


def test_a_run_that_another_holder_began_in_that_moment(make_world: Make) -> None:
    """W16.3 A run that another holder began in that moment has the old body."""
    world = make_world(3, journal="off")
    id = add(world)
    assert world.at(0).get() == [id]
    on_nack(at(world, 0), id, 0)  # a late worker may still begin, at any holder
    world.settle()
    assert on_start(at(world, 2), id, b"late", 7) is None
    assert update(world, 0, id) == -1
    world.pass_ms(100)
    assert bodies(world, id) == [b"new"] * 3 and phases(world, id) == ["running"] * 3


def test_a_holder_that_has_not_heard_of_the_end(make_world: Make) -> None:
    """W16.8 If all holders say that no worker has it, the node ends it: `ended`."""
    world = make_world(3, journal="off")
    id, wire = add(world), world.wire(2)
    world.hold(1, 2)
    wire.send("CANCEL", id)
    world.hold(2, 0)  # it is flagged at node 0, which has said so
    assert wire.take() is None
    world.release(1, 2)
    assert wire.take() == [b"ended"]
    assert world.at(0).get() == []
    assert str(world.at(0)("WORKING", id, "-")).startswith("CANCELLED")
    assert [str(row).split()[0] for row in world.at(0)("START", id)] == ["CANCELLED"]


def test_a_holder_of_a_cancelled_job_that_is_cut_off(make_world: Make) -> None:
    """W16.8 Where no worker has it, it leaves its queue, enters none, and ends as cancelled after
    RETRY.

    W16.4 A holder that does not answer within 0.8 s counts as one that refused
    """
    world = make_world(3, journal="off")
    id = add(world, retry_s=5)
    world.hold(1, 2)
    _, _, change = on_cancel(at(world, 2), id, b"why")
    world.settle()
    world.pass_ms(790)
    assert change is not None and not change.is_over
    world.pass_ms(20)
    assert change.is_over and change.became == FLAGGED
    for i in range(3):
        world.isolate(i)
        assert world.at(i).get() == []
    world.pass_ms(5_500)
    assert phases(world, id) == ["cancelled"] * 3


def test_a_move_that_crosses_a_cancel(make_world: Make) -> None:
    """W16.8 Where no worker has it, it leaves its queue, enters none, and ends as cancelled after
    RETRY.
    """
    world = make_world(3, journal="off")
    id, wire = add(world), world.wire(2)
    world.hold(0, 1)
    on_needjobs(at(world, 0), world.slot(0, 1), NeedJobs(b"q", 1, True))
    world.settle()
    assert world.states(id) == [ACTIVE] * 3, "node 0 has sent it to node 1"
    world.hold(1, 2)
    wire.send("CANCEL", id)
    world.hold(2, 1)  # it is flagged at node 1, which has said so
    world.hold(2, 0)
    world.release(1, 2)
    assert wire.take() == [b"ended"]
    world.release(0, 1)  # YOURJOBS arrives, sent before the flag came
    assert world.states(id)[1] == ACTIVE and world.at(1).get() == []
    world.release(2, 0)
    world.release(2, 1)
    world.pass_ms(100)
    assert phases(world, id) == ["cancelled"] * 3


def test_a_cancel_while_a_job_waits_for_its_copies(make_world: Make) -> None:
    """W16.8 Where no worker has it, it leaves its queue, enters none, and ends as cancelled after
    RETRY.
    """
    world = make_world(3, journal="off")
    world.hold(2, 0)
    id = world.at(0).begin_add(replicate=3, retry=5, timeout_ms=60_000)
    world.settle()
    assert at(world, 0).jobs[id].state == WAIT_REPL
    _, _, change = on_cancel(at(world, 1), id, b"why")
    world.hold(0, 1)  # it is flagged at node 0, which has said so
    world.settle()
    world.hold(1, 0)
    world.release(0, 1)
    assert change is not None and change.became == ENDED
    world.release(2, 0)
    world.settle()
    assert at(world, 0).jobs[id].state == ACTIVE and world.at(0, 5).get() == []


@pytest.mark.parametrize("is_there", [True, False])
def test_a_holder_that_the_asker_does_not_know(make_world: Make, is_there: bool) -> None:
    """W16.7 Each answer lists the holders that the node knows, and the asker then asks those
    that are new to it. A node without the job, or that waits for its copies, refuses.
    """
    world = make_world(4, journal="off")
    id = world.at(0).add(replicate=2, retry=30)
    _, other = world.holders(id)
    asker = stranger(world, id)
    world.hold(other, 0)
    change = begin(world, other, id)
    world.settle()
    world.hold(0, other)  # what node 0 says of the new holder is on its way, too
    if not is_there:
        world.hold(0, asker)
    on_needjobs(at(world, 0), world.slot(0, asker), NeedJobs(b"q", 1, True))
    world.settle()
    world.release(other, 0)
    world.settle()
    world.release(0, other)
    world.settle()
    assert change.is_over
    if is_there:
        assert change.refused is None
        assert at(world, asker).jobs[id].body == b"new"
    else:
        assert change.refused is not None and change.refused.code == NOT_ASKED
        world.release(0, asker)
        world.settle()
        assert {at(world, i).jobs[id].body for i in world.holders(id)} == {b"body"}


def test_a_back_off_holds_at_every_holder(make_world: Make) -> None:
    """W2.3 In its first delay or in a back-off, at any holder that has heard of it:
    `-NOTDELIVERED`.
    """
    world = make_world(3, journal="off")
    id = add(world)
    world.at(0).get()
    run = start(world, 0, id)
    assert on_fail(at(world, 0), id, run, 5_000, b"", b"", False)[2] is None
    world.settle()
    for i in range(3):
        refused = on_start(at(world, i), id, b"other", 9)
        assert refused is not None and refused.code == RESTING
    assert phases(world, id) == ["back-off"] * 3
    world.pass_ms(5_500)
    assert world.at(0).get() == [id]
    assert on_start(at(world, 2), id, b"other", 9) is None, "it was handed out again"


def test_a_cancelled_job_never_begins(make_world: Make) -> None:
    """W8.5 (cluster) A job with copies is flagged at its holders first (W16.8). After the reply
    `ended` no run of it begins.
    """
    world = make_world(3, journal="off")
    id = add(world)
    assert world.at(0).get() == [id]
    on_nack(at(world, 0), id, 0)  # queued again: a late worker may still begin
    world.settle()
    world.hold(0, 1)
    _, _, change = on_cancel(at(world, 1), id, b"why")
    world.settle()
    assert change is not None and not change.is_over
    world.release(0, 1)
    world.settle()
    assert change.is_over and change.became == ENDED
    world.hold(1, 0)
    world.hold(2, 0)
    refused = on_start(at(world, 0), id, b"late", 7)
    assert refused is not None and refused.code in (RESTING, CANCELLED_JOB)
    assert world.at(0).get() == []


def test_a_holder_that_does_not_answer(make_world: Make) -> None:
    """W16.4 A holder that does not answer within 0.8 s counts as one that refused; one whose link
    breaks is not waited for, nor one that confirms later.
    """
    world = make_world(3, journal="off")
    id = add(world)
    world.hold(2, 1)
    change = begin(world, 1, id)
    world.settle()
    world.pass_ms(790)
    assert not change.is_over
    world.pass_ms(20)
    assert change.refused is not None and change.refused.code == NOT_ASKED
    world.release(2, 1)
    world.settle()
    assert bodies(world, id) == [b"body"] * 3 and nothing_under_way(world)
    world.hold(0, 2)
    change = begin(world, 1, id)
    world.settle()
    assert not change.is_over and bodies(world, id) == [b"new", b"new", b"body"]
    world.pass_ms(810)
    assert change.is_over and change.refused is None and nothing_under_way(world)
    world.release(0, 2)
    world.settle()
    assert bodies(world, id) == [b"new"] * 3

    world = make_world(3, journal="off")
    id = add(world)
    world.hold(2, 1)
    change = begin(world, 1, id)
    world.settle()
    world.cut(1, 2)
    world.settle()
    assert change.is_over and change.refused is None
    assert bodies(world, id) == [b"new"] * 3


def test_a_node_that_has_just_started_has_no_links(make_world: Make) -> None:
    """W16.9 A holder without a link that Q11.2 waits for counts as one that has not answered, and
    is asked once it is linked. Until then this node decides about no UPDATEJOB.
    """
    world = make_world(3)
    id, other = add(world), add(world)
    world.restart(1)
    cancelling, updating = world.wire(1), world.wire(1)
    cancelling.send("CANCEL", id)
    updating.send("UPDATEJOB", other, "BODY", "new")
    world.pass_ms(400)
    world.link(1, 2)
    world.settle()
    assert cancelling.take() is None and updating.take() is None
    world.link()
    world.settle()
    assert cancelling.take() == [b"ended"] and updating.take() == b"OK"
    assert bodies(world, other) == [b"new"] * 3 and world.at(0).get() == [other]

    id = add(world)
    world.restart(1)
    cancelling = world.wire(1)
    cancelling.send("CANCEL", id)
    assert world.at(0).get() == [id]
    world.link()
    world.settle()
    assert cancelling.take() == [b"flagged"]

    id, other = add(world), add(world)
    world.restart(1)
    cancelling, updating = world.wire(1), world.wire(1)
    cancelling.send("CANCEL", id)
    updating.send("UPDATEJOB", other, "BODY", "new")
    world.pass_ms(810)
    assert cancelling.take() == [b"flagged"] and "NOREPL" in str(updating.take())
    assert bodies(world, other) == [b"body"] * 3

    world = make_world(3)
    id = world.at(0).add(replicate=3, retry=30, delay=600)
    highest = max(range(3), key=lambda i: rank(id, at(world, i).node_id))
    asker = (highest + 1) % 3
    world.restart(highest)
    world.link(asker, highest)
    assert update(world, asker, id) == NOT_ASKED
    assert len(set(bodies(world, id))) == 1
    world.link()
    assert update(world, asker, id) == -1 and bodies(world, id) == [b"new"] * 3


@pytest.mark.parametrize("is_cut", [False, True])
def test_the_node_that_decides_does_not_answer(make_world: Make, is_cut: bool) -> None:
    """W16.5 If the node that decides does not answer, UPDATEJOB gets an error of its own: the
    change may still be made.
    """
    world = make_world(3, journal="off")
    id, wire = add(world), world.wire(1)
    world.hold(1, 2)
    wire.send("UPDATEJOB", id, "BODY", "new")
    world.hold(1, 0)  # it has said that the job is queued there
    world.release(1, 2)
    assert wire.take() is None
    if is_cut:
        world.cut(0, 1)
    else:
        world.pass_ms(1_590)
        assert wire.take() is None
        world.pass_ms(20)
    assert "it may still be made" in str(wire.take())
    world.release(1, 0)
    world.settle()
    assert bodies(world, id) == [b"body" if is_cut else b"new"] * 3 and nothing_under_way(world)


def test_the_asker_dies(make_world: Make) -> None:
    """W16.6 LIFE has the number of the last change. A node with an older one gets the change, with
    the body.
    """
    world = make_world(3, journal="off")
    id = add(world)
    world.hold(0, 1)
    begin(world, 1, id)
    world.hold(0, 2)
    world.release(0, 1)
    world.hold(0, 1)  # the holder that decides has made it, and nobody has heard of that
    world.kill(1)
    world.start(1)
    world.release(0, 2)
    world.link()
    world.pass_ms(200)
    assert nothing_under_way(world) and len(set(bodies(world, id))) == 1
    assert world.at(0).get() == [id]


def test_two_clients_at_once(make_world: Make) -> None:
    """W16.1 Else it asks the other reachable holders, and the one at which the job is queued
    decides
    """
    world = make_world(3, journal="off")
    id = add(world)
    several = [begin(world, i, id, changed(b"%d" % i)) for i in (1, 2, 1, 2)]
    world.settle()
    assert all(c.is_over and c.refused is None for c in several)
    assert len(set(bodies(world, id))) == 1 and nothing_under_way(world)
    assert world.at(0).get() == [id]

    id = add(world)
    both = [on_cancel(at(world, i), id, b"why")[2] for i in (1, 2)]
    world.settle()
    for c in both:
        assert c is not None and c.is_over and c.became == ENDED
    assert phases(world, id) == ["cancelled"] * 3


def test_cancel_while_it_is_changed(make_world: Make) -> None:
    """W16.8 CANCEL flags the job at its node and at each other reachable holder, for good."""
    for where in range(3):
        world = make_world(3, journal="off")
        id = add(world)
        begin(world, 1, id)
        _, _, change = on_cancel(at(world, where), id, b"why")
        world.settle()
        world.pass_ms(200)
        assert change is not None and change.is_over and change.became == ENDED
        assert phases(world, id) == ["cancelled"] * 3, where


def test_an_edit_that_a_node_missed(make_world: Make) -> None:
    """W16.6 LIFE has the number of the last change. A node with an older one gets the change, with
    the body.

    W10.3 Of two changes that two sides of a cut made, the one with the higher number counts."""
    world = make_world(3, journal="off")
    id = add(world)
    world.isolate(2)
    assert update(world, 1, id) == -1
    assert bodies(world, id) == [b"new", b"new", b"body"]
    world.link()
    world.settle()
    world.pass_ms(100)
    assert bodies(world, id) == [b"new"] * 3
    world.isolate(2)
    assert update(world, 1, id, changed(b"left")) == -1
    assert update(world, 2, id, changed(b"right")) == -1
    world.link()
    world.settle()
    world.pass_ms(100)
    assert len(set(bodies(world, id))) == 1 and bodies(world, id)[0] in (b"left", b"right")


@pytest.mark.parametrize("age_ms", [0, 600, 25_000])
@pytest.mark.parametrize("seed", range(1, 7))
def test_a_worker_out_of_reach(make_world: Make, seed: int, age_ms: int) -> None:
    """W16.4 If a holder is unreachable and this node heard that a worker has the job, a worker
    has it

    Q9.3 From then on this node knows that a worker of another node has the job (Q12.2, R8.1,
    W16.4), even if the due time is later already, or the job waits for its copies here.
    """
    world = make_world(3, journal="off", seed=seed)
    id = add(world)
    world.pass_ms(age_ms)
    assert world.at(0).get() == [id]
    world.pass_ms(600)
    world.isolate(0)
    assert update(world, 1, id) == DELIVERED_OUT
    assert cancel(world, 2, id) == FLAGGED
    assert bodies(world, id) == [b"body"] * 3


@pytest.mark.parametrize("retry_s", [2, 30])
def test_a_worker_out_of_reach_and_little_time_left(make_world: Make, retry_s: int) -> None:
    """W16.4 until the due time, and after that."""
    world = make_world(3, journal="off")
    id = add(world, retry_s=retry_s)
    assert world.at(0).get() == [id]
    world.pass_ms(600)
    due = [n.jobs[id].qtime_ms for n in world.cores]
    assert update(world, 1, id) == DELIVERED_OUT
    assert [n.jobs[id].qtime_ms for n in world.cores] == due
    world.pass_ms((retry_s - 2) * 1_000)
    world.isolate(0)
    assert update(world, 2, id) == DELIVERED_OUT
    assert update(world, 1, id) == DELIVERED_OUT
    assert cancel(world, 2, id) == FLAGGED
    assert bodies(world, id) == [b"body"] * 3


@pytest.mark.parametrize("where", [0, 1])
def test_delay_of_a_job_with_copies(make_world: Make, where: int) -> None:
    """W10.1 DELAY counts from now; 0 queues it."""
    world = make_world(3, journal="off")
    id = add(world)
    assert update(world, where, id, changed(None, 10_000)) == -1
    world.pass_ms(9_000)
    assert [world.at(i).get() for i in range(3)] == [[], [], []]
    world.pass_ms(1_500)
    got_at(world, id, 0, 1, 2)
    world.pass_ms(5_000)
    assert [world.at(i).get() for i in range(3)] == [[], [], []]
    world = make_world(3, journal="off")
    id = add(world)
    assert update(world, where, id, changed(None, 10_000)) == -1
    assert update(world, 2, id, changed(None, 0)) == -1
    assert sorted(world.states(id)) == [ACTIVE, ACTIVE, QUEUED]
    got_at(world, id, 0, 1, 2)
    assert [world.at(i).get() for i in range(3)] == [[], [], []]


def test_update_in_a_back_off(make_world: Make) -> None:
    """W10.1 Changes a job that is scheduled, waiting or in a back-off."""
    world = make_world(3, journal="off")
    id = add(world)
    assert world.at(0).get() == [id]
    fail(world, 0, id, start(world, 0, id))
    due_ms = at(world, 0).jobs[id].qtime_ms
    assert update(world, 1, id) == -1 and bodies(world, id) == [b"new"] * 3
    assert max(due_ms, world.now_ms + 1) >= at(world, 0).jobs[id].qtime_ms
    world.pass_ms(2_000)
    assert world.at(0).get() == [id]
    fail(world, 0, id, start(world, 0, id), is_final=True)
    assert update(world, 1, id) == DEAD_LETTER
    assert cancel(world, 1, id) == ENDED
    assert phases(world, id) == ["cancelled"] * 3


@pytest.mark.parametrize("by", ["NACK", "RELEASE", "FAIL", "RELEASE -"])
def test_update_of_a_job_that_its_worker_gave_back_at_a_node_out_of_reach(
    make_world: Make, by: str
) -> None:
    """W4.2 The other holders do not act on the job for DELAY + retry + J (Q9), and hear that no
    worker has it. So do they in a back-off (W5.4).

    W10.1 Changes a job that is scheduled, waiting or in a back-off.
    """
    world = make_world(3, journal="off")
    id = add(world)
    wire = world.at(0)
    assert wire.get() == [id]
    run = b"-" if by in ("NACK", "RELEASE -") else wire("START", id)[0][0]
    world.pass_ms(100)
    if by == "NACK":
        wire("NACK", "DELAY", "20", id)
    elif by == "FAIL":
        wire("FAIL", id, run, "DELAY", "20")
    else:
        wire("RELEASE", "DELAY", "20", id, run)
    world.pass_ms(600)
    world.isolate(0)
    assert update(world, 1, id) == -1
    assert bodies(world, id)[1:] == [b"new"] * 2


def test_a_worker_out_of_reach_of_a_job_that_waits_for_copies(make_world: Make) -> None:
    """Q9.3 From then on this node knows that a worker of another node has the job (Q12.2, R8.1,
    W16.4), even if the due time is later already, or the job waits for its copies here.
    """
    world = make_world(3, journal="off")
    world.restart(2)
    id = world.at(0).begin_add(replicate=3, retry=30, timeout_ms=60_000)
    world.settle()
    assert on_enqueue(at(world, 1), id)
    assert world.at(1).get() == [id]
    world.pass_ms(600)
    assert at(world, 0).jobs[id].state == WAIT_REPL
    world.link()
    world.pass_ms(100)
    assert at(world, 0).jobs[id].state == ACTIVE
    world.isolate(1)
    assert update(world, 0, id) == DELIVERED_OUT


def test_a_slow_holder_has_the_whole_time_for_the_change(make_world: Make) -> None:
    """W10.3 OK comes when all holders in reach have the change."""
    world = make_world(3, journal="off")
    id = add(world)
    world.hold(1, 2)
    change = begin(world, 2, id)
    world.pass_ms(700)
    world.hold(1, 0)
    world.release(1, 2)
    world.settle()
    assert bodies(world, id) == [b"new"] * 3 and not change.is_over, "node 1 has not confirmed it"
    world.pass_ms(500)
    assert not change.is_over
    world.release(1, 0)
    world.settle()
    assert change.is_over and change.refused is None


def test_a_holder_that_waits_for_its_copies_refuses(make_world: Make) -> None:
    """W16.7 A node without the job, or that waits for its copies, refuses."""
    world = make_world(3, journal="off")
    world.kill(2)
    id = world.at(0).begin_add(replicate=3, retry=30, timeout_ms=60_000)
    world.settle()
    assert at(world, 0).jobs[id].state == WAIT_REPL
    assert update(world, 1, id) == NOT_ASKED
    assert at(world, 0).jobs[id].body == at(world, 1).jobs[id].body == b"body"


def test_headers_that_are_none(make_world: Make) -> None:
    """B2.1 every field against its range before a rule sees it."""
    world = make_world(3, journal="off")
    id = add(world)
    n, slot = at(world, 0), world.slot(0, 1)
    on_message(n, slot, JobAsk(id, DECIDE, b"", 5, UpdateAt(-1, -1, -1, b"new", b"\xff")))
    world.settle()
    assert bodies(world, id) == [b"body"] * 3
    on_message(n, slot, JobAsk(id, DECIDE, b"", 5, UpdateAt(-1, -1, -1, b"new", None)))
    world.settle()
    assert bodies(world, id) == [b"new"] * 3
