"""Two nodes claim one name for a tube: none is named before it has the tube (SPEC T17.5)."""

from __future__ import annotations

import pytest
from tubes_world import TubesWorld

from tuque.tubes.leadership.switchover import end_claims


def claim(world: TubesWorld, i: int, type: bytes = b"fifo") -> None:
    """CREATE at node i with IFNOTEXISTS; the other nodes are asked first."""
    world.claim(i, type, if_not_exists=True)


def two_claims(first: int) -> TubesWorld:
    """Nodes 0 and 1 claim the name, and node 0 waits for node 2."""
    world = TubesWorld(3)
    world.hold(2, 0)
    if first == 1:
        world.hold(2, 1)
    claim(world, first)
    if first == 1:
        world.settle()  # node 0 replies that it does not know the name
    claim(world, 1 - first)
    world.settle()
    world.release(2, 1)
    return world


@pytest.mark.parametrize("first", [0, 1])
def test_no_redirect_leads_to_a_node_that_has_no_tube_yet(first: int) -> None:
    """T17.5 So no `-TUBEHOME` leads to a node without the tube."""
    world = two_claims(first)
    assert b"t" not in world.t(0).by_name and world.answers(1) == []
    world.release(2, 0)
    world.settle()
    assert world.said(0) == b""
    assert world.said(1) == world.leads_elsewhere(0)
    task = world.wire(0).add("t")
    assert [one.id for one in world.tube(0).tasks.values()] == [task]
    assert world.runs_at() == [0]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("why", ["standstill", "in use"])
def test_a_claim_goes_on_when_the_other_one_came_to_nothing(first: int, why: str) -> None:
    """T17.5 a claim to which it had replied before waits as well."""
    world = two_claims(first)
    if why == "standstill":
        end_claims(world.t(0))
    else:
        world.t(0).in_replicaset = True
        for one in world.t(0).claims.values():
            one.options.temporary = True
    world.release(2, 0)
    world.pass_ms(500)
    assert world.said(0) != b""
    assert world.said(1) == b""
    assert world.runs_at() == [1] and world.tube(0).home == world.id(1)


def test_a_claim_does_not_wait_for_a_node_that_is_cut_off() -> None:
    """T17.5 CREATE first sends TUBE-CLAIM to every reachable node, and continues once each has
    replied or become unreachable.
    """
    world = two_claims(0)
    world.isolate(0)
    world.settle()
    assert world.t(0).askers == []
    assert len(world.answers(1)) == 1


def test_three_claims_of_one_name_end() -> None:
    """T17.5 A node that claims the name itself and has the lower node id replies once its own claim
    has ended."""
    world = TubesWorld(4)
    for i in (2, 0, 1):
        claim(world, i, b"fifo" if i < 2 else b"utube")
    world.settle()
    assert world.said(0) == b""
    assert world.said(1) == world.leads_elsewhere(0)
    assert b"exists with the type fifo" in world.said(2)
    assert all(world.t(i).claims == {} and world.t(i).askers == [] for i in range(4))
