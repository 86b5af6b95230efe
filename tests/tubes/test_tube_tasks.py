"""Keys of tasks across restarts and leaders (SPEC T40.2, T41.4, T42.4, T44.6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from keys_lab import SECOND_NS, keys_of
from tube_world import TubeWorld
from tubes_world import voting

from tuque.core.copies.ack import on_ackjob
from tuque.core.copies.add import on_addjob, settle
from tuque.core.model.job import AddSpec
from tuque.core.model.task import TAKEN
from tuque.core.node.node import Node
from tuque.core.queues.deliver import on_getjob
from tuque.core.queues.procedures import check
from tuque.core.records.tubes import TaskRecord
from tuque.tubes.entries.keys import UNTIL_START, Keys, pack
from tuque.tubes.log.receive import are_known


def add(n: Node, body: bytes, keys: Keys) -> bytes:
    """ADDJOB with these keys; the id."""
    spec = AddSpec()
    spec.keys = pack(keys)
    return on_addjob(n, b"t", body, settle(n, spec)).id


def take(n: Node) -> bytes | None:
    """GETJOB of one task: its body."""
    jobs = on_getjob(n, 9, [b"t"], 1)
    return jobs[0].body if jobs else None


def unique(key: bytes, until_ms: int = 0) -> Keys:
    keys = keys_of()
    keys.unique, keys.until_ms = key, until_ms
    return keys


def fill(n: Node) -> list[bytes]:
    """Three tasks of one place, three of one rate, two with unique keys; some are taken."""
    ids = [add(n, b"limit", keys_of(b"a", 1, b"shop", 1)) for _ in range(3)]
    ids += [add(n, b"rate", keys_of(b"b", rate=b"api", gap_ns=SECOND_NS, burst=5))]
    ids += [add(n, b"once", unique(b"one")), add(n, b"begun", unique(b"two", UNTIL_START))]
    assert [take(n) for _ in range(4)] == [b"limit", b"rate", b"once", b"begun"]
    ids += [add(n, b"rate", keys_of(b"b", rate=b"api", gap_ns=SECOND_NS, burst=5))]
    return ids


def still_holds(n: Node, ids: list[bytes], pass_ms: Callable[[int], None]) -> None:
    """What held before holds on this node, which has just begun to lead."""
    check(n)
    assert take(n) is None  # T41.4: its place is taken; T42.4: its bucket is empty
    assert add(n, b"no", unique(b"one")) == ids[4]  # T44.6
    again = add(n, b"again", unique(b"two", UNTIL_START))
    assert again != ids[5]  # T44.2
    assert take(n) == b"again"
    pass_ms(499)
    assert take(n) is None  # it leads since up to 500 ms
    pass_ms(501)
    assert take(n) == b"rate"
    assert on_ackjob(n, ids[0])
    assert take(n) == b"limit"
    assert take(n) is None
    check(n)


def test_keys_survive_a_restart() -> None:
    """T44.6 After a start and at a new leader the tasks have the keys that they had."""
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    ids = fill(home.n)
    home.settle()
    home.restart()
    assert sum(task.status == TAKEN for task in home.t.by_name[b"t"].tasks.values()) == 4
    still_holds(home.n, ids, home.pass_ms)


@pytest.mark.parametrize("is_lost", [False, True])
def test_keys_hold_at_the_next_leader(is_lost: bool) -> None:
    """T41.4 After a start and at a new leader the places in use are counted."""
    world = voting()
    world.make(0, b"tasks")
    world.pass_ms(1_000)
    ids = fill(world.nodes[0].core)
    world.settle()
    if is_lost:
        world.restart(0)
    else:
        world.move(0, 1)
    world.settle()
    home = world.leads()
    assert home == 1 or is_lost
    n = world.nodes[home].core
    still_holds(n, ids, world.pass_ms)


def test_a_raised_limit_lets_all_go_within_a_few_turns() -> None:
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    n = home.n
    for number in range(1_200):
        add(n, b"job", keys_of(b"g%d" % number, 1, b"shop", 1))
    assert take(n) == b"job"
    assert take(n) is None
    add(n, b"job", keys_of(b"last", 1, b"shop", 1_000_000))
    counts = []
    for _ in range(4):
        count = 0
        while take(n) is not None:
            count += 1
        counts.append(count)
        check(n)
        home.pass_ms(1)
    assert counts == [500, 700, 0, 0]  # T41.6


def test_a_task_with_damaged_keys_is_not_taken_from_another_node() -> None:
    """T40.2 The keys are part of the task: they are in its records and its copies."""
    world = voting()
    world.make(0, b"tasks")
    r = TaskRecord()
    r.is_whole, r.queue, r.id = True, b"t", b"i" * 40
    for packed, is_good in ((b"", True), (pack(keys_of(b"g")), True), (b"\x05\0g", False)):
        r.subqueue = packed
        assert are_known(world.t(1), world.tube(1), [r]) == is_good
