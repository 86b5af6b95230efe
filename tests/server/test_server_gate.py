"""Replies wait for the journal as long as they must, and no longer (SPEC C8.3, J4)."""

from __future__ import annotations

import re
from collections.abc import Callable

from raw_resp import encode
from tuque.core.records.jobs import Records
from tuque.server.journal.committer import Committer
from tuque.server.net.system import IN
from world import World
from world_wires import Wire

MakeWorld = Callable[..., World]
ADD = encode("ADDJOB", "q", "b", 0)
AGAIN_MS = 1_000  # a journal that failed is tried again


def journal_of(world: World) -> Committer:
    """The journal as the pump sees it."""
    found = world.server.committer
    assert found is not None
    return found


def records_of(world: World) -> Records:
    """What the core records."""
    found = world.n.records
    assert found is not None
    return found


def taken(wire: Wire) -> bytes:
    """The next bytes for the client, whenever they come."""
    world = wire.world
    world.until(lambda: wire.unread or wire.is_closed)
    return wire.bytes_now()


def test_a_reply_held_beside_a_custody_under_everysec_goes_with_it(make_world: MakeWorld) -> None:
    world = make_world(journal="everysec")
    worker, producer = world.wire(), world.wire()
    worker.add("once", "b", retry=0, replicate=1)
    world.disk().stick()
    assert worker("GETJOB", "FROM", "once") is None  # J4.4
    assert producer.say(ADD) == b""  # the turn comes while the sync runs
    world.disk().well()
    assert taken(worker).startswith(b"*1")
    assert taken(producer).startswith(b"+D-")


def test_replies_held_under_always_are_let_go_when_the_policy_is_weakened(
    make_world: MakeWorld,
) -> None:
    world = make_world(journal="always")
    producer, admin = world.wire(), world.wire()
    world.disk().stick()
    assert producer.say(ADD) == b""
    assert admin("CONFIG", "SET", "appendfsync", "no") == b"OK"
    assert producer.bytes_now().startswith(b"+D-"), "it is written, and need not be synced any more"


def test_a_reply_waits_until_its_record_is_written_under_every_policy(
    make_world: MakeWorld,
) -> None:
    """J4.2 Under every policy a reply that reveals a change leaves when its record is in the file:
    what a killed process answered is kept.
    """
    world = make_world(journal="everysec")
    journal = journal_of(world)
    world.run.put(encode("BGREWRITEAOF"))
    while not journal.thread._is_next_tried:  # the files of the next segment are prepared
        assert world.step()
    world.disk().stick()
    world.settle()  # the thread begins that segment, and has the lock
    producer = world.wire()
    assert producer.say(ADD) == b""
    written = journal.journal.seq
    assert journal.seq > written
    world.disk().well()
    assert taken(producer).startswith(b"+D-")
    assert journal.journal.seq > written


def test_replies_need_not_wait_for_a_sync_that_runs(make_world: MakeWorld) -> None:
    """J4.2 Under `everysec` and `no` the pump writes, also while the thread syncs or writes a
    snapshot (J6.3).
    """
    world = make_world(journal="everysec")
    committer = journal_of(world)
    producer = world.wire()
    assert producer.say(ADD).startswith(b"+D-")
    world.disk().stick()
    world.pass_ms(2_000)  # a sync has begun
    synced = committer.durable_seq
    assert producer.say(ADD).startswith(b"+D-")
    journal = committer.journal
    assert journal.seq == committer.seq > synced == committer.durable_seq
    world.disk().well()
    world.until(lambda: committer.durable_seq == journal.seq)


def test_an_epoch_is_answered_when_it_is_on_disk(make_world: MakeWorld) -> None:
    """Y9.6 So does the reply of an OPEN that gave a new epoch (Y1.2): after a crash of the machine
    the group has no older one.
    """
    world = make_world(journal="everysec")
    reader = world.wire()
    world.disk().stick()
    assert reader("LEASE", "OPEN", "g", "me", "q") is None
    world.disk().well()
    assert taken(reader).startswith(b":")
    assert isinstance(reader("LEASE", "OPEN", "g", "me", "q"), int)


def test_a_batch_is_answered_when_it_is_on_disk(make_world: MakeWorld) -> None:
    """Y9.5 A reply that reveals a batch that was made or leased again waits for the sync of its
    record under `always` and `everysec`, as in J4.4, because its number may be in a checkpoint.
    """
    world = make_world(journal="everysec")
    reader = world.wire()
    reader.add()
    epoch = reader.ask("LEASE", "OPEN", "g", "me", "q")
    world.disk().stick()
    assert reader("LEASE", "NEXT", "g", epoch, 1, "COUNT", 9, "TTL", 1000) is None
    world.disk().well()
    assert taken(reader) == b":1\r\n"


def test_who_waits_when_the_journal_fails_is_closed_and_the_log_says_why(
    make_world: MakeWorld,
) -> None:
    """J6.7 A connection whose replies wait for a sync when the journal fails is closed without
    them, with a warning in the log."""
    world = make_world(journal="always")
    producer, other = world.wire(), world.wire()
    world.disk().full()
    assert producer.answer(ADD) == b"<closed>"
    records = world.node().machine.records
    (told,) = [one for one in records if one.getMessage().startswith("closing ")]
    assert told.levelname == "WARNING"
    assert re.search(
        r"^closing 127\S+: 4\d bytes of replies wait for the journal, which fails: "
        "No space left on device writing ",
        told.getMessage(),
    )
    assert other.say(ADD).startswith(b"-MISCONF ")
    world.disk().well()
    world.pass_ms(AGAIN_MS)
    assert other("PING") == b"PONG"
    assert other.qlen() == 1  # it was executed


def test_frames_wait_also_while_the_journal_fails(make_world: MakeWorld) -> None:
    """J6.6 (cluster) While the journal fails no message that would have to wait for the sync of
    a record (J4.2, J4.4) is sent to other nodes, nor any message after it: the node falls
    silent, and is suspected (K4.1).
    """
    world = make_world(journal="always")
    world.disk().full()
    assert world.wire().say(ADD) == b""
    assert world.server.journal_error
    assert world.wire().qlen() == 1  # who reads is answered
    gate = world.pump.gate
    assert gate.for_peers(-1) == gate.binding_seq > 0
    world.disk().well()
    world.pass_ms(AGAIN_MS)
    assert not world.server.journal_error
    assert gate.for_peers(-1) == -1


def test_what_a_turn_produces_does_not_leave_with_what_the_journal_lets_go(
    make_world: MakeWorld,
) -> None:
    """C8.3 Under `appendfsync always` a reply that reveals a change, and every later reply of that
    connection, is sent only when the record is on disk."""
    world = make_world(journal="always")
    committer, shell = journal_of(world), world.node().shell
    producer = world.wire()
    c = producer.c
    world.disk().stick()
    assert producer.say(ADD) == b""
    world.disk().well()
    while committer.durable_seq < committer.seq:
        assert world.step()
    shell.is_paused = True  # what follows is one turn by hand
    producer.put(ADD)
    world.settle_wires()
    world.pump.hear([(int(c.fd), IN), (committer.wake_fd, IN)])  # a command, then the wake
    first = producer.bytes_now()
    assert len(c.out) == 1 and first.startswith(b"+D-") and c.out[0].startswith(b"+D-")
    assert first != c.out[0]
    world.pump.step()
    world.pump.settle()
    world.node().machine.go_on(shell)
    assert taken(producer) not in (b"", first)


def test_silence_counts_anew_once_the_journal_works_again(make_world: MakeWorld) -> None:
    """W6.1 Only silence that the node could have heard counts: none does while its journal fails
    (J6.1). Each run gets a whole RETRY after that, after a start of the node (W13.3), after its
    process stood still for over a second, and after a link to another holder came up.
    """
    world = make_world(journal="everysec")
    id = world.add()
    run = re.findall(rb"1\.1\.[0-9a-f]{6}", world("START", id))[0]
    assert world.n.life.deaf_ms == 0
    world.disk().full()
    assert world.wire().say(ADD) == b""
    assert b"-MISCONF" in world.wire().say(encode("WORKING", id, run))
    assert records_of(world).is_failing
    world.disk().well()
    world.pass_ms(AGAIN_MS)
    assert world.wire()("PING") == b"PONG"
    assert not records_of(world).is_failing
    assert 0 < world.n.life.deaf_ms <= world.now_ms
