"""GETJOB WITHMETA: what a worker wants to know of each job (SPEC W11)."""

from mypy_extensions import i64

from tuque.core.jobs.endings import life_of
from tuque.core.model.job import Job
from tuque.server.sockets.connection import LARGE_BYTES
from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.wire.args import header_pairs
from tuque.wire.resp import bulk_head, put_bulk


def put_meta(s: Server, c: Client, jobs: list[Job], with_counters: bool) -> None:
    """[W11] Each job as queue, id, body, and names and values (W11.1)."""
    out = c.out
    for job in jobs:
        out.append(b"*%d\r\n" % (19 if with_counters else 15))
        put_bulk(out, job.queue)
        put_bulk(out, job.id)
        out.append(bulk_head(len(job.body)))
        out.append(job.body)
        out.append(b"\r\n")
        if len(job.body) > LARGE_BYTES:
            c.has_large = True
        attempt: i64 = 1
        of: i64 = 0
        limit_ms: i64 = 0
        headers = b""
        life = life_of(s.n, job.id)
        if life is not None:
            attempt = life.failed if life.is_dead else life.failed + 1
            of = life.terms.attempts
            limit_ms = life.terms.limit_ms
            headers = life.headers
        retry_ms = int(job.retry_s) * 1000
        added_ms = int(job.ctime_ns // 1_000_000)
        pairs: list[tuple[bytes, int]] = [
            (b"attempt", int(attempt)),
            (b"of", int(of)),
            (b"retry-ms", retry_ms),
            (b"time-limit-ms", int(limit_ms)),
            (b"added-ms", added_ms),
        ]
        if with_counters:
            pairs.append((b"nacks", int(job.nacks)))
            pairs.append((b"additional-deliveries", int(job.deliveries)))
        for name, value in pairs:
            put_bulk(out, name)
            out.append(b":%d\r\n" % value)
        put_bulk(out, b"headers")
        words = header_pairs(headers)
        out.append(b"*%d\r\n" % len(words))
        for word in words:
            put_bulk(out, word)
