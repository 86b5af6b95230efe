"""An app for workers in a world: its tasks note what they do, and cost no real time."""

from __future__ import annotations

import asyncio

import pytest

from tuque.logtext import VisibleFormatter
from tuque.worker import App, Backoff, Reject, RetryLater, current_job

SOON = Backoff(first_s=0.05, max_s=0.2)


class Noting:
    """The app, its tasks, and the lines that they noted so far."""

    def __init__(self) -> None:
        self.app = App("tuque://127.0.0.1:1")
        self.did: list[str] = []
        self.go = asyncio.Event()
        note = self.did.append

        @self.app.task(queue="q", retry_s=60, name="record")
        def record(text: str) -> None:
            note(text)

        @self.app.task(queue="q", retry_s=60, name="until_go")
        async def until_go(text: str) -> str:
            note(f"begin {text}")
            await self.go.wait()
            note(f"end {text}")
            return text

        @self.app.task(queue="q", retry_s=3, name="lasts")
        async def lasts(text: str, seconds: float) -> None:
            note(f"begin {text}")
            await asyncio.sleep(seconds)
            note(f"end {text}")

        @self.app.task(queue="tube", retry_s=60, name="in_a_tube")
        async def in_a_tube(text: str, key: str) -> None:
            note(f"begin {key} {text}")
            await asyncio.sleep(0.02)
            note(f"end {key} {text}")

        @self.app.task(queue="q", name="adds")
        def adds(one: int, other: int) -> int:
            return one + other

        @self.app.task(queue="q", retry_s=60, backoff=SOON, name="long_text")
        def long_text(size: int) -> str:
            return "x" * size

        self.record, self.until_go, self.lasts = record, until_go, lasts
        self.adds, self.long_text, self.in_a_tube = adds, long_text, in_a_tube
        self._fail_at_first()
        self._fail()

    def _fail_at_first(self) -> None:
        """Tasks of which a later run is done."""
        note = self.did.append

        @self.app.task(queue="q", retry_s=60, backoff=SOON, name="third_time_lucky")
        def third_time_lucky(text: str) -> None:
            number = current_job().number
            note(f"{text} {number}")
            if number < 3:
                raise ValueError(f"not on attempt {number}")

        @self.app.task(queue="q", name="later")
        def later(times: int) -> None:
            job = current_job()
            note(f"{job.attempt} {job.starts}")
            if job.starts <= times:
                raise RetryLater("not now", delay_s=0.05)

        self.third_time_lucky, self.later = third_time_lucky, later

    def _fail(self) -> None:
        """Tasks that are never done."""
        note = self.did.append

        @self.app.task(queue="q", retry_s=60, backoff=SOON, attempts=3, dead="graves", name="never")
        def never(text: str) -> None:
            note(f"{text} {current_job().number}")
            raise ValueError("no, never")

        @self.app.task(queue="q", retry_s=60, name="rejected")
        def rejected(text: str) -> None:
            note(text)
            raise Reject("no such thing")

        @self.app.task(queue="q", give_up_on=(KeyError,), name="gives_up")
        def gives_up(text: str) -> int:
            note(text)
            raise KeyError(text)

        self.never, self.rejected, self.gives_up = never, rejected, gives_up


def said(caplog: pytest.LogCaptureFixture) -> str:
    """What the log has, as a worker writes it."""
    formatter = VisibleFormatter("%(levelname)s %(message)s")
    return "\n".join(map(formatter.format, caplog.records))
