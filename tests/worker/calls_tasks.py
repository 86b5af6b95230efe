"""Tasks that count the Python calls of their worker, in all of its threads."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

from tuque.worker import App

app = App()
counts: list[Counter[CodeType]] = []  # of each thread: no two of them write to one
is_counted = threading.Event()


def follow(_frame: FrameType | None, _event: str, _argument: object) -> None:
    """Counts the calls of this thread from now on."""
    count: Counter[CodeType] = Counter()
    counts.append(count)

    def on_event(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and is_counted.is_set():
            count[frame.f_code] += 1

    sys.setprofile(on_event)


if "COUNTED" in os.environ:  # in the worker, not in the test
    follow(None, "", None)
    threading.setprofile(follow)


@app.task(queue="calls")
def begin() -> None:
    is_counted.set()


@app.task(queue="calls")
def work(number: int) -> None:
    pass


@app.task(queue="calls")
def end() -> None:
    """Writes how many calls a run of `work` took, and of which functions."""
    is_counted.clear()
    total: Counter[CodeType] = Counter()
    for count in counts:
        total.update(count.copy())
    runs = total[work.function.__code__]
    rows = [(calls / runs, code.co_qualname) for code, calls in total.most_common()]
    lines = [f"{calls:.2f} {name}" for calls, name in [(total.total() / runs, "in all"), *rows]]
    new = Path(os.environ["OUT"]) / "new"
    new.write_text("\n".join(lines))
    new.replace(new.with_name("did"))
