"""One queue: the order of its jobs, waiting clients, its pause and its counters (SPEC G, V, P).

Ready jobs are in the order of (level, ctime, id), which is that of arrival where all have the same
PRI: but for those that come back (a retry, a NACK). A job may leave anywhere.

A queue may have a policy of its own: the core calls its hooks for a Task, or for a queue whose
`policy` is set, in place of the rules G, R, V, Q and A. The core does not know tubes, and
tubes/policy.py is the only policy (SPEC T). It is also the placement of their work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.job import Job
from tuque.core.model.rows import Rows
from tuque.core.model.stats import NO_TALLY
from tuque.core.model.task import Task
from tuque.core.msgs.bus import TubeMessage
from tuque.core.tables.repair import Demand

if TYPE_CHECKING:
    from tuque.core.model.errors import Refusal
    from tuque.core.model.job import AddSpec, Update
    from tuque.core.model.work import Life, Outcome
    from tuque.core.node.node import Node

PAUSE_IN: Final = 1
PAUSE_OUT: Final = 2
PAUSE_BCAST: Final = 4  # in the journal: it was broadcast to all nodes
QUEUE_BYTES: Final = 750  # an empty queue: its object, lists, table entries
PAUSE_NAMES: Final = [b"none", b"in", b"out", b"all"]

# whether a node may show how a task ended (T48.6)
SHOWN: Final = 0
NOT_YET: Final = 1  # too few nodes have it
AWAY: Final = 2  # the leader knows


@final
@mypyc_attr(acyclic=True)
class Arrivals(Rows):
    """Jobs by their level, those of one level the oldest first (G3.2)."""

    def before(self, a: object, b: object) -> bool:
        """Whether the job `a` comes first."""
        one = cast("Job", a)
        other = cast("Job", b)
        if one.level != other.level:
            return one.level < other.level
        if one.ctime_ns != other.ctime_ns:
            return one.ctime_ns < other.ctime_ns
        return one.id < other.id

    def first_above(self, level: i64) -> Job | None:
        """The first job that goes after all of that level, None if there is none."""
        last = self.last()
        if last is None or i64(cast("Job", last).level) <= level:
            return None
        rows = self.rows
        low: i64 = 0
        high: i64 = len(rows)
        while low < high:
            middle = (low + high) >> 1
            if i64(cast("Job", rows[middle][0]).level) > level:
                high = middle
            else:
                low = middle + 1
        at = low - 1
        row = self.items if at < 0 else rows[at]
        low = self.head if at < 0 else 0
        high = len(row)
        while low < high:
            middle = (low + high) >> 1
            if i64(cast("Job", row[middle]).level) > level:
                high = middle
            else:
                low = middle + 1
        return cast("Job", row[low] if low < len(row) else rows[at + 1][0])


class Queue:
    """Jobs of one name on this node. Tube types specialise it."""

    def __init__(self, name: bytes, serial: i64, now_ms: i64) -> None:
        self.name = name
        self.serial = serial  # order of creation on this node
        self.place: i64 = -1  # in the node's table, see core/node/tables.py
        self.ctime_ms: i64 = now_ms
        self.atime_ms: i64 = now_ms  # last enqueue or fetch
        self.check_ms: i64 = 0  # when it is looked whether it is idle (M4.1)
        self.jobs = Arrivals()
        self.length: i64 = 0
        self.pause: i64 = 0
        self.jobs_in: i64 = 0
        self.jobs_out: i64 = 0
        self.waiters: dict[int, None] = {}  # client numbers, first come first
        self.is_ready = False  # in n.ready
        self.policy: Policy | None = None  # set for a tube
        self.demand: Demand | None = None  # its entry in n.demands, if any
        self.tally = NO_TALLY  # its own, once it is in the table
        self.reply_head = b"*3\r\n$%d\r\n%s\r\n$40\r\n" % (len(name), name)
        self.reply_name = b"$%d\r\n%s\r\n$40\r\n" % (len(name), name)  # of longer replies

    def push(self, job: Job) -> None:
        """Insert a job whose state is QUEUED already, and that is not here."""
        self.jobs.add(job)
        self.length += 1

    def pop(self) -> Job | None:
        """Take the first job, None if there is none. The caller changes its state."""
        job = self.first()
        if job is not None:
            self.jobs.drop_top()
            self.length -= 1
        return job

    def first(self) -> Job | None:
        """The job that `pop` would take."""
        jobs = self.jobs
        return cast("Job", jobs.items[jobs.head]) if jobs.count > 0 else None

    def next_ones(self) -> list[Job]:
        """What goes next, for figures: the first job of each level; in a tube others (S2.4)."""
        found: list[Job] = []
        job = self.first()
        while job is not None:
            found.append(job)
            job = self.jobs.first_above(i64(job.level))
        return found

    def left(self, job: Job) -> None:
        """A queued job left out of order; its state has changed already."""
        self.jobs.remove(job)
        self.length -= 1

    def peek(self, most: i64) -> list[Job]:
        """The first `most` jobs in order, without changes; reads no others."""
        return self.jobs.firsts(most)

    def peek_last(self, most: i64) -> list[Job]:
        """The last `most` jobs, newest first, without changes; reads no others."""
        return self.jobs.lasts(most)


def queue_bytes(q: Queue) -> i64:
    """Bytes the queue costs, without jobs and clients; its name is stored four times."""
    return QUEUE_BYTES + 4 * len(q.name)


# ---- Where the work of a job is kept, and who must agree (SPEC W, T48)

# what has changed in the work that a placement saves
FLAG: Final = 0  # it is cancelled
SAME_FLAG: Final = 1  # the same, once more
COUNT: Final = 2  # of deliveries that nobody began; the job goes back after that
CHANGE: Final = 3  # by UPDATEJOB, the job as well


class Placement:
    """Hooks of the work of a job: of its holders (core/life/holders.py), or of the leader of its
    tube. What each event does to the work itself is in core/work.
    """

    def where(self, n: Node, job: Job, client: i64) -> i64:
        """START: SCHEDULED, WAITING or DELIVERED (core/work/rules.py); below 0, the code of the
        error why this client begins no run, whatever the work of the job.
        """
        raise AssertionError("no placement")

    def begin(self, n: Node, job: Job, work: Life, worker: bytes, client: i64) -> None:
        """A run begins, with a new token: that is counted, recorded, and sent."""
        raise AssertionError("no placement")

    def known_run(
        self, n: Node, job: Job, run: i64, client: i64
    ) -> tuple[Life | None, Refusal | None]:
        """The work, if that run is at work, or may be and is not known here."""
        raise AssertionError("no placement")

    def extend(self, n: Node, job: Job, work: Life) -> None:
        """The run at work has its whole time again."""
        raise AssertionError("no placement")

    def out_ms(self, n: Node, job: Job) -> i64:
        """When a worker got the job, which it has still; -1: nobody has it."""
        raise AssertionError("no placement")

    def over_ms(self, n: Node, job: Job, work: Life | None) -> i64:
        """TIMER: until when the delivery or its run lasts at least, since nobody could hear of it
        for a part of its time.
        """
        raise AssertionError("no placement")

    def put_off(self, n: Node, job: Job, work: Life | None, due_ms: i64) -> None:
        """The delivery or its run lasts until then."""
        raise AssertionError("no placement")

    def ends_ms(self, n: Node, job: Job) -> i64:
        """When the job expires if no run of it lasts."""
        raise AssertionError("no placement")

    def may_release(self, n: Node, job: Job, run: i64, client: i64) -> bool:
        """Whether RELEASE of that run may give the job back."""
        raise AssertionError("no placement")

    def give_back(self, n: Node, job: Job, work: Life | None, delay_ms: i64, cause: i64) -> None:
        """The run is over, and another one may begin: now or after the delay."""
        raise AssertionError("no placement")

    def bury(self, n: Node, job: Job, work: Life, cause: bytes) -> None:
        """The job is a dead letter."""
        raise AssertionError("no placement")

    def expire(self, n: Node, job: Job) -> None:
        """The time of the job is over, and it is no dead letter."""
        raise AssertionError("no placement")

    def end(self, n: Node, job: Job) -> None:
        """The job was cancelled; its work has left the tables."""
        raise AssertionError("no placement")

    def may_change(self, n: Node, job: Job, update: Update) -> i64:
        """UPDATEJOB: the code of an error that only this placement has; 0: none."""
        raise AssertionError("no placement")

    def change(self, n: Node, job: Job, update: Update) -> Job:
        """UPDATEJOB: pri, time to live and delay; returns the record of the job, maybe a new one.
        May raise, and nothing has changed then.
        """
        raise AssertionError("no placement")

    def save(self, n: Node, job: Job, work: Life | None, what: i64) -> None:
        """The work has changed: FLAG, SAME_FLAG, COUNT or CHANGE."""
        raise AssertionError("no placement")

    def frees(self, n: Node, job: Job, is_back: bool) -> bool:
        """Whether the dead letter may change here now; `is_back`: for a run at its old place."""
        raise AssertionError("no placement")

    def send_on(self, n: Node, job: Job, work: Life, queue: bytes) -> bool:
        """REPLAY to that queue: the letter ends, and its body is a new job there. False: the job
        itself moves.
        """
        raise AssertionError("no placement")

    def revive(self, n: Node, job: Job, work: Life, queue: bytes) -> None:
        """The job, no dead letter any more, waits in that queue; empty: where it came from."""
        raise AssertionError("no placement")

    def purge(self, n: Node, job: Job) -> None:
        """The dead letter is deleted."""
        raise AssertionError("no placement")


# ---- What a queue with a policy of its own does (SPEC T)


class Policy(Placement):
    """Hooks. `bytes_used`: the policy's memory besides its tasks (M1)."""

    def __init__(self) -> None:
        self.bytes_used: i64 = 0
        self.put_bytes: i64 = 0  # of them, those of puts that wait for room

    def refusal(self, n: Node, q: Queue, spec: AddSpec) -> Refusal | None:
        """Why ADDJOB is refused; None if it is not. The policy may raise reasons of its own."""
        raise AssertionError("no policy")

    def unheard(self, n: Node) -> Refusal | None:
        """Why an unknown name may be that of a tube elsewhere; None: it is not."""
        raise AssertionError("no policy")

    def add(self, n: Node, q: Queue, body: bytes, spec: AddSpec) -> Job:
        """ADDJOB, accepted: returns the new task."""
        raise AssertionError("no policy")

    def repeat(self, n: Node, q: Queue) -> None:
        """ADDJOB with a key that is kept: the reply waits as that of the first one did. Raises if
        this node may not answer.
        """
        raise AssertionError("no policy")

    def keep_key(self, n: Node, queue: bytes, full: bytes) -> None:
        """A job was added with this key, to any queue."""
        raise AssertionError("no policy")

    def take(self, n: Node, q: Queue, client: i64) -> Task | None:
        """GETJOB, or serving a waiting client: the first task that can be taken."""
        raise AssertionError("no policy")

    def has_older(self, q: Queue) -> bool:
        """Whether plain jobs are there that go before the tasks."""
        raise AssertionError("no policy")

    def ack(self, n: Node, task: Task, client: i64) -> bool:
        """ACKJOB, FASTACK; False: the client may not finish it."""
        raise AssertionError("no policy")

    def nack(self, n: Node, task: Task, delay_ms: i64, client: i64) -> bool:
        """NACK; False: the client may not release it."""
        raise AssertionError("no policy")

    def working(self, n: Node, task: Task, client: i64) -> Refusal | None:
        """WORKING; raises if the client may not extend it."""
        raise AssertionError("no policy")

    def enqueue(self, n: Node, task: Task) -> bool:
        """ENQUEUE; False: no change."""
        raise AssertionError("no policy")

    def set_pri(self, n: Node, task: Task, pri: i64) -> bool:
        """UPDATEJOB PRI; False: the task is gone. Raises if the type has no priorities."""
        raise AssertionError("no policy")

    def present(self, n: Node, task: Task) -> Task | None:
        """The task after what was due for it; None: it is gone. Raises if another node leads it."""
        raise AssertionError("no policy")

    def keys_of(self, task: Task) -> dict[str, object] | None:
        """The keys of the task, for SHOW; None: it has a sub-queue instead."""
        raise AssertionError("no policy")

    # runs of tasks (T48)

    def has_copy(self, id: bytes) -> bool:
        """Whether this node has a copy of the task, which another node may deliver."""
        raise AssertionError("no policy")

    def takes_work(self, q: Queue) -> bool:
        """Whether ADDJOB takes options about the work of its tasks."""
        raise AssertionError("no policy")

    def has_runs(self, task: Task) -> bool:
        """Whether the words of chapter W that begin and end runs are for this task."""
        raise AssertionError("no policy")

    def what_is(self, task: Task) -> bytes:
        """What the task is, and what to use, if it is no job; else b""."""
        raise AssertionError("no policy")

    def fail_take(
        self, n: Node, task: Task, delay_ms: i64, is_final: bool, client: i64
    ) -> tuple[i64, i64, Refusal | None]:
        """FAIL of a task that has no runs: what became of it, the wait in ms; or a refusal."""
        raise AssertionError("no policy")

    def shows(self, n: Node, outcome: Outcome) -> i64:
        """Whether this node may show how a task ended: one of SHOWN, NOT_YET, AWAY (T48.6)."""
        raise AssertionError("no policy")

    def has_replicas(self, n: Node, tubes: list[tuple[bytes, int, int]]) -> bool:
        """Whether enough nodes have these changes: of each the tube, epoch and number (T18.5)."""
        raise AssertionError("no policy")

    def ack_claimed(self, n: Node, task: Task) -> bool:
        """ACKJOB or DONE that came to a node without the task (T1.12); False: not now."""
        raise AssertionError("no policy")

    def may_cancel(self, n: Node, task: Task, is_asked: bool) -> bool:
        """Whether CANCEL may change the task now; raises if a client is to have the reason.
        `is_asked`: another node or a group asks.
        """
        raise AssertionError("no policy")

    # dead letters (T48)

    def shows_death(self, n: Node, task: Task) -> bool:
        """Whether clients may see that the task is dead: enough nodes know it."""
        raise AssertionError("no policy")

    def detail_of(self, n: Node, task: Task) -> bytes:
        """The detail of the last failure of the task."""
        raise AssertionError("no policy")

    def key_holder(self, n: Node, task: Task) -> bytes:
        """The id of another task that has the unique key of a dead one; empty: it is free."""
        raise AssertionError("no policy")

    def delete(self, n: Node, task: Task) -> None:
        """DELJOB."""
        raise AssertionError("no policy")

    def finish(self, n: Node, task: Task) -> None:
        """DEADLETTER: finish the task, whoever holds it; the event is written."""
        raise AssertionError("no policy")

    def forget(self, n: Node, task: Task) -> None:
        """The task leaves the table (G2): remove it from its tube."""
        raise AssertionError("no policy")

    def restore(self, n: Node, task: Task) -> bool:
        """Restore a task from the journal; False: expired, or already here."""
        raise AssertionError("no policy")

    def on_timer(self, n: Node, task: Task) -> None:
        """The task's timer fired."""
        raise AssertionError("no policy")

    def tick(self, n: Node) -> None:
        """Run what else is due."""
        raise AssertionError("no policy")

    def next_ms(self, n: Node) -> i64:
        """The instant at which `tick` next has work; FAR: never."""
        raise AssertionError("no policy")

    def on_pause(self, n: Node, q: Queue) -> None:
        """PAUSE has changed the queue's state."""
        raise AssertionError("no policy")

    def flush(self, n: Node) -> None:
        """Drop everything (S7.1)."""
        raise AssertionError("no policy")

    def is_counted(self, q: Queue) -> bool:
        """Whether the queue's length equals its number of queued jobs."""
        raise AssertionError("no policy")

    def check(self, n: Node) -> None:
        """Assert that all tables agree (`DEBUG CHECK`)."""
        raise AssertionError("no policy")

    # the cluster (T17 to T22)

    def on_message(self, n: Node, slot: i64, m: TubeMessage) -> None:
        """A peer sent a message about tubes."""
        raise AssertionError("no policy")

    def on_link_up(self, n: Node, slot: i64) -> None:
        """A link came up."""
        raise AssertionError("no policy")

    def on_link_down(self, n: Node, slot: i64) -> None:
        """A link went down."""
        raise AssertionError("no policy")

    def on_reach(self, n: Node) -> None:
        """The set of reachable nodes, or of the cluster's, changed."""
        raise AssertionError("no policy")

    def on_standstill(self, n: Node) -> bool:
        """The process stood still. True if this node led tubes: others may lead them now."""
        raise AssertionError("no policy")

    def turn_end(self, n: Node) -> None:
        """The turn ends: send its changes to other nodes. The shell calls it."""
        raise AssertionError("no policy")

    def after_load(self, n: Node) -> None:
        """The journal is loaded."""
        raise AssertionError("no policy")

    def drain_left(self, n: Node) -> i64:
        """What must go, besides tasks, before the node is safe to stop (K7.3)."""
        raise AssertionError("no policy")

    def set_stopping(self, n: Node, is_stopping: bool) -> None:
        """The node stops by plan, or does not (K9)."""
        raise AssertionError("no policy")

    def tubes_to_move(self, n: Node) -> i64:
        """Tubes led here that others are to lead before a stop by plan (K9.2)."""
        raise AssertionError("no policy")
