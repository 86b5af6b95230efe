"""Flaws of the sealed bus, and a load in which somebody on the way shows them (SPEC B2.7)."""

from __future__ import annotations

from typing import Final

from sim.engine.meddler import KINDS
from sim.engine.plan import Op, Plan
from sim.flaws.switches import Flaw, Patch
from tuque.wire.bus.seal import Seal


def numbers_do_not_count() -> list[Patch]:
    """B2.7: the code of a frame does not cover its number."""

    def code(self: Seal, payload: bytes) -> bytes:
        whole = self.keyed.copy()
        whole.update(payload)
        return whole.digest()

    return [(Seal, "code", code)]


def codes_are_not_checked() -> list[Patch]:
    """B2.7: any code will do."""

    def fits(self: Seal, code: bytes, payload: bytes) -> bool:
        return True

    return [(Seal, "fits", fits)]


def meddled(seed: int) -> Plan:
    """Jobs are added, copied and done, while somebody meddles with the frames."""
    plan = Plan(seed=f"meddled {seed}", nodes=3, chaos_ms=20_000, is_faultless=False, sealed=True)
    plan.faults = ["meddle"]
    for i in range(30):
        plan.ops.append(Op(100 + 600 * i, "add", {
            "client": "p", "node": i % 3, "queue": "q", "repl": 3, "retry": 5, "ttl": 120,
        }))  # fmt: skip
        what = KINDS[(seed + i) % len(KINDS)]
        plan.ops.append(Op(400 + 600 * i, "meddle", {"node": (seed + i) % 3, "what": what}))
    plan.ops.append(Op(500, "worker", {
        "client": "w", "node": 1, "queues": ["q"], "for_ms": 19_000, "work_ms": 20, "count": 3,
    }))  # fmt: skip
    plan.ops.sort(key=lambda op: op.at_ms)
    return plan


SEALED_FLAWS: Final = [
    Flaw("b1", "frames have no number", numbers_do_not_count, 3, meddled),
    Flaw("b2", "codes of frames are not checked", codes_are_not_checked, 3, meddled),
]
