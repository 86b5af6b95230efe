"""PUBLISH: all that was staged becomes jobs at once, and a batch is acked with it (SPEC Z2, Z3).

What is done is one record of the journal. Copies on other nodes are made after it, metered by
the room that the links have; until then their jobs are in state wait-repl.
"""

from typing import Final, final

from mypy_extensions import i32, i64

from tuque.core import ledger
from tuque.core.copies import STEP_MS, begin, choose, on_enough, send_copies
from tuque.core.dedupe import full_key
from tuque.core.job import WAIT_REPL, Job
from tuque.core.lease import check, commit
from tuque.core.node import Adding, Node
from tuque.core.once import keys_refusal, must_wait
from tuque.core.peers import slots_of
from tuque.core.procedures import FAR, register
from tuque.core.queue import PAUSE_IN, Queue
from tuque.core.replicate import MAXLEN, NOREPL, PAUSED, PLAIN, settle
from tuque.core.stage_records import NO_ID, tell_app, tell_published
from tuque.core.staged import APP_BYTES, APPS_MAX, PUBLISH_MAX, App, Attempt, Publishing, Staged
from tuque.core.staging import drop_attempt, drop_txn, forget_apps

NOSTAGE: Final = (
    b"NOSTAGE nothing is staged in attempt '%s' of transaction '%s': it was never staged, "
    b"dropped after its time, or published; stage it again"
)
KEY_WAITS: Final = (
    b"NOREPL the job with DEDUPE key '%s' still waits for its copies: nothing was done, publish "
    b"again soon"
)
TOO_MANY: Final = b"ERR PUBLISH takes at most %d jobs at once: publish them as several versions"
APPS_FULL: Final = (
    b"ERR this node keeps the versions of %d apps, each for 30 days after its last use: "
    b"use fewer names"
)

DONE_BEFORE: Final = -1
WAITS: Final = -2  # the answer comes with n.added

COPIES_MS: Final = 30_000  # without news of copies the jobs are queued with those they have (Z3.3)
SEND_MS: Final = 2  # between two lots of copies: what was sent is on its way then
NO_ROOM_MS: Final = 20
SEND_JOBS: Final = 2_000
SEND_BYTES: Final = 2 << 20
USED_MS: Final = 3_600_000  # the journal need not know the last use of an app more exactly


@final
class PublishSpec:
    """What a PUBLISH asks for; `group` empty: no batch is acked."""

    def __init__(self, app: bytes, version: i64, txn: bytes, attempts: list[bytes]) -> None:
        self.app = app
        self.version = version
        self.txn = txn
        self.attempts = attempts
        self.group = b""
        self.epoch: i64 = 0
        self.seq: i64 = 0


def on_publish(n: Node, spec: PublishSpec, client: i64, serial: i64) -> tuple[i64, bytes]:
    """[Z2] ON COMMAND PUBLISH: jobs added, DONE_BEFORE, WAITS, or why nothing was done."""
    app = n.staging.apps.get(spec.app)
    if app is not None and spec.version <= app.version:
        return on_repeat(n, app, spec, client, serial), b""
    found: list[Attempt] = []
    for name in spec.attempts:
        a = n.staging.attempt(spec.txn, name)
        if a is None:
            return 0, NOSTAGE % (name, spec.txn)  # Z2.3
        found.append(a)
    if len(spec.group) > 0:
        error = check(n, spec.group, spec.epoch, spec.seq)
        if len(error) > 0:
            return 0, error  # Z2.4
    default_repl = settle(n, PLAIN).replicate
    chosen: list[Staged | None] = []
    error = choose_jobs(n, found, default_repl, chosen)
    if len(error) == 0 and app is None:
        error = apps_refusal(n)
    if len(error) > 0:
        return 0, error
    if len(spec.group) > 0:
        commit(n, spec.group, spec.epoch, spec.seq)
    count, p = add_jobs(n, spec, chosen, default_repl)
    finish(n, spec, app, count, len(chosen))
    if p is None:
        return count, b""
    p.count = count
    p.client = client
    p.serial = serial
    p.until_ms = n.now_ms + COPIES_MS
    send_some(n, p)
    return WAITS, b""


def on_repeat(n: Node, app: App, spec: PublishSpec, client: i64, serial: i64) -> i64:
    """[Z2] The version was published before (Z2.2); if its copies are still made, wait for them."""
    drop_txn(n, spec.txn)
    n.staging.repeated += 1
    if app.used_ms + USED_MS <= n.now_ms and n.records is not None:
        tell_app(n.records, spec.app, app.version, n.now_ms)
    app.used_ms = n.now_ms
    for p in n.staging.publishing:
        if p.app == spec.app and p.version == spec.version:
            p.repeats.append((client, serial))
            return WAITS
    return DONE_BEFORE


def apps_refusal(n: Node) -> bytes:
    """Why one more app cannot be kept, empty when it can (Z2.9)."""
    if len(n.staging.apps) >= APPS_MAX:
        forget_apps(n)
        if len(n.staging.apps) >= APPS_MAX:
            return APPS_FULL % len(n.staging.apps)
    return b""


def choose_jobs(
    n: Node, attempts: list[Attempt], default_repl: i64, chosen: list[Staged | None]
) -> bytes:
    """[Z2] All staged jobs in order, None for one whose key is known; or why not (Z2.5, Z2.6)."""
    total: i64 = 0
    for a in attempts:
        total += len(a.jobs)
    if total > PUBLISH_MAX:
        return TOO_MANY % PUBLISH_MAX  # Z2.8
    fresh: dict[bytes, None] = {}
    longer: dict[bytes, int] = {}
    last: bytes = b""
    is_looked = False
    for a in attempts:
        for job in a.jobs:
            if len(job.key) > 0:
                full = full_key(job.queue, job.key)
                kept = n.keys.find(full, n.now_ms)
                if kept is not None and must_wait(n, kept.id):
                    return KEY_WAITS % job.key
                if kept is not None or full in fresh:
                    chosen.append(None)
                    continue
                fresh[full] = None
            if not is_looked or job.queue is not last:
                last = job.queue
                is_looked = True
                q = n.queues.get(last)
                if q is not None and q.pause & PAUSE_IN:
                    return PAUSED
            if job.maxlen > 0:
                added = longer.get(job.queue, 0)
                if queue_length(n, job.queue) + added >= i64(job.maxlen):
                    return MAXLEN
                longer[job.queue] = added + 1
            if repl_of(job, default_repl) - 1 > n.reachable_count:
                return NOREPL
            chosen.append(job)
    return keys_refusal(n, len(fresh)) if len(fresh) > 0 else b""


def queue_length(n: Node, name: bytes) -> i64:
    """How many jobs are queued there."""
    q = n.queues.get(name)
    return 0 if q is None else q.length


def repl_of(job: Staged, default_repl: i64) -> i64:
    """How many copies the job is to have, this node's among them."""
    if job.repl > 0:
        return i64(job.repl)
    return 1 if job.retry_s == 0 else default_repl


def add_jobs(
    n: Node, spec: PublishSpec, chosen: list[Staged | None], default_repl: i64
) -> tuple[i64, Publishing | None]:
    """Make the jobs, and the one record that stands for them (Z6.2)."""
    p: Publishing | None = None
    ids: list[bytes] = []
    first_ns: i64 = 0
    count: i64 = 0
    q: Queue | None = None
    is_alone = len(n.peers) <= 1
    for staged in chosen:
        if staged is None:
            ids.append(NO_ID)
            continue
        if q is None or staged.queue is not q.name:
            q = n.queues.get(staged.queue)
        job = made(n, staged, staged.queue if q is None else q.name, default_repl)
        if count == 0:
            first_ns = job.ctime_ns
        count += 1
        ids.append(job.id)
        if job.repl > 1 and not is_alone:
            if p is None:
                p = Publishing(spec.app, spec.version)
                n.staging.publishing.append(p)
            await_copies(n, p, job)
        else:
            begin(n, job)
    r = n.records
    if r is not None:
        now_ms = n.now_ms
        tell_published(
            r, spec.app, spec.version, now_ms, first_ns, default_repl, spec.txn, spec.attempts, ids
        )
    return count, p


def made(n: Node, staged: Staged, queue: bytes, default_repl: i64) -> Job:
    """The job of what was staged, registered, its key kept."""
    job = Job(
        n.ids.make(i64(staged.ttl_s), i64(staged.retry_s)),
        queue,
        staged.body,
        n.next_ctime_ns(),
        n.now_ms + i64(staged.ttl_s) * 1000,
        staged.retry_s,
        staged.delay_s,
        i32(repl_of(staged, default_repl)),
    )
    register(n, job, ledger.CREATED)
    if n.events is not None:
        n.events.added(n.now_ms, job)
    if len(staged.key) > 0:
        full = full_key(staged.queue, staged.key)
        n.keys.put(full, job.id, n.now_ms + staged.key_ttl_ms)
    return job


def finish(n: Node, spec: PublishSpec, app: App | None, count: i64, named: i64) -> None:
    """The version is published: what was staged goes, with the attempts not named (Z2.1)."""
    staging = n.staging
    if app is None:
        staging.bytes += APP_BYTES + len(spec.app)
        staging.apps[spec.app] = App(spec.version, n.now_ms)
    else:
        app.version = spec.version
        app.used_ms = n.now_ms
    attempts = staging.txns.get(spec.txn)
    if attempts is not None:
        for a in list(attempts.values()):
            staging.jobs_dropped += len(a.jobs)
            drop_attempt(n, a)
        staging.jobs_dropped -= named
    staging.published += 1
    staging.jobs_published += count


# ---- copies


def await_copies(n: Node, p: Publishing, job: Job) -> None:
    """[Z3] The job is published, and queued when it has its copies (Z3.1)."""
    job.state = WAIT_REPL
    job.qtime_ms = job.ctime_ns // 1_000_000 + i64(job.delay_s) * 1000  # after a restart
    adding = Adding(job, -1, 0, 0)
    adding.needed = i64(job.repl)
    adding.publishing = p
    n.adding[job.id] = adding
    n.wheel.arm(job, n.now_ms)
    p.ids.append(job.id)
    p.left += 1


def send_some(n: Node, p: Publishing) -> None:
    """[Z3] Send the next lot of copies, when the links have room (Z3.2)."""
    rooms: i64 = 0
    for slot in slots_of(n.reachable & ~1):
        if n.peers[slot].has_room:
            rooms += 1
    jobs: i64 = 0
    size: i64 = 0
    while p.sent < len(p.ids) and jobs < SEND_JOBS and size < SEND_BYTES:
        adding = n.adding.get(p.ids[p.sent])
        if adding is not None:
            job = adding.job
            if rooms < adding.needed - 1:
                p.look_ms = n.now_ms + NO_ROOM_MS
                return
            send_copies(n, job, choose(n, job.holders, adding.needed - 1), 0)
            adding.sent_ms = n.now_ms
            n.add_steps.append((n.now_ms + STEP_MS, job.id))
            jobs += 1
            size += len(job.body)
        p.sent += 1
    p.until_ms = n.now_ms + COPIES_MS
    p.look_ms = n.now_ms + SEND_MS


def publishing_tick(n: Node) -> None:
    """[Z3] TIMER of publications whose jobs wait for copies (Z3.2, Z3.3)."""
    for p in list(n.staging.publishing):
        if p.sent < len(p.ids) and p.look_ms <= n.now_ms:
            send_some(n, p)
        if p.until_ms <= n.now_ms:
            give_up(n, p)


def give_up(n: Node, p: Publishing) -> None:
    """[Z3] No more copies can be had: the jobs are queued with those they have (Z3.3)."""
    for id in p.ids:
        adding = n.adding.get(id)
        if adding is not None and adding.publishing is p:
            p.short += 1
            on_enough(n, adding)


def publishing_next_ms(n: Node) -> i64:
    """When `publishing_tick` has something to do; FAR when never."""
    at_ms: i64 = FAR
    for p in n.staging.publishing:
        if p.until_ms < at_ms:
            at_ms = p.until_ms
        if p.sent < len(p.ids) and p.look_ms < at_ms:
            at_ms = p.look_ms
    return at_ms
