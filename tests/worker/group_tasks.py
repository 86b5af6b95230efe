"""Tasks that a worker of test_worker_groups.py runs in groups."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tuque.worker import App, Backoff, Failed, Limit, Reject, current_job
from tuque.worker.pools import execute
from tuque.worker.workflow import chain_steps, create

app = App("tuque://127.0.0.1:1")


def note(line: str) -> None:
    """Adds a line for the test."""
    with (Path(os.environ["OUT"]) / "did").open("a") as out:
        out.write(line + "\n")


@app.task(queue="numbers", attempts=2, retry_s=2, backoff=Backoff(0.05, 0.1))
def square(number: int, fails: bool = False) -> int:
    note(f"square {number}")
    if fails:
        raise Reject("it was to fail") if number % 2 else ValueError("it was to fail")
    return number * number


@app.task(queue="numbers")
async def half(number: int) -> float:
    return number / 2


@app.task(queue="numbers", retry_s=1, backoff=Backoff(0.05, 0.1))
def plus_one(number: int) -> int:
    """Adds one. The first run of 100 dies when its next step has been added."""
    note(f"plus {number}")
    if number == 100 and len((Path(os.environ["OUT"]) / "did").read_text().split("plus 100")) == 2:
        chain_of = chain_steps.goes_on

        def dies(*args: Any) -> Any:
            chain_of(*args)
            os._exit(9)

        execute.goes_on = dies
    return number + 1


def ends_at(point: str) -> None:
    """The process ends at that point of the group that it makes next."""
    if point == "all are added":
        create.parts = lambda _: os._exit(9)
    elif point == "all is done":
        chain_of = chain_steps.goes_on

        def dies(*args: Any) -> Any:
            chain_of(*args)
            os._exit(9)

        execute.goes_on = dies
    else:
        children = iter({"it is made": [1], "a child is added": [0, 1]}[point])
        app.on_enqueue(lambda _: os._exit(9) if next(children) else None)


@app.task(queue="numbers", retry_s=1, attempts=9, backoff=Backoff(0.05, 0.1))
def makes(number: int, point: str) -> int:
    """A step before a group; its first run ends the process."""
    note(f"makes {number}")
    if (Path(os.environ["OUT"]) / "did").read_text().count("makes") == 1:
        ends_at(point)
    return number


@app.task(queue="picked", retry_s=2, attempts=20)
def pick(numbers: list[int]) -> int:
    note(f"pick {max(numbers)} {current_job().id}")
    return max(numbers)


@app.task(queue="numbers", attempts=1, retry_s=30)
def once(number: int) -> int:
    note(f"once {number}")
    return number


@app.task(queue="steps", replicate=2)
def copied(number: int) -> str:
    return f"<{number}>"


@app.task(queue="steps")
async def as_text(number: int) -> str:
    note(f"text {number} {current_job().id}")
    return f"<{number}>"


@app.task(queue="sums")
def add_up(numbers: list[int]) -> None:
    note(f"sum {sum(numbers)} {current_job().id}")


@app.task(queue="sums")
async def add_halves(numbers: list[float]) -> None:
    note(f"halves {sum(numbers)} {current_job().id}")


@app.task(queue="sums", retry_s=5)
def count(numbers: list[int | Failed]) -> None:
    good = [one for one in numbers if not isinstance(one, Failed)]
    how = sorted({one.how for one in numbers if isinstance(one, Failed)})
    note(f"count {len(numbers)} {sum(good)} {len(numbers) - len(good)} {how} {current_job().id}")


@app.task(queue="numbers", attempts=3, retry_s=1, backoff=Backoff(0.05, 0.1))
def flaky(number: int) -> int:
    note(f"flaky {number}")
    if number % 10 < 3 and current_job().attempt == 1:
        raise ValueError("not yet")
    return number


@app.task(queue="sums", retry_s=5)
def listed(numbers: list[int]) -> list[int]:
    note(f"listed {current_job().id}")
    return numbers


@app.task(queue="totals")
def total(numbers: list[float]) -> int:
    return int(sum(numbers))


@app.task(queue="taken", limit=Limit(8), retry_s=2, attempts=20)
def taken(number: int) -> int:
    note(f"taken {number} {current_job().id}")
    return number + 1


@app.task(queue="slow", retry_s=2, attempts=20)
def slowly(numbers: list[int]) -> int:
    """Waits until the test lets it go on."""
    note(f"slowly {current_job().id}")
    until = time.monotonic() + 60
    while not (Path(os.environ["OUT"]) / "go").exists() and time.monotonic() < until:
        time.sleep(0.02)
    return sum(numbers)


@app.task(queue="guarded", limit=Limit(8), retry_s=60, attempts=1, keep_s=600)
def guarded(number: int) -> int:
    """Waits until the test lets it go on; in a tube of which each node is to have a copy."""
    note(f"guarded {number}")
    until = time.monotonic() + 60
    while not (Path(os.environ["OUT"]) / "go").exists() and time.monotonic() < until:
        time.sleep(0.02)
    return number


@app.task(queue="short", maxlen=1)
def short(number: int) -> int:
    return number


@app.task(queue="odd", limit=Limit(1))
def odd(number: int) -> int:
    return number


@app.task(queue="any")
def anything(value: object) -> None:
    pass
