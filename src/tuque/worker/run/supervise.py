"""The parent of a worker process: restarts it when a task ended it, and passes its jobs on.

Which jobs run again, and how, follows from the crash table (crash_table.py), which passes from one
process to the next.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from math import inf
from types import FrameType
from typing import Final

import msgspec

from tuque import aio
from tuque.client.api import Job, JobInfo
from tuque.client.commands.work import UNBEGUN, Result, Run
from tuque.errors import ReplyError
from tuque.logtext import facts
from tuque.worker.app.decisions import Backoff
from tuque.worker.pools.processes import (
    BLOCKED,
    end_group,
    ending,
    signals_blocked,
    unblock_signals,
)
from tuque.worker.run.crash_table import (
    ENDED,
    LEAVING,
    LOADING,
    RETIRED,
    RUNNING,
    SUSPECT,
    WORKING,
    CrashTable,
    Entry,
)
from tuque.worker.run.heartbeat import Deputy

log: Final = logging.getLogger("tuque.worker")

BOOT: Final = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); "  # U4.11
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from tuque.worker.main import worker; worker(sys.argv[2:], prog_name='tuque worker')"
)
PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGTSTP, signal.SIGUSR1, signal.SIGHUP)
RESTART: Final = Backoff(first_s=0.2, max_s=15.0)
STEADY_S: Final = 10.0  # a process that lived so long did start

ASKED_AT_ONCE: Final = 200


class Relay:
    """[U4] Passes the signals of this process on to its child, also those that come while that
    starts (U4.12).
    """

    def __init__(self) -> None:
        self.is_stopping = False  # TERM or INT has come
        self._process: subprocess.Popen[bytes] | None = None
        self._is_starting = False
        self._waiting: list[int] = []

    def begin(self) -> None:
        """Signals come here from now on."""
        for number in PASSED_ON:
            signal.signal(number, self._pass_on)
        unblock_signals()

    def start(
        self, words: list[str], env: dict[str, str], fds: tuple[int, ...] = ()
    ) -> subprocess.Popen[bytes]:
        """Starts the child; it leads a group: signals of a terminal reach it through here, once."""
        self._is_starting = True
        with signals_blocked():
            self._process = process = subprocess.Popen(
                words, pass_fds=fds, env=env, process_group=0
            )
        self._is_starting = False
        while self._waiting:
            self._send(process, self._waiting.pop(0))
        return process

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self.is_stopping = True
        process = self._process
        if process is not None and process.poll() is None:
            self._send(process, number)
        elif self._is_starting or number in BLOCKED:
            self._waiting.append(number)

    def _send(self, process: subprocess.Popen[bytes], number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(process.pid, number)


class Supervisor:
    """One worker process after the other, until one ends cleanly."""

    def __init__(self, arguments: list[str], env: dict[str, str], places: int) -> None:
        self._arguments = arguments
        self._env = env
        self._box = CrashTable.made(places)
        self._relay = Relay()
        self._deputy = Deputy(self._box)

    def run(self) -> int:
        """Runs processes; returns the exit code of the last one."""
        self._relay.begin()
        with signals_blocked(PASSED_ON):  # it would not wake this thread, which waits for the child
            threading.Thread(target=self._deputy.run, name="heartbeats", daemon=True).start()
        rng = random.Random()
        failures = 0
        while True:
            began = time.monotonic()
            pid, code = self._run_one()
            if self._box.phase == RETIRED and not self._stops():
                failures = 0
                continue  # U4.2
            if self._box.phase != WORKING:
                if self._stops() and self._box.phase != LEAVING and self._box.entries():
                    return self._give_back()  # it heard no signal yet (U2.14)
                return exit_code(code)
            end_group(pid)  # what its tasks had started (U13.4)
            self._box.ended = ending(code)
            held = len(self._box.entries())
            log.error(
                "the worker process %(reason)s; it held %(jobs)d jobs",
                facts("worker_process_ended", reason=self._box.ended, jobs=held),
            )
            if self._stops():
                return self._give_back()
            failures = failed_starts(failures, self._box.runs, time.monotonic() - began)
            if failures > 1:  # the jobs in the table have retry times
                wait_until(time.monotonic() + RESTART.delay_s(failures - 1, rng), self._stops)
                if self._stops():
                    return self._give_back()

    def _give_back(self) -> int:
        """Starts a last process that settles the jobs in the table; returns its exit code."""
        if not self._box.entries() or self._box.is_last:
            return 1
        self._box.is_last = True
        return exit_code(self._run_one()[1])

    def _stops(self) -> bool:
        return self._relay.is_stopping

    def _run_one(self) -> tuple[int, int]:
        """The pid of a process that has run to its end, and its exit code."""
        self._box.phase = LOADING
        self._box.runs = 0
        self._box.beats_at = inf
        box = f"--box={self._box.passed()}"
        words = [sys.executable, "-c", BOOT, json.dumps(sys.path), *self._arguments, box]
        process = self._relay.start(words, self._env, self._box.fds)
        self._box.is_first = False
        self._deputy.pid = process.pid
        code = process.wait()
        self._deputy.pid = None
        return process.pid, code


def failed_starts(before: int, runs: int, lived_s: float) -> int:
    """The number of failed starts in a row, including the process that has just ended.

    One that finished runs, or lived a while, has not failed: the next one starts at once.
    """
    return 0 if runs or lived_s > STEADY_S else before + 1


def exit_code(code: int) -> int:
    """The exit code of a process as a shell shows it, also after a signal."""
    return code if code >= 0 else 128 - code


def wait_until(until: float, stops: Callable[[], bool]) -> None:
    """Waits until that monotonic time, or until stopped."""
    while time.monotonic() < until and not stops():
        time.sleep(0.05)


# ---- Jobs of a process that a task ended: the rule for its successor
#
# A job that ran alone has ended it. If several ran, nobody knows which one did: they run again one
# at a time, and no attempt is counted until one of them ends its process alone.


def inherited(box: CrashTable) -> list[Entry]:
    """The previous process's jobs, each with its new state; updates the table, too.

    A WAITING job has not begun. A DONE or ENDED one is over: this process tells the broker how it
    ended. A SUSPECT one runs again, with nothing beside it. The RUNNING one ended the process.
    """
    entries = box.entries()
    alone = sum(entry.state == RUNNING for entry in entries) == 1
    box.clear()
    found = []
    for entry in entries:
        state = SUSPECT if entry.state == RUNNING and not alone else entry.state
        box.put(entry.job_id, entry.number, state, entry.outcome, entry.run, entry.queue)
        found.append(entry._replace(state=state))
    return found


async def jobs_of(client: aio.Client, entries: list[Entry], worker: str) -> list[tuple[Entry, Job]]:
    """The jobs that nobody else got since they entered the table; raises if the broker is down.

    `worker`: the name under which they began.
    """
    found = []
    for at in range(0, len(entries), ASKED_AT_ONCE):
        some = entries[at : at + ASKED_AT_ONCE]
        pipeline = client.pipeline()
        for entry in some:
            pipeline.show(entry.job_id)
        answers: Iterable[object] = await pipeline.execute(raise_on_error=False)
        for entry, info in zip(some, answers, strict=True):
            if isinstance(info, JobInfo) and is_ours(entry, info):
                assert info.queue is not None and info.body is not None
                found.append((entry, job_of(entry, info, info.queue, info.body)))
    return await _with_limits(client, found, worker)


async def _with_limits(
    client: aio.Client, found: list[tuple[Entry, Job]], worker: str
) -> list[tuple[Entry, Job]]:
    """Asks how many attempts the jobs have; leaves out runs that the broker has ended meanwhile."""
    ours: list[tuple[Entry, Job]] = []
    pipeline = client.pipeline()
    for _, job in found:
        pipeline.result(job.id)
    answers: Iterable[object] = await pipeline.execute(raise_on_error=False) if found else []
    for (entry, job), result in zip(found, answers, strict=True):
        if not isinstance(result, Result) or entry.run == UNBEGUN:
            ours.append((entry, job))
        elif entry.state != ENDED or is_at_work(result, worker):
            if not entry.run and is_at_work(result, worker):
                entry = await _with_run(client, entry, worker)
            ours.append((entry, msgspec.structs.replace(job, of=result.of)))
    return ours


async def _with_run(client: aio.Client, entry: Entry, worker: str) -> Entry:
    """[U2] The run that began when the process ended: its token did not arrive (U2.14)."""
    try:
        (run,) = await client.start(entry.job_id, worker=worker)
    except ReplyError:
        return entry
    return entry._replace(run=run.run) if isinstance(run, Run) else entry


def is_at_work(result: Result, worker: str) -> bool:
    """Whether the run is still that of this worker: nobody was told how it ended."""
    return result.state == "running" and result.worker == worker


def is_ours(entry: Entry, info: JobInfo) -> bool:
    """Whether the table's delivery is the latest: no other client got the job since."""
    number = info.nacks + info.additional_deliveries + 1
    return info.state == "active" and info.body is not None and number == entry.number


def job_of(entry: Entry, info: JobInfo, queue: str, body: bytes) -> Job:
    """A job as GETJOB returned it."""
    work = info.work
    headers, crashes, failed = ({}, 0, 0)
    if work is not None:
        headers, crashes, failed = work.headers, work.crashes, work.failed
    attempt = 0 if entry.run == UNBEGUN else failed + 1
    counts = info.nacks, info.additional_deliveries
    return Job(queue, info.id, body, *counts, attempt, headers=headers, crashes=crashes)
