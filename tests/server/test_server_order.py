"""Producers that wait for copies: one pump, and another node that the test plays itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pump_box import PumpBox
from raw_resp import Wire, encode
from tuque.core.dispatch.messages import on_link_up, on_message
from tuque.core.msgs import GotJob, ReplJob, ReplJobs
from tuque.core.node.peers import slot_for
from tuque.server.replies.waiting import HOLES_MAX, STALL_MS
from tuque.server.state.server import apply_settings

OTHER = b"0123456789" * 4
TWO = ("REPLICATE", 2)


class Pair:
    """A pump whose one peer is played by the test."""

    def __init__(self, here: Path, **options: str) -> None:
        self.box = PumpBox(here, **options)
        self.n = self.box.n
        self.slot = int(slot_for(self.n, OTHER))
        on_link_up(self.n, self.slot, True)
        apply_settings(self.box.server)
        self.wire = self.box.connect()

    def sent(self) -> list[bytes]:
        """Ids of the jobs that the peer was sent since the last look."""
        peer = self.n.peers[self.slot]
        ids: list[bytes] = []
        for m in peer.outbox:
            if isinstance(m, ReplJob):
                ids.append(m.id)
            elif isinstance(m, ReplJobs):
                ids += [m.first.id, *(id for id, _, _ in m.others)]
        peer.outbox.clear()
        peer.is_dirty = False
        self.n.dirty_peers.clear()
        return ids

    def confirm(self, *ids: bytes) -> None:
        """The peer has stored these."""
        on_message(self.n, self.slot, GotJob(list(ids)))

    def say(self, *pieces: bytes, by: Wire | None = None) -> list[bytes]:
        """Send; the lines that come back."""
        return self.box.say(by or self.wire, *pieces).splitlines()

    def hear(self, by: Wire | None = None) -> list[bytes]:
        """The lines that come without sending anything."""
        return self.box.hear(by or self.wire).splitlines()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """A node with one peer."""
    made = Pair(tmp_path)
    yield made
    made.box.check()
    made.box.close()


def add(body: str, *options: str | int, timeout_ms: int = 0) -> bytes:
    """An ADDJOB of two copies, unless the options say otherwise."""
    return encode("ADDJOB", "q", body, timeout_ms, *(options or TWO))


def test_side_by_side_and_answered_in_order(pair: Pair) -> None:
    """Jobs of one connection are replicated side by side; replies keep the order of commands."""
    assert pair.say(add("1") + add("2") + add("3", "REPLICATE", 1) + add("4")) == []
    one, two, four = pair.sent()
    pair.confirm(four)
    pair.confirm(two)
    assert pair.hear() == []
    pair.confirm(one)
    lines = pair.hear()
    assert [lines[0], lines[1], lines[3]] == [b"+" + one, b"+" + two, b"+" + four]
    assert lines[2].startswith(b"+D-") and len(lines) == 4
    assert pair.box.server.blocked == 0


def test_other_commands_wait_for_all_adds_before_them(pair: Pair) -> None:
    assert pair.say(add("1") + encode("PING") + add("2") + encode("QLEN", "q")) == []
    (one,) = pair.sent()  # the second stands behind the PING
    pair.confirm(one)
    assert pair.hear() == [b"+" + one, b"+PONG"]
    (two,) = pair.sent()
    pair.confirm(two)
    assert pair.hear() == [b"+" + two, b":2"]


def test_errors_of_adds_keep_their_place(pair: Pair) -> None:
    bad = add("x", "REPLICATE", 9) + add("x", "WHAT")
    assert pair.say(add("1") + bad + encode("ADDJOB", "q")) == []
    (one,) = pair.sent()
    pair.confirm(one)
    first, norepl, syntax, arity = pair.hear()
    assert first == b"+" + one
    assert norepl.startswith(b"-NOREPL ")
    assert syntax == b"-ERR syntax error: ADDJOB has no option 'WHAT'"
    assert arity == b"-ERR wrong number of arguments for 'addjob' command"


def test_a_broken_stream_is_told_after_what_waits(pair: Pair) -> None:
    """C2.4: commands before it are answered first."""
    assert pair.say(add("1") + b"*1\r\n+nonsense\r\n") == []
    (one,) = pair.sent()
    pair.confirm(one)
    lines = pair.hear()
    assert lines == [b"+" + one, b"-ERR Protocol error: expected '$', got '+'"]
    assert not pair.box.is_open(pair.wire)


def test_reply_modes(pair: Pair) -> None:
    """C7.3: after CLIENT REPLY OFF commands run without replies."""
    assert pair.say(encode("CLIENT", "REPLY", "SKIP") + add("1") + add("2")) == []
    one, two = pair.sent()
    pair.confirm(one)
    assert pair.hear() == []
    pair.confirm(two)
    assert pair.hear() == [b"+" + two]
    pair.say(encode("CLIENT", "REPLY", "OFF") + add("3"))
    pair.say(encode("CLIENT", "REPLY", "ON"))
    assert pair.hear() == []  # it waits for the third
    pair.confirm(*pair.sent())
    assert pair.hear() == [b"+OK"]
    assert pair.say(encode("QLEN", "q")) == [b":3"]


def test_timeouts_keep_the_order(pair: Pair) -> None:
    """R5.1: the producer gets -NOREPL Timeout reached ..."""
    assert pair.say(add("1", timeout_ms=10_000) + add("2", timeout_ms=30)) == []
    one, _ = pair.sent()
    pair.n.now_ms += 1000
    assert pair.hear() == []
    pair.confirm(one)
    first, second = pair.hear()
    assert first == b"+" + one
    assert second.startswith(b"-NOREPL Timeout reached before replicating")


def test_a_producer_that_goes_away_takes_its_adds_along(pair: Pair) -> None:
    """R7.1: a client that disconnects while its ADDJOB waits: as R5.2."""
    other = pair.box.connect()
    pair.say(add("1") + add("2"), by=other)
    one, _ = pair.sent()
    other.close()
    pair.hear()
    assert len(pair.n.jobs) == 0 and len(pair.n.adding) == 0
    pair.confirm(one)
    assert pair.hear() == []
    assert pair.box.server.blocked == 0


def test_a_killed_producer(pair: Pair) -> None:
    other = pair.box.connect()
    pair.say(add("1") + encode("PING"), by=other)
    number = max(pair.box.server.by_number)
    assert pair.say(encode("CLIENT", "KILL", "ID", number)) == [b":1"]
    assert len(pair.n.jobs) == 0
    assert pair.hear(other) == [] and not pair.box.is_open(other)


def test_flushall_answers_those_who_wait(pair: Pair) -> None:
    """G2.4: -NOREPL job removed (expired?) before the requested replication level was achieved"""
    other = pair.box.connect()
    pair.say(add("1") + encode("PING"), by=other)
    assert pair.say(encode("DEBUG", "FLUSHALL")) == [b"+OK"]
    error, pong = pair.hear(other)
    assert error.startswith(b"-NOREPL job removed (expired?)") and pong == b"+PONG"


def test_an_ack_completes_the_add(pair: Pair) -> None:
    """A1.6: a producer that still waits for the job gets its id."""
    other = pair.box.connect()
    pair.say(add("1"), by=other)
    (one,) = pair.sent()
    assert pair.say(encode("ACKJOB", one)) == [b":1"]
    assert pair.hear(other) == [b"+" + one]


def test_a_long_pipeline_is_bounded(pair: Pair) -> None:
    """Everything that grows has a limit (L1): so many replies of one client wait."""
    count = HOLES_MAX + 500
    commands = b"".join([add(str(i)) for i in range(count)])
    assert pair.say(commands) == []
    assert len(pair.n.adding) == HOLES_MAX
    ids: list[bytes] = []
    heard: list[bytes] = []
    for _ in range(2):
        sent = pair.sent()
        ids += sent
        pair.confirm(*sent)
        heard += pair.hear()
    assert heard == [b"+" + one for one in ids] and len(ids) == count


def test_no_room_on_the_link_stops_producers(pair: Pair) -> None:
    """B2.4: when it is full ADDJOB waits or fails, and nothing is dropped in silence."""
    peer = pair.n.peers[pair.slot]
    peer.has_room = False
    pair.box.server.is_crowded = True
    assert pair.say(add("1") + encode("PING")) == []
    assert pair.sent() == [] and len(pair.n.jobs) == 0
    other = pair.box.connect()
    assert pair.say(add("x", "REPLICATE", 1), by=other)[0].startswith(b"+D-")
    assert pair.say(add("2", timeout_ms=50), by=other) == []
    pair.n.now_ms += STALL_MS
    assert pair.hear(other)[0].startswith(b"-NOREPL Timeout reached")
    assert pair.hear() == []
    peer.has_room = True
    pair.box.server.is_crowded = False
    assert pair.hear() == []
    (one,) = pair.sent()
    pair.confirm(one)
    assert pair.hear() == [b"+" + one, b"+PONG"]
    assert pair.box.server.stalled == {}


def test_a_stalled_producer_is_not_read_without_end(pair: Pair) -> None:
    pair.n.peers[pair.slot].has_room = False
    pair.box.server.is_crowded = True
    number = max(pair.box.server.by_number)
    client = pair.box.server.by_number[number]
    body = "x" * 60_000
    pair.wire.sock.setblocking(False)
    for _ in range(200):
        try:
            pair.wire.sock.send(add(body))
        except BlockingIOError:
            break
        pair.hear()
    else:
        raise AssertionError("it reads on")
    assert client.is_full and client.todo_bytes < 2 << 20
    pair.n.peers[pair.slot].has_room = True
    pair.box.server.is_crowded = False
    heard = 0
    while client.todo:
        pair.hear()
        pair.confirm(*pair.sent())
        heard += len(pair.hear())
    assert heard >= 10
    assert not client.is_full
