"""The node's figures at one moment, as plain numbers, taken in the loop's thread (SPEC O1.3).

Its cost depends on the number of watched queues, not on those of jobs or queues.
"""

from __future__ import annotations

import os
import resource
from typing import final

from tuque.core.model.stats import NOBODY, PUT_BACK
from tuque.core.repair.node_loss import repair_left
from tuque.server.figures.watch import level_of
from tuque.server.rights.tenant import connections, owned
from tuque.server.state.state import Server
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
        jobs, size = owned(s, tenant.name)
        held = {
            "connections": counts.get(tenant.name, 0),
            "queues": int(owner.queues),
            "jobs": jobs,
            "bytes": size,
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
    n = s.n
    shot.memory = {
        "base": int(n.base_bytes),
        "jobs": int(n.job_bytes),
        "queues": int(n.queue_bytes),
        "leases": int(n.leases.bytes),
        "waiting": int(n.wait_bytes),
        "tubes": int(n.policy.bytes_used) if n.policy is not None else 0,
        "work": int(n.life.bytes_used()),
        "staged": int(n.staging.bytes),
        "keys": int(n.keys.bytes_used()),
        "tombstones": int(n.tombs.bytes_used()),
        "clients": int(n.other_bytes),
    }


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
    if n.policy is not None:
        t = tubes_of(n)
        add_tubes(s, t, shot)
    add_topics(s, shot)
    if s.eventlog is not None and n.events is not None:
        shot.counters["events_dropped"] = int(n.events.dropped)


def add_tubes(s: Server, t: Tubes, shot: Snapshot) -> None:
    """[O1] Tubes, and what those of type tasks have, as in INFO (O1.8)."""
    keys = KeyTotals()
    led = schedules = groups = 0
    for tube in t.by_name.values():
        if not tube.is_mine:
            continue
        led += 1
        if isinstance(tube.driver, Tasks):
            schedules += len(tube.driver.plans.by_name)
            groups += len(tube.driver.plans.members.open)
            keys.add(tube.driver, s.n.now_ms)
    shot.gauges |= {
        "tubes": len(t.by_name),
        "tubes_led": led,
        "tube_sessions": len(t.sessions),
        "tubes_homeless": len(homeless(s.n, t)),
        "schedules": schedules,
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
        "elections_lost": int(t.ballots.elections_lost),
    }
    won = t.ballots.won_by
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
