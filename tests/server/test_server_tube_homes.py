"""Homes of tubes at the world of one node: who is sent where, and in which words (SPEC T17-T21)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest

from tuque.tubes.leadership.activate import lose_home
from tuque.tubes.leadership.switchover import become_home
from tuque.tubes.log.leader import set_read_only
from tuque.tubes.model.tube import WAITING, Follower, Tube
from tuque.tubes.policy import tubes_of
from world import World
from world_machines import name_of

OTHER = b"f" * 40
THERE = b"-TUBEHOME 10.0.0.2:7712 Tube 't' has its leader there\r\n"


@pytest.fixture
def tube(world: World) -> Iterator[World]:
    """A tube with a task, and one more node that is known by its address."""
    world("TUBE CREATE t fifottl")
    world("TUBE PUT t x")
    world.server.members.restore(OTHER, "10.0.0.2", 7712, 17712, 0)
    yield world


def named(world: World) -> Tube:
    return tubes_of(world.n).by_name[b"t"]


def move_away(world: World) -> None:
    """Another node has become its home, under a higher epoch."""
    lose_home(world.n, tubes_of(world.n), named(world), OTHER, 2)


ELSEWHERE = [
    "TUBE PUT t y",
    "TUBE TAKE t",
    "TUBE TAKE t TIMEOUT 0",
    "TUBE ACK t 0",
    "TUBE RELEASE t 0",
    "TUBE TOUCH t 0 1",
    "TUBE BURY t 0",
    "TUBE KICK t 1",
    "TUBE PEEK t 0",
    "TUBE DELETE t 0",
    "TUBE TRUNCATE t",
    "TUBE RELEASEALL t",
    "TUBE DROP t",
    "TUBE TASKS t READY",
    "TUBE CHANGES t",
    "TUBE HOME t 0a0a0a0a",
    "ADDJOB t y 0",
    "GETJOB NOHANG FROM q t",
    "QLEN t",
    "QPEEK t 1",
    "QSTAT t",
    "PAUSE t in",
    "TUBE CREATE t fifottl IFNOTEXISTS",
]


@pytest.mark.parametrize("line", ELSEWHERE)
def test_who_asks_elsewhere_is_sent_to_the_home(tube: World, line: str) -> None:
    """T17.3, before it does anything."""
    move_away(tube)
    assert tube(line) == THERE
    assert len(tubes_of(tube.n).sessions) == 0
    assert (len(named(tube).copies), len(tube.n.jobs)) == (1, 0)


@pytest.mark.parametrize(
    "verb", ["ACKJOB", "FASTACK", "NACK", "WORKING", "ENQUEUE", "DEQUEUE", "DELJOB", "SHOW"]
)
def test_jobs_that_are_copies_are_the_homes(tube: World, verb: str) -> None:
    """T17.3 of a task that this node has a copy of; nothing is done to the jobs beside it."""
    (id,) = tubes_of(tube.n).by_name[b"t"].tasks.values()
    tube("TUBE CREATE here fifottl ALONE")
    stay = [tube.value(f"ADDJOB {queue} y 0") for queue in ("q", "here", "here")]
    move_away(tube)
    words = [id.id] if verb in ("WORKING", "SHOW") else [*stay, id.id]
    assert tube(verb, *words) == THERE
    assert all(job in tube.n.jobs for job in stay)


def test_some_words_answer_everywhere(tube: World) -> None:
    """T17.3: LIST, INFO, STATE, HOME, STATISTICS and GRANTS."""
    move_away(tube)
    assert tube.value("TUBE LIST") == [b"t"]
    flat = tube.value("TUBE INFO t")
    info = dict(zip(flat[::2], flat[1::2], strict=True))
    told = {name: info[name] for name in (b"home", b"epoch", b"state", b"copies", b"ready")}
    assert told == {b"home": OTHER, b"epoch": 2, b"state": b"WAITING", b"copies": 1, b"ready": 0}
    assert tube.value("TUBE STATE t") == b"WAITING"
    assert tube.value("TUBE STATE") == b"RUNNING"
    assert isinstance(tube.value("TUBE STATISTICS t"), list)
    assert tube.value("TUBE GRANTS t") == []
    found = tube.info("tubes")
    assert (found["tubes_copies"], found["tubes_running"], found["tubes_tasks"]) == ("1", "0", "0")


def test_tubes_that_are_not_copied_yet_are_counted_at_their_home(tube: World) -> None:
    """T11.5: tubes led here with a replica that is not complete."""
    tube("TUBE CREATE tmp fifottl TEMPORARY")  # never copied
    assert tube.info("tubes")["tubes_incomplete"] == "1"
    move_away(tube)
    assert tube.info("tubes")["tubes_incomplete"] == "0"


def test_tubes_whose_home_cannot_be_reached_are_named(tube: World) -> None:
    """T11.5 `tubes_homeless_names`: the first 20, percent-encoded, with commas between."""
    tubes = tubes_of(tube.n)
    names = [f"a,b {i:02}" for i in range(22)]
    for name in names:
        tube("TUBE CREATE", name, "fifo", "ALONE")
        lose_home(tube.n, tubes, tubes.by_name[name.encode()], OTHER, 2)
    found = tube.info("tubes")
    assert (found["tubes_homeless"], found["tubes_running"]) == ("22", "1")
    assert found["tubes_homeless_names"].split(",") == [quote(name, "") for name in names[:20]]


def test_where_a_tube_is_at_home(tube: World) -> None:
    """T15.10 names and values."""
    flat = tube.value("TUBE HOME t")
    told = dict(zip(flat[::2], flat[1::2], strict=True))
    assert list(told) == [
        b"tube",
        b"home",
        b"address",
        b"epoch",
        b"state",
        b"sync",
        b"changes",
        b"conflict",
        b"copies",
    ]
    assert (told[b"home"], told[b"epoch"], told[b"state"]) == (name_of(0), 1, b"RUNNING")
    tube.pass_ms(20_000)  # T15.5: until then another node may have it
    assert tube("TUBE HOME nix").startswith(b"-NOTUBE ")
    how = b"name one by its id, the first characters of it, or host:port\r\n"
    assert tube("TUBE HOME t nix") == b"-ERR no node 'nix': " + how
    assert tube("TUBE HOME t", b"") == b"-ERR no node '': " + how
    assert tube("TUBE HOME t", name_of(0)) == b"+OK\r\n"  # to the home itself
    assert tube("TUBE HOME t", name_of(0)[:6]) == b"+OK\r\n"
    assert tube("TUBE HOME t", OTHER).startswith(b"-ERR no node of the cluster")  # no link
    assert tube("TUBE HOME t 10.0.0.2:7712").startswith(b"-ERR no node of the cluster")
    assert tube("TUBE HOME t", name_of(0), "NOW") == (
        b"-ERR syntax error at 'NOW': use TUBE HOME tube [node [FORCE]]\r\n"
    )
    assert tube("TUBE HOME t", name_of(0), "FORCE").startswith(b"-ERR the leader of tube 't' is")
    said = b"-ERR FORCE runs on the node that is to lead the tube: 10.0.0.2:7712\r\n"
    assert tube("TUBE HOME t", OTHER, "FORCE") == said
    tube.server.members.restore(b"f" * 39 + b"e", "10.0.0.3", 7713, 17713, 0)
    assert tube("TUBE HOME t ffff") == b"-ERR several nodes match ffff\r\n"


def test_a_temporary_tube_has_no_copies(tube: World) -> None:
    """T15.10 A temporary tube has none."""
    tube("TUBE CREATE tmp fifo TEMPORARY")
    for name, count in ((b"t", 1), (b"tmp", 0)):
        flat = tube.value("TUBE HOME", name)
        assert len(dict(zip(flat[::2], flat[1::2], strict=True))[b"copies"]) == count
    move_away(tube)
    lose_home(tube.n, tubes_of(tube.n), tubes_of(tube.n).by_name[b"tmp"], OTHER, 2)
    assert tube.value("TUBE HOME tmp")[-1] == []


def test_ipv6_in_brackets(tube: World) -> None:
    tube.server.members.by_id[OTHER].host = "fd00::2"
    move_away(tube)
    assert tube("TUBE ACK t 0").startswith(b"-TUBEHOME [fd00::2]:7712 ")


def test_who_waits_is_told_when_the_home_moves(tube: World) -> None:
    """T17.3, T20.2: takes, puts for room, and GETJOB."""
    tube("TUBE CREATE room limfifottl CAPACITY 1 ALONE")
    tube("TUBE PUT room x")
    tube("TUBE TAKE t")
    taker, getter, putter = (tube.wire() for _ in range(3))
    assert tube("TUBE TAKE t", by=taker) == b""
    assert tube("GETJOB FROM t", by=getter) == b""
    assert tube("TUBE PUT room y TIMEOUT 9", by=putter) == b""
    move_away(tube)
    lose_home(tube.n, tubes_of(tube.n), tubes_of(tube.n).by_name[b"room"], OTHER, 2)
    tube("PING")
    tube.settle()
    assert taker.hear() == getter.hear() == THERE
    assert putter.hear() == THERE.replace(b"'t'", b"'room'")
    assert not (taker.c.is_blocked or getter.c.is_blocked or putter.c.is_blocked)
    assert tube.server.blocked == 0


def test_subscribers_are_told_when_the_home_moves(tube: World) -> None:
    """T16.5."""
    tube("HELLO 3")
    assert tube("TUBE SUBSCRIBE t") == b":1\r\n"
    tube("TUBE BURY t 0", by=tube.wire())
    move_away(tube)
    pushed = tube.run.hear()
    assert pushed.count(b"tube-change") == 1  # what happened before
    assert pushed.endswith(b">3\r\n$9\r\ntube-home\r\n$1\r\nt\r\n$13\r\n10.0.0.2:7712\r\n")
    assert (tube.run.c.watched, tube.server.notices.watchers) == ({}, {})


def test_read_only(tube: World) -> None:
    """T19.5 as an option that CONFIG SET changes: it is INIT if it was so ever since the start."""
    assert tube.value("TUBE STATE") == b"RUNNING"
    tube.settle()
    assert tube("CONFIG SET read-only yes") == b"+OK\r\n"
    tube.settle()
    refused = b"-READONLY This node is read-only: CONFIG SET read-only no, or use another node\r\n"
    for line in ("TUBE PUT t y", "TUBE TAKE t", "TUBE CREATE u fifo", "ADDJOB t y 0", "QLEN t"):
        assert tube(line) == refused
    assert tube.value("TUBE STATE") == tube.value("TUBE STATE t") == b"WAITING"
    assert tube.value("CONFIG GET read-only") == [b"read-only", b"yes"]
    assert tube("CONFIG SET read-only maybe").startswith(b"-ERR Invalid argument")
    assert tube("CONFIG SET read-only no") == b"+OK\r\n"
    tube.settle()
    assert tube.value("TUBE STATE t") == b"RUNNING"
    assert tube("TUBE TAKE t").startswith(b"*6\r\n:0\r\n")


def test_too_few_nodes(tube: World) -> None:
    """T19.3."""
    t = tubes_of(tube.n)
    t.lease_ms = tube.n.now_ms - 1
    said = tube("TUBE PUT t y")
    assert said.startswith(b"-NOQUORUM Tube 't': this node reaches 1 of ")


def test_sync_needs_as_many_nodes(world: World) -> None:
    """T18.5."""
    assert world("TUBE CREATE t fifo SYNC 0").startswith(b"-ERR SYNC must be")
    assert world("TUBE CREATE t fifo SYNC x").startswith(b"-ERR SYNC must be")
    assert world("TUBE CREATE t fifo SYNC 2").startswith(b"-ERR SYNC must be from 1")
    assert world("TUBE CREATE t fifo SYNC 1") == b"+OK\r\n"
    named(world).sync = 2
    refused = b"-NOREPL Not enough reachable nodes for the requested replication level\r\n"
    assert world("TUBE PUT t x") == refused
    assert world("ADDJOB t x 0") == refused
    assert len(named(world).tasks) == 0
    assert world("TUBE PEEK t 0").startswith(b"-NOTASK ")  # changes nothing
    assert named(world).state != WAITING


def test_a_tube_can_be_dropped_without_its_copies(make_world: Callable[..., World]) -> None:
    """T18.5 With SYNC n a put, ack, release, touch, bury, kick, delete, truncate or release_all is
    answered when n nodes, the leader among them, have it.
    """
    world = make_world(2, journal="off")
    assert world.wire(0)("TUBE", "CREATE", "t", "fifo", "SYNC", "2", "ALONE") == b"OK"
    assert world.wire(0)("TUBE", "PUT", "t", "x")
    world.isolate(1)
    world.pass_ms(20_000)
    assert "Not enough reachable nodes" in str(world.wire(0)("TUBE", "TRUNCATE", "t"))
    assert world.wire(0)("TUBE", "DROP", "t") == b"OK"


def test_set_read_only_before_the_start(world: World) -> None:
    t = tubes_of(world.n)
    set_read_only(world.n, t, True)
    assert world.value("TUBE STATE") == b"INIT"


def test_a_reply_belongs_to_its_epoch(world: World) -> None:
    """T18.5 If it was done but is not confirmed within T, or at once if the epoch changes."""
    world("TUBE CREATE t fifo")
    tube, t = named(world), tubes_of(world.n)
    tube.sync, world.n.reachable_count = 2, 1
    assert world("TUBE PUT t x") == b""  # it waits
    follower = Follower(1)
    follower.is_complete, follower.got = True, int(tube.seq)
    tube.followers[1] = follower
    lose_home(world.n, t, tube, OTHER, 2)
    become_home(world.n, t, tube, 3, b"by hand")
    tube.followers[1] = follower
    told = world.run.hear()
    assert told == b"-FEWCOPIES done here, but not yet on 2 nodes: do not repeat it\r\n"
