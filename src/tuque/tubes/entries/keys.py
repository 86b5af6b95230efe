"""The keys of one task, and the bytes in which a task carries them (SPEC T40).

A task of type `tasks` has them where tasks of other types have their sub-queue: so they are in its
records and copies. Layout: length of the partition's name u16; group, limit and rate, each after
its length u8: this is the partition's name; weight i32, places i32, gap_ns i64, burst i32; end of
the unique key i64, the key after its length u8; then its work (work.py). A task with neither has no
bytes.
"""

from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_le,
    read_i32_le,
    read_i64_le,
    write_i16_le,
    write_i32_le,
    write_i64_le,
)
from mypy_extensions import i16, i32, i64, mypyc_attr, u8

from tuque.tubes.entries.group import (
    is_group,
    is_member,
    is_sound_member,
    unpack_group,
)
from tuque.tubes.entries.schedule import (
    is_apart,
    is_kept,
    is_plan,
    is_sound_kept,
    is_sound_plan,
    unpack_plan,
)
from tuque.tubes.entries.work import is_sound_work

KEY_MAX: Final = 255
WEIGHT_MAX: Final = 1_000
PLACES_MAX: Final = 1_000_000
BURST_MAX: Final = 1_000_000
GAP_MAX_NS: Final = 3_600_000_000_000  # one an hour
FILL_MAX_NS: Final = 1_000_000_000_000_000_000  # burst * gap: 31 years

# until when a task has its unique key; above 0: for so many ms
UNTIL_DONE: Final = 0
UNTIL_START: Final = -1
UNTIL_MAX_MS: Final = 366 * 86_400_000

NAME_AT: Final = 2
NO_NAME: Final = b"\0\0\0"  # no group, no limit, no rate
PLACES_AT: Final = 4  # of the numbers after the lane's name
GAP_AT: Final = 8
BURST_AT: Final = 16
UNTIL_AT: Final = 20
FIXED: Final = 29  # after the lane's name, to the unique key
NO_RATE_END: Final = bytes(8) + b"\1\0\0\0" + bytes(9)  # from GAP_AT on: no rate, no unique key


@mypyc_attr(acyclic=True)
class Keys:
    """What the put said about keys; an empty key is none."""

    def __init__(self) -> None:
        self.group = b""
        self.weight: i64 = 1
        self.limit = b""
        self.places: i64 = 0
        self.rate = b""
        self.gap_ns: i64 = 0  # between two tokens
        self.burst: i64 = 1
        self.unique = b""
        self.until_ms: i64 = UNTIL_DONE

    def is_plain(self) -> bool:
        """Whether the task has no key at all."""
        named = len(self.group) + len(self.limit) + len(self.rate) + len(self.unique)
        return named == 0 and self.weight == 1


def pack(keys: Keys, work: bytes = b"") -> bytes:
    """The bytes that the task carries; none without keys and work."""
    if keys.is_plain() and len(work) == 0:
        return b""
    writer = BytesWriter()
    size = 3 + len(keys.group) + len(keys.limit) + len(keys.rate)
    write_i16_le(writer, i16(size))
    put_key(writer, keys.group)
    put_key(writer, keys.limit)
    put_key(writer, keys.rate)
    write_i64_le(writer, keys.places << 32 | keys.weight)
    if keys.gap_ns == 0 and len(keys.unique) == 0:
        writer.write(NO_RATE_END)
    else:
        write_i64_le(writer, keys.gap_ns)
        write_i32_le(writer, i32(keys.burst))
        write_i64_le(writer, keys.until_ms)
        put_key(writer, keys.unique)
    if len(work) > 0:
        writer.write(work)
    return writer.getvalue()


def put_key(writer: BytesWriter, key: bytes) -> None:
    """The key after its length."""
    writer.append(u8(len(key)))
    if len(key) > 0:
        writer.write(key)


def with_work(packed: bytes, work: bytes) -> bytes:
    """The bytes of a task with other work, which may be none."""
    if len(packed) == 0:
        return pack(Keys(), work)
    return packed[: work_at(packed)] + work


def without_work(packed: bytes) -> bytes:
    """The bytes of a task without its work: none without keys."""
    keys = with_work(packed, b"")
    return b"" if unpack(keys).is_plain() else keys


def work_at(packed: bytes) -> i64:
    """Where the work begins in the bytes of a task that has some."""
    at = numbers_at(packed) + FIXED
    return at + i64(packed[at - 1])


def work_of(packed: bytes) -> bytes:
    """The work of the task (T48.2); empty: none."""
    if len(packed) == 0 or is_apart(packed):
        return b""
    at = work_at(packed)
    return b"" if at == len(packed) else packed[at:]


def lane_name(packed: bytes) -> bytes:
    """Group, limit and rate of the task: equal for all tasks of one lane."""
    if len(packed) == 0:
        return NO_NAME
    return packed[NAME_AT : NAME_AT + i64(read_i16_le(packed, 0))]


def names_of(name: bytes) -> tuple[bytes, bytes, bytes]:
    """Group, limit and rate in the name of a lane."""
    end = i64(name[0]) + 1
    group = name[1:end]
    at = end
    end = at + i64(name[at]) + 1
    return group, name[at + 1 : end], name[end + 1 :]


def numbers_at(packed: bytes) -> i64:
    """Where weight, places, gap and burst begin in the bytes of a task that has some."""
    return NAME_AT + i64(read_i16_le(packed, 0))


def limit_of(packed: bytes) -> bytes:
    """The limit alone of a task that has bytes, which `is_sound` has found in order."""
    at = NAME_AT + i64(packed[NAME_AT]) + 1
    return packed[at + 1 : at + 1 + i64(packed[at])]


def until_of(packed: bytes) -> i64:
    """As `limit_of`: until when the task has its unique key."""
    return read_i64_le(packed, numbers_at(packed) + UNTIL_AT)


def has_unique(packed: bytes) -> bool:
    """As `limit_of`: whether the task names a unique key."""
    return packed[numbers_at(packed) + FIXED - 1] != 0


def has_more(packed: bytes) -> bool:
    """As `limit_of`: whether there is more than the lane and its numbers: a unique key, or work."""
    return len(packed) > numbers_at(packed) + FIXED


def unique_of(packed: bytes) -> bytes:
    """As `limit_of`: the unique key; empty: none."""
    at = numbers_at(packed) + FIXED
    size = i64(packed[at - 1])
    return b"" if size == 0 else packed[at : at + size]


def unpack(packed: bytes) -> Keys:
    """The keys in the bytes, which `is_sound` has found in order."""
    keys = Keys()
    if len(packed) == 0:
        return keys
    at: i64 = NAME_AT
    end = at + i64(packed[at]) + 1
    keys.group = packed[at + 1 : end]
    at = end
    end = at + i64(packed[at]) + 1
    keys.limit = packed[at + 1 : end]
    at = end
    end = at + i64(packed[at]) + 1
    keys.rate = packed[at + 1 : end]
    keys.weight = i64(read_i32_le(packed, end))
    keys.places = i64(read_i32_le(packed, end + PLACES_AT))
    keys.gap_ns = read_i64_le(packed, end + GAP_AT)
    keys.burst = i64(read_i32_le(packed, end + BURST_AT))
    keys.until_ms = read_i64_le(packed, end + UNTIL_AT)
    keys.unique = unique_of(packed)
    return keys


def is_sound(packed: bytes) -> bool:
    """Whether bytes from a journal or another node are keys: lengths, and each number's range."""
    size: i64 = len(packed)
    if size == 0:
        return True
    if is_member(packed):
        has_keys = is_sound_member(packed) and is_group(packed)
        return is_sound(unpack_group(packed).keys) if has_keys else is_sound_member(packed)
    if is_kept(packed):
        return is_sound_kept(packed)
    if is_plan(packed):
        return is_sound_plan(packed) and is_sound(unpack_plan(packed).keys)
    if size < NAME_AT + 3 + FIXED:
        return False
    end: i64 = NAME_AT
    for _ in range(3):
        if end >= size:
            return False
        end += i64(packed[end]) + 1
    if end != NAME_AT + i64(read_i16_le(packed, 0)) or end + FIXED > size:
        return False
    if work_at(packed) > size or not is_sound_work(work_of(packed)):
        return False
    return is_in_range(unpack(packed))


def is_in_range(keys: Keys) -> bool:
    """Whether all numbers are within their bounds, and each key has what it needs."""
    if not 1 <= keys.weight <= WEIGHT_MAX or not 0 <= keys.places <= PLACES_MAX:
        return False
    if (keys.places > 0) != (len(keys.limit) > 0) or (keys.gap_ns > 0) != (len(keys.rate) > 0):
        return False
    if not 0 <= keys.gap_ns <= GAP_MAX_NS or not 1 <= keys.burst <= BURST_MAX:
        return False
    if not UNTIL_START <= keys.until_ms <= UNTIL_MAX_MS:
        return False
    return keys.burst * keys.gap_ns <= FILL_MAX_NS
