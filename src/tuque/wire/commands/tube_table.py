"""The table of tube procedures: one row for RESP and for IPROTO (SPEC T15, I4, I6).

Source of the words of TUBE, the calls of IPROTO, arity, HELP, COMMAND DOCS, bounds and
docs/commands.md. `words` and `values` say how each argument is read.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.timers import REPLY_BYTES, TURN_WORK
from tuque.tubes.types.driver import Driver
from tuque.wire.commands.arguments import Misuse, WrongWords
from tuque.wire.commands.bound import (
    ALL_WORDS,
    CUT,
    CUT_SLICED,
    FEW_WORDS,
    GROWS,
    JOBS,
    OF_CALLS,
    OF_ROWS,
    OF_TASKS,
    OF_TUBES,
    OF_WORDS,
    ONE,
    OPERATES,
    OWN,
    REFUSED,
    SLICED,
    SMALL,
    VIEW,
    WORK,
    Bound,
)
from tuque.wire.commands.tube_arguments import (
    ARGUMENTS,
    FLAG,
    FORMS,
    OPTIONS,
    PLACES,
    Argument,
    TubeArgs,
    Word,
    check_msgpack,
    options_of,
    read_data,
    read_word,
    task_number,
)
from tuque.wire.proto.iproto import E_PROC, IprotoError
from tuque.wire.proto.msgpack import Value

NAMES_MAX: Final = 1_000  # tubes in one SUBSCRIBE
ONE_TASK: Final = Bound(0, 1, SMALL, ONE, OF_TASKS, True)  # 0 words: the syntax decides
ONE_THING: Final = Bound(0, FEW_WORDS, SMALL, ONE, OF_TUBES, least=5)
FEW_OPTIONS: Final = Bound(FEW_WORDS, FEW_WORDS, SMALL, REFUSED, OF_WORDS, least=20)
SLICES: Final = Bound(0, TURN_WORK, SMALL, SLICED, OF_TASKS, least=5)
SEARCH: Final = Bound(0, 2_000, SMALL, ONE, OF_TUBES, least=1_000)  # of packages on disk
MANY: Final = Bound(NAMES_MAX + 2, NAMES_MAX + 2, SMALL, REFUSED, OF_TUBES)
LIST: Final = Bound(0, TURN_WORK, 2 * REPLY_BYTES, ONE, OF_TUBES, least=10)

TubeRow = tuple[str, str, str, str, str, str, Bound, str, str]

# syntax in RESP and in IPROTO, marks, right, places, memory, bound, reply, and what it does.
# write, grow: it changes something, or adds tasks or tubes: checked before it runs (C3.5, I4.8)
# home, known: its tube must be RUNNING here (T17.3), or known here
# session: the caller gets a session
# silent: no value in its IPROTO reply
# fmt: off
ROWS: Final[list[TubeRow]] = [
    ("CREATE tube type [IFNOTEXISTS] [TEMPORARY] [TTL sec] [TTR sec] [PRI n] [CAPACITY n] "
     "[STORAGEMODE mode] [ENGINE engine] [ONCHANGE callback] [SYNC n|majority] [FAILOVER "
     "yes|no] [ALONE] [IMPLICIT]",
     "queue.create_tube(name, type, {if_not_exists, temporary, ttl, ttr, pri, capacity, "
     "storage_mode, engine, on_task_change, sync, failover, alone})",
     "write grow silent", "admin", "2 queue", GROWS, FEW_OPTIONS, "OK",
     "Make a tube of a type."),
    ("PUT tube body [PRI n] [TTL sec] [TTR sec] [DELAY sec] [UTUBE key] [TIMEOUT sec] [FORM "
     "bytes|text|msgpack]",
     "put(data, {delay, ttl, ttr, pri, utube, timeout})",
     "write grow home", "produce", "2 queue", JOBS,
     Bound(FEW_WORDS, FEW_WORDS, SMALL, REFUSED, OF_TASKS, True, least=2),
     "the task; null when the tube is full",
     "Put a task into a tube; with TIMEOUT it waits for room."),
    ("TAKE tube [TIMEOUT sec]", "take(timeout)",
     "write home session", "consume", "2 queue", WORK, ONE_TASK,
     "the task; null when none came in time",
     "Take the next task; without TIMEOUT it waits without limit."),
    ("ACK tube id [TOKEN t]", "ack(id)",
     "write home session", "consume", "2 queue", WORK, ONE_TASK, "the task",
     "Acknowledge a taken task."),
    ("RELEASE tube id [DELAY sec] [TOKEN t]", "release(id, {delay})",
     "write home session", "consume", "2 queue", WORK, ONE_TASK, "the task",
     "Release a taken task, at once or after a delay."),
    ("TOUCH tube id sec [TOKEN t]", "touch(id, increment)",
     "write home session", "consume", "2 queue", WORK, ONE_TASK, "the task; null for 0 s",
     "Extend the time of a taken task."),
    ("BURY tube id [TOKEN t]", "bury(id)",
     "write home", "consume", "2 queue", WORK, ONE_TASK, "the task",
     "Set a task aside until it is kicked."),
    ("KICK tube count", "kick(count)",
     "write home", "admin", "2 queue", WORK, SLICES, "how many tasks",
     "Make buried tasks ready again."),
    ("PEEK tube id", "peek(id)",
     "home", "inspect", "2 queue", VIEW, ONE_TASK, "the task",
     "Show a task."),
    ("DELETE tube id", "delete(id)",
     "write home", "admin", "2 queue", WORK, ONE_TASK, "the task",
     "Delete a task, also one that is taken."),
    ("TASKS tube state [COUNT n]", "tasks_by_state(state, count)",
     "home", "inspect", "2 queue", VIEW,
     Bound(0, 3 * TURN_WORK, REPLY_BYTES, CUT_SLICED, OF_TASKS, True, least=5), "the tasks",
     "List tasks in a state, in the order of (pri, id)."),
    ("TRUNCATE tube", "truncate()",
     "write home silent", "dangerous", "2 queue", WORK, SLICES, "how many tasks",
     "Delete all tasks of a tube."),
    ("RELEASEALL tube", "release_all()",
     "write home silent", "admin", "2 queue", WORK, SLICES, "how many tasks",
     "Release all taken tasks."),
    ("DROP tube", "drop()",
     "write home", "dangerous", "2 queue", WORK, SLICES, "OK",
     "Remove a tube with all its tasks."),
    ("INFO tube", "",
     "known", "inspect", "2 queue", VIEW, ONE_THING, "names and values",
     "Options and figures of a tube."),
    ("LIST", "queue.tube(name)",
     "", "inspect", "shown", VIEW, LIST, "the names",
     "The names of all tubes; over IPROTO also whether a tube exists."),
    ("STATISTICS [tube]", "queue.statistics(name) queue.stats(name)",
     "known", "inspect", "2 queue, shown", VIEW,
     Bound(0, TURN_WORK, 3 * REPLY_BYTES, SLICED, OF_TUBES, least=10), "names and numbers",
     "Counters of one tube, or of each."),
    ("STATE [tube]", "queue.state()",
     "known", "inspect", "2 queue", VIEW, ONE_THING, "the state",
     "The state of a tube here, or of the node."),
    ("HOME tube [node [FORCE]]", "",
     "write known", "admin", "2 queue", OPERATES, ONE_THING,
     "names and values; with a node OK, with FORCE what may be lost",
     "Show the leader of a tube; with a node, make it the leader."),
    ("CFG [TTR sec] [INREPLICASET yes|no]", "queue.cfg({ttr, in_replicaset})",
     "write silent", "admin", "", OPERATES,
     Bound(FEW_WORDS, TURN_WORK, SMALL, REFUSED, OF_TUBES, least=20), "both settings",
     "Show the settings of all tubes; with options, change them."),
    ("IDENTIFY [uuid]", "queue.identify(uuid)",
     "", "connection", "", OWN, Bound(0, 1, SMALL, ONE, OF_CALLS), "the uuid of the session",
     "The session of the connection; with a uuid, join that one."),
    ("CHANGES tube [AFTER number] [COUNT n]", "",
     "home", "inspect", "2 queue", VIEW, Bound(0, 1_000, 262_144, CUT, OF_ROWS, least=5),
     "the notices",
     "Read what changed in a tube, oldest first."),
    ("SUBSCRIBE tube [tube ...]", "",
     "", "inspect", "2 queues", OWN, MANY, "how many tubes it is subscribed to",
     "Subscribe to changes of tubes (RESP3)."),
    ("UNSUBSCRIBE [tube ...]", "",
     "", "connection", "2 names", OWN, MANY, "how many tubes it is subscribed to",
     "End these subscriptions, or all."),
    ("GRANT tube user [ROLE] [CALL] [TRUNCATE] [PREFIX name]",
     "grant(user, {call, truncate, prefix})",
     "write known silent", "dangerous", "2 queue", OWN, FEW_OPTIONS, "OK",
     "Grant an IPROTO user or role rights on a tube."),
    ("REVOKE tube user [ROLE] [CALL] [TRUNCATE] [PREFIX name]", "",
     "write known", "dangerous", "2 queue", OWN,
     Bound(FEW_WORDS, TURN_WORK, SMALL, REFUSED, OF_WORDS, least=20), "how many grants changed",
     "Revoke rights."),
    ("GRANTS [tube]", "",
     "known", "admin", "2 queue, shown", VIEW, LIST, "the grants",
     "The rights on a tube, or on all."),
    ("DRIVERS", "",
     "", "inspect", "", VIEW, Bound(0, TURN_WORK, REPLY_BYTES, ONE, OF_TUBES, least=1_000),
     "the types",
     "The types of tubes."),
    ("REGISTERDRIVER type", "queue.register_driver(name, driver)",
     "silent", "dangerous", "", OPERATES, SEARCH, "OK",
     "Load a tube type whose package was installed after the start."),
    ("", "grant_role(role, {call, truncate, prefix})",
     "write known silent", "dangerous", "2 queue", OWN, FEW_OPTIONS, "OK",
     "Grant an IPROTO role rights on a tube."),
    ("", "on_task_change(callback)",
     "write home", "admin", "2 queue", OWN, ONE_THING, "the name before, or nil",
     "Set the callback for changes."),
]
# fmt: on


@final
class Procedure:
    """One row, and how its arguments are read."""

    def __init__(self, code: i64, row: TubeRow) -> None:
        self.code = code
        self.syntax, self.call_syntax, marks = row[0], row[1], row[2]
        self.right, self.places_of, self.memory = row[3], row[4], row[5]
        bound, self.reply, self.doc = row[6], row[7], row[8]
        self.word = self.syntax.partition(" ")[0]
        # `queue.` function: of no single tube
        self.calls = [one.partition("(")[0] for one in self.call_syntax.split(" ") if "(" in one]
        self.name = self.word or self.calls[0]
        self.row_name = self.name.upper()
        self.is_write = "write" in marks
        self.is_growing = "grow" in marks
        self.is_home = "home" in marks
        self.is_known = "known" in marks
        self.has_session = "session" in marks
        self.is_told = "silent" not in marks
        self.is_strict = self.name == "CFG"  # IPROTO: unknown options are errors
        self.is_put = self.name == "PUT"
        self.is_drop = self.name == "DROP"
        self.has_id = False  # IPROTO: a task id comes first
        self.takes_rest = "..." in self.syntax
        self.places: list[Word] = []
        self.options: dict[bytes, Word] = {}
        self.values: list[Argument] = []
        self.named: dict[bytes, Argument] = {}
        self.least: i64 = 2
        most: i64 = 2
        if self.takes_rest:
            self.least += 0 if "[tube" in self.syntax.partition(" ")[2][:5] else 1
        else:
            most += self.read_syntax()
        self.most: i64 = ALL_WORDS if bound.words > 0 else most
        words = bound.words if bound.words > 0 else most
        self.bound = Bound(
            words, bound.work, bound.reply, bound.beyond, bound.counts, bound.has_body, bound.least
        )
        if self.calls:
            self.read_call_syntax()

    def read_syntax(self) -> i64:
        """Set the words of the syntax, and how many there may be."""
        most: i64 = 0
        for shown in self.syntax.split(" ")[1:]:
            word = shown.strip("[]")
            if word in OPTIONS:
                self.options[word.encode()] = OPTIONS[word]
                most += 1 if OPTIONS[word].kind == FLAG else 2
            elif word in PLACES and (shown[0] == "[" or len(self.options) == 0):
                self.places.append(PLACES[word])
                most += 1
                self.least += 0 if shown[0] == "[" else 1
        return most

    def read_call_syntax(self) -> None:
        """Set the arguments of the IPROTO call."""
        name = self.calls[0].rpartition(".")[2]
        inside = self.call_syntax.partition("(")[2].partition(")")[0]
        places, _, named = inside.partition("{")
        for one in places.replace(",", " ").split():
            if one == "id":
                self.has_id = True
            elif one != "data":
                self.values.append(ARGUMENTS.get(f"{name}.{one}") or ARGUMENTS[one])
        for one in named.strip("}").replace(",", " ").split():
            found = ARGUMENTS.get(f"{name}.{one}") or ARGUMENTS[one]
            self.named[one.encode()] = found

    def read_words(self, args: list[bytes], into: TubeArgs) -> None:
        """[T15] Read the words after `TUBE word`; the tube is looked up later. Raises ArgError."""
        count: i64 = len(args)
        if count < self.least or count > self.most:
            raise WrongWords(b"TUBE")  # T15.1
        if self.takes_rest:
            into.set_option("names", args[2:])
            return
        at: i64 = 2
        for place in self.places:
            if at == count:
                return
            read_word(place, args[at], into)
            at += 1
        while at < count:
            word = self.options.get(args[at]) or self.options.get(args[at].upper())
            at += 1
            if word is None:
                raise Misuse(args[at - 1])
            into.given += 1
            if word.kind == FLAG:
                into.set_option(word.field, True)
                continue
            if at == count:
                raise Misuse(args[at - 1])
            read_word(word, args[at], into)
            at += 1
        if into.form == FORMS[b"msgpack"]:
            check_msgpack(into.body)

    def read_values(self, args: list[Value], into: TubeArgs, driver: Driver | None) -> None:
        """[I6] Read the arguments of a call; `driver` is that of its tube. Raises IprotoError."""
        first: i64 = 1 if self.has_id or self.is_put else 0
        at: i64 = first
        for place in self.values:
            place.read_into(args[at] if at < len(args) else None, into)
            at += 1
        if self.has_id and into.timeout_ms != 0:  # a touch without an increment does nothing
            into.number = task_number(args, self.has_session)
        elif self.is_put:
            read_data(args, into)
        if len(self.named) == 0:
            return
        given = options_of(args, at)
        if len(given) == 0:
            return
        into.given += 1
        if self.is_strict:
            for key in given:
                if key not in self.named:
                    raise IprotoError(E_PROC, b"Unknown option " + key)
        for key, argument in self.named.items():
            value = given.get(key)
            if value is not None and (driver is None or argument.is_for(driver)):
                argument.read_into(value, into)


PROCEDURES: Final = [Procedure(code, row) for code, row in enumerate(ROWS)]
WORDS: Final = {one.word.encode(): one for one in PROCEDURES if one.word}  # of RESP, after TUBE
CALLS: Final = {call.encode(): one for one in PROCEDURES for call in one.calls}  # of IPROTO
FUNCTIONS: Final = {call: one for call, one in CALLS.items() if call.startswith(b"queue.")}
METHODS: Final = {call: one for call, one in CALLS.items() if call not in FUNCTIONS}  # of a tube
TUBE_SYNTAX: Final = " | ".join([one.syntax for one in PROCEDURES if one.word])
