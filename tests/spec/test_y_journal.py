"""SPEC Y9: leases in the journal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lease_by_hand import Lessee, word

from raw_resp import Err
from tuque.core.dispatch.restore import flush_all
from tuque.core.model.job import ACTIVE, LEASED
from tuque.core.records.jobs import FIRST, KIND_NAMES
from tuque.core.records.leases import tell_batch, tell_group
from world import World

Make = Callable[..., World]


@pytest.fixture
def world(make_world: Make) -> World:
    """One node, whose journal is synced before each reply that binds it."""
    return make_world(journal="always")


def test_records(world: World) -> None:
    """Y9.1 The records are lease-group (a group without its batches), lease-batch (ids, and
    which delivery of each job belongs to the batch) and lease-drop. They are absolute (J2.2) and
    binding: replies wait for them as in J4.2.
    """
    ids = [world.add() for _ in range(2)]
    told = world.node().recorded
    told()
    g = Lessee(world)
    assert told() == ["lease-group"]
    g.next(1)
    assert told() == ["lease-group", "lease-batch"], "with a new TTL"
    g("NACK", 1, ids[0])
    assert told() == ["state", "lease-batch"]
    g.rows(1)
    g("TOUCH")
    assert told() == []
    world.pass_ms(5010)
    assert told() == ["lease-batch", "state"]
    g.rows(1)
    assert told() == ["lease-batch"]
    world.pass_ms(5010)
    told()
    world.pass_ms(50_010)
    assert told() == ["lease-drop"]
    g.next(2)
    told()
    assert g("COMMIT", 2) == 2
    assert told() == ["ack", "ack", "lease-group"]


def test_replies_wait_for_the_records(world: World) -> None:
    """Y9.1 They are absolute (J2.2) and binding: replies wait for them as in J4.2."""
    world.add()
    is_held, epoch = world.run.held("LEASE", "OPEN", "g", "me", "q")
    assert is_held

    def is_held_of(name: str, *words: str | int) -> bool:
        is_held, reply = world.run.held("LEASE", name, "g", epoch, *words)
        assert not isinstance(reply, Err), reply
        return is_held

    assert is_held_of("NEXT", 1, "COUNT", 1, "TTL", 5000)
    assert not is_held_of("FETCH", 1, 0)
    assert not is_held_of("TOUCH")
    world.pass_ms(5010)
    assert is_held_of("FETCH", 1, 0), "the batch is leased again"
    assert is_held_of("COMMIT", 1)


def test_delivery_is_in_the_batch(world: World) -> None:
    """Y9.2 The record of a batch is also that of the delivery of its jobs."""
    world.add()
    g = Lessee(world)
    world.node().recorded()
    g.next(1)
    told = world.node().recorded()
    assert "lease-batch" in told and KIND_NAMES[FIRST] not in told


def test_applied_twice(world: World) -> None:
    """The record of a batch, told again, changes nothing (Y9.1, J2.2)."""
    ids = [world.add() for _ in range(3)]
    g = Lessee(world)
    g.next(1, 2)
    world.restart(how="stop")
    before = g.info()
    n = world.n
    assert n.records is not None
    for _ in range(2):
        tell_group(n.records, n.leases.groups[b"g"])
        tell_batch(n.records, n.leases.groups[b"g"], n.leases.groups[b"g"].batches[1], 5, False)
    world.settle()
    world.restart(how="stop")
    assert g.info() == before
    assert g.ids(1) == ids[:2]


@pytest.mark.parametrize("how", ["stop", "kill", "power"])
def test_load(world: World, how: str) -> None:
    """Y9.3 A load restores groups, epochs and batches. A live lease starts a new
    TTL; its jobs are not queued.
    """
    ids = [world.add(body=f"b{i}") for i in range(5)]
    once = world.add("r", RETRY=0)
    g = Lessee(world, "q", "r")
    g.next(1, 2, PARTS=2)
    g.next(2, 3)
    g("NACK", 1, ids[0])
    world.run("ACKJOB", ids[1])
    before = [g.rows(1, 0), g.rows(1, 1), g.rows(2)]
    info = g.info()
    world.restart(how=how, off_ms=600_000)
    assert world.qlen() == 2
    assert world.job(ids[2]).flags & LEASED
    assert once not in world.n.delivered_amo
    after = g.info()
    assert after["left-ms"] == 5000
    assert [batch[0:3] for batch in after["batches"]] == [batch[0:3] for batch in info["batches"]]
    assert [g.rows(1, 0), g.rows(1, 1), g.rows(2)] == before
    assert once in g.ids(1, 0) + g.ids(1, 1) + g.ids(2)
    assert word(g.next(4)) == "NOBATCH"
    assert g("COMMIT", 2) == len([row for rows in before for row in rows if len(row) > 2])
    world.restart(how=how)
    assert g.info()["acked-seq"] == 2
    assert word(g("FETCH", 2, 0)) == "ACKED"
    assert Lessee(world, "q", "r", owner="other").epoch > g.epoch


def test_expired_batches_come_back(world: World) -> None:
    """What has expired is still known, and can be leased anew or committed (Y9.3, Y7.4)."""
    ids = [world.add() for _ in range(3)]
    g = Lessee(world)
    g.next(1)
    world.pass_ms(5010)
    world.settle()
    assert world.get() == [ids[0]]
    world.restart(how="kill", off_ms=1000)
    assert world.qlen() == 2
    assert g.info()["batches"][0][4] == 1
    assert g.ids(1) == ids[1:]
    world.restart(how="kill")
    assert g.ids(1) == ids[1:]
    assert [row[5] for row in g.rows(1) if len(row) > 2] == [2, 2]
    assert g("COMMIT", 1) == 2


def test_epochs_after_a_restart(world: World) -> None:
    """Y1.6 An epoch is greater than any that this node gave out before, also before a restart, and
    not less than now in ms.
    """
    last = 0
    for i in range(5):
        last = Lessee(world, owner=f"o{i}").epoch
    world.restart(how="kill", jump_ms=-100_000)
    assert Lessee(world, owner="new").epoch > last


def test_an_epoch_that_was_answered_is_there(make_world: Make) -> None:
    """Y9.6 So does the reply of an OPEN that gave a new epoch (Y1.2): after a crash of the machine
    the group has no older one.
    """
    world = make_world()
    first = Lessee(world, owner="first")
    is_held, _ = world.run.held("LEASE", "OPEN", "g", "second", "q")
    assert is_held
    second = Lessee(world, owner="second")
    world.restart(how="power")
    assert second("TOUCH") == 0
    assert word(first("TOUCH")) == "FENCED"


def test_epochs_of_forgotten_groups(world: World) -> None:
    """Y1.6 An epoch is greater than any that this node gave out before, also before a restart, and
    not less than now in ms.
    """
    last = Lessee(world).epoch
    flush_all(world.n)
    world.rewrite()
    world.restart(how="kill", jump_ms=-100_000)
    assert world.run("LEASE", "LIST") == []
    assert Lessee(world).epoch > last


def test_a_job_without_its_batch(world: World) -> None:
    """A leased job whose batch was never written whole comes back after its retry time (Y9.3)."""
    id = world.add(RETRY=7)
    world.n.jobs[id].flags |= LEASED
    world.n.jobs[id].state = ACTIVE
    world.n.jobs[id].qtime_ms = 0
    world.n.queues[b"q"].left(world.n.jobs[id])
    assert world.n.records is not None
    world.n.records.state(world.n.jobs[id])
    world.settle()
    world.restart(how="kill")
    job = world.job(id)
    assert job.flags & LEASED == 0
    assert job.qtime_ms == world.n.now_ms + 7000


def test_snapshot(world: World) -> None:
    """Y9.4 A snapshot has all leases as of the start of its segment."""
    ids = [world.add() for _ in range(6)]
    g = Lessee(world)
    g.next(1, 2)
    g.next(2, 2)
    committer = world.node().committer
    committer.slice_jobs = 1
    world.begin_rewrite()
    for words in (("COMMIT", 1), ("NACK", 2, ids[2]), ("NEXT", 3, "COUNT", 9, "TTL", 5000)):
        world.run.send_in_turn("LEASE", words[0], "g", g.epoch, *words[1:])
        assert committer.is_rewriting()
    assert world.run.take_all() == [2, 1, 3]
    world.until(lambda: not committer.is_rewriting())
    world.restart(how="power")
    assert g.ids(2) == [ids[3]]
    assert g.ids(3) == [ids[2], ids[4], ids[5]]
    assert [world.state(id) for id in ids[:2]] == ["gone", "gone"]


def test_a_batch_that_was_answered_is_there(make_world: Make) -> None:
    """Y9.5 A reply that reveals a batch that was made or leased again waits for the sync of its
    record under `always` and `everysec`, as in J4.4, because its number may be in a checkpoint.
    """
    world = make_world()
    id = world.add()
    g = Lessee(world)
    next_batch = ("LEASE", "NEXT", "g", g.epoch, 1, "COUNT", 10, "TTL", 5000)
    assert world.run.held(*next_batch) == (True, 1)
    world.restart(how="power")
    assert g.ids(1) == [id]


def test_how_jobs_left_is_known_after_a_restart(world: World) -> None:
    """Y9.7 If NACK took a job out of a batch, a record names its position: after a restart the job
    is known as nacked.
    """
    ids = [world.add(TTL=60 if number else 2) for number in range(4)]
    g = Lessee(world)
    g.next(1, ttl=60_000)
    g("NACK", 1, ids[1], ids[2])
    world.run("ACKJOB", ids[2])  # the next consumer did it
    world.pass_ms(2500)
    for is_rewritten in (False, True):
        if is_rewritten:
            world.rewrite()
        world.restart(how="stop")
        flat = g("GONE", 1, 0)
        told = {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2) if flat[i + 1]}
        assert told == {"nacked": 2, "expired": 1}
        assert g.ids(1) == [ids[3]]


def test_halves_come_back(world: World) -> None:
    """Y9.8 SPLIT and DEFER write one frame with all batches as they are afterwards. The counts of
    BEGIN are not in the journal.
    """
    ids = [world.add() for _ in range(4)]
    g = Lessee(world)
    g.next(1, ttl=60_000)
    g("SPLIT", 1, 1)
    g("SPLIT", 2, 1, "BEGUN", 3)
    g("DEFER", 1)
    fresh = world.add()
    g("DEFER", 1, "COUNT", 1)
    world.restart(how="stop")
    expected = [[fresh], ids[2:], [ids[0]], [ids[1]]]
    assert [g.ids(seq) for seq in (1, 2, 3, 4)] == expected
    assert g("BEGIN", 3)[0] == 1
    assert g("COMMIT", 4) == 5


@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize("has_others", [True, False])
def test_a_batch_without_positions_comes_back(world: World, how: str, has_others: bool) -> None:
    """Y11.3 With `keep` 0 the batch keeps its number and no position.

    Y9.8 SPLIT and DEFER write one frame with all batches as they are afterwards.
    """
    ids = [world.add() for _ in range(3)]
    g = Lessee(world)
    g.next(1, ttl=60_000)
    g("SPLIT", 1, 0)
    g("SPLIT", 2, 1)
    if has_others:
        g("DEFER", 1)
    world.restart(how=how)
    expected = [ids[:1], ids[1:]] if has_others else [[], ids[:1], ids[1:]]
    assert [g.ids(seq) for seq in range(1, len(expected) + 1)] == expected
    assert g.info()["last-seq"] == len(expected)
    world.n.leases.check()
    assert g("COMMIT", len(expected)) == 3


def test_a_new_ttl_comes_back(world: World) -> None:
    """Y5.1 TOUCH restarts the time of the lease (Y7.1); with TTL it also sets a new one.

    Y9.3 A live lease starts a new TTL;
    """
    world.add()
    g = Lessee(world)
    g.next(1, ttl=5000)
    g("TOUCH", "TTL", 90_000)
    world.restart(how="kill")
    assert (g.info()["ttl-ms"], g.info()["left-ms"]) == (90_000, 90_000)


def test_a_move_is_no_delivery(world: World) -> None:
    """Y11.5 Moving a job to another batch number is not a delivery."""
    ids = [world.add() for _ in range(4)]
    g = Lessee(world)
    g.next(1, ttl=60_000)
    taken_ms = world.n.now_ms
    world.pass_ms(3000)
    g("SPLIT", 1, 2)
    g("DEFER", 1)
    world.restart(how="kill")
    assert [world.job(id).last_ms for id in ids] == [taken_ms] * 4
    assert [world.job(id).delivered_count for id in ids] == [1] * 4
