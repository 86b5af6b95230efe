"""STATISTICS of all tubes: some in each turn (SPEC L2, T11)."""

from typing import Final, final

import msgspec
from mypy_extensions import i64

from tuque.server.sockets.connection import Connection
from tuque.server.state.chore import Chore
from tuque.server.state.client import Client
from tuque.server.state.iproto_connection import Wired
from tuque.server.state.state import Server
from tuque.tubes.model.registry import Tubes
from tuque.tubes.tasks import admin
from tuque.wire.iproto import map_head, string
from tuque.wire.resp import put_value

COST: Final = 10  # units for the 17 counters of one tube


@final
class Statistics(Chore):
    """The counters of every tube; one that is dropped meanwhile is left out."""

    def __init__(self, s: Server, t: Tubes, c: Connection) -> None:
        super().__init__(c)
        self.s = s
        self.t = t
        self.names: list[bytes] = []
        self.at: i64 = -1  # -1: not begun
        self.count: i64 = 0
        self.parts: list[bytes] = []  # one for each turn

    def step(self, room: i64) -> bool:
        """The counters of the next tubes."""
        parts: list[bytes] = []
        is_over = self.put_some(parts, room)
        self.parts.append(b"".join(parts))  # a million small ones would cost a long turn at the end
        return is_over

    def put_some(self, parts: list[bytes], room: i64) -> bool:
        """As many as there is room for; True: those were the last ones."""
        n, c = self.s.n, self.c
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
            if tube is None:
                continue
            self.count += 1
            found = admin.statistics(self.t, tube)
            if isinstance(c, Client):
                put_value(parts, name, c.resp3)
                put_value(parts, found, c.resp3)
            else:
                parts.append(string(name))
                parts.append(msgspec.msgpack.encode(found))
        return True

    def tell(self) -> None:
        """RESP: a map by name."""
        c = self.c
        assert isinstance(c, Client)
        c.out.append(b"%%%d\r\n" % self.count if c.resp3 else b"*%d\r\n" % (2 * self.count))
        c.out.extend(self.parts)

    def values(self) -> list[bytes]:
        """IPROTO: the same."""
        assert isinstance(self.c, Wired)
        return [map_head(int(self.count)) + b"".join(self.parts)]
