"""`mode=ids` without Spark: jobs of a node without leases, in what a crash leaves behind."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from query_by_hand import POLLS_MOST, polls_of

from lab import RealServer
from tuque import Client
from tuque.errors import NoQuorum
from tuque.spark.errors import SourceError
from tuque.spark.options import source
from tuque.spark.source import ids
from tuque.spark.source.ids import IdsOffset, Taken
from until import until

OF_DISQUE = {"HELLO", "GETJOB", "SHOW", "WORKING", "ACKJOB", "QLEN"}


def options(broker: RealServer, **more: str) -> source.SourceOptions:
    given = {"port": str(broker.port), "queue": "q", "mode": "ids", **more}
    return source.parse(given, True, 2)


def fill(client: Client, count: int, retry: int = 300) -> None:
    for number in range(count):
        client.addjob("q", str(number), retry=retry)


def read(taken: Taken, end: IdsOffset) -> list[int]:
    """The bodies of a batch, as tasks read them."""
    told = pickle.loads(pickle.dumps(taken.options))
    pages = ids.read(told, ids.check(end))
    return sorted(int(job.body or b"") for page in pages for job in page)


ZERO: IdsOffset = {"ids": []}


def test_batches_are_acknowledged_when_the_next_is_asked_for(
    broker: RealServer, client: Client
) -> None:
    fill(client, 5)
    taken = Taken(options(broker))
    one = taken.latest(ZERO, 3)
    assert taken.latest(ZERO, 3) == one, "asked again it is the same batch"
    assert read(taken, one) == read(taken, one) == [0, 1, 2], "a pure read"
    assert client.info()["registered_jobs"] == 5
    two = taken.latest(one, 100)
    assert read(taken, two) == [3, 4]
    assert client.info()["registered_jobs"] == 2
    assert taken.latest(two, 100) is two, "the same text: no batch"
    assert client.info()["registered_jobs"] == 0, "the last batch too"


def test_a_restart_goes_on_from_the_checkpoint(broker: RealServer, client: Client) -> None:
    """Its batch is read again and its jobs are kept; also when the broker was killed."""
    fill(client, 4)
    one = Taken(options(broker)).latest(ZERO, 2)
    broker.kill()
    broker.start()
    again = Taken(options(broker))
    again.keep(ids.check(one))
    assert read(again, one) == [0, 1]
    again.limit_to_now()
    two = again.latest(one, 10)
    assert read(again, two) == [2, 3]
    assert again.latest(two, 10) is two
    assert client.info()["registered_jobs"] == 0


def test_jobs_that_never_came_into_the_log_come_again(broker: RealServer, client: Client) -> None:
    """When they are queued again, as they are after their retry time."""
    fill(client, 2)
    got = client.getjob("q", count=10)
    assert len(got) == 2, "and the driver dies"
    again = Taken(options(broker))
    assert again.latest(ZERO, 10) is ZERO
    client.nack(*(job.id for job in got))
    assert read(again, again.latest(ZERO, 10)) == [0, 1]


def test_jobs_of_a_batch_are_kept(broker: RealServer, client: Client) -> None:
    """WORKING of each, again and again: the time until it would be queued begins anew."""
    fill(client, 20)
    taken = Taken(options(broker, heartbeat="200ms"))
    one = taken.latest(ZERO, 100)

    def left_ms() -> list[int]:
        found = (client.show(id) for id in ids.check(one))
        return [job.next_requeue_within_ms or 0 for job in found if job]

    least = left_ms()
    more: set[int] = set()

    def are_kept() -> bool:
        for at, now_ms in enumerate(left_ms()):
            more.update([at] if now_ms > least[at] else [])
            least[at] = min(least[at], now_ms)
        return len(more) == 20

    until(are_kept, lambda: f"{sorted(more)} are kept")
    assert len(read(taken, one)) == 20


@pytest.mark.slow  # the one above sees that the time begins anew
def test_a_batch_longer_than_the_retry_time(broker: RealServer, client: Client) -> None:
    """WORKING keeps its jobs: a rival gets none of them."""
    fill(client, 20, retry=2)
    taken = Taken(options(broker))
    one = taken.latest(ZERO, 100)
    assert client.getjob("q", timeout_ms=5000) == []
    assert len(read(taken, one)) == 20
    taken.latest(one, 100)
    assert client.info()["registered_jobs"] == 0


def test_a_job_that_is_gone(broker: RealServer, client: Client) -> None:
    fill(client, 3)
    one = Taken(options(broker)).latest(ZERO, 10)
    client.ackjob(ids.check(one)[0])
    with pytest.raises(SourceError, match="1 jobs of the batch are gone"):
        read(Taken(options(broker)), one)
    assert read(Taken(options(broker, failOnDataLoss="false")), one) == [1, 2]


def test_acknowledged_when_spark_says_commit(broker: RealServer, client: Client) -> None:
    fill(client, 4)
    taken = Taken(options(broker, ackOn="commit"))
    one = taken.latest(ZERO, 2)
    two = taken.latest(one, 2)
    assert client.info()["registered_jobs"] == 4
    taken.acknowledge(one)
    assert client.info()["registered_jobs"] == 2
    assert read(taken, two) == [2, 3]


def test_available_now_ends_with_what_was_there(broker: RealServer, client: Client) -> None:
    fill(client, 3)
    taken = Taken(options(broker))
    taken.limit_to_now()
    fill(client, 3)
    one = taken.latest(ZERO, 10)
    assert len(ids.check(one)) == 3
    assert taken.latest(one, 10) is one
    assert client.qlen("q") == 3
    assert taken.backlog() == {"backlog": 3, "leased": 0}


def test_an_offset_of_another_mode(broker: RealServer) -> None:
    with pytest.raises(SourceError, match="another mode"):
        Taken(options(broker)).latest({"a" * 40: []}, 10)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RealServer]:
    """A node that hears no heartbeats of the tests before."""
    with RealServer(tmp_path) as running:
        yield running


def test_only_words_that_disque_has(own: RealServer) -> None:
    """A node that has no leases is asked for nothing that it has not."""
    for number in range(3):
        own.wire().add("q", str(number))
    monitor = own.wire()
    assert monitor("MONITOR") == b"OK"
    taken = Taken(options(own, heartbeat="100ms"))
    taken.limit_to_now()
    one = taken.latest(ZERO, 10)
    words: set[str] = set()

    def hear(until: str) -> None:
        while until not in words:
            words.add(monitor.read().decode().split('"')[1].upper())

    hear("WORKING")
    read(taken, one)
    taken.backlog()
    taken.latest(one, 10)
    own.wire()("PING")
    hear("PING")
    assert words - {"PING"} == OF_DISQUE


def test_a_leader_that_has_just_restarted(broker: RealServer, client: Client) -> None:
    """It says NOQUORUM until enough nodes reach it: a task asks again, for retryTimeout."""
    fill(client, 1)
    asked: list[Client] = []

    def look(there: Client) -> int:
        asked.append(there)
        if len(asked) == 1:
            raise NoQuorum("NOQUORUM Tube 'q' is INIT here: try again soon")
        return there.qlen("q")

    assert ids.node_of(options(broker)).ask(look) == 1


def test_an_idle_stream_asks_ten_times_a_second(own: RealServer) -> None:
    """As one with leases: Spark asks again at once when there was nothing."""
    taken = Taken(options(own))
    with Client(own.url) as client:
        assert polls_of(lambda: taken.latest(ZERO, 10) == ZERO, client) <= POLLS_MOST
        fill(client, 1)
        assert taken.latest(ZERO, 10) != ZERO
