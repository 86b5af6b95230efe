"""The options of ADDJOB, read by all commands that take some of them (SPEC R1, T40, W1, Z1, Z4)."""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.job import AddSpec
from tuque.core.model.work import ATTEMPTS_MAX, NO_TERMS, Terms
from tuque.core.msgs.packed import BURST_MAX, FILL_MAX_NS, PLACES_MAX, UNTIL_MAX_MS, WEIGHT_MAX
from tuque.core.msgs.packed import KEY_MAX as TASK_KEY_MAX
from tuque.core.tables.dedupe_keys import KEY_MAX
from tuque.tubes.entries.keys import UNTIL_DONE, UNTIL_START, Keys, has_unique, pack
from tuque.wire.commands.arguments import (
    HEADER_MAX,
    OF_SECONDS,
    PRI_MAX,
    SECONDS,
    SECONDS_MAX,
    UTUBE_MAX,
    ArgError,
    headers,
    in_range,
    ms_in_range,
    refused,
    seconds_ms,
    some_ms,
    wrong,
    wrong_option,
)
from tuque.wire.proto.resp import one_line, strict_int

FIRST_OPTION: Final = 4  # where options begin in ADDJOB
KEPT_MAX: Final = 2_048  # options with keys; then all are forgotten
WORDS_MAX: Final = 10  # of such options

KEY_WORDS: Final = (b"UNIQUE", b"UNTIL", b"ON", b"LIMIT", b"RATE", b"GROUP", b"WEIGHT")
UNITS_NS: Final = {b"S": 1_000_000_000, b"M": 60_000_000_000, b"H": 3_600_000_000_000}
PER_MAX: Final = 1_000_000
EVEN_NS: Final = 20_000_000  # the default burst is what comes in this time

BAD_TASK_KEY: Final = b"ERR %s key must be 1 to 255 bytes"
A_RATE: Final = b"n/s, n/m or n/h, n from 1 to 1000000"
AN_END: Final = b"done, start or a number of seconds above 0, at most 31622400"
NO_UNIQUE: Final = b"ERR %s needs a UNIQUE key"
NO_GROUP: Final = b"ERR WEIGHT needs a GROUP"

BAD_UTUBE: Final = b"ERR UTUBE must be at most 512 bytes"
BAD_DEDUPE_KEY: Final = b"ERR DEDUPE key must be 1 to 255 bytes"
NO_KEY: Final = b"ERR DEDUPETTL needs a DEDUPE key"
BAD_BACKOFF: Final = b"ERR BACKOFF takes first, max (seconds, first <= max) and jitter (0 to 1)"
BAD_DEAD: Final = b"ERR DEAD must name a queue"
LATE_WORD: Final = b"in %s, %s comes before the options of ADDJOB"
BASIC_WORDS: Final = (
    b"REPLICATE",
    b"TTL",
    b"RETRY",
    b"DELAY",
    b"MAXLEN",
    b"DEDUPE",
    b"DEDUPETTL",
)
TUBE_WORDS: Final = (b"PRI", b"UTUBE")
WORK_WORDS: Final = (
    b"ATTEMPTS",
    b"BACKOFF",
    b"DEAD",
    b"KEEP",
    b"TIMELIMIT",
    b"ONEXPIRY",
    b"HEADERS",
)
FLAG_WORDS: Final = (b"ASYNC", b"WITHNEW")
STAGE_WORDS: Final = (b"WITHID",)  # of STAGE only
# which option a word is
OF_FLAGS: Final = 1
OF_BASIC: Final = 2
OF_TUBES: Final = 3
OF_WORK: Final = 4
OF_KEYS: Final = 5
OF_STAGE: Final = 6
KINDS: Final[dict[bytes, int]] = {
    **dict.fromkeys(FLAG_WORDS, OF_FLAGS),
    **dict.fromkeys(BASIC_WORDS, OF_BASIC),
    **dict.fromkeys(TUBE_WORDS, OF_TUBES),
    **dict.fromkeys(WORK_WORDS, OF_WORK),
    **dict.fromkeys(KEY_WORDS, OF_KEYS),
    **dict.fromkeys(STAGE_WORDS, OF_STAGE),
}
SOME_SECONDS: Final = b"a number of seconds above 0, at most 2147483647"
KEY_TTL_MAX: Final = 365 * 86_400_000
REPLICATE_MAX: Final = 65_535


# ---- Options about keys: UNIQUE, LIMIT, RATE, GROUP (SPEC T40)


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
        if not 1 <= len(value) <= TASK_KEY_MAX:
            raise ArgError(BAD_TASK_KEY % word)
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


# ---- All options, and the commands that take them (SPEC R1, W1, Z1)


@final
class Taker:
    """A command whose last words are options of ADDJOB: those that it takes.

    `told`: its error names these, the command's own options among them. `own`: options that stand
    before those of ADDJOB.
    """

    def __init__(
        self,
        name: bytes,
        words: tuple[bytes, ...],
        own: tuple[bytes, ...] = (),
        told: tuple[bytes, ...] = (),
        least_ttl: i64 = 0,
    ) -> None:
        self.name = name
        self.words: dict[bytes, None] = dict.fromkeys(words)
        self.own = own
        self.told = told
        self.least_ttl: i64 = least_ttl


ADDJOB: Final = Taker(b"ADDJOB", FLAG_WORDS + BASIC_WORDS + WORK_WORDS + KEY_WORDS + TUBE_WORDS)


def addjob_options(args: list[bytes], first: i64 = 4, of: Taker = ADDJOB) -> AddSpec:
    """[R1, Z1.2] The options from word `first` on (R1.1). Of repeated options the last wins."""
    spec = AddSpec()
    i = first
    count: i64 = len(args)
    has_key_ttl = False
    work: WorkOptions | None = None
    keys: KeyOptions | None = None
    while i < count:
        word = args[i]
        kind = KINDS.get(word, 0)
        if kind == 0:
            word = word.upper()
            kind = KINDS.get(word, 0)
        if kind == 0 or ((of is not ADDJOB or kind == OF_STAGE) and word not in of.words):
            raise wrong_add(args[i], of)
        if kind in (OF_FLAGS, OF_STAGE):
            flag_option(spec, word)
            i += 1
            continue
        if i + 1 == count:
            raise wrong_add(args[i], of)
        if kind == OF_KEYS:
            if keys is None:
                keys = KeyOptions()
            i = keys.take(word, args, i + 1)
            continue
        if kind == OF_WORK:
            if work is None:
                work = WorkOptions()
            i = work.take(word, args, i + 1)
            continue
        if kind == OF_TUBES:
            tube_option(spec, word, args[i + 1])
        else:
            basic_option(spec, word, args[i + 1], of.least_ttl)
            has_key_ttl = has_key_ttl or word == b"DEDUPETTL"
        i += 2
    if has_key_ttl and len(spec.key) == 0:
        raise ArgError(NO_KEY)
    if work is not None:
        spec.terms = work.terms
        spec.headers = work.headers
    if keys is not None:
        spec.keys = keys.packed()
        spec.rejects_same = keys.rejects_same
        spec.replaces_same = keys.replaces_same
    return spec


def flag_option(spec: AddSpec, word: bytes) -> None:
    """An option without a value."""
    if word == b"ASYNC":
        spec.is_async = True
    elif word == b"WITHID":
        spec.with_id = True
    else:
        spec.with_new = True  # Z4.7


def basic_option(spec: AddSpec, word: bytes, value: bytes, least_ttl: i64) -> None:
    """An option that ADDJOB and STAGE share."""
    if word == b"REPLICATE":
        spec.replicate = in_range(word, value, 1, REPLICATE_MAX)
    elif word == b"TTL":
        spec.ttl_ms = ms_in_range(word, value, least_ttl)  # W1.6
        spec.ttl_s = (spec.ttl_ms + 999) // 1000
    elif word == b"RETRY":
        spec.retry_s = in_range(word, value, 0, SECONDS_MAX, OF_SECONDS)
    elif word == b"DELAY":
        spec.delay_ms = seconds_ms(value)  # W1.6
        spec.delay_s = (spec.delay_ms + 999) // 1000
    elif word == b"DEDUPE":
        if not 1 <= len(value) <= KEY_MAX:
            raise ArgError(BAD_DEDUPE_KEY)
        spec.key = value
    elif word == b"DEDUPETTL":
        spec.key_ttl_ms = in_range(word, value, 1, KEY_TTL_MAX, b"a number of ms")
    else:
        maxlen = strict_int(value)
        if maxlen is None or maxlen < 1:
            raise refused(word, b"a number from 1 up", value)
        spec.maxlen = min(maxlen, SECONDS_MAX)


def wrong_add(word: bytes, of: Taker) -> ArgError:
    """[R1] A word that is no option of the command, or one without its value (R1.1)."""
    if word.upper() in of.own:
        return wrong(LATE_WORD % (of.name, word.upper()))
    found = wrong_option(of.name, word, tuple(of.words))
    if len(of.told) > 0 and word.upper() not in of.words:
        found = ArgError(b"%s: it takes %s" % (found.text, b", ".join(of.told)))
    return found


def tube_option(spec: AddSpec, word: bytes, value: bytes) -> None:
    """[T1] An option of ADDJOB that applies to tubes only (T1.1)."""
    if word == b"PRI":
        spec.pri = in_range(word, value, 0, PRI_MAX)
        spec.has_pri = True
    else:
        if len(value) > UTUBE_MAX:
            raise ArgError(BAD_UTUBE)
        spec.utube = value
        spec.has_utube = True


@final
class WorkOptions:
    """[W1] The options of ADDJOB about its work (W1.1)."""

    def __init__(self) -> None:
        self.terms: Terms | None = None  # None: no option of theirs was given
        self.headers = b""

    def take(self, word: bytes, args: list[bytes], at: i64) -> i64:
        """Read the option whose values begin at `at`; returns where the next option begins."""
        if word == b"HEADERS":
            self.headers, at = headers(args, at)
            return at
        terms = self.terms
        if terms is None:
            terms = NO_TERMS.copy()
            self.terms = terms
        if word == b"BACKOFF":
            if at + 3 > len(args):
                raise ArgError(BAD_BACKOFF)
            terms.first_ms, terms.max_ms = some_ms(args[at]), some_ms(args[at + 1])
            terms.jitter = some_ms(args[at + 2])
            if not 0 <= terms.first_ms <= terms.max_ms or not 0 <= terms.jitter <= 1000:
                given = one_line(b" ".join([one[:HEADER_MAX] for one in args[at : at + 3]]))
                raise ArgError(b"%s, not '%s'" % (BAD_BACKOFF, given))
            return at + 3
        value = args[at]
        if word == b"ATTEMPTS":
            terms.attempts = in_range(word, value, 1, ATTEMPTS_MAX)
        elif word == b"DEAD":
            if len(value) == 0:
                raise ArgError(BAD_DEAD)
            terms.dead = value
        elif word == b"KEEP":
            terms.keep_ms = some_ms(value)
            if terms.keep_ms < 0:
                raise refused(word, SECONDS, value)
            terms.keeps_body = at + 1 < len(args) and args[at + 1].upper() == b"BODY"
            if terms.keeps_body:
                return at + 2
        elif word == b"ONEXPIRY":
            choice = value.lower()
            if choice != b"dead" and choice != b"drop":
                raise refused(word, b"dead or drop", value)
            terms.drops = choice == b"drop"
        else:
            terms.limit_ms = some_ms(value)
            if terms.limit_ms < 1:
                raise refused(word, SOME_SECONDS, value)
        return at + 1


# ---- The options of the last ADDJOBs by their words, parsed once (SPEC R1.1)
#
# Producers send the same options again and again. Those with DEDUPE, UNIQUE or HEADERS differ from
# job to job and are not kept.


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
        if len(args) != size + FIRST_OPTION:
            return False
        i: i64 = 0
        while i < size:
            if args[i + FIRST_OPTION] != words[i]:
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
        if len(self.keyed) == 0 or len(args) > FIRST_OPTION + WORDS_MAX:
            return None
        found = self.keyed.get(name_of(args))
        return found.spec if found is not None and found.fits(args) else None

    def keep(self, args: list[bytes], spec: AddSpec) -> None:
        """Keep the options for the next ADDJOB, unless they differ from job to job."""
        if len(spec.key) + len(spec.headers) > 0:
            return
        if len(spec.keys) == 0:
            self.last = Settled(args[FIRST_OPTION:], spec)
        elif len(args) <= FIRST_OPTION + WORDS_MAX and not has_unique(spec.keys):
            if len(self.keyed) >= KEPT_MAX:
                self.keyed.clear()
            self.keyed[name_of(args)] = Settled(args[FIRST_OPTION:], spec)

    def forget(self) -> None:
        """Defaults have changed: drop all."""
        self.last = None
        self.keyed.clear()


def name_of(args: list[bytes]) -> bytes:
    """The key in the cache: the value of a single option, else all words, joined."""
    if FIRST_OPTION + 1 < len(args) <= FIRST_OPTION + 3:
        return args[FIRST_OPTION + 1]
    return b" ".join(args[FIRST_OPTION:])
