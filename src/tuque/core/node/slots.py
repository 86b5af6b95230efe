"""Slots: the other nodes as the core sees them, and messages to them (SPEC K2).

Every node ever known has a slot; a set of nodes is a bit set of slots, bit 0 this node.
cluster/ decides who belongs to the cluster and who is alive; the shell sends messages. A link
belongs to one incarnation of a peer: messages of an older one never arrive here. A set member
that names an older incarnation than the one known is ignored: what that one had may be lost
(K2.2).
"""

from hashlib import blake2b
from typing import Final

from mypy_extensions import i64

from tuque.core.msgs.bus import AnyMessage, GotJob, Slots
from tuque.core.node.node import Node, Peer

SLOTS: Final = 62  # bits of a set, including this node's


class TooManyNodes(Exception):
    """All slots are in use."""


def slot_for(n: Node, node_id: bytes) -> i64:
    """The slot of the node, a new one if needed (K2.1). Raises TooManyNodes."""
    slot = n.slot_of.get(node_id)
    if slot is not None:
        return slot
    if len(n.peers) >= SLOTS:
        raise TooManyNodes(f"a node can know {SLOTS - 1} others at most")
    new = Peer(len(n.peers), node_id)
    n.peers.append(new)
    n.node_ids.append(node_id)
    n.slot_of[node_id] = new.slot
    return new.slot


def slots_of(mask: i64) -> list[int]:
    """The slots of a set in ascending order, without this node."""
    slots: list[int] = []
    slot: i64 = 1
    mask >>= 1
    while mask > 0:
        if mask & 1:
            slots.append(slot)
        mask >>= 1
        slot += 1
    return slots


def count_of(mask: i64) -> i64:
    """How many nodes are in the set."""
    count: i64 = 0
    while mask > 0:
        mask &= mask - 1
        count += 1
    return count


def say(n: Node, slot: i64, message: AnyMessage) -> bool:
    """Put a message into the peer's outbox; False if there is no link."""
    peer = n.peers[slot]
    if not peer.is_linked:
        return False
    if not peer.is_dirty:
        peer.is_dirty = True
        n.dirty_peers.append(peer)
    peer.outbox.append(message)
    return True


def say_got(n: Node, slot: i64, id: bytes) -> None:
    """Send GOTJOB, many ids of a turn in one message."""
    outbox = n.peers[slot].outbox
    if len(outbox) > 0:
        last = outbox[len(outbox) - 1]
        if type(last) is GotJob:  # isinstance would ask its metaclass
            last.ids.append(id)
            return
    say(n, slot, GotJob([id]))


def introduce(n: Node, slot: i64, mask: i64) -> None:
    """Introduce the set's slots to the peer before a message uses them."""
    peer = n.peers[slot]
    new = mask & ~peer.told
    if new == 0 or not peer.is_linked:
        return
    nodes: list[tuple[int, bytes, int]] = []
    if new & 1:
        nodes.append((0, n.node_id, n.lives.get(0, 0)))
    for other in slots_of(new):
        nodes.append((other, n.peers[other].node_id, n.lives.get(other, 0)))
    peer.told |= new
    say(n, slot, Slots(nodes))


def on_slots(n: Node, slot: i64, m: Slots) -> None:
    """[K2] ON RECV SLOTS: the peer's numbers for nodes (K2.1), each in one incarnation (K2.2)."""
    peer = n.peers[slot]
    peer.masks = {}
    peer.wide_masks = {}
    for number, node_id, life in m.nodes:
        if 0 <= number < SLOTS and len(node_id) == 40:
            peer.said[number] = (slot_for(n, node_id), life)
            learn(n, peer, number)


def learn(n: Node, peer: Peer, number: i64) -> None:
    """Map the peer's slot number, unless it names an older incarnation (K2.2).

    A newer one than is known here has restarted and is not linked yet: the mapping is valid.
    """
    mine, life = peer.said[number]
    known = n.lives.get(mine, 0)
    if life == 0 or life >= known:
        peer.theirs[number] = mine
        if life > known and mine != 0:
            n.losses.renewed |= 1 << mine
            n.peers[mine].news_round = n.round
    else:
        peer.theirs.pop(number, None)  # K2.2


def renew(n: Node, slot: i64, life: i64) -> None:
    """[K2.2] The node now has that incarnation; members that name another one are ignored."""
    n.lives[slot] = life
    n.losses.renewed &= ~(1 << slot)
    if n.records is not None:
        n.records.rename(slot)
    for peer in n.peers:
        peer.told &= ~(1 << slot)
        peer.masks = {}
        for number, (mine, _) in peer.said.items():
            if mine == slot:
                learn(n, peer, number)


def in_doubt(n: Node) -> i64:
    """[K2.3] The nodes whose known incarnation may have ended.

    A node that answers a heartbeat begun after a newer one was named came back from an old disk.
    """
    if n.losses.renewed != 0:
        for slot in slots_of(n.losses.renewed):
            peer = n.peers[slot]
            if peer.echoed_round > peer.news_round:
                n.losses.renewed &= ~(1 << slot)
    return n.losses.renewed


def journal_fails(n: Node, slot: i64) -> bool:
    """[K4] Whether the journal of the node cannot be written now, as it has said (K4.5)."""
    if slot == 0:
        return n.records is not None and n.records.is_failing
    said_ms = n.peers[slot].failing_ms
    return said_ms != 0 and n.now_ms - said_ms <= 2 * n.limits.node_timeout_ms


def set_failing(n: Node, slot: i64, is_failing: bool) -> None:
    """[K4] The node says whether its journal cannot be written now (K4.5)."""
    peer = n.peers[slot]
    is_new = is_failing != (peer.failing_ms != 0)
    peer.failing_ms = n.now_ms if is_failing else 0
    if is_new and n.policy is not None:
        n.policy.on_reach(n)


def translate(n: Node, slot: i64, mask: i64) -> i64:
    """Translate the peer's set to this node's slots; drops forgotten and unknown nodes."""
    peer = n.peers[slot]
    known = peer.masks.get(mask)
    if known is None:
        known = 0
        rest = mask
        number: i64 = 0
        while rest > 0:
            if rest & 1:
                mine = peer.theirs.get(number)
                if mine is not None:
                    known |= 1 << mine
            rest >>= 1
            number += 1
        if len(peer.masks) >= 4096:
            peer.masks = {}
        peer.masks[mask] = known
    return known & ~n.forgotten


def translate_all(n: Node, slot: i64, mask: i64) -> i64:
    """As `translate`, but with any incarnation: an ack must reach all."""
    peer = n.peers[slot]
    known = peer.wide_masks.get(mask)
    if known is None:
        known = 0
        rest = mask
        number: i64 = 0
        while rest > 0:
            if rest & 1:
                said = peer.said.get(number)
                if said is not None:
                    known |= 1 << i64(said[0])
            rest >>= 1
            number += 1
        if len(peer.wide_masks) >= 4096:
            peer.wide_masks = {}
        peer.wide_masks[mask] = known
    return known & ~n.forgotten


def translate_renewed(n: Node, slot: i64, mask: i64) -> i64:
    """The members that `translate` drops because they name an older incarnation (K2.2)."""
    peer = n.peers[slot]
    if len(peer.theirs) == len(peer.said):
        return 0
    return translate_all(n, slot, mask) & ~translate(n, slot, mask)


def rank(job_id: bytes, node_id: bytes) -> bytes:
    """Decides which of several nodes acts for a job: the highest rank does (Q4.3, K5.4)."""
    return blake2b(job_id + node_id, digest_size=8).digest()


def set_reachable(n: Node, slot: i64, is_reachable: bool) -> None:
    """Set whether the peer can be chosen for copies (K4.2)."""
    bit: i64 = 1 << slot
    if is_reachable:
        n.reachable |= bit
    else:
        n.reachable &= ~bit
    n.reachable_count = count_of(n.reachable)


def set_expected(n: Node, slot: i64, is_expected: bool) -> None:
    """Set whether copies can wait for the peer: its outage is still short (K4.4)."""
    if is_expected:
        n.expected |= 1 << slot
    else:
        n.expected &= ~(1 << slot)


def may_reach(n: Node) -> i64:
    """The nodes that can take copies now, or are expected to (K4.4)."""
    return (n.reachable | n.expected) & ~n.forgotten


def set_leaver(n: Node, slot: i64, is_leaver: bool) -> None:
    """Set whether the peer is reachable except that it leaves: it can still be asked."""
    if is_leaver:
        n.leavers |= 1 << slot
    else:
        n.leavers &= ~(1 << slot)


def clear_link(n: Node, slot: i64) -> None:
    """The link is down: drop its outbox; slots must be introduced again."""
    peer = n.peers[slot]
    peer.is_linked = False
    n.linked &= ~(1 << slot)
    peer.outbox = []
    peer.told = 0
    peer.theirs = {}
    peer.said = {}
    peer.masks = {}
    peer.wide_masks = {}
    peer.echoed_round = 0
    set_reachable(n, slot, False)
    set_leaver(n, slot, False)
