"""IPROTO against RESP: the same calls on the same tube of one node."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import hiredis
import load
import msgspec
import servers
from cluster import middle

if TYPE_CHECKING:
    from run import Run

BODY = "x" * 100
FLIGHT = 64
TASKS = 20_000
CALL, GREETING_BYTES, LENGTH_BYTES = 10, 128, 5
ENCODE = msgspec.msgpack.encode


class Door:
    """One IPROTO connection."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        while len(self.buffer) < GREETING_BYTES:
            self.buffer += self.sock.recv(GREETING_BYTES)
        self.buffer = b""

    def skip_replies(self, count: int) -> None:
        """Read so many replies; an error ends the run."""
        buffer, at = self.buffer, 0
        while count:
            size = int.from_bytes(buffer[at + 1 : at + LENGTH_BYTES], "big") + LENGTH_BYTES
            if len(buffer) - at < max(size, LENGTH_BYTES + 8):
                data = self.sock.recv(1 << 20)
                if not data:
                    raise SystemExit("the server closed the connection")
                buffer, at = buffer[at:] + data, 0
                continue
            if buffer[at + 8 : at + 12] != b"\0\0\0\0":
                raise SystemExit(f"error reply: {buffer[at : at + size]!r}")
            at += size
            count -= 1
        self.buffer = buffer[at:]

    def run(self, calls: list[bytes]) -> None:
        """All calls, so many in flight."""
        for start in range(0, len(calls), FLIGHT):
            some = calls[start : start + FLIGHT]
            self.sock.sendall(b"".join(some))
            self.skip_replies(len(some))


def packed(method: str, *args: object) -> bytes:
    """One CALL."""
    inner = ENCODE({0: CALL, 1: 1}) + ENCODE({0x22: method, 0x21: args})
    return b"\xce" + len(inner).to_bytes(4, "big") + inner


def bench_iproto(run: Run) -> None:
    """Put, take and ack over one connection."""
    iproto_port = servers.free_port()
    with servers.tuque("--iproto-port", str(iproto_port)) as ours:
        door, line = Door(iproto_port), load.Line(ours.port)
        line.call("TUBE", "CREATE", "bench", "fifottl")
        used = [0]  # task numbers used so far

        def over_iproto() -> float:
            put = packed("queue.tube.bench:put", BODY)
            take = packed("queue.tube.bench:take", 0)
            acks = [packed("queue.tube.bench:ack", used[0] + i) for i in range(TASKS)]
            return timed(used, partial(cycle, door.run, put, take, acks))

        def say(commands: list[bytes]) -> None:
            for start in range(0, len(commands), FLIGHT):
                some = commands[start : start + FLIGHT]
                line.sock.sendall(b"".join(some))
                for _ in line.replies(len(some)):
                    pass

        def over_resp() -> float:
            put = hiredis.pack_command(("TUBE", "PUT", "bench", BODY))
            take = hiredis.pack_command(("TUBE", "TAKE", "bench", "TIMEOUT", 0))
            acks = [
                hiredis.pack_command(("TUBE", "ACK", "bench", used[0] + i)) for i in range(TASKS)
            ]
            return timed(used, partial(cycle, say, put, take, acks))

        found = run.rounds_of({"iproto": over_iproto, "resp": over_resp})
        line.close()
        door.sock.close()
    ratio = run.ratio(found["iproto"], found["resp"])
    detail = f"{middle(found['iproto'])} : {middle(found['resp'])}"
    run.note(f"tube cycle 1 x {FLIGHT}, IPROTO / RESP", ratio, "x", 0.6, True, detail)


def cycle(say: Callable[[list[bytes]], None], put: bytes, take: bytes, acks: list[bytes]) -> None:
    """Put, take and ack each task."""
    say([put] * TASKS)
    say([take] * TASKS)
    say(acks)


def timed(used: list[int], all_of_it: Callable[[], None]) -> float:
    """Cycles per second; later cycles use other numbers."""
    began = time.perf_counter()
    all_of_it()
    used[0] += TASKS
    return TASKS / (time.perf_counter() - began)
