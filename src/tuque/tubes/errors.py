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
OTHER_TYPE: Final = b"Tube '%s' exists with the type %s"
TEMPORARY: Final = b"Cannot create temporary tube in replicaset mode"
NO_VINYL: Final = b"limfifottl queue does not support vinyl engine"
NO_VINYL_BUFFER: Final = b'"ready_buffer" storage mode cannot be used with vinyl engine'
NO_ENGINE: Final = b"Space engine '%s' does not exist"
BAD_UUID: Final = b"Invalid UUID format."
UNKNOWN_UUID: Final = b"The UUID %s is unknown."
BAD_TTR: Final = b"Invalid value of ttr: %d"
OVERRIDING: Final = b'overriding registered driver "%s"'
EMPTY_NAME: Final = b"Invalid identifier '' (expected printable symbols only or it is too long)"
LONG_NAME: Final = b"Failed to create space '%s': space name is too long"
LONG_OPTION: Final = b"Options of tubes are at most 255 bytes"
DOTTED: Final = b"Tube '%s' cannot be called over IPROTO: its name has a dot or a colon"
PAUSED: Final = b"Queue paused in input, try later"
LEAVING: Final = b"LEAVING This node is leaving the cluster, please connect to a different one"


class TubeError(Exception):
    """A refusal; nothing was done. `code` is IPROTO's, `text` bare."""

    def __init__(self, code: i64, text: bytes) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


def not_taken() -> TubeError:
    """The task is not there, not TAKEN, or not the caller's."""
    return TubeError(LUA, NOT_TAKEN)


def not_found(number: i64) -> TubeError:
    """No task has that number."""
    return TubeError(LUA, NOT_FOUND % number)
