"""The kept notices of changes of tasks, packed (SPEC T12).

Every change writes one and few are ever read, so that writing must be cheap: one object each would
be memory that is touched once and has left all caches before it is reused.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64, mypyc_attr

from tuque.tubes.model.options import Change

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
    *(b"put", b"take", b"touch", b"release", b"bury", b"kick", b"ttr", b"delay"),
    *(b"ack", b"delete", b"truncate", b"ttl", b"update"),
]

SHEET_CHANGES: Final = 500  # per sheet
_ROW: Final = 16  # task number i64; instant, event u8 and status u8 in one i64


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
