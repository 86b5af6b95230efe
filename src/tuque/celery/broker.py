"""What a process has of one broker: a client, the messages that it holds, and waits for more.

One for each URL: a message is acknowledged over any connection that lives, also after a reconnect.
"""

from __future__ import annotations

import atexit
import select
import threading
import time
from collections.abc import Iterable
from typing import Any, Final

from tuque.celery.options import log
from tuque.client.api import Job
from tuque.client.commands.calls import Call, getjob
from tuque.client.sync.client import Client
from tuque.client.transport.sockets import Link
from tuque.client.url import Address
from tuque.errors import ConnectionError, Error, ReplyError, TubeHome
from tuque.platforms import at_forks

BEATS: Final = 3  # WORKING so many times in the time after which a message goes to another worker
AT_ONCE: Final = 500
WAIT_MS: Final = 30_000
LATE_S: Final = 10.0  # a reply that is so late does not come: the link is dead
LIMIT_S: Final = 5.0
STEP_S: Final = 0.02
_brokers: Final[dict[tuple[str, int], Broker]] = {}
_lock = threading.Lock()


def broker_of(url: str, retry_s: int) -> Broker:
    """The broker of this process at a URL."""
    with _lock:
        found = _brokers.get((url, retry_s))
        if found is None:
            found = _brokers[url, retry_s] = Broker(url, retry_s)
        return found


class Broker:
    """A client, and the ids of messages that consumers of this process hold."""

    def __init__(self, url: str, retry_s: int) -> None:
        self.client = Client(url, follow=False)
        self._retry_s = retry_s
        self.forget()

    def forget(self) -> None:
        """Holds nothing, as a new process."""
        self._lock = threading.Lock()
        self._held: dict[str, None] = {}
        self._acks: list[str] = []
        self._thread: threading.Thread | None = None

    def hold(self, ids: Iterable[str]) -> None:
        """These stay ours until they are acknowledged or given back."""
        with self._lock:
            self._held.update(dict.fromkeys(ids))
            if self._thread is None and self._held:
                self._thread = threading.Thread(target=self._beat, name="tuque-held", daemon=True)
                self._thread.start()

    def note_ack(self, id: str) -> None:
        """Acknowledges a message with the next `flush`."""
        with self._lock:
            self._held.pop(id, None)
            self._acks.append(id)

    def flush(self) -> None:
        """Sends the acknowledgements; those of a call that fails are sent with the next one."""
        while self._acks:
            with self._lock:
                some, self._acks = self._acks[:AT_ONCE], self._acks[AT_ONCE:]
            try:
                self.client.ackjob(*some)
            except Error:
                with self._lock:
                    self._acks = some + self._acks
                raise

    def give_back(self, ids: list[str]) -> None:
        """[W4.2] Puts messages into their queues again, which counts nothing."""
        self._release(ids)
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE]
            self.client.release(*((id, "-") for id in some))

    def requeue(self, id: str) -> None:
        """Puts a rejected message into its queue again."""
        self._release([id])
        self.client.nack(id)

    def bury(self, id: str, reason: str) -> None:
        """[W6.5] Makes a message a dead letter."""
        self._release([id])
        run = self.client.start(id)[0]
        if isinstance(run, ReplyError):
            raise run
        self.client.fail(id, run.run, reason=reason, final=True)

    def _release(self, ids: list[str]) -> None:
        with self._lock:
            for id in ids:
                self._held.pop(id, None)

    def _beat(self) -> None:
        """Says WORKING for all that is held, until nothing is."""
        ended = threading.Event()
        me = threading.current_thread()
        while not ended.wait(self._retry_s / BEATS):
            with self._lock:
                ids = list(self._held)
                if not ids or self._thread is not me:
                    if self._thread is me:
                        self._thread = None
                    return
            try:
                self._extend(ids)
            except Error as err:
                log.warning("cannot say that %d messages are still at work: %s", len(ids), err)

    def _extend(self, ids: list[str]) -> None:
        for start in range(0, len(ids), AT_ONCE):
            with self.client.pipeline() as pipe:
                for id in ids[start : start + AT_ONCE]:
                    pipe.working(id)
                pipe.execute(raise_on_error=False)


def _begin_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for one in _brokers.values():
        one.forget()


def _end() -> None:
    for one in _brokers.values():
        one.client.close()


at_forks(_begin_fork)
atexit.register(_end)


class Fetch:
    """A connection with a GETJOB that waits, whose socket a loop watches.

    A lost connection is opened again at the next command.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.link: Link | None = None
        self._helper: Link | None = None  # to the same node: ends a wait there
        self._number = 0
        self._call: Call[list[Job]] | None = None
        self._due_s = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether a GETJOB has no reply yet."""
        return self._call is not None

    @property
    def fd(self) -> int:
        """The socket's; -1 without one."""
        return -1 if self.link is None else self.link.fileno()

    def ask(self, queues: list[str], count: int) -> None:
        """Sends a GETJOB; ConnectionError if no node can be reached."""
        call = getjob(*queues, timeout_ms=WAIT_MS, count=count, withcounters=True)
        if self.link is None or self.link.is_stale():
            self._open()
        try:
            self._send(call)
        except (OSError, ConnectionError):
            self._open()
            self._send(call)
        self._call = call
        self._due_s = time.monotonic() + WAIT_MS / 1000 + LATE_S

    def _send(self, call: Call[list[Job]]) -> None:
        assert self.link is not None
        self.link.send(self.link.pack([call.args]), LIMIT_S)

    def _open(self, at: Address | None = None) -> None:
        self.close()
        self.link = self._client.dedicated(at)
        self._number = int(_asked(self.link, "CLIENT", "ID"))

    def read(self) -> list[Job]:
        """The jobs that came; a lost connection ends the wait, and the next `ask` makes another."""
        if self._call is None or self.link is None:
            return []
        try:
            while self.link.has_input():
                data = self.link.receive()
                if not data:
                    raise self.link.closed("it closed the connection")
                for reply in self.link.feed(data):
                    return self._answered(reply)
        except (OSError, ConnectionError):
            self.close()
        if self._call is not None and time.monotonic() > self._due_s:
            self.close()
        return []

    def _answered(self, reply: Any) -> list[Job]:
        call, self._call = self._call, None
        if isinstance(reply, TubeHome):
            host, _, port = reply.home.rpartition(":")
            self._open(Address(host.strip("[]"), int(port)))
            return []
        if isinstance(reply, ReplyError):
            self.close()
            raise reply
        assert call is not None
        return call.parse(reply)

    def stop(self) -> list[Job]:
        """[C7.12] Ends the wait; returns the jobs that came before."""
        until_s = time.monotonic() + LIMIT_S
        while self._call is not None and self.link is not None:
            if time.monotonic() > until_s:
                self.close()
                break
            try:
                if self._helper is None:
                    self._helper = self._client.dedicated(self.link.address)
                _asked(self._helper, "CLIENT", "UNBLOCK", self._number)
            except ConnectionError:
                self.close()  # with the node goes the wait
                break
            select.select([self.link.fileno()], [], [], STEP_S)
            found = self.read()
            if found:
                return found
        return []

    def close(self) -> None:
        """Ends the connections, and with them the wait."""
        for link in (self.link, self._helper):
            if link is not None:
                link.close()
        self.link = self._helper = self._call = None


def _asked(link: Link, *words: str | int) -> Any:
    replies: list[Any] = []
    link.exchange([words], replies, time.monotonic() + LIMIT_S)
    if isinstance(replies[0], ReplyError):
        raise replies[0]
    return replies[0]
