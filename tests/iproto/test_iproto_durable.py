"""IPROTO and the journal: what was answered survives a crash (SPEC C8, T14)."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_iproto import IprotoServer

from iproto_raw import Conn

PUT, TAKE = "queue.tube.t:put", "queue.tube.t:take"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[IprotoServer]:
    """A server whose guest may do everything, with a journal that is synced before an answer."""
    made = IprotoServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always", users="")
    made.start()
    yield made
    made.end()


def connect(server: IprotoServer) -> Conn:
    """A connection by hand."""
    return Conn(socket.create_connection(("127.0.0.1", server.iproto_port)))


def test_what_was_answered_survives_a_crash(server: IprotoServer) -> None:
    """C8.3, T14: tasks, their numbers, states and bytes."""
    conn = connect(server)
    conn.call("queue.create_tube", "t", "utubettl")
    data = [{"n": 0}, "text", b"bytes", 1.0, None]
    asked = [conn.ask_call(PUT, one, {"utube": n, "pri": n}) for n, one in enumerate(data)]
    blocked = connect(server)
    blocked.call(TAKE)
    blocked.call("queue.tube.t:ack", 0)
    blocked.call(TAKE)
    assert [conn.hear(sync).data[0][1] for sync in asked] == ["r"] * 5
    assert conn.call("queue.tube.t:bury", 4) == [[4, "!", None]]
    server.kill()
    server.start()
    conn = connect(server)
    assert conn.call("queue.tube.t:peek", 0).data == "Task 0 not found"
    for number, one in enumerate(data[:4]):
        if number > 0:
            assert conn.call(TAKE, 0) == [[number, "t", one]]
    assert conn.call("queue.tube.t:peek", 4) == [[4, "!", None]]
    assert conn.call(PUT, "next", {"utube": 9}) == [[5, "r", "next"]]


def everything(conn: Conn, names: list[str]) -> dict[str, dict[int, tuple[str, Any]]]:
    """Status and data of every task; those that are TAKEN count as READY."""
    found: dict[str, dict[int, tuple[str, Any]]] = {}
    for name in names:
        tasks: dict[int, tuple[str, Any]] = {}
        for status in "rt~!":
            (listed,) = conn.call(f"queue.tube.{name}:tasks_by_state", status, 100_000)
            for number, told, data in listed:
                assert told == status
                tasks[number] = ("r" if told == "t" else told, data)
        found[name] = tasks
    return found


@pytest.mark.parametrize("seed", range(3))
def test_any_history_survives_a_crash(server: IprotoServer, seed: int) -> None:
    """C8.3, T14: all that was answered is there, and nothing else; numbers go on."""
    chance = random.Random(seed)
    conns = [connect(server) for _ in range(3)]
    names = ["fifo", "fifottl", "limfifottl", "utube", "utubettl"]
    for name in names:
        assert conns[0].call("queue.create_tube", name, name, {"capacity": 20}) == []
    methods = ["put"] * 6 + ["take"] * 4 + "ack release bury kick delete touch peek".split()
    for _ in range(15):
        asked = []
        for _ in range(60):
            conn, method = chance.choice(conns), chance.choice(methods)
            args: list[Any] = [chance.randrange(60)]
            if method == "put":
                data = chance.choice([chance.random(), "text", b"\0", {"a": [None]}])
                delay = chance.choice([0, 0, 5_000])
                utube = str(chance.randrange(4))
                args = [data, {"utube": utube, "pri": chance.randrange(3), "delay": delay}]
            elif method == "take":
                args = [0]
            elif method in ("release", "touch"):
                args.append(100 if method == "touch" else {"delay": chance.choice([0, 5_000])})
            name = chance.choice(names)
            asked.append((conn, conn.ask_call(f"queue.tube.{name}:{method}", *args)))
        for conn, sync in asked:
            assert conn.hear(sync).code in (0, 32)
    before = everything(conns[0], names)
    assert all(len(tasks) > 3 for tasks in before.values())
    put_next = {name: conns[0].call("queue.statistics", name)[0]["calls"]["put"] for name in names}
    server.kill()
    server.start()
    conn = connect(server)
    assert everything(conn, names) == before
    for name in names:
        if name != "limfifottl":
            assert conn.call(f"queue.tube.{name}:put", 1)[0][0] == put_next[name]


def test_both_ports_and_users_are_checked_at_start(tmp_path: Path) -> None:
    """I1.2, I5.6: a port that is taken, a file that is none."""
    first = IprotoServer(tmp_path, users="")
    first.start()
    try:
        assert "nobody can use IPROTO" not in first.log()
        second = tmp_path / "second"
        second.mkdir()
        other = IprotoServer(second, "--iproto-port", first.iproto_port, users="")
        with pytest.raises(AssertionError, match="choose another --iproto-port"):
            other.start()
        (second / "users").write_text("nonsense\n")
        bad = IprotoServer(second, "--iproto-users-file", "users", users="")
        with pytest.raises(AssertionError, match="a line has a name, a password"):
            bad.start()
        closed = IprotoServer(second, "--requirepass", "a password that nobody has", users="")
        closed.start()
        closed.end()
        assert "nobody can use IPROTO" in closed.log()
    finally:
        first.end()


def test_the_port_is_off_by_default(tmp_path: Path) -> None:
    """I1.2"""
    from lab import RealServer

    server = RealServer(tmp_path, "--cluster-enabled", "no").start()
    try:
        assert "IPROTO" not in server.log()
    finally:
        server.end()


def test_grants_survive_a_crash(tmp_path: Path) -> None:
    """T10.3: "Grants add up, outlive a restart"; what was revoked stays so (T10.4)."""
    users = "admin a all\nbob b role:readers\neve e\n"
    flags = ("--appendonly", "yes", "--appendfsync", "always")
    server = IprotoServer(tmp_path, *flags, users=users)
    server.start()
    try:
        admin = connect(server)
        assert admin.log_in("admin", "a").code == 0
        admin.call("queue.create_tube", "t", "fifo")
        assert admin.call("queue.tube.t:grant_role", "readers", {"call": True}) == []
        assert admin.call("queue.tube.t:grant", "eve", {"call": True}) == []
        wire = server.wire()
        assert wire("TUBE", "REVOKE", "t", "eve") == 1
        server.kill()
        server.start()
        bob, eve = connect(server), connect(server)
        bob.log_in("bob", "b")
        eve.log_in("eve", "e")
        assert bob.call(PUT, "x") == [[0, "r", "x"]]
        assert eve.call(PUT, "x")[1] == 42
        row = [b"t", b"role", b"readers", [b"call"], b"queue.tube"]
        assert server.wire()("TUBE", "GRANTS") == [row]
    finally:
        server.end()
