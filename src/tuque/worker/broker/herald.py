"""Announces the worker to its node, at intervals, and hears what an operator wants of it.

An outage is not reported here: the loops that fetch and tell of runs do that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from tuque import __version__, aio
from tuque.client.commands.operate import Order
from tuque.errors import Error, ReplyError
from tuque.logtext import facts
from tuque.worker.broker.link import pause

log: Final = logging.getLogger("tuque.worker")

EVERY_S: Final = 3.0
BYE_S: Final = 2.0
QUEUES_MAX: Final = 100  # that a node takes (O11.6)
TEXT_BYTES: Final = 255  # of the version that a node takes
QUEUES_BYTES: Final = 8_192  # of their names


class Herald:
    """Says that the worker lives, as long as it does."""

    def __init__(
        self,
        client: aio.Client,
        name: str,
        queues: tuple[str, ...],
        app: str,
        figures: Callable[[], dict[str, Any]],
        orders: dict[str, Callable[[], None]],
    ) -> None:
        """`app` is the version of the tasks, or empty.

        `figures` are the arguments of `worker_here` that change; `orders` do what is asked.
        """
        self._client = client
        self._name = name
        self._queues = fitting(queues)
        self._app = app.encode("utf-8", "surrogateescape")[:TEXT_BYTES]
        self._figures = figures
        self._orders = orders
        self._is_known = True  # the node knows the command
        self._has_news = asyncio.Event()
        self._talks = asyncio.Lock()

    async def loop(self) -> None:
        """[U6] Announces the worker at intervals (U6.1)."""
        while True:
            async with self._talks:
                if self._is_known:
                    with contextlib.suppress(Error):
                        await self.announce()
            await pause(EVERY_S, self._has_news)
            self._has_news.clear()

    async def announce(self) -> None:
        """[U6] Announces it once, with the version of the app (U6.3)."""
        host, _, pid = self._name.rpartition("/")
        try:
            order: Order = await self._client.worker_here(
                self._name,
                host=host or socket.gethostname(),
                pid=int(pid) if pid.isdigit() else 0,
                version=__version__,
                app=self._app,
                queues=self._queues,
                timeout=EVERY_S,
                **self._figures(),
            )
        except ReplyError as err:
            self._is_known = "unknown command" not in err.message
            if "syntax error" in err.message:
                self._app = b""  # an older node: the next word is without it
            return
        self.ordered(self._name, order)

    def ordered(self, name: str, order: str) -> None:
        """[U6] Does what is asked of this worker (U6.2)."""
        if name == self._name and order in self._orders:
            log.info("an operator asks this worker: %(order)s", facts("order_taken", order=order))
            self._orders.pop(order)()
            self._has_news.set()

    async def leave(self) -> None:
        """Says that the worker has ended."""
        with contextlib.suppress(Error, TimeoutError):
            async with asyncio.timeout(BYE_S), self._talks:
                if self._is_known:
                    await self._client.worker_bye(self._name)
                self._is_known = False  # the loop says no more


def fitting(queues: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the queues, the first ones, that a node takes (O11.6)."""
    found: list[str] = []
    left = QUEUES_BYTES
    for name in queues[:QUEUES_MAX]:
        left -= len(name.encode("utf-8", "surrogateescape"))
        if left < 0:
            break
        found.append(name)
    return tuple(found)
