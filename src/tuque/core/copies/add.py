"""ADDJOB: accepts or refuses a new job (SPEC R1); replicate.py makes its copies."""

from mypy_extensions import i32, i64, u8

from tuque.core.copies.replicate import begin, send_async, start_copies
from tuque.core.copies.rereplicate import examine
from tuque.core.model import stats
from tuque.core.model.errors import (
    AMO_ONE_COPY,
    ATTEMPTS_OF_ONCE,
    DELAY_BEYOND_TTL,
    DELAY_FOR_EVER,
    FULL,
    MAXLEN,
    NO_KEYS,
    NOREPL,
    NOREPL_LEAVING,
    NOREPL_MEMORY,
    NOTHING_IN_WAY,
    PAUSED,
    PRI_OF_QUEUE,
    QUEUE_FULL,
    TUBE_LETTERS,
    TUBE_LIFE,
    Refusal,
)
from tuque.core.model.job import LEVEL_MAX, AddSpec, Job
from tuque.core.model.stats import tenant_of
from tuque.core.model.work import NEVER_S, NO_TERMS, Life
from tuque.core.node.node import Node
from tuque.core.node.peers import are_expected, count_of, may_reach
from tuque.core.node.queue import PAUSE_IN
from tuque.core.node.tables import record_job
from tuque.core.queues.procedures import (
    in_way_text,
    is_room_without,
    is_short,
    memory_level,
    register,
)


def settle(n: Node, spec: AddSpec) -> AddSpec:
    """A copy of the spec, with the defaults (R1.1)."""
    return fill_in(n, copy_of(spec))


def copy_of(spec: AddSpec) -> AddSpec:
    """Another one with the same options."""
    full = AddSpec()
    full.ttl_s = spec.ttl_s
    full.ttl_ms = spec.ttl_ms
    full.retry_s = spec.retry_s
    full.replicate = spec.replicate
    full.delay_s = spec.delay_s
    full.delay_ms = spec.delay_ms
    full.terms = spec.terms
    full.headers = spec.headers
    full.maxlen = spec.maxlen
    full.is_async = spec.is_async
    full.key = spec.key
    full.key_ttl_ms = spec.key_ttl_ms
    full.with_new = spec.with_new
    full.pri = spec.pri
    full.has_pri = spec.has_pri
    full.utube = spec.utube
    full.has_utube = spec.has_utube
    full.keys = spec.keys
    full.rejects_same = spec.rejects_same
    full.replaces_same = spec.replaces_same
    full.asked_replicate = spec.asked_replicate
    full.asked_retry_s = spec.asked_retry_s
    full.asked_ttl_s = spec.asked_ttl_s
    return full


def fill_in(n: Node, spec: AddSpec) -> AddSpec:
    """Fill in the defaults of the spec itself (R1.1)."""
    spec.asked_replicate = spec.replicate
    spec.asked_retry_s = spec.retry_s
    spec.asked_ttl_s = spec.ttl_s
    if spec.ttl_s == 0:
        spec.ttl_s = NEVER_S  # W1.5
    elif spec.ttl_s < 0:
        spec.ttl_s = n.limits.default_ttl_s
    if spec.ttl_ms <= 0:
        spec.ttl_ms = spec.ttl_s * 1000
    if spec.retry_s < 0:
        spec.retry_s = default_retry(n, spec.ttl_s)
    if spec.replicate < 0:
        spec.replicate = n.prompt_count + (0 if must_be_external(n) else 1)  # K4.3
        if spec.replicate < 1:
            spec.replicate = 1
        if spec.replicate > n.limits.default_replicate:
            spec.replicate = n.limits.default_replicate
    if spec.delay_ms <= 0:
        spec.delay_ms = spec.delay_s * 1000
    return spec


def default_retry(n: Node, ttl_s: i64) -> i64:
    """The retry time of a job with this TTL, in s (R1.1)."""
    return max(i64(1), min(ttl_s // 10, n.limits.default_retry_max_s))


def for_queue(n: Node, queue: bytes, spec: AddSpec) -> AddSpec:
    """[T74] The spec, or a copy that lives no longer than jobs of this queue may (T74.8)."""
    if len(n.settings.by_queue) == 0:
        return spec
    known = n.settings.known(queue)
    if known is None or known.ttl_ms == 0:
        return spec
    if spec.asked_ttl_s >= 0 and spec.ttl_ms <= known.ttl_ms:
        return spec
    full = copy_of(spec)
    full.ttl_ms = known.ttl_ms
    full.ttl_s = (known.ttl_ms + 999) // 1000
    if full.asked_retry_s < 0:
        full.retry_s = default_retry(n, full.ttl_s)
    return full


def must_be_external(n: Node) -> bool:
    """Whether this node takes no copies now (R1.5)."""
    return n.is_leaving or (n.limits.memory_bytes > 0 and is_short(n))


def is_full_alone(n: Node) -> bool:
    """[M2] Whether a job would be refused for want of memory and of other nodes; drops nothing."""
    if memory_level(n) == 0 or may_reach(n) != 0:
        return False
    return not n.limits.may_evict or not is_room_without(n, n.life.fat_bytes)


def memory_refusal(n: Node, is_of_tube: bool = False) -> Refusal:
    """[M2] Memory is above 75 %; names what alone is in the way (M2.6).

    What no other node can take, a task or any job of a node that knows no others, is refused with
    the level (R1.5).
    """
    way = in_way_text(n)
    if is_of_tube or n.others == 0:
        return Refusal(FULL, (way if len(way) > 0 else NOTHING_IN_WAY,))
    return Refusal(NOREPL_MEMORY, (way,))


def refusal(n: Node, queue: bytes, spec: AddSpec) -> Refusal | None:
    """Why the node refuses the job; None if it does not (R1.3-R1.7). `spec` is settled."""
    q = n.queues.get(queue)
    if q is not None and q.policy is not None:
        if (spec.terms is not None or len(spec.headers) > 0) and not q.policy.takes_work(q):
            return Refusal(TUBE_LIFE, (queue,))  # W1.4
        refused = letters_refusal(n, spec)
        if refused is not None:
            return refused
        refused = q.policy.refusal(n, q, spec)
        if refused is None and n.limits.memory_bytes > 0 and is_short(n):
            return memory_refusal(n, True)
        return refused
    terms = spec.terms
    if terms is not None:
        if terms.attempts > 0 and spec.retry_s == 0:
            return Refusal(ATTEMPTS_OF_ONCE)  # W1.4
        refused = letters_refusal(n, spec)
        if refused is not None:
            return refused
    if spec.has_utube or (spec.has_pri and spec.pri > LEVEL_MAX):
        return Refusal(PRI_OF_QUEUE, (queue,))  # T1.2, R1.13
    if len(spec.keys) > 0:
        unheard = None if n.policy is None else n.policy.unheard(n)  # T15.5
        return Refusal(NO_KEYS) if unheard is None else unheard  # T40.5
    if spec.replicate > 1 and spec.retry_s == 0:
        return Refusal(AMO_ONE_COPY)  # R1.3
    if spec.delay_ms >= spec.ttl_ms:
        is_longest = spec.ttl_s == NEVER_S
        return Refusal(DELAY_FOR_EVER if is_longest else DELAY_BEYOND_TTL)  # R1.4
    is_external = must_be_external(n)
    needed = spec.replicate if is_external else spec.replicate - 1
    if needed > n.reachable_count and not are_expected(n, needed):
        if not is_external or needed - 1 > count_of(may_reach(n)):
            return Refusal(NOREPL)  # R1.5
        return Refusal(NOREPL_LEAVING) if n.is_leaving else memory_refusal(n)
    if q is not None:
        if 0 < spec.maxlen <= q.length:
            return Refusal(MAXLEN)  # R1.6
        if len(n.settings.by_queue) > 0:
            known = n.settings.known(queue)
            if known is not None and 0 < known.maxlen <= q.length:
                return Refusal(QUEUE_FULL, (queue, int(known.maxlen)))  # T74.9
        if q.pause & PAUSE_IN:
            return Refusal(PAUSED)  # R1.7
    return None


def letters_refusal(n: Node, spec: AddSpec) -> Refusal | None:
    """[W1] DEAD names a tube (W1.4)."""
    terms = spec.terms
    if terms is None or len(terms.dead) == 0:
        return None
    dead = n.queues.get(terms.dead)
    is_tube = dead is not None and dead.policy is not None
    return Refusal(TUBE_LETTERS, (terms.dead,)) if is_tube else None


def make_job(n: Node, queue: bytes, body: bytes, spec: AddSpec) -> Job:
    """Make and register a new job; the caller begins it or copies it (R1.8)."""
    q = n.queues.get(queue)
    job = Job(
        n.ids.make(spec.ttl_s, spec.retry_s, tenant_of(queue) if q is None else q.tally.owner.name),
        queue if q is None else q.name,  # all jobs of a queue share one name object
        body,
        n.next_ctime_ns(),
        n.now_ms + spec.ttl_ms,
        i32(spec.retry_s),
        i32(spec.delay_s),
        i32(spec.replicate),
    )
    if spec.has_pri:
        job.level = u8(spec.pri)  # R1.13
    register(n, job, stats.CREATED)  # R1.8, G5.3
    if spec.terms is not None or len(spec.headers) > 0:
        terms = NO_TERMS if spec.terms is None else spec.terms
        work = Life(terms, spec.headers)
        work.ttl_ms = spec.ttl_ms
        add_work(n, job, work)
    if n.events is not None:
        n.events.added(n.now_ms, job)
    return job


def add_work(n: Node, job: Job, work: Life) -> None:
    """[W1] The new job comes with terms or headers (W1.1)."""
    if work.terms is not NO_TERMS:
        work.terms = n.life.share(work.terms)
    n.has_lives = True
    n.life.enter(job.id, work, job.queue)


def on_addjob(
    n: Node,
    queue: bytes,
    body: bytes,
    spec: AddSpec,
    client: i64 = -1,
    serial: i64 = 0,
    timeout_ms: i64 = 0,
) -> Job:
    """[R1] ON COMMAND ADDJOB, accepted. In state wait-repl the reply comes through n.added."""
    if n.policy is not None:
        q = n.queues.get(queue)
        if q is not None and q.policy is not None:
            return q.policy.add(n, q, body, spec)
    # as in `refusal`: the job itself may raise the memory level
    is_external = len(n.peers) > 1 and must_be_external(n)
    job = make_job(n, queue, body, spec)
    if len(n.peers) > 1:
        if is_external or (spec.replicate > 1 and not spec.is_async):
            start_copies(n, job, client, serial, timeout_ms, is_external, spec.is_async)
            adding = n.adding[job.id]
            adding.delay_ms = spec.delay_ms
            adding.may_lower = spec.asked_replicate < 0
            return job
    n.book.reply(spec.replicate, 0)
    begin(n, job, spec.delay_ms)  # R1.9, W1.6
    record_job(n, job)
    if spec.replicate > 1 and len(n.peers) > 1:
        send_async(n, job)
        examine(n, job)  # R1.10: copies are missing if nodes are away
    return job
