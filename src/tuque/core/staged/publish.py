"""PUBLISH: turns all staged jobs into jobs at once, and acks a batch with it (SPEC Z2, Z3).

The decision is one journal record: with it, all is published. A long one is checked in the
turns before and made in the turns after it (Z2.11). Copies are then made too, as far as the
links have room; their jobs wait in state wait-repl.
"""

from typing import Final

from mypy_extensions import i32, i64

from tuque.core.copies.add import add_work, settle
from tuque.core.copies.replicate import (
    STEP_MS,
    begin,
    choose,
    on_enough,
    send_copies,
)
from tuque.core.leases.leases import ack_ending, check, commit_later
from tuque.core.model import stats
from tuque.core.model.errors import (
    APPS_FULL,
    KEY_WAITS,
    LONG_PUBLISH,
    MAXLEN,
    NOREPL,
    NOSTAGE,
    PAUSED,
    QUEUE_FULL,
    Refusal,
)
from tuque.core.model.job import PLAIN, WAIT_REPL, Job
from tuque.core.model.stats import tenant_of
from tuque.core.msgs.records import AppRow, Published
from tuque.core.node.node import Adding, Node
from tuque.core.node.peers import are_expected, slots_of
from tuque.core.node.queue import PAUSE_IN, Queue
from tuque.core.queues.dedupe import keys_refusal, must_wait, on_copies
from tuque.core.queues.procedures import FAR, register
from tuque.core.records.staged import NO_ID
from tuque.core.staged.stage import drop_attempt, drop_txn, forget_apps
from tuque.core.tables.dedupe_keys import full_key
from tuque.core.tables.staged import (
    APP_BYTES,
    APPS_MAX,
    PUBLISH_MAX,
    App,
    Publish,
    Publishing,
    PublishSpec,
    Staged,
    repl_of,
    share_of,
)

DONE_BEFORE: Final = -1
WAITS: Final = -2  # the reply comes through n.added
LOOKS: Final = 4  # staged jobs checked per unit of work

COPIES_MS: Final = 30_000  # without news of copies, the jobs are queued with those they have (Z3.3)
SEND_MS: Final = 2  # between two batches of copies, so that the first is in flight
NO_ROOM_MS: Final = 20
SEND_JOBS: Final = 2_000
SEND_BYTES: Final = 2 << 20
USED_MS: Final = 3_600_000  # precision of an app's last use in the journal


def publish_some(n: Node, x: Publish, room: i64) -> bool:
    """[Z2] Continue a PUBLISH for about `room` units, counted in n.work (Z2.11).

    True: finished, with x.value and x.error. PUBLISH calls run one after the other.
    """
    if n.staging.running is not x:
        if x.has_begun:  # flushed meanwhile
            if not x.is_decided:
                x.error = Refusal(NOSTAGE, (b" ".join(x.spec.attempts), x.spec.txn))
            return True
        if n.staging.running is not None:
            n.work += 1
            return False
        if not begin_publish(n, x):
            return True
    before = n.work
    if not x.is_decided:
        x.error = choose_some(n, x, room)
        if x.error is None and x.at == len(x.found):
            x.error = decide(n, x)
        if x.error is not None:
            drop_publish(n, x)
            return True
    if not x.is_decided or not make_some(n, x, room - (n.work - before)):
        return False
    n.staging.running = None
    return True


def begin_publish(n: Node, x: Publish) -> bool:
    """Start it unless it is refused or was done before; False: not started."""
    spec = x.spec
    app = n.staging.apps.get(spec.app)
    if app is not None and spec.version <= app.version:
        x.value = on_repeat(n, app, spec, x.client, x.serial)
        return False
    for name in spec.attempts:
        a = n.staging.attempt(spec.txn, name)
        if a is None:
            x.error = Refusal(NOSTAGE, (name, spec.txn))  # Z2.3
            return False
        x.found.append(a)
    x.error = batch_refusal(n, spec)
    if x.error is not None:
        return False
    total: i64 = 0
    for a in x.found:
        total += len(a.jobs)
    if total > PUBLISH_MAX:
        x.error = Refusal(LONG_PUBLISH, (PUBLISH_MAX,))  # Z2.8
        return False
    for a in x.found:
        a.is_named = True
    x.default_repl = settle(n, PLAIN).replicate
    x.has_begun = True
    n.staging.running = x
    return True


def drop_publish(n: Node, x: Publish) -> None:
    """It was refused, or ends early; staged jobs stay, if they are still there."""
    if n.staging.running is x:
        n.staging.running = None
        for a in x.found:
            a.is_named = False


def finish_publish(n: Node) -> None:
    """Finish a decided PUBLISH at once."""
    x = n.staging.running
    while x is not None and x.is_decided and not publish_some(n, x, PUBLISH_MAX):
        pass


def batch_refusal(n: Node, spec: PublishSpec) -> Refusal | None:
    """Why its batch cannot be acked; None if it can, or if there is none (Z2.4)."""
    return check(n, spec.group, spec.epoch, spec.seq) if len(spec.group) > 0 else None


def decide(n: Node, x: Publish) -> Refusal | None:
    """[Z2] All is checked: publish in one step and one record, or refuse (Z2.11)."""
    if x.has_new_key:
        x.look_again()
        return None
    spec = x.spec
    app = n.staging.apps.get(spec.app)
    error = batch_refusal(n, spec)
    if error is None and len(x.fresh) > 0:
        error = keys_refusal(n, len(x.fresh), tenant_of(x.spec.txn))
    if error is None and app is None:
        error = apps_refusal(n, tenant_of(spec.app))
    if error is not None:
        return error
    if len(spec.group) > 0:
        x.batches = commit_later(n, spec.group, spec.epoch, spec.seq)
    x.is_decided = True
    x.value = x.count
    x.now_ms = n.now_ms
    if x.count > 0:
        x.first_ns = n.next_ctime_ns()
        n.last_ctime_ns += x.count - 1
    if n.records is not None:
        n.records.put(
            Published(
                spec.version,
                n.now_ms,
                x.first_ns,
                x.default_repl,
                spec.attempts,
                x.ids,
                spec.app,
                spec.txn,
            )
        )
    finish(n, spec, app, x.count, len(x.chosen))
    return None


def on_repeat(n: Node, app: App, spec: PublishSpec, client: i64, serial: i64) -> i64:
    """[Z2] The version was published before (Z2.2); wait for its copies if they are not done."""
    drop_txn(n, spec.txn)
    n.staging.repeated += 1
    if app.used_ms + USED_MS <= n.now_ms and n.records is not None:
        n.records.put(AppRow(app.version, n.now_ms, spec.app))
    app.used_ms = n.now_ms
    for p in n.staging.publishing:
        if p.app == spec.app and p.version == spec.version:
            p.repeats.append((client, serial))
            return WAITS
    return DONE_BEFORE


def apps_refusal(n: Node, tenant: bytes) -> Refusal | None:
    """Why one more app is refused; None if it is not (Z2.9, N11.8)."""
    if len(tenant) > 0:
        if is_too_many(n, apps_of(n, tenant)):
            forget_apps(n)
        count = apps_of(n, tenant)
        return Refusal(APPS_FULL, (count,)) if is_too_many(n, count) else room_for_app(n)
    return room_for_app(n)


def is_too_many(n: Node, count: i64) -> bool:
    """Whether a tenant with so many apps may have no more."""
    return count >= share_of(APPS_MAX, len(n.staging.apps), count)


def apps_of(n: Node, tenant: bytes) -> int:
    """How many apps the tenant has."""
    prefix = tenant + b"/"
    return sum([1 for name in n.staging.apps if name.startswith(prefix)])


def room_for_app(n: Node) -> Refusal | None:
    """Why the node keeps no more apps, whose ever; None if it does (Z2.9)."""
    if len(n.staging.apps) >= APPS_MAX:
        forget_apps(n)
        if len(n.staging.apps) >= APPS_MAX:
            return Refusal(APPS_FULL, (len(n.staging.apps),))
    return None


def choose_some(n: Node, x: Publish, room: i64) -> Refusal | None:
    """[Z2] Check the next staged jobs; None, or why one is refused (Z2.5, Z2.6)."""
    left: i64 = room * LOOKS
    while left > 0 and x.at < len(x.found):
        jobs = x.found[x.at].jobs
        if x.place == len(jobs):
            x.at += 1
            x.place = 0
            continue
        job = jobs[x.place]
        x.place += 1
        left -= 1
        error = look_at(n, x, job)
        if error is not None:
            return error
    n.work += (room * LOOKS - left) // LOOKS
    return None


def look_at(n: Node, x: Publish, job: Staged) -> Refusal | None:
    """Choose a staged job, or skip it because its key is known; or refuse it."""
    if len(job.key) > 0:
        full = full_key(job.queue, job.key)
        kept = n.keys.find(full, n.now_ms)
        if kept is not None and must_wait(n, kept.id):
            return Refusal(KEY_WAITS, (job.key,))
        if kept is not None or full in x.fresh:
            x.chosen.append(None)
            x.ids.append(NO_ID)
            return None
        x.fresh[full] = len(x.chosen)
    if len(x.chosen) == 0 or job.queue is not x.last:
        x.last = job.queue
        q = n.queues.get(job.queue)
        if q is not None and q.pause & PAUSE_IN:
            return Refusal(PAUSED)
        known = n.settings.known(job.queue)
        x.most = 0 if known is None else known.maxlen
    if job.maxlen > 0 or x.most > 0:
        added = x.longer.get(job.queue, 0)
        length = queue_length(n, job.queue) + added
        if 0 < i64(job.maxlen) <= length:
            return Refusal(MAXLEN)
        if 0 < x.most <= length:
            return Refusal(QUEUE_FULL, (job.queue, int(x.most)))  # T74.9
        x.longer[job.queue] = added + 1
    others = repl_of(job, x.default_repl) - 1
    if others > n.reachable_count and not are_expected(n, others):
        return Refusal(NOREPL)
    x.chosen.append(job)
    x.ids.append(job.id if len(job.id) > 0 else new_id(n, job))  # Z1.6
    x.count += 1
    return None


def new_id(n: Node, job: Staged) -> bytes:
    """A new id for the job of a staged one."""
    return n.ids.make(i64(job.ttl_s), i64(job.retry_s), tenant_of(job.queue))


def queue_length(n: Node, name: bytes) -> i64:
    """The number of jobs queued there."""
    q = n.queues.get(name)
    return 0 if q is None else q.length


def make_some(n: Node, x: Publish, room: i64) -> bool:
    """[Z2] Ack and make the next jobs of a decided PUBLISH; True: all done."""
    left = room
    while len(x.batches) > 0:
        if left <= 0:
            return False
        freed = ack_ending(n, x.batches[0], left)
        n.work += freed
        left -= freed
        if n.leases.is_freed(x.batches[0]):
            x.batches.pop(0)
    end: i64 = min(x.made + max(left, 0), len(x.chosen))
    n.work += end - x.made
    is_alone = len(n.peers) <= 1
    q: Queue | None = None
    while x.made < end:
        staged = x.chosen[x.made]
        id = x.ids[x.made]
        x.made += 1
        if staged is None:
            continue
        if q is None or staged.queue is not q.name:
            q = n.queues.get(staged.queue)
        job = made(n, x, staged, id, staged.queue if q is None else q.name)
        if job.repl > 1 and not is_alone:
            await_copies(n, copying(n, x), job)
        else:
            begin(n, job)
    p = x.copying
    if p is not None:
        p.until_ms = n.now_ms + COPIES_MS
    if x.made < len(x.chosen):
        return False
    if p is not None:
        x.value = WAITS
        send_some(n, p)
        on_copies(n, p)
    return True


def copying(n: Node, x: Publish) -> Publishing:
    """The shared state of jobs that need copies; it lasts until the last job is made."""
    p = x.copying
    if p is None:
        p = Publishing(x.spec.app, x.spec.version)
        p.client = x.client
        p.serial = x.serial
        p.count = x.count
        p.left = 1
        p.until_ms = n.now_ms + COPIES_MS
        x.copying = p
        n.staging.publishing.append(p)
    return p


def made(n: Node, x: Publish, staged: Staged, id: bytes, queue: bytes) -> Job:
    """Make and register the job of a staged one; keep its key."""
    job = Job(
        id,
        queue,
        staged.body,
        x.first_ns,
        x.now_ms + i64(staged.ttl_s) * 1000,
        staged.retry_s,
        staged.delay_s,
        i32(repl_of(staged, x.default_repl)),
    )
    job.level = staged.level
    x.first_ns += 1
    register(n, job, stats.CREATED)
    if staged.has_work():
        add_work(n, job, staged.work())
    if n.events is not None:
        n.events.added(n.now_ms, job)
    if len(staged.key) > 0:
        full = full_key(staged.queue, staged.key)
        n.keys.put(full, job.id, x.now_ms + staged.key_ttl_ms)
    return job


def finish(n: Node, spec: PublishSpec, app: App | None, count: i64, named: i64) -> None:
    """The version is published: drop what was staged, including attempts not named (Z2.1)."""
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


# ---- Copies of published jobs (SPEC Z3)


def await_copies(n: Node, p: Publishing, job: Job) -> None:
    """[Z3] The job is published, and queued once it has its copies (Z3.1)."""
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
    """[Z3] Send the next copies if the links have room (Z3.2)."""
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
            n.add_steps.put(n.now_ms + STEP_MS, job.id)
            jobs += 1
            size += len(job.body)
        p.sent += 1
    p.until_ms = n.now_ms + COPIES_MS
    p.look_ms = n.now_ms + SEND_MS


def publishing_tick(n: Node) -> None:
    """[Z3, T62] TIMER of jobs that wait for copies after a PUBLISH (Z3.2, Z3.3) or a TOPIC ADD."""
    for p in list(n.staging.publishing):
        if p.sent < len(p.ids) and p.look_ms <= n.now_ms:
            send_some(n, p)
        if len(p.tubes) > 0 and n.policy is not None and n.policy.has_replicas(n, p.tubes):
            p.tubes = []
            on_copies(n, p)
        if p.until_ms <= n.now_ms or 0 < p.end_ms <= n.now_ms:
            give_up(n, p)


def give_up(n: Node, p: Publishing) -> None:
    """[Z3] No more copies can be made: queue the jobs with those they have (Z3.3)."""
    for id in p.ids:
        adding = n.adding.get(id)
        if adding is not None and adding.publishing is p:
            p.short += 1
            on_enough(n, adding)
    if len(p.tubes) > 0:
        p.short += len(p.tubes)
        p.tubes = []
        on_copies(n, p)


def publishing_next_ms(n: Node) -> i64:
    """The instant at which `publishing_tick` next has work; FAR: never."""
    at_ms: i64 = FAR
    for p in n.staging.publishing:
        if p.until_ms < at_ms:
            at_ms = p.until_ms
        if 0 < p.end_ms < at_ms:
            at_ms = p.end_ms
        if p.sent < len(p.ids) and p.look_ms < at_ms:
            at_ms = p.look_ms
    return at_ms
