"""The work of jobs and kept outcomes come back from the journal (SPEC W13).

Records are applied in order during the load. A work state enters the node with its job, in `begin`
and `enter`; `finish` enters the dead letters in their order, and the outcomes.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.life.holders import outlive
from tuque.core.model.attempts import moved_row
from tuque.core.model.job import ACKED, ACTIVE, LEASED, ONCE_QUEUED, Job
from tuque.core.model.task import Task
from tuque.core.model.work import (
    LIVE,
    Failure,
    Life,
    Outcome,
)
from tuque.core.node.node import Node
from tuque.core.queues.procedures import retry_due_ms
from tuque.core.records.jobs import OUTCOME, Records
from tuque.core.records.work import LifeRecord
from tuque.core.work import rules

FAR: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed


@final
class LifeLog:
    """The lives of open jobs, and the outcomes, read so far."""

    def __init__(self) -> None:
        self.lives: dict[bytes, Life] = {}
        self.kept: dict[bytes, Outcome] = {}
        self.letters: list[tuple[int, int, bytes]] = []  # (serial, instant, id) of those entered
        self.is_late = False  # the job that `begin` prepared expired meanwhile

    def apply(self, kind: i64, r: LifeRecord, job: Job | None) -> None:
        """Apply a record; `job` is the one that it is about, None if it is unknown or ended."""
        if kind == OUTCOME:
            self.keep(r)
            return
        life = r.life
        if life is None or job is None or job.state == ACKED:
            return
        before = self.lives.get(job.id)
        if before is not None and before.expire_ms != 0 and life.expire_ms == 0:
            job.expire_ms = before.expire_ms  # W6.3: the run that put it off is over
        self.begun(job.id, life)

    def begun(self, id: bytes, work: Life) -> None:
        """The job has this work."""
        self.lives[id] = work

    def keep(self, r: LifeRecord) -> None:
        """Apply an OUTCOME: one that follows is better (W14.4), or drops it (W13.7)."""
        outcome = r.outcome
        if outcome is not None:
            self.kept[outcome.id] = outcome

    def replaced(self, id: bytes) -> None:
        """An ADD had all of the job, with its expiry; the LIFE after it may put that off."""
        life = self.lives.get(id)
        if life is not None:
            life.expire_ms = 0  # W13.2

    def drop(self, id: bytes) -> None:
        """The job ended, or left the node (W13.2)."""
        self.lives.pop(id, None)

    def shift(self, jump_ms: i64) -> None:
        """The clock jumped: move all instants (J5.8)."""
        for life in self.lives.values():
            life.since_ms = moved(life.since_ms, jump_ms)
            life.expire_ms = moved(life.expire_ms, jump_ms)
            life.dead_ms = moved(life.dead_ms, jump_ms)
            life.attempts = moved_row(life.attempts, jump_ms)
            shift_failure(life.first, jump_ms)
            if life.last is not life.first:
                shift_failure(life.last, jump_ms)
        for outcome in self.kept.values():
            outcome.until_ms = moved(outcome.until_ms, jump_ms)
            outcome.ended_ms = moved(outcome.ended_ms, jump_ms)
            outcome.move(jump_ms)

    def begin(self, n: Node, job: Job) -> Life | None:
        """[W13] Prepare a job for its restore: its life, None if it has none.

        A run that lasts has all of RETRY again, and the job does not expire before it is over
        (W13.3). The expiry of a job that is to become a dead letter is put off for the moment.
        """
        life = self.lives.pop(job.id, None)
        if life is None or job.state == ACKED or isinstance(job, Task):
            return None
        if life.expire_ms != 0:
            job.expire_ms = life.expire_ms
            life.expire_ms = 0
        if life.run_state == LIVE and job.state == ACTIVE and job.flags & LEASED == 0:
            due_ms = again_due_ms(n, job, life)
            if due_ms > 0:
                outlive(job, life, due_ms)
                job.qtime_ms = due_ms
        if life.is_resting and (job.state != ACTIVE or job.flags & ONCE_QUEUED):
            life.is_resting = False  # it was queued since
        self.is_late = is_late(n, job, life)
        if self.is_late:
            job.expire_ms = n.now_ms + 1
        return life

    def enter(self, n: Node, job: Job, life: Life) -> None:
        """[W13] Enter the life of a job that is in the node."""
        life.terms = n.life.share(life.terms)
        if life.serial > n.life.serial:
            n.life.serial = life.serial
        if life.is_dead:
            life.is_dead = False  # until `finish`
            self.letters.append((int(life.serial), int(life.dead_ms), job.id))
        n.has_lives = True
        n.life.enter(job.id, life, job.queue)
        if self.is_late:
            job.expire_ms = n.now_ms  # the next timer makes it a dead letter (W6.2)
            n.wheel.arm(job, n.now_ms)
        elif life.run_state == LIVE and job.retry_s == 0 and life.terms.limit_ms > 0:
            job.qtime_ms = again_due_ms(n, job, life)
            n.wheel.arm(job, n.now_ms)

    def finish(self, n: Node) -> None:
        """[W13] All jobs are in: dead letters in order, outcomes whose time is not over (W13.5)."""
        last = n.life.serial
        self.letters.sort()
        n.life.serial = 0
        for serial, _, id in self.letters:
            job = n.jobs.get(id)
            life = n.life.by_id.get(id)
            if job is not None and life is not None:
                if i64(serial) > n.life.serial:
                    n.life.serial = i64(serial) - 1  # a cursor of DEAD LIST stays good
                n.life.bury(job.queue, id, life, len(job.body), n.limits.dead_bytes)
        if last > n.life.serial:
            n.life.serial = last
        outcomes = [one for one in self.kept.values() if one.until_ms > n.now_ms]
        outcomes.sort(key=ended)
        for outcome in outcomes:
            if outcome.is_brief and outcome.id not in n.jobs:
                continue  # W13.8
            outcome.is_claim = outcome.ended_ms == 0  # W13.9
            n.has_lives = True
            n.life.keep(outcome, n.limits.results_bytes)
        self.letters = []
        self.kept = {}


def again_due_ms(n: Node, job: Job, life: Life) -> i64:
    """The instant at which a loaded run is over; 0: never. Its time limit goes on meanwhile."""
    due_ms: i64 = FAR
    if job.retry_s > 0:
        due_ms = max(job.qtime_ms, retry_due_ms(n, job))
    due_ms = max(rules.due_by(life, due_ms), n.now_ms)
    return 0 if due_ms == FAR else due_ms


def is_late(n: Node, job: Job, life: Life) -> bool:
    """Whether the job expired meanwhile, and becomes a dead letter instead of ending (W13.5)."""
    return job.expire_ms <= n.now_ms and rules.dies_expired(life) and not life.is_dead


def moved(at_ms: i64, jump_ms: i64) -> i64:
    """An instant after a clock jump; 0 stays: there is none."""
    return at_ms + jump_ms if at_ms != 0 else 0


def shift_failure(failure: Failure | None, jump_ms: i64) -> None:
    """Move the instant of a failure."""
    if failure is not None:
        failure.at_ms = moved(failure.at_ms, jump_ms)


def ended(outcome: Outcome) -> int:
    """Sort key: when the job ended."""
    return int(outcome.ended_ms)


@final
class OutcomeWalk:
    """The kept outcomes in a snapshot: those of its start, in slices (W13.6)."""

    def __init__(self, n: Node) -> None:
        self.outcomes: list[Outcome] = [
            one for one in n.life.kept.values() if not one.is_claim or one.id in n.jobs
        ]
        self.pos: i64 = 0

    def tell(self, n: Node, records: Records, most: i64, most_bytes: i64) -> None:
        """Record up to `most` outcomes that are kept still, until the records are that long."""
        end = self.pos + most
        if end > len(self.outcomes):
            end = len(self.outcomes)
        while self.pos < end and records.size() < most_bytes:
            outcome = self.outcomes[self.pos]
            self.pos += 1
            if outcome.until_ms > n.now_ms and n.life.kept.get(outcome.id) is outcome:
                records.outcome(outcome)

    def is_done(self) -> bool:
        """Whether all were looked at."""
        return self.pos >= len(self.outcomes)
