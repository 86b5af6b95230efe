"""The content of a snapshot, made in slices while the server works (SPEC J6).

The list of jobs is taken when the new segment begins; each job is recorded as it is when its
slice is made. Changes before that are also in the segment, which does no harm; later changes
are in the segment only.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.leases.restore import tell_all
from tuque.core.life.restore import OutcomeWalk
from tuque.core.model.job import EXTERNAL, WAIT_REPL, Job
from tuque.core.model.task import Task
from tuque.core.msgs.records import AppRow, TopicKeys, topic_row
from tuque.core.node.node import Node
from tuque.core.node.queue import PAUSE_BCAST
from tuque.core.queue_settings import as_record
from tuque.core.queues.dedupe import is_recorded
from tuque.core.queues.ends import life_of
from tuque.core.records.jobs import Records
from tuque.core.records.staged import record_key, tell_staged
from tuque.core.tables.dedupe_keys import Kept
from tuque.core.tables.staged import Attempt, Staged
from tuque.tubes.leadership.restore import copies_of, tell_all_tubes, tell_task_of
from tuque.tubes.policy import tubes_of

SLICE_BYTES: Final = 1 << 20


@final
class Snapshot:
    """A walk over all jobs of the node, begun right after the journal changed segments."""

    def __init__(self, n: Node) -> None:
        self.jobs: list[Job] = list(n.jobs.values())  # still to record, the next one last
        self.tombs: list[bytes] = n.tombs.lasting()
        self.tomb_pos: i64 = 0
        self.records = Records(n.node_ids, n.lives)
        self.record_count: i64 = 0  # in the latest slice
        self.job_count: i64 = 0
        everybody: i64 = (1 << len(n.peers)) - 1
        self.records.introduce(everybody)
        for name, q in n.queues.items():
            if q.pause != 0 and name not in n.pauses:
                self.records.pause(name, q.pause, 0)
        for name, told in n.pauses.items():
            paused = n.queues.get(name)
            bits: i64 = paused.pause if paused is not None else 0
            self.records.pause(name, bits | PAUSE_BCAST if told.is_bcast else bits, told.stamp_ns)
        for setting in n.settings.by_queue.values():
            self.records.put(as_record(setting))
        for one in n.topics.known():
            self.records.put(topic_row(one))
            if len(one.keys) > 0:
                self.records.put(TopicKeys(one.topic, one.queue, one.keys))
        tell_all(n, self.records)  # now: their jobs follow later, in their state at that time
        if n.policy is not None:
            tell_all_tubes(n, tubes_of(n), self.records)
            self.jobs.extend(copies_of(tubes_of(n)))  # T22.1
        self.jobs.reverse()  # they leave the list with their slices: to free all takes long
        for name, app in n.staging.apps.items():
            self.records.put(AppRow(app.version, app.used_ms, name))
        self.attempts: list[tuple[Attempt, list[Staged]]] = [
            (a, a.jobs.copy()) for a in n.staging.attempts()
        ]
        self.attempt_pos: i64 = 0
        self.staged_pos: i64 = 0  # in that attempt
        self.keys: list[tuple[bytes, Kept]] = list(n.keys.kept.items())
        self.unsafe: dict[bytes, None] = {
            id: None for id in n.keys.pending if n.adding[id].job.flags & EXTERNAL
        }
        self.key_pos: i64 = 0
        self.outcomes = OutcomeWalk(n)

    def slice(self, n: Node, most: i64) -> bytes:
        """Records of up to `most` jobs, about 1 MB at most; b"" at the end.

        A job that waits for copies gets its own record later, when it has them, unless the
        journal has it already.
        """
        records = self.records
        jobs = self.jobs
        left = most
        self.job_count = 0
        while left > 0 and len(jobs) > 0 and records.size() < SLICE_BYTES:
            job = jobs.pop()
            left -= 1
            if isinstance(job, Task):
                if tell_task_of(tubes_of(n), job, records):
                    self.job_count += 1
            elif n.jobs.get(job.id) is job and is_recorded_here(n, job):
                records.add(job)
                life = life_of(n, job.id)
                if life is not None:
                    records.life(job.id, life)
                self.job_count += 1
        if len(jobs) == 0:
            self.tell_tombs(n, most)
            self.tell_attempts(most)
            self.record_keys(most)
            self.outcomes.tell(n, self.records, most, SLICE_BYTES)
        self.record_count = records.count
        return records.take()

    def tell_tombs(self, n: Node, most: i64) -> None:
        """Record up to `most` tombstones that only their end or another node's message removes."""
        end = self.tomb_pos + most
        if end > len(self.tombs):
            end = len(self.tombs)
        while self.tomb_pos < end:
            id = self.tombs[self.tomb_pos]
            self.tomb_pos += 1
            bucket = n.tombs.ids.get(id)
            if bucket is not None:
                self.records.tomb(id, bucket.end_ms, bucket.kind)

    def tell_attempts(self, most: i64) -> None:
        """Record up to `most` staged jobs, of those staged at the start (Z6.4)."""
        left = most
        while left > 0 and self.attempt_pos < len(self.attempts):
            a, jobs = self.attempts[self.attempt_pos]
            if self.staged_pos == len(jobs):
                self.attempt_pos += 1
                self.staged_pos = 0
                continue
            if self.records.size() >= SLICE_BYTES:
                return
            tell_staged(self.records, a, self.staged_pos, jobs[self.staged_pos])
            self.staged_pos += 1
            left -= 1

    def record_keys(self, most: i64) -> None:
        """Record up to `most` keys as of the start: their jobs are in the snapshot.

        Those whose job waited for all its copies elsewhere are recorded when it has them.
        """
        end = self.key_pos + most
        if end > len(self.keys):
            end = len(self.keys)
        while self.key_pos < end:
            full, kept = self.keys[self.key_pos]
            self.key_pos += 1
            if kept.id not in self.unsafe:
                record_key(self.records, full, kept.id, kept.until_ms)

    def is_done(self) -> bool:
        """Whether everything was written."""
        if len(self.jobs) > 0 or self.tomb_pos < len(self.tombs):
            return False
        if self.attempt_pos < len(self.attempts) or self.key_pos < len(self.keys):
            return False
        return self.outcomes.is_done()


def is_recorded_here(n: Node, job: Job) -> bool:
    """Whether the job belongs into the journal, though it may wait for copies (Z3.1, Z4.8)."""
    if job.state != WAIT_REPL:
        return True
    adding = n.adding.get(job.id)
    return adding is not None and (adding.publishing is not None or is_recorded(n, job))
