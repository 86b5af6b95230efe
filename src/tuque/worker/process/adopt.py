"""What becomes of the jobs of a worker process that a task ended: the rule for its successor.

Decides who may have ended it. A job that ran alone did. Of several nobody knows which one: they run
again one at a time, and no attempts are counted until one ends its process alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tuque import aio
from tuque.client.api import Job, JobInfo
from tuque.client.commands.life import Result
from tuque.worker.process.box import RUNNING, SUSPECT, Box, Entry

ASKED_AT_ONCE: Final = 200


def inherited(box: Box) -> list[Entry]:
    """The previous process's jobs, each with its new state; updates the table, too.

    WAITING has not begun. DONE only needs an ack. SUSPECT runs again, with nothing beside it.
    RUNNING is the one that ended the process.
    """
    entries = box.entries()
    alone = sum(entry.state == RUNNING for entry in entries) == 1
    box.clear()
    found = []
    for entry in entries:
        state = SUSPECT if entry.state == RUNNING and not alone else entry.state
        box.put(entry.job_id, entry.number, state)
        found.append(entry._replace(state=state))
    return found


async def jobs_of(client: aio.Client, entries: list[Entry]) -> list[tuple[Entry, Job]]:
    """The jobs still in the delivery that the table has; raises if the broker is down."""
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
    await _add_limits(client, found)
    return found


async def _add_limits(client: aio.Client, found: list[tuple[Entry, Job]]) -> None:
    """Asks how many attempts the jobs have, which SHOW does not show."""
    pipeline = client.pipeline()
    for _, job in found:
        pipeline.result(job.id)
    answers: Iterable[object] = await pipeline.execute(raise_on_error=False) if found else []
    for at, ((entry, job), told) in enumerate(zip(found, answers, strict=True)):
        if isinstance(told, Result):
            found[at] = entry, msgspec.structs.replace(job, of=told.of)


def is_ours(entry: Entry, info: JobInfo) -> bool:
    """Whether the table's delivery is the latest: no other client got the job since."""
    number = info.nacks + info.additional_deliveries + 1
    return info.state == "active" and info.body is not None and number == entry.number


def job_of(info: JobInfo, queue: str, body: bytes) -> Job:
    """A job as GETJOB returned it."""
    return Job(queue, info.id, body, info.nacks, info.additional_deliveries)
