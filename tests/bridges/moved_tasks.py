"""Tasks that have moved from Celery to Tuque, under their names."""

from __future__ import annotations

import datetime as dt

from tuque.worker import App, Backoff

app = App()


@app.task(name="shop.double", queue="moved.celery")
def double(number: int) -> int:
    return 2 * number


@app.task(name="shop.total", queue="moved.celery")
async def total(numbers: list[int], more: int = 0) -> int:
    return sum(numbers) + more


@app.task(name="shop.week", queue="moved.celery")
def week(day: dt.date) -> int:
    return day.isocalendar().week


@app.task(name="shop.fails", queue="moved.celery", attempts=2, backoff=Backoff(0.01, 0.01))
def fails(number: int) -> int:
    raise ValueError(f"not {number}")
