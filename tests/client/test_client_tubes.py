"""Tubes from Python: the words of each call, and both faces against a real node."""

from __future__ import annotations

import asyncio
import inspect
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hiredis
import pytest

import tuque
from lab import RealServer
from tuque import Client
from tuque.client.commands import tubes
from tuque.client.commands.calls import Call
from tuque.client.commands.tubes import TubeTask
from tuque.client.tube import AsyncTube, QueuedTube, Tube
from tuque.errors import (
    Closed,
    NoTask,
    NotTaken,
    NoTube,
    ProtocolError,
    ReplyError,
    Timeout,
    WrongTube,
)
from until import until

TASK = TubeTask("t", 7, "TAKEN", b"x", 42, "D-1", "bytes")
GRANT = [b"t", b"role", b"r", [b"truncate"], b"q"]
RAW = [7, b"TAKEN", b"x", 42, b"D-1", b"bytes"]

TABLE: list[tuple[Call[Any], str, Any, Any]] = [
    (tubes.create("t", "fifo"), "CREATE t fifo", b"OK", None),
    (
        tubes.create("t", "fifottl", if_not_exists=True, temporary=True, ttl=1.5, pri=3),
        "CREATE t fifottl IFNOTEXISTS TEMPORARY TTL 1.5 PRI 3",
        b"OK",
        None,
    ),
    (tubes.create("t", "fifo", implicit=True), "CREATE t fifo IMPLICIT", b"OK", None),
    (tubes.put("t", b"x"), "PUT t x", RAW, TASK),
    (tubes.put("t", "x", wait=2), "PUT t x FORM text TIMEOUT 2", None, None),
    (
        tubes.put("t", b"x", pri=0, ttl=10, ttr=0.0001, delay=0.25, utube="k"),
        "PUT t x PRI 0 UTUBE k TTL 10 TTR 0.0001 DELAY 0.25",
        RAW,
        TASK,
    ),
    (tubes.take("t"), "TAKE t TIMEOUT 0", RAW, TASK),
    (tubes.take("t", 1.5), "TAKE t TIMEOUT 1.5", None, None),
    (tubes.ack("t", TASK), "ACK t 7 TOKEN 42", RAW, TASK),
    (tubes.ack("t", 7), "ACK t 7", RAW, TASK),
    (tubes.release("t", TASK, delay=3), "RELEASE t 7 DELAY 3 TOKEN 42", RAW, TASK),
    (tubes.touch("t", TASK, 30), "TOUCH t 7 30 TOKEN 42", RAW, TASK),
    (tubes.touch("t", 7, 0), "TOUCH t 7 0", None, None),
    (tubes.bury("t", TASK), "BURY t 7 TOKEN 42", RAW, TASK),
    (tubes.kick("t", 5), "KICK t 5", 3, 3),
    (tubes.peek("t", TASK), "PEEK t 7", RAW, TASK),
    (tubes.delete("t", 7), "DELETE t 7", RAW, TASK),
    (tubes.tasks_by_state("t", "READY", count=2), "TASKS t READY COUNT 2", [RAW], [TASK]),
    (tubes.truncate("t"), "TRUNCATE t", 4, 4),
    (tubes.release_all("t"), "RELEASEALL t", 4, 4),
    (tubes.drop("t"), "DROP t", b"OK", None),
    (
        tubes.changes("t", 5, count=1),
        "CHANGES t AFTER 5 COUNT 1",
        [[6, b"put", 0, b"READY", 99]],
        [tubes.TubeChange(6, "put", 0, "READY", 99)],
    ),
    (tubes.grant("t", "bob", call=True, prefix="q"), "GRANT t bob CALL PREFIX q", b"OK", None),
    (
        tubes.grant("t", "bob", call=7),  # type: ignore[arg-type]  # any true value
        "GRANT t bob CALL",
        b"OK",
        None,
    ),
    (tubes.revoke("t", "all", role=True, truncate=True), "REVOKE t all ROLE TRUNCATE", 2, 2),
    (tubes.grants("t"), "GRANTS t", [GRANT], [tubes.TubeGrant("t", "r", True, False, True, "q")]),
    (tubes.tube_grants(), "GRANTS", [], []),
    (
        tubes.tube_drivers(),
        "DRIVERS",
        [[b"lifo", b"loaded", b"m:Lifo", 2, [[b"t", b"no"]], b""]],
        [tubes.TubeDriver("lifo", "loaded", "m:Lifo", 2, {"t": "no"}, "")],
    ),
    (tubes.register_tube_driver("lifo"), "REGISTERDRIVER lifo", b"OK", None),
    (tubes.tube_list(), "LIST", [b"a"], ["a"]),
    (tubes.tube_state(), "STATE", b"RUNNING", "RUNNING"),
    (
        tubes.tube_cfg(ttr=2.5, in_replicaset=False),
        "CFG TTR 2.5 INREPLICASET no",
        [b"ttr", b"2.500", b"in-replicaset", b"no"],
        tubes.TubeSettings(2.5, in_replicaset=False),
    ),
    (
        tubes.tube_cfg(ttr=4e9),
        "CFG TTR 4000000000",
        [b"ttr", b"forever", b"in-replicaset", b"yes"],
        tubes.TubeSettings(None, in_replicaset=True),
    ),
    (tubes.touch("t", 7, 1e-9), "TOUCH t 7 0.000001", RAW, TASK),
    (tubes.identify("u"), "IDENTIFY u", b"u", "u"),
]


@pytest.mark.parametrize(("call", "words", "reply", "result"), TABLE)
def test_words_and_results(call: Call[Any], words: str, reply: Any, result: Any) -> None:
    asked = hiredis.pack_command(call.args)
    expected = hiredis.pack_command(("TUBE", *words.split()))
    assert asked == expected
    assert call.read(reply) == result


def test_three_classes_have_every_call() -> None:
    built = {
        name: one
        for name, one in vars(tubes).items()
        if inspect.isfunction(one)
        and not name.startswith("_")
        and next(iter(inspect.signature(one).parameters)) == "tube"
    }
    assert len(built) == 24
    for kind in (Tube, AsyncTube, QueuedTube):
        assert set(built) <= set(dir(kind))
        for name, build in built.items():
            shown = list(inspect.signature(getattr(kind, name)).parameters)
            assert shown == ["self", *list(inspect.signature(build).parameters)[1:]]


def test_only_calls_that_may_be_executed_twice_are_sent_twice() -> None:
    once = {row[0].args[1] for row in TABLE if not row[0].repeat}
    twice = {row[0].args[1] for row in TABLE if row[0].repeat}
    assert once - twice == {
        "PUT",
        "ACK",
        "RELEASE",
        "TOUCH",
        "BURY",
        "KICK",
        "DELETE",
        "DROP",
        "REGISTERDRIVER",
    }


def test_a_slice_of_a_take_is_told_in_seconds() -> None:
    assert tubes.take("t").waiting(0.25).args[-1] == "0.250"
    assert tubes.take("t").waiting(0.0).args[-1] == "0.001"
    assert not tubes.take("t", 0).may_block


def test_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        tubes.take("t", -1)
    with pytest.raises(ValueError, match="seconds from 0 up"):
        tubes.put("t", b"", ttl=-1)
    with pytest.raises(ProtocolError):
        tubes.ack("t", 1).read([1, b"DONE"])


# Against a real node, over both faces


class Sync:
    """The threaded client."""

    def __init__(self, url: str) -> None:
        self.client = Client(url)

    def __call__(self, name: str, *args: Any, **options: Any) -> Any:
        return getattr(self.client, name)(*args, **options)

    def on(self, tube: str, name: str, *args: Any, **options: Any) -> Any:
        return getattr(self.client.tube(tube), name)(*args, **options)

    def taking(self, tube: str, work: Callable[[Any], None]) -> None:
        with self.client.tube(tube).taking(0) as task:
            work(task)

    def watched(self, tube: str, after: int, count: int) -> list[str]:
        changes = self.client.tube(tube).watch(after)
        return [next(changes).event for _ in range(count)]

    def heard(self, tube: str, work: Callable[[], None], count: int) -> list[tuple[str, int]]:
        with self.client.tube(tube).subscribe() as changes:
            work()
            found = [next(iter(changes)) for _ in range(count)]
            with pytest.raises(Timeout):
                changes.get(0.02)
        return [(one.event, one.seq) for one in found]

    def close(self) -> None:
        self.client.close()


class Aio:
    """The client for asyncio, each call run to its end."""

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        self.client = tuque.aio.Client(url)

    def __call__(self, name: str, *args: Any, **options: Any) -> Any:
        return self.runner.run(getattr(self.client, name)(*args, **options))

    def on(self, tube: str, name: str, *args: Any, **options: Any) -> Any:
        return self.runner.run(getattr(self.client.tube(tube), name)(*args, **options))

    def taking(self, tube: str, work: Callable[[Any], None]) -> None:
        async def run() -> None:
            async with self.client.tube(tube).taking(0) as task:
                work(task)

        self.runner.run(run())

    def watched(self, tube: str, after: int, count: int) -> list[str]:
        async def run() -> list[str]:
            changes = self.client.tube(tube).watch(after)
            return [(await anext(changes)).event for _ in range(count)]

        return self.runner.run(run())

    def heard(self, tube: str, work: Callable[[], None], count: int) -> list[tuple[str, int]]:
        async def run() -> list[tuple[str, int]]:
            async with self.client.tube(tube).subscribe() as changes:
                await asyncio.to_thread(work)
                found = [await anext(aiter(changes)) for _ in range(count)]
                with pytest.raises(Timeout):
                    await changes.get(0.02)
            return [(one.event, one.seq) for one in found]

        return self.runner.run(run())

    def close(self) -> None:
        self.runner.run(self.client.close())
        self.runner.close()


Make = Callable[[], Any]


@pytest.fixture(params=[Sync, Aio], ids=["sync", "aio"])
def make(request: pytest.FixtureRequest, real_node: RealServer) -> Iterator[Make]:
    made: list[Any] = []

    def one() -> Any:
        made.append(request.param(real_node.url))
        return made[-1]

    yield one
    for client in made:
        client.close()


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex}"


def test_a_life(make: Make, name: str) -> None:
    c = make()
    with pytest.raises(NoTube):
        c.on(name, "put", b"x")
    c.on(name, "create", "utubettl", ttr=60)
    assert c.on(name, "put", {"url": "é", "n": 1}, pri=5).value == {"url": "é", "n": 1}
    assert c.on(name, "put", "text", pri=4, utube="k").status == "READY"
    first = c.on(name, "take")
    assert (first.number, first.value, first.status) == (1, "text", "TAKEN")
    assert c.on(name, "touch", first, 1.5).number == 1
    assert c.on(name, "release", first).status == "READY"
    with pytest.raises(NotTaken):
        c.on(name, "ack", first)
    again = c.on(name, "take", 1)
    assert again.token > first.token
    with pytest.raises(NotTaken):
        c.on(name, "ack", first)  # a late call of the older take
    assert c.on(name, "ack", again).status == "DONE"
    with pytest.raises(NoTask):
        c.on(name, "peek", 1)
    assert c.on(name, "bury", 0).status == "BURIED"
    assert [task.number for task in c.on(name, "tasks_by_state", "BURIED")] == [0]
    assert c.on(name, "kick") == 1
    info = c.on(name, "info")
    assert (info.type, info.ttl, info.ttr, info.ready) == ("utubettl", None, 60.0, 1)
    assert c.on(name, "statistics")["calls"]["take"] == 2
    assert name in c("tube_list")
    assert c("tube_statistics")[name]["tasks"]["ready"] == 1
    with pytest.raises(WrongTube):
        c.on(name, "create", "fifo", if_not_exists=True)
    assert c.on(name, "truncate") == 1
    c.on(name, "drop")
    with pytest.raises(NoTube):
        c.on(name, "info")


def test_nothing_to_take_and_no_room(make: Make, name: str) -> None:
    c = make()
    c.on(name, "create", "limfifottl", capacity=1)
    assert c.on(name, "take", 0) is None
    assert c.on(name, "take", 0.05) is None
    c.on(name, "put", b"1")
    assert c.on(name, "put", b"2") is None
    assert c.on(name, "put", b"2", wait=0.05) is None


def test_a_task_is_acked_over_another_connection_than_it_came(make: Make, name: str) -> None:
    """A take that waits has a connection of its own; the session has both."""
    c = make()
    c.on(name, "create", "fifo")
    c.on(name, "put", b"x")
    task = c.on(name, "take", 5)
    assert c.on(name, "ack", task).status == "DONE"


def test_a_stranger_and_a_friend(make: Make, name: str) -> None:
    mine, other = make(), make()
    mine.on(name, "create", "fifo")
    mine.on(name, "put", b"x")
    task = mine.on(name, "take", 0)
    with pytest.raises(NotTaken):
        other.on(name, "ack", task)
    session = mine("tube_identify")
    assert other("tube_identify", session) == session
    assert other.on(name, "ack", task).status == "DONE"
    with pytest.raises(ReplyError, match="is unknown"):
        other("tube_identify", str(uuid.uuid4()))


def test_the_end_of_a_client_gives_its_tasks_back(make: Make, name: str) -> None:
    mine, other = make(), make()
    mine.on(name, "create", "fifo")
    mine.on(name, "put", b"x")
    mine.on(name, "take", 0)
    mine.client.close() if isinstance(mine, Sync) else mine("close")
    task = other.on(name, "take", 10)
    assert task.data == b"x"
    with pytest.raises(tuque.errors.Closed):
        mine.on(name, "take", 0)


def test_taking(make: Make, name: str) -> None:
    c = make()
    c.on(name, "create", "fifottl")
    c.on(name, "put", b"x")

    def fail(task: Any) -> None:
        raise KeyError(task.data)

    with pytest.raises(KeyError):
        c.taking(name, fail)
    assert c.on(name, "peek", 0).status == "READY"
    seen: list[Any] = []
    c.taking(name, seen.append)
    c.taking(name, seen.append)
    assert [task and task.data for task in seen] == [b"x", None]
    assert c.on(name, "statistics")["calls"]["ack"] == 1


def test_taking_what_is_settled_when_the_block_raises(
    make: Make, name: str, real_node: RealServer
) -> None:
    c = make()
    c.on(name, "create", "fifo")
    c.on(name, "put", b"x")

    def bury_and_fail(task: Any) -> None:
        with tuque.Client(real_node.url) as other:
            other.tube(name).bury(task.number)
        raise KeyError(task.data)

    with pytest.raises(KeyError):  # what went wrong, not that there is nothing to give back
        c.taking(name, bury_and_fail)
    assert c.on(name, "peek", 0).status == "BURIED"


def test_watching(make: Make, name: str) -> None:
    c = make()
    c.on(name, "create", "fifo")
    c.on(name, "put", b"x")
    c.on(name, "delete", 0)
    assert c.watched(name, -1, 2) == ["put", "delete"]
    assert c.on(name, "changes", 0)[0].status == "DONE"


def test_subscribing(make: Make, name: str, real_node: RealServer) -> None:
    c = make()

    def work() -> None:
        with Client(real_node.url) as other:
            other.tube(name).put(b"x")
            other.tube(name).delete(0)

    with pytest.raises(NoTube):
        c.heard(name, work, 1)
    c.on(name, "create", "fifo")
    assert c.heard(name, work, 2) == [("put", 0), ("delete", 1)]


def test_a_subscription_ends_with_its_node(tmp_path: Path) -> None:
    node = RealServer(tmp_path)
    node.start()
    try:
        with Client(node.url) as client:
            client.tube("t").create("fifo")
            with client.tube("t").subscribe() as changes:
                node.end()
                with pytest.raises(Closed):
                    changes.get(10)
    finally:
        node.end()


def test_a_subscription_for_asyncio_begins_with_its_block(real_node: RealServer, name: str) -> None:
    async def run() -> None:
        async with tuque.aio.Client(real_node.url) as client:
            await client.tube(name).create("fifo")
            changes = client.tube(name).subscribe()
            await changes.close()
            with pytest.raises(RuntimeError, match="begins with its `async with` block"):
                await changes.get(0)
            async with changes:
                await changes.close()
                with pytest.raises(Closed):
                    await changes.get(5)

    asyncio.run(run())


def test_a_pipeline(real_node: RealServer, name: str) -> None:
    with Client(real_node.url) as client:
        client.tube(name).create("fifo")
        with client.pipeline() as pipe:
            tube = pipe.tube(name)
            tube.put(b"1")
            tube.put(b"2").tube_list()
            tube.take(0)
            tube.ack(0)
        assert [one.number for one in (pipe.results[0], pipe.results[1])] == [0, 1]
        assert pipe.results[4].status == "DONE"
        with pytest.raises(ValueError, match="needs an end"):
            tube.take()


def test_threads_share_a_session(real_node: RealServer, name: str) -> None:
    with Client(real_node.url) as client:
        tube = client.tube(name)
        tube.create("fifo")
        for n in range(40):
            tube.put(b"%d" % n)
        done: list[TubeTask] = []

        def work() -> None:
            while (task := tube.take(0.05)) is not None:
                done.append(tube.ack(task))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(30)
        assert sorted(task.number for task in done) == list(range(40))


def test_a_waiting_take_is_served(make: Make, name: str, real_node: RealServer) -> None:
    c = make()
    c.on(name, "create", "fifo")
    with Client(real_node.url) as producer:
        tube = producer.tube(name)

        def put_when_somebody_waits() -> None:
            until(lambda: tube.info().waiting_takes == 1)
            tube.put(b"late")

        helper = threading.Thread(target=put_when_somebody_waits)
        helper.start()
        assert c.on(name, "take").data == b"late"
        helper.join(30)


def test_jobs_in_a_tube(real_node: RealServer, name: str) -> None:
    """ADDJOB and GETJOB mean put and take there, priorities and sub-queues respected."""
    with Client(real_node.url) as client:
        client.tube(name).create("utubettl")
        low = client.addjob(name, b"low", pri=9, utube="a")
        high = client.addjob(name, b"high", pri=1, utube="a")
        (job,) = client.getjob(name, nohang=True)
        assert job.id == high
        assert client.getjob(name, nohang=True) == []
        assert client.ackjob(job) == 1
        assert client.getjob(name, nohang=True)[0].id == low
