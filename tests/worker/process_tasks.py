"""The app of test_worker_processes.py: tasks that have processes of their own."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor

from e2e_tasks import note

from tuque.worker import App, current_job

app = App()
WAY = "import time; time.sleep(600)"


def square(number: int) -> int:
    return number * number


def has_made_a_pool(method: str) -> None:
    with multiprocessing.get_context(method).Pool(2) as pool:  # ends its children by SIGTERM
        assert pool.map(square, range(3)) == [0, 1, 4]


def has_made_an_executor(method: str) -> None:
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        assert list(executor.map(square, range(3))) == [0, 1, 4]


def has_ended_its_process(method: str) -> int | None:
    process = multiprocessing.get_context(method).Process(target=time.sleep, args=(600,))
    process.start()
    process.terminate()
    process.join(30)
    return process.exitcode


def has_ended_its_program() -> int:
    program = subprocess.Popen([sys.executable, "-c", WAY], preexec_fn=lambda: None)
    program.terminate()
    return program.wait(30)


@app.task(queue="q", keep_s=60, attempts=1)
def has_processes(method: str) -> list[int | None]:
    has_made_a_pool(method)
    has_made_an_executor(method)
    return [has_ended_its_process(method), has_ended_its_program()]


@app.task(queue="q", keep_s=60, attempts=1)
async def has_processes_async(method: str) -> list[int | None]:
    return [has_ended_its_process(method), has_ended_its_program()]


@app.task(retry_s=2, keep_s=60)
def holds_the_interpreter(seconds: float) -> int:
    """Sleeps in C code that keeps the GIL: no other thread of the process runs."""
    note(current_job().id)
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    return current_job().starts


@app.task(queue="q", attempts=1, retry_s=60)
def starts_a_program(holds: bool) -> None:
    program = subprocess.Popen([sys.executable, "-c", WAY])
    note(str(program.pid))
    if holds:
        ctypes.PyDLL(None).sleep(600)
    program.wait()


@app.task(queue="q", keep_s=60, attempts=1, time_limit_s=60)
def forks(how: str) -> int:
    return _forked(how)


@app.task(queue="q", keep_s=60, attempts=1, time_limit_s=60)
async def forks_async(how: str) -> int:
    return _forked(how)


@app.task(queue="q", keep_s=60, attempts=1, time_limit_s=60)
async def forks_in_a_thread(how: str) -> int:
    return await asyncio.to_thread(_forked, how)


@app.task(queue="q", keep_s=60, attempts=1, time_limit_s=60)
async def forks_and_waits() -> int:
    child = os.fork()
    if child == 0:
        await _Once()
        return 0
    await asyncio.sleep(0)
    return os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, child, 0))[1])


class _Once:
    """What waits once, and needs no loop for that."""

    def __await__(self) -> Generator[None]:
        yield


def _forked(how: str) -> int:
    """The exit code of a child that leaves the task in this way; other calls wait meanwhile."""
    time.sleep(0.2)
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if how == "raises":
        raise ValueError("in the child")
    if how == "exits":
        sys.exit(7)
    return 0


@app.task(queue="q", keep_s=60, attempts=1)
def notes(text: str) -> None:
    note(text)


@app.task(queue="q", keep_s=60, attempts=1)
def breaks_output(how: str) -> str:
    if how == "closed":
        assert sys.__stdout__ is not None
        sys.__stdout__.close()
        sys.stdout = sys.__stdout__
    elif how == "no stream":
        sys.stdout = object()  # type: ignore[assignment]  # that is the test
    else:
        reader, writer = os.pipe()
        os.close(reader)
        sys.stdout = os.fdopen(writer, "w")
        sys.stdout.write("nobody reads this")
    return how
