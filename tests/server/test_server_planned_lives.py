"""Jobs of schedules with attempts, results and dead letters (SPEC T45, T46, T48)."""

from __future__ import annotations

import pytest

from planned import later, show, taken, turn
from sim.engine.clock import START_MS
from tuque.core.model.task import carried_by
from tuque.tubes.entries.keys import is_sound
from tuque.tubes.policy import tubes_of
from world import World


@pytest.fixture
def tasks(world: World) -> World:
    assert world("TUBE CREATE t tasks") == b"+OK\r\n"
    return world


LIFE = (
    "ATTEMPTS 2 BACKOFF 1 2.5 0 DEAD lost KEEP 100 TIMELIMIT 9.5 ONEXPIRY drop "
    "HEADERS 2 zone eu attempts 7"
)


def test_jobs_of_schedules_have_a_life(tasks: World) -> None:
    """T46.2 The jobs have them as if an ADDJOB had given them. T48.1 A schedule's jobs have
    those that SCHEDULE ADD gave them (T46.2)
    """
    assert tasks(f"SCHEDULE ADD t n EVERY 10 RETRY 30 {LIFE} LIMIT l 9 body") == b"+ADDED\r\n"
    later(tasks, 10_000)
    (job,) = tasks.value("GETJOB NOHANG WITHMETA FROM t")
    told = dict(zip(job[3::2], job[4::2], strict=True))
    assert (told[b"of"], told[b"time-limit-ms"]) == (2, 9_500)
    assert told[b"headers"] == [b"zone", b"eu", b"attempts", b"7"]
    id = job[1].decode()
    run = tasks.value(f"START {id}")[0][0].decode()
    assert tasks.value(f"FAIL {id} {run} REASON no") == [b"retry", 1_000]
    later(tasks, 1_000)
    assert tasks.value("GETJOB NOHANG FROM t")[0][1].decode() == id
    run = tasks.value(f"START {id}")[0][0].decode()
    assert tasks.value(f"FAIL {id} {run} REASON no")[0] == b"dead"
    turn(tasks)
    other = tasks.value("SCHEDULE RUN t n").decode()
    assert tasks.value("GETJOB NOHANG FROM t")[0][1].decode() == other
    run = tasks.value(f"START {other}")[0][0].decode()
    assert tasks.value(f"DONE {other} {run} RESULT sum") == 1
    found = tasks.value(f"RESULT {other}")
    assert dict(zip(found[::2], found[1::2], strict=True))[b"result"] == b"sum"


def test_show_names_the_life_of_the_jobs(tasks: World) -> None:
    """T46.4 Each has name, queue, cron, tz, every-ms, missed, paused, next-ms, last-ms (the last
    instant that made a job), fired (jobs made at instants), late, waits and id, and of attempts,
    backoff, dead, keep-ms, time-limit-ms, on-expiry and headers those that were given."""
    wanted = {
        "attempts": 2, "backoff": b"1 2.5 0", "dead": b"lost", "keep-ms": 100_000,
        "time-limit-ms": 9_500, "on-expiry": b"drop",
        "headers": [b"zone", b"eu", b"attempts", b"7"],
    }  # fmt: skip
    tasks(f"SCHEDULE ADD t n EVERY 10 {LIFE} body")
    told = show(tasks)
    assert {name: told.get(name) for name in wanted} == wanted
    tasks("SCHEDULE ADD t n EVERY 10 KEEP 1 body")
    told = show(tasks)
    assert [name for name in wanted if name in told] == ["keep-ms"]
    del wanted["keep-ms"], wanted["on-expiry"]
    words = LIFE.replace("KEEP 100", "").replace("ONEXPIRY drop", "")
    group = tasks.value(f"GROUP CREATE t 1 {words} THEN b")
    row = tasks.value("GROUP SHOW t", group)
    found = {one.decode(): value for one, value in zip(row[::2], row[1::2], strict=True)}
    assert {name: found.get(name) for name in wanted} == wanted


def test_a_schedule_without_a_life_is_replaced_by_one_with_it(tasks: World) -> None:
    """T45.2 With others it replaces it; instants that have passed by then are dealt with, and an
    interval that stays the same does not begin anew."""
    tasks("SCHEDULE ADD t n EVERY 10 body")
    later(tasks, 15_000)
    assert taken(tasks) == ["body"]
    assert tasks(f"SCHEDULE ADD t n EVERY 10 {LIFE} body") == b"+REPLACED\r\n"
    told = show(tasks)
    assert (told["last-ms"], told["next-ms"]) == (START_MS + 10_000, START_MS + 20_000)
    assert tasks(f"SCHEDULE ADD t n EVERY 10 {LIFE} body") == b"+UNCHANGED\r\n"
    assert tasks(f"SCHEDULE ADD t n EVERY 10 {LIFE} ATTEMPTS 3 body") == b"+REPLACED\r\n"


@pytest.mark.parametrize("what", ["SCHEDULE ADD t n EVERY 10", "GROUP CREATE t 1"])
def test_lives_that_are_refused(tasks: World, what: str) -> None:
    """T46.2 RETRY 0: `-ERR RETRY must be 1 or more: the tasks of a tube come back`.

    T46.2 All of them together have at most 16,384 bytes: `-ERR the options of a job have <n>
    bytes: at most 16384`.
    """
    body = "THEN b" if what.startswith("GROUP") else "b"
    long = tasks(f"{what} DEAD {'x' * 17_000} {body}")
    assert long.startswith(b"-ERR the options of a job have 17") and long.endswith(
        b": at most 16384\r\n"
    )
    once = b"-ERR RETRY must be 1 or more: the tasks of a tube come back\r\n"
    assert tasks(f"{what} RETRY 0 ATTEMPTS 3 {body}") == once
    assert tasks(f"{what} RETRY 0 {body}") == once
    assert tasks(f"{what} DEAD t {body}") == b"-ERR 't' is a tube: dead letters go to a queue\r\n"
    assert tasks.value("TUBE INFO t")[1::2].count(b"tasks") == 1
    headers = " ".join(f"h{i} {'v' * 300}" for i in range(13))
    assert not tasks(f"{what} HEADERS 13 {headers} {body}").startswith(b"-")
    (task,) = tubes_of(tasks.n).by_name[b"t"].tasks.values()
    assert is_sound(carried_by(task))  # else no follower takes it
    assert tasks("DEBUG CHECK") == b"+OK\r\n"


@pytest.mark.parametrize("what", ["SCHEDULE ADD t n EVERY 10", "GROUP CREATE t 1"])
def test_dead_names_a_queue_of_the_tenant(world: World, what: str) -> None:
    """N10.2 as in ADDJOB, DEAD names a queue: the user needs it, and a tenant's is its own."""
    body = "THEN b" if what.startswith("GROUP") else "b"
    world("ACL SETUSER ops on nopass +@all ~*")
    world("AUTH ops x")
    world("ACL SETUSER ann on nopass +@all ~* tenant:one")
    world("ACL SETUSER bob on nopass +@all ~t")
    ann, bob = world.wire(), world.wire()
    world("AUTH ann x", by=ann)
    world("AUTH bob x", by=bob)
    assert world("TUBE CREATE t tasks", by=ann) == b"+OK\r\n"
    assert world("TUBE CREATE t tasks") == b"+OK\r\n"
    assert not world(f"{what} DEAD lost {body}", by=ann).startswith(b"-")
    assert world(f"{what} DEAD lost {body}", by=bob).startswith(b"-NOPERM")
    if what.startswith("SCHEDULE"):
        assert b"$8\r\none/lost\r\n" in world("SCHEDULE SHOW one/t n")
        assert b"$4\r\nlost\r\n" in world("SCHEDULE SHOW t n", by=ann)
