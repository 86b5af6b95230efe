"""Odd settings, killed clients, errors of our own: the server continues and nothing is lost."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from raw_resp import encode
from sim.engine.clock import START_MS
from tuque.core.copies.add import on_addjob, settle
from tuque.core.dispatch.timers import tick
from tuque.core.model.job import PLAIN
from tuque.core.node.node import Node
from tuque.core.queues.procedures import check, memory_level
from tuque.server.admin.registry import COMMANDS, register
from tuque.server.commands.dispatch import HANDLERS
from tuque.server.config.config import load
from tuque.server.loop.housekeeping import run_housekeeping
from tuque.server.loop.pump import Pump
from tuque.server.replies.errors import drop_turn
from tuque.server.start.journal import close_journal, load_journal, open_journal
from tuque.server.state.client import LOOK, Client
from tuque.server.state.server import WATCH, Server
from world import World
from world_machines import name_of

GREATEST = str(2**63 - 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slowlog-log-slower-than", GREATEST),
        ("latency-monitor-threshold", GREATEST),
        ("maxmemory", str(2**60)),
        ("client-output-buffer-limit", f"normal {2**70} {2**70} {2**31}"),
    ],
)
def test_the_greatest_settings_overflow_nowhere(world: World, name: str, value: str) -> None:
    """Numbers of the compiled modules have 64 bits, and settings are multiplied there."""
    assert world(f"CONFIG SET {name}", value) == b"+OK\r\n"
    world.add()
    assert memory_level(world.n) == 0
    assert world.n.limits.memory_bytes * 20 < 2**61
    s = world.server
    assert max(int(s.out_hard), int(s.out_soft_ms), int(s.slow_ns)) < 2**61
    check(world.n)


def broken(s: Server, c: Client, args: list[bytes]) -> None:
    """A command with a bug: it answers a part and then fails."""
    c.out.append(b"*2\r\n")
    if len(args) > 2:
        s.n.job_bytes += 1  # and takes the tables along
    raise KeyError(args[0])


@pytest.fixture
def bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """PING has a bug."""
    monkeypatch.setitem(HANDLERS, b"ping", broken)  # put back at the end
    monkeypatch.setitem(COMMANDS, "ping", broken)  # taken by every new server


@pytest.mark.usefixtures("bug")
def test_a_bug_in_a_command_is_told_and_the_node_goes_on(world: World) -> None:
    id = world.add()
    assert world("PING") == b"-ERR internal error, the log of the server says more\r\n"
    assert world("ACKJOB", id) == b":1\r\n"
    world.node().machine.records.clear()  # the bug was the test's own


@pytest.mark.usefixtures("bug")
def test_a_bug_that_damaged_the_tables_stops_the_node(world: World) -> None:
    world.add()
    with pytest.raises(AssertionError):
        world("PING x y")
    world.n.job_bytes -= 1
    world.node().machine.records.clear()


@pytest.mark.usefixtures("bug")
def test_the_turn_that_broke_off_never_was(make_world: Callable[..., World]) -> None:
    world = make_world(journal="always")
    producer = world.wire()
    heard = producer.say(encode("ADDJOB", "q", "kept", 0))
    world.disk().stick()
    heard += producer.say(encode("ADDJOB", "q", "kept too", 0))  # its reply is held
    assert heard.count(b"+D-") == 1
    with pytest.raises(AssertionError):
        producer.say(encode("ADDJOB", "q", "never was", 0) + encode("PING", "x", "y"))
    world.disk().well()
    world.settle_wires()
    world.n.job_bytes -= 1
    drop_turn(world.server)
    world.node().machine.stop()
    heard += producer.bytes_now()
    assert heard.count(b"+D-") == 2
    world.start(0)
    assert [job.body for job in world.n.jobs.values()] == [b"kept", b"kept too"]
    world.node().machine.records.clear()  # the bug was the test's own


def test_an_unknown_command_is_not_answered_either_when_replies_are_off(world: World) -> None:
    world("CLIENT REPLY OFF")
    assert world("NOSUCH") == b""
    assert world("CLIENT REPLY ON") == b"+OK\r\n"
    world("CLIENT REPLY SKIP")
    assert world("NOSUCH") == b""
    assert world("PING") == b"+PONG\r\n"


def test_a_waiting_client_that_was_killed_gets_no_job(world: World) -> None:
    """The kill and the job come in one turn, before the connection is closed."""
    waiting = world.wire()
    assert world("GETJOB FROM q", by=waiting) == b""
    kill = encode("CLIENT", "KILL", "ID", waiting.c.number)
    add = encode("ADDJOB", "q", "b", 0, "RETRY", 0, "REPLICATE", 1)
    assert world.run.say(kill + add).startswith(b":1\r\n+D-")
    assert waiting.hear() == b"" and waiting.is_closed
    assert world("QLEN q") == b":1\r\n"
    assert world.info("clients")["blocked_clients"] == "0"


def test_the_output_limit_holds_within_one_read(make_world: Callable[..., World]) -> None:
    """64 KB of small commands may ask for gigabytes: the limit must not wait for the last one."""
    world = make_world(client_output_buffer_limit="normal 20mb 0 0")
    greedy, other = world.wire(), world.wire()
    greedy.say(encode("ADDJOB", "q", b"x" * 1000, 0) * 500)
    greedy.stop_reading()
    commands = world.server.figures.commands
    greedy.put(encode("QPEEK", "q", 500) * 600)  # 300 MB
    world.settle()
    assert other("PING") == b"PONG"
    assert world.server.figures.output_closed == 1
    assert world.server.figures.commands - commands < 80
    assert len(world.server.clients) == 1


def test_a_long_backlog_runs_in_slices_and_in_order(world: World) -> None:
    waiting, other = world.wire(), world.wire()
    count = 25_000
    adds = b"".join([encode("ADDJOB", "q", i, 0) for i in range(count)])
    assert waiting.say(encode("GETJOB", "FROM", "first") + adds) == b""
    other.say(encode("ADDJOB", "first", "b", 0))
    waiting.hear()
    jobs = world.n.queues[b"q"].peek(count)
    assert [job.body for job in jobs] == [b"%d" % i for i in range(count)]


def test_queues_and_waiting_clients_are_counted_as_memory(world: World) -> None:
    run_housekeeping(world.server)
    before = world.n.used_bytes()
    waiting = world.wire()
    assert world("GETJOB FROM", *[f"q{i}" for i in range(1000)], by=waiting) == b""
    run_housekeeping(world.server)
    assert 600_000 < world.n.used_bytes() - before < 1_300_000


def test_very_many_clients_are_looked_at_in_turns(world: World) -> None:
    """None is forgotten, and what they hold is the sum over all of them."""
    world("CONFIG SET timeout 1")
    count = 2 * LOOK + 34
    for number in range(10_001, 10_000 + count):  # with the world's own one
        c = Client(number, world.run.c.sock, "127.0.0.1:1", 100, world.n.now_ms)
        c.held_bytes = 1000
        world.server.clients[number] = c
    world.jump_ms(1001)
    assert world.n.now_ms == world.now_ms
    for seen in (LOOK, 2 * LOOK, count):
        run_housekeeping(world.server)
        assert len({c.number for c in world.server.doomed}) == seen
    assert world.n.client_bytes == (count - 1) * 1000
    world.kill(0)  # it cannot close what was no connection


def test_a_shorter_idle_time_counts_for_the_queues_there_are(world: World) -> None:
    id = world.add()
    world("ACKJOB", id)
    assert world("CONFIG SET queue-idle-time 2") == b"+OK\r\n"
    run_housekeeping(world.server)
    world.pass_ms(2_001)
    tick(world.n)
    assert world("QSTAT q") == b"*-1\r\n"


def test_a_new_password_ends_waiting_and_watching(world: World) -> None:
    """C5.4 also for those who log in no more: no job and no command goes to them."""
    waiting, watching = world.wire(), world.wire()
    assert world("GETJOB FROM q", by=waiting) == b""
    assert world("MONITOR", by=watching) == b"+OK\r\n"
    assert world("CONFIG SET requirepass secret") == b"+OK\r\n"
    assert waiting.hear() == b"-NOAUTH Authentication required.\r\n"
    watching.hear()
    assert world("AUTH secret") == b"+OK\r\n"
    world.add()
    assert waiting.hear() == watching.hear() == b""
    assert world("QLEN q") == b":1\r\n"


def test_a_journal_that_cannot_begin_leaves_no_descriptor(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world = make_world(journal="off", dir=str(tmp_path))
    (tmp_path / world.cfg.appenddirname).write_text("a file where the directory should be")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        assert world("CONFIG SET appendonly yes") == (
            b"-ERR Unable to turn on AOF. Check server logs.\r\n"
        )
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert world.value("CONFIG GET appendonly")[1] == b"no"


def test_loaded_jobs_of_a_queue_share_its_name(make_world: Callable[..., World]) -> None:
    world = make_world(journal="no")
    world.run.say(encode("ADDJOB", "a queue", "b", 0) * 3)
    world.restart(0)
    names = [job.queue for job in world.n.jobs.values()]
    assert len(names) == 3
    assert all(name is names[0] for name in names)


class AtStart:
    """The start of a server on real files, as far as its journal is loaded."""

    def __init__(self, here: Path, journal: str = "yes") -> None:
        options = {"dir": str(here), "appendonly": journal, "appenddirname": "journal"}
        cfg = load(None, {}, options)
        self.s = Server(cfg, Node(name_of(0), b"another seed", START_MS))
        self.pump = Pump(self.s)
        open_journal(self.pump)

    def end(self) -> None:
        assert close_journal(self.pump) == ""
        self.pump.close_all()


def test_a_stop_while_loading_leaves_the_journal_as_it_is(tmp_path: Path) -> None:
    start = AtStart(tmp_path)
    load_journal(start.pump)
    on_addjob(start.s.n, b"q", b"b", settle(start.s.n, PLAIN), -1, 0, 0)
    start.end()
    files = {path.name: path.read_bytes() for path in (tmp_path / "journal").glob("*[!k]")}
    start = AtStart(tmp_path)
    start.s.stop_requested = "signal"
    load_journal(start.pump)
    assert start.s.is_loading
    start.end()
    assert {p.name: p.read_bytes() for p in (tmp_path / "journal").glob("*[!k]")} == files
    start = AtStart(tmp_path)
    load_journal(start.pump)
    assert len(start.s.n.jobs) == 1
    start.end()


def test_a_short_load_is_not_noticed(tmp_path: Path) -> None:
    """J5.7 A command in the first 100 ms waits until the load or they are over: a node with
    little to load replies to nobody with -LOADING.
    """
    register()
    for expected in (b":0\r\n", b":1\r\n"):
        start = AtStart(tmp_path)
        with socket.create_server(("127.0.0.1", 0)) as door:
            door.setblocking(False)
            start.pump.listen(door)
            with socket.create_connection(door.getsockname()) as client:
                client.sendall(b"QLEN q\r\n")
                load_journal(start.pump)
                client.settimeout(0.001)
                reply = b""
                while not reply.endswith(b"\r\n"):
                    start.pump.turn(0)
                    with suppress(TimeoutError):
                        reply += client.recv(100)
                assert reply == expected
                if expected == b":0\r\n":
                    on_addjob(start.s.n, b"q", b"b", settle(start.s.n, PLAIN), -1, 0, 0)
            start.end()


def test_after_a_load_the_oldest_delivery_is_still_evicted_first(
    make_world: Callable[..., World],
) -> None:
    """M3.1 by delivery, not by age: the older job was taken last."""
    world = make_world(journal="always")
    for name in ("taken last", "taken first"):
        world.add(name, "b", retry=0, replicate=1)
    for name in ("taken first", "taken last"):
        world.pass_ms(1_000)
        world.get(name)
    world.pass_ms(1_000)
    world.restart(0)
    n = world.n
    assert [n.jobs[id].queue for id in n.delivered_amo] == [b"taken first", b"taken last"]


def test_memory_is_looked_at_once_more_when_all_clients_have_gone(
    make_world: Callable[..., World],
) -> None:
    world = make_world(journal="off", cluster_enabled=False)
    pump, server = world.pump, world.server
    client = world.wire()
    client("PING")
    pump.house_ms = world.now_ms + 100  # looked just now
    client.close()
    assert not server.clients
    assert pump.wait_ms(-1) == 100
    server.last_house_commands = server.figures.commands
    server.alarms.unset(WATCH)  # the next point of HISTORY
    assert pump.wait_ms(-1) == -1


def test_a_journal_that_is_not_loaded_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs of an earlier life are not forgotten in silence when the option is."""
    start = AtStart(tmp_path)
    load_journal(start.pump)
    start.end()
    AtStart(tmp_path, "no").pump.close_all()
    assert "is not loaded: appendonly is no" in caplog.text
