"""INFO and HISTORY: the figures of the server, now and in the past (SPEC S8, O3).

In INFO Disque's sections and fields come first, in its order, then ours.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections.abc import Callable
from typing import Final

from tuque import __version__
from tuque.core.leases.leases import lease_figures
from tuque.core.model.stats import BOUNDS, CAUSES
from tuque.core.node.tables import held_by
from tuque.core.queues.procedures import memory_level
from tuque.core.staged.stage import staging_figures
from tuque.core.topics import topic_figures
from tuque.server.access.tenant import connections
from tuque.server.admin.cluster import bus_section, cluster_section
from tuque.server.commands.tube_admin import tube_figures
from tuque.server.net.system import resident_bytes
from tuque.server.net.tls_acceptor import Handshakes
from tuque.server.observe.rings import Points
from tuque.server.replies.errors import load_share
from tuque.server.state.client import Client
from tuque.server.state.server import Server
from tuque.server.users.tenants import Tenant
from tuque.wire.commands.arguments import FIELDS, ArgError, Misuse, history_args
from tuque.wire.proto.resp import NULL_ARRAY

DISQUE_VERSION: Final = "1.0-rc1"  # whose commands we speak

TITLES: Final = {"cpu": "CPU"}

JOURNAL_FIELDS: Final = (  # in Disque's order; the journal fills in its own
    "aof_current_size",
    "aof_base_size",
    "aof_pending_rewrite",
    "aof_buffer_length",
    "aof_rewrite_buffer_length",
    "aof_pending_bio_fsync",
    "aof_delayed_fsync",
)

TENANTS_SHOWN: Final = 100
Fields = dict[str, object]


SECTION_WORK: Final = 20  # units for the fields of one section (L2.1)

NO_SUMS: Final = b"NOPERM the points of the whole node are not for users of a tenant: name a QUEUE"


def cmd_info(s: Server, c: Client, args: list[bytes]) -> None:
    """[S8.1] INFO [section]."""
    if len(args) > 2:
        raise Misuse(args[2])
    wanted = args[1].decode("latin-1").lower() if len(args) == 2 else "default"
    texts = []
    for name, fields_of in SECTIONS.items():
        if c.is_tenant() and name not in ("server", "tenants"):
            continue  # N10.5
        in_default = wanted == "default" and name != "commandstats"
        if wanted in (name, "all", "everything") or in_default:
            s.n.work += SECTION_WORK
            fields = tenants_of(s, c) if name == "tenants" else fields_of(s)
            texts.append(section(name, shown_to(c, fields)))
    c.reply("\r\n".join(texts))


def shown_to(c: Client, fields: Fields) -> Fields:
    """[N2] The fields without names that the client's user may not see (N2.5)."""
    if "tubes_homeless_names" in fields and not c.sees_all():
        fields["tubes_homeless_names"] = ""
    return fields


def users(s: Server) -> Fields:
    """[N7] Users and what was denied (N7.3)."""
    acl = s.acl
    return {
        "users": len(acl.by_name),
        "users_digest": acl.digest(),
        "login_required": int(acl.newcomer is None),
        "failed_logins": int(acl.denials.logins),
        "late_logins": int(acl.denials.late),
        "denied_commands": int(acl.denials.commands),
        "denied_queues": int(acl.denials.queues),
        **audit_of(s),
    }


def tenants(s: Server) -> Fields:
    """[N11] What each tenant has at this node, and may have (N11.5); the first of them."""
    found: Fields = {"tenants": len(s.acl.tenants)}
    counts = connections(s)
    for tenant in list(s.acl.tenants.values())[:TENANTS_SHOWN]:
        found["tenant_" + tenant.name.decode()] = tenant_line(s, tenant, counts)
    s.n.work += len(found) + (len(s.clients) + len(s.wired)) // 10
    return found


def tenants_of(s: Server, c: Client) -> Fields:
    """[N10] The same, for the client's user: its own tenant only (N10.5)."""
    if c.user is None or c.user.home is None:
        return tenants(s)
    return {"tenant": tenant_line(s, c.user.home, connections(s))}


def tenant_line(s: Server, tenant: Tenant, counts: dict[bytes, int]) -> str:
    """Users, connections, queues, jobs, bytes and refusals; behind a / what it may have."""
    owner = s.n.book.owners.get(tenant.name)
    jobs, held = held_by(s.n, tenant.name)
    figures = {
        "users": (int(tenant.users), 0),
        "connections": (counts.get(tenant.name, 0), int(tenant.connections)),
        "queues": (0 if owner is None else int(owner.queues), 0),
        "jobs": (int(jobs), int(tenant.jobs)),
        "bytes": (int(held), int(tenant.bytes)),
        "refused": (int(tenant.refused), 0),
    }
    words = [
        f"{name}={now}/{most}" if most else f"{name}={now}" for name, (now, most) in figures.items()
    ]
    return ",".join(words) + (f",adds_per_second=/{tenant.adds}" if tenant.adds else "")


def audit_of(s: Server) -> Fields:
    """[N9] How the audit is (N9.5)."""
    audit = s.audit
    return {
        "audit_enabled": int(audit is not None),
        "audit_lines": 0 if audit is None else audit.written,
        "audit_dropped": 0 if audit is None else audit.dropped + audit.lost,
        "audit_error": "" if audit is None else audit.error,
    }


def section(name: str, fields: Fields) -> str:
    """One section: its title, a line for each field."""
    lines = [f"{key}:{value}\r\n" for key, value in fields.items()]
    return f"# {TITLES.get(name, name.title())}\r\n" + "".join(lines)


def server(s: Server) -> Fields:
    """The server and its uptime."""
    up_s = int(s.n.now_ms - s.start_ms) // 1000
    return {
        "disque_version": DISQUE_VERSION,
        "disque_git_sha1": "00000000",
        "disque_git_dirty": 0,
        "disque_build_id": "0",
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "arch_bits": 64 if sys.maxsize > 1 << 32 else 32,
        "multiplexing_api": "epoll" if sys.platform == "linux" else "select",
        "gcc_version": platform.python_compiler().rpartition(" ")[2],
        "process_id": os.getpid(),
        "run_id": s.run_id,
        "tcp_port": s.cfg.port,
        "iproto_port": s.cfg.iproto_port,
        "uptime_in_seconds": up_s,
        "uptime_in_days": up_s // 86400,
        "hz": s.cfg.hz,
        "executable": os.path.abspath(sys.argv[0] or sys.executable),
        "config_file": s.cfg.config_file,
        "tuque_version": __version__,
        "python_version": platform.python_version(),
        "node_id": s.n.node_id.decode(),
        "is_leaving": int(s.n.is_leaving),
    }


def clients(s: Server) -> Fields:
    """Connections."""
    everyone = s.clients.values()
    found: Fields = {
        "connected_clients": len(s.clients),
        "client_longest_output_list": max(
            [len(c.wire) + len(c.gated) + len(c.out) for c in everyone], default=0
        ),
        "client_biggest_input_buf": max(
            [c.todo_bytes + c.reader.held_bytes() for c in everyone], default=0
        ),
        "blocked_clients": s.blocked,
        "iproto_clients": len(s.wired),
        "iproto_blocked_calls": len(s.takes) + sum([len(w.puts) for w in s.wired.values()]),
        "maxclients": s.cfg.maxclients,
        "evicted_clients": s.figures.evicted,
        "closed_at_output_limit": s.figures.output_closed,
        "closed_before_login": s.figures.strangers_closed,
        "closed_at_command_deadline": s.figures.deadline_closed,
    }
    return found if s.handshakes is None else found | handshakes(s.handshakes)


def handshakes(counts: Handshakes) -> Fields:
    """[X4] Handshakes of TLS, and the certificate (X2.4, X4.3)."""
    return {
        "tls_handshakes_open": counts.open,
        "tls_handshakes_done": counts.done,
        "tls_handshakes_failed": counts.failed,
        "tls_handshakes_late": counts.late,
        "tls_handshakes_crowded": counts.crowded,
        **counts.told(),
    }


def memory(s: Server) -> Fields:
    """Memory of the process, in bytes."""
    used = int(s.n.used_bytes())
    s.used_peak_bytes = max(s.used_peak_bytes, used)
    rss = resident_bytes()
    limit = int(s.n.limits.memory_bytes)
    return {
        "used_memory": used,
        "used_memory_human": human(used),
        "used_memory_rss": rss,
        "used_memory_peak": s.used_peak_bytes,
        "used_memory_peak_human": human(s.used_peak_bytes),
        "mem_fragmentation_ratio": f"{rss / used if used else 0:.2f}",
        "mem_allocator": "pymalloc",
        "maxmemory": limit,
        "maxmemory_human": human(limit),
        "memory_level": memory_level(s.n),
        "maxmemory_clients": int(s.n.limits.clients_bytes),
        "mem_not_counted_for_evict": used - int(s.n.counted_bytes()),
        "used_memory_jobs": int(s.n.job_bytes),
        "used_memory_clients": int(s.n.held_by_clients()),
        **{
            f"used_memory_{name}": size
            for name, size in s.n.memory_classes().items()
            if name != "jobs"
        },
    }


def jobs(s: Server) -> Fields:
    """Jobs on this node, and counters since the start."""
    n = s.n
    return {
        "registered_jobs": len(n.jobs),
        "queued_jobs": sum([int(q.length) for q in n.queues.values()]),
        "deliveries": n.deliveries,
        "redeliveries": n.redeliveries,
        "requeues": n.requeues,
        "nacks": n.nacks,
        "dead_letters": n.dead_letters,
        "runs": n.life.runs,
        "failures": n.life.failures,
        "crashes": n.life.crashes,
        "cancelled": n.life.cancelled,
        "results": len(n.life.kept),
        "results_bytes": n.life.kept_bytes,
        "results_body_bytes": n.life.body_bytes,
        "results_dropped": n.life.kept_dropped,
        "results_too_large": n.life.results_large,
        "results_emptied": n.life.results_thinned,
        "outcomes_conflicting": n.life.conflicts,
        "dead": n.life.letter_count(),
        "dead_bytes": n.life.dead_bytes,
        "dead_dropped": n.life.dead_dropped,
        "dead_emptied": n.life.details_thinned,
        "replayed": n.life.replayed,
    }


def queues(s: Server) -> Fields:
    """Queues on this node."""
    return {"registered_queues": len(s.n.queues)}


def leases(s: Server) -> Fields:
    """[Y10.2] Groups that take jobs in batches."""
    return lease_figures(s.n)


def topics(s: Server) -> Fields:
    """[T62] Topics and their subscriptions (T62.9)."""
    return topic_figures(s.n)


def staging(s: Server) -> Fields:
    """[Z7.1] Staged jobs, publications and keys."""
    return staging_figures(s.n)


def tubes(s: Server) -> Fields:
    """[T11] Tubes, their tasks, holders and waiting clients (T11.5)."""
    return tube_figures(s)


def persistence(s: Server) -> Fields:
    """The journal: Disque's names, then our own."""
    fields: Fields = {
        "loading": int(s.is_loading),
        "aof_enabled": 0,
        "aof_state": "off",
        "aof_rewrite_in_progress": 0,
        "aof_rewrite_scheduled": 0,
        "aof_last_rewrite_time_sec": -1,
        "aof_current_rewrite_time_sec": -1,
        "aof_last_bgrewrite_status": "ok",
        "aof_last_write_status": "ok",
    }
    if s.is_loading:
        fields.update(loading(s))
    elif s.committer is not None:
        fields.update(dict.fromkeys(JOURNAL_FIELDS, 0))
        fields.update(s.committer.info())
    return fields


def loading(s: Server) -> Fields:
    """Progress of the journal's load; times in s."""
    loader = None if s.committer is None else s.committer.loaded
    total, done = (0, 0) if loader is None else (int(loader.total_bytes), int(loader.loaded_bytes))
    spent_ms = max(0, int(s.n.now_ms - s.start_ms))
    share = load_share(s.committer)
    return {
        "loading_start_time": s.start_ms // 1000,
        "loading_total_bytes": total,
        "loading_loaded_bytes": done,
        "loading_loaded_perc": f"{share:.2f}",
        "loading_eta_seconds": int(spent_ms * (100 - share) / share / 1000) if share else -1,
    }


def stats(s: Server) -> Fields:
    """Traffic."""
    figures = s.figures
    ops, in_bytes, out_bytes = figures.rates()
    return {
        "total_connections_received": figures.connections,
        "total_commands_processed": figures.commands,
        "instantaneous_ops_per_sec": ops,
        "total_net_input_bytes": figures.in_bytes,
        "total_net_output_bytes": figures.out_bytes,
        "instantaneous_input_kbps": f"{in_bytes / 1024:.2f}",
        "instantaneous_output_kbps": f"{out_bytes / 1024:.2f}",
        "rejected_connections": figures.rejected,
        "protocol_errors": figures.broken,
        "internal_errors": s.bugs.count,
        "latest_fork_usec": 0,
        "turns": figures.turns,
    }


def cpu(s: Server) -> Fields:
    """Processor time in s."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "used_cpu_sys": f"{own.ru_stime:.2f}",
        "used_cpu_user": f"{own.ru_utime:.2f}",
        "used_cpu_sys_children": f"{children.ru_stime:.2f}",
        "used_cpu_user_children": f"{children.ru_utime:.2f}",
    }


def commandstats(s: Server) -> Fields:
    """Calls and time per command."""
    fields: Fields = {}
    for command in s.table.values():
        if command.calls > 0:
            spent_us = command.usec_ns // 1000
            each_us = int(command.usec_ns) / 1000 / int(command.calls)
            fields[f"cmdstat_{command.name.lower()}"] = (
                f"calls={command.calls},usec={spent_us},usec_per_call={each_us:.2f}"
            )
    return fields


def ledger(s: Server) -> Fields:
    """[G9.2] Sources and exits of jobs; a `balance` other than 0 is a bug."""
    fields: Fields = dict(zip(CAUSES, s.n.ledger.counts(), strict=True))
    fields["live"] = len(s.n.jobs)
    fields["balance"] = s.n.ledger.balance(len(s.n.jobs))
    return fields


def events(s: Server) -> Fields:
    """[E1.3] The event stream."""
    fields: Fields = {"events_enabled": int(s.eventlog is not None)}
    if s.eventlog is not None and s.n.events is not None:
        fields.update(s.eventlog.info(s.n.events))
    return fields


SECTIONS: Final[dict[str, Callable[[Server], Fields]]] = {
    "server": server,
    "clients": clients,
    "memory": memory,
    "jobs": jobs,
    "queues": queues,
    "persistence": persistence,
    "stats": stats,
    "cpu": cpu,
    "commandstats": commandstats,
    "ledger": ledger,
    "events": events,
    "leases": leases,
    "staging": staging,
    "topics": topics,
    "tubes": tubes,
    "users": users,
    "tenants": tenants,
    "cluster": cluster_section,
    "bus": bus_section,
}


def human(size: int) -> str:
    """Bytes with a one-letter unit."""
    value = float(size)
    for unit in ("B", "K", "M", "G"):
        if value < 1024:
            return f"{size}B" if unit == "B" else f"{value:.2f}{unit}"
        value /= 1024
    return f"{value:.2f}T"


# ---- HISTORY: points of the past (SPEC O3)


def cmd_history(s: Server, c: Client, args: list[bytes]) -> None:
    """[O3] HISTORY 5s|1m [QUEUE name | TIMES what] [FROM ms] [COUNT n] [field ...] | QUEUES."""
    asked = history_args(args)
    if asked.step_ms == 0:
        c.reply(sorted(c.named(name) for name in with_points(s) if c.sees(name)))  # O3.5
        return
    if asked.queue is None and c.is_tenant():
        raise ArgError(NO_SUMS)  # N10.5
    points: Points | None = s.watch.points
    names: list[object] = [FIELDS[field] for field in asked.fields if asked.times == b""]
    if asked.times != b"":
        points = s.watch.waits if asked.times == b"wait" else s.watch.works
        names = list(BOUNDS)  # O3.7
    if asked.queue is not None:
        points = with_points(s).get(asked.queue)  # O3.4
    if points is None:
        c.reply(NULL_ARRAY)
        return
    rows = points.ring(asked.step_ms).points(asked.from_ms, asked.count, asked.fields)
    s.n.work += 10 + len(rows) * (len(asked.fields) + 1) // 10
    c.reply([int(asked.step_ms), names, rows])


def with_points(s: Server) -> dict[bytes, Points]:
    """The queues that have points: the first `rings-queues` of those watched."""
    found: dict[bytes, Points] = {}
    for name, watched in s.watch.watched.items():
        if len(found) >= s.cfg.rings_queues:
            break
        found[name] = watched.points
    return found
