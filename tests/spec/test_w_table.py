"""One life of work at two placements: nine states by fifteen events.

The table holds for the rules alone (core/work), on a queue and on a tube. The cells of a tube are
those of a queue but for DIFFERENT, where each cell has its rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from raw_resp import Err
from tuque.core.model import errors
from tuque.core.model.errors import CANCELLED_JOB, Refusal
from tuque.core.model.work import FAILED, LIVE, RELEASED, Failure, Life, Terms, attempt_of, run_of
from tuque.core.work import rules
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
            return ["DEAD", "REPLAY", f"{self.name}.dead", "IDS", id]
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


class Sheet:
    """A job that is its work, and where it is; all else is left to the rules."""

    def __init__(self, state: str) -> None:
        self.work = Life(Terms(3, 200_000, 200_000, 0, b"", 9_000_000, 0), b"")
        self.place = rules.WAITING
        self.over = "NOJOB" if state == "none" else ""
        self.now_ms = 1_000
        self.run = 0
        events: dict[str, list[str]] = {
            "delivered": ["GETJOB"],
            "live": ["GETJOB", "START"],
            "other": ["GETJOB", "START", "RELEASE", "GETJOB", "START of v"],
            "back-off": ["GETJOB", "START", "FAIL"],
            "flagged": ["GETJOB", "START", "CANCEL"],
            "dead": ["GETJOB", "START", "FINAL"],
            "ended": ["GETJOB", "START", "DONE"],
        }
        for event in events.get(state, []):
            self.reply(event)
            if event == "START":
                self.run = self.work.run

    def state(self) -> str:
        """What RESULT says of it."""
        return self.over or rules.STATE_NAMES[rules.state_of(self.work, self.place)].decode()

    def reply(self, event: str) -> str:
        """What a client gets, in a word."""
        if self.over:
            return self.late(event)
        if event in ("WORKING", "PROGRESS", "FAIL", "FINAL"):
            return self.report(event)
        if event in ("START", "START of v"):
            return self.start(b"v" if event == "START of v" else b"w")
        if event == "UPDATEJOB":
            refused = rules.may_change(self.work, self.place, b"q", 0, self.now_ms)
            return word(refused) if refused is not None else "OK"
        return str(self.act(event) or "-")

    def late(self, event: str) -> str:
        """Nothing changes any more."""
        if event in ("START", "WORKING", "PROGRESS", "FAIL", "FINAL", "UPDATEJOB"):
            return "NOJOB" if self.over == "NOJOB" else "ACKED"
        return "over" if event == "CANCEL" and self.over != "NOJOB" else "-"

    def start(self, worker: bytes) -> str:
        work = self.work
        refused = rules.may_begin(work, self.place, b"q", worker, self.now_ms)
        if refused is not None:
            if refused.code == CANCELLED_JOB:
                self.over = "cancelled"
            return word(refused)
        if work.run_state != LIVE:
            run = run_of(work.failed + 1, work.starts + 1, worker[0])
            rules.begin(work, run, worker, -1, self.now_ms)
            self.place = rules.DELIVERED
        return "ok"

    def report(self, event: str) -> str:
        """WORKING, PROGRESS and FAIL name a run."""
        work = self.work
        refused = rules.check_run(work, self.run, b"q")
        if refused is not None:
            return word(refused)
        if not event.startswith("F"):
            refused = rules.may_last(work, -1, self.now_ms)
            said = "ok" if event == "WORKING" else "OK"
            return word(refused) if refused is not None else said
        if work.is_cancelled:
            self.over = "cancelled"
            return "cancelled"
        self.fail(False, event == "FINAL")
        return "dead" if work.is_dead else "retry"

    def fail(self, is_silent: bool, is_final: bool) -> None:
        work = self.work
        attempt = attempt_of(work.run)
        is_last = rules.count_failure(work, attempt, is_silent, 100) or is_final
        rules.keep_failure(work, Failure(self.now_ms, attempt, b"w", b"failed", b"", b""))
        rules.end_run(work, FAILED, self.now_ms)
        if is_last:
            self.die()
        else:
            work.is_resting = rules.back_off_ms(work, 0) > 0

    def die(self) -> None:
        rules.die(self.work, b"failed", b"q", self.now_ms)
        self.work.is_dead = True
        self.place = rules.WAITING

    def act(self, event: str) -> object:
        """The events that are no report: what is replied, nothing if nothing changes."""
        work, place = self.work, self.place
        state = rules.state_of(work, place)
        if event == "GETJOB":
            self.place = rules.DELIVERED if state == rules.WAITING else place
            return "ok" if state == rules.WAITING else ""
        if event == "REPLAY":
            if state == rules.DEAD:
                rules.revive(work, self.now_ms)
                work.is_dead = False
                return 1
        elif event == "CANCEL":
            if state in (rules.DELIVERED, rules.RUNNING):
                rules.flag(work, b"")
                return "flagged"
            self.over = "cancelled"
            return "ended"
        elif event == "DONE":
            self.over = "done"
            return 1
        elif event == "RELEASE":
            is_out = place == rules.DELIVERED and rules.may_release(work, self.run)
            return self.give_back() if is_out else ""
        elif event == "NACK":
            is_out = state in (rules.DELIVERED, rules.RUNNING, rules.BACK_OFF)
            return self.give_back() if is_out else ""
        elif event == "ENQUEUE":
            return self.give_back() if state in (rules.DELIVERED, rules.BACK_OFF) else ""
        return ""

    def give_back(self) -> int:
        """It is queued again, or it ends."""
        if self.work.is_cancelled:
            self.over = "cancelled"
        rules.end_run(self.work, RELEASED, self.now_ms)
        self.work.is_resting = False
        self.place = rules.WAITING
        return 1

    def pass_time(self, timer: str) -> None:
        """Its RETRY, its back-off, or its TTL is over."""
        work, state = self.work, rules.state_of(self.work, self.place)
        if self.over or state == rules.DEAD:
            return
        if timer == "TTL":
            if state != rules.RUNNING and rules.dies_expired(work):
                self.die()
        elif work.is_cancelled:
            self.over = "cancelled"
        elif state == rules.RUNNING:
            self.fail(True, False)
        elif state != rules.DELIVERED or not rules.count_unstarted(work, 100):
            self.give_back()


def word(refused: Refusal) -> str:
    """The first word of the error."""
    return errors.ROWS[int(refused.code)].word.decode()


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


def test_the_rules() -> None:
    found: dict[tuple[str, str], str] = {}
    for state in STATES:
        for event in EVENTS:
            sheet = Sheet(state)
            if event in ("RETRY", "TTL"):
                sheet.pass_time(event)
                found[state, event] = sheet.state()
            else:
                found[state, event] = f"{sheet.reply(event)}>{sheet.state()}"
    assert lines(found) == lines(TABLE)


@pytest.mark.long
def test_a_queue(make_world: Make) -> None:
    assert lines(cells(make_world, "queue")) == lines(TABLE)


@pytest.mark.long
def test_a_tube(make_world: Make) -> None:
    want = TABLE | {cell: became for cell, (became, _) in DIFFERENT.items()}
    assert lines(cells(make_world, "tube")) == lines(want)
    assert len(DIFFERENT) <= 12
    assert all(became != TABLE[cell] for cell, (became, _) in DIFFERENT.items())
