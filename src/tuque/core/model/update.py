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
