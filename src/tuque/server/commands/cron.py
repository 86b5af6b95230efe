"""The times of a cron expression: its next day is found by its fields (SPEC T46).

What the fields mean, and what happens in the hours in which clocks change, is of the package
`cronsim`, which looks at one day after the other. Whether a day is meant depends on the length of
its month and on the weekday that this begins with: there are 28 such kinds of months. So a month
costs one look, and an expression of which no kind has a day never fires.

Must not know: schedules.
"""

from __future__ import annotations

import re
from calendar import monthrange
from copy import copy
from datetime import UTC, date, datetime, time
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

__all__ = ["CronSimError", "Times", "times_from"]

GREENWICH: Final = ZoneInfo("UTC")
CACHED: Final = 500  # expressions that stay parsed
YEARS: Final = 50  # without a time in so many an expression has none, as cronsim says
YEARS_SEEN: Final = (2023, 2024)  # one that has a leap day, and one that has not
NO_SUCH_DAY: Final = "Bad day-of-month"  # a day that none has, or that these months lack
SECOND: Final = 1
MINUTE: Final = 60
HOUR: Final = 3600
ENDS: Final = {SECOND: 60, MINUTE: 60, HOUR: 24}
WEEK: Final = tuple(sum(1 << day for day in range(1 + i, 32, 7)) for i in range(7))
TO_SUNDAY: Final = re.compile(r"-SUN(?![^,/])", re.IGNORECASE)  # which cronsim takes for 0
ALL_DAYS: Final = tuple((2 << last) - 2 for last in range(32))  # a bit for each day from 1 on


class Times(CronSim):
    """One expression in one zone."""

    def __init__(self, text: str, begin: datetime) -> None:
        self.kinds: dict[tuple[int, int], int] = {}  # days of a month by its length and first day
        try:
            super().__init__(text, begin)
        except CronSimError as error:
            if str(error) != NO_SUCH_DAY:
                raise
            *before, _, weekday = text.split()
            super().__init__(" ".join([*before, "*", weekday]), begin)  # each month: a day is wrong
            self.never = True
            return
        lengths = {monthrange(year, month)[1] for year in YEARS_SEEN for month in self.months}
        self.never = not any(self.days_of(last, first) for last in lengths for first in range(7))

    def begin(self, begin: datetime) -> Times:
        """The same from another time on, of the same zone."""
        found = copy(self)
        found.dt = begin.replace(microsecond=0)
        if self.fixup_tz:
            found.dt = found.dt.replace(tzinfo=None)
        return found

    def days_of(self, last: int, first: int) -> int:
        """The days that are meant, as bits, in a month of `last` days that begins with `first`.

        Monday is 0.
        """
        found = self.kinds.get((last, first))
        if found is None:
            by_day, by_week = self.by_day(last, first), self.by_week(last, first)
            found = (by_day & by_week if self.day_and else by_day | by_week) & ALL_DAYS[last]
            self.kinds[last, first] = found
        return found

    def by_day(self, last: int, first: int) -> int:
        """The days that the field of days means."""
        found = 0
        for day in self.days:
            if day == self.LAST:
                found |= 1 << last
            elif day == self.LAST_WEEKDAY:
                found |= 1 << last - max((first + last - 1) % 7 - 4, 0)
            else:
                found |= 1 << day
        return found

    def by_week(self, last: int, first: int) -> int:
        """The days that the field of weekdays means."""
        found = 0
        for one in self.weekdays:
            day, nth = one if isinstance(one, tuple) else (one, 0)
            its = WEEK[(day - 1 - first) % 7] & ALL_DAYS[last]
            if nth == 0:
                found |= its
            elif nth == self.LAST:
                found |= 1 << its.bit_length() - 1
            else:
                found |= its & ~ALL_DAYS[7 * nth - 7] & ALL_DAYS[min(7 * nth, 31)]
        return found

    def advance(self) -> None:
        """Go on to the next time; StopIteration: there is none."""
        if self.never:
            raise StopIteration
        super().advance()

    def advance_day(self) -> bool:
        """Go on to the next day that is meant; whether that is another one."""
        at = self.dt.date()
        year, month = at.year, at.month
        first, last = monthrange(year, month)
        left = self.days_of(last, first) >> at.day
        if left & 1:
            return False
        end = year + YEARS + 1
        left <<= at.day
        while left == 0 and year <= end:
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
            if month in self.months:
                first, last = monthrange(year, month)
                left = self.days_of(last, first)
        day = (left & -left).bit_length() - 1 if left else 1
        self.dt = datetime.combine(date(year, month, day), time(), tzinfo=self.dt.tzinfo)
        return True

    def advance_hour(self) -> bool:
        """Go on to the next hour that is meant; whether that is another one."""
        at = self.dt.hour
        if at in self.hours:
            return False
        return self.leap(at, self.hours, HOUR) or super().advance_hour()

    def advance_minute(self) -> bool:
        """As `advance_hour`."""
        at = self.dt.minute
        if at in self.minutes:
            return False
        if len(self.minutes) == 1:  # cronsim does not go on by minutes then
            return super().advance_minute()
        return self.leap(at, self.minutes, MINUTE) or super().advance_minute()

    def advance_second(self) -> bool:
        """As `advance_hour`."""
        at = self.dt.second
        if at in self.seconds:
            return False
        if len(self.seconds) == 1:
            return super().advance_second()
        return self.leap(at, self.seconds, SECOND) or super().advance_second()

    def leap(self, at: int, wanted: set[int], unit: int) -> bool:
        """Go on to the next value of a field, or to the end of the field above it.

        False: clocks change on the way; nothing was done.
        """
        before = self.dt
        values = [one for one in wanted if one > at]
        after = min(values) if values else ENDS[unit]
        minute = 0 if unit == HOUR else before.minute
        self.dt = before.replace(minute=minute, second=0 if unit > SECOND else before.second)
        self.tick((after - at) * unit)
        there = (self.dt.hour, self.dt.minute, self.dt.second)
        if unit == HOUR:
            is_right = there == (after % 24, 0, 0)
        elif unit == MINUTE:
            is_right = there[1:] == (after % 60, 0)
        else:
            is_right = there[2] == after % 60
        if not is_right:
            self.dt = before
        return is_right


@lru_cache(maxsize=CACHED)
def parsed(text: str, zone: object, begin: datetime) -> Times:
    """The expression in that zone; what it costs to read it is paid once."""
    return Times(text, begin)


def times_from(text: str, begin: datetime) -> Times:
    """The times of the expression from `begin` on, in its zone. Raises CronSimError."""
    *clock, weekday = text.split() or [""]
    text = " ".join([*clock, TO_SUNDAY.sub("-7", weekday)])
    if begin.tzinfo == GREENWICH:
        begin = begin.replace(tzinfo=UTC)  # cronsim knows this one: no clock changes
    return parsed(text, begin.tzinfo, datetime(2000, 1, 1, tzinfo=begin.tzinfo)).begin(begin)
