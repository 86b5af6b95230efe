"""An app whose jobs go to Sentry; events are lines of the file OUT/sentry, or of `sent`."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from tuque.sentry import TuqueIntegration
from tuque.worker import App, Backoff, Reject, RetryLater, current_job

NOW = Backoff(first_s=0.01, max_s=0.02)
sent: list[dict[str, Any]] = []


class Kept(Transport):
    """Keeps what a client would send."""

    def capture_envelope(self, envelope: Envelope) -> None:
        for item in envelope.items:
            event = item.payload.json
            if event is None:
                continue
            event["kind"] = item.type
            sent.append(event)
            if "OUT" in os.environ:
                with Path(os.environ["OUT"], "sentry").open("a") as file:
                    file.write(json.dumps(event, default=str) + "\n")


def begin(every_attempt: bool = False, **options: Any) -> None:
    """The program starts Sentry."""
    sentry_sdk.init(
        dsn="https://key@localhost/1",
        transport=Kept,
        traces_sample_rate=1.0,
        integrations=[TuqueIntegration(every_attempt=every_attempt)],
        **options,
    )


early = App()  # made before Sentry began
begin()
app = App()


@early.task(queue="q", attempts=2, backoff=NOW)
def fails(secret: str) -> None:
    raise OSError(f"attempt {current_job().attempt}")


@app.task(queue="q")
def works(value: int) -> int:
    return value


@app.task(queue="q", attempts=3, give_up_on=(ValueError,))
def ends(how: str) -> None:
    if how == "reject":
        raise Reject("no")
    if how == "later" and current_job().starts == 1:
        raise RetryLater(delay_s=0)
    if how == "final":
        raise ValueError("final")


@app.task(queue="q", retry_s=0)
def fails_once() -> None:
    raise OSError(f"attempt {current_job().attempt} of {current_job().of}")


@app.task(queue="q", attempts=1, keep_s=60)
async def fails_async() -> None:
    raise OSError("in a coroutine")


@app.task(queue="q", attempts=1)
async def awaits_what_was_cancelled() -> None:
    other = asyncio.create_task(asyncio.sleep(60))
    other.cancel()
    await other


@app.task(queue="q", attempts=1, retry_s=5, keep_s=60)
def crashes() -> None:
    os._exit(7)
