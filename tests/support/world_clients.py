"""The shipped client and worker at the nodes of a world, without sockets.

A call is carried out at once; one that has to wait lets the world's time pass. Decides which node
a connection leads to; what clients and workers do is theirs.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from sim.machines.kernel import CLIENT_PORT, CLIENTS, host_of, place_of
from tuque.client.api import Arg, Reply
from tuque.client.retry import Retry
from tuque.client.transport import sockets
from tuque.client.url import Address
from tuque.core.node.node import Node
from tuque.errors import ConnectionError, Error
from tuque.testing.app import QUIET, TestApp
from tuque.testing.links import HereClient, HereLink, Near, Words
from tuque.worker.app.app import App
from tuque.worker.app.task import Task
from world_wires import RawWire

if TYPE_CHECKING:
    from world import World

FAR_MS: Final = 3_600_000  # a world in which nothing will ever be due
TRIES: Final = Retry(base_s=0.0, cap_s=0.0, attempts=3)  # of a call: nothing changes meanwhile


def url_of(*numbers: int) -> str:
    """The URL of some nodes."""
    hosts = ",".join(f"{host_of(f'n{i}')}:{CLIENT_PORT}" for i in numbers)
    return f"tuque://{hosts}"


class Channel(RawWire):
    """A connection of the shipped client."""

    def __init__(self, world: World, i: int) -> None:
        self.on_data: Any = None
        super().__init__(world, i, CLIENTS)

    @property
    def heard(self) -> bytearray:
        """What the client has not read."""
        return self.unread

    def say(self, *pieces: bytes) -> bytes:
        """Bytes for the node; the client reads what it answers."""
        self.put(b"".join(pieces))
        return b""

    def came(self, data: bytes) -> None:
        super().came(data)
        if self.on_data is not None:
            self.on_data()

    def hang_up(self) -> None:
        """The client's end is closed."""
        self.close()


class BrokerAt:
    """One node as the broker of clients in this process."""

    def __init__(self, world: World, i: int) -> None:
        self.world = world
        self.i = i
        self.lock = threading.RLock()
        self.is_alone = len(world.machines) == 1

    @property
    def node(self) -> Node:
        return self.world.node(self.i).core

    @property
    def now_ms(self) -> int:
        return self.world.now_ms

    def connect(self) -> Channel:
        try:
            return Channel(self.world, self.i)
        except OSError as e:
            raise ConnectionError(str(e), node=host_of(f"n{self.i}")) from None

    def rest(self) -> None:
        self.world.settle()

    def next_ms(self) -> int:
        return min(self.world.next_ms(), self.now_ms + FAR_MS)

    def advance(self, until_ms: int) -> None:
        self.world.pass_ms(max(0, until_ms - self.now_ms))

    def close(self) -> None:
        """The node stays."""


class DeskAt:
    """What a client of a node sees of its world."""

    def __init__(self, broker: BrokerAt) -> None:
        self.broker: Near = broker
        self.lost: str | None = None

    def loses(self, commands: list[Words]) -> bool:
        names = [str(command[0]) for command in commands]
        if self.lost is None or names[0] in QUIET or (self.lost and self.lost not in names):
            return False
        self.lost = None
        return True

    def seen(self, command: Words, reply: Reply) -> None:
        """Nobody asks for it."""

    def waits(self, command: tuple[Arg, ...]) -> Error | None:
        """Time passes while it waits."""

    def pass_time(self, until_ms: int) -> None:
        self.broker.advance(until_ms)


class ClientAt(HereClient):
    """The client for threads, which begins at one node and knows the others if it is told."""

    def __init__(self, world: World, i: int, *, others: bool = False) -> None:
        """`others`: it also turns to the other nodes."""
        count = len(world.machines)
        numbers = [i, *(k for k in range(count) if k != i and others)]
        self.desks = [DeskAt(BrokerAt(world, k)) for k in range(count)]
        super().__init__(self.desks[i], url_of(*numbers), retry=TRIES, discover=others)

    def _dial(self, address: Address, deadline_s: float) -> sockets.Link:
        return HereLink(address, self.desks[int(place_of(address.host)[1:])])

    def lose_reply(self, command: str = "") -> None:
        """The next command of that name, or any, is carried out; its reply is lost."""
        for desk in self.desks:
            desk.lost = command.upper()


class WorkerAt(TestApp):
    """The worker of an app at a node, one step at a time; while it exists, the app talks to it."""

    def __init__(self, world: World, app: App, i: int) -> None:
        self._world = world
        self._at = i
        self._app = app
        super().__init__(world.seed)
        self._workers = 100 * len(world.workers)  # its name is its own

    def _make_broker(self) -> Near:
        return BrokerAt(self._world, self._at)

    def _tasks(self) -> dict[str, Task[..., Any]]:
        return dict(self._app.tasks)

    def kill(self, at: str = "end") -> None:
        """The worker of the next job is killed at the `start` or `end` of its task."""
        self.kill_worker(at)

    def lose_reply(self, command: str = "") -> None:
        """The next command of that name, or any, is carried out; its reply is lost."""
        self.lose_next_answer(command or None)
