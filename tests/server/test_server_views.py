"""SHOW, QLEN, QSTAT, QPEEK, PAUSE and the two scans (SPEC S, P)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tuque.core.model.job import ACTIVE, Job
from tuque.core.model.stats import LOADED
from tuque.core.queues.procedures import register
from world import World
from world_machines import name_of

NOT_INT = b"-ERR value is not an integer or out of range\r\n"


def test_show_of_an_unknown_job(world: World) -> None:
    assert world("SHOW D-12345678-123456789012345678901234-0001") == b"$-1\r\n"
    assert world("SHOW x") == b"-BADID Invalid Job ID format.\r\n"


def test_show_of_a_job(world: World) -> None:
    id = world.add("q", "body", "DELAY", "5", "RETRY", "7", "TTL", "60")
    flat = world.value("SHOW", id)
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
    ctime = world.n.now_ms * 1_000_000
    values = [id, b"q", b"active", 1, 60, ctime, 5, 7, 0, 0, [name_of(0)], [], 5000, 5000, b"body"]
    assert flat[1::2] == values
    world("HELLO 3")
    assert world("SHOW", id).startswith(b"*30\r\n")  # no map in RESP3 either


def test_show_of_a_delivered_at_most_once_job(world: World) -> None:
    id = world.add("q", "b", "RETRY", "0", "REPLICATE", "1")
    world("GETJOB FROM q")
    assert b"$19\r\nnext-requeue-within\r\n$-1\r\n" in world("SHOW", id)


def test_length_of_a_queue(world: World) -> None:
    assert world("QLEN q") == b":0\r\n"
    world.add()
    assert world("QLEN q") == b":1\r\n"


def test_qstat(world: World) -> None:
    assert world("QSTAT nosuch") == b"*-1\r\n"
    world.add()
    world.pass_ms(3000)
    world.add()
    world("GETJOB FROM q")
    world.pass_ms(2000)
    assert world("QSTAT q") == (
        b"*22\r\n$4\r\nname\r\n$1\r\nq\r\n$3\r\nlen\r\n:1\r\n$3\r\nage\r\n:5\r\n"
        b"$4\r\nidle\r\n:2\r\n$7\r\nblocked\r\n:0\r\n"
        b"$11\r\nimport-from\r\n*0\r\n$11\r\nimport-rate\r\n:0\r\n"
        b"$7\r\njobs-in\r\n:2\r\n$8\r\njobs-out\r\n:1\r\n$5\r\npause\r\n$4\r\nnone\r\n"
        b"$6\r\noldest\r\n:2\r\n"
    )


def test_qpeek(world: World) -> None:
    assert world("QPEEK nosuch 1") == b"*0\r\n"
    a, b = world.add("q", "a"), world.add("q", "b")
    assert world("QPEEK q 1") == b"*1\r\n*3\r\n$1\r\nq\r\n$40\r\n%s\r\n$1\r\na\r\n" % a
    assert world.value("QPEEK q -2") == [[b"q", b, b"b"], [b"q", a, b"a"]]
    assert world.value("QPEEK q 9223372036854775807") == [[b"q", a, b"a"], [b"q", b, b"b"]]
    assert world("QPEEK q 0") == b"*0\r\n"
    assert world("QPEEK q x") == NOT_INT
    assert world("QLEN q") == b":2\r\n"


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
def test_pause_adds_words_up(world: World, words: str, state: bytes) -> None:
    assert world(f"PAUSE q {words}") == b"+" + state + b"\r\n"


def test_pause_replaces_the_old_state(world: World) -> None:
    world("PAUSE q in")
    assert world("PAUSE q out") == b"+out\r\n"
    assert world("PAUSE q state bcast") == b"+out\r\n"
    assert world("PAUSE q in nosuch").startswith(
        b"-ERR syntax error at 'nosuch': use PAUSE queue in|out"
    )
    assert world("PAUSE q state") == b"+out\r\n"  # nothing was applied
    assert world("ADDJOB q b 0").startswith(b"+D-")
    assert world("PAUSE q in") == b"+in\r\n"
    assert world("ADDJOB q b 0") == b"-PAUSED Queue paused in input, try later\r\n"


def test_pause_makes_a_queue_only_when_it_must(world: World) -> None:
    world("PAUSE q none")
    assert world("QSTAT q") == b"*-1\r\n"
    world("PAUSE q in")
    assert world.info("queues")["registered_queues"] == "1"


def test_samples_of_the_scans(world: World) -> None:
    assert world("QSCAN") == b"*2\r\n$1\r\n0\r\n*0\r\n"
    id = world.add()
    assert world("QSCAN") == b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\nq\r\n"
    assert world("JSCAN") == b"*2\r\n$1\r\n0\r\n*1\r\n+%s\r\n" % id
    assert world("JSCAN REPLY all").startswith(b"*2\r\n$1\r\n0\r\n*1\r\n*30\r\n$2\r\nid\r\n")


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
def test_wrong_scans(world: World, line: str, reply: bytes) -> None:
    assert world(line).startswith(reply)


def test_filters_of_qscan(world: World) -> None:
    for size in range(4):
        for _ in range(size):
            world.add(f"q{size}")
    world("PAUSE q0 in")
    assert sorted(world.value("QSCAN MINLEN 2")[1]) == [b"q2", b"q3"]
    assert sorted(world.value("QSCAN MINLEN 1 MAXLEN 2")[1]) == [b"q1", b"q2"]
    assert len(world.value("QSCAN IMPORTRATE 0")[1]) == 4
    assert world.value("QSCAN IMPORTRATE 1")[1] == []


def test_types_of_queues(world: World) -> None:
    """S2.3, S4.3, T1.7."""
    world.add("q")
    for name, type in (("a", "fifo"), ("b", "utube"), ("c", "utube")):
        world(f"TUBE CREATE {name} {type}")
    assert sorted(world.value("QSCAN")[1]) == [b"a", b"b", b"c", b"q"]
    assert sorted(world.value("QSCAN TYPE utube")[1]) == [b"b", b"c"]
    assert world.value("QSCAN TYPE queue")[1] == [b"q"]
    assert world.value("QSCAN TYPE fifottl")[1] == []
    assert world("QSCAN TYPE") == b"-ERR invalid cursor or option name\r\n"
    assert world.value("QSTAT b")[-2:] == [b"type", b"utube"]
    assert b"type" not in world.value("QSTAT q") and len(world.value("QSTAT q")) == 22


def test_filters_of_jscan(world: World) -> None:
    a, b = world.add("q"), world.add("r")
    c = world.add("r", "x", "DELAY", "5")
    assert world.value("JSCAN QUEUE r")[1] == [c, b]
    assert world.value("JSCAN STATE active")[1] == [c]
    assert world.value("JSCAN STATE active STATE queued")[1] == [c, b, a]
    assert world.value("JSCAN STATE acked")[1] == []


def walk(world: World, line: str, between: Callable[[int], None]) -> list[bytes]:
    """A whole scan, `between` called after each slice; what was returned."""
    found: list[bytes] = []
    cursor, turn = b"0", 0
    while True:
        command, _, options = line.partition(" ")
        cursor, items = world.value(f"{command} {cursor.decode()} {options}")
        found += items
        if cursor == b"0":
            return found
        between(turn)
        turn += 1
        assert turn < 1000


def test_a_scan_meets_all_that_stays(world: World) -> None:
    ids = [world.add("q", str(i)) for i in range(300)]
    stay = ids[::3]

    def change(turn: int) -> None:
        world("DELJOB", *[id for id in ids[turn * 7 : turn * 7 + 7] if id not in stay])
        world.add("q", "new")

    found = walk(world, "JSCAN COUNT 10", change)
    assert set(stay) <= set(found)


def test_two_scans_at_once_know_nothing_of_each_other(world: World) -> None:
    ids = [world.add("q", str(i)) for i in range(50)]

    def another(turn: int) -> None:
        world.pass_ms(60_000)
        assert len(walk(world, "JSCAN COUNT 11", lambda _: None)) == 50

    assert walk(world, "JSCAN COUNT 7", another) == ids[::-1]


def test_a_cursor_beyond_the_end_begins_at_the_end(world: World) -> None:
    ids = [world.add() for _ in range(3)]
    assert world.value("JSCAN 99") == [b"0", ids[::-1]]
    assert world.value("JSCAN 2") == [b"0", ids[1::-1]]


def test_jobs_of_one_instant_are_not_split(world: World) -> None:
    """Copies from other nodes may have equal creation stamps; the cursor can't tell them apart."""
    for i in range(30):
        id = b"D-0a0b0c0d-%024d-05a1" % i
        job = Job(id, b"q", b"", 1000 + i // 10, world.n.now_ms + 60_000, 5, 0, 1)
        job.state = ACTIVE
        register(world.n, job, LOADED)
        world.n.wheel.arm(job, world.n.now_ms)
    assert len(walk(world, "JSCAN COUNT 4", lambda _: None)) == 30


def test_busyloop_scans_all_at_once(world: World) -> None:
    ids = [world.add(f"q{i}") for i in range(250)]
    assert world.value("JSCAN BUSYLOOP COUNT 1") == [b"0", ids[::-1]]
    assert len(world.value("QSCAN COUNT 1 BUSYLOOP")[1]) == 250
    cursor, names = world.value("QSCAN")
    assert len(names) == 100 and cursor != b"0"


def test_a_slice_looks_at_a_bounded_number(world: World) -> None:
    for i in range(250):
        world.add("q", str(i))
    cursor, items = world.value("JSCAN QUEUE nosuch COUNT 10")
    assert items == [] and cursor != b"0"
    assert walk(world, "JSCAN QUEUE nosuch COUNT 10", lambda _: None) == []
