"""A program as users write it: tasks of two apps, and things that they need."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import dataclass

from tuque.worker import App, Backoff, Reject, RetryLater, current_job

app = App("tuque://broker.example.org:7711")
other = App("tuque://other.example.org:7711", queue="other")


class Smtp:
    """A mail server that can be down."""

    def __init__(self) -> None:
        self.is_up = True
        self.sent: list[tuple[str, str]] = []

    def up(self) -> None:
        self.is_up = True

    def down(self) -> None:
        self.is_up = False

    def send(self, to: str, text: str) -> None:
        if not self.is_up:
            raise OSError("connection refused")
        self.sent.append((to, text))


smtp = Smtp()
did: list[str] = []
is_closed = [False]


@dataclass
class Image:
    width: int
    made: dt.date


@app.task(queue="mail", attempts=3, backoff=Backoff(2, 120))
def send(to: str, text: str) -> None:
    smtp.send(to, text)


def sign_up(name: str) -> None:
    send.enqueue(name, text=f"Welcome, {name}!")


@app.task
def resize(url: str, width: int = 100) -> Image:
    did.append(f"{url} {current_job().attempt}")
    return Image(width, dt.date(2026, 1, 2))


@app.task
async def count_to(last: int) -> int:
    for at in range(last):
        current_job().progress({"done": at})
        await asyncio.sleep(3600)
    return last


@app.task
async def passes_on(url: str) -> str:
    handle = await resize.enqueue_async(url)
    return handle.id


@app.task(attempts=1, keep_s=60)
def sync(shop: str) -> None:
    did.append(f"{current_job().attempt} {current_job().starts}")
    if is_closed[0]:
        raise RetryLater("shop is closed", delay_s=600)


@app.task(attempts=9)
def rejects(text: str) -> None:
    raise Reject(f"never {text}")


@app.task(retry_s=0)
def once(text: str) -> None:
    raise OSError(text)


@app.task
def again() -> None:
    again.enqueue()


@other.task
def double(number: int) -> int:
    return 2 * number


@other.task
def asks(number: int) -> int:
    return double.enqueue(number).result(timeout=1)
