"""Tenants in the console: what each has, and its queues alone (SPEC N11.5)."""

from __future__ import annotations

from web_console import Console, figures, until
from web_nodes import WebCluster

from tuque.client.commands.operate import QueueOrder
from tuque.clusterview.figures import NodeFacts
from tuque.web.pages.cluster import tenants_of
from tuque.web.pages.queues import wish_of


def facts(id: str, **info: str) -> NodeFacts:
    return NodeFacts(id, "", 0.0, 0.0, dict(info), [], {}, 0)


def test_sums_over_nodes() -> None:
    lines = {
        "tenants": "2",
        "tenant_shop": "users=2,connections=1,queues=3,jobs=5/10,bytes=9,refused=1",
    }
    other = {"tenant_shop": "users=2,connections=4,queues=1,jobs=8/10,bytes=1,refused=0"}
    other["tenant_bank"] = "users=1,connections=0,queues=0,jobs=0,bytes=0,refused=0"
    bank, shop = tenants_of([facts("node-one", **lines), facts("node-two", **other)])
    assert (shop.users, shop.connections, shop.queues, shop.jobs) == (2, 5, 3, 13)
    assert (shop.bytes, shop.refused, shop.share, shop.fullest) == (10, 1, 80.0, "jobs at node-two")
    assert (bank.name, bank.share) == ("bank", -1.0)


def test_a_filter_by_tenant() -> None:
    order: QueueOrder = "oldest"
    assert wish_of("all", "tenant:shop", order, True).match == "shop/*"


def test_the_pages(console: Console, cluster: WebCluster) -> None:
    admin = console.client()
    for node in cluster.nodes:
        with node.client() as client:
            for name in ("shop", "bank"):
                words = ("on", ">secret", "+@all", "~*", f"tenant:{name}", "quota:jobs=4")
                client.execute("ACL", "SETUSER", name, *words)
    with cluster[0].client() as client:
        for queue in ("shop/mail", "shop/mail", "bank/mail", "mail"):
            client.execute("ADDJOB", queue, "x", 0, "REPLICATE", 1)
    at = ("tenant_jobs", "tenant=shop")
    until(lambda: figures(admin.get("/cluster").text).get(at) == 2, "show what each has")
    text = admin.get("/cluster").text
    assert 'href="/queues?match=tenant%3Ashop"' in text
    assert "50 %" in text
    until(lambda: "bank/mail" in admin.get("/queues").text, "have read the queues")
    own = admin.get("/queues", match="tenant:shop").text
    assert "shop/mail" in own and "bank/mail" not in own
