"""Schedules whose time has come fire; groups with news are checked (SPEC T45, T46, T50)."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from tuque.core.model.task import Task
from tuque.core.node.node import Node
from tuque.core.node.peers import are_expected
from tuque.core.node.queue import PAUSE_IN
from tuque.core.queues.procedures import memory_level
from tuque.core.repair.drain import make_room
from tuque.logtext import facts
from tuque.server.access.tenant import is_full, over_owned
from tuque.server.log.log import log, say_once
from tuque.server.state.server import Server
from tuque.tubes.entries.schedule import (
    ALL,
    ONE,
    ScheduleEntry,
    Step,
)
from tuque.tubes.groups import look as check_group
from tuque.tubes.groups import next_member
from tuque.tubes.log.leader import copies_needed
from tuque.tubes.model.errors import shown
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.schedules import (
    driver_of,
    fire,
    is_ahead,
    is_busy,
    may_fire,
    next_due,
    plan_of,
    take_back,
)

LATE_MS: Final = 10_000  # an instant that passed so long ago was missed (T45.5)
FAR: Final = (1 << 62) - 1  # as in core/model/task.py
TRIES: Final = 100  # an hour that comes twice has no more instants of one expression
TIMES_CACHED: Final = 2_000
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

SCHEDULES_PER_TURN: Final = 25  # checked in one turn
EVICTED: Final = 1_000
PATIENCE_MS: Final = 5_000  # so late the log says why
MISSED_WORDS: Final = ("skip", "one", "all")
AHEAD: Final = "a leader whose clock was ahead noted its instants; is the clock right here?"
AGAIN_MS: Final = 10_000  # until it is known that the clock is right (T45.9)
COPIES: Final = "its last job is not on enough nodes yet"
OFTEN: Final = "the tenant adds as much in a second as it may"
SLOW: Final = (COPIES, OFTEN)  # jobs come one after the other, and each may take that long

GROUPS_PER_TURN: Final = 50  # checked in one turn


# ---- The instants of a schedule: an interval, or a cron expression in a time zone (SPEC T46)


class NoInstant(Exception):
    """The text or zone of a schedule is not understood here; the message says why."""


def next_after(plan: ScheduleEntry, after_ms: int) -> int:
    """The first instant after that one, in ms; FAR: there is none. Raises NoInstant."""
    if not plan.cron:
        every = int(plan.every_ms)
        return int(plan.base_ms) + max((after_ms - int(plan.base_ms)) // every + 1, 1) * every
    return next_time(plan.cron, plan.zone, after_ms)


@lru_cache(maxsize=TIMES_CACHED)
def next_time(cron: bytes, zone: bytes, after_ms: int) -> int:
    """The same of an expression. A schedule is asked for it often between two of its instants."""
    times = times_of(cron, zone, after_ms)
    for _ in range(TRIES):
        try:
            found = next(times)
        except StopIteration:
            return FAR
        instant_ms = int(found.timestamp() * 1000)
        if instant_ms > after_ms:
            return instant_ms
    return FAR


def times_of(cron: bytes, name: bytes, after_ms: int) -> Any:
    """The times of the expression in its zone, from that instant on."""
    try:
        from tuque.server.commands.cron import CronSimError, times_from
    except ImportError:
        raise NoInstant("this node lacks the package cronsim") from None
    zone = zone_of(name)
    if not cron.isascii():
        raise NoInstant("its fields have digits, letters and signs of ASCII, and spaces between")
    text = cron.decode("ascii")
    try:
        return times_from(text, datetime.fromtimestamp(after_ms // 1000, zone))
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


def step_of(plan: ScheduleEntry, now_ms: int, caught_ms: int) -> Step:
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


# ---- Schedules fire (SPEC T45)


def run_schedules(s: Server, t: Tubes) -> None:
    """[T45] Fire what is due, a bounded number in a turn (T45.3)."""
    for _ in range(SCHEDULES_PER_TURN):
        task = next_due(s.n, t)
        if task is None:
            return
        look(s, t, t.by_name[task.queue], task)


def look(s: Server, t: Tubes, tube: Tube, task: Task) -> None:
    """Do what the schedule has to do now. What cannot be done is tried again."""
    n = s.n
    plan = plan_of(tube, task)
    is_off = is_ahead(plan, n.now_ms) and not is_mended(s, t, tube, task, plan)
    try:
        step = step_now(n, tube, task, plan)
    except NoInstant as why:
        log_waits(s, tube, plan, str(why))
        return
    if is_off:  # T45.9: until the clock is known to be right
        log_waits(s, tube, plan, AHEAD)
        step.next_ms = min(step.next_ms, int(n.now_ms) + AGAIN_MS)
    reason = ""
    if step.fires_ms > 0 or step.is_late:  # T45.6: what was missed is known when a job can come
        reason = why_not(s, t, tube, plan) or no_room(s, tube, task, plan, True)
    if len(reason) > 0:
        if reason not in SLOW:
            driver_of(tube).plans.caught.pop(int(task.number), None)  # T45.5
        if next_after(plan, int(plan.noted_ms)) < int(n.now_ms) - PATIENCE_MS:
            log_waits(s, tube, plan, reason)
        return
    if step.is_late:
        say_missed(s, tube, plan)
        if plan.missed != ALL:
            driver_of(tube).plans.caught[int(task.number)] = int(n.now_ms)
    fire(n, t, tube, task, plan, step)


def is_mended(s: Server, t: Tubes, tube: Tube, task: Task, schedule: ScheduleEntry) -> bool:
    """[T45] Take back what was noted ahead, if the clock is known to be right now (T45.9)."""
    if not s.system.is_clock_right(int(s.n.now_ms)) or why_not(s, t, tube, schedule):
        return False
    log_ahead(s, tube, schedule)
    take_back(s.n, t, tube, task, schedule)
    return True


def step_now(n: Node, tube: Tube, task: Task, plan: ScheduleEntry) -> Step:
    """What the schedule does now. Raises NoInstant."""
    caught_ms = driver_of(tube).plans.caught.get(int(task.number), 0)
    return step_of(plan, int(n.now_ms), caught_ms)


def why_not(s: Server, t: Tubes, tube: Tube, plan: ScheduleEntry) -> str:
    """Why the tube takes no job now; "": it does (T45.4, T45.6)."""
    if may_fire(s.n, t, tube, plan):
        return ""
    if tube.pause & PAUSE_IN:
        return "the input of the queue is paused"
    if s.is_parting():
        return "the node is leaving"
    if not are_expected(s.n, copies_needed(s.n, t, tube) - 1):
        return "too few nodes are here for its next job"
    return COPIES


def why_waits(s: Server, t: Tubes, tube: Tube, task: Task) -> str:
    """Why a schedule whose instant has come waits now; "": none has, or it does not (T46.4)."""
    plan = plan_of(tube, task)
    try:
        step = step_now(s.n, tube, task, plan)
        if step.fires_ms == 0 and not step.is_late:
            return ""
    except NoInstant as why:
        return str(why)
    return why_not(s, t, tube, plan) or no_room(s, tube, task, plan, False)


def log_waits(s: Server, tube: Tube, schedule: ScheduleEntry, reason: str) -> None:
    """Log why a schedule makes no job."""
    told = facts(
        "schedule_waits", schedule=shown(schedule.name), queue=shown(tube.name), reason=reason
    )
    say_once(int(s.n.now_ms), "schedule %(schedule)s of %(queue)s waits: %(reason)s", told)


def log_ahead(s: Server, tube: Tube, schedule: ScheduleEntry) -> None:
    """Log that instants are taken back, which a leader noted whose clock was ahead (T45.9)."""
    log.warning(
        "schedule %(schedule)s of %(queue)s goes on: a clock was %(seconds)d s ahead",
        facts(
            "schedule_taken_back",
            schedule=shown(schedule.name),
            queue=shown(tube.name),
            seconds=int(schedule.noted_ms - s.n.now_ms) // 1000,
        ),
    )


def say_missed(s: Server, tube: Tube, plan: ScheduleEntry) -> None:
    """Log that instants were missed, and what becomes of them (T45.5)."""
    told = facts(
        "schedule_missed",
        schedule=shown(plan.name),
        queue=shown(tube.name),
        policy=MISSED_WORDS[int(plan.missed)],
    )
    text = "schedule %(schedule)s of %(queue)s missed instants: MISSED %(policy)s"
    say_once(int(s.n.now_ms), text, told)


def no_room(s: Server, tube: Tube, task: Task, plan: ScheduleEntry, evicts: bool) -> str:
    """What lets no job in: journal, memory or the tenant's quotas (T45.6); "": nothing."""
    n = s.n
    if len(s.journal_error) > 0:
        return f"the journal does not work: {s.journal_error}"
    if s.is_disk_short():
        return "the disk is nearly full"
    if memory_level(n) > 0:
        if evicts:
            make_room(n, EVICTED)
        if memory_level(n) > 0:
            return "memory is short"
    tenant = s.acl.tenants.get(tube.tally.owner.name)
    if tenant is None:
        return ""
    if over_owned(s, tenant, 1, len(task.body)) is not None or is_full(s, tenant.name):
        return "the tenant has as much as it may"
    if is_busy(n, tube, plan) or tenant.wait_ms(n.now_ms) == 0:  # N11.3
        return ""
    return OFTEN


# ---- Groups and children with news: the leader checks them, some in each turn (SPEC T50)


def check_groups(s: Server, t: Tubes) -> None:
    """[T50] Look at what has news; nothing is changed while the journal cannot be written."""
    if len(s.journal_error) > 0:
        return
    for _ in range(GROUPS_PER_TURN):
        task = next_member(s.n, t)
        if task is None:
            return
        check_group(s.n, t, task)
