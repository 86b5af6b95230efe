"""Caches of one server: parsed ADDJOB options by their words, run tokens (SPEC R1.1, W1.2).

Producers send the same options again and again. Options with DEDUPE, UNIQUE or HEADERS differ from
job to job and are not kept.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.job import AddSpec
from tuque.core.model.work import (
    NO_TERMS,
    Life,
    attempt_of,
    decimal,
    run_from,
    run_text,
)
from tuque.tubes.entries.keys import has_unique

FIRST: Final = 4  # where options begin in ADDJOB
KEPT_MAX: Final = 2_048  # options with keys; then all are forgotten
WORDS_MAX: Final = 10  # of such options

TOKENS_MAX: Final = 1_000  # remembered at once
START_REPLY: Final = b"*6\r\n$%s\r\n%s\r\n%s"
START_NUMBERS: Final = b":%d\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n"


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


# ---- Run tokens as clients see them, kept while they are useful (SPEC W1.2)
#
# A worker's first runs of all its jobs in queues have the same token: most replies to START, and
# most words of DONE, come from here. In a tube each take has its own token, which is not kept; the
# numbers after it in the reply are mostly those of the reply before.


@final
class Token:
    """One token, and the latest reply to a START that gave it."""

    def __init__(self, run: i64) -> None:
        self.run = run
        self.text = run_text(run)
        self.field = b""
        self.reply = b""
        self.numbers = b""  # of the run in that reply

    def field_of(self) -> bytes:
        """[W17] The field `run` of a delivered job, with its name (W17.2)."""
        if len(self.field) == 0:
            self.field = run_field(self.text)
        return self.field


def run_field(text: bytes) -> bytes:
    """[W17] That field with this token."""
    return b"\r\n$3\r\nrun\r\n$%s\r\n%s\r\n" % (decimal(len(text)), text)


@final
class Tokens:
    """The tokens that were given out of late, by number and by text."""

    def __init__(self) -> None:
        self.by_run: dict[int, Token] = {}
        self.by_text: dict[bytes, Token] = {}
        self.last = Token(0)
        self.numbers = b""  # of the run in the last reply to START; and what they are made of:
        self.terms = NO_TERMS
        self.attempt: i64 = 0
        self.starts: i64 = 0
        self.retry_s: i64 = 0

    def token(self, run: i64) -> Token:
        """The token of a run."""
        last = self.last
        if last.run == run:
            return last
        token = self.by_run.get(run)
        if token is None:
            if len(self.by_run) >= TOKENS_MAX:
                self.by_run = {}
                self.by_text = {}
            token = Token(run)
            self.by_run[int(run)] = token
            self.by_text[token.text] = token
        self.last = token
        return token

    def run_in(self, word: bytes) -> i64:
        """The run token in a word; 0 for `-`, -1 if it is none."""
        last = self.last
        if word == last.text:
            return last.run
        token = self.by_text.get(word)
        if token is None:
            return run_from(word)
        self.last = token
        return token.run

    def start_reply(self, work: Life, retry_s: i64, is_task: bool) -> bytes:
        """[W2] The reply to the START that began this run, or gave it again (W2.6).

        `is_task`: of a task in a tube.
        """
        numbers = self.numbers_of(work, retry_s)
        if is_task:
            text = run_text(work.run)
            return START_REPLY % (decimal(len(text)), text, numbers)
        token = self.token(work.run)
        if token.numbers is not numbers:
            token.numbers = numbers
            token.reply = START_REPLY % (decimal(len(token.text)), token.text, numbers)
        return token.reply

    def numbers_of(self, work: Life, retry_s: i64) -> bytes:
        """Attempt, attempts, starts, retry in ms and time limit in ms, as the reply has them."""
        terms = work.terms
        attempt = attempt_of(work.run)
        is_same = self.terms is terms and self.attempt == attempt
        if not is_same or self.starts != work.starts or self.retry_s != retry_s:
            self.terms = terms
            self.attempt = attempt
            self.starts = work.starts
            self.retry_s = retry_s
            self.numbers = START_NUMBERS % (
                attempt,
                terms.attempts,
                work.starts,
                retry_s * 1000,
                terms.limit_ms,
            )
        return self.numbers
