"""Odd settings, killed clients, errors of our own: the server goes on and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from door import Door, taken
from gate_box import Kept
from raw_resp import encode, wait_for

from tuque.core.procedures import check, memory_level
from tuque.server.clients import Client
from tuque.server.dispatch import HANDLERS
from tuque.server.faults import drop_turn
from tuque.server.journaling import close_journal
from tuque.server.registry import COMMANDS
from tuque.server.state import Server

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
def test_the_greatest_settings_overflow_nowhere(door: Door, name: str, value: str) -> None:
    """Numbers of the compiled modules have 64 bits, and settings are multiplied there."""
    assert door(f"CONFIG SET {name}", value) == b"+OK\r\n"
    door.add()
    assert memory_level(door.n) == 0
    assert door.n.limits.memory_bytes * 20 < 2**61
    assert max(int(door.s.out_hard), int(door.s.out_soft_ms), int(door.s.slow_ns)) < 2**61
    check(door.n)


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
def test_a_bug_in_a_command_is_told_and_the_node_goes_on(door: Door) -> None:
    id = door.add()
    assert door("PING") == b"-ERR internal error, the log of the server says more\r\n"
    assert door("ACKJOB", id) == b":1\r\n"


@pytest.mark.usefixtures("bug")
def test_a_bug_that_damaged_the_tables_stops_the_node(door: Door) -> None:
    door.add()
    with pytest.raises(AssertionError):
        door("PING x y")


@pytest.mark.usefixtures("bug")
def test_the_turn_that_broke_off_never_was(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "always")
    box = kept.box
    producer = box.connect()
    heard = box.say(producer, encode("ADDJOB", "q", "kept", 0))
    wait_for(lambda: kept.committer.durable_seq == 1)
    kept.stall()
    heard += box.say(producer, encode("ADDJOB", "q", "kept too", 0))  # its reply is held
    wait_for(kept.asked)
    with pytest.raises(AssertionError):
        box.say(producer, encode("ADDJOB", "q", "never was", 0) + encode("PING", "x", "y"))
    kept.disk.may_sync.set()
    box.n.job_bytes -= 1
    drop_turn(box.server)
    assert close_journal(box.pump) == ""
    box.pump.close_all()
    heard += producer.read_to_end()
    assert heard.count(b"+D-") == 2
    again = Kept(tmp_path / "again", "always", tmp_path / "journal")
    assert [job.body for job in again.box.n.jobs.values()] == [b"kept", b"kept too"]
    again.close()


def test_an_unknown_command_is_not_answered_either_when_replies_are_off(door: Door) -> None:
    door("CLIENT REPLY OFF")
    assert door("NOSUCH") == b""
    assert door("CLIENT REPLY ON") == b"+OK\r\n"
    door("CLIENT REPLY SKIP")
    assert door("NOSUCH") == b""
    assert door("PING") == b"+PONG\r\n"


def test_a_waiting_client_that_was_killed_gets_no_job(door: Door) -> None:
    """The kill and the job come in one turn, before the connection is closed."""
    waiting = door.connect()
    assert door("GETJOB FROM q", by=waiting) == b""
    assert door(f"CLIENT KILL ID {waiting.number}") == b":1\r\n"
    door.add("q", "b", "RETRY", "0", "REPLICATE", "1")
    assert taken(waiting) == b""
    assert door("QLEN q") == b":1\r\n"
    assert door.info("clients")["blocked_clients"] == "0"
