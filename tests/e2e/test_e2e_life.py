"""A real server whose jobs are at work: kill -9 right after each reply, and what it still knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab import RealServer
from raw_resp import NULL, Wire

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
