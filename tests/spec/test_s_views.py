"""SPEC S: SHOW, QLEN, QSTAT, QPEEK, QSCAN, JSCAN, CLUSTER, DEBUG, INFO."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import NULL
from sim.engine.clock import START_MS
from tuque.core.model.job_id import of_url
from tuque.core.node.tables import leave_queue
from world import World
from world_machines import name_of
from world_wires import Status

FIELDS = (
    "id queue state repl ttl ctime delay retry nacks additional-deliveries nodes-delivered "
    "nodes-confirmed next-requeue-within next-awake-within body"
).split()
UNKNOWN = "D-12345678-123456789012345678901234-0001"


def test_show(world: World) -> None:
    """S1.1 Unknown: a null bulk. Known: 15 names and values: id, queue, state, repl, ttl (seconds
    left), ctime (ns), delay, retry, nacks, additional-deliveries, nodes-delivered,
    nodes-confirmed, next-requeue-within (ms, null if the due time is 0), next-awake-within (ms,
    null if none), body.
    """
    world.run("SHOW", UNKNOWN)
    assert world.run("SHOW", UNKNOWN) is NULL
    job_id = world.add(queue="q1", body="b1", TTL=100, RETRY=20, DELAY=30)
    world.pass_ms(10_000)
    shown = world.show(job_id)
    assert list(shown) == FIELDS
    assert shown == {
        "id": job_id,
        "queue": b"q1",
        "state": b"active",
        "repl": 1,
        "ttl": 90,
        "ctime": START_MS * 1_000_000,
        "delay": 30,
        "retry": 20,
        "nacks": 0,
        "additional-deliveries": 0,
        "nodes-delivered": [name_of(0)],
        "nodes-confirmed": [],
        "next-requeue-within": 20_000,
        "next-awake-within": 20_000,
        "body": b"b1",
    }


def test_show_of_deliveries(world: World) -> None:
    """S1.3 If this node has delivered the job, there follow: deliveries, first-delivery,
    last-delivery (ms since 1970), since it first had the job.
    """
    id = world.add(RETRY=5)
    assert list(world.show(id)) == FIELDS
    world.get()
    world.pass_ms(6_000)
    world.get()
    shown = world.show(id)
    assert list(shown)[15:] == ["deliveries", "first-delivery", "last-delivery"]
    assert [shown[name] for name in list(shown)[15:]] == [2, START_MS, START_MS + 6_000]


def test_show_of_work(world: World) -> None:
    """S1.4 If the job has options about its work, or a command of W was used on it, there
    follow: headers (names and values), attempts (0: no limit), backoff (first and longest in ms,
    jitter in thousandths), dead (its queue of dead letters), keep (ms, 0: none), keep-body (1:
    KEEP BODY), time-limit (ms, 0: none), on-expiry (`dead` or `drop`), failed, crashes, starts,
    run, first-failure, last-failure. run: null, or of the newest one `running`, `released` or
    `failed`, attempt, worker, since (ms since 1970). A failure: null, or ms since 1970, attempt,
    worker, cause.
    """
    words = "RETRY 60 ATTEMPTS 3 BACKOFF 1 8 0 KEEP 60 TIMELIMIT 9 HEADERS 1 tuque-task mail.send"
    new = world.show(id := bytes(world.run("ADDJOB", "q", "x", 0, *words.split())))
    names = "headers attempts backoff dead keep keep-body time-limit on-expiry failed crashes"
    assert list(new)[15:] == [*names.split(), "starts", "run", "first-failure", "last-failure"]
    assert list(new.values())[15:] == [
        [b"tuque-task", b"mail.send"],
        3,
        [1000, 8000, 0],
        b"q.dead",
        60_000,
        0,
        9_000,
        b"dead",
        0,
        0,
        0,
        None,
        None,
        None,
    ]
    for attempt, reason in ((1, "no disk"), (2, "no net")):
        world.pass_ms(5_000)
        world.get()
        run = world.run("START", "WORKER", "w-1", id)[0][0]
        begun_ms = world.n.now_ms
        assert world.show(id)["run"] == [b"running", attempt, b"w-1", begun_ms]
        world.pass_ms(1_000)
        world.run("FAIL", id, run, "REASON", reason)
    shown = world.show(id)
    assert shown["run"] == [b"failed", 2, b"w-1", begun_ms] and shown["failed"] == 2
    assert shown["first-failure"] == [START_MS + 6_000, 1, b"w-1", b"failed", b"no disk"]
    assert shown["last-failure"] == [begun_ms + 1_000, 2, b"w-1", b"failed", b"no net"]
    assert shown["deliveries"] == 2


def test_ttl_that_is_left(world: World) -> None:
    """S1.1 ttl (seconds left)"""
    id = world.add(TTL=1_000)
    assert world.show(id)["ttl"] == 1_000
    world.pass_ms(1)
    assert world.show(id)["ttl"] == 1_000, "the last second has begun"
    world.pass_ms(999_998)
    assert world.show(id)["ttl"] == 1


def test_show_without_due_time(world: World) -> None:
    """S1.1 next-requeue-within (ms, null if the due time is 0)"""
    assert world.show(world.add(RETRY=0))["next-requeue-within"] is None


def test_qlen(world: World) -> None:
    """S2.1 QLEN: jobs queued here, 0 for an unknown queue."""
    assert world.qlen() == 0
    world.add()
    world.add(DELAY=5)
    assert world.qlen() == 1


def test_qstat(world: World) -> None:
    """S2.2 QSTAT: a null array for an unknown queue, else 11 names and values: name, len, age,
    idle, blocked, import-from, import-rate, jobs-in, jobs-out, pause, oldest.
    """
    assert world.run("QSTAT", "q") is NULL
    world.add()
    world.add()
    world.pass_ms(5_000)
    world.get()
    world.pass_ms(3_000)
    waiting = world.wire()
    waiting("GETJOB", "FROM", "q", "other")
    waiting.take()
    expected: list[object] = [b"name", b"q", b"len", 0, b"age", 8, b"idle", 0, b"blocked", 0]
    expected += [b"import-from", [], b"import-rate", 0, b"jobs-in", 2, b"jobs-out", 2]
    assert world.run("QSTAT", "q") == [*expected, b"pause", b"none", b"oldest", 0]


def test_qstat_oldest(world: World) -> None:
    """S2.4 oldest is the age in seconds of the oldest job queued here, since its creation, delay
    included; 0 if none is queued.
    """

    def oldest() -> object:
        return world.run("QSTAT", "q")[-1]

    first = world.add(RETRY=100)
    world.pass_ms(7_000)
    world.add(DELAY=5)
    world.pass_ms(3_000)
    assert oldest() == 10
    world.get()  # the first one
    assert oldest() == 0
    world.pass_ms(5_000)
    assert oldest() == 8
    world.run("NACK", first)
    assert oldest() == 15


def test_ids_for_urls(world: World) -> None:
    """G6.6 Every command that takes an id also accepts the URL form of former versions: `_`
    replaces `-` at positions 1, 10 and 35; from 11 to 34 `-` replaces `+` and `_` replaces `/`.
    """
    former = b"D-5a02d844-AOq+vjzc3Ib9fRc/bwXWVmDZ-05a1"
    assert of_url(b"D_5a02d844_AOq-vjzc3Ib9fRc_bwXWVmDZ_05a1") == former
    ids = [world.add() for _ in range(60)]
    odd = ids[-1]
    word = odd.replace(b"-", b"_")
    assert world.run("SHOW", word)[1] == odd
    assert world.run("DEQUEUE", word) == 1
    assert world.run("ENQUEUE", word) == 1
    world.get(count=60)
    assert world.run("WORKING", word) == world.run("WORKING", odd)
    assert world.run("NACK", word, ids[0]) == 2
    assert isinstance(world.run("DEADLETTER", word, "dead"), Status)
    assert world.state(odd) == "gone"
    world.run("TUBE", "CREATE", "t", "tasks")
    group = world.run("GROUP", "CREATE", "t", 2)
    called = group.replace(b"-", b"_")
    assert world.run("GROUP", "ADD", "t", called, 0, word) == 1
    assert world.run("GROUP", "SHOW", "t", called) == world.run("GROUP", "SHOW", "t", group)
    (child,) = world.run("GROUP", "RESULTS", "t", called)[1]
    assert child[1] == odd
    assert len(world.run("GROUP", "CHILDREN", "t", called)[1]) == 1
    assert world.run("GROUP", "CANCEL", "t", called) == 0, "its only child is gone"
    places = [word[:i] + b"x" + word[i + 1 :] for i in (0, 1, 10, 35)]
    for bad in (word[:39], b"D_" + odd[2:], *places):
        assert world.run("SHOW", bad) == "BADID Invalid Job ID format."


def test_qpeek(world: World) -> None:
    """S3.1 Up to count jobs as in V1.3 without counters, in the order of the queue (G3.2): by PRI,
    then oldest first; a negative count: the last one first. An empty queue, or count 0: an empty
    array. The queue does not change.
    """
    assert world.run("QPEEK", "q", 5) == []
    ids = [world.add(body=str(i)) for i in range(3)]
    rows = [[b"q", job_id, b"%d" % i] for i, job_id in enumerate(ids)]
    assert world.run("QPEEK", "q", 2) == rows[:2]
    assert world.run("QPEEK", "q", 99) == rows
    assert world.run("QPEEK", "q", -2) == rows[:0:-1]
    assert world.run("QPEEK", "q", 0) == []
    assert world.run("QPEEK", "q", "x") == "ERR value is not an integer or out of range"
    assert world.qlen() == 3


def scan(world: World, *words: str | int) -> list[object]:
    """All items of a scan."""
    items: list[object] = []
    cursor = b"0"
    for _ in range(10_000):
        cursor, part = world.run(words[0], cursor, *words[1:])
        items += part
        if cursor == b"0":
            return items
    raise AssertionError("the scan does not end")


def test_qscan(world: World) -> None:
    """S4.1 The next cursor and queue names. Cursor 0 begins and ends the scan. A queue that
    exists throughout is returned at least once.
    """
    for i in range(250):
        for _ in range(i % 3):
            world.add(f"q{i}")
    names = {f"q{i}".encode() for i in range(250) if i % 3}
    assert set(scan(world, "QSCAN")) == names
    assert set(scan(world, "QSCAN", "COUNT", 7)) == names
    two = {f"q{i}".encode() for i in range(250) if i % 3 == 2}
    assert set(scan(world, "QSCAN", "MINLEN", 2)) == two
    assert set(scan(world, "QSCAN", "MAXLEN", 1)) == names - two
    assert world.run("QSCAN", "IMPORTRATE", 1, "BUSYLOOP") == [b"0", []]
    assert len(world.run("QSCAN", "BUSYLOOP")[1]) == len(names)


def test_qscan_while_queues_come_and_go(world: World) -> None:
    """S4.1 A queue that exists throughout is returned at least once."""
    for i in range(100):
        world.add(f"stay{i}")
        world.run("PAUSE", f"go{i}", "in")
    seen: set[object] = set()
    cursor, part = b"0", []
    for i in range(100):
        cursor, part = world.run("QSCAN", cursor, "COUNT", 5)
        seen |= set(part)
        world.run("PAUSE", f"go{i}", "none")
        gone = world.n.queues.get(f"go{i}".encode())
        if gone is not None:
            leave_queue(world.n, gone)
        world.pass_ms(500)
        if cursor == b"0":
            break
    assert {f"stay{i}".encode() for i in range(100)} <= seen


@pytest.mark.parametrize("command", ["QSCAN", "JSCAN"])
@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["COUNT", "0"], "ERR COUNT must be a number greater than zero"),
        (["COUNT", "-5"], "ERR COUNT must be a number greater than zero"),
        (["0", "1"], "ERR syntax error at '1': use "),
        (["what"], "ERR invalid cursor or option name"),
        (["COUNT"], "ERR invalid cursor or option name"),
        (["-1"], "ERR invalid cursor or option name"),
    ],
)
def test_scan_errors(world: World, command: str, words: list[str], error: str) -> None:
    """S4.2 COUNT below 1: `-ERR COUNT must be a number greater than zero`. A second cursor:
    C4.6. A first word that is neither a number nor an option, an option without its value at the
    end, or a number below 0: `-ERR invalid cursor or option name`.
    """
    said = world.run(command, *words)
    assert said == error or (error.endswith("use ") and said.startswith(error + command))


def test_jscan(world: World) -> None:
    """S5.1 Ids as statuses, or with REPLY ALL the reply of SHOW. Several states are combined
    with or.
    """
    queued = [world.add() for _ in range(30)]
    active = [world.add("r", DELAY=9) for _ in range(20)]
    assert set(scan(world, "JSCAN", "COUNT", 3)) == {*queued, *active}
    reply = world.run("JSCAN", "BUSYLOOP", "QUEUE", "r")
    assert sorted(reply[1]) == sorted(active)
    assert len(world.run("JSCAN", "BUSYLOOP", "STATE", "active", "STATE", "queued")[1]) == 50
    assert len(world.run("JSCAN", "BUSYLOOP", "STATE", "ACKED")[1]) == 0
    whole = world.run("JSCAN", "BUSYLOOP", "REPLY", "all", "QUEUE", "r")[1]
    assert len(whole) == 20
    assert whole[0][1] in active
    assert whole[0][0::2] == [name.encode() for name in FIELDS]


def test_jscan_errors(world: World) -> None:
    """S5.2 Errors as in S4.2. Bad state: `-ERR Invalid job state name`. Bad reply type: `-ERR
    Invalid REPLY type, try ID or ALL`.
    """
    assert world.run("JSCAN", "STATE", "lost") == "ERR Invalid job state name"
    assert world.run("JSCAN", "REPLY", "some") == "ERR Invalid REPLY type, try ID or ALL"


def test_cluster(world: World) -> None:
    """S6.1 A cluster of one answers MYID, NODES, INFO (`cluster_state:ok`, 1 known node, 0
    reachable, size 1), SAVECONFIG, LEAVING and RESET. FORGET of itself: `-ERR I tried hard but I
    can't forget myself...`; unknown node: `-ERR Unknown node <id>`; other: C4.8.
    """
    me = name_of(0).decode()
    assert world.run("CLUSTER", "MYID") == name_of(0)
    assert world.run("CLUSTER", "NODES").decode().startswith(f"{me} ")
    info = world.run("CLUSTER", "INFO").decode()
    for line in ("state:ok", "known_nodes:1", "reachable_nodes:0", "size:1"):
        assert f"cluster_{line}\r\n" in info
    myself = "ERR I tried hard but I can't forget myself..."
    assert world.run("CLUSTER", "FORGET", me) == myself
    assert world.run("CLUSTER", "FORGET", "0" * 40) == f"ERR Unknown node {'0' * 40}"
    assert world.run("CLUSTER", "FORGET", "x") == "ERR Invalid node identifier"
    wrong = "ERR Wrong CLUSTER subcommand or number of arguments: use CLUSTER "
    assert world.run("CLUSTER", "WHAT").startswith(wrong)
    assert world.run("CLUSTER", "MYID", "x") == wrong + "MYID"
    assert world.run("CLUSTER", "RESET", "softly") == (
        "ERR syntax error at 'SOFTLY': use CLUSTER RESET [SOFT|HARD] [FORCE]"
    )


def test_cluster_leaving(world: World) -> None:
    """S6.2 `LEAVING yes|no` sets the flag, also on a node that is alone; then R1.5 and V1.5
    apply.
    """
    assert world.run("CLUSTER", "LEAVING") == b"no"
    assert world.run("CLUSTER", "LEAVING", "yes") == b"OK"
    assert world.run("CLUSTER", "LEAVING") == b"yes"
    assert world.run("ADDJOB", "q", "b", 0).endswith("I'm leaving the cluster")
    error = "ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'"
    assert world.run("CLUSTER", "LEAVING", "maybe") == error
    assert world.run("CLUSTER", "LEAVING", "no") == b"OK"
    world.add()


def test_flushall(world: World) -> None:
    """S7.1 `DEBUG FLUSHALL` drops all jobs and queues with cause deleted."""
    world.add()
    world.run("PAUSE", "r", "in")
    assert world.run("DEBUG", "FLUSHALL") == b"OK"
    assert not world.n.jobs
    assert not world.n.queues
    assert world.n.ledger.admin_deleted == 1


def test_flushall_drops_tubes(world: World) -> None:
    """S7.1 `DEBUG FLUSHALL` drops all jobs and queues with cause deleted."""
    world.run("TUBE", "CREATE", "t", "fifo")
    world.run("TUBE", "PUT", "t", "body")
    assert world.run("TUBE", "LIST") == [b"t"]
    assert world.run("DEBUG", "FLUSHALL") == b"OK"
    assert world.run("TUBE", "LIST") == []
    assert not world.n.jobs
    assert not world.n.queues


@pytest.mark.parametrize(("allowed", "reply"), [("no", "DENIED"), ("local", "OK"), ("yes", "OK")])
def test_who_may_debug(make_world: Callable[..., World], allowed: str, reply: str) -> None:
    """S7.2 `enable-debug-command` (no, local, yes) says who may use DEBUG; other clients get an
    error that begins with `DENIED`. Subcommands that crash the process are refused to all.
    """
    world = make_world(events=True, enable_debug_command=allowed)
    assert world("DEBUG FLUSHALL")[1:].startswith(reply.encode())
    far = world.wire(address="192.0.2.7:5")
    expected = b"OK" if allowed == "yes" else b"DENIED"
    assert world("DEBUG FLUSHALL", by=far)[1:].startswith(expected)
    for word in ("SEGFAULT", "ASSERT", "OOM"):
        assert not isinstance(world.run("DEBUG", word), Status)


def test_info(world: World) -> None:
    """S8.1 The sections of Disque with their fields, then ours: the ledger (G9), memory levels,
    events. Section Memory has the memory used by class (`used_memory_jobs` and so on).
    """
    text = world.run("INFO").decode()
    titles = [line[2:] for line in text.split("\r\n") if line.startswith("# ")]
    assert titles[:8] == [
        "Server",
        "Clients",
        "Memory",
        "Jobs",
        "Queues",
        "Persistence",
        "Stats",
        "CPU",
    ]
    assert "registered_jobs:0\r\n" in text
    assert "memory_level:0\r\n" in text
    assert "used_memory_jobs:0\r\nused_memory_clients:" in text
    assert world.run("INFO", "what") == b""
    assert world.run("INFO", "a", "b") == "ERR syntax error at 'b': use INFO [section]"
    assert b"cmdstat_info:calls=" in world.run("INFO", "commandstats")
    assert world.run("INFO", "queues") == b"# Queues\r\nregistered_queues:0\r\n"
