"""What an UPDATEJOB asks for (SPEC W10)."""

from typing import final

from mypy_extensions import i64


@final
class Update:
    """-1 and None leave a field as it is."""

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
