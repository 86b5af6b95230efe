"""A history of three nodes, in which a job's events are on several of them.

Instants are ms after START_MS, on day 1 but for job I. Queue q:

    A  added n1 0, delivered n2 100, acked n2 300                       one end, elsewhere
    B  added n1 0, delivered n1 100, acked n2 400, acked n1 500         two ends, the earlier counts
    C  added n1 0, delivered n2 50, dead n2 900, acked n3 800           dead goes before acked
    D  added n1 0, expired n1 5000, expired n3 5000                     the same instant: n1 counts
    E  added n2 0, deleted n3 700 (evicted), acked n2 900               a lost copy is no end
    F  added n2 0, expired n1 600, deleted n3 650 (admin_deleted)       who deletes means it
    G  added n3 1000 with a delay of 3 s, delivered n3 4100, acked 4200
    H  added n1 0, delivered n2 100, and n2 was killed                  open
    I  added n1 60 s before midnight, acked n1 30 s after               two days
    J  added n1 0, delivered n1 150, delivered n2 1200, acked n2 1300   n2 knows of one delivery
"""

from __future__ import annotations

from pathlib import Path

from spark_history import START_MS, deliver, make_job, nack

from tuque.core.model import stats
from tuque.core.model.job import Job
from tuque.core.records.events import Events
from written import Written

MIDNIGHT_MS = 86_400_000  # after START_MS


def copy(job: Job) -> Job:
    """The job on another node, which knows what happened so far."""
    other = Job(
        job.id, job.queue, job.body, job.ctime_ns, job.expire_ms, job.repl, job.delay_s, job.retry_s
    )
    other.delivered_count, other.first_ms, other.last_ms = (
        job.delivered_count,
        job.first_ms,
        job.last_ms,
    )
    return other


def tell(one: Events, two: Events, three: Events) -> None:
    """The history above; the instants of a node never go back."""
    a, b, c, d, h = (make_job(name, b"q", 0) for name in "ABCDH")
    e, f = make_job("E", b"q", 0), make_job("F", b"q", 0)
    g = make_job("G", b"q", 1000, delay_s=3)
    i = make_job("I", b"q", MIDNIGHT_MS - 60_000)
    j = make_job("J", b"q", 0)
    late_j = copy(j)
    at = START_MS
    for job in (a, b, c, d, h, j):
        one.added(at, job)
    for job in (e, f):
        two.added(at, job)
    deliver(two, c, 50)
    deliver(two, h, 100)
    deliver(two, a, 100)
    two.acked(at + 300, a)
    late_b = copy(b)
    deliver(one, b, 100)
    deliver(one, j, 150)
    two.acked(at + 400, late_b)
    one.acked(at + 500, b)
    one.expired(at + 600, f)
    three.deleted(at + 650, copy(f), stats.ADMIN_DELETED)
    three.deleted(at + 700, copy(e), stats.EVICTED)
    three.acked(at + 800, copy(c))
    nack(two, c, 850)
    two.dead(at + 900, c, b"too old")
    two.acked(at + 900, e)
    deliver(two, late_j, 1200)
    two.acked(at + 1300, late_j)
    three.added(at + 1000, g)
    deliver(three, g, 4100)
    three.acked(at + 4200, g)
    one.expired(at + 5000, d)
    three.expired(at + 5000, copy(d))
    one.added(at + MIDNIGHT_MS - 60_000, i)
    deliver(one, i, MIDNIGHT_MS - 30_000)
    one.acked(at + MIDNIGHT_MS + 30_000, i)


def write_cluster_history(directory: Path) -> None:
    """The history as sealed segments of three nodes under that directory."""
    logs = [Written(directory, name) for name in ("n1", "n2", "n3")]
    events = [log.start(START_MS) for log in logs]
    tell(*events)
    for log, said in zip(logs, events, strict=True):
        log.close(said, START_MS + MIDNIGHT_MS + 40_000)
