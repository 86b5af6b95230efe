"""Whether a worker is alive, as a file and a check; its metrics over HTTP (SPEC U4, O4).

Alive means that the loop turns. An outage of the broker is shown and is no illness: to start the
worker anew would not help.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Coroutine, Sized
from pathlib import Path
from typing import Any, Final

import msgspec

from tuque.errors import ConfigError
from tuque.logtext import facts
from tuque.metrics.listener import TEXT_TYPE, Listener, Page, fault, open_sockets
from tuque.metrics.text import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    OPEN_TYPE,
    PLAIN_TYPE,
    Family,
    render,
    wants_open,
)
from tuque.worker.pools.pools import Pool
from tuque.worker.run.jobs import WorkerSettings
from tuque.worker.run.link import Link
from tuque.worker.run.stats import BOUNDS_S, ORDER, JobLog

log: Final = logging.getLogger("tuque.worker")

EVERY_S: Final = 5.0
STALE_S: Final = 30.0  # a process that ended is replaced by then
ALIVE_S: Final = 30.0  # the loop beats each 5 s


class Health(msgspec.Struct):
    """The file: the process, its jobs that run, seconds without broker, and wall clock."""

    pid: int
    running: int
    at: float
    lost_s: float | None = None


def write(path: str, running: int, lost_s: float | None) -> None:
    """Replaces the file; raises OSError."""
    told = Health(os.getpid(), running, time.time(), lost_s)
    new = Path(f"{path}.new")
    new.write_bytes(msgspec.json.encode(told))
    new.replace(path)


async def keep(path: str, link: Link, busy: Callable[[], int]) -> None:
    """[U4] Writes at intervals that the loop is alive (U4.4)."""
    while True:
        lost_s = time.monotonic() - link.last_answer_at if link.is_lost else None
        try:
            write(path, busy(), lost_s)
        except OSError as err:
            log.warning(
                "the health file cannot be written: %(reason)s",
                facts("health_unwritten", reason=err),
            )
        await asyncio.sleep(EVERY_S)


def drop(path: str) -> None:
    """Removes the file of a worker that ends."""
    with contextlib.suppress(OSError):
        Path(path).unlink()


def check(path: str) -> tuple[bool, str]:
    """[U4] Whether the worker that writes the file is alive, and one line about it (U4.4)."""
    try:
        told = msgspec.json.decode(Path(path).read_bytes(), type=Health)
    except FileNotFoundError:
        return False, f"{path} is not there: no worker runs with --health-file {path}"
    except (OSError, msgspec.MsgspecError) as err:
        return False, f"{path} cannot be read: {err}"
    age_s = time.time() - told.at
    if age_s > STALE_S:
        return False, f"worker {told.pid} has said nothing for {age_s:.0f} s"
    lost = "" if told.lost_s is None else f", without its broker for {told.lost_s:.0f} s"
    return True, f"worker {told.pid} is alive: {told.running} jobs run{lost}"


# ---- Metrics over HTTP: runs by task, slots, broker (SPEC O4)


class Meter:
    """The source of the pages; its numbers are those of the worker's own loop."""

    def __init__(self, story: JobLog, link: Link, slots: int, runs: Sized, pool: Pool) -> None:
        self._story = story
        self._link = link
        self._slots = slots
        self._runs = runs
        self._pool = pool
        self.beat_at = time.monotonic()  # when the loop turned last

    async def loop(self) -> None:
        """[O4] Notes at intervals that the worker's loop turns (O4.2)."""
        while True:
            self.beat_at = time.monotonic()
            await asyncio.sleep(EVERY_S)

    def page(self, path: str, accept: str) -> Page | None:
        """[O4] The page of that path (O4.2)."""
        path = path.partition("?")[0]
        if path == "/metrics":
            is_open = wants_open(accept)
            text = render(self.families(), is_open)
            return Page(200, OPEN_TYPE if is_open else PLAIN_TYPE, text)
        if path == "/healthz":
            silent_s = time.monotonic() - self.beat_at
            if silent_s > ALIVE_S:
                return fault(503, f"the loop has not turned for {silent_s:.0f} s")
            return Page(200, TEXT_TYPE, b"ok\n")
        if path == "/readyz":
            if self._link.is_lost:
                return fault(503, "it has no broker")
            if not self._pool.places:
                return fault(503, "no process can run jobs yet: its lifespan has not begun")
            return Page(200, TEXT_TYPE, b"ready\n")
        return fault(404, "there are /metrics, /healthz and /readyz")

    def take(self, path: str, accept: str) -> Page | None:
        """All pages are made at once."""
        return None

    def done(self) -> None:
        """All pages are made at once."""

    def families(self) -> list[Family]:
        """[O4] The worker's metrics (O4.1)."""
        runs = Family("tuque_worker_runs", COUNTER, "Runs by task and outcome")
        times = Family("tuque_worker_run_seconds", HISTOGRAM, "How long runs took")
        for task, figures in list(self._story.tasks.items()):
            for outcome, count in list(figures.outcomes.items()):
                runs.add(count, task=task, outcome=outcome)
            times.add_histogram(figures.buckets, BOUNDS_S, figures.spent_s, task=task)
        jobs = Family("tuque_worker_jobs", COUNTER, "What became of jobs and attempts")
        for what in ORDER:
            jobs.add(self._story.counts[what], outcome=what.replace(" ", "_"))
        return [
            runs,
            times,
            jobs,
            Family("tuque_worker_slots", GAUGE, "Jobs that may run at a time").add(self._slots),
            Family("tuque_worker_slots_busy", GAUGE, "Jobs that run").add(len(self._runs)),
            Family("tuque_worker_connected", GAUGE, "1: the broker replies").add(
                int(not self._link.is_lost)
            ),
            Family("tuque_worker_reconnects", COUNTER, "Outages of the broker that ended").add(
                self._link.times_back
            ),
            Family("tuque_worker_cpu_seconds", COUNTER, "Processor time of the process").add(
                sum(os.times()[:2])
            ),
        ]


def begin_signs(
    settings: WorkerSettings, story: JobLog, link: Link, runs: Sized, pool: Pool
) -> tuple[Listener | None, list[Coroutine[Any, Any, None]]]:
    """The listener, and the loops that show that the worker is alive. Raises ConfigError."""
    listener: Listener | None = None
    loops: list[Coroutine[Any, Any, None]] = []
    if settings.metrics_port is not None:
        meter = Meter(story, link, settings.concurrency, runs, pool)
        listener = open_meter(meter, settings.metrics_port)
        loops.append(meter.loop())
    if settings.health_file is not None:
        loops.append(keep(settings.health_file, link, lambda: len(runs)))
    return listener, loops


def open_meter(meter: Meter, port: int) -> Listener:
    """[O4] Serve the meter's pages on loopback (O4.1). Raises ConfigError."""
    try:
        sockets = open_sockets(["127.0.0.1"], port, is_shared=True)
    except OSError as error:
        why = f"can't listen on 127.0.0.1:{port}: {error.strerror}; choose another --metrics-port"
        raise ConfigError(why) from None
    listener = Listener(sockets, meter)
    listener.start()
    return listener
