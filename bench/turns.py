"""The longest wait of another client while one command runs on a node with a million jobs (L2).

Another process sends PINGs in sequence; the slowest reply bounds the longest turn from above. Large
bodies follow at the end.
"""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Protocol

import hiredis
import servers

TARGET_MS = 50.0
BODY = b"x" * 100
BIG = b"y" * 20_000_000
BIG_CLIENTS = 6
AT_ONCE = 1_000
FEWEST = 5  # replies; a short command may end before


class Notes(Protocol):
    """The interface of the run needed here."""

    jobs: int

    def note(
        self, name: str, value: float, unit: str, target: float, at_least: bool, detail: str
    ) -> None:
        """Add a figure."""


def ping(port: int, pipe: Connection) -> None:
    """Measure until the pipe says stop; returns the ms of each reply."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    waits: list[float] = []
    pipe.send("ready")
    while len(waits) < FEWEST or not pipe.poll():
        begin = time.perf_counter()
        sock.sendall(b"PING\r\n")
        sock.recv(100)
        waits.append((time.perf_counter() - begin) * 1000)
        time.sleep(0.0005)
    pipe.send(waits)


def watched(port: int, do: Callable[[], Any]) -> tuple[Any, list[float], float]:
    """The result of `do`, the waits of another client in ms, and the seconds it took."""
    ours, theirs = multiprocessing.Pipe()
    prober = multiprocessing.Process(target=ping, args=(port, theirs), daemon=True)
    prober.start()
    ours.recv()
    time.sleep(0.01)
    begin = time.perf_counter()
    found = do()
    spent_s = time.perf_counter() - begin
    ours.send("stop")
    waits: list[float] = ours.recv()
    prober.join()
    return found, waits, spent_s


class Talk:
    """A connection that runs one command after the other."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.reader = hiredis.Reader()

    def __call__(self, *words: Any) -> Any:
        self.sock.sendall(hiredis.pack_command(words))
        return self.read()

    def read(self) -> Any:
        """The next reply."""
        while True:
            reply = self.reader.gets()
            if reply is not False:
                return reply
            self.reader.feed(self.sock.recv(1 << 20))

    def many(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """A pipeline."""
        found: list[Any] = []
        for i in range(0, len(commands), AT_ONCE):
            part = commands[i : i + AT_ONCE]
            self.sock.sendall(b"".join(hiredis.pack_command(one) for one in part))
            found += [self.read() for _ in part]
        return found


def bench_turns(run: Notes) -> None:
    """The longest turn of each long command, and large bodies beside a PING."""
    with servers.tuque("--enable-debug-command", "yes") as ours:
        talk = Talk(ours.port)
        ids = talk.many([("ADDJOB", "q", BODY, 0)] * run.jobs)
        few = ids[: run.jobs // 4]
        talk("TUBE", "CREATE", "t", "fifottl")
        talk.many([("TUBE", "PUT", "t", BODY)] * (run.jobs // 10))
        epoch = talk("LEASE", "OPEN", "g", "me", "q")
        lease = ("LEASE", "NEXT", "g", epoch)
        more = ("COUNT", 100_000, "TTL", 600_000)
        commands: list[tuple[Any, ...]] = [
            ("JSCAN", 0, "COUNT", 100_000_000, "REPLY", "all"),
            ("JSCAN", 0, "BUSYLOOP", "QUEUE", "nosuch"),
            ("QSCAN", 0, "BUSYLOOP"),
            ("QPEEK", "q", 100_000),
            ("GETJOB", "COUNT", 100_000, "FROM", "q"),
            ("CONFIG", "GET", *["*" + "?" * 30 + "x"] * 32),
            ("COMMAND", "DOCS"),
            ("INFO",),
            (*lease, 1, *more),
            ("LEASE", "FETCH", "g", epoch, 1, 0, "COUNT", 100_000),
            ("LEASE", "FETCH", "g", epoch, 1, 0, "COUNT", 100_000, "COLUMNS"),
            ("LEASE", "COMMIT", "g", epoch, 1),
            (*lease, 2, *more),
            ("LEASE", "RELEASE", "g", epoch),
            ("NACK", *few),
            ("ENQUEUE", *few),
            ("DEQUEUE", *few),
            ("ACKJOB", *few),
            ("DELJOB", *ids[run.jobs // 4 : run.jobs // 2]),
            ("TUBE", "TASKS", "t", "READY", "COUNT", 10_000),
            ("TUBE", "TRUNCATE", "t"),
            ("CLIENT", "LIST"),
            ("SLOWLOG", "GET", -1),
        ]
        for words in commands:
            _, waits, spent_s = watched(ours.port, lambda words=words: talk(*words))
            name = " ".join(str(word) for word in words[:2] if not isinstance(word, bytes))
            detail = f"the whole command {spent_s * 1000:.0f} ms, {len(words)} words"
            run.note(f"longest wait beside {name}", max(waits), "ms", TARGET_MS, False, detail)
    with servers.tuque() as ours:
        bench_ends(run, ours.port)
    bench_bodies(run)


def bench_ends(run: Notes, port: int) -> None:
    """Commands that end or begin 100,000 jobs at once; reports on 10,000 tubes."""
    talk = Talk(port)
    count = run.jobs // 10

    def beside(name: str, do: Callable[[], Any]) -> None:
        _, waits, spent_s = watched(port, do)
        detail = f"in all {spent_s * 1000:.0f} ms"
        run.note(f"longest wait beside {name}", max(waits), "ms", TARGET_MS, False, detail)

    talk.many([("STAGE", "txn", "1", 600_000, "q", BODY)] * count)
    beside(f"PUBLISH of {count:,} jobs", lambda: talk("PUBLISH", "app", 1, "txn", "1"))
    epoch = talk("LEASE", "OPEN", "g", "me", "q")
    talk("LEASE", "NEXT", "g", epoch, 1, "COUNT", count, "TTL", 600_000)

    def end_lease() -> None:
        talk("LEASE", "OPEN", "g", "another", "q")
        until(lambda: talk("QLEN", "q") == count)

    beside(f"a lease of {count:,} jobs that ends", end_lease)
    talk("TUBE", "CREATE", "t", "fifottl")
    talk.many([("TUBE", "PUT", "t", BODY)] * count)
    holder = Talk(port)
    holder.many([("TUBE", "TAKE", "t")] * count)

    def end_session() -> None:
        holder.sock.shutdown(socket.SHUT_RDWR)  # a forked prober has the descriptor, too
        until(lambda: talk("QLEN", "t") == count)

    beside(f"a session with {count:,} tasks that ends", end_session)
    talk.many([("TUBE", "CREATE", f"t{at}", "fifo") for at in range(9_000)])
    beside("TUBE STATISTICS of 9,001 tubes", lambda: talk("TUBE", "STATISTICS"))
    beside("TUBE LIST of 9,001 tubes", lambda: talk("TUBE", "LIST"))


def until(is_so: Callable[[], bool]) -> None:
    """Wait for the condition, a minute at most."""
    end_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def bench_bodies(run: Notes) -> None:
    """PINGs beside clients that add and take bodies of 20 MB."""
    with servers.tuque("--appendonly", "yes", "--appendfsync", "everysec") as ours:
        talks = [Talk(ours.port) for _ in range(BIG_CLIENTS)]

        def to_and_fro() -> None:
            for _ in range(5):
                for talk in talks:
                    talk.sock.sendall(hiredis.pack_command(("ADDJOB", "big", BIG, 0)))
                    talk.read()
                for talk in talks:
                    talk.sock.sendall(hiredis.pack_command(("GETJOB", "FROM", "big")))
                for talk in talks:
                    [[_, id, _]] = talk.read()
                    talk("ACKJOB", id)

        _, waits, spent_s = watched(ours.port, to_and_fro)
        p99 = statistics.quantiles(waits, n=100)[98]
        detail = f"longest {max(waits):.0f} ms; {5 * BIG_CLIENTS * 40 / spent_s:.0f} MB/s"
        run.note("p99 of PING beside bodies of 20 MB", p99, "ms", TARGET_MS, False, detail)
