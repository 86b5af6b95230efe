"""TOPIC ADD: a job for each queue that is subscribed, all of them or none (SPEC T62).

The caller has checked each of them. All are added in one turn: their records are one frame.
"""

from typing import final

from mypy_extensions import i64

from tuque.core.jobs.endings import record_job
from tuque.core.jobs.idempotent_add import keep_key, keys_refusal, must_wait, on_copies
from tuque.core.model.add_spec import AddSpec
from tuque.core.model.job import Job
from tuque.core.model.refusal import KEY_WAITS, NOREPL_LEAVING, TOPICS_UNHEARD, Refusal
from tuque.core.model.tally import tenant_of
from tuque.core.node.node import Node
from tuque.core.replication.add import make_job, memory_refusal, must_be_external, on_addjob
from tuque.core.state.dedupe_keys import full_key
from tuque.core.state.staged import Publishing
from tuque.core.state.topics import Subscription
from tuque.core.transactions.publish import COPIES_MS, await_copies, send_some


@final
class Share:
    """What one queue gets of an ADD."""

    def __init__(self, one: Subscription, spec: AddSpec) -> None:
        self.one = one
        self.spec = spec
        self.known = b""  # the id of the job that has the DEDUPE key already


def unheard_refusal(n: Node) -> Refusal | None:
    """[T60] Why a node that has just started adds to no topic yet (T60.8)."""
    if len(n.peers) <= 1 or n.now_ms >= n.topics.begun_ms + n.limits.node_timeout_ms:
        return None
    is_informed = n.topics.heard != 0 and (n.linked & ~n.topics.heard & ~1) == 0
    return None if is_informed else Refusal(TOPICS_UNHEARD)


def node_refusal(n: Node) -> Refusal | None:
    """[T62] Why this node takes no jobs at all now (T62.2)."""
    if not must_be_external(n):
        return None
    return Refusal(NOREPL_LEAVING) if n.is_leaving else memory_refusal(n)


def find_known(n: Node, shares: list[Share], key: bytes) -> Refusal | None:
    """[T62] Find the jobs that have the key; or why the ADD is refused (T62.6)."""
    if len(key) == 0:
        return None
    fresh: i64 = 0
    for x in shares:
        full = full_key(x.one.queue, key)
        kept = n.keys.find(full, n.now_ms)
        if kept is None:
            running = n.staging.running
            if running is not None and running.is_decided and full in running.fresh:
                return Refusal(KEY_WAITS, (key,))
            fresh += 1
        elif must_wait(n, kept.id):
            return Refusal(KEY_WAITS, (key,))
        else:
            x.known = kept.id
    return keys_refusal(n, fresh, tenant_of(shares[0].one.topic)) if fresh > 0 else None


def add_all(
    n: Node, shares: list[Share], body: bytes, client: i64, serial: i64, timeout_ms: i64
) -> tuple[list[bytes], Publishing | None]:
    """[T62] Add the jobs (T62.3): their ids, and what waits for copies; the reply then comes
    through n.added.
    """
    ids: list[bytes] = []
    waiting: list[Job] = []
    added: i64 = 0
    p = Publishing(b"", 0)
    for x in shares:
        if len(x.known) > 0:
            n.keys.hits += 1
            ids.append(x.known)
            continue
        job = begin_one(n, p, x, body, waiting)
        ids.append(job.id)
        added += 1
        x.one.jobs += 1
        if len(x.spec.key) > 0:
            keep_key(n, x.one.queue, x.spec.key, x.spec.key_ttl_ms, job, False)
    n.topics.adds += 1
    n.topics.jobs += added
    if len(waiting) == 0:
        return ids, None
    p.client = client
    p.serial = serial
    p.count = added
    p.told = ids
    p.until_ms = n.now_ms + COPIES_MS
    p.end_ms = n.now_ms + timeout_ms if timeout_ms > 0 else 0
    p.left += 1
    n.staging.publishing.append(p)
    send_some(n, p)
    on_copies(n, p)
    return ids, p


def begin_one(n: Node, p: Publishing, x: Share, body: bytes, waiting: list[Job]) -> Job:
    """Add one of them; it may wait for copies (T62.5)."""
    spec = x.spec
    q = n.queues.get(x.one.queue)
    is_tube = q is not None and q.policy is not None
    if is_tube or spec.replicate <= 1 or spec.is_async or len(n.peers) <= 1:
        return on_addjob(n, x.one.queue, body, spec)
    job = make_job(n, x.one.queue, body, spec)
    await_copies(n, p, job)
    n.adding[job.id].delay_ms = spec.delay_ms
    record_job(n, job)
    waiting.append(job)
    return job
