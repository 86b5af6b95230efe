"""What one process of a worker leaves to the next: its jobs, and which of them ended a process."""

from __future__ import annotations

import random

from tuque.client.api import Job
from tuque.worker.app.codec import Envelope
from tuque.worker.app.decisions import DONE as DONE_WELL
from tuque.worker.app.decisions import Outcome
from tuque.worker.pools.execute import Call
from tuque.worker.pools.process_pool import ProcessPool
from tuque.worker.run.crash_table import (
    DONE,
    ENDED,
    NOTES_BYTES,
    RUNNING,
    SUSPECT,
    TRACE_LOST,
    WAITING,
    CrashTable,
)
from tuque.worker.run.jobs import InFlight, about
from tuque.worker.run.quarantine import ISOLATED_S, Quarantine
from tuque.worker.run.registration import worker_name
from tuque.worker.run.supervise import RESTART, failed_starts, inherited


class TestBox:
    """The table of jobs that outlives a process."""

    IDS = [f"D-12345678-{letter * 24}-05a1" for letter in "abcdef"]

    def test_names(self) -> None:
        """U6.4 The processes that follow one another in a worker have the same name; one that
        `--reload` starts anew has another one.
        """
        one, other = CrashTable.made(1), CrashTable.made(1)
        for which in ("", "first", "last"):
            fd, _, _, _, mark, ended = one.passed().split(":", 5)
            child = CrashTable(int(fd), ended, which == "last", which == "first", mark)
            assert worker_name(child) == worker_name(one)
        assert worker_name(other) != worker_name(one)
        assert worker_name(None) != worker_name(None)

    def test_one_that_ran_alone_ended_the_process(self) -> None:
        box = CrashTable.made(4)
        for id, state in zip(self.IDS, (WAITING, RUNNING, DONE), strict=False):
            box.put(id, 3, state)
        found = [(e.job_id, e.number, e.state) for e in inherited(CrashTable(box.fd))]
        assert sorted(found) == [
            (self.IDS[0], 3, WAITING),
            (self.IDS[1], 3, RUNNING),
            (self.IDS[2], 3, DONE),
        ]

    def test_of_several_nobody_knows(self) -> None:
        box = CrashTable.made(4)
        for id, state in zip(self.IDS, (RUNNING, RUNNING, SUSPECT), strict=False):
            box.put(id, 1, state)
        assert [entry.state for entry in inherited(box)] == [SUSPECT, SUSPECT, SUSPECT]
        box.mark(self.IDS[1], RUNNING)  # alone now
        assert sorted(entry.state for entry in inherited(box)) == [RUNNING, SUSPECT, SUSPECT]

    def test_what_does_not_fit_is_left_out(self) -> None:
        box = CrashTable.made(2)
        for id in self.IDS:
            box.put(id, 1, WAITING)
        assert [entry.job_id for entry in CrashTable(box.fd).entries()] == self.IDS[1::-1]
        box.drop(self.IDS[0])
        box.drop(self.IDS[5])
        box.put(self.IDS[4], 2, RUNNING)
        assert {entry.job_id for entry in box.entries()} == {self.IDS[1], self.IDS[4]}

    def test_it_has_how_jobs_ended(self) -> None:
        """U2.14 How a run ended is kept outside of the worker's process until the broker knows
        it.
        """
        box = CrashTable.made(9)
        ends = [
            Outcome("done", result=b"r" * 512),
            Outcome("done", result=b""),
            Outcome("done"),
            Outcome("done", result=b"r" * 513),
            Outcome("retry", "later", delay_s=2.5),
            Outcome("failed", "é" * 300, "Traceback"),
        ]
        for id, outcome in zip(self.IDS, ends, strict=True):
            box.put(id, 1, RUNNING)
            box.end(id, outcome)
        box.end("D-none", DONE_WELL)
        lost = [entry.job_id for entry in CrashTable(box.fd).entries() if entry.is_result_lost]
        assert lost == [self.IDS[3]]
        for _ in range(2):
            found = {entry.job_id: entry for entry in inherited(CrashTable(box.fd))}
            told = [found[id].outcome for id in self.IDS]
            assert told[0] == Outcome("done", result=b"r" * 512, is_told=True)
            assert told[1:4] == [Outcome("done", result=r, is_told=True) for r in (b"", None, None)]
            assert told[4] == Outcome("retry", "later", TRACE_LOST, delay_s=2.5, is_told=True)
            assert told[5] == Outcome("failed", "é" * 256, TRACE_LOST, is_told=True)
        assert {found[id].state for id in self.IDS[4:]} == {ENDED}

    def test_what_stands_before_the_table_stays_when_it_is_emptied(self) -> None:
        box = CrashTable.made(2)
        box.put(self.IDS[0], 1, RUNNING)
        box.runs = 7
        box.notes = b"n" * NOTES_BYTES
        assert [entry.job_id for entry in box.entries()] == [self.IDS[0]]
        box.clear()
        other = CrashTable(box.fd)
        assert (other.entries(), other.runs, other.notes) == ([], 7, b"n" * NOTES_BYTES)
        box.notes = b"less"
        assert CrashTable(box.fd).notes == b"less"


class TestPause:
    """How long a worker waits before it starts another process."""

    def test_only_processes_that_came_to_nothing_make_it_grow(self) -> None:
        assert failed_starts(0, runs=0, lived_s=0.5) == 1
        assert failed_starts(5, runs=0, lived_s=0.5) == 6
        assert failed_starts(5, runs=1, lived_s=0.5) == 0
        assert failed_starts(5, runs=0, lived_s=11.0) == 0

    def test_it_has_a_bound(self) -> None:
        rng = random.Random(1)
        assert max(RESTART.delay_s(number, rng) for number in range(1, 100)) <= 15.0


class TestQuarantine:
    """What runs apart, for how long."""

    def test_a_job_that_ended_a_process_does_so_for_good_and_its_task_for_a_while(self) -> None:
        quarantine = of_process()
        assert not quarantine.takes(job("t", "a"), 5.0)
        quarantine.blame(job("t", "a"), 5.0)
        assert quarantine.takes(job("t", "a"), 5.0 + 1e6)
        assert quarantine.takes(job("t", "b"), 4.9 + ISOLATED_S)
        assert not quarantine.takes(job("t", "b"), 5.0 + ISOLATED_S)
        assert not quarantine.takes(job("u", "b"), 5.0)

    def test_each_crash_begins_the_while_anew(self) -> None:
        quarantine = of_process()
        quarantine.blame(job("t", "a"), 0.0)
        quarantine.blame(job("t", "b"), 50.0)
        assert quarantine.takes(job("t", "c"), 49.0 + ISOLATED_S)

    def test_the_next_process_knows_the_latest(self) -> None:
        box = CrashTable.made(1)
        quarantine = of_process(box)
        for at in [*range(300), 250, *range(300, 499)]:
            quarantine.blame(job(f"task {at}", str(at)), float(at))
        assert len(box.notes) <= NOTES_BYTES
        quarantine = of_process(CrashTable(box.fd))
        assert all(quarantine.takes(job("u", str(at)), 1e6) for at in (250, *range(300, 499)))
        assert quarantine.takes(job("task 498", "x"), 499.0)
        assert not quarantine.takes(job("task 0", "0"), 0.0)


def of_process(box: CrashTable | None = None) -> Quarantine:
    """The quarantine of a process that has that table; its pool is not started."""
    return Quarantine(ProcessPool("none:app", ".", None, 1), box)


def job(task: str, name: str) -> InFlight:
    """A delivery of that task; `name` has no letter above f."""
    held = InFlight(Job("q", f"D-12345678-{name:>024}-05a1", b"", 0, 0))
    held.about = about(held.job)
    held.call = Call(Envelope(task, (), {}), held.about, None)
    return held
