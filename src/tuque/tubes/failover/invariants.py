"""Assertions about leaders and replicas (`DEBUG CHECK`, SPEC T18, T19)."""

from mypy_extensions import i64

from tuque.core.node.node import Node
from tuque.tubes.model.registry import Tubes
from tuque.tubes.model.replica_state import RUNNING, STARTUP
from tuque.tubes.model.tube import Tube
from tuque.tubes.replication.receive import HELD_BYTES, copy_bytes


def check_homes(n: Node, t: Tubes) -> i64:
    """Assert that copies, trails and states agree; returns the bytes of copies."""
    used: i64 = 0
    count: i64 = 0
    for name, tube in t.by_name.items():
        used += check_home(n, t, tube)
        count += len(tube.copies)
        assert name not in t.dropped or not is_gone(t, tube), "a tube that was dropped"
        assert (tube.shift is not None) == (tube in t.shifting), "tasks that do not go on"
        assert not tube.is_changed or tube in t.changed, "change that nobody tells"
    assert count == len(t.copies_by_id), "copies by job id"
    return used


def is_gone(t: Tubes, tube: Tube) -> bool:
    """Whether exactly this tube was dropped, not one of its name."""
    gone = t.dropped[tube.name]
    return gone.maker == tube.maker and gone.made_ns == tube.made_ns


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
