"""What other holders tell of a job that is here too (SPEC Q3, Q4, Q9)."""

from mypy_extensions import i64

from tuque.core.msgs import Delivered, Queued, WillQueue, Working
from tuque.core.node import Node


def on_willqueue(n: Node, slot: i64, m: WillQueue) -> None:
    """[Q3] ON RECV WILLQUEUE."""


def on_queued(n: Node, slot: i64, m: Queued) -> None:
    """[Q4] ON RECV QUEUED."""


def on_delivered(n: Node, slot: i64, m: Delivered) -> None:
    """[Q9] ON RECV DELIVERED."""


def on_working_message(n: Node, slot: i64, m: Working) -> None:
    """[Q9] ON RECV WORKING."""
