"""Jobs whose worker was lost run alone, and do not hold up the others (SPEC U2.23, U2.24)."""

from __future__ import annotations

from typing import Any

import pytest
from noting import Noting

from tuque.worker import Handle
from world import World


def lost(world: World, noting: Noting, count: int, **options: Any) -> list[Handle[None]]:
    """So many jobs that a worker had begun when it was lost; they are due again."""
    first = world.at_work(noting.app, concurrency=count)
    once = noting.lasts.options(attempts=1, **options)
    jobs = [once.enqueue(f"suspect {at}", 0.3) for at in range(count)]
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
    """U2.23 It runs alone: its worker begins it when no other run lasts there, and begins and
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
    """U2.24 A suspect waits 2 s at most for the runs of others to end, then it is RELEASE as above,
    and the worker goes on with other jobs.
    """
    noting, client = Noting(), world.client()
    (suspect,) = lost(world, noting, 1, delay_s=1)
    noting.until_go.enqueue("long")
    busy = world.at_work(noting.app, concurrency=2)
    world.until(lambda: "begin long" in noting.did or "end suspect 0" in noting.did)
    if "end suspect 0" in noting.did:
        assert noting.did[0] == "begin suspect 0"
    world.until(lambda: "begin long" in noting.did)
    assert client.show(suspect.id) is None or busy.worker
