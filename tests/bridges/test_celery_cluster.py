"""The transport of kombu at three nodes: queues of all of them, and the loss of one."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import kombu
import pytest

from lab import RealCluster
from tuque import Client
from tuque.celery.entry import add_aliases

add_aliases()  # kombu alone does not load it
OPTIONS = {"retry": 3, "replicate": 2}


def held(connection: kombu.Connection, name: str) -> Any:
    """The next message of a queue."""
    found: list[Any] = []
    with kombu.Consumer(connection, [kombu.Queue(name)], on_message=found.append, prefetch_count=2):
        connection.drain_events(timeout=20)
    return found[0]


def test_a_queue_is_that_of_all_nodes(cluster: RealCluster) -> None:
    queue = kombu.Queue("everywhere")
    with kombu.Connection(cluster.url) as connection:
        for number, node in enumerate(cluster.nodes):
            with Client(f"tuque://127.0.0.1:{node.port}", discover=False) as at_node:
                at_node.addjob("everywhere", str(number), replicate=1)
        bound = queue(connection)
        assert bound.queue_declare(passive=True).message_count == 3
        bound.delete(if_empty=True)
        assert bound.purge() == 3
        assert bound.queue_declare(passive=True).message_count == 0


def test_a_queue_with_a_consumer_at_another_node_is_in_use(cluster: RealCluster) -> None:
    urls = [f"tuque://127.0.0.1:{node.port}" for node in cluster.nodes]
    queue = kombu.Queue("used")
    with (
        kombu.Connection(urls[0]) as connection,
        kombu.Connection(urls[2]) as other,
        Client(urls[0], discover=False) as at_node,
    ):
        at_node.pause("used", "out")
        at_node.addjob("used", "1", replicate=1)
        with kombu.Consumer(other, [queue]):
            with pytest.raises(socket.timeout):
                other.drain_events(timeout=0.2)
            queue(connection).delete(if_unused=True)
            assert at_node.qlen("used") == 1
        queue(connection).delete(if_unused=True)
        assert at_node.qlen("used") == 0
        at_node.pause("used", "none")


def test_a_consumer_goes_on_at_another_node_and_keeps_what_it_holds(tmp_path: Path) -> None:
    with RealCluster(tmp_path, 3, "--cluster-node-timeout", "1500") as own:
        urls = [f"tuque://127.0.0.1:{node.port}" for node in own.nodes]
        with kombu.Connection(";".join(urls), transport_options=OPTIONS) as connection:
            publish = kombu.Producer(connection).publish
            publish("first", routing_key="q", retry=True)
            first = held(connection, "q")
            used = own.ids.index(connection.transport.broker.client.hello().id)
            own.nodes[used].kill()
            publish("second", routing_key="q", retry=True)
            second = held(connection, "q")
            assert (first.payload, second.payload) == ("first", "second")
            first.ack()
            second.ack()
            left = next(node for number, node in enumerate(own.nodes) if number != used)
            with Client(f"tuque://127.0.0.1:{left.port}", discover=False) as other:
                assert other.getjob("q", timeout_ms=4500) == []
