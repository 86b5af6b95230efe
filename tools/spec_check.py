"""Keeps the spec, the code and the tests consistent.

The code must name each rule of the spec (BOOKS) (`[Q7]` in the docstring of the function that
implements it) and each step of the sections G R V Q A W U (`Q7.1` at the end of a line); a
test under tests/ must name each rule. Numbers in code or tests must exist in the
spec. A line of a rule has at most 300 characters. docs/commands.md has the rules of single
commands (wire/commands/details.py), other pages of docs/ those of tools and options. There a
step needs no heading.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = (  # pages that hold rules of their subject, at their end
    "worker",
    "histories",
    "operations",
    "cluster",
    "users",
    "security",
    "console",
    "from-tarantool-queue",
    "commands",
)
BOOKS = [*sorted((ROOT / "spec").glob("*.md")), *((ROOT / "docs" / f"{n}.md") for n in DOCS)]
WITHOUT_HEADINGS = "docs/"
TEXTS = "src/tuque/wire/commands/details"  # rules themselves: they implement nothing
CODE = ROOT / "src" / "tuque"
TOOLS = ROOT / "tests" / "tools"  # programs that judge runs
TESTS = ROOT / "tests"

RULE = re.compile(r"^### ([A-Z]\d+) (.+)$")
STEP = re.compile(r"^- ([A-Z]\d+)\.(\d+) (.+)$")
NAMED = re.compile(
    r"(?<![A-Za-z0-9_.-])([GCRVQAPMJSEFHKBLYZTIWUONX]\d{1,2})(?:\.(\d{1,2}))?(?![A-Za-z0-9_])"
)
SPAN = re.compile(r"([GCRVQAPMJSEFHKBLYZTIWUONX]\d{1,2})\.(\d{1,2})-\1\.(\d{1,2})")
RULE_SPAN = re.compile(
    r"(?<![A-Za-z0-9_.-])([GCRVQAPMJSEFHKBLYZTIWUONX])(\d{1,2})-\1(\d{1,2})(?![\d.])"
)
# Comments and strings; a tokenizer in Python would take most of the time.
SAID = re.compile(
    r'''#[^\n]*|"""(?:[^\\]|\\.)*?"""|"(?:[^"\\\n]|\\.)*"''' r"|'(?:[^'\\\n]|\\.)*'", re.DOTALL
)
STEPS_DEMANDED = "GRVQAWU"
LINE_MAX = 300


class Spec:
    """The numbers in the books: name of a page -> its text."""

    def __init__(self, pages: Mapping[str, str]) -> None:
        self.rules: set[str] = set()
        self.steps: set[str] = set()
        self.faults: list[str] = []
        self.full: set[str] = set()  # steps that are more than "See ..."
        for page, text in pages.items():
            rule = ""
            for number, line in enumerate(text.splitlines(), 1):
                rule = self.add_line(f"{page}:{number}", rule, line)
        self.faults += self.gaps()

    def add_line(self, place: str, rule: str, line: str) -> str:
        """Add what one line names; returns the rule that it stands under."""
        found = RULE.match(line)
        if found:
            if found[1] in self.rules:
                self.faults.append(f"{place}: rule {found[1]} stands twice")
            self.rules.add(found[1])
            return found[1]
        step = STEP.match(line)
        if line.startswith("#"):
            rule = ""
        if step:
            own = place.startswith(WITHOUT_HEADINGS) and not rule
            self.rules |= {step[1]} if own else set()
            self.add_step(step[1] if own else rule, step, place)
        if (rule or step) and len(line) > LINE_MAX and not line.startswith("|"):
            self.faults.append(f"{place}: {len(line)} characters, at most {LINE_MAX}")
        return rule

    def add_step(self, rule: str, step: re.Match[str], place: str) -> None:
        """Add one step."""
        name = f"{step[1]}.{int(step[2])}"
        if step[1] != rule:
            self.faults.append(f"{place}: step {name} stands under {rule}")
        if not step[3].startswith("See "):
            if name in self.full:
                self.faults.append(f"{place}: step {name} stands twice")
            self.full.add(name)
        self.steps.add(name)

    def gaps(self) -> list[str]:
        """Steps before which one is missing."""
        of = [step.split(".") for step in sorted(self.steps)]
        before = [(f"{rule}.{index}", f"{rule}.{int(index) - 1}") for rule, index in of]
        return [
            f"step {step} follows no {last}"
            for step, last in before
            if not step.endswith(".1") and last not in self.steps
        ]


def books() -> dict[str, str]:
    """The pages that hold rules: path in the project -> text."""
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in BOOKS}


def names_in(text: str) -> set[str]:
    """Rules and steps in a text; `A3.1-A3.3` names each of them, a step also names its rule."""
    named: set[str] = set()
    for rule, first, last in SPAN.findall(text):
        named |= {f"{rule}.{index}" for index in range(int(first), int(last) + 1)}
    for letter, low, high in RULE_SPAN.findall(text):
        named |= {f"{letter}{index}" for index in range(int(low), int(high) + 1)}
    for rule, step in NAMED.findall(text):
        named.add(rule)
        if step:
            named.add(f"{rule}.{int(step)}")
    return named | {name.partition(".")[0] for name in named}


def comments_of(text: str) -> str:
    """Comments and strings of a Python file, where numbers of the spec are searched."""
    return "\n".join(SAID.findall(text))


def named_under(folder: Path, doc_only: bool) -> dict[str, set[str]]:
    """Numbers named in the Python files of a folder, by file."""
    found: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text("utf-8")
        if str(path.relative_to(ROOT)).startswith(TEXTS):
            continue
        if doc_only or "SPEC" in text or "spec" in str(path.relative_to(ROOT)):
            found[str(path.relative_to(ROOT))] = names_in(comments_of(text))
    return found


def check() -> list[str]:
    """All faults, one line each."""
    spec = Spec(books())
    faults = list(spec.faults)
    in_code = {**named_under(CODE, doc_only=True), **named_under(TOOLS, doc_only=True)}
    code = set().union(*in_code.values())
    in_tests = named_under(TESTS, doc_only=False)
    tested = set().union(*in_tests.values())
    faults += [f"{rule} is not named in src/tuque" for rule in sorted(spec.rules - code)]
    faults += [f"{rule} has no test under tests/" for rule in sorted(spec.rules - tested)]
    demanded = {step for step in spec.steps if step[0] in STEPS_DEMANDED}
    faults += [f"{step} is not named in src/tuque" for step in sorted(demanded - code)]
    known = spec.rules | spec.steps
    for path, names in {**in_code, **in_tests}.items():
        faults += [f"{path}: {name} is not in the spec" for name in sorted(names - known)]
    return faults


def main() -> int:
    """Print the faults; returns 0 if there are none."""
    faults = check()
    for fault in faults:
        print(fault)
    count = len(faults)
    print(f"spec_check: {count} faults" if count else "spec_check: spec, code and tests agree")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
