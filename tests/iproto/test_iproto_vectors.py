"""What Tarantool's queue was seen to do, call by call, with the clock set by hand (SPEC T4-T11)."""

from __future__ import annotations

from typing import Any

import pytest

from iproto_raw import Said
from world import World
from world_wires import IprotoWire

TYPES = ["fifo", "fifottl", "limfifottl", "utube", "utubettl"]
TIMED = ["fifottl", "limfifottl", "utubettl"]


class Tube:
    """A connection, and the methods of its tube as attributes."""

    def __init__(self, world: World, type: str, **options: Any) -> None:
        self.world = world
        self.conn = world.iproto()
        self.conn.call("queue.create_tube", "t", type, options)

    def __getattr__(self, method: str) -> Any:
        return lambda *args: self.one(self.conn, method, *args)

    def by(self, conn: IprotoWire, method: str, *args: Any) -> Any:
        """The same for another connection."""
        return self.one(conn, method, *args)

    @staticmethod
    def one(conn: IprotoWire, method: str, *args: Any) -> Any:
        """The value of the answer; the text of an error; no value is `()`."""
        said = conn.call(f"queue.tube.t:{method}", *args)
        if isinstance(said, Said):
            return said.data
        return said[0] if said else ()

    def counts(self) -> dict[str, dict[str, int]]:
        """statistics, without what is 0."""
        (found,) = self.conn.call("queue.statistics", "t")
        return {key: {k: v for k, v in part.items() if v} for key, part in found.items()}


def test_1_numbers_go_on(world: World) -> None:
    """T2.1: the original would give 0 again."""
    t = Tube(world, "fifo")
    assert t.put("a") == [0, "r", "a"]
    assert t.take(0) == [0, "t", "a"]
    assert t.ack(0) == [0, "-", "a"]
    assert t.put("b") == [1, "r", "b"]


@pytest.mark.parametrize("type", TYPES)
def test_3_a_released_task_goes_first(world: World, type: str) -> None:
    """T4.3"""
    t = Tube(world, type)
    for data in "abc":
        t.put(data)
    assert t.take(0)[0] == 0
    t.release(0)
    assert t.take(0)[0] == 0


def test_6_ttr_and_ttl(world: World) -> None:
    """T6.1, T6.3"""
    t = Tube(world, "fifottl")
    t.put("a", {"ttl": 50, "ttr": 20})
    t.take(0)
    world.pass_ms(25_000)
    assert t.peek(0) == [0, "r", "a"]
    world.pass_ms(30_000)
    assert t.peek(0) == "Task 0 not found"
    assert t.counts()["calls"] == {"put": 1, "take": 1, "ttr": 1, "ttl": 1, "delete": 1}
    assert t.counts()["tasks"] == {"done": 1}


@pytest.mark.parametrize(("type", "stays"), [("fifottl", False), ("utubettl", True)])
def test_7_8_ttl_of_a_taken_task(world: World, type: str, stays: bool) -> None:
    """T6.2"""
    t = Tube(world, type)
    t.put("a", {"ttl": 30, "ttr": 100})
    t.take(0)
    world.pass_ms(40_000)
    assert t.ack(0) == ([0, "-", "a"] if stays else "Task was not taken")


@pytest.mark.parametrize("type", TIMED)
def test_9_a_delay_is_added_to_ttl(world: World, type: str) -> None:
    """T6.1, T6.4"""
    t = Tube(world, type)
    t.put("a", {"ttl": 20, "delay": 20})
    assert t.take(0) == ()
    world.pass_ms(25_000)
    assert t.take(0) == [0, "t", "a"]
    t.release(0)
    world.pass_ms(20_000)
    assert t.take(0) == ()
    assert t.counts()["tasks"] == {"done": 1}


@pytest.mark.parametrize("type", TIMED)
def test_10_ttl_ends_a_buried_task(world: World, type: str) -> None:
    """T6.1"""
    t = Tube(world, type)
    t.put("a", {"ttl": 40, "ttr": 10})
    t.take(0)
    t.bury(0)
    world.pass_ms(20_000)
    assert t.peek(0) == [0, "!", "a"]
    world.pass_ms(30_000)
    assert t.peek(0) == "Task 0 not found"


@pytest.mark.parametrize("type", TIMED)
def test_11_a_kicked_task_forgets_its_delay(world: World, type: str) -> None:
    """T4"""
    t = Tube(world, type)
    t.put("a", {"delay": 50})
    assert t.bury(0) == [0, "!", "a"]
    assert t.kick(1) == 1
    assert t.take(0) == [0, "t", "a"]


@pytest.mark.parametrize("type", TIMED)
def test_12_touch_is_for_good(world: World, type: str) -> None:
    """T5.4"""
    t = Tube(world, type, ttl=70, ttr=20)
    t.put("a")
    t.take(0)
    assert t.touch(0, 50) == [0, "t", "a"]
    world.pass_ms(60_000)
    assert t.release(0) == [0, "r", "a"], "ttr was 20 s"
    t.take(0)
    world.pass_ms(50_000)
    assert t.peek(0)[1] == "t", "and is 70 s now, ttl 120 s"
    world.pass_ms(25_000)
    assert t.peek(0) == "Task 0 not found"


@pytest.mark.parametrize("type", TIMED)
def test_13_14_priorities(world: World, type: str) -> None:
    """T3.2, T4.3"""
    t = Tube(world, type)
    for number, pri in enumerate((5, 4, 3)):
        t.put(number, {"pri": pri, "utube": str(number)})
    assert [t.take(0)[0] for _ in range(3)] == [2, 1, 0]
    t.put("late", {"delay": 10})
    t.put("now")
    world.pass_ms(11_000)
    assert t.take(0)[2] == "late"


@pytest.mark.parametrize("type", ["utube", "utubettl"])
def test_15_16_sub_queues(world: World, type: str) -> None:
    """T3.3, T3.4, T9.1"""
    t = Tube(world, type)
    for data in ("x0", "x1", "y0"):
        t.put(data, {"utube": data[0]})
    assert [t.take(0)[2], t.take(0)[2]] == ["x0", "y0"]
    assert t.take(0) == ()
    other = world.iproto()
    blocked = other.ask_call("queue.tube.t:take")
    other.call("queue.state")
    t.put("x2", {"utube": "x"})
    assert t.delete(3)[1] == "-"
    t.ack(0)
    assert other.hear(blocked).data == [[1, "t", "x1"]]


@pytest.mark.parametrize("type", TYPES)
def test_18_21_22_errors(world: World, type: str) -> None:
    """T5.3, T13"""
    t = Tube(world, type)
    assert t.kick(5) == 0
    t.put("a")
    t.put("b")
    t.bury(0)
    assert t.bury(0) == [0, "!", "a"]
    assert t.kick(5) == 1, "as many as there are"
    assert t.release(0) == t.ack(0) == "Task was not taken"
    assert t.delete(7) == "Task 7 not found"
    assert t.counts()["calls"] == {"put": 2, "bury": 1, "kick": 1}


@pytest.mark.parametrize("type", TYPES)
def test_the_counters_of_the_module_s_own_test(world: World, type: str) -> None:
    """T11"""
    t = Tube(world, type)
    is_timed = type in TIMED
    for number in range(5):
        t.put(number)
    if is_timed:
        t.put("later", {"delay": 1000})
    t.delete(4)
    assert t.take(0)[0] == 0
    t.release(0)
    assert t.take(0)[0] == 0
    t.ack(0)
    t.bury(1)
    t.bury(2)
    assert t.kick(1) == 1
    assert t.take(0)[0] == 1
    found = t.counts()
    tasks = {"taken": 1, "buried": 1, "ready": 1, "done": 2, "total": 4 if is_timed else 3}
    calls = {"delete": 1, "ack": 1, "take": 3, "kick": 1, "bury": 2, "release": 1}
    assert found["tasks"] == ({**tasks, "delayed": 1} if is_timed else tasks)
    assert found["calls"] == {**calls, "put": 6 if is_timed else 5}


@pytest.mark.parametrize("type", TYPES)
def test_truncate_lets_go_of_everything(world: World, type: str) -> None:
    """X110: the original keeps records of who held what."""
    t = Tube(world, type)
    t.put("a")
    t.take(0)
    assert t.truncate() == ()
    assert t.ack(0) == "Task was not taken"
    t.put("b")
    t.take(0)
    t.conn.close()
    other = world.iproto()
    assert t.by(other, "take", 0) == [1, "t", "b"], "the session's other tasks went back"
    t.by(other, "ack", 1)
    assert t.by(other, "drop") is True
