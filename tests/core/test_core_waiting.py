"""Clients that wait: their deadlines, their turns, and the tables that must not grow."""

from __future__ import annotations

from tuque.core.copies.ack import on_ackjob
from tuque.core.copies.add import on_addjob, settle
from tuque.core.dispatch.restore import flush_all
from tuque.core.dispatch.timers import tick
from tuque.core.model.job import AddSpec
from tuque.core.node.node import DATA_RESET, Node
from tuque.core.queues.deliver import serve_ready, wait, wake_all
from tuque.core.queues.procedures import check, get_queue

START_MS = 1_800_000_000_000


def a_node() -> Node:
    return Node(b"c0ffee00" * 5, b"seed of a test", START_MS)


def add(n: Node, queue: bytes = b"q", ttl_s: int = 600) -> bytes:
    """One job; its id."""
    spec = AddSpec()
    spec.ttl_s = ttl_s
    return on_addjob(n, queue, b"body", settle(n, spec)).id


def test_deadlines_of_clients_that_were_served_do_not_pile_up() -> None:
    n = a_node()
    wait(n, 7, [b"other"], 1, False, n.now_ms + 500)
    for _ in range(20_000):
        wait(n, 1, [b"q"], 1, False, n.now_ms + 3_600_000)
        id = add(n)
        serve_ready(n)
        assert len(n.wakes) == 1
        n.wakes = []
        assert on_ackjob(n, id)
    assert len(n.deadlines) < 5_000
    n.now_ms += 500
    tick(n)
    assert [wake.client for wake in n.wakes] == [7]  # a deadline that still counts is kept


def test_a_waiting_client_keeps_its_turn_when_all_that_came_had_expired() -> None:
    n = a_node()
    wait(n, 1, [b"q"], 1, False, 0)
    wait(n, 2, [b"q"], 1, False, 0)
    add(n, ttl_s=1)
    n.now_ms += 2_000
    serve_ready(n)
    assert n.wakes == []
    add(n)
    serve_ready(n)
    assert [wake.client for wake in n.wakes] == [1]
    check(n)


def test_a_flush_leaves_one_idle_check_for_each_queue() -> None:
    n = a_node()
    for _ in range(50):
        get_queue(n, b"q")
        wait(n, 1, [b"r"], 1, False, 0)
        add(n)
        flush_all(n)
        wake_all(n, DATA_RESET)
    get_queue(n, b"q")
    assert len(n.idle_checks) == len(n.queues) == 1
    check(n)
