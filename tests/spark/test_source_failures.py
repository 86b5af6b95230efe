"""Batches that fail, without Spark: what is left of them is replayed, and poison is found."""

from __future__ import annotations

import pytest
from lab import RealServer
from query_by_hand import Query
from raw_resp import wait_for

from tuque import Client
from tuque.spark.errors import SourceError
from tuque.spark.leases import parts as leases_parts
from tuque.spark.leases.leases import Leases
from tuque.spark.options import source

STARTS_MOST = 200


class Downstream:
    """Starts a query again and again; some bodies make it fail, or all do while it is away."""

    def __init__(self, broker: RealServer, most: int, attempts: int, *poison: int) -> None:
        self.given = {"port": str(broker.port), "queue": "q", "group": "g", "retryTimeout": "5s"}
        self.given["maxBatchAttempts"] = str(attempts)
        self.most = most
        self.poison = set(poison)
        self.is_away = False
        self.starts = 0
        self.query = self.start()
        self.end = self.query.done

    def start(self, is_limited: bool = False) -> Query:
        self.starts += 1
        query = Query(Leases(source.parse(self.given, True, 2)), self.most)
        if self.starts > 1:
            query.done, query.seen = self.query.done, self.query.seen
        if is_limited:
            query.leases.limit_to_now()
        self.query = query
        return query

    def attempt(self, is_limited: bool = False) -> bool:
        """A start, until the query fails (False), or has nothing to do."""
        query = self.start(is_limited)
        while True:
            if self.end == query.done:
                self.end = query.plan()
                if self.end == query.done:
                    return True
            before, seen = query.done, query.seen.copy()
            query.run(self.end)
            came = set(query.seen - seen)
            if came and (self.is_away or came & self.poison):
                query.done, query.seen = before, seen
                return False

    def until_done(self, is_limited: bool = False) -> None:
        for _ in range(STARTS_MOST):
            if self.attempt(is_limited):
                return
        raise AssertionError(f"not done after {STARTS_MOST} starts")


def fill(client: Client, count: int, first: int = 0) -> None:
    pipe = client.pipeline()
    for number in range(first, first + count):
        pipe.addjob("q", str(number))
    pipe.execute()


def dead(client: Client) -> list[int]:
    jobs = client.getjob("q.dead", count=1000, nohang=True)
    return sorted(int(job.body) for job in jobs)


@pytest.mark.parametrize("poison", [[0], [637], [999], [3, 4, 900]])
def test_only_the_poison_is_put_aside(
    broker: RealServer, client: Client, poison: list[int]
) -> None:
    """A thousand rows, some of which cannot be worked on: all others come once."""
    fill(client, 1000)
    below = Downstream(broker, 1000, 2, *poison)
    below.until_done(is_limited=True)
    assert dead(client) == poison
    assert sorted(below.query.seen) == [n for n in range(1000) if n not in poison]
    assert set(below.query.seen.values()) == {1}
    assert below.starts < 20 * len(poison), "halves, not one by one"
    assert client.qlen("q") == 0


def test_an_outage_buries_nothing(broker: RealServer, client: Client) -> None:
    """Everything fails for a while; then it all comes, once."""
    fill(client, 100)
    below = Downstream(broker, 40, 2)
    below.is_away = True
    for _ in range(40):
        assert not below.attempt()
    assert dead(client) == []
    below.is_away = False
    below.until_done()
    below.query.assert_once(100)
    assert dead(client) == []


def test_poison_that_is_alone_lets_others_pass(broker: RealServer, client: Client) -> None:
    """It is put aside when others could be worked on, not before."""
    fill(client, 1)
    below = Downstream(broker, 10, 2, 0)
    for _ in range(8):
        assert not below.attempt()
    assert dead(client) == []
    fill(client, 5, first=1)
    below.until_done()
    assert dead(client) == [0]
    assert sorted(below.query.seen) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("is_by_hand", [False, True])
def test_a_queue_of_poison_only(broker: RealServer, client: Client, is_by_hand: bool) -> None:
    """It cannot be told from an outage. One job that goes well, or an operator, ends it."""
    fill(client, 12)
    below = Downstream(broker, 40, 2, *range(12))
    for _ in range(40):
        assert not below.attempt()
    assert dead(client) == []
    if is_by_hand:
        for job in client.jscan(queue="q", full=True):
            client.deadletter(job.id, "q.dead", reason="no query can read it")
        assert below.attempt()
    else:
        fill(client, 1, first=12)
        below.until_done()
        assert list(below.query.seen) == [12]
    assert dead(client) == list(range(12))


def test_tasks_that_are_tried_again_do_not_count(broker: RealServer, client: Client) -> None:
    fill(client, 2)
    below = Downstream(broker, 10, 1)
    end = below.query.plan()
    for _ in range(5):
        parts = leases_parts.parts_of(below.query.leases, {}, end)
        for part in parts:
            list(leases_parts.read(below.query.leases.options, part))
    assert below.query.run(end) == 2
    assert dead(client) == []


def query(broker: RealServer, **more: str) -> Query:
    given = {"port": str(broker.port), "queue": "q", "group": "g", **more}
    return Query(Leases(source.parse(given, True, 2)), 1000)


def test_a_replay_of_jobs_that_were_given_back(broker: RealServer, client: Client) -> None:
    """nack() in foreachBatch, and the query fails after it: the others are replayed."""
    fill(client, 4)
    first = query(broker)
    end = first.plan()
    (address,) = (place for place in first.leases.places.values())
    ids = [job.id for job in client.jscan(queue="q", full=True) if job.body in (b"1", b"2")]
    client.lease_nack("g", address.epoch, 1, *ids)
    broker.kill()
    broker.start()
    again = query(broker)
    assert again.run(end) == 2
    again.until(4)
    again.assert_once(4)


def test_a_replay_of_jobs_that_expired(broker: RealServer, client: Client) -> None:
    """While the query was away its lease ended, and so did the TTL of some jobs."""
    for number in range(4):
        client.addjob("q", str(number), ttl=60 if number else 2)
    end = query(broker, leaseTimeout="1s", heartbeat="900ms").plan()
    client.lease_touch("g", client.lease_info("g").epoch, ttl_ms=1000)
    wait_for(lambda: client.info()["registered_jobs"] == 3)
    again = query(broker)
    assert again.run(end) == 3


def test_what_others_had_is_said(broker: RealServer, client: Client) -> None:
    fill(client, 3)
    first = query(broker)
    end = first.plan()
    (job,) = (job for job in client.jscan(queue="q", full=True) if job.body == b"1")
    client.ackjob(job.id)
    with pytest.raises(SourceError, match="1 jobs of g/.* are gone: 1 acknowledged or deleted"):
        query(broker).run(end)
    assert query(broker, failOnDataLoss="false").run(end) == 2
