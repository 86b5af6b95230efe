"""Notices of changes in tubes: to subscribers, and to the tube's callback (SPEC T16).

Both follow the change. Callbacks run in a thread of their own, so that a slow or broken one
blocks nothing; notices beyond its backlog are lost, and the log says so.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Full, Queue
from threading import Thread
from typing import TYPE_CHECKING, Final

from tuque.core.model.task import STATUS_NAMES
from tuque.logtext import facts
from tuque.server.log.log import log
from tuque.tubes.model.errors import shown
from tuque.tubes.policy import tubes_of

if TYPE_CHECKING:
    from tuque.server.state.client import Client
    from tuque.server.state.server import Server
    from tuque.tubes.model.options import Told
    from tuque.tubes.model.tube import Tube
    from tuque.tubes.model.tubes import Tubes

WATCHED_BYTES: Final = 200  # of a tube that a client subscribes to, without its name
WAITING_MAX: Final = 10_000  # backlog of callbacks

Callback = Callable[[str, str, int, str, bytes], None]
"""(tube, event, task number, its state, its body)"""


class Notices:
    """The subscribers."""

    def __init__(self) -> None:
        self.watchers: dict[bytes, dict[int, None]] = {}  # numbers of clients, by tube
        self.callbacks: dict[bytes, Callback] = {}
        self.origins: dict[bytes, str] = {}  # of types of tubes: module, class, package
        self.failed: dict[bytes, bytes] = {}  # types that failed to load, and why
        self.waiting: Queue[tuple[Callback, Told]] = Queue(WAITING_MAX)
        self.lost = 0
        self.thread: Thread | None = None

    def run_callbacks(self) -> None:
        """The thread: calls back, one notice after the other."""
        while True:
            callback, told = self.waiting.get()
            change = told.change
            state = STATUS_NAMES[change.status].decode()
            name = told.tube.decode("utf-8", "surrogateescape")
            try:
                callback(name, change.event.decode(), int(change.number), state, told.task.body)
            except BaseException:  # SystemExit, too: the thread serves all callbacks
                log.exception(
                    "the callback of tube %(tube)s failed",
                    facts("tube_callback_failed", tube=shown(told.tube)),
                )

    def call(self, callback: Callback, told: Told) -> None:
        """Queue a notice for the callback."""
        if self.thread is None:
            self.thread = Thread(target=self.run_callbacks, name="tube-callbacks", daemon=True)
            self.thread.start()
        try:
            self.waiting.put_nowait((callback, told))
        except Full:
            self.lost += 1
            if self.lost % WAITING_MAX == 1:
                log.warning(
                    "callbacks of tubes are too slow: %(count)d notices lost",
                    facts("tube_notices_lost", count=self.lost),
                )


def watch(s: Server, c: Client, tube: Tube) -> None:
    """[T16] Subscribe the client to changes in the tube."""
    watchers = s.notices.watchers.setdefault(tube.name, {})
    watchers[c.number] = None
    if tube.name not in c.watched:
        c.watched[tube.name] = None
        c.watched_bytes += WATCHED_BYTES + len(tube.name)
    tube.subscribers = len(watchers)


def leave_notices(s: Server, c: Client, names: list[bytes]) -> None:
    """[T16] Unsubscribe the client from these tubes."""
    for name in names:
        if name in c.watched:
            del c.watched[name]
            c.watched_bytes -= WATCHED_BYTES + len(name)
        watchers = s.notices.watchers.get(name)
        if watchers is None:
            continue
        watchers.pop(c.number, None)
        if not watchers:
            del s.notices.watchers[name]
        tube = tubes_of(s.n).by_name.get(name)
        if tube is not None:
            tube.subscribers = len(watchers)


def tell_changes(s: Server, t: Tubes) -> None:
    """[T16] Notify subscribers and callbacks of this turn's changes (T16.2, T16.3)."""
    while len(t.told) > 0:
        told = t.told
        t.told = []
        for one in told:
            tube = t.by_name.get(one.tube)
            if tube is not None and tube.on_task_change:
                callback = s.notices.callbacks.get(tube.on_task_change)
                if callback is not None:
                    s.notices.call(callback, one)
            watchers = s.notices.watchers.get(one.tube)
            if watchers:
                push(s, watchers, one)


def push(s: Server, watchers: dict[int, None], told: Told) -> None:
    """[T16] `tube-change`, tube, number, event, task id, its state, ms: a push of seven (T16.2)."""
    change = told.change
    out: list[bytes] = []
    out.append(b":%d\r\n+%s\r\n" % (change.seq, change.event))
    state = STATUS_NAMES[change.status]
    out.append(b":%d\r\n+%s\r\n:%d\r\n" % (change.number, state, change.at_ms))
    words = b"".join(out)
    for number in watchers:
        c = s.by_number.get(number)
        if c is not None:
            name = c.named(told.tube)
            c.out.append(b">7\r\n$11\r\ntube-change\r\n$%d\r\n%s\r\n" % (len(name), name))
            c.out.append(words)
            s.touch(c)
