"""Changes one thing in the core or the tubes, and checks that a test fails.

    PYTHONPATH=src python tools/mutants.py --sample 200

A mutant is a copy of the project with one statement removed, or one operator, constant or condition
changed. It is killed if a test of the module's rules fails. A survivor needs a test, or the line
can go, unless the change makes no difference. With `--sim 20` so many seeds of the simulator judge
each mutant instead of the tests.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import os
import py_compile
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import hiredis  # noqa: F401  loaded once, not for each mutant
import hypothesis  # noqa: F401  as above
import msgspec  # noqa: F401  as above
import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
ROOMS: Final = ("src/tuque/core", "src/tuque/tubes")
# parts of core that the tests of tubes cover
TASKS: Final = ("task", "tubes", "tube_records", "placement_records")
RULE: Final = re.compile(r"\b([A-Z])\d+\b")  # [R5], SPEC R2-R8, (R5.1), # R5.1
LIMIT_S: Final = 120  # of CPU time, for the tests of one mutant
WAIT_S: Final = 600  # limit for a mutant that hangs without using CPU
HUNG: Final = -1000

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

    def told(self, source: bytes) -> str:
        """The change on one line."""
        old = " ".join(source[self.start : self.end].decode().split())
        where = f"{self.path.removeprefix('src/tuque/')}:{self.line} {self.function}"
        return f"{where}: {old[:90]} -> {self.text}"


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
            if isinstance(node, ast.FunctionDef):
                self.function = node.name
                for statement in node.body:
                    self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """Mutate a statement and its parts; skips assertions and texts."""
        if isinstance(node, ast.Assert | ast.Pass | ast.FunctionDef | ast.Raise):
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


def mutants_of(path: Path) -> list[Mutant]:
    """All possible changes in a file."""
    source = path.read_bytes()
    finder = Finder(str(path.relative_to(ROOT)), source)
    finder.module(ast.parse(source))
    return finder.found


# ---- one mutant


def tests_for(place: Path, path: str) -> list[str]:
    """The test files for a module: of the rules it names; those that import it first."""
    stem = Path(path).stem
    text = (place / path).read_text()
    if "/tubes/" in path or stem in TASKS:
        files = [
            one for one in (place / "tests/tubes").glob("test_*.py") if "models" not in one.name
        ]
    else:
        letters = set(RULE.findall(text))
        files = [
            one
            for letter in sorted(letters)
            for one in (place / "tests/spec").glob(f"test_{letter.lower()}_*.py")
        ]
        if "T" in letters:
            files.append(place / "tests/tubes/test_tube_rules.py")
    files += (place / "tests/core").glob(f"test_core_{stem}*.py")
    named = f"{'.'.join(Path(path).with_suffix('').parts[1:])} import"
    files.sort(key=lambda one: (named not in one.read_text(), one.name))
    return [str(one) for one in files]


def run_tests(place: Path, tests: list[str]) -> int:
    """Run tests in a forked process that has the imports already; returns the exit status."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
        os.chdir(place)
        sys.path.insert(0, str(place / "src"))
        out = os.open(place / "out.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        status = 70
        try:
            status = int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *tests]))
        finally:
            os._exit(status)
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return HUNG if code in (-signal.SIGXCPU, -signal.SIGKILL) else code
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return HUNG


def run_seeds(place: Path, seeds: int, start: int) -> int:
    """Run the simulator on the copy; returns the exit status."""
    command = [sys.executable, "-m", "sim", "--seeds", str(seeds), "--start", str(start)]
    env = {**os.environ, "PYTHONPATH": str(place / "src")}
    with (place / "out.txt").open("w") as out:
        try:
            return subprocess.run(
                command, cwd=place, env=env, stdout=out, stderr=out, check=False,
                timeout=LIMIT_S + 30 * seeds,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            return HUNG


def killer(place: Path, mutant: Mutant, seeds: int, start: int) -> str:
    """What detected the change; empty if nothing did."""
    tests = tests_for(place, mutant.path)
    path = place / mutant.path
    sound = path.read_bytes()
    path.write_bytes(sound[: mutant.start] + mutant.text.encode() + sound[mutant.end :])
    try:
        status = run_seeds(place, seeds, start) if seeds else run_tests(place, tests)
    finally:
        path.write_bytes(sound)
    if status == 0:
        return ""
    if status == HUNG:
        return "it hangs"
    lines = (place / "out.txt").read_text(errors="replace").splitlines()
    told = [line for line in lines if line.startswith(("FAILED", "ERROR", "    "))]
    return told[-1].strip()[:100] if told else f"exit {status}"


def sampled(only: str, count: int, seed: int) -> list[Mutant]:
    """A random sample of all mutants."""
    found: list[Mutant] = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if only in str(path):
                found += mutants_of(path)
    print(f"{len(found)} mutants in all", flush=True)
    random.Random(seed).shuffle(found)
    return found[:count]


def copied(directory: str) -> Path:
    """A copy of the project to change; its bytecode is checked by content."""
    place = Path(directory) / "tuque"
    ignore = shutil.ignore_patterns(".*", "__pycache__", "*.so", "build")
    shutil.copytree(ROOT, place, ignore=ignore)
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(place / "src", quiet=1, invalidation_mode=mode)
    return place


def main() -> None:
    """Judge a sample, print the survivors and the score."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sample", type=int, default=200, help="how many mutants")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many of them")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--only", default="", help="a part of the path")
    parser.add_argument("--sim", type=int, default=0, help="seeds of the simulator, not tests")
    parser.add_argument("--start", type=int, default=1, help="the first of these seeds")
    args = parser.parse_args()
    killed = total = 0
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory() as directory:
        place = copied(directory)
        if args.sim and run_seeds(place, args.sim, args.start) != 0:
            text = (place / "out.txt").read_text(errors="replace")
            sys.exit(f"these seeds fail without a mutant: take another --start\n{text[:500]}")
        for mutant in sampled(args.only, args.sample, args.seed)[args.skip :]:
            by = killer(place, mutant, args.sim, args.start)
            total += 1
            killed += by != ""
            source = (place / mutant.path).read_bytes()
            print(f"{'killed  ' if by else 'SURVIVED'} {mutant.told(source)}  {by}", flush=True)
    print(f"killed {killed} of {total}")


if __name__ == "__main__":
    main()
