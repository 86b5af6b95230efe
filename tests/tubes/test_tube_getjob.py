"""GETJOB of many from tubes whose tasks nobody may get now (SPEC V2.1, T1.7)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))

import pytest

from tuque.errors import NotTaken, ReplyError
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


@pytest.mark.parametrize("kind", ["fifo", "fifottl", "utube", "utubettl"])
def test_a_failed_delivery_comes_again_or_is_buried(world: World, kind: str) -> None:
    """T1.14 FAIL with `-` is for a task of a type without runs, as T1.13: it goes back like that,
    and `nacks` grows. With FINAL it is BURIED; the reply is `dead` and the name of the tube.

    W11.2 `attempt` is 0 for a task of a tube without runs (T48).
    """
    client = world.client()
    tube = client.tube("t")
    tube.create(kind)
    id = client.addjob("t", b"x", utube="a" if kind.startswith("utube") else None)
    with pytest.raises(NotTaken, match="Task was not taken"):
        client.fail(id, "-")
    for delay, nacks in ((None, 1), (5.0, 2)):
        (job,) = client.getjob("t", withcounters=True, with_meta=True)
        assert (job.attempt, job.nacks) == (0, nacks - 1)
        with pytest.raises(ReplyError, match="its tasks have no runs"):
            client.fail(id, "1.1.000000", reason="no")
        told = client.fail(id, "-", delay=delay, reason="no")
        assert (told.became, told.wait_s) == ("retry", delay or 0.0)
    assert client.getjob("t", nohang=True) == []
    world.restart()
    assert world.run("DEBUG", "CHECK") == b"OK"
    world.pass_ms(5_100)
    (job,) = client.getjob("t", withcounters=True)
    assert (job.nacks, job.additional_deliveries) == (2, 0)
    told = client.fail(id, "-", reason="no", final=True)
    assert (told.became, told.queue) == ("dead", "t")
    world.restart()
    assert (tube.info().buried, client.qlen("t.dead")) == (1, 0)
    assert tube.kick() == 1
    assert client.done(client.getjob("t")[0].id, "-") == 1


def test_a_failed_delivery_of_a_session_is_its_own(world: World) -> None:
    """T1.4 They act on a task that is TAKEN and held by no session or by the caller's."""
    client, other = world.client(), world.client()
    client.tube("t").create("fifo")
    client.tube("t").put(b"x")
    client.tube("t").take()
    (id,) = client.jscan(queue="t")
    with pytest.raises(NotTaken):
        other.fail(id, "-", final=True)
    assert client.tube("t").info().buried == 0
