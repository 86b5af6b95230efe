"""The words of ADDJOB about keys (SPEC T40): UNIQUE, LIMIT, RATE, GROUP.

Reads words, and packs what they ask for.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.tubes.entries.keys import (
    BURST_MAX,
    FILL_MAX_NS,
    KEY_MAX,
    PLACES_MAX,
    UNTIL_DONE,
    UNTIL_MAX_MS,
    UNTIL_START,
    WEIGHT_MAX,
    Keys,
    pack,
)
from tuque.wire.args import ArgError, in_range, refused, some_ms, wrong

KEY_WORDS: Final = (b"UNIQUE", b"UNTIL", b"ON", b"LIMIT", b"RATE", b"GROUP", b"WEIGHT")
UNITS_NS: Final = {b"S": 1_000_000_000, b"M": 60_000_000_000, b"H": 3_600_000_000_000}
PER_MAX: Final = 1_000_000
EVEN_NS: Final = 20_000_000  # the default burst is what comes in this time

BAD_KEY: Final = b"ERR %s key must be 1 to 255 bytes"
A_RATE: Final = b"n/s, n/m or n/h, n from 1 to 1000000"
AN_END: Final = b"done, start or a number of seconds above 0, at most 31622400"
NO_UNIQUE: Final = b"ERR %s needs a UNIQUE key"
NO_GROUP: Final = b"ERR WEIGHT needs a GROUP"


@final
@mypyc_attr(acyclic=True)
class KeyOptions(Keys):
    """What the words have said so far."""

    def __init__(self) -> None:
        super().__init__()
        self.rejects_same = False
        self.replaces_same = False
        self.has_until = b""  # UNTIL or ON, which need UNIQUE
        self.has_weight = False

    def take(self, word: bytes, args: list[bytes], at: i64) -> i64:
        """Read the option whose values begin at `at`: returns where the next one begins."""
        value = args[at]
        if word == b"UNTIL" or word == b"ON":
            self.has_until = word
            return self.mode(word, value, at)
        if word == b"WEIGHT":
            self.has_weight = True
            self.weight = in_range(word, value, 1, WEIGHT_MAX)
            return at + 1
        if not 1 <= len(value) <= KEY_MAX:
            raise ArgError(BAD_KEY % word)
        if word == b"UNIQUE":
            self.unique = value
        elif word == b"GROUP":
            self.group = value
        elif word == b"LIMIT":
            self.limit = value
            if at + 1 == len(args):
                raise wrong(b"LIMIT takes a key and a number from 1 to %d" % PLACES_MAX)
            self.places = in_range(word, args[at + 1], 1, PLACES_MAX)
            return at + 2
        else:
            return self.take_rate(args, at)
        return at + 1

    def mode(self, word: bytes, value: bytes, at: i64) -> i64:
        """UNTIL done|start|sec, ON keep|reject|replace."""
        said = value.upper()
        if word == b"UNTIL":
            if said == b"DONE" or said == b"START":
                self.until_ms = UNTIL_DONE if said == b"DONE" else UNTIL_START
                return at + 1
            until_ms = some_ms(value)
            if not 1 <= until_ms <= UNTIL_MAX_MS:
                raise refused(word, AN_END, value)
            self.until_ms = until_ms  # T44.3
        else:
            if said not in (b"KEEP", b"REJECT", b"REPLACE"):
                raise refused(word, b"keep, reject or replace", value)
            self.rejects_same = said == b"REJECT"
            self.replaces_same = said == b"REPLACE"
        return at + 1

    def take_rate(self, args: list[bytes], at: i64) -> i64:
        """RATE key n/s|m|h [burst]."""
        self.rate = args[at]
        if at + 1 == len(args):
            raise wrong(b"RATE takes a key and %s" % A_RATE)
        count, _, unit = args[at + 1].partition(b"/")
        per: i64 = int(count) if count.isdigit() and len(count) < 10 else 0
        unit_ns: i64 = UNITS_NS.get(unit.upper(), 0)
        if not 1 <= per <= PER_MAX or unit_ns == 0:
            raise refused(b"RATE", A_RATE, args[at + 1])
        self.gap_ns = (unit_ns + per - 1) // per
        self.burst = max(1, EVEN_NS // self.gap_ns)
        at += 2
        if at < len(args) and args[at].isdigit():
            most = min(BURST_MAX, FILL_MAX_NS // self.gap_ns)
            self.burst = in_range(b"RATE's burst", args[at], 1, most)
            at += 1
        return at

    def packed(self) -> bytes:
        """The keys as the task carries them."""
        if len(self.has_until) > 0 and len(self.unique) == 0:
            raise ArgError(NO_UNIQUE % self.has_until)
        if self.has_weight and len(self.group) == 0:
            raise ArgError(NO_GROUP)
        return pack(self)
