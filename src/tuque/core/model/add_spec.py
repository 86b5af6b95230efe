"""What an ADDJOB asks for, before and after its defaults (SPEC R1), and an UPDATEJOB (W10)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.life import Terms


class AddSpec:
    """What an ADDJOB asks for; -1 where the client left the default."""

    def __init__(self) -> None:
        self.replicate: i64 = -1
        self.delay_s: i64 = 0
        self.retry_s: i64 = -1
        self.ttl_s: i64 = -1
        self.maxlen: i64 = 0
        self.is_async = False
        self.key = b""  # DEDUPE; empty: none
        self.with_new = False  # the reply says whether the job is new (Z4.7)
        self.delay_ms: i64 = 0
        self.terms: Terms | None = None  # of its work (W1)
        self.headers = b""
        # of tubes only
        self.pri: i64 = 0
        self.has_pri = False
        self.utube = b""
        self.has_utube = False
        self.keys = b""  # packed, of a tube of type tasks (T40)
        self.rejects_same = False  # UNIQUE ... ON reject (T44.5)
        self.replaces_same = False  # UNIQUE ... ON replace (T44.7)
        self.has_met = False  # the reply is the task that has the unique key (T44.4)
        # as the client said, before defaults
        self.asked_replicate: i64 = -1
        self.asked_retry_s: i64 = -1
        self.asked_ttl_s: i64 = -1
        self.key_ttl_ms: i64 = 86_400_000


PLAIN: Final = AddSpec()  # no options given


@final
class Update:
    """What an UPDATEJOB asks for; -1 and None leave a field as it is."""

    def __init__(self) -> None:
        self.body: bytes | None = None
        self.delay_ms: i64 = -1
        self.ttl_s: i64 = -1
        self.attempts: i64 = -1
        self.headers: bytes | None = None
        self.pri: i64 = -1  # of a task

    def is_only_pri(self) -> bool:
        """Whether it is what a task of a tube can be asked for."""
        if self.body is not None or self.headers is not None or self.pri < 0:
            return False
        return self.delay_ms < 0 and self.ttl_s < 0 and self.attempts < 0
