"""SPEC Y1, Y2, Y4, Y5: groups, batches, commit."""

from __future__ import annotations

import pytest
from lease_by_hand import Lessee, word

from sim.engine.clock import START_MS
from tuque.core.copies.add import on_addjob, settle
from tuque.core.dispatch.restore import flush_all
from tuque.core.leases.leases import BATCH_MAX
from tuque.core.model.job import PLAIN
from tuque.core.tables.leases import GROUPS_MAX
from world import World


def test_opened_again(world: World) -> None:
    """Y1.1 With the same owner and the same queues the reply is the current epoch of the group; its
    batches stay.
    """
    id = world.add()
    g = Lessee(world)
    g.next(1)
    world.pass_ms(10)
    assert Lessee(world).epoch == g.epoch
    assert g.ids(1) == [id]


@pytest.mark.parametrize("change", [{"owner": "you"}, {"queues": ("q", "r")}])
def test_opened_anew(world: World, change: dict[str, object]) -> None:
    """Y1.2 Otherwise the group gets a new epoch. The old epoch is fenced: its uncommitted batches
    end, and their jobs go back into their queues as in Y7.2. Batch numbers restart at 1.
    """
    id = world.add()
    g = Lessee(world)
    g.next(1)
    queues = change.get("queues", ("q",))
    assert isinstance(queues, tuple)
    h = Lessee(world, *queues, owner=str(change.get("owner", "me")))
    assert h.epoch > g.epoch
    assert world.state(id) == "queued"
    assert world.job(id).deliveries == 1
    for reply in (g("FETCH", 1, 0), g("COMMIT", 1), g("TOUCH"), g("RELEASE"), g.next(2)):
        assert word(reply) == "FENCED"
    assert h.next(1) == 1
    assert world.node().kinds(id) == ["added", "delivered", "requeued", "delivered"]


def test_names(world: World) -> None:
    """Y1.3 Group and owner are any 1 to 255 bytes; a group takes from 1 to 256 queues, each named
    once.
    """
    assert isinstance(world.run("LEASE", "OPEN", b"\0" * 255, b"\xff", "q"), int)
    assert word(world.run("LEASE", "OPEN", b"x" * 256, "me", "q")) == "ERR"
    assert word(world.run("LEASE", "OPEN", "g", "", "q")) == "ERR"
    assert word(world.run("LEASE", "OPEN", "g", "me", "q", "r", "q")) == "ERR"
    names = [f"q{i}" for i in range(257)]
    assert word(world.run("LEASE", "OPEN", "g", "me", *names)) == "ERR"
    assert isinstance(world.run("LEASE", "OPEN", "g", "me", *names[1:]), int)


def test_groups_have_an_end(world: World) -> None:
    """Y1.4 A node has at most 1000 groups. Beyond that, the group without batches that was unused
    for the longest time, at least an hour, is removed. If there is none, the reply is an error.
    """
    world.add(TTL=100_000)
    kept = Lessee(world, name="kept")
    kept.next(1, ttl=86_400_000)
    for i in range(GROUPS_MAX - 1):
        Lessee(world, name=f"g{i}")
    assert word(world.run("LEASE", "OPEN", "new", "me", "q")) == "ERR"
    world.pass_ms(3_600_000)
    Lessee(world, name="g0")  # used now
    Lessee(world, name="new")
    names = world.run("LEASE", "LIST")
    assert len(names) == GROUPS_MAX
    assert b"g1" not in names and {b"kept", b"g0", b"new"} <= set(names)


def test_words(world: World) -> None:
    """Y1.5 Numbers out of range: `-ERR <name> must be a number from <least> to <most>, not
    '<word>'`. Other words: C4.6.

    C4.6 If words are missing: `-ERR syntax error: use <syntax>`.

    Y2.4 n is 1 to 1,000,000, b at most 2 GiB (default 64 MiB), p 1 to 1024 (default 1), ms 1000 to
    86,400,000.
    """
    g = Lessee(world)
    assert g.next(1, 0) == "ERR COUNT must be a number from 1 to 1000000, not '0'"
    assert g.next(1, 1_000_001) == "ERR COUNT must be a number from 1 to 1000000, not '1000001'"
    assert g.next(1, PARTS=1025) == "ERR PARTS must be a number from 1 to 1024, not '1025'"
    assert g.next(1, BYTES=0) == "ERR BYTES must be a number from 1 to 2147483648, not '0'"
    assert g.next(1, ttl=999) == "ERR TTL must be a number from 1000 to 86400000, not '999'"
    assert (
        g.next(1, ttl=86_400_001)
        == "ERR TTL must be a number from 1000 to 86400000, not '86400001'"
    )
    assert g("NEXT", "x", "COUNT", 1, "TTL", 1000).startswith("ERR seq must be a number")
    use = "use LEASE NEXT group epoch seq COUNT n [BYTES b] [PARTS p] TTL ms"
    assert g("NEXT", 1, "COUNT", 1) == "ERR syntax error: " + use
    assert g("NEXT", 1, "TTL", 1000) == "ERR syntax error: " + use
    wrong = g("NEXT", 1, "COUNT", 1, "TTL", 1000, "WHAT", 1)
    assert wrong == "ERR syntax error at 'WHAT': " + use
    assert g("NEXT", 1, "COUNT", 1, "TTL") == "ERR syntax error at 'TTL': " + use
    assert g("FETCH", 1, 0, "FROM").startswith("ERR syntax error at 'FROM': use LEASE FETCH group")
    assert g("FETCH", 1, "x").startswith("ERR part must be a number")
    assert g("TOUCH", "TTL", 5) == "ERR TTL must be a number from 1000 to 86400000, not '5'"
    assert world.run("LEASE", "TOUCH", "g", "x").startswith("ERR epoch must be a number")
    wrong = "ERR Wrong LEASE subcommand or number of arguments: use LEASE "
    assert world.run("LEASE", "WHAT").startswith(wrong + "OPEN, NEXT, ")
    assert world.run("LEASE", "COMMIT", "g").startswith(wrong + "COMMIT group epoch ")
    assert g("NACK", 1, "x") == "BADID Invalid Job ID format."
    assert g.info()["ttl-ms"] == 0


def test_epochs(world: World) -> None:
    """Y1.6 An epoch is greater than any that this node gave out before, also before a restart, and
    not less than now in ms. A command with an older epoch than the group's gets `-FENCED` with the
    current owner of the group.
    """
    a = Lessee(world, name="a")
    b = Lessee(world, name="b")
    assert a.epoch == START_MS
    assert b.epoch == START_MS + 1
    world.pass_ms(1000)
    c = Lessee(world, name="a", owner="somebody")
    assert c.epoch == START_MS + 1000
    reply = a("TOUCH")
    assert word(reply) == "FENCED"
    assert "somebody" in reply and str(c.epoch) in reply


def test_unknown_group(world: World) -> None:
    """Y1.7 Unknown group, or an epoch later than the group's: `-NOGROUP`."""
    g = Lessee(world)
    assert word(world.run("LEASE", "TOUCH", "g", g.epoch + 1)) == "NOGROUP"
    for words in (("NEXT", 1, "COUNT", 1, "TTL", 1000), ("FETCH", 1, 0), ("COMMIT", 1), ("TOUCH",)):
        assert word(world.run("LEASE", words[0], "none", 5, *words[1:])) == "NOGROUP"
    assert word(world.run("LEASE", "INFO", "none")) == "NOGROUP"


def test_taken_in_turn(world: World) -> None:
    """Y2.1 Up to n jobs are taken from the queues of the group in turn, the oldest first, as in V2.
    Each is delivered (V4) to the batch `seq` under a lease: it is active and has no due time.
    """
    q = [world.add("q", f"q{i}") for i in range(4)]
    r = [world.add("r", f"r{i}") for i in range(2)]
    world.add("s")
    world.run("PAUSE", "s", "out")
    g = Lessee(world, "q", "r", "s", "none")
    assert g.next(1, 5) == 5
    assert g.ids(1) == [q[0], r[0], q[1], r[1], q[2]]
    assert world.qlen("q") == 1
    shown = world.show(q[0])
    assert shown["state"] == b"active"
    assert shown["next-requeue-within"] is None
    assert world.job(q[0]).delivered_count == 1
    assert world.node().kinds(q[0]) == ["added", "delivered"]
    world.pass_ms(4999)
    assert world.get("q", "r", count=9) == [q[3]]


def test_each_batch_begins_with_the_next_queue(world: World) -> None:
    """Y2.1 Up to n jobs are taken from the queues of the group in turn"""
    q = [world.add("q", f"q{i}") for i in range(2)]
    r = [world.add("r", f"r{i}") for i in range(2)]
    s = [world.add("s", f"s{i}") for i in range(2)]
    g = Lessee(world, "q", "r", "s")
    for seq in range(1, 7):
        assert g.next(seq, 1) == 1
    assert [g.ids(seq)[0] for seq in range(1, 7)] == [q[0], r[0], s[0], q[1], r[1], s[1]]


def test_expired_jobs_are_passed_over(world: World) -> None:
    """A queue gives its oldest job that has not expired (V2.3, Y2.1)."""
    old = world.add(TTL=1)
    new = world.add()
    world.jump_ms(1500)
    g = Lessee(world)
    assert g.next(1) == 1
    assert g.ids(1) == [new]
    assert world.node().kinds(old) == ["added", "expired"]


def test_asked_again(world: World) -> None:
    """Y2.2 If the batch exists, the reply is the same as the first time, and nothing is taken."""
    for _ in range(9):
        world.add()
    g = Lessee(world)
    assert g.next(1, 4) == 4
    world.run("ACKJOB", g.ids(1)[0])
    assert g.next(1, 9) == 4
    assert world.qlen() == 5


def test_numbers_follow(world: World) -> None:
    """Y2.3 A new batch must have the number after the last one, else `-NOBATCH`. A committed batch:
    `-ACKED`.
    """
    for _ in range(9):
        world.add()
    g = Lessee(world)
    assert word(g.next(2)) == "NOBATCH"
    assert g.next(1, 1) == 1
    assert word(g.next(3)) == "NOBATCH"
    assert g.next(2, 1) == 1
    g("COMMIT", 1)
    assert word(g.next(1)) == "ACKED"
    assert g.next(2, 1) == 1
    assert g.next(3, 1) == 1


def test_sixteen_batches(world: World) -> None:
    """Y2.4 A group with 16 or more uncommitted batches gets no new one by NEXT; SPLIT may make up
    to 48 (Y11.3), and DEFER one more (Y11.4).
    """
    for _ in range(20):
        world.add()
    g = Lessee(world)
    for seq in range(1, 17):
        assert g.next(seq, 1) == 1
    assert g.next(17, 1).startswith("ERR group 'g' has 16 batches that are not committed")
    g("COMMIT", 1)
    assert g.next(17, 1) == 1


@pytest.mark.long
def test_batches_have_a_size(world: World) -> None:
    """Y2.5 A batch has at most 100,000 jobs, and bodies of at most b bytes together, but at least
    one job.
    """
    for size in (100, 60, 40, 1):
        world.add(body="x" * size)
    g = Lessee(world)
    assert g.next(1, BYTES=50) == 1
    assert g.next(2, BYTES=100) == 2
    assert g.next(3, BYTES=100) == 1
    assert [batch[:3] for batch in g.info()["batches"]] == [[1, 1, 100], [2, 2, 100], [3, 1, 1]]
    world.n.events = None
    spec = settle(world.n, PLAIN)
    for _ in range(BATCH_MAX + 1):
        on_addjob(world.n, b"q", b"", spec)
    assert BATCH_MAX == 100_000
    assert g.next(4, 1_000_000) == BATCH_MAX
    assert g("COMMIT", 4) == BATCH_MAX + 4


def test_nothing_there(world: World) -> None:
    """Y2.6 The reply is the number of jobs in the batch. 0 means that no batch was made; its number
    is still free.
    """
    g = Lessee(world)
    assert g.next(1) == 0
    assert word(g("FETCH", 1, 0)) == "NOBATCH"
    assert g.info()["last-seq"] == 0
    world.add()
    assert g.next(1) == 1


def test_a_queue_that_became_a_tube(world: World) -> None:
    """Y2.8 A queue of the group has become a tube since the group was opened: a new batch is
    refused as in T1.6, also if other queues have jobs. Batches that exist stay, and can be read and
    committed.
    """
    id = world.add()
    g = Lessee(world, "q", "later")
    assert g.next(1) == 1
    assert g.info()["tubes"] == []
    assert world("TUBE CREATE later fifo") == b"+OK\r\n"
    other = world.add()
    refused = "ERR 'later' is a tube: its tasks are taken one by one, not leased"
    assert str(g.next(2)) == refused
    assert g.info()["tubes"] == [b"later"] and world.state(other) == "queued"
    assert g.next(1) == 1 and g.ids(1) == [id] and g("COMMIT", 1) == 1
    assert str(g.next(2)) == refused
    assert world("TUBE DROP later") == b"+OK\r\n"
    assert g.next(2) == 1 and g.ids(2) == [other]


def test_commit(world: World) -> None:
    """Y4.1 The jobs of all batches up to `seq` that are still in their batch are acked as by
    ACKJOB, in one step. The reply is their number.
    """
    ids = [world.add() for _ in range(6)]
    g = Lessee(world)
    for seq in (1, 2, 3):
        g.next(seq, 2)
    world.run("DELJOB", ids[0])
    assert g("COMMIT", 2) == 3
    assert [world.state(id) for id in ids] == ["gone"] * 4 + ["active"] * 2
    assert world.node().kinds(ids[1]) == ["added", "delivered", "acked"]
    assert g.info()["acked-seq"] == 2
    assert world.n.ledger.balance(len(world.n.jobs)) == 0
    assert g("COMMIT", 3) == 2


def test_commit_again(world: World) -> None:
    """Y4.2 0. A batch that ended without a commit: `-NOBATCH`, and nothing is acked."""
    for _ in range(4):
        world.add()
    g = Lessee(world)
    g.next(1, 2)
    assert g("COMMIT", 1) == 2
    assert g("COMMIT", 1) == 0
    assert word(g("COMMIT", 2)) == "NOBATCH"
    g.next(2, 2)
    g("RELEASE")
    assert word(g("COMMIT", 2)) == "NOBATCH"
    assert world.qlen() == 2
    assert g.next(3) == 2
    assert g("COMMIT", 3) == 2


def test_touch(world: World) -> None:
    """Y5.1 TOUCH restarts the time of the lease (Y7.1); with TTL it also sets a new one. The reply
    is the number of uncommitted batches.
    """
    world.add()
    world.add()
    g = Lessee(world)
    assert g("TOUCH") == 0
    g.next(1, 1)
    g.next(2, 1)
    world.pass_ms(4000)
    assert g("TOUCH") == 2
    assert g.info()["left-ms"] == 5000
    assert g("TOUCH", "TTL", 90_000) == 2
    world.pass_ms(89_000)
    assert world.qlen() == 0
    assert g.info()["left-ms"] == 1000


def test_nack(world: World) -> None:
    """Y5.2 NACK puts the named jobs that are in the batch back into their queues, counted as in
    Q6.1; they leave the batch. It takes at most 10,000 ids. The reply is the number of jobs put
    back.
    """
    ids = [world.add() for _ in range(4)]
    g = Lessee(world)
    g.next(1, 3)
    assert g("NACK", 1, ids[1], ids[1], ids[3]) == 1
    assert world.state(ids[1]) == "queued"
    assert world.job(ids[1]).nacks == 1
    assert g.ids(1) == [ids[0], ids[2]]
    assert world.node().kinds(ids[1]) == ["added", "delivered", "nacked"]
    assert g("NACK", 1, ids[1]) == 0
    assert word(g("NACK", 2, ids[1])) == "NOBATCH"
    assert g("NACK", 1, *[ids[0]] * 10_001).startswith("ERR LEASE NACK takes at most 10000")
    assert g("COMMIT", 1) == 2
    assert world.state(ids[1]) == "queued"


def test_release(world: World) -> None:
    """Y5.3 RELEASE puts all jobs of all batches back as in Y7.2. The batches end, the epoch stays.
    The reply is the number of jobs put back.
    """
    ids = [world.add() for _ in range(4)]
    g = Lessee(world)
    g.next(1, 2)
    g.next(2, 2)
    world.run("ACKJOB", ids[0])
    assert g("RELEASE") == 3
    assert world.qlen() == 3
    assert g.info()["batches"] == []
    assert word(g("FETCH", 1, 0)) == "NOBATCH"
    assert g.next(3) == 3
    assert world.node().kinds(ids[1]) == ["added", "delivered", "requeued", "delivered"]


def test_flushall_ends_leases(world: World) -> None:
    """Groups go with all jobs (S7.1)."""
    world.add()
    g = Lessee(world)
    g.next(1)
    flush_all(world.n)
    assert word(g("TOUCH")) == "NOGROUP"
    assert world.n.leases.bytes == 0
