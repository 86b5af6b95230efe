"""`tuque topics` at a real node (SPEC T61)."""

from __future__ import annotations

import json

from console_node import Run

from tuque import Client


def test_topics(port: int, tuque: Run) -> None:
    """T61.1 SUBSCRIBE replies 1 if the subscription is new or gets other filters or
    patterns, else 0."""
    words = ("topics", "subscribe", "-p", port, "orders", "abroad", "--filter", "country=[!d]*")
    assert tuque(*words).stdout == b"subscribed\n"
    assert tuque(*words).stdout == b"it was subscribed\n"
    assert tuque("topics", "list", "-p", port).stdout == b"orders  abroad  country=[!d]*\n"
    listed = tuque("topics", "list", "-p", port, "orders", "--json")
    assert json.loads(listed.stdout)["filters"] == {"country": "[!d]*"}
    added = tuque("topics", "add", "-p", port, "orders", "hello", "--header", "country=fr")
    with Client(f"tuque://127.0.0.1:{port}") as client:
        (job,) = client.getjob("abroad", timeout_ms=10_000)
    assert (job.id.encode() + b"\n", job.body) == (added.stdout, b"hello")
    unheard = tuque("topics", "add", "-p", port, "orders", "hello")
    assert (unheard.stdout, unheard.returncode) == (b"", 0)
    assert unheard.stderr == b"no queue gets this job of topic orders\n"
    for option in ("--filter", "--header"):
        verb = "subscribe" if option == "--filter" else "add"
        wrong = tuque("topics", verb, "-p", port, "orders", "x", option, "country")
        assert wrong.returncode == 2 and b"'country' is not " in wrong.stderr
        twice = tuque("topics", verb, "-p", port, "orders", "x", option, "a=1", option, "a=2")
        assert twice.returncode == 2 and b"'a' is given twice" in twice.stderr
    gone = ("topics", "unsubscribe", "-p", port, "orders", "abroad")
    assert tuque(*gone).stdout == b"unsubscribed\n"
    assert tuque(*gone).stdout == b"there was no such subscription\n"
