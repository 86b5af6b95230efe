"""Copies on other nodes before the producer gets its reply, and copies for others (SPEC R2-R8)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.job import Job
from tuque.core.msgs import Enqueue, Enqueued, GotJob, ReplJob
from tuque.core.node import Node

FAR: Final = 1 << 62


def start_copies(n: Node, job: Job, client: i64, serial: i64, timeout_ms: i64) -> None:
    """[R1.10, R6] Send the new job to other nodes; the producer waits in n.adding."""


def send_async(n: Node, job: Job) -> None:
    """[R1.10, R6] Send the new job to other nodes without waiting for them (ASYNC)."""


def on_repljob(n: Node, slot: i64, m: ReplJob) -> None:
    """[R2] ON RECV REPLJOB."""


def on_gotjob(n: Node, slot: i64, m: GotJob) -> None:
    """[R3] ON RECV GOTJOB."""


def on_enqueue_message(n: Node, slot: i64, m: Enqueue) -> None:
    """[R8] ON RECV ENQUEUE."""


def on_enqueued(n: Node, slot: i64, m: Enqueued) -> None:
    """[R6.2] ON RECV ENQUEUED: the external job is served elsewhere."""


def on_producer_gone(n: Node, client: i64) -> None:
    """[R7] The client went away: its ADDJOBs that wait are undone."""


def on_reach_changed(n: Node) -> None:
    """[R5.3] Nodes became unreachable: producers whose copies cannot be made are told."""


def copy_of(n: Node, slot: i64, job: Job, mode: i64) -> ReplJob:
    """The job as a message for that peer, its holders introduced."""
    raise AssertionError


def copies_tick(n: Node) -> None:
    """[R4, R5] Run the 50 ms steps and timeouts that are due."""


def copies_next_ms(n: Node) -> i64:
    """The next instant at which `copies_tick` has something to do."""
    return FAR
