"""How hard a cluster's secret is to guess, as far as its letters tell (SPEC B1.5).

A listener can try secrets against a proof that it has recorded, without anybody noticing. Only a
secret that a program has drawn holds against that, so the estimate distrusts what people think of.
"""

from __future__ import annotations

from itertools import pairwise
from math import log2
from typing import Final

BITS_MIN: Final = 128
REPEAT: Final = 6  # characters that come again count once
WORD_BITS: Final = 2.0  # of a letter in words
HEX: Final = frozenset("0123456789abcdef")
SEPARATORS: Final = str.maketrans("", "", " -_.:")
WEAK_SECRET: Final = (
    f"a secret of at least {BITS_MIN} bits, which a program has drawn; `tuque cluster secret` "
    "makes one"
)


def bits_of(secret: str) -> int:
    """Estimate how many bits of chance it has: its length times what its alphabet allows."""
    plain = secret.translate(SEPARATORS)
    if plain.isdecimal() and plain.isascii():
        each, text = log2(10), plain
    elif set(plain.lower()) <= HEX and not plain.isalpha():
        each, text = 4.0, plain
    elif plain.isalpha() and case_changes(plain) * 5 < len(plain) * 2:
        each, text = WORD_BITS, plain
    else:
        each, text = log2(alphabet(secret)), secret
    return int(new_characters(text) * each)


def alphabet(secret: str) -> int:
    """The size of the alphabets that it uses."""
    sizes = (
        (26, any("a" <= c <= "z" for c in secret)),
        (26, any("A" <= c <= "Z" for c in secret)),
        (10, any("0" <= c <= "9" for c in secret)),
    )
    known = sum(size for size, is_used in sizes if is_used)
    has_more = any(not (c.isascii() and c.isalnum()) for c in secret)
    return max(2, known + (2 if has_more else 0))


def case_changes(text: str) -> int:
    """How often small and capital letters change; rarely in words."""
    return sum(a.isupper() != b.isupper() for a, b in pairwise(text))


def new_characters(text: str) -> int:
    """How many characters are not the end of a piece of six that was there before."""
    seen: set[str] = set()
    count = min(len(text), REPEAT - 1)
    for at in range(len(text) - REPEAT + 1):
        piece = text[at : at + REPEAT]
        count += piece not in seen
        seen.add(piece)
    return count


def is_weak_secret(secret: str) -> bool:
    """[B1.5] Whether a secret can be guessed; an empty one is none."""
    return secret != "" and bits_of(secret) < BITS_MIN
