"""QSCAN and JSCAN: walk over queues and jobs in slices (SPEC S4, S5).

The cursor is a position in the node's list of jobs or of queues. The walk runs from the end to the
start (core/node/tables.py): it starts without a pass over all elements, keeps no state between
calls, and returns every element that is present throughout at least once.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.timers import REPLY_BYTES
from tuque.core.queues.views import job_matches, queue_matches
from tuque.server.commands.views import shown_job
from tuque.server.replies.chores import begin
from tuque.server.state.chore import Chore
from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.tubes.model.tube import Tube
from tuque.wire.commands.arguments import ScanSpec, scan_options
from tuque.wire.proto.resp import bulk_head, put_bulk, put_value

LOOKS_PER_MATCH: Final = 10  # elements visited per element asked for, at most
SHOWN_WORK: Final = 20  # units of work to write all of a job
NO_LIMIT: Final = 1 << 60


@final
class Scan(Chore):
    """One call and its results so far."""

    def __init__(self, s: Server, c: Client, spec: ScanSpec, is_jobs: bool) -> None:
        super().__init__(c)
        self.s = s
        self.client = c
        self.spec = spec
        self.is_jobs = is_jobs
        self.pos: i64 = len(s.n.job_list) if is_jobs else len(s.n.queue_list)
        if 0 < spec.cursor < self.pos:
            self.pos = spec.cursor
        self.most: i64 = NO_LIMIT if spec.busy_loop else spec.count
        self.looks: i64 = NO_LIMIT
        if self.most < NO_LIMIT // LOOKS_PER_MATCH:
            self.looks = self.most * LOOKS_PER_MATCH
        self.found: i64 = 0
        self.out: list[bytes] = []

    def step(self, room: i64) -> bool:
        """[S4, S5] Continue towards the start of the list."""
        n = self.s.n
        size: i64 = len(n.job_list) if self.is_jobs else len(n.queue_list)
        if self.pos > size:
            self.pos = size  # the list has shrunk
        until = n.work + room
        while self.pos > 0:
            if self.found >= self.most or self.looks <= 0 or self.bytes_used > REPLY_BYTES:
                return True
            if n.work >= until:
                return False
            n.work += 1
            self.pos -= 1
            self.looks -= 1
            if self.is_jobs:
                self.look_at_job(self.pos)
            else:
                self.look_at_queue(self.pos)
        return True

    def look_at_job(self, at: i64) -> None:
        """Keep the job's id, or all its fields, if it passes the filters."""
        n = self.s.n
        job = n.job_list[at]
        spec = self.spec
        if not job_matches(job, spec.queue, spec.states) or not self.client.sees(job.queue):
            return
        self.found += 1
        if spec.reply_all:
            row: list[bytes] = []
            put_value(row, shown_job(n, self.client, job), self.client.resp3)
            self.out.append(b"".join(row))
            n.work += SHOWN_WORK
            self.bytes_used += max(1_000 + len(job.body) + len(job.queue), len(self.out[-1]))
        else:
            self.out.append(b"+%s\r\n" % job.id)
            self.bytes_used += 80

    def look_at_queue(self, at: i64) -> None:
        """Keep the queue's name if it passes the filters."""
        q = self.s.n.queue_list[at]
        spec = self.spec
        type = q.type if isinstance(q, Tube) else b""
        if spec.type is not None and spec.type != type:
            return  # S4.3
        if not self.client.sees(q.name):
            return  # N2.5
        if queue_matches(self.s.n, q, spec.min_len, spec.max_len, spec.import_rate):
            self.found += 1
            put_bulk(self.out, self.client.named(q.name))
            self.bytes_used += 80 + len(q.name)

    def tell(self) -> None:
        """Reply with the next cursor (0: done) and the matches."""
        cursor = b"%d" % self.pos
        out = self.client.out
        out.append(b"*2\r\n%s%s\r\n*%d\r\n" % (bulk_head(len(cursor)), cursor, self.found))
        out.append(b"".join(self.out))


def cmd_qscan(s: Server, c: Client, args: list[bytes]) -> None:
    """[S4] QSCAN: names of queues."""
    begin(s, c, Scan(s, c, scan_options(args, False), False))


def cmd_jscan(s: Server, c: Client, args: list[bytes]) -> None:
    """[S5] JSCAN: jobs as ids, or with all fields."""
    begin(s, c, Scan(s, c, scan_options(args, True), True))
