"""A small seeded generator for the core's choices: equal seeds give equal runs."""

from typing import Final, final

from mypy_extensions import i64

HALF: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed


@final
class Chance:
    """xorshift64*: fast and even enough to draw nodes and spread timers; not secret."""

    def __init__(self, seed: bytes) -> None:
        state: i64 = 0
        for byte in seed[:8]:
            state = (state << 8) ^ byte ^ (state >> 55 & 0xFF)
        self.state: i64 = state if state != 0 else 88_172_645_463_325_252

    def below(self, limit: i64) -> i64:
        """A number from 0 to limit - 1; `limit` > 0."""
        mask: i64 = HALF
        mask = mask << 1 | 1
        x = self.state
        x ^= (x << 13) & mask
        x ^= x >> 7
        x ^= (x << 17) & mask
        x &= mask
        self.state = x if x != 0 else 88_172_645_463_325_252
        return (x >> 11) % limit

    def shuffle(self, items: list[int]) -> None:
        """Shuffle the items in place."""
        i: i64 = len(items) - 1
        while i > 0:
            j = self.below(i + 1)
            kept = items[i]
            items[i] = items[j]
            items[j] = kept
            i -= 1
