"""SHOW, QLEN, QSTAT, QPEEK, PAUSE and the two scans (SPEC S, P)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from door import NO_JOB, NODE_ID, Door

from tuque.core.model.job import ACTIVE, Job
from tuque.core.model.stats import LOADED
from tuque.core.queues.procedures import register

NOT_INT = b"-ERR value is not an integer or out of range\r\n"


def test_show_of_an_unknown_job(door: Door) -> None:
    assert door(f"SHOW {NO_JOB}") == b"$-1\r\n"
    assert door("SHOW x") == b"-BADID Invalid Job ID format.\r\n"


def test_show_of_a_job(door: Door) -> None:
    id = door.add("q", "body", "DELAY", "5", "RETRY", "7", "TTL", "60")
    flat = door.value("SHOW", id)
    assert flat[::2] == [
        b"id",
        b"queue",
        b"state",
        b"repl",
        b"ttl",
        b"ctime",
        b"delay",
        b"retry",
        b"nacks",
        b"additional-deliveries",
        b"nodes-delivered",
        b"nodes-confirmed",
        b"next-requeue-within",
        b"next-awake-within",
        b"body",
    ]
    ctime = door.n.now_ms * 1_000_000
    values = [id, b"q", b"active", 1, 60, ctime, 5, 7, 0, 0, [NODE_ID], [], 5000, 5000, b"body"]
    assert flat[1::2] == values
    door("HELLO 3")
    assert door("SHOW", id).startswith(b"*30\r\n")  # no map in RESP3 either


def test_show_of_a_delivered_at_most_once_job(door: Door) -> None:
    id = door.add("q", "b", "RETRY", "0", "REPLICATE", "1")
    door("GETJOB FROM q")
    assert b"$19\r\nnext-requeue-within\r\n$-1\r\n" in door("SHOW", id)


def test_length_of_a_queue(door: Door) -> None:
    assert door("QLEN q") == b":0\r\n"
    door.add()
    assert door("QLEN q") == b":1\r\n"


def test_qstat(door: Door) -> None:
    assert door("QSTAT nosuch") == b"*-1\r\n"
    door.add()
    door.n.now_ms += 3000
    door.add()
    door("GETJOB FROM q")
    door.n.now_ms += 2000
    assert door("QSTAT q") == (
        b"*22\r\n$4\r\nname\r\n$1\r\nq\r\n$3\r\nlen\r\n:1\r\n$3\r\nage\r\n:5\r\n"
        b"$4\r\nidle\r\n:2\r\n$7\r\nblocked\r\n:0\r\n"
        b"$11\r\nimport-from\r\n*0\r\n$11\r\nimport-rate\r\n:0\r\n"
        b"$7\r\njobs-in\r\n:2\r\n$8\r\njobs-out\r\n:1\r\n$5\r\npause\r\n$4\r\nnone\r\n"
        b"$6\r\noldest\r\n:2\r\n"
    )


def test_qpeek(door: Door) -> None:
    assert door("QPEEK nosuch 1") == b"*0\r\n"
    a, b = door.add("q", "a"), door.add("q", "b")
    assert door("QPEEK q 1") == b"*1\r\n*3\r\n$1\r\nq\r\n$40\r\n%s\r\n$1\r\na\r\n" % a
    assert door.value("QPEEK q -2") == [[b"q", b, b"b"], [b"q", a, b"a"]]
    assert door.value("QPEEK q 9223372036854775807") == [[b"q", a, b"a"], [b"q", b, b"b"]]
    assert door("QPEEK q 0") == b"*0\r\n"
    assert door("QPEEK q x") == NOT_INT
    assert door("QLEN q") == b":2\r\n"


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("in", b"in"),
        ("in out", b"all"),
        ("OUT", b"out"),
        ("all none in", b"in"),
        ("in none", b"none"),
        ("state", b"none"),
        ("in bcast", b"in"),
    ],
)
def test_pause_adds_words_up(door: Door, words: str, state: bytes) -> None:
    assert door(f"PAUSE q {words}") == b"+" + state + b"\r\n"


def test_pause_replaces_the_old_state(door: Door) -> None:
    door("PAUSE q in")
    assert door("PAUSE q out") == b"+out\r\n"
    assert door("PAUSE q state bcast") == b"+out\r\n"
    assert door("PAUSE q in nosuch").startswith(
        b"-ERR syntax error at 'nosuch': use PAUSE queue in|out"
    )
    assert door("PAUSE q state") == b"+out\r\n"  # nothing was applied
    assert door("ADDJOB q b 0").startswith(b"+D-")
    assert door("PAUSE q in") == b"+in\r\n"
    assert door("ADDJOB q b 0") == b"-PAUSED Queue paused in input, try later\r\n"


def test_pause_makes_a_queue_only_when_it_must(door: Door) -> None:
    door("PAUSE q none")
    assert door("QSTAT q") == b"*-1\r\n"
    door("PAUSE q in")
    assert door.info("queues")["registered_queues"] == "1"


def test_samples_of_the_scans(door: Door) -> None:
    assert door("QSCAN") == b"*2\r\n$1\r\n0\r\n*0\r\n"
    id = door.add()
    assert door("QSCAN") == b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\nq\r\n"
    assert door("JSCAN") == b"*2\r\n$1\r\n0\r\n*1\r\n+%s\r\n" % id
    assert door("JSCAN REPLY all").startswith(b"*2\r\n$1\r\n0\r\n*1\r\n*30\r\n$2\r\nid\r\n")


BAD_SCAN = b"-ERR invalid cursor or option name\r\n"
BAD_COUNT = b"-ERR COUNT must be a number greater than zero\r\n"


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("QSCAN x", BAD_SCAN),
        ("QSCAN -1", BAD_SCAN),
        ("QSCAN COUNT", BAD_SCAN),
        ("QSCAN 0 1", b"-ERR syntax error at '1': use QSCAN [cursor]"),
        ("QSCAN COUNT 0", BAD_COUNT),
        ("QSCAN COUNT x", BAD_COUNT),
        ("QSCAN MINLEN x", NOT_INT),
        ("QSCAN QUEUE q", BAD_SCAN),
        ("JSCAN STATE done", b"-ERR Invalid job state name\r\n"),
        ("JSCAN REPLY both", b"-ERR Invalid REPLY type, try ID or ALL\r\n"),
        ("JSCAN QUEUE", BAD_SCAN),
    ],
)
def test_wrong_scans(door: Door, line: str, reply: bytes) -> None:
    assert door(line).startswith(reply)


def test_filters_of_qscan(door: Door) -> None:
    for size in range(4):
        for _ in range(size):
            door.add(f"q{size}")
    door("PAUSE q0 in")
    assert sorted(door.value("QSCAN MINLEN 2")[1]) == [b"q2", b"q3"]
    assert sorted(door.value("QSCAN MINLEN 1 MAXLEN 2")[1]) == [b"q1", b"q2"]
    assert len(door.value("QSCAN IMPORTRATE 0")[1]) == 4
    assert door.value("QSCAN IMPORTRATE 1")[1] == []


def test_types_of_queues(door: Door) -> None:
    """S2.3, S4.3, T1.7."""
    door.add("q")
    for name, type in (("a", "fifo"), ("b", "utube"), ("c", "utube")):
        door(f"TUBE CREATE {name} {type}")
    assert sorted(door.value("QSCAN")[1]) == [b"a", b"b", b"c", b"q"]
    assert sorted(door.value("QSCAN TYPE utube")[1]) == [b"b", b"c"]
    assert door.value("QSCAN TYPE queue")[1] == [b"q"]
    assert door.value("QSCAN TYPE fifottl")[1] == []
    assert door("QSCAN TYPE") == b"-ERR invalid cursor or option name\r\n"
    assert door.value("QSTAT b")[-2:] == [b"type", b"utube"]
    assert b"type" not in door.value("QSTAT q") and len(door.value("QSTAT q")) == 22


def test_filters_of_jscan(door: Door) -> None:
    a, b = door.add("q"), door.add("r")
    c = door.add("r", "x", "DELAY", "5")
    assert door.value("JSCAN QUEUE r")[1] == [c, b]
    assert door.value("JSCAN STATE active")[1] == [c]
    assert door.value("JSCAN STATE active STATE queued")[1] == [c, b, a]
    assert door.value("JSCAN STATE acked")[1] == []


def walk(door: Door, line: str, between: Callable[[int], None]) -> list[bytes]:
    """A whole scan, `between` called after each slice; what was returned."""
    found: list[bytes] = []
    cursor, turn = b"0", 0
    while True:
        command, _, options = line.partition(" ")
        cursor, items = door.value(f"{command} {cursor.decode()} {options}")
        found += items
        if cursor == b"0":
            return found
        between(turn)
        turn += 1
        assert turn < 1000


def test_a_scan_meets_all_that_stays(door: Door) -> None:
    ids = [door.add("q", str(i)) for i in range(300)]
    stay = ids[::3]

    def change(turn: int) -> None:
        door("DELJOB", *[id for id in ids[turn * 7 : turn * 7 + 7] if id not in stay])
        door.add("q", "new")

    found = walk(door, "JSCAN COUNT 10", change)
    assert set(stay) <= set(found)


def test_two_scans_at_once_know_nothing_of_each_other(door: Door) -> None:
    ids = [door.add("q", str(i)) for i in range(50)]

    def another(turn: int) -> None:
        door.n.now_ms += 60_000
        assert len(walk(door, "JSCAN COUNT 11", lambda _: None)) == 50

    assert walk(door, "JSCAN COUNT 7", another) == ids[::-1]


def test_a_cursor_beyond_the_end_begins_at_the_end(door: Door) -> None:
    ids = [door.add() for _ in range(3)]
    assert door.value("JSCAN 99") == [b"0", ids[::-1]]
    assert door.value("JSCAN 2") == [b"0", ids[1::-1]]


def test_jobs_of_one_instant_are_not_split(door: Door) -> None:
    """Copies from other nodes may have equal creation stamps; the cursor can't tell them apart."""
    for i in range(30):
        id = b"D-0a0b0c0d-%024d-05a1" % i
        job = Job(id, b"q", b"", 1000 + i // 10, door.n.now_ms + 60_000, 5, 0, 1)
        job.state = ACTIVE
        register(door.n, job, LOADED)
        door.n.wheel.arm(job, door.n.now_ms)
    assert len(walk(door, "JSCAN COUNT 4", lambda _: None)) == 30


def test_busyloop_scans_all_at_once(door: Door) -> None:
    ids = [door.add(f"q{i}") for i in range(250)]
    assert door.value("JSCAN BUSYLOOP COUNT 1") == [b"0", ids[::-1]]
    assert len(door.value("QSCAN COUNT 1 BUSYLOOP")[1]) == 250
    cursor, names = door.value("QSCAN")
    assert len(names) == 100 and cursor != b"0"


def test_a_slice_looks_at_a_bounded_number(door: Door) -> None:
    for i in range(250):
        door.add("q", str(i))
    cursor, items = door.value("JSCAN QUEUE nosuch COUNT 10")
    assert items == [] and cursor != b"0"
    assert walk(door, "JSCAN QUEUE nosuch COUNT 10", lambda _: None) == []
