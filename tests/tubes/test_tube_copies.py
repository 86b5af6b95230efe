"""Copies that lag, walks, names and drops over several nodes (SPEC T17, T18, T22)."""

from __future__ import annotations

import msgspec
import pytest
from homes_lab import HomesLab

from tuque.core.msgs import TubeCopy
from tuque.server.replies.errors import resp_words, text_of
from tuque.tubes.log.leader import lag_of, synced
from tuque.tubes.log.receive import on_copy
from tuque.tubes.log.send import (
    BEGINS,
    TRAIL_MAX,
    WALK,
    WALK_TASKS,
)
from tuque.tubes.model.errors import HomeError, TubeError
from tuque.tubes.model.grants import CALL, user_key
from tuque.tubes.tasks import admin, operations


def test_drop_is_told_later_too() -> None:
    """T17.6 drop is sent to the other nodes, at once or when they are linked again: they delete
    their replicas."""
    lab = HomesLab(3, has_journal=True)
    lab.make(0)
    lab.put(0)
    lab.run()
    for i in (1, 2):  # T22.3 Grants are each node's own, also where the tube is not at home
        admin.grant(lab.nodes[i], lab.t(i), user_key(b"bob"), lab.tube(i), CALL)
    lab.isolate(2)
    admin.drop(lab.nodes[0], lab.t(0), lab.tube(0))
    lab.run()
    assert b"t" not in lab.t(1).by_name and b"t" in lab.t(2).by_name
    assert [lab.t(i).rights.count for i in range(3)] == [0, 0, 1]
    lab.die(0)
    lab.revive(0)
    lab.heal()
    lab.live(1000)
    for i in range(3):
        assert b"t" not in lab.t(i).by_name
        assert len(lab.t(i).copies_by_id) == 0 and lab.t(i).rights.count == 0


def test_two_tubes_of_one_name() -> None:
    """T17.5 Two nodes without a link can create tubes of one name."""
    lab = HomesLab(3)
    lab.isolate(1)
    lab.make(0)
    lab.make(1)
    lab.put(0, b"of 0")
    lab.put(1, b"of 1")
    lab.heal()
    lab.live(2000)
    assert lab.tube(0).is_mine and lab.tube(1).is_mine
    assert lab.tube(0).conflict == lab.nodes[1].node_id
    assert lab.tube(1).conflict == lab.nodes[0].node_id
    assert lab.tube(2).home == lab.nodes[0].node_id
    assert lab.put(0).number == 1 and lab.put(1).number == 1


def test_two_claims_of_one_name() -> None:
    """T17.5 A node that claims the name itself and has the lower node id replies once its own claim
    has ended."""
    lab = HomesLab(3)
    from tuque.tubes.leadership.create import claim_tube
    from tuque.tubes.model.options import TubeOptions

    for i in (0, 1):
        o = TubeOptions()
        o.if_not_exists = i == 1
        n = lab.nodes[i]
        assert claim_tube(n, lab.t(i), b"t", b"fifo", o, b"", 1, 1) is None
    lab.run()
    assert lab.done(0).tube is lab.tube(0)
    done = lab.done(1)
    assert isinstance(done.error, HomeError) and done.error.node_id == lab.nodes[0].node_id
    with pytest.raises(TubeError):
        lab.make(1)
    assert lab.runs_at() == [0]


def test_copies_wait_for_room() -> None:
    """T18.4 A full send buffer (B2.4) delays replication; nothing is lost by it."""
    lab = HomesLab(2)
    lab.make(0)
    lab.nodes[0].peers[lab.slot(0, 1)].has_room = False
    for _ in range(7):
        lab.put(0)
    lab.run()
    assert lab.picture(1) == {}
    assert lag_of(lab.nodes[0], lab.t(0), lab.tube(0)) == [(lab.nodes[1].node_id, 7, True)]
    lab.nodes[0].peers[lab.slot(0, 1)].has_room = True
    lab.pass_ms(50)
    assert lab.picture(1) == lab.picture(0)
    assert lag_of(lab.nodes[0], lab.t(0), lab.tube(0)) == [(lab.nodes[1].node_id, 0, True)]


def test_numbers_that_a_start_skips_are_no_lag() -> None:
    """T18.4 Of a replica that is not complete, or of which nothing is known, it is the number of
    tasks. Numbers that a start skips (T18.7) are no changes.
    """
    lab = HomesLab(2, has_journal=True)
    lab.make(0)
    lab.put(0)
    lab.run()
    lab.die(0)
    lab.tube(1).told_seq = lab.tube(0).seq
    lab.tube(0).followers.clear()  # as in the turn of the start
    assert lab.tube(0).seq > 60_000, "it has skipped numbers"
    other = lab.nodes[1].node_id
    assert lag_of(lab.nodes[0], lab.t(0), lab.tube(0)) == [(other, 1, False)]
    lab.tube(1).is_complete = False
    assert lag_of(lab.nodes[1], lab.t(1), lab.tube(1)) == [(other, 1, False)]


def test_a_walk_after_too_many_changes() -> None:
    """T18.3 If the leader still knows what changed since (the last 65,536 changes), it sends that.
    Otherwise it scans all tasks, a bounded part in each turn, and the follower deletes the tasks
    that it was not sent."""
    lab = HomesLab(2, has_journal=True)
    lab.make(0)
    for _ in range(9_000):
        lab.put(0)
    lab.run()
    assert lab.picture(1) == lab.picture(0)
    lab.cut(0, 1)
    for _ in range(30):
        task = lab.take(0)
        assert task is not None
        lab.ack(0, task.number)
    task = lab.take(0)
    assert task is not None
    for _ in range(TRAIL_MAX):
        operations.touch(lab.nodes[0], lab.t(0), lab.tube(0), 1, task.number, 1)
    for _ in range(25):
        lab.put(0)
    lab.link(0, 1)
    while lab.tube(1).is_complete:
        assert lab.step()
    task = lab.take(0)  # while the walk goes on, and says so
    assert task is not None
    lab.ack(0, task.number)
    lab.put(0)
    lab.run()
    walk = [m for _, _, m in lab.log if isinstance(m, TubeCopy) and m.flags & WALK]
    assert len(walk) > 3
    assert lab.tube(1).is_complete
    assert lab.picture(1) == lab.picture(0) and len(lab.picture(1)) == 8_995
    lab.die(1)
    assert lab.picture(1) == lab.picture(0)


@pytest.mark.parametrize("ahead", [-1, 0, 1])
def test_a_change_of_a_task_that_the_walk_has_not_sent(ahead: int) -> None:
    """T18.3 Otherwise it scans all tasks, a bounded part in each turn, and the follower deletes the
    tasks that it was not sent. Until the scan ends the replica is incomplete
    """
    lab = HomesLab(2)
    lab.make(0)
    lab.die(1)
    for _ in range(WALK_TASKS + 10):
        lab.put(0)
    lab.log.clear()
    lab.link(0, 1)
    follower = None
    while follower is None or follower.walk is None or follower.walk.pos == 0:
        assert lab.step()
        follower = lab.tube(0).followers.get(lab.slot(0, 1))
    assert 0 < follower.walk.pos <= WALK_TASKS  # numbers count from 0
    operations.bury(lab.nodes[0], lab.t(0), lab.tube(0), follower.walk.pos + ahead)
    lab.run()
    copies = [m for _, _, m in lab.log if isinstance(m, TubeCopy)]
    assert sum(m.flags & BEGINS != 0 for m in copies) == 1, "no scan was lost"
    assert lab.tube(1).is_complete and lab.picture(1) == lab.picture(0)


def test_sync_copies() -> None:
    """T18.5 If fewer than n nodes are reachable, it is refused before it does anything: `-NOREPL
    Not enough reachable nodes for the requested replication level`."""
    lab = HomesLab(3)
    lab.make(0, sync=3)
    lab.hold(2, 0)
    lab.put(0)
    lab.run()
    n, t, tube = lab.nodes[0], lab.t(0), lab.tube(0)
    assert synced(n, t, tube) == 0 and tube.seq == 1
    tube.followers[lab.slot(0, 1)].is_complete = False
    assert synced(n, t, tube) == 0
    tube.followers[lab.slot(0, 1)].is_complete = True
    lab.release(2, 0)
    lab.run()
    assert synced(n, t, tube) == 1
    lab.cut(0, 1)
    with pytest.raises(TubeError) as e:
        lab.put(0)
    assert resp_words(e.value).startswith(b"NOREPL Not enough reachable nodes")
    with pytest.raises(TubeError) as e:
        lab.make(0, name=b"u", sync=4)
    assert text_of(e.value) == b"SYNC must be from 1 to the number of nodes, which is 3"
    with pytest.raises(TubeError) as e:
        lab.make(0, name=b"u", sync=2, temporary=True)
    assert text_of(e.value) == b"a temporary tube has no copies: SYNC must be 1"


def test_a_rewrite_keeps_copies() -> None:
    """T22.1 Record tube-home has name, epoch, leader, number of the last change, and
    completeness.
    """
    lab = HomesLab(3, has_journal=True)
    lab.make(0)
    for i in range(20):
        lab.put(0, b"%d" % i)
    lab.run()
    lab.move(0, 1)
    lab.run()
    picture = lab.picture(1)
    for i in range(3):
        lab.journals[i].rewrite(lab.nodes[i])
    for i in range(3):
        lab.die(i)
    assert lab.picture(0) == lab.picture(1) == lab.picture(2) == picture
    assert [lab.tube(i).home for i in range(3)] == [lab.nodes[1].node_id] * 3
    assert lab.states() == ["INIT", "INIT", "INIT"]
    lab.heal()
    lab.live(2000)
    assert lab.runs_at() == [1]
    assert lab.picture(0) == lab.picture(1) == lab.picture(2)


def test_instants_are_on_the_clock_of_the_copy() -> None:
    """T18.1 of each task the number, status, body, times, token and the uuid of the session that
    holds it.

    The times are on the clock of the node that has the replica."""
    lab = HomesLab(2)
    lab.make(0)
    lab.put(0, delay_ms=9000)
    lab.run()
    (m,) = [m for _, _, m in lab.log if isinstance(m, TubeCopy) and m.records]
    n, t = lab.nodes[1], lab.t(1)
    before = lab.tube(1).copies[0]
    created_ms, qtime_ms = int(before.created_ms), int(before.qtime_ms)
    late = msgspec.structs.replace(
        m, now_ms=m.now_ms - 5000, from_seq=lab.tube(1).seq, to_seq=lab.tube(1).seq + 1
    )
    on_copy(n, t, lab.slot(1, 0), late)
    after = lab.tube(1).copies[0]
    assert (after.created_ms, after.qtime_ms) == (created_ms + 5000, qtime_ms + 5000)


def test_a_number_that_was_given_again() -> None:
    """T18.6 A follower then deletes the task that it has under that number, from its journal
    too.
    """
    lab = HomesLab(2, has_journal=True)
    lab.make(0)
    lab.put(0, b"lost")
    lab.run()
    lab.cut(0, 1)
    tube = lab.tube(0)
    admin.truncate(lab.nodes[0], lab.t(0), tube)
    tube.next_number = 0  # as if the disk had lost the put
    tube.trail_end = -1  # what changed is not known: it walks
    lab.put(0, b"again")
    lab.link(0, 1)
    lab.run()
    assert [task.body for task in lab.tube(1).copies.values()] == [b"again"]
    assert lab.take(0) is not None
    lab.ack(0, 0)
    lab.run()
    lab.die(1)
    assert lab.tube(1).copies == {}


def power_cut(lab: HomesLab, i: int) -> None:
    """Node i loses what its disk has not synced, and starts again without a link."""
    lab.journals[i].disk.power_cut()
    lab.die(i)


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_no_number_of_a_change_is_given_twice(moves: int) -> None:
    """T18.7 A number above those of a leader is on its disk before any of them is sent to another
    node, also under `everysec`.

    T18.7 A start skips the numbers up to that one."""
    lab = HomesLab(3, has_journal=True)
    lab.make(0)
    lab.live(1000)
    lab.journals[0].is_lazy = lab.journals[1].is_lazy = True
    for to in range(moves):
        lab.put(to % 2)
        lab.live(1000)
        lab.move(to % 2, 1 - to % 2)
        lab.live(1000)
    home = moves % 2
    for _ in range(2):  # also of a home that was loaded, and gave no number since
        for i in range(3):
            lab.put(home, b"lost %d" % i)
            lab.run()
        assert lab.picture(2) == lab.picture(home)
        power_cut(lab, home)
        lab.link(home, 1 - home)  # node 2 has not heard of it yet
        lab.live(2000)
        for i in range(3):
            lab.put(home, b"new %d" % i)
            lab.run()
        lab.heal()
        lab.live(2000)
        assert lab.picture(2) == lab.picture(1 - home) == lab.picture(home)


def test_numbers_of_changes_that_were_told_to_nobody() -> None:
    """T18.7 A number above those of a leader is on its disk before any of them is sent to another
    node

    So are those of a leader that was alone, when another node comes."""
    lab = HomesLab(2, has_journal=True)
    lab.isolate(1)
    lab.nodes[0].others = 0
    lab.make(0)
    lab.live(1000)
    lab.journals[0].is_lazy = True
    for _ in range(3):
        lab.put(0, b"lost")
    lab.live(1000)
    lab.heal()
    lab.live(1000)
    assert lab.picture(1) == lab.picture(0)
    told = int(lab.tube(1).seq)
    power_cut(lab, 0)
    assert lab.tube(0).seq > told


def test_a_pri_that_changed_goes_to_the_copies() -> None:
    """T1.10 UPDATEJOB PRI changes the pri of a task, whatever its status and holder.

    T18.2 TUBE-COPY sends each follower the new state of the tasks that changed
    """
    lab = HomesLab(2, has_journal=True)
    lab.make(0)
    numbers = [lab.put(0, b"%d" % i).number for i in range(4)]
    lab.run()
    n, t = lab.nodes[0], lab.t(0)
    got = lab.take(0)
    assert got is not None and got.number == 0
    operations.bury(n, t, lab.tube(0), 3)
    for number in numbers:  # in one message with what else changed, state first
        t.set_pri(n, lab.tube(0).tasks[number], 9 - number)
    operations.release(n, t, lab.tube(0), 1, 0, 5)
    lab.run()
    assert [one[3] for one in lab.picture(1).values()] == [9, 8, 7, 6]
    assert lab.picture(1) == lab.picture(0)
    lab.die(1)  # its journal has them, too
    lab.revive(1)
    assert lab.picture(1) == lab.picture(0)
    operations.kick(n, t, lab.tube(0), 1)
    lab.live(1_000)
    assert lab.move(0, 1) is False
    lab.live(3_000)
    assert lab.runs_at() == [1]
    order = [lab.take(1) for _ in numbers]
    assert [task and task.number for task in order] == [3, 2, 1, 0]
