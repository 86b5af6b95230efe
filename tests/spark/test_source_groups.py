"""Groups of streams over restarts, without Spark: other queues, no checkpoint, all nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from query_by_hand import Query

from lab import RealCluster, RealServer
from tuque import Client
from tuque.spark.errors import SourceError
from tuque.spark.leases import parts
from tuque.spark.leases.leases import Leases
from tuque.spark.options import source


def query(broker: RealServer, most: int = 1000, **more: str) -> Query:
    given = {"port": str(broker.port), "queue": "q", "group": "g", "retryTimeout": "5s", **more}
    return Query(Leases(source.parse(given, True, 2)), most)


def restarted(broker: RealServer, before: Query, **more: str) -> Query:
    """Another process with the checkpoint of the one before."""
    again = query(broker, before.most, **more)
    again.done, again.seen = before.done, before.seen
    return again


def fill(client: Client, queue: str, first: int, count: int) -> None:
    for number in range(first, first + count):
        client.addjob(queue, str(number))


def test_another_list_of_queues(broker: RealServer, client: Client) -> None:
    """One that was added is read, one that was removed is not leased any more."""
    fill(client, "q", 0, 5)
    fill(client, "old", 5, 5)
    first = query(broker, queue="q,old")
    first.step()
    fill(client, "old", 100, 3)
    first.plan()  # leased, and the driver died before it was logged
    fill(client, "new", 10, 5)
    again = restarted(broker, first, queue="q,new")
    again.leases.limit_to_now()
    again.until(15)
    again.assert_once(15)
    assert again.plan() == again.done
    assert client.lease_info("g").queues == ["q", "new"]
    assert (client.qlen("new"), client.qlen("old")) == (0, 3)


@pytest.mark.parametrize("more", [{}, {"failOnDataLoss": "false"}, {"takeover": "true"}])
def test_an_older_checkpoint(broker: RealServer, client: Client, more: dict[str, str]) -> None:
    """A backup of it, or a copy: refused, since sinks know the numbers of its next batches."""
    fill(client, "q", 0, 10)
    newest = query(broker, 5)
    newest.step()
    old = restarted(broker, newest)
    newest.step()
    fill(client, "q", 10, 5)
    newest.plan()
    refused = "the checkpoint is older than what group 'g' has done.*delete this one, too: without"
    for _ in range(2):
        with pytest.raises(SourceError, match=refused):
            restarted(broker, old, **more).plan()
    assert newest.step() == 5, "nothing was touched"
    fill(client, "q", 15, 5)
    newest.plan()
    deleted = query(broker, 5, takeover="true")
    deleted.seen = newest.seen
    deleted.step()
    with pytest.raises(SourceError, match="FENCED"):
        restarted(broker, newest).plan()
    deleted.assert_once(20)


def test_a_batch_that_a_newer_checkpoint_finished(broker: RealServer, client: Client) -> None:
    """An older one that has it in its log reads it first: the error says what that means. If it
    was the last one, no number is used twice.
    """
    fill(client, "q", 0, 10)
    newest = query(broker, 5)
    end = newest.plan()
    old = restarted(broker, newest)
    newest.run(end)
    following = newest.plan()
    with pytest.raises(SourceError, match="takeover=true continues with what was not acknowledged"):
        old.run(end)
    going = restarted(broker, old, failOnDataLoss="false")
    assert going.run(end) == 0
    assert going.plan() == following
    assert going.run(following) == 5


def test_a_batch_of_the_old_queues_is_read_first(broker: RealServer, client: Client) -> None:
    """It stands in the checkpoint; then the group is opened anew, once, whoever dies when."""
    fill(client, "old", 0, 5)
    first = query(broker, queue="old")
    end = first.plan()
    fill(client, "new", 5, 5)
    again = restarted(broker, first, queue="new")
    again.run(end)
    leased = again.plan()
    third = restarted(broker, again, queue="new")
    assert third.plan() == leased, "the driver died between the opening and its log"
    third.step()
    third.assert_once(10)


def test_other_queues_that_cannot_be_taken(broker: RealServer, client: Client) -> None:
    """With ackOn=commit what is logged may not be acknowledged: nothing is given back."""
    fill(client, "old", 0, 5)
    first = query(broker, queue="old", ackOn="commit")
    first.step()
    again = restarted(broker, first, queue="new", ackOn="commit")
    with pytest.raises(SourceError, match="queues old; with ackOn=commit"):
        again.plan()
    assert client.qlen("old") == 0


def test_the_same_queues_in_another_order(broker: RealServer, client: Client) -> None:
    fill(client, "a", 0, 2)
    first = query(broker, queue="a,b")
    first.step()
    epoch = client.lease_info("g").epoch
    again = restarted(broker, first, queue="b,a")
    again.plan()
    assert client.lease_info("g").epoch == epoch


def test_a_known_group_without_a_checkpoint(broker: RealServer, client: Client) -> None:
    """It would begin with batch 0 again, which a file sink has already: rows would be lost."""
    fill(client, "q", 0, 4)
    first = query(broker, most=2)
    first.step()
    lost = query(broker, most=2)
    with pytest.raises(SourceError, match="takeover=true"):
        lost.plan()
    assert client.qlen("q") == 2, "nothing was touched"
    assert first.step() == 2
    taken = query(broker, takeover="true")
    assert taken.step() == 2, "what was read and not acknowledged"
    with pytest.raises(SourceError, match="FENCED"):
        first.plan()


def test_a_driver_that_died_before_its_first_offset(broker: RealServer, client: Client) -> None:
    """Nobody has read what it leased: the group is no other query's."""
    fill(client, "q", 0, 4)
    query(broker).plan()
    again = query(broker)
    again.step()
    again.assert_once(4)


def test_a_group_that_was_read_and_not_acknowledged(broker: RealServer, client: Client) -> None:
    fill(client, "q", 0, 4)
    first = query(broker)
    first.run(first.plan())
    with pytest.raises(SourceError, match="another checkpoint"):
        query(broker).plan()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    running = RealCluster(tmp_path_factory.mktemp("nodes"), 3)
    try:
        yield running.start()
    finally:
        running.end()


def fill_nodes(cluster: RealCluster, queue: str, count: int) -> None:
    for number, node in enumerate(cluster.nodes):
        with Client(f"tuque://127.0.0.1:{node.port}", discover=False) as client:
            fill(client, queue, number * count, count)


def test_available_now_takes_from_all_nodes(cluster: RealCluster) -> None:
    """One node is given; what is queued at the others is read, too."""
    fill_nodes(cluster, "all", 150)
    first = query(cluster.nodes[0], most=200, queue="all", group="all")
    first.leases.limit_to_now()
    while first.step():
        pass
    first.assert_once(450)
    assert len(first.done) == 3


def test_available_now_of_the_given_nodes(cluster: RealCluster) -> None:
    """Who names the nodes gets these."""
    fill_nodes(cluster, "some", 10)
    first = query(cluster.nodes[0], queue="some", group="some", nodes="given")
    first.leases.limit_to_now()
    while first.step():
        pass
    assert len(first.done) == 1


def test_a_batch_of_a_node_that_is_not_given(cluster: RealCluster) -> None:
    fill_nodes(cluster, "left", 10)
    first = query(cluster.nodes[0], queue="left", group="left")
    first.leases.limit_to_now()
    end = first.plan()
    again = query(cluster.nodes[0], queue="left", group="left")
    with pytest.raises(SourceError, match="nodes=cluster"):
        parts.parts_of(again.leases, {}, end)
    assert query(cluster.nodes[0], queue="left", group="left", nodes="cluster").run(end) == 30
