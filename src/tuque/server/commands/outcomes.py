"""RESULT and WAITJOB, which may wait, and DEAD (SPEC W9, W12)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.life.asking import CANCEL, LOOK, ask, may_ask
from tuque.core.life.change import on_cancel
from tuque.core.life.letters import (
    LOOK_MAX,
    Letter,
    is_last,
    last_of,
    letter_of,
    letters_from,
    purge,
    replay,
)
from tuque.core.life.outcomes import is_settled, outcome_of, result_fields, watch
from tuque.core.model.refusal import NOJOB
from tuque.core.node.node import JOB_ENDED, Wake
from tuque.core.state.lives import Change
from tuque.server.commands.by_id import check_ids, check_room
from tuque.server.commands.views import flat
from tuque.server.config.patterns import matches
from tuque.server.replies.core_words import WORDS, core_words
from tuque.server.state.client import REPLY_OFF, REPLY_SKIPPING, Client, Wanted
from tuque.server.state.state import Server
from tuque.wire.args import SYNTAX, ArgError, header_pairs, ranged, timeout_ms

TUBE_LETTERS: Final = b"ERR '%s' is a tube: dead letters are replayed in queues"
NOT_DEAD: Final = b"NOJOB Job is no dead letter here"
BAD_COUNT: Final = b"ERR COUNT must be a number from 1 to 1000"
BAD_CURSOR: Final = b"ERR invalid cursor"
BAD_SINCE: Final = b"ERR SINCE must be an instant in ms"
BAD_NEEDED: Final = b"ERR COUNT must be a number from 1 to the number of ids"
TASK_HEADER: Final = b"tuque-task"
GLOB_MAX: Final = 128
LONG_REASON: Final = b"ERR REASON must be at most 2048 bytes"
REASON_MAX: Final = 2_048
ASK_MS: Final = 1_000  # other nodes answer within it
BECAME: Final[list[object]] = [None, b"ended", b"flagged", b"over"]
BIG: Final = (1 << 62) - 1


def cmd_result(s: Server, c: Client, args: list[bytes]) -> None:
    """[W9] RESULT id [WAIT ms] (W9.1)."""
    words = args[:2]
    check_ids(s, words, 1)
    wait_ms: i64 = -1
    if len(args) > 2:
        if len(args) != 4 or args[2].upper() != b"WAIT":
            raise ArgError(SYNTAX)
        wait_ms = timeout_ms(args[3])
    id = words[1]
    if may_ask(s.n, id):
        is_now = wait_ms < 0
        block(s, c, Wanted([id], 0, is_now), ASK_MS if is_now else wait_ms)
        ask_for(s, c, LOOK)  # W15.1
    elif id not in s.n.jobs or is_settled(s.n, id):
        put_result(s, c, id)
    elif wait_ms < 0:
        if s.n.life.known(id) is None:
            put_result(s, c, id)
        else:
            block(s, c, Wanted([id], 0), ASK_MS)  # W14.13
    else:
        block(s, c, Wanted([id], 0), wait_ms)


def cmd_waitjob(s: Server, c: Client, args: list[bytes]) -> None:
    """[W9] WAITJOB ms id [id ...] [COUNT n] (W9.2)."""
    wait_ms = timeout_ms(args[1])
    ids = args[2:]
    needed: i64 = len(ids)
    if len(ids) > 2 and ids[len(ids) - 2].upper() == b"COUNT":
        word = ids[len(ids) - 1]
        ids = ids[: len(ids) - 2]
        needed = ranged(word, 1, len(ids), BAD_NEEDED)
    check_ids(s, ids, 0)
    wanted = Wanted(ids, needed)
    if count_ended(s, wanted) >= needed:
        put_ended(s, c, wanted)
        return
    block(s, c, wanted, wait_ms)
    ask_for(s, c, LOOK)


def block(s: Server, c: Client, wanted: Wanted, wait_ms: i64) -> None:
    """The client waits."""
    if c.reply_mode == REPLY_OFF or c.reply_mode == REPLY_SKIPPING:
        return
    check_room(s.n, [])
    c.is_blocked = True
    s.blocked += 1
    c.wanted = wanted
    watch(s.n, c.number, wanted.ids, s.n.now_ms + wait_ms if wait_ms > 0 else 0)


def ask_for(s: Server, c: Client, what: i64, reason: bytes = b"") -> None:
    """[W15] Ask other nodes about the jobs that the client waits for and this node lacks."""
    if c.wanted is not None:
        for id in c.wanted.ids:
            if may_ask(s.n, id):
                ask(s.n, id, what, reason)


def has_answers(s: Server, wanted: Wanted) -> bool:
    """Whether other nodes have answered about all jobs that were asked for (W15.3)."""
    for id in wanted.ids:
        change = wanted.changes.get(id)
        if change is not None and not change.is_over:
            return False
        asking = s.n.life.asking.get(id)
        if change is None and asking is not None and not asking.is_told:
            return False
    return True


def cmd_cancel(s: Server, c: Client, args: list[bytes]) -> None:
    """[W8] CANCEL [REASON text] id [id ...]: what became of each (W8.4)."""
    first: i64 = 1
    reason = b""
    if args[1].upper() == b"REASON":
        if len(args) < 4:
            raise ArgError(SYNTAX)
        reason = args[2]
        if len(reason) > REASON_MAX:
            raise ArgError(LONG_REASON)
        first = 3
    check_ids(s, args, first)
    wanted = Wanted(args[first:], 0, True)
    s.n.work += len(wanted.ids) - 1
    rows: list[object] = []
    is_asking = False
    for id in wanted.ids:
        if may_ask(s.n, id):
            is_asking = True
            rows.append(None)
        else:
            became, refused, change = on_cancel(s.n, id, reason)
            if refused is not None:
                raise ArgError(core_words(refused))
            if change is not None:
                is_asking = True
                wanted.changes[id] = change
            rows.append(BECAME[became] if change is None else None)
    if not is_asking:
        c.reply(rows)
        return
    wanted.rows = rows
    block(s, c, wanted, ASK_MS)
    ask_for(s, c, CANCEL, reason)


def wait_for_update(s: Server, c: Client, id: bytes, change: Change) -> None:
    """[W10] The client of an UPDATEJOB waits for the holders (W10.3)."""
    wanted = Wanted([id], 0, True)
    wanted.changes[id] = change
    block(s, c, wanted, 0)


def put_updated(c: Client, wanted: Wanted) -> None:
    """Reply to UPDATEJOB."""
    for change in wanted.changes.values():
        if change.refused is not None:
            c.error(core_words(change.refused))
        else:
            c.ok()


def put_cancelled(s: Server, c: Client, wanted: Wanted, rows: list[object]) -> None:
    """Reply to CANCEL with what other nodes said."""
    told: list[object] = []
    for i in range(len(rows)):
        id = wanted.ids[i]
        change = wanted.changes.get(id)
        asking = s.n.life.asking.get(id) if rows[i] is None and change is None else None
        if change is not None:
            told.append(BECAME[change.became])
        else:
            told.append(rows[i] if asking is None else BECAME[asking.became])
    c.reply(told)


def tell_ended(s: Server, c: Client, wake: Wake) -> bool:
    """[W9] A job that the client waits for has ended; whether its wait is over."""
    wanted = c.wanted
    assert wanted is not None
    if wake.why == JOB_ENDED and not is_over(s, wanted):
        if wanted.rows is None:
            ask_for(s, c, LOOK)
        return False
    c.wanted = None
    rows = wanted.rows
    if rows is not None:
        put_cancelled(s, c, wanted, rows)
    elif len(wanted.changes) > 0:
        put_updated(c, wanted)
    elif wanted.needed == 0:
        put_result(s, c, wanted.ids[0])
    else:
        put_ended(s, c, wanted)
    s.n.life.unwatch(c.number)
    return True


def is_over(s: Server, wanted: Wanted) -> bool:
    """Whether the client has waited enough."""
    if wanted.is_now:
        return has_answers(s, wanted)
    return count_ended(s, wanted) >= max(1, wanted.needed)


def count_ended(s: Server, wanted: Wanted) -> i64:
    """How many of the jobs have ended, or are dead letters (W9.2)."""
    count: i64 = 0
    for id in wanted.ids:
        if is_over_for(s, id):
            count += 1
    return count


def is_over_for(s: Server, id: bytes) -> bool:
    """Whether a wait for the job is over; not before other nodes were asked (W15.1)."""
    if id not in s.n.life.asking and may_ask(s.n, id):
        return False
    return is_settled(s.n, id)


def put_result(s: Server, c: Client, id: bytes) -> None:
    """Reply to RESULT."""
    fields, refused = result_fields(s.n, id)
    if fields is None:
        c.error(WORDS[NOJOB] if refused is None else core_words(refused))
    else:
        c.reply(flat(fields))


def put_ended(s: Server, c: Client, wanted: Wanted) -> None:
    """Reply to WAITJOB: id and outcome of those that ended."""
    rows: list[object] = []
    for id in wanted.ids:
        if is_over_for(s, id):
            word = outcome_of(s.n, id)
            rows.append([id, word if len(word) > 0 else b"dead"])
    c.reply(rows)


# ---- dead letters


@final
class Selection:
    """The filters of DEAD LIST, REPLAY and PURGE (W12.1)."""

    def __init__(self) -> None:
        self.cursor: i64 = 0
        self.count: i64 = 100
        self.reason = ""
        self.task = ""
        self.cause = b""
        self.since_ms: i64 = 0
        self.ids: list[bytes] = []
        self.to = b""
        self.is_said = False  # ALL, IDS or a filter

    def means(self, letter: Letter) -> bool:
        """Whether the letter is selected."""
        life = letter.life
        if life.dead_ms < self.since_ms:
            return False
        if len(self.cause) > 0 and life.dead_cause != self.cause:
            return False
        if self.reason != "" and not matches(self.reason, shown(last_of(life).reason)):
            return False
        return self.task == "" or matches(self.task, shown(task_of(life.headers)))


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
    i = first
    while i < len(args):
        word = args[i].upper()
        if is_change and word == b"ALL":
            chosen.is_said = True
            i += 1
            continue
        if is_change and word == b"IDS":
            chosen.ids = args[i + 1 :]
            check_ids(s, chosen.ids, 0)
            chosen.is_said = True
            if len(chosen.ids) == 0:
                raise ArgError(SYNTAX)
            return chosen
        if not is_change and i == first and word.isdigit():
            chosen.cursor = ranged(word, 0, BIG, BAD_CURSOR)
            i += 1
            continue
        if i + 1 == len(args):
            raise ArgError(SYNTAX)
        choose(chosen, word, args[i + 1], is_change)
        i += 2
    if is_change and not chosen.is_said:
        raise ArgError(SYNTAX)
    return chosen


def choose(chosen: Selection, word: bytes, value: bytes, is_change: bool) -> None:
    """One filter."""
    if word == b"COUNT":
        chosen.count = ranged(value, 1, LOOK_MAX, BAD_COUNT)
    elif word == b"CURSOR" and is_change:
        chosen.cursor = ranged(value, 0, BIG, BAD_CURSOR)
    elif word == b"QUEUE" and is_change:
        chosen.to = value
    elif word in (b"REASON", b"TASK", b"CAUSE", b"SINCE"):
        chosen.is_said = True
        if word == b"REASON":
            chosen.reason = shown(value[:GLOB_MAX])
        elif word == b"TASK":
            chosen.task = shown(value[:GLOB_MAX])
        elif word == b"CAUSE":
            chosen.cause = value
        else:
            chosen.since_ms = ranged(value, 0, BIG, BAD_SINCE)
    else:
        raise ArgError(SYNTAX)


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
    else:
        raise ArgError(SYNTAX)


def dead_list(s: Server, c: Client, args: list[bytes]) -> None:
    """DEAD LIST queue [cursor] [COUNT n] [REASON glob] [CAUSE c] [TASK glob] [SINCE ms] (W12.1)."""
    chosen = selection(s, args, 3, False)
    rows: list[object] = []
    cursor = chosen.cursor
    for letter in letters_from(s.n, args[2], cursor, chosen.count):
        cursor = letter.life.serial
        if chosen.means(letter):
            rows.append(row_of(letter))
    s.n.work += chosen.count
    if is_last(s.n, args[2], cursor):
        cursor = 0
    c.reply([b"%d" % int(cursor), rows])


def row_of(letter: Letter) -> list[object]:
    """One row of the list."""
    job, life = letter.job, letter.life
    last = last_of(life)
    first_ms = life.first.at_ms if life.first is not None else 0
    return [
        job.id,
        life.origin,
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
    letter = letter_of(s.n, args[2])
    if letter is None:
        raise ArgError(NOT_DEAD)
    job, life = letter.job, letter.life
    last = last_of(life)
    first = life.first
    fields: dict[str, object] = {
        "id": job.id,
        "queue": job.queue,
        "origin": life.origin,
        "task": task_of(life.headers),
        "attempts": int(life.failed),
        "of": int(life.terms.attempts),
        "starts": int(life.starts),
        "replays": int(life.replays),
        "cause": life.dead_cause,
        "reason": last.reason,
        "detail": last.detail,
        "worker": last.worker,
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
    letters = s.n.life.letters.get(queue)
    counts: list[tuple[int, bytes, bytes]] = []
    if letters is not None:
        for (cause, reason), count in letters.reasons.items():
            counts.append((-count, cause, reason))
    s.n.work += len(counts)
    counts.sort()
    rows: list[object] = []
    for count, cause, reason in counts[:LOOK_MAX]:
        rows.append([cause, reason, -count])
    c.reply(rows)


def dead_change(s: Server, c: Client, args: list[bytes], is_replay: bool) -> None:
    """DEAD REPLAY | PURGE queue ALL | IDS id ... | filters (W12.4, W12.5)."""
    n = s.n
    chosen = selection(s, args, 3, True)
    to = n.queues.get(chosen.to) if len(chosen.to) > 0 else None
    if to is not None and to.policy is not None:
        raise ArgError(TUBE_LETTERS % chosen.to)  # W12.4
    done = 0
    cursor = chosen.cursor
    if len(chosen.ids) > 0:
        letters: list[Letter] = []
        for id in chosen.ids:
            letter = letter_of(n, id)
            if letter is not None and letter.job.queue == args[2]:
                letters.append(letter)
        seen = len(chosen.ids)
    else:
        letters = letters_from(n, args[2], cursor, LOOK_MAX)
        seen = len(letters)
    for letter in letters:
        cursor = letter.life.serial
        if len(chosen.ids) == 0 and not chosen.means(letter):
            continue
        if replay(n, letter, chosen.to) if is_replay else purge(n, letter):
            done += 1
    n.work += seen + 2 * done
    if len(chosen.ids) > 0 or is_last(n, args[2], cursor):
        cursor = 0
    c.reply([b"%d" % int(cursor), done, seen])
