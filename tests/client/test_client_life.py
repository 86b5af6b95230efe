"""Calls about the life of jobs: their words, what the answers become, and both faces at a node."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import hiredis
import pytest
from client_nodes import Connect, ScriptedNode, hello_of

import tuque.aio
from lab import RealServer
from quick import is_quick
from tuque import Client
from tuque.client.commands import calls, dead, work
from tuque.client.commands.calls import Call
from tuque.client.commands.dead import DeadCount, DeadFilters, DeadLetter, DeadPage
from tuque.client.commands.work import Attempt, Failed, Result, Run
from tuque.errors import (
    Acked,
    AtWork,
    Cancelled,
    Closed,
    Dead,
    IsTube,
    NoJob,
    NotDelivered,
    ProtocolError,
    Stale,
    reply_error,
)
from world import World

ID = "D-5a02d844-AOq+vjzc3Ib9fRcvbwXWVmDZ-05a1"
RAW = ID.encode()
NONE = DeadFilters()
GONE = Stale("STALE Run 1 is over")
ENDED = [
    b"state", b"done", b"attempt", 2, b"of", 5, b"worker", b"w", b"progress", b"9", b"result",
    b"42", b"cause", b"", b"reason", b"", b"detail", b"", b"ended-ms", 7,
]  # fmt: skip

TABLE: list[tuple[Call[Any], str, Any, Any]] = [
    (
        calls.addjob(
            "q", "b", delay=0.25, ttl=0, attempts=5, backoff=(1, 300, 0.5), dead="graves",
            keep=600, keep_body=True, time_limit=1.5, on_expiry="drop",
            headers={"tuque-task": "t", "tenant": "a"},
        ),
        "ADDJOB q b 5000 DELAY 0.250 TTL 0 ATTEMPTS 5 BACKOFF 1 300 0.500 DEAD graves KEEP 600 "
        "BODY TIMELIMIT 1.500 ONEXPIRY drop HEADERS 2 tuque-task t tenant a",
        RAW,
        ID,
    ),
    (work.start(ID), f"START {ID}", [[b"1.1.0", 1, 0, 1, 300000, 0]],
     [Run("1.1.0", 1, 0, 1, 300.0, None)]),
    (work.start(ID, ID, worker="w"), f"START WORKER w {ID} {ID}",
     [[b"2.3.0", 2, 5, 3, 1000, 1500], GONE], [Run("2.3.0", 2, 5, 3, 1.0, 1.5), GONE]),
    (work.working(ID, "1.1.0"), f"WORKING {ID} 1.1.0", 30, 30),
    (work.progress(ID, "1.1.0", "50"), f"PROGRESS {ID} 1.1.0 50", b"OK", "OK"),
    (work.release((ID, "1.1.0"), (ID, work.UNBEGUN)), f"RELEASE {ID} 1.1.0 {ID} -", 2, 2),
    (work.release((ID, "-"), delay=0.5), f"RELEASE DELAY 0.500 {ID} -", 1, 1),
    (work.fail(ID, "1.1.0"), f"FAIL {ID} 1.1.0", [b"retry", 1500], Failed("retry", wait_s=1.5)),
    (work.fail(ID, "1.1.0", delay=2, reason="r", detail="d", final=True),
     f"FAIL {ID} 1.1.0 DELAY 2 REASON r DETAIL d FINAL", [b"dead", b"q.dead"],
     Failed("dead", queue="q.dead")),
    (work.fail(ID, "1.1.0"), f"FAIL {ID} 1.1.0", [b"cancelled", None], Failed("cancelled")),
    (work.fail(ID, "1.1.0", cause="timeout"), f"FAIL {ID} 1.1.0 CAUSE timeout",
     [b"expired", None], Failed("expired")),
    (work.done(ID, "1.1.0", result="42"), f"DONE {ID} 1.1.0 RESULT 42", 1, 1),
    (work.done_many((ID, "1.1.0"), (ID, "-")), f"DONE {ID} 1.1.0 {ID} -", 2, 2),
    (work.cancel(ID, reason="user"), f"CANCEL REASON user {ID}", [b"flagged"], ["flagged"]),
    (work.cancel(ID, ID), f"CANCEL {ID} {ID}", [b"over", None], ["over", None]),
    (work.result(ID, wait_ms=500), f"RESULT {ID} WAIT 500", ENDED,
     Result("done", 2, 5, "w", b"9", b"42", "", "", b"", 7)),
    (work.result(ID, with_body=True, with_attempts=True), f"RESULT {ID} WITHBODY WITHATTEMPTS",
     [*ENDED, b"queue", b"q", b"added-ms", 5, b"headers", [b"tenant", b"a"], b"body", b"b",
      b"attempts", [[1, b"1.1.0", b"w", 6, 7, b"failed", b"why", b"trace"]]],
     Result("done", 2, 5, "w", b"9", b"42", "", "", b"", 7, "q", 5, {"tenant": "a"}, b"b",
            (Attempt(1, "1.1.0", "w", 6, 7, "failed", "why", b"trace"),))),
    (work.waitjob(ID, ID, wait_ms=9, count=1), f"WAITJOB 9 {ID} {ID} COUNT 1", [[RAW, b"done"]],
     {ID: "done"}),
    (work.updatejob(ID, body="b", delay=0, ttl=0, attempts=3, headers={}),
     f"UPDATEJOB {ID} BODY b DELAY 0 TTL 0 ATTEMPTS 3 HEADERS 0", b"OK", "OK"),
    (dead.dead_page("q.dead", "0", DeadFilters("r*", "crashed", "t", 5), count=10),
     "DEAD LIST q.dead 0 COUNT 10 REASON r* CAUSE crashed TASK t SINCE 5",
     [b"8", [[RAW, b"q", b"t", 2, b"crashed", b"silent", 1, 2]]],
     ("8", [DeadLetter(ID, "q", "t", 2, "crashed", "silent", 1, 2)])),
    (dead.dead_stat("q.dead"), "DEAD STAT q.dead", [[b"failed", b"no", 3]],
     [DeadCount("failed", "no", 3)]),
    (dead.dead_replay_page("q.dead", "7", NONE, to="r"), "DEAD REPLAY q.dead QUEUE r CURSOR 7 ALL",
     [b"0", 1, 2], DeadPage("0", 1, 2)),
    (dead.dead_replay_page("q.dead", "7", NONE, rate=20),
     "DEAD REPLAY q.dead RATE 20 COUNT 20 CURSOR 7 ALL", [b"0", 1, 2], DeadPage("0", 1, 2)),
    (dead.dead_replay_page("q.dead", "7", NONE, ids=[ID], rate=5000),
     f"DEAD REPLAY q.dead RATE 5000 IDS {ID}", [b"0", 1, 1], DeadPage("0", 1, 1)),
    (work.updatejob(ID, pri=3), f"UPDATEJOB {ID} PRI 3", b"OK", "OK"),
    (dead.dead_purge_page("q.dead", "0", NONE, ids=[ID]), f"DEAD PURGE q.dead IDS {ID}",
     [b"0", 1, 1], DeadPage("0", 1, 1)),
]  # fmt: skip


@pytest.mark.parametrize("row", TABLE, ids=[row[1][:50] for row in TABLE])
def test_words_and_answers(row: tuple[Call[Any], str, Any, Any]) -> None:
    call, words, reply, result = row
    reader = hiredis.Reader()
    reader.feed(hiredis.pack_command(call.args))  # type: ignore[arg-type]  # stub: 1-tuple
    assert reader.gets() == words.encode().split(b" ")
    assert call.read(reply) == result


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        (work.start(ID), [[b"1.1.0", 1]]),
        (work.fail(ID, "1"), [b"lost", 1]),
        (work.cancel(ID), [b"lost"]),
        (work.result(ID), [b"state", b"odd"]),
        (work.result(ID, with_attempts=True), [*ENDED, b"attempts", [[1, b"1.1.0"]]]),
        (dead.dead_show(ID), [b"id", RAW]),
        (dead.dead_stat("q"), [[b"one"]]),
    ],
)
def test_an_answer_of_another_shape_is_a_protocol_error(call: Call[Any], reply: Any) -> None:
    with pytest.raises(ProtocolError, match="unexpected answer to"):
        call.read(reply)


def test_a_cancel_that_a_node_may_still_do() -> None:
    """W15.8 The reply says so then: `-NOREACH Job is not known here, and may be at a node that did
    not answer: <id>; CANCEL may still take effect there`.
    """
    away = "NOREACH Job is not known here, and may be at a node that did not answer: x"
    texts = (f"{away}; CANCEL may still take effect there", away)
    found = work.cancel(ID, ID, ID).read([*map(reply_error, texts), b"ended"])
    assert [getattr(one, "may_be_done", one) for one in found] == [True, False, "ended"]
    assert tuple(map(str, found[:2])) == texts


NOTHING = [
    ("ackjob", {}, 0), ("fastack", {}, 0), ("deljob", {}, 0), ("nack", {"delay": 1}, 0),
    ("enqueue", {}, 0), ("dequeue", {}, 0), ("done_many", {}, 0), ("release", {"delay": 1}, 0),
    ("start", {"worker": "w"}, []), ("cancel", {"reason": "user"}, []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "found"), NOTHING)
def test_calls_about_nothing_ask_no_node(
    connect: Connect, node: ScriptedNode, name: str, options: dict[str, Any], found: Any
) -> None:
    """W1.8 DONE, RELEASE, START and CANCEL without a further word are about no job, and reply as
    ACKJOB does then: 0, or an empty array. The client replies so itself, and asks no node."""
    client = connect(node.url)
    assert getattr(client, name)(**options) == found
    assert node.connections == 0


def test_a_closed_client_says_so_also_of_nothing() -> None:
    client = Client()
    client.close()
    with pytest.raises(Closed):
        client.done_many()


def test_calls_about_nothing_have_their_place_in_a_pipeline(real_node: RealServer) -> None:
    with Client(real_node.url) as client, client.pipeline() as pipe:
        for name, options, _ in NOTHING:
            getattr(pipe, name)(**options)
        assert pipe.execute() == [found for *_, found in NOTHING]


def test_calls_that_cannot_mean_anything_are_refused() -> None:
    with pytest.raises(ValueError, match="something to change"):
        work.updatejob(ID)
    with pytest.raises(ValueError, match="at least one id"):
        work.waitjob()
    with pytest.raises(ValueError, match="at least 1"):
        work.result(ID, wait_ms=0)


def began(client: Client, id: str, worker: str = "w") -> Run:
    (run,) = client.start(id, worker=worker)
    assert isinstance(run, Run)
    return run


def test_a_job_from_its_add_to_its_result(real_node: RealServer) -> None:
    with Client(real_node.url) as client:
        id = client.addjob(
            "q", "b", ttl=0, retry=30, attempts=3, keep=60, time_limit=9.5, headers={"tenant": "a"}
        )
        (job,) = client.getjob("q", with_meta=True, withcounters=True)
        assert (job.id, job.body, job.attempt, job.of) == (id, b"b", 1, 3)
        assert (job.retry_s, job.time_limit_s, job.headers) == (30.0, 9.5, {"tenant": "a"})
        assert (job.nacks, job.additional_deliveries) == (0, 0)
        assert job.added_at is not None
        assert abs(job.added_at.timestamp() - time.time()) < 60
        run = began(client, id)
        assert (run.attempt, run.of, run.starts, run.time_limit_s) == (1, 3, 1, 9.5)
        assert began(client, id) == run
        assert isinstance(client.start(id, worker="other")[0], AtWork)
        assert client.working(id, run.run) == 30
        client.progress(id, run.run, "50")
        found = client.result(id)
        assert (found.state, found.progress, found.worker) == ("running", b"50", "w")
        assert not found.is_over
        assert client.done(id, run.run, result="42") == 1
        for _ in range(2):
            found = client.result(id, wait_ms=1000)
            assert (found.state, found.result, found.is_over) == ("done", b"42", True)
        assert client.waitjob(id) == {id: "done"}
        with pytest.raises(Acked):
            client.working(id, run.run)
        assert client.cancel(id) == ["over"]


def test_a_body_is_kept_with_an_outcome() -> None:
    with pytest.raises(ValueError, match="keep_body needs keep"):
        calls.addjob("q", "b", keep_body=True)


def test_errors_are_typed(real_node: RealServer) -> None:
    with Client(real_node.url) as client:
        id = client.addjob("q", "b", retry=30, attempts=1)
        client.getjob("q")
        run = began(client, id).run
        assert client.cancel(id, reason="user") == ["flagged"]
        with pytest.raises(Cancelled, match="user"):
            client.working(id, run)
        assert client.release((id, run)) == 1
        with pytest.raises(NoJob):
            client.result(id)
        id = client.addjob("q", "b", retry=30, attempts=1)
        client.getjob("q")
        with pytest.raises(Stale):
            client.fail(id, "1.1.02ed31")
        with pytest.raises(AtWork):
            client.updatejob(id, body="c")
        run = began(client, id).run
        assert client.fail(id, run, reason="no") == Failed("dead", queue="q.dead")
        assert isinstance(client.start(id)[0], Dead)
        later = client.addjob("q", "b", delay=9)
        assert isinstance(client.start(later)[0], NotDelivered)
        client.updatejob(later, delay=0, body="new")
        assert [job.body for job in client.getjob("q")] == [b"new"]


def test_a_tube_refuses_runs_and_limits_by_name(real_node: RealServer) -> None:
    """The client knows these refusals by their texts: this test holds both sides together."""
    with Client(real_node.url) as client:
        client.tube("t").create("fifo")
        with pytest.raises(IsTube):
            client.addjob("t", "b", attempts=3)
        id = client.addjob("t", "b")
        (job,) = client.getjob("t", with_meta=True)
        assert (job.id, job.of) == (id, 0)
        assert isinstance(client.start(id)[0], IsTube)


def test_a_delay_below_a_second_is_kept(real_node: RealServer) -> None:
    with Client(real_node.url) as client:

        def there_and_back() -> None:
            began_at = time.monotonic()
            client.addjob("q", "b", delay=0.15)
            assert client.getjob("q", timeout_ms=60_000)
            assert time.monotonic() - began_at > 0.1

        assert is_quick(there_and_back, 0.9)


def test_a_long_wait_for_a_result_is_cut_into_slices(
    real_node: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuque.client.sync.runner.SLICE_S", 0.05)
    with Client(real_node.url) as client, Client(real_node.url) as other:
        id = client.addjob("q", "b", keep=60)
        ender = threading.Timer(0.4, lambda: other.done(id, "-", result="late"))
        ender.start()
        assert client.result(id, wait_ms=20_000).result == b"late"
        ender.join()
        first, second = client.addjob("q", "b"), client.addjob("q", "b")
        other.ackjob(first)
        assert client.waitjob(first, second, wait_ms=200) == {first: "gone"}
        ender = threading.Timer(0.2, lambda: other.ackjob(second))
        ender.start()
        assert client.waitjob(first, second).keys() == {first, second}
        ender.join()


def bury(client: Client, queue: str, count: int, reason: str = "no") -> list[str]:
    ids = []
    for number in range(count):
        headers = {"tuque-task": f"task{number % 2}"}
        id = client.addjob(queue, f"body {number}", attempts=1, retry=30, headers=headers)
        client.getjob(queue)
        client.fail(id, began(client, id).run, reason=reason, detail="trace")
        ids.append(id)
    return ids


def test_dead_letters_are_listed_shown_replayed_and_purged(real_node: RealServer) -> None:
    with Client(real_node.url) as client:
        ids = bury(client, "mail", 7)
        assert [row.id for row in client.dead_letters("mail.dead", count=2)] == ids
        rows = list(client.dead_letters("mail.dead", task="task1", reason="n*"))
        assert [row.id for row in rows] == ids[1::2]
        assert (rows[0].origin, rows[0].attempts, rows[0].reason) == ("mail", 1, "no")
        shown = client.dead_show(ids[0])
        assert (shown.body, shown.detail, shown.headers) == (
            b"body 0", b"trace", {"tuque-task": "task0"},
        )  # fmt: skip
        assert client.dead_stat("mail.dead") == [DeadCount(shown.cause, "no", 7)]
        pages: list[tuple[int, int]] = []
        assert (
            client.dead_replay("mail.dead", ids=ids[:2], on_page=lambda *at: pages.append(at)) == 2
        )
        assert pages == [(2, 2)]
        assert client.dead_purge("mail.dead", task="task1") == 2
        assert client.dead_replay("mail.dead", to="elsewhere") == 3
        assert client.qlen("mail") == 2
        assert client.qlen("elsewhere") == 3
        assert list(client.dead_letters("mail.dead")) == []


def test_dead_letters_are_replayed_at_a_rate(real_node: RealServer) -> None:
    with Client(real_node.url) as client:
        bury(client, "paced", 7)
        pages: list[tuple[int, int]] = []
        began = time.monotonic()
        done = client.dead_replay("paced.dead", rate=5, on_page=lambda *at: pages.append(at))
        took_s = time.monotonic() - began
        assert done == 7 and pages == [(5, 5), (7, 7)]
        # two clocks: the node counts whole ms
        assert took_s > 1.19, "the seventh may follow 6/5 s after the first"
        assert client.qlen("paced") == 7


def test_a_push_is_never_taken_for_a_reply(node: ScriptedNode) -> None:
    push = f">3\r\n$10\r\njob-cancel\r\n$40\r\n{ID}\r\n$5\r\n1.1.0\r\n".encode()
    heard: list[tuple[str, str]] = []
    node.answers |= {
        "HELLO": lambda words: b"%0\r\n" if words[1:] else hello_of(("", node.port, 1))
    }
    node.answers |= {"QLEN": push + b":1\r\n", "QPEEK": push + push + b"*0\r\n" + push}
    with Client(node.url, on_cancel=lambda id, run: heard.append((id, run))) as client:
        assert client.qlen("q") == 1
        assert client.qpeek("q") == []
        assert client.qlen("q") == 1
        assert heard == [(ID, "1.1.0")] * 5
        assert node.connections == 1


def test_a_client_of_asyncio_hears_of_a_cancel_at_once(real_node: RealServer) -> None:
    asyncio.run(hear(real_node))


async def hear(real_node: RealServer) -> None:
    heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    async with (
        tuque.aio.Client(
            real_node.url, on_cancel=lambda id, run: heard.put_nowait((id, run))
        ) as client,
        tuque.aio.Client(real_node.url) as other,
    ):
        id = await client.addjob("q", "b", retry=30)
        await client.getjob("q", nohang=True)
        (run,) = await client.start(id, worker="w")
        assert isinstance(run, Run)
        assert await other.cancel(id) == ["flagged"]
        async with asyncio.timeout(10):
            assert await heard.get() == (id, run.run)
        before = await client.client_list()
        assert await client.release((id, run.run)) == 1
        assert len(await client.client_list()) == len(before)


def test_a_client_for_threads_hears_of_a_cancel_before_its_next_call(
    real_node: RealServer,
) -> None:
    heard: list[str] = []
    with (
        Client(real_node.url, on_cancel=lambda id, run: heard.append(id)) as client,
        Client(real_node.url) as other,
    ):
        id = client.addjob("q", "b", retry=30)
        client.getjob("q", nohang=True)
        began(client, id)
        node = client.client_list()
        other.cancel(id)
        client.ping()
        assert heard == [id]
        assert len(client.client_list()) == len(node) + 1  # the other one's


@pytest.mark.parametrize(("count", "reasons"), [(3, 1), (1010, 1005)])
def test_all_dead_letters_of_a_tube_are_replayed_or_purged(
    make_world: Callable[..., World], count: int, reasons: int
) -> None:
    """T48.15 QLEN of a tube counts none of its letters; a count of reasons ends at 1000 (W12.3)."""
    client = make_world(1).client()
    client.tube("t").create("tasks")
    for number in range(count):
        client.addjob("t", str(number), attempts=1, retry=30)
    ids = [job.id for job in client.getjob("t", count=count)]
    runs = [*client.start(*ids[:1000]), *(client.start(*ids[1000:]) if ids[1000:] else [])]
    for number, (id, run) in enumerate(zip(ids, runs, strict=True)):
        assert isinstance(run, Run)
        client.fail(id, run.run, reason=f"no {number % reasons}")
    replayed = count // reasons if reasons == 1 else 2
    assert client.dead_replay("t", cause="failed", reason="no 0") == replayed
    assert client.dead_purge("t") == count - replayed
    assert client.qlen("t") == replayed
    assert list(client.dead_letters("t")) == []
