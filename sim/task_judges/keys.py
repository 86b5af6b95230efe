"""Judges of keys: limits, rates, turns of groups, unique keys (SPEC T40 to T44).

After each turn of a leader its changes are replayed. Rates are judged over all leaders of a tube,
limits at each leader, and over all of them by what a majority of the nodes knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.task_judges import groups, schedules
from sim.task_judges.facts import DRIFT, Edit, Hold, Job, TaskTube
from sim.task_judges.groups import Grouping
from sim.task_judges.schedules import Scheduling
from sim.task_judges.topics import Publicity
from sim.tube_judges.disk import tubes_on
from sim.tube_judges.homes import is_up
from tuque.core.model.task import BURIED, DONE, READY, TAKEN, Task

if TYPE_CHECKING:
    from sim.machines.machine import Machine
    from sim.machines.shell import Shell
    from sim.runs.cluster import Cluster
    from tuque.tubes.model.options import Change
    from tuque.tubes.model.tube import Tube

FAST: Final = 1.005  # clocks run so much too fast at most
SLACK_S: Final = 0.02  # instants are whole ms, and of the begin of a turn
# a voter with an old disk confirmed what it does not have, and nobody notices that yet (T23); of
# a job or subscription with one copy there is no other
OF_MAJORITIES: Final = (
    "task-lost",
    "task-ended",
    "task-edit",
    "task-unique",
    "task-held",
    "task-limit",
    "task-rate",
    "schedule-lost",
    "schedule-twice",
    "schedule-missed",
    "group-twice",
    "group-early",
    "group-results",
    "group-lost",
    "group-open",
    "topic-lost",
    "topic-part",
    "topic-twice",
    "topic-apart",
)
STUCK_US: Final = 8_000_000  # so long no task of its limit and rate was taken: it waits in vain


class Bucket:
    """The tokens of a rate in true time, whoever leads the tube."""

    def __init__(self, rate: int, burst: int, empty_us: int) -> None:
        self.rate = rate
        self.burst = burst
        self.tokens = float(burst)
        self.least = 0.0  # as `tokens`, if it was empty when its first leader began (T42.4)
        self.at_us = empty_us

    def fill(self, now_us: int) -> float:
        """The tokens that are there now."""
        more = (now_us - self.at_us) / 1e6 * self.rate * FAST
        self.tokens = min(float(self.burst), self.tokens + more)
        self.least = min(float(self.burst), self.least + more)
        self.at_us = now_us
        return self.tokens

    def spend(self, now_us: int) -> bool:
        """One more take; False: it came too soon."""
        self.tokens = self.fill(now_us) - 1
        self.least -= 1
        return self.tokens > -0.5 - SLACK_S * self.rate


class Run:
    """One leadership of a tube, as replayed from its changes."""

    def __init__(self, tube: Tube, begun_us: int) -> None:
        self.tube = tube
        self.begun_us = begun_us
        self.epoch = int(tube.epoch)
        self.seq = int(tube.change_seq)
        self.jobs: dict[int, Job] = {}  # by number
        self.others: dict[int, tuple[bytes, bytes]] = {}  # of schedules, of groups: id, body
        self.ready: dict[bytes, set[int]] = {}  # by group
        self.waited: dict[bytes, int] = {}  # by group: takes of others since it could go
        self.taken: dict[bytes, set[int]] = {}  # by limit

    def set_status(self, number: int, status: int) -> None:
        """The task has this status now."""
        job = self.jobs[number]
        group, limit = job.group[0], job.limit[0]
        ready = self.ready.setdefault(group, set())
        if status == READY:
            if not ready:
                self.waited[group] = 0
            ready.add(number)
        else:
            ready.discard(number)
        if limit and status == TAKEN:
            self.taken.setdefault(limit, set()).add(number)
        elif limit:
            self.taken.setdefault(limit, set()).discard(number)


class Tasking:
    """All tubes of type `tasks` of a seed, and their judges."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.history = cluster.history
        self.tubes: dict[bytes, TaskTube] = {}
        for op in cluster.plan.ops:
            if op.kind == "task_tube":
                name: str = op.args["tube"]
                self.tubes[name.encode()] = TaskTube(name, op.args)
        self.runs: dict[tuple[str, bytes], Run] = {}  # node, tube
        self.schedules = Scheduling(self)
        self.groups = Grouping(self)
        self.topics = Publicity(self)
        self.buckets: dict[tuple[bytes, bytes], Bucket] = {}  # tube, key
        self.epochs: dict[bytes, int] = {}  # the highest under which a tube ran
        self.led_us: dict[bytes, int] = {}  # when a node led the tube last
        self.taken_us: dict[tuple[bytes, bytes, bytes], int] = {}  # tube, limit, rate: last take

    def find(self, rule: str, text: str) -> None:
        """A promise is broken, unless it is one that an old disk takes back."""
        if rule in OF_MAJORITIES and "old_disk" in self.cluster.plan.faults:
            self.history.count("findings that old disks excuse")
            return
        self.history.find(rule, text)

    # ---- after each turn, before its replies leave

    def on_turn(self, machine: Machine, shell: Shell) -> None:
        """Replay the changes of this turn."""
        t = tubes_on(shell.n) if self.tubes else None
        if t is None or shell.s.is_loading:
            return
        for name, facts in self.tubes.items():
            tube = t.by_name.get(name)
            run = self.runs.get((machine.name, name))
            led_us, now_us = self.led_us.get(name, 0), self.world.now_us
            if tube is None or not is_up(tube):
                self.runs.pop((machine.name, name), None)
                continue
            self.led_us[name] = now_us
            if run is None or run.tube is not tube or run.epoch != tube.epoch:
                hold_on(facts, led_us, now_us)
                self.runs[machine.name, name] = self.begin(facts, tube)
                continue
            if run.seq == tube.change_seq:
                continue
            for change in t.changes(tube, run.seq - 1, 1000):
                self.replay(facts, run, change)
            run.seq = int(tube.change_seq)

    def begin(self, facts: TaskTube, tube: Tube) -> Run:
        """A node starts to lead the tube, with what the last leader left."""
        run = Run(tube, self.world.now_us)
        for number, task in tube.tasks.items():
            job = facts.job_of(task.id, task.body)
            if job is not None:
                run.jobs[int(number)] = job
                run.set_status(int(number), int(task.status))
            else:
                self.meet(facts, run, task)
        for key, numbers in run.taken.items():
            self.judge_places(facts, run, key)
            places = run.jobs[next(iter(numbers))].limit[1] if numbers else 0
            if len(numbers) == places > 0 and waits_for(run, key):
                self.world.sometimes("a new leader finds a limit that is full")
        before = self.epochs.get(facts.key, 0)
        self.epochs[facts.key] = max(before, run.epoch)
        if 0 < before < run.epoch:
            self.history.count("new leaders of tasks")
            for (name, key), bucket in self.buckets.items():
                if name == facts.key and bucket.least < 1:  # after the last take
                    self.world.sometimes("a bucket is dry when the leader changes")
                    self.history.count(f"dry buckets of {key.decode()}")
        return run

    def replay(self, facts: TaskTube, run: Run, change: Change) -> None:
        """One change at the leader."""
        number, status = int(change.number), int(change.status)
        if change.event == b"put":
            task = run.tube.find(number)
            job = facts.job_of(task.id, task.body) if isinstance(task, Task) else None
            if job is not None:
                job.put_epoch = job.put_epoch or run.epoch
                run.jobs[number] = job
            elif isinstance(task, Task):
                self.meet(facts, run, task)
        job = run.jobs.get(number)
        if job is None:
            self.replay_other(facts, run, change)
            return
        run.set_status(number, status)
        if change.event == b"take":
            self.on_take(facts, run, number, job)
        if status == DONE:
            del run.jobs[number]

    def meet(self, facts: TaskTube, run: Run, task: Task) -> None:
        """A task that no producer added is in the tube: of a schedule, or a group."""
        run.others[int(task.number)] = (task.id, task.body)
        if task.body.startswith(schedules.MARK):
            self.schedules.on_met(facts, run, task)
        elif task.body.startswith(groups.MARK):
            self.groups.on_put(run, task)

    def replay_other(self, facts: TaskTube, run: Run, change: Change) -> None:
        """One change of such a task."""
        number = int(change.number)
        id, body = run.others.get(number, (b"", b""))
        if change.event == b"take":
            run.waited[b""] = 0  # it was the turn of the tasks without a group
        if body.startswith(schedules.MARK) and change.event == b"take":
            self.schedules.on_take(facts, id, body)
        elif body.startswith(groups.MARK):
            task = run.tube.tasks.get(number)
            if task is not None and int(change.status) == READY:
                self.groups.on_ready(run, task)
            elif change.event == b"take":
                self.groups.on_take(id, body)
        if int(change.status) == DONE:
            run.others.pop(number, None)

    def on_take(self, facts: TaskTube, run: Run, number: int, job: Job) -> None:
        """A leader handed a task out."""
        self.taken_us[facts.key, job.limit[0], job.rate[0]] = self.world.now_us
        self.history.count("takes with keys")
        if job.over_us:
            self.find("task-ended", f"{job.token!r} was taken, and ended at {job.over_us / 1e6} s")
        if job.limit[0]:
            self.judge_places(facts, run, job.limit[0])
        key, rate, burst = job.rate
        if key:
            self.history.count("takes with a rate")
            bucket = self.buckets.setdefault((facts.key, key), Bucket(rate, burst, run.begun_us))
            if not bucket.spend(self.world.now_us):
                text = f"{facts.name}: {-bucket.tokens:.2f} takes of {key!r} too many"
                self.find("task-rate", text)
        self.judge_turn(facts, run, job)

    def judge_places(self, facts: TaskTube, run: Run, key: bytes) -> None:
        """No more tasks of a limit are TAKEN than it has places (T41.2)."""
        taken = run.taken[key]
        self.history.count("looks at limits")
        if taken and len(taken) > run.jobs[next(iter(taken))].limit[1]:
            numbers = sorted(taken)
            self.find("task-limit", f"{facts.name}: {numbers} of limit {key!r} are TAKEN")

    def judge_turn(self, facts: TaskTube, run: Run, job: Job) -> None:
        """A group that can go waits for one round at most (T43.2)."""
        if not self.cluster.plan.is_faultless:
            return
        jobs = facts.jobs.values()
        if any(one.limit[0] or one.rate[0] for one in jobs):
            return  # its tasks may wait for something else
        weights = {one.group[0]: one.group[1] for one in jobs}
        run.waited[job.group[0]] = 0
        self.history.count("turns of groups")
        for group, ready in run.ready.items():
            if not ready or group == job.group[0]:
                continue
            run.waited[group] += 1
            if run.waited[group] > sum(weights.values()) - weights[group]:
                self.find("task-turn", f"{facts.name}: group {group!r} waits over a round")
                run.waited[group] = 0

    # ---- replies

    def on_added(self, facts: TaskTube, job: Job, node: str, reply: object) -> None:
        """ADDJOB is answered, with the id of the job or of one that has its key."""
        words = str(reply).split() if isinstance(reply, Exception) else []
        id = reply if isinstance(reply, bytes) else b""
        if words[:1] == ["DUPLICATE"]:
            id = words[1].encode()
        if not id:
            return
        self.history.count("tasks added")
        other = facts.by_id.get(id)
        if other is None and self.is_plain(node, id):
            self.history.count("adds to a queue that was no tube yet")  # T1.9
            return
        if other is None:
            self.find("task-lost", f"{job.token!r} got the id {id!r}, which no leader has added")
            return
        other.is_answered = True
        if other is not job:
            self.history.count("duplicates")
            run = self.runs.get((node, facts.key))
            if run is not None and other.put_epoch and run.epoch > other.put_epoch:
                self.world.sometimes("a duplicate is answered by a new leader")
            if other.unique != job.unique:
                self.find("task-unique", f"{job.token!r} is {other.token!r} of another key")
        if job.unique:
            self.judge_unique(facts, job.unique, id, other)

    def is_plain(self, node: str, id: bytes) -> bool:
        """Whether the job is in a plain queue: the node did not know the tube."""
        shells = [m.shell for m in self.cluster.machines if m.name == node]
        job = shells[0].n.jobs.get(id) if shells and shells[0] is not None else None
        return job is not None and not isinstance(job, Task)

    def judge_unique(self, facts: TaskTube, key: bytes, id: bytes, job: Job) -> None:
        """Two jobs of one key that nobody ended are not there at once (T44.1)."""
        now_us = self.world.now_us
        same = facts.same.setdefault(key, {})
        same[id] = job
        for one, other in list(same.items()):
            if other.may_be_over(now_us):
                del same[one]
        self.history.count("looks at unique keys")
        if len(same) > 1:
            self.find("task-unique", f"{facts.name}: {sorted(same)} have the key {key!r}")

    def on_start_asked(self, job: Job, worker: bytes) -> int:
        """START is about to be sent: how many attempts there may be."""
        job.starts.add(worker)
        return len(job.starts) - len(job.released)

    def on_started(self, job: Job, most: int, reply: object) -> None:
        """START is answered: no attempt was counted that nobody began (T48.2)."""
        one = reply[0] if isinstance(reply, list) else None
        if isinstance(one, list):
            self.history.count("runs of tasks")
            if int(one[1]) > most:
                text = f"{job.token!r} is at attempt {one[1]}, only {most} were begun"
                self.find("task-attempts", text)

    def on_heard(self, facts: TaskTube, job: Job, run: bytes, asked_us: int, reply: object) -> None:
        """WORKING is answered: a majority knows that this run has the task for RETRY more."""
        if isinstance(reply, Exception) or job.may_be_over(self.world.now_us):
            return
        now_us = self.world.now_us
        until_us = asked_us + int(job.retry_s * 1_000_000 * DRIFT)
        if until_us < now_us:
            return
        holds = facts.holds
        for id, hold in list(holds.items()):
            if hold.until_us < now_us or hold.job.may_be_over(now_us):
                del holds[id]
        self.history.count("holds of tasks")
        old = holds.get(job.id)
        if old is not None and old.run != run:
            self.find("task-held", f"{job.token!r} has two runs at once: {old.run!r} and {run!r}")
        holds[job.id] = Hold(job, run, until_us)
        key, places = job.limit
        held = [hold for hold in holds.values() if hold.job.limit[0] == key]
        if key and len(held) > places:
            names = sorted(hold.job.token for hold in held)
            self.find("task-limit", f"{facts.name}: clients have {names} of limit {key!r}")

    def on_end_asked(self, facts: TaskTube, job: Job, verb: bytes) -> None:
        """Somebody may end the job, or give it back."""
        if verb in (b"DONE", b"ACKJOB", b"CANCEL", b"DELJOB"):
            job.ends_asked_us.append(self.world.now_us)
        facts.holds.pop(job.id, None)

    def on_end(self, job: Job, verb: bytes, worker: bytes, reply: object) -> None:
        """The same is answered."""
        if verb == b"RELEASE" and reply == 1:
            job.released.add(worker)
        if verb not in (b"DONE", b"ACKJOB") or reply != 1:
            return
        self.history.count("ends of tasks")
        if job.over_us and job.over_by != worker:
            self.find("task-ended", f"{job.token!r} ended by {job.over_by!r} and {worker!r}")
        job.over_us, job.over_by = job.over_us or self.world.now_us, worker

    def on_edited(self, edit: Edit, reply: object) -> None:
        """UPDATEJOB is answered."""
        edit.made_us = self.world.now_us if reply == b"OK" else 0
        edit.is_refused = isinstance(reply, Exception) and str(reply).startswith("ATWORK")
        if edit.made_us:
            self.history.count("edits of tasks")

    def on_body(self, job: Job, body: bytes, asked_us: int) -> None:
        """A take asked then is answered: no edit that was OK before it is lost (T48.11)."""
        number = int(body.partition(b"#")[2] or b"0")
        mine = job.edits[number - 1] if number > 0 else None
        if mine is not None and mine.is_refused:
            self.find("task-edit", f"{job.token!r} has a body that was refused: {body!r}")
        if mine is not None and not mine.made_us:
            return  # nobody knows when it was made
        since_us = 0 if mine is None else mine.made_us
        later = [one for one in job.edits[number:] if 0 < one.made_us < asked_us]
        if any(one.asked_us > since_us for one in later):
            self.find("task-edit", f"{job.token!r} is taken with {body!r} after a later OK")

    # ---- the end

    def on_drained(self) -> None:
        """Workers had time for all tasks: none is lost, and none waits in vain."""
        for name, facts in self.tubes.items():
            runs = [run for (_, key), run in self.runs.items() if key == name]
            if not runs and self.is_left_to_operators():
                self.history.count("findings that old disks excuse")
                continue
            if not runs:
                self.find("task-stuck", f"{facts.name} has no leader")
                continue
            run = max(runs, key=lambda one: one.epoch)
            left = {task.id: int(task.status) for task in run.tube.tasks.values()}
            for job in facts.jobs.values():
                self.judge_end(facts, job, left.get(job.id, 0))
            self.schedules.on_drained(facts, run.tube)
            self.groups.on_drained(facts, run.tube)
        self.topics.on_drained()

    def is_left_to_operators(self) -> bool:
        """Whether old disks took the right of so many voters that only FORCE helps (T29.4)."""
        shells = [machine.shell for machine in self.cluster.machines if machine.shell]
        voter_state = [t.voter_state for shell in shells if (t := tubes_on(shell.n)) is not None]
        lists = [one.in_force() for one in voter_state]
        voters = max((one for one in lists if one), key=lambda one: one.number, default=None)
        rights = sum(one.right > 0 for one in voter_state)
        return voters is not None and rights < voters.majority()

    def judge_end(self, facts: TaskTube, job: Job, status: int) -> None:
        """What has become of one job."""
        now_us = self.world.now_us
        if job.is_answered:
            self.history.count("tasks looked for at the end")
            if not status and not job.may_be_over(now_us):
                self.find("task-lost", f"{job.token!r} is gone, and nobody ended it")
        last_us = self.taken_us.get((facts.key, job.limit[0], job.rate[0]), 0)
        if status not in (0, BURIED) and now_us > last_us + STUCK_US:
            self.find("task-stuck", f"{job.token!r} waits in {facts.name}, as {chr(status)}")


def hold_on(facts: TaskTube, led_us: int, now_us: int) -> None:
    """A leader begins: who had a task when one led the tube last has it for RETRY more (T48.9)."""
    for hold in facts.holds.values():
        if hold.until_us >= led_us:
            until_us = now_us + int(hold.job.retry_s * 1_000_000 * DRIFT)
            hold.until_us = max(hold.until_us, until_us)


def waits_for(run: Run, key: bytes) -> bool:
    """Whether a READY task of the limit waits."""
    ready = [number for numbers in run.ready.values() for number in numbers]
    return any(run.jobs[number].limit[0] == key for number in ready)
