"""When a schedule makes its next jobs, and its expression in words.

Begins at the next instant that the broker names, and goes on as the node does (SPEC T46.1). Without
the package `cronsim`, or the zone, there is only that one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from tuque.client.commands.schedules import Schedule
from tuque.web.show.text import span

Kind: TypeAlias = Literal["ok", "warn", "pause"]

FIRINGS: Final = 3
LATE_MS: Final = 10_000  # an instant that is so far behind is held back
TRIES: Final = 100  # times of an hour that comes twice
MISSED: Final = {
    "skip": "none for missed times",
    "one": "one for all missed times",
    "all": "one for each missed time",
}


def firings(plan: Schedule) -> list[float]:
    """[O14] The next three instants, in unix s (O14.23); of one that is paused none."""
    if plan.paused or not plan.next_ms:
        return []
    first_s = plan.next_ms / 1000
    if not plan.cron:
        return [first_s + number * plan.every_s for number in range(FIRINGS)]
    found = [first_s]
    try:
        times = times_of(plan, first_s)
        for _ in range(TRIES):
            at_s = float(int(next(times).timestamp()))
            found += [at_s] if at_s > found[-1] else []
            if len(found) == FIRINGS:
                break
    except (ImportError, ValueError, KeyError, OSError, StopIteration):
        pass  # what the node knows of its own is known
    return found


def times_of(plan: Schedule, after_s: float) -> Any:
    """The times of its expression in its zone, from an instant on."""
    from cronsim import CronSim, CronSimError

    zone = ZoneInfo(plan.tz or "UTC")
    try:
        return CronSim(plan.cron, datetime.fromtimestamp(int(after_s), zone))
    except CronSimError as error:
        raise ValueError(str(error)) from None


def in_words(plan: Schedule) -> str:
    """When it makes jobs: `every 2 h 00 m`, or its expression in words; empty if nobody can say."""
    if not plan.cron:
        return f"every {interval(plan.every_s)}"
    try:
        words = str(times_of(plan, max(plan.next_ms / 1000, 0.0)).explain())
    except (ImportError, ValueError, KeyError, OSError):
        return ""
    return words[:1].lower() + words[1:]


def interval(seconds: float) -> str:
    """How far two instants are apart: `5 s`, `2 h`, `1 h 30 m`."""
    if seconds < 60:
        return f"{seconds:g} s"
    first, _, rest = span(seconds).partition(" 0")
    return first if rest in ("0 m", "0 s", " h") else span(seconds)


def ahead(left_s: float) -> str:
    """How far an instant is ahead."""
    if left_s < 0.5:
        return "now"
    return f"in {left_s:.0f} s" if left_s < 59.5 else f"in {span(left_s)}"


def state_of(plan: Schedule, now_s: float) -> tuple[Kind, str]:
    """[O14] Its state in a word (O14.23)."""
    if plan.paused:
        return "pause", "paused"
    if not plan.next_ms:
        return "warn", "no next time"
    if plan.next_ms < now_s * 1000 - LATE_MS:
        return "warn", "held back"
    return "ok", "on time"
