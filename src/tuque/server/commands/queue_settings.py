"""QUEUE: settings of queues, and the removal of jobs that wait (SPEC T74, T75)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tuque.core.model.errors import PURGE_SHORT, Refusal
from tuque.core.purge import begin_purge, wait_key
from tuque.core.queue_settings import delete_queue, set_queue
from tuque.core.tables.topics import (
    EXPIRES_MAX_MS,
    LIVE,
    MAXLEN_MAX,
    OF_ALL,
    OF_DELAYED,
    OF_QUEUED,
    QUEUE_MAX,
    Purge,
    Setting,
)
from tuque.server.commands.queues import flat
from tuque.server.commands.results import block
from tuque.server.replies.errors import core_words, reply_help
from tuque.server.replies.redirects import address_of
from tuque.server.state.client import Client, Wanted
from tuque.server.state.server import Server
from tuque.wire.commands.add_options import SOME_SECONDS
from tuque.wire.commands.arguments import (
    ArgError,
    Misuse,
    in_range,
    not_this,
    refused,
    some_ms,
    twice,
    wrong,
    wrong_option,
)

NEEDS: Final[dict[bytes, bytes]] = {
    b"SET": b"a queue, and EXPIRES, AUTODELETE, TTL or MAXLEN, each with a value",
    b"SHOW": b"a queue",
    b"PURGE": b"a queue, and STATE with a value, or HERE",
    b"DELETE": b"a queue, and IFUNUSED or IFEMPTY",
}
WORDS: Final[dict[bytes, tuple[int, int]]] = {
    b"SET": (5, 11),
    b"SHOW": (3, 3),
    b"PURGE": (3, 6),
    b"DELETE": (3, 5),
}
TAKES: Final = b"QUEUE takes SET, SHOW, PURGE, DELETE or HELP"
BAD_NAME: Final = b"ERR the name of a queue with settings has 1 to %d bytes" % QUEUE_MAX
BAD_EXPIRES: Final = b"ERR EXPIRES must be a number of seconds from 1 to %d" % (
    EXPIRES_MAX_MS // 1000
)
EXPIRES_MIN_MS: Final = 1_000
IS_TUBE: Final = b"ERR '%s' is a tube: use TUBE TRUNCATE or TUBE DROP"
OPTIONS: Final = (b"EXPIRES", b"AUTODELETE", b"TTL", b"MAXLEN")
STATES: Final[dict[bytes, int]] = {
    b"waiting": OF_QUEUED,
    b"scheduled": OF_DELAYED,
    b"all": OF_ALL,
}


def cmd_queue(s: Server, c: Client, args: list[bytes]) -> None:
    """[T74] QUEUE SET | SHOW | PURGE | DELETE."""
    word = args[1].upper()
    if word == b"HELP" and len(args) == 2:
        reply_help(s, c, b"QUEUE")
        return
    if word not in NEEDS:
        raise wrong(TAKES)
    least, most = WORDS[word]
    if not least <= len(args) <= most:
        raise wrong(b"QUEUE %s takes %s" % (word, NEEDS[word]))
    if not 1 <= len(args[2]) <= QUEUE_MAX:
        raise ArgError(BAD_NAME)
    if word == b"SET":
        put(s, c, args)
    elif word == b"SHOW":
        show(s, c, args[2])
    elif word == b"PURGE":
        purge(s, c, args)
    else:
        delete(s, c, args)


def put(s: Server, c: Client, args: list[bytes]) -> None:
    """SET queue [EXPIRES sec] [AUTODELETE yes|no] [TTL sec] [MAXLEN n]: 1 if that changed something
    (T74.2).
    """
    wanted = Setting(args[2], 0, LIVE, s.n.node_id, 0, False)
    seen: dict[bytes, None] = {}
    for i in range(3, len(args), 2):
        word = args[i].upper()
        if word not in OPTIONS:
            raise wrong_option(b"QUEUE SET", args[i], OPTIONS)
        if i + 1 == len(args):
            raise Misuse(args[i])
        if word in seen:
            raise twice(word)
        seen[word] = None
        take_option(wanted, word, args[i + 1])
    tenant = b"" if c.user is None else c.user.tenant
    changed, why = set_queue(s.n, wanted, tenant)
    if why is not None:
        raise ArgError(core_words(why))
    c.reply(int(changed))


def take_option(wanted: Setting, word: bytes, value: bytes) -> None:
    """An option of SET, with its value."""
    if word == b"EXPIRES":
        wanted.expires_ms = some_ms(value)
        if not EXPIRES_MIN_MS <= wanted.expires_ms <= EXPIRES_MAX_MS:
            raise not_this(BAD_EXPIRES, value)
    elif word == b"TTL":
        wanted.ttl_ms = some_ms(value)
        if not 1 <= wanted.ttl_ms <= MAXLEN_MAX * 1000:
            raise refused(word, SOME_SECONDS, value)
    elif word == b"MAXLEN":
        wanted.maxlen = in_range(word, value, 1, MAXLEN_MAX)
    elif value.lower() not in (b"yes", b"no"):
        raise refused(word, b"yes or no", value)
    else:
        wanted.is_auto = value.lower() == b"yes"


def show(s: Server, c: Client, queue: bytes) -> None:
    """SHOW queue: names and values, or a null (T74.6)."""
    known = s.n.settings.known(queue)
    if known is None:
        c.reply(None)
        return
    idle_ms = s.n.now_ms - max(known.used_ms, known.since_ms)
    fields: dict[str, object] = {
        "queue": c.named(queue),
        "expires-ms": int(known.expires_ms),
        "autodelete": int(known.is_auto),
        "ttl-ms": int(known.ttl_ms),
        "maxlen": int(known.maxlen),
        "owner": address_of(s, known.owner, c),
        "idle-ms": int(max(0, idle_ms)),
    }
    c.reply(flat(fields))


def check_queue(s: Server, queue: bytes) -> None:
    """Raise ArgError if it is a tube."""
    q = s.n.queues.get(queue)
    if q is not None and q.policy is not None:
        raise ArgError(IS_TUBE % queue)


def delete(s: Server, c: Client, args: list[bytes]) -> None:
    """DELETE queue [IFUNUSED] [IFEMPTY]: 1 if it went (T75.6)."""
    words = [word.upper() for word in args[3:]]
    for i, word in enumerate(words):
        if word not in (b"IFUNUSED", b"IFEMPTY"):
            raise wrong_option(b"QUEUE DELETE", args[3 + i], (b"IFUNUSED", b"IFEMPTY"))
        if word in words[:i]:
            raise twice(word)
    queue = args[2]
    check_queue(s, queue)
    q = s.n.queues.get(queue)
    is_used = q is not None and len(q.waiters) > 0
    is_full = q is not None and q.length > 0
    if (is_used and b"IFUNUSED" in words) or (is_full and b"IFEMPTY" in words):
        c.reply(0)
        return
    was_there = q is not None or s.n.settings.known(queue) is not None
    if s.n.settings.known(queue) is None:
        _, why = set_queue(s.n, Setting(queue, 0, LIVE, s.n.node_id, 0, False))
        if why is not None:
            raise ArgError(core_words(why))
    known = s.n.settings.by_queue[queue]
    delete_queue(s.n, queue, known)
    c.reply(int(was_there))


def purge(s: Server, c: Client, args: list[bytes]) -> None:
    """PURGE queue [STATE waiting|scheduled|all] [HERE]: how many jobs went (T74.7)."""
    queue = args[2]
    words = args[3:]
    what: i64 = OF_QUEUED
    if len(words) > 0 and words[0].upper() == b"STATE":
        if len(words) == 1:
            raise Misuse(words[0])
        found = STATES.get(words[1].lower())
        if found is None:
            raise refused(b"STATE", b"waiting, scheduled or all", words[1])
        what = found
        words = words[2:]
    is_here = len(words) > 0 and words[0].upper() == b"HERE"
    rest = words[1:] if is_here else words
    if len(rest) > 0:
        raise wrong_option(b"QUEUE PURGE", rest[0], (b"STATE", b"HERE"))
    check_queue(s, queue)
    one = begin_purge(s.n, queue, what, is_here)
    wanted = Wanted([wait_key(one)], 1, True)
    wanted.purge = one
    block(s, c, wanted, 0)


def reply_purged(c: Client, one: Purge) -> bool:
    """[T74] Reply to PURGE once it is over; whether it is."""
    if not one.is_over:
        return False
    c.wanted = None
    if one.is_short:
        c.error(core_words(Refusal(PURGE_SHORT, (int(one.done), one.queue))))  # T74.10
    else:
        c.reply(int(one.done))
    return True
