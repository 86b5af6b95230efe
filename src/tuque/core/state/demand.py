"""What is known of a queue beyond this node: who sends its jobs, who wants them (SPEC F).

Plain data with its arithmetic. A queue has such a record only while other nodes matter to it;
core/federation/request.py decides when to ask or give.
"""

from typing import Final, final

from mypy_extensions import i64

SOURCE_MS: Final = 5_000  # how long a node that sent jobs is a source (F1.3)
BUCKET_MS: Final = 1_000  # the import rate covers the last one to two of these
LINGER_MS: Final = 200  # how long a request outlives the last waiting client
COUNT_LOW: Final = 5
COUNT_HIGH: Final = 100


@final
class Wish:
    """A pending request of one node for jobs, at its sender or its receiver."""

    def __init__(self, count: i64, until_ms: i64, is_waiting: bool) -> None:
        self.count = count
        self.until_ms = until_ms
        self.is_waiting = is_waiting  # clients wait; else the queue ran empty


@final
class Demand:
    """Sources, wishes and imports of one queue. Nodes are given as slots."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.wishes: dict[int, Wish] = {}  # of other nodes, kept here
        self.asked: dict[int, Wish] = {}  # of this node, kept there
        self.sources: dict[int, int] = {}  # when they last sent jobs, ms
        self.new_ms: i64 = 0  # start of the current bucket
        self.new_count: i64 = 0
        self.old_ms: i64 = 0
        self.old_count: i64 = 0
        self.asked_ms: i64 = 0  # when nodes were last asked
        self.step_ms: i64 = 0  # pause before they are asked again
        self.idle_ms: i64 = 0  # since when no client waits here; 0: one does
        self.poll_ms: i64 = 0  # when a client last polled in vain
        self.lack: i64 = 1  # how many jobs it lacked
        self.seen_ms: i64 = 0  # when a client here last polled, or got a job
        self.look_ms: i64 = 0  # its next instant in n.looks; 0: none

    def count_imports(self, now_ms: i64, count: i64) -> None:
        """Count imported jobs (F3.4)."""
        if now_ms - self.new_ms > BUCKET_MS:
            self.old_ms = self.new_ms
            self.old_count = self.new_count
            self.new_ms = now_ms
            self.new_count = 0
        self.new_count += count

    def rate(self, now_ms: i64) -> i64:
        """Jobs imported per second; 0 if none came for 5 s."""
        if self.new_ms == 0 or now_ms - self.new_ms > SOURCE_MS:
            return 0
        count = self.new_count
        start_ms = self.new_ms
        if self.old_ms > 0 and now_ms - self.old_ms <= SOURCE_MS:
            count += self.old_count
            start_ms = self.old_ms
        span_ms = now_ms - start_ms
        if span_ms < 50:
            span_ms = 50
        return (count * 1000 + span_ms - 1) // span_ms

    def drop_sources(self, now_ms: i64) -> None:
        """Forget nodes that sent nothing for 5 s."""
        for slot, last_ms in list(self.sources.items()):
            if now_ms - last_ms > SOURCE_MS:
                del self.sources[slot]

    def share(self, now_ms: i64, wanted: i64) -> i64:
        """Jobs to ask of each source: rate / sources, within 5..100 (F1.3)."""
        count: i64 = len(self.sources)
        count = self.rate(now_ms) // count if count > 0 else 0
        if count < wanted:
            count = wanted
        if count < COUNT_LOW:
            return COUNT_LOW
        return count if count < COUNT_HIGH else COUNT_HIGH

    def is_over(self, now_ms: i64) -> bool:
        """Whether the record can be dropped."""
        return len(self.wishes) == 0 and len(self.asked) == 0 and self.rate(now_ms) == 0
