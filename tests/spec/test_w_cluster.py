"""SPEC W with several nodes: what the holders of a job know of its life."""

from __future__ import annotations

import itertools
import random

import pytest

from cluster_lab import Lab
from tuque.core.copies.add import on_addjob, settle
from tuque.core.life.cancel_update import ENDED, FLAGGED, on_cancel
from tuque.core.life.dead_letters import letter_of, replay
from tuque.core.life.lookup import LOOK, ask, may_ask
from tuque.core.life.outcomes import (
    is_elsewhere,
    is_settled,
    on_done,
    result_fields,
    watch,
)
from tuque.core.life.runs import BACK, DIED, on_fail, on_release, on_work
from tuque.core.life.start import on_start
from tuque.core.model.errors import CANCELLED_JOB, STALE_RUN
from tuque.core.model.job import ACTIVE, QUEUED, AddSpec
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
from tuque.core.msgs import LifeAt
from tuque.core.node.node import Node
from tuque.core.queues.merge_work import is_better, merge

TERMS = Terms(3, 1_000, 60_000, 0, b"", 600_000, 0)


def add(lab: Lab, i: int = 0, retry_s: int = 30, terms: Terms = TERMS, ttl_s: int = 3_600) -> bytes:
    """A job of three copies with terms and a header."""
    n = at(lab, i)
    spec = AddSpec()
    spec.replicate, spec.retry_s, spec.ttl_s = 3, retry_s, ttl_s
    spec.terms, spec.headers = terms, b"\x01k\x01\x00v"
    job = on_addjob(n, b"q", b"body", settle(n, spec), 1, 0, 5_000)
    lab.run()
    return job.id


def at(lab: Lab, i: int) -> Node:
    """Node i, its clock set."""
    lab.nodes[i].now_ms = lab.now_ms
    return lab.nodes[i]


def life(lab: Lab, i: int, id: bytes) -> Life:
    """The life as node i knows it."""
    return lab.nodes[i].life.by_id[id]


def start(lab: Lab, i: int, id: bytes, worker: bytes = b"w") -> int:
    """START at node i; the run."""
    assert on_start(at(lab, i), id, worker, 7) is None
    run = int(life(lab, i, id).run)
    lab.run()
    return run


def fail(lab: Lab, i: int, id: bytes, run: int, is_final: bool = False) -> int:
    """FAIL at node i; what became of the job."""
    became, _, refused = on_fail(at(lab, i), id, run, -1, b"no", b"trace", is_final)
    assert refused is None, refused.code
    lab.run()
    return int(became)


def cancel(lab: Lab, i: int, id: bytes) -> int:
    """CANCEL at node i; what became of the job."""
    became, refused, change = on_cancel(at(lab, i), id, b"why")
    assert refused is None
    lab.run()
    if change is None:
        return int(became)
    assert change.is_over
    return int(change.became)


def states(lab: Lab, id: bytes) -> list[str]:
    """The phase of the job at each node."""
    found = []
    for n in lab.nodes:
        told, _ = result_fields(n, id)
        word = told["state"] if told is not None else b"unknown"
        assert isinstance(word, bytes)
        found.append(word.decode())
    return found


def test_copies_know_terms_and_runs() -> None:
    """W14.1 REPLJOB and YOURJOBS carry the life of the job. Each change of it goes to the other
    holders as LIFE: options, headers, runs, failures, flags, and the queue.
    """
    lab = Lab(3)
    id = add(lab)
    for i in range(3):
        assert life(lab, i, id).terms.key() == TERMS.key()
        assert life(lab, i, id).headers == b"\x01k\x01\x00v"
    assert lab.get(0) == [id]
    run = start(lab, 0, id)
    lab.pass_ms(60)
    assert [life(lab, i, id).run for i in range(3)] == [run] * 3
    assert states(lab, id) == ["running"] * 3
    assert fail(lab, 0, id, run) == BACK
    for i in range(3):
        mine = life(lab, i, id)
        assert mine.failed == 1 and mine.last is not None and mine.last.reason == b"no"


def test_attempts_survive_the_loss_of_holders() -> None:
    """A job that failed at one node goes on at another one with its next attempt."""
    lab = Lab(3)
    id = add(lab)
    lab.get(0)
    assert fail(lab, 0, id, start(lab, 0, id)) == BACK
    lab.isolate(0)
    lab.isolate(1)
    got = []
    for _ in range(40):
        lab.pass_ms(2_000)
        got = lab.get(2)
        if got:
            break
    assert got == [id]
    run = start(lab, 2, id)
    assert run >> 23 & 0xFFFF == 2
    assert fail(lab, 2, id, run) == BACK


def test_short_runs_are_not_told() -> None:
    """W14.3 A run that lasts 50 ms is announced to the other holders. If RETRY is 5 s or less, or
    this is the last attempt, it is announced at once.
    """
    lab = Lab(3)
    id = add(lab)
    lab.get(0)
    lab.log.clear()
    run = start(lab, 0, id)
    assert on_done(at(lab, 0), id, run, b"42")
    lab.pass_ms(200)
    assert not [m for _, _, m in lab.log if isinstance(m, LifeAt)]
    for retry_s, terms in ((5, TERMS), (30, Terms(1, 0, 0, 0, b"", 0, 0))):
        other = add(lab, retry_s=retry_s, terms=terms)
        lab.get(0)
        lab.log.clear()
        start(lab, 0, other)
        assert len([m for _, _, m in lab.log if isinstance(m, LifeAt)]) == 2
        on_done(at(lab, 0), other, 0, None)


def test_silence_is_counted_once() -> None:
    """Two holders that see one silence write the same number."""
    lab = Lab(3)
    id = add(lab, retry_s=6)
    lab.get(0)
    start(lab, 0, id)
    lab.pass_ms(60)
    lab.isolate(0)  # its worker goes on there, and beats
    for _ in range(5):
        lab.pass_ms(2_000)
        on_work(at(lab, 0), id, life(lab, 0, id).run, 7)
    assert life(lab, 0, id).failed == 0
    assert {life(lab, i, id).failed for i in (1, 2)} == {1}
    lab.heal()
    lab.pass_ms(100)
    lab.run()


def test_a_stale_worker_hears_of_the_newer_run() -> None:
    """W14.7 WORKING and PROGRESS of a run send LIFE. A node that receives an older life than it has
    replies with its own LIFE.
    """
    lab = Lab(3)
    id = add(lab, retry_s=6)
    lab.get(0)
    old = start(lab, 0, id)
    lab.pass_ms(60)
    lab.isolate(0)
    there = new = 0
    for _ in range(20):
        lab.pass_ms(1_000)
        on_work(at(lab, 0), id, old, 7)
        for i in (1, 2):
            if new == 0 and lab.get(i):
                there, new = i, start(lab, i, id, b"other")
        if new:
            on_work(at(lab, there), id, new, 8)
    assert new > old
    at(lab, 0).life.calls.clear()
    lab.heal()
    lab.run()
    on_work(at(lab, there), id, new, 8)
    lab.pass_ms(1_100)
    refused = on_work(at(lab, 0), id, old, 7)
    assert refused is not None and refused.code == STALE_RUN


@pytest.mark.parametrize("where", [0, 1, 2])
def test_cancel_at_any_holder(where: int) -> None:
    """W8.1 Nobody has the job: it ends with the outcome `cancelled`.

    W8.2 A worker has it: the job is flagged.
    """
    lab = Lab(3)
    waiting, running = add(lab), add(lab)
    assert cancel(lab, where, waiting) == ENDED
    assert states(lab, waiting) == ["cancelled"] * 3
    assert lab.get(0) == [running]
    run = start(lab, 0, running)
    lab.pass_ms(60)
    assert cancel(lab, where, running) == FLAGGED
    assert all(life(lab, i, running).is_cancelled for i in range(3))
    refused = on_work(at(lab, 0), running, run, 7)
    assert refused is not None and refused.code == CANCELLED_JOB
    assert on_release(at(lab, 0), running, run, 0)
    lab.run()
    assert states(lab, running) == ["cancelled"] * 3


def test_result_at_every_holder() -> None:
    """W14.4 SETACK carries the outcome, whatever it answers.

    W14.4 RESULT and WAITJOB show an outcome once all reachable holders have confirmed the end.
    """
    lab = Lab(3)
    id = add(lab)
    lab.get(0)
    run = start(lab, 0, id)
    lab.hold(1, 0)
    assert on_done(at(lab, 0), id, run, b"42")
    lab.run()
    told, _ = result_fields(at(lab, 0), id)
    assert told is not None and (told["state"], told["result"]) == (b"running", None)
    lab.release(1, 0)
    lab.run()
    lab.die(0)
    for i in (1, 2):
        told, _ = result_fields(at(lab, i), id)
        assert told is not None
        assert (told["state"], told["result"], told["worker"]) == (b"done", b"42", b"w")


def test_two_ends_of_one_job() -> None:
    """W14.4 Of two outcomes, `done` stands before `cancelled`, and of two `done` that of the lower
    token, then the lower result.

    W14.15 A node that sees two outcomes of one job counts the job once (`outcomes_conflicting` of
    INFO)
    """
    lab = Lab(3)
    id = add(lab)
    lab.get(0)
    run = start(lab, 0, id)
    lab.pass_ms(60)
    lab.cut(0, 1)
    lab.cut(0, 2)
    assert on_done(at(lab, 0), id, run, b"first")
    other = run + (1 << 39)
    assert on_done(at(lab, 1), id, other, b"second")
    lab.run()
    lab.heal()
    lab.pass_ms(3_000)
    for i in range(3):
        told, _ = result_fields(at(lab, i), id)
        assert told is not None and told["result"] == b"first"
    seen = [n.life.conflicts for n in lab.nodes]
    assert sum(seen) > 0 and max(seen) == 1, seen
    assert {n.life.conflict_id for n in lab.nodes} <= {id, b""}
    third = add(lab)
    assert on_done(at(lab, 0), third, 0, b"x")
    assert not on_done(at(lab, 1), third, 0, b"x") or lab.run() is None
    lab.pass_ms(3_000)
    assert [n.life.conflicts for n in lab.nodes] == seen, "the same outcome twice"
    ends = [Outcome(id, CANCELLED, 1, 1), Outcome(id, DONE, 1, 1)]
    assert is_better(ends[0], ends[1]) and not is_better(ends[1], ends[0])


def test_dead_at_every_holder() -> None:
    """A dead letter survives the loss of all but one holder."""
    lab = Lab(3)
    id = add(lab)
    lab.get(0)
    assert fail(lab, 0, id, start(lab, 0, id), is_final=True) == DIED
    lab.run()
    assert states(lab, id) == ["dead"] * 3
    assert [n.jobs[id].queue for n in lab.nodes] == [b"q.dead"] * 3
    assert [n.jobs[id].state for n in lab.nodes] == [QUEUED, ACTIVE, ACTIVE]
    lab.die(0)
    lab.die(1)
    letter = letter_of(at(lab, 2), id)
    assert letter is not None and letter.life.last is not None
    assert (letter.life.last.reason, letter.life.origin) == (b"no", b"q")
    assert replay(at(lab, 2), letter, b"")
    assert lab.get(2) == [id]
    assert start(lab, 2, id) >> 23 & 0xFFFF == 1


@pytest.mark.parametrize("is_replayed", [False, True])
def test_who_waits_at_another_holder_hears_of_a_death(is_replayed: bool) -> None:
    """W9.2 WAITJOB replies when all jobs, or COUNT of them, have ended or are dead: an array of
    `[id, outcome]` of these.
    """
    lab = Lab(3)
    id = add(lab)
    lab.get(0)
    if is_replayed:
        fail(lab, 0, id, start(lab, 0, id), is_final=True)
        lab.run()
        letter = letter_of(at(lab, 0), id)
        assert letter is not None and replay(at(lab, 0), letter, b"")
        lab.run()
        lab.get(0)
    for i in range(3):
        watch(at(lab, i), 9, [id], 0)
    lab.run()
    assert not any(9 in served for served in lab.served)
    assert fail(lab, 0, id, start(lab, 0, id), is_final=True) == DIED
    lab.run()
    assert all(9 in served for served in lab.served), "each of them is woken"
    assert all(is_settled(n, id) for n in lab.nodes)


@pytest.mark.parametrize("how", ["final", "fail", "release"])
def test_end_of_a_run_at_another_node(how: str) -> None:
    """W14.9 A node that queues a job whose run has ended sends LIFE before QUEUED. Then a worker
    that got the job from another node, and gave it up here, does not keep it (Q4.5).
    """
    lab = Lab(3)
    id = add(lab, retry_s=300)
    lab.get(0)
    run = start(lab, 0, id)
    lab.pass_ms(200)
    if how == "release":
        assert on_release(at(lab, 1), id, run, 0)
    else:
        fail(lab, 1, id, run, is_final=how == "final")
    lab.run()
    lab.pass_ms(1_500)
    assert lab.states_of(id) == [ACTIVE, QUEUED, ACTIVE]
    assert lab.get(1, lab.nodes[1].jobs[id].queue) == [id]


def test_replay_is_told() -> None:
    """Another holder replays a dead letter: a FAIL of the life before is stale everywhere."""
    lab = Lab(3)
    id = add(lab)
    lab.get(0)
    run = start(lab, 0, id)
    assert fail(lab, 0, id, run, is_final=True) == DIED
    lab.run()
    letter = letter_of(at(lab, 1), id)
    assert letter is not None and replay(at(lab, 1), letter, b"")
    lab.run()
    assert "dead" not in states(lab, id)
    assert [life(lab, i, id).failed for i in range(3)] == [0, 0, 0]
    assert [n.jobs[id].queue for n in lab.nodes] == [b"q"] * 3
    assert sum(n.jobs[id].state == QUEUED for n in lab.nodes) == 1
    _, _, refused = on_fail(at(lab, 0), id, run, -1, b"", b"", False)
    assert refused is not None
    assert lab.get(1) == [id]
    assert fail(lab, 1, id, start(lab, 1, id), is_final=True) == DIED
    lab.run()
    assert states(lab, id) == ["dead"] * 3


def test_a_worker_whose_node_died() -> None:
    """W14.5 A worker that names a later run than the holder knows is believed: the node at which it
    began may have died.
    """
    lab = Lab(3)
    id = add(lab)
    lab.get(0)
    assert on_start(at(lab, 0), id, b"w", 7) is None
    run = int(life(lab, 0, id).run)
    lab.die(0)
    assert on_work(at(lab, 1), id, run, 7) is None
    assert fail(lab, 1, id, run) == BACK
    assert life(lab, 2, id).failed == 1


def test_done_at_a_node_without_the_job() -> None:
    """W14.6 DONE at a node without the job works as A3.4 says, and the result goes with it. That
    node shows what the holders know (W15).
    """
    lab = Lab(4)
    id = add(lab)
    stranger = next(i for i in range(4) if id not in lab.nodes[i].jobs)
    for n in lab.nodes:
        n.ids.key = b""
    on_done(at(lab, stranger), id, 0, b"42", 9)
    lab.pass_ms(2_000)
    assert not is_elsewhere(at(lab, 0), id)
    for i in range(4):
        n = at(lab, i)
        if may_ask(n, id):
            assert i == stranger
            watch(n, 5, [id], 0)
            ask(n, id, LOOK)
            lab.run()
        told, _ = result_fields(n, id)
        assert told is not None and told["result"] == b"42"


def test_done_of_a_made_up_id() -> None:
    """N11.7 A DONE of an id that no node of the cluster made (G6.5) keeps nothing."""
    lab = Lab(2)
    n = at(lab, 1)
    made_up = b"D-c0ffee00-" + b"A" * 24 + b"-05a1"
    on_done(n, made_up, 0, b"x" * 1_000, 9)
    assert (len(n.life.kept), len(n.jobs)) == (0, 0)
    genuine = n.ids.make(60, 1)
    on_done(n, genuine, 0, b"42", 9)
    assert list(n.life.kept) == [genuine]


def test_merge_in_any_order() -> None:
    """W14.2 Two views of one life become one by rules that give the same in any order: more REPLAYs
    win whole; of `failed` and STARTs the greater; of two runs the higher token, and of one token
    the later state; the earliest first and the latest last failure; a cancel flag and death stay.
    """
    rng = random.Random(7)
    n = Lab(1).nodes[0]
    for _ in range(300):
        views = [view(rng) for _ in range(3)]
        ends = set()
        for order in itertools.permutations(range(3)):
            mine = copy(views[order[0]])
            for i in order[1:] + order[:2]:
                merge(n, mine, copy(views[i]))
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
