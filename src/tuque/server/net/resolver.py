"""Host names of other nodes become addresses, in threads: a slow name server never stops the pump.

`ask` returns at once; when results exist `wake_fd` is readable and `take` returns them.
"""

from __future__ import annotations

import os
import socket
import threading
from ipaddress import ip_address
from typing import Final

from mypy_extensions import mypyc_attr

LOOKUPS_MAX: Final = 16  # concurrent; more are refused


def is_literal(host: str) -> bool:
    """Whether it is an IPv4 or IPv6 address."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class Answer:
    """The result for a name: an address, or the error."""

    def __init__(self, host: str, address: str, error: str) -> None:
        self.host = host
        self.address = address
        self.error = error


@mypyc_attr(allow_interpreted_subclasses=True)  # the simulator has its own
class Resolver:
    """Looks up names, each in a thread of its own."""

    def __init__(self) -> None:
        self.wake_fd, self._write_fd = os.pipe()
        os.set_blocking(self.wake_fd, False)
        os.set_blocking(self._write_fd, False)
        self._lock = threading.Lock()
        self._asked: dict[str, None] = {}
        self._answers: list[Answer] = []
        self._is_closed = False

    def ask(self, host: str) -> None:
        """Start a lookup, unless one for that name runs already."""
        with self._lock:
            if host in self._asked:
                return
            if len(self._asked) >= LOOKUPS_MAX:
                self._answers.append(Answer(host, "", "too many names are being looked up"))
                self._wake()
                return
            self._asked[host] = None
        threading.Thread(target=self._look_up, args=(host,), name="resolver", daemon=True).start()

    def take(self) -> list[Answer]:
        """The results since the last call."""
        try:
            os.read(self.wake_fd, 4096)
        except BlockingIOError:
            pass
        with self._lock:
            answers, self._answers = self._answers, []
        return answers

    def close(self) -> None:
        """Close the descriptors; running lookups end by themselves."""
        with self._lock:
            self._is_closed = True
            os.close(self.wake_fd)
            os.close(self._write_fd)

    def _look_up(self, host: str) -> None:
        answer = Answer(host, "", "")
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            found.sort(key=lambda one: one[0] != socket.AF_INET)  # IPv4 first: listeners need it
            answer.address = str(found[0][4][0])
        except (OSError, UnicodeError) as error:
            answer.error = getattr(error, "strerror", None) or str(error)
        with self._lock:
            self._asked.pop(host, None)
            if not self._is_closed:
                self._answers.append(answer)
                self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._write_fd, b"\0")
        except BlockingIOError:
            pass  # already readable
