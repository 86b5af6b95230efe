"""Named values and sets of parts, as tasks carry them, and their bytes (SPEC T70, T71).

A value is a task that stays DELAYED until its end, and has the value as its body. So has each part
of a set, and the set itself, which has no body. In records and copies they have bytes where other
tasks have their keys; the layouts are in core/msgs/packed.py.
"""

from bisect import bisect_left
from typing import Final, final

from librt.strings import (
    BytesWriter,
    read_i32_le,
    read_i64_le,
    write_i16_le,
    write_i32_le,
    write_i64_le,
)
from mypy_extensions import i32, i64, mypyc_attr, u8

from tuque.core.model.job import job_bytes
from tuque.core.model.task import TASK_BYTES, Entry, Task
from tuque.core.msgs.packed import (
    A_PART,
    A_SET,
    A_VALUE,
    NUMBER_LAST,
    PART_FIXED,
    SET_FIXED,
    SET_PARTS_MAX,
    VALUE_BITS,
    VALUE_FIXED,
    VALUE_NAME_MAX,
)

MARK: Final = 253  # the first byte; 255 is the second
KIND_AT: Final = 2

# bits of a value
HAS_ENDED: Final = 1
IS_FIXED: Final = 2

# the index of the part that completed a set
NO_PART: Final = -1  # SIZE alone did
NONE: Final = -2  # it is not complete

NAMED_BYTES: Final = 150  # a value or a set in the tables of names
PART_BYTES: Final = 110  # a part in the table of its set
HOLES_MIN: Final = 1_000  # numbers of values that are gone, before the list is made anew


@mypyc_attr(acyclic=True)
class OfValue(Entry):
    """What carries it is a value, a set of parts or a part; what a task carries is not changed."""


@final
@mypyc_attr(acyclic=True)
class ValueEntry(OfValue):
    """A value of this name."""

    def __init__(self, name: bytes, bits: i64) -> None:
        super().__init__()
        self.name = name
        self.bits = bits

    def packed(self, taken_ms: i64) -> bytes:
        """Its bytes."""
        if len(self.image) > 0:
            return self.image
        writer = head_of(A_VALUE, self.bits)
        writer.write(self.name)
        return writer.getvalue()


@final
@mypyc_attr(acyclic=True)
class SetEntry(OfValue):
    """A set of parts of this name; `size` 0: nobody has said it."""

    def __init__(self, name: bytes, size: i64, last: i64) -> None:
        super().__init__()
        self.name = name
        self.size = size
        self.last = last  # the index that completed it

    def packed(self, taken_ms: i64) -> bytes:
        """Its bytes."""
        if len(self.image) > 0:
            return self.image
        writer = head_of(A_SET, 0)
        write_i32_le(writer, i32(self.size))
        write_i32_le(writer, i32(self.last))
        writer.write(self.name)
        return writer.getvalue()


@final
@mypyc_attr(acyclic=True)
class PartEntry(OfValue):
    """The part of that index, of the set whose task has this number."""

    def __init__(self, owner: i64, index: i64) -> None:
        super().__init__()
        self.owner = owner
        self.index = index

    def packed(self, taken_ms: i64) -> bytes:
        """Its bytes."""
        if len(self.image) > 0:
            return self.image
        writer = head_of(A_PART, 0)
        write_i64_le(writer, self.owner)
        write_i32_le(writer, i32(self.index))
        return writer.getvalue()


def head_of(kind: i64, bits: i64) -> BytesWriter:
    """The first bytes of an entry."""
    writer = BytesWriter()
    write_i16_le(writer, -3)
    writer.append(u8(kind))
    writer.append(u8(bits))
    return writer


def is_of_value(packed: bytes) -> bool:
    """Whether these are the bytes of a value, a set of parts or a part."""
    return len(packed) > KIND_AT and packed[0] == MARK and packed[1] == 255


def value_in(packed: bytes) -> Entry | None:
    """The entry in such bytes, from a journal or another node. None: it is none."""
    size: i64 = len(packed)
    if size < VALUE_FIXED:
        return None
    kind = i64(packed[KIND_AT])
    bits = i64(packed[KIND_AT + 1])
    if kind == A_VALUE:
        is_named = 0 < size - VALUE_FIXED <= VALUE_NAME_MAX
        return ValueEntry(packed[VALUE_FIXED:], bits) if is_named and bits <= VALUE_BITS else None
    if bits != 0:
        return None
    if kind == A_SET and 0 < size - SET_FIXED <= VALUE_NAME_MAX:
        length = i64(read_i32_le(packed, VALUE_FIXED))
        last = i64(read_i32_le(packed, VALUE_FIXED + 4))
        if 0 <= length <= SET_PARTS_MAX and NONE <= last < SET_PARTS_MAX:
            return SetEntry(packed[SET_FIXED:], length, last)
    elif kind == A_PART and size == PART_FIXED:
        owner = read_i64_le(packed, VALUE_FIXED)
        index = i64(read_i32_le(packed, VALUE_FIXED + 8))
        if 0 <= owner <= NUMBER_LAST and 0 <= index < SET_PARTS_MAX:
            return PartEntry(owner, index)
    return None


def name_in(entry: Entry | None) -> bytes:
    """The name of the value or the set; empty: it has none."""
    if isinstance(entry, ValueEntry):
        return entry.name
    return entry.name if isinstance(entry, SetEntry) else b""


def wait_key(tube: bytes, name: bytes) -> bytes:
    """[T72] Under what clients wait for the value, among ids of jobs (core/tables/work.py)."""
    return b"%d:%s:%s" % (len(tube), tube, name)


# ---- The values of one tube


@final
class Parts:
    """The parts of one set."""

    def __init__(self) -> None:
        self.by_index: dict[int, int] = {}  # numbers of their tasks
        self.most: i64 = -1  # the highest index that there was
        self.has_set = False  # the set is there; it may be loaded after them


@final
class Values:
    """The values and sets of one tube, by name."""

    def __init__(self) -> None:
        self.by_name: dict[bytes, int] = {}  # numbers of tasks
        self.parts: dict[int, Parts] = {}  # by the number of the set
        self.orphans: list[int] = []  # parts whose set is gone
        self.order: list[int] = []  # numbers of values and sets, also of some that are gone
        self.is_sorted = True
        self.tasks: i64 = 0  # all of them
        self.bytes: i64 = 0  # what these tasks take

    def parts_of(self, number: i64) -> Parts:
        """The parts of the set; made if there is none yet."""
        found = self.parts.get(int(number))
        if found is None:
            found = Parts()
            self.parts[int(number)] = found
        return found

    def joined(self, task: Task) -> i64:
        """The task is in the tube; returns the bytes that this takes."""
        entry = task.entry
        self.tasks += 1
        self.bytes += size_of(task)
        if isinstance(entry, PartEntry):
            parts = self.parts_of(entry.owner)
            if int(entry.index) in parts.by_index:
                self.orphans.append(int(task.number))  # the first one counts
                return 0
            parts.by_index[int(entry.index)] = int(task.number)
            parts.most = max(parts.most, entry.index)
            return PART_BYTES
        name = name_in(entry)
        if isinstance(entry, SetEntry):
            self.parts_of(task.number).has_set = True
        self.by_name[name] = int(task.number)
        self.is_sorted = self.is_sorted and (
            len(self.order) == 0 or self.order[len(self.order) - 1] < task.number
        )
        self.order.append(int(task.number))
        return NAMED_BYTES + len(name)

    def ended(self, task: Task) -> i64:
        """The task is gone; returns the bytes that are free."""
        entry = task.entry
        self.tasks -= 1
        self.bytes -= size_of(task)
        if isinstance(entry, PartEntry):
            parts = self.parts.get(int(entry.owner))
            if parts is None or parts.by_index.get(int(entry.index), -1) != int(task.number):
                return 0
            del parts.by_index[int(entry.index)]
            if len(parts.by_index) == 0 and not parts.has_set:
                del self.parts[int(entry.owner)]
            return PART_BYTES
        name = name_in(entry)
        if isinstance(entry, SetEntry):
            self.leave_parts(task.number)
        if self.by_name.get(name, -1) == int(task.number):
            del self.by_name[name]
        if len(self.order) > HOLES_MIN + 2 * len(self.by_name):
            self.order = sorted(self.by_name.values())
            self.is_sorted = True
        return NAMED_BYTES + len(name)

    def leave_parts(self, number: i64) -> None:
        """The set is gone: its parts go one after the other."""
        parts = self.parts[int(number)]
        parts.has_set = False
        if len(parts.by_index) == 0:
            del self.parts[int(number)]
        else:
            self.orphans.extend(parts.by_index.values())

    def loaded(self) -> None:
        """All tasks are in: parts without a set are known."""
        for parts in self.parts.values():
            if not parts.has_set:
                self.orphans.extend(parts.by_index.values())

    def numbers_from(self, cursor: i64, most: i64) -> list[int]:
        """Numbers of values and sets from that one on, also of some that are gone."""
        if not self.is_sorted:
            self.order = sorted(self.by_name.values())
            self.is_sorted = True
        at = bisect_left(self.order, int(cursor))
        return self.order[at : at + int(most)]


def size_of(task: Task) -> i64:
    """What the task of a value takes."""
    return job_bytes(task) + TASK_BYTES
