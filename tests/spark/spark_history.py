"""A history small enough to work out by hand, written by the real writer.

Instants are ms after START_MS. Queue q:

    A  added 0, delivered 100, acked 300
    B  added 0, delivered 400, nacked 500, delivered 1500, acked 1700
    C  added 200 with a delay of 2 s, delivered 2250, back by timeout 5250,
       delivered 5300, dead 5400
    G  added 1000, delivered 1020, acked 1080

Queue r:

    D  added 1000, never delivered
    E  added 1000, delivered 1200, still in work
    F  added 1100, expired 5100
    H  added 3000, deleted 3500
"""

from __future__ import annotations

from pathlib import Path

from tuque.core.model import stats
from tuque.core.model.job import Job
from tuque.core.records import events as ev
from tuque.core.records.events import Events
from written import Written

START_MS = 1_767_225_600_000  # 2026-01-01 00:00:00 UTC
NODE = "n1"


def job_id(name: str) -> str:
    return f"D-{name:>038}"


def make_job(name: str, queue: bytes, added_ms: int, delay_s: int = 0) -> Job:
    at_ms = START_MS + added_ms
    body = b"x" * 10
    return Job(job_id(name).encode(), queue, body, at_ms * 1_000_000, at_ms + 60_000, 3, delay_s, 1)


def deliver(events: Events, job: Job, at_ms: int) -> None:
    job.delivered_count += 1
    job.first_ms = job.first_ms or START_MS + at_ms
    job.last_ms = START_MS + at_ms
    events.delivered(START_MS + at_ms, job, 7)


def nack(events: Events, job: Job, at_ms: int) -> None:
    job.nacks += 1
    events.nacked(START_MS + at_ms, job)


def requeue(events: Events, job: Job, at_ms: int) -> None:
    job.deliveries += 1
    events.requeued(START_MS + at_ms, job, ev.REQUEUE_TIMEOUT)


def tell(e: Events) -> None:
    """The history above, in the order of time."""
    a, b = make_job("A", b"q", 0), make_job("B", b"q", 0)
    c = make_job("C", b"q", 200, delay_s=2)
    d, g = make_job("D", b"r", 1000), make_job("G", b"q", 1000)
    f, h = make_job("F", b"r", 1100), make_job("H", b"r", 3000)
    in_work = make_job("E", b"r", 1000)
    e.added(START_MS, a)
    e.added(START_MS, b)
    deliver(e, a, 100)
    e.added(START_MS + 200, c)
    e.acked(START_MS + 300, a)
    deliver(e, b, 400)
    nack(e, b, 500)
    e.added(START_MS + 1000, d)
    e.added(START_MS + 1000, in_work)
    e.added(START_MS + 1000, g)
    deliver(e, g, 1020)
    e.acked(START_MS + 1080, g)
    e.added(START_MS + 1100, f)
    deliver(e, in_work, 1200)
    deliver(e, b, 1500)
    e.acked(START_MS + 1700, b)
    deliver(e, c, 2250)
    e.added(START_MS + 3000, h)
    e.deleted(START_MS + 3500, h, stats.ADMIN_DELETED)
    e.expired(START_MS + 5100, f)
    requeue(e, c, 5250)
    deliver(e, c, 5300)
    e.dead(START_MS + 5400, c, b"ValueError: <b>no</b>")


def write_history(directory: Path) -> None:
    """The history as sealed segments under that directory."""
    log = Written(directory, NODE)
    events = log.start(START_MS)
    tell(events)
    log.close(events, START_MS + 5500)
