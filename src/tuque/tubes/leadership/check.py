"""Assertions about tubes, leaders and replicas (`DEBUG CHECK`, SPEC T11, T18, T19)."""

from mypy_extensions import i64

from tuque.core.model.job import awake_ms
from tuque.core.model.task import BURIED, DELAYED, FAR, READY, TAKEN, Task, state_of
from tuque.core.node.node import Node
from tuque.tubes.log.catalog import drop_of
from tuque.tubes.log.receive import HELD_BYTES, copy_bytes
from tuque.tubes.model.tube import RUNNING, STARTUP, Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.tasks.operations import check_unique
from tuque.tubes.values import check_values
from tuque.tubes.work.dead_letters import check_letters


def check_homes(n: Node, t: Tubes) -> i64:
    """Assert that copies, trails and states agree; returns the bytes of copies."""
    used: i64 = 0
    count: i64 = 0
    for name, tube in t.by_name.items():
        used += check_home(n, t, tube)
        count += len(tube.copies)
        assert drop_of(t, name, tube.maker, tube.made_ns) is None, "a tube that was dropped"
        assert (tube.shift is not None) == (tube in t.shifting), "tasks that do not go on"
        assert not tube.is_changed or tube in t.changed, "change that nobody tells"
    remembered = 0
    for drops in t.dropped.values():
        remembered += len(drops)
    assert remembered == t.dropped_count, "dropped tubes"
    assert count == len(t.copies_by_id), "copies by job id"
    return used


def check_home(n: Node, t: Tubes, tube: Tube) -> i64:
    """Assert that one tube's tasks are where its state says; the bytes of its copies."""
    used: i64 = HELD_BYTES * len(tube.held)
    for number, task in tube.copies.items():
        assert task.number == number, "number of a copy"
        assert number not in tube.tasks, "a copy is a task"
        assert task.id not in n.jobs, "a copy is a job"
        assert task.slot < 0, "timer of a copy"
        assert t.copies_by_id.get(task.id) is task, "copy that its job id does not show"
        used += copy_bytes(task)
    if tube.state == RUNNING:
        assert tube.is_mine and tube.home == n.node_id, "it runs, and is not at home"
        assert len(tube.copies) == 0, "copies of a tube that runs"
        assert tube.move is None, "it runs and moves"
        assert tube.shift is None, "it runs, and tasks are on their way"
    elif tube.shift is None:
        assert len(tube.tasks) == 0, "tasks of a tube that does not run"
    elif tube.shift.is_in:
        assert tube.is_mine and tube.state == STARTUP, "tasks on their way in"
    if tube.is_mine:
        assert tube.home == n.node_id, "home elsewhere"
    if tube.trail_end == tube.seq:
        assert tube.trail_base + len(tube.trail) <= tube.seq, "trail longer than the changes"
    for number in tube.unseen:
        assert not tube.is_complete and number in tube.copies, "unseen copy"
    return used


def check_tube(n: Node, t: Tubes, tube: Tube) -> i64:
    """Assert that one tube's tables agree; returns the number of tasks held by sessions."""
    counts = {READY: 0, TAKEN: 0, DELAYED: 0, BURIED: 0}
    held: i64 = 0
    taken: list[Task] = []
    is_out = tube.shift is not None and not tube.shift.is_in  # T19.6
    for number, task in tube.tasks.items():
        assert task.number == number < tube.next_number, "number of a task"
        assert n.jobs.get(task.id) is task, "task is no job"
        if tube.shift is not None and task.owner != 0:
            session = t.sessions.get(task.owner)
            if session is None:
                assert is_out or task in tube.shift.orphans, "holder that is over"
                held -= 1
        if is_out:
            if task.owner != 0:
                held += 1
            continue
        counts[task.status] += 1
        assert task.state == state_of(i64(task.status)), "state and status"
        if task.status == TAKEN:
            taken.append(task)
            assert 0 < task.token <= t.token, "token of a take"
            if task.owner != 0:
                held += 1
                if tube.shift is None:
                    assert task.id in t.sessions[task.owner].taken, "holder does not know"
        else:
            assert task.owner == 0, "holder of a task that nobody took"
        if task.status == READY or task.status == BURIED:
            assert task.qtime_ms == 0, "timer of a task"
            assert task.dead_ms == FAR or awake_ms(task) >= task.dead_ms, "end of a task"
        elif task.qtime_ms != 0:
            assert awake_ms(task) == task.qtime_ms, "timer of a task that comes back"
    assert counts[READY] == tube.ready_count(), "READY tasks"
    assert counts[TAKEN] == tube.taken, "TAKEN tasks"
    assert counts[DELAYED] == tube.delayed, "DELAYED tasks"
    assert counts[BURIED] == tube.buried == len(tube.graves.listing()), "BURIED tasks"
    assert len(tube.driver.listing()) == tube.ready_count(), "order of READY tasks"
    tube.driver.check(taken)
    check_unique(tube)
    check_values(tube)
    check_letters(n, tube)
    calls = tube.calls
    gone = calls.done + calls.truncated + calls.moved
    assert calls.put + calls.loaded == len(tube.tasks) + gone, "conservation"
    if tube.driver.has_room_limit and tube.capacity > 0:
        assert len(tube.tasks) <= tube.capacity, "capacity"
    return held
