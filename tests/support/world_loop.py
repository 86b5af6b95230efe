"""The worker that ships, on an event loop whose time is the world's: all of it but the process.

Its loops fetch, beat and report as in a process, over connections of the world. Nothing goes on
until the test lets it: `until` and `pass_ms`. Decides nothing of what workers do.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from in_world import in_this_thread
from sim.machines.kernel import CLIENTS, place_of
from tuque import aio
from tuque.client.api import Arg
from tuque.client.retry import Retry
from tuque.errors import Error
from tuque.testing.worker import HandAside, without_loop
from tuque.worker.app.app import App
from tuque.worker.app.decisions import Outcome
from tuque.worker.pools.execute import Call, await_call, run_call
from tuque.worker.pools.pools import OnEnd, Running, Tasks, set_places
from tuque.worker.run.jobs import WorkerSettings
from tuque.worker.run.worker import Worker
from world_clients import WorkerAt, url_of
from world_wires import RawWire

if TYPE_CHECKING:
    from world import World

T = TypeVar("T")

MS: Final = 1_000
END_MS: Final = 60_000  # a worker that is to end has done so by then


class WorldSelector(selectors.DefaultSelector):
    """Where the loop waits: the world goes on to what is due next, to the loop's timer at most."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.end_us = 0
        self.has_news = False  # for a connection of the loop, at this instant
        self.is_over: Callable[[], object] = lambda: True
        self.stop: Callable[[], object] = lambda: None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        clock = self.world.time
        self.has_news = False
        self.world.settle()
        if self.is_over():
            self.stop()
        elif not self.has_news and (timeout is None or timeout > 0):
            due_us = self.end_us
            if timeout is not None:
                ms = max(1, math.ceil(timeout * 1e3))  # the world stands at whole milliseconds
                due_us = min(due_us, clock.now_us + ms * MS)
            clock.run(max(clock.now_us, min(due_us, clock.next_us())))
            if clock.now_us >= self.end_us:
                self.stop()
        return super().select(0)


class WorldLoop(asyncio.SelectorEventLoop):
    """The event loop of all workers of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waits = WorldSelector(world)
        self.shifts: list[asyncio.Task[bool]] = []
        super().__init__(self.waits)
        self.waits.stop = self.stop

    def time(self) -> float:
        return self.world.time.now_us / 1e6

    def run_to(self, end_us: int, is_over: Callable[[], object]) -> None:
        """Run until it is over, or the time is; clocks show the time of the world meanwhile."""
        self.waits.end_us = end_us
        self.waits.is_over = lambda: is_over() or self.failed()
        with self.clocks():
            self.run_forever()
        if (error := self.failed()) is not None:
            raise error

    @contextmanager
    def clocks(self) -> Iterator[None]:
        """What programs read as the time is that of the world, meanwhile."""
        kept = time.monotonic, time.time
        time.monotonic = in_this_thread(self.time, time.monotonic)
        time.time = in_this_thread(lambda: self.world.now_ms / 1000, time.time)
        try:
            yield
        finally:
            time.monotonic, time.time = kept

    def failed(self) -> BaseException | None:
        """What ended a worker that nobody had told to end."""
        ended = [one for one in self.shifts if one.done() and not one.cancelled()]
        return next((error for one in ended if (error := one.exception())), None)

    def run(self, coroutine: Coroutine[Any, Any, T], most_ms: int = END_MS) -> T:
        """Let time pass until the coroutine has ended; what it returns."""
        task = self.create_task(coroutine)
        self.world.until(task.done, most_ms)
        return task.result()

    def end(self) -> None:
        """End all that runs, and the loop."""
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        end_us = self.world.time.now_us + END_MS * MS
        self.run_to(end_us, lambda: all(task.done() for task in tasks))
        self.close()

    async def create_connection(self, protocol_factory: Any, *args: Any, **_: Any) -> Any:
        """A connection to a node of the world."""
        protocol = protocol_factory()
        i = int(place_of(args[0])[1:])
        wire = LoopWire(self, i, protocol)
        return wire.transport, protocol


class LoopWire(RawWire):
    """The network's end of a connection of the loop."""

    def __init__(self, loop: WorldLoop, i: int, protocol: asyncio.Protocol) -> None:
        self.loop, self.protocol = loop, protocol
        super().__init__(loop.world, i, CLIENTS)
        self.transport = WorldTransport(self)
        protocol.connection_made(self.transport)

    def came(self, data: bytes) -> None:
        self._call(self.protocol.data_received, data)

    def lost(self) -> None:
        self._call(self.protocol.connection_lost, None)

    def _call(self, call: Callable[[Any], object], word: bytes | None) -> None:
        self.loop.waits.has_news = True
        self.loop.call_soon(call, word)


class WorldTransport(asyncio.Transport):
    """The loop's end of a connection."""

    def __init__(self, wire: LoopWire) -> None:
        super().__init__()
        self.wire = wire

    def write(self, data: Any) -> None:
        if not self.wire.is_closed:
            self.wire.put(bytes(data))

    def abort(self) -> None:
        if not self.wire.is_closed:
            self.wire.close()
            self.wire.lost()


class LoopPool:
    """Runs coroutines on the worker's own loop, and functions at once."""

    def __init__(self, tasks: Tasks, places: int) -> None:
        self.tasks = tasks
        self.places = places
        set_places(tasks, places)
        self.running = Running(lambda: self.on_ready())
        self.on_ready: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """It is ready."""

    def submit(self, call: Call, on_end: OnEnd) -> None:
        """Run one job to its end."""
        self.running.submit(self._run(call), call, on_end)

    async def _run(self, call: Call) -> Outcome:
        task = self.tasks[call.envelope.task]
        if task.is_async:
            return await await_call(task, call)
        return without_loop(lambda: run_call(task, call))

    async def stop(self) -> bool:
        """End the coroutines."""
        await self.running.drop()
        return True

    async def drop(self) -> None:
        """End the coroutines of a worker that was killed."""
        await self.running.drop()


class LoopWorker(Worker):
    """The worker, without a thread for hooks."""

    aside_of = HandAside


class AppAt(WorkerAt):
    """What an app talks to, whose jobs workers on the loop run."""

    def __init__(self, world: World, app: App, at: tuple[int, ...]) -> None:
        super().__init__(world, app, at[0])
        self._url = url_of(*at)
        self._on_loop: aio.Client | None = None

    def waits(self, command: tuple[Arg, ...]) -> Error | None:
        """Workers work while it waits."""

    def aio_client_of(self, app: App) -> aio.Client:
        """On the loop the one that ships, which knows the other nodes."""
        if self._on_loop is None:
            self._on_loop = aio.Client(self._url)
        return self._on_loop


class Shift:
    """A worker of an app at work at a node, until it is told to stop or the world ends."""

    def __init__(self, world: World, app: App, url: str, settings: WorkerSettings) -> None:
        self.world = world
        self.ended: asyncio.Task[bool] = world.loop.create_task(self._work(app, url, settings))
        world.loop.shifts.append(self.ended)
        self._worker: Worker | None = None

    async def _work(self, app: App, url: str, settings: WorkerSettings) -> bool:
        async with aio.Client(
            url,
            retry=Retry(attempts=0),
            name="worker",
            on_cancel=self._cancel,
            on_order=self._order,
        ) as client:
            pool = LoopPool(app.tasks, settings.concurrency)
            self._worker = LoopWorker(app.tasks, client, pool, settings, None, None, app)
            return await self._worker.run()

    def _cancel(self, job_id: str, run: str) -> None:
        self.worker.cancel(job_id, run)

    def _order(self, name: str, order: str) -> None:
        self.worker.ordered(name, order)

    @property
    def worker(self) -> Worker:
        """The worker itself."""
        assert self._worker is not None, "time has to pass before it begins"
        return self._worker

    def ends(self, most_ms: int = END_MS) -> bool:
        """Wait for its end: whether it left nothing behind. Raises what ended it."""
        self.world.until(self.ended.done, most_ms)
        return self.ended.result()

    def stop(self) -> None:
        """Tell it to stop, as a signal does."""
        self.worker.stop()

    def kill(self) -> None:
        """End it with no word to anybody, as a crash does."""
        self.ended.cancel()


def shift_of(world: World, app: App, at: tuple[int, ...], settings: dict[str, Any]) -> Shift:
    """A worker of the app at these nodes; what is not said is as for `-c 1`."""
    if not world.workers:
        talks = AppAt(world, app, at)
        talks.__enter__()
        world.workers.append(talks)
    queues = settings.pop("queues", app.queues)
    words = {"concurrency": 1, "prefetch": settings.get("concurrency", 1), **settings}
    return Shift(world, app, url_of(*at), WorkerSettings(tuple(queues), **words))
