"""The client's calls about topics: words, replies, a real node, a cluster, and docs/topics.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client_nodes import Connect, ScriptedNode

from lab import RealCluster, RealServer
from tuque import Client
from tuque.client.commands import topics
from tuque.client.commands.calls import Call
from tuque.client.commands.topics import Subscription
from tuque.errors import ReplyError
from until import until

PAGE = Path(__file__).resolve().parents[2] / "docs/topics.md"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three nodes that are left as they are."""
    made = RealCluster(tmp_path_factory.mktemp("cluster"), 3)
    try:
        yield made.start()
    finally:
        made.end()


@pytest.mark.parametrize(
    ("call", "words", "reply", "value"),
    [
        (topics.topic_subscribe("t", "q"), [b"SUBSCRIBE", b"t", b"q"], 1, True),
        (
            topics.topic_subscribe("t", "q", {"a": "x*", "b": "?"}),
            [b"SUBSCRIBE", b"t", b"q", "FILTER", "a", b"x*", "b", b"?"],
            0,
            False,
        ),
        (topics.topic_unsubscribe("t", "q"), [b"UNSUBSCRIBE", b"t", b"q"], 1, True),
        (
            topics.topic_subscribe("t", "q", {"a": "x*"}, key="k.#"),
            [b"SUBSCRIBE", b"t", b"q", "KEY", b"k.#", "FILTER", "a", b"x*"],
            1,
            True,
        ),
        (
            topics.topic_unsubscribe("t", "q", key="k.#"),
            [b"UNSUBSCRIBE", b"t", b"q", "KEY", b"k.#"],
            0,
            False,
        ),
        (
            topics.topic_add("t", "b", key="k.1", timeout_ms=7),
            [b"ADD", b"t", b"b", 7, "KEY", b"k.1"],
            [],
            [],
        ),
        (
            topics.topic_page("0"),
            [b"LIST", "CURSOR", "0", "COUNT", 100],
            [b"0", [[b"t", b"q", [], 3, [b"k.#", b"x"]]]],
            ("0", [Subscription("t", "q", {}, 3, ("k.#", "x"))]),
        ),
        (
            topics.topic_page("7", topic="t", count=5),
            [b"LIST", "CURSOR", "7", "COUNT", 5, "TOPIC", b"t"],
            [b"9", [[b"t", b"q", [b"a", b"x*"], 3]]],
            ("9", [Subscription("t", "q", {"a": "x*"}, 3)]),
        ),
        (
            topics.topic_add("t", "b", retry=9, attempts=2, headers={"a": "x"}, timeout_ms=7),
            [b"ADD", b"t", b"b", 7, "RETRY", 9, "ATTEMPTS", 2, "HEADERS", 1, "a", b"x"],
            [b"D-1", b"D-2"],
            ["D-1", "D-2"],
        ),
    ],
)  # fmt: skip
def test_words_and_values(call: Call[Any], words: list[Any], reply: Any, value: Any) -> None:
    assert call.args == ("TOPIC", words[0].decode(), *words[1:])
    assert call.read(reply) == value


def test_wrong_types() -> None:
    """What is no text, and no mapping, is named before anything is sent."""
    with pytest.raises(TypeError, match="^body: text or bytes are needed, not None"):
        topics.topic_add("t", None)  # type: ignore[arg-type]  # that is the test
    with pytest.raises(TypeError, match="filters are patterns by the names of headers, not 'abc'"):
        topics.topic_subscribe("t", "q", "abc")  # type: ignore[arg-type]  # that is the test


def test_both_faces(connect: Connect, node: ScriptedNode) -> None:
    node.answers["TOPIC"] = b"*1\r\n+D-1\r\n"
    assert connect(node.url).topic_add("t", "b") == ["D-1"]


def test_the_page_of_topics(real_node: RealServer) -> None:
    """docs/topics.md, and T61.3 with TOPIC only those of that topic are shown."""
    names: dict[str, Any] = {"__name__": "page"}
    for at, text in enumerate(re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)):
        example = text.replace("tuque://127.0.0.1:7711", real_node.url)
        exec(compile(example, f"topics.md, example {at + 1}", "exec"), names)
    client = names["client"]
    found = {one.queue: (one.filters, one.jobs) for one in client.topics("orders", count=1)}
    assert found == {"mails": ({}, 2), "audit": ({}, 2), "abroad": ({"country": "[!d]*"}, 0)}
    assert list(client.topics("other")) == []
    assert client.topic_add("other", "x") == []
    client.topic_subscribe("both", "mails")
    client.pause("mails", "in")
    with pytest.raises(ReplyError, match="queue 'mails' of topic 'both', nothing was added"):
        client.topic_add("both", "x")
    client.pause("mails", "none")
    client.close()
    names["shop"].close()


def test_at_all_nodes_of_a_cluster(cluster: RealCluster, connect: Connect) -> None:
    """T60.4 (cluster) TOPICS sends each change of a subscription to all linked nodes. T62.10
    (cluster) ADD runs at the leader of the topic's tubes: elsewhere the reply is `-TUBEHOME`.
    """
    urls = [f"tuque://127.0.0.1:{node.port}" for node in cluster.nodes]
    first, last = connect(urls[0]), connect(urls[2])
    topic, queue, tube = (f"{word}-{first.kind}" for word in ("topic", "queue", "tube"))
    with Client(urls[0]) as maker:
        maker.tube(tube).create("tasks", ttr=30, alone=True)
    assert first.topic_subscribe(topic, queue) and first.topic_subscribe(topic, tube)
    with Client(urls[2]) as watch:
        until(lambda: {one.queue for one in watch.topics(topic)} == {queue, tube})
        until(lambda: tube in watch.tube_list())
    ids = last.topic_add(topic, "x", replicate=3)
    assert len(ids) == 2
    with Client(urls[0]) as taker:
        jobs = [job for name in (queue, tube) for job in taker.getjob(name, timeout_ms=20_000)]
    assert [job.id for job in jobs] == ids
    assert last.topic_unsubscribe(topic, tube)
    assert len(last.topic_add(topic, "x")) == 1
