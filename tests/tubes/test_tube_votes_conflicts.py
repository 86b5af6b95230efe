"""Two tubes of one name, on both sides of a cut: a majority confirmed one (SPEC T17.5, T27.8)."""

from __future__ import annotations

import pytest
from tubes_world import TIMEOUT_MS, VotesWorld, options_of

from tuque.tubes.leadership.create import claim_tube
from tuque.tubes.model.options import MAJORITY, NOT_SAID
from tuque.tubes.tasks.admin import remove_tube


def cut_off(away: int, count: int = 3) -> VotesWorld:
    """A world whose nodes go by a list of voters, without a tube; one node has no links."""
    world = VotesWorld(count, makes=False)
    world.pass_ms(2 * TIMEOUT_MS)
    assert all(world.in_force(i) for i in range(count))
    world.isolate(away)
    world.pass_ms(2 * TIMEOUT_MS)
    return world


def create(world: VotesWorld, i: int, **options: object) -> None:
    """CREATE at node i, under SYNC majority; the answer comes later."""
    o = options_of({"sync": MAJORITY, **options})
    world.ask(i, claim_tube, b"t", b"fifo", o, b"user")


def with_task(world: VotesWorld, i: int) -> None:
    """A majority confirms the tube that node i creates, and one task in it."""
    create(world, i)
    world.pass_ms(1000)
    assert world.said(i) == b"" and world.runs_at() == [i]
    world.put(i)
    world.pass_ms(500)
    assert world.answered(i) == 1


def goes_by(world: VotesWorld, i: int, *nodes: int) -> None:
    """These nodes go by the tube that node i created, and tell of no other one."""
    made = world.tube(i)
    for j in nodes:
        tube = world.tube(j)
        assert (tube.maker, tube.made_ns) == (world.id(i), made.made_ns), j
        assert tube.conflict == b"", j


@pytest.mark.parametrize(("away", "maker"), [(0, 1), (2, 0), (2, 1)])
def test_a_tube_that_no_majority_confirmed_takes_nothing(away: int, maker: int) -> None:
    """T17.5 The creator of a tube that was never confirmed drops it when it learns of one that
    precedes it.
    """
    world = cut_off(away)
    with_task(world, maker)
    create(world, away)
    world.pass_ms(2 * TIMEOUT_MS)
    assert b"done here" in world.said(away)
    world.link()
    world.pass_ms(2000)
    goes_by(world, maker, 0, 1, 2)
    assert world.picture(0) == world.picture(1) == world.picture(2) != {}
    assert world.runs_at() == [maker] and world.put(maker).number == 1
    assert any("the one that this node created is dropped" in note for note in world.warnings(away))
    world.restart(away)
    world.link()
    world.pass_ms(2000)
    goes_by(world, maker, 0, 1, 2)


def test_a_follower_that_sees_the_other_tube_first_keeps_its_replica() -> None:
    """T17.5 Other nodes follow, also later, a confirmed tube first"""
    world = cut_off(0)
    with_task(world, 1)
    create(world, 0)
    world.pass_ms(500)
    world.cut(1, 2)
    world.link(0, 2)
    world.pass_ms(1000)
    assert world.tube(2).maker == world.id(1) == world.tube(0).maker
    world.link()
    world.pass_ms(4 * TIMEOUT_MS)
    (at,) = world.runs_at()
    goes_by(world, 1, 0, 1, 2)
    assert sorted(world.tube(at).tasks) == [0]


def test_an_empty_tube_that_was_confirmed_stays() -> None:
    """T17.5 A tube led by votes is confirmed by a lease of its leader, a change, or an epoch
    above 1; TUBES has that.
    """
    world = cut_off(0)
    create(world, 1)
    world.pass_ms(1000)
    assert world.said(1) == b"" and world.tube(1).seq == 0
    create(world, 0)
    world.link()
    world.pass_ms(2000)
    goes_by(world, 1, 0, 1, 2)
    assert world.runs_at() == [1]


@pytest.mark.parametrize("if_not_exists", [False, True])
def test_a_create_that_waits_hears_of_the_other_tube(if_not_exists: bool) -> None:
    """T17.5 a waiting CREATE ends as if the tube were known."""
    world = cut_off(0)
    with_task(world, 1)
    create(world, 0, if_not_exists=if_not_exists)
    world.pass_ms(500)
    world.link()
    world.pass_ms(1000)
    said = world.said(0)
    if if_not_exists:
        assert said == world.leads_elsewhere(1)
    else:
        assert b"'t' already exists" in said
    goes_by(world, 1, 0, 1, 2)


def test_a_creator_that_started_again_drops_its_tube() -> None:
    """T17.5 If it has started since, only a confirmed one precedes."""
    world = cut_off(0)
    with_task(world, 1)
    create(world, 0)
    world.pass_ms(500)
    world.restart(0)
    assert world.tube(0).is_mine
    world.link()
    world.pass_ms(2000)
    goes_by(world, 1, 0, 1, 2)


def test_a_tube_that_votes_do_not_lead_takes_no_confirmed_replica() -> None:
    """T17.5 Other nodes follow, also later, a confirmed tube first; then one not led by votes"""
    world = cut_off(0)
    with_task(world, 1)
    create(world, 0, sync=NOT_SAID, temporary=True)
    world.link()
    world.pass_ms(2000)
    assert world.tube(2).maker == world.id(1) and sorted(world.tube(2).copies) == [0]
    assert world.tube(0).is_mine and world.tube(0).conflict == world.id(1)
    assert world.tube(1).conflict == world.tube(2).conflict == world.id(0)
    remove_tube(world.nodes[0].core, world.t(0), world.tube(0))
    world.pass_ms(2000)
    goes_by(world, 1, 0, 1, 2)


def test_a_tube_that_was_never_confirmed_takes_none_that_votes_do_not_lead() -> None:
    """T17.5 Other nodes follow, also later, a confirmed tube first; then one not led by votes"""
    world = cut_off(0)
    create(world, 1, sync=NOT_SAID, temporary=True)
    world.pass_ms(500)
    world.put(1)
    create(world, 0)
    world.pass_ms(500)
    world.link()
    world.pass_ms(2000)
    goes_by(world, 1, 0, 1, 2)
    assert sorted(world.tube(1).tasks) == [0]


@pytest.mark.parametrize("first", range(6))
def test_nodes_agree_in_whatever_order_they_hear_of_it(first: int) -> None:
    """T17.5 Other nodes follow, also later, a confirmed tube first

    Of five nodes, three see each other and confirm a tube; each of the other two makes its own."""
    world = cut_off(0, count=5)
    world.isolate(4)
    world.pass_ms(1000)
    with_task(world, 2)
    for i in (0, 4):
        create(world, i)
    world.pass_ms(500)
    links = [(0, 4), (0, 1), (4, 1), (0, 3), (4, 3), (0, 2), (4, 2)]
    for a, b in links[first:] + links[:first]:
        world.link(a, b)
        world.pass_ms(500)
    world.pass_ms(2000)
    goes_by(world, 2, *range(5))
    assert all(sorted(world.picture(i)) == [0] for i in range(5))


def test_of_tubes_that_were_never_confirmed_the_first_creators_is_confirmed() -> None:
    """T17.5 then one not led by votes; then that of the lower creator id"""
    world = cut_off(0)
    world.isolate(1)
    world.pass_ms(2 * TIMEOUT_MS)
    for i in (0, 1):
        create(world, i)
    world.pass_ms(500)
    world.link()
    world.pass_ms(4000)
    goes_by(world, 0, 0, 1, 2)
    assert world.runs_at() == [0]
