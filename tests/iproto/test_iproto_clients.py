"""Unmodified clients: tarantool 1.3.0 and 0.12.1, asynctnt, asynctnt-queue, net.box (SPEC I)."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asynctnt
import asynctnt_queue
import pytest
from real_iproto import DEADLINE_S, IprotoServer, package, run_session

NET_BOX = Path(__file__).with_name("net_box.lua")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[IprotoServer]:
    """A server with users."""
    made = IprotoServer(tmp_path)
    made.start()
    yield made
    made.end()


# ---- tarantool


@pytest.mark.parametrize("version", ["1.3.0", "0.12.1"])
def test_tarantool(server: IprotoServer, version: str) -> None:
    """The synchronous client: connect, schema, login, every call of a session."""
    path = None
    if version != "1.3.0":  # which is in the environment
        try:
            path = package("tarantool", version)
        except (OSError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"tarantool {version} can't be installed: {error}")
    said = run_session(server.iproto_port, path)
    assert said["version"] == version
    assert said["ping"] and said["create"] == []
    assert said["put"] == [[0, "r", {"a": 1}]]
    assert said["put_scalar"] == [[1, "r", "плоский"]]
    assert said["take"] == [[1, "t", "плоский"]], "pri 0 goes before pri 1"
    assert said["take_more"] == [[0, "t", {"a": 1}]]
    assert said["take_none"] == []
    assert said["touch"] == [[0, "t", {"a": 1}]]
    assert said["release"] == [[0, "~", {"a": 1}]]
    assert said["bury"] == [[0, "!", {"a": 1}]]
    assert said["kick"] == [1]
    assert said["peek"] == [[0, "r", {"a": 1}]]
    assert said["ack"] == [[1, "-", "плоский"]]
    assert said["not_taken"] == [32, "Task was not taken"]
    assert said["not_found"] == [32, "Task 9 not found"]
    assert said["no_tube"] == [33, "Procedure 'queue.tube.none:put' is not defined"]
    assert said["tasks"] == {
        "taken": 0,
        "ready": 1,
        "buried": 0,
        "delayed": 0,
        "done": 1,
        "total": 1,
    }
    assert said["tubes"] == [["t"]]
    assert said["state"] == ["RUNNING"]
    assert said["eval_create"] == []
    assert said["eval_exists"] == [True]
    assert said["space"] == "SchemaError"
    assert said["identify"] == [16, True, 0, "-", "bytes"]
    assert "User not found or supplied credentials are invalid" in said["wrong_password"]
    assert said["wrong_user"] == said["wrong_password"]
    text = "Execute access to function 'queue.tube.t:take' is denied for user 'guest'"
    assert said["guest"] == [42, text]


# ---- asynctnt


def first(said: Any) -> Any:
    """The only value of an answer."""
    (value,) = said.body
    return value


async def connect(server: IprotoServer, **options: Any) -> asynctnt.Connection:
    """A connection of asynctnt as admin."""
    asked = {"username": "admin", "password": "sesame", **options}
    return await asynctnt.connect(host="127.0.0.1", port=server.iproto_port, **asked)


def test_asynctnt(server: IprotoServer) -> None:
    """Pipelines, a blocked take among them, errors, identify."""
    asyncio.run(asyncio.wait_for(asynctnt_session(server), DEADLINE_S))


async def asynctnt_session(server: IprotoServer) -> None:
    conn = await connect(server)
    await conn.ping()
    await conn.call("queue.create_tube", ["t", "fifottl"])
    blocked = asyncio.ensure_future(conn.call("queue.tube.t:take", []))
    none = await conn.call("queue.tube.t:take", [0.01])
    assert list(none.body) == []
    await asyncio.sleep(0)
    puts = [conn.call("queue.tube.t:put", [{"n": n}, {}]) for n in range(2_000)]
    answers = [first(said)[0] for said in await asyncio.gather(*puts)]
    assert sorted(answers) == list(range(2_000))
    assert list((await blocked).body) == [[0, "t", {"n": 0}]]
    takes = [conn.call("queue.tube.t:take", [1]) for _ in range(1_999)]
    got = [first(said)[0] for said in await asyncio.gather(*takes)]
    assert got == list(range(1, 2_000))
    acks = await asyncio.gather(*[conn.call("queue.tube.t:ack", [n]) for n in range(2_000)])
    assert all(first(said)[1] == "-" for said in acks)
    with pytest.raises(asynctnt.exceptions.TarantoolDatabaseError) as caught:
        await conn.call("queue.tube.t:ack", [0])
    assert (caught.value.code, caught.value.message) == (32, "Task was not taken")
    uuid = first(await conn.call("queue.identify", []))
    assert len(uuid) == 16
    other = await connect(server, fetch_schema=False, auto_refetch_schema=False)
    assert list((await other.call("queue.identify", [uuid])).body) == [uuid]
    await conn.call("queue.tube.t:put", [b"\xff\x00"])
    task = first(await conn.call("queue.tube.t:take", []))
    assert task[2] == b"\xff\x00"
    await conn.disconnect()
    assert first(await other.call("queue.tube.t:ack", [task[0]]))[1] == "-"
    await other.disconnect()


def test_asynctnt_refused(server: IprotoServer) -> None:
    """A wrong password."""

    async def run() -> None:
        with pytest.raises(asynctnt.exceptions.TarantoolDatabaseError) as caught:
            await asyncio.wait_for(connect(server, password="x", reconnect_timeout=0), 10)
        assert caught.value.code == 47

    asyncio.run(run())


def test_asynctnt_queue(server: IprotoServer) -> None:
    """The queue library on top of it."""
    asyncio.run(asyncio.wait_for(asynctnt_queue_session(server), DEADLINE_S))


async def asynctnt_queue_session(server: IprotoServer) -> None:
    conn = await connect(server)
    await conn.call("queue.create_tube", ["lib", "limfifottl", {"capacity": 2}])
    queue = asynctnt_queue.Queue(conn)
    tube = queue.tube("lib")
    task = await tube.put({"key": "value"}, pri=3, ttl=60, ttr=30, delay=0)
    assert (task.task_id, task.status.value, task.data) == (0, "r", {"key": "value"})
    assert (await tube.peek(0)).task_id == 0
    taken = await tube.take(1)
    assert taken.status.value == "t"
    assert (await taken.release(delay=0)).status.value == "r"
    taken = await tube.take()
    assert (await taken.touch(10)).task_id == 0
    assert (await taken.ack()).status.value == "-"
    assert await tube.take(0.01) is None
    await tube.put(1)
    second = await tube.put(2)
    with pytest.raises(asynctnt_queue.exceptions.TaskEmptyError):
        await tube.put(3)
    assert (await tube.bury(second.task_id)).status.value == "!"
    assert await tube.kick(5) == 1
    assert (await tube.delete(second.task_id)).status.value == "-"
    figures = await tube.statistics()
    assert figures["tasks"]["ready"] == 1
    assert figures["calls"]["put"] == 3
    assert "lib" in await queue.statistics()
    await conn.disconnect()


# ---- net.box, Tarantool's own client


def test_net_box(server: IprotoServer) -> None:
    """The client inside Tarantool, from its Debian package."""
    tarantool = shutil.which("tarantool")
    if tarantool is None:
        pytest.skip("the package tarantool is not installed")
    done = subprocess.run(
        [tarantool, str(NET_BOX), str(server.iproto_port), str(server.directory)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().splitlines()[-1] == "all right"


# ---- both doors of one process


def test_a_process_with_both_doors(server: IprotoServer) -> None:
    """T1: what one client puts another one gets, whatever it speaks."""

    async def take() -> list[Any]:
        conn = await connect(server)
        await conn.call("queue.create_tube", ["both", "fifottl"])
        blocked = asyncio.ensure_future(conn.call("queue.tube.both:take", [10]))
        await conn.ping()
        wire = server.wire()
        wire.send("ADDJOB", "both", "from resp", 0)
        said = await blocked
        await conn.disconnect()
        return list(said.body)

    assert asyncio.run(asyncio.wait_for(take(), DEADLINE_S)) == [[0, "t", b"from resp"]]
