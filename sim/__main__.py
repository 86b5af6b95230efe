"""`python -m sim`: run seeds of the simulated cluster and print the score-card."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

import click

from sim.flaws.published import MUTATIONS
from sim.plans.swarm import draw
from sim.runs.canary import canary
from sim.runs.score import Score
from sim.runs.seeds import OF_VOTES, Outcome, run_fresh, run_many, run_past, run_plan
from sim.runs.shrink import Shrinker, as_test

# kinds of which one finding suffices: the code itself reports a fault, or nothing was checked
GRAVE: Final = {"internal", "ledger", "empty"}


@click.command()
@click.option("--seeds", default=100, help="How many seeds to run.")
@click.option("--start", type=int, help="The first seed; by default a fresh number.")
@click.option(
    "--plans",
    type=click.Choice(["all", *OF_VOTES]),
    default="all",
    help="votes: leaders by vote; voters: their list changes; solo: nodes start alone, and meet; "
    "tasks: votes, and type tasks.",
)
@click.option("--jobs", default=1, help="Processes.")
@click.option("--minutes", default=0.0, help="Run seeds for so many minutes instead.")
@click.option("--past", type=click.Path(exists=True), help="A file of seeds to run first.")
@click.option(
    "--rare",
    default=0.0,
    help="Findings allowed in a thousand fresh seeds; 0: none.",
)
@click.option("--mutation", default="", help="Enable a known flaw; `all` tries each.")
@click.option("--canary", "with_canary", is_flag=True, help="Break a promise on purpose.")
@click.option("--replay", type=int, help="Run one seed twice and show its trace.")
@click.option("--shrink", type=int, help="Shrink the plan of a failing seed.")
@click.option("--json", "json_path", type=click.Path(), help="Write all figures there.")
def main(
    seeds: int,
    start: int | None,
    plans: str,
    jobs: int,
    minutes: float,
    past: str | None,
    rare: float,
    mutation: str,
    with_canary: bool,
    replay: int | None,
    shrink: int | None,
    json_path: str | None,
) -> None:
    """Run seeds of a simulated cluster; exit 1 when a promise is broken."""
    kind = "" if plans == "all" else plans
    if replay is not None:
        sys.exit(show(replay, mutation, kind))
    if shrink is not None:
        sys.exit(make_small(shrink))
    if with_canary:
        sys.exit(report_canary())
    if mutation == "all":
        sys.exit(find_all(jobs))
    first = start if start is not None else int(time.time() * 10) % 1_000_000_000
    began = time.monotonic()
    score = Score()
    if past is not None:
        for one in run_past(past_seeds(Path(past).read_text()), jobs, mutation):
            note(score, one)
    is_past_broken = bool(score.failed)
    for one in run_many(first, seeds, jobs, minutes, mutation, kind):
        note(score, one)
    elapsed_s = time.monotonic() - began
    print(score.table(elapsed_s))
    if json_path is not None:
        Path(json_path).write_text(score.as_json(first, elapsed_s))
    if score.failed:
        print(f"\n{len(score.failed)} seeds failed: " + " ".join(s for s, _ in score.failed[:20]))
    sys.exit(1 if is_past_broken or is_too_much(score, rare) else 0)


def past_seeds(text: str) -> list[tuple[int, list[str]]]:
    """The seeds of a file, and with what (tubes, lives): failures found without run without."""
    lines = [line.split() for line in text.splitlines() if line.strip() and line[0] != "#"]
    return [(int(words[0]), words[1:]) for words in lines]


def is_too_much(score: Score, rare: float) -> bool:
    """Whether the findings block a change: a grave one does, or too many others."""
    if any(text.split()[0] in GRAVE for _, findings in score.failed for text in findings):
        return True
    return len(score.failed) > rare * score.seeds / 1000


def note(score: Score, one: Outcome) -> None:
    """Record an outcome; print a failure at once."""
    score.take(one)
    if one.findings:
        print(f"seed {one.seed}: {one.nodes} nodes, {', '.join(one.faults) or 'no faults'}")
        for text in one.findings[:3]:
            print(f"    {text}")
        *kind, seed = one.seed.split()
        more = f"--plans {kind[0]} " if kind else ""
        print(f"    again: python -m sim {more}--replay {seed}", flush=True)


def show(seed: int, mutation: str, plans: str) -> int:
    """Run a seed twice; print its trace, its findings and whether both runs agree."""
    one = run_fresh(seed, mutation, True, plans)
    two = run_fresh(seed, mutation, False, plans)
    print("\n".join(one.trace))
    print("\n".join(one.findings) or "nothing found")
    print(f"digest {one.digest}, {one.events} events")
    if one.digest != two.digest:
        print("NOT DETERMINISTIC: the second run was different")
        return 1
    return 1 if one.findings else 0


def make_small(seed: int) -> int:
    """Print the smallest test that still fails as the seed does."""
    plan = draw(seed, with_lives=True, with_edits=True, with_words=True, with_seals=True)
    rules = run_plan(plan).rules()
    if not rules:
        print(f"seed {seed} breaks no promise")
        return 0
    shrinker = Shrinker(plan, rules[0])
    small = shrinker.shrink()
    print(as_test(small, rules[0]))
    print(
        f"# {len(plan.ops)} operations became {len(small.ops)} in {shrinker.tries} runs",
        file=sys.stderr,
    )
    return 1


def report_canary() -> int:
    """Break a promise on purpose: the report must show it."""
    one = run_plan(draw(1), tweak=canary)
    print("\n".join(one.findings[:5]))
    if "damage" in one.rules():
        print("the canary was reported")
        return 0
    print("THE CANARY WAS NOT REPORTED")
    return 1


def find_all(jobs: int) -> int:
    """Enable each known flaw and search for it within its budget of seeds."""
    missed = 0
    for name, flaw in MUTATIONS.items():
        found = ""
        tried = 0
        for one in run_many(1, flaw.budget, jobs, 0, name):
            tried += 1
            if one.findings:
                found = f"seed {one.seed}: {one.findings[0]}"
                break
        missed += not found
        print(f"{name:6} {'found' if found else 'MISSED':7} {tried:4} seeds  {flaw.text}")
        print(f"       {found}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    main(prog_name="python -m sim")
