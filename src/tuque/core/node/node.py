"""All state of one node: its jobs, queues, timers, waiting clients and outboxes.

The shell sets `now_ms` before every call and empties the outboxes after it:
`records` (journal), `events` (history) and `wakes` (clients that waited).
"""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.chance import Chance
from tuque.core.model.job import Job
from tuque.core.model.job_id import IdMaker
from tuque.core.model.ledger import Ledger
from tuque.core.model.timer_wheel import Wheel
from tuque.core.model.tombstones import Tombs
from tuque.core.msgs.bus import AnyMessage, GotJobs, YourJobs
from tuque.core.node.queue import Queue
from tuque.core.node.queue_policy import Policy
from tuque.core.outbox.events import Events
from tuque.core.outbox.records import Records
from tuque.core.state.dedupe_keys import Keys
from tuque.core.state.demand import Demand
from tuque.core.state.held import Held
from tuque.core.state.lease_groups import Leases
from tuque.core.state.losses import Losses
from tuque.core.state.staged import Publishing, Staging

# why a waiting client is woken
GOT_JOBS: Final = 0
TIMED_OUT: Final = 1
NODE_LEAVING: Final = 2
DATA_RESET: Final = 3
HOME_MOVED: Final = 4  # the queue is a tube, and its home is another node now (T17.3)


@final
class Waiter:
    """A client blocked in GETJOB (V1.6)."""

    def __init__(
        self,
        client: i64,
        queues: list[bytes],
        count: i64,
        with_counters: bool,
        until_ms: i64,
        taker: i64 = -1,
    ) -> None:
        self.client = client
        self.queues = queues
        self.count = count
        self.with_counters = with_counters
        self.until_ms = until_ms  # 0: for ever
        self.bytes_used: i64 = 0  # set by `wait`
        self.taker = taker  # client whose session takes a task of a tube; -1: none does (T8)


@final
class Wake:
    """What a waiting client is told: jobs, or why there are none."""

    def __init__(self, client: i64, why: i64, jobs: list[Job], with_counters: bool) -> None:
        self.client = client
        self.why = why
        self.jobs = jobs
        self.with_counters = with_counters
        self.queue = b""  # the tube whose home moved


@final
class Peer:
    """Another node, known by its slot (core/node/slots.py). The shell empties `outbox`."""

    def __init__(self, slot: i64, node_id: bytes) -> None:
        self.slot = slot
        self.node_id = node_id
        self.is_linked = False  # messages can be sent
        self.has_room = True  # the send buffer takes more (B2.4)
        self.is_leaving = False
        self.is_dirty = False  # stands in n.dirty_peers
        self.outbox: list[AnyMessage] = []  # said in this turn
        self.told: i64 = 0  # slots of this node that the peer knows, on this link
        self.theirs: dict[int, int] = {}  # its slots -> this node's
        self.said: dict[int, tuple[int, int]] = {}  # its slots -> this node's, incarnation
        self.masks: dict[int, int] = {}  # its sets -> this node's, looked up before
        self.wide_masks: dict[int, int] = {}  # the same, of nodes in any incarnation
        self.echoed_round: i64 = 0  # newest heartbeat of this node that it has answered
        self.news_round: i64 = 0  # this node's, when another one named it in a newer incarnation
        self.sure_ms: i64 = 0  # it has heard what was said before (Q12.1)


@final
class Adding:
    """A producer that waits for copies of its job (R1.10)."""

    def __init__(self, job: Job, client: i64, serial: i64, until_ms: i64) -> None:
        self.job = job
        self.client = client  # < 0: nobody waits any more
        self.serial = serial  # which ADDJOB of the client
        self.until_ms = until_ms  # 0: no limit
        self.sent_ms: i64 = 0  # when REPLJOB was last sent
        self.step_ms: i64 = 50  # until it is sent again (R4.3)
        self.needed: i64 = 1  # nodes that must have confirmed
        self.server_slot: i64 = 0  # external: the node that was told to serve it
        self.publishing: Publishing | None = None  # it was published, not added (Z3)


@final
class Added:
    """What a producer that waited is told: the id, or why not."""

    def __init__(self, client: i64, serial: i64, id: bytes, error: bytes) -> None:
        self.client = client
        self.serial = serial
        self.id = id
        self.error = error  # empty: the job is added
        self.count: i64 = 0  # without an id: the answer of a PUBLISH


@final
class Pausing:
    """The latest PAUSE of a queue, wherever it was given."""

    def __init__(self, bits: i64, stamp_ns: i64, is_bcast: bool) -> None:
        self.bits = bits
        self.stamp_ns = stamp_ns
        self.is_bcast = is_bcast  # for all nodes


@final
class Retelling:
    """What a peer may have missed while it had no link (A6.2), or one without room (A6.3)."""

    def __init__(self, slot: i64, ids: list[bytes]) -> None:
        self.slot = slot
        self.ids = ids
        self.next: i64 = 0  # of those, the first that is still to be looked at


@final
class Limits:
    """Settings the core obeys; the shell keeps them equal to the configuration."""

    def __init__(self) -> None:
        self.memory_bytes: i64 = 0  # 0: no limit
        self.may_evict = True
        self.queue_idle_ms: i64 = 300_000
        self.default_ttl_s: i64 = 86_400
        self.default_retry_max_s: i64 = 300
        self.default_replicate: i64 = 3
        self.timers_per_step: i64 = 10_000
        self.repair_per_second: i64 = 5_000  # jobs
        self.keys_max: i64 = 1_000_000  # Z4.6
        self.tubes_max: i64 = 10_000  # T2.7
        self.node_timeout_ms: i64 = 5_000  # cluster-node-timeout


@final
class Node:
    """One broker. `seed` feeds job ids and choices; equal seeds act equally."""

    # what begins at nothing
    policy: Policy | None = None  # of tubes, once there is one
    last_ctime_ns: i64 = 0
    queue_serial: i64 = 0
    idle_level: i64 = 0  # memory level those instants were made for
    job_bytes: i64 = 0
    queue_bytes: i64 = 0
    work: i64 = 0  # units of work done in this turn by long commands (core/model/work.py)
    passed: i64 = 0  # expired jobs that takes have passed over in this turn
    has_passed = False  # some in the turn before
    wait_bytes: i64 = 0  # of clients that wait in queues
    base_bytes: i64 = 0  # the process without jobs, set by the shell
    other_bytes: i64 = 0  # clients, journal and events, set by the shell
    is_leaving = False
    is_loading = False
    remembers = False  # it began with what a journal held (K5.1)
    others: i64 = 0  # set of slots of the other nodes of the cluster, none of them forgotten
    linked: i64 = 0  # set of slots with a link
    reachable: i64 = 0  # set of slots that may be given copies (K4.2)
    reachable_count: i64 = 0  # how many those are
    expected: i64 = 0  # set of slots that are reachable, or may be soon (K4.4)
    leavers: i64 = 0  # those that only leave: they take no copies, and can be asked
    forgotten: i64 = 0  # set of slots (K6.2)
    round: i64 = 0  # number of this node's newest heartbeat
    standstills: i64 = 0  # how often the process stood still (G8.4)
    stood_ms: i64 = 0  # and for how long, the last time
    retell_ms: i64 = 0  # not before
    acks_evicted: i64 = 0  # of jobs that other holders may deliver again (M3.1)
    beat_ms: i64 = 0  # when they are told
    offers_ms: i64 = 0  # not before
    sweep_ms: i64 = 0  # when demands are next tidied up
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
        self.wheel, self.ledger = Wheel(), Ledger()
        self.records: Records | None = None
        self.events: Events | None = None
        self.waiters: dict[int, Waiter] = {}
        self.deadlines: list[tuple[int, int]] = []  # heap of (instant, client)
        self.ready: list[Queue] = []  # queues that may serve a waiter
        self.looks_later: dict[bytes, None] = {}  # queues with more expired jobs (V2.3)
        self.wakes: list[Wake] = []
        # queues that may be idle: heap of (instant to look, name), one entry a queue
        self.idle_checks: list[tuple[int, bytes]] = []
        # memory
        self.delivered_amo: dict[bytes, None] = {}  # at-most-once jobs that may be evicted
        self.leases = Leases()
        self.staging, self.keys = Staging(), Keys()
        # the cluster
        self.chance = Chance(seed)
        self.peers: list[Peer] = [Peer(0, node_id)]  # by slot; 0 is this node
        self.slot_of: dict[bytes, int] = {node_id: 0}
        self.node_ids: list[bytes] = [node_id]  # by slot
        self.lives: dict[int, int] = {}  # by slot: the incarnation, by a number others have not
        self.dirty_peers: list[Peer] = []  # have something in their outbox
        # tombstones, copies to be made again (K5, K7), jobs to be asked about (Q11)
        self.tombs, self.losses, self.held = Tombs(), Losses(), Held()
        self.acked: dict[bytes, None] = {}  # acked jobs that other holders must hear of, in order
        self.strays: dict[bytes, int] = {}  # acks of unknown jobs (A3.4): the client
        self.stray_counts: dict[int, int] = {}  # how many of them, by client
        self.retelling: dict[int, Retelling] = {}  # by slot
        self.late_moves: list[tuple[int, YourJobs]] = []  # heard while loading, with the sender
        self.late_answers: list[tuple[int, GotJobs]] = []
        self.late_deletes: dict[bytes, tuple[int, int]] = {}  # DELJOB while loading: (end, from)
        self.adding: dict[bytes, Adding] = {}  # by job id
        self.added: list[Added] = []  # producers to be told
        self.add_steps: deque[tuple[int, bytes]] = deque()  # (instant, job id), in order
        self.add_ends: list[tuple[int, bytes]] = []  # heap of timeouts within the next step
        self.failed: dict[bytes, tuple[int, int]] = {}  # ids of failed adds: (end, slots to tell)
        self.untold: dict[bytes, None] = {}  # handed out, the other holders do not know (V4.6)
        self.demands: dict[bytes, Demand] = {}  # by queue: what other nodes have to do with it
        self.asks: dict[bytes, None] = {}  # queues to be looked at this turn (F1)
        self.offers: dict[bytes, None] = {}  # queues with jobs that other nodes wish for (F2)
        self.looks: list[tuple[int, bytes]] = []  # heap of (instant to look again, queue)
        self.custody: dict[bytes, int] = {}  # at-most-once jobs between this node and that slot
        self.denied: dict[bytes, int] = {}  # copies that others were told are not here: until
        self.pauses: dict[bytes, Pausing] = {}  # what PAUSE said last, by queue

    def begin_tables(self) -> None:
        """Jobs and queues by name, and the same without gaps (core/node/table.py)."""
        self.jobs: dict[bytes, Job] = {}  # [G1] by id (G1.1)
        self.queues: dict[bytes, Queue] = {}
        self.jobs_of: dict[bytes, int] = {}  # how many each queue has, in whatever state (T2.3)
        self.job_list: list[Job] = []
        self.queue_list: list[Queue] = []

    def used_bytes(self) -> i64:
        """Bytes the process spends: at the start, on jobs, on the rest (M1.1)."""
        used = self.base_bytes + self.job_bytes + self.other_bytes + self.leases.bytes
        used += self.queue_bytes + self.wait_bytes
        if self.policy is not None:
            used += self.policy.bytes_used
        return used + self.staging.bytes + self.keys.bytes_used() + self.tombs.bytes_used()

    def next_ctime_ns(self) -> i64:
        """A creation stamp later than any before on this node (G6.4)."""
        ctime_ns = self.now_ms * 1_000_000
        if ctime_ns <= self.last_ctime_ns:
            ctime_ns = self.last_ctime_ns + 1
        self.last_ctime_ns = ctime_ns
        return ctime_ns
