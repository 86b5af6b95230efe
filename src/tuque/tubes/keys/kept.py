"""A unique key that outlives its task, and the bytes in which a task carries it (SPEC T44.3).

The key stays with a task of its own, which stays DELAYED until the time is over: so it is in the
journal and its copies. Layout: i16 -2, which neither keys, nor a schedule, nor a group begin with;
length of an id u8; the id of the task that had the key first; the key.
"""

from typing import Final

from librt.strings import BytesWriter, write_i16_le
from mypy_extensions import i64, u8

MARK: Final = 254  # the first byte; 255 is the second
ID_AT: Final = 3
KEY_MAX: Final = 255
ID_MAX: Final = 64


def is_kept(packed: bytes) -> bool:
    """Whether a task of type `tasks` that carries these bytes keeps a key, and is no job."""
    return len(packed) > ID_AT and packed[0] == MARK and packed[1] == 255


def pack_kept(id: bytes, key: bytes) -> bytes:
    """The bytes of the task that keeps the key of the job with this id."""
    writer = BytesWriter()
    write_i16_le(writer, -2)
    writer.append(u8(len(id)))
    writer.write(id)
    writer.write(key)
    return writer.getvalue()


def kept_id(packed: bytes) -> bytes:
    """The id of the job that had the key first."""
    return packed[ID_AT : ID_AT + i64(packed[ID_AT - 1])]


def kept_key(packed: bytes) -> bytes:
    """The key."""
    return packed[ID_AT + i64(packed[ID_AT - 1]) :]


def is_sound_kept(packed: bytes) -> bool:
    """Whether bytes from a journal or another node keep a key."""
    size = i64(packed[ID_AT - 1])
    return 0 < size <= ID_MAX and 0 < len(packed) - ID_AT - size <= KEY_MAX
