"""The same core and dispatch under uvloop instead of the pump: for decisions/0003-own-loop.md.

    python bench/uvloop_shell.py PORT [--asyncio]

No journal, no timers: the minimum to compare the loops with bench/jobbench.c.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from typing import cast

import uvloop

from tuque.core.node.node import Node
from tuque.server.commands.dispatch import execute
from tuque.server.config.config import load
from tuque.server.state.client import Client
from tuque.server.state.server import Server, apply_settings


class Shell(asyncio.Protocol):
    """One connection: commands in, one write per turn out."""

    def __init__(self, s: Server) -> None:
        self.s = s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        self.client = Client(self.s.next_number, sock, "shell", 1 << 29, self.s.n.now_ms)
        self.s.next_number += 1

    def data_received(self, data: bytes) -> None:
        s, client = self.s, self.client
        s.n.now_ms = max(s.n.now_ms, time.monotonic_ns() // 1_000_000 + s.clock_offset_ms)
        for command in client.reader.read(data):
            execute(s, client, command)
        self.transport.write(b"".join(client.out))
        client.out.clear()
        client.is_dirty = False
        s.dirty.clear()


async def main(port: int) -> None:
    cfg = load(None, {}, {"port": str(port), "maxmemory": "0"})
    now_ms = int(time.time() * 1000)
    s = Server(cfg, Node(b"0" * 40, os.urandom(20), now_ms))
    s.clock_offset_ms = now_ms - time.monotonic_ns() // 1_000_000
    apply_settings(s)
    server = await asyncio.get_running_loop().create_server(lambda: Shell(s), "127.0.0.1", port)
    gc.freeze()
    gc.disable()
    await server.serve_forever()


if __name__ == "__main__":
    if "--asyncio" in sys.argv:
        asyncio.run(main(int(sys.argv[1])))
    else:
        uvloop.run(main(int(sys.argv[1])))
