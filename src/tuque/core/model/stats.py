"""Counters of jobs: by queue and tenant, of the node, and by cause (SPEC O3, G9, N10).

A Tally lives as long as its queue, or a job of that name. The hot path only adds to native
fields: nothing is allocated once a tally exists. What a job counts as, delayed or at work, is kept
in the job, so that a change costs nothing where nothing changes.
"""

from typing import Final, final

from mypy_extensions import i64, u8

from tuque.core.model.job import (
    ACTIVE,
    AS_AT_WORK,
    AS_BITS,
    AS_DELAYED,
    AS_TASK,
    DELIVERED,
    EXTERNAL,
    HELD,
    IN_TRANSIT,
    LEASED,
    ONCE_QUEUED,
    OUT_HERE,
    OUT_THERE,
    QUEUED_THERE,
    WHY_BITS,
    Job,
)

TALLY_BYTES: Final = 310  # a tally with its entry in the table, without the name

TENANT_MAX: Final = 32  # bytes of a tenant's name
TENANT_DIGITS: Final = b"abcdefghijklmnopqrstuvwxyz0123456789-"

# upper bounds of a histogram's buckets, in its unit; the last bucket has no bound
# fmt: off
BOUNDS: Final = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 60_000,
    300_000, 3_600_000,
]
# fmt: on

# why a job was put back; index into PUT_BACK
BY_RETRY: Final = 0
BY_NACK: Final = 1
BY_COMMAND: Final = 2
BY_LEASE: Final = 3
BY_FAILURE: Final = 4
BY_RELEASE: Final = 5

LOOK_MS: Final = 30_000  # between two looks; rates are of the time since the one before the last

PUT_BACK: Final = ["retry", "nack", "command", "lease", "failed", "released"]

CREATED: Final = 0
IMPORTED: Final = 1
REPLICATED: Final = 2
LOADED: Final = 3
GC_ACKED: Final = 4
EXPIRED: Final = 5
MOVED: Final = 6
ADMIN_DELETED: Final = 7
EVICTED: Final = 8
ADD_FAILED: Final = 9

CAUSES: Final = [
    "created",
    "imported",
    "replicated",
    "loaded",
    "gc_acked",
    "expired",
    "moved",
    "admin_deleted",
    "evicted",
    "add_failed",
]


@final
class Owner:
    """What the queues of one tenant hold at this node (SPEC N10)."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.queues: i64 = 0  # in the table, or with jobs
        self.queue_bytes: i64 = 0  # that queues cost without their jobs
        self.bare_bytes: i64 = 0  # of them, queues that only waits have made
        self.tube_bytes: i64 = 0  # of its tubes without their tasks
        self.jobs: i64 = 0  # in the table, in any state
        self.bytes: i64 = 0  # of their bodies


NOBODY: Final = Owner(b"")  # of what counts for no node


@final
class Tally:
    """Counters of one queue, or of the whole node, since they began; and three counts of now."""

    def __init__(self, owner: Owner = NOBODY) -> None:
        self.owner = owner
        self.jobs: i64 = 0  # in the table, in any state
        self.is_kept = False  # a queue of that name exists
        self.seen: i64 = -1  # added and delivered when the shell last looked; -1: never
        self.delayed: i64 = 0
        self.at_work: i64 = 0
        self.added: i64 = 0
        self.delivered: i64 = 0
        self.firsts: i64 = 0  # deliveries that were the first of their job
        self.wait_ms: i64 = 0  # that these jobs waited
        self.acked: i64 = 0
        self.worked: i64 = 0  # acked, and delivered here
        self.work_ms: i64 = 0  # from the last delivery of these to the ack
        self.failed: i64 = 0
        self.requeued: i64 = 0
        self.dead: i64 = 0
        self.expired: i64 = 0
        self.look_ms: i64 = 0  # the last look, and what the counters were then
        self.look_added: i64 = 0
        self.look_acked: i64 = 0
        self.past_ms: i64 = 0  # the look before that
        self.past_added: i64 = 0
        self.past_acked: i64 = 0

    def look(self, now_ms: i64) -> None:
        """[O10] Note the counters, at most each 30 s (O10.3)."""
        if now_ms - self.look_ms < LOOK_MS:
            return
        self.past_ms = self.look_ms
        self.past_added = self.look_added
        self.past_acked = self.look_acked
        self.look_ms = now_ms
        self.look_added = self.added
        self.look_acked = self.acked

    def in_rate(self, now_ms: i64) -> i64:
        """Jobs added in 1000 s, at the pace of the last 30 to 60 s."""
        return (self.added - self.past_added) * 1_000_000 // max(now_ms - self.past_ms, 1000)

    def out_rate(self, now_ms: i64) -> i64:
        """Jobs acked in 1000 s."""
        return (self.acked - self.past_acked) * 1_000_000 // max(now_ms - self.past_ms, 1000)

    def counts(self) -> list[int]:
        """The counters in the order of the fields of HISTORY (O3.3)."""
        return [
            self.added,
            self.delivered,
            self.firsts,
            self.wait_ms,
            self.acked,
            self.worked,
            self.work_ms,
            self.failed,
            self.requeued,
            self.dead,
            self.expired,
        ]


def tenant_of(queue: bytes) -> bytes:
    """The tenant whose queue it is: what stands before the first `/`; empty: nobody's (N10.2)."""
    at: i64 = queue.find(b"/")
    if at < 1 or at > TENANT_MAX or len(queue[:at].translate(None, TENANT_DIGITS)) > 0:
        return b""
    return queue[:at]


NO_TALLY: Final = Tally()  # stands where a queue has not entered the table yet


@final
class Histogram:
    """How often a value was within each of BOUNDS. Buckets are fields: adding allocates nothing."""

    def __init__(self) -> None:
        self.sum: i64 = 0
        self.b0: i64 = 0
        self.b1: i64 = 0
        self.b2: i64 = 0
        self.b3: i64 = 0
        self.b4: i64 = 0
        self.b5: i64 = 0
        self.b6: i64 = 0
        self.b7: i64 = 0
        self.b8: i64 = 0
        self.b9: i64 = 0
        self.b10: i64 = 0
        self.b11: i64 = 0
        self.b12: i64 = 0
        self.b13: i64 = 0
        self.b14: i64 = 0
        self.b15: i64 = 0
        self.b16: i64 = 0
        self.beyond: i64 = 0

    def add(self, value: i64) -> None:
        """Count a value; below 0 it counts as 0."""
        if value > 0:
            self.sum += value
        if value <= 50:
            self.add_small(value)
        elif value <= 100:
            self.b6 += 1
        elif value <= 200:
            self.b7 += 1
        elif value <= 500:
            self.b8 += 1
        elif value <= 1_000:
            self.b9 += 1
        elif value <= 2_000:
            self.b10 += 1
        elif value <= 5_000:
            self.b11 += 1
        elif value <= 10_000:
            self.b12 += 1
        elif value <= 20_000:
            self.b13 += 1
        elif value <= 60_000:
            self.b14 += 1
        elif value <= 300_000:
            self.b15 += 1
        elif value <= 3_600_000:
            self.b16 += 1
        else:
            self.beyond += 1

    def add_small(self, value: i64) -> None:
        """Count a value up to 50."""
        if value <= 1:
            self.b0 += 1
        elif value <= 2:
            self.b1 += 1
        elif value <= 5:
            self.b2 += 1
        elif value <= 10:
            self.b3 += 1
        elif value <= 20:
            self.b4 += 1
        else:
            self.b5 += 1

    def buckets(self) -> list[int]:
        """How many values were within each bound and beyond the one before it; then the rest."""
        first = [self.b0, self.b1, self.b2, self.b3, self.b4, self.b5, self.b6, self.b7, self.b8]
        last = [self.b9, self.b10, self.b11, self.b12, self.b13, self.b14, self.b15, self.b16]
        return [int(size) for size in first] + [int(size) for size in last] + [int(self.beyond)]


@final
class Book:
    """All tallies of a node, its own sums, and its histograms of ms."""

    def __init__(self, id_head: bytes = b"") -> None:
        self.id_head = id_head  # what ids of jobs made here begin with
        self.tallies: dict[bytes, Tally] = {}
        self.nobody = Owner(b"")  # of the queues of no tenant
        self.owners: dict[bytes, Owner] = {}  # the others, by the tenant's name
        # found last time; all jobs of a queue share one name object
        self.near_name: bytes | None = None
        self.near = NO_TALLY
        self.total = Tally()
        self.put_back = [0] * len(PUT_BACK)  # jobs requeued, by cause
        self.died: dict[bytes, int] = {}  # jobs given up, by cause
        self.waits = Histogram()  # from the end of the first delay to the first delivery
        self.works = Histogram()  # from the last delivery to the ack
        self.adds_of_1 = Histogram()  # from ADDJOB to its reply, by copies
        self.adds_of_2 = Histogram()
        self.adds_of_more = Histogram()

    def of(self, name: bytes) -> Tally:
        """The counts of that name, which exist; no look-up for the name that was asked for last."""
        if name is not self.near_name:
            self.near = self.tallies[name]
            self.near_name = name
        return self.near

    def make(self, name: bytes) -> Tally:
        """New counts for that name, which has none."""
        tenant = tenant_of(name)
        owner = self.nobody
        if len(tenant) > 0:
            known = self.owners.get(tenant)
            owner = Owner(tenant) if known is None else known
            self.owners[tenant] = owner
        owner.queues += 1
        tally = Tally(owner)
        self.tallies[name] = tally
        return tally

    def drop(self, name: bytes) -> None:
        """Nothing of that name is left."""
        owner = self.tallies.pop(name).owner
        owner.queues -= 1
        if owner.queues == 0 and len(owner.name) > 0:
            del self.owners[owner.name]
        self.near_name = None
        self.near = NO_TALLY

    def arm(self, job: Job) -> None:
        """Count the job as what it is now; no-op for tasks, which their tube counts."""
        now = count_as(job, self.id_head)
        if now != job.why & AS_BITS and job.why & AS_TASK == 0:
            self.move(job, now)

    def move(self, job: Job, to: i64) -> None:
        """The job counts as something else now."""
        tally = self.tallies.get(job.queue)
        if tally is None:
            return  # it is not in the table: a record of a batch, or of a test
        self.uncount(job, tally)
        if to == AS_DELAYED:
            tally.delayed += 1
            self.total.delayed += 1
        elif to == AS_AT_WORK:
            tally.at_work += 1
            self.total.at_work += 1
        job.why |= u8(to)

    def uncount(self, job: Job, tally: Tally) -> None:
        """The job counts as nothing."""
        if job.why & AS_DELAYED:
            tally.delayed -= 1
            self.total.delayed -= 1
        elif job.why & AS_AT_WORK:
            tally.at_work -= 1
            self.total.at_work -= 1
        job.why &= 0xFF ^ AS_BITS

    def deliver(self, job: Job, tally: Tally, now_ms: i64, is_first: bool) -> None:
        """Count a delivery of a job that is no task, just taken from its queue."""
        if is_first:
            wait_ms = now_ms - job.ctime_ns // 1_000_000 - i64(job.delay_s) * 1000
            self.count_wait(tally, wait_ms)
        tally.delivered += 1
        self.total.delivered += 1
        if job.why & AS_BITS == 0:
            tally.at_work += 1
            self.total.at_work += 1
            job.why |= AS_AT_WORK

    def count_wait(self, tally: Tally, wait_ms: i64) -> None:
        """Count a first delivery, after that wait."""
        if wait_ms < 0:
            wait_ms = 0
        tally.firsts += 1
        self.total.firsts += 1
        tally.wait_ms += wait_ms
        self.total.wait_ms += wait_ms
        self.waits.add(wait_ms)

    def hand_out(self, job: Job, now_ms: i64, is_first: bool) -> None:
        """Count a delivery of a task, or of a job that no queue gave."""
        tally = self.of(job.queue)
        if is_first:
            wait_ms = now_ms - job.ctime_ns // 1_000_000 - i64(job.delay_s) * 1000
            self.count_wait(tally, wait_ms)
        tally.delivered += 1
        self.total.delivered += 1

    def ack(self, job: Job, now_ms: i64) -> None:
        """Count an ack, and the work if the job was delivered here; before it leaves the table."""
        tally = self.of(job.queue)
        tally.acked += 1
        self.total.acked += 1
        if job.delivered_count > 0 and job.why & (AS_AT_WORK | AS_TASK):
            work_ms = now_ms - job.last_ms
            if work_ms < 0:
                work_ms = 0
            tally.worked += 1
            self.total.worked += 1
            tally.work_ms += work_ms
            self.total.work_ms += work_ms
            self.works.add(work_ms)

    def requeue(self, job: Job, cause: i64) -> None:
        """Count a job that is put back, at once or after a delay."""
        self.of(job.queue).requeued += 1
        self.total.requeued += 1
        self.put_back[cause] += 1

    def fail(self, job: Job) -> None:
        """Count a failed attempt."""
        self.of(job.queue).failed += 1
        self.total.failed += 1

    def die(self, job: Job, cause: bytes) -> None:
        """Count a job that is given up."""
        self.of(job.queue).dead += 1
        self.total.dead += 1
        self.died[cause] = self.died.get(cause, 0) + 1

    def expire(self, job: Job) -> None:
        """Count a job that its TTL ended."""
        self.of(job.queue).expired += 1
        self.total.expired += 1

    def reply(self, copies: i64, wait_ms: i64) -> None:
        """Count an ADDJOB that is replied to, with its id."""
        if copies <= 1:
            self.adds_of_1.add(wait_ms)
        elif copies == 2:
            self.adds_of_2.add(wait_ms)
        else:
            self.adds_of_more.add(wait_ms)


def count_as(job: Job, id_head: bytes) -> i64:
    """[O3.3] What an open job counts as at this node: AS_DELAYED, AS_AT_WORK, or 0.

    A copy of a job that another node serves counts as nothing, so that each job counts once.
    """
    if job.state != ACTIVE:
        return 0
    if job.marks & (OUT_HERE | OUT_THERE | QUEUED_THERE | HELD):
        return AS_AT_WORK if job.marks & (OUT_HERE | HELD) == OUT_HERE else 0
    if job.flags & LEASED:
        return AS_AT_WORK
    if job.flags & (IN_TRANSIT | EXTERNAL):
        return 0
    if job.delivered_count > 0 and job.flags & DELIVERED:
        return AS_AT_WORK if job.flags & ONCE_QUEUED else AS_DELAYED
    if job.holders == 1:
        return AS_DELAYED
    return AS_DELAYED if job.flags & DELIVERED == 0 and job.id.startswith(id_head) else 0


def why_of(job: Job) -> i64:
    """Why the job left its leased batch (Y3.8); 0: it did not, or unknown."""
    return i64(job.why & WHY_BITS)


def set_why(job: Job, why: i64) -> None:
    """The job leaves its leased batch for that cause (Y3.8)."""
    job.why = u8(i64(job.why) & ~WHY_BITS | why)


# ---- Counts where each job came from and went: one counter per cause (SPEC G9)
#
#     created + imported + replicated + loaded
#         = live + gc_acked + expired + moved + admin_deleted + evicted + add_failed
#
# A job that leaves without a cause is a bug; `balance` shows it.


@final
class Ledger:
    """Counts since the process started."""

    def __init__(self) -> None:
        self.created: i64 = 0
        self.imported: i64 = 0
        self.replicated: i64 = 0
        self.loaded: i64 = 0
        self.gc_acked: i64 = 0
        self.expired: i64 = 0
        self.moved: i64 = 0
        self.admin_deleted: i64 = 0
        self.evicted: i64 = 0
        self.add_failed: i64 = 0

    def entered(self) -> i64:
        """Jobs that arrived so far."""
        return self.created + self.imported + self.replicated + self.loaded

    def enter(self, cause: i64) -> None:
        """Count a job that arrived."""
        if cause == CREATED:
            self.created += 1
        elif cause == LOADED:
            self.loaded += 1
        elif cause == REPLICATED:
            self.replicated += 1
        else:
            assert cause == IMPORTED, "unknown way in"
            self.imported += 1

    def leave(self, cause: i64) -> None:
        """Count a job that left."""
        if cause == GC_ACKED:
            self.gc_acked += 1
        elif cause == EXPIRED:
            self.expired += 1
        elif cause == ADMIN_DELETED:
            self.admin_deleted += 1
        elif cause == EVICTED:
            self.evicted += 1
        elif cause == MOVED:
            self.moved += 1
        else:
            assert cause == ADD_FAILED, "unknown way out"
            self.add_failed += 1

    def counts(self) -> list[int]:
        """The counters in the order of CAUSES."""
        return [
            self.created,
            self.imported,
            self.replicated,
            self.loaded,
            self.gc_acked,
            self.expired,
            self.moved,
            self.admin_deleted,
            self.evicted,
            self.add_failed,
        ]

    def balance(self, live: i64) -> i64:
        """0 when every job is accounted for; `live` is the size of the job table."""
        came = self.created + self.imported + self.replicated + self.loaded
        went = self.gc_acked + self.expired + self.moved + self.admin_deleted
        return came - went - self.evicted - self.add_failed - live
