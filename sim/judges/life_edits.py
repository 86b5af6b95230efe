"""Judges UPDATEJOB: after OK no job is delivered with an older body (SPEC W10, W16)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.judges.life_facts import LifeJob

if TYPE_CHECKING:
    from sim.judges.lives import Living


class Edit:
    """One UPDATEJOB."""

    def __init__(self, asked_us: int) -> None:
        self.asked_us = asked_us
        self.done_us = 0  # when it was answered
        self.is_made = False
        self.is_refused = False  # with an error that changes nothing


def token_of(body: bytes) -> bytes:
    """The token of the job, whatever edit of it the body is."""
    return body.partition(b"#")[0]


def begin_edit(judge: Living, job: LifeJob) -> tuple[bytes, Edit]:
    """Somebody gives the job another body."""
    made = Edit(judge.world.now_us)
    job.edits.append(made)
    return b"%s#%d" % (job.token, len(job.edits)), made


def on_edited(judge: Living, made: Edit, reply: object) -> None:
    """UPDATEJOB is answered."""
    made.done_us = judge.world.now_us
    made.is_made = reply == b"OK"
    made.is_refused = isinstance(reply, Exception) and "may still be made" not in str(reply)
    judge.history.count("edits made" if made.is_made else "edits refused")


def judge_body(judge: Living, job: LifeJob, body: bytes) -> None:
    """A job is delivered: with a body that somebody gave it, and with none from before an OK."""
    number = int(body.partition(b"#")[2] or b"0")
    if number > len(job.edits):
        judge.find("life-edit", f"{job.id!r} has a body that nobody gave it: {body!r}")
        return
    over_us = job.asked_us
    if number > 0:
        mine = job.edits[number - 1]
        if mine.is_refused:
            judge.find("life-edit", f"{job.id!r} has a body that was refused: {body!r}")
        if mine.done_us == 0:
            return  # nobody knows when it was made
        over_us = mine.done_us
    for edit in job.edits[number:]:
        if edit.is_made and edit.asked_us > over_us and judge.is_calm(over_us):
            judge.find("life-edit", f"{job.id!r} is delivered with {body!r} after a later OK")
            return
