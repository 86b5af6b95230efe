"""SPEC T60, T62, N11: topics of tenants, and of users that may not see all queues."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import Err
from tuque.core.tables.topics import GONE_MAX, SUBSCRIPTIONS_MAX, Subscription
from tuque.core.topics import subscribe, unsubscribe
from world import World
from world_wires import Wire


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    made = make_world()
    root = made.wire()
    for line in (
        "ACL SETUSER ann on nopass +@all ~* tenant:shop",
        "ACL SETUSER bob on nopass +@all ~* tenant:bank",
        "ACL SETUSER sue on nopass +@all ~open* ~news",
    ):
        assert root(*line.split(" ")) == b"OK"
    return made


def listen(wire: Wire, *queues: str, topic: str = "news") -> None:
    for queue in queues:
        assert wire("TOPIC", "SUBSCRIBE", topic, queue) == 1


def add(wire: Wire, body: str = "x", topic: str = "news") -> object:
    found = wire("TOPIC", "ADD", topic, body, 0)
    return len(found) if isinstance(found, list) else found


def test_each_job_counts_for_the_quotas(world: World) -> None:
    """T62.8 The quotas of a tenant (N11.2, N11.3) count each job."""
    root, ann = world.wire(), world.user("ann")
    listen(ann, "a", "b", "c")
    root("ACL", "SETUSER", "ann", "quota:jobs=7")
    assert [add(ann), add(ann)] == [3, 3]
    many = "QUOTA tenant 'shop' has 6 jobs at this node, and may have 7, not 3 more: let some end"
    assert str(add(ann)).startswith(many)
    root("ACL", "SETUSER", "ann", "quota:jobs=9", "quota:bytes=36")
    assert add(ann, "y" * 10) == 3
    root("ACL", "SETUSER", "ann", "quota:jobs=0")
    assert "has jobs of 36 bytes at this node, and may have 36, not 30 more" in str(
        add(ann, "y" * 10)
    )
    assert root("QLEN", "shop/a") == 3


def test_each_job_is_an_add(world: World) -> None:
    """N11.3 A TOPIC ADD of more is taken after a second without any, and what follows waits until
    its jobs are over.
    """
    root, ann = world.wire(), world.user("ann")
    listen(ann, "a", "b", "c")
    root("ACL", "SETUSER", "ann", "quota:adds=4")
    assert add(ann) == 3
    assert str(add(ann)).startswith("QUOTA tenant 'shop' adds 4 jobs a second at most")
    world.pass_ms(1_000)
    listen(ann, "d", "e", "f", "g", "h", "i", "j", "k", "l")
    assert add(ann) == 12
    world.pass_ms(1_990)
    assert isinstance(ann("ADDJOB", "a", "x", 0), Err)
    world.pass_ms(260)
    assert isinstance(ann("ADDJOB", "a", "x", 0), bytes)


def test_a_topic_fills_no_other_tenant(world: World) -> None:
    """T62.8 Those of jobs and bytes that hold are of the tenant whose queue it is; if that is
    another one, the reply is `-QUOTA the tenant of a queue that is subscribed may have no more jobs
    here`.
    """
    root, bob = world.wire(), world.user("bob")
    root("ACL", "SETUSER", "ann", "quota:jobs=1")
    listen(root, "shop/in", "bank/own", topic="bank/news")
    assert add(bob) == 2
    full = "QUOTA the tenant of a queue that is subscribed may have no more jobs here"
    assert add(bob) == Err(full)
    assert [root("QLEN", name) for name in ("shop/in", "bank/own")] == [1, 1]


def test_a_tenant_has_a_quarter_of_the_subscriptions(world: World) -> None:
    """N11.8 subscriptions to topics (T60.2)"""
    n = world.n
    for i in range(SUBSCRIPTIONS_MAX // 4):
        n.topics.put(Subscription(b"shop/t%d" % i, b"shop/q", [], 1, n.node_id, False))
    refused = (
        "QUOTA tenant 'shop' has 12500 subscriptions to topics, a quarter of what others leave: "
        "unsubscribe some"
    )
    assert world.user("ann")("TOPIC", "SUBSCRIBE", "t", "q") == Err(refused)
    listen(world.user("bob"), "q")
    listen(world.wire(), "q", topic="shop/t")


def test_a_tenant_has_others_removals_forgotten_last(world: World) -> None:
    """T60.5 If a tenant has more than a quarter of them, the oldest of the tenant that has most
    goes first.
    """
    n = world.n
    for topic in (b"bank/t", b"plain"):
        n.topics.put(Subscription(topic, b"q", [], 1, n.node_id, True))
    for i in range(GONE_MAX + 500):
        subscribe(n, b"shop/t%d" % i, b"shop/q", [], b"shop")
        unsubscribe(n, b"shop/t%d" % i, b"shop/q")
    assert len(n.topics.gone) == GONE_MAX
    assert {(b"bank/t", b"q"), (b"plain", b"q")} <= set(n.topics.gone)
    assert (b"shop/t502", b"shop/q") in n.topics.gone
    assert (b"shop/t501", b"shop/q") not in n.topics.gone
    n.topics.forget(b"bank/t", b"q")


def test_names_that_a_user_may_not_see(world: World) -> None:
    """T62.2 To a user that may not see the queue (N2.3) it is `-<first word> a queue of topic
    '<topic>' that this user may not see refuses it, nothing was added`.
    """
    root, sue, bob = world.wire(), world.user("sue"), world.user("bob")
    listen(root, "open", "secret")
    listen(root, "shop/in", topic="bank/news")
    root("PAUSE", "secret", "in")
    root("PAUSE", "shop/in", "in")
    hidden = (
        "PAUSED a queue of topic 'news' that this user may not see refuses it, nothing was added"
    )
    assert add(sue) == add(bob) == Err(hidden)
    root("PAUSE", "secret", "none")
    assert add(sue) == 2
    root("PAUSE", "open", "in")
    assert str(add(sue)).endswith(": queue 'open' of topic 'news', nothing was added")


@pytest.mark.parametrize("words", [("ADD", "other", "x", 0), ("LIST", "TOPIC", "other")])
def test_no_right_to_a_topic(world: World, words: tuple[str | int, ...]) -> None:
    """N2.7 `has no right to the topic '<topic>': no pattern of it fits`."""
    denied = Err("NOPERM user 'sue' has no right to the topic 'other': no pattern of it fits")
    assert world.user("sue")("TOPIC", *words) == denied
