"""Judges of topics: a job for each queue or none, subscriptions that converge (SPEC T60, T62)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sim.task_judges.keys import Tasking

TOPIC: Final = b"topic"  # whose queues stay the same
QUEUES: Final = (b"topic a", b"topic b", b"topic c")
OTHER: Final = b"other"  # whose queues come and go


class Published:
    """One TOPIC ADD."""

    def __init__(self) -> None:
        self.ids: list[bytes] = []  # as answered
        self.found: dict[bytes, set[bytes]] = {}  # ids of the jobs that came, by queue


class Publicity:
    """All topics of a seed."""

    def __init__(self, tasking: Tasking) -> None:
        self.tasking = tasking
        self.history = tasking.history
        self.published: dict[bytes, Published] = {}  # by body
        self.is_on = False
        self.is_ready = False  # all three are subscribed

    def new_body(self) -> bytes:
        """A job is about to be published."""
        body = b"{topic %d}" % len(self.published)
        self.published[body] = Published()
        return body

    def on_published(self, body: bytes, reply: object) -> None:
        """TOPIC ADD is answered: an id for each queue (T62.1)."""
        if not isinstance(reply, list):
            return
        self.history.count("jobs published")
        self.published[body].ids = reply
        if len(reply) != len(QUEUES):
            self.tasking.find("topic-part", f"{body!r} went to {len(reply)} queues")

    def on_delivered(self, queue: bytes, id: bytes, body: bytes) -> None:
        """A job of the topic is delivered."""
        found = self.published[body].found.setdefault(queue, set())
        found.add(id)
        if len(found) > 1:
            self.tasking.find("topic-twice", f"{queue!r} got {body!r} as {sorted(found)}")

    def on_drained(self) -> None:
        """Each queue has got its job, or none has; all nodes know the same."""
        if not self.is_on:
            return
        for body, one in self.published.items():
            self.history.count("looks at topics")
            missing = [queue for queue in QUEUES if queue not in one.found]
            if one.ids and missing:
                self.tasking.find("topic-lost", f"{body!r} never came to {missing}")
            elif 0 < len(missing) < len(QUEUES):
                self.tasking.find("topic-part", f"{body!r} came to {sorted(one.found)} alone")
        known: dict[str, object] = {}
        for m in self.tasking.cluster.machines:
            if m.shell is not None:
                rows = m.shell.n.topics.known()
                known[m.name] = sorted(
                    (row.topic, row.queue, int(row.version), row.node, row.is_gone) for row in rows
                )
        self.history.count("tables of subscriptions", len(known))
        if any(table != known[min(known)] for table in known.values()):
            names = [name for name, table in known.items() if table != known[min(known)]]
            self.tasking.find("topic-apart", f"{names} know other subscriptions than {min(known)}")
