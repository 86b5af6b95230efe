"""All state of one node: its jobs, queues, timers, waiting clients and outboxes.

The shell sets `now_ms` before every call and empties the outboxes after it: `records`
(journal), `events` (history) and `wakes` (clients to unblock).
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.errors import Refusal
from tuque.core.model.job import Job
from tuque.core.model.job_id import Chance, IdMaker
from tuque.core.model.stats import Book, Ledger
from tuque.core.model.timers import Steps, Wheel
from tuque.core.model.tombstones import Tombs
from tuque.core.model.work import Life, attempt_of
from tuque.core.msgs.bus import (
    AnyMessage,
    GotJobs,
    ReplJob,
    ReplJobs,
    YourJobs,
)
from tuque.core.node.queue import Policy, Queue
from tuque.core.records.events import RUN_DONE, Events
from tuque.core.records.jobs import Records
from tuque.core.tables.dedupe_keys import Keys
from tuque.core.tables.leases import Leases
from tuque.core.tables.repair import Demand, Held, Losses, Recent
from tuque.core.tables.staged import Publishing, Staging
from tuque.core.tables.topics import SettingsTable, Topics
from tuque.core.tables.work import Lives

# why a waiting client is unblocked
GOT_JOBS: Final = 0
TIMED_OUT: Final = 1
NODE_LEAVING: Final = 2
DATA_RESET: Final = 3
HOME_MOVED: Final = 4  # the queue is a tube that another node leads now (T17.3)
NODE_DOUBLE: Final = 5  # another node has the id of this one (K1.3)
JOB_ENDED: Final = 6  # a job that the client waits for (W9); from here on
WAIT_OVER: Final = 7  # the time of that wait is over

ROUNDS: Final = 64  # of heartbeats whose instants are known
DENIED_MAX: Final = 100_000

# what GETJOB adds to each job
ROOMY_BYTES: Final = 16 << 20  # more than a turn can add, and larger bodies (M2.7)
WITH_COUNTERS: Final = 1
WITH_META: Final = 2  # W11
WITH_RUN: Final = 4  # W17


@final
class Waiter:
    """A client blocked in GETJOB (V1.6)."""

    def __init__(
        self,
        client: i64,
        queues: list[bytes],
        count: i64,
        extras: i64,
        until_ms: i64,
        taker: i64 = -1,
    ) -> None:
        self.client = client
        self.queues = queues
        self.count = count
        self.extras = extras  # WITH_COUNTERS, WITH_META, WITH_RUN
        self.until_ms = until_ms  # 0: for ever
        self.bytes_used: i64 = 0  # set by `wait`
        self.is_short = False  # counts as a poll (F1.4); set by `wait`
        self.taker = taker  # client whose session takes a tube's task; -1: none (T8)


@final
class Wake:
    """The reply to a waiting client: jobs, or why there are none."""

    def __init__(self, client: i64, why: i64, jobs: list[Job], extras: i64) -> None:
        self.client = client
        self.why = why
        self.jobs = jobs
        self.extras = extras
        self.queue = b""  # the tube whose leader changed
        self.name = b""  # of the value that has changed (T72.1); empty: any of them


@final
class Peer:
    """Another node, known by its slot (core/node/peers.py). The shell empties `outbox`."""

    def __init__(self, slot: i64, node_id: bytes) -> None:
        self.slot = slot
        self.node_id = node_id
        self.is_linked = False  # messages can be sent
        self.linked_ms: i64 = 0  # when that began last
        self.has_room = True  # the send buffer takes more (B2.4)
        self.is_leaving = False
        self.failing_ms: i64 = 0  # when it last said that its journal fails; 0: it works (K4.5)
        self.is_dirty = False  # in n.dirty_peers
        self.outbox: list[AnyMessage] = []  # messages of this turn
        self.told: i64 = 0  # slots of this node introduced on this link
        self.theirs: dict[int, int] = {}  # its slots -> this node's
        self.said: dict[int, tuple[int, int]] = {}  # its slots -> this node's, incarnation
        self.masks: dict[int, int] = {}  # its sets -> this node's: cache
        self.wide_masks: dict[int, int] = {}  # the same for nodes in any incarnation
        self.echoed_round: i64 = 0  # newest heartbeat of this node that it answered
        self.news_round: i64 = 0  # this node's, when another node named it in a newer incarnation
        self.sure_ms: i64 = 0  # it has received everything sent before (Q12.1)
        self.asked: i64 = 0  # jobs that it was asked for (F1)
        self.sent: i64 = 0  # that it was given (F2), refused ones among them
        self.taken: i64 = 0  # that came from it and were queued here (F3)


@final
class Adding:
    """A producer waiting for copies of its job (R1.10)."""

    def __init__(self, job: Job, client: i64, serial: i64, until_ms: i64) -> None:
        self.job = job
        self.client = client  # < 0: nobody waits
        self.serial = serial  # which ADDJOB of the client
        self.until_ms = until_ms  # 0: no limit
        self.sent_ms: i64 = 0  # when REPLJOB was last sent
        self.step_ms: i64 = 50  # until it is sent again (R4.3)
        self.needed: i64 = 1  # nodes that must confirm
        self.may_lower = False  # REPLICATE was not given: as many as are possible suffice (R5.3)
        self.delay_ms: i64 = -1  # exact, where the job knows whole seconds; -1: unknown
        self.server_slot: i64 = 0  # external: the node asked to serve it
        self.publishing: Publishing | None = None  # set if it was published, not added (Z3)


@final
class Copying:
    """The copies of the last new jobs (R1.12): `message` is last in the outboxes, or has left."""

    def __init__(self) -> None:
        self.message: ReplJob | ReplJobs | None = None
        self.first: Job | None = None  # the others have its queue and options
        self.others: list[tuple[bytes, bytes, int]] = []  # of a ReplJobs
        self.size: i64 = 0  # bytes of all bodies
        self.slots: i64 = 0  # the nodes whose outboxes these are
        self.holders: i64 = 0
        self.left_ms: i64 = 0
        self.due_ms: i64 = 0
        self.mode: i64 = 0


@final
class Added:
    """The reply to a waiting producer: the id, or a refusal."""

    def __init__(self, client: i64, serial: i64, id: bytes, error: Refusal | None) -> None:
        self.client = client
        self.serial = serial
        self.id = id
        self.error = error  # None: success
        self.count: i64 = 0  # without an id: the reply to a PUBLISH
        self.ids: list[bytes] = []  # or to a TOPIC ADD


@final
class Pausing:
    """The latest PAUSE of a queue, given on any node."""

    def __init__(self, bits: i64, stamp_ns: i64, is_bcast: bool) -> None:
        self.bits = bits
        self.stamp_ns = stamp_ns
        self.is_bcast = is_bcast  # on all nodes


@final
class Retelling:
    """Acks and ends a peer may have missed without a link (A6.2) or with a full one (A6.3)."""

    def __init__(self, slot: i64, ids: list[bytes]) -> None:
        self.slot = slot
        self.ids = ids
        self.next: i64 = 0  # of `ids`, the next to check


@final
class Limits:
    """Settings of the core; the shell keeps them equal to the configuration."""

    def __init__(self) -> None:
        self.memory_bytes: i64 = 0  # 0: no limit
        self.bare_bytes: i64 = 1 << 60  # of queues that only waits have made (M5.4)
        self.clients_bytes: i64 = 0  # reserved for what clients hold (M5); 0: nothing is
        self.may_evict = True
        self.queue_idle_ms: i64 = 300_000
        self.default_ttl_s: i64 = 86_400
        self.default_retry_max_s: i64 = 300
        self.default_replicate: i64 = 3
        self.timers_per_step: i64 = 5_000
        self.repair_per_second: i64 = 5_000  # jobs
        self.keys_max: i64 = 1_000_000  # Z4.6
        self.tubes_max: i64 = 10_000  # T2.7
        self.node_timeout_ms: i64 = 5_000  # cluster-node-timeout
        self.lease_timeout_ms: i64 = 2_000  # tube-lease-timeout (T25)
        self.tube_idle_ms: i64 = 3_600_000  # T2.9; 0: never
        self.unstarted_max: i64 = 100  # W6.4
        self.crashes_max: i64 = 3  # W6.7
        self.results_bytes: i64 = 64 << 20  # W7.4
        self.dead_bytes: i64 = 256 << 20  # W6.6
        self.values_bytes: i64 = 0  # of one tube (T70.7); 0: no limit
        self.dead_keep_ms: i64 = 30 * 86_400_000
        self.quota_bytes: dict[bytes, int] = {}  # of tenants that have one (N11.1)


@final
class Node:
    """One broker. `seed` feeds job ids and choices; equal seeds give equal runs."""

    # initially zero
    policy: Policy | None = None  # of tubes, once there are any
    last_ctime_ns: i64 = 0
    queue_serial: i64 = 0
    idle_level: i64 = 0  # memory level for which idle checks were set
    idle_left: i64 = 0  # so many of `queue_list` may be set for a later check than it asks for
    job_bytes: i64 = 0
    queue_bytes: i64 = 0
    bare_bytes: i64 = 0  # of `bare`
    demand_bytes: i64 = 0  # of `demands`
    pause_bytes: i64 = 0  # of the names in `pauses`
    work: i64 = 0  # units of work done in this turn by long commands (core/model/timers.py)
    passed: i64 = 0  # expired jobs skipped by takes in this turn
    has_passed = False  # some were skipped in the turn before
    wait_bytes: i64 = 0  # of waiting clients
    base_bytes: i64 = 0  # the process without jobs; the shell sets it
    client_bytes: i64 = 0  # input and output of clients; the shell counts it
    roomy_limit: i64 = -1  # the limit of memory of which much is free in this turn; -1: little
    other_bytes: i64 = 0  # connections, journal and events; the shell sets it
    has_lives = False  # `life` is in use
    is_leaving = False
    is_stopping = False  # by plan: it comes back with its jobs (K9)
    is_double = False  # another live node has its id (K1.3)
    is_loading = False
    remembers = False  # it started with data from a journal (K5.1)
    others: i64 = 0  # set of slots of the other nodes of the cluster, without forgotten ones
    linked: i64 = 0  # set of slots with a link
    reachable: i64 = 0  # set of slots that can be given copies (K4.2)
    reachable_count: i64 = 0  # size of `reachable`
    late: i64 = 0  # set of reachable slots that were silent for 2 s (K4.3)
    prompt_count: i64 = 0  # how many of `reachable` are not late
    expected: i64 = 0  # set of slots that are reachable, or may be soon (K4.4)
    leavers: i64 = 0  # reachable except that they leave: they take no copies but can be asked
    forgotten: i64 = 0  # set of slots (K6.2)
    round: i64 = 0  # number of this node's newest heartbeat
    standstills: i64 = 0  # how often the process stood still (G8.4)
    stood_ms: i64 = 0  # how long the last time
    retell_ms: i64 = 0  # earliest next retelling
    acks_evicted: i64 = 0  # of jobs that other holders may deliver again (M3.1)
    beat_ms: i64 = 0  # when deliveries are announced next
    offers_ms: i64 = 0  # earliest next offer
    sweep_ms: i64 = 0  # when demands are cleaned up next
    deliveries: i64 = 0
    redeliveries: i64 = 0
    requeues: i64 = 0
    nacks: i64 = 0
    dead_letters: i64 = 0

    def __init__(self, node_id: bytes, seed: bytes, now_ms: i64) -> None:
        assert len(node_id) == 40
        self.node_id = node_id
        self.ids = IdMaker(node_id, seed)
        self.now_ms = now_ms  # G8.1: set by the shell, never back
        self.limits = Limits()
        self.begin_tables()
        self.wheel, self.ledger = Wheel(self.book), Ledger()
        self.records: Records | None = None
        self.events: Events | None = None
        self.waiters: dict[int, Waiter] = {}
        self.deadlines: list[tuple[int, int]] = []  # heap of (instant, client)
        self.ready: list[Queue] = []  # queues that may serve a waiter
        self.looks_later: dict[bytes, None] = {}  # queues with more expired jobs (V2.3)
        self.wakes: list[Wake] = []
        # queues that may be idle: heap of (instant to check, name), one entry per queue
        self.idle_checks: list[tuple[int, bytes]] = []
        self.delivered_amo: dict[bytes, None] = {}  # at-most-once jobs that may be evicted
        self.leases = Leases()
        self.staging, self.keys, self.life = Staging(), Keys(), Lives()
        # the cluster
        self.chance = Chance(seed)
        self.peers: list[Peer] = [Peer(0, node_id)]  # by slot; 0 is this node
        self.slot_of: dict[bytes, int] = {node_id: 0}
        self.node_ids: list[bytes] = [node_id]  # by slot
        self.lives: dict[int, int] = {}  # by slot: the incarnation, as a unique number
        self.dirty_peers: list[Peer] = []  # peers with messages in their outbox
        self.has_large = False  # one of these messages is a copy with a large body (B2.8)
        # tombstones, copies to restore (K5, K7), jobs to ask about (Q11)
        self.tombs, self.losses, self.held = Tombs(), Losses(), Held()
        self.acked: dict[bytes, None] = {}  # acked jobs not yet confirmed by all holders, in order
        self.strays: dict[bytes, int] = {}  # acks of unknown jobs (A3.4): the client
        self.stray_counts: dict[int, int] = {}  # how many of them, by client
        self.retelling: dict[int, Retelling] = {}  # by slot
        self.late_moves: list[tuple[int, YourJobs]] = []  # received while loading, with the sender
        self.late_answers: list[tuple[int, GotJobs]] = []
        self.late_deletes: dict[bytes, tuple[int, int]] = {}  # DELJOB while loading: (end, sender)
        self.adding: dict[bytes, Adding] = {}  # by job id
        self.added: list[Added] = []  # replies to producers
        self.copying, self.add_steps = Copying(), Steps()  # steps: of those in `adding`
        self.add_ends: list[tuple[int, bytes]] = []  # heap of timeouts within the next step
        self.failed: dict[bytes, tuple[int, int]] = {}  # ids of failed adds: (end, slots to inform)
        self.untold: dict[bytes, None] = {}  # delivered jobs not yet announced (V4.6)
        self.demands: dict[bytes, Demand] = {}  # by queue: demand from and on other nodes
        self.asks: dict[bytes, None] = {}  # queues to check in this turn (F1)
        self.offers: dict[bytes, None] = {}  # queues with jobs that other nodes want (F2)
        self.looks: list[tuple[int, bytes]] = []  # heap of (instant of the next check, queue)
        self.custody: dict[bytes, int] = {}  # at-most-once jobs in transit to or from that slot
        self.denied = Recent(DENIED_MAX)  # copies that this node denied having (R2.7)
        self.pauses: dict[bytes, Pausing] = {}  # the latest PAUSE by queue

    def begin_tables(self) -> None:
        """Jobs and queues by name, and as lists without gaps (core/node/tables.py)."""
        self.jobs: dict[bytes, Job] = {}  # [G1] by id (G1.1)
        self.queues: dict[bytes, Queue] = {}
        self.ended_pauses: dict[bytes, None] = {}  # those of `pauses` that ended one, oldest first
        self.book = Book(b"D-" + self.node_id[:8])  # jobs by queue in any state, and counters
        self.job_list: list[Job] = []
        self.queue_list: list[Queue] = []
        self.bare: dict[bytes, None] = {}  # queues that waits have made (M5.4)
        self.topics = Topics()
        self.topics.begun_ms = self.now_ms
        self.settings = SettingsTable()
        self.beats: list[int] = [0] * ROUNDS  # when the latest heartbeats were sent, by number

    def used_bytes(self) -> i64:
        """Bytes the process uses: base, jobs and the rest (M1.1)."""
        used = self.base_bytes + self.job_bytes + self.other_bytes + self.leases.bytes
        used += self.queue_bytes + self.wait_bytes + self.client_bytes + self.demand_bytes
        if self.policy is not None:
            used += self.policy.bytes_used
        used += self.life.bytes_used()
        used += self.topics.bytes + self.settings.bytes
        return used + self.staging.bytes_used() + self.keys.bytes_used() + self.tombs.bytes_used()

    def use_of(self, queue: bytes) -> tuple[i64, i64]:
        """Jobs of the queue that were delivered here, and those at work (T75.1)."""
        one = self.book.tallies.get(queue)
        return (0, 0) if one is None else (one.delivered, one.at_work)

    def held_by_clients(self) -> i64:
        """[M5] Bytes of them that clients hold: buffers, and what they wait for (M5.1)."""
        held = self.client_bytes + self.wait_bytes + self.life.watch_bytes
        if self.policy is not None:
            held += self.policy.put_bytes
        return held

    def counted_bytes(self) -> i64:
        """[M5] Bytes that the levels of memory look at: without what is reserved (M5.2)."""
        counted = self.used_bytes() - self.bare_bytes - self.demand_bytes
        return counted if self.limits.clients_bytes == 0 else counted - self.held_by_clients()

    def is_full(self) -> bool:
        """[M2] Whether more than `maxmemory` is used: level 3."""
        limit = self.limits.memory_bytes
        return limit != 0 and limit != self.roomy_limit and self.counted_bytes() > limit

    def measure_room(self) -> None:
        """[M2] At the begin of a turn: whether levels need not be looked at in it (M2.7)."""
        limit = self.limits.memory_bytes
        is_roomy = limit > 0 and (self.counted_bytes() + ROOMY_BYTES) * 4 <= limit * 3
        self.roomy_limit = limit if is_roomy else -1

    def memory_classes(self) -> dict[str, int]:
        """[M1] What memory is used for, in bytes: all classes add up to it (S8.1, O1.5)."""
        waits = self.life.watch_bytes
        puts = 0 if self.policy is None else self.policy.put_bytes
        return {
            "base": int(self.base_bytes),
            "jobs": int(self.job_bytes),
            "queues": int(self.queue_bytes),
            "demands": int(self.demand_bytes),
            "leases": int(self.leases.bytes),
            "buffers": int(self.client_bytes),
            "waiting": int(self.wait_bytes + waits + puts),
            "tubes": 0 if self.policy is None else int(self.policy.bytes_used - puts),
            "topics": int(self.topics.bytes + self.settings.bytes),
            "work": int(self.life.bytes_used() - waits),
            "staged": int(self.staging.bytes_used()),
            "keys": int(self.keys.bytes_used()),
            "tombstones": int(self.tombs.bytes_used()),
            "other": int(self.other_bytes),
        }

    def returned(self, id: bytes) -> i64:
        """[E1] How often FAIL, RELEASE or silence of a run put the job back (E1.11)."""
        work = self.life.by_id.get(id)
        return 0 if work is None else work.returned

    def deaf_until_ms(self) -> i64:
        """[W6] Until when no worker could report here: after a standstill, or while the journal
        fails, so that WORKING is refused (W6.1, J6.1).
        """
        is_failing = self.records is not None and self.records.is_failing
        return self.now_ms if is_failing else self.life.deaf_ms

    def record_run(self, job: Job, work: Life, kind: i64, text: bytes) -> None:
        """[E1] Write an event of the latest run, if events are written (E1.7)."""
        if self.events is not None:
            self.events.run(self.now_ms, job, kind, attempt_of(work.run), text)

    def record_done(self, job: Job, run: i64) -> None:
        """[E1] Write the event of a run that is done (E1.7); 0: DONE named none."""
        if self.events is None or run == 0:
            return
        work = self.life.by_id.get(job.id)
        worker = work.worker if work is not None and work.run == run else b""
        self.events.run(self.now_ms, job, RUN_DONE, attempt_of(run), worker)

    def next_ctime_ns(self) -> i64:
        """A creation stamp later than all earlier ones on this node (G6.4)."""
        ctime_ns = self.now_ms * 1_000_000
        if ctime_ns <= self.last_ctime_ns:
            ctime_ns = self.last_ctime_ns + 1
        self.last_ctime_ns = ctime_ns
        return ctime_ns
