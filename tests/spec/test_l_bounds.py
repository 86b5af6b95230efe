"""SPEC L2: every command has a bound, and what goes beyond it stops nobody else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from own_log import own_lines
from raw_resp import encode
from tuque.core.copies.add import on_addjob, settle
from tuque.core.model.job import PLAIN
from tuque.core.model.timers import PIECE, REPLY_BYTES, TURN_WORK
from tuque.core.node.queue import PAUSE_OUT
from tuque.core.node.tables import bare_size
from tuque.core.queues.procedures import check, get_queue
from tuque.server.commands.tube_admin import Statistics
from tuque.server.log.slowlog import SLOW_BYTES_MAX, SLOW_DROPS
from tuque.server.replies.errors import text_of
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.options import PutSpec, TubeOptions
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks import admin, operations
from world import World
from world_wires import Wire

Make = Callable[..., World]
PING = b"PING\r\n"
PASSWORD = "a password of some length"


@pytest.fixture
def world(make_world: Make) -> World:
    """One node without a journal."""
    return make_world(journal="off")


def fill(world: World, count: int, queue: bytes = b"q", body: bytes = b"body") -> list[bytes]:
    """Jobs in a queue, added without the wire; their ids."""
    n = world.n
    spec = settle(n, PLAIN)
    return [on_addjob(n, queue, body, spec, -1, 0, 0).id for _ in range(count)]


def value(world: World, line: Wire, command: bytes) -> tuple[Any, list[int], int]:
    """The reply of a command, the work of each turn that it took, and how often another client
    was answered meanwhile."""
    other = world.wire()
    works: list[int] = []
    pongs = 0
    if command:
        line.put(command)
    for _ in range(100_000):
        other.put(PING)
        world.turn()
        works.append(int(world.n.work))
        if replies := line.values():
            return replies[0], works, pongs
        pongs += other.values() == [b"PONG"]
    raise AssertionError("no reply")


def test_a_long_command_goes_on_in_the_next_turns(world: World) -> None:
    """L2.2 A long command continues in the next turns. Meanwhile the later commands of its
    connection wait (C3.9), and other connections are served; the command sees what they change.
    """
    ids = fill(world, 12_000)
    line = world.wire()
    reply, works, pongs = value(world, line, b"JSCAN 0 COUNT 100000000\r\n")
    assert reply[0] == b"0" and sorted(reply[1]) == sorted(ids)
    assert max(works) <= TURN_WORK and pongs >= 2
    reply, works, pongs = value(world, line, encode("ACKJOB", *ids))
    assert reply == 12_000
    assert max(works) <= TURN_WORK and pongs >= 2
    assert not world.n.jobs


def test_all_ids_are_looked_at_first(world: World) -> None:
    """C4.3 Commands with several ids check all ids first (G6.3)."""
    ids = fill(world, 2_000)
    reply, _, _ = value(world, world.wire(), encode("ACKJOB", *ids, "x"))
    assert str(reply) == "BADID Invalid Job ID format: 'x'."
    assert len(world.n.jobs) == 2_000
    urls = [id.replace(b"-", b"_") for id in ids]
    assert value(world, world.wire(), encode("ACKJOB", *urls))[0] == 2_000


def test_a_client_that_goes(world: World) -> None:
    """L2.2 If its connection closes, a command that has begun to change something runs to its end;
    any other command stops.
    """
    n, server = world.n, world.server
    ids = fill(world, 3 * TURN_WORK)
    for words, left in ((["JSCAN", "0", "BUSYLOOP"], len(ids)), (["ACKJOB", *ids], 0)):
        line = world.wire()
        line.put(encode(*words))
        for _ in range(200):
            if not server.long_commands:
                world.turn()
        line.put(b"PAUSE q in\r\n")
        world.turn()
        assert server.long_commands
        line.reset()  # it takes no reply
        world.turn()
        assert (n.work == 0 and not server.long_commands) == (words[0] == "JSCAN")
        for _ in range(20):
            world.turn()
        assert len(n.jobs) == left and not server.long_commands
        assert n.queues[b"q"].pause == 0


class Slowly:
    """A clock that goes on by `step_ms` each time that somebody looks."""

    def __init__(self, step_ms: int) -> None:
        self.step_ns = step_ms * 1_000_000
        self.at_ns = 0

    def __call__(self) -> int:
        self.at_ns += self.step_ns
        return self.at_ns


def test_a_turn_ends_by_time_where_units_are_too_cheap(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L2.11 When the commands of a turn, without short ADDJOB, GETJOB and acks, have taken 5 ms,
    the turn counts as one that has done 5,000 units.
    """
    fill(world, 10)
    monkeypatch.setattr(world.server.system, "work_ns", Slowly(3))
    line = world.wire()
    line.put(b"JSCAN 0 COUNT 1\r\n" * 40)
    calls = []
    while sum(calls) < 40:
        before = world.server.table[b"JSCAN"].calls
        world.turn()
        calls.append(world.server.table[b"JSCAN"].calls - before)
        assert len(calls) < 100
    assert max(calls) == 2
    line = world.wire()
    line.put(b"ADDJOB q x 0\r\n" * 40)
    world.turn()
    assert world.server.table[b"ADDJOB"].calls == 40


def test_a_long_command_goes_on_in_turns_that_others_use_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L2.2 One piece at least runs in each turn.

    L2.3 If no long command has run in a turn, the first that waits does."""
    ids = fill(world, 1_500)
    monkeypatch.setattr(world.server.system, "work_ns", Slowly(11))
    line, light = world.wire(), world.wire()
    line.put(encode("DELJOB", *ids))
    for _ in range(40):
        light.put(b"QLEN q\r\n")  # it takes more than the time of a turn
        world.turn()
    assert len(world.n.jobs) == 0
    assert line.values() == [1_500]
    line.put(b"JSCAN 0 COUNT 4000\r\n")
    for _ in range(3):
        light.put(b"QLEN q\r\n")
        world.turn()
    assert len(line.values()) == 1


@pytest.mark.long
def test_a_turn_has_its_share_for_long_commands_together(world: World) -> None:
    """L2.3 When a turn has done 5,000 units, a long command that then arrives waits for the next
    turn. Short ones, of at most 100 units, never wait.
    """
    fill(world, 4_000)
    light = world.wire()
    lines = [world.wire() for _ in range(8)]
    for line in lines:
        line.put(b"JSCAN 0 COUNT 4000\r\n" * 4)
    works: list[int] = []
    while sum(works) < 8 * 4 * 4_000:
        light.put(PING)
        world.turn()
        assert light.values() == [b"PONG"]
        works.append(int(world.n.work))
        assert len(works) < 1_000
    assert max(works) <= TURN_WORK
    lines[0].put(b"INFO\r\n" * 100)
    world.turn()
    assert PIECE <= world.n.work <= PIECE + 500  # L2.10
    for line in lines[1:]:
        line.put(b"INFO\r\n" * 100)
    world.turn()
    assert TURN_WORK <= world.n.work <= TURN_WORK + PIECE + 500
    for _ in range(10):
        world.turn()
    for line in [world.wire() for _ in range(8)]:  # the first ones have much that they did not read
        line.put(b"QPEEK q 4000\r\n" * 2)  # it is not sliced
    works = []
    while sum(works) < 8 * 2 * 4_000:
        world.turn()
        works.append(int(world.n.work))
        assert len(works) < 1_000
    assert max(works) <= TURN_WORK + 4_000


def test_words(world: World) -> None:
    """L2.4 More words than the bound: `-ERR too many words for '<name>': at most <n> in one
    command`. Nothing is done.
    """
    line = world.wire()
    for name, most in (("COMMAND", 64), ("GETJOB", 1_024), ("CONFIG", 34)):
        words = [b"INFO"] * most if name == "COMMAND" else [b"FROM"] * most
        reply, _, _ = value(world, line, encode(name, *words))
        assert str(reply) == (
            f"ERR too many words for '{name.lower()}': at most {most} in one command"
        )
    assert not world.n.queues


def test_replies_end(world: World) -> None:
    """L2.5 A reply of many elements ends with the element that passes 4 MiB. GETJOB and QPEEK then
    return fewer jobs, LEASE FETCH fewer rows, JSCAN and QSCAN a cursor, BUSYLOOP or not, SLOWLOG
    GET fewer entries. GETJOB returns at most 5,000 jobs.
    """
    body = b"x" * 1_000_000
    fill(world, 8, b"big", body)
    fill(world, TURN_WORK + 10)
    line = world.wire()
    most = REPLY_BYTES // len(body) + 1
    assert len(value(world, line, b"QPEEK big 8\r\n")[0]) == most
    cursor, rows = value(world, line, b"JSCAN 0 BUSYLOOP REPLY all QUEUE big\r\n")[0]
    assert len(rows) == most and cursor != b"0"
    cursor, rows = value(world, line, b"JSCAN %s BUSYLOOP REPLY all QUEUE big\r\n" % cursor)[0]
    assert len(rows) == 8 - most and cursor == b"0"
    assert len(value(world, line, b"GETJOB COUNT 8 FROM big\r\n")[0]) == most
    assert len(value(world, line, b"GETJOB COUNT 100000 FROM q\r\n")[0]) == TURN_WORK
    pairs = [word for i in range(4) for word in (f"n{i}", "v" * 1_000)]
    world.wire().put(encode("ADDJOB", "headed", "b", 0, "HEADERS", 4, *pairs) * 1_200)
    world.until(lambda: get_queue(world.n, b"headed").length == 1_200)
    rows = world.wire().ask("GETJOB", "COUNT", 1_200, "WITHMETA", "FROM", "headed")
    assert REPLY_BYTES // 4_100 < len(rows) < REPLY_BYTES // 4_000 + 2
    names = [b"%d" % i + b"n" * 60_000 for i in range(100)]
    for name in names:
        value(world, line, encode("PAUSE", name, "in"))
    cursor, found = value(world, line, b"QSCAN 0 COUNT 1000\r\n")[0]
    assert len(found) == 70 and cursor != b"0"


def test_slow_log_has_a_bound_in_bytes(world: World) -> None:
    """L2.5 A reply of many elements ends with the element that passes 4 MiB."""
    log, n = world.server.slowlog, world.n
    world.wire().say(b"CONFIG SET slowlog-max-len 1000000\r\n")
    words = [b"x" * 10_000] * 100
    for _ in range(5_000):
        log.note(0, 1, words, 1_000_000)
    assert sum(len(one.words) * 150 for one in log.entries) <= SLOW_BYTES_MAX < 5_000 * 32 * 188
    before = n.used_bytes()
    world.pass_ms(2_000)
    assert n.used_bytes() - before > SLOW_BYTES_MAX // 2
    rows, works, _ = value(world, world.wire(), b"SLOWLOG GET -1\r\n")
    assert 100 < len(rows) < len(log.entries)
    assert sum(len(row[3]) for row in rows) < max(works) <= TURN_WORK
    entries = len(log.entries)
    log.note(0, 1, words, 1)
    assert len(log.entries) == entries + 1 - SLOW_DROPS, "the others go with later ones"
    value(world, world.wire(), b"SLOWLOG RESET\r\n")
    world.pass_ms(2_000)
    assert n.used_bytes() - before < 100_000 and len(log.entries) <= 1


def test_statistics_of_many_tubes(world: World) -> None:
    """L2.2 A long command continues in the next turns."""
    n = world.n
    line = world.wire()
    line.say(b"TUBE CREATE first fifo\r\n")
    t = tubes_of(n)
    for i in range(1_999):
        admin.create_tube(n, t, b"tube-%d" % i, b"fifottl", TubeOptions(), b"u")
    line.put(b"TUBE STATISTICS\r\n")
    world.turn()
    (long_command,) = world.server.long_commands
    assert (
        isinstance(long_command, Statistics) and len(long_command.parts) <= 5
    )  # put together in each turn
    value(world, line, b"")
    reply, works, pongs = value(world, line, b"TUBE STATISTICS\r\n")
    found = dict(zip(reply[::2], reply[1::2], strict=True))
    assert set(found) == set(t.by_name) and max(works) <= TURN_WORK + 10 and pongs >= 3
    assert found[b"first"][:1] == [b"tasks"]
    for command in (b"TUBE LIST\r\n", b"TUBE DRIVERS\r\n", b"INFO tubes\r\n"):
        assert max(value(world, line, command)[1]) >= 500
    assert b"tubes:2000\r\n" in value(world, line, b"INFO tubes\r\n")[0]


def test_tubes_are_not_without_end(world: World) -> None:
    """T2.7 A node that knows `tubes-max` tubes (10,000; those of other nodes count) creates no
    more: `<n> tubes exist, and tubes-max is <m>: drop unused tubes`.
    """
    line = world.wire()
    assert line.say(b"CONFIG SET tubes-max 2\r\n") == b"+OK\r\n"
    for name in (b"a", b"b", b"a IFNOTEXISTS"):
        head, _, rest = name.partition(b" ")
        words = [b"TUBE", b"CREATE", head, b"fifo"] + ([rest] if rest else [])
        assert line.say(b" ".join(words) + b"\r\n") == b"+OK\r\n"
    assert line.say(b"TUBE CREATE c fifo\r\n") == (
        b"-ERR 2 tubes exist, and tubes-max is 2: drop unused tubes\r\n"
    )
    line.say(b"TUBE DROP a\r\n")
    assert line.say(b"TUBE CREATE c fifo\r\n") == b"+OK\r\n"


def test_a_pause_during_a_drop(world: World) -> None:
    """T2.8 While a drop of many tasks is running (L2.2), puts and takes are answered as if the tube
    were paused. PAUSE then applies to what comes after the drop: the drop leaves the name paused as
    the last PAUSE said (T17.7). If the node restarts meanwhile, the tube has its remaining tasks,
    and only PAUSE pauses it.
    """
    n, dropper, other = world.n, world.wire(), world.wire()
    other.say(b"TUBE CREATE t fifo\r\n")
    t = tubes_of(n)
    tube = t.by_name[b"t"]
    for _ in range(3 * TURN_WORK):
        operations.put(n, t, tube, b"body", 0, PutSpec(), 0, 0)
    asked = [b"TUBE PUT t b", b"TUBE TAKE t TIMEOUT 0", b"GETJOB NOHANG FROM t", b"PAUSE t out"]
    asked += [b"ADDJOB t b 0"]
    dropper.put(b"TUBE DROP t\r\n")
    other.put(b"\r\n".join([*asked, b""]))
    world.turn()
    assert world.server.long_commands
    world.turn()
    assert t.by_name[b"t"] is tube and tube.pause == PAUSE_OUT
    put, take, get, pause, add = bytes(other.unread).splitlines()
    assert put.startswith(b"-PAUSED") and add.startswith(b"-PAUSED")
    assert (take, get, pause) == (b"*-1", b"*-1", b"+out")
    assert value(world, dropper, b"")[0] == b"OK"
    assert n.queues[b"t"].pause == PAUSE_OUT and n.queues[b"t"].length == 0
    assert not t.by_name


def test_grants_are_not_without_end(world: World) -> None:
    """T10.5 There are at most 5,000; one more is refused with `there are 5000 grants, the most a
    node keeps: revoke some, or use roles`.
    """
    n, line = world.n, world.wire()
    line.say(b"TUBE CREATE t fifo\r\n")
    t = tubes_of(n)
    for i in range(5_000):
        admin.grant(n, t, b"u%d" % i, t.by_name[b"t"], 1)
    admin.grant(n, t, b"u1", t.by_name[b"t"], 2)
    with pytest.raises(TubeError) as refused:
        admin.grant(n, t, b"u5000", t.by_name[b"t"], 1)
    assert text_of(refused.value).startswith(b"there are 5000 grants, the most a node keeps")
    assert len(value(world, line, b"TUBE GRANTS\r\n")[0]) == 5_000


def test_qpeek_has_a_bound(world: World) -> None:
    """S3.2 At most 5,000 jobs (L2.5)."""
    ids = fill(world, TURN_WORK + 10)
    line = world.wire()
    for count, shown in ((b"9999999", ids[:TURN_WORK]), (b"-9999999", ids[:9:-1])):
        rows, works, _ = value(world, line, b"QPEEK q %s\r\n" % count)
        assert [row[1] for row in rows] == shown and max(works) <= TURN_WORK


def test_names_that_clients_wait_for_are_memory(make_world: Make) -> None:
    """V1.7 A GETJOB that would wait for queues that do not exist is refused if there is no room for
    them (M5.4): `-OOM clients wait for new queues of <n> bytes, and may have <n>, not <n>
    more: wait for fewer names, or raise maxmemory` While memory is above 100 %, a PAUSE that would
    make a queue gets the error of C3.5, and so does a LEASE OPEN that would make a group.
    """
    world = make_world(maxmemory="2mb")
    n = world.n
    lines = []
    for i in range(8):
        lines.append(world.wire())
        names = [b"%d-%d" % (i, k) for k in range(100)]
        reply = lines[-1].say(encode("GETJOB", "FROM", *names))
    assert reply.startswith(b"-OOM clients wait for new queues of ")
    assert b", and may have 262144, not %d more: " % sum(map(bare_size, names)) in reply
    assert n.bare_bytes <= 2**21 // 8 and n.counted_bytes() < 2**19 and len(n.waiters) > 1
    assert world.wire().say(b"ADDJOB new b 0\r\n").startswith(b"+D-"), "others are let in"
    n.base_bytes += 2**21
    for line in (b"PAUSE other in\r\n", b"LEASE OPEN g o q\r\n"):
        assert world.wire().say(line).startswith(b"-OOM command not allowed when used memory > ")
    n.base_bytes -= 2**21
    assert world.wire().say(b"PAUSE 0-1 in\r\n") == b"+in\r\n"
    assert world.wire().say(b"PAUSE other none\r\n") == b"+none\r\n"
    assert world.wire().say(b"GETJOB NOHANG FROM other\r\n") == b"*-1\r\n"
    before = n.used_bytes()
    for line in lines:
        line.close()
    for _ in range(3):
        world.turn()
    assert n.used_bytes() < before and n.wait_bytes == 0


def test_patterns_of_config_get(world: World) -> None:
    """C7.7 at most 32 of at most 128 bytes each."""
    line = world.wire()
    long = b"ERR a pattern has at most 128 bytes: no option has a longer name"
    assert str(value(world, line, encode("CONFIG", "GET", "*" * 129))[0]).encode() == long
    assert value(world, line, encode("CONFIG", "GET", "*" * 128))[0]
    found = value(world, line, encode("CONFIG", "GET", "*m?xmem[n-p]r[^x]", "maxm*ory"))[0]
    assert found[::2] == [b"maxmemory"]


def test_before_the_log_in(make_world: Make) -> None:
    """C2.9 A client that must authenticate and has not, or an IPROTO guest without any right, is
    closed if more than 64 KiB of its replies are unread or more than 1 MiB of its commands have not
    run.
    """
    world = make_world(requirepass=PASSWORD, client_output_buffer_limit="normal 0 0 0")
    server = world.server
    server.login_ms = 0  # only what it leaves unread can close it
    line = world.wire()
    assert line.say(encode("AUTH", PASSWORD)) == b"+OK\r\n"
    line.stop_reading()
    (c,) = server.clients.values()
    while c.wire_bytes <= 4 * 65_536:  # the kernel may take some more of it later
        rest = encode("ECHO", "x" * 10_000)
        line.put(rest)
        world.settle()
    assert server.figures.strangers_closed == 0
    line.put(encode("AUTH", "wrong"))
    ends_at = time.monotonic() + 30  # a thread looks at the password
    while server.figures.strangers_closed == 0 and time.monotonic() < ends_at:
        world.settle()
    assert server.figures.strangers_closed == 1
    assert world.wire().say(PING) == b"-NOAUTH Authentication required.\r\n"


def test_a_monitor_that_does_not_read(world: World) -> None:
    """C7.11 A client in MONITOR with more than 8 MiB of unread replies is closed, whatever
    `client-output-buffer-limit` allows.
    """
    server, line, monitor = world.server, world.wire(), world.wire()
    assert monitor.say(b"MONITOR\r\n") == b"+OK\r\n"
    monitor.stop_reading()
    most = 0
    for _ in range(400):
        line.say(encode("ECHO", "x" * 1_000) * 100)
        most = max([most, *[int(c.wire_bytes) for c in server.clients.values()]])
        if server.figures.output_closed:
            break
    assert server.figures.output_closed == 1 and 4 << 20 < most < 9 << 20
    assert line.say(PING) == b"+PONG\r\n" and not server.monitors


def test_commands_before_the_log_in(make_world: Make) -> None:
    """C2.9 INFO counts both in `closed_before_login`."""
    world = make_world(requirepass=PASSWORD)
    server = world.server
    server.login_ms = 0
    line = world.wire()
    server.paused_until_ms = server.n.now_ms + 600_000  # as CLIENT PAUSE does
    for _ in range(10_000):
        if line.is_closed:
            break
        line.put(PING * 10_000)
        world.turn()
    assert server.figures.strangers_closed == 1 and not server.clients


@pytest.mark.long
def test_a_large_batch_is_taken_in_pieces(world: World) -> None:
    """Y2.7 A large batch is taken over several turns (L2.2), and becomes the group's batch when it
    has all its jobs. A NEXT of another connection waits for that. If the lease ends first, its jobs
    go back.
    """
    n = world.n
    fill(world, 12_000)
    mine, other = world.wire(), world.wire()
    epoch = int(value(world, mine, b"LEASE OPEN g me q\r\n")[0])
    following = b"LEASE NEXT g %d 1 COUNT 100000 TTL 60000\r\n" % epoch
    mine.put(following)
    world.turn()
    other.put(following)
    world.turn()
    assert len(world.server.long_commands) == 2
    assert value(world, mine, b"")[0] == value(world, other, b"")[0] == 12_000
    assert len(n.leases.groups[b"g"].batches) == 1 and n.queues[b"q"].length == 0
    reply, works, _ = value(world, mine, b"LEASE RELEASE g %d\r\n" % epoch)
    assert reply == n.queues[b"q"].length == 12_000 and max(works) <= TURN_WORK

    mine.put(following.replace(b" 1 COUNT", b" 2 COUNT"))
    world.turn()
    assert n.leases.groups[b"g"].filling is not None
    check(n)
    other.put(b"LEASE OPEN g you q\r\n")
    world.turn()
    newer = int(value(world, other, b"")[0])
    assert str(value(world, mine, b"")[0]).startswith("FENCED")
    assert n.queues[b"q"].length == 12_000 and n.leases.groups[b"g"].epoch == newer
    check(n)
    value(world, other, b"LEASE NEXT g %d 1 COUNT 100000 TTL 60000\r\n" % newer)
    reply, works, _ = value(world, other, b"LEASE COMMIT g %d 1\r\n" % newer)
    assert reply == 12_000 and max(works) <= TURN_WORK and not n.jobs


def test_refused_connections_that_are_gone(
    make_world: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Connections refused by C1.7 fill no log: they are counted."""
    world = make_world(maxclients="1")
    for _ in range(4):
        assert world.wire()("CONFIG", "GET", "nothing") == []
    caplog.set_level("INFO")
    caplog.clear()
    for _ in range(50):
        world.wire().reset()
    world.settle()
    assert world.server.figures.rejected == 50
    assert own_lines(caplog) == []
