"""Of which lists the voters choose the leader of a tube (SPEC T23.4, T23.7)."""

from __future__ import annotations

from tubes_world import VotesWorld

from tuque.core.node.node import Node
from tuque.core.records.jobs import Records
from tuque.core.records.read import Record, decode
from tuque.tubes.log.vote_state import VoteLog, record_family, record_voters, tell_votes
from tuque.tubes.model.tube import NO_FAMILY, Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.model.voter_state import NO_JOURNAL, SOLO, Voters, voters_in
from tuque.tubes.types.driver import Absent

A, B = b"a" * 40, b"b" * 40
GROWN = Voters(4, b"grown---" + bytes(8), {A: 1, B: 2})
OWN = voters_in(1, b"own-----" + bytes(8), [(A, 1, b"d" * 8)], SOLO | NO_JOURNAL)


def tube_of(family: bytes) -> Tube:
    """A tube whose leader these voters choose."""
    tube = Tube(b"t", 0, 0, 1, b"fifo", Absent())
    tube.led_by_votes = True
    tube.maker = A
    tube.take_family(family, 0, 0)
    return tube


def read_back(records: Records) -> VoteLog:
    """What a node that starts finds in these records."""
    log, data, at = VoteLog(), records.take(), 0
    while at < len(data):
        r = Record()
        at = decode(data, at, r)
        assert r.row is not None
        log.apply(r.row)
    return log


def test_the_list_of_a_tube() -> None:
    t = Tubes(b"seed")
    b = t.voter_state
    b.voters, b.own = GROWN, OWN
    assert b.list_of(tube_of(GROWN.family)) is GROWN
    assert b.list_of(tube_of(OWN.family)) is OWN
    assert b.list_of(tube_of(b"another-")) is None
    assert b.list_of(tube_of(NO_FAMILY)) is None


def test_more_moves_then_the_higher_number_count() -> None:
    tube = tube_of(b"first---")
    assert tube.take_family(b"second--", 1, 7)
    assert not tube.take_family(b"first---", 0, 0)
    assert tube.take_family(b"second--", 1, 8)
    assert not tube.take_family(b"second--", 1, 7)
    assert tube.take_family(b"second--", 1, 0)  # it has been led there
    assert not tube.take_family(b"second--", 1, 9)
    assert (tube.family, tube.moves, tube.from_number) == (b"second--", 1, 0)


def test_lists_and_families_outlive_a_restart() -> None:
    t, tube, records = Tubes(b"seed"), tube_of(b"second--"), Records()
    tube.moves, tube.from_number = 2, 5
    b = t.voter_state
    b.voters, b.own, b.right = GROWN, OWN, 3
    t.by_name[tube.name] = tube
    tell_votes(t, records)
    log, after = read_back(records), Tubes(b"seed")
    log.restore_voters(Node(A, b"seed", 0), after)
    found = after.voter_state
    assert found.voters is not None and found.own is not None
    assert (found.voters.rows(), found.voters.is_solo, found.right) == (GROWN.rows(), False, 3)
    assert (found.own.origin, found.own.flags()) == (OWN.origin, SOLO | NO_JOURNAL)
    restored = tube_of(NO_FAMILY)
    log.restore_family(restored, False)
    assert (restored.family, restored.moves, restored.from_number) == (b"second--", 2, 5)


def test_a_solo_list_in_force_outlives_a_restart() -> None:
    t, records = Tubes(b"seed"), Records()
    t.voter_state.voters = OWN
    record_voters(records, t.voter_state, OWN)
    log = read_back(records)
    assert log.own is None and log.voters is not None
    assert (log.voters.rows(), log.voters.flags()) == (OWN.rows(), OWN.flags())


def test_older_journals_have_the_list_alone() -> None:
    """A tube is the one of that list, unless voters of another list chose its leader."""
    t, records = Tubes(b"seed"), Records()
    t.voter_state.voters = GROWN
    record_voters(records, t.voter_state, GROWN)
    record_family(records, tube_of(b"another-"))
    log = read_back(records)
    log.families = {}
    ours, theirs = tube_of(NO_FAMILY), tube_of(NO_FAMILY)
    log.restore_family(ours, False)
    log.restore_family(theirs, True)
    assert (ours.family, theirs.family) == (GROWN.family, NO_FAMILY)


def test_every_node_knows_the_family_of_a_new_tube() -> None:
    world = VotesWorld(3)
    voters = world.t(0).voter_state.in_force()
    assert voters is not None
    world.restart(2)
    world.pass_ms(1_000)
    assert {world.tube(i).family for i in range(3)} == {voters.family}
