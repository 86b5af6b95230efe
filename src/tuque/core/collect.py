"""The end of acked jobs on all their holders (SPEC A2-A6, A10)."""

from mypy_extensions import i64

from tuque.core.job import Job
from tuque.core.msgs import DelJob, GotAck, SetAck
from tuque.core.node import Node


def collect(n: Node, job: Job) -> None:
    """[A2] PROCEDURE collect an acked job."""


def on_gc_timer(n: Node, job: Job) -> None:
    """[A6] TIMER of an acked job."""


def on_unknown_ack(n: Node, client: i64, id: bytes) -> None:
    """[A3.4] ACKJOB of an id that is not known here."""


def on_unknown_fastack(n: Node, id: bytes) -> None:
    """[A7.2] FASTACK of an id that is not known here."""


def tell_deleted(n: Node, job: Job) -> None:
    """[A5.4, A7.1] DELJOB to every other holder."""


def on_setack(n: Node, slot: i64, m: SetAck) -> None:
    """[A4] ON RECV SETACK."""


def on_gotack(n: Node, slot: i64, m: GotAck) -> None:
    """[A5] ON RECV GOTACK."""


def on_deljob_message(n: Node, slot: i64, m: DelJob) -> None:
    """[A10] ON RECV DELJOB."""
