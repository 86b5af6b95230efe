"""Read-only replies: SHOW, QSTAT, QPEEK, QSCAN and JSCAN (SPEC S).

A cursor is a position in a table (core/node/tables.py): an element that stays throughout the
scan is met at least once.
"""

from mypy_extensions import i64

from tuque.core.model.job import ACKED, BODYLESS, LEVEL, QUEUED, STATE_NAMES, WAIT_REPL, Job
from tuque.core.model.task import STATUS_NAMES, Task
from tuque.core.model.timers import REPLY_BYTES
from tuque.core.node.node import Node
from tuque.core.node.peers import slots_of
from tuque.core.node.queue import PAUSE_NAMES, Queue


def show(n: Node, job: Job) -> dict[str, object]:
    """[S1] The fields of a job in Disque's order and units, s or ms (S1.1, S1.2)."""
    now_ms = n.now_ms
    is_bodyless = job.flags & BODYLESS != 0
    is_acked = job.state == ACKED
    is_waiting = job.state == WAIT_REPL
    is_timed = job.qtime_ms != 0 and not is_acked
    left_ms: i64 = job.expire_ms - now_ms
    fields: dict[str, object] = {
        "id": job.id,
        "queue": None if is_bodyless else job.queue,
        "state": STATE_NAMES[job.state],
        "repl": int(job.repl),
        "ttl": max(0, int((left_ms + 999) // 1000)),
        "ctime": int(job.ctime_ns),
        "delay": int(job.delay_s),
        "retry": 0 if is_bodyless else int(job.retry_s),
        "nacks": int(job.nacks),
        "additional-deliveries": int(job.deliveries),
        "nodes-delivered": node_ids(n, job.holders),
        "nodes-confirmed": node_ids(n, job.confirmed) if is_acked or is_waiting else [],
        "next-requeue-within": max(0, int(job.qtime_ms - now_ms)) if is_timed else None,
        "next-awake-within": max(0, int(next_awake_ms(job) - now_ms)),
        "body": None if is_acked else job.body,
    }
    if job.level != LEVEL:
        fields["pri"] = int(job.level)  # S1.5
    if isinstance(job, Task):
        fields["task"] = int(job.number)  # T1.7
        fields["status"] = STATUS_NAMES[job.status]
        fields["pri"] = int(job.pri)
        policy = n.policy
        keys = None if policy is None else policy.keys_of(job)
        if keys is None:
            fields["utube"] = job.subqueue
        else:
            fields.update(keys)  # T40.7
    return fields


def node_ids(n: Node, mask: i64) -> list[bytes]:
    """The ids of a set of nodes, this node first."""
    ids: list[bytes] = [n.node_id] if mask & 1 else []
    for slot in slots_of(mask):
        ids.append(n.peers[slot].node_id)
    return ids


def next_awake_ms(job: Job) -> i64:
    """When the job's timer next acts, in ms."""
    if job.state != QUEUED and 0 < job.qtime_ms < job.expire_ms:
        return job.qtime_ms
    return job.expire_ms


def qstat(n: Node, q: Queue) -> dict[str, object]:
    """[S2] The fields of a queue in Disque's order."""
    return {
        "name": q.name,
        "len": int(q.length),
        "age": int((n.now_ms - q.ctime_ms) // 1000),
        "idle": int((n.now_ms - q.atime_ms) // 1000),
        "blocked": len(q.waiters),
        "import-from": sources(n, q),
        "import-rate": int(q.demand.rate(n.now_ms)) if q.demand is not None else 0,
        "jobs-in": int(q.jobs_in),
        "jobs-out": int(q.jobs_out),
        "pause": PAUSE_NAMES[q.pause],
        "oldest": int(oldest_s(n, q)),
    }


def oldest_s(n: Node, q: Queue) -> i64:
    """[S2] Age of the next job in s; 0 if there is none (S2.4)."""
    age_ms: i64 = 0
    for job in q.next_ones():
        age_ms = max(age_ms, n.now_ms - job.ctime_ns // 1_000_000)
    return age_ms // 1000


def sources(n: Node, q: Queue) -> list[bytes]:
    """The nodes that sent jobs of the queue in the last 5 s (S2.2)."""
    d = q.demand
    if d is None:
        return []
    d.drop_sources(n.now_ms)
    return [n.peers[slot].node_id for slot in d.sources]


def peeked(jobs: list[Job]) -> list[object]:
    """[S3] `[queue, id, body]` of jobs, up to the size of one reply (L2.5)."""
    rows: list[object] = []
    size: i64 = 0
    for job in jobs:
        if size > REPLY_BYTES:
            break
        rows.append([job.queue, job.id, job.body])
        size += len(job.body)
    return rows


def queue_matches(n: Node, q: Queue, min_len: i64, max_len: i64, import_rate: i64) -> bool:
    """[S4] Whether QSCAN's filters match; -1: no filter."""
    if q.length < min_len:
        return False
    if 0 <= max_len < q.length:
        return False
    return import_rate <= 0 or (q.demand is not None and q.demand.rate(n.now_ms) >= import_rate)


def job_matches(job: Job, queue: bytes | None, states: list[bytes]) -> bool:
    """[S5] Whether JSCAN's filters match; acks without a job are hidden (S5.1)."""
    if job.flags & BODYLESS:
        return False
    if queue is not None and job.queue != queue:
        return False
    return len(states) == 0 or STATE_NAMES[job.state] in states
