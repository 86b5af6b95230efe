"""J4.5 to J4.7: under `always` the pump syncs the journal itself while the disk is quick."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import encode
from tuque.core.model.timers import NEVER_MS
from tuque.core.records.jobs import Records
from tuque.server.journal.committer import Committer
from tuque.server.journal.thread import JournalThread
from tuque.server.loop.gate import ReadBatch
from tuque.server.net.system import IN
from tuque.server.state.server import JOURNAL
from tuque.store.writer import (
    LEAST_S,
    LOOK,
    MOST_S,
    QUICK_S,
    SLOW_S,
    Pace,
)
from world import World

ADD = encode("ADDJOB", "q", "b", 0)
GET = encode("GETJOB", "NOHANG", "FROM", "q")
PING = encode("PING")


def committer_of(world: World) -> Committer:
    """The journal as the pump sees it."""
    found = world.server.committer
    assert found is not None
    return found


def thread_of(world: World) -> JournalThread:
    """What writes it."""
    return committer_of(world).thread


def records_of(world: World) -> Records:
    """What the core records."""
    found = world.n.records
    assert found is not None
    return found


def be_quick_now(world: World) -> None:
    """The last syncs took no time."""
    thread = thread_of(world)
    for _ in range(LOOK):
        thread.pace.note(0.0, thread.clock(), False)


def be_quick(world: World) -> None:
    """All syncs so far took no time."""
    thread_of(world).pace = Pace()
    be_quick_now(world)


def mine(world: World) -> int:
    """Syncs by the pump."""
    return int(thread_of(world).here_count)


def is_synced(world: World) -> bool:
    """Whether all that was recorded is on the disk."""
    return bool(committer_of(world).durable_seq == committer_of(world).seq)


@pytest.fixture
def unknown(make_world: Callable[..., World]) -> World:
    """A node under `always` that knows nothing of its disk yet."""
    return make_world(journal="always")


@pytest.fixture
def world(unknown: World) -> World:
    """The same, on a disk that counts as quick."""
    be_quick(unknown)
    return unknown


def test_a_quick_disk_is_synced_by_the_pump(world: World) -> None:
    """J4.5 Under `always` the pump itself writes and syncs the records that replies wait for if the
    thread is idle, the journal works and is not being rewritten, and the disk is fast."""
    committer = committer_of(world)
    assert world.run.say(ADD).startswith(b"+D-")
    assert mine(world) == 1
    assert committer.durable_seq == committer.seq == world.pump.gate.binding_seq
    assert committer.info()["journal_fsyncs_in_turn"] == 1


def test_without_a_look_at_the_disk_the_thread_syncs(unknown: World) -> None:
    """Otherwise the thread does it, and the pump goes on meanwhile."""
    world = unknown
    world.disk().stick()
    assert world.run.say(ADD) == b""
    before = world.server.figures.commands
    world.wire().say(PING)
    assert world.server.figures.commands == before + 1


def test_a_slow_sync_sends_the_next_ones_to_the_thread(world: World) -> None:
    """So a disk that becomes slow stops the pump once"""
    producer, other = world.wire(), world.wire()
    slow_ms = int(2 * SLOW_S * 1000)
    world.disk().slow(slow_ms)
    assert producer.say(ADD).startswith(b"+D-")
    assert mine(world) == 1
    world.disk().well()
    world.pass_ms(slow_ms)  # it stood that long
    be_quick_now(world)  # on average; one was slow all the same
    world.disk().stick()
    assert producer.say(ADD) == b""
    before = world.server.figures.commands
    other.say(PING)  # the pump does not wait for the disk
    assert world.server.figures.commands == before + 1
    world.disk().well()
    assert producer.bytes_now().startswith(b"+D-")
    assert mine(world) == 1


def test_what_follows_a_frame_of_the_thread_does_not_overtake_it(unknown: World) -> None:
    """if the thread has nothing to do"""
    world = unknown
    first, second = world.wire(), world.wire()
    world.disk().stick()
    assert first.say(ADD) == b""
    be_quick(world)
    assert second.say(ADD) == b""
    assert mine(world) == 0
    world.disk().well()
    assert first.bytes_now().startswith(b"+D-")
    assert second.bytes_now().startswith(b"+D-")


def test_a_failed_sync_of_the_pump_acknowledges_nothing(world: World) -> None:
    """J6.1 If a write or sync fails, writes and PING get `-MISCONF Errors writing to the AOF
    file: <reason>` until the journal works again.
    """
    producer, other = world.wire(), world.wire()
    world.disk().fail(syncs=1_000)
    assert producer.answer(ADD) == b"<closed>"
    assert world.server.journal_error
    assert other.say(PING).startswith(b"-MISCONF Errors writing to the AOF file: Input/output")
    world.disk().well()
    world.until(lambda: not world.server.journal_error)
    assert other("PING") == b"PONG"
    assert other.qlen() == 1  # rewritten from memory (J6.2)
    told = {one.getMessage(): one.levelname for one in world.node().machine.records}
    failed = {level for text, level in told.items() if text.startswith("journal: Input/output")}
    assert (failed, told["journal: working again"]) == ({"ERROR"}, "INFO"), told


def test_a_failed_write_of_the_pump_is_tried_again_by_the_thread(world: World) -> None:
    world.disk().fail(writes=1)
    assert world.run.say(ADD).startswith(b"+D-")
    assert mine(world) == 0 and is_synced(world)
    assert not world.server.journal_error
    assert world.qlen() == 1


def test_what_nobody_waits_for_is_synced_with_the_next_or_by_the_thread(world: World) -> None:
    """J4.6 On a fast disk the pump also writes records that no reply waits for (J4.3). The next
    sync covers them; if none follows within 10 ms, the pump asks the thread for one."""
    committer, alarms = committer_of(world), world.server.alarms
    wire = world.wire()
    assert wire.say(ADD * 2).count(b"+D-") == 2
    done = mine(world)
    assert wire.say(GET).startswith(b"*1")
    assert mine(world) == done
    assert committer.journal.seq == committer.seq  # it is in the file
    assert not is_synced(world)
    assert alarms.at(JOURNAL) <= world.now_ms + 10
    world.pass_ms(10)
    assert is_synced(world)
    assert mine(world) == done
    world.settle()
    assert alarms.at(JOURNAL) == NEVER_MS


def test_a_journal_that_is_turned_off_has_nothing_to_sync(world: World) -> None:
    """Else the pump would go round and round for what it was to sync."""
    alarms = world.server.alarms
    wire = world.wire()
    assert wire.say(ADD * 2).count(b"+D-") == 2
    assert wire.say(GET).startswith(b"*1")
    assert alarms.at(JOURNAL) <= world.now_ms + 10
    assert wire.say(encode("CONFIG", "SET", "appendonly", "no")) == b"+OK\r\n"
    assert alarms.at(JOURNAL) == NEVER_MS


def test_the_journal_is_the_same_whoever_wrote_it(world: World) -> None:
    producer = world.run
    for i in range(60):
        if i % 7 == 3:
            thread_of(world).pace = Pace()
        elif i % 7 == 5:
            be_quick(world)
        assert b"+D-" in producer.say(ADD + GET if i % 3 == 0 else ADD)
    assert 0 < mine(world) < thread_of(world).sync_count
    world.pass_ms(10)
    jobs = {id: int(job.state) for id, job in world.n.jobs.items()}
    assert len(jobs) == 60
    world.restart(0)
    assert {id: int(job.state) for id, job in world.n.jobs.items()} == jobs


def test_more_that_has_come_shares_the_sync(world: World) -> None:
    """J4.7 Before the pump syncs itself, it reads for up to 1 ms what else has arrived."""
    wire, shell = world.run, world.node().shell
    fd = int(wire.c.fd)
    read_batch = ReadBatch(world.server, world.pump.poller)
    records = records_of(world)
    shell.is_paused = True  # in the middle of a turn
    wire.put(PING)
    world.settle_wires()
    count = records.binding_count
    assert read_batch.more(count) == []  # nothing needs a sync
    read_batch.on_synced(100, 1)
    assert read_batch.more(count - 1) == [(fd, IN)]
    thread_of(world).pace = Pace()
    read_batch.on_synced(100, 1)
    assert read_batch.more(count - 1) == []  # the thread will sync
    world.node().machine.go_on(shell)


# ---- the pace


def paced(*took_s: float, by_pump: bool = True, since_s: float = 0.0) -> Pace:
    """Syncs one second after another."""
    pace = Pace()
    for i, one in enumerate(took_s):
        pace.note(one, since_s + i, by_pump)
    return pace


def test_sixteen_syncs_of_a_millisecond_on_average_are_quick() -> None:
    """The disk is quick if its last 16 syncs took at most 1 ms on average"""
    assert LOOK == 16 and QUICK_S == 0.001 and SLOW_S == 0.010
    assert not paced(*[0.0] * 15).is_quick(100)
    assert paced(*[0.0] * 15, 0.009).is_quick(100)
    assert not paced(*[0.0] * 14, 0.009, 0.009).is_quick(100)
    assert paced(0.009, 0.009, *[0.0] * 16).is_quick(100)  # only the last ones count


@pytest.mark.parametrize("by_pump", [True, False])
def test_a_slow_sync_keeps_the_pump_off_for_a_while(by_pump: bool) -> None:
    """and none took longer than 10 ms during the last N seconds. N is 1 at first. It doubles, up to
    600, with each sync of the pump that takes longer than 10 ms"""
    pace = paced(*[0.0] * 16)
    for n in (2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600):
        now_s = 10_000.0 * n
        pace.keep_off_s = pace.keep_off_s if by_pump else LEAST_S
        pace.note(0.011, now_s, by_pump)
        wanted = n if by_pump else LEAST_S
        assert pace.keep_off_s == wanted
        for i in range(16):
            pace.note(0.0, now_s + i / 1000, by_pump)
        assert not pace.is_quick(now_s + wanted - 0.001)
        assert pace.is_quick(now_s + wanted)
        pace.since_s = now_s + 10_000_000  # no halving in this test
    assert pace.keep_off_s == (MOST_S if by_pump else LEAST_S)


def test_it_tries_sooner_when_the_disk_stays_quick() -> None:
    """it halves, down to 1, when no sync took so long for 2 N seconds"""
    pace = paced(0.011, 0.011, 0.011)
    seen = [pace.keep_off_s]
    for second in range(3, 60):
        pace.note(0.0, float(second), True)
        if pace.keep_off_s != seen[-1]:
            seen.append(pace.keep_off_s)
    assert seen == [8.0, 4.0, 2.0, 1.0]
