"""One table of calls, run by both faces on a real server; and a server killed under a client."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from client_nodes import Connect, Face

from lab import RealServer
from tuque import Client, Job, JobInfo
from tuque.errors import (
    BadId,
    Error,
    Fenced,
    MaxLen,
    NoBatch,
    NoGroup,
    NoJob,
    NoStage,
    NotDelivered,
    Paused,
    ReplyError,
)
from until import until

NO_JOB = "D-00000000-AAAAAAAAAAAAAAAAAAAAAAAA-05a1"


class Story:
    """A client, a queue of its own and the job added last."""

    def __init__(self, client: Face) -> None:
        self.client = client
        self.queue = f"q-{uuid.uuid4().hex}"
        self.id = ""

    def add(self, body: str | bytes = b"body", **options: Any) -> str:
        self.id = self.client.addjob(self.queue, body, **options)
        return self.id

    def fetch(self, **options: Any) -> list[Job]:
        jobs: list[Job] = self.client.getjob(self.queue, timeout_ms=2000, **options)
        return jobs


Step = Callable[[Story], Any]


def fetched(s: Story) -> str:
    s.add()
    (job,) = s.fetch()
    assert (job.queue, job.id, job.body, job.nacks) == (s.queue, s.id, b"body", None)
    return s.id


def nacked(s: Story, **options: Any) -> int:
    count: int = s.client.nack(fetched(s), **options)
    return count


def counters(s: Story) -> Any:
    nacked(s)
    (job,) = s.fetch(withcounters=True)
    return job.nacks, job.additional_deliveries


def shown(s: Story) -> Any:
    s.add("é", retry=7, ttl=100)
    info = s.client.show(s.id)
    assert isinstance(info, JobInfo)
    assert 98 <= info.ttl_s <= 100
    return info.id == s.id, info.queue == s.queue, info.state, info.retry_s, info.body


def several(s: Story) -> Any:
    ids = [s.add(str(n)) for n in range(5)]
    jobs = s.fetch(count=3) + s.client.getjob("other-" + s.queue, s.queue, count=9, nohang=True)
    assert [job.id for job in jobs] == ids
    return s.client.ackjob(*jobs), s.client.qlen(s.queue)


def dead(s: Story) -> Any:
    fetched(s)
    new_id = s.client.deadletter(s.id, s.queue + "-dead", "it is broken")
    (job,) = s.client.getjob(s.queue + "-dead", nohang=True)
    gone = s.client.show(s.id)
    return job.id == new_id != s.id, job.body, gone is None or gone.state


def piped(s: Story) -> Any:
    results = s.client.piped(
        ("addjob", s.queue, "1"), ("addjob", s.queue, "2"), ("qlen", s.queue), ("ping",)
    )
    return len({*results[:2]}), results[2:]


def stat(s: Story) -> Any:
    fetched(s)
    s.add()
    found = s.client.qstat(s.queue)
    return {key: found[key] for key in ("len", "blocked", "import-from", "jobs-in", "jobs-out")}


def scanned(s: Story) -> Any:
    ids = {s.add() for _ in range(250)}
    assert s.queue in s.client.scanned("qscan", minlen=250)
    found = s.client.scanned("jscan", queue=s.queue, states=["queued"], count=50)
    infos = s.client.scanned("jscan", queue=s.queue, full=True)
    return set(found) == ids, {info.id for info in infos} == ids, infos[0].state


def blocked(s: Story) -> Any:
    with Client(s.client.settings.masked_url) as other:
        timer = threading.Timer(0.1, lambda: other.addjob(s.queue, b"late"))
        timer.start()
        (job,) = s.client.getjob(s.queue, timeout_ms=5000)
        timer.join()
    return job.body


def timed_out(s: Story) -> Any:
    began = time.monotonic()
    got = s.client.getjob(s.queue, timeout_ms=150)
    return got, 0.1 < time.monotonic() - began < 10.0


def paused(s: Story) -> Any:
    return [
        s.client.pause(s.queue, *o) for o in (("in",), ("state",), (), ("out", "in"), ("none",))
    ]


def leased(s: Story) -> Any:
    ids = [s.add(str(i)) for i in range(4)]
    epoch = s.client.lease_open(s.queue, "me", s.queue)
    assert s.client.lease_next(s.queue, epoch, 1, 3, ttl_ms=60_000, parts=2) == 3
    first = s.client.lease_fetch(s.queue, epoch, 1, 0)
    assert [row.id for row in first.rows] == ids[:1] and first.rows[0].body == b"0"
    assert s.client.lease_nack(s.queue, epoch, 1, ids[1]) == 1
    rest = s.client.lease_fetch(s.queue, epoch, 1, 1)
    assert [(row.id, row.is_gone) for row in rest.rows] == [(ids[1], True), (ids[2], False)]
    columns = s.client.lease_columns(s.queue, epoch, 1, 1)
    assert (columns.count, columns.gone, columns.ids.decode()) == (1, 1, ids[2])
    assert s.client.lease_gone(s.queue, epoch, 1, 0).lost == 0
    assert s.client.lease_begin(s.queue, epoch, 1).times == 1
    assert s.client.lease_split(s.queue, epoch, 1, 3) == 3
    assert s.client.lease_defer(s.queue, epoch, 1) == 3
    assert s.client.lease_touch(s.queue, epoch, ttl_ms=9000) == 1
    info = s.client.lease_info(s.queue)
    assert (info.epoch, info.queues, info.batches[0].jobs) == (epoch, [s.queue], 3)
    assert s.queue in s.client.lease_list()
    committed = s.client.lease_commit(s.queue, epoch, 1)
    assert s.client.lease_next(s.queue, epoch, 2, 9, ttl_ms=60_000) == 2
    return committed, s.client.lease_release(s.queue, epoch), s.client.qlen(s.queue)


def fenced(s: Story) -> Any:
    epoch = s.client.lease_open(s.queue, "me", s.queue)
    s.client.lease_open(s.queue, "you", s.queue)
    return s.client.lease_touch(s.queue, epoch)


def published(s: Story) -> Any:
    queue, app = s.queue, s.queue
    s.client.lease_open(queue, "me", queue)
    assert s.client.stage("t" + queue, "a", queue, "1", ttl_ms=9000) == 1
    assert s.client.stage("t" + queue, "a", queue, "2", ttl_ms=9000, dedupe="k") == 2
    assert s.client.stage("t" + queue, "b", queue, "3", ttl_ms=9000, dedupe="k") == 1
    done = s.client.publish(app, 1, "t" + queue, ["a", "b"])
    again = s.client.publish(app, 1, "t" + queue, ["a", "b"])
    first = s.client.addjob(queue, "4", dedupe="m", dedupe_ttl=9)
    assert s.client.addjob_new(queue, "5", dedupe="m") == (first, False)
    return done, again, s.client.addjob(queue, "5", dedupe="m") == first, s.client.qlen(queue)


TABLE: dict[str, tuple[Step, Any]] = {
    "leases": (leased, (2, 2, 2)),
    "published": (published, (2, -1, True, 3)),
    "ping": (lambda s: s.client.ping(), "PONG"),
    "addjob": (lambda s: len(s.add(delay=1, retry=2, ttl=60, maxlen=5, replicate=1)), 40),
    "addjob async": (lambda s: len(s.add(asynchronous=True)), 40),
    "addjob at most once": (lambda s: len(s.add(retry=0, replicate=1)), 40),
    "getjob": (lambda s: len(fetched(s)), 40),
    "getjob nothing": (lambda s: s.client.getjob(s.queue, nohang=True), []),
    "getjob times out": (timed_out, ([], True)),
    "getjob blocks": (blocked, b"late"),
    "getjob several": (several, (5, 0)),
    "getjob counters": (counters, (1, 0)),
    "ackjob": (lambda s: s.client.ackjob(fetched(s)), 1),
    "ackjob none": (lambda s: s.client.ackjob(), 0),
    "ackjob unknown": (lambda s: s.client.ackjob(NO_JOB), 0),
    "fastack": (lambda s: s.client.fastack(fetched(s), NO_JOB), 1),
    "deljob": (lambda s: (s.client.deljob(s.add()), s.client.qlen(s.queue)), (1, 0)),
    "nack": (lambda s: (nacked(s), s.client.qlen(s.queue)), (1, 1)),
    "nack later": (lambda s: (nacked(s, delay=30.5), s.client.qlen(s.queue)), (1, 0)),
    "enqueue": (lambda s: (s.client.enqueue(fetched(s)), s.client.qlen(s.queue)), (1, 1)),
    "dequeue": (lambda s: (s.client.dequeue(s.add()), s.client.qlen(s.queue)), (1, 0)),
    "working": (lambda s: (s.add(retry=9), s.fetch(), s.client.working(s.id))[2], 9),
    "deadletter": (dead, (True, b"body", True)),
    "show": (shown, (True, True, "queued", 7, "é".encode())),
    "show unknown": (lambda s: s.client.show(NO_JOB), None),
    "qlen": (lambda s: (s.add(), s.client.qlen(s.queue))[1], 1),
    "qstat": (stat, {"len": 1, "blocked": 0, "import-from": [], "jobs-in": 2, "jobs-out": 1}),
    "qstat unknown": (lambda s: s.client.qstat(s.queue), None),
    "history": (lambda s: s.client.history(count=0).fields[0], "added"),
    "history unknown": (lambda s: s.client.history(queue=s.queue), None),
    "history queues": (lambda s: s.queue in s.client.history_queues(), False),
    "qpeek": (
        lambda s: (s.add("1"), s.add("2"), [j.body for j in s.client.qpeek(s.queue, -5)])[2],
        [b"2", b"1"],
    ),
    "pause": (paused, ["in", "in", "in", "all", "none"]),
    "scans": (scanned, (True, True, "queued")),
    "pipeline": (piped, (2, [2, "PONG"])),
    "hello": (lambda s: s.client.hello().nodes[0].id == s.client.cluster_myid(), True),
    "time": (lambda s: abs(s.client.time() - time.time()) < 5.0, True),
    "info": (lambda s: s.client.info("queues")["registered_queues"] >= 0, True),
    "config get": (lambda s: s.client.config_get("maxmemory-policy"), {"maxmemory-policy": "acks"}),
    "config set": (lambda s: s.client.config_set("slowlog-max-len", 64), True),
    "config resetstat": (lambda s: s.client.config_resetstat(), True),
    "client list": (lambda s: len(s.client.client_list()) > 0, True),
    "cluster nodes": (lambda s: [n.connected for n in s.client.cluster_nodes()], [True]),
    "cluster info": (lambda s: s.client.cluster_info()["cluster_size"], 1),
    "cluster leaving": (lambda s: s.client.cluster_leaving(), False),
    "execute": (lambda s: s.client.execute("QLEN", s.queue), 0),
}

REFUSED: dict[str, tuple[Step, type[Error]]] = {
    "bad id": (lambda s: s.client.show("D-x"), BadId),
    "fenced": (fenced, Fenced),
    "no stage": (lambda s: s.client.publish(s.queue, 1, "none", ["a"]), NoStage),
    "no group": (lambda s: s.client.lease_info(s.queue), NoGroup),
    "no batch": (
        lambda s: s.client.lease_fetch(s.queue, s.client.lease_open(s.queue, "me", s.queue), 1),
        NoBatch,
    ),
    "no job": (lambda s: s.client.working(NO_JOB), NoJob),
    "not delivered": (lambda s: s.client.working(s.add()), NotDelivered),
    "acked": (lambda s: (s.client.ackjob(fetched(s)), s.client.working(s.id)), NoJob),
    "full": (lambda s: (s.add(), s.add(maxlen=1)), MaxLen),
    "paused": (lambda s: (s.client.pause(s.queue, "in"), s.add()), Paused),
    "syntax": (lambda s: s.client.execute("PAUSE", s.queue, "sideways"), ReplyError),
    "unknown": (lambda s: s.client.execute("NOSUCH"), ReplyError),
    "setting": (lambda s: s.client.config_set("hz", "often"), ReplyError),
}


@pytest.mark.parametrize("name", TABLE)
def test_call(connect: Connect, real_node: RealServer, name: str) -> None:
    step, expected = TABLE[name]
    result = step(Story(connect(real_node.url)))
    if name == "deadletter":  # the old job is gone, or its acknowledgement is still known
        result = (*result[:2], result[2] in (True, "acked"))
    assert result == expected


@pytest.mark.parametrize("name", REFUSED)
def test_refused_call(connect: Connect, real_node: RealServer, name: str) -> None:
    step, kind = REFUSED[name]
    story = Story(connect(real_node.url))
    with pytest.raises(kind) as caught:
        step(story)
    assert type(caught.value) is kind
    assert caught.value.node == story.client.node


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[RealServer]:
    """A server that a test may kill; what it acknowledged is on disk."""
    with RealServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


def test_a_client_carries_on_after_the_server_was_killed(
    connect: Connect, own_node: RealServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tuque.client")
    client = connect(own_node.url, timeout=15.0)
    before = client.addjob("q", "before", retry=1)
    own_node.kill()
    starting = threading.Thread(target=own_node.start)
    starting.start()
    after = client.addjob("q", "after")  # waits for the server; it was never sent to the dead one
    starting.join()
    got: dict[str, bytes] = {}
    while len(got) < 2:
        got |= {job.id: job.body for job in client.getjob("q", timeout_ms=5000, count=2)}
    assert got == {before: b"before", after: b"after"}
    assert client.ackjob(before, after) == 2
    said = [record.levelname for record in caplog.records]
    assert "WARNING" in said
    assert said[-1] == "INFO"


def test_a_waiting_getjob_survives_a_restart(connect: Connect, own_node: RealServer) -> None:
    client = connect(own_node.url, timeout=15.0)
    client.ping()

    def restart_and_add() -> None:
        with Client(own_node.url, timeout=15.0) as other:
            until(lambda: other.info("clients")["blocked_clients"] == 1)
            own_node.kill()
            own_node.start()
            other.addjob("q", "after")

    thread = threading.Thread(target=restart_and_add)
    thread.start()
    (job,) = client.getjob("q", timeout_ms=30_000)
    thread.join()
    assert job.body == b"after"


def test_an_orderly_shutdown(connect: Connect, own_node: RealServer) -> None:
    client = connect(own_node.url)
    assert client.shutdown(timeout=30) is None
    with pytest.raises(Error):
        client.ping(timeout=1.0)
