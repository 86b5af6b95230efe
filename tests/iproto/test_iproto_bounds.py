"""L2.7: every call of IPROTO with its largest arguments, and many long ones of one connection."""

from __future__ import annotations

from typing import Any

from iproto_raw import request
from tuque.core.model.timers import TURN_WORK
from tuque.tubes.model.options import PutSpec, TubeOptions
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks import admin, operations
from tuque.wire.commands.tube_table import FUNCTIONS, METHODS
from world import World
from world_wires import IprotoWire

TASKS = 6_000
LARGEST: dict[bytes, list[Any]] = {
    b"put": ["x" * 1000, {"ttl": 1000}],
    b"take": [0],
    b"touch": [1, 1],
    b"ack": [0],
    b"release": [1],
    b"peek": [2],
    b"bury": [2],
    b"kick": [10**9],
    b"delete": [3],
    b"truncate": [],
    b"release_all": [],
    b"drop": [],
    b"tasks_by_state": ["r"],
    b"on_task_change": ["nosuch"],
    b"grant": ["guest", {"call": True}],
    b"queue.create_tube": ["new", "fifottl"],
    b"queue.identify": [],
    b"queue.state": [],
    b"queue.statistics": [],
    b"queue.tube": [],
    b"queue.cfg": [{"ttr": 5}],
    b"queue.register_driver": ["nosuch"],
}
LAST = [b"truncate", b"drop"]


def fill(world: World, conn: IprotoWire, name: bytes = b"t", tasks: int = TASKS) -> None:
    """A tube with many tasks."""
    n = world.server.n
    assert conn.call("queue.create_tube", name.decode(), "fifottl") == []
    t = tubes_of(n)
    for _ in range(tasks):
        operations.put(n, t, t.by_name[name], b"body", 0, PutSpec(), 0, 0)


def works_of(world: World) -> list[int]:
    """The units of work of each turn from now on."""
    works: list[int] = []
    world.lab.after_turn = lambda _: works.append(int(world.server.n.work))
    return works


def test_every_call_stays_within_the_bound(world: World) -> None:
    """L2.7 An IPROTO call has the bound of the corresponding command."""
    conn = world.iproto()
    fill(world, conn)
    t = tubes_of(world.server.n)
    for i in range(1_500):
        admin.create_tube(world.server.n, t, b"tube-%d" % i, b"fifo", TubeOptions(), b"u")
    works = works_of(world)
    calls = [name.decode() for name in FUNCTIONS]
    calls += [f"queue.tube.t:{name.decode()}" for name in METHODS if name not in LAST]
    calls += [f"queue.tube.t:{name.decode()}" for name in LAST]
    for call in calls:
        words = LARGEST.get(call.encode(), LARGEST.get(call.rpartition(":")[2].encode(), []))
        conn.call(call, *words)
        assert max(works) <= TURN_WORK + 10, call
        works.clear()
    assert b"t" not in t.by_name


def test_many_long_calls_of_one_connection(world: World) -> None:
    """L2.7 At most 4 long calls of one connection run concurrently; meanwhile its later requests
    wait.
    """
    conn = world.iproto()
    fill(world, conn, tasks=4 * TASKS)  # a call takes more than a turn
    conn.call("queue.tube.t:bury", 0)
    works: list[int] = []
    chores: list[int] = []
    world.lab.after_turn = lambda _: (
        works.append(int(world.server.n.work)),
        chores.append(len(world.server.chores)),
    )
    asked = {0x22: "queue.tube.t:tasks_by_state", 0x21: ["!"]}
    conn.send(b"".join([request(10, sync, asked) for sync in range(12)]))
    for sync in range(12):
        said = conn.hear(sync)
        assert said.code == 0, said
    most = max(chores)
    assert 0 < most <= 4 and max(works) <= TURN_WORK
    assert conn.is_open() and not world.server.chores
