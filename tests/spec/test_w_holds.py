"""SPEC W10 and W16: a job with copies is held at its holders before it is changed or cancelled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tuque.core.copies.federation import on_needjobs
from tuque.core.life.cancel_update import (
    AGREED,
    ENDED,
    FLAGGED,
    HOLD_MS,
    OVER,
    hold,
    on_cancel,
    on_hold,
    on_update,
)
from tuque.core.life.outcomes import on_done, on_enqueue_of
from tuque.core.life.runs import on_fail, on_nack_of, on_release, on_work
from tuque.core.life.start import on_start
from tuque.core.model.errors import (
    ACKED_ALREADY,
    ATWORK,
    CANCELLED_JOB,
    CHANGING,
    DEAD_LETTER,
    DELIVERED_OUT,
    NOT_HELD,
    RESTING,
)
from tuque.core.model.job import ACTIVE, QUEUED, WAIT_REPL, Update
from tuque.core.model.work import run_of
from tuque.core.msgs.bus import NeedJobs
from tuque.core.queues.requeue import on_enqueue, on_nack
from tuque.core.queues.work_copies import edit_message
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


def nothing_held(world: World) -> bool:
    """Whether no node holds a job or waits for holders."""
    return not any(n.life.held or n.life.changes for n in world.cores)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_update_at_any_holder(make_world: Make, where: int) -> None:
    """W10.3 (cluster) A job with copies is held at its holders first (W16). OK comes when all
    holders in reach have the change.

    W16.5 A holder that lets the job go queues it again if it was queued; otherwise it is due as
    before. No counter grows.
    """
    world = make_world(3, journal="off")
    first, id, last = add(world), add(world), add(world)
    due = [n.jobs[id].qtime_ms for n in world.cores]
    jobs_in = at(world, 0).queues[b"q"].jobs_in
    wanted = changed()
    wanted.headers, wanted.attempts, wanted.ttl_s = b"\x01h\x01\x00w", 9, 60
    assert update(world, where, id, wanted) == -1
    assert bodies(world, id) == [b"new"] * 3 and nothing_held(world)
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
    """W16.3 If all hold the job, the change is sent to all. Otherwise nothing is changed, and
    UPDATEJOB gets the error.

    W16.8 Otherwise the reply is `flagged`.
    """
    world = make_world(3, journal="off")
    id = add(world)
    assert world.at(0).get() == [id]  # nobody else has heard of it
    due = [n.jobs[id].qtime_ms for n in world.cores]
    assert update(world, where, id) == DELIVERED_OUT
    assert bodies(world, id) == [b"body"] * 3 and nothing_held(world)
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
    """W16.2 A holder answers that it holds the job, that a worker has it, that it is over or
    dead, or that another client changes it.
    """
    world = make_world(3, journal="off")
    id = add(world)
    world.at(0).get()
    assert on_release(at(world, 0), id, start(world, 0, id), 0)
    assert world.at(0).get() == [id]
    assert update(world, 2, id) == DELIVERED_OUT


def test_nothing_begins_while_the_job_is_held(make_world: Make) -> None:
    """W16.1 UPDATEJOB asks each other reachable holder to hold the job, and its node holds its own
    copy. A held job is in no queue. START of it gets `-NOTDELIVERED`.
    """
    world = make_world(3, journal="off")
    id = add(world)
    change = begin(world, 2, id, changed(b"n" * 5_000))
    world.hold(1, 2)  # its answer waits
    world.settle()
    assert not change.is_over and at(world, 2).life.change_bytes > 5_000  # M1.1
    for i in range(3):
        assert world.at(i).get() == []
        refused = on_start(at(world, i), id, b"w", 7)
        assert refused is not None and refused.code == RESTING
        assert not on_enqueue_of(at(world, i), id)
    world.release(1, 2)
    world.settle()
    assert change.is_over and change.refused is None
    assert bodies(world, id) == [b"n" * 5_000] * 3
    got_at(world, id, 0, 1, 2)  # whoever asked for it first
    assert at(world, 2).life.change_bytes == 0


def test_words_of_a_late_worker_while_the_job_is_held(make_world: Make) -> None:
    """W16.1 A held job is in no queue. START of it gets `-NOTDELIVERED`, WORKING and FAIL get
    `-ATWORK`; RELEASE, NACK and ENQUEUE skip it.
    """
    world = make_world(3, journal="off")
    id = add(world, retry_s=1)
    assert world.at(0).get() == [id]
    world.pass_ms(2_000)
    change = begin(world, 2, id)
    world.hold(1, 2)
    world.settle()
    n = at(world, 0)
    for run in (0, run_of(1, 1, 7)):
        refused = on_work(n, id, run, 7)
        assert refused is not None and refused.code == CHANGING
    refused = on_fail(n, id, run_of(1, 1, 7), -1, b"", b"", False)[2]
    assert refused is not None and refused.code == CHANGING
    assert not on_release(n, id, 0, 0) and not on_nack_of(n, id, 0, 7)
    assert not world.at(0).get() and not change.is_over
    world.release(1, 2)
    world.settle()
    assert change.refused is None and bodies(world, id) == [b"new"] * 3


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
    """W16.8 Where no worker has it, it leaves its queue, and ends as cancelled after RETRY.

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


@pytest.mark.parametrize("is_there", [True, False])
def test_a_holder_that_the_asker_does_not_know(make_world: Make, is_there: bool) -> None:
    """W16.7 Each answer lists the holders that the node knows, and the asker then asks those
    that are new to it. A node without the job refuses: a copy may be on its way to it.
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
        assert change.refused is not None and change.refused.code == NOT_HELD
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
    breaks is not waited for.
    """
    world = make_world(3, journal="off")
    id = add(world)
    world.hold(1, 2)
    change = begin(world, 1, id)
    world.settle()
    world.pass_ms(790)
    assert not change.is_over
    world.pass_ms(20)
    assert change.refused is not None and change.refused.code == NOT_HELD
    world.release(1, 2)
    world.settle()
    world.pass_ms(HOLD_MS)
    assert bodies(world, id) == [b"body"] * 3 and nothing_held(world)
    assert world.at(0).get() == [id]

    world = make_world(3, journal="off")
    id = add(world)
    world.hold(1, 2)
    change = begin(world, 1, id)
    world.settle()
    world.cut(1, 2)
    assert change.is_made
    world.settle()
    assert change.is_over and change.refused is None
    assert bodies(world, id)[:2] == [b"new"] * 2


def test_the_asker_dies(make_world: Make) -> None:
    """W16.2 It holds the job for 2 s at most."""
    world = make_world(3, journal="off")
    id = add(world)
    world.hold(1, 2)
    begin(world, 1, id)
    world.settle()
    world.restart(1)
    world.pass_ms(HOLD_MS - 10)
    assert world.at(0).get() == []
    world.pass_ms(20)
    job = at(world, 0).jobs[id]
    assert job.state == QUEUED and job.body == b"body" and job.deliveries == 0
    assert world.at(0).get() == [id]
    world.pass_ms(5_000)
    assert world.at(2).get() == []


def test_two_clients_at_once(make_world: Make) -> None:
    """W16.2 A holder answers that it holds the job, that a worker has it, that it is over or
    dead, or that another client changes it. It holds the job for 2 s at most.
    """
    world = make_world(3, journal="off")
    id = add(world)
    one, two = begin(world, 1, id), begin(world, 2, id, changed(b"other"))
    world.settle()
    assert one.is_over and two.is_over
    made = [c for c in (one, two) if c.refused is None]
    assert len(made) < 2 and len(set(bodies(world, id))) == 1 and nothing_held(world)
    for c in (one, two):
        assert c.refused is None or c.refused.code == CHANGING
    assert update(world, 1, id) == -1
    assert world.at(0).get() == [id]

    id = add(world)
    both = [on_cancel(at(world, i), id, b"why")[2] for i in (1, 2)]
    world.settle()
    for c in both:
        assert c is not None and c.is_over and c.became == ENDED
    assert phases(world, id) == ["cancelled"] * 3
    world.pass_ms(HOLD_MS)
    assert nothing_held(world)


def test_cancel_while_it_is_changed(make_world: Make) -> None:
    """W16.8 CANCEL flags the job at its node and at each other reachable holder, for good, also
    where it is held.
    """
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
    """W16.4 until the due time, also while the job is held, and after that."""
    world = make_world(3, journal="off")
    id = add(world, retry_s=retry_s)
    assert world.at(0).get() == [id]
    world.pass_ms(600)
    due = [n.jobs[id].qtime_ms for n in world.cores]
    assert update(world, 1, id) == DELIVERED_OUT  # node 2 held it meanwhile
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
    assert world.at(where).get() == [id]
    world.pass_ms(5_000)
    assert [world.at(i).get() for i in range(3)] == [[], [], []]
    world = make_world(3, journal="off")
    id = add(world)
    assert update(world, where, id, changed(None, 10_000)) == -1
    assert update(world, 2, id, changed(None, 0)) == -1
    assert world.at(2).get() == [id] and world.at(where).get() == []


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


def test_an_earlier_edit_ends_no_hold(make_world: Make) -> None:
    """W16.6 LIFE has the number of the last change. A node with an older one gets the change, with
    the body.
    """
    world = make_world(3, journal="off")
    id = add(world)
    world.isolate(2)
    assert update(world, 1, id) == -1
    world.join(1, 2)
    world.hold(1, 2)  # what it missed is on its way
    world.settle()
    mine = at(world, 1).jobs[id]
    missed = edit_message(at(world, 1), mine, life(world, 1, id), 0, -1)
    assert hold(at(world, 2), at(world, 2).jobs[id], world.slot(2, 1)) == AGREED
    assert at(world, 2).jobs[id].body == b"body"
    on_hold(at(world, 2), world.slot(2, 1), missed)
    assert at(world, 2).jobs[id].body == b"new" and id in at(world, 2).life.held


def test_a_slow_holder_has_the_whole_time_for_the_change(make_world: Make) -> None:
    """W10.3 OK comes when all holders in reach have the change.

    W16.4 A holder that does not answer within 0.8 s counts as one that refused
    """
    world = make_world(3, journal="off")
    id = add(world)
    world.hold(1, 0)
    change = begin(world, 0, id)
    world.pass_ms(700)
    world.hold(0, 1)
    world.release(1, 0)
    world.settle()
    assert change.is_made and not change.is_over, "the change is on its way"
    world.pass_ms(500)
    assert not change.is_over
    world.release(0, 1)
    world.settle()
    assert change.is_over and change.refused is None
    assert bodies(world, id) == [b"new"] * 3
