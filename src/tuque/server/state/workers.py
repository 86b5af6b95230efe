"""Workers that announced themselves to this node, in memory only, and run tokens (SPEC O11, W1).

A worker's runs are remembered by the ids of their jobs. The outcome of a run is read from the core
when a client asks: nothing is done here when it ends.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.life.start import standing_of
from tuque.core.model.stats import tenant_of
from tuque.core.model.work import NO_TERMS, Life, attempt_of, decimal, run_from, run_text
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

TOKENS_MAX: Final = 1_000  # remembered at once
START_REPLY: Final = b"*6\r\n$%s\r\n%s\r\n%s"
START_NUMBERS: Final = b":%d\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n"

NO_ORDER: Final = 0
QUIET: Final = 1
STOP: Final = 2
ORDER_NAMES: Final = [b"none", b"quiet", b"stop"]


@final
class Reported:
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
class WorkerInfo:
    """One worker."""

    def __init__(self, name: bytes, serial: i64, now_ms: i64) -> None:
        self.name = name
        self.serial = serial
        self.reported = Reported()
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
        return ENTRY_BYTES + 2 * len(self.name) + self.reported.size() + len(self.ids) * ID_BYTES


@final
class Deploy:
    """The begin of an app's version with workers of some queues (O12.6)."""

    def __init__(self, at_ms: i64, reported: Reported) -> None:
        self.at_ms = at_ms
        self.app = reported.app
        self.queues = reported.queues
        self.bytes = reported.size()


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
        self.by_name: dict[bytes, WorkerInfo] = {}
        self.early: dict[bytes, WorkerInfo] = {}  # that have not said HERE, but begin jobs (O12.5)
        self.deploys: list[Deploy] = []  # oldest first
        self.deploy_bytes: i64 = 0
        self.serial: i64 = 0
        self.bytes: i64 = 0
        self.shares: dict[bytes, WorkersShare] = {}  # by tenant
        self.look_ms: i64 = 0  # when to look for those lost long ago

    def weigh(self, info: WorkerInfo) -> None:
        """Count the worker's bytes anew."""
        self.count(info, info.size(), 0)

    def count(self, info: WorkerInfo, size: i64, more: i64) -> None:
        """The worker has that size, and its tenant so many workers more."""
        tenant = tenant_of(info.name)
        share = self.shares.get(tenant)
        if share is None:
            share = self.shares[tenant] = WorkersShare()
        self.bytes += size - info.bytes
        share.bytes += size - info.bytes
        share.workers += more
        info.bytes = size
        if share.workers == 0 and share.bytes == 0:
            del self.shares[tenant]

    def has_room(self, name: bytes, words: Reported, most: i64) -> bool:
        """[O11] Whether the worker may say that; `most`: bytes of all (O11.4)."""
        info = self.by_name.get(name)
        more = words.size() + ENTRY_BYTES
        if info is not None:
            more -= ENTRY_BYTES + info.reported.size()
        tenant = tenant_of(name)
        if self.bytes + more > most:
            return more <= 0
        share = self.shares.get(tenant) or WorkersShare()
        if len(tenant) == 0:
            return True
        known = len(self.by_name)
        if info is None and share.workers >= share_of(WORKERS_MAX, known, share.workers):
            return False
        return more <= 0 or share.bytes + more <= share_of(most, self.bytes, share.bytes)

    def note(self, n: Node, worker: bytes, ids: list[bytes]) -> None:
        """[O12] The worker has begun these jobs here, or is at work on them (O12.2)."""
        info = self.by_name.get(worker)
        if info is None:
            info = self.expect(worker, n.now_ms)
        for id in ids:
            info.ids[id] = None
        if len(info.ids) >= info.tidy_at:
            info.drop_ended(n)
        self.weigh(info)

    def deployed(self, reported: Reported, now_ms: i64) -> None:
        """[O12] A new worker says the version of its app, or one says another (O12.6).

        It may have said so to another node, long ago: its place is that of its begin, by the
        clock of this node.
        """
        at_ms = now_ms - reported.age_ms
        if at_ms < 0:
            at_ms = 0
        place: i64 = len(self.deploys)
        next_same: Deploy | None = None  # the first later one of these queues
        while place > 0 and self.deploys[place - 1].at_ms > at_ms:
            place -= 1
            if self.deploys[place].queues == reported.queues:
                next_same = self.deploys[place]
        for one in reversed(self.deploys[:place]):
            if one.queues == reported.queues:
                if one.app == reported.app:
                    return
                break
        new = Deploy(at_ms, reported)
        self.deploys.insert(place, new)
        if next_same is not None and next_same.app == reported.app:
            self.deploys.remove(next_same)  # it began earlier than was known
            self.deploy_bytes -= next_same.bytes
            self.bytes -= next_same.bytes
        self.deploy_bytes += new.bytes
        self.bytes += new.bytes
        while len(self.deploys) > DEPLOYS_MAX or self.deploy_bytes > DEPLOYS_BYTES:
            old = self.deploys.pop(0)
            self.deploy_bytes -= old.bytes
            self.bytes -= old.bytes

    def expect(self, name: bytes, now_ms: i64) -> WorkerInfo:
        """[O12] One that begins jobs and has not said HERE: it may be about to (O12.5)."""
        info = self.early.get(name)
        if info is None or info.is_lost(now_ms):
            if info is not None:
                self.drop(info)
            elif len(self.early) >= EARLY_MAX:
                self.drop(self.early[next(iter(self.early))])
            info = WorkerInfo(name, 0, now_ms)
            self.early[name] = info
        info.heard_ms = now_ms
        return info

    def drop(self, info: WorkerInfo) -> None:
        """Forget a worker."""
        del (self.by_name if info.serial > 0 else self.early)[info.name]
        self.count(info, 0, -1 if info.serial > 0 else 0)

    def drop_lost(self, now_ms: i64) -> None:
        """[O11] Forget workers that were lost long ago, and the first above the bound (O11.4)."""
        self.look_ms = now_ms + LOOK_MS
        for info in list(self.early.values()):
            if info.is_lost(now_ms):
                self.drop(info)
        lost: list[tuple[int, bytes]] = []
        for info in list(self.by_name.values()):
            if not info.is_lost(now_ms):
                continue
            if now_ms - info.heard_ms >= LOST_KEPT_MS:
                self.drop(info)
            else:
                lost.append((int(info.heard_ms), info.name))
        if len(lost) > LOST_MAX:
            lost.sort()
            for _, name in lost[: len(lost) - LOST_MAX]:
                self.drop(self.by_name[name])

    def enter(self, name: bytes, now_ms: i64) -> WorkerInfo | None:
        """The worker of that name, new if it is not known; None if there are too many."""
        info = self.by_name.get(name)
        if info is not None:
            return info
        if len(self.by_name) >= WORKERS_MAX:
            self.drop_lost(now_ms)
            if len(self.by_name) >= WORKERS_MAX:
                return None
        self.serial += 1
        info = WorkerInfo(name, self.serial, now_ms)
        early = self.early.get(name)
        if early is not None:
            self.drop(early)
            if not early.is_lost(now_ms):
                info.ids, info.tidy_at = early.ids, early.tidy_at  # O12.5
        self.by_name[name] = info
        self.count(info, info.size(), 1)
        return info


# ---- Run tokens as clients see them, kept while they are useful (SPEC W1.2)
#
# A worker's first runs of all its jobs in queues have the same token: most replies to START, and
# most words of DONE, come from here. In a tube each take has its own token, which is not kept; the
# numbers after it in the reply are mostly those of the reply before.


@final
class Token:
    """One token, and the latest reply to a START that gave it."""

    def __init__(self, run: i64) -> None:
        self.run = run
        self.text = run_text(run)
        self.field = b""
        self.reply = b""
        self.numbers = b""  # of the run in that reply

    def field_of(self) -> bytes:
        """[W17] The field `run` of a delivered job, with its name (W17.2)."""
        if len(self.field) == 0:
            self.field = run_field(self.text)
        return self.field


def run_field(text: bytes) -> bytes:
    """[W17] That field with this token."""
    return b"\r\n$3\r\nrun\r\n$%s\r\n%s\r\n" % (decimal(len(text)), text)


@final
class Tokens:
    """The tokens that were given out of late, by number and by text."""

    def __init__(self) -> None:
        self.by_run: dict[int, Token] = {}
        self.by_text: dict[bytes, Token] = {}
        self.last = Token(0)
        self.numbers = b""  # of the run in the last reply to START; and what they are made of:
        self.terms = NO_TERMS
        self.attempt: i64 = 0
        self.starts: i64 = 0
        self.retry_s: i64 = 0

    def token(self, run: i64) -> Token:
        """The token of a run."""
        last = self.last
        if last.run == run:
            return last
        token = self.by_run.get(run)
        if token is None:
            if len(self.by_run) >= TOKENS_MAX:
                self.by_run = {}
                self.by_text = {}
            token = Token(run)
            self.by_run[int(run)] = token
            self.by_text[token.text] = token
        self.last = token
        return token

    def run_in(self, word: bytes) -> i64:
        """The run token in a word; 0 for `-`, -1 if it is none."""
        last = self.last
        if word == last.text:
            return last.run
        token = self.by_text.get(word)
        if token is None:
            return run_from(word)
        self.last = token
        return token.run

    def start_reply(self, work: Life, retry_s: i64, is_task: bool) -> bytes:
        """[W2] The reply to the START that began this run, or gave it again (W2.6).

        `is_task`: of a task in a tube.
        """
        numbers = self.numbers_of(work, retry_s)
        if is_task:
            text = run_text(work.run)
            return START_REPLY % (decimal(len(text)), text, numbers)
        token = self.token(work.run)
        if token.numbers is not numbers:
            token.numbers = numbers
            token.reply = START_REPLY % (decimal(len(token.text)), token.text, numbers)
        return token.reply

    def numbers_of(self, work: Life, retry_s: i64) -> bytes:
        """Attempt, attempts, starts, retry in ms and time limit in ms, as the reply has them."""
        terms = work.terms
        attempt = attempt_of(work.run)
        is_same = self.terms is terms and self.attempt == attempt
        if not is_same or self.starts != work.starts or self.retry_s != retry_s:
            self.terms = terms
            self.attempt = attempt
            self.starts = work.starts
            self.retry_s = retry_s
            self.numbers = START_NUMBERS % (
                attempt,
                terms.attempts,
                work.starts,
                retry_s * 1000,
                terms.limit_ms,
            )
        return self.numbers
