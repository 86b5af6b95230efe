"""One life of work at two placements: nine states by fifteen events, on a queue and on a tube.

The cells of a tube are those of a queue but for DIFFERENT, where each cell has its rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from raw_resp import Err
from world import World

Make = Callable[..., World]

STATES: Final = (
    "none waiting delivered live other back-off flagged dead ended".split()
)  # `other`: a run of another worker, after one of w that was released
EVENTS: Final = (
    "GETJOB START WORKING PROGRESS RELEASE NACK ENQUEUE FAIL FINAL DONE CANCEL UPDATEJOB REPLAY "
    "RETRY TTL".split()
)
NO_RUN: Final = b"1.1.000001"
RETRY_S: Final = 300
SHORT_S: Final = 100  # the TTL of jobs that expire


# What the worker hears, in a word, and the state after it; of RETRY and TTL the state alone.
ROWS: Final = """
state     none        waiting         delivered         live            other
GETJOB    ->NOJOB     ok>delivered    ->delivered       ->running       ->running
START     NOJOB>NOJOB ok>running      ok>running        ok>running      ATWORK>running
WORKING   NOJOB>NOJOB STALE>waiting   STALE>delivered   ok>running      STALE>running
PROGRESS  NOJOB>NOJOB STALE>waiting   STALE>delivered   OK>running      STALE>running
RELEASE   ->NOJOB     ->waiting       1>waiting         1>waiting       ->running
NACK      ->NOJOB     ->waiting       1>waiting         1>waiting       1>waiting
ENQUEUE   ->NOJOB     ->waiting       1>waiting         ->running       ->running
FAIL      NOJOB>NOJOB STALE>waiting   STALE>delivered   retry>back-off  STALE>running
FINAL     NOJOB>NOJOB STALE>waiting   STALE>delivered   dead>dead       STALE>running
DONE      ->NOJOB     1>done          1>done            1>done          1>done
CANCEL    ->NOJOB     ended>cancelled flagged>delivered flagged>running flagged>running
UPDATEJOB NOJOB>NOJOB OK>waiting      ATWORK>delivered  ATWORK>running  ATWORK>running
REPLAY    ->NOJOB     ->waiting       ->delivered       ->running       ->running
RETRY     NOJOB       waiting         waiting           back-off        back-off
TTL       NOJOB       dead            dead              running         running

state     back-off              flagged             dead            ended
GETJOB    ->back-off            ->running           ->dead          ->done
START     NOTDELIVERED>back-off CANCELLED>cancelled DEAD>dead       ACKED>done
WORKING   STALE>back-off        CANCELLED>running   DEAD>dead       ACKED>done
PROGRESS  STALE>back-off        CANCELLED>running   DEAD>dead       ACKED>done
RELEASE   ->back-off            1>cancelled         ->dead          ->done
NACK      1>waiting             1>cancelled         ->dead          ->done
ENQUEUE   1>waiting             ->running           ->dead          ->done
FAIL      STALE>back-off        cancelled>cancelled DEAD>dead       ACKED>done
FINAL     STALE>back-off        cancelled>cancelled DEAD>dead       ACKED>done
DONE      1>done                1>done              1>done          ->done
CANCEL    ended>cancelled       flagged>running     ended>cancelled over>done
UPDATEJOB OK>back-off           ATWORK>running      DEAD>dead       ACKED>done
REPLAY    ->back-off            ->running           1>waiting       ->done
RETRY     waiting               cancelled           dead            done
TTL       dead                  running             dead            done
"""
TABLE: Final = {
    (state, line.split()[0]): became
    for block in ROWS.strip().split("\n\n")
    for line in block.splitlines()[1:]
    for state, became in zip(block.split("\n")[0].split()[1:], line.split()[1:], strict=True)
}
DIFFERENT: Final = {
    ("waiting", "START"): ("NOTDELIVERED>waiting", "T48.3: START is for a task that is TAKEN"),
    ("waiting", "DONE"): ("->waiting", "T1.4: who has not taken a task does not end it"),
    ("back-off", "NACK"): ("->back-off", "T1.4: NACK releases a task that is TAKEN"),
    ("delivered", "ENQUEUE"): ("->delivered", "T1.5: ENQUEUE kicks a BURIED task, no other one"),
    ("back-off", "ENQUEUE"): ("->back-off", "T1.5"),
    ("dead", "ENQUEUE"): ("1>waiting", "T1.5, T48.13: kick is a replay"),
    ("delivered", "TTL"): ("delivered", "T6.2: a TAKEN task ends when it is released"),
    ("back-off", "TTL"): ("back-off", "T6.2: a DELAYED task ends when its delay is over"),
}


class Case:
    """A job in one of the states, alone in its queue, and what its worker w knows."""

    def __init__(self, world: World, kind: str, state: str, name: str, ttl_s: int) -> None:
        self.run, self.name = world.run, name
        self.dead = f"{name}.dead" if kind == "queue" else name
        self.token = NO_RUN
        if kind == "tube":
            assert self.run("TUBE", "CREATE", name, "tasks", "TTR", RETRY_S) == b"OK"
        words: list[object] = ["ATTEMPTS", 3, "BACKOFF", 200, 200, 0, "TTL", ttl_s]
        words += ["KEEP", 9_000] if state != "none" else []
        words += ["RETRY", RETRY_S] if kind == "queue" else []
        self.id: bytes = self.run("ADDJOB", name, "b", 0, *words)
        assert not isinstance(self.id, Err), self.id
        if state == "none":
            assert self.run("DELJOB", self.id) == 1
        elif state != "waiting":
            self.bring(state)

    def bring(self, state: str) -> None:
        """Deliver it, and go on to the state."""
        assert [job[1] for job in self.run("GETJOB", "FROM", self.name)] == [self.id]
        if state == "delivered":
            return
        self.token = self.run("START", "WORKER", "w", self.id)[0][0]
        if state == "other":
            assert self.run("RELEASE", self.id, self.token) == 1
            assert [job[1] for job in self.run("GETJOB", "FROM", self.name)] == [self.id]
            assert isinstance(self.run("START", "WORKER", "v", self.id)[0][0], bytes)
        elif state == "back-off":
            assert self.run("FAIL", self.id, self.token)[0] == b"retry"
        elif state == "flagged":
            assert self.run("CANCEL", self.id) == [b"flagged"]
        elif state == "dead":
            assert self.run("FAIL", self.id, self.token, "FINAL")[0] == b"dead"
        elif state == "ended":
            assert self.run("DONE", self.id, self.token) == 1

    def words(self, event: str) -> list[object]:
        """The command of the event."""
        run, id = self.token, self.id
        if event == "GETJOB":
            return ["GETJOB", "NOHANG", "FROM", self.name]
        if event == "REPLAY":
            return ["DEAD", "REPLAY", self.dead, "IDS", id]
        if event == "RELEASE":
            return ["RELEASE", id, b"-" if run == NO_RUN else run]
        more: dict[str, list[object]] = {
            "START": ["START", "WORKER", "w", id],
            "PROGRESS": ["PROGRESS", id, run, "half"],
            "FINAL": ["FAIL", id, run, "FINAL"],
            "UPDATEJOB": ["UPDATEJOB", id, "BODY", "new"],
        }
        if event in ("WORKING", "FAIL", "DONE"):
            return [event, id, run]
        return more.get(event, [event, id])

    def reply(self, event: str) -> str:
        """What the worker hears, in a word."""
        reply: Any = self.run(*self.words(event))
        if event == "GETJOB":
            return "ok" if isinstance(reply, list) else "-"
        while isinstance(reply, list) and reply:
            reply = reply[1] if event == "REPLAY" else reply[0]
        if isinstance(reply, Err):
            return str(reply).split()[0]
        if event in ("WORKING", "START"):
            return "ok"
        return reply.decode() if isinstance(reply, bytes) else str(reply or "-")

    def state(self) -> str:
        """What RESULT says of it then."""
        reply: Any = self.run("RESULT", self.id)
        return str(reply).split()[0] if isinstance(reply, Err) else said(reply, b"state")


def said(reply: list[bytes], name: bytes) -> str:
    return reply[reply.index(name) + 1].decode()


def cells(make_world: Make, kind: str) -> dict[tuple[str, str], str]:
    """Each cell: what is heard, and the state after it."""
    found: dict[tuple[str, str], str] = {}
    for timer, ttl_s, passed_s in (
        ("", 9_000, 0),
        ("RETRY", 9_000, RETRY_S),
        ("TTL", SHORT_S, SHORT_S),
    ):
        world = make_world(1)
        events = [timer] if timer else EVENTS[:-2]
        cases = {
            (state, event): Case(world, kind, state, f"q{i}-{j}", ttl_s)
            for i, state in enumerate(STATES)
            for j, event in enumerate(events)
        }
        world.pass_ms(passed_s * 1000 + 500 * (passed_s > 0))
        for (state, event), case in cases.items():
            heard = "" if timer else case.reply(event) + ">"
            found[state, event] = heard + case.state()
        world.check()
        world.close()
    return found


def lines(found: dict[tuple[str, str], str]) -> str:
    """The cells as a table."""
    rows = [" ".join([event, *(found[state, event] for state in STATES)]) for event in EVENTS]
    return "\n".join(rows)


@pytest.mark.long
def test_a_queue(make_world: Make) -> None:
    assert lines(cells(make_world, "queue")) == lines(TABLE)


@pytest.mark.long
def test_a_tube(make_world: Make) -> None:
    want = TABLE | {cell: became for cell, (became, _) in DIFFERENT.items()}
    assert lines(cells(make_world, "tube")) == lines(want)
    assert len(DIFFERENT) <= 12
    assert all(became != TABLE[cell] for cell, (became, _) in DIFFERENT.items())
