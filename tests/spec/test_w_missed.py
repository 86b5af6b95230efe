"""SPEC W with several nodes: what a node missed, and questions to other nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tuque.core.copies.ack import on_deljob
from tuque.core.copies.replicate import copy_of, on_repljob
from tuque.core.life.cancel_update import FLAGGED, on_cancel
from tuque.core.life.dead_letters import letter_of, replay
from tuque.core.life.lookup import may_ask, on_life
from tuque.core.life.outcomes import is_settled, on_done
from tuque.core.life.runs import on_work
from tuque.core.life.start import on_start
from tuque.core.model.errors import DEAD_LETTER
from tuque.core.model.work import (
    FAILED_BY_WORKER,
    LIVE,
    Terms,
    attempt_of,
)
from tuque.core.queues.work_copies import life_message
from tuque.core.records.jobs import LIFE, VOTE_MARKS
from tuque.core.work.rules import BACK, DIED
from world import World
from world_lives import add, at, fail, fields, got_at, known, life, phases, start, stranger

Make = Callable[..., World]


@pytest.mark.parametrize("apart", [False, True])
def test_ends_at_one_moment(make_world: Make, apart: bool) -> None:
    """All nodes keep the same result, also of one run that is said to be done in three ways."""
    for turn in range(6):
        world = make_world(3, journal="off")
        id = add(world)
        world.at(0).get()
        run = start(world, 0, id)
        world.pass_ms(60)
        for i in range(3):
            said = run + ((2 - i) << 39 if apart else 0)
            assert on_done(at(world, (i + turn) % 3), id, said, b"r%d" % i)
        world.settle()
        world.pass_ms(5_000)
        results = {known(world, i, id)["result"] for i in range(3)}
        assert results == {b"r2" if apart else b"r0"}


def test_a_copy_made_late_hears_what_happened_before(make_world: Make) -> None:
    """W14.12 A node that learns of another holder of a job as in W14.10 sends LIFE to it."""
    world = make_world(4, journal="off")
    id = add(world)
    run = start(world, 0, id)
    n, late = at(world, 0), at(world, stranger(world, id))
    copy = copy_of(n, n.slot_of[late.node_id], n.jobs[id], 0)
    assert fail(world, 0, id, run, is_final=True) == DIED
    world.settle()
    on_repljob(late, late.slot_of[n.node_id], copy)
    assert late.life.by_id[id].run_state == LIVE
    world.settle()
    assert late.life.by_id[id].is_dead
    assert late.jobs[id].queue == b"q.dead"


def away(world: World) -> bytes:
    """A job of three copies, and node 0 gone."""
    id = add(world, retry_s=2, terms=Terms(2, 0, 0, 0, b"", 600_000, 0))
    world.isolate(0)
    start(world, got_at(world, id, 1, 2), id)
    return id


def back(world: World) -> None:
    """Node 0 is there again."""
    world.link()
    world.settle()
    world.pass_ms(100)


def run_of_others(world: World, id: bytes) -> tuple[int, int]:
    """Who runs the job, and the run."""
    i = next(i for i in (1, 2) if life(world, i, id).client == 7)
    return i, int(life(world, i, id).run)


def test_what_a_node_missed(make_world: Make) -> None:
    """W14.10 On a new link LIFE goes to the node for each job that it may have and that somebody
    began, cancelled, replayed or made a dead letter; at most 2000 in a turn.
    """
    world = make_world(3, journal="off")
    id = away(world)
    i, run = run_of_others(world, id)
    fail(world, i, id, run, is_final=True)
    back(world)
    assert phases(world, id) == ["dead"] * 3
    refused = on_start(at(world, 0), id, b"late", 9)
    assert refused is not None and refused.code == DEAD_LETTER

    world.isolate(0)
    letter = letter_of(at(world, 1), id)
    assert letter is not None and replay(at(world, 1), letter, b"")
    world.settle()
    back(world)
    assert letter_of(at(world, 0), id) is None
    assert [n.jobs[id].queue for n in world.cores] == [b"q"] * 3
    assert phases(world, id) == ["waiting"] * 3

    world = make_world(3, journal="off")
    id = away(world)
    i, run = run_of_others(world, id)
    fail(world, i, id, run)
    back(world)
    assert life(world, 0, id).failed == 1

    world = make_world(3, journal="off")
    id = away(world)
    i, run = run_of_others(world, id)
    assert on_cancel(at(world, i), id, b"why")[0] == FLAGGED
    world.settle()
    back(world)
    assert life(world, 0, id).is_cancelled and life(world, 0, id).cancel_reason == b"why"


def written(world: World) -> list[int]:
    """The kinds of what node 1 recorded of jobs since the last call."""
    return [record.kind for record in world.node(1).records() if record.kind != VOTE_MARKS]


def test_a_beat_writes_nothing_at_the_other_holders(make_world: Make) -> None:
    """W13.1 WORKING and PROGRESS write none: progress since the last one is lost."""
    world = make_world(3)
    id = add(world)
    world.at(0).get()
    run = start(world, 0, id)
    world.pass_ms(60)
    written(world)
    world.pass_ms(5_000)
    assert on_work(at(world, 0), id, run, 7) is None
    world.settle()
    assert life(world, 1, id).run == run and written(world) == []
    fail(world, 0, id, run)
    assert LIFE in written(world)


@pytest.mark.parametrize("clock", [-(2**63), -1, 2**53, 2**63 - 1])
def test_a_life_with_no_clock(make_world: Make, clock: int) -> None:
    """B2.1 Its length is bounded. Counts are checked against the bytes left before anything is
    allocated, and every field against its range before a rule sees it.
    """
    world = make_world(3, journal="off")
    id = add(world)
    world.at(0).get()
    start(world, 0, id)
    data = life_message(at(world, 0), at(world, 0).jobs[id])
    data.life = clock.to_bytes(8, "little", signed=True) + data.life[8:]
    on_life(at(world, 1), world.slot(1, 0), data)
    assert life(world, 1, id).run == 0
    world.settle()


@pytest.mark.parametrize("is_good", [True, False])
@pytest.mark.parametrize(
    ("place", "size", "last"),
    [
        (18, 4, (1 << 30) - 1),  # deliveries without START
        (54, 8, (1 << 61) - 1),  # replays
        (102, 8, (1 << 61) - 1),  # serial
        (110, 8, (1 << 61) - 1),  # number of the last UPDATEJOB
    ],
)
def test_a_life_that_could_not_grow(
    make_world: Make, place: int, size: int, last: int, is_good: bool
) -> None:
    """B2.1 Counters of a job are below 2^30

    Here they grow further, in records that the journal must take.
    """
    world = make_world(3, journal="off")
    id = add(world)
    world.at(0).get()
    run = start(world, 0, id)
    data = life_message(at(world, 0), at(world, 0).jobs[id])
    begin = 8 + 5 + 40 + place  # clock; length, kind, id
    value = (last if is_good else last + 1).to_bytes(size, "little")
    data.life = data.life[:begin] + value + data.life[begin + size :]
    on_life(at(world, 1), world.slot(1, 0), data)
    assert life(world, 1, id).run == (run if is_good else 0)


def test_questions_to_holders(make_world: Make) -> None:
    """W15.1 The node asks all linked nodes, and its client waits.

    W15.2 A node that has the job or its outcome replies with the fields of RESULT, or cancels
    the job (W8) and replies what became of it. Any other replies that it does not know the job.

    W15.3 If no node knows the job, it is not known (W9.1, W9.2).

    W15.4 While a client waits, the question is repeated every second.
    """
    world = make_world(4, journal="off")
    id = add(world)
    away = stranger(world, id)
    n, client = at(world, away), world.at(away, 5)
    assert may_ask(n, id)
    assert client("RESULT", id, "WAIT", 0) is None
    assert known(world, away, id)["state"] == b"waiting"
    assert not is_settled(n, id)
    server = next(i for i in range(4) if at(world, i).queues.get(b"q") and world.at(i).get())
    run = start(world, server, id)
    assert on_done(at(world, server), id, run, b"42")
    assert client.take() is None, "it asks once a second"
    world.pass_ms(1_100)
    result = fields(client.take())
    assert (result["state"], result["result"]) == (b"done", b"42")
    assert not n.life.asking
    assert world.at(away)("WAITJOB", 0, id) == [[id, b"done"]]
    other = add(world)
    assert world.at(stranger(world, other))("CANCEL", "REASON", "why", other) == [b"ended"]
    assert "waiting" not in phases(world, other)
    gone = add(world)
    client = world.at(stranger(world, gone), 7)
    for node in world.cores:
        if gone in node.jobs:
            on_deljob(node, gone)
    assert client("WAITJOB", 0, gone) == [[gone, b"gone"]]


def test_silence_that_a_node_could_not_hear(make_world: Make) -> None:
    """W6.1 Only silence that the node could have heard counts: none does while its journal fails
    (J6.1). Each run gets a whole RETRY after that, after a start of the node (W13.3), after its
    process stood still for over a second, and after a link to another holder came up.
    """
    world = make_world(3, journal="off")
    id = add(world)
    world.at(0).get()
    start(world, 0, id)
    world.pass_ms(25_000)
    world.stall(0, 3_000)
    world.pass_ms(3_000)
    world.isolate(0)
    world.pass_ms(29_000)
    assert life(world, 0, id).crashes == 0
    world.pass_ms(2_500)
    assert life(world, 0, id).crashes == 1

    world = make_world(1, journal="always")
    id = add(world, replicate=1)
    world.get()
    start(world, 0, id)
    world.disk().full()
    world.run.put(b"ADDJOB other body 0\r\n")  # the journal fails when it has something to write
    world.pass_ms(90_000)
    assert world.n.records is not None and world.n.records.is_failing
    assert life(world, 0, id).crashes == 0
    world.disk().well()
    world.until(lambda: not world.n.records.is_failing)
    world.pass_ms(29_000)
    assert life(world, 0, id).crashes == 0
    world.pass_ms(2_500)
    assert life(world, 0, id).crashes == 1

    world = make_world(3, journal="off", cluster_node_timeout=60_000)
    id = add(world)
    world.at(0).get()
    start(world, 0, id)
    world.isolate(0)
    world.pass_ms(28_000)
    world.link(0, 1)
    world.hold(1, 0)
    world.pass_ms(20_000)
    assert life(world, 0, id).crashes == 0
    world.pass_ms(12_000)
    assert life(world, 0, id).crashes == 1


def test_a_dead_letter_outlasts_a_week_and_two_of_its_holders(make_world: Make) -> None:
    """W6.5 A dead job moves to its queue of dead letters under the same id and is queued there. It
    expires after `dead-keep-days`.
    """
    world = make_world(3, journal="off")
    id = add(world, retry_s=600, terms=Terms(3, 1_000, 1_000, 0, b"", 600_000, 0), ttl_s=3_600)
    for attempt in (1, 2, 3):
        assert world.at(0).get() == [id]
        assert fail(world, 0, id, start(world, 0, id)) == (BACK if attempt < 3 else DIED)
        world.pass_ms(1_200)
    world.kill(0)
    world.kill(1)
    world.jump_ms(7 * 86_400_000)
    n = at(world, 2)
    letter = letter_of(n, id)
    assert letter is not None and letter.job.body == b"body"
    assert (letter.life.failed, letter.life.origin) == (3, b"q")
    assert (letter.life.dead_cause, letter.life.last and letter.life.last.reason) == (
        FAILED_BY_WORKER,
        b"no",
    )
    assert replay(n, letter, b"")
    world.settle()
    assert world.at(2).get() == [id]
    assert on_start(n, id, b"w", 7) is None
    mine = life(world, 2, id)
    assert (attempt_of(mine.run), mine.starts, mine.failed) == (1, 4, 0)
