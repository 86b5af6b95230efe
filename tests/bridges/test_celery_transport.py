"""The transport of kombu at a real node: what its own tests do not look at."""

from __future__ import annotations

import datetime as dt
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import kombu
import pytest
from kombu.asynchronous.hub import Hub
from kombu.exceptions import ChannelError

from tuque import Client
from tuque.celery.entry import add_aliases
from tuque.celery.fetch import Fetch
from tuque.testing.nodes import TestNode

add_aliases()  # kombu alone does not load it


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with TestNode(tmp_path_factory.mktemp("node")) as node:
        yield f"tuque://127.0.0.1:{node.port}"


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as made:
        yield made


def queue(name: str, **options: Any) -> kombu.Queue:
    return kombu.Queue(name, routing_key=name, **options)


def consumed(connection: kombu.Connection, *queues: kombu.Queue, timeout_s: float = 1) -> Any:
    """The next message, which is held."""
    found: list[Any] = []
    with kombu.Consumer(connection, queues, on_message=found.append, prefetch_count=1):
        connection.drain_events(timeout=timeout_s)
    return found[0]


def test_a_body_is_text_that_people_can_read(url: str, client: Client) -> None:
    with kombu.Connection(url) as connection:
        kombu.Producer(connection).publish(
            {"a": 1}, routing_key="text", headers={"task": "shop.send", "id": "id-1"}
        )
        job = client.getjob("text", with_meta=True)[0]
    assert json.loads(job.body)["body"] == '{"a": 1}'
    assert job.headers == {"tuque-form": "celery2", "tuque-task": "shop.send", "celery-id": "id-1"}


def test_an_eta_waits_in_the_broker(url: str) -> None:
    eta = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.4)
    with kombu.Connection(url) as connection:
        kombu.Producer(connection).publish(1, routing_key="eta", headers={"eta": eta.isoformat()})
        with pytest.raises(socket.timeout):
            consumed(connection, queue("eta"), timeout_s=0.2)
        consumed(connection, queue("eta")).ack()
    assert dt.datetime.now(dt.UTC) >= eta


def test_a_prefix_keeps_applications_apart(url: str, client: Client) -> None:
    with kombu.Connection(f"{url}/shop") as connection:
        kombu.Producer(connection).publish(1, routing_key="mail", declare=[queue("mail")])
        assert client.qlen("shop.mail") == 1
        assert client.qlen("mail") == 0
        assert consumed(connection, queue("mail")).delivery_info["routing_key"] == "mail"


def test_a_rejected_message_is_a_dead_letter(url: str, client: Client) -> None:
    with kombu.Connection(url) as connection:
        kombu.Producer(connection).publish(1, routing_key="bad")
        consumed(connection, queue("bad")).reject()
    assert [one.reason for one in client.dead_letters("bad.dead")] == ["rejected by its consumer"]


def test_poison_is_a_dead_letter_before_a_consumer_sees_it(url: str, client: Client) -> None:
    options = {"max_redeliveries": 2}
    with kombu.Connection(url, transport_options=options) as connection:
        kombu.Producer(connection).publish(1, routing_key="poison")
        for again in (False, True, True):
            message = consumed(connection, queue("poison"))
            assert message.delivery_info["redelivered"] is again
            message.requeue()
        with pytest.raises(socket.timeout):
            consumed(connection, queue("poison"), timeout_s=0.3)
    assert [one.reason for one in client.dead_letters("poison.dead")] == [
        "delivered 3 times again: max_redeliveries is 2"
    ]


def test_a_job_of_others_is_a_dead_letter(url: str, client: Client) -> None:
    client.addjob("strange", b"[1]")
    with kombu.Connection(url) as connection, pytest.raises(socket.timeout):
        consumed(connection, queue("strange"), timeout_s=0.3)
    [letter] = client.dead_letters("strange.dead")
    assert letter.reason == "no message of kombu: its body is no envelope in JSON"


def test_what_is_held_goes_back_at_the_end_and_counts_nothing(url: str, client: Client) -> None:
    with kombu.Connection(url) as connection:
        kombu.Producer(connection).publish(1, routing_key="back")
        consumed(connection, queue("back"))
        assert client.qlen("back") == 0
    [job] = client.getjob("back", timeout_ms=1000, withcounters=True)
    assert (job.nacks, job.additional_deliveries) == (0, 0)


def test_a_held_message_stays_with_its_consumer(url: str, client: Client) -> None:
    with kombu.Connection(url, transport_options={"retry": 3}) as connection:
        kombu.Producer(connection).publish(1, routing_key="long")
        message = consumed(connection, queue("long"))
        assert client.getjob("long", timeout_ms=4500) == []
        message.ack()


def test_a_bound_queue_is_seen_by_all_processes(url: str, client: Client) -> None:
    exchange = kombu.Exchange("orders", "topic")
    bound = kombu.Queue("paid", exchange, routing_key="order.*.paid")
    with kombu.Connection(url) as connection, kombu.Connection(url) as other:
        bound(connection).declare()
        kombu.Producer(other, exchange).publish(7, routing_key="order.7.paid")
        kombu.Producer(other, exchange).publish(8, routing_key="order.8.sent")
        assert consumed(connection, bound).payload == 7
        assert client.qlen("paid") == 0
        bound(connection).unbind_from(exchange, "order.*.paid")
        bound(connection).delete()
    assert list(client.topics(topic="orders")) == []


def test_a_queue_with_an_owner_or_an_end_has_settings(url: str, client: Client) -> None:
    with kombu.Connection(url) as connection:
        queue("mine", auto_delete=True)(connection).declare()
        queue("short", expires=60)(connection).declare()
        queue("plain")(connection).declare()
    mine, short = client.queue_show("mine"), client.queue_show("short")
    assert mine is not None and mine.autodelete
    assert short is not None and (short.expires_s, short.autodelete) == (60.0, False)
    assert client.queue_show("plain") is None


def test_purge_counts_what_waits(url: str) -> None:
    one = queue("purged")
    with kombu.Connection(url) as connection:
        for _ in range(3):
            kombu.Producer(connection).publish(1, routing_key=one.name, declare=[one])
        assert one(connection).purge() == 3
        assert one(connection).queue_declare(passive=True).message_count == 0
        one(connection).delete()


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("declared", [{}, {"max_priority": 9}])
@pytest.mark.parametrize("exchange", ["", "ranked"])
def test_each_queue_has_priorities(
    url: str, client: Client, order: str, declared: dict[str, int], exchange: str
) -> None:
    """R1.13 Jobs with a lower PRI go before all others of their queue on a node"""
    name = f"ranked-{order}-{len(declared)}-{exchange}"
    one = queue(name, **declared)
    if exchange:
        one = queue(name, exchange=kombu.Exchange(exchange), **declared)
    asked = {"priority_order": order, "replicate": 1}
    with kombu.Connection(url, transport_options=asked) as connection:
        producer = kombu.Producer(connection)
        for priority in (3, None, 9, 0, 12, 3):
            body = [priority]
            producer.publish(
                body, exchange=exchange, routing_key=name, declare=[one], priority=priority
            )
        found: list[int | None] = []
        for _ in range(6):
            message = consumed(connection, one)
            message.ack()
            found += message.payload
        assert [row.type for row in client.qlist(names=[name]).rows] == ["queue"]
        one(connection).delete()
    larger_first = [9, 12, 3, 3, None, 0]
    assert found == (larger_first if order == "asc" else [None, 0, 3, 3, 9, 12])


def test_no_exchange_matches_headers(url: str) -> None:
    with kombu.Connection(url) as connection, pytest.raises(ChannelError, match="type 'headers'"):
        kombu.Exchange("h", "headers")(connection).declare()


def test_an_argument_of_a_queue_that_has_no_effect_is_named(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"x-queue-type": "quorum"}
    with kombu.Connection(url) as connection, caplog.at_level("WARNING", "tuque.celery"):
        queue("typed", queue_arguments=given)(connection).declare()
    assert [one.message for one in caplog.records] == [
        "the argument 'x-queue-type' of the queue 'typed' has no effect here"
    ]


def test_a_loop_goes_on_after_its_connection_was_lost(url: str, client: Client) -> None:
    found: list[Any] = []
    hub = Hub()
    with kombu.Connection(url) as connection:
        consumer = kombu.Consumer(connection, [queue("lost")], on_message=found.append)
        with consumer:
            connection.register_with_event_loop(hub)
            hub.run_once()
            for one in client.client_list():
                if one.get("blocked") or "getjob" in one.get("cmd", "").lower():
                    client.execute("CLIENT", "KILL", one["addr"])
            kombu.Producer(connection).publish(1, routing_key="lost")
            until_s = time.monotonic() + 5
            while not found and time.monotonic() < until_s:
                hub.run_once()
            assert len(found) == 1
            found[0].ack()
    hub.close()


def test_one_question_is_for_all_channels(url: str, client: Client) -> None:
    found: list[Any] = []
    with kombu.Connection(url) as connection:
        for name in ("first", "second"):
            channel = connection.channel()
            kombu.Consumer(channel, [queue(name)], on_message=found.append).consume()
            channel.basic_qos(0, 2, False)
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.1)
        [asked] = [one for one in client.client_list() if one["cmd"] == "getjob"]
        for name in ("second", "first"):
            kombu.Producer(connection).publish(name, routing_key=name)
            connection.drain_events(timeout=2)
        assert [message.payload for message in found] == ["second", "first"]
        assert asked["addr"] in {one["addr"] for one in client.client_list()}


def test_a_cancelled_consumer_gets_nothing_more_and_others_do(url: str, client: Client) -> None:
    found: list[Any] = []
    with kombu.Connection(url) as connection:
        stays = kombu.Consumer(connection.channel(), [queue("stays")], on_message=found.append)
        goes = kombu.Consumer(connection.channel(), [queue("goes")], on_message=found.append)
        stays.consume()
        goes.consume()
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.1)
        goes.cancel()
        kombu.Producer(connection).publish("goes", routing_key="goes")
        assert client.qlen("goes") == 1
        kombu.Producer(connection).publish("stays", routing_key="stays")
        connection.drain_events(timeout=2)
        assert [message.payload for message in found] == ["stays"]


def in_loop(url: str, name: str, count: int, found: list[Any]) -> Iterator[Hub]:
    """A consumer that holds `count` messages in a loop."""
    hub = Hub()
    with kombu.Connection(url) as connection:
        for number in range(count):
            kombu.Producer(connection).publish(number, routing_key=name)
        with kombu.Consumer(connection, [queue(name)], on_message=found.append) as consumer:
            consumer.qos(prefetch_count=count)
            connection.register_with_event_loop(hub)
            turn_until(hub, lambda: len(found) == count)
            yield hub
    hub.close()


def turn_until(hub: Hub, is_so: Any) -> None:
    until_s = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < until_s
        hub.run_once()


def test_a_loop_acknowledges_many_at_once_and_over_a_new_connection(
    url: str, client: Client
) -> None:
    found: list[Any] = []
    for hub in in_loop(url, "acked", 8, found):
        for message in found[:4]:
            message.ack()
        turn_until(hub, lambda: jobs_of(client, "acked") == 4)
        for one in client.client_list():
            if one["id"] != str(client.execute("CLIENT", "ID")):
                client.execute("CLIENT", "KILL", "ID", one["id"])
        for message in found[4:]:
            message.ack()
        turn_until(hub, lambda: jobs_of(client, "acked") == 0)


def test_acknowledgements_without_a_reply_are_not_forgotten(client: Client) -> None:
    fetch = Fetch(client)
    ids = [client.addjob("unsure", str(number)) for number in range(2)]
    fetch.ask(["nothing"], 1, ids[:1])
    fetch.acknowledge(ids[1:])
    fetch.close()
    assert fetch.take_lost() == ids
    assert fetch.take_lost() == []


def jobs_of(client: Client, name: str) -> int:
    """Jobs of a queue that are not acknowledged."""
    [row] = client.qlist(names=[name]).rows or [None]
    return 0 if row is None else row.ready + row.at_work


def test_a_loop_sends_what_threads_acknowledge(url: str, client: Client) -> None:
    found: list[Any] = []
    for hub in in_loop(url, "threaded", 2, found):
        for message in found:
            threading.Thread(target=message.ack).start()
        turn_until(hub, lambda: jobs_of(client, "threaded") == 0)


def test_a_batch_is_there_after_its_end_and_not_before(url: str, client: Client) -> None:
    with kombu.Connection(url) as connection:
        producer = kombu.Producer(connection)
        assert producer.supports_batch_publish
        with producer.batch(max_size=3):
            for number in range(5):
                producer.publish(number, routing_key="batch")
            assert client.qlen("batch") == 3
        assert client.qlen("batch") == 5
        with pytest.raises(KeyError), producer.batch():
            producer.publish(6, routing_key="batch")
            raise KeyError
        assert client.qlen("batch") == 5


def test_a_batch_names_what_was_not_added(url: str, client: Client) -> None:
    with kombu.Connection(url) as connection:
        producer = kombu.Producer(connection)
        text = "1 of 2 messages were not added: id-1; the first: "
        with pytest.raises(kombu.exceptions.BatchPublishError, match=text), producer.batch():
            producer.publish("x", routing_key="sized", headers={"id": "id-1"}, expiration=1e12)
            producer.publish("y", routing_key="sized", headers={"id": "id-2"})
        assert client.qlen("sized") == 1


def test_without_prefetch_a_task_that_runs_takes_a_place(url: str) -> None:
    from celery.worker import state

    class Request:
        pass

    running = Request()
    options = {"prefetch": "none"}
    with kombu.Connection(url, transport_options=options) as connection:
        for number in range(3):
            kombu.Producer(connection).publish(number, routing_key="none")
        found: list[Any] = []
        with kombu.Consumer(connection, [queue("none")], on_message=found.append) as consumer:
            consumer.qos(prefetch_count=2)
            state.reserved_requests.add(running)
            connection.drain_events(timeout=2)
            found[0].ack()
            state.reserved_requests.add(second := Request())
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=0.2)
            del running
            state.reserved_requests.discard(second)
            connection.drain_events(timeout=2)
        assert len(found) == 3
