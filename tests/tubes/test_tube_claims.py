"""Two nodes claim one name for a tube: none is named before it has the tube (SPEC T17.5)."""

from __future__ import annotations

import pytest
from homes_lab import HomesLab

from refusals import said
from tuque.tubes.leadership.create import claim_tube
from tuque.tubes.leadership.switchover import end_claims
from tuque.tubes.model.errors import HomeError
from tuque.tubes.model.options import TubeOptions


def claim(lab: HomesLab, i: int, type: bytes = b"fifo") -> None:
    """CREATE at node i with IFNOTEXISTS; the other nodes are asked first."""
    o = TubeOptions()
    o.if_not_exists = True
    n = lab.nodes[i]
    n.now_ms = lab.now_ms
    assert claim_tube(n, lab.t(i), b"t", type, o, b"user", 1, 1) is None


def two_claims(first: int) -> HomesLab:
    """Nodes 0 and 1 claim the name, and node 0 waits for node 2."""
    lab = HomesLab(3)
    lab.hold(2, 0)
    if first == 1:
        lab.hold(2, 1)
    claim(lab, first)
    if first == 1:
        lab.carry()  # node 0 replies that it does not know the name
        lab.carry()
    claim(lab, 1 - first)
    lab.run()
    lab.release(2, 1)
    lab.run()
    return lab


@pytest.mark.parametrize("first", [0, 1])
def test_no_redirect_leads_to_a_node_that_has_no_tube_yet(first: int) -> None:
    """T17.5 So no `-TUBEHOME` leads to a node that has no tube yet, where an ADDJOB would use the
    name for a plain queue."""
    lab = two_claims(first)
    assert b"t" not in lab.t(0).by_name and lab.t(1).home_done == []
    lab.release(2, 0)
    lab.run()
    assert lab.done(0).tube is lab.tube(0)
    done = lab.done(1)
    assert isinstance(done.error, HomeError) and done.error.node_id == lab.nodes[0].node_id
    task = lab.add(0, b"t", replicate=1)
    assert [one.id for one in lab.tube(0).tasks.values()] == [task]
    assert lab.runs_at() == [0]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("why", ["standstill", "in use"])
def test_a_claim_goes_on_when_the_other_one_came_to_nothing(first: int, why: str) -> None:
    """T17.5 A claim to which it had replied before waits for it as well, and asks it again."""
    lab = two_claims(first)
    if why == "standstill":
        end_claims(lab.t(0))
    else:
        lab.t(0).in_replicaset = True
        for one in lab.t(0).claims.values():
            one.options.temporary = True
    lab.release(2, 0)
    lab.live(500)
    assert said(lab.done(0)) != b""
    assert lab.done(1).tube is lab.tube(1)
    assert lab.runs_at() == [1] and lab.tube(0).home == lab.nodes[1].node_id


def test_a_claim_does_not_wait_for_a_node_that_is_cut_off() -> None:
    """T17.5 It continues once each has replied or become unreachable."""
    lab = two_claims(0)
    lab.isolate(0)
    lab.run()
    assert lab.t(0).askers == []
    assert lab.done(1) is not None


def test_three_claims_of_one_name_end() -> None:
    """T17.5 A node that claims the name itself and has the lower node id replies once its own claim
    has ended."""
    lab = HomesLab(4)
    for i in (2, 0, 1):
        claim(lab, i, b"fifo" if i < 2 else b"utube")
    lab.run()
    assert lab.done(0).tube is lab.tube(0)
    assert isinstance(lab.done(1).error, HomeError)
    assert b"exists with the type fifo" in said(lab.done(2))
    assert all(lab.t(i).claims == {} and lab.t(i).askers == [] for i in range(4))
