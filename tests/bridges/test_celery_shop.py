"""A shop of Celery with its URLs changed and nothing else: the same outcomes as with Redis."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery_lab import Shop, redis_server

from tuque import Client
from tuque.testing.nodes import TestNode
from until import until

OUTCOMES = {
    "order": "7: 33",
    "mail": 2,
    "refund": "order 3 has no payment",
    "refund state": "FAILURE",
    "remind": True,
    "link": 10,
    "group": [10] * 5,
    "bad chord": "ValueError",
    "crawl is slow": True,
}
EFFECTS = {
    "price 7": 1,
    "parcel 7 0": 1,
    "parcel 7 1": 1,
    "parcel 7 2": 1,
    "packed 7": 1,
    "invoice 7 33": 1,
    "on_success shop.invoice": 1,
    "mail you@example.org 0": 1,
    "mail you@example.org 1": 1,
    "mail you@example.org 2": 1,
    "mail you@example.org 3": 0,
    "on_retry shop.mail": 2,
    "retried shop.mail": 2,
    "on_success shop.mail": 1,
    "prerun shop.mail": 3,
    "failed shop.refund": 2,
    "on_failure shop.refund ValueError('order 3 has no payment')": 1,
    "link": 1,
    "link_error": 1,
    "refuse": 1,
    "packed 30": 0,
    "revoked": 0,
    "revoked by hand shop.note": 1,
    "too late": 0,
}
ORDER = ["pick 0", "pick 3", "pick 6", "pick 9"]  # as Redis has it: the smallest first


@pytest.fixture
def tuque(tmp_path: Path) -> Iterator[Shop]:
    place = tmp_path / "node"
    place.mkdir()
    with TestNode(place) as node:
        shop = Shop(tmp_path / "shop", node.url)
        yield shop
        shop.close()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Shop]:
    pytest.importorskip("redis", reason="redis is not installed: make setup-dev")
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    with redis_server(tmp_path) as port:
        shop = Shop(tmp_path / "shop", f"redis://127.0.0.1:{port}")
        yield shop
        shop.close()


def a_day_of(shop: Shop, *pool: str) -> None:
    """The outcomes and effects of a shop with one worker are those that are expected."""
    shop.python("found = shop.before_the_worker()")
    worker = shop.worker(*pool)
    assert shop.python("found = shop.outcomes(60)") == OUTCOMES
    # what nobody waits for may come after the outcomes
    until(lambda: all(shop.effects()[name] >= n for name, n in EFFECTS.items()), worker.text)
    seen = shop.effects()
    assert {name: seen[name] for name, n in EFFECTS.items() if seen[name] != n} == {}
    lines = (shop.place / "effects").read_text().splitlines()
    assert [line for line in lines if line.startswith("pick")] == ORDER
    if pool[:2] != ("-P", "solo"):
        assert shop.python("found = shop.terminated(60)") == "REVOKED"
    assert worker.stop() == 0


def test_a_day_of_the_shop(tuque: Shop) -> None:
    a_day_of(tuque, "-c", "1")
    with Client(tuque.env["SHOP_URL"]) as client:
        assert client.qlen("celery.dead") == 1  # the one that was rejected
        assert client.qlen("celery") == 0


@pytest.mark.slow
def test_a_day_of_the_shop_is_the_same_with_redis(redis: Shop) -> None:
    a_day_of(redis, "-c", "1")
