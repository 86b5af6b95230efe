"""TOPIC: queues subscribe to topics, and producers add to all of them at once (SPEC T61, T62)."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tuque.core.copies.add import for_queue, refusal, settle
from tuque.core.model.job import JOB_BYTES, LEVEL_MAX, AddSpec
from tuque.core.model.stats import tenant_of
from tuque.core.node.node import Node
from tuque.core.tables.topics import (
    FILTERS_MAX,
    GLOB_MAX,
    KEY_BYTES_MAX,
    NAME_MAX,
    QUEUE_MAX,
    TOPIC_MAX,
    WORDS_MAX,
    Match,
    Subscription,
    is_key,
)
from tuque.core.topics import (
    Share,
    add_all,
    find_known,
    node_refusal,
    subscribe,
    unheard_refusal,
    unsubscribe,
)
from tuque.server.access.tenant import of_topic
from tuque.server.commands.jobs import DISKFULL, oom_text
from tuque.server.config.patterns import Glob
from tuque.server.replies.errors import core_words, reply_help
from tuque.server.replies.long_commands import begin
from tuque.server.replies.redirects import HOME, address_of, refusal_text
from tuque.server.replies.waiting import await_copies, ids_reply, take_lacking
from tuque.server.state.client import Client, LongCommand
from tuque.server.state.server import Server
from tuque.tubes.log.leader import refusal_of
from tuque.tubes.model.errors import HomeError, TubeError
from tuque.tubes.model.tube import Tube
from tuque.tubes.policy import tubes_of
from tuque.wire.commands.add_options import (
    BASIC_WORDS,
    FLAG_WORDS,
    KEY_WORDS,
    TUBE_WORDS,
    WORK_WORDS,
    Taker,
    addjob_options,
)
from tuque.wire.commands.arguments import (
    ArgError,
    header_pairs,
    is_header,
    ranged,
    timeout_ms,
    twice,
    wrong,
    wrong_option,
)

READ_OF_UNIT: Final = 4  # characters of a pattern that are read for a unit of work
ADD_WORK: Final = 10  # units of work for one job of an ADD

TAKEN: Final = (*BASIC_WORDS, b"ASYNC", *TUBE_WORDS, *WORK_WORDS)
ADD: Final = Taker(b"TOPIC ADD", TAKEN + KEY_WORDS + FLAG_WORDS, (), TAKEN)
NO_KEYS: Final = (
    b"ERR TOPIC ADD takes no UNIQUE, LIMIT, RATE or GROUP: they are of one tube, and a topic may "
    b"have many queues"
)
NO_WITHNEW: Final = b"ERR TOPIC ADD takes no WITHNEW: its reply has the ids of many jobs"
LARGE: Final = b"ERR a body of %d bytes for %d queues: all together at most %d"
APART: Final = (
    b"TUBESAPART tubes '%s' and '%s' of topic '%s' have different leaders, nothing was added: give "
    b"them one leader with TUBE HOME"
)
APART_HIDDEN: Final = (
    b"TUBESAPART tubes of topic '%s' have different leaders, nothing was added: give them one "
    b"leader with TUBE HOME"
)
OF_QUEUE: Final = b": queue '%s' of topic '%s', nothing was added"
HIDDEN: Final = b"%s a queue of topic '%s' that this user may not see refuses it, nothing was added"
NOTHING: Final = b": nothing was added"

NEEDS: Final[dict[bytes, bytes]] = {
    b"SUBSCRIBE": b"a topic, a queue, KEY with a pattern, and FILTER with up to %d pairs of a "
    b"header's name and a pattern" % FILTERS_MAX,
    b"UNSUBSCRIBE": b"a topic, a queue, and KEY with a pattern",
    b"LIST": b"TOPIC, CURSOR and COUNT, each with a value",
    b"ADD": b"a topic, a body, a timeout in ms, and options of ADDJOB",
}
WORDS: Final[dict[bytes, tuple[int, int]]] = {
    b"SUBSCRIBE": (4, 7 + 2 * FILTERS_MAX),
    b"UNSUBSCRIBE": (4, 6),
    b"LIST": (2, 8),
    b"ADD": (5, 160),
}
LIST_WORDS: Final = (b"TOPIC", b"CURSOR", b"COUNT")
COUNT: Final = 100
COUNT_MAX: Final = 1_000
CURSOR_MAX: Final = (1 << 62) - 1
ROW_WORK: Final = 5

BAD_TOPIC: Final = b"ERR the name of a topic has 1 to %d bytes" % TOPIC_MAX
BAD_QUEUE: Final = b"ERR the name of a queue that subscribes has 1 to %d bytes" % QUEUE_MAX
BAD_FILTER: Final = (
    b"ERR FILTER takes up to %d names of headers (1 to %d of a-z, 0-9, '.', '_', '-'), each with a "
    b"pattern of 1 to %d bytes" % (FILTERS_MAX, NAME_MAX, GLOB_MAX)
)
BAD_KEY: Final = b"ERR a key has 1 to %d bytes, and up to %d words between dots" % (
    KEY_BYTES_MAX,
    WORDS_MAX,
)
BAD_COUNT: Final = b"ERR COUNT must be a number from 1 to 1000"
BAD_CURSOR: Final = b"ERR the cursor must be a number that a page replied with"
UNFIT: Final = b"ERR the pattern '%s' fits nothing: write ranges as in [a-c]"
TAKES: Final = b"TOPIC takes SUBSCRIBE, UNSUBSCRIBE, LIST, ADD or HELP"


# ---- ADD: a job for each queue that is subscribed, or none (SPEC T62)


def add(s: Server, c: Client, args: list[bytes]) -> None:
    """[T62] ADD topic body ms-timeout [options of ADDJOB] (T62.1)."""
    n = s.n
    if s.is_disk_short():
        raise ArgError(DISKFULL)
    key = b""
    first = 5
    if len(args) > 6 and args[5].upper() == b"KEY":
        key = checked_key(args[6])
        first = 7
    wanted = addjob_options(args, first, ADD)
    wait_ms = timeout_ms(args[4])
    if len(wanted.keys) > 0:
        raise ArgError(NO_KEYS)
    if wanted.with_new:
        raise ArgError(NO_WITHNEW)
    unheard = unheard_refusal(n)
    if unheard is not None:
        raise ArgError(core_words(unheard))
    begin(s, c, Adding(s, c, args, key, wanted, wait_ms))


@final
class Adding(LongCommand):
    """[T62] One ADD: the filters are compared in slices, then all jobs are added at once."""

    def __init__(
        self,
        s: Server,
        c: Client,
        args: list[bytes],
        key: bytes,
        wanted: AddSpec,
        wait_ms: int,
    ) -> None:
        super().__init__(c)
        self.s = s
        self.client = c
        self.topic, self.body = args[2], args[3]
        self.wanted = wanted
        self.wait_ms = wait_ms
        words = header_pairs(wanted.headers)
        self.headers = {words[i]: words[i + 1] for i in range(0, len(words), 2)}
        self.key = key
        tree = s.n.topics.trees.get(self.topic)
        self.match = None if tree is None else Match(tree, key)
        self.all = s.n.topics.of_topic(self.topic)
        self.at = 0
        self.fitting: list[Subscription] = []

    def step(self, room: int) -> bool:
        """Compare the next subscriptions."""
        n = self.s.n
        until = n.work + room
        while self.match is not None and len(self.match.left) > 0:
            if n.work >= until:
                return False
            n.work += self.match.step()
        if self.match is not None:
            queues = self.match.queues()
            n.work += len(self.all) // READ_OF_UNIT
            self.all = [one for one in self.all if len(one.keys) == 0 or one.queue in queues]
            self.match = None
        while self.at < len(self.all):
            if n.work >= until:
                return False
            one = self.all[self.at]
            self.at += 1
            if passes(n, one.filters, self.headers):
                self.fitting.append(one)
        return True

    def tell(self) -> None:
        """Add the jobs (T62.3)."""
        n, s, c = self.s.n, self.s, self.client
        shares = shares_of(n, self.still(), self.wanted)
        n.work += ADD_WORK * len(shares)
        check_all(s, c, shares, self.body, self.wanted.key)
        if len(shares) == 0:
            n.topics.adds += 1
            n.topics.unheard += 1
            c.reply([])
            return
        serial = c.first_serial + len(c.holes)
        ids, waiting = add_all(n, shares, self.body, c.number, serial, self.wait_ms)
        if waiting is None:
            c.out.append(ids_reply(ids))
            return
        if n.policy is not None and len(tubes_of(n).to_sync) > 0:
            waiting.tubes = take_lacking(s, tubes_of(n))
            waiting.left += 1 if len(waiting.tubes) > 0 else 0
        await_copies(s, c)

    def still(self) -> list[Subscription]:
        """Those that are subscribed now: some may have changed between two slices."""
        n = self.s.n
        found: list[Subscription] = []
        for one in self.fitting:
            known = n.topics.find(self.topic, one.queue)
            if known is one or (
                known is not None
                and not known.is_gone
                and known.keys == one.keys
                and passes(n, known.filters, self.headers)
            ):
                found.append(known)
        return found


def check_all(s: Server, c: Client, shares: list[Share], body: bytes, key: bytes) -> None:
    """Raise ArgError unless every queue takes its job (T62.2)."""
    n = s.n
    if len(shares) > 0:
        check_sizes(s, len(shares), len(body))
        check_leaders(s, c, shares)
        refused = node_refusal(n)
        if refused is not None:
            raise ArgError(core_words(refused) + NOTHING)
        refused = find_known(n, shares, key)
        if refused is not None:
            raise ArgError(core_words(refused))
    counts: dict[bytes, int] = {}
    fresh = 0
    for x in shares:
        if len(x.known) == 0:
            check_one(s, c, x)
            tenant = tenant_of(x.one.queue)
            counts[tenant] = counts.get(tenant, 0) + 1
            fresh += 1
    most: i64 = n.limits.memory_bytes
    if most > 0 and n.counted_bytes() + fresh * (len(body) + JOB_BYTES) > most and fresh > 1:
        raise ArgError(oom_text(n).removesuffix(b".") + NOTHING)  # T62.11
    over = None if c.user is None else of_topic(s, c.user, counts, len(body))
    if over is not None:
        raise ArgError(over)  # T62.8


def shares_of(n: Node, fitting: list[Subscription], wanted: AddSpec) -> list[Share]:
    """[T62] The queues that get a job, with their options (T62.4)."""
    of_queue = settle(n, wanted)
    of_queue.pri = min(of_queue.pri, LEVEL_MAX)
    of_queue.has_utube = False
    found: list[Share] = []
    for one in fitting:
        q = n.queues.get(one.queue)
        if isinstance(q, Tube):
            found.append(Share(one, settle_tube(n, q, wanted)))
        else:
            found.append(Share(one, for_queue(n, one.queue, of_queue)))
    return found


def settle_tube(n: Node, tube: Tube, wanted: AddSpec) -> AddSpec:
    """The options without those that mean nothing to this tube."""
    spec = settle(n, wanted)
    spec.has_pri = spec.has_pri and tube.driver.is_timed
    spec.has_utube = spec.has_utube and tube.driver.is_keyed
    spec.asked_replicate = -1
    if not tube.driver.has_keys:
        spec.headers = b""
        spec.terms = None
    return spec


def passes(n: Node, filters: list[bytes], headers: dict[bytes, bytes]) -> bool:
    """[T60] Whether the headers pass the filters (T60.3), which is work."""
    n.work += 1
    for i in range(0, len(filters), 2):
        value = headers.get(filters[i])
        if value is None:
            return False
        glob = Glob(filters[i + 1].decode("latin-1"))
        is_fit = glob.matches(value.decode("latin-1"))
        n.work += glob.units() + len(filters[i + 1]) // READ_OF_UNIT
        if not is_fit:
            return False
    return True


def check_sizes(s: Server, count: int, size: int) -> None:
    """Raise ArgError if that is too much for one command (T62.7)."""
    if count * size > s.cfg.max_body_bytes and count > 1:
        raise ArgError(LARGE % (size, count, s.cfg.max_body_bytes))


def check_leaders(s: Server, c: Client, shares: list[Share]) -> None:
    """Raise ArgError unless this node leads all the tubes (T62.10)."""
    first: Tube | None = None
    shown: Tube | None = None  # one that the user may see
    for x in shares:
        tube = s.n.queues.get(x.one.queue)
        if not isinstance(tube, Tube):
            continue
        if shown is None and may_see(c, tube.name):
            shown = tube
        if first is None:
            first = tube
        elif tube.is_mine != first.is_mine or (not tube.is_mine and tube.home != first.home):
            topic = c.named(x.one.topic)
            if not may_see(c, first.name) or not may_see(c, tube.name):
                raise ArgError(APART_HIDDEN % topic)
            raise ArgError(APART % (c.named(first.name), c.named(tube.name), topic))
    if first is None or first.is_mine:
        return
    error = refusal_of(s.n, tubes_of(s.n), first if shown is None else shown)
    if shown is not None:
        raise ArgError(refusal_text(s, error))
    topic = c.named(shares[0].one.topic)
    if isinstance(error, HomeError):
        raise ArgError(HOME % (address_of(s, error.node_id), topic))
    raise ArgError(HIDDEN % (first_word(refusal_text(s, error)), topic))


def check_one(s: Server, c: Client, x: Share) -> None:
    """Raise ArgError with the reason why its queue takes no job (T62.2)."""
    why = b""
    try:
        refused = refusal(s.n, x.one.queue, x.spec)
        if refused is not None:
            why = core_words(refused)
    except TubeError as error:
        why = refusal_text(s, error)
    if len(why) == 0:
        return
    if not may_see(c, x.one.queue):
        raise ArgError(HIDDEN % (first_word(why), c.named(x.one.topic)))  # N2.7
    raise ArgError(why + OF_QUEUE % (c.named(x.one.queue), c.named(x.one.topic)))


def first_word(why: bytes) -> bytes:
    """The code of an error (C9)."""
    return why.partition(b" ")[0]


def may_see(c: Client, queue: bytes) -> bool:
    """Whether the user may see the queue."""
    return c.user is None or c.user.may_see(queue)


def is_shown(c: Client, one: Subscription) -> bool:
    """Whether the user may see the topic and the queue."""
    return may_see(c, one.topic) and may_see(c, one.queue)


# ---- The command, subscriptions and lists (SPEC T61)


def cmd_topic(s: Server, c: Client, args: list[bytes]) -> None:
    """[T61] TOPIC SUBSCRIBE | UNSUBSCRIBE | LIST | ADD."""
    word = args[1].upper()
    if word == b"HELP" and len(args) == 2:
        reply_help(s, c, b"TOPIC")
        return
    if word not in NEEDS:
        raise wrong(TAKES)
    least, most = WORDS[word]
    if not least <= len(args) <= most:
        raise wrong(b"TOPIC %s takes %s" % (word, NEEDS[word]))
    if word == b"LIST":
        show(s, c, args[2:])
        return
    if not 1 <= len(args[2]) <= TOPIC_MAX:
        raise ArgError(BAD_TOPIC)
    if word == b"ADD":
        add(s, c, args)
        return
    if not 1 <= len(args[3]) <= QUEUE_MAX:
        raise ArgError(BAD_QUEUE)
    key: bytes | None = None
    rest = args[4:]
    if len(rest) > 0 and rest[0].upper() == b"KEY":
        if len(rest) == 1:
            raise wrong(b"KEY needs a value")
        key = checked_key(rest[1])
        rest = rest[2:]
    if len(rest) > 1 + 2 * FILTERS_MAX:
        raise wrong(b"TOPIC %s takes %s" % (word, NEEDS[word]))
    if word == b"UNSUBSCRIBE":
        if len(rest) > 0:
            raise wrong_option(b"TOPIC UNSUBSCRIBE", rest[0], (b"KEY",))
        c.reply(int(unsubscribe(s.n, args[2], args[3], key)))
        return
    tenant = b"" if c.user is None else c.user.tenant
    changed, refused = subscribe(s.n, args[2], args[3], filters_of(rest), tenant, key)
    if refused is not None:
        raise ArgError(core_words(refused))
    c.reply(int(changed))


def checked_key(key: bytes) -> bytes:
    """A key, or a pattern of keys; raises ArgError (T63.1)."""
    if not is_key(key):
        raise ArgError(BAD_KEY)
    return key


def filters_of(words: list[bytes]) -> list[bytes]:
    """[T60] Names and patterns of FILTER (T60.3)."""
    if len(words) == 0:
        return []
    if words[0].upper() != b"FILTER":
        raise wrong_option(b"TOPIC SUBSCRIBE", words[0], (b"KEY", b"FILTER"))
    pairs = words[1:]
    if len(pairs) == 0 or len(pairs) % 2 != 0:
        raise ArgError(BAD_FILTER)
    for i in range(0, len(pairs), 2):
        if not is_header(pairs[i]) or not 1 <= len(pairs[i + 1]) <= GLOB_MAX:
            raise ArgError(BAD_FILTER)
        if pairs[i] in pairs[:i:2]:
            raise wrong(b"FILTER has the header '%s' twice" % pairs[i])
        if not Glob(pairs[i + 1].decode("latin-1")).is_possible():
            raise ArgError(UNFIT % pairs[i + 1])
    return pairs


def show(s: Server, c: Client, words: list[bytes]) -> None:
    """LIST [TOPIC name] [CURSOR c] [COUNT n] (T61.3)."""
    said: dict[bytes, bytes] = {}
    for i in range(0, len(words), 2):
        word = words[i].upper()
        if word not in LIST_WORDS:
            raise wrong_option(b"TOPIC LIST", words[i], LIST_WORDS)
        if i + 1 == len(words):
            raise wrong(b"%s needs a value" % word)
        if word in said:
            raise twice(word)
        said[word] = words[i + 1]
    count = int(ranged(said.get(b"COUNT", b"%d" % COUNT), 1, COUNT_MAX, BAD_COUNT))
    cursor = int(ranged(said.get(b"CURSOR", b"0"), 0, CURSOR_MAX, BAD_CURSOR))
    topics = s.n.topics
    if b"TOPIC" in said:
        known = list(topics.by_topic.get(said[b"TOPIC"], {}).values())
    else:
        known = [one for queues in topics.by_topic.values() for one in queues.values()]
    s.n.work += len(known) // 20 + ROW_WORK * count
    found = [one for one in known if one.serial > cursor and is_shown(c, one)]
    found.sort(key=serial_of)
    rows: list[object] = [
        [
            c.named(one.topic),
            c.named(one.queue),
            list(one.filters),
            int(one.jobs),
            list(one.keys),
        ]
        for one in found[:count]
    ]
    after = found[count - 1].serial if len(found) > count else 0
    c.reply([b"%d" % after, rows])


def serial_of(one: Subscription) -> int:
    """The order of a list: later subscriptions come later."""
    return int(one.serial)
