"""SPEC J2, J5: a record that says what cannot be is refused, though its checksum is right."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack, pack_into

import pytest

from sim.engine.clock import START_MS
from tuque.core.model.task import BYTES, READY, Task
from tuque.core.msgs.records import GrantRow, Published, SessionRow
from tuque.core.records.jobs import Records
from tuque.core.records.leases import tell_group
from tuque.core.records.read import BadRecord, Record, decode
from tuque.core.records.tubes import tell_task
from tuque.core.tables.leases import Group

HEAD = 5  # length and kind
ID = b"D-c0ffee00-ABQgLxDc1g49jaAAWLlwZs1y-05a1"


def task() -> Task:
    """A task of the tube t."""
    made = Task(ID, b"t", b"body", START_MS * 1_000_000, 1, 0, BYTES)
    made.status = READY
    return made


def whole() -> dict[str, bytes]:
    """A sound record of each kind."""
    records, found = Records(), {}
    tell_group(records, Group(b"g", b"me", [b"q"], 7))
    found["lease-group"] = records.take()
    records.put(Published(1, START_MS, 1, 1, [b"a"], [ID, ID], b"app", b"txn"))
    found["published"] = records.take()
    tell_task(records, task())
    found["task-add"] = records.take()
    records.put(SessionRow(1, START_MS, False, b"u" * 16, b"guest"))
    found["session"] = records.take()
    records.put(GrantRow(1, b"t", b"queue", b"me"))
    found["grant"] = records.take()
    return found


def patched(data: bytes, at: int, form: str, value: int) -> bytes:
    """Another number at that place after length and kind."""
    changed = bytearray(data)
    pack_into("<" + form, changed, HEAD + at, value)
    return bytes(changed)


def longer(data: bytes, by: int) -> bytes:
    """So many bytes more, or fewer, and a length that says so."""
    changed = data + b"x" * by if by > 0 else data[:by]
    return pack("<i", len(changed) - 4) + changed[4:]


def test_sound_records_are_read() -> None:
    """J2.2 A record is absolute: it has instants, not durations."""
    for kind, data in whole().items():
        assert decode(data, 0, Record()) == len(data), kind


Change = Callable[[bytes], bytes]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("lease-group", lambda data: longer(data, 1)),  # bytes behind the last name
        ("published", lambda data: longer(data, -40)),  # a job without its id
        ("published", lambda data: longer(data, 1)),
        ("task-add", lambda data: patched(data, 40, "B", 9)),  # no status
        ("task-add", lambda data: patched(data, 41, "B", 9)),  # no form of data
        ("session", lambda data: patched(data, 8, "q", -1)),  # an instant before all time
        ("grant", lambda data: patched(data, 3, "H", 100)),  # a prefix longer than the record
    ],
)
def test_what_cannot_be_is_refused(kind: str, change: Change) -> None:
    """J5.2 Damage anywhere else stops the start with a text that names the file, the offset and the
    command that repairs it. It is never skipped silently.
    """
    with pytest.raises(BadRecord):
        decode(change(whole()[kind]), 0, Record())
