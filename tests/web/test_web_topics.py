"""The page of topics, and the actions on subscriptions (SPEC O14)."""

from __future__ import annotations

import pytest
from web_console import Console, Reader, figures, until
from web_nodes import WebCluster

from tuque.client.commands.topics import Subscription


@pytest.fixture(scope="module")
def topics(cluster: WebCluster) -> None:
    """A topic with two queues; jobs are added to it at two nodes, and once to nobody."""
    with cluster[0].client() as client, cluster[1].client() as other:
        client.topic_subscribe("orders", "mail")
        client.topic_subscribe("orders", "eu-bills", {"shop": "eu-*"})
        until(lambda: len(list(other.topics())) == 2, "hear of them")
        for shop in ("eu-1", "us-1", "us-2"):
            client.topic_add("orders", "x", replicate=1, headers={"shop": shop})
        other.topic_add("orders", "x", replicate=1, headers={"shop": "eu-2"})
        client.topic_add("nobody", "x", replicate=1)


@pytest.fixture
def admin(console: Console, topics: None) -> Reader:
    return console.client()


def subscriptions(cluster: WebCluster) -> dict[str, Subscription]:
    with cluster[2].client() as client:
        return {one.queue: one for one in client.topics("orders")}


def test_subscriptions_have_filters_and_jobs(admin: Reader, console: Console) -> None:
    """O14.32 The page of topics has each subscription with its filters, and how many jobs came
    through it at the nodes that answer; also how many ADDs no queue got (T62.9).
    """

    def shown() -> dict[tuple[str, str], int]:
        return figures(admin.get("/topics").text)

    until(lambda: shown().get(("topic_jobs", "topic=orders,queue=mail")) == 4, "sum up the nodes")
    assert shown()["topic_jobs", "topic=orders,queue=eu-bills"] == 2
    until(lambda: shown()["topic_adds", ""] == 5, "sum up the ADDs")
    assert (shown()["topic_jobs", ""], shown()["topic_adds_unheard", ""]) == (6, 1)
    text = admin.get("/topics").text
    assert ">shop=eu-*<" in text and "all jobs" in text and "no queue got what" in text
    assert "eu-bills" not in admin.get("/topics", queue="mail").text
    assert "No subscription fits" in admin.get("/topics", match="nothing").text


def test_a_queue_is_subscribed_and_unsubscribed(
    admin: Reader, console: Console, cluster: WebCluster
) -> None:
    """O14.33 An admin may subscribe a queue to a topic, change its filters, and unsubscribe it.
    Each asks, is sent to a node that answers, and is logged with the queue, the topic and the
    filters.
    """
    words = {"topic": "orders", "queue": "log"}
    assert "Subscribe a queue to a topic?" in admin.asked("subscribe", **words).text
    assert admin.do("subscribe", **words, filters="shop=eu-*\nkind=paid\n").status_code == 303
    until(lambda: "log" in subscriptions(cluster), "tell all nodes")
    assert subscriptions(cluster)["log"].filters == {"shop": "eu-*", "kind": "paid"}
    action = console.site.log.latest[0]
    about = "log to orders, shop=eu-*, kind=paid"
    assert (action.what, action.about, action.came_of_it) == ("Subscribe", about, "done")
    assert "shop=eu-*\nkind=paid" in admin.asked("subscribe", **words).text, "what it has now"
    admin.do("subscribe", **words, filters="kind=*")
    until(lambda: subscriptions(cluster)["log"].filters == {"kind": "*"}, "change them")
    refused = admin.do("subscribe", **words, filters="no filter")
    assert refused.status_code == 409 and "write HEADER=PATTERN" in refused.text
    assert admin.do("subscribe", topic="", queue="log").status_code == 409
    assert "Unsubscribe log from orders?" in admin.asked("unsubscribe", **words).text
    assert admin.do("unsubscribe", **words).status_code == 303
    until(lambda: "log" not in subscriptions(cluster), "tell all nodes")
    action = console.site.log.latest[0]
    assert (action.what, action.about) == ("Unsubscribe", "log from orders")
    assert "No node knows this subscription" in admin.get("/ask/unsubscribe", **words).text
    reader = console.client("reader")
    assert reader.get("/ask/subscribe").status_code == 403
    assert reader.http.post("/do/unsubscribe", data=words).status_code == 403
    assert 'disabled title="Needs the role admin"' in reader.get("/topics").text
