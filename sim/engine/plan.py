"""What happens in one seed: settings and a list of operations.

A plan is data, so that it can be printed, shrunk, kept in a test and run again.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Op(msgspec.Struct):
    """An event at an instant: of a client, an operator, or a fault of a node."""

    at_ms: int
    kind: str
    args: dict[str, Any]


class Plan(msgspec.Struct):
    """A seed's settings and operations. Times are true milliseconds."""

    seed: str
    nodes: int = 3
    chaos_ms: int = 20_000
    policy: str = "off"  # appendfsync; off: no journal
    sync_us: int = 2_000
    memory_bytes: int = 0
    queue_idle_ms: int = 300_000
    node_timeout_ms: int = 2_000
    timeouts_ms: list[int] = []  # of each node, in place of that one
    lease_ms: int = 0  # tube-lease-timeout; 0: as that one
    load_us: int = 5_000  # per step of loading the journal
    opens_early: bool = (
        False  # the bus opens before the load ends: the core allows it, no server does it
    )
    bus_limit_bytes: int = 1 << 20
    sealed: bool = False  # the nodes have a secret
    failover: bool = False  # votes choose the leaders of tubes
    starts_alone: bool = False  # the nodes meet when the plan says so
    asks_all: bool = False  # `failover-disks ask`
    voters: int = 3  # `tube-voters`
    silent_ms: int = 600_000  # after so long a voter is replaced
    delay_us: int = 300  # of the network, median
    client_delay_us: int = 200
    cpu_us: int = 50
    split_rate: float = 0.1
    rates_ppm: list[int] = []
    holes: bool = False
    is_faultless: bool = True
    shift_tasks: int = 2_000  # of all tubes, loaded or unloaded per turn
    check_every: int = 20  # turns between two checks of a node's tables
    faults: list[str] = []  # enabled kinds
    ops: list[Op] = []


def encode(plan: Plan) -> bytes:
    """The plan as JSON."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=1)


def decode(text: bytes) -> Plan:
    """Parse a plan from JSON."""
    return msgspec.json.decode(text, type=Plan)
