"""What a job of type `tasks` carries, its keys and its work, and the bytes of both (SPEC T40, T48).

Its records and copies have the bytes where those of other types have the sub-queue: layout and
bounds are in core/msgs/packed.py.
"""

from typing import Final, final

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

from tuque.core.model.task import Entry, Task
from tuque.core.model.work import LIVE, Life
from tuque.core.msgs.packed import (
    BURST_MAX,
    FILL_MAX_NS,
    GAP_MAX_NS,
    KEYS_FIXED,
    PLACES_MAX,
    UNTIL_MAX_MS,
    WEIGHT_MAX,
)
from tuque.tubes.entries.group import child_in, group_in, is_group, is_member
from tuque.tubes.entries.schedule import is_apart, is_kept, is_plan, kept_in, plan_in
from tuque.tubes.entries.value import is_of_value, value_in
from tuque.tubes.entries.work import (
    is_sound_work,
    pack_death,
    pack_run,
    pack_work,
    unpack_work,
)

# until when a task has its unique key; above 0: for so many ms
UNTIL_DONE: Final = 0
UNTIL_START: Final = -1

NAME_AT: Final = 2
NO_NAME: Final = b"\0\0\0"  # no group, no limit, no rate
PLACES_AT: Final = 4  # of the numbers after the lane's name
GAP_AT: Final = 8
BURST_AT: Final = 16
UNTIL_AT: Final = 20
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


def pack(keys: Keys) -> bytes:
    """The bytes of the keys; none if there is no key."""
    return b"" if keys.is_plain() else pack_all(keys)


def pack_all(keys: Keys) -> bytes:
    """The same, also if there is no key."""
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
    return writer.getvalue()


def put_key(writer: BytesWriter, key: bytes) -> None:
    """The key after its length."""
    writer.append(u8(len(key)))
    if len(key) > 0:
        writer.write(key)


NO_KEYS: Final = pack_all(Keys())  # before the work of a task without keys


def with_work(packed: bytes, work: bytes) -> bytes:
    """The bytes of a task with other work."""
    if len(packed) == 0:
        return NO_KEYS + work
    return packed[: work_at(packed)] + work


def work_at(packed: bytes) -> i64:
    """Where the work begins in the bytes of a task that has some."""
    at = numbers_at(packed) + KEYS_FIXED
    return at + i64(packed[at - 1])


def work_of(packed: bytes) -> bytes:
    """The work in the bytes of a job (T48.2); empty: none."""
    if len(packed) == 0:
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
    return packed[numbers_at(packed) + KEYS_FIXED - 1] != 0


def unique_of(packed: bytes) -> bytes:
    """As `limit_of`: the unique key; empty: none."""
    at = numbers_at(packed) + KEYS_FIXED
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
    """Whether bytes from a journal or another node are an entry, or none."""
    if len(packed) == 0:
        return True
    return entry_in(packed) is not None if is_apart(packed) else are_keys(packed)


def are_keys(packed: bytes) -> bool:
    """Whether such bytes are the keys of a job with its work: lengths, each number's range."""
    size: i64 = len(packed)
    if size < NAME_AT + 3 + KEYS_FIXED:
        return False
    end: i64 = NAME_AT
    for _ in range(3):
        if end >= size:
            return False
        end += i64(packed[end]) + 1
    if end != NAME_AT + i64(read_i16_le(packed, 0)) or end + KEYS_FIXED > size:
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


# ---- The entry of a job


@final
@mypyc_attr(acyclic=True)
class JobEntry(Entry):
    """The keys of a job in bytes, and its work if followers need that (T48.2).

    One without work is not changed: the tasks of a partition share it. One that has only an image
    is closed: a copy has what came from the leader, which is opened when the task runs here.
    """

    def __init__(self, keys: bytes, work: Life | None) -> None:
        self.image = b""
        self.keys = keys  # empty: none
        self.work = work

    def packed(self, taken_ms: i64) -> bytes:
        """Its bytes."""
        if len(self.image) > 0:
            return self.image
        if self.work is None:
            return self.keys
        return (NO_KEYS if len(self.keys) == 0 else self.keys) + self.work_bytes(taken_ms)

    def work_bytes(self, taken_ms: i64) -> bytes:
        """The bytes of its work; empty: none."""
        if len(self.image) > 0:
            return work_of(self.image)
        work = self.work
        if work is None:
            return b""
        return pack_run(work, taken_ms) if work.run_state == LIVE else pack_work(work)

    def drop_image(self) -> None:
        """Nobody will ask soon. A closed one has nothing else, and of a death only its image has
        all.
        """
        work = self.work
        if work is not None and len(work.dead_cause) == 0:
            self.image = b""


def enter_record(task: Task) -> None:
    """The task is of a record of a tube of type `tasks`: it has the entry in its bytes, if any."""
    packed = task.subqueue
    if len(packed) > 0:
        task.entry = entry_in(packed)
        task.subqueue = b""


def entry_in(packed: bytes) -> Entry | None:
    """The entry in bytes from a journal or another node, of a job closed. None: it is none."""
    if not is_apart(packed):
        return closed(packed) if are_keys(packed) else None
    if is_plan(packed):
        plan = plan_in(packed)
        return plan if plan is not None and is_sound(plan.keys) else None
    if is_group(packed):
        group = group_in(packed)
        return group if group is not None and is_sound(group.keys) else None
    if is_member(packed):
        return child_in(packed)
    if is_of_value(packed):
        return value_in(packed)
    return kept_in(packed) if is_kept(packed) else None


def is_job(task: Task) -> bool:
    """Whether the task is a job: no schedule, group, child of one, keeper of a key or value."""
    return task.entry is None or isinstance(task.entry, JobEntry)


def put_work(task: Task, data: bytes) -> bool:
    """The copy carries other work; False: it is no job."""
    if not is_job(task):
        return False
    task.entry = closed(with_work(b"" if task.entry is None else task.entry.packed(0), data))
    return True


def closed(image: bytes) -> JobEntry:
    """The entry of a copy, in the bytes of its record."""
    entry = JobEntry(b"", None)
    entry.image = image
    return entry


def opened(image: bytes) -> JobEntry | None:
    """The entry in the bytes, which `is_sound` has found in order; None: they say nothing."""
    at = work_at(image)
    keys = image[:at]
    if keys == NO_KEYS:
        keys = b""
    work = unpack_work(image[at:]) if at < len(image) else None
    if work is None:
        return None if len(keys) == 0 else JobEntry(keys, None)
    entry = JobEntry(keys, work)
    if len(work.dead_cause) > 0:
        entry.image = image  # with the detail of its last failure
    return entry


def keys_of(task: Task) -> bytes:
    """The keys of a task that runs here; empty: none."""
    entry = task.entry
    return entry.keys if isinstance(entry, JobEntry) else b""


def share_keys(task: Task, shared: JobEntry) -> None:
    """The task has equal keys: it needs no bytes of its own for them."""
    entry = task.entry
    if isinstance(entry, JobEntry):
        if entry.work is None:
            task.entry = shared
        else:
            entry.keys = shared.keys


def carry(task: Task, work: Life) -> None:
    """The task carries the work as it is now (T48.2)."""
    entry = task.entry
    if isinstance(entry, JobEntry) and entry.work is work:
        entry.image = b""
    else:
        task.entry = JobEntry(keys_of(task), work)


def carry_death(task: Task, work: Life, serial: i64) -> None:
    """The task carries its death: the image alone has the detail of its last failure (T48.2)."""
    entry = JobEntry(keys_of(task), work)
    entry.image = with_work(entry.keys, pack_death(work, serial))
    task.entry = entry


def drop_work(task: Task) -> None:
    """The task carries its keys alone."""
    entry = task.entry
    if isinstance(entry, JobEntry) and entry.work is not None:
        task.entry = None if len(entry.keys) == 0 else JobEntry(entry.keys, None)


def work_in(task: Task) -> bytes:
    """The bytes of the work that the task carries; empty: none."""
    entry = task.entry
    return entry.work_bytes(task.taken_ms) if isinstance(entry, JobEntry) else b""


def close(task: Task) -> None:
    """The task runs here no more: what it carries is closed."""
    entry = task.entry
    if isinstance(entry, JobEntry):
        task.entry = closed(entry.packed(task.taken_ms))


def open_entry(task: Task) -> None:
    """The task is about to run here."""
    entry = task.entry
    if isinstance(entry, JobEntry):
        task.entry = opened(entry.image)
