"""The sockets where clients arrive: who is let in, and who is told to go (SPEC C1, I1)."""

import socket
from typing import Final, final

from mypy_extensions import i64

from tuque.server.sockets.listen import name_peer
from tuque.server.sockets.poller import IN, Poller
from tuque.server.state.client import Client
from tuque.server.state.iproto_connection import Wired
from tuque.server.state.state import Server, log
from tuque.wire.iproto import SALT_BYTES, greeting

UNREAD_BYTES: Final = 65_536  # thrown away at once
BATCH: Final = 256  # connections taken from one socket in one turn
FULL: Final = b"-ERR max number of clients reached\r\n"
REFUSED_MAX: Final = 16  # that may read why; maxclients leaves descriptors for so many
REFUSED_MS: Final = 1000  # the time they have


@final
class Refused:
    """A connection that was told to go; it is no client."""

    def __init__(self, sock: socket.socket, until_ms: i64) -> None:
        self.sock = sock
        self.until_ms: i64 = until_ms


@final
class Doors:
    """The listening sockets of the clients, registered with the pump's poller."""

    def __init__(self, s: Server, poller: Poller) -> None:
        self.s = s
        self.poller = poller
        self.listeners: dict[int, socket.socket] = {}
        self.iproto_fds: dict[int, None] = {}  # those of them where IPROTO is spoken
        self.refused: dict[int, Refused] = {}  # by descriptor, the oldest first
        self.reopen_ms: i64 = 0  # out of descriptors: try again then

    def listen(self, sock: socket.socket) -> None:
        """Accept clients from a bound, listening, non-blocking socket."""
        self.listeners[sock.fileno()] = sock
        self.poller.add(sock.fileno())

    def listen_iproto(self, sock: socket.socket) -> None:
        """The same for clients that speak IPROTO."""
        self.listen(sock)
        self.iproto_fds[sock.fileno()] = None

    def accept(self, fd: i64) -> None:
        """Take the connections that wait there."""
        s = self.s
        listener = self.listeners[fd]
        for _ in range(BATCH):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue  # it is gone already
            except OSError as error:  # out of descriptors: the rest must be served all the same
                log.warning("accept: %s; trying again in a second", error)
                self.reopen_ms = s.n.now_ms + 1000
                for one in self.listeners:
                    self.poller.watch(one, 0)
                return
            try:
                if fd in self.iproto_fds:
                    self.greet(sock, address)
                else:
                    self.admit(sock, address)
            except OSError as error:
                log.warning("a connection was not taken: %s", error)
                sock.close()

    def admit(self, sock: socket.socket, address: object) -> None:
        """[C1] Make a client of a new connection, or refuse it (C1.1)."""
        s = self.s
        sock.setblocking(False)
        if self.is_full():
            self.refuse(sock)
            return
        c = Client(s.next_number, sock, name_peer(s.cfg, sock, address), s.max_bulk, s.n.now_ms)
        self.poller.add(c.fd)
        s.next_number += 1
        s.clients[c.fd] = c
        s.by_number[c.number] = c
        s.figures.connections += 1

    def refuse(self, sock: socket.socket) -> None:
        """[C1.7] Say that there are too many, and let the other end read it.

        Closed with bytes unread, the socket would take the error back that it just sent.
        """
        sock.send(FULL)
        if len(self.refused) >= REFUSED_MAX:
            sock.close()
            return
        sock.shutdown(socket.SHUT_WR)
        self.refused[sock.fileno()] = Refused(sock, self.s.n.now_ms + REFUSED_MS)
        self.poller.add(sock.fileno())

    def on_refused(self, fd: i64) -> bool:
        """[C1.7] Throw away what a refused client sends; False if the descriptor is none such."""
        refused = self.refused.get(fd)
        if refused is None:
            return False
        try:
            has_ended = len(refused.sock.recv(UNREAD_BYTES)) == 0
        except BlockingIOError:
            has_ended = False
        except OSError:
            has_ended = True
        if has_ended:
            self.forget(fd, refused)
        return True

    def forget(self, fd: i64, refused: Refused) -> None:
        """Close a refused connection."""
        del self.refused[fd]
        self.poller.drop(fd)
        refused.sock.close()

    def greet(self, sock: socket.socket, address: object) -> None:
        """[I1] Make a connection of a client that speaks IPROTO, and say who is here."""
        s = self.s
        sock.setblocking(False)
        if self.is_full():
            sock.close()  # I1.3
            return
        salt = s.system.random(SALT_BYTES)
        guest = s.users.guest
        w = Wired(s.next_number, sock, name_peer(s.cfg, sock, address), salt, guest, s.n.now_ms)
        s.trust(w, guest)
        self.poller.add(w.fd)
        s.next_number += 1
        s.wired[w.fd] = w
        s.wired_by_number[w.number] = w
        s.figures.connections += 1
        w.out.append(greeting(s.uuid, salt))  # I1.1
        s.touch(w)

    def is_full(self) -> bool:
        """[C1.1] Whether there are as many clients as may be; counts the one that is refused."""
        s = self.s
        if len(s.clients) + len(s.wired) < s.cfg.maxclients:
            return False
        s.figures.rejected += 1
        return True

    def next_ms(self, at_ms: i64) -> i64:
        """When something is due here, if that is before `at_ms`."""
        if 0 < self.reopen_ms < at_ms:
            at_ms = self.reopen_ms
        for refused in self.refused.values():
            return min(at_ms, refused.until_ms)
        return at_ms

    def on_time(self) -> None:
        """Do what is due."""
        now_ms = self.s.n.now_ms
        if 0 < self.reopen_ms <= now_ms:
            self.reopen()
        if len(self.refused) == 0:
            return
        for fd, refused in list(self.refused.items()):
            if refused.until_ms > now_ms:
                return
            self.forget(fd, refused)

    def reopen(self) -> None:
        """There may be descriptors again."""
        self.reopen_ms = 0
        for fd in self.listeners:
            self.poller.watch(fd, IN)

    def close(self) -> None:
        """Listen no more."""
        for sock in self.listeners.values():
            sock.close()
        for refused in self.refused.values():
            refused.sock.close()
