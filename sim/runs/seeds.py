"""Runs seeds: one, many in several processes, or one twice to compare."""

from __future__ import annotations

import gc
import logging
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import partial

import msgspec

from sim.engine.history import Enough
from sim.engine.plan import Plan
from sim.engine.world import Spinning
from sim.flaws.published import MUTATIONS
from sim.plans.solo_swarm import draw_solo
from sim.plans.swarm import draw
from sim.plans.task_swarm import draw_tasks
from sim.plans.vote_swarm import draw_votes
from sim.plans.voter_swarm import draw_voters
from sim.runs.cluster import Cluster
from tuque.server.log.log import say_all_again


class Outcome(msgspec.Struct):
    """The result of one seed."""

    seed: str
    findings: list[str]  # "lost at 3.2 s: ..."
    counts: dict[str, int]
    most: dict[str, int]  # us
    seen: dict[str, int]
    events: int
    true_us: int
    wall_s: float
    digest: str
    faults: list[str]
    nodes: int
    trace: list[str] = []

    def rules(self) -> list[str]:
        """The names of the broken promises, without duplicates."""
        return sorted({text.split(" ", 1)[0] for text in self.findings})


class Listener(logging.Handler):
    """Reads the nodes' logs; an internal error is a finding."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.thread = logging.makeLogRecord({}).thread  # the current one

    def emit(self, record: logging.LogRecord) -> None:
        """Handle a log line. Other threads of the process are not part of the seed."""
        if record.thread != self.thread:
            return
        line, world = record.getMessage(), self.cluster.world
        world.note(f"log: {line}")
        if "there is a later link already" in line:
            world.sometimes("a link is overtaken by a later one")
        elif "replaced by another link" in line:
            world.sometimes("a link is replaced by a newer one")
        if record.exc_info and isinstance(record.exc_info[1], Exception):
            self.cluster.history.find("internal", describe(record.exc_info[1]))


def describe(error: Exception) -> str:
    """An exception and its origin, in one line."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    at = f"{where.filename.rpartition('tuque/')[2]}:{where.lineno}"
    return f"{type(error).__name__} {error} in {where.name} ({at})"


def run_plan(
    plan: Plan,
    trace: bool = False,
    tweak: Callable[[Cluster], None] | None = None,
    until: str = "",
) -> Outcome:
    """Run a plan to its end; a node that stops by itself is a finding.

    `until` is a rule whose first finding ends the seed, or `any` for all rules.
    """
    started = time.perf_counter()
    cluster = Cluster(plan, trace)
    if tweak is not None:
        tweak(cluster)
    history, world = cluster.history, cluster.world
    history.until = until
    log = logging.getLogger("tuque")
    log.handlers[:] = [Listener(cluster)]
    log.propagate = False
    log.setLevel(logging.INFO)
    say_all_again()
    try:
        cluster.run()
    except Enough:
        pass
    except Spinning as error:
        history.find("restless", f"the seed does not end: {error}")
    except Exception as error:
        history.find("internal", describe(error))
        if world.trace is not None:
            world.trace += traceback.format_exc().splitlines()
    finally:
        log.handlers[:] = []
        log.propagate = True
    return Outcome(
        plan.seed,
        [str(one) for one in history.findings],
        history.counts,
        history.most,
        world.seen,
        world.events,
        world.now_us,
        time.perf_counter() - started,
        world.digest(),
        plan.faults,
        plan.nodes,
        world.trace or [],
    )


def run_seed(
    seed: int,
    mutation: str = "",
    trace: bool = False,
    with_tubes: bool = True,
    until: str = "",
    with_lives: bool = False,
    with_edits: bool = False,
    with_words: bool = False,
    with_seals: bool = False,
) -> Outcome:
    """Run a seed's plan, optionally with a known flaw enabled, or as far as `until`."""
    if not mutation:
        plan = draw(seed, True, with_tubes, with_lives, with_edits, with_words, with_seals)
        return run_plan(plan, trace, until=until)
    flaw = MUTATIONS[mutation]
    with flaw.on():
        return run_plan(flaw.plan(seed), trace, until=until)


def run_fresh(seed: int, mutation: str = "", trace: bool = False, plans: str = "") -> Outcome:
    """Run a seed that was never run before: with all kinds of clients, or of one kind of plans."""
    if plans:
        return run_plan(OF_VOTES[plans](seed), trace)
    return run_seed(
        seed, mutation, trace, with_lives=True, with_edits=True, with_words=True, with_seals=True
    )


# plans with voters
OF_VOTES = {"votes": draw_votes, "voters": draw_voters, "solo": draw_solo, "tasks": draw_tasks}
KINDS = ("tubes", "lives", "edits", "words", "seals")  # clients that came one after the other


def run_old(seed: int, words: list[str], mutation: str = "") -> Outcome:
    """Run a seed with those kinds of clients only that there were when it failed, or a plan."""
    if words and words[0] in OF_VOTES:
        return run_fresh(seed, mutation, False, words[0])
    tubes, *more = (kind in words for kind in KINDS)
    return run_seed(seed, mutation, False, tubes, "", *more)


def run_past(past: list[tuple[int, list[str]]], jobs: int, mutation: str = "") -> Iterator[Outcome]:
    """Run old seeds, in their order."""
    if jobs == 1:
        yield from (run_old(seed, words, mutation) for seed, words in past)
        return
    with ProcessPoolExecutor(jobs, initializer=_begin) as pool:
        running = [pool.submit(run_old, seed, words, mutation) for seed, words in past]
        yield from (one.result() for one in running)


def run_many(
    first: int, count: int, jobs: int, minutes: float, mutation: str = "", plans: str = ""
) -> Iterator[Outcome]:
    """Run seeds first, first+1, ...: `count` of them, or as many as `minutes` allow."""
    until = time.monotonic() + minutes * 60 if minutes else 0.0
    seeds = iter(range(first, first + count if not minutes else first + (1 << 30)))
    if jobs == 1:
        for seed in seeds:
            if until and time.monotonic() > until:
                return
            yield run_fresh(seed, mutation, False, plans)
        return
    with ProcessPoolExecutor(jobs, initializer=_begin) as pool:
        run = partial(run_fresh, mutation=mutation, plans=plans)
        running = {pool.submit(run, seed) for seed in _some(seeds, jobs * 2)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                yield one.result()
                if not until or time.monotonic() < until:
                    running |= {pool.submit(run, seed) for seed in _some(seeds, 1)}


def _some(seeds: Iterator[int], count: int) -> list[int]:
    """Run the next few seeds."""
    return [seed for _, seed in zip(range(count), seeds, strict=False)]


def _begin() -> None:
    """Set up a pool process: reference counts free most objects, cycles are rare."""
    gc.set_threshold(100_000, 50, 50)
