"""Seeds: they repeat, they report, and a seed that checks nothing fails."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import msgspec
import pytest

import tuque.core.model.job
from sim.engine.plan import Op, Plan, decode, encode
from sim.plans.swarm import KINDS, draw
from sim.plans.task_swarm import draw_tasks
from sim.plans.vote_swarm import draw_votes
from sim.runs.canary import canary
from sim.runs.seeds import Outcome, run_plan, run_seed
from sim.runs.shrink import Shrinker, as_test

PRINT_DIGESTS = """
import sys
import tuque.core.model.job
from sim.runs.seeds import run_seed
print(tuque.core.model.job.__file__)
print([run_seed(int(seed)).digest for seed in sys.argv[1:]])
"""
IS_COMPILED = not (tuque.core.model.job.__file__ or "").endswith(".py")
SOURCES = Path(__file__).parents[2] / "src"


kept = cache(run_seed)  # what several tests compare with


def test_a_seed_run_twice_is_the_same_event_for_event() -> None:
    one, two = kept(3), run_seed(3)
    assert one.events > 1000
    assert (one.digest, one.events, one.counts) == (two.digest, two.events, two.counts)


def test_what_other_threads_log_is_no_part_of_a_seed() -> None:
    """A client that a test before has left warns whenever it likes."""
    alone = kept(12).digest
    ended = threading.Event()

    def warn() -> None:
        while not ended.wait(0.001):
            logging.getLogger("tuque.client").warning("a node is away")

    other = threading.Thread(target=warn)
    other.start()
    try:
        assert run_seed(12).digest == alone
    finally:
        ended.set()
        other.join()


@pytest.mark.slow
def test_the_order_of_hashes_changes_nothing() -> None:
    printed = []
    for hash_seed in ("0", "4711"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", PRINT_DIGESTS, "3", "6"],
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert len(set(printed)) == 1


@pytest.mark.slow  # test_core_drive.py compares the core
@pytest.mark.skipif(not IS_COMPILED, reason="nothing is compiled here to compare")
def test_compiled_modules_play_a_seed_as_the_sources_do() -> None:
    path = f"{SOURCES}{os.pathsep}{SOURCES.parent}"  # the simulator is beside the sources
    done = subprocess.run(
        [sys.executable, "-P", "-c", PRINT_DIGESTS, "3", "6"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    place, digests = done.stdout.splitlines()
    assert place.endswith(".py")
    assert digests == f"{[run_seed(seed).digest for seed in (3, 6)]}"


def test_the_canary_is_reported_through_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "sim", "--canary"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the canary was reported" in done.stdout


def test_without_the_canary_the_same_seed_finds_no_damage() -> None:
    whole = run_plan(draw(1))
    assert "damage" not in whole.rules()
    damaged = run_plan(draw(1), tweak=canary, until="damage")
    assert damaged.rules() == ["damage"]
    assert damaged.true_us < whole.true_us  # it ended with the finding


def test_a_seed_that_checks_nothing_fails() -> None:
    outcome = run_plan(Plan(seed="empty", nodes=2))
    assert "empty" in outcome.rules()


def test_plans_are_data() -> None:
    plan = draw(12)
    assert decode(encode(plan)) == plan
    assert run_plan(decode(encode(plan))).digest == kept(12).digest


def test_the_swarm_draws_every_fault_alone_and_none_and_many() -> None:
    alone, sizes, policies, none = set(), set(), set(), 0
    for seed in range(600):
        plan = draw(seed)
        sizes.add(plan.nodes)
        policies.add(plan.policy)
        none += not plan.faults
        if len(plan.faults) == 1:
            alone.add(plan.faults[0])
    assert alone == set(KINDS)
    assert sizes == set(range(1, 8))
    assert policies == {"off", "no", "everysec", "always"}
    assert none > 20


def test_a_failing_plan_shrinks_to_what_makes_it_fail() -> None:
    def run(plan: Plan) -> object:
        kinds = [op.kind for op in plan.ops]
        outcome = msgspec.structs.replace(EMPTY, findings=[])
        if "crash" in kinds and plan.ops and any(op.args.get("n") == 7 for op in plan.ops):
            outcome.findings.append("lost at 3.0 s: gone")
        return outcome

    plan = draw(3)
    plan.ops = [Op(i, "add", {"n": i}) for i in range(40)]
    plan.ops += [Op(i, "crash", {}) for i in range(5)]
    shrinker = Shrinker(plan, "lost", run)  # type: ignore[arg-type] # a model of a run
    small = shrinker.shrink()
    assert [op.kind for op in small.ops] == ["add", "crash"]
    assert small.nodes == 1
    text = as_test(small, "lost")
    compile(text, "test", "exec")
    assert "def test_lost_3() -> None" in text


EMPTY = run_plan(Plan(seed="x", nodes=1))


def broken(outcomes: Iterable[Outcome]) -> list[tuple[str, list[str]]]:
    """The seeds with findings, and the first of these."""
    return [(one.seed, one.findings[:2]) for one in outcomes if one.findings]


def with_all(seed: int) -> Outcome:
    """A seed with each kind of client, and a secret that some clusters have."""
    return run_seed(seed, with_lives=True, with_edits=True, with_words=True, with_seals=True)


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        (run_seed, (5000, 5001, 5002, 5003, 5004, 5005, 5008, 5010)),
        (with_all, (5101, 5103, 5104, 5111, 5116, 5117, 5118, 5125, 5135)),
        (lambda seed: run_plan(draw_tasks(seed)), (112,)),
        (lambda seed: run_plan(draw_votes(seed)), (104, 112)),
    ],
    ids=["plain", "all", "tasks", "votes"],
)
def test_twenty_seeds_of_all_kinds_break_no_promise(
    kind: Callable[[int], Outcome], seeds: Iterable[int]
) -> None:
    assert broken(map(kind, seeds)) == []


@pytest.mark.slow
def test_a_sample_of_seeds_breaks_no_promise() -> None:
    assert broken(map(run_seed, range(5000, 5060))) == []


def test_one_long_seed_in_full() -> None:
    outcome = kept(3)
    assert outcome.counts["deliveries"] > 10
    assert outcome.counts["ledgers"] > 100
