"""What tasks wait for: keys and groups (SPEC T47), and the instants of schedules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec

from tuque.client.commands.operate import KeyRow
from tuque.client.commands.schedules import Schedule
from tuque.clusterview.figures import Queue
from tuque.web.show.text import clip, num, span
from tuque.web.show.verdict import Notice

# ---- When a schedule makes its next jobs, and its expression in words.
#
# Begins at the next instant that the broker names, and goes on as the node does (SPEC T46.1).
# Without the package `cronsim`, or the zone, there is only that one.


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


# ---- keys


SHOWN: Final = 10  # rows of each table
MOST: Final = 0.5  # of the ready jobs: if so many wait for keys, that is why
PACES: Final = (("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400))


class Held(msgspec.Struct, frozen=True):
    """A limit or a rate for which tasks wait."""

    kind: str
    key: str
    room: str  # `2 of 2 at work`, `10/s, burst 1`
    waiting: int
    since_s: float
    then: str  # when a token comes


class Group(msgspec.Struct, frozen=True):
    """A group with ready tasks, and its share of the takes in percent."""

    key: str
    weight: int
    waiting: int | None  # None: not known, of the tasks without a group
    share: float
    next_s: float | None  # since when its next task is there; None: no task of it may go


def held(rows: Iterable[KeyRow], now_s: float) -> list[Held]:
    """[O14] Limits and rates, those with the longest wait first (O14.26)."""
    found = []
    for one in rows:
        since_s = max(0.0, now_s - one.since_ms / 1000)
        if one.kind == "limit":
            room = f"{num(one.used)} of {num(one.places)} at work"
            found.append(Held(one.kind, one.key, room, one.waiting, since_s, ""))
        elif one.kind == "rate":
            room = f"{pace(one.token_us)}, burst {num(one.burst)}"
            then = f"next {ahead(one.token_ms / 1000 - now_s)}"
            found.append(Held(one.kind, one.key, room, one.waiting, since_s, then))
    return sorted(found, key=lambda one: -one.since_s)


def groups(rows: Sequence[KeyRow], now_s: float, is_all: bool = True) -> list[Group]:
    """[O14] Groups with ready tasks, those with most of them first (O14.26).

    The tasks without a group count as one: it has what is left of the weights.
    """
    found = []
    for one in rows:
        if one.kind == "group":
            share = 100.0 * one.weight / one.weights if one.weights else 0.0
            next_s = max(0.0, now_s - one.next_ms / 1000) if one.next_ms else None
            found.append(Group(one.key, one.weight, one.waiting, share, next_s))
    found.sort(key=lambda one: (-(one.waiting or 0), one.key))
    left = max((one.weights for one in rows), default=0) - sum(one.weight for one in found)
    if found and is_all and left > 0 and all(one.key for one in found):
        found.append(Group("", left, None, 100.0 * left / (left + sum_of(found)), None))
    return found


def sum_of(found: list[Group]) -> int:
    """Their weights together."""
    return sum(one.weight for one in found)


def name_keys(notice: Notice, queue: Queue, rows: Iterable[KeyRow], now_s: float) -> None:
    """[O14] Says of a queue behind that its jobs wait for limits or rates, if most do (O14.27)."""
    found = held(rows, now_s)
    waiting = sum(one.waiting for one in found)
    if not notice.is_late or not waiting or waiting < MOST * queue.ready:
        return
    most = max(found, key=lambda one: one.waiting)
    notice.because = (
        f"{num(waiting)} of its {num(queue.ready)} ready jobs wait for a place of a limit or a "
        f"token of a rate, most of them, {num(most.waiting)}, for the {most.kind} "
        f"{clip(most.key)} ({most.room})"
    )
    notice.do = [
        "Wait, or raise these limits or rates where jobs are added: more slots do not help"
    ]


def pace(token_us: int) -> str:
    """One token each so many us, as RATE says it: `10/s`, `2/m`; else how far they are apart."""
    for unit, unit_s in PACES:
        count = unit_s * 1e6 / token_us if token_us else 0.0
        if count >= 0.999 and abs(count - round(count)) < 0.01 * count:
            return f"{num(round(count))}/{unit}"
    return f"one each {span(token_us / 1e6)}"
