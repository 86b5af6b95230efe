"""Whatever comes over a wire ends that connection at the most, never the node (SPEC B2.5, C2.8)."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterator

import msgspec
import pytest
from msgspec.structs import replace

from own_log import own_lines
from raw_resp import encode
from tuque.cluster.nodes_conf import parse_nodes_conf
from tuque.core.dispatch.restore import shift_jobs
from tuque.core.model.job import LAST_NS, Job
from tuque.core.model.task import READY, Task
from tuque.core.msgs.bus import (
    AnyMessage,
    Ask,
    Delivered,
    DelJob,
    Enqueue,
    Enqueued,
    Gossip,
    GotAck,
    GotJob,
    GotJobs,
    Heartbeat,
    Holders,
    Lack,
    Left,
    Moved,
    Queued,
    Release,
    ReplJob,
    SetAck,
    WillQueue,
    Working,
    YourJobs,
)
from tuque.core.records.jobs import Records
from tuque.core.records.tubes import tell_task
from tuque.server.commands.dispatch import HANDLERS
from tuque.server.log.log import AGAIN_MS, LINES_MAX, Notes
from tuque.tubes.log.receive import changes_in
from tuque.wire.bus.bus import BusError, head_of
from tuque.wire.bus.card import Hello
from tuque.wire.bus.handshake import MAGIC, Conn
from tuque.wire.commands.rows import ROWS, Row
from world import World
from world_strangers import CARD as THEIRS
from world_strangers import OTHER, SECRET
from world_trace import digest

CARD = replace(THEIRS, host="here")
HELLO = msgspec.msgpack.encode(Hello(MAGIC, 1, 2, CARD, bytes(32)))
NO_TEXT = HELLO.replace(b"\xa4here", b"\xa4h\xffre")  # a host that is not UTF-8
NO_HELLOS = {
    "a host that is no text": NO_TEXT,
    "nested beyond the stack": b"\x91" * 1000,
    "a number of 64 bits": HELLO.replace(b"\x01\x02", b"\x01\xcf" + b"\xff" * 8),
    "nothing": b"",
    "a list that ends too early": HELLO[:-40],
    "more than a HELLO": HELLO + b"\xc0",
    "no list": b"\xc1",
}


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A node with a secret and a password."""
    return make_world(journal="off", cluster_secret=SECRET, requirepass="a password of many bytes")


@pytest.mark.parametrize("hello", NO_HELLOS.values(), ids=NO_HELLOS)
def test_a_hello_that_is_none_ends_its_connection(world: World, hello: bytes) -> None:
    """B2.5 Any failure while the bytes of another node are read ends that link and nothing else."""
    before = digest(world.n)
    stranger = world.stranger()
    stranger.give(head_of(hello, 0) + hello)
    if stranger.is_open():  # it may be believed so far: the proof is missing
        stranger.give(head_of(bytes(32), 0) + bytes(32))
    assert not stranger.is_open()
    assert digest(world.n) == before
    assert world.bus.figures.refused == 1
    good = world.stranger()
    assert good.join()


@pytest.mark.parametrize("hello", NO_HELLOS.values(), ids=NO_HELLOS)
def test_an_evil_address_is_dialled_in_vain(world: World, hello: bytes) -> None:
    """B2.5 Any failure while the bytes of another node are read ends that link and nothing else."""
    evil = world.host()
    world.server.members.meet(evil.address, 7711, 17711)
    world.settle()
    (dialled,) = evil.came
    dialled.give(head_of(hello, 0) + hello)
    dialled.give(head_of(bytes(32), 0) + bytes(32))
    assert world.bus.figures.refused == 1
    assert len(world.bus.links) == 0


@pytest.mark.parametrize("hello", NO_HELLOS.values(), ids=NO_HELLOS)
def test_nothing_but_a_bus_error_comes_out_of_a_handshake(hello: bytes) -> None:
    """The pump is not the only one that feeds a handshake."""
    conn = Conn(False, CARD, [b"secret"], bytes(32))
    with pytest.raises(BusError):
        conn.feed(head_of(hello, 0) + hello)
        conn.feed(head_of(bytes(32), 0) + bytes(32))


def test_bytes_that_are_no_text_are_logged_once(world: World) -> None:
    """B2.5 It is counted, and logged once a minute."""
    for _ in range(5):
        stranger = world.stranger()
        stranger.give(head_of(NO_TEXT, 0) + NO_TEXT)
        assert not stranger.is_open()
    assert world.bus.figures.refused == 5
    assert len([line for line in world.node().log if "no link with" in line]) == 1


def bug_in_bytes(self: object, data: bytes) -> None:
    """A reader with a bug."""
    raise OverflowError(data)


def broken_invariant(*_: object) -> None:
    """A rule whose assertion fails; the tables still agree."""
    raise AssertionError("an arrow that is not in the table")


@pytest.mark.sources
def test_a_bug_over_the_bytes_of_a_node_ends_its_link(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B2.5 Any failure while the bytes of another node are read ends that link and nothing else."""
    stranger = world.stranger()
    assert stranger.join()
    link = next(iter(world.bus.links.values()))
    monkeypatch.setattr(link.conn.reader, "next", lambda: bug_in_bytes(link, b""))
    stranger.give(b"some bytes")
    assert not stranger.is_open()
    assert world.server.bugs.count == 1
    assert world.bus.figures.malformed == 1  # no command ran: the tables need no check
    world.node().machine.records.clear()  # the bug was the test's own


@pytest.mark.sources
def test_a_bug_over_the_bytes_of_a_client_ends_its_connection(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C2.8 Any failure while the bytes of a client are read, RESP or IPROTO, ends that connection
    and nothing else."""
    for _ in range(3):
        wire = world.wire()
        monkeypatch.setattr(wire.c.reader, "read", lambda data: bug_in_bytes(None, data))
        assert wire.answer(encode("PING")) == b"<closed>"
    assert world.server.bugs.count == 3
    told = [line for line in world.node().log if line.startswith("internal error")]
    assert [line.split("127")[0] for line in told] == ["internal error in what "]
    assert b"NOAUTH" in world("PING")
    world.node().machine.records.clear()  # the bug was the test's own


def test_an_assertion_that_fails_ends_one_connection_when_the_tables_agree(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C3.12 The node then checks all its tables and continues if they are consistent."""
    world = make_world(journal="off")
    monkeypatch.setitem(HANDLERS, b"ping", broken_invariant)
    assert world("PING") == b"-ERR internal error, the log of the server says more\r\n"
    assert world.info("stats")["internal_errors"] == "1"
    assert world("QLEN q") == b":0\r\n"
    world.node().machine.records.clear()  # the bug was the test's own


def test_strangers_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """C2.8 Each cause is logged once a minute, with at most 100 such lines a minute."""
    mine = Notes()
    with caplog.at_level(logging.INFO, "tuque.server"):
        said = [mine.may_log(1_000, f"version {i}") for i in range(250)]
        assert said == [True] * LINES_MAX + [False] * (250 - LINES_MAX)
        assert not own_lines(caplog)
        assert mine.may_log(1_000 + AGAIN_MS, "version 1")
        assert not mine.may_log(1_000 + AGAIN_MS, "version 1")
    assert own_lines(caplog) == ["150 more lines of the last minute were left out"]


ID = b"D-0a0a0a0a-VTUo3R4lebIYJdAAEwe8bf2U-05a1"
COPY = ReplJob(ID, b"q", b"body", 1, 60_000, 0, 10, 0, 1, 0, 0, 3, 0)
GOSSIP = Gossip(b"0a" * 20, "127.0.0.1", 7711, 17711, 0, 0)
BEYOND: dict[str, AnyMessage] = {
    "nacks": replace(COPY, nacks=1 << 30),
    "deliveries": YourJobs(b"q", [replace(COPY, deliveries=(1 << 31) - 1)]),
    "a removal": Heartbeat(1, 0, 0, 7711, [replace(GOSSIP, removal=(1 << 62) - 1)]),
    "a host": Heartbeat(1, 0, 0, 7711, [replace(GOSSIP, host="hôst")]),
}


@pytest.mark.parametrize("message", BEYOND.values(), ids=BEYOND)
def test_what_grows_or_is_kept_must_fit(world: World, message: AnyMessage) -> None:
    """B2.1 they must fit into `nodes.conf` as they grow."""
    stranger = world.stranger()
    assert stranger.join()
    stranger.says(message)
    assert not stranger.is_open()
    assert world.bus.figures.malformed == 1
    kept = parse_nodes_conf(world.server.members.kept_text(world.server.identity.line()).encode())
    assert [one.node_id for one in kept.nodes] == [OTHER]


def test_no_message_about_a_job_does_anything_to_a_task(world: World) -> None:
    """T1.4 Messages of other nodes about a job do nothing to a task."""
    world("AUTH", "a password of many bytes")
    world("TUBE", "CREATE", "t", "fifottl")
    id = world("ADDJOB", "t", "ready", 0)[1:-2]
    taken = world("ADDJOB", "t", "taken", 0, "PRI", 0)[1:-2]
    world("GETJOB", "FROM", "t")
    stranger = world.stranger()
    assert stranger.join()
    before = digest(world.n)
    for one in (id, taken):
        copy = replace(COPY, id=one, queue=b"t")
        told: list[AnyMessage] = [
            copy, YourJobs(b"t", [copy, replace(copy, retry_s=0)]), GotJob([one]),
            Enqueue(one, 0), Enqueued([one]), Queued(one, 7), WillQueue([one]),
            Delivered(one, 5_000), Working(one, 5_000), Moved(one, 3, 5_000), Left([one]),
            GotJobs([one], [one]), Holders(one, 3), Release([one], 3), Ask(1, [one], True, b""),
            Lack(1, [one]), SetAck(one, 3, 5_000), GotAck(one, True, 3), DelJob(one, 3, 5_000),
        ]  # fmt: skip
        for message in told:
            stranger.says(message)
            world.check()
            assert digest(world.n) == before, message
    assert stranger.is_open()


def test_a_tube_that_waits_to_be_made_does_not_outlive_a_reset(world: World) -> None:
    """S6.6: `RESET SOFT` drops jobs, queues and the other nodes; `HARD` also takes a new id"""
    world("AUTH", "a password of many bytes")
    stranger = world.stranger()
    assert stranger.join()
    assert world("TUBE", "CREATE", "t", "fifo", "ALONE") == b""  # the other node is asked
    other = world.wire()
    other("AUTH", "a password of many bytes")
    assert other("CLUSTER", "RESET", "HARD") == b"OK"
    world.check()
    assert world.n.queues == {}


@pytest.mark.parametrize("jump_ms", [1, -1, 10**13, -(10**13)])
def test_a_jump_of_the_clock_moves_no_instant_out_of_64_bits(jump_ms: int) -> None:
    """B2.2 An instant may be any that 64 bits of ns can hold (until 2262), also after a shift
    (J5.8): a clock that is far ahead closes no link.
    """
    for ctime_ns in (0, 1, LAST_NS):
        job = Job(ID, b"q", b"", ctime_ns, 10**12, 1, 0, 0)
        task = Task(ID, b"t", b"", ctime_ns, 1, 0, 0)
        shift_jobs({ID: job}, jump_ms)
        shift_jobs({ID: task}, jump_ms)
        wanted = min(max(ctime_ns + jump_ms * 1_000_000, 0), LAST_NS)
        assert (job.ctime_ns, task.ctime_ns) == (wanted, wanted)


@pytest.mark.parametrize(
    "field", ["ttl_ms", "ttr_ms", "qtime_ms", "token", "owner", "taken_ms", "first_ms", "pri"]
)
def test_a_copied_task_whose_numbers_cannot_be_is_not_taken(field: str) -> None:
    """B2.1 Counts are checked against the bytes left before anything is allocated, and every field
    against its range before a rule sees it."""
    for value in (-1, 1 << 62, (1 << 63) - 1):
        task = Task(ID, b"t", b"", 1, 1, 0, 0)
        task.status = READY
        records = Records([])
        tell_task(records, task)
        assert changes_in(records.take()) is not None
        setattr(task, field, value)
        tell_task(records, task)
        assert changes_in(records.take()) is None


STOPS = ("SHUTDOWN", "DEBUG", "MONITOR", "CLIENT PAUSE", "CLUSTER RESET", "BGREWRITEAOF")
OPTION = re.compile(r"[A-Z][A-Z-]+")


def cut_commands(row: Row) -> Iterator[list[bytes]]:
    """The command with each word of its syntax as its last one or its last but one."""
    words = {b"1", *(word.encode() for word in OPTION.findall(row.syntax))}
    name = row.name.encode().split()
    for option, before, behind in itertools.product(sorted(words), range(5), range(2)):
        yield [*name, *[b"1"] * before, option, *[b"1"] * behind]


def test_a_command_that_ends_after_an_option_is_answered() -> None:
    """C2.8 Any failure while the bytes of a client are read ends that connection and nothing else:
    no handler reads a word that is not there."""
    world = World(journal="off")
    for row in ROWS:
        if row.name.startswith(STOPS):
            continue
        wire = world.wire()
        for words in cut_commands(row):
            wire.say(encode(*words))
            assert world.server.bugs.count == 0, words
        wire.close()
