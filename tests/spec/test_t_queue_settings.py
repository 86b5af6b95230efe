"""SPEC T74, T75: settings of queues, and when a queue goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from world import World
from world_wires import Wire

MakeWorld = Callable[..., World]


@pytest.fixture
def three(make_world: MakeWorld) -> World:
    """Three nodes that are linked."""
    return make_world(3)


def settings(wire: Wire) -> dict[bytes, Any] | None:
    """SHOW of the queue q."""
    row = wire("QUEUE", "SHOW", "q")
    return dict(zip(row[::2], row[1::2], strict=True)) if isinstance(row, list) else None


def owner_at(wire: Wire) -> bytes:
    """The address of the owner of q."""
    shown = settings(wire)
    assert shown is not None
    owner: bytes = shown[b"owner"]
    return owner


def there(world: World) -> list[int]:
    """The nodes that know settings of q."""
    return [i for i in world.numbers() if settings(world.wire(i)) is not None]


def test_a_queue_that_nobody_uses_goes(world: World) -> None:
    """T75.4 A queue that is deleted loses its settings, its subscriptions to topics, and the jobs
    that are queued at nodes that had the settings. Jobs at work stay.
    """
    assert world.run("QUEUE", "SET", "q", "EXPIRES", 10) == 1
    assert world.run("QUEUE", "SET", "q", "EXPIRES", 10) == 0
    world.run("TOPIC", "SUBSCRIBE", "news", "q")
    world.add()
    world.pass_ms(9_000)
    world.run("TOPIC", "ADD", "news", "x", 0)
    assert world.qlen() == 2
    world.pass_ms(9_000)
    assert settings(world.run) is None
    assert world.qlen() == 0
    assert world.run("TOPIC", "LIST")[1] == []
    assert world.run("DEBUG", "CHECK") == b"OK"


def test_a_use_is_to_wait_or_to_have_a_job(world: World) -> None:
    """T75.1 A queue is used at a node where a client waits for one of its jobs in GETJOB, has got a
    job since the last look, or has one at work.
    """
    world.run("QUEUE", "SET", "q", "EXPIRES", 5)
    wire = world.wire()
    wire.send("GETJOB", "FROM", "q")
    world.pass_ms(20_000)
    job_id = world.add(RETRY=600)
    assert wire.take()[0][1] == job_id
    world.pass_ms(20_000)
    assert settings(world.run) is not None
    world.run("ACKJOB", job_id)
    world.pass_ms(10_000)
    assert settings(world.run) is None


def test_a_queue_goes_after_its_last_consumer(world: World) -> None:
    """T75.3 With AUTODELETE it is 5 s after a use, and an hour before the first one."""
    world.run("QUEUE", "SET", "q", "AUTODELETE", "yes")
    world.pass_ms(60_000)
    assert settings(world.run) is not None
    wire = world.wire()
    wire.send("GETJOB", "FROM", "q")
    world.pass_ms(30_000)
    shown = settings(world.run)
    assert shown is not None and shown[b"idle-ms"] < 2_000
    wire.close()
    world.pass_ms(4_000)
    assert settings(world.run) is not None
    world.pass_ms(7_000)
    assert settings(world.run) is None


def test_a_short_use_in_the_last_moment(world: World) -> None:
    """T75.2 When the queue was unused there for its time, it asks the others, and deletes the
    queue 3 s later.
    """
    world.run("QUEUE", "SET", "q", "AUTODELETE", "yes")
    for _ in range(2):
        job_id = world.add()
        assert world.get() == [job_id]
        world.run("ACKJOB", job_id)
        world.pass_ms(7_500)
        assert settings(world.run) is not None
    world.pass_ms(7_500)
    assert settings(world.run) is None


def test_all_nodes_know_of_it(three: World) -> None:
    """T74.4 (cluster) QUEUES sends each change of the settings of a queue to all linked nodes, and
    all of them when a link opens.
    """
    three.cut(0, 2)
    three.cut(1, 2)
    three.wire(0)("QUEUE", "SET", "q", "EXPIRES", 600)
    three.settle()
    assert there(three) == [0, 1]
    three.heal()
    three.until(lambda: there(three) == [0, 1, 2])
    shown = [settings(three.wire(i)) for i in range(3)]
    assert len({one[b"owner"] for one in shown if one is not None}) == 1


def test_a_queue_that_is_used_elsewhere_stays(three: World) -> None:
    """T75.2 (cluster) A node where the queue is used answers with settings of a higher version, and
    owns it.
    """
    three.wire(0)("QUEUE", "SET", "q", "EXPIRES", 5)
    wire = three.wire(1)
    wire.send("GETJOB", "FROM", "q")
    three.wire(2)("ADDJOB", "other", "x", 0)
    three.pass_ms(30_000)
    assert there(three) == [0, 1, 2]
    shown = settings(three.wire(0))
    assert shown is not None and shown[b"owner"].startswith(b"10.0.0.2")
    wire.close()
    three.pass_ms(15_000)
    assert there(three) == []


def test_a_queue_goes_after_its_last_consumer_at_another_node(three: World) -> None:
    """T75.3 (cluster) Then the node that sees the first use since a SET owns the queue: no other
    node knows when that use ends.
    """
    first, second = three.wire(1), three.wire(2)
    first.send("GETJOB", "FROM", "q")
    second.send("GETJOB", "FROM", "q")
    for _ in range(2):
        three.wire(0)("QUEUE", "SET", "q", "AUTODELETE", "yes")
        three.pass_ms(5_000)
        owner = owner_at(three.wire(0))
        assert not owner.startswith(b"10.0.0.1:")
        three.pass_ms(5_000)
        assert owner_at(three.wire(0)) == owner
    first.close()
    three.pass_ms(20_000)
    assert there(three) == [0, 1, 2]
    second.close()
    three.pass_ms(20_000)
    assert there(three) == []


def test_a_lost_owner_is_replaced(three: World) -> None:
    """T75.5 (cluster) When the owner was not reachable for that time, with AUTODELETE for an hour,
    the reachable node with the lowest id owns the queue.
    """
    three.wire(2)("QUEUE", "SET", "q", "EXPIRES", 5)
    three.settle()
    three.wire(1)("ADDJOB", "q", "x", 0, "REPLICATE", 1)
    three.kill(2)
    three.pass_ms(60_000)
    assert [settings(three.wire(i)) for i in (0, 1)] == [None, None]
    assert three.wire(1)("QLEN", "q") == 0
    three.start(2)
    three.pass_ms(30_000)
    assert there(three) == []


def test_a_consumer_that_was_cut_off_keeps_its_queue(three: World) -> None:
    """T75.2 It does so as well when it learns of a deletion."""
    three.wire(0)("QUEUE", "SET", "q", "EXPIRES", 5)
    wire = three.wire(1)
    three.settle()
    wire.send("GETJOB", "FROM", "q")
    three.isolate(1)
    three.pass_ms(40_000)
    assert there(three) == [1]
    three.heal()
    three.pass_ms(20_000)
    assert there(three) == [0, 1, 2]


def test_settings_are_in_the_journal(make_world: MakeWorld) -> None:
    """T74.5 Each change is a record `queue-settings` in the journal and in snapshots."""
    world = make_world(journal="always")
    world.run("QUEUE", "SET", "q", "EXPIRES", 100, "AUTODELETE", "yes")
    world.run("QUEUE", "SET", "gone", "EXPIRES", 100)
    world.run("QUEUE", "DELETE", "gone")
    for _ in range(2):
        world.kill(0)
        world.start(0)
        world.pass_ms(100)
        shown = settings(world.run)
        assert shown is not None and (shown[b"expires-ms"], shown[b"autodelete"]) == (100_000, 1)
        assert world.run("QUEUE", "SHOW", "gone") != shown
        world.rewrite()


def test_purge_and_delete(world: World) -> None:
    """T74.7 PURGE acknowledges the jobs that are queued at this node when it begins, in slices
    (L2.2), and replies how many.

    T75.6 DELETE deletes the queue as at its end (T75.4), and replies 1, or 0 if this node knows no
    such queue.
    """
    for _ in range(700):
        world.add()
    assert len(world.get()) == 1
    assert world.run.ask("QUEUE", "PURGE", "q") == 699
    assert world.run("QUEUE", "PURGE", "q") == 0
    job_id = world.add()
    assert world.run("QUEUE", "DELETE", "q", "IFEMPTY") == 0
    wire = world.wire()
    wire.send("GETJOB", "FROM", "none", "idle")
    assert world.run("QUEUE", "DELETE", "idle", "IFUNUSED") == 0
    assert world.run("QUEUE", "DELETE", "q", "IFUNUSED") == 1
    world.pass_ms(3_000)
    assert world.qlen() == 0 and world.state(job_id) == "gone"
    assert world.run("QUEUE", "DELETE", "nosuch") == 0
    world.run("TUBE", "CREATE", "t", "fifo")
    for words in (("SET", "t", "EXPIRES", 5), ("PURGE", "t"), ("DELETE", "t")):
        assert "is a tube" in str(world.run("QUEUE", *words))
    assert world.run("DEBUG", "CHECK") == b"OK"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("SET q", "QUEUE SET takes a queue, and EXPIRES or AUTODELETE"),
        ("SET q EXPIRES 0.5", "EXPIRES must be a number of seconds from 1 to"),
        ("SET q EXPIRES 5 EXPIRES 6", "EXPIRES is there twice"),
        ("SET q AUTODELETE maybe", "AUTODELETE must be yes or no"),
        ("SET q TTL 5", "QUEUE SET has no option 'TTL'"),
        ("DELETE q IFEMPTY IFEMPTY", "IFEMPTY is there twice"),
        ("DELETE q NOW", "QUEUE DELETE has no option 'NOW'"),
        ("DROP q", "QUEUE takes SET, SHOW, PURGE, DELETE or HELP"),
    ],
)
def test_odd_words(world: World, words: str, text: str) -> None:
    assert text in str(world.run("QUEUE", *words.split(" ")))
