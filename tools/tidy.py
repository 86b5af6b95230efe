"""Checks the rules of STYLE.md that a program can check. Runs as a test; prints a line per fault.

python tools/tidy.py [file ...]
python tools/tidy.py --figures   the figures of the house
python tools/tidy.py --lower     writes to tools/limits.toml the figures that are lower now
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from functools import cached_property
from pathlib import Path

import limits

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "tuque"

FUNCTION_LINES_MAX = 50
COLUMNS_MAX = 100
DECIDING = ("core", "cluster", "tubes", "wire", "store")
WORDLESS = ("core", "cluster", "tubes")  # errors are codes
TEXTS = "src/tuque/core/model/errors.py"  # which has their texts
SHELL_EXCEPTIONS = {"src/tuque/store/disk.py"}

# modules that deciding code may not import (as import-linter checks; this also finds imports
# inside functions) and calls whose result differs from run to run
IMPURE = frozenset(
    [
        "time",
        "datetime",
        "random",
        "secrets",
        "os",
        "socket",
        "select",
        "selectors",
        "threading",
        "asyncio",
        "logging",
        "multiprocessing",
        "subprocess",
        "uuid",
    ]
)
IMPURE_CALLS = frozenset(("hash", "id"))
ERROR_TEXT = re.compile(rb"-?(ERR |[A-Z]{3,} ('|[A-Za-z]?[a-z]))")  # as RESP has them
FORBIDDEN = frozenset(("pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"))
FORBIDDEN_CALLS = frozenset(("eval", "exec", "compile", "__import__"))
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError")
BAD_NAMES = re.compile(
    r"^_?(handle|do|process(?!_(crash|pool|id)))_[a-z]"
    r"|(^|_)(utils?|helpers?|manager)(_|$)|(Manager|Utils?|Helper)$"
)
PLACES = re.compile(
    r"(?<![\w.])/(home|root|Users|work|opt/venv)/|/tmp/[a-z]|\b(pypi\.org|files\.pythonhosted|"
    r"index-url|extra-index|\.internal\b|artifactory|nexus\.)"
)
EXCUSES = re.compile(r"#\s*(noqa|type:\s*ignore|pragma: no cover)(:?\s*[\w\-\[\], ]*)?(.*)$")

TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".cfg", ".yml", ".yaml", ".c", ".h", ".sh", ".html"}
# words that this tool, its test and the style guide need for naming them
SELF = {"tools/tidy.py", "tests/house/test_tidy.py"}


def tracked_files() -> list[Path]:
    """Files of the project, including new ones, without those that git ignores."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        paths = [ROOT / line for line in listed.stdout.splitlines()]
    except (OSError, subprocess.CalledProcessError):
        rooms = ("src", "sim", "examples", "tests", "tools", "bench", "docs", "decisions")
        paths = [path for room in rooms for path in (ROOT / room).rglob("*")]
        paths += ROOT.glob("*.*")
    return sorted(path for path in paths if path.is_file() and "__pycache__" not in path.parts)


def rel(path: Path) -> str:
    """The path shown in reports."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.as_posix()


CHECKED = frozenset(
    (
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.ClassDef,
        ast.Import,
        ast.ImportFrom,
        ast.Call,
        ast.ExceptHandler,
        ast.For,
        ast.comprehension,
        ast.Constant,
        ast.Starred,
    )
)


def walk(top: ast.AST) -> list[ast.AST]:
    """All nodes of it, in the order of ast.walk and in half its time; without contexts."""
    found = [top]
    for node in found:
        for field in node._fields:
            if field != "ctx":
                value = getattr(node, field, None)
                if isinstance(value, list):
                    found += [one for one in value if isinstance(one, ast.AST)]
                elif isinstance(value, ast.AST):
                    found.append(value)
    return found


class PythonFile:
    """One Python file and the faults found in it."""

    def __init__(self, path: Path, text: str) -> None:
        self.name = rel(path)
        self.text = text
        self.tree = ast.parse(text)
        self.nodes = walk(self.tree)
        self.faults: list[str] = []
        parts = self.name.split("/")
        self.in_src = self.name.startswith(("src/", "sim/", "examples/"))
        self.is_deciding = (
            self.name.startswith("src/") and len(parts) > 3 and parts[2] in DECIDING
        ) and self.name not in SHELL_EXCEPTIONS
        is_table = self.name == TEXTS
        self.is_wordless = self.is_deciding and parts[2] in WORDLESS and not is_table
        self.is_compiled = self.is_deciding or self.name.startswith("src/tuque/server/")

    def fault(self, line: int, text: str) -> None:
        """Record one fault."""
        self.faults.append(f"{self.name}:{line}: {text}")

    def check(self) -> list[str]:
        """All faults of the file."""
        self.check_size()
        self.check_comments()
        for node in self.nodes:
            if type(node) not in CHECKED:
                continue
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.check_function(node)
            elif isinstance(node, ast.ClassDef):
                self.check_name(node.name, node.lineno)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                self.check_import(node)
            elif isinstance(node, ast.Call):
                self.check_call(node)
            elif isinstance(node, ast.Starred):
                self.check_starred(node)
            elif isinstance(node, ast.ExceptHandler):
                self.check_except(node)
            elif isinstance(node, (ast.For, ast.comprehension)):
                self.check_iteration(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, bytes):
                self.check_words(node, node.value)
        return self.faults

    def check_size(self) -> None:
        """Check the length of the file and its lines, and its docstring."""
        lines = self.text.splitlines()
        if len(lines) > limits.FILE_LINES_MAX and not self.name.startswith("src/"):
            self.fault(1, f"{len(lines)} lines, at most {limits.FILE_LINES_MAX}")
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS_MAX:
                self.fault(number, f"{len(line)} columns, at most {COLUMNS_MAX}")
        if self.in_src and lines and ast.get_docstring(self.tree) is None:
            self.fault(1, "the module has no docstring")

    def check_comments(self) -> None:
        """Linter exceptions need a rule and a reason."""
        if not any(word in self.text for word in ("noqa", "type:", "pragma:")):
            return
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type != tokenize.COMMENT:
                continue
            found = EXCUSES.search(token.string)
            if found and self.name not in SELF and not has_reason(token.string):
                self.fault(token.start[0], f"no rule or no reason: {token.string}")

    def check_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Check length, name and annotations of a function."""
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > FUNCTION_LINES_MAX:
            self.fault(node.lineno, f"{node.name}: {length} lines, at most {FUNCTION_LINES_MAX}")
        self.check_name(node.name, node.lineno)
        if self.in_src and node.returns is None:
            self.fault(node.lineno, f"{node.name}: no return type")
        if self.is_compiled:
            self.check_caught(node)

    def check_caught(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """mypyc gives a name the type of its first `except`: other types need other names."""
        types: dict[str, str] = {}
        for caught in walk(node):
            if isinstance(caught, ast.ExceptHandler) and caught.name and caught.type:
                found = ast.unparse(caught.type)
                if types.setdefault(caught.name, found) != found:
                    self.fault(
                        caught.lineno, f"{caught.name}: caught as {types[caught.name]} above"
                    )

    def check_name(self, name: str, line: int) -> None:
        """No meaningless names."""
        if self.in_src and BAD_NAMES.search(name):
            self.fault(line, f"{name}: name it by its cause or its effect")

    def check_import(self, node: ast.Import | ast.ImportFrom) -> None:
        """No module that executes its input; nothing impure in deciding code."""
        if isinstance(node, ast.ImportFrom):
            tops = [(node.module or "").split(".")[0]] if node.level == 0 else []
            if any(alias.name == "*" for alias in node.names):
                self.fault(node.lineno, "import *")
        else:
            tops = [alias.name.split(".")[0] for alias in node.names]
        for top in tops:
            if self.in_src and top in FORBIDDEN:
                self.fault(node.lineno, f"{top} runs what it reads")
            if self.is_deciding and top in IMPURE:
                self.fault(node.lineno, f"{top} in deciding code")

    def check_call(self, node: ast.Call) -> None:
        """No eval or the like; no hash() or id() in deciding code."""
        if not isinstance(node.func, ast.Name) or not self.in_src:
            return
        if node.func.id in FORBIDDEN_CALLS:
            self.fault(node.lineno, f"{node.func.id}()")
        if self.is_deciding and node.func.id in IMPURE_CALLS:
            self.fault(node.lineno, f"{node.func.id}() differs from run to run")

    def check_starred(self, node: ast.Starred) -> None:
        """No `*(a, b)` in a call or a display: its parts stand there themselves."""
        if isinstance(node.value, (ast.Tuple, ast.List)):
            self.fault(node.lineno, "a starred tuple: write its parts without it")

    def check_except(self, node: ast.ExceptHandler) -> None:
        """No bare except, and none that swallows everything silently."""
        if node.type is None:
            self.fault(node.lineno, "bare except")
        elif (
            isinstance(node.type, ast.Name)
            and node.type.id in ("Exception", "BaseException")
            and all(isinstance(line, (ast.Pass, ast.Continue)) for line in node.body)
            and self.in_src
        ):
            self.fault(node.lineno, "swallows every error")

    def check_words(self, node: ast.Constant, value: bytes) -> None:
        """No text of an error where errors are codes."""
        if self.is_wordless and ERROR_TEXT.match(value):
            self.fault(node.lineno, "an error's text: give it a code in core/model/errors.py")

    def check_iteration(self, node: ast.For | ast.comprehension) -> None:
        """No iteration over a set in deciding code: its order differs between runs."""
        if not self.is_deciding:
            return
        walked = node.iter
        is_set = isinstance(walked, (ast.Set, ast.SetComp)) or (
            isinstance(walked, ast.Call)
            and isinstance(walked.func, ast.Name)
            and walked.func.id in ("set", "frozenset")
        )
        if isinstance(walked, (ast.Name, ast.Attribute)) and not is_set:
            label = walked.id if isinstance(walked, ast.Name) else walked.attr
            is_set = label in self.set_names
        if is_set:
            self.fault(walked.lineno, "iteration over a set in deciding code")

    @cached_property
    def set_names(self) -> frozenset[str]:
        """Names that the file annotates or assigns as sets."""
        names: set[str] = set()
        for node in self.nodes:
            target: ast.expr | None = None
            if isinstance(node, ast.AnnAssign) and is_set_type(node.annotation):
                target = node.target
            elif isinstance(node, ast.arg) and node.annotation and is_set_type(node.annotation):
                names.add(node.arg)
            elif isinstance(node, ast.Assign) and is_set_value(node.value):
                target = node.targets[0]
            if isinstance(target, ast.Name):
                names.add(target.id)
            elif isinstance(target, ast.Attribute):
                names.add(target.attr)
        return frozenset(names)


def is_set_type(node: ast.expr) -> bool:
    """Whether an annotation says set."""
    base = node.value if isinstance(node, ast.Subscript) else node
    return isinstance(base, ast.Name) and base.id in ("set", "frozenset")


def is_set_value(node: ast.expr) -> bool:
    """Whether an expression makes a set."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("set", "frozenset")
    return isinstance(node, (ast.Set, ast.SetComp))


def has_reason(comment: str) -> bool:
    """`# noqa: E402  why` and `# type: ignore[code]  # why`: a rule and some words."""
    if "noqa" in comment:
        found = re.search(r"noqa:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*(.*)$", comment)
        words = found[2] if found else ""
    elif "type:" in comment:
        found = re.search(r"type:\s*ignore\[[\w\-, ]+\](.*)$", comment)
        words = found[1] if found else ""
    else:
        found = re.search(r"pragma: no cover(.*)$", comment)
        words = found[1] if found else ""
    return len(re.findall(r"[A-Za-z]{2,}", words)) >= 2


def check_text(path: Path, text: str) -> list[str]:
    """Forbidden texts: to-do marks in src, paths of a machine."""
    faults: list[str] = []
    name = rel(path)
    seeks_marks = name.startswith("src/") and UNFINISHED.search(text) is not None
    seeks_places = not name.startswith("tests/") and PLACES.search(text) is not None
    for number, line in enumerate(text.splitlines(), 1):
        if seeks_marks and UNFINISHED.search(line):
            faults.append(f"{name}:{number}: unfinished: {line.strip()[:60]}")
        if seeks_places and PLACES.search(line):
            faults.append(f"{name}:{number}: a place of one machine: {line.strip()[:60]}")
        if "\t" in line and path.suffix == ".py":
            faults.append(f"{name}:{number}: tab")
        if path.suffix in {".py", ".md"} and line != line.rstrip():
            faults.append(f"{name}:{number}: space at the end of the line")
    return faults


def check_docs() -> list[str]:
    """Every option of the server is in docs/configuration.md."""
    sys.path.insert(0, str(ROOT / "src"))
    from tuque.server.config.options import OPTIONS

    page = ROOT / "docs" / "configuration.md"
    text = page.read_text("utf-8") if page.is_file() else ""
    missing = [option.name for option in OPTIONS.values() if f"`{option.name}`" not in text]
    return [f"docs/configuration.md: {name} is missing" for name in missing]


def check_dead() -> list[str]:
    """Every module of src/tuque is imported or named elsewhere."""
    faults: list[str] = []
    texts = {path: path.read_text("utf-8") for path in tracked_files() if is_text(path)}
    naming: dict[str, set[Path]] = {}  # word -> the files that have it
    for path, text in texts.items():
        for word in set(re.findall(r"\w+", text)):
            naming.setdefault(word, set()).add(path)
    for path in sorted(SRC.rglob("*.py")):
        if path.name in ("__init__.py", "__main__.py"):
            continue
        dotted = ".".join(path.relative_to(SRC.parent).with_suffix("").parts)
        parent, _, last = dotted.rpartition(".")
        pattern = re.compile(
            rf"{re.escape(dotted)}\b|from {re.escape(parent)} import [^\n]*\b{last}\b|\b{last}:"
        )
        others = (texts[other] for other in naming.get(last, ()) if other != path)
        if not any(pattern.search(text) for text in others):
            faults.append(f"{rel(path)}: nobody imports it")
    return faults


def check_rooms(top: Path = SRC) -> list[str]:
    """A package has a docstring."""
    faults: list[str] = []
    for folder in sorted({path.parent for path in top.rglob("*.py")}):
        names = {path.name for path in folder.glob("*.py")}
        if "__init__.py" not in names:
            faults.append(f"{rel(folder)}: no __init__.py, which says what it holds")
    return faults


def is_text(path: Path) -> bool:
    """Whether people write the file."""
    return path.suffix in TEXT_SUFFIXES or path.name in ("Makefile", "LICENSE")


def check_file(path: Path, modules: list[limits.Facts]) -> list[str]:
    """All faults of one file; a module of src/ is added to `modules`."""
    if not is_text(path):
        return []
    text = path.read_text("utf-8")
    faults = [] if rel(path) in SELF else check_text(path, text)
    if path.suffix == ".py":
        file = PythonFile(path, text)
        faults += file.check()
        if file.name.startswith("src/"):
            modules.append(limits.facts_of(file.name, text, file.tree, file.nodes))
    return faults


def pages() -> dict[str, str]:
    """The pages that people read."""
    paths = [ROOT / name for name in limits.PAGES] + sorted(
        path for folder in ("docs", "spec") for path in (ROOT / folder).glob("*.md")
    )
    return {rel(path): path.read_text("utf-8") for path in paths if path.is_file()}


def main(arguments: list[str]) -> int:
    """Check the files named, or the whole project."""
    modules: list[limits.Facts] = []
    names = [Path(name).resolve() for name in arguments if not name.startswith("--")]
    faults = [fault for path in names or tracked_files() for fault in check_file(path, modules)]
    if "--figures" in arguments:
        print("\n".join(limits.figures(modules)))
        return 0
    if not names:
        now, most = limits.measure(modules, pages()), limits.listed()
        if "--lower" in arguments:
            most = limits.lowered(now, most)
            limits.LIMITS.write_text(limits.as_toml(most), "utf-8")
        faults += limits.compare(now, most) + check_docs() + check_dead() + check_rooms()
    for fault in faults:
        print(fault)
    print(f"tidy: {len(faults)} faults" if faults else "tidy: nothing to say")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
