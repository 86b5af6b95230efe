"""One other node as this one knows it, and its line in CLUSTER NODES (SPEC K1, K3, K8)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.msgs.bus import Gossip, Heartbeat

# flags of a node in heartbeats
LEAVING: Final = 1
LOADING: Final = 2
SUSPECTED: Final = 4
FAILED: Final = 8
TWINS: Final = 16  # two nodes use its id
FAILING: Final = 32  # its journal cannot be written (K4.5)

PRIORITY_UP: Final = 1
PRIORITY_NO_LINK: Final = 5
PRIORITY_SUSPECTED: Final = 10
PRIORITY_AVOID: Final = 100

DIAL_MIN_MS: Final = 100
DIAL_MAX_MS: Final = 5_000  # sooner it replaces the link of the other end while a disk is slow
STEADY_MS: Final = 1_000  # a link that ends sooner counts as a failed dial


@final
class Member:
    """Another node. Instants are ms on this node's clock."""

    def __init__(self, node_id: bytes, slot: i64, now_ms: i64) -> None:
        self.node_id = node_id
        self.slot = slot
        self.host = ""
        self.port: i64 = 0
        self.bus_port: i64 = 0
        self.life: i64 = 0  # of its incarnation; 0: never linked
        self.mark = b""
        self.number: i64 = 0  # odd: forgotten (K6.1)
        self.is_linked = False
        self.by_lower = False  # the node with the lower id dialled the link
        self.is_leaving = False
        self.is_loading = False
        self.is_suspected = False
        self.is_failed = False
        self.is_late = False  # it was silent for 2 s (K4.3)
        self.duplicate_ms: i64 = 0  # when two nodes with this id were seen last (K1.3)
        self.has_rival = False  # another with its id was refused since its last heartbeat
        self.rival: Gossip | None = None  # where that one is
        self.refused_ms: i64 = 0  # when another incarnation of it was refused
        self.heard_ms: i64 = now_ms  # its latest heartbeat, or when it became known
        self.said_ms: i64 = 0  # this node's first unanswered heartbeat
        self.round: i64 = 0  # of its latest heartbeat
        self.timeout_ms: i64 = 0  # its `cluster-node-timeout`, as it told; 0: not known
        self.dial_ms: i64 = now_ms  # earliest next dial
        self.backoff_ms: i64 = DIAL_MIN_MS
        self.linked_ms: i64 = 0  # since when the latest link is up
        self.reports: dict[bytes, int] = {}  # who suspects it, since when

    def hear(self, m: Heartbeat, now_ms: i64) -> None:
        """[K4] A heartbeat came: it is there (K4.1)."""
        self.heard_ms = now_ms
        self.said_ms = 0
        self.is_late = False
        self.round = m.round
        self.is_leaving = m.flags & LEAVING != 0
        self.is_loading = m.flags & LOADING != 0
        self.is_suspected = False
        self.is_failed = False
        if m.timeout > 0:
            self.timeout_ms = m.timeout

    def is_forgotten(self) -> bool:
        """Whether it was removed from the cluster."""
        return self.number % 2 == 1

    def is_reachable(self) -> bool:
        """Whether it can be given copies (K4.2)."""
        return self.can_answer() and not self.is_leaving

    def can_answer(self) -> bool:
        """Whether it can be asked for its copies, even while it leaves."""
        return self.is_linked and not (
            self.is_suspected
            or self.is_failed
            or self.is_loading
            or self.is_forgotten()
            or self.duplicate_ms != 0
        )

    def is_expected(self) -> bool:
        """Whether it can take copies now or soon: it may be restarting or loading (K4.4)."""
        return not (
            self.is_suspected
            or self.is_failed
            or self.is_leaving
            or self.is_forgotten()
            or self.duplicate_ms != 0
        )

    def flags(self) -> i64:
        """Its flags for heartbeats to others."""
        bits: i64 = 0
        if self.is_leaving:
            bits |= LEAVING
        if self.is_suspected:
            bits |= SUSPECTED
        if self.is_failed:
            bits |= FAILED
        if self.duplicate_ms != 0:
            bits |= TWINS
        return bits

    def priority(self) -> i64:
        """[K8] Its priority in HELLO; a higher one means that clients should avoid it (K8.1)."""
        if self.is_failed or self.is_leaving or self.duplicate_ms != 0:
            return PRIORITY_AVOID
        if self.is_suspected:
            return PRIORITY_SUSPECTED
        return PRIORITY_UP if self.is_linked else PRIORITY_NO_LINK

    def line(self, fails: bool = False, duplicates: bool = False) -> str:
        """Its line in CLUSTER NODES; `fails`: its journal cannot be written (K4.5).

        `duplicates`: whether to show a conflict (K1.3).
        """
        words: list[str] = []
        if self.is_failed:
            words.append("fail")
        elif self.is_suspected:
            words.append("fail?")
        if not self.host:
            words.append("noaddr")
        if self.is_leaving:
            words.append("leaving")
        if fails:
            words.append("journal-fails")
        if duplicates and self.duplicate_ms != 0:
            words.append("conflict")
        flags = ",".join(words) if len(words) > 0 else "noflags"
        host = f"[{self.host}]" if ":" in self.host else self.host
        linked = "connected" if self.is_linked else "disconnected"
        return (
            f"{self.node_id.decode()} {host}:{self.port} {flags} "
            f"{self.said_ms} {self.heard_ms} {linked}\n"
        )
