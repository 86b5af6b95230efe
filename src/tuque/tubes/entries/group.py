"""Groups of jobs and their children, as tasks carry them, and their bytes (SPEC T50).

A group is a task that stays DELAYED, and so is the record of each child. In records and copies they
have bytes where other tasks have their keys: a group those of a `GroupRow`
(core/msgs/entries.py), a child, which each job of the group has, those of core/msgs/packed.py.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i16_le, read_i64_le, write_i16_le, write_i64_le
from mypy_extensions import i16, i64, mypyc_attr, u8

from tuque.core.model.task import Entry, Task
from tuque.core.model.work import EXPIRED, SET_ASIDE, UNSTARTED
from tuque.core.msgs.entries import ENTRIES, GROUP, GroupRow
from tuque.core.msgs.layout import BadRow
from tuque.core.msgs.packed import CHILD_FIXED, CHILDREN_MAX, JOB_ID_MAX, NUMBER_LAST, REASON_MAX

GROUPS_MAX: Final = 10_000  # of one tube
RESULT_MAX: Final = 65_536  # of one child; CHILD_BYTES of the worker is the same (U2.8)
RESULTS_MAX: Final = 64 * 1024 * 1024  # of all children of a group
GROUP_BYTES: Final = 300
CHILD_BYTES: Final = 120

# what becomes of the group when a child fails (T50.5)
STOP: Final = 0
WAIT: Final = 1
CONTINUE: Final = 2
POLICY_WORDS: Final = ["stop", "wait", "continue"]

# states: of a group, and of a child
OPEN: Final = 0
DONE: Final = 1
FAILED: Final = 2
CANCELLED: Final = 3

A_GROUP: Final = 1
A_CHILD: Final = 2
# why a child has failed, where its RESULT has no reason (T50.3)
GONE_WHY: Final = b"it expired, was deleted, or ended and is not kept"
WHYS: Final = {
    EXPIRED: b"its TTL was over",
    UNSTARTED: b"no worker began it",
    SET_ASIDE: b"it was buried",
}
LARGE: Final = b"its result of %d bytes is larger than %d"
LARGE_ALL: Final = b"the results of the group are larger than %d bytes"
NO_RESULT: Final = b"its result is not kept: %s"
KIND_AT: Final = 2
# bits of a child
HAS_RESULT: Final = 1
WAS_MET: Final = 2


@final
@mypyc_attr(acyclic=True)
class GroupEntry(Entry):
    """How many children a group has, and what becomes of it.

    What a task carries is not changed: it gets another one, made by `copy`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.policy: i64 = STOP
        self.state: i64 = OPEN
        self.has_callback = False
        self.size: i64 = 0  # children
        self.keep_ms: i64 = 0
        self.over_ms: i64 = 0  # 0: it is open
        self.keys = b""  # of the callback, with its work

    def packed(self, taken_ms: i64) -> bytes:
        """Its bytes."""
        return pack_group(self) if len(self.image) == 0 else self.image

    def copy(self) -> "GroupEntry":
        """Another one that says the same."""
        made = GroupEntry()
        made.policy, made.state = self.policy, self.state
        made.has_callback = self.has_callback
        made.size, made.keep_ms, made.over_ms = self.size, self.keep_ms, self.over_ms
        made.keys = self.keys
        return made


@final
@mypyc_attr(acyclic=True)
class ChildEntry(Entry):
    """One child, and how it ended; not changed either."""

    def __init__(self) -> None:
        super().__init__()
        self.state: i64 = OPEN
        self.group: i64 = 0  # the number of its task
        self.index: i64 = 0
        self.over_ms: i64 = 0
        self.id = b""  # of the job
        self.is_met = False  # another one added the job: the group does not cancel it (T51.2)
        self.word = b""  # its outcome: done, dead, cancelled or gone; OPEN and dead: waited for
        self.reason = b""
        self.result: bytes | None = None

    def packed(self, taken_ms: i64) -> bytes:
        """Its bytes."""
        return pack_child(self) if len(self.image) == 0 else self.image

    def copy(self) -> "ChildEntry":
        """Another one that says the same."""
        made = ChildEntry()
        made.state, made.group, made.index = self.state, self.group, self.index
        made.over_ms, made.id, made.is_met = self.over_ms, self.id, self.is_met
        made.word, made.reason, made.result = self.word, self.reason, self.result
        return made


def is_of_group(task: Task) -> bool:
    """Whether the task is a group or a child of one."""
    return isinstance(task.entry, GroupEntry | ChildEntry)


def is_member(packed: bytes) -> bool:
    """Whether these are the bytes of a group or of a child of one."""
    return len(packed) > KIND_AT and packed[0] == 255 and packed[1] == 255


def is_group(packed: bytes) -> bool:
    """Whether these are the bytes of a group that has not become its callback yet."""
    return is_member(packed) and packed[KIND_AT] == A_GROUP


def pack_group(plan: GroupEntry) -> bytes:
    """The bytes of the group."""
    row = GroupRow(
        -1,
        A_GROUP,
        plan.policy,
        plan.state,
        plan.has_callback,
        plan.size,
        plan.keep_ms,
        plan.over_ms,
        plan.keys,
    )
    return ENTRIES.pack(row)[1]


def group_in(packed: bytes) -> GroupEntry | None:
    """The group in bytes from a journal or another node. None: it is none.

    The keys of its callback are not looked at.
    """
    try:
        row: GroupRow = ENTRIES.unpack(GROUP, packed, 0, len(packed))
    except BadRow:
        return None
    plan = GroupEntry()
    plan.policy, plan.state, plan.has_callback = row.policy, row.state, row.has_callback
    plan.size, plan.keep_ms, plan.over_ms = row.size, row.keep_ms, row.over_ms
    plan.keys = row.keys
    return plan


def pack_child(child: ChildEntry) -> bytes:
    """The bytes of the child."""
    writer = BytesWriter()
    write_i16_le(writer, -1)
    writer.append(A_CHILD)
    writer.append(u8(child.state))
    bits = 0 if child.result is None else HAS_RESULT
    writer.append(u8(bits | WAS_MET) if child.is_met else u8(bits))
    for number in (child.group, child.index, child.over_ms):
        write_i64_le(writer, i64(number))
    words = (child.id, child.word, child.reason)
    for word in words:
        write_i16_le(writer, i16(len(word)))
    for word in words:
        writer.write(word)
    if child.result is not None:
        writer.write(child.result)
    return writer.getvalue()


def child_in(packed: bytes) -> ChildEntry | None:
    """The child in the bytes of a member, from a journal or another node. None: it is none."""
    if packed[KIND_AT] != A_CHILD or len(packed) < CHILD_FIXED:
        return None
    bits: i64 = packed[4]
    child = ChildEntry()
    child.state = i64(packed[3])
    child.group = read_i64_le(packed, 5)
    child.index = read_i64_le(packed, 13)
    child.over_ms = read_i64_le(packed, 21)
    if bits > HAS_RESULT | WAS_MET or child.state > FAILED:
        return None
    if not 0 <= child.group | child.over_ms <= NUMBER_LAST or not 0 <= child.index < CHILDREN_MAX:
        return None
    words: list[bytes] = []
    at: i64 = CHILD_FIXED
    for i in range(3):
        size = i64(read_i16_le(packed, 29 + 2 * i))
        if size < 0 or size > len(packed) - at:
            return None
        words.append(packed[at : at + size])
        at += size
    child.id, child.word, child.reason = words[0], words[1], words[2]
    child.is_met = bits & WAS_MET != 0
    if bits & HAS_RESULT != 0:
        child.result = packed[at:]
    elif at != len(packed):
        return None
    return child if 0 < len(child.id) <= JOB_ID_MAX else None


@final
class Family:
    """The children of one group that were added."""

    def __init__(self) -> None:
        self.by_index: dict[int, int] = {}  # numbers of their records
        self.done: i64 = 0
        self.failed: i64 = 0
        self.dead: i64 = 0  # waited for: they are open (T50.5)
        self.result_bytes: i64 = 0


@final
class Members:
    """The groups of one tube, by the number of their task."""

    def __init__(self) -> None:
        self.open: dict[int, None] = {}  # those that have not become their callback
        self.families: dict[int, Family] = {}

    def joined(self, task: Task) -> i64:
        """A group or a child is in the tube; returns the bytes that this takes."""
        child = task.entry
        if not isinstance(child, ChildEntry):
            self.open[int(task.number)] = None
            return GROUP_BYTES
        family = self.families.get(int(child.group))
        if family is None:
            family = Family()
            self.families[int(child.group)] = family
        if int(child.index) in family.by_index:
            return 0  # a stray: one record of an index counts
        family.by_index[int(child.index)] = int(task.number)
        self.count(family, child, 1)
        return CHILD_BYTES

    def ended(self, task: Task) -> i64:
        """The group or child is gone; returns the bytes that are free."""
        child = task.entry
        if not isinstance(child, ChildEntry):
            self.open.pop(int(task.number), None)
            return GROUP_BYTES
        family = self.families.get(int(child.group))
        if family is None or family.by_index.get(int(child.index), -1) != int(task.number):
            return 0
        del family.by_index[int(child.index)]
        self.count(family, child, -1)
        if len(family.by_index) == 0:
            del self.families[int(child.group)]
        return CHILD_BYTES

    def count(self, family: Family, child: ChildEntry, by: i64) -> None:
        """Count the child in its family, or no more."""
        if child.state == DONE:
            family.done += by
        elif child.state == FAILED:
            family.failed += by
        elif len(child.word) > 0:
            family.dead += by
        if child.result is not None:
            family.result_bytes += by * len(child.result)


def why_failed(word: bytes, cause: bytes, reason: bytes) -> bytes:
    """[T50] Why a child has failed, by how it ended, and by cause and reason of that (T50.3)."""
    if word == b"gone" and len(reason) == 0:
        return GONE_WHY
    why = WHYS.get(cause)
    if why is None:
        return reason
    return b"%s; its last failure: %s" % (why, reason) if len(reason) > 0 else why


def end_child(child: ChildEntry, state: i64, word: bytes, reason: bytes) -> None:
    """The child has ended so, without a result."""
    child.state = state
    child.word = word
    child.reason = reason[:REASON_MAX]
    child.result = None


def end_by_outcome(child: ChildEntry, fields: dict[str, object], before_bytes: i64) -> None:
    """[T50] The child has ended with these fields of RESULT (T50.3).

    `before_bytes`: of the results of the others.
    """
    word = fields["state"]
    cause = fields["cause"]
    reason = fields["reason"]
    result = fields["result"]
    assert isinstance(word, bytes)
    assert isinstance(cause, bytes)
    assert isinstance(reason, bytes)
    assert result is None or isinstance(result, bytes)
    size: i64 = 0 if result is None else len(result)
    if word != b"done":
        end_child(child, FAILED, word, why_failed(word, cause, reason))
    elif result is None and len(reason) > 0:
        end_child(child, FAILED, word, NO_RESULT % reason)
    elif size > RESULT_MAX:
        end_child(child, FAILED, word, LARGE % (size, RESULT_MAX))
    elif before_bytes + size > RESULTS_MAX:
        end_child(child, FAILED, word, LARGE_ALL % RESULTS_MAX)
    else:
        end_child(child, DONE, word, b"")
        child.result = result
