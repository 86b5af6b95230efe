"""QLIST: the queues of this node in an order, in slices (SPEC O10).

All names are walked once. Only as many as the page needs are kept: new ones are gathered, and
merged into the sorted best ones, beyond which none is looked at twice.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.stats import Tally
from tuque.core.model.timers import REPLY_BYTES
from tuque.core.node.node import Node
from tuque.core.node.queue import PAUSE_NAMES, Queue
from tuque.core.tables.work import count_of
from tuque.server.commands.dead import shown
from tuque.server.config.patterns import MOST, Glob
from tuque.server.observe.queue_walk import level_of, oldest_ms
from tuque.server.replies.long_commands import begin
from tuque.server.state.client import Client, LongCommand
from tuque.server.state.server import Server
from tuque.tubes.model.tube import Tube
from tuque.wire.commands.arguments import (
    ArgError,
    Misuse,
    not_this,
    ranged,
)
from tuque.wire.proto.resp import put_value

REACH: Final = 10_000  # the first queues of an order, which can be seen
COUNT_MAX: Final = 1_000
GATHERED: Final = 1_000  # merged at once
# units of work: what one of them takes, interpreted, is about a microsecond
NAME_WORK: Final = 3  # of a name that is met, and the right to it
TYPE_WORK: Final = 2  # of its type
ROW_WORK: Final = 30  # of one row
COPIED: Final = 25  # names that are copied, or sorted in, for a unit
MERGED: Final = 3
ROW_BYTES: Final = 400
DEAD_SUFFIX: Final = b".dead"
BAD_COUNT: Final = b"ERR COUNT must be a number from 1 to 1000"
NO_OFFSET: Final = b"ERR OFFSET must be a number from 0 to 10000"
BAD_OFFSET: Final = b"ERR OFFSET and COUNT must stay within the first 10000 queues: use MATCH"
BAD_SORT: Final = b"ERR SORT takes name, ready, delayed, at-work, dead, oldest, in, out or blocked"
LONG_GLOB: Final = b"ERR a pattern has at most %d characters" % MOST

SORTS: Final = [
    b"NAME",
    b"READY",
    b"DELAYED",
    b"AT-WORK",
    b"DEAD",
    b"OLDEST",
    b"IN",
    b"OUT",
    b"BLOCKED",
]
SORT_WORK: Final = [0, 2, 2, 2, 2, 5, 4, 4, 2]  # of the figure to sort by
NAME: Final = 0
READY: Final = 1
DELAYED: Final = 2
AT_WORK: Final = 3
DEAD: Final = 4
OLDEST: Final = 5
IN: Final = 6
OUT: Final = 7


@final
class ListSpec:
    """The arguments of QLIST."""

    def __init__(self) -> None:
        self.glob: Glob | None = None
        self.sort: i64 = NAME
        self.is_down = False
        self.offset: i64 = 0
        self.count: i64 = 100
        self.type: bytes | None = None
        self.names: list[bytes] = []  # only these; empty: all


def list_options(args: list[bytes]) -> ListSpec:
    """[O10] The words of QLIST (O10.1, O10.6)."""
    spec = ListSpec()
    i: i64 = 1
    while i < len(args):
        word = args[i].upper()
        if word == b"ASC" or word == b"DESC":
            spec.is_down = word == b"DESC"
            i += 1
            continue
        if i + 1 == len(args):
            raise Misuse(args[i])
        value = args[i + 1]
        if word == b"NAMES":
            spec.names = args[i + 1 :]
            break
        if word == b"MATCH":
            look_for(spec, value)
        elif word == b"SORT":
            if value.upper() not in SORTS:
                raise not_this(BAD_SORT, value)
            spec.sort = SORTS.index(value.upper())
        elif word == b"OFFSET":
            spec.offset = ranged(value, 0, REACH, NO_OFFSET)
        elif word == b"COUNT":
            spec.count = ranged(value, 1, COUNT_MAX, BAD_COUNT)
        elif word == b"TYPE":
            spec.type = value
        else:
            raise Misuse(args[i])
        i += 2
    if spec.offset + spec.count > REACH:
        raise ArgError(BAD_OFFSET)
    return spec


def look_for(spec: ListSpec, glob: bytes) -> None:
    """A glob of the names."""
    text = shown(glob)
    if len(text) > MOST:
        raise ArgError(LONG_GLOB)
    spec.glob = Glob(text)


@final
class Listing(LongCommand):
    """One QLIST: what it has found so far."""

    def __init__(self, s: Server, c: Client, spec: ListSpec) -> None:
        super().__init__(c)
        self.s = s
        self.client = c
        self.spec = spec
        self.names = spec.names if len(spec.names) > 0 else list(s.n.book.tallies)
        self.at: i64 = 0
        self.found: i64 = 0
        self.most: i64 = spec.offset + spec.count
        self.best: list[tuple[int, bytes]] = []  # in order, as many as the page needs
        self.fresh: list[tuple[int, bytes]] = []
        self.is_sorted = False
        self.rows: i64 = 0
        self.out: list[bytes] = []

    def step(self, room: i64) -> bool:
        """[O10] Walk over the names; then write the rows (O10.5)."""
        n = self.s.n
        until = n.work + room
        while self.at < len(self.names):
            if n.work >= until:
                return False
            if len(self.fresh) >= GATHERED:
                self.merge(n)
                continue
            self.meet(n, self.names[self.at])
            self.at += 1
        if not self.is_sorted:
            self.merge(n)
            self.is_sorted = True
            self.best = self.best[self.spec.offset :]
            self.at = len(self.names)
        while len(self.best) > 0 and self.bytes_used <= REPLY_BYTES:
            if n.work >= until:
                return False
            n.work += ROW_WORK
            self.add(n, self.best.pop(0)[1])
        return True

    def meet(self, n: Node, name: bytes) -> None:
        """Keep the queue if it is meant, and may be on the page."""
        spec = self.spec
        n.work += NAME_WORK
        if spec.glob is not None:
            is_meant = spec.glob.matches(shown(self.client.named(name)))
            n.work += spec.glob.units()
            if not is_meant:
                return
        tally = n.book.tallies.get(name)
        if tally is None:
            return  # it is gone
        if not self.client.sees(name):
            return  # N2.5
        q = n.queues.get(name)
        if spec.type is not None:
            n.work += TYPE_WORK
            if spec.type != type_of(n, q, name):
                return
        self.found += 1
        value: i64 = 0
        if spec.sort != NAME:
            n.work += SORT_WORK[spec.sort]
            value = value_of(n, spec.sort, name, tally, q)
            if spec.is_down:
                value = -value
        entry = (int(value), name)
        if len(self.best) >= self.most and self.is_beyond(entry):
            return
        self.fresh.append(entry)

    def is_beyond(self, entry: tuple[int, bytes]) -> bool:
        """Whether enough queues come before it."""
        last = self.best[self.most - 1]
        if self.spec.sort == NAME and self.spec.is_down:
            return entry < last
        return entry > last

    def merge(self, n: Node) -> None:
        """Sort in what was gathered."""
        n.work += (len(self.best) + len(self.fresh)) // MERGED
        is_down = self.spec.sort == NAME and self.spec.is_down
        self.fresh.sort(reverse=is_down)
        self.best += self.fresh  # two sorted runs: a merge
        self.best.sort(reverse=is_down)
        del self.best[self.most :]
        self.fresh = []

    def add(self, n: Node, name: bytes) -> None:
        """One row, with the figures of now."""
        tally = n.book.tallies.get(name)
        if tally is None:
            return
        q = n.queues.get(name)
        level = level_of(n, name, tally)
        tally.look(n.now_ms)
        row: list[object] = [
            self.client.named(name),
            type_of(n, q, name),
            int(level.ready),
            int(level.delayed),
            int(level.at_work),
            int(dead_of(n, name)),
            int(level.oldest_ms),
            rate_text(tally.in_rate(n.now_ms)),
            rate_text(tally.out_rate(n.now_ms)),
            0 if q is None else len(q.waiters),
            PAUSE_NAMES[0 if q is None else q.pause],
        ]
        put_value(self.out, row, self.client.resp3)
        self.bytes_used += ROW_BYTES + len(name)
        self.rows += 1

    def tell(self) -> None:
        """Reply with the number of queues that are meant, and the rows."""
        out = self.client.out
        out.append(b"*2\r\n:%d\r\n*%d\r\n" % (self.found, self.rows))
        out.append(b"".join(self.out))


def type_of(n: Node, q: Queue | None, name: bytes) -> bytes:
    """[O10] `queue`, `dead`, or the type of the tube (O10.2)."""
    if isinstance(q, Tube):
        return q.type
    if name in n.life.letters or name.endswith(DEAD_SUFFIX):
        return b"dead"
    return b"queue"


def dead_of(n: Node, name: bytes) -> i64:
    """[O10] The jobs queued among the queue's dead letters; of a tube its own (O10.2)."""
    own = count_of(n.life.letters, name) if isinstance(n.queues.get(name), Tube) else 0
    q = n.queues.get(name + DEAD_SUFFIX)
    return own if q is None else own + q.length


def value_of(n: Node, sort: i64, name: bytes, tally: Tally, q: Queue | None) -> i64:
    """The figure to sort by."""
    if sort == READY:
        return 0 if q is None else q.length
    if sort == DEAD:
        return dead_of(n, name)
    if sort == OLDEST:
        if q is None or q.length == 0 or type_of(n, q, name) == b"dead":
            return 0  # dead letters are old, and nobody is late
        return oldest_ms(n, q)
    if sort in (IN, OUT):
        tally.look(n.now_ms)
        return tally.in_rate(n.now_ms) if sort == IN else tally.out_rate(n.now_ms)
    if sort == DELAYED:
        return tally.delayed + q.delayed_count() if isinstance(q, Tube) else tally.delayed
    if sort == AT_WORK:
        return tally.at_work + q.taken if isinstance(q, Tube) else tally.at_work
    return 0 if q is None else len(q.waiters)


def rate_text(thousandths: i64) -> bytes:
    """Jobs in a second, with three decimals."""
    return b"%d.%03d" % (int(thousandths // 1000), int(thousandths % 1000))


def cmd_qlist(s: Server, c: Client, args: list[bytes]) -> None:
    """[O10] QLIST [option ...] [NAMES queue ...] (O10.1)."""
    spec = list_options(args)
    if len(spec.names) == 0:
        s.n.work += len(s.n.book.tallies) // COPIED  # the names are copied
    begin(s, c, Listing(s, c, spec))
