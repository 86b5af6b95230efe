"""Judges the count of crashes: a run that ends in silence is no attempt (SPEC W6.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.judges.life_facts import LifeJob, Run
from tuque.core.model.work import CRASHED, Life

if TYPE_CHECKING:
    from sim.judges.lives import Living


def judge_crashes(living: Living, node: str, job: LifeJob, life: Life) -> None:
    """What a node has counted: crashes are runs in silence, attempts are those that FAIL named."""
    crashes, failed = int(life.crashes), int(life.failed)
    if crashes:
        living.history.count("looks at crashes")
    silent = [run for run in job.runs.values() if may_be_silent(living, job, run)]
    most = len(silent) + job.unsure + living.unsure
    if crashes > most:
        text = f"{job.token!r} has {crashes} crashes at {node}, {most} runs may have been silent"
        living.find("life-crash", text)
    said = sum(run.is_said_to_fail for run in job.runs.values())
    if failed > said and not job.limit_s:  # a node ends a run over its TIMELIMIT by itself
        text = f"{job.token!r} has {failed} failed attempts at {node}, FAIL named {said} runs"
        living.find("life-crash", text)
    # One that FAIL has ended may have been silent for another node, which noticed it later (W14.2).
    is_ended = job.is_given_up or 0 < life.terms.attempts <= failed
    is_early = crashes < living.crashes_max(node) and not is_ended
    if life.is_dead and life.dead_cause == CRASHED and is_early:
        text = f"{job.token!r} is dead at {node} for crashes, and has {crashes}"
        living.find("life-crash", text)


def may_be_silent(living: Living, job: LifeJob, run: Run) -> bool:
    """Whether no FAIL of the run was confirmed well before it had been silent for RETRY."""
    if not run.failed_us or not living.is_calm(job.asked_us):
        return True
    return run.failed_us > run.heard_us + job.retry_s * 1_000_000 - living.slack_us
