"""From the fields of a declared row to its bytes and back (SPEC J2).

Little-endian: first what has a fixed size, in the order of the fields: a number, a flag, a word of
one length; of another word its length, of a list its count. Then these words, then the items of
the lists, each laid out in the same way. `Meta.extra` of a field has the form of its number, length
or count; a word of the form `REST` has no length, and takes what is left.

No length in the bytes is trusted; msgspec compares each field with its bounds.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, final

import msgspec
from msgspec import inspect
from mypy_extensions import i64

REST: Final = "0s"

PLAIN: Final = 0
WORD: Final = 1
LAST: Final = 2  # a word that takes what is left
LIST: Final = 3


class BadRow(Exception):
    """Bytes that are no row of their kind."""


@final
class Part:
    """One field of a row."""

    def __init__(self, field: Any) -> None:
        form = ""
        if isinstance(field, inspect.Metadata):
            form = (field.extra or {}).get("form", "")
            field = field.type
        self.how: i64 = PLAIN
        self.form: str = form
        self.item: Layout | None = None
        if isinstance(field, inspect.BoolType):
            self.form = "?"
        elif isinstance(field, inspect.ListType):
            self.how = LIST
            self.item = Layout(field.item_type)
        elif isinstance(field, inspect.BytesType):
            if form:
                self.how = LAST if form == REST else WORD
            else:
                assert field.min_length == field.max_length
                self.form = f"{field.max_length}s"


@final
class Layout:
    """How the rows of one kind, or the items of a list, are in bytes."""

    def __init__(self, kind: Any) -> None:
        self.is_single = False  # items that are words, and no rows of fields
        if isinstance(kind, inspect.StructType):
            fields = [field.type for field in kind.fields]
            optional = sum([not field.required for field in kind.fields])
        elif isinstance(kind, inspect.TupleType):
            fields, optional = list(kind.item_types), 0
        else:
            fields, optional = [kind], 0
            self.is_single = True
        self.parts: list[Part] = [Part(field) for field in fields]
        forms = [part.form for part in self.parts]
        self.head = Struct("<" + "".join(forms))
        self.older = Struct("<" + "".join(forms[: len(forms) - optional]))
        self.size: i64 = self.head.size
        self.has_older = optional > 0
        self.is_plain = self.is_single and self.parts[0].how == PLAIN  # words of one length
        self.older_size: i64 = self.older.size  # of a record that ends before the newest fields

    def pack(self, row: Sequence[Any]) -> bytes:
        """The bytes of a row."""
        heads: list[Any] = []
        words: list[bytes] = []
        items: list[bytes] = []
        for i, part in enumerate(self.parts):
            value = row[i]
            if part.how == PLAIN:
                heads.append(value)
                continue
            heads.append(b"" if part.how == LAST else len(value))
            if part.item is None:
                words.append(value)
            elif part.item.is_plain:
                items.extend(value)
            elif part.item.is_single:
                items.extend([part.item.pack([one]) for one in value])
            else:
                items.extend([part.item.pack(one) for one in value])
        words.insert(0, self.head.pack(*heads))
        words.extend(items)
        return b"".join(words)

    def unpack(self, data: bytes, at: i64, end: i64) -> tuple[list[Any], i64]:
        """The fields of the row at `at`, and where it ends. Raises BadRow."""
        if self.has_older and end - at == self.older_size:
            return list(self.older.unpack_from(data, at)), end
        if end - at < self.size:
            raise BadRow("it is too short")
        row: list[Any] = list(self.head.unpack_from(data, at))
        at += self.size
        for i, part in enumerate(self.parts):
            if part.how == LAST:
                row[i] = data[at:end]
                at = end
            elif part.how == WORD:
                size: i64 = row[i]
                if size < 0 or size > end - at:
                    raise BadRow("a word is longer than it")
                row[i] = data[at : at + size]
                at += size
        for i, part in enumerate(self.parts):
            item = part.item
            if item is not None:
                row[i], at = item.list_in(data, at, end, row[i])
        return row, at

    def list_in(self, data: bytes, at: i64, end: i64, count: i64) -> tuple[list[Any], i64]:
        """So many items at `at`, and where they end. Raises BadRow."""
        if count < 0 or count * self.size > end - at:
            raise BadRow("a list is longer than it")
        items: list[Any] = []
        if self.is_plain:
            while count > 0:
                items.append(data[at : at + self.size])
                at += self.size
                count -= 1
        while count > 0:
            item, at = self.unpack(data, at, end)
            items.append(item[0] if self.is_single else item)
            count -= 1
        return items, at


@final
class Table:
    """The kinds of rows, by the number that is their tag."""

    def __init__(self, kinds: Sequence[Any]) -> None:
        self.kinds: dict[int, Any] = {kind.__struct_config__.tag: kind for kind in kinds}
        self.layouts = {tag: Layout(inspect.type_info(kind)) for tag, kind in self.kinds.items()}

    def pack(self, row: msgspec.Struct) -> tuple[int, bytes]:
        """The number of the row's kind, and its bytes."""
        tag: int = row.__struct_config__.tag  # type: ignore[assignment]  # numbers, all of them
        return tag, self.layouts[tag].pack(msgspec.structs.astuple(row))

    def unpack(self, tag: int, data: bytes, at: i64, end: i64) -> Any:
        """The row of that kind in these bytes. Raises BadRow."""
        fields, last = self.layouts[tag].unpack(data, at, end)
        if last != end:
            raise BadRow("it is longer than its kind")
        fields.insert(0, tag)
        try:
            row = msgspec.convert(fields, self.kinds[tag])
        except msgspec.ValidationError as error:
            raise BadRow(str(error)) from None
        if not row.check():
            raise BadRow("its fields do not fit together")
        return row
