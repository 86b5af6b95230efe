"""SPEC T rule by rule, where the models do not tell: commands for jobs, names, errors, waiting."""

from __future__ import annotations

import pytest
from tube_world import TubeWorld, refused

from refusals import words_of
from tuque.core.copies.ack import (
    on_ackjob,
    on_deadletter,
    on_deljob,
    on_fastack,
)
from tuque.core.copies.add import on_addjob, refusal, settle
from tuque.core.leases.leases import on_open
from tuque.core.model.job import AddSpec
from tuque.core.model.task import TRANSITIONS, Task, is_arrow
from tuque.core.node.queue import PAUSE_IN, PAUSE_OUT
from tuque.core.queues.deliver import on_getjob, set_pause, wait
from tuque.core.queues.procedures import check, stop_waiting
from tuque.core.queues.requeue import (
    on_dequeue,
    on_enqueue,
    on_nack,
    on_working,
)
from tuque.core.queues.views import peeked, qstat, show
from tuque.server.replies.errors import resp_words
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.options import TubeOptions
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks import admin, operations, sessions


@pytest.fixture
def home() -> TubeWorld:
    return TubeWorld()


# ---- T1 jobs


def add(home: TubeWorld, queue: bytes, **options: object) -> Task:
    spec = AddSpec()
    for word, value in options.items():
        setattr(spec, word, value)
    full = settle(home.n, spec)
    try:
        error = words_of(refusal(home.n, queue, full))
    except TubeError as e:
        error = resp_words(e)
    assert not error, error.decode()
    job = on_addjob(home.n, queue, b"body", full)
    assert isinstance(job, Task)
    return job


def test_addjob_is_a_put_with_its_options(home: TubeWorld) -> None:
    """T1.1 TTL is ttl, RETRY ttr, DELAY delay, PRI pri, UTUBE utube."""
    tube = home.make("utubettl", ttl_ms=90_000, ttr_ms=7000, pri=4)
    task = add(home, b"t")
    assert (task.ttl_ms, task.ttr_ms, task.pri, task.subqueue) == (90_000, 7000, 4, b"")
    task = add(
        home,
        b"t",
        ttl_s=50,
        retry_s=3,
        delay_s=2,
        pri=1,
        has_pri=True,
        utube=b"key",
        has_utube=True,
    )
    assert (task.ttl_ms, task.ttr_ms, task.pri, task.subqueue) == (52_000, 3000, 1, b"key")
    assert chr(task.status) == "~"
    assert home.calls(tube)["put"] == 2
    check(home.n)


@pytest.mark.parametrize(
    ("type", "options", "error"),
    [
        ("fifo", {"retry_s": 0}, "ERR 't' is a tube: its tasks come back, RETRY is 1 or more"),
        (
            "fifo",
            {"replicate": 2},
            "ERR 't' is a tube: SYNC says which copies count, REPLICATE is 1",
        ),
        ("fifo", {"delay_s": 1}, "ERR 't' is a tube of type fifo: it has no DELAY"),
        ("utube", {"ttl_s": 1}, "ERR 't' is a tube of type utube: it has no TTL"),
        ("utube", {"pri": 1, "has_pri": True}, "ERR 't' is a tube of type utube: it has no PRI"),
        (
            "fifottl",
            {"utube": b"k", "has_utube": True},
            "ERR 't' is a tube of type fifottl: it has no UTUBE",
        ),
        (None, {"pri": 10, "has_pri": True}, "ERR 't' is no tube: a queue takes PRI 0 to 9"),
        (None, {"utube": b"k", "has_utube": True}, "ERR 't' is no tube: .* and no UTUBE"),
    ],
)
def test_addjob_with_an_option_that_means_nothing_is_refused(
    home: TubeWorld, type: str | None, options: dict[str, object], error: str
) -> None:
    """T1.2."""
    if type is not None:
        home.make(type)
    with pytest.raises(AssertionError, match=error):
        add(home, b"t", **options)
    assert not home.n.jobs


def test_addjob_to_a_full_or_paused_tube_is_refused(home: TubeWorld) -> None:
    """T1.2, T1.7."""
    home.make("limfifottl", capacity=1)
    add(home, b"t")
    with pytest.raises(AssertionError, match="MAXLEN"):
        add(home, b"t")
    other = home.make("fifo", "other")
    set_pause(home.n, b"other", PAUSE_IN)
    with pytest.raises(AssertionError, match="PAUSED"):
        add(home, b"other")
    refused(32, "Queue paused in input, try later", home.put, other)


def test_a_task_of_getjob_is_nobodys_and_comes_back(home: TubeWorld) -> None:
    """T1.3 they come back after ttr; a task without ttr comes back after `default-retry-max`"""
    tube = home.make("fifo")
    home.put(tube)
    (job,) = on_getjob(home.n, 1, [b"plain", b"t"], 5)
    sessions.on_client_gone(home.n, home.t, 1)
    home.tick_ms(299_000)
    assert tube.taken == 1
    refused(32, "Task was not taken", home.ack, tube, 0)
    home.tick_ms(1_020)
    assert (tube.taken, home.calls(tube)["ttr"]) == (0, 1)
    assert not on_ackjob(home.n, job.id, 1)


def test_commands_for_jobs_reach_only_tasks_of_nobody_or_of_the_caller(home: TubeWorld) -> None:
    """T1.4 They act on a task that is TAKEN and held by no session or by the caller's."""
    tube = home.make("fifottl", ttr_ms=10_000)
    first, second = home.put(tube), home.put(tube)
    n = home.n
    assert not on_ackjob(n, first.id, 1) and not on_nack(n, first.id, 0, 1)
    assert home.take(tube) == 0
    for client in (2, -1):
        assert not on_ackjob(n, first.id, client) and not on_fastack(n, first.id, client)
        assert not on_nack(n, first.id, 0, client)
        refused(32, "Task was not taken", on_working, n, first.id, client)
    home.tick_ms(6000)
    assert on_working(n, first.id, 1) is None
    home.tick_ms(6000)
    assert on_ackjob(n, first.id, 1) and first.id not in n.jobs
    assert on_getjob(n, 5, [b"t"], 1) == [second]
    assert on_nack(n, second.id, 3000, 2) and chr(second.status) == "~"
    home.tick_ms(3020)
    assert on_getjob(n, 5, [b"t"], 1) == [second]
    assert on_fastack(n, second.id, 9)
    check(n)


def test_enqueue_deljob_deadletter_dequeue(home: TubeWorld) -> None:
    """T1.5."""
    tube = home.make("fifo")
    task = home.put(tube)
    n = home.n
    assert not on_enqueue(n, task.id) and not on_dequeue(n, task.id)
    operations.bury(n, home.t, tube, 0)
    assert on_enqueue(n, task.id) and chr(task.status) == "r"
    dead = on_deadletter(n, task, b"dead", b"why")
    assert n.jobs[dead.id].body == b"body" and task.id not in n.jobs
    assert on_deljob(n, home.put(tube).id)
    assert admin.statistics(home.t, tube)["tasks"] == {
        "taken": 0,
        "ready": 0,
        "buried": 0,
        "delayed": 0,
        "done": 2,
        "total": 0,
    }
    check(n)


def test_a_tube_is_not_leased(home: TubeWorld) -> None:
    """T1.6."""
    home.make("fifo")
    _, told = on_open(home.n, b"group", b"owner", [b"q", b"t"])
    assert words_of(told) == b"ERR 't' is a tube: its tasks are taken one by one, not leased"


def test_views_see_a_queue(home: TubeWorld) -> None:
    """T1.7 READY is queued; TAKEN, DELAYED and BURIED are active."""
    tube = home.make("utubettl")
    a, b = home.put(tube, b"a", b"k"), home.put(tube, b"b", b"k")
    late = home.put(tube, b"c", b"k", delay_ms=5000)
    assert home.take(tube) == 0
    states = [show(home.n, task)["state"] for task in (a, b, late)]
    assert states == [b"active", b"queued", b"active"]
    shown = show(home.n, late)
    assert [shown[name] for name in ("task", "status", "pri", "utube")] == [2, b"DELAYED", 0, b"k"]
    assert qstat(home.n, tube)["len"] == 1
    assert peeked(tube.peek(5)) == [[b"t", b.id, b"b"]]
    set_pause(home.n, b"t", PAUSE_OUT)
    operations.bury(home.n, home.t, tube, 0)
    assert home.take(tube) is None and on_getjob(home.n, 1, [b"t"], 1) == []
    set_pause(home.n, b"t", 0)
    assert home.take(tube) == 1


def test_a_job_that_was_on_its_way_is_no_task(home: TubeWorld) -> None:
    """T1.8 GETJOB gets them after the tasks, TAKE never;"""
    tube = home.make("fifo")
    home.n.policy = None  # as it was when the job was sent
    tube.policy = None
    stray = on_addjob(home.n, b"t", b"stray", settle(home.n, AddSpec()))
    home.n.policy = home_policy = tube_policy(home, tube)
    assert home_policy is tube.policy
    home.put(tube)
    check(home.n)
    jobs = on_getjob(home.n, 1, [b"t"], 5)
    assert [job.body for job in jobs] == [b"body", b"stray"]
    assert home.take(tube) is None
    operations.wait(home.n, home.t, tube, 2, 0)
    assert on_nack(home.n, stray.id, 0)
    assert home.woken() == [], "who waits in TAKE waits on"
    stop_waiting(home.n, 2)
    home.ack_all(tube)
    admin.drop(home.n, home.t, tube)
    check(home.n)
    assert on_getjob(home.n, 1, [b"t"], 5) == [stray]


def test_a_queue_with_jobs_becomes_a_tube_of_tasks(home: TubeWorld) -> None:
    """T1.8 So are the jobs of a queue that became a tube of type `tasks` (T2.3). GETJOB gets them
    before its tasks, and they have no keys: a limit does not count them.
    """
    ids = [on_addjob(home.n, b"t", b"%d" % i, settle(home.n, AddSpec())) for i in range(4)]
    taken, *_ = on_getjob(home.n, 1, [b"t"], 1)
    refused(32, "Space 't' already exists", lambda: home.make("fifo"))
    tube = home.make("tasks")
    task = home.put(tube)
    check(home.n)
    assert qstat(home.n, tube)["len"] == 4
    assert home.take(tube) == task.number
    operations.release(home.n, home.t, tube, 1, task.number, 0)
    assert on_nack(home.n, taken.id, 0)
    jobs = on_getjob(home.n, 1, [b"t"], 9)
    assert [job.body for job in jobs] == [b"0", b"1", b"2", b"3", b"body"]
    for job in ids:
        assert on_nack(home.n, job.id, 0)
    home.tick_ms(90_000_000)  # all jobs are over
    home.put(tube, b"new")
    assert [job.body for job in on_getjob(home.n, 1, [b"t"], 9)][-1] == b"new"
    home.tick_ms(1)
    check(home.n)


def tube_policy(home: TubeWorld, tube: Tube) -> Tubes:
    """Give node and tube their policy back."""
    fresh = tubes_of(home.n)
    fresh.by_name[tube.name] = tube
    fresh.bytes_used += tube.bytes_used()
    tube.policy = fresh
    return fresh


# ---- T2, T13 names and options


def test_a_capacity_of_a_type_without_one(home: TubeWorld) -> None:
    """T2.5 Options that a type does not know, as a capacity of fifo, have no effect, as in the
    original. A capacity of the type `tasks` is refused: `tube '<name>': the type tasks has no
    capacity, use MAXLEN of ADDJOB, which refuses what is too much`.
    """
    told = (
        "tube 'c': the type tasks has no capacity, use MAXLEN of ADDJOB, which refuses what is too"
        " much"
    )
    refused(32, told, lambda: home.make("tasks", "c", capacity=2))
    assert b"c" not in home.t.by_name
    assert home.make("tasks", "c", capacity=0).capacity == 0
    assert home.make("fifo", "d", capacity=2).capacity == 2


def test_what_create_tube_refuses(home: TubeWorld) -> None:
    """T2.2, T2.3, T2.5, T2.6, T13.1."""
    tube = home.make("fifo")
    refused(32, "Space 't' already exists", home.make, "fifo")
    o = TubeOptions()
    o.if_not_exists = True
    assert admin.create_tube(home.n, home.t, b"t", b"fifo", o, b"") is tube
    refused(
        32,
        "Tube 't' exists with the type fifo",
        admin.create_tube,
        home.n,
        home.t,
        b"t",
        b"utube",
        o,
        b"",
    )
    refused(32, "Unknown tube type lifo", home.make, "lifo", "u")
    refused(
        70,
        "Invalid identifier '' (expected printable symbols only or it is too long)",
        home.make,
        "fifo",
        "",
    )
    on_addjob(home.n, b"used", b"job", settle(home.n, AddSpec()))
    refused(32, "Space 'used' already exists", home.make, "fifo", "used")
    o = TubeOptions()
    o.engine = b"vinyl"
    for type, mode, text in (
        (b"limfifottl", b"", "limfifottl queue does not support vinyl engine"),
        (
            b"utube",
            b"ready_buffer",
            '"ready_buffer" storage mode cannot be used with vinyl engine',
        ),
    ):
        o.storage_mode = mode
        refused(32, text, admin.create_tube, home.n, home.t, b"v", type, o, b"")
    assert b"v" not in home.n.queues
    o.storage_mode = b"default"
    admin.create_tube(home.n, home.t, b"v", b"utube", o, b"")


def test_drop(home: TubeWorld) -> None:
    """T2.4 drop is refused while a client waits for a take (`There are consumers connected the
    tube`) or holds a task"""
    tube = home.make("fifo")
    operations.wait(home.n, home.t, tube, 3, 0)
    refused(32, "There are consumers connected the tube", admin.drop, home.n, home.t, tube)
    home.put(tube)
    assert home.woken() == [(3, 0)]
    refused(32, "There are taken tasks in the tube", admin.drop, home.n, home.t, tube)
    home.ack(tube, 0, 3)
    home.put(tube)
    admin.drop(home.n, home.t, tube)
    refused(32, "Tube not found", admin.drop, home.n, home.t, tube)
    assert not home.n.jobs and b"t" not in home.n.queues
    check(home.n)


def test_who_waits_for_the_name_waits_for_the_tube(home: TubeWorld) -> None:
    """T2.3; T2.4: an idle tube stays."""
    wait(home.n, 5, [b"t"], 1, False, 0)
    tube = home.make("fifo")
    home.put(tube)
    assert home.woken() == [(5, 0)]
    admin.release_all(home.n, home.t, tube)
    admin.truncate(home.n, home.t, tube)
    home.tick_ms(3_600_000)
    assert home.n.queues[b"t"] is tube


def test_the_table_of_transitions_is_the_law() -> None:
    """T4.1."""
    statuses = [0, *map(ord, "rt~!-")]
    arrows = {(old, new) for old, _, new in TRANSITIONS}
    for old in statuses:
        for new in statuses:
            assert is_arrow(old, new) == ((old, new) in arrows)


# ---- T5, T8 who holds what


def test_a_late_ack_of_an_older_take_is_refused(home: TubeWorld) -> None:
    """T5.2 a late call for an older take of the same session is refused."""
    tube = home.make("fifottl", ttr_ms=1000)
    task = home.put(tube)
    assert home.take(tube) == 0
    old = task.token
    home.tick_ms(1020)
    assert home.take(tube) == 0
    assert task.token > old
    refused(32, "Task was not taken", home.ack, tube, 0, 1, old)
    refused(32, "Task was not taken", operations.bury, home.n, home.t, tube, 0, old)
    refused(32, "Task was not taken", operations.release, home.n, home.t, tube, 1, 0, 0, old)
    refused(32, "Task was not taken", operations.touch, home.n, home.t, tube, 1, 0, 5, old)
    assert home.ack(tube, 0, 1, task.token) is task


def test_missing_tasks(home: TubeWorld) -> None:
    """T5.3."""
    tube = home.make("fifo")
    for call in (operations.peek, operations.bury, operations.delete):
        refused(32, "Task 7 not found", call, home.n, home.t, tube, 7)
    home.put(tube)
    home.take(tube)
    refused(
        32, "fifo queue does not support touch", operations.touch, home.n, home.t, tube, 1, 0, 1000
    )
    assert operations.touch(home.n, home.t, tube, 1, 0, 0) is None


def test_a_uuid_is_good_for_its_user_only(home: TubeWorld) -> None:
    """T8.3 `The UUID <text> is unknown.` if the session has ended or belongs to another user."""
    n, t = home.n, home.t
    uuid = sessions.identify(n, t, 1, b"alice", None)
    assert len(uuid) == 16 and uuid[7] >> 4 == 4 and uuid[8] >> 6 == 2
    assert sessions.identify(n, t, 2, b"alice", uuid) == uuid
    text = f"The UUID {sessions.dashed(uuid).decode()} is unknown."
    refused(32, text, sessions.identify, n, t, 3, b"bob", uuid)
    refused(32, "Invalid UUID format.", sessions.identify, n, t, 3, b"bob", b"just-for-fun")
    sessions.on_client_gone(n, t, 1)
    sessions.on_client_gone(n, t, 2)
    refused(32, text, sessions.identify, n, t, 4, b"alice", uuid)
    check(n)


def test_tasks_of_a_session_go_back_after_its_last_connection(home: TubeWorld) -> None:
    """T8.2, T8.4: in order, past those that are gone, after ttr of cfg."""
    n, t = home.n, home.t
    a, b = home.make("fifo", "a"), home.make("fifo", "b")
    for tube in (b, a):
        for _ in range(3):
            home.put(tube)
            home.take(tube)
    uuid = sessions.identify(n, t, 1, b"", None)
    sessions.identify(n, t, 2, b"", uuid)
    sessions.on_client_gone(n, t, 1)
    assert home.ack(b, 0, 2).number == 0
    admin.cfg(n, t, 2000, None)
    sessions.on_client_gone(n, t, 2)
    admin.truncate(n, t, b)
    home.tick_ms(1990)
    assert (a.taken, b.taken) == (3, 0)
    for client in (11, 12):
        operations.wait(n, t, a, client, 0)
    home.tick_ms(30)
    assert home.woken() == [(11, 0), (12, 1)]
    refused(
        32,
        f"The UUID {sessions.dashed(uuid).decode()} is unknown.",
        sessions.identify,
        n,
        t,
        2,
        b"",
        uuid,
    )
