"""Schedules whose time has come: what fires is found, and told to the core (SPEC T45)."""

from __future__ import annotations

from typing import Final

from tuque.core.model.task import Task
from tuque.core.repair.evict import make_room
from tuque.logtext import facts
from tuque.server.log.notes import say_once
from tuque.server.rights.tenant import over_owned
from tuque.server.schedules.instants import NoInstant, step_of
from tuque.server.state.state import Server
from tuque.tubes.keys.plan import Plan
from tuque.tubes.model.errors import shown
from tuque.tubes.model.registry import Tubes
from tuque.tubes.model.tube import Tube
from tuque.tubes.tasks.schedules import fire, is_busy, may_fire, next_due, plan_of

PER_TURN: Final = 100  # looked at in one turn
EVICTED: Final = 1_000


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
        step = step_of(plan, int(n.now_ms))
    except NoInstant as why:
        say_once(
            int(n.now_ms),
            "schedule %(schedule)s of %(queue)s waits: %(reason)s",
            facts(
                "schedule_waits", schedule=shown(plan.name), queue=shown(tube.name), reason=str(why)
            ),
        )
        return
    if step.fires_ms > 0 and not (may_fire(n, t, tube, plan) and has_room(s, tube, task, plan)):
        return
    fire(n, t, tube, task, plan, step)


def has_room(s: Server, tube: Tube, task: Task, plan: Plan) -> bool:
    """Whether memory, journal and the tenant's quota let one more job in (T45.6)."""
    n = s.n
    if len(s.journal_error) > 0:
        return False
    if n.limits.memory_bytes > 0 and n.used_bytes() * 4 > n.limits.memory_bytes * 3:
        if not make_room(n, EVICTED):
            return False
    tenant = s.acl.tenants.get(tube.tally.owner.name)
    if tenant is None:
        return True
    if over_owned(s, tenant, 1, len(task.body)) is not None:
        return False
    return is_busy(n, tube, plan) or tenant.wait_ms(n.now_ms) == 0  # N11.3
