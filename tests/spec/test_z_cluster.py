"""SPEC Z2.7, Z3, Z4.4 to Z4.9: published jobs and keys when there are other nodes."""

from __future__ import annotations

import pytest
from node_by_hand import Box

from cluster_lab import Lab
from refusals import words_of
from tuque.core.copies.ack import on_ackjob
from tuque.core.copies.replicate import on_producer_gone, on_reach_changed
from tuque.core.model.job import ACTIVE, EXTERNAL, QUEUED, WAIT_REPL, Job
from tuque.core.msgs import ReplJob
from tuque.core.node.node import Adding
from tuque.core.queues.dedupe import (
    follow,
    is_unsure,
    keep_key,
    must_wait,
    on_add_over,
    same_job,
)
from tuque.core.queues.procedures import FAR
from tuque.core.records.jobs import ADD, KEY
from tuque.core.records.read import Record, decode
from tuque.core.staged.publish import (
    COPIES_MS,
    SEND_JOBS,
    WAITS,
    PublishSpec,
    on_publish,
)
from tuque.core.staged.stage import ask_copies, on_stage
from tuque.core.tables.dedupe_keys import KEY_BYTES
from tuque.core.tables.staged import Staged
from tuque.server.replies.waiting import tell_added
from tuque.store.snapshot import Snapshot

SAME_KEY = b"NOREPL Timeout reached before the job with this DEDUPE key had its copies"
TIMEOUT = b"NOREPL Timeout reached before replicating to the requested number of nodes"


def stage(
    lab: Lab, i: int, count: int = 1, *, repl: int = -1, key: bytes = b"", retry: int = 30
) -> None:
    n = lab.nodes[i]
    n.now_ms = lab.now_ms
    for k in range(count):
        job = Staged(b"q", b"body %d" % k, key, 60_000, repl, retry, 0, 3600, 0)
        on_stage(n, b"t", b"a", 600_000, job)


def publish(lab: Lab, i: int, version: int = 1, client: int = 1) -> tuple[int, bytes]:
    n = lab.nodes[i]
    n.now_ms = lab.now_ms
    value, refused = on_publish(n, PublishSpec(b"app", version, b"t", [b"a"]), client, 0)
    return int(value), words_of(refused)


def answers(lab: Lab, i: int) -> list[tuple[int, bytes, bytes]]:
    """Client, id and error, or the count of a PUBLISH in place of an id."""
    return [(a.client, a.id or b"%d" % a.count, words_of(a.error)) for a in lab.told[i]]


def test_default_of_copies_when_published() -> None:
    """Z2.7 A job staged without REPLICATE gets the default of R1.1 as of PUBLISH."""
    lab = Lab(3)
    stage(lab, 0)
    lab.isolate(2)
    assert publish(lab, 0) == (WAITS, b"")
    lab.run()
    (job,) = lab.nodes[0].jobs.values()
    assert job.repl == 2
    lab = Lab(3)
    stage(lab, 0, retry=0)
    assert publish(lab, 0) == (1, b""), "at most once: one copy"


def test_answer_when_all_have_their_copies() -> None:
    """Z3.1 Jobs that need copies are in state wait-repl. Each is queued when it has them (R3.4);
    the reply comes when all have them.
    """
    lab = Lab(3)
    stage(lab, 0, 5)
    lab.hold(2, 0)
    assert publish(lab, 0) == (WAITS, b"")
    lab.run()
    n = lab.nodes[0]
    assert {job.state for job in n.jobs.values()} == {WAIT_REPL}
    assert answers(lab, 0) == []
    assert publish(lab, 0, client=2) == (WAITS, b"")
    lab.release(2, 0)
    lab.run()
    assert answers(lab, 0) == [(1, b"5", b""), (2, b"-1", b"")]
    assert {job.state for job in n.jobs.values()} == {QUEUED}
    for id in n.jobs:
        assert lab.states_of(id) == [QUEUED, ACTIVE, ACTIVE]
    assert n.staging.publishing == [] and n.adding == {}


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_restart_while_copies_are_made(is_rewritten: bool) -> None:
    """Z3.1 They are in the journal from Z2.1 on: a restart queues them with the copies that they
    have. Meanwhile a PUBLISH of the same version waits for the same event and gets -1.
    """
    lab = Lab(3, has_journal=True)
    stage(lab, 0, 3)
    lab.hold(1, 0)
    lab.hold(2, 0)
    assert publish(lab, 0) == (WAITS, b"")
    lab.run()
    if is_rewritten:
        lab.journals[0].rewrite(lab.nodes[0])
    ids = sorted(lab.nodes[0].jobs)
    lab.die(0)
    n = lab.nodes[0]
    assert sorted(n.jobs) == ids
    lab.revive(0)
    lab.run()
    assert publish(lab, 0) == (-1, b"")
    lab.pass_ms(100)
    assert {job.state for job in n.jobs.values()} == {QUEUED}


def test_copies_are_metered() -> None:
    """Z3.2 Copies are sent while the links have room."""
    lab = Lab(2)
    stage(lab, 0, SEND_JOBS + 10)
    lab.nodes[0].peers[lab.slot(0, 1)].has_room = False
    assert publish(lab, 0) == (WAITS, b"")
    lab.pass_ms(100)
    assert not [m for _, _, m in lab.log if isinstance(m, ReplJob)]
    lab.nodes[0].peers[lab.slot(0, 1)].has_room = True
    lab.log.clear()
    lab.hold(0, 1)
    lab.pass_ms(21)
    frames = len(lab.wires[0, 1])
    lab.pass_ms(10)
    assert 0 < frames < len(lab.wires[0, 1]), "in several lots"
    lab.release(0, 1)
    lab.pass_ms(100)
    assert answers(lab, 0) == [(1, b"%d" % (SEND_JOBS + 10), b"")]


@pytest.mark.parametrize("is_away", [True, False])
def test_copies_cannot_be_had(is_away: bool) -> None:
    """Z3.3 After 30 s in which no copy could be sent, or if so few nodes are expected (K4.4) that
    the copies are impossible, the jobs are queued with the copies that they have. The reply is then
    `-FEWCOPIES`, and says that all jobs are published.
    """
    assert COPIES_MS == 30_000
    lab = Lab(3)
    stage(lab, 0, 4)
    lab.hold(0, 2)
    assert publish(lab, 0) == (WAITS, b"")
    lab.run()
    if is_away:
        lab.cut(0, 2)
        on_reach_changed(lab.nodes[0])
    else:
        lab.pass_ms(29_900)
        assert answers(lab, 0) == []
        lab.pass_ms(200)
    lab.run()
    ((client, _, error),) = answers(lab, 0)
    assert client == 1 and error.startswith(b"FEWCOPIES all 4 jobs are published, but 4 of them")
    for id in lab.nodes[0].jobs:
        assert lab.states_of(id).count(QUEUED) == 1
    assert publish(lab, 0) == (-1, b"")


def test_client_goes_away() -> None:
    """Z3.4 A client that disconnects while it waits changes nothing."""
    lab = Lab(3)
    stage(lab, 0, 2)
    assert publish(lab, 0) == (WAITS, b"")
    on_producer_gone(lab.nodes[0], 1)
    lab.run()
    assert {job.state for job in lab.nodes[0].jobs.values()} == {QUEUED}


def test_too_few_nodes() -> None:
    """With too few nodes nothing is published, and what is staged stays (Z2.5)."""
    lab = Lab(2)
    stage(lab, 0, 2, repl=3)
    _, error = publish(lab, 0)
    assert error.startswith(b"NOREPL Not enough reachable nodes")
    assert lab.nodes[0].jobs == {} and lab.nodes[0].staging.count == 2


# ---- keys


def add(lab: Lab, client: int, serial: int = 0, timeout_ms: int = 5000) -> Job | None:
    """ADDJOB ... DEDUPE k of that client at node 0, as the dispatcher does it; None: it follows."""
    n = lab.nodes[0]
    n.now_ms = lab.now_ms
    id = same_job(n, b"q", b"k")
    if id:
        assert must_wait(n, id) or is_unsure(n, id), "it would be answered at once"
        follow(n, id, client, serial, timeout_ms)
        ask_copies(n, id)
        return None
    job, error = lab.try_add(0, b"q", client=client, timeout_ms=timeout_ms, replicate=3)
    assert job is not None, error
    n.adding[job.id].serial = serial
    keep_key(n, b"q", b"k", 60_000, job, True)
    return job


def test_second_waits_for_the_first() -> None:
    """Z4.4 (cluster) While the first job still waits for copies, the second ADDJOB waits too,
    within its own timeout (`-NOREPL`), and gets the same reply.
    """
    lab = Lab(3)
    lab.hold(2, 0)
    job = add(lab, 1)
    assert job is not None
    assert add(lab, 2) is None
    assert add(lab, 3, timeout_ms=200) is None
    lab.run()
    assert answers(lab, 0) == []
    lab.pass_ms(199)
    assert answers(lab, 0) == []
    lab.pass_ms(1)
    assert answers(lab, 0) == [(3, job.id, SAME_KEY)]
    lab.release(2, 0)
    lab.pass_ms(100)
    assert answers(lab, 0)[1:] == [(2, job.id, b""), (1, job.id, b"")]
    assert len(lab.nodes[0].jobs) == 1
    assert not must_wait(lab.nodes[0], job.id)
    assert lab.nodes[0].keys.pending == {} and lab.nodes[0].keys.followers == {}


def crash_while_waiting() -> tuple[Lab, Job]:
    """Node 0 crashes while a job with a key waits for the copy of node 2, and starts again."""
    lab = Lab(3, has_journal=True)
    lab.hold(2, 0)
    job = add(lab, 1)
    assert job is not None
    lab.run()
    assert job.state == WAIT_REPL and job.id in lab.nodes[1].jobs
    lab.die(0)
    return lab, job


def test_a_crash_leaves_the_job_and_its_key() -> None:
    """Z4.8 (cluster) A job that waits for copies is recorded with its key before its copies leave.
    If its ADDJOB fails, the record of both is withdrawn. So a crash of the program leaves both or
    none.

    Z4.9 (cluster) If the node was stopped meanwhile, it has the job after its start, queues it in
    its time, and keeps the key.
    """
    lab, job = crash_while_waiting()
    assert same_job(lab.nodes[0], b"q", b"k") == job.id
    assert lab.nodes[0].keys.bytes_used() == KEY_BYTES + 3
    lab.revive(0)
    lab.pass_ms(60_000)
    assert QUEUED in lab.states_of(job.id)


@pytest.mark.parametrize("has_key", [True, False])
def test_only_a_job_with_a_key_is_recorded_while_it_waits(has_key: bool) -> None:
    lab = Lab(3, has_journal=True)
    lab.hold(2, 0)
    if has_key:
        add(lab, 1)
    else:
        lab.try_add(0, b"q", client=1, replicate=3)
    lab.run()
    lab.die(0)
    assert len(lab.nodes[0].jobs) == has_key


def test_a_job_that_other_nodes_take_is_not_recorded_here() -> None:
    lab = Lab(3, has_journal=True)
    lab.hold(2, 0)
    lab.hold(1, 0)
    lab.leave(0)
    job, error = lab.try_add(0, b"q", client=1, replicate=2)
    assert job is not None and job.flags & EXTERNAL, error
    keep_key(lab.nodes[0], b"q", b"k", 60_000, job, True)
    lab.run()
    lab.die(0)
    assert lab.nodes[0].jobs == {} and lab.nodes[0].keys.kept == {}


def test_a_crash_after_a_failed_add_leaves_neither() -> None:
    lab = Lab(3, has_journal=True)
    lab.hold(2, 0)
    assert add(lab, 1, timeout_ms=1000) is not None
    lab.pass_ms(1100)
    assert lab.nodes[0].keys.kept == {}
    lab.die(0)
    assert lab.nodes[0].keys.kept == {} and lab.nodes[0].jobs == {}


def test_a_delayed_job_keeps_its_delay_over_a_crash() -> None:
    lab = Lab(3, has_journal=True)
    lab.hold(2, 0)
    job, error = lab.try_add(0, b"q", client=1, replicate=3, delay_s=60)
    assert job is not None, error
    keep_key(lab.nodes[0], b"q", b"k", 90_000, job, True)
    lab.run()
    lab.die(0)
    again = lab.nodes[0].jobs[job.id]
    assert again.state == ACTIVE and again.qtime_ms >= job.ctime_ns // 1_000_000 + 60_000


def test_after_a_crash_the_copies_are_counted() -> None:
    """When that ADDJOB is said again, its holders are asked for their copies, again each second.
    The reply is the id when n nodes have one or the job has ended, else `-NOREPL` at the end of
    the timeout; the job stays.
    """
    lab, job = crash_while_waiting()
    assert add(lab, 2, timeout_ms=1500) is None
    lab.pass_ms(1500)
    assert answers(lab, 0) == [(2, job.id, SAME_KEY)]
    assert job.id in lab.nodes[0].jobs
    lab.told[0].clear()
    assert add(lab, 3) is None
    assert add(lab, 4) is None
    lab.pass_ms(5)
    assert answers(lab, 0) == []
    lab.revive(0)
    lab.release(2, 0)
    lab.pass_ms(2_000)
    assert sorted(answers(lab, 0)) == [(3, job.id, b""), (4, job.id, b"")]
    assert not is_unsure(lab.nodes[0], job.id)
    assert not lab.nodes[0].keys.followers and not lab.nodes[0].keys.unsure
    assert [job.id in n.jobs for n in lab.nodes] == [True, True, True]
    lab.pass_ms(2_000)
    assert not lab.nodes[0].keys.asking and lab.nodes[0].keys.ask_ms == FAR


def test_after_a_crash_a_job_that_has_ended_needs_no_copies() -> None:
    lab, job = crash_while_waiting()
    assert add(lab, 2) is None
    assert on_ackjob(lab.nodes[0], job.id)
    lab.pass_ms(1_000)
    assert answers(lab, 0) == [(2, job.id, b"")]
    assert not is_unsure(lab.nodes[0], job.id)


def test_who_waits_for_copies_gets_the_id_though_the_key_is_over() -> None:
    lab, job = crash_while_waiting()
    assert add(lab, 2, timeout_ms=0) is None
    lab.pass_ms(61_000)
    assert lab.nodes[0].keys.kept == {} and answers(lab, 0) == []
    lab.revive(0)
    lab.pass_ms(2_000)
    assert answers(lab, 0) == [(2, job.id, b"")]
    assert lab.nodes[0].keys.unsure == {}


def test_a_key_whose_time_is_over_needs_no_copies() -> None:
    lab, _ = crash_while_waiting()
    assert len(lab.nodes[0].keys.unsure) == 1
    lab.pass_ms(61_000)
    assert lab.nodes[0].keys.kept == {} and lab.nodes[0].keys.unsure == {}


def test_key_of_a_failed_job() -> None:
    """Z4.5 (cluster) A job whose ADDJOB fails releases its key, and all that wait for it get the
    error. If the first producer disconnects, another one that waits takes its place.
    """
    lab = Lab(3)
    lab.hold(2, 0)
    job = add(lab, 1, timeout_ms=1000)
    assert job is not None
    assert add(lab, 2) is None
    lab.pass_ms(1100)
    assert sorted(answers(lab, 0)) == [(1, job.id, TIMEOUT), (2, job.id, TIMEOUT)]
    assert lab.nodes[0].keys.kept == {}
    lab.told[0].clear()
    second = add(lab, 1)
    assert second is not None and second.id != job.id
    assert add(lab, 2, 7) is None
    assert add(lab, 1, 5) is None
    on_producer_gone(lab.nodes[0], 1)
    lab.run()
    lab.release(2, 0)
    lab.pass_ms(200)
    assert (2, second.id, b"") in answers(lab, 0)
    assert lab.nodes[0].jobs[second.id].state == QUEUED


def test_producer_alone_goes_away() -> None:
    """Its job is undone (R7.1), and the key is free (Z4.5)."""
    lab = Lab(3)
    lab.hold(2, 0)
    job = add(lab, 1)
    on_producer_gone(lab.nodes[0], 1)
    lab.run()
    assert job is not None and job.id not in lab.nodes[0].jobs
    assert lab.nodes[0].keys.kept == {} and lab.nodes[0].keys.pending == {}


def test_a_snapshot_has_the_job_that_waits_and_its_key() -> None:
    """A snapshot has a key and its job, though that waits for copies (Z4.8, Z6.4)."""
    lab = Lab(3, has_journal=True)
    lab.hold(2, 0)
    job = add(lab, 1)
    assert job is not None
    lab.journals[0].rewrite(lab.nodes[0])
    lab.die(0)
    assert list(lab.nodes[0].jobs) == [job.id] and len(lab.nodes[0].keys.kept) == 1


def test_a_key_whose_job_is_only_elsewhere_is_in_no_snapshot() -> None:
    """A snapshot does not have keys whose jobs it cannot have (Z6.4, R6.1)."""
    lab = Lab(3, has_journal=True)
    lab.hold(2, 0)
    job = add(lab, 1)
    assert job is not None
    job.flags |= EXTERNAL
    snapshot = Snapshot(lab.nodes[0])
    r, kinds = Record(), []
    payload = snapshot.slice(lab.nodes[0], 100)
    at = 0
    while at < len(payload):
        at = decode(payload, at, r)
        kinds.append(r.kind)
    assert snapshot.is_done() and KEY not in kinds and ADD not in kinds


def test_dispatcher_lets_the_second_wait(box: Box) -> None:
    """The second producer gets its reply when the job is safe (Z4.4), behind none before it."""
    n = box.n
    id = box.run("ADDJOB", "q", "b", 0, "DEDUPE", "k").encode()
    adding = Adding(n.jobs[id], 1, 0, 0)
    n.adding[id] = adding
    other = box.session()
    assert other("ADDJOB", "q", "b", 0, "DEDUPE", "k") is None
    assert other("ADDJOB", "q", "b", 0, "ASYNC", "DEDUPE", "k") is None, "behind the first"
    third = box.session()
    assert third("ADDJOB", "q", "b", 0, "WITHNEW", "DEDUPE", "k") is None
    del n.adding[id]
    on_add_over(n, adding, None)
    tell_added(box.server)
    assert other.raw() == b"+%s\r\n" % id * 2
    assert third.raw() == b"*2\r\n+%s\r\n:0\r\n" % id  # Z4.7


def test_key_that_waits_holds_a_publish() -> None:
    """Z2.6 If the job of the key still waits for copies: `-NOREPL`, and nothing is done."""
    lab = Lab(3)
    lab.hold(2, 0)
    assert add(lab, 1) is not None
    stage(lab, 0, 2, key=b"k")
    _, error = publish(lab, 0)
    assert error.startswith(b"NOREPL") and lab.nodes[0].staging.count == 2
    lab.release(2, 0)
    lab.pass_ms(100)
    assert publish(lab, 0) == (0, b"")
