"""Notices of changes of tasks as they are kept: packed one after the other (SPEC T12).

Every change writes one and few are ever read, so that writing must be cheap: what an object each
would cost is memory that is touched once and gone from all caches before it comes round again.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64, mypyc_attr, u8

from tuque.tubes.options import Change

SHEET_CHANGES: Final = 500  # on one sheet
_ROW: Final = 17  # task number i64, instant i64, status u8


@final
@mypyc_attr(acyclic=True)
class Sheet:
    """Some changes of one tube, in their order."""

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.rows = BytesWriter()

    def add(self, event: bytes, number: i64, status: i64, now_ms: i64) -> None:
        """Write one more."""
        self.events.append(event)
        rows = self.rows
        write_i64_le(rows, number)
        write_i64_le(rows, now_ms)
        rows.append(u8(status))

    def read(self, base: i64, first: i64, most: i64, found: list[Change]) -> None:
        """Add notices from the number `first` on; the first one here has the number `base`."""
        rows = self.rows.getvalue()
        i: i64 = first - base
        if i < 0:
            i = 0
        while i < len(self.events) and len(found) < most:
            at = i * _ROW
            number = read_i64_le(rows, at)
            at_ms = read_i64_le(rows, at + 8)
            found.append(Change(base + i, self.events[i], number, i64(rows[at + 16]), at_ms))
            i += 1
