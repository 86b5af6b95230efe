"""LEASE: arguments of its commands, and replies from the core's results (SPEC Y)."""

from __future__ import annotations

from typing import Final

from tuque.core.leases.bisect import on_begin, on_defer, on_split
from tuque.core.leases.fetch import WHYS, columns, on_fetch, on_gone, plain_rows
from tuque.core.leases.leases import (
    BATCH_MAX,
    check,
    find,
    lease_info,
    on_lease_nack,
    on_touch,
    open_refusal,
)
from tuque.core.model.errors import NOGROUP
from tuque.core.model.job_id import is_job_id, of_url
from tuque.core.tables.leases import (
    NAME_MAX,
    PARTS_MAX,
    QUEUES_MAX,
    Group,
)
from tuque.server.commands.by_id import BADID, check_room
from tuque.server.commands.lease_chores import COMMIT, OPEN, RELEASE, Ending, Next
from tuque.server.commands.views import flat, rename
from tuque.server.replies.chores import begin as begin_long
from tuque.server.replies.core_words import WORDS, core_words
from tuque.server.replies.help import reply_help
from tuque.server.rights.tenant import full_of_groups
from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.wire.commands.arguments import (
    ArgError,
    Misuse,
    WrongWords,
    not_this,
)
from tuque.wire.proto.resp import strict_int

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
ROWS_OF_UNIT: Final = 20  # short work: a row of columns, a check of a job of a batch
NACKS_MAX: Final = 10_000
NUMBER_MAX: Final = 1 << 52
QUEUES_AT: Final = 5  # in the reply of a FETCH with COLUMNS


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
            raise ArgError(WORDS[NOGROUP] % args[2])
        fields = lease_info(s.n, known)
        fields["group"] = c.named(known.name)
        fields["queues"] = [c.named(queue) for queue in known.queues]
        c.reply(flat(fields))
    elif word == b"LIST" and count == 2:
        groups = s.n.leases.groups.values()
        shown = [g for g in groups if all(c.sees(queue) for queue in g.queues)]
        c.reply([c.named(g.name) for g in shown if c.is_own(g.name)])
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
    g = group(s, args)
    begin_long(s, c, Next(s, c, g, seq, count, size, parts, ttl_ms))


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
    s.n.work += len(rows.jobs) // ROWS_OF_UNIT if is_columns else len(rows.jobs)
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
    jobs, error = on_defer(s.n, c.number, group(s, args), seq, count, size)
    if error is not None:
        raise ArgError(core_words(error))
    c.reply(int(jobs))


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
    s.n.work += len(ids) + (0 if b is None else len(b.jobs) // ROWS_OF_UNIT)
    done, error = on_lease_nack(s.n, g, seq, ids)
    if error is not None:
        raise ArgError(core_words(error))
    c.reply(int(done))
