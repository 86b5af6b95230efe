"""Sets of nodes in a journal: bits of the writing process, translated to those here (SPEC J2.3).

A process numbers nodes in the order in which it meets them, so that a bit means another node
after a restart. PEER records name the nodes; loaded sets are kept in common bits until the
loading node has assigned its slots.
"""

from typing import final

from mypy_extensions import i64

from tuque.core.model.tombstones import SLOTS
from tuque.core.node.node import Node
from tuque.core.node.peers import (
    TooManyNodes,
    slot_for,
    slots_of,
)


@final
class NodeSets:
    """Sets of nodes across processes with different slots, in common bits by order of naming.

    Bit 0 is the node that owns the journal.
    """

    def __init__(self) -> None:
        self.ids: list[bytes] = [b""]  # by common bit
        self.bit_of: dict[bytes, int] = {}
        self.lives: dict[int, int] = {}  # by common bit: the latest incarnation recorded
        self.named: dict[int, int] = {0: 0}  # slot of the writing process: common bit
        self.seen: dict[int, int] = {}  # cache: its sets to common sets
        self.slot_sets: dict[int, int] = {}  # cache: common sets to those of this node

    def name(self, slot: i64, node_id: bytes, life: i64) -> None:
        """The slot means that node from here on; nodes beyond a set's size are ignored."""
        bit = self.bit_of.get(node_id)
        if bit is None:
            if len(self.ids) >= SLOTS:
                return
            bit = len(self.ids)
            self.ids.append(node_id)
            self.bit_of[node_id] = bit
        self.lives[bit] = life
        if self.named.get(slot, -1) != bit:
            self.named[slot] = bit
            self.seen = {}

    def common(self, nodes: i64) -> i64:
        """The written set in common bits, without slots that were never named."""
        if nodes <= 1:
            return nodes
        known = self.seen.get(nodes)
        if known is None:
            known = translated(nodes, self.named)
            self.seen[nodes] = known
        return known

    def life_of(self, nodes: i64) -> i64:
        """The latest incarnation of the one other node of a common set; 0 if there is none."""
        for bit in slots_of(nodes):
            return self.lives.get(bit, 0)
        return 0

    def custodians(self, n: Node, nodes: i64, life: i64) -> i64:
        """A common set of this node and one more in that incarnation, in slots.

        Without the other node if it has restarted since, perhaps without the job: according to the
        journal (F2.3), or to itself while the journal was read (F3.5).
        """
        if self.life_of(nodes) != life:
            return 1
        found = self.slots(n, nodes)
        for slot in slots_of(found):
            if n.losses.anew >> i64(slot) & 1 and n.lives.get(slot, 0) != life:
                return 1
        return found

    def slots(self, n: Node, nodes: i64) -> i64:
        """A common set in slots of the node, which learns their incarnations."""
        known = self.slot_sets.get(nodes)
        if known is None:
            slot_by_bit: dict[int, int] = {0: 0}
            for bit in slots_of(nodes):
                try:
                    slot = slot_for(n, self.ids[bit])
                except TooManyNodes:
                    continue
                slot_by_bit[bit] = slot
                n.lives.setdefault(slot, self.lives.get(bit, 0))
            known = translated(nodes, slot_by_bit)
            self.slot_sets[nodes] = known
        return known & ~n.forgotten


def translated(nodes: i64, bits: dict[int, int]) -> i64:
    """The set with each bit mapped; bits without a mapping are dropped."""
    moved: i64 = 0
    bit: i64 = 0
    while nodes > 0:
        if nodes & 1:
            to = bits.get(bit)
            if to is not None:
                moved |= 1 << to
        nodes >>= 1
        bit += 1
    return moved
