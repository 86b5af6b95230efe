"""SPEC.md, the code and the tests name the same rules."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import spec_check  # noqa: E402  tools/ is put on the path above


def test_spec_code_and_tests_agree() -> None:
    faults = spec_check.check()
    assert not faults, "\n".join(faults)


def test_spec_has_the_rules_it_should() -> None:
    spec = spec_check.Spec(spec_check.SPEC.read_text("utf-8"), False)
    assert len(spec.rules) > 60
    assert len(spec.steps) > 200
    assert spec.rules["A3"]
    assert not spec.rules["R2"], "R2 is for a cluster"
    assert not spec.steps["A3.4"]


def test_numbers_are_read_from_docstrings_and_line_ends() -> None:
    named = spec_check.names_in("[Q7] and x  # G3.2-G3.4, A1.2; not B16B or utf-8 F401x")
    assert named == {"Q7", "G3", "G3.2", "G3.3", "G3.4", "A1", "A1.2"}


def test_a_gap_in_the_numbers_is_a_fault() -> None:
    spec = spec_check.Spec("### A1 ON COMMAND X\n- A1.1 one.\n- A1.3 three.\n", False)
    assert spec.faults


def test_a_long_line_is_a_fault() -> None:
    text = "### A1 PROCEDURE ack\n- A1.1 " + "x" * 293 + "\n"
    assert spec_check.Spec(text, False).faults == []
    assert spec_check.Spec(text.replace("x", "xx", 1), False).faults == [
        "SPEC.md:2: 301 characters, at most 300"
    ]
