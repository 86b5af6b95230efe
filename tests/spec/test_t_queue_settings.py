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
    """T75.3 With AUTODELETE it is 5 s after a use, an hour before the first one"""
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
    """T74.5 Each change, and the first use after a SET, is a record `queue-settings` in the journal
    and in snapshots.
    """
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
    """T74.7 PURGE acknowledges jobs of the queue that no worker has, at all nodes, in slices, and
    replies how many: by STATE those that are queued when it begins (`waiting`, the default)

    T75.6 DELETE deletes the queue as at its end (T75.4), and replies 1, or 0 if this node knows no
    such queue.
    """
    for _ in range(700):
        world.add()
    assert len(world.get()) == 1
    assert world.run.ask("QUEUE", "PURGE", "q") == 699
    assert world.run.ask("QUEUE", "PURGE", "q") == 0
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


def test_jobs_that_wait_for_their_time_are_purged(world: World) -> None:
    """T74.7 those in their first delay (`scheduled`), or both and those in a back-off (`all`)."""
    queued = world.add()
    delayed = [world.add(DELAY=50) for _ in range(2)]
    other = world.run("ADDJOB", "other", "x", 0, "DELAY", 50)
    worked = world.run("ADDJOB", "q2", "x", 0, "DELAY", 50)
    assert world.run.ask("QUEUE", "PURGE", "q", "STATE", "scheduled") == 2
    assert [world.state(id) for id in delayed] == ["gone", "gone"]
    failed = world.run("ADDJOB", "q", "x", 0, "ATTEMPTS", 5, "BACKOFF", 60, 60, 0)
    for id in (queued, failed):
        assert id in world.get(count=1)
    run = world.run("START", failed)[0][0]
    world.run("FAIL", failed, run)
    delayed = [world.add(DELAY=50)]
    assert world.run.ask("QUEUE", "PURGE", "q") == 0
    assert world.run.ask("QUEUE", "PURGE", "q", "STATE", "all", "HERE") == 2
    assert world.state(queued) == "active", "a worker has it"
    assert [world.state(id) for id in (failed, *delayed)] == ["gone", "gone"]
    assert [world.state(id) for id in (other, worked)] == ["active", "active"]
    assert world.run("DEBUG", "CHECK") == b"OK"


def test_all_nodes_purge(three: World) -> None:
    """T74.10 (cluster) PURGE asks all linked nodes by QUEUE-PURGE once this one is done, and each
    answers with QUEUE-PURGED. Of a job that is delayed the reachable holder with the lowest id
    removes it.

    T74.7 `-NOREACH a node did not answer: <n> jobs of queue '<name>' were removed at the others,
    try again once it is back`.
    """
    for i in range(3):
        for _ in range(600):
            three.wire(i)("ADDJOB", "q", "x", 0, "REPLICATE", 1)
        three.wire(i).ask("ADDJOB", "q", "x", 0, "REPLICATE", 3, "DELAY", 600)
    assert three.wire(1).ask("QUEUE", "PURGE", "q", "HERE") == 600
    lowest = min(range(3), key=lambda i: three.node(i).core.node_id)
    for i in {0, 1, 2} - {lowest}:
        assert three.wire(i).ask("QUEUE", "PURGE", "q", "STATE", "scheduled", "HERE") == 0
    assert three.wire(1).ask("QUEUE", "PURGE", "q", "STATE", "all") == 1_203
    assert [three.wire(i)("QLEN", "q") for i in range(3)] == [0, 0, 0]
    for i in range(3):
        three.wire(i)("ADDJOB", "q", "x", 0, "REPLICATE", 1)
    wire = three.wire(0)
    three.cut(0, 2)
    wire.send("QUEUE", "PURGE", "q")
    replies: list[Any] = []
    assert three.until(lambda: replies.append(wire.take()) or replies[-1])
    assert str(replies[-1]).startswith("NOREACH a node did not answer")
    three.kill(2)
    three.pass_ms(30_000)
    three.wire(1)("ADDJOB", "q", "x", 0, "REPLICATE", 1)
    short = "NOREACH a node did not answer: 1 jobs of queue 'q' were removed at the others"
    assert str(three.wire(0).ask("QUEUE", "PURGE", "q")).startswith(short)


def test_settings_without_a_time_let_the_queue_be(world: World) -> None:
    """T75.3 The time is EXPIRES; without it and AUTODELETE the queue stays."""
    world.run("QUEUE", "SET", "q", "AUTODELETE", "no")
    world.add()
    world.pass_ms(4_000_000)
    assert settings(world.run) is not None and world.qlen() == 1


def test_jobs_live_no_longer_than_the_queue_says(world: World) -> None:
    """T74.8 TTL is the longest TTL of a job that is added or staged for the queue after that, and
    the TTL of one that comes without it.
    """
    before = world.add()
    world.run("QUEUE", "SET", "q", "TTL", "2.5")
    shown = settings(world.run)
    assert shown is not None and shown[b"ttl-ms"] == 2_500
    world.run("TOPIC", "SUBSCRIBE", "news", "q")
    ids = [
        world.add(),
        world.add(TTL=0),
        world.add(TTL=100),
        *world.run("TOPIC", "ADD", "none", "x", 0),
    ]
    ids += world.run("TOPIC", "ADD", "news", "x", 0)
    short = world.add(TTL=1)
    assert world.run("STAGE", "t", "a", 9_000, "q", "x", "TTL", 100) == 1
    assert world.run("PUBLISH", "app", 1, "t", "a") == 1
    assert "DELAY is greater than TTL" in str(world.run("ADDJOB", "q", "x", 0, "DELAY", 3))
    world.pass_ms(1_500)
    assert world.state(short) == "gone" and world.qlen() == 6
    world.pass_ms(2_000)
    assert [world.state(id) for id in (before, *ids)] == ["queued"] + ["gone"] * 4
    assert world.qlen() == 1
    world.run("QUEUE", "SET", "q", "MAXLEN", 5)
    world.add()
    world.pass_ms(4_000)
    assert world.qlen() == 2


def test_a_queue_is_as_long_as_it_may_be(world: World) -> None:
    """T74.9 MAXLEN is how many jobs may be queued at a node. ADDJOB and PUBLISH of one more there:
    `-MAXLEN queue '<name>' has <n> jobs or more at this node, the MAXLEN of its settings: let
    workers catch up, or raise it with QUEUE SET`
    """
    world.run("QUEUE", "SET", "q", "MAXLEN", 3)
    assert world.run("QUEUE", "SET", "q", "MAXLEN", 3) == 0
    world.run("TOPIC", "SUBSCRIBE", "news", "q")
    world.run("TOPIC", "SUBSCRIBE", "news", "other")
    for _ in range(2):
        world.add()
        world.run("STAGE", "t", "a", 9_000, "q", "x")
    full = "MAXLEN queue 'q' has 3 jobs or more at this node, the MAXLEN of its settings"
    assert str(world.run.ask("PUBLISH", "app", 1, "t", "a")).startswith(full)
    world.run("ADDJOB", "q", "x", 0, "DELAY", 1)
    world.add()
    assert str(world.run("ADDJOB", "q", "x", 0)).startswith(full)
    assert str(world.run("TOPIC", "ADD", "news", "x", 0)).startswith(full)
    assert world.qlen() == 3 and world.run("QLEN", "other") == 0
    world.pass_ms(2_000)
    assert world.qlen() == 4, "what comes back is not refused"
    world.run("QUEUE", "SET", "q", "EXPIRES", 100)
    world.add()
    assert world.qlen() == 5


def test_the_first_use_outlives_a_restart(make_world: MakeWorld) -> None:
    """T74.5 Each change, and the first use after a SET, is a record `queue-settings` in the journal
    and in snapshots.

    T75.3 a minute after a start of the owner, whose consumers come again.
    """
    world = make_world(journal="always")
    world.run("QUEUE", "SET", "q", "AUTODELETE", "yes")
    wire = world.wire()
    wire.send("GETJOB", "FROM", "q")
    world.pass_ms(3_000)
    world.kill(0)
    world.start(0)
    world.pass_ms(50_000)
    assert settings(world.run) is not None
    wire = world.wire()
    wire.send("GETJOB", "FROM", "q")
    world.pass_ms(20_000)
    world.rewrite()
    world.kill(0)
    world.start(0)
    world.pass_ms(50_000)
    assert settings(world.run) is not None
    world.pass_ms(30_000)
    assert settings(world.run) is None, "nobody came again"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("SET q", "QUEUE SET takes a queue, and EXPIRES, AUTODELETE, TTL or MAXLEN"),
        ("SET q EXPIRES 0.5", "EXPIRES must be a number of seconds from 1 to"),
        ("SET q EXPIRES 5 EXPIRES 6", "EXPIRES is there twice"),
        ("SET q AUTODELETE maybe", "AUTODELETE must be yes or no"),
        ("SET q TTL 0", "TTL must be a number of seconds above 0, at most 2147483647, not '0'"),
        ("SET q TTL x", "TTL must be a number of seconds above 0, at most 2147483647, not 'x'"),
        ("SET q MAXLEN 0", "MAXLEN must be a number from 1 to 2147483647, not '0'"),
        ("SET q LENGTH 5", "QUEUE SET has no option 'LENGTH'"),
        ("PURGE q STATE", "syntax error at 'STATE'"),
        ("PURGE q STATE done", "STATE must be waiting, scheduled or all, not 'done'"),
        ("PURGE q THERE", "QUEUE PURGE has no option 'THERE'"),
        ("DELETE q IFEMPTY IFEMPTY", "IFEMPTY is there twice"),
        ("DELETE q NOW", "QUEUE DELETE has no option 'NOW'"),
        ("DROP q", "QUEUE takes SET, SHOW, PURGE, DELETE or HELP"),
    ],
)
def test_odd_words(world: World, words: str, text: str) -> None:
    assert text in str(world.run("QUEUE", *words.split(" ")))
