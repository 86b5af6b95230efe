"""Copies that were lost are made again; nodes that are gone leave the holder sets (SPEC K5, K6)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.msgs import Ask, Lack
from tuque.core.node import Node

FAR: Final = 1 << 62


def on_incarnation(n: Node, slot: i64, is_empty: bool) -> None:
    """[K5] A peer started anew; `is_empty`: it says that it began without any job."""


def on_forget(n: Node, slot: i64) -> None:
    """[K6] The peer was forgotten: it leaves the sets of every job (K6.2)."""


def on_ask(n: Node, slot: i64, m: Ask) -> None:
    """[K5.1] ON RECV ASK."""


def on_lack(n: Node, slot: i64, m: Lack) -> None:
    """[K5.1] ON RECV LACK."""


def repair_left(n: Node) -> i64:
    """[K5.3] Jobs that wait for repair, or whose copies are still being asked for."""
    return 0


def repair_tick(n: Node) -> None:
    """[K5.2] Ask and send some of what is due."""


def repair_next_ms(n: Node) -> i64:
    """The next instant at which `repair_tick` has something to do."""
    return FAR
