"""Deeds that take long: they go on in the console when their page is left, and can be stopped."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Final

from tuque.errors import Error
from tuque.web.deeds.log import Deed, DeedLog

KEPT_S: Final = 30.0  # how long one that has ended is shown


class Long:
    """One deed: how far it is."""

    def __init__(self, number: int, who: str, what: str, about: str, total: int) -> None:
        self.number = number
        self.who = who
        self.what = what
        self.about = about
        self.total = total
        self.seen = 0
        self.done = 0
        self.begun_s = time.time()
        self.ended_s = 0.0
        self.is_stopped = False
        self.error = ""

    @property
    def refused(self) -> int:
        """Those that were not changed: they were gone, or somebody else was quicker."""
        return self.seen - self.done

    @property
    def per_s(self) -> float:
        """Jobs per second so far."""
        took_s = (self.ended_s or time.time()) - self.begun_s
        return self.seen / took_s if took_s > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """About how long it takes yet."""
        return (self.total - self.seen) / self.per_s if self.per_s else None

    def stop(self) -> None:
        """Ends it after the page that is on its way."""
        self.is_stopped = True


class Running:
    """The long deeds of now, and those that ended in the last half a minute."""

    def __init__(self, log: DeedLog) -> None:
        self._log = log
        self._numbers = itertools.count(1)
        self._deeds: dict[int, Long] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(
        self, who: str, what: str, about: str, total: int, work: Callable[[Long], Awaitable[None]]
    ) -> Long:
        """Starts one; `work` counts up `seen` and `done`, and ends early when it is stopped."""
        deed = Long(next(self._numbers), who, what, about, total)
        self._deeds[deed.number] = deed
        task = asyncio.create_task(self._run(deed, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return deed

    async def _run(self, deed: Long, work: Callable[[Long], Awaitable[None]]) -> None:
        try:
            await work(deed)
        except Error as err:
            deed.error = str(err)
        finally:
            deed.ended_s = time.time()
            end = deed.error or ("stopped" if deed.is_stopped else "done")
            came = f"{end}: {deed.done} done, {deed.refused} refused of {deed.total}"
            self._log.add(Deed(deed.ended_s, deed.who, deed.what, deed.about, deed.done, came))

    def find(self, number: int) -> Long | None:
        return self._deeds.get(number)

    def shown(self, who: str) -> list[Long]:
        """What the pages of a user show: theirs, and what others run now."""
        now_s = time.time()
        for number in [n for n, one in self._deeds.items() if is_old(one, now_s)]:
            del self._deeds[number]
        return [one for one in self._deeds.values() if one.who == who or not one.ended_s]

    async def close(self) -> None:
        """Stops all, and waits for the pages on their way."""
        for deed in self._deeds.values():
            deed.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def is_old(deed: Long, now_s: float) -> bool:
    return bool(deed.ended_s) and now_s - deed.ended_s > KEPT_S
