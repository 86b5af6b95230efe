"""What a node knows of leases: groups, their batches, which are due (SPEC Y).

A group hands out jobs in numbered batches. While its lease lives a batch refers to its
jobs; when it has expired only to their ids, since they live elsewhere then. Who may do
what is core/leases/commands.py's; this module only keeps.
"""

from typing import Final, final

from mypy_extensions import i64, u8

from tuque.core.model.job import ACKED, ACTIVE, LEASED, Job

GROUPS_MAX: Final = 1_000  # Y1.4
BATCHES_MAX: Final = 16  # not committed, of one group: then NEXT takes no other (Y2.4)
SPLITS_MAX: Final = 48  # the same, when some were made by SPLIT (Y11.3)
DEFERS_MAX: Final = 49  # the same, when others go first: always one more than SPLIT makes (Y11.4)
QUEUES_MAX: Final = 256  # of one group (Y1.3)
NAME_MAX: Final = 255  # bytes (Y1.3)
PARTS_MAX: Final = 1_024  # of a batch (Y2.4)

# what they cost the process, in bytes (M1)
GROUP_BYTES: Final = 1_200
BATCH_BYTES: Final = 480
LIVE_BYTES: Final = 9  # a job of a batch
GONE_BYTES: Final = 217  # more, when only its batch still knows it
EXPIRED_BYTES: Final = 132  # its id, mark and expiry, when the job itself may be gone


@final
class Batch:
    """Jobs delivered together. Positions do not change, whatever becomes of the jobs."""

    def __init__(self, seq: i64, parts: i64) -> None:
        self.seq = seq
        self.parts = parts
        self.count: i64 = 0  # positions
        self.body_bytes: i64 = 0
        self.jobs: list[Job] = []  # while the lease lives
        self.ids: list[bytes] = []  # when it has expired
        self.marks: list[int] = []  # then: which delivery it had of each; -1 - why: none (Y3.8)
        self.ends: list[int] = []  # then: when each job expires, 0 when that is not known
        self.is_expired = False
        self.freed: i64 = 0  # jobs at the head that a long command has acked or put back
        self.drop_ms: i64 = 0  # expired: when it is forgotten (Y7.4)
        self.reads: list[int] = [0] * parts  # how often each part was begun to be read
        self.begun: i64 = 0  # how often work on it began (Y11.1)
        self.proof_at: i64 = -1  # `Group.proofs` when that was the first time; -1: never
        self.last_proof_at: i64 = -1  # and when it was the last time

    def attempts(self) -> i64:
        """How often the batch was begun to be read (Y3.3)."""
        return max(self.reads)

    def bytes_used(self) -> i64:
        """What the batch costs the process, without jobs that the node knows."""
        if self.is_expired:
            return BATCH_BYTES + EXPIRED_BYTES * self.count
        return BATCH_BYTES + LIVE_BYTES * self.count + gone_bytes(self)


def gone_bytes(b: Batch) -> i64:
    """What jobs of a live batch cost that only the batch knows."""
    total: i64 = 0
    for job in b.jobs:
        total += gone_cost(job)
    return total


def gone_cost(job: Job) -> i64:
    """The same of one job."""
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
        self.floor_seq: i64 = 0  # all up to here are over: committed or released
        self.ttl_ms: i64 = 0  # 0: no batch yet
        self.until_ms: i64 = 0  # the lease lives until then
        self.armed_ms: i64 = 0  # when its timer looks, 0: it has none
        self.used_ms: i64 = 0  # the last command about it
        self.proofs: i64 = 0  # commits that acknowledged jobs, under this epoch
        self.turn: i64 = 0  # the queue that begins the next batch
        self.batches: dict[int, Batch] = {}  # not committed, by number, in order
        self.filling: Batch | None = None  # the next one, while it takes its jobs (Y2.7)

    def bytes_used(self) -> i64:
        """What the group costs the process, without its batches."""
        total: i64 = GROUP_BYTES + len(self.name) + len(self.owner)
        for name in self.queues:
            total += 60 + len(name)
        return total


@final
class Beat:
    """Replicated jobs of one batch and one retry time: their other holders get WORKING (Y8.1)."""

    def __init__(self, jobs: list[Job], step_ms: i64) -> None:
        self.jobs = jobs
        self.step_ms = step_ms
        self.next: i64 = 0  # of the jobs, the first that is still to be announced


@final
class Returning:
    """Jobs of a batch whose lease is over, on their way back into their queues (Y7.2)."""

    def __init__(self, batch: Batch, jobs: list[Job]) -> None:
        self.batch = batch
        self.jobs = jobs
        self.at: i64 = 0  # so many are back


@final
class Leases:
    """All groups of a node."""

    def __init__(self) -> None:
        self.groups: dict[bytes, Group] = {}
        self.returning: list[Returning] = []
        self.ending: list[Batch] = []  # of no group any more, while their jobs are acked
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
        """Whether all jobs of a batch that is over are acked."""
        return b not in self.ending

    def check(self) -> i64:
        """How many jobs are leased; assert that bytes and batches agree with them."""
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
    """Whether the job is out under a lease that lives."""
    return job.flags & LEASED != 0 and job.state == ACTIVE


def gone(id: bytes, why: i64) -> Job:
    """The placeholder in a batch for a job that left it; `why` as `Job.why`."""
    job = Job(id, b"", b"", 0, 0, 0, 0, 0)
    job.state = ACKED
    job.flags = LEASED  # as one that ended in the batch
    job.why = u8(why)
    return job


def mark_of(job: Job) -> i64:
    """Which delivery the batch has of a job; -1 - why when it has none (Y3.8)."""
    return i64(job.delivered_count) if is_leased(job) else -1 - i64(job.why)
