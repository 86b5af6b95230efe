"""Everything one server has: its node, clients, settings and figures.

Dispatch and the command modules work on it, the pump drives it. No logic here.
"""

from __future__ import annotations

import socket
from array import array
from collections import deque
from secrets import token_hex
from typing import Final, final

from mypy_extensions import i64

from tuque.cluster.members import Members
from tuque.cluster.nodes_conf import NodesConf
from tuque.core.copies.add import settle
from tuque.core.copies.replicate import on_producer_gone
from tuque.core.model.job import PLAIN, AddSpec, Job
from tuque.core.model.timers import TURN_NS, TURN_WORK, Alarms
from tuque.core.node.node import Node, Wake
from tuque.core.queues.procedures import stop_waiting
from tuque.server.bus.peers import Bus
from tuque.server.config.config import Config
from tuque.server.config.identity import Identity
from tuque.server.config.kinds import Percent
from tuque.server.events.events import EventLog
from tuque.server.journal.committer import Committer
from tuque.server.log.audit import Audit
from tuque.server.log.log import Bugs, log
from tuque.server.log.slowlog import Latency, SlowLog
from tuque.server.net.system import System
from tuque.server.net.tls_acceptor import Handshakes
from tuque.server.observe.queue_walk import QueueWalk
from tuque.server.state.client import (
    GUEST,
    NOT_HELD,
    STRANGER_BYTES,
    Client,
    ClientCheck,
    Connection,
    LongCommand,
    Pending,
    Take,
    User,
    Users,
    Wired,
)
from tuque.server.state.notices import Notices
from tuque.server.state.workers import Tokens, WorkerRegistry
from tuque.server.users.users import Acl
from tuque.tubes.election.lease import set_timeout
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks.sessions import forget_puts, on_client_gone
from tuque.wire.commands.add_options import Specs
from tuque.wire.commands.commands import Command, table

__all__ = ["Figures", "Server", "apply_settings", "job_of", "log"]

SAMPLES: Final = 16
FRAME_SLACK: Final = 1 << 20  # a frame of IPROTO may exceed a body by this
NO_BOUND: Final = 1 << 50
BARE_PART: Final = 8  # part of `maxmemory` for queues that only waits have made (M5.4)
SHARE_MIN: Final = 256 << 20  # of `maxmemory` as a percentage
FAR_OFF: Final = 1 << 50  # larger settings mean the same; sums with it fit 64 bits

# ---- The alarms: when a turn has work though no input came
#
# An instant that only its own feature moves has an alarm: the feature sets it where it moves, and
# the pump reads the least of all. What follows from the state of others, or counts only while
# something else holds, has none: `Pump.asked_ms` asks for it.
# fmt: off
#                   set in                                the turn then runs
WATCH: Final = 0    # Server, Pump.ring                   QueueWalk.look (O3.1)
REOPEN: Final = 1   # Acceptors: accept, reopen, shut     Acceptors.reopen
REFUSED: Final = 2  # Acceptors: refuse, forget           Acceptors.on_time (C1.7)
SYNCED: Final = 3   # waiting: queue_up, tell_synced      tell_synced (T18.5)
JOURNAL: Final = 4  # Gate.write                          Gate.write (J4.6)
EVENTS: Final = 5   # housekeeping: tell_events; app      tell_events (E3.2)
ALARMS: Final = 6   # so many
# fmt: on


@final
class Figures:
    """Counters for INFO; RESETSTAT zeroes them."""

    def __init__(self) -> None:
        self.connections: i64 = 0
        self.rejected: i64 = 0
        self.commands: i64 = 0
        self.turned_down: i64 = 0  # commands that were refused: they cost time, too
        self.much_bytes: i64 = 0  # of replies that count towards their turn (L2.8)
        self.in_bytes: i64 = 0
        self.out_bytes: i64 = 0
        self.turns: i64 = 0
        self.output_closed: i64 = 0  # clients closed at the output limit
        self.evicted: i64 = 0  # clients closed since all together held too much (M5.3)
        self.strangers_closed: i64 = 0  # clients closed at the limits for those not logged in
        self.deadline_closed: i64 = 0  # clients closed with half a command
        self.broken: i64 = 0  # clients closed because they broke the protocol
        self.samples = array("q", bytes(SAMPLES * 4 * 8))  # a preallocated ring
        self.sample_count: i64 = 0

    def sample(self, now_ms: i64) -> None:
        """Add a sample of commands, bytes in and bytes out, for rates."""
        at = self.sample_count % SAMPLES * 4
        self.samples[at] = now_ms
        self.samples[at + 1] = self.commands
        self.samples[at + 2] = self.in_bytes
        self.samples[at + 3] = self.out_bytes
        self.sample_count += 1

    def rates(self) -> tuple[int, int, int]:
        """Commands, bytes in and bytes out per second over the samples."""
        count = self.sample_count
        if count < 2:
            return 0, 0, 0
        last = (count - 1) % SAMPLES * 4
        first = count % SAMPLES * 4 if count >= SAMPLES else 0
        kept = self.samples
        span_ms = max(1, kept[last] - kept[first])
        return (
            max(0, (kept[last + 1] - kept[first + 1]) * 1000 // span_ms),
            max(0, (kept[last + 2] - kept[first + 2]) * 1000 // span_ms),
            max(0, (kept[last + 3] - kept[first + 3]) * 1000 // span_ms),
        )


@final
class Server:
    """The state of one server process."""

    def __init__(self, cfg: Config, node: Node, system: System | None = None) -> None:
        self.cfg = cfg
        self.n = node
        self.system = System() if system is None else system
        self.table = table()
        self.by_name: dict[bytes, Command] = {}  # as clients typed it: a cache
        self.last_word = b""  # the last of them: the next one is often the same
        self.last_command: Command | None = None
        self.clients: dict[int, Client] = {}  # by file descriptor
        self.by_number: dict[int, Client] = {}
        self.next_number: i64 = 1
        self.dirty: list[Connection] = []  # with output to write
        self.resumed: list[Client] = []  # unblocked, with commands to run
        self.doomed: list[Connection] = []  # to be closed at the end of the turn
        self.monitors: list[Client] = []
        self.blocked: i64 = 0  # clients that wait for jobs, or for copies of their own
        self.stalled: dict[int, int] = {}  # producers that lack room: when to check again
        self.is_crowded = False  # some link has no room for more copies (B2.4)
        self.paused_until_ms: i64 = 0  # CLIENT PAUSE
        self.acl = Acl()
        self.figures = Figures()
        self.bugs = Bugs()
        self.run_id = token_hex(20)
        kept = NodesConf()
        kept.node_id = node.node_id
        self.identity = Identity(kept, cfg)  # in memory only, until replaced
        self.members = Members(node, 1, self.identity.mark, cfg.cluster_node_timeout)
        self.last_house_commands: i64 = 0
        self.jobs_peak: i64 = 0  # most jobs since memory was last freed
        self.committer: Committer | None = None
        self.journal_error = ""  # why writes are refused; empty when they are not (J6)
        self.eventlog: EventLog | None = None
        self.audit: Audit | None = None
        self.bus: Bus | None = None  # none: the node stays alone
        self.conflict = ""  # why this node must not serve: another one has its id (K1.3)
        self.plain_spec: AddSpec = settle(node, PLAIN)  # ADDJOB without options
        self.keep_ms: i64 = 0  # next write of nodes.conf, at the earliest
        self.prompt_then: i64 = 0  # reachable nodes not late when `plain_spec` was made
        self.is_loading = False
        self.handshakes: Handshakes | None = None  # none: no port speaks TLS
        self.signal_sockets: tuple[socket.socket, socket.socket] | None = None
        self.stop_requested = ""  # reason to stop: "shutdown", "signal", "restart"
        self.restart_after_ms: i64 = -1
        # instants
        self.start_ms: i64 = node.now_ms
        self.clock_offset_ms: i64 = 0  # now_ms = what the boot clock shows + this
        self.begin_work()
        self.begin_doors(node)
        self.begin_figures()
        self.begin_settings()

    def begin_work(self) -> None:
        """Long commands, and the work on jobs."""
        self.long_ns: i64 = 0  # what all but the plainest commands have taken in this turn (L2.11)
        self.mark_ns: i64 = 0  # when the last command ended; 0: something else took time since
        self.specs = Specs()
        self.long_commands: list[LongCommand] = []  # long commands in progress
        self.resting: list[LongCommand] = []  # those of them that wait for their time
        self.has_parted = False  # the client of one of them may have gone
        self.woken_bytes: i64 = 0  # of replies to clients whose waits ended in this turn
        self.late_wakes: dict[int, Wake] = {}  # by client: their replies wait for the next turn
        self.tokens = Tokens()  # of runs
        self.idle = ""  # why it does no work, as said in the log (K6.4)
        self.conflicts_told: i64 = 0  # of those in n.life, logged
        self.conflicts_ms: i64 = 0  # no further line about them before
        self.level_told: i64 = 0  # the memory level that the log said last
        self.level_ms: i64 = 0  # no line about a lower one before
        self.thinned_told: i64 = 0  # results and details dropped for memory, logged
        self.thinned_seen: i64 = 0
        self.large_told: i64 = 0  # results that were too large, logged
        self.dropped_ms: i64 = 0  # when it is said how many; 0: none since the last line
        self.large_ms: i64 = 0  # no further line about large ones before

    def begin_doors(self, node: Node) -> None:
        """IPROTO connections and users, subscribers of tubes, leases, and workers."""
        node.limits.lease_timeout_ms = self.cfg.tube_lease_timeout
        self.end_asked = ""  # reason to stop once calls in flight have ended (C11)
        self.end_ms: i64 = 0  # when to stop in any case; 0: not begun
        self.workers = WorkerRegistry()  # workers that announced themselves
        self.wired: dict[int, Wired] = {}  # connections of IPROTO, by file descriptor
        self.wired_by_number: dict[int, Wired] = {}
        self.takes: dict[int, Take] = {}  # their waiting takes, by number
        self.users = Users()  # who may log in there, beside those of the table
        self.notices = Notices()  # subscribers of tubes
        self.syncing: dict[bytes, deque[Pending]] = {}  # replies that wait for copies, by tube
        self.uuid = uuid_of(node.node_id)  # the node's id in greetings

    def begin_figures(self) -> None:
        """What the server observes about itself and its clients."""
        self.client_check = ClientCheck(self.n)
        self.wired_check = ClientCheck(self.n)
        self.slowlog = SlowLog()
        self.latency = Latency()
        self.used_peak_bytes = 0
        self.watch = QueueWalk(self.n.now_ms)  # what is kept of the past (O3)
        self.alarms = Alarms(ALARMS)
        self.alarms.set(WATCH, self.watch.due_ms)

    def begin_settings(self) -> None:
        """Settings that the hot path reads; `apply_settings` fills them in."""
        self.slow_ns: i64 = 10_000_000  # SLOWLOG threshold, < 0: off
        self.latency_ms: i64 = 0  # LATENCY threshold, 0: off
        self.max_bulk: i64 = 512 << 20
        self.busy_poll_ns: i64 = 0  # C8.4
        self.out_hard: i64 = 0
        self.out_soft: i64 = 0
        self.out_soft_ms: i64 = 0
        self.query_limit: i64 = 1 << 30
        self.idle_close_ms: i64 = 0
        self.half_close_ms: i64 = 0
        self.login_ms: i64 = 0  # until a log-in, where one is needed; 0: for ever

    def clock_ms(self) -> i64:
        """What the clock shows, which the node's time follows (G8)."""
        return self.system.boot_ns() // 1_000_000 + self.clock_offset_ms

    def unblock(self, c: Client) -> None:
        """End the client's wait (V6.1, R7.1); no effect if it does not wait."""
        if c.is_blocked:
            c.is_blocked = False
            if c.long_command is not None:
                c.long_command = None  # it goes on, or ends when the client is closed (L2.2)
                self.has_parted = True
                return
            self.blocked -= 1
            stop_waiting(self.n, c.number)
            if c.wanted is not None:
                c.wanted = None
                self.n.life.unwatch(c.number)
            c.is_taking = False
            c.is_homing = False
            if c.is_putting:
                c.is_putting = False
                forget_puts(tubes_of(self.n), c.number)
        if len(c.holes) > 0:
            c.first_serial += len(c.holes)
            c.holes = []
            c.holes_head = c.owed_bytes = 0
            c.muted = {}
            c.told_new = {}
            self.blocked -= 1
            on_producer_gone(self.n, c.number)
        if c.held != NOT_HELD:
            c.held = NOT_HELD
            self.stalled.pop(c.number, None)

    def trust(self, w: Wired, user: User) -> None:
        """[I5] Give the connection to the user; a stranger's frames are small (I2.3)."""
        w.user = user
        is_known = user.is_admin or user.account is not None or user.name != GUEST
        w.reader.limit_bytes = self.max_bulk + FRAME_SLACK if is_known else STRANGER_BYTES

    def is_nobody(self, c: Client) -> bool:
        """Whether the client must log in and has not."""
        return c.user is None and self.acl.is_guarded

    def note_long(self, spent_ns: i64) -> None:
        """[L2] So much time went to commands that may be long: enough of it ends their share of
        the turn, whatever they have counted (L2.11).
        """
        self.long_ns += spent_ns
        if self.long_ns >= TURN_NS:
            self.n.work = max(self.n.work, TURN_WORK)

    def note_woken(self, c: Connection) -> None:
        """[L2] A client was told what it waited for: that counts towards the turn (L2.8)."""
        much = c.take_much()
        self.woken_bytes += much
        self.figures.much_bytes += much

    def settle_guest(self) -> None:
        """[I5] Guest is a client without a log-in, unless the port has users of its own (I5.5)."""
        if not self.users.is_from_file:
            self.users.guest.account = self.acl.newcomer

    def part(self, w: Wired) -> None:
        """[I6] Remove a closed IPROTO connection: its waiting calls end."""
        self.unwait(w)
        self.has_parted = True
        del self.wired[w.fd]
        del self.wired_by_number[w.number]

    def unwait(self, w: Wired) -> None:
        """[I7] End the connection's waiting calls without a reply (I7.5)."""
        for number in w.takes:
            del self.takes[number]
            stop_waiting(self.n, number)
        w.takes = {}
        if len(w.puts) > 0:
            w.puts = {}
            forget_puts(tubes_of(self.n), w.number)
        w.claims = {}

    def leave_tubes(self, number: i64) -> None:
        """[T8] A closed connection leaves its session."""
        if self.n.policy is not None:
            on_client_gone(self.n, tubes_of(self.n), number)

    def ask_end(self, reason: str) -> None:
        """[C11] Stop: once calls in flight have ended, or at once if asked again or loading."""
        if self.is_loading or len(self.end_asked) > 0:
            self.stop_requested = reason
        self.end_asked = reason

    def is_parting(self) -> bool:
        """Whether clients are sent to other nodes: it leaves its cluster, or stops."""
        return self.n.is_leaving or self.n.is_stopping or len(self.end_asked) > 0

    def is_disk_short(self) -> bool:
        """[J6.9] Whether the disk of the journal takes no more jobs."""
        return self.committer is not None and self.committer.is_short

    def settle_plain(self) -> None:
        """The settled options of a plain ADDJOB: REPLICATE depends on who is prompt (K4.3)."""
        self.prompt_then = self.n.prompt_count
        self.plain_spec = settle(self.n, PLAIN)
        self.specs.forget()

    def touch(self, c: Connection) -> None:
        """Mark the connection as having output."""
        if not c.is_dirty and not c.is_closed:
            c.is_dirty = True
            self.dirty.append(c)


def apply_settings(s: Server) -> None:
    """Copy the configuration to where the hot path and the core read it."""
    cfg = s.cfg
    limits = s.n.limits
    limits.memory_bytes = memory_limit(s)
    limits.bare_bytes = limits.memory_bytes // BARE_PART or NO_BOUND
    limits.clients_bytes = bytes_of(cfg.maxmemory_clients, limits.memory_bytes)
    limits.quota_bytes = s.acl.quota_bytes
    limits.may_evict = cfg.maxmemory_policy == "acks"
    limits.queue_idle_ms = cfg.queue_idle_time * 1000
    limits.default_ttl_s = cfg.default_ttl
    limits.default_retry_max_s = cfg.default_retry_max
    limits.default_replicate = cfg.default_replicate
    limits.keys_max = min(cfg.dedupe_max_keys, FAR_OFF)
    limits.tubes_max = cfg.tubes_max
    limits.tube_idle_ms = cfg.tube_idle_time * 1000
    limits.unstarted_max = cfg.unstarted_max
    limits.crashes_max = cfg.crashes_max
    limits.results_bytes = min(cfg.results_max_bytes, FAR_OFF)
    limits.dead_bytes = min(cfg.dead_max_bytes, FAR_OFF)
    limits.values_bytes = cfg.values_max_bytes or limits.memory_bytes // 8
    limits.dead_keep_ms = cfg.dead_keep_days * 86_400_000
    s.watch.limit = max(cfg.rings_queues, cfg.metrics_queues)
    s.n.idle_level = -1  # check idle queues against the new time
    limits.repair_per_second = cfg.repair_rate
    s.settle_plain()
    s.acl.set_password(cfg.requirepass.encode())
    s.settle_guest()
    slow_us = min(cfg.slowlog_log_slower_than, FAR_OFF)
    s.slow_ns = slow_us * 1000 if slow_us >= 0 else -1
    s.latency_ms = min(cfg.latency_monitor_threshold, FAR_OFF // 1000)
    s.max_bulk = cfg.max_body_bytes
    hard, soft, seconds = cfg.client_output_buffer_limit
    s.out_hard = min(hard, FAR_OFF)
    s.out_soft = min(soft, FAR_OFF)
    s.out_soft_ms = min(seconds, FAR_OFF) * 1000
    s.query_limit = cfg.client_query_buffer_limit
    s.idle_close_ms = cfg.timeout * 1000
    s.half_close_ms = cfg.command_deadline * 1000
    s.login_ms = cfg.login_timeout * 1000
    s.members.timeout_ms = min(cfg.cluster_node_timeout, FAR_OFF)
    s.n.limits.node_timeout_ms = s.members.timeout_ms
    set_timeout(s.n, tubes_of(s.n).voter_state, cfg.tube_lease_timeout)
    s.busy_poll_ns = cfg.bus_busy_poll * 1000
    if s.bus is not None:
        s.bus.limit_bytes = min(cfg.bus_buffer_limit, FAR_OFF)


def memory_limit(s: Server) -> int:
    """[M1] `maxmemory` in bytes (M1.6); 0: no limit."""
    most = s.cfg.maxmemory
    if not isinstance(most, Percent):
        return bytes_of(most, 0)
    return max(bytes_of(most, s.system.memory_bytes()), SHARE_MIN)


def bytes_of(most: int | Percent, whole: int) -> int:
    """The bytes of a limit that may be a part of something."""
    return min(most.of(whole) if isinstance(most, Percent) else most, FAR_OFF)


def uuid_of(node_id: bytes) -> bytes:
    """The node's id as the text of a version 4 UUID (I1.1): its first 32 digits, but for two."""
    kind = b"89ab"[int(node_id[16:17], 16) & 3 :][:1]
    third, fourth = b"4" + node_id[13:16], kind + node_id[17:20]
    return b"-".join([node_id[:8], node_id[8:12], third, fourth, node_id[20:32]])


def job_of(s: Server, id: bytes) -> Job | None:
    """The job with that id on this node."""
    return s.n.jobs.get(id)
