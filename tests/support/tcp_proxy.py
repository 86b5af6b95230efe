"""A proxy before each node's bus that can cut, freeze and slow the links of chosen pairs.

Nodes announce the proxy's port as their own bus port, so every link goes through the
proxy of the node that was dialed. Who dialed is read from the first bytes: the handshake
begins with the dialer's node id in plain text. One thread carries all bytes.
"""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
import threading
import time
from collections.abc import Callable

NODE_ID = re.compile(rb"[0-9a-f]{40}")
CHUNK = 1 << 16


class Flow:
    """One direction of one link."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self.sink = sink
        self.waiting = bytearray()  # read and not written yet


class Link:
    """A connection through the proxy: who dialed whom, and its two directions."""

    def __init__(self, dialer: socket.socket, target: socket.socket, to: str) -> None:
        self.dialer = dialer
        self.target = target
        self.to = to
        self.by = ""  # node id of the dialer, once it has said so
        self.out = Flow(dialer, target)
        self.back = Flow(target, dialer)

    def joins(self, a: str, b: str) -> bool:
        """Whether the link is between these two nodes."""
        return {self.by, self.to} == {a, b}


class BusProxy:
    """All the proxies of one cluster. Call from any thread."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.lock = threading.RLock()
        self.listeners: dict[int, tuple[str, int]] = {}  # fd -> (node id, real port)
        self.sockets: list[socket.socket] = []
        self.links: list[Link] = []
        self.cut_pairs: set[frozenset[str]] = set()
        self.frozen: set[tuple[str, str]] = set()  # (from, to): bytes are kept back
        self.bytes_moved = 0
        self.links_broken = 0
        self.is_over = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def listen(self) -> tuple[int, Callable[[str, int], None]]:
        """A port to announce; call the second value with the node's id and real bus port."""
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.sockets.append(listener)

        def open_for(node_id: str, port: int) -> None:
            with self.lock:
                self.listeners[listener.fileno()] = (node_id, port)
                self.selector.register(listener, selectors.EVENT_READ, None)

        return int(listener.getsockname()[1]), open_for

    def cut(self, a: str, b: str) -> bool:
        """Break the links of a pair and refuse new ones; True when one was open."""
        with self.lock:
            self.cut_pairs.add(frozenset((a, b)))
            hit = [link for link in self.links if link.joins(a, b)]
            for link in hit:
                self.drop(link)
            self.links_broken += len(hit)
            return len(hit) > 0

    def freeze(self, a: str, b: str) -> None:
        """Nothing from a reaches b any more; neither is notified."""
        with self.lock:
            self.frozen.add((a, b))

    def heal(self) -> None:
        """Restore all pairs."""
        with self.lock:
            self.cut_pairs.clear()
            self.frozen.clear()

    def end(self) -> None:
        """Close everything."""
        self.is_over = True
        self.thread.join(10)
        for sock in self.sockets:
            sock.close()
        for link in list(self.links):
            self.drop(link)

    # ---- the thread

    def run(self) -> None:
        """Carry bytes until the end."""
        while not self.is_over:
            events = self.selector.select(0.02)
            with self.lock:
                for key, _ in events:
                    if key.data is None:
                        self.accept(key.fd)
                    elif key.data in self.links:
                        self.read(key.data, key.fd)
                for link in list(self.links):
                    self.write(link)

    def accept(self, fd: int) -> None:
        """Take a connection and dial the node behind."""
        node_id, port = self.listeners[fd]
        listener = next(s for s in self.sockets if s.fileno() == fd)
        with contextlib.suppress(BlockingIOError):
            dialer, _ = listener.accept()
            try:
                target = socket.create_connection(("127.0.0.1", port), timeout=1)
            except OSError:
                dialer.close()
                return
            for sock in (dialer, target):
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(dialer, target, node_id)
            self.links.append(link)
            for sock in (dialer, target):
                self.selector.register(sock, selectors.EVENT_READ, link)

    def read(self, link: Link, fd: int) -> None:
        """Take what a side sent."""
        flow = link.out if link.dialer.fileno() == fd else link.back
        if len(flow.waiting) > 1 << 20:
            time.sleep(0.001)
            return
        try:
            data = flow.source.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop(link)
            return
        flow.waiting += data
        if not link.by and flow is link.out:
            found = NODE_ID.search(flow.waiting)
            if found:
                link.by = found[0].decode()
                if frozenset((link.by, link.to)) in self.cut_pairs:
                    self.drop(link)

    def write(self, link: Link) -> None:
        """Forward what may pass."""
        for flow, way in ((link.out, (link.by, link.to)), (link.back, (link.to, link.by))):
            if flow.waiting and way not in self.frozen and link in self.links and link.by:
                try:
                    sent = flow.sink.send(flow.waiting)
                except BlockingIOError:
                    continue
                except OSError:
                    self.drop(link)
                    return
                del flow.waiting[:sent]
                self.bytes_moved += sent

    def drop(self, link: Link) -> None:
        """Close both sides."""
        if link not in self.links:
            return
        self.links.remove(link)
        for sock in (link.dialer, link.target):
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(sock)
            sock.close()
