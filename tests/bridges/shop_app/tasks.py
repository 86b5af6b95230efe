"""Tasks of a shop, as a project has them."""

from __future__ import annotations

import asyncio
from typing import Any

from tuque.django.tasks_api import TaskContext, task_api

seen: list[Any] = []


class OutOfStock(Exception):
    """The shop has none left."""


@task_api.task
def add(a: int, b: int = 0) -> int:
    return a + b


@task_api.task
async def add_later(a: int, b: int = 0) -> int:
    await asyncio.sleep(0)
    return a + b


@task_api.task
def fail(text: str) -> None:
    raise OutOfStock(text)


@task_api.task(takes_context=True)
def flaky(context: TaskContext, good_at: int) -> int:
    seen.append((context.attempt, context.task_result.status, list(context.task_result.errors)))
    if context.attempt < good_at:
        raise OutOfStock(f"not at {context.attempt}")
    return context.attempt


@task_api.task(takes_context=True)
def seen_id(context: TaskContext) -> str:
    return context.task_result.id


@task_api.task
def odd() -> Any:
    return object()
