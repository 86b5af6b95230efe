"""One job to another queue. The broker has no word for it: it is put off, added there, cancelled.

Decides in which order. A job with a RETRY is never lost: if the console dies on the way, it is in
both queues once its pause is over. A job with RETRY 0 is never there twice: it may be lost.
"""

from __future__ import annotations

from typing import Any, Final

from tuque.aio import Client
from tuque.clusterview.work import JobFacts
from tuque.errors import Error
from tuque.web.deeds.proposal import Refused

PAUSE_S: Final = 60.0  # so long nobody gets the job that is moved
NO_END_S: Final = 1_000_000_000  # a longer TTL is none
OVER: Final = "It had ended, or a worker got it meanwhile."


async def moved(facts: JobFacts, to: str) -> str:
    """Moves a job that nobody works on; returns its new id. Refused or Error: it was not moved."""
    best = facts.best
    one = next((one for one in facts.copies if one.info is best), None)
    if best is None or one is None or best.body is None or best.queue is None:
        raise Refused("No node has this job any more.")
    if to == best.queue:
        raise Refused(f"It is in {to} already.")
    client = one.node.client
    left_s = (facts.due_ms or 0) / 1000
    if best.retry_s == 0:
        if not await is_cancelled(client, facts.id, f"moved to {to}"):
            raise Refused(OVER)
        return await added(client, facts, to, left_s)
    await client.updatejob(facts.id, delay=min(PAUSE_S, max(best.ttl_s - 1, 1)))
    try:
        id = await added(client, facts, to, left_s)
    except Error:
        await client.updatejob(facts.id, delay=left_s)
        raise
    if not await is_cancelled(client, facts.id, f"moved to {to} as {id}"):
        await is_cancelled(client, id, "its first one was done meanwhile")
        raise Refused(OVER)
    return id


async def added(client: Client, facts: JobFacts, to: str, left_s: float) -> str:
    """The job again in the other queue, with all that it was added with."""
    best, work = facts.best, facts.work
    assert best is not None and best.body is not None
    options: dict[str, Any] = {}
    if work is not None:
        options = {
            "attempts": work.attempts or None,
            "backoff": work.backoff,
            "dead": None if work.dead == f"{best.queue}.dead" else work.dead,
            "keep": work.keep_s or None,
            "time_limit": work.time_limit_s or None,
            "headers": work.headers or None,
        }
    return await client.addjob(
        to,
        best.body,
        replicate=best.repl or None,
        delay=left_s or None,
        retry=best.retry_s,
        ttl=0 if best.ttl_s > NO_END_S else max(best.ttl_s, 1),
        dedupe=f"move:{facts.id}",
        **options,
    )


async def is_cancelled(client: Client, id: str, reason: str) -> bool:
    """Cancels a job, so that whoever waits for its result hears why; False: it runs, or is over."""
    (became,) = await client.cancel(id, reason=reason)
    return became == "ended"
