"""What a node knows of leases: groups, their batches, due times (SPEC Y).

A group delivers jobs in numbered batches. A live batch refers to its jobs; an expired one only
to their ids, since they are elsewhere then. Plain data; core/leases/leases.py decides.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.job import ACKED, ACTIVE, LEASED, Job
from tuque.core.model.stats import set_why, why_of

GROUPS_MAX: Final = 1_000  # Y1.4
BATCHES_MAX: Final = 16  # uncommitted, per group; then NEXT is refused (Y2.4)
SPLITS_MAX: Final = 48  # the same for SPLIT (Y11.3)
DEFERS_MAX: Final = 49  # the same for DEFER: always one more than SPLIT can make (Y11.4)
QUEUES_MAX: Final = 256  # per group (Y1.3)
NAME_MAX: Final = 255  # bytes (Y1.3)
PARTS_MAX: Final = 1_024  # per batch (Y2.4)
POSITIONS_OF_UNIT: Final = 20  # of a batch, looked at or recorded, are a unit of work (L2.1)

# memory costs, in bytes (M1)
GROUP_BYTES: Final = 1_200
BATCH_BYTES: Final = 480
LIVE_BYTES: Final = 9  # per job of a batch
GONE_BYTES: Final = 217  # extra, when only its batch still knows it
EXPIRED_BYTES: Final = 132  # its id, mark and expiry, as the job itself may be gone


@final
class Batch:
    """Jobs delivered together. Positions never change, whatever happens to the jobs."""

    def __init__(self, seq: i64, parts: i64) -> None:
        self.seq = seq
        self.parts = parts
        self.count: i64 = 0  # positions
        self.body_bytes: i64 = 0
        self.jobs: list[Job] = []  # while the lease lives
        self.ids: list[bytes] = []  # when it has expired
        self.marks: list[int] = []  # then: which delivery of each job it had; -1 - why: none (Y3.8)
        self.ends: list[int] = []  # then: each job's expiry, 0: unknown
        self.is_expired = False
        self.freed: i64 = 0  # leading jobs that a long command has acked or returned
        self.drop_ms: i64 = 0  # expired: when it is forgotten (Y7.4)
        self.reads: list[int] = [0] * parts  # how often reading each part began
        self.begun: i64 = 0  # how often work began (Y11.1)
        self.proof_at: i64 = -1  # `Group.proofs` at the first begin; -1: none yet
        self.last_proof_at: i64 = -1  # and at the last one
        self.at_work: i64 = 0  # jobs that it had then (Y11.1)

    def attempts(self) -> i64:
        """How often reading the batch began (Y3.3)."""
        return max(self.reads)

    def bytes_used(self) -> i64:
        """Memory of the batch in bytes, without jobs that the node knows."""
        if self.is_expired:
            return BATCH_BYTES + EXPIRED_BYTES * self.count
        return BATCH_BYTES + LIVE_BYTES * self.count + gone_bytes(self)


def gone_bytes(b: Batch) -> i64:
    """Memory of the live batch's jobs that only the batch knows, in bytes."""
    total: i64 = 0
    for job in b.jobs:
        total += gone_cost(job)
    return total


def gone_cost(job: Job) -> i64:
    """The same for one job."""
    return GONE_BYTES if job.state == ACKED and job.flags & LEASED else 0


@final
class Group:
    """A group: its owner, its queues and its batches."""

    def __init__(self, name: bytes, owner: bytes, queues: list[bytes], epoch: i64) -> None:
        self.name = name
        self.owner = owner
        self.queues = queues
        self.epoch = epoch
        self.last_seq: i64 = 0  # the newest batch
        self.acked_seq: i64 = 0  # all up to here are committed
        self.floor_seq: i64 = 0  # all up to here are finished: committed or released
        self.ttl_ms: i64 = 0  # 0: no batch yet
        self.until_ms: i64 = 0  # expiry of the lease
        self.armed_ms: i64 = 0  # when its timer fires, 0: not set
        self.used_ms: i64 = 0  # the last command about it
        self.proofs: i64 = 0  # commits that acknowledged jobs, under this epoch
        self.turn: i64 = 0  # index of the queue that begins the next batch
        self.batches: dict[int, Batch] = {}  # not committed, by number, in order
        self.filling: Batch | None = None  # the next one, while it takes its jobs (Y2.7)

    def bytes_used(self) -> i64:
        """Memory of the group in bytes, without its batches."""
        total: i64 = GROUP_BYTES + len(self.name) + len(self.owner)
        for name in self.queues:
            total += 60 + len(name)
        return total


@final
class Beat:
    """Replicated jobs of one batch with one retry time: WORKING goes to their holders (Y8.1)."""

    def __init__(self, jobs: list[Job], step_ms: i64) -> None:
        self.jobs = jobs
        self.step_ms = step_ms
        self.next: i64 = 0  # the next of `jobs` to announce


@final
class Returning:
    """Jobs of an expired batch that return to their queues (Y7.2)."""

    def __init__(self, batch: Batch, jobs: list[Job]) -> None:
        self.batch = batch
        self.jobs = jobs
        self.at: i64 = 0  # how many have returned


@final
class Leases:
    """All groups of a node."""

    def __init__(self) -> None:
        self.groups: dict[bytes, Group] = {}
        self.returning: list[Returning] = []
        self.ending: list[Batch] = []  # of no group any more; their jobs are being acked
        self.last_epoch: i64 = 0
        self.bytes: i64 = 0  # groups and batches
        self.timers: list[tuple[int, bytes]] = []  # heap of (instant, group)
        self.beats: list[tuple[int, int]] = []  # heap of (instant, number in `beating`)
        self.beating: dict[int, Beat] = {}
        self.beat_number: i64 = 0
        self.loaded: dict[bytes, Job] = {}  # while loading: jobs that were leased
        self.expired: i64 = 0  # leases, since the start
        self.batches_made: i64 = 0
        self.jobs_leased: i64 = 0  # since the start

    def is_freed(self, b: Batch) -> bool:
        """Whether all jobs of a committed batch are acked."""
        return b not in self.ending

    def check(self) -> i64:
        """The number of leased jobs; asserts that bytes and batches match."""
        leased: i64 = 0
        total: i64 = 0
        for back in self.returning:
            for job in back.jobs[back.at :]:
                leased += 1 if is_leased(job) else 0
                total += gone_cost(job)
        for b in self.ending:
            total += b.bytes_used()
            for job in b.jobs:
                if is_leased(job):
                    leased += 1
        for g in self.groups.values():
            total += g.bytes_used()
            for b in g.batches.values():
                total += b.bytes_used()
                assert b.count == len(b.ids if b.is_expired else b.jobs), "positions of a batch"
                for job in b.jobs:
                    if is_leased(job):
                        leased += 1
            if g.filling is not None:
                for job in g.filling.jobs:
                    if is_leased(job):
                        leased += 1
                total += gone_bytes(g.filling)
        assert total == self.bytes, "bytes of leases"
        return leased


def is_leased(job: Job) -> bool:
    """Whether a live lease has the job."""
    return job.flags & LEASED != 0 and job.state == ACTIVE


def gone(id: bytes, why: i64) -> Job:
    """A placeholder in a batch for a job that left it; `why` as `Job.why`."""
    job = Job(id, b"", b"", 0, 0, 0, 0, 0)
    job.state = ACKED
    job.flags = LEASED  # as if it ended in the batch
    set_why(job, why)
    return job


def mark_of(job: Job) -> i64:
    """Which delivery of a job the batch has; -1 - why: none (Y3.8)."""
    return i64(job.delivered_count) if is_leased(job) else -1 - why_of(job)
