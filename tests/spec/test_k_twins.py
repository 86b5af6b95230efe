"""SPEC K1.2, K1.3: two live nodes with one id, and nodes that only look so."""

from __future__ import annotations

import random

import pytest

from party import TIMEOUT_MS, Guest, Party
from tuque.cluster.kept import parse_kept
from tuque.cluster.member import DIAL_MAX_MS
from tuque.core.msgs import Heartbeat


def met(count: int) -> Party:
    """That many nodes that have met through the first."""
    party = Party(count)
    for other in range(1, count):
        party.meet(0, other)
    party.pass_ms(4000)
    assert party.reach() == [count - 1] * count
    return party


def test_two_nodes_with_one_id() -> None:
    """K1.3 Two live incarnations of one id with the same count are a conflict. A node that sees
    both says so in its heartbeats and gives them no copies."""
    party = met(2)
    twin = Guest(1, party.now_ms)
    twin.members.mark = b"anothers"
    twin.number, twin.bus_port = 2, 17_060
    party.guests.append(twin)
    twin.members.meet("127.0.0.1", 7000, 17_000)
    party.pass_ms(2500)
    assert party.guests[1].members.twin.where
    assert twin.members.twin.where
    assert party.guests[0].n.reachable_count == 0
    lonely = Guest(9, party.now_ms)
    lonely.members.on_twin("another node has the id of this one", TIMEOUT_MS)
    assert lonely.members.next_ms() <= party.now_ms  # alone it looks too whether it is over
    twin.is_up = False
    party.pass_ms(10_000)
    assert party.guests[1].members.twin.where == ""
    assert party.guests[0].n.reachable_count == 1


def test_a_node_from_an_old_disk_is_no_twin_of_its_dead_life() -> None:
    """K1.3 Both are alive if a heartbeat of one arrives after the other was refused. A link that
    still exists does not prove that: its end may be dead, since a node restored from an old disk
    counts on from that disk."""
    party = met(2)
    party.guests[1].is_up = False  # and nobody is told: its end of the link was lost on the way
    restored = Guest(1, party.now_ms)
    restored.members.mark = b"restored"
    restored.number, restored.bus_port = 2, 17_060
    party.guests.append(restored)
    restored.members.meet("127.0.0.1", 7000, 17_000)
    party.pass_ms(TIMEOUT_MS // 2)
    is_refused = "two nodes with this id are alive: the other one is at 127.0.0.1:7001"
    assert is_refused in restored.refusals
    party.pass_ms(2 * TIMEOUT_MS)
    assert party.guests[0].n.reachable_count == 1
    assert party.member(0, 2).mark == b"restored"
    assert restored.members.twin.where == ""


def copied(party: Party, life: int) -> Guest:
    """A copy of node 1 that is started elsewhere, with that count of starts."""
    twin = Guest(1, party.now_ms, life)
    twin.members.mark = b"anothers"
    twin.number, twin.bus_port = len(party.guests), 17_060
    twin.members.port = 7060
    for one in party.guests[1].members.by_id.values():
        twin.members.restore(one.node_id, one.host, one.port, one.bus_port, one.number)
    party.guests.append(twin)
    return twin


def test_an_older_incarnation_refuses_while_a_newer_one_is_alive() -> None:
    """K1.3 An older incarnation that learns of a newer one in this way (K1.2) refuses service too;
    the newer one serves.
    """
    party = met(2)
    twin = copied(party, 2)
    old = party.guests[1]
    party.pass_ms(4000)
    assert old.members.twin.where == "127.0.0.1:7060"
    assert old.n.is_double
    assert twin.members.twin.where == ""
    assert party.guests[0].n.reachable_count == 1
    assert party.member(0, 2).mark == b"anothers"
    party.pass_ms(4000)
    assert old.n.is_double, "it lasts as long as the newer one is there"
    twin.is_up = False
    party.pass_ms(4 * TIMEOUT_MS)
    assert not old.n.is_double
    assert party.member(0, 1).mark == old.members.mark


def test_a_restarted_node_is_not_taken_for_its_twin() -> None:
    """K1.3 A restarted node has a higher count than its former incarnations, and what was seen of
    these is forgotten when it is met.
    """
    party = met(2)
    twin = copied(party, 1)
    party.pass_ms(2500)
    assert party.guests[1].n.is_double and twin.n.is_double
    party.die(1)
    party.restart(1, is_empty=False)
    for _ in range(60):
        party.pass_ms(50)
        assert not party.guests[1].n.is_double
    assert twin.n.is_double
    assert party.member(0, 1).mark == party.guests[1].members.mark


def test_a_conflict_ends_soon_after_its_cause() -> None:
    """K1.3 A node that saw the conflict takes it as over half a `cluster-node-timeout` after it
    last saw it; a node that heard of it in heartbeats, as long after it last heard so; one that
    was refused, or met the other one itself, a whole one after that."""
    party = met(2)
    twin = copied(party, 1)
    party.pass_ms(2500)
    for _ in range(100):
        party.pass_ms(50)
        assert party.guests[1].n.is_double and twin.n.is_double
    assert party.guests[1].members.twin.where == "127.0.0.1:7060"
    assert twin.members.twin.where == "127.0.0.1:7001"
    twin.is_up = False
    party.pass_ms(TIMEOUT_MS * 3 // 2)
    assert not party.guests[1].n.is_double


def test_the_address_of_a_twin_goes_to_its_double_alone() -> None:
    """K1.3 A heartbeat to the other one begins with the address of the refused node."""
    party = met(3)
    copied(party, 1)
    a, b, c = party.guests[:3]
    told: dict[str, list[tuple[str, int]]] = {"b": [], "c": []}
    for _ in range(50):
        party.pass_ms(50)
        a.members.beat_ms = 0
        a.n.now_ms = party.now_ms
        a.members.tick(party.now_ms)
        for name, other in (("b", b), ("c", c)):
            for message in a.n.peers[a.linked[other]].outbox:
                assert isinstance(message, Heartbeat)
                of_b = [(m.host, int(m.port)) for m in message.nodes if m.node_id == b.n.node_id]
                told[name] += of_b[:1]
    assert ("127.0.0.1", 7060) in told["b"]
    assert set(told["c"]) == {("127.0.0.1", 7001)}
    assert (party.member(2, 1).host, party.member(2, 1).port) == ("127.0.0.1", 7001)


def test_a_reset_node_has_no_conflict() -> None:
    """K1.3 CLUSTER RESET begins a new incarnation, which has no conflict."""
    party = met(2)
    copied(party, 1)
    party.pass_ms(2500)
    guest = party.guests[1]
    assert guest.n.is_double
    guest.members.forget_all()
    guest.members.renew(2, b"new-mark")
    assert not guest.n.is_double and guest.members.twin.where == ""
    party.meet(0, 1)
    for _ in range(100):
        party.pass_ms(50)
        assert not guest.n.is_double
    assert party.member(0, 1).mark == b"new-mark"


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("away_ms", [0, 100, TIMEOUT_MS // 2, 3 * TIMEOUT_MS])
def test_a_killed_node_that_starts_again(away_ms: int, is_told: bool) -> None:
    """K1.2 A higher incarnation of a known id replaces the lower one.

    K1.3 A restarted node has a higher count than its former incarnations
    """
    party = met(3)
    for _ in range(3):
        if is_told:
            party.die(1)
        else:
            party.guests[1].is_up = False  # the others still have their ends of the links
        party.pass_ms(away_ms)
        party.restart(1, is_empty=False)
        for _ in range(80):
            party.pass_ms(50)
            assert not party.guests[1].n.is_double
        assert party.reach() == [2, 2, 2]


def test_a_former_conflict_is_forgotten_behind_a_cut() -> None:
    """K1.3 what was seen of these is forgotten when it is met."""
    party = met(3)
    twin = copied(party, 1)
    party.pass_ms(2500)
    assert party.member(2, 1).twins_ms > 0
    party.break_up(1, 2)  # node 2 has seen both, and hears of the restart only later
    twin.is_up = False
    party.die(1)
    party.restart(1, is_empty=False)
    party.pass_ms(TIMEOUT_MS // 4)
    party.cut.clear()
    for _ in range(100):
        party.pass_ms(50)
        assert not party.guests[1].n.is_double
    assert party.reach() == [2, 2, 2, -1]
    assert party.member(2, 1).twins_ms == 0


def test_an_old_disk_is_no_twin_of_a_newer_life_that_died() -> None:
    """K1.3 Both are alive if a heartbeat of one arrives after the other was refused. A link that
    still exists does not prove that"""
    party = met(2)
    party.die(1)
    party.restart(1, is_empty=False)
    party.pass_ms(3000)
    assert party.member(0, 1).life == 2
    party.guests[1].is_up = False  # and its end of the link is still there
    old = copied(party, 1)
    for one in old.members.by_id.values():
        one.dial_ms = party.now_ms
    for _ in range(60):
        party.pass_ms(50)
        assert not old.n.is_double
    assert old.refusals
    assert party.member(0, 1).mark == b"anothers"


def test_others_show_a_conflict_and_do_not_keep_it() -> None:
    """K8.1 failed, leaving or in conflict (K1.3) 100"""
    party = met(2)
    twin = copied(party, 1)
    party.pass_ms(2500)
    members = party.guests[0].members
    assert " conflict " in members.lines()
    assert party.member(0, 1).priority() == 100
    own = members.n.node_id.decode() + " :7000 myself 0 0 connected\n"
    assert [node.port for node in parse_kept(members.kept_text(own).encode()).nodes] == [7001]
    twin.is_up = False
    party.die(1)
    party.pass_ms(TIMEOUT_MS)
    assert " conflict " not in members.lines(), "nor after both have ended"


@pytest.mark.parametrize("seed", range(12))
def test_a_node_is_not_fooled_by_its_past(seed: int) -> None:
    """K1.3 Two live incarnations of one id with the same count are a conflict.

    Nodes are killed, cut off and started again at random, never two with one id: none refuses.
    """
    rng = random.Random(seed)
    party = met(4)
    for _ in range(40):
        at, other = rng.sample(range(4), 2)
        step = rng.randrange(5)
        if step == 0:
            party.die(at)
            party.pass_ms(rng.choice([0, 50, 200, 2 * TIMEOUT_MS]))
            party.restart(at, is_empty=False)
        elif step == 1:
            party.guests[at].is_up = False
            party.pass_ms(rng.choice([0, 50, 200, 2 * TIMEOUT_MS]))
            party.restart(at, is_empty=False)
        elif step == 2:
            party.break_up(at, other)
        elif step == 3:
            party.cut.clear()
        else:
            party.unlink(party.guests[at], party.guests[other])
        for _ in range(rng.randrange(1, 30)):
            party.pass_ms(50)
            assert [g.members.twin.where for g in party.guests] == [""] * 4
    party.cut.clear()
    party.pass_ms(4 * TIMEOUT_MS + 2 * DIAL_MAX_MS)
    assert party.reach() == [3] * 4
