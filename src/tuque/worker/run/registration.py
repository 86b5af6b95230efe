"""What a worker tells its nodes of itself: that it lives, at intervals (SPEC U6), and the schedules
of its app, at its start (SPEC U9). Orders of operators come the same way.

An outage is not reported here: the loops that fetch and report do that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from tuque import __version__, aio
from tuque.client.commands.operate import Order
from tuque.client.retry import Retry
from tuque.client.routing.nodes import GOOD_PRIORITY
from tuque.client.url import Address, Settings, url_of
from tuque.errors import Error, ReplyError
from tuque.logtext import facts
from tuque.worker.app.app import App
from tuque.worker.app.enqueue import Planned, is_final, send_plan_async
from tuque.worker.run.crash_table import CrashTable, new_mark
from tuque.worker.run.link import RECONNECT, pause

T = TypeVar("T")

CALL_S: Final = 2.0
CONNECT_S: Final = 1.0
TRIED_S: Final = 3_600.0  # a node forgets a lost worker then (O11.4)

log: Final = logging.getLogger("tuque.worker")

EVERY_S: Final = 3.0
LOOK_S: Final = 0.5  # whether the node in use is another one
BYE_S: Final = 2.0
QUEUES_MAX: Final = 100  # that a node takes (O11.6)
TEXT_BYTES: Final = 255  # of the version that a node takes
QUEUES_BYTES: Final = 8_192  # of their names


def worker_name(box: CrashTable | None) -> str:
    """[U6] The name under which runs begin: all processes of one parent have the same (U6.4)."""
    pid, mark = (os.getpid(), new_mark()) if box is None else (os.getppid(), box.name_mark)
    return f"{socket.gethostname()}/{pid}-{mark}"


# ---- Other nodes that know the worker get the same calls as the one in use (SPEC U6.1)
#
# Decides how long a node that does not answer is tried. A client of its own for each; what they
# answer is for the registration.


class PeerClients:
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


# ---- The loop that registers the worker


class Registration:
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
        self._began = time.monotonic()  # an age needs no clock that is right
        self._knows_age = True
        self._figures = figures
        self._orders = orders
        self._is_known = True  # the node knows the command
        self._place = ""  # of the node that heard it last
        self._others = PeerClients(client.settings)
        self._has_news = asyncio.Event()
        self._talks = asyncio.Lock()
        self._round: asyncio.Task[list[None]] | None = None  # with the other nodes

    async def loop(self) -> None:
        """[U6] Announces the worker at intervals (U6.1)."""
        while True:
            async with self._talks:
                if self._is_known:
                    with contextlib.suppress(Error):
                        await self.announce()
            until_s = time.monotonic() + EVERY_S
            while time.monotonic() < until_s and not self._has_news.is_set():
                await pause(LOOK_S, self._has_news)
                if self._client.node not in ("", self._place):
                    break
            self._has_news.clear()

    async def announce(self) -> None:
        """[U6] Announces it once, to the node in use and to those used before (U6.1)."""
        if self._round is None or self._round.done():  # one that hangs delays nothing here
            self._round = asyncio.create_task(self._others.ask(self._say, self._place))
        await self._say(self._client)
        if self._place and self._place != self._client.node:
            self._others.add(self._place)
        self._place = self._client.node

    async def _say(self, client: aio.Client) -> None:
        """[U6] Says HERE to a node, with the version of the app (U6.3); does what it replies."""
        host, _, rest = self._name.rpartition("/")
        pid = rest.partition("-")[0]  # U6.4
        try:
            order: Order = await client.worker_here(
                self._name,
                host=host or socket.gethostname(),
                pid=int(pid) if pid.isdigit() else 0,
                version=__version__,
                app=self._app,
                age_ms=self._age_ms,
                queues=self._queues,
                timeout=EVERY_S,
                **self._figures(),
            )
        except ReplyError as err:
            self._is_known = "unknown command" not in err.message
            if "syntax error" in err.message:
                self._app, self._knows_age = b"", False  # an older node: next time without
            return
        self.ordered(self._name, order)

    @property
    def _age_ms(self) -> int:
        """[U6] How long ago the worker began, at least 1; 0 for a node that is older (U6.3)."""
        return max(1, int((time.monotonic() - self._began) * 1000)) if self._knows_age else 0

    def ordered(self, name: str, order: str) -> None:
        """[U6] Does what is asked of this worker (U6.2)."""
        if name == self._name and order in self._orders:
            log.info("an operator asks this worker: %(order)s", facts("order_taken", order=order))
            self._orders.pop(order)()
            self._has_news.set()

    async def leave(self) -> None:
        """[U6] Says that the worker has ended, to all nodes that may know it (U6.1)."""
        await self._end_round()
        was_known = self._is_known
        with contextlib.suppress(Error, TimeoutError):
            async with asyncio.timeout(BYE_S), self._talks:
                self._is_known = False  # the loop says no more
                if was_known:
                    await self._client.worker_bye(self._name)
                    await self._meet_all()
        if was_known:
            await self._others.ask(self._bye, self._client.node)

    async def close(self) -> None:
        """Ends all connections of its own."""
        await self._end_round()
        await self._others.close()

    async def _bye(self, client: aio.Client) -> None:
        await client.worker_bye(self._name)

    async def _end_round(self) -> None:
        if self._round is not None:
            self._round.cancel()
            await asyncio.gather(self._round, return_exceptions=True)

    async def _meet_all(self) -> None:
        """Adds the nodes in reach: a process before this one may have used them."""
        if self._client.settings.discover:
            told = await self._client.hello()
            for one in told.nodes:
                if one.id != told.id and one.host and one.priority <= GOOD_PRIORITY:
                    self._others.add(str(Address(one.host, one.port)))


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


# ---- The schedules of the app (SPEC U9)


async def send_plans(app: App, client: aio.Client, rng: random.Random) -> None:
    """Tries until the broker has them; what it refuses is logged, and the worker works on."""
    failures = 0
    due = list(app.schedules.values())
    while due:
        due = [one for one in due if not await _is_settled(client, one)]
        failures += 1
        if due:
            await asyncio.sleep(RECONNECT.delay_s(failures, rng))


async def _is_settled(client: aio.Client, one: Planned) -> bool:
    """Tells the broker a schedule; False: the broker is away, or takes nothing now."""
    try:
        what = await send_plan_async(client, one)
    except Exception as err:
        if not is_final(err):
            if not isinstance(err, Error):
                raise
            return False  # the link says that the broker is away
        log.warning(
            "schedule %(schedule)s of queue %(queue)s is not in force: %(reason)s",
            facts("schedule_refused", schedule=one.name, queue=one.call.options.queue, reason=err),
        )
        return True
    if what != "unchanged":
        log.info(
            "schedule %(schedule)s was %(outcome)s",
            facts("schedule_registered", schedule=one.name, outcome=what),
        )
    return True
