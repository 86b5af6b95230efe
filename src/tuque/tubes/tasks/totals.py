"""Sums over all tubes of a node, for INFO (SPEC T11.5): one walk, of at most 10,000 (T2.7)."""

from typing import final

from mypy_extensions import i64

from tuque.core.node.node import Node
from tuque.tubes.keys.tasks import Tasks
from tuque.tubes.model.driver_guard import why_stopped
from tuque.tubes.model.registry import Tubes
from tuque.tubes.model.replica_state import RUNNING
from tuque.tubes.replication.leadership import lag_of


@final
class KeyTotals:
    """Keys of the tasks of tubes that this node leads (T40)."""

    def __init__(self) -> None:
        self.known: i64 = 0
        self.waited: i64 = 0  # limits and rates that tasks wait for
        self.wait_ms: i64 = 0  # the longest such wait, without a break
        self.unique: i64 = 0

    def add(self, driver: Tasks, now_ms: i64) -> None:
        """Those of one tube."""
        self.known += driver.keys() - int(b"" in driver.groups)
        self.waited += len(driver.full_limits) + len(driver.full_rates)
        self.unique += len(driver.uniques.claims)
        wait_ms = driver.longest_ms(now_ms)
        if wait_ms > self.wait_ms:
            self.wait_ms = wait_ms


@final
class Totals:
    """Sums over all tubes."""

    def __init__(self) -> None:
        self.tasks: i64 = 0
        self.ready: i64 = 0
        self.taken: i64 = 0
        self.delayed: i64 = 0
        self.buried: i64 = 0
        self.schedules: i64 = 0
        self.groups: i64 = 0
        self.keys = KeyTotals()
        self.waiting_takes: i64 = 0
        self.waiting_puts: i64 = 0
        self.subscribers: i64 = 0
        self.running: i64 = 0
        self.stopped: i64 = 0
        self.copies: i64 = 0
        self.lag: i64 = 0  # the maximum of all followers
        self.incomplete: i64 = 0  # led here; a follower has not all of it yet


def totals_of(n: Node, t: Tubes) -> Totals:
    """[T11] Visit every tube once (T11.5)."""
    found = Totals()
    for tube in t.by_name.values():
        found.tasks += len(tube.tasks)
        found.ready += tube.ready_count()
        found.taken += tube.taken
        found.delayed += tube.delayed
        found.buried += tube.buried
        found.waiting_takes += len(tube.waiters)
        found.waiting_puts += tube.waiting_puts
        found.subscribers += tube.subscribers
        found.copies += len(tube.copies)
        if not tube.is_mine:
            continue
        if tube.state == RUNNING:
            found.running += 1
        if isinstance(tube.driver, Tasks):
            found.schedules += len(tube.driver.plans.by_name)
            found.groups += len(tube.driver.plans.members.open)
            found.keys.add(tube.driver, n.now_ms)
        if len(why_stopped(tube.type, tube.driver)) > 0:
            found.stopped += 1
        if n.others != 0 and not tube.is_temporary:
            is_complete = True
            for _, lag, has_all in lag_of(n, t, tube):
                if lag > found.lag:
                    found.lag = lag
                is_complete = is_complete and has_all
            if not is_complete:
                found.incomplete += 1
    return found
