"""DEAD: dead letters listed, shown, counted, replayed and purged (SPEC W12)."""

from bisect import insort
from typing import Final, final

from mypy_extensions import i64

from tuque.core.life.dead_letters import (
    LOOK_MAX,
    OF_TUBE,
    Letter,
    Letters,
    letter_of,
    purge,
    replay,
    tube_of_letters,
)
from tuque.core.life.shown import detail_of
from tuque.core.model.errors import DUPLICATE, Refusal
from tuque.core.model.task import Task
from tuque.core.model.timers import TURN_WORK
from tuque.core.node.node import Node
from tuque.core.queues.procedures import policy_of
from tuque.server.commands.jobs import check_ids
from tuque.server.commands.queues import flat
from tuque.server.config.patterns import MOST, Glob
from tuque.server.replies.errors import core_words, reply_help
from tuque.server.replies.long_commands import begin
from tuque.server.replies.redirects import check_queue, check_tasks
from tuque.server.state.client import Client, LongCommand
from tuque.server.state.server import Server
from tuque.tubes.log.leader import needs_copies
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tube import Tube
from tuque.tubes.policy import tubes_of
from tuque.wire.commands.arguments import (
    ArgError,
    header_pairs,
    not_this,
    ranged,
    twice,
    wrong,
    wrong_option,
)

NEEDS_QUEUE: Final = b"ERR '%s' is a tube: DEAD REPLAY of letters in '%s' needs QUEUE"
TUBE_LETTERS: Final = b"ERR '%s' is a tube: dead letters are replayed in queues"
NOT_DEAD: Final = b"NOJOB Job is no dead letter here"
BAD_COUNT: Final = b"ERR COUNT must be a number from 1 to 1000"
BAD_CURSOR: Final = b"ERR the cursor must be a number that a page replied with"
BAD_SINCE: Final = b"ERR SINCE must be an instant in ms"
NO_QUEUE: Final = b"ERR QUEUE must name a queue"
BAD_CAUSE: Final = b"ERR CAUSE must be failed, crashed, timeout, expired, unstarted or buried"
CAUSES: Final = (b"failed", b"crashed", b"timeout", b"expired", b"unstarted", b"buried")
FILTERS: Final = (b"COUNT", b"REASON", b"TASK", b"CAUSE", b"SINCE")
CHANGE_OPTIONS: Final = (*FILTERS, b"CURSOR", b"QUEUE", b"RATE")
DEAD_WORDS: Final[dict[bytes, bytes]] = {
    b"LIST": b"a queue",
    b"SHOW": b"one id",
    b"STAT": b"one queue",
    b"REPLAY": b"a queue, and ALL, IDS or a filter",
    b"PURGE": b"a queue, and ALL, IDS or a filter",
}
BOTH: Final = b"ERR ALL and IDS exclude each other"
TASK_HEADER: Final = b"tuque-task"
LONG_GLOB: Final = b"ERR a pattern has at most %d characters" % MOST
BAD_RATE: Final = b"ERR RATE must be a number from 1 to 1000000"
RATE_MAX: Final = 1_000_000
PACE_MS: Final = 10  # between two slices of a replay with RATE
LATE_MS: Final = 50  # such a slice makes up for less
LETTER_WORK: Final = 3
ROWS_MAX: Final = 1_000  # of DEAD STAT
LOOKS: Final = 4  # reasons that are looked at per unit of work
COPIED: Final = 100  # of which the names are copied
BIG: Final = (1 << 62) - 1
CURSOR_MAX: Final = BIG | OF_TUBE


@final
class Selection:
    """The filters of DEAD LIST, REPLAY and PURGE (W12.1)."""

    def __init__(self) -> None:
        self.cursor: i64 = 0
        self.count: i64 = 100
        self.reason: Glob | None = None
        self.task: Glob | None = None
        self.room: i64 = TURN_WORK  # left for the globs
        self.seen: i64 = 0
        self.cause = b""
        self.since_ms: i64 = 0
        self.ids: list[bytes] = []
        self.to = b""
        self.rate: i64 = 0  # letters a second; 0: at once
        self.is_said = False  # ALL, IDS or a filter

    def means(self, n: Node, letter: Letter) -> bool:
        """Whether the letter is selected."""
        life = letter.life
        if life.dead_ms < self.since_ms:
            return False
        if len(self.cause) > 0 and life.dead_cause != self.cause:
            return False
        if self.reason is not None and not self.fits(n, self.reason, life.last_failure().reason):
            return False
        return self.task is None or self.fits(n, self.task, task_of(life.headers))

    def fits(self, n: Node, glob: Glob, word: bytes) -> bool:
        """Whether the glob matches, which is work."""
        found = glob.matches(shown(word))
        units = glob.units()
        n.work += units
        self.room -= units
        return found


def shown(word: bytes) -> str:
    """Bytes as text, for globs."""
    return word.decode("utf-8", "backslashreplace")


def task_of(blob: bytes) -> bytes:
    """The name of the task that a worker gave the job."""
    words = header_pairs(blob)
    for i in range(0, len(words), 2):
        if words[i] == TASK_HEADER:
            return words[i + 1]
    return b""


def selection(s: Server, args: list[bytes], first: i64, is_change: bool) -> Selection:
    """The filters in the words from `first` on."""
    chosen = Selection()
    if is_change:
        chosen.count = LOOK_MAX
    has_all = False
    said: list[bytes] = []
    i = first
    while i < len(args):
        word = args[i].upper()
        if word in said:
            raise twice(word)  # W12.8
        said.append(word)
        if is_change and word == b"ALL":
            chosen.is_said = has_all = True
            i += 1
            continue
        if is_change and word == b"IDS":
            if has_all:
                raise ArgError(BOTH)  # W12.8
            chosen.ids = args[i + 1 :]
            check_ids(s, chosen.ids, 0)
            chosen.is_said = True
            if len(chosen.ids) == 0:
                raise wrong(b"IDS needs an id")
            return chosen
        if not is_change and i == first and word.isdigit():
            chosen.cursor = ranged(word, 0, CURSOR_MAX, BAD_CURSOR)
            i += 1
            continue
        options = CHANGE_OPTIONS if is_change else FILTERS
        if word not in options or i + 1 == len(args):
            raise wrong_option(b"DEAD " + args[1].upper(), args[i], options)
        choose(chosen, word, args[i + 1])
        i += 2
    if is_change and not chosen.is_said:
        raise wrong(b"DEAD %s needs ALL, IDS or a filter" % args[1].upper())
    return chosen


def choose(chosen: Selection, word: bytes, value: bytes) -> None:
    """One filter or option."""
    if word == b"COUNT":
        chosen.count = ranged(value, 1, LOOK_MAX, BAD_COUNT)
    elif word == b"CURSOR":
        chosen.cursor = ranged(value, 0, CURSOR_MAX, BAD_CURSOR)
    elif word == b"QUEUE":
        if len(value) == 0:
            raise ArgError(NO_QUEUE)  # W12.8
        chosen.to = value
    elif word == b"RATE":
        chosen.rate = ranged(value, 1, RATE_MAX, BAD_RATE)
    else:
        chosen.is_said = True
        if word == b"REASON":
            chosen.reason = glob_of(value)
        elif word == b"TASK":
            chosen.task = glob_of(value)
        elif word == b"CAUSE":
            if value not in CAUSES:
                raise not_this(BAD_CAUSE, value)  # W12.8
            chosen.cause = value
        else:
            chosen.since_ms = ranged(value, 0, BIG, BAD_SINCE)


def glob_of(value: bytes) -> Glob:
    """The glob of a filter."""
    text = shown(value)
    if len(text) > MOST:
        raise ArgError(LONG_GLOB)  # W12.8
    return Glob(text)


def cmd_dead(s: Server, c: Client, args: list[bytes]) -> None:
    """[W12] DEAD LIST | SHOW | STAT | REPLAY | PURGE."""
    word = args[1].upper()
    if word == b"LIST" and len(args) > 2:
        dead_list(s, c, args)
    elif word == b"SHOW" and len(args) == 3:
        dead_show(s, c, args)
    elif word == b"STAT" and len(args) == 3:
        dead_stat(s, c, args[2])
    elif word in (b"REPLAY", b"PURGE") and len(args) > 3:
        dead_change(s, c, args, word == b"REPLAY")
    elif word == b"HELP" and len(args) == 2:
        reply_help(s, c, b"DEAD")
    elif word in DEAD_WORDS:
        raise wrong(b"DEAD %s takes %s" % (word, DEAD_WORDS[word]))
    else:
        raise wrong(b"DEAD takes LIST, SHOW, STAT, REPLAY, PURGE or HELP")


def dead_list(s: Server, c: Client, args: list[bytes]) -> None:
    """DEAD LIST queue [cursor] [COUNT n] [REASON glob] [CAUSE c] [TASK glob] [SINCE ms] (W12.1)."""
    chosen = selection(s, args, 3, False)
    letters = letters_named(s, c, args[2], chosen.cursor, [])
    rows: list[object] = []
    for letter in selected(s.n, letters, chosen):
        rows.append(row_of(c, letter))
    s.n.work += chosen.count
    cursor = 0 if letters.is_last(s.n, chosen.cursor) else chosen.cursor
    c.reply([b"%d" % int(cursor), rows])


def letters_named(s: Server, c: Client, name: bytes, cursor: i64, ids: list[bytes]) -> Letters:
    """[T48] The dead letters of that name. Those of a tube are at its leader (T48.15): raises
    TubeError, unless the queue of that name has some here.
    """
    n = s.n
    check_queue(s, name)
    tube = tube_of_letters(n, name)
    if len(tube) == 0 or not c.sees(tube):
        return Letters(name, b"")
    if cursor < OF_TUBE and name in n.life.letters:
        try:
            check_queue(s, tube)
        except TubeError:
            check_tasks(s, ids, 0, 1)  # those of the tube are not overlooked
            return Letters(name, b"")
    check_queue(s, tube)
    return Letters(name, tube)


def selected(n: Node, letters: Letters, chosen: Selection) -> list[Letter]:
    """[W12] Those of the next letters that are meant; the cursor is then at the last one seen.

    It ends earlier when the globs have had the work of a turn (W12.9).
    """
    found: list[Letter] = []
    for letter in letters.after(n, chosen.cursor, chosen.count):
        chosen.cursor = letter.cursor
        chosen.seen += 1
        if chosen.means(n, letter):
            found.append(letter)
        if chosen.room <= 0:
            break
    return found


def row_of(c: Client, letter: Letter) -> list[object]:
    """One row of the list."""
    job, life = letter.job, letter.life
    last = life.last_failure()
    first_ms = life.first.at_ms if life.first is not None else 0
    return [
        job.id,
        c.named(life.origin),
        task_of(life.headers),
        int(life.failed),
        life.dead_cause,
        last.reason,
        int(first_ms),
        int(last.at_ms),
    ]


def dead_show(s: Server, c: Client, args: list[bytes]) -> None:
    """DEAD SHOW id: all of one dead letter (W12.2)."""
    check_ids(s, args, 2)
    check_tasks(s, args, 2, 1)  # T48.15
    letter = letter_of(s.n, args[2])
    if letter is None:
        raise ArgError(NOT_DEAD)
    job, life = letter.job, letter.life
    last = life.last_failure()
    first = life.first
    fields: dict[str, object] = {
        "id": job.id,
        "queue": c.named(job.queue),
        "origin": c.named(life.origin),
        "task": task_of(life.headers),
        "attempts": int(life.failed),
        "of": int(life.terms.attempts),
        "crashes": int(life.crashes),
        "starts": int(life.starts),
        "replays": int(life.replays),
        "cause": life.dead_cause,
        "reason": last.reason,
        "detail": detail_of(s.n, job, last),
        "worker": c.named(last.worker),
        "added-ms": int(job.ctime_ns // 1_000_000),
        "first-failure-ms": int(first.at_ms) if first is not None else 0,
        "first-reason": first.reason if first is not None else b"",
        "last-failure-ms": int(last.at_ms),
        "dead-ms": int(life.dead_ms),
        "ends-ms": int(job.expire_ms),
        "headers": header_pairs(life.headers),
        "body": job.body,
    }
    c.reply(flat(fields))


def dead_stat(s: Server, c: Client, queue: bytes) -> None:
    """DEAD STAT queue: count by cause and reason, the greatest first, 1000 at most (W12.3)."""
    begin(s, c, Counts(s, c, letters_named(s, c, queue, 0, [])))


@final
class Counts(LongCommand):
    """[W12] DEAD STAT: the most frequent reasons, found in slices."""

    def __init__(self, s: Server, c: Client, letters: Letters) -> None:
        super().__init__(c)
        self.s = s
        self.client = c
        self.letters = letters
        self.keys: list[tuple[bytes, bytes]] = []
        self.at: i64 = -1  # -1: not started
        self.found: list[tuple[int, bytes, bytes]] = []  # in order, the greatest count first

    def step(self, room: i64) -> bool:
        """Look at the next reasons; keep those that are the most frequent."""
        n = self.s.n
        reasons = self.letters.reasons(n)
        if self.at < 0:
            self.at = 0
            self.keys = list({key: None for found in reasons for key in found})
            n.work += len(self.keys) // COPIED
        size: i64 = len(self.keys)
        at, begin = self.at, self.at
        end = min(size, at + room * LOOKS)
        while at < end:
            key = self.keys[at]
            at += 1
            count: i64 = 0
            for found in reasons:
                count += found.get(key, 0)
            if count > 0 and self.gets_place((-count, key[0], key[1])):
                end = max(at, end - LOOKS)
                n.work += 1
        n.work += (at - begin) // LOOKS
        self.at = at
        return at == size

    def gets_place(self, row: tuple[int, bytes, bytes]) -> bool:
        """Put the row in its place, if it is one of the first; the last one then makes room."""
        found = self.found
        if len(found) == ROWS_MAX:
            if row > found[-1]:
                return False
            found.pop()
        insort(found, row)
        return True

    def tell(self) -> None:
        """Reply with the rows, the greatest first."""
        rows: list[object] = []
        for count, cause, reason in self.found:
            rows.append([cause, reason, -count])
        self.s.n.work += len(rows)
        self.client.reply(rows)


def dead_change(s: Server, c: Client, args: list[bytes], is_replay: bool) -> None:
    """DEAD REPLAY | PURGE queue ALL | IDS id ... | filters (W12.4, W12.5)."""
    n = s.n
    chosen = selection(s, args, 3, True)
    named = letters_named(s, c, args[2], chosen.cursor, chosen.ids)
    needs_tube(s, named)
    to = n.queues.get(chosen.to) if len(chosen.to) > 0 else None
    if to is not None and to.policy is not None:
        raise ArgError(TUBE_LETTERS % chosen.to)  # W12.4
    letters: list[Letter] = []
    if len(chosen.ids) > 0:
        for id in chosen.ids:
            letter = letter_of(n, id)
            if letter is not None and named.has(letter):
                letters.append(letter)
        chosen.seen = len(chosen.ids)
    else:
        letters = selected(n, named, chosen)
    if is_replay and len(chosen.to) == 0 and not c.sees_all():
        letters = [one for one in letters if c.sees(one.life.origin)]  # N2.5
    if is_replay and len(chosen.to) == 0 and len(letters) > 0:
        first = tube_now(n, letters[0])
        letters = [one for one in letters if len(tube_now(n, one)) == 0]
        is_end = len(chosen.ids) > 0 or named.is_last(n, chosen.cursor)
        if len(letters) == 0 and is_end:
            raise ArgError(NEEDS_QUEUE % (first, args[2]))  # T48.12
    if chosen.rate > 0 and not is_replay:
        raise wrong(b"RATE is an option of DEAD REPLAY")
    n.work += chosen.seen
    begin(s, c, LetterChore(s, c, named, chosen, letters, is_replay))


def tube_now(n: Node, letter: Letter) -> bytes:
    """The tube that the queue of the letter is now (T48.12); empty: it is none."""
    origin = n.queues.get(letter.life.origin)
    if origin is None or origin.policy is None or isinstance(letter.job, Task):
        return b""
    return origin.name


def needs_tube(s: Server, letters: Letters) -> None:
    """Those of a tube are changed at its leader, and so that SYNC nodes get it (T48.15). Raises
    TubeError.
    """
    for name in (letters.queue, letters.tube):
        q = s.n.queues.get(name)
        if q is not None and isinstance(q, Tube):
            needs_copies(s.n, tubes_of(s.n), q)


def check_key(s: Server, letter: Letter) -> None:
    """The only letter that was named stays dead: is that for its unique key (T48.13)?"""
    job = letter.job
    holder = policy_of(s.n).key_holder(s.n, job) if isinstance(job, Task) else b""
    if len(holder) > 0:
        raise ArgError(core_words(Refusal(DUPLICATE, (holder,))))


@final
class LetterChore(LongCommand):
    """[W12] DEAD REPLAY and PURGE in slices; with RATE some letters now, others in time (W12.7)."""

    def __init__(
        self,
        s: Server,
        c: Client,
        named: Letters,
        chosen: Selection,
        letters: list[Letter],
        is_replay: bool,
    ) -> None:
        super().__init__(c)
        self.is_paced = chosen.rate > 0
        self.goes_on = chosen.rate == 0
        self.s = s
        self.client = c
        self.named = named
        self.is_replay = is_replay
        self.to = chosen.to
        self.rate = chosen.rate
        self.seen = chosen.seen
        self.by_ids = len(chosen.ids) > 0
        self.left: list[tuple[bytes, int]] = []  # id and serial, the next one last
        self.cursor = chosen.cursor
        for letter in letters:
            self.left.append((letter.job.id, int(letter.life.serial)))
        self.left.reverse()
        is_one = len(chosen.ids) == len(letters) == 1
        self.only: Letter | None = letters[0] if is_one else None  # the letter that was named
        self.done: i64 = 0
        self.start_ms = s.n.now_ms  # of the first one, had all gone without a stop

    def step(self, room: i64) -> bool:
        """Change the next letters, with RATE those that are due.

        With RATE it rests until the next one may follow, also after the last one.
        """
        needs_tube(self.s, self.named)
        if self.rate == 0:
            self.change_some(room, self.done + len(self.left))
            if len(self.left) > 0:
                return False
            if self.is_replay and self.done == 0 and self.only is not None:
                check_key(self.s, self.only)
            return True
        now_ms = self.s.n.now_ms
        due = (now_ms - self.start_ms) * self.rate // 1000 + 1
        most = self.done + self.rate * LATE_MS // 1000 + 1
        if due > most:  # the node was late: what it missed is not made up for
            self.start_ms += (due - most) * 1000 // self.rate
            due = most
        self.change_some(room, due)
        if len(self.left) == 0 and self.is_last():
            return True
        next_ms = self.start_ms + (self.done * 1000 + self.rate - 1) // self.rate
        if len(self.left) == 0 and next_ms <= now_ms:
            return True
        if self.done >= due or len(self.left) == 0:
            self.wake_ms = max(next_ms, now_ms + PACE_MS)
        return False

    def change_some(self, room: i64, due: i64) -> None:
        """Change the next letters, for so many units, until so many are done."""
        n = self.s.n
        left = room
        while len(self.left) > 0 and self.done < due and left > 0:
            id, serial = self.left.pop()
            left -= LETTER_WORK
            letter = letter_of(n, id)
            if letter is None or letter.life.serial != i64(serial):
                continue
            if replay(n, letter, self.to) if self.is_replay else purge(n, letter):
                self.done += 1
        n.work += room - left

    def is_last(self) -> bool:
        """Whether nothing is left for another call."""
        return self.by_ids or self.named.is_last(self.s.n, self.cursor)

    def tell(self) -> None:
        """The reply of W12.5."""
        cursor = b"0" if self.is_last() else b"%d" % int(self.cursor)
        self.client.reply([cursor, int(self.done), int(self.seen)])
