"""A real server: clients that wait for jobs, jobs that come back, jobs that are late."""

from __future__ import annotations

import time

import pytest

from lab import RealServer
from raw_resp import NULL, Wire, encode
from until import until


def blocked_on(wire: Wire, queue: str) -> int:
    """How many clients wait on the queue."""
    stat = wire("QSTAT", queue)
    return 0 if stat is NULL else int(stat[stat.index(b"blocked") + 1])


def wait_until_blocked(wire: Wire, queue: str, count: int = 1) -> None:
    """Wait until that many clients wait on the queue."""
    until(lambda: blocked_on(wire, queue) == count, f"make a client wait on {queue}")


def test_a_waiting_client_is_woken(wire: Wire, other: Wire) -> None:
    wire.send("GETJOB", "FROM", "woken-a", "woken-b")
    wait_until_blocked(other, "woken-b")
    job_id = other.add("woken-b", b"\x00\r\nbody")
    assert wire.read() == [[b"woken-b", job_id.encode(), b"\x00\r\nbody"]]
    assert blocked_on(other, "woken-a") == 0


def test_waiting_ends_with_a_null_array(wire: Wire) -> None:
    begin = time.monotonic()
    wire.raw(encode("GETJOB", "TIMEOUT", 150, "FROM", "nothing"))
    assert wire.sock.recv(64) == b"*-1\r\n"
    assert 0.14 <= time.monotonic() - begin < 5


def test_resp3_null(wire: Wire) -> None:
    wire("HELLO", 3)
    wire.raw(encode("GETJOB", "TIMEOUT", 1, "FROM", "nothing"))
    assert wire.sock.recv(64) == b"_\r\n"


def test_a_waiting_client_gets_as_many_as_it_asked_for(wire: Wire, other: Wire) -> None:
    """V3 (D5): COUNT holds for a client that waited too."""
    other("PAUSE", "counted", "out")
    wire.send("GETJOB", "WITHCOUNTERS", "COUNT", 3, "FROM", "counted")
    wait_until_blocked(other, "counted")
    ids = [other.add("counted", str(i)).encode() for i in range(4)]
    assert wire.is_quiet(0.05)
    other("PAUSE", "counted", "none")
    jobs = wire.read()
    assert [job[1] for job in jobs] == ids[:3]
    assert jobs[0][3:] == [b"nacks", 0, b"additional-deliveries", 0]
    assert other("QLEN", "counted") == 1


def test_the_one_that_waited_longest_is_served_first(node: RealServer, other: Wire) -> None:
    waiting = []
    for i in range(3):
        waiting.append(node.wire())
        waiting[i].send("GETJOB", "FROM", "fifo")
        wait_until_blocked(other, "fifo", i + 1)
    for wire in waiting:
        job_id = other.add("fifo")
        assert wire.read()[0][1] == job_id.encode()


def test_what_is_sent_while_blocked_runs_afterwards(wire: Wire, other: Wire) -> None:
    """C3.9 Input of a blocked client is kept and runs afterwards in order."""
    wire.raw(
        encode("GETJOB", "FROM", "piped")
        + encode("QLEN", "piped")
        + encode("GETJOB", "TIMEOUT", 50, "FROM", "piped")
        + b"PING last\r\n"
    )
    wait_until_blocked(other, "piped")
    wire.raw(encode("ECHO-is-unknown"))
    assert wire.is_quiet(0.05)
    other.add("piped")
    assert wire.read()[0][0] == b"piped"
    assert [wire.read() for _ in range(3)] == [0, NULL, b"last"]
    assert wire.read().startswith("ERR unknown command 'ECHO-is-unknown'")


def test_a_fault_behind_a_waiting_command_is_answered_after_it(wire: Wire, other: Wire) -> None:
    """C2.4 The commands before it are answered first."""
    wire.raw(encode("GETJOB", "FROM", "faulty") + b"*x\r\n")
    wait_until_blocked(other, "faulty")
    assert wire.is_quiet(0.05)
    job_id = other.add("faulty")
    assert wire.read()[0][1] == job_id.encode()
    assert wire.read() == "ERR Protocol error: invalid multibulk length"
    assert wire.read_to_end() == b""


def test_much_that_is_sent_while_blocked_keeps_its_order(wire: Wire, other: Wire) -> None:
    """Many reads' worth, with another wait in the middle; it is run in pieces."""
    count = 30_000
    wire.send("GETJOB", "FROM", "much")
    wait_until_blocked(other, "much")
    for i in range(count):
        if i == count // 2:
            wire.send("GETJOB", "FROM", "much")
        wire.raw(b"PING %d\r\n" % i)
    other.add("much", "1")
    assert wire.read()[0][2] == b"1"
    assert [wire.read() for _ in range(count // 2)] == [b"%d" % i for i in range(count // 2)]
    wait_until_blocked(other, "much")
    other.add("much", "2")
    assert wire.read()[0][2] == b"2"
    assert [wire.read() for _ in range(5)] == [b"%d" % (count // 2 + i) for i in range(5)]
    wire.raw(b"PING last\r\n")
    for _ in range(count // 2 - 5):
        last = wire.read()
    assert [last, wire.read()] == [b"%d" % (count - 1), b"last"]


def test_a_client_that_leaves_takes_nothing(node: RealServer, other: Wire) -> None:
    gone = node.wire()
    gone.send("GETJOB", "FROM", "left")
    wait_until_blocked(other, "left")
    gone.close()
    wait_until_blocked(other, "left", 0)
    other.add("left")
    assert other("QLEN", "left") == 1


@pytest.mark.parametrize("half", [True, False])
def test_a_half_closed_socket_gets_all_it_is_owed(node: RealServer, half: bool) -> None:
    wire = node.wire()
    wire.raw(encode("PING", "a" * 300_000) + encode("ADDJOB", "half", "b", 0) + b"PING\r\nQUIT\r\n")
    if half:
        wire.sock.shutdown(1)
    heard = wire.read_to_end()
    assert len(heard) > 300_000
    assert heard.endswith(b"+PONG\r\n+OK\r\n")


def test_timers_of_jobs(wire: Wire) -> None:
    """RETRY, from the delivery (D1), DELAY, NACK DELAY and TTL are times of a clock that runs."""
    began = time.monotonic()
    again = wire.add("again", "b", "RETRY", 1)
    late = wire.add("late", "b", "DELAY", 1)
    short = wire.add("short", "b", "TTL", 1)
    undone = wire.add("undone")
    assert wire.get("undone") == [undone]
    assert wire("NACK", "DELAY", "0.3", undone) == 1
    assert wire("QLEN", "late") == 0
    assert wire.show(late)["state"] == b"active"
    assert wire("WORKING", late).startswith("N")  # D11: nothing to work on yet
    job = wire("GETJOB", "WITHCOUNTERS", "TIMEOUT", 5000, "FROM", "undone")[0]
    assert 0.29 <= time.monotonic() - began < 10
    assert job[4] == 1
    assert wire("ACKJOB", undone) == 1
    taken = time.monotonic()
    assert wire.get("again") == [again]
    assert wire("GETJOB", "TIMEOUT", 5000, "FROM", "late")[0][1] == late.encode()
    assert 0.95 <= time.monotonic() - began < 10
    job = wire("GETJOB", "WITHCOUNTERS", "TIMEOUT", 5000, "FROM", "again")[0]
    assert time.monotonic() - taken >= 0.999  # the clock of the node counts whole ms
    assert job[1:2] + job[3:] == [again.encode(), b"nacks", 0, b"additional-deliveries", 1]
    assert wire("ACKJOB", again, late) == 2
    until(lambda: wire.show(short) == {})
    assert wire("QLEN", "short") == 0


def test_working_puts_the_retry_off(wire: Wire) -> None:
    job_id = wire.add("busy", "b", "RETRY", 60)
    assert wire.get("busy") == [job_id]
    until(lambda: wire.show(job_id)["next-requeue-within"] < 59_950)
    begin = time.monotonic()
    assert wire("WORKING", job_id) == 60
    left_ms = wire.show(job_id)["next-requeue-within"]
    assert left_ms >= 60_000 - (time.monotonic() - begin) * 1000 - 1
    assert wire("ACKJOB", job_id) == 1
    assert wire("WORKING", job_id).startswith(("NOJOB", "ACKED"))
