"""TOPIC ADD: a job for each queue that is subscribed, or none (SPEC T62)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tuque.core.copies.add import refusal, settle
from tuque.core.model.job import JOB_BYTES, AddSpec
from tuque.core.model.stats import tenant_of
from tuque.core.node.node import Node
from tuque.core.tables.topics import Subscription
from tuque.core.topics import (
    Share,
    add_all,
    find_known,
    node_refusal,
    unheard_refusal,
)
from tuque.server.commands.by_id import oom_text
from tuque.server.config.patterns import Glob
from tuque.server.replies.core_words import core_words
from tuque.server.replies.producers import await_copies, ids_reply
from tuque.server.replies.redirects import HOME, address_of, refusal_text
from tuque.server.replies.tube_sync import take_lacking
from tuque.server.rights.tenant import of_topic
from tuque.server.state.client import Client
from tuque.server.state.state import Server
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
from tuque.wire.commands.arguments import ArgError, header_pairs, timeout_ms

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


def add(s: Server, c: Client, args: list[bytes]) -> None:
    """[T62] ADD topic body ms-timeout [options of ADDJOB] (T62.1)."""
    n = s.n
    wanted = addjob_options(args, 5, ADD)
    wait_ms = timeout_ms(args[4])
    if len(wanted.keys) > 0:
        raise ArgError(NO_KEYS)
    if wanted.with_new:
        raise ArgError(NO_WITHNEW)
    unheard = unheard_refusal(n)
    if unheard is not None:
        raise ArgError(core_words(unheard))
    shares = shares_of(n, args[2], wanted)
    n.work += ADD_WORK * len(shares)
    check_all(s, c, shares, args[3], wanted.key)
    if len(shares) == 0:
        n.topics.adds += 1
        n.topics.unheard += 1
        c.reply([])
        return
    serial = c.first_serial + len(c.holes)
    ids, waiting = add_all(n, shares, args[3], c.number, serial, wait_ms)
    if waiting is None:
        c.out.append(ids_reply(ids))
        return
    if n.policy is not None and len(tubes_of(n).to_sync) > 0:
        waiting.tubes = take_lacking(s, tubes_of(n))
        waiting.left += 1 if len(waiting.tubes) > 0 else 0
    await_copies(s, c)


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
    if most > 0 and n.used_bytes() + fresh * (len(body) + JOB_BYTES) > most and fresh > 1:
        raise ArgError(oom_text(n).removesuffix(b".") + NOTHING)  # T62.11
    over = None if c.user is None else of_topic(s, c.user, counts, len(body))
    if over is not None:
        raise ArgError(over)  # T62.8


def shares_of(n: Node, topic: bytes, wanted: AddSpec) -> list[Share]:
    """[T62] The queues that get a job, with their options (T62.4)."""
    words = header_pairs(wanted.headers)
    headers = {words[i]: words[i + 1] for i in range(0, len(words), 2)}
    of_queue = settle(n, wanted)
    of_queue.has_pri = False
    of_queue.has_utube = False
    found: list[Share] = []
    for one in n.topics.of_topic(topic):
        if len(one.filters) > 0 and not passes(one.filters, headers):
            continue
        q = n.queues.get(one.queue)
        found.append(Share(one, settle_tube(n, q, wanted) if isinstance(q, Tube) else of_queue))
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


def passes(filters: list[bytes], headers: dict[bytes, bytes]) -> bool:
    """[T60] Whether the headers pass the filters (T60.3)."""
    for i in range(0, len(filters), 2):
        value = headers.get(filters[i])
        if value is None:
            return False
        if not Glob(filters[i + 1].decode("latin-1")).matches(value.decode("latin-1")):
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
