"""GETJOB of many from tubes whose tasks nobody may get now (SPEC V2.1, T1.7)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))

import pytest

from world import World


def test_tasks_of_a_busy_sub_queue_end_a_round() -> None:
    """V2.1 until COUNT is reached or a round gave nothing."""
    world = World()
    assert world("TUBE CREATE u utube") == b"+OK\r\n"
    for body in ("first", "second"):
        world("ADDJOB u", body, "0", "UTUBE", "key")
    plain = world.add("q")
    got = world.value("GETJOB NOHANG COUNT 5 FROM u q u")
    assert [job[2] for job in got] == [b"first", b"body"]
    assert got[1][1] == plain
    assert world("QLEN u") == b":1\r\n"
    assert world("GETJOB NOHANG COUNT 5 FROM u q") == b"*-1\r\n"
    world("ACKJOB", got[0][1])
    assert [job[2] for job in world.value("GETJOB NOHANG COUNT 5 FROM u")] == [b"second"]


@pytest.mark.parametrize("kind", ["fifo", "fifottl", "utube", "utubettl"])
def test_what_nobody_began_is_given_back_uncounted(world: World, kind: str) -> None:
    """T1.13 RELEASE with `-` gives back a task of a type without runs as in T48.5: it is READY,
    or DELAYED for DELAY, also in a fifo and a utube; no counter of deliveries grows.
    """
    client = world.client()
    client.tube("t").create(kind)
    keys = ["a", "b"] if kind.startswith("utube") else [None, None]
    first, second = [client.addjob("t", b"x", utube=key) for key in keys]
    for delay, order in ((None, [first, second]), (5.0, [second])):
        (job,) = client.getjob("t")
        assert job.id == first
        assert client.release((job.id, "1.1.000000"), delay=delay) == 0  # it has no run
        assert client.release((job.id, "-"), delay=delay) == 1
        assert client.release((job.id, "-"), delay=delay) == 0
        taken = client.getjob("t", count=2, withcounters=True, nohang=True)
        assert [one.id for one in taken] == order
        assert [(one.nacks, one.additional_deliveries) for one in taken] == [(0, 0)] * len(order)
        assert client.release(*((one.id, "-") for one in taken)) == len(order)
    world.restart()
    assert world.run("DEBUG", "CHECK") == b"OK"
    world.pass_ms(5_100)
    assert [one.id for one in client.getjob("t", count=2)] == [first, second]
