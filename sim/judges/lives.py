"""Judges of a job's work: attempts, runs, cancels, results, dead letters (SPEC W).

Some promises hold only while all nodes reach each other: they are judged for jobs that were added
after the last cut, crash or standstill, and until the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.engine.plan import Op
from sim.judges.life_crashes import judge_crashes
from sim.judges.life_edits import judge_body, token_of
from sim.judges.life_facts import END_VERBS, LifeJob, Run
from tuque.core.model.job import ACKED
from tuque.core.model.work import (
    CRASHED,
    EXPIRED,
    FAILED_BY_WORKER,
    UNSTARTED,
    Life,
)

if TYPE_CHECKING:
    from sim.runs.cluster import Cluster

LOOK_US: Final = 100_000
REPLY_US: Final = 20_000  # longer than a reply is on its way to a client
SETTLE_US: Final = 1_000_000
NARROW_BYTES: Final = 1 << 16
OVER_STATES: Final = (b"done", b"cancelled", b"gone")
# faults after which a node may lack what it knew
FORGETTING: Final = {"reformat", "rolling", "forget", "old_disk", "leaving", "disk"}
# operations that end no link and no memory
CALM: Final = {
    "add", "worker", "poke", "queue_pause", "rewrite", "hostile", "clock", "backup", "tube",
    "lessee", "publisher", "repeater", "tube_producer", "tube_worker", "tube_meddler",
    "tube_pauser", "life_producer", "life_worker", "life_boss", "life_editor",
    "life_replayer",
}  # fmt: skip


class Call:
    """A START or FAIL on its way."""

    def __init__(self, run: bytes, worker: bytes, node: str, asked_us: int, deaths: int) -> None:
        self.run = run
        self.worker = worker
        self.node = node
        self.asked_us = asked_us
        self.deaths = deaths


class Living:
    """All jobs with a life in one seed, and the judges of what becomes of them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.history = cluster.history
        self.jobs: dict[bytes, LifeJob] = {}  # by body
        self.by_id: dict[bytes, LifeJob] = {}
        self.unsure = 0  # GETJOBs with START on their way: each may have begun a run
        self.is_on = False
        self.found: set[tuple[str, str]] = set()
        self.disturbed_us = 0
        self.deaths: dict[str, int] = {}
        plan = cluster.plan
        self.is_tight = bool(plan.memory_bytes) or plan.bus_limit_bytes < NARROW_BYTES
        workers = [op.args.get("p_begin") for op in plan.ops if op.kind == "life_worker"]
        is_kept = plan.policy == "always" and plan.faults == ["kill"]
        self.are_only_kills = is_kept and all(p_begin == 1 for p_begin in workers)
        # within it two nodes do not know of each other's last step
        self.slack_us = 100_000 + 20 * plan.delay_us + 60 * plan.cpu_us
        if plan.policy != "off":
            self.slack_us += 80 * plan.sync_us
        self.slack_us += self.history.clock_slack_us

    def begin(self) -> None:
        """The first client of this kind begins: look at the nodes from now on."""
        if not self.is_on:
            self.is_on = True
            self.disturbed_us = max(self.disturbed_us, self.world.now_us)
            self.world.after(LOOK_US, self.look)

    def find(self, rule: str, text: str) -> None:
        """Record a broken promise, once for each job."""
        job = text.split(" ", 1)[0].rstrip(":")
        if (rule, job) not in self.found:
            self.found.add((rule, job))
            self.history.find(rule, text)

    # ---- when all is calm

    def on_op(self, op: Op) -> None:
        """An operation of the plan: most disturb the cluster for a while."""
        if op.kind in CALM:
            return
        span_ms = max(int(op.args.get(name, 0)) for name in ("for_ms", "down_ms", "extra_ms"))
        if op.kind not in ("cut", "one_way", "slow", "break", "pause", "crash", "disk"):
            span_ms = self.cluster.plan.chaos_ms  # it takes its own time
        if "extra_ms" in op.args:
            span_ms += op.args["extra_ms"]
        self.disturb(span_ms * 1000)

    def disturb(self, span_us: int = 0) -> None:
        """Until then, and a while longer, nodes may not hear each other."""
        self.disturbed_us = max(self.disturbed_us, self.world.now_us + span_us)

    def on_death(self, machine_name: str) -> None:
        """A process ended, with its memory."""
        self.disturb()
        self.deaths[machine_name] = self.deaths.get(machine_name, 0) + 1

    def is_calm(self, since_us: int) -> bool:
        """Whether all nodes reached each other since then."""
        return not self.is_tight and since_us > self.disturbed_us + SETTLE_US

    # ---- what clients ask

    def new_job(self, args: dict[str, int]) -> LifeJob:
        """A job is about to be added."""
        job = LifeJob(b"{%d}" % len(self.jobs), args, self.world.now_us)
        self.jobs[job.token] = job
        self.history.count("lives")
        return job

    def on_added(self, job: LifeJob, reply: object) -> None:
        """ADDJOB is answered."""
        if isinstance(reply, bytes):
            job.is_added = True
            self.meet(job, reply)

    def meet(self, job: LifeJob, id: bytes) -> None:
        """The id of a job becomes known."""
        if job.id not in (b"", id):
            self.history.find("damage", f"{job.token!r} has two ids: {job.id!r} and {id!r}")
        job.id = id
        self.by_id[id] = job

    def on_delivered(self, reply: object) -> None:
        """GETJOB is answered."""
        for _, id, body, *_ in reply if isinstance(reply, list) else ():
            job = self.jobs.get(token_of(body))
            if job is not None:
                self.meet(job, id)
                judge_body(self, job, body)
                if 0 < job.cancelled_us < self.world.now_us - REPLY_US:
                    if self.is_calm(job.asked_us):
                        self.find("life-cancel", f"{job.token!r} was handed out when cancelled")
                self.history.count("deliveries of lives")
            else:
                self.history.find("damage", f"delivered what nobody added: {id!r} {body[:40]!r}")

    def on_asked(self, job: LifeJob, verb: str, run: bytes = b"") -> None:
        """Somebody asks for something that may end a run, or the job."""
        job.asked.add(verb)
        self.history.count(f"life {verb}")
        if verb == "RELEASE":
            one = job.run_of(run)
            if one is not None:
                one.over_us = one.over_us or self.world.now_us
        elif verb != "CANCEL":
            job.end_runs(self.world.now_us)

    def on_heard(self, job: LifeJob, run: bytes, asked_us: int, reply: object) -> None:
        """WORKING or PROGRESS is answered."""
        one = job.run_of(run)
        if one is not None and not isinstance(reply, Exception):
            one.heard_us = max(one.heard_us, asked_us)

    # ---- START

    def on_start_asked(self, job: LifeJob, worker: bytes, node: str) -> Call:
        """A worker asks for a run: from now on one may have begun."""
        job.unsure += 1
        self.history.count("STARTs")
        return Call(b"", worker, node, self.world.now_us, self.deaths.get(node, 0))

    def on_started(self, job: LifeJob, call: Call, reply: object) -> None:
        """START is answered: a run has begun, or not."""
        if isinstance(reply, Exception):
            job.unsure -= 1
            return
        if not isinstance(reply, list):
            return
        job.unsure -= 1
        row = reply[0]
        if isinstance(row, list):
            self.on_begun(job, call, row[0], row[1])

    def on_fetch_asked(self, worker: bytes, node: str) -> Call:
        """A worker asks for a job and its run: until there is a reply any job may have begun."""
        self.unsure += 1
        self.history.count("GETJOBs with START")
        return Call(b"", worker, node, self.world.now_us, self.deaths.get(node, 0))

    def on_fetched(self, call: Call, reply: object) -> None:
        """GETJOB with START is answered: its jobs have begun, but for some (W17.3)."""
        self.unsure -= 1
        self.on_delivered(reply)
        for _, _, body, _, run in reply if isinstance(reply, list) else ():
            job = self.jobs.get(token_of(body))
            if job is not None and run is not None:
                self.history.count("runs begun with the delivery")
                self.on_begun(job, call, run, int(run.split(b".")[0]))

    def on_begun(self, job: LifeJob, call: Call, token: bytes, attempt: int) -> None:
        """A worker was told its run."""
        known = job.runs.get(token)
        if known is not None:
            self.history.count("STARTs said again")
            if known.worker != call.worker:
                text = f"{job.token!r}: {known.worker!r} and {call.worker!r} share {token!r}"
                self.find("life-two", text)
            known.heard_us = max(known.heard_us, call.asked_us)
            return
        run = Run(token, attempt, call.worker, call.node, call.asked_us)
        run.at_us, run.deaths = self.world.now_us, self.deaths.get(call.node, 0)
        life = self.life_at(call.node, job.id)
        if life is None:
            job.unsure += 1  # it may be of any life
        else:
            run.replays = int(life.replays)
            job.began[run.replays] = job.began.get(run.replays, 0) + 1
        self.history.count("runs")
        self.judge_start(job, run)
        job.runs[token] = run

    def life_at(self, node: str, id: bytes) -> Life | None:
        """The life as the node knows it now."""
        shell = self.cluster.machines[int(node[1:])].shell
        return shell.n.life.by_id.get(id) if shell is not None else None

    def crashes_max(self, node: str) -> int:
        """How many crashes of a job the node takes (W6.7)."""
        shell = self.cluster.machines[int(node[1:])].shell
        return int(shell.n.limits.crashes_max) if shell is not None else 0

    def judge_start(self, job: LifeJob, run: Run) -> None:
        """A run has begun: was it allowed to, and is its number right?"""
        is_calm = self.is_calm(job.asked_us)
        if job.cancelled_us and (is_calm or self.are_only_kills):  # W16.9
            self.history.count("STARTs after a cancel")
            if run.asked_us > job.cancelled_us:
                self.find("life-cancel", f"{job.token!r} began after it was cancelled")
        if not is_calm:
            return
        for other in job.runs.values():
            self.history.count("pairs of runs")
            if self.is_live(job, other, run):
                apart_us = run.asked_us - other.heard_us
                self.find(
                    "life-two",
                    f"{job.token!r}: {run.token!r} at {run.node} began {apart_us / 1e6:.3f} s after"
                    f" {other.token!r} at {other.node} was heard, RETRY {job.retry_s}",
                )
            if number_of(other.token) >= number_of(run.token):
                if other.at_us + self.slack_us < run.asked_us:
                    self.find(
                        "life-count",
                        f"{job.token!r}: {run.token!r} began after {other.token!r}",
                    )
            if other.failed_us and other.failed_us + self.slack_us < run.asked_us:
                if other.attempt >= run.attempt and other.replays == run.replays:
                    self.find(
                        "life-count",
                        f"{job.token!r}: {other.token!r} failed, then {run.token!r} began",
                    )

    def is_live(self, job: LifeJob, other: Run, run: Run) -> bool:
        """Whether another run goes on, and who began this one knows of it."""
        if other.over_us and other.over_us <= run.at_us:
            return False
        if run.asked_us < other.at_us + self.slack_us:
            return False  # two STARTs at about the same time
        if job.limit_s and run.at_us >= other.asked_us + int(job.limit_s * 1e6) - self.slack_us:
            return False
        return run.at_us < other.heard_us + job.retry_s * 1_000_000 - self.slack_us

    # ---- FAIL

    def on_fail_asked(self, job: LifeJob, token: bytes, node: str, is_final: bool) -> Call:
        """A worker says that its run failed: the run may be over from now on."""
        job.is_given_up = job.is_given_up or is_final
        run = job.run_of(token)
        if run is not None:
            run.over_us = run.over_us or self.world.now_us
            run.is_said_to_fail = True
        self.history.count("FAILs")
        return Call(token, b"", node, self.world.now_us, self.deaths.get(node, 0))

    def on_failed(self, job: LifeJob, call: Call, reply: object) -> None:
        """FAIL is answered."""
        run = job.run_of(call.run)
        if run is None:
            return
        is_counted = isinstance(reply, list) and reply[0] in (b"retry", b"dead")
        if is_counted:
            run.failed_us = run.failed_us or self.world.now_us
        for other in job.runs.values():
            if number_of(other.token) <= number_of(run.token) or other.at_us >= call.asked_us:
                continue
            if run.asked_us > other.at_us:  # the later one: an old disk forgot the count of STARTs
                self.history.count("FAILs of runs with old numbers")
                continue
            self.history.count("FAILs of old runs")
            here = other.node == call.node and other.deaths == self.deaths.get(call.node, 0)
            is_known = other.at_us + self.slack_us < call.asked_us and self.is_calm(job.asked_us)
            if is_counted and (here or is_known):
                self.find(
                    "life-fence", f"{job.token!r}: FAIL of {run.token!r} hit after {other.token!r}"
                )

    # ---- CANCEL, RESULT

    def on_cancelled(self, job: LifeJob, reply: object) -> None:
        """CANCEL is answered."""
        if isinstance(reply, list):
            self.history.count(f"cancels: {reply[0]!r}")
            if reply[0] == b"ended":
                job.cancelled_us = job.cancelled_us or self.world.now_us

    def on_read(self, job: LifeJob, asked_us: int, node: str, reply: object) -> None:
        """RESULT is answered: what was once read stays."""
        is_due = job.read is not None and asked_us > job.read_us and self.is_calm(job.asked_us)
        if isinstance(reply, Exception) and str(reply).startswith("NOJOB"):
            if is_due and job.keep_s:
                self.find("life-result", f"{job.token!r} was {job.read}, is unknown at {node}")
        if not isinstance(reply, list):
            return
        fields = dict(zip(reply[::2], reply[1::2], strict=True))
        state, result = fields[b"state"], fields[b"result"]
        self.history.count("results read")
        if b"was dropped: memory was short" in fields[b"reason"]:
            self.history.count("results dropped")
            return  # M3.4
        if is_due:
            self.history.count("results read again")
            if job.read != (state, result) and job.keep_s:
                self.find(
                    "life-result",
                    f"{job.token!r} was {job.read}, is {(state, result)} at {node}",
                )
        if state in OVER_STATES and job.read is None and self.is_calm(job.asked_us):
            job.read, job.read_us = (state, result), self.world.now_us

    # ---- looks at the nodes

    def look(self) -> None:
        """Look at the lives on all nodes, every tenth of a second."""
        cluster = self.cluster
        if not cluster.is_whole() or any(m.shell.n.is_leaving for m in cluster.machines if m.shell):
            self.disturb()
        for m in cluster.machines:
            if m.shell is not None:
                for id, life in m.shell.n.life.by_id.items():
                    job = self.by_id.get(id)
                    if job is not None:
                        self.judge_life(m.name, job, life)
        self.world.after(LOOK_US, self.look)

    def judge_life(self, node: str, job: LifeJob, life: Life) -> None:
        """What a node knows of a job must have happened."""
        self.history.count("looks at lives")
        unsure = job.unsure + self.unsure
        most = job.began.get(int(life.replays), 0) + unsure
        if not self.is_calm(job.asked_us):
            most = len(job.runs) + unsure  # a cut may hide a REPLAY from a run
        if life.failed > most:
            self.find(
                "life-attempts",
                f"{job.token!r} failed {life.failed} times at {node}, {most} runs began",
            )
        judge_crashes(self, node, job, life)
        if life.is_dead:
            self.judge_letter(node, job, life)

    def judge_letter(self, node: str, job: LifeJob, life: Life) -> None:
        """The reason of a dead letter is that of its last attempt."""
        self.history.count("looks at letters")
        last, cause = life.last, life.dead_cause
        if last is None:
            if cause == FAILED_BY_WORKER:
                self.find("life-reason", f"{job.token!r} is dead at {node} without reason")
            return
        is_right = last.attempt == life.failed
        if last.cause == CRASHED:  # silence uses up no attempt (W6.7)
            is_right = is_right or last.attempt == life.failed + 1
        if last.cause == FAILED_BY_WORKER:
            is_right = is_right and last.reason.startswith(b"of %d." % life.failed)
        if cause not in (EXPIRED, UNSTARTED) and self.is_calm(job.asked_us):
            is_right = is_right and cause == last.cause
        if not is_right:
            self.find(
                "life-reason",
                f"{job.token!r} is dead at {node} for {cause!r} after {life.failed} attempts; last "
                f"is {last.attempt}: {last.cause!r} {last.reason!r}",
            )

    # ---- the end

    def on_drained(self) -> None:
        """Every job has ended in a way that explains it, or is a dead letter."""
        for job in self.jobs.values():
            if job.is_added:
                self.judge_end(job)

    def judge_end(self, job: LifeJob) -> None:
        """A job with ATTEMPTS never ends without an outcome; none is left over; all agree."""
        lives: list[Life] = []
        is_open = False
        for m in self.cluster.machines:
            assert m.shell is not None
            there = m.shell.n.jobs.get(job.id)
            if there is not None and there.state != ACKED:
                life = m.shell.n.life.by_id.get(job.id)
                if life is not None and life.is_dead:
                    lives.append(life)
                else:
                    is_open = True
        self.history.count("ends of lives")
        if is_open and job.asked_us < self.cluster.healed_us and self.is_tight:
            self.history.count("lives left open where there is no room")
        elif is_open and job.asked_us < self.cluster.healed_us:
            self.find("life-stuck", f"{job.token!r} is still open")
        elif not lives and job.attempts and not job.asked & set(END_VERBS):
            if self.are_copies_safe():
                self.find("life-outcome", f"{job.token!r} ended, and nobody ended it")
        if lives and self.is_calm(job.asked_us):
            views = {(int(v.failed), int(v.replays), v.dead_cause) for v in lives}
            best = max((r.attempt for r in job.runs.values() if r.failed_us), default=0)
            if len(views) > 1:
                self.find("life-count", f"{job.token!r} differs at its holders: {views}")
            if "REPLAY" not in job.asked and any(v.failed < best for v in lives):
                self.find("life-count", f"{job.token!r} lost an attempt: {views}, {best}")

    def are_copies_safe(self) -> bool:
        """Whether no fault may have taken the last copy."""
        plan = self.cluster.plan
        if self.is_tight or self.history.are_times_off or "clock" in plan.faults:
            return False
        is_on_disk = plan.policy == "always" and not FORGETTING & set(plan.faults)
        return is_on_disk or not self.deaths


def number_of(token: bytes) -> int:
    """The count of STARTs of a token."""
    return int(token.split(b".")[1])
