"""Glob patterns as in Redis: `*`, `?`, `[a-z]`, `[^a]` and `\\` before any of these.

A pattern is cut at its stars into pieces. They are searched from left to right, each at the
first place where it fits. For each character of the name the elements of a piece that have fitted
so far move on together, as bits of one number: that takes a step for each character, whatever the
pattern. Steps are counted, so that a command with a costly pattern pays for it (SPEC L2).
"""

from typing import Final, final

from mypy_extensions import i64

MOST: Final = 128  # characters of a pattern
MASKS: Final = 256  # characters of which a piece remembers what they fit
STEPS_BITS: Final = 2  # four steps are a unit of work
CALL_STEPS: Final = 8  # of a comparison, beside those of its pieces
FOUND_BITS: Final = 4  # of a plain piece: characters looked through in one step


@final
class Element:
    """What one character must be: one of some, of ranges of them, or none of these."""

    def __init__(self, chars: str, is_any: bool, is_not: bool, ranges: str) -> None:
        self.chars = chars
        self.is_any = is_any
        self.is_not = is_not
        self.ranges = ranges  # pairs of first and last character
        self.steps: i64 = 1 + len(ranges) // 2

    def is_possible(self) -> bool:
        """Whether some character fits."""
        found = self.is_any or self.is_not or self.chars != ""
        i = 0
        while not found and i < len(self.ranges):
            found = self.ranges[i] <= self.ranges[i + 1]
            i += 2
        return found

    def fits(self, char: str) -> bool:
        """Whether the character is meant."""
        if self.is_any:
            return True
        found = char in self.chars
        i = 0
        while not found and i < len(self.ranges):
            found = self.ranges[i] <= char <= self.ranges[i + 1]
            i += 2
        return found != self.is_not


@final
class Piece:
    """A part of a pattern without a star: one element for each character."""

    def __init__(self, elements: list[Element]) -> None:
        self.elements = elements
        self.size: i64 = len(elements)
        self.text = ""
        self.is_plain = True
        for element in elements:
            if len(element.chars) != 1 or element.is_any or element.is_not or element.ranges != "":
                self.is_plain = False
        if self.is_plain:
            self.text = "".join([element.chars for element in elements])
        self.masks: dict[str, int] = {}  # by character: the elements that it fits, as bits
        self.others: int = 0  # those that a character fits which no element names
        self.named: dict[str, int] = {}  # elements that name the character
        self.spans: list[tuple[str, str, int]] = []  # ranges, each with the bit of its element
        if not self.is_plain:
            self.note_bits()

    def note_bits(self) -> None:
        """Set what `mask` needs."""
        bit: int = 1
        for element in self.elements:
            if element.is_any or element.is_not:
                self.others |= bit
            if not element.is_any:
                for char in element.chars:
                    self.named[char] = self.named.get(char, 0) | bit
                for i in range(0, len(element.ranges), 2):
                    self.spans.append((element.ranges[i], element.ranges[i + 1], bit))
            bit <<= 1

    def mask(self, char: str) -> int:
        """The elements that the character fits, as bits."""
        names = self.named.get(char, 0)
        for first, last, bit in self.spans:
            if first <= char <= last:
                names |= bit
        found = self.others ^ names
        if len(self.masks) < MASKS:
            self.masks[char] = found
        return found


@final
class Glob:
    """A pattern that names are compared with, and the steps that this took."""

    def __init__(self, pattern: str) -> None:
        self.steps: i64 = 0
        self.pieces: list[Piece] = []
        elements: list[Element] = []
        at = 0
        while at < len(pattern):
            if pattern[at] == "*":
                self.pieces.append(Piece(elements))
                elements = []
                at += 1
                continue
            end = end_of(pattern, at)
            elements.append(element_of(pattern[at:end]))
            at = end
        self.pieces.append(Piece(elements))

    def is_possible(self) -> bool:
        """Whether some name matches."""
        for piece in self.pieces:
            for element in piece.elements:
                if not element.is_possible():
                    return False
        return True

    def units(self) -> i64:
        """The units of work since the last call."""
        took = self.steps >> STEPS_BITS
        self.steps -= took << STEPS_BITS
        return took

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        self.steps += CALL_STEPS
        first = self.pieces[0]
        size: i64 = len(name)
        if len(self.pieces) == 1:
            return first.size == size and self.fits(first, name, 0)
        last = self.pieces[len(self.pieces) - 1]
        at = first.size
        end = size - last.size
        if at > end or not self.fits(first, name, 0) or not self.fits(last, name, end):
            return False
        i: i64 = 1
        while i < len(self.pieces) - 1:
            piece = self.pieces[i]
            at = self.find(piece, name, at, end)
            if at < 0:
                return False
            at += piece.size
            i += 1
        return True

    def fits(self, piece: Piece, name: str, at: i64) -> bool:
        """Whether the piece fits there; the name must be long enough."""
        if piece.is_plain:
            self.steps += 1
            return name.startswith(piece.text, int(at))
        i: i64 = 0
        while i < piece.size:
            element = piece.elements[i]
            self.steps += element.steps
            if not element.fits(name[at + i]):
                return False
            i += 1
        return True

    def find(self, piece: Piece, name: str, at: i64, end: i64) -> i64:
        """The first place from `at` on where the piece fits before `end`; -1: nowhere."""
        if piece.is_plain:
            self.steps += 1 + (end - at >> FOUND_BITS)
            return name.find(piece.text, int(at), int(end))
        masks = piece.masks
        last: int = 1 << int(piece.size - 1)
        fitted: int = 0  # bit i: the last i + 1 characters fit the first i + 1 elements
        while at < end:
            mask = masks.get(name[at])
            if mask is None:
                mask = piece.mask(name[at])
                self.steps += len(piece.spans)
            self.steps += 1
            fitted = (fitted << 1 | 1) & mask
            at += 1
            if fitted & last:
                return at - piece.size
        return -1


def end_of(pattern: str, at: int) -> int:
    """The index after the element that begins there."""
    if pattern[at] == "[":
        end = pattern.find("]", at + 2)
        return end + 1 if end > 0 else at + 1
    return at + 2 if pattern[at] == "\\" and at + 1 < len(pattern) else at + 1


def element_of(text: str) -> Element:
    """An element other than a star."""
    if text == "?":
        return Element("", True, False, "")
    if len(text) < 3:
        return Element(text[len(text) - 1], False, False, "")
    is_not = text[1] == "^" or text[1] == "!"
    members = text[2 if is_not else 1 : len(text) - 1]
    chars = ""
    ranges = ""
    i = 0
    while i < len(members):
        if i + 2 < len(members) and members[i + 1] == "-":
            ranges += members[i] + members[i + 2]
            i += 3
        else:
            if members[i] not in chars:
                chars += members[i]
            i += 1
    return Element(chars, False, is_not, ranges)


def matches(pattern: str, name: str) -> bool:
    """Whether the name matches, once."""
    return Glob(pattern).matches(name)
