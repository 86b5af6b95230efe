"""STATISTICS of all tubes, some in each turn (SPEC L2, T11)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.server.state.chore import Chore
from tuque.server.tubes.call import TubeCall
from tuque.tubes.tasks import admin

COST: Final = 10  # units for the 17 counters of one tube


@final
class Statistics(Chore):
    """The counters of every tube; tubes dropped meanwhile are left out."""

    def __init__(self, call: TubeCall) -> None:
        super().__init__(call.caller)
        self.call = call
        self.n = call.n
        self.t = call.t
        self.names: list[bytes] = []
        self.at: i64 = -1  # -1: not started
        self.count: i64 = 0
        self.parts: list[bytes] = []  # one per turn

    def step(self, room: i64) -> bool:
        """Add the counters of the next tubes."""
        parts: list[bytes] = []
        is_over = self.put_some(parts, room)
        self.parts.append(b"".join(parts))  # joining a million small ones would take long
        return is_over

    def put_some(self, parts: list[bytes], room: i64) -> bool:
        """Add as many as there is room for; True: those were the last."""
        n = self.n
        until = n.work + room
        if self.at < 0:
            self.at = 0
            self.names = list(self.t.by_name)
        while self.at < len(self.names):
            if n.work >= until:
                return False
            n.work += COST
            name = self.names[self.at]
            self.at += 1
            tube = self.t.by_name.get(name)
            if tube is None or not self.call.sees(name):
                continue
            self.count += 1
            parts.append(self.call.pair(self.call.named(name), admin.statistics(self.t, tube)))
        return True

    def tell(self) -> None:
        """Reply with a map by name."""
        self.call.pairs(self.count, self.parts)
