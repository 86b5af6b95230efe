"""SPEC J with several nodes: holders, acks and custody come back with the journal."""

from __future__ import annotations

import pytest

from cluster_lab import Lab, name_of
from tuque.core.copies.ack import on_ackjob, on_deljob
from tuque.core.dispatch.restore import after_load
from tuque.core.model.job import ACKED, ACTIVE, IN_TRANSIT, ONCE_QUEUED, QUEUED
from tuque.core.msgs import (
    DelJob,
    Holders,
    Left,
    SetAck,
    YourJobs,
)
from tuque.core.node.node import Node
from tuque.core.node.peers import renew, slot_for
from tuque.core.queues.deliver import on_getjob
from tuque.core.records.jobs import ADD, PEER, Records
from tuque.core.records.read import Record, decode
from tuque.core.repair.node_loss import on_incarnation, repair_left


def believed(lab: Lab, i: int, id: bytes) -> list[int]:
    """The nodes that node i believes to have a copy."""
    holders = lab.nodes[i].jobs[id].holders
    return [k for k in range(len(lab.nodes)) if holders >> lab.slot(i, k) & 1]


def restart(lab: Lab, i: int, rewrite: bool = False) -> None:
    """Stop a node and start it on its journal, alone."""
    if rewrite:
        lab.journals[i].rewrite(lab.nodes[i])
    lab.die(i)


@pytest.mark.parametrize("rewrite", [False, True])
def test_sets_mean_the_same_nodes(rewrite: bool) -> None:
    """J2.3 (cluster) Sets in records are sets of slots. Each process names a slot with its node id
    before it first uses it, so that a load finds the same nodes, whatever their slots are now. The
    add record names the holders unless this node is the only one."""
    lab = Lab(5, has_journal=True)
    ids = [lab.add(0, replicate=3) for _ in range(20)]
    held = {id: lab.holders_of(id) for id in ids}
    slots = [lab.slot(0, k) for k in range(5)]
    for round in range(3):
        restart(lab, 0, rewrite)
        for k in ((3, 1, 4, 2), (2, 4, 3, 1), (1, 2, 3, 4))[round]:  # met in another order
            lab.link(0, k)
        assert all(believed(lab, 0, id) == held[id] for id in ids), round
        lab.run()
        ids.append(lab.add(0, replicate=2))
        held[ids[-1]] = lab.holders_of(ids[-1])
    assert slots == [0, 1, 2, 3, 4]
    records = Records(lab.nodes[0].node_ids, lab.nodes[0].lives)
    alone = lab.add(0, replicate=1)
    records.add(lab.nodes[0].jobs[alone])
    records.add(lab.nodes[0].jobs[ids[0]])
    payload, at, r, kinds = records.take(), 0, Record(), []
    while at < len(payload):
        at = decode(payload, at, r)
        kinds.append(r.kind)
    assert kinds == [ADD, PEER, PEER, ADD]


def test_a_change_of_holders_is_kept() -> None:
    """J5.11 (cluster) Holders are restored."""
    lab = Lab(4, has_journal=True)
    id = lab.add(0, replicate=3)
    new = next(k for k in (1, 2, 3) if id not in lab.nodes[k].jobs)
    n = lab.nodes[0]
    n.jobs[id].holders |= 1 << lab.slot(0, new)
    assert n.records is not None
    n.records.holders(n.jobs[id])
    lab.run()
    restart(lab, 0)
    lab.heal()
    assert believed(lab, 0, id) == [0, 1, 2, 3]
    lab.run()
    assert len(believed(lab, 0, id)) == 3  # it was asked, and has none


@pytest.mark.parametrize("victim", [0, 1])
def test_lost_meanwhile(victim: int) -> None:
    """J5.11 They may have lost their copies meanwhile, so they are asked when there is a link
    (K5.2)."""
    lab = Lab(2, has_journal=True)
    id = lab.add(0, replicate=2)
    other = 1 - victim
    restart(lab, victim)
    lab.journals[other] = type(lab.journals[other])(other)  # its disk is lost
    lab.die(other)
    lab.link(0, 1)
    lab.pass_ms(3_000)
    assert lab.holders_of(id) == [0, 1]
    assert sum(repair_left(n) for n in lab.nodes) == 0


def test_custody_on_its_way_survives() -> None:
    """J5.11 An AMO job in transit is not delivered, but offered again to the same node (F2.3)."""
    for rewrite in (False, True):
        lab = Lab(3, has_journal=True)
        lab.wait(1)
        lab.hold(0, 1)
        id = lab.add(0, retry_s=0, replicate=1)
        assert lab.nodes[0].jobs[id].flags & IN_TRANSIT
        restart(lab, 0, rewrite)
        job = lab.nodes[0].jobs[id]
        assert job.flags & IN_TRANSIT and job.state == ACTIVE
        lab.wait(0)
        lab.link(0, 2)
        lab.wait(2)
        lab.pass_ms(5_000)
        assert lab.served[0] == {} and lab.served[2] == {}
        lab.log.clear()
        lab.link(0, 1)
        lab.run()
        assert [(a, b) for a, b, m in lab.log if isinstance(m, YourJobs)] == [(0, 1)]
        assert [job.id for job in lab.served[1][7]] == [id]
        assert lab.holders_of(id) == [1]


def test_custody_is_not_offered_to_another_life() -> None:
    """F2.3 If it restarted without memory, AMO jobs in transit to it stay as they are until they
    expire.

    J5.11 An AMO job in transit is not delivered, but offered again to the same node (F2.3)."""
    for is_kept in (True, False):
        lab = Lab(2, has_journal=True)
        lab.wait(1)
        lab.hold(1, 0)  # it has it, and nobody knows
        id = lab.add(0, retry_s=0, replicate=1)
        assert [job.id for job in lab.served[1][7]] == [id]
        restart(lab, 0)
        if not is_kept:
            lab.journals[1] = type(lab.journals[1])(1)
        lab.die(1)
        lab.link(0, 1)
        lab.wait(1)
        lab.pass_ms(5_000)
        assert len(lab.served[1][7]) == 1, "handed out once"
        assert (id in lab.nodes[0].jobs) == (not is_kept)
        assert lab.get(0) == lab.get(1) == []


@pytest.mark.parametrize("is_same", [True, False])
def test_custody_is_not_offered_to_another_life_that_was_met_while_loading(is_same: bool) -> None:
    """F3.5 Jobs in transit to a node that meanwhile appears as restarted without memory stay as
    they are (F2.3)."""
    lab = Lab(2, has_journal=True)
    lab.wait(1)
    lab.hold(1, 0)  # it has it, and nobody knows
    id = lab.add(0, retry_s=0, replicate=1)
    assert [job.id for job in lab.served[1][7]] == [id]
    lab.isolate(0)
    if not is_same:
        lab.journals[1] = type(lab.journals[1])(1)
        lab.die(1)
    n = Node(name_of(0), b"loads", lab.now_ms)
    slot = slot_for(n, lab.nodes[1].node_id)
    n.is_loading = True
    on_incarnation(n, slot, True, lab.lives[1])
    lab.journals[0].load(n)
    n.is_loading = False
    after_load(n)
    lab.nodes[0] = n
    assert n.jobs[id].flags & IN_TRANSIT
    assert n.custody == ({id: slot} if is_same else {})
    lab.link(0, 1)
    lab.wait(1)
    lab.pass_ms(5_000)
    assert len(lab.served[1][7]) == 1, "handed out once"


def test_a_loading_node_does_not_refuse_what_it_may_have() -> None:
    """F3.5 While this node loads, it neither refuses an AMO job nor answers GOTJOBS: the same job
    may be in its journal."""
    lab = Lab(2, has_journal=True)
    lab.wait(1)
    lab.hold(1, 0)  # node 1 has it, and node 0 does not know
    id = lab.add(0, retry_s=0, replicate=1)
    lab.die(1)
    sender, loading = lab.nodes
    unread = loading.jobs.pop(id)
    loading.is_loading = True
    lab.release(1, 0)
    lab.link(0, 1)
    lab.carry()
    lab.carry()
    assert sender.jobs[id].flags & IN_TRANSIT
    assert sender.custody == {id: lab.slot(0, 1)}
    assert on_getjob(sender, 7, [b"q"], 1) == []
    loading.jobs[id] = unread
    loading.is_loading = False
    after_load(loading)
    lab.run()
    assert id not in sender.jobs
    assert lab.get(0) == lab.get(1) == []
    assert loading.late_moves == []


def test_a_loading_node_says_of_nothing_that_it_has_left() -> None:
    """F3.5 Both are processed when the load is done; what J5.11 offers again is then sent to the
    nodes that are already linked."""
    lab = Lab(2, has_journal=True)
    lab.wait(1)
    lab.hold(1, 0)
    id = lab.add(0, retry_s=0, replicate=1)
    lab.die(0)  # the sender, which has it in its journal, in transit
    sender = lab.nodes[0]
    unread = sender.jobs.pop(id)
    custody, sender.custody = sender.custody, {}
    sender.is_loading = True
    lab.release(1, 0)
    lab.link(0, 1)
    lab.carry()
    lab.carry()
    assert [type(m) for a, _, m in lab.log if a == 0 and isinstance(m, Left)] == []
    sender.jobs[id] = unread
    sender.custody = custody
    sender.is_loading = False
    after_load(sender)
    lab.run()
    assert id not in sender.jobs
    assert any(isinstance(m, YourJobs) for a, _, m in lab.log if a == 0)
    assert lab.nodes[1].custody == {}


def test_a_copy_without_custody_stays_one() -> None:
    """J5.11 An AMO job in transit is not delivered, but offered again to the same node (F2.3)."""
    lab = Lab(2, has_journal=True)
    lab.nodes[0].is_leaving = True  # external: node 1 keeps it, node 0 may still give it away
    lab.hold(1, 0)
    job, _ = lab.try_add(0, b"q", retry_s=0, replicate=1)
    assert job is not None
    lab.run()
    assert lab.nodes[1].jobs[job.id].flags & IN_TRANSIT
    restart(lab, 1)
    assert lab.nodes[1].custody == {}
    lab.link(0, 1)
    lab.run()
    assert sum(job.id in lab.get(k) for k in (0, 1)) <= 1


@pytest.mark.parametrize("rewrite", [False, True])
def test_acks_go_on_being_collected(rewrite: bool) -> None:
    """J5.12 (cluster) The collection of an acked job that other holders must learn of continues."""
    lab = Lab(3, has_journal=True)
    id = lab.add(0, replicate=3)
    lab.cut(0, 2)
    lab.cut(1, 2)
    assert on_ackjob(lab.nodes[0], id)
    lab.run()
    restart(lab, 0, rewrite)
    restart(lab, 1, rewrite)
    assert lab.states_of(id)[:2] == [ACKED, ACKED]
    assert lab.get(0) == lab.get(1) == []
    lab.heal()
    lab.pass_ms(5_000)
    assert lab.states_of(id) == [-1, -1, -1]
    lab.pass_ms(400_000)
    assert [lab.get(k) for k in range(3)] == [[], [], []]


def test_what_is_done_leaves_a_tombstone() -> None:
    """J5.12 A job whose collection is done leaves a tombstone for them, as does an AMO job that
    another node may send again."""
    lab = Lab(2, has_journal=True)
    id = lab.add(0, replicate=2)
    assert on_ackjob(lab.nodes[0], id)
    lab.run()
    assert lab.holders_of(id) == []
    restart(lab, 0)
    assert lab.nodes[0].tombs.has(id)
    lab.link(0, 1)
    lab.beat()
    lab.beat()
    lab.pass_ms(1_000)
    assert not lab.nodes[0].tombs.has(id)
    for rewrite in (False, True):
        lab = Lab(2, has_journal=True)
        lab.wait(1)
        lab.hold(1, 0)
        once = lab.add(0, retry_s=0, replicate=1)
        assert on_deljob(lab.nodes[1], once)
        lab.run()
        assert lab.nodes[1].tombs.has(once)
        restart(lab, 1, rewrite)
        assert lab.nodes[1].tombs.has(once)
        lab.link(0, 1)
        lab.wait(1)
        lab.pass_ms(1_000)
        assert len(lab.served[1][7]) == 1
        assert not lab.nodes[1].tombs.has(once)  # the sender has let go of it


def test_slots_are_named_again_by_a_rewrite() -> None:
    """J2.3 Each process names a slot with its node id before it first uses it, so that a load finds
    the same nodes, whatever their slots are now."""
    lab = Lab(3, has_journal=True)
    first = lab.add(0, replicate=3)
    on_ackjob(lab.nodes[0], first)
    lab.pass_ms(1_000)
    assert lab.nodes[0].jobs == {}
    lab.journals[0].rewrite(lab.nodes[0])  # no set in it, and the old segments are gone
    id = lab.add(0, replicate=3)
    restart(lab, 0)
    assert believed(lab, 0, id) == [0, 1, 2]


def test_custody_belongs_to_one_life() -> None:
    """F2.3 If it restarted without memory, AMO jobs in transit to it stay as they are until they
    expire.

    J2.3 Each process names a slot with its node id before it first uses it, so that a load finds
    the same nodes, whatever their slots are now."""
    lab = Lab(2, has_journal=True)
    lab.wait(1)
    lab.hold(0, 1)
    old = lab.add(0, retry_s=0, replicate=1)
    n, slot = lab.nodes[0], lab.slot(0, 1)
    new = lab.add(0, retry_s=0, replicate=1)
    assert n.jobs[new].holders == 1
    renew(n, slot, 9)  # the node is another one, but what that means was not written down yet
    assert on_getjob(n, 1, [b"q"], 1) == [n.jobs[new]]
    n.jobs[new].flags = IN_TRANSIT | ONCE_QUEUED
    n.jobs[new].holders |= 1 << slot
    assert n.records is not None
    n.records.state(n.jobs[new])
    n.records.holders(n.jobs[new])
    lab.run()
    restart(lab, 0)
    n = lab.nodes[0]
    assert n.jobs[old].flags & IN_TRANSIT and n.jobs[new].flags & IN_TRANSIT
    assert n.custody == {new: lab.slot(0, 1)}


def test_too_few_copies_are_noticed_after_a_restart() -> None:
    """J5.11 (cluster) Holders are restored."""
    lab = Lab(4, has_journal=True)
    lab.isolate(3)
    id = lab.add(0, replicate=3)
    lab.die(2)
    for k in (0, 1):
        lab.forget(k, 2)
    lab.run()
    for k in (0, 1):
        lab.die(k)
    for a, b in ((0, 1), (0, 3), (1, 3)):
        lab.link(a, b)
    lab.pass_ms(3_000)
    assert lab.holders_of(id) == [0, 1, 3] or len(lab.holders_of(id)) == 4


def test_nothing_is_told_twice_by_a_reload() -> None:
    """J2.2 Applying it twice has the same effect as applying it once."""
    lab = Lab(3, has_journal=True)
    id, acked = lab.add(0, replicate=3), lab.add(0, replicate=3)
    lab.isolate(2)
    on_ackjob(lab.nodes[0], acked)
    n = lab.nodes[0]
    assert n.records is not None
    for job in list(n.jobs.values()):
        n.records.add(job)
        n.records.holders(job)
    n.records.ack_job(n.jobs[acked])
    n.jobs[acked].state = ACTIVE
    n.records.add(n.jobs[acked])  # a late copy
    n.jobs[acked].state = ACKED
    late = n.jobs[id]
    held = late.holders
    n.records.add(late)
    lab.run()
    restart(lab, 0)
    assert believed(lab, 0, id) == [0, 1, 2] and held.bit_count() == 3
    assert lab.nodes[0].jobs[acked].state == ACKED
    lab.log.clear()
    lab.heal()
    lab.pass_ms(5_000)
    assert lab.nodes[0].jobs[id].state == QUEUED
    assert acked not in lab.nodes[0].jobs
    assert [m for _, _, m in lab.log if isinstance(m, SetAck | DelJob | Holders)]
