"""Flaws in the changes of the list of voters, enabled by switches.py (SPEC T28.8, T28.9)."""

from __future__ import annotations

from typing import Final

from sim.engine.plan import Op, Plan
from sim.flaws.switches import Flaw, Patch, everywhere
from sim.plans.voter_swarm import Act, voter_plan
from tuque.core.node.node import Node
from tuque.tubes.election import membership, voters
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.model.voter_state import Change, Forcing, Voters


def old_list_alone_counts() -> list[Patch]:
    """While the list grows only the old list counts: the voter answers what it alone has."""

    def is_covered(n: Node, t: Tubes, voters: Voters, change: Change) -> bool:
        return True

    return everywhere(membership.is_covered, is_covered)


def growth_is_not_recorded() -> list[Patch]:
    """The list of three is used before it is on the disk, and never gets there."""
    sound = voters.adopt

    def adopt(n: Node, t: Tubes, listed: Voters) -> None:
        before = t.voter_state.in_force()
        if before is None or len(listed.rights) < len(before.rights) + 2:
            sound(n, t, listed)
            return
        records, n.records = n.records, None
        sound(n, t, listed)
        n.records = records

    return [(membership, "adopt", adopt)]


def force_asks_nobody() -> list[Patch]:
    """FORCE makes the list whatever the nodes that are not named have."""

    def newer(self: Forcing) -> tuple[bytes, bytes]:
        return b"", b""

    return [(Forcing, "newer", newer)]


# ---- plans that reveal them


def one_voter(seed: int, name: str, *more: Act) -> Plan:
    """The first node is the only voter, and leads the tube; then more acts."""
    acts: list[Act] = [{"do": "shrink", "to": 0}, *more]
    plan = voter_plan(f"{name} {seed}", acts)
    plan.faults = ["cut", "old_disk", "power", "slow"]
    return plan


def lost_twice(seed: int) -> Plan:
    """The voter loses power when its list has grown, and again when the others know that list."""
    grow = {"do": "grow", "spoil": "twice", "within_us": 30_000, "wait_ms": 3_000}
    plan = one_voter(seed, "lost twice", grow)
    for b in (1, 2):
        slow = {"a": 0, "b": b, "extra_ms": 150 + 10 * (seed % 5), "for_ms": 25_000}
        plan.ops.append(Op(2_000, "slow", slow))
    return order(plan)


def lost_and_alone(seed: int) -> Plan:
    """The voter loses power when another node knows the list, and comes back alone."""
    grow = {"do": "grow", "spoil": "apart", "wait_ms": 1_000 + 10 * (seed % 5)}
    return order(one_voter(seed, "lost and alone", grow))


def forced_behind(seed: int) -> Plan:
    """The voter is lost while one node lacks its last changes: FORCE is given there."""
    late = 1 + seed % 2
    plan = one_voter(seed, "forced behind", {
        "do": "force", "at": late, "back_ms": 4_000, "wait_ms": 6_000,
    })  # fmt: skip
    slow = {"a": 0, "b": late, "extra_ms": 700, "for_ms": 20_000}
    plan.ops.append(Op(6_000, "slow", slow))
    return order(plan)


def order(plan: Plan) -> Plan:
    """The plan with its operations in order of time."""
    plan.ops.sort(key=lambda op: op.at_ms)
    return plan


VOTER_FLAWS: Final = [
    Flaw("t49", "a growth counts the old list alone", old_list_alone_counts, 10, lost_twice),
    Flaw("t50", "a growth is used unrecorded", growth_is_not_recorded, 10, lost_and_alone),
    Flaw("t51", "FORCE asks nobody", force_asks_nobody, 10, forced_behind),
]
VOTER_RULES: Final = {"t49": "tube-sync", "t50": "tube-twice", "t51": "tube-sync"}
