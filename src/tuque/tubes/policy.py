"""The policy of tubes: core's hooks for tasks, and the timers of tubes (SPEC T1, T6)."""

from heapq import heappop
from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.errors import (
    CANCELLED_JOB,
    DEAD_LETTER,
    DUPLICATE,
    LEAVING,
    MAXLEN,
    NO_COPIES,
    NO_OPTION,
    NO_RETRY_0,
    NOT_TAKEN,
    NOTDELIVERED,
    PAUSED,
    RESTING,
    TUBE_FULL,
    Refusal,
)
from tuque.core.model.job import AddSpec, Job, Update
from tuque.core.model.stats import tenant_of
from tuque.core.model.task import BURIED, BYTES, TAKEN, Task
from tuque.core.model.work import Life, Outcome
from tuque.core.msgs.bus import (
    TubeMessage,
    TubePulse,
    TubeStands,
    TubeVote,
    TubeVoted,
    VotersNext,
    VotersTold,
)
from tuque.core.node.node import Node
from tuque.core.node.queue import PAUSE_IN, Queue
from tuque.core.node.tables import owners
from tuque.core.work import rules
from tuque.core.work.rules import BACK, DIED
from tuque.tubes.election.membership import gives_vote_up
from tuque.tubes.election.voters import lose_right
from tuque.tubes.election.votes import (
    check_votes,
    on_vote_message,
    votes_link_down,
    votes_loaded,
    votes_next_ms,
    votes_tick,
)
from tuque.tubes.entries.keys import is_job
from tuque.tubes.entries.schedule import what_is
from tuque.tubes.leadership.catalog_in import forget_tube
from tuque.tubes.leadership.check import check_homes, check_tube
from tuque.tubes.leadership.controller import (
    has_heir,
    homes_link_down,
    homes_link_up,
    homes_loaded,
    homes_next_ms,
    homes_tick,
    on_tube_message,
)
from tuque.tubes.leadership.restore import restore_task
from tuque.tubes.leadership.switchover import on_standstill
from tuque.tubes.log.catalog import announce
from tuque.tubes.log.leader import (
    has_lease,
    needs_copies,
    needs_home,
    synced,
    unheard_refusal,
)
from tuque.tubes.log.results import shows
from tuque.tubes.log.send import tell_copies, trace_key
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.grants import GRANT_BYTES
from tuque.tubes.model.options import PutDone, PutSpec
from tuque.tubes.model.tube import RUNNING, Tube
from tuque.tubes.model.tubes import PUT_BYTES, SESSION_BYTES, Tubes
from tuque.tubes.tasks import operations
from tuque.tubes.tasks.admin import idle_tick, remove_tube
from tuque.tubes.tasks.operations import (
    held_count,
    job_of,
    keys_loaded,
    keys_refusal,
    replace_body,
    same_task,
    shown_keys,
)
from tuque.tubes.tasks.sessions import session_for, sessions_tick
from tuque.tubes.tasks.timers import on_task_timer
from tuque.tubes.values import next_sweep_ms, sweep
from tuque.tubes.work import dead_letters, leader, transitions
from tuque.tubes.work.transitions import (
    admit,
    forget,
    insert,
    ran_last,
    set_pri,
    work_for,
)

PLAIN: Final = PutSpec()  # no options


@final
class TubePolicy(Tubes):
    """The hooks of core/node/queue.py."""

    def tube_of(self, task: Task) -> Tube:
        """The live task's tube."""
        return self.by_name[task.queue]

    def unheard(self, n: Node) -> Refusal | None:
        """[T15] Why this node may not say that there is no such tube (T15.5)."""
        return unheard_refusal(n, self)

    def refusal(self, n: Node, q: Queue, spec: AddSpec) -> Refusal | None:
        """[T1] Why ADDJOB to a tube is refused (T1.2); raises what only a tube refuses."""
        assert isinstance(q, Tube)
        needs_copies(n, self, q)
        if spec.asked_retry_s == 0:
            raise TubeError(NO_RETRY_0, (q.name,))
        if spec.asked_replicate > 1:
            raise TubeError(NO_COPIES, (q.name,))
        option = b""
        if not q.driver.is_timed:
            if spec.delay_s > 0:
                option = b"DELAY"
            elif spec.asked_ttl_s > 0:
                option = b"TTL"
            elif spec.has_pri:
                option = b"PRI"
        if spec.has_utube and not q.driver.is_keyed:
            option = b"UTUBE"
        if len(option) > 0:
            raise TubeError(NO_OPTION, (q.name, q.type, option))
        if n.is_leaving:
            raise TubeError(LEAVING)
        operations.settle(n, self)
        if len(spec.keys) > 0:
            same = same_task(n, q, spec.keys)
            refused = keys_refusal(q, spec, same)
            if refused is not None:
                self.duplicates += int(refused.code == DUPLICATE)
                return refused
            if same is not None:
                return None
        if 0 < spec.maxlen <= q.length + held_count(q):  # T1.1
            return Refusal(MAXLEN)
        if q.is_full():
            return Refusal(TUBE_FULL, (q.name, int(q.capacity)))
        return Refusal(PAUSED) if q.pause & PAUSE_IN or q.drops > 0 else None

    def add(self, n: Node, q: Queue, body: bytes, spec: AddSpec) -> Job:
        """[T1] ADDJOB puts a task (T1.1): its options are the task's, defaults the tube's."""
        assert isinstance(q, Tube)
        same = same_task(n, q, spec.keys)
        if same is not None:
            self.duplicates += 1
            spec.has_met = True
            if spec.replaces_same:
                replace_body(n, self, q, same, body)
            return job_of(same)  # T44.4
        if spec.asked_ttl_s <= 0 and spec.asked_retry_s <= 0 and spec.delay_s <= 0:
            has_work = spec.terms is not None or len(spec.headers) > 0
            if not spec.has_pri and not spec.has_utube and len(spec.keys) == 0 and not has_work:
                return insert(n, self, q, body, BYTES, PLAIN)
        wanted = PutSpec()
        if spec.asked_ttl_s > 0:
            wanted.ttl_ms = spec.ttl_ms
        if spec.asked_retry_s > 0:
            wanted.ttr_ms = spec.asked_retry_s * 1000
        if spec.delay_s > 0:
            wanted.delay_ms = spec.delay_ms
        if spec.has_pri:
            wanted.pri = spec.pri
        if spec.has_utube:
            wanted.utube = spec.utube
        wanted.keys = spec.keys
        wanted.work = work_for(spec)
        return insert(n, self, q, body, BYTES, wanted)

    def repeat(self, n: Node, q: Queue) -> None:
        """[Z4] The leader answers, and once enough nodes have the key (Z4.10)."""
        needs_copies(n, self, self.by_name[q.name])

    def keep_key(self, n: Node, queue: bytes, full: bytes) -> None:
        """[T18] Followers get the key with the task (T18.8)."""
        tube = self.by_name.get(queue)
        if tube is not None and n.others != 0:
            trace_key(tube, full)

    def take(self, n: Node, q: Queue, client: i64) -> Task | None:
        """[T1] GETJOB, at once or after a wait, takes a task (T1.3)."""
        assert isinstance(q, Tube)
        if q.state != RUNNING or q.drops > 0:
            return None  # T19.2, T2.8
        if not has_lease(n.now_ms, self, q):
            return None  # T19.2, T2.8
        operations.settle(n, self)
        owner: i64 = 0
        if len(n.waiters) > 0:
            waiter = n.waiters.get(client)
            if waiter is not None and waiter.taker >= 0:
                owner = session_for(n, self, waiter.taker).number
        return operations.take_first(n, self, q, client, owner)

    def has_older(self, q: Queue) -> bool:
        """[T1] Whether jobs of the queue that it was are left, in a tube of type tasks (T1.8)."""
        assert isinstance(q, Tube)
        return q.plain > 0 and q.driver.has_keys

    def ack(self, n: Node, task: Task, client: i64) -> bool:
        """[T1] ACKJOB and FASTACK ack the task (T1.4), DONE also one whose run is over (T48.6)."""
        tube = self.tube_of(task)
        needs_copies(n, self, tube)
        if not operations.may_finish(self, task, client):
            if not self.has_runs(task) or not ran_last(task, n.life.done_run):
                return False
        operations.finish(n, self, tube, task)
        return True

    def ack_claimed(self, n: Node, task: Task) -> bool:
        """[T1] ACKJOB or DONE that came to a node without the task (T1.12)."""
        try:
            self.ack(n, task, -1)
        except TubeError:
            return False
        return True

    def nack(self, n: Node, task: Task, delay_ms: i64, client: i64) -> bool:
        """[T1] NACK releases the task (T1.4)."""
        tube = self.tube_of(task)
        needs_copies(n, self, tube)
        if not operations.may_finish(self, task, client):
            return False
        work = n.life.by_id.get(task.id)
        if work is not None:
            n.life.stop_runner(task.id, work, client)
        operations.give_up(n, self, tube, task, delay_ms)
        return True

    def working(self, n: Node, task: Task, client: i64) -> Refusal | None:
        """[T1] WORKING extends the task's time (T1.4)."""
        tube = self.tube_of(task)
        needs_copies(n, self, tube)
        if not operations.may_finish(self, task, client):
            raise TubeError(NOT_TAKEN)
        work = n.life.by_id.get(task.id)
        if work is not None and work.is_cancelled:
            return Refusal(CANCELLED_JOB, (work.cancel_reason,))  # T48.10
        operations.work_on(n, self, tube, task)
        return None

    def enqueue(self, n: Node, task: Task) -> bool:
        """[T1] ENQUEUE kicks the task (T1.5)."""
        needs_copies(n, self, self.tube_of(task))
        return task.status == BURIED and operations.unbury(n, self, self.tube_of(task), task)

    def set_pri(self, n: Node, task: Task, pri: i64) -> bool:
        """[T1] UPDATEJOB changes the pri of a task in any status (T1.10)."""
        tube = self.tube_of(task)
        needs_copies(n, self, tube)
        if not tube.driver.is_timed:
            raise TubeError(NO_OPTION, (tube.name, tube.type, b"PRI"))
        found = operations.find(n, self, tube, task.number)
        if found is None:
            return False
        if found.pri != pri:
            set_pri(n, self, tube, found, pri)
        return True

    def present(self, n: Node, task: Task) -> Task | None:
        """[T48] UPDATEJOB of a task that may have runs (T48.11)."""
        tube = self.tube_of(task)
        needs_home(n, self, tube)
        return operations.find(n, self, tube, task.number)

    def keys_of(self, task: Task) -> dict[str, object] | None:
        """[T40] The keys of the task, if its tube has keys (T40.7)."""
        return shown_keys(self.tube_of(task), task)

    def has_copy(self, id: bytes) -> bool:
        """[W15] Whether the tube's leader knows more about the task (W15.11)."""
        return id in self.copies_by_id

    def takes_work(self, q: Queue) -> bool:
        """[T48] Whether ADDJOB takes options about the work of its tasks (T48.1)."""
        assert isinstance(q, Tube)
        return q.driver.has_keys

    def has_runs(self, task: Task) -> bool:
        """[T48] Whether the task may have a run: not a schedule, nor a group."""
        return self.tube_of(task).driver.has_keys and is_job(task)

    def what_is(self, task: Task) -> bytes:
        """[T1] What the task is, and what to use, if it is no job; else b"" (T1.11)."""
        return what_is(task.entry)

    def where(self, n: Node, job: Job, client: i64) -> i64:
        """[T48] START is for who has taken the task (T48.3)."""
        assert isinstance(job, Task)
        if job.status == BURIED:
            return -DEAD_LETTER
        if operations.may_finish(self, job, client):
            return rules.DELIVERED
        work = n.life.by_id.get(job.id)
        return -RESTING if work is not None and work.is_resting else -NOTDELIVERED

    def begin(self, n: Node, job: Job, work: Life, worker: bytes, client: i64) -> None:
        """[T48] START of the take; its timer is that of its TIMELIMIT (T48.3, W3.3)."""
        assert isinstance(job, Task)
        tube = self.by_name[job.queue]
        leader.begin(n, tube, job, work, worker, client, n.now_ms)
        if work.terms.limit_ms > 0:
            leader.limit(n, self, tube, job, work)

    def known_run(
        self, n: Node, job: Job, run: i64, client: i64
    ) -> tuple[Life | None, Refusal | None]:
        """[T48] WORKING, PROGRESS and FAIL (T48.4)."""
        assert isinstance(job, Task)
        return leader.known_run(n, self, self.tube_of(job), job, run, client)

    def extend(self, n: Node, job: Job, work: Life) -> None:
        """[T48] WORKING and PROGRESS (T48.4)."""
        assert isinstance(job, Task)
        leader.extend(n, self, self.tube_of(job), job, work)

    def out_ms(self, n: Node, job: Job) -> i64:
        """[T48] A task that is TAKEN is out."""
        assert isinstance(job, Task)
        return job.taken_ms if job.status == TAKEN else -1

    def over_ms(self, n: Node, job: Job, work: Life | None) -> i64:
        """[T48] ttr, also of a take that nobody began (T48.9)."""
        assert isinstance(job, Task)
        return leader.over_ms(n, self.tube_of(job), job, work)

    def put_off(self, n: Node, job: Job, work: Life | None, due_ms: i64) -> None:
        """[T48] Nobody waits for that (T48.9)."""
        assert isinstance(job, Task)
        transitions.arm(n, self, job, due_ms)
        transitions.record(n, self.tube_of(job), job, False)

    def ends_ms(self, n: Node, job: Job) -> i64:
        """[T48] The end of its ttl (T48.14)."""
        assert isinstance(job, Task)
        return job.dead_ms

    def may_release(self, n: Node, job: Job, run: i64, client: i64) -> bool:
        """[T48] RELEASE (T48.5); of a task without runs with `-` only (T1.13)."""
        assert isinstance(job, Task)
        tube = self.tube_of(job)
        if not self.has_runs(job) and (run != 0 or tube.driver.has_keys):
            return False
        needs_copies(n, self, tube)
        return operations.may_finish(self, job, client) and leader.may_release(n, job, run)

    def give_back(self, n: Node, job: Job, work: Life | None, delay_ms: i64, cause: i64) -> None:
        """[T48] It is READY at its place, or DELAYED (T48.7)."""
        assert isinstance(job, Task)
        leader.give_back(n, self, self.tube_of(job), job, work, delay_ms, cause)

    def bury(self, n: Node, job: Job, work: Life, cause: bytes) -> None:
        """[T48] It is BURIED, or its letter begins elsewhere (T48.8, T48.12)."""
        assert isinstance(job, Task)
        dead_letters.give_up(n, self, self.tube_of(job), job, work, cause)

    def expire(self, n: Node, job: Job) -> None:
        """[T48] It is gone (T48.14)."""
        assert isinstance(job, Task)
        transitions.expire(n, self, self.tube_of(job), job)

    def end(self, n: Node, job: Job) -> None:
        """[T48] It was cancelled (T48.10)."""
        assert isinstance(job, Task)
        transitions.end_task(n, self, self.tube_of(job), job)

    def may_change(self, n: Node, job: Job, update: Update) -> i64:
        """[T48] UPDATEJOB (T48.11)."""
        assert isinstance(job, Task)
        return leader.may_change(self.tube_of(job), job)

    def change(self, n: Node, job: Job, update: Update) -> Job:
        """[T48] UPDATEJOB: all of it in one change of the tube (T48.11)."""
        assert isinstance(job, Task)
        return leader.update(n, self, self.tube_of(job), job, update)

    def save(self, n: Node, job: Job, work: Life | None, what: i64) -> None:
        """[T48] A new leader knows it (T48.2, T48.10)."""
        assert isinstance(job, Task)
        leader.save(n, self, self.tube_of(job), job, work, what)

    def frees(self, n: Node, job: Job, is_back: bool) -> bool:
        """[T48] If the tube runs here; not to its place if its key is taken (T48.13, T48.15)."""
        assert isinstance(job, Task)
        return dead_letters.frees(n, self, self.tube_of(job), job, is_back)

    def send_on(self, n: Node, job: Job, work: Life, queue: bytes) -> bool:
        """[T48] DEAD REPLAY with QUEUE (T48.13)."""
        assert isinstance(job, Task)
        dead_letters.send_on(n, self, self.tube_of(job), job, work, queue)
        return True

    def revive(self, n: Node, job: Job, work: Life, queue: bytes) -> None:
        """[T48] DEAD REPLAY, KICK and ENQUEUE (T48.13)."""
        assert isinstance(job, Task)
        dead_letters.revive(n, self, self.tube_of(job), job, work)

    def purge(self, n: Node, job: Job) -> None:
        """[T48] DEAD PURGE is a delete (T48.15)."""
        assert isinstance(job, Task)
        dead_letters.remove_task(n, self, self.tube_of(job), job)

    def fail_take(
        self, n: Node, task: Task, delay_ms: i64, is_final: bool, client: i64
    ) -> tuple[i64, i64, Refusal | None]:
        """[T1] FAIL of a task without runs (T1.14)."""
        tube = self.tube_of(task)
        needs_copies(n, self, tube)
        if not operations.may_finish(self, task, client):
            return 0, 0, Refusal(NOT_TAKEN)
        if is_final:
            operations.lay_aside(n, self, tube, task)
            return DIED, 0, None
        return BACK, leader.fail_take(n, self, tube, task, max(0, delay_ms)), None

    def shows(self, n: Node, outcome: Outcome) -> i64:
        """[T48] Whether this node may show how a task ended (T48.6)."""
        return shows(n, self, outcome)

    def has_replicas(self, n: Node, tubes: list[tuple[bytes, int, int]]) -> bool:
        """[T18] Whether each of the changes is where it must be (T18.5)."""
        for name, epoch, seq in tubes:
            tube = self.by_name.get(name)
            if tube is not None and (tube.epoch != epoch or synced(n, self, tube) < seq):
                return False
        return True

    def may_cancel(self, n: Node, task: Task, is_asked: bool) -> bool:
        """[T48] CANCEL; another node or a group that asks waits for no copies (T48.10)."""
        tube = self.tube_of(task)
        if is_asked:
            return dead_letters.may_change(n, self, tube)
        needs_copies(n, self, tube)
        return True

    def shows_death(self, n: Node, task: Task) -> bool:
        """[T48] Whether enough nodes know of it (T48.8)."""
        return dead_letters.shows_death(n, self, task)

    def detail_of(self, n: Node, task: Task) -> bytes:
        """[T48] The detail of its last failure (T48.2)."""
        return dead_letters.detail_of(n, task)

    def key_holder(self, n: Node, task: Task) -> bytes:
        """[T48] Who has the unique key of a dead task (T48.13)."""
        other = dead_letters.key_holder(n, self.tube_of(task), task)
        return b"" if other is None else other.id

    def delete(self, n: Node, task: Task) -> None:
        """[T1] DELJOB deletes the task (T1.5)."""
        needs_copies(n, self, self.tube_of(task))
        dead_letters.remove_task(n, self, self.tube_of(task), task)

    def finish(self, n: Node, task: Task) -> None:
        """[T1] DEADLETTER has taken the body: end the task (T1.5)."""
        tube = self.tube_of(task)
        events = n.events
        n.events = None  # its event is `dead`
        operations.finish(n, self, tube, task)
        n.events = events

    def forget(self, n: Node, task: Task) -> None:
        """Remove the task with its job."""
        forget(n, self, self.tube_of(task), task)

    def restore(self, n: Node, task: Task) -> bool:
        """[T14] Restore a task from the journal."""
        return restore_task(n, self, task)

    def on_timer(self, n: Node, task: Task) -> None:
        """The task's timer has fired."""
        tube = self.tube_of(task)
        if tube.state == RUNNING and has_lease(n.now_ms, self, tube):
            on_task_timer(n, self, tube, task)
        else:
            n.wheel.set(task, n.now_ms, n.now_ms)  # T19.2, T19.6: again, until it runs

    def tick(self, n: Node) -> None:
        """Handle overdue tasks, sessions without connections, puts without room."""
        votes_tick(n, self)
        homes_tick(n, self)
        operations.settle(n, self)
        operations.keys_tick(n, self)
        sessions_tick(n, self)
        idle_tick(n, self)
        if len(self.sweeping) > 0:
            sweep(n, self)
        while len(self.put_ends) > 0 and self.put_ends[0][0] <= n.now_ms:
            _, _, putter, tube = heappop(self.put_ends)
            if not putter.is_over:
                self.end_put(tube, putter)  # T7.3
                self.put_done.append(PutDone(putter.client, putter.serial, None))
            while len(tube.putters) > 0 and tube.putters[0].is_over:
                tube.putters.popleft()

    def next_ms(self, n: Node) -> i64:
        """When `tick` has work next."""
        if len(self.overdue) > 0 or len(self.sessions_over) > 0:
            return n.now_ms
        at_ms = min(homes_next_ms(n, self), votes_next_ms(n, self))
        if 0 < self.idle_at_ms < at_ms:
            at_ms = self.idle_at_ms
        if len(self.sweeping) > 0:
            at_ms = min(at_ms, next_sweep_ms(n, self))
        if len(self.session_ends) > 0 and self.session_ends[0][0] < at_ms:
            at_ms = self.session_ends[0][0]
        if len(self.put_ends) > 0 and self.put_ends[0][0] < at_ms:
            at_ms = self.put_ends[0][0]
        if len(self.alarms) > 0 and self.alarms[0][0] < at_ms:
            at_ms = self.alarms[0][0]
        return at_ms

    def on_pause(self, n: Node, q: Queue) -> None:
        """[T17] Tell the other nodes about the pause (T17.7); puts may continue (P2.1)."""
        assert isinstance(q, Tube)
        admit(n, self, q)
        if n.others != 0:
            announce(n, self, [q], -1)

    def flush(self, n: Node) -> None:
        """[S7.1] Remove every tube; not a drop: other nodes keep theirs (T17.6)."""
        for tube in list(self.by_name.values()):
            if tube.state == RUNNING and n.others == 0:
                remove_tube(n, self, tube)
            else:
                forget_tube(n, self, tube)
        self.dropped = {}
        self.dropped_count = 0
        lose_right(n, self)

    # the cluster

    def on_message(self, n: Node, slot: i64, m: TubeMessage) -> None:
        """A node sent a message about tubes."""
        if isinstance(m, VotersTold | VotersNext | TubePulse | TubeStands | TubeVote | TubeVoted):
            on_vote_message(n, self, slot, m)
            return
        on_tube_message(n, self, slot, m)

    def on_link_up(self, n: Node, slot: i64) -> None:
        """A link was opened."""
        homes_link_up(n, self, slot)

    def on_link_down(self, n: Node, slot: i64) -> None:
        """A link was closed."""
        votes_link_down(n, self, slot)
        homes_link_down(n, self, slot)

    def on_reach(self, n: Node) -> None:
        """The set of reachable or known nodes changed."""
        self.must_look = True

    def on_standstill(self, n: Node) -> bool:
        """The process stood still."""
        return on_standstill(n, self)

    def turn_end(self, n: Node) -> None:
        """Send followers the changes of this turn."""
        self.shift_room = self.shift_tasks  # T19.6
        if len(self.changed) > 0:
            tell_copies(n, self)

    def after_load(self, n: Node) -> None:
        """The journal is loaded."""
        n.keys.index()
        for tube in self.by_name.values():
            keys_loaded(self, tube)
        dead_letters.lay_down(n, self)
        votes_loaded(n, self)
        homes_loaded(n, self)

    def drain_left(self, n: Node) -> i64:
        """[K7] Tubes that this node leads or that are moving to another node (K7.3)."""
        count: i64 = 0
        if n.others != 0:
            for tube in self.by_name.values():
                if tube.is_mine or tube.is_owed or tube.wish != 0:
                    count += 1
            if gives_vote_up(n, self):
                count += 1  # T28.4
        return count

    def set_stopping(self, n: Node, is_stopping: bool) -> None:
        """[K9] Other nodes lead the tubes of this one, and give it none (K9.1)."""
        self.is_stopping = is_stopping
        self.flags_changed = True
        self.on_reach(n)

    def tubes_to_move(self, n: Node) -> i64:
        """[K9] Tubes led here that another node keeps and may lead, and open moves (K9.2)."""
        count: i64 = 0
        for tube in self.by_name.values():
            is_moving = tube.is_owed or tube.wish != 0 or tube.move is not None
            if is_moving or (tube.is_mine and has_heir(n, self, tube)):
                count += 1
        return count

    def is_counted(self, q: Queue) -> bool:
        """Whether the queue accounts for all its live tasks; not during an unload."""
        assert isinstance(q, Tube)
        return q.shift is None or q.shift.is_in

    def check(self, n: Node) -> None:
        """Assert that tubes, sessions and tasks agree (T3.4, T7.1, T8.4, T11.3)."""
        held: i64 = 0
        used: i64 = 0
        of_tenants: dict[bytes, int] = {}
        tasks: i64 = 0
        waiting: i64 = 0  # bytes of puts
        for name, tube in self.by_name.items():
            assert n.queues[name] is tube, "tube is not the queue of its name"
            held += check_tube(n, self, tube)
            used += tube.bytes_used()
            tenant = tenant_of(name)
            of_tenants[tenant] = of_tenants.get(tenant, 0) + int(tube.bytes_used())
            puts: i64 = 0
            for putter in tube.putters:
                if not putter.is_over:
                    puts += 1
                    waiting += PUT_BYTES + len(putter.body)
            assert puts == tube.waiting_puts, "puts that wait"
            tasks += len(tube.tasks)
        for job in n.jobs.values():
            if isinstance(job, Task):
                tasks -= 1
        assert tasks == 0, "tasks without a tube"
        for owner in owners(n):
            assert owner.tube_bytes == of_tenants.get(owner.name, 0), "tubes of a tenant"
        for number, session in self.sessions.items():
            assert session.number == number and self.by_uuid[session.uuid] is session
            held -= len(session.taken)
            for id, task in session.taken.items():
                assert task.id == id and task.owner == number, "task of another session"
                assert n.jobs.get(id) is task, "taken task is gone"
        assert held == 0, "taken tasks of sessions"
        assert waiting == self.put_bytes, "bytes of puts that wait"
        assert waiting == sum(self.puts_of.values()), "bytes of puts by client"
        used += waiting + SESSION_BYTES * len(self.sessions) + GRANT_BYTES * self.rights.count
        used += check_homes(n, self)
        check_votes(self)
        assert used == self.bytes_used, "bytes of tubes"
        grants = self.rights.listing(b"")
        assert len(grants) == self.rights.count, "grants"
        for one in grants:
            assert one.tube in self.by_name and one.bits != 0, "grant on a tube that is gone"


def tubes_of(n: Node) -> Tubes:
    """The tubes of the node, created at the first call."""
    policy = n.policy
    if policy is None:
        policy = TubePolicy(n.ids.seed)
        n.policy = policy
    assert isinstance(policy, Tubes)
    return policy
