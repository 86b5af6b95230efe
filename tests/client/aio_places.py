"""Programs that use a client for asyncio where one might not expect it (SPEC U14).

`python aio_places.py NAME URL` runs one of them. The test says what it prints.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from tuque import aio

NAME, URL = sys.argv[1:]
client = aio.Client(URL)


async def ask(asked: asyncio.Event | None = None) -> None:
    """Uses the client that there is, and makes another one."""
    async with aio.Client(URL) as new:
        print(await client.ping(), await new.ping(), flush=True)
    if asked is not None:
        asked.set()


def error_of(run: Callable[[Any], object], call: Coroutine[Any, Any, object]) -> None:
    """Prints the error of a call."""
    try:
        run(call)
    except RuntimeError as err:
        print(err, flush=True)
    finally:
        call.close()


async def in_handler(set_up: Callable[[asyncio.AbstractEventLoop, asyncio.Event], object]) -> None:
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    await client.ping()
    set_up(loop, asked)
    loop.call_soon(signal.raise_signal, signal.SIGUSR1)
    await asked.wait()
    await client.close()


def handler_of_the_loop() -> None:
    def set_up(loop: asyncio.AbstractEventLoop, asked: asyncio.Event) -> None:
        loop.add_signal_handler(signal.SIGUSR1, lambda: kept.append(loop.create_task(ask(asked))))

    kept: list[object] = []
    asyncio.run(in_handler(set_up))


def signal_handler() -> None:
    def set_up(loop: asyncio.AbstractEventLoop, asked: asyncio.Event) -> None:
        def handler(*_: object) -> None:
            asyncio.run_coroutine_threadsafe(ask(asked), loop)

        signal.signal(signal.SIGUSR1, handler)

    asyncio.run(in_handler(set_up))


def run_in_a_signal_handler() -> None:
    def set_up(loop: asyncio.AbstractEventLoop, asked: asyncio.Event) -> None:
        def handler(*_: object) -> None:
            error_of(asyncio.run, ask())
            asked.set()

        signal.signal(signal.SIGUSR1, handler)

    asyncio.run(in_handler(set_up))


class Held:
    """What only the collector ends."""

    def __init__(self, at_end: Callable[[], object]) -> None:
        self.me = self
        self.at_end = at_end

    def __del__(self) -> None:
        self.at_end()


def collected() -> None:
    Held(lambda: asyncio.run(ask()))
    gc.collect()


def collected_beside_a_loop() -> None:
    async def main() -> None:
        loop, asked = asyncio.get_running_loop(), asyncio.Event()
        await client.ping()
        Held(lambda: asyncio.run_coroutine_threadsafe(ask(asked), loop))  # which runs
        await asyncio.to_thread(gc.collect)
        await asked.wait()

    asyncio.run(main())


def forked() -> None:
    async def main() -> None:
        await client.ping()
        if os.fork() == 0:
            asyncio.run(ask())
            os._exit(0)
        os.wait()
        print(await client.ping())

    asyncio.run(main())


def forked_and_left_by_exit() -> None:
    """The call of the parent goes on when that of the child, a copy, is cancelled."""

    async def main() -> None:
        getting = asyncio.create_task(client.getjob("q", timeout_ms=3000))
        await client.ping()
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
        await client.qlen("q")  # the node replies to GETJOB now
        print(len(await getting), flush=True)
        os._exit(0)  # asyncio itself, in the child, has taken the pipe that wakes this loop

    asyncio.run(main())


def forked_in_the_loop_of_its_parent() -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(client.ping())
    if os.fork() == 0:
        error_of(loop.run_until_complete, client.ping())
        os._exit(0)
    os.wait()
    print(loop.run_until_complete(client.ping()))


def at_exit() -> None:
    asyncio.run(client.ping())
    atexit.register(lambda: asyncio.run(ask()))


def two_loops() -> None:
    async def main() -> None:
        await client.ping()
        await asyncio.to_thread(error_of, asyncio.run, client.ping())

    asyncio.run(main())
    asyncio.run(ask())


globals()[NAME]()
