"""A bounded table of what was noted about ids lately (SPEC R2.7, K5.7).

Plain data. An entry leaves in constant time: searching a dict for its oldest entry takes as many
steps as were removed before it.
"""

from collections import deque
from typing import final

from mypy_extensions import i64


@final
class Entry:
    """A set of nodes, and until when it counts, in ms on the node's clock."""

    def __init__(self, nodes: i64, until_ms: i64) -> None:
        self.nodes = nodes
        self.until_ms = until_ms


@final
class Recent:
    """The latest note about each id; at most `most`, then the oldest leave."""

    def __init__(self, most: i64) -> None:
        self.most = most
        self.entries: dict[bytes, Entry] = {}
        self.order: deque[tuple[bytes, Entry]] = deque()  # some are no longer in the table

    def note(self, id: bytes, nodes: i64, until_ms: i64, now_ms: i64) -> None:
        """Keep that about the id; up to two old entries leave. Later calls have later times."""
        entry = Entry(nodes, until_ms)
        self.entries[id] = entry
        self.order.append((id, entry))
        for _ in range(2):
            old_id, old = self.order[0]
            if old.until_ms > now_ms and i64(len(self.order)) <= self.most:
                return
            self.order.popleft()
            if self.entries.get(old_id) is old:
                del self.entries[old_id]

    def nodes_of(self, id: bytes, now_ms: i64) -> i64:
        """The set noted for the id; empty if there is none, or its time is over."""
        entry = self.entries.get(id)
        return entry.nodes if entry is not None and entry.until_ms > now_ms else 0

    def remove(self, id: bytes, nodes: i64) -> None:
        """Take nodes out of the set of the id."""
        entry = self.entries.get(id)
        if entry is not None:
            entry.nodes &= ~nodes

    def pop(self, id: bytes, now_ms: i64) -> bool:
        """Forget the id; whether it was noted, and its time is not over."""
        entry = self.entries.pop(id, None)
        return entry is not None and entry.until_ms > now_ms

    def count(self) -> i64:
        """Number of ids."""
        return len(self.entries)
