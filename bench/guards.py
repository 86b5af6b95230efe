"""What guards cost, as ratios in one run: half-open handshakes, large bodies, TLS, the sealed bus.

Rounds alternate. `--only` names some of: half-open, bodies, tls, seal.

python bench/guards.py
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import secrets
import socket
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import cluster
import handshakes
import load
import servers

PER_S = 1_000  # connections
OPEN_MOST = 1_200  # of them at once
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # a TLS client's first bytes, then silence
WORD = b"PIN"
LARGE = 20_000_000
Work = Callable[[], None]


def come(port: int, words: bytes) -> None:
    """So many connections a second from 8 addresses, each of which says so much and no more."""
    kept: deque[socket.socket] = deque()
    began, number = time.monotonic(), 0
    while True:
        while number < (time.monotonic() - began) * PER_S:
            one = socket.socket()
            with contextlib.suppress(OSError):
                one.bind((f"127.0.0.{2 + number % 8}", 0))
                one.connect(("127.0.0.1", port))
                one.sendall(words)
            kept.append(one)
            number += 1
            if len(kept) > OPEN_MOST:
                kept.popleft().close()
        time.sleep(0.002)


def add_large(port: int, copies: int) -> None:
    """Bodies of 20 MB, one after the other; each is acknowledged at once."""
    line = load.Line(port)
    body = b"x" * LARGE
    while True:
        id = line.call("ADDJOB", "large", body, "60000", "REPLICATE", copies)
        assert isinstance(id, bytes), id
        line.call("ACKJOB", id)


@contextlib.contextmanager
def beside(work: Callable[..., None], *args: object) -> Iterator[None]:
    """Run the work in a process of its own meanwhile."""
    one = multiprocessing.get_context("fork").Process(target=work, args=args)
    one.start()
    try:
        time.sleep(0.5)
        yield
        if not one.is_alive():
            raise SystemExit(f"{work.__name__} has ended before it should")
    finally:
        one.kill()
        one.join()


def told(name: str, found: list[list[float]]) -> float:
    """Print the median p99 of the rounds, and the longest of all; returns the median."""
    p99 = statistics.median(one[len(one) * 99 // 100] for one in found)
    p50 = statistics.median(one[len(one) // 2] for one in found)
    longest = max(one[-1] for one in found)
    print(f"{name:46} p50 {p50:7.2f}  p99 {p99:7.2f}  longest {longest:8.2f} ms", flush=True)
    return p99


def half_open(seconds: float, rounds: int) -> None:
    """PING of others beside 1,000 half-open handshakes a second, and beside plain connections."""
    with tempfile.TemporaryDirectory() as scratch:
        cert, key = handshakes.make_certificate(Path(scratch))
        tls_port = servers.free_port()
        files = ("--tls-cert-file", str(cert), "--tls-key-file", str(key))
        with servers.tuque("--tls-port", str(tls_port), *files) as node:
            alone, plain, shakes = [], [], []
            for _ in range(rounds):
                alone.append(servers.waits(node.port, seconds))
                with beside(come, node.port, WORD):
                    plain.append(servers.waits(node.port, seconds))
                with beside(come, tls_port, HELLO):
                    shakes.append(servers.waits(node.port, seconds))
    told("PING, nothing beside it", alone)
    control = told(f"PING beside {PER_S} plain connections a second", plain)
    found = told(f"PING beside {PER_S} half-open handshakes a second", shakes)
    print(f"half-open handshakes / plain connections: {found / control:.2f}", flush=True)


def bodies(seconds: float, rounds: int) -> None:
    """PING of others beside bodies of 20 MB, with one copy and with three."""
    with cluster.Cluster("--cluster-secret", secrets.token_hex(32)) as ours:
        alone, one, three = [], [], []
        for _ in range(rounds):
            alone.append(servers.waits(ours.port, seconds))
            with beside(add_large, ours.port, 1):
                one.append(servers.waits(ours.port, seconds))
            with beside(add_large, ours.port, 3):
                three.append(servers.waits(ours.port, seconds))
            ours.flush()
    told("PING, nothing beside it", alone)
    told("PING beside bodies of 20 MB, one copy", one)
    told("PING beside bodies of 20 MB, three copies", three)


def tls(count: int, rounds: int) -> None:
    """ADDJOBs over TLS beside clear text, 16 connections of 16 each."""
    with tempfile.TemporaryDirectory() as scratch:
        cert, key = handshakes.make_certificate(Path(scratch))
        tls_port = servers.free_port()
        files = ("--tls-cert-file", str(cert), "--tls-key-file", str(key))
        with servers.tuque("--tls-port", str(tls_port), *files) as node:
            ratios = []
            for _ in range(rounds):
                clear = handshakes.rate(node.port, None, count)
                secure = handshakes.rate(tls_port, cert, count)
                ratios.append(secure / clear)
                print(f"ADDJOB 16 x 16: clear {clear:9.0f}/s  TLS {secure:9.0f}/s", flush=True)
                line = load.Line(node.port)
                line.call("DEBUG", "FLUSHALL")
                line.close()
    print(f"TLS / clear text: {statistics.median(ratios):.3f}", flush=True)


def seal(count: int, rounds: int) -> None:
    """REPLICATE 3, pipelined, on three nodes with a secret and on three without one."""
    sealed = cluster.Cluster("--cluster-secret", secrets.token_hex(32))
    with sealed, cluster.Cluster() as plain:

        def adds(ours: cluster.Cluster) -> float:
            rate = load.redis_benchmark(ours.port, 64, 16, count, *cluster.ADD, "3")
            ours.flush()
            return rate

        ratios = []
        for number in range(rounds):
            first = adds(plain if number % 2 else sealed)
            second = adds(sealed if number % 2 else plain)
            one, other = (second, first) if number % 2 else (first, second)
            ratios.append(one / other)
            print(f"ADDJOB 64 x 16, REPLICATE 3: sealed {one:9.0f}/s  clear {other:9.0f}/s")
    print(f"sealed bus / bus with a checksum: {statistics.median(ratios):.3f}", flush=True)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--only", default="half-open,bodies,tls,seal")
    args = parser.parse_args()
    parts: dict[str, Work] = {
        "half-open": lambda: half_open(args.seconds, args.rounds),
        "bodies": lambda: bodies(args.seconds, args.rounds),
        "tls": lambda: tls(args.count, args.rounds),
        "seal": lambda: seal(args.count // 2, args.rounds),
    }
    for name in args.only.split(","):
        if name not in parts:
            raise SystemExit(f"no part {name!r}: there are {', '.join(parts)}")
        parts[name]()


if __name__ == "__main__":
    main()
