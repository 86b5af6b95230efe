"""Two tubes of one name, on both sides of a cut: a majority confirmed one (SPEC T17.5, T27.8)."""

from __future__ import annotations

import pytest
from tubes_world import TIMEOUT_MS, VotesWorld, options_of

from tuque.core.msgs.bus import AnyMessage, TubeCopy
from tuque.core.node.node import Node
from tuque.tubes.leadership.create import claim_tube, made_by_vote
from tuque.tubes.log.send import ENDS
from tuque.tubes.model.options import MAJORITY, NOT_SAID, TubeOptions
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.tasks.admin import create_tube, remove_tube


def voting(count: int = 3) -> VotesWorld:
    """A world whose nodes go by a list of voters, without a tube."""
    world = VotesWorld(count, makes=False)
    world.pass_ms(2 * TIMEOUT_MS)
    assert all(world.in_force(i) for i in range(count))
    return world


def cut_off(*away: int, count: int = 3, **options: object) -> VotesWorld:
    """The same; some nodes made a tube as their links ended, of which no other one has heard."""
    world = voting(count)
    for i in away:
        o = options_of({"sync": MAJORITY, **options})
        world.ask(i, make_unasked, b"t", b"fifo", o, b"user")
    for i in away:
        world.split_off(i)
    world.settle()
    return world


def lack_the_end(_a: int, _b: int, message: AnyMessage) -> None:
    """No node hears that a replica is complete."""
    if isinstance(message, TubeCopy):
        message.flags &= ~ENDS


def make_unasked(
    n: Node,
    t: Tubes,
    name: bytes,
    type: bytes,
    o: TubeOptions,
    user: bytes,
    client: int,
    serial: int,
) -> Tube | None:
    """CREATE once all nodes have said that the name is free."""
    return made_by_vote(n, t, create_tube(n, t, name, type, o, user), o, client, serial)


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
    world.link()
    world.pass_ms(2000)
    goes_by(world, 1, 0, 1, 2)
    assert world.runs_at() == [1]


@pytest.mark.parametrize("if_not_exists", [False, True])
def test_a_create_that_waits_hears_of_the_other_tube(if_not_exists: bool) -> None:
    """T17.5 a waiting CREATE ends as if the tube were known."""
    world = cut_off(0, if_not_exists=if_not_exists)
    with_task(world, 1)
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
    world.restart(0)
    assert world.tube(0).is_mine
    world.link()
    world.pass_ms(2000)
    goes_by(world, 1, 0, 1, 2)


def test_a_tube_that_votes_do_not_lead_takes_no_confirmed_replica() -> None:
    """T17.5 Other nodes follow, also later, a confirmed tube first; then one not led by votes"""
    world = voting()
    world.isolate(0)
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
    world.link()
    world.pass_ms(2000)
    goes_by(world, 1, 0, 1, 2)
    assert sorted(world.tube(1).tasks) == [0]


@pytest.mark.parametrize("first", range(6))
def test_nodes_agree_in_whatever_order_they_hear_of_it(first: int) -> None:
    """T17.5 Other nodes follow, also later, a confirmed tube first

    Of five nodes, three see each other and confirm a tube; each of the other two makes its own."""
    world = cut_off(0, 4, count=5)
    with_task(world, 2)
    links = [(0, 4), (0, 1), (4, 1), (0, 3), (4, 3), (0, 2), (4, 2)]
    for a, b in links[first:] + links[:first]:
        world.link(a, b)
        world.pass_ms(500)
    world.pass_ms(2000)
    goes_by(world, 2, *range(5))
    assert all(sorted(world.picture(i)) == [0] for i in range(5))


def test_of_tubes_that_were_never_confirmed_the_first_creators_is_confirmed() -> None:
    """T17.5 then one not led by votes; then that of the lower creator id"""
    world = cut_off(0, 1)
    world.pass_ms(500)
    world.link()
    world.pass_ms(4000)
    goes_by(world, 0, 0, 1, 2)
    assert world.runs_at() == [0]


def test_of_two_makers_one_has_an_answer() -> None:
    """T24.3 A node votes about each name of a tube, not about each tube."""
    world = voting()
    world.cut(0, 1)
    world.hold(2, 0)
    create(world, 0)
    world.settle()  # it will be told that the name is free
    create(world, 1)
    world.step_until(lambda: b"t" in world.t(2).by_name)
    world.hold(1, 2)  # node 2 will not hear that the tube is confirmed
    world.settle()
    world.release(2, 0)
    world.pass_ms(500)
    assert world.tube(0).maker == world.id(0) and world.tube(2).maker == world.id(1)
    assert world.runs_at() == [1] and world.answers(0) == []
    world.release(1, 2)
    world.pass_ms(500)
    assert world.said(1) == b"" and b"already exists" in world.said(0)
    goes_by(world, 1, 0, 1, 2)


def test_a_maker_without_votes_has_no_tube() -> None:
    """T27.8 Else, after `cluster-node-timeout`, the maker drops the tube"""
    world = cut_off(0)
    world.pass_ms(TIMEOUT_MS + 500)
    assert b"too few voters confirmed it in time" in world.said(0)
    assert b"t" not in world.t(0).by_name
    world.link()
    world.pass_ms(2_000)
    assert not any(b"t" in world.t(i).by_name for i in range(3))
    create(world, 0)
    world.pass_ms(500)
    assert world.said(0) == b"" and world.runs_at() == [0]


@pytest.mark.parametrize("voters", [0, 1])
def test_a_minority_makes_nothing(voters: int) -> None:
    """T27.8 Where no majority of the voters is linked CREATE does nothing"""
    world = VotesWorld(4 if voters == 0 else 3, makes=False, tube_voters=3)
    world.pass_ms(2 * TIMEOUT_MS)
    for i in (1, 2):
        world.cut(i, 0)
        world.cut(i, 3 if voters == 0 else 0)
    at = 3 if voters == 0 else 0
    said = world.wire(at)("TUBE", "CREATE", "t", "fifo")
    assert said == "NOQUORUM Tube 't' is not made: 1 of 3 voters are here, try again soon"
    assert world.wire(at)("TUBE", "CREATE", "t", "fifo", "TEMPORARY") == b"OK"


def test_a_vote_for_a_maker_is_on_the_disk() -> None:
    """T27.8 A node votes for the maker of a tube that it did not know once that is on its disk,
    under `everysec` too.
    """
    world = voting()
    world.stick(1, 2)
    create(world, 0)
    world.pass_ms(2_000)
    assert b"t" in world.t(1).by_name and world.answers(0) == []
    assert world.runs_at() == []
    world.stick()
    world.pass_ms(500)
    assert world.said(0) == b"" and world.runs_at() == [0]


def test_the_only_voter_makes_a_tube() -> None:
    """T27.10 One voter is the majority of its list: it leads when its own vote is on its disk"""
    world = voting()
    world.split_off(0)
    assert world.wire(0)("CLUSTER", "VOTERS", "FORCE", world.id(0)) == b"OK"
    world.stick(0)
    create(world, 0)
    world.pass_ms(2_000)
    assert world.runs_at() == [] and world.answers(0) == []
    world.stick()
    world.pass_ms(500)
    assert world.said(0) == b"" and world.runs_at() == [0]


def test_one_of_two_makers_gives_way() -> None:
    """T17.5 The creator of a tube that was never confirmed drops it when it learns of one that
    precedes it.
    """
    world = cut_off(0, 1)
    world.link(0, 1)
    world.pass_ms(1_000)
    assert world.runs_at() == [0] and world.said(0) == b""
    assert b"already exists" in world.said(1)
    world.link()
    world.pass_ms(2_000)
    goes_by(world, 0, 0, 1, 2)


def test_what_was_made_is_with_a_majority() -> None:
    """T27.8 CREATE is answered when a majority has all of the tube"""
    world = voting()
    world.lab.editor = lack_the_end
    create(world, 0)
    world.pass_ms(1_000)
    assert world.runs_at() == [0] and world.answers(0) == []
    world.lab.editor = None
    world.isolate(2)
    world.link()
    world.pass_ms(1_000)
    assert world.said(0) == b""
    world.end(0)
    world.pass_ms(3 * TIMEOUT_MS)
    assert world.runs_at() in ([1], [2])
