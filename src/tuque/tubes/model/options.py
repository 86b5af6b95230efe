"""Options from callers of tubes, and notices of changes for them (SPEC T1, T2, T12)."""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.task import Task

PRI_DEFAULT: Final = -(1 << 62)
NOT_SAID: Final = -(1 << 60)
MAJORITY: Final = NOT_SAID + 1  # as SYNC
NO: Final = 0
YES: Final = 1
CHANGES_MAX: Final = 1000  # notices kept per tube


class TubeOptions:
    """Options of a tube; -1 for the default (T1)."""

    def __init__(self) -> None:
        self.temporary = False
        self.if_not_exists = False
        self.ttl_ms: i64 = -1
        self.ttr_ms: i64 = -1
        self.pri: i64 = PRI_DEFAULT
        self.capacity: i64 = 0  # 0: no limit
        self.storage_mode = b""
        self.engine = b""
        self.on_task_change = b""  # name of a callback of the server
        # nodes that must have a change before the reply (T18.5), or one of those above
        self.sync: i64 = NOT_SAID
        self.failover: i64 = NOT_SAID  # NO or YES (T23.5)


@mypyc_attr(acyclic=True)
class PutSpec:
    """Options of a put; -1, PRI_DEFAULT or None for the default (T5)."""

    def __init__(self) -> None:
        self.ttl_ms: i64 = -1
        self.ttr_ms: i64 = -1
        self.delay_ms: i64 = -1
        self.pri: i64 = PRI_DEFAULT
        self.utube: bytes | None = None
        self.keys = b""  # tasks: packed as in keys/words.py
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
