"""SPEC L2: every command has a bound, and what goes beyond it stops nobody else."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

import hiredis
import pytest
from node_by_hand import Line, Wired

from own_log import own_lines
from raw_resp import encode
from tuque.client.api import url_id
from tuque.core.copies.add import on_addjob, settle
from tuque.core.model.job import PLAIN
from tuque.core.model.timers import PIECE, REPLY_BYTES, TURN_WORK
from tuque.core.node.queue import PAUSE_OUT
from tuque.core.queues.procedures import check
from tuque.server.commands.tube_admin import Statistics
from tuque.server.log.slowlog import SLOW_BYTES_MAX
from tuque.server.replies.errors import text_of
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.options import PutSpec, TubeOptions
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks import admin, operations

PING = b"PING\r\n"
PASSWORD = "a password of some length"


def fill(wired: Wired, count: int, queue: bytes = b"q", body: bytes = b"body") -> list[bytes]:
    """Jobs in a queue, added without the wire; their ids."""
    n = wired.box.n
    spec = settle(n, PLAIN)
    return [on_addjob(n, queue, body, spec, -1, 0, 0).id for _ in range(count)]


def value(wired: Wired, line: Line, command: bytes) -> tuple[Any, list[int], int]:
    """The reply of a command, the work of each turn that it took, and how often another client
    was answered meanwhile."""
    other = wired.line()
    other.sock.setblocking(False)
    line.sock.setblocking(False)
    reader, works, pongs, left = hiredis.Reader(), [], 0, command
    for _ in range(100_000):
        if left:
            try:
                left = left[line.sock.send(left) :]
            except BlockingIOError:
                pass
        other.sock.send(PING)
        wired.pump.turn(0)
        works.append(int(wired.box.n.work))
        try:
            reader.feed(line.sock.recv(1 << 20))
        except BlockingIOError:
            pass
        reply = reader.gets()
        if reply is not False:
            return reply, works, pongs
        pongs += other.sock.recv(7) == b"+PONG\r\n"
    raise AssertionError("no reply")


def test_a_long_command_goes_on_in_the_next_turns(wired: Wired) -> None:
    """L2.2 A long command continues in the next turns. Meanwhile the later commands of its
    connection wait (C3.9), and other connections are served; the command sees what they change.
    """
    ids = fill(wired, 12_000)
    line = wired.line()
    reply, works, pongs = value(wired, line, b"JSCAN 0 COUNT 100000000\r\n")
    assert reply[0] == b"0" and sorted(reply[1]) == sorted(ids)
    assert max(works) <= TURN_WORK and pongs >= 2
    reply, works, pongs = value(wired, line, encode("ACKJOB", *ids))
    assert reply == 12_000
    assert max(works) <= TURN_WORK and pongs >= 2
    assert not wired.box.n.jobs


def test_all_ids_are_looked_at_first(wired: Wired) -> None:
    """C4.3 Commands with several ids check all ids first (G6.3)."""
    ids = fill(wired, 2_000)
    reply, _, _ = value(wired, wired.line(), encode("ACKJOB", *ids, "x"))
    assert str(reply) == "BADID Invalid Job ID format: 'x'."
    assert len(wired.box.n.jobs) == 2_000
    urls = [url_id(id.decode()) for id in ids]
    assert value(wired, wired.line(), encode("ACKJOB", *urls))[0] == 2_000


def test_a_client_that_goes(wired: Wired) -> None:
    """L2.2 If its connection closes, a command that has begun to change something runs to its end;
    any other command stops.
    """
    n, server = wired.box.n, wired.box.server
    ids = fill(wired, 3 * TURN_WORK)
    for words, left in ((["JSCAN", "0", "BUSYLOOP"], len(ids)), (["ACKJOB", *ids], 0)):
        line = wired.line()
        line.sock.setblocking(False)
        command = encode(*words)
        while command:
            try:
                command = command[line.sock.send(command) :]
            except BlockingIOError:
                pass
            wired.pump.turn(0)
        for _ in range(200):
            if not server.chores:
                wired.pump.turn(0)
        line.sock.send(b"PAUSE q in\r\n")
        wired.pump.turn(0)
        assert server.chores
        line.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line.sock.close()  # a reset: it takes no reply
        wired.pump.turn(0)
        assert (n.work == 0 and not server.chores) == (words[0] == "JSCAN")
        for _ in range(20):
            wired.pump.turn(0)
        assert len(n.jobs) == left and not server.chores
        assert n.queues[b"q"].pause == 0


@pytest.mark.long
def test_a_turn_has_its_share_for_long_commands_together(wired: Wired) -> None:
    """L2.3 When a turn has done 5,000 units, a long command that then arrives waits for the next
    turn. Short ones, of at most 100 units, never wait.
    """
    fill(wired, 4_000)
    light = wired.line()
    lines = [wired.line() for _ in range(8)]
    for line in lines:
        line.sock.send(b"JSCAN 0 COUNT 4000\r\n" * 4)
    works: list[int] = []
    while sum(works) < 8 * 4 * 4_000:
        light.sock.send(PING)
        wired.pump.turn(0)
        assert light.sock.recv(7) == b"+PONG\r\n"
        works.append(int(wired.box.n.work))
        assert len(works) < 1_000
    assert max(works) <= TURN_WORK
    lines[0].sock.send(b"INFO\r\n" * 100)
    wired.pump.turn(0)
    assert PIECE <= wired.box.n.work <= PIECE + 500  # L2.10
    for line in lines[1:]:
        line.sock.send(b"INFO\r\n" * 100)
    wired.pump.turn(0)
    assert TURN_WORK <= wired.box.n.work <= TURN_WORK + PIECE + 500
    for _ in range(10):
        wired.pump.turn(0)
    for line in [wired.line() for _ in range(8)]:  # the first ones have much that they did not read
        line.sock.send(b"QPEEK q 4000\r\n" * 2)  # it is not sliced
    works = []
    while sum(works) < 8 * 2 * 4_000:
        wired.pump.turn(0)
        works.append(int(wired.box.n.work))
        assert len(works) < 1_000
    assert max(works) <= TURN_WORK + 4_000


def test_words(wired: Wired) -> None:
    """L2.4 More words than the bound: `-ERR too many words for '<name>': at most <n> in one
    command`. Nothing is done.
    """
    line = wired.line()
    for name, most in (("COMMAND", 64), ("GETJOB", 1_024), ("CONFIG", 34)):
        words = [b"INFO"] * most if name == "COMMAND" else [b"FROM"] * most
        reply, _, _ = value(wired, line, encode(name, *words))
        assert str(reply) == (
            f"ERR too many words for '{name.lower()}': at most {most} in one command"
        )
    assert not wired.box.n.queues


def test_replies_end(wired: Wired) -> None:
    """L2.5 A reply of many elements ends with the element that passes 4 MiB. GETJOB and QPEEK then
    return fewer jobs, LEASE FETCH fewer rows, JSCAN and QSCAN a cursor, BUSYLOOP or not, SLOWLOG
    GET fewer entries. GETJOB returns at most 5,000 jobs.
    """
    body = b"x" * 1_000_000
    fill(wired, 8, b"big", body)
    fill(wired, TURN_WORK + 10)
    line = wired.line()
    most = REPLY_BYTES // len(body) + 1
    assert len(value(wired, line, b"QPEEK big 8\r\n")[0]) == most
    cursor, rows = value(wired, line, b"JSCAN 0 BUSYLOOP REPLY all QUEUE big\r\n")[0]
    assert len(rows) == most and cursor != b"0"
    cursor, rows = value(wired, line, b"JSCAN %s BUSYLOOP REPLY all QUEUE big\r\n" % cursor)[0]
    assert len(rows) == 8 - most and cursor == b"0"
    assert len(value(wired, line, b"GETJOB COUNT 8 FROM big\r\n")[0]) == most
    assert len(value(wired, line, b"GETJOB COUNT 100000 FROM q\r\n")[0]) == TURN_WORK
    names = [b"%d" % i + b"n" * 60_000 for i in range(100)]
    for name in names:
        value(wired, line, encode("PAUSE", name, "in"))
    cursor, found = value(wired, line, b"QSCAN 0 COUNT 1000\r\n")[0]
    assert len(found) == 70 and cursor != b"0"


def test_slow_log_has_a_bound_in_bytes(wired: Wired) -> None:
    """L2.5 A reply of many elements ends with the element that passes 4 MiB."""
    log, n = wired.box.server.slowlog, wired.box.n
    wired.line().ask(b"CONFIG SET slowlog-max-len 1000000\r\n")
    words = [b"x" * 10_000] * 100
    for _ in range(5_000):
        log.note(0, 1, words, 1_000_000)
    assert sum(len(one.words) * 150 for one in log.entries) <= SLOW_BYTES_MAX < 5_000 * 32 * 188
    before = n.used_bytes()
    wired.pass_ms(2_000)
    assert n.used_bytes() - before > SLOW_BYTES_MAX // 2
    rows, works, _ = value(wired, wired.line(), b"SLOWLOG GET -1\r\n")
    assert 100 < len(rows) < len(log.entries)
    assert sum(len(row[3]) for row in rows) < max(works) <= TURN_WORK
    value(wired, wired.line(), b"SLOWLOG RESET\r\n")
    wired.pass_ms(2_000)
    assert n.used_bytes() - before < 100_000 and len(log.entries) <= 1


def test_statistics_of_many_tubes(wired: Wired) -> None:
    """L2.2 A long command continues in the next turns."""
    n = wired.box.n
    line = wired.line()
    line.ask(b"TUBE CREATE first fifo\r\n")
    t = tubes_of(n)
    for i in range(1_999):
        admin.create_tube(n, t, b"tube-%d" % i, b"fifottl", TubeOptions(), b"u")
    line.sock.send(b"TUBE STATISTICS\r\n")
    wired.pump.turn(0)
    (chore,) = wired.box.server.chores
    assert isinstance(chore, Statistics) and len(chore.parts) <= 5  # put together in each turn
    value(wired, line, b"")
    reply, works, pongs = value(wired, line, b"TUBE STATISTICS\r\n")
    found = dict(zip(reply[::2], reply[1::2], strict=True))
    assert set(found) == set(t.by_name) and max(works) <= TURN_WORK + 10 and pongs >= 3
    assert found[b"first"][:1] == [b"tasks"]
    for command in (b"TUBE LIST\r\n", b"TUBE DRIVERS\r\n", b"INFO tubes\r\n"):
        assert max(value(wired, line, command)[1]) >= 500
    assert b"tubes:2000\r\n" in value(wired, line, b"INFO tubes\r\n")[0]


def test_tubes_are_not_without_end(wired: Wired) -> None:
    """T2.7 A node that knows `tubes-max` tubes (10,000; those of other nodes count) creates no
    more: `<n> tubes exist, and tubes-max is <m>: drop unused tubes`.
    """
    line = wired.line()
    assert line.ask(b"CONFIG SET tubes-max 2\r\n") == b"+OK\r\n"
    for name in (b"a", b"b", b"a IFNOTEXISTS"):
        head, _, rest = name.partition(b" ")
        words = [b"TUBE", b"CREATE", head, b"fifo"] + ([rest] if rest else [])
        assert line.ask(b" ".join(words) + b"\r\n") == b"+OK\r\n"
    assert line.ask(b"TUBE CREATE c fifo\r\n") == (
        b"-ERR 2 tubes exist, and tubes-max is 2: drop unused tubes\r\n"
    )
    line.ask(b"TUBE DROP a\r\n")
    assert line.ask(b"TUBE CREATE c fifo\r\n") == b"+OK\r\n"


def test_a_pause_during_a_drop(wired: Wired) -> None:
    """T2.8 While a drop of many tasks is running (L2.2), puts and takes are answered as if the tube
    were paused. PAUSE then applies to what comes after the drop: the drop leaves the name paused as
    the last PAUSE said (T17.7). If the node restarts meanwhile, the tube has its remaining tasks,
    and only PAUSE pauses it.
    """
    n, dropper, other = wired.box.n, wired.line(), wired.line()
    other.ask(b"TUBE CREATE t fifo\r\n")
    t = tubes_of(n)
    tube = t.by_name[b"t"]
    for _ in range(3 * TURN_WORK):
        operations.put(n, t, tube, b"body", 0, PutSpec(), 0, 0)
    asked = [b"TUBE PUT t b", b"TUBE TAKE t TIMEOUT 0", b"GETJOB NOHANG FROM t", b"PAUSE t out"]
    asked += [b"ADDJOB t b 0"]
    dropper.sock.send(b"TUBE DROP t\r\n")
    other.sock.send(b"\r\n".join([*asked, b""]))
    wired.pump.turn(0)
    assert wired.box.server.chores
    wired.pump.turn(0)
    assert t.by_name[b"t"] is tube and tube.pause == PAUSE_OUT
    put, take, get, pause, add = other.sock.recv(10_000).splitlines()
    assert put.startswith(b"-PAUSED") and add.startswith(b"-PAUSED")
    assert (take, get, pause) == (b"*-1", b"*-1", b"+out")
    assert value(wired, dropper, b"")[0] == b"OK"
    assert n.queues[b"t"].pause == PAUSE_OUT and n.queues[b"t"].length == 0
    assert not t.by_name


def test_grants_are_not_without_end(wired: Wired) -> None:
    """T10.5 There are at most 5,000; one more is refused with `there are 5000 grants, the most a
    node keeps: revoke some, or use roles`.
    """
    n, line = wired.box.n, wired.line()
    line.ask(b"TUBE CREATE t fifo\r\n")
    t = tubes_of(n)
    for i in range(5_000):
        admin.grant(n, t, b"u%d" % i, t.by_name[b"t"], 1)
    admin.grant(n, t, b"u1", t.by_name[b"t"], 2)
    with pytest.raises(TubeError) as refused:
        admin.grant(n, t, b"u5000", t.by_name[b"t"], 1)
    assert text_of(refused.value).startswith(b"there are 5000 grants, the most a node keeps")
    assert len(value(wired, line, b"TUBE GRANTS\r\n")[0]) == 5_000


def test_qpeek_has_a_bound(wired: Wired) -> None:
    """S3.2 At most 5,000 jobs are shown, whatever count says (L2.5)."""
    ids = fill(wired, TURN_WORK + 10)
    line = wired.line()
    for count, shown in ((b"9999999", ids[:TURN_WORK]), (b"-9999999", ids[:9:-1])):
        rows, works, _ = value(wired, line, b"QPEEK q %s\r\n" % count)
        assert [row[1] for row in rows] == shown and max(works) <= TURN_WORK


def test_names_that_clients_wait_for_are_memory() -> None:
    """V1.7 A GETJOB that would wait for queues that do not exist is refused if there is no room for
    them (M5.4): `-OOM clients wait for new queues of <n> bytes, and may have <n>: wait for fewer
    names, or raise maxmemory` While memory is above 100 %, a PAUSE that would make a queue gets the
    error of C3.5, and so does a LEASE OPEN that would make a group.
    """
    wired = Wired(maxmemory="2mb")
    n = wired.box.n
    lines = []
    for i in range(8):
        lines.append(wired.line())
        names = [b"%d-%d" % (i, k) for k in range(100)]
        reply = lines[-1].ask(encode("GETJOB", "FROM", *names))
    assert reply.startswith(b"-OOM clients wait for new queues of ")
    assert n.bare_bytes <= 2**21 // 8 and n.counted_bytes() < 2**19 and len(n.waiters) > 1
    assert wired.line().ask(b"ADDJOB new b 0\r\n").startswith(b"+D-"), "others are let in"
    n.base_bytes += 2**21
    for line in (b"PAUSE other in\r\n", b"LEASE OPEN g o q\r\n"):
        assert wired.line().ask(line).startswith(b"-OOM command not allowed when used memory > ")
    n.base_bytes -= 2**21
    assert wired.line().ask(b"PAUSE 0-1 in\r\n") == b"+in\r\n"
    assert wired.line().ask(b"PAUSE other none\r\n") == b"+none\r\n"
    assert wired.line().ask(b"GETJOB NOHANG FROM other\r\n") == b"*-1\r\n"
    before = n.used_bytes()
    for line in lines:
        line.sock.close()
    for _ in range(3):
        wired.pump.turn(0)
    assert n.used_bytes() < before and n.wait_bytes == 0
    wired.close()


def test_patterns_of_config_get(wired: Wired) -> None:
    """C7.7 It takes at most 32 patterns of at most 128 bytes each."""
    line = wired.line()
    long = b"ERR a pattern has at most 128 bytes: no option has a longer name"
    assert str(value(wired, line, encode("CONFIG", "GET", "*" * 129))[0]).encode() == long
    assert value(wired, line, encode("CONFIG", "GET", "*" * 128))[0]
    found = value(wired, line, encode("CONFIG", "GET", "*m?xmem[n-p]r[^x]", "maxm*ory"))[0]
    assert found[::2] == [b"maxmemory"]


def test_before_the_log_in() -> None:
    """C2.9 A client that must authenticate and has not, or an IPROTO guest without any right, is
    closed if more than 64 KiB of its replies are unread or more than 1 MiB of its commands have not
    run.
    """
    wired = Wired(requirepass=PASSWORD, client_output_buffer_limit="normal 0 0 0")
    server = wired.box.server
    server.login_ms = 0  # only what it leaves unread can close it
    line = wired.line()
    assert line.ask(encode("AUTH", PASSWORD)) == b"+OK\r\n"
    line.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    (c,) = server.clients.values()
    while c.wire_bytes <= 4 * 65_536:  # the kernel may take some more of it later
        rest = encode("ECHO", "x" * 10_000)
        while rest:
            rest = rest[line.sock.send(rest) :]
            wired.turns()
    assert server.figures.strangers_closed == 0
    line.send(encode("AUTH", "wrong"))
    ends_at = time.monotonic() + 30  # a thread looks at the password
    while server.figures.strangers_closed == 0 and time.monotonic() < ends_at:
        wired.turns()
    assert server.figures.strangers_closed == 1
    assert wired.line().ask(PING) == b"-NOAUTH Authentication required.\r\n"
    wired.close()


def test_a_monitor_that_does_not_read(wired: Wired) -> None:
    """C7.11 A client in MONITOR with more than 8 MiB of unread replies is closed, whatever
    `client-output-buffer-limit` allows.
    """
    server, line, monitor = wired.box.server, wired.line(), wired.line()
    assert monitor.ask(b"MONITOR\r\n") == b"+OK\r\n"
    monitor.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    most = 0
    for _ in range(400):
        line.ask(encode("ECHO", "x" * 1_000) * 100)
        most = max([most, *[int(c.wire_bytes) for c in server.clients.values()]])
        if server.figures.output_closed:
            break
    assert server.figures.output_closed == 1 and 4 << 20 < most < 9 << 20
    assert line.ask(PING) == b"+PONG\r\n" and not server.monitors


def test_commands_before_the_log_in() -> None:
    """C2.9 INFO counts both in `closed_before_login`."""
    wired = Wired(requirepass=PASSWORD)
    server = wired.box.server
    server.login_ms = 0
    line = wired.line()
    server.paused_until_ms = server.n.now_ms + 600_000  # as CLIENT PAUSE does
    line.sock.setblocking(False)
    for _ in range(10_000):
        try:
            line.sock.send(PING * 10_000)
        except BlockingIOError:
            pass
        except (ConnectionResetError, BrokenPipeError):
            break
        wired.pump.turn(0)
    assert server.figures.strangers_closed == 1 and not server.clients
    wired.close()


@pytest.mark.long
def test_a_large_batch_is_taken_in_pieces(wired: Wired) -> None:
    """Y2.7 A large batch is taken over several turns (L2.2), and becomes the group's batch when it
    has all its jobs. A NEXT of another connection waits for that. If the lease ends first, its jobs
    go back.
    """
    n = wired.box.n
    fill(wired, 12_000)
    mine, other = wired.line(), wired.line()
    epoch = int(value(wired, mine, b"LEASE OPEN g me q\r\n")[0])
    following = b"LEASE NEXT g %d 1 COUNT 100000 TTL 60000\r\n" % epoch
    mine.sock.send(following)
    wired.pump.turn(0)
    other.sock.send(following)
    wired.pump.turn(0)
    assert len(wired.box.server.chores) == 2
    assert value(wired, mine, b"")[0] == value(wired, other, b"")[0] == 12_000
    assert len(n.leases.groups[b"g"].batches) == 1 and n.queues[b"q"].length == 0
    reply, works, _ = value(wired, mine, b"LEASE RELEASE g %d\r\n" % epoch)
    assert reply == n.queues[b"q"].length == 12_000 and max(works) <= TURN_WORK

    mine.sock.send(following.replace(b" 1 COUNT", b" 2 COUNT"))
    wired.pump.turn(0)
    assert n.leases.groups[b"g"].filling is not None
    check(n)
    other.sock.send(b"LEASE OPEN g you q\r\n")
    wired.pump.turn(0)
    newer = int(value(wired, other, b"")[0])
    assert str(value(wired, mine, b"")[0]).startswith("FENCED")
    assert n.queues[b"q"].length == 12_000 and n.leases.groups[b"g"].epoch == newer
    check(n)
    value(wired, other, b"LEASE NEXT g %d 1 COUNT 100000 TTL 60000\r\n" % newer)
    reply, works, _ = value(wired, other, b"LEASE COMMIT g %d 1\r\n" % newer)
    assert reply == 12_000 and max(works) <= TURN_WORK and not n.jobs


def test_refused_connections_that_are_gone(caplog: pytest.LogCaptureFixture) -> None:
    """Connections refused by C1.7 fill no log: they are counted."""
    caplog.set_level("INFO")
    wired = Wired(maxclients="1")
    wired.line()
    for _ in range(50):
        sock = socket.create_connection(wired.address)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
    wired.turns()
    assert wired.box.server.figures.rejected == 50
    assert own_lines(caplog) == []
    wired.close()
