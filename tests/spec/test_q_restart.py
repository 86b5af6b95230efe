"""SPEC Q11, Q12: who serves a job after a restart, and after a link was down (Q3.3, Q4.5)."""

from __future__ import annotations

import pytest

from cluster_lab import Lab
from tuque.core.copies.requeue_messages import on_willqueue
from tuque.core.model.job import ACTIVE, HELD, QUEUED, STAND_QUEUED, Job
from tuque.core.msgs import (
    AnyMessage,
    Ask,
    Moved,
    Queued,
    WillQueue,
    Working,
)
from tuque.core.node.peers import rank, say, set_reachable
from tuque.core.queues.deliver import wait
from tuque.core.queues.procedures import REQUEUE_RETRY, requeue
from tuque.core.queues.requeue import (
    on_dequeue,
    on_enqueue,
    on_nack,
    on_working,
)
from tuque.core.repair.claims import answer_claim, on_away
from tuque.core.tables.repair import SETTLE

TIMEOUT_MS = 5_000  # cluster-node-timeout of a lab


def sent(lab: Lab, kind: type) -> list[tuple[int, int]]:
    """From where to where messages of that kind went, in order."""
    return [(a, b) for a, b, m in lab.log if isinstance(m, kind)]


def tell(lab: Lab, a: int, b: int, message: AnyMessage) -> None:
    """Node a says something to node b."""
    assert say(lab.nodes[a], lab.slot(a, b), message)
    lab.run()


def job_at(lab: Lab, i: int, id: bytes) -> Job:
    """The record of the job at node i, its clock set."""
    lab.nodes[i].now_ms = lab.now_ms
    return lab.nodes[i].jobs[id]


def outage(lab: Lab, down_ms: int) -> None:
    """All nodes are killed at once; they are back, without links."""
    for i in range(len(lab.nodes)):
        lab.isolate(i)
    lab.now_ms += down_ms
    for i in range(len(lab.nodes)):
        lab.die(i)


def queued_at(lab: Lab, id: bytes) -> list[int]:
    """The nodes that have the job in their queues."""
    return [i for i, state in enumerate(lab.states_of(id)) if state == QUEUED]


def restart(lab: Lab, i: int, down_ms: int = 0) -> None:
    """One node is killed, and is back without links."""
    lab.isolate(i)
    lab.pass_ms(down_ms)
    lab.die(i)


def test_a_killed_cluster_queues_each_job_once() -> None:
    """Q11.4 When no reply is missing, a job that was queued before the restart is queued."""
    lab = Lab(3, has_journal=True)
    ids = [lab.add(0, replicate=3, retry_s=10) for _ in range(40)]
    outage(lab, 13_000)
    lab.run()
    assert all(queued_at(lab, id) == [] for id in ids)
    lab.heal()
    lab.run()
    assert all(queued_at(lab, id) == [0] for id in ids)  # at once, where it was
    lab.pass_ms(60_000)
    assert all(queued_at(lab, id) == [0] for id in ids)


def test_a_restarted_node_asks_before_it_queues() -> None:
    """Q11.1 A loaded ALO job with other holders is held if it was queued or its due time has
    passed: it is active, and its only timer is its expiry.
    """
    lab = Lab(3, has_journal=True)
    ids = [lab.add(0, replicate=3, retry_s=3) for _ in range(20)]
    restart(lab, 1, 4_500)
    lab.pass_ms(TIMEOUT_MS - 100)
    assert all(lab.states_of(id)[1] == ACTIVE for id in ids)
    assert all(job_at(lab, 1, id).marks & HELD for id in ids)
    lab.heal()
    lab.pass_ms(10_000)
    assert all(queued_at(lab, id) == [0] for id in ids)


def test_at_the_latest_after_a_node_timeout() -> None:
    """Q11.2 For a holder without a link it waits until `cluster-node-timeout` after the load,
    unless a linked node reports that holder as suspected or failed.
    """
    lab = Lab(3, has_journal=True)
    id, other = lab.add(0, replicate=3, retry_s=30), lab.add(0, replicate=1, retry_s=30)
    restart(lab, 0)
    assert queued_at(lab, other) == [0]  # nobody else has it
    assert lab.get(0) == [other]
    wait(lab.nodes[0], 7, [b"q"], 5, False, 0)
    lab.pass_ms(TIMEOUT_MS - 10)
    assert lab.served[0] == {}
    lab.pass_ms(20)
    assert [job.id for job in lab.served[0][7]] == [id]


def test_who_is_said_to_be_away_is_not_waited_for() -> None:
    """Q11.2 For a holder without a link it waits until `cluster-node-timeout` after the load,
    unless a linked node reports that holder as suspected or failed.
    """
    lab = Lab(3, has_journal=True)
    id = lab.add(0, replicate=3, retry_s=30)
    restart(lab, 0)
    lab.link(0, 1)
    lab.run()
    assert queued_at(lab, id) == []
    on_away(lab.nodes[0], lab.slot(0, 2))
    lab.run()
    assert queued_at(lab, id) == [0]


def test_a_worker_elsewhere_keeps_its_job() -> None:
    """Q12.2 WORKING with the time left, if a worker has the job as far as this node knows."""
    lab = Lab(3, has_journal=True)
    id = lab.add(0, replicate=3, retry_s=10)
    lab.pass_ms(25_000)  # the others were told that 0 has it queued; their journals were not
    assert lab.get(0) == [id]
    lab.pass_ms(1_000)
    restart(lab, 1)
    assert job_at(lab, 1, id).marks & HELD
    lab.heal()
    lab.log.clear()
    lab.run()
    assert (0, 1) in sent(lab, Working)
    assert not job_at(lab, 1, id).marks & HELD
    assert 8_900 < job_at(lab, 1, id).qtime_ms - lab.now_ms < 10_100


def test_hearsay_of_a_worker_counts_after_a_restart() -> None:
    """Q12.2 WORKING with the time left, if a worker has the job as far as this node knows."""
    lab = Lab(3, has_journal=True)
    id = lab.add(0, replicate=3, retry_s=10)
    lab.pass_ms(25_000)
    assert lab.get(0) == [id]
    lab.pass_ms(1_000)
    lab.isolate(0)  # who handed it out is gone
    lab.die(1)
    lab.link(1, 2)
    lab.log.clear()
    lab.pass_ms(TIMEOUT_MS + 2_000)
    assert (2, 1) in sent(lab, Working)
    assert queued_at(lab, id) == []
    lab.pass_ms(4_000)
    assert len(set(queued_at(lab, id)) - {0}) == 1


def test_a_due_time_of_the_journal_may_be_old() -> None:
    """Q11.1 A job with a later due time is held when WILLQUEUE would be due (Q1)."""
    lab = Lab(3, has_journal=True)
    id = lab.add(0, replicate=3, retry_s=10)
    lab.pass_ms(6_000)
    assert lab.get(0) == [id]
    lab.pass_ms(1_000)
    lab.isolate(0)
    lab.die(1)
    lab.link(1, 2)
    lab.run()
    assert not job_at(lab, 1, id).marks & HELD  # its journal says that it is due in 3 s
    lab.pass_ms(6_000)
    assert queued_at(lab, id) == []
    lab.pass_ms(6_000)
    assert len(set(queued_at(lab, id)) - {0}) == 1


def test_a_due_time_that_is_not_over_elsewhere() -> None:
    """Q12.2 MOVED with the time left, if the sender's job is only due and the due time here is not
    over."""
    lab = Lab(3, has_journal=True)
    id = lab.add(0, replicate=3, retry_s=10)
    lab.pass_ms(12_000)
    restart(lab, 1)
    lab.isolate(0)
    lab.link(1, 2)
    lab.log.clear()
    lab.run()
    assert (2, 1) in sent(lab, Moved)
    left_ms = job_at(lab, 2, id).qtime_ms - lab.now_ms
    assert left_ms < job_at(lab, 1, id).qtime_ms - lab.now_ms < left_ms + 500


@pytest.mark.parametrize("is_nacked", [False, True])
def test_a_delay_ends_in_time_after_a_restart(is_nacked: bool) -> None:
    """Q12.1 With each id the sender says how close it is to delivering the job: the job is queued;
    it is held and was queued, or has a delay that ends here; or it is held and due.
    """
    lab = Lab(3, has_journal=True)
    id = lab.add(0, replicate=3, retry_s=60, delay_s=0 if is_nacked else 8)
    if is_nacked:
        assert lab.get(0) == [id]
        lab.nodes[0].now_ms = lab.now_ms
        assert on_nack(lab.nodes[0], id, 8_000)
        lab.run()
    lab.pass_ms(5_000)
    restart(lab, 0)
    lab.heal()
    lab.pass_ms(2_900)
    assert queued_at(lab, id) == []
    lab.pass_ms(150)
    assert queued_at(lab, id) == [0]


@pytest.mark.parametrize("command", ["enqueue", "nack", "working", "dequeue"])
def test_commands_end_a_hold(command: str) -> None:
    """Q11.3 Any message or command that queues the job or sets its due time ends the hold."""
    lab = Lab(2, has_journal=True)
    id = lab.add(0, replicate=2, retry_s=30)
    assert lab.get(0) == [id]
    on_enqueue(lab.nodes[0], id)
    lab.run()
    restart(lab, 0)
    n = lab.nodes[0]
    assert job_at(lab, 0, id).marks & HELD
    if command == "enqueue":
        assert on_enqueue(n, id)
    elif command == "nack":
        assert on_nack(n, id, 0)
    elif command == "working":
        assert on_working(n, id) is None
    else:
        assert not on_dequeue(n, id)  # it is not queued
        return
    assert not job_at(lab, 0, id).marks & HELD
    assert queued_at(lab, id) == ([] if command == "working" else [0])


@pytest.mark.long
def test_links_settle_who_serves_a_job() -> None:
    """Q12.3 If none of these is sent, the sender serves the job: this node dequeues it, and its due
    time becomes the later of its old value and now + retry + J.
    """
    lab = Lab(3)
    ids = [lab.add(0, replicate=3, retry_s=2) for _ in range(510)]
    for i in range(3):
        lab.isolate(i)
    lab.pass_ms(2_600)
    assert all(queued_at(lab, id) == [0, 1, 2] for id in ids)
    lab.log.clear()
    lab.heal()
    lab.run()
    assert all(len(queued_at(lab, id)) == 1 for id in ids)
    assert {queued_at(lab, id)[0] for id in ids} == {0, 1, 2}
    asked = [len(m.ids) for _, _, m in lab.log if isinstance(m, Ask)]
    assert max(asked) <= 500
    for id in ids:
        for i in range(3):
            job = job_at(lab, i, id)
            assert job.state == QUEUED or job.qtime_ms >= lab.now_ms + 2_000
    lab.pass_ms(3_000)
    assert all(len(queued_at(lab, id)) == 1 for id in ids)


@pytest.mark.parametrize("pass_ms", [8_000, 15_000])
def test_who_gives_way_waits_a_retry_time(pass_ms: int) -> None:
    """Q12.3 If none of these is sent, the sender serves the job: this node dequeues it, and its due
    time becomes the later of its old value and now + retry + J.
    """
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=10)
    lab.isolate(1)
    lab.pass_ms(pass_ms)
    if pass_ms < 10_000:
        here = 1  # its copy waits
        assert queued_at(lab, id) == [0]
    else:
        here = min((0, 1), key=lambda i: rank(id, lab.nodes[i].node_id))
        assert queued_at(lab, id) == [0, 1]
    there = 1 - here
    answer_claim(lab.nodes[here], lab.slot(here, there), job_at(lab, here, id), STAND_QUEUED)
    job = job_at(lab, here, id)
    assert job.state == ACTIVE
    assert lab.now_ms + 10_000 <= job.qtime_ms <= lab.now_ms + 10_500


def test_what_was_known_before_is_not_asked_again() -> None:
    """Q12.1 the node knows of what was queued before that."""
    lab = Lab(2)
    old = lab.add(0, replicate=2, retry_s=600)
    lab.pass_ms(2 * TIMEOUT_MS + 1_000)
    new = lab.add(0, replicate=2, retry_s=600)
    lab.isolate(1)
    lab.heal()
    lab.log.clear()
    lab.run()
    asked = [id for a, _, m in lab.log if isinstance(m, Ask) and a == 0 for id in m.ids]
    assert asked == [new] and old != new


@pytest.mark.long
def test_a_link_that_ends_again_is_settled_by_the_next() -> None:
    """Q12.1 ASK goes to the node for each held job that the node may have. It also goes for each
    ALO job that the node may have and that was queued here later than 2 x `cluster-node-timeout`
    before the last link ended:
    """
    lab = Lab(2)
    ids = [lab.add(0, replicate=2, retry_s=2) for _ in range(600)]
    lab.isolate(1)
    lab.pass_ms(30_000)
    assert all(queued_at(lab, id) == [0, 1] for id in ids)
    lab.link(0, 1)
    assert [walk.kind for walk in lab.nodes[0].losses.walks].count(SETTLE) == 1
    lab.step()
    lab.cut(0, 1)
    assert [walk.kind for walk in lab.nodes[0].losses.walks].count(SETTLE) == 0
    lab.pass_ms(30_000)
    lab.heal()
    lab.pass_ms(100)
    assert all(len(queued_at(lab, id)) == 1 for id in ids)


def test_a_loading_node_is_asked_when_it_is_loaded() -> None:
    """Q11.2 A held job waits for a reply of each other holder that is linked and not suspected,
    failed or loading.
    """
    lab = Lab(2, has_journal=True)
    id = lab.add(0, replicate=2, retry_s=30)
    restart(lab, 0)
    other = lab.nodes[1]
    other.is_loading = True
    lab.link(0, 1)
    lab.run()
    n, slot = lab.nodes[0], lab.slot(0, 1)
    set_reachable(n, slot, False)
    lab.pass_ms(500)
    assert queued_at(lab, id) == []
    other.is_loading = False
    set_reachable(n, slot, True)
    lab.run()
    assert queued_at(lab, id) == [0]


def test_a_question_without_stands_moves_no_job() -> None:
    """K5.2 LACK replies with the ids that are unknown there; its sender leaves the holders of these
    jobs."""
    lab = Lab(2, has_journal=True)
    id = lab.add(0, replicate=2, retry_s=30)
    lab.log.clear()
    tell(lab, 0, 1, Ask(1, [id], False, b""))
    assert sent(lab, Queued) == [] and sent(lab, Working) == []
    assert lab.states_of(id) == [QUEUED, ACTIVE]


def test_a_question_moves_no_job_that_is_served_once() -> None:
    """Q12.1 It also goes for each ALO job that the node may have"""
    lab = Lab(2)
    id = lab.add(0, replicate=1, retry_s=0)
    lab.log.clear()
    tell(lab, 1, 0, Ask(1, [id], False, bytes([STAND_QUEUED])))
    assert sent(lab, Queued) == [] and sent(lab, Working) == []
    assert lab.states_of(id) == [QUEUED, -1], "it goes to nobody but by custody"


def test_a_node_where_the_worker_said_working_answers() -> None:
    """Q3.3 Queued here: QUEUED goes to all other holders. Delivered here less than retry ago, or
    postponed by WORKING here: DELIVERED goes to the sender, with the rest of that time or of what
    WORKING set.
    """
    lab = Lab(3)
    id = lab.add(0, replicate=3, retry_s=10)
    assert lab.get(0) == [id]
    lab.pass_ms(8_000)
    lab.isolate(1)
    lab.nodes[1].now_ms = lab.now_ms
    assert on_working(lab.nodes[1], id) is None  # nobody hears of it
    lab.heal()
    lab.pass_ms(8_000)
    assert lab.states_of(id) == [ACTIVE] * 3
    lab.pass_ms(4_000)
    assert sorted(lab.states_of(id)) == [ACTIVE, ACTIVE, QUEUED]


@pytest.mark.parametrize("client", ["", "NACK", "ENQUEUE"])
def test_a_worker_keeps_its_job(client: str) -> None:
    """Q4.5 the message says that the sender has the job queued now, not for a NACK or ENQUEUE, and
    a worker got the job from this node or sent WORKING here.
    """
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=10)
    assert lab.get(0) == [id]
    lab.pass_ms(1_000)
    lab.nodes[1].now_ms = lab.now_ms
    if client == "NACK":
        assert on_nack(lab.nodes[1], id, 0)
    elif client == "ENQUEUE":
        assert on_enqueue(lab.nodes[1], id)
    else:
        requeue(lab.nodes[1], job_at(lab, 1, id), REQUEUE_RETRY)
    lab.run()
    assert lab.states_of(id) == [ACTIVE, QUEUED if client else ACTIVE]
    assert [n.jobs[id].deliveries for n in lab.nodes] == [client != "NACK"] * 2
    lab.pass_ms(8_900)
    assert lab.states_of(id) == [ACTIVE, QUEUED if client else ACTIVE]
    lab.pass_ms(200)
    assert QUEUED in lab.states_of(id)


@pytest.mark.parametrize("replicate", [2, 3])
def test_who_gave_it_is_waited_for(replicate: int) -> None:
    """Q11.5 MOVED says when a holder would queue the job, but not whether a worker has it. While
    another holder without a link is waited for, the job is held again at the due time that MOVED
    set.
    """
    # Q11.6: with two copies node 0 or 1 has it from the other one
    lab = Lab(3, has_journal=True)
    ids = [lab.add(2, replicate=replicate, retry_s=9, delay_s=1) for _ in range(20)]
    lab.pass_ms(1_600)
    assert sorted(lab.get(2)[0] for _ in ids) == sorted(ids)
    lab.isolate(0)
    lab.isolate(1)
    lab.pass_ms(6_000)
    lab.die(0)
    lab.die(1)
    lab.link(0, 1)
    lab.pass_ms(TIMEOUT_MS - 1_000)  # all copies are due, and node 2 is not there yet
    assert all(QUEUED not in lab.states_of(id)[:2] for id in ids)
    lab.pass_ms(2_000)
    assert all(QUEUED in lab.states_of(id) for id in ids)
    lab.heal()
    lab.pass_ms(2_000)
    assert all(len(queued_at(lab, id)) == 1 for id in ids)


@pytest.mark.parametrize("over_ms", [-1, 0, 3_000])
def test_who_asks_is_put_off_while_the_giver_is_awaited(over_ms: int) -> None:
    """Q11.6 A WILLQUEUE may ask about a loaded job that still waits for another holder without a
    link and that no worker got from this node. The reply is MOVED with the time until Q11.2 ends:
    the asker may have its copy from this node, and know no more.
    """
    lab = Lab(3, has_journal=True)
    id = lab.add(2, replicate=3, retry_s=20, delay_s=1)
    lab.isolate(0)
    lab.die(0)
    lab.link(0, 1)
    lab.run()
    lab.log.clear()
    n = lab.nodes[0]
    n.now_ms = n.held.until_ms + over_ms  # it stood still; no tick was yet
    on_willqueue(n, lab.slot(0, 1), WillQueue([id]))
    lab.run()
    assert [m.left_ms for _, _, m in lab.log if isinstance(m, Moved)] == [1] * (over_ms < 0)


@pytest.mark.parametrize("delay_ms", [0, 6_000])
def test_what_a_worker_said_outlives_a_restart(delay_ms: int) -> None:
    """Q11.7 If a loaded job counts as delivered and has a later due time, a worker got it from this
    node or sent WORKING here. Q3.3, Q4.5 and Q12.2 go by that.
    """
    lab = Lab(3, has_journal=True)
    id = lab.add(0, replicate=3, retry_s=10)
    assert lab.get(0) == [id]
    lab.pass_ms(8_000)
    lab.isolate(1)
    lab.nodes[1].now_ms = lab.now_ms
    assert on_working(lab.nodes[1], id) is None  # nobody hears of it
    lab.run()
    lab.pass_ms(delay_ms)  # after 6 s they have queued it
    lab.die(1)
    lab.heal()
    lab.run()
    assert queued_at(lab, id) == []
    lab.pass_ms(8_000 - delay_ms)
    assert queued_at(lab, id) == []
    lab.pass_ms(4_000 + delay_ms)
    assert len(queued_at(lab, id)) == 1


def test_a_job_of_an_older_journal_is_left_to_the_worker_that_said_working() -> None:
    """Q11.7 If a loaded job counts as delivered and has a later due time, a worker got it from this
    node or sent WORKING here. Q3.3, Q4.5 and Q12.2 go by that.
    """
    lab = Lab(3, has_journal=True)
    id = lab.add(0, replicate=3, retry_s=20)
    lab.isolate(0)  # its journal has the job as queued
    lab.pass_ms(21_000)
    (server,) = set(queued_at(lab, id)) - {0}
    other = 3 - server
    assert lab.get(server) == [id]
    lab.pass_ms(1_000)
    lab.nodes[other].now_ms = lab.now_ms
    assert on_working(lab.nodes[other], id) is None
    lab.run()
    lab.isolate(server)
    lab.die(other)
    lab.die(0)
    lab.link(0, other)
    lab.pass_ms(15_000)
    assert QUEUED not in [lab.states_of(id)[i] for i in (0, other)]
    lab.pass_ms(8_000)
    assert QUEUED in [lab.states_of(id)[i] for i in (0, other)]
