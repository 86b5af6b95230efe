"""WORKER: workers announce themselves, are listed, and get orders (SPEC O11-O13)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.life.start import STANDING_NAMES, standing_of
from tuque.core.model.timers import REPLY_BYTES
from tuque.core.model.work import attempt_of
from tuque.core.node.node import Node
from tuque.server.commands.dead import shown, task_of
from tuque.server.config.patterns import MOST, Glob
from tuque.server.replies.errors import reply_help
from tuque.server.replies.long_commands import begin
from tuque.server.state.client import Chore, Client
from tuque.server.state.server import Server
from tuque.server.state.workers import (
    NO_ORDER,
    ORDER_NAMES,
    QUIET,
    STOP,
    WORKERS_MAX,
    Hand,
    Said,
    WorkerRegistry,
)
from tuque.wire.commands.arguments import (
    NOT_INT,
    ArgError,
    Misuse,
    at_least,
    ranged,
    worker_name,
)
from tuque.wire.proto.resp import bulk_head, put_bulk, put_value

QUEUES_MAX: Final = 100
QUEUES_BYTES: Final = 8_192  # of their names together
TEXT_MAX: Final = 255  # bytes of HOST, VERSION and APP
COUNT_MAX: Final = 1_000
RUNS_SHOWN: Final = 100  # of one worker
NUMBER_MAX: Final = 1 << 53
LONG_QUEUES: Final = b"ERR the queues of a worker have at most %d bytes" % QUEUES_BYTES
LONG_TEXT: Final = b"ERR HOST, VERSION and APP take at most 255 bytes"
MANY_QUEUES: Final = b"ERR a worker names at most 100 queues"
MANY_WORKERS: Final = b"ERR too many workers: at most %d" % WORKERS_MAX
WORKERS_PART: Final = 16  # part of `maxmemory` for what workers say
LARGE_WORKERS: Final = (
    b"OOM workers may use a sixteenth of maxmemory, and those of a tenant a quarter of what others "
    b"leave of that and of 10000: run fewer, with fewer queues"
)
BAD_NUMBER: Final = b"ERR PID, SLOTS, BUSY, DONE, FAILED and AGE take a number from 0 up"
BAD_COUNT: Final = b"ERR COUNT must be a number from 1 to 1000"
WORDS_OF_UNIT: Final = 4
LONG_GLOB: Final = b"ERR a pattern has at most %d characters" % MOST
NOWORKER: Final = b"NOWORKER no worker of that name is heard here"


def cmd_worker(s: Server, c: Client, args: list[bytes]) -> None:
    """[O11] WORKER HERE|BYE|LIST|DEPLOYS|QUIET|STOP ..."""
    word = args[1].upper()
    count = len(args)
    if word == b"HERE" and count > 2:
        worker_here(s, c, args)
    elif word == b"BYE" and count == 3:
        hand = s.crew.by_name.get(args[2])
        if hand is not None:
            s.crew.drop(hand)  # O11.3
        c.ok()
    elif word == b"LIST":
        worker_list(s, c, args)
    elif word == b"DEPLOYS" and count == 2:
        worker_deploys(s, c)
    elif word in (b"QUIET", b"STOP") and count == 3:
        worker_order(s, c, args[2], QUIET if word == b"QUIET" else STOP)
    elif word == b"HELP" and count == 2:
        reply_help(s, c, b"WORKER")
    else:
        raise Misuse(args[1])


def worker_here(s: Server, c: Client, args: list[bytes]) -> None:
    """[O11] WORKER HERE: a worker announces itself, or says that it lives (O11.1)."""
    name = worker_name(args[2])
    words = what_it_says(args)
    n, workers = s.n, s.crew
    n.work += 1 + len(args) // WORDS_OF_UNIT
    limit = n.limits.memory_bytes
    if limit > 0 and not workers.has_room(name, words, limit // WORKERS_PART):
        raise ArgError(LARGE_WORKERS)  # O11.4
    hand = workers.enter(name, n.now_ms)
    if hand is None:
        n.work += len(workers.by_name) // 10
        raise ArgError(MANY_WORKERS)  # O11.4
    if hand.is_lost(n.now_ms):
        hand.since_ms = n.now_ms
        hand.order = NO_ORDER  # another process, under the same name
    if len(words.app) > 0 and words.app != hand.said.app:  # O12.6
        n.work += 1 + len(workers.deploys)
        workers.deployed(words, n.now_ms)
    hand.said = words
    hand.heard_ms = n.now_ms
    hand.client = c.number
    workers.weigh(hand)
    c.reply(ORDER_NAMES[hand.order])


def what_it_says(args: list[bytes]) -> Said:
    """The options of WORKER HERE; QUEUES ends them."""
    said = Said()
    i: i64 = 3
    while i < len(args):
        word = args[i].upper()
        if word == b"QUIET":
            said.is_quiet = True
            i += 1
            continue
        if i + 1 == len(args):
            raise Misuse(args[i])
        value = args[i + 1]
        if word == b"QUEUES":
            said.queues = args[i + 1 :]
            if len(said.queues) > QUEUES_MAX:
                raise ArgError(MANY_QUEUES)
            if len(b"".join(said.queues)) > QUEUES_BYTES:
                raise ArgError(LONG_QUEUES)
            return said
        if word == b"HOST" or word == b"VERSION" or word == b"APP":
            if len(value) > TEXT_MAX:
                raise ArgError(LONG_TEXT)
            if word == b"HOST":
                said.host = value
            elif word == b"VERSION":
                said.version = value
            else:
                said.app = value
        else:
            take_number(said, word, value)
        i += 2
    return said


def take_number(said: Said, word: bytes, value: bytes) -> None:
    """One option of WORKER HERE whose value is a number."""
    if word not in (b"PID", b"SLOTS", b"BUSY", b"DONE", b"FAILED", b"AGE"):
        raise Misuse(word)
    number = ranged(value, 0, NUMBER_MAX, BAD_NUMBER)
    if word == b"PID":
        said.pid = number
    elif word == b"SLOTS":
        said.slots = number
    elif word == b"BUSY":
        said.busy = number
    elif word == b"DONE":
        said.done = number
    elif word == b"FAILED":
        said.failed = number
    else:
        said.age_ms = number


def worker_order(s: Server, c: Client, name: bytes, order: i64) -> None:
    """[O13] WORKER QUIET|STOP name (O13.1)."""
    hand = s.crew.by_name.get(name)
    if hand is None or hand.is_lost(s.n.now_ms):
        raise ArgError(NOWORKER)
    if order > hand.order:
        hand.order = order
    its = s.by_number.get(int(hand.client))
    if its is not None and its.resp3 and not its.is_closing:
        its.out.append(b">3\r\n$12\r\nworker-order\r\n")
        put_bulk(its.out, its.named(hand.name))
        put_bulk(its.out, ORDER_NAMES[hand.order])
        s.touch(its)
    c.ok()


@final
class Roll(Chore):
    """One WORKER LIST and its rows so far."""

    def __init__(
        self, s: Server, c: Client, hands: list[Hand], most: i64, glob: Glob | None
    ) -> None:
        super().__init__(c)
        self.s = s
        self.client = c
        self.hands = hands  # in the order of their serials
        self.most = most
        self.glob = glob
        self.at: i64 = 0
        self.found: i64 = 0
        self.cursor: i64 = 0
        self.out: list[bytes] = []

    def step(self, room: i64) -> bool:
        """[O12] Go on with the next workers."""
        n = self.s.n
        until = n.work + room
        while self.at < len(self.hands):
            if self.found >= self.most or self.bytes_used > REPLY_BYTES:
                self.cursor = self.hands[self.at - 1].serial
                return True
            if n.work >= until:
                return False
            n.work += 1
            hand = self.hands[self.at]
            self.at += 1
            if self.is_meant(n, hand) and is_shown(self.client, hand):
                self.found += 1
                self.add(hand)
        return True

    def is_meant(self, n: Node, hand: Hand) -> bool:
        """[O12] Whether its name matches (O12.3)."""
        if self.glob is None:
            return True
        found = self.glob.matches(shown(self.client.named(hand.name)))
        n.work += self.glob.units()
        return found

    def add(self, hand: Hand) -> None:
        """One worker, with its runs."""
        n = self.s.n
        is_lost = hand.is_lost(n.now_ms)
        runs: list[object] = []
        for id in list(hand.ids):
            if len(runs) >= RUNS_SHOWN:
                break
            n.work += 1
            one = standing_of(n, id, hand.name, is_lost)
            if one is None or not self.client.sees(one.job.queue):
                continue
            due: object = None if one.due_ms == 0 else max(0, int(one.due_ms - n.now_ms))
            runs.append(
                [
                    one.job.id,
                    self.client.named(one.job.queue),
                    task_of(one.life.headers),
                    int(attempt_of(one.life.run)),
                    max(0, int(n.now_ms - one.life.since_ms)),
                    STANDING_NAMES[one.state],
                    due,
                ]
            )
        fields = fields_of(self.client, hand, n.now_ms, is_lost)
        fields.append(b"runs")
        fields.append(runs)
        put_value(self.out, fields, self.client.resp3)
        self.bytes_used += 600 + hand.said.size() + 300 * len(runs)

    def tell(self) -> None:
        """Reply with the next cursor (0: done) and the rows."""
        cursor = b"%d" % self.cursor
        out = self.client.out
        out.append(b"*2\r\n%s%s\r\n*%d\r\n" % (bulk_head(len(cursor)), cursor, self.found))
        out.append(b"".join(self.out))


def is_shown(c: Client, hand: Hand) -> bool:
    """[N2] Whether the client's user may see the worker: one of its queues, if it names any."""
    if c.is_tenant() and not c.is_own(hand.name):
        return False
    if len(hand.said.queues) == 0 or c.sees_all():
        return True
    return any(c.sees(queue) for queue in hand.said.queues)


def fields_of(c: Client, hand: Hand, now_ms: i64, is_lost: bool) -> list[object]:
    """[O12] Names and values of a worker (O12.1)."""
    said = hand.said
    queues: list[object] = []
    for queue in said.queues:
        if c.sees(queue):
            queues.append(c.named(queue))
    state = b"lost" if is_lost else (b"quiet" if said.is_quiet else b"alive")
    return [
        b"name",
        c.named(hand.name),
        b"host",
        said.host,
        b"pid",
        int(said.pid),
        b"version",
        said.version,
        b"app",
        said.app,
        b"queues",
        queues,
        b"slots",
        int(said.slots),
        b"busy",
        int(said.busy),
        b"done",
        int(said.done),
        b"failed",
        int(said.failed),
        b"since-ms",
        int(hand.since_ms),
        b"heard-ms",
        max(0, int(now_ms - hand.heard_ms)),
        b"state",
        state,
        b"order",
        ORDER_NAMES[hand.order],
    ]


def worker_list(s: Server, c: Client, args: list[bytes]) -> None:
    """[O12] WORKER LIST [cursor] [COUNT n] [MATCH glob] (O12.1, O12.3)."""
    cursor: i64 = 0
    most: i64 = 100
    glob: Glob | None = None
    i: i64 = 2
    if i < len(args) and args[i].isdigit():
        cursor = at_least(args[i], 0, NOT_INT)
        i += 1
    while i < len(args):
        word = args[i].upper()
        if i + 1 == len(args):
            raise Misuse(args[i])
        if word == b"COUNT":
            most = ranged(args[i + 1], 1, COUNT_MAX, BAD_COUNT)
        elif word == b"MATCH":
            text = shown(args[i + 1])
            if len(text) > MOST:
                raise ArgError(LONG_GLOB)
            glob = Glob(text)
        else:
            raise Misuse(args[i])
        i += 2
    s.n.work += len(s.crew.by_name) // 10
    begin(s, c, Roll(s, c, hands_after(s.crew, cursor), most, glob))


def worker_deploys(s: Server, c: Client) -> None:
    """[O12] WORKER DEPLOYS (O12.6); of queues that the client's user may see."""
    rows: list[object] = []
    for one in s.crew.deploys:
        s.n.work += 1
        queues: list[object] = []
        for queue in one.queues:
            if c.sees(queue):
                queues.append(c.named(queue))
        if len(queues) > 0 or (len(one.queues) == 0 and not c.is_tenant()):
            rows.append([int(one.at_ms), one.app, queues])
    put_value(c.out, rows, c.resp3)


def hands_after(crew: WorkerRegistry, serial: i64) -> list[Hand]:
    """The workers with a later serial, in order."""
    found: list[Hand] = []
    for hand in crew.by_name.values():
        if hand.serial > serial:
            found.append(hand)
    return found
