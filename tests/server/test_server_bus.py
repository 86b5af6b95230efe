"""The bus of one pump, and another end that does what no node should (SPEC B1, B2, K1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import encode
from tuque.core.copies.replicate import copy_of
from tuque.core.msgs.bus import (
    AnyMessage,
    GotJob,
    Heartbeat,
    Pause,
    Refusal,
    ReplJob,
)
from tuque.core.node.peers import say
from tuque.server.bus.peers import COME_MAX, COME_MS, HANDSHAKE_MS, YOUNG_MAX
from tuque.server.config.config import load
from tuque.server.net.listen import open_bus_sockets
from tuque.wire.bus.bus import BusError
from tuque.wire.bus.seal import STEP_BYTES
from world import World
from world_strangers import ANOTHER, OTHER, SECRET, Stranger
from world_trace import digest

ID = b"D-0a0a0a0a-VTUo3R4lebIYJdAAEwe8bf2U-05a1"


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A node with a secret."""
    return make_world(journal="off", cluster_secret=SECRET)


def test_a_stranger_with_the_secret_is_a_node(world: World) -> None:
    """K3.2 A node learns of the others from the heartbeats of the node that it met."""
    stranger = world.stranger()
    assert stranger.join()
    assert world.bus.figures.joined == 1 and world.n.reachable_count == 1
    assert OTHER in world("CLUSTER", "NODES")


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"\xff" * 64, encode("PING"), b"\0\0\4\1" * 16],
)
def test_garbage_ends_the_connection(world: World, garbage: bytes) -> None:
    """B1.1 a frame has at most 1 KiB and the connection lives 2 s."""
    before = digest(world.n)
    stranger = world.stranger()
    stranger.give(garbage)
    if stranger.is_open():  # half a frame: it may still become one
        world.pass_ms(HANDSHAKE_MS + 1)
    assert not stranger.is_open()
    assert digest(world.n) == before and len(world.bus.links) == 0


def test_silence_ends_the_connection(world: World) -> None:
    """B1.1 a frame has at most 1 KiB and the connection lives 2 s."""
    stranger = world.stranger()
    assert stranger.is_open()
    world.pass_ms(HANDSHAKE_MS - 100)
    assert stranger.is_open()
    world.pass_ms(101)
    assert not stranger.is_open()


def test_each_has_its_own_time(world: World) -> None:
    """B1.1 the connection lives 2 s."""
    world.pass_ms(60_000)  # now the time stands still
    first = world.stranger()
    world.pass_ms(HANDSHAKE_MS // 2)
    second = world.stranger()
    assert world.bus.unauthenticated.late_ms() == world.n.now_ms + HANDSHAKE_MS // 2
    world.pass_ms(HANDSHAKE_MS // 2)
    assert (first.is_open(), second.is_open()) == (False, True)
    world.pass_ms(HANDSHAKE_MS // 2)
    assert not second.is_open() and world.bus.unauthenticated.late_ms() == -1


def flooded(world: World, count: int, came: str = "127.0.0.1") -> list[Stranger]:
    """Strangers of an address, as often as it may come (B1.9)."""
    found = []
    for i in range(count):
        if i % COME_MAX == 0:
            world.pass_ms(COME_MS)
        found.append(world.stranger(came=came))
    return found


def test_so_many_handshakes_at_once(world: World) -> None:
    strangers = flooded(world, YOUNG_MAX + 3)
    assert [one.is_open() for one in strangers[:4]] == [False, False, False, True]
    assert all(one.is_open() for one in strangers[4:])


def test_a_flood_from_one_address_closes_its_own(world: World) -> None:
    """L1: the oldest accepted one is closed, of the address that has most of them; those of
    members' addresses last"""
    friend = world.stranger()
    few = [world.stranger(came="127.0.0.5") for _ in range(3)]
    other = world.stranger(came="127.0.0.3")
    flood = flooded(world, YOUNG_MAX, "127.0.0.2")
    assert [one.is_open() for one in flood[:6]] == [False] * 5 + [True]
    assert all(one.is_open() for one in (*few, other))
    assert friend.join(), "a node is kept out"
    world.bus.unauthenticated.meet("127.0.0.2")  # where a member is, as this node knows
    more = [world.stranger(came="127.0.0.4") for _ in range(4)]
    assert [one.is_open() for one in (*few, other)] == [False, False, True, True]
    assert [one.is_open() for one in more] == [False, True, True, True]
    assert all(one.is_open() for one in flood[5:])
    for one in (friend, *few, other, *flood, *more):
        if one.is_open():
            one.close()
    world.settle()
    assert len(world.bus.unauthenticated) == 0 and world.bus.unauthenticated.accepted == {}


def test_a_stranger_comes_so_often(world: World) -> None:
    """B1.9 Of an address where it knows no member a node takes 50 connections to its bus in 100 ms.
    It closes further ones at once, before anything else is done for them"""
    figures = world.bus.figures
    flood = [world.stranger(came="127.0.0.9") for _ in range(COME_MAX + 5)]
    others = [world.stranger(came=came) for came in ("127.0.0.8", "127.0.0.1") for _ in range(3)]
    assert (figures.accepted, figures.refused) == (COME_MAX + 6, 5)
    assert [one.is_open() for one in flood] == [True] * COME_MAX + [False] * 5
    assert not any(one.bytes_now() for one in flood[COME_MAX:]), "without a word"
    assert all(one.is_open() for one in others)
    assert "no link with 127.0.0.9: too many connections" in "\n".join(world.node().log)
    world.bus.unauthenticated.meet("127.0.0.9")  # a member is there
    assert all(world.stranger(came="127.0.0.9").is_open() for _ in range(COME_MAX + 5))
    world.bus.unauthenticated.met.clear()
    assert not world.stranger(came="127.0.0.9").is_open()
    world.pass_ms(COME_MS)
    assert world.stranger(came="127.0.0.9").is_open()


def test_a_wrong_secret(world: World) -> None:
    stranger = world.stranger(secret=ANOTHER)
    with pytest.raises(BusError, match="wrong secret"):
        stranger.join()
    assert not stranger.is_open()
    assert world.bus.figures.refused == 1
    assert world.bus.figures.joined == 0 and len(world.n.peers) == 1


def test_a_frame_that_does_not_decode_ends_the_link(world: World) -> None:
    """B2.2: A frame that does not decode closes the link and is counted."""
    stranger = world.stranger()
    assert stranger.join()
    frame = bytearray(stranger.conn.encode([Pause(b"q", 1, 1)]))
    frame[-1] ^= 1
    stranger.give(bytes(frame))
    assert not stranger.is_open()
    assert world.bus.figures.malformed == 1
    assert b"bus_closed_malformed:1" in world("INFO", "bus")
    assert world.n.reachable_count == 0 and world.n.queues == {}


def test_a_newer_life_replaces_the_link(world: World) -> None:
    """K1.2: A higher incarnation of a known id replaces the lower one; frames of the lower are
    refused."""
    first = world.stranger()
    assert first.join()
    second = world.stranger(life=2, mark=b"9 bytes.")
    assert second.join()
    assert not first.is_open()
    assert len(world.bus.by_slot) == 1 and world.n.reachable_count == 1
    third = world.stranger(life=1)
    assert not third.join()


def test_a_link_that_is_ready_late_replaces_no_later_one(world: World) -> None:
    """K1.2 Of two links that the same end dialled, the one that was begun later counts, whichever
    is ready first: what is in the other one is older."""
    first, second, third = world.stranger(), world.stranger(), world.stranger()
    assert second.join()
    assert not first.join()
    assert first.refusal == "there is a later link already"
    assert second.is_open() and world.n.reachable_count == 1
    assert third.join()
    assert not second.is_open() and world.n.reachable_count == 1


def test_two_nodes_with_one_id(world: World) -> None:
    """K1.3: The same id with two incarnations alive at once is a conflict: both nodes refuse
    service and say so."""
    assert world("PING") == b"+PONG\r\n"
    twin = world.stranger(node_id=world.n.node_id)
    assert not twin.join()
    assert "id of this one" in twin.refusal
    world.settle()
    for words in (("PING",), ("ADDJOB", "q", "b", 0), ("GETJOB", "NOHANG", "FROM", "q")):
        assert world(*words).startswith(b"-CONFLICT another node has the id of this one")
    assert b"cluster_state:conflict" in world("CLUSTER", "INFO")
    assert world("QUIT") == b"+OK\r\n"


def test_a_node_that_reads_nothing(world: World) -> None:
    """B2.4: A link has a bounded send buffer."""
    world.bus.limit_bytes = 1 << 20
    stranger = world.stranger()
    assert stranger.join()
    stranger.stop_reading()
    body = "x" * 100_000
    for _ in range(300):
        world("ADDJOB", "q", body, 0, "REPLICATE", 2, "ASYNC")
        if world.bus.crowded:
            break
    else:
        raise AssertionError("there is always room")
    assert world("ADDJOB", "q", body, 50, "REPLICATE", 2, "ASYNC") == b""
    world.pass_ms(1000)
    assert world.run.hear().startswith(b"-NOREPL Timeout reached")
    link = next(iter(world.bus.by_slot.values()))
    world.bus.put(link, bytes(1 << 20))
    assert link.is_closed and world.bus.figures.overfull == 1
    world.settle()
    assert world.bus.crowded == 0 and not world.server.is_crowded
    assert world.n.reachable_count == 0


def test_a_large_copy_goes_in_steps(world: World) -> None:
    """B2.8 The code of a frame of 1 MiB or more is made in steps of 512 KiB, one in a turn for each
    link; what is sent later waits behind it."""
    world.bus.limit_bytes = 1 << 20  # one frame may have any size (B2.4)
    stranger = world.stranger()
    assert stranger.join()
    body = bytes(range(256)) * (20 << 10)
    two = ("REPLICATE", 2, "ASYNC")
    for one in ("small", body, "later"):
        world.run.put(encode("ADDJOB", "q", one, 0, *two))
    link = next(iter(world.bus.by_slot.values()))
    bodies: list[bytes] = []
    stepped = 0
    while len(bodies) < 3:
        began = [(head, head.index, head.at) for head in link.heads]
        world.turn()
        for head, index, at in began:
            assert head.index > 1 or head.index + head.at - index - at <= 1 + STEP_BYTES
            stepped += 1
        bodies += [one.body for one in heard(stranger) if isinstance(one, ReplJob)]
        assert stepped < 100, "it comes to no end"
    assert bodies == [b"small", body, b"later"]
    assert stepped >= len(body) // STEP_BYTES
    assert not link.is_closed and link.waiting_bytes == 0 and not link.heads
    for job in world.n.jobs.values():
        copy_of(world.n, int(link.slot), job, 0)
        assert world.n.has_large == (job.body == body), "its frame is its own"
        world.n.has_large = False


def heard(stranger: Stranger) -> list[AnyMessage]:
    """What has come; nothing more is carried out."""
    came = bytes(stranger.unread)
    stranger.unread.clear()
    return stranger.conn.feed(came)


@pytest.mark.parametrize("seq", [-1, 7])
def test_a_large_frame_waits_in_its_place(world: World, seq: int) -> None:
    """B2.8 what is sent later waits behind it; C8.2: also behind the journal"""
    stranger = world.stranger()
    assert stranger.join()
    slot, link = next(iter(world.bus.by_slot.items()))
    large = ReplJob(ID, b"q", bytes(3 << 20), 1, 1, 0, 1, 0, 1, 0, 0, 1, 0)
    ids = [GotJob([ID] * 40_000)]  # more than 1 MiB, too
    world.n.has_large = True
    for message in (Pause(b"q", 0, 1), large, Pause(b"q", 0, 2), *ids):
        say(world.n, slot, message)
    world.bus.settle(seq)
    assert len(link.heads) == (0 if seq == 7 else 2) and (link.wire == []) == (seq == 7)
    assert link.excess_bytes() < 2 << 20, "a large frame counts as the first"
    world.bus.release(6)
    assert (link.wire == []) == (seq == 7)
    world.bus.release(7)
    said = [one for one in stranger.hear() if isinstance(one, Pause | ReplJob | GotJob)]
    sent = [Pause(b"q", 0, 1), large, Pause(b"q", 0, 2), *ids]
    assert len(said) == len(sent) and all(a == b for a, b in zip(said, sent, strict=True))
    assert link.waiting_bytes == 0


def test_a_heartbeat_says_that_it_is_there(world: World) -> None:
    """K4.1: A heartbeat goes over each link"""
    stranger = world.stranger()
    assert stranger.join()
    world.pass_ms(2_000)
    assert any(isinstance(m, Heartbeat) for m in stranger.hear())
    stranger.says(Heartbeat(1, 0, 1, 7712, []))  # it leaves
    assert world.n.reachable_count == 0
    assert b":7712 leaving" in world("CLUSTER", "NODES")


@pytest.mark.parametrize(
    ("host", "why"),
    [("no.such.host.invalid", "not known"), ("10.0.0.77", "Connection refused")],
)
def test_why_a_meeting_fails(world: World, host: str, why: str) -> None:
    """K3.1: `CLUSTER NODES` shows the handshake and why it failed."""
    assert world("CLUSTER", "MEET", host, 7711) == b"+OK\r\n"
    line = world("CLUSTER", "NODES")
    assert b"handshake 0 0 disconnected " in line and why.encode() in line


def test_without_a_secret_only_this_machine(make_world: Callable[..., World]) -> None:
    """B1.1: Without a secret a node links only with nodes of this machine."""
    world = make_world(journal="off")
    world.bus.filler = b""
    assert world("CLUSTER", "MEET", "10.1.2.3", 7711).startswith(
        b"-ERR without a cluster-secret only nodes of this machine"
    )
    host = world.host()
    world.bus.connect(host.address, "some.where", 17711)  # as a name that was looked up
    world.settle()
    assert not host.came and len(world.bus.links) == 0
    sockets = open_bus_sockets(load(None, {}, {"port": "0"}), False)
    assert all(sock.getsockname()[0] in ("127.0.0.1", "::1") for sock in sockets)
    for sock in sockets:
        sock.close()


def test_the_one_that_dialled_waits_for_the_other(world: World) -> None:
    """B1.3 The dialling node accepts the link with the first message."""
    host = world.host(secret=SECRET)
    assert world("CLUSTER", "MEET", host.address, 7711) == b"+OK\r\n"
    (dialled,) = host.came
    assert dialled.join(), "it has said who it is"
    assert len(world.bus.by_slot) == 0
    dialled.says(Refusal("because\n of this"))
    assert b"handshake 0 0 disconnected because of this\n" in world("CLUSTER", "NODES")
    assert len(world.bus.links) == 0 and world.n.reachable_count == 0
