"""Jobs whose worker was lost run alone, and do not hold up the others (SPEC U2.23, U2.24)."""

from __future__ import annotations

import pytest
from noting import Noting

from tuque.worker import Handle
from world import World


def lost(world: World, noting: Noting, count: int, lasts_s: float = 0.3) -> list[Handle[None]]:
    """So many jobs that a worker had begun when it was lost; they are due again."""
    first = world.at_work(noting.app, concurrency=count)
    once = noting.lasts.options(attempts=1)
    jobs = [once.enqueue(f"suspect {at}", lasts_s) for at in range(count)]
    world.until(lambda: len(noting.did) == count)
    first.kill()
    world.pass_ms(6_000)  # RETRY, and the back-off
    noting.did.clear()
    return jobs


def is_alone(did: list[str], name: str) -> bool:
    """Whether nothing ran beside that job, from its begin to its end."""
    at = did.index(f"begin {name}")
    begun, ended = did[:at], [line for line in did[:at] if line.startswith("end")]
    return did[at + 1] == f"end {name}" and len(begun) == 2 * len(ended)


@pytest.mark.parametrize("kind", ["queue", "tasks"])
def test_suspects_run_alone(world: World, kind: str) -> None:
    """U2.23 It runs alone: its worker begins it when no other run lasts there, begins and
    fetches nothing while it has it.

    W6.7 A run that ended in silence adds one to `crashes`; `failed` stays, and so the attempt.
    """
    noting, client = Noting(), world.client()
    if kind != "queue":
        client.tube("q").create(kind)
    suspects = lost(world, noting, 4)
    assert all(client.result(one.id).cause == "crashed" for one in suspects)
    for at in range(6):
        noting.lasts.enqueue(f"other {at}", 0.3)
    world.at_work(noting.app, concurrency=10, prefetch=10)
    world.until(lambda: len(noting.did) == 20)
    assert all(is_alone(noting.did, f"suspect {at}") for at in range(4)), noting.did
    assert not all(is_alone(noting.did, f"other {at}") for at in range(6)), noting.did
    world.pass_ms(1_000)
    assert all(client.show(one.id) is None for one in suspects)


def test_a_suspect_does_not_wait_long_for_others(world: World) -> None:
    """U2.24 A suspect waits 2 s at most for the runs of others to end, then it is RELEASE as
    above, and the worker continues with other jobs.
    """
    noting = Noting()
    first = world.at_work(noting.app)
    noting.lasts.options(attempts=1).enqueue("suspect", 0.3)
    world.until(lambda: noting.did == ["begin suspect"])
    first.kill()
    noting.until_go.enqueue("long")
    world.at_work(noting.app, concurrency=2)
    world.until(lambda: noting.did[1:] == ["begin long"])
    world.pass_ms(6_000)  # the suspect has come, and waited in vain
    noting.record.enqueue("short")
    world.until(lambda: "short" in noting.did, 3_000)
    assert "begin suspect" not in noting.did[1:]
    world.at_work(noting.app, concurrency=2)
    world.until(lambda: "end suspect" in noting.did)
    assert "end long" not in noting.did


def test_others_have_as_long_a_time_as_a_suspect_had(world: World) -> None:
    """U2.23 For as long as the suspect was there the worker then runs other jobs"""
    noting = Noting()
    suspects = lost(world, noting, 3, lasts_s=2.0)
    for at in range(40):
        noting.lasts.enqueue(f"other {at}", 0.2)
    world.at_work(noting.app, concurrency=1)
    world.until(lambda: "end suspect 1" in noting.did or "end suspect 2" in noting.did)
    between = noting.did[noting.did.index("end suspect 0") :]
    others = [line for line in between if line.startswith("end other")]
    assert len(others) >= 5, noting.did
    assert len(suspects) == 3
