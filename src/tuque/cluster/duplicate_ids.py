"""Two live nodes with one id: which node notices, and how long it lasts (SPEC K1.2, K1.3).

Must not know: links. members.py calls it for each link that begins, and for each heartbeat.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.cluster.member import DIAL_MAX_MS, DIAL_MIN_MS, TWINS, Member
from tuque.core.msgs.bus import Gossip

SAME: Final = "two nodes with this id are alive: the other one is at "
NEWER: Final = "a newer incarnation of this node is alive: it is at "


class Refused(Exception):
    """The link is refused; the text says why. `duplicate_id`: where another live node has
    that id (K1.3); without a host it is the refusing node itself.
    """

    def __init__(self, text: str, duplicate_id: str = "", removal: int = 0) -> None:
        super().__init__(text)
        self.duplicate_id = duplicate_id
        self.removal = removal  # > 0: it was forgotten, with that number (K6.4)


@final
class DuplicateId:
    """Whether this node must not serve, since another one has its id."""

    def __init__(self, timeout_ms: i64) -> None:
        self.timeout_ms = timeout_ms
        self.where = ""  # address of the other node; empty: there is no conflict
        self.until_ms: i64 = 0

    def begin(self, where: str, until_ms: i64) -> bool:
        """[K1] Another node uses this node's id: stop serving (K1.3); True if that is new."""
        is_new = not self.where
        if is_new:
            self.where = where
        self.until_ms = max(self.until_ms, until_ms)
        return is_new

    def is_over(self, now_ms: i64) -> bool:
        """[K1] True once, when nothing was heard of the other node for long enough (K1.3)."""
        if not self.where or now_ms <= self.until_ms:
            return False
        self.where = ""
        self.until_ms = 0
        return True

    def dial_again_ms(self, backoff_ms: i64) -> i64:
        """[K1] How long after a dial that failed the next one follows (K3.2, K1.3)."""
        most_ms: i64 = DIAL_MAX_MS
        if self.where:
            most_ms = min(most_ms, max(self.timeout_ms // 4, DIAL_MIN_MS))
        return min(backoff_ms, most_ms)


def shown(host: str, port: i64) -> str:
    """An address as logs show it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def gossip_of_duplicate(one: Member, gossip: list[Gossip]) -> list[Gossip]:
    """[K1] The gossip for a node whose id another one has: first where (K1.3)."""
    return gossip if one.rival is None else [one.rival, *gossip]


def check_life(
    one: Member, life: i64, mark: bytes, at: tuple[str, int, int], now_ms: i64, timeout_ms: i64
) -> None:
    """[K1] Refuse an older incarnation while a newer one is alive (K1.2), and a second node (K1.3).

    `at`: host, port and bus port of the incarnation that asks for a link.
    """
    if one.life == 0 or (one.life == life and one.mark == mark):
        return
    is_alive = one.is_linked and now_ms - one.heard_ms <= timeout_ms
    if life > one.life or not is_alive:
        one.duplicate_ms = 0
        one.has_rival = False
        one.refused_ms = 0
        return
    where = shown(one.host, one.port)
    duplicate_id = where if was_heard_since(one, now_ms, timeout_ms) else ""
    if life == one.life:
        one.has_rival = True  # two nodes, if the linked one sends another heartbeat
        one.rival = Gossip(one.node_id, at[0], at[1], at[2], TWINS, int(one.number))
        raise Refused(SAME + where, duplicate_id)
    raise Refused(NEWER + where, duplicate_id)


def was_heard_since(one: Member, now_ms: i64, timeout_ms: i64) -> bool:
    """[K1] Whether a heartbeat came since another incarnation was refused: both live (K1.3)."""
    span_ms = now_ms - one.refused_ms
    if span_ms <= 2 * timeout_ms + DIAL_MAX_MS and one.heard_ms <= one.refused_ms:
        return False
    one.refused_ms = now_ms
    return span_ms <= 2 * timeout_ms + DIAL_MAX_MS
