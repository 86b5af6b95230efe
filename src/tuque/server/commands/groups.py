"""GROUP: jobs whose ends are awaited together, kept by the leader of a tube (SPEC T51)."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.job_id import of_url
from tuque.core.model.stats import tenant_of
from tuque.core.model.task import FAR, Task
from tuque.core.model.work import NO_TERMS, Terms
from tuque.core.msgs.packed import CHILDREN_MAX
from tuque.server.access.tenant import refusal
from tuque.server.commands.jobs import DISKFULL, check_forms
from tuque.server.commands.schedules import packed_options, shown_work, work_in
from tuque.server.replies.errors import LEAVING, reply_help
from tuque.server.replies.long_commands import begin
from tuque.server.replies.redirects import tube_named
from tuque.server.state.client import Client, LongCommand
from tuque.server.state.server import Server
from tuque.tubes import groups
from tuque.tubes.entries.group import (
    CONTINUE,
    POLICY_WORDS,
    STOP,
    WAIT,
    ChildEntry,
    GroupEntry,
)
from tuque.tubes.entries.keys import JobEntry
from tuque.tubes.log.leader import needs_home
from tuque.tubes.model.options import PRI_DEFAULT
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policy import tubes_of
from tuque.wire.commands.add_options import Taker, addjob_options
from tuque.wire.commands.arguments import (
    ArgError,
    not_this,
    ranged,
    refused,
    some_ms,
    twice,
    wrong,
)
from tuque.wire.commands.arguments import wrong_option as wrong_word

STATES: Final = ("open", "done", "failed", "cancelled")
CALLED: Final = "called"
DEAD: Final = "dead"  # of open children: those whose replay is awaited (T50.5)
CHILD_STATES: Final = (b"open", b"done", b"failed", b"failed")
BAD_FROM: Final = b"ERR the first index must be a number from 0 to %d" % CHILDREN_MAX
BAD_COUNT: Final = b"ERR COUNT must be a number from 1 to 1000"
BAD_CURSOR: Final = b"ERR the cursor must be a number that a page replied with"
OPTIONS: Final = (b"COUNT", b"STATE")
ROWS_MAX: Final = 1_000
LIST_MAX: Final = 100
ROW_WORK: Final = 10  # units for a row of LIST
COPIED: Final = 100  # numbers of groups that are sorted per unit of work
LOOKED_AT: Final = 1_000  # children, by one CHILDREN
PAGE_BYTES: Final = 1024 * 1024  # results of a page; one is always there
REASONS_BYTES: Final = 131_072  # of a page of CHILDREN

POLICIES: Final[dict[bytes, int]] = {b"STOP": STOP, b"WAIT": WAIT, b"CONTINUE": CONTINUE}
OWN_WORDS: Final = (b"ONFAIL", b"KEEP")
WORK_WORDS: Final = (b"ATTEMPTS", b"BACKOFF", b"DEAD", b"TIMELIMIT", b"HEADERS")
JOB_WORDS: Final = (b"RETRY", b"PRI", b"LIMIT", b"RATE", b"GROUP", b"WEIGHT", *WORK_WORDS)
CREATE: Final = Taker(b"GROUP CREATE", JOB_WORDS, OWN_WORDS, OWN_WORDS + JOB_WORDS)
NO_CHILD: Final = b"ERR %s is %s: the children of a group are jobs and tasks"
NO_CANCEL: Final = b"NOCANCEL"
KEEP_MS: Final = 86_400_000
KEEP_MAX_MS: Final = 366 * 86_400_000
NEEDS: Final[dict[bytes, bytes]] = {
    b"CREATE": b"a tube, the number of children, and at last THEN and a body, or neither",
    b"ADD": b"a tube, a group, perhaps NOCANCEL, and an index and an id of each child",
    b"SHOW": b"a tube and a group",
    b"RESULTS": b"a tube and a group",
    b"CHILDREN": b"a tube and a group",
    b"LIST": b"a tube",
    b"CANCEL": b"a tube and a group",
}
WORDS: Final[dict[bytes, tuple[int, int]]] = {
    b"CREATE": (4, 160),
    b"ADD": (6, 1_005),
    b"RESULTS": (4, 7),
    b"CHILDREN": (4, 9),
    b"LIST": (3, 8),
}
BAD_SIZE: Final = b"ERR a group has 1 to %d children" % CHILDREN_MAX
BAD_KEEP: Final = b"ERR KEEP must be a number of seconds from 1 to %d" % (KEEP_MAX_MS // 1000)
BAD_INDEX: Final = b"ERR the index of a child must be a number from 0 to %d" % (CHILDREN_MAX - 1)


# ---- SHOW, LIST, RESULTS and CHILDREN: what a leader knows of its groups (SPEC T51.3)


def shown(c: Client, tube: Tube, task: Task) -> dict[str, object]:
    """A group, as names and values (T51.3)."""
    family = groups.family_of(tube, task.number)
    state = "called"
    entry = task.entry
    work = entry.work if isinstance(entry, JobEntry) else None
    if isinstance(entry, GroupEntry):
        plan = entry
        work = work_in(plan.keys)
        state = STATES[int(plan.state)]
    else:
        plan = GroupEntry()
        plan.size = len(family.by_index)
        plan.has_callback = True
    return {
        "id": task.id,
        "queue": c.named(tube.name),
        "state": state,
        "children": int(plan.size),
        "added": len(family.by_index),
        "done": int(family.done),
        "failed": int(family.failed),
        "dead": int(family.dead),
        "onfail": POLICY_WORDS[int(plan.policy)] if plan is entry else "",
        "callback": int(plan.has_callback),
        "created-ms": int(task.created_ms),
        "over-ms": int(plan.over_ms),
        **shown_work(c, work),
    }


def show_all(s: Server, c: Client, tube: Tube, words: list[bytes]) -> None:
    """LIST tube [cursor] [COUNT n] [STATE state]: groups, the oldest first (T51.4)."""
    cursor: i64 = 0
    if len(words) > 0 and words[0].upper() not in OPTIONS:
        cursor = ranged(words[0], 0, FAR, BAD_CURSOR)
        words = words[1:]
    count, state = asked(b"GROUP LIST", words, LIST_MAX, (*STATES, CALLED))
    begin(s, c, Listing(s, c, tube, cursor, count, state))


@final
class Listing(LongCommand):
    """[T51] One LIST: it looks at one group after the other, in slices, until it has its rows."""

    def __init__(
        self, s: Server, c: Client, tube: Tube, cursor: int, count: int, state: str
    ) -> None:
        super().__init__(c)
        self.s = s
        self.client = c
        self.tube = tube
        self.count = count
        self.state = state
        members = groups.driver_of(tube).plans.members
        open = members.open
        of = open if state != CALLED else [one for one in members.families if one not in open]
        self.numbers = sorted([one for one in of if one >= cursor])
        s.n.work += len(of) // COPIED
        self.at = 0
        self.after = 0
        self.rows: list[object] = []

    def step(self, room: int) -> bool:
        """Look at the next groups."""
        n = self.s.n
        needs_home(n, tubes_of(n), self.tube)
        until = n.work + room
        while self.at < len(self.numbers):
            if n.work >= until:
                return False
            number = self.numbers[self.at]
            self.at += 1
            n.work += 1
            task = self.tube.tasks.get(number)
            if task is None or not self.is_meant(task):
                continue
            if len(self.rows) == self.count:
                self.after = number
                return True
            n.work += ROW_WORK
            self.rows.append(shown(self.client, self.tube, task))
        return True

    def is_meant(self, task: Task) -> bool:
        """Whether it is in the state that was asked for."""
        if not isinstance(task.entry, GroupEntry):
            return self.state == CALLED
        return self.state in ("", STATES[int(task.entry.state)])

    def tell(self) -> None:
        """Reply with the cursor and the rows."""
        self.client.reply([b"%d" % self.after, self.rows])


def asked(
    command: bytes, words: list[bytes], most: i64, states: tuple[str, ...]
) -> tuple[int, str]:
    """The values of COUNT and STATE; empty: any state."""
    count, state = most, ""
    seen: dict[bytes, None] = {}
    options = OPTIONS if len(states) > 0 else OPTIONS[:1]
    for i in range(0, len(words), 2):
        word = words[i].upper()
        if word not in options or i + 1 == len(words):
            raise wrong_word(command, words[i], options)
        if word in seen:
            raise twice(word)
        seen[word] = None
        if word == b"COUNT":
            count = min(ranged(words[i + 1], 1, ROWS_MAX, BAD_COUNT), most)
            continue
        state = words[i + 1].lower().decode("latin-1")
        if state not in states:
            raise refused(word, ", ".join(states).encode(), words[i + 1])
    return int(count), state


def begins(words: list[bytes]) -> tuple[int, list[bytes]]:
    """The index that a page begins with, 0 if there is none, and the words after it."""
    if len(words) == 0 or words[0].upper() in OPTIONS:
        return 0, words
    return int(ranged(words[0], 0, CHILDREN_MAX, BAD_FROM)), words[1:]


def size_of(tube: Tube, task: Task) -> int:
    """How many children the group has."""
    if isinstance(task.entry, GroupEntry):
        return int(task.entry.size)
    return len(groups.family_of(tube, task.number).by_index)


def results(s: Server, c: Client, tube: Tube, task: Task, words: list[bytes]) -> None:
    """RESULTS tube group [from] [COUNT n]: the next index, 0 at the end, and rows (T51.3)."""
    index, words = begins(words)
    left, _ = asked(b"GROUP RESULTS", words, ROWS_MAX, ())
    family = groups.family_of(tube, task.number)
    size = size_of(tube, task)
    room = PAGE_BYTES
    rows: list[object] = []
    while index < size and left > 0 and room > 0:
        number = family.by_index.get(index)
        left -= 1
        s.n.work += 1
        child = None if number is None else tube.tasks[number].entry
        if isinstance(child, ChildEntry):
            word = child.word if len(child.word) > 0 else b"open"
            state = CHILD_STATES[int(child.state)]
            rows.append([index, child.id, state, child.result, word, child.reason])
            room -= 100 + len(child.reason)
            room -= 0 if child.result is None else len(child.result)
        index += 1
    c.reply([index if index < size else 0, rows])


def show_children(s: Server, c: Client, tube: Tube, task: Task, words: list[bytes]) -> None:
    """CHILDREN tube group [from] [COUNT n] [STATE state]: how they ended (T51.6)."""
    index, words = begins(words)
    states = ("open", "done", "failed", DEAD)
    left, wanted = asked(b"GROUP CHILDREN", words, ROWS_MAX, states)
    family = groups.family_of(tube, task.number)
    size = size_of(tube, task)
    until = min(size, index + LOOKED_AT)
    room = REASONS_BYTES
    rows: list[object] = []
    while index < until and left > 0 and room > 0:
        number = family.by_index.get(index)
        s.n.work += 1
        child = None if number is None else tube.tasks[number].entry
        if isinstance(child, ChildEntry):
            state = CHILD_STATES[int(child.state)]
            is_dead = state == b"open" and len(child.word) > 0
            if len(wanted) == 0 or wanted.encode() == state or (wanted == DEAD and is_dead):
                word = child.word if len(child.word) > 0 else b"open"
                size_bytes = 0 if child.result is None else len(child.result)
                over_ms = int(child.over_ms)
                rows.append([index, child.id, state, size_bytes, word, child.reason, over_ms])
                left -= 1
                room -= 100 + len(child.reason)
        index += 1
    c.reply([index if index < size else 0, rows])


# ---- The command, CREATE and ADD (SPEC T51)


def cmd_group(s: Server, c: Client, args: list[bytes]) -> None:
    """[T51] GROUP CREATE | ADD | SHOW | RESULTS | CHILDREN | LIST | CANCEL."""
    word = args[1].upper()
    if word == b"HELP" and len(args) == 2:
        reply_help(s, c, b"GROUP")
        return
    if word not in NEEDS:
        raise wrong(b"GROUP takes CREATE, ADD, SHOW, RESULTS, CHILDREN, LIST, CANCEL or HELP")
    least, most = WORDS.get(word, (4, 4))
    if not least <= len(args) <= most or (word == b"ADD" and (len(args) - first_of(args)) % 2 != 0):
        raise wrong(b"GROUP %s takes %s" % (word, NEEDS[word]))
    t = tubes_of(s.n)
    tube = tube_named(s.n, t, args[2])
    needs_home(s.n, t, tube)
    groups.driver_of(tube)  # T50.1
    if word == b"CREATE":
        create(s, c, t, tube, args)
        return
    if word == b"LIST":
        show_all(s, c, tube, args[3:])
        return
    task = groups.group_of(s.n, tube, of_url(args[3]))  # G6.6
    if word == b"ADD":
        add(s, c, t, tube, task, args)
    elif word == b"SHOW":
        c.reply(shown(c, tube, task))
    elif word == b"RESULTS":
        results(s, c, tube, task, args[4:])
    elif word == b"CHILDREN":
        show_children(s, c, tube, task, args[4:])
    else:
        s.n.work += len(groups.family_of(tube, task.number).by_index) // 10
        c.reply(int(groups.cancel(s.n, t, tube, task)))


def create(s: Server, c: Client, t: Tubes, tube: Tube, args: list[bytes]) -> None:
    """CREATE tube children [ONFAIL policy] [KEEP sec] [options of the callback] [THEN body]."""
    plan = GroupEntry()
    plan.size = ranged(args[3], 1, CHILDREN_MAX, BAD_SIZE)
    plan.keep_ms = KEEP_MS
    end = len(args)
    body = b""
    if end >= 6 and args[end - 2].upper() == b"THEN":
        plan.has_callback = True
        body = args[end - 1]
        end -= 2
    elif args[end - 1].upper() == b"THEN":
        raise wrong(b"%s needs a value" % args[end - 1].upper())
    seen: dict[bytes, None] = {}
    i = 4
    while i < end and args[i].upper() in OWN_WORDS:
        word = args[i].upper()
        if i + 1 == end:
            raise wrong(b"%s needs a value" % word)
        if word in seen:
            raise twice(word)
        seen[word] = None
        set_word(plan, word, args[i + 1])
        i += 2
    pri, ttr_ms = set_callback(s, plan, tube, args[i:end])
    check_growth(s)
    c.reply(groups.create(s.n, t, tube, plan, body, pri, ttr_ms).id)


def set_word(plan: GroupEntry, word: bytes, value: bytes) -> None:
    """One word of the group itself."""
    if word == b"KEEP":
        plan.keep_ms = some_ms(value)
        if not 1_000 <= plan.keep_ms <= KEEP_MAX_MS:
            raise not_this(BAD_KEEP, value)
        return
    policy = POLICIES.get(value.upper())
    if policy is None:
        raise refused(word, b"stop, wait or continue", value)
    plan.policy = policy


def set_callback(s: Server, plan: GroupEntry, tube: Tube, words: list[bytes]) -> tuple[int, int]:
    """The options of the callback; returns its pri and its ttr in ms (T51.1)."""
    if len(words) > 0 and not plan.has_callback and words[0].upper() in CREATE.words:
        raise wrong(b"%s needs a callback: THEN and its body come last" % words[0].upper())
    spec = addjob_options(words, 0, CREATE)
    if plan.has_callback:
        spec.terms = kept_for(NO_TERMS if spec.terms is None else spec.terms, plan.keep_ms)
        plan.keys = packed_options(s, spec)
    pri = spec.pri if spec.has_pri and spec.pri != PRI_DEFAULT else tube.pri
    return int(pri), int(spec.retry_s * 1000 if spec.retry_s > 0 else tube.ttr_ms)


def kept_for(terms: Terms, keep_ms: i64) -> Terms:
    """[T51] The same with that KEEP, which is the group's (T51.1)."""
    made = terms.copy()
    made.keep_ms = keep_ms
    return made


def first_of(args: list[bytes]) -> int:
    """Where the indexes and ids of ADD begin."""
    return 5 if len(args) > 4 and args[4].upper() == NO_CANCEL else 4


def add(s: Server, c: Client, t: Tubes, tube: Tube, group: Task, args: list[bytes]) -> None:
    """ADD tube group [NOCANCEL] index id [index id ...]: how many are new (T51.2)."""
    first = first_of(args)
    check_forms(args, first + 1, 2)  # T50.2
    indexes: list[int] = []
    for i in range(first, len(args), 2):
        refuse_apart(s, t, tube, args[i + 1])
        indexes.append(int(ranged(args[i], 0, CHILDREN_MAX - 1, BAD_INDEX)))
    check_growth(s)
    check_children(s, c, tube, group, indexes)
    s.n.work += len(indexes)
    count = 0
    for k in range(len(indexes)):
        id = args[first + 1 + 2 * k]
        count += int(groups.add(s.n, t, tube, group, indexes[k], id, first > 4))
    c.reply(count)


def refuse_apart(s: Server, t: Tubes, tube: Tube, id: bytes) -> None:
    """[T50] Raise ArgError if the id is of a group or of another task that is no job (T50.2)."""
    task = s.n.jobs.get(id)
    if task is None:
        task = t.copies_by_id.get(id)
    if isinstance(task, Task) and tenant_of(task.queue) == tenant_of(tube.name):
        what, _, _ = t.what_is(task).partition(b":")
        if len(what) > 0:
            raise ArgError(NO_CHILD % (id, what))


def check_children(s: Server, c: Client, tube: Tube, group: Task, indexes: list[int]) -> None:
    """[N11] Raise ArgError if the tenant may not have the records of so many children (N11.2)."""
    known = groups.family_of(tube, group.number).by_index
    count = sum([1 for index in indexes if index not in known])
    refused = None if c.user is None else refusal(s, c.user, count, 0, False)
    if count > 0 and refused is not None:
        raise ArgError(refused)


def check_growth(s: Server) -> None:
    """Refuse what adds when the disk is short, as T15.6."""
    if s.is_disk_short():
        raise ArgError(DISKFULL)
    if s.is_parting():
        raise ArgError(LEAVING)
