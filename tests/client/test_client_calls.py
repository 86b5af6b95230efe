"""The method table against bytes made by hand: what is sent, and what the answers become."""

from __future__ import annotations

import datetime as dt
import inspect
from typing import Any, cast

import hiredis
import pytest
from msgspec.structs import replace

from tuque import Client, Job, JobInfo, Pipeline, aio
from tuque.client.api import ClusterNode, Hello, JobFailure, JobRun, JobWork, NodeInfo
from tuque.client.commands import (
    admin,
    calls,
    dead,
    groups,
    leases,
    operate,
    schedules,
    staged,
    tubes,
    values,
    work,
)
from tuque.client.commands.calls import Call
from tuque.client.commands.leases import (
    LeaseBatch,
    LeaseBegun,
    LeaseColumns,
    LeaseGone,
    LeaseInfo,
    LeaseRow,
    LeaseRows,
)
from tuque.errors import ProtocolError

ID = "D-5a02d844-AOq+vjzc3Ib9fRcvbwXWVmDZ-05a1"
RAW = ID.encode()
SHOWN = [
    b"id", RAW, b"queue", b"q", b"state", b"queued", b"repl", 1, b"ttl", 86000, b"ctime", 7,
    b"delay", 0, b"retry", 300, b"nacks", 1, b"additional-deliveries", 2,
    b"nodes-delivered", [b"n1", b"n2"], b"nodes-confirmed", [], b"next-requeue-within", 299000,
    b"next-awake-within", 298500, b"body", b"\xff\x00",
]  # fmt: skip
INFO = JobInfo(
    ID, "q", "queued", 1, 86000, 7, 0, 300, 1, 2, ("n1", "n2"), (), 299000, 298500, b"\xff\x00"
)
WORKED = [
    *SHOWN, b"deliveries", 2, b"first-delivery", 11, b"last-delivery", 12,
    b"headers", [b"tuque-task", b"t"], b"attempts", 3, b"backoff", [1000, 8000, 500],
    b"dead", b"q.dead", b"keep", 60_000, b"time-limit", 0, b"failed", 1, b"starts", 2,
    b"run", [b"running", 2, b"w", 12], b"first-failure", [11, 1, b"w", b"failed", b"no"],
    b"last-failure", None,
]  # fmt: skip
WORK = JobWork(
    {"tuque-task": "t"}, 3, (1.0, 8.0, 0.5), "q.dead", 60.0, 0.0, 1, 2,
    JobRun("running", 2, "w", 12), JobFailure(11, 1, "w", "failed", "no"), None,
)  # fmt: skip
DUMMY: list[Any] = [
    b"id", RAW, b"queue", None, b"state", b"acked", b"repl", 0, b"ttl", 60, b"ctime", 0,
    b"delay", 0, b"retry", None, b"nacks", 0, b"additional-deliveries", 0,
    b"nodes-delivered", [], b"nodes-confirmed", [], b"next-requeue-within", None,
    b"next-awake-within", None, b"body", None,
]  # fmt: skip
STAT = [
    b"name", b"q", b"len", 3, b"age", 10, b"idle", 1, b"blocked", 2, b"import-from", [b"n2"],
    b"import-rate", 0, b"jobs-in", 9, b"jobs-out", 6, b"pause", b"none", b"oldest", 7,
]  # fmt: skip
META = [
    b"attempt", 1, b"of", 3, b"retry-ms", 30_000, b"time-limit-ms", 0, b"added-ms", 0,
    b"headers", [b"k", b"v"],
]  # fmt: skip
WORKER = [
    b"name", b"h/7", b"host", b"h", b"pid", 7, b"version", b"1.0", b"queues", [b"a", b"b"],
    b"slots", 4, b"busy", 1, b"done", 12, b"failed", 3, b"since-ms", 9, b"heard-ms", 2000,
    b"state", b"lost", b"order", b"none",
    b"runs",
    [[RAW, b"q", b"m.f", 2, 300, b"waiting", 4000], [RAW, b"q", b"", 1, 5, b"queued", None]],
]  # fmt: skip
WORKER_INFO = operate.WorkerInfo(
    "h/7",
    "h",
    7,
    "1.0",
    ("a", "b"),
    4,
    1,
    12,
    3,
    9,
    2000,
    "lost",
    "none",
    (
        operate.WorkerRun(ID, "q", "m.f", 2, 300, "waiting", 4000),
        operate.WorkerRun(ID, "q", "", 1, 5, "queued", None),
    ),
)

TABLE: list[tuple[Call[Any], str, Any, Any]] = [
    (calls.addjob("q", "b"), "ADDJOB q b 5000", RAW, ID),
    (
        calls.addjob(
            b"q",
            b"b",
            timeout_ms=0,
            replicate=2,
            delay=3,
            retry=4,
            ttl=50,
            maxlen=6,
            asynchronous=True,
        ),
        "ADDJOB q b 0 REPLICATE 2 DELAY 3 RETRY 4 TTL 50 MAXLEN 6 ASYNC",
        RAW,
        ID,
    ),
    (calls.addjob("q", "b", retry=0), "ADDJOB q b 5000 RETRY 0", RAW, ID),
    (calls.getjob("q"), "GETJOB TIMEOUT 0 FROM q", None, []),
    (
        calls.getjob("q", nohang=True, start=True),
        "GETJOB NOHANG START FROM q",
        [[b"q", RAW, b"b", b"run", b"1.1.0a1b2c"], [b"t", RAW, b"c", b"run", None]],
        [Job("q", ID, b"b", run="1.1.0a1b2c"), Job("t", ID, b"c")],
    ),
    (
        calls.getjob("q", start=True, worker="FROM", with_meta=True),
        "GETJOB TIMEOUT 0 WITHMETA START WORKER FROM FROM q",
        [[b"q", RAW, b"b", b"run", b"1.1.0a1b2c", *META]],
        [
            Job(
                "q",
                ID,
                b"b",
                attempt=1,
                of=3,
                retry_s=30.0,
                added_at=dt.datetime.fromtimestamp(0, dt.UTC),
                headers={"k": "v"},
                run="1.1.0a1b2c",
            )
        ],
    ),
    (
        calls.getjob("q", "r", timeout_ms=70, count=5),
        "GETJOB TIMEOUT 70 COUNT 5 FROM q r",
        [[b"q", RAW, b"b"], [b"r", RAW, b"\x00"]],
        [Job("q", ID, b"b"), Job("r", ID, b"\x00")],
    ),
    (
        calls.getjob("q", nohang=True, withcounters=True),
        "GETJOB NOHANG WITHCOUNTERS FROM q",
        [[b"q", RAW, b"b", b"nacks", 1, b"additional-deliveries", 2]],
        [Job("q", ID, b"b", 1, 2)],
    ),
    (calls.ackjob(ID, RAW, Job("q", ID, b"")), f"ACKJOB {ID} {ID} {ID}", 3, 3),
    (calls.ackjob(), "ACKJOB", 0, 0),
    (calls.fastack(ID), f"FASTACK {ID}", 1, 1),
    (calls.deljob(ID), f"DELJOB {ID}", 1, 1),
    (calls.nack(ID), f"NACK {ID}", 1, 1),
    (calls.nack(ID, delay=1.5), f"NACK DELAY 1.500 {ID}", 1, 1),
    (calls.nack(ID, delay=0), f"NACK DELAY 0 {ID}", 1, 1),
    (calls.enqueue(ID), f"ENQUEUE {ID}", 1, 1),
    (calls.dequeue(ID), f"DEQUEUE {ID}", 0, 0),
    (work.working(ID), f"WORKING {ID}", 300, 300),
    (calls.deadletter(ID, "dead"), f"DEADLETTER {ID} dead", RAW, ID),
    (calls.deadletter(ID, "dead", "why"), f"DEADLETTER {ID} dead REASON why", RAW, ID),
    (calls.show(ID), f"SHOW {ID}", SHOWN, INFO),
    (calls.show(ID), f"SHOW {ID}", [*SHOWN, b"pri", 0], replace(INFO, pri=0)),
    (
        calls.show(ID),
        f"SHOW {ID}",
        [*SHOWN, b"task", 4, b"pri", 12],
        replace(INFO, number=4, pri=12),
    ),
    (calls.show(ID), f"SHOW {ID}", None, None),
    (
        calls.show(ID),
        f"SHOW {ID}",
        WORKED,
        replace(INFO, deliveries=2, first_delivery_ms=11, last_delivery_ms=12, work=WORK),
    ),
    (
        calls.show(ID),
        f"SHOW {ID}",
        DUMMY,
        JobInfo(ID, None, "acked", 0, 60, 0, 0, 0, 0, 0, (), (), None, None, None),
    ),
    (calls.qlen("q"), "QLEN q", 7, 7),
    (operate.history(), "HISTORY 5s", None, None),
    (
        operate.history("1m", "acked", "ready", queue="q", from_ms=5, count=2),
        "HISTORY 1m QUEUE q FROM 5 COUNT 2 acked ready",
        [60_000, [b"acked", b"ready"], [[60_000, 7, 1]]],
        operate.History(60_000, ("acked", "ready"), ((60_000, 7, 1),)),
    ),
    (operate.history_queues(), "HISTORY QUEUES", [b"a", b"q"], ["a", "q"]),
    (calls.qstat("q"), "QSTAT q", None, None),
    (operate.queue_set("q", expires=1.5), "QUEUE SET q EXPIRES 1.500 AUTODELETE no", 1, True),
    (
        operate.queue_set("q", autodelete=True, ttl=0.5, maxlen=7),
        "QUEUE SET q AUTODELETE yes TTL 0.500 MAXLEN 7",
        0,
        False,
    ),
    (operate.queue_show("q"), "QUEUE SHOW q", None, None),
    (
        operate.queue_show("q"),
        "QUEUE SHOW q",
        [
            b"queue",
            b"q",
            b"expires-ms",
            1500,
            b"autodelete",
            1,
            b"ttl-ms",
            500,
            b"maxlen",
            7,
            b"owner",
            b"a:1",
            b"idle-ms",
            250,
        ],
        operate.QueueSettings("q", 1.5, True, "a:1", 0.25, 0.5, 7),
    ),
    (operate.queue_purge("q"), "QUEUE PURGE q STATE waiting", 3, 3),
    (operate.queue_purge("q", state="all", here=True), "QUEUE PURGE q STATE all HERE", 3, 3),
    (operate.queue_delete("q", if_empty=True), "QUEUE DELETE q IFEMPTY", 0, False),
    (
        calls.qstat("q"),
        "QSTAT q",
        STAT,
        {
            "name": "q",
            "len": 3,
            "age": 10,
            "idle": 1,
            "blocked": 2,
            "import-from": ["n2"],
            "import-rate": 0,
            "jobs-in": 9,
            "jobs-out": 6,
            "pause": "none",
            "oldest": 7,
            "type": "",
        },
    ),
    (calls.qpeek("q", -2), "QPEEK q -2", [[b"q", RAW, b"b"]], [Job("q", ID, b"b")]),
    (calls.pause("q"), "PAUSE q state", b"none", "none"),
    (calls.pause("q", "in", "bcast"), "PAUSE q in bcast", b"in", "in"),
    (
        calls.qscan_page("0", count=5, minlen=1, maxlen=9, importrate=2, type="fifo"),
        "QSCAN 0 COUNT 5 MINLEN 1 MAXLEN 9 IMPORTRATE 2 TYPE fifo",
        [b"17", [b"q", b"r"]],
        ("17", ["q", "r"]),
    ),
    (
        calls.jscan_page("4", queue="q", states=["queued", "active"], count=3),
        "JSCAN 4 COUNT 3 QUEUE q STATE queued STATE active REPLY id",
        [b"0", [RAW]],
        ("0", [ID]),
    ),
    (calls.jscan_full_page("0"), "JSCAN 0 REPLY all", [b"0", [SHOWN]], ("0", [INFO])),
    (
        calls.addjob("q", "b", timeout_ms=9, dedupe="k", dedupe_ttl=3),
        "ADDJOB q b 9 DEDUPE k DEDUPETTL 3000",
        RAW,
        ID,
    ),
    (
        staged.addjob_new("q", "b", timeout_ms=9, dedupe="k", headers={"a": "b"}),
        "ADDJOB q b 9 DEDUPE k HEADERS 1 a b WITHNEW",
        [RAW, 0],
        (ID, False),
    ),
    (staged.addjob_new("q", "b"), "ADDJOB q b 5000 WITHNEW", [RAW, 1], (ID, True)),
    (staged.stage("t", b"a", "q", "b", ttl_ms=9000), "STAGE t a 9000 q b", 4, 4),
    (staged.stage("t", b"a", "q", "b", ttl_ms=9000, pri=0), "STAGE t a 9000 q b PRI 0", 4, 4),
    (
        staged.stage("t", "a", "q", "b", ttl_ms=9, retry=0, ttl=8, dedupe=b"k", dedupe_ttl=7),
        "STAGE t a 9 q b RETRY 0 TTL 8 DEDUPE k DEDUPETTL 7000",
        1,
        1,
    ),
    (
        staged.stage_id("t", "a", "q", "b", ttl_ms=9, attempts=3, keep=60, headers={"a": "b"}),
        "STAGE t a 9 q b ATTEMPTS 3 KEEP 60 HEADERS 1 a b WITHID",
        RAW,
        ID,
    ),
    (staged.publish("app", 3, "t"), "PUBLISH app 3 t", 0, 0),
    (
        staged.publish("app", 3, "t", ["a", b"b"], ack=("g", 7, 1)),
        "PUBLISH app 3 ACK g 7 1 t a b",
        -1,
        -1,
    ),
    (leases.lease_open("g", "me", "q", "r"), "LEASE OPEN g me q r", 7, 7),
    (leases.lease_next("g", 7, 1, 50, ttl_ms=9000), "LEASE NEXT g 7 1 COUNT 50 TTL 9000", 3, 3),
    (
        leases.lease_next("g", 7, 1, 50, ttl_ms=9000, max_bytes=99, parts=4),
        "LEASE NEXT g 7 1 COUNT 50 BYTES 99 PARTS 4 TTL 9000",
        3,
        3,
    ),
    (
        leases.lease_fetch("g", 7, 1),
        "LEASE FETCH g 7 1 0",
        [2, 9, [[RAW, b"q", b"b", 5, 6, 1, 2, 0], [RAW, None]], 2],
        LeaseRows(2, 9, [LeaseRow(ID, "q", b"b", 5, 6, 1, 2, 0), LeaseRow(ID)], 2),
    ),
    (
        leases.lease_columns("g", 7, 1, 3, start=5, count=6, max_bytes=7),
        "LEASE FETCH g 7 1 3 FROM 5 COUNT 6 BYTES 7 COLUMNS",
        [1, 9, 1, 2, RAW, [b"q"], b"i", b"e", b"b", b"m", b"x", b"d", b"n", b"p", 8],
        LeaseColumns(1, 9, 1, 2, RAW, ["q"], b"i", b"e", b"b", b"m", b"x", b"d", b"n", b"p", 8),
    ),
    (leases.lease_commit("g", 7, 1), "LEASE COMMIT g 7 1", 5, 5),
    (leases.lease_touch("g", 7), "LEASE TOUCH g 7", 1, 1),
    (leases.lease_touch("g", 7, ttl_ms=2000), "LEASE TOUCH g 7 TTL 2000", 1, 1),
    (leases.lease_nack("g", 7, 1, ID, RAW), f"LEASE NACK g 7 1 {ID} {ID}", 2, 2),
    (leases.lease_release("g", 7), "LEASE RELEASE g 7", 4, 4),
    (
        leases.lease_gone("g", 7, 1, 2),
        "LEASE GONE g 7 1 2",
        [b"elsewhere", 1, b"nacked", 2, b"expired", 3, b"dead", 4, b"ended", 5, b"cancelled", 6],
        LeaseGone(elsewhere=1, nacked=2, expired=3, dead=4, ended=5, cancelled=6),
    ),
    (
        leases.lease_begin("g", 7, 1),
        "LEASE BEGIN g 7 1",
        [2, 9, 4, 1, 9],
        LeaseBegun(2, 9, 4, 1, 9),
    ),
    (leases.lease_split("g", 7, 1, 5, begun=2), "LEASE SPLIT g 7 1 5 BEGUN 2", 5, 5),
    (leases.lease_defer("g", 7, 1), "LEASE DEFER g 7 1 COUNT 0", 3, 3),
    (
        leases.lease_defer("g", 7, 1, count=9, max_bytes=99),
        "LEASE DEFER g 7 1 COUNT 9 BYTES 99",
        9,
        9,
    ),
    (
        leases.lease_info("g"),
        "LEASE INFO g",
        [
            b"group",
            b"g",
            b"owner",
            b"me",
            b"epoch",
            7,
            b"queues",
            [b"q"],
            b"last-seq",
            2,
            b"acked-seq",
            1,
            b"ttl-ms",
            9000,
            b"left-ms",
            8000,
            b"batches",
            [[2, 3, 40, 1, 0]],
            b"queued",
            5,
            b"oldest-ms",
            6,
            b"tubes",
            [b"q"],
        ],
        LeaseInfo(
            "g", "me", 7, ["q"], 2, 1, 9000, 8000, [LeaseBatch(2, 3, 40, 1, False)], 5, 6, ["q"]
        ),
    ),
    (leases.lease_list(), "LEASE LIST", [b"g"], ["g"]),
    (
        operate.worker_here(
            "h/7", host="h", pid=7, version="1", slots=4, busy=2, quiet=True, queues=["a", b"b"]
        ),
        "WORKER HERE h/7 HOST h VERSION 1 PID 7 SLOTS 4 BUSY 2 DONE 0 FAILED 0 QUIET QUEUES a b",
        b"stop",
        "stop",
    ),
    (
        operate.qlist(
            match="*a*", type="fifo", sort="oldest", desc=True, offset=5, count=2, names=["a", "b"]
        ),
        "QLIST SORT oldest OFFSET 5 COUNT 2 DESC MATCH *a* TYPE fifo NAMES a b",
        [7, [[b"a", b"fifo", 1, 2, 3, 4, 5, b"0.250", b"12.000", 6, b"none"]]],
        operate.QueuePage(
            7, (operate.QueueRow("a", "fifo", 1, 2, 3, 4, 5, 0.25, 12.0, 6, "none"),)
        ),
    ),
    (operate.worker_bye("w"), "WORKER BYE w", b"OK", "OK"),
    (operate.worker_quiet("w"), "WORKER QUIET w", b"OK", "OK"),
    (operate.worker_stop("w"), "WORKER STOP w", b"OK", "OK"),
    (
        operate.worker_deploys(),
        "WORKER DEPLOYS",
        [[5000, b"42", [b"a", b"b"]]],
        [operate.Deploy(5000, "42", ("a", "b"))],
    ),
    (
        operate.worker_list_page("0", match="h*", count=5),
        "WORKER LIST 0 COUNT 5 MATCH h*",
        [b"17", [WORKER]],
        ("17", [WORKER_INFO]),
    ),
    (admin.ping(), "PING", b"PONG", "PONG"),
    (
        admin.hello(),
        "HELLO",
        [1, b"n1", [b"n1", b"", b"7711", b"1"], [b"n2", b"10.0.0.2", b"7712", b"100"]],
        Hello(1, "n1", (NodeInfo("n1", "", 7711, 1), NodeInfo("n2", "10.0.0.2", 7712, 100))),
    ),
    (admin.time(), "TIME", [b"100", b"500000"], 100.5),
    (
        admin.info("queues"),
        "INFO queues",
        b"# Queues\r\nregistered_queues:3\r\n\r\nx:-2\r\ny:1.5\r\nz:a:b\r\n",
        {"registered_queues": 3, "x": -2, "y": "1.5", "z": "a:b"},
    ),
    (admin.config_get("hz"), "CONFIG GET hz", [b"hz", b"10"], {"hz": "10"}),
    (admin.config_get("hz"), "CONFIG GET hz", {b"hz": b"10"}, {"hz": "10"}),
    (admin.config_set("hz", 50), "CONFIG SET hz 50", b"OK", True),
    (admin.config_rewrite(), "CONFIG REWRITE", b"OK", True),
    (admin.config_resetstat(), "CONFIG RESETSTAT", b"OK", True),
    (
        admin.client_list(),
        "CLIENT LIST",
        b"id=1 addr=h:1 name= cmd=getjob\nid=2 addr=h:2 name=x cmd=NULL\n",
        [
            {"id": "1", "addr": "h:1", "name": "", "cmd": "getjob"},
            {"id": "2", "addr": "h:2", "name": "x", "cmd": "NULL"},
        ],
    ),
    (
        admin.cluster_nodes(),
        "CLUSTER NODES",
        b"n1 :7711 myself 0 0 connected\nn2 ::1:7712 fail,leaving 5 6 disconnected\n"
        b"n3 h:7713 handshake 5 0 disconnected the other end has no secret\n",
        [
            ClusterNode("n1", "", 7711, ("myself",), 0, 0, True),
            ClusterNode("n2", "::1", 7712, ("fail", "leaving"), 5, 6, False),
            ClusterNode(
                "n3", "h", 7713, ("handshake",), 5, 0, False, "the other end has no secret"
            ),
        ],
    ),
    (admin.cluster_info(), "CLUSTER INFO", b"cluster_size:1\r\n", {"cluster_size": 1}),
    (admin.cluster_myid(), "CLUSTER MYID", b"n1", "n1"),
    (admin.cluster_meet("h.org", 1), "CLUSTER MEET h.org 1", b"OK", True),
    (admin.cluster_meet("::1", 1, 2), "CLUSTER MEET ::1 1 2", b"OK", True),
    (admin.cluster_repair(), "CLUSTER REPAIR", 12, 12),
    (admin.cluster_repair(), "CLUSTER REPAIR", b"done", 0),
    (admin.cluster_forget("n2"), "CLUSTER FORGET n2", b"OK", True),
    (admin.cluster_leaving(), "CLUSTER LEAVING", b"no", False),
    (admin.cluster_leaving(True), "CLUSTER LEAVING yes", b"OK", True),
    (admin.cluster_leaving(False), "CLUSTER LEAVING no", b"OK", False),
    (admin.bgrewriteaof(), "BGREWRITEAOF", b"started", "started"),
    (admin.shutdown(), "SHUTDOWN", None, None),
    (admin.shutdown(rewrite_aof=True), "SHUTDOWN REWRITE-AOF", None, None),
    (admin.execute("DEBUG", "SLEEP", 0.5), "DEBUG SLEEP 0.5", b"OK", b"OK"),
]


def words_of(call: Call[Any]) -> list[bytes]:
    reader = hiredis.Reader()
    reader.feed(hiredis.pack_command(call.args))  # type: ignore[arg-type]  # stub: 1-tuple
    words: list[bytes] = reader.gets()
    return words


@pytest.mark.parametrize("row", TABLE, ids=[row[1][:50] for row in TABLE])
def test_words_and_answers(row: tuple[Call[Any], str, Any, Any]) -> None:
    call, words, reply, result = row
    assert words_of(call) == words.encode().split(b" ")
    assert call.read(reply) == result


def test_the_table_above_is_complete() -> None:
    tested = {str(row[0].args[0]).lower() for row in TABLE}
    builders = [n for n, f in vars(calls).items() if inspect.isfunction(f) and _builds(f)]
    assert tested >= {name.removesuffix("_page").removesuffix("_full") for name in builders}


def test_both_faces_and_the_pipeline_have_every_call() -> None:
    built = {
        n
        for m in (calls, admin, dead, leases, work, operate, groups, schedules, staged, values)
        for n, f in vars(m).items()
        if inspect.isfunction(f) and _builds(f)
    } | {n for n in vars(tubes) if n.startswith("tube_")}
    pages = {name for name in built if name.endswith("_page")}
    for face in (Client, aio.Client):
        assert built - pages <= set(dir(face))
    assert built - pages - {"execute", "shutdown"} <= set(dir(Pipeline))
    assert {n for n in dir(Client) if n[0] != "_"} == {n for n in dir(aio.Client) if n[0] != "_"}
    for name in built - pages:
        assert inspect.signature(getattr(Client, name)).parameters == (
            inspect.signature(getattr(aio.Client, name)).parameters
        )


def test_methods_show_their_arguments() -> None:
    client = Client()
    shown = list(inspect.signature(client.addjob).parameters)
    assert shown[:3] == ["queue", "body", "timeout_ms"]
    assert Client.addjob.__name__ == "addjob"
    assert (Client.addjob.__doc__ or "").startswith("Adds a job")


def test_names_that_are_not_utf8_survive() -> None:
    assert words_of(calls.qlen(calls.qpeek("q").read([[b"\xff\xfe", RAW, b""]])[0].queue)) == [
        b"QLEN",
        b"\xff\xfe",
    ]


def test_only_calls_that_may_be_executed_twice_are_sent_twice() -> None:
    once = {row[0].name for row in TABLE if not row[0].repeat}
    assert once == {
        "ADDJOB", "NACK", "ENQUEUE", "DEQUEUE", "DEADLETTER", "BGREWRITEAOF", "SHUTDOWN", "DEBUG",
        "STAGE",
    }  # fmt: skip


def test_a_slice_of_a_wait_never_means_for_ever() -> None:
    call = calls.getjob("q", count=2)
    assert words_of(call.waiting(0.0)) == b"GETJOB TIMEOUT 1 COUNT 2 FROM q".split()
    assert words_of(call.waiting(30.0)) == b"GETJOB TIMEOUT 30000 COUNT 2 FROM q".split()


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        (calls.addjob("q", "b"), 5),
        (calls.getjob("q"), [[b"q"]]),
        (calls.getjob("q"), [[b"q", RAW, b"b", b"nacks"]]),
        (calls.qlen("q"), None),
        (calls.show(ID), [b"id", RAW]),
        (calls.qscan_page("0"), [b"0"]),
        (admin.hello(), [1]),
        (admin.cluster_nodes(), b"rubbish"),
    ],
)
def test_an_answer_of_another_shape_is_a_protocol_error(call: Call[Any], reply: Any) -> None:
    with pytest.raises(ProtocolError, match="unexpected answer to"):
        call.read(reply)


def test_calls_that_cannot_mean_anything_are_refused() -> None:
    with pytest.raises(TypeError, match="a header and its value are text, not 'a': 1"):
        calls.addjob("q", "b", headers=cast("Any", {"a": 1}))
    with pytest.raises(ValueError, match="at least one queue"):
        calls.getjob()
    with pytest.raises(ValueError, match="None to wait for ever"):
        calls.getjob("q", timeout_ms=0)
    with pytest.raises(ValueError, match="start=True"):
        calls.getjob("q", worker="w")
    with pytest.raises(ValueError, match="name of a command"):
        admin.execute()
    with pytest.raises(ValueError, match="at least one queue"):
        leases.lease_open("g", "me")
    with pytest.raises(ValueError, match="at least one id"):
        leases.lease_nack("g", 1, 1)


def _builds(function: Any) -> bool:
    return not function.__name__.startswith("_") and "Call[" in str(
        inspect.signature(function).return_annotation
    )
