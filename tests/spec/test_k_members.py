"""SPEC K1-K4, K6, K8: who belongs to the cluster and who answers."""

from __future__ import annotations

import pytest

from party import TIMEOUT_MS, Guest, Party
from tuque.cluster.kept import BadNodes, parse_kept
from tuque.cluster.member import FAILING
from tuque.core.msgs import Heartbeat, Slots
from tuque.core.node.peers import (
    introduce,
    journal_fails,
    slots_of,
    translate,
)
from tuque.core.records.jobs import Records


def met(count: int) -> Party:
    """That many nodes that have met through the first."""
    party = Party(count)
    for other in range(1, count):
        party.meet(0, other)
    party.pass_ms(4000)
    assert party.reach() == [count - 1] * count
    return party


def test_the_incarnation_is_kept_before_the_bus_opens() -> None:
    """K1.1 A node id is made at the first start and stored. The incarnation is a stored start
    counter and 64 random bits; it is stored before the bus opens."""
    party = met(2)
    members = party.guests[0].members
    own = members.n.node_id.decode() + " :7000 myself 0 0 connected\n"
    kept = parse_kept(members.kept_text(own).encode())
    assert kept.node_id == members.n.node_id
    assert kept.life == members.life
    assert [(node.host, node.port, node.bus_port) for node in kept.nodes] == [
        ("127.0.0.1", 7001, 17_001)
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("x", "line 2 has 1 words"),
        ("z" * 40 + " h:1 noflags 0 0 connected", "line 2 does not begin with a node id"),
        (
            "a" * 20 + "G" + "a" * 19 + " h:1 noflags 0 0 connected",
            "line 2 does not begin with a node id",
        ),
        ("a" * 39 + " h:1 noflags 0 0 connected", "line 2 does not begin with a node id"),
        ("b" * 40 + " h:1 brave 0 0 connected", "unknown flag 'brave'"),
        ("b" * 40 + " h:x noflags 0 0 connected", "'x' is no number"),
        ("b" * 40 + " h:70000 noflags 0 0 connected", "70000 is no port"),
        ("b" * 40 + " h:1 noflags 0 0 connected bus:70000", "70000 is no port"),
        ("b" * 40 + " h:1 myself 0 0 connected", "second line with the flag 'myself'"),
    ],
)
def test_a_bad_file_says_which_line(line: str, text: str) -> None:
    """A file that is not valid is refused with the line and the reason (K1.1)."""
    with pytest.raises(BadNodes, match=text):
        parse_kept(("a" * 40 + " :7711 myself 0 0 connected\n" + line + "\n").encode())


def expected(party: Party, at: int) -> list[int]:
    """The nodes that a node expects."""
    n = party.guests[at].n
    return [g.number for g in party.guests if n.expected >> n.slot_of.get(g.n.node_id, 0) & 1]


def test_who_is_expected() -> None:
    """K4.4 A restarting node is expected until it was silent for `cluster-node-timeout`; a node
    that loads its journal is expected while it sends heartbeats. For a node that was never heard
    from, the time counts from when this node learned of it."""
    party = met(3)
    assert expected(party, 0) == [1, 2]
    party.die(2)
    party.pass_ms(TIMEOUT_MS - 200)
    assert party.reach()[0] == 1
    assert expected(party, 0) == [1, 2]
    party.pass_ms(300)
    assert expected(party, 0) == [1]
    party.restart(2)
    party.guests[2].n.is_loading = True
    assert expected(party, 2) == [0, 1]
    party.pass_ms(3 * TIMEOUT_MS)
    assert party.reach()[0] == 1
    assert expected(party, 0) == [1, 2]
    party.guests[2].n.is_loading = False
    party.guests[2].n.is_leaving = True
    party.pass_ms(300)
    assert expected(party, 0) == [1]
    party.guests[2].n.is_leaving = False
    party.pass_ms(300)
    assert expected(party, 0) == [1, 2]
    assert party.guests[0].members.forget(party.guests[2].n.node_id)
    assert expected(party, 0) == [1]
    for number in (1, 2):
        party.die(number)
    party.restart(0)
    assert expected(party, 0) == [1]
    party.pass_ms(TIMEOUT_MS + 300)
    assert expected(party, 0) == []
    party.guests[0].members.forget_all()
    assert expected(party, 0) == []


def test_a_higher_incarnation_replaces_a_lower_one() -> None:
    """K1.2 A higher incarnation of a known id replaces the lower one."""
    party = met(3)
    party.die(2)
    party.pass_ms(200)
    party.restart(2)
    party.pass_ms(4000)
    assert party.reach() == [2, 2, 2]
    assert party.member(0, 2).life == 2


def test_an_old_disk_waits_for_the_newer_life_to_be_silent() -> None:
    """K1.2 A lower one is refused while the higher one is alive. If that is silent for
    `cluster-node-timeout`, the lower one replaces it, as for a node restored from an old disk."""
    party = met(2)
    party.die(1)
    party.restart(1)
    party.restart(1)
    party.pass_ms(3000)
    assert party.member(0, 1).life == 3
    old = Guest(1, party.now_ms, 2)
    old.bus_port = 17_050
    party.guests.append(old)
    old.number = 2
    party.guests[0].members.meet("127.0.0.1", 7050, 17_050)
    party.pass_ms(1000)
    assert party.member(0, 1).life == 3
    is_refused = "a newer incarnation of this node is alive: it is at 127.0.0.1:7001"
    assert is_refused in party.guests[0].refusals
    party.die(1)
    party.guests[0].members.meet("127.0.0.1", 7050, 17_050)
    party.pass_ms(3000)
    assert party.member(0, 1).life == 2


def test_slots_are_told_before_they_are_used() -> None:
    """K2.1 In memory a node is a slot number, and a set of nodes is a bit set.

    K2.2 Before a message names a set, SLOTS says which node in which incarnation each number
    means.
    """
    party = met(3)
    a, b = party.guests[0], party.guests[1]
    mine = a.linked[party.guests[1]]
    a.n.peers[mine].told = 0
    mask = 1 | 1 << a.linked[party.guests[2]]
    introduce(a.n, mine, mask)
    said = a.n.peers[mine].outbox[-1]
    assert isinstance(said, Slots)
    party.turn(a)
    assert slots_of(translate(b.n, b.linked[a], mask)) == sorted(
        [b.linked[a], b.linked[party.guests[2]]]
    )


def test_meeting_one_is_meeting_all() -> None:
    """K3.2 A node learns of the others from the heartbeats of the node that it met; each dials
    each. Of two links between two nodes, the one dialled by the lower id stays."""
    party = met(5)
    for a in party.guests:
        for b in a.linked:
            assert party.member(a.number, b.number).by_lower
    party = Party(4)
    party.meet(0, 1)
    party.meet(1, 2)
    party.meet(2, 3)
    party.pass_ms(5000)
    assert party.reach() == [3, 3, 3, 3]


def test_a_meeting_shows_how_it_goes() -> None:
    """K3.1 `CLUSTER MEET host port` accepts names and addresses. The reply comes at once; `CLUSTER
    NODES` shows the handshake and why it failed."""
    party = Party(2)
    party.guests[1].is_up = False
    party.meet(0, 1)
    members = party.guests[0].members
    assert "handshake" in members.lines()
    party.pass_ms(500)
    assert "Connection refused" in members.lines()
    party.pass_ms(9_000)
    assert "Connection refused" in members.lines()
    dials = len(party.dials)
    party.pass_ms(5_000)
    assert len(party.dials) <= dials + 2
    party.pass_ms(60_000)
    assert members.lines() == ""


def test_dials_back_off() -> None:
    """K3.2 A dial that fails is repeated after 100, 200, 400 ms and so on, at most every 5 s."""
    party = met(2)
    party.die(1)
    party.dials = []
    party.pass_ms(60_000)
    gaps = [b - a for (a, _), (b, _) in zip(party.dials, party.dials[1:], strict=False)]
    assert gaps[0] <= 300
    assert max(gaps) <= 5_300
    assert 14 <= len(gaps) <= 25


def test_links_that_end_at_once_back_off_too() -> None:
    """K3.2 A link that ends within a second counts as a failed dial."""
    party = met(2)
    party.unlink(*party.guests)
    party.pass_ms(200)
    assert party.reach() == [1, 1]  # one that was steady is there again at once
    party.dials = []
    for _ in range(600):
        party.unlink(*party.guests)  # as a node does that hears who called
        party.pass_ms(100)
    assert 12 <= len(party.dials) <= 40


def test_silence_is_suspected_and_a_majority_calls_it_failed() -> None:
    """K4.1 A node that was silent for `cluster-node-timeout` is suspected. It has failed when more
    than half of all nodes, this one among them, have suspected it within twice that time. Its next
    heartbeat ends both."""
    party = met(3)
    party.die(2)
    party.pass_ms(TIMEOUT_MS // 2)
    assert not party.member(0, 2).is_suspected
    assert party.reach() == [1, 1, -1]  # without a link it is not reachable at once
    party.pass_ms(TIMEOUT_MS + 500)
    assert party.member(0, 2).is_suspected
    assert party.member(0, 2).is_failed
    assert party.member(1, 2).is_failed
    party.restart(2)
    party.pass_ms(6000)
    assert party.reach() == [2, 2, 2]
    assert not party.member(0, 2).is_failed


def test_one_of_two_is_never_failed() -> None:
    """In a cluster of two no other node can say so (K4.1)."""
    party = met(2)
    party.die(1)
    party.pass_ms(10_000)
    assert party.member(0, 1).is_suspected
    assert not party.member(0, 1).is_failed


def test_a_silent_link_is_closed() -> None:
    """K4.1 A link that was silent for twice the time is closed."""
    party = met(2)
    party.deaf.add((1, 0))
    party.pass_ms(int(1.5 * TIMEOUT_MS))
    assert party.reach()[0] == 0
    assert party.member(0, 1).is_linked
    assert party.closed == 0
    party.pass_ms(TIMEOUT_MS)
    assert party.closed == 1
    party.deaf.clear()
    party.pass_ms(7000)
    assert party.reach() == [1, 1]


def fails(party: Party, a: int, b: int) -> bool:
    """Whether node a knows that the journal of node b fails."""
    guest = party.guests[a]
    guest.n.now_ms = party.now_ms
    return bool(journal_fails(guest.n, party.member(a, b).slot))


def test_a_journal_that_fails_is_told() -> None:
    """K4.5 A heartbeat says whether the journal of its sender cannot be written (J6); a change is
    sent at once. What a node said so holds until it says that the journal works, or for twice
    `cluster-node-timeout`."""
    party = met(3)
    records = Records(party.guests[1].n.node_ids)
    party.guests[1].n.records = records
    party.pass_ms(500)
    assert not fails(party, 0, 1) and not fails(party, 2, 1)
    records.is_failing = True
    party.pass_ms(50)
    assert fails(party, 0, 1) and fails(party, 2, 1) and party.reach() == [2, 2, 2]
    records.is_failing = False
    party.pass_ms(50)
    assert not fails(party, 0, 1) and not fails(party, 2, 1)
    records.is_failing = True
    party.pass_ms(50)
    party.die(1)
    party.pass_ms(2 * TIMEOUT_MS - 100)
    assert fails(party, 0, 1)
    party.pass_ms(200)
    assert not fails(party, 0, 1)


def test_who_only_says_that_its_journal_fails_is_silent() -> None:
    """K4.5 It does not end the silence of its sender; a node that begins a link with it is
    suspected at once."""
    party = met(2)
    members, member = party.guests[0].members, party.member(0, 1)
    only = Heartbeat(0, 0, FAILING, 0, [])
    heard_ms, port = member.heard_ms, member.port
    party.deaf.add((1, 0))
    for _ in range(3):
        party.pass_ms(TIMEOUT_MS // 4)
        members.on_heartbeat(member.slot, only)
        assert not member.is_suspected and fails(party, 0, 1)
    party.pass_ms(TIMEOUT_MS // 2)
    assert member.is_suspected and fails(party, 0, 1)
    assert (member.heard_ms, member.port) == (heard_ms, port)
    party.pass_ms(TIMEOUT_MS + 50)
    assert party.closed == 1
    while party.reach()[0] != 1:  # the link is there again, and nothing has come over it
        party.pass_ms(50)
    members.on_heartbeat(member.slot, only)
    assert member.is_linked and member.is_suspected and party.reach()[0] == 0
    party.deaf.clear()
    party.pass_ms(TIMEOUT_MS)
    assert not member.is_suspected and not fails(party, 0, 1)


def test_who_is_reachable() -> None:
    """K4.2 A node is reachable if it is linked and is not suspected, failed, leaving or loading.

    K4.3 The default of REPLICATE counts the reachable nodes and this one, unless it takes no
    copies (R1.5).
    """
    party = met(3)
    party.guests[1].n.is_leaving = True
    party.pass_ms(500)
    assert party.reach() == [1, 2, 1]
    party.guests[1].n.is_leaving = False
    party.guests[1].n.is_loading = True
    party.pass_ms(500)
    assert party.reach() == [1, 2, 1]
    from tuque.core.copies.add import settle
    from tuque.core.model.job import AddSpec

    assert settle(party.guests[0].n, AddSpec()).replicate == 2
    party.guests[0].n.is_leaving = True
    assert settle(party.guests[0].n, AddSpec()).replicate == 1


def test_heartbeats_answer_each_other() -> None:
    """K4.1 A heartbeat goes over each link ten times per `cluster-node-timeout`, every 100 ms to 1
    s, with a rising number and the newest number received from that peer."""
    party = met(2)
    a, b = party.guests
    before = a.members.sent
    party.pass_ms(2000)
    assert 18 <= a.members.sent - before <= 21
    peer = a.n.peers[a.linked[b]]
    assert a.n.round - 3 <= peer.echoed_round <= a.n.round


def test_forgetting_spreads_and_stays() -> None:
    """K6.1 The node is removed under a number, odd for out and even for in, which spreads with the
    heartbeats. A lower number never brings the node back."""
    party = met(4)
    party.die(3)
    gone = party.guests[3].n.node_id
    assert party.guests[0].members.forget(gone)
    assert not party.guests[0].members.forget(gone)
    party.pass_ms(1000)
    for number in (0, 1, 2):
        one = party.guests[number].members.by_id[gone]
        assert one.is_forgotten()
        assert party.guests[number].n.forgotten >> one.slot & 1
        assert gone.decode() not in party.guests[number].members.lines()
    party.restart(3, is_empty=False)
    party.pass_ms(5000)
    assert party.reach() == [2, 2, 2, 0]
    assert any("was forgotten" in text for text in party.guests[3].refusals)


def test_a_forgotten_node_comes_back_empty_or_not_at_all() -> None:
    """K6.3 A forgotten node joins with a higher number when it is met again, but only in a new
    incarnation that began without jobs: nobody could say any more whether the jobs that it kept
    were acked."""
    party = met(3)
    party.die(2)
    party.guests[0].members.forget(party.guests[2].n.node_id)
    party.pass_ms(500)
    party.restart(2, is_empty=False)
    party.meet(0, 2)
    party.pass_ms(3000)
    assert party.reach()[:2] == [1, 1]
    assert "may have jobs of before" in party.guests[0].members.lines()
    party.die(2)
    party.restart(2)
    party.meet(0, 2)
    party.pass_ms(5000)
    assert party.reach() == [2, 2, 2]
    assert party.member(1, 2).number == 2
    assert party.guests[1].n.forgotten == 0


@pytest.mark.parametrize("meets", [(0, 2), (2, 0)])
def test_a_reset_node_is_alone_until_it_is_met(meets: tuple[int, int]) -> None:
    """K6.3 A reset node (CLUSTER RESET) also has a new incarnation, and the others do not count it
    as a member until one of them meets it. One MEET on either side is enough: the node that was
    met, or meets it, names its other members to the reset node."""
    party = met(3)
    guest = party.guests[2]
    guest.members.forget_all()
    guest.members.renew(2, b"new-mark")
    party.pass_ms(8000)
    assert party.reach() == [1, 1, 0]
    assert guest.members.lines() == ""
    party.meet(*meets)
    party.pass_ms(8000)
    assert party.reach() == [2, 2, 2]


def test_priorities() -> None:
    """K8.1 without a link 5; suspected 10; failed, leaving or in conflict (K1.3) 100. Nodes
    in handshake are not listed."""
    party = met(3)
    one = party.member(0, 2)
    assert one.priority() == 1
    party.guests[2].n.is_leaving = True
    party.pass_ms(300)
    assert one.priority() == 100
    party.guests[2].n.is_leaving = False
    party.pass_ms(300)
    party.break_up(0, 2)
    assert one.priority() == 5
    party.pass_ms(1500)
    assert one.priority() == 10
    party.die(2)
    party.pass_ms(2500)
    assert one.priority() == 100
