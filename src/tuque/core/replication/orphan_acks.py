"""Acks of jobs that are unknown here (SPEC A3.4, A5.3, A7.2).

Other nodes may have the job: a record without a body keeps the ack and asks all of them, until
a holder has taken it over or no node knows the job. Only ids that a node of this cluster has
made get a record, and a limited number per client.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.jobs.endings import keep_orphan, outlive_holder
from tuque.core.jobs.life_copies import packed_outcome
from tuque.core.jobs.transitions import memory_level, register, unregister
from tuque.core.model import ledger
from tuque.core.model.job import ACKED, BODYLESS, Job
from tuque.core.model.job_id import ttl_s_of
from tuque.core.msgs.bus import DelJob, SetAck
from tuque.core.node.node import Node
from tuque.core.node.slots import in_doubt, say

NOBODY: Final = -1  # the client of a restored record
STRAYS_MAX: Final = 1_000  # records per client
BURST_MAX: Final = 10_000  # messages per turn and node; above it no more questions
TRY_MS: Final = 1_000
FULL_MS: Final = 200  # delay before asking again after a full link
FAST_KEEP_MS: Final = 60_000  # how long a FASTACKed job that no node had is refused


def on_unknown_ack(n: Node, client: i64, id: bytes) -> None:
    """[A3.4] ACKJOB of an id unknown here. It does not count (A3.3)."""
    if len(n.peers) == 1 or n.tombs.has(id) or not n.ids.knows(id):
        return
    ttl_s = ttl_s_of(id)
    if ttl_s < 0:
        return
    if memory_level(n) >= 2:
        ask_each(n, SetAck(id, 0, ttl_s * 1000, packed_outcome(n, id)))  # A3.4
        return
    if n.stray_counts.get(client, 0) >= STRAYS_MAX:
        return
    count_stray(n, client, id)
    job = Job(id, b"", b"", n.next_ctime_ns(), n.now_ms + ttl_s * 1000, 1, 0, 0)
    job.state = ACKED
    job.flags = BODYLESS
    register(n, job, ledger.REPLICATED)
    n.acked[id] = None
    job.marks = 1  # attempts
    job.qtime_ms = n.now_ms + TRY_MS + n.chance.below(500)
    n.wheel.arm(job, n.now_ms)
    if n.records is not None:
        n.records.ack_unknown(job)
    ask_all(n, job)


def count_stray(n: Node, client: i64, id: bytes) -> None:
    """Count the client's orphan acks: their number is limited."""
    n.stray_counts[client] = n.stray_counts.get(client, 0) + 1
    n.strays[id] = client


def on_unknown_fastack(n: Node, id: bytes) -> None:
    """[A7.2] FASTACK of an id unknown here: DELJOB to all nodes, once."""
    if len(n.peers) == 1 or n.tombs.has(id) or not n.ids.knows(id):
        return
    ask_each(n, DelJob(id, 0, FAST_KEEP_MS))  # A7.2


def ask_each(n: Node, message: SetAck | DelJob) -> bool:
    """Send it to every linked node with room; True if none was left out."""
    are_told = True
    for peer in n.peers:
        if peer.is_linked and peer.has_room and len(peer.outbox) < BURST_MAX:
            say(n, peer.slot, message)
        elif peer.is_linked:
            are_told = False
    return are_told


def ask_all(n: Node, job: Job) -> None:
    """Ask all nodes (again): only replies to the same question count together (A5.3)."""
    job.confirmed = 1
    left_ms = max(1, job.expire_ms - n.now_ms)
    if not ask_each(n, SetAck(job.id, 0, left_ms, packed_outcome(n, job.id))):
        if job.marks > 0:
            job.marks -= 1
        job.qtime_ms = n.now_ms + FULL_MS + n.chance.below(FULL_MS)  # A6.3
        n.wheel.arm(job, n.now_ms)


def on_stray_answer(n: Node, job: Job, slot: i64, is_known: bool, holders: i64) -> None:
    """[A5.3] A node replies: it now collects the job, or does not know it."""
    if is_known:
        end_stray(n, job, holders)
        return
    job.confirmed |= 1 << slot
    end_if_denied(n, job)


def end_if_denied(n: Node, job: Job) -> None:
    """End the record if no node is left that may know the job."""
    done = job.confirmed & ~in_doubt(n) | n.forgotten  # K2.3
    for peer in n.peers:
        bit: i64 = 1 << peer.slot
        if done & bit == 0:
            return
    end_stray(n, job, 0)


def forget_asked(n: Node, slot: i64) -> None:
    """[K6] The node was forgotten: it may have had the jobs of which it has denied nothing."""
    for id in list(n.strays):
        job = n.jobs[id]
        if job.confirmed >> slot & 1 == 0:
            outlive_holder(n, id)
        end_if_denied(n, job)


def end_stray(n: Node, job: Job, holders: i64) -> None:
    """`holders` have taken over the ack, or no node has the job: remove the record."""
    if holders == 0:
        keep_orphan(n, job)
    unregister(n, job, ledger.GC_ACKED)  # A5.3
    if n.records is not None:
        n.records.ack(job.id, job.expire_ms)
    if holders & 1:
        n.tombs.keep(job.id, job.expire_ms)  # they rely on this node and will send DELJOB
        return
    others = holders
    if others == 0:
        for peer in n.peers:
            if peer.is_linked:
                others |= 1 << peer.slot
    n.tombs.add(job.id, job.expire_ms, others & ~n.forgotten, n.round)
