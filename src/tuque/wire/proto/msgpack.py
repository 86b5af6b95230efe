"""MessagePack from untrusted clients: finds each value, and checks it before any use.

Nothing is decoded as a whole. `skip` passes over one value and trusts no count: items must fit in
the remaining bytes, and nesting is bounded. A `Value` decodes what a caller asks for. The meaning
of values is for others.
"""

from struct import unpack_from
from typing import Final, final

from mypy_extensions import i64

DEPTH_MAX: Final = 128  # nested arrays and maps
LONG: Final = 4_096  # bytes of a value whose end is noted
NOTED_DEPTH: Final = 4  # levels of values whose ends are noted: none deeper is asked for

NIL: Final = 0
BOOL: Final = 1
INT: Final = 2
FLOAT: Final = 3
STR: Final = 4
BIN: Final = 5
ARRAY: Final = 6
MAP: Final = 7
EXT: Final = 8

# fmt: off
KINDS: Final[list[i64]] = [
    NIL, -1, BOOL, BOOL, BIN, BIN, BIN, EXT, EXT, EXT, FLOAT, FLOAT,
    INT, INT, INT, INT, INT, INT, INT, INT,
    EXT, EXT, EXT, EXT, EXT, STR, STR, STR, ARRAY, ARRAY, MAP, MAP,
]  # by head, from 0xc0 to 0xdf

# by the same heads: bytes that always follow the head
FIXED: Final[list[i64]] = [
    0, 0, 0, 0, 1, 2, 4, 2, 3, 5, 4, 8,
    1, 2, 4, 8, 1, 2, 4, 8,
    2, 3, 5, 9, 17, 1, 2, 4, 2, 4, 2, 4,
]
# fmt: on


class MsgpackError(Exception):
    """The bytes are not MessagePack, or exceed a limit."""


def kind_of(head: i64) -> i64:
    """The kind of a value by its first byte; -1 for 0xc1, which is invalid."""
    if head <= 0x7F or head >= 0xE0:
        return INT
    if head <= 0x8F:
        return MAP
    if head <= 0x9F:
        return ARRAY
    if head <= 0xBF:
        return STR
    return KINDS[head - 0xC0]


def big_endian(data: bytes, at: i64, size: i64) -> i64:
    """An unsigned number of 1, 2 or 4 bytes, which must be there."""
    number: i64 = data[at]
    i: i64 = 1
    while i < size:
        number = number << 8 | i64(data[at + i])
        i += 1
    return number


def payload_at(data: bytes, at: i64) -> i64:
    """Where the bytes or items of a value begin; `skip` has passed it."""
    head: i64 = data[at]
    if head < 0xC0 or head >= 0xE0:
        return at + 1
    kind = KINDS[head - 0xC0]
    if kind >= STR and kind <= MAP:
        return at + 1 + FIXED[head - 0xC0]
    return at + 1


def count_of(data: bytes, at: i64) -> i64:
    """Items of an array, or pairs of a map; `skip` has passed it."""
    head: i64 = data[at]
    if head < 0xC0:
        return head & 15
    return big_endian(data, at + 1, FIXED[head - 0xC0])


def skip(data: bytes, at: i64, end: i64) -> i64:
    """Where the value at `at` ends. MsgpackError if it is invalid or exceeds `end`."""
    if at < end:  # the common case
        first: i64 = data[at]
        if first <= 0x7F or first >= 0xE0:
            return at + 1
        if 0xA0 <= first <= 0xBF and at + 1 + (first & 31) <= end:
            return at + 1 + (first & 31)
    open: list[int] = []  # values left at each outer level
    left: i64 = 1  # and at this one
    while True:
        while left == 0:
            if len(open) == 0:
                return at
            left = open.pop()
        if at >= end:
            raise MsgpackError("it ends inside a value")
        left -= 1
        head: i64 = data[at]
        at += 1
        count: i64 = 0
        if head <= 0x7F or head >= 0xE0:
            continue
        if head <= 0x8F:
            count = (head & 15) * 2
        elif head <= 0x9F:
            count = head & 15
        elif head <= 0xBF:
            at += head & 31
        else:
            fixed = FIXED[head - 0xC0]
            if fixed > end - at:
                raise MsgpackError("it ends inside a value")
            at, count = behind(data, head, at, fixed)
        if at > end or count > end - at:
            raise MsgpackError("a count or length beyond the bytes that are there")
        if count > 0:
            if len(open) >= DEPTH_MAX:
                raise MsgpackError("nested too deep")
            open.append(left)
            left = count


def behind(data: bytes, head: i64, at: i64, fixed: i64) -> tuple[i64, i64]:
    """For a head from 0xc0 on: where its own bytes end, and the number of values inside."""
    kind = KINDS[head - 0xC0]
    if kind < 0:
        raise MsgpackError("a byte that begins no value")
    if kind in (STR, BIN):
        return at + fixed + big_endian(data, at, fixed), 0
    if kind == ARRAY:
        return at + fixed, big_endian(data, at, fixed)
    if kind == MAP:
        return at + fixed, 2 * big_endian(data, at, fixed)
    if 0xC7 <= head <= 0xC9:
        return at + fixed + big_endian(data, at, fixed - 1), 0  # the length precedes the type
    return at + fixed, 0


def skip_known(data: bytes, at: i64, end: i64, ends: dict[int, int] | None) -> i64:
    """As `skip`; `ends` has where some long values end."""
    if ends is not None:
        known = ends.get(int(at))
        if known is not None:
            return known
    return skip(data, at, end)


@final
class Passage:
    """A `skip` that is done in pieces. It notes where long values end, so that no other walks."""

    def __init__(self, data: bytes, at: i64, end: i64, ends: dict[int, int]) -> None:
        self.data = data
        self.at = at
        self.end = end
        self.ends = ends
        self.left: i64 = 1  # values at this level
        self.open: list[tuple[int, int]] = []  # of each outer one: values left, where it begins
        self.begun: i64 = -1  # where the value begins whose items are at this level

    def step(self, looks: i64) -> i64:
        """Pass over up to `looks` values; how many of them are left. Raises MsgpackError.

        It is done if some are left, or `is_done` says so.
        """
        data, at, end, left = self.data, self.at, self.end, self.left
        while looks > 0:
            while left == 0 and len(self.open) > 0:
                if at - self.begun > LONG and len(self.open) <= NOTED_DEPTH:
                    self.ends[int(self.begun)] = int(at)
                outer, begun = self.open.pop()
                left = outer
                self.begun = begun
            if left == 0:
                break
            if at >= end:
                raise MsgpackError("it ends inside a value")
            looks -= 1
            left -= 1
            first = at
            head: i64 = data[at]
            at += 1
            count: i64 = 0
            if head <= 0x7F or head >= 0xE0:
                continue
            if head <= 0x8F:
                count = (head & 15) * 2
            elif head <= 0x9F:
                count = head & 15
            elif head <= 0xBF:
                at += head & 31
            else:
                fixed = FIXED[head - 0xC0]
                if fixed > end - at:
                    raise MsgpackError("it ends inside a value")
                at, count = behind(data, head, at, fixed)
            if at > end or count > end - at:
                raise MsgpackError("a count or length beyond the bytes that are there")
            if count > 0:
                if len(self.open) >= DEPTH_MAX:
                    raise MsgpackError("nested too deep")
                self.open.append((int(left), int(self.begun)))
                self.begun = first
                left = count
        self.at = at
        self.left = left
        return looks

    def is_done(self) -> bool:
        """Whether `at` is where the value ends."""
        return self.left == 0 and len(self.open) == 0


@final
class Value:
    """A value that `skip` has passed, decoded on demand."""

    def __init__(self, data: bytes, at: i64, end: i64, ends: dict[int, int] | None = None) -> None:
        self.data = data
        self.at = at
        self.end = end
        self.ends = ends  # of long values in it
        self.kind: i64 = kind_of(data[at])

    def raw(self) -> bytes:
        """All its bytes, unchanged."""
        return self.data[self.at : self.end]

    def payload(self) -> bytes:
        """The bytes of a string or of binary data."""
        return self.data[payload_at(self.data, self.at) : self.end]

    def is_true(self) -> bool:
        """Whether it is true."""
        return self.data[self.at] == 0xC3

    def integer(self) -> int:
        """The number of an INT, from -2**63 to 2**64 - 1."""
        head: i64 = self.data[self.at]
        if head <= 0x7F:
            return int(head)
        if head >= 0xE0:
            return int(head - 256)
        return int.from_bytes(self.data[self.at + 1 : self.end], "big", signed=head >= 0xD0)

    def real(self) -> float:
        """The number of a FLOAT."""
        found: float = unpack_from(
            ">f" if self.data[self.at] == 0xCA else ">d", self.data, self.at + 1
        )[0]
        return found

    def items(self, most: i64) -> list["Value"]:
        """The first items of an array, at most `most`."""
        return values(self.data, payload_at(self.data, self.at), self.end, most, self.ends)

    def size(self) -> i64:
        """The number of items of an array, or of pairs of a map."""
        return count_of(self.data, self.at)

    def pairs(self) -> dict[bytes, "Value"]:
        """The values of a map with string keys; the last of equal keys wins.

        It takes memory for every pair: check `size` first.
        """
        found: dict[bytes, Value] = {}
        data = self.data
        at = payload_at(data, self.at)
        left = count_of(data, self.at)
        while left > 0:
            after_key = skip_known(data, at, self.end, self.ends)
            after = skip_known(data, after_key, self.end, self.ends)
            if kind_of(data[at]) == STR:
                found[data[payload_at(data, at) : after_key]] = Value(
                    data, after_key, after, self.ends
                )
            at = after
            left -= 1
        return found


def values(
    data: bytes, at: i64, end: i64, most: i64, ends: dict[int, int] | None = None
) -> list[Value]:
    """Up to `most` consecutive values; MsgpackError if one is invalid."""
    found: list[Value] = []
    while at < end and len(found) < most:
        after = skip_known(data, at, end, ends)
        found.append(Value(data, at, after, ends))
        at = after
    return found
