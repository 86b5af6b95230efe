"""The model of who leads a tube is clean, and finds what is broken (spec/model)."""

from __future__ import annotations

import pytest

from spec.model.flaws import KNOWN
from spec.model.healing import walk
from spec.model.leadership import create
from spec.model.state import BrokenError, VoterList
from spec.model.walks import Walk

QUICK = ["stale_candidate", "solo_votes_on", "create_at_vote"]


@pytest.mark.parametrize("profile", ["", *QUICK])
def test_walks_are_clean(profile: str) -> None:
    assert walk(1, profile).error == ""


def test_a_tube_of_which_no_voter_has_a_copy_gets_a_leader() -> None:
    """A voter that is left knows its name only, a node without a vote has the one copy (T21.5)."""
    result = walk(20)
    assert (result.error, result.seen["forced tubes"]) == ("", 1)


@pytest.mark.parametrize("flaw", QUICK)
def test_a_broken_rule_is_found(flaw: str) -> None:
    profile, seed = KNOWN[flaw]
    assert walk(seed, profile, flaw).error
    assert not walk(seed, profile).error


def test_a_walk_is_the_same_each_time() -> None:
    assert walk(7) == walk(7) != walk(8)


def test_two_leaders_at_one_instant_are_seen() -> None:
    one = Walk(1, "double_vote")
    one.run(30)
    led = [(x, key) for x in one.w.nodes for key in x.views if x.views[key].role == 2]
    x, key = led[0]
    other = one.w.nodes[(x.id + 1) % 3]
    other.disk.tubes[key] = x.disk.tubes[key].twin()
    other.disk.tubes[key].voted_for = other.disk.tubes[key].leader = other.id
    other.views[key] = x.views[key]
    other.disk.list = VoterList(key[1], 9, {other.id: 1}, {other.id: other.disk.id}, other.id)
    other.disk.right, x.seen = 1, x.clock
    with pytest.raises(BrokenError, match="both lead"):
        one.judge.check()


def give_away(flaw: str) -> None:
    """A node alone gives its tube to three voters of which it reaches one, and that one dies."""
    one = Walk(3, "given_to_one", flaw)
    w, giver, target = one.w, one.w.nodes[3], one.w.nodes[0]
    quiet = {"deliver": 1.0, "loss": 0.0, "twice": 0.0, "pulse": 1.0, "synced": 1.0, "eager": 0.0}
    one.faults = one.faults._replace(crash=0.0, names=1.0, pinch=0.0, **quiet)
    one.letters, one.rounds = "c", 4
    key = (3, giver.disk.list.birth())
    create(w, giver, 3)
    for _ in range(3):
        one.tick()
    assert one.judge.answered[key]
    one.cut = {(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if 3 in (a, b)}
    giver.disk.known |= {0}
    one.faults = one.faults._replace(pinch=1.0)  # who is elected dies
    for _ in range(60):
        one.tick()
        if not target.is_up:
            one.faults = one.faults._replace(pinch=0.0)
        for x in w.nodes[1:3]:
            if not x.is_up:
                one.restart(x)


def test_a_tube_goes_to_a_list_when_a_majority_has_it() -> None:
    give_away("")
    with pytest.raises(BrokenError, match="lacks"):
        give_away("given_to_one")
