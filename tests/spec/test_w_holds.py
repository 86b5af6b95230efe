"""SPEC W10 and W16: a job with copies is held at its holders before it is changed or cancelled."""

from __future__ import annotations

import pytest
from test_w_cluster import add, at, cancel, fail, life, start, states

from cluster_lab import Lab
from tuque.core.copies.add import on_addjob, settle
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
from tuque.core.model.job import QUEUED, AddSpec, Update
from tuque.core.model.work import run_of
from tuque.core.msgs import NeedJobs
from tuque.core.queues.merge_work import edit_message
from tuque.core.queues.requeue import on_nack
from tuque.core.tables.work import Change


def changed(body: bytes | None = b"new", delay_ms: int = -1) -> Update:
    """An UPDATEJOB."""
    update = Update()
    update.body, update.delay_ms = body, delay_ms
    return update


def begin(lab: Lab, i: int, id: bytes, update: Update | None = None) -> Change:
    """UPDATEJOB at node i, which waits for the holders."""
    refused, change = on_update(at(lab, i), id, update or changed())
    assert refused is None and change is not None
    return change


def update(lab: Lab, i: int, id: bytes, update: Update | None = None) -> int:
    """UPDATEJOB at node i; the code of its error, -1 for OK."""
    refused, change = on_update(at(lab, i), id, update or changed())
    lab.run()
    if change is not None:
        assert change.is_over
        refused = change.refused
    return -1 if refused is None else int(refused.code)


def bodies(lab: Lab, id: bytes) -> list[bytes]:
    """The body at each node."""
    return [n.jobs[id].body for n in lab.nodes]


def nothing_held(lab: Lab) -> bool:
    """Whether no node holds a job or waits for holders."""
    return not any(n.life.held or n.life.changes for n in lab.nodes)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_update_at_any_holder(where: int) -> None:
    """W10.3 (cluster) A job with copies is held at its holders first (W16). OK comes when all
    holders in reach have the change.

    W16.5 A holder that lets the job go queues it again if it was queued; otherwise it is due as
    before. No counter grows.
    """
    lab = Lab(3)
    first, id, last = add(lab), add(lab), add(lab)
    due = [n.jobs[id].qtime_ms for n in lab.nodes]
    jobs_in = lab.nodes[0].queues[b"q"].jobs_in
    wanted = changed()
    wanted.headers, wanted.attempts, wanted.ttl_s = b"\x01h\x01\x00w", 9, 60
    assert update(lab, where, id, wanted) == -1
    assert bodies(lab, id) == [b"new"] * 3 and nothing_held(lab)
    for i, n in enumerate(lab.nodes):
        assert life(lab, i, id).headers == b"\x01h\x01\x00w"
        assert life(lab, i, id).terms.attempts == 9
        assert n.jobs[id].expire_ms == n.now_ms + 60_000
        assert n.jobs[id].nacks == n.jobs[id].deliveries == 0
    assert lab.nodes[0].queues[b"q"].jobs_in == jobs_in
    assert due[1:] == [n.jobs[id].qtime_ms for n in lab.nodes[1:]]
    assert lab.get(0) + lab.get(0) + lab.get(0) == [first, id, last]


@pytest.mark.parametrize("where", [1, 2])
def test_update_of_a_job_that_another_node_handed_out(where: int) -> None:
    """W16.3 If all hold the job, CANCEL ends it, and UPDATEJOB sends the change to all. Otherwise
    nothing is changed: UPDATEJOB gets the error, and CANCEL flags the job (W8.2).
    """
    lab = Lab(3)
    id = add(lab)
    assert lab.get(0) == [id]  # nobody else has heard of it
    due = [n.jobs[id].qtime_ms for n in lab.nodes]
    assert update(lab, where, id) == DELIVERED_OUT
    assert bodies(lab, id) == [b"body"] * 3 and nothing_held(lab)
    assert due == [n.jobs[id].qtime_ms for n in lab.nodes]
    assert on_start(at(lab, 0), id, b"w", 7) is None
    assert update(lab, where, id) == ATWORK
    assert cancel(lab, where, id) == FLAGGED
    lab.pass_ms(60)
    assert life(lab, 0, id).is_cancelled and states(lab, id) == ["running"] * 3
    assert on_done(at(lab, 0), id, life(lab, 0, id).run, b"42")
    lab.run()
    assert states(lab, id) == ["done"] * 3
    assert update(lab, where, id) == ACKED_ALREADY
    assert cancel(lab, where, id) == OVER


def test_a_job_handed_out_again_at_once() -> None:
    """W16.2 A holder answers that it holds the job, that a worker has it, that it is over or dead,
    or that another client changes it at this moment.
    """
    lab = Lab(3)
    id = add(lab)
    lab.get(0)
    assert on_release(at(lab, 0), id, start(lab, 0, id), 0)
    assert lab.get(0) == [id]
    assert update(lab, 2, id) == DELIVERED_OUT


def test_nothing_begins_while_the_job_is_held() -> None:
    """W16.1 The node asks each other holder in reach to hold the job, and holds its own copy. A
    held job is in no queue. START of it gets `-NOTDELIVERED`.
    """
    lab = Lab(3)
    id = add(lab)
    change = begin(lab, 2, id, changed(b"n" * 5_000))
    lab.step()
    lab.hold(1, 2)  # its answer waits
    lab.run()
    assert not change.is_over and at(lab, 2).life.change_bytes > 5_000  # M1.1
    for i in range(3):
        assert lab.get(i) == []
        refused = on_start(at(lab, i), id, b"w", 7)
        assert refused is not None and refused.code == RESTING
        assert not on_enqueue_of(at(lab, i), id)
    lab.release(1, 2)
    lab.run()
    assert change.is_over and change.refused is None
    assert lab.get(0) == [id] and bodies(lab, id) == [b"n" * 5_000] * 3
    assert at(lab, 2).life.change_bytes == 0


def test_words_of_a_late_worker_while_the_job_is_held() -> None:
    """W16.1 A held job is in no queue. START of it gets `-NOTDELIVERED`, WORKING and FAIL get
    `-ATWORK`; RELEASE, NACK and ENQUEUE skip it.
    """
    lab = Lab(3)
    id = add(lab, retry_s=1)
    assert lab.get(0) == [id]
    lab.pass_ms(2_000)
    change = begin(lab, 2, id)
    lab.step()
    lab.hold(1, 2)
    lab.run()
    n = at(lab, 0)
    for run in (0, run_of(1, 1, 7)):
        refused = on_work(n, id, run, 7)
        assert refused is not None and refused.code == CHANGING
    refused = on_fail(n, id, run_of(1, 1, 7), -1, b"", b"", False)[2]
    assert refused is not None and refused.code == CHANGING
    assert not on_release(n, id, 0, 0) and not on_nack_of(n, id, 0, 7)
    assert not lab.get(0) and not change.is_over
    lab.release(1, 2)
    lab.run()
    assert change.refused is None and bodies(lab, id) == [b"new"] * 3


@pytest.mark.parametrize("is_there", [True, False])
def test_a_holder_that_the_asker_does_not_know(is_there: bool) -> None:
    """W16.7 Each answer lists the holders that the node knows, and the asker asks those it did not
    know. A node without the job refuses: a copy may be on its way to it.
    """
    lab = Lab(4)
    spec = AddSpec()
    spec.replicate, spec.retry_s = 2, 30
    id = on_addjob(at(lab, 0), b"q", b"body", settle(at(lab, 0), spec), 1, 0, 5_000).id
    lab.run()
    other = next(i for i in lab.holders_of(id) if i != 0)
    stranger = next(i for i in range(4) if i not in lab.holders_of(id))
    lab.hold(other, 0)
    change = begin(lab, other, id)
    lab.run()
    lab.hold(0, other)  # what node 0 says of the new holder is on its way, too
    if not is_there:
        lab.hold(0, stranger)
    lab.nodes[stranger].now_ms = lab.now_ms
    on_needjobs(at(lab, 0), lab.slot(0, stranger), NeedJobs(b"q", 1, True))
    lab.run()
    lab.release(other, 0)
    lab.run()
    lab.release(0, other)
    lab.run()
    assert change.is_over
    if is_there:
        assert change.refused is None
        assert lab.nodes[stranger].jobs[id].body == b"new"
    else:
        assert change.refused is not None and change.refused.code == NOT_HELD
        lab.release(0, stranger)
        lab.run()
        assert {lab.nodes[i].jobs[id].body for i in lab.holders_of(id)} == {b"body"}


def test_a_back_off_holds_at_every_holder() -> None:
    """W2.3 In its first delay or in a back-off, at any holder that has heard of it:
    `-NOTDELIVERED`.
    """
    lab = Lab(3)
    id = add(lab)
    lab.get(0)
    run = start(lab, 0, id)
    assert on_fail(at(lab, 0), id, run, 5_000, b"", b"", False)[2] is None
    lab.run()
    for i in range(3):
        refused = on_start(at(lab, i), id, b"other", 9)
        assert refused is not None and refused.code == RESTING
    assert states(lab, id) == ["back-off"] * 3
    lab.pass_ms(5_500)
    assert lab.get(0) == [id]
    assert on_start(at(lab, 2), id, b"other", 9) is None, "it was handed out again"


def test_a_cancelled_job_never_begins() -> None:
    """W8.5 (cluster) A job with copies is held at its holders first (W16). After the reply `ended`
    no run of it begins.
    """
    lab = Lab(3)
    id = add(lab)
    assert lab.get(0) == [id]
    on_nack(at(lab, 0), id, 0)  # queued again: a late worker may still begin
    lab.run()
    lab.hold(0, 1)
    _, _, change = on_cancel(at(lab, 1), id, b"why")
    lab.run()
    assert change is not None and not change.is_over
    lab.release(0, 1)
    lab.run()
    assert change.is_over and change.became == ENDED
    lab.hold(1, 0)
    lab.hold(2, 0)
    refused = on_start(at(lab, 0), id, b"late", 7)
    assert refused is not None and refused.code in (RESTING, CANCELLED_JOB)
    assert lab.get(0) == []


def test_a_holder_that_does_not_answer() -> None:
    """W16.4 A holder that does not answer within 0.8 s counts as one that refused; one whose link
    breaks is not waited for.
    """
    lab = Lab(3)
    id = add(lab)
    lab.hold(1, 2)
    change = begin(lab, 1, id)
    lab.run()
    lab.pass_ms(790)
    assert not change.is_over
    lab.pass_ms(20)
    assert change.refused is not None and change.refused.code == NOT_HELD
    lab.release(1, 2)
    lab.run()
    lab.pass_ms(HOLD_MS)
    assert bodies(lab, id) == [b"body"] * 3 and nothing_held(lab)
    assert lab.get(0) == [id]

    lab = Lab(3)
    id = add(lab)
    lab.hold(1, 2)
    change = begin(lab, 1, id)
    lab.run()
    lab.cut(1, 2)
    assert change.is_made
    lab.run()
    assert change.is_over and change.refused is None
    assert bodies(lab, id)[:2] == [b"new"] * 2


def test_the_asker_dies() -> None:
    """W16.2 It holds the job for 2 s at most."""
    lab = Lab(3)
    id = add(lab)
    lab.hold(1, 2)
    begin(lab, 1, id)
    lab.run()
    lab.die(1)
    lab.pass_ms(HOLD_MS - 10)
    assert lab.get(0) == []
    lab.pass_ms(20)
    job = lab.nodes[0].jobs[id]
    assert job.state == QUEUED and job.body == b"body" and job.deliveries == 0
    assert lab.get(0) == [id]
    lab.pass_ms(5_000)
    assert lab.get(2) == []


def test_two_clients_at_once() -> None:
    """W16.2 A holder answers that it holds the job, that a worker has it, that it is over or dead,
    or that another client changes it at this moment. It holds the job for 2 s at most. Two nodes
    that cancel one job may both hold it.
    """
    lab = Lab(3)
    id = add(lab)
    one, two = begin(lab, 1, id), begin(lab, 2, id, changed(b"other"))
    lab.run()
    assert one.is_over and two.is_over
    made = [c for c in (one, two) if c.refused is None]
    assert len(made) < 2 and len(set(bodies(lab, id))) == 1 and nothing_held(lab)
    for c in (one, two):
        assert c.refused is None or c.refused.code == CHANGING
    assert update(lab, 1, id) == -1
    assert lab.get(0) == [id]

    id = add(lab)
    both = [on_cancel(at(lab, i), id, b"why")[2] for i in (1, 2)]
    lab.run()
    for c in both:
        assert c is not None and c.is_over and c.became == ENDED
    assert states(lab, id) == ["cancelled"] * 3
    lab.pass_ms(HOLD_MS)
    assert nothing_held(lab)


def test_cancel_while_it_is_changed() -> None:
    """W16.2 A CANCEL that meets a change waits for its end."""
    for where in range(3):
        lab = Lab(3)
        id = add(lab)
        begin(lab, 1, id)
        _, _, change = on_cancel(at(lab, where), id, b"why")
        lab.run()
        lab.pass_ms(200)
        assert change is not None and change.is_over and change.became == ENDED
        assert states(lab, id) == ["cancelled"] * 3, where


def test_an_edit_that_a_node_missed() -> None:
    """W16.6 LIFE has the number of the last change. A node with an older one gets the change, with
    the body.

    W10.3 Of two changes that two sides of a cut made, the one with the higher number stands.
    """
    lab = Lab(3)
    id = add(lab)
    lab.isolate(2)
    assert update(lab, 1, id) == -1
    assert bodies(lab, id) == [b"new", b"new", b"body"]
    lab.heal()
    lab.run()
    lab.pass_ms(100)
    assert bodies(lab, id) == [b"new"] * 3
    lab.isolate(2)
    assert update(lab, 1, id, changed(b"left")) == -1
    assert update(lab, 2, id, changed(b"right")) == -1
    lab.heal()
    lab.run()
    lab.pass_ms(100)
    assert len(set(bodies(lab, id))) == 1 and bodies(lab, id)[0] in (b"left", b"right")


def test_a_worker_out_of_reach() -> None:
    """W16.4 If a holder is not in reach and this node heard that a worker has the job, a worker has
    it.
    """
    lab = Lab(3)
    id = add(lab)
    assert lab.get(0) == [id]
    lab.pass_ms(600)
    lab.isolate(0)
    assert update(lab, 1, id) == DELIVERED_OUT
    assert cancel(lab, 2, id) == FLAGGED
    assert bodies(lab, id) == [b"body"] * 3


@pytest.mark.parametrize("where", [0, 1])
def test_delay_of_a_job_with_copies(where: int) -> None:
    """W10.1 DELAY counts from now; 0 queues it."""
    lab = Lab(3)
    id = add(lab)
    assert update(lab, where, id, changed(None, 10_000)) == -1
    lab.pass_ms(9_000)
    assert [lab.get(i) for i in range(3)] == [[], [], []]
    lab.pass_ms(1_500)
    assert lab.get(where) == [id]
    lab.pass_ms(5_000)
    assert [lab.get(i) for i in range(3)] == [[], [], []]
    id = add(lab)
    assert update(lab, where, id, changed(None, 10_000)) == -1
    assert update(lab, 2, id, changed(None, 0)) == -1
    assert lab.get(2) == [id] and lab.get(where) == []


def test_update_in_a_back_off() -> None:
    """W10.1 Changes a job that is scheduled, waiting or in a back-off."""
    lab = Lab(3)
    id = add(lab)
    assert lab.get(0) == [id]
    fail(lab, 0, id, start(lab, 0, id))
    due_ms = lab.nodes[0].jobs[id].qtime_ms
    assert update(lab, 1, id) == -1 and bodies(lab, id) == [b"new"] * 3
    assert max(due_ms, lab.now_ms + 1) >= lab.nodes[0].jobs[id].qtime_ms
    lab.pass_ms(2_000)
    assert lab.get(0) == [id]
    fail(lab, 0, id, start(lab, 0, id), is_final=True)
    assert update(lab, 1, id) == DEAD_LETTER
    assert cancel(lab, 1, id) == ENDED
    assert states(lab, id) == ["cancelled"] * 3


def test_an_earlier_edit_ends_no_hold() -> None:
    """W16.6 LIFE has the number of the last change. A node with an older one gets the change, with
    the body.
    """
    lab = Lab(3)
    id = add(lab)
    lab.isolate(0)
    assert update(lab, 1, id) == -1
    lab.heal()
    lab.hold(1, 0)  # what it missed is on its way
    lab.run()
    mine = at(lab, 1).jobs[id]
    missed = edit_message(at(lab, 1), mine, life(lab, 1, id), 0, -1)
    assert hold(at(lab, 0), lab.nodes[0].jobs[id], lab.slot(0, 1), True) == AGREED
    on_hold(at(lab, 0), lab.slot(0, 1), missed)
    assert lab.nodes[0].jobs[id].body == b"new" and id in lab.nodes[0].life.held


def test_a_slow_holder_has_the_whole_time_for_the_change() -> None:
    """W10.3 OK comes when all holders in reach have the change.

    W16.4 A holder that does not answer within 0.8 s counts as one that refused
    """
    lab = Lab(3)
    id = add(lab)
    lab.hold(1, 0)
    change = begin(lab, 0, id)
    lab.pass_ms(700)
    lab.hold(0, 1)
    lab.release(1, 0)
    lab.run()
    assert change.is_made and not change.is_over, "the change is on its way"
    lab.pass_ms(500)
    assert not change.is_over
    lab.release(0, 1)
    lab.run()
    assert change.is_over and change.refused is None
    assert bodies(lab, id) == [b"new"] * 3
