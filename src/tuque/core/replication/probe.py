"""Asks other nodes whether they have copies of jobs (SPEC K5.2).

Questions leave in batches, few at a time per peer, and are repeated if unanswered. A node
without a link is not asked: its copies are in doubt until there is one.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.model.job import stand_of
from tuque.core.msgs.bus import Ask, Lack
from tuque.core.node.node import Node
from tuque.core.node.slots import say
from tuque.core.state.losses import CHECK, DOUBT, FAR, Asking, Question

BATCH_IDS: Final = 500
BATCHES_OUT: Final = 4  # unanswered, per peer
AGAIN_MS: Final = 3_000  # a node that loads its journal does not reply
FULL_MS: Final = 50  # delay before trying a full link again


def ask(n: Node, slot: i64, id: bytes, is_short: bool) -> None:
    """Ask the peer soon for the job (`is_short`: too few copies are known)."""
    state = n.losses
    if not n.peers[slot].is_linked:
        state.unsure |= 1 << slot
        state.doubted &= ~(1 << slot)
        return
    asking = state.asking.get(slot)
    if asking is None:
        asking = Asking()
        state.asking[slot] = asking
    if is_short:
        asking.short_ids.append(id)
    else:
        asking.ids.append(id)
    if n.now_ms < state.ask_ms:
        state.ask_ms = n.now_ms


def ask_some(n: Node) -> None:
    """Send the questions that can be sent now."""
    state = n.losses
    if state.ask_ms > n.now_ms:
        return
    state.ask_ms = FAR
    for slot, asking in list(state.asking.items()):
        if not n.peers[slot].has_room:
            look_at(n, n.now_ms + FULL_MS)
            continue
        repeat(n, asking)
        while len(asking.questions) < BATCHES_OUT:
            if len(asking.claims) > 0:
                put_claims(n, slot, asking)
            elif len(asking.short_ids) > 0:
                put(n, slot, asking, True)
            elif len(asking.ids) > 0:
                put(n, slot, asking, False)
            else:
                break
        for question in asking.questions.values():
            look_at(n, question.sent_ms + AGAIN_MS)
        if asking.left() == 0:
            del state.asking[slot]
            on_all_answered(n, slot)


def look_at(n: Node, at_ms: i64) -> None:
    """Run `ask_some` at that instant or earlier."""
    if at_ms < n.losses.ask_ms:
        n.losses.ask_ms = at_ms


def repeat(n: Node, asking: Asking) -> None:
    """Queue unanswered questions again."""
    for number, question in list(asking.questions.items()):
        if question.sent_ms + AGAIN_MS <= n.now_ms:
            del asking.questions[number]
            if question.is_claim:
                asking.claims.extendleft(question.ids)
            elif question.is_short:
                asking.short_ids.extendleft(question.ids)
            else:
                asking.ids.extendleft(question.ids)


def put(n: Node, slot: i64, asking: Asking, is_short: bool) -> None:
    """Send one batch."""
    waiting = asking.short_ids if is_short else asking.ids
    ids: list[bytes] = []
    while len(waiting) > 0 and len(ids) < BATCH_IDS:
        id = waiting.popleft()
        if id in n.jobs:
            ids.append(id)
    if len(ids) == 0:
        return
    state = n.losses
    state.question += 1
    asking.questions[state.question] = Question(ids, is_short, n.now_ms)
    say(n, slot, Ask(state.question, ids, is_short, b""))


def claim(n: Node, slot: i64, id: bytes) -> None:
    """[Q11, Q12] Ask the peer whether this node may serve the job, before other questions."""
    if not n.peers[slot].is_linked:
        return
    asking = n.losses.asking.get(slot)
    if asking is None:
        asking = Asking()
        n.losses.asking[slot] = asking
    asking.claims.append(id)
    look_at(n, n.now_ms)


def put_claims(n: Node, slot: i64, asking: Asking) -> None:
    """Send one batch about jobs queued or held here, with the state of each."""
    ids: list[bytes] = []
    stands = bytearray()
    while len(asking.claims) > 0 and len(ids) < BATCH_IDS:
        id = asking.claims.popleft()
        job = n.jobs.get(id)
        stand: i64 = stand_of(job) if job is not None else 0
        if stand != 0:
            ids.append(id)
            stands.append(stand)
    if len(ids) == 0:
        return
    state = n.losses
    state.question += 1
    asking.questions[state.question] = Question(ids, False, n.now_ms, True)
    say(n, slot, Ask(state.question, ids, False, bytes(stands)))


def repeat_soon(n: Node, slot: i64) -> None:
    """The peer has loaded its journal: repeat what it did not answer."""
    asking = n.losses.asking.get(slot)
    if asking is not None:
        for question in asking.questions.values():
            question.sent_ms = n.now_ms - AGAIN_MS
        look_at(n, n.now_ms)


def on_all_answered(n: Node, slot: i64) -> None:
    """The peer has answered everything: it is no longer in doubt."""
    state = n.losses
    bit: i64 = 1 << slot
    if state.doubted & bit == 0:
        return
    for walk in state.walks:
        if walk.slot == slot and walk.kind in (CHECK, DOUBT):
            return
    state.doubted &= ~bit
    state.unsure &= ~bit
    state.reach = -1  # recheck jobs that wait for repair


def answered(n: Node, slot: i64, m: Lack) -> list[bytes]:
    """The ids in the question that the peer has; none for an older question."""
    asking = n.losses.asking.get(slot)
    if asking is None:
        return []
    question = asking.questions.pop(m.number, None)
    if question is None:
        return []
    look_at(n, n.now_ms)
    if len(m.ids) == 0:
        return question.ids
    lacking = set(m.ids)
    return [id for id in question.ids if id not in lacking]


def stop_asking(n: Node, slot: i64) -> None:
    """The link is down: what was not answered is in doubt until the next one."""
    state = n.losses
    bit: i64 = 1 << slot
    state.doubted &= ~bit
    asking = state.asking.pop(slot, None)
    if asking is not None and asking.left() > 0:
        state.unsure |= bit
