"""The instants of a schedule: of an interval, or of a cron expression in a time zone (SPEC T46)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from tuque.tubes.entries.schedule import (
    ALL,
    ONE,
    Plan,
    Step,
)
from tuque.tubes.model.errors import shown

LATE_MS: Final = 10_000  # an instant that passed so long ago was missed (T45.5)
FAR: Final = (1 << 62) - 1  # as in core/model/task.py
TRIES: Final = 100  # an hour that comes twice has no more instants of one expression
SHORT: Final = {  # what crontab has for whole expressions
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
OF_MACHINES: Final = ("localtime", "posixrules")  # each machine has its own
TREES: Final = ("posix/", "right/")  # not on every machine; with leap seconds


class NoInstant(Exception):
    """The text or zone of a schedule is not understood here; the message says why."""


def next_after(plan: Plan, after_ms: int) -> int:
    """The first instant after that one, in ms; FAR: there is none. Raises NoInstant."""
    if not plan.cron:
        every = int(plan.every_ms)
        return int(plan.base_ms) + max((after_ms - int(plan.base_ms)) // every + 1, 1) * every
    cron = times_of(plan, after_ms)
    for _ in range(TRIES):
        try:
            found = next(cron)
        except StopIteration:
            return FAR
        instant_ms = int(found.timestamp() * 1000)
        if instant_ms > after_ms:
            return instant_ms
    return FAR


def times_of(plan: Plan, after_ms: int) -> Any:
    """The times of the expression in its zone, from that instant on."""
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise NoInstant("this node lacks the package cronsim") from None
    zone = zone_of(plan.zone)
    if not plan.cron.isascii():
        raise NoInstant("its fields have digits, letters and signs of ASCII, and spaces between")
    text = plan.cron.decode("ascii")
    try:
        return CronSim(text, datetime.fromtimestamp(after_ms // 1000, zone))
    except CronSimError as error:
        raise NoInstant(f"{error}".lower() + f" in {text!r}{hint_of(text)}") from None


def hint_of(text: str) -> str:
    """[T46] What to write instead of an expression with a wrong number of fields (T46.1)."""
    fields = text.split()
    if len(fields) == 1 and fields[0].lower() in SHORT:
        return f": write {SHORT[fields[0].lower()]!r}"
    return ": it takes five, or six with the seconds first" if len(fields) not in (5, 6) else ""


def zone_of(name: bytes) -> ZoneInfo:
    """The time zone; UTC without a name. Raises NoInstant."""
    try:
        return ZoneInfo(name.decode("ascii") or "UTC")
    except (OSError, ValueError, KeyError):
        raise NoInstant(
            f"this node knows no time zone '{shown(name)}': names are as Europe/Berlin, and upper "
            "and lower case matter"
        ) from None


def check_zone(name: bytes) -> None:
    """[T46] Raise NoInstant for a name that means another zone at each node, or none (T46.1)."""
    text = name.decode("latin-1")
    if text in OF_MACHINES or text.startswith(TREES):
        raise NoInstant(
            f"time zone '{text}' differs between machines: name one as Europe/Berlin, or UTC"
        )
    zone_of(name)


def step_of(plan: Plan, now_ms: int, caught_ms: int) -> Step:
    """What the schedule does now, and when to look again (T45.3, T45.5). Raises NoInstant.

    `caught_ms` is when missed instants were last dealt with: those that were in time then are.
    """
    noted = int(plan.noted_ms)
    if plan.is_paused:
        return Step(0, noted, FAR, False)
    first = next_after(plan, noted)
    if first > now_ms:
        return Step(0, noted, first, False)
    since = now_ms - LATE_MS
    if first >= since or first <= caught_ms:
        return Step(first, first, next_after(plan, first), False)
    if plan.missed == ALL:
        return Step(first, first, next_after(plan, first), True)
    later = next_after(plan, since - 1)
    return Step(first if plan.missed == ONE else 0, since - 1, later, True)
