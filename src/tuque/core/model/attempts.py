"""The attempts of a job as a row of bytes, oldest first (SPEC W18).

A job that never failed has no row. The work of a job keeps the row, its copies merge it, and its
outcome keeps it on. It is bytes and not objects: it is written and sent far more often than read.

An attempt is: size of the rest i32, run i64, began_ms i64, ended_ms i64, state u8 to ENDED_LAST,
size of the worker u8, of the reason i16, of the detail i16, then these three.
"""

from typing import Final, final

from librt.strings import (
    BytesWriter,
    read_i16_le,
    read_i32_le,
    read_i64_le,
    write_i16_le,
    write_i32_le,
    write_i64_le,
)
from mypy_extensions import i16, i32, i64, mypyc_attr, u8

KEPT: Final = 16  # the last ones
ROW_MAX: Final = 65_536  # bytes: above that the oldest details go
REASON_MAX: Final = 2_048
BRIEF_REASON_MAX: Final = 160  # of a job without KEEP BODY, which has no details
DETAIL_MAX: Final = 8_192
WORKER_MAX: Final = 255

FIXED: Final = 30  # run to the size of the detail
INSTANT_LAST: Final = (1 << 62) - 1
SUM_MAX_MS: Final = 1 << 53  # sums of such instants stay within 64 bits

# how an attempt ended; of two words about one the lower stands: a worker knows it, silence does not
STATES: Final = [b"failed", b"timeout", b"crashed", b"cancelled", b"done", b"dead", b"running"]
CANCELLED_STATE: Final = b"cancelled"
ENDED_LAST: Final = 3  # of those in a row


@final
@mypyc_attr(acyclic=True)
class Attempt:
    """One of a row."""

    def __init__(
        self,
        run: i64,
        began_ms: i64,
        ended_ms: i64,
        state: bytes,
        worker: bytes,
        reason: bytes = b"",
        detail: bytes = b"",
    ) -> None:
        self.run = run
        self.began_ms = began_ms  # 0: not known
        self.ended_ms = ended_ms  # 0: it lasts
        self.state = state
        self.worker = worker
        self.reason = reason
        self.detail = detail

    def packed(self) -> bytes:
        """Its bytes; what is too long is cut, a detail at its begin: a traceback ends with the
        error.
        """
        worker = self.worker[:WORKER_MAX]
        reason = self.reason[:REASON_MAX]
        detail = self.detail[max(0, len(self.detail) - DETAIL_MAX) :]
        w = BytesWriter()
        write_i32_le(w, i32(FIXED + len(worker) + len(reason) + len(detail)))
        write_i64_le(w, self.run)
        write_i64_le(w, self.began_ms)
        write_i64_le(w, self.ended_ms)
        w.append(u8(STATES.index(self.state)))
        w.append(u8(len(worker)))
        write_i16_le(w, i16(len(reason)))
        write_i16_le(w, i16(len(detail)))
        w.write(worker)
        w.write(reason)
        w.write(detail)
        return w.getvalue()


def parts_of(row: bytes) -> list[bytes]:
    """The attempts of a sound row, each in its bytes."""
    parts: list[bytes] = []
    at: i64 = 0
    while at < len(row):
        end = at + 4 + i64(read_i32_le(row, at))
        parts.append(row[at:end])
        at = end
    return parts


def attempt_in(part: bytes) -> Attempt:
    """The attempt in its bytes."""
    worker_end: i64 = 4 + FIXED + i64(part[29])
    reason_end = worker_end + i64(read_i16_le(part, 30))
    return Attempt(
        read_i64_le(part, 4),
        read_i64_le(part, 12),
        read_i64_le(part, 20),
        STATES[part[28]],
        part[4 + FIXED : worker_end],
        part[worker_end:reason_end],
        part[reason_end:],
    )


def attempts_of(row: bytes) -> list[Attempt]:
    """The attempts of a sound row."""
    return [attempt_in(part) for part in parts_of(row)]


def are_attempts(row: bytes) -> bool:
    """Whether bytes from a journal or another node are a row."""
    at: i64 = 0
    count: i64 = 0
    end: i64 = len(row)
    if end > ROW_MAX:
        return False
    while at < end:
        if end - at < 4 + FIXED or count == KEPT:
            return False
        size: i64 = i64(read_i32_le(row, at))
        times = read_i64_le(row, at + 12) | read_i64_le(row, at + 20)
        reason: i64 = i64(read_i16_le(row, at + 30))
        detail: i64 = i64(read_i16_le(row, at + 32))
        if row[at + 28] > ENDED_LAST or not 0 <= times <= INSTANT_LAST:
            return False
        if read_i64_le(row, at + 4) <= 0 or reason < 0 or detail < 0:
            return False
        if reason > REASON_MAX or detail > DETAIL_MAX:
            return False
        if size != FIXED + i64(row[at + 29]) + reason + detail or size > end - at - 4:
            return False
        at += 4 + size
        count += 1
    return True


def with_attempt(row: bytes, attempt: Attempt) -> bytes:
    """The row with one more attempt, within its bounds (W18.2)."""
    part = attempt.packed()
    count: i64 = 0
    at: i64 = 0
    while at < len(row):
        at += 4 + i64(read_i32_le(row, at))
        count += 1
    if count < KEPT and at + len(part) <= ROW_MAX:
        return row + part
    return bounded([*parts_of(row), part])


def bounded(parts: list[bytes]) -> bytes:
    """The row of the last of these; above ROW_MAX the oldest details go first (W18.2)."""
    parts = parts[max(0, len(parts) - KEPT) :]
    size: i64 = 0
    for part in parts:
        size += len(part)
    i: i64 = 0
    while size > ROW_MAX and i < len(parts):
        size -= len(parts[i])
        parts[i] = short(parts[i])
        size += len(parts[i])
        i += 1
    return b"".join(parts)


def short(part: bytes) -> bytes:
    """The attempt without its detail."""
    detail: i64 = i64(read_i16_le(part, 32))
    if detail == 0:
        return part
    w = BytesWriter()
    write_i32_le(w, i32(len(part) - 4 - detail))
    w.write(part[4:32])
    write_i16_le(w, i16(0))
    w.write(part[34 : len(part) - detail])
    return w.getvalue()


def without_details(row: bytes) -> bytes:
    """The row of the same attempts without details: memory is short (M3.4)."""
    return b"".join([short(part) for part in parts_of(row)])


def details_bytes(row: bytes) -> i64:
    """Bytes of the details in the row."""
    size: i64 = 0
    for part in parts_of(row):
        size += i64(read_i16_le(part, 32))
    return size


def merged(mine: bytes, theirs: bytes) -> bytes:
    """[W18] One row of two views, in any order the same (W18.3)."""
    if len(theirs) == 0 or mine == theirs:
        return mine
    if len(mine) == 0:
        return theirs
    by_run: dict[int, bytes] = {}
    for part in parts_of(mine) + parts_of(theirs):
        run = int(read_i64_le(part, 4))
        other = by_run.get(run)
        if other is None or part[28:] + part < other[28:] + other:
            by_run[run] = part
    runs = list(by_run)
    runs.sort()
    return bounded([by_run[run] for run in runs])


def moved_row(row: bytes, by_ms: i64) -> bytes:
    """The row with its instants on another clock (J5.8, W14.1); 0 stays."""
    if by_ms == 0 or len(row) == 0:
        return row
    parts: list[bytes] = []
    for part in parts_of(row):
        one = attempt_in(part)
        one.began_ms = moved(one.began_ms, by_ms)
        one.ended_ms = moved(one.ended_ms, by_ms)
        parts.append(one.packed())
    return b"".join(parts)


def moved(at_ms: i64, by_ms: i64) -> i64:
    """An instant on another clock; 0 stays."""
    return 0 if at_ms == 0 else max(1, min(at_ms, SUM_MAX_MS) + by_ms)
