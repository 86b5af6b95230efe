"""A cache of parsed ADDJOB options, by their words (SPEC R1.1).

Producers send the same options again and again. Options with DEDUPE, UNIQUE or HEADERS differ from
job to job and are not kept.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.job import AddSpec
from tuque.tubes.entries.keys import has_unique

FIRST: Final = 4  # where options begin in ADDJOB
KEPT_MAX: Final = 2_048  # options with keys; then all are forgotten
WORDS_MAX: Final = 10  # of such options


@final
@mypyc_attr(acyclic=True)
class Settled:
    """Parsed options with their defaults, and their words."""

    def __init__(self, words: list[bytes], spec: AddSpec) -> None:
        self.words = words
        self.spec = spec

    def fits(self, args: list[bytes]) -> bool:
        """Whether the ADDJOB has these words for options."""
        words = self.words
        size: i64 = len(words)
        if len(args) != size + FIRST:
            return False
        i: i64 = 0
        while i < size:
            if args[i + FIRST] != words[i]:
                return False
            i += 1
        return True


@final
class Specs:
    """Parsed options: of the last ADDJOB without keys, and of many with keys."""

    def __init__(self) -> None:
        self.last: Settled | None = None
        self.keyed: dict[bytes, Settled] = {}

    def find(self, args: list[bytes]) -> AddSpec | None:
        """The settled options of an ADDJOB; None: not known."""
        last = self.last
        if last is not None and last.fits(args):
            return last.spec
        if len(self.keyed) == 0 or len(args) > FIRST + WORDS_MAX:
            return None
        found = self.keyed.get(name_of(args))
        return found.spec if found is not None and found.fits(args) else None

    def keep(self, args: list[bytes], spec: AddSpec) -> None:
        """Keep the options for the next ADDJOB, unless they differ from job to job."""
        if len(spec.key) + len(spec.headers) > 0:
            return
        if len(spec.keys) == 0:
            self.last = Settled(args[FIRST:], spec)
        elif len(args) <= FIRST + WORDS_MAX and not has_unique(spec.keys):
            if len(self.keyed) >= KEPT_MAX:
                self.keyed.clear()
            self.keyed[name_of(args)] = Settled(args[FIRST:], spec)

    def forget(self) -> None:
        """Defaults have changed: drop all."""
        self.last = None
        self.keyed.clear()


def name_of(args: list[bytes]) -> bytes:
    """The key in the cache: the value of a single option, else all words, joined."""
    if FIRST + 1 < len(args) <= FIRST + 3:
        return args[FIRST + 1]
    return b" ".join(args[FIRST:])
