"""Jobs go to the nodes where clients wait (SPEC F), PAUSE ... BCAST (SPEC P3)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.msgs import GotJobs, Moved, NeedJobs, Pause, YourJobs
from tuque.core.node import Node

FAR: Final = 1 << 62


def on_empty_getjob(n: Node, name: bytes) -> None:
    """[F1] A client found nothing in the queue and waits."""


def on_queue_emptied(n: Node, name: bytes) -> None:
    """[F1] A fetch took the last job of a queue."""


def on_wait_over(n: Node, name: bytes) -> None:
    """[F1] The last client that waited on the queue is gone or served."""


def on_job_queued(n: Node, name: bytes) -> None:
    """[F2] A job was queued: nodes that wait for it get it at once."""


def on_needjobs(n: Node, slot: i64, m: NeedJobs) -> None:
    """[F2] ON RECV NEEDJOBS."""


def on_yourjobs(n: Node, slot: i64, m: YourJobs) -> None:
    """[F3] ON RECV YOURJOBS."""


def on_gotjobs(n: Node, slot: i64, m: GotJobs) -> None:
    """[F2.3] ON RECV GOTJOBS."""


def on_moved(n: Node, slot: i64, m: Moved) -> None:
    """[F4] ON RECV MOVED."""


def on_pause_message(n: Node, slot: i64, m: Pause) -> None:
    """[P3] ON RECV PAUSE."""


def tell_pause(n: Node, name: bytes, bits: i64) -> None:
    """[P1.7] PAUSE ... BCAST: every linked node is told."""


def federate_link_up(n: Node, slot: i64) -> None:
    """[F1] A link came up: ask the peer for what clients wait for."""


def federate_tick(n: Node) -> None:
    """[F1] Ask again where clients still wait."""


def federate_next_ms(n: Node) -> i64:
    """The next instant at which `federate_tick` has something to do."""
    return FAR
