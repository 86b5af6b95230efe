"""Clients of a job's work: who adds, works, cancels, reads, replays and purges (SPEC W)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sim.judges.life_edits import begin_edit, on_edited, token_of
from sim.judges.life_facts import LifeJob
from sim.judges.life_rates import on_paced
from sim.judges.life_waits import on_waited
from sim.workload.programs import Args, number
from sim.workload.scripts import Say, Script, Steps, failed

if TYPE_CHECKING:
    from sim.runs.cluster import Cluster

WORK: Final = b"work"
LETTERS: Final = WORK + b".dead"


class LifeClient(Script):
    """A client that may go on at another node."""

    def __init__(self, cluster: Cluster, name: str, args: Args) -> None:
        super().__init__(cluster, name, args)
        self.judge = cluster.living
        self.judge.begin()

    def move(self) -> None:
        """Close the connection; go on at some node."""
        self.session(self.node).close()
        self.machine = self.chance.choice(self.cluster.machines)
        self.node = self.machine.name

    def roam(self) -> None:
        """Go to some node and leave this connection as it is."""
        self.machine = self.chance.choice(self.cluster.machines)
        self.node = self.machine.name

    def some(self, name: str) -> Any:
        """One of the values that the plan allows."""
        return self.chance.choice(self.args[name])


class LifeProducer(LifeClient):
    """Adds jobs with ATTEMPTS, BACKOFF, KEEP, TIMELIMIT and TTL 0."""

    def steps(self) -> Steps:
        """The steps of one process of the client."""
        while True:
            args: dict[str, Any] = {
                name: self.some(name) for name in ("attempts", "retry", "keep", "limit", "ttl")
            }
            args["repl"] = self.chance.randint(1, min(3, len(self.cluster.machines)))
            job = self.judge.new_job(args)
            words = [b"ADDJOB", WORK, job.token, b"1000", b"REPLICATE", number(job.repl)]
            words += [b"RETRY", number(job.retry_s), b"TTL", number(job.ttl_s)]
            if job.attempts:
                words += [b"ATTEMPTS", number(job.attempts)]
            words += [b"BACKOFF", *(number(one) for one in self.args["backoff"])]
            for name, value in (("KEEP", job.keep_s), ("TIMELIMIT", job.limit_s)):
                if value:
                    words += [name.encode(), number(value)]
            delay_s = self.some("delay")
            if delay_s:
                words += [b"DELAY", number(delay_s)]
            yield Say(words, partial(self.judge.on_added, job))
            yield self.chance.randrange(self.args["idle_ms"] * 2_000)
            if self.chance.random() < 0.2:
                self.roam()


class LifeWorker(LifeClient):
    """Gets jobs and works on them, well or badly."""

    def steps(self) -> Steps:
        """The steps of one process of the client."""
        while True:
            queues = [WORK, LETTERS] if self.sometimes("p_letter") else [WORK]
            words = [b"GETJOB", b"TIMEOUT", number(self.args["timeout"])]
            told: Callable[[object], None] = self.judge.on_delivered
            # without that habit no lot is drawn: older seeds stay what they were
            if self.args.get("p_begin") and self.sometimes("p_begin"):
                call = self.judge.on_fetch_asked(self.worker(), self.node)
                words += [b"START", b"WORKER", call.worker]
                told = partial(self.judge.on_fetched, call)
            reply = yield Say([*words, b"FROM", *queues], told)
            if failed(reply):
                yield 300_000
                if self.sometimes("p_move"):
                    self.move()
            for _, _, body, *more in reply if isinstance(reply, list) else ():
                job = self.judge.jobs.get(token_of(body))
                if job is not None and more and isinstance(more[1], bytes):
                    yield from self.work(job, more[1])
                elif job is not None:
                    yield from self.take(job)
            yield self.args["idle_ms"] * 1000

    def worker(self) -> bytes:
        """What this process calls itself: no two have one name."""
        return b"w-%s-%d" % (self.name.encode(), self.serial)

    def take(self, job: LifeJob) -> Steps:
        """Begin the job, unless this worker knows no START or dies of its body."""
        if self.sometimes("p_drop"):
            return
        if self.sometimes("p_plain"):
            verb = self.chance.choice(["ACKJOB", "NACK"])
            self.judge.on_asked(job, verb)
            yield Say([verb.encode(), job.id])
            return
        run = yield from self.start(job)
        if isinstance(run, bytes):
            yield from self.work(job, run)

    def start(self, job: LifeJob) -> Any:
        """START, once more if there was no reply."""
        worker = self.worker()
        for _ in range(2):
            call = self.judge.on_start_asked(job, worker, self.node)
            words = [b"START", b"WORKER", worker, job.id]
            reply = yield Say(words, partial(self.judge.on_started, job, call))
            if isinstance(reply, list):
                return reply[0][0] if isinstance(reply[0], list) else None
            if isinstance(reply, Exception):
                return None
        return None

    def work(self, job: LifeJob, run: bytes) -> Steps:
        """The run: beats, then an end, or silence and maybe a late end."""
        for _ in range(self.chance.randint(0, 3) if self.sometimes("p_beat") else 0):
            yield self.chance.randrange(job.retry_s * 700_000)
            words = [b"WORKING", job.id, run]
            if self.chance.random() < 0.5:
                words = [b"PROGRESS", job.id, run, b"at " + run]
            heard = partial(self.judge.on_heard, job, run, self.world.now_us)
            reply = yield Say(words, heard)
            if isinstance(reply, Exception) and self.chance.random() < 0.5:
                return
        yield self.chance.randrange(self.args["work_ms"] * 1000 + 1)
        if self.sometimes("p_silent"):
            if not self.sometimes("p_late"):
                return
            self.history.count("runs that speak late")
            yield int(job.retry_s * (1 + 2 * self.chance.random()) * 1_000_000)
        if self.sometimes("p_move"):
            self.move()
        times = 2 if self.sometimes("p_twice") else 1
        for _ in range(times):
            yield from self.end_run(job, run)
            self.roam() if self.sometimes("p_move") else None

    def end_run(self, job: LifeJob, run: bytes) -> Steps:
        """FAIL, RELEASE or DONE, by chance."""
        lot = self.chance.random() - self.args.get("p_fail", 0.0)
        if lot < 0:
            words = [b"FAIL", job.id, run, b"REASON", b"of " + run]
            is_final = self.sometimes("p_final")
            if is_final:
                words.append(b"FINAL")
            call = self.judge.on_fail_asked(job, run, self.node, is_final)
            yield Say(words, partial(self.judge.on_failed, job, call))
            return
        if lot < self.args.get("p_release", 0.0):
            words = [b"RELEASE", job.id, run]
            if self.chance.random() < 0.5:
                words[1:1] = [b"DELAY", b"1"]
            self.judge.on_asked(job, "RELEASE", run)
            yield Say(words)
            return
        self.judge.on_asked(job, "DONE")
        yield Say([b"DONE", job.id, run, b"RESULT", b"by " + run])


class LifeBoss(LifeClient):
    """Reads results, waits, cancels, replays and purges, at any node."""

    def steps(self) -> Steps:
        """The steps of one process of the client."""
        while True:
            yield self.chance.randrange(self.args["idle_ms"] * 2_000)
            self.roam()
            if self.sometimes("p_letters"):
                yield from self.replay_or_purge()
                continue
            known = [job for job in self.judge.jobs.values() if job.id]
            if not known:
                continue
            late = known[-8:]
            job = self.chance.choice(late if self.chance.random() < 0.7 else known)
            if self.sometimes("p_cancel"):
                self.judge.on_asked(job, "CANCEL")
                words = [b"CANCEL", b"REASON", b"enough", job.id]
                yield Say(words, partial(self.judge.on_cancelled, job))
            elif self.sometimes("p_wait"):
                jobs = [job] if job is late[0] else [job, late[0]]
                waited = partial(on_waited, self.judge, jobs, self.world.now_us)
                yield Say([b"WAITJOB", b"500", *(one.id for one in jobs)], waited)
            else:
                read = partial(self.judge.on_read, job, self.world.now_us, self.node)
                yield Say([b"RESULT", job.id], read)

    def replay_or_purge(self) -> Steps:
        """DEAD REPLAY or PURGE of all, or of one job."""
        verb = self.chance.choice(["REPLAY", "REPLAY", "PURGE"])
        known = [job for job in self.judge.jobs.values() if job.id]
        some = known
        words = [b"DEAD", verb.encode(), LETTERS, b"ALL"]
        if known and (verb == "PURGE" or self.chance.random() < 0.5):
            some = [self.chance.choice(known)]
            words = [b"DEAD", verb.encode(), LETTERS, b"IDS", some[0].id]
        for job in some:
            self.judge.on_asked(job, verb)
        reply = yield Say(words)
        if isinstance(reply, list):
            self.history.count(f"letters {verb}", int(reply[1]))


class LifeReplayer(LifeClient):
    """Replays dead letters so many a second, at any node; may hang up before the end."""

    def steps(self) -> Steps:
        """The steps of one process of the client."""
        while True:
            yield self.chance.randrange(self.args["idle_ms"] * 2_000)
            self.roam()
            for job in self.judge.jobs.values():
                if job.id:
                    self.judge.on_asked(job, "REPLAY")
            rate = self.some("rate")
            words = [b"DEAD", b"REPLAY", LETTERS, b"RATE", number(rate), b"ALL"]
            yield Say(words, partial(on_paced, self.judge, rate, self.world.now_us))


class LifeEditor(LifeClient):
    """Gives jobs other bodies, at any node."""

    def steps(self) -> Steps:
        """The steps of one process of the client."""
        while True:
            yield self.chance.randrange(self.args["idle_ms"] * 2_000)
            self.roam()
            known = [job for job in self.judge.jobs.values() if job.id][-6:]
            if not known:
                continue
            job = self.chance.choice(known)
            body, edit = begin_edit(self.judge, job)
            words = [b"UPDATEJOB", job.id, b"BODY", body]
            yield Say(words, partial(on_edited, self.judge, edit))
