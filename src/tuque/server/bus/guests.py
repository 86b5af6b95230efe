"""Connections that wait for their TLS handshake, and which of strangers begins next (SPEC B1.8)."""

import socket
from typing import Final, final

from tuque.tlsstream import TlsStream

BEGIN_MAX: Final = 5  # handshakes of a stranger's address in BEGIN_S: each costs a signature
BEGIN_S: Final = 0.1


@final
class Guest:
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
class Strangers:
    """Those that have not begun, by address. Times are in seconds of one clock."""

    def __init__(self) -> None:
        self.waiting: dict[str, dict[int, Guest]] = {}  # by address and descriptor
        self.begun: dict[str, int] = {}  # of an address, until `until_s`
        self.until_s = 0.0

    def add(self, guest: Guest) -> None:
        """It waits."""
        of_host = self.waiting.get(guest.host)
        if of_host is None:
            of_host = self.waiting[guest.host] = {}
        of_host[guest.fd] = guest

    def drop(self, guest: Guest) -> None:
        """It is given up, if it waits."""
        of_host = self.waiting.get(guest.host)
        if of_host is not None and of_host.get(guest.fd) is guest:
            del of_host[guest.fd]
            if len(of_host) == 0:
                del self.waiting[guest.host]

    def take(self, now_s: float) -> Guest | None:
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
        guest = of_host.popitem()[1]
        if len(of_host) == 0:
            del self.waiting[next_host]
        return guest

    def patience_s(self, now_s: float, most_s: float) -> float:
        """How long `take` will find nobody, at most `most_s`."""
        if len(self.waiting) == 0:
            return most_s
        for host in self.waiting:
            if self.begun.get(host, 0) < BEGIN_MAX:
                return 0.0
        return min(most_s, max(0.0, self.until_s - now_s))

    def all(self) -> list[Guest]:
        """All that wait."""
        return [guest for of_host in self.waiting.values() for guest in of_host.values()]
