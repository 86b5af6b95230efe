"""ADDJOB with a key: the same job is not added twice (SPEC Z4).

Decides which id each producer gets, and when. core/tables/dedupe_keys.py has the keys.
"""

from heapq import heappop, heappush

from mypy_extensions import i64

from tuque.core.model import stats
from tuque.core.model.errors import (
    FEW_OF_TOPIC,
    FEW_PUBLISHED,
    KEYS_FULL,
    NOREPL_SAME_KEY,
    Refusal,
)
from tuque.core.model.job import ACKED, EXTERNAL, Job
from tuque.core.node.node import Added, Adding, Node
from tuque.core.node.peers import count_of
from tuque.core.node.tables import record_job
from tuque.core.records.staged import record_key
from tuque.core.tables.dedupe_keys import KEY_BYTES, Follower, Kept, full_key
from tuque.core.tables.staged import FAIR, Publishing, repl_of, share_of


def keys_refusal(n: Node, more: i64, tenant: bytes = b"") -> Refusal | None:
    """Why that many new keys are refused; None if they are not (Z4.6, N11.8)."""
    if len(tenant) > 0:
        its = n.keys.by_tenant.get(tenant, 0)
        most: i64 = share_of(n.limits.keys_max, len(n.keys.kept), its)
        if n.limits.memory_bytes > 0:
            used: i64 = its * KEY_BYTES + n.keys.text_of.get(tenant, 0)
            most = min(most, its + max(0, n.limits.memory_bytes // FAIR - used) // KEY_BYTES)
        if its + more > most:
            return Refusal(KEYS_FULL, (its, int(most), more))
    if len(n.keys.kept) + more <= n.limits.keys_max:
        return None
    return Refusal(KEYS_FULL, (len(n.keys.kept), n.limits.keys_max, more))


def same_job(n: Node, queue: bytes, key: bytes) -> bytes:
    """[Z4] The id of the job with this key; empty if there is none (Z4.2)."""
    full = full_key(queue, key)
    found = kept_key(n, queue, full)
    if found is None:
        return coming_job(n, full)
    return found.id


def kept_key(n: Node, queue: bytes, full: bytes) -> Kept | None:
    """[Z4] The key, if it is kept (Z4.2); of a tube also its leader must have told others (Z4.10).

    Raises what the policy raises if this node does not lead the tube.
    """
    found = n.keys.find(full, n.now_ms)
    if found is not None and n.policy is not None:
        q = n.queues.get(queue)
        if q is not None and q.policy is not None:
            q.policy.repeat(n, q)
    return found


def coming_job(n: Node, full: bytes) -> bytes:
    """The id of a published job with this key that is not made yet (Z2.11), else empty."""
    x = n.staging.running
    if x is None or not x.is_decided:
        return b""
    place: i64 = x.fresh.get(full, -1)
    if place < x.made:
        return b""
    id = x.ids[place]
    staged = x.chosen[place]
    if staged is not None and repl_of(staged, x.default_repl) > 1 and len(n.peers) > 1:
        x.awaited[id] = None
    return id


def must_wait(n: Node, id: bytes) -> bool:
    """Whether the job is not safe yet: a producer waits for its copies (Z4.4)."""
    adding = n.adding.get(id)
    if adding is None:
        return n.staging.running is not None and id in n.staging.running.awaited
    return adding.client >= 0 or adding.publishing is not None


def is_unsure(n: Node, id: bytes) -> bool:
    """Whether the job may lack copies since a start (Z4.9)."""
    if len(n.keys.unsure) == 0 or id not in n.keys.unsure:
        return False
    job = n.jobs.get(id)
    if job is not None and job.state != ACKED:
        return True
    make_sure(n, id)
    return False


def follow(n: Node, id: bytes, client: i64, serial: i64, timeout_ms: i64) -> None:
    """[Z4] This producer gets the same reply as the first one (Z4.4)."""
    until_ms: i64 = n.now_ms + timeout_ms if timeout_ms > 0 else 0
    followers = n.keys.followers.get(id)
    if followers is None:
        followers = []
        n.keys.followers[id] = followers
    followers.append(Follower(client, serial, until_ms))
    if until_ms > 0:
        heappush(n.keys.follower_ends, (until_ms, id))


def keep_key(n: Node, queue: bytes, key: bytes, ttl_ms: i64, job: Job, is_waiting: bool) -> None:
    """[Z4] Assign the key to the new job, and record it.

    Of a job that waits for copies both are recorded before the copies leave (Z4.8).
    """
    full = full_key(queue, key)
    if n.staging.running is not None and full in n.staging.running.fresh:
        n.staging.running.has_new_key = True  # Z2.11
    n.keys.put(full, job.id, n.now_ms + ttl_ms)
    if n.policy is not None:
        n.policy.keep_key(n, queue, full)
    if is_waiting:
        n.keys.pending[job.id] = full
        if job.flags & EXTERNAL:
            return  # nothing of it is here
        record_job(n, job)
    if n.records is not None:
        record_key(n.records, full, job.id, n.now_ms + ttl_ms)


def is_recorded(n: Node, job: Job) -> bool:
    """Whether the job waits for copies, and the journal has it because of its key (Z4.8)."""
    return job.flags & EXTERNAL == 0 and job.id in n.keys.pending


def record_added(n: Node, job: Job, was_recorded: bool) -> None:
    """The job has its copies: record all of it, or what has changed since `keep_key`."""
    if not was_recorded:
        record_job(n, job)
    elif n.records is not None:
        n.records.holders(job)
        n.records.state(job)


def on_add_over(n: Node, adding: Adding, error: Refusal | None) -> None:
    """[Z4] The job has its copies, or failed: keep its key, or free it (Z4.5)."""
    id = adding.job.id
    keys = n.keys
    if adding.publishing is not None:
        on_copies(n, adding.publishing)
        adding.publishing = None
    full = keys.pending.pop(id, b"")
    if len(full) > 0:
        kept = keys.kept.get(full)
        if kept is not None and kept.id == id:
            is_external = adding.job.flags & EXTERNAL != 0
            if error is not None:
                keys.drop(full)
                if not is_external and n.records is not None:
                    n.records.remove(id, stats.ADD_FAILED)
                    record_key(n.records, full, id, 0)
            elif is_external and n.records is not None:
                record_key(n.records, full, id, kept.until_ms)
    answer_followers(n, id, error)


def answer_followers(n: Node, id: bytes, error: Refusal | None) -> None:
    """[Z4] All that wait for this job get the same reply (Z4.4)."""
    followers = n.keys.followers.pop(id, None)
    if followers is not None:
        for f in followers:
            n.added.append(Added(f.client, f.serial, id, error))


def hear_copy(n: Node, slot: i64, job: Job) -> None:
    """[Z4] A node has a copy of a job whose copies are counted again (Z4.9)."""
    confirmed: i64 = n.keys.unsure[job.id] | (1 << slot)
    n.keys.unsure[job.id] = int(confirmed)
    if count_of(confirmed & ~n.forgotten) >= i64(job.repl):
        make_sure(n, job.id)


def make_sure(n: Node, id: bytes) -> None:
    """[Z4] The job has its copies, or has ended: its id is the reply again (Z4.9)."""
    n.keys.unsure.pop(id, None)
    answer_followers(n, id, None)


def on_copies(n: Node, p: Publishing) -> None:
    """[Z3] One more job of a publication is safe; reply after the last one (Z3.1)."""
    p.left -= 1
    if p.left > 0:
        return
    n.staging.publishing.remove(p)
    error: Refusal | None = None
    if p.short > 0 and len(p.told) > 0:
        error = Refusal(FEW_OF_TOPIC, (p.short, p.count))
    elif p.short > 0:
        error = Refusal(FEW_PUBLISHED, (p.count, p.short))
    told = Added(p.client, p.serial, b"", error)
    told.count = p.count
    told.ids = p.told
    n.added.append(told)
    for client, serial in p.repeats:
        told = Added(client, serial, b"", None)
        told.count = -1
        n.added.append(told)


def adopt(n: Node, adding: Adding) -> bool:
    """[Z4] The first producer disconnected: the next one takes its place (Z4.5)."""
    followers = n.keys.followers.get(adding.job.id)
    while followers is not None and len(followers) > 0:
        f = followers.pop(0)
        if f.client != adding.client:
            adding.client = f.client
            adding.serial = f.serial
            adding.until_ms = f.until_ms
            return True
    return False


def followers_tick(n: Node) -> None:
    """[Z4] Reply to producers whose own timeout has passed (Z4.4)."""
    keys = n.keys
    while len(keys.follower_ends) > 0 and keys.follower_ends[0][0] <= n.now_ms:
        _, id = heappop(keys.follower_ends)
        followers = keys.followers.get(id)
        if followers is None:
            continue
        left: list[Follower] = []
        for f in followers:
            if 0 < f.until_ms <= n.now_ms:
                n.added.append(Added(f.client, f.serial, id, Refusal(NOREPL_SAME_KEY)))
            else:
                left.append(f)
        if len(left) > 0:
            keys.followers[id] = left
        else:
            del keys.followers[id]
