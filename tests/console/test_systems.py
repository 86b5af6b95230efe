"""Client and command line on Windows, as far as a fake platform shows it (support/lacking.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab import RealServer
from program import path_of
from tuque import Client

PROGRAM = """
import asyncio, os, select, signal, socket, sys

assert not hasattr(select, "poll") and not hasattr(socket, "AF_UNIX")
assert not hasattr(os, "fork") and not hasattr(signal, "SIGHUP")
assert sys.modules["fcntl"] is None

import tuque
from tuque import aio
from tuque.errors import ConfigError
from tuque.worker import App

url = sys.argv[1]
app = App(url)

@app.task(queue="mail")
def send(to: str) -> None: ...

def in_threads():
    with tuque.Client(url) as client:
        for body in (b"one", b"two"):  # the second one over the idle connection
            id = client.addjob("q", body, retry=60)
            (job,) = client.getjob("q", timeout_ms=5000)
            assert (job.id, job.body) == (id, body)
            assert client.ackjob(id) == 1

async def in_loop():
    heard = []
    async with aio.Client(url, on_cancel=lambda *words: heard.append(words)) as client:
        for body in (b"one", b"two"):
            id = await client.addjob("q", body, retry=60)
            (job,) = await client.getjob("q", timeout_ms=5000)
            assert (job.id, job.body) == (id, body)
            assert await client.ackjob(id) == 1

in_threads()
asyncio.run(in_loop())
send.enqueue("ann")
try:
    tuque.Client("tuque+unix:///tmp/node")
except ConfigError as err:
    print(err)
"""


def run(*words: str, system: str = "windows", url: str = "") -> subprocess.CompletedProcess[str]:
    """A program that finds no more than that system has."""
    env = {**os.environ, "PYTHONPATH": path_of(system), "TUQUE_URL": url}
    return subprocess.run(
        [sys.executable, *words], env=env, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_program_adds_and_takes_jobs_on_windows(node: RealServer) -> None:
    done = run("-c", PROGRAM, node.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no unix sockets: name a host and port" in done.stdout
    with Client(node.url) as client:
        assert client.qlen("mail") == 1


AWAY = """
import socket
from tuque.errors import ConnectionError, NoNode
from tuque.worker import App

with socket.create_server(("127.0.0.1", 0)) as door:
    app = App(f"tuque://127.0.0.1:{door.getsockname()[1]}", enqueue_timeout_s=0.3)

    @app.task
    def send() -> None: ...

    for error in (ConnectionError, NoNode):
        try:
            send.enqueue()
        except error as err:
            print(err)
    door.setblocking(False)
    door.accept()
    try:
        door.accept()
    except BlockingIOError:
        print("asked once")
"""


@pytest.mark.parametrize("system", ["macos", "windows"])
def test_a_silent_broker_fails_an_enqueue_soon_and_the_next_one_at_once(system: str) -> None:
    done = run("-c", AWAY, system=system)
    first, at_once, asked = done.stdout.splitlines()
    assert "in time" in first and "asked once a second" in at_once
    assert (done.returncode, asked) == (0, "asked once")


ENDED = """
import asyncio, socket, time
from tuque.client.transport.streams import Link
from tuque.client.url import Address

def until(is_so):
    ends = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < ends

async def main(hears):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        link = await Link.open(Address("127.0.0.1", port), None, time.monotonic() + 30)
        link.on_cancel = (lambda *words: None) if hears else None
        node, _ = listener.accept()
        assert not link.is_stale()
        node.sendall(b"+")
        until(link._watch.has_input)  # the loop does not run, and does not read it
        assert link.is_stale() != hears
        while link._watch.has_input():
            await asyncio.sleep(0)
        assert not link.is_stale()
        node.close()
        until(link.is_stale)
        link.close()

for hears in (False, True):
    asyncio.run(main(hears))
"""


@pytest.mark.parametrize("system", ["macos", "windows"])
def test_an_idle_connection_that_ended_is_noticed(system: str) -> None:
    done = run("-c", ENDED, system=system)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("cli", "ADDJOB", "q", "body", "1000"), "D-"),
        (("queues",), "QUEUE "),
        (("dead", "list", "q.dead"), ""),
        (("cluster", "status"), " up "),
        (("schedule", "list"), ""),
    ],
)
def test_a_command_runs_on_windows(words: tuple[str, ...], shown: str, node: RealServer) -> None:
    done = run("-m", "tuque", *words, url=node.url)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout


def test_what_windows_cannot_run_says_so(tmp_path: Path) -> None:
    done = run("-m", "tuque", "report", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("Error: `tuque report` does not run on Windows: ")
    assert done.stderr.count("\n") == 1 and not done.stdout


LOADED = """
import click
from tuque.main import SUBCOMMANDS, UNIX_ONLY, tuque

context = click.Context(tuque)
for name in SUBCOMMANDS:
    try:
        tuque.get_command(context, name)
    except click.ClickException as err:
        assert name in UNIX_ONLY, f"{name}: {err.message}"
        assert f"`tuque {name}` does not run on Windows" in err.message
    else:
        assert name not in UNIX_ONLY, name
"""


def test_each_command_loads_on_windows_or_is_refused() -> None:
    done = run("-c", LOADED)
    assert (done.returncode, done.stderr) == (0, "")
