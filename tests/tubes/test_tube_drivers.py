"""A driver of one's own (SPEC T3.5): the one that the documentation shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tube_world import TubeWorld, refused

from tuque.core.dispatch.timers import tick
from tuque.core.model.task import Task
from tuque.core.node.node import Node
from tuque.core.queues.deliver import on_getjob
from tuque.core.queues.procedures import check
from tuque.server.replies.errors import text_of
from tuque.tubes.model.driver_guard import DriverFailed, why_stopped
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.options import PutSpec, TubeOptions
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks import admin, operations
from tuque.tubes.tasks.admin import register_driver, replace_driver
from tuque.tubes.types.driver import Absent, Driver
from tuque.tubes.types.utube import Fifo, LimFifoTtl, UTube, UTubeTtl

PAGE = Path(__file__).parents[2] / "docs" / "tube-drivers.md"
NOW_MS = 1_700_000_000_000


def shown() -> type[Driver]:
    """The class that the page shows."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {"__name__": "shown"}
    exec(code[1], names)
    found = names["Lifo"]
    assert isinstance(found, type) and issubclass(found, Driver)
    return found


def test_the_newest_first() -> None:
    n = Node(b"a" * 40, b"seed", NOW_MS)
    t = tubes_of(n)
    register_driver(n, t, b"lifo", shown())
    tube = admin.create_tube(n, t, b"t", b"lifo", TubeOptions(), b"")
    spec = PutSpec()
    spec.ttr_ms = 1000
    for i in range(5):
        operations.put(n, t, tube, b"%d" % i, 0, spec, 1, 1)
        check(n)
    taken = [operations.take(n, t, tube, 1) for _ in range(3)]
    assert [task and task.number for task in taken] == [4, 3, 2]
    operations.release(n, t, tube, 1, 3, 0)
    operations.bury(n, t, tube, 1)
    check(n)
    assert [job.body for job in on_getjob(n, 2, [b"t"], 1)] == [b"3"]
    n.now_ms += 1020
    tick(n)
    check(n)
    assert [job.body for job in on_getjob(n, 2, [b"t"], 9)] == [b"4", b"3", b"2", b"0"]
    assert operations.kick(n, t, tube, 1) == 1
    operations.delete(n, t, tube, 1)
    check(n)


def test_a_type_has_one_driver() -> None:
    n = Node(b"a" * 40, b"seed", NOW_MS)
    with pytest.raises(TubeError) as e:
        register_driver(n, tubes_of(n), b"fifo", shown())
    assert text_of(e.value) == b'overriding registered driver "fifo"'


@pytest.mark.parametrize("type", [Fifo, UTube, UTubeTtl, LimFifoTtl])
def test_a_type_that_comes_later(type: Callable[[], Driver]) -> None:
    """T3.6 Tubes that waited for the type (T14.5) then start."""
    home = TubeWorld()
    n, t = home.n, home.t
    t.drivers[b"late"] = Absent
    tube = home.make("late", capacity=7)
    home.make("late", "empty")
    del t.drivers[b"late"]
    for i in range(7):
        home.put(tube, b"%d" % i, utube=b"k%d" % (i % 3), pri=9 - i, delay_ms=0 if i else 50)
    operations.bury(n, t, tube, 6)
    assert home.take(tube) is None
    operations.wait(n, t, tube, 5, 0)
    check(n)
    register_driver(n, t, b"late", type)
    check(n)
    assert home.woken() == [(5, 5)], "the smallest pri"
    keyed = tube.driver.is_keyed
    assert home.make("late", "new").type == b"late"
    home.tick_ms(60)
    taken = [home.take(tube) for _ in range(7)]
    assert len([number for number in taken if number is not None]) == (2 if keyed else 5)
    if type is LimFifoTtl:
        spec = PutSpec()
        assert operations.put(n, t, tube, b"x", 0, spec, 1, 1) is None, (
            "its limit was kept meanwhile"
        )
    check(n)


def test_a_taken_task_is_held_by_a_type_that_comes_later() -> None:
    """T3.6 Tubes that waited for the type (T14.5) then start.

    As after a start, a sub-queue with a TAKEN task is busy."""
    home = TubeWorld()
    n, t = home.n, home.t
    register_driver(n, t, b"late", UTube)
    tube = home.make("late")
    for i in range(4):
        home.put(tube, b"%d" % i, utube=b"k%d" % (i % 2))
    assert home.take(tube) == 0
    del t.drivers[b"late"]
    replace_driver(t, tube, Absent())
    check(n)
    register_driver(n, t, b"late", UTube)
    check(n)
    assert home.take(tube) == 1 and home.take(tube) is None
    home.ack(tube, 0)
    assert home.take(tube) == 2
    check(n)


class Broken(Driver):
    """Cannot have one task."""

    def enter(self, task: Task) -> None:
        if task.body == b"bad":
            raise ValueError("no")
        super().enter(task)


def test_a_driver_that_fails_changes_nothing() -> None:
    """T3.6 and nothing has changed."""
    home = TubeWorld()
    n, t = home.n, home.t
    t.drivers[b"late"] = Absent
    fine, tube = home.make("late", "fine"), home.make("late")
    del t.drivers[b"late"]
    home.put(fine)
    home.put(tube)
    home.put(tube, b"bad")
    with pytest.raises(DriverFailed) as caught:
        register_driver(n, t, b"late", Broken)
    assert isinstance(caught.value.error, ValueError) and t.notes == []
    text = "the driver 'late' makes no tuque.tubes.driver.Driver"
    refused(32, text, register_driver, n, t, b"late", dict)
    assert b"late" not in t.drivers and home.take(tube) is None and home.take(fine) is None
    check(n)
    register_driver(n, t, b"late", Fifo)
    assert [home.take(tube), home.take(tube), home.take(fine)] == [0, 1, 0]
    check(n)


class Faulty(Driver):
    """Raises where its name says, once a task with that body is about."""

    where = ""
    raised: type[BaseException] = KeyError

    def enter(self, task: Task) -> None:
        super().enter(task)
        self.fail("enter", task)

    def first(self) -> Task | None:
        task = super().first()
        if task is not None:
            self.fail("first", task)
            if task.body == b"other" and self.where == "other":
                return Task(b"i" * 40, b"t", b"", 0, 99, 0, 0)
        return task

    def took(self, task: Task) -> None:
        super().took(task)
        self.fail("took", task)

    def left(self, task: Task) -> None:
        super().left(task)
        self.fail("left", task)

    def freed(self, task: Task) -> None:
        self.fail("freed", task)

    def fail(self, where: str, task: Task) -> None:
        if self.where == where and task.body == where.encode():
            raise self.raised(f"oh no, {where}")


@pytest.mark.parametrize("raised", [KeyError, SystemExit])
@pytest.mark.parametrize("where", ["enter", "first", "took", "left", "freed", "other"])
def test_what_a_driver_raises_stops_its_tube_only(
    where: str, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """T3.8 it stops that tube and nothing else.

    T3.8 This holds for whatever Python can raise, SystemExit included"""
    monkeypatch.setattr(Faulty, "where", where)
    monkeypatch.setattr(Faulty, "raised", raised)
    home = TubeWorld()
    n, t = home.n, home.t
    register_driver(n, t, b"faulty", Faulty)
    tube, sound = home.make("faulty"), home.make("fifo", "sound")
    home.put(sound)
    home.put(tube, b"before")
    assert home.take(tube) == 0
    home.put(tube, where.encode())
    if where == "left":
        operations.bury(n, t, tube, 1)
        operations.kick(n, t, tube, 1)
    else:
        home.take(tube)
    if where == "freed":
        operations.release(n, t, tube, 1, 1, 0)
    check(n)
    (note,) = t.notes
    assert note.startswith("tube t: its driver failed: it delivers no task until")
    assert f"oh no, {where}" in note or "no READY task of the tube" in note
    assert home.take(tube) is None
    home.put(tube, b"after")
    assert [job.body for job in tube.peek(9)][-1] == b"after"
    assert home.take(tube) is None and home.take(sound) == 0
    why = why_stopped(tube.type, tube.driver)
    assert why.startswith((raised.__name__, "ValueError")) and not why_stopped(b"", sound.driver)
    operations.release(n, t, tube, 1, 0, 0)
    operations.delete(n, t, tube, 0)
    check(n)
    assert len(t.notes) == 1


def test_who_runs_the_node_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """T3.8 but not for KeyboardInterrupt."""
    monkeypatch.setattr(Faulty, "where", "first")
    monkeypatch.setattr(Faulty, "raised", KeyboardInterrupt)
    home = TubeWorld()
    register_driver(home.n, home.t, b"faulty", Faulty)
    tube = home.make("faulty")
    with pytest.raises(KeyboardInterrupt):
        home.put(tube, b"first")
        home.take(tube)


class Mute(BaseException):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise SystemExit


def test_a_driver_that_exits_where_it_is_made() -> None:
    """T3.8 It also holds for what is raised when a type or a callback is loaded or registered: it
    neither ends a node nor prevents its start."""
    home = TubeWorld()
    for error in (SystemExit(3), Mute(), AssertionError("oh")):

        def factory(error: BaseException = error) -> Driver:
            raise error

        with pytest.raises(DriverFailed) as caught:
            register_driver(home.n, home.t, b"late", factory)
        assert caught.value.error is error
    assert home.t.notes == [] and b"late" not in home.t.drivers


def test_a_driver_that_cannot_be_made_later() -> None:
    """T3.8 it stops that tube and nothing else.

    The type worked when it was registered."""
    home = TubeWorld()
    made: list[Driver] = []

    def factory() -> Driver:
        if len(made) > 0:
            raise OSError("its file is away")
        made.append(Driver())
        return made[0]

    register_driver(home.n, home.t, b"late", factory)
    tube = home.make("late")
    home.put(tube)
    assert home.take(tube) is None
    assert "its file is away" in home.node().log[-1]
    check(home.n)
