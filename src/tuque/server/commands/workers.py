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
from tuque.server.state.client import Client, LongCommand
from tuque.server.state.server import Server
from tuque.server.state.workers import (
    NO_ORDER,
    ORDER_NAMES,
    QUIET,
    STOP,
    WORKERS_MAX,
    Reported,
    WorkerInfo,
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
        worker = s.workers.by_name.get(args[2])
        if worker is not None:
            s.workers.drop(worker)  # O11.3
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
    n, workers = s.n, s.workers
    n.work += 1 + len(args) // WORDS_OF_UNIT
    limit = n.limits.memory_bytes
    if limit > 0 and not workers.has_room(name, words, limit // WORKERS_PART):
        raise ArgError(LARGE_WORKERS)  # O11.4
    worker = workers.enter(name, n.now_ms)
    if worker is None:
        n.work += len(workers.by_name) // 10
        raise ArgError(MANY_WORKERS)  # O11.4
    if worker.is_lost(n.now_ms):
        worker.since_ms = n.now_ms
        worker.order = NO_ORDER  # another process, under the same name
    if len(words.app) > 0 and words.app != worker.reported.app:  # O12.6
        n.work += 1 + len(workers.deploys)
        workers.deployed(words, n.now_ms)
    worker.reported = words
    worker.heard_ms = n.now_ms
    worker.client = c.number
    workers.weigh(worker)
    c.reply(ORDER_NAMES[worker.order])


def what_it_says(args: list[bytes]) -> Reported:
    """The options of WORKER HERE; QUEUES ends them."""
    reported = Reported()
    i: i64 = 3
    while i < len(args):
        word = args[i].upper()
        if word == b"QUIET":
            reported.is_quiet = True
            i += 1
            continue
        if i + 1 == len(args):
            raise Misuse(args[i])
        value = args[i + 1]
        if word == b"QUEUES":
            reported.queues = args[i + 1 :]
            if len(reported.queues) > QUEUES_MAX:
                raise ArgError(MANY_QUEUES)
            if len(b"".join(reported.queues)) > QUEUES_BYTES:
                raise ArgError(LONG_QUEUES)
            return reported
        if word == b"HOST" or word == b"VERSION" or word == b"APP":
            if len(value) > TEXT_MAX:
                raise ArgError(LONG_TEXT)
            if word == b"HOST":
                reported.host = value
            elif word == b"VERSION":
                reported.version = value
            else:
                reported.app = value
        else:
            take_number(reported, word, value)
        i += 2
    return reported


def take_number(reported: Reported, word: bytes, value: bytes) -> None:
    """One option of WORKER HERE whose value is a number."""
    if word not in (b"PID", b"SLOTS", b"BUSY", b"DONE", b"FAILED", b"AGE"):
        raise Misuse(word)
    number = ranged(value, 0, NUMBER_MAX, BAD_NUMBER)
    if word == b"PID":
        reported.pid = number
    elif word == b"SLOTS":
        reported.slots = number
    elif word == b"BUSY":
        reported.busy = number
    elif word == b"DONE":
        reported.done = number
    elif word == b"FAILED":
        reported.failed = number
    else:
        reported.age_ms = number


def worker_order(s: Server, c: Client, name: bytes, order: i64) -> None:
    """[O13] WORKER QUIET|STOP name (O13.1)."""
    worker = s.workers.by_name.get(name)
    if worker is None or worker.is_lost(s.n.now_ms):
        raise ArgError(NOWORKER)
    if order > worker.order:
        worker.order = order
    its = s.by_number.get(int(worker.client))
    if its is not None and its.resp3 and not its.is_closing:
        its.out.append(b">3\r\n$12\r\nworker-order\r\n")
        put_bulk(its.out, its.named(worker.name))
        put_bulk(its.out, ORDER_NAMES[worker.order])
        s.touch(its)
    c.ok()


@final
class Roll(LongCommand):
    """One WORKER LIST and its rows so far."""

    def __init__(
        self, s: Server, c: Client, hands: list[WorkerInfo], most: i64, glob: Glob | None
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
            worker = self.hands[self.at]
            self.at += 1
            if self.is_meant(n, worker) and is_shown(self.client, worker):
                self.found += 1
                self.add(worker)
        return True

    def is_meant(self, n: Node, worker: WorkerInfo) -> bool:
        """[O12] Whether its name matches (O12.3)."""
        if self.glob is None:
            return True
        found = self.glob.matches(shown(self.client.named(worker.name)))
        n.work += self.glob.units()
        return found

    def add(self, worker: WorkerInfo) -> None:
        """One worker, with its runs."""
        n = self.s.n
        is_lost = worker.is_lost(n.now_ms)
        runs: list[object] = []
        for id in list(worker.ids):
            if len(runs) >= RUNS_SHOWN:
                break
            n.work += 1
            one = standing_of(n, id, worker.name, is_lost)
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
        fields = fields_of(self.client, worker, n.now_ms, is_lost)
        fields.append(b"runs")
        fields.append(runs)
        put_value(self.out, fields, self.client.resp3)
        self.bytes_used += 600 + worker.reported.size() + 300 * len(runs)

    def tell(self) -> None:
        """Reply with the next cursor (0: done) and the rows."""
        cursor = b"%d" % self.cursor
        out = self.client.out
        out.append(b"*2\r\n%s%s\r\n*%d\r\n" % (bulk_head(len(cursor)), cursor, self.found))
        out.append(b"".join(self.out))


def is_shown(c: Client, worker: WorkerInfo) -> bool:
    """[N2] Whether the client's user may see the worker: one of its queues, if it names any."""
    if c.is_tenant() and not c.is_own(worker.name):
        return False
    if len(worker.reported.queues) == 0 or c.sees_all():
        return True
    return any(c.sees(queue) for queue in worker.reported.queues)


def fields_of(c: Client, worker: WorkerInfo, now_ms: i64, is_lost: bool) -> list[object]:
    """[O12] Names and values of a worker (O12.1)."""
    reported = worker.reported
    queues: list[object] = []
    for queue in reported.queues:
        if c.sees(queue):
            queues.append(c.named(queue))
    state = b"lost" if is_lost else (b"quiet" if reported.is_quiet else b"alive")
    return [
        b"name",
        c.named(worker.name),
        b"host",
        reported.host,
        b"pid",
        int(reported.pid),
        b"version",
        reported.version,
        b"app",
        reported.app,
        b"queues",
        queues,
        b"slots",
        int(reported.slots),
        b"busy",
        int(reported.busy),
        b"done",
        int(reported.done),
        b"failed",
        int(reported.failed),
        b"since-ms",
        int(worker.since_ms),
        b"heard-ms",
        max(0, int(now_ms - worker.heard_ms)),
        b"state",
        state,
        b"order",
        ORDER_NAMES[worker.order],
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
    s.n.work += len(s.workers.by_name) // 10
    begin(s, c, Roll(s, c, hands_after(s.workers, cursor), most, glob))


def worker_deploys(s: Server, c: Client) -> None:
    """[O12] WORKER DEPLOYS (O12.6); of queues that the client's user may see."""
    rows: list[object] = []
    for one in s.workers.deploys:
        s.n.work += 1
        queues: list[object] = []
        for queue in one.queues:
            if c.sees(queue):
                queues.append(c.named(queue))
        if len(queues) > 0 or (len(one.queues) == 0 and not c.is_tenant()):
            rows.append([int(one.at_ms), one.app, queues])
    put_value(c.out, rows, c.resp3)


def hands_after(workers: WorkerRegistry, serial: i64) -> list[WorkerInfo]:
    """The workers with a later serial, in order."""
    found: list[WorkerInfo] = []
    for worker in workers.by_name.values():
        if worker.serial > serial:
            found.append(worker)
    return found
