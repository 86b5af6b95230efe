"""Schedules whose time has come: what fires is found, and told to the core (SPEC T45)."""

from __future__ import annotations

from typing import Final

from tuque.core.model.task import Task
from tuque.core.node.node import Node
from tuque.core.node.queue import PAUSE_IN
from tuque.core.repair.drain import make_room
from tuque.logtext import facts
from tuque.server.log.notes import say_once
from tuque.server.rights.tenant import over_owned
from tuque.server.schedules.instants import NoInstant, next_after, step_of
from tuque.server.state.state import Server
from tuque.tubes.entries.schedule import ALL, Plan, Step
from tuque.tubes.log.leader import copies_needed
from tuque.tubes.model.errors import shown
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.schedules import (
    driver_of,
    fire,
    is_busy,
    may_fire,
    next_due,
    plan_of,
)

PER_TURN: Final = 100  # looked at in one turn
EVICTED: Final = 1_000
PATIENCE_MS: Final = 5_000  # so late the log says why
MISSED_WORDS: Final = ("skip", "one", "all")
COPIES: Final = "its last job is not on enough nodes yet"
OFTEN: Final = "the tenant adds as much in a second as it may"
SLOW: Final = (COPIES, OFTEN)  # jobs come one after the other, and each may take that long


def run_schedules(s: Server, t: Tubes) -> None:
    """[T45] Fire what is due, a bounded number in a turn (T45.3)."""
    for _ in range(PER_TURN):
        task = next_due(s.n, t)
        if task is None:
            return
        look(s, t, t.by_name[task.queue], task)


def look(s: Server, t: Tubes, tube: Tube, task: Task) -> None:
    """Do what the schedule has to do now. What cannot be done is tried again."""
    n = s.n
    plan = plan_of(tube, task)
    try:
        step = step_now(n, tube, task, plan)
    except NoInstant as why:
        say_waits(s, tube, plan, str(why))
        return
    reason = ""
    if step.fires_ms > 0 or step.is_late:  # T45.6: what was missed is known when a job can come
        reason = why_not(s, t, tube, plan) or no_room(s, tube, task, plan, True)
    if len(reason) > 0:
        if reason not in SLOW:
            driver_of(tube).plans.caught.pop(int(task.number), None)  # T45.5
        if next_after(plan, int(plan.noted_ms)) < int(n.now_ms) - PATIENCE_MS:
            say_waits(s, tube, plan, reason)
        return
    if step.is_late:
        say_missed(s, tube, plan)
        if plan.missed != ALL:
            driver_of(tube).plans.caught[int(task.number)] = int(n.now_ms)
    fire(n, t, tube, task, plan, step)


def step_now(n: Node, tube: Tube, task: Task, plan: Plan) -> Step:
    """What the schedule does now. Raises NoInstant."""
    caught_ms = driver_of(tube).plans.caught.get(int(task.number), 0)
    return step_of(plan, int(n.now_ms), caught_ms)


def why_not(s: Server, t: Tubes, tube: Tube, plan: Plan) -> str:
    """Why the tube takes no job now; "": it does (T45.4, T45.6)."""
    if may_fire(s.n, t, tube, plan):
        return ""
    if tube.pause & PAUSE_IN:
        return "the input of the queue is paused"
    if s.n.is_leaving:
        return "the node is leaving"
    if s.n.reachable_count + 1 < copies_needed(s.n, t, tube):
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


def say_waits(s: Server, tube: Tube, plan: Plan, reason: str) -> None:
    """Log why a schedule makes no job."""
    told = facts("schedule_waits", schedule=shown(plan.name), queue=shown(tube.name), reason=reason)
    say_once(int(s.n.now_ms), "schedule %(schedule)s of %(queue)s waits: %(reason)s", told)


def say_missed(s: Server, tube: Tube, plan: Plan) -> None:
    """Log that instants were missed, and what becomes of them (T45.5)."""
    told = facts(
        "schedule_missed",
        schedule=shown(plan.name),
        queue=shown(tube.name),
        policy=MISSED_WORDS[int(plan.missed)],
    )
    text = "schedule %(schedule)s of %(queue)s missed instants: MISSED %(policy)s"
    say_once(int(s.n.now_ms), text, told)


def no_room(s: Server, tube: Tube, task: Task, plan: Plan, evicts: bool) -> str:
    """What lets no job in: journal, memory or the tenant's quotas (T45.6); "": nothing."""
    n = s.n
    if len(s.journal_error) > 0:
        return f"the journal does not work: {s.journal_error}"
    if n.limits.memory_bytes > 0 and n.used_bytes() * 4 > n.limits.memory_bytes * 3:
        if not (evicts and make_room(n, EVICTED)):
            return "memory is short"
    tenant = s.acl.tenants.get(tube.tally.owner.name)
    if tenant is None:
        return ""
    if over_owned(s, tenant, 1, len(task.body)) is not None:
        return "the tenant has as much as it may"
    if is_busy(n, tube, plan) or tenant.wait_ms(n.now_ms) == 0:  # N11.3
        return ""
    return OFTEN
