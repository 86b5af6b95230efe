"""Replies wait for the journal as long as they must, and no longer (SPEC C8.3, J4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gate_box import Kept

from raw_resp import encode
from tuque.server.net.system import IN
from until import until


@pytest.fixture
def make_kept(tmp_path: Path) -> Iterator[Callable[[str], Kept]]:
    made: list[Kept] = []

    def make(policy: str) -> Kept:
        made.append(Kept(tmp_path, policy))
        return made[-1]

    yield make
    for one in made:
        one.close()


ADD = encode("ADDJOB", "q", "b", 0)


def test_a_reply_held_beside_a_custody_under_everysec_goes_with_it(
    make_kept: Callable[[str], Kept],
) -> None:
    kept = make_kept("everysec")
    box = kept.box
    worker, producer = box.connect(), box.connect()
    once = encode("ADDJOB", "once", "b", 0, "RETRY", 0, "REPLICATE", 1)
    assert box.say(worker, once).startswith(b"+D-")
    kept.stall()
    assert box.say(worker, encode("GETJOB", "FROM", "once")) == b""  # J4.4
    until(kept.asked)
    assert box.say(producer, ADD) == b""  # the turn comes while the sync runs
    kept.disk.may_sync.set()
    assert kept.turns_until_answered(worker).startswith(b"*1")
    assert kept.turns_until_answered(producer).startswith(b"+D-")


def test_replies_held_under_always_are_let_go_when_the_policy_is_weakened(
    make_kept: Callable[[str], Kept],
) -> None:
    kept = make_kept("always")
    box = kept.box
    producer, admin = box.connect(), box.connect()
    kept.stall()
    assert box.say(producer, ADD) == b""
    until(kept.asked)
    heard = box.say(admin, encode("CONFIG", "SET", "appendfsync", "no"))
    assert heard == b"+OK\r\n"
    assert box.hear(producer).startswith(b"+D-"), "it is written, and need not be synced any more"


def test_a_reply_waits_until_its_record_is_written_under_every_policy(
    make_kept: Callable[[str], Kept],
) -> None:
    """J4.2 Under every policy a reply that reveals a change leaves when its record is in the file:
    what a killed process answered is kept.
    """
    kept = make_kept("everysec")
    box = kept.box
    producer = box.connect()
    thread = kept.committer.thread
    with thread._lock:  # as while it begins a segment
        assert box.say(producer, ADD) == b""
        written = kept.committer.journal.seq
        assert kept.committer.seq > written
    assert kept.turns_until_answered(producer).startswith(b"+D-")
    assert kept.committer.journal.seq > written


def test_replies_need_not_wait_for_a_sync_that_runs(make_kept: Callable[[str], Kept]) -> None:
    """J4.2 Under `everysec` and `no` the pump writes them, also while the thread syncs or writes a
    snapshot (J6.3).
    """
    kept = make_kept("everysec")
    box = kept.box
    producer = box.connect()
    assert box.say(producer, ADD).startswith(b"+D-")
    kept.stall()
    until(kept.asked)
    synced = kept.committer.durable_seq
    assert box.say(producer, ADD).startswith(b"+D-")
    journal = kept.committer.journal
    assert journal.seq == kept.committer.seq > synced == kept.committer.durable_seq
    kept.disk.may_sync.set()
    until(lambda: kept.committer.durable_seq == journal.seq)


def test_an_epoch_is_answered_when_it_is_on_disk(make_kept: Callable[[str], Kept]) -> None:
    """Y9.6 So does the reply of an OPEN that gave a new epoch (Y1.2): after a crash of the machine
    the group has no older one.
    """
    kept = make_kept("everysec")
    box = kept.box
    reader = box.connect()
    kept.stall()
    assert box.say(reader, encode("LEASE", "OPEN", "g", "me", "q")) == b""
    until(kept.asked)
    kept.disk.may_sync.set()
    assert kept.turns_until_answered(reader).startswith(b":")
    assert box.say(reader, encode("LEASE", "OPEN", "g", "me", "q")).startswith(b":")


def test_a_batch_is_answered_when_it_is_on_disk(make_kept: Callable[[str], Kept]) -> None:
    """Y9.5 A reply that reveals a batch that was made or leased again waits for the sync of its
    record under `always` and `everysec`, as in J4.4, because its number may be in a checkpoint.
    """
    kept = make_kept("everysec")
    box = kept.box
    reader = box.connect()
    assert box.say(reader, ADD).startswith(b"+D-")
    heard = box.say(reader, encode("LEASE", "OPEN", "g", "me", "q"))
    epoch = (heard or kept.turns_until_answered(reader))[1:].strip()
    kept.stall()
    taken = encode("LEASE", "NEXT", "g", epoch, 1, "COUNT", 9, "TTL", 1000)
    assert box.say(reader, taken) == b""
    until(kept.asked)
    kept.disk.may_sync.set()
    assert kept.turns_until_answered(reader) == b":1\r\n"


def test_who_waits_when_the_journal_fails_is_closed_and_the_log_says_why(
    make_kept: Callable[[str], Kept], caplog: pytest.LogCaptureFixture
) -> None:
    """J6.7 A connection whose replies wait for a sync when the journal fails is closed without
    them, with a warning in the log."""
    kept = make_kept("always")
    box = kept.box
    producer, other = box.connect(), box.connect()
    kept.disk.is_full = True
    assert box.say(producer, ADD) == b""

    def is_closed() -> bool:
        box.pump.turn(10)
        return not box.is_open(producer)

    until(is_closed)
    (told,) = [one for one in caplog.records if one.getMessage().startswith("closing ")]
    assert told.levelname == "WARNING"
    assert re.search(
        r"^closing unix:: 4\d bytes of replies wait for the journal, which fails: "
        "No space left on device writing ",
        told.getMessage(),
    )
    assert box.say(other, ADD).startswith(b"-MISCONF ")
    kept.disk.is_full = False
    until(lambda: b"+PONG" in box.say(other, encode("PING")))
    assert box.say(other, encode("QLEN", "q")).endswith(b":1\r\n")  # it was executed


def test_frames_wait_also_while_the_journal_fails(make_kept: Callable[[str], Kept]) -> None:
    """J6.6 (cluster) Meanwhile no message that would have to wait for the sync of a record (J4.2,
    J4.4) is sent to other nodes, nor any message after it: a node that cannot write falls silent,
    and is suspected (K4.1)."""
    kept = make_kept("always")
    box = kept.box
    producer = box.connect()
    kept.disk.is_full = True
    assert not box.say(producer, ADD).startswith(b"+")

    def is_failing() -> bool:
        box.pump.turn(10)
        return bool(box.server.journal_error)

    until(is_failing)
    reader = box.connect()
    assert box.say(reader, encode("QLEN", "q")).startswith(b":")  # who reads is answered
    assert box.pump.gate.for_peers(-1) == box.pump.gate.binding_seq > 0
    kept.disk.is_full = False
    until(lambda: not is_failing())
    assert box.pump.gate.for_peers(-1) == -1


def test_what_a_turn_produces_does_not_leave_with_what_the_journal_lets_go(
    make_kept: Callable[[str], Kept],
) -> None:
    """C8.3 Under `appendfsync always` a reply that reveals a change, and every later reply of that
    connection, is sent only when the record is on disk."""
    kept = make_kept("always")
    box = kept.box
    producer = box.connect()
    kept.stall()
    assert box.say(producer, ADD) == b""
    kept.disk.may_sync.set()
    until(lambda: kept.committer.durable_seq == kept.committer.seq)
    (c,) = box.server.clients.values()
    producer.sock.send(ADD)
    box.pump.hear([(int(c.fd), IN), (kept.committer.wake_fd, IN)])  # a command, then the wake
    first = producer.sock.recv(1000)
    assert len(c.out) == 1 and first.startswith(b"+D-") and c.out[0].startswith(b"+D-")
    assert first != c.out[0]
    box.pump.step()
    box.pump.settle()
    assert kept.turns_until_answered(producer) != first


def test_silence_counts_anew_once_the_journal_works_again(
    make_kept: Callable[[str], Kept],
) -> None:
    """W6.1 Only silence that the node could have heard counts: none does while its journal fails
    (J6.1). Each run gets a whole RETRY after that, after a start of the node (W13.3), after its
    process stood still for over a second, and after a link to another holder came up.
    """
    kept = make_kept("everysec")
    box = kept.box
    worker = box.connect()
    id = box.say(worker, ADD)[1:].strip()
    run = re.findall(rb"1\.1\.[0-9a-f]{6}", box.say(worker, encode("START", id)))[0]
    assert box.n.life.deaf_ms == 0
    kept.disk.is_full = True

    def is_failing() -> bool:
        box.say(box.connect(), ADD)
        return b"-MISCONF" in box.say(box.connect(), encode("WORKING", id, run))

    until(is_failing)
    records = box.n.records
    assert records is not None and records.is_failing
    kept.disk.is_full = False
    reader = box.connect()
    until(lambda: b"+PONG" in box.say(reader, encode("PING")))
    assert not records.is_failing
    assert 0 < box.n.life.deaf_ms <= box.n.now_ms
