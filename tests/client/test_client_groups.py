"""Groups of jobs with the client (SPEC T51)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from client_nodes import ID, Connect, ScriptedNode, in_turn

from lab import RealServer
from tuque import Client
from tuque.client.commands import groups
from tuque.client.commands.calls import Call
from tuque.client.commands.groups import ChildEnd, GroupChild, JobGroup
from tuque.client.routing.leaders import tubes_in
from tuque.errors import Closed, NoJobGroup, NoTube, Timeout
from tuque.worker import App
from until import until

ROW = [
    b"id", b"D-1", b"queue", b"t", b"state", b"open", b"children", 3, b"added", 2, b"done", 1,
    b"failed", 0, b"onfail", b"stop", b"callback", 1, b"created-ms", 5, b"over-ms", 0,
]  # fmt: skip
SHOWN = JobGroup("D-1", "t", "open", 3, 2, 1, 0, "stop", True, 5, 0)


@pytest.mark.parametrize(
    ("call", "words", "reply", "value"),
    [
        (groups.group_create("t", 3), [b"CREATE", b"t", 3], b"D-1", "D-1"),
        (
            groups.group_create(
                "t", 3, body="b", on_fail="wait", keep=1.5, retry=9, pri=7, limit=("l", 2)
            ),
            [b"CREATE", b"t", 3, "ONFAIL", "wait", "KEEP", "1.500", "RETRY", 9, "PRI", 7,
             "LIMIT", b"l", 2, "THEN", b"b"],
            b"D-1",
            "D-1",
        ),
        (
            groups.group_create(
                "t", 3, body="b", attempts=3, backoff=(1, 2, 0.5), dead="d", time_limit=7,
                headers={"n": "v"},
            ),
            [b"CREATE", b"t", 3, "ATTEMPTS", 3, "BACKOFF", 1, 2, "0.500", "DEAD", b"d",
             "TIMELIMIT", 7, "HEADERS", 1, "n", b"v", "THEN", b"b"],
            b"D-1",
            "D-1",
        ),
        (
            groups.group_add("t", "D-1", {0: "D-2", 7: "D-3"}),
            [b"ADD", b"t", b"D-1", 0, b"D-2", 7, b"D-3"],
            2,
            2,
        ),
        (groups.group_show("t", "D-1"), [b"SHOW", b"t", b"D-1"], ROW, SHOWN),
        (groups.group_cancel("t", "D-1"), [b"CANCEL", b"t", b"D-1"], 1, True),
        (
            groups.group_page("t", "5"),
            [b"LIST", b"t", "5", "COUNT", 100],
            [b"7", [ROW]],
            ("7", [SHOWN]),
        ),
        (
            groups.group_page("t", "0", count=5, state="failed"),
            [b"LIST", b"t", "0", "COUNT", 5, "STATE", "failed"],
            [b"0", []],
            ("0", []),
        ),
        (
            groups.children_page("t", "D-1", "5", state="failed"),
            [b"CHILDREN", b"t", b"D-1", "5", "COUNT", 1_000, "STATE", "failed"],
            [0, [[6, b"D-2", b"failed", 0, b"dead", b"why", 9]]],
            ("0", [GroupChild(6, "D-2", "failed", 0, "dead", "why", 9)]),
        ),
        (
            groups.ends_page("t", "D-1", "5"),
            [b"RESULTS", b"t", b"D-1", "5", "COUNT", 1_000],
            [0, [[6, b"D-2", b"failed", None, b"dead", b"why"]]],
            ("0", [ChildEnd(6, "D-2", "failed", None, "dead", "why")]),
        ),
    ],
)  # fmt: skip
def test_words_and_values(call: Call[Any], words: list[Any], reply: Any, value: Any) -> None:
    assert call.args == ("GROUP", words[0].decode(), *words[1:])
    assert call.read(reply) == value
    assert tubes_in(call) == [b"t"]  # it goes to the leader


def test_both_faces(connect: Connect, node: ScriptedNode) -> None:
    node.answers["GROUP"] = b"+D-1\r\n"
    assert connect(node.url).group_create("t", 5) == "D-1"


def test_a_group_on_a_node(real_node: RealServer) -> None:
    with Client(real_node.url) as client:
        with pytest.raises(NoTube):
            client.group_create("plain", 1)
        client.tube("sums").create("tasks", ttr=30)
        with pytest.raises(NoJobGroup):
            client.group_show("sums", client.addjob("kept", "x"))
        group = client.group_create("sums", 40, body="all", pri=3)
        ids = [client.addjob("numbers", str(i), keep=600) for i in range(40)]
        forms = {index: id.replace("-", "_") for index, id in enumerate(ids)}
        assert client.group_add("sums", group.replace("-", "_"), forms) == 40
        assert client.group_show("sums", group.replace("-", "_").encode()).id == group
        assert [one.id for one in client.groups("sums")] == [group]
        for i, id in enumerate(ids):
            client.done(id, "-", result=b"r%d" % i)
        until(lambda: client.group_show("sums", group).state == "called")
        ends = list(client.group_results("sums", group, count=7))
        assert [one.index for one in ends] == list(range(40))
        assert [one.id for one in ends] == ids and ends[2].result == b"r2"
        children = list(client.group_children("sums", group, state="done", count=7))
        assert [one.id for one in children] == ids and children[2].result_bytes == 2
        assert [one.id for one in client.groups("sums", state="called")] == [group]
        assert list(client.groups("sums", state="open")) == []
        (job,) = client.getjob("sums", count=9)
        assert (job.id, job.body) == (group, b"all")
        other = client.group_create("sums", 2)
        assert client.group_cancel("sums", other) and not client.group_cancel("sums", other)
        assert client.group_show("sums", other).state == "cancelled"
        info = client.info("tubes")
        assert (info["tubes_groups_made"], info["tubes_groups_done"]) == (2, 1)
        assert info["tubes_groups_failed"] == 1


def row_of(fields: dict[bytes, bytes | int]) -> bytes:
    said = [b"*%d\r\n" % (2 * len(fields))]
    for one in (part for field in fields.items() for part in field):
        said.append(
            b":%d\r\n" % one if isinstance(one, int) else b"$%d\r\n%b\r\n" % (len(one), one)
        )
    return b"".join(said)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("limit_s", [None, 0.3])
def test_the_look_for_a_group_goes_on_in_an_outage(
    node: ScriptedNode, limit_s: float | None, is_async: bool
) -> None:
    """U1.6 A wait for a result continues while the broker is away"""
    texts = (b"worker", b"progress", b"result", b"cause", b"reason", b"detail")
    numbers = (b"attempt", b"of", b"ended-ms")
    fields = {b"state": b"scheduled", **dict.fromkeys(texts, b""), **dict.fromkeys(numbers, 0)}
    node.answers |= {"RESULT": in_turn(row_of(fields), b""), "SHOW": b""}
    app = App(f"{node.url}/?timeout=0.4&retries=0")

    async def waited() -> None:
        try:
            await app.handle(ID, int).result_async(limit_s)
        finally:
            await app.aclose()

    with pytest.raises((Closed, Timeout)):
        asyncio.run(waited()) if is_async else app.handle(ID, int).result(limit_s)
    assert (node.count("RESULT"), node.count("SHOW") > 1) == (1, True)
    app.close()


def test_children_that_are_no_mapping_are_named() -> None:
    with pytest.raises(TypeError, match="children maps indexes to ids of jobs, and is not 5"):
        groups.group_add("t", "D-1", 5)  # type: ignore[arg-type]  # a wrong one
