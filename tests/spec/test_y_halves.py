"""SPEC Y3.8, Y11: how jobs left a batch, and how the job is found that batches fail on."""

from __future__ import annotations

from typing import Any

import pytest
from lease_by_hand import Lessee, word

from world import World

BEGUN = ("times", "jobs", "half", "proof", "before")


def gone(g: Lessee, seq: int = 1, part: int = 0) -> dict[str, int]:
    """The ways that were taken."""
    flat = g("GONE", seq, part)
    assert isinstance(flat, list), flat
    return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2) if flat[i + 1]}


def begin(g: Lessee, seq: int) -> dict[str, int]:
    reply = g("BEGIN", seq)
    assert isinstance(reply, list), reply
    return dict(zip(BEGUN, reply, strict=True))


def batches(g: Lessee) -> list[int]:
    found: list[Any] = g.info()["batches"]
    return [batch[0] for batch in found]


def test_how_jobs_left(world: World) -> None:
    """Y3.8 `LEASE GONE group epoch seq part` replies with the number of jobs of a part that left
    the batch, by cause: `nacked` (Y5.2), `expired`, `dead` (DEADLETTER), `ended` (acked or deleted
    by id), `cancelled` (W8), `elsewhere` (delivered to others after the lease ended, or unknown).
    """
    ids = [world.add(TTL=60 if number < 5 else 2) for number in range(6)]
    ids.append(world.add(TTL=60))
    g = Lessee(world)
    assert g.next(1, ttl=86_400_000) == 7
    assert gone(g) == {}
    g("NACK", 1, ids[0])
    world.run("DEADLETTER", ids[1], "q.dead")
    world.run("ACKJOB", ids[2])
    world.run("DELJOB", ids[3])
    world.run("CANCEL", ids[6])
    world.pass_ms(2500)
    assert gone(g) == {"nacked": 1, "dead": 1, "ended": 2, "expired": 1, "cancelled": 1}
    assert g.ids(1) == [ids[4]]
    assert word(g("GONE", 2, 0)) == word(g("GONE", 1, 1)) == "NOBATCH"


def test_how_jobs_left_an_expired_batch(world: World) -> None:
    """Y3.8 An expired batch is first leased again (Y7.6)."""
    early = world.add(TTL=3)
    first, second = world.add(), world.add()
    g = Lessee(world)
    g.next(1, ttl=2000)
    g("NACK", 1, first)
    world.pass_ms(2001)
    assert g.info()["batches"][0][4] == 1
    world.pass_ms(1500)
    assert world.state(early) == "gone"
    got = world.run("GETJOB", "NOHANG", "COUNT", 2, "FROM", "q")
    assert isinstance(got, list) and len(got) == 2
    assert gone(g) == {"nacked": 1, "expired": 1, "elsewhere": 1}
    assert g.info()["batches"][0][4] == 0
    assert second not in g.ids(1)


def test_work_begins(world: World) -> None:
    """Y11.1 BEGIN counts how often work on the batch began. The reply has five numbers: that count;
    the jobs that are still in the batch; the number of positions that contain the first half of
    them (0 when there are fewer than two); proof (Y11.2); and the jobs that were in the batch when
    it was begun before, 0 the first time.
    """
    ids = [world.add() for _ in range(5)]
    g = Lessee(world)
    g.next(1)
    assert begin(g, 1) == {"times": 1, "jobs": 5, "half": 2, "proof": 0, "before": 0}
    g.ids(1)
    g("NACK", 1, ids[0])
    assert begin(g, 1) == {"times": 2, "jobs": 4, "half": 3, "proof": 0, "before": 5}
    for id in ids[1:4]:
        g("NACK", 1, id)
    assert begin(g, 1) == {"times": 3, "jobs": 1, "half": 0, "proof": 0, "before": 4}
    assert word(g("BEGIN", 2)) == "NOBATCH"


def test_proof(world: World) -> None:
    """Y11.2 Proof is 1 if a COMMIT acked jobs since the batch was begun for the first time. It is 2
    if a COMMIT did so before the batch was begun the last time: the batch then failed while other
    batches could be processed.
    """
    for _ in range(3):
        world.add()
    g = Lessee(world)
    g.next(1)
    begin(g, 1)
    g("SPLIT", 1, 2)
    begin(g, 1)
    assert g("COMMIT", 1) == 2
    assert begin(g, 2)["proof"] == 1
    assert begin(g, 2)["proof"] == 2


@pytest.mark.parametrize("way", ["commit", "publish", "expired"])
def test_every_commit_is_a_proof(world: World, way: str) -> None:
    """Y11.2 Proof is 1 if a COMMIT acked jobs since the batch was begun for the first time.

    PUBLISH with ACK commits too (Z2.1), and the jobs of an expired batch are acked as well (Y7.5).
    """
    ids = [world.add() for _ in range(2)]
    g = Lessee(world)
    g.next(1, 1)
    g.next(2, 1)
    begin(g, 2)
    if way == "expired":
        world.pass_ms(5001)
        assert g.info()["batches"][0][4] == 1
    if way == "publish":
        world.run("STAGE", "t", "a", 60_000, "done", "body")
        assert world.run("PUBLISH", "app", 1, "ACK", "g", g.epoch, 1, "t", "a") == 1
    else:
        assert g("COMMIT", 1) == 1
    assert world.state(ids[0]) == "gone"
    assert begin(g, 2)["proof"] == 1


def test_a_batch_is_split(world: World) -> None:
    """Y11.3 SPLIT leaves the batch its first `keep` positions. The others become the newest batch,
    with the number after the last one. The new batch counts as begun `times` times, and keeps the
    first begin time of the old one. The reply is the number of positions that the old batch has. If
    the batch has no more than `keep` positions, nothing changes.

    Y11.1 SPLIT sets that number to the jobs that the batch keeps.
    """
    ids = [world.add() for _ in range(5)]
    g = Lessee(world)
    g.next(1)
    for _ in range(2):  # the second time its answer was lost
        assert g("SPLIT", 1, 2, "BEGUN", 7) == 2
    assert (g.ids(1), g.ids(2)) == (ids[:2], ids[2:])
    assert begin(g, 1) == {"times": 1, "jobs": 2, "half": 1, "proof": 0, "before": 2}
    assert begin(g, 2) == {"times": 8, "jobs": 3, "half": 1, "proof": 0, "before": 0}
    assert g.next(2) == 3, "NEXT finds it"
    assert [world.job(id).delivered_count for id in ids] == [1] * 5
    assert g("COMMIT", 1) == 2
    assert [world.state(id) for id in ids] == ["gone", "gone", "active", "active", "active"]
    for words in ((-1,), ("x",), (1, "BEGUN"), (1, "OFTEN", 3)):
        assert word(g("SPLIT", 2, *words)) == "ERR"


def test_a_batch_without_positions(world: World) -> None:
    """Y11.3 With `keep` 0 the batch keeps its number and no position, for a client whose work
    includes batches of other nodes. FETCH then has no rows.

    Y11.2 A COMMIT of a batch that SPLIT left no position counts as well: its client has processed
    jobs of other nodes with it.
    """
    ids = [world.add() for _ in range(2)]
    g = Lessee(world)
    g.next(1)
    begin(g, 1)
    for _ in range(2):  # the second time its answer was lost
        assert g("SPLIT", 1, 0, "BEGUN", 3) == 0
    assert (g.ids(1), g.ids(2)) == ([], ids)
    assert begin(g, 1) == {"times": 2, "jobs": 0, "half": 0, "proof": 0, "before": 0}
    assert begin(g, 2) == {"times": 4, "jobs": 2, "half": 1, "proof": 0, "before": 0}
    assert g("COMMIT", 1) == 0
    assert begin(g, 2)["proof"] == 1
    assert [world.state(id) for id in ids] == ["active", "active"]
    world.n.leases.check()


@pytest.mark.parametrize("is_fresh", [True, False])
def test_others_take_the_place_of_none(world: World, is_fresh: bool) -> None:
    """Y11.4 A batch without positions ends when others come before it: it gets no number, so that
    NEXT never replies 0 for a batch that exists.
    """
    old = [world.add() for _ in range(2)]
    g = Lessee(world)
    g.next(1)
    g("SPLIT", 1, 0)
    g("SPLIT", 2, 1)
    fresh = [world.add() for _ in range(2)] if is_fresh else []
    assert g("DEFER", 1, "COUNT", 5) == len(fresh or old[:1])
    assert [g.ids(seq) for seq in batches(g)] == [*([fresh] if fresh else []), old[:1], old[1:]]
    last = g.info()["last-seq"]
    assert batches(g) == list(range(1, last + 1))
    more = world.add()
    assert g.next(last + 1, 9) == 1
    assert g.ids(last + 1) == [more]
    world.n.leases.check()


def test_halves_have_an_end(world: World) -> None:
    """Y11.3 A group with 48 uncommitted batches is not split further."""
    for _ in range(60):
        world.add()
    g = Lessee(world)
    g.next(1, count=60)
    for _ in range(47):
        assert g("SPLIT", g.info()["last-seq"], 1) == 1
    assert word(g("SPLIT", 48, 1)) == "ERR"
    assert len(g.ids(48)) == 13
    world.add()
    g("COMMIT", 32)
    assert g.next(49, 1).startswith("ERR group 'g' has 16 batches that are not committed")
    g("COMMIT", 33)
    assert g.next(49, 1) == 1


def test_others_go_first_however_many_jobs_failed_alone(world: World) -> None:
    """Y11.4 If n is above 0 and the group has fewer than 49 uncommitted batches, the batch's
    number gets up to n new jobs (Y2.1), and the jobs that it had become the newest batch.
    """
    bad = [world.add() for _ in range(48)]
    g = Lessee(world)
    g.next(1, count=48)
    for seq in range(1, 48):
        assert g("SPLIT", seq, 1) == 1
    begin(g, 1)
    good = [world.add() for _ in range(3)]
    assert g("DEFER", 1, "COUNT", 3) == 3
    assert (g.ids(1), g.ids(49)) == (good, bad[:1])
    world.add()
    assert g("DEFER", 1, "COUNT", 1) == 1
    assert g.ids(1) == bad[1:2], "49 batches: only those that are there change places"
    for _ in range(48):
        g("DEFER", 1)
    assert g.ids(1) == good
    assert g("COMMIT", 1) == 3
    assert begin(g, 49)["proof"] == 1


def test_others_go_first(world: World) -> None:
    """Y11.4 DEFER lets other jobs go first. If n is above 0 and the group has fewer than 49
    uncommitted batches, the batch's number gets up to n new jobs (Y2.1), and the jobs that it
    had become the newest batch.
    """
    old = [world.add() for _ in range(2)]
    g = Lessee(world)
    g.next(1)
    begin(g, 1)
    fresh = [world.add() for _ in range(3)]
    assert g("DEFER", 1, "COUNT", 2) == 2
    assert (g.ids(1), g.ids(2)) == (fresh[:2], old)
    assert begin(g, 2)["times"] == 2, "what it had keeps its count"
    assert [world.job(id).delivered_count for id in old] == [1, 1]
    assert word(g("DEFER", 3)) == "NOBATCH"


def test_batches_change_places(world: World) -> None:
    """Y11.4 If there are no such jobs, each later batch moves one number down, and the jobs that
    the batch had get the last of these numbers. The reply is the number of positions that the
    batch has then.
    """
    ids = [world.add() for _ in range(4)]
    g = Lessee(world)
    g.next(1)
    assert g("DEFER", 1, "COUNT", 5) == 4, "there is nothing to put before it"
    g("SPLIT", 1, 1)
    g("SPLIT", 2, 1)
    assert g("DEFER", 1, "COUNT", 5) == 1
    assert [g.ids(seq) for seq in (1, 2, 3)] == [[ids[1]], ids[2:], [ids[0]]]
    assert g("COMMIT", 1) == 1
    assert batches(g) == [2, 3]


@pytest.mark.parametrize("verb", ["BEGIN", "SPLIT", "DEFER"])
def test_an_expired_batch_is_leased_anew(world: World, verb: str) -> None:
    """Y11.5 An expired batch is first leased again (Y7.6). Moving a job to another batch number is
    not a delivery.
    """
    ids = [world.add() for _ in range(2)]
    g = Lessee(world)
    g.next(1, ttl=2000)
    world.pass_ms(2001)
    assert [world.state(id) for id in ids] == ["queued", "queued"]
    g(verb, 1, *([1] if verb == "SPLIT" else []))
    assert [world.job(id).delivered_count for id in ids] == [2, 2]
    assert [world.state(id) for id in ids] == ["active", "active"]
    world.n.leases.check()
