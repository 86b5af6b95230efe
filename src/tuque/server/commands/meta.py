"""GETJOB with options: what it adds to each job, and runs that begin (SPEC W11, W17)."""

from mypy_extensions import i64

from tuque.core.life.start import begin_delivered
from tuque.core.model.job import Job
from tuque.core.node.node import WITH_COUNTERS, WITH_META, WITH_RUN
from tuque.core.queues.ends import life_of
from tuque.server.sockets.connection import LARGE_BYTES
from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.wire.commands.arguments import header_pairs
from tuque.wire.proto.resp import array_head, bulk_head, put_bulk


def put_more(s: Server, c: Client, jobs: list[Job], extras: i64) -> None:
    """[V1, W11, W17] Each job as queue, id, body, and names and values (V1.3, W11.1, W17.2)."""
    out = c.out
    head = array_head(words_of(extras))
    is_tenant = c.is_tenant()
    for job in jobs:
        out.append(head)
        if is_tenant:
            name = c.named(job.queue)
            out.append(b"$%d\r\n%s\r\n$40\r\n" % (len(name), name))
        else:
            out.append(s.n.queues[job.queue].reply_name)
        out.append(job.id)
        out.append(b"\r\n")
        out.append(bulk_head(len(job.body)))
        out.append(job.body)
        if len(job.body) > LARGE_BYTES:
            c.has_large = True
        if extras & WITH_RUN:
            put_run(s, c, job)
        else:
            out.append(b"\r\n")
        if extras & WITH_META:
            put_meta(s, c, job, extras & WITH_COUNTERS != 0)
        elif extras & WITH_COUNTERS:
            out.append(
                b"$5\r\nnacks\r\n:%d\r\n$21\r\nadditional-deliveries\r\n:%d\r\n"
                % (job.nacks, job.deliveries)
            )


def words_of(extras: i64) -> i64:
    """The size of the array of each job."""
    words: i64 = 3
    if extras & WITH_RUN:
        words += 2
    if extras & WITH_META:
        words += 12
    return words + 4 if extras & WITH_COUNTERS else words


def put_run(s: Server, c: Client, job: Job) -> None:
    """[W17] Begin the run of a job that was just delivered; its token, or null (W17.2, W17.3)."""
    s.n.work += 2
    life = begin_delivered(s.n, job, c.begins_as, c.number)
    if life is None:
        c.out.append(b"\r\n$3\r\nrun\r\n_\r\n" if c.resp3 else b"\r\n$3\r\nrun\r\n$-1\r\n")
        return
    if c.begins_as != c.worker:  # it has a name of its own
        s.crew.note(s.n, c.begins_as, [job.id])
    c.out.append(s.tokens.token(life.run).field)


def put_meta(s: Server, c: Client, job: Job, with_counters: bool) -> None:
    """[W11] What a worker wants to know of the job (W11.1)."""
    out = c.out
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
