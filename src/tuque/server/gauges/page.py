"""The node's metrics as families, made in the listener's thread (SPEC O1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tuque.core.model.stats import BOUNDS
from tuque.metrics.text import COUNTER, GAUGE, HISTOGRAM, OTHER, Family, shown
from tuque.server.gauges.snapshot import Snapshot

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
    ("tuque_queue_dead", "Jobs given up", 1),
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
    "leaving": "1: the node leaves its cluster",
    "conflict": "1: another node has this node's id",
    "start_time_seconds": "When the node started, in unix time",
    "tubes": "Tubes known",
    "tubes_led": "Tubes that this node leads",
    "tube_sessions": "Sessions that may hold tasks",
    "tubes_homeless": "Tubes whose leader this node does not reach, or that has no right to lead",
    "schedules": "Schedules that this node leads",
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
    dead = Family("tuque_jobs_dead", COUNTER, "Jobs given up, by reason")
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
