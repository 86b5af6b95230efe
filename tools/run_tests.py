"""Runs the tests: `make test` and `make test-deep` (CONTRIBUTING.md, Tests).

python tools/run_tests.py quick [pytest's words]    all tests but the slow ones
python tools/run_tests.py deep [--only PART,...]    everything, as a release needs it

A part is one program that runs tests. A failed test is run once more, alone. If it passes then, it
is a flake: `quick` names it with its seeds and the end of its nodes' logs and passes, `deep` fails.
More than four failures are not run again. `deep` also judges budgets and writes its result into
docs/figures.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tools")]

from setup_env import why_sources  # noqa: E402  as above

import budget  # noqa: E402  the path is set above

OUT: Final = ROOT / "build" / "tests"
FLAKES: Final = OUT / "flaky.txt"
FIGURES: Final = ROOT / "docs" / "figures.md"
BEGIN: Final = "<!-- test-deep: written by make test-deep -->"
END: Final = "<!-- test-deep end -->"
AGAIN_MAX: Final = 4  # failed tests that are run again
SHARE: Final = 1.3  # of its budget that a folder may take in `deep`
NOTHING: Final = 5  # pytest's code for: no test is selected
MEMORY: Final = Path("/dev/shm")
MEMORY_MIN: Final = 4 << 30  # bytes that are free there; the tests need a quarter
PAST: Final = ("tests/sim/past_failures.txt", "tests/sim/past_failures_slow.txt")

# The tests start some thousand programs: each would compile all it imports, were no bytecode kept.
# They are no share of a run that started this one.
DROPPED: Final = ("PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH")


@dataclass
class Part:
    """One run of a program, and how it ended."""

    name: str
    words: list[str]  # behind the name of Python
    on_sources: bool = False
    is_pytest: bool = True
    lowered: int = 0  # by so much its priority is below that of the others
    env: dict[str, str] = field(default_factory=dict)
    code: int = 0
    seconds: float = 0.0
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> dict[str, dict[str, str]]:
        """The tests that failed, with what they said."""
        found: dict[str, dict[str, str]] = self.report.get("failed", {})
        return found

    @property
    def is_broken(self) -> bool:
        """It failed, and not by tests that have names."""
        return self.code not in (0, NOTHING) and not (self.code == 1 and self.failed)

    def counted(self) -> str:
        """For the page of figures."""
        counts = self.report.get("counts", {})
        words = [f"{count:,} {kind}" for kind, count in sorted(counts.items())]
        if self.failed:
            words.append(f"{len(self.failed)} failed")
        return ", ".join(words) or ("failed" if self.code else "passed")


def environment(part: Part, hash_seed: str) -> dict[str, str]:
    """What a part finds in its environment."""
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    if part.on_sources:
        kept["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT / "src", ROOT, ROOT / "examples")))
    elif not part.is_pytest:
        places = (ROOT, ROOT / "tests" / "tools")  # pytest has them from its configuration
        kept["PYTHONPATH"] = os.pathsep.join(map(str, places))
    if part.is_pytest:
        kept["PYTHONHASHSEED"] = hash_seed
        if not part.on_sources:
            kept["TUQUE_EXPECT_COMPILED"] = "1"
    return kept | part.env


def python(part: Part) -> list[str]:
    """The interpreter; -P keeps it from the sources in the working directory."""
    return [sys.executable] if part.on_sources else [sys.executable, "-P"]


def start(part: Part, hash_seed: str, out: Any = None) -> subprocess.Popen[bytes]:
    """Start a part; its output goes to a file, or to the terminal."""
    words = [*python(part), *part.words]
    if part.is_pytest:
        (OUT / f"{part.name}.json").unlink(missing_ok=True)
        words += ["--report", str(OUT / f"{part.name}.json")]
    if part.lowered:
        words = ["nice", "-n", str(part.lowered), *words]
    return subprocess.Popen(
        words,
        cwd=ROOT,
        env=environment(part, hash_seed),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT if out else None,
    )


def finish(part: Part, running: subprocess.Popen[bytes], began: float) -> None:
    """Wait for its end and read its report."""
    part.code = running.wait()
    part.seconds = time.monotonic() - began
    path = OUT / f"{part.name}.json"
    if part.is_pytest and path.exists():
        part.report = json.loads(path.read_text())


def run(parts: Sequence[Part], hash_seed: str) -> None:
    """Run parts side by side: the first writes to the terminal, the others are shown after it."""
    began = time.monotonic()
    first, *others = parts
    beside = []
    for part in others:
        with (OUT / f"{part.name}.txt").open("wb") as out:
            beside.append((part, start(part, hash_seed, out)))
    say(first.name)
    finish(first, start(first, hash_seed), began)
    for part, running in beside:
        finish(part, running, began)
        say(f"{part.name}, side by side with {first.name}")
        print((OUT / f"{part.name}.txt").read_text(errors="replace"), flush=True)


def say(text: str) -> None:
    """A line between the parts."""
    print(f"== {text}", flush=True)


# ---- failed tests, once more


def run_again(parts: Sequence[Part], hash_seed: str) -> tuple[list[str], list[str]]:
    """Run failed tests once more, alone: those that passed, and those that failed again."""
    failed = [(part, name) for part in parts for name in part.failed]
    if len(failed) > AGAIN_MAX:
        say(f"{len(failed)} tests failed: more than {AGAIN_MAX} are not run again")
        return [], [name for _, name in failed]
    passed, broken = [], []
    for number, (part, name) in enumerate(failed):
        say(f"once more, alone: {name}")
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", name]
        alone = Part(f"again-{number}", words, part.on_sources, env=part.env)
        finish(alone, start(alone, hash_seed), time.monotonic())
        (broken if alone.code else passed).append(name)
        if not alone.code:
            tell_flake(name, part.failed[name])
    return passed, broken


def tell_flake(name: str, said: dict[str, str]) -> None:
    """Print what is known of a test that failed once, and note it."""
    seeds = said.get("seeds", "").splitlines()
    say(f"passed alone; what it said when it failed: {name}")
    for kind, text in said.items():
        if kind == "seeds" or kind.startswith("nodes' logs"):
            print(f"---- {kind}\n{text}", flush=True)
    with FLAKES.open("a") as out:
        now = datetime.datetime.now(datetime.UTC).isoformat(" ", "minutes")
        print(f"{name} ({now}; {'; '.join(seeds)})", file=out)


# ---- quick: the two parts of `make test`


def with_sources(words: Iterable[str]) -> list[str]:
    """Files with tests that need the sources, among those that the words name, or of all."""
    named = [word for word in words if (ROOT / word.partition("::")[0]).exists()]
    found = []
    for word in named or ["tests"]:
        path = ROOT / word.partition("::")[0]
        files = [path] if path.is_file() else sorted(path.rglob("test_*.py"))
        needing = [one for one in files if "mark.sources" in one.read_text()]
        if needing and path.is_file():
            found.append(word)
        else:
            found += [str(one.relative_to(ROOT)) for one in needing]
    return found


def options_of(words: Iterable[str]) -> list[str]:
    """The words that name no file."""
    return [word for word in words if not (ROOT / word.partition("::")[0]).exists()]


def needs_both(words: Sequence[str]) -> bool:
    """Whether the words name tests that run on the compiled modules."""
    marked = re.compile(r"^pytestmark\b.*mark\.sources", re.MULTILINE)
    named = [ROOT / word.partition("::")[0] for word in words]
    files = [path for path in named if path.exists()]
    return not files or not all(
        path.is_file() and marked.search(path.read_text()) for path in files
    )


def quick_parts(words: list[str], jobs: int, why: str) -> list[Part]:
    """All tests but the slow ones: on the compiled modules, or `why` on the sources."""
    pytest = ["-m", "pytest", "-q"]
    # Two processes for each core: they and the nodes that they start keep all cores busy.
    many = ["--slots", str(2 * jobs)]
    if why:
        say(f"on the sources: {why}")
        return [Part("sources", [*pytest, *many, "-m", "not slow", *words], on_sources=True)]
    parts = []
    if needs_both(words):
        parts.append(Part("compiled", [*pytest, *many, "-m", "not slow and not sources", *words]))
    files = with_sources(words)
    if files:
        chosen = [*pytest, "-m", "not slow and sources", *options_of(words), *files]
        parts.append(Part("sources", chosen, on_sources=True, lowered=5 if parts else 0))
    return parts


@contextmanager
def in_memory(parts: Iterable[Part]) -> Iterator[None]:
    """The directories of these tests are in memory, if there is room; those of `deep` on a disk.

    A node syncs at its start, its end and for what it promises, and tests wait for that.
    """
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < MEMORY_MIN:
        yield
        return
    with tempfile.TemporaryDirectory(
        prefix="tuque-tests-", dir=MEMORY, ignore_cleanup_errors=True
    ) as place:
        for part in parts:
            part.words.append(f"--basetemp={place}/{part.name}")
        yield


def merged(parts: Iterable[Part]) -> tuple[dict[str, float], frozenset[str], float]:
    """The times of all tests, those without a limit of their own, and the speed of the machine."""
    times: dict[str, float] = {}
    exempt: set[str] = set()
    factors = []
    for part in parts:
        times |= part.report.get("times", {})
        exempt |= set(part.report.get("exempt", ()))
        factors.append(part.report.get("factor", 1.0))
    return times, frozenset(exempt), min(factors, default=1.0)


def over_budget(parts: Sequence[Part]) -> list[str]:
    """Print what is over; the folders that took SHARE times their budget.

    The budgets are those of the compiled modules: a run on the sources alone is not judged.
    """
    if all(part.on_sources for part in parts):
        return []
    times, exempt, factor = merged(parts)
    limits = budget.read()
    factor = budget.busy(times, limits, factor)
    for line in budget.told(times, exempt, limits, factor):
        print(line, flush=True)
    return [lines[0] for lines in budget.over(times, limits, factor, SHARE).values()]


def why_not_compiled() -> str:
    """Why tests cannot run on the compiled modules, or nothing."""
    return why_sources(Path(sys.executable), Path(sys.prefix))


def quick(words: list[str], jobs: int, why: str, hash_seed: str) -> int:
    """`make test`."""
    parts = quick_parts(words, jobs, why)
    with in_memory(parts):
        run(parts, hash_seed)
    passed, broken = run_again(parts, hash_seed)
    over_budget(parts)
    outside_s = max((part.report.get("outside_s", 0.0) for part in parts), default=0.0)
    say(f"{max(part.seconds for part in parts):.0f} s, {outside_s:.0f} s of these outside tests")
    for name in passed:
        say(f"flaky: {name}")
    for name in broken:
        say(f"failed: {name}")
    bad = [part.name for part in parts if part.is_broken]
    if bad:
        say(f"broken: {', '.join(bad)}")
    if all(part.code == NOTHING for part in parts):
        say("no test is selected")
        return NOTHING
    return 1 if broken or bad else 0


# ---- deep: what a release needs


def deep_parts(jobs: int) -> list[Part]:
    """All parts but those of `make test`."""
    pytest = ["-m", "pytest", "-q"]
    # They compute more: with two for each core Spark runs into timeouts.
    many = ["--slots", str(jobs + 1)]
    spark = sorted(str(one.relative_to(ROOT)) for one in ROOT.glob("tests/e2e/spark_chaos*.py"))
    chaos = "tests/e2e/cluster_chaos.py"
    many_walks = ["--jobs", str(jobs)]
    seeds = ["-m", "sim", "--jobs", str(jobs), "--rare", "5", "--past"]
    return [
        Part("slow", [*pytest, *many, "-m", "slow and not sources"]),
        Part(
            "slow-sources",
            [*pytest, *many, "-m", "slow and sources", *with_sources([])],
            on_sources=True,
        ),
        Part("interpreted", [*pytest, *many, "-m", "not slow and not sources"], on_sources=True),
        Part(
            "tube-models",
            [*pytest, "tests/tubes/test_tube_models.py"],
            on_sources=True,
            env={"TUQUE_TUBE_OPS": "40000"},
        ),
        Part("models", ["-m", "spec.model", "--minutes", "10", *many_walks], is_pytest=False),
        Part("seeds", [*seeds, PAST[0], "--seeds", "400"], is_pytest=False),
        Part("seeds-slow", [*seeds, PAST[1], "--seeds", "0"], is_pytest=False),
        Part("chaos", [chaos, "--minutes", "10"], is_pytest=False),
        Part("chaos-outages", [chaos, "--outages", "--minutes", "1"], is_pytest=False),
        Part("chaos-spark", [*pytest, "-s", *spark]),
        Part("fuzz", ["fuzz/talk.py", "--seconds", "180"], is_pytest=False),
    ]


def deep(only: list[str], jobs: int, hash_seed: str) -> int:
    """`make test-deep`."""
    parts: list[Part] = []
    wrong: list[str] = []
    unknown = set(only) - {"test", *(part.name for part in deep_parts(jobs))}
    if unknown:
        sys.exit(f"error: no such part: {', '.join(sorted(unknown))}")
    if not only or "test" in only:
        parts = quick_parts([], jobs, why_not_compiled())
        run(parts, hash_seed)
        wrong += over_budget(parts)
    for part in deep_parts(jobs):
        if not only or part.name in only:
            run([part], hash_seed)
            parts.append(part)
    for part in parts:
        flakes, broken = run_again([part], hash_seed)
        wrong += [f"flaky: {name}" for name in flakes]
        wrong += [f"failed: {name}" for name in broken]
        if part.is_broken:
            wrong.append(f"failed: {part.name}")
    if not only:
        write_result(parts, wrong, hash_seed)
    for line in wrong:
        say(line)
    say("failed" if wrong else "all passed")
    return 1 if wrong else 0


def write_result(parts: Sequence[Part], wrong: Sequence[str], hash_seed: str) -> None:
    """Put the result into its block of the page of figures."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    commit = done.stdout.strip() or "unknown"
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    factor = merged(parts)[2]
    lines = [
        f"`make test-deep` on {today}, commit {commit}: {'failed' if wrong else 'passed'}. The"
        f" reference loop took {factor:.2f} times its reference; PYTHONHASHSEED={hash_seed}.",
        "",
        "| part | seconds | result |",
        "|---|---|---|",
        *(f"| {part.name} | {part.seconds:.0f} | {part.counted()} |" for part in parts),
    ]
    if wrong:
        lines += ["", *(f"- {line}" for line in wrong)]
    FIGURES.write_text(replaced(FIGURES.read_text("utf-8"), "\n".join(lines)), "utf-8")


def replaced(page: str, made: str) -> str:
    """The page with another text in its block."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("depth", choices=["quick", "deep"])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cores")
    parser.add_argument("--on-sources", action="store_true", help="quick: not on compiled modules")
    parser.add_argument("--only", default="", help="deep: these parts, by name")
    args, words = parser.parse_known_args()
    OUT.mkdir(parents=True, exist_ok=True)
    hash_seed = os.environ.get("PYTHONHASHSEED") or str(secrets.randbelow(1 << 32))
    if args.depth == "quick":
        why = "as asked" if args.on_sources else why_not_compiled()
        return quick(words, args.jobs, why, hash_seed)
    if words:
        parser.error(f"unknown: {shlex.join(words)}")
    return deep([one for one in args.only.split(",") if one], args.jobs, hash_seed)


if __name__ == "__main__":
    sys.exit(main())
