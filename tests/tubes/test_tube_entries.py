"""What tasks of type `tasks` carry, and when it is packed (SPEC T40.2, T48.2)."""

from __future__ import annotations

from keys_lab import keys_of
from lives_world import LivesWorld, add, begin, fail, take
from tube_world import TubeWorld

from tuque.core.copies.add import on_addjob, settle
from tuque.core.life.runs import on_release
from tuque.core.model.job import AddSpec
from tuque.core.model.task import Task, carried_by
from tuque.core.node.node import Node
from tuque.core.queues.ends import life_of
from tuque.core.queues.procedures import check
from tuque.core.work.rules import BACK
from tuque.tubes.entries.keys import JobEntry, pack


def entry_of(n: Node, id: bytes) -> JobEntry:
    task = n.jobs[id]
    assert isinstance(task, Task)
    assert isinstance(task.entry, JobEntry)
    return task.entry


def test_a_task_carries_its_life_itself_and_nobody_packs_it() -> None:
    home = TubeWorld()
    home.make("tasks")
    id = add(home.n)
    for step in range(2):
        entry = entry_of(home.n, id)
        assert entry.work is life_of(home.n, id) and entry.image == b""
        if step == 0:
            assert take(home.n) == [id]
            assert fail(home.n, id, begin(home.n, id)) == BACK
    check(home.n)


def test_tasks_of_a_partition_share_what_they_carry() -> None:
    home = TubeWorld()
    tube = home.make("tasks")
    tasks = [home.put(tube, keys=pack(keys_of(b"g"))) for _ in range(5)]
    one = tasks[2].entry
    assert isinstance(one, JobEntry)
    assert tasks[3].entry is one and tasks[4].entry is one
    run = begin(home.n, take(home.n)[0])
    worked = tasks[0].entry
    assert isinstance(worked, JobEntry) and worked.work is not None and one.work is None
    assert run > 0 and worked.keys == one.keys
    check(home.n)


def test_journal_and_followers_get_one_image_and_then_it_goes() -> None:
    """T48.2 Terms, headers, the highest failed attempt, `crashes`, deliveries that nobody began
    and the first and last failure are part of the task, in its records and its copies
    """
    world = LivesWorld()
    n = world.leading()
    id = add(n)
    packed = entry_of(n, id).image
    assert len(packed) > 0
    world.settle()
    world.pass_ms(500)
    entry = entry_of(n, id)
    assert entry.image == b"" and entry.packed(0) == packed
    copies = [world.tube(i).copies for i in range(3) if not world.tube(i).is_mine]
    for copy in (task for found in copies for task in found.values()):
        assert isinstance(copy.entry, JobEntry)
        assert copy.entry.work is None and carried_by(copy) == packed
    assert len(copies) == 2


def test_a_run_that_left_nothing_is_no_damage_to_a_replica() -> None:
    """T18.2 At the end of a turn, after the journal has them (J4.2), TUBE-COPY sends each
    follower the new state of the tasks that changed, in absolute records.
    """
    world = LivesWorld()
    n = world.leading()
    id = on_addjob(n, b"t", b"body", settle(n, AddSpec())).id
    world.settle()
    world.pass_ms(500)
    losses = [world.tube(i).whole_seq for i in range(3)]
    assert take(n) == [id]
    assert on_release(n, id, begin(n, id), 0)
    task = n.jobs[id]
    assert isinstance(task, Task) and task.entry is None
    world.settle()
    world.pass_ms(500)
    assert [world.tube(i).whole_seq for i in range(3)] == losses
    assert [world.tube(i).is_complete for i in range(3)] == [True] * 3
