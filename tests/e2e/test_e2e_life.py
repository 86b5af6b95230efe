"""A real server whose jobs are at work: kill -9 right after each reply, and what it still knows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lab import RealCluster, RealServer, info
from raw_resp import NULL, Wire
from tuque.errors import NotInReach
from tuque.worker import App

MakeServer = Callable[..., RealServer]
ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
TERMS = ("ATTEMPTS", 2, "BACKOFF", 600, 600, 0, "KEEP", 600, "RETRY", 600)


def result(wire: Wire, id: bytes) -> dict[str, Any]:
    """RESULT as a dict."""
    reply = wire("RESULT", id)
    return {reply[i].decode(): reply[i + 1] for i in range(0, len(reply), 2)}


def test_every_reply_about_work_survives_a_kill(make_server: MakeServer) -> None:
    """J4.2 Under always a reply waits for the sync: also START, FAIL, DONE, CANCEL and REPLAY."""
    server = make_server(*ALWAYS)
    wire = server.wire()

    def say(*words: Any) -> Any:
        """A command, and kill -9 right after its reply; then the server runs again."""
        nonlocal wire
        reply = wire(*words)
        server.kill()
        wire.close()
        server.start()
        wire = server.wire()
        return reply

    id = wire("ADDJOB", "q", "body", 0, *TERMS)
    wire("GETJOB", "FROM", "q")
    run, attempt = say("START", "WORKER", "w1", id)[0][:2]
    assert (attempt, result(wire, id)["state"]) == (1, b"running")
    assert wire("START", "WORKER", "w1", id)[0][0] == run, "the same run goes on"
    assert say("FAIL", id, run, "REASON", "first", "DELAY", 0)[0] == b"retry"
    assert result(wire, id)["reason"] == b"first"
    (job,) = wire("GETJOB", "NOHANG", "FROM", "q")
    run, attempt = say("START", "WORKER", "w1", id)[0][:2]
    assert (job[1], attempt) == (id, 2)
    assert say("FAIL", id, run, "REASON", "last") == [b"dead", b"q.dead"]
    found = result(wire, id)
    assert (found["state"], found["cause"], found["reason"]) == (b"dead", b"failed", b"last")
    assert say("DEAD", "REPLAY", "q.dead", "ALL") == [b"0", 1, 1]
    assert result(wire, id)["state"] == b"waiting" and wire("QLEN", "q") == 1
    wire("GETJOB", "FROM", "q")
    run, attempt, _, starts = say("START", "WORKER", "w1", id)[0][:4]
    assert (attempt, starts) == (1, 3)
    assert say("CANCEL", "REASON", "user", id) == [b"flagged"]
    assert result(wire, id)["reason"] == b"user"
    assert say("DONE", id, run, "RESULT", "42") == 1
    found = result(wire, id)
    assert (found["state"], found["result"], found["worker"]) == (b"done", b"42", b"w1")
    assert wire("GETJOB", "NOHANG", "FROM", "q", "q.dead") is NULL
    assert wire("DEBUG", "CHECK") == b"OK"
    wire.close()


def test_cancel_and_update_at_every_node(cluster: RealCluster) -> None:
    """W8.5 (cluster) A job with copies is flagged at its holders first (W16.8). After the reply
    `ended` no run of it begins.

    W10.3 (cluster) Of a job with copies one holder decides (W16). OK comes when all holders in
    reach have the change.
    """
    wires = [cluster.wire(i) for i in range(3)]
    for i, wire in enumerate(wires):
        other = wires[(i + 1) % 3]
        waiting, changed, running = [
            wires[0]("ADDJOB", f"changed{i}", "old", 20_000, "REPLICATE", 3, "KEEP", 60, "TTL", 600)
            for _ in range(3)
        ]
        assert wire("CANCEL", "REASON", "why", waiting) == [b"ended"]
        (row,) = wires[0]("START", waiting)
        assert row.startswith("CANCELLED Job was cancelled: why")
        assert result(other, waiting)["state"] == b"cancelled"
        assert wire("UPDATEJOB", changed, "BODY", "new", "HEADERS", 1, "k", "v") == b"OK"
        got = {j[1]: j[2] for j in wires[0]("GETJOB", "COUNT", 2, "FROM", f"changed{i}")}
        assert got == {changed: b"new", running: b"old"}
        refused = wire("UPDATEJOB", changed, "BODY", "newer")
        assert refused.startswith("ATWORK Job was delivered")
        run = wires[0]("START", "WORKER", "w", running)[0][0]
        refused = wire("UPDATEJOB", running, "BODY", "newer")
        assert refused.startswith("ATWORK Job is at work at worker w since")
        assert wire("CANCEL", running) == [b"flagged"]
        assert wires[0]("WORKING", running, run).startswith("CANCELLED")
        assert wires[0]("DONE", running, run, "RESULT", "true") == 1
        assert result(other, running)["result"] == b"true"
    for wire in wires:
        wire.close()


def test_a_change_that_has_begun_is_not_refused(cluster: RealCluster) -> None:
    """W8.6 CANCEL and UPDATEJOB that wait for holders have begun; they are not refused any more
    when memory runs out meanwhile.
    """
    wire = cluster.nodes[0].wire()
    changed = wire("ADDJOB", "grown", "old", 20_000, "REPLICATE", 2, "DELAY", 60)
    body = b"new" * 100_000
    used = int(info(wire, "memory")["used_memory"])
    for room in range(0, 2 * len(body), 16_384):  # in one of these rooms it ends on the way
        assert wire("CONFIG", "SET", "maxmemory", used + room) == b"OK"
        refused = str(wire("UPDATEJOB", changed, "BODY", body)).startswith("OOM")
        assert wire("CONFIG", "SET", "maxmemory", 0) == b"OK"
        assert wire.show(changed.decode())["body"] == (b"old" if refused else body)
        assert wire("UPDATEJOB", changed, "BODY", "old") == b"OK"


def test_a_result_outlives_the_node_of_its_job(tmp_path: Path) -> None:
    """W14.4 RESULT and WAITJOB show an outcome once all reachable holders have confirmed the end.

    W14.13 RESULT without WAIT of a job whose end is not confirmed yet waits for that, one second at
    most.
    """
    with RealCluster(tmp_path, 3) as cluster:
        first, second, third = (cluster.wire(i) for i in range(3))
        id = first("ADDJOB", "q", "body", 20_000, "REPLICATE", 3, "KEEP", 600)
        first("GETJOB", "FROM", "q")
        run = first("START", "WORKER", "w", id)[0][0]
        assert first("DONE", id, run, "RESULT", "42") == 1
        assert result(second, id)["result"] == b"42"
        cluster.nodes[0].kill()
        for _ in range(2):
            for wire in (second, third):
                found = result(wire, id)
                assert (found["state"], found["result"], found["worker"]) == (b"done", b"42", b"w")
        for wire in (first, second, third):
            wire.close()


def test_a_job_of_a_node_that_is_down_goes_on(tmp_path: Path) -> None:
    """W15.5 If no node in reach knows the job, but the id names a member (G6.1) that is not in
    reach or does not answer, and nothing here says that the job has ended, it is not `gone`: it may
    go on there.
    """
    with RealCluster(tmp_path, 2, *ALWAYS) as cluster:
        first, second = cluster.wire(0), cluster.wire(1)
        id = first("ADDJOB", "q", "body", 1_000, "REPLICATE", 1, *TERMS).decode()
        first("GETJOB", "FROM", "q")
        run = first("START", "WORKER", "w", id)[0][0]
        first.close()
        cluster.nodes[0].kill()
        with closing(App(cluster.nodes[1].url)) as app:
            handle = app.handle(id, str)
            with pytest.raises(NotInReach):
                handle.cancel()
            with pytest.raises(NotInReach):
                handle.result(timeout=0.1)
            cluster.nodes[0].start()
            first = cluster.wire(0)
            assert first("DONE", id, run, "RESULT", '"text"') == 1
            assert handle.result(timeout=20) == "text"
        first.close()
        second.close()


def test_a_result_that_was_dropped_here_waits_for_the_node_that_has_it(tmp_path: Path) -> None:
    """W15.10 RESULT replies `-NOREACH Job is done, but its result is not here, and may be at a node
    that did not answer: <id>[, <id>]`, and with WAIT it waits for that node until the timeout.

    W15.4 So do RESULT with WAIT and WAITJOB whose timeout is shorter
    """
    with RealCluster(tmp_path, 3, *ALWAYS) as cluster:
        first, second = cluster.wire(0), cluster.wire(1)
        second("CONFIG", "SET", "results-max-bytes", 1_000)
        id = first("ADDJOB", "q", "body", 20_000, "REPLICATE", 3, "KEEP", 600).decode()
        first("GETJOB", "FROM", "q")
        text = "x" * 5_000
        assert first("DONE", id, "-", "RESULT", f'"{text}"') == 1
        with closing(App(cluster.nodes[1].url)) as app:
            handle = app.handle(id, str)
            assert handle.result(timeout=0) == text
            for i in (0, 2):
                cluster.nodes[i].kill()
            with pytest.raises(NotInReach, match="its result is not here"):
                handle.result(timeout=0.1)
            assert second("WAITJOB", 100, id) == [[id.encode(), b"done"]]
            cluster.nodes[2].start()
            assert handle.result(timeout=60) == text
        first.close()
        second.close()
