"""SPEC Y9: leases in the journal."""

from __future__ import annotations

import pytest
from journal_by_hand import Kept, kept
from lease_by_hand import Lessee, word

from tuque.core.dispatch.restore import flush_all
from tuque.core.model.job import ACTIVE, LEASED
from tuque.core.records.jobs import FIRST, KIND_NAMES, Records
from tuque.core.records.leases import tell_batch, tell_group
from tuque.core.records.read import Record, decode

__all__ = ["kept"]


def kinds_of(payload: bytes) -> list[str]:
    """Names of the records."""
    kinds, at, record = [], 0, Record()
    while at < len(payload):
        at = decode(payload, at, record)
        kinds.append(KIND_NAMES[record.kind])
    return kinds


def test_records(kept: Kept) -> None:
    """Y9.1 The records are lease-group (a group without its batches), lease-batch (ids, and which
    delivery of each job belongs to the batch) and lease-drop. They are absolute (J2.2) and binding:
    replies wait for them as J4.2 says.
    """
    records = kept.box.n.records = Records()
    kept.box.run = kept.box.sessions[0]
    ids = [kept.box.add() for _ in range(2)]
    records.take()

    def told() -> tuple[list[str], int]:
        binding = records.binding_count
        records.binding_count = 0
        return kinds_of(records.take()), binding

    told()
    g = Lessee(kept.box)
    assert told() == (["lease-group"], 1)
    g.next(1)
    assert told() == (["lease-group", "lease-batch"], 2), "with a new TTL"
    g("NACK", 1, ids[0])
    assert told()[0] == ["state", "lease-batch"]
    g.rows(1)
    g("TOUCH")
    assert told() == ([], 0)
    kept.box.pass_ms(5010)
    assert told()[0] == ["lease-batch", "state"]
    g.rows(1)
    assert told()[0] == ["lease-batch"]
    kept.box.pass_ms(5010)
    told()
    kept.box.pass_ms(50_010)
    assert told()[0] == ["lease-drop"]
    g.next(2)
    told()
    assert g("COMMIT", 2) == 2
    assert told()[0] == ["ack", "ack", "lease-group"]


def test_delivery_is_in_the_batch(kept: Kept) -> None:
    """Y9.2 The record of a batch stands for the delivery of its jobs."""
    records = kept.box.n.records = Records()
    kept.box.run = kept.box.sessions[0]
    kept.box.add()
    g = Lessee(kept.box)
    g.next(1)
    assert KIND_NAMES[FIRST] not in kinds_of(records.take())


def test_applied_twice(kept: Kept) -> None:
    """The record of a batch, told again, changes nothing (Y9.1, J2.2)."""
    ids = [kept.box.add() for _ in range(3)]
    g = Lessee(kept.box)
    g.next(1, 2)
    kept.restart()
    before = g.info()
    n = kept.box.n
    assert n.records is not None
    for _ in range(2):
        tell_group(n.records, n.leases.groups[b"g"])
        tell_batch(n.records, n.leases.groups[b"g"], n.leases.groups[b"g"].batches[1], 5, False)
    kept.turn()
    g.box = kept.box
    kept.restart()
    g.box = kept.box
    assert g.info() == before
    assert g.ids(1) == ids[:2]


@pytest.mark.parametrize("how", ["stop", "crash", "power"])
def test_load(kept: Kept, how: str) -> None:
    """Y9.3 A load restores groups, epochs and batches. A live lease starts a new
    TTL; its jobs are not queued.
    """
    ids = [kept.box.add(body=f"b{i}") for i in range(5)]
    once = kept.box.add("r", RETRY=0)
    g = Lessee(kept.box, "q", "r")
    g.next(1, 2, PARTS=2)
    g.next(2, 3)
    g("NACK", 1, ids[0])
    kept.box.run("ACKJOB", ids[1])
    before = [g.rows(1, 0), g.rows(1, 1), g.rows(2)]
    info = g.info()
    kept.restart(how, off_ms=600_000)
    g.box = kept.box
    assert kept.box.qlen() == 2
    assert kept.box.job(ids[2]).flags & LEASED
    assert once not in kept.box.n.delivered_amo
    after = g.info()
    assert after["left-ms"] == 5000
    assert [batch[0:3] for batch in after["batches"]] == [batch[0:3] for batch in info["batches"]]
    assert [g.rows(1, 0), g.rows(1, 1), g.rows(2)] == before
    assert once in g.ids(1, 0) + g.ids(1, 1) + g.ids(2)
    assert word(g.next(4)) == "NOBATCH"
    assert g("COMMIT", 2) == len([row for rows in before for row in rows if len(row) > 2])
    kept.restart(how)
    g.box = kept.box
    assert g.info()["acked-seq"] == 2
    assert word(g("FETCH", 2, 0)) == "ACKED"
    assert Lessee(kept.box, "q", "r", owner="other").epoch > g.epoch


def test_expired_batches_come_back(kept: Kept) -> None:
    """What has expired is still known, and can be leased anew or committed (Y9.3, Y7.4)."""
    ids = [kept.box.add() for _ in range(3)]
    g = Lessee(kept.box)
    g.next(1)
    kept.box.pass_ms(5010)
    kept.turn()
    assert kept.box.get() == [ids[0]]
    kept.restart("crash", off_ms=1000)
    g.box = kept.box
    assert kept.box.qlen() == 2
    assert g.info()["batches"][0][4] == 1
    assert g.ids(1) == ids[1:]
    kept.restart("crash")
    g.box = kept.box
    assert g.ids(1) == ids[1:]
    assert [row[5] for row in g.rows(1) if len(row) > 2] == [2, 2]
    assert g("COMMIT", 1) == 2


def test_epochs_after_a_restart(kept: Kept) -> None:
    """Y1.6 An epoch is greater than any that this node gave out before, also before a restart, and
    not less than now in ms.
    """
    last = 0
    for i in range(5):
        last = Lessee(kept.box, owner=f"o{i}").epoch
    kept.restart("crash", jump_ms=-100_000)
    assert Lessee(kept.box, owner="new").epoch > last


def test_an_epoch_that_was_answered_is_there() -> None:
    """Y9.6 So does the reply of an OPEN that gave a new epoch (Y1.2): after a crash of the machine
    the group has no older one.
    """
    kept = Kept("everysec")
    first = Lessee(kept.box, owner="first")
    second = Lessee(kept.box, owner="second")
    kept.restart("power")
    first.box = second.box = kept.box
    assert second("TOUCH") == 0
    assert word(first("TOUCH")) == "FENCED"
    kept.close()


def test_epochs_of_forgotten_groups(kept: Kept) -> None:
    """Y1.6 An epoch is greater than any that this node gave out before, also before a restart, and
    not less than now in ms.
    """
    last = Lessee(kept.box).epoch
    flush_all(kept.box.n)
    assert kept.committer.start_rewrite(kept.box.n, kept.box.n.now_ms)
    while kept.committer.is_rewriting():
        kept.turn()
    kept.restart("crash", jump_ms=-100_000)
    assert kept.box.run("LEASE", "LIST") == []
    assert Lessee(kept.box).epoch > last


def test_a_job_without_its_batch(kept: Kept) -> None:
    """A leased job whose batch was never written whole comes back after its retry time (Y9.3)."""
    id = kept.box.add(RETRY=7)
    kept.box.n.jobs[id].flags |= LEASED
    kept.box.n.jobs[id].state = ACTIVE
    kept.box.n.jobs[id].qtime_ms = 0
    kept.box.n.queues[b"q"].left()
    assert kept.box.n.records is not None
    kept.box.n.records.state(kept.box.n.jobs[id])
    kept.turn()
    kept.restart("crash")
    job = kept.box.job(id)
    assert job.flags & LEASED == 0
    assert job.qtime_ms == kept.box.n.now_ms + 7000


def test_snapshot(kept: Kept) -> None:
    """Y9.4 A snapshot has all leases as of the start of its segment."""
    ids = [kept.box.add() for _ in range(6)]
    g = Lessee(kept.box)
    g.next(1, 2)
    g.next(2, 2)
    n = kept.box.n
    assert kept.committer.start_rewrite(n, n.now_ms)
    g("COMMIT", 1)
    g("NACK", 2, ids[2])
    g.next(3, 9)
    for _ in range(20):
        kept.turn()
    assert not kept.committer.is_rewriting()
    kept.restart("power")
    g.box = kept.box
    assert g.ids(2) == [ids[3]]
    assert g.ids(3) == [ids[2], ids[4], ids[5]]
    assert [kept.box.state(id) for id in ids[:2]] == ["gone", "gone"]


def test_a_batch_that_was_answered_is_there() -> None:
    """Y9.5 A reply that reveals a batch that was made or leased again waits for the sync of its
    record under `always` and `everysec`, as in J4.4, because its number may be in a checkpoint.
    """
    kept = Kept("everysec")
    id = kept.box.add()
    g = Lessee(kept.box)
    assert g.next(1) == 1
    assert not kept.committer.must_hold(kept.committer.seq), "the sync is over when turn() returns"
    kept.restart("power")
    g.box = kept.box
    assert g.ids(1) == [id]
    kept.close()


def test_how_jobs_left_is_known_after_a_restart(kept: Kept) -> None:
    """Y9.7 If NACK took a job out of a batch, a record names its position: after a restart the job
    is known as nacked.
    """
    ids = [kept.box.add(TTL=60 if number else 2) for number in range(4)]
    g = Lessee(kept.box)
    g.next(1, ttl=60_000)
    g("NACK", 1, ids[1], ids[2])
    kept.box.run("ACKJOB", ids[2])  # the next consumer did it
    kept.box.pass_ms(2500)
    for is_rewritten in (False, True):
        if is_rewritten:
            assert kept.committer.start_rewrite(kept.box.n, kept.box.n.now_ms)
            while kept.committer.is_rewriting():
                kept.turn()
        kept.restart()
        g.box = kept.box
        flat = g("GONE", 1, 0)
        told = {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2) if flat[i + 1]}
        assert told == {"nacked": 2, "expired": 1}
        assert g.ids(1) == [ids[3]]


def test_halves_come_back(kept: Kept) -> None:
    """Y9.8 SPLIT and DEFER write one frame with all batches as they are afterwards. The counts of
    BEGIN are not in the journal.
    """
    ids = [kept.box.add() for _ in range(4)]
    g = Lessee(kept.box)
    g.next(1, ttl=60_000)
    g("SPLIT", 1, 1)
    g("SPLIT", 2, 1, "BEGUN", 3)
    g("DEFER", 1)
    fresh = kept.box.add()
    g("DEFER", 1, "COUNT", 1)
    kept.restart()
    g.box = kept.box
    expected = [[fresh], ids[2:], [ids[0]], [ids[1]]]
    assert [g.ids(seq) for seq in (1, 2, 3, 4)] == expected
    assert g("BEGIN", 3)[0] == 1
    assert g("COMMIT", 4) == 5


@pytest.mark.parametrize("how", ["crash", "stop"])
@pytest.mark.parametrize("has_others", [True, False])
def test_a_batch_without_positions_comes_back(kept: Kept, how: str, has_others: bool) -> None:
    """Y11.3 With `keep` 0 the batch keeps its number and no position.

    Y9.8 SPLIT and DEFER write one frame with all batches as they are afterwards.
    """
    ids = [kept.box.add() for _ in range(3)]
    g = Lessee(kept.box)
    g.next(1, ttl=60_000)
    g("SPLIT", 1, 0)
    g("SPLIT", 2, 1)
    if has_others:
        g("DEFER", 1)
    kept.restart(how)
    g.box = kept.box
    expected = [ids[:1], ids[1:]] if has_others else [[], ids[:1], ids[1:]]
    assert [g.ids(seq) for seq in range(1, len(expected) + 1)] == expected
    assert g.info()["last-seq"] == len(expected)
    kept.box.n.leases.check()
    assert g("COMMIT", len(expected)) == 3


def test_a_new_ttl_comes_back(kept: Kept) -> None:
    """Y5.1 TOUCH restarts the time of the lease (Y7.1); with TTL it also sets a new one.

    Y9.3 A live lease starts a new TTL;
    """
    kept.box.add()
    g = Lessee(kept.box)
    g.next(1, ttl=5000)
    g("TOUCH", "TTL", 90_000)
    kept.restart("crash")
    g.box = kept.box
    assert (g.info()["ttl-ms"], g.info()["left-ms"]) == (90_000, 90_000)


def test_a_move_is_no_delivery(kept: Kept) -> None:
    """Y11.5 Moving a job to another batch number is not a delivery."""
    ids = [kept.box.add() for _ in range(4)]
    g = Lessee(kept.box)
    g.next(1, ttl=60_000)
    taken_ms = kept.box.n.now_ms
    kept.box.pass_ms(3000)
    g("SPLIT", 1, 2)
    g("DEFER", 1)
    kept.restart("crash")
    assert [kept.box.job(id).last_ms for id in ids] == [taken_ms] * 4
    assert [kept.box.job(id).delivered_count for id in ids] == [1] * 4
