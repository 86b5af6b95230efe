"""The replies of LEASE INFO and INFO about groups (SPEC Y10). Read only."""

from mypy_extensions import i64

from tuque.core.node.node import Node
from tuque.core.state.lease_groups import Group


def lease_info(n: Node, g: Group) -> dict[str, object]:
    """[Y10] The fields of a group (Y10.1)."""
    queued: i64 = 0
    oldest_ms: i64 = n.now_ms
    for name in g.queues:
        q = n.queues.get(name)
        if q is None or q.policy is not None:
            continue
        queued += q.length
        first = q.first()
        if first is not None:
            oldest_ms = min(oldest_ms, first.ctime_ns // 1_000_000)
    batches: list[object] = []
    for b in g.batches.values():
        batches.append(
            [int(b.seq), int(b.count), int(b.body_bytes), int(b.attempts()), int(b.is_expired)]
        )
    is_live = any(not b.is_expired for b in g.batches.values())
    return {
        "group": g.name,
        "owner": g.owner,
        "epoch": int(g.epoch),
        "queues": list(g.queues),
        "last-seq": int(g.last_seq),
        "acked-seq": int(g.acked_seq),
        "ttl-ms": int(g.ttl_ms),
        "left-ms": max(0, int(g.until_ms - n.now_ms)) if is_live else 0,
        "batches": batches,
        "queued": int(queued),
        "oldest-ms": int(n.now_ms - oldest_ms),
    }


def lease_figures(n: Node) -> dict[str, object]:
    """[Y10] Figures for INFO (Y10.2)."""
    leases = n.leases
    batches: i64 = 0
    jobs: i64 = 0
    for g in n.leases.groups.values():
        for b in g.batches.values():
            batches += 1
            if not b.is_expired:
                jobs += b.count
    return {
        "lease_groups": len(leases.groups),
        "lease_batches": int(batches),
        "lease_jobs": int(jobs),
        "lease_bytes": int(leases.bytes),
        "lease_batches_made": int(leases.batches_made),
        "lease_jobs_taken": int(leases.jobs_leased),
        "lease_batches_expired": int(leases.expired),
    }
