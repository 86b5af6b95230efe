"""Dead letters of tubes of type `tasks`: DEAD, RESULT, KICK, groups (SPEC T48.8 to T48.15)."""

from __future__ import annotations

from typing import Any

import pytest

from tuque.tubes.leadership.activate import lose_home
from tuque.tubes.policy import tubes_of
from world import World

OTHER = b"f" * 40
THERE = b"-TUBEHOME 10.0.0.2:7712 Tube 't' has its leader there\r\n"
ONCE = ("ATTEMPTS", "1")


@pytest.fixture
def tasks(world: World) -> World:
    assert world("TUBE CREATE t tasks TTR 30") == b"+OK\r\n"
    return world


def turn(world: World) -> None:
    """Turns of the loop, until none has work at this instant."""
    world.settle()
    assert world("DEBUG CHECK") == b"+OK\r\n"


def later(world: World, ms: int) -> None:
    world.pass_ms(ms + 20)
    turn(world)


def take(world: World, count: int = 1, queue: str = "t") -> list[bytes]:
    got = world.value(f"GETJOB NOHANG COUNT {count} FROM {queue}") or []
    return [job[1] for job in got]


def start(world: World, id: bytes) -> Any:
    return world.value("START", "WORKER", "w", id)[0]


def fail(world: World, id: bytes, *words: str) -> Any:
    """The task is taken, begun, and fails."""
    assert take(world) == [id]
    return world.value("FAIL", id, start(world, id)[0], *words)


def killed(world: World, *words: str, reason: str = "why") -> bytes:
    """A task that has died."""
    id = world.add("t", "body", *ONCE, *words)
    assert fail(world, id, "REASON", reason, "DETAIL", "trace") == [b"dead", b"t.dead"]
    return id


def letters(world: World, words: str = "", queue: str = "t") -> list[list[Any]]:
    rows: list[list[Any]] = world.value(f"DEAD LIST {queue} {words}")[1]
    return rows


def named(words: list[Any]) -> dict[bytes, Any]:
    return dict(zip(words[::2], words[1::2], strict=True))


def result(world: World, id: bytes) -> dict[bytes, Any]:
    return named(world.value("RESULT", id))


def info(world: World, section: str) -> dict[str, str]:
    text = world.value(f"INFO {section}").decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def test_a_task_that_is_given_up_stays(tasks: World) -> None:
    """T48.8 After the last attempt that fails, or FINAL, the task is dead: in one change, and so
    once, it is BURIED in its tube, under its id, with cause, reason, attempts, and the first and
    last failure.
    """
    words = ("BACKOFF", "0", "0", "0", "UNIQUE", "u", "LIMIT", "l", "1")
    head = ("HEADERS", "1", "tuque-task", "send")
    id = tasks.add("t", "body", "ATTEMPTS", "2", *words, *head)
    other = tasks.add("t", "other", "LIMIT", "l", "1")
    assert fail(tasks, id, "REASON", "one") == [b"retry", 0]
    assert fail(tasks, id, "REASON", "two", "DETAIL", "trace") == [b"dead", b"t.dead"]
    turn(tasks)
    ((letter, origin, task, attempts, cause, reason, *_),) = letters(tasks)
    assert (letter, origin, task, attempts) == (id, b"t", b"send", 2)
    assert (cause, reason) == (b"failed", b"two")
    shown = named(tasks.value("DEAD SHOW", id))
    assert (shown[b"queue"], shown[b"detail"], shown[b"body"]) == (b"t", b"trace", b"body")
    assert (shown[b"first-reason"], shown[b"headers"]) == (b"one", [b"tuque-task", b"send"])
    assert tasks.value("DEAD STAT t") == [[b"failed", b"two", 1]]
    assert take(tasks, 9) == [other]  # the place is free
    assert tasks.add("t", "body", "UNIQUE", "u") != id  # so is the key


def test_what_counts_and_shows_it(tasks: World) -> None:
    """T48.15 START of a dead task: `-DEAD` (W2.2). It counts as buried (T15.4) and as a dead
    letter (W6.6, S8, O10.2).
    """
    id = killed(tasks, "KEEP", "60")
    seen = result(tasks, id)
    assert (seen[b"state"], seen[b"cause"], seen[b"reason"]) == (b"dead", b"failed", b"why")
    assert (seen[b"detail"], seen[b"attempt"]) == (b"trace", 1)
    assert tasks.value("WAITJOB 1", id) == [[id, b"dead"]]
    assert named(tasks.value("TUBE INFO t"))[b"buried"] == 1
    assert info(tasks, "jobs")["dead"] == "1"
    (row,) = tasks.value("QLIST NAMES t")[1]
    assert (row[1], row[5]) == (b"tasks", 1)
    assert b"-DEAD Job is a dead letter in 't'" in tasks("START", id)
    assert tasks.value("ACKJOB", id) == 0
    tasks("DEAD REPLAY t ALL")
    (row,) = tasks.value("QLIST NAMES t")[1]
    assert (row[5], info(tasks, "jobs")["dead"]) == (0, "0")


def test_bury_by_hand_is_a_dead_letter(tasks: World) -> None:
    """T48.8 Each BURIED task is a dead letter, of TUBE BURY with the cause `buried`; no attempt
    is used up.
    """
    id = tasks.add("t", "body", "UNIQUE", "u")
    tasks("TUBE BURY t 0")
    assert [(row[0], row[3], row[4]) for row in letters(tasks, "CAUSE buried")] == [
        (id, 0, b"buried")
    ]
    other = tasks.add("t", "more", "UNIQUE", "u")
    assert other != id
    assert tasks.value("TUBE KICK t 5") == 0  # the other one has the key
    assert tasks.value("ENQUEUE", id) == 0
    tasks("TUBE BURY t 1")
    assert tasks.value("TUBE KICK t 5") == 1
    assert take(tasks, 9) == [id]
    assert [row[0] for row in letters(tasks)] == [other]
    turn(tasks)


def test_replay_is_the_next_life(tasks: World) -> None:
    """T48.13 DEAD REPLAY makes a dead task READY at its old place, as in a new life: `failed` is 0
    and its ttl, as long as it was at its first death, begins anew; id, headers, keys and the count
    of takes stay."""
    words = ("ATTEMPTS", "2", "BACKOFF", "0", "0", "0", "TTL", "100", "UNIQUE", "u")
    id = tasks.add("t", "body", *words, "HEADERS", "1", "a", "b")
    tasks.add("t", "later")
    fail(tasks, id)
    fail(tasks, id)
    tasks.pass_ms(90_000)
    assert tasks.value("DEAD REPLAY t ALL") == [b"0", 1, 1]
    assert letters(tasks) == [] and result(tasks, id)[b"state"] == b"waiting"
    assert tasks.value("ADDJOB t more 0 UNIQUE u WITHNEW") == [id, 0]  # it has its key again
    later(tasks, 90_000)
    got = tasks.value("GETJOB NOHANG WITHMETA FROM t")[0]
    meta = named(got[3:])
    assert (got[1], meta[b"attempt"], meta[b"of"]) == (id, 1, 2)
    assert meta[b"headers"] == [b"a", b"b"]
    run, attempt, _, starts, *_ = start(tasks, id)
    assert (attempt, starts) == (1, 3)
    assert tasks.value("FAIL", id, run, "FINAL") == [b"dead", b"t.dead"]
    assert named(tasks.value("DEAD SHOW", id))[b"replays"] == 1
    turn(tasks)


def test_replay_of_a_key_that_another_task_has(tasks: World) -> None:
    """T48.13 If another task has it, it stays dead and does not count as changed; if it is the
    only one that IDS names: `-DUPLICATE <id> has this UNIQUE key`.
    """
    id = killed(tasks, "UNIQUE", "u")
    free = killed(tasks)
    other = tasks.add("t", "more", "UNIQUE", "u")
    told = tasks("DEAD REPLAY t IDS", id)
    assert told == b"-DUPLICATE %s has this UNIQUE key\r\n" % other
    assert tasks.value("DEAD REPLAY t IDS", id, free) == [b"0", 1, 2]
    assert tasks.value("DEAD REPLAY t ALL") == [b"0", 0, 1]
    assert [row[0] for row in letters(tasks)] == [id]
    assert take(tasks, 9) == [free, other]
    assert tasks.value("ACKJOB", other) == 1
    assert tasks.value("DEAD REPLAY t RATE 5 IDS", id) == [b"0", 1, 1]
    assert take(tasks) == [id]
    turn(tasks)


def test_replay_to_a_queue(tasks: World) -> None:
    """T48.13 With QUEUE the body goes to that queue as a new job with its own id, and the task
    ends with the outcome `dead`.
    """
    id = killed(tasks, "KEEP", "60", "HEADERS", "1", "a", "b")
    assert tasks("DEAD REPLAY t QUEUE t ALL").startswith(b"-ERR 't' is a tube")
    assert tasks.value("DEAD REPLAY t QUEUE q ALL") == [b"0", 1, 1]
    (new,) = take(tasks, 9, "q")
    assert new != id and letters(tasks) == []
    assert start(tasks, new)[1:3] == [1, 1]
    assert result(tasks, id)[b"state"] == b"dead"
    assert tasks.value("QSTAT t")[1] == b"t"
    turn(tasks)


def test_a_letter_in_the_queue_that_dead_names(tasks: World) -> None:
    """T48.12 If ADDJOB named a queue with DEAD, the dead letter of a task is a new job with its
    own id there, with the copies of a plain ADDJOB; the task ends in the same step of the
    journal, with the outcome `dead`, and its keys are free.

    Without it the letter stays, and others are replayed.
    """
    id = tasks.add("t", "body", *ONCE, "DEAD", "grave", "KEEP", "60", "UNIQUE", "u")
    assert fail(tasks, id, "DETAIL", "trace") == [b"dead", b"grave"]
    ((letter, origin, *_),) = letters(tasks, queue="grave")
    assert letter != id and origin == b"t" and letters(tasks) == []
    assert named(tasks.value("DEAD SHOW", letter))[b"detail"] == b"trace"
    assert result(tasks, id)[b"state"] == b"dead"
    assert tasks.add("t", "body", "UNIQUE", "u") != id
    assert tasks("DEAD REPLAY grave ALL") == (
        b"-ERR 't' is a tube: DEAD REPLAY of letters in 'grave' needs QUEUE\r\n"
    )
    other = tasks.add("q", "body", *ONCE, "DEAD", "grave")
    assert take(tasks, 1, "q") == [other]
    tasks.value("FAIL", other, start(tasks, other)[0])
    assert tasks.value("DEAD REPLAY grave COUNT 1 ALL")[1:] == [0, 1]
    assert tasks.value("DEAD REPLAY grave ALL") == [b"0", 1, 2]
    assert take(tasks, 1, "q") == [other]
    assert tasks("DEAD REPLAY grave IDS", letter).endswith(b"needs QUEUE\r\n")
    assert tasks.value("DEAD REPLAY grave QUEUE again IDS", letter)[1] == 1
    assert take(tasks, 1, "again") == [letter]
    turn(tasks)


def test_expired_tasks_with_attempts(tasks: World) -> None:
    """T48.14 A DELAYED one does so when its delay is over, a TAKEN one when it is released (T6.2).
    Without ATTEMPTS it is gone (T6.1)."""
    ready = tasks.add("t", "body", *ONCE, "TTL", "60")
    delayed = tasks.add("t", "body", "ATTEMPTS", "3", "TTL", "60", "BACKOFF", "90", "90", "0")
    plain = tasks.add("t", "body", "TTL", "60", "HEADERS", "1", "a", "b")
    assert take(tasks, 2) == [ready, delayed]
    (run, *_) = start(tasks, ready)
    assert tasks.value("FAIL", delayed, start(tasks, delayed)[0], "REASON", "r")[0] == b"retry"
    tasks.pass_ms(20_000)
    tasks("WORKING", ready, run)
    tasks.pass_ms(20_000)
    tasks("WORKING", ready, run)
    tasks.pass_ms(21_000)
    turn(tasks)
    assert letters(tasks) == [] and tasks("SHOW", plain) == b"$-1\r\n"
    assert tasks.value("RELEASE", ready, run) == 1
    turn(tasks)
    assert [(row[0], row[4]) for row in letters(tasks)] == [(ready, b"expired")]
    later(tasks, 30_000)
    assert [(row[0], row[3], row[4], row[5]) for row in letters(tasks)][1:] == [
        (delayed, 1, b"expired", b"r")
    ]
    assert tasks.value("DEAD PURGE t CAUSE expired ALL") == [b"0", 2, 2]
    assert tasks("DEAD SHOW", ready).startswith(b"-NOJOB")
    turn(tasks)


def test_who_asks_elsewhere_is_sent_to_the_leader(tasks: World) -> None:
    """T48.15 LIST, STAT, REPLAY and PURGE take the name of the tube, at its leader (T17.3), SHOW
    the id of the task
    """
    id = killed(tasks)
    tasks.server.members.restore(OTHER, "10.0.0.2", 7712, 17712, 0)
    lose_home(tasks.n, tubes_of(tasks.n), tubes_of(tasks.n).by_name[b"t"], OTHER, 2)
    for line in ("DEAD LIST t", "DEAD STAT t", "DEAD REPLAY t ALL", "DEAD PURGE t ALL"):
        assert tasks(line) == THERE
    assert tasks("DEAD SHOW", id) == THERE
    assert info(tasks, "jobs")["dead"] == "0"  # they are the leader's


def buried_in_queue(world: World) -> bytes:
    """A dead letter in the plain queue `t.dead`."""
    id = world.add("q", "body", "ATTEMPTS", "1", "DEAD", "t.dead")
    assert take(world, queue="q") == [id]
    assert world.value("FAIL", id, start(world, id)[0], "REASON", "why") == [b"dead", b"t.dead"]
    return id


def test_the_letters_of_a_tube_are_those_of_a_queue(tasks: World) -> None:
    """T48.15 They take `<tube>.dead`, too: first come the letters in the plain queue of that name,
    then those of the tube
    """
    in_tube = [killed(tasks), killed(tasks)]
    in_queue = [buried_in_queue(tasks), buried_in_queue(tasks)]
    found: list[bytes] = []
    cursor = b"0"
    for _ in range(4):
        cursor, rows = tasks.value(f"DEAD LIST t.dead {cursor.decode()} COUNT 1")
        found += [row[0] for row in rows]
    assert (found, cursor) == ([*in_queue, *in_tube], b"0")
    assert tasks.value("DEAD STAT t.dead") == [[b"failed", b"why", 4]]
    assert tasks.value("DEAD STAT t") == [[b"failed", b"why", 2]]
    assert tasks.value("DEAD REPLAY t.dead IDS", in_queue[0], in_tube[0]) == [b"0", 2, 2]
    assert (take(tasks), take(tasks, queue="q")) == ([in_tube[0]], [in_queue[0]])
    assert tasks.value("DEAD PURGE t.dead COUNT 1 ALL")[1:] == [1, 1]
    assert tasks.value("DEAD PURGE t.dead ALL") == [b"0", 1, 1]
    assert tasks.value("DEAD LIST t.dead") == [b"0", []]
    turn(tasks)


def test_the_letters_of_a_queue_are_found_away_from_the_leader(tasks: World) -> None:
    """T48.15 Where the tube is not led there are the first ones alone; if there are none, the error
    names the leader.
    """
    in_tube, in_queue = killed(tasks), buried_in_queue(tasks)
    far = int(tasks.value("DEAD LIST t.dead COUNT 1")[0]) | 1 << 62
    tasks.server.members.restore(OTHER, "10.0.0.2", 7712, 17712, 0)
    lose_home(tasks.n, tubes_of(tasks.n), tubes_of(tasks.n).by_name[b"t"], OTHER, 2)
    assert [row[0] for row in letters(tasks, queue="t.dead")] == [in_queue]
    assert tasks(f"DEAD LIST t.dead {far}") == THERE
    assert tasks("DEAD PURGE t.dead IDS", in_tube) == THERE
    assert tasks.value("DEAD PURGE t.dead ALL") == [b"0", 1, 1]
    for line in ("DEAD LIST t.dead", "DEAD STAT t.dead", "DEAD PURGE t.dead ALL"):
        assert tasks(line) == THERE


def group(world: World, on_fail: str) -> tuple[str, bytes, bytes]:
    """A group of two tasks of the tube, of which one is dead; then the other one."""
    gid = world.value(f"GROUP CREATE t 2 ONFAIL {on_fail} THEN callback").decode()
    first = world.add("t", "c0", "ATTEMPTS", "1", "KEEP", "9000")
    second = world.add("t", "c1", "ATTEMPTS", "1", "KEEP", "9000")
    assert world.value(f"GROUP ADD t {gid} 0 {first.decode()} 1 {second.decode()}") == 2
    turn(world)
    assert fail(world, first) == [b"dead", b"t.dead"]
    return gid, first, second


def state_of(world: World, gid: str) -> str:
    return named(world.value(f"GROUP SHOW t {gid}"))[b"state"].decode()


def test_a_dead_child_stops_its_group(tasks: World) -> None:
    """T50.5 ONFAIL stop: a child that fails makes the group fail: the callback does not run, and
    the open children are cancelled.
    """
    gid, first, second = group(tasks, "stop")
    later(tasks, 2_000)
    assert state_of(tasks, gid) == "failed"
    assert [row[0] for row in letters(tasks)] == [first]
    assert result(tasks, second)[b"state"] == b"cancelled"
    assert take(tasks, 9) == []


def test_a_group_waits_for_the_replay_of_a_dead_child(tasks: World) -> None:
    """T50.5 With `wait` one that is dead is open"""
    gid, first, second = group(tasks, "wait")
    assert take(tasks) == [second]
    assert tasks.value("DONE", second, start(tasks, second)[0]) == 1
    later(tasks, 20_000)
    assert state_of(tasks, gid) == "open"
    assert tasks.value("DEAD REPLAY t IDS", first) == [b"0", 1, 1]
    assert take(tasks) == [first]
    assert tasks.value("DONE", first, start(tasks, first)[0]) == 1
    later(tasks, 20_000)
    assert [id.decode() for id in take(tasks, 9)] == [gid]


def test_a_group_goes_on_without_a_dead_child(tasks: World) -> None:
    """T50.5 With `continue` it has ended like the others, without a result."""
    gid, first, second = group(tasks, "continue")
    later(tasks, 2_000)
    assert state_of(tasks, gid) == "open"
    assert take(tasks) == [second]
    assert tasks.value("DONE", second, start(tasks, second)[0]) == 1
    later(tasks, 2_000)
    assert [id.decode() for id in take(tasks, 9)] == [gid]
    assert [row[0] for row in letters(tasks)] == [first]


def test_a_key_for_a_time_stays_with_a_dead_task(tasks: World) -> None:
    """T44.3 With UNTIL a number of seconds a key is taken for that time from the add, whatever
    becomes of the task."""
    id = killed(tasks, "UNIQUE", "u", "UNTIL", "60")
    assert tasks.add("t", "more", "UNIQUE", "u", "UNTIL", "60") == id
    later(tasks, 61_000)
    other = tasks.add("t", "more", "UNIQUE", "u", "UNTIL", "60")
    assert other != id
    assert tasks.value("DEAD REPLAY t IDS", id) == [b"0", 1, 1]  # T48.13: its time is over
    assert take(tasks, 9) == [id, other]
    turn(tasks)


def test_the_ttl_of_the_next_life_ends_it(tasks: World) -> None:
    """T48.13 its ttl, as long as it was at its first death, begins anew"""
    id = killed(tasks, "TTL", "60")
    for _ in range(2):
        later(tasks, 90_000)
        assert tasks.value("DEAD REPLAY t ALL") == [b"0", 1, 1]
        later(tasks, 58_000)
        assert letters(tasks) == []
        later(tasks, 3_000)
        assert [(row[0], row[4]) for row in letters(tasks)] == [(id, b"expired")]
