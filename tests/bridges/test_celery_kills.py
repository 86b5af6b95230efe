"""Orders of a shop of Celery while workers and nodes are killed: no task and no chord is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery_lab import Shop

from tuque import Client
from tuque.testing.nodes import TestCluster, TestNode
from until import until

MANY, FEW = 20, 1
BETWEEN = 3  # orders that end between two kills
KEPT = ("--set", "appendonly=yes")
ENDS_S = 120.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestNode]:
    (tmp_path / "node").mkdir()
    with TestNode(tmp_path / "node", *KEPT) as started:
        yield started


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TestCluster]:
    with TestCluster(tmp_path / "nodes", 3, *KEPT, "--cluster-node-timeout", "1500") as started:
        yield started


@pytest.fixture
def open_shop(tmp_path: Path) -> Iterator[Callable[[str], Shop]]:
    """A shop at a URL, with a worker, which takes orders."""
    opened: list[Shop] = []

    def made(url: str) -> Shop:
        shop = Shop(tmp_path / "shop", url)
        opened.append(shop)
        shop.worker("-c", "2")
        shop.run("shop.take_orders()")
        return shop

    yield made
    for one in opened:
        one.close()


def invoices(shop: Shop) -> int:
    """How many orders have ended."""
    return sum(name.startswith("invoice") for name in shop.effects())


def kill_between_orders(shop: Shop, count: int, kill: Callable[[int], None]) -> None:
    """So many kills, each after some more orders have ended."""
    for number in range(count):
        seen = invoices(shop)
        until(lambda seen=seen: invoices(shop) >= seen + BETWEEN, shop.texts, most_s=ENDS_S)
        kill(number)


def check_whole(shop: Shop) -> None:
    """Each order that was taken has all its effects and its result; nothing is a dead letter."""
    (shop.place / "closed").touch()
    assert shop.producer is not None and shop.producer.wait(60) == 0
    until(lambda: not shop.python("found = shop.missing()"), shop.texts, most_s=ENDS_S)
    assert shop.python("found = shop.results(60)") == []
    with Client(shop.env["SHOP_URL"]) as client:
        assert client.qlen("celery.dead") == 0


def lose_workers(shop: Shop, count: int) -> None:
    def kill(number: int) -> None:
        shop.running[-1].kill()
        shop.worker("-c", "2")

    kill_between_orders(shop, count, kill)
    check_whole(shop)


def lose_the_node(shop: Shop, node: TestNode, count: int) -> None:
    def kill(number: int) -> None:
        node.kill()
        node.start()

    kill_between_orders(shop, count, kill)
    check_whole(shop)


def lose_one_of_three(shop: Shop, cluster: TestCluster, count: int) -> None:
    def kill(number: int) -> None:
        lost = cluster[number % 3]
        lost.kill()
        seen = invoices(shop)
        until(lambda: invoices(shop) > seen, shop.texts, most_s=ENDS_S)  # without it
        lost.start()
        cluster.wait_formed()

    kill_between_orders(shop, count, kill)
    check_whole(shop)


OpenShop = Callable[[str], Shop]


def test_no_order_is_lost_with_a_worker(open_shop: OpenShop, node: TestNode) -> None:
    lose_workers(open_shop(node.url), FEW)


def test_no_order_is_lost_with_the_node(open_shop: OpenShop, node: TestNode) -> None:
    lose_the_node(open_shop(node.url), node, FEW)


def test_no_order_is_lost_with_one_of_three_nodes(
    open_shop: OpenShop, cluster: TestCluster
) -> None:
    lose_one_of_three(open_shop(cluster.url), cluster, FEW)


@pytest.mark.slow
def test_no_order_is_lost_with_many_workers(open_shop: OpenShop, node: TestNode) -> None:
    lose_workers(open_shop(node.url), MANY)


@pytest.mark.slow
def test_no_order_is_lost_when_the_node_dies_often(open_shop: OpenShop, node: TestNode) -> None:
    lose_the_node(open_shop(node.url), node, MANY)


@pytest.mark.slow
def test_no_order_is_lost_when_nodes_die_in_turn(open_shop: OpenShop, cluster: TestCluster) -> None:
    lose_one_of_three(open_shop(cluster.url), cluster, MANY)
