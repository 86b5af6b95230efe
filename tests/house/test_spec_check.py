"""The spec, the code and the tests name the same rules."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import get_args

from tuque.core.msgs.bus import AnyMessage

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import spec_check  # noqa: E402  tools/ is put on the path above


def test_spec_code_and_tests_agree() -> None:
    faults = spec_check.check()
    assert not faults, "\n".join(faults)


def test_spec_has_the_rules_it_should() -> None:
    spec = spec_check.Spec(spec_check.books())
    assert len(spec.rules) > 60
    assert len(spec.steps) > 200
    assert {"A3", "R2"} <= spec.rules and "A3.4" in spec.steps


def test_the_messages_of_the_bus_are_those_of_the_spec() -> None:
    """B3.1 SLOTS, REPLJOB, REPLJOBS, GOTJOB, HOLDERS, ..., HEARTBEAT, REFUSAL."""
    text = spec_check.books()["spec/durability.md"]
    rule = text[text.index("### B3 ") : text.find("\n## ", text.index("### B3 "))]
    listed = {name.replace("-", "") for name in re.findall(r"\b[A-Z]{3}[A-Z-]*\b", rule)}
    sent = {of.__name__.upper() for of in get_args(AnyMessage)}
    renamed = {  # class: word of the spec
        "LIFEAT": "LIFE",
        "QUEUESTOLD": "QUEUES",
        "TOPICSTOLD": "TOPICS",
        "TUBESTOLD": "TUBES",
        "VOTERSTOLD": "VOTERS",
    }
    assert {renamed.get(name, name) for name in sent} == listed


def test_numbers_are_read_from_docstrings_and_line_ends() -> None:
    named = spec_check.names_in("[Q7] and x  # G3.2-G3.4, A1.2; not B16B or utf-8 F401x")
    assert named == {"Q7", "G3", "G3.2", "G3.3", "G3.4", "A1", "A1.2"}


def test_a_gap_in_the_numbers_is_a_fault() -> None:
    spec = spec_check.Spec({"a.md": "### A1 ON COMMAND X\n- A1.1 one.\n- A1.3 three.\n"})
    assert spec.faults


def test_a_step_that_stands_twice_is_a_fault() -> None:
    pages = {"a.md": "### A1 X\n- A1.1 one.\n- A1.2 two.\n", "docs/commands.md": "- A1.2 two.\n"}
    faults = ["docs/commands.md:1: step A1.2 stands twice"]
    assert spec_check.Spec(pages).faults == faults
    pages["a.md"] = pages["a.md"].replace("two", "See X in docs/commands.md")
    assert spec_check.Spec(pages).faults == []


def test_the_rules_of_commands_need_no_headings() -> None:
    text = "### SHOW\n- S1.1 one.\n- S1.2 two.\n"
    spec = spec_check.Spec({"docs/commands.md": text})
    assert spec.faults == [] and spec.rules == {"S1"}
    several = spec_check.Spec({"docs/commands.md": "### ADDJOB\n- R1.1 one.\n- W1.1 two.\n"})
    assert several.faults == [] and several.rules == {"R1", "W1"}
    assert spec_check.Spec({"a.md": text}).faults == [
        "a.md:2: step S1.1 stands under ",
        "a.md:3: step S1.2 stands under ",
    ]


def test_the_texts_of_rules_implement_none() -> None:
    assert not any("details" in path for path in spec_check.named_under(spec_check.CODE, True))


def test_a_long_line_is_a_fault() -> None:
    text = "### A1 PROCEDURE ack\n- A1.1 " + "x" * 293 + "\n"
    assert spec_check.Spec({"a.md": text}).faults == []
    assert spec_check.Spec({"a.md": text.replace("x", "xx", 1)}).faults == [
        "a.md:2: 301 characters, at most 300"
    ]
