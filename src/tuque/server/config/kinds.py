"""How a configuration value is written, and what is wrong with it: text, TOML, CONFIG.

Decides the syntax of values, and how errors describe ranges.

Must not know: which options exist (options.py), where a value came from (config.py).
"""

from __future__ import annotations

import json
from typing import Any, Final

from tuque.smallfile import WEAK_SECRET, is_weak_secret

SHOWN_MAX: Final = 256  # characters of what is wrong


class ConfigError(ValueError):
    """A value that cannot be used, in one line: key, value, origin, what is allowed.

    `reason` is `bad`, `weak`, `unknown` or `immutable`.
    """

    def __init__(
        self, name: str, value: str, allowed: str, reason: str = "bad", where: str = ""
    ) -> None:
        self.name, self.value, self.allowed = name, value, allowed
        self.reason, self.where = reason, where
        super().__init__(self._line())

    def _line(self) -> str:
        place = f" ({self.where})" if self.where else ""
        if self.reason == "unknown":
            return f"unknown option '{self.name}'{place}{self.allowed}"
        if self.reason == "immutable":
            return f"{self.name}: cannot be changed while the server runs{place}"
        value = "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut(self.value)
        )
        return f"{self.name}: '{value}' is not allowed{place}; allowed: {self.allowed}"

    @property
    def reply(self) -> str:
        """Disque's error line for CONFIG SET, and what is allowed, without the leading `-`."""
        if self.reason == "bad":
            refused = f"ERR Invalid argument '{cut(self.value)}' for CONFIG SET '{self.name}'"
            return f"{refused}; allowed: {self.allowed}"
        if self.reason == "weak":
            return f"ERR CONFIG SET {self.name}: {self.allowed}"
        return f"ERR Unsupported CONFIG parameter: {self.name}"


def cut(text: str) -> str:
    """A value as errors show it (C10.4)."""
    if len(text) <= SHOWN_MAX:
        return text
    return f"{text[:SHOWN_MAX]}... ({len(text)} characters)"


# ---- Kinds of values


MEMORY_UNITS = {
    "": 1,
    "b": 1,
    "k": 1000,
    "kb": 1 << 10,
    "m": 1000**2,
    "mb": 1 << 20,
    "g": 1000**3,
    "gb": 1 << 30,
}
YES = frozenset(("yes", "true", "on", "1"))
NO = frozenset(("no", "false", "off", "0"))
MASK = "********"
I64_MAX = (1 << 63) - 1


def memory_bytes(text: str) -> int:
    """Read `64mb`, `1g` or `1024` as bytes; ValueError otherwise."""
    digits = text.strip().rstrip("bBkKmMgG")
    unit = text.strip()[len(digits) :].lower()
    if not digits.isascii() or not digits.isdigit() or unit not in MEMORY_UNITS:
        raise ValueError(text)
    return int(digits) * MEMORY_UNITS[unit]


def memory_text(size_bytes: int) -> str:
    """Write bytes with the largest binary unit that divides them."""
    for unit in ("gb", "mb", "kb"):
        if size_bytes and size_bytes % MEMORY_UNITS[unit] == 0:
            return f"{size_bytes // MEMORY_UNITS[unit]}{unit}"
    return str(size_bytes)


class Kind:
    """Plain text; the other kinds narrow it."""

    allowed = "any text"

    def parse(self, text: str) -> Any:
        """Parse text from a user; ValueError if it is not allowed."""
        return text

    def from_toml(self, raw: object) -> Any:
        """Convert a TOML value; ValueError if it is not allowed."""
        if isinstance(raw, str):
            return self.parse(raw)
        if isinstance(raw, bool):
            return self.parse("yes" if raw else "no")
        if isinstance(raw, int):
            return self.parse(str(raw))
        raise ValueError(raw)

    def show(self, value: Any) -> str:
        """Format the value for CONFIG GET."""
        return str(value)

    def toml(self, value: Any) -> str:
        """Format the value as a TOML literal."""
        return json.dumps(self.show(value), ensure_ascii=False)

    def conf_words(self, value: Any) -> list[str]:
        """The words of the value in a line of a disque.conf; `parse` reverses it."""
        return [self.show(value)]


class Text(Kind):
    """Text of limited length on one line."""

    def __init__(self, max_bytes: int = 4096, allowed: str = "") -> None:
        self.max_bytes = max_bytes
        self.allowed = allowed or f"one line of UTF-8, at most {max_bytes} bytes"

    def parse(self, text: str) -> str:
        if len(text.encode()) > self.max_bytes:  # not UTF-8: UnicodeEncodeError is a ValueError
            raise ValueError(text)
        if any(char < " " or char == "\x7f" for char in text):
            raise ValueError(text)
        return text


class FileName(Text):
    """A name without directories: the file is in `dir`."""

    def __init__(self) -> None:
        super().__init__(255, "a file name without '/'")

    def parse(self, text: str) -> str:
        if not text or "/" in text or text in (".", ".."):
            raise ValueError(text)
        return super().parse(text)


class Secret(Text):
    """Text hidden in all listings."""

    def show(self, value: Any) -> str:
        return MASK if value else ""

    def toml(self, value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    def conf_words(self, value: Any) -> list[str]:
        return [value]


class ClusterSecret(Secret):
    """A secret that nobody can guess (B1.5)."""

    def __init__(self) -> None:
        super().__init__(512)
        self.allowed = WEAK_SECRET

    def parse(self, text: str) -> str:
        if is_weak_secret(super().parse(text)):
            raise ValueError(text)
        return text


class Int(Kind):
    """A whole number in a range; with `clamp` a value outside it moves to the nearer end."""

    def __init__(self, low: int = 0, high: int = I64_MAX, *, clamp: bool = False) -> None:
        self.low, self.high, self.clamp = low, high, clamp
        self.allowed = f"{low} or more" if high == I64_MAX else f"{low}..{high}"
        if clamp:
            self.allowed += ", the nearer end for others"

    def parse(self, text: str) -> int:
        value = int(text) if text.strip().lstrip("+-").isascii() and "_" not in text else None
        if value is None:
            raise ValueError(text)
        if self.clamp:
            return max(self.low, min(self.high, value))
        if not self.low <= value <= self.high:
            raise ValueError(text)
        return value

    def toml(self, value: Any) -> str:
        return str(value)


KEEP_ALIVE_S: Final = 60  # load balancers forget a silent connection after some 4 minutes


KEEP_ALIVE_MAX_S: Final = 32_767  # Linux takes no more


class KeepAlive(Int):
    """Seconds; or yes or no, as Disque has it."""

    def __init__(self) -> None:
        super().__init__(0, KEEP_ALIVE_MAX_S)
        self.allowed = f"yes, no, or 0..{KEEP_ALIVE_MAX_S} seconds"

    def parse(self, text: str) -> int:
        if text.lower() in ("yes", "no"):
            return KEEP_ALIVE_S if text.lower() == "yes" else 0
        return super().parse(text)


class Memory(Kind):
    """An amount of memory in bytes, with units."""

    def __init__(self, low: int = 0, high: int = 1 << 60) -> None:
        self.low, self.high = low, high
        ends = f"{memory_text(low)}..{memory_text(high)}"
        self.allowed = f"{ends} (units b, k, kb, m, mb, g, gb)"

    def parse(self, text: str) -> int:
        value = memory_bytes(text)
        if not self.low <= value <= self.high:
            raise ValueError(text)
        return value

    def toml(self, value: Any) -> str:
        text = memory_text(value)
        return text if text.isdigit() else f'"{text}"'

    def conf_words(self, value: Any) -> list[str]:
        return [memory_text(value)]


class Percent:
    """A part of something else, which the kind of the option names."""

    def __init__(self, percent: int) -> None:
        self.percent = percent

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Percent) and self.percent == other.percent

    def __hash__(self) -> int:
        return hash(self.percent)

    def __str__(self) -> str:
        return f"{self.percent}%"

    def of(self, whole: int) -> int:
        """That part of it."""
        return whole * self.percent // 100


class MemoryShare(Memory):
    """An amount of memory, or a percentage of another one."""

    def __init__(self, whole: str) -> None:
        super().__init__()
        self.allowed = f"1%..100% of {whole}, or {self.allowed}"

    def parse(self, text: str) -> Any:
        if not text.rstrip().endswith("%"):
            return super().parse(text)
        return Percent(Int(1, 100).parse(text.rstrip()[:-1]))

    def toml(self, value: Any) -> str:
        return f'"{value}"' if isinstance(value, Percent) else super().toml(value)

    def conf_words(self, value: Any) -> list[str]:
        return [str(value)] if isinstance(value, Percent) else super().conf_words(value)


class Bool(Kind):
    """yes or no."""

    allowed = "yes or no"

    def parse(self, text: str) -> bool:
        word = text.strip().lower()
        if word not in YES and word not in NO:
            raise ValueError(text)
        return word in YES

    def show(self, value: Any) -> str:
        return "yes" if value else "no"

    def toml(self, value: Any) -> str:
        return "true" if value else "false"


class Choice(Kind):
    """One of a few words, in any case."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.allowed = " | ".join(words)

    def parse(self, text: str) -> str:
        word = text.strip().lower()
        if word not in self.words:
            raise ValueError(text)
        return word


class Octal(Kind):
    """File permissions."""

    allowed = "0..777 (octal)"

    def parse(self, text: str) -> int:
        value = int(text, 8)
        if not 0 <= value <= 0o777:
            raise ValueError(text)
        return value

    def show(self, value: Any) -> str:
        return f"{value:o}"


class Addresses(Kind):
    """Up to 16 addresses, separated by blanks or commas."""

    allowed = "up to 16 addresses or host names, * for all"

    def parse(self, text: str) -> list[str]:
        return self._checked(text.replace(",", " ").split())

    def from_toml(self, raw: object) -> list[str]:
        if isinstance(raw, list) and all(isinstance(one, str) for one in raw):
            return self._checked(raw)
        return self.parse(raw) if isinstance(raw, str) else self._checked([""])

    def _checked(self, names: list[str]) -> list[str]:
        if len(names) > 16 or any(not one or not one.isprintable() or " " in one for one in names):
            raise ValueError(names)
        return names

    def show(self, value: Any) -> str:
        return " ".join(value)

    def toml(self, value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    def conf_words(self, value: Any) -> list[str]:
        return list(value) or [""]


class OutputLimit(Kind):
    """`normal <hard bytes> <soft bytes> <soft seconds>`; 0 = no limit."""

    allowed = "normal <hard> <soft> <soft seconds>, sizes with units, 0 = no limit"

    def parse(self, text: str) -> tuple[int, int, int]:
        words = text.split()
        if len(words) != 4 or words[0].lower() != "normal":
            raise ValueError(text)
        return memory_bytes(words[1]), memory_bytes(words[2]), Int(0, 1 << 31).parse(words[3])

    def show(self, value: Any) -> str:
        return f"normal {value[0]} {value[1]} {value[2]}"

    def conf_words(self, value: Any) -> list[str]:
        return self.show(value).split()


class Opt:
    """The fixed part of one option; `name` and `default` come from the struct."""

    def __init__(
        self,
        kind: Kind,
        help_line: str,
        *,
        unit: str = "",
        runtime: bool = False,
        hidden: bool = False,
        obsolete: str = "",
    ) -> None:
        self.kind = kind
        self.help = help_line
        self.unit = unit
        self.runtime = runtime
        self.hidden = hidden  # left out of Disque's CONFIG GET
        self.obsolete = obsolete  # why it has no effect here; read, kept, and warned about
        self.field = ""
        self.name = ""
        self.default: Any = None
