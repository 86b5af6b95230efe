"""SPEC W with several nodes: a result that was read, and a letter that was replayed, stay so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tuque.core.copies.federation import on_yourjobs
from tuque.core.copies.holders import on_holders
from tuque.core.copies.replicate import copy_of, on_repljob
from tuque.core.copies.requeue_messages import known_job, on_willqueue
from tuque.core.life.cancel_update import FLAGGED
from tuque.core.life.dead_letters import letter_of, replay
from tuque.core.life.lookup import may_ask
from tuque.core.life.outcomes import on_done, outcome_of
from tuque.core.life.runs import on_fail
from tuque.core.life.start import end_cancelled
from tuque.core.model.work import (
    DONE,
    GONE,
    Outcome,
    Terms,
    run_of,
)
from tuque.core.msgs.bus import (
    Ask,
    Holders,
    ReplJob,
    SetAck,
    WillQueue,
    YourJobs,
)
from tuque.core.node.node import Node
from tuque.core.queues.ends import check_lives
from tuque.core.queues.work_copies import adopt_life, packed_life
from tuque.core.repair.node_loss import on_ask
from tuque.core.work.rules import DIED
from world import World
from world_lives import add, at, cancel, fail, known, life, phases, start, stranger, told

Make = Callable[..., World]

FIRST_RUN, SECOND_RUN = run_of(1, 1, 7), run_of(2, 2, 7)


@pytest.mark.parametrize(
    ("run", "result"), [(SECOND_RUN, b"second"), (SECOND_RUN, b"a"), (FIRST_RUN, b"second")]
)
def test_a_late_done_elsewhere_changes_no_result(make_world: Make, run: int, result: bytes) -> None:
    """W14.6 That node shows what the holders know (W15). An outcome that is kept stays."""
    world = make_world(4, journal="off")
    id = add(world)
    elsewhere = stranger(world, id)
    assert on_done(at(world, world.holders(id)[0]), id, SECOND_RUN, b"first", 9)
    world.pass_ms(2_000)
    on_done(at(world, elsewhere), id, run, result, 9)
    assert may_ask(at(world, elsewhere), id)
    for _ in range(2):
        reply = told(world, elsewhere, id)
        assert (reply["state"], reply["result"]) == (b"done", b"first")
        world.pass_ms(3_000)


def test_a_late_done_changes_no_result_while_a_holder_is_away(make_world: Make) -> None:
    """W14.6 An outcome that is kept stays."""
    world = make_world(4, journal="off")
    id = add(world)
    first, second, away = world.holders(id)
    elsewhere = stranger(world, id)
    world.isolate(away)
    world.pass_ms(3_000)
    assert on_done(at(world, first), id, SECOND_RUN, b"first", 9)
    world.settle()
    results = [known(world, i, id) for i in (first, second)]
    on_done(at(world, elsewhere), id, FIRST_RUN, b"a", 9)
    world.pass_ms(2_000)
    world.link()
    world.pass_ms(5_000)
    for i in (first, second, away):
        assert known(world, i, id)["result"] == b"first"
        assert known(world, i, id)["ended-ms"] != 0
    assert [result["state"] for result in results] == [b"done", b"done"]


def test_a_copy_of_a_later_life_changes_no_half_of_one(make_world: Make) -> None:
    """W14.7 so it does if the work of an arriving copy differs in death or REPLAYs."""
    world = make_world(3, journal="off")
    id = add(world)
    run = start(world, 0, id)
    assert on_fail(at(world, 0), id, run, -1, b"why", b"", True)[0] == DIED
    world.settle()
    a, b = at(world, 0), at(world, 1)
    assert b.life.by_id[id].is_dead
    letter = letter_of(a, id)
    assert letter is not None
    slot_of_a = b.slot_of[a.node_id]
    a.jobs[id].holders, holders = 1, a.jobs[id].holders  # its LIFE is lost
    assert replay(a, letter, b"")
    a.jobs[id].holders = holders
    adopt_life(b, slot_of_a, b.jobs[id], packed_life(a, id))
    assert (b.life.by_id[id].is_dead, b.life.by_id[id].replays) == (True, 0)
    world.settle()
    assert (b.life.by_id[id].is_dead, b.life.by_id[id].replays) == (False, 1)
    assert b.jobs[id].queue == b"q"


def test_an_ack_of_a_copy_brings_the_outcome(make_world: Make) -> None:
    """W14.4 SETACK carries the outcome, also as an answer."""
    world = make_world(4, journal="off")
    id = add(world)
    elsewhere = stranger(world, id)
    n, other = at(world, world.holders(id)[0]), at(world, elsewhere)
    copy = copy_of(n, n.slot_of[other.node_id], n.jobs[id], 0)
    assert on_done(n, id, 0, b"42")
    world.settle()
    on_repljob(other, other.slot_of[n.node_id], copy)
    assert known_job(n, n.slot_of[other.node_id], id) is None
    world.settle()
    assert known(world, elsewhere, id)["result"] == b"42"


def test_a_cancelled_job_is_not_done_while_a_holder_is_away(make_world: Make) -> None:
    """W7.3 That a job was cancelled is known until its holders have confirmed it"""
    world = make_world(3, journal="off")
    id = add(world, terms=Terms(3, 1_000, 60_000, 0, b"", 0, 0))
    n, client = at(world, 0), world.at(2, 5)
    end_cancelled(n, n.jobs[id], n.life.by_id[id])
    world.cut(0, 2)
    world.cut(1, 2)
    world.settle()
    world.pass_ms(5_000)
    assert id in n.jobs and id in at(world, 1).jobs
    assert outcome_of(n, id) == outcome_of(at(world, 1), id) == b"cancelled"
    assert client("WAITJOB", 0, id) is None
    world.link()
    world.pass_ms(1_000)
    assert client.take() == [[id, b"cancelled"]]
    world.pass_ms(5_000)
    assert id not in n.jobs and id not in n.life.kept
    check_lives(n)


def test_a_job_that_came_back_leaves_no_life(make_world: Make) -> None:
    """W14.8 A job that comes back where its outcome is kept ends with that outcome."""
    world = make_world(3, journal="off")
    id = add(world)
    n = at(world, 1)
    before = Outcome(id, DONE, n.now_ms + 60_000, n.now_ms)
    before.result = b"first"
    n.life.keep(before, n.limits.results_bytes)
    assert on_done(at(world, 0), id, 0, b"second")
    world.settle()
    assert id not in n.life.by_id
    check_lives(n)
    assert known(world, 1, id)["result"] == b"first"


TELLERS: dict[str, Callable[[Node, int, ReplJob], None]] = {
    "replicate": on_repljob,
    "federation": lambda n, slot, copy: on_yourjobs(n, slot, YourJobs(b"q", [copy])),
    "holders": lambda n, slot, copy: on_holders(n, slot, Holders(copy.id, 2)),
    "requeue": lambda n, slot, copy: on_willqueue(n, slot, WillQueue([copy.id])),
    "ask": lambda n, slot, copy: on_ask(n, slot, Ask(1, [copy.id], False, b"")),
}


@pytest.mark.parametrize("teller", TELLERS)
@pytest.mark.parametrize("kind", [DONE, GONE])
def test_a_kept_outcome_refuses_copies_of_its_job(make_world: Make, teller: str, kind: int) -> None:
    """W14.11 A kept outcome other than `gone` counts as a tombstone (A8.2): no copy of the job
    is taken here, and a node with one gets SETACK with the outcome.
    """
    world = make_world(4, journal="off")
    id = add(world)
    holder = world.holders(id)[0]  # its disk is an old one
    old, n = at(world, holder), at(world, stranger(world, id))
    outcome = Outcome(id, kind, n.now_ms + 60_000, n.now_ms)
    outcome.result = b"42"
    n.has_lives = True
    n.life.keep(outcome, n.limits.results_bytes)
    copy = copy_of(old, old.slot_of[n.node_id], old.jobs[id], 0)
    TELLERS[teller](n, n.slot_of[old.node_id], copy)
    if kind == GONE:
        assert not any(isinstance(m, SetAck) for peer in n.peers for m in peer.outbox)
        return
    assert id not in n.jobs
    world.settle()
    result = known(world, holder, id)
    assert (result["state"], result["result"]) == (b"done", b"42")


def test_a_run_of_an_earlier_life_is_not_believed(make_world: Make) -> None:
    """W14.5 Not so a run from before a REPLAY that the holder knows of, or after one that it does
    not.
    """
    world = make_world(3, journal="off")
    id = add(world)
    assert on_fail(at(world, 0), id, start(world, 0, id), -1, b"why", b"", True)[0] == DIED
    world.settle()
    world.isolate(0)
    letter = letter_of(at(world, 0), id)
    assert letter is not None and replay(at(world, 0), letter, b"")
    before = run_of(2, 3, 7)  # of two more STARTs on the other side
    assert run_is_stale(at(world, 0), id, before)
    assert run_is_stale(at(world, 1), id, run_of(1, 9, 7, 1))
    assert not run_is_stale(at(world, 0), id, run_of(2, 3, 7, 1))


def run_is_stale(n: Node, id: bytes, run: int) -> bool:
    """Whether FAIL of that run is refused."""
    _, _, refused = on_fail(n, id, run, -1, b"late", b"", False)
    return refused is not None


def test_a_letter_has_the_cause_of_its_last_failure(make_world: Make) -> None:
    """W14.2 A job that died of a failure has the cause of its last one."""
    world = make_world(3, journal="off")
    for n in world.cores:
        n.limits.crashes_max = 1
    id = add(world, retry_s=2, terms=Terms(1, 0, 0, 0, b"", 600_000, 0))
    run = start(world, 0, id)
    world.settle()
    world.isolate(0)
    assert on_fail(at(world, 0), id, run, -1, b"why", b"", False)[0] == DIED
    world.pass_ms(4_000)
    causes = [n.life.by_id[id].dead_cause for n in world.cores]
    assert causes == [b"failed", b"crashed", b"crashed"]
    world.link()
    world.pass_ms(3_000)
    for n in world.cores:
        life = n.life.by_id[id]
        assert life.last is not None and life.last.cause == life.dead_cause == b"crashed"
        assert n.life.letters[b"q.dead"].reasons == {(life.dead_cause, life.last.reason): 1}
        check_lives(n)


def ended_unheard(world: World) -> bytes:
    """A job of three nodes that is done; nodes 1 and 2 know it, and not that the other one does."""
    id = add(world)
    world.at(0).get()
    run = start(world, 0, id)
    world.hold(1, 0)
    world.hold(2, 0)
    assert on_done(at(world, 0), id, run, b"42")
    world.settle()
    return id


def test_a_client_that_waits_asks_the_holders_again(make_world: Make) -> None:
    """W14.13 RESULT without WAIT of a job whose end is not confirmed yet waits for that, one second
    at most. Holders that have not confirmed it are asked again within 50 ms.
    """
    world = make_world(3, journal="off")
    id = ended_unheard(world)
    world.restart(0)
    for i in (1, 2):
        assert outcome_of(at(world, i), id) == b""
    assert world.at(1)("WAITJOB", 0, id) is None
    world.pass_ms(60)
    for i in (1, 2):
        result = known(world, i, id)
        assert (result["state"], result["result"]) == (b"done", b"42")
    assert world.at(1).take() == [[id, b"done"]]


def test_a_client_hears_when_the_last_silent_holder_is_out_of_reach(make_world: Make) -> None:
    """W14.14 RESULT and WAITJOB look again at each confirmation, and when a holder becomes
    unreachable.
    """
    world = make_world(3, journal="off")
    id = ended_unheard(world)
    assert world.at(1)("WAITJOB", 0, id) is None
    world.cut(1, 2)
    assert outcome_of(at(world, 1), id) == b"done"
    assert world.at(1).take() == [[id, b"done"]]


def test_a_client_hears_of_each_confirmation(make_world: Make) -> None:
    """W14.14 RESULT and WAITJOB look again at each confirmation, and when a holder becomes
    unreachable.
    """
    world = make_world(3, journal="off")
    id = ended_unheard(world)
    world.cut(0, 2)
    n, client = at(world, 0), world.at(0, 5)
    assert client("WAITJOB", 0, id) is None
    assert outcome_of(n, id) == b""
    world.release(1, 0)
    assert outcome_of(n, id) == b"done" and client.take() == [[id, b"done"]]
    assert id in n.jobs, "node 2 must still hear of it"


def test_a_cancelled_job_is_not_done_after_a_restart(make_world: Make) -> None:
    """W13.8 With KEEP 0 the outcome of a cancelled job that has other holders, or of one that
    DEADLETTER ended, is recorded too. A load drops it if the job is no longer in the journal.
    """
    world = make_world(3)
    terms = Terms(3, 1_000, 60_000, 0, b"", 0, 0)
    first, second = add(world, terms=terms), add(world, terms=terms)
    world.isolate(2)
    for id in (first, second):
        n = at(world, 0)
        end_cancelled(n, n.jobs[id], n.life.by_id[id])
        world.settle()
        world.pass_ms(1_000)
    for i in (0, 1):
        world.restart(i)
        for id in (first, second):
            assert outcome_of(at(world, i), id) == b"cancelled", f"node {i}"
        world.link(0, 1)
    world.link()
    world.pass_ms(6_000)
    for n in world.cores:
        assert n.jobs == n.life.kept == {}
    for i in range(3):
        world.restart(i)
        world.link()
        assert at(world, i).life.kept == {}
        check_lives(at(world, i))


@pytest.mark.parametrize("by", [0, 1, 2])
def test_a_letter_that_was_cancelled_elsewhere_runs_again(make_world: Make, by: int) -> None:
    """W12.4 REPLAY queues the selected jobs in the queue they came from, or in `to`, as new

    W14.2 a cancel flag and death stay.
    """
    world = make_world(3, journal="off")
    id = add(world)
    world.at(0).get()
    run = start(world, 0, id)
    world.pass_ms(200)
    world.isolate(1)
    assert cancel(world, 1, id) == FLAGGED
    assert fail(world, 0, id, run, is_final=True) == DIED
    world.link()
    world.pass_ms(3_000)
    assert phases(world, id) == ["dead"] * 3
    assert all(life(world, i, id).is_cancelled for i in range(3))
    letter = letter_of(at(world, by), id)
    assert letter is not None and replay(at(world, by), letter, b"")
    world.pass_ms(1_000)
    assert phases(world, id) == ["waiting"] * 3
    assert world.at(by).get() == [id]
    start(world, by, id)
    assert phases(world, id)[by] == "running", "the new life is not cancelled"
