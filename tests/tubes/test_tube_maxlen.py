"""MAXLEN of ADDJOB to a tube: what counts (SPEC T1)."""

from __future__ import annotations

from tubes_world import voting

from tuque.core.copies.add import on_addjob, refusal, settle
from tuque.core.model.errors import MAXLEN
from tuque.core.model.job import AddSpec
from tuque.core.node.node import Node
from tuque.core.queues.deliver import on_getjob
from tuque.tubes import schedules
from tuque.tubes.entries.keys import Keys, pack
from tuque.tubes.entries.schedule import ScheduleEntry, Step
from tuque.tubes.tasks import operations

BOUND = 3


def add(n: Node, keys: Keys | None = None) -> bool:
    """ADDJOB with MAXLEN; False: refused."""
    spec = AddSpec()
    spec.maxlen = BOUND
    if keys is not None:
        spec.keys = pack(keys)
    spec = settle(n, spec)
    refused = refusal(n, b"t", spec)
    if refused is not None:
        assert refused.code == MAXLEN
        return False
    on_addjob(n, b"t", b"body", spec)
    return True


def test_what_waits_for_copies_or_keys_counts() -> None:
    """T1.1 MAXLEN counts READY tasks, at the leader: so the bound holds for all producers of the
    cluster, also while their tasks wait for copies (T18.5). A task that its keys hold back counts.
    """
    world = voting()
    world.make(0, b"tasks", sync=2)
    world.settle()
    n = world.nodes[0].core
    keys = Keys()
    keys.limit, keys.places = b"l", 1
    assert [add(n, keys), add(n), add(n, keys)] == [True, True, True]
    assert not add(n)  # though no other node has any of them yet
    world.settle()
    assert not add(n)
    assert len(on_getjob(n, 9, [b"t"], 10)) == 2  # the third one waits for its place
    assert [add(n), add(n), add(n)] == [True, True, False]


def test_a_job_of_a_schedule_counts_before_it_has_its_copies() -> None:
    """T1.1 So does a job of a schedule that is not READY yet (T45.4)."""
    world = voting()
    tube = world.make(0, b"tasks", sync=2)
    world.settle()
    n = world.nodes[0].core
    plan = ScheduleEntry()
    plan.name, plan.every_ms = b"s", 60_000
    schedules.add_schedule(n, world.t(0), tube, plan, b"body")
    (task,) = tube.tasks.values()
    step = Step(n.now_ms, n.now_ms, n.now_ms + 60_000, False)
    plan = schedules.plan_of(tube, task)
    plan.noted_ms -= 1
    schedules.fire(n, world.t(0), tube, task, plan, step)
    assert tube.length == 0  # it is held
    assert [add(n), add(n), add(n)] == [True, True, False]
    number = max(tube.tasks) - 2
    operations.bury(n, world.t(0), tube, number)
    assert [add(n), add(n)] == [True, False]
