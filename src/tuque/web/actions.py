"""What a reader of the pages may change: what the dialog says, how long actions run, their log."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from tuque.errors import ConfigError, Error
from tuque.logtext import visible
from tuque.smallfile import closing, is_open_file

TYPED_FROM: Final = 1_000  # deleting more jobs wants a name typed
SLACK: Final = 0.01  # a count that changed by more is asked again


class Refused(Exception):
    """An action that is not done, and why, for people."""


class NotYet(Refused):
    """What the action is about is still being read: the dialog asks again by itself."""


class Field(msgspec.Struct, frozen=True):
    """Something to fill in."""

    name: str
    label: str
    value: str = ""
    kind: str = "text"  # text, number, area, select
    choices: tuple[str, ...] = ()
    hint: str = ""


class Proposal(msgspec.Struct):
    """An action as the dialog asks for it; `count` None: it is about no number of jobs."""

    name: str
    title: str
    button: str
    what: str
    about: str
    follows: list[str]
    hidden: list[tuple[str, str]] = []
    fields: list[Field] = []
    count: int | None = None
    warning: str = ""
    is_danger: bool = False
    typed: str = ""
    changed: str = ""

    def is_as_shown(self, shown_count: str) -> bool:
        """Whether the count is still that which the dialog said."""
        if self.count is None:
            return True
        return shown_count.isdigit() and abs(int(shown_count) - self.count) <= SLACK * self.count


class Outcome(msgspec.Struct, frozen=True):
    """What came of an action, and the address to go on with."""

    note: str
    goto: str
    jobs: int | None = None
    about: str = ""  # what the log says that it was about, where the dialog could not know it
    is_long: bool = False  # it goes on, and is logged when it has ended


# ---- The log of actions: who changed what, when, and how many jobs it was


log: Final = logging.getLogger("tuque.web.deeds")
KEPT: Final = 1_000


class Action(msgspec.Struct, frozen=True):
    """One line: at_s is unix seconds."""

    at_s: float
    who: str
    what: str
    about: str
    jobs: int | None
    came_of_it: str


class ActionLog:
    """The latest actions, and a file of all if there is one. One JSON object a line."""

    def __init__(self, path: Path | None = None) -> None:
        self.latest: deque[Action] = deque(maxlen=KEPT)
        self._path = path
        if path is not None:
            path.touch(mode=0o600)
            if is_open_file(path):
                raise ConfigError(
                    f"{path}: everybody on this machine can write it: {closing(path)}"
                )

    def add(self, action: Action) -> None:
        """Keeps an action. OSError if the file does not take it."""
        self.latest.appendleft(action)
        jobs = "" if action.jobs is None else f", jobs {action.jobs}"
        log.info(visible(f"{action.who}: {action.what} {action.about}{jobs}: {action.came_of_it}"))
        if self._path is not None:
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(json.dumps(msgspec.structs.asdict(action)) + "\n")


# ---- Actions that take long: they go on in the console when their page is left, and can be stopped


KEPT_S: Final = 30.0  # how long one that has ended is shown


class Long:
    """One action: how far it is."""

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
    """The long actions of now, and those that ended in the last half a minute."""

    def __init__(self, log: ActionLog) -> None:
        self._log = log
        self._numbers = itertools.count(1)
        self._actions: dict[int, Long] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(
        self, who: str, what: str, about: str, total: int, work: Callable[[Long], Awaitable[None]]
    ) -> Long:
        """Starts one; `work` counts up `seen` and `done`, and ends early when it is stopped."""
        action = Long(next(self._numbers), who, what, about, total)
        self._actions[action.number] = action
        task = asyncio.create_task(self._run(action, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return action

    async def _run(self, action: Long, work: Callable[[Long], Awaitable[None]]) -> None:
        try:
            await work(action)
        except Error as err:
            action.error = str(err)
        finally:
            action.ended_s = time.time()
            end = action.error or ("stopped" if action.is_stopped else "done")
            came = f"{end}: {action.done} done, {action.refused} refused of {action.total}"
            self._log.add(
                Action(action.ended_s, action.who, action.what, action.about, action.done, came)
            )

    def find(self, number: int) -> Long | None:
        return self._actions.get(number)

    def shown(self, who: str) -> list[Long]:
        """What the pages of a user show: theirs, and what others run now."""
        now_s = time.time()
        for number in [n for n, one in self._actions.items() if is_old(one, now_s)]:
            del self._actions[number]
        return [one for one in self._actions.values() if one.who == who or not one.ended_s]

    async def close(self) -> None:
        """Stops all, and waits for the pages on their way."""
        for action in self._actions.values():
            action.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def is_old(action: Long, now_s: float) -> bool:
    return bool(action.ended_s) and now_s - action.ended_s > KEPT_S
