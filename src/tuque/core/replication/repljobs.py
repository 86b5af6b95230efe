"""Stores copies of several new jobs that came in one message (SPEC R1.12, R2)."""

from mypy_extensions import i32, i64

from tuque.core.jobs.endings import has_ended
from tuque.core.jobs.transitions import is_short
from tuque.core.model.job import Job
from tuque.core.msgs.bus import ReplFields, ReplJob, ReplJobs
from tuque.core.node.node import Node
from tuque.core.node.queue import PAUSE_IN
from tuque.core.node.slots import translate
from tuque.core.replication.holders import hear_holders
from tuque.core.replication.replicate import FIELDS, await_due, confirm, keep_copy, on_repljob


def on_repljobs(n: Node, slot: i64, m: ReplJobs) -> None:
    """[R2] ON RECV REPLJOBS: each job as by REPLJOB."""
    on_repljob(n, slot, m.first)
    f = FIELDS(m.first)  # as in on_repljob
    queue, named, mode = f[1], f[11], f[12]
    expire_ms: i64 = n.now_ms + f[4]
    due_ms: i64 = f[5]
    retry_s = i32(f[6])
    delay_s = i32(f[7])
    repl = i32(f[8])
    holders = translate(n, slot, named) | (1 << slot) | 1
    q = n.queues.get(queue)
    name = queue if q is None else q.name
    is_paused = q is not None and q.pause & PAUSE_IN != 0
    is_shut = n.is_leaving or n.is_loading or is_paused
    for id, body, ctime_ns in m.others:
        if is_shut or id in n.jobs or has_ended(n, id) or is_short(n):
            on_repljob(n, slot, alone(f, id, body, ctime_ns))
            continue
        job = Job(id, name, body, ctime_ns, expire_ms, retry_s, delay_s, repl)
        await_due(n, job, due_ms)
        job.holders = holders
        keep_copy(n, slot, job, b"")
        hear_holders(n, slot, job, holders, named)  # K5.7
        confirm(n, slot, job, mode)


def alone(f: ReplFields, id: bytes, body: bytes, ctime_ns: i64) -> ReplJob:
    """The message that one of the others would have had; `f`: the fields of the first."""
    return ReplJob(id, f[1], body, ctime_ns, f[4], f[5], f[6], f[7], f[8], 0, 0, f[11], f[12])
