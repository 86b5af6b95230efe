"""The workers that announced themselves to this node, in memory only (SPEC O11).

A worker's runs are remembered by the ids of their jobs. The outcome of a run is read from the core
when a client asks: nothing is done here when it ends.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.life.start import standing_of
from tuque.core.model.stats import tenant_of
from tuque.core.node.node import Node
from tuque.core.tables.staged import share_of

WORKERS_MAX: Final = 10_000
LOST_MAX: Final = 1_000
LOST_MS: Final = 8_000  # without a word for so long it is lost
DEPLOYS_MAX: Final = 100
DEPLOYS_BYTES: Final = 65_536  # of their words
EARLY_MAX: Final = 1_000  # that begin jobs and have not said HERE
LOST_KEPT_MS: Final = 3_600_000
LOOK_MS: Final = 10_000
ENTRY_BYTES: Final = 900  # of one worker, without its words
ID_BYTES: Final = 150  # of an id that it has begun
SPARE_IDS: Final = 64  # of ended runs, kept before a clean-up
LIVE_MAX: Final = 500  # ids of live runs that are kept, the newest

NO_ORDER: Final = 0
QUIET: Final = 1
STOP: Final = 2
ORDER_NAMES: Final = [b"none", b"quiet", b"stop"]


@final
class Said:
    """What a worker says of itself."""

    def __init__(self) -> None:
        self.host = b""
        self.version = b""
        self.app = b""
        self.pid: i64 = 0
        self.slots: i64 = 0
        self.busy: i64 = 0
        self.done: i64 = 0
        self.failed: i64 = 0
        self.age_ms: i64 = 0  # since its process began; 0: it does not say
        self.is_quiet = False
        self.queues: list[bytes] = []

    def size(self) -> i64:
        """Bytes of its words."""
        size: i64 = len(self.host) + len(self.version) + len(self.app)
        for queue in self.queues:
            size += 80 + len(queue)
        return size


@final
class Hand:
    """One worker."""

    def __init__(self, name: bytes, serial: i64, now_ms: i64) -> None:
        self.name = name
        self.serial = serial
        self.said = Said()
        self.since_ms = now_ms
        self.heard_ms = now_ms
        self.client: i64 = -1  # the connection that it last spoke on
        self.order: i64 = NO_ORDER
        self.ids: dict[bytes, None] = {}  # jobs begun here; of some the run has ended
        self.tidy_at: i64 = SPARE_IDS  # number of ids at which the ended ones are dropped
        self.bytes: i64 = 0  # as counted

    def is_lost(self, now_ms: i64) -> bool:
        """Whether nothing was heard of it for too long (O11.2)."""
        return now_ms - self.heard_ms >= LOST_MS

    def drop_ended(self, n: Node) -> None:
        """Drop the ids of runs that have ended, when there are as many as live ones."""
        kept: dict[bytes, None] = {}
        for id in self.ids:
            if standing_of(n, id, self.name, False) is not None:
                kept[id] = None
        if len(kept) > LIVE_MAX:
            for id in list(kept)[: len(kept) - LIVE_MAX]:
                del kept[id]
        self.ids = kept
        self.tidy_at = 2 * len(kept) + SPARE_IDS

    def size(self) -> i64:
        """Bytes of memory."""
        return ENTRY_BYTES + 2 * len(self.name) + self.said.size() + len(self.ids) * ID_BYTES


@final
class Deploy:
    """The begin of an app's version with workers of some queues (O12.6)."""

    def __init__(self, at_ms: i64, said: Said) -> None:
        self.at_ms = at_ms
        self.app = said.app
        self.queues = said.queues
        self.bytes = said.size()


@final
class WorkersShare:
    """What the workers of one tenant take of it."""

    def __init__(self) -> None:
        self.workers: i64 = 0
        self.bytes: i64 = 0


@final
class WorkerRegistry:
    """All workers that this node knows."""

    def __init__(self) -> None:
        self.by_name: dict[bytes, Hand] = {}
        self.early: dict[bytes, Hand] = {}  # that have not said HERE, but begin jobs (O12.5)
        self.deploys: list[Deploy] = []  # oldest first
        self.deploy_bytes: i64 = 0
        self.serial: i64 = 0
        self.bytes: i64 = 0
        self.shares: dict[bytes, WorkersShare] = {}  # by tenant
        self.look_ms: i64 = 0  # when to look for those lost long ago

    def weigh(self, hand: Hand) -> None:
        """Count the worker's bytes anew."""
        self.count(hand, hand.size(), 0)

    def count(self, hand: Hand, size: i64, more: i64) -> None:
        """The worker has that size, and its tenant so many workers more."""
        tenant = tenant_of(hand.name)
        share = self.shares.get(tenant)
        if share is None:
            share = self.shares[tenant] = WorkersShare()
        self.bytes += size - hand.bytes
        share.bytes += size - hand.bytes
        share.workers += more
        hand.bytes = size
        if share.workers == 0 and share.bytes == 0:
            del self.shares[tenant]

    def has_room(self, name: bytes, words: Said, most: i64) -> bool:
        """[O11] Whether the worker may say that; `most`: bytes of all (O11.4)."""
        hand = self.by_name.get(name)
        more = words.size() + ENTRY_BYTES
        if hand is not None:
            more -= ENTRY_BYTES + hand.said.size()
        tenant = tenant_of(name)
        if self.bytes + more > most:
            return more <= 0
        share = self.shares.get(tenant) or WorkersShare()
        if len(tenant) == 0:
            return True
        known = len(self.by_name)
        if hand is None and share.workers >= share_of(WORKERS_MAX, known, share.workers):
            return False
        return more <= 0 or share.bytes + more <= share_of(most, self.bytes, share.bytes)

    def note(self, n: Node, worker: bytes, ids: list[bytes]) -> None:
        """[O12] The worker has begun these jobs here, or is at work on them (O12.2)."""
        hand = self.by_name.get(worker)
        if hand is None:
            hand = self.expect(worker, n.now_ms)
        for id in ids:
            hand.ids[id] = None
        if len(hand.ids) >= hand.tidy_at:
            hand.drop_ended(n)
        self.weigh(hand)

    def deployed(self, said: Said, now_ms: i64) -> None:
        """[O12] A new worker says the version of its app, or one says another (O12.6).

        It may have said so to another node, long ago: its place is that of its begin, by the
        clock of this node.
        """
        at_ms = now_ms - said.age_ms
        if at_ms < 0:
            at_ms = 0
        place: i64 = len(self.deploys)
        next_same: Deploy | None = None  # the first later one of these queues
        while place > 0 and self.deploys[place - 1].at_ms > at_ms:
            place -= 1
            if self.deploys[place].queues == said.queues:
                next_same = self.deploys[place]
        for one in reversed(self.deploys[:place]):
            if one.queues == said.queues:
                if one.app == said.app:
                    return
                break
        new = Deploy(at_ms, said)
        self.deploys.insert(place, new)
        if next_same is not None and next_same.app == said.app:
            self.deploys.remove(next_same)  # it began earlier than was known
            self.deploy_bytes -= next_same.bytes
            self.bytes -= next_same.bytes
        self.deploy_bytes += new.bytes
        self.bytes += new.bytes
        while len(self.deploys) > DEPLOYS_MAX or self.deploy_bytes > DEPLOYS_BYTES:
            old = self.deploys.pop(0)
            self.deploy_bytes -= old.bytes
            self.bytes -= old.bytes

    def expect(self, name: bytes, now_ms: i64) -> Hand:
        """[O12] One that begins jobs and has not said HERE: it may be about to (O12.5)."""
        hand = self.early.get(name)
        if hand is None or hand.is_lost(now_ms):
            if hand is not None:
                self.drop(hand)
            elif len(self.early) >= EARLY_MAX:
                self.drop(self.early[next(iter(self.early))])
            hand = Hand(name, 0, now_ms)
            self.early[name] = hand
        hand.heard_ms = now_ms
        return hand

    def drop(self, hand: Hand) -> None:
        """Forget a worker."""
        del (self.by_name if hand.serial > 0 else self.early)[hand.name]
        self.count(hand, 0, -1 if hand.serial > 0 else 0)

    def drop_lost(self, now_ms: i64) -> None:
        """[O11] Forget workers that were lost long ago, and the first above the bound (O11.4)."""
        self.look_ms = now_ms + LOOK_MS
        for hand in list(self.early.values()):
            if hand.is_lost(now_ms):
                self.drop(hand)
        lost: list[tuple[int, bytes]] = []
        for hand in list(self.by_name.values()):
            if not hand.is_lost(now_ms):
                continue
            if now_ms - hand.heard_ms >= LOST_KEPT_MS:
                self.drop(hand)
            else:
                lost.append((int(hand.heard_ms), hand.name))
        if len(lost) > LOST_MAX:
            lost.sort()
            for _, name in lost[: len(lost) - LOST_MAX]:
                self.drop(self.by_name[name])

    def enter(self, name: bytes, now_ms: i64) -> Hand | None:
        """The worker of that name, new if it is not known; None if there are too many."""
        hand = self.by_name.get(name)
        if hand is not None:
            return hand
        if len(self.by_name) >= WORKERS_MAX:
            self.drop_lost(now_ms)
            if len(self.by_name) >= WORKERS_MAX:
                return None
        self.serial += 1
        hand = Hand(name, self.serial, now_ms)
        early = self.early.get(name)
        if early is not None:
            self.drop(early)
            if not early.is_lost(now_ms):
                hand.ids, hand.tidy_at = early.ids, early.tidy_at  # O12.5
        self.by_name[name] = hand
        self.count(hand, hand.size(), 1)
        return hand
