"""A consumer goes to the node that makes its jobs: when it does, when not, and both faces."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

import pytest
from client_nodes import Connect, ScriptedNode, hello_of

from tuque.client.api import Hello, Job, NodeInfo
from tuque.client.commands import admin, calls
from tuque.client.routing.nodes import (
    CALM_HOLDS,
    HOLD_MAX_S,
    HOLD_S,
    REST_S,
    WINDOW_JOBS,
    Follow,
    Route,
)
from tuque.client.url import Address

OWN, FAR, THIRD = "a" * 40, "b" * 40, "c" * 40


def jobs(count: int, maker: str, *, end: str = "05a1") -> list[Job]:
    return [Job("q", f"D-{maker[:8]}-{'x' * 24}-{end}", b"") for _ in range(count)]


def fetched(follow: Follow, now_s: float, *lots: list[Job]) -> str:
    """Lets it see lots of jobs; the node it wants to go to."""
    for lot in lots:
        follow.on_jobs(lot, OWN[:8], now_s)
    return follow.wanted


def test_three_of_four_jobs_of_another_node_are_enough() -> None:
    assert fetched(Follow(is_on=True), 0.0, jobs(75, FAR), jobs(25, OWN)) == FAR[:8]
    assert fetched(Follow(is_on=True), 0.0, jobs(25, OWN), jobs(74, FAR), jobs(1, THIRD)) == ""
    assert fetched(Follow(is_on=True), 0.0, jobs(40, FAR), jobs(40, THIRD), jobs(20, OWN)) == ""


def test_fewer_than_a_hundred_jobs_are_no_sign() -> None:
    follow = Follow(is_on=True)
    assert fetched(follow, 0.0, jobs(WINDOW_JOBS - 1, FAR)) == ""
    assert fetched(follow, 0.0, jobs(1, FAR)) == FAR[:8]


def test_own_jobs_and_those_delivered_once_are_a_reason_to_stay() -> None:
    assert fetched(Follow(is_on=True), 0.0, jobs(500, OWN)) == ""
    assert fetched(Follow(is_on=True), 0.0, jobs(26, FAR, end="05a0"), jobs(74, FAR)) == ""


def test_it_can_be_switched_off() -> None:
    assert fetched(Follow(is_on=False), 0.0, jobs(500, FAR)) == ""


def test_nobody_follows_from_a_node_that_did_not_say_who_it_is() -> None:
    follow = Follow(is_on=True)
    follow.on_jobs(jobs(200, FAR), "", 0.0)
    assert follow.wanted == ""


def test_moves_that_come_soon_get_rarer() -> None:
    follow, now_s, pauses = Follow(is_on=True), 1000.0, []
    for _ in range(9):
        began_s = now_s
        while not fetched(follow, now_s, jobs(100, FAR)):
            now_s += 1.0
        pauses.append(now_s - began_s)
        assert follow.take(now_s) == FAR[:8]
        assert follow.wanted == ""
    assert pauses == [0, *(min(HOLD_S * 2**n, HOLD_MAX_S) for n in range(8))]
    now_s += HOLD_MAX_S * (1 + CALM_HOLDS)
    assert fetched(follow, now_s, jobs(100, FAR))
    follow.take(now_s)
    assert not fetched(follow, now_s + HOLD_S - 0.1, jobs(100, FAR))
    assert fetched(follow, now_s + HOLD_S, jobs(100, FAR))


@pytest.mark.parametrize(
    ("host", "port", "priority", "is_good"),
    [("b", 2, 1, True), ("b", 2, 5, False), ("b", 2, 100, False), ("", 2, 1, False)],
)
def test_it_goes_only_to_a_node_that_hello_calls_good(
    host: str, port: int, priority: int, is_good: bool
) -> None:
    hello = Hello(1, OWN, (NodeInfo(OWN, "", 1, 1), NodeInfo(FAR, host, port, priority)))
    route = route_at(hello)
    assert route.other(hello, FAR[:8], 0.0) == (Address("b", 2) if is_good else None)
    assert route.other(hello, OWN[:8], 0.0) is None
    assert route.other(hello, THIRD[:8], 0.0) is None


def test_it_does_not_go_to_a_node_that_rests() -> None:
    hello = Hello(1, OWN, (NodeInfo(OWN, "", 1, 1), NodeInfo(FAR, "b", 2, 1)))
    route = route_at(hello)
    route.on_failed(Address("b", 2), 50.0)
    assert route.other(hello, FAR[:8], 50.0 + REST_S / 2) is None
    assert route.other(hello, FAR[:8], 50.0 + REST_S) == Address("b", 2)


def route_at(hello: Hello) -> Route:
    route = Route((Address("a", 1),), random.Random(1))
    route.on_connected(Address("a", 1), hello)
    return route


class Pair:
    """Two scripted nodes: jobs come from the first, and the other one makes them."""

    def __init__(self, near: ScriptedNode, far: ScriptedNode) -> None:
        self.near, self.far = near, far
        self.priority = 1
        self.far_id = FAR
        near.answers["HELLO"] = lambda words: hello_with(near.port, far.port, self.priority)
        far.answers["HELLO"] = lambda words: hello_of(("", far.port, 1), own=self.far_id)
        for node in (near, far):
            node.answers["GETJOB"] = lambda words: packed(jobs(50, FAR))
            node.answers["ACKJOB"] = b":50\r\n"


def hello_with(own_port: int, far_port: int, priority: int) -> bytes:
    told = hello_of(("", own_port, 1), ("127.0.0.1", far_port, priority))
    return told.replace(b"0" * 39 + b"1", FAR.encode())


def packed(found: list[Job]) -> bytes:
    each = [f"*3\r\n$1\r\nq\r\n$40\r\n{job.id}\r\n$0\r\n\r\n" for job in found]
    return f"*{len(found)}\r\n{''.join(each)}".encode()


@pytest.fixture
def pair(node: ScriptedNode, other_node: ScriptedNode) -> Pair:
    return Pair(node, other_node)


def test_a_consumer_goes_where_its_jobs_are_made(
    pair: Pair, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(pair.near.url)
    with caplog.at_level(logging.INFO, "tuque.client"):
        for _ in range(4):
            assert len(client.getjob("q", count=50, timeout_ms=100)) == 50
    assert client.node == f"127.0.0.1:{pair.far.port}"
    assert (pair.near.count("GETJOB"), pair.far.count("GETJOB")) == (2, 2)
    (said,) = (r for r in caplog.records if "most jobs come from" in r.message)
    assert said.levelno == logging.INFO
    assert str(pair.far.port) in said.message
    client.ackjob("D-x")
    assert pair.far.count("ACKJOB") == 1
    assert pair.far.connections == 2  # the one it moved with fetches, another one acknowledges


def test_a_pipeline_that_fetches_goes_too(pair: Pair, connect: Connect) -> None:
    client = connect(pair.near.url)
    fetch = ("queue", calls.getjob("q", count=50, nohang=True))
    client.piped(fetch, ("queue", admin.ping()), fetch)
    assert client.node == f"127.0.0.1:{pair.near.port}"
    client.piped(fetch, fetch)
    assert client.node == f"127.0.0.1:{pair.far.port}"
    assert (pair.near.count("GETJOB"), pair.far.count("GETJOB")) == (2, 2)


@pytest.mark.parametrize("how", ["argument", "url"])
def test_follow_no_stays(pair: Pair, connect: Connect, how: str) -> None:
    url = pair.near.url
    client = connect(url, follow=False) if how == "argument" else connect(f"{url}/?follow=no")
    for _ in range(5):
        client.getjob("q", count=50, timeout_ms=100)
    assert (pair.near.count("GETJOB"), pair.far.connections) == (5, 0)


def far_is_suspected(pair: Pair) -> None:
    pair.priority = 10


def far_is_another_node(pair: Pair) -> None:
    pair.far_id = THIRD


def far_leaves(pair: Pair) -> None:
    pair.far.answers["HELLO"] = hello_of(("", pair.far.port, 100), own=FAR)


def far_is_away(pair: Pair) -> None:
    pair.far.stop()


def far_says_nothing(pair: Pair) -> None:
    pair.far.answers["HELLO"] = ScriptedNode.SILENCE


@pytest.mark.parametrize(
    "trouble",
    [far_is_suspected, far_is_another_node, far_leaves, far_is_away, far_says_nothing],
)
def test_it_stays_when_the_other_node_is_not_well(
    pair: Pair, connect: Connect, trouble: Callable[[Pair], None]
) -> None:
    trouble(pair)
    client = connect(pair.near.url)
    for _ in range(5):
        assert len(client.getjob("q", count=50, timeout_ms=100)) == 50
    assert client.node == f"127.0.0.1:{pair.near.port}"
    assert (pair.near.count("GETJOB"), pair.far.count("GETJOB")) == (5, 0)
    assert pair.near.count("HELLO") == 3  # for each of two connections, and before a move


def test_a_node_that_dies_after_the_move_is_left(pair: Pair, connect: Connect) -> None:
    client = connect(pair.near.url)
    for _ in range(3):
        client.getjob("q", count=50, timeout_ms=100)
    assert client.node == f"127.0.0.1:{pair.far.port}"
    pair.far.stop()
    assert len(client.getjob("q", count=50, timeout_ms=100)) == 50
    assert client.node == f"127.0.0.1:{pair.near.port}"
