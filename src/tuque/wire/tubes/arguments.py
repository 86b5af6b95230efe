"""What a call of a tube procedure says, whichever door it came through (SPEC T15, I6)."""

from typing import Final

from mypy_extensions import i64

from tuque.tubes.model.options import PRI_DEFAULT, PutSpec, TubeOptions

NO_NAMES: Final[list[bytes]] = []


class TubeArgs:
    """The arguments of one call; times are ms. What was not said has the value for that.

    The tables of both doors name these fields.
    """

    def __init__(self) -> None:
        self.options: i64 = 0  # how many were said
        self.tube: bytes | None = None
        self.body = b""
        self.form: i64 = 0
        self.number: i64 = 0  # of a task
        self.token: i64 = 0
        self.timeout_ms: i64 = -1  # or how much longer a task lives
        self.delay_ms: i64 = -1
        self.ttl_ms: i64 = -1
        self.ttr_ms: i64 = -1
        self.pri: i64 = PRI_DEFAULT
        self.utube: bytes | None = None
        self.count: i64 = 100  # of tasks or changes
        self.status: i64 = 0
        self.after: i64 = -1
        self.capacity: i64 = 0
        self.sync_nodes: i64 = 1
        self.in_replicaset: bool | None = None
        self.storage_mode = b""
        self.engine = b""
        self.on_change = b""
        self.name: bytes | None = None  # of a type, user, role, node or session
        self.prefix: bytes | None = None
        self.names = NO_NAMES  # of tubes
        self.if_not_exists = False
        self.temporary = False
        self.is_role = False
        self.may_call = False
        self.may_truncate = False
        self.is_forced = False

    def put_spec(self) -> PutSpec:
        """The options of a put."""
        spec = PutSpec()
        spec.ttl_ms = self.ttl_ms
        spec.ttr_ms = self.ttr_ms
        spec.delay_ms = self.delay_ms
        spec.pri = self.pri
        spec.utube = self.utube
        spec.timeout_ms = self.timeout_ms if self.timeout_ms > 0 else i64(0)
        return spec

    def tube_options(self) -> TubeOptions:
        """The options of a new tube."""
        o = TubeOptions()
        o.temporary = self.temporary
        o.if_not_exists = self.if_not_exists
        o.ttl_ms = self.ttl_ms
        o.ttr_ms = self.ttr_ms
        o.pri = self.pri
        o.capacity = self.capacity
        o.storage_mode = self.storage_mode
        o.engine = self.engine
        o.on_task_change = self.on_change
        o.sync = self.sync_nodes
        return o
