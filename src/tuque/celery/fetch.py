"""The connections of a consumer: one with a GETJOB that waits for all its queues, whose socket a
loop watches, and one to the same node for what cannot wait behind that.

Acknowledgements leave with the next question, or over the second connection; nobody waits for
their replies. Must not know kombu.
"""

from __future__ import annotations

import select
import time
from collections import deque
from typing import Any, Final

from tuque.client.api import Job
from tuque.client.commands.calls import Call, getjob
from tuque.client.sync.client import Client
from tuque.client.transport.sockets import Link
from tuque.client.url import Address
from tuque.errors import ConnectionError, ReplyError, TubeHome

WAIT_MS: Final = 30_000
LATE_S: Final = 10.0  # a reply that is so late does not come: the link is dead
LIMIT_S: Final = 5.0
STEP_S: Final = 0.02
AGAIN_S: Final = 0.2


class Fetch:
    """A question for jobs, and acknowledgements. A lost connection is opened again when needed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._link: Link | None = None
        self._side: Link | None = None
        self._number = 0
        self._call: Call[list[Job]] | None = None
        self._due_s = self._again_s = 0.0
        self._is_ending = False
        self.queues: list[str] = []  # of the question
        self._asked_acks: list[str] = []  # that left with the question
        self._side_acks: deque[list[str]] = (
            deque()
        )  # acknowledgements that the second link has no reply to
        self._lost: list[str] = []

    @property
    def is_waiting(self) -> bool:
        """Whether a question has no reply yet."""
        return self._call is not None

    @property
    def may_ask(self) -> bool:
        """Whether no question was refused just now."""
        return time.monotonic() >= self._again_s

    @property
    def links(self) -> list[Link]:
        """The connections, for a loop that watches them."""
        return [link for link in (self._link, self._side) if link is not None]

    def take_lost(self) -> list[str]:
        """The acknowledgements that may not have arrived."""
        lost, self._lost = self._lost, []
        return lost

    # ---- What is sent

    def ask(self, queues: list[str], count: int, acks: list[str]) -> None:
        """Acknowledges, and asks for jobs; ConnectionError if no node can be reached."""
        call = getjob(*queues, timeout_ms=WAIT_MS, count=count, withcounters=True)
        words = [("ACKJOB", *acks), call.args] if acks else [call.args]
        try:
            if self._link is None or self._link.is_stale():
                self._open()
            try:
                self._send(words)
            except (OSError, ConnectionError):
                self._open()
                self._send(words)
        except BaseException:
            self._lost += acks
            raise
        self._call, self.queues, self._asked_acks, self._is_ending = call, queues, acks, False
        self._due_s = time.monotonic() + WAIT_MS / 1000 + LATE_S

    def acknowledge(self, acks: list[str]) -> None:
        """Acknowledges beside the question."""
        try:
            self._send_beside(("ACKJOB", *acks), acks)
        except (OSError, ConnectionError):
            self._lost += acks
            self._close_side()

    def end(self) -> None:
        """[C7.12] Has the question answered soon, with no jobs if none are there."""
        if self._call is None or self._is_ending:
            return
        self._is_ending = True
        try:
            self._send_beside(("CLIENT", "UNBLOCK", self._number), [])
        except (OSError, ConnectionError):
            self.close()  # with the node goes the wait

    def _send(self, words: list[tuple[Any, ...]]) -> None:
        assert self._link is not None
        self._link.send(self._link.pack(words), LIMIT_S)

    def _send_beside(self, words: tuple[Any, ...], acks: list[str]) -> None:
        if self._side is None:
            self._side = self._client.dedicated(self._link.address if self._link else None)
        self._side.send(self._side.pack([words]), LIMIT_S)
        self._side_acks.append(acks)

    def _open(self, at: Address | None = None) -> None:
        self.close()
        self._link = self._client.dedicated(at)
        self._number = int(_asked(self._link, "CLIENT", "ID"))

    # ---- What comes

    def read(self) -> list[Job]:
        """The jobs that came; a lost connection ends the wait, and the next `ask` makes another."""
        self._read_side()
        found: list[Job] = []
        try:
            while self._link is not None and self._link.has_input():
                for reply in self._link.feed(_received(self._link)):
                    found += self._answered(reply)
                if self._call is None:
                    break
        except (OSError, ConnectionError):
            self.close()
        if self._call is not None and time.monotonic() > self._due_s:
            self.close()
        return found

    def _answered(self, reply: Any) -> list[Job]:
        if self._asked_acks:
            acks, self._asked_acks = self._asked_acks, []
            if isinstance(reply, ReplyError):
                self._lost += acks
            return []
        call, self._call = self._call, None
        if isinstance(reply, TubeHome):
            host, _, port = reply.home.rpartition(":")
            self._open(Address(host.strip("[]"), int(port)))
            return []
        if isinstance(reply, ReplyError):
            self.close()
            if reply.retryable:  # as of a node that is leaving: another one is asked
                self._again_s = time.monotonic() + AGAIN_S
                return []
            raise reply
        assert call is not None
        return call.parse(reply)

    def _read_side(self) -> None:
        try:
            while self._side is not None and self._side.has_input():
                for reply in self._side.feed(_received(self._side)):
                    acks = self._side_acks.popleft()
                    if isinstance(reply, ReplyError):
                        self._lost += acks
        except (OSError, ConnectionError):
            self._close_side()

    def stop(self) -> list[Job]:
        """Ends the wait; returns the jobs that came before."""
        until_s = time.monotonic() + LIMIT_S
        self.end()
        found: list[Job] = []
        while self._call is not None and self._link is not None:
            if time.monotonic() > until_s:
                self.close()
                break
            select.select([self._link.fileno()], [], [], STEP_S)
            found += self.read()
        return found

    def close(self) -> None:
        """Ends the connections, and with them the wait."""
        if self._link is not None:
            self._link.close()
        self._lost += self._asked_acks
        self._link, self._call, self._asked_acks = None, None, []
        self._close_side()

    def _close_side(self) -> None:
        if self._side is not None:
            self._side.close()
            self._side = None
        for acks in self._side_acks:
            self._lost += acks
        self._side_acks.clear()


def _received(link: Link) -> bytes:
    data = link.receive()
    if not data:
        raise link.closed("it closed the connection")
    return data


def _asked(link: Link, *words: str | int) -> Any:
    replies: list[Any] = []
    link.exchange([words], replies, time.monotonic() + LIMIT_S)
    if isinstance(replies[0], ReplyError):
        raise replies[0]
    return replies[0]
