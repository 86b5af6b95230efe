"""Schedules and held unique keys, as tasks carry them, and their bytes (SPEC T44.3, T45).

A schedule is a task that stays DELAYED, and has the body of the jobs that it makes. In records and
copies it has the bytes of a `ScheduleRow` (core/msgs/entries.py) where other tasks have their keys.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i16_le, write_i16_le
from mypy_extensions import i64, mypyc_attr, u8

from tuque.core.model.task import Entry, Task
from tuque.core.msgs.entries import ENTRIES, SCHEDULE, ScheduleRow
from tuque.core.msgs.layout import BadRow
from tuque.core.msgs.packed import JOB_ID_MAX, KEEPER_FIXED, KEY_MAX
from tuque.tubes.entries.group import ChildEntry, GroupEntry, Members
from tuque.tubes.entries.value import OfValue, Values

MARK: Final = 254  # the first byte; 255 is the second

PLANS_MAX: Final = 10_000  # of one tube
PLAN_BYTES: Final = 250  # in the table of names

# what becomes of instants that passed without a leader (T45.5)
SKIP: Final = 0
ONE: Final = 1
ALL: Final = 2


# ---- A unique key that outlives its task (SPEC T44.3)
#
# The key stays with a task of its own, which stays DELAYED until the time is over: so it is in the
# journal and its copies, with the bytes of a keeper (core/msgs/packed.py).


@final
@mypyc_attr(acyclic=True)
class HoldEntry(Entry):
    """The task keeps this key, which the job of that id had first."""

    def __init__(self, id: bytes, key: bytes) -> None:
        super().__init__()
        self.id = id
        self.key = key

    def packed(self, taken_ms: i64) -> bytes:
        """Its bytes."""
        return pack_kept(self.id, self.key) if len(self.image) == 0 else self.image


def is_kept(packed: bytes) -> bool:
    """Whether these are the bytes of a task that keeps a key."""
    return len(packed) > KEEPER_FIXED and packed[0] == MARK and packed[1] == 255


def pack_kept(id: bytes, key: bytes) -> bytes:
    """The bytes of the task that keeps the key of the job with this id."""
    writer = BytesWriter()
    write_i16_le(writer, -2)
    writer.append(u8(len(id)))
    writer.write(id)
    writer.write(key)
    return writer.getvalue()


def kept_in(packed: bytes) -> HoldEntry | None:
    """The key in the bytes of a keeper, from a journal or another node. None: it is none."""
    size = i64(packed[KEEPER_FIXED - 1])
    key = packed[KEEPER_FIXED + size :]
    if not 0 < size <= JOB_ID_MAX or not 0 < len(key) <= KEY_MAX:
        return None
    return HoldEntry(packed[KEEPER_FIXED : KEEPER_FIXED + size], key)


# ---- A schedule (SPEC T45)


@final
@mypyc_attr(acyclic=True)
class ScheduleEntry(Entry):
    """When a schedule fires, and what its jobs are; -1 of ttl and ttr: as the tube says.

    What a task carries is not changed: it gets another one, made by `copy`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.name = b""
        self.cron = b""  # empty: by interval
        self.zone = b""
        self.every_ms: i64 = 0
        self.missed: i64 = ONE
        self.is_paused = False
        self.keys = b""  # of the jobs, with their work
        self.ttl_ms: i64 = -1
        self.ttr_ms: i64 = -1
        self.pri: i64 = 0
        self.noted_ms: i64 = 0  # instants up to this one are dealt with
        self.base_ms: i64 = 0  # intervals count from there
        self.fired_ms: i64 = 0  # the last instant that made a job; 0: none yet
        self.fired_seq: i64 = 0  # the change that added this job, of the epoch
        self.fired_epoch: i64 = 0
        self.fired: i64 = 0
        self.late: i64 = 0  # how often instants had passed without a leader

    def packed(self, taken_ms: i64) -> bytes:
        """Its bytes."""
        return pack_plan(self) if len(self.image) == 0 else self.image

    def copy(self) -> "ScheduleEntry":
        """Another one that says the same."""
        made = ScheduleEntry()
        made.name, made.cron, made.zone, made.keys = self.name, self.cron, self.zone, self.keys
        made.every_ms, made.missed, made.is_paused = self.every_ms, self.missed, self.is_paused
        made.ttl_ms, made.ttr_ms, made.pri = self.ttl_ms, self.ttr_ms, self.pri
        made.noted_ms, made.base_ms, made.fired_ms = self.noted_ms, self.base_ms, self.fired_ms
        made.fired_seq, made.fired_epoch = self.fired_seq, self.fired_epoch
        made.fired, made.late = self.fired, self.late
        return made


@final
@mypyc_attr(acyclic=True)
class Step:
    """What the shell says about a schedule at an instant (T45.3)."""

    def __init__(self, fires_ms: i64, noted_ms: i64, next_ms: i64, is_late: bool) -> None:
        self.fires_ms = fires_ms  # the instant to make a job for; 0: none
        self.noted_ms = noted_ms
        self.next_ms = next_ms  # when to look again; FAR: never
        self.is_late = is_late


def is_plan(packed: bytes) -> bool:
    """Whether these are the bytes of a schedule."""
    return len(packed) >= 2 and packed[0] == 0 and packed[1] == 0


def is_apart(packed: bytes) -> bool:
    """Whether these are the bytes of no job: they begin with a number that is no length."""
    return len(packed) >= 2 and read_i16_le(packed, 0) <= 0


def what_is(entry: Entry | None) -> bytes:
    """[T1] What a task is that is no job, and what to use; b"" of a job (T1.11)."""
    if isinstance(entry, ScheduleEntry):
        return b"a schedule: use SCHEDULE PAUSE or SCHEDULE DROP"
    if isinstance(entry, GroupEntry):
        return b"a group: use GROUP CANCEL"
    if isinstance(entry, ChildEntry):
        return b"the record of a child: use GROUP CANCEL of its group"
    if isinstance(entry, HoldEntry):
        return b"the keeper of a UNIQUE key: DELJOB frees the key"
    if isinstance(entry, OfValue):
        return b"a named value: use VALUE DROP"
    return b""


def pack_plan(plan: ScheduleEntry) -> bytes:
    """The bytes of the schedule."""
    row = ScheduleRow(
        0,
        plan.noted_ms,
        plan.fired_ms,
        plan.base_ms,
        plan.fired_seq,
        plan.fired_epoch,
        plan.every_ms,
        plan.ttl_ms,
        plan.ttr_ms,
        plan.pri,
        plan.fired,
        plan.late,
        plan.is_paused,
        plan.missed,
        plan.name,
        plan.cron,
        plan.zone,
        plan.keys,
    )
    return ENTRIES.pack(row)[1]


def plan_in(packed: bytes) -> ScheduleEntry | None:
    """The plan in bytes from a journal or another node; its keys are not looked at. None: none."""
    try:
        row: ScheduleRow = ENTRIES.unpack(SCHEDULE, packed, 0, len(packed))
    except BadRow:
        return None
    plan = ScheduleEntry()
    plan.name, plan.cron, plan.zone, plan.keys = row.name, row.cron, row.zone, row.keys
    plan.every_ms, plan.missed, plan.is_paused = row.every_ms, row.missed, row.is_paused
    plan.ttl_ms, plan.ttr_ms, plan.pri = row.ttl_ms, row.ttr_ms, row.pri
    plan.noted_ms, plan.base_ms, plan.fired_ms = row.noted_ms, row.base_ms, row.fired_ms
    plan.fired_seq, plan.fired_epoch = row.fired_seq, row.fired_epoch
    plan.fired, plan.late = row.fired, row.late
    return plan


def same_words(one: ScheduleEntry, other: ScheduleEntry) -> bool:
    """Whether both say the same; what has happened since is no part of it (T45.2)."""
    if one.cron != other.cron or one.zone != other.zone or one.every_ms != other.every_ms:
        return False
    if one.missed != other.missed or one.keys != other.keys or one.pri != other.pri:
        return False
    return one.ttl_ms == other.ttl_ms and one.ttr_ms == other.ttr_ms


@final
class Plans:
    """The schedules of one tube, by name, jobs that wait for copies (T45.4), groups and values."""

    def __init__(self) -> None:
        self.by_name: dict[bytes, int] = {}  # numbers of tasks
        self.held: dict[int, int] = {}  # number of a job: the change that added it
        self.members = Members()
        self.values = Values()
        self.caught: dict[int, int] = {}  # by number: no instant up to then counts as missed

    def joined(self, task: Task) -> i64:
        """A task that is no job is in the tube; returns the bytes that this takes."""
        plan = task.entry
        if isinstance(task.entry, OfValue):
            return self.values.joined(task)
        if not isinstance(plan, ScheduleEntry):
            return self.members.joined(task)
        name = plan.name
        is_new = name not in self.by_name
        self.by_name[name] = int(task.number)
        return PLAN_BYTES + len(name) if is_new else i64(0)

    def ended(self, task: Task) -> i64:
        """The task, which is no job, is gone; returns the bytes that are free."""
        plan = task.entry
        if isinstance(task.entry, OfValue):
            return self.values.ended(task)
        if not isinstance(plan, ScheduleEntry):
            return self.members.ended(task)
        self.caught.pop(int(task.number), None)
        name = plan.name
        if self.by_name.get(name, -1) != task.number:
            return 0
        del self.by_name[name]
        return PLAN_BYTES + len(name)
