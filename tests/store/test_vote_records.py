"""Records of votes survive encoding; what is none is refused (SPEC T22)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journal_lab import decode_all

from tuque.core.records import jobs as rec
from tuque.core.records import read as back
from tuque.core.records.leadership import (
    VoteRecord,
    tell_marks,
    tell_next,
    tell_stand,
    tell_voters,
)
from tuque.server.journal.tool import fields
from tuque.tubes.model.voter_state import IN_FORCE

IDS = st.binary(min_size=40, max_size=40)
I64 = st.integers(0, 2**63 - 1)
ABOVE_0 = st.integers(1, 2**63 - 1)
NEXT = ("number", "attempt", "written_attempt", "origin", "node", "written_node", "voters")
STANDS = ("epoch", "whole_epoch", "whole_seq", "made_ns", "maker", "node", "name")


@st.composite
def votes(draw: st.DrawFn) -> VoteRecord:
    r = VoteRecord()
    r.number = draw(ABOVE_0)
    r.right = draw(I64)
    r.step = draw(st.integers(1, 2))
    r.origin = draw(st.binary(min_size=16, max_size=16))
    r.voters = draw(st.lists(st.tuples(IDS, ABOVE_0), min_size=1, max_size=62))
    r.epoch, r.whole_epoch, r.whole_seq, r.made_ns = (draw(I64) for _ in range(4))
    r.maker, r.node, r.written_node = draw(IDS), draw(IDS), draw(IDS)
    r.attempt, r.written_attempt = draw(I64), draw(I64)
    r.mark = draw(I64)
    r.marks = draw(st.lists(st.tuples(IDS, ABOVE_0, I64), max_size=62))
    r.name = draw(st.binary(min_size=1, max_size=512))
    return r


@given(votes())
def test_votes_come_back(r: VoteRecord) -> None:
    """T22.1 voters: the list, the right of this node."""
    records = rec.Records()
    tell_voters(records, r)
    tell_stand(records, r)
    tell_next(records, r)
    assert records.count == records.binding_count == 3
    voters, stand, after = decode_all(records.take())
    assert (voters.kind, stand.kind, after.kind) == (rec.VOTERS, rec.TUBE_STAND, rec.VOTERS_NEXT)
    for name in NEXT:
        assert getattr(after.vote, name) == getattr(r, name), name
    for name in ("number", "right", "step", "origin", "voters"):
        assert getattr(voters.vote, name) == getattr(r, name), name
    for name in STANDS:
        assert getattr(stand.vote, name) == getattr(r, name), name


@given(votes())
def test_marks_come_back(r: VoteRecord) -> None:
    """T22.1 vote-marks: its disk epoch, those of others."""
    records = rec.Records()
    tell_marks(records, r)
    assert (records.count, records.binding_count) == (1, 0), "no reply waits for it"
    (marks,) = decode_all(records.take())
    assert marks.kind == rec.VOTE_MARKS
    for name in ("right", "mark", "marks"):
        assert getattr(marks.vote, name) == getattr(r, name), name


def one_vote() -> VoteRecord:
    """A list of two, and a vote."""
    r = VoteRecord()
    r.number, r.right, r.step, r.origin = 1, 1, IN_FORCE, b"o" * 16
    r.voters = [(b"a" * 40, 1), (b"b" * 40, 2)]
    r.epoch, r.maker, r.node, r.name = 5, b"a" * 40, b"b" * 40, b"t"
    r.attempt, r.written_attempt, r.written_node = 9, 8, b"a" * 40
    r.mark, r.marks = 7, [(b"b" * 40, 2, 6)]
    return r


def test_a_vote_that_is_cut_is_refused() -> None:
    """J2: a record whose own length is too small for its kind is no record."""
    for tell in (tell_voters, tell_stand, tell_next, tell_marks):
        records = rec.Records()
        tell(records, one_vote())
        whole = records.take()
        for size in range(1, len(whole) - 4):
            data = size.to_bytes(4, "little") + whole[4 : 4 + size]
            with pytest.raises(back.BadRecord):
                back.decode(data, 0, back.Record())


@pytest.mark.parametrize(
    ("name", "value"),
    [("number", 0), ("right", -1), ("step", 3), ("step", 0), ("voters", [(b"a" * 40, 0)])],
)
def test_a_list_that_cannot_be_is_refused(name: str, value: object) -> None:
    r = one_vote()
    setattr(r, name, value)
    records = rec.Records()
    tell_voters(records, r)
    with pytest.raises(back.BadRecord):
        back.decode(records.take(), 0, back.Record())


def test_votes_are_shown() -> None:
    """`tuque journal show` prints the list and the vote."""
    records = rec.Records()
    tell_voters(records, one_vote())
    tell_stand(records, one_vote())
    tell_next(records, one_vote())
    tell_marks(records, one_vote())
    voters, stand, after, marks = map(fields, decode_all(records.take()))
    assert (marks["record"], marks["mark"], marks["others"]) == ("vote-marks", 7, ["bbbbbbbb:2:6"])
    assert (after["record"], after["attempt"], after["written"]) == ("voters-next", 9, 8)
    assert (voters["record"], voters["list"], voters["is_in_force"]) == ("voters", 1, True)
    assert voters["voters"] == ["aaaaaaaa:1", "bbbbbbbb:2"]
    assert (stand["record"], stand["tube"], stand["epoch"]) == ("tube-stand", "t", 5)
    assert stand["stands_with"] == "bbbbbbbb"
