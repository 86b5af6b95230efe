"""The crawler: real pages over real sockets, and never two requests to one site at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tuque
from demo.crawler import TUBE, crawl
from demo.sites import DOMAIN, MODULES, Sites, served
from lab import RealServer, free_port
from tuque import Client

WORKERS = 8


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    server = RealServer(tmp_path).start()
    with Client(f"tuque://127.0.0.1:{server.port}") as client:
        yield client
    server.end()


@pytest.fixture
def sites() -> Iterator[Sites]:
    with served(hosts=4, ports=2) as sites:
        yield sites


def test_one_request_at_a_time_to_each_site(client: Client, sites: Sites) -> None:
    done = crawl(client, sites.start, WORKERS)
    assert {host: sites.most[host] for host in sites.hosts} == dict.fromkeys(sites.hosts, 1)
    assert sites.most["all"] >= 2, "the sites were not crawled side by side"
    assert sum(done.pages.values()) == sites.count == len(MODULES) + len(sites.hosts)
    assert max(sites.requests.values()) == 1, "a page was fetched twice"
    lost = [line for line in done.lost if "/lost.html: 404" in line]
    assert len(lost) == len(sites.hosts)
    info = client.tube(TUBE).info()
    assert (info.ready, info.taken, info.delayed, info.buried) == (0, 0, 0, 0)


@pytest.mark.slow  # the test above is the one that counts
def test_without_sub_queues_a_site_is_overrun(client: Client, sites: Sites) -> None:
    """What the test above would see if sub-queues did nothing."""
    done = crawl(client, sites.start, WORKERS, is_polite=False)
    assert sum(done.pages.values()) == sites.count
    assert max(sites.most[host] for host in sites.hosts) > 1


def test_a_site_that_is_not_there_ends_as_buried_tasks(client: Client) -> None:
    start = f"http://a{DOMAIN}:{free_port()}/"
    done = crawl(client, start, 2)
    assert done.pages == {}
    assert len(done.lost) == 1
    (task,) = client.tube(TUBE).tasks_by_state("BURIED")
    assert task.data.decode() == start
    assert client.tube(TUBE).statistics()["calls"]["release"] == 2


def test_the_program() -> None:
    source = Path(tuque.__file__).parents[1]
    made = subprocess.run(
        [sys.executable, "-m", "demo.crawler", "--workers", "4", "--sites", "2"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(source), *sys.path])},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert re.search(r"  b\.docs\.test: \d+ pages, at most 1 at once", made.stdout)
