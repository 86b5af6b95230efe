"""Values as a stranger chooses them: mostly what fits, sometimes what just does not."""

from __future__ import annotations

from random import Random
from typing import Any

# fmt: off
NUMBERS = [
    0, 1, 2, 3, 5, 7, 61, 62, 63, 64, 127, 128, 255, 256, 999, 1000, 32_767, 32_768, 65_535,
    65_536, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 53,
    (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
]
# fmt: on
WORDS = [b"", b"q", b"tq", b"x y", b"\xff\xfe", b"\x1b[2J", b"\0", b"a" * 300, b"*", b"-1", b"\r\n"]
QUEUES = [b"q", b"r", b"s", b"t", b"u", b"v"]  # some of them become tubes
KEYS = [b"", b"k", b"l", b"\xff"]


def number(rng: Random, low: int = 0, high: int = (1 << 62) - 1) -> int:
    """A number of that range; one time in 50 it may be beyond."""
    roll = rng.random()
    if roll < 0.02:
        return max(-(1 << 63), rng.choice(NUMBERS) * rng.choice((1, 1, -1)))
    if roll < 0.6:
        return rng.randint(low, min(high, low + 9))
    if roll < 0.7:
        return high - rng.randint(0, min(3, high - low))
    fit = [one for one in NUMBERS if low <= one <= high]
    return rng.choice(fit) if fit else rng.randint(low, high)


def some_bytes(rng: Random, most: int = 20) -> bytes:
    """Any bytes, or a word that was trouble somewhere."""
    if rng.random() < 0.3:
        return rng.choice(WORDS)[: max(most, 1)]
    return rng.randbytes(rng.randint(0, most))


def anything(rng: Random, depth: int = 0) -> Any:
    """Any value that MessagePack can carry."""
    kind = rng.randrange(9 if depth < 3 else 7)
    if kind == 0:
        return None
    if kind == 1:
        return rng.random() < 0.5
    if kind == 2:
        return max(-(1 << 63), rng.choice(NUMBERS) * rng.choice((1, -1)))
    if kind == 3:
        return rng.choice((0.0, -1.5, 1e300, float("nan"), float("inf"), float("-inf"), 0.1))
    if kind == 4:
        return some_bytes(rng)
    if kind == 5:
        return rng.choice(("", "fifo", "q", "\x1b", "é" * 9, "\ud7ff", "!"))
    if kind == 6:
        return rng.randint(0, 9)
    if kind == 7:
        return [anything(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    return {rng.choice(("ttl", "q", "", "pri")): anything(rng, depth + 1) for _ in range(2)}


def change(rng: Random, value: Any) -> Any:
    """The value with one thing in it replaced, dropped, doubled or moved."""
    if not isinstance(value, list) or not value or rng.random() < 0.05:
        return anything(rng)
    at = rng.randrange(len(value))
    how = rng.random()
    changed = list(value)
    if how < 0.6:
        changed[at] = change(rng, value[at])
    elif how < 0.7:
        del changed[at]
    elif how < 0.8:
        changed.insert(at, value[at])
    elif how < 0.9:
        changed.insert(at, anything(rng))
    else:
        changed[at] = changed[rng.randrange(len(changed))]
    return changed


def damage(rng: Random, data: bytes) -> bytes:
    """The bytes with a flipped bit, a piece cut out, doubled or put in."""
    if not data:
        return rng.randbytes(3)
    at = rng.randrange(len(data))
    end = min(len(data), at + rng.randint(1, 8))
    how = rng.randrange(5)
    if how == 0:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if how == 1:
        return data[:at] + data[end:]
    if how == 2:
        return data[:end] + data[at:]
    if how == 3:
        return data[:at] + rng.randbytes(end - at) + data[end:]
    return data[:at]
