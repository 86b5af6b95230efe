"""SPEC W15.4: a client whose own timeout is short still gets what other nodes know."""

from __future__ import annotations

import pytest
from node_by_hand import Box
from test_w_away import FIELDS, MAKER, NOREACH, linked, made_there
from test_w_dropped import WHOLE, dropped_here, told

from tuque.core.dispatch.messages import on_message
from tuque.core.msgs import GotAck, JobTold
from tuque.core.records.jobs import Records

RUNNING = [b"running", *FIELDS]
DONE = [b"done", *FIELDS]


@pytest.mark.parametrize("wait_ms", [1, 300])
def test_a_short_wait_gets_the_answer_of_another_node(box: Box, wait_ms: int) -> None:
    """W15.4 RESULT without WAIT and CANCEL wait for the answers one second at most. So do RESULT
    with WAIT and WAITJOB whose timeout is shorter: it bounds the wait for the end of a job, not for
    what other nodes know of it now.
    """
    maker = linked(box, MAKER)
    over, open = made_there(box.n), made_there(box.n, b"more")
    ends, both, late = box.session(), box.session(), box.session()
    assert box.run("RESULT", over, "WAIT", wait_ms) is None
    assert late("RESULT", open, "WAIT", wait_ms) is None
    assert ends("WAITJOB", wait_ms, over) is None
    assert both("WAITJOB", wait_ms, over, open) is None
    box.pass_ms(400)
    assert all(one.raw() == b"" for one in (box.run, ends, both, late))
    on_message(box.n, maker, JobTold(over, True, 0, True, DONE))
    box.turn()
    assert box.run.take()[1] == b"done"
    assert ends.take() == [[over, b"done"]]
    assert both.raw() == b"" and late.raw() == b""
    on_message(box.n, maker, JobTold(open, True, 0, False, RUNNING))
    box.turn()
    assert both.take() == [[over, b"done"]]
    assert late.take()[1] == b"running"
    assert not box.n.life.asking and not box.n.life.watches


def test_a_short_wait_ends_with_its_timeout(box: Box) -> None:
    """W9.1 or at the timeout with the state of that moment"""
    maker = linked(box, MAKER)
    id = made_there(box.n)
    assert box.run("RESULT", id, "WAIT", 300) is None
    on_message(box.n, maker, JobTold(id, True, 0, False, RUNNING))
    box.pass_ms(299)
    assert box.run.raw() == b""
    box.pass_ms(1)
    assert box.run.take()[1] == b"running"


def test_a_short_wait_for_a_node_that_does_not_answer(box: Box) -> None:
    """W15.4 RESULT without WAIT and CANCEL wait for the answers one second at most."""
    linked(box, MAKER)
    id = made_there(box.n)
    ends = box.session()
    assert box.run("RESULT", id, "WAIT", 1) is None
    assert ends("WAITJOB", 1, id) is None
    box.pass_ms(999)
    assert box.run.raw() == ends.raw() == b""
    box.pass_ms(1)
    assert box.run.take() == NOREACH
    assert ends.take() == []
    assert not box.n.life.asking and not box.n.life.watches


def test_a_short_wait_for_a_result_that_was_dropped_here(box: Box) -> None:
    """W15.4 it bounds the wait for the end of a job, not for what other nodes know of it now."""
    one = linked(box, MAKER)
    id = dropped_here(box, one)
    assert box.run("RESULT", id, "WAIT", 1) is None
    box.pass_ms(500)
    assert box.run.raw() == b""
    on_message(box.n, one, JobTold(id, True, 0, True, WHOLE))
    box.turn()
    assert told(box.run) == (b"42", b"")


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_a_short_wait_for_an_end_that_is_not_confirmed(box: Box, is_confirmed: bool) -> None:
    """W15.4 They do likewise for holders that have not confirmed an end (W14.13)."""
    one = linked(box, MAKER)
    id = box.add(KEEP=600, REPLICATE=1)
    box.n.jobs[id].holders |= 1 << one
    box.get()
    assert box.run("DONE", id, "-", "RESULT", "42") == 1
    ends = box.session()
    assert box.run("RESULT", id, "WAIT", 1) is None
    assert ends("WAITJOB", 1, id) is None
    box.pass_ms(500)
    assert box.run.raw() == ends.raw() == b""
    if is_confirmed:
        on_message(box.n, one, GotAck(id, True, 1))
        box.turn()
        assert told(box.run) == (b"42", b"")
        assert ends.take() == [[id, b"done"]]
    else:
        box.pass_ms(500)
        assert box.run.take()[1] == b"waiting"
        assert ends.take() == []


def test_a_short_wait_for_a_dropped_result_whose_end_is_not_confirmed(box: Box) -> None:
    """W15.4 They do likewise for holders that have not confirmed an end (W14.13)."""
    one = linked(box, MAKER)
    id = box.add(KEEP=600, REPLICATE=1)
    box.n.jobs[id].holders |= 1 << one
    box.get()
    assert box.run("DONE", id, "-", "RESULT", "x" * 1_000) == 1
    assert box.n.life.thin_result()
    assert box.run("RESULT", id, "WAIT", 1) is None
    box.pass_ms(100)
    on_message(box.n, one, GotAck(id, True, 1))
    box.turn()
    assert box.run.raw() == b"", "now the holder is asked for the result"
    on_message(box.n, one, JobTold(id, True, 0, True, WHOLE))
    box.turn()
    assert told(box.run) == (b"42", b"")


def test_a_node_that_cannot_write_names_itself(box: Box) -> None:
    """W15.5 While the journal of this node cannot be written, the reply names that instead: what
    others are asked may wait for it (J6.6)."""
    linked(box, MAKER)
    id = made_there(box.n)
    box.n.records = Records(box.n.node_ids)
    box.n.records.is_failing = True
    assert box.run("RESULT", id) is None
    box.pass_ms(1000)
    assert box.run.take() == (
        "NOREACH Job or its result is not here, and may be at another node: what this node asks "
        "them waits for its journal, which cannot be written: see journal_error in INFO, or ask "
        "another node"
    )
