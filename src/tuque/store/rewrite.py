"""The content of a snapshot, made slice by slice while the server works (SPEC J6).

The list of jobs is taken when the new segment has begun; each job is told as it is when
its slice is made. What changed before that is told again by the segment, which does no
harm; what changes after it is told by the segment only.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.job import WAIT_REPL, Job
from tuque.core.lease_load import tell_all
from tuque.core.node import Node
from tuque.core.queue import PAUSE_BCAST
from tuque.core.records import Records

SLICE_BYTES: Final = 1 << 20


@final
class Snapshot:
    """A walk over all jobs of the node, begun right after the journal changed segments."""

    def __init__(self, n: Node) -> None:
        self.jobs: list[Job] = list(n.jobs.values())
        self.pos: i64 = 0
        self.tombs: list[bytes] = n.tombs.lasting()
        self.tomb_pos: i64 = 0
        self.records = Records(n.node_ids, n.lives)
        self.record_count: i64 = 0  # in the slice made last
        self.job_count: i64 = 0
        everybody: i64 = (1 << len(n.peers)) - 1
        self.records.introduce(everybody)
        for name, q in n.queues.items():
            if q.pause != 0:
                told = n.pauses.get(name)
                is_bcast = told is not None and told.is_bcast
                self.records.pause(name, q.pause | PAUSE_BCAST if is_bcast else q.pause)
        tell_all(n, self.records)  # now: their jobs are told later, by what is so then

    def slice(self, n: Node, most: i64) -> bytes:
        """The records of up to `most` jobs, about 1 MB at the most; b"" when all are told.

        A job that waits for copies is told by its own record when it has them.
        """
        records = self.records
        jobs = self.jobs
        end = self.pos + most
        if end > len(jobs):
            end = len(jobs)
        self.job_count = 0
        pos = self.pos
        while pos < end and len(records.writer) < SLICE_BYTES:
            job = jobs[pos]
            pos += 1
            if n.jobs.get(job.id) is job and job.state != WAIT_REPL:
                records.add(job)
                self.job_count += 1
        self.pos = pos
        if pos == len(jobs):
            self.tell_tombs(n, most)
        self.record_count = records.count
        return records.take()

    def tell_tombs(self, n: Node, most: i64) -> None:
        """Up to `most` tombstones that only their end or another node's word takes away."""
        end = self.tomb_pos + most
        if end > len(self.tombs):
            end = len(self.tombs)
        while self.tomb_pos < end:
            id = self.tombs[self.tomb_pos]
            self.tomb_pos += 1
            bucket = n.tombs.ids.get(id)
            if bucket is not None:
                self.records.tomb(id, bucket.end_ms, bucket.kind)

    def is_done(self) -> bool:
        """Whether everything was told."""
        return self.pos >= len(self.jobs) and self.tomb_pos >= len(self.tombs)
