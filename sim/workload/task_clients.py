"""Clients of tubes of type `tasks`: they add jobs with keys, work on them, and end them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sim.machines.kernel import place_of
from sim.task_judges.facts import Edit, Job
from sim.task_judges.groups import Child
from sim.workload.programs import Args, number
from sim.workload.scripts import IDLE_US, Say, Script, Steps, Told, failed, says

if TYPE_CHECKING:
    from sim.runs.cluster import Cluster


class TaskClient(Script):
    """A client of one tube, at its leader as far as it knows."""

    def __init__(self, cluster: Cluster, name: str, args: Args) -> None:
        super().__init__(cluster, name, args)
        self.judge = cluster.tasking
        self.facts = cluster.tasking.tubes[args["tube"].encode()]

    def mend(self, reply: object) -> Told:
        """After a refusal: make the missing tube, go to its leader, or to another node."""
        if says(reply, "NOTUBE"):
            return (yield Say(self.facts.words()))
        if says(reply, "TUBEHOME"):
            self.node = place_of(str(reply).split()[1].rpartition(":")[0])
        elif failed(reply):
            yield IDLE_US
            if self.chance.random() < 0.3:
                self.node = self.chance.choice(self.cluster.machines).name
        return None

    def choose(self, name: str) -> Any:
        """One of the values that the plan allows; None: it has no such option."""
        values = self.args.get(name)
        return self.chance.choice(values) if values else None


class TaskProducer(TaskClient):
    """Adds jobs with keys."""

    def steps(self) -> Steps:
        """Make the tube, then add one job after the other."""
        while failed(reply := (yield Say(self.facts.words()))):
            yield from self.mend(reply)  # jobs that come before it are in a plain queue (T1.9)
            yield IDLE_US
        while True:
            job = self.facts.new_job(self.options(), self.world.now_us)
            told = partial(self.judge.on_added, self.facts, job, self.node)
            reply = yield Say(job.words(self.facts.key), told)
            if not says(reply, "DUPLICATE"):
                yield from self.mend(reply)
            yield self.chance.randrange(self.args["idle_ms"] * 1000)

    def options(self) -> dict[str, Any]:
        """The options of one job."""
        found: dict[str, Any] = {"retry": self.choose("retry")}
        for name in ("unique", "on", "limit", "rate", "group", "attempts", "ttl"):
            value = self.choose(name)
            if value:
                found[name] = of_plan(value)
        return found


def of_plan(value: Any) -> Any:
    """A value of a plan as the job has it: words are bytes."""
    if isinstance(value, list):
        return tuple(of_plan(one) for one in value)
    return value.encode() if isinstance(value, str) else value


class TaskWorker(TaskClient):
    """Gets jobs and works on them: it says so at times, fails, gives back, falls silent."""

    def steps(self) -> Steps:
        """The steps of one process of the client."""
        while True:
            words = [b"GETJOB", b"TIMEOUT", number(self.args["timeout"]), b"FROM", self.facts.key]
            asked_us = self.world.now_us
            reply = yield Say(words)
            if failed(reply):
                yield from self.mend(reply)
            elif isinstance(reply, list):
                job = self.facts.job_of(reply[0][1], reply[0][2])
                if job is not None:
                    self.judge.on_body(job, reply[0][2], asked_us)
                    yield from self.work(job)
                else:
                    yield from self.others(reply[0][1], reply[0][2])
            yield self.args["idle_ms"] * 1000

    def others(self, id: bytes, body: bytes) -> Steps:
        """A job of a schedule, a callback, or a child of a group."""
        child, group = self.judge.groups.children.get(body), self.judge.groups.groups.get(body)
        if child is not None:
            yield from end_child(self, child, id)
            return
        ended: Callable[[object], None] | None = None
        if group is not None:
            words = [b"GROUP", b"RESULTS", self.facts.key, id]
            reply = yield Say(words, partial(self.judge.groups.on_results, group))
            if failed(reply):
                return
            group.is_done, ended = True, partial(self.judge.groups.on_end, group)
        yield from self.mend((yield Say([b"ACKJOB", id], ended)))

    def worker(self) -> bytes:
        """What this process calls itself: no two have one name."""
        return b"w-%s-%d" % (self.name.encode(), self.serial)

    def work(self, job: Job) -> Steps:
        """One run, or an end without one."""
        if self.sometimes("p_drop"):
            return
        worker = self.worker()
        if self.sometimes("p_plain"):
            verb = self.chance.choice([b"ACKJOB", b"NACK"])
            yield from self.say_end(job, verb, worker, [verb, job.id])
            return
        most = self.judge.on_start_asked(job, worker)
        told = partial(self.judge.on_started, job, most)
        reply = yield Say([b"START", b"WORKER", worker, job.id], told)
        if not isinstance(reply, list) or not isinstance(reply[0], list):
            yield from self.mend(reply)
            return
        run: bytes = reply[0][0]
        for _ in range(self.chance.randint(0, 3)):
            heard = partial(self.judge.on_heard, self.facts, job, run, self.world.now_us)
            reply = yield Say([b"WORKING", job.id, run], heard)
            if failed(reply):
                yield from self.mend(reply)
            yield self.chance.randrange(self.args["work_ms"] * 1000 + 1)
        if not self.sometimes("p_silent"):
            yield from self.end_run(job, worker, run)

    def end_run(self, job: Job, worker: bytes, run: bytes) -> Steps:
        """DONE, FAIL or RELEASE, again where no reply came."""
        lot = self.chance.random()
        verb, words = b"DONE", [b"DONE", job.id, run, b"RESULT", b"by " + run]
        if lot < self.args.get("p_fail", 0.0):
            verb, words = b"FAIL", [b"FAIL", job.id, run, b"REASON", b"of " + run]
        elif lot > 1 - self.args.get("p_release", 0.0):
            verb, words = b"RELEASE", [b"RELEASE", job.id, run]
        for _ in range(3):
            reply = yield from self.say_end(job, verb, worker, words)
            if not failed(reply) or says(reply, "STALE"):
                return
            yield from self.mend(reply)

    def say_end(self, job: Job, verb: bytes, worker: bytes, words: list[bytes]) -> Told:
        """A command that ends a job or gives it back."""
        self.judge.on_end_asked(self.facts, job, verb)
        told = partial(self.judge.on_end, job, verb, worker)
        return (yield Say(words, told))


def end_child(who: Script, child: Child, id: bytes) -> Steps:
    """A run of a child: done, failed for good, cancelled, deleted, or silent."""
    worker = b"c-%s-%d" % (who.name.encode(), who.serial)
    child.begun += 1
    reply = yield Say([b"START", b"WORKER", worker, id])
    if not isinstance(reply, list) or not isinstance(reply[0], list):
        return
    run: bytes = reply[0][0]
    yield who.chance.randrange(who.args["work_ms"] * 1000 + 1)
    lot = who.chance.random() if who.args.get("p_odd", 0.0) > who.chance.random() else 1.0
    result = b"by " + worker
    if lot < 0.25:
        return  # silent: it crashed
    words = [b"DONE", id, run, b"RESULT", result]
    if lot < 0.5:
        words = [b"FAIL", id, run, b"REASON", b"no", b"FINAL"]
    elif lot < 0.7:
        words = [b"CANCEL", id]
    elif lot < 0.9:
        words = [b"DELJOB", id]
    else:
        child.results.add(result)
    child.asked.add(words[0])
    yield Say(words)


class TaskBoss(TaskClient):
    """Cancels jobs of others, wherever they are, or gives them other bodies."""

    def steps(self) -> Steps:
        """The steps of one process of the client."""
        while True:
            yield self.chance.randrange(self.args["idle_ms"] * 2_000)
            known = list(self.facts.by_id.values())[-8:]
            if known:
                job = self.chance.choice(known)
                if not job.unique and self.chance.random() < 0.7:  # a key's body may be replaced
                    yield from self.edit(job)
                    continue
                self.judge.on_end_asked(self.facts, job, b"CANCEL")
                yield from self.mend((yield Say([b"CANCEL", job.id])))

    def edit(self, job: Job) -> Steps:
        """UPDATEJOB BODY."""
        edit = Edit(self.world.now_us)
        job.edits.append(edit)
        body = b"%s#%d" % (job.token, len(job.edits))
        told = partial(self.judge.on_edited, edit)
        yield from self.mend((yield Say([b"UPDATEJOB", job.id, b"BODY", body], told)))
