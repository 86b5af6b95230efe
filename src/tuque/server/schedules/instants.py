"""The instants of a schedule: of an interval, or of a cron expression in a time zone (SPEC T46)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from tuque.tubes.keys.plan import ALL, ONE, Plan, Step

LATE_MS: Final = 10_000  # an instant that passed so long ago was missed (T45.5)
FAR: Final = (1 << 62) - 1  # as in core/model/task.py
TRIES: Final = 100  # an hour that comes twice has no more instants of one expression


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
        raise NoInstant(f"{error}".lower() + f" in {text!r}") from None


def zone_of(name: bytes) -> ZoneInfo:
    """The time zone; UTC without a name. Raises NoInstant."""
    try:
        return ZoneInfo(name.decode("ascii") or "UTC")
    except (OSError, ValueError, KeyError):
        raise NoInstant("this node knows no such time zone") from None


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
