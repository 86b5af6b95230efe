"""The app of test_worker_processes.py: tasks that have processes of their own."""

from __future__ import annotations

import ctypes
import multiprocessing
import subprocess
import sys
import time
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
