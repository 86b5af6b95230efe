"""L2.7: every call of IPROTO with its largest arguments, and many long ones of one connection."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from iproto_raw import encode, request
from tuque.core.model.timers import PIECE, TURN_WORK
from tuque.tubes.model.options import PutSpec, TubeOptions
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks import admin, operations
from tuque.wire.commands.tube_table import FUNCTIONS, METHODS
from tuque.wire.proto.iproto import BrokenStream, LongFrame, Request, request_of
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
    long_commands: list[int] = []
    world.lab.after_turn = lambda _: (
        works.append(int(world.server.n.work)),
        long_commands.append(len(world.server.long_commands)),
    )
    asked = {0x22: "queue.tube.t:tasks_by_state", 0x21: ["!"]}
    conn.send(b"".join([request(10, sync, asked) for sync in range(12)]))
    for sync in range(12):
        said = conn.hear(sync)
        assert said.code == 0, said
    most = max(long_commands)
    assert 0 < most <= 4 and max(works) <= TURN_WORK + PIECE
    assert conn.is_open() and not world.server.long_commands


def test_many_frames_have_their_share_of_a_turn(world: World) -> None:
    """L2.10 A connection whose commands have done 1,000 units in a turn, or 100 once the turn
    has done 5,000, runs no more in it, short ones neither.
    """
    conn = world.iproto()
    fill(world, conn, tasks=400)
    works = works_of(world)
    asked = {0x22: "queue.tube.t:tasks_by_state", 0x21: ["r"]}
    conn.send(b"".join([request(10, sync, asked) for sync in range(100)]))
    assert conn.hear(99).code == 0
    assert max(works) <= PIECE + 2 * 400 and sum(works) >= 100 * 400


def test_a_long_frame_is_read_in_slices(world: World) -> None:
    """I2.3 A frame over 64 KiB is read in slices (L2.2)."""
    conn = world.iproto()
    works = works_of(world)
    pairs = dict.fromkeys(range(0x100, 0x100 + 60_000), 1)
    call = {0x22: "queue.tube.t:put", 0x21: [[1] * 200_000]}
    for body, code in ((pairs | call, 33), (pairs, 69)):
        works.clear()
        conn.send(request(10, 7, body))
        assert conn.hear(7).code & 0x7FFF == code
        assert sum(works) >= 60_000 * 2 // 32, "the values are counted"
        assert max(works) <= PIECE + 100
    conn.send(request(64, 8))
    assert conn.hear(8).code == 0
    assert conn.call("queue.create_tube", "t", "fifottl") == []
    conn.send(request(10, 9, call))
    assert conn.hear(9).code == 0
    conn.send(request(10, 10, pairs)[:-1] + b"\xc1")
    assert conn.hear(10).code & 0x7FFF == 20 and conn.is_open()


def told(step: Any) -> tuple[Any, ...]:
    """What a frame says, or why it is refused."""
    try:
        found = step()
    except BrokenStream as error:
        return (error.text,)
    body = {key: value.raw() for key, value in found.body.items()}
    return found.type, found.sync, body, found.error


def in_pieces(data: bytes, looks: int) -> Request:
    """The request, so many values at once."""
    frame = LongFrame(data, 0, len(data))
    while not frame.is_done:
        frame.step(looks)
    assert frame.request is not None
    return frame.request


VALUES = st.recursive(
    st.none() | st.integers(-40, 2**40) | st.binary(max_size=40) | st.text(max_size=4),
    lambda one: st.lists(one, max_size=20) | st.dictionaries(st.integers(0, 300), one, max_size=4),
    max_leaves=30,
)


@given(
    st.dictionaries(st.integers(0, 200), VALUES, max_size=20),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=2),
    st.integers(1, 9),
)
def test_pieces_say_what_the_whole_frame_says(
    body: dict[int, Any], spoilt: list[tuple[int, int]], looks: int
) -> None:
    data = bytearray(encode({0: 10, 1: 5}) + encode(body))
    for at, byte in spoilt:
        data[at % len(data)] = byte
    whole = bytes(data)
    wanted = told(lambda: request_of(whole, 0, len(whole)))
    assert told(lambda: in_pieces(whole, looks)) == wanted
