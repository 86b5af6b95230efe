"""What an administrator gives: small files, read again when they change, and secrets (SPEC C1, B1).

Decides which files and secrets are refused, for the node, the console and the client alike.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable
from itertools import pairwise
from math import log2
from string import digits
from typing import Final, Generic, TypeAlias, TypeVar

from tuque.logtext import visible
from tuque.platforms import READ_AT_ONCE, others_may_write

SMALL_BYTES: Final = 1 << 20
BITS_MIN: Final = 128
REPEAT: Final = 6  # characters that come again count once
WORD_BITS: Final = 2.0  # of a letter in words
BYTE_BITS: Final = 6.0  # of a drawn byte: some come twice by chance
PIECES: Final = re.compile(r"[^\W_]+")
PIECE_LEAST: Final = 2.5  # characters of a word or number, on average
HEX: Final = frozenset("0123456789abcdef")
SEPARATORS: Final = str.maketrans("", "", " -_.:")
WEAK_SECRET: Final = (
    f"a secret of at least {BITS_MIN} bits, which a program has drawn; `tuque cluster secret` "
    "makes one"
)

Stamp: TypeAlias = tuple[int, int, int]
T = TypeVar("T")


# ---- Files


def read_small(
    path: str | os.PathLike[str], most: int = SMALL_BYTES, is_guarded: bool = True
) -> bytes:
    """What a regular file of at most so many bytes has, without ever waiting. Raises OSError.

    With `is_guarded` it is no file that everybody on this machine may write (C1.11).
    """
    file = os.open(path, READ_AT_ONCE)
    try:
        mode = os.fstat(file).st_mode
        if not stat.S_ISREG(mode):  # a pipe in its place would be waited for
            raise OSError(errno.EINVAL, "not a regular file")
        if is_guarded and others_may_write(mode):
            raise OSError(errno.EPERM, f"everybody on this machine can write it: {closing(path)}")
        parts: list[bytes] = []
        left = most + 1
        while left > 0:
            part = os.read(file, left)
            if len(part) == 0:
                return unmarked(b"".join(parts))
            parts.append(part)
            left -= len(part)
    finally:
        os.close(file)
    raise OSError(errno.EFBIG, f"more than {most} bytes")


def unmarked(text: bytes) -> bytes:
    """[C1] A file without the mark that some editors write first (C1.13). OSError for UTF-16."""
    if text.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise OSError(errno.EILSEQ, "it is UTF-16: save it as UTF-8")
    return text.removeprefix(BOM_UTF8)


def is_open_file(path: str | os.PathLike[str]) -> bool:
    """Whether it is a regular file that everybody on this machine can write."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False  # who opens it says so
    return stat.S_ISREG(mode) and others_may_write(mode)


def closing(path: str | os.PathLike[str]) -> str:
    """The command that takes a file, or a directory, from those who may not write it."""
    return f"`chmod o-w {os.fspath(path)}`"


def stamp_of(path: str | os.PathLike[str]) -> Stamp:
    """What changes with the file: inode, size, time of the last change; zeros if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_size, max(found.st_mtime_ns, found.st_ctime_ns))


class Renewed(Generic[T]):
    """What files say, as they are now; what they said before, while they cannot be used.

    Its methods may be called from any thread.
    """

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        make: Callable[[], T],
        log: logging.Logger,
    ) -> None:
        """`make` reads the files; its errors are raised now, OSError and ValueError.

        Later they are logged.
        """
        self._paths = [
            path for path in paths if os.path.isfile(path)
        ]  # a shell's pipe is read once
        self._make = make
        self._log = log
        self._known = (self._stamps(), make())

    def now(self) -> T:
        """Of the files, read again if one has changed."""
        stamps, made = self._known
        found = self._stamps()
        if found == stamps:
            return made
        try:
            for path in self._paths:
                read_small(path, is_guarded=False)  # OpenSSL would wait for a pipe
            made = self._make()
        except (OSError, ValueError) as err:
            self._log.error("%s: not used, what was read before stays: %s", self._name(), err)
        else:
            self._log.info("%s: read again", self._name())
        self._known = (found, made)
        return made

    def _name(self) -> str:
        return visible(", ".join(str(os.fspath(path)) for path in self._paths))

    def _stamps(self) -> list[Stamp]:
        return [stamp_of(path) for path in self._paths]


# ---- How hard a secret is to guess, as far as its letters show (SPEC B1.5)
#
# A listener can try secrets against a proof that it has recorded, without anybody noticing. Only a
# secret that a program has drawn holds against that, so the estimate distrusts what people think
# of.


FEW: Final = 8  # times as long as it has different characters: these are its alphabet


def bits_of(secret: str) -> int:
    """[B1] Estimate how many bits of chance it has: characters times what they allow (B1.5)."""
    plain = secret.translate(SEPARATORS)
    if plain.isdecimal() and plain.isascii():
        each, text = log2(10), plain
    elif set(plain.lower()) <= HEX and not plain.isalpha():
        each, text = 4.0, plain
    elif plain.isalpha() and case_changes(plain) * 5 < len(plain) * 2:
        each, text = WORD_BITS, plain
    elif is_words(secret):
        each, text = WORD_BITS, "".join(PIECES.findall(secret))
    else:
        each, text = log2(alphabet(secret)), secret
    used = len(set(text))
    if used * FEW < len(text):
        each = min(each, log2(used + 1))
    return int(new_characters(text) * each)


def is_words(text: str) -> bool:
    """Whether it is words and numbers, as in a sentence, an address or a line of a file."""
    pieces: list[str] = PIECES.findall(text)
    if sum(map(len, pieces)) < PIECE_LEAST * len(pieces):
        return False
    words = [piece.rstrip(digits) for piece in pieces]
    return all(
        word == "" or (word.isalpha() and case_changes(word) * 3 < len(word)) for word in words
    )


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


def is_weak_key(secret: bytes) -> bool:
    """[B1] The same of what may be bytes that a program has drawn, not text (B1.5)."""
    try:
        text = secret.decode()
    except UnicodeDecodeError:
        return new_characters(secret.decode("latin-1")) * BYTE_BITS < BITS_MIN
    return is_weak_secret(text)
