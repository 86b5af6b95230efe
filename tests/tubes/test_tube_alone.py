"""CREATE in a cluster that could choose no other leader (SPEC T23.8)."""

from __future__ import annotations

import pytest
from tubes_world import VotesWorld

from tuque.core.msgs.bus import AnyMessage, TubePulse
from tuque.tubes.election.voters import set_willing
from world import World


def created(world: World, *words: str | int, name: str = "t", at: int = 0) -> str:
    """What CREATE is answered at a node."""
    said = world.wire(at)("TUBE", "CREATE", name, "fifo", *words)
    return said.decode() if isinstance(said, bytes) else str(said)


@pytest.mark.parametrize(
    ("options", "votes"),
    [
        ({"nodes": 2}, "2 of 2"),
        ({"nodes": 3, "journal": "off"}, "0 of 3"),
        ({"nodes": 3, "tube_failover": False}, "0 of 3"),
        (
            {"nodes": 4, "only": {1: {"tube_failover": False}, 2: {"tube_failover": False}}},
            "2 of 4",
        ),
    ],
)
def test_a_tube_that_could_not_fail_over(options: dict[str, object], votes: str) -> None:
    """T23.8 Without a list in force, or with a solo one (T23.1), on a node that knows others, a
    tube needs TEMPORARY, ALONE or IMPLICIT.
    """
    world = World(**options)
    wanted = f"ERR tube 't' would have no failover: {votes} nodes vote, 3 are needed: set "
    for words in ((), ("SYNC", 2), ("SYNC", "majority"), ("IFNOTEXISTS",), ("FAILOVER", "yes")):
        assert created(world, *words).startswith(wanted)
    asked = (("ALONE",), ("FAILOVER", "yes", "ALONE"), ("TEMPORARY",), ("ALONE", "SYNC", 2))
    asked = (*asked, ("IMPLICIT",))
    for number, words in enumerate(asked):
        assert created(world, *words, name=f"t{number}") == "OK"
        is_led = "TEMPORARY" not in words and not votes.startswith("0")
        assert world.node(0).tubes.by_name[b"t%d" % number].led_by_votes is is_led
    assert created(world, "IFNOTEXISTS", name="t0") == "OK"  # it is there
    assert created(world, "IFNOTEXISTS", name="t0", at=1).startswith("TUBEHOME")


def test_a_node_alone_needs_no_word() -> None:
    """T23.8 on a node that knows others"""
    assert created(World(1)) == "OK"
    assert created(World(1, journal="off")) == "OK"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_tube_that_is_not_to_fail_over(count: int) -> None:
    """T23.6 `no` is refused"""
    world = VotesWorld(count, makes=False)
    world.pass_ms(2_000)
    assert world.in_force(0) is (count == 3)
    for words in ((), ("ALONE",), ("TEMPORARY",), ("SYNC", 1)):
        said = created(world, "FAILOVER", "no", *words)
        assert said.startswith(
            "ERR FAILOVER no is no longer supported: where nodes vote, each tube"
        )
    assert b"t" not in world.t(0).by_name


def lack_something(_a: int, _b: int, message: AnyMessage) -> None:
    """No node hears that another one has all tubes, so no list grows."""
    if isinstance(message, TubePulse):
        message.is_whole = False


def test_a_list_that_is_on_its_way() -> None:
    """T23.8 If three nodes or more may vote and all nodes are linked, the list comes in about a
    second.
    """
    world = VotesWorld(3, makes=False, off=2)
    world.lab.editor = lack_something
    world.pass_ms(2_000)
    set_willing(world.t(2), True)
    world.pass_ms(1_000)
    for words in ((), ("ALONE",)):
        said = created(world, *words)
        assert said == "NOQUORUM Tube 't': the nodes agree on who votes: try again soon"
    world.lab.editor = None
    world.pass_ms(2_000)
    assert created(world) == "OK"
    assert world.tube(0).led_by_votes


def test_a_list_that_may_never_come() -> None:
    """T23.8 If three nodes or more may vote and all nodes are linked"""
    world = VotesWorld(4, makes=False, old=3)
    world.pass_ms(1_000)
    assert not any(world.in_force(i) for i in range(4))
    assert created(world).startswith("NOQUORUM")
    assert created(world, "ALONE") == "OK"
    voters = world.t(0).voter_state.list_of(world.tube(0))
    assert voters is not None and voters.is_solo
