"""Talks of the fuzzer with fixed seeds: nothing said on a port ends a node (SPEC C2.8, B2.5).

`make fuzz` has fresh ones; fuzz/talk.py says what a talk is, and what must never happen in one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fuzz"))

from talk import judged

TALKS = 24


@pytest.mark.parametrize("seed", range(TALKS))
def test_a_talk_of_the_fuzzer(seed: int) -> None:
    """C2.8: Whatever goes wrong while bytes of a client are read ends that connection"""
    wrong, inputs, _, _ = judged(seed, False)
    assert not wrong
    assert inputs > 0
