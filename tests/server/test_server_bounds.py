"""The whole command table with its largest arguments: no turn does more than the table says (L2).

Two things are counted in each turn: the units of work that the node counts itself, and the lines of
Python that ran, so that a command that forgets to count is found, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from raw_resp import encode
from tuque.core.copies.add import on_addjob, settle
from tuque.core.life.runs import on_fail
from tuque.core.life.start import on_start
from tuque.core.model.job import PLAIN
from tuque.core.model.timers import PIECE, TURN_WORK
from tuque.core.queues.procedures import get_queue
from tuque.core.staged.stage import on_stage
from tuque.core.tables.staged import Staged
from tuque.core.tables.topics import Subscription
from tuque.tubes import groups
from tuque.tubes.entries.group import (
    DONE,
    ChildEntry,
    GroupEntry,
    end_child,
)
from tuque.tubes.model.options import PutSpec
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks import operations
from tuque.wire.commands.bound import WHOLE
from tuque.wire.commands.rows import BOUNDS, COMMAND_ROWS, LIGHT_WORK
from world import World
from world_costs import costs

JOBS = 30_000  # many times what a turn may do; lines of Python are counted slowly
STAGED = 20_000  # jobs; PUBLISH needs some twenty turns for them
TASKS = 10_000
LINES_PER_UNIT = 160  # of Python; the longest unit is an ack of a job
LINES_OF_A_TURN = 20_000
ELEMENT = 2_000  # bytes of one more
Words = list[Any]


class Full:
    """A node with many jobs, queues and tasks, and one client."""

    def __init__(self) -> None:
        self.world = World(journal="off", enable_debug_command="yes", maxclients=2000)
        n = self.world.n
        spec = settle(n, PLAIN)
        body = b"x" * 10
        self.ids = [on_addjob(n, b"q", body, spec, -1, 0, 0).id for _ in range(JOBS)]
        for i in range(2_000):
            on_addjob(n, b"queue-%d" % i, body, spec, -1, 0, 0)
        self.wire = self.world.wire()
        self.epoch = 0
        for name in (b"t", b"u", b"v"):
            self.do(("TUBE", "CREATE", name, "fifottl"))
            t = tubes_of(n)
            for _ in range(TASKS):
                operations.put(n, t, t.by_name[name], body, 0, PutSpec(), 0, 0)
        self.made: set[str] = set()

    def is_first(self, what: str) -> bool:
        """Whether that is made now: it lasts."""
        is_new = what not in self.made
        self.made.add(what)
        return is_new

    def do(self, *commands: tuple[Any, ...]) -> None:
        """Commands that nobody measures."""
        self.wire.say(*[encode(*words) for words in commands])

    def run(self, *words: Any) -> tuple[Any, list[tuple[int, int]], int]:
        """The reply, work and lines of each turn, and the bytes of the reply."""
        figures = self.world.server.figures
        before = figures.out_bytes
        with costs(self.world) as spent:
            self.wire.send(*words)
            while not (found := self.wire.values()):
                self.world.until(lambda: self.wire.unread)
        return found[0], spent, figures.out_bytes - before


def filled() -> Iterator[Full]:
    """A node with much of everything, until the end of the module."""
    made = Full()
    yield made
    made.world.check()


@pytest.fixture(scope="module")
def full() -> Iterator[Full]:
    yield from filled()


@pytest.fixture(scope="module")
def piped() -> Iterator[Full]:
    """Another one, for pipelines: commands that are carried out use up what is there."""
    yield from filled()


def stage_all(full: Full, attempts: int) -> list[str]:
    """Jobs, staged in so many attempts; their names."""
    job = Staged(b"published", b"x", b"", 60_000, -1, 30, 0, 3600, 0)
    names = [b"a%d" % i for i in range(attempts)]
    for i in range(STAGED):
        on_stage(full.world.n, b"txn", names[i % attempts], 60_000, job)
    return [name.decode() for name in names]


def pairs(ids: list[bytes]) -> Words:
    """Ids, each with no run."""
    return [word for id in ids for word in (id, "-")]


def bury(full: Full) -> bytes:
    """Some thousand dead letters in `q.dead`; the id of one."""
    n = full.world.n
    for id in full.ids[17_500:20_500]:
        if id in n.jobs and on_start(n, id, b"w", 1) is None:
            run = n.life.by_id[id].run
            on_fail(n, id, run, -1, b"%d" % (run % 2_000), b"", True)
    letters = n.life.letters[b"q.dead"]
    assert letters.count > 1_000
    return bytes(letters.order.first_key())


def tried_often(full: Full) -> bytes:
    """The id of a job with as much as is kept of its attempts."""
    n = full.world.n
    id = bytes(full.world.run("ADDJOB", "tried", "b", 0, "KEEP", 60, "BODY", "ATTEMPTS", 99))
    for _ in range(16):
        assert on_start(n, id, b"w" * 255, 1) is None
        on_fail(n, id, n.life.by_id[id].run, 0, b"r" * 2_048, b"d" * 65_536, False)
    return id


def announce_all(full: Full) -> None:
    """Some thousand workers, some of them with as many runs as a node remembers."""
    n, workers = full.world.n, full.world.server.workers
    for i in range(3_000):
        hand = workers.enter(b"w%d" % i, n.now_ms)
        assert hand is not None
    for i in range(15):
        for id in full.ids[20_500 + 600 * i : 21_100 + 600 * i]:
            if id in n.jobs and on_start(n, id, b"w%d" % i, 1) is None:
                workers.note(n, b"w%d" % i, [id])


def deploy_all(full: Full) -> None:
    """As many deploys as a node keeps, of many queues."""
    for i in range(200):
        name = str(i % 7) * 75
        full.do(("WORKER", "HERE", f"d{i}", "APP", f"{i}", "QUEUES", *[name] * 100))


def schedule_all(full: Full) -> None:
    """200 schedules with long names."""
    full.do(("TUBE", "CREATE", "k", "tasks"))
    for i in range(200):
        full.do(("SCHEDULE", "ADD", "k", f"n{i}" * 20, "EVERY", 9, "UNIQUE", "x" * 255, "body"))
    full.do(("SCHEDULE", "ADD", "k", "n0", "EVERY", 9, "body"))


def value_all(full: Full, kind: str) -> None:
    """Names with long values, or a set with many parts."""
    full.do(("TUBE", "CREATE", "k", "tasks"))
    for i in range(2_100 if kind == "PARTS" else 500):
        if kind == "PARTS":
            full.do(("VALUE", "TALLY", "k", "set", i, "x" * 100, "SIZE", 0))
        else:
            full.do(("VALUE", "SET", "k", f"{i}-" * 60, "x" * 10_000, "END"))


def names_of_values() -> list[str]:
    """As many names as a call takes."""
    return [f"{i}-" * 60 for i in range(500)]


def topic_all(full: Full) -> None:
    """As many subscriptions as a node keeps, with long names and filters."""
    if not full.is_first("topics"):
        return
    n = full.world.n
    for i in range(50_000):
        name, filters = b"%d-" % i * 80, [b"a", b"b*" * 60]
        keys = [b"x.*.%d.#" % i] if i % 2 else []
        made = Subscription(b"t%d" % (i // 4_096), name, filters, 1, n.node_id, False, keys)
        n.topics.put(made)


def wait_all(full: Full) -> None:
    """Tasks wait for 3,000 long keys of each kind."""
    if not full.is_first("keys"):
        return
    full.do(("TUBE", "CREATE", "k", "tasks"))
    for i in range(3_000):
        key = f"k{i}" * 36
        full.do(
            ("ADDJOB", "k", "b", 0, "LIMIT", key, 1),
            ("ADDJOB", "k", "b", 0, "LIMIT", key, 1),
            ("ADDJOB", "k", "b", 0, "RATE", key, "1/h"),
            ("ADDJOB", "k", "b", 0, "GROUP", key),
        )


def group_all(full: Full) -> str:
    """A group of 1,000 children with results, and 200 others; its id."""
    full.run("TUBE", "CREATE", "g", "tasks")
    n, t = full.world.n, tubes_of(full.world.n)
    tube = t.by_name[b"g"]
    for _ in range(200):
        plan = GroupEntry()
        plan.size = 10_000
        last = groups.create(n, t, tube, plan, b"", 0, 1_000)
    for i in range(1_000):
        groups.add(n, t, tube, last, i, full.ids[20_000 + i])
    for number in list(groups.family_of(tube, last.number).by_index.values()):
        task = tube.tasks[number]
        assert isinstance(task.entry, ChildEntry)
        child = task.entry.copy()
        end_child(child, DONE, b"done", b"")
        child.result = b"x" * 4_000
        groups.note_end(n, t, tube, task, child)
    return last.id.decode()


def many_queues(full: Full) -> None:
    """20,000 of them, in no order."""
    for i in range(20_000):
        get_queue(full.world.n, b"many-%d" % (i * 7_919 % 20_000))


LARGEST: dict[str, Callable[[Full], Words]] = {
    "ADDJOB": lambda f: ["ADDJOB", "q", "b", 0, *["RETRY", 5] * 30],
    "GETJOB": lambda f: [
        "GETJOB",
        "NOHANG",
        "COUNT",
        JOBS,
        "START",
        "FROM",
        *[f"queue-{i}" for i in range(1_017)],
        "q",
    ],
    "NACK": lambda f: ["NACK", *f.ids],
    "ENQUEUE": lambda f: ["ENQUEUE", *f.ids],
    "DEQUEUE": lambda f: ["DEQUEUE", *f.ids[:5_000]],
    "ACKJOB": lambda f: ["ACKJOB", *f.ids[:5_000]],
    "FASTACK": lambda f: ["FASTACK", *f.ids[5_000:7_500]],
    "DELJOB": lambda f: ["DELJOB", *f.ids[7_500:10_000]],
    "WORKING": lambda f: ["WORKING", f.ids[-1]],
    "START": lambda f: ["START", "WORKER", "w" * 255, *f.ids[15_000:16_000]],
    "PROGRESS": lambda f: ["PROGRESS", f.ids[15_000], "1.1.000000", "x" * 4096],
    "RELEASE": lambda f: ["RELEASE", "DELAY", 1, *pairs(f.ids[15_000:15_500])],
    "FAIL": lambda f: [
        "FAIL",
        f.ids[15_000],
        "1.1.000000",
        "REASON",
        "x" * 2048,
        "DETAIL",
        "x" * 70_000,
    ],
    "DONE": lambda f: ["DONE", *pairs(f.ids[16_000:16_501])],
    "CANCEL": lambda f: ["CANCEL", "REASON", "x" * 2048, *f.ids[15_500:16_500]],
    "RESULT": lambda f: ["RESULT", tried_often(f), "WITHBODY", "WITHATTEMPTS"],
    "WAITJOB": lambda f: [
        "WAITJOB",
        1,
        *[b"D-00000000-%024d-05a1" % i for i in range(499)],
        "COUNT",
        499,
    ],
    "UPDATEJOB": lambda f: ["UPDATEJOB", f.ids[17_000], "BODY", "x" * 100_000, *["TTL", 9] * 78],
    "DEAD LIST": lambda f: [bury(f), "DEAD", "LIST", "q.dead", 0, "COUNT", 1_000][1:],
    "DEAD SHOW": lambda f: ["DEAD", "SHOW", bury(f)],
    "DEAD STAT": lambda f: ["DEAD", "STAT", "q.dead"],
    "DEAD REPLAY": lambda f: ["DEAD", "REPLAY", "q.dead", "IDS", *f.ids[17_500:18_500]],
    "DEAD PURGE": lambda f: ["DEAD", "PURGE", "q.dead", "ALL"],
    "DEADLETTER": lambda f: ["DEADLETTER", f.ids[-1], "dead", "REASON", "x" * 2048],
    "SHOW": lambda f: ["SHOW", f.ids[-2]],
    "JSCAN": lambda f: [
        "JSCAN",
        0,
        "COUNT",
        2_000_000_000,
        "REPLY",
        "all",
        *["STATE", "queued"] * 20,
    ],
    "QLEN": lambda f: ["QLEN", "q"],
    "QSTAT": lambda f: ["QSTAT", "q"],
    "QPEEK": lambda f: ["QPEEK", "q", -(2**63)],
    "QSCAN": lambda f: ["QSCAN", 0, "BUSYLOOP", "COUNT", 2_000_000_000],
    "HISTORY": lambda f: ["HISTORY", "1m", *["COUNT", 2_000] * 31],
    "PAUSE": lambda f: ["PAUSE", "paused", *["in"] * 62],
    "STAGE": lambda f: ["STAGE", "txn", "a", 60_000, "q", "b", *["RETRY", 5] * 77],
    "PUBLISH": lambda f: ["PUBLISH", "app", 1, "txn", *stage_all(f, 1_020)],
    "LEASE OPEN": lambda f: ["LEASE", "OPEN", "g", "me", "q", *[f"queue-{i}" for i in range(255)]],
    "LEASE NEXT": lambda f: ["LEASE", "NEXT", "g", f.epoch, 1, "COUNT", 1_000_000, "TTL", 60_000],
    "LEASE FETCH": lambda f: [
        "LEASE",
        "FETCH",
        "g",
        f.epoch,
        1,
        0,
        "COUNT",
        1_000_000,
        "BYTES",
        2**31,
    ],
    "LEASE TOUCH": lambda f: ["LEASE", "TOUCH", "g", f.epoch, "TTL", 70_000],
    "LEASE NACK": lambda f: ["LEASE", "NACK", "g", f.epoch, 1, *f.ids[12_500:15_000]],
    "LEASE INFO": lambda f: ["LEASE", "INFO", "g"],
    "LEASE LIST": lambda f: ["LEASE", "LIST"],
    "LEASE HELP": lambda f: ["LEASE", "HELP"],
    "LEASE GONE": lambda f: ["LEASE", "GONE", "g", f.epoch, 1, 0],
    "LEASE BEGIN": lambda f: ["LEASE", "BEGIN", "g", f.epoch, 1],
    "LEASE SPLIT": lambda f: ["LEASE", "SPLIT", "g", f.epoch, 1, 10],
    "LEASE DEFER": lambda f: ["LEASE", "DEFER", "g", f.epoch, 1],
    "LEASE COMMIT": lambda f: ["LEASE", "COMMIT", "g", f.epoch, 1],
    "LEASE RELEASE": lambda f: ["LEASE", "RELEASE", "g", f.epoch],
    "TUBE CREATE": lambda f: ["TUBE", "CREATE", "new", "fifottl", *["TTL", 1] * 29],
    "TUBE PUT": lambda f: ["TUBE", "PUT", "v", "b", *["PRI", 1] * 30],
    "TUBE TAKE": lambda f: ["TUBE", "TAKE", "v", "TIMEOUT", 0],
    "TUBE ACK": lambda f: ["TUBE", "ACK", "v", 0],
    "TUBE RELEASE": lambda f: ["TUBE", "RELEASE", "v", 0, "DELAY", 1],
    "TUBE TOUCH": lambda f: ["TUBE", "TOUCH", "v", 0, 1],
    "TUBE BURY": lambda f: ["TUBE", "BURY", "t", 0],
    "TUBE PEEK": lambda f: ["TUBE", "PEEK", "t", 0],
    "TUBE DELETE": lambda f: ["TUBE", "DELETE", "t", 1],
    "TUBE KICK": lambda f: ["TUBE", "KICK", "t", 2**52],
    "TUBE TASKS": lambda f: ["TUBE", "TASKS", "t", "READY", "COUNT", 10_000],
    "TUBE RELEASEALL": lambda f: ["TUBE", "RELEASEALL", "t"],
    "TUBE TRUNCATE": lambda f: ["TUBE", "TRUNCATE", "t"],
    "TUBE DROP": lambda f: ["TUBE", "DROP", "u"],
    "TUBE INFO": lambda f: ["TUBE", "INFO", "t"],
    "TUBE LIST": lambda f: ["TUBE", "LIST"],
    "TUBE STATISTICS": lambda f: ["TUBE", "STATISTICS"],
    "TUBE STATE": lambda f: ["TUBE", "STATE", "t"],
    "TUBE HOME": lambda f: ["TUBE", "HOME", "t"],
    "TUBE CFG": lambda f: ["TUBE", "CFG", *["TTR", 1] * 30],
    "TUBE IDENTIFY": lambda f: ["TUBE", "IDENTIFY"],
    "TUBE CHANGES": lambda f: ["TUBE", "CHANGES", "t", "COUNT", 10_000],
    "TUBE SUBSCRIBE": lambda f: ["TUBE", "SUBSCRIBE", *["t"] * 1_000],
    "TUBE UNSUBSCRIBE": lambda f: ["TUBE", "UNSUBSCRIBE", *["t"] * 1_000],
    "TUBE GRANT": lambda f: ["TUBE", "GRANT", "t", "guest", *["CALL"] * 60],
    "TUBE REVOKE": lambda f: ["TUBE", "REVOKE", "t", "guest", *["CALL"] * 60],
    "TUBE GRANTS": lambda f: ["TUBE", "GRANTS"],
    "TUBE DRIVERS": lambda f: ["TUBE", "DRIVERS"],
    "TUBE REGISTERDRIVER": lambda f: ["TUBE", "REGISTERDRIVER", "nosuch"],
    "TUBE HELP": lambda f: ["TUBE", "HELP"],
    "WORKER HERE": lambda f: ["WORKER", "HERE", "w", "QUEUES", *["q" * 80] * 100],
    "WORKER LIST": lambda f: [announce_all(f), "WORKER", "LIST", "COUNT", 1_000][1:],
    "SCHEDULE ADD": lambda f: [
        f.do(("TUBE", "CREATE", "k", "tasks")),
        "SCHEDULE",
        "ADD",
        "k",
        "n" * 100,
        "EVERY",
        9,
        *["PRI", 1] * 76,
        "x" * 100_000,
    ][1:],
    "SCHEDULE LIST": lambda f: [schedule_all(f), "SCHEDULE", "LIST", "k"][1:],
    "SCHEDULE SHOW": lambda f: ["SCHEDULE", "SHOW", "k", "n0"],
    "SCHEDULE": lambda f: ["SCHEDULE", "RUN", "k", "n0"],
    "QUEUE": lambda f: ["QUEUE", *["x"] * 63],
    "QUEUE PURGE": lambda f: ["QUEUE", "PURGE", "q", "STATE", "all", "HERE"],
    "QUEUE DELETE": lambda f: ["QUEUE", "DELETE", "q", "IFUNUSED", "NOTHING"],
    "VALUE": lambda f: ["VALUE", *["x"] * 63],
    "VALUE HELP": lambda f: ["VALUE", "HELP"],
    "VALUE SET": lambda f: [
        "VALUE",
        "SET",
        "k",
        "n" * 255,
        "x" * 100_000,
        "TTL",
        9,
        "END",
        "FIXED",
    ],
    "VALUE GET": lambda f: [value_all(f, "SET"), "VALUE", "GET", "k", *names_of_values()][1:],
    "VALUE WAIT": lambda f: [
        value_all(f, "SET"),
        "VALUE",
        "WAIT",
        "k",
        1,
        *names_of_values(),
        "COUNT",
        500,
    ][1:],
    "VALUE DROP": lambda f: [value_all(f, "SET"), "VALUE", "DROP", "k", *names_of_values()][1:],
    "VALUE ADD": lambda f: ["VALUE", "ADD", "k", "n", 1 - (1 << 63), "TTL", 9],
    "VALUE TALLY": lambda f: [
        "VALUE",
        "TALLY",
        "k",
        "t",
        999_999,
        "x" * 100_000,
        "SIZE",
        1_000_000,
        "TTL",
        9,
    ],
    "VALUE PARTS": lambda f: [
        value_all(f, "PARTS"),
        "VALUE",
        "PARTS",
        "k",
        "set",
        0,
        "COUNT",
        1_000,
    ][1:],
    "VALUE SCAN": lambda f: [
        value_all(f, "SET"),
        "VALUE",
        "SCAN",
        "k",
        0,
        "COUNT",
        1_000,
        "MATCH",
        "*-" * 120,
    ][1:],
    "LIMITS": lambda f: [wait_all(f), "LIMITS", "k", "COUNT", 1_000, "CURSOR", 2_500][1:],
    "GROUP CREATE": lambda f: [
        f.do(("TUBE", "CREATE", "g", "tasks")),
        "GROUP",
        "CREATE",
        "g",
        9,
        *["PRI", 1] * 76,
        "THEN",
        "x" * 100_000,
    ][1:],
    "GROUP ADD": lambda f: [
        "GROUP",
        "ADD",
        "g",
        group_all(f),
        "NOCANCEL",
        *[word for i in range(500) for word in (2_000 + i, f.ids[i])],
    ],
    "GROUP SHOW": lambda f: ["GROUP", "SHOW", "g", group_all(f)],
    "GROUP RESULTS": lambda f: ["GROUP", "RESULTS", "g", group_all(f), 0, "COUNT", 1_000],
    "GROUP CHILDREN": lambda f: [
        "GROUP",
        "CHILDREN",
        "g",
        group_all(f),
        0,
        "COUNT",
        1_000,
        "STATE",
        "done",
    ],
    "GROUP LIST": lambda f: [group_all(f), "GROUP", "LIST", "g"][1:],
    "GROUP CANCEL": lambda f: ["GROUP", "CANCEL", "g", group_all(f)],
    "GROUP HELP": lambda f: ["GROUP", "HELP"],
    "GROUP": lambda f: ["GROUP", "WHAT"],
    "TOPIC SUBSCRIBE": lambda f: [
        "TOPIC",
        "SUBSCRIBE",
        "t" * 255,
        "q" * 512,
        "FILTER",
        *[word for i in range(8) for word in (f"{i}" * 64, "g" * 128)],
    ],
    "TOPIC LIST": lambda f: [topic_all(f), "TOPIC", "LIST", "COUNT", 1_000][1:],
    "TOPIC ADD": lambda f: [
        topic_all(f),
        "TOPIC",
        "ADD",
        "t0",
        "x" * 100_000,
        0,
        "HEADERS",
        1,
        "a",
        "b",
    ][1:],
    "TOPIC HELP": lambda f: ["TOPIC", "HELP"],
    "TOPIC": lambda f: ["TOPIC", "WHAT"],
    "WORKER DEPLOYS": lambda f: [deploy_all(f), "WORKER", "DEPLOYS"][1:],
    "WORKER": lambda f: ["WORKER", "STOP", "w"],
    "HELLO": lambda f: ["HELLO", 3, *["SETNAME", "me"] * 31],
    "PING": lambda f: ["PING", "x" * 100_000],
    "ECHO": lambda f: ["ECHO", "x" * 100_000],
    "AUTH": lambda f: ["AUTH", "x" * 10_000],
    "ACL SETUSER": lambda f: ["ACL", "SETUSER", "u", *["+@all", "-@all"] * 500],
    "ACL DELUSER": lambda f: ["ACL", "DELUSER", *["u"] * 1_000],
    "ACL LIST": lambda f: ["ACL", "LIST"],
    "ACL USERS": lambda f: ["ACL", "USERS"],
    "ACL GETUSER": lambda f: ["ACL", "GETUSER", "default"],
    "ACL LOG": lambda f: ["ACL", "LOG", 10_000],
    "ACL DRYRUN": lambda f: ["ACL", "DRYRUN", "default", "GETJOB", "FROM", *["q"] * 1_000],
    "ACL": lambda f: ["ACL", "CAT", "inspect"],
    "SELECT": lambda f: ["SELECT", 0],
    "RESET": lambda f: ["RESET"],
    "CLIENT LIST": lambda f: ["CLIENT", "LIST"],
    "CLIENT INFO": lambda f: ["CLIENT", "INFO"],
    "CLIENT KILL": lambda f: ["CLIENT", "KILL", *["TYPE", "normal"] * 31],
    "CLIENT": lambda f: ["CLIENT", "SETINFO", "LIB-NAME", "x" * 10_000],
    "CLUSTER NODES": lambda f: ["CLUSTER", "NODES"],
    "CLUSTER VOTERS": lambda f: ["CLUSTER", "VOTERS"],
    "CLUSTER": lambda f: ["CLUSTER", "INFO"],
    "INFO": lambda f: ["INFO"],
    "TIME": lambda f: ["TIME"],
    "COMMAND": lambda f: ["COMMAND", "DOCS", *["TUBE"] * 62],
    "CONFIG": lambda f: ["CONFIG", "GET", *["*" + "?" * 30 + "x"] * 31, "*"],
    "BGREWRITEAOF": lambda f: ["BGREWRITEAOF"],
    "SLOWLOG GET": lambda f: ["SLOWLOG", "GET", -1],
    "SLOWLOG": lambda f: ["SLOWLOG", "LEN"],
    "LATENCY": lambda f: ["LATENCY", "RESET", *["command"] * 62],
    "DEBUG": lambda f: ["DEBUG", "STRUCTSIZE"],
    "LOADJOB": lambda f: ["LOADJOB", "x" * 100_000],
    "QLIST": lambda f: [
        *[many_queues(f), "QLIST", "MATCH", "*[l-n]*[0-9]*", "SORT", "oldest", "DESC"][1:],
        "OFFSET",
        9_000,
        "COUNT",
        1_000,
    ],
    "MONITOR": lambda f: ["MONITOR"],
    "QUIT": lambda f: ["QUIT", *["x"] * 63],
}


def test_every_command_has_a_bound_and_a_call() -> None:
    """L2.1 For every command and subcommand the command table gives the limits of words, of units
    of work per turn and of reply bytes, and what happens beyond them (docs/commands.md).
    """
    heads = {key.split(" ")[0] for key in BOUNDS}
    assert {row.name for row in COMMAND_ROWS} == heads
    assert all(one.counts and one.least > 0 for one in BOUNDS.values()), "a cost"
    unbound = {key for key, one in BOUNDS.items() if one.work == WHOLE}
    assert set(LARGEST) | unbound == set(BOUNDS)
    assert unbound == {
        "SHUTDOWN",
        "CLUSTER RESET",
        "DEBUG LOADAOF",
        "DEBUG SLEEP",
        "DEBUG CHECK",
        "DEBUG FLUSHALL",
    }


@pytest.mark.parametrize("name", list(LARGEST))
def test_the_largest_call_stays_within_its_bound(full: Full, name: str) -> None:
    """L2.1 A unit is one job, queue, tube, client or word that is read or changed; a costlier one
    counts as several.
    """
    bound = BOUNDS[name]
    words = LARGEST[name](full)
    reply, spent, size = full.run(*words)
    if name == "LEASE OPEN":
        full.epoch = int(reply)
    assert max(work for work, _ in spent) <= max(bound.work, LIGHT_WORK)
    most = bound.work * LINES_PER_UNIT + LINES_OF_A_TURN
    assert max(lines for _, lines in spent) <= most
    room = sum(len(word) for word in words if isinstance(word, str)) if bound.has_body else 0
    assert size <= bound.reply + ELEMENT + room
    if bound.words:
        assert len(words) <= bound.words


AT_ONCE = 3_000  # commands in a pipeline
READS_AGAIN = ("QUIT", "MONITOR", "RESET", "TUBE TAKE", "WAITJOB")  # they end it, or wait


@pytest.mark.parametrize("name", [one for one in LARGEST if one not in READS_AGAIN])
def test_a_pipeline_has_its_share_of_a_turn(piped: Full, name: str) -> None:
    """L2.10 A connection whose commands have done 1,000 units in a turn, or 100 once the turn
    has done 5,000, runs no more in it, short ones neither.
    """
    words = LARGEST[name](piped)
    one = encode(*words)
    world = piped.world
    wire = world.wire()
    most = max(BOUNDS[name].work, PIECE) + TURN_WORK
    wire.put(one * min(AT_ONCE, 1 + (1 << 20) // len(one)))
    with costs(world) as spent:
        for _ in range(3):
            world.turn()
    assert max(work for work, _ in spent) <= most
    assert max(lines for _, lines in spent) <= most * LINES_PER_UNIT + LINES_OF_A_TURN
    wire.reset()
    world.settle()
    assert not wire.is_open()
