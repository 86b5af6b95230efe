"""Keeps SPEC.md, the code and the tests consistent.

The code must name each built rule of SPEC.md (`[Q7]` in the docstring of the function that
implements it) and each built step of the sections G R V Q A W U (`Q7.1` at the end of a line); a
test under tests/ must name each built rule. Numbers in code or tests must exist in SPEC.md. Rules
and steps marked (cluster) are required once the server has links to peers. A line of SPEC.md has
at most 300 characters.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "SPEC.md"
CODE = ROOT / "src" / "tuque"
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
CLUSTER = "(cluster)"
LINE_MAX = 300


class Spec:
    """The numbers in SPEC.md, and which of them are built."""

    def __init__(self, text: str, is_clustered: bool) -> None:
        self.rules: dict[str, bool] = {}  # rule -> built
        self.steps: dict[str, bool] = {}
        self.faults: list[str] = []
        rule = ""
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > LINE_MAX:
                self.faults.append(f"SPEC.md:{number}: {len(line)} characters, at most {LINE_MAX}")
            found = RULE.match(line)
            if found:
                rule = found[1]
                if rule in self.rules:
                    self.faults.append(f"SPEC.md:{number}: rule {rule} stands twice")
                self.rules[rule] = is_clustered or CLUSTER not in found[2]
                continue
            step = STEP.match(line)
            if step:
                self.add_step(rule, step[1], int(step[2]), step[3], number, is_clustered)

    def add_step(
        self, rule: str, of: str, index: int, text: str, line: int, is_clustered: bool
    ) -> None:
        """Add one step; it must follow the previous one."""
        if of != rule:
            self.faults.append(f"SPEC.md:{line}: step {of}.{index} stands under {rule}")
        if index > 1 and f"{of}.{index - 1}" not in self.steps:
            self.faults.append(f"SPEC.md:{line}: step {of}.{index} follows no {of}.{index - 1}")
        is_built = self.rules.get(rule, False) and not text.startswith(CLUSTER)
        self.steps[f"{of}.{index}"] = is_built or is_clustered


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
    """Comments and strings of a Python file, where numbers of SPEC.md are searched."""
    return "\n".join(SAID.findall(text))


def named_under(folder: Path, doc_only: bool) -> dict[str, set[str]]:
    """Numbers named in the Python files of a folder, by file."""
    found: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text("utf-8")
        if doc_only or "SPEC" in text or "spec" in str(path.relative_to(ROOT)):
            found[str(path.relative_to(ROOT))] = names_in(comments_of(text))
    return found


def check() -> list[str]:
    """All faults, one line each."""
    is_clustered = (CODE / "server" / "peers.py").is_file()
    spec = Spec(SPEC.read_text("utf-8"), is_clustered)
    faults = list(spec.faults)
    in_code = named_under(CODE, doc_only=True)
    code = set().union(*in_code.values())
    in_tests = named_under(TESTS, doc_only=False)
    tested = set().union(*in_tests.values())
    for rule, is_built in spec.rules.items():
        if is_built and rule not in code:
            faults.append(f"{rule} is not named in src/tuque")
        if is_built and rule not in tested:
            faults.append(f"{rule} has no test under tests/")
    for step, is_built in spec.steps.items():
        if is_built and step[0] in STEPS_DEMANDED and step not in code:
            faults.append(f"{step} is not named in src/tuque")
    known = set(spec.rules) | set(spec.steps)
    for path, names in {**in_code, **in_tests}.items():
        faults += [f"{path}: {name} is not in SPEC.md" for name in sorted(names - known)]
    return faults


def main() -> int:
    """Print the faults; returns 0 if there are none."""
    faults = check()
    for fault in faults:
        print(fault)
    count = len(faults)
    print(f"spec_check: {count} faults" if count else "spec_check: SPEC, code and tests agree")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
