"""SPEC T7, T9 to T12: who waits, in which order; configuration, rights, counters, notices."""

from __future__ import annotations

import pytest
from tube_world import TubeWorld, refused

from sim.engine.clock import START_MS
from told_events import Told
from tuque.core.copies.federation import pause_queue
from tuque.core.dispatch.timers import next_timer_ms
from tuque.core.model.task import READY
from tuque.core.node.queue import PAUSE_IN
from tuque.core.queues.procedures import check, remove, stop_waiting
from tuque.core.records.events import KIND_NAMES
from tuque.tubes.log.leader import state_of_node
from tuque.tubes.model.grants import CALL, TRUNCATE, role_key, user_key
from tuque.tubes.model.options import PutSpec
from tuque.tubes.tasks import admin, operations, sessions


@pytest.fixture
def home() -> TubeWorld:
    return TubeWorld()


# ---- T7, T9 waiting


def test_takes_are_served_in_the_order_they_came(home: TubeWorld) -> None:
    """T9.1 Clients that wait for a tube are served in order of arrival, whatever their timeouts.

    T9.1 a later take does not overtake them."""
    tube = home.make("fifo")
    for client, ms in ((1, 0), (2, 10_000), (3, 5000), (4, 1000)):
        operations.wait(home.n, home.t, tube, client, home.n.now_ms + ms if ms else 0)
    home.put(tube)
    assert home.take(tube, 9) is None  # the task was client 1's
    for _ in range(3):
        home.put(tube)
    assert home.woken() == [(1, 0), (2, 1), (3, 2), (4, 3)]


def test_many_takes_wait_and_one_connection_has_several(home: TubeWorld) -> None:
    """T9.2."""
    tube = home.make("utube")
    for number in range(5000):
        operations.wait(home.n, home.t, tube, 1, 0, 1000 + number)
    home.put(tube, b"x", b"k")
    home.put(tube, b"y", b"k")
    assert home.woken() == [(1000, 0)]
    home.ack(tube, 0)
    assert home.woken() == [(1001, 1)]
    for number in range(5000):
        stop_waiting(home.n, 1000 + number)
    sessions.on_client_gone(home.n, home.t, 1)
    assert tube.taken == 0
    check(home.n)


def test_puts_wait_for_room(home: TubeWorld) -> None:
    """T7.1-T7.3."""
    n, t = home.n, home.t
    tube = home.make("limfifottl", capacity=2)
    home.put(tube)
    home.put(tube)
    spec = PutSpec()
    assert operations.put(n, t, tube, b"x", 0, spec, 1, 1) is None
    for serial, ms in ((2, 1000), (3, 9000), (4, 9000), (5, 9000)):
        waiting = PutSpec()
        waiting.timeout_ms = ms
        assert operations.put(n, t, tube, b"%d" % serial, 0, waiting, serial, serial) is None
    assert next_timer_ms(n) == START_MS + 1000
    home.tick_ms(1000)
    assert [(done.serial, done.task) for done in t.put_done] == [(2, None)]
    t.put_done = []
    sessions.on_client_gone(n, t, 3)
    operations.delete(n, t, tube, 0)
    assert [(done.serial, done.task and done.task.number) for done in t.put_done] == [(4, 2)]
    home.tick_ms(20_000)
    assert [(done.serial, done.task and done.task.number) for done in t.put_done[1:]] == [(5, None)]


def test_puts_that_wait_go_on_waiting_in_a_pause(home: TubeWorld) -> None:
    """P2.1 Puts that wait for room in a tube continue to wait (T7.2).

    They are done when the pause ends."""
    n, t = home.n, home.t
    tube = home.make("limfifottl", capacity=1)
    home.put(tube)
    for serial, ms in ((1, 1000), (2, 9000), (3, 9000)):
        waiting = PutSpec()
        waiting.timeout_ms = ms
        assert operations.put(n, t, tube, b"%d" % serial, 0, waiting, serial, serial) is None
    pause_queue(n, b"t", PAUSE_IN, False)
    operations.delete(n, t, tube, 0)
    assert t.put_done == []
    assert len(tube.tasks) == 0
    home.tick_ms(1000)
    assert [(done.serial, done.task) for done in t.put_done] == [(1, None)]
    pause_queue(n, b"t", 0, False)
    assert [task.body for task in tube.tasks.values()] == [b"2"]
    assert t.put_done[-1].serial == 2
    check(home.n)


def test_a_ttl_of_nothing(home: TubeWorld) -> None:
    """T6.1 no take gets it any more.

    The put is answered."""
    tube = home.make("fifottl")
    operations.wait(home.n, home.t, tube, 1, 0)
    assert chr(home.put(tube, ttl_ms=0).status) == "r"
    assert home.woken() == []
    home.tick_ms(1)
    assert home.calls(tube)["ttl"] == 1 and not home.n.jobs


# ---- T10 to T12


def test_cfg(home: TubeWorld) -> None:
    """T10.1, T10.2."""
    n, t = home.n, home.t
    refused(32, "Invalid value of ttr: -1", admin.cfg, n, t, -1000, None)
    admin.cfg(n, t, 5000, True)
    admin.cfg(n, t, 6000, None)
    assert (t.ttr_ms, t.in_replicaset) == (6000, True)
    refused(
        32,
        "Cannot create temporary tube in replicaset mode",
        lambda: home.make("fifo", temporary=True),
    )
    admin.cfg(n, t, None, False)
    home.make("fifo", temporary=True)
    admin.cfg(n, t, None, True)
    assert not t.in_replicaset and state_of_node(home.n, t) == b"RUNNING"


def test_grants(home: TubeWorld) -> None:
    """T10.3, T10.4."""
    n, t, tube = home.n, home.t, home.make("fifo")
    bob, eve, readers = user_key(b"bob"), user_key(b"eve"), role_key(b"readers")
    may = t.rights.may
    admin.grant(n, t, bob, tube, CALL)
    assert may([bob], b"queue.tube.t:take") and may([bob], b"queue.identify")
    for function in (b"queue.tube.t:truncate", b"queue.tube.t:drop", b"queue.tube.u:take"):
        assert not may([bob], function)
    admin.grant(n, t, bob, tube, TRUNCATE)
    assert may([bob], b"queue.tube.t:truncate") and may([bob], b"queue.tube.t:put")
    admin.grant(n, t, readers, tube, TRUNCATE, b"mine")
    assert may([eve, readers], b"mine.t:truncate") and not may([eve], b"mine.t:truncate")
    assert not may([eve, readers], b"queue.identify") and not may([readers], b"mine.t:take")
    assert not may([role_key(b"bob")], b"queue.tube.t:take"), "a role is no user"
    check(n)
    assert admin.revoke(n, t, bob, tube, TRUNCATE, None) == 1
    assert may([bob], b"queue.tube.t:take") and not may([bob], b"queue.tube.t:truncate")
    assert admin.revoke(n, t, bob, tube, CALL | TRUNCATE, b"other") == 0
    assert admin.revoke(n, t, bob, tube, CALL | TRUNCATE, b"queue.tube") == 1
    assert not may([bob], b"queue.tube.t:take") and not may([bob], b"queue.statistics")
    check(n)
    dotted = home.make("fifo", "a.t")
    text = "Tube 'a.t' cannot be called over IPROTO: its name has a dot or a colon"
    refused(32, text, admin.grant, n, t, bob, dotted, CALL, b"mine")
    admin.drop(n, t, tube)
    check(n)
    assert home.make("fifo") and t.rights.listing(b"") == [], "its grants go with a tube"
    assert not may([readers], b"mine.t:truncate")


def test_evicted_and_deleted_by_other_means(home: TubeWorld) -> None:
    """T11.3 moved are the tasks that were removed by a command about all jobs."""
    tube = home.make("utube")
    remove(home.n, home.put(tube), 7)
    assert tube.calls.moved == 1
    check(home.n)


def test_changes(home: TubeWorld) -> None:
    """T12: numbered, the last 1000, and subscribers are told."""
    tube = home.make("fifottl")
    home.put(tube)
    home.take(tube)
    home.ack(tube, 0)
    found = [(c.seq, c.event, c.number, chr(c.status)) for c in home.t.changes(tube, -1, 9)]
    assert found == [(0, b"put", 0, "r"), (1, b"take", 0, "t"), (2, b"ack", 0, "-")]
    assert home.t.told == []
    tube.subscribers = 1
    for _ in range(600):
        home.put(tube)
        home.take(tube)
    seen = home.t.changes(tube, 5, 5000)
    assert [c.seq for c in seen] == list(range(203, 1203))
    assert [c.seq for c in home.t.changes(tube, 1200, 5000)] == [1201, 1202]
    assert len(home.t.told) == 1200 and home.t.told[0].tube == b"t"
    for _ in range(600):
        home.put(tube)
    assert [c.seq for c in seen] == list(range(203, 1203))  # what was read stays as it was
    assert [told.change.seq for told in home.t.told] == list(range(3, 1803))


def test_every_change_has_its_name(home: TubeWorld) -> None:
    """T12.2 The events are put, take, touch, release, bury, kick, ttr, delay and update (T1.10);
    ack, delete, truncate and ttl have the status `-`."""
    n, t, tube = home.n, home.t, home.make("fifottl", ttr_ms=1000)
    tube.subscribers = 1
    home.put(tube, delay_ms=100)
    home.tick_ms(200)
    home.take(tube)
    home.tick_ms(1100)
    home.take(tube)
    operations.touch(n, t, tube, 1, 0, 500)
    operations.release(n, t, tube, 1, 0, 0)
    operations.bury(n, t, tube, 0)
    operations.kick(n, t, tube, 1)
    home.take(tube)
    home.ack(tube, 0)
    for _ in range(2):
        home.put(tube)
    operations.delete(n, t, tube, 1)
    admin.truncate(n, t, tube)
    home.put(tube, ttl_ms=50)
    home.tick_ms(100)
    named = [(c.event.decode(), chr(c.status)) for c in t.changes(tube, -1, 99)]
    assert named == [
        ("put", "~"),
        ("delay", "r"),
        ("take", "t"),
        ("ttr", "r"),
        ("take", "t"),
        ("touch", "t"),
        ("release", "r"),
        ("bury", "!"),
        ("kick", "r"),
        ("take", "t"),
        ("ack", "-"),
        ("put", "r"),
        ("put", "r"),
        ("delete", "-"),
        ("truncate", "-"),
        ("put", "r"),
        ("ttl", "-"),
    ]
    assert [(told.change.event.decode(), chr(told.change.status)) for told in t.told] == named


def test_the_last_thousand_changes_whenever_one_looks(home: TubeWorld) -> None:
    """T12.1 The last 1000 of a tube can be read by number.

    T11.4 notices and puts that wait count as used memory (M1)."""
    tube = home.make("fifo")
    for count in range(1, 2600):
        home.put(tube)
        if count % 250 in (0, 1, 249):
            first = max(0, count - 1000)
            told = [(i, b"put", i, READY, START_MS + i) for i in range(first, count)]
            for after in (-1, count - 3, first):
                for most in (1, 600, 9999):
                    found = home.t.changes(tube, after, most)
                    rows = [(c.seq, c.event, c.number, c.status, c.at_ms) for c in found]
                    assert rows == [row for row in told if row[0] > after][:most]
            check(home.n)
        home.n.now_ms += 1


def test_times_are_exact_before_the_timers_run(home: TubeWorld) -> None:
    """T6.1 no take gets it any more.

    T6.3 never earlier

    T6.4 A DELAYED task becomes READY after its delay, never earlier."""
    tube = home.make("fifottl")
    home.put(tube, ttl_ms=1000)
    home.put(tube, ttl_ms=5000, ttr_ms=1000)
    assert [home.take(tube), home.take(tube)] == [0, 1]
    operations.release(home.n, home.t, tube, 1, 0, 0)
    home.put(tube, delay_ms=1000)
    home.n.now_ms += 999
    assert operations.peek(home.n, home.t, tube, 0).number == 0
    assert chr(operations.peek(home.n, home.t, tube, 1).status) == "t"
    home.n.now_ms += 1
    refused(32, "Task 0 not found", operations.peek, home.n, home.t, tube, 0)
    refused(32, "Task was not taken", home.ack, tube, 1)
    assert chr(operations.peek(home.n, home.t, tube, 2).status) == "r"
    assert home.calls(tube)["ttl"] == 1


def test_a_dead_task_is_not_taken_while_its_timer_is_late(home: TubeWorld) -> None:
    """T6.1."""
    tube = home.make("utubettl")
    home.put(tube, b"dead", b"k", ttl_ms=1000)
    home.put(tube, b"alive", b"k")
    home.n.now_ms += 1000
    assert home.take(tube) == 1
    assert home.calls(tube)["ttl"] == 1
    check(home.n)


def test_histories_and_the_ledger_know_tasks(home: TubeWorld) -> None:
    """E1, G9: a task has the events and the causes of a job."""
    n = home.n
    tube = home.make("fifottl", ttr_ms=1000)
    home.put(tube)
    home.take(tube)
    home.tick_ms(1020)  # ttr
    home.take(tube)
    operations.release(n, home.t, tube, 1, 0, 0)
    home.take(tube)
    home.ack(tube, 0)
    home.put(tube, ttl_ms=500)
    home.tick_ms(520)
    operations.delete(n, home.t, tube, home.put(tube).number)
    home.put(tube)
    home.take(tube)
    sessions.on_client_gone(n, home.t, 1)
    admin.truncate(n, home.t, tube)
    assert n.events is not None
    kinds = [KIND_NAMES[kind] for kind in Told(n.events.open).kinds]
    assert kinds == [
        "added",
        "delivered",
        "requeued",
        "delivered",
        "nacked",
        "delivered",
        "acked",
        "added",
        "expired",
        "added",
        "deleted",
        "added",
        "delivered",
        "requeued",
        "deleted",
    ]
    ledger = n.ledger
    assert (ledger.created, ledger.gc_acked, ledger.expired, ledger.admin_deleted) == (4, 1, 1, 2)
    check(n)
