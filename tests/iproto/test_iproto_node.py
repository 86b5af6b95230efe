"""What the node says to calls of IPROTO clients: types, times, what it refuses (SPEC I4, I6)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from iproto_raw import refused, tube
from tuque.wire.commands.tube_arguments import ms_of
from tuque.wire.proto.msgpack import Value
from world import World


def test_register_driver(world: World) -> None:
    """I6.9, T3.6: names of installed types, and no functions."""
    conn = world.iproto()
    named = (
        'tube control methods must contain functions "create_space" and "new": '
        "here a driver is a class of an installed package, and is named alone"
    )
    for args in ((), (None,), (1,), ("x", {}), ("x", {"create_space": 1, "new": 1})):
        assert refused(conn.call("queue.register_driver", *args)) == (32, named)
    none = "no package of this server has a driver named '%s'"
    for name in ("x", "os:system", ""):
        assert refused(conn.call("queue.register_driver", name)) == (32, none % name)
    taken = 'overriding registered driver "fifo"'
    assert refused(conn.call("queue.register_driver", "fifo")) == (32, taken)


def test_texts_of_errors_are_text(world: World) -> None:
    """I3.4: "bytes that it repeats and that are no UTF-8 stand there as" their digits."""
    conn = tube(world)
    none = "no package of this server has a driver named '%s'"
    assert refused(conn.call("queue.register_driver", b"\x80a")) == (32, none % "\\x80a")
    assert refused(conn.call("queue.register_driver", "Grüße")) == (32, none % "Grüße")
    said = refused(conn.call("queue.create_tube", "u", b"\xff"))
    assert said == (32, "Unknown tube type \\xff")
    said = refused(conn.call("queue.tube.t:grant", b"\xfe", {"call": True}))
    assert said == (45, "User '\\xfe' is not found")


@pytest.mark.parametrize(
    ("seconds", "ms"),
    [(1.0005, 1001), (0.9999, 1000), (1e-9, 1), (0.1, 100), (1.1, 1100), (2, 2000), (0.0015, 2)],
)
def test_times_are_rounded_up(seconds: float, ms: int) -> None:
    """I6.2 Times are seconds, fractions allowed, rounded up to 1 ms."""
    data = msgspec.msgpack.encode(seconds)
    assert ms_of(Value(data, 0, len(data))) == ms


def test_a_node_that_is_loading_or_has_a_double(world: World) -> None:
    """I4.8: 116 while the journal is loaded, 7 while another node has the same id."""
    conn = tube(world)
    world.server.is_loading = True
    loading = (116, "Instance bootstrap hasn't finished yet")
    for name in ("queue.tube.t:put", "queue.tube.t:peek", "queue.statistics"):
        assert refused(conn.call(name, 0)) == loading
    world.server.is_loading = False
    world.n.is_double = True
    double = (7, "another node has the id of this one")
    for name in ("queue.tube.t:put", "queue.tube.t:take", "queue.create_tube"):
        assert refused(conn.call(name, 0)) == double
    assert conn.hear(conn.ask(64)).code == 0, "PING is no call"
    world.n.is_double = False
    assert conn.call("queue.tube.t:put", 1) == [[0, "r", 1]]


def test_memory_and_journal(world: World) -> None:
    """I4.8"""
    conn = tube(world)
    world.server.journal_error = "disk full"
    assert refused(conn.call("queue.tube.t:put", 1)) == (40, "Failed to write to disk: disk full")
    assert refused(conn.call("queue.tube.t:peek", 0)) == (32, "Task 0 not found")
    world.server.journal_error = ""
    world.n.limits.memory_bytes = 1
    short = "Failed to allocate memory: "
    full = short + "command not allowed when used memory > 'maxmemory': let jobs end, or raise"
    for name in ("queue.tube.t:put", "queue.create_tube"):
        assert refused(conn.call(name, "x", "fifo")) == (2, full + " maxmemory")
    world.n.limits.memory_bytes = world.n.counted_bytes() * 5 // 4
    above = short + "used memory is above 75 % of 'maxmemory': let jobs end, or raise maxmemory"
    assert refused(conn.call("queue.tube.t:put", 1)) == (2, above)
    assert conn.call("queue.tube.t:take", 0) == []
    world.n.limits.memory_bytes = 0
    assert conn.call("queue.tube.t:put", 1) == [[0, "r", 1]]


def test_eval(world: World) -> None:
    """I4.5"""
    conn = world.iproto()
    create = "local name, type, cfg = ... ; queue.create_tube(name, type, cfg)"
    exists = "local name = ... ; return queue.tube[name] ~= nil"

    def run(text: str, *args: Any) -> Any:
        return conn.values(conn.hear(conn.ask(8, {0x27: text, 0x21: args})))

    assert run(create, "t", "fifo", {"temporary": True}) == []
    assert run(exists, "t") == [True]
    assert run(exists, "u") == [False]
    assert refused(run("return 1 + 1"))[0] == 32
    assert refused(run(exists))[0] == 32
    assert refused(run("os.execute(...)", "t"))[0] == 32
    for args in (("v",), ("v", "fifo", {}, 1)):
        assert refused(run(create, *args))[1].startswith("EVAL: there is no Lua here")
    assert conn.call("queue.tube", "v") == [False]
