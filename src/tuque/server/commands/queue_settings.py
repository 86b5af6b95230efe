"""QUEUE: settings of queues, and the removal of jobs that wait (SPEC T74, T75)."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tuque.core.queue_settings import delete_queue, purge, set_queue
from tuque.core.tables.topics import EXPIRES_MAX_MS, GONE, QUEUE_MAX, Setting
from tuque.server.commands.queues import flat
from tuque.server.replies.errors import core_words, reply_help
from tuque.server.replies.long_commands import begin
from tuque.server.replies.redirects import address_of
from tuque.server.state.client import Client, LongCommand
from tuque.server.state.server import Server
from tuque.wire.commands.arguments import (
    ArgError,
    Misuse,
    not_this,
    refused,
    some_ms,
    twice,
    wrong,
    wrong_option,
)

NEEDS: Final[dict[bytes, bytes]] = {
    b"SET": b"a queue, and EXPIRES or AUTODELETE",
    b"SHOW": b"a queue",
    b"PURGE": b"a queue",
    b"DELETE": b"a queue, and IFUNUSED or IFEMPTY",
}
WORDS: Final[dict[bytes, tuple[int, int]]] = {
    b"SET": (5, 7),
    b"SHOW": (3, 3),
    b"PURGE": (3, 3),
    b"DELETE": (3, 5),
}
TAKES: Final = b"QUEUE takes SET, SHOW, PURGE, DELETE or HELP"
BAD_NAME: Final = b"ERR the name of a queue with settings has 1 to %d bytes" % QUEUE_MAX
BAD_EXPIRES: Final = b"ERR EXPIRES must be a number of seconds from 1 to %d" % (
    EXPIRES_MAX_MS // 1000
)
EXPIRES_MIN_MS: Final = 1_000
IS_TUBE: Final = b"ERR '%s' is a tube: use TUBE TRUNCATE or TUBE DROP"
PIECE: Final = 100  # jobs between two looks at the share of a turn


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
        check_queue(s, args[2])
        begin(s, c, Purging(s, c, args[2]))
    else:
        delete(s, c, args)


def put(s: Server, c: Client, args: list[bytes]) -> None:
    """SET queue [EXPIRES sec] [AUTODELETE yes|no]: 1 if that changed something (T74.2)."""
    expires_ms: i64 = 0
    is_auto = False
    seen: dict[bytes, None] = {}
    for i in range(3, len(args), 2):
        word = args[i].upper()
        if word not in (b"EXPIRES", b"AUTODELETE"):
            raise wrong_option(b"QUEUE SET", args[i], (b"EXPIRES", b"AUTODELETE"))
        if i + 1 == len(args):
            raise Misuse(args[i])
        if word in seen:
            raise twice(word)
        seen[word] = None
        if word == b"EXPIRES":
            expires_ms = some_ms(args[i + 1])
            if not EXPIRES_MIN_MS <= expires_ms <= EXPIRES_MAX_MS:
                raise not_this(BAD_EXPIRES, args[i + 1])
        elif args[i + 1].lower() not in (b"yes", b"no"):
            raise refused(word, b"yes or no", args[i + 1])
        else:
            is_auto = args[i + 1].lower() == b"yes"
    tenant = b"" if c.user is None else c.user.tenant
    changed, why = set_queue(s.n, args[2], expires_ms, is_auto, tenant)
    if why is not None:
        raise ArgError(core_words(why))
    c.reply(int(changed))


def known_at(s: Server, queue: bytes) -> Setting | None:
    """The settings of the queue, unless it was deleted."""
    known = s.n.settings.by_queue.get(queue)
    return None if known is None or known.state == GONE else known


def show(s: Server, c: Client, queue: bytes) -> None:
    """SHOW queue: names and values, or a null (T74.6)."""
    known = known_at(s, queue)
    if known is None:
        c.reply(None)
        return
    idle_ms = s.n.now_ms - max(known.used_ms, known.since_ms)
    fields: dict[str, object] = {
        "queue": c.named(queue),
        "expires-ms": int(known.expires_ms),
        "autodelete": int(known.is_auto),
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
    was_there = q is not None or known_at(s, queue) is not None
    if known_at(s, queue) is None:
        _, why = set_queue(s.n, queue, EXPIRES_MIN_MS, False)
        if why is not None:
            raise ArgError(core_words(why))
    known = s.n.settings.by_queue[queue]
    delete_queue(s.n, queue, known)
    c.reply(int(was_there))


@final
class Purging(LongCommand):
    """[T74] PURGE: the jobs that are queued here when it begins, in slices (T74.7)."""

    def __init__(self, s: Server, c: Client, queue: bytes) -> None:
        super().__init__(c)
        self.s = s
        self.client = c
        self.queue = queue
        q = s.n.queues.get(queue)
        self.left: i64 = 0 if q is None else q.length
        self.done: i64 = 0

    def step(self, room: i64) -> bool:
        """Remove the next jobs."""
        n = self.s.n
        until = n.work + room
        while self.left > 0 and n.work < until:
            went = purge(n, self.queue, min(PIECE, self.left))
            n.work += went
            self.done += went
            self.left -= went
            if went == 0:
                return True
        return self.left == 0

    def tell(self) -> None:
        """Reply with the number of jobs."""
        self.client.reply(int(self.done))
