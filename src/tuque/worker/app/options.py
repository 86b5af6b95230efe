"""The options of tasks: what is allowed, and how they become words of ADDJOB.

Knows nothing of functions, apps and brokers.
"""

from __future__ import annotations

import datetime as dt
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict, TypeVar

from tuque.worker.app.codec import CODECS, Codec
from tuque.worker.app.decisions import CANCEL_GRACE_S, SECONDS_MAX, Backoff
from tuque.worker.app.policies import (
    Fair,
    Keyed,
    Limit,
    Policies,
    Rate,
    Unique,
)

if TYPE_CHECKING:
    from tuque.worker.pools.execute import Job

RetryIf: TypeAlias = "Callable[[Exception, Job], bool | float]"

DEAD_SUFFIX: Final = ".dead"
ATTEMPTS_MAX: Final = 65_535
DELIVERIES_MAX: Final = 2**31 - 1
KEEP_S: Final = 600.0  # of a result that has a type
RETRY_S: Final = 30
TEXTS: Final = ("queue", "utube", "key", "dead")
ENDS: Final = ("ttl_s", "expires_s", "expires")  # of a job that waits
WHOLE_NUMBERS: Final = ("attempts", "retry_s", "ttl_s", "key_ttl_s", "replicate", "maxlen", "pri")

# those of the broker; queues and tubes have their own for `pri`
RANGES: Final = {
    "attempts": (1, ATTEMPTS_MAX),
    "retry_s": (0, SECONDS_MAX),
    "ttl_s": (0, SECONDS_MAX),
    "key_ttl_s": (0, SECONDS_MAX),
    "replicate": (1, ATTEMPTS_MAX),
    "maxlen": (1, 2**63 - 1),
}

# no job brings its own to a worker
OF_TASKS: Final = ("give_up_on", "retry_on", "retry_if", "soft_limit_s", "cancel_grace_s")
POLICIES: Final = {"unique": Unique, "limit": Limit, "rate": Rate, "group": Fair}
NO_POLICIES: Final = Policies(None, None, None, None)


def check_number(name: str, value: object) -> None:
    """TypeError unless the value is a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number of seconds, not {value!r}")


def check_instant(name: str, when: object) -> None:
    """TypeError unless it is a time with a zone."""
    if not isinstance(when, dt.datetime):
        raise TypeError(f"{name} is a datetime, not {when!r}")
    if when.utcoffset() is None:
        raise TypeError(
            f"{name} is a datetime with a zone, not {when!r}: give it one, as by "
            "datetime.now(UTC) or .astimezone()"
        )


def check_delay(delay_s: float | None) -> None:
    """TypeError or ValueError unless the value is a delay."""
    if delay_s is None:
        return
    check_number("a delay", delay_s)
    if not 0 <= delay_s <= SECONDS_MAX:
        raise ValueError(f"a delay is 0 seconds or more, up to {SECONDS_MAX}, not {delay_s}")


@dataclass(frozen=True)
class Options:
    """How a task's jobs are added and what happens on failure.

    In queues the broker counts attempts and waits between them; `retry_s` None is 30, `ttl_s` None
    is 0: the job never expires. One that expires and has not failed becomes a dead letter, or with
    `on_expiry` "drop" it is gone. In tubes the worker does that, and None leaves both to the tube.
    None means no limit (`time_limit_s`, `maxlen`), or the queue's name plus `.dead` (`dead`).
    `keep_s` None keeps results for 600 s if the task's result has a type, else not; `keep_body`
    keeps the call and the tracebacks of its attempts as long. An exception in `give_up_on` is
    final, like Reject. With `retry_on`, each one outside of it is final as well: with `()` all are.
    `retry_if(error, job)` decides the rest: a bool, or the seconds until the next run. A lower
    `pri` goes first: 0 to 9 in a queue, where 5 is that of others. `utube`, a sub-queue with one
    job at a time, is for tubes. `key` names one job: enqueuing the same key within `key_ttl_s` (a
    day) adds no second job, and a lost reply is asked for again.
    With `unique`, `limit`, `rate` or `group` the queue is a tube of type tasks, made when it is
    first used. `expires_s` and `expires`, a datetime with a zone, stand for a `ttl_s` with
    `on_expiry` "drop". After `soft_limit_s` the task gets TimeLimit, and may end well; a process is
    killed `cancel_grace_s` after a cancel or the time limit. A job of a task that no worker knows
    becomes a dead letter after `unknown_keep_s`. `max_deliveries` and `dead_letter` are the former
    names of `attempts` and `dead`.
    """

    queue: str = "default"
    codec: Codec = "json"
    delay_s: float | None = None
    retry_s: int | None = None
    ttl_s: int | None = None
    replicate: int | None = None
    maxlen: int | None = None
    pri: int | None = None
    utube: str | None = None
    key: str | None = None
    key_ttl_s: int | None = None
    unique: Unique | None = None
    limit: Limit | None = None
    rate: Rate | None = None
    group: Fair | None = None
    attempts: int = 5
    time_limit_s: float | None = None
    dead: str | None = None
    backoff: Backoff = field(default_factory=Backoff)
    keep_s: float | None = None
    keep_body: bool = False
    on_expiry: Literal["dead", "drop"] | None = None
    expires: dt.datetime | None = None
    unknown_keep_s: float = 86_400.0
    give_up_on: tuple[type[Exception], ...] = ()
    retry_on: tuple[type[Exception], ...] | None = None
    retry_if: RetryIf | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    soft_limit_s: float | None = None
    cancel_grace_s: float = CANCEL_GRACE_S
    max_deliveries: InitVar[int | None] = None
    dead_letter: InitVar[str | None] = None
    expires_s: float | None = None

    def __new__(cls, *_: object, **given: object) -> Options:
        """TypeError for a keyword that is no option, naming those that are."""
        check_names(given)
        return super().__new__(cls)

    def __post_init__(self, max_deliveries: int | None, dead_letter: str | None) -> None:
        if max_deliveries is not None:
            object.__setattr__(self, "attempts", max_deliveries)
        if dead_letter is not None:
            object.__setattr__(self, "dead", dead_letter)
        check_ends({name: getattr(self, name) for name in ENDS})
        if self.codec not in CODECS:
            raise ValueError(f"codec is one of {', '.join(CODECS)}, not {self.codec!r}")
        check_texts(self)
        check_whole_numbers(self)
        check_headers(self.headers)
        check_causes(self)
        check_delay(self.delay_s)
        for name in ("keep_s", "unknown_keep_s", "cancel_grace_s"):
            value = getattr(self, name)
            if value is not None or name != "keep_s":
                check_number(name, value)
                if not 0 <= value < math.inf:
                    raise ValueError(f"{name} is 0 seconds or more, not {value}")
        check_limits(self)
        check_expiry(self)
        if self.dead == self.queue:
            raise ValueError(
                f"dead is another queue than {self.queue!r}: "
                "a job that fails would come from there again for ever"
            )
        if not isinstance(self.backoff, Backoff):
            raise TypeError(f"backoff is a tuque.worker.Backoff, not {self.backoff!r}")
        if self.retry_s == 0 and self.replicate is not None and self.replicate > 1:
            raise ValueError(
                f"retry_s=0 has one copy, not replicate={self.replicate}: a job that is delivered "
                "at most once is at one node; leave replicate out"
            )
        if self.key_ttl_s is not None and self.key is None:
            raise ValueError("key_ttl_s needs a key")
        for name, kind in POLICIES.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise TypeError(f"{name} is a tuque.worker.{kind.__name__}, not {value!r}")

    @property
    def waits_s(self) -> int | None:
        """After how many seconds a job that waits expires: 0 never, None as the broker has it."""
        return self.ttl_s if self.expires_s is None else ttl_of(self.expires_s)

    @property
    def is_dropped(self) -> bool:
        """Whether a job that expires is gone, and no dead letter."""
        return self.on_expiry == "drop" or self.expires_s is not None or self.expires is not None

    def at(self, now: dt.datetime) -> Options:
        """[U1] The options of a job that is added now, with `expires_s` for `expires` (U1.17)."""
        if self.expires is None:
            return self
        left_s = (self.expires - now).total_seconds()
        if left_s <= 0:
            raise ValueError(f"expires is a time to come, not {self.expires}: it is {now}")
        return replace(self, expires=None, expires_s=left_s)

    @property
    def policies(self) -> Policies | None:
        """The policies by key; None if there are none: then the queue may be a plain one."""
        policies = Policies(self.unique, self.limit, self.rate, self.group)
        return None if policies == NO_POLICIES else policies


class TaskOptions(TypedDict, total=False):
    """The fields of `Options` as keywords; change it together with them."""

    queue: str
    codec: Codec
    delay_s: float | None
    retry_s: int | None
    ttl_s: int | None
    replicate: int | None
    maxlen: int | None
    pri: int | None
    utube: str | None
    key: str | None
    key_ttl_s: int | None
    unique: Unique | None
    limit: Limit | None
    rate: Rate | None
    group: Fair | None
    attempts: int
    time_limit_s: float | None
    dead: str | None
    backoff: Backoff
    keep_s: float | None
    keep_body: bool
    on_expiry: Literal["dead", "drop"] | None
    expires: dt.datetime | None
    unknown_keep_s: float
    give_up_on: tuple[type[Exception], ...]
    retry_on: tuple[type[Exception], ...] | None
    retry_if: RetryIf | None
    headers: Mapping[str, str]
    soft_limit_s: float | None
    cancel_grace_s: float
    max_deliveries: int
    dead_letter: str | None
    expires_s: float | None


def check_ends(ways: Mapping[str, object]) -> None:
    """Raises TypeError for two expiry options at once, or for one that is no time."""
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise TypeError(f"give one of {' and '.join(given)}: each says when a job expires")
    if ways.get("expires") is not None:
        check_instant("expires", ways["expires"])


def check_expiry(options: Options) -> None:
    """TypeError or ValueError unless it is clear when a job expires, and what becomes of it."""
    if options.on_expiry not in (None, "dead", "drop"):
        raise ValueError(f"on_expiry is dead or drop, not {options.on_expiry!r}")
    if options.on_expiry == "dead" and options.is_dropped:
        raise TypeError(
            "expires_s and expires drop a job that waits too long: on_expiry='dead' goes with ttl_s"
        )
    delay_s, waits_s = options.delay_s, options.waits_s
    if delay_s and waits_s and delay_s >= waits_s:
        name = "ttl_s" if options.expires_s is None else "expires_s"
        raise ValueError(
            f"delay_s {delay_s:g} is not less than {name} {waits_s}: "
            "the job would expire first; set ttl_s=0"
        )


def ttl_of(expires_s: float) -> int:
    """The whole seconds of a time until a job expires; TypeError or ValueError if it is none."""
    check_number("expires_s", expires_s)
    if not 0 < expires_s <= SECONDS_MAX:
        raise ValueError(f"expires_s is more than 0 seconds, up to {SECONDS_MAX}, not {expires_s}")
    return math.ceil(expires_s)


def check_whole_numbers(options: Options) -> None:
    """TypeError or ValueError for an option that must be a whole number, and is not."""
    for name in WHOLE_NUMBERS:
        value: object = getattr(options, name)
        if value is None and name != "attempts":
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} is a whole number, not {value!r}")
        least, most = RANGES.get(name, (value, value))
        if not least <= value <= most:
            raise ValueError(f"{name} is from {least} to {most}, not {value}")


def check_limits(options: Options) -> None:
    """TypeError or ValueError for a time limit that cannot be."""
    for name in ("time_limit_s", "soft_limit_s"):
        limit_s = getattr(options, name)
        if limit_s is not None:
            check_number(name, limit_s)
            if not 0 < limit_s < math.inf:
                raise ValueError(f"{name} is more than 0 seconds, not {limit_s}")
    soft_s, hard_s = options.soft_limit_s, options.time_limit_s
    if soft_s is not None and hard_s is not None and soft_s >= hard_s:
        raise ValueError(f"soft_limit_s {soft_s:g} is not less than time_limit_s {hard_s:g}")


def check_texts(options: Options) -> None:
    """TypeError for a name that is not text, ValueError for one that cannot be encoded."""
    for name in TEXTS:
        value: object = getattr(options, name)
        if value is None and name != "queue":
            continue
        if not isinstance(value, str):
            raise TypeError(f"{name} is a str, not {value!r}")
        if not value:
            raise ValueError(f"{name} is empty: give a name, or leave it out")
        try:
            value.encode(errors="strict" if name == "dead" else "surrogateescape")
        except UnicodeEncodeError:
            raise ValueError(f"{name} cannot be written as UTF-8: {value!a}") from None


def check_headers(headers: object) -> None:
    """TypeError unless they are a mapping of texts."""
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers is a mapping of names to texts, not {headers!r}")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"headers is a mapping of names to texts, not of {name!r} to {value!r}")


def check_causes(options: Options) -> None:
    """TypeError unless exceptions are classes in tuples, and `retry_if` is a plain function."""
    for name in ("give_up_on", "retry_on"):
        causes: object = getattr(options, name)
        if causes is None and name == "retry_on":
            continue
        if not isinstance(causes, tuple) or not all(map(is_cause, causes)):
            raise TypeError(
                f"{name} is a tuple of exception classes, such as (ValueError,), not {causes!r}"
            )
    asked = options.retry_if
    if asked is not None and (not callable(asked) or inspect.iscoroutinefunction(asked)):
        raise TypeError(
            "retry_if is a plain function of the exception and the job, which returns a bool or "
            f"seconds, not {asked!r}"
        )


def is_cause(one: object) -> bool:
    """Whether it is a class of exceptions."""
    return isinstance(one, type) and issubclass(one, BaseException)


def check_of_job(changes: Mapping[str, object]) -> None:
    """TypeError for options of one job that only a task can have."""
    for name in OF_TASKS:
        if name in changes:
            raise TypeError(f"{name} is an option of the task: its worker has it, not one job")


def renamed(options: TaskOptions) -> TaskOptions:
    """The options under their names of today."""
    found = options.copy()
    if "dead_letter" in found:
        found["dead"] = found.pop("dead_letter")
    if "max_deliveries" in found:
        found["attempts"] = found.pop("max_deliveries")
    ends = {name: found.get(name) for name in ENDS}
    check_ends(ends)
    if any(value is not None for value in ends.values()):  # none of a farther place (U1.17)
        found["ttl_s"], found["expires"] = found.get("ttl_s"), found.get("expires")
        found["expires_s"] = found.get("expires_s")
        if found["ttl_s"] is None:
            found.setdefault("on_expiry", None)
    return found


def check_names(options: Mapping[str, object]) -> None:
    """TypeError for a keyword that is not a field of `Options`, naming those that are."""
    known_names = [*TaskOptions.__annotations__]
    unknown = [key for key in options if key not in known_names]
    if unknown:
        known = ", ".join(known_names)
        raise TypeError(f"no task option {', '.join(unknown)}; there are {known}")


T = TypeVar("T")


def changed(value: T, default: T) -> T | None:
    """The value if it differs from the task's default: only these are in the envelope."""
    return None if value == default else value


class Asked(Keyed, total=False):
    """The arguments of addjob that follow from a task's options."""

    attempts: int
    backoff: tuple[float, float, float]
    dead: str | None
    keep: float | None
    keep_body: bool
    time_limit: float | None
    on_expiry: Literal["dead", "drop"]
    headers: dict[str, str]
    delay: float | None
    retry: int | None
    ttl: int | None
    replicate: int | None
    maxlen: int | None
    pri: int | None
    utube: str | None
    dedupe: str | None
    dedupe_ttl: int | None


def asked_of_tube(options: Options) -> Asked:
    """The arguments of addjob for a tube, whose tasks have no limits."""
    return {
        "delay": whole_seconds(options.delay_s),
        "retry": options.retry_s,
        "ttl": options.waits_s,
        "replicate": options.replicate,
        "maxlen": options.maxlen,
        "pri": options.pri,
        "utube": options.utube,
        "dedupe": options.key,
        "dedupe_ttl": options.key_ttl_s,
    }


def whole_seconds(delay_s: float | None) -> int | None:
    """A delay for the broker, rounded up, because no job may come too early."""
    return None if delay_s is None else math.ceil(delay_s)
