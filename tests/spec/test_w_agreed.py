"""SPEC W with several nodes: a result that was read, and a letter that was replayed, stay so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_w_cluster import add, at, cancel, fail, life, start, states

from cluster_lab import Lab
from tuque.core.copies.federation import on_yourjobs
from tuque.core.copies.holders import on_holders
from tuque.core.copies.replicate import copy_of, on_repljob
from tuque.core.copies.requeue_messages import known_job, on_willqueue
from tuque.core.life.cancel_update import FLAGGED
from tuque.core.life.dead_letters import letter_of, replay
from tuque.core.life.lookup import LOOK, ask, may_ask
from tuque.core.life.outcomes import lives_tick, on_done, outcome_of, result_fields, watch
from tuque.core.life.runs import DIED, end_cancelled, on_fail
from tuque.core.model.work import (
    DONE,
    GONE,
    Outcome,
    Terms,
    run_of,
)
from tuque.core.msgs import (
    Ask,
    Holders,
    ReplJob,
    SetAck,
    WillQueue,
    YourJobs,
)
from tuque.core.node.node import Node
from tuque.core.queues.ends import check_lives
from tuque.core.queues.merge_work import adopt_life, packed_life
from tuque.core.repair.node_loss import on_ask

FIRST_RUN, SECOND_RUN = run_of(1, 1, 7), run_of(2, 2, 7)


@pytest.mark.parametrize(
    ("run", "result"), [(SECOND_RUN, b"second"), (SECOND_RUN, b"a"), (FIRST_RUN, b"second")]
)
def test_a_late_done_elsewhere_changes_no_result(run: int, result: bytes) -> None:
    """W14.6 That node shows what the holders know (W15): the job may have ended before. An outcome
    that is kept stays.
    """
    lab = Lab(4)
    id = add(lab)
    stranger = next(i for i in range(4) if id not in lab.nodes[i].jobs)
    for n in lab.nodes:
        n.ids.key = b""
    holder = next(i for i in range(4) if id in lab.nodes[i].jobs)
    assert on_done(at(lab, holder), id, SECOND_RUN, b"first", 9)
    lab.pass_ms(2_000)
    on_done(at(lab, stranger), id, run, result, 9)
    n = at(lab, stranger)
    watch(n, 5, [id], 0)
    assert may_ask(n, id)
    ask(n, id, LOOK)
    for _ in range(2):
        lab.run()
        told, _ = result_fields(n, id)
        assert told is not None and told["result"] == b"first"
        assert outcome_of(n, id) == b"done"
        lab.pass_ms(3_000)


def test_a_late_done_changes_no_result_while_a_holder_is_away() -> None:
    """W14.6 An outcome that is kept stays."""
    lab = Lab(4)
    id = add(lab)
    stranger = next(i for i in range(4) if id not in lab.nodes[i].jobs)
    for n in lab.nodes:
        n.ids.key = b""
    first, second, away = (i for i in range(4) if i != stranger)
    lab.isolate(away)
    lab.pass_ms(3_000)
    assert on_done(at(lab, first), id, SECOND_RUN, b"first", 9)
    lab.run()
    results = [result_fields(at(lab, i), id)[0] for i in (first, second)]
    on_done(at(lab, stranger), id, FIRST_RUN, b"a", 9)
    lab.pass_ms(2_000)
    lab.heal()
    lab.pass_ms(5_000)
    for i in (first, second, away):
        told, _ = result_fields(at(lab, i), id)
        assert told is not None and told["result"] == b"first"
        assert told["ended-ms"] != 0
    assert [told and told["state"] for told in results] == [b"done", b"done"]


def test_a_copy_of_a_later_life_changes_no_half_of_one() -> None:
    """W14.7 If a copy arrives whose life differs in death or REPLAYs, the node keeps its own life
    and replies with LIFE.
    """
    lab = Lab(3)
    id = add(lab)
    run = start(lab, 0, id)
    assert on_fail(at(lab, 0), id, run, -1, b"why", b"", True)[0] == DIED
    lab.run()
    a, b = at(lab, 0), at(lab, 1)
    assert b.life.by_id[id].is_dead
    letter = letter_of(a, id)
    assert letter is not None
    slot_of_a = b.slot_of[a.node_id]
    a.jobs[id].holders, holders = 1, a.jobs[id].holders  # its LIFE is lost
    assert replay(a, letter, b"")
    a.jobs[id].holders = holders
    adopt_life(b, slot_of_a, b.jobs[id], packed_life(a, id))
    assert (b.life.by_id[id].is_dead, b.life.by_id[id].replays) == (True, 0)
    lab.run()
    assert (b.life.by_id[id].is_dead, b.life.by_id[id].replays) == (False, 1)
    assert b.jobs[id].queue == b"q"


def test_an_ack_of_a_copy_brings_the_outcome() -> None:
    """W14.4 SETACK carries the outcome, whatever it answers."""
    lab = Lab(4)
    id = add(lab)
    stranger = next(i for i in range(4) if id not in lab.nodes[i].jobs)
    holder = next(i for i in range(4) if id in lab.nodes[i].jobs)
    n, other = at(lab, holder), at(lab, stranger)
    copy = copy_of(n, n.slot_of[other.node_id], n.jobs[id], 0)
    assert on_done(n, id, 0, b"42")
    lab.run()
    on_repljob(other, other.slot_of[n.node_id], copy)
    assert known_job(n, n.slot_of[other.node_id], id) is None
    lab.run()
    told, _ = result_fields(other, id)
    assert told is not None and told["result"] == b"42"


def test_a_cancelled_job_is_not_done_while_a_holder_is_away() -> None:
    """W7.3 That a job was cancelled is known until its holders have confirmed it"""
    lab = Lab(3)
    id = add(lab, terms=Terms(3, 1_000, 60_000, 0, b"", 0, 0))
    n, away = at(lab, 0), at(lab, 2)
    end_cancelled(n, n.jobs[id], n.life.by_id[id])
    lab.cut(0, 2)
    lab.cut(1, 2)
    lab.run()
    lab.pass_ms(5_000)
    lives_tick(n)
    assert id in n.jobs and id in at(lab, 1).jobs
    assert outcome_of(n, id) == outcome_of(at(lab, 1), id) == b"cancelled"
    watch(away, 5, [id], 0)
    lab.heal()
    lab.pass_ms(1_000)
    assert outcome_of(away, id) == b"cancelled"
    lab.pass_ms(5_000)
    lives_tick(at(lab, 0))
    assert id not in n.jobs and id not in n.life.kept
    check_lives(n)


def test_a_job_that_came_back_leaves_no_life() -> None:
    """W14.8 A job that comes back where its outcome is kept (an old disk) ends with that outcome;
    its life ends with it.
    """
    lab = Lab(3)
    id = add(lab)
    n = at(lab, 1)
    before = Outcome(id, DONE, n.now_ms + 60_000, n.now_ms)
    before.result = b"first"
    n.life.keep(before, n.limits.results_bytes)
    assert on_done(at(lab, 0), id, 0, b"second")
    lab.run()
    assert id not in n.life.by_id
    check_lives(n)
    told, _ = result_fields(n, id)
    assert told is not None and told["result"] == b"first"


TELLERS: dict[str, Callable[[Node, int, ReplJob], None]] = {
    "replicate": on_repljob,
    "federation": lambda n, slot, copy: on_yourjobs(n, slot, YourJobs(b"q", [copy])),
    "holders": lambda n, slot, copy: on_holders(n, slot, Holders(copy.id, 2)),
    "requeue": lambda n, slot, copy: on_willqueue(n, slot, WillQueue([copy.id])),
    "ask": lambda n, slot, copy: on_ask(n, slot, Ask(1, [copy.id], False, b"")),
}


@pytest.mark.parametrize("teller", TELLERS)
@pytest.mark.parametrize("kind", [DONE, GONE])
def test_a_kept_outcome_refuses_copies_of_its_job(teller: str, kind: int) -> None:
    """W14.11 A kept outcome other than `gone` counts as a tombstone (A8.2): no copy of the job is
    taken here, and who has one gets SETACK with the outcome.
    """
    lab = Lab(4)
    id = add(lab)
    old = at(lab, next(i for i in range(4) if id in lab.nodes[i].jobs))  # its disk is an old one
    n = at(lab, next(i for i in range(4) if id not in lab.nodes[i].jobs))
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
    lab.run()
    told, _ = result_fields(old, id)
    assert told is not None and (told["state"], told["result"]) == (b"done", b"42")


def test_a_run_of_an_earlier_life_is_not_believed() -> None:
    """W14.5 Not so a run from before a REPLAY that the holder knows of, or after one that it does
    not.
    """
    lab = Lab(3)
    id = add(lab)
    assert on_fail(at(lab, 0), id, start(lab, 0, id), -1, b"why", b"", True)[0] == DIED
    lab.run()
    lab.isolate(0)
    letter = letter_of(at(lab, 0), id)
    assert letter is not None and replay(at(lab, 0), letter, b"")
    before = run_of(2, 3, 7)  # of two more STARTs on the other side
    assert run_is_stale(at(lab, 0), id, before)
    assert run_is_stale(at(lab, 1), id, run_of(1, 9, 7, 1))
    assert not run_is_stale(at(lab, 0), id, run_of(2, 3, 7, 1))


def run_is_stale(n: Node, id: bytes, run: int) -> bool:
    """Whether FAIL of that run is refused."""
    _, _, refused = on_fail(n, id, run, -1, b"late", b"", False)
    return refused is not None


def test_a_letter_has_the_cause_of_its_last_failure() -> None:
    """W14.2 A job that died of a failure has the cause of its last one."""
    lab = Lab(3)
    id = add(lab, retry_s=2, terms=Terms(1, 0, 0, 0, b"", 600_000, 0))
    run = start(lab, 0, id)
    lab.run()
    lab.isolate(0)
    assert on_fail(at(lab, 0), id, run, -1, b"why", b"", False)[0] == DIED
    lab.pass_ms(4_000)
    causes = [n.life.by_id[id].dead_cause for n in lab.nodes]
    assert causes == [b"failed", b"crashed", b"crashed"]
    lab.heal()
    lab.pass_ms(3_000)
    for n in lab.nodes:
        life = n.life.by_id[id]
        assert life.last is not None and life.last.cause == life.dead_cause == b"crashed"
        assert n.life.letters[b"q.dead"].reasons == {(life.dead_cause, life.last.reason): 1}
        check_lives(n)


def ended_unheard() -> tuple[Lab, bytes]:
    """Three nodes, a job that is done; nodes 1 and 2 know it, and not that the other one does."""
    lab = Lab(3)
    id = add(lab)
    lab.get(0)
    run = start(lab, 0, id)
    lab.hold(1, 0)
    lab.hold(2, 0)
    assert on_done(at(lab, 0), id, run, b"42")
    lab.run()
    return lab, id


def test_a_client_that_waits_asks_the_holders_again() -> None:
    """W14.13 RESULT without WAIT of a job whose end is not confirmed yet waits for that, one second
    at most. Holders that have not confirmed it are asked again within 50 ms.
    """
    lab, id = ended_unheard()
    lab.die(0)
    for i in (1, 2):
        assert outcome_of(at(lab, i), id) == b""
    watch(at(lab, 1), 5, [id], 0)
    lab.pass_ms(60)
    lab.run()
    for i in (1, 2):
        told, _ = result_fields(at(lab, i), id)
        assert told is not None and (told["state"], told["result"]) == (b"done", b"42")
    assert 5 in lab.served[1]


def test_a_client_hears_when_the_last_silent_holder_is_out_of_reach() -> None:
    """W14.14 RESULT and WAITJOB look again at each confirmation, and when a holder gets out of
    reach.
    """
    lab, id = ended_unheard()
    n = at(lab, 1)
    watch(n, 5, [id], 0)
    lab.cut(1, 2)
    lab.run()
    assert outcome_of(n, id) == b"done"
    assert 5 in lab.served[1]


def test_a_client_hears_of_each_confirmation() -> None:
    """W14.14 RESULT and WAITJOB look again at each confirmation, and when a holder gets out of
    reach.
    """
    lab, id = ended_unheard()
    lab.cut(0, 2)
    n = at(lab, 0)
    watch(n, 5, [id], 0)
    lab.run()
    assert outcome_of(n, id) == b"" and 5 not in lab.served[0]
    lab.release(1, 0)
    lab.run()
    assert outcome_of(n, id) == b"done" and 5 in lab.served[0]
    assert id in n.jobs, "node 2 must still hear of it"


def test_a_cancelled_job_is_not_done_after_a_restart() -> None:
    """W13.8 With KEEP 0 the outcome of a cancelled job that has other holders, or of one that
    DEADLETTER ended, is recorded as well. A load drops it if the job is no longer in the journal:
    then all holders had confirmed it.
    """
    lab = Lab(3, has_journal=True)
    terms = Terms(3, 1_000, 60_000, 0, b"", 0, 0)
    first, second = add(lab, terms=terms), add(lab, terms=terms)
    lab.isolate(2)
    for id in (first, second):
        n = at(lab, 0)
        end_cancelled(n, n.jobs[id], n.life.by_id[id])
        lab.run()
        lab.pass_ms(1_000)
    for i in (0, 1):
        lab.die(i)
        for id in (first, second):
            assert outcome_of(at(lab, i), id) == b"cancelled", f"node {i}"
        lab.link(0, 1)
        lab.run()
    lab.heal()
    lab.pass_ms(6_000)
    for n in lab.nodes:
        n.now_ms = lab.now_ms
        lives_tick(n)
        assert n.jobs == n.life.kept == {}
    for i in range(3):
        lab.die(i)
        lab.revive(i)
        assert at(lab, i).life.kept == {}
        check_lives(at(lab, i))


@pytest.mark.parametrize("by", [0, 1, 2])
def test_a_letter_that_was_cancelled_elsewhere_runs_again(by: int) -> None:
    """W12.4 REPLAY queues the selected jobs in the queue they came from, or in `to`, as new

    W14.2 a cancel flag and death stay.
    """
    lab = Lab(3)
    id = add(lab)
    lab.get(0)
    run = start(lab, 0, id)
    lab.pass_ms(200)
    lab.isolate(1)
    assert cancel(lab, 1, id) == FLAGGED
    assert fail(lab, 0, id, run, is_final=True) == DIED
    lab.heal()
    lab.pass_ms(3_000)
    assert states(lab, id) == ["dead"] * 3
    assert all(life(lab, i, id).is_cancelled for i in range(3))
    letter = letter_of(at(lab, by), id)
    assert letter is not None and replay(at(lab, by), letter, b"")
    lab.pass_ms(1_000)
    assert states(lab, id) == ["waiting"] * 3
    assert lab.get(by) == [id]
    start(lab, by, id)
    assert states(lab, id)[by] == "running", "the new life is not cancelled"
