"""Names are looked up beside the pump (SPEC L1)."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tuque.server.net.resolver import (
    LOOKUPS_MAX,
    Answer,
    Resolver,
    is_literal,
)
from until import until


@pytest.fixture
def resolver() -> Iterator[Resolver]:
    made = Resolver()
    yield made
    made.close()


def answers(resolver: Resolver, count: int) -> list[Answer]:
    """So many answers, in any order."""
    found: list[Answer] = []

    def enough() -> bool:
        select.select([resolver.wake_fd], [], [], 1)
        found.extend(resolver.take())
        return len(found) >= count

    until(enough)
    return found


def test_a_name_and_no_name(resolver: Resolver) -> None:
    resolver.ask("localhost")
    resolver.ask("no.such.host.invalid")
    by_host = {one.host: one for one in answers(resolver, 2)}
    assert by_host["localhost"].address == "127.0.0.1" and not by_host["localhost"].error
    assert not by_host["no.such.host.invalid"].address and by_host["no.such.host.invalid"].error


@pytest.mark.parametrize("host", ["", "a" * 300, "x..y", "\udcff"])
def test_what_is_no_name(resolver: Resolver, host: str) -> None:
    resolver.ask(host)
    (answer,) = answers(resolver, 1)
    assert answer.host == host


def test_a_slow_name_server_stops_nobody(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L1: host names looked up at once: 16; MEET tells why it failed"""
    may_answer = threading.Event()
    real = socket.getaddrinfo

    def slow(host: str, *args: Any, **options: Any) -> Any:
        may_answer.wait(60)
        return real("127.0.0.1", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    for number in range(LOOKUPS_MAX):
        resolver.ask(f"slow{number}")
    resolver.ask("slow0")  # is being looked up already
    resolver.ask("more")
    (refused,) = answers(resolver, 1)
    assert refused.host == "more" and "too many" in refused.error
    may_answer.set()
    assert {one.address for one in answers(resolver, LOOKUPS_MAX)} == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("host", "literal"),
    [("127.0.0.1", True), ("::1", True), ("localhost", False), ("1.2.3", False), ("", False)],
)
def test_literals(host: str, literal: bool) -> None:
    assert is_literal(host) is literal
