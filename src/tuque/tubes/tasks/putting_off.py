"""DELAYED tasks whose time has come, and that wait on: schedules, groups, and jobs without their
copies (SPEC T45, T50)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.model.task import Task
from tuque.core.node.node import Node
from tuque.tubes.keys.members import is_member
from tuque.tubes.keys.plan import is_plan
from tuque.tubes.keys.tasks import Tasks
from tuque.tubes.model.registry import Tubes
from tuque.tubes.model.tube import Tube
from tuque.tubes.replication.leadership import synced

AGAIN_MS: Final = 200  # a schedule that could not fire tries again after it
COPIES_MS: Final = 20  # so is a job that waits for its copies


def put_off_until_ms(n: Node, t: Tubes, tube: Tube, task: Task) -> i64:
    """[T45] When to look at the DELAYED task again, whose time has come; 0: it is READY now."""
    driver = tube.driver
    if not isinstance(driver, Tasks):
        return 0
    if is_member(task.subqueue):
        t.members_due[task.id] = None  # T50.3
        return n.now_ms + AGAIN_MS
    if is_plan(task.subqueue):
        t.due[task.id] = None  # T45.3: the shell says what fires
        return n.now_ms + AGAIN_MS
    held = driver.plans.held
    if len(held) == 0:
        return 0
    seq: i64 = held.get(int(task.number), 0)
    if seq > synced(n, t, tube):
        return n.now_ms + COPIES_MS  # T45.4
    held.pop(int(task.number), None)
    return 0
