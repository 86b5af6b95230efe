"""TOPIC: queues subscribe to topics, and producers add to all of them at once (SPEC T61, T62)."""

from __future__ import annotations

from typing import Final

from tuque.core.tables.topics import (
    FILTERS_MAX,
    GLOB_MAX,
    NAME_MAX,
    QUEUE_MAX,
    TOPIC_MAX,
    Subscription,
)
from tuque.core.topics import subscribe, unsubscribe
from tuque.server.commands.by_id import oom_text
from tuque.server.config.patterns import Glob
from tuque.server.replies.core_words import core_words
from tuque.server.replies.help import reply_help
from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.server.topics.adding import add, is_shown
from tuque.wire.commands.arguments import (
    ArgError,
    is_header,
    ranged,
    twice,
    wrong,
    wrong_option,
)

NEEDS: Final[dict[bytes, bytes]] = {
    b"SUBSCRIBE": b"a topic, a queue, and FILTER with up to %d pairs of a header's name and a "
    b"pattern" % FILTERS_MAX,
    b"UNSUBSCRIBE": b"a topic and a queue",
    b"LIST": b"TOPIC, CURSOR and COUNT, each with a value",
    b"ADD": b"a topic, a body, a timeout in ms, and options of ADDJOB",
}
WORDS: Final[dict[bytes, tuple[int, int]]] = {
    b"SUBSCRIBE": (4, 5 + 2 * FILTERS_MAX),
    b"UNSUBSCRIBE": (4, 4),
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
BAD_COUNT: Final = b"ERR COUNT must be a number from 1 to 1000"
BAD_CURSOR: Final = b"ERR the cursor must be a number that a page replied with"
UNFIT: Final = b"ERR the pattern '%s' fits nothing: write ranges as in [a-c]"
TAKES: Final = b"TOPIC takes SUBSCRIBE, UNSUBSCRIBE, LIST, ADD or HELP"


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
    if word == b"UNSUBSCRIBE":
        c.reply(int(unsubscribe(s.n, args[2], args[3])))
        return
    check_memory(s)
    tenant = b"" if c.user is None else c.user.tenant
    changed, refused = subscribe(s.n, args[2], args[3], filters_of(args[4:]), tenant)
    if refused is not None:
        raise ArgError(core_words(refused))
    c.reply(int(changed))


def check_memory(s: Server) -> None:
    """Refuse what stays, when memory is short (T15.6)."""
    n = s.n
    if n.limits.memory_bytes > 0 and n.used_bytes() * 4 > n.limits.memory_bytes * 3:
        raise ArgError(oom_text(n))


def filters_of(words: list[bytes]) -> list[bytes]:
    """[T60] Names and patterns of FILTER (T60.3)."""
    if len(words) == 0:
        return []
    if words[0].upper() != b"FILTER":
        raise wrong_option(b"TOPIC SUBSCRIBE", words[0], (b"FILTER",))
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
        [c.named(one.topic), c.named(one.queue), list(one.filters), int(one.jobs)]
        for one in found[:count]
    ]
    after = found[count - 1].serial if len(found) > count else 0
    c.reply([b"%d" % after, rows])


def serial_of(one: Subscription) -> int:
    """The order of a list: later subscriptions come later."""
    return int(one.serial)
