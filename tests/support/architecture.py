"""ARCHITECTURE.md as tests read it: the picture of the layers, and the files of each walk."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "ARCHITECTURE.md"
NAMES = re.compile(r" (\w+(?:, \w+)*)(?: {2,}|$)")
FILE = re.compile(r"`([\w./]+\.py)`")

BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")

Edge = tuple[str, str, str]  # package, package that it imports, module where it does


def levels(text: str) -> dict[str, int]:
    """Each package in the picture, and its line.

    The picture is the first block of the page. A cell of a box begins with names of packages, with
    commas between them, and two spaces behind them.
    """
    found: dict[str, int] = {}
    for number, line in enumerate(text.split("```")[1].splitlines()):
        if line.startswith("│"):
            for cell in line.strip("│").split("│"):
                named = NAMES.match(cell)
                for name in named[1].split(", ") if named else []:
                    assert name not in found, f"{name} is in the picture twice"
                    found[name] = number
    return found


def roots() -> dict[str, Path]:
    """Each package that the picture must have, and its folder or file."""
    inside = [path for path in (ROOT / "src" / "tuque").iterdir() if not path.stem.startswith("__")]
    found = {path.stem: path for path in inside if path.is_dir() or path.suffix == ".py"}
    found["pyspark_tuque"] = ROOT / "src" / "pyspark_tuque"
    return {**found, "sim": ROOT / "sim", "demo": ROOT / "examples" / "demo"}


def imports(path: Path, packages: set[str]) -> Iterator[Edge]:
    """What the modules in a folder, or one module, import of other packages when they run."""
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        for module in imported(ast.parse(file.read_text())):
            words = module.split(".")
            name = words[1] if words[0] == "tuque" and len(words) > 1 else words[0]
            if name in packages and name != path.stem:
                yield path.stem, name, file.relative_to(ROOT).as_posix()


def imported(tree: ast.AST) -> Iterator[str]:
    """Modules, and names that may be modules; not those that only type checkers import."""
    # An import is a statement: expressions, most of a tree, are not looked at.
    for node in chain.from_iterable(getattr(tree, part, ()) for part in BLOCKS):
        if isinstance(node, ast.If) and is_for_types(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from imported(node)


def is_for_types(test: ast.expr) -> bool:
    """Whether it is `TYPE_CHECKING`, of `typing` or as a name of the module."""
    match test:
        case ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
    return False


def upward(at: dict[str, int], edges: list[Edge]) -> list[str]:
    """The imports that do not point down in the picture."""
    return sorted({f"{where}: {a} imports {b}" for a, b, where in edges if at[b] <= at[a]})


def walk_rows(text: str, heading: str) -> list[list[str]]:
    """The files in the first column of the table under a heading, row by row."""
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [FILE.findall(line.split("|")[1]) for line in lines[2:]]
