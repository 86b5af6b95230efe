"""An app with lifespans; each writes a line to OUT/did.

The first one fails while OUT/away is there, hangs while OUT/hangs is, at its end while OUT/stays
is, and takes 400 MB while OUT/fills is.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from e2e_tasks import note

from tuque.worker import App, Middleware, current_job
from tuque.worker.pools import child, pools
from tuque.worker.run import quarantine

vars(pools)["SLOW_S"] = 0.2
if "SOON" in os.environ:
    vars(pools)["LEAVE_S"] = vars(child)["LEAVE_S"] = 0.2
vars(quarantine)["STUCK_S"] = 0.5
app = App()


@app.lifespan
@contextmanager
def plain() -> Iterator[None]:
    note("plain enter")
    out = Path(os.environ["OUT"])
    while (out / "hangs").exists():
        time.sleep(0.1)
    fills = b""
    if (out / "fills").exists():
        time.sleep(0.5)  # longer than the worker takes to begin
        fills = b"x" * 400_000_000
    away = out / "away"
    if away.exists():
        if not away.read_text():
            away.unlink()
        raise OSError("the database is away")
    try:
        yield
    finally:
        del fills
        while (out / "stays").exists():
            time.sleep(0.1)
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
def ends_once() -> int:
    """Ends its process while two of it run; the next one cannot enter."""
    if Path(os.environ["OUT"], "ended").exists():
        return current_job().attempt
    note("runs")
    while Path(os.environ["OUT"], "did").read_text().count("runs") < 2:
        time.sleep(0.01)
    Path(os.environ["OUT"], "away").write_text("for ever")
    Path(os.environ["OUT"], "ended").touch()
    os._exit(3)


@app.task(queue="q")
async def on_loop() -> bool:
    note("job")
    return current_job().state["loop"] is asyncio.get_running_loop()
