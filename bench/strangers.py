"""What others cost a client: its PING beside them, here and on redis-server.

Strangers without a password, and one program that has it and sends all that it can (`crowd`).

python bench/strangers.py
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import servers

PASSWORD = "x" * 32


def nobody(port: int) -> None:
    """Does nothing."""
    signal.pause()


def reconnect(port: int) -> None:
    """One connection after the other, each with one PING that is refused."""
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as sock:
            sock.sendall(b"PING\r\n")
            sock.recv(200)


def hang_up(port: int) -> None:
    """Connections that end before they say a word."""
    while True:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 5).close()


def pipeline(port: int) -> None:
    """Many PINGs at once on each connection."""
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as sock:
            sock.sendall(b"PING\r\n" * 1_000)
            while sock.recv(65_536):
                pass


def guess(port: int) -> None:
    """Passwords, one on each connection."""
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as sock:
            sock.sendall(b"AUTH %d\r\n" % time.monotonic_ns())
            sock.recv(200)


def crowd(port: int) -> None:
    """It has the password: 90 connections with 10,000 PINGs at once on each, again and again."""
    while True:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            here: dict[int, Crowded] = {}
            for _ in range(90):
                # an answer may wait for what others of a crowd sent before
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
                sock.sendall(b"AUTH %s\r\n" % PASSWORD.encode())
                sock.recv(64)
                here[sock.fileno()] = Crowded(sock)
            ping(here)


def ping(here: dict[int, Crowded]) -> None:
    """Send and read on all of them, until one is closed."""
    text = b"PING\r\n" * 10_000
    poll = select.poll()
    for fd, one in here.items():
        one.sock.setblocking(False)
        poll.register(fd, select.POLLIN | select.POLLOUT)
    while True:
        for fd, mask in poll.poll():
            one = here[fd]
            with contextlib.suppress(BlockingIOError):
                if mask & select.POLLOUT:
                    one.sent += one.sock.send(text[one.sent : one.sent + 65_536])
                if mask & select.POLLIN:
                    heard = len(one.sock.recv(262_144))
                    if heard == 0:
                        return
                    one.heard += heard
            if one.heard >= len(b"+PONG\r\n") * 10_000:
                one.sent = one.heard = 0
            wants = select.POLLOUT if one.sent < len(text) else 0
            poll.modify(fd, select.POLLIN | wants)


@dataclass
class Crowded:
    """One of many connections."""

    sock: socket.socket
    sent: int = 0  # bytes of this round
    heard: int = 0


STRANGERS: dict[str, Callable[[int], None]] = {
    "nobody": nobody,
    "reconnect": reconnect,
    "hang up": hang_up,
    "pipeline": pipeline,
    "guess": guess,
    "crowd": crowd,
}


def beside(broker: servers.Broker, stranger: Callable[[int], None], count: int) -> str:
    """The figures of one broker beside so many processes of strangers."""
    fork = multiprocessing.get_context("fork")
    others = [fork.Process(target=stranger, args=(broker.port,)) for _ in range(count)]
    for one in others:
        one.start()
    try:
        cpu_s = broker.cpu_s()
        found = servers.waits(broker.port, 4, PASSWORD)
        cpu_s = broker.cpu_s() - cpu_s
    finally:
        for one in others:
            one.kill()
            one.join()
    p50, p99 = found[len(found) // 2], found[len(found) * 99 // 100]
    return f"p50 {p50:6.2f}  p99 {p99:6.2f}  longest {found[-1]:7.2f} ms  CPU {cpu_s / 4:4.0%}"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--only", choices=STRANGERS, help="only beside these")
    args = parser.parse_args()
    brokers = [servers.tuque("--requirepass", PASSWORD), servers.redis("--requirepass", PASSWORD)]
    for name, stranger in STRANGERS.items():
        if args.only not in (None, name):
            continue
        for broker in brokers:
            if broker is not None:
                told = beside(broker, stranger, args.processes)
                print(f"{name:10} {broker.name:6} {told}", flush=True)
    for broker in brokers:
        if broker is not None:
            broker.close()


if __name__ == "__main__":
    main()
