"""A put with keys: who has its unique key, and whether the tube takes more keys (SPEC T40, T44)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.model.errors import (
    DUPLICATE,
    NO_KEYS,
    TUBE_KEYS_FULL,
    Refusal,
)
from tuque.core.model.job import AddSpec
from tuque.core.model.task import BYTES, DELAYED, READY, Task
from tuque.core.node.node import Node
from tuque.core.node.tables import put_body
from tuque.tubes.keys.kept import is_kept, kept_id, kept_key
from tuque.tubes.keys.members import is_group, is_member, unpack_child, unpack_group
from tuque.tubes.keys.plan import is_plan, unpack_plan
from tuque.tubes.keys.tasks import Tasks
from tuque.tubes.keys.words import UNTIL_START, has_unique, unique_of, unpack
from tuque.tubes.model import changes
from tuque.tubes.model.registry import Tubes
from tuque.tubes.model.tube import Tube
from tuque.tubes.tasks.transitions import record_whole, tell

KEYS_MAX: Final = 1_000_000  # of one tube


def same_task(n: Node, tube: Tube, packed: bytes) -> Task | None:
    """[T44] The task that has the unique key now, or keeps it (T44.3); None: it is free, or there
    is none (T44.4).
    """
    driver = tube.driver
    if len(packed) == 0 or not isinstance(driver, Tasks):
        return None
    if not has_unique(packed):
        return None
    number: i64 = driver.uniques.holder(unique_of(packed), n.now_ms)
    return tube.tasks.get(number) if number >= 0 else None


def first_id(task: Task) -> bytes:
    """[T44] The id of the job that has the key, or had it (T44.3, T44.4)."""
    return kept_id(task.subqueue) if is_kept(task.subqueue) else task.id


def job_of(task: Task) -> Task:
    """[T44] That job for a reply: one that has ended is in no table."""
    if not is_kept(task.subqueue):
        return task
    return Task(kept_id(task.subqueue), task.queue, b"", task.ctime_ns, task.number, 0, BYTES)


def keys_refusal(tube: Tube, spec: AddSpec, same: Task | None) -> Refusal | None:
    """[T40] Why the tube refuses the keys of an ADDJOB (T40.5); None: it does not."""
    driver = tube.driver
    if not isinstance(driver, Tasks):
        return Refusal(NO_KEYS)
    if same is not None:
        is_refused = spec.rejects_same or (spec.replaces_same and not is_waiting(same))
        return Refusal(DUPLICATE, (first_id(same),)) if is_refused else None  # T44.5, T44.7
    if driver.keys() >= KEYS_MAX:
        return Refusal(TUBE_KEYS_FULL, (tube.name, KEYS_MAX))  # T40.6
    return None


def held_count(tube: Tube) -> i64:
    """[T1] How many jobs of schedules are READY once they have their copies (T1.1, T45.4)."""
    driver = tube.driver
    return len(driver.plans.held) if isinstance(driver, Tasks) else 0


def is_waiting(task: Task) -> bool:
    """Whether nobody has the task: it may get another body (T44.7)."""
    is_job = not is_kept(task.subqueue)
    return is_job and (task.status == READY or task.status == DELAYED)


def replace_body(n: Node, t: Tubes, tube: Tube, task: Task, body: bytes) -> None:
    """[T44] The task that has the unique key gets this body, and stays what it was (T44.7)."""
    if task.body != body:
        put_body(n, task, body)
        record_whole(n, tube, task)
        tell(n, t, tube, task, changes.UPDATE)


def shown_keys(tube: Tube, task: Task) -> dict[str, object] | None:
    """[T40] The keys of the task for SHOW (T40.7); None: its tube has none."""
    if not tube.driver.has_keys:
        return None
    if is_plan(task.subqueue):
        return {"schedule": unpack_plan(task.subqueue).name}  # T45.8
    if is_group(task.subqueue):
        return {"children": int(unpack_group(task.subqueue).size)}  # T50.9
    if is_member(task.subqueue):
        return {"child": unpack_child(task.subqueue).id}
    if is_kept(task.subqueue):  # T44.8
        return {
            "unique": kept_key(task.subqueue),
            "until-ms": int(task.qtime_ms),
            "key-of": kept_id(task.subqueue),
        }
    keys = unpack(task.subqueue)
    found: dict[str, object] = {}
    if len(keys.unique) > 0:
        found["unique"] = keys.unique
        found["until"] = until_word(keys.until_ms)
        if keys.until_ms > 0:
            found["until-ms"] = int(task.created_ms + keys.until_ms)
    if len(keys.limit) > 0:
        found["limit"] = keys.limit
        found["places"] = int(keys.places)
    if len(keys.rate) > 0:
        found["rate"] = keys.rate
        found["token-us"] = int(keys.gap_ns // 1000)
        found["burst"] = int(keys.burst)
    if len(keys.group) > 0:
        found["group"] = keys.group
        found["weight"] = int(keys.weight)
    return found


def until_word(until_ms: i64) -> bytes:
    """Until when a task has its unique key, as ADDJOB says it."""
    if until_ms <= 0:
        return b"start" if until_ms == UNTIL_START else b"done"
    ms = until_ms % 1000
    return b"%d" % (until_ms // 1000) + (b".%03d" % ms).rstrip(b"0") * (1 if ms > 0 else 0)


def check_unique(tube: Tube) -> None:
    """Assert that each unique key has a task of the tube, which names it (T44.1)."""
    driver = tube.driver
    if not isinstance(driver, Tasks) or (tube.shift is not None and not tube.shift.is_in):
        return
    for key, claim in driver.uniques.claims.items():
        task = tube.tasks.get(claim.number)
        assert task is not None, "unique key of a task that is gone"
        packed = task.subqueue
        named = kept_key(packed) if is_kept(packed) else unique_of(packed)
        assert named == key, "unique key of another task"
