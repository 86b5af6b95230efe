"""Batches that fail, without Spark: what is left of them is replayed, and poison is found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from query_by_hand import POLLS_MOST, Query, polls_of
from sink_lab import empty, journaled

from lab import RealServer
from tuque import Client
from tuque.spark.errors import SourceError
from tuque.spark.leases import parts as leases_parts
from tuque.spark.leases.leases import Leases
from tuque.spark.options import source
from until import until

STARTS_MOST = 200
BATCHES_MOST = 48  # of a group, by splits (Y2.4)


class Downstream:
    """Starts a query again and again; some bodies make it fail, or all do while it is away."""

    def __init__(
        self, broker: RealServer, most: int, attempts: int, *poison: int, other: int = 0
    ) -> None:
        self.given = {"port": str(broker.port), "queue": "q", "group": "g", "retryTimeout": "5s"}
        if other:  # the port of a second node
            del self.given["port"]
            self.given["url"] = f"tuque://127.0.0.1:{broker.port},127.0.0.1:{other}"
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


@pytest.fixture(scope="module")
def second_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    running = journaled(tmp_path_factory.mktemp("other"))
    yield running
    running.end()


@pytest.fixture
def other(second_node: RealServer) -> RealServer:
    """A second node, empty; the two need not know each other."""
    empty(second_node)
    return second_node


@pytest.mark.parametrize(
    ("here", "there", "poison", "is_limited"),
    [
        (range(100), range(100, 200), [20, 180], True),
        (range(100), range(100, 200), [20, 180], False),
        (range(1), range(1, 60), [0], True),
        (range(59), range(59, 60), [59], False),
        (range(5), range(5, 60), [0, 1, 2, 3, 4], True),
        (range(1), range(1, 2), [0], True),
        (range(1), range(1, 2), [1], True),
    ],
)
def test_jobs_of_other_nodes_are_not_blamed(
    broker: RealServer,
    client: Client,
    other: RealServer,
    here: range,
    there: range,
    poison: list[int],
    is_limited: bool,
) -> None:
    """A job is alone when no node has another one in the batch, whichever node has the poison."""
    with Client(f"tuque://127.0.0.1:{other.port}") as second:
        fill(client, len(here), first=here[0])
        fill(second, len(there), first=there[0])
        below = Downstream(broker, 1000, 2, *poison, other=other.port)
        below.until_done(is_limited)
        assert sorted(dead(client) + dead(second)) == poison
        good = [n for n in (*here, *there) if n not in poison]
        assert sorted(below.query.seen) == good
        assert set(below.query.seen.values()) == {1}
        assert below.starts < 30 * len(poison), "halves, not one by one"
        assert (client.qlen("q"), second.qlen("q")) == (0, 0)


def by_hand(client: Client, *numbers: int) -> None:
    for job in client.jscan(full=True):
        if job.queue == "q" and int(job.body) in numbers:
            client.deadletter(job.id, "q.dead", reason="by hand")


def test_a_job_that_was_not_alone_is_not_blamed(broker: RealServer, client: Client) -> None:
    """The poison leaves by other ways, after any number of failures: the last one was with it."""
    below = Downstream(broker, 1000, 1, *range(3, 36, 4))
    for attempts in range(9):
        fill(client, 4, first=4 * attempts)
        for _ in range(attempts // 2 + 1):
            below.attempt()
        by_hand(client, 4 * attempts + 3)
        below.until_done()
    assert dead(client) == [*range(3, 36, 4)]
    assert sorted(below.query.seen) == [n for n in range(36) if n % 4 != 3]


def test_a_job_that_was_alone_on_its_node_is_not_blamed(
    broker: RealServer, client: Client, other: RealServer
) -> None:
    """Another node had poison in the same batch when it failed last; that has left since."""
    with Client(f"tuque://127.0.0.1:{other.port}") as second:
        below = Downstream(broker, 1000, 1, 10, 11, other=other.port)
        fill(client, 2)
        fill(second, 1, first=10)
        assert not below.attempt()
        by_hand(second, 10)
        fill(second, 1, first=11)
        assert not below.attempt(), "0 came, then 1 with 11"
        assert list(below.query.seen) == [0]
        by_hand(second, 11)
        below.until_done()
        assert (dead(client), dead(second)) == ([], [10, 11])
        assert sorted(below.query.seen) == [0, 1]


def test_an_outage_over_two_nodes_buries_nothing(
    broker: RealServer, client: Client, other: RealServer
) -> None:
    """However often it fails, and however many halves there are: at last there can be no more."""
    with Client(f"tuque://127.0.0.1:{other.port}") as second:
        fill(client, 60)
        fill(second, 60, first=60)
        below = Downstream(broker, 120, 1, 7, 90, other=other.port)
        below.is_away = True
        assert not below.attempt()
        for node in (client, second):
            halve(node, BATCHES_MOST)
        for _ in range(12):
            assert not below.attempt()
        assert dead(client) == dead(second) == []
        counts = [len(node.lease_info("g").batches) for node in (client, second)]
        assert max(counts) == BATCHES_MOST
        below.is_away = False
        below.until_done()
        assert sorted(dead(client) + dead(second)) == [7, 90]
        assert len(below.query.seen) == 118
        assert set(below.query.seen.values()) == {1}


def halve(client: Client, count: int) -> None:
    """Split batches of the group, the largest first, until there are so many."""
    for _ in range(len(client.lease_info("g").batches), count):
        found = client.lease_info("g")
        batch = max(found.batches, key=lambda batch: batch.jobs)
        client.lease_split("g", found.epoch, batch.seq, batch.jobs // 2, begun=1)


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
    for _ in range(4):
        assert not below.attempt()
    assert dead(client) == []
    fill(client, 5, first=1)
    below.until_done()
    assert dead(client) == [0]
    assert sorted(below.query.seen) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("count", [1, 8])
def test_the_last_job_of_a_quiet_queue_is_set_aside(
    broker: RealServer, client: Client, count: int
) -> None:
    """Y11.6 A query with n attempts makes the last job of its queues a dead letter, if it failed
    2 n times, at least n of them alone, also if no batch succeeded: nothing could go before it.
    """
    fill(client, count)
    below = Downstream(broker, 10, 2, *range(count))
    if count > 1:
        for _ in range(20):
            assert not below.attempt()
        by_hand(client, *range(1, count))
    attempts = 0
    while not below.attempt():
        attempts += 1
        assert attempts <= 6
    assert count > 1 or attempts == 4
    assert 0 in dead(client)
    assert client.qlen("q") == 0


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
        client.addjob("q", str(number), ttl=1 if number == 3 else 60)
    end = query(broker, leaseTimeout="1s", heartbeat="900ms").plan()
    assert [batch.jobs for batch in client.lease_info("g").batches] == [4]
    client.lease_touch("g", client.lease_info("g").epoch, ttl_ms=1000)
    until(lambda: client.info()["registered_jobs"] == 3)
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


def test_an_idle_stream_asks_ten_times_a_second(broker: RealServer, client: Client) -> None:
    """Spark asks again at once when there was nothing: the source makes it wait."""
    leases = query(broker).leases
    start = leases.latest({}, 10)
    assert polls_of(lambda: leases.latest(start, 10) == start, client) <= POLLS_MOST
    fill(client, 1)
    assert leases.latest(start, 10) != start
