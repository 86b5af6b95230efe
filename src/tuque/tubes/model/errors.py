"""What a tube refuses, with the codes and texts of Tarantool's queue module (SPEC T13)."""

from typing import Final

from mypy_extensions import i64

# codes as IPROTO tells them
LUA: Final = 32
NO_PROCEDURE: Final = 33
DENIED: Final = 42
NO_USER: Final = 45
BAD_NAME: Final = 70

NOT_TAKEN: Final = b"Task was not taken"
NOT_FOUND: Final = b"Task %d not found"
NO_TOUCH: Final = b"%s queue does not support touch"
CONSUMERS: Final = b"There are consumers connected the tube"
TAKEN_TASKS: Final = b"There are taken tasks in the tube"
NO_TUBE: Final = b"Tube not found"
UNKNOWN_TYPE: Final = b"Unknown tube type %s"
EXISTS: Final = b"Space '%s' already exists"
TUBES_MAX: Final = b"%d tubes are known here, and tubes-max is %d: drop tubes that nobody needs"
MANY_GRANTS: Final = b"there are %d grants, the most a node keeps: revoke some, or use roles"
OTHER_TYPE: Final = b"Tube '%s' exists with the type %s"
TEMPORARY: Final = b"Cannot create temporary tube in replicaset mode"
NO_VINYL: Final = b"limfifottl queue does not support vinyl engine"
NO_VINYL_BUFFER: Final = b'"ready_buffer" storage mode cannot be used with vinyl engine'
NO_ENGINE: Final = b"Space engine '%s' does not exist"
BAD_UUID: Final = b"Invalid UUID format."
UNKNOWN_UUID: Final = b"The UUID %s is unknown."
BAD_TTR: Final = b"Invalid value of ttr: %d"
OVERRIDING: Final = b'overriding registered driver "%s"'
NO_DRIVER: Final = b"no package of this server has a driver named '%s'"
NO_DRIVER_CLASS: Final = b"the driver '%s' makes no tuque.tubes.driver.Driver"
EMPTY_NAME: Final = b"Invalid identifier '' (expected printable symbols only or it is too long)"
LONG_NAME: Final = b"Failed to create space '%s': space name is too long"
LONG_OPTION: Final = b"Options of tubes are at most 255 bytes"
DOTTED: Final = b"Tube '%s' cannot be called over IPROTO: its name has a dot or a colon"
PAUSED: Final = b"Queue paused in input, try later"
LEAVING: Final = b"LEAVING This node is leaving the cluster, please connect to a different one"


# homes of tubes; the shell puts host and port where the home is named
READ_ONLY: Final = 7
MOVED: Final = b"Tube '%s' has its home there"
NO_QUORUM: Final = b"NOQUORUM Tube '%s': this node reaches %d of %d nodes"
NOT_YET: Final = b"NOQUORUM Tube '%s' is %s here: try again soon"
STOOD: Final = (
    b"NOQUORUM Tube '%s': this node stood still for %d ms and waits for an answer of the others; "
    b"if they are lost for good, say here: TUBE HOME '%s' %s FORCE"
)
STOOD_MEANWHILE: Final = b"this node stood still meanwhile: nothing was done, say it again"
LOST: Final = (
    b"NOQUORUM Tube '%s' had its home here, and this node has lost it: "
    b"TUBE HOME '%s' <node> FORCE makes another copy the tube"
)
NODE_READ_ONLY: Final = (
    b"READONLY This node is read-only: CONFIG SET read-only no, or go to another one"
)
NOREPL: Final = b"NOREPL Not enough reachable nodes for the requested replication level"
TEMPORARY_SYNC: Final = b"a temporary tube has no copies: SYNC must be 1"
BAD_SYNC: Final = b"SYNC must be from 1 to the number of nodes, which is %d"
NO_NODE: Final = b"no node of the cluster has that name, or it is not reachable"
NO_HOME_THERE: Final = (
    b"that node cannot be the home: it is read-only, leaves, or goes by another tube of that name"
)
NO_TYPE_THERE: Final = (
    b"node %s has not the type '%s' of tube '%s', which stays: install its package there and tell"
    b" that node TUBE REGISTERDRIVER '%s', or choose another node"
)
FAILED_THERE: Final = (
    b"at node %s the driver of type '%s' of tube '%s', which stays, has failed: INFO of the tube"
    b" tells why there; mend it and start that node again, or choose another node"
)
MOVING: Final = b"the home of tube '%s' is moving already"
MOVE_BROKEN: Final = b"the link to the new home broke: tube '%s' stays"
MOVE_SLOW: Final = b"the new home did not get all of tube '%s' within %d s: it stays"
MOVE_UNSURE: Final = b"tube '%s' was given to its new home, which has not answered yet"
MOVE_ENDED: Final = b"the home of tube '%s' was made another one meanwhile"
HOME_ALIVE: Final = b"the home of tube '%s' can be reached: TUBE HOME there moves it"
FEW_NODES: Final = b"this node reaches %d of %d nodes, and needs more than half of them"
LATER_COPY: Final = b"node %s has a later copy of tube '%s'"


class TubeError(Exception):
    """A refusal; nothing was done. `code` is IPROTO's, `text` bare."""

    def __init__(self, code: i64, text: bytes) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class HomeError(TubeError):
    """The tube has its home at another node; the shell says where that is (T17.3, T17.4)."""

    def __init__(self, tube: bytes, node_id: bytes) -> None:
        super().__init__(READ_ONLY, MOVED % tube)
        self.tube = tube
        self.node_id = node_id


def not_taken() -> TubeError:
    """The task is not there, not TAKEN, or not the caller's."""
    return TubeError(LUA, NOT_TAKEN)


def not_found(number: i64) -> TubeError:
    """No task has that number."""
    return TubeError(LUA, NOT_FOUND % number)


def shown(name: bytes) -> str:
    """A name for the log: in one line, whatever its bytes are."""
    text = name.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join([one if one.isprintable() else ascii(one)[1:-1] for one in text])
