"""LEASE: its arguments, its replies, and large batches in slices (SPEC Y, L2)."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tuque.core.leases.bisect import (
    begin_defer,
    end_defer,
    may_defer,
    on_begin,
    on_split,
)
from tuque.core.leases.expiry import give_back_some, renew
from tuque.core.leases.fetch import WHYS, columns, on_fetch, on_gone, plain_rows
from tuque.core.leases.leases import (
    BATCH_MAX,
    ack_some,
    begin_fill,
    begin_next,
    check,
    commit,
    end_next,
    find,
    lease_info,
    no_batch,
    on_lease_nack,
    on_open,
    on_release,
    on_touch,
    open_refusal,
    take_jobs,
)
from tuque.core.model.errors import NOGROUP, Refusal
from tuque.core.model.job_id import is_job_id, of_url
from tuque.core.model.timers import TURN_WORK
from tuque.core.tables.leases import (
    NAME_MAX,
    PARTS_MAX,
    POSITIONS_OF_UNIT,
    QUEUES_MAX,
    Batch,
    Group,
)
from tuque.server.access.tenant import full_of_groups
from tuque.server.commands.jobs import BADID, check_room
from tuque.server.commands.queues import flat, rename
from tuque.server.replies.errors import core_words, error_words, reply_help
from tuque.server.replies.long_commands import begin as begin_long
from tuque.server.state.client import Client, LongCommand
from tuque.server.state.server import Server
from tuque.wire.commands.arguments import (
    ArgError,
    Misuse,
    WrongWords,
    not_this,
)
from tuque.wire.proto.resp import int_reply, strict_int

COMMIT: Final = 0
RELEASE: Final = 1
OPEN: Final = 2

COUNT_MAX: Final = 1_000_000
BYTES_DEFAULT: Final = 64 << 20
BYTES_MAX: Final = 1 << 31
TTL_MIN_MS: Final = 1_000
TTL_MAX_MS: Final = 86_400_000
ROWS_DEFAULT: Final = 2_000
ROW_BYTES_DEFAULT: Final = 8 << 20
ROWS_MAX: Final = 5_000  # of one FETCH (Y3.9)
COLUMNS_MAX: Final = 50_000
FETCH_BYTES: Final = 32 << 20
QUEUES_OF_UNIT: Final = 2  # of a group, whether the user may see them
NACKS_MAX: Final = 10_000
UNWRITTEN: Final = 1 << 20  # bytes of the journal
NUMBER_MAX: Final = 1 << 52
QUEUES_AT: Final = 5  # in the reply of a FETCH with COLUMNS


# ---- NEXT, DEFER, COMMIT, OPEN and RELEASE of large batches, one slice per turn (SPEC L2)


class Taking(LongCommand):
    """Fills a batch of a group."""

    def __init__(self, s: Server, c: Client, g: Group, seq: i64, count: i64, size: i64) -> None:
        super().__init__(c)
        self.s = s
        self.client = c
        self.group = g
        self.epoch = g.epoch
        self.seq = seq
        self.most: i64 = min(count, BATCH_MAX)
        self.size = size
        self.batch: Batch | None = None
        self.taken: i64 = 0

    def refuse(self) -> None:
        """Raise ArgError if the lease has ended: its jobs are queued again."""
        error = find(self.s.n, self.group.name, self.epoch)
        if error is not None:
            raise ArgError(core_words(error))

    def begin(self, b: Batch) -> None:
        """Fill this batch, also if the client goes."""
        self.batch = b
        self.group.filling = b
        self.goes_on = True

    def fill(self, b: Batch, room: i64) -> bool:
        """Take the next jobs; True: the batch has all that it can get."""
        n = self.s.n
        before: i64 = len(b.jobs)
        passed = n.passed
        end: i64 = min(self.most, before + room)
        is_over = take_jobs(n, self.client.number, self.group, b, end, self.size)
        n.work += len(b.jobs) - before + n.passed - passed
        renew(n, self.group)
        if is_over or len(b.jobs) >= self.most:
            return True
        if n.passed >= TURN_WORK:
            n.work = max(n.work, TURN_WORK)  # V2.3
        return False

    def tell(self) -> None:
        """Reply with the size of the batch."""
        self.client.out.append(int_reply(self.taken))


@final
class Next(Taking):
    """[Y2] LEASE NEXT: fill the batch."""

    def __init__(
        self,
        s: Server,
        c: Client,
        g: Group,
        seq: i64,
        count: i64,
        size: i64,
        parts: i64,
        ttl_ms: i64,
    ) -> None:
        super().__init__(s, c, g, seq, count, size)
        self.parts = parts
        self.ttl_ms = ttl_ms
        self.is_new_ttl = False

    def step(self, room: i64) -> bool:
        """Take the next jobs."""
        n = self.s.n
        g = self.group
        self.refuse()
        b = self.batch
        if b is None:
            if g.filling is not None:
                n.work += 1
                return False  # for another connection (Y2.7)
            self.taken, error = begin_next(n, g, self.seq)
            if error is not None:
                raise ArgError(core_words(error))
            if self.taken >= 0:
                return True
            self.is_new_ttl = begin_fill(n, g, self.ttl_ms)
            b = Batch(self.seq, self.parts)
            self.begin(b)
        elif g.filling is not b:
            raise ArgError(core_words(no_batch(g, self.seq)))
        if not self.fill(b, room):
            return False
        g.filling = None
        self.taken = end_next(n, g, b, self.most, self.is_new_ttl)
        return True


@final
class Deferral(Taking):
    """[Y11] LEASE DEFER: fill the batch that goes first (Y11.4)."""

    def is_behind(self) -> bool:
        """Whether the journal has much to write: all replies wait for it, and a DEFER adds much."""
        committer = self.s.committer
        if committer is None or committer.error or committer.waiting_bytes() <= UNWRITTEN:
            return False
        self.wake_ms = self.s.n.now_ms + 1
        return True

    def step(self, room: i64) -> bool:
        """Take the next jobs; at the end the batches change places."""
        n = self.s.n
        g = self.group
        self.refuse()
        b = self.batch
        if b is None:
            if g.filling is not None or self.is_behind():
                n.work += 1
                return False  # for another connection (Y2.7)
            b, error = begin_defer(n, self.client.number, g, self.seq)
            if error is not None:
                raise ArgError(core_words(error))
            self.batch = b
            if self.most > 0 and may_defer(n, g):
                self.begin(b)
        elif g.filling is not b:
            raise ArgError(core_words(no_batch(g, self.seq)))
        if g.filling is b:
            if not self.fill(b, room):
                return False
            g.filling = None
        self.taken, error = end_defer(n, self.client.number, g, b)
        if error is not None:
            raise ArgError(core_words(error))
        return True


@final
class Ending(LongCommand):
    """[Y1, Y4, Y5] COMMIT, RELEASE, and OPEN with takeover: process most jobs in slices first."""

    def __init__(self, s: Server, c: Client, what: i64, name: bytes, epoch: i64, seq: i64) -> None:
        super().__init__(c)
        self.s = s
        self.client = c
        self.what = what
        self.named = name
        self.epoch = epoch
        self.seq = seq  # for COMMIT
        self.owner = b""  # for OPEN
        self.queues: list[bytes] = []
        self.done: i64 = 0
        self.goes_on = True

    def step(self, room: i64) -> bool:
        """Ack or requeue the next jobs; at the end run the command itself."""
        n = self.s.n
        self.refuse()
        g = n.leases.groups.get(self.named)
        freed: i64 = 0
        done: i64 = 0
        if g is not None and not (self.what == OPEN and self.is_same(g)):
            if self.what == COMMIT:
                renew(n, g)
                done = ack_some(n, g, self.seq, room)
                freed = done
            else:
                freed, done = give_back_some(n, g, room)
        n.work += freed
        self.done += done
        if freed >= room:
            return False
        if self.what == COMMIT:
            self.done += commit(n, self.named, self.epoch, self.seq, self.done)
        elif self.what == RELEASE:
            assert g is not None
            self.done += on_release(n, g)
        else:
            self.done, error = on_open(n, self.named, self.owner, self.queues)
            if error is not None:
                raise ArgError(core_words(error))
        return True

    def refuse(self) -> None:
        """Raise ArgError when the command is not allowed (any more)."""
        error: Refusal | None = None
        if self.what == COMMIT:
            error = check(self.s.n, self.named, self.epoch, self.seq)
        elif self.what == RELEASE:
            error = find(self.s.n, self.named, self.epoch)
        if error is not None:
            raise ArgError(core_words(error))

    def is_same(self, g: Group) -> bool:
        """Whether the OPEN only renews the present owner (Y1.1)."""
        return g.owner == self.owner and g.queues == self.queues

    def tell(self) -> None:
        """Reply with the number of jobs; for OPEN, the epoch."""
        self.client.out.append(int_reply(self.done))


@final
class GroupNames(LongCommand):
    """[Y10] LEASE LIST: the groups whose queues the client may all see."""

    def __init__(self, s: Server, c: Client) -> None:
        super().__init__(c)
        self.s = s
        self.client = c
        self.left = list(s.n.leases.groups)
        self.shown: list[bytes] = []

    def step(self, room: i64) -> bool:
        """Look at the next groups."""
        n, c = self.s.n, self.client
        done: i64 = 0
        sees_all = c.sees_all()
        while len(self.left) > 0 and done < room:
            g = n.leases.groups.get(self.left.pop())
            done += 1
            if g is None or not c.is_own(g.name):
                continue
            if not sees_all:
                done += len(g.queues) // QUEUES_OF_UNIT
            if sees_all or all(c.sees(queue) for queue in g.queues):
                self.shown.append(c.named(g.name))
        n.work += done
        return len(self.left) == 0

    def tell(self) -> None:
        """Reply with the names, in the order in which the groups were opened."""
        self.shown.reverse()
        names: list[object] = [*self.shown]
        self.client.reply(names)


# ---- The command (SPEC Y)


def cmd_lease(s: Server, c: Client, args: list[bytes]) -> None:
    """[Y] LEASE subcommand [argument ...]."""
    word = args[1].upper()
    count = len(args)
    if word == b"FETCH" and count >= 6:
        fetch(s, c, args)
    elif word == b"NEXT" and count >= 7:
        take_next(s, c, args)
    elif word == b"COMMIT" and count == 5:
        commit_batch(s, c, args)
    elif word == b"TOUCH" and count in (4, 6):
        touch(s, c, args)
    elif word == b"OPEN" and count >= 5:
        open_group(s, c, args)
    elif word == b"NACK" and count >= 6:
        nack(s, c, args)
    elif word == b"RELEASE" and count == 4:
        g = group(s, args)
        begin_long(s, c, Ending(s, c, RELEASE, g.name, g.epoch, 0))
    elif word == b"GONE" and count == 6:
        gone(s, c, args)
    elif word == b"BEGIN" and count == 5:
        begin(s, c, args)
    elif word == b"SPLIT" and count in (6, 8):
        split(s, c, args)
    elif word == b"DEFER" and count >= 5:
        defer(s, c, args)
    elif word == b"INFO" and count == 3:
        known = s.n.leases.groups.get(args[2])
        if known is None:
            raise ArgError(error_words(NOGROUP, (args[2],)))
        jobs = sum([len(b.jobs) for b in known.batches.values()])
        s.n.work += jobs // POSITIONS_OF_UNIT  # it reads each of them
        fields = lease_info(s.n, known)
        fields["group"] = c.named(known.name)
        fields["queues"] = [c.named(queue) for queue in known.queues]
        c.reply(flat(fields))
    elif word == b"LIST" and count == 2:
        begin_long(s, c, GroupNames(s, c))
    elif word == b"HELP" and count == 2:
        reply_help(s, c, b"LEASE")
    else:
        raise WrongWords(b"LEASE")


def number(word: bytes, name: str, least: int, most: int) -> int:
    """An integer within the range, or an error that names the range (Y1.5)."""
    value = strict_int(word)
    if value is None or value < least or value > most:
        raise not_this(f"ERR {name} must be a number from {least} to {most}".encode(), word)
    return int(value)


def options(args: list[bytes], first: int, names: list[bytes]) -> dict[bytes, bytes]:
    """Pairs of an option in `names` and its value, to the end (Y1.5)."""
    found: dict[bytes, bytes] = {}
    for i in range(first, len(args), 2):
        word = args[i].upper()
        if word not in names or i + 1 == len(args):
            raise Misuse(args[i])
        found[word] = args[i + 1]
    return found


def group(s: Server, args: list[bytes]) -> Group:
    """The group and epoch in words 2 and 3; raises if invalid (Y1.6, Y1.7)."""
    epoch = number(args[3], "epoch", 1, NUMBER_MAX)
    error = find(s.n, args[2], epoch)
    if error is not None:
        raise ArgError(core_words(error))
    return s.n.leases.groups[args[2]]


def open_group(s: Server, c: Client, args: list[bytes]) -> None:
    """[Y1] LEASE OPEN group owner queue [queue ...]."""
    for word in args[2:4]:
        if not 1 <= len(word) <= NAME_MAX:
            raise ArgError(b"ERR a group and its owner have names of 1 to %d bytes" % NAME_MAX)
    if len(args) - 4 > QUEUES_MAX or len(set(args[4:])) != len(args) - 4:
        raise ArgError(b"ERR a group takes from 1 to %d queues, each named once" % QUEUES_MAX)
    if args[2] not in s.n.leases.groups:
        check_room(s.n, [])  # V1.7
        refused = full_of_groups(s, c.user) if c.user is not None and c.is_tenant() else None
        if refused is not None:
            raise ArgError(refused)
    error = open_refusal(s.n, args[4:])
    if error is not None:
        raise ArgError(core_words(error))
    opening = Ending(s, c, OPEN, args[2], 0, 0)
    opening.owner = args[3]
    opening.queues = args[4:]
    begin_long(s, c, opening)


def take_next(s: Server, c: Client, args: list[bytes]) -> None:
    """[Y2] LEASE NEXT group epoch seq COUNT n [BYTES b] [PARTS p] TTL ms."""
    found = options(args, 5, [b"COUNT", b"BYTES", b"PARTS", b"TTL"])
    if b"COUNT" not in found or b"TTL" not in found:
        raise Misuse()
    count = number(found[b"COUNT"], "COUNT", 1, COUNT_MAX)
    ttl_ms = number(found[b"TTL"], "TTL", TTL_MIN_MS, TTL_MAX_MS)
    size = number(found.get(b"BYTES", b"%d" % BYTES_DEFAULT), "BYTES", 1, BYTES_MAX)
    parts = number(found.get(b"PARTS", b"1"), "PARTS", 1, PARTS_MAX)
    seq = number(args[4], "seq", 1, NUMBER_MAX)
    begin_long(s, c, Next(s, c, group(s, args), seq, count, size, parts, ttl_ms))


def fetch(s: Server, c: Client, args: list[bytes]) -> None:
    """[Y3] LEASE FETCH group epoch seq part [FROM i] [COUNT k] [BYTES b] [COLUMNS]."""
    words = [word for word in args[6:] if word.upper() != b"COLUMNS"]
    is_columns = len(words) < len(args) - 6
    found = options(words, 0, [b"FROM", b"COUNT", b"BYTES"])
    start = number(found.get(b"FROM", b"0"), "FROM", 0, COUNT_MAX)
    count = number(found.get(b"COUNT", b"%d" % ROWS_DEFAULT), "COUNT", 1, COUNT_MAX)
    size = number(found.get(b"BYTES", b"%d" % ROW_BYTES_DEFAULT), "BYTES", 1, BYTES_MAX)
    seq = number(args[4], "seq", 1, NUMBER_MAX)
    part = number(args[5], "part", 0, PARTS_MAX - 1)
    g = group(s, args)
    count = min(count, COLUMNS_MAX if is_columns else ROWS_MAX)  # Y3.9
    size = min(size, FETCH_BYTES)
    rows = on_fetch(s.n, c.number, g, seq, part, start, count, size, is_columns)
    if rows.error is not None:
        raise ArgError(core_words(rows.error))
    s.n.work += len(rows.jobs) // POSITIONS_OF_UNIT if is_columns else len(rows.jobs)
    reply: list[object] = [int(rows.attempts), int(rows.total)]
    if is_columns:
        reply.extend([len(rows.jobs), int(rows.gone)])
        reply.extend(columns(rows.jobs))
    else:
        reply.append(plain_rows(rows.jobs))
    if c.is_tenant():
        take_names_home(c, reply, is_columns)
    reply.append(int(rows.next))
    c.reply(reply)


def take_names_home(c: Client, reply: list[object], is_columns: bool) -> None:
    """[N10] Name the queues of a FETCH as the client's user knows them (N10.2)."""
    if is_columns:
        names = reply[QUEUES_AT]
        assert isinstance(names, list)
        reply[QUEUES_AT] = [c.named(name) for name in names]
        return
    rows = reply[len(reply) - 1]
    assert isinstance(rows, list)
    for row in rows:
        rename(c, row, 1)


def commit_batch(s: Server, c: Client, args: list[bytes]) -> None:
    """[Y4] LEASE COMMIT group epoch seq."""
    epoch = number(args[3], "epoch", 1, NUMBER_MAX)
    seq = number(args[4], "seq", 1, NUMBER_MAX)
    error = check(s.n, args[2], epoch, seq)
    if error is not None:
        raise ArgError(core_words(error))
    begin_long(s, c, Ending(s, c, COMMIT, args[2], epoch, seq))


def touch(s: Server, c: Client, args: list[bytes]) -> None:
    """[Y5] LEASE TOUCH group epoch [TTL ms]."""
    word = options(args, 4, [b"TTL"]).get(b"TTL")
    ttl_ms = 0 if word is None else number(word, "TTL", TTL_MIN_MS, TTL_MAX_MS)
    c.reply(int(on_touch(s.n, group(s, args), ttl_ms)))


def gone(s: Server, c: Client, args: list[bytes]) -> None:
    """[Y3] LEASE GONE group epoch seq part."""
    seq = number(args[4], "seq", 1, NUMBER_MAX)
    part = number(args[5], "part", 0, PARTS_MAX - 1)
    counts, error = on_gone(s.n, c.number, group(s, args), seq, part)
    if error is not None:
        raise ArgError(core_words(error))
    c.reply(flat({word.decode(): int(counts[why]) for why, word in enumerate(WHYS)}))


def begin(s: Server, c: Client, args: list[bytes]) -> None:
    """[Y11] LEASE BEGIN group epoch seq."""
    seq = number(args[4], "seq", 1, NUMBER_MAX)
    found = on_begin(s.n, c.number, group(s, args), seq)
    if found.error is not None:
        raise ArgError(core_words(found.error))
    numbers = (found.times, found.jobs, found.half, found.proof, found.before)
    c.reply([int(number) for number in numbers])


def split(s: Server, c: Client, args: list[bytes]) -> None:
    """[Y11] LEASE SPLIT group epoch seq keep [BEGUN times]."""
    seq = number(args[4], "seq", 1, NUMBER_MAX)
    keep = number(args[5], "keep", 0, COUNT_MAX)
    begun = number(options(args, 6, [b"BEGUN"]).get(b"BEGUN", b"0"), "BEGUN", 0, COUNT_MAX)
    kept, error = on_split(s.n, c.number, group(s, args), seq, keep, begun)
    if error is not None:
        raise ArgError(core_words(error))
    c.reply(int(kept))


def defer(s: Server, c: Client, args: list[bytes]) -> None:
    """[Y11] LEASE DEFER group epoch seq [COUNT n] [BYTES b]."""
    seq = number(args[4], "seq", 1, NUMBER_MAX)
    found = options(args, 5, [b"COUNT", b"BYTES"])
    count = number(found.get(b"COUNT", b"0"), "COUNT", 0, BATCH_MAX)
    size = number(found.get(b"BYTES", b"%d" % BYTES_DEFAULT), "BYTES", 1, BYTES_MAX)
    begin_long(s, c, Deferral(s, c, group(s, args), seq, count, size))


def nack(s: Server, c: Client, args: list[bytes]) -> None:
    """[Y5] LEASE NACK group epoch seq id [id ...]."""
    ids = [of_url(id) for id in args[5:]]
    if len(ids) > NACKS_MAX:
        raise ArgError(b"ERR LEASE NACK takes at most %d ids at once" % NACKS_MAX)
    if not all(is_job_id(id) for id in ids):
        raise ArgError(BADID)
    seq = number(args[4], "seq", 1, NUMBER_MAX)
    g = group(s, args)
    b = g.batches.get(seq)
    s.n.work += len(ids) + (0 if b is None else len(b.jobs) // POSITIONS_OF_UNIT)
    done, error = on_lease_nack(s.n, g, seq, ids)
    if error is not None:
        raise ArgError(core_words(error))
    c.reply(int(done))
