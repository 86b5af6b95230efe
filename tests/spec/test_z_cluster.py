"""SPEC Z2.7, Z3, Z4.4 to Z4.9: published jobs and keys when there are other nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raw_resp import Err
from tuque.core.model.job import ACTIVE, EXTERNAL, QUEUED, WAIT_REPL
from tuque.core.msgs.bus import ReplJob, ReplJobs
from tuque.core.queues.dedupe import (
    is_unsure,
    must_wait,
    same_job,
)
from tuque.core.queues.procedures import FAR
from tuque.core.records.jobs import ADD, KEY
from tuque.core.records.read import Record, decode
from tuque.core.staged.publish import COPIES_MS, SEND_JOBS
from tuque.core.staged.stage import on_stage
from tuque.core.tables.dedupe_keys import KEY_BYTES
from tuque.core.tables.staged import Staged
from tuque.store.snapshot import Snapshot
from world import World

Make = Callable[..., World]

SAME_KEY = "NOREPL Timeout reached before the job with this DEDUPE key had its copies"
TIMEOUT = "NOREPL Timeout reached before replicating to the requested number of nodes"


def stage(world: World, i: int, count: int = 1, *, repl: int = -1, key: bytes = b"") -> None:
    """STAGE at node i."""
    words: list[str | bytes | int] = ["RETRY", 30, "TTL", 3600]
    words += ["REPLICATE", repl] if repl >= 0 else []
    words += ["DEDUPE", key, "DEDUPETTL", 60_000] if key else []
    for k in range(count):
        staged = world.at(i)("STAGE", "t", "a", 600_000, "q", b"body %d" % k, *words)
        assert staged == k + 1, staged


def publish(world: World, i: int, version: int = 1, client: int = 1) -> Any:
    """PUBLISH at node i; its reply, None if it does not come now."""
    return world.at(i, client)("PUBLISH", "app", version, "t", "a")


def rewrite(world: World, i: int) -> None:
    """BGREWRITEAOF at node i."""
    world.at(i, 9)("BGREWRITEAOF")
    assert world.node(i).info("persistence")["journal_rewrites"] == "1"


def test_default_of_copies_when_published(make_world: Make) -> None:
    """Z2.7 A job staged without REPLICATE gets the default of R1.1 as of PUBLISH."""
    world = make_world(3, journal="off")
    stage(world, 0)
    world.isolate(2)
    world.hold(1, 0)
    assert publish(world, 0) is None
    world.release(1, 0)
    assert world.at(0, 1).take() == 1
    (job,) = world.n.jobs.values()
    assert job.repl == 2
    world = make_world(3, journal="off")
    on_stage(world.n, b"t", b"a", 600_000, Staged(b"q", b"body", b"", 60_000, -1, 0, 0, 3600, 0))
    world.hold(1, 0)
    world.hold(2, 0)
    assert publish(world, 0) == 1, "at most once: one copy"


def test_answer_when_all_have_their_copies(make_world: Make) -> None:
    """Z3.1 Jobs that need copies are in state wait-repl. Each is queued when it has them (R3.4);
    the reply comes when all have them.
    """
    world = make_world(3, journal="off")
    stage(world, 0, 5)
    world.hold(2, 0)
    assert publish(world, 0) is None
    n = world.n
    assert {job.state for job in n.jobs.values()} == {WAIT_REPL}
    assert publish(world, 0, client=2) is None
    world.release(2, 0)
    assert (world.at(0, 1).take(), world.at(0, 2).take()) == (5, -1)
    assert {job.state for job in n.jobs.values()} == {QUEUED}
    for id in n.jobs:
        assert world.states(id) == [QUEUED, ACTIVE, ACTIVE]
    assert n.staging.publishing == [] and n.adding == {}


def test_the_copies_have_the_work(make_world: Make) -> None:
    """Z2.1 All jobs of the named attempts are added as by ADDJOB

    W1.1 The job carries these options from its first copy on.
    """
    world = make_world(2, journal="off")
    words = ("ATTEMPTS", 3, "KEEP", 60, "HEADERS", 1, "a", "b")
    id = world.at(0)("STAGE", "t", "a", 600_000, "q", b"body", *words, "WITHID")
    assert publish(world, 0) == 1
    mine, theirs = (world.node(i).core.life.by_id[id] for i in range(2))
    assert theirs.terms.key() == mine.terms.key()
    assert theirs.headers == mine.headers == b"\x01a\x01\x00b"


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_restart_while_copies_are_made(make_world: Make, is_rewritten: bool) -> None:
    """Z3.1 They are in the journal from Z2.1 on: a restart queues them with the copies that they
    have. Meanwhile a PUBLISH of the same version waits for the same event and gets -1.
    """
    world = make_world(3)
    stage(world, 0, 3)
    world.hold(1, 0)
    world.hold(2, 0)
    assert publish(world, 0) is None
    if is_rewritten:
        rewrite(world, 0)
    ids = sorted(world.n.jobs)
    world.restart(0)
    assert sorted(world.n.jobs) == ids and len(ids) == 3
    world.link()
    assert publish(world, 0) == -1
    world.pass_ms(100)
    assert {job.state for job in world.n.jobs.values()} == {QUEUED}


def test_copies_are_metered(make_world: Make) -> None:
    """Z3.2 Copies are sent while the links have room."""
    world = make_world(2, journal="off", bus_buffer_limit="1mb")
    stage(world, 0, SEND_JOBS + 10)
    world.fill(0, 1)
    assert publish(world, 0) is None
    world.pass_ms(100)
    assert world.heard(ReplJob | ReplJobs) == []
    assert world.n.peers[world.slot(0, 1)].outbox == []
    world.release(0, 1)
    world.until(lambda: world.heard(ReplJob | ReplJobs))
    some = sum(1 + len(m.others) for _, _, m in world.heard(ReplJobs))
    assert some <= SEND_JOBS, "in several lots"
    assert world.at(0, 1).take() is None
    world.pass_ms(100)
    assert world.at(0, 1).take() == SEND_JOBS + 10


@pytest.mark.parametrize("is_away", [True, False])
def test_copies_cannot_be_had(make_world: Make, is_away: bool) -> None:
    """Z3.3 After 30 s in which no copy could be sent, or if so few nodes are expected (K4.4) that
    the copies are impossible, the jobs are queued with the copies that they have. The reply is then
    `-FEWCOPIES`, and says that all jobs are published.
    """
    assert COPIES_MS == 30_000
    world = make_world(3, journal="off", cluster_node_timeout=5_000 if is_away else 60_000)
    stage(world, 0, 4)
    world.hold(0, 2)
    assert publish(world, 0) is None
    if is_away:
        world.cut(0, 2)
        world.pass_ms(20_000)
    else:
        world.pass_ms(29_900)
        assert world.at(0, 1).take() is None
        world.pass_ms(200)
    reply = world.at(0, 1).take()
    assert isinstance(reply, Err)
    assert reply.startswith("FEWCOPIES all 4 jobs are published, but 4 of them")
    for id in world.n.jobs:
        assert world.states(id).count(QUEUED) == 1
    assert publish(world, 0) == -1


def test_client_goes_away(make_world: Make) -> None:
    """Z3.4 A client that disconnects while it waits changes nothing."""
    world = make_world(3, journal="off")
    stage(world, 0, 2)
    world.hold(2, 0)
    assert publish(world, 0) is None
    world.at(0, 1).close()
    world.release(2, 0)
    assert {job.state for job in world.n.jobs.values()} == {QUEUED}


def test_too_few_nodes(make_world: Make) -> None:
    """With too few nodes nothing is published, and what is staged stays (Z2.5)."""
    world = make_world(2, journal="off")
    stage(world, 0, 2, repl=3)
    assert publish(world, 0).startswith("NOREPL Not enough reachable nodes")
    assert world.n.jobs == {} and world.n.staging.count == 2


# ---- keys

KEYED = ("DEDUPE", "k", "DEDUPETTL", "60000")


def first(world: World, client: int = 1, timeout_ms: int = 5_000) -> bytes:
    """ADDJOB ... DEDUPE k of that client at node 0 begins a job, which waits for copies; its id."""
    return world.at(0, client).begin_add("q", "body", *KEYED, timeout_ms=timeout_ms, replicate=3)


def again(world: World, client: int, timeout_ms: int = 5_000) -> None:
    """The same of another client, who waits with the first one."""
    before = list(world.n.jobs)
    world.at(0, client).send_add("q", "body", *KEYED, timeout_ms=timeout_ms, replicate=3)
    assert list(world.n.jobs) == before
    assert not world.at(0, client).unread, "it was answered at once"


def answer(world: World, client: int) -> Any:
    """The reply of that client, None if it has none."""
    return world.at(0, client).take()


def test_second_waits_for_the_first(make_world: Make) -> None:
    """Z4.4 (cluster) While the first job still waits for copies, the second ADDJOB waits too,
    within its own timeout (`-NOREPL`), and gets the same reply.
    """
    world = make_world(3, journal="off")
    world.hold(2, 0)
    id = first(world)
    again(world, 2)
    again(world, 3, timeout_ms=200)
    world.pass_ms(199)
    assert [answer(world, i) for i in (1, 2, 3)] == [None] * 3
    world.pass_ms(1)
    assert [answer(world, i) for i in (1, 2, 3)] == [None, None, SAME_KEY]
    world.release(2, 0)
    world.pass_ms(100)
    assert [answer(world, i) for i in (1, 2)] == [id, id]
    assert len(world.n.jobs) == 1
    assert not must_wait(world.n, id)
    assert world.n.keys.pending == {} and world.n.keys.followers == {}


def crash_while_waiting(world: World) -> bytes:
    """Node 0 crashes while a job with a key waits for the copy of node 2, and starts again."""
    world.hold(2, 0)
    id = first(world)
    world.settle()
    assert world.job(id).state == WAIT_REPL and id in world.node(1).core.jobs
    world.restart(0)
    return id


def test_a_crash_leaves_the_job_and_its_key(make_world: Make) -> None:
    """Z4.8 (cluster) A job that waits for copies is recorded with its key before its copies leave.
    If its ADDJOB fails, the record of both is withdrawn. So a crash of the program leaves both or
    none.

    Z4.9 (cluster) If the node was stopped meanwhile, it has the job after its start, queues it in
    its time, and keeps the key.
    """
    world = make_world(3)
    id = crash_while_waiting(world)
    assert same_job(world.n, b"q", b"k") == id
    assert world.n.keys.bytes_used() == KEY_BYTES + 3
    world.link()
    world.pass_ms(60_000)
    assert QUEUED in world.states(id)


@pytest.mark.parametrize("has_key", [True, False])
def test_only_a_job_with_a_key_is_recorded_while_it_waits(make_world: Make, has_key: bool) -> None:
    world = make_world(3)
    world.hold(2, 0)
    if has_key:
        first(world)
    else:
        world.at(0).begin_add(timeout_ms=5_000, replicate=3)
    world.restart(0)
    assert len(world.n.jobs) == has_key


def external(world: World) -> bytes:
    """A job with a key that node 0 adds while it leaves: it has none itself."""
    world.leave(0)
    world.hold(2, 0)
    world.hold(1, 0)
    id = world.at(0, 1).begin_add("q", "body", *KEYED, timeout_ms=5_000, replicate=2)
    assert world.job(id).flags & EXTERNAL
    return id


def test_a_job_that_other_nodes_take_is_not_recorded_here(make_world: Make) -> None:
    world = make_world(3)
    external(world)
    world.restart(0)
    assert world.n.jobs == {} and world.n.keys.kept == {}


def test_a_crash_after_a_failed_add_leaves_neither(make_world: Make) -> None:
    world = make_world(3)
    world.hold(2, 0)
    first(world, timeout_ms=1_000)
    world.pass_ms(1_100)
    assert answer(world, 1) == TIMEOUT
    assert world.n.keys.kept == {}
    world.restart(0)
    assert world.n.keys.kept == {} and world.n.jobs == {}


def test_a_delayed_job_keeps_its_delay_over_a_crash(make_world: Make) -> None:
    world = make_world(3)
    world.hold(2, 0)
    words = ("DEDUPE", "k", "DEDUPETTL", "90000")
    id = world.at(0).begin_add("q", "body", *words, timeout_ms=5_000, replicate=3, delay=60)
    added_ms = world.now_ms
    world.restart(0)
    job = world.job(id)
    assert job.state == ACTIVE and job.qtime_ms >= added_ms + 60_000


def test_after_a_crash_the_copies_are_counted(make_world: Make) -> None:
    """When that ADDJOB is said again, its holders are asked for their copies, again each second.
    The reply is the id when n nodes have one or the job has ended, else `-NOREPL` at the end of
    the timeout; the job stays.
    """
    world = make_world(3)
    id = crash_while_waiting(world)
    again(world, 2, timeout_ms=1_500)
    world.pass_ms(1_500)
    assert answer(world, 2) == SAME_KEY
    assert id in world.n.jobs
    again(world, 3)
    again(world, 4)
    world.pass_ms(5)
    assert (answer(world, 3), answer(world, 4)) == (None, None)
    world.link()
    world.pass_ms(2_000)
    assert (answer(world, 3), answer(world, 4)) == (id, id)
    assert not is_unsure(world.n, id)
    assert not world.n.keys.followers and not world.n.keys.unsure
    assert world.holders(id) == [0, 1, 2]
    world.pass_ms(2_000)
    assert not world.n.keys.asking and world.n.keys.ask_ms == FAR


def test_after_a_crash_a_job_that_has_ended_needs_no_copies(make_world: Make) -> None:
    world = make_world(3)
    id = crash_while_waiting(world)
    again(world, 2)
    assert world.run("ACKJOB", id) == 1
    world.pass_ms(1_000)
    assert answer(world, 2) == id
    assert not is_unsure(world.n, id)


def test_who_waits_for_copies_gets_the_id_though_the_key_is_over(make_world: Make) -> None:
    world = make_world(3)
    id = crash_while_waiting(world)
    again(world, 2, timeout_ms=0)
    world.pass_ms(61_000)
    assert world.n.keys.kept == {} and answer(world, 2) is None
    world.link()
    world.pass_ms(2_000)
    assert answer(world, 2) == id
    assert world.n.keys.unsure == {}


def test_a_key_whose_time_is_over_needs_no_copies(make_world: Make) -> None:
    world = make_world(3)
    crash_while_waiting(world)
    assert len(world.n.keys.unsure) == 1
    world.pass_ms(61_000)
    assert world.n.keys.kept == {} and world.n.keys.unsure == {}


def test_key_of_a_failed_job(make_world: Make) -> None:
    """Z4.5 (cluster) A job whose ADDJOB fails releases its key, and all that wait get the error.
    If the first producer disconnects, another one that waits takes its place.
    """
    world = make_world(3, journal="off")
    world.hold(2, 0)
    id = first(world, timeout_ms=1_000)
    again(world, 2)
    world.pass_ms(1_100)
    assert (answer(world, 1), answer(world, 2)) == (TIMEOUT, TIMEOUT)
    assert world.n.keys.kept == {}
    second = first(world)
    assert second != id
    again(world, 2)
    again(world, 1)
    world.at(0, 1).close()
    world.release(2, 0)
    world.pass_ms(200)
    assert answer(world, 2) == second
    assert world.job(second).state == QUEUED


def test_producer_alone_goes_away(make_world: Make) -> None:
    """Its job is undone (R7.1), and the key is free (Z4.5)."""
    world = make_world(3, journal="off")
    world.hold(2, 0)
    id = first(world)
    world.at(0, 1).close()
    world.settle()
    assert id not in world.n.jobs
    assert world.n.keys.kept == {} and world.n.keys.pending == {}


def test_a_snapshot_has_the_job_that_waits_and_its_key(make_world: Make) -> None:
    """A snapshot has a key and its job, though that waits for copies (Z4.8, Z6.4)."""
    world = make_world(3)
    world.hold(2, 0)
    id = first(world)
    rewrite(world, 0)
    world.restart(0)
    assert list(world.n.jobs) == [id] and len(world.n.keys.kept) == 1


def test_a_key_whose_job_is_only_elsewhere_is_in_no_snapshot(make_world: Make) -> None:
    """A snapshot does not have keys whose jobs it cannot have (Z6.4, R6.1)."""
    world = make_world(3)
    external(world)
    snapshot = Snapshot(world.n)
    r, kinds = Record(), []
    payload = snapshot.slice(world.n, 100)
    at = 0
    while at < len(payload):
        at = decode(payload, at, r)
        kinds.append(r.kind)
    assert snapshot.is_done() and KEY not in kinds and ADD not in kinds


def test_dispatcher_lets_the_second_wait(make_world: Make) -> None:
    """The second producer gets its reply when the job is safe (Z4.4), behind none before it."""
    world = make_world(2)
    world.hold(1, 0)
    producer, other, third = world.wire(), world.wire(), world.wire()
    id = producer.begin_add("q", "b", "DEDUPE", "k", timeout_ms=5_000, replicate=2)
    assert other("ADDJOB", "q", "b", 0, "DEDUPE", "k") is None
    assert other("ADDJOB", "q", "b", 0, "ASYNC", "DEDUPE", "k") is None, "behind the first"
    assert third("ADDJOB", "q", "b", 0, "WITHNEW", "DEDUPE", "k") is None
    world.release(1, 0)
    assert producer.take() == id
    assert other.hear() == b"+%s\r\n" % id * 2
    assert third.hear() == b"*2\r\n+%s\r\n:0\r\n" % id  # Z4.7


def test_key_that_waits_holds_a_publish(make_world: Make) -> None:
    """Z2.6 If the job of the key still waits for copies: `-NOREPL`, and nothing is done."""
    world = make_world(3, journal="off")
    world.hold(2, 0)
    first(world)
    stage(world, 0, 2, key=b"k")
    assert publish(world, 0, client=2).startswith("NOREPL")
    assert world.n.staging.count == 2
    world.release(2, 0)
    world.pass_ms(100)
    assert publish(world, 0, client=2) == 0
