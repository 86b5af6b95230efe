"""What a node tells the other holders of its jobs (SPEC G3.8, Q1, V4.6)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.job import Job
from tuque.core.node import Node

FAR: Final = 1 << 62


def tell_queued(n: Node, job: Job, how: i64) -> None:
    """[G3.8] Tell the other holders that the job was put into the queue here."""


def tell_delivered(n: Node, job: Job) -> None:
    """[V4.6] Note a delivery; the other holders are told now or with the next heartbeat."""


def tell_working(n: Node, job: Job) -> None:
    """[Q8.6] Tell the other holders that a worker asked for more time."""


def on_will_timer(n: Node, job: Job) -> None:
    """[Q1] TIMER 500 ms before the due time."""


def announce_tick(n: Node) -> None:
    """[V4.6] Send the deliveries that waited for a heartbeat."""


def announce_next_ms(n: Node) -> i64:
    """The next instant at which `announce_tick` has something to do."""
    return FAR
