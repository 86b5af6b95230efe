"""SPEC L: everything that grows has a limit, and reaching it gives the documented answer."""

from __future__ import annotations

from node_by_hand import Wired

PING = b"*1\r\n$4\r\nPING\r\n"


def closed_with(wired: Wired, data: bytes, error: bytes) -> bool:
    """Whether those bytes get that error and a close, and another client is still served."""
    reply = wired.line().ask(data)
    assert wired.line().ask(PING) == b"+PONG\r\n"
    return reply == b"-ERR Protocol error: " + error + b"\r\n<closed>"


def test_body() -> None:
    """L1.1 Reaching a limit has the effect in the last column and no other."""
    wired = Wired(max_body_bytes="1000")
    head = b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n"
    fits = head + b"$1000\r\n" + b"x" * 1000 + b"\r\n$1\r\n0\r\n"
    assert wired.line().ask(fits).startswith(b"+D-")
    error = (
        b"invalid bulk length: 1001 is over max-body-bytes (1000); "
        b"send less, or raise it with CONFIG SET (at most 512mb)"
    )
    assert closed_with(wired, head + b"$1001\r\n", error)
    whole = head + b"$1001\r\n" + b"x" * 1001 + b"\r\n$1\r\n0\r\n"
    assert closed_with(wired, whole, error)
    assert len(wired.box.n.jobs) == 1
    wired.close()


def test_lines_and_arguments(wired: Wired) -> None:
    """L1.1 Reaching a limit has the effect in the last column and no other."""
    assert closed_with(wired, b"*1048577\r\n", b"invalid multibulk length")
    assert closed_with(wired, b"a" * 70_000, b"too big inline request")


def test_samples() -> None:
    """L1.1 Reaching a limit has the effect in the last column and no other."""
    wired = Wired(slowlog_max_len="5", slowlog_log_slower_than="0")
    line = wired.line()
    line.ask(PING * 50)
    assert line.ask(b"SLOWLOG LEN\r\n") == b":5\r\n"
    wired.close()
