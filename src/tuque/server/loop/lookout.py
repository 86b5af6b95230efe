"""The pump's sleep: what is ready, and a busy poll when a reply is near (SPEC C8.4).

A sleeping process takes some 30 us to run again, and finds its caches cold; copies of a job
take two or three such waits in sequence. The kernel's halt polling does the same below us.
"""

import os
from typing import Final, final

from mypy_extensions import i64

from tuque.server.sockets.poller import Poller
from tuque.server.state.state import Server

FIRST_NS: Final = 25_000  # first busy poll
FEW: Final = 4  # jobs or messages: with more the cores have other work


@final
class Patience:
    """How long to busy-poll: longer after input that came soon, shorter after late input."""

    def __init__(self) -> None:
        self.ns: i64 = 0

    def learn(self, wait_ns: i64, most_ns: i64) -> None:
        """Input came after `wait_ns`; no busy poll shall exceed `most_ns`."""
        if wait_ns > most_ns:
            self.ns = self.ns // 2 if self.ns >= 2 * FIRST_NS else 0
        else:
            self.ns = min(most_ns, max(FIRST_NS, 2 * self.ns))


@final
class Lookout:
    """Waits for sockets on behalf of the pump."""

    def __init__(self, s: Server, poller: Poller) -> None:
        self.s = s
        self.poller = poller
        self.for_copies = Patience()  # copies that producers here wait for
        self.for_more = Patience()  # more messages after those just received

    def patience(self) -> Patience | None:
        """[C8.4] What is expected soon; None: nothing."""
        bus = self.s.bus
        if bus is None or self.s.busy_poll_ns == 0 or not self.s.system.may_spin:
            return None
        heard = bus.heard
        bus.heard = 0
        adding: i64 = len(self.s.n.adding)
        if adding > 0:
            return self.for_copies if adding <= FEW else None
        return self.for_more if 0 < heard <= FEW else None

    def wait(self, most_ms: i64) -> list[tuple[int, int]]:
        """The ready descriptors with their masks; waits up to `most_ms`, -1 for ever."""
        patience = self.patience()
        if patience is None or most_ms == 0:
            return self.poller.wait(most_ms)
        began_ns: i64 = self.s.system.work_ns()
        if patience.ns > 0:
            ready = self.look(began_ns + patience.ns)
            if len(ready) > 0:
                patience.learn(0, self.s.busy_poll_ns)
                return ready
        ready = self.poller.wait(most_ms)
        now_ns: i64 = self.s.system.work_ns()
        patience.learn(now_ns - began_ns, self.s.busy_poll_ns)
        return ready

    def look(self, until_ns: i64) -> list[tuple[int, int]]:
        """Busy-poll until then; other processes get the core in between."""
        while True:
            ready = self.poller.wait(0)
            if len(ready) > 0:
                return ready
            now_ns: i64 = self.s.system.work_ns()
            if now_ns >= until_ns:
                return ready
            os.sched_yield()
