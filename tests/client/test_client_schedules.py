"""Schedules with the client (SPEC T46)."""

from __future__ import annotations

from typing import Any

import pytest
from client_nodes import Connect, ScriptedNode

from lab import RealServer
from tuque import Client
from tuque.client.commands import operate, schedules
from tuque.client.commands.calls import Call
from tuque.client.commands.operate import KeyRow
from tuque.client.commands.schedules import Schedule
from tuque.client.routing.leaders import tubes_in
from tuque.errors import NoSchedule, NoTube
from world import World

ROW = [
    b"name", b"n", b"queue", b"t", b"cron", b"0 9 * * *", b"tz", b"UTC", b"every-ms", 0,
    b"missed", b"one", b"paused", 1, b"next-ms", 0, b"last-ms", 5, b"fired", 2, b"late", 1,
    b"id", b"D-1",
]  # fmt: skip
SHOWN = Schedule("n", "t", "0 9 * * *", "UTC", 0.0, "one", True, 0, 5, 2, 1, "D-1")


@pytest.mark.parametrize(
    ("call", "words", "reply", "value"),
    [
        (
            schedules.schedule_add("t", "n", "b", cron="0 9 * * *", tz="UTC", missed="all"),
            [b"ADD", b"t", b"n", "CRON", b"0 9 * * *", "TZ", b"UTC", "MISSED", "all", b"b"],
            b"ADDED",
            "added",
        ),
        (
            schedules.schedule_add(
                "t", "n", "b", every_s=1.5, retry=9, ttl=8, pri=7, unique="u", limit=("l", 2)
            ),
            [b"ADD", b"t", b"n", "EVERY", "1.500", "RETRY", 9, "TTL", 8, "PRI", 7,
             "UNIQUE", b"u", "LIMIT", b"l", 2, b"b"],
            b"REPLACED",
            "replaced",
        ),
        (
            schedules.schedule_page("t", "5"),
            [b"LIST", b"t", "5", "COUNT", 100],
            [b"7", [ROW]],
            ("7", [SHOWN]),
        ),
        (schedules.schedule_show("t", "n"), [b"SHOW", b"t", b"n"], ROW, SHOWN),
        (schedules.schedule_pause("t", "n"), [b"PAUSE", b"t", b"n"], 1, True),
        (schedules.schedule_resume("t", "n"), [b"RESUME", b"t", b"n"], 0, False),
        (schedules.schedule_run("t", "n"), [b"RUN", b"t", b"n"], b"D-1", "D-1"),
        (schedules.schedule_run("t", "n"), [b"RUN", b"t", b"n"], None, None),
        (schedules.schedule_drop("t", "n"), [b"DROP", b"t", b"n"], 1, True),
    ],
)  # fmt: skip
def test_words_and_values(call: Call[Any], words: list[Any], reply: Any, value: Any) -> None:
    assert call.args == ("SCHEDULE", words[0].decode(), *words[1:])
    assert call.read(reply) == value
    assert tubes_in(call) == [b"t"]  # it goes to the leader


LIMIT_ROW = [
    b"kind", b"limit", b"key", b"shop", b"waiting", 3, b"since-ms", 5, b"next-ms", 4,
    b"places", 2, b"used", 1,
]  # fmt: skip
RATE_ROW = [
    b"kind", b"rate", b"key", b"r", b"waiting", 1, b"since-ms", 5, b"next-ms", 4,
    b"token-us", 500, b"burst", 9, b"tokens", 0, b"token-ms", 7,
]  # fmt: skip
GROUP_ROW = [
    b"kind", b"group", b"key", b"g", b"waiting", 1, b"since-ms", 0, b"next-ms", 4,
    b"weight", 1, b"weights", 8,
]  # fmt: skip


def test_keys_for_which_tasks_wait() -> None:
    call = operate.limits_page("t", "5", count=7)
    assert call.args == ("LIMITS", b"t", "COUNT", 7, "CURSOR", "5")
    assert tubes_in(call) == [b"t"]
    cursor, (limit, rate, group) = call.read([b"9", [LIMIT_ROW, RATE_ROW, GROUP_ROW]])
    assert cursor == "9"
    assert limit == KeyRow("limit", "shop", 3, 5, 4, places=2, used=1)
    assert rate == KeyRow("rate", "r", 1, 5, 4, token_us=500, burst=9, token_ms=7)
    assert group == KeyRow("group", "g", 1, 0, 4, weight=1, weights=8)


def test_keys_on_a_node(real_node: RealServer) -> None:
    with Client(real_node.url) as client:
        with pytest.raises(NoTube):
            list(client.limits("plain"))
        client.tube("shops").create("tasks", ttr=30)
        for i in range(3):
            for _ in range(2):
                client.addjob("shops", "b", limit=(f"l{i}", 1), group=f"g{i}")
        assert len(client.getjob("shops", count=9)) == 3
        found = list(client.limits("shops", count=1))
        wanted = [(kind, f"{kind[0]}{i}") for kind in ("limit", "group") for i in range(3)]
        assert [(row.kind, row.key) for row in found] == wanted
        assert all(row.waiting == 1 for row in found)


def test_both_faces(connect: Connect, node: ScriptedNode) -> None:
    node.answers["SCHEDULE"] = b"+UNCHANGED\r\n"
    assert connect(node.url).schedule_add("t", "n", "b", every_s=5) == "unchanged"


def test_a_schedule_on_a_node(world: World) -> None:
    """T46.5 PAUSE and RESUME reply 1 if that changed something, DROP if there was one"""
    client = world.client()
    with pytest.raises(NoTube):
        client.schedule_add("plain", "n", "b", every_s=1)
    client.tube("timed").create("tasks", ttr=30)
    with pytest.raises(NoSchedule):
        client.schedule_show("timed", "tick")
    assert client.schedule_add("timed", "tick", "b", every_s=1, pri=3) == "added"
    assert client.schedule_add("timed", "tick", "b", every_s=1, pri=3) == "unchanged"
    bodies = []
    while len(bodies) < 3:
        bodies += [job.body for job in client.getjob("timed", timeout_ms=60_000)]
    assert bodies == [b"b"] * 3
    (shown,) = client.schedules("timed")
    assert shown.fired >= 3 and shown.last_ms > 0 and shown.body is None
    assert client.schedule_show("timed", "tick").body == b"b"
    assert client.schedule_pause("timed", "tick")
    assert not client.schedule_pause("timed", "tick")
    assert client.schedule_show("timed", "tick").paused
    assert client.schedule_run("timed", "tick") is not None
    assert client.schedule_resume("timed", "tick")
    world.until(lambda: client.schedule_show("timed", "tick").fired > shown.fired)
    for i in range(3):
        client.schedule_add("timed", f"more{i}", "b", every_s=3_600)
    names = [one.name for one in client.schedules("timed", count=2)]
    assert names == ["tick", "more0", "more1", "more2"]
    assert client.schedule_drop("timed", "tick")
    assert not client.schedule_drop("timed", "tick")
    assert int(client.info("tubes")["tubes_schedules"]) == 3
    assert int(client.info("tubes")["tubes_schedules_fired"]) >= 4
