"""Steps of SPEC G, R, A and F that no other test would miss, as tools/mutants.py showed."""

from __future__ import annotations

from collections.abc import Callable

from test_a_cluster import sent
from test_r_cluster import TIMEOUT, told

from tuque.core.copies.ack import on_ackjob, on_deljob
from tuque.core.copies.federation import send_jobs
from tuque.core.model.job import ACTIVE, DELIVERED, QUEUED
from tuque.core.model.tombstones import Tombs
from tuque.core.msgs.bus import (
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

Make = Callable[..., World]


def test_the_first_enqueue_is_silent(make_world: Make) -> None:
    """G3.5 The first enqueue of a job is silent at its origin."""
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2, retry=10, delay=1)
    world.pass_ms(1_500)
    assert world.states(id) == [QUEUED, ACTIVE]
    assert sent(world, Queued) == []


def test_ids_of_both_kinds_by_turns(world: World) -> None:
    """G6.2 The TTL field is TTL/60 rounded down, at most 65535, with the lowest bit set for ALO
    and cleared for AMO."""
    fields = [world.add(TTL=600, RETRY=retry)[-4:] for retry in (5, 0, 5, 5, 0, 0, 5)]
    once, often = b"000a", b"000b"
    assert fields == [often, once, often, often, once, once, often]


def test_an_ack_before_there_is_any_copy(make_world: Make) -> None:
    """A1.6 (cluster) A producer that still waits for the job gets its id."""
    world = make_world(2, journal="off")
    world.restart(1)
    id = world.at(0).begin_add(replicate=2, timeout_ms=5_000)
    assert on_ackjob(world.node(0).core, id)
    world.settle()
    assert told(world, 0) == [id]
    assert world.holders(id) == []


def test_the_timeout_between_two_steps(make_world: Make) -> None:
    """R5.1 (cluster) At the timeout of an ADDJOB that waits for copies the producer gets
    `-NOREPL Timeout reached before replicating to the requested number of nodes`.
    """
    world = make_world(2, journal="off")
    world.hold(1, 0)
    world.at(0).begin_add(replicate=2, timeout_ms=70)
    world.pass_ms(69)
    assert told(world, 0) == []
    world.pass_ms(1)
    assert told(world, 0) == [TIMEOUT]


def test_a_surplus_copy_at_a_worker_stays(make_world: Make) -> None:
    """R3.4 such a holder drops its copy of an undelivered ALO job if n others have one, and
    sends LEFT to them.
    """
    world = make_world(4, journal="off")
    for i in (1, 2, 3):
        world.hold(i, 0)
    id = world.at(0).begin_add(replicate=2, retry=10, timeout_ms=5_000)
    world.pass_ms(50)
    first, second = world.holders(id)[1:]
    assert on_enqueue(world.node(second).core, id)
    assert world.at(second).get() == [id]
    assert world.node(second).core.jobs[id].flags & DELIVERED
    world.release(first, 0)
    world.settle()
    assert (0, second) in sent(world, Release)
    assert id in world.node(second).core.jobs


def given_away(world: World) -> bytes:
    """An at-most-once job that node 0 sent to node 1, which has it in its queue."""
    id = world.at(0).add(replicate=1, retry=0)
    n = world.node(0).core
    dequeue(n, n.jobs[id])
    send_jobs(n, world.slot(0, 1), b"q", [n.jobs[id]])
    world.settle()
    return id


def test_custody_that_went_is_gone_from_the_journal(make_world: Make) -> None:
    """F2.3 AMO jobs are in transit: journaled and not delivered here until GOTJOBS confirms
    them. Then they are unregistered with cause moved, and LEFT is sent when that is on disk
    (J4.4).
    """
    world = make_world(2, journal="always")
    id = given_away(world)
    assert world.states(id) == [-1, QUEUED]
    world.restart(0)
    assert id not in world.node(0).core.jobs


def test_it_goes_on_when_left_comes(make_world: Make) -> None:
    """F2.3 An AMO job moves on to a third node only after LEFT."""
    world = make_world(3, journal="off")
    world.hold(1, 0)
    id = given_away(world)
    world.at(2).wait()
    world.pass_ms(5_000)
    assert world.at(2).served() == []
    world.release(1, 0)
    world.settle()
    assert sent(world, GotJobs)[0] == (1, 0) and (0, 1) in sent(world, Left)
    assert world.at(2).served() == [id]


def test_a_tombstone_that_waits_for_deljob_replaces_a_shorter_one() -> None:
    """A4.1 The tombstone stays until DELJOB"""
    tombs = Tombs()
    tombs.add(b"id", 1_000_000, 0b10, 3)
    tombs.keep(b"id", 1_000_000)
    tombs.on_echo(1, 4)
    tombs.tick(0, 100)
    assert tombs.has(b"id")


def test_every_copy_knows_all_holders(make_world: Make) -> None:
    """R1.10 REPLJOB goes to n - 1 randomly chosen reachable nodes, late ones (K4.3) last, which
    become holders.
    """
    world = make_world(4, journal="off")
    world.isolate(3)
    world.forget_heard()
    id = world.at(0).add(replicate=3)
    assert [world.believed(i, id) for i in range(3)] == [[0, 1, 2]] * 3


def test_only_what_is_on_its_way_is_sent_again_and_to_the_same_node(make_world: Make) -> None:
    """F2.3 Unanswered YOURJOBS and GOTJOBS of AMO jobs are repeated to the same node when a link
    comes up"""
    world = make_world(3, journal="off")
    world.hold(1, 0)
    id = given_away(world)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        world.cut(a, b)
    world.forget_heard()
    world.link(0, 2)
    world.link(1, 2)
    world.settle()
    assert sent(world, YourJobs) == sent(world, GotJobs) == []
    world.link(0, 1)
    world.settle()
    assert set(sent(world, YourJobs)) <= {(0, 1)} and (1, 0) in sent(world, GotJobs)
    assert world.states(id) == [-1, QUEUED, -1]


def test_a_copy_that_crosses_a_farewell(make_world: Make) -> None:
    """R2.7 If this node denied a copy of an ALO job (LEFT, LACK) in the last 60 s, it sends
    HOLDERS, with itself in the set, to the other holders.
    """
    for asked in (False, True):
        world = make_world(3, journal="off")
        id = world.at(0).add(replicate=3, retry=2)
        n = world.node(0).core
        job, slot = n.jobs[id], world.slot(0, 1)
        job.repl = world.node(1).core.jobs[id].repl = 2
        if asked:
            on_deljob(world.node(1).core, id)
            say(n, slot, Ask(7, [id], False, b""))
        else:
            introduce(n, slot, job.holders | 1)
            say(n, slot, Release([id], job.holders))
        send_jobs(n, slot, b"q", [n.queues[b"q"].pop() or job])
        job.state = ACTIVE
        world.hold(1, 0)
        world.settle()
        assert world.states(id)[1] == QUEUED
        world.release(1, 0)
        world.settle()
        assert job.holders >> slot & 1
        assert world.node(2).core.jobs[id].holders >> world.slot(2, 1) & 1
        assert world.at(1).get() == [id]
        on_ackjob(n, id)
        world.settle()
        assert world.holders(id) == []


def test_holders_of_a_job_that_is_done(make_world: Make) -> None:
    """R2.7 A tombstone answers HOLDERS with SETACK."""
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3, retry=2)
    world.node(0).core.jobs[id].holders &= ~(1 << world.slot(0, 2))
    world.node(1).core.jobs[id].holders &= ~(1 << world.slot(1, 2))
    on_ackjob(world.node(0).core, id)
    world.settle()
    assert world.holders(id) == [2]
    other = world.node(2).core
    introduce(other, world.slot(2, 0), other.jobs[id].holders)
    say(other, world.slot(2, 0), Holders(id, other.jobs[id].holders))
    world.settle()
    assert world.holders(id) == []
