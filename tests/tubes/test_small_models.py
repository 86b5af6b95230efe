"""The models of values, queues and the outbox are clean, and find what is broken (spec/model)."""

from __future__ import annotations

from types import ModuleType

import pytest

from spec.model import outbox, queues, values
from spec.model.__main__ import SMALL_WALKS

SMALL = [values, queues, outbox]
BROKEN = [(model, flaw) for model in SMALL for flaw in model.FLAWS]


@pytest.mark.parametrize("model", SMALL)
def test_walks_of_a_small_model_are_clean(model: ModuleType) -> None:
    assert [seed for seed in range(40) if model.walk(seed)[0]] == []


@pytest.mark.parametrize(("model", "flaw"), BROKEN)
def test_a_broken_rule_of_a_small_model_is_found(model: ModuleType, flaw: str) -> None:
    assert any(model.walk(seed, flaw)[0] for seed in range(1, SMALL_WALKS))
