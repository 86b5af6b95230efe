"""SPEC L2.6, V2.3: what ends by itself, a lease, a session, jobs, stops nobody either."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lease_by_hand import Lessee
from test_l_bounds import fill, value

from raw_resp import NULL, encode
from tuque.core.leases.expiry import RETURN_MOST
from tuque.core.model.job import LEASED
from tuque.core.model.timers import TURN_WORK
from tuque.core.queues.procedures import check
from tuque.server.loop.fairness import COMMAND_COST, TURN_READ, TURN_WRITE
from tuque.server.loop.output import DRAIN_BYTES
from tuque.tubes.model.options import PutSpec
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks import operations
from world import World

MANY = 3 * RETURN_MOST

Make = Callable[..., World]


@pytest.fixture
def world(make_world: Make) -> World:
    """One node without a journal."""
    return make_world(journal="off")


def ended(world: World, **options: int) -> tuple[Lessee, list[bytes]]:
    """A group whose lease has just ended, its ids; the first of its jobs are back."""
    ids = [world.add(**options) for _ in range(MANY)]
    g = Lessee(world, "q")
    g.next(1, MANY, 1000)
    world.jump_ms(1_001)
    world.turn()
    assert length(world) == (0 if options else RETURN_MOST)
    assert world.n.leases.returning
    check(world.n)
    return g, ids


def length(world: World) -> int:
    """The length of the queue, without a turn."""
    q = world.n.queues.get(b"q")
    return 0 if q is None else int(q.length)


def in_turn(world: World, *commands: tuple[str | bytes | int, ...]) -> list[Any]:
    """The replies of commands that the node runs in one turn."""
    world.run.put(b"".join(encode(*words) for words in commands))
    world.turn()
    return world.run.values()


def test_a_lease_ends_in_pieces(world: World) -> None:
    """L2.6 The jobs of leases that end (Y7.2) and the tasks of sessions that end (T8.2) go back
    2,000 in a turn, one lease and one session after another; up to 1,000 go back at once.
    """
    n = world.n
    g, ids = ended(world)
    assert in_turn(world, ("DELJOB", ids[-1]), ("ACKJOB", ids[-2])) == [1, 1]
    assert length(world) == 2 * RETURN_MOST
    check(n)
    world.turn()
    assert length(world) == 3 * RETURN_MOST - 2
    check(n)
    assert not n.leases.returning and not any(job.flags & LEASED for job in n.jobs.values())
    assert g("RELEASE") == 0
    check(n)


@pytest.mark.parametrize("word", ["FETCH", "COMMIT", "RELEASE", "OPEN", "FLUSH"])
def test_a_command_while_a_lease_ends(world: World, word: str) -> None:
    """Y7.5 COMMIT of an expired batch acks its jobs wherever they are by then on this node, because
    they were processed.

    Y7.6 FETCH of an expired batch leases it again. Jobs that are queued here and that no other
    client got since are taken again, which counts as a delivery. The others have left the batch
    (Y3.5).
    """
    n = world.n
    g, _ = ended(world)
    commands: dict[str, tuple[str | int, ...]] = {
        "FETCH": ("LEASE", "FETCH", "g", g.epoch, 1, 0, "COUNT", 10),
        "COMMIT": ("LEASE", "COMMIT", "g", g.epoch, 1),
        "RELEASE": ("LEASE", "RELEASE", "g", g.epoch),
        "OPEN": ("LEASE", "OPEN", "g", "other", "q"),
        "FLUSH": ("DEBUG", "FLUSHALL"),
    }
    got, reply = in_turn(world, ("GETJOB", "NOHANG", "FROM", "q"), commands[word])
    if word == "FETCH":
        rows = reply[2]
        assert rows[0][1] is None and rows[1][2] == b"body"
        assert not n.leases.returning and length(world) == 0
        assert {job.delivered_count for job in n.jobs.values()} == {2}
        assert g("COMMIT", 1) == MANY - 1 and set(n.jobs) == {got[0][1]}
    elif word == "COMMIT":
        assert reply == MANY and not n.jobs
    elif word == "FLUSH":
        assert reply == b"OK" and n.leases.bytes == 0
    else:
        world.pass_ms(10)
        assert world.qlen() == MANY - 1
    world.pass_ms(10)
    check(n)


def test_at_most_once_jobs_of_a_lease_that_ends(world: World) -> None:
    """Y7.3 An AMO job that was leased is not queued again (promise 2)."""
    g, ids = ended(world, RETRY=0)
    words = ("LEASE", "FETCH", "g", g.epoch, 1, 0, "FROM", MANY - 10)
    deleted, reply = in_turn(world, ("DELJOB", ids[-1]), words)
    assert deleted == 1
    assert all(row[1] is None for row in reply[2])
    world.pass_ms(100)
    assert world.qlen() == 0 and not any(job.flags & LEASED for job in world.n.jobs.values())


def taken(world: World, count: int) -> Any:
    """A session that holds so many tasks; its line."""
    n, line = world.n, world.wire()
    line.say(b"TUBE CREATE t fifo\r\n")
    t = tubes_of(n)
    for _ in range(count):
        operations.put(n, t, t.by_name[b"t"], b"body", 0, PutSpec(), 0, 0)
    for _ in range(count // 1_000):
        line.say(b"TUBE TAKE t TIMEOUT 0\r\n" * 1_000)
    for _ in range(5):
        world.turn()
    assert t.by_name[b"t"].taken == count
    return line


def test_a_session_ends_in_pieces(world: World) -> None:
    """L2.6 The jobs of leases that end (Y7.2) and the tasks of sessions that end (T8.2) go back
    2,000 in a turn, one lease and one session after another; up to 1,000 go back at once.
    """
    n, other = world.n, world.wire()
    line = taken(world, MANY)
    t = tubes_of(n)
    tube = t.by_name[b"t"]
    uuid = line.say(b"TUBE IDENTIFY\r\n").split(b"\r\n")[1]
    line.reset()
    left, works = [int(tube.taken)], []
    for _ in range(10):
        world.turn()
        works.append(int(n.work))
        left.append(int(tube.taken))
        check(n)
        if left[-1] == MANY - RETURN_MOST:
            assert other.say(b"TUBE IDENTIFY " + uuid + b"\r\n").startswith(b"-")
            assert other.say(b"TUBE DELETE t %d\r\n" % (MANY - 1)).startswith(b"*")
    assert max(works) <= TURN_WORK and tube.taken == 0 and tube.ready_count() == MANY - 1
    assert len({count for count in left if count}) >= 2
    assert not t.sessions_over and len(t.sessions) <= 1
    check(n)


@pytest.mark.parametrize("command", [b"GETJOB FROM q", b"GETJOB NOHANG FROM q", b"LEASE NEXT"])
def test_expired_jobs_at_the_head(world: World, command: bytes) -> None:
    """V2.3 All takes of a turn together skip at most 5,000 expired jobs, and one more each. A
    queue or tube with another one gives nothing until the next turn: then waiting clients are
    served and LEASE NEXT continues; a GETJOB with NOHANG gets nothing.
    """
    n, line = world.n, world.wire()
    n.limits.timers_per_step = 1  # takes find what timers have not removed yet
    ids = fill(world, 3 * TURN_WORK)
    live = fill(world, 1)[0]
    if command == b"LEASE NEXT":
        epoch = int(value(world, line, b"LEASE OPEN g me q\r\n")[0])
        command = b"LEASE NEXT g %d 1 COUNT 100 TTL 60000" % epoch
    for id in ids:
        n.jobs[id].expire_ms = n.now_ms
    before = len(n.jobs)
    line.put(command + b"\r\n")
    world.turn()
    assert before - len(n.jobs) <= TURN_WORK + 2
    if b"NOHANG" in command:
        assert line.values() == [NULL]
        return
    reply = value(world, line, b"")[0]
    assert reply == 1 if b"LEASE" in command else reply[0][1] == live
    assert set(n.jobs) == {live}


@pytest.mark.long
def test_a_turn_reads_only_so_much(world: World) -> None:
    """L2.8 All connections together read and run 512 KiB of requests in a turn, plus one read of
    64 KiB. Each command counts as 50 bytes more, and a body over 512 KiB counts again when it is
    complete; commands that waited, and refused ones, count too.
    """
    lines = [world.wire() for _ in range(12)]
    figures = world.server.figures
    heard: set[int] = set()
    for _ in range(16):
        for line in lines:
            line.put(b"PING\r\n" * 10_000)
        before = figures.commands
        world.turn()
        assert figures.commands - before <= 2 * TURN_READ // COMMAND_COST + 2 * 65_536 // 6
        for i, line in enumerate(lines):
            heard.update([i] if line.values() else [])
    assert heard == set(range(12))
    for line in lines:
        line.reset()  # nobody runs the rest


def test_refused_commands_count(world: World) -> None:
    """L2.8 commands that waited, and refused ones, count too."""
    lines = [world.wire() for _ in range(12)]
    figures = world.server.figures
    for line in lines:
        line.put(b"QLEN\r\n" * 10_000)
    before = figures.turned_down
    world.turn()
    world.turn()
    assert 0 < figures.turned_down - before <= 3 * TURN_READ // (COMMAND_COST + 6)


@pytest.mark.long
def test_many_that_send_much_leave_time_for_one(world: World) -> None:
    """L2.8 When connections have sent more than that, a read takes at most half of an equal share
    of the 512 KiB from each, less if their commands are short,
    at least 256 bytes. Who was not read to the end uses much.
    """
    loud = [world.wire() for _ in range(100)]
    for line in loud:
        line.put(b"PING\r\n" * 10_000)
    polite = world.wire()
    world.turn()  # it is not known yet what their bytes cost
    for _ in range(4):
        for line in loud:
            line.values()
        polite.put(b"PING\r\n")
        before = world.server.figures.commands
        heard: list[Any] = []
        while not heard:
            world.turn()
            heard = polite.values()
        assert heard == [b"PONG"]
        most = TURN_READ // 2 // COMMAND_COST
        assert 0 < world.server.figures.commands - before <= most
    for line in loud:
        line.reset()  # nobody runs the rest


def heavy(world: World, count: int) -> list[Any]:
    """Connections that each ask for a reply of 800 KB and do not read it."""
    for _ in range(4):
        world.add("big", "x" * 200_000)
    wires = [world.wire() for _ in range(count)]
    for wire in wires:
        wire.stop_reading()
    return wires


@pytest.mark.parametrize("count", [10, 50])
def test_who_uses_little_does_not_wait_for_who_uses_much(world: World, count: int) -> None:
    """L2.8 First come those that have used little lately, then new ones, then those whose
    last reads cost over 128 KiB
    """
    polite = world.wire()
    assert polite("PING") == b"PONG"
    asked = 0
    wires = heavy(world, count)
    for _ in range(2):  # new ones, then those that are known
        for wire in wires:
            wire.put(encode("QPEEK", "big", 4))
        asked += count
        for _ in range(4):
            polite.put(b"PING\r\n")
            world.turn()
            world.turn()
            assert polite.values() == [b"PONG"]
        assert 0 < made(world) < 800_000 * asked, "the others had their turns meanwhile"
        for _ in range(count + 1):
            world.turn()
        assert made(world) > 800_000 * asked


def made(world: World) -> int:
    """Bytes of replies, sent or not."""
    figures, clients = world.server.figures, world.server.clients
    return int(figures.out_bytes) + sum(int(c.wire_bytes) for c in clients.values())


def test_new_ones_come_before_those_that_use_much(world: World) -> None:
    """L2.8 First come those that have used little lately, then new ones, then those whose
    last reads cost over 128 KiB
    """
    wires = heavy(world, 10)
    for wire in wires:
        wire.put(encode("QPEEK", "big", 4))
    for _ in range(11):
        world.turn()
    new = [world.wire() for _ in range(3)]
    for wire in wires:
        wire.put(encode("QPEEK", "big", 4))
    for line in new:
        line.put(b"PING\r\n")
    world.turn()
    assert [line.values() for line in new] == [[b"PONG"]] * 3


def test_who_uses_much_has_its_turn_all_the_same(world: World) -> None:
    """L2.8 Each turn reads one new and one that uses much."""
    world.add("small", "x" * 3_000)
    busy = [world.wire() for _ in range(300)]
    (much,) = heavy(world, 1)
    much.put(encode("QPEEK", "big", 4))
    for is_known in (False, True, True):
        new = world.wire()
        before = made(world)
        for line in busy:
            line.put(encode("QPEEK", "small", 1))
        if is_known:
            much.put(encode("QPEEK", "big", 4))
            new.put(b"PING\r\n")
            world.turn()
            assert made(world) - before > 800_000
            assert sum(len(line.values()) for line in busy) < 300, "they have used the share"
            assert new.values() == [b"PONG"]
        for _ in range(4):
            world.turn()
        assert all(len(line.values()) < 2 for line in busy)


def test_a_turn_writes_only_so_much_of_what_was_refused(world: World) -> None:
    """L2.8 A turn writes 4 MiB of what sockets refused, and 1 MiB of one more;"""
    wires = heavy(world, 20)
    for wire in wires:
        wire.put(encode("QPEEK", "big", 4) * 5)
    world.settle_wires()
    for wire in wires:
        world.lab.net.set_cut(wire.node, wire.place, False)
    steps: list[int] = []
    while True:
        before = int(world.server.figures.out_bytes)
        if not world.step():
            break
        steps.append(int(world.server.figures.out_bytes) - before)
    assert max(steps) <= TURN_WRITE + DRAIN_BYTES
    assert [len(wire.values()) for wire in wires] == [5] * 20


def test_who_uses_much_waits_until_the_replies_are_written(world: World) -> None:
    """L2.8 before the rest nobody who uses much runs."""
    much, again = heavy(world, 2)
    polite = world.wire()
    assert polite("PING") == b"PONG"
    for wire in (much, again):
        wire.put(encode("QPEEK", "big", 4))
    for _ in range(3):
        world.turn()
    again.put(encode("QPEEK", "big", 4) * 9)
    world.turn()  # it has commands that wait for the next turns
    share, figures = world.node(0).pump.share, world.server.figures
    for _ in range(5):
        before = made(world)
        share.unwritten_turn = figures.turns  # another socket had to wait
        for wire in (much, polite):
            wire.put(encode("QPEEK", "big", 4) if wire is much else b"PING\r\n")
        world.turn()
        assert polite.values() == [b"PONG"]
        assert made(world) - before < 1_000
    for _ in range(20):
        world.turn()
    assert made(world) > (6 + 10) * 800_000


def test_a_turn_runs_only_so_much_of_what_waited(world: World) -> None:
    """L2.8 commands that waited, and refused ones, count too."""
    server, lines = world.server, [world.wire() for _ in range(6)]
    server.paused_until_ms = server.n.now_ms + 600_000  # as CLIENT PAUSE does
    for line in lines:
        line.put(b"PING\r\n" * 10_000)
    for _ in range(20):
        world.turn()
    before = server.figures.commands
    server.paused_until_ms = server.n.now_ms
    counts: list[int] = []
    while server.figures.commands - before < 60_000:
        world.turn()
        counts.append(server.figures.commands - before - sum(counts))
        assert len(counts) < 100
    assert max(counts) <= TURN_READ // COMMAND_COST + 65_536 // 6


def test_one_large_body_in_a_turn(world: World) -> None:
    """L2.8 All connections together read and run 512 KiB of requests in a turn, plus one read of 64
    KiB. Each command counts as 50 bytes more, and a body over 512 KiB counts again when it is
    complete.
    """
    lines = [world.wire() for _ in range(4)]
    command = encode("ADDJOB", "big", "x" * 2_000_000, 0)
    for line in lines:
        line.put(command[:-1_000])
        world.turn()
    for _ in range(60):
        world.turn()
    for line in lines:
        line.put(command[-1_000:])
    for done in range(1, 5):
        world.turn()
        assert len(world.n.jobs) == done
