"""Numbers, times and names as people read them. Rounding is for show: sums come before it."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec
from markupsafe import Markup, escape

from tuque.logtext import HIDDEN, visible, visible_lines

MINUS: Final = "\u2212"
HEX_ROWS: Final = 64
NAME_MAX: Final = 160  # characters of a name that a page shows
ENDS_FROM: Final = 32  # characters of a name whose end stands whole where its middle is cut
END: Final = 12  # characters of that end
CLIPPED: Final = 48  # characters of a name in a sentence
ADDRESS_MAX: Final = 2_000  # characters of a name in an address
CODED: Final = "%%"  # how names begin that forms cannot carry as they are
BODY_MAX: Final = 64 * 1024  # a longer body is shown in part


def num(value: float | None) -> str:
    """A count, or a number with one decimal; a dash for what is not known."""
    if value is None:
        return "–"
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}".replace("-", MINUS)
    return f"{value:,.1f}".replace("-", MINUS)


def rate(value: float | None) -> str:
    """Jobs per second, one decimal."""
    return "–" if value is None else f"{value:,.1f}".replace("-", MINUS)


def signed(value: float | None) -> str:
    """A difference of rates."""
    if value is None:
        return "–"
    rounded = round(value, 1)
    return "±0" if rounded == 0 else f"{rounded:+,.1f}".replace("-", MINUS)


def span(seconds: float | None) -> str:
    """How long something takes or took."""
    if seconds is None:
        return "–"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} m"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def age(seconds: float | None) -> str:
    """An age in whole seconds, since the nodes say no more; a dash for none."""
    if not seconds:
        return "–"
    return f"{seconds:.0f} s" if seconds < 60 else span(seconds)


def size(count: float) -> str:
    """Bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"


def plural(count: int, word: str, words: str = "") -> str:
    """`1 job`, `2 jobs`."""
    return f"{count:,} {word if count == 1 else words or word + 's'}"


def over(nodes: int, away: int) -> str:
    """[O14] Over how many nodes a sum is (O14.1): `3 nodes`, `2 of 3 nodes`."""
    if away and away == nodes:
        return f"{plural(nodes, 'node')}, as of the last answer"
    return f"{nodes - away} of {plural(nodes, 'node')}" if away else plural(nodes, "node")


def at(seconds: float | None, form: str = "time") -> Markup:
    """An instant (unix s): the browser shows it in the reader's zone, by `form` date or time."""
    if not seconds:
        return Markup("–")
    instant = dt.datetime.fromtimestamp(seconds, dt.UTC)
    stamp = instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    text = instant.strftime("%H:%M:%S" if form == "time" else "%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}" data-form="{}" title="{} UTC">{}</time>').format(
        stamp, form, instant.strftime("%Y-%m-%d %H:%M:%S"), text
    )


def short_id(id: str) -> str:
    """A job's id as a row shows it."""
    return id[:15] + "…"


def tail_id(id: str) -> str:
    """An id among others that were made at one time: its node, and where they differ."""
    return f"{id[2:10]}…{id[-15:-5]}" if len(id) >= 40 else id


def key(name: str) -> str:
    """A name of any bytes as it stands in addresses and forms; most stand as they are."""
    if HIDDEN.search(name) or name.startswith(CODED):
        return CODED + quote(name.encode("utf-8", "surrogateescape"), safe="")
    return name


def seen(name: str) -> str:
    """[O14] A name that can be seen: one of blanks in quotes (O14.4)."""
    return f'"{name}"' if name.isspace() else name


def brief(name: str) -> str:
    """A name as a page shows it: of a long one the beginning and the end."""
    name = seen(name)
    return name if len(name) <= NAME_MAX else f"{name[: NAME_MAX - 40]}…{name[-24:]}"


def clip(name: str) -> str:
    """[O14] A name in a sentence or a legend: of a long one the beginning and the end (O14.4)."""
    name = seen(name)
    return name if len(name) <= CLIPPED else f"{name[: CLIPPED - END - 1]}…{name[-END:]}"


def ends(name: str) -> Markup:
    """[O14] A name for a column that cuts long ones: the end stands apart, and whole (O14.4)."""
    text = visible(brief(name))
    if len(text) <= ENDS_FROM:
        return escape(text)
    return Markup('<span class="a">{}</span><span class="z">{}</span>').format(
        text[:-END], text[-END:]
    )


def mark(name: str) -> str:
    """What tells a name apart on a page: its key, for a long one with a digest."""
    if len(name) <= NAME_MAX:
        return key(name)
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return key(f"{name[: NAME_MAX - 40]}…{digest}")


def fits(name: str) -> bool:
    """Whether a name fits into an address."""
    return len(name) <= ADDRESS_MAX and len(quote(key(name), safe="")) <= ADDRESS_MAX


def unkey(text: str) -> str:
    """The name for its form in addresses."""
    if not text.startswith(CODED):
        return text
    return unquote(text.removeprefix(CODED), errors="surrogateescape")


def link(page: str, /, **words: Any) -> str:
    """The address of a page."""
    given = {name: value for name, value in words.items() if value not in (None, "")}
    asked = "&".join(f"{name}={quote(key(str(value)), safe='')}" for name, value in given.items())
    return f"/{page}?{asked}" if asked else f"/{page}"


def shown(value: object) -> Markup:
    """What templates print: control characters of strangers as escapes."""
    if isinstance(value, Markup):
        return value
    return escape(visible(str(value)) if isinstance(value, str) else value)


# Bodies


class Form(msgspec.Struct, frozen=True):
    """One way to show a body."""

    name: str
    text: str


def forms(body: bytes) -> list[Form]:
    """The ways in which a body can be shown, the best first; the first 64 KiB of it."""
    part = body[:BODY_MAX]
    found = []
    if len(part) == len(body):
        for name, decode in (("JSON", json.loads), ("MessagePack", msgspec.msgpack.decode)):
            text = as_json(part, decode)
            if text is not None:
                found.append(Form(name, text))
    try:
        if not any(one.name == "JSON" for one in found):
            found.append(Form("Text", part.decode()))
    except UnicodeDecodeError:
        pass
    return [*found, Form("Hex", hexed(part))]


def as_json(body: bytes, decode: Any) -> str | None:
    """A body in an encoding as indented JSON; None if it is not in it, or a bare number."""
    try:
        value = decode(body)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None
    if not isinstance(value, (dict, list)):
        return None
    return json.dumps(value, indent=2, ensure_ascii=False, default=repr)


def hexed(body: bytes) -> str:
    """Rows of 16 bytes: place, bytes, and the letters among them."""
    rows = []
    for place in range(0, min(len(body), 16 * HEX_ROWS), 16):
        row = body[place : place + 16]
        halves = f"{row[:8].hex(' ')}  {row[8:].hex(' ')}"
        letters = "".join(chr(one) if 32 <= one < 127 else "." for one in row)
        rows.append(f"{place:04x}  {halves:<48}  {letters}")
    if len(body) > 16 * HEX_ROWS:
        rows.append(f"… {len(body) - 16 * HEX_ROWS:,} bytes more")
    return "\n".join(rows)


def raw(text: str) -> Markup:
    """Text of strangers with its line ends; other control characters as escapes."""
    return escape(visible_lines(text.replace("\r\n", "\n")))
