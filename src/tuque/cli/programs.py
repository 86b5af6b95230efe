"""Nodes and workers as child processes: started as a user would, ended in any case."""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final

import click

from tuque.client.transport.conn import ErrorReply
from tuque.client.transport.raw_link import Link, LinkError, Target

START_LIMIT_S: Final = 30.0
STOP_LIMIT_S: Final = 30.0
ANSWER_S: Final = 10.0
LOG_TAIL_LINES: Final = 15
BUS_OFFSET: Final = 10_000  # from the client port to the bus port
LOW_PORT: Final = 10_240
LOW_PORTS: Final = 12_000  # of them one is chosen


class Programs:
    """Child processes by name; leaving the context ends those that still run."""

    def __init__(self, out: Path, env: Mapping[str, str] | None = None) -> None:
        """`env` takes the place of the environment of this process."""
        self.out = out
        self._env = env
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Programs:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        err: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._running.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    @property
    def names(self) -> list[str]:
        """The programs not ended yet, oldest first."""
        return list(self._running)

    def start(self, name: str, *arguments: str) -> int:
        """Starts `tuque ARGUMENTS`, its output in NAME.log; returns its pid."""
        with (self.out / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tuque", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                process_group=0,  # Ctrl-C is for this process; `stop` signals them once
            )
        self._running[name] = process
        return process.pid

    def ended(self) -> list[str]:
        """Programs that ended by themselves since the last call, each with how; forgets them."""
        found = []
        for name, process in list(self._running.items()):
            code = process.poll()
            if code is not None:
                del self._running[name]
                found.append(f"{name} {how(code)}")
        return found

    def check(self) -> None:
        """ClickException with the end of its log if a program ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise click.ClickException(
                    f"{name} {how(process.returncode)}:\n{self.log_tail(name)}"
                )

    def kill(self, name: str) -> None:
        """Ends a program the way a power cut would."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str) -> None:
        """Asks a program to end and waits for it; ClickException unless it ends well."""
        self._running[name].terminate()
        self._await(name)

    def _await(self, name: str) -> None:
        process = self._running[name]
        try:
            code = process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise click.ClickException(f"{name} does not stop:\n{self.log_tail(name)}") from None
        del self._running[name]
        if code not in (0, -signal.SIGTERM):  # which ends a program that has just begun
            raise click.ClickException(f"{name} {how(code)}:\n{self.log_tail(name)}")

    def stop_all(self) -> None:
        """Asks all running programs to end, together; ClickException like `stop`."""
        for name, process in list(self._running.items()):
            if process.poll() is None:
                process.terminate()
            else:
                del self._running[name]
        for name in self.names:
            self._await(name)

    def log(self, name: str) -> str:
        """A program's log so far."""
        with contextlib.suppress(OSError):
            return (self.out / f"{name}.log").read_text(errors="replace")
        return ""

    def log_tail(self, name: str) -> str:
        """The last lines of a program's log."""
        return "\n".join(self.log(name).splitlines()[-LOG_TAIL_LINES:])


def how(code: int) -> str:
    """How a program ended."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def free_port() -> int:
    """A loopback TCP port that is free now, as is its bus port.

    Both are below those that systems give to connections (from 32768 on), which come and go.
    """
    while True:
        port = LOW_PORT + secrets.randbelow(LOW_PORTS)
        with socket.socket() as probe, socket.socket() as bus, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            bus.bind(("127.0.0.1", port + BUS_OFFSET))
            return port


def free_ports(count: int) -> list[int]:
    """So many different free ports."""
    ports: list[int] = []
    while len(ports) < count:
        port = free_port()
        if port not in ports:
            ports.append(port)
    return ports


def node_name(number: int) -> str:
    """The name of the n-th node of a cluster in logs and directories."""
    return f"node-{number}"


def words_of(port: int, directory: Path) -> tuple[str, ...]:
    """The command line of a node, without options."""
    return ("server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory))


def start_nodes(programs: Programs, ports: list[int], out: Path, *options: str) -> list[str]:
    """Starts a node per port and waits until all respond; returns their URLs."""
    for number, port in enumerate(ports, 1):
        directory = out / node_name(number)
        directory.mkdir(parents=True, exist_ok=True)
        programs.start(node_name(number), *words_of(port, directory), *options)
    for number, port in enumerate(ports, 1):
        wait_until(programs, node_name(number), "answer", partial(serves, port))
    return [f"tuque://127.0.0.1:{port}" for port in ports]


def join_nodes(programs: Programs, ports: list[int]) -> None:
    """Makes the nodes meet and waits until each is linked to all others."""
    first = Link(Target(port=ports[0]), ANSWER_S)
    for port in ports[1:]:
        with with_log(programs, node_name(1)):
            reply = first.call([b"CLUSTER", b"MEET", b"127.0.0.1", str(port).encode()])
        if isinstance(reply, ErrorReply):
            raise click.ClickException(f"CLUSTER MEET 127.0.0.1 {port}: {reply}")
    first.close()
    for number, port in enumerate(ports, 1):
        name, link = node_name(number), Link(Target(port=port), ANSWER_S)
        with with_log(programs, name):
            wait_until(programs, name, "find the others", partial(sees, link, len(ports)))
        link.close()


@contextlib.contextmanager
def with_log(programs: Programs, name: str) -> Iterator[None]:
    """Waits for a reply; ClickException with the end of the program's log if none comes."""
    try:
        yield
    except LinkError as err:
        raise click.ClickException(f"{name}: {err}\n{programs.log_tail(name)}") from None


def sees(link: Link, count: int) -> bool:
    """Whether a node reaches all others of a cluster of that many."""
    text = link.call([b"CLUSTER", b"INFO"])
    assert isinstance(text, bytes), text
    wanted = b"cluster_reachable_nodes:%d" % (count - 1)
    return wanted in text.split(b"\r\n")


def wait_until(programs: Programs, name: str, what: str, is_so: Callable[[], bool]) -> None:
    """Returns when the condition holds; ClickException if a program ends or time is up."""
    deadline = time.monotonic() + START_LIMIT_S
    while not is_so():
        programs.check()
        if time.monotonic() > deadline:
            raise click.ClickException(f"{name} does not {what}:\n{programs.log_tail(name)}")
        time.sleep(0.02)


def serves(port: int) -> bool:
    """Whether a node on the loopback takes commands: it is up and has loaded its journal."""
    link = Link(Target(port=port), ANSWER_S)
    try:
        return link.call([b"PING"]) == "PONG"
    except LinkError:
        return False
    finally:
        link.close()
