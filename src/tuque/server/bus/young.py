"""Connections of the bus in their handshake, and which of them makes room (SPEC L1).

A stranger who opens many makes room himself: the address that has the most of them loses its
oldest one. Addresses of members come last, so a flood from elsewhere keeps no node out.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.server.bus.link import Link

YOUNG_MAX: Final = 128  # at a time
YOUNG_TLS_MAX: Final = 512  # with TLS, whose handshakes take longer
MET_MAX: Final = 1_000
COME_MAX: Final = 50  # connections of a stranger's address in COME_MS
COME_MS: Final = 100


@final
class Young:
    """The links that nobody has proved yet, in the order of their creation."""

    def __init__(self) -> None:
        self.links: dict[int, Link] = {}  # by descriptor
        self.accepted: dict[str, int] = {}  # of an address, those that it dialled
        self.met: dict[str, None] = {}  # addresses that this node has dialled
        self.came: dict[str, int] = {}  # connections of an address, until `came_ms`
        self.came_ms: i64 = 0

    def __len__(self) -> int:
        return len(self.links)

    def add(self, link: Link) -> None:
        """Its handshake begins."""
        self.links[link.fd] = link
        if link.dialed[1] == 0:
            self.accepted[link.host] = self.accepted.get(link.host, 0) + 1

    def drop(self, link: Link) -> None:
        """It is over, or the link is closed."""
        if self.links.pop(link.fd, None) is None or link.dialed[1] != 0:
            return
        left = self.accepted[link.host] - 1
        if left > 0:
            self.accepted[link.host] = left
        else:
            del self.accepted[link.host]

    def late_ms(self) -> i64:
        """When the time of the first one is over; -1: there is none."""
        for link in self.links.values():
            return link.deadline_ms  # all have as long, so the oldest is the first
        return -1

    def late(self, now_ms: i64) -> list[Link]:
        """Those whose time is over."""
        found: list[Link] = []
        for link in self.links.values():
            if link.deadline_ms > now_ms:
                break
            found.append(link)
        return found

    def meet(self, address: str) -> None:
        """This node dials that address: whoever comes from there may be a member."""
        self.met.pop(address, None)
        self.met[address] = None
        if len(self.met) > MET_MAX:
            del self.met[next(iter(self.met))]

    def is_near(self, address: str) -> bool:
        """Whether a member is at that address, as far as this node knows."""
        return address in self.met

    def may_come(self, address: str, now_ms: i64) -> bool:
        """[B1] Whether another connection from that address may go on (B1.9)."""
        if self.is_near(address):
            return True
        if now_ms >= self.came_ms:
            self.came_ms = now_ms + COME_MS
            self.came = {}
        count = self.came.get(address, 0)
        if count >= COME_MAX:
            return False
        self.came[address] = count + 1
        return True

    def is_full(self, is_tls: bool) -> bool:
        """Whether one must go before another one may come."""
        most: i64 = YOUNG_TLS_MAX if is_tls else YOUNG_MAX
        return len(self.links) >= most

    def crowded(self) -> str:
        """The address that has the most of them, of members only if there is no other one."""
        found = ""
        most: i64 = 0
        for address, count in self.accepted.items():
            size: i64 = count - (1 << 32 if self.is_near(address) else 0)
            if found == "" or size > most:
                found = address
                most = size
        return found

    def oldest(self) -> Link | None:
        """[L1] The accepted connection that makes room; None: there is none."""
        host = self.crowded()
        for link in self.links.values():
            if link.dialed[1] == 0 and link.host == host:
                return link
        return None
