"""SPEC A8, M3: tombstones, and what goes when memory is short."""

from __future__ import annotations

import pytest
from test_a_cluster import ack, say, sent, spread
from test_a_stray import stray_ack

from cluster_lab import Lab
from tuque.core.copies.ack import on_fastack
from tuque.core.copies.replicate import copy_of
from tuque.core.dispatch.restore import flush_all
from tuque.core.model.job import ACKED
from tuque.core.model.tombstones import TOMB_BYTES, Tombs
from tuque.core.msgs import DelJob, SetAck, YourJobs
from tuque.core.queues.procedures import memory_level
from tuque.core.repair.drain import make_room


def counts(lab: Lab) -> list[int]:
    """How many tombstones each node has."""
    return [int(n.tombs.count()) for n in lab.nodes]


def test_they_go_when_all_have_answered() -> None:
    """A8.1 A tombstone is kept for an acked job that had other holders, until each of them has
    replied to a heartbeat that began after the collection. If one of them is unreachable, it is
    kept until the job's expiry, rounded up to 33 s.
    """
    # A2.2 A tombstone stays until A8 says it may go.
    lab = Lab(3)
    id = spread(lab, 3)
    assert ack(lab, 0, id)
    assert counts(lab) == [1, 1, 1]
    lab.hold(2, 0)
    lab.beat()
    assert counts(lab) == [1, 0, 1]  # nodes 0 and 2 have not heard of each other
    lab.release(2, 0)
    lab.beat()
    assert counts(lab) == [0, 0, 0]
    assert all(not n.tombs.waiting for n in lab.nodes)


def test_an_answer_from_before_does_not_count() -> None:
    """A8.1 A tombstone is kept for an acked job that had other holders, until each of them has
    replied to a heartbeat that began after the collection.
    """
    lab = Lab(2)
    lab.beat()
    id = spread(lab, 2)
    n = lab.nodes[0]
    n.peers[lab.slot(0, 1)].echoed_round = n.round
    assert ack(lab, 0, id)
    lab.pass_ms(10_000)
    assert n.tombs.has(id)
    lab.beat()
    assert not n.tombs.has(id)


def test_a_node_that_is_away_keeps_them_until_the_expiry() -> None:
    """A8.1 If one of them is unreachable, it is kept until the job's expiry, rounded up to 33 s."""
    lab = Lab(3)
    id = spread(lab, 3, ttl_s=100)
    lab.isolate(2)
    assert on_fastack(lab.nodes[0], id)
    for _ in range(3):
        lab.beat()
    assert counts(lab) == [1, 1, 0]
    lab.pass_ms(99_000)
    assert counts(lab) == [1, 1, 0]
    lab.pass_ms(1_000 + 33_000)
    assert counts(lab)[:2] == [0, 0]


def test_a_forgotten_node_keeps_none() -> None:
    """K6.2 The node leaves the holders and confirmed sets of every job."""
    lab = Lab(3)
    ids = [spread(lab, 3) for _ in range(2)]
    lab.isolate(2)
    assert on_fastack(lab.nodes[0], ids[0])
    assert ack(lab, 0, ids[1])
    lab.beat()
    assert counts(lab)[:2] == [1, 1]
    for i in (0, 1):
        lab.forget(i, 2)
    lab.run()
    lab.pass_ms(200)
    lab.beat()
    assert counts(lab)[:2] == [0, 0]
    assert not lab.nodes[0].jobs
    assert not lab.nodes[1].jobs


@pytest.mark.parametrize("way", ["copy", "import"])
def test_nothing_comes_to_life(way: str) -> None:
    """A8.2 No message, import, timer or reload creates a job from an id that has a tombstone."""
    lab = Lab(3)
    id = spread(lab, 2)
    copy = copy_of(lab.nodes[0], lab.slot(0, 1), lab.nodes[0].jobs[id], 0)
    assert ack(lab, 0, id)
    lab.log.clear()
    say(lab, 0, 1, copy if way == "copy" else YourJobs(b"q", [copy]))
    assert lab.holders_of(id) == []
    assert (1, 0) in sent(lab, SetAck)


def test_tombstones_count() -> None:
    """A8.3 Tombstones count as memory and are evicted only as M3 says."""
    lab = Lab(2)
    n = lab.nodes[0]
    before = n.used_bytes()
    ids = [lab.add(0, replicate=2) for _ in range(100)]
    for id in ids:
        assert ack(lab, 0, id)
    assert n.used_bytes() - before == 100 * TOMB_BYTES + n.queue_bytes
    lab.beat()
    assert n.used_bytes() == before + n.queue_bytes
    assert n.tombs.ids == {}


def test_a_node_that_was_waited_for_in_vain_can_answer_later() -> None:
    """A8.3 Tombstones count as memory and are evicted only as M3 says."""
    tombs = Tombs()
    tombs.bury(b"one", 10_000, 2, 3)
    assert tombs.evict(0, 10) == 1
    assert not tombs.is_heard(1, 9)
    tombs.on_echo(1, 9)
    assert tombs.waiting == {}


def test_sweeping_is_done_in_pieces() -> None:
    """A8.1 A tombstone is kept for an acked job that had other holders, until each of them has
    replied to a heartbeat that began after the collection.
    """
    # Sets, rounds and ends differ, and the table shrinks in bounded steps.
    tombs = Tombs()
    for i in range(1000):
        tombs.bury(b"%d" % i, 10_000 + i * 100, 2 + 4 * (i % 3), i // 100)
    assert tombs.count() == 1000
    for slot in (1, 2, 3):
        tombs.on_echo(slot, 5)
    assert tombs.count() == 1000
    tombs.tick(0, 100)
    assert tombs.count() == 900
    assert tombs.next_ms() == 0
    tombs.tick(0, 1000)
    assert tombs.count() == 500
    assert not any(tombs.has(b"%d" % i) for i in range(500))
    tombs.bury(b"999", 1 << 40, 2, 20)  # again, for longer
    for slot in (1, 2, 3):
        tombs.on_echo(slot, 15)
    tombs.tick(0, 1000)
    assert tombs.count() == 1
    assert tombs.has(b"999")
    tombs.bury(b"999", 1 << 40, 0, 21)  # nobody else had it
    assert tombs.count() == 0


def test_open_ones_end_with_deljob() -> None:
    """A4.1 Unknown: a tombstone is made first, then GOTACK(unknown) is sent."""
    lab = Lab(3)
    id = spread(lab, 2)
    lab.nodes[0].jobs[id].holders |= 1 << lab.slot(0, 2)  # a copy is on its way there
    lab.hold(1, 0)
    assert ack(lab, 0, id)
    assert lab.nodes[2].tombs.has(id)
    for _ in range(3):
        lab.beat()
    assert lab.nodes[2].tombs.has(id)
    lab.release(1, 0)
    lab.run()
    assert (0, 2) in sent(lab, DelJob)
    lab.beat()
    assert counts(lab) == [0, 0, 0]


def test_order_of_eviction() -> None:
    """M3.1 (cluster) tombstones that all reachable holders know; (cluster) acked records without a
    body (A3.4), oldest first; (cluster) the oldest acked jobs: these end as with FASTACK (A7.1),
    and leave a tombstone; both are counted
    """
    lab = Lab(3)
    ids = [lab.add(0, replicate=3) for _ in range(4)]
    once = lab.add(0, replicate=1, retry_s=0)
    for _ in range(4):
        lab.get(0)
    assert lab.get(0) == [once]
    lab.isolate(2)
    n = lab.nodes[0]
    assert on_fastack(n, ids[0])
    lab.beat()
    young = n.ids.make(60, 1)
    stray_ack(lab, 0, young)
    assert ack(lab, 0, ids[1])
    assert ack(lab, 0, ids[2])
    n.limits.memory_bytes = 1
    order: list[list[str]] = []
    left = {"once": once, "tomb": ids[0], "stray": young, "old": ids[1], "new": ids[2]}
    for _ in range(6):
        make_room(n, 1)
        order.append([])
        for name, id in list(left.items()):
            if id not in n.jobs and not (name == "tomb" and n.tombs.has(id)):
                order[-1].append(name)
                del left[name]
    assert order == [["once"], ["tomb"], ["stray"], ["old"], ["new"], []]
    assert n.tombs.has(ids[1])
    assert n.acks_evicted == 3
    assert n.ledger.evicted == 4
    assert list(n.jobs) == [ids[3]]  # what is owed stays
    assert memory_level(n) == 3
    lab.run()
    lab.beat()
    make_room(n, 10)
    assert n.tombs.count() == 0


def test_tombstones_that_are_needed_are_kept() -> None:
    """M3.1 (cluster) tombstones that all reachable holders know"""
    lab = Lab(3)
    id = lab.add(0, replicate=3)
    n = lab.nodes[0]
    assert ack(lab, 0, id)
    n.limits.memory_bytes = 1
    make_room(n, 100)
    assert n.tombs.has(id)  # node 1 and 2 may still have said something


def test_flush_drops_all() -> None:
    """S7.1 `DEBUG FLUSHALL` drops all jobs and queues with cause deleted."""
    lab = Lab(3)
    id = spread(lab, 3)
    kept = spread(lab, 3)
    lab.isolate(2)
    n = lab.nodes[0]
    assert on_fastack(n, id)
    assert ack(lab, 0, kept)
    stray_ack(lab, 0, n.ids.make(60, 1))
    flush_all(n)
    lab.run()
    assert n.used_bytes() == 0
    assert not n.acked
    assert not n.strays
    assert n.tombs.count() == 0


def test_an_end_that_was_missed_is_told_before_it_is_forgotten() -> None:
    """A6.2 When a link comes up, its node at once gets what it may have missed: SETACK of acked
    jobs that it has not confirmed, and DELJOB of tombstones that wait for it.
    """
    # Answers to heartbeats that were sent before DELJOB could leave mean nothing.
    lab = Lab(2)
    id = lab.add(0, replicate=2)
    lab.isolate(1)
    n = lab.nodes[0]
    assert on_fastack(n, id)
    lab.link(0, 1)
    peer = n.peers[lab.slot(0, 1)]
    peer.has_room = False
    for _ in range(3):
        lab.beat()
    lab.pass_ms(200)
    assert n.tombs.has(id)
    lab.hold(0, 1)
    peer.has_room = True
    lab.pass_ms(500)
    assert lab.wires[0, 1]
    assert n.tombs.has(id)
    lab.release(0, 1)
    lab.run()
    lab.beat()
    assert lab.holders_of(id) == []
    assert counts(lab) == [0, 0]


def test_custody_outlives_an_end() -> None:
    """A8.2 No message, import, timer or reload creates a job from an id that has a tombstone."""
    # An at-most-once job that was here: who sent it may send it again until it says LEFT.
    tombs = Tombs()
    tombs.keep_custody(b"once", 60_000)
    tombs.bury(b"once", 60_000, 2, 5)
    tombs.keep(b"once", 60_000)
    tombs.on_echo(1, 100)
    tombs.tick(0, 100)
    assert tombs.has(b"once")
    tombs.let_go(b"once")
    assert not tombs.has(b"once")
    tombs.keep(b"often", 60_000)
    tombs.let_go(b"often")
    assert tombs.has(b"often")
    tombs.tick(60_000 + 33_000, 100)
    assert tombs.count() == 0


def test_who_asks_late_leaves_nothing_open() -> None:
    """A5.1 Exception: a sender that does not know a job that has ended here gets DELJOB."""
    for beats in (0, 1):
        lab = Lab(4)
        id = spread(lab, 3)
        lab.nodes[2].jobs[id].holders |= 1 << lab.slot(2, 3)  # a copy that never arrived
        lab.nodes[1].jobs[id].holders |= 1 << lab.slot(1, 3)
        lab.nodes[0].jobs[id].holders |= 1 << lab.slot(0, 3)
        lab.hold(2, 3)
        assert ack(lab, 2, id)  # its SETACK to node 3 is slow
        ack(lab, 0, id)
        lab.pass_ms(2_000)
        lab.hold(2, 3)
        assert lab.holders_of(id) == []
        assert lab.wires[2, 3]
        for _ in range(beats):
            lab.nodes[3].tombs.on_echo(lab.slot(3, 2), 1 << 60)
            lab.beat()
        assert lab.nodes[3].tombs.has(id) == (beats == 0)
        lab.release(2, 3)
        lab.run()
        lab.beat()
        lab.beat()
        assert counts(lab) == [0, 0, 0, 0]


def test_ends_that_are_told_again_go_out() -> None:
    """A8.1 If one of them is unreachable, it is kept until the job's expiry, rounded up to 33 s."""
    # Links come and go, and each node tells the others what they may have missed: nothing
    # grows by that, neither their number nor their time.
    lab = Lab(4)
    id = spread(lab, 4, ttl_s=20)
    lab.isolate(3)
    assert on_fastack(lab.nodes[0], id)
    for _ in range(10):
        for a, b in ((0, 1), (1, 2), (0, 2)):
            lab.cut(a, b)
            lab.run()
            lab.link(a, b)
            lab.pass_ms(100)
    assert len(sent(lab, DelJob)) < 80
    lab.pass_ms(20_000 + 33_000)
    assert counts(lab)[:3] == [0, 0, 0]


def test_who_answered_a_second_collector_hears_the_end() -> None:
    """A10.1 DELJOB also goes to holders that the sender did not name, and to nodes that have
    confirmed the ack to this one.
    """
    lab = Lab(4)
    id = spread(lab, 4)
    lab.hold(3, 0)
    assert ack(lab, 0, id)
    lab.hold(0, 1)  # the end that 0 says is slow to reach 1
    lab.release(3, 0)
    lab.run()
    assert lab.states_of(id) == [-1, ACKED, -1, -1]
    for _ in range(2):
        for a, b in ((2, 0), (2, 3), (3, 0)):
            lab.nodes[a].tombs.on_echo(lab.slot(a, b), 1 << 60)
            lab.nodes[b].tombs.on_echo(lab.slot(b, a), 1 << 60)
    lab.nodes[2].tombs.on_echo(lab.slot(2, 1), 1 << 60)
    lab.pass_ms(10)
    assert not lab.nodes[2].tombs.has(id)
    lab.hold(3, 1)
    lab.pass_ms(2_000)  # node 1 tries by itself, and does not hear of node 3
    assert lab.nodes[2].tombs.has(id)
    assert lab.states_of(id) == [-1, ACKED, -1, -1]
    lab.release(0, 1)
    lab.run()
    lab.release(3, 1)
    lab.run()
    lab.beat()
    assert counts(lab) == [0, 0, 0, 0]
