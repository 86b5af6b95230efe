"""The schedules of the app go to the broker when the worker starts (SPEC U9)."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final

from tuque import aio
from tuque.errors import Error
from tuque.logtext import facts
from tuque.worker.app.app import App
from tuque.worker.app.enqueue import Planned, is_final, send_plan_async
from tuque.worker.run.link import RECONNECT

log: Final = logging.getLogger("tuque.worker")


async def send_plans(app: App, client: aio.Client, rng: random.Random) -> None:
    """Tries until the broker has them; what it refuses is logged, and the worker works on."""
    failures = 0
    due = list(app.schedules.values())
    while due:
        due = [one for one in due if not await _is_settled(client, one)]
        failures += 1
        if due:
            await asyncio.sleep(RECONNECT.delay_s(failures, rng))


async def _is_settled(client: aio.Client, one: Planned) -> bool:
    """Tells the broker a schedule; False: the broker is away, or takes nothing now."""
    try:
        what = await send_plan_async(client, one)
    except Exception as err:
        if not is_final(err):
            if not isinstance(err, Error):
                raise
            return False  # the link says that the broker is away
        log.warning(
            "schedule %(schedule)s of queue %(queue)s is not in force: %(reason)s",
            facts("schedule_refused", schedule=one.name, queue=one.call.options.queue, reason=err),
        )
        return True
    if what != "unchanged":
        log.info(
            "schedule %(schedule)s was %(outcome)s",
            facts("schedule_registered", schedule=one.name, outcome=what),
        )
    return True
