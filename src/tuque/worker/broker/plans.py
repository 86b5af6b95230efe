"""[U9] Tells the broker the schedules of the app when the worker starts."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final

from tuque import aio
from tuque.errors import ConfigError, Error, ReplyError
from tuque.logtext import facts
from tuque.worker.broker.link import RECONNECT
from tuque.worker.tasks.app import App

log: Final = logging.getLogger("tuque.worker")


async def send_plans(app: App, client: aio.Client, rng: random.Random) -> None:
    """Tries until the broker has them; what it refuses is logged, and the worker works on."""
    failures = 0
    while app.schedules:
        try:
            told = await app.send_schedules_async(client)
        except (ReplyError, ConfigError, TypeError) as err:
            if not getattr(err, "retryable", False):
                log.warning(
                    "schedules are not in force: %(reason)s",
                    facts("schedules_refused", reason=err),
                )
                return
        except Error:
            pass  # the link says that the broker is away
        else:
            for name, what in told.items():
                if what != "unchanged":
                    log.info(
                        "schedule %(schedule)s was %(outcome)s",
                        facts("schedule_told", schedule=name, outcome=what),
                    )
            return
        failures += 1
        await asyncio.sleep(RECONNECT.delay_s(failures, rng))
