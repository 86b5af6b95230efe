"""N10: tenants on the IPROTO door, function by function."""

from __future__ import annotations

from test_iproto_users import ARGUMENTS

from tuque.server.users.users import Account
from tuque.server.users.users_file import apply_words
from tuque.wire.commands.tube_table import PROCEDURES
from world import World
from world_wires import IprotoWire

USERS = {
    "default": "off",
    "ann": "on iproto >pw +@all ~* tenant:tenant-a",
    "bob": "on iproto >pw +@all ~* tenant:tenant-b",
    "root": "on iproto >pw +@all ~*",
}


def world_of() -> World:
    world = World()
    for name, words in USERS.items():
        account = Account(name.encode())
        apply_words(account, [word.encode() for word in words.split(" ")])
        world.server.acl.put(account)
    world.server.settle_guest()
    return world


def as_user(world: World, name: str) -> IprotoWire:
    conn = world.iproto()
    assert conn.log_in(name, "pw").code == 0
    return conn


def heard(conn: IprotoWire, name: str, *args: object) -> tuple[int, str]:
    """Code and content of one call's reply."""
    said = conn.hear(conn.ask_call(name, *args))
    return said.code, repr(said.data)


def test_another_tenant_changes_no_reply() -> None:
    """N10.1 What one tenant has is not there for the users of another: in every command, call,
    list, push and error they get what they would get without it.
    """
    full, empty = world_of(), world_of()
    bob = as_user(full, "bob")
    assert bob.call("queue.create_tube", "t", "fifo") is not None
    assert bob.call("queue.tube.t:put", "of bob") is not None
    for one in PROCEDURES:
        for call in one.calls:
            if call == "queue.identify":
                continue
            words = [call] if call.startswith("queue.") else [f"queue.tube.t:{call}"]
            words += [
                word.replace("tube.t:", "tube.tenant-b/t:") for word in words if "tube.t" in word
            ]
            for word in words:
                for args in ([], ["t"], ["t", "fifo"], ["tenant-b/t"], ARGUMENTS.get(call, [])):
                    if word == "queue.create_tube" and len(args) > 1:
                        continue
                    both = [heard(as_user(world, "ann"), word, *args) for world in (full, empty)]
                    assert both[0] == both[1], (word, args)
                    assert "tenant-a/" not in both[0][1], (word, args, both)
    assert bob.call("queue.tube.t:take", 0) == [[0, "t", "of bob"]]
    for world in (full, empty):
        world.check()


def test_both_have_a_tube_of_one_name() -> None:
    """N10.2 its users give and see `<name>`."""
    world = world_of()
    ann, bob, root = as_user(world, "ann"), as_user(world, "bob"), as_user(world, "root")
    for conn in (ann, bob):
        assert conn.call("queue.create_tube", "t", "fifo") is not None
    assert ann.call("queue.tube.t:put", "of ann") is not None
    assert bob.call("queue.tube.t:take", 0) == []
    assert ann.call("queue.tube.t:take", 0) == [[0, "t", "of ann"]]
    assert set(ann.call("queue.statistics")[0]) == {"t"}
    assert ann.call("queue.tube", "t") == [True]
    assert ann.call("queue.tube", "tenant-b/t") == [False]
    assert set(root.call("queue.statistics")[0]) == {"tenant-a/t", "tenant-b/t"}
    said = heard(ann, "queue.create_tube", "t", "fifo")
    assert said[0] != 0 and "tenant-a" not in said[1]
    world.check()


def test_quotas_hold_on_this_door() -> None:
    """N11.2 ADDJOB, STAGE, TUBE PUT and PUBLISH by its users are refused if there would be more."""
    world = world_of()
    account = world.server.acl.by_name[b"ann"].copy()
    apply_words(account, [b"quota:jobs=1", b"quota:connections=1"])
    world.server.acl.put(account)
    ann = as_user(world, "ann")
    assert ann.call("queue.create_tube", "t", "fifo") is not None
    assert ann.call("queue.tube.t:put", "x") is not None
    code, text = heard(ann, "queue.tube.t:put", "x")
    assert code == 32 and "tenant 'tenant-a' has 1 jobs at this node" in text
    assert world.iproto().log_in("ann", "pw").code == 32
    world.check()


def test_full_tubes_take_no_task_on_this_door() -> None:
    """N11.9 Its tubes count with their keys, limits and rates; at that quarter they take no
    task.
    """
    world = world_of()
    ann, bob = as_user(world, "ann"), as_user(world, "bob")
    for conn in (ann, bob):
        assert conn.call("queue.create_tube", "t", "tasks") is not None
    world.n.base_bytes = 0
    world.n.limits.memory_bytes = 4 * int(world.n.book.owners[b"tenant-a"].tube_bytes)
    code, text = heard(ann, "queue.tube.t:put", "x")
    assert code == 32 and "QUOTA tenant 'tenant-a' has queues of" in text
    world.n.limits.memory_bytes = 1 << 20
    assert ann.call("queue.tube.t:put", "x") is not None
    world.check()
