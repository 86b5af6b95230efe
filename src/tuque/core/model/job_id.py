"""Job ids, `D-<8 hex of the node id>-<24 characters>-<4 hex TTL field>`, and chance (SPEC G6).

The TTL field counts minutes; its lowest bit separates at-least-once (1) from at-most-once
(0). The 24 characters are 14 random ones that a group of ids shares, 2 for the place in
the group, and 8 that prove that a node of this cluster made the id: a keyed hash over
all the rest. One SHAKE-128 makes the proofs of a whole group, so that an id costs a
fraction of a hash. In ids of a tenant's jobs the last 5 of the 14 show whose they are. In
those of a tube's tasks the first 3 of the 8 also show which tube it is.
"""

from base64 import b64encode
from hashlib import shake_128
from typing import Final, final

from mypy_extensions import i64

ID_BYTES: Final = 40
_GROUP: Final = 128  # ids that share their first 14 characters
_TAG: Final = 6  # bytes of proof, 8 characters
_KEYS_MAX: Final = 8  # older ones that are known
_GROUPS: Final = 64  # begun at one time: a TTL field of a tenant, or of nobody, has its own
_MARK_AT: Final = 20  # where the mark of a tenant stands
_MARK_END: Final = 25
_PROOF_AT: Final = 27
_TURNED_END: Final = 30
_PROOF_END: Final = 35
_MARKS: Final = (1 << 18) - 1
# each may stand in URLs and file names
_DIGITS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.~"
_LAST: Final = b".~"
_TURNS: Final = [bytes([digit]) for digit in _DIGITS]
_VALUES: Final = bytes([max(0, _DIGITS.find(bytes([byte]))) for byte in range(256)])
_PLACES: Final = [bytes([_DIGITS[i >> 6], _DIGITS[i & 63]]) for i in range(_GROUP)]

HALF: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed


@final
class _Group:
    """The unused ids of one group."""

    def __init__(self, stem: bytes, tags: bytes, suffix: bytes) -> None:
        self.stem = stem  # prefix and the 14 characters
        self.tags = tags  # 8 characters an id
        self.suffix = suffix
        self.next: i64 = 0

    def take(self) -> bytes:
        """The next id."""
        i = self.next
        self.next = i + 1
        tag = self.tags[8 * i : 8 * i + 8]
        return b"%s%s%s%s" % (self.stem, _PLACES[i], tag, self.suffix)


@final
class IdMaker:
    """Makes the ids of one node. `seed` must differ at every start of a process."""

    def __init__(self, node_id: bytes, seed: bytes, key: bytes = b"") -> None:
        self.seed = seed
        self.key = key  # of the cluster; other nodes know their ids by it (G6.5)
        self.older: list[bytes] = []  # keys of ids that may still be about
        self.counter: i64 = 0
        self.tubes: dict[int, dict[bytes, None]] = {}  # names by mark: ids tell them (G6.8)
        self.prefix = b"D-%s-" % node_id[:8]
        self.groups: dict[tuple[int, bytes], _Group] = {}  # by TTL field and tenant
        self.ttl_s: i64 = -1  # the group used last, and what it is for
        self.at_most_once = False
        self.tenant = b""
        self.group = _Group(b"", b"", b"")
        self.group.next = _GROUP

    def make(self, ttl_s: i64, retry_s: i64, tenant: bytes = b"") -> bytes:
        """[G6] PROCEDURE make an id for this TTL and retry time, both in s, and this tenant."""
        is_other = ttl_s != self.ttl_s or (retry_s == 0) != self.at_most_once
        if is_other or tenant != self.tenant:
            self.ttl_s = ttl_s
            self.at_most_once = retry_s == 0
            self.tenant = tenant
            group = self.groups.get((int(ttl_field(ttl_s, retry_s)), tenant))
            self.group = self.start(ttl_s, retry_s, tenant) if group is None else group
        if self.group.next == _GROUP:
            self.group = self.start(ttl_s, retry_s, tenant)
        return self.group.take()  # G6.1

    def take_keys(self, keys: list[bytes]) -> None:
        """Make ids with the first key from now on; the others, and those so far, stay known."""
        if keys[0] != self.key:
            self.groups = {}
            self.ttl_s = -1
            self.group = _Group(b"", b"", b"")
            self.group.next = _GROUP
        former = [self.key] if self.key else []
        self.key = keys[0]
        self.older = unique(keys[1:] + former + self.older, self.key)[:_KEYS_MAX]

    def make_task(self, ttl_s: i64, tenant: bytes, tube: i64) -> bytes:
        """[G6] As `make`, for a task of the tube with that mark (G6.8)."""
        return marked(self.make(ttl_s, 1, tenant), tube)

    def knows(self, id: bytes) -> bool:
        """Whether a node of the cluster made the id (G6.5)."""
        mark = self.mark_in(id)
        return mark == 0 or int(mark) in self.tubes

    def tube_of(self, id: bytes) -> bytes:
        """The tube whose task has the id; b"" for a job of a queue, and if no tube is sure."""
        mark = self.mark_in(id)
        if mark <= 0:
            return b""
        names = self.tubes.get(int(mark))
        return next(iter(names)) if names is not None and len(names) == 1 else b""

    def mark_in(self, id: bytes) -> i64:
        """The mark of a tube in the id, 0: it has none, -1: no node of the cluster made it."""
        mark = mark_under(self.key, id)
        if mark >= 0:
            return mark
        for key in self.older:
            mark = mark_under(key, id)
            if mark >= 0:
                return mark
        return -1

    def add_tube(self, name: bytes) -> None:
        """Know the ids of the tube's tasks from now on."""
        self.tubes.setdefault(int(tube_mark(name)), {})[name] = None

    def drop_tube(self, name: bytes) -> None:
        """The tube is gone."""
        mark = int(tube_mark(name))
        names = self.tubes[mark]
        del names[name]
        if len(names) == 0:
            del self.tubes[mark]

    def start(self, ttl_s: i64, retry_s: i64, tenant: bytes) -> _Group:
        """Start a group for that TTL field and tenant."""
        field = ttl_field(ttl_s, retry_s)
        self.counter += 1
        random = b64encode(shake_128(self.seed + b"%d" % self.counter).digest(11), _LAST)[:14]
        stem = self.prefix + random
        if len(tenant) > 0:
            stem = stem[:_MARK_AT] + mark_of(stem[:_MARK_AT], tenant)  # G6.7
        suffix = b"-%04x" % field
        group = _Group(stem, tags_of(self.key, stem, suffix), suffix)
        if len(self.groups) >= _GROUPS:
            self.groups = {}
        self.groups[(int(field), tenant)] = group
        return group


def unique(keys: list[bytes], without: bytes) -> list[bytes]:
    """Each key once, in order."""
    found: list[bytes] = []
    for key in keys:
        if key != without and key not in found:
            found.append(key)
    return found


def tags_of(key: bytes, stem: bytes, suffix: bytes) -> bytes:
    """The proofs of a group: 8 characters per id (G6.5)."""
    return b64encode(
        shake_128(b"%d:" % len(key) + key + stem + suffix).digest(_TAG * _GROUP), _LAST
    )


def of_today(characters: bytes) -> bytes:
    """Characters of an id, which former versions wrote with `+` and `/`."""
    return characters.replace(b"+", b".").replace(b"/", b"~")


def is_genuine(key: bytes, id: bytes) -> bool:
    """Whether a node with that key made the id, for a job of a queue (G6.5)."""
    return mark_under(key, id) == 0


def mark_under(key: bytes, id: bytes) -> i64:
    """As `mark_in`, for one key; costs one hash (G6.5).

    The mark turns the first 3 characters of the proof, so the other 5 tell whether it is one.
    """
    own = of_today(id)
    i: i64 = _DIGITS.find(own[25:26]) * 64 + _DIGITS.find(own[26:27])
    if len(id) != ID_BYTES or i < 0 or i >= _GROUP:
        return -1
    tag = tags_of(key, id[:25], id[35:])[8 * i : 8 * i + 8]
    if own[_TURNED_END:_PROOF_END] != tag[3:]:
        return -1
    mark: i64 = 0
    for j in range(3):
        digit: i64 = _DIGITS.find(own[_PROOF_AT + j : _PROOF_AT + j + 1])
        if digit < 0:
            return -1
        turned = digit - _DIGITS.find(tag[j : j + 1])
        mark = mark << 6 | (turned & 63)
    return mark


def marked(id: bytes, mark: i64) -> bytes:
    """The id for a task of the tube with that mark (G6.8)."""
    if mark == 0:
        return id
    a: i64 = i64(_VALUES[id[27]]) + (mark >> 12)
    b: i64 = i64(_VALUES[id[28]]) + (mark >> 6)
    c: i64 = i64(_VALUES[id[29]]) + mark
    return b"%s%s%s%s%s" % (
        id[:_PROOF_AT],
        _TURNS[a & 63],
        _TURNS[b & 63],
        _TURNS[c & 63],
        id[_TURNED_END:],
    )


def tube_mark(name: bytes) -> i64:
    """What the ids of the tube's tasks have in common: 18 bits, never 0 (G6.8)."""
    found = int.from_bytes(shake_128(b"tube:%s" % name).digest(3), "big") & _MARKS
    return found if found > 0 else 1


def mark_of(head: bytes, tenant: bytes) -> bytes:
    """The 5 characters that say whose an id is; `head`: the 20 before them (G6.7)."""
    return b64encode(shake_128(b"tenant:%s:%s" % (tenant, head)).digest(6), _LAST)[:5]


def is_marked(id: bytes, tenant: bytes) -> bool:
    """Whether the id was made for a job of that tenant (G6.7)."""
    return of_today(id[_MARK_AT:_MARK_END]) == mark_of(id[:_MARK_AT], tenant)


def ttl_s_of(id: bytes) -> i64:
    """The longest TTL that a job with this id may have, in s: its field is rounded (G6.2)."""
    field = int(id[36:40], 16)
    return (field + 1) * 60 if field & 1 else (field + 2) * 60


def ttl_field(ttl_s: i64, retry_s: i64) -> i64:
    """Whole minutes, at most 65535, odd for at-least-once, even for at-most-once (G6.2)."""
    minutes = ttl_s // 60
    if minutes > 65_535:
        minutes = 65_535
    return minutes | 1 if retry_s > 0 else minutes & ~1


def of_url(word: bytes) -> bytes:
    """[G6.6] The id of a former version for its URL form; any other word unchanged."""
    if (
        len(word) != ID_BYTES
        or word[0] != 68
        or word[1] != 95  # _
        or word[10] != 95
        or word[35] != 95
    ):
        return word
    middle = word[11:35].replace(b"-", b"+").replace(b"_", b"/")
    return b"D-%s-%s-%s" % (word[2:10], middle, word[36:40])


def is_job_id(word: bytes) -> bool:
    """Whether the word has the form of a job id: length and the four fixed characters (G6.3)."""
    return (
        len(word) == ID_BYTES
        and word[0] == 68  # D
        and word[1] == 45  # -
        and word[10] == 45
        and word[35] == 45
    )


# ---- A small seeded generator for the core's choices: equal seeds give equal runs


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
