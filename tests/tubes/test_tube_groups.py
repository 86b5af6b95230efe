"""Groups of jobs across restarts and leaders, without a server (SPEC T50)."""

from __future__ import annotations

import random

import pytest
from tube_world import TubeWorld
from tubes_world import TIMEOUT_MS, VotesWorld

from tuque.core.copies.ack import on_ackjob
from tuque.core.copies.add import on_addjob, settle
from tuque.core.life.outcomes import on_done
from tuque.core.node.node import Node
from tuque.core.queues.deliver import on_getjob, wait
from tuque.core.queues.procedures import check
from tuque.tubes import groups
from tuque.tubes.entries.group import (
    CONTINUE,
    ChildEntry,
    Family,
    GroupEntry,
    child_in,
    group_in,
    is_group,
    is_member,
)
from tuque.tubes.entries.keys import is_sound
from tuque.tubes.model.tube import Tube
from tuque.tubes.policy import tubes_of
from tuque.wire.commands.add_options import addjob_options

SIZE = 8


def shell(n: Node) -> None:
    """What the server does with groups at the end of a turn."""
    t = tubes_of(n)
    wakes, n.wakes = n.wakes, []
    for wake in wakes:
        groups.wake(t, wake.client)
    while (task := groups.next_member(n, t)) is not None:
        groups.look(n, t, task)


def planned() -> GroupEntry:
    plan = GroupEntry()
    plan.size, plan.policy, plan.has_callback, plan.keep_ms = SIZE, CONTINUE, True, 60_000
    return plan


def child_job(n: Node, index: int, retry_s: int = 30) -> bytes:
    """A job that is kept for an hour when it has ended."""
    words = [b"", b"", b"", b"", b"KEEP", b"3600", b"REPLICATE", b"1", b"RETRY", b"%d" % retry_s]
    return on_addjob(n, b"q", b"%d" % index, settle(n, addjob_options(words))).id


def created(n: Node, tube: Tube) -> bytes:
    plan = planned()
    return groups.create(n, tubes_of(n), tube, plan, b"callback", tube.pri, tube.ttr_ms).id


def results_of(n: Node, tube: Tube, group: bytes) -> list[bytes | None]:
    """The results of the children, in order."""
    family = groups.family_of(tube, groups.group_of(n, tube, group).number)
    return [child_of(tube, family, i).result for i in sorted(family.by_index)]


def child_of(tube: Tube, family: Family, index: int) -> ChildEntry:
    entry = tube.tasks[family.by_index[index]].entry
    assert isinstance(entry, ChildEntry)
    return entry


# ---- restarts


@pytest.mark.parametrize("seed", range(4))
def test_groups_survive_restarts(seed: int) -> None:
    """T50.4 So the callback is there once, over starts and changes of the leader."""
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    tube = home.t.by_name[b"t"]
    group = created(home.n, tube)
    ids = [child_job(home.n, i) for i in range(SIZE)]
    for i, id in enumerate(ids):
        assert groups.add(home.n, home.t, tube, groups.group_of(home.n, tube, group), i, id)
    home.settle()
    chance = random.Random(seed)
    calls: list[bytes] = []
    for _ in range(60):
        home.pass_ms(chance.randrange(400))
        at = chance.randrange(SIZE)
        on_done(home.n, ids[at], 0, b"r%d" % at)
        shell(home.n)
        if chance.random() < 0.4:
            home.settle()
            if chance.random() < 0.5:
                home.restart(chance.randrange(3_000))
        elif chance.random() < 0.3:
            home.restart()  # what this turn has done is lost
        calls += [job.id for job in on_getjob(home.n, 9, [b"t"], 9)]
        check(home.n)
    for i in range(SIZE):
        on_done(home.n, ids[i], 0, b"r%d" % i)
    for _ in range(20):
        home.pass_ms(1_000)
        shell(home.n)
    calls += [job.id for job in on_getjob(home.n, 9, [b"t"], 9)]
    assert set(calls) == {group}
    tube = home.t.by_name[b"t"]
    assert results_of(home.n, tube, group) == [b"r%d" % i for i in range(SIZE)]
    assert on_ackjob(home.n, group)
    for _ in range(8):
        home.pass_ms(60_000)
        shell(home.n)
    assert len(tube.tasks) == 0 and not home.t.watchers and not home.n.life.watches
    check(home.n)


def test_what_was_noted_needs_no_outcome_any_more() -> None:
    """T50.1 they are in the journal and its copies, and count as delayed."""
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    tube = home.t.by_name[b"t"]
    group = created(home.n, tube)
    ids = [child_job(home.n, i) for i in range(SIZE)]
    for i, id in enumerate(ids):
        groups.add(home.n, home.t, tube, groups.group_of(home.n, tube, group), i, id)
    shell(home.n)
    for part in (ids[1:], ids[:1]):
        for id in part:
            on_done(home.n, id, 0, b"r" + id[-1:])
        shell(home.n)
        home.settle()
        home.pass_ms(2 * 3_600_000)  # nothing is kept of the job
        home.restart()
        home.pass_ms(1_000)
        shell(home.n)
    tube = home.t.by_name[b"t"]
    assert results_of(home.n, tube, group) == [b"r" + id[-1:] for id in ids]
    assert [job.id for job in on_getjob(home.n, 9, [b"t"], 9)] == [group]
    check(home.n)


# ---- leaders


class GroupsWorld(VotesWorld):
    """Three nodes with a tube of type tasks, whose shells look at groups."""

    def __init__(self) -> None:
        super().__init__(3, makes=False)
        self.pass_ms(2 * TIMEOUT_MS)
        assert all(self.in_force(i) for i in range(3))
        self.make(0, b"tasks", sync=2)
        self.pass_ms(1_000)


@pytest.mark.parametrize("seed", range(3))
def test_groups_survive_their_leaders(seed: int) -> None:
    """T50.3 A child whose job is at another node is asked for each second, 500 at once at most."""
    world = GroupsWorld()
    chance = random.Random(seed)
    n, tube = world.nodes[0].core, world.tube(0)
    group = created(n, tube)
    places = [chance.choice((1, 2)) for _ in range(SIZE)]
    ids = []
    for i in range(SIZE):
        world.nodes[places[i]].core.now_ms = world.now_ms
        ids.append(child_job(world.nodes[places[i]].core, i))
        assert groups.add(n, tubes_of(n), tube, groups.group_of(n, tube, group), i, ids[i])
    world.settle()
    world.pass_ms(3_000)
    for i in range(SIZE):
        if i == SIZE // 2:
            world.restart(0)
            world.pass_ms(4 * TIMEOUT_MS)
            world.rejoin(0)
        world.pass_ms(chance.choice((50, 700)))
        world.nodes[places[i]].core.now_ms = world.now_ms
        on_done(world.nodes[places[i]].core, ids[i], 0, b"r%d" % i)
        world.settle()
    world.pass_ms(10_000)
    at = world.leads()
    assert at != 0
    n = world.nodes[at].core
    assert [job.id for job in on_getjob(n, 9, [b"t"], 9)] == [group]
    assert results_of(n, world.tube(at), group) == [b"r%d" % i for i in range(SIZE)]


def test_children_that_move_to_other_nodes() -> None:
    """T50.3 A child whose job is at another node is asked for each second, 500 at once at most."""
    world = GroupsWorld()
    n, tube = world.nodes[0].core, world.tube(0)
    group = created(n, tube)
    ids = [child_job(n, i, 0) for i in range(SIZE)]
    for i, id in enumerate(ids):
        assert groups.add(n, tubes_of(n), tube, groups.group_of(n, tube, group), i, id)
    world.settle()
    world.pass_ms(1_000)
    there = world.nodes[1].core
    for client in range(20):
        wait(there, client, [b"q"], SIZE, 0, world.now_ms + 10_000)
        world.pass_ms(100)
        on_getjob(there, 99, [b"q"], SIZE)
    assert all(id in there.jobs and id not in n.jobs for id in ids)
    for i, id in enumerate(ids):
        assert on_done(there, id, 0, b"r%d" % i)
    world.settle()
    world.pass_ms(3_000)
    assert [job.id for job in on_getjob(n, 9, [b"t"], 9)] == [group]


def test_ends_at_other_nodes_when_the_group_is_cancelled() -> None:
    """T50.7 A child that has ended when the group ends, and was not noted yet, is noted as it ended
    (T50.3)."""
    world = GroupsWorld()
    n, tube, there = world.nodes[0].core, world.tube(0), world.nodes[1].core
    n.now_ms = there.now_ms = world.now_ms
    group = created(n, tube)
    ids = [child_job(there, i) for i in range(SIZE)]
    for i, id in enumerate(ids):
        assert groups.add(n, tubes_of(n), tube, groups.group_of(n, tube, group), i, id)
    world.settle()
    world.pass_ms(1_000)
    n.now_ms = there.now_ms = world.now_ms
    for i in range(4):
        assert on_done(there, ids[i], 0, b"r%d" % i)
    assert groups.cancel(n, tubes_of(n), tube, groups.group_of(n, tube, group))
    world.settle()
    world.pass_ms(5_000)
    family = groups.family_of(tube, groups.group_of(n, tube, group).number)
    assert (family.done, family.failed) == (4, SIZE - 4)
    assert results_of(n, tube, group) == [b"r%d" % i for i in range(4)] + [None] * (SIZE - 4)
    words = [child_of(tube, family, i).word for i in range(SIZE)]
    assert words == [b"done"] * 4 + [b"cancelled"] * (SIZE - 4)
    assert not any(id in there.jobs for id in ids) and not tubes_of(n).watchers


def child_task(world: GroupsWorld, i: int, index: int) -> bytes:
    """A task of the tube u that node i leads, kept for an hour when it has ended."""
    n = world.nodes[i].core
    words = [b"", b"", b"", b"", b"KEEP", b"3600"]
    return on_addjob(n, b"u", b"%d" % index, settle(n, addjob_options(words))).id


@pytest.mark.parametrize("how", ["moves", "dies", "both die", "restarts"])
def test_children_whose_tube_changes_its_leader(how: str) -> None:
    """W15.11 (tubes) A node that has a copy of a task, and not its outcome, does not answer: the
    leader of the tube does. So a task of a tube without a leader, or between two, is not `gone`.
    """
    world = GroupsWorld()
    world.make(1, b"tasks", b"u", sync=2)
    world.pass_ms(1_000)
    n, tube = world.nodes[0].core, world.tube(0)
    group = created(n, tube)
    ids = [child_task(world, 1, i) for i in range(SIZE)]
    for i, id in enumerate(ids):
        assert groups.add(n, tubes_of(n), tube, groups.group_of(n, tube, group), i, id)
    world.settle()
    world.pass_ms(2_000)
    if how == "moves":
        world.begin_move(1, 2, b"u")
        world.settle()
    else:
        for i in (0, 1) if how == "both die" else (1,):
            if how == "restarts":
                world.stick(0, 1, 2)
            world.restart(i)
            world.pass_ms(3 * TIMEOUT_MS if how != "restarts" else 100)
            world.rejoin(i)
            world.pass_ms(3_000)
            assert how != "restarts" or not world.runs_at(b"u"), "all are there, and none leads"
            world.stick()
    world.pass_ms(20_000)
    (there,) = world.runs_at(b"u")
    assert there != 1 or how == "restarts"
    world.pass_ms(3_000)
    at = world.leads()
    task = groups.group_of(world.nodes[at].core, world.tube(at), group)
    family = groups.family_of(world.tube(at), task.number)
    assert (len(family.by_index), family.done, family.failed) == (SIZE, 0, 0)
    n = world.nodes[there].core
    assert len(on_getjob(n, 9, [b"u"], SIZE)) == SIZE
    for i in range(SIZE):
        assert on_done(n, ids[i], 0, b"r%d" % i)
    world.settle()
    world.pass_ms(4_000)
    at = world.leads()
    n = world.nodes[at].core
    assert [job.id for job in on_getjob(n, 9, [b"t"], 9)] == [group]
    assert results_of(n, world.tube(at), group) == [b"r%d" % i for i in range(SIZE)]


# ---- the bytes


def read_child(packed: bytes) -> ChildEntry:
    """The child in the bytes."""
    child = child_in(packed)
    assert child is not None
    return child


def test_groups_and_children_go_into_bytes_and_back() -> None:
    plan = planned()
    plan.over_ms = 7
    packed = plan.packed(0)
    assert is_group(packed) and is_member(packed) and is_sound(packed)
    assert plan.copy().packed(0) == packed
    for name in ("size", "policy", "state", "has_callback", "keep_ms", "over_ms", "keys"):
        assert getattr(group_in(packed), name) == getattr(plan, name), name
    child = ChildEntry()
    child.group, child.index, child.id, child.word, child.result = 3, 7, b"D-1", b"done", b""
    small = child.packed(0)
    child.result = b"r" * 70_000
    child.reason = b"why"
    large = child.packed(0)
    assert read_child(small).result == b"" and read_child(large).result == child.result
    child.is_met = True
    met = child.packed(0)
    assert child.copy().packed(0) == met
    assert [read_child(one).is_met for one in (small, large, met)] == [False, False, True]
    assert read_child(met).result == child.result
    assert child_in(met[:4] + b"\4" + met[5:]) is None
    for packed in (small, large, met):
        assert is_member(packed) and not is_group(packed) and is_sound(packed)
        for end in range(3, 40):
            assert child_in(packed[:end]) is None
    assert read_child(large).reason == b"why" and read_child(large).id == b"D-1"
