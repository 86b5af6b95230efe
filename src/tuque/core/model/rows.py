"""Entries in an order, of which each may come and leave anywhere, for a bounded cost (SPEC L2.12).

They lie in rows of limited length, one behind the other. An entry is found by two searches, and a
part of one row is moved; so nothing that has left is kept, and nothing is ever sorted anew. Most
entries come last and leave first, and that needs no search.

Must not know: what the entries are.
"""

from typing import Any, Final, cast, final

from mypy_extensions import i64, mypyc_attr

ROW: Final = 512  # entries of a row; one of twice as many is cut in two
FEW: Final = 128  # a row of so few joins its neighbours, if there is room

NEVER_MS: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed

_NONE: Final[list[list[Any]]] = []  # shared by all that have one row; never changed


@mypyc_attr(acyclic=True)
class Rows:
    """Entries in order. A subclass says which one goes before another; no two are equal."""

    def __init__(self) -> None:
        # as objects: compiled code would make tuples anew
        self.items: list[Any] = []  # the first row, from `head` on
        self.head: i64 = 0
        self.rows: list[list[Any]] = _NONE  # those behind it, none of them empty
        self.count: i64 = 0

    def before(self, a: object, b: object) -> bool:
        """Whether `a` goes before `b`."""
        return False

    def add(self, entry: object) -> None:
        """Add an entry that is not there."""
        rows = self.rows
        last = self.items if len(rows) == 0 else rows[len(rows) - 1]
        size: i64 = len(last)
        self.count += 1
        if self.count > 1 and not self.before(last[size - 1], entry):
            self.insert(entry)
        elif size < ROW:
            last.append(entry)
        elif rows is _NONE:
            self.rows = [[entry]]
        else:
            rows.append([entry])

    def top(self) -> object | None:
        """The first entry, or None."""
        return cast("object", self.items[self.head]) if self.count > 0 else None

    def last(self) -> object | None:
        """The last entry, or None."""
        if self.count == 0:
            return None
        row = self.items if len(self.rows) == 0 else self.rows[len(self.rows) - 1]
        return cast("object", row[len(row) - 1])

    def drop_top(self) -> None:
        """Remove the first entry."""
        items = self.items
        items[self.head] = None
        self.head += 1
        self.count -= 1
        if self.head == len(items):
            self.head = 0
            if len(self.rows) > 0:
                self.items = self.rows.pop(0)
            else:
                items.clear()

    def remove(self, entry: object) -> None:
        """Remove the entry, which is there."""
        assert self.count > 0, "nothing is in order here"
        head = self.head
        if not self.before(self.items[head], entry):
            assert not self.before(entry, self.items[head]), "entry out of its order"
            self.drop_top()
            return
        at = self.row_of(entry)
        row = self.items if at < 0 else self.rows[at]
        place = self.place_in(row, head if at < 0 else 0, entry)
        assert place < len(row), "entry out of its order"
        assert not self.before(entry, row[place]), "entry out of its order"
        del row[place]
        self.count -= 1
        if len(row) <= FEW:
            self.join(at)

    def listed(self) -> list[Any]:
        """All entries in order; changes nothing."""
        found = self.items[self.head :]
        for row in self.rows:
            found.extend(row)
        return found

    def is_ordered(self) -> bool:
        """Whether each entry goes before the next one; for checks."""
        entries = self.listed()
        at: i64 = 1
        while at < len(entries):
            if not self.before(entries[at - 1], entries[at]):
                return False
            at += 1
        return True

    def firsts(self, most: i64) -> list[Any]:
        """The first `most` entries, in order; reads no others."""
        found = self.items[self.head : self.head + most]
        for row in self.rows:
            if len(found) >= most:
                break
            found.extend(row[: most - len(found)])
        return found

    def lasts(self, most: i64) -> list[Any]:
        """The last `most` entries, the last one first; reads no others."""
        found: list[Any] = []
        at: i64 = len(self.rows) - 1
        while at >= 0 and len(found) < most:
            row = self.rows[at][-(most - len(found)) :]
            row.reverse()
            found.extend(row)
            at -= 1
        if len(found) < most:
            row = self.items[self.head :][-(most - len(found)) :]
            row.reverse()
            found.extend(row)
        return found

    def since(self, entry: object, most: i64) -> list[Any]:
        """Up to `most` entries, from that one on, or from where it belongs."""
        at = self.row_of(entry)
        row = self.items if at < 0 else self.rows[at]
        place = self.place_in(row, self.head if at < 0 else 0, entry)
        found = row[place : place + most]
        at += 1
        while at < len(self.rows) and len(found) < most:
            found.extend(self.rows[at][: most - len(found)])
            at += 1
        return found

    # ---- rows

    def insert(self, entry: object) -> None:
        """Put the entry before others."""
        at = self.row_of(entry)
        if at < 0:
            items = self.items
            head = self.head
            if head > 0 and self.before(entry, items[head]):
                self.head = head - 1
                items[head - 1] = entry
                return
            items.insert(self.place_in(items, head, entry), entry)
            if len(items) >= 2 * ROW:
                del items[:head]
                self.head = 0
        else:
            row = self.rows[at]
            row.insert(self.place_in(row, 0, entry), entry)
        self.cut(at)

    def cut(self, at: i64) -> None:
        """Cut that row in two if it is too long; -1: the first one."""
        row = self.items if at < 0 else self.rows[at]
        if len(row) < 2 * ROW:
            return
        if self.rows is _NONE:
            self.rows = []
        self.rows.insert(at + 1, row[ROW:])
        del row[ROW:]

    def join(self, at: i64) -> None:
        """That row has few entries: join it with its neighbours if there is room; -1: the first."""
        rows = self.rows
        row = self.items if at < 0 else rows[at]
        if at + 1 < len(rows) and len(row) + len(rows[at + 1]) <= ROW:
            row.extend(rows[at + 1])
            del rows[at + 1]
        if at < 0:
            return
        before = self.items if at == 0 else rows[at - 1]
        if len(before) + len(row) <= ROW or len(row) == 0:
            before.extend(row)
            del rows[at]

    def row_of(self, entry: object) -> i64:
        """The row to which the entry belongs; -1: the first one."""
        rows = self.rows
        low: i64 = 0
        high: i64 = len(rows)
        while low < high:
            middle = (low + high) >> 1
            if self.before(entry, rows[middle][0]):
                high = middle
            else:
                low = middle + 1
        return low - 1

    def place_in(self, row: list[Any], low: i64, entry: object) -> i64:
        """Where the entry is in the row, from `low` on, or belongs."""
        high: i64 = len(row)
        while low < high:
            middle = (low + high) >> 1
            if self.before(row[middle], entry):
                low = middle + 1
            else:
                high = middle
        return low


@final
@mypyc_attr(acyclic=True)
class Instants(Rows):
    """Pairs of an instant in ms, or another number, and a key; the least first."""

    def before(self, a: object, b: object) -> bool:
        """Whether `a` goes before `b`."""
        first = cast("tuple[int, bytes]", a)
        second = cast("tuple[int, bytes]", b)
        return first[0] < second[0] or (first[0] == second[0] and first[1] < second[1])

    def set(self, key: bytes, at_ms: i64) -> None:
        """The key, which has none, has this instant."""
        self.add((int(at_ms), key))

    def unset(self, key: bytes, at_ms: i64) -> None:
        """The key has this instant no longer."""
        self.remove((int(at_ms), key))

    def first_ms(self) -> i64:
        """The earliest instant; NEVER_MS if there is none."""
        return i64(self.items[self.head][0]) if self.count > 0 else NEVER_MS

    def first_key(self) -> bytes:
        """The key of the earliest one, which there is."""
        return cast("bytes", self.items[self.head][1])
