"""SPEC Z2.11, Z6.2, Z6.4: a PUBLISH of many jobs goes on over several turns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lease_by_hand import Lessee
from test_l_bounds import fill, value
from test_z_journal import CAUSES

from refusals import words_of
from tuque.core.dispatch.restore import flush_all
from tuque.core.model.timers import TURN_WORK
from tuque.core.node.node import Node
from tuque.core.queues.procedures import check
from tuque.core.staged.publish import WAITS, drop_publish, publish_some
from tuque.core.staged.stage import on_stage
from tuque.core.tables.staged import Publish, PublishSpec, Staged
from tuque.server.commands.staged import Publication
from world import World

MANY = 12_000

Make = Callable[..., World]


@pytest.fixture
def world(make_world: Make) -> World:
    """One node without a journal."""
    return make_world(journal="off")


def stage_many(
    n: Node, count: int, attempt: bytes = b"a", key: bytes = b"", *, repl: int = -1
) -> None:
    for i in range(count):
        name = key + b"%d" % i if key else b""
        job = Staged(b"q", b"%05d" % i, name, 60_000, repl, 30, 0, 3600, 0)
        on_stage(n, b"t", attempt, 60_000, job)


def begun(n: Node, attempts: tuple[bytes, ...] = (b"a",), version: int = 1) -> Publish:
    return Publish(PublishSpec(b"app", version, b"t", list(attempts)), 1, 0)


def go_on(n: Node, x: Publish, room: int, until: str) -> None:
    """As many steps as it takes until the PUBLISH is `decided` or `half` made."""
    for _ in range(10_000):
        done = publish_some(n, x, room)
        assert not done, (x.value, x.error)
        if until == "looking":
            return
        if x.is_decided and (until == "decided" or x.made > len(x.chosen) // 2):
            return
    raise AssertionError("it does not end")


def finish(n: Node, x: Publish, room: int = 100) -> int:
    while not publish_some(n, x, room):
        pass
    assert not x.error and n.staging.running is None
    return int(x.value)


@pytest.mark.long
def test_many_turns(world: World) -> None:
    """Z2.11 A PUBLISH of many jobs takes several turns (L2.2), in three phases: It checks each job
    (Z2.5, Z2.6) and changes nothing. The command stops if its connection closes. One turn publishes
    everything: version, batches and the record of Z6.2.
    """
    n, line = world.n, world.wire()
    fill(world, MANY, b"in")
    epoch = int(value(world, line, b"LEASE OPEN g me in\r\n")[0])
    value(world, line, b"LEASE NEXT g %d 1 COUNT 100000 TTL 60000\r\n" % epoch)
    stage_many(n, 6 * TURN_WORK)
    command = b"PUBLISH app 1 ACK g %d 1 t a\r\n" % epoch
    reply, works, pongs = value(world, line, command)
    assert reply == 6 * TURN_WORK == n.queues[b"q"].length == len(n.jobs)
    assert max(works) <= TURN_WORK and sum(works) >= 6 * TURN_WORK + MANY and pongs >= 6
    assert not n.leases.ending and n.leases.groups[b"g"].acked_seq == 1
    bodies = [row[2] for row in value(world, line, b"GETJOB COUNT 5000 FROM q\r\n")[0]]
    assert bodies == [b"%05d" % i for i in range(5_000)]
    check(n)


@pytest.mark.long
@pytest.mark.parametrize("when", ["looking", "making"])
def test_client_goes(world: World, when: str) -> None:
    """Z2.11 It checks each job (Z2.5, Z2.6) and changes nothing. The command stops if its
    connection closes.
    """
    n, line, other = world.n, world.wire(), world.wire()
    stage_many(n, 6 * TURN_WORK)
    line.put(b"PUBLISH app 1 t a\r\n")
    world.turn()
    x = n.staging.running
    assert x is not None and not n.jobs and not n.staging.apps
    while when == "making" and not 0 < x.made < len(x.chosen):
        world.turn()
    assert x.is_decided == (when == "making")
    line.reset()  # it takes no reply
    for _ in range(20):
        world.turn()
    assert n.staging.running is None and world.server.blocked == 0
    if when == "making":
        assert n.queues[b"q"].length == 6 * TURN_WORK
        assert value(world, other, b"PUBLISH app 1 t a\r\n")[0] == -1
    else:
        assert not n.jobs and n.staging.count == 6 * TURN_WORK
        assert value(world, other, b"PUBLISH app 1 t a\r\n")[0] == 6 * TURN_WORK
    check(n)


@pytest.mark.parametrize("how", CAUSES)
@pytest.mark.parametrize("when", ["looking", "decided", "half"])
def test_restart_meanwhile(make_world: Make, when: str, how: str) -> None:
    """Z2.11 From then on it is final, also after a crash.

    Z6.2 A truncated journal has all of it or nothing. The record of the group is in the same frame;
    on load it acks the jobs that its batches still had.
    """
    world = make_world(journal="always")
    n = world.n
    taken = [world.add("in", str(i)) for i in range(60)]
    g = Lessee(world, "in")
    g.next(1, 40)
    g.next(2, 10)
    assert g("NACK", 1, taken[0]) == 1
    stage_many(n, 200)
    world.settle()
    x = begun(n)
    x.spec.group, x.spec.epoch, x.spec.seq = b"g", int(g.epoch), 1
    go_on(n, x, 10, when)
    world.settle()
    world.restart(how=how)
    n = world.n
    if when == "looking":
        assert set(n.jobs) == set(taken) and n.staging.count == 200
        assert world.run("LEASE", "COMMIT", "g", g.epoch, 1) == 39
    else:
        ids = [id for id in x.ids if id in n.jobs]
        assert len(ids) == 200 and n.staging.count == 0
        assert set(n.jobs) - set(ids) == {taken[0], *taken[40:]}
        assert [job[2] for job in world.run("GETJOB", "COUNT", 500, "FROM", "q")] == [
            b"%05d" % i for i in range(200)
        ]
        assert world.run("LEASE", "COMMIT", "g", g.epoch, 1) == 0
    assert world.run("LEASE", "COMMIT", "g", g.epoch, 2) == 10
    check(n)


def test_snapshot_meanwhile(make_world: Make) -> None:
    """Z6.4 A snapshot has staged jobs, versions and keys as of the start of its segment."""
    world = make_world(journal="always")
    n, committer = world.n, world.node().committer
    stage_many(n, 200)
    world.settle()
    x = begun(n)
    go_on(n, x, 10, "half")
    committer.ask_rewrite()
    world.settle()
    assert not committer.is_rewriting() and len(n.jobs) < 200  # it waits for the end
    world.begin_rewrite()  # a snapshot that cannot wait
    assert len(n.jobs) == 200 and n.staging.running is None
    assert publish_some(n, x, 10) and x.value == 200
    world.until(lambda: not committer.is_rewriting())
    world.restart(how="power")
    assert len(world.n.jobs) == 200 and world.qlen() == 200


def test_keys_that_come_meanwhile(world: World) -> None:
    """Z2.11 Meanwhile STAGE into one of its attempts is refused (`-ERR attempt '<attempt>' of
    transaction '<txn>' is being published: ...`), and its attempts do not time out. If an ADDJOB
    brings one of its keys first, the key belongs to that ADDJOB. A key that was published replies
    with the id of its job at once.
    """
    n = world.n
    stage_many(n, 1_000, b"a", b"k")
    x = begun(n)
    go_on(n, x, 10, "looking")
    mine = world.run("ADDJOB", "q", "mine", 0, "DEDUPE", "k7")
    refused = world.run("STAGE", "t", "a", 60_000, "q", "b")
    assert refused.startswith("ERR attempt 'a' of transaction 't' is being published: ")
    assert world.run("STAGE", "t", "b", 60_000, "q", "b") == 1
    world.pass_ms(61_000)
    assert n.staging.attempt(b"t", b"a") is not None and n.staging.attempt(b"t", b"b") is None
    go_on(n, x, 100, "half")
    again = world.run("ADDJOB", "q", "again", 0, "DEDUPE", "k990")
    assert again == x.ids[990] and again not in n.jobs
    assert world.run("ADDJOB", "q", "again", 0, "DEDUPE", "k3") == x.ids[3]
    assert finish(n, x) == 999
    assert again in n.jobs and mine in n.jobs and len(n.jobs) == 1_000
    check(n)


def test_one_after_the_other(world: World) -> None:
    """Z2.11 PUBLISH commands run one after another."""
    n = world.n
    stage_many(n, 500)
    x, y = begun(n), begun(n)
    go_on(n, x, 10, "half")
    assert not publish_some(n, y, 1_000) and not y.has_begun and n.staging.running is x
    late = world.add()
    assert finish(n, x) == 500
    assert world.get(count=1_000)[-1] == late  # jobs come in the order of their publication
    assert publish_some(n, y, 1_000) and y.value == -1
    stage_many(n, 10)
    z = begun(n, version=2)
    go_on(n, z, 1, "looking")
    drop_publish(n, z)
    assert world.run("STAGE", "t", "a", 60_000, "q", "b") == 11
    assert world.run("PUBLISH", "app", 2, "t", "a") == 11


@pytest.mark.parametrize("when", ["looking", "decided", "half"])
def test_flushed_meanwhile(world: World, when: str) -> None:
    """Nothing is left of a PUBLISH that is being done (S7.1)."""
    n = world.n
    [world.add("in") for _ in range(50)]
    g = Lessee(world, "in")
    g.next(1, 50)
    stage_many(n, 500)
    x = begun(n)
    x.spec.group, x.spec.epoch, x.spec.seq = b"g", int(g.epoch), 1
    go_on(n, x, 10, when)
    flush_all(n)
    check(n)
    assert publish_some(n, x, 10) and not n.jobs and n.leases.bytes == 0
    assert words_of(x.error).startswith(b"NOSTAGE") == (when == "looking")
    stage_many(n, 3)
    assert world.run("PUBLISH", "app", 2, "t", "a") == 3


def test_lease_lost_meanwhile(world: World) -> None:
    """Z2.4 If LEASE COMMIT of that batch would be refused (Y1.6, Y1.7, Y4.2), the reply is its
    error, and nothing is done.
    """
    n = world.n
    [world.add("in") for _ in range(50)]
    g = Lessee(world, "in")
    g.next(1, 50)
    stage_many(n, 500)
    x = begun(n)
    x.spec.group, x.spec.epoch, x.spec.seq = b"g", int(g.epoch), 1
    go_on(n, x, 10, "looking")
    world.run("LEASE", "OPEN", "g", "other", "in")
    while not publish_some(n, x, 10):
        pass
    assert (
        words_of(x.error).startswith(b"FENCED")
        and n.staging.count == 500
        and n.staging.running is None
    )
    assert world.qlen("in") == 50 and world.qlen() == 0


def test_copies_of_a_part(make_world: Make) -> None:
    """Z3.1 Jobs that need copies are in state wait-repl. Each is queued when it has them (R3.4);
    the reply comes when all have them.
    """
    world = make_world(3, journal="off")
    n, line = world.n, world.wire()
    stage_many(n, 300, repl=2)
    publication = Publication(world.server, line.c, PublishSpec(b"app", 1, b"t", [b"a"]))
    x = publication.work
    go_on(n, x, 10, "half")
    world.settle()
    assert n.queues[b"q"].length == x.made > 100, "all that are made have copies"
    world.hold(1, 0)
    assert finish(n, x) == WAITS
    publication.tell()
    world.settle()
    assert line.take() is None
    assert x.made == 300 > n.queues[b"q"].length
    world.release(1, 0)
    assert n.queues[b"q"].length == 300
    assert all(len(world.holders(id)) == 2 for id in x.ids)
    assert line.take() == 300
