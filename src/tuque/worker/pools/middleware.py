"""What runs around a task: middleware, and the hooks of its app (SPEC U3).

[U3] A hook that raises is logged and changes nothing; what middleware raises is the job's.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
)
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

from tuque.logtext import facts
from tuque.worker.app.hooks import Hook, Hooks
from tuque.worker.pools.processes import SameProcess

if TYPE_CHECKING:
    from tuque.worker.pools.execute import Job

log: Final = logging.getLogger("tuque.worker")

Surround = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]


# Hooks


def tell(app: Hooks, hook: Hook[Any], job: Job, *more: Any) -> None:
    """[U3] Calls the functions of a hook in this thread; one that awaits gets a loop of its own."""
    for function in hook.functions:
        try:
            with SameProcess():  # U13.5
                found = function(job, *more)
                if inspect.isawaitable(found):
                    asyncio.run(_awaited(app, found))
        except BaseException:  # U3.4
            _log(hook, function, job)


async def tell_async(hook: Hook[Any], job: Job, *more: Any) -> None:
    """Calls the functions of a hook on the running loop."""
    for function in hook.functions:
        try:
            with SameProcess():  # U13.5
                found = function(job, *more)
                if inspect.isawaitable(found):
                    await found
        except BaseException as err:  # U3.4
            if is_halted(err):
                raise
            _log(hook, function, job)


def is_halted(err: BaseException) -> bool:
    """Whether the pool has cancelled this coroutine: others may raise CancelledError, too."""
    if not isinstance(err, asyncio.CancelledError):
        return False
    try:
        this = asyncio.current_task()
    except RuntimeError:  # a plain function: no loop runs
        return False
    return this is None or this.cancelling() > 0


async def _awaited(app: Hooks, found: Awaitable[object]) -> None:
    try:
        await found
    finally:
        await app.aclose()  # a client of this loop is useless on the next one


def _log(hook: Hook[Any], function: Any, job: Job) -> None:
    name = getattr(function, "__qualname__", repr(function))
    log.exception(
        "%(hook)s: %(function)s raised, of job %(job)s (%(task)s)",
        facts("hook_failed", hook=hook.name, function=name, job=job.id, task=job.task),
    )


# Middleware


def run_inside(app: Hooks, job: Job, body: Callable[[], Any]) -> Any:
    """[U3] Runs the body of a plain task inside the middleware (U3.5, U3.6)."""
    made = [surround(job) for surround in app.surrounds]
    plain = [one for one in made if isinstance(one, AbstractContextManager)]
    if len(plain) < len(made):
        return _run_beside_loop(app, made, body)
    with ExitStack() as stack:
        for one in plain:
            stack.enter_context(SameProcess())  # U13.5: of its end
            with SameProcess():
                stack.enter_context(one)
        return body()  # without a result if middleware takes its exception


async def await_inside(app: Hooks, job: Job, body: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Awaits the body of a coroutine task inside the middleware."""
    if not app.surrounds:
        return await body()
    async with AsyncExitStack() as stack:
        for surround in app.surrounds:
            await enter(stack, surround(job))
        return await body()  # without a result if middleware takes its exception


async def enter(stack: AsyncExitStack, one: Surround) -> Any:
    """Enters a context manager, plain or asynchronous; what it yields."""
    stack.enter_context(SameProcess())  # U13.5: of its end
    with SameProcess():
        if isinstance(one, AbstractContextManager):
            return stack.enter_context(one)
        return await stack.enter_async_context(one)


def _run_beside_loop(app: Hooks, made: list[Any], body: Callable[[], Any]) -> Any:
    """Runs a plain body while one task of a loop is inside asynchronous middleware.

    The loop stands still meanwhile: the body may run a loop itself. It sees the context variables
    that the middleware has set.
    """
    context = copy_context()
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        entered: asyncio.Future[None] = loop.create_future()
        ended: asyncio.Future[Any] = loop.create_future()

        async def surround() -> Any:
            async with AsyncExitStack() as stack:
                for one in made:
                    await enter(stack, one)
                entered.set_result(None)
                return await ended

        around = loop.create_task(surround(), context=context)
        loop.run_until_complete(
            asyncio.wait({around, entered}, return_when=asyncio.FIRST_COMPLETED)
        )
        if not around.done():
            try:
                ended.set_result(context.run(body))
            except StopIteration as err:  # a future cannot carry it
                ended.set_exception(RuntimeError(f"the task raised {err!r}"))
            except BaseException as err:
                ended.set_exception(err)
        try:
            return loop.run_until_complete(around)
        finally:
            loop.run_until_complete(app.aclose())
