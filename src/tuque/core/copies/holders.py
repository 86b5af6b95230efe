"""Which nodes may have a copy of a job, and the questions about it (SPEC R4.2, K5.2, K5.6).

Each holder should know all: one unknown to the others would keep its copy after the end of the job.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.copies.ack_gc import collect
from tuque.core.model.job import ACKED, QUEUED, WAIT_REPL, Job, stand_of
from tuque.core.msgs.bus import Ask, Holders, Lack, SetAck
from tuque.core.node.node import Node
from tuque.core.node.peers import (
    TOMB_MS,
    introduce,
    say,
    slots_of,
    translate,
    translate_renewed,
)
from tuque.core.queues.ends import has_ended
from tuque.core.queues.procedures import told_job
from tuque.core.queues.work_copies import packed_outcome, send_work_to
from tuque.core.tables.repair import (
    CHECK,
    DOUBT,
    FAR,
    FORGET,
    STRIP,
    Asking,
    Question,
)

BATCH_IDS: Final = 500
BATCHES_OUT: Final = 4  # unanswered, per peer
AGAIN_MS: Final = 3_000  # a node that loads its journal does not reply
FULL_MS: Final = 50  # delay before trying a full link again

GONE_MS: Final = 60_000  # longer than a message can be in flight
PARTED_MAX: Final = 100_000  # jobs per node whose holders are resent on link-up
NAMED_MAX: Final = 100_000  # jobs per node; it asks about the copies that it has beyond them (K5.2)
CLEAN_EVERY: Final = 1_000


# ---- Asks other nodes whether they have copies of jobs (SPEC K5.2)
#
# Questions leave in batches, few at a time per peer, and are repeated if unanswered. A node
# without a link is not asked: its copies are in doubt until there is one.


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


def settle_with(n: Node, job: Job, nodes: i64) -> None:
    """[Q12] Others name new holders of the job: one may have it queued, too (Q12.4)."""
    if job.state != QUEUED or job.retry_s == 0:
        return
    for slot in slots_of(nodes):
        peer = n.peers[slot]
        peer.sure_ms = min(peer.sure_ms, since_of(job))  # the next link asks, if this one ends
        claim(n, slot, job.id)


def since_of(job: Job) -> i64:
    """When the queued job was queued, or up to 500 ms later."""
    return job.qtime_ms - i64(job.retry_s) * 1000


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


# ---- The sets of holders, and what others report of them (SPEC R4.2, K5.6, K5.7)


def join_holders(n: Node, job: Job, holders: i64) -> bool:
    """Add to the holders of a job; True if some were new."""
    spare(n, job.id, holders)
    joined = job.holders | (holders & ~n.forgotten)  # the scan of FORGET drops the others (K6.2)
    if joined == job.holders:
        return False
    new = joined & ~job.holders & ~1
    job.holders = joined
    if n.has_lives and job.state != ACKED:
        send_work_to(n, job, new & n.linked)  # W14.12
    if job.state != WAIT_REPL and n.records is not None:
        n.records.holders(job)
    return True


def spare(n: Node, id: bytes, nodes: i64) -> None:
    """[K5.1] The nodes become holders after their restart: scans that began then skip them."""
    if nodes & n.losses.renewed:
        note_named(n, id, nodes & n.losses.renewed)
    if len(n.losses.walks) == 0:
        return
    for walk in n.losses.walks:
        if (walk.kind == STRIP or walk.kind == FORGET) and (nodes & ~n.forgotten) >> walk.slot & 1:
            walk.spared[id] = None


def note_named(n: Node, id: bytes, nodes: i64) -> None:
    """[K5.1] Another node names holders that have restarted; this node has not met them since."""
    for slot in slots_of(nodes):
        named = n.losses.named.setdefault(slot, {})
        if len(named) < NAMED_MAX:
            named[id] = None


def hear_holders(n: Node, slot: i64, job: Job, told: i64, named: i64) -> bool:
    """Another node names holders, maybe itself; True if some were new.

    `told` are the holders, `named` is the same set in the other node's numbers. A node that denied
    having a copy is asked: its denial may be newer (K5.7). Two groups of holders that share only
    this node are introduced to each other (K5.6), also where this node only presumed that the
    named one is a holder (K5.1).
    """
    bit: i64 = 1 << slot
    told |= doubtful(n, slot, job, named)
    new = told & ~job.holders & ~bit
    presumed = job.holders & told & gone_from(n, job.id) & ~bit
    unsaid = job.holders & ~(told | bit | 1)
    if told & bit:
        is_back(n, slot, job.id)
    if not join_holders(n, job, told):
        if presumed != 0 and unsaid != 0 and job.state != ACKED:
            send_holders(n, job, unsaid | presumed | bit)
        return False
    if job.state != ACKED:
        settle_with(n, job, new & ~n.forgotten)
        for other in slots_of(new & gone_from(n, job.id) & ~n.forgotten):
            ask(n, other, job.id, False)  # K5.7
        if unsaid != 0 and job.state != WAIT_REPL and job.retry_s > 0:
            send_holders(n, job, unsaid | new | bit)  # K5.6
    return True


def doubtful(n: Node, slot: i64, job: Job, named: i64) -> i64:
    """[K5.7] New holders that the other node names in an ended incarnation, with a journal.

    Dropping one could split the replicas: the sender may be their only common peer.
    """
    if job.retry_s == 0 or job.state == WAIT_REPL:
        return 0
    renewed = translate_renewed(n, slot, named) & ~n.losses.anew & ~job.holders
    if renewed != 0 and job.state != ACKED:
        for other in slots_of(renewed):
            note_gone(n, other, job)
    return renewed


def note_gone(n: Node, slot: i64, job: Job) -> None:
    """[K5.7] The node itself denied having a copy of the job."""
    if job.retry_s == 0 or job.state == WAIT_REPL:
        return
    nodes = gone_from(n, job.id) | 1 << slot
    n.losses.gone.note(job.id, nodes, n.now_ms + GONE_MS, n.now_ms)


def gone_from(n: Node, id: bytes) -> i64:
    """[K5.7] The nodes that recently denied having a copy of the job."""
    return n.losses.gone.nodes_of(id, n.now_ms)


def is_back(n: Node, slot: i64, id: bytes) -> None:
    """[K5.7] The node itself confirmed a copy of the job."""
    n.losses.gone.remove(id, 1 << slot)


def learn_holder(n: Node, job: Job, slot: i64) -> None:
    """[K5.6] A node has a copy: send HOLDERS to holders that may not know each other."""
    others = job.holders & ~1
    is_back(n, slot, job.id)
    if join_holders(n, job, 1 << slot) and others and job.retry_s > 0 and job.state != ACKED:
        send_holders(n, job, others | 1 << slot)


def send_holders(n: Node, job: Job, nodes: i64) -> None:
    """Send HOLDERS with all nodes that may have the job."""
    for slot in slots_of(nodes):
        introduce(n, slot, job.holders | 1)
        say(n, slot, Holders(job.id, job.holders | 1))


def on_holders(n: Node, slot: i64, m: Holders) -> None:
    """[R4.2] ON RECV HOLDERS: more nodes may have a copy."""
    job = told_job(n, m.id)
    if job is not None:
        joined = translate(n, slot, m.holders)
        is_new = hear_holders(n, slot, job, joined, m.holders)
        if job.state == ACKED:
            if is_new:
                collect(n, job)
        elif not is_new and job.state != WAIT_REPL and job.retry_s > 0:
            if job.holders & ~(joined | 1 << slot | 1):
                send_holders(n, job, 1 << slot)  # K5.6
    elif has_ended(n, m.id):
        say(n, slot, SetAck(m.id, 0, TOMB_MS, packed_outcome(n, m.id)))


def part(n: Node, job: Job, nodes: i64, holders: i64) -> None:
    """Note the nodes that may miss the new holder set: they get it on link-up.

    `holders` are those that have the job if this node dropped it; empty if it did not.
    """
    for slot in slots_of(nodes & ~n.forgotten):
        untold = n.losses.parted.get(slot)
        if untold is None:
            untold = {}
            n.losses.parted[slot] = untold
        untold.pop(job.id, None)
        if len(untold) % CLEAN_EVERY == CLEAN_EVERY - 1:
            forget_told(n, slot)
        if len(untold) < PARTED_MAX:
            untold[job.id] = (job.expire_ms, holders, n.round)


def forget_told(n: Node, slot: i64) -> None:
    """Drop holder sets that the node has received: it answered a later heartbeat."""
    untold = n.losses.parted.get(slot)
    if untold is None:
        return
    echoed = n.peers[slot].echoed_round
    heard: list[bytes] = []
    for id in untold:
        if untold[id][2] >= echoed:
            break  # in order of rounds
        heard.append(id)
    for id in heard:
        del untold[id]
