"""GROUP on a server without sockets (SPEC T50, T51)."""

from __future__ import annotations

from typing import Any

import pytest

from sim.engine.clock import START_MS
from told_events import Told
from tuque.core.records.events import KIND_NAMES, Events
from world import World

SLACK_MS = 20  # timers are that late


@pytest.fixture
def tasks(world: World) -> World:
    assert world("TUBE CREATE t tasks") == b"+OK\r\n"
    return world


def turn(world: World) -> None:
    """Turns of the loop, until none has work at this instant."""
    world.settle()
    assert world("DEBUG CHECK") == b"+OK\r\n"


def later(world: World, ms: int) -> None:
    """Time passes, with turns on the way."""
    world.pass_ms(ms + SLACK_MS)
    turn(world)


def shown(world: World, group: str) -> dict[str, Any]:
    row = world.value(f"GROUP SHOW t {group}")
    return {one.decode(): value for one, value in zip(row[::2], row[1::2], strict=True)}


def counts(world: World, group: str) -> tuple[str, int, int, int]:
    row = shown(world, group)
    return row["state"].decode(), row["added"], row["done"], row["failed"]


def made(world: World, size: int, words: str = "THEN callback", options: str = "") -> Any:
    """A group with that many children, jobs of the queue q; its id and theirs."""
    group = world.value(f"GROUP CREATE t {size} {words}").decode()
    ids = [world.value(f"ADDJOB q c{i} 0 KEEP 9000 {options}").decode() for i in range(size)]
    pairs = " ".join(f"{i} {id}" for i, id in enumerate(ids))
    assert world.value(f"GROUP ADD t {group} {pairs}") == size
    turn(world)
    return group, ids


def results(world: World, group: str, words: str = "") -> list[Any]:
    return world.value(f"GROUP RESULTS t {group} {words}")


def callbacks(world: World) -> list[tuple[str, bytes]]:
    return [
        (id.decode(), body) for _, id, body in world.value("GETJOB NOHANG COUNT 9 FROM t") or []
    ]


@pytest.mark.parametrize("tube", ["other", "t"])
def test_children_are_tasks(tasks: World, tube: str) -> None:
    """T50.2 A child is a job of a queue or a task of a tube, at whatever node, also of the group's
    own tube."""
    if tube != "t":
        assert tasks(f"TUBE CREATE {tube} tasks") == b"+OK\r\n"
    group = tasks.value("GROUP CREATE t 7 ONFAIL continue THEN callback").decode()
    words = [f"ATTEMPTS 2{' TTL 50' if i == 5 else ''}" for i in range(7)]
    ids = [tasks.value(f"ADDJOB {tube} c{i} 0 KEEP 9000 {words[i]}").decode() for i in range(7)]
    pairs = " ".join(f"{i} {id}" for i, id in enumerate(ids))
    assert tasks.value(f"GROUP ADD t {group} {pairs}") == 7
    turn(tasks)
    for id in [row[1].decode() for row in tasks.value(f"GETJOB NOHANG COUNT 5 FROM {tube}")]:
        run = tasks.value(f"START {id}")[0][0].decode()
        at = ids.index(id)
        if at < 2:
            assert tasks.value(f"DONE {id} {run} RESULT r{at}") == 1
        elif at == 2:
            assert tasks.value(f"FAIL {id} {run} FINAL REASON no")[0] == b"dead"
        elif at == 3:
            assert tasks.value(f"ACKJOB {id}") == 1
    assert tasks.value(f"DELJOB {ids[4]}") == 1
    turn(tasks)
    assert counts(tasks, group) == ("open", 7, 3, 2)
    later(tasks, 51_000)
    assert counts(tasks, group) == ("open", 7, 3, 3)
    if tube == "t":
        assert len(tasks.value("GETJOB NOHANG FROM t")) == tasks.value(f"ACKJOB {ids[6]}") == 1
    else:
        assert tasks.value(f"TUBE TRUNCATE {tube}") == 3  # two are dead
    turn(tasks)
    assert group in [id for id, _ in callbacks(tasks)]
    rows = results(tasks, group)[1]
    ends = [b"done", b"done", b"dead", b"done", b"gone", b"dead", rows[6][4]]
    assert [row[4] for row in rows] == ends and ends[6] == (b"done" if tube == "t" else b"gone")
    assert [row[3] for row in rows][:4] == [b"r0", b"r1", None, None]
    gone, expired = b"it expired, was deleted, or ended and is not kept", b"its TTL was over"
    assert [row[5] for row in rows[:6]] == [b"", b"", b"no", b"", gone, expired]


def test_the_callback_comes_when_all_have_ended(tasks: World) -> None:
    """T50.4 When all children have ended, the group becomes its callback: in one change its task is
    READY under the id that it had."""
    group, ids = made(tasks, 3)
    for i in (2, 0):
        assert tasks.value(f"DONE {ids[i]} - RESULT r{i}") == 1
    turn(tasks)
    assert counts(tasks, group) == ("open", 3, 2, 0) and callbacks(tasks) == []
    tasks(f"DONE {ids[1]} - RESULT r1")
    turn(tasks)
    assert callbacks(tasks) == [(group, b"callback")]
    assert counts(tasks, group) == ("called", 3, 3, 0)
    after, rows = results(tasks, group)
    assert after == 0 and rows == [
        [i, ids[i].encode(), b"done", b"r%d" % i, b"done", b""] for i in range(3)
    ]
    assert tasks.value(f"ACKJOB {group}") == 1
    later(tasks, 121_000)
    assert tasks(f"GROUP SHOW t {group}").startswith(b"-NOJOBGROUP tube 't' has no group '")
    assert tasks.value("QLEN t") == 0 and not tasks.server.n.jobs


def test_results_in_pages(tasks: World) -> None:
    """T51.3 A page has n (1,000) children, and ends after 1 MiB of results."""
    group, ids = made(tasks, 40)
    for id in ids:
        tasks(f"DONE {id} - RESULT", b"x" * 60_000)
    turn(tasks)
    after, rows = results(tasks, group)
    assert 0 < after == len(rows) < 40 and sum(len(row[3]) for row in rows) < 2 << 20
    last, more = results(tasks, group, str(after))
    assert [row[0] for row in rows + more] == list(range(after + len(more)))
    assert [row[0] for row in results(tasks, group, "38 COUNT 1")[1]] == [38]
    assert results(tasks, group, "39 COUNT 1")[0] == 0
    assert last == 0 or len(results(tasks, group, str(last))[1]) > 0


def test_an_index_counts_once(tasks: World) -> None:
    """T50.3 so a child that runs twice, or ends twice, counts once."""
    group, ids = made(tasks, 2)
    other = tasks.value("ADDJOB q x 0 KEEP 9000").decode()
    assert tasks.value(f"GROUP ADD t {group} 0 {other} 0 {ids[0]}") == 0
    tasks(f"DONE {other} -")
    tasks(f"DONE {ids[0]} - RESULT a")
    tasks(f"DONE {ids[0]} - RESULT b")
    turn(tasks)
    assert counts(tasks, group) == ("open", 2, 1, 0)
    assert results(tasks, group)[1][0][:4] == [0, ids[0].encode(), b"done", b"a"]
    assert results(tasks, group)[1][1][2:] == [b"open", None, b"open", b""]


def dead(world: World, id: str) -> None:
    """Fail the job for good."""
    world("GETJOB NOHANG COUNT 9 FROM q")
    run = world.value(f"START {id}")[0][0].decode()
    assert world.value(f"FAIL {id} {run} FINAL REASON no")[0] == b"dead"
    turn(world)


def test_a_failed_child_stops_the_group(tasks: World) -> None:
    """T50.5 ONFAIL stop: a child that fails makes the group fail: the callback does not run, and
    the open children are cancelled.
    """
    group, ids = made(tasks, 3, options="ATTEMPTS 3")
    tasks(f"DONE {ids[0]} - RESULT a")
    dead(tasks, ids[1])
    assert counts(tasks, group) == ("failed", 3, 1, 2) and callbacks(tasks) == []
    rows = results(tasks, group)[1]
    assert [row[4] for row in rows] == [b"done", b"dead", b"cancelled"]
    assert rows[1][5] == b"no"
    assert b"CANCELLED" in tasks(f"WORKING {ids[2]}")
    later(tasks, 86_400_000)
    assert tasks(f"GROUP SHOW t {group}").startswith(b"-NOJOBGROUP")  # T50.6
    later(tasks, 61_000)
    assert len(tasks.value("TUBE INFO t")) > 0 and tasks.value("QLEN t") == 0


def test_a_group_goes_on_without_those_that_failed(tasks: World) -> None:
    """T50.5 With `continue` it has ended like the others, without a result."""
    group, ids = made(tasks, 4, "ONFAIL continue THEN callback", "ATTEMPTS 3")
    tasks(f"CANCEL {ids[3]}")
    tasks(f"DEADLETTER {ids[2]} qq REASON no")
    dead(tasks, ids[1])
    assert counts(tasks, group)[0] == "open"
    tasks(f"DONE {ids[0]} -")
    turn(tasks)
    assert callbacks(tasks) == [(group, b"callback")]
    rows = results(tasks, group)[1]
    assert [row[2] for row in rows] == [b"done", *[b"failed"] * 3]
    assert [row[4] for row in rows][1] == b"dead" and rows[0][3] is None


def test_a_group_waits_for_a_replay(tasks: World) -> None:
    """T50.5 With `wait` one that is dead is open."""
    group, ids = made(tasks, 1, "ONFAIL wait THEN callback", "ATTEMPTS 3")
    dead(tasks, ids[0])
    later(tasks, 60_000)
    assert counts(tasks, group) == ("open", 1, 0, 0)
    tasks("DEAD REPLAY q.dead ALL")
    later(tasks, 6_000)
    tasks(f"DONE {ids[0]} - RESULT ok")
    turn(tasks)
    assert callbacks(tasks) == [(group, b"callback")]


@pytest.mark.parametrize("how", ["ACKJOB", "DELJOB", "EXPIRE"])
def test_ends_that_no_worker_says(tasks: World, how: str) -> None:
    """T50.3 `done` is its end, or it has failed: `dead`, `cancelled`, or `gone` (expired, deleted,
    or ended and not kept)."""
    group, ids = made(tasks, 1, "ONFAIL continue THEN callback", "TTL 50")
    if how == "EXPIRE":
        later(tasks, 51_000)
    else:
        tasks(f"{how} {ids[0]}")
        turn(tasks)
    assert callbacks(tasks) == [(group, b"callback")]
    assert results(tasks, group)[1][0][4] == (b"done" if how == "ACKJOB" else b"gone")


def test_one_that_had_ended_before(tasks: World) -> None:
    """T50.2 A job that ended before it was added counts while its outcome is kept (W7.2): children
    need KEEP."""
    group = tasks.value("GROUP CREATE t 2 ONFAIL continue").decode()
    kept = tasks.value("ADDJOB q x 0 KEEP 90").decode()
    brief = tasks.value("ADDJOB q x 0").decode()
    tasks(f"DONE {kept} - RESULT a")
    tasks(f"DONE {brief} - RESULT a")
    later(tasks, 1_000)
    tasks(f"GROUP ADD t {group} 0 {kept} 1 {brief}")
    turn(tasks)
    assert counts(tasks, group) == ("done", 2, 1, 1)
    assert shown(tasks, group)["callback"] == 0 and callbacks(tasks) == []


def test_cancel(tasks: World) -> None:
    """T50.7 CANCEL of a group, or a delete of its task: its callback does not run, and each open
    child is cancelled (W8), by and by; a node that is not in reach is asked until it answers.
    """
    group, ids = made(tasks, 3)
    tasks(f"DONE {ids[0]} -")
    turn(tasks)
    assert tasks.value(f"GROUP CANCEL t {group}") == 1
    assert tasks.value(f"GROUP CANCEL t {group}") == 0
    turn(tasks)
    assert counts(tasks, group) == ("cancelled", 3, 1, 2)
    for id in ids[1:]:
        assert tasks.value(f"RESULT {id}")[1] in (b"cancelled",)
    assert callbacks(tasks) == [] and tasks.value("GETJOB NOHANG FROM q") is None


def test_cancel_of_children_in_tubes(tasks: World) -> None:
    """T50.7 CANCEL of a group, or a delete of its task: its callback does not run, and each open
    child is cancelled (W8)
    """
    tasks("TUBE CREATE other tasks")
    group = tasks.value("GROUP CREATE t 2 THEN callback").decode()
    ids = [tasks.value(f"ADDJOB other c{i} 0 KEEP 9000").decode() for i in range(2)]
    assert tasks.value(f"GROUP ADD t {group} 0 {ids[0]} 1 {ids[1]}") == 2
    turn(tasks)
    assert len(tasks.value("GETJOB NOHANG FROM other")) == 1
    assert tasks.value(f"GROUP CANCEL t {group}") == 1
    turn(tasks)
    assert counts(tasks, group) == ("cancelled", 2, 0, 2)
    assert tasks(f"START {ids[0]}").startswith(b"*1\r\n-CANCELLED ")
    for id in ids:
        assert tasks.value(f"RESULT {id}")[1] == b"cancelled"


def test_deleting_the_group_cancels_its_children(tasks: World) -> None:
    """T50.7 CANCEL of a group, or a delete of its task: its callback does not run, and each open
    child is cancelled (W8).
    """
    group, ids = made(tasks, 2)
    assert tasks.value(f"DELJOB {group}") == 1
    later(tasks, 61_000)
    assert tasks.value(f"RESULT {ids[0]}")[1] == b"cancelled"
    assert not [one for one in tasks.n.jobs.values() if one.queue == b"t"]


def test_children_that_never_came(tasks: World) -> None:
    """T50.8 A group that has not got all its children an hour after its CREATE is cancelled."""
    group = tasks.value("GROUP CREATE t 2 THEN callback").decode()
    child = tasks.value("ADDJOB q x 0 KEEP 9000").decode()
    tasks(f"GROUP ADD t {group} 1 {child}")
    later(tasks, 3_500_000)
    assert counts(tasks, group) == ("open", 1, 0, 0)
    later(tasks, 200_000)
    assert counts(tasks, group) == ("cancelled", 1, 0, 1)
    assert tasks.value(f"RESULT {child}")[1] == b"cancelled"
    assert tasks.value(f"GROUP ADD t {group} 0 {child}") == 0  # T51.2


def test_results_that_are_too_large(tasks: World) -> None:
    """T50.3 A child whose result is not kept, has more than 65,536 bytes, or would make those of
    the group more than 64 MiB, has failed, with that as the reason.
    """
    group, ids = made(tasks, 2, "ONFAIL continue THEN callback")
    tasks(f"DONE {ids[0]} - RESULT", b"x" * 65_537)
    tasks(f"DONE {ids[1]} - RESULT", b"x" * 65_536)
    turn(tasks)
    rows = results(tasks, group)[1]
    assert rows[0][2:5] == [b"failed", None, b"done"] and len(rows[1][3]) == 65_536
    assert rows[0][5] == b"its result of 65537 bytes is larger than 65536"


def test_words(tasks: World) -> None:
    """T51.1 A group has 1 to 10,000 children, a tube 10,000 groups that are open. Another word:
    `-ERR syntax error: GROUP CREATE has no option '<word>': it takes <options>`."""
    assert tasks("GROUP CREATE t 0") == b"-ERR a group has 1 to 10000 children, not '0'\r\n"
    assert tasks("GROUP CREATE t 10001").startswith(b"-ERR a group has 1 to 10000 children, not")
    assert b"THEN and its body come last" in tasks("GROUP CREATE t 1 PRI 3")
    for words in ("BOGUS 3 THEN b", "UNIQUE k THEN b", "PRI 3 BOGUS 3 THEN b", "BOGUS", "TTL 5"):
        word = b"UNIQUE" if "UNIQUE" in words else b"TTL" if "TTL" in words else b"BOGUS"
        told = b"-ERR syntax error: GROUP CREATE has no option '%s': it takes ONFAIL, KEEP, " % word
        assert tasks("GROUP CREATE t 1 " + words) == told + (
            b"RETRY, PRI, LIMIT, RATE, GROUP, WEIGHT, ATTEMPTS, BACKOFF, DEAD, TIMELIMIT, "
            b"HEADERS\r\n"
        )
    assert tasks("GROUP CREATE t 1 PRI THEN b") == b"-ERR syntax error: PRI needs a value\r\n"
    assert tasks("GROUP CREATE t 1 PRI 7 THEN") == b"-ERR syntax error: THEN needs a value\r\n"
    assert b"stop, wait or continue" in tasks("GROUP CREATE t 1 ONFAIL x THEN b")
    assert tasks("TUBE CREATE u fifo") == b"+OK\r\n"
    assert tasks("GROUP CREATE u 1") == (
        b"-NOTUBE tube 'u' has no groups: they need a tube of type tasks that stays\r\n"
    )
    group = tasks.value("GROUP CREATE t 1 PRI 7 RETRY 40 LIMIT l 1 THEN b").decode()
    task = tasks.value("ADDJOB t x 0").decode()
    assert tasks(f"GROUP ADD t {group} 1 {task}").startswith(b"-ERR")
    assert b"children" in tasks.value(f"SHOW {group}")
    assert b"-WRONGTUBE task 0 belongs to a group" in tasks("TUBE BURY t 0")
    cursor, page = tasks.value("GROUP LIST t")
    assert cursor == b"0" and len(page) == 1
    child = tasks.value("ADDJOB q x 0 KEEP 9").decode()
    tasks(f"GROUP ADD t {group} 0 {child}")
    tasks(f"DONE {child} -")
    turn(tasks)
    tasks(f"ACKJOB {task}")
    row = tasks.value(f"SHOW {group}")
    told = dict(zip(row[::2], row[1::2], strict=True))
    assert (told[b"pri"], told[b"retry"], told[b"limit"]) == (7, 40, b"l")
    assert tasks.value("GROUP LIST t")[1] == [] and START_MS > 0


def test_the_life_of_a_callback(tasks: World) -> None:
    """T51.1 KEEP is a day unless given, also for the callback. The options are RETRY, PRI, of the
    keys (T40) LIMIT, RATE and GROUP, and of the life (T48) ATTEMPTS, BACKOFF, DEAD, TIMELIMIT and
    HEADERS. They need THEN, which is the last word but one."""
    life = "ATTEMPTS 2 BACKOFF 0 0 0 DEAD lost TIMELIMIT 9 HEADERS 1 unique keep"
    for words in ("UNIQUE k", "DELAY 5", "MAXLEN 5", "WITHNEW", "TTL 5"):
        refused = tasks(f"GROUP CREATE t 1 PRI 3 {words} THEN b")
        assert b"GROUP CREATE has no option '%s': it" % words.split()[0].encode() in refused, words
    assert tasks("GROUP CREATE t 1 PRI 3 KEEP 5 THEN b") == (
        b"-ERR syntax error: in GROUP CREATE, KEEP comes before the options of ADDJOB\r\n"
    )
    assert b"THEN and its body come last" in tasks(f"GROUP CREATE t 1 {life}")
    groups = []
    for _ in range(2):
        group = tasks.value(f"GROUP CREATE t 1 KEEP 100 {life} THEN b").decode()
        child = tasks.value("ADDJOB q x 0 KEEP 9").decode()
        tasks(f"GROUP ADD t {group} 0 {child}")
        tasks(f"DONE {child} -")
        groups.append(group)
    turn(tasks)
    (job, *_) = tasks.value("GETJOB NOHANG WITHMETA FROM t")
    told = dict(zip(job[3::2], job[4::2], strict=True))
    assert (told[b"of"], told[b"time-limit-ms"]) == (2, 9_000)
    assert told[b"headers"] == [b"unique", b"keep"]
    run = tasks.value(f"START {groups[0]}")[0][0].decode()
    assert tasks.value(f"DONE {groups[0]} {run} RESULT sum") == 1
    later(tasks, 90_000)
    found = tasks.value(f"RESULT {groups[0]}")
    assert (found[1], found[11]) == (b"done", b"sum")
    later(tasks, 11_000)
    assert tasks(f"RESULT {groups[0]}").startswith(b"-NOJOB")
    for became in (b"retry", b"dead"):
        tasks("GETJOB NOHANG FROM t")
        run = tasks.value(f"START {groups[1]}")[0][0].decode()
        assert tasks.value(f"FAIL {groups[1]} {run} REASON no")[0] == became
        turn(tasks)
    assert tasks.value("QLEN lost") == 1


def test_children_count_for_their_tenant(world: World) -> None:
    """N11.2 jobs are those of its queues and tubes that this node has in any state, the records of
    children among them"""
    world("ACL SETUSER ops on nopass +@all ~*")
    world("AUTH ops x")
    world("ACL SETUSER ann on nopass +@all ~* tenant:one quota:jobs=5")
    ann = world.wire()
    world("AUTH ann x", by=ann)
    world("TUBE CREATE t tasks", by=ann)
    group = world("GROUP CREATE t 9 THEN callback", by=ann).split(b"\r\n")[1]
    ids = [world("ADDJOB q x 0 KEEP 9", by=ann)[1:-2] for _ in range(2)]
    pairs = [b"0", ids[0], b"1", ids[1]]
    assert world("GROUP ADD t", group, *pairs, by=ann) == b":2\r\n"
    assert world("GROUP ADD t", group, *pairs, by=ann) == b":0\r\n"
    refused = world("GROUP ADD t", group, b"2", ids[0], by=ann)
    assert refused.startswith(b"-QUOTA tenant 'one' has 5 jobs at this node, and may have 5")


def listed(world: World, words: str) -> list[str]:
    return [row[1].decode() for row in world.value(f"GROUP LIST t {words}")[1]]


def test_groups_of_a_state(tasks: World) -> None:
    """T51.4 with STATE those of that state, also `called`."""
    called, ids = made(tasks, 1)
    tasks(f"DONE {ids[0]} -")
    turn(tasks)
    failed, ids = made(tasks, 1, options="ATTEMPTS 1")
    dead(tasks, ids[0])
    opened, _ = made(tasks, 1)
    over, _ = made(tasks, 1)
    assert tasks.value(f"GROUP CANCEL t {over}") == 1
    assert listed(tasks, "") == [failed, opened, over]
    for state, group in (("called", called), ("failed", failed), ("open", opened)):
        assert listed(tasks, f"0 COUNT 5 STATE {state}") == [group]
    assert listed(tasks, "STATE CANCELLED") == [over] and listed(tasks, "STATE done") == []
    after, rows = tasks.value("GROUP LIST t STATE open COUNT 1")
    assert (after, len(rows)) == (b"0", 1)
    assert tasks("GROUP LIST t STATE shut") == (
        b"-ERR STATE must be open, done, failed, cancelled, called, not 'shut'\r\n"
    )
    for words in ("STATE open STATE open", "COUNT", "0 STATE", "0 0", "0 COUNT 2 x"):
        assert tasks(f"GROUP LIST t {words}").startswith(b"-ERR syntax error"), words


def test_children_without_their_results(tasks: World) -> None:
    """T51.6 replies with the next index, 0 at the end, and for each child from that index on, of
    that state: index, id, `open`, `done` or `failed`, the bytes of its result, how it ended,
    reason, and when (unix ms).
    """
    group, ids = made(tasks, 4, "ONFAIL continue THEN x", "ATTEMPTS 1")
    tasks(f"DONE {ids[1]} - RESULT 12345")
    dead(tasks, ids[2])
    now_ms = tasks.n.now_ms
    after, rows = tasks.value(f"GROUP CHILDREN t {group}")
    assert after == 0 and [row[2] for row in rows] == [b"open", b"done", b"failed", b"open"]
    assert rows[1] == [1, ids[1].encode(), b"done", 5, b"done", b"", rows[1][6]]
    assert rows[2][3:6] == [0, b"dead", b"no"] and 0 < rows[2][6] <= now_ms
    assert rows[0][3:] == [0, b"open", b"", 0]
    for state, indexes in (("failed", [2]), ("open", [0, 3]), ("DONE", [1])):
        found = tasks.value(f"GROUP CHILDREN t {group} 0 STATE {state}")
        assert [row[0] for row in found[1]] == indexes
    assert tasks.value(f"GROUP CHILDREN t {group} 1 COUNT 1 STATE open")[0] == 0
    assert tasks(f"GROUP CHILDREN t {group} STATE gone").startswith(b"-ERR STATE must be open, ")
    assert tasks(f"GROUP CHILDREN t {ids[0]}").startswith(b"-NOJOBGROUP")


def test_children_a_thousand_at_a_time(tasks: World) -> None:
    """T51.6 It looks at 1,000 children at most, so that a reply with a next index may have none."""
    group = tasks.value("GROUP CREATE t 2500 THEN x").decode()
    assert tasks.value(f"GROUP CHILDREN t {group} STATE failed") == [1000, []]
    assert tasks.value(f"GROUP CHILDREN t {group} 1000") == [2000, []]
    assert tasks.value(f"GROUP CHILDREN t {group} 2000") == [0, []]


def test_events_of_groups(tasks: World) -> None:
    """E1.9 group-created, and then one of group-done, group-failed, group-cancelled and
    group-called (it is its callback now), are rows of the leader of a group's tube (T50): the queue
    is the tube, the number of the delivery is that of the children.
    """
    events = tasks.n.events = Events(1_000, 0)
    called, ids = made(tasks, 2)
    for id in ids:
        tasks(f"DONE {id} -")
    turn(tasks)
    failed, ids = made(tasks, 2, "ONFAIL stop", "ATTEMPTS 1")
    dead(tasks, ids[1])
    over, _ = made(tasks, 1, "ONFAIL wait")
    tasks(f"GROUP CANCEL t {over}")
    done, ids = made(tasks, 1, "ONFAIL continue")
    tasks(f"DONE {ids[0]} -")
    turn(tasks)
    events.cut()
    rows = []
    for chunk in map(Told, events.full):
        kinds = [KIND_NAMES[kind] for kind in chunk.kinds]
        columns = (kinds, chunk.queues, chunk.delivery, chunk.job_ids)
        reasons = iter(chunk.reason)
        for kind, queue, number, job in zip(*columns, strict=True):
            reason = "" if kind in ("added", "delivered", "acked") else next(reasons).decode()
            if kind.startswith("group-"):
                assert (queue, job) == (b"t", b"")
                rows.append((kind, number, reason))
    assert rows == [
        ("group-created", 2, f"{called} on failure stop"),
        ("group-called", 2, f"{called} 2 done, 0 failed"),
        ("group-created", 2, f"{failed} on failure stop"),
        ("group-failed", 2, f"{failed} 0 done, 1 failed"),
        ("group-created", 1, f"{over} on failure wait"),
        ("group-cancelled", 1, f"{over} 0 done, 0 failed"),
        ("group-created", 1, f"{done} on failure continue"),
        ("group-done", 1, f"{done} 1 done, 0 failed"),
    ]
