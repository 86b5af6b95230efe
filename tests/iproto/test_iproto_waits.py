"""Takes and puts that wait, sessions, grants over IPROTO (SPEC I5.7, I5.8, I7, T7-T9)."""

from __future__ import annotations

from typing import Any

from iproto_raw import Said, login, request
from raw_resp import encode
from tuque.core.node.node import NODE_LEAVING
from tuque.core.queues.deliver import wake_all
from world import World
from world_wires import IprotoWire

PUT, TAKE, ACK = "queue.tube.t:put", "queue.tube.t:take", "queue.tube.t:ack"
NOT_TAKEN = (32, "Task was not taken")


def tube(world: World, type: str = "fifo", **options: Any) -> IprotoWire:
    """A connection that has made a tube."""
    conn = world.iproto()
    assert conn.call("queue.create_tube", "t", type, options) == []
    return conn


def test_a_blocked_take_holds_up_nothing(world: World) -> None:
    """I7.1"""
    conn = tube(world)
    blocked = conn.ask_call(TAKE)
    late = conn.ask_call(TAKE, 5)
    assert conn.call("queue.state") == ["RUNNING"]
    assert conn.hear(conn.ask(64)).code == 0
    assert conn.call(PUT, "a") == [[0, "r", "a"]]
    assert conn.hear(blocked).data == [[0, "t", "a"]]
    assert conn.call(ACK, 0) == [[0, "-", "a"]], "it is this connection's"
    world.pass_ms(5_001)
    assert conn.hear(late).data == []
    assert not world.server.takes


def test_takes_are_served_in_the_order_they_came(world: World) -> None:
    """T9: whatever their timeouts and connections."""
    one = tube(world)
    two = world.iproto()
    asked = [
        (conn, conn.ask_call(TAKE, timeout), conn.call("queue.state"))
        for conn, timeout in ((one, None), (two, 10), (one, 5), (two, 1))
    ]
    for number in range(4):
        world.iproto().call(PUT, number)
    got = [conn.hear(sync).data for conn, sync, _ in asked]
    assert got == [[[number, "t", number]] for number in range(4)]


def test_no_barging(world: World) -> None:
    """T9.1: a task that came belongs to who waits; a newer take does not get it."""
    conn = tube(world)
    blocked = conn.ask_call(TAKE)
    conn.call("queue.state")
    other = world.iproto()
    other.ask_call(PUT, "a")
    other.ask_call(TAKE, 0)
    assert [other.hear().data, other.hear().data] == [[[0, "r", "a"]], []]
    assert conn.hear(blocked).data == [[0, "t", "a"]]


def test_thousands_of_blocked_takes(world: World) -> None:
    """I7.2: the original stops at 768."""
    conn = tube(world)
    asked = [conn.ask_call(TAKE) for _ in range(5_000)]
    other = world.iproto()
    for number in range(5_000):
        other.ask_call(PUT, number)
    got = [conn.hear(sync).data[0][0] for sync in asked]
    assert got == list(range(5_000))
    assert not world.server.takes
    world.check()


def test_a_closed_connection_takes_nothing(world: World) -> None:
    """I7, T8.2: its takes end, its tasks go back in their order."""
    conn = tube(world)
    other = world.iproto()
    for number in range(3):
        other.call(PUT, number)
    for _ in range(3):
        conn.call(TAKE)
    conn.ask_call(TAKE)
    conn.call("queue.state")
    conn.close()
    assert [other.call(TAKE)[0][0] for _ in range(3)] == [0, 1, 2]
    assert not world.server.takes and not world.n.waiters
    assert other.call("queue.statistics", "t")[0]["calls"]["release"] == 3
    world.check()


def test_tasks_of_a_closed_connection_reach_who_waits(world: World) -> None:
    """T8.2, T9"""
    conn, other = tube(world), world.iproto()
    conn.call(PUT, "a")
    conn.call(TAKE)
    blocked = other.ask_call(TAKE)
    other.call("queue.state")
    conn.close()
    assert other.hear(blocked).data == [[0, "t", "a"]]


def test_only_the_holder_finishes(world: World) -> None:
    conn, other = tube(world), world.iproto()
    conn.call(PUT, "a")
    conn.call(TAKE)
    assert other.call(ACK, 0)[1:] == NOT_TAKEN
    assert other.call("queue.tube.t:release", 0)[1:] == NOT_TAKEN
    assert other.call("queue.tube.t:bury", 0) == [[0, "!", "a"]], "anybody may"
    assert conn.call(ACK, 0)[1:] == NOT_TAKEN


def test_drop_is_refused_while_somebody_waits_or_holds(world: World) -> None:
    conn, other = tube(world), world.iproto()
    blocked = conn.ask_call(TAKE)
    conn.call("queue.state")
    drop = "queue.tube.t:drop"
    assert other.call(drop)[1:] == (32, "There are consumers connected the tube")
    other.call(PUT, "a")
    conn.hear(blocked)
    assert other.call(drop)[1:] == (32, "There are taken tasks in the tube")
    conn.call(ACK, 0)
    assert other.call(drop) == [True]


def test_a_reset_of_all_data_ends_what_waits(world: World) -> None:
    """S7.1: the tubes are gone, and so is what waited for them."""
    conn = tube(world, "limfifottl", capacity=1)
    conn.call("queue.create_tube", "u", "fifo")
    conn.call(PUT, 0)
    asked = [conn.ask_call("queue.tube.u:take"), conn.ask_call(PUT, 1, {"timeout": 60})]
    assert conn.call("queue.state") == ["RUNNING"]
    world.wire().say(encode("DEBUG", "FLUSHALL"))
    assert [conn.hear(sync).data for sync in asked] == [[], [None]]
    assert conn.call("queue.tube") == [[]]
    world.check()


def test_a_node_that_leaves(world: World) -> None:
    """I7, V7: takes that wait are sent home, and none waits any more."""
    conn = tube(world)
    blocked = conn.ask_call(TAKE)
    assert conn.call("queue.state") == ["RUNNING"]
    world.n.is_leaving = True
    wake_all(world.n, NODE_LEAVING)
    world.settle()
    assert conn.hear(blocked).code == 7
    assert conn.call(TAKE).code == 7
    assert conn.call(TAKE, 0) == []


# ---- limfifottl


def test_puts_that_wait_for_room(world: World) -> None:
    """T7, I7.4"""
    conn = tube(world, "limfifottl", capacity=1)
    conn.call(PUT, 0)
    assert conn.call(PUT, 1) == [None]
    first = conn.ask_call(PUT, 2, {"timeout": 60})
    second = conn.ask_call(PUT, 3, {"timeout": 1})
    third = conn.ask_call(PUT, 4, {"timeout": 60})
    assert conn.call("queue.state") == ["RUNNING"]
    world.pass_ms(1_001)
    assert conn.hear(second).data == [None]
    conn.call("queue.tube.t:delete", 0)
    assert conn.hear(first).data == [[1, "r", 2]]
    conn.call("queue.tube.t:delete", 1)
    assert conn.hear(third).data == [[2, "r", 4]]
    late = conn.ask(6, {0x22: PUT, 0x21: [5, {"timeout": 1}]})
    conn.call("queue.state")
    world.pass_ms(1_001)
    assert conn.hear(late).data == [[None]]


def test_a_put_whose_connection_is_gone(world: World) -> None:
    """I7.4: is not done any more."""
    conn, other = tube(world, "limfifottl", capacity=1), world.iproto()
    conn.call(PUT, 0)
    conn.ask_call(PUT, 1, {"timeout": 60})
    conn.call("queue.state")
    conn.close()
    other.call("queue.tube.t:delete", 0)
    assert other.call(TAKE, 0) == []
    assert other.call(PUT, 2) == [[1, "r", 2]]


# ---- sessions


def test_identify(world: World) -> None:
    """T8: several connections in one session."""
    conn, other = tube(world), world.iproto()
    (uuid,) = conn.call("queue.identify")
    assert len(uuid) == 16
    assert conn.call("queue.identify", None) == [uuid]
    conn.call(PUT, "a")
    conn.call(TAKE)
    assert other.call("queue.identify", uuid) == [uuid]
    conn.close()
    assert other.call(ACK, 0) == [[0, "-", "a"]]
    for wrong in ("just-for-fun", 5, b"x" * 15, "x" * 36):
        assert other.call("queue.identify", wrong)[1:] == (32, "Invalid UUID format.")
    text = "The UUID 00000000-0000-0000-0000-000000000000 is unknown."
    assert other.call("queue.identify", bytes(16))[1:] == (32, text)


def test_a_session_outlives_its_connections(world: World) -> None:
    """T8: cfg.ttr, vectors 19 and 20."""
    conn = tube(world)
    conn.call("queue.cfg", {"ttr": 60})
    conn.call(PUT, "a")
    conn.call(TAKE)
    (uuid,) = conn.call("queue.identify")
    conn.close()
    world.pass_ms(30_000)
    again = world.iproto()
    assert again.call("queue.identify", uuid) == [uuid]
    again.close()
    world.pass_ms(61_000)
    last = world.iproto()
    assert last.call("queue.tube.t:peek", 0) == [[0, "r", "a"]]
    assert last.call("queue.identify", uuid)[2].endswith("is unknown.")


def test_a_take_that_waits_is_for_the_session_of_then(world: World) -> None:
    """I7.3"""
    conn, other = tube(world), world.iproto()
    (uuid,) = other.call("queue.identify")
    blocked = conn.ask_call(TAKE)
    assert conn.call("queue.identify", uuid) == [uuid]
    other.call(PUT, "a")
    assert conn.hear(blocked).data == [[0, "t", "a"]]
    assert other.call(ACK, 0) == [[0, "-", "a"]]
    world.check()


# ---- users


def test_grants(guarded: World) -> None:
    """I5.7"""
    admin, bob = login(guarded, "admin"), login(guarded, "bob")
    for name in ("t", "u"):
        admin.call("queue.create_tube", name, "fifo")
    denied = "Execute access to function '%s' is denied for user 'bob'"
    assert bob.call(PUT, 1)[1:] == (42, denied % PUT)
    assert bob.call("queue.tube.none:put", 1)[1:] == (42, denied % "queue.tube.none:put")
    assert admin.call("queue.tube.t:grant", "bob") == []
    assert bob.call(PUT, 1)[1:] == (42, denied % PUT)
    assert admin.call("queue.tube.t:grant", "bob", {"call": True}) == []
    assert bob.call(PUT, 1) == [[0, "r", 1]]
    assert bob.call("queue.tube.t:truncate")[1] == 42
    assert bob.call("queue.tube.t:drop")[1] == 42
    assert bob.call("queue.state")[1] == 42
    assert bob.call("queue.stats", "t")[1] == 42, "the alias is not granted"
    assert list(bob.call("queue.statistics", "t")[0]) == ["tasks", "calls"]
    text = "Read access to space 'u' is denied for user 'bob'"
    assert bob.call("queue.statistics")[1:] == (42, text)
    admin.call("queue.tube.t:grant", "bob", {"truncate": True})
    assert bob.call("queue.tube.t:truncate") == []
    assert bob.values(bob.hear(bob.ask(8, {0x27: "return 1", 0x21: []})))[1:] == (
        42,
        "Execute access to universe '' is denied for user 'bob'",
    )
    nobody = admin.call("queue.tube.t:grant", "nobody", {"call": True})
    assert nobody[1:] == (45, "User 'nobody' is not found")
    role = admin.call("queue.tube.t:grant_role", "nobody", {"call": True})
    assert role[1:] == (82, "Role 'nobody' is not found")


def test_roles(guarded: World) -> None:
    """I5.7, T10.3: "grant_role does so for all who have a role"."""
    admin, bob, eve = (login(guarded, name) for name in ("admin", "bob", "eve"))
    admin.call("queue.create_tube", "t", "fifo")
    assert admin.call("queue.tube.t:grant_role", "writers", {"call": True}) == []
    assert eve.call(PUT, 1) == [[0, "r", 1]] and eve.call("queue.tube.t:truncate")[1] == 42
    assert list(eve.call("queue.statistics", "t")[0]) == ["tasks", "calls"]
    assert bob.call(PUT, 1)[1] == guarded.iproto().call(PUT, 1)[1] == 42
    assert admin.call("queue.tube.t:grant_role", "readers", {"truncate": True}) == []
    assert bob.call("queue.tube.t:truncate") == eve.call("queue.tube.t:truncate") == []
    assert bob.call("queue.identify")[1] == 42, "truncate alone is no call"
    role = admin.call("queue.tube.t:grant", "readers", {"call": True})
    assert role[1:] == (45, "User 'readers' is not found")
    assert admin.call("queue.tube.t:grant_role", "public", {"call": True}) == []
    assert guarded.iproto().call(PUT, 1) == [[1, "r", 1]]


def test_a_take_ends_with_the_right_to_it(guarded: World) -> None:
    """T10.4: "Takes that wait for the tube end with error 42"."""
    admin, bob, eve = (login(guarded, name) for name in ("admin", "bob", "eve"))
    for name in ("t", "u"):
        admin.call("queue.create_tube", name, "fifo")
        admin.call(f"queue.tube.{name}:grant", "bob", {"call": True})
        admin.call(f"queue.tube.{name}:grant_role", "writers", {"call": True})
    first, other = bob.ask_call(TAKE), bob.ask_call("queue.tube.u:take")
    hers = eve.ask_call(TAKE)
    guarded.settle()
    mine = admin.ask_call(TAKE)
    guarded.settle()
    revoke = b"TUBE REVOKE t bob\r\n"
    assert guarded.wire().say(revoke) == b":1\r\n"
    denied = f"Execute access to function '{TAKE}' is denied for user 'bob'"
    assert bob.hear(first)[1:] == (42, denied)
    assert bob.call(TAKE, 0)[1:] == (42, denied)
    admin.call("queue.tube.u:put", "x")
    for n in range(2):
        admin.call(PUT, n)
    assert bob.hear(other).data == [[0, "t", "x"]]
    assert eve.hear(hers).data == [[0, "t", 0]] and admin.hear(mine).data == [[1, "t", 1]]


def test_a_take_of_who_logs_in_meanwhile(guarded: World) -> None:
    """I7.3 The task belongs to the session that the connection has when it is taken."""
    admin, guest, bob = login(guarded, "admin"), guarded.iproto(), login(guarded, "bob")
    admin.call("queue.create_tube", "t", "fifo")
    admin.call("queue.tube.t:grant_role", "public", {"call": True})
    (before,) = guest.call("queue.identify")
    taking = guest.ask_call(TAKE)
    assert guest.log_in("bob", "b").code == 0
    admin.call(PUT, "x")
    assert guest.hear(taking).data == [[0, "t", "x"]]
    (uuid,) = guest.call("queue.identify")
    assert uuid != before and bob.call("queue.identify", uuid) == [uuid]
    assert bob.call(ACK, 0) == [[0, "-", "x"]]


def test_a_hundred_thousand_calls_of_one_connection(world: World) -> None:
    """I7.2: one more gets error 32, and the others wait on."""
    conn = tube(world)
    one = request(10, 7, {0x22: TAKE, 0x21: []})
    for _ in range(100):
        conn.send(one * 1000)
    many = (32, "more than 100000 calls of one connection wait")
    assert conn.call(TAKE)[1:] == many
    assert conn.call(TAKE, 0) == []
    assert len(world.server.takes) == 100_000
    other = world.iproto()
    assert other.call(PUT, "x") == [[0, "r", "x"]]
    assert conn.hear(7).data == [[0, "t", "x"]]
    conn.ask_call(TAKE)
    assert conn.call(TAKE)[1:] == many


def test_a_prefix_of_the_operator(guarded: World) -> None:
    """I5.7"""
    admin, bob = login(guarded, "admin"), login(guarded, "bob")
    admin.call("queue.create_tube", "t", "fifo")
    assert admin.call("my.box.t:put", 1)[1] == 33
    admin.call("queue.tube.t:grant", "bob", {"call": True, "prefix": "my.box"})
    assert bob.call("my.box.t:put", 1) == [[0, "r", 1]]
    assert bob.call("queue.statistics", "t")[0]["tasks"]["ready"] == 1
    assert bob.call(PUT, 1)[1] == 42
    assert admin.call("my.box.t:put", 1)[1] == 33


def test_strangers_do_not_join_a_session(guarded: World) -> None:
    """I5.8, T8.3"""
    admin, bob, eve = (login(guarded, name) for name in ("admin", "bob", "eve"))
    admin.call("queue.create_tube", "t", "fifo")
    for name in ("bob", "eve"):
        admin.call("queue.tube.t:grant", name, {"call": True})
    bob.call(PUT, "a")
    bob.call(TAKE)
    (uuid,) = bob.call("queue.identify")
    said = eve.call("queue.identify", uuid)
    assert isinstance(said, Said) and said.data.endswith("is unknown.")
    assert eve.call(ACK, 0)[1:] == NOT_TAKEN
    assert login(guarded, "bob").call("queue.identify", uuid) == [uuid]
    assert bob.log_in("bob", "b").code == 0, "once more, and nothing changes"
    assert bob.call("queue.identify") == [uuid]
    assert bob.log_in("eve", "e").code == 0, "who logs in anew leaves the session"
    assert bob.call(ACK, 0)[1:] == NOT_TAKEN


def test_a_password_that_is_set_shuts_guests_out(world: World) -> None:
    """I5.9"""
    conn = tube(world, "limfifottl", capacity=1)
    conn.call(PUT, "a")
    conn.call(TAKE)
    asked = [conn.ask_call(TAKE), conn.ask_call(PUT, "b", {"timeout": 60})]
    assert conn.call("queue.state") == ["RUNNING"]
    world.wire().say(encode("CONFIG", "SET", "requirepass", "hidden"))
    assert [conn.hear(sync).code for sync in asked] == [42, 42]
    assert conn.call("queue.state").code == 42
    (t,) = world.n.queues.values()
    assert t.length == 1, "and the task it held is back"
    assert not world.server.takes and not world.n.waiters
    world.check()


# ---- beside RESP


def test_resp_clients_see_the_same_tasks(world: World) -> None:
    """T1: one job model."""
    conn = tube(world, "fifottl")
    resp = world.wire()
    conn.call(PUT, b"from iproto")
    blocked = conn.ask_call(TAKE)
    got = conn.hear(blocked).data
    assert got == [[0, "t", b"from iproto"]]
    conn.call("queue.tube.t:release", 0)
    said = resp.say(encode("GETJOB", "FROM", "t"))
    assert b"from iproto" in said
    assert conn.call(ACK, 0)[1:] == NOT_TAKEN, "a worker of RESP has it"
    resp.say(encode("ADDJOB", "t", "from resp", 0))
    assert conn.call(TAKE, 0) == [[1, "t", b"from resp"]]
    world.check()


def test_client_pause_holds_calls(world: World) -> None:
    """C3.9"""
    conn = tube(world)
    resp = world.wire()
    resp.say(encode("CLIENT", "PAUSE", 60_000))
    asked = [conn.ask_call(PUT, number) for number in range(3)]
    world.pass_ms(59_999)
    assert b"PONG" not in resp.say(encode("PING"))
    assert conn.bytes_now() == b""
    world.pass_ms(2)
    assert [conn.hear(sync).data[0][0] for sync in asked] == [0, 1, 2]


def test_unrun_requests_of_a_stranger(guarded: World) -> None:
    """C2.9: over 1 MiB of requests that did not run; a user may have them."""
    stranger, user = guarded.iproto(), login(guarded, "bob")
    guarded.server.paused_until_ms = guarded.server.n.now_ms + 600_000
    pings = request(64, 1) * 3_000
    for conn, is_closed in ((user, False), (stranger, True)):
        for _ in range(100):
            conn.send(pings)
        assert guarded.server.figures.strangers_closed == is_closed
    assert len(guarded.server.wired) == 1
