"""Values with the client (SPEC T70 to T72)."""

from __future__ import annotations

from typing import Any

import pytest

from tuque.client.commands import values
from tuque.client.commands.calls import Call
from tuque.client.commands.values import Tally, ValueRow
from tuque.client.routing.leaders import tubes_in
from tuque.errors import NoTube
from world import World


@pytest.mark.parametrize(
    ("call", "words", "reply", "value"),
    [
        (
            values.value_set("t", "n", b"v", ttl=1.5, end=True, fixed=True, new=True),
            [b"SET", b"t", b"n", b"v", "TTL", "1.500", "END", "FIXED", "NEW"],
            0,
            False,
        ),
        (values.value_set("t", "n", "v"), [b"SET", b"t", b"n", b"v"], 1, True),
        (values.value_get("t", "a", b"b", "c"), [b"GET", b"t", b"a", b"b", b"c"],
         [b"1", None], {"a": b"1", "b": None}),
        (values.value_wait("t", "a"), [b"WAIT", b"t", 0, b"a"], [[b"a", None]], {"a": None}),
        (values.value_wait("t", "a", "b", wait_ms=9, count=1),
         [b"WAIT", b"t", 9, b"a", b"b", "COUNT", 1], [[b"b", b"2"]], {"b": b"2"}),
        (values.value_drop("t", "a", "b"), [b"DROP", b"t", b"a", b"b"], 1, 1),
        (values.value_add("t", "n", -2, ttl=0), [b"ADD", b"t", b"n", -2, "TTL", 0], 5, 5),
        (values.value_tally("t", "s", 3, b"p", size=4, ttl=60),
         [b"TALLY", b"t", b"s", 3, b"p", "SIZE", 4, "TTL", 60], [2, 4, 0], Tally(2, 4, False)),
        (values.value_tally("t", "s", None, size=2),
         [b"TALLY", b"t", b"s", "-", b"", "SIZE", 2], [2, 2, 1], Tally(2, 2, True)),
        (values.value_parts_page("t", "s", "7"), [b"PARTS", b"t", b"s", "7", "COUNT", 1_000],
         [9, [[7, b"p"]]], ("9", [(7, b"p")])),
        (values.value_scan_page("t", "7", match="v*"),
         [b"SCAN", b"t", "7", "MATCH", b"v*", "COUNT", 100],
         [b"0", [[b"v", b"fixed", 3, 0]]], ("0", [ValueRow("v", "fixed", 3, 0)])),
    ],
)  # fmt: skip
def test_words_and_values(call: Call[Any], words: list[Any], reply: Any, value: Any) -> None:
    given = [str(call.args[1]).encode(), *call.args[2:]]
    assert given == words
    assert call.parse(reply) == value
    assert tubes_in(call) == [b"t"]


def test_a_wait_goes_on_until_enough_are_there() -> None:
    call = values.value_wait("t", "a", "b", wait_ms=9_000)
    assert call.may_block and call.reads
    assert call.goes_on([[b"a", b"1"]]) and not call.goes_on([[b"a", b"1"], [b"b", None]])
    assert call.waiting(0.25).args[3] == 250
    for odd in (lambda: values.value_get("t"), lambda: values.value_wait("t", "a", wait_ms=0)):
        with pytest.raises(ValueError, match="at least"):
            odd()


def test_values_at_a_node(world: World) -> None:
    client = world.client()
    with pytest.raises(NoTube):
        client.value_set("t", "a", "1")
    client.tube("t").create("tasks")
    assert client.value_set("t", "a", "1", ttl=60)
    assert client.value_add("t", "n") == 1
    given = [client.value_tally("t", "s", i, f"p{i}", size=2).completes for i in (1, 0, 1)]
    assert given == [False, True, False]
    assert list(client.value_parts("t", "s", count=1)) == [(0, b"p0"), (1, b"p1")]
    assert [row.kind for row in client.value_scan("t")] == ["value", "value", "parts"]
    assert client.value_wait("t", "a", wait_ms=10) == {}
    pipe = client.pipeline()
    pipe.value_set("t", "a", "2", end=True, fixed=True)
    pipe.value_get("t", "a", "x")
    assert pipe.execute() == [True, {"a": b"2", "x": None}]
    assert client.value_wait("t", "a") == {"a": b"2"}
    assert client.value_drop("t", "n", "s") == 2
