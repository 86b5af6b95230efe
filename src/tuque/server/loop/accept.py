"""The sockets where clients arrive, and which clients are admitted or refused (SPEC C1, I1)."""

import socket
from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.timers import NEVER_MS
from tuque.logtext import facts
from tuque.server.access.login import host_of
from tuque.server.access.rights import FULL
from tuque.server.access.tenant import no_room
from tuque.server.log.log import say_once
from tuque.server.loop.fairness import is_stranger
from tuque.server.net.listen import name_peer
from tuque.server.net.system import IN, Poller
from tuque.server.state.client import ORDINARY, SPARE, Client, Connection, Wired
from tuque.server.state.server import REFUSED, REOPEN, Server, log
from tuque.wire.proto.iproto import SALT_BYTES, greeting

UNREAD_BYTES: Final = 65_536  # discarded at once
BATCH: Final = 256  # connections taken from one socket in one turn
LAST_BATCHES: Final = 16  # when no more connections are taken: as many as wait in all
SPARES: Final = 3  # places beyond maxclients, for administrators (C1.12)
MANY_STRANGERS: Final = b"-ERR too many connections of your address have not logged in\r\n"
HOSTS_MAX: Final = 1_000  # addresses with such connections, before it is looked who has gone
REFUSED_MAX: Final = 16  # that may read why; maxclients leaves descriptors for these
REFUSED_MS: Final = 1000  # how long they may take


def is_spare(c: Client) -> bool:
    """Whether the connection is beyond maxclients."""
    return not c.is_closed and c.place != ORDINARY


@final
class Refused:
    """A refused connection; it is not a client."""

    def __init__(self, sock: socket.socket, until_ms: i64) -> None:
        self.sock = sock
        self.until_ms: i64 = until_ms


@final
class Acceptors:
    """The clients' listening sockets, registered with the pump's poller."""

    def __init__(self, s: Server, poller: Poller) -> None:
        self.s = s
        self.poller = poller
        self.listeners: dict[int, socket.socket] = {}
        self.iproto_fds: dict[int, None] = {}  # the listeners for IPROTO among them
        self.refused: dict[int, Refused] = {}  # by descriptor, oldest first
        self.strangers: dict[bytes, dict[int, None]] = {}  # not logged in, by address
        self.spares: dict[int, Client] = {}  # beyond maxclients, by number, oldest first (C1.12)

    def listen(self, sock: socket.socket) -> None:
        """Accept clients from a bound, listening, non-blocking socket."""
        self.listeners[sock.fileno()] = sock
        self.poller.add(sock.fileno())

    def listen_iproto(self, sock: socket.socket) -> None:
        """The same for IPROTO clients."""
        self.listen(sock)
        self.iproto_fds[sock.fileno()] = None

    def accept(self, fd: i64) -> None:
        """Accept the waiting connections."""
        s = self.s
        listener = self.listeners[fd]
        for _ in range(BATCH):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue  # it is gone already
            except OSError as error:  # out of descriptors: the others must still be served
                log.warning(
                    "accept: %(reason)s; trying again in a second",
                    facts("accept_paused", reason=error),
                )
                s.alarms.set(REOPEN, s.n.now_ms + 1000)
                for one in self.listeners:
                    self.poller.watch(one, 0)
                return
            self.admit(sock, address, fd in self.iproto_fds)

    def admit(
        self, sock: socket.socket, address: object, is_iproto: bool, user: bytes = b""
    ) -> bool:
        """Make a client of an accepted connection, `user` if it proved that; False: impossible."""
        s = self.s
        try:
            if is_iproto:
                self.greet(sock, address)
            else:
                self.admit_client(sock, address, user)
        except OSError as error:
            told = facts("accept_failed", reason=error)
            say_once(s.n.now_ms, "cannot accept a connection: %(reason)s", told)
            sock.close()
        return sock.fileno() >= 0

    def admit_client(self, sock: socket.socket, address: object, user: bytes) -> None:
        """[C1] Make a client of a new connection, or refuse it (C1.1)."""
        s = self.s
        sock.setblocking(False)
        is_spare = self.is_full()
        if is_spare and not self.has_spare():
            s.figures.rejected += 1
            self.refuse(sock, b"-%s\r\n" % FULL)
            return
        now_ms = s.n.now_ms
        name = name_peer(s.cfg, sock, address, now_ms)
        c = Client(s.next_number, sock, name, s.max_bulk, now_ms)
        c.user = s.acl.newcomer  # N1.2
        account = s.acl.by_name.get(user)
        if account is not None and account.is_on:
            full = no_room(s, None, account)
            if full is not None:
                self.refuse(sock, b"-%s\r\n" % full)  # N11.4
                return
            c.user = account  # X3.2
        if c.user is None:
            c.stranger_ms = s.n.now_ms
            if self.has_many(c):
                self.refuse(sock, MANY_STRANGERS)
                return
        if is_spare:
            c.place = SPARE
            self.spares[int(c.number)] = c
        self.poller.add(c.fd)
        s.next_number += 1
        s.clients[c.fd] = c
        s.by_number[c.number] = c
        s.figures.connections += 1

    def has_many(self, c: Connection) -> bool:
        """[N6] Whether too many of its address have not logged in; counts it if not (N6.5)."""
        s = self.s
        if s.cfg.login_connections == 0 or c.address.startswith("unix:"):
            return False
        host = host_of(c)
        if len(self.strangers) >= HOSTS_MAX:
            self.strangers = {name: met for name, met in self.strangers.items() if self.left(met)}
        met = self.left(self.strangers.get(host, {}))
        self.strangers[host] = met
        if len(met) >= s.cfg.login_connections:
            s.figures.rejected += 1
            return True
        met[int(c.number)] = None
        return False

    def left(self, met: dict[int, None]) -> dict[int, None]:
        """Those of the connections that still have to log in."""
        found: dict[int, None] = {}
        for number in met:
            c = self.s.by_number.get(number)
            if c is not None and c.user is None:
                found[number] = None
            w = self.s.wired_by_number.get(number)
            if w is not None and is_stranger(self.s, w):
                found[number] = None
        return found

    def refuse(self, sock: socket.socket, why: bytes) -> None:
        """[C1.7] Reply that there are too many clients, and let the other end read it.

        If closed with input unread, the socket would discard the error just sent.
        """
        try:
            sock.send(why)
            if len(self.refused) >= REFUSED_MAX:
                sock.close()
                return
            sock.shutdown(socket.SHUT_WR)
        except OSError:  # it is gone already
            sock.close()
            return
        self.refused[sock.fileno()] = Refused(sock, self.s.n.now_ms + REFUSED_MS)
        self.s.alarms.set(REFUSED, self.first_ms())
        self.poller.add(sock.fileno())

    def on_refused(self, fd: i64) -> bool:
        """[C1.7] Discard what a refused client sends; False if the descriptor is not one."""
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
        self.s.alarms.set(REFUSED, self.first_ms())
        self.poller.drop(fd)
        refused.sock.close()

    def greet(self, sock: socket.socket, address: object) -> None:
        """[I1] Accept an IPROTO client and send the greeting."""
        s = self.s
        sock.setblocking(False)
        if self.is_full():
            s.figures.rejected += 1
            sock.close()  # I1.3
            return
        salt = s.system.random(SALT_BYTES)
        guest = s.users.guest
        name = name_peer(s.cfg, sock, address, s.n.now_ms)
        w = Wired(s.next_number, sock, name, salt, guest, s.n.now_ms)
        s.trust(w, guest)
        w.stranger_ms = s.n.now_ms
        if is_stranger(s, w) and self.has_many(w):
            sock.close()  # N6.5
            return
        self.poller.add(w.fd)
        s.next_number += 1
        s.wired[w.fd] = w
        s.wired_by_number[w.number] = w
        s.figures.connections += 1
        w.out.append(greeting(s.uuid, salt))  # I1.1
        s.touch(w)

    def is_full(self) -> bool:
        """[C1.1] Whether maxclients is reached."""
        return len(self.s.clients) + len(self.s.wired) >= self.s.cfg.maxclients

    def has_spare(self) -> bool:
        """[C1] Whether a place for administrators is free; the oldest connection there that has not
        shown that it may administrate makes room (C1.12).
        """
        found = {number: c for number, c in self.spares.items() if is_spare(c)}
        self.spares = found
        if len(found) < SPARES:
            return True
        for number, c in found.items():
            if c.place == SPARE:
                if not c.is_closing:
                    self.s.figures.rejected += 1
                    c.error(FULL)
                    c.is_closing = True
                    self.s.touch(c)
                self.s.doomed.append(c)
                del found[number]
                return True
        return False

    def first_ms(self) -> i64:
        """When the first of the refused connections is closed; NEVER_MS: there is none."""
        for refused in self.refused.values():
            return refused.until_ms
        return NEVER_MS

    def on_time(self) -> None:
        """Run what is due."""
        now_ms = self.s.n.now_ms
        if self.s.alarms.at(REOPEN) <= now_ms:
            self.reopen()
        for fd, refused in list(self.refused.items()):
            if refused.until_ms > now_ms:
                return
            self.forget(fd, refused)

    def reopen(self) -> None:
        """Accept again: descriptors may be free."""
        self.s.alarms.unset(REOPEN)
        for fd in self.listeners:
            self.poller.watch(fd, IN)

    def shut(self) -> None:
        """[C11] Take no more connections but those that wait (C11.1): they would be reset."""
        for fd in list(self.listeners):
            for _ in range(LAST_BATCHES):
                self.accept(fd)
        self.s.alarms.unset(REOPEN)
        for fd, sock in self.listeners.items():
            self.poller.drop(fd)
            sock.close()
        self.listeners = {}

    def close(self) -> None:
        """Stop listening."""
        for sock in self.listeners.values():
            sock.close()
        for refused in self.refused.values():
            refused.sock.close()
