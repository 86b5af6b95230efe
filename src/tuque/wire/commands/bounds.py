"""The bounds of all commands: words, work, bytes of the reply (SPEC L2).

A row bounds a command's words, its work in one turn and its reply, and says what happens beyond.
Commands with subcommands have a row for each. Work is counted in units (core/model/timers.py): one
job, queue, tube, client or word that is checked or changed. A reply may exceed its bound by one
element, and by a body where `has_body` says so.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.model.timers import REPLY_BYTES, TURN_WORK
from tuque.wire.commands.bound import (
    ALL_WORDS,
    CUT,
    CUT_SLICED,
    FEW_WORDS,
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

_ONE: Final = Bound(0, 1, SMALL, ONE)
_OPTIONS: Final = Bound(FEW_WORDS, FEW_WORDS, SMALL, REFUSED)
_IDS: Final = Bound(ALL_WORDS, TURN_WORK, SMALL, SLICED)
_MANY: Final = Bound(1_003, 1_000, 131_072, REFUSED)
_LISTS: Final = Bound(FEW_WORDS, TURN_WORK + 20, REPLY_BYTES, CUT_SLICED, True)

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
    "ADDJOB": Bound(160, 100, SMALL, REFUSED),
    "GETJOB": Bound(1_024, TURN_WORK + 128, REPLY_BYTES, CUT, True),
    "ACKJOB": _IDS,
    "FASTACK": _IDS,
    "DELJOB": _IDS,
    "NACK": _IDS,
    "ENQUEUE": _IDS,
    "DEQUEUE": _IDS,
    "WORKING": _ONE,
    "START": Bound(1_003, 2_000, 131_072, REFUSED),  # a run costs two units
    "PROGRESS": _ONE,
    "RELEASE": _MANY,
    "FAIL": _OPTIONS,
    "DONE": _MANY,
    "CANCEL": _MANY,
    "RESULT": Bound(FEW_WORDS, 1, SMALL, ONE, True),
    "WAITJOB": Bound(504, 500, 131_072, REFUSED),
    "UPDATEJOB": Bound(160, 100, SMALL, REFUSED),
    "DEAD LIST": Bound(FEW_WORDS, TURN_WORK + 1_000, 4 * REPLY_BYTES, ONE),
    "DEAD SHOW": Bound(3, 1, 131_072, ONE, True),
    "DEAD STAT": Bound(3, TURN_WORK + 2_000, 4 * REPLY_BYTES, SLICED),
    "DEAD REPLAY": Bound(1_010, TURN_WORK + 3_000, SMALL, REFUSED),
    "DEAD PURGE": Bound(1_010, TURN_WORK + 3_000, SMALL, REFUSED),
    "DEADLETTER": Bound(FEW_WORDS, 1, SMALL, ONE),
    "SHOW": Bound(0, 1, SMALL, ONE, True),
    "JSCAN": _LISTS,
    "QLEN": _ONE,
    "QSTAT": Bound(0, TURN_WORK, SMALL, ONE, True),
    "QPEEK": Bound(0, 2 * TURN_WORK, REPLY_BYTES, SLICED, True),
    "QSCAN": _LISTS,
    "HISTORY": Bound(FEW_WORDS, 3_000, 524_288, ONE),
    "QLIST": Bound(1_024, 2 * TURN_WORK, REPLY_BYTES, SLICED, True),
    "PAUSE": _OPTIONS,
    "STAGE": _OPTIONS,
    "HELLO": Bound(FEW_WORDS, 64, SMALL, REFUSED),
    "PING": Bound(FEW_WORDS, 1, SMALL, ONE, True),
    "ECHO": Bound(0, 1, SMALL, ONE, True),
    "AUTH": Bound(FEW_WORDS, 1, SMALL, ONE),
    "ACL SETUSER": Bound(1_003, 2_000, SMALL, REFUSED),
    "ACL DELUSER": Bound(1_003, 2 * TURN_WORK, SMALL, REFUSED),
    "ACL LIST": Bound(2, 2 * TURN_WORK, 8 * REPLY_BYTES, ONE),
    "ACL USERS": Bound(2, 2 * TURN_WORK, 4 * REPLY_BYTES, ONE),
    "ACL GETUSER": Bound(3, 200, 65_536, ONE),
    "ACL LOG": Bound(3, TURN_WORK, REPLY_BYTES, ONE),
    "ACL DRYRUN": Bound(1_024, 1_100, SMALL, REFUSED),
    "ACL": Bound(FEW_WORDS, 300, 65_536, REFUSED),
    "QUIT": _OPTIONS,
    "RESET": _ONE,
    "SELECT": _ONE,
    "TIME": _ONE,
    "COMMAND": Bound(FEW_WORDS, 300, 65_536, REFUSED),
    "INFO": Bound(FEW_WORDS, TURN_WORK, 65_536, ONE),
    "SHUTDOWN": Bound(FEW_WORDS, WHOLE, SMALL, STOPS),
    "MONITOR": _ONE,
    "BGREWRITEAOF": _ONE,
    "LOADJOB": _ONE,
    "PUBLISH": Bound(1_024, TURN_WORK, SMALL, SLICED),
    "LEASE OPEN": Bound(260, TURN_WORK, SMALL, SLICED),
    "LEASE NEXT": Bound(FEW_WORDS, TURN_WORK, SMALL, SLICED),
    "LEASE FETCH": Bound(FEW_WORDS, TURN_WORK, 8 * REPLY_BYTES, CUT, True),
    "LEASE COMMIT": Bound(5, TURN_WORK, SMALL, SLICED),
    "LEASE TOUCH": Bound(6, 1, SMALL, ONE),
    "LEASE NACK": Bound(10_100, 3 * TURN_WORK, SMALL, REFUSED),
    "LEASE GONE": Bound(6, TURN_WORK, SMALL, ONE),
    "LEASE BEGIN": Bound(5, TURN_WORK, SMALL, ONE),
    "LEASE SPLIT": Bound(8, TURN_WORK, SMALL, ONE),
    "LEASE DEFER": Bound(FEW_WORDS, 16 * TURN_WORK, SMALL, ONE),
    "LEASE RELEASE": Bound(4, TURN_WORK, SMALL, SLICED),
    "LEASE INFO": Bound(3, 300, 262_144, ONE),
    "LEASE LIST": Bound(2, 1_000, 300_000, ONE),
    "LEASE HELP": Bound(2, 64, SMALL, ONE),
    **TUBE_BOUNDS,
    "TUBE HELP": Bound(2, 64, SMALL, ONE),
    "SCHEDULE ADD": Bound(160, 200, SMALL, REFUSED),
    "SCHEDULE LIST": Bound(6, TURN_WORK + 1_000, 262_144, CUT),
    "SCHEDULE SHOW": Bound(4, 10, SMALL, ONE, True),
    "SCHEDULE": Bound(FEW_WORDS, 10, SMALL, ONE),
    "LIMITS": Bound(6, 20_100, 524_288, CUT),
    "GROUP CREATE": Bound(160, 200, SMALL, REFUSED),
    "GROUP ADD": Bound(1_005, TURN_WORK, SMALL, REFUSED),
    "GROUP SHOW": Bound(4, 10, SMALL, ONE, True),
    "GROUP RESULTS": Bound(7, 2_000, REPLY_BYTES + 131_072, CUT, True),
    "GROUP CHILDREN": Bound(9, 2_000, 524_288, CUT),
    "GROUP LIST": Bound(8, TURN_WORK + 1_000, 262_144, CUT_SLICED),
    "GROUP CANCEL": Bound(4, TURN_WORK, SMALL, ONE),
    "GROUP HELP": Bound(2, 64, SMALL, ONE),
    "GROUP": _OPTIONS,
    "TOPIC SUBSCRIBE": Bound(21, 128, SMALL, REFUSED),
    "TOPIC LIST": Bound(8, 5_500, 3_145_728, CUT),
    "TOPIC ADD": Bound(160, 3 * TURN_WORK, 16_384, SLICED),
    "TOPIC HELP": Bound(2, 64, SMALL, ONE),
    "TOPIC": _OPTIONS,
    "WORKER HERE": Bound(160, TURN_WORK, SMALL, REFUSED),
    "WORKER LIST": Bound(FEW_WORDS, TURN_WORK + 1_100, REPLY_BYTES + 65_536, CUT_SLICED, True),
    "WORKER DEPLOYS": Bound(2, 200, 262_144, ONE),
    "WORKER": _OPTIONS,
    "CLIENT LIST": Bound(2, 2 * TURN_WORK, REPLY_BYTES, ONE),
    "CLIENT KILL": Bound(FEW_WORDS, 2 * TURN_WORK, SMALL, ONE),
    "CLIENT": _OPTIONS,
    "CLUSTER RESET": Bound(3, WHOLE, SMALL, STOPS),
    "CLUSTER NODES": Bound(2, 200, 65_536, ONE),
    "CLUSTER VOTERS": Bound(FEW_WORDS, TURN_WORK, 65_536, ONE),
    "CLUSTER": Bound(FEW_WORDS, 200, SMALL, ONE),
    "CONFIG": Bound(34, TURN_WORK, 1_048_576, REFUSED),
    "SLOWLOG GET": Bound(3, TURN_WORK, REPLY_BYTES + 8_192, CUT),
    "SLOWLOG": Bound(FEW_WORDS, 64, SMALL, ONE),
    "LATENCY": Bound(FEW_WORDS, TURN_WORK, 65_536, REFUSED),
    "DEBUG FLUSHALL": Bound(2, WHOLE, SMALL, STOPS),
    "DEBUG LOADAOF": Bound(2, WHOLE, SMALL, STOPS),
    "DEBUG SLEEP": Bound(3, WHOLE, SMALL, STOPS),
    "DEBUG CHECK": Bound(2, WHOLE, SMALL, STOPS),
    "DEBUG": Bound(3, 64, SMALL, ONE),
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
