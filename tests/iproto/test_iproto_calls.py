"""Calls of IPROTO clients: names, arguments, reply shapes, errors (SPEC I4, I6, T13)."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from iproto_raw import encode, refused, request, tube
from tuque.tubes.policy import tubes_of
from until import until
from world import World

TYPES = ["fifo", "fifottl", "limfifottl", "utube", "utubettl"]


# ---- reply shapes


@pytest.mark.parametrize("type", TYPES)
def test_life_of_a_task(world: World, type: str) -> None:
    """I3.2, I6: the shapes of tubes.md, for each type."""
    conn = tube(world, type)
    put, take = "queue.tube.t:put", "queue.tube.t:take"
    assert conn.call(put, {"a": [1, None]}) == [[0, "r", {"a": [1, None]}]]
    assert conn.call(put, "b") == [[1, "r", "b"]]
    assert conn.call(take) == [[0, "t", {"a": [1, None]}]]
    assert conn.call("queue.tube.t:ack", 0) == [[0, "-", {"a": [1, None]}]]
    assert conn.call(take, 0) == [[1, "t", "b"]]
    assert conn.call("queue.tube.t:release", 1) == [[1, "r", "b"]]
    assert conn.call("queue.tube.t:peek", 1) == [[1, "r", "b"]]
    assert conn.call("queue.tube.t:bury", 1) == [[1, "!", "b"]]
    assert conn.call(take, 0) == []
    assert conn.call("queue.tube.t:kick") == [1]
    assert conn.call("queue.tube.t:kick", 5) == [0]
    assert conn.call(take, 0.001) == [[1, "t", "b"]]
    assert conn.call("queue.tube.t:delete", 1) == [[1, "-", "b"]]
    assert conn.call(put, "c") == [[2, "r", "c"]]
    assert conn.call("queue.tube.t:truncate") == []
    assert conn.call("queue.tube.t:release_all") == []
    assert conn.call("queue.tube.t:drop") == [True]
    assert conn.call("queue.tube") == [[]]


def test_call_16(world: World) -> None:
    """I3.3"""
    conn = tube(world)

    def call(name: str, *args: Any) -> Any:
        return conn.hear(conn.ask(6, {0x22: name, 0x21: args})).data

    assert call("queue.tube.t:put", 1) == [[0, "r", 1]]
    assert call("queue.tube.t:take", 0) == [[0, "t", 1]]
    assert call("queue.tube.t:take", 0) == []
    assert call("queue.tube.t:kick", 3) == [[0]]
    assert call("queue.state") == [["RUNNING"]]
    assert call("queue.tube") == [["t"]]
    assert call("queue.tube", "t") == [[True]]
    assert list(call("queue.statistics", "t")[0][0]) == ["tasks", "calls"]


def test_golden_put(world: World) -> None:
    """The bytes of tubes.md 9.10, with our schema version."""
    conn = tube(world)
    conn.send(
        bytes.fromhex(
            "2b83000a010005008222b071756575652e747562652e743a70757421"
            "9281a1610182a370726901a374746c3c"
        )
    )
    assert conn.receive() == bytes.fromhex(
        "ce000000268300ce0000000001cf000000000000000005ce000000018130dd000000019300a17281a16101"
    )


# ---- names


NAMES = [
    ("queue.tube.x:put", 33, "Procedure 'queue.tube.x:put' is not defined"),
    ("queue.tube.t:name", 33, "Procedure 'queue.tube.t:name' is not defined"),
    ("queue.tube.t.u:put", 33, "Procedure 'queue.tube.t.u:put' is not defined"),
    ("queue._VERSION", 33, "Procedure 'queue._VERSION' is not defined"),
    ("box.info", 33, "Procedure 'box.info' is not defined"),
    ("", 33, "Procedure '' is not defined"),
    ("queue.tube.t", 32, "attempt to call a table value"),
    ("queue.driver", 32, "attempt to call a table value"),
    ("queue", 32, "attempt to call a table value"),
    ("queue.tube.t.put", 32, "attempt to index field 'raw' (a nil value)"),
]


@pytest.mark.parametrize(("name", "code", "text"), NAMES)
def test_names(world: World, name: str, code: int, text: str) -> None:
    """I4.4"""
    conn = tube(world)
    assert refused(conn.call(name, 1)) == (code, text)
    assert refused(conn.call(name, 1)) == (code, text), "and once more, now that it is known"


def test_queue_functions(world: World) -> None:
    conn = tube(world)
    conn.call("queue.create_tube", "u", "utubettl")
    assert conn.call("queue.state") == ["RUNNING"]
    assert conn.call("queue.tube") == [["t", "u"]]
    assert conn.call("queue.tube", "u") == [True]
    assert conn.call("queue.tube", "v") == [False]
    text = "argument #1 should be string or nil"
    assert refused(conn.call("queue.tube", None)) == (32, text)
    assert sorted(conn.call("queue.statistics")[0]) == ["t", "u"]
    for name in ("queue.statistics", "queue.stats"):
        (figures,) = conn.call(name, "u")
        assert figures["tasks"] == dict.fromkeys(
            ["taken", "ready", "buried", "delayed", "done", "total"], 0
        )
        assert "delayed" in figures["calls"]
    assert refused(conn.call("queue.statistics", "v")) == (32, "attempt to index a nil value")


def test_cfg(world: World) -> None:
    conn = world.iproto()
    assert conn.call("queue.cfg") == []
    assert conn.call("queue.cfg", {"ttr": 1.5, "in_replicaset": True}) == []
    assert refused(conn.call("queue.cfg", {"ttl": 1})) == (32, "Unknown option ttl")
    assert refused(conn.call("queue.cfg", {"ttr": -1})) == (32, "Invalid value of ttr: -1")
    assert refused(conn.call("queue.cfg", {"ttr": "x"})) == (32, "Invalid value of ttr: x")
    assert refused(conn.call("queue.cfg", {"in_replicaset": 1}))[1].startswith("Invalid value of")
    text = "Cannot create temporary tube in replicaset mode"
    temporary = {"temporary": True}
    assert refused(conn.call("queue.create_tube", "t", "fifo", temporary)) == (32, text)


def test_a_capacity_below_0_is_none(world: World) -> None:
    """I6.11"""
    conn = world.iproto()
    for capacity, kept in ((-7, 0), (2.9, 2), (inf, (1 << 62) - 1)):
        assert conn.call("queue.create_tube", "t", "limfifottl", {"capacity": capacity}) == []
        assert tubes_of(world.server.n).by_name[b"t"].capacity == kept
        assert conn.call("queue.tube.t:drop") == [True]


def test_create_tube_refuses(world: World) -> None:
    conn = tube(world)
    assert refused(conn.call("queue.create_tube", "x", "lifo")) == (32, "Unknown tube type lifo")
    assert refused(conn.call("queue.create_tube", "x")) == (32, "Unknown tube type nil")
    assert refused(conn.call("queue.create_tube", "t", "fifottl")) == (
        32,
        "Space 't' already exists",
    )
    assert conn.call("queue.create_tube", "t", "fifottl", {"if_not_exists": True}) == []
    assert refused(conn.call("queue.create_tube"))[0] == 19
    assert refused(conn.call("queue.create_tube", 5, "fifo"))[0] == 18
    assert refused(conn.call("queue.create_tube", "", "fifo"))[0] == 70


# ---- arguments


def test_ids(world: World) -> None:
    """I6, T13: missing and wrong ids, each method in its own words."""
    conn = tube(world)
    for method, part in (("peek", 0), ("bury", 0), ("delete", 0), ("ack", 1), ("release", 1)):
        name = f"queue.tube.t:{method}"
        for wrong in ("x", 1.0, -1, None, [1], True):
            assert refused(conn.call(name, wrong)) == (
                18,
                f"Supplied key type of part {part} does not match index part type: "
                "expected unsigned",
            )
        assert refused(conn.call(name)) == (
            19,
            f"Invalid key part count in an exact match (expected {part + 1}, got {part})",
        )
    assert refused(conn.call("queue.tube.t:peek", 7)) == (32, "Task 7 not found")
    assert refused(conn.call("queue.tube.t:ack", 7)) == (32, "Task was not taken")
    for far in (1 << 62, (1 << 64) - 1):
        for method in ("peek", "bury", "delete"):
            told = refused(conn.call(f"queue.tube.t:{method}", far))
            assert told == (32, f"Task {far} not found"), "the number that was asked for"
    assert refused(conn.call("queue.tube.t:ack", (1 << 64) - 1)) == (32, "Task was not taken")
    assert conn.call("queue.tube.t:touch", 7) == []
    assert conn.call("queue.tube.t:touch", 7, 0) == []
    assert conn.call("queue.tube.t:touch", 7, -1) == []
    assert conn.call("queue.tube.t:touch", 7, None) == []
    assert refused(conn.call("queue.tube.t:touch", 7, 1)) == (32, "Task was not taken")


def test_put_without_data(world: World) -> None:
    """T13"""
    for type, field in (
        ("fifo", 3),
        ("utube", 4),
        ("fifottl", 8),
        ("limfifottl", 8),
        ("utubettl", 9),
    ):
        conn = tube(world, type, type)
        assert refused(conn.call(f"queue.tube.{type}:put")) == (
            39,
            f"Tuple field {field} required by space format is missing",
        )


@pytest.mark.parametrize(
    "options", [[], [1, 2], "x", None, {}, {"what": 1}, {"ttl": None, "pri": None}]
)
def test_options_that_say_nothing(world: World, options: Any) -> None:
    """I6.1, I6.4"""
    conn = tube(world)
    assert conn.call("queue.tube.t:put", 1, options, 3, 4, 5, 6, 7, 8, 9, 10) == [[0, "r", 1]]
    assert conn.call("queue.tube.t:take", None) == [[0, "t", 1]]
    assert conn.call("queue.tube.t:release", 0, options) == [[0, "r", 1]]


BAD_OPTIONS = [
    (5, 32, "attempt to index local 'opts' (a number value)"),
    (True, 32, "attempt to index local 'opts' (a boolean value)"),
    ({"delay": "x"}, 32, "attempt to compare number with string"),
    ({"ttl": "x"}, 32, "attempt to compare string with number"),
    ({"ttr": [1]}, 32, "attempt to compare table with number"),
    ({"pri": -1}, 23, None),
    ({"pri": 1.5}, 23, None),
    ({"pri": "1"}, 23, None),
]


@pytest.mark.parametrize(("options", "code", "text"), BAD_OPTIONS)
def test_options_that_are_refused(world: World, options: Any, code: int, text: str) -> None:
    """I6.3, I6.5"""
    if text is None:
        text = "Tuple field 6 type does not match one required by operation: expected unsigned"
    conn = tube(world)
    assert refused(conn.call("queue.tube.t:put", 1, options)) == (code, text)
    conn.call("queue.create_tube", "f", "fifo")
    if isinstance(options, dict):
        assert conn.call("queue.tube.f:put", 1, options) == [[0, "r", 1]], "fifo looks at none"


def test_too_many_options(world: World) -> None:
    """I6.4: a map costs memory only for what may be meant."""
    conn = tube(world)
    many = {f"o{number}": number for number in range(65)}
    assert refused(conn.call("queue.tube.t:put", 1, many)) == (32, "more than 64 options")
    del many["o0"]
    assert conn.call("queue.tube.t:put", 1, many) == [[0, "r", 1]]


def test_priorities(world: World) -> None:
    conn = tube(world)
    for pri in ((1 << 64) - 1, 5, 2.0, 0):
        conn.call("queue.tube.t:put", pri, {"pri": pri})
    assert [conn.call("queue.tube.t:take", 0)[0][0] for _ in range(4)] == [3, 2, 1, 0]


def test_times(world: World) -> None:
    """I6.2"""
    conn = tube(world)
    put = "queue.tube.t:put"
    assert conn.call(put, "d", {"delay": 90.5}) == [[0, "~", "d"]]
    assert conn.call(put, "n", {"delay": -1, "ttl": inf, "ttr": 1e300}) == [[1, "r", "n"]]
    assert conn.call(put, "gone", {"ttl": 0}) == [[2, "r", "gone"]]
    assert conn.call(put, "gone", {"ttl": -5}) == [[3, "r", "gone"]]
    assert conn.call(put, "x", {"ttl": (1 << 64) - 1, "delay": nan}) == [[4, "r", "x"]]
    assert refused(conn.call("queue.tube.t:peek", 2)) == (32, "Task 2 not found")
    assert refused(conn.call("queue.tube.t:peek", 3)) == (32, "Task 3 not found")
    world.pass_ms(70_000)
    assert conn.call("queue.tube.t:peek", 0)[0][1] == "~"
    world.pass_ms(21_000)
    assert conn.call("queue.tube.t:peek", 0)[0][1] == "r"
    assert conn.call("queue.tube.t:peek", 4)[0][1] == "r"


def test_kick_counts(world: World) -> None:
    conn = tube(world)
    for number in range(3):
        conn.call("queue.tube.t:put", number)
        conn.call("queue.tube.t:bury", number)
    kick = "queue.tube.t:kick"
    assert conn.call(kick, 0) == [0]
    assert conn.call(kick, -3) == [-3]
    assert conn.call(kick, 1.5) == [1]
    for wrong in ("x", None, True):
        assert refused(conn.call(kick, wrong)) == (32, "'for' limit must be a number")
    assert conn.call(kick, 1 << 63) == [2]
    for number in range(3):
        conn.call("queue.tube.t:bury", number)
    assert conn.call(kick, nan) == [0]
    assert conn.call(kick, inf) == [3]


@pytest.mark.parametrize(("utube", "same"), [(7, "7"), (7.5, "7.5"), (True, "true"), (None, None)])
def test_subqueues_that_are_no_text(world: World, utube: Any, same: Any) -> None:
    """I6.6"""
    conn = tube(world, "utube")
    put = "queue.tube.t:put"
    conn.call(put, 1, {"utube": utube})
    if same is None:
        conn.call(put, 2)
    else:
        conn.call(put, 2, {"utube": same})
    assert conn.call("queue.tube.t:take", 0) == [[0, "t", 1]]
    assert conn.call("queue.tube.t:take", 0) == []
    assert refused(conn.call(put, 3, {"utube": [1]}))[0] == 32
    text = "utube must be at most 512 bytes"
    assert refused(conn.call(put, 3, {"utube": "x" * 513})) == (32, text)


def test_take_timeouts_that_are_none(world: World) -> None:
    conn = tube(world)
    take = "queue.tube.t:take"
    assert conn.call(take, -5) == []
    assert refused(conn.call(take, "x")) == (32, "attempt to compare string with number")
    assert refused(conn.call(take, {})) == (32, "attempt to compare table with number")
    assert refused(conn.call("queue.tube.t:put")) != []


def test_touch_is_not_for_all(world: World) -> None:
    for type in ("fifo", "utube"):
        conn = tube(world, type, type)
        conn.call(f"queue.tube.{type}:put", 1)
        conn.call(f"queue.tube.{type}:take")
        text = f"{type} queue does not support touch"
        assert refused(conn.call(f"queue.tube.{type}:touch", 0, 1)) == (32, text)


# ---- data

DATA = [
    None,
    True,
    0,
    -1,
    (1 << 64) - 1,
    1.0,
    -(1 << 63),
    "",
    "text",
    b"",
    b"\xff\x00bytes",
    [],
    [1, None, None],
    {},
    {"b": 1, "a": {"c": [b"x", "y"]}},
    "x" * 70_000,
    b"x" * 70_000,
]


@pytest.mark.parametrize("data", DATA, ids=lambda one: repr(one)[:20])
def test_data_keep_their_bytes(world: World, data: Any) -> None:
    """I6.7: what was sent comes back, every byte of it."""
    conn = tube(world)
    raw = encode(data)
    conn.ask_call("queue.tube.t:put", data, {})
    assert raw in conn.receive()
    conn.ask_call("queue.tube.t:take")
    said = b""
    while len(said) < 28 + len(raw):
        said += conn.receive()
    assert said.endswith(b"\x93\x00\xa1t" + raw)


def test_ext_types_are_data(world: World) -> None:
    """I6.7: also what nobody here knows, float32 and a long form of a short number."""
    conn = tube(world)
    for raw in (b"\xd8\x02" + b"u" * 16, b"\xca\x3f\x80\0\0", b"\xcf" + b"\0" * 7 + b"\1"):
        body = b"\x82\x22" + encode("queue.tube.t:put") + b"\x21\x91" + raw
        inner = encode({0: 10, 1: 5}) + body
        conn.send(bytes([len(inner)]) + inner)
        assert conn.receive().endswith(b"\xa1r" + raw)


def test_a_body_beyond_the_limit(world: World) -> None:
    """L1"""
    world.server.max_bulk = 1000
    conn = tube(world)
    code, text = refused(conn.call("queue.tube.t:put", b"x" * 1001))
    assert code == 110 and "tuple is too large" in text
    assert conn.call("queue.tube.t:put", b"x" * 1000)[0][0] == 0


# ---- EVAL


def test_one_error_does_not_stop_a_pipeline(world: World) -> None:
    conn = tube(world)
    conn.send(
        request(10, 1, {0x22: "queue.tube.t:put", 0x21: [1]})
        + request(10, 2, {0x22: "queue.tube.t:peek", 0x21: [9]})
        + request(10, 3, {0x22: "queue.tube.t:peek", 0x21: [0]})
    )
    assert [conn.hear().code for _ in range(3)] == [0, 32, 0]


# ---- what the original has only inside its process


def test_tasks_by_state(world: World) -> None:
    conn = tube(world)
    for number in range(4):
        conn.call("queue.tube.t:put", number, {"pri": 9 - number})
    conn.call("queue.tube.t:bury", 1)
    name = "queue.tube.t:tasks_by_state"
    assert conn.call(name, "r") == [[[3, "r", 3], [2, "r", 2], [0, "r", 0]]]
    assert conn.call(name, "r", 1) == [[[3, "r", 3]]]
    assert conn.call(name, "!") == [[[1, "!", 1]]]
    assert conn.call(name, "t") == [[]]
    assert refused(conn.call(name))[0] == refused(conn.call(name, "x"))[0] == 32


def test_on_task_change(world: World) -> None:
    """T16.4: a callback of the server, by its name."""
    heard: list[tuple[Any, ...]] = []

    def listen(*what: Any) -> None:
        heard.append(what)

    world.server.notices.callbacks[b"listen"] = listen
    conn = tube(world, on_task_change="listen")
    conn.call("queue.tube.t:put", "a")
    until(lambda: len(heard) == 1)
    assert heard[0] == ("t", "put", 0, "READY", b"a")
    name = "queue.tube.t:on_task_change"
    assert conn.call(name, None) == ["listen"]
    conn.call("queue.tube.t:put", "b")
    assert conn.call(name, "listen") == [None]
    text = "this server has no callback named 'other'"
    assert refused(conn.call(name, "other")) == (32, text)
    conn.call("queue.tube.t:put", "c")
    until(lambda: len(heard) == 2)
    assert heard[1][2] == 2
    options = {"on_task_change": "other"}
    assert refused(conn.call("queue.create_tube", "u", "fifo", options)) == (32, text)
