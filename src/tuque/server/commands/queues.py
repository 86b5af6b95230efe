"""SHOW, QLEN, QSTAT, QPEEK, PAUSE, QSCAN, JSCAN: arguments, and replies from core (SPEC S, P)."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tuque.core.copies.federation import pause_queue
from tuque.core.model.job import ACKED, Job
from tuque.core.model.task import READY, Task
from tuque.core.model.timers import REPLY_BYTES, TURN_WORK
from tuque.core.model.work import (
    NO_RUN,
    Failure,
    Life,
    attempt_of,
)
from tuque.core.node.node import Node
from tuque.core.node.queue import PAUSE_IN, PAUSE_NAMES, PAUSE_OUT
from tuque.core.queues.ends import life_of
from tuque.core.queues.views import job_matches, peeked, qstat, queue_matches, show
from tuque.server.access.tenant import check_queues
from tuque.server.commands.jobs import check_ids, check_room
from tuque.server.commands.tube_slices import Walk
from tuque.server.replies.long_commands import begin
from tuque.server.replies.redirects import check_queue
from tuque.server.state.client import Client, LongCommand
from tuque.server.state.server import Server
from tuque.tubes.model.tube import Tube
from tuque.wire.commands.arguments import (
    NOT_INT,
    ArgError,
    Misuse,
    ScanSpec,
    header_pairs,
    scan_options,
)
from tuque.wire.proto.resp import NULL_ARRAY, Status, bulk_head, put_bulk, put_value, strict_int

RUN_NAMES: Final = [b"", b"running", b"released", b"failed"]
DEAD_SUFFIX: Final = b".dead"
LOOKS_PER_MATCH: Final = 10  # elements visited per element asked for, at most
LOOKS: Final = 4  # tasks visited per unit of work
SHOWN_WORK: Final = 20  # units of work to write all of a job
NO_LIMIT: Final = 1 << 60


def cmd_show(s: Server, c: Client, args: list[bytes]) -> None:
    """[S1] SHOW id."""
    check_ids(s, args, 1)
    job = s.n.jobs.get(args[1])
    c.reply(None if job is None else shown_job(s.n, c, job))


def shown_job(n: Node, c: Client, job: Job) -> list[object]:
    """[S1] SHOW: the fields of Disque, then what this node knows of deliveries and work (S1.3)."""
    fields = show(n, job)
    if c.is_tenant() and fields["queue"] is not None:
        fields["queue"] = c.named(job.queue)
    if isinstance(job, Task) or job.state == ACKED:
        return flat(fields)
    if job.delivered_count > 0:
        fields["deliveries"] = int(job.delivered_count)
        fields["first-delivery"] = int(job.first_ms)
        fields["last-delivery"] = int(job.last_ms)
    life = life_of(n, job.id)
    if life is not None:
        put_work(c, fields, job, life)
    return flat(fields)


def put_work(c: Client, fields: dict[str, object], job: Job, life: Life) -> None:
    """Terms, headers, the newest run and the failures that are kept (S1.4)."""
    terms = life.terms
    fields["headers"] = header_pairs(life.headers)
    fields["attempts"] = int(terms.attempts)
    fields["backoff"] = [int(terms.first_ms), int(terms.max_ms), int(terms.jitter)]
    home = life.origin if life.is_dead else job.queue
    fields["dead"] = c.named(terms.dead if len(terms.dead) > 0 else home + DEAD_SUFFIX)
    fields["keep"] = int(terms.keep_ms)
    fields["keep-body"] = 1 if terms.keeps_body else 0
    fields["time-limit"] = int(terms.limit_ms)
    fields["on-expiry"] = b"drop" if terms.drops else b"dead"
    fields["failed"] = int(life.failed)
    fields["crashes"] = int(life.crashes)
    fields["starts"] = int(life.starts)
    run: list[object] | None = None
    if life.run != 0 and life.run_state != NO_RUN:
        state = RUN_NAMES[life.run_state]
        run = [state, int(attempt_of(life.run)), c.named(life.worker), int(life.since_ms)]
    fields["run"] = run
    fields["first-failure"] = failure_row(c, life.first)
    fields["last-failure"] = failure_row(c, life.last)


def failure_row(c: Client, failure: Failure | None) -> list[object] | None:
    """A failed attempt as SHOW has it; null without one."""
    if failure is None:
        return None
    return [
        int(failure.at_ms),
        int(failure.attempt),
        c.named(failure.worker),
        failure.cause,
        failure.reason,
    ]


def cmd_qlen(s: Server, c: Client, args: list[bytes]) -> None:
    """[S2] QLEN queue."""
    check_queue(s, args[1])  # T17.3
    q = s.n.queues.get(args[1])
    c.reply(0 if q is None else int(q.length))


def cmd_qstat(s: Server, c: Client, args: list[bytes]) -> None:
    """[S2] QSTAT queue."""
    check_queue(s, args[1])
    q = s.n.queues.get(args[1])
    if q is None:
        c.reply(NULL_ARRAY)
        return
    fields = qstat(s.n, q)
    if isinstance(q, Tube):
        fields["type"] = q.type  # S2.3
    fields["name"] = c.named(q.name)
    c.reply(flat(fields))


def cmd_qpeek(s: Server, c: Client, args: list[bytes]) -> None:
    """[S3] QPEEK queue count."""
    count = strict_int(args[2])
    if count is None:
        raise ArgError(NOT_INT)
    check_queue(s, args[1])
    count = max(-TURN_WORK, min(TURN_WORK, count))  # S3.2
    q = s.n.queues.get(args[1])
    if isinstance(q, Tube) and count != 0:
        begin(s, c, Peek(s, c, q, count))
        return
    jobs: list[Job] = []
    if q is not None and count != 0:
        jobs = q.peek(count) if count > 0 else q.peek_last(-count)
    rows = peeked(jobs)
    s.n.work += len(rows)
    reply_peeked(c, rows)


def reply_peeked(c: Client, rows: list[object]) -> None:
    """Reply to QPEEK."""
    if c.is_tenant():
        for row in rows:
            rename(c, row, 0)
    c.reply(rows)


@final
class Peek(LongCommand):
    """[S3] QPEEK of a tube: its first tasks, or its last ones, and the plain jobs behind them.

    The first ones are found in the orders of the tube. Otherwise it looks at all tasks, in slices.
    """

    def __init__(self, s: Server, c: Client, tube: Tube, count: i64) -> None:
        super().__init__(c)
        self.s = s
        self.client = c
        self.tube = tube
        self.most: i64 = count if count > 0 else -count
        self.is_last = count < 0
        self.walk: Walk | None = None
        self.found: list[Task] = []

    def step(self, room: i64) -> bool:
        """Look at the next tasks; keep those that come first."""
        n, tube = self.s.n, self.tube
        check_queue(self.s, tube.name)  # T17.3
        if n.queues.get(tube.name) is not tube:
            return True
        walk = self.walk
        if walk is None:
            if not self.is_last:
                tasks, looked = tube.first_tasks(self.most, room * LOOKS)
                n.work += looked // LOOKS
                if tasks is not None:
                    self.found = tasks
                    return True
            walk = self.walk = Walk(tube, READY, self.most, self.is_last)
        is_done = walk.step(room)
        n.work += walk.work
        walk.work = 0
        if is_done:
            self.found = walk.found()
        return is_done

    def tell(self) -> None:
        """Reply with those that are still READY."""
        tube = self.tube
        tasks = [one for one in self.found if one.status == READY]
        if self.is_last:
            jobs = tube.last_plain(self.most)
            jobs.extend(tasks[: self.most - len(jobs)])
        else:
            jobs = tube.with_plain(tasks, self.most)
        rows = peeked(jobs)
        self.s.n.work += len(rows)
        reply_peeked(self.client, rows)


def cmd_pause(s: Server, c: Client, args: list[bytes]) -> None:
    """[P1] PAUSE queue in|out|all|none|state|bcast ..."""
    bits = 0
    is_changed = False
    is_bcast = False
    for word in args[2:]:
        option = word.lower()
        if option == b"state":
            continue
        if option == b"bcast":
            is_bcast = True
            continue
        is_changed = True
        if option == b"in":
            bits |= PAUSE_IN
        elif option == b"out":
            bits |= PAUSE_OUT
        elif option == b"all":
            bits |= PAUSE_IN | PAUSE_OUT
        elif option == b"none":
            bits = 0  # P1.2
        else:
            raise Misuse(word)  # P1.1
    check_queue(s, args[1])
    q = s.n.queues.get(args[1])
    if not is_changed and q is not None:
        bits = q.pause
    if is_changed or is_bcast:
        if bits != 0:
            check_queues(s, c.user, [args[1]])
            check_room(s.n, [args[1]])  # V1.7
        pause_queue(s.n, args[1], bits, is_bcast)  # P1.3, P1.5, P1.6, P1.7
    q = s.n.queues.get(args[1])
    c.reply(Status(PAUSE_NAMES[0 if q is None else q.pause].decode()))  # P1.4


def rename(c: Client, row: object, at: int) -> None:
    """[N10] Name the queue in a row as the client's user knows it (N10.2)."""
    if isinstance(row, list) and isinstance(row[at], bytes):
        row[at] = c.named(row[at])


def flat(fields: dict[str, object]) -> list[object]:
    """Names and values in turn: such replies are not maps, not even in RESP3 (C6.1)."""
    items: list[object] = []
    for name, value in fields.items():
        items.append(name)
        items.append(value)
    return items


# ---- QSCAN and JSCAN walk over queues and jobs in slices (SPEC S4, S5)
#
# The cursor is a position in the node's list of jobs or of queues. The walk runs from the end to
# the start (core/node/tables.py): it starts without a pass over all elements, keeps no state
# between calls, and returns every element that is present throughout at least once.


@final
class Scan(LongCommand):
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
