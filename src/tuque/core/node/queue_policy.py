"""What a queue with a policy of its own decides: the seam between core and tubes (SPEC T).

Core calls these for a Task, or for a queue whose `policy` is set, where a plain queue has the
rules G, R, V, Q and A. Core knows no tube; tubes/policy.py is the one policy there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from tuque.core.model.task import Task
from tuque.core.msgs.bus import TubeMessage

if TYPE_CHECKING:
    from tuque.core.model.add_spec import AddSpec
    from tuque.core.model.job import Job
    from tuque.core.node.node import Node
    from tuque.core.node.queue import Queue


class Policy:
    """Hooks. `bytes_used` is what the policy spends beside its tasks (M1)."""

    def __init__(self) -> None:
        self.bytes_used: i64 = 0

    def refusal(self, n: Node, q: Queue, spec: AddSpec) -> bytes:
        """Why ADDJOB is refused; empty when it is not."""
        raise AssertionError("no policy")

    def add(self, n: Node, q: Queue, body: bytes, spec: AddSpec) -> Job:
        """ADDJOB, accepted: the new task."""
        raise AssertionError("no policy")

    def take(self, n: Node, q: Queue, client: i64) -> Task | None:
        """GETJOB, or a client that waited is served: the first task that may be taken."""
        raise AssertionError("no policy")

    def ack(self, n: Node, task: Task, client: i64) -> bool:
        """ACKJOB, FASTACK; False: not the client's to finish."""
        raise AssertionError("no policy")

    def nack(self, n: Node, task: Task, delay_ms: i64, client: i64) -> bool:
        """NACK; False: not the client's to give back."""
        raise AssertionError("no policy")

    def working(self, n: Node, task: Task, client: i64) -> bytes:
        """WORKING. Empty, or an error."""
        raise AssertionError("no policy")

    def enqueue(self, n: Node, task: Task) -> bool:
        """ENQUEUE; False: nothing was done."""
        raise AssertionError("no policy")

    def delete(self, n: Node, task: Task) -> None:
        """DELJOB."""
        raise AssertionError("no policy")

    def finish(self, n: Node, task: Task) -> None:
        """DEADLETTER: the task is done, whoever holds it; the event was written."""
        raise AssertionError("no policy")

    def forget(self, n: Node, task: Task) -> None:
        """The task leaves the table (G2): its tube lets go of it."""
        raise AssertionError("no policy")

    def restore(self, n: Node, task: Task) -> bool:
        """A task comes back from the journal; False: its time is over, or it is here."""
        raise AssertionError("no policy")

    def on_timer(self, n: Node, task: Task) -> None:
        """The task's instant has come."""
        raise AssertionError("no policy")

    def tick(self, n: Node) -> None:
        """Run what else is due."""
        raise AssertionError("no policy")

    def next_ms(self, n: Node) -> i64:
        """When `tick` next has something to do; far away when never."""
        raise AssertionError("no policy")

    def on_pause(self, n: Node, q: Queue) -> None:
        """PAUSE has replaced the state of the queue."""
        raise AssertionError("no policy")

    def flush(self, n: Node) -> None:
        """Drop everything (S7.1)."""
        raise AssertionError("no policy")

    def is_counted(self, q: Queue) -> bool:
        """Whether the queue's length is the number of its queued jobs."""
        raise AssertionError("no policy")

    def check(self, n: Node) -> None:
        """Assert that all tables agree (`DEBUG CHECK`)."""
        raise AssertionError("no policy")

    # the cluster (T17 to T22)

    def on_message(self, n: Node, slot: i64, m: TubeMessage) -> None:
        """A node says something about tubes."""
        raise AssertionError("no policy")

    def on_link_up(self, n: Node, slot: i64) -> None:
        """A link was opened."""
        raise AssertionError("no policy")

    def on_link_down(self, n: Node, slot: i64) -> None:
        """A link is gone."""
        raise AssertionError("no policy")

    def on_reach(self, n: Node) -> None:
        """Another set of nodes is reachable, or belongs to the cluster."""
        raise AssertionError("no policy")

    def on_standstill(self, n: Node) -> bool:
        """The process stood still: True when the node did something that others may do now."""
        raise AssertionError("no policy")

    def turn_end(self, n: Node) -> None:
        """The turn is over: its changes are sent to other nodes. The shell calls it."""
        raise AssertionError("no policy")

    def after_load(self, n: Node) -> None:
        """The journal is loaded."""
        raise AssertionError("no policy")

    def drain_left(self, n: Node) -> i64:
        """What must go, beside tasks, before the node is safe to stop (K7.3)."""
        raise AssertionError("no policy")
