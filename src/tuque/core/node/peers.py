"""The other nodes as core sees them, and messages to the holders of a job (SPEC K2, Q1, R1.12).

Every node ever known has a slot; a set of nodes is a bit set of slots, bit 0 this node.
cluster/ decides which nodes belong to the cluster and live; the shell sends messages. A link
belongs to one incarnation of a peer: messages of an older one never arrive here. A set member
that names an older incarnation than the one known is ignored: what that one had may be lost
(K2.2).
"""

from hashlib import blake2b
from typing import Final

from mypy_extensions import i64, u8

from tuque.core.model.job import ACTIVE, ANNOUNCE_WILL, WILL_MS, Job
from tuque.core.model.tombstones import SLOTS
from tuque.core.msgs.bus import (
    AnyMessage,
    Delivered,
    GotJob,
    Holders,
    Queued,
    ReplJob,
    ReplJobs,
    Slots,
    WillQueue,
    Working,
)
from tuque.core.node.node import ROUNDS, Copying, Node, Peer

FAR: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed
BEAT_MS: Final = 500  # deliveries of patient jobs are announced together (V4.6)
PATIENT_S: Final = 5  # RETRY above this can wait for a beat
TOMB_MS: Final = 60_000  # for a node that lost the job; the others know its expiry
DENIED_MS: Final = 60_000  # longer than a message can be in flight
IDS_MAX: Final = 1_000  # in one WILLQUEUE
FIRST_MS: Final = 100  # bound of J at the node that delivered a job

BODY_MAX: Final = 4_096  # bytes of a body in a shared message
SIZE_MAX: Final = 65_536  # bytes of all its bodies


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


def begin_round(n: Node) -> None:
    """[K4] Count a new round of heartbeats, and note when it was sent (K4.1)."""
    n.round += 1
    n.beats[n.round % ROUNDS] = n.now_ms


def answered_ms_of(n: Node, slot: i64) -> i64:
    """[K4] When the latest heartbeat that the node answered on this link was sent; 0: long ago."""
    echo = n.peers[slot].echoed_round
    if echo <= 0 or echo > n.round or n.round - echo >= ROUNDS:
        return 0
    return n.beats[echo % ROUNDS]


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


def set_reachable(n: Node, slot: i64, is_reachable: bool, is_late: bool = False) -> None:
    """Set whether the peer can be chosen for copies (K4.2), maybe after all others (K4.3)."""
    bit: i64 = 1 << slot
    n.reachable &= ~bit
    n.late &= ~bit
    if is_reachable:
        n.reachable |= bit
        if is_late:
            n.late |= bit
    n.reachable_count = count_of(n.reachable)
    n.prompt_count = count_of(n.reachable & ~n.late)


def set_expected(n: Node, slot: i64, is_expected: bool) -> None:
    """Set whether copies can wait for the peer: its outage is still short (K4.4)."""
    if is_expected:
        n.expected |= 1 << slot
    else:
        n.expected &= ~(1 << slot)


def may_reach(n: Node) -> i64:
    """The nodes that can take copies now, or are expected to (K4.4)."""
    return (n.reachable | n.expected) & ~n.forgotten


def are_expected(n: Node, count: i64) -> bool:
    """Whether so many other nodes can take copies now, or are expected to (K4.4)."""
    return count <= count_of(may_reach(n))


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


# ---- Announcements to the other holders of a job (SPEC G3.8, Q1, V4.6)
#
# Nothing is sent for a job without other holders, nor for an at-most-once job: its only other
# holder is the node that it came from or goes to (core/copies/federation.py).


def jitter_ms(n: Node) -> i64:
    """J: 0..499 ms, so that holders do not act at the same time; 0 on a single node."""
    return n.chance.below(500) if len(n.peers) > 1 else 0


def jitter_first_ms(n: Node) -> i64:
    """J at the node that delivered the job: 0..99 ms, so that it acts first."""
    return n.chance.below(FIRST_MS) if len(n.peers) > 1 else 0


def jitter_behind_ms(n: Node) -> i64:
    """J at a holder that learned of a delivery: 150..499 ms, after the node that made it."""
    return 150 + n.chance.below(350)


def set_due(n: Node, job: Job, due_ms: i64, marks: i64 = 0) -> None:
    """Set the due time of an active job; its other holders are asked shortly before (Q1).

    Replaces what was known of the old due time: the job is no longer held (Q11.3).
    """
    job.qtime_ms = due_ms
    job.marks = u8(marks)
    if job.holders != 1 and job.retry_s > 0:
        job.flags |= ANNOUNCE_WILL
    n.wheel.arm(job, n.now_ms)


def say_holders(n: Node, job: Job, message: AnyMessage) -> None:
    """Send it to all other holders."""
    if job.retry_s > 0:
        for slot in slots_of(job.holders):
            say(n, slot, message)


def tell_queued(n: Node, job: Job, how: i64) -> None:
    """[G3.8, Q4] Announce to the other holders that the job was queued, or postponed (how 0)."""
    say_holders(n, job, Queued(job.id, how))  # G3.8


def tell_delivered(n: Node, job: Job) -> None:
    """[V4.6] Send DELIVERED to the other holders, now or within 500 ms if a worker still has it."""
    if job.retry_s <= PATIENT_S:
        say_holders(n, job, Delivered(job.id, job.qtime_ms - n.now_ms))
        return
    if len(n.untold) == 0:
        n.beat_ms = n.now_ms + BEAT_MS
    n.untold[job.id] = None


def tell_working(n: Node, job: Job, left_ms: i64) -> None:
    """[Q8.6, Q6.2] Ask the other holders not to act on the job for `left_ms`."""
    say_holders(n, job, Working(job.id, left_ms))


def send_resting(n: Node, job: Job, delay_ms: i64, how: i64 = 0) -> None:
    """[Q6.2, W4.2] Ask the other holders not to act on the job before its delay is over.

    QUEUED comes last: no worker has the job any more.
    """
    n.untold.pop(job.id, None)  # V4.6: the worker gave it back
    tell_working(n, job, delay_ms + i64(job.retry_s) * 1000)
    tell_queued(n, job, how)


def on_will_timer(n: Node, job: Job) -> None:
    """[Q1] TIMER 500 ms before the due time: ask the other holders, once (Q1.1).

    A node that overslept the due time gives them 500 ms more (Q1.2).
    """
    job.flags &= 0xFF ^ ANNOUNCE_WILL
    was_said = False
    for slot in slots_of(job.holders):
        if say_will(n, slot, job.id):
            was_said = True
    if was_said and job.qtime_ms <= n.now_ms:
        job.qtime_ms = n.now_ms + WILL_MS


def say_will(n: Node, slot: i64, id: bytes) -> bool:
    """Send WILLQUEUE, all of a turn in one message."""
    outbox = n.peers[slot].outbox
    if len(outbox) > 0:
        last = outbox[len(outbox) - 1]
        if isinstance(last, WillQueue) and len(last.ids) < IDS_MAX:
            last.ids.append(id)
            return True
    return say(n, slot, WillQueue([id]))


def deny(n: Node, id: bytes) -> None:
    """Note that this node denied having a copy: one may be in flight (R2.7)."""
    n.denied.note(id, 0, n.now_ms + DENIED_MS, n.now_ms)


def take_back(n: Node, job: Job) -> None:
    """[R2] A copy arrived after this node denied having one: send HOLDERS (R2.7)."""
    if n.denied.pop(job.id, n.now_ms) and job.retry_s > 0:
        for slot in slots_of(job.holders):
            introduce(n, slot, job.holders | 1)
            say(n, slot, Holders(job.id, job.holders | 1))


def announce_tick(n: Node) -> None:
    """[V4.6] After 500 ms, announce the jobs that workers still have."""
    if len(n.untold) == 0 or n.beat_ms > n.now_ms:
        return
    untold = n.untold
    n.untold = {}
    for id in untold:
        job = n.jobs.get(id)
        if job is not None and job.state == ACTIVE and job.qtime_ms > n.now_ms:
            say_holders(n, job, Delivered(id, job.qtime_ms - n.now_ms))


def announce_next_ms(n: Node) -> i64:
    """The instant at which `announce_tick` next has work."""
    return n.beat_ms if len(n.untold) > 0 else FAR


# ---- New jobs that are alike share one message with their copies (SPEC R1.12)
#
# A turn of many producers adds jobs with one queue and the same options. Their common fields are
# made, encoded, decoded and checked once.


def is_plain(n: Node, job: Job) -> bool:
    """Whether a shared message has all that a copy of the job needs."""
    if len(job.body) > BODY_MAX or job.nacks != 0 or job.deliveries != 0:
        return False
    return not n.has_lives or job.id not in n.life.by_id


def lead(n: Node, job: Job, slots: list[int], mode: i64, due_ms: i64, message: ReplJob) -> None:
    """The message with the copies of this job was put into these outboxes: others may join it."""
    last = n.copying
    last.message = message
    last.first = job
    last.size = len(job.body)
    last.slots = 0
    for slot in slots:
        last.slots |= 1 << i64(slot)
    last.holders = job.holders
    last.left_ms = job.expire_ms - n.now_ms
    last.due_ms = due_ms
    last.mode = mode


def joins(n: Node, job: Job, slots: list[int], mode: i64, due_ms: i64) -> bool:
    """Put copies of a plain job into the message of the last one, if it may; False: it may not."""
    last = n.copying
    message = last.message
    size: i64 = len(job.body)
    if message is None or last.size + size > SIZE_MAX:
        return False
    if mode != last.mode or due_ms != last.due_ms or not is_alike(n, job, last):
        return False
    mask: i64 = 0
    for slot in slots:
        outbox = n.peers[slot].outbox
        if len(outbox) == 0 or outbox[len(outbox) - 1] is not message:
            return False  # it has left, or something was said after it
        mask |= 1 << i64(slot)
    if mask != last.slots:
        return False
    if type(message) is ReplJob:
        last.others = []
        last.message = ReplJobs(message, last.others)
        for slot in slots:
            outbox = n.peers[slot].outbox
            outbox[len(outbox) - 1] = last.message
    last.others.append((job.id, job.body, job.ctime_ns))
    last.size += size
    return True


def is_alike(n: Node, job: Job, last: Copying) -> bool:
    """Whether the job has the queue, the options and the holders of the last new job."""
    first = last.first
    return (
        first is not None
        and job.queue == first.queue
        and job.holders == last.holders
        and job.expire_ms - n.now_ms == last.left_ms
        and job.retry_s == first.retry_s
        and job.delay_s == first.delay_s
        and job.repl == first.repl
        and job.level == first.level
    )
