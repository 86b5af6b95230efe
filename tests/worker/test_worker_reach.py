"""SPEC U1: what an enqueue costs while the broker is away, and jobs that are added as they come."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

import e2e_tasks as tasks
import pytest
from test_worker_pools import MAKERS, call, run_calls

from lab import RealServer
from tuque.client.transport.sockets import KEEP_ALIVE_S
from tuque.errors import EnqueueFailed, MaxLen, NoNode, ReplyError, Timeout
from tuque.worker import App, Call, Task
from tuque.worker.app import enqueue
from tuque.worker.app.enqueue import Reach
from until import until
from world import World


def holds(data: bytes) -> None: ...


def of(app: App) -> Task[[int, int], int]:
    """A task of the app."""
    return app.task(queue="q", name="adds")(tasks.adds.function)


@pytest.fixture
def silent() -> Iterator[tuple[str, list[int]]]:
    """The URL of a port that takes connections and says nothing; it counts them."""
    taken: list[int] = []
    held: list[socket.socket] = []

    def takes() -> None:
        while True:
            try:
                held.append(door.accept()[0])
            except OSError:
                return
            taken.append(len(held))

    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=takes)
        thread.start()
        yield f"tuque://127.0.0.1:{door.getsockname()[1]}", taken
        door.shutdown(socket.SHUT_RDWR)
        thread.join()
    for one in held:
        one.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_the_error_of_a_large_job_has_its_size(
    is_async: bool, node: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U1.1 `enqueue` adds one job with the options of its task (W1) and the header `tuque-task`,
    or raises.
    """
    monkeypatch.setattr(enqueue, "BIG_BYTES", 1 << 20)
    app, large = App(node.url), b"x" * 786_432
    task = app.task(queue="q", name="holds")(holds)
    with node.wire() as wire, asyncio.Runner() as runner:
        assert wire("CONFIG", "SET", "max-body-bytes", "1mb") == b"OK"
        try:
            with pytest.raises(EnqueueFailed, match=r"1 of 2 .* body of 1048\d+ bytes"):
                if is_async:
                    runner.run(task.enqueue_many_async([task.call(b"x"), task.call(large)]))
                else:
                    task.enqueue_many([task.call(b"x"), task.call(large)])
            for one in (task, task.options(key="other")):
                add = (
                    partial(runner.run, one.enqueue_async(large))
                    if is_async
                    else (partial(one.enqueue, large))
                )
                with pytest.raises(ReplyError, match=r"body of 1048\d+ bytes, and a broker takes"):
                    add()
        finally:
            wire("CONFIG", "SET", "max-body-bytes", "64mb")
            app.close()


def test_a_large_job_that_no_node_answers_fails_no_other() -> None:
    reach = Reach(2.0)
    reach.failed(Timeout("no answer", node="a:1"), bytes(16 << 20))
    assert not reach.is_lost
    reach.failed(Timeout("no answer", node="a:1"), b"small")
    assert reach.is_lost


@pytest.mark.parametrize("is_async", [False, True])
def test_a_silent_node_fails_an_enqueue_soon(is_async: bool, node: RealServer) -> None:
    """U1.19 A node that is silent for `enqueue_timeout_s` of the app (2) fails an enqueue with
    Timeout; the job may have been added.
    """
    app = App(node.url, enqueue_timeout_s=0.3)
    task = of(app)
    with asyncio.Runner() as runner:

        def enqueue() -> object:
            return runner.run(task.enqueue_async(1, 2)) if is_async else task.enqueue(1, 2)

        enqueue()
        node.stand_still()
        try:
            began_s = time.monotonic()
            with pytest.raises(Timeout, match=r"enqueue_timeout_s is 0\.3 s") as found:
                enqueue()
            assert found.value.may_be_done
            with pytest.raises(NoNode, match=r"away .* asked once a second: .* in time") as at_once:
                enqueue()
            assert time.monotonic() - began_s < 4, "the timeout of a call is 5 s"
            assert not at_once.value.may_be_done and at_once.value.retryable
        finally:
            node.go_on()
        until(lambda: is_added(enqueue))
        runner.run(app.aclose())
    app.close()


def test_many_that_enqueue_at_once_fail_soon(node: RealServer) -> None:
    """U1.19 fails an enqueue with Timeout"""
    app = App(f"{node.url}/?max_connections=1", enqueue_timeout_s=0.3)
    task = of(app)

    async def many() -> list[object]:
        await task.enqueue_async(1, 2)
        node.stand_still()
        try:
            every = (task.enqueue_async(at, 1) for at in range(9))
            return await asyncio.gather(*every, return_exceptions=True)
        finally:
            node.go_on()
            await app.aclose()

    began_s = time.monotonic()
    assert all(isinstance(one, NoNode | Timeout) for one in asyncio.run(many()))
    assert time.monotonic() - began_s < 2.5, "they do not wait for one another"


def is_added(enqueue: Callable[[], object]) -> bool:
    try:
        enqueue()
    except NoNode:
        return False
    return True


def test_one_enqueue_a_second_asks_a_broker_that_is_away(
    silent: tuple[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """U1.19 After that, or after NoNode, one call a second asks the broker first, with PING; all
    others raise NoNode at once, until it has answered.
    """
    monkeypatch.setattr("tuque.worker.app.enqueue.PROBE_S", 0.1)
    url, taken = silent
    app = App(f"{url}/?search_timeout=0.02")
    task = of(app)
    many = [task.call(1, 2)] * 3
    failed = 0
    began_s = time.monotonic()
    while time.monotonic() - began_s < 0.6:
        with pytest.raises(NoNode):
            task.enqueue(1, 2)
        with pytest.raises(EnqueueFailed, match="3 of 3 jobs were not added") as found:
            task.enqueue_many(many)
        assert not found.value.may_be_done
        failed += 2
    assert failed > 4 * len(taken), "most of them asked nobody"
    assert 1 <= len(taken) <= 2 + 2 * (time.monotonic() - began_s) / 0.1
    app.close()


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", ["enqueues", "enqueues_async"])
def test_tasks_that_enqueue_are_not_held_up(
    kind: str, name: str, silent: tuple[str, list[int]]
) -> None:
    """U1.19 all others raise NoNode at once, until it has answered."""
    (outcome,) = run_calls(MAKERS[kind], call(name, f"{silent[0]}/?search_timeout=0.05"))
    assert outcome.text.startswith("NoNode: not sent: the broker was away ")


def test_the_limit_of_an_enqueue_is_a_time() -> None:
    """U1.19 A node that is silent for `enqueue_timeout_s` of the app (2)"""
    assert App().reach.limit_s == 2
    with pytest.raises(ValueError, match="enqueue_timeout_s is more than 0"):
        App(enqueue_timeout_s=0)
    with pytest.raises(TypeError, match="enqueue_timeout_s is a number of seconds"):
        App(enqueue_timeout_s="2")  # type: ignore[arg-type]  # the mistake under test
    assert KEEP_ALIVE_S == 30


@pytest.mark.parametrize("is_async", ["", "of an iterable", "of an asynchronous one"])
def test_handles_come_as_jobs_are_added(is_async: str, world: World) -> None:
    """U1.20 `enqueue_iter` takes 500 calls at a time from an iterable, adds their jobs, and yields
    the handles in the same order. `enqueue_iter_async` takes an asynchronous iterable, too.
    """
    app = App()
    task = of(app)
    world.worker(app)
    made: list[int] = []

    def calls() -> Iterator[Call[int]]:
        for at in range(1200):
            made.append(at)
            yield task.call(at, 1)

    seen: list[tuple[int, int]] = []

    async def rows() -> AsyncIterator[Call[int]]:
        for one in calls():
            yield one

    async def many() -> None:
        given = rows() if is_async == "of an asynchronous one" else calls()
        async for handle in task.enqueue_iter_async(given):
            assert handle.id
            seen.append((len(made), world.qlen()))

    if is_async:
        asyncio.run(many())
    else:
        seen += [(len(made), world.qlen()) for _ in task.enqueue_iter(calls())]
    assert (seen[0], seen[499], seen[500]) == ((500, 500), (500, 500), (1000, 1000))
    assert len(seen) == world.qlen() == 1200


def test_an_iterator_of_calls_that_fails(world: World) -> None:
    """U1.20 An error ends it: `added` of EnqueueFailed has handles that were not yielded, and the
    places are those in the iterable.
    """
    app = App()
    task = of(app)
    world.worker(app)
    full = task.options(queue="full", maxlen=1)
    calls = [*(task.call(at, 1) for at in range(500)), full.call(1, 1), full.call(2, 2)]
    found = task.enqueue_iter([*calls, task.call(9, 9)])
    assert len([next(found) for _ in range(500)]) == 500
    with pytest.raises(EnqueueFailed, match=r"1 of 3 jobs were not added \(calls 501\)") as failed:
        next(found)
    assert list(failed.value.added) == [500, 502]
    assert isinstance(failed.value.failed[501], MaxLen)
    wrong = [*calls[:500], App().task(name="o")(tasks.adds.function).call(1, 1)]
    found = task.enqueue_iter(wrong)
    with pytest.raises(ValueError, match="call 500 is of o, not of adds"):
        list(found)
    assert world.qlen() == 1001
    with pytest.raises(TypeError, match="enqueue_many takes calls"):
        task.enqueue_iter(3)  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize("is_async", ["", "of an iterable", "of an asynchronous one"])
def test_the_error_of_an_iterable_says_what_was_added(is_async: str, world: World) -> None:
    """U1.20 What the iterable raises, or the program about one of its calls, names in a note the
    calls that were added.
    """
    app = App()
    task = of(app)
    world.worker(app)

    def calls() -> Iterator[Call[int]]:
        for at in range(503):
            yield task.call(at, 1)
        raise OSError("the file ends")

    async def rows() -> AsyncIterator[Call[int]]:
        for one in calls():
            yield one

    async def many() -> None:
        given = rows() if is_async == "of an asynchronous one" else calls()
        async for _ in task.enqueue_iter_async(given):
            pass

    with pytest.raises(OSError, match="the file ends") as found:
        asyncio.run(many()) if is_async else list(task.enqueue_iter(calls()))
    assert found.value.__notes__ == ["call 503 of enqueue_many: calls before 500 were added"]
    assert world.qlen() == 500
