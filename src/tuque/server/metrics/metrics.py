"""The node's metrics: a snapshot in the loop's thread, families in the listener's (SPEC O1)."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from typing import Final, final

from tuque.core.model.stats import BOUNDS, NOBODY, PUT_BACK
from tuque.core.node.tables import held_by
from tuque.core.repair.node_loss import repair_left
from tuque.metrics.text import COUNTER, GAUGE, HISTOGRAM, OTHER, Family, shown
from tuque.server.access.tenant import connections
from tuque.server.observe.queue_walk import level_of
from tuque.server.state.server import Server
from tuque.tubes.log.leader import homeless
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.model.voter_state import (
    AGAIN,
    FORCED,
    GAVE_UP,
    GIVEN,
    SILENT,
)
from tuque.tubes.policies.next_task import Tasks
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks.admin import KeyTotals

Counts = list[int]
OTHER_TENANTS = "(other)"  # no tenant's name has a (

STATES: Final = ("ready", "delayed", "at-work")
MS_BOUNDS: Final = [bound / 1_000 for bound in BOUNDS]
FINE_BOUNDS: Final = [bound / 10_000 for bound in BOUNDS]

# counters by queue, in the order of Tally.counts(): name, help, divisor
BY_QUEUE: Final = (
    ("tuque_jobs_added", "Jobs that came from clients", 1),
    ("tuque_jobs_delivered", "Deliveries to clients and leases", 1),
    ("tuque_queue_first_deliveries", "Jobs delivered for the first time", 1),
    ("tuque_queue_wait_seconds", "Time that these jobs waited since they were due", 1_000),
    ("tuque_jobs_acked", "Jobs acknowledged, or done", 1),
    ("tuque_queue_worked", "Acked jobs that this node had delivered", 1),
    ("tuque_queue_work_seconds", "Time from the last delivery of these to their ack", 1_000),
    ("tuque_jobs_failed", "Attempts that failed", 1),
    ("tuque_queue_requeued", "Jobs put back into their queue", 1),
    ("tuque_queue_dead", "Jobs that became dead letters", 1),
    ("tuque_jobs_expired", "Jobs ended by their TTL", 1),
)

GAUGES: Final = {
    "registered_jobs": "Copies of jobs on this node, in any state",
    "queues": "Queues on this node",
    "memory_limit_bytes": "Option maxmemory; 0: no limit",
    "memory_resident_bytes": "Resident memory of the process",
    "clients": "Connections of clients",
    "clients_blocked": "Clients that wait for jobs or copies",
    "clients_max": "Option maxclients",
    "gc_pending": "Acked jobs that other holders must still confirm",
    "adds_pending": "Jobs that wait for their copies",
    "repair_left": "Jobs with lost copies that are still to be checked",
    "dead_letters": "Dead letters kept",
    "results": "Outcomes kept",
    "staged_jobs": "Staged jobs",
    "tombstones": "Ids of ended jobs that are remembered",
    "lease_groups": "Groups that take jobs in batches",
    "journal_up": "1: there is a journal, and it works",
    "journal_bytes": "Size of the journal",
    "journal_waiting_bytes": "Records not written yet",
    "disk_free_bytes": "Free room of the disk of the journal",
    "disk_free_min_bytes": "Option disk-free-min: with less room the node takes no jobs",
    "leaving": "1: the node leaves its cluster",
    "conflict": "1: another node has this node's id",
    "start_time_seconds": "When the node started, in unix time",
    "tubes": "Tubes known",
    "tubes_led": "Tubes that this node leads",
    "tube_sessions": "Sessions that may hold tasks",
    "tubes_homeless": "Tubes whose leader this node does not reach, or that has no right to lead",
    "schedules": "Schedules that this node leads",
    "values": "Named values, sets of parts and parts that this node leads",
    "values_bytes": "What these take",
    "groups": "Groups of jobs that this node leads and that are not their callback",
    "keys": "Keys of tasks that this node leads",
    "keys_waited": "Limits and rates that tasks wait for",
    "unique_keys": "Unique keys of tasks that this node leads",
    "topics": "Topics that a queue is subscribed to",
    "topic_subscriptions": "Subscriptions of queues to topics",
    "bus_links": "Links to other nodes",
    "bus_waiting_bytes": "Bytes that wait for links",
}

COUNTERS: Final = {
    "commands": "Commands run",
    "connections": "Connections accepted",
    "connections_rejected": "Connections refused",
    "logins_failed": "Log-ins that failed",
    "logins_late": "Log-ins that had to wait for their turn",
    "commands_denied": "Commands that the user had no right to, or no right to their queue",
    "input_bytes": "Bytes read from clients",
    "output_bytes": "Bytes written to clients",
    "schedules_fired": "Jobs that schedules made",
    "schedules_late": "Times that instants of a schedule had been missed",
    "groups_made": "Groups of jobs that were made",
    "groups_done": "Groups of jobs whose children have ended",
    "groups_failed": "Groups of jobs that failed or were cancelled",
    "duplicates": "Jobs not added, since a task had their unique key",
    "topic_adds": "ADDs to topics at this node",
    "topic_jobs": "Jobs that these made",
    "topic_adds_unheard": "ADDs to topics that no queue got",
    "elections_lost": "Elections in which this node asked for votes, and did not win",
    "turns": "Turns of the loop",
    "standstills": "Times that the process stood still",
    "jobs_cancelled": "Jobs cancelled",
    "jobs_imported": "Jobs that other nodes gave to this one",
    "jobs_moved": "Jobs given to other nodes",
    "jobs_evicted": "Jobs evicted for memory",
    "jobs_deleted": "Jobs deleted by command",
    "internal_errors": "Errors that are bugs",
    "events_dropped": "Events lost because their buffer was full",
}


# ---- A snapshot: plain numbers, taken in the loop's thread (SPEC O1.3)
#
# Its cost depends on the number of watched queues, not on those of jobs or queues.


@final
class Snapshot:
    """Numbers only; `queues` has name, jobs by state and counters of each watched queue."""

    def __init__(self) -> None:
        self.queues: list[tuple[bytes, Counts, Counts]] = []
        self.other_level: Counts = []
        self.other_counts: Counts = []
        self.total: Counts = []
        self.put_back: dict[str, int] = {}
        self.died: dict[str, int] = {}
        self.adds: list[tuple[str, Counts, int]] = []  # copies, buckets, sum in ms
        self.waits: tuple[Counts, int] = ([], 0)
        self.works: tuple[Counts, int] = ([], 0)
        self.syncs: tuple[Counts, int] | None = None  # in 0.1 ms; None: no journal
        self.turns: tuple[Counts, int] = ([], 0)  # in 0.1 ms
        self.turn_us_max = 0
        self.gauges: dict[str, int] = {}
        self.counters: dict[str, int] = {}
        self.memory: dict[str, int] = {}
        self.nodes: list[tuple[str, bool]] = []
        self.bus: list[tuple[str, str, int]] = []  # direction, kind, messages
        self.moves: list[tuple[str, int, int, int]] = []  # node, jobs asked for, sent, taken
        self.tenants: list[tuple[str, dict[str, int], int]] = []  # name, held, refused commands
        self.leader_changes: dict[str, int] = {}  # by reason
        self.key_wait_ms = 0
        self.version = ""


def take_snapshot(s: Server) -> Snapshot:
    """[O1] Take the figures of this moment (O1.3)."""
    shot = Snapshot()
    add_queues(s, shot)
    add_histograms(s, shot)
    add_memory(s, shot)
    add_node(s, shot)
    add_cluster(s, shot)
    add_tenants(s, shot)
    return shot


def add_queues(s: Server, shot: Snapshot) -> None:
    """The watched queues, and all others as one."""
    n, most = s.n, s.cfg.metrics_queues
    sums = s.watch.node_level(n)
    for name, watched in s.watch.watched.items():
        if len(shot.queues) >= most:
            break
        row = level_of(n, name, watched.tally).row()
        shot.queues.append((name, row, watched.tally.counts()))
        sums = [max(all_of - one, 0) for all_of, one in zip(sums[:3], row[:3], strict=True)]
    shot.other_level = sums[:3]
    shot.other_counts = s.watch.other_counts(n, most)
    shot.total = n.book.total.counts()
    shot.put_back = dict(zip(PUT_BACK, n.book.put_back, strict=True))
    shot.died = {cause.decode(): count for cause, count in n.book.died.items()}


def add_tenants(s: Server, shot: Snapshot) -> None:
    """[N11] Of the first tenants what they have at this node, and of all others (N11.6)."""
    if len(s.acl.tenants) == 0:
        return
    counts = connections(s)
    rest = {"connections": 0, "queues": 0, "jobs": 0, "bytes": 0}
    refused = 0
    for tenant in s.acl.tenants.values():
        owner = s.n.book.owners.get(tenant.name, NOBODY)
        jobs, size = held_by(s.n, tenant.name)
        held = {
            "connections": counts.get(tenant.name, 0),
            "queues": int(owner.queues),
            "jobs": int(jobs),
            "bytes": int(size),
        }
        if len(shot.tenants) < s.cfg.metrics_queues:
            shot.tenants.append((tenant.name.decode(), held, int(tenant.refused)))
            continue
        refused += int(tenant.refused)
        for what, count in held.items():
            rest[what] += count
    if len(s.acl.tenants) > len(shot.tenants):
        shot.tenants.append((OTHER_TENANTS, rest, refused))


def add_histograms(s: Server, shot: Snapshot) -> None:
    """Latencies."""
    book = s.n.book
    rows = (("1", book.adds_of_1), ("2", book.adds_of_2), ("3+", book.adds_of_more))
    shot.adds = [(copies, one.buckets(), int(one.sum)) for copies, one in rows]
    shot.waits = (book.waits.buckets(), int(book.waits.sum))
    shot.works = (book.works.buckets(), int(book.works.sum))
    shot.turns = (s.watch.turns.buckets(), int(s.watch.turns.sum))
    shot.turn_us_max = int(s.watch.turn_us_max)
    s.watch.turn_us_max = 0
    if s.committer is not None:
        syncs = s.committer.thread.syncs
        shot.syncs = (syncs.buckets(), int(syncs.sum))


def add_memory(s: Server, shot: Snapshot) -> None:
    """[O1] The memory account by class (O1.5): the classes add up to `used_memory`."""
    shot.memory = s.n.memory_classes()


def add_node(s: Server, shot: Snapshot) -> None:
    """The process, its clients, its journal."""
    n, figures = s.n, s.figures
    usage = resource.getrusage(resource.RUSAGE_SELF)
    shot.gauges = {
        "registered_jobs": len(n.jobs),
        "queues": len(n.queues),
        "memory_limit_bytes": int(n.limits.memory_bytes),
        "memory_resident_bytes": resident_bytes(),
        "clients": len(s.clients) + len(s.wired),
        "clients_blocked": int(s.blocked) + len(s.takes),
        "clients_max": s.cfg.maxclients,
        "gc_pending": len(n.acked),
        "adds_pending": len(n.adding),
        "repair_left": int(repair_left(n)),
        "dead_letters": int(n.life.letter_count()),
        "results": len(n.life.kept),
        "staged_jobs": int(n.staging.count),
        "tombstones": int(n.tombs.count()),
        "lease_groups": len(n.leases.groups),
        "journal_up": int(s.committer is not None and not s.journal_error),
        "leaving": int(n.is_leaving),
        "conflict": int(bool(s.conflict)),
        "start_time_seconds": int(s.start_ms) // 1000,
    }
    shot.counters = {
        "commands": int(figures.commands),
        "connections": int(figures.connections),
        "connections_rejected": int(figures.rejected),
        "logins_failed": int(s.acl.denials.logins),
        "logins_late": int(s.acl.denials.late),
        "commands_denied": int(s.acl.denials.commands + s.acl.denials.queues),
        "input_bytes": int(figures.in_bytes),
        "output_bytes": int(figures.out_bytes),
        "turns": int(figures.turns),
        "standstills": int(n.standstills),
        "jobs_cancelled": int(n.life.cancelled),
        "jobs_imported": int(n.ledger.imported),
        "jobs_moved": int(n.ledger.moved),
        "jobs_evicted": int(n.ledger.evicted),
        "jobs_deleted": int(n.ledger.admin_deleted),
        "internal_errors": int(s.bugs.count),
        "cpu_ms": int((usage.ru_utime + usage.ru_stime) * 1000),
    }
    add_parts(s, shot)


def add_parts(s: Server, shot: Snapshot) -> None:
    """What only some nodes have: a journal, tubes, events."""
    n = s.n
    if s.committer is not None:
        shot.gauges["journal_bytes"] = int(s.committer.journal.total_bytes())
        shot.gauges["journal_waiting_bytes"] = int(s.committer.waiting_bytes())
        if s.committer.thread.room.free_bytes >= 0:
            shot.gauges["disk_free_bytes"] = s.committer.thread.room.free_bytes
            shot.gauges["disk_free_min_bytes"] = s.cfg.disk_free_min
    if n.policy is not None:
        t = tubes_of(n)
        add_tubes(s, t, shot)
    add_topics(s, shot)
    if s.eventlog is not None and n.events is not None:
        shot.counters["events_dropped"] = int(n.events.dropped)


def add_tubes(s: Server, t: Tubes, shot: Snapshot) -> None:
    """[O1] Tubes, and what those of type tasks have, as in INFO (O1.8)."""
    keys = KeyTotals()
    led = schedules = groups = values = values_bytes = 0
    for tube in t.by_name.values():
        if not tube.is_mine:
            continue
        led += 1
        if isinstance(tube.driver, Tasks):
            schedules += len(tube.driver.plans.by_name)
            groups += len(tube.driver.plans.members.open)
            values += int(tube.driver.apart)
            values_bytes += int(tube.driver.plans.values.bytes)
            keys.add(tube.driver, s.n.now_ms)
    shot.gauges |= {
        "tubes": len(t.by_name),
        "tubes_led": led,
        "tube_sessions": len(t.sessions),
        "tubes_homeless": len(homeless(s.n, t)),
        "schedules": schedules,
        "values": values,
        "values_bytes": values_bytes,
        "groups": groups,
        "keys": int(keys.known),
        "keys_waited": int(keys.waited),
        "unique_keys": int(keys.unique),
    }
    shot.key_wait_ms = int(keys.wait_ms)
    shot.counters |= {
        "schedules_fired": int(t.schedules_fired),
        "schedules_late": int(t.schedules_late),
        "groups_made": int(t.groups_made),
        "groups_done": int(t.groups_done),
        "groups_failed": int(t.groups_failed),
        "duplicates": int(t.duplicates),
        "elections_lost": int(t.voter_state.elections_lost),
    }
    won = t.voter_state.won_by
    shot.leader_changes = {
        "silent": won[SILENT],
        "gave_up": won[GAVE_UP],
        "given": won[GIVEN] + int(t.homes_given),
        "again": won[AGAIN],
        "forced": won[FORCED],
        "command": int(t.homes_by_command),
    }


def add_topics(s: Server, shot: Snapshot) -> None:
    """[O1] Topics, as in INFO (O1.8)."""
    topics = s.n.topics
    shot.gauges["topics"] = len(topics.by_topic)
    shot.gauges["topic_subscriptions"] = int(topics.count)
    shot.counters["topic_adds"] = int(topics.adds)
    shot.counters["topic_jobs"] = int(topics.jobs)
    shot.counters["topic_adds_unheard"] = int(topics.unheard)


def add_cluster(s: Server, shot: Snapshot) -> None:
    """The other nodes, and the traffic with them."""
    for member in s.members.alive():
        name = member.node_id.decode()
        shot.nodes.append((name, bool(member.is_linked)))
        peer = s.n.peers[member.slot]
        shot.moves.append((name, int(peer.asked), int(peer.sent), int(peer.taken)))
    if s.bus is None:
        return
    figures = s.bus.figures
    shot.gauges["bus_links"] = len(s.bus.by_slot)
    shot.gauges["bus_waiting_bytes"] = int(s.bus.waiting_bytes())
    shot.counters["bus_input_bytes"] = int(figures.in_bytes)
    shot.counters["bus_output_bytes"] = int(figures.out_bytes)
    for way, counts in (("in", figures.in_messages), ("out", figures.out_messages)):
        for kind, count in counts.items():
            shot.bus.append((way, kind.__name__.lower(), count))


def resident_bytes() -> int:
    """Resident memory of this process; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


# ---- Families of metrics, made in the listener's thread (SPEC O1.4)


def families(shot: Snapshot) -> list[Family]:
    """[O1] All metrics of the node, in a fixed order (O1.4)."""
    return [
        *of_queues(shot),
        *of_tenants(shot),
        *of_causes(shot),
        *of_times(shot),
        *of_memory(shot),
        *of_cluster(shot),
        *of_tubes(shot),
        *of_node(shot),
    ]


def of_queues(shot: Snapshot) -> list[Family]:
    """By queue; the rest is `other` (O1.4)."""
    jobs = Family("tuque_queue_jobs", GAUGE, "Jobs by queue and state")
    oldest = Family(
        "tuque_queue_oldest_ready_seconds", GAUGE, "Time since the oldest queued job was due"
    )
    counters = [Family(name, COUNTER, text) for name, text, _ in BY_QUEUE]
    for name, level, counts in shot.queues:
        queue = shown(name)
        add_level(jobs, level, queue)
        oldest.add(level[3] / 1_000, queue=queue)
        add_counts(counters, counts, queue)
    add_level(jobs, shot.other_level, OTHER)
    add_counts(counters, shot.other_counts, OTHER)
    return [jobs, oldest, *counters]


def of_tenants(shot: Snapshot) -> list[Family]:
    """[N11] By tenant (N11.6); nothing on a node without tenants."""
    if not shot.tenants:
        return []
    held = {
        "connections": Family("tuque_tenant_connections", GAUGE, "Connections of its users"),
        "queues": Family("tuque_tenant_queues", GAUGE, "Its queues and tubes on this node"),
        "jobs": Family("tuque_tenant_jobs", GAUGE, "Copies of its jobs on this node"),
        "bytes": Family("tuque_tenant_bytes", GAUGE, "Bytes of the bodies of these"),
    }
    refused = Family("tuque_tenant_refused", COUNTER, "Commands refused by a quota")
    for name, counts, count in shot.tenants:
        for what, family in held.items():
            family.add(counts[what], tenant=name)
        refused.add(count, tenant=name)
    return [*held.values(), refused]


def add_level(jobs: Family, level: Sequence[int], queue: str) -> None:
    """Jobs of one queue by state."""
    for state, count in zip(STATES, level, strict=False):
        jobs.add(count, queue=queue, state=state)


def add_counts(counters: list[Family], counts: Sequence[int], queue: str) -> None:
    """Counters of one queue."""
    for i, counter in enumerate(counters):
        divisor = BY_QUEUE[i][2]
        counter.add(counts[i] if divisor == 1 else counts[i] / divisor, queue=queue)


def of_causes(shot: Snapshot) -> list[Family]:
    """Why jobs were put back, or given up, on the whole node."""
    back = Family("tuque_jobs_requeued", COUNTER, "Jobs put back into their queue, by cause")
    for cause, count in shot.put_back.items():
        back.add(count, cause=cause)
    dead = Family("tuque_jobs_dead", COUNTER, "Jobs that became dead letters, by reason")
    causes = ("failed", "crashed", "timeout", "expired", "unstarted", "deadletter")
    for cause in dict.fromkeys((*causes, *shot.died)):
        dead.add(shot.died.get(cause, 0), reason=cause)
    return [back, dead]


def of_times(shot: Snapshot) -> list[Family]:
    """Histograms."""
    adds = Family("tuque_add_seconds", HISTOGRAM, "From ADDJOB to its reply, by copies")
    for copies, buckets, total in shot.adds:
        adds.add_histogram(buckets, MS_BOUNDS, total / 1_000, copies=copies)
    waits = Family("tuque_wait_seconds", HISTOGRAM, "From due to the first delivery")
    waits.add_histogram(shot.waits[0], MS_BOUNDS, shot.waits[1] / 1_000)
    works = Family("tuque_work_seconds", HISTOGRAM, "From the last delivery to the ack")
    works.add_histogram(shot.works[0], MS_BOUNDS, shot.works[1] / 1_000)
    turns = Family("tuque_loop_turn_seconds", HISTOGRAM, "Turns of the loop, without its sleep")
    turns.add_histogram(shot.turns[0], FINE_BOUNDS, shot.turns[1] / 10_000)
    lag = Family("tuque_loop_lag_seconds", GAUGE, "Longest turn since the last scrape")
    lag.add(shot.turn_us_max / 1_000_000)
    found = [adds, waits, works, turns, lag]
    if shot.syncs is not None:
        syncs = Family("tuque_journal_fsync_seconds", HISTOGRAM, "Times of fsync of the journal")
        found.append(syncs.add_histogram(shot.syncs[0], FINE_BOUNDS, shot.syncs[1] / 10_000))
    return found


def of_memory(shot: Snapshot) -> list[Family]:
    """[O1] The memory account: the classes add up to the memory used (O1.5)."""
    memory = Family("tuque_memory_bytes", GAUGE, "Memory used, by class")
    for kind, size in shot.memory.items():
        memory.add(size, **{"class": kind})
    return [memory]


def of_cluster(shot: Snapshot) -> list[Family]:
    """Other nodes, and the bus."""
    nodes = Family("tuque_node_up", GAUGE, "1: there is a link to that node")
    for node, is_up in shot.nodes:
        nodes.add(int(is_up), node=node)
    messages = Family("tuque_bus_messages", COUNTER, "Messages of the bus, by kind and direction")
    for way, kind, count in shot.bus:
        messages.add(count, type=kind, dir=way)
    size = Family("tuque_bus_bytes", COUNTER, "Bytes of the bus, by direction")
    for way, name in (("in", "bus_input_bytes"), ("out", "bus_output_bytes")):
        if name in shot.counters:
            size.add(shot.counters[name], dir=way)
    moves = Family("tuque_federation_jobs", COUNTER, "Jobs between this node and that one")
    for node, asked, sent, taken in shot.moves:
        for way, count in (("asked", asked), ("sent", sent), ("taken", taken)):
            moves.add(count, node=node, way=way)
    return [nodes, messages, size, moves]


def of_tubes(shot: Snapshot) -> list[Family]:
    """[O1] Changes of leaders by reason, and waits for keys (O1.8)."""
    changes = Family("tuque_leader_changes", COUNTER, "Tubes that this node leads now, by reason")
    for reason, count in shot.leader_changes.items():
        changes.add(count, reason=reason)
    waits = Family("tuque_keys_wait_seconds", GAUGE, "Longest wait for a limit or rate by now")
    if "keys" in shot.gauges:
        waits.add(shot.key_wait_ms / 1_000)
    return [changes, waits]


def of_node(shot: Snapshot) -> list[Family]:
    """What the node has one of."""
    info = Family("tuque_info", GAUGE, "The version of the node").add(1, version=shot.version)
    cpu = Family("tuque_cpu_seconds", COUNTER, "Processor time of the process")
    cpu.add(shot.counters.get("cpu_ms", 0) / 1_000)
    gauges = [
        Family(f"tuque_{name}", GAUGE, text).add(shot.gauges[name])
        for name, text in GAUGES.items()
        if name in shot.gauges
    ]
    counters = [
        Family(f"tuque_{name}", COUNTER, text).add(shot.counters[name])
        for name, text in COUNTERS.items()
        if name in shot.counters
    ]
    return [info, cpu, *gauges, *counters]
