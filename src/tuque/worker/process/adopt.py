"""What becomes of the jobs of a worker process that a task ended: the rule for its successor.

A job that ran alone has ended it. If several ran, nobody knows which one did: they run again one at
a time, and no attempt is counted until one of them ends its process alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tuque import aio
from tuque.client.api import Job, JobInfo
from tuque.client.commands.life import Result
from tuque.worker.process.box import ENDED, RUNNING, SUSPECT, Box, Entry

ASKED_AT_ONCE: Final = 200


def inherited(box: Box) -> list[Entry]:
    """The previous process's jobs, each with its new state; updates the table, too.

    A WAITING job has not begun. A DONE or ENDED one is over: this process tells the broker how it
    ended. A SUSPECT one runs again, with nothing beside it. The RUNNING one ended the process.
    """
    entries = box.entries()
    alone = sum(entry.state == RUNNING for entry in entries) == 1
    box.clear()
    found = []
    for entry in entries:
        state = SUSPECT if entry.state == RUNNING and not alone else entry.state
        box.put(entry.job_id, entry.number, state, entry.outcome)
        found.append(entry._replace(state=state))
    return found


async def jobs_of(client: aio.Client, entries: list[Entry], worker: str) -> list[tuple[Entry, Job]]:
    """The jobs that nobody else got since they entered the table; raises if the broker is down.

    `worker`: the name under which they began.
    """
    found = []
    for at in range(0, len(entries), ASKED_AT_ONCE):
        some = entries[at : at + ASKED_AT_ONCE]
        pipeline = client.pipeline()
        for entry in some:
            pipeline.show(entry.job_id)
        answers: Iterable[object] = await pipeline.execute(raise_on_error=False)
        for entry, info in zip(some, answers, strict=True):
            if isinstance(info, JobInfo) and is_ours(entry, info):
                assert info.queue is not None and info.body is not None
                found.append((entry, job_of(info, info.queue, info.body)))
    return await _with_limits(client, found, worker)


async def _with_limits(
    client: aio.Client, found: list[tuple[Entry, Job]], worker: str
) -> list[tuple[Entry, Job]]:
    """Asks how many attempts the jobs have; leaves out runs that the broker has ended meanwhile."""
    ours = []
    pipeline = client.pipeline()
    for _, job in found:
        pipeline.result(job.id)
    answers: Iterable[object] = await pipeline.execute(raise_on_error=False) if found else []
    for (entry, job), told in zip(found, answers, strict=True):
        if not isinstance(told, Result):
            ours.append((entry, job))
        elif entry.state != ENDED or not told.of or is_at_work(told, worker):
            ours.append((entry, msgspec.structs.replace(job, of=told.of)))
    return ours


def is_at_work(told: Result, worker: str) -> bool:
    """Whether the run is still that of this worker: nobody was told how it ended."""
    return told.state == "running" and told.worker == worker


def is_ours(entry: Entry, info: JobInfo) -> bool:
    """Whether the table's delivery is the latest: no other client got the job since."""
    number = info.nacks + info.additional_deliveries + 1
    return info.state == "active" and info.body is not None and number == entry.number


def job_of(info: JobInfo, queue: str, body: bytes) -> Job:
    """A job as GETJOB returned it."""
    headers = info.work.headers if info.work is not None else {}
    return Job(queue, info.id, body, info.nacks, info.additional_deliveries, headers=headers)
