"""Backends for Django's own tests of tasks: the shipped one, at a broker in this process.

Those tests are of backends that keep results in a list, or run a task at once: so one has that
list, read from the broker, and one has a worker run each job before it replies.
"""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async

from tuque.django import TuqueBackend
from tuque.testing import TestApp

BROKERS: list[TestApp] = []


def begin() -> TestApp:
    """A new broker, empty, in place of the one before."""
    while BROKERS:
        BROKERS.pop().__exit__()
    BROKERS.append(TestApp().__enter__())
    return BROKERS[0]


class Waiting(TuqueBackend):
    """Its tasks wait for a worker that does not come."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.ids: list[str] = []

    @property
    def results(self) -> list[Any]:
        """What the broker knows of each task, in their order."""
        return [self.get_result(id) for id in self.ids]

    def clear(self) -> None:
        """The broker forgets all."""
        self.ids.clear()
        begin()

    def _enqueued(self, *words: Any) -> Any:
        made = super()._enqueued(*words)
        self.ids.append(made.id)
        return made


class AtOnce(TuqueBackend):
    """A worker runs each task before `enqueue` returns."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        begin()

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        made = super().enqueue(task, args, kwargs)
        BROKERS[0].run_until_idle()
        return self.get_result(made.id)

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        made = await super().aenqueue(task, args, kwargs)
        await sync_to_async(BROKERS[0].run_until_idle)()
        return await self.aget_result(made.id)
