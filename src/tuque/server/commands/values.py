"""VALUE: named values of a tube, counters, sets of parts, and waits for them (SPEC T70 to T72)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tuque.core.model.task import Task
from tuque.core.model.timers import REPLY_BYTES
from tuque.core.msgs.packed import SET_PARTS_MAX, VALUE_NAME_MAX
from tuque.core.node.node import WAIT_OVER, Wake
from tuque.server.access.tenant import check_growth as check_bytes
from tuque.server.commands.jobs import DISKFULL
from tuque.server.commands.results import block
from tuque.server.config.patterns import Glob
from tuque.server.replies.errors import LEAVING, reply_help
from tuque.server.replies.redirects import refusal_text, tube_named
from tuque.server.replies.waiting import hold_back
from tuque.server.state.client import Client, Wanted
from tuque.server.state.server import Server
from tuque.tubes import values
from tuque.tubes.entries.value import (
    HAS_ENDED,
    IS_FIXED,
    NO_PART,
    SetEntry,
    ValueEntry,
    name_in,
    wait_key,
)
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policy import tubes_of
from tuque.wire.commands.arguments import (
    SECONDS,
    SECONDS_MAX,
    ArgError,
    not_this,
    ranged,
    some_ms,
    timeout_ms,
    twice,
    wrong,
    wrong_option,
)
from tuque.wire.proto.resp import strict_int

DAY_MS: Final = 86_400_000
NAMES_MAX: Final = 500
COUNT: Final = 100
COUNT_MAX: Final = 1_000
LOOKED_AT: Final = 2_000  # indexes of one call of PARTS, names of one SCAN
ROW_BYTES: Final = 64  # of a reply, beside what is in it

NEEDS: Final[dict[bytes, bytes]] = {
    b"SET": b"a tube, a name, a value, and TTL, END, FIXED or NEW",
    b"GET": b"a tube and 1 to 500 names",
    b"WAIT": b"a tube, a timeout in ms and 1 to 500 names, and COUNT with a number",
    b"DROP": b"a tube and 1 to 500 names",
    b"ADD": b"a tube, a name, a number, and TTL",
    b"TALLY": b"a tube, a name, an index, a value, SIZE with a number, and TTL",
    b"PARTS": b"a tube, a name, and the index to begin with, and COUNT",
    b"SCAN": b"a tube, and a cursor, MATCH and COUNT",
}
WORDS: Final[dict[bytes, tuple[int, int]]] = {
    b"SET": (5, 10),
    b"GET": (4, 3 + NAMES_MAX),
    b"WAIT": (5, 6 + NAMES_MAX),
    b"DROP": (4, 3 + NAMES_MAX),
    b"ADD": (5, 7),
    b"TALLY": (8, 10),
    b"PARTS": (4, 7),
    b"SCAN": (3, 8),
}
TAKES: Final = b"VALUE takes SET, GET, WAIT, DROP, ADD, TALLY, PARTS, SCAN or HELP"
BAD_NAME: Final = b"ERR the name of a value has 1 to %d bytes" % VALUE_NAME_MAX
BAD_TTL: Final = b"ERR TTL must be " + SECONDS
BAD_NUMBER: Final = b"ERR ADD takes a number of 64 bits with a sign"
LEAST_NUMBER: Final = b"-9223372036854775808"  # beyond what C4.2 calls an integer
BAD_INDEX: Final = b"ERR the index must be a number from 0 to %d, or -" % (SET_PARTS_MAX - 1)
BAD_FROM: Final = b"ERR the index must be a number from 0 to %d" % (SET_PARTS_MAX - 1)
BAD_SIZE: Final = b"ERR SIZE must be a number from 0 to %d" % SET_PARTS_MAX
ABOVE_SIZE: Final = b"ERR the index must be below SIZE"
NO_BODY: Final = b"ERR the index - says the size alone: its value must be empty"
BAD_NEEDED: Final = b"ERR COUNT must be a number from 1 to the number of names"
BAD_COUNT: Final = b"ERR COUNT must be a number from 1 to %d" % COUNT_MAX
BAD_CURSOR: Final = b"ERR the cursor must be a number that a page replied with"
CURSOR_MAX: Final = (1 << 62) - 1


# ---- The command


def cmd_value(s: Server, c: Client, args: list[bytes]) -> None:
    """[T70, T73] VALUE SET | GET | WAIT | DROP | ADD | TALLY | PARTS | SCAN."""
    word = args[1].upper()
    if word == b"HELP" and len(args) == 2:
        reply_help(s, c, b"VALUE")
        return
    if word not in NEEDS:
        raise wrong(TAKES)
    least, most = WORDS[word]
    if not least <= len(args) <= most:
        raise wrong(b"VALUE %s takes %s" % (word, NEEDS[word]))
    t = tubes_of(s.n)
    tube = tube_named(s.n, t, args[2])
    if word == b"SET":
        set_value(s, c, t, tube, args)
    elif word == b"GET":
        get(s, c, t, tube, args[3:])
    elif word == b"WAIT":
        wait(s, c, t, tube, args)
    elif word == b"DROP":
        check_names(args[3:])
        s.n.work += len(args) - 4
        c.reply(int(values.drop_values(s.n, t, tube, args[3:])))
    elif word == b"ADD":
        add(s, c, t, tube, args)
    elif word == b"TALLY":
        count_part(s, c, t, tube, args)
    elif word == b"PARTS":
        parts(s, c, t, tube, args)
    else:
        scan(s, c, t, tube, args[3:])


def check_names(names: list[bytes]) -> None:
    """Raise ArgError if a name is none (T70.6)."""
    for name in names:
        if not 1 <= len(name) <= VALUE_NAME_MAX:
            raise ArgError(BAD_NAME)


def check_adding(s: Server, c: Client, task: Task | None, body: bytes) -> None:
    """Refuse what adds when the disk is short or the node leaves, and above the tenant's bytes."""
    if s.is_disk_short():
        raise ArgError(DISKFULL)
    if s.is_parting():
        raise ArgError(LEAVING)
    check_bytes(s, c.user, task, body)


def ttl_of(word: bytes) -> i64:
    """The value of TTL in ms."""
    found = some_ms(word)
    if not 0 <= found <= SECONDS_MAX * 1000:
        raise not_this(BAD_TTL, word)
    return found


def only_ttl(command: bytes, words: list[bytes]) -> i64:
    """The TTL in ms where nothing else may stand; a day without it (T70.4)."""
    if len(words) == 0:
        return DAY_MS
    if words[0].upper() != b"TTL":
        raise wrong_option(command, words[0], (b"TTL",))
    if len(words) == 1:
        raise wrong(b"TTL needs a value")
    return ttl_of(words[1])


def known(s: Server, tube: Tube, name: bytes) -> Task | None:
    """The task of that name, for what a quota counts."""
    number = values.values_of(tube).by_name.get(name)
    return None if number is None else tube.tasks.get(number)


# ---- Values and counters (SPEC T70)


def set_value(s: Server, c: Client, t: Tubes, tube: Tube, args: list[bytes]) -> None:
    """SET tube name value [TTL sec] [END] [FIXED] [NEW] (T70.2)."""
    check_names(args[3:4])
    ttl_ms: i64 = DAY_MS
    bits: i64 = 0
    seen: dict[bytes, None] = {}
    i = 5
    while i < len(args):
        word = args[i].upper()
        if word in seen:
            raise twice(word)
        seen[word] = None
        if word == b"TTL":
            i += 1
            if i == len(args):
                raise wrong(b"TTL needs a value")
            ttl_ms = ttl_of(args[i])
        elif word == b"END":
            bits |= HAS_ENDED
        elif word == b"FIXED":
            bits |= IS_FIXED
        elif word != b"NEW":
            raise wrong_option(b"VALUE SET", args[i], (b"TTL", b"END", b"FIXED", b"NEW"))
        i += 1
    check_adding(s, c, known(s, tube, args[3]), args[4])
    is_new = b"NEW" in seen
    c.reply(int(values.set_value(s.n, t, tube, args[3], args[4], ttl_ms, bits, is_new)))


def get(s: Server, c: Client, t: Tubes, tube: Tube, names: list[bytes]) -> None:
    """GET tube name [name ...]: as many as fit into a reply, one at least (T73.1)."""
    check_names(names)
    values.begin_read(s.n, t, tube)
    s.n.work += len(names) - 1
    room = REPLY_BYTES
    rows: list[object] = []
    for name in names:
        task = values.find(s.n, t, tube, name)
        if task is None:
            rows.append(None)
            continue
        values.value_entry(task)
        room -= len(task.body) + ROW_BYTES
        if room < 0 and len(rows) > 0:
            break
        rows.append(task.body)
    c.reply(rows)


def add(s: Server, c: Client, t: Tubes, tube: Tube, args: list[bytes]) -> None:
    """ADD tube name n [TTL sec]: the sum (T70.3)."""
    check_names(args[3:4])
    by: int | None = -values.NUMBER_MOST - 1 if args[4] == LEAST_NUMBER else strict_int(args[4])
    if by is None:
        raise not_this(BAD_NUMBER, args[4])
    ttl_ms = only_ttl(b"VALUE ADD", args[5:])
    check_adding(s, c, None, args[4])
    c.reply(values.add_number(s.n, t, tube, args[3], by, ttl_ms))


# ---- Sets of parts (SPEC T71)


def count_part(s: Server, c: Client, t: Tubes, tube: Tube, args: list[bytes]) -> None:
    """TALLY tube name index value SIZE n [TTL sec]: parts, size, and the 1 (T71.3)."""
    check_names(args[3:4])
    index: i64 = NO_PART
    if args[4] != b"-":
        index = ranged(args[4], 0, SET_PARTS_MAX - 1, BAD_INDEX)
    elif len(args[5]) > 0:
        raise ArgError(NO_BODY)
    if args[6].upper() != b"SIZE":
        raise wrong_option(b"VALUE TALLY", args[6], (b"SIZE",))
    size = ranged(args[7], 0, SET_PARTS_MAX, BAD_SIZE)
    if 0 < size <= index:
        raise not_this(ABOVE_SIZE, args[4])
    ttl_ms = only_ttl(b"VALUE TALLY", args[8:])
    check_adding(s, c, None, args[5])
    count, grown, is_whole = values.count_part(s.n, t, tube, args[3], index, args[5], size, ttl_ms)
    c.reply([int(count), int(grown), int(is_whole)])


def parts(s: Server, c: Client, t: Tubes, tube: Tube, args: list[bytes]) -> None:
    """PARTS tube name [from] [COUNT n]: the next index, 0 at the end, and parts (T71.4)."""
    check_names(args[3:4])
    words = args[4:]
    index = 0
    if len(words) in (1, 3):
        index = int(ranged(words[0], 0, SET_PARTS_MAX - 1, BAD_FROM))
        words = words[1:]
    left = count_of(b"VALUE PARTS", words)
    found = values.parts_at(s.n, t, tube, args[3])
    end = 0 if found is None else int(found.most) + 1
    until = min(end, index + LOOKED_AT)
    room = REPLY_BYTES
    rows: list[object] = []
    while found is not None and index < until and left > 0:
        number = found.by_index.get(index)
        s.n.work += index % 2
        if number is not None:
            body = tube.tasks[number].body
            room -= len(body) + ROW_BYTES
            if room < 0 and len(rows) > 0:
                break
            rows.append([index, body])
            left -= 1
        index += 1
    c.reply([index if index < end else 0, rows])


def count_of(command: bytes, words: list[bytes]) -> int:
    """The value of COUNT, where nothing else may stand."""
    if len(words) == 0:
        return COUNT
    if words[0].upper() != b"COUNT":
        raise wrong_option(command, words[0], (b"COUNT",))
    if len(words) == 1:
        raise wrong(b"COUNT needs a value")
    return int(ranged(words[1], 1, COUNT_MAX, BAD_COUNT))


# ---- A list of all values (SPEC T70.9)


def scan(s: Server, c: Client, t: Tubes, tube: Tube, words: list[bytes]) -> None:
    """SCAN tube [cursor] [MATCH glob] [COUNT n]: the next cursor, 0 at the end, and rows."""
    cursor = 0
    if len(words) % 2 == 1:
        cursor = int(ranged(words[0], 0, CURSOR_MAX, BAD_CURSOR))
        words = words[1:]
    given: dict[bytes, bytes] = {}
    for i in range(0, len(words), 2):
        word = words[i].upper()
        if word not in (b"MATCH", b"COUNT"):
            raise wrong_option(b"VALUE SCAN", words[i], (b"MATCH", b"COUNT"))
        if word in given:
            raise twice(word)
        given[word] = words[i + 1]
    left = int(ranged(given.get(b"COUNT", b"%d" % COUNT), 1, COUNT_MAX, BAD_COUNT))
    glob = Glob(given[b"MATCH"].decode("latin-1")) if b"MATCH" in given else None
    values.begin_read(s.n, t, tube)
    numbers = values.values_of(tube).numbers_from(cursor, LOOKED_AT)
    rows: list[object] = []
    after = 0 if len(numbers) < LOOKED_AT else numbers[len(numbers) - 1] + 1
    until = s.n.work + LOOKED_AT
    for number in numbers:
        if left == 0 or s.n.work >= until:
            after = number
            break
        task = tube.tasks.get(number)
        name = b"" if task is None else name_in(task.entry)
        s.n.work += 1
        if task is None or len(name) == 0 or task.qtime_ms <= s.n.now_ms:
            continue
        if glob is not None and not glob.matches(name.decode("latin-1")):
            s.n.work += glob.units()
            continue
        rows.append(row_of(s, tube, task, name))
        left -= 1
    c.reply([b"%d" % after, rows])


def row_of(s: Server, tube: Tube, task: Task, name: bytes) -> list[object]:
    """Name, kind, bytes or parts, and the end in unix ms, 0: none (T70.9)."""
    entry = task.entry
    size = len(task.body)
    kind = b"value"
    if isinstance(entry, SetEntry):
        kind = b"parts"
        size = len(values.values_of(tube).parts_of(task.number).by_index)
    elif isinstance(entry, ValueEntry) and entry.bits & IS_FIXED:
        kind = b"fixed"
    elif isinstance(entry, ValueEntry) and entry.bits & HAS_ENDED:
        kind = b"ended"
    is_for_ever = task.qtime_ms - s.n.now_ms > SECONDS_MAX * 1000
    return [name, kind, size, 0 if is_for_ever else int(task.qtime_ms)]


# ---- WAIT (SPEC T72)


def wait(s: Server, c: Client, t: Tubes, tube: Tube, args: list[bytes]) -> None:
    """WAIT tube ms name [name ...] [COUNT n]: names that were set with END, or are gone (T72.1)."""
    wait_ms = timeout_ms(args[3])
    names = args[4:]
    needed: i64 = 0
    if len(names) > 2 and names[len(names) - 2].upper() == b"COUNT":
        needed = ranged(names[len(names) - 1], 1, len(names) - 2, BAD_NEEDED)
        names = names[: len(names) - 2]
    if len(names) > NAMES_MAX:
        raise wrong(b"VALUE WAIT takes %s" % NEEDS[b"WAIT"])
    check_names(names)
    s.n.work += len(names) - 1
    values.begin_read(s.n, t, tube)
    wanted = Wanted([wait_key(tube.name, name) for name in names], needed or len(names))
    wanted.tube = tube.name
    wanted.names = list(dict.fromkeys(names))
    wanted.needed = min(wanted.needed, len(wanted.names))
    rows = rows_of(s, t, tube, wanted)
    if len(rows) >= wanted.needed:
        c.reply(cut(rows))
    else:
        block(s, c, wanted, wait_ms)


def rows_of(s: Server, t: Tubes, tube: Tube, wanted: Wanted) -> list[tuple[bytes, bytes | None]]:
    """The names that were set with END, and those that are gone since the wait began."""
    rows: list[tuple[bytes, bytes | None]] = []
    for name in wanted.names:
        task = note_value(s, t, tube, wanted, name)
        if name in wanted.done:
            rows.append((name, None if task is None else task.body))
    return rows


def note_value(s: Server, t: Tubes, tube: Tube, wanted: Wanted, name: bytes) -> Task | None:
    """The value of that name; the wait notes whether it counts (T72.1)."""
    task = values.find(s.n, t, tube, name)
    is_done = name in wanted.met
    if task is not None:
        is_done = values.value_entry(task).bits & HAS_ENDED != 0
        wanted.met[name] = None
    if is_done:
        wanted.done[name] = None
    else:
        wanted.done.pop(name, None)
    return task


def cut(rows: list[tuple[bytes, bytes | None]]) -> list[object]:
    """As many rows as fit into a reply, one at least."""
    room = REPLY_BYTES
    found: list[object] = []
    for name, body in rows:
        room -= len(name) + ROW_BYTES + (0 if body is None else len(body))
        if room < 0 and len(found) > 0:
            break
        found.append([name, body])
    return found


def reply_values(s: Server, c: Client, wanted: Wanted, wake: Wake) -> bool:
    """[T72] A value that the client waits for has changed, or its time is over; whether the wait
    is over. The reply waits for copies as that of a change (T72.2).

    If the changed value does not end the wait, no other value is read: a wait may have 500 names.
    """
    t = tubes_of(s.n)
    written = len(c.out)
    try:
        tube = tube_named(s.n, t, wanted.tube)
        values.begin_read(s.n, t, tube)
        rows: list[tuple[bytes, bytes | None]] = []
        if len(wake.name) > 0:
            note_value(s, t, tube, wanted, wake.name)
        if len(wake.name) == 0 or len(wanted.done) >= wanted.needed:
            s.n.work += len(wanted.names) // 10
            rows = rows_of(s, t, tube, wanted)
        if len(rows) < wanted.needed and wake.why != WAIT_OVER:
            t.to_sync.pop(tube.name, None)
            return False
        c.reply(cut(rows))
    except TubeError as refused:
        c.error(refusal_text(s, refused))
    except ArgError as error:
        c.error(error.text)
    c.wanted = None
    if len(t.to_sync) > 0:
        hold_back(s, t, c, written)
    return True
