"""`tuque dev`: node, worker and console in one; `tuque selftest`: whether the installation works.

Decides ports, what is started again when, and what is printed. All are ordinary programs on the
loopback: `tuque server`, `tuque worker`, `tuque console`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import IO, Final

import click

from tuque import __version__
from tuque.cli.programs import (
    BUS_OFFSET,
    START_LIMIT_S,
    Programs,
    free_port,
    free_ports,
    how,
    node_name,
    sees,
    serves,
    start_nodes,
    words_of,
)
from tuque.client.sync import Client
from tuque.client.transport.raw_link import Link, Target
from tuque.errors import Error
from tuque.nodeoptions import PORT
from tuque.platforms import kill_group, known_signals, lock

# ---- `tuque dev`: what a program needs on the machine of who writes it, until Ctrl-C


HOME: Final = Path(".tuque")  # data of the node, in the directory of the program
WEB_PORT: Final = 7780
LOOPBACK: Final = "127.0.0.1"
POLL_S: Final = 0.05
WAITS_S: Final = (1.0, 2.0, 4.0, 8.0, 15.0)  # before a program that died starts again
STEADY_S: Final = 30.0  # after so long its next death counts as the first
STOP_LIMIT_S: Final = 9.0
GRACE_S: Final = "5"  # for jobs that run
PASSWORD: Final = "TUQUE_CONSOLE_ADMIN_PASSWORD"
SIGNALS: Final = known_signals("SIGINT", "SIGTERM", "SIGHUP")
WIDTH: Final = 7  # of the names of the programs
TUQUE: Final = ("-m", "tuque")
MANAGE: Final = ("manage.py", "tuque_worker")


class Ended(Exception):
    """The command was asked to end."""


class Stop:
    """Waits between two looks, and ends the command there: never while a program is started."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._asked.set()

    def wait(self) -> None:
        """Wait for a moment. Ended if a signal has come."""
        if self._asked.wait(POLL_S):
            raise Ended


class Log:
    """One log of all programs: each line with the name of its program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def line(self, name: str, text: str) -> None:
        with self._lock, contextlib.suppress(BrokenPipeError):  # who reads has seen enough
            click.echo(f"{name:<{WIDTH}} | {text}")

    def own(self, text: str) -> None:
        """A line of this command."""
        self.line("dev", text)


class Child:
    """One program, which is started again when it ends by itself."""

    def __init__(self, name: str, words: tuple[str, ...], log: Log, **env: str) -> None:
        """`words`: of `tuque`, or of `manage.py` if they begin with that."""
        self.name = name
        self._words = words if words[:1] == MANAGE[:1] else (*TUQUE, *words)
        self._env = {**os.environ, **env, "PYTHONUNBUFFERED": "1"}
        self._log = log
        self._deaths = 0
        self._since_s = 0.0
        self._again_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._copier = threading.Thread(target=self._copy)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, in a group of its own: Ctrl-C is for this command."""
        self._process = subprocess.Popen(
            [sys.executable, *self._words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._env,
            process_group=0,
        )
        self._since_s = time.monotonic()
        self._log.own(f"{self.name} starts, process {self._process.pid}")
        output = self._process.stdout
        self._copier = threading.Thread(target=self._copy, args=(output,), daemon=True)
        self._copier.start()

    def _copy(self, output: IO[bytes]) -> None:
        for line in output:
            self._log.line(self.name, line.decode("utf-8", "replace").rstrip("\r\n"))

    def revive(self, now_s: float) -> None:
        """Say that it has ended; start it when its wait is over."""
        process = self._process
        if process is not None and process.poll() is not None:
            self._deaths = 0 if now_s - self._since_s > STEADY_S else self._deaths
            wait_s = WAITS_S[min(self._deaths, len(WAITS_S) - 1)]
            self._deaths += 1
            self._again_s = now_s + wait_s
            self._process = None
            self._log.own(f"{self.name} {how(process.returncode)}; starts again in {wait_s:g} s")
        if self._process is None and now_s >= self._again_s:
            self.start()

    def must_run(self) -> None:
        """ClickException if it has ended: its log is above."""
        if self._process is not None and self._process.poll() is not None:
            raise click.ClickException(f"{self.name} {how(self._process.returncode)}")

    def terminate(self) -> None:
        """Ask it to end."""
        if self.is_running and self._process is not None:
            self._process.terminate()

    def end(self, until_s: float) -> None:
        """Wait for its end until then; end it by force."""
        if self._process is None:
            return
        try:
            self._process.wait(max(until_s - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            self._log.own(f"{self.name} does not stop: killed")
            with contextlib.suppress(ProcessLookupError):
                kill_group(self._process.pid)
            self._process.wait()
        self._copier.join(1)  # what it wrote last


@click.command()
@click.argument("app", required=False, metavar="MODULE:APP")
@click.option("--no-worker", is_flag=True, help="Node and console alone.")
@click.option("--django", is_flag=True, help="The worker is manage.py tuque_worker.")
@click.option("--no-console", is_flag=True, help="Node and worker alone.")
@click.option("--memory", is_flag=True, help="Keep nothing: no journal.")
@click.option("--fresh", is_flag=True, help="Empty the folder .tuque first.")
@click.option("-p", "--port", default=PORT, show_default=True, type=click.IntRange(1, 55_535))
@click.option("--web-port", default=WEB_PORT, show_default=True, type=click.IntRange(1, 65_535))
@click.option("--nodes", default=1, show_default=True, type=click.IntRange(1, 9))
@click.option("-c", "--concurrency", default=4, show_default=True, type=click.IntRange(1, 10_000))
def dev(
    app: str | None,
    no_worker: bool,
    django: bool,
    no_console: bool,
    memory: bool,
    fresh: bool,
    port: int,
    web_port: int,
    nodes: int,
    concurrency: int,
) -> None:
    """Run a node, a worker of the app and the console, until Ctrl-C.

    The worker starts anew when a Python file changes. Jobs are kept in the folder .tuque. A port
    that is taken is replaced by a free one; a program that dies is started again.
    """
    work = () if no_worker else work_of(app, django, concurrency)
    for module in needed(bool(app) and not no_worker, not no_console):
        import_module(module)  # else its absence would be in a log, and not end this command
    log = Log()
    ports = ports_from(port, nodes)
    url = "tuque://" + ",".join(f"{LOOPBACK}:{one}" for one in ports)
    with home(memory, fresh) as place:
        if ports != [PORT]:
            click.echo(f"export TUQUE_URL={url}")
        keeps = ("--set", f"appendonly={'no' if memory else 'yes'}")
        cluster = Cluster(ports, place, keeps, log)
        if work and not django:
            work = (*work, "--url", url)  # an app may have another broker
        others = [Child("worker", work, log, TUQUE_URL=url)] if work else []
        sight = None if no_console else Sight(web_port, url, log)
        others += [sight.child] if sight is not None else []
        stop = Stop()
        try:
            run_all(cluster, others, sight, log, stop)
        except Ended:
            log.own("stopping ...")
        finally:
            stop_all(others, cluster.nodes)
    log.own("stopped")


def work_of(app: str | None, django: bool, concurrency: int) -> tuple[str, ...]:
    """The command line of the worker. UsageError or ClickException if there is none."""
    options = ("-c", str(concurrency), "--grace", GRACE_S)
    if django:
        if app is not None:
            raise click.UsageError("--django runs the tasks of the project: name no app")
        if not Path(MANAGE[0]).is_file():
            raise click.ClickException(
                "there is no manage.py here: --django needs that of a project"
            )
        return (*MANAGE, "--autoreload", *options)
    if app is None:
        raise click.UsageError("name the app, such as shop.jobs:app, or say --no-worker")
    return ("worker", app, "--reload", *options)


def needed(has_worker: bool, has_console: bool) -> list[str]:
    """The modules that extras bring, for these programs."""
    found = ["tuque.server"]
    found += ["watchfiles"] if has_worker else []
    return found + (["uvicorn", "starlette", "jinja2"] if has_console else [])


def is_free(port: int) -> bool:
    """Whether a port of the loopback can be taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one that was left is free
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def ports_from(port: int, count: int) -> list[int]:
    """So many ports from the first on, for clients and the bus; a free one for each taken one."""
    found: list[int] = []
    while len(found) < count:
        next_one = port + len(found)
        is_ours = next_one not in found and is_free(next_one) and is_free(next_one + BUS_OFFSET)
        found.append(next_one if is_ours else free_port())
    return found


class Cluster:
    """The nodes: one, or several that are linked."""

    def __init__(self, ports: list[int], place: Path, options: tuple[str, ...], log: Log) -> None:
        self._ports = ports
        self.nodes: list[Child] = []
        for number, port in enumerate(ports, 1):
            home = place if number == 1 else place / node_name(number)
            home.mkdir(exist_ok=True)
            name = "node" if len(ports) == 1 else node_name(number)
            self.nodes.append(Child(name, (*words_of(port, home), *options), log))

    def start(self) -> None:
        """Start all."""
        for node in self.nodes:
            node.start()

    def join(self, stop: Stop) -> None:
        """Wait until all serve, and are linked. ClickException if one cannot."""
        for node, port in zip(self.nodes, self._ports, strict=True):
            until(node, partial(serves, port), stop)
        if len(self._ports) == 1:
            return
        with contextlib.closing(Link(Target(port=self._ports[0]), START_LIMIT_S)) as link:
            for port in self._ports[1:]:
                link.call([b"CLUSTER", b"MEET", LOOPBACK.encode(), str(port).encode()])
            until(self.nodes[0], lambda: sees(link, len(self._ports)), stop)


class Sight:
    """The console, its address, and who may sign in."""

    def __init__(self, port: int, url: str, log: Log) -> None:
        self.port = port if is_free(port) else free_port()
        known = os.environ.get(PASSWORD, "")
        password = known or secrets.token_hex(6)
        self._hint = "" if known else f", sign in as admin with {password}"
        words = ("console", "--url", url, "--web-port", str(self.port))
        self.child = Child("console", words, log, **{PASSWORD: password})

    def __str__(self) -> str:
        return f"http://{LOOPBACK}:{self.port}{self._hint}"

    def is_there(self) -> bool:
        """Whether it takes connections."""
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((LOOPBACK, self.port)) == 0


@contextlib.contextmanager
def home(memory: bool, fresh: bool) -> Iterator[Path]:
    """The directory of the node, for this command alone. ClickException if another one has it."""
    if memory:
        with tempfile.TemporaryDirectory(prefix="tuque-dev-") as name:
            yield Path(name)
        return
    HOME.mkdir(exist_ok=True)
    lock_path = HOME / "dev.lock"
    with lock_path.open("w") as file:
        try:
            lock(file)
        except BlockingIOError:
            raise click.ClickException(
                f"{HOME.absolute()} is in use by another `tuque dev`: stop it, "
                "or start this one in another folder or with --memory"
            ) from None
        for path in HOME.iterdir() if fresh else ():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path != lock_path:
                path.unlink()
        (HOME / ".gitignore").write_text("*\n")
        yield HOME


def run_all(
    cluster: Cluster, others: list[Child], sight: Sight | None, log: Log, stop: Stop
) -> None:
    """Start all, and start again what dies. ClickException if one cannot start at first."""
    began_s = time.monotonic()
    cluster.start()
    if sight is not None:
        sight.child.start()  # it needs longer to start than the node
    cluster.join(stop)
    for child in others:
        if not child.is_running:
            child.start()
    if sight is not None:
        until(sight.child, sight.is_there, stop)
    log.own(f"ready after {time.monotonic() - began_s:.1f} s; Ctrl-C stops all")
    if sight is not None:
        log.own(f"console: {sight}")
    while True:
        for child in (*cluster.nodes, *others):
            child.revive(time.monotonic())
        stop.wait()


def until(child: Child, is_so: Callable[[], bool], stop: Stop) -> None:
    """Return when the condition holds. ClickException if the program ends, or time is up."""
    deadline_s = time.monotonic() + START_LIMIT_S
    while not is_so():
        child.must_run()
        if time.monotonic() > deadline_s:
            raise click.ClickException(f"{child.name} does not serve after {START_LIMIT_S:g} s")
        stop.wait()


def stop_all(others: list[Child], nodes: list[Child]) -> None:
    """Stop worker and console, then the nodes: jobs that run are given back to them."""
    until_s = time.monotonic() + STOP_LIMIT_S
    for child in others:
        child.terminate()
    for child in others:
        child.end(until_s - 2)
    for node in nodes:
        node.terminate()
    for node in nodes:
        node.end(until_s)


# ---- `tuque selftest`


QUEUE: Final = "selftest"
BODY: Final = b"a job"
WAIT_MS: Final = 5_000
# The log says in words for programs whether the node is compiled.
TRIED: Final = ("--set", "log-format=json", "--set", "appendonly=no", "--set", "disk-reserve=0")


@click.command()
def selftest() -> None:
    """Start a node on a free port and pass a job through it.

    Tells whether the node is compiled or pure Python. Exit status 1 if anything fails.
    """
    import_module("tuque.server")  # else its absence would be in a log
    began_s = time.monotonic()
    # Options in the environment are for the nodes of the user: ports, passwords, a journal.
    env = {name: value for name, value in os.environ.items() if not name.startswith("TUQUE__")}
    with tempfile.TemporaryDirectory(prefix="tuque-selftest-") as name:
        place = Path(name)
        with Programs(place, env) as programs:
            (url,) = start_nodes(programs, free_ports(1), place, *TRIED)
            try:
                pass_a_job(url)
            except Error as err:
                tail = programs.log_tail(node_name(1))
                raise click.ClickException(f"the node failed: {err}\n{tail}") from None
            mode = mode_of(programs.log(node_name(1)))
            programs.stop_all()
    took_s = time.monotonic() - began_s
    click.echo(f"tuque {__version__}, {mode}: a job was added, taken and acknowledged")
    click.echo(f"all works ({took_s:.1f} s)")


def pass_a_job(url: str) -> None:
    """Add a job, take it and acknowledge it. Error, or ClickException if another one came."""
    with Client(url, discover=False) as client:
        added = client.addjob(QUEUE, BODY, retry=60, ttl=600)
        taken = client.getjob(QUEUE, timeout_ms=WAIT_MS)
        if [(job.id, job.body) for job in taken] != [(added, BODY)]:
            raise click.ClickException(f"added {added}, and got {taken}")
        acked = client.ackjob(added)
        if acked != 1:
            raise click.ClickException(f"acknowledged {added}, and the node counts {acked} jobs")


def mode_of(log: str) -> str:
    """`compiled` or `pure`, as the node says in its log."""
    for line in log.splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("event") == "server_starts":
            return "compiled" if event["mode"] == "compiled" else "pure"
    raise click.ClickException(f"the log of the node does not say how it runs:\n{log}")
