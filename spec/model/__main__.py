"""Run the model of leadership, then those of values, queues and the outbox: `make models`.

Without a flaw all walks must be clean; with each of the flaws one must not be. The walk that is
known to find a flaw is tried first, then others, as long as there is time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.pool import Pool
from typing import Final, NamedTuple

from spec.model import outbox, queues, values
from spec.model.flaws import FLAWS, KNOWN, RARE
from spec.model.healing import Result, walk

BATCH: Final = 5  # walks that a process does before it tells
LONG: Final = 5  # minutes in which flaws are looked for of which no walk is known
FLAWS_SHARE: Final = 0.6  # of the time, at most
# walks that are not clean, of rules that are planned only; findings.md has what they show
OPEN: Final = (12721, 13443, 17319, 19408)
SMALL: Final = (values, queues, outbox)
SMALL_WALKS: Final = 300  # of each small model; each of its flaws is found within them


class Batch(NamedTuple):
    """Some walks of a kind."""

    profile: str
    flaw: str
    seeds: list[int]
    seconds: float
    is_known: bool = False  # the first walk is the one that found the flaw before


def run(batch: Batch) -> tuple[Batch, list[tuple[int, Result]]]:
    """The walks of a batch, until one is not clean or the time is over."""
    found: list[tuple[int, Result]] = []
    until = time.monotonic() + batch.seconds
    walks = [(batch.profile, seed) for seed in batch.seeds]
    if batch.is_known:
        walks.insert(0, KNOWN[batch.flaw])
    for profile, seed in walks:
        result = walk(seed, profile, batch.flaw)
        found.append((seed, result))
        if result.error or time.monotonic() > until:
            break
    return batch, found


def find_flaws(args: argparse.Namespace, pool: Pool, seconds: float) -> int:
    """Look for each flaw; how many were not found."""
    names = [args.flaw] if args.flaw else list(FLAWS)
    if not args.flaw and args.minutes < LONG:
        names = [name for name in names if name in KNOWN]
        print(f"not looked for in less than {LONG} minutes: {sorted(set(FLAWS) - set(names))}")
    seeds = list(range(args.seed, args.seed + args.walks))
    each = seconds * min(args.jobs, len(names)) / len(names)
    todo = [Batch(name, name, seeds, each, not args.fresh and name in KNOWN) for name in names]
    missed = 0
    for batch, found in pool.imap_unordered(run, todo):
        seed, last = found[-1]
        text = FLAWS[batch.flaw].text
        if last.error:
            what = f"walk {len(found)} (seed {seed}): {last.error[:100]}"
        else:
            what = f"NOT FOUND in {len(found)} walks"
            missed += batch.flaw not in RARE
        print(f"{batch.flaw}: {text}; {what}", flush=True)
    return missed


def batches(seed: int, most: int, until: float) -> Iterator[Batch]:
    """Clean walks: half with any faults, half with the faults of each flaw in turn."""
    profiles = list(FLAWS)
    number = 0
    while time.monotonic() < until and number * BATCH < most:
        first = seed + number * BATCH
        profile = "" if number % 2 else profiles[number // 2 % len(profiles)]
        seeds = [one for one in range(first, first + BATCH) if profile or one not in OPEN]
        yield Batch(profile, "", seeds, until - time.monotonic())
        number += 1


def walk_clean(args: argparse.Namespace, pool: Pool, until: float) -> int:
    """Walk until the time is over; how many walks were not clean."""
    began = time.monotonic()
    walks = steps = bad = 0
    slowest = elected = 0.0
    seen: Counter[str] = Counter()
    waiting = []
    source = batches(args.seed, args.clean, until)
    for _ in range(2 * args.jobs):
        waiting += [pool.apply_async(run, (one,)) for one in [next(source, None)] if one]
    while waiting:
        batch, found = waiting.pop(0).get()
        waiting += [pool.apply_async(run, (one,)) for one in [next(source, None)] if one]
        for seed, result in found:
            walks += 1
            steps += result.steps
            slowest = max(slowest, result.healed)
            elected = max(elected, result.elected)
            seen += result.seen
            if result.error:
                bad += 1
                print(f"BAD: walk(seed={seed}, profile={batch.profile!r}): {result.error}")
    print(f"not walked, they are open: {OPEN}")
    rate = steps / max(0.001, time.monotonic() - began)
    print(f"{walks} walks from seed {args.seed}, {steps} steps, {rate:.0f} a second: {bad} bad")
    print(
        f"all was well {slowest:.1f} timeouts at most after all faults had ended; a tube whose"
        f" voters are well had a leader in {elected:.1f}"
    )
    print(", ".join(f"{count} {name}" for name, count in sorted(seen.items())))
    return bad


def walk_small(seed: int) -> int:
    """The small models; how many walks were not clean, and flaws not found."""
    bad = 0
    for model in SMALL:
        seeds = range(seed, seed + SMALL_WALKS)
        seen: Counter[str] = Counter()
        for one in seeds:
            error, told = model.walk(one)
            seen += told
            if error:
                bad += 1
                print(f"BAD: {model.__name__} walk({one}): {error}")
        for flaw, text in model.FLAWS.items():
            found = next((one for one in seeds if model.walk(one, flaw)[0]), None)
            bad += found is None
            print(f"{flaw}: {text}; " + ("NOT FOUND" if found is None else f"seed {found}"))
        shown = ", ".join(f"{count} {name}" for name, count in sorted(seen.items()))
        print(f"{model.__name__}: {SMALL_WALKS} walks from seed {seed}; {shown}")
    return bad


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="make models", description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1, help="of the first walk")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--walks", type=int, default=20_000, help="at most, to find a flaw")
    parser.add_argument("--clean", type=int, default=1 << 40, help="walks without a flaw, at most")
    parser.add_argument("--flaw", default="", choices=["", *FLAWS], help="only this one")
    parser.add_argument("--fresh", action="store_true", help="not first where it was found before")
    parser.add_argument("--only", default="", choices=["", "walks", "flaws", "small"])
    args = parser.parse_args()
    began = time.monotonic()
    until = began + args.minutes * 60
    wrong = 0
    if args.only in ("", "small") and not args.flaw:
        wrong += walk_small(args.seed)
    if args.only == "small":
        return 1 if wrong else 0
    with multiprocessing.get_context("fork").Pool(args.jobs) as pool:
        if args.only != "walks":
            share = 1.0 if args.only or args.flaw else FLAWS_SHARE
            wrong += find_flaws(args, pool, args.minutes * 60 * share)
        if args.only != "flaws" and not args.flaw:
            wrong += walk_clean(args, pool, until)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
