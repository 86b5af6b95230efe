"""Somebody on the way between simulated nodes who have a secret (SPEC B2.7)."""

from __future__ import annotations

import msgspec
import pytest

from sim.engine.meddler import KINDS
from sim.flaws.sealed import meddled
from sim.plans.swarm import draw
from sim.runs.seeds import run_plan


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_out_of_its_place_ends_the_link(kind: str) -> None:
    """B2.7 A frame that was forged, changed, repeated, left out or moved has a wrong code: it ends
    the link before it is decoded, and changes nothing."""
    plan = meddled(1)
    for op in plan.ops:
        if op.kind == "meddle":
            op.args["what"] = kind
    outcome = run_plan(plan)
    assert outcome.findings == []
    assert outcome.seen["a link ends with a wrong frame"] > 5


def test_the_swarm_draws_secrets_and_each_way_to_meddle() -> None:
    sealed, kinds = 0, set()
    for seed in range(200):
        with_seals, without = draw(seed, with_seals=True), draw(seed)
        sealed += with_seals.sealed
        kinds |= {op.args["what"] for op in with_seals.ops if op.kind == "meddle"}
        if not with_seals.sealed:
            assert msgspec.json.encode(with_seals) == msgspec.json.encode(without)
    assert 40 < sealed < 90
    assert kinds == set(KINDS)
