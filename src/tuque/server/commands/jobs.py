"""Commands on jobs named by ids; what GETJOB adds to its jobs (SPEC A, Q, V1.3, W11, W17).

ACKJOB, FASTACK, DELJOB, NACK, ENQUEUE, DEQUEUE: all ids are checked before anything changes (C4.3).
With many ids, both passes take several turns (L2.2).
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.copies.ack import (
    ack_job,
    on_ackjob,
    on_deljob,
    on_fastack,
)
from tuque.core.copies.ack_gc import on_unknown_ack, on_unknown_fastack
from tuque.core.life.outcomes import on_enqueue_of
from tuque.core.life.runs import on_nack_of
from tuque.core.life.start import begin_delivered
from tuque.core.model.errors import ABOVE_ALL, FULL, NOTHING_IN_WAY
from tuque.core.model.job import Job
from tuque.core.model.job_id import is_job_id, of_url
from tuque.core.model.task import Task
from tuque.core.model.work import Life, run_text
from tuque.core.node.node import WITH_COUNTERS, WITH_META, WITH_RUN, Node
from tuque.core.queues.ends import life_of
from tuque.core.queues.procedures import in_way_text, memory_level, policy_of
from tuque.core.queues.requeue import on_dequeue
from tuque.core.repair.drain import make_room
from tuque.server.access.rights import deny_queue
from tuque.server.access.tenant import hide_ids
from tuque.server.replies.errors import error_words
from tuque.server.replies.long_commands import begin
from tuque.server.replies.redirects import check_strange, check_tasks
from tuque.server.state.client import LARGE_BYTES, NONE_HANDED, Client, LongCommand
from tuque.server.state.server import Server
from tuque.server.state.workers import run_field
from tuque.wire.commands.arguments import (
    HEADER_MAX,
    ArgError,
    Misuse,
    header_pairs,
    seconds_ms,
)
from tuque.wire.commands.bound import ELSEWHERE, GROWS, JOBS
from tuque.wire.proto.resp import array_head, bulk_head, int_reply, put_bulk

BADID: Final = b"BADID Invalid Job ID format."
EVICT_PER_COMMAND: Final = 1000  # records dropped before one command at most
NOT_ABOVE_ALL: Final = (JOBS, ELSEWHERE, GROWS)
FEW_IDS: Final = 500  # run at once, uncounted
LOOKS: Final = 2  # ids checked per unit of work
DISKFULL: Final = (
    b"DISKFULL the disk of the journal is nearly full: this node takes no more jobs until it has "
    b"room; acknowledge jobs, free space, or use another node"
)

# the rows of these commands in the command table
ACKJOB: Final = 2
FASTACK: Final = 3
DELJOB: Final = 4
NACK: Final = 5
ENQUEUE: Final = 6
DEQUEUE: Final = 7


def check_room(n: Node, queues: list[bytes]) -> None:
    """[V1] When memory is full, no command may create a queue or a group (V1.7).

    `queues`: those that the command would create if missing; none: it creates something else.
    """
    if n.limits.memory_bytes == 0 or n.counted_bytes() <= n.limits.memory_bytes:
        return
    if len(queues) == 0:
        raise ArgError(oom_text(n))
    for name in queues:
        if name not in n.queues:
            raise ArgError(oom_text(n))


def oom_text(n: Node) -> bytes:
    """[M2] The error when memory is used up; it names what alone is in the way (M2.6)."""
    return why_full(n, ABOVE_ALL)


def why_full(n: Node, code: i64) -> bytes:
    """[M2] The error of that code, with what alone is in the way (M2.6)."""
    way = in_way_text(n)
    return error_words(code, (way if len(way) > 0 else NOTHING_IN_WAY,))


def over_memory(n: Node, kind: str) -> bytes:
    """[M2] Why a command of that kind is refused at this level, after eviction (M2.3); b"": it is
    not.
    """
    if memory_level(n) == 0:
        return b""
    if not make_room(n, EVICT_PER_COMMAND):
        return why_full(n, ABOVE_ALL) if kind in NOT_ABOVE_ALL else b""
    return why_full(n, FULL) if kind == JOBS and memory_level(n) > 0 else b""


def bad_id(word: bytes, is_one_of_many: bool) -> ArgError:
    """[G6] The word is no id (G6.3)."""
    if not is_one_of_many:
        return ArgError(BADID)
    return ArgError(b"BADID Invalid Job ID format: '%s'." % word[:HEADER_MAX])


def check_ids(
    s: Server, args: list[bytes], first: i64, step: i64 = 1, is_piece: bool = False
) -> None:
    """Check that every word from `first` on is a job id, and no task led by another node.

    `step` 2: every second one; `is_piece`: more ids belong to the command. Raises before anything
    changes. URL forms are replaced by the plain form.
    """
    check_forms(args, first, step, is_piece)
    if s.n.policy is not None:
        check_tasks(s, args, first, step)  # T17.3


def check_acted(
    s: Server, args: list[bytes], first: i64, step: i64 = 1, is_piece: bool = False
) -> None:
    """As `check_ids`, for a command that changes jobs: nor of a task that only its leader knows."""
    check_ids(s, args, first, step, is_piece)
    check_strange(s, args, first, step)  # T17.8


def check_forms(args: list[bytes], first: i64, step: i64, is_piece: bool = False) -> None:
    """Check that every word from `first` on is a job id, of a job at whatever node."""
    i = first
    while i < len(args):
        if not is_job_id(args[i]):
            word = args[i]
            args[i] = of_url(word)  # G6.6
            if not is_job_id(args[i]):
                raise bad_id(word, is_piece or len(args) - first > step)
        i += step


def job_named(n: Node, id: bytes, handed: list[Job], at: i64) -> Job | None:
    """The job with that id; `handed`: jobs that may be named, this one perhaps at `at`.

    A job that has left the node has no place in its table.
    """
    if at < len(handed):
        job = handed[at]
        if job.id == id and job.place >= 0:
            return job
    return n.jobs.get(id)


def on_id(n: Node, code: i64, id: bytes, client: i64, delay_ms: i64) -> bool:
    """Apply the command to one job; whether that changed something."""
    if code in (ACKJOB, FASTACK):
        is_known = on_ackjob(n, id, client) if code == ACKJOB else on_fastack(n, id, client)
        if not is_known and len(n.peers) > 1 and id not in n.jobs:
            if code == ACKJOB:
                on_unknown_ack(n, client, id)
            else:
                on_unknown_fastack(n, id)
        return is_known
    if code == DELJOB:
        return on_deljob(n, id)
    if code == NACK:
        return on_nack_of(n, id, delay_ms, client)
    return on_enqueue_of(n, id) if code == ENQUEUE else on_dequeue(n, id)


def check_queues(s: Server, c: Client, ids: list[bytes]) -> None:
    """[N2] Raise if the client's user has no right to the queue of one of the jobs (N2.4)."""
    for id in ids:
        job = s.n.jobs.get(id)
        if job is not None and c.user is not None and not c.sees(job.queue):
            raise ArgError(deny_queue(s, c, c.user, job.queue, id))


@final
class Ids(LongCommand):
    """One of these commands, with many ids."""

    def __init__(
        self, s: Server, c: Client, args: list[bytes], first: i64, code: i64, delay_ms: i64
    ) -> None:
        super().__init__(c)
        self.s = s
        self.client = c
        self.args = args
        self.looked = first  # the next word to check
        self.at = first  # the next one to change
        self.code = code
        self.delay_ms = delay_ms
        self.done: i64 = 0

    def step(self, room: i64) -> bool:
        """Check all ids, then apply the command to each."""
        n = self.s.n
        size: i64 = len(self.args)
        if self.looked < size:
            end = min(self.looked + room * LOOKS, size)
            words = self.args[self.looked : end]
            check_acted(self.s, words, 0, 1, True)
            account = self.client.user
            if account is not None and len(account.prefix) > 0:
                hide_ids(self.s, account, words, 0)
            if not self.client.sees_all():
                check_queues(self.s, self.client, words)
            self.args[self.looked : end] = words
            room -= (end - self.looked) // LOOKS
            n.work += (end - self.looked) // LOOKS
            self.looked = end
        if self.looked < size:
            return False
        self.goes_on = True
        end = min(self.at + room, size)
        n.work += max(0, end - self.at)
        while self.at < end:
            if on_id(n, self.code, self.args[self.at], self.client.number, self.delay_ms):
                self.done += 1
            self.at += 1
        return self.at == size

    def tell(self) -> None:
        """Reply how many changed."""
        self.client.out.append(int_reply(self.done))


def cmd_ack(s: Server, c: Client, args: list[bytes], code: i64) -> None:
    """ACKJOB, FASTACK, DELJOB [id ...]: the reply is how many were known (A3, A7.3, A9)."""
    each_id(s, c, args, 1, code, 0)


def each_id(s: Server, c: Client, args: list[bytes], first: i64, code: i64, delay_ms: i64) -> None:
    """Apply the command to every job named; the reply is how many changed."""
    if len(args) > FEW_IDS:
        begin(s, c, Ids(s, c, args, first, code, delay_ms))
        return
    check_acted(s, args, first)
    done: i64 = 0
    handed = c.handed
    i = first
    while i < len(args):
        job = job_named(s.n, args[i], handed, i - first) if code == ACKJOB else None
        if job is not None:
            is_done = ack_job(s.n, job, c.number)
        else:
            is_done = on_id(s.n, code, args[i], c.number, delay_ms)
        if is_done:
            done += 1
        i += 1
    c.handed = NONE_HANDED
    c.out.append(int_reply(done))


def cmd_nack(s: Server, c: Client, args: list[bytes]) -> None:
    """NACK [DELAY sec] [id ...] (Q6.4)."""
    first: i64 = 1
    delay_ms: i64 = 0
    if len(args) > 1 and args[1].upper() == b"DELAY":
        if len(args) == 2:
            raise Misuse(args[1])
        delay_ms = seconds_ms(args[2])
        first = 3
    each_id(s, c, args, first, NACK, delay_ms)


def cmd_enqueue(s: Server, c: Client, args: list[bytes]) -> None:
    """ENQUEUE [id ...] (Q5.2)."""
    each_id(s, c, args, 1, ENQUEUE, 0)


def cmd_dequeue(s: Server, c: Client, args: list[bytes]) -> None:
    """DEQUEUE [id ...] (Q7.2)."""
    each_id(s, c, args, 1, DEQUEUE, 0)


# ---- GETJOB with options: what it adds to each job, and runs that begin (SPEC W11, W17)


def put_more(s: Server, c: Client, jobs: list[Job], extras: i64) -> None:
    """[V1, W11, W17] Each job as queue, id, body, and names and values (V1.3, W11.1, W17.2)."""
    out = c.out
    words = words_of(extras)
    head = array_head(words)
    is_tenant = c.is_tenant()
    for job in jobs:
        work = life_of(s.n, job.id) if extras & WITH_META else None
        has_crashed = work is not None and work.crashes > 0
        out.append(array_head(words + 2) if has_crashed else head)
        if is_tenant:
            name = c.named(job.queue)
            out.append(b"$%d\r\n%s\r\n$40\r\n" % (len(name), name))
        else:
            out.append(s.n.queues[job.queue].reply_name)
        out.append(job.id)
        out.append(b"\r\n")
        out.append(bulk_head(len(job.body)))
        out.append(job.body)
        if len(job.body) > LARGE_BYTES:
            c.has_large = True
        if extras & WITH_RUN:
            put_run(s, c, job)
        else:
            out.append(b"\r\n")
        if extras & WITH_META:
            put_meta(s, c, job, work, extras & WITH_COUNTERS != 0)
        elif extras & WITH_COUNTERS:
            out.append(
                b"$5\r\nnacks\r\n:%d\r\n$21\r\nadditional-deliveries\r\n:%d\r\n"
                % (job.nacks, job.deliveries)
            )


def words_of(extras: i64) -> i64:
    """The size of the array of each job."""
    words: i64 = 3
    if extras & WITH_RUN:
        words += 2
    if extras & WITH_META:
        words += 12
    return words + 4 if extras & WITH_COUNTERS else words


def put_run(s: Server, c: Client, job: Job) -> None:
    """[W17] Begin the run of a job that was just delivered; its token, or null (W17.2, W17.3)."""
    s.n.work += 2
    work = begin_delivered(s.n, job, c.begins_as, c.number)
    if work is None:
        c.out.append(b"\r\n$3\r\nrun\r\n_\r\n" if c.resp3 else b"\r\n$3\r\nrun\r\n$-1\r\n")
        return
    if c.begins_as != c.worker:  # it has a name of its own
        s.workers.note(s.n, c.begins_as, [job.id])
    if isinstance(job, Task):
        c.out.append(run_field(run_text(work.run)))
    else:
        c.out.append(s.tokens.token(work.run).field_of())


def put_meta(s: Server, c: Client, job: Job, work: Life | None, with_counters: bool) -> None:
    """[W11] What a worker wants to know of the job (W11.1)."""
    out = c.out
    attempt: i64 = 1
    of: i64 = 0
    limit_ms: i64 = 0
    headers = b""
    if work is not None:
        attempt = work.failed if work.is_dead else work.failed + 1
        of = work.terms.attempts
        limit_ms = work.terms.limit_ms
        headers = work.headers
    if isinstance(job, Task) and not policy_of(s.n).has_runs(job):
        attempt = 0  # W11.2
    retry_ms = int(job.retry_s) * 1000
    added_ms = int(job.ctime_ns // 1_000_000)
    pairs: list[tuple[bytes, int]] = [
        (b"attempt", int(attempt)),
        (b"of", int(of)),
        (b"retry-ms", retry_ms),
        (b"time-limit-ms", int(limit_ms)),
        (b"added-ms", added_ms),
    ]
    if work is not None and work.crashes > 0:
        pairs.append((b"crashes", int(work.crashes)))
    if with_counters:
        pairs.append((b"nacks", int(job.nacks)))
        pairs.append((b"additional-deliveries", int(job.deliveries)))
    for name, value in pairs:
        put_bulk(out, name)
        out.append(b":%d\r\n" % value)
    put_bulk(out, b"headers")
    words = header_pairs(headers)
    out.append(b"*%d\r\n" % len(words))
    for word in words:
        put_bulk(out, word)
