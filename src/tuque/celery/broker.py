"""What a process has of one broker: a client, and the messages that it holds.

One for each URL: a message is acknowledged over any connection that lives, also after a reconnect.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from tuque.celery.options import log
from tuque.client.sync.client import Client
from tuque.client.url import url_of
from tuque.errors import ConnectionError, Error, ReplyError
from tuque.platforms import at_forks

BEATS: Final = 3  # WORKING so many times in the time after which a message goes to another worker
AT_ONCE: Final = 500
PATIENCE_S: Final = 300.0
LIMIT_S: Final = 2.0  # of the search for one of several nodes
T = TypeVar("T")
_brokers: Final[dict[tuple[str, int], Broker]] = {}
_lock = threading.Lock()


def broker_of(url: str, retry_s: int) -> Broker:
    """The broker of this process at a URL."""
    with _lock:
        found = _brokers.get((url, retry_s))
        if found is None:
            found = _brokers[url, retry_s] = Broker(url, retry_s)
        return found


def patiently(call: Callable[[], T]) -> T:
    """What a call returns. In a task of a worker it is repeated while no node can serve it: the
    task, its chain and its chord shall not fail because of that."""
    until_s = time.monotonic() + (PATIENCE_S if _is_in_task() else 0)
    pause_s = 0.02
    while True:
        try:
            return call()
        except Error as err:
            may_serve = err.retryable or isinstance(err, ConnectionError)
            if not may_serve or time.monotonic() > until_s:
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 1.0)


def _is_in_task() -> bool:
    state = sys.modules.get("celery._state")  # kombu may be used without Celery
    return state is not None and state.get_current_worker_task() is not None


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

    def over_nodes(self, ask: Callable[[Client], T]) -> list[T]:
        """What each node of the cluster replies; one that cannot be reached is left out."""
        hello = self.client.hello()
        found: list[T] = []
        for node in hello.nodes:
            if node.id == hello.id:
                found.append(ask(self.client))
                continue
            try:
                url = url_of(self.client.settings, node.host, node.port)
                with Client(url, discover=False, search_timeout=LIMIT_S) as there:
                    found.append(ask(there))
            except ConnectionError as err:
                log.warning("what is known of a queue leaves out a node: %s", err)
        return found

    def take_acks(self) -> list[str]:
        """The first ids to be acknowledged: who takes them sends them, or brings them back."""
        with self._lock:
            some, self._acks = self._acks[:AT_ONCE], self._acks[AT_ONCE:]
        return some

    def bring_back(self, acks: list[str]) -> None:
        """Acknowledgements without a reply: they are sent again."""
        with self._lock:
            self._acks = acks + self._acks

    def flush(self) -> None:
        """Sends the acknowledgements; those of a call that fails are sent with the next one."""
        while some := self.take_acks():
            try:
                self.client.ackjob(*some)
            except Error:
                self.bring_back(some)
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
