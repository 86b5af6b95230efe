"""Commands at a server: the right that each needs, where it names queues, its figures (SPEC N2).

A *unit* is what a user may be allowed: a command, or one subcommand, `tube|put`. Its row
(wire/commands/rows.py) has its categories and its *places*, which say where a command names queues,
tubes, jobs or groups:

    1 queue          the word at that position is a queue or a tube
    4 queues         this word and all after it are
    FROM queues      all words after the first FROM are
    3 options DEAD   options begin at that position; the value of DEAD is a queue, and the header
                     `tuque-queues` has names of queues; of HEADERS only that, and what the job has
    1 jobs           this word and those after it may be ids of jobs, whose queues count
    2 group          a group of leases: all its queues count
    3 stage          a transaction: the queues of its staged jobs count
    2 worker         a worker that is known here: the queues that it has announced count
    1 own            a name that is no queue's, yet needs a pattern as queues do (N2.8)
    1 name           a name that is no queue's, yet a tenant has its own (N10.2)
    2 names          this word and all after it are, or queues that need no right
    NAMES names      all words after the first NAMES are
    shown            shows only what the user may see

A command that names nothing of this kind has no places. A command that has subcommands has a row
of its own for those without one: only a user who may do everything may use it.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.wire.commands.bound import ALL_WORDS, Bound
from tuque.wire.commands.rows import (
    BOUNDS,
    COMMAND_ROWS,
    CONTAINERS,
    MOST_WORDS,
    NO_SUB,
    ROWS,
    WORD_BYTES,
    Row,
)
from tuque.wire.commands.tube_table import PROCEDURES
from tuque.wire.proto.resp import strict_int

CATEGORIES: Final[dict[str, str]] = {
    "connection": "the session itself; every user may use these",
    "produce": "add jobs; follow, change and cancel those that were added",
    "consume": "take jobs, work on them, end them",
    "inspect": "look at jobs, queues, tubes and workers",
    "admin": "run the broker: queues, tubes, workers, clients, the cluster",
    "dangerous": "what loses data, shows everything, or gives rights",
}

# options of more words than a name and a value
WIDE: Final[dict[bytes, i64]] = {b"BACKOFF": 4, b"LIMIT": 3, b"RATE": 3}
NARROW: Final[dict[bytes, i64]] = {}  # DEAD REPLAY has a RATE of one number
# of commands with ids: the word after one of these is no id
BEFORE_VALUES: Final = [
    b"DELAY",
    b"WORKER",
    b"REASON",
    b"RESULT",
    b"COUNT",
    b"TASK",
    b"CAUSE",
    b"SINCE",
    b"CURSOR",
    b"QUEUE",
    b"RATE",
]
# what names nothing that a tenant could have of its own, and yet is for its users (N10.4)
FOR_TENANTS: Final = ["INFO", "CLUSTER NODES", "CLUSTER MYID"]
# what names a tube, and is not
NOT_FOR_TENANTS: Final = [
    "TUBE GRANT",
    "TUBE REVOKE",
    "TUBE GRANTS",
    "TUBE GRANT_ROLE",
    "TUBE ON_TASK_CHANGE",
]
# counted by quotas (N11.2)
ADDING: Final = [
    "ADDJOB",
    "STAGE",
    "PUBLISH",
    "TUBE PUT",
    "SCHEDULE ADD",
    "SCHEDULE RUN",
    "GROUP CREATE",
    "VALUE SET",
    "VALUE ADD",
    "VALUE TALLY",
]
# options of one word
FLAGS: Final = [b"ASYNC", b"WITHNEW", b"WITHID", b"ALL", b"BUSYLOOP"]
PAIRS: Final = b"HEADERS"  # a count, then names and values in turn
QUEUES_HEADER: Final = b"tuque-queues"  # its value has names of queues, parted by spaces (N2.9)


@final
class Unit:
    """One row."""

    def __init__(self, code: i64, row: Row) -> None:
        name, places = row.name, row.places
        self.code = code
        self.row = name
        self.name = name.lower().replace(" ", "|")
        self.categories = row.right.split()
        self.memory = row.memory  # what it does to it (M2.3)
        self.is_open = "connection" in self.categories  # every user may
        self.places = places
        self.queue_at: list[int] = []
        self.queues_from: i64 = 0  # 0: none
        self.queues_after = b""  # empty: none
        self.options_from: i64 = 0
        self.option = b""  # whose value is a queue
        self.jobs_from: i64 = 0
        self.is_one_job = False  # only the word there is an id
        self.own_at: i64 = 0
        self.names_at: i64 = 0
        self.names_from: i64 = 0
        self.names_after = b""  # empty: none
        self.group_at: i64 = 0
        self.worker_at: i64 = 0
        self.stage_at: i64 = 0
        self.is_shown = False
        for place in places.split(", "):
            self.read(place.split(" "))
        self.simple_words: i64 = self.count_simple()
        # names are all in its words: what they name is not looked up
        self.is_plain = self.group_at == 0 and self.stage_at == 0 and self.worker_at == 0
        self.is_adding = name in ADDING
        self.is_for_tenants = len(places) > 0 or self.is_open or name in FOR_TENANTS
        if name in NOT_FOR_TENANTS:
            self.is_for_tenants = False

    def count_simple(self) -> i64:
        """Up to how many words the command names one queue, and nothing else."""
        is_more = self.jobs_from > 0 or self.group_at > 0 or self.stage_at > 0
        is_more = is_more or self.worker_at > 0 or self.own_at > 0
        if is_more or len(self.queues_after) > 0 or self.queues_from > 0:
            return 0
        if len(self.queue_at) != 1:
            return 0
        return self.options_from if self.options_from > 0 else ALL_WORDS

    def read(self, words: list[str]) -> None:
        """One place."""
        if words == ["shown"]:
            self.is_shown = True
        elif len(words) < 2:
            assert words == [""]
        elif words[1] == "queues" and not words[0].isdigit():
            self.queues_after = words[0].encode()
        elif words[1] == "names" and not words[0].isdigit():
            self.names_after = words[0].encode()
        else:
            at = int(words[0])
            if words[1] == "queue":
                self.queue_at.append(at)
            elif words[1] == "queues":
                self.queues_from = at
            elif words[1] == "options":
                self.options_from = at
                self.option = words[2].encode()
            elif words[1] == "jobs" or words[1] == "job":
                self.jobs_from = at
                self.is_one_job = words[1] == "job"
            elif words[1] == "own":
                self.own_at = at
            elif words[1] == "name":
                self.names_at = at
            elif words[1] == "names":
                self.names_from = at
            elif words[1] == "group":
                self.group_at = at
            elif words[1] == "worker":
                self.worker_at = at
            else:
                assert words[1] == "stage"
                self.stage_at = at

    def queues(self, args: list[bytes]) -> list[bytes]:
        """The queues and tubes that the command names."""
        if len(self.queues_after) > 0:
            return self.queues_behind(args)
        found: list[bytes] = []
        size: i64 = len(args)
        for at in self.queue_at:
            if at < size:
                found.append(args[at])
        if self.queues_from > 0:
            found += args[self.queues_from :]
        if self.options_from > 0 and self.options_from < size:
            for at in self.option_places(args):
                found.append(args[at])
        return found

    def put_prefix(self, prefix: bytes, args: list[bytes]) -> None:
        """Put the prefix before each name in the words that a tenant has of its own (N10.2)."""
        size: i64 = len(args)
        for at in self.queue_at:
            if at < size:
                args[at] = prefix + args[at]
        for place in (self.own_at, self.names_at, self.group_at, self.worker_at):
            if 0 < place < size:
                args[place] = prefix + args[place]
        first: i64 = max(self.queues_from, self.names_from)
        behind = self.queues_after if len(self.queues_after) > 0 else self.names_after
        if len(behind) > 0:
            first = place_behind(behind, args)
        if first > 0:
            for i in range(first, size):
                args[i] = prefix + args[i]
        if self.options_from > 0 and self.options_from < size:
            for at in self.option_places(args):
                args[at] = prefix + args[at]
        if self.stage_at > 0:
            for at in stage_places(args):
                args[at] = prefix + args[at]

    def own_names(self, args: list[bytes]) -> list[bytes]:
        """[N2] The names of no queues that need a pattern (N2.8)."""
        found: list[bytes] = []
        if 0 < self.own_at < len(args):
            found.append(args[self.own_at])
        if self.stage_at > 0:
            places = stage_places(args)
            if len(places) > 0:
                found.append(args[places[len(places) - 1]])
        return found

    def queues_behind(self, args: list[bytes]) -> list[bytes]:
        """All words after the first one that says FROM, or QUEUES."""
        return args[place_behind(self.queues_after, args) :]

    def option_places(self, args: list[bytes]) -> list[int]:
        """Where the values of the option that names a queue stand."""
        found: list[int] = []
        i = self.options_from
        size: i64 = len(args)
        wide = WIDE if self.option == b"DEAD" else NARROW
        while i + 1 < size:
            word = args[i].upper()
            if word == PAIRS:
                count = strict_int(args[i + 1])
                i += 2 if count is None or count < 0 else 2 + 2 * count
            elif word == self.option:
                found.append(int(i + 1))
                i += 2
            elif word in FLAGS or word.isdigit():
                i += 1
            else:
                i += wide.get(word, 2)
        return found

    def next_queues(self, args: list[bytes]) -> list[bytes]:
        """[N2] What headers of the command name, as its user calls it (N2.9)."""
        found: list[bytes] = []
        size: i64 = len(args)
        if self.options_from == 0 or QUEUES_HEADER not in args:
            return found
        for i in range(self.options_from, size - 1):
            if args[i] == QUEUES_HEADER:  # also where it is no name: who says this means it
                found += queues_in(args[i + 1])
        return found


def queues_in(value: bytes) -> list[bytes]:
    """The names in the value of the header."""
    return [name for name in value.split(b" ") if len(name) > 0]


def place_behind(mark: bytes, args: list[bytes]) -> i64:
    """Where the word after the first one that is the mark stands; the end: there is no mark."""
    i: i64 = 1
    for word in args:
        if len(word) == len(mark) and (word == mark or word.upper() == mark):
            return i
        i += 1
    return len(args)


def stage_places(args: list[bytes]) -> list[int]:
    """Where PUBLISH names its transaction, and a group."""
    if len(args) > 7 and args[3].upper() == b"ACK":
        return [4, 7]
    return [3] if len(args) > 3 else []


WITH_RIGHTS: Final = [row for row in ROWS if row.right != ""]
UNITS: Final = [Unit(code, row) for code, row in enumerate(WITH_RIGHTS)]
BY_ROW: Final[dict[str, Unit]] = {one.row: one for one in UNITS}
BY_NAME: Final[dict[str, Unit]] = {one.name: one for one in UNITS}
OF_TUBES: Final = [BY_ROW["TUBE " + one.name.upper()] for one in PROCEDURES]  # by their codes


def unit_of(name: str, args: list[bytes]) -> Unit:
    """The unit of a command: of its subcommand, if it has rows for those."""
    if len(args) > 1 and name in CONTAINERS:
        word = args[1][:WORD_BYTES].decode("ascii", "replace").upper()
        found = BY_ROW.get(f"{name} {word}")
        if found is not None:
            return found
    return BY_ROW[name]


# ---- A command at a server


@final
class Command:
    """One row of the table, and its running statistics on this server."""

    def __init__(self, row: Row, code: i64) -> None:
        name = row.name
        self.name = name
        self.wire_name = name.lower().encode()
        self.arity = row.arity
        self.flags = row.flags.split()
        self.group = row.group
        self.syntax = row.syntax
        self.summary = row.summary
        self.is_write = "write" in self.flags
        self.is_denyoom = "denyoom" in self.flags
        self.is_loading = "loading" in self.flags
        self.is_fast = "fast" in self.flags
        self.words: i64 = MOST_WORDS[name]  # more are refused (L2.4); see wire/commands/rows.py
        self.is_container = name in CONTAINERS
        self.least: i64 = 0 if self.is_container else BOUNDS[name].least  # units of every call
        self.unit: Unit | None = (
            None if name in CONTAINERS else BY_ROW[name]
        )  # None: its parts have
        self.code = code  # its number among the commands
        self.calls: i64 = 0
        self.usec_ns: i64 = 0  # time spent, in ns

    def takes(self, count: i64) -> bool:
        """Whether the command may have that many words, including itself."""
        if self.arity >= 0:
            return self.arity == 0 or count == self.arity
        return count >= -self.arity


def table() -> dict[bytes, Command]:
    """A fresh table by upper-case name, codes set to the numbers of the commands."""
    return {row.name.encode(): Command(row, code) for code, row in enumerate(COMMAND_ROWS)}


def bound_of(name: str, args: list[bytes]) -> Bound:
    """The row of a command, or of its subcommand."""
    bound = BOUNDS.get(name)
    if len(args) > 1 and name in CONTAINERS:
        word = args[1][:WORD_BYTES].decode("ascii", "replace").upper()
        bound = BOUNDS.get(name + " " + word, bound)
    return NO_SUB if bound is None else bound
