"""Options from callers of tubes, and notices of changes for them (SPEC T1, T2, T12)."""

from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64, mypyc_attr

from tuque.core.model.task import Task
from tuque.core.model.work import Life

PRI_DEFAULT: Final = -(1 << 62)
NOT_SAID: Final = -(1 << 60)
MAJORITY: Final = NOT_SAID + 1  # as SYNC
NO: Final = 0
YES: Final = 1
CHANGES_MAX: Final = 1000  # notices kept per tube

# events of changes (T12.2)
PUT: Final = 0
TAKE: Final = 1
TOUCH: Final = 2
RELEASE: Final = 3
BURY: Final = 4
KICK: Final = 5
TTR: Final = 6
DELAY: Final = 7
ACK: Final = 8
DELETE: Final = 9
TRUNCATE: Final = 10
TTL: Final = 11
UPDATE: Final = 12

EVENTS: Final = [
    b"put",
    b"take",
    b"touch",
    b"release",
    b"bury",
    b"kick",
    b"ttr",
    b"delay",
    b"ack",
    b"delete",
    b"truncate",
    b"ttl",
    b"update",
]

SHEET_CHANGES: Final = 500  # per sheet
_ROW: Final = 16  # task number i64; instant, event u8 and status u8 in one i64


class TubeOptions:
    """Options of a tube; -1 for the default (T1)."""

    def __init__(self) -> None:
        self.temporary = False
        self.if_not_exists = False
        self.implicit = False  # an enqueue makes it (T2.9)
        self.ttl_ms: i64 = -1
        self.ttr_ms: i64 = -1
        self.pri: i64 = PRI_DEFAULT
        self.capacity: i64 = 0  # 0: no limit
        self.storage_mode = b""
        self.engine = b""
        self.on_task_change = b""  # name of a callback of the server
        # nodes that must have a change before the reply (T18.5), or one of those above
        self.sync: i64 = NOT_SAID
        self.failover: i64 = YES  # NO is refused (T23.6)
        self.is_alone = False  # also where no vote could choose another leader (T23.7)


@mypyc_attr(acyclic=True)
class PutSpec:
    """Options of a put; -1, PRI_DEFAULT or None for the default (T5)."""

    def __init__(self) -> None:
        self.ttl_ms: i64 = -1
        self.ttr_ms: i64 = -1
        self.delay_ms: i64 = -1
        self.pri: i64 = PRI_DEFAULT
        self.utube: bytes | None = None
        self.keys = b""  # tasks: packed as in entries/keys.py
        self.work: Life | None = None  # the same: of this task alone
        self.timeout_ms: i64 = 0  # limfifottl: how long to wait for room


@final
@mypyc_attr(acyclic=True)
class Change:
    """One change of a task, as pollers read it; `seq` counts the changes of its tube."""

    def __init__(self, seq: i64, event: bytes, number: i64, status: i64, at_ms: i64) -> None:
        self.seq = seq
        self.event = event
        self.number = number
        self.status = status
        self.at_ms = at_ms


@final
class Told:
    """A change for subscribers and callbacks of a tube."""

    def __init__(self, tube: bytes, change: Change, task: Task) -> None:
        self.tube = tube
        self.change = change
        self.task = task


@final
class PutDone:
    """The end of a put that waited for room; without a task it found none (T7)."""

    def __init__(self, client: i64, serial: i64, task: Task | None) -> None:
        self.client = client
        self.serial = serial
        self.task = task
        self.moved = b""  # the tube, if another node leads it now (T17.3)


@final
class Putter:
    """A put waiting for room (T7)."""

    def __init__(
        self, body: bytes, form: i64, spec: PutSpec, client: i64, serial: i64, until_ms: i64
    ) -> None:
        self.body = body
        self.form = form
        self.spec = spec
        self.client = client
        self.serial = serial
        self.until_ms = until_ms
        self.is_over = False


# ---- The kept notices of changes of tasks, packed (SPEC T12)
#
# Every change writes one and few are ever read, so that writing must be cheap: one object each
# would be memory that is touched once and has left all caches before it is reused.


@final
@mypyc_attr(acyclic=True)
class Sheet:
    """Consecutive changes of one tube."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.rows = BytesWriter()

    def add(self, event: i64, number: i64, status: i64, now_ms: i64) -> None:
        """Add a change."""
        self.count += 1
        rows = self.rows
        write_i64_le(rows, number)
        write_i64_le(rows, now_ms << 16 | event << 8 | status)

    def read(self, base: i64, first: i64, most: i64, found: list[Change]) -> None:
        """Append notices from the number `first` on; this sheet begins with the number `base`."""
        rows = self.rows.getvalue()
        i: i64 = first - base
        if i < 0:
            i = 0
        while i < self.count and len(found) < most:
            at = i * _ROW
            number = read_i64_le(rows, at)
            what = read_i64_le(rows, at + 8)
            event = EVENTS[what >> 8 & 255]
            found.append(Change(base + i, event, number, what & 255, what >> 16))
            i += 1
