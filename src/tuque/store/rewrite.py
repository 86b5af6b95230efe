"""The content of a snapshot, made slice by slice while the server works (SPEC J6).

The list of jobs is taken when the new segment has begun; each job is told as it is when
its slice is made. What changed before that is told again by the segment, which does no
harm; what changes after it is told by the segment only.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.job import Job
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
        self.records = Records()
        self.record_count: i64 = 0  # in the slice made last
        self.job_count: i64 = 0
        for name, q in n.queues.items():
            if q.pause != 0:
                told = n.pauses.get(name)
                is_bcast = told is not None and told.is_bcast
                self.records.pause(name, q.pause | PAUSE_BCAST if is_bcast else q.pause)

    def slice(self, n: Node, most: i64) -> bytes:
        """The records of up to `most` jobs, about 1 MB at the most; b"" when all are told."""
        records = self.records
        jobs = self.jobs
        end = self.pos + most
        if end > len(jobs):
            end = len(jobs)
        pauses = records.count
        pos = self.pos
        while pos < end and len(records.writer) < SLICE_BYTES:
            job = jobs[pos]
            pos += 1
            if n.jobs.get(job.id) is job:
                records.add(job)
        self.pos = pos
        self.record_count = records.count
        self.job_count = records.count - pauses
        return records.take()

    def is_done(self) -> bool:
        """Whether every job was told."""
        return self.pos >= len(self.jobs)
