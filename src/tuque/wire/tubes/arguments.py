"""The arguments of a call of a tube procedure, for both doors (SPEC T15, I6)."""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.tubes.model.options import NOT_SAID, PRI_DEFAULT, PutSpec, TubeOptions

NO_NAMES: Final[list[bytes]] = []


@final
@mypyc_attr(acyclic=True)
class Options:
    """Rare arguments; times are ms. Defaults stand for those not given."""

    def __init__(self) -> None:
        self.delay_ms: i64 = -1
        self.ttl_ms: i64 = -1
        self.ttr_ms: i64 = -1
        self.pri: i64 = PRI_DEFAULT
        self.utube: bytes | None = None
        self.count: i64 = 100  # tasks or changes
        self.status: i64 = 0
        self.after: i64 = -1
        self.capacity: i64 = 0
        self.sync_nodes: i64 = NOT_SAID
        self.failover: i64 = NOT_SAID
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
        o.failover = self.failover
        return o


NOTHING: Final = Options()  # shared by all calls without such options


@mypyc_attr(acyclic=True)
class TubeArgs:
    """The arguments of one call. Both doors' tables name the fields of its options."""

    def __init__(self) -> None:
        self.tube: bytes | None = None
        self.body = b""
        self.form: i64 = 0
        self.number: i64 = 0  # of a task
        self.token: i64 = 0
        self.timeout_ms: i64 = -1  # or the additional life of a task
        self.given: i64 = 0  # number of options given
        self.options = NOTHING

    def set_option(self, field: str, value: object) -> None:
        """Set one of the options."""
        if self.options is NOTHING:
            self.options = Options()
        setattr(self.options, field, value)

    def put_spec(self) -> PutSpec:
        """The options of a put."""
        o = self.options
        spec = PutSpec()
        spec.ttl_ms = o.ttl_ms
        spec.ttr_ms = o.ttr_ms
        spec.delay_ms = o.delay_ms
        spec.pri = o.pri
        spec.utube = o.utube
        spec.timeout_ms = self.timeout_ms if self.timeout_ms > 0 else i64(0)
        return spec
