"""Copies that lag, walks, names and drops over several nodes (SPEC T17, T18, T22)."""

from __future__ import annotations

import msgspec
import pytest
from tubes_world import TubesWorld, voting

from tuque.core.msgs.bus import TubeCopy
from tuque.server.replies.errors import resp_words, text_of
from tuque.tubes.log.leader import lag_of, synced
from tuque.tubes.log.receive import on_copy
from tuque.tubes.log.send import (
    BEGINS,
    TRAIL_MAX,
    WALK,
    WALK_TASKS,
)
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.grants import CALL, user_key
from tuque.tubes.tasks import admin, operations


def test_drop_is_told_later_too() -> None:
    """T17.6 drop is sent to the other nodes, at once or when they are linked again: they delete
    their replicas."""
    world = voting()
    world.make(0)
    world.put(0)
    world.settle()
    for i in (1, 2):  # T22.3 Grants are each node's own, also where the tube is not at home
        admin.grant(world.nodes[i].core, world.t(i), user_key(b"bob"), world.tube(i), CALL)
    world.isolate(2)
    admin.drop(world.nodes[0].core, world.t(0), world.tube(0))
    world.settle()
    assert b"t" not in world.t(1).by_name and b"t" in world.t(2).by_name
    assert [world.t(i).rights.count for i in range(3)] == [0, 0, 1]
    world.restart(0)
    world.rejoin(0)
    world.link()
    world.pass_ms(1000)
    for i in range(3):
        assert b"t" not in world.t(i).by_name
        assert len(world.t(i).copies_by_id) == 0 and world.t(i).rights.count == 0


def test_copies_wait_for_room() -> None:
    """T18.4 A full send buffer (B2.4) delays replication; nothing is lost."""
    world = voting()
    world.make(0)
    world.nodes[0].core.peers[world.slot(0, 1)].has_room = False
    for _ in range(7):
        world.put(0)
    world.settle()
    assert world.picture(1) == {}
    assert lag_of(world.nodes[0].core, world.t(0), world.tube(0))[0] == (world.id(1), 7, True)
    world.nodes[0].core.peers[world.slot(0, 1)].has_room = True
    world.pass_ms(50)
    assert world.picture(1) == world.picture(0)
    assert lag_of(world.nodes[0].core, world.t(0), world.tube(0))[0] == (world.id(1), 0, True)


def test_numbers_that_a_start_skips_are_no_lag() -> None:
    """T18.4 Lag is the number of changes not confirmed, without those that a start skips
    (T18.7); of an incomplete or unknown replica that of tasks.
    """
    world = voting()
    world.make(0)
    world.put(0)
    world.settle()
    world.restart(0)
    world.tube(1).told_seq = world.tube(0).seq
    world.tube(0).followers.clear()  # as in the turn of the start
    assert world.tube(0).seq > 60_000, "it has skipped numbers"
    lags = [(world.id(i), 1, False) for i in (1, 2)]
    assert lag_of(world.nodes[0].core, world.t(0), world.tube(0)) == lags
    world.tube(1).is_complete = False
    assert lag_of(world.nodes[1].core, world.t(1), world.tube(1)) == lags[:1]


def test_a_walk_after_too_many_changes() -> None:
    """T18.3 The leader sends what changed since, if it is among the last 65,536 changes.
    Otherwise it scans all tasks, a bounded part in each turn, and the follower deletes those
    that it was not sent.
    """
    world = voting()
    world.make(0)
    for _ in range(9_000):
        world.put(0)
    world.settle()
    assert world.picture(1) == world.picture(0)
    world.cut(0, 1)
    for _ in range(30):
        task = world.take(0)
        assert task is not None
        world.ack(0, task.number)
    task = world.take(0)
    assert task is not None
    for _ in range(TRAIL_MAX):
        operations.touch(world.nodes[0].core, world.t(0), world.tube(0), 1, task.number, 1)
    for _ in range(25):
        world.put(0)
    world.dial(0, 1)
    world.step_until(lambda: not world.tube(1).is_complete)
    task = world.take(0)  # while the walk goes on, and says so
    assert task is not None
    world.ack(0, task.number)
    world.put(0)
    world.settle()
    walk = [m for _, _, m in world.heard() if isinstance(m, TubeCopy) and m.flags & WALK]
    assert len(walk) > 3
    assert world.tube(1).is_complete
    assert world.picture(1) == world.picture(0) and len(world.picture(1)) == 8_995
    world.restart(1)
    assert world.picture(1) == world.picture(0)


def walk_to(world: TubesWorld) -> int:
    """How far node 0 has walked for node 1."""
    follower = world.tube(0).followers.get(world.slot(0, 1))
    return 0 if follower is None or follower.walk is None else int(follower.walk.pos)


@pytest.mark.parametrize("ahead", [-1, 0, 1])
def test_a_change_of_a_task_that_the_walk_has_not_sent(ahead: int) -> None:
    """T18.3 Otherwise it scans all tasks, a bounded part in each turn, and the follower deletes
    those that it was not sent. Until then the replica is incomplete
    """
    world = voting()
    world.make(0)
    world.cut(0, 1)
    for _ in range(WALK_TASKS + 10):
        world.put(0)
    world.tube(0).trail_end = -1  # what changed is not known: it walks
    world.forget_heard()
    world.dial(0, 1)
    world.step_until(lambda: walk_to(world) > 0)
    follower = world.tube(0).followers[world.slot(0, 1)]
    assert follower.walk is not None
    assert 0 < follower.walk.pos <= WALK_TASKS  # numbers count from 0
    operations.bury(world.nodes[0].core, world.t(0), world.tube(0), follower.walk.pos + ahead)
    world.settle()
    copies = [m for _, b, m in world.heard() if b == 1 and isinstance(m, TubeCopy)]
    assert sum(m.flags & BEGINS != 0 for m in copies) == 1, "no scan was lost"
    assert world.tube(1).is_complete and world.picture(1) == world.picture(0)


def test_sync_copies() -> None:
    """T18.5 If fewer than n nodes are expected (K4.4), nothing is done: `-NOREPL Not enough
    reachable nodes for the requested replication level`.
    """
    world = voting()
    world.make(0, sync=3)
    world.hold(2, 0)
    world.put(0)
    world.settle()
    n, t, tube = world.nodes[0].core, world.t(0), world.tube(0)
    assert synced(n, t, tube) == 0 and tube.seq == 1
    tube.followers[world.slot(0, 1)].is_complete = False
    assert synced(n, t, tube) == 0
    tube.followers[world.slot(0, 1)].is_complete = True
    world.release(2, 0)
    world.settle()
    assert synced(n, t, tube) == 1
    world.cut(0, 1)
    world.put(0)
    assert tube.seq == 2 > synced(n, t, tube)
    world.pass_ms(n.limits.node_timeout_ms + 1_000)
    with pytest.raises(TubeError) as e:
        world.put(0)
    assert resp_words(e.value).startswith(b"NOREPL Not enough reachable nodes")
    with pytest.raises(TubeError) as e:
        world.make(0, name=b"u", sync=4)
    assert text_of(e.value) == b"SYNC must be from 1 to the number of nodes with copies, which is 3"
    with pytest.raises(TubeError) as e:
        world.make(0, name=b"u", sync=2, temporary=True)
    assert text_of(e.value) == b"a temporary tube has no copies: SYNC must be 1"


def test_a_rewrite_keeps_copies() -> None:
    """T22.1 tube-home: name, epoch, leader, last change, completeness."""
    world = voting()
    world.make(0)
    for i in range(20):
        world.put(0, b"%d" % i)
    world.settle()
    world.move(0, 1)
    world.settle()
    picture = world.picture(1)
    for i in range(3):
        world.rewrite(i)
    for i in range(3):
        world.restart(i)
    assert world.picture(0) == world.picture(1) == world.picture(2) == picture
    assert [world.tube(i).home for i in range(3)] == [world.id(1)] * 3
    assert world.states_at() == ["INIT", "INIT", "INIT"]
    world.link()
    world.pass_ms(2000)
    assert world.runs_at() == [1]
    assert world.picture(0) == world.picture(1) == world.picture(2)


def test_instants_are_on_the_clock_of_the_copy() -> None:
    """T18.1 of each task number, status, body, times, token, the uuid of the session that holds
    it.

    The times are on the clock of the node that has the replica."""
    world = voting()
    world.make(0)
    world.put(0, delay_ms=9000)
    world.settle()
    copies = [m for _, b, m in world.heard() if b == 1 and isinstance(m, TubeCopy)]
    (m,) = [m for m in copies if m.records]
    n, t = world.nodes[1].core, world.t(1)
    before = world.tube(1).copies[0]
    created_ms, qtime_ms = int(before.created_ms), int(before.qtime_ms)
    late = msgspec.structs.replace(
        m, now_ms=m.now_ms - 5000, from_seq=world.tube(1).seq, to_seq=world.tube(1).seq + 1
    )
    on_copy(n, t, world.slot(1, 0), late)
    after = world.tube(1).copies[0]
    assert (after.created_ms, after.qtime_ms) == (created_ms + 5000, qtime_ms + 5000)


def test_a_number_that_was_given_again() -> None:
    """T18.6 a follower then deletes the task that it has under that number, from its journal
    too.
    """
    world = voting()
    world.make(0)
    world.put(0, b"lost")
    world.settle()
    world.cut(0, 1)
    tube = world.tube(0)
    admin.truncate(world.nodes[0].core, world.t(0), tube)
    tube.next_number = 0  # as if the disk had lost the put
    tube.trail_end = -1  # what changed is not known: it walks
    world.put(0, b"again")
    world.link(0, 1)
    world.settle()
    assert [task.body for task in world.tube(1).copies.values()] == [b"again"]
    assert world.take(0) is not None
    world.ack(0, 0)
    world.settle()
    world.restart(1)
    assert world.tube(1).copies == {}


def test_a_pri_that_changed_goes_to_the_copies() -> None:
    """T1.10 UPDATEJOB PRI changes the pri of a task, whatever its status and holder.

    T18.2 TUBE-COPY sends each follower the new state of the tasks that changed
    """
    world = voting()
    world.make(0)
    numbers = [world.put(0, b"%d" % i).number for i in range(4)]
    world.settle()
    n, t = world.nodes[0].core, world.t(0)
    got = world.take(0)
    assert got is not None and got.number == 0
    operations.bury(n, t, world.tube(0), 3)
    for number in numbers:  # in one message with what else changed, state first
        t.set_pri(n, world.tube(0).tasks[number], 9 - number)
    operations.release(n, t, world.tube(0), 1, 0, 5)
    world.settle()
    assert [one[3] for one in world.picture(1).values()] == [9, 8, 7, 6]
    assert world.picture(1) == world.picture(0)
    world.restart(1)  # its journal has them, too
    world.rejoin(1)
    assert world.picture(1) == world.picture(0)
    operations.kick(n, t, world.tube(0), 1)
    world.pass_ms(1_000)
    assert world.move(0, 1) is False
    world.pass_ms(3_000)
    assert world.runs_at() == [1]
    order = [world.take(1) for _ in numbers]
    assert [task and task.number for task in order] == [3, 2, 1, 0]
