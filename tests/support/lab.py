"""Real nodes on free ports of this machine, alone or as a cluster, ended by their ids."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import forked
from both_ways import NO_BYTECODE
from ports import free_port
from raw_resp import DEADLINE_S, Wire
from tcp_proxy import BusProxy
from until import until

READY = re.compile(r"ready to accept connections on port (\d+)")
BUS = re.compile(r"bus listens on port (\d+)")
PLAIN = (
    "--set",
    "appendonly=no",
    "--set",
    "disk-reserve=0",
)  # a flag of the test has the last word


class RealServer:
    """One directory, and the server process that works in it now."""

    def __init__(self, directory: Path, *flags: str | int, port: int = 0) -> None:
        self.directory = directory
        self.flags = [str(flag) for flag in flags]
        self.port = port or free_port()  # the same at each start
        self.bus_port = 0  # 0: not started yet, or no bus
        self.log_path = directory / "server.log"
        self.process: forked.Process | None = None
        self.wires: list[Wire] = []

    @property
    def url(self) -> str:
        """For the client."""
        return f"tuque://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self.process is not None
        return self.process.pid

    def start(self, *flags: str | int, before: Callable[[], None] | None = None) -> RealServer:
        """Start and wait until it serves; a later start takes the same port."""
        self.launch(*flags, before=before)
        return self.wait_ready()

    def wait_ready(self) -> RealServer:
        """Wait until it serves."""
        until(self.is_ready, lambda: "get ready:\n" + self.log())
        self.port = int(READY.findall(self.log())[-1])
        self.bus_port = int((BUS.findall(self.log()) or ["0"])[-1])
        return self

    def __enter__(self) -> RealServer:
        return self if self.process is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.end()

    def launch(self, *flags: str | int, before: Callable[[], None] | None = None) -> None:
        """Start without waiting. `before` runs in the new process, e.g. to set its limits."""
        self.end()
        words = ["--port", str(self.port), "--dir", str(self.directory), *PLAIN, *self.flags]
        if self.bus_port:
            words += ["--cluster-port", str(self.bus_port)]
        with self.log_path.open("wb") as log:
            if before is None:
                self.process = forked.start(["server", *words, *map(str, flags)], log)
                return
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tuque", "server", *words, *map(str, flags)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    **NO_BYTECODE,
                    "PYTHONFAULTHANDLER": "1",
                },  # SIGABRT: a traceback
                preexec_fn=before,
            )

    def is_ready(self) -> bool:
        """Whether it serves; fails if it has ended."""
        assert self.process is not None
        ended = self.process.poll()
        log = self.log()
        assert ended is None, f"the server ended with {ended}:\n{log}"
        return READY.search(log) is not None

    def log(self) -> str:
        """What this process has printed so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def wire(self) -> Wire:
        """A new connection; it is closed with the server."""
        wire = Wire(self.port)
        self.wires.append(wire)
        return wire

    def rss_bytes(self) -> int:
        """Resident memory of the process."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_ms(self) -> float:
        """CPU time of the process, in steps of a tick (10 ms)."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) * 1000 / os.sysconf("SC_CLK_TCK")

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it, as a crash does."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stand_still(self) -> None:
        """Stop the process where it is, until `go_on`; it stands still when this returns."""
        self.signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "stand still")

    def go_on(self) -> None:
        """Let it run again."""
        self.signal(signal.SIGCONT)

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        """Wait for its end; the exit status."""
        assert self.process is not None
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
            raise AssertionError(f"the server did not end:\n{self.log()}") from None

    def hang_up(self) -> None:
        """Close the connections that `wire` made."""
        for wire in self.wires:
            wire.close()
        self.wires = []

    def ask_to_end(self) -> None:
        """Close the connections, and ask it to stop if it runs."""
        self.hang_up()
        if self.process is not None:
            self.process.terminate()

    def end(self) -> None:
        """Stop it if it runs, and close the connections."""
        self.ask_to_end()
        if self.process is not None:
            self.wait()
        self.process = None


class RealCluster:
    """Real nodes, each in a directory of its own; `start` makes them one cluster.

    With `voters`, `start` waits until each node has that many voters. They have ports for IPROTO,
    too, with the user `admin`, password `sesame`. If it is `proxied`, each bus is behind a proxy
    that can cut and freeze its links.
    """

    def __init__(
        self,
        directory: Path,
        nodes: int,
        *flags: str | int,
        voters: int = 0,
        proxied: bool = False,
    ) -> None:
        self.nodes: list[RealServer] = []
        self.ids: list[str] = []
        self.voters = voters
        self.iproto_ports: list[int] = []
        self._proxy = BusProxy() if proxied else None
        self._openers: list[tuple[int, Callable[[str, int], None]]] = []
        for number in range(nodes):
            place = directory / f"node{number}"
            place.mkdir(parents=True)
            node = RealServer(place, *flags)
            self.nodes.append(node)
            if self._proxy is not None:
                self._openers.append(self._proxy.listen())
                node.flags += ["--cluster-announce-bus-port", str(self._openers[-1][0])]
            if voters:
                self._open_iproto(node)

    def _open_iproto(self, node: RealServer) -> None:
        users = node.directory / "users"
        users.write_text("admin sesame all\n")
        users.chmod(0o600)
        self.iproto_ports.append(free_port())
        node.flags += ["--iproto-port", str(self.iproto_ports[-1]), "--iproto-users-file", "users"]

    @property
    def proxy(self) -> BusProxy:
        """The proxies of the buses."""
        assert self._proxy is not None, "the cluster is not proxied"
        return self._proxy

    @property
    def url(self) -> str:
        """All nodes, for a client."""
        return "tuque://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def start(self) -> Self:
        """Start all nodes and make them meet; at the end every node reaches all others."""
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            self.ids.append(node.wait_ready().wire()("CLUSTER", "MYID").decode())
        for id, node, (_, opener) in zip(self.ids, self.nodes, self._openers, strict=False):
            opener(id, node.bus_port)
        self.meet()
        self.wait_formed()
        if self.voters:
            until(self._has_voters, self.logs)
        return self

    def _has_voters(self) -> bool:
        wires = [node.wires[0] for node in self.nodes]
        return all(info(wire, "tubes")["tubes_voters"] == str(self.voters) for wire in wires)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.end()

    def meet(self) -> None:
        """Tell the first node about the others."""
        for number, node in list(enumerate(self.nodes))[1:]:
            port = self._openers[number][0] if self._openers else node.bus_port
            reply = self.wire(0)("CLUSTER", "MEET", "127.0.0.1", node.port, port)
            assert reply == b"OK", reply

    def wait_formed(self) -> None:
        """Wait until each running node reaches all other running ones."""
        alive = [node for node in self.nodes if is_running(node)]
        for node in alive:
            wire = node.wire()
            until(
                lambda wire=wire: reachable(wire) == len(alive) - 1,
                lambda node=node, wire=wire: told(node, wire),
            )
            wire.close()

    def wire(self, number: int) -> Wire:
        """A new connection to a node."""
        return self.nodes[number].wire()

    def end(self) -> None:
        """Stop every node that runs, also one that stands still, and the proxies.

        All at once: one that is asked alone first hands over the tubes that it leads.
        """
        for node in self.nodes:
            if is_running(node):
                node.signal(signal.SIGCONT)
        for node in self.nodes:
            node.ask_to_end()
        for node in self.nodes:
            node.end()
        if self._proxy is not None:
            self._proxy.end()

    def logs(self) -> str:
        """What the nodes say, for a failure."""
        return "\n".join(node.log()[-2000:] for node in self.nodes)

    def check(self) -> None:
        """Every node's tables are sound."""
        for node in self.nodes:
            with Wire(node.port) as wire:
                assert wire("DEBUG", "CHECK") == b"OK"

    # ---- tubes and who leads them

    def create(self, tube: str, type: str = "tasks", *options: str | int) -> None:
        """Make a tube, and wait until all nodes know it and one leads it."""
        words = options if self.voters else (*options, "ALONE")
        wire, answers = self.wire(0), list[Any]()

        def is_answered() -> bool:  # not that the nodes agree on who votes now
            answers.append(wire("TUBE", "CREATE", tube, type, *words))
            return not str(answers[-1]).startswith("NOQUORUM")

        until(is_answered, self.logs)
        said = answers[-1]
        assert said == b"OK" or "done here, but not yet" in said, said  # a slow machine
        for number in range(len(self.nodes)):
            until(lambda number=number: self.tube(tube, number), self.logs)
        self.leader(tube)

    def tube(self, name: str, number: int) -> dict[bytes, Any]:
        """TUBE INFO of a node; empty if it does not answer."""
        with contextlib.suppress(OSError, EOFError), Wire(self.nodes[number].port, "", 5) as wire:
            flat = wire("TUBE", "INFO", name)
            if isinstance(flat, list):
                return dict(zip(flat[::2], flat[1::2], strict=True))
        return {}

    def leading(self, tube: str) -> list[int]:
        """The nodes that say that they lead the tube."""
        alive = [i for i, node in enumerate(self.nodes) if is_running(node)]
        return [i for i in alive if self.tube(tube, i).get(b"state") == b"RUNNING"]

    def leader(self, tube: str) -> RealServer:
        """The node that leads the tube, after as long as it takes."""
        return self.nodes[until(lambda: self.leading(tube), self.logs)[0]]

    def kill_leader(self, tube: str) -> RealServer:
        """Kill it, as a crash does; the node that was killed."""
        leader = self.leader(tube)
        leader.kill()
        return leader


def is_running(node: RealServer) -> bool:
    """Whether the node's process is alive."""
    return node.process is not None and node.process.poll() is None


def cluster_info(wire: Wire) -> dict[str, str]:
    """CLUSTER INFO as a dict."""
    return dict(line.split(":", 1) for line in wire("CLUSTER", "INFO").decode().splitlines())


def reachable(wire: Wire) -> int:
    """The number of other nodes that may be given copies."""
    return int(cluster_info(wire)["cluster_reachable_nodes"])


def info(wire: Wire, section: str) -> dict[str, str]:
    """A section of INFO as a dict."""
    lines = wire("INFO", section).decode().split("\r\n")
    return dict(line.split(":", 1) for line in lines if ":" in line)


def told(node: RealServer, wire: Wire) -> str:
    """The node's view of the cluster, for the message of a failed test."""
    nodes: Any = wire("CLUSTER", "NODES")
    return f"form a cluster:\n{nodes.decode()}\n{node.log()}"


def run_server(directory: Path, *flags: str | int, deadline_s: float = 60.0) -> tuple[int, str]:
    """Start a server that must refuse; returns its exit status and output."""
    words = ["server", "--dir", str(directory), *map(str, flags)]
    done = forked.run(words, b"", dict(os.environ), deadline_s)
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")
