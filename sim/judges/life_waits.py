"""Judges the replies of WAITJOB: they name only jobs that ended, with the outcome of RESULT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.judges.life_facts import LifeJob
from tuque.core.model.job import ACKED

if TYPE_CHECKING:
    from sim.judges.lives import Living

# who may have ended a job so; `gone` and `dead` come of themselves, too
ENDED_BY: Final = {b"done": {"DONE", "ACKJOB"}, b"cancelled": {"CANCEL"}}
MOVED_BY: Final = {"REPLAY", "PURGE", "DONE", "ACKJOB", "CANCEL"}  # a dead letter may be none now


def on_waited(living: Living, jobs: list[LifeJob], asked_us: int, reply: object) -> None:
    """WAITJOB is answered (W9.2)."""
    if not isinstance(reply, list):
        return
    living.history.count("WAITJOBs")
    by_id = {job.id: job for job in jobs}
    named: dict[bytes, bytes] = {}
    for id, outcome in reply:
        if id not in by_id or id in named:
            living.find("life-wait", f"{id!r} is named by a WAITJOB of {sorted(by_id)}")
            continue
        named[id] = outcome
        judge_named(living, by_id[id], asked_us, outcome)
    for id, job in by_id.items():
        if id not in named and was_over(living, job, asked_us):
            living.find("life-wait", f"{job.token!r} was {job.read}, and WAITJOB does not name it")


def judge_named(living: Living, job: LifeJob, asked_us: int, outcome: bytes) -> None:
    """A reply has that outcome of the job."""
    living.history.count(f"waited for: {outcome!r}")
    by = ENDED_BY.get(outcome)
    if by is None and outcome not in (b"gone", b"dead"):
        living.find("life-wait", f"{job.token!r} has the outcome {outcome!r}")
    if by is not None and not by & job.asked and not job.keep_s and living.deaths:
        living.history.count("outcomes that a restart forgot")  # W7.3
    elif by is not None and not by & job.asked and not job.is_added:
        living.history.count("outcomes of jobs that were withdrawn")  # R5: their ADDJOB failed
    elif by is not None and not by & job.asked:
        living.find("life-wait", f"{job.token!r} is {outcome!r}, and nobody ended it so")
    if was_over(living, job, asked_us) and job.read is not None and job.read[0] != outcome:
        living.find("life-wait", f"{job.token!r} was {job.read}, is {outcome!r} for WAITJOB")
    if not living.is_calm(job.asked_us):
        return
    is_open, is_dead = where(living, job)
    if outcome == b"dead":
        if not is_dead and not MOVED_BY & job.asked:
            living.find("life-wait", f"{job.token!r} is no dead letter, WAITJOB says so")
    elif is_open or (is_dead and "REPLAY" not in job.asked):
        living.find("life-wait", f"{job.token!r} is open, WAITJOB says {outcome!r}")


def was_over(living: Living, job: LifeJob, asked_us: int) -> bool:
    """Whether somebody had read the outcome before that, and it is kept."""
    is_read = job.read is not None and job.read_us < asked_us and job.keep_s > 0
    return is_read and living.is_calm(job.asked_us)


def where(living: Living, job: LifeJob) -> tuple[bool, bool]:
    """Whether a node has an open copy of the job now; whether one has it as a dead letter."""
    is_open = is_dead = False
    for m in living.cluster.machines:
        there = m.shell.n.jobs.get(job.id) if m.shell is not None else None
        if m.shell is None or there is None or there.state == ACKED:
            continue
        life = m.shell.n.life.by_id.get(job.id)
        if life is not None and life.is_dead:
            is_dead = True
        else:
            is_open = True
    return is_open, is_dead
