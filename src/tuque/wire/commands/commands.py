"""The command table: name, arity, flags, syntax and help of every command (SPEC C7).

Source of COMMAND, COMMAND DOCS, completion and hints of `tuque cli`, and docs/commands.md.
Arity counts the command word; a negative one is a minimum.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.wire.commands.bound import ALL_WORDS
from tuque.wire.commands.bounds import BOUNDS, CONTAINERS
from tuque.wire.commands.rights import BY_ROW, Unit
from tuque.wire.commands.tube_table import TUBE_SYNTAX

_W: Final = "write fast"
_R: Final = "readonly fast"

# name, arity, flags, group, syntax after the name, summary
ROWS: Final[list[tuple[str, int, str, str, str, str]]] = [
    (
        "ADDJOB",
        -4,
        "write denyoom fast",
        "jobs",
        "queue body ms-timeout [REPLICATE count] [DELAY sec] [RETRY sec] [TTL sec] "
        "[MAXLEN count] [ASYNC] [DEDUPE key [DEDUPETTL ms]] [WITHNEW] [PRI n] [UTUBE key] "
        "[UNIQUE key [UNTIL done|start|sec] [ON keep|reject|replace]] [LIMIT key n] "
        "[RATE key n/s|m|h [burst]] [GROUP key [WEIGHT n]] "
        "[ATTEMPTS n] [BACKOFF first max jitter] [DEAD queue] [KEEP sec] [TIMELIMIT sec] "
        "[HEADERS count name value ...]",
        "Add a job to a queue; the reply is its id, once enough nodes have a copy.",
    ),
    (
        "GETJOB",
        -2,
        _W,
        "jobs",
        "[NOHANG] [TIMEOUT ms] [COUNT count] [WITHCOUNTERS] [WITHMETA] [START [WORKER name]] "
        "FROM queue [queue ...]",
        "Take jobs from queues; wait for one unless NOHANG is given.",
    ),
    ("ACKJOB", -1, _W, "jobs", "[id ...]", "Acknowledge jobs on all nodes."),
    (
        "FASTACK",
        -1,
        _W,
        "jobs",
        "[id ...]",
        "Acknowledge jobs, without waiting for other nodes to confirm.",
    ),
    ("DELJOB", -1, _W, "jobs", "[id ...]", "Delete jobs from this node only."),
    (
        "NACK",
        -1,
        _W,
        "jobs",
        "[DELAY sec] [id ...]",
        "Put jobs back into their queues, at once or after the delay.",
    ),
    (
        "ENQUEUE",
        -1,
        "write denyoom fast",
        "jobs",
        "[id ...]",
        "Queue active jobs now, regardless of their delay or retry time.",
    ),
    (
        "DEQUEUE",
        -1,
        _W,
        "jobs",
        "[id ...]",
        "Take jobs out of their queues until their retry time is over.",
    ),
    (
        "WORKING",
        -2,
        _W,
        "jobs",
        "id [run]",
        "Postpone the next delivery of a job being worked on; the reply is its retry time in s.",
    ),
    (
        "START",
        -1,
        _W,
        "jobs",
        "[WORKER name] [id ...]",
        "Begin to work on jobs; the reply has for each its run, attempt and limits, or an error.",
    ),
    (
        "PROGRESS",
        4,
        _W,
        "jobs",
        "id run bytes",
        "Say how far a run is; extends it as WORKING does.",
    ),
    (
        "RELEASE",
        -1,
        _W,
        "jobs",
        "[DELAY sec] [id run ...]",
        "Give jobs back; no attempt is counted.",
    ),
    (
        "FAIL",
        -3,
        _W,
        "jobs",
        "id run [DELAY sec] [REASON text] [DETAIL bytes] [CAUSE failed|crashed|timeout] [FINAL]",
        "An attempt failed: the job waits for the next one, or becomes a dead letter.",
    ),
    (
        "DONE",
        -1,
        _W,
        "jobs",
        "id run [RESULT bytes] | [id run ...]",
        "Jobs are done; the result is kept for the job's KEEP.",
    ),
    (
        "CANCEL",
        -1,
        _W,
        "jobs",
        "[REASON text] [id ...]",
        "End jobs that wait; notify the workers of jobs at work.",
    ),
    (
        "RESULT",
        -2,
        _R,
        "jobs",
        "id [WAIT ms]",
        "State, progress, result or last failure of a job; with WAIT, once it has ended.",
    ),
    (
        "WAITJOB",
        -3,
        _R,
        "jobs",
        "ms id [id ...] [COUNT n]",
        "Wait until jobs, or COUNT of them, have ended, for ms at most; 0: as long as it takes.",
    ),
    (
        "UPDATEJOB",
        -3,
        "write denyoom fast",
        "jobs",
        "id [BODY body] [DELAY sec] [TTL sec] [ATTEMPTS n] [PRI n] [HEADERS count name value ...]",
        "Change a job that nobody works on, or with PRI a task of a tube.",
    ),
    (
        "DEAD",
        -2,
        "write",
        "queues",
        "LIST queue [cursor] [COUNT n] [filter ...] | SHOW id | STAT queue | "
        "REPLAY queue [QUEUE to] [RATE n] [CURSOR n] [COUNT n] ALL|filter ...|IDS id ... | "
        "PURGE queue [CURSOR n] [COUNT n] ALL|filter ...|IDS id ...",
        "Dead letters: jobs whose attempts failed. Filters: REASON glob, TASK glob, CAUSE word, "
        "SINCE ms.",
    ),
    (
        "DEADLETTER",
        -3,
        _W,
        "jobs",
        "id queue [REASON text] [BODY bytes]",
        "Move a failed job to a dead-letter queue, in one step; the reply is the new id.",
    ),
    ("SHOW", 2, _R, "jobs", "id", "Show a job."),
    (
        "JSCAN",
        -1,
        "readonly",
        "jobs",
        "[cursor] [COUNT count] [BUSYLOOP] [QUEUE queue] [STATE state ...] [REPLY all|id]",
        "Iterate over jobs.",
    ),
    ("QLEN", 2, _R, "queues", "queue", "Number of jobs queued on this node."),
    ("QSTAT", 2, _R, "queues", "queue", "Counters and state of a queue on this node."),
    (
        "QPEEK",
        3,
        "readonly",
        "queues",
        "queue count",
        "Show queued jobs without taking them; a negative count shows the newest.",
    ),
    (
        "QSCAN",
        -1,
        "readonly",
        "queues",
        "[cursor] [COUNT count] [BUSYLOOP] [MINLEN len] [MAXLEN len] [IMPORTRATE rate] [TYPE type]",
        "Iterate over queues.",
    ),
    (
        "HISTORY",
        -2,
        "readonly fast",
        "queues",
        "5s|1m [QUEUE name] [FROM ms] [COUNT n] [field ...] | 5s|1m TIMES wait|work "
        "[FROM ms] [COUNT n] | QUEUES",
        "Points of the node's past, or of a queue's: what was added, delivered, acked, ...",
    ),
    (
        "QLIST",
        -1,
        "readonly",
        "queues",
        "[MATCH glob] [TYPE type] [SORT name|ready|delayed|at-work|dead|oldest|in|out|blocked] "
        "[ASC|DESC] [OFFSET n] [COUNT n] [NAMES queue [queue ...]]",
        "List queues in an order: jobs by state, the oldest one's age, rates.",
    ),
    (
        "PAUSE",
        -3,
        "write fast",
        "queues",
        "queue in|out|all|none|state|bcast ...",
        "Pause a queue: in, out, all, none, state, bcast.",
    ),
    (
        "STAGE",
        -6,
        "write denyoom fast",
        "jobs",
        "txn attempt ttl-ms queue body [REPLICATE count] [DELAY sec] [RETRY sec] [TTL sec] "
        "[MAXLEN count] [DEDUPE key [DEDUPETTL ms]]",
        "Stage a job in a transaction; it is invisible until PUBLISH.",
    ),
    (
        "PUBLISH",
        -4,
        "write",
        "jobs",
        "app version [ACK group epoch seq] txn [attempt ...]",
        "Add all jobs of the named attempts at once, if the version is new.",
    ),
    (
        "LEASE",
        -2,
        "write",
        "queues",
        "OPEN group owner queue [queue ...] | "
        "NEXT group epoch seq COUNT n [BYTES b] [PARTS p] TTL ms | "
        "FETCH group epoch seq part [FROM i] [COUNT k] [BYTES b] [COLUMNS] | "
        "GONE group epoch seq part | BEGIN group epoch seq | "
        "SPLIT group epoch seq keep [BEGUN times] | "
        "DEFER group epoch seq [COUNT n] [BYTES b] | "
        "COMMIT group epoch seq | TOUCH group epoch [TTL ms] | "
        "NACK group epoch seq id [id ...] | RELEASE group epoch | INFO group | LIST",
        "Take jobs in numbered batches that can be read again, until they are committed.",
    ),
    (
        "TUBE",
        -2,
        "write",
        "queues",
        TUBE_SYNTAX,
        "Tubes: queues with numbered tasks, priorities, sub-queues and a type.",
    ),
    (
        "SCHEDULE",
        -2,
        "write",
        "queues",
        "ADD queue name CRON text [TZ zone]|EVERY sec [MISSED skip|one|all] [RETRY sec] [TTL sec] "
        "[PRI n] [UNIQUE key [UNTIL done|start|sec]] [LIMIT key n] [RATE key n/s|m|h [burst]] "
        "[GROUP key [WEIGHT n]] [ATTEMPTS n] [BACKOFF first max jitter] [DEAD queue] [KEEP sec] "
        "[TIMELIMIT sec] [HEADERS count name value ...] body | "
        "LIST queue [cursor] [COUNT n] | SHOW queue name | "
        "PAUSE queue name | RESUME queue name | RUN queue name | DROP queue name",
        "Schedules: jobs that a tube of type tasks gets at times of day, or at intervals.",
    ),
    (
        "LIMITS",
        -2,
        "readonly",
        "queues",
        "queue [COUNT n] [CURSOR c]",
        "Keys of a tube of type tasks for which tasks wait, and its groups with their shares.",
    ),
    (
        "GROUP",
        -2,
        "write",
        "queues",
        "CREATE queue children [ONFAIL stop|wait|continue] [KEEP sec] [THEN-options: RETRY sec, "
        "PRI n, LIMIT key n, RATE key n/s|m|h [burst], GROUP key [WEIGHT n], ATTEMPTS n, "
        "BACKOFF first max jitter, DEAD queue, TIMELIMIT sec, HEADERS count name value ...] "
        "[THEN body] | "
        "ADD queue group [NOCANCEL] index id [index id ...] | SHOW queue group | "
        "RESULTS queue group [from] [COUNT n] | "
        "CHILDREN queue group [from] [COUNT n] [STATE open|done|failed|dead] | "
        "LIST queue [cursor] [COUNT n] [STATE open|called|done|failed|cancelled] | "
        "CANCEL queue group",
        "Groups of jobs: a job that a tube of type tasks gets when all of its children have ended.",
    ),
    (
        "TOPIC",
        -2,
        "write",
        "queues",
        "SUBSCRIBE topic queue [FILTER name glob [name glob ...]] | UNSUBSCRIBE topic queue | "
        "LIST [TOPIC name] [CURSOR c] [COUNT n] | ADD topic body ms-timeout [options of ADDJOB]",
        "Topics: add a job to all queues that are subscribed, or to none.",
    ),
    (
        "WORKER",
        -2,
        "readonly",
        "server",
        "HERE name [HOST text] [PID n] [VERSION text] [APP text] [SLOTS n] [BUSY n] [DONE n] "
        "[FAILED n] [AGE ms] [QUIET] [QUEUES queue [queue ...]] | BYE name | "
        "LIST [cursor] [COUNT n] [MATCH glob] | DEPLOYS | QUIET name | STOP name",
        "Workers: announce one, list them with what they run, and have one stop.",
    ),
    (
        "HELLO",
        -1,
        "readonly fast",
        "connection",
        "[2|3 [AUTH user password] [SETNAME name]]",
        "Nodes of the cluster; with a number, the protocol version to speak.",
    ),
    ("PING", -1, "readonly fast", "connection", "[message]", "Reply PONG, or the message."),
    ("ECHO", 2, "readonly fast", "connection", "message", "Reply with the message."),
    ("AUTH", -2, "readonly loading fast", "connection", "[user] password", "Authenticate."),
    (
        "ACL",
        -2,
        "readonly admin loading",
        "server",
        "SETUSER name [word ...] | GETUSER name | DELUSER name [name ...] | LIST | USERS | "
        "WHOAMI | CAT [category] | LOG [count|RESET] | DRYRUN name command [argument ...] | "
        "GENPASS [bits] | SAVE | LOAD",
        "Users and their rights.",
    ),
    ("QUIT", -1, "loading fast", "connection", "", "Close the connection."),
    ("RESET", 1, "loading fast", "connection", "", "Reset the connection to its initial state."),
    ("SELECT", 2, "loading fast", "connection", "0", "There is one database, number 0."),
    (
        "CLIENT",
        -2,
        "readonly admin",
        "connection",
        "LIST | KILL ip:port|[ID n] [ADDR ip:port] [TYPE normal] [SKIPME yes|no] | "
        "GETNAME | SETNAME name | ID | INFO | PAUSE ms | REPLY ON|OFF|SKIP | "
        "SETINFO key value | TRACKING OFF | NO-EVICT ON|OFF",
        "Show and change client connections.",
    ),
    (
        "CLUSTER",
        -2,
        "readonly admin",
        "server",
        "NODES | INFO | MYID | MEET host port [bus-port] | FORGET id [FORCE] | LEAVING [yes|no] | "
        "STOPPING [yes|no] | REPAIR | VOTERS [ADD|REMOVE|FORCE node ...] | "
        "RESET [SOFT|HARD] [FORCE] | SAVECONFIG",
        "Show and change the cluster.",
    ),
    ("INFO", -1, "readonly loading", "server", "[section]", "Statistics of this server."),
    ("TIME", 1, "readonly fast", "server", "", "The server's clock: seconds and microseconds."),
    (
        "COMMAND",
        0,
        "readonly loading",
        "server",
        "[COUNT | INFO name ... | DOCS [name ...] | LIST]",
        "The command table.",
    ),
    (
        "CONFIG",
        -2,
        "readonly admin",
        "server",
        "GET pattern | SET name value | RESETSTAT | REWRITE",
        "Read and change the configuration.",
    ),
    (
        "SHUTDOWN",
        -1,
        "readonly admin loading",
        "server",
        "[REWRITE-AOF|SAVE|NOSAVE]",
        "Stop the server; with REWRITE-AOF jobs and queues come back at the next start.",
    ),
    ("MONITOR", 1, "readonly admin", "server", "", "Show every command as it runs."),
    ("BGREWRITEAOF", 1, "readonly admin", "server", "", "Rewrite the journal in the background."),
    (
        "SLOWLOG",
        -2,
        "readonly",
        "server",
        "GET [count] | LEN | RESET",
        "Commands that took long.",
    ),
    (
        "LATENCY",
        -2,
        "readonly admin loading",
        "server",
        "LATEST | HISTORY event | GRAPH event | DOCTOR | RESET [event ...]",
        "When and where the server was slow.",
    ),
    (
        "DEBUG",
        -2,
        "admin",
        "server",
        "FLUSHALL | LOADAOF | SLEEP sec | ERROR text | STRUCTSIZE | CHECK | RESTART [ms]",
        "For tests and debugging.",
    ),
    (
        "LOADJOB",
        2,
        "write",
        "server",
        "blob",
        "Refused: Disque's log has it; `tuque journal import` reads such a log.",
    ),
]


@final
class Command:
    """One row of the table, and its running statistics on this server."""

    def __init__(
        self, name: str, arity: i64, flags: str, group: str, syntax: str, summary: str
    ) -> None:
        self.name = name
        self.wire_name = name.lower().encode()
        self.arity = arity
        self.flags = flags.split()
        self.group = group
        self.syntax = syntax
        self.summary = summary
        self.is_write = "write" in self.flags
        self.is_denyoom = "denyoom" in self.flags
        self.is_loading = "loading" in self.flags
        self.is_fast = "fast" in self.flags
        self.words: i64 = MOST_WORDS[name]  # more are refused (L2.4); see wire/commands/bounds.py
        # its right (N2); none: each subcommand has its own
        self.unit: Unit | None = None if name in CONTAINERS else BY_ROW[name]
        self.is_container = name in CONTAINERS
        self.least: i64 = 0 if self.is_container else BOUNDS[name].least  # units of every call
        self.code: i64 = 0  # row number, set by `table`
        self.calls: i64 = 0
        self.usec_ns: i64 = 0  # time spent, in ns

    def takes(self, count: i64) -> bool:
        """Whether the command may have that many words, including itself."""
        if self.arity >= 0:
            return self.arity == 0 or count == self.arity
        return count >= -self.arity


def most_words() -> dict[str, int]:
    """The most words of each command, or of any of its subcommands."""
    most: dict[str, int] = {}
    for key, bound in BOUNDS.items():
        name = key.split(" ")[0]
        words = ALL_WORDS if bound.words == 0 else bound.words  # 0: its arity decides
        most[name] = max(most.get(name, 0), int(words))
    return most


MOST_WORDS: Final = most_words()


def table() -> dict[bytes, Command]:
    """A fresh table by upper-case name, codes set to the row numbers."""
    commands: dict[bytes, Command] = {}
    for code, (name, arity, flags, group, syntax, summary) in enumerate(ROWS):
        command = Command(name, arity, flags, group, syntax, summary)
        command.code = code
        commands[name.encode()] = command
    return commands
