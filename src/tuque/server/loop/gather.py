"""Whether a turn reads on before it syncs the journal itself: more share the sync (J4.7)."""

import os
from typing import Final, final

from mypy_extensions import i64

from tuque.server.sockets.poller import Poller
from tuque.server.state.state import Server

NONE: Final[list[tuple[int, int]]] = []
MOST_NS: Final = 1_000_000  # a turn gathers for at most this long
SHARE: Final = 2  # the wait is at most this fraction (1/2) of the last sync's time
EXPECTED: Final = 9  # tenths of the replies that the last sync released: enough to stop waiting


@final
class Gather:
    """Polls for more input within a turn."""

    def __init__(self, s: Server, poller: Poller) -> None:
        self.s = s
        self.poller = poller
        self.freed: i64 = 0  # replies that the last sync released, roughly
        self.sync_ns: i64 = 0  # its duration
        self.began_ns: i64 = 0  # of this turn

    def more(self, binding: i64) -> list[tuple[int, int]]:
        """[J4.7] More ready descriptors, with masks; empty: sync now. `binding`: count before."""
        records = self.s.n.records
        committer = self.s.committer
        system = self.s.system
        if committer is None or records is None:
            return NONE
        came: i64 = records.binding_count - binding
        if came == 0 or not committer.syncs_here():
            return NONE
        now_ns: i64 = system.work_ns()
        if self.began_ns == 0:
            self.began_ns = now_ns
        end_ns = self.began_ns + MOST_NS
        idle_ns = now_ns + self.sync_ns // SHARE
        while True:
            if now_ns >= end_ns:
                return NONE
            ready = self.poller.wait(0)
            if len(ready) > 0:
                return ready
            if not system.may_spin or now_ns >= idle_ns:
                return NONE
            if 10 * came >= EXPECTED * self.freed:
                return NONE
            os.sched_yield()
            now_ns = system.work_ns()

    def on_synced(self, freed: i64, took_ns: i64) -> None:
        """The turn has synced."""
        self.freed = freed
        self.sync_ns = took_ns
        self.began_ns = 0
