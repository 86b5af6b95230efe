"""SPEC W with several nodes: what a node missed, and questions to other nodes."""

from __future__ import annotations

import pytest
from test_w_cluster import add, at, fail, life, start, states

from cluster_lab import Lab
from tuque.core.copies.ack import on_deljob
from tuque.core.copies.replicate import copy_of, on_repljob
from tuque.core.life.cancel_update import ENDED, FLAGGED, on_cancel
from tuque.core.life.dead_letters import letter_of, replay
from tuque.core.life.lookup import (
    CANCEL,
    LOOK,
    ask,
    may_ask,
    on_life,
)
from tuque.core.life.outcomes import (
    is_settled,
    on_done,
    outcome_of,
    result_fields,
    watch,
)
from tuque.core.life.runs import BACK, DIED, on_work
from tuque.core.life.start import on_start
from tuque.core.model.errors import DEAD_LETTER
from tuque.core.model.work import (
    FAILED_BY_WORKER,
    LIVE,
    Terms,
    attempt_of,
)
from tuque.core.queues.merge_work import life_message
from tuque.core.records.jobs import Records


@pytest.mark.parametrize("apart", [False, True])
def test_ends_at_one_moment(apart: bool) -> None:
    """All nodes keep the same result, also of one run that is said to be done in three ways."""
    for turn in range(6):
        lab = Lab(3)
        id = add(lab)
        lab.get(0)
        run = start(lab, 0, id)
        lab.pass_ms(60)
        for i in range(3):
            said = run + ((2 - i) << 39 if apart else 0)
            assert on_done(at(lab, (i + turn) % 3), id, said, b"r%d" % i)
        lab.run()
        lab.pass_ms(5_000)
        results = [result_fields(at(lab, i), id)[0] for i in range(3)]
        assert {told["result"] for told in results if told is not None} == {
            b"r2" if apart else b"r0"
        }


def test_a_copy_made_late_hears_what_happened_before() -> None:
    """W14.12 A node that learns of another holder of a job as in W14.10 sends LIFE to it: the copy
    there may be of an earlier moment.
    """
    lab = Lab(4)
    id = add(lab)
    run = start(lab, 0, id)
    lab.run()
    n, late = at(lab, 0), at(lab, 3)
    copy = copy_of(n, n.slot_of[late.node_id], n.jobs[id], 0)
    assert fail(lab, 0, id, run, is_final=True) == DIED
    lab.run()
    on_repljob(late, late.slot_of[n.node_id], copy)
    assert late.life.by_id[id].run_state == LIVE
    lab.run()
    assert late.life.by_id[id].is_dead
    assert late.jobs[id].queue == b"q.dead"


def away(lab: Lab) -> bytes:
    """A job of three copies, and node 0 gone."""
    id = add(lab, retry_s=2, terms=Terms(2, 0, 0, 0, b"", 600_000, 0))
    lab.isolate(0)
    for i in (1, 2, 1, 2, 1, 2, 1, 2):
        lab.pass_ms(1_000)
        if lab.get(i):
            start(lab, i, id)
            return id
    raise AssertionError("nobody got the job")


def back(lab: Lab) -> None:
    """Node 0 is there again."""
    lab.heal()
    lab.run()
    lab.pass_ms(100)


def run_of_others(lab: Lab, id: bytes) -> tuple[int, int]:
    """Who runs the job, and the run."""
    i = next(i for i in (1, 2) if life(lab, i, id).client == 7)
    return i, int(life(lab, i, id).run)


def test_what_a_node_missed() -> None:
    """W14.10 When a link comes up, LIFE goes to the node for each job that it may have and that
    somebody began, cancelled, gave up or replayed; at most 2000 in a turn.
    """
    lab = Lab(3)
    id = away(lab)
    i, run = run_of_others(lab, id)
    fail(lab, i, id, run, is_final=True)
    back(lab)
    assert states(lab, id) == ["dead"] * 3
    refused = on_start(at(lab, 0), id, b"late", 9)
    assert refused is not None and refused.code == DEAD_LETTER

    lab.isolate(0)
    letter = letter_of(at(lab, 1), id)
    assert letter is not None and replay(at(lab, 1), letter, b"")
    lab.run()
    back(lab)
    assert letter_of(at(lab, 0), id) is None
    assert [n.jobs[id].queue for n in lab.nodes] == [b"q"] * 3
    assert states(lab, id) == ["waiting"] * 3

    lab = Lab(3)
    id = away(lab)
    i, run = run_of_others(lab, id)
    fail(lab, i, id, run)
    back(lab)
    assert life(lab, 0, id).failed == 1

    lab = Lab(3)
    id = away(lab)
    i, run = run_of_others(lab, id)
    assert on_cancel(at(lab, i), id, b"why")[0] == FLAGGED
    lab.run()
    back(lab)
    assert life(lab, 0, id).is_cancelled and life(lab, 0, id).cancel_reason == b"why"


def test_a_beat_writes_nothing_at_the_other_holders() -> None:
    """W13.1 WORKING and PROGRESS write no life: progress since the last one is lost."""
    lab = Lab(3)
    id = add(lab)
    lab.get(0)
    run = start(lab, 0, id)
    lab.pass_ms(60)
    records = at(lab, 1).records = Records()
    lab.pass_ms(5_000)
    assert on_work(at(lab, 0), id, run, 7) is None
    lab.run()
    assert life(lab, 1, id).run == run and records.count == 0
    fail(lab, 0, id, run)
    assert records.count > 0


@pytest.mark.parametrize("clock", [-(2**63), -1, 2**53, 2**63 - 1])
def test_a_life_with_no_clock(clock: int) -> None:
    """B2.1 Its length is bounded. Counts are checked against the bytes left before anything is
    allocated, and every field against its range before a rule sees it.
    """
    lab = Lab(3)
    id = add(lab)
    lab.get(0)
    start(lab, 0, id)
    data = life_message(at(lab, 0), lab.nodes[0].jobs[id])
    data.life = clock.to_bytes(8, "little", signed=True) + data.life[8:]
    on_life(at(lab, 1), lab.slot(1, 0), data)
    assert life(lab, 1, id).run == 0
    lab.run()


def test_questions_to_holders() -> None:
    """W15.1 The node asks all linked nodes, and its client waits.

    W15.2 A node that has the job or its outcome replies with the fields of RESULT, or cancels the
    job (W8) and says what became of it. Any other replies that it does not know the job.

    W15.3 If no node knows the job, it is not known (W9.1, W9.2).

    W15.4 While a client waits, the question is repeated every second.
    """
    lab = Lab(4)
    id = add(lab)
    stranger = next(i for i in range(4) if id not in lab.nodes[i].jobs)
    n = at(lab, stranger)
    assert may_ask(n, id)
    watch(n, 5, [id], 0)
    ask(n, id, LOOK)
    lab.run()
    told, _ = result_fields(n, id)
    assert told is not None and told["state"] == b"waiting"
    assert not is_settled(n, id)
    server = next(i for i in range(4) if lab.nodes[i].queues.get(b"q") and lab.get(i))
    run = start(lab, server, id)
    assert on_done(at(lab, server), id, run, b"42")
    lab.pass_ms(1_100)
    told, _ = result_fields(at(lab, stranger), id)
    assert told is not None and (told["state"], told["result"]) == (b"done", b"42")
    assert is_settled(n, id) and outcome_of(n, id) == b"done"
    n.life.unwatch(5)
    assert not n.life.asking
    other = add(lab)
    stranger = next(i for i in range(4) if other not in lab.nodes[i].jobs)
    n = at(lab, stranger)
    watch(n, 6, [other], 0)
    ask(n, other, CANCEL, b"why")
    lab.run()
    assert n.life.cancelling[other].became == ENDED
    assert "waiting" not in states(lab, other)
    gone = add(lab)
    for node in lab.nodes:
        if gone in node.jobs:
            on_deljob(node, gone)
    watch(n, 7, [gone], 0)
    ask(n, gone, LOOK)
    lab.run()
    assert is_settled(n, gone) and outcome_of(n, gone) == b"gone"


def test_silence_that_a_node_could_not_hear() -> None:
    """W6.1 Only silence that the node could have heard counts: none does while its journal fails
    (J6.1). Each run gets a whole RETRY after that, after a start of the node (W13.3), after its
    process stood still for over a second, and after a link to another holder came up.
    """
    lab = Lab(3)
    id = add(lab)
    lab.get(0)
    start(lab, 0, id)
    lab.pass_ms(25_000)
    at(lab, 0).life.deaf_ms = lab.now_ms
    lab.isolate(0)
    lab.pass_ms(29_000)
    assert life(lab, 0, id).failed == 0
    lab.pass_ms(2_500)
    assert life(lab, 0, id).failed == 1

    lab = Lab(1)
    id = add(lab)
    lab.get(0)
    start(lab, 0, id)
    records = at(lab, 0).records = Records(at(lab, 0).node_ids)
    records.is_failing = True
    lab.pass_ms(90_000)
    assert life(lab, 0, id).failed == 0
    records.is_failing = False
    at(lab, 0).life.deaf_ms = lab.now_ms
    lab.pass_ms(29_000)
    assert life(lab, 0, id).failed == 0
    lab.pass_ms(2_500)
    assert life(lab, 0, id).failed == 1

    lab = Lab(3)
    id = add(lab)
    lab.get(0)
    start(lab, 0, id)
    lab.isolate(0)
    lab.pass_ms(28_000)
    lab.link(0, 1)
    lab.hold(1, 0)
    lab.pass_ms(20_000)
    assert life(lab, 0, id).failed == 0
    lab.pass_ms(12_000)
    assert life(lab, 0, id).failed == 1


def test_a_dead_letter_outlasts_a_week_and_two_of_its_holders() -> None:
    """W6.5 A dead job moves to its queue of dead letters under the same id and is queued there. It
    expires after `dead-keep-days`.
    """
    lab = Lab(3)
    id = add(lab, retry_s=600, terms=Terms(3, 1_000, 1_000, 0, b"", 600_000, 0), ttl_s=3_600)
    for attempt in (1, 2, 3):
        assert lab.get(0) == [id]
        assert fail(lab, 0, id, start(lab, 0, id)) == (BACK if attempt < 3 else DIED)
        lab.pass_ms(1_200)
    lab.die(0)
    lab.die(1)
    n = at(lab, 2)
    n.now_ms = lab.now_ms = lab.now_ms + 7 * 86_400_000
    letter = letter_of(n, id)
    assert letter is not None and letter.job.body == b"body"
    assert (letter.life.failed, letter.life.origin) == (3, b"q")
    assert (letter.life.dead_cause, letter.life.last and letter.life.last.reason) == (
        FAILED_BY_WORKER,
        b"no",
    )
    assert replay(n, letter, b"")
    lab.run()
    assert lab.get(2) == [id]
    assert on_start(n, id, b"w", 7) is None
    mine = life(lab, 2, id)
    assert (attempt_of(mine.run), mine.starts, mine.failed) == (1, 4, 0)
