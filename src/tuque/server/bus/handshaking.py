"""TLS handshakes of links, in a thread: the bus gets a connection when its handshake is over.

Decides which unauthenticated connection begins next; the bus decides which are closed (SPEC
B1.8).
"""

import contextlib
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, final

from tuque.server.bus.reasons import is_no_tls
from tuque.server.journal.thread import Wakeup
from tuque.tlsstream import TlsStream

BEGIN_MAX: Final = 5  # handshakes of a stranger's address in BEGIN_S: each costs a signature
BEGIN_S: Final = 0.1

READ: Final = selectors.EVENT_READ
BOTH: Final = selectors.EVENT_READ | selectors.EVENT_WRITE
ALERT: Final = b"\x15\x03\x01\x00\x02\x02\x46"  # no common version
LOOK_S: Final = 1.0  # between two looks at the files of the certificates


# ---- Connections that wait for their handshake, and the order in which they begin (SPEC B1.8)


@final
class PendingLink:
    """A connection in its TLS handshake; the thread has it until `take` returns it."""

    def __init__(self, sock: socket.socket, is_dialer: bool, is_near: bool, host: str) -> None:
        self.sock = sock
        self.fd: int = sock.fileno()
        self.is_dialer = is_dialer
        self.is_near = is_near  # dialled, or from the address of a member
        self.host = host  # the address of the other end
        self.stream: TlsStream | None = None  # of the thread, then of the bus
        self.error: OSError | None = None  # why there is no link
        self.watches: int = 1  # selectors.EVENT_READ
        self.is_gone = False  # given up by the bus

    def close(self) -> None:
        """Close the connection."""
        if self.stream is not None:
            self.stream.close()
        else:
            self.sock.close()


@final
class PendingByHost:
    """Those that have not begun, by address. Times are in seconds of one clock."""

    def __init__(self) -> None:
        self.waiting: dict[str, dict[int, PendingLink]] = {}  # by address and descriptor
        self.begun: dict[str, int] = {}  # of an address, until `until_s`
        self.until_s = 0.0

    def add(self, pending_link: PendingLink) -> None:
        """It waits."""
        of_host = self.waiting.get(pending_link.host)
        if of_host is None:
            of_host = self.waiting[pending_link.host] = {}
        of_host[pending_link.fd] = pending_link

    def drop(self, pending_link: PendingLink) -> None:
        """It is given up, if it waits."""
        of_host = self.waiting.get(pending_link.host)
        if of_host is not None and of_host.get(pending_link.fd) is pending_link:
            del of_host[pending_link.fd]
            if len(of_host) == 0:
                del self.waiting[pending_link.host]

    def take(self, now_s: float) -> PendingLink | None:
        """The next to begin; None: nobody, for `patience_s`.

        The address of which fewest have begun is the next, and its newest connection the first: in
        a flood the others have lost their place.
        """
        if now_s >= self.until_s:
            self.until_s = now_s + BEGIN_S
            self.begun = {}
        next_host = ""
        least = BEGIN_MAX - 1
        is_found = False
        for host in self.waiting:
            count = self.begun.get(host, 0)
            if count <= least:
                next_host = host
                least = count
                is_found = True
        if not is_found:
            return None
        self.begun[next_host] = least + 1
        of_host = self.waiting[next_host]
        pending_link = of_host.popitem()[1]
        if len(of_host) == 0:
            del self.waiting[next_host]
        return pending_link

    def patience_s(self, now_s: float, most_s: float) -> float:
        """How long `take` will find nobody, at most `most_s`."""
        if len(self.waiting) == 0:
            return most_s
        for host in self.waiting:
            if self.begun.get(host, 0) < BEGIN_MAX:
                return 0.0
        return min(most_s, max(0.0, self.until_s - now_s))

    def all(self) -> list[PendingLink]:
        """All that wait."""
        return [
            pending_link for of_host in self.waiting.values() for pending_link in of_host.values()
        ]


# ---- The thread


@final
class Handshaking:
    """The thread; `bell` rings when `take` has something, or the certificates are new."""

    def __init__(self, context: Callable[[bool], ssl.SSLContext], loads: Callable[[], int]) -> None:
        """`context`: of the dialling end, or of the other one; `loads`: counts the certificates."""
        self.bell = Wakeup()
        self.loads = 0  # as the bus has heard of it
        self._context = context
        self._count = loads
        self._asked: deque[PendingLink] = deque()  # to begin, or to give up
        self._done: deque[PendingLink] = deque()
        self._shaking: dict[int, PendingLink] = {}  # of the thread alone
        self._near: dict[
            int, PendingLink
        ] = {}  # have not begun, as those in `_far`; of the thread alone
        self._far = PendingByHost()
        self._poll = selectors.DefaultSelector()
        self._wake = Wakeup()
        self._is_closing = False
        self._loads = self.loads = loads()
        self._worker = threading.Thread(target=self._run, name="tls-bus", daemon=True)

    # ---- the loop's side

    def start(self) -> None:
        """Begin to work."""
        self._poll.register(self._wake.fd, READ)
        self._worker.start()

    def begin(self, sock: socket.socket, is_dialer: bool, is_near: bool, host: str) -> PendingLink:
        """Do the handshake of a connected socket, which the thread has from now on.

        `is_near`: it begins before those of strangers; `host`: the address of the other end.
        """
        pending_link = PendingLink(sock, is_dialer, is_near, host)
        self._asked.append(pending_link)
        self._wake.ring()
        return pending_link

    def end(self, pending_link: PendingLink) -> None:
        """Give it up: it is closed soon."""
        pending_link.is_gone = True
        self._asked.append(pending_link)
        self._wake.ring()

    def take(self) -> list[PendingLink]:
        """Those whose handshake is over; they are the caller's."""
        self.bell.quiet()
        found: list[PendingLink] = []
        while len(self._done) > 0:
            pending_link = self._done.popleft()
            if pending_link.is_gone:
                pending_link.close()
            else:
                found.append(pending_link)
        return found

    def has_new(self) -> bool:
        """Whether there are other certificates than at the last call."""
        loads = self._loads
        is_new = loads != self.loads
        self.loads = loads
        return is_new

    def close(self) -> None:
        """Stop; returns when the thread has ended."""
        self._is_closing = True
        self._wake.ring()
        if self._worker.is_alive():
            self._worker.join(5)
        for pending_link in [*self._done, *self._asked]:
            pending_link.close()
        self.bell.close()

    # ---- the thread

    def _run(self) -> None:
        while not self._is_closing:
            for key, _ in self._poll.select(self._patience_s()):
                pending_link = self._shaking.get(key.fd)
                if pending_link is not None:
                    self._go_on(pending_link)
                elif key.fd == self._wake.fd:
                    self._wake.quiet()
            while len(self._asked) > 0:
                self._hear(self._asked.popleft())
            if len(self._near) > 0:
                self._start(self._near.popitem()[1])
            else:
                stranger = self._far.take(time.monotonic())
                if stranger is not None:
                    self._start(stranger)
            loads = self._count()
            if loads != self._loads:
                self._loads = loads
                self.bell.ring()
        for pending_link in [*self._shaking.values(), *self._near.values(), *self._far.all()]:
            pending_link.close()
        self._poll.close()
        self._wake.close()

    def _hear(self, pending_link: PendingLink) -> None:
        """Begin a handshake, or end one; one that is over meanwhile is closed by `take`.

        To begin costs a signature. An accepted connection waits until nothing else is to be done,
        and the newest one is the first: in a flood the others have lost their place.
        """
        if self._shaking.get(pending_link.fd) is pending_link:
            if pending_link.is_gone:
                self._forget(pending_link)
                pending_link.close()
        elif pending_link.stream is None:
            if pending_link.is_gone:
                if not pending_link.is_near:
                    self._far.drop(pending_link)
                elif self._near.get(pending_link.fd) is pending_link:
                    del self._near[pending_link.fd]
                self._close_once(pending_link)
            elif pending_link.is_dialer:
                self._start(pending_link)
            elif pending_link.is_near:
                self._near[pending_link.fd] = pending_link
            else:
                self._far.add(pending_link)

    def _patience_s(self) -> float:
        """How long to wait for bytes: not at all while connections may begin."""
        if len(self._near) > 0:
            return 0.0
        return self._far.patience_s(time.monotonic(), LOOK_S)

    def _start(self, pending_link: PendingLink) -> None:
        """Begin a handshake."""
        context = self._context(pending_link.is_dialer)
        pending_link.stream = TlsStream(pending_link.sock, context, pending_link.is_dialer)
        self._shaking[pending_link.fd] = pending_link
        self._poll.register(pending_link.fd, READ)
        self._go_on(pending_link)

    def _close_once(self, pending_link: PendingLink) -> None:
        """It was given up before it began; it is asked twice, and its number may be another's."""
        if pending_link.fd >= 0:
            pending_link.fd = -1
            pending_link.close()

    def _go_on(self, pending_link: PendingLink) -> None:
        """The next step."""
        stream = pending_link.stream
        assert stream is not None
        try:
            is_over = stream.handshake()
        except OSError as error:
            pending_link.error = error
            is_over = True
            if not pending_link.is_dialer and is_no_tls(error):
                with contextlib.suppress(OSError):
                    pending_link.sock.send(ALERT)  # OpenSSL says nothing then
        if is_over and (pending_link.error is not None or not stream.wants_write):
            self._forget(pending_link)
            self._done.append(pending_link)
            self.bell.ring()
            return
        wanted = BOTH if stream.wants_write else READ
        if wanted != pending_link.watches:
            pending_link.watches = wanted
            self._poll.modify(pending_link.fd, wanted)

    def _forget(self, pending_link: PendingLink) -> None:
        del self._shaking[pending_link.fd]
        with contextlib.suppress(KeyError, ValueError):
            self._poll.unregister(pending_link.fd)
