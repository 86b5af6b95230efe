"""Producers that wait for copies: one node, and another one that the test plays itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import encode
from tuque.core.msgs.bus import GotJob, NeedJobs, ReplJob, ReplJobs
from tuque.core.node.peers import say, slot_for
from tuque.server.replies.waiting import HOLES_MAX, STALL_MS
from world import FILLER, World
from world_strangers import OTHER, Stranger
from world_wires import Wire

TWO = ("REPLICATE", 2)


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A node whose links have little room."""
    return make_world(journal="off", bus_buffer_limit="1mb")


@pytest.fixture
def peer(world: World) -> Stranger:
    """Its one peer."""
    made = world.stranger()
    assert made.join()
    return made


def sent(peer: Stranger) -> list[bytes]:
    """Ids of the jobs that the peer was sent since the last look."""
    ids: list[bytes] = []
    for m in peer.hear():
        if isinstance(m, ReplJob):
            ids.append(m.id)
        elif isinstance(m, ReplJobs):
            ids += [m.first.id, *(id for id, _, _ in m.others)]
    return ids


def confirm(peer: Stranger, *ids: bytes) -> None:
    """The peer has stored these."""
    peer.says(GotJob(list(ids)))


def fill(peer: Stranger) -> None:
    """The peer reads no more, and so much waits for it that the link has no room."""
    n = peer.world.n
    peer.stop_reading()
    slot = slot_for(n, OTHER)
    while n.peers[slot].has_room:
        say(n, slot, NeedJobs(b"-" * FILLER, 0, False))
        peer.world.settle()


def said(wire: Wire, *pieces: bytes) -> list[bytes]:
    """Send; the lines that come back."""
    return wire.say(*pieces).splitlines()


def heard(wire: Wire) -> list[bytes]:
    """The lines that come without sending anything."""
    return wire.hear().splitlines()


def add(body: str, *options: str | int, timeout_ms: int = 0) -> bytes:
    """An ADDJOB of two copies, unless the options say otherwise."""
    return encode("ADDJOB", "q", body, timeout_ms, *(options or TWO))


def test_side_by_side_and_answered_in_order(world: World, peer: Stranger) -> None:
    """Jobs of one connection are replicated side by side; replies keep the order of commands."""
    assert said(world.run, add("1") + add("2") + add("3", "REPLICATE", 1) + add("4")) == []
    one, two, four = sent(peer)
    confirm(peer, four)
    confirm(peer, two)
    assert heard(world.run) == []
    confirm(peer, one)
    lines = heard(world.run)
    assert [lines[0], lines[1], lines[3]] == [b"+" + one, b"+" + two, b"+" + four]
    assert lines[2].startswith(b"+D-") and len(lines) == 4
    assert world.server.blocked == 0


def test_other_commands_wait_for_all_adds_before_them(world: World, peer: Stranger) -> None:
    assert said(world.run, add("1") + encode("PING") + add("2") + encode("QLEN", "q")) == []
    (one,) = sent(peer)  # the second stands behind the PING
    confirm(peer, one)
    assert heard(world.run) == [b"+" + one, b"+PONG"]
    (two,) = sent(peer)
    confirm(peer, two)
    assert heard(world.run) == [b"+" + two, b":2"]


def test_errors_of_adds_keep_their_place(world: World, peer: Stranger) -> None:
    bad = add("x", "REPLICATE", 9) + add("x", "WHAT")
    assert said(world.run, add("1") + bad + encode("ADDJOB", "q")) == []
    (one,) = sent(peer)
    confirm(peer, one)
    first, norepl, syntax, arity = heard(world.run)
    assert first == b"+" + one
    assert norepl.startswith(b"-NOREPL ")
    assert syntax == b"-ERR syntax error: ADDJOB has no option 'WHAT'"
    assert arity == b"-ERR wrong number of arguments for 'addjob' command"


def test_a_broken_stream_is_told_after_what_waits(world: World, peer: Stranger) -> None:
    """C2.4: commands before it are answered first."""
    wire = world.run
    assert said(wire, add("1") + b"*1\r\n+nonsense\r\n") == []
    (one,) = sent(peer)
    confirm(peer, one)
    lines = heard(wire)
    assert lines == [b"+" + one, b"-ERR Protocol error: expected '$', got '+'"]
    assert not wire.is_open()


def test_reply_modes(world: World, peer: Stranger) -> None:
    """C7.3: after CLIENT REPLY OFF commands run without replies."""
    assert said(world.run, encode("CLIENT", "REPLY", "SKIP") + add("1") + add("2")) == []
    one, two = sent(peer)
    confirm(peer, one)
    assert heard(world.run) == []
    confirm(peer, two)
    assert heard(world.run) == [b"+" + two]
    said(world.run, encode("CLIENT", "REPLY", "OFF") + add("3"))
    said(world.run, encode("CLIENT", "REPLY", "ON"))
    assert heard(world.run) == []  # it waits for the third
    confirm(peer, *sent(peer))
    assert heard(world.run) == [b"+OK"]
    assert said(world.run, encode("QLEN", "q")) == [b":3"]


def test_timeouts_keep_the_order(world: World, peer: Stranger) -> None:
    """R5.1: the producer gets -NOREPL Timeout reached ..."""
    assert said(world.run, add("1", timeout_ms=10_000) + add("2", timeout_ms=30)) == []
    one, _ = sent(peer)
    world.pass_ms(1000)
    assert heard(world.run) == []
    confirm(peer, one)
    first, second = heard(world.run)
    assert first == b"+" + one
    assert second.startswith(b"-NOREPL Timeout reached before replicating")


def test_a_producer_that_goes_away_takes_its_adds_along(world: World, peer: Stranger) -> None:
    """R7.1: a client that disconnects while its ADDJOB waits: as R5.2."""
    other = world.wire()
    said(other, add("1") + add("2"))
    one, _ = sent(peer)
    other.close()
    heard(world.run)
    assert len(world.n.jobs) == 0 and len(world.n.adding) == 0
    confirm(peer, one)
    assert heard(world.run) == []
    assert world.server.blocked == 0


def test_a_killed_producer(world: World, peer: Stranger) -> None:
    other = world.wire()
    said(other, add("1") + encode("PING"))
    number = other.c.number
    assert said(world.run, encode("CLIENT", "KILL", "ID", number)) == [b":1"]
    assert len(world.n.jobs) == 0
    assert heard(other) == [] and not other.is_open()


def test_flushall_answers_those_who_wait(world: World, peer: Stranger) -> None:
    """G2.4: -NOREPL job removed (expired?) before the requested replication level was achieved"""
    other = world.wire()
    said(other, add("1") + encode("PING"))
    assert said(world.run, encode("DEBUG", "FLUSHALL")) == [b"+OK"]
    error, pong = heard(other)
    assert error.startswith(b"-NOREPL job removed (expired?)") and pong == b"+PONG"


def test_an_ack_completes_the_add(world: World, peer: Stranger) -> None:
    """A1.6: a producer that still waits for the job gets its id."""
    other = world.wire()
    said(other, add("1"))
    (one,) = sent(peer)
    assert said(world.run, encode("ACKJOB", one)) == [b":1"]
    assert heard(other) == [b"+" + one]


def test_a_long_pipeline_is_bounded(world: World, peer: Stranger) -> None:
    """Everything that grows has a limit (L1): so many replies of one client wait."""
    count = HOLES_MAX + 500
    commands = b"".join([add(str(i)) for i in range(count)])
    assert said(world.run, commands) == []
    assert len(world.n.adding) == HOLES_MAX
    ids: list[bytes] = []
    answered: list[bytes] = []
    for _ in range(2):
        ids += sent(peer)
        confirm(peer, *ids[len(answered) :])
        answered += heard(world.run)
    assert answered == [b"+" + one for one in ids] and len(ids) == count


def test_no_room_on_the_link_stops_producers(world: World, peer: Stranger) -> None:
    """B2.4: when it is full ADDJOB waits or fails, and nothing is dropped in silence."""
    fill(peer)
    assert said(world.run, add("1") + encode("PING")) == []
    assert len(world.n.jobs) == 0
    other = world.wire()
    assert said(other, add("x", "REPLICATE", 1))[0].startswith(b"+D-")
    assert said(other, add("2", timeout_ms=50)) == []
    world.pass_ms(STALL_MS)
    assert heard(other)[0].startswith(b"-NOREPL Timeout reached")
    assert heard(world.run) == []
    peer.read_on()
    assert heard(world.run) == []
    (one,) = sent(peer)
    confirm(peer, one)
    assert heard(world.run) == [b"+" + one, b"+PONG"]
    assert world.server.stalled == {}


def test_a_stalled_producer_is_not_read_without_end(world: World, peer: Stranger) -> None:
    fill(peer)
    client = world.run.c
    before = world.server.figures.in_bytes
    count = 60
    adds = add("x" * 60_000) * count
    assert said(world.run, adds) == []
    assert client.is_full and client.todo_bytes < 2 << 20
    assert world.server.figures.in_bytes - before < len(adds), "it reads on"
    peer.read_on()
    answered: list[bytes] = []
    while ids := sent(peer):
        confirm(peer, *ids)
        answered += heard(world.run)
    assert len(answered) == count
    assert not client.is_full
