"""SPEC S: SHOW, QLEN, QSTAT, QPEEK, QSCAN, JSCAN, CLUSTER, DEBUG, INFO."""

from __future__ import annotations

import pytest
from node_by_hand import NODE_ID, NULL, START_MS, Box, Status

from tuque.core.node.tables import leave_queue

FIELDS = (
    "id queue state repl ttl ctime delay retry nacks additional-deliveries nodes-delivered "
    "nodes-confirmed next-requeue-within next-awake-within body"
).split()
UNKNOWN = "D-12345678-123456789012345678901234-0001"


def test_show(box: Box) -> None:
    """S1.1 Unknown: a null bulk. Known: 15 names and values: id, queue, state, repl, ttl (seconds
    left), ctime (ns), delay, retry, nacks, additional-deliveries, nodes-delivered,
    nodes-confirmed, next-requeue-within (ms, null if the due time is 0), next-awake-within (ms,
    null if none), body.
    """
    box.run("SHOW", UNKNOWN)
    assert box.run("SHOW", UNKNOWN) is NULL
    job_id = box.add(queue="q1", body="b1", TTL=100, RETRY=20, DELAY=30)
    box.pass_ms(10_000)
    shown = box.show(job_id)
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
        "nodes-delivered": [NODE_ID],
        "nodes-confirmed": [],
        "next-requeue-within": 20_000,
        "next-awake-within": 20_000,
        "body": b"b1",
    }


def test_show_of_deliveries(box: Box) -> None:
    """S1.3 If this node has delivered the job, there follow: deliveries, first-delivery,
    last-delivery (ms since 1970), since it first had the job.
    """
    id = box.add(RETRY=5)
    assert list(box.show(id)) == FIELDS
    box.get()
    box.pass_ms(6_000)
    box.get()
    shown = box.show(id)
    assert list(shown)[15:] == ["deliveries", "first-delivery", "last-delivery"]
    assert [shown[name] for name in list(shown)[15:]] == [2, START_MS, START_MS + 6_000]


def test_show_of_work(box: Box) -> None:
    """S1.4 If the job has options about its work, or a word of W was used about it, there follow:
    headers (names and values), attempts (0: no limit), backoff (first and longest in ms, jitter in
    thousandths), dead (its queue of dead letters), keep and time-limit (ms, 0: none), failed,
    starts, run, first-failure, last-failure. run is null, or of the newest one: `running`,
    `released` or `failed`, attempt, worker, since (ms since 1970).
    A failure is null, or: ms since 1970, attempt, worker, cause, reason.
    """
    words = ["ATTEMPTS", 3, "BACKOFF", 1, 8, 0, "KEEP", 60, "TIMELIMIT", 9, "HEADERS", 1]
    id = str(box.run("ADDJOB", "q", "x", 0, "RETRY", 60, *words, "tuque-task", "mail.send"))
    new = box.show(id)
    assert list(new)[15:] == [
        "headers",
        "attempts",
        "backoff",
        "dead",
        "keep",
        "time-limit",
        "failed",
        "starts",
        "run",
        "first-failure",
        "last-failure",
    ]
    assert list(new.values())[15:] == [
        [b"tuque-task", b"mail.send"],
        3,
        [1000, 8000, 0],
        b"q.dead",
        60_000,
        9_000,
        0,
        0,
        None,
        None,
        None,
    ]
    for attempt, reason in ((1, "no disk"), (2, "no net")):
        box.pass_ms(5_000)
        box.get()
        run = box.run("START", "WORKER", "w-1", id)[0][0]
        begun_ms = box.n.now_ms
        assert box.show(id)["run"] == [b"running", attempt, b"w-1", begun_ms]
        box.pass_ms(1_000)
        box.run("FAIL", id, run, "REASON", reason)
    shown = box.show(id)
    assert shown["run"] == [b"failed", 2, b"w-1", begun_ms] and shown["failed"] == 2
    assert shown["first-failure"] == [START_MS + 6_000, 1, b"w-1", b"failed", b"no disk"]
    assert shown["last-failure"] == [begun_ms + 1_000, 2, b"w-1", b"failed", b"no net"]
    assert shown["deliveries"] == 2


def test_ttl_that_is_left(box: Box) -> None:
    """S1.1 ttl (seconds left)"""
    id = box.add(TTL=100_000)
    assert box.show(id)["ttl"] == 100_000
    box.pass_ms(1)
    assert box.show(id)["ttl"] == 100_000, "the last second has begun"
    box.pass_ms(99_999_998)
    assert box.show(id)["ttl"] == 1


def test_show_without_due_time(box: Box) -> None:
    """S1.1 next-requeue-within (ms, null if the due time is 0)"""
    assert box.show(box.add(RETRY=0))["next-requeue-within"] is None


def test_qlen(box: Box) -> None:
    """S2.1 QLEN: jobs queued here, 0 for an unknown queue."""
    assert box.qlen() == 0
    box.add()
    box.add(DELAY=5)
    assert box.qlen() == 1


def test_qstat(box: Box) -> None:
    """S2.2 QSTAT: a null array for an unknown queue, else 11 names and values: name, len, age,
    idle, blocked, import-from, import-rate, jobs-in, jobs-out, pause, oldest.
    """
    assert box.run("QSTAT", "q") is NULL
    box.add()
    box.add()
    box.pass_ms(5_000)
    box.get()
    box.pass_ms(3_000)
    waiting = box.session()
    waiting("GETJOB", "FROM", "q", "other")
    waiting.take()
    expected: list[object] = [b"name", b"q", b"len", 0, b"age", 8, b"idle", 0, b"blocked", 0]
    expected += [b"import-from", [], b"import-rate", 0, b"jobs-in", 2, b"jobs-out", 2]
    assert box.run("QSTAT", "q") == [*expected, b"pause", b"none", b"oldest", 0]


def test_qstat_oldest(box: Box) -> None:
    """S2.4 oldest is the age in seconds of the oldest job queued here, since its creation, delay
    included; 0 if none is queued.
    """

    def oldest() -> object:
        return box.run("QSTAT", "q")[-1]

    first = box.add(RETRY=100)
    box.pass_ms(7_000)
    box.add(DELAY=5)
    box.pass_ms(3_000)
    assert oldest() == 10
    box.get()  # the first one
    assert oldest() == 0
    box.pass_ms(5_000)
    assert oldest() == 8
    box.run("NACK", first)
    assert oldest() == 15


def test_ids_for_urls(box: Box) -> None:
    """G6.6 Every command that takes an id also accepts its URL form: `_` replaces `-` at positions
    1, 10 and 35; from 11 to 34 `-` replaces `+` and `_` replaces `/`.
    """
    ids = [box.add() for _ in range(60)]
    odd = next(id for id in ids if b"+" in id and b"/" in id)
    word = odd.replace(b"-", b"_").replace(b"+", b"-").replace(b"/", b"_")
    assert box.run("SHOW", word)[1] == odd
    assert box.run("DEQUEUE", word) == 1
    assert box.run("ENQUEUE", word) == 1
    box.get(count=60)
    assert box.run("WORKING", word) == box.run("WORKING", odd)
    assert box.run("NACK", word, ids[0]) == 2
    assert isinstance(box.run("DEADLETTER", word, "dead"), str)
    assert box.state(odd) == "gone"
    places = [word[:i] + b"x" + word[i + 1 :] for i in (0, 1, 10, 35)]
    for bad in (word[:39], b"D_" + odd[2:], *places):
        assert box.run("SHOW", bad) == "BADID Invalid Job ID format."


def test_qpeek(box: Box) -> None:
    """S3.1 `QPEEK queue count`: up to count jobs as in V1.3 without counters, oldest first; a
    negative count gives the newest first. An empty queue, or count 0: an empty array. The queue
    does not change.
    """
    assert box.run("QPEEK", "q", 5) == []
    ids = [box.add(body=str(i)) for i in range(3)]
    rows = [[b"q", job_id, b"%d" % i] for i, job_id in enumerate(ids)]
    assert box.run("QPEEK", "q", 2) == rows[:2]
    assert box.run("QPEEK", "q", 99) == rows
    assert box.run("QPEEK", "q", -2) == rows[:0:-1]
    assert box.run("QPEEK", "q", 0) == []
    assert box.run("QPEEK", "q", "x") == "ERR value is not an integer or out of range"
    assert box.qlen() == 3


def scan(box: Box, *words: str | int) -> list[object]:
    """All items of a scan."""
    items: list[object] = []
    cursor = b"0"
    for _ in range(10_000):
        cursor, part = box.run(words[0], cursor, *words[1:])
        items += part
        if cursor == b"0":
            return items
    raise AssertionError("the scan does not end")


def test_qscan(box: Box) -> None:
    """S4.1 the next cursor and queue names. Cursor 0 begins and ends the scan. A queue that exists
    throughout is returned at least once.
    """
    for i in range(250):
        for _ in range(i % 3):
            box.add(f"q{i}")
    names = {f"q{i}".encode() for i in range(250) if i % 3}
    assert set(scan(box, "QSCAN")) == names
    assert set(scan(box, "QSCAN", "COUNT", 7)) == names
    two = {f"q{i}".encode() for i in range(250) if i % 3 == 2}
    assert set(scan(box, "QSCAN", "MINLEN", 2)) == two
    assert set(scan(box, "QSCAN", "MAXLEN", 1)) == names - two
    assert box.run("QSCAN", "IMPORTRATE", 1, "BUSYLOOP") == [b"0", []]
    assert len(box.run("QSCAN", "BUSYLOOP")[1]) == len(names)


def test_qscan_while_queues_come_and_go(box: Box) -> None:
    """S4.1 A queue that exists throughout is returned at least once."""
    for i in range(100):
        box.add(f"stay{i}")
        box.run("PAUSE", f"go{i}", "in")
    seen: set[object] = set()
    cursor, part = b"0", []
    for i in range(100):
        cursor, part = box.run("QSCAN", cursor, "COUNT", 5)
        seen |= set(part)
        box.run("PAUSE", f"go{i}", "none")
        gone = box.n.queues.get(f"go{i}".encode())
        if gone is not None:
            leave_queue(box.n, gone)
        box.pass_ms(500)
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
def test_scan_errors(box: Box, command: str, words: list[str], error: str) -> None:
    """S4.2 COUNT below 1: `-ERR COUNT must be a number greater than zero`. A second cursor: C4.6.
    A first word that is neither a number nor an option, or an option without its value at the end:
    `-ERR invalid cursor or option name`.
    """
    said = box.run(command, *words)
    assert said == error or (error.endswith("use ") and said.startswith(error + command))


def test_jscan(box: Box) -> None:
    """S5.1 ids as statuses, or with REPLY ALL the reply of SHOW. Several states are combined with
    or."""
    queued = [box.add() for _ in range(30)]
    active = [box.add("r", DELAY=9) for _ in range(20)]
    assert set(scan(box, "JSCAN", "COUNT", 3)) == {*queued, *active}
    reply = box.run("JSCAN", "BUSYLOOP", "QUEUE", "r")
    assert sorted(reply[1]) == sorted(active)
    assert len(box.run("JSCAN", "BUSYLOOP", "STATE", "active", "STATE", "queued")[1]) == 50
    assert len(box.run("JSCAN", "BUSYLOOP", "STATE", "ACKED")[1]) == 0
    whole = box.run("JSCAN", "BUSYLOOP", "REPLY", "all", "QUEUE", "r")[1]
    assert len(whole) == 20
    assert whole[0][1] in active
    assert whole[0][0::2] == [name.encode() for name in FIELDS]


def test_jscan_errors(box: Box) -> None:
    """S5.2 Errors as in S4.2. Bad state: `-ERR Invalid job state name`. Bad reply type: `-ERR
    Invalid REPLY type, try ID or ALL`.
    """
    assert box.run("JSCAN", "STATE", "lost") == "ERR Invalid job state name"
    assert box.run("JSCAN", "REPLY", "some") == "ERR Invalid REPLY type, try ID or ALL"


def test_cluster(box: Box) -> None:
    """S6.1 A cluster of one answers MYID, NODES, INFO (`cluster_state:ok`, 1 known node, 0
    reachable, size 1), SAVECONFIG, LEAVING and RESET. FORGET of itself: `-ERR I tried hard but I
    can't forget myself...`; unknown node: `-ERR Unknown node <id>`; other: C4.8.
    """
    me = NODE_ID.decode()
    assert box.run("CLUSTER", "MYID") == NODE_ID
    assert box.run("CLUSTER", "NODES").decode().startswith(f"{me} ")
    info = box.run("CLUSTER", "INFO").decode()
    for line in ("state:ok", "known_nodes:1", "reachable_nodes:0", "size:1"):
        assert f"cluster_{line}\r\n" in info
    myself = "ERR I tried hard but I can't forget myself..."
    assert box.run("CLUSTER", "FORGET", me) == myself
    assert box.run("CLUSTER", "FORGET", "0" * 40) == f"ERR Unknown node {'0' * 40}"
    assert box.run("CLUSTER", "FORGET", "x") == "ERR Invalid node identifier"
    wrong = "ERR Wrong CLUSTER subcommand or number of arguments: use CLUSTER "
    assert box.run("CLUSTER", "WHAT").startswith(wrong)
    assert box.run("CLUSTER", "MYID", "x") == wrong + "MYID"
    assert box.run("CLUSTER", "RESET", "softly") == (
        "ERR syntax error at 'SOFTLY': use CLUSTER RESET [SOFT|HARD]"
    )


def test_cluster_leaving(box: Box) -> None:
    """S6.2 `CLUSTER LEAVING yes|no` sets the flag, also on a node that is alone; then R1.5 and V1.5
    apply.
    """
    assert box.run("CLUSTER", "LEAVING") == "no"
    assert box.run("CLUSTER", "LEAVING", "yes") == "OK"
    assert box.run("CLUSTER", "LEAVING") == "yes"
    assert box.run("ADDJOB", "q", "b", 0).endswith("I'm leaving the cluster")
    error = "ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'"
    assert box.run("CLUSTER", "LEAVING", "maybe") == error
    assert box.run("CLUSTER", "LEAVING", "no") == "OK"
    box.add()


def test_flushall(box: Box) -> None:
    """S7.1 `DEBUG FLUSHALL` drops all jobs and queues with cause deleted."""
    box.add()
    box.run("PAUSE", "r", "in")
    assert box.run("DEBUG", "FLUSHALL") == "OK"
    assert not box.n.jobs
    assert not box.n.queues
    assert box.n.ledger.admin_deleted == 1


def test_flushall_drops_tubes(box: Box) -> None:
    """S7.1 `DEBUG FLUSHALL` drops all jobs and queues with cause deleted."""
    box.run("TUBE", "CREATE", "t", "fifo")
    box.run("TUBE", "PUT", "t", "body")
    assert box.run("TUBE", "LIST") == [b"t"]
    assert box.run("DEBUG", "FLUSHALL") == "OK"
    assert box.run("TUBE", "LIST") == []
    assert not box.n.jobs
    assert not box.n.queues


@pytest.mark.parametrize(("allowed", "reply"), [("no", "DENIED"), ("local", "OK"), ("yes", "OK")])
def test_who_may_debug(allowed: str, reply: str) -> None:
    """S7.2 `enable-debug-command` (no, local, yes) says who may use DEBUG; other clients get an
    error that begins with `DENIED`. Subcommands that crash the process are refused to all.
    """
    box = Box(enable_debug_command=allowed)
    assert box.run("DEBUG", "FLUSHALL").startswith(reply)
    box.run.c.address = "192.0.2.7:5"
    expected = "OK" if allowed == "yes" else "DENIED"
    assert box.run("DEBUG", "FLUSHALL").startswith(expected)
    box.run.c.address = "127.0.0.1:5"
    for word in ("SEGFAULT", "ASSERT", "OOM"):
        assert not isinstance(box.run("DEBUG", word), Status)
    box.close()


def test_info(box: Box) -> None:
    """S8.1 The sections of Disque with their fields, then ours: the ledger (G9), memory levels,
    events. Section Memory has `used_memory_jobs`, and `used_memory_clients` for everything else:
    clients, queues, journal and events not yet written.
    """
    text = box.run("INFO").decode()
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
    assert box.run("INFO", "what") == b""
    assert box.run("INFO", "a", "b") == "ERR syntax error at 'b': use INFO [section]"
    assert b"cmdstat_info:calls=" in box.run("INFO", "commandstats")
    assert box.run("INFO", "queues") == b"# Queues\r\nregistered_queues:0\r\n"
