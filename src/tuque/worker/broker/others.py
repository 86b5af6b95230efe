"""The nodes beside the one in use that know the worker: they hear the same (SPEC U6.1).

Decides how long a node that does not answer is tried. A client of its own for each; what they
answer is the herald's business.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tuque import aio
from tuque.client.retry import Retry
from tuque.client.url import Settings, url_of
from tuque.errors import Error

T = TypeVar("T")

CALL_S: Final = 2.0
CONNECT_S: Final = 1.0
TRIED_S: Final = 3_600.0  # a node forgets a lost worker then (O11.4)


class Others:
    """Clients of nodes by their places, `host:port`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clients: dict[str, aio.Client] = {}
        self._answered: dict[str, float] = {}  # monotonic s

    def add(self, place: str) -> None:
        """Adds a node, if it is new; unix sockets have no other nodes."""
        host, colon, port = place.rpartition(":")
        if place in self._clients or not colon or not port.isdigit():
            return
        self._clients[place] = aio.Client(
            url_of(self._settings, host.strip("[]"), int(port)),
            discover=False,
            follow=False,
            timeout=CALL_S,
            connect_timeout=CONNECT_S,
            login_timeout=CONNECT_S,
            retry=Retry(attempts=1),
            max_connections=1,  # what is said comes in its order
        )
        self._answered[place] = time.monotonic()

    async def ask(self, call: Callable[[aio.Client], Awaitable[T]], but: str = "") -> list[T]:
        """What those answer that do, without the place `but`; drops one silent for too long."""
        answers: list[T] = []

        async def one(place: str, client: aio.Client) -> None:
            try:
                answers.append(await call(client))
                self._answered[place] = time.monotonic()
            except Error:
                if time.monotonic() - self._answered[place] > TRIED_S:
                    self._clients.pop(place, None)
                    await client.close()

        every = list(self._clients.items())
        await asyncio.gather(*(one(place, client) for place, client in every if place != but))
        return answers

    async def close(self) -> None:
        """Ends all connections."""
        for client in self._clients.values():
            await client.close()
        self._clients.clear()
