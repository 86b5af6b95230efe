"""Lists of tubes and groups come a page at a time, and cost the nodes no more than a page."""

from __future__ import annotations

import re

import pytest
from web_console import Console, Reader, figures, until
from web_nodes import WebCluster

from tuque.clusterview.queues import PAGE
from tuque.web.pages.cluster import verdict

TUBES = 3 * PAGE + 10
GROUPS = 2 * PAGE + 5
COST = 4 * PAGE + 60  # commands at all nodes: of one page, and what the console asks anyhow


@pytest.fixture(scope="module")
def full(cluster: WebCluster) -> WebCluster:
    """Tubes whose homes are two nodes, with a task here and there; and groups of leases."""
    for at in range(2):
        with cluster[at].client() as client:
            with client.pipeline() as pipe:
                for number in range(at, TUBES, 2):
                    pipe.tube(f"post-{number:03}").create("fifottl", alone=True)
                pipe.execute()
            client.tube(f"post-{PAGE + at:03}").put("a letter")
    with cluster[0].client() as client, client.pipeline() as pipe:
        for number in range(GROUPS):
            pipe.lease_open(f"group-{number:03}", "owner", "mail")
        pipe.execute()
    return cluster


@pytest.fixture
def admin(full: WebCluster, console: Console) -> Reader:
    return console.client()


def names_of(html: str, start: str) -> list[str]:
    """The names of a page's rows."""
    return re.findall(rf">({start}-\d+)<", html)


def commands(cluster: WebCluster) -> int:
    """The commands that the nodes have run."""
    total = 0
    for node in cluster.nodes:
        with node.client() as client:
            total += int(client.info("stats")["total_commands_processed"])
    return total


def cost(cluster: WebCluster, reader: Reader, path: str) -> int:
    """The commands for a page; the least of some tries, since a console looks meanwhile."""
    costs = []
    for _ in range(3):
        before = commands(cluster)
        reader.get(path)
        costs.append(commands(cluster) - before)
    return min(costs)


def test_tubes_come_page_by_page(admin: Reader) -> None:
    first = admin.get("/tubes").text
    assert names_of(first, "post") == [f"post-{number:03}" for number in range(PAGE)]
    assert f"Rows 1 to {PAGE} of {TUBES} tubes" in first and "next</a>" in first
    second = admin.get("/tubes", at=str(PAGE)).text
    assert names_of(second, "post")[0] == f"post-{PAGE:03}" and "before</a>" in second
    page = figures(second)
    for at in range(2):  # as their two homes show them
        assert page["tube_ready", f"tube=post-{PAGE + at:03}"] == 1
    assert names_of(admin.get("/tubes", page="2").text, "post")[0] == f"post-{PAGE:03}"
    last = admin.get("/tubes", at="99999").text
    assert names_of(last, "post") == [f"post-{TUBES - 1:03}"]


def test_tubes_are_found_by_name(admin: Reader) -> None:
    text = admin.get("/tubes", match="*-0?7").text
    assert names_of(text, "post") == [f"post-{number:03}" for number in range(7, 100, 10)]
    assert f"10 that fit of {TUBES} tubes" in text
    assert names_of(admin.get("/tubes", match="POST -159").text, "post") == ["post-159"]
    assert "No tube fits" in admin.get("/tubes", match="nothing").text


def test_a_page_of_tubes_costs_a_page(admin: Reader, full: WebCluster) -> None:
    assert cost(full, admin, "/tubes") <= COST
    assert cost(full, admin, "/cluster") <= COST - 4 * PAGE
    text = admin.get("/cluster").text
    assert text.count(f", {TUBES // 2} tubes<") == 2
    until(lambda: "Any one node" in admin.get("/cluster").text, "have all tubes copied")


def test_tubes_that_do_not_fail_over_are_counted(admin: Reader, console: Console) -> None:
    """O14.19 That any one node may stop is shown of tubes only if all fail over; else Cluster
    has how many do not
    """
    said = f"may stop now, but for {TUBES} tubes"  # without journals none fails over
    until(lambda: said in admin.get("/cluster").text, "count them")
    assert f"{TUBES} tubes do not fail over, and hand out nothing" in admin.get("/cluster").text
    found = verdict(console.site.watch.view(), [], 1)
    assert found["title"] == "may stop now, but for 1 tube" and found["kind"] == "warn"
    assert "all tubes fail over" in verdict(console.site.watch.view(), [])["why"]


def test_groups_come_page_by_page(admin: Reader, full: WebCluster) -> None:
    assert cost(full, admin, "/leases") <= COST
    first = admin.get("/leases").text
    assert names_of(first, "group") == [f"group-{number:03}" for number in range(PAGE)]
    assert f"Rows 1 to {PAGE} of {GROUPS} groups" in first
    assert names_of(admin.get("/leases", page="2").text, "group")[0] == f"group-{PAGE:03}"
    last = admin.get("/leases", at=str(2 * PAGE)).text
    assert names_of(last, "group")[-1] == f"group-{GROUPS - 1:03}"
    assert names_of(admin.get("/leases", match="104").text, "group") == ["group-104"]
