"""Jobs that no ADDJOB of the test added: by schedules, for topics, callbacks of groups.

Reads the broker's tables; changes nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final

from tuque.client.api import to_text
from tuque.core.model import task as tubes
from tuque.core.model.job import ACKED, Job
from tuque.core.node.node import Node
from tuque.core.queues.ends import life_of
from tuque.testing.jobs import Noted, own
from tuque.tubes.entries.keys import is_job
from tuque.wire.commands.arguments import header_pairs

NO_BODY: Final = b""


def added_here(node: Node, known: Container[str]) -> Iterator[Noted]:
    """The open jobs that are not known yet, in the order in which they came."""
    for job in list(node.jobs.values()):
        id = to_text(job.id)
        if id not in known and is_open(node, job):
            yield noted_of(node, job, id)


def is_open(node: Node, job: Job) -> bool:
    """Whether it is a job that has not ended: no schedule, no group, no dead letter."""
    if job.state == ACKED or (isinstance(job, tubes.Task) and not is_job(job)):
        return False
    life = life_of(node, job.id)
    return life is None or not life.is_dead


def noted_of(node: Node, job: Job, id: str) -> Noted:
    """What is to be remembered of it."""
    noted = Noted(id, to_text(job.queue), job.body or NO_BODY)
    life = life_of(node, job.id)
    words = [to_text(word) for word in header_pairs(life.headers)] if life is not None else []
    noted.headers = own(dict(zip(words[::2], words[1::2], strict=True)))
    return noted
