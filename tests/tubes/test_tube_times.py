"""Times of tasks to the millisecond, and what each call makes of them (SPEC T1.4, T2.5, T5, T6)."""

from __future__ import annotations

import pytest
from tube_world import TubeWorld

from sim.engine.clock import START_MS
from tuque.core.model.task import BURIED, DELAYED, READY, TAKEN
from tuque.core.queues.deliver import on_getjob
from tuque.core.queues.procedures import check
from tuque.core.queues.requeue import on_working
from tuque.tubes.model.tube import Tube
from tuque.tubes.tasks import operations, sessions

TIMED = ["fifottl", "limfifottl", "utubettl"]


@pytest.fixture
def home() -> TubeWorld:
    return TubeWorld()


def until(home: TubeWorld, at_ms: int) -> None:
    """Let time go by up to so many ms after the start."""
    home.tick_ms(START_MS + at_ms - int(home.n.now_ms))


def status(tube: Tube, number: int = 0) -> int:
    """The status of a task; 0: it is gone."""
    task = tube.tasks.get(number)
    return 0 if task is None else int(task.status)


@pytest.mark.parametrize("type", TIMED)
def test_touch_adds_to_the_present_time_and_for_good(home: TubeWorld, type: str) -> None:
    """T5.4 touch adds its increment to the time of this take, and permanently to ttl and ttr."""
    tube = home.make(type, ttl_ms=7000, ttr_ms=2000)
    home.put(tube)
    home.take(tube)
    operations.touch(home.n, home.t, tube, 1, 0, 5000)
    until(home, 6990)
    assert status(tube) == TAKEN
    until(home, 7020)
    assert status(tube) == READY, "2 s and 5 s after the take"
    home.take(tube)
    until(home, 11_900)
    assert status(tube) == TAKEN, "it lives 12 s now, and one works 7 s on it"
    if type == "utubettl":
        until(home, 14_010)
        assert status(tube) == TAKEN
        until(home, 14_040)
    else:
        until(home, 12_020)
    assert status(tube) == 0


@pytest.mark.parametrize("type", TIMED)
def test_a_delay_of_release_makes_life_longer(home: TubeWorld, type: str) -> None:
    """T5.5 release with delay adds the delay to ttl."""
    tube = home.make(type, ttl_ms=10_000)
    home.put(tube)
    until(home, 1000)
    home.take(tube)
    operations.release(home.n, home.t, tube, 1, 0, 5000)
    until(home, 5980)
    assert status(tube) == DELAYED
    until(home, 6020)
    assert status(tube) == READY
    until(home, 14_990)
    assert status(tube) == READY
    until(home, 15_020)
    assert status(tube) == 0


@pytest.mark.parametrize("type", ["fifo", "utube"])
def test_release_with_delay_of_a_type_without_times(home: TubeWorld, type: str) -> None:
    """T5.5 fifo and utube ignore it."""
    tube = home.make(type)
    home.put(tube)
    home.take(tube)
    assert operations.release(home.n, home.t, tube, 1, 0, 5000).status == READY


def test_ttr_is_the_ttl_of_the_tube_unless_it_is_given(home: TubeWorld) -> None:
    """T2.5 TTR: by default the tube's ttl."""
    tube = home.make("utubettl", ttl_ms=3000)
    other = home.make("utubettl", "u", ttl_ms=3000, ttr_ms=500)
    for one in (tube, other):
        home.put(one, ttl_ms=60_000)
        home.take(one)
    until(home, 520)
    assert (status(tube), status(other)) == (TAKEN, READY)
    until(home, 2990)
    assert status(tube) == TAKEN
    until(home, 3020)
    assert status(tube) == READY


@pytest.mark.parametrize("type", ["fifottl", "utubettl"])
def test_kick_passes_over_what_is_dead(home: TubeWorld, type: str) -> None:
    """T6.1 a READY or BURIED one is then gone

    No kick brings it back before its timer."""
    tube = home.make(type)
    for number, ttl_ms in enumerate((1000, 50_000, 1000, 50_000)):
        home.put(tube, ttl_ms=ttl_ms)
        operations.bury(home.n, home.t, tube, number)
    home.n.now_ms += 1000
    assert operations.kick(home.n, home.t, tube, 1) == 1
    assert [status(tube, number) for number in range(4)] == [0, READY, BURIED, BURIED]
    assert operations.kick(home.n, home.t, tube, 9) == 1
    assert [status(tube, number) for number in range(4)] == [0, READY, 0, READY]
    calls = home.calls(tube)
    assert (calls["ttl"], calls["delete"], calls["kick"]) == (2, 2, 2), "T11.2"
    check(home.n)


def test_working_begins_the_time_anew(home: TubeWorld) -> None:
    """T1.4 ACKJOB and FASTACK are ack, NACK is release, WORKING restarts the time to work on the
    task."""
    tube = home.make("utubettl", ttr_ms=2000)
    first, second = home.put(tube, utube=b"a"), home.put(tube, utube=b"b")
    on_getjob(home.n, 7, [b"t"], 1)
    home.take(tube)
    operations.touch(home.n, home.t, tube, 1, 1, 10_000)
    until(home, 1500)
    for task in (first, second):
        assert on_working(home.n, task.id, 1) is None
    until(home, 3490)
    assert (status(tube, 0), status(tube, 1)) == (TAKEN, TAKEN)
    until(home, 3530)
    assert (status(tube, 0), status(tube, 1)) == (READY, TAKEN)
    until(home, 13_490)
    assert status(tube, 1) == TAKEN
    until(home, 13_530)
    assert status(tube, 1) == READY


def test_tasks_go_back_in_the_order_of_tube_and_number(home: TubeWorld) -> None:
    """T8.2 its tasks are released in the order of (tube, number)."""
    first, second = home.make("fifo", "z"), home.make("fifo", "a")
    for _ in range(3):
        for tube in (second, first):
            home.put(tube)
            home.take(tube)
    home.t.told.clear()
    for tube in (first, second):
        tube.subscribers = 1
    sessions.on_client_gone(home.n, home.t, 1)
    told = [(one.tube, int(one.change.number)) for one in home.t.told]
    assert told == [(b"z", 0), (b"z", 1), (b"z", 2), (b"a", 0), (b"a", 1), (b"a", 2)]


@pytest.mark.parametrize(("ms", "seconds"), [(1, 1), (59_999, 60), (60_000, 60), (60_001, 61)])
def test_whole_seconds_of_a_task(home: TubeWorld, ms: int, seconds: int) -> None:
    """W1.6 SHOW shows whole seconds, rounded up."""
    tube = home.make("fifottl")
    task = home.put(tube, ttr_ms=ms, delay_ms=ms)
    assert (task.retry_s, task.delay_s) == (seconds, seconds)
