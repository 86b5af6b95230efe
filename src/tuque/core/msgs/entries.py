"""What tasks carry that are no jobs and seldom change, with bounds (SPEC T45, T50).

In records and copies these bytes stand where a job has its keys, and begin with a number that no
keys begin with. What each job carries is in packed.py. msgspec makes these classes: mypyc does not
compile this module.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from tuque.core.msgs.layout import REST, Table
from tuque.core.msgs.packed import CHILDREN_MAX, NUMBER_LAST
from tuque.core.msgs.records import ANY, I64, Row

SCHEDULE: Final = 1
GROUP: Final = 2

NAME_MAX: Final = 128
CRON_MAX: Final = 128
ZONE_MAX: Final = 64
KEYS_MAX: Final = 16_384  # with the work of a job
EVERY_MAX_MS: Final = 366 * 86_400_000

INSTANT = Annotated[int, Meta(ge=0, le=NUMBER_LAST, extra={"form": "q"})]
SPAN = Annotated[int, Meta(ge=-1, le=NUMBER_LAST, extra={"form": "q"})]  # -1: as the tube says
UP_TO_2 = Annotated[int, Meta(ge=0, le=2, extra={"form": "B"})]


class ScheduleRow(Row, tag=SCHEDULE):
    """A schedule; the fields of `ScheduleEntry` in tubes/entries/schedule.py."""

    mark: Annotated[int, Meta(ge=0, le=0, extra={"form": "h"})]
    noted_ms: INSTANT
    fired_ms: INSTANT
    base_ms: INSTANT
    fired_seq: INSTANT
    fired_epoch: INSTANT
    every_ms: Annotated[int, Meta(ge=0, le=EVERY_MAX_MS, extra={"form": "q"})]
    ttl_ms: SPAN
    ttr_ms: SPAN
    pri: ANY
    fired: I64
    late: I64
    is_paused: bool
    missed: UP_TO_2
    name: Annotated[bytes, Meta(min_length=1, max_length=NAME_MAX, extra={"form": "h"})]
    cron: Annotated[bytes, Meta(max_length=CRON_MAX, extra={"form": "h"})]
    zone: Annotated[bytes, Meta(max_length=ZONE_MAX, extra={"form": "h"})]
    keys: Annotated[bytes, Meta(max_length=KEYS_MAX, extra={"form": "h"})]

    def check(self) -> bool:
        """Whether it fires by cron or by interval, and what it adds is no schedule."""
        return (len(self.cron) == 0) == (self.every_ms > 0) and self.keys[:2] != b"\0\0"


class GroupRow(Row, tag=GROUP):
    """A group; the fields of `GroupEntry` in tubes/entries/group.py."""

    mark: Annotated[int, Meta(ge=-1, le=-1, extra={"form": "h"})]
    kind: Annotated[int, Meta(ge=1, le=1, extra={"form": "B"})]  # a child is 2
    policy: UP_TO_2
    state: Annotated[int, Meta(ge=0, le=3, extra={"form": "B"})]
    has_callback: bool
    size: Annotated[int, Meta(ge=1, le=CHILDREN_MAX, extra={"form": "q"})]
    keep_ms: INSTANT
    over_ms: INSTANT
    keys: Annotated[bytes, Meta(max_length=KEYS_MAX, extra={"form": REST})]

    def check(self) -> bool:
        """Whether its callback is no group."""
        return len(self.keys) < 3 or self.keys[:2] != b"\xff\xff"


ENTRIES: Final = Table((ScheduleRow, GroupRow))
