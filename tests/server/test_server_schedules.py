"""SCHEDULE on a server without sockets (SPEC T45, T46)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest

from own_log import own_lines
from planned import later, show, stand_still, taken
from raw_resp import encode
from sim.engine.clock import START_MS
from told_events import Told
from tuque.core.records.events import KIND_NAMES, Events
from tuque.server.commands.firing import SHORT
from tuque.server.log.log import say_all_again
from tuque.server.net.system import is_clock_right
from world import World


@pytest.fixture
def tasks(world: World) -> World:
    assert world("TUBE CREATE t tasks") == b"+OK\r\n"
    return world


def test_an_interval_makes_one_job_at_each_instant(tasks: World) -> None:
    """T45.3 At an instant the leader adds one job, of the options that the schedule gives, and
    notes the instant."""
    assert tasks("SCHEDULE ADD t n EVERY 10 PRI 7 RETRY 40 body") == b"+ADDED\r\n"
    assert show(tasks)["next-ms"] == START_MS + 10_000
    later(tasks, 9_500)
    assert tasks.value("QLEN t") == 0
    later(tasks, 500)
    ((_, id, _),) = tasks.value("GETJOB NOHANG FROM t")
    row = tasks.value("SHOW", id)
    shown = dict(zip(row[::2], row[1::2], strict=True))
    assert shown[b"pri"] == 7 and shown[b"retry"] == 40
    tasks("ACKJOB", id)
    later(tasks, 30_000)
    assert taken(tasks) == ["body"] * 3
    told = show(tasks)
    assert (told["fired"], told["last-ms"], told["late"]) == (4, START_MS + 40_000, 0)
    assert told["body"] == b"body" and told["name"] == b"n" and told["queue"] == b"t"


@pytest.mark.parametrize(("policy", "count"), [("skip", 0), ("one", 1), ("all", 9)])
def test_instants_that_were_missed(tasks: World, policy: str, count: int) -> None:
    """T45.5 An instant that the leader comes to more than 10 s late was missed."""
    tasks(f"SCHEDULE ADD t n EVERY 10 MISSED {policy} body")
    stand_still(tasks, 105_000)  # 10 instants; the last one 5 s ago
    assert taken(tasks) == ["body"] * (count + 1)
    told = show(tasks)
    assert told["late"] == max(count, 1) and told["next-ms"] == START_MS + 110_000
    later(tasks, 10_000)
    assert taken(tasks) == ["body"]


@pytest.mark.parametrize(("policy", "count"), [("skip", 10), ("one", 11)])
def test_the_last_ten_seconds_were_in_time(tasks: World, policy: str, count: int) -> None:
    """T45.5 Those of the last 10 s make their own jobs by every policy, and count as in time
    also if it takes longer to add these jobs. `late` counts how often that was so, and it is
    logged.
    """
    tasks(f"SCHEDULE ADD t n EVERY 1 MISSED {policy} body")
    tasks.jump_ms(60_500)
    for _ in range(11):  # missed ones, then those of 51 s to 60 s: one in a turn, all slow
        tasks.node().turn()
        tasks.jump_ms(1_500)
    get = encode("GETJOB", "NOHANG", "COUNT", 99, "FROM", "t")
    tasks.run.put(encode("SCHEDULE", "SHOW", "t", "n") + get)  # before more become due
    row, jobs = tasks.run.take_all()
    told = dict(zip(row[::2], row[1::2], strict=True))
    assert (told[b"fired"], told[b"late"]) == (count, 1)
    assert told[b"last-ms"] == START_MS + 60_000
    assert [job[2] for job in jobs] == [b"body"] * count


@pytest.mark.parametrize(("policy", "count"), [("skip", 5), ("one", 6), ("all", 30)])
def test_what_was_missed_is_known_when_a_pause_ends(tasks: World, policy: str, count: int) -> None:
    """T45.5 What was missed is decided when a job can be added. Instants that wait by T45.6,
    except for the quota of N11.3, are judged anew when the wait ends: so `skip` and `one` make
    jobs of the last 10 s only, and `one` one job more.
    """
    tasks(f"SCHEDULE ADD t n EVERY 2 MISSED {policy} body")
    tasks("PAUSE t in")
    later(tasks, 61_000)
    assert show(tasks)["waits"] == b"the input of the queue is paused"
    assert (show(tasks)["fired"], show(tasks)["late"]) == (0, 0)
    tasks("PAUSE t none")
    later(tasks, 200, 10)
    assert taken(tasks) == ["body"] * count
    assert show(tasks)["fired"] == count


def test_a_pause_while_jobs_are_added(tasks: World) -> None:
    """T45.5 Instants that wait by T45.6, except for the quota of N11.3, are judged anew when the
    wait ends
    """
    tasks("SCHEDULE ADD t n EVERY 1 MISSED skip body")
    tasks.jump_ms(60_500)
    for _ in range(3):  # what was missed, and two jobs
        tasks.node().turn()
    tasks.run.put(encode("SCHEDULE", "SHOW", "t", "n") + encode("PAUSE", "t", "in"))
    row, _ = tasks.run.take_all()
    assert row[row.index(b"fired") + 1] == 2
    later(tasks, 60_000)
    assert taken(tasks) == ["body"] * 2
    tasks("PAUSE t none")
    later(tasks, 200, 10)
    assert taken(tasks) == ["body"] * 10


def test_why_a_schedule_waits(tasks: World, caplog: pytest.LogCaptureFixture) -> None:
    """T46.4 waits is why an instant that has come makes no job yet, else empty. That is logged
    when it lasts 5 s.
    """
    tasks("SCHEDULE ADD t n EVERY 1 body")
    assert show(tasks)["waits"] == b""
    said = "schedule n of t waits: the input of the queue is paused"
    tasks("PAUSE t in")
    say_all_again()
    caplog.set_level(logging.INFO, "tuque.server")
    later(tasks, 4_000)
    assert show(tasks)["waits"] == b"the input of the queue is paused"
    assert said not in own_lines(caplog)
    later(tasks, 5_000)
    assert own_lines(caplog).count(said) == 1
    tasks("PAUSE t none")
    later(tasks, 500)
    assert show(tasks)["waits"] == b""


def test_the_same_words_change_nothing(tasks: World) -> None:
    """T45.2 ADD with the words and body that a schedule of that name has changes nothing."""
    assert tasks("SCHEDULE ADD t n EVERY 10 body") == b"+ADDED\r\n"
    later(tasks, 15_000)
    id = show(tasks)["id"]
    assert tasks("SCHEDULE ADD t n EVERY 10 MISSED one body") == b"+UNCHANGED\r\n"
    assert show(tasks)["id"] == id
    assert tasks("SCHEDULE ADD t n EVERY 20 other") == b"+REPLACED\r\n"
    told = show(tasks)
    assert told["fired"] == 1 and told["next-ms"] == START_MS + 30_000
    taken(tasks)
    later(tasks, 15_000)
    assert taken(tasks) == ["other"]
    assert tasks.value("TUBE INFO t")[1::2].count(b"tasks") == 1


def test_another_body_does_not_begin_the_interval_anew(tasks: World) -> None:
    """T45.2 an interval that stays the same does not begin anew"""
    for i in range(25):
        tasks(f"SCHEDULE ADD t n EVERY 10 body{i}")
        later(tasks, 1_000)
    assert taken(tasks) == ["body9", "body19"]


def test_a_pause(tasks: World) -> None:
    """T45.7 Instants of a pause make no jobs, then or later."""
    tasks("SCHEDULE ADD t n EVERY 10 MISSED all body")
    assert tasks("SCHEDULE PAUSE t n") == b":1\r\n"
    assert tasks("SCHEDULE PAUSE t n") == b":0\r\n"
    later(tasks, 60_000)
    assert (show(tasks)["paused"], show(tasks)["next-ms"]) == (1, 0)
    assert tasks("SCHEDULE RESUME t n") == b":1\r\n"
    later(tasks, 9_500)
    assert taken(tasks) == []
    later(tasks, 500)
    assert taken(tasks) == ["body"]


def test_run_now(tasks: World) -> None:
    """T46.5 RUN replies with the id of the job, null if its unique key is taken; what refuses an
    ADDJOB refuses it.
    """
    tasks("SCHEDULE ADD t n EVERY 10 UNIQUE key body")
    id = tasks.value("SCHEDULE RUN t n")
    assert tasks.value("SCHEDULE RUN t n") is None
    later(tasks, 30_000)
    assert show(tasks)["fired"] == 0  # T45.6
    assert show(tasks)["next-ms"] == START_MS + 40_000
    tasks("DELJOB", id)
    later(tasks, 10_000)
    assert taken(tasks) == ["body"] and show(tasks)["fired"] == 1


def test_schedules_are_listed_and_dropped(tasks: World) -> None:
    """T46.4 LIST replies with the next cursor, 0 at the end, and up to n (100) schedules."""
    for i in range(5):
        tasks(f"SCHEDULE ADD t n{i} EVERY 10 body")
    names = []
    cursor = b"0"
    while True:
        cursor, rows = tasks.value("SCHEDULE LIST t", cursor, "COUNT", "2")
        names += [row[1] for row in rows]
        if cursor == b"0":
            break
    assert names == [b"n0", b"n1", b"n2", b"n3", b"n4"]
    assert tasks("SCHEDULE DROP t n2") == b":1\r\n"
    assert tasks("SCHEDULE DROP t n2") == b":0\r\n"
    assert tasks("SCHEDULE SHOW t n2") == b"-NOSCHEDULE tube 't' has no schedule 'n2'\r\n"
    assert len(tasks.value("SCHEDULE LIST t")[1]) == 4
    later(tasks, 10_000)
    assert len(taken(tasks)) == 4


def test_a_schedule_is_no_job(tasks: World) -> None:
    """T45.8 SHOW of its id has the name in `schedule`."""
    tasks("SCHEDULE ADD t n EVERY 10 body")
    row = tasks.value("SHOW", show(tasks)["id"])
    assert dict(zip(row[::2], row[1::2], strict=True))[b"schedule"] == b"n"
    refused = b"-WRONGTUBE task 0 is a schedule: use SCHEDULE PAUSE\r\n"
    assert tasks("TUBE BURY t 0") == refused
    assert tasks.value("GETJOB NOHANG FROM t") is None
    assert tasks("ACKJOB", show(tasks)["id"]) == b":0\r\n"
    tasks("TUBE DELETE t 0")
    assert tasks("SCHEDULE LIST t") == b"*2\r\n$1\r\n0\r\n*0\r\n"
    tasks("SCHEDULE ADD t n EVERY 10 body")
    tasks("TUBE TRUNCATE t")
    assert tasks("SCHEDULE LIST t") == b"*2\r\n$1\r\n0\r\n*0\r\n"
    later(tasks, 20_000)
    assert taken(tasks) == []


def test_only_tubes_of_type_tasks_have_schedules(world: World) -> None:
    """T45.1 `-NOTUBE tube '<name>' has no schedules: they need a tube of type tasks that stays`."""
    world("TUBE CREATE f fifottl")
    world("TUBE CREATE x tasks TEMPORARY")
    for name in (b"f", b"x"):
        refused = (
            b"-NOTUBE tube '%s' has no schedules: they need a tube of type tasks that stays\r\n"
        )
        assert world("SCHEDULE ADD", name, "n", "EVERY", "10", "body") == refused % name
    assert world("SCHEDULE ADD q n EVERY 10 body") == b"-NOTUBE Tube 'q' not found\r\n"


NO_OPTION = b"-ERR syntax error: SCHEDULE ADD has no option "


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("EVERY 0.5 b", b"-ERR EVERY must be a number of seconds from 1 to 31622400"),
        ("EVERY 1 CRON 1 b", b"-ERR syntax error: SCHEDULE ADD needs either CRON or EVERY"),
        ("MISSED all TZ UTC b", b"-ERR syntax error: SCHEDULE ADD needs either CRON or EVERY"),
        ("EVERY 1 TZ UTC b", b"-ERR syntax error: TZ needs CRON"),
        ("EVERY 1 EVERY 2 b", b"-ERR syntax error: EVERY is there twice"),
        ("EVERY 1 MISSED no b", b"-ERR MISSED must be skip, one or all, not 'no'"),
        ("EVERY 1 DELAY 3 b", NO_OPTION + b"'DELAY': it takes CRON, EVERY, TZ, MISSED, RETRY, TTL"),
        ("EVERY 1 RETRY 3 BOGUS 3 b", NO_OPTION + b"'BOGUS': it takes CRON, EVERY, TZ, MISSED, RE"),
        ("EVERY 1 RETRY 3 UTUBE x b", NO_OPTION + b"'UTUBE': it takes CRON, EVERY, TZ, MISSED, RE"),
        ("EVERY 1 RETRY 3 ASYNC b", NO_OPTION + b"'ASYNC': it takes CRON, EVERY, TZ, MISSED, RE"),
        (
            "EVERY 1 RETRY 3 MISSED skip b",
            b"-ERR syntax error: in SCHEDULE ADD, MISSED comes before the options of ADDJOB",
        ),
        ("EVERY 1 UNIQUE k ON replace b", b"-ERR ON must be keep in SCHEDULE ADD, not 'replace'"),
        ("EVERY 1 UNIQUE k ON reject b", b"-ERR ON must be keep in SCHEDULE ADD, not 'reject'"),
        ("EVERY 1 PRI b", b"-ERR syntax error: PRI needs a value"),
        ("CRON x b", b"-ERR CRON: wrong number of fields in 'x': it takes five, or six with the"),
        ("EVERY b", b"-ERR syntax error: SCHEDULE ADD takes a tube, a name,"),
    ],
)
def test_words_that_are_refused(tasks: World, words: str, error: bytes) -> None:
    """T46.2 Of ON only keep. Another word: `-ERR syntax error: SCHEDULE ADD has no option '<word>':
    it takes <options>`."""
    reply = tasks("SCHEDULE ADD t n " + words)
    assert reply.startswith(error), reply
    assert tasks("SCHEDULE LIST t") == b"*2\r\n$1\r\n0\r\n*0\r\n"


def test_short_words_for_expressions_say_the_fields(tasks: World) -> None:
    """T46.1 So are `@daily` and the like: `-ERR CRON: wrong number of fields in '@daily': write '0
    0 * * *'`."""
    for word, fields in SHORT.items():
        refused = tasks(f"SCHEDULE ADD t n CRON {word.upper()} body").decode()
        assert refused == (
            f"-ERR CRON: wrong number of fields in '{word.upper()}': write '{fields}'\r\n"
        )
        assert tasks("SCHEDULE ADD t n CRON", fields, "body")[:2] in (b"+A", b"+R", b"+U")


def test_zones_that_are_refused(tasks: World) -> None:
    """T46.1 ADD refuses one that its node does not know, upper and lower case matter: `-ERR TZ:
    this node knows no time zone '<zone>': <hint>`. It refuses `localtime`, `posixrules`, and what
    begins with `posix/` or `right/`: these differ between machines."""
    add = ("SCHEDULE ADD t n CRON", "0 9 * * *", "TZ")
    for zone in ("Europe/berlin", "Mars/X", "../../etc/passwd", "\0"):
        told = "\\x00" if zone == "\0" else zone
        assert tasks(*add, zone, "body").decode() == (
            f"-ERR TZ: this node knows no time zone '{told}': names are as Europe/Berlin, and "
            "upper and lower case matter\r\n"
        )
    for zone in ("localtime", "posixrules", "right/UTC", "posix/Europe/Berlin"):
        assert tasks(*add, zone, "body").decode() == (
            f"-ERR TZ: time zone '{zone}' differs between machines: name one as Europe/Berlin, or "
            "UTC\r\n"
        )
    assert tasks("SCHEDULE LIST t") == b"*2\r\n$1\r\n0\r\n*0\r\n"
    assert tasks(*add, "Europe/Berlin", "body") == b"+ADDED\r\n"


def test_a_tenant_without_room_gets_its_job_later(tasks: World) -> None:
    """T45.6 While memory, the journal, a paused input (P2) or the tenant's quotas let no job in,
    it waits."""
    tasks("SCHEDULE ADD t n EVERY 10 body")
    tasks.server.journal_error = "disk full"
    tasks.pass_ms(12_000)
    tasks.server.journal_error = ""
    assert show(tasks)["fired"] == 0
    later(tasks, 500)
    assert taken(tasks) == ["body"]


def test_a_schedule_counts_against_a_tenant(world: World) -> None:
    """T45.6 While memory, the journal, a paused input (P2) or the tenant's quotas let no job in,
    it waits."""
    world("ACL SETUSER ops on nopass +@all ~*")
    world("AUTH ops x")
    world("ACL SETUSER ann on nopass +@all ~* tenant:one quota:jobs=2")
    ann = world.wire()
    world("AUTH ann x", by=ann)
    assert world("TUBE CREATE t tasks", by=ann) == b"+OK\r\n"
    assert world("SCHEDULE ADD t n EVERY 10 body", by=ann) == b"+ADDED\r\n"
    assert b"-NOTUBE Tube 't' not found" in world("SCHEDULE LIST t")  # it is one's own
    later(world, 60_000)
    assert b":1\r\n" in world("QLEN t", by=ann)
    assert b"$5\r\nqueue\r\n$1\r\nt\r\n" in world("SCHEDULE SHOW t n", by=ann)
    refused = world("SCHEDULE ADD t other EVERY 10 body", by=ann)
    assert refused.startswith(b"-QUOTA tenant 'one' has 2 jobs at this node")
    assert world("SCHEDULE RUN t n", by=ann).startswith(b"-QUOTA")
    assert (
        world("SCHEDULE SHOW t none", by=ann) == b"-NOSCHEDULE tube 't' has no schedule 'none'\r\n"
    )
    world("GETJOB FROM t", by=ann)
    assert world("TUBE TRUNCATE t", by=ann) == b":2\r\n"
    assert world("SCHEDULE ADD t other EVERY 10 body", by=ann) == b"+ADDED\r\n"


def test_a_paused_tube_gets_no_jobs_of_schedules(tasks: World) -> None:
    """T45.6 While memory, the journal, a paused input (P2) or the tenant's quotas let no job in,
    it waits."""
    tasks("SCHEDULE ADD t n EVERY 10 MISSED all body")
    tasks("PAUSE t in")
    later(tasks, 25_000)
    assert tasks.value("QLEN t") == 0 and show(tasks)["fired"] == 0
    assert tasks("SCHEDULE RUN t n") == b"-PAUSED Queue paused in input, try later\r\n"
    tasks("PAUSE t none")
    later(tasks, 500)
    assert taken(tasks) == ["body"] * 2
    tasks("PAUSE t out")
    later(tasks, 10_000)
    assert tasks.value("QLEN t") == 1


def test_jobs_of_schedules_are_adds_of_the_tenant(world: World) -> None:
    """N11.3 adds are ADDJOB, STAGE, TUBE PUT, SCHEDULE ADD, SCHEDULE RUN, GROUP CREATE and jobs of
    schedules (T45.6) in a second; as many as that may come at once.
    """
    world("ACL SETUSER ops on nopass +@all ~*")
    world("AUTH ops x")
    world("ACL SETUSER ann on nopass +@all ~* tenant:one")
    world("TUBE CREATE one/t tasks")
    for i in range(20):
        assert world(f"SCHEDULE ADD one/t n{i} EVERY 1 UNIQUE k{i} body") == b"+ADDED\r\n"
    world("ACL SETUSER ann quota:adds=2")
    later(world, 1_500)
    assert world.value("QLEN one/t") == 2
    later(world, 2_000)
    assert world.value("QLEN one/t") in (5, 6)
    later(world, 9_000)
    assert world.value("QLEN one/t") == 20


def test_a_schedule_makes_no_job_in_full_tubes(world: World) -> None:
    """N11.9 Its tubes count with their keys, limits and rates; at that quarter they take no
    task.
    """
    world("ACL SETUSER ann on nopass +@all ~* tenant:one")
    world("TUBE CREATE one/t tasks")
    assert world("SCHEDULE ADD one/t n EVERY 1 MISSED skip body") == b"+ADDED\r\n"
    owner = world.n.book.owners[b"one"]
    world.n.base_bytes = 0
    world("CONFIG SET maxmemory", 4 * int(owner.queue_bytes + owner.tube_bytes))
    later(world, 3_000)
    assert world.value("QLEN one/t") == 0
    world("CONFIG SET maxmemory 1mb")
    later(world, 2_000)
    assert world.value("QLEN one/t") > 0


def test_run_now_counts_the_bytes_of_the_body(world: World) -> None:
    """N11.2 ADDJOB, STAGE, TUBE PUT, SCHEDULE ADD, SCHEDULE RUN, GROUP CREATE, GROUP ADD and TOPIC
    ADD by its users are refused if there would be more
    """
    world("ACL SETUSER ops on nopass +@all ~*")
    world("AUTH ops x")
    world("ACL SETUSER ann on nopass +@all ~* tenant:one quota:bytes=200")
    ann = world.wire()
    world("AUTH ann x", by=ann)
    world("TUBE CREATE t tasks", by=ann)
    assert world("SCHEDULE ADD t n EVERY 1000", "x" * 90, by=ann) == b"+ADDED\r\n"
    assert world("SCHEDULE RUN t n", by=ann).startswith(b"$")
    assert world("SCHEDULE RUN t n", by=ann).startswith(
        b"-QUOTA tenant 'one' has jobs of 180 bytes"
    )


def test_events_of_schedules(tasks: World) -> None:
    """E1.10 schedule-fired is a row for each job that a schedule made at an instant, before the row
    added of that job; schedule-late one for each time that instants had been missed (T45.5).
    """
    events = tasks.n.events = Events(1_000, 0)
    assert tasks("SCHEDULE ADD t night EVERY 10 MISSED one UNIQUE u body").startswith(b"+ADDED")
    later(tasks, 10_000)
    tasks("GETJOB NOHANG FROM t")
    later(tasks, 10_000)  # the unique key is taken: no job
    stand_still(tasks, 60_000)
    tasks("SCHEDULE RUN t night")
    events.cut()
    rows = []
    for chunk in map(Told, events.full):
        reasons = iter(chunk.reason)
        for kind, queue, count in zip(chunk.kinds, chunk.queues, chunk.delivery, strict=True):
            name = KIND_NAMES[kind]
            if name.startswith("schedule-"):
                assert (queue, next(reasons)) == (b"t", b"night")
                rows.append((name, count))
            elif name == "added":
                rows.append((name, 0))
            else:
                assert name == "delivered", name
    assert rows == [("schedule-fired", 1), ("added", 0), ("schedule-late", 1)]


DAY_MS = 86_400_000


def clock_was_ahead(world: World) -> None:
    """A leader whose clock is a day ahead made jobs, and gave the tube to node 1."""
    world.kill(0)
    world.machines[0].set_clock(DAY_MS)
    world.start(0)
    world.until(world.is_whole)
    world.pass_ms(60_000)
    first = world.wire(0)
    assert first("TUBE", "CREATE", "t", "tasks") == b"OK"
    assert first("SCHEDULE", "ADD", "t", "n", "EVERY", 10, "body") == b"ADDED"
    assert first("SCHEDULE", "ADD", "t", "c", "CRON", "* * * * *", "minute") == b"ADDED"
    world.pass_ms(130_000)
    first.send("TUBE", "HOME", "t", world.node(1).core.node_id)
    world.until(lambda: world.leader("t") == 1)
    made(world)


def made(world: World) -> set[bytes]:
    """Bodies of the jobs that can be taken at node 1."""
    jobs = world.wire(1)("GETJOB", "NOHANG", "COUNT", 99, "FROM", "t")
    return {job[2] for job in jobs} if isinstance(jobs, list) else set()


def test_a_clock_that_was_ahead_stops_no_schedule(make_world: Callable[..., World]) -> None:
    """T45.9 If the system of the leader keeps its clock in step with others, and that clock
    agrees with the node to 10 s, what is ahead of now is taken back: its instants make their
    jobs when they come.
    """
    world = make_world(3)
    clock_was_ahead(world)
    world.node(1).server.system.is_clock_right = lambda now_ms: True
    world.pass_ms(75_000)
    assert made(world) == {b"body", b"minute"}
    log = world.node(1).log
    assert sum("goes on: a clock was 86" in line for line in log) >= 1
    world.node(2).server.system.is_clock_right = lambda now_ms: True
    world.wire(1).send("TUBE", "HOME", "t", world.node(2).core.node_id)
    world.until(lambda: world.leader("t") == 2)
    world.pass_ms(1_000)
    assert not any("goes on" in line for line in world.node(2).log)  # other nodes know it


def test_it_waits_until_the_clock_is_known_to_be_right(make_world: Callable[..., World]) -> None:
    """T45.9 Else the schedule waits, and the leader looks again every 10 s."""
    world = make_world(3)
    clock_was_ahead(world)
    world.pass_ms(75_000)
    assert made(world) == set()
    assert any("a leader whose clock was ahead noted" in line for line in world.node(1).log)
    world.node(1).server.system.is_clock_right = lambda now_ms: True
    world.pass_ms(75_000)
    assert made(world) == {b"body", b"minute"}


def test_the_clock_of_this_machine() -> None:
    """T45.9 that clock agrees with the node to 10 s"""
    assert not is_clock_right(int(time.time() * 1000) - 20_000)
    assert not is_clock_right(int(time.time() * 1000) + 20_000)


def test_a_schedule_is_shown_alike_after_a_restart(make_world: Callable[..., World]) -> None:
    """What SHOW and JSCAN say of the schedule's own task."""
    world = make_world()
    world.run("TUBE", "CREATE", "t", "tasks", "TTR", 77)
    world.run("SCHEDULE", "ADD", "t", "s", "EVERY", 3600, "b")
    (before,) = world.run("JSCAN", 0, "REPLY", "all")[1]
    world.kill(0)
    world.start(0)
    world.pass_ms(1_000)
    (after,) = world.run("JSCAN", 0, "REPLY", "all")[1]
    told = dict(zip(before[::2], zip(before[1::2], after[1::2], strict=True), strict=True))
    differ = [name for name, (was, now) in told.items() if was != now]
    assert differ == [b"ttl", b"next-requeue-within", b"next-awake-within"]  # these count down
