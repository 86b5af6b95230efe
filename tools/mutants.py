"""Changes one thing in the sources, and checks that a test fails.

    python tools/mutants.py --count 150 --seed 7 --json out.json src/tuque/server src/tuque/worker
    python tools/mutants.py --count 150 --seed 7 --json old.json --root ../before src/tuque/server

A mutant is a copy of the project with one statement removed, or one operator, constant or condition
changed. The tests of its rules or of its layer run first, then the others of `--tests`. It is
killed if one fails, timed out if they take longer than `--limit`, and survived otherwise: it needs
a test, or the line can go, unless the change makes no difference. The same seed takes the same
mutants in another checkout, as far as its sources have them. With `--sim 20` that many seeds of the
simulator judge each mutant instead.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import hashlib
import json
import os
import py_compile
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import hiredis  # noqa: F401  loaded once, not for each mutant
import hypothesis  # noqa: F401  as above
import msgspec  # noqa: F401  as above
import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = ("src/tuque/core", "src/tuque/tubes")
# parts of core that the tests of tubes cover
TASKS: Final = ("task", "tubes", "tube_records", "placement_records")
RULE: Final = re.compile(r"\b([A-Z])\d+\b")  # [R5], SPEC R2-R8, (R5.1), # R5.1
FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", re.MULTILINE)
LIMIT_S: Final = 120.0
HUNG: Final = -1000
UNTRUSTED_MAX: Final = 20  # tests that fail without a mutant and are left out

FUNCTION: Final = ast.FunctionDef | ast.AsyncFunctionDef
SWAPS: Final[dict[type[ast.AST], str]] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.Mod: "//",
    ast.BitAnd: "|", ast.BitOr: "&", ast.BitXor: "|", ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip


class Mutant(NamedTuple):
    """One change: the text from `start` to `end` of a file becomes `text`."""

    path: str
    function: str
    line: int
    start: int
    end: int
    text: str

    def change(self, source: bytes) -> str:
        """What becomes what."""
        old = " ".join(source[self.start : self.end].decode().split())
        return f"{old[:90]} -> {self.text}"


# ---- possible changes


class Finder:
    """Finds the mutants of one file."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path = path
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.found: list[Mutant] = []
        self.function = ""

    def at(self, line: int, column: int) -> int:
        """The offset of a place in the file."""
        return self.starts[line - 1] + column

    def change(self, node: ast.expr | ast.stmt, text: str) -> None:
        """Replace the whole node with the text."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self.at(node.lineno, node.col_offset)
        end = self.at(node.end_lineno, node.end_col_offset)
        self.found.append(Mutant(self.path, self.function, node.lineno, start, end, text))

    def swap(self, left: ast.expr, right: ast.expr, op: ast.AST) -> None:
        """Replace the operator between two operands."""
        text = SWAPS.get(type(op))
        assert left.end_lineno is not None and left.end_col_offset is not None
        if text is not None:
            start = self.at(left.end_lineno, left.end_col_offset)
            end = self.at(right.lineno, right.col_offset)
            between = self.source[start:end]
            word = between.strip(b" \n()").decode()
            if word:
                start += between.index(word.encode())
                end = start + len(word)
                self.found.append(Mutant(self.path, self.function, left.lineno, start, end, text))

    def module(self, tree: ast.Module) -> None:
        """All functions of the file."""
        for node in ast.walk(tree):
            if isinstance(node, FUNCTION):
                self.function = node.name
                for statement in node.body:
                    self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """Mutate a statement and its parts; skips assertions and texts."""
        if isinstance(node, ast.Assert | ast.Pass | FUNCTION | ast.Raise):
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        is_dropped = isinstance(
            node, ast.Expr | ast.AugAssign | ast.Delete | ast.Continue | ast.Break
        )
        if isinstance(node, ast.Assign):
            is_dropped = not isinstance(node.targets[0], ast.Name)
        if is_dropped:
            self.change(node, "pass")
        if isinstance(node, ast.If | ast.While):
            self.condition(node.test)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self.statement(child)
            elif not (isinstance(node, ast.AnnAssign) and child is node.annotation):
                self.expression(child)

    def condition(self, node: ast.expr) -> None:
        """Negate a condition."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self.at(node.lineno, node.col_offset)
        text = self.source[start : self.at(node.end_lineno, node.end_col_offset)].decode()
        self.change(node, f"not ({' '.join(text.split())})")

    def expression(self, node: ast.AST) -> None:
        """Operators, constants and conditions in an expression."""
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            self.swap(node.left, node.comparators[0], node.ops[0])
        elif isinstance(node, ast.BinOp):
            self.swap(node.left, node.right, node.op)
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                self.change(value, "True" if isinstance(node.op, ast.And) else "False")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.change(node, "bool(" + ast.unparse(node.operand) + ")")
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, bool):
                self.change(node, str(not node.value))
            elif isinstance(node.value, int):
                self.change(node, str(node.value + 1))
        for child in ast.iter_child_nodes(node):
            self.expression(child)


def mutants_of(root: Path, path: Path) -> list[Mutant]:
    """All possible changes in a file."""
    source = path.read_bytes()
    finder = Finder(str(path.relative_to(root)), source)
    finder.module(ast.parse(source))
    return finder.found


def sampled(root: Path, folders: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """A random sample of all mutants of files and folders.

    Each mutant draws its own number from what it changes: an edit elsewhere moves none.
    """
    drawn: list[tuple[bytes, Mutant]] = []
    for folder in folders:
        place = root / folder
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            source = path.read_bytes()
            seen: Counter[str] = Counter()
            for one in mutants_of(root, path):
                words = f"{seed} {one.path} {one.function} {one.change(source)}"
                seen[words] += 1
                drawn.append((hashlib.sha256(f"{words} {seen[words]}".encode()).digest(), one))
    print(f"{len(drawn)} mutants in all", flush=True)
    return [one for _, one in sorted(drawn)[:count]]


# ---- the tests of a mutant


def files_of(place: Path, words: Sequence[str]) -> list[str]:
    """The files of tests that the words name."""
    found = []
    for word in words:
        path = place / word
        found += [path] if path.is_file() else sorted(path.rglob("test_*.py"))
    return [str(one.relative_to(place)) for one in found if one.name.startswith("test_")]


def of_rules(place: Path, path: str) -> list[Path]:
    """The files of tests for a module of the core or the tubes: of the rules it names."""
    stem = Path(path).stem
    if "/tubes/" in path or stem in TASKS:
        files = [
            one for one in (place / "tests/tubes").glob("test_*.py") if "models" not in one.name
        ]
    else:
        letters = set(RULE.findall((place / path).read_text()))
        files = [
            one
            for letter in sorted(letters)
            for one in (place / "tests/spec").glob(f"test_{letter.lower()}_*.py")
        ]
        if "T" in letters:
            files.append(place / "tests/tubes/test_tube_rules.py")
    return [*files, *(place / "tests/core").glob(f"test_core_{stem}*.py")]


def own_tests(place: Path, path: str) -> list[str]:
    """The files of tests for a module, those that import it first."""
    layer = Path(path).parts[2]
    if layer in ("core", "tubes"):
        files = of_rules(place, path)
    else:
        files = list((place / "tests" / layer).rglob("test_*.py"))
    named = ".".join(Path(path).with_suffix("").parts[1:])
    files = [one for one in files if one.is_file()]
    files.sort(key=lambda one: (f"{named} import" not in one.read_text(), one.name))
    return [str(one.relative_to(place)) for one in files]


def stages(place: Path, path: str, selection: Sequence[str]) -> Iterator[list[str]]:
    """Which files run first, and which then; with a selection none that is not in it."""
    own = own_tests(place, path)
    if not selection:
        yield own
        return
    chosen = files_of(place, selection)
    first = [one for one in own if one in chosen]
    if first:
        yield first
    yield [one for one in chosen if one not in first]


# ---- one mutant


def enter(place: Path) -> None:
    """In a forked process: work in the copy, on its sources."""
    os.setpgid(0, 0)
    os.chdir(place)
    paths = [str(one) for one in (place / "src", place, place / "examples")]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # for what the tests start
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.path[:0] = paths
    out = os.open(place / "out.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)


def run_tests(place: Path, words: Sequence[str], limit_s: float) -> int:
    """Run tests in a forked process that has the imports already; returns the exit status."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            enter(place)
            status = int(pytest.main(["-q", "-p", "no:cacheprovider", "-m", "not slow", *words]))
        finally:
            os._exit(status)
    until = time.monotonic() + limit_s
    try:
        while time.monotonic() < until:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return HUNG
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what its tests have left behind


def run_seeds(place: Path, seeds: int, start: int, limit_s: float) -> int:
    """Run the simulator on the copy; returns the exit status."""
    command = [sys.executable, "-m", "sim", "--seeds", str(seeds), "--start", str(start)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(place / "src"), str(place)))}
    with (place / "out.txt").open("w") as out:
        try:
            return subprocess.run(
                command, cwd=place, env=env, stdout=out, stderr=out, check=False,
                timeout=limit_s,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            return HUNG


def run_stages(place: Path, mutant: Mutant, args: argparse.Namespace) -> int:
    """Run the tests of a mutant, stage after stage, until one fails or the time is over."""
    until = time.monotonic() + args.limit
    for files in stages(place, mutant.path, args.tests):
        left_s = until - time.monotonic()
        left_out = [f"--deselect={name}" for name in args.left_out]
        status = run_tests(place, ["-x", *left_out, *files], left_s) if files else 0
        if status:
            return status
    return 0


def judged(place: Path, mutant: Mutant, args: argparse.Namespace) -> dict[str, Any]:
    """What became of one mutant."""
    path = place / mutant.path
    sound = path.read_bytes()
    began = time.monotonic()
    path.write_bytes(sound[: mutant.start] + mutant.text.encode() + sound[mutant.end :])
    try:
        if args.sim:
            status = run_seeds(place, args.sim, args.start, args.limit)
        else:
            status = run_stages(place, mutant, args)
    finally:
        path.write_bytes(sound)
    result, by = "survived", ""
    if status == HUNG:
        result = "timed out"
    elif status:
        lines = (place / "out.txt").read_text(errors="replace").splitlines()
        told = [line for line in lines if line.startswith(("FAILED", "ERROR", "    "))]
        result, by = "killed", told[-1].strip()[:200] if told else f"exit {status}"
    return {
        "path": mutant.path,
        "line": mutant.line,
        "function": mutant.function,
        "change": mutant.change(sound),
        "result": result,
        "by": by,
        "seconds": round(time.monotonic() - began, 1),
    }


def copied(root: Path, directory: str) -> Path:
    """A copy of a checkout to change; its bytecode is checked by content."""
    place = Path(directory) / "tuque"
    ignore = shutil.ignore_patterns(".*", "__pycache__", "*.so", "build")
    shutil.copytree(root, place, ignore=ignore)
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(place / "src", quiet=1, invalidation_mode=mode)
    return place


def failing(place: Path, found: Sequence[Mutant], selection: Sequence[str]) -> list[str]:
    """The tests that fail without a mutant; run once."""
    files = {
        name for one in found for stage in stages(place, one.path, selection) for name in stage
    }
    status = run_tests(place, sorted(files), float("inf")) if files else 0
    text = (place / "out.txt").read_text(errors="replace") if files else ""
    names = FAILED.findall(text)
    if status and not 0 < len(names) <= UNTRUSTED_MAX:
        sys.exit(f"without a mutant the tests do not pass:\n{text[-1500:]}")
    for name in names:
        print(f"left out, fails without a mutant: {name}", flush=True)
    return names


def in_parallel(found: Sequence[Mutant], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Judge the mutants in `args.jobs` processes, each with a copy of its own."""
    reading, writing = os.pipe()
    children = []
    for job in range(args.jobs):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(reading)
                with tempfile.TemporaryDirectory() as directory:
                    place = copied(args.root, directory)
                    for one in found[job :: args.jobs]:
                        line = json.dumps(judged(place, one, args)) + "\n"
                        os.write(writing, line.encode())
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    os.close(writing)
    with os.fdopen(reading) as lines:
        yield from (json.loads(line) for line in lines)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        sys.exit("a process of this tool has ended early")


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", default=FOLDERS, help="files and folders to change")
    parser.add_argument("--count", type=int, default=200, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--tests", action="append", default=[], help="folder or file of tests")
    parser.add_argument("--root", type=Path, default=ROOT, help="a checkout")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for each mutant")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="write all results to this file")
    parser.add_argument("--trusted", action="store_true", help="the tests pass: do not try first")
    parser.add_argument("--sim", type=int, default=0, help="seeds of the simulator, not tests")
    parser.add_argument("--start", type=int, default=1, help="the first of these seeds")
    args = parser.parse_args(words)
    args.root = args.root.resolve()
    args.left_out = []
    return args


def checked(found: Sequence[Mutant], args: argparse.Namespace) -> list[str]:
    """Try the tests, or the seeds, without a mutant: the tests that are left out."""
    with tempfile.TemporaryDirectory() as directory:
        place = copied(args.root, directory)
        if not args.sim:
            return failing(place, found, args.tests)
        if run_seeds(place, args.sim, args.start, args.limit) != 0:
            text = (place / "out.txt").read_text(errors="replace")
            sys.exit(f"these seeds fail without a mutant: take another --start\n{text[:500]}")
    return []


def main() -> None:
    """Judge a sample, print what became of each and the score."""
    args = parsed()
    sys.dont_write_bytecode = True
    found = sampled(args.root, args.folders, args.count, args.seed)
    if not args.trusted:
        args.left_out = checked(found, args)
    results = []
    for one in in_parallel(found, args):
        results.append(one)
        where = f"{one['path'].removeprefix('src/tuque/')}:{one['line']} {one['function']}"
        sign = {"survived": "SURVIVED", "timed out": "TIMED OUT"}.get(one["result"], "killed")
        print(f"{sign:9} {where}: {one['change']}  {one['by'][:100]}", flush=True)
    counts = Counter(one["result"] for one in results)
    if args.json:
        results.sort(key=lambda one: (one["path"], one["line"], one["change"]))
        made = {"seed": args.seed, "tests": args.tests, "counts": counts, "mutants": results}
        args.json.write_text(json.dumps(made, indent=1) + "\n")
    timed_out = f", {counts['timed out']} timed out" if counts["timed out"] else ""
    print(f"killed {counts['killed']} of {len(results)}{timed_out}")


if __name__ == "__main__":
    main()
