"""README and the tour, command by command: what a newcomer types is what runs here."""

from __future__ import annotations

import re
import socket

import pytest
from newcomer import ROOT, Tour, blocks

from tuque.cli.programs import free_ports
from until import until

READY = "ready to accept connections"
PAGES = ("README.md", "docs/tour.md")
BLOCKS = blocks(*PAGES)


def block(start: str, language: str = "") -> str:
    """The one block of the pages that contains `start`."""
    (found,) = [text for kind, text in BLOCKS if start in text and kind == language]
    return found


def served(page: str) -> str:
    """The command of the page that starts a node."""
    lines = [line for _, text in blocks(page) for line in text.splitlines()]
    (line,) = {line for line in lines if line.startswith("tuque server")}
    return line


def test_the_tour(tour: Tour) -> None:
    node = tour.start(served("README.md"))
    tour.printed(READY)
    assert tour.sh("tuque cli PING") == "PONG\n"

    add, get, ack, stat = block("tuque cli ADDJOB").strip().splitlines()
    job = tour.sh(add).strip()
    assert job in tour.sh(get)
    assert tour.sh(ack.replace("D-...", job)) == "1\n"
    assert "letters" in tour.sh(stat)

    assert "b'hello'" in tour.python(block("with tuque.Client", "python"))
    assert "b'hello again'" in tour.python(block("tuque.aio.Client", "python"))

    assert "0 https://a.example/1 None" in tour.python(block("client.tube", "python"))

    shop = block("from tuque.worker import App", "python").replace("7711", tour.port)
    (tour.place / "shop.py").write_text(shop)
    work, enqueue = block("tuque worker shop:app").strip().splitlines()
    worker = tour.start(work)
    assert tour.sh(enqueue).splitlines() == ["True", "invoice over 700"]
    tour.printed("to you@example.org: hello")
    until(lambda: "each night" in tour.sh("tuque schedule list nightly"))
    assert tour.stop(worker) == 0

    kept = tour.sh("tuque cli ADDJOB kept body 1000").strip()
    assert tour.stop(node) == 0
    check, show = block("tuque journal check").strip().splitlines()
    tour.sh(check)
    assert kept in tour.sh(show)
    node = tour.start(served("docs/tour.md"))
    tour.printed(READY, 2)
    assert kept in tour.sh(f"tuque cli SHOW {kept}")
    assert tour.stop(node) == 0


def ports_in_a_row(count: int) -> int:
    """The first of so many free ports whose bus ports are free too."""
    while True:
        first = free_ports(1)[0]
        try:
            for port in range(first, first + count):
                for one in (port, port + 10_000):
                    with socket.create_server(("127.0.0.1", one)):
                        pass
        except OSError:
            continue
        return first


def test_the_cluster(tour: Tour) -> None:
    first = ports_in_a_row(3)

    def at_free_ports(text: str) -> str:
        return text.replace("7801", str(first)).replace("7803", str(first + 2)).strip()

    dev = tour.start(at_free_ports(block("tuque cluster dev")))
    tour.printed("stop     Ctrl-C")
    status, add, get, drain, again = at_free_ports(block("tuque cluster status")).splitlines()
    assert tour.sh(status).count(" up ") == 3
    job = tour.sh(add).strip()
    assert job in tour.sh(get)
    assert "safe to stop" in tour.sh(drain)
    assert "safe to stop" in tour.sh(f"! {again}")  # K7.7: status 1 while a node leaves
    assert tour.stop(dev) == 0


def test_the_report(tour: Tour) -> None:
    pytest.importorskip("duckdb")
    node = tour.start(served("docs/tour.md"))
    tour.printed(READY)
    tour.sh("tuque cli ADDJOB mail hello 5000")
    assert tour.stop(node) == 0
    tour.sh(block("tuque report").strip(), timeout_s=180)
    assert "mail" in (tour.place / "report" / "report.html").read_text()


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_links_to_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert ((ROOT / page).parent / target).exists(), target
