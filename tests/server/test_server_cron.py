"""The instants of cron expressions and intervals (SPEC T45.5, T46.1)."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError

from tuque.server.commands.cron import times_from
from tuque.server.commands.firing import (
    FAR,
    NoInstant,
    next_after,
    step_of,
)
from tuque.tubes.entries.schedule import (
    ALL,
    ONE,
    SKIP,
    ScheduleEntry,
)


def ms(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def cron(text: str, zone: str = "", missed: int = ONE) -> ScheduleEntry:
    plan = ScheduleEntry()
    plan.name, plan.cron, plan.zone, plan.missed = b"n", text.encode(), zone.encode(), missed
    return plan


def instants(plan: ScheduleEntry, after: str, until: str, zone: str = "UTC") -> list[str]:
    """All instants between the two times of the zone, in UTC."""
    found = []
    at = ms(after, zone)
    while (at := next_after(plan, at)) <= ms(until, zone):
        found.append(datetime.fromtimestamp(at / 1000, UTC).strftime("%d %H:%M:%S"))
    return found


def test_expressions_go_by_the_time_of_the_zone() -> None:
    """T46.1 CRON takes five fields, or six with the seconds first, in the time of the zone"""
    berlin = cron("30 9 * * MON-FRI", "Europe/Berlin")
    assert instants(berlin, "2026-11-20T00:00", "2026-11-24T00:00") == [
        "20 08:30:00",
        "23 08:30:00",
    ]
    assert instants(cron("30 9 * * *"), "2026-11-20T00:00", "2026-11-21T00:00") == ["20 09:30:00"]
    six = cron("*/20 0 * * * *")
    assert instants(six, "2026-11-20T00:00:01", "2026-11-20T00:59") == [
        "20 00:00:20",
        "20 00:00:40",
    ]


# zone, the night in which an hour is left out, the one in which an hour comes twice
CHANGES = [
    ("Europe/Berlin", "2026-03-29", "2026-10-25", 2),
    ("America/New_York", "2026-03-08", "2026-11-01", 2),
    ("Australia/Lord_Howe", "2026-10-04", "2026-04-05", 2),  # by half an hour
]


@pytest.mark.parametrize(("zone", "gap", "twice", "hour"), CHANGES)
def test_a_local_time_that_does_not_exist(zone: str, gap: str, twice: str, hour: int) -> None:
    """T46.1 A local time of five fields that does not exist makes its instant at the end of the
    gap, one that comes twice makes one."""
    daily = cron(f"15 {hour} * * *", zone)
    day = timedelta(days=1)
    for night in (gap, twice):
        first = datetime.fromisoformat(night)
        found = instants(daily, (first - day).isoformat(), (first + 2 * day).isoformat(), zone)
        assert len(found) == 3, found
    (at,) = instants(daily, gap, gap + "T12:00", zone)
    local = datetime.strptime(f"2026-{gap[5:7]} {at}", "%Y-%m %d %H:%M:%S").replace(tzinfo=UTC)
    shown = local.astimezone(ZoneInfo(zone)).strftime("%H:%M")
    if zone == "Australia/Lord_Howe":
        assert shown in ("02:30", "02:45")
    else:
        assert shown == "03:00"


@pytest.mark.parametrize(("zone", "gap", "twice", "hour"), CHANGES)
def test_each_quarter_of_an_hour(zone: str, gap: str, twice: str, hour: int) -> None:
    """T46.1 Minutes or hours that begin with `*`, and six fields, go by elapsed time."""
    for night in (gap, twice):
        at = ms(night, zone)
        for _ in range(40):
            after = next_after(cron("*/15 * * * *", zone), at)
            assert after - at == 900_000
            at = after


@pytest.mark.parametrize(("zone", "gap", "twice", "hour"), CHANGES)
def test_the_next_instant_is_always_later(zone: str, gap: str, twice: str, hour: int) -> None:
    """From whatever ms of such a night one asks."""
    for night in (gap, twice):
        start = ms(night, zone)
        for text in ("30 1 * * *", "15 2 * * *", "0,45 1-3 * * *", "*/10 * * * *", "0 0 3 * * *"):
            for off in range(0, 5 * 3_600_000, 299_999):
                assert next_after(cron(text, zone), start + off) > start + off


EXPRESSIONS = [  # the days of November 2026 from the 2nd on, a Monday
    ("0 0 1 * MON", "2 9 16 23 30"),  # and the 1st, a Sunday
    ("0 0 10 * MON", "2 9 10 16 23 30"),
    ("0 0 */2 * MON", "9 23"),
    ("0 0 8-14 * */5", "8 13"),
    ("0 0 1/7 * *", "8 15 22 29"),
    ("0 0 10-20/5 * *", "10 15 20"),
    ("0 0 5,L * *", "5 30"),
    ("0 0 L * *", "30"),
    ("0 0 LW * *", "30"),
    ("0 0 * * 5L", "27"),
    ("0 0 * * 5#2", "13"),
    ("0 0 * * MON#1,FRI#2", "2 13"),
    ("0 0 * nov-dec sat", "7 14 21 28"),
    ("0 0 * * 0", "8 15 22 29"),
    ("0 0 * * 7", "8 15 22 29"),
]


@pytest.mark.parametrize(("text", "days"), EXPRESSIONS, ids=[row[0] for row in EXPRESSIONS])
def test_which_days_an_expression_means(text: str, days: str) -> None:
    """T46.1 Day and weekday together mean either, but both if one of the two begins with `*`. Day
    `L` is the last day of the month, `LW` its last one from Monday to Friday; weekday `5L` is the
    last Friday, `5#2` the second."""
    found = instants(cron(text), "2026-11-01T12:00", "2026-11-30T12:00")
    assert [int(one.split()[0]) for one in found] == [int(day) for day in days.split()]


def test_the_last_day_from_monday_to_friday() -> None:
    found = instants(cron("0 0 LW * *"), "2026-01-01", "2026-01-31")
    assert found == ["30 00:00:00"]  # the 31st is a Saturday


@pytest.mark.parametrize(
    "text", ["0 0 15W * *", "0 0 L-3 * *", "0 0 ? * 1", "0 0 5-1 * *", "0 0 * * FRI-MON"]
)
def test_what_other_programs_know(text: str) -> None:
    """T46.1 `15W`, `L-3`, `?` and ranges that go backwards are refused."""
    with pytest.raises(NoInstant, match="^bad day-of-"):
        next_after(cron(text), 0)


@pytest.mark.parametrize("text", ["0 0 30 2 *", "0 0 31 4 *", "0 0 0 31 FEB,APR *", "0 0 30 2 */2"])
def test_a_day_that_its_months_lack(text: str) -> None:
    """T46.1 An expression that never fires is refused: `-ERR CRON '<text>' has no instant to
    come`.
    """
    assert next_after(cron(text), 0) == FAR
    for wrong in (text.replace("3", "4"), text.replace("31", "x").replace("30", "x")):
        with pytest.raises(NoInstant, match="^bad day-of-month"):
            next_after(cron(wrong), 0)


def test_what_is_not_understood() -> None:
    with pytest.raises(NoInstant, match=r"^bad day-of-week in '0 9 \* \* 8'$"):
        next_after(cron("0 9 * * 8"), 0)
    with pytest.raises(NoInstant, match="letters and signs of ASCII"):
        next_after(cron("0 9 * * \xe9"), 0)
    assert next_after(cron("0\t9 * * *"), 0) == next_after(cron("0 9 * * *"), 0)
    nonsense = "", "*", "61 * * * *", "* * * * * * *", "a b c d e", "\xff * * * *", "0-SUN 9 * * *"
    for text in nonsense:
        plan = cron("* * * * *")
        plan.cron = text.encode("latin-1") or b" "
        with pytest.raises(NoInstant):
            next_after(plan, 0)
    for zone in ("Nowhere/Land", "../../etc/passwd", "America", "\xff"):
        plan = cron("* * * * *")
        plan.zone = zone.encode("latin-1")
        with pytest.raises(NoInstant, match="^this node knows no time zone '"):
            next_after(plan, 0)


def any_field(of: random.Random, least: int, most: int, extra: tuple[str, ...] = ()) -> str:
    """A field of an expression."""
    value = of.randrange(least, most + 1)
    many = ",".join(str(of.randrange(least, most + 1)) for _ in range(3))
    kinds = ["*", f"*/{of.randrange(1, most + 3)}", f"{value}", f"{value}-{most}", many]
    return of.choice([*kinds, f"{value}/{of.randrange(1, 9)}", *extra])


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
def test_the_fields_mean_what_cronsim_says(zone: str) -> None:
    """T46.1 The rules are those of the package `cronsim`."""
    of = random.Random(7)
    for _ in range(300):
        days = any_field(of, 1, 31, ("L", "LW"))
        weekdays = any_field(of, 0, 7, ("1#5", "5L", "5#2", "7#1,3L"))
        clock = f"{any_field(of, 0, 59)} {any_field(of, 0, 23)}"
        seconds = any_field(of, 0, 59) + " " if of.random() < 0.2 else ""
        text = f"{seconds}{clock} {days} {any_field(of, 1, 12, ('2',))} {weekdays}"
        begin = datetime.fromtimestamp(1_750_000_000 + of.randrange(4 * 10**8), ZoneInfo(zone))
        try:
            theirs = CronSim(text, begin)
        except CronSimError:
            with pytest.raises(CronSimError):
                times_from(text, begin)
            continue
        ours = times_from(text, begin)
        assert list(islice(ours, 3)) == list(islice(theirs, 3)), (text, begin)


def test_an_expression_without_an_instant() -> None:
    plan = cron("0 0 29 2 1#5")
    assert next_after(plan, ms("2026-01-01")) == FAR or next_after(plan, ms("2026-01-01")) > 0


@pytest.mark.parametrize(
    ("missed", "fires", "noted"),
    [(SKIP, "", "12:59:49"), (ONE, "10:00:00", "12:59:49"), (ALL, "10:00:00", "10:00:00")],
)
def test_instants_that_were_missed(missed: int, fires: str, noted: str) -> None:
    """T45.5 An instant that the leader comes to more than 10 s late was missed."""
    plan = cron("0 * * * *", missed=missed)
    plan.noted_ms = ms("2026-11-20T09:00")
    step = step_of(plan, ms("2026-11-20T12:59:59.999"), 0)
    assert step.fires_ms == (ms(f"2026-11-20T{fires}") if fires else 0)
    assert step.noted_ms // 1000 == ms(f"2026-11-20T{noted}") // 1000
    assert step.is_late
    plan.noted_ms = ms("2026-11-20T12:30")
    step = step_of(plan, ms("2026-11-20T13:00:09"), 0)
    assert (step.fires_ms, step.is_late) == (ms("2026-11-20T13:00"), False)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("0 9 * * MON-SUN", "0 9 * * *"),
        ("0 9 * * fri-sun", "0 9 * * 0,5,6"),
        ("0 9 * * MON-SUN/2", "0 9 * * 1,3,5,7"),
        ("0 9 * * WED,SAT-Sun", "0 9 * * 0,3,6"),
    ],
)
def test_a_range_ends_with_sunday(text: str, same: str) -> None:
    """T46.1 Sunday is 0 and 7, and the last day of a range such as `MON-SUN`."""
    begin = datetime(2027, 1, 15, tzinfo=ZoneInfo("UTC"))
    ours, theirs = times_from(text, begin), times_from(same, begin)
    assert [next(ours) for _ in range(30)] == [next(theirs) for _ in range(30)]
