"""N8: users of the table on the IPROTO door, function by function."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tuque.server.log.audit import Audit
from tuque.server.users.users import Account
from tuque.server.users.users_file import apply_words
from tuque.wire.commands.commands import BY_ROW, OF_TUBES
from tuque.wire.commands.tube_table import PROCEDURES, Procedure
from world import World
from world_wires import IprotoWire

ARGUMENTS = {
    "put": ["data"], "take": [0], "touch": [0, 1], "ack": [0], "release": [0], "peek": [0],
    "bury": [0], "kick": [1], "delete": [0], "tasks_by_state": ["READY", 1],
    "grant": ["guest", {"call": True}], "grant_role": ["public", {"call": True}],
    "on_task_change": ["nothing"],
}  # fmt: skip


WORDS = {
    "default": "off",
    "alice": "on iproto >pw +@produce ~orders*",
    "bob": "on iproto >pw +@all ~orders*",
    "eve": "on >pw +@all ~*",
    "root": "on iproto >pw +@all ~*",
}


@cache
def accounts() -> list[Account]:
    """The users; to hash their passwords takes long, and is done once."""
    made = []
    for name, words in WORDS.items():
        account = Account(name.encode())
        apply_words(account, [word.encode() for word in words.split(" ")])
        made.append(account)
    return made


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    made = make_world()
    root = made.iproto()
    for name in ("orders", "payments"):
        assert not root.is_open() or root.call("queue.create_tube", name, "fifo") is not None
    for account in accounts():
        made.server.acl.put(account.copy())
    made.server.settle_guest()
    return made


def as_user(world: World, name: str) -> IprotoWire:
    conn = world.iproto()
    assert conn.log_in(name, "pw").code == 0
    return conn


def code_of(conn: IprotoWire, name: str, *args: object) -> int:
    """The error's code, 0 for none."""
    said = conn.hear(conn.ask_call(name, *args))
    return said.code


CALLS = [(one, call) for one in PROCEDURES for call in one.calls]


@pytest.mark.parametrize(("one", "call"), CALLS, ids=[call for _, call in CALLS])
def test_a_producer_may_exactly_produce(world: World, one: Procedure, call: str) -> None:
    """N8.2: `+@produce ~orders*`, on its own tube and on another one."""
    conn = as_user(world, "alice")
    unit = OF_TUBES[one.code]
    may = unit.is_open or "produce" in unit.categories
    args = ARGUMENTS.get(call, [])
    if call.startswith("queue."):
        assert (code_of(conn, call, "orders", "fifo") != 42) == may
    else:
        assert (code_of(conn, f"queue.tube.orders:{call}", *args) != 42) == may
        assert code_of(conn, f"queue.tube.payments:{call}", *args) == 42
    conn.close()


@pytest.mark.parametrize(("one", "call"), CALLS, ids=[call for _, call in CALLS])
def test_a_pattern_closes_every_function(world: World, one: Procedure, call: str) -> None:
    """N8.2: who may call everything still sees the tubes of its patterns only."""
    conn = as_user(world, "bob")
    if not call.startswith("queue."):
        assert code_of(conn, f"queue.tube.payments:{call}", *ARGUMENTS.get(call, [])) == 42
    elif BY_ROW[f"TUBE {one.name.upper()}"].queue_at and call != "queue.state":
        assert code_of(conn, call, "payments", "fifo") == 42
    elif call == "queue.tube":
        assert conn.call(call, "payments") == [False]
        assert conn.call(call, "orders") == [True]
    conn.close()


def test_who_may_log_in_here(world: World) -> None:
    """N8.1 chap-sha1 (I5.2) needs the SHA-1 of the SHA-1 of a password, which is guessed fast."""
    conn = world.iproto()
    assert conn.log_in("eve", "pw").code == 47
    assert conn.log_in("nobody", "pw").code == 47
    assert code_of(conn, "queue.statistics") == 42
    assert conn.log_in("root", "pw").code == 0
    assert set(conn.call("queue.statistics")[0]) == {"orders", "payments"}
    denied = world.server.acl.denials
    assert (denied.logins, denied.entries[0].user) == (2, b"nobody")
    assert set(as_user(world, "bob").call("queue.statistics")[0]) == {"orders"}


def test_a_user_that_was_off_logs_in_at_once(world: World) -> None:
    """N6.8 The right password of a user that is off fails, and delays nobody: its programs log in
    at once when the user is on again.
    """
    root = world.server.acl.by_name[b"root"]
    root.is_on = False
    for _ in range(8):
        assert world.iproto().log_in("root", "pw").code == 47
    assert world.server.acl.denials.late == 0
    root.is_on = True
    assert world.iproto().log_in("root", "pw").code == 0
    for _ in range(4):
        assert world.iproto().log_in("root", "wrong").code == 47
    assert world.server.acl.denials.late == 1


def test_a_user_of_two_tables(world: World) -> None:
    """N8.3: what was granted counts beside the units."""
    root = as_user(world, "root")
    assert root.call("queue.tube.payments:grant", "alice", {"call": True}) is not None


def test_a_stranger_has_few_requests(world: World) -> None:
    """N6.6: the next one closes the connection; who has logged in may send more."""
    stranger, known = world.iproto(), as_user(world, "alice")
    assert [stranger.hear(stranger.ask(64)).code for _ in range(20)] == [0] * 20
    stranger.ask(64)
    assert not stranger.is_open()
    assert world.server.figures.strangers_closed == 1
    assert [known.hear(known.ask(64)).code for _ in range(30)] == [0] * 30


def test_acts_over_this_door(world: World, tmp_path: Path) -> None:
    """N9.1, N9.2: calls that administrators make, and those that are denied."""
    world.server.audit = Audit(str(tmp_path / "audit"), "ab", 1 << 20)
    root, alice, stranger = as_user(world, "root"), as_user(world, "alice"), world.iproto()
    assert code_of(root, "queue.tube.orders:put", "x") == 0
    assert code_of(root, "queue.tube.orders:kick", 1) == 0
    assert code_of(root, "queue.tube.orders:drop", 1) == 0
    assert code_of(alice, "queue.tube.orders:drop") == 42
    assert code_of(stranger, "queue.tube.payments:drop") == 42
    world.server.audit.close()
    (path,) = (tmp_path / "audit").iterdir()
    found = [json.loads(line) for line in path.read_text().splitlines()]
    told = [(row["user"], row["door"], row["act"], row["outcome"]) for row in found]
    assert told == [
        ("root", "iproto", "tube|kick", "ok"),
        ("root", "iproto", "tube|drop", found[1]["outcome"]),
        ("alice", "iproto", "tube|drop", "error 42"),
    ]
    assert found[0]["words"] == ["queue.tube.orders:kick"]


def test_a_denied_call_of_a_user_of_this_door(guarded: World, tmp_path: Path) -> None:
    """N9.1: also if they are denied."""
    guarded.server.audit = Audit(str(tmp_path / "audit"), "ab", 1 << 20)
    conn = guarded.iproto()
    assert conn.log_in("bob", "b").code == 0
    assert code_of(conn, "queue.tube.orders:drop") == 42
    assert code_of(conn, "queue.tube.orders:take", 0) == 42
    guarded.server.audit.close()
    (path,) = (tmp_path / "audit").iterdir()
    (row,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert (row["user"], row["act"], row["outcome"]) == ("bob", "tube|drop", "error 42")


def test_a_tube_with_a_dot(world: World) -> None:
    """N8.2 Of a tube that cannot be called for its name (I4.4) they get what a user with all
    rights gets.
    """
    for name in ("orders.t", "payments.t"):
        assert as_user(world, "root").call("queue.create_tube", name, "fifo") is not None
    for user, code in (("root", 33), ("alice", 33)):
        assert code_of(as_user(world, user), "queue.tube.orders.t:put", "data") == code
    assert code_of(as_user(world, "alice"), "queue.tube.payments.t:put", "data") == 42
    assert code_of(as_user(world, "alice"), "queue.tube.orders.t:take", 0) == 42
    assert code_of(as_user(world, "alice"), "queue.tube.orders.t:nothing") == 42
