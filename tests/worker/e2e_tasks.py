"""The app of the worker tests with a real node: its tasks write what they did to OUT/did."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from pathlib import Path

import msgspec

from tuque.worker import App, Backoff, RetryLater, current_job

if "OUT" in os.environ:  # in a worker
    import short_waits  # noqa: F401  what it does is enough

app = App()
SOON = Backoff(first_s=0.05, max_s=0.2)


def out() -> Path:
    return Path(os.environ["OUT"])


def note(text: str) -> None:
    """Appends one line; lines of several processes do not mix."""
    fd = os.open(out() / "did", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{text}\n".encode())
    os.close(fd)


def wait_for_file(name: str) -> None:
    deadline = time.monotonic() + 60
    while not (out() / name).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@app.task(queue="q", retry_s=60)
def record(text: str) -> None:
    note(text)


@app.task(queue="q", retry_s=60, attempts=5)
def record_when(text: str) -> None:
    note(f"{text} {time.monotonic()}")


@app.task(queue="q", retry_s=60, codec="msgpack")
async def record_async(text: str) -> None:
    await asyncio.sleep(0)
    note(text)


@app.task(queue="q", retry_s=60)
async def passes_on(text: str) -> None:
    note(f"pass on {text}")
    await record.enqueue_async(f"{text} passed on")


@app.task(queue="q", retry_s=60, backoff=SOON)
def third_time_lucky(text: str) -> None:
    number = current_job().number
    note(f"{text} {number}")
    if number < 3:
        raise ValueError(f"not on attempt {number}")


@app.task(queue="q", retry_s=60, backoff=SOON, max_deliveries=3, dead_letter="graves")
def never(text: str) -> None:
    note(f"{text} {current_job().number}")
    raise ValueError("no, never")


@app.task(queue="q", retry_s=60, backoff=SOON, max_deliveries=2)
def bad_address(text: str) -> None:
    logging.getLogger("tests").warning("to %s", text)
    raise ValueError(f"bad address {text}")


@app.task(queue="q", retry_s=3)
def longer_than_retry(text: str, seconds: float) -> None:
    note(f"begin {text}")
    time.sleep(seconds)
    note(f"end {text}")


@app.task(queue="q", retry_s=60)
def until_file(text: str, name: str) -> None:
    note(f"begin {text}")
    wait_for_file(name)
    note(f"end {text}")


@app.task(queue="q", retry_s=60)
async def for_ever(text: str) -> None:
    note(f"begin {text} {current_job().number}")
    await asyncio.sleep(3600)


@app.task(queue="q", retry_s=2)
def takes_a_moment(number: int) -> None:
    time.sleep(0.02)
    note(str(number))


@app.task(queue="q", retry_s=60, backoff=SOON)
def tells_its_pid(text: str) -> None:
    """Hangs at the first attempt, so that the test can end its process."""
    note(f"{current_job().number} {os.getpid()}")
    if current_job().number == 1:
        time.sleep(3600)


@app.task(queue="q", retry_s=60, backoff=SOON, time_limit_s=0.3, max_deliveries=2)
def over_its_limit(text: str) -> None:
    note(f"begin {text}")
    time.sleep(3600)


@app.task(queue="q", retry_s=300, backoff=SOON, time_limit_s=0.3)
def late_at_first(text: str, name: str) -> None:
    note(f"begin {text}")
    if current_job().number == 1:
        wait_for_file(name)  # a thread cannot be ended, and the next attempt is here before that
        raise ValueError("too late")


@app.task(queue="q", retry_s=0)
def only_once(text: str) -> None:
    note(f"begin {text}")
    raise ValueError("not this time")


@app.task(queue="q", retry_s=0)
def only_once_until_file(text: str, name: str) -> None:
    note(f"begin {text}")
    wait_for_file(name)


@app.task(queue="q", retry_s=60, backoff=SOON, max_deliveries=2)
def ends_its_process(text: str, name: str) -> None:
    """Ends the process, with all that runs beside it, as soon as the file is there."""
    note(f"begin {text} {current_job().number}")
    wait_for_file(name)
    os._exit(7)


@app.task(queue="q", retry_s=60, attempts=1)
def ends_its_process_or_lasts(seconds: float) -> None:
    """Ends the process, if it is given no time."""
    if seconds == 0:
        os._exit(7)
    time.sleep(seconds)
    note("lasted")


@app.task(queue="poison", retry_s=60, backoff=SOON, max_deliveries=10_000)
def ends_every_process(number: int) -> None:
    note(f"poison {number}")
    os._exit(7)


# a process may end before a delivery reaches it: that job comes back after its retry time
@app.task(queue="poison", retry_s=5, backoff=SOON, max_deliveries=10_000)
def beside_poison(number: int) -> None:
    note(f"beside {number}")


@app.task(queue="z", retry_s=60, max_deliveries=1)
def in_the_last_queue(text: str, seconds: float) -> None:
    note(f"begin {text}")
    time.sleep(seconds)
    note(f"end {text}")


@app.task(queue="q", retry_s=60, max_deliveries=1)
def may_run_once_more(text: str, name: str) -> None:
    """One delivery is its limit: whatever is counted against it makes it a dead letter."""
    note(f"begin {text} {current_job().number}")
    wait_for_file(name)
    note(f"end {text}")


def parents_of(pid: int) -> list[int]:
    """The process and its parents, up to the first of all."""
    found = [pid]
    while found[-1] > 1:
        stat = Path(f"/proc/{found[-1]}/stat").read_text()
        found.append(int(stat.rpartition(")")[2].split()[1]))
    return found


@app.task(queue="lost", retry_s=2, backoff=SOON, attempts=3)
def kills_its_worker() -> None:
    """Kills its worker with all processes, as a container out of memory; OUT/roots names them."""
    note(f"poison {current_job().starts}")
    time.sleep(0.3)  # others have begun
    roots = {int(line) for line in (out() / "roots").read_text().split()}
    (root,) = roots.intersection(parents_of(os.getpid()))
    victims = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if root in parents_of(int(entry.name)):
                victims.append(int(entry.name))
    for pid in sorted(victims, key=lambda pid: pid == os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@app.task(queue="lost", retry_s=2, backoff=SOON, attempts=1)
def is_innocent(number: int) -> None:
    """One attempt is its limit: whatever is counted against it makes it a dead letter."""
    note(f"begin {number}")
    time.sleep(0.6 if current_job().starts == 1 else 0.01)
    note(f"end {number}")


@app.task(queue="tube", retry_s=60)
def in_a_tube(text: str, key: str) -> None:
    """Notes when it begins and ends, so that a test sees what ran side by side."""
    note(f"begin {key} {text}")
    time.sleep(0.02)
    note(f"end {key} {text}")


class Sum(msgspec.Struct):
    value: int


@app.task(queue="q")
def adds(one: int, other: int) -> int:
    return one + other


@app.task(queue="q", codec="msgpack")
async def adds_async(one: int, other: int) -> Sum:
    await asyncio.sleep(0)
    return Sum(one + other)


@app.task(queue="q")
def sleeps(text: str) -> None:
    note(f"begin {text} {current_job().attempt}")
    time.sleep(3600)


@app.task(queue="q")
def checks(text: str) -> None:
    note(f"begin {text} {current_job().attempt}")
    while True:
        current_job().check()
        time.sleep(0.01)


@app.task(queue="q")
def tells(name: str) -> str:
    current_job().progress({"done": 1})
    wait_for_file(name)
    return "told"


@app.task(queue="q")
def later(times: int) -> None:
    job = current_job()
    note(f"{job.attempt} {job.starts}")
    if job.starts <= times:
        raise RetryLater("not now", delay_s=0.05)


@app.task(queue="q", give_up_on=(KeyError,))
def gives_up(text: str) -> int:
    note(text)
    raise KeyError(text)


@app.task(queue="q", time_limit_s=60)
def about() -> tuple[float, float, int, dict[str, str]]:
    job = current_job()
    assert job.time_left is not None
    return job.enqueued_at.timestamp(), job.time_left, job.starts, job.headers


held: list[bytes] = []


@app.task(queue="q")
def grows(number: int, megabytes: int) -> None:
    """Never gives back what it takes."""
    held.append(b"x" * (megabytes << 20))
    note(f"grown {number} {os.getpid()}")


@app.task(queue="q", retry_s=0, keep_s=60)
def only_once_result(number: int) -> int:
    return number


@app.task(queue="q", retry_s=60, keep_s=60, backoff=Backoff(first_s=60, jitter=0))
def ends_so(how: str, name: str) -> str:
    """Ends as `how` says when the file is there; any other is the result."""
    note(f"begin {how}")
    wait_for_file(name)
    if how == "fails":
        raise ValueError("not this time")
    if how == "later":
        raise RetryLater(delay_s=60)
    return how


@app.task(queue="q", retry_s=0, keep_s=60, dead="graves")
def ends_so_once(how: str, name: str) -> str:
    return ends_so(how, name)


@app.task(queue="q", retry_s=60)
def logs_at_each_level(text: str) -> None:
    for level in ("DEBUG", "INFO", "WARNING"):
        logging.getLogger("shop").log(getattr(logging, level), "%s %s", level.lower(), text)


@app.task(queue="q", retry_s=60)
def logs_to_a_file(text: str, path: str) -> None:
    log = logging.getLogger("shop.file")
    if not log.handlers:
        log.addHandler(logging.FileHandler(path))
    log.warning("%s", text)
