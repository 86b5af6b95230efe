"""Refusals of tubes: codes with arguments. server/replies/errors.py has the texts."""

from typing import Final

from mypy_extensions import i64

NOT_TAKEN: Final = 1
NOT_FOUND: Final = 2
NO_TOUCH: Final = 3
CONSUMERS: Final = 4
TAKEN_TASKS: Final = 5
NO_TUBE: Final = 6
UNKNOWN_TYPE: Final = 7
EXISTS: Final = 8
TUBES_MAX: Final = 9
MANY_GRANTS: Final = 10
OTHER_TYPE: Final = 11
TEMPORARY: Final = 12
NO_VINYL: Final = 13
NO_VINYL_BUFFER: Final = 14
NO_ENGINE: Final = 15
BAD_UUID: Final = 16
UNKNOWN_UUID: Final = 17
BAD_TTR: Final = 18
OVERRIDING: Final = 19
NO_DRIVER: Final = 20
NO_DRIVER_CLASS: Final = 21
EMPTY_NAME: Final = 22
LONG_NAME: Final = 23
LONG_OPTION: Final = 24
DOTTED: Final = 25
PAUSED: Final = 26
MOVED: Final = 27
NO_QUORUM: Final = 28
NOT_YET: Final = 29
STOOD: Final = 30
STOOD_MEANWHILE: Final = 31
LOST: Final = 32
NODE_READ_ONLY: Final = 33
NOREPL: Final = 34
TEMPORARY_SYNC: Final = 35
BAD_SYNC: Final = 36
NO_NODE: Final = 37
NO_HOME_THERE: Final = 38
NO_TYPE_THERE: Final = 39
FAILED_THERE: Final = 40
MOVING: Final = 41
MOVE_BROKEN: Final = 42
MOVE_SLOW: Final = 43
MOVE_UNSURE: Final = 44
MOVE_ENDED: Final = 45
HOME_ALIVE: Final = 46
FEW_NODES: Final = 47
LATER_COPY: Final = 48
NOT_LOADED: Final = 49
LATE: Final = 50
LEAVING: Final = 51
NO_CALLBACK: Final = 52
NO_USER: Final = 53
NO_ROLE: Final = 54
NO_RETRY_0: Final = 55
NO_COPIES: Final = 56
NO_OPTION: Final = 57
BY_VOTE: Final = 58
NO_VOTERS: Final = 59
NO_LIST: Final = 60
NO_VOTE_HERE: Final = 61
LIST_CHANGING: Final = 62
CANNOT_VOTE: Final = 63
IS_NO_VOTER: Final = 64
LAST_VOTER: Final = 65
UNSETTLED: Final = 66
LIST_LATE: Final = 67
NAME_THIS_NODE: Final = 68
MAJORITY_HERE: Final = 69
NO_SCHEDULES: Final = 70
NO_SCHEDULE: Final = 71
MANY_SCHEDULES: Final = 72
IS_SCHEDULE: Final = 73
NO_MAJORITY_LEFT: Final = 74
NAME_ALL_HERE: Final = 75
NO_MAJORITY_HERE: Final = 76
NO_LIMITS: Final = 77  # tube
OTHER_VOTERS: Final = 78
NO_VOTES_YET: Final = 79
JOURNAL_IS_OFF: Final = 80  # node
JOURNAL_FAILS: Final = 81  # node
OWN_JOURNAL: Final = 82
STRANGE_TASK: Final = 83
NO_GROUP: Final = 100
MANY_GROUPS_OF_JOBS: Final = 101
BAD_INDEX: Final = 102
IS_MEMBER: Final = 103
NO_GROUPS: Final = 104
IS_KEY: Final = 105
NO_CAPACITY: Final = 106  # tube


class TubeError(Exception):
    """A refusal; nothing was done. `about` has the arguments of its text, in order."""

    def __init__(self, code: i64, about: tuple[object, ...] = ()) -> None:
        super().__init__(code, about)
        self.code = code
        self.about = about


class HomeError(TubeError):
    """Another node leads the tube; the shell adds the address (T17.3, T17.4)."""

    def __init__(self, tube: bytes, node_id: bytes) -> None:
        super().__init__(MOVED, (tube,))
        self.tube = tube
        self.node_id = node_id


def shown(name: bytes) -> str:
    """A name for the log: one line, whatever its bytes are."""
    text = name.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join([one if one.isprintable() else ascii(one)[1:-1] for one in text])
