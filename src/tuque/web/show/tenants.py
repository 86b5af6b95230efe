"""Tenants over the cluster, from what each node says of them in INFO (SPEC N11.5)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tuque.clusterview.nodes import NodeFacts

HEAD: Final = "tenant_"


class Tenant(msgspec.Struct):
    """What one tenant has; jobs and bytes count each copy."""

    name: str
    users: int = 0
    connections: int = 0
    queues: int = 0
    jobs: int = 0
    bytes: int = 0
    refused: int = 0  # commands, by a quota
    share: float = -1.0  # of the quota that is used most at any node, in %; below 0: it has none
    fullest: str = ""  # which quota, and where


def tenants_of(facts: Iterable[NodeFacts]) -> list[Tenant]:
    """The tenants that the nodes name, by name."""
    found: dict[str, Tenant] = {}
    for node in facts:
        for key in node.info:
            if key.startswith(HEAD):
                name = key.removeprefix(HEAD)
                add(found.setdefault(name, Tenant(name)), node.id[:8], node.word(key))
    return [found[name] for name in sorted(found)]


def add(tenant: Tenant, node: str, line: str) -> None:
    """Count what a node says: `jobs=2/10,bytes=6`, a quota behind the `/`."""
    said = {}
    for part in line.split(","):
        what, _, figures = part.partition("=")
        now, _, most = figures.partition("/")
        said[what] = int(now) if now.isdigit() else 0
        if now.isdigit() and most.isdigit() and 100 * int(now) / int(most) > tenant.share:
            tenant.share = 100 * int(now) / int(most)
            tenant.fullest = f"{what} at {node}"
    tenant.users = max(tenant.users, said.get("users", 0))
    tenant.queues = max(tenant.queues, said.get("queues", 0))
    tenant.connections += said.get("connections", 0)
    tenant.jobs += said.get("jobs", 0)
    tenant.bytes += said.get("bytes", 0)
    tenant.refused += said.get("refused", 0)
