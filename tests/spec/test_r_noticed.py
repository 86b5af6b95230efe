"""Steps of SPEC G, R, A and F that no other test would miss, as tools/mutants.py showed."""

from __future__ import annotations

from test_r_cluster import TIMEOUT, sent, told
from test_r_expected import expect

from cluster_lab import Lab, believed
from tuque.core.copies.ack import on_ackjob, on_deljob
from tuque.core.copies.federation import send_jobs
from tuque.core.model.job import ACTIVE, DELIVERED, QUEUED
from tuque.core.model.tombstones import Tombs
from tuque.core.msgs import (
    Ask,
    GotJobs,
    Holders,
    Left,
    Queued,
    Release,
    YourJobs,
)
from tuque.core.node.peers import introduce, say
from tuque.core.queues.procedures import dequeue
from tuque.core.queues.requeue import on_enqueue
from world import World


def test_the_first_enqueue_is_silent() -> None:
    """G3.5 Otherwise this first enqueue is silent and the next one will be announced."""
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=10, delay_s=1)
    lab.pass_ms(1_500)
    assert lab.states_of(id) == [QUEUED, ACTIVE]
    assert sent(lab, Queued) == []


def test_ids_of_both_kinds_by_turns(world: World) -> None:
    """G6.2 The TTL field is TTL/60 rounded down, at most 65535, with the lowest bit set for ALO
    and cleared for AMO."""
    fields = [world.add(TTL=600, RETRY=retry)[-4:] for retry in (5, 0, 5, 5, 0, 0, 5)]
    once, often = b"000a", b"000b"
    assert fields == [often, once, often, often, once, once, often]


def test_an_ack_before_there_is_any_copy() -> None:
    """A1.6 (cluster) A producer that still waits for the job gets its id."""
    lab = Lab(2)
    expect(lab, 0, 1)
    lab.die(1)
    job, refused = lab.try_add(0, b"q", replicate=2)
    assert job is not None, refused
    assert on_ackjob(lab.nodes[0], job.id)
    lab.run()
    assert told(lab, 0) == [job.id]
    assert lab.holders_of(job.id) == []


def test_the_timeout_between_two_steps() -> None:
    """R5.1 The producer gets `-NOREPL Timeout reached before replicating to the requested number of
    nodes`."""
    lab = Lab(2)
    lab.hold(1, 0)
    job, _ = lab.try_add(0, b"q", replicate=2, timeout_ms=70)
    assert job is not None
    lab.pass_ms(69)
    assert told(lab, 0) == []
    lab.pass_ms(1)
    assert told(lab, 0) == [TIMEOUT]


def test_a_surplus_copy_at_a_worker_stays() -> None:
    """R3.4 such a holder drops its copy of an ALO job that was not delivered if n others have one,
    and sends LEFT to them.
    """
    lab = Lab(4)
    for i in (1, 2, 3):
        lab.hold(i, 0)
    job, _ = lab.try_add(0, b"q", replicate=2, retry_s=10)
    assert job is not None
    lab.pass_ms(50)
    first, second = lab.holders_of(job.id)[1:]
    assert on_enqueue(lab.nodes[second], job.id)
    assert lab.get(second) == [job.id]
    assert lab.nodes[second].jobs[job.id].flags & DELIVERED
    lab.release(first, 0)
    lab.run()
    assert (0, second) in sent(lab, Release)
    assert job.id in lab.nodes[second].jobs


def given_away(lab: Lab) -> bytes:
    """An at-most-once job that node 0 sent to node 1, which has it in its queue."""
    id = lab.add(0, replicate=1, retry_s=0)
    n = lab.nodes[0]
    n.now_ms = lab.now_ms
    dequeue(n, n.jobs[id])
    send_jobs(n, lab.slot(0, 1), b"q", [n.jobs[id]])
    lab.run()
    return id


def test_custody_that_went_is_gone_from_the_journal() -> None:
    """F2.3 AMO jobs are in transit: journaled and not delivered here until GOTJOBS says that the
    sender has them. Then they are unregistered with cause moved, and LEFT is sent when that is on
    disk as J4.4 says."""
    lab = Lab(2, has_journal=True)
    id = given_away(lab)
    assert lab.states_of(id) == [-1, QUEUED]
    lab.die(0)
    assert id not in lab.nodes[0].jobs


def test_it_goes_on_when_left_comes() -> None:
    """F2.3 An AMO job moves on to a third node only after LEFT."""
    lab = Lab(3)
    lab.hold(1, 0)
    id = given_away(lab)
    lab.wait(2, client=9)
    lab.pass_ms(5_000)
    assert 9 not in lab.served[2]
    lab.release(1, 0)
    lab.run()
    assert sent(lab, GotJobs)[0] == (1, 0) and (0, 1) in sent(lab, Left)
    assert [job.id for job in lab.served[2][9]] == [id]


def test_a_tombstone_that_waits_for_deljob_replaces_a_shorter_one() -> None:
    """A4.1 The tombstone stays until DELJOB"""
    tombs = Tombs()
    tombs.add(b"id", 1_000_000, 0b10, 3)
    tombs.keep(b"id", 1_000_000)
    tombs.on_echo(1, 4)
    tombs.tick(0, 100)
    assert tombs.has(b"id")


def test_every_copy_knows_all_holders() -> None:
    """R1.10 REPLJOB goes to n - 1 randomly chosen reachable nodes, which become holders."""
    lab = Lab(4)
    lab.isolate(3)
    lab.log.clear()
    id = lab.add(0, replicate=3)
    assert [believed(lab, i, id) for i in range(3)] == [[0, 1, 2]] * 3


def test_only_what_is_on_its_way_is_sent_again_and_to_the_same_node() -> None:
    """F2.3 Unanswered YOURJOBS and GOTJOBS of AMO jobs are repeated to the same node when a link
    comes up"""
    lab = Lab(3)
    lab.hold(1, 0)
    id = given_away(lab)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        lab.cut(a, b)
    lab.log.clear()
    lab.link(0, 2)
    lab.link(1, 2)
    lab.run()
    assert sent(lab, YourJobs) == sent(lab, GotJobs) == []
    lab.link(0, 1)
    lab.run()
    assert set(sent(lab, YourJobs)) <= {(0, 1)} and (1, 0) in sent(lab, GotJobs)
    assert lab.states_of(id) == [-1, QUEUED, -1]


def test_a_copy_that_crosses_a_farewell() -> None:
    """R2.7 If a copy of an ALO job arrives within 60 s after this node said that it has none (LEFT,
    or the answer to ASK), the copy was in flight then. This node sends HOLDERS, with itself in the
    set, to the other holders.
    """
    for asked in (False, True):
        lab = Lab(3)
        id = lab.add(0, replicate=3, retry_s=2)
        n = lab.nodes[0]
        job, slot = n.jobs[id], lab.slot(0, 1)
        job.repl = lab.nodes[1].jobs[id].repl = 2
        if asked:
            on_deljob(lab.nodes[1], id)
            say(n, slot, Ask(7, [id], False, b""))
        else:
            introduce(n, slot, job.holders | 1)
            say(n, slot, Release([id], job.holders))
        send_jobs(n, slot, b"q", [n.queues[b"q"].pop() or job])
        job.state = ACTIVE
        lab.hold(1, 0)
        lab.run()
        assert lab.states_of(id)[1] == QUEUED
        lab.release(1, 0)
        lab.run()
        assert job.holders >> slot & 1
        assert lab.nodes[2].jobs[id].holders >> lab.slot(2, 1) & 1
        assert lab.get(1) == [id]
        on_ackjob(n, id)
        lab.run()
        assert lab.holders_of(id) == []


def test_holders_of_a_job_that_is_done() -> None:
    """R2.7 A node that has a tombstone replies to HOLDERS with SETACK."""
    lab = Lab(3)
    id = lab.add(0, replicate=3, retry_s=2)
    lab.isolate(2)
    lab.nodes[0].jobs[id].holders &= ~(1 << lab.slot(0, 2))
    lab.nodes[1].jobs[id].holders &= ~(1 << lab.slot(1, 2))
    on_ackjob(lab.nodes[0], id)
    lab.run()
    lab.heal()
    lab.run()
    assert lab.holders_of(id) == [2]
    other = lab.nodes[2]
    introduce(other, lab.slot(2, 0), other.jobs[id].holders)
    say(other, lab.slot(2, 0), Holders(id, other.jobs[id].holders))
    lab.run()
    assert lab.holders_of(id) == []
