"""Every command, and every subcommand: one row each (SPEC C7, L2, M2, N2).

A row has the name; the right, its places and what it does to memory (wire/commands/commands.py says
what these are); the bound (wire/commands/bound.py), None: that of its command. A command has also
its arity, flags, group, syntax and summary: source of COMMAND, completion and advice of
`tuque cli`, and docs/commands.md. The arity counts the command word; a negative one is a minimum.
A subcommand without a right is one with its command.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.timers import REPLY_BYTES, TURN_WORK
from tuque.wire.commands.bound import (
    ALL_WORDS,
    CUT,
    CUT_SLICED,
    ELSEWHERE,
    FEW_WORDS,
    GROWS,
    JOBS,
    LONGER,
    OF_CALLS,
    OF_CHILDREN,
    OF_CLIENTS,
    OF_FILTERS,
    OF_GROUPS,
    OF_HANDS,
    OF_INSTANTS,
    OF_JOBS,
    OF_KEYS,
    OF_LETTERS,
    OF_NODE,
    OF_NODES,
    OF_OPTIONS,
    OF_POINTS,
    OF_QUEUES,
    OF_REASONS,
    OF_ROWS,
    OF_TASKS,
    OF_USERS,
    OF_VALUES,
    OF_WORDS,
    ONE,
    OPERATES,
    OWN,
    REFUSED,
    SLICED,
    SMALL,
    STAGED,
    STOPS,
    VIEW,
    WHOLE,
    WORK,
    Bound,
)
from tuque.wire.commands.tube_table import PROCEDURES, TUBE_SYNTAX, Procedure

ONE_JOB: Final = Bound(0, 1, SMALL, ONE, OF_JOBS)
FEW_OPTIONS: Final = Bound(FEW_WORDS, FEW_WORDS, SMALL, REFUSED, OF_WORDS)
IDS: Final = Bound(ALL_WORDS, TURN_WORK, SMALL, SLICED, OF_JOBS)
MANY_IDS: Final = Bound(1_003, 1_000, 131_072, REFUSED, OF_JOBS)
LISTS: Final = Bound(FEW_WORDS, TURN_WORK + 20, REPLY_BYTES, CUT_SLICED, OF_ROWS, True)
LONG_WORD: Final = 65_536  # bytes of a word other than a body (L2.9)
LIGHT_WORK: Final = 100  # units: a command within it never waits for the next turn (L2.3)
WORD_BYTES: Final = 20  # no subcommand is longer
NO_SUB: Final = FEW_OPTIONS  # an unknown subcommand: the command replies with an error


@final
class Row:
    """One row."""

    def __init__(
        self,
        name: str,
        right: str,
        places: str,
        memory: str,
        bound: Bound | None,
        arity: i64 = 0,
        flags: str = "",
        group: str = "",
        syntax: str = "",
        summary: str = "",
    ) -> None:
        self.name = name
        self.right = right
        self.places = places
        self.memory = memory
        self.bound = bound
        self.arity = arity
        self.flags = flags
        self.group = group  # empty: a subcommand
        self.syntax = syntax  # after the name
        self.summary = summary


def tube_row(p: Procedure) -> Row:
    """The row of a procedure; one of IPROTO alone has no words."""
    return Row(f"TUBE {p.row_name}", p.right, p.places_of, p.memory, p.bound if p.word else None)


# fmt: off
ROWS: Final[list[Row]] = [
    Row("ADDJOB", "produce", "1 queue, 4 options DEAD", ELSEWHERE,
        Bound(160, 100, SMALL, REFUSED, OF_JOBS),
        -4, "write denyoom fast", "jobs",
        "queue body ms-timeout [REPLICATE count] [DELAY sec] [RETRY sec] [TTL sec] [MAXLEN "
        "count] [ASYNC] [DEDUPE key [DEDUPETTL ms]] [WITHNEW] [PRI n] [UTUBE key] [UNIQUE key "
        "[UNTIL done|start|sec] [ON keep|reject|replace]] [LIMIT key n] [RATE key n/s|m|h "
        "[burst]] [GROUP key [WEIGHT n]] [ATTEMPTS n] [BACKOFF first max jitter] [DEAD queue] "
        "[KEEP sec [BODY]] [TIMELIMIT sec] [ONEXPIRY dead|drop] [HEADERS count name value ...]",
        "Add a job to a queue; the reply is its id, once enough nodes have a copy."),
    Row("GETJOB", "consume", "FROM queues", OWN,
        Bound(1_024, TURN_WORK + 128, REPLY_BYTES, CUT, OF_JOBS, True),
        -2, "write fast", "jobs",
        "[NOHANG] [TIMEOUT ms] [COUNT count] [WITHCOUNTERS] [WITHMETA] [START [WORKER name]] "
        "FROM queue [queue ...]",
        "Take jobs from queues; wait for one unless NOHANG is given."),
    Row("ACKJOB", "consume", "1 jobs", WORK, IDS,
        -1, "write fast", "jobs", "[id ...]",
        "Acknowledge jobs on all nodes."),
    Row("FASTACK", "consume", "1 jobs", WORK, IDS,
        -1, "write fast", "jobs", "[id ...]",
        "Acknowledge jobs, without waiting for other nodes to confirm."),
    Row("DELJOB", "dangerous", "1 jobs", WORK, IDS,
        -1, "write fast", "jobs", "[id ...]",
        "Delete jobs from this node only."),
    Row("NACK", "consume", "1 jobs", WORK, IDS,
        -1, "write fast", "jobs", "[DELAY sec] [id ...]",
        "Put jobs back into their queues, at once or after the delay."),
    Row("ENQUEUE", "consume", "1 jobs", GROWS, IDS,
        -1, "write denyoom fast", "jobs", "[id ...]",
        "Queue active jobs now, regardless of their delay or retry time."),
    Row("DEQUEUE", "consume", "1 jobs", WORK, IDS,
        -1, "write fast", "jobs", "[id ...]",
        "Take jobs out of their queues until their retry time is over."),
    Row("WORKING", "consume", "1 job", WORK, ONE_JOB,
        -2, "write fast", "jobs", "id [run]",
        "Postpone the next delivery of a job being worked on; the reply is its retry time in s."),
    Row("START", "consume", "1 jobs", WORK, Bound(1_003, 3_000, 131_072, REFUSED, OF_JOBS),
        -1, "write fast", "jobs", "[WORKER name] [id ...]",
        "Begin to work on jobs; the reply has for each its run, attempt and limits, or an "
        "error."),
    Row("PROGRESS", "consume", "1 job", WORK, ONE_JOB,
        4, "write fast", "jobs", "id run bytes",
        "Say how far a run is; extends it as WORKING does."),
    Row("RELEASE", "consume", "1 jobs", WORK, MANY_IDS,
        -1, "write fast", "jobs", "[DELAY sec] [id run ...]",
        "Give jobs back; no attempt is counted."),
    Row("FAIL", "consume", "1 job", WORK, FEW_OPTIONS,
        -3, "write fast", "jobs",
        "id run [DELAY sec] [REASON text] [DETAIL bytes] [CAUSE failed|crashed|timeout] [FINAL]",
        "An attempt failed: the job waits for the next one, or becomes a dead letter."),
    Row("DONE", "consume", "1 jobs", WORK, MANY_IDS,
        -1, "write fast", "jobs", "id run [RESULT bytes] | [id run ...]",
        "Jobs are done; the result is kept for the job's KEEP."),
    Row("CANCEL", "produce", "1 jobs", WORK, MANY_IDS,
        -1, "write fast", "jobs", "[REASON text] [id ...]",
        "End jobs that wait; notify the workers of jobs at work."),
    Row("RESULT", "produce inspect", "1 job", OWN, Bound(FEW_WORDS, 1, 163_840, ONE, OF_JOBS, True),
        -2, "readonly fast", "jobs", "id [WAIT ms] [WITHBODY] [WITHATTEMPTS]",
        "State, result or last failure of a job, its body and attempts; with WAIT, once it ended."),
    Row("WAITJOB", "produce inspect", "2 jobs", OWN, Bound(504, 500, 131_072, REFUSED, OF_JOBS),
        -3, "readonly fast", "jobs", "ms id [id ...] [COUNT n]",
        "Wait until jobs, or COUNT of them, have ended, for ms at most; 0: as long as it takes."),
    Row("UPDATEJOB", "produce", "1 job, 2 options HEADERS", GROWS,
        Bound(160, 100, SMALL, REFUSED, OF_JOBS),
        -3, "write denyoom fast", "jobs",
        "id [BODY body] [DELAY sec] [TTL sec] [ATTEMPTS n] [PRI n] [HEADERS count name value ...]",
        "Change a job that nobody works on, or with PRI a task of a tube."),
    Row("DEAD", "dangerous", "", VIEW, None,
        -2, "write", "queues",
        "LIST queue [cursor] [COUNT n] [filter ...] | SHOW id | STAT queue | REPLAY queue [QUEUE "
        "to] [RATE n] [CURSOR n] [COUNT n] ALL|filter ...|IDS id ... | PURGE queue [CURSOR n] "
        "[COUNT n] ALL|filter ...|IDS id ...",
        "Dead letters: jobs whose attempts failed. Filters: REASON glob, TASK glob, CAUSE "
        "word, SINCE ms."),
    Row("DEAD HELP", "connection", "", VIEW, None),
    Row("DEAD LIST", "inspect", "2 queue", VIEW,
        Bound(FEW_WORDS, TURN_WORK + 1_000, 4 * REPLY_BYTES, ONE, OF_LETTERS, least=2)),
    Row("DEAD SHOW", "inspect", "2 job", VIEW,
        Bound(3, 1, 131_072, ONE, OF_LETTERS, True, least=2)),
    Row("DEAD STAT", "inspect", "2 queue", VIEW,
        Bound(3, TURN_WORK + 2_000, 4 * REPLY_BYTES, SLICED, OF_REASONS, least=10)),
    Row("DEAD REPLAY", "admin", "2 queue, 3 options QUEUE, 3 jobs", WORK,
        Bound(1_010, TURN_WORK + 3_000, SMALL, REFUSED, OF_LETTERS, least=2)),
    Row("DEAD PURGE", "admin", "2 queue, 3 jobs", WORK,
        Bound(1_010, TURN_WORK + 3_000, SMALL, REFUSED, OF_LETTERS, least=2)),
    Row("DEADLETTER", "consume", "1 job, 2 queue", LONGER, Bound(FEW_WORDS, 1, SMALL, ONE, OF_JOBS),
        -3, "write fast", "jobs", "id queue [REASON text] [BODY bytes]",
        "Move a failed job to a dead-letter queue, in one step; the reply is the new id."),
    Row("SHOW", "inspect", "1 job", VIEW, Bound(0, 1, SMALL, ONE, OF_JOBS, True),
        2, "readonly fast", "jobs", "id",
        "Show a job."),
    Row("JSCAN", "inspect", "1 options QUEUE, shown", VIEW, LISTS,
        -1, "readonly", "jobs",
        "[cursor] [COUNT count] [BUSYLOOP] [QUEUE queue] [STATE state ...] [REPLY all|id]",
        "Iterate over jobs."),
    Row("QLEN", "inspect", "1 queue", VIEW, ONE_JOB,
        2, "readonly fast", "queues", "queue",
        "Number of jobs queued on this node."),
    Row("QSTAT", "inspect", "1 queue", VIEW,
        Bound(0, TURN_WORK, SMALL, ONE, OF_QUEUES, True, least=2),
        2, "readonly fast", "queues", "queue",
        "Counters and state of a queue on this node."),
    Row("QPEEK", "inspect", "1 queue", VIEW,
        Bound(0, 2 * TURN_WORK, REPLY_BYTES, SLICED, OF_TASKS, True),
        3, "readonly", "queues", "queue count",
        "Show queued jobs without taking them; a negative count shows the newest."),
    Row("QSCAN", "inspect", "shown", VIEW, LISTS,
        -1, "readonly", "queues",
        "[cursor] [COUNT count] [BUSYLOOP] [MINLEN len] [MAXLEN len] [IMPORTRATE rate] [TYPE "
        "type]",
        "Iterate over queues."),
    Row("HISTORY", "inspect", "2 options QUEUE, shown", VIEW,
        Bound(FEW_WORDS, 3_000, 524_288, ONE, OF_POINTS, least=20),
        -2, "readonly fast", "queues",
        "5s|1m [QUEUE name] [FROM ms] [COUNT n] [field ...] | 5s|1m TIMES wait|work [FROM ms] "
        "[COUNT n] | QUEUES",
        "Points of the node's past, or of a queue's: what was added, delivered, acked, ..."),
    Row("QLIST", "inspect", "NAMES names, shown", VIEW,
        Bound(1_024, 2 * TURN_WORK, REPLY_BYTES, SLICED, OF_QUEUES, True, least=2),
        -1, "readonly", "queues",
        "[MATCH glob] [TYPE type] [SORT name|ready|delayed|at-work|dead|oldest|in|out|blocked] "
        "[ASC|DESC] [OFFSET n] [COUNT n] [NAMES queue [queue ...]]",
        "List queues in an order: jobs by state, the oldest one's age, rates."),
    Row("PAUSE", "admin", "1 queue", LONGER, FEW_OPTIONS,
        -3, "write fast", "queues", "queue in|out|all|none|state|bcast ...",
        "Pause a queue: in, out, all, none, state, bcast."),
    Row("STAGE", "produce", "1 own, 4 queue, 6 options DEAD", JOBS,
        Bound(160, 100, SMALL, REFUSED, OF_JOBS),
        -6, "write denyoom fast", "jobs",
        "txn attempt ttl-ms queue body [REPLICATE count] [DELAY sec] [RETRY sec] [TTL sec] "
        "[MAXLEN count] [DEDUPE key [DEDUPETTL ms]] [PRI n] [ATTEMPTS n] "
        "[BACKOFF first max jitter] [DEAD queue] [KEEP sec [BODY]] [TIMELIMIT sec] "
        "[ONEXPIRY dead|drop] [HEADERS count name value ...] [WITHID]",
        "Stage a job in a transaction; it is invisible until PUBLISH."),
    Row("PUBLISH", "produce", "1 own, 3 stage", STAGED,
        Bound(1_024, TURN_WORK, SMALL, SLICED, OF_JOBS),
        -4, "write", "jobs", "app version [ACK group epoch seq] txn [attempt ...]",
        "Add all jobs of the named attempts at once, if the version is new."),
    Row("LEASE", "dangerous", "", VIEW, None,
        -2, "write", "queues",
        "OPEN group owner queue [queue ...] | NEXT group epoch seq COUNT n [BYTES b] [PARTS p] "
        "TTL ms | FETCH group epoch seq part [FROM i] [COUNT k] [BYTES b] [COLUMNS] | GONE group "
        "epoch seq part | BEGIN group epoch seq | SPLIT group epoch seq keep [BEGUN times] | "
        "DEFER group epoch seq [COUNT n] [BYTES b] | COMMIT group epoch seq | TOUCH group epoch "
        "[TTL ms] | NACK group epoch seq id [id ...] | RELEASE group epoch | INFO group | LIST",
        "Take jobs in numbered batches that can be read again, until they are committed."),
    Row("LEASE HELP", "connection", "", VIEW, Bound(2, 64, SMALL, ONE, OF_WORDS, least=64)),
    Row("LEASE OPEN", "consume", "4 queues, 2 group", LONGER,
        Bound(260, TURN_WORK, SMALL, SLICED, OF_QUEUES, least=2)),
    Row("LEASE NEXT", "consume", "2 group", WORK,
        Bound(FEW_WORDS, TURN_WORK, SMALL, SLICED, OF_JOBS)),
    Row("LEASE FETCH", "consume", "2 group", WORK,
        Bound(FEW_WORDS, TURN_WORK, 8 * REPLY_BYTES, CUT, OF_JOBS, True)),
    Row("LEASE GONE", "consume", "2 group", WORK,
        Bound(6, TURN_WORK + 20, SMALL, ONE, OF_JOBS, least=20)),
    Row("LEASE BEGIN", "consume", "2 group", WORK,
        Bound(5, TURN_WORK + 20, SMALL, ONE, OF_JOBS, least=20)),
    Row("LEASE SPLIT", "consume", "2 group", WORK,
        Bound(8, TURN_WORK + 20, SMALL, ONE, OF_JOBS, least=20)),
    Row("LEASE DEFER", "consume", "2 group", WORK,
        Bound(FEW_WORDS, 49 * TURN_WORK, SMALL, SLICED, OF_JOBS, least=20)),
    Row("LEASE COMMIT", "consume", "2 group", WORK, Bound(5, TURN_WORK, SMALL, SLICED, OF_JOBS)),
    Row("LEASE TOUCH", "consume", "2 group", WORK, Bound(6, 1, SMALL, ONE, OF_JOBS)),
    Row("LEASE NACK", "consume", "2 group", WORK,
        Bound(10_100, 3 * TURN_WORK, SMALL, REFUSED, OF_JOBS)),
    Row("LEASE RELEASE", "consume", "2 group", WORK, Bound(4, TURN_WORK, SMALL, SLICED, OF_JOBS)),
    Row("LEASE INFO", "inspect", "2 group", VIEW,
        Bound(3, 49 * TURN_WORK, 262_144, ONE, OF_QUEUES, least=300)),
    Row("LEASE LIST", "inspect", "shown", VIEW,
        Bound(2, 1_000, 300_000, SLICED, OF_ROWS, least=20)),
    Row("TUBE", "dangerous", "", VIEW, None,
        -2, "write", "queues", TUBE_SYNTAX,
        "Tubes: queues with numbered tasks, priorities, sub-queues and a type."),
    Row("TUBE HELP", "connection", "", VIEW, Bound(2, 64, SMALL, ONE, OF_WORDS, least=64)),
    *[tube_row(p) for p in PROCEDURES],
    Row("SCHEDULE", "dangerous", "", VIEW, Bound(FEW_WORDS, 10, SMALL, ONE, OF_INSTANTS, least=100),
        -2, "write", "queues",
        "ADD queue name CRON text [TZ zone]|EVERY sec [MISSED skip|one|all] [RETRY sec] [TTL "
        "sec] [PRI n] [UNIQUE key [UNTIL done|start|sec]] [LIMIT key n] [RATE key n/s|m|h "
        "[burst]] [GROUP key [WEIGHT n]] [ATTEMPTS n] [BACKOFF first max jitter] [DEAD queue] "
        "[KEEP sec [BODY]] [TIMELIMIT sec] [ONEXPIRY dead|drop] [HEADERS count name value ...] "
        "body | LIST queue [cursor] [COUNT n] | SHOW queue name | PAUSE queue name | RESUME queue "
        "name | RUN queue name | DROP queue name",
        "Schedules: jobs that a tube of type tasks gets at times of day, or at intervals."),
    Row("SCHEDULE HELP", "connection", "", VIEW, None),
    Row("SCHEDULE ADD", "produce", "2 queue, 4 options DEAD", JOBS,
        Bound(160, 200, SMALL, REFUSED, OF_INSTANTS, least=150)),
    Row("SCHEDULE LIST", "inspect", "2 queue", VIEW,
        Bound(6, TURN_WORK + 1_000, 262_144, CUT, OF_INSTANTS, least=50)),
    Row("SCHEDULE SHOW", "inspect", "2 queue", VIEW,
        Bound(4, 10, SMALL, ONE, OF_INSTANTS, True, least=100)),
    Row("SCHEDULE PAUSE", "admin", "2 queue", WORK, None),
    Row("SCHEDULE RESUME", "admin", "2 queue", WORK, None),
    Row("SCHEDULE RUN", "produce", "2 queue", JOBS, None),
    Row("SCHEDULE DROP", "produce", "2 queue", WORK, None),
    Row("QUEUE", "dangerous", "", VIEW, FEW_OPTIONS,
        -2, "write", "queues",
        "SET queue [EXPIRES sec] [AUTODELETE yes|no] [TTL sec] [MAXLEN n] | SHOW queue | PURGE "
        "queue [STATE waiting|scheduled|all] [HERE] | DELETE queue [IFUNUSED] [IFEMPTY]",
        "Settings of a queue: when it goes, what its jobs may be; remove its jobs, or the queue."),
    Row("QUEUE HELP", "connection", "", VIEW, None),
    Row("QUEUE SET", "admin produce consume", "2 queue", GROWS, None),
    Row("QUEUE SHOW", "produce consume inspect", "2 queue", VIEW, None),
    Row("QUEUE PURGE", "admin consume", "2 queue", WORK,
        Bound(6, TURN_WORK, SMALL, SLICED, OF_JOBS)),
    Row("QUEUE DELETE", "admin consume", "2 queue", WORK,
        Bound(5, TURN_WORK, SMALL, ONE, OF_JOBS, least=10)),
    Row("VALUE", "dangerous", "", VIEW, FEW_OPTIONS,
        -2, "write", "queues",
        "SET queue name value [TTL sec] [END] [FIXED] [NEW] | GET queue name [name ...] | WAIT "
        "queue ms name [name ...] [COUNT n] | DROP queue name [name ...] | ADD queue name n [TTL "
        "sec] | TALLY queue name index|- value SIZE n [TTL sec] | PARTS queue name [from] [COUNT "
        "n] | SCAN queue [cursor] [MATCH glob] [COUNT n]",
        "Named values that end: set, read and waited for; counters, and parts that are counted "
        "once."),
    Row("VALUE HELP", "connection", "", VIEW, Bound(2, 64, SMALL, ONE, OF_WORDS, least=64)),
    Row("VALUE SET", "produce consume", "2 queue", GROWS,
        Bound(10, 10, SMALL, REFUSED, OF_VALUES)),
    Row("VALUE GET", "produce consume inspect", "2 queue", VIEW,
        Bound(503, 510, REPLY_BYTES + 131_072, CUT, OF_VALUES, True)),
    Row("VALUE WAIT", "produce consume inspect", "2 queue", VIEW,
        Bound(506, 510, REPLY_BYTES + 131_072, CUT, OF_VALUES, True)),
    Row("VALUE DROP", "produce consume", "2 queue", WORK,
        Bound(503, 510, SMALL, REFUSED, OF_VALUES)),
    Row("VALUE ADD", "produce consume", "2 queue", GROWS,
        Bound(7, 10, SMALL, REFUSED, OF_VALUES)),
    Row("VALUE TALLY", "produce consume", "2 queue", GROWS,
        Bound(10, 10, SMALL, REFUSED, OF_VALUES)),
    Row("VALUE PARTS", "produce consume inspect", "2 queue", VIEW,
        Bound(7, 1_210, REPLY_BYTES + 131_072, CUT, OF_VALUES, True)),
    Row("VALUE SCAN", "inspect", "2 queue", VIEW,
        Bound(8, 4_000, 524_288, CUT, OF_VALUES, least=10)),
    Row("LIMITS", "inspect", "1 queue", VIEW, Bound(6, 20_100, 524_288, CUT, OF_KEYS, least=10),
        -2, "readonly", "queues", "queue [COUNT n] [CURSOR c]",
        "Keys of a tube of type tasks for which tasks wait, and its groups with their shares."),
    Row("GROUP", "dangerous", "", VIEW, FEW_OPTIONS,
        -2, "write", "queues",
        "CREATE queue children [ONFAIL stop|wait|continue] [KEEP sec] [THEN-options: RETRY sec, "
        "PRI n, LIMIT key n, RATE key n/s|m|h [burst], GROUP key [WEIGHT n], ATTEMPTS n, BACKOFF "
        "first max jitter, DEAD queue, TIMELIMIT sec, HEADERS count name value ...] [THEN body] "
        "| ADD queue group [NOCANCEL] index id [index id ...] | SHOW queue group | RESULTS queue "
        "group [from] [COUNT n] | CHILDREN queue group [from] [COUNT n] [STATE "
        "open|done|failed|dead] | LIST queue [cursor] [COUNT n] [STATE "
        "open|called|done|failed|cancelled] | CANCEL queue group",
        "Groups of jobs: a job that a tube of type tasks gets when all of its children have "
        "ended."),
    Row("GROUP HELP", "connection", "", VIEW, Bound(2, 64, SMALL, ONE, OF_WORDS, least=64)),
    Row("GROUP CREATE", "produce", "2 queue, 4 options DEAD", JOBS,
        Bound(160, 200, SMALL, REFUSED, OF_GROUPS, least=20)),
    Row("GROUP ADD", "produce", "2 queue, 3 jobs", GROWS,
        Bound(1_005, TURN_WORK, SMALL, REFUSED, OF_CHILDREN, least=10)),
    Row("GROUP SHOW", "produce consume inspect", "2 queue", VIEW,
        Bound(4, 10, SMALL, ONE, OF_GROUPS, True, least=20)),
    Row("GROUP RESULTS", "produce consume inspect", "2 queue", VIEW,
        Bound(7, 2_000, REPLY_BYTES + 131_072, CUT, OF_CHILDREN, True, least=10)),
    Row("GROUP CHILDREN", "produce consume inspect", "2 queue", VIEW,
        Bound(9, 2_000, 524_288, CUT, OF_CHILDREN, least=10)),
    Row("GROUP LIST", "inspect", "2 queue", VIEW,
        Bound(8, TURN_WORK + 1_000, 262_144, CUT_SLICED, OF_GROUPS, least=20)),
    Row("GROUP CANCEL", "produce", "2 queue", WORK,
        Bound(4, TURN_WORK, SMALL, ONE, OF_CHILDREN, least=10)),
    Row("TOPIC", "dangerous", "", VIEW, FEW_OPTIONS,
        -2, "write", "queues",
        "SUBSCRIBE topic queue [KEY pattern] [FILTER name glob [name glob ...]] | UNSUBSCRIBE "
        "topic queue [KEY pattern] | LIST [TOPIC name] [CURSOR c] [COUNT n] | ADD topic body "
        "ms-timeout [KEY key] [options of ADDJOB]",
        "Topics: add a job to all queues that are subscribed, or to none."),
    Row("TOPIC HELP", "connection", "", VIEW, Bound(2, 64, SMALL, ONE, OF_WORDS, least=64)),
    Row("TOPIC SUBSCRIBE", "admin consume", "2 own, 3 queue", GROWS,
        Bound(23, 128, SMALL, REFUSED, OF_FILTERS, least=50)),
    Row("TOPIC UNSUBSCRIBE", "admin consume", "2 own, 3 queue", WORK, None),
    Row("TOPIC LIST", "inspect", "2 options TOPIC, shown", VIEW,
        Bound(8, 7_600, 3_145_728, CUT, OF_FILTERS, least=10)),
    Row("TOPIC ADD", "produce", "2 own, 5 options DEAD", ELSEWHERE,
        Bound(160, 10 * TURN_WORK, 262_144, SLICED, OF_FILTERS, least=10)),
    Row("WORKER", "dangerous", "", VIEW, FEW_OPTIONS,
        -2, "readonly", "server",
        "HERE name [HOST text] [PID n] [VERSION text] [APP text] [SLOTS n] [BUSY n] [DONE n] "
        "[FAILED n] [AGE ms] [QUIET] [QUEUES queue [queue ...]] | BYE name | LIST [cursor] "
        "[COUNT n] [MATCH glob] | DEPLOYS | QUIET name | STOP name",
        "Workers: announce one, list them with what they run, and have one stop."),
    Row("WORKER HELP", "connection", "", VIEW, None),
    Row("WORKER HERE", "consume", "QUEUES queues, 2 worker", OWN,
        Bound(160, TURN_WORK, SMALL, REFUSED, OF_HANDS, least=10)),
    Row("WORKER BYE", "consume", "2 worker", OWN, None),
    Row("WORKER LIST", "inspect", "shown", VIEW,
        Bound(FEW_WORDS, TURN_WORK + 1_100, REPLY_BYTES + 65_536, CUT_SLICED, OF_HANDS, True,
              least=10)),
    Row("WORKER DEPLOYS", "inspect", "shown", VIEW,
        Bound(2, 200, 262_144, ONE, OF_HANDS, least=10)),
    Row("WORKER QUIET", "admin", "2 worker", OWN, None),
    Row("WORKER STOP", "admin", "2 worker", OWN, None),
    Row("HELLO", "connection", "", OWN, Bound(FEW_WORDS, 64, SMALL, REFUSED, OF_WORDS),
        -1, "readonly fast", "connection", "[2|3 [AUTH user password] [SETNAME name]]",
        "Nodes of the cluster; with a number, the protocol version to speak."),
    Row("PING", "connection", "", VIEW, Bound(FEW_WORDS, 1, SMALL, ONE, OF_WORDS, True),
        -1, "readonly fast", "connection", "[message]",
        "Reply PONG, or the message."),
    Row("ECHO", "connection", "", VIEW, Bound(0, 1, SMALL, ONE, OF_WORDS, True),
        2, "readonly fast", "connection", "message",
        "Reply with the message."),
    Row("AUTH", "connection", "", OWN, Bound(FEW_WORDS, 1, SMALL, ONE, OF_CALLS, least=10),
        -2, "readonly loading fast", "connection", "[user] password",
        "Authenticate."),
    Row("ACL", "dangerous", "", VIEW, Bound(FEW_WORDS, 300, 65_536, REFUSED, OF_USERS, least=50),
        -2, "readonly admin loading", "server",
        "SETUSER name [word ...] | GETUSER name | DELUSER name [name ...] | LIST | USERS | "
        "WHOAMI | CAT [category] | LOG [count|RESET] | DRYRUN name command [argument ...] | "
        "GENPASS [bits] | SAVE | LOAD",
        "Users and their rights."),
    Row("ACL HELP", "connection", "", VIEW, None),
    Row("ACL WHOAMI", "connection", "", VIEW, None),
    Row("ACL CAT", "connection", "", VIEW, None),
    Row("ACL GENPASS", "connection", "", VIEW, None),
    Row("ACL USERS", "admin", "", VIEW,
        Bound(2, 2 * TURN_WORK, 4 * REPLY_BYTES, ONE, OF_USERS, least=20)),
    Row("ACL LIST", "dangerous", "", VIEW,
        Bound(2, 2 * TURN_WORK, 8 * REPLY_BYTES, ONE, OF_USERS, least=20)),
    Row("ACL GETUSER", "dangerous", "", VIEW, Bound(3, 200, 65_536, ONE, OF_USERS, least=50)),
    Row("ACL LOG", "admin", "", VIEW, Bound(3, TURN_WORK, REPLY_BYTES, ONE, OF_USERS, least=50)),
    Row("ACL DRYRUN", "admin", "", VIEW, Bound(1_024, 1_100, SMALL, REFUSED, OF_USERS, least=20)),
    Row("ACL SETUSER", "dangerous", "", OWN,
        Bound(1_003, 2_000, SMALL, REFUSED, OF_USERS, least=20)),
    Row("ACL DELUSER", "dangerous", "", OPERATES,
        Bound(1_003, 2 * TURN_WORK, SMALL, REFUSED, OF_USERS, least=20)),
    Row("ACL LOAD", "dangerous", "", OWN, None),
    Row("ACL SAVE", "dangerous", "", OPERATES, None),
    Row("QUIT", "connection", "", VIEW, FEW_OPTIONS,
        -1, "loading fast", "connection", "",
        "Close the connection."),
    Row("RESET", "connection", "", VIEW, ONE_JOB,
        1, "loading fast", "connection", "",
        "Reset the connection to its initial state."),
    Row("SELECT", "connection", "", VIEW, ONE_JOB,
        2, "loading fast", "connection", "0",
        "There is one database, number 0."),
    Row("CLIENT", "dangerous", "", VIEW, FEW_OPTIONS,
        -2, "readonly admin", "connection",
        "LIST | KILL ip:port|[ID n] [ADDR ip:port] [TYPE normal] [SKIPME yes|no] | UNBLOCK n "
        "| GETNAME | SETNAME name | ID | INFO | PAUSE ms | REPLY ON|OFF|SKIP | SETINFO key value | "
        "TRACKING OFF | NO-EVICT ON|OFF",
        "Show and change client connections."),
    Row("CLIENT HELP", "connection", "", VIEW, None),
    Row("CLIENT LIST", "admin", "", VIEW,
        Bound(2, 10 * TURN_WORK, REPLY_BYTES, ONE, OF_CLIENTS, least=10)),
    Row("CLIENT KILL", "admin", "", OPERATES,
        Bound(FEW_WORDS, 2 * TURN_WORK, SMALL, ONE, OF_CLIENTS, least=10)),
    Row("CLIENT UNBLOCK", "connection", "", OPERATES, None),
    Row("CLIENT GETNAME", "connection", "", VIEW, None),
    Row("CLIENT SETNAME", "connection", "", OWN, None),
    Row("CLIENT ID", "connection", "", VIEW, None),
    Row("CLIENT INFO", "connection", "", VIEW, Bound(2, 10, SMALL, ONE, OF_CLIENTS, least=10)),
    Row("CLIENT PAUSE", "admin", "", OPERATES, None),
    Row("CLIENT UNPAUSE", "admin", "", OPERATES, None),
    Row("CLIENT REPLY", "connection", "", OWN, None),
    Row("CLIENT SETINFO", "connection", "", OWN, None),
    Row("CLIENT TRACKING", "connection", "", OWN, None),
    Row("CLIENT NO-EVICT", "connection", "", OWN, None),
    Row("CLIENT NO-TOUCH", "connection", "", OWN, None),
    Row("CLUSTER", "dangerous", "", VIEW, Bound(FEW_WORDS, 200, SMALL, ONE, OF_NODES, least=50),
        -2, "readonly admin", "server",
        "NODES | INFO | MYID | MEET host port [bus-port] | FORGET id [FORCE] | LEAVING [yes|no] "
        "| STOPPING [yes|no] | REPAIR | VOTERS [ADD|REMOVE|FORCE node ...] | RESET [SOFT|HARD] "
        "[FORCE] | SAVECONFIG",
        "Show and change the cluster."),
    Row("CLUSTER HELP", "connection", "", VIEW, None),
    Row("CLUSTER NODES", "inspect", "", VIEW, Bound(2, 200, 65_536, ONE, OF_NODES, least=200)),
    Row("CLUSTER INFO", "inspect", "", VIEW, None),
    Row("CLUSTER MYID", "inspect", "", VIEW, None),
    Row("CLUSTER MEET", "admin", "", OPERATES, None),
    Row("CLUSTER FORGET", "dangerous", "", OPERATES, None),
    Row("CLUSTER LEAVING", "admin", "", OPERATES, None),
    Row("CLUSTER STOPPING", "admin", "", OPERATES, None),
    Row("CLUSTER REPAIR", "admin", "", OPERATES, None),
    Row("CLUSTER RESET", "dangerous", "", OPERATES, Bound(4, WHOLE, SMALL, STOPS, OF_NODE)),
    Row("CLUSTER SAVECONFIG", "admin", "", OPERATES, None),
    Row("CLUSTER VOTERS", "dangerous", "", OPERATES,
        Bound(FEW_WORDS, TURN_WORK, 65_536, ONE, OF_NODES, least=50)),
    Row("INFO", "inspect", "", VIEW, Bound(FEW_WORDS, TURN_WORK, 65_536, ONE, OF_ROWS, least=20),
        -1, "readonly loading", "server", "[section]",
        "Statistics of this server."),
    Row("TIME", "connection", "", VIEW, ONE_JOB,
        1, "readonly fast", "server", "",
        "The server's clock: seconds and microseconds."),
    Row("COMMAND", "connection", "", VIEW,
        Bound(FEW_WORDS, 2_000, 65_536, REFUSED, OF_ROWS, least=20),
        0, "readonly loading", "server", "[COUNT | INFO name ... | DOCS [name ...] | LIST]",
        "The command table."),
    Row("CONFIG", "dangerous", "", VIEW,
        Bound(34, TURN_WORK, 1_048_576, REFUSED, OF_OPTIONS, least=20),
        -2, "readonly admin", "server", "GET pattern | SET name value | RESETSTAT | REWRITE",
        "Read and change the configuration."),
    Row("CONFIG HELP", "connection", "", VIEW, None),
    Row("CONFIG GET", "admin", "", VIEW, None),
    Row("CONFIG SET", "dangerous", "", OPERATES, None),
    Row("CONFIG RESETSTAT", "admin", "", OPERATES, None),
    Row("CONFIG REWRITE", "dangerous", "", OPERATES, None),
    Row("SHUTDOWN", "dangerous", "", OPERATES, Bound(FEW_WORDS, WHOLE, SMALL, STOPS, OF_NODE),
        -1, "readonly admin loading", "server", "[REWRITE-AOF|SAVE|NOSAVE]",
        "Stop the server; with REWRITE-AOF jobs and queues come back at the next start."),
    Row("MONITOR", "dangerous", "", OWN, ONE_JOB,
        1, "readonly admin", "server", "",
        "Show every command as it runs."),
    Row("BGREWRITEAOF", "admin", "", OPERATES, ONE_JOB,
        1, "readonly admin", "server", "",
        "Rewrite the journal in the background."),
    Row("SLOWLOG", "dangerous", "", VIEW, Bound(FEW_WORDS, 64, SMALL, ONE, OF_ROWS, least=20),
        -2, "readonly", "server", "GET [count] | LEN | RESET",
        "Commands that took long."),
    Row("SLOWLOG HELP", "connection", "", VIEW, None),
    Row("SLOWLOG GET", "dangerous", "", VIEW,
        Bound(3, TURN_WORK, REPLY_BYTES + 8_192, CUT, OF_ROWS, least=5)),
    Row("SLOWLOG LEN", "admin", "", VIEW, None),
    Row("SLOWLOG RESET", "admin", "", OPERATES, None),
    Row("LATENCY", "admin", "", VIEW,
        Bound(FEW_WORDS, TURN_WORK, 65_536, REFUSED, OF_ROWS, least=100),
        -2, "readonly admin loading", "server",
        "LATEST | HISTORY event | GRAPH event | DOCTOR | RESET [event ...]",
        "When and where the server was slow."),
    Row("DEBUG", "dangerous", "", OPERATES, Bound(3, 64, SMALL, ONE, OF_CALLS, least=20),
        -2, "admin", "server",
        "FLUSHALL | LOADAOF | SLEEP sec | ERROR text | STRUCTSIZE | CHECK | RESTART [ms]",
        "For tests and debugging."),
    Row("DEBUG FLUSHALL", "", "", OPERATES, Bound(2, WHOLE, SMALL, STOPS, OF_NODE)),
    Row("DEBUG LOADAOF", "", "", OPERATES, Bound(2, WHOLE, SMALL, STOPS, OF_NODE)),
    Row("DEBUG SLEEP", "", "", OPERATES, Bound(3, WHOLE, SMALL, STOPS, OF_NODE)),
    Row("DEBUG CHECK", "", "", OPERATES, Bound(2, WHOLE, SMALL, STOPS, OF_NODE)),
    Row("LOADJOB", "dangerous", "", VIEW, ONE_JOB,
        2, "write", "server", "blob",
        "Refused: Disque's log has it; `tuque journal import` reads such a log."),
]
# fmt: on
COMMAND_ROWS: Final = [row for row in ROWS if row.group != ""]  # without the subcommands
CONTAINERS: Final = list(dict.fromkeys([r.name.partition(" ")[0] for r in ROWS if " " in r.name]))
BOUNDS: Final[dict[str, Bound]] = {row.name: row.bound for row in ROWS if row.bound is not None}
MEMORY: Final[dict[str, str]] = {row.name: row.memory for row in ROWS if row.right != ""}


# positions of bodies, whose length only the protocol limits
BODIES: Final[dict[str, i64]] = {
    "ADDJOB": 2,
    "TUBE PUT": 3,
    "TOPIC ADD": 3,
    "STAGE": 5,
    "LOADJOB": 1,
    "PING": 1,
    "ECHO": 1,
    "DONE": 4,
    "VALUE SET": 4,
    "VALUE TALLY": 5,
}


BODY_OPTIONS: Final = ("DEADLETTER", "UPDATEJOB", "FAIL")


def long_word(name: str, args: list[bytes]) -> i64:
    """[L2] The first word that is too long for its position, -1 if there is none (L2.9)."""
    if name in ("TUBE", "TOPIC", "VALUE") and len(args) > 1:
        name += " " + args[1][:WORD_BYTES].decode("ascii", "replace").upper()
    body: i64 = BODIES.get(name, -1)
    if name == "SCHEDULE":
        body = len(args) - 1  # of ADD; no other one has a body
    elif name == "GROUP" and len(args) > 2 and args[len(args) - 2].upper() == b"THEN":
        body = len(args) - 1
    for i in range(1, len(args)):
        if len(args[i]) > LONG_WORD and i != body:
            if name in BODY_OPTIONS and args[i - 1].upper() in (b"BODY", b"DETAIL"):
                continue
            return i
    return -1


def most_words() -> dict[str, int]:
    """The most words of each command, or of any of its subcommands."""
    most: dict[str, int] = {}
    for key, bound in BOUNDS.items():
        name = key.split(" ")[0]
        words = ALL_WORDS if bound.words == 0 else bound.words  # 0: its arity decides
        most[name] = max(most.get(name, 0), int(words))
    return most


MOST_WORDS: Final = most_words()
