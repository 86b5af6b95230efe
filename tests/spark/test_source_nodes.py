"""A stream of several real nodes, without Spark: offsets, nodes that die, forget, or are new."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from query_by_hand import Query

from lab import RealCluster, RealServer, is_running
from tuque import Client
from tuque.spark import nack
from tuque.spark.errors import SourceError
from tuque.spark.leases import parts as leases_parts
from tuque.spark.leases.leases import Leases, shares
from tuque.spark.options import source
from tuque.spark.source import peek
from until import until

JOURNAL = ("--appendonly", "yes", "--appendfsync", "always")


class Ground:
    """A cluster, and a queue of it that is this test's own."""

    def __init__(self, cluster: RealCluster, queue: str) -> None:
        self.cluster = cluster
        self.nodes = cluster.nodes
        self.queue = queue

    def fill(self, node: RealServer, first: int, count: int) -> None:
        """Jobs first, first + 1 ..., of which others have copies but which are queued here."""
        with Client(url(node), discover=False) as client:
            pipe = client.pipeline()
            for number in range(first, first + count):
                pipe.addjob(self.queue, str(number))
            pipe.execute()

    def left(self, *nodes: RealServer) -> int:
        """Jobs that are not acknowledged, as these nodes or all know them."""
        ids: set[str] = set()
        for node in nodes or self.nodes:
            with Client(url(node), discover=False) as client:
                jobs = client.jscan(queue=self.queue, full=True)
                ids |= {job.id for job in jobs if job.state != "acked"}
        return len(ids)

    def await_none_left(self) -> None:
        until(lambda: self.left() == 0, lambda: f"{self.left()} are left")

    def query(self, *nodes: RealServer, most: int = 1000, **more: str) -> Query:
        """A stream that leases from these nodes."""
        given = {"url": url(*nodes), "queue": self.queue, "group": self.queue, **more}
        given.setdefault("retryTimeout", "5s")
        return Query(Leases(source.parse(given, True, 6)), most)


def grounds(directory: Path, *flags: str) -> Iterator[RealCluster]:
    running = RealCluster(directory, 3, *flags)
    try:
        yield running.start()
    finally:
        running.end()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    yield from grounds(tmp_path_factory.mktemp("lasting"), *JOURNAL)


@pytest.fixture(scope="module")
def passing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    yield from grounds(tmp_path_factory.mktemp("passing"))


def whole(cluster: RealCluster, request: pytest.FixtureRequest) -> Ground:
    """The cluster with all its nodes alive."""
    dead = [node for node in cluster.nodes if not is_running(node)]
    for node in dead:
        node.start()
    if dead:
        cluster.wait_formed()
    return Ground(cluster, request.node.name)


@pytest.fixture
def ground(lasting: RealCluster, request: pytest.FixtureRequest) -> Ground:
    """Nodes that lose nothing when they are killed."""
    return whole(lasting, request)


@pytest.fixture
def forgetful(passing: RealCluster, request: pytest.FixtureRequest) -> Ground:
    """Nodes without a journal."""
    return whole(passing, request)


def url(*nodes: RealServer) -> str:
    return "tuque://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


def node_id(node: RealServer) -> str:
    with Client(url(node), discover=False) as client:
        return client.hello().id


def test_the_loop_needs_no_spark() -> None:
    code = (
        "import sys, tuque.spark.leases.leases, tuque.spark.leases.parts, tuque.spark.source.ids, "
        "tuque.spark.source.peek\n"
        "assert not {'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("queued", "most", "taken"),
    [
        ([10, 10, 10], 30, [10, 10, 10]),
        ([100, 100, 100], 30, [10, 10, 10]),
        ([2, 100, 0], 30, [2, 28, 0]),
        ([100, 5, 20], 60, [35, 5, 20]),
        ([0, 0], 10, [0, 0]),
        ([7], 3, [3]),
        ([5, 5], 1, [0, 1]),
    ],
)
def test_what_each_node_is_asked_for(queued: list[int], most: int, taken: list[int]) -> None:
    assert shares(queued, most) == taken


def test_one_offset_for_all_nodes(ground: Ground) -> None:
    nodes = ground.nodes
    for number, node in enumerate(nodes):
        ground.fill(node, number * 100, 100)
    query = ground.query(*nodes, most=150)
    assert query.plan() == query.plan(), "asked again it is the same batch"
    end = query.plan()
    assert sorted(end) == sorted(map(node_id, nodes))
    assert query.run(end) == 150, "maxJobsPerTrigger is of all nodes"
    assert query.parts == 6, "numPartitions too"
    assert ground.left() == 300
    query.until(300)
    query.assert_once(300)
    assert query.plan() == query.done, "the last one is acknowledged, and there is no other"
    ground.await_none_left()
    told = query.leases.backlog()
    assert told is not None
    assert (told["backlog"], told["nodes"], told["nodes_unreachable"]) == (0, 3, 0)


def test_the_most_of_one_node(ground: Ground) -> None:
    """Where the jobs are is where they come from; what one has not, others may give."""
    ground.fill(ground.nodes[1], 0, 300)
    query = ground.query(*ground.nodes, most=250)
    assert query.step() == 250


def test_a_node_is_killed_and_comes_back(ground: Ground) -> None:
    """The others go on; it keeps its place in the offset, and is taken up again."""
    dying = ground.nodes[2]
    for number, node in enumerate(ground.nodes):
        ground.fill(node, number * 200, 200)
    query = ground.query(*ground.nodes, most=90)
    query.step()
    place = query.done[node_id(dying)]
    dying.kill()
    for _ in range(4):
        query.step()
    assert query.done[query_key(query, dying)] == place
    told = query.leases.backlog()
    assert told is not None and told["nodes_unreachable"] == 1
    seen = len(query.seen)
    assert seen >= 90 + 4 * 60
    dying.start()
    query.until(600)
    query.assert_once(600)
    assert query.done[query_key(query, dying)][0] == place[0], "under the same epoch"
    query.plan()
    ground.await_none_left()


def query_key(query: Query, node: RealServer) -> str:
    """The id of a node that may be away."""
    places = query.leases.places.values()
    return next(place.id for place in places if place.node.address.port == node.port)


def test_a_batch_waits_for_its_node(ground: Ground) -> None:
    """Planned, and the node is killed before it is read: read when it is back, not skipped."""
    nodes = ground.nodes
    for number, node in enumerate(nodes):
        ground.fill(node, number * 10, 10)
    query = ground.query(*nodes, retryTimeout="300ms")
    end = query.plan()
    nodes[0].kill()
    with pytest.raises(SourceError, match="does not answer"):
        query.run(end)
    nodes[0].start()
    query.seen.clear()
    query.run(end)
    query.assert_once(30)


def test_all_nodes_are_away(ground: Ground) -> None:
    ground.fill(ground.nodes[0], 0, 10)
    query = ground.query(*ground.nodes, retryTimeout="500ms")
    query.step()
    for node in ground.nodes:
        node.kill()
    with pytest.raises(SourceError, match="no node answers for retryTimeout: .*refused"):
        query.plan()


def test_a_node_that_is_away_when_the_query_starts(ground: Ground) -> None:
    """From a checkpoint that names it: what it has in flight is waited for."""
    nodes = ground.nodes
    for number, node in enumerate(nodes):
        ground.fill(node, number * 10, 10)
    first = ground.query(*nodes)
    end = first.plan()
    away = query_key(first, nodes[1])
    nodes[1].kill()
    again = ground.query(*nodes, retryTimeout="300ms")
    with pytest.raises(SourceError, match="does not answer|no node answers"):
        again.run(end)
    nodes[1].start()
    again = ground.query(*nodes)
    again.run(end)
    again.assert_once(30)
    nodes[1].kill()
    late = ground.query(*nodes)
    late.done = end
    assert late.plan()[away] == end[away]
    nodes[1].start()
    until(lambda: late.plan() == end and ground.left() == 0, lambda: str(ground.left()))


def test_a_node_that_is_no_longer_given(ground: Ground) -> None:
    """With a batch in flight that is said; its jobs come again when the node does."""
    nodes = ground.nodes
    for number, node in enumerate(nodes):
        ground.fill(node, number * 10, 10)
    first = ground.query(*nodes)
    end = first.plan()
    with pytest.raises(SourceError, match="none of the given ones"):
        ground.query(*nodes[:2]).run(end)
    query = ground.query(*nodes[:2], failOnDataLoss="false")
    query.run(end)
    assert len(query.seen) == 20
    query.step()
    query.step()
    assert sorted(query.done) == sorted(map(node_id, nodes[:2]))
    whole = ground.query(*nodes)
    whole.done, whole.seen = query.done, query.seen
    whole.until(30)
    whole.assert_once(30)


def test_a_node_that_forgot(forgetful: Ground) -> None:
    """It is opened anew, and the query goes on."""
    nodes = forgetful.nodes
    forgetful.fill(nodes[0], 0, 20)
    query = forgetful.query(*nodes, most=10)
    query.step()
    before = query.done[node_id(nodes[0])]
    query.step()
    nodes[0].kill()
    nodes[0].start()
    forgetful.cluster.wait_formed()
    forgetful.fill(nodes[0], 20, 10)
    query.until(30)
    assert query.done[query_key(query, nodes[0])][0] > before[0], "another epoch"
    query.assert_once(30)


def test_a_batch_of_a_node_that_forgot(forgetful: Ground) -> None:
    """Planned, and nobody knows it any more: the reader is told, or goes on without it."""
    node = forgetful.nodes[0]
    forgetful.fill(node, 0, 10)
    query = forgetful.query(node)
    end = query.plan()
    node.kill()
    node.start()
    with pytest.raises(SourceError, match="lost its memory"):
        query.run(end)
    lax = forgetful.query(node, failOnDataLoss="false")
    assert lax.run(end) == 0
    forgetful.fill(node, 10, 5)
    lax.until(5)


def test_the_driver_dies_after_a_node_was_opened_anew(forgetful: Ground) -> None:
    """The checkpoint has the old epoch only, the node the next one: it is the same query's."""
    node = forgetful.nodes[0]
    forgetful.fill(node, 0, 10)
    query = forgetful.query(node)
    query.step()
    logged = query.done
    node.kill()
    node.start()
    forgetful.cluster.wait_formed()
    forgetful.fill(node, 10, 10)
    lost = query.plan()
    assert lost != logged
    again = forgetful.query(node)
    again.done, again.seen = logged, query.seen
    assert again.plan() == lost
    again.step()
    again.assert_once(20)
    with pytest.raises(SourceError, match="FENCED"):
        rival = forgetful.query(node, takeover="true")
        rival.plan()
        again.plan()


def test_all_nodes_of_the_cluster(ground: Ground) -> None:
    nodes = ground.nodes
    for number, node in enumerate(nodes):
        ground.fill(node, number * 50, 50)
    query = ground.query(nodes[1], nodes="cluster")
    assert query.step() == 150
    assert len(query.done) == 3
    query.assert_once(150)


def test_jobs_are_given_back_to_their_nodes(ground: Ground) -> None:
    """The rows of a batch say which."""
    for number, node in enumerate(ground.nodes):
        ground.fill(node, number * 10, 10)
    query = ground.query(*ground.nodes)
    rows = []
    for part in leases_parts.parts_of(query.leases, {}, query.plan()):
        for page in leases_parts.read(query.leases.options, part):
            first = page.ids[:40].decode()
            rows.append({"id": first, "lease": part.lease(ground.queue), "node": str(part.address)})
    assert nack(url(ground.nodes[0]), rows) == len(rows) == 6


def test_available_now_of_several_nodes(ground: Ground) -> None:
    nodes = ground.nodes
    for number, node in enumerate(nodes):
        ground.fill(node, number * 50, 50)
    query = ground.query(*nodes, most=60)
    query.leases.limit_to_now()
    for number, node in enumerate(nodes):
        ground.fill(node, 150 + number * 10, 10)
    rows = []
    while got := query.step():
        rows.append(got)
    assert sum(rows) == 150 and max(rows) <= 60
    assert ground.left() == 30


def test_jobs_of_other_nodes_come(ground: Ground) -> None:
    """A stream of one node: those that are queued at the others come while it asks (F1.1)."""
    nodes = ground.nodes
    for number, node in enumerate(nodes):
        ground.fill(node, number * 1000, 1000)
    query = ground.query(nodes[0], most=10_000)
    query.until(3000)
    query.assert_once(3000)


def test_a_look_at_all_nodes(ground: Ground) -> None:
    nodes = ground.nodes
    for number, node in enumerate(nodes):
        ground.fill(node, number * 10, 10)
    given = {"url": url(nodes[0]), "queue": ground.queue}

    def look(**more: str) -> list[bytes]:
        options = source.parse({**given, **more}, False, 2)
        parts = peek.nodes_of(options)
        assert len(parts) == 3
        found = [job.body or b"" for at in parts for p in peek.read(options, at) for job in p]
        return sorted(found, key=int)

    assert look() == [b"%d" % n for n in range(30)]
    assert len(look(limit="3")) == 9
    assert look(minAge="1h") == look(minDeliveries="1") == []
    with Client(url(nodes[1]), discover=False) as client:
        (job,) = client.getjob(ground.queue, nohang=True)
        client.nack(job.id)
    assert look(minDeliveries="1") == [job.body]
    nodes[2].kill()
    given["url"] += "/?retries=0"
    with pytest.raises(SourceError, match="failOnDataLoss=false looks at the others"):
        look()
    assert look(failOnDataLoss="false") == [b"%d" % n for n in range(20)]


def test_a_lease_that_ends_before_its_batch_is_read(ground: Ground) -> None:
    """Another consumer has some of the jobs by then: they are none of the batch's any more, so
    they are not acknowledged with it, and come again when that consumer fails."""
    node = ground.nodes[0]
    ground.fill(node, 0, 100)
    query = ground.query(node, leaseTimeout="1s", failOnDataLoss="false")
    end = query.plan()
    node.signal(signal.SIGSTOP)
    time.sleep(1.2)
    node.signal(signal.SIGCONT)
    with Client(url(node), discover=False) as rival:
        until(lambda: rival.lease_info(ground.queue).batches[0].is_expired)
        got = rival.getjob(ground.queue, count=30, nohang=True)
        assert query.run(end) == 70
        query.plan()
        assert ground.left() == 30
        rival.nack(*(job.id for job in got))
    query.until(100)
    query.assert_once(100)


def test_a_lease_is_kept(ground: Ground) -> None:
    """On each node its time begins again and again, while nobody reads its batch."""
    for number, node in enumerate(ground.nodes):
        ground.fill(node, number * 10, 10)
    query = ground.query(*ground.nodes, heartbeat="100ms")
    end = query.plan()
    for node in ground.nodes:
        with Client(url(node), discover=False) as client:
            assert client.lease_info(ground.queue).ttl_ms == 300_000, "the default"
            await_more(lambda client=client: client.lease_info(ground.queue).left_ms)
    query.run(end)
    query.assert_once(30)


def await_more(left_ms: Callable[[], int]) -> None:
    """Wait until more time is left than was before."""
    told = [left_ms()]
    until(lambda: told.append(left_ms()) or told[-1] > min(told), lambda: f"{told[-10:]}")


def test_a_lease_that_ends_is_said(ground: Ground) -> None:
    """Unless failOnDataLoss is false."""
    node = ground.nodes[0]
    ground.fill(node, 0, 10)
    query = ground.query(node)
    end = query.plan()
    with Client(url(node), discover=False) as client:
        (first, *_) = client.jscan(queue=ground.queue)
        client.deljob(first)
    with pytest.raises(SourceError, match="1 jobs of .* are gone"):
        query.run(end)


def test_jobs_that_another_node_queued_are_not_lost(ground: Ground) -> None:
    """After a lease has ended any node with a copy may queue a job: it comes in a later batch."""
    here, there = ground.nodes[:2]
    ground.fill(here, 0, 200)
    end = ground.query(here).plan()  # its heartbeats come too late
    with Client(url(here), discover=False) as client, Client(url(there), discover=False) as second:
        client.lease_touch(ground.queue, end[node_id(here)][0], ttl_ms=1000)
        until(lambda: client.qlen(ground.queue) == 200, lambda: "the lease has not ended")
        second.enqueue(*[job.id for job in client.jscan(queue=ground.queue, full=True)])

        def queued() -> tuple[int, int]:
            return client.qlen(ground.queue), second.qlen(ground.queue)

        until(lambda: sum(queued()) == 200 and min(queued()) > 0, lambda: f"{queued()}")
        stays = client.qlen(ground.queue)
        again = ground.query(here, there)
        assert again.run(end) == stays
        again.until(200)
        again.assert_once(200)
