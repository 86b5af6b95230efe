"""Who requests jobs from whom, and who gets them (SPEC F1, F2); PAUSE ... BCAST (SPEC P1.7, P3).

A wish stays registered at the node that was asked until that node sends jobs or the wish is
withdrawn. So waiting clients cost nothing while no jobs arrive, and a newly queued job goes to a
waiting client of another node at once. `Demand.asked` has the wishes that this node has sent. It
may miss one that is still registered, which costs a second request, but never the reverse: links
are FIFO, and both sides forget wishes when a new link opens. Core procedures mark queues to check
in `n.asks` and `n.offers`.
"""

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from tuque.core.federation.transfer import may_move, repeat_custody, send_jobs
from tuque.core.jobs.deliver import demand_of, serve_ready, set_pause
from tuque.core.jobs.letters import expire
from tuque.core.jobs.transitions import FAR, memory_level
from tuque.core.model.job import ACTIVE, Job, set_state
from tuque.core.msgs.bus import NeedJobs, Pause
from tuque.core.node.node import Node, Pausing, Peer
from tuque.core.node.queue import PAUSE_IN, PAUSE_OUT, Queue
from tuque.core.node.slots import say
from tuque.core.state.demand import COUNT_HIGH, LINGER_MS, Demand, Wish

WISH_MS: Final = 600_000  # lifetime of a wish
RENEW_MS: Final = 240_000  # age at which it is renewed
STEP_LOW_MS: Final = 25  # first pause between two requests without an import; doubles each time
STEP_HIGH_MS: Final = 1_600
FULL_MS: Final = 50  # delay before retrying a full link
SWEEP_MS: Final = 30_000
DEMANDS_MAX: Final = 100_000  # queues that other nodes may wish for
GIVE_BYTES: Final = 1 << 20  # in one YOURJOBS, not counting its last job
SKIP_MAX: Final = 100  # at-most-once jobs skipped because they may not move yet

PAUSES_MAX: Final = 10_000  # PAUSE commands kept; above it, drop the oldest that ended a pause
PAUSES_TRIM: Final = 1_000

# ---- asking


def look(n: Node, d: Demand) -> None:
    """[F1] PROCEDURE ask: send what this node now wants of the queue, if that changed."""
    q = n.queues.get(d.name)
    is_empty = q is None or q.length == 0
    has_waiters = q is not None and len(q.waiters) > 0
    is_shut = n.is_leaving or n.is_double or n.is_loading or (q is not None and q.pause != 0)
    if is_shut or memory_level(n) >= 2:
        take_back(n, d)  # F1.2
        if has_waiters and not n.is_leaving:
            look_at(n, d, n.now_ms + STEP_HIGH_MS)
        return
    wanted: i64 = len(q.waiters) if q is not None and is_empty else 0
    if d.poll_ms + LINGER_MS > n.now_ms:
        wanted = max(wanted, d.lack - (q.length if q is not None else 0))
    if wanted > 0:
        d.idle_ms = 0
        ask(n, d, wanted, True, has_waiters)  # F1.1
        if not has_waiters:
            look_at(n, d, d.poll_ms + LINGER_MS)
        return
    if is_empty and d.rate(n.now_ms) > 0 and d.seen_ms + LINGER_MS > n.now_ms:
        ask(n, d, 0, False, False)
    if len(d.asked) > 0:
        if d.idle_ms == 0:
            d.idle_ms = n.now_ms
        if d.idle_ms + LINGER_MS <= n.now_ms:
            take_back(n, d)
        else:
            look_at(n, d, d.idle_ms + LINGER_MS)


def ask(n: Node, d: Demand, wanted: i64, is_for_all: bool, is_waiting: bool) -> None:
    """Send NEEDJOBS to all nodes, or to the sources, that have no such request yet (F1.3, F1.4)."""
    now_ms = n.now_ms
    d.drop_sources(now_ms)
    peers = whom_to_ask(n, d, is_for_all, is_waiting)
    if len(peers) == 0:
        return
    if d.asked_ms + d.step_ms > now_ms:
        look_at(n, d, d.asked_ms + d.step_ms)
        return
    d.asked_ms = now_ms
    d.step_ms = min(max(d.step_ms * 2, STEP_LOW_MS), STEP_HIGH_MS)
    share = d.share(now_ms, wanted)
    for peer in peers:
        if not peer.has_room:
            look_at(n, d, now_ms + FULL_MS)
            continue
        count = share if peer.slot in d.sources else 1  # F1.3, F1.4
        d.asked[peer.slot] = Wish(count, now_ms + RENEW_MS, is_waiting)
        peer.asked += count
        say(n, peer.slot, NeedJobs(d.name, count, is_waiting))


def whom_to_ask(n: Node, d: Demand, is_for_all: bool, is_waiting: bool) -> list[Peer]:
    """Linked nodes without a pending request: all, or only the sources if no client looked."""
    peers: list[Peer] = []
    for peer in n.peers:
        if not peer.is_linked or not (is_for_all or peer.slot in d.sources):
            continue
        stands = d.asked.get(peer.slot)
        if stands is None or stands.until_ms <= n.now_ms or (is_waiting and not stands.is_waiting):
            peers.append(peer)
    return peers


def take_back(n: Node, d: Demand) -> None:
    """Withdraw all requests: send NEEDJOBS with count 0."""
    for slot in d.asked:
        say(n, slot, NeedJobs(d.name, 0, False))
    d.asked = {}
    d.idle_ms = 0


def look_at(n: Node, d: Demand, at_ms: i64) -> None:
    """Check the queue at that instant or earlier."""
    if d.look_ms == 0 or at_ms < d.look_ms:
        d.look_ms = at_ms
        heappush(n.looks, (at_ms, d.name))


# ---- giving


def on_needjobs(n: Node, slot: i64, m: NeedJobs) -> None:
    """[F2] ON RECV NEEDJOBS."""
    count: i64 = min(max(m.count, 0), COUNT_HIGH)  # F2.1
    d = n.demands.get(m.queue)
    if count == 0:
        if d is not None:
            d.wishes.pop(slot, None)
        return
    if d is None:
        if len(n.demands) >= DEMANDS_MAX:
            return
        d = demand_of(n, m.queue)
    d.wishes[slot] = Wish(count, n.now_ms + WISH_MS, m.is_waiting)
    n.offers[m.queue] = None


def look_again(n: Node) -> None:
    """[F2] What this node held back, or did not ask for, is due again (K1.3)."""
    for name in n.demands:
        n.asks[name] = None
        n.offers[name] = None


def offer(n: Node, q: Queue, d: Demand) -> None:
    """[F2] Serve other nodes' wishes in turn, with jobs that no client here wants."""
    if n.is_double:
        return  # K1.3
    now_ms = n.now_ms
    for slot, wish in list(d.wishes.items()):
        if q.length == 0 or q.pause & PAUSE_OUT or n.is_loading or q.policy is not None:
            return
        peer = n.peers[slot]
        if not peer.is_linked or wish.until_ms <= now_ms or peer.is_leaving:  # F2.1
            del d.wishes[slot]
            continue
        if not wish.is_waiting and d.rate(now_ms) > 0 and d.seen_ms + LINGER_MS > now_ms:
            look_at(n, d, d.seen_ms + LINGER_MS)
            continue
        if not peer.has_room:
            n.offers[q.name] = None
            n.offers_ms = now_ms + FULL_MS
            continue
        half = q.length // 2
        jobs = pick(n, q, min(wish.count, half if half > 0 else 1))  # F2.2
        if len(jobs) > 0:
            del d.wishes[slot]
            q.jobs_out += len(jobs)
            q.atime_ms = now_ms
            send_jobs(n, slot, q.name, jobs)


def pick(n: Node, q: Queue, most: i64) -> list[Job]:
    """Take up to `most` movable jobs out of the queue, oldest first (F2.2)."""
    jobs: list[Job] = []
    skipped: list[Job] = []
    byte_count: i64 = 0
    while len(jobs) < most and byte_count < GIVE_BYTES and len(skipped) < SKIP_MAX:
        job = q.pop()
        if job is None:
            break
        if job.expire_ms <= n.now_ms:
            job.state = ACTIVE
            expire(n, job)
        elif not may_move(n, job):
            skipped.append(job)
        else:
            set_state(job, ACTIVE)
            jobs.append(job)
            byte_count += len(job.body)
    for job in skipped:
        q.push(job)
    return jobs


# ---- time and links


def federate_link_up(n: Node, slot: i64) -> None:
    """[F1] A link came up: earlier requests are void; send the peer requests and pauses again."""
    for d in n.demands.values():
        d.asked.pop(slot, None)
        d.wishes.pop(slot, None)
        d.step_ms = 0
    for waiter in n.waiters.values():
        for name in waiter.queues:
            n.asks[name] = None
    repeat_custody(n, slot)
    for name, pausing in n.pauses.items():
        if pausing.is_bcast:
            say(n, slot, Pause(name, pausing.bits, pausing.stamp_ns))  # P1.8


def federate_tick(n: Node) -> None:
    """[F1, F2] Request and offer jobs for changed queues; local clients are served first."""
    while len(n.looks) > 0 and n.looks[0][0] <= n.now_ms:
        at_ms, name = heappop(n.looks)
        d = n.demands.get(name)
        if d is not None and d.look_ms == at_ms:
            d.look_ms = 0
            n.asks[name] = None
            if len(d.wishes) > 0:
                n.offers[name] = None
    if len(n.ready) > 0:
        serve_ready(n)
    if len(n.offers) > 0 and n.offers_ms <= n.now_ms:
        offers = n.offers
        n.offers = {}
        for name in offers:
            d = n.demands.get(name)
            q = n.queues.get(name)
            if d is not None and q is not None and len(d.wishes) > 0:
                offer(n, q, d)
    if len(n.asks) > 0:
        asks = n.asks
        n.asks = {}
        for name in asks:
            look(n, demand_of(n, name))
    if n.sweep_ms <= n.now_ms:
        sweep(n)


def sweep(n: Node) -> None:
    """Drop expired wishes; renew requests that have expired."""
    n.sweep_ms = n.now_ms + SWEEP_MS
    for name, d in list(n.demands.items()):
        for slot, wish in list(d.wishes.items()):
            if wish.until_ms <= n.now_ms:
                del d.wishes[slot]
        for wish in d.asked.values():
            if wish.until_ms <= n.now_ms:
                n.asks[name] = None
        if d.is_over(n.now_ms) and d.look_ms == 0:
            del n.demands[name]
            q = n.queues.get(name)
            if q is not None:
                q.demand = None


def federate_next_ms(n: Node) -> i64:
    """The instant at which `federate_tick` next has work."""
    if len(n.asks) > 0:
        return n.now_ms
    at_ms: i64 = FAR
    if len(n.looks) > 0:
        at_ms = n.looks[0][0]
    if len(n.offers) > 0 and n.offers_ms < at_ms:
        at_ms = n.offers_ms
    if len(n.demands) > 0 and n.sweep_ms < at_ms:
        at_ms = n.sweep_ms
    return at_ms


# ---- pauses of all nodes


def pause_queue(n: Node, name: bytes, bits: i64, is_bcast: bool) -> None:
    """[P1.7] ON COMMAND PAUSE: set the state here, with BCAST on every node.

    Linked nodes get it now, others when their link comes up (P1.8).
    """
    stamp_ns = n.next_ctime_ns()
    known = n.pauses.get(name)
    if known is not None and known.stamp_ns >= stamp_ns:
        stamp_ns = known.stamp_ns + 1  # P1.9
    q = n.queues.get(name)
    if q is not None and q.policy is not None:
        before = q.pause
        apply_pause(n, name, Pausing(bits, stamp_ns, False))
        if q.pause != before:
            q.policy.on_pause(n, q)  # T17.7: always sent to all nodes
        return
    pausing = Pausing(bits, stamp_ns, is_bcast)
    apply_pause(n, name, pausing)
    if is_bcast:
        for peer in n.peers:
            say(n, peer.slot, Pause(name, bits, pausing.stamp_ns))  # P1.7


def apply_pause(n: Node, name: bytes, pausing: Pausing) -> None:
    """Apply the pause now."""
    remember_pause(n, name, pausing)
    set_pause(n, name, pausing.bits, pausing.is_bcast, pausing.stamp_ns)


def remember_pause(n: Node, name: bytes, pausing: Pausing) -> None:
    """Keep the latest PAUSE of the queue. Above the limit, drop the oldest that ended a pause."""
    n.pauses.pop(name, None)
    n.pauses[name] = pausing
    if len(n.pauses) > PAUSES_MAX:
        for other, old in list(n.pauses.items())[:PAUSES_TRIM]:
            if old.bits == 0:
                del n.pauses[other]


def on_pause_message(n: Node, slot: i64, m: Pause) -> None:
    """[P3] ON RECV PAUSE: replace the state unless a later command did (P3.1, P3.2)."""
    bits = m.bits & (PAUSE_IN | PAUSE_OUT)
    q = n.queues.get(m.queue)
    if q is not None and q.policy is not None:
        return  # T17.7
    known = n.pauses.get(m.queue)
    if known is not None and known.stamp_ns >= m.stamp_ns:
        if known.stamp_ns > m.stamp_ns or known.bits >= bits:
            return  # P3.2
    apply_pause(n, m.queue, Pausing(bits, m.stamp_ns, True))
