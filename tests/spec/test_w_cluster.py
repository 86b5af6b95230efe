"""SPEC W with several nodes: what the holders of a job know of its life."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from tuque.core.life.cancel_update import ENDED, FLAGGED
from tuque.core.life.dead_letters import letter_of, replay
from tuque.core.life.lookup import may_ask
from tuque.core.life.outcomes import is_elsewhere, is_settled, on_done
from tuque.core.life.runs import on_fail, on_release, on_work
from tuque.core.life.start import on_start
from tuque.core.model.errors import CANCELLED_JOB, STALE_RUN
from tuque.core.model.job import ACTIVE, QUEUED
from tuque.core.model.work import (
    CANCELLED,
    DONE,
    FAILED,
    LIVE,
    NO_TERMS,
    RELEASED,
    Failure,
    Life,
    Outcome,
    Terms,
    hash_of,
    run_of,
)
from tuque.core.msgs.bus import LifeAt
from tuque.core.work.merge import is_better, merge
from tuque.core.work.rules import BACK, DIED
from world import World
from world_lives import (
    TERMS,
    add,
    at,
    cancel,
    fail,
    got_at,
    known,
    life,
    phases,
    start,
    stranger,
    told,
)

Make = Callable[..., World]
DROPS = Terms(3, 60_000, 60_000, 0, b"", 0, 0, True)


def test_copies_expire_without_a_letter(make_world: Make) -> None:
    """W6.2 With ONEXPIRY drop so does one of which no attempt failed"""
    world = make_world(3, journal="off")
    failed = add(world, terms=DROPS, ttl_s=20)
    for i in range(3):
        assert life(world, i, failed).terms.drops
    i = got_at(world, failed, 0, 1, 2)
    waits = add(world, terms=DROPS, ttl_s=20)
    assert fail(world, i, failed, start(world, i, failed)) == BACK
    world.pass_ms(21_000)
    assert not any(waits in at(world, i).jobs for i in range(3))
    assert phases(world, failed) == ["dead"] * 3


def test_copies_know_terms_and_runs(make_world: Make) -> None:
    """W14.1 REPLJOB and YOURJOBS carry the work of the job. Each change of it goes to the other
    holders as LIFE, with the queue.
    """
    world = make_world(3, journal="off")
    id = add(world)
    for i in range(3):
        assert life(world, i, id).terms.key() == TERMS.key()
        assert life(world, i, id).headers == b"\x01k\x01\x00v"
    assert world.at(0).get() == [id]
    run = start(world, 0, id)
    world.pass_ms(60)
    assert [life(world, i, id).run for i in range(3)] == [run] * 3
    assert phases(world, id) == ["running"] * 3
    assert fail(world, 0, id, run) == BACK
    for i in range(3):
        mine = life(world, i, id)
        assert mine.failed == 1 and mine.last is not None and mine.last.reason == b"no"


def test_attempts_survive_the_loss_of_holders(make_world: Make) -> None:
    """A job that failed at one node goes on at another one with its next attempt."""
    world = make_world(3, journal="off")
    id = add(world)
    world.at(0).get()
    assert fail(world, 0, id, start(world, 0, id)) == BACK
    world.isolate(0)
    world.isolate(1)
    assert got_at(world, id, 2) == 2
    run = start(world, 2, id)
    assert run >> 23 & 0xFFFF == 2
    assert fail(world, 2, id, run) == BACK


def test_short_runs_are_not_told(make_world: Make) -> None:
    """W14.3 A run that lasts 50 ms is announced to the other holders; at once if RETRY is 5 s or
    less, this is the last attempt, or the job has crashed before.
    """
    world = make_world(3, journal="off")
    id = add(world)
    world.at(0).get()
    world.forget_heard()
    run = start(world, 0, id)
    assert on_done(at(world, 0), id, run, b"42")
    world.pass_ms(200)
    assert world.heard(LifeAt) == []
    for retry_s, terms in ((5, TERMS), (30, Terms(1, 0, 0, 0, b"", 0, 0))):
        other = add(world, retry_s=retry_s, terms=terms)
        world.at(0).get()
        world.forget_heard()
        start(world, 0, other)
        assert len(world.heard(LifeAt)) == 2
        on_done(at(world, 0), other, 0, None)


def test_silence_is_counted_once(make_world: Make) -> None:
    """Two holders that see one silence write the same number."""
    world = make_world(3, journal="off")
    id = add(world, retry_s=6)
    world.at(0).get()
    start(world, 0, id)
    world.pass_ms(60)
    world.isolate(0)  # its worker goes on there, and beats
    for _ in range(5):
        world.pass_ms(2_000)
        on_work(at(world, 0), id, life(world, 0, id).run, 7)
    assert life(world, 0, id).crashes == 0
    assert {life(world, i, id).crashes for i in (1, 2)} == {1}
    world.link()
    world.pass_ms(100)
    world.settle()


def test_a_stale_worker_hears_of_the_newer_run(make_world: Make) -> None:
    """W14.7 WORKING and PROGRESS of a run send LIFE. A node that receives an older one than it
    has replies with its own
    """
    world = make_world(3, journal="off")
    id = add(world, retry_s=6)
    world.at(0).get()
    old = start(world, 0, id)
    world.pass_ms(60)
    world.isolate(0)
    there = new = 0
    for _ in range(20):
        world.pass_ms(1_000)
        on_work(at(world, 0), id, old, 7)
        for i in (1, 2):
            if new == 0 and world.states(id)[i] == QUEUED and world.at(i).get():
                there, new = i, start(world, i, id, b"other")
        if new:
            on_work(at(world, there), id, new, 8)
    assert new > old
    at(world, 0).life.calls.clear()
    world.link()
    world.settle()
    on_work(at(world, there), id, new, 8)
    world.pass_ms(1_100)
    refused = on_work(at(world, 0), id, old, 7)
    assert refused is not None and refused.code == STALE_RUN


@pytest.mark.parametrize("where", [0, 1, 2])
def test_cancel_at_any_holder(make_world: Make, where: int) -> None:
    """W8.1 Nobody has the job: it ends with the outcome `cancelled`.

    W8.2 A worker has it: the job is flagged.
    """
    world = make_world(3, journal="off")
    waiting, running = add(world), add(world)
    assert cancel(world, where, waiting) == ENDED
    assert phases(world, waiting) == ["cancelled"] * 3
    assert world.at(0).get() == [running]
    run = start(world, 0, running)
    world.pass_ms(60)
    assert cancel(world, where, running) == FLAGGED
    assert all(life(world, i, running).is_cancelled for i in range(3))
    refused = on_work(at(world, 0), running, run, 7)
    assert refused is not None and refused.code == CANCELLED_JOB
    assert on_release(at(world, 0), running, run, 0)
    world.settle()
    assert phases(world, running) == ["cancelled"] * 3


def test_result_at_every_holder(make_world: Make) -> None:
    """W14.4 SETACK carries the outcome, also as an answer.

    W14.4 RESULT and WAITJOB show an outcome once all reachable holders have confirmed the end.
    """
    world = make_world(3, journal="off")
    id = add(world)
    world.at(0).get()
    run = start(world, 0, id)
    world.hold(1, 0)
    assert on_done(at(world, 0), id, run, b"42")
    world.settle()
    result = known(world, 0, id)
    assert (result["state"], result["result"]) == (b"running", None)
    world.release(1, 0)
    world.restart(0)
    for i in (1, 2):
        result = known(world, i, id)
        assert (result["state"], result["result"], result["worker"]) == (b"done", b"42", b"w")


def test_two_ends_of_one_job(make_world: Make) -> None:
    """W14.4 of two `done` that of the lower token, then the lower result

    W14.15 A node that sees two outcomes of one job counts the job once (`outcomes_conflicting` of
    INFO)
    """
    world = make_world(3, journal="off")
    id = add(world)
    world.at(0).get()
    run = start(world, 0, id)
    world.pass_ms(60)
    world.isolate(2)
    assert on_done(at(world, 2), id, run, b"first")
    other = run + (1 << 39)
    assert on_done(at(world, 0), id, other, b"second")
    world.settle()
    world.link()
    world.pass_ms(3_000)
    for i in range(3):
        assert known(world, i, id)["result"] == b"first"
    seen = [n.life.conflicts for n in world.cores]
    assert sum(seen) > 0 and max(seen) == 1, seen
    assert {n.life.conflict_id for n in world.cores} <= {id, b""}
    third = add(world)
    assert on_done(at(world, 0), third, 0, b"x")
    assert not on_done(at(world, 1), third, 0, b"x") or world.settle() is None
    world.pass_ms(3_000)
    assert [n.life.conflicts for n in world.cores] == seen, "the same outcome twice"
    ends = [Outcome(id, CANCELLED, 1, 1), Outcome(id, DONE, 1, 1)]
    assert is_better(ends[0], ends[1]) and not is_better(ends[1], ends[0])


def test_dead_at_every_holder(make_world: Make) -> None:
    """A dead letter survives the loss of all but one holder."""
    world = make_world(3, journal="off")
    id = add(world)
    world.at(0).get()
    assert fail(world, 0, id, start(world, 0, id), is_final=True) == DIED
    world.settle()
    assert phases(world, id) == ["dead"] * 3
    assert [n.jobs[id].queue for n in world.cores] == [b"q.dead"] * 3
    assert [n.jobs[id].state for n in world.cores] == [QUEUED, ACTIVE, ACTIVE]
    world.restart(0)
    world.restart(1)
    letter = letter_of(at(world, 2), id)
    assert letter is not None and letter.life.last is not None
    assert (letter.life.last.reason, letter.life.origin) == (b"no", b"q")
    assert replay(at(world, 2), letter, b"")
    assert world.at(2).get() == [id]
    assert start(world, 2, id) >> 23 & 0xFFFF == 1


@pytest.mark.parametrize("is_replayed", [False, True])
def test_who_waits_at_another_holder_hears_of_a_death(make_world: Make, is_replayed: bool) -> None:
    """W9.2 WAITJOB replies when all jobs, or COUNT of them, have ended or are dead: an array of
    `[id, outcome]` of these.
    """
    world = make_world(3, journal="off")
    id = add(world)
    world.at(0).get()
    if is_replayed:
        fail(world, 0, id, start(world, 0, id), is_final=True)
        world.settle()
        letter = letter_of(at(world, 0), id)
        assert letter is not None and replay(at(world, 0), letter, b"")
        world.settle()
        world.at(0).get()
    for i in range(3):
        assert world.at(i, 5)("WAITJOB", 0, id) is None
    assert fail(world, 0, id, start(world, 0, id), is_final=True) == DIED
    world.settle()
    for i in range(3):
        assert world.at(i, 5).take() == [[id, b"dead"]]
    assert all(is_settled(n, id) for n in world.cores)


@pytest.mark.parametrize("how", ["final", "fail", "release"])
def test_end_of_a_run_at_another_node(make_world: Make, how: str) -> None:
    """W14.9 A node that queues a job whose run has ended sends LIFE before QUEUED (Q4.5)."""
    world = make_world(3, journal="off")
    id = add(world, retry_s=300)
    world.at(0).get()
    run = start(world, 0, id)
    world.pass_ms(200)
    if how == "release":
        assert on_release(at(world, 1), id, run, 0)
    else:
        fail(world, 1, id, run, is_final=how == "final")
    world.settle()
    world.pass_ms(1_500)
    assert world.states(id) == [ACTIVE, QUEUED, ACTIVE]
    assert world.at(1).get(at(world, 1).jobs[id].queue) == [id]


def test_replay_is_told(make_world: Make) -> None:
    """Another holder replays a dead letter: a FAIL of the life before is stale everywhere."""
    world = make_world(3, journal="off")
    id = add(world)
    world.at(0).get()
    run = start(world, 0, id)
    assert fail(world, 0, id, run, is_final=True) == DIED
    world.settle()
    letter = letter_of(at(world, 1), id)
    assert letter is not None and replay(at(world, 1), letter, b"")
    world.settle()
    assert "dead" not in phases(world, id)
    assert [life(world, i, id).failed for i in range(3)] == [0, 0, 0]
    assert [n.jobs[id].queue for n in world.cores] == [b"q"] * 3
    assert sum(n.jobs[id].state == QUEUED for n in world.cores) == 1
    _, _, refused = on_fail(at(world, 0), id, run, -1, b"", b"", False)
    assert refused is not None
    assert world.at(1).get() == [id]
    assert fail(world, 1, id, start(world, 1, id), is_final=True) == DIED
    world.settle()
    assert phases(world, id) == ["dead"] * 3


def test_a_worker_whose_node_died(make_world: Make) -> None:
    """W14.5 A worker that names a later run than the holder knows is believed."""
    world = make_world(3, journal="off")
    id = add(world)
    world.at(0).get()
    assert on_start(at(world, 0), id, b"w", 7) is None
    run = int(life(world, 0, id).run)
    world.restart(0)
    assert on_work(at(world, 1), id, run, 7) is None
    assert fail(world, 1, id, run) == BACK
    assert life(world, 2, id).failed == 1


def test_done_at_a_node_without_the_job(make_world: Make) -> None:
    """W14.6 DONE at a node without the job works as in A3.4, with the result. That node shows
    what the holders know (W15).
    """
    world = make_world(4, journal="off")
    id = add(world)
    elsewhere = stranger(world, id)
    on_done(at(world, elsewhere), id, 0, b"42", 9)
    world.pass_ms(2_000)
    assert not is_elsewhere(at(world, 0), id)
    for i in range(4):
        assert not may_ask(at(world, i), id) or i == elsewhere
        result = told(world, i, id) if may_ask(at(world, i), id) else known(world, i, id)
        assert result["result"] == b"42"


def test_done_of_a_made_up_id(make_world: Make) -> None:
    """N11.7 A DONE of an id that no node of the cluster made (G6.5) keeps nothing."""
    world = make_world(2, journal="off")
    n = at(world, 1)
    made_up = b"D-c0ffee00-" + b"A" * 24 + b"-05a1"
    on_done(n, made_up, 0, b"x" * 1_000, 9)
    assert (len(n.life.kept), len(n.jobs)) == (0, 0)
    genuine = n.ids.make(60, 1)
    on_done(n, genuine, 0, b"42", 9)
    assert list(n.life.kept) == [genuine]


def test_merge_in_any_order() -> None:
    """W14.2 Two views become one by rules that give the same in any order: more REPLAYs win
    whole; of `failed`, `crashes` and STARTs the greater; of two runs the higher token, and of
    one token the later state; the earliest first and the latest last failure; a cancel flag and
    death stay.
    """
    rng = random.Random(7)
    for _ in range(300):
        views = [view(rng) for _ in range(3)]
        ends = set()
        for order in itertools.permutations(range(3)):
            mine = copy(views[order[0]])
            for i in order[1:] + order[:2]:
                merge(mine, copy(views[i]))
            ends.add(facts(mine))
        assert len(ends) == 1, ends


def view(rng: random.Random) -> Life:
    """What one holder may know."""
    made = Life(NO_TERMS, b"")
    made.replays = rng.randrange(2)
    made.failed = rng.randrange(3)
    made.starts = 1 + rng.randrange(3)
    made.run = run_of(1 + made.starts % 2, made.starts, hash_of(b"w%d" % rng.randrange(2)))
    made.run_state = rng.choice([LIVE, RELEASED, FAILED])
    made.is_cancelled = rng.random() < 0.3
    if rng.random() < 0.7:
        attempt = 1 + rng.randrange(3)
        made.first = made.last = Failure(attempt * 100, attempt, b"", b"", b"%d" % attempt, b"")
    return made


def copy(of: Life) -> Life:
    """The same view again."""
    made = Life(of.terms, of.headers)
    made.replays, made.failed, made.starts = of.replays, of.failed, of.starts
    made.run, made.run_state, made.is_cancelled = of.run, of.run_state, of.is_cancelled
    made.first, made.last = of.first, of.last
    return made


def facts(of: Life) -> tuple[object, ...]:
    """What must be the same in the end."""
    first = of.first.reason if of.first is not None else b""
    last = of.last.reason if of.last is not None else b""
    numbers = (of.replays, of.failed, of.starts, of.run, of.run_state)
    return (*map(int, numbers), of.is_cancelled, first, last)
