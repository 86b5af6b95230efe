"""SCHEDULE: jobs at times, kept by the leader of their tube, and their options (SPEC T46)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tuque.core.copies.add import letters_refusal
from tuque.core.model.job import AddSpec
from tuque.core.model.task import FAR, Task
from tuque.core.model.work import NO_TERMS, Life
from tuque.core.msgs.entries import CRON_MAX, EVERY_MAX_MS, KEYS_MAX, NAME_MAX, ZONE_MAX
from tuque.server.access.tenant import check_growth as check_bytes
from tuque.server.commands.firing import (
    MISSED_WORDS,
    NoInstant,
    check_zone,
    look,
    next_after,
    why_waits,
)
from tuque.server.commands.jobs import DISKFULL
from tuque.server.replies.errors import LEAVING, core_words, reply_help
from tuque.server.replies.redirects import tube_named
from tuque.server.state.client import Client
from tuque.server.state.server import Server
from tuque.tubes import schedules
from tuque.tubes.entries.keys import JobEntry, opened
from tuque.tubes.entries.schedule import (
    ALL,
    ONE,
    SKIP,
    ScheduleEntry,
)
from tuque.tubes.log.leader import needs_home
from tuque.tubes.model.options import PRI_DEFAULT
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policy import tubes_of
from tuque.tubes.work.transitions import work_for
from tuque.wire.commands.add_options import KEY_WORDS, WORK_WORDS, Taker, addjob_options
from tuque.wire.commands.arguments import (
    ArgError,
    header_pairs,
    not_this,
    ranged,
    refused,
    some_ms,
    twice,
    wrong,
)
from tuque.wire.commands.arguments import wrong_option as wrong_word
from tuque.wire.proto.resp import Status

AT_MOST_ONCE: Final = b"ERR RETRY must be 1 or more: the tasks of a tube come back"
LONG: Final = b"ERR the options of a job have %d bytes: at most %d"

OWN_WORDS: Final = (b"CRON", b"EVERY", b"TZ", b"MISSED")
JOB_WORDS: Final = (b"RETRY", b"TTL", b"PRI", *KEY_WORDS, *WORK_WORDS)
ADD: Final = Taker(b"SCHEDULE ADD", JOB_WORDS, OWN_WORDS, OWN_WORDS + JOB_WORDS)
MISSED: Final[dict[bytes, int]] = {b"SKIP": SKIP, b"ONE": ONE, b"ALL": ALL}
DONE: Final = ("ADDED", "UNCHANGED", "REPLACED")
NEEDS: Final[dict[bytes, bytes]] = {
    b"ADD": b"a tube, a name, CRON or EVERY, and at last the body",
    b"LIST": b"a tube",
    b"SHOW": b"a tube and a name",
    b"PAUSE": b"a tube and a name",
    b"RESUME": b"a tube and a name",
    b"RUN": b"a tube and a name",
    b"DROP": b"a tube and a name",
}
BAD_NAME: Final = b"ERR the name of a schedule has 1 to %d bytes" % NAME_MAX
BAD_EVERY: Final = b"ERR EVERY must be a number of seconds from 1 to %d" % (EVERY_MAX_MS // 1000)
LONG_CRON: Final = b"ERR CRON has 1 to %d bytes" % CRON_MAX
LONG_ZONE: Final = b"ERR TZ has 1 to %d bytes" % ZONE_MAX
NEVER: Final = b"ERR CRON '%s' has no instant to come"
BAD_COUNT: Final = b"ERR COUNT must be a number from 1 to 100"
BAD_CURSOR: Final = b"ERR the cursor must be a number that a page replied with"
ONLY_KEEP: Final = b"ERR ON must be keep in SCHEDULE ADD, not '%s'"
ROWS_MAX: Final = 100
ROW_WORK: Final = 50  # units for a schedule and its next instants
EVERY_LEAST_MS: Final = 1_000


# ---- Options of jobs that a tube makes: of schedules, and callbacks (SPEC T46, T51)
#
# They are words of ADDJOB. What they say travels with the schedule, or the group, as bytes that a
# job carries.


def packed_options(s: Server, spec: AddSpec) -> bytes:
    """[T46, T51] Keys and life of the jobs, as they will carry them (T46.2, T51.1)."""
    if spec.retry_s == 0:
        raise ArgError(AT_MOST_ONCE)
    refused = letters_refusal(s.n, spec)
    if refused is not None:
        raise ArgError(core_words(refused))
    work = work_for(spec)
    packed = spec.keys if work is None else JobEntry(spec.keys, work).packed(0)
    if len(packed) > KEYS_MAX:
        raise ArgError(LONG % (len(packed), KEYS_MAX))
    return packed


def work_in(packed: bytes) -> Life | None:
    """The work in the bytes that a schedule or a group has for its jobs; None: they have none."""
    entry = opened(packed) if len(packed) > 0 else None
    return None if entry is None else entry.work


def shown_work(c: Client, work: Life | None) -> dict[str, object]:
    """[T46, T51] The options about the work of the jobs that were given (T46.4, T51.3)."""
    found: dict[str, object] = {}
    if work is None:
        return found
    terms = work.terms
    if terms.attempts > 0:
        found["attempts"] = int(terms.attempts)
    waits = (terms.first_ms, terms.max_ms, terms.jitter)
    if waits != (NO_TERMS.first_ms, NO_TERMS.max_ms, NO_TERMS.jitter):
        found["backoff"] = b" ".join([in_seconds(one) for one in waits])
    if len(terms.dead) > 0:
        found["dead"] = c.named(terms.dead)
    if terms.keep_ms > 0:
        found["keep-ms"] = int(terms.keep_ms)
    if terms.keeps_body:
        found["keep-body"] = 1
    if terms.limit_ms > 0:
        found["time-limit-ms"] = int(terms.limit_ms)
    if terms.drops:
        found["on-expiry"] = b"drop"
    if len(work.headers) > 0:
        found["headers"] = header_pairs(work.headers)
    return found


def in_seconds(ms: i64) -> bytes:
    """The time as an option says it."""
    return b"%d" % (ms // 1000) + (b".%03d" % (ms % 1000)).rstrip(b".0")


# ---- The command (SPEC T46)


def cmd_schedule(s: Server, c: Client, args: list[bytes]) -> None:
    """[T46] SCHEDULE ADD | LIST | SHOW | PAUSE | RESUME | RUN | DROP."""
    word = args[1].upper()
    if word == b"HELP" and len(args) == 2:
        reply_help(s, c, b"SCHEDULE")
        return
    if word not in NEEDS:
        raise wrong(b"SCHEDULE takes ADD, LIST, SHOW, PAUSE, RESUME, RUN, DROP or HELP")
    least, most = {b"ADD": (7, 160), b"LIST": (3, 6)}.get(word, (4, 4))
    if not least <= len(args) <= most:
        raise wrong(b"SCHEDULE %s takes %s" % (word, NEEDS[word]))
    t = tubes_of(s.n)
    tube = tube_named(s.n, t, args[2])
    needs_home(s.n, t, tube)
    if word == b"ADD":
        add(s, c, t, tube, args)
    elif word == b"LIST":
        show_all(s, c, t, tube, args[3:])
    elif word == b"SHOW":
        c.reply(shown(s, c, t, tube, schedules.schedule_of(tube, args[3]), True))
    elif word == b"RUN":
        check_growth(s)
        check_bytes(s, c.user, None, schedules.schedule_of(tube, args[3]).body)  # N11.2
        job = schedules.run_now(s.n, t, tube, args[3])
        c.reply(None if job is None else job.id)
    elif word == b"DROP":
        c.reply(int(schedules.drop_schedule(s.n, t, tube, args[3])))
    else:
        pause(s, c, t, tube, args[3], word == b"PAUSE")


def add(s: Server, c: Client, t: Tubes, tube: Tube, args: list[bytes]) -> None:
    """ADD tube name CRON text [TZ zone] | EVERY seconds [MISSED policy] [job options] body."""
    plan = planned(s, args)
    check_growth(s)
    try:
        if next_after(plan, int(s.n.now_ms)) == FAR:
            raise ArgError(NEVER % plan.cron)
    except NoInstant as why:
        raise ArgError(f"ERR CRON: {why}".encode()) from None
    s.n.work += ROW_WORK
    done = int(schedules.add_schedule(s.n, t, tube, plan, args[-1]))
    if done != schedules.KEPT:
        look(s, t, tube, schedules.schedule_of(tube, plan.name))
    c.reply(Status(DONE[done]))


def planned(s: Server, args: list[bytes]) -> ScheduleEntry:
    """The plan that the words of ADD describe."""
    plan = ScheduleEntry()
    plan.name = args[3]
    plan.pri = PRI_DEFAULT
    if not 1 <= len(plan.name) <= NAME_MAX:
        raise ArgError(BAD_NAME)
    seen: dict[bytes, None] = {}
    i = 4
    end = len(args) - 1  # the body is last
    while i < end and args[i].upper() in OWN_WORDS:
        word = args[i].upper()
        if i + 1 == end:
            raise wrong(b"%s needs a value" % word)
        if word in seen:
            raise twice(word)
        seen[word] = None
        set_word(plan, word, args[i + 1])
        i += 2
    if (b"CRON" in seen) == (b"EVERY" in seen):
        raise wrong(b"SCHEDULE ADD needs either CRON or EVERY")
    if b"TZ" in seen and b"CRON" not in seen:
        raise wrong(b"TZ needs CRON")
    set_job(s, plan, args[i:end])
    return plan


def set_word(plan: ScheduleEntry, word: bytes, value: bytes) -> None:
    """One word of the schedule itself."""
    if word == b"CRON":
        if not 1 <= len(value) <= CRON_MAX:
            raise ArgError(LONG_CRON)
        plan.cron = value
    elif word == b"TZ":
        if not 1 <= len(value) <= ZONE_MAX:
            raise ArgError(LONG_ZONE)
        try:
            check_zone(value)
        except NoInstant as why:
            raise ArgError(f"ERR TZ: {why}".encode()) from None
        plan.zone = value
    elif word == b"EVERY":
        plan.every_ms = some_ms(value)
        if not EVERY_LEAST_MS <= plan.every_ms <= EVERY_MAX_MS:
            raise not_this(BAD_EVERY, value)
    else:
        policy = MISSED.get(value.upper())
        if policy is None:
            raise refused(word, b"skip, one or all", value)
        plan.missed = policy


def set_job(s: Server, plan: ScheduleEntry, words: list[bytes]) -> None:
    """The options of the jobs, which are those of ADDJOB to a tube of type tasks (T46.2)."""
    spec = addjob_options(words, 0, ADD)
    if spec.rejects_same or spec.replaces_same:
        raise ArgError(ONLY_KEEP % (b"reject" if spec.rejects_same else b"replace"))
    plan.keys = packed_options(s, spec)
    if spec.has_pri:
        plan.pri = spec.pri
    if spec.ttl_s > 0:
        plan.ttl_ms = spec.ttl_ms
    if spec.retry_s > 0:
        plan.ttr_ms = spec.retry_s * 1000


def pause(s: Server, c: Client, t: Tubes, tube: Tube, name: bytes, is_paused: bool) -> None:
    """PAUSE and RESUME tube name: 1 if that changed something."""
    is_changed = schedules.set_paused(s.n, t, tube, name, is_paused)
    if is_changed:
        look(s, t, tube, schedules.schedule_of(tube, name))
    c.reply(int(is_changed))


def show_all(s: Server, c: Client, t: Tubes, tube: Tube, words: list[bytes]) -> None:
    """LIST tube [cursor] [COUNT n]: by the order in which they were added."""
    cursor = 0
    count = ROWS_MAX
    if len(words) in (1, 3):
        cursor = int(ranged(words[0], 0, FAR, BAD_CURSOR))
        words = words[1:]
    if len(words) == 2 and words[0].upper() == b"COUNT":
        count = int(ranged(words[1], 1, ROWS_MAX, BAD_COUNT))
    elif len(words) > 0:
        raise wrong_word(b"SCHEDULE LIST", words[0], (b"COUNT",))
    numbers = sorted(schedules.driver_of(tube).plans.by_name.values())
    s.n.work += len(numbers) // 10 + ROW_WORK * min(count, len(numbers))
    found = [number for number in numbers if number >= cursor]
    rows: list[object] = [shown(s, c, t, tube, tube.tasks[one], False) for one in found[:count]]
    after = found[count] if len(found) > count else 0
    c.reply([b"%d" % after, rows])


def shown(
    s: Server, c: Client, t: Tubes, tube: Tube, task: Task, has_body: bool
) -> dict[str, object]:
    """A schedule, as names and values (T46.4)."""
    plan = schedules.words_of(task)
    next_ms = 0
    if not plan.is_paused:
        try:
            next_ms = next_after(plan, int(plan.noted_ms))
        except NoInstant:
            next_ms = 0
    found: dict[str, object] = {
        "name": plan.name,
        "queue": c.named(tube.name),
        "cron": plan.cron,
        "tz": (plan.zone or b"UTC") if plan.cron else b"",
        "every-ms": int(plan.every_ms),
        "missed": MISSED_WORDS[int(plan.missed)],
        "paused": int(plan.is_paused),
        "next-ms": 0 if next_ms == FAR else next_ms,
        "last-ms": int(plan.fired_ms),
        "fired": int(plan.fired),
        "late": int(plan.late),
        "waits": why_waits(s, t, tube, task),
        "id": task.id,
    }
    found.update(shown_work(c, work_in(plan.keys)))
    if has_body:
        found["body"] = task.body
    return found


def check_growth(s: Server) -> None:
    """Refuse what adds when the disk is short, as T15.6."""
    if s.is_disk_short():
        raise ArgError(DISKFULL)
    if s.is_parting():
        raise ArgError(LEAVING)
