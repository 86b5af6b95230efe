"""Figures of the cluster and of the bus, for CLUSTER INFO and INFO (SPEC S6, S8)."""

from __future__ import annotations

from tuque.core.repair.drain import drain_left
from tuque.core.repair.node_loss import repair_left
from tuque.server.state.state import Server

Fields = dict[str, object]


def is_safe_to_stop(s: Server) -> bool:
    """[K7.3] Whether the node is leaving and has handed over everything."""
    return s.n.is_leaving and drain_left(s.n) == 0


def links_over_tls(s: Server) -> int:
    """[B1] How many nodes it is linked with over TLS (B1.8)."""
    if s.bus is None:
        return 0
    return sum(1 for link in s.bus.by_slot.values() if link.is_tls)


def cluster_fields(s: Server) -> Fields:
    """CLUSTER INFO: Disque's fields, then ours."""
    n, bus = s.n, s.bus
    size = int(s.members.size())
    sent = received = sent_bytes = received_bytes = 0
    if bus is not None:
        sent = sum(bus.figures.out_messages.values())
        received = sum(bus.figures.in_messages.values())
        sent_bytes, received_bytes = int(bus.figures.out_bytes), int(bus.figures.in_bytes)
    return {
        "cluster_state": "conflict" if s.conflict else "ok",
        "cluster_known_nodes": size,
        "cluster_reachable_nodes": int(n.reachable_count),
        "cluster_size": size,
        "cluster_stats_messages_sent": sent,
        "cluster_stats_messages_received": received,
        "cluster_stats_bytes_sent": sent_bytes,
        "cluster_stats_bytes_received": received_bytes,
        "cluster_bus_port": int(bus.port) if bus is not None else 0,
        "cluster_tls": "yes" if s.cfg.tls_cluster else "no",
        "cluster_links_tls": links_over_tls(s),
        "cluster_meetings": len(s.members.meetings.going),
        "cluster_meet_error": s.members.meetings.error,
        "cluster_repair_left": int(repair_left(n)),
        "cluster_leaving": "yes" if n.is_leaving else "no",
        "cluster_drain_left": int(drain_left(n)) if n.is_leaving else 0,
        "cluster_safe_to_stop": "yes" if is_safe_to_stop(s) else "no",
    }


def cluster_section(s: Server) -> Fields:
    """INFO cluster."""
    n = s.n
    fields: Fields = {"cluster_enabled": int(s.bus is not None)}
    fields.update(cluster_fields(s))
    fields["cluster_adding"] = len(n.adding)
    fields["cluster_acked_jobs"] = len(n.acked)
    fields["cluster_acks_evicted"] = int(n.acks_evicted)  # M3.1
    fields["cluster_tombstones"] = n.tombs.count()
    fields["standstills"] = int(n.standstills)  # G8.4
    return fields


def bus_section(s: Server) -> Fields:
    """INFO bus: links, and their traffic since the start or RESETSTAT."""
    bus = s.bus
    if bus is None:
        return {"bus_enabled": 0}
    figures = bus.figures
    fields: Fields = {
        "bus_enabled": 1,
        "bus_port": bus.port,
        "bus_links": len(bus.by_slot),
        "bus_handshakes": len(bus.links) - len(bus.by_slot),
        "bus_waiting_bytes": bus.waiting_bytes(),
        "bus_links_without_room": bus.crowded,
        "bus_producers_without_room": len(s.stalled),
        "bus_in_bytes": figures.in_bytes,
        "bus_out_bytes": figures.out_bytes,
        "bus_in_frames": figures.in_frames,
        "bus_out_frames": figures.out_frames,
        "bus_accepted": figures.accepted,
        "bus_dialed": figures.dialed,
        "bus_joined": figures.joined,
        "bus_refused": figures.refused,
        "bus_closed_malformed": figures.malformed,
        "bus_frames_refused": figures.frames_refused,
        "bus_sealed": int(len(bus.secrets) > 0),
        "bus_tls": int(bus.is_tls),
        "bus_links_tls": links_over_tls(s),
        "bus_shut": int(bool(bus.shut)),
        "bus_closed_overfull": figures.overfull,
    }
    for way, counts in (("in", figures.in_messages), ("out", figures.out_messages)):
        for kind, count in sorted((kind.__name__.lower(), count) for kind, count in counts.items()):
            fields[f"bus_{way}_{kind}"] = count
    return fields
