"""Policies by key: one job of a key, so many at work, so many a second, in turn.

Decides the keys of a job from its arguments and headers; the broker keeps to them (SPEC T40).
Knows nothing of apps and clients.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict

KEY_MAX: Final = 255
RATE: Final = re.compile(r"[1-9][0-9]{0,6}/[smh]", re.IGNORECASE)
COUNT_MAX: Final = 1_000_000
WEIGHT_MAX: Final = 1_000
UNTIL_MAX_S: Final = 366 * 86_400

By = str | tuple[str, ...]


@dataclass(frozen=True)
class Unique:
    """One job for each value of `by`: arguments of the task, or headers.

    `until` says when another one may come: when the first is done, already when it starts, or so
    many seconds after it was enqueued, whatever has become of it. What a second `enqueue` does
    before is `on`. "keep": it returns a handle of the first, whose `is_new`
    is False. "replace": so does this, and the first one gets the new arguments; `Duplicate` if it
    waits no more. "reject": `Duplicate`.
    """

    by: By
    until: Literal["done", "start"] | float = "done"
    on: Literal["keep", "replace", "reject"] = "keep"

    def __post_init__(self) -> None:
        names_of(self, self.by)
        check_until(self.until)
        if self.on not in ("keep", "replace", "reject"):
            raise ValueError(f'Unique on "keep", "replace" or "reject", not {self.on!r}')


@dataclass(frozen=True)
class Limit:
    """At most `count` jobs at work for each value of `by`; without `by`, of the task.

    Tasks whose limits have the same `name` share it; else each task has its own.
    """

    count: int
    by: By = ()
    name: str | None = None

    def __post_init__(self) -> None:
        names_of(self, self.by)
        check_count(self, "count", self.count, COUNT_MAX)


@dataclass(frozen=True)
class Rate:
    """At most so many jobs a second, minute or hour: "10/s", "90/m", "5/h", for each value of `by`.

    `burst` of them may come at once. `name` is as in Limit.
    """

    rate: str
    by: By = ()
    burst: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        names_of(self, self.by)
        if not isinstance(self.rate, str) or not RATE.fullmatch(self.rate):
            raise ValueError(f'a rate is "10/s", "90/m" or "5/h", not {self.rate!r}')
        if self.burst is not None:
            check_count(self, "burst", self.burst, COUNT_MAX)


@dataclass(frozen=True)
class Fair:
    """The values of `by` take turns, each `weight` jobs in a round; tasks of a queue share them."""

    by: By
    weight: int = 1

    def __post_init__(self) -> None:
        names_of(self, self.by)
        check_count(self, "weight", self.weight, WEIGHT_MAX)


class Keyed(TypedDict, total=False):
    """The arguments of addjob that follow from policies."""

    unique: str | None
    unique_until: Literal["done", "start"] | float | None
    unique_on: Literal["keep", "reject", "replace"] | None
    limit: tuple[str, int] | None
    rate: tuple[str, str] | tuple[str, str, int] | None
    group: tuple[str, int] | None


@dataclass(frozen=True)
class Policies:
    """Those of one task; None: it has no such policy."""

    unique: Unique | None
    limit: Limit | None
    rate: Rate | None
    group: Fair | None

    def check(self, task: str, signature: inspect.Signature, headers: Mapping[str, str]) -> None:
        """TypeError for a `by` that no argument and no header of the task has."""
        known = [*signature.parameters]
        for policy in (self.unique, self.limit, self.rate, self.group):
            if policy is None:
                continue
            for name in names_of(policy, policy.by):
                if name not in known and name not in headers:
                    kind = type(policy).__name__
                    raise TypeError(
                        f'task {task}: {kind} by "{name}": no such argument or header; '
                        f"there are {', '.join([*known, *headers]) or 'none'}"
                    )

    def keyed(self, task: str, values: Mapping[str, Any], headers: Mapping[str, str]) -> Keyed:
        """The keys of a job with these arguments and headers."""
        found: Keyed = {}
        everything = {**headers, **values}
        if self.unique is not None:
            found["unique"] = key_of(task, self.unique.by, everything)
            found["unique_until"] = self.unique.until
            if self.unique.on != "keep":
                found["unique_on"] = self.unique.on
        if self.limit is not None:
            key = key_of(self.limit.name or task, self.limit.by, everything)
            found["limit"] = (key, self.limit.count)
        if self.rate is not None:
            key = key_of(self.rate.name or task, self.rate.by, everything)
            burst = self.rate.burst
            text = self.rate.rate
            found["rate"] = (key, text) if burst is None else (key, text, burst)
        if self.group is not None:
            found["group"] = (key_of("", self.group.by, everything), self.group.weight)
        return found


def names_of(policy: object, by: object) -> tuple[str, ...]:
    """The names in a `by`; TypeError if it is none."""
    names = (by,) if isinstance(by, str) else by
    if not isinstance(names, tuple) or not all(isinstance(one, str) and one for one in names):
        kind = type(policy).__name__
        raise TypeError(f"{kind} by the name of an argument, or a tuple of names, not {by!r}")
    if not names and isinstance(policy, Unique | Fair):
        raise TypeError(f"{type(policy).__name__} needs the name of an argument")
    return names


def check_until(until: object) -> None:
    """ValueError unless it is an end that a Unique may have."""
    if until in ("done", "start"):
        return
    if isinstance(until, int | float) and not isinstance(until, bool):
        if 0.001 <= until <= UNTIL_MAX_S:
            return
    raise ValueError(
        f'Unique until "done", "start", or for 0.001 to {UNTIL_MAX_S} seconds, not {until!r}'
    )


def check_count(policy: object, name: str, value: object, most: int) -> None:
    """TypeError or ValueError unless the value is a number from 1 to `most`."""
    kind = type(policy).__name__
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{kind}: {name} is a whole number, not {value!r}")
    if not 1 <= value <= most:
        raise ValueError(f"{kind}: {name} is 1 to {most}, not {value}")


def key_of(prefix: str, by: By, values: Mapping[str, Any]) -> str:
    """The key: the prefix, and the values that `by` names; long ones as their SHA-256."""
    names = (by,) if isinstance(by, str) else by
    chosen = [values[name] for name in names]
    text = ""
    if len(chosen) == 1 and isinstance(chosen[0], str):
        text = chosen[0]
    elif chosen:
        text = json.dumps(chosen, sort_keys=True, default=str, ensure_ascii=False)
    key = f"{prefix}:{text}" if prefix and names else prefix or text or "-"
    raw = key.encode(errors="surrogateescape")
    if len(raw) > KEY_MAX:
        key = f"{prefix[:64]}:sha256-{hashlib.sha256(raw).hexdigest()}"
    return key
