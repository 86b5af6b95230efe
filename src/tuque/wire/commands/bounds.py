"""The bounds of all commands: words, work, bytes of the reply (SPEC L2).

A row bounds a command's words, its work in one turn and its reply, and says what happens beyond.
Commands with subcommands have a row for each. Work is counted in units (core/model/timers.py): one
job, queue, tube, client or word that is checked or changed. A reply may exceed its bound by one
element, and by a body where `has_body` says so. A row also names what a unit of its command is, and
how many of them a call costs at the least: a command without a cost cannot be written down.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.model.timers import REPLY_BYTES, TURN_WORK
from tuque.wire.commands.bound import (
    ALL_WORDS,
    CUT,
    CUT_SLICED,
    FEW_WORDS,
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
    OF_WORDS,
    ONE,
    REFUSED,
    SLICED,
    SMALL,
    STOPS,
    WHOLE,
    Bound,
)
from tuque.wire.commands.tube_table import TUBE_BOUNDS

LONG_WORD: Final = 65_536  # bytes of a word other than a body (L2.9)
LIGHT_WORK: Final = 100  # units: a command within it never waits for the next turn (L2.3)

_ONE: Final = Bound(0, 1, SMALL, ONE, OF_JOBS)
_OPTIONS: Final = Bound(FEW_WORDS, FEW_WORDS, SMALL, REFUSED, OF_WORDS)
_IDS: Final = Bound(ALL_WORDS, TURN_WORK, SMALL, SLICED, OF_JOBS)
_MANY: Final = Bound(1_003, 1_000, 131_072, REFUSED, OF_JOBS)
_LISTS: Final = Bound(FEW_WORDS, TURN_WORK + 20, REPLY_BYTES, CUT_SLICED, OF_ROWS, True)

CONTAINERS: Final = [
    "DEAD",
    "LEASE",
    "TUBE",
    "SCHEDULE",
    "GROUP",
    "TOPIC",
    "WORKER",
    "CLIENT",
    "CLUSTER",
    "CONFIG",
    "SLOWLOG",
    "DEBUG",
    "ACL",
]
WORD_BYTES: Final = 20  # no subcommand is longer
NO_SUB: Final = _OPTIONS  # an unknown subcommand: the command replies with an error

BOUNDS: Final[dict[str, Bound]] = {
    "ADDJOB": Bound(160, 100, SMALL, REFUSED, OF_JOBS),
    "GETJOB": Bound(1_024, TURN_WORK + 128, REPLY_BYTES, CUT, OF_JOBS, True),
    "ACKJOB": _IDS,
    "FASTACK": _IDS,
    "DELJOB": _IDS,
    "NACK": _IDS,
    "ENQUEUE": _IDS,
    "DEQUEUE": _IDS,
    "WORKING": _ONE,
    "START": Bound(1_003, 2_000, 131_072, REFUSED, OF_JOBS),  # a run costs two units
    "PROGRESS": _ONE,
    "RELEASE": _MANY,
    "FAIL": _OPTIONS,
    "DONE": _MANY,
    "CANCEL": _MANY,
    "RESULT": Bound(FEW_WORDS, 1, SMALL, ONE, OF_JOBS, True),
    "WAITJOB": Bound(504, 500, 131_072, REFUSED, OF_JOBS),
    "UPDATEJOB": Bound(160, 100, SMALL, REFUSED, OF_JOBS),
    "DEAD LIST": Bound(FEW_WORDS, TURN_WORK + 1_000, 4 * REPLY_BYTES, ONE, OF_LETTERS, least=2),
    "DEAD SHOW": Bound(3, 1, 131_072, ONE, OF_LETTERS, True, least=2),
    "DEAD STAT": Bound(3, TURN_WORK + 2_000, 4 * REPLY_BYTES, SLICED, OF_REASONS, least=10),
    "DEAD REPLAY": Bound(1_010, TURN_WORK + 3_000, SMALL, REFUSED, OF_LETTERS, least=2),
    "DEAD PURGE": Bound(1_010, TURN_WORK + 3_000, SMALL, REFUSED, OF_LETTERS, least=2),
    "DEADLETTER": Bound(FEW_WORDS, 1, SMALL, ONE, OF_JOBS),
    "SHOW": Bound(0, 1, SMALL, ONE, OF_JOBS, True),
    "JSCAN": _LISTS,
    "QLEN": _ONE,
    "QSTAT": Bound(0, TURN_WORK, SMALL, ONE, OF_QUEUES, True, least=2),
    "QPEEK": Bound(0, 2 * TURN_WORK, REPLY_BYTES, SLICED, OF_TASKS, True),
    "QSCAN": _LISTS,
    "HISTORY": Bound(FEW_WORDS, 3_000, 524_288, ONE, OF_POINTS, least=20),
    "QLIST": Bound(1_024, 2 * TURN_WORK, REPLY_BYTES, SLICED, OF_QUEUES, True, least=2),
    "PAUSE": _OPTIONS,
    "STAGE": _OPTIONS,
    "HELLO": Bound(FEW_WORDS, 64, SMALL, REFUSED, OF_WORDS),
    "PING": Bound(FEW_WORDS, 1, SMALL, ONE, OF_WORDS, True),
    "ECHO": Bound(0, 1, SMALL, ONE, OF_WORDS, True),
    "AUTH": Bound(FEW_WORDS, 1, SMALL, ONE, OF_CALLS, least=10),
    "ACL SETUSER": Bound(1_003, 2_000, SMALL, REFUSED, OF_USERS, least=20),
    "ACL DELUSER": Bound(1_003, 2 * TURN_WORK, SMALL, REFUSED, OF_USERS, least=20),
    "ACL LIST": Bound(2, 2 * TURN_WORK, 8 * REPLY_BYTES, ONE, OF_USERS, least=20),
    "ACL USERS": Bound(2, 2 * TURN_WORK, 4 * REPLY_BYTES, ONE, OF_USERS, least=20),
    "ACL GETUSER": Bound(3, 200, 65_536, ONE, OF_USERS, least=50),
    "ACL LOG": Bound(3, TURN_WORK, REPLY_BYTES, ONE, OF_USERS, least=50),
    "ACL DRYRUN": Bound(1_024, 1_100, SMALL, REFUSED, OF_USERS, least=20),
    "ACL": Bound(FEW_WORDS, 300, 65_536, REFUSED, OF_USERS, least=50),
    "QUIT": _OPTIONS,
    "RESET": _ONE,
    "SELECT": _ONE,
    "TIME": _ONE,
    "COMMAND": Bound(FEW_WORDS, 2_000, 65_536, REFUSED, OF_ROWS, least=20),
    "INFO": Bound(FEW_WORDS, TURN_WORK, 65_536, ONE, OF_ROWS, least=20),
    "SHUTDOWN": Bound(FEW_WORDS, WHOLE, SMALL, STOPS, OF_NODE),
    "MONITOR": _ONE,
    "BGREWRITEAOF": _ONE,
    "LOADJOB": _ONE,
    "PUBLISH": Bound(1_024, TURN_WORK, SMALL, SLICED, OF_JOBS),
    "LEASE OPEN": Bound(260, TURN_WORK, SMALL, SLICED, OF_QUEUES, least=2),
    "LEASE NEXT": Bound(FEW_WORDS, TURN_WORK, SMALL, SLICED, OF_JOBS),
    "LEASE FETCH": Bound(FEW_WORDS, TURN_WORK, 8 * REPLY_BYTES, CUT, OF_JOBS, True),
    "LEASE COMMIT": Bound(5, TURN_WORK, SMALL, SLICED, OF_JOBS),
    "LEASE TOUCH": Bound(6, 1, SMALL, ONE, OF_JOBS),
    "LEASE NACK": Bound(10_100, 3 * TURN_WORK, SMALL, REFUSED, OF_JOBS),
    "LEASE GONE": Bound(6, TURN_WORK, SMALL, ONE, OF_JOBS, least=20),
    "LEASE BEGIN": Bound(5, TURN_WORK, SMALL, ONE, OF_JOBS, least=20),
    "LEASE SPLIT": Bound(8, TURN_WORK, SMALL, ONE, OF_JOBS, least=20),
    "LEASE DEFER": Bound(FEW_WORDS, 16 * TURN_WORK, SMALL, ONE, OF_JOBS, least=100),
    "LEASE RELEASE": Bound(4, TURN_WORK, SMALL, SLICED, OF_JOBS),
    "LEASE INFO": Bound(3, 49 * TURN_WORK, 262_144, ONE, OF_QUEUES, least=300),
    "LEASE LIST": Bound(2, 1_000, 300_000, SLICED, OF_ROWS, least=20),
    "LEASE HELP": Bound(2, 64, SMALL, ONE, OF_WORDS, least=64),
    **TUBE_BOUNDS,
    "TUBE HELP": Bound(2, 64, SMALL, ONE, OF_WORDS, least=64),
    "SCHEDULE ADD": Bound(160, 200, SMALL, REFUSED, OF_INSTANTS, least=150),
    "SCHEDULE LIST": Bound(6, TURN_WORK + 1_000, 262_144, CUT, OF_INSTANTS, least=50),
    "SCHEDULE SHOW": Bound(4, 10, SMALL, ONE, OF_INSTANTS, True, least=100),
    "SCHEDULE": Bound(FEW_WORDS, 10, SMALL, ONE, OF_INSTANTS, least=100),
    "LIMITS": Bound(6, 20_100, 524_288, CUT, OF_KEYS, least=10),
    "GROUP CREATE": Bound(160, 200, SMALL, REFUSED, OF_GROUPS, least=20),
    "GROUP ADD": Bound(1_005, TURN_WORK, SMALL, REFUSED, OF_CHILDREN, least=10),
    "GROUP SHOW": Bound(4, 10, SMALL, ONE, OF_GROUPS, True, least=20),
    "GROUP RESULTS": Bound(7, 2_000, REPLY_BYTES + 131_072, CUT, OF_CHILDREN, True, least=10),
    "GROUP CHILDREN": Bound(9, 2_000, 524_288, CUT, OF_CHILDREN, least=10),
    "GROUP LIST": Bound(8, TURN_WORK + 1_000, 262_144, CUT_SLICED, OF_GROUPS, least=20),
    "GROUP CANCEL": Bound(4, TURN_WORK, SMALL, ONE, OF_CHILDREN, least=10),
    "GROUP HELP": Bound(2, 64, SMALL, ONE, OF_WORDS, least=64),
    "GROUP": _OPTIONS,
    "TOPIC SUBSCRIBE": Bound(21, 128, SMALL, REFUSED, OF_FILTERS, least=50),
    "TOPIC LIST": Bound(8, 5_600, 3_145_728, CUT, OF_FILTERS, least=10),
    "TOPIC ADD": Bound(160, 3 * TURN_WORK, 16_384, SLICED, OF_FILTERS, least=10),
    "TOPIC HELP": Bound(2, 64, SMALL, ONE, OF_WORDS, least=64),
    "TOPIC": _OPTIONS,
    "WORKER HERE": Bound(160, TURN_WORK, SMALL, REFUSED, OF_HANDS, least=10),
    "WORKER LIST": Bound(
        FEW_WORDS, TURN_WORK + 1_100, REPLY_BYTES + 65_536, CUT_SLICED, OF_HANDS, True, least=10
    ),
    "WORKER DEPLOYS": Bound(2, 200, 262_144, ONE, OF_HANDS, least=10),
    "WORKER": _OPTIONS,
    "CLIENT LIST": Bound(2, 10 * TURN_WORK, REPLY_BYTES, ONE, OF_CLIENTS, least=10),
    "CLIENT KILL": Bound(FEW_WORDS, 2 * TURN_WORK, SMALL, ONE, OF_CLIENTS, least=10),
    "CLIENT INFO": Bound(2, 10, SMALL, ONE, OF_CLIENTS, least=10),
    "CLIENT": _OPTIONS,
    "CLUSTER RESET": Bound(4, WHOLE, SMALL, STOPS, OF_NODE),
    "CLUSTER NODES": Bound(2, 200, 65_536, ONE, OF_NODES, least=200),
    "CLUSTER VOTERS": Bound(FEW_WORDS, TURN_WORK, 65_536, ONE, OF_NODES, least=50),
    "CLUSTER": Bound(FEW_WORDS, 200, SMALL, ONE, OF_NODES, least=50),
    "CONFIG": Bound(34, TURN_WORK, 1_048_576, REFUSED, OF_OPTIONS, least=20),
    "SLOWLOG GET": Bound(3, TURN_WORK, REPLY_BYTES + 8_192, CUT, OF_ROWS, least=5),
    "SLOWLOG": Bound(FEW_WORDS, 64, SMALL, ONE, OF_ROWS, least=20),
    "LATENCY": Bound(FEW_WORDS, TURN_WORK, 65_536, REFUSED, OF_ROWS, least=100),
    "DEBUG FLUSHALL": Bound(2, WHOLE, SMALL, STOPS, OF_NODE),
    "DEBUG LOADAOF": Bound(2, WHOLE, SMALL, STOPS, OF_NODE),
    "DEBUG SLEEP": Bound(3, WHOLE, SMALL, STOPS, OF_NODE),
    "DEBUG CHECK": Bound(2, WHOLE, SMALL, STOPS, OF_NODE),
    "DEBUG": Bound(3, 64, SMALL, ONE, OF_CALLS, least=20),
}


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
}


BODY_OPTIONS: Final = ("DEADLETTER", "UPDATEJOB", "FAIL")


def long_word(name: str, args: list[bytes]) -> i64:
    """[L2] The first word that is too long for its position, -1 if there is none (L2.9)."""
    if name == "TUBE" and len(args) > 1 and args[1].upper() == b"PUT":
        name = "TUBE PUT"
    elif name == "TOPIC" and len(args) > 1 and args[1].upper() == b"ADD":
        name = "TOPIC ADD"
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


def bound_of(name: str, args: list[bytes]) -> Bound:
    """The row of a command, or of its subcommand."""
    bound = BOUNDS.get(name)
    if len(args) > 1 and name in CONTAINERS:
        word = args[1][:WORD_BYTES].decode("ascii", "replace").upper()
        bound = BOUNDS.get(name + " " + word, bound)
    return NO_SUB if bound is None else bound


# ---- Up to which level of memory a command is taken, and why (SPEC M2.3, M2.4)
#
# A row for each unit of wire/commands/rights.py; a unit without one cannot be written down.

# refused above a part of maxmemory
JOBS: Final = "refused above 75 %: adds jobs here"
ELSEWHERE: Final = "above 75 % only other nodes take its jobs; refused above 100 %"
GROWS: Final = "refused above 100 %: adds what stays"
LONGER: Final = "refused above 100 % if it makes something new or longer"
# taken at every level
WORK: Final = "taken: takes, does or ends work"
STAGED: Final = "taken: what it adds counts since it was staged"
VIEW: Final = "taken: keeps nothing"
OWN: Final = "taken: what it keeps has a bound of its own"
OPERATES: Final = "taken: operates the node"

_BY_KIND: Final[dict[str, str]] = {
    JOBS: "STAGE, TUBE PUT, SCHEDULE ADD, SCHEDULE RUN, GROUP CREATE",
    ELSEWHERE: "ADDJOB, TOPIC ADD",
    GROWS: "ENQUEUE, UPDATEJOB, TUBE CREATE, GROUP ADD, TOPIC SUBSCRIBE",
    LONGER: "DEADLETTER, PAUSE, LEASE OPEN",
    WORK: "ACKJOB, FASTACK, DELJOB, NACK, DEQUEUE, WORKING, START, PROGRESS, RELEASE, FAIL, DONE, "
    "CANCEL, DEAD REPLAY, DEAD PURGE, LEASE NEXT, LEASE FETCH, LEASE GONE, LEASE BEGIN, "
    "LEASE SPLIT, LEASE DEFER, LEASE COMMIT, LEASE TOUCH, LEASE NACK, LEASE RELEASE, TUBE TAKE, "
    "TUBE ACK, TUBE RELEASE, TUBE TOUCH, TUBE BURY, TUBE KICK, TUBE DELETE, TUBE TRUNCATE, "
    "TUBE RELEASEALL, TUBE DROP, GROUP CANCEL, TOPIC UNSUBSCRIBE, SCHEDULE PAUSE, "
    "SCHEDULE RESUME, SCHEDULE DROP",
    STAGED: "PUBLISH",
    VIEW: "DEAD, DEAD HELP, DEAD LIST, DEAD SHOW, DEAD STAT, SHOW, JSCAN, QLEN, QSTAT, QPEEK, "
    "QSCAN, HISTORY, QLIST, LEASE, LEASE HELP, LEASE INFO, LEASE LIST, TUBE, TUBE HELP, "
    "TUBE PEEK, TUBE TASKS, TUBE INFO, TUBE LIST, TUBE STATISTICS, TUBE STATE, TUBE CHANGES, "
    "TUBE GRANTS, TUBE DRIVERS, GROUP, GROUP HELP, GROUP SHOW, GROUP RESULTS, GROUP CHILDREN, "
    "GROUP LIST, TOPIC, TOPIC HELP, TOPIC LIST, SCHEDULE, SCHEDULE HELP, SCHEDULE LIST, "
    "SCHEDULE SHOW, LIMITS, WORKER, WORKER HELP, WORKER LIST, WORKER DEPLOYS, PING, ECHO, QUIT, "
    "RESET, SELECT, CLIENT, CLIENT HELP, CLIENT LIST, CLIENT GETNAME, CLIENT ID, CLIENT INFO, "
    "CLUSTER, CLUSTER HELP, CLUSTER NODES, CLUSTER INFO, CLUSTER MYID, INFO, TIME, COMMAND, "
    "CONFIG, CONFIG HELP, CONFIG GET, SLOWLOG, SLOWLOG HELP, SLOWLOG GET, SLOWLOG LEN, LATENCY, "
    "LOADJOB, ACL, ACL HELP, ACL WHOAMI, ACL CAT, ACL GENPASS, ACL USERS, ACL LIST, ACL GETUSER, "
    "ACL LOG, ACL DRYRUN",
    OWN: "GETJOB, RESULT, WAITJOB, WORKER HERE, WORKER BYE, WORKER QUIET, WORKER STOP, "
    "TUBE IDENTIFY, TUBE SUBSCRIBE, TUBE UNSUBSCRIBE, TUBE GRANT, TUBE REVOKE, TUBE GRANT_ROLE, "
    "TUBE ON_TASK_CHANGE, HELLO, AUTH, CLIENT SETNAME, CLIENT SETINFO, CLIENT REPLY, "
    "CLIENT TRACKING, CLIENT NO-EVICT, CLIENT NO-TOUCH, MONITOR, ACL SETUSER, ACL LOAD",
    OPERATES: "TUBE HOME, TUBE CFG, TUBE REGISTERDRIVER, CLIENT KILL, CLIENT PAUSE, "
    "CLIENT UNPAUSE, CLUSTER MEET, CLUSTER FORGET, CLUSTER LEAVING, CLUSTER STOPPING, "
    "CLUSTER REPAIR, CLUSTER RESET, CLUSTER SAVECONFIG, CLUSTER VOTERS, CONFIG SET, "
    "CONFIG RESETSTAT, CONFIG REWRITE, SHUTDOWN, BGREWRITEAOF, SLOWLOG RESET, DEBUG, "
    "ACL DELUSER, ACL SAVE",
}
MEMORY: Final[dict[str, str]] = {
    row: kind for kind, rows in _BY_KIND.items() for row in rows.split(", ")
}
