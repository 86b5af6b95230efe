"""An app with lifespans; each writes a line to OUT/did, and the first fails while OUT/away is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from e2e_tasks import note

from tuque.worker import App, Middleware, current_job

app = App()


@app.lifespan
@contextmanager
def plain() -> Iterator[None]:
    note("plain enter")
    away = Path(os.environ["OUT"], "away")
    if away.exists():
        if not away.read_text():
            away.unlink()
        raise OSError("the database is away")
    try:
        yield
    finally:
        note("plain leave")


class Opens(Middleware):
    """Opens something that belongs to the loop and to the task that opened it."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[dict[str, Any]]:
        note("later enter")
        async with asyncio.timeout(600):
            yield {"loop": asyncio.get_running_loop(), "pid": os.getpid()}
        note("later leave")
        raise OSError("it does not close")


app.use(Opens())


@app.task(queue="q")
def plainly() -> bool:
    note("job")
    return bool(current_job().state["pid"] == os.getpid())


@app.task(queue="q", retry_s=0)
def ends() -> None:
    """Ends its process; the next one cannot enter."""
    Path(os.environ["OUT"], "away").write_text("for ever")
    os._exit(3)


@app.task(queue="q")
async def on_loop() -> bool:
    note("job")
    return current_job().state["loop"] is asyncio.get_running_loop()
