"""SPEC W15.4: a client whose own timeout is short still gets what other nodes know."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_w_away import FIELDS, MAKER, NOREACH, made_there
from test_w_dropped import WHOLE, dropped_here, linked, told

from tuque.core.dispatch.messages import on_message
from tuque.core.msgs.bus import GotAck, JobTold
from world import World

RUNNING = [b"running", *FIELDS]
DONE = [b"done", *FIELDS]


@pytest.mark.parametrize("wait_ms", [1, 300])
def test_a_short_wait_gets_the_answer_of_another_node(world: World, wait_ms: int) -> None:
    """W15.4 RESULT without WAIT and CANCEL wait for the answers one second at most; so do RESULT
    with WAIT and WAITJOB with a shorter timeout, which bounds the wait for the end only.
    """
    maker = linked(world, MAKER)
    over, open = made_there(world.n), made_there(world.n, b"more")
    ends, both, late = world.wire(), world.wire(), world.wire()
    assert world.run("RESULT", over, "WAIT", wait_ms) is None
    assert late("RESULT", open, "WAIT", wait_ms) is None
    assert ends("WAITJOB", wait_ms, over) is None
    assert both("WAITJOB", wait_ms, over, open) is None
    world.pass_ms(400)
    assert all(one.hear() == b"" for one in (world.run, ends, both, late))
    on_message(world.n, maker, JobTold(over, True, 0, True, DONE))
    world.settle()
    assert world.run.take()[1] == b"done"
    assert ends.take() == [[over, b"done"]]
    assert both.hear() == b"" and late.hear() == b""
    on_message(world.n, maker, JobTold(open, True, 0, False, RUNNING))
    world.settle()
    assert both.take() == [[over, b"done"]]
    assert late.take()[1] == b"running"
    assert not world.n.life.asking and not world.n.life.watches


def test_a_short_wait_ends_with_its_timeout(world: World) -> None:
    """W9.1 or at the timeout with the state of that moment"""
    maker = linked(world, MAKER)
    id = made_there(world.n)
    assert world.run("RESULT", id, "WAIT", 300) is None
    on_message(world.n, maker, JobTold(id, True, 0, False, RUNNING))
    world.pass_ms(299)
    assert world.run.hear() == b""
    world.pass_ms(1)
    assert world.run.take()[1] == b"running"


def test_a_short_wait_for_a_node_that_does_not_answer(world: World) -> None:
    """W15.4 RESULT without WAIT and CANCEL wait for the answers one second at most."""
    linked(world, MAKER)
    id = made_there(world.n)
    ends = world.wire()
    assert world.run("RESULT", id, "WAIT", 1) is None
    assert ends("WAITJOB", 1, id) is None
    world.pass_ms(999)
    assert world.run.hear() == ends.hear() == b""
    world.pass_ms(1)
    assert world.run.take() == NOREACH
    assert ends.take() == []
    assert not world.n.life.asking and not world.n.life.watches


def test_a_short_wait_for_a_result_that_was_dropped_here(world: World) -> None:
    """W15.4 so do RESULT with WAIT and WAITJOB with a shorter timeout, which bounds the wait for
    the end only.
    """
    one = linked(world, MAKER)
    id = dropped_here(world, one)
    assert world.run("RESULT", id, "WAIT", 1) is None
    world.pass_ms(500)
    assert world.run.hear() == b""
    on_message(world.n, one, JobTold(id, True, 0, True, WHOLE))
    world.settle()
    assert told(world.run) == (b"42", b"")


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_a_short_wait_for_an_end_that_is_not_confirmed(world: World, is_confirmed: bool) -> None:
    """W15.4 Likewise for holders yet to confirm an end (W14.13)."""
    one = linked(world, MAKER)
    id = world.add(KEEP=600, REPLICATE=1)
    world.n.jobs[id].holders |= 1 << one
    world.get()
    assert world.run("DONE", id, "-", "RESULT", "42") == 1
    ends = world.wire()
    assert world.run("RESULT", id, "WAIT", 1) is None
    assert ends("WAITJOB", 1, id) is None
    world.pass_ms(500)
    assert world.run.hear() == ends.hear() == b""
    if is_confirmed:
        on_message(world.n, one, GotAck(id, True, 1))
        world.settle()
        assert told(world.run) == (b"42", b"")
        assert ends.take() == [[id, b"done"]]
    else:
        world.pass_ms(500)
        assert world.run.take()[1] == b"waiting"
        assert ends.take() == []


def test_a_short_wait_for_a_dropped_result_whose_end_is_not_confirmed(world: World) -> None:
    """W15.4 Likewise for holders yet to confirm an end (W14.13)."""
    one = linked(world, MAKER)
    id = world.add(KEEP=600, REPLICATE=1)
    world.n.jobs[id].holders |= 1 << one
    world.get()
    assert world.run("DONE", id, "-", "RESULT", "x" * 1_000) == 1
    assert world.n.life.thin_result()
    assert world.run("RESULT", id, "WAIT", 1) is None
    world.pass_ms(100)
    on_message(world.n, one, GotAck(id, True, 1))
    world.settle()
    assert world.run.hear() == b"", "now the holder is asked for the result"
    on_message(world.n, one, JobTold(id, True, 0, True, WHOLE))
    world.settle()
    assert told(world.run) == (b"42", b"")


def test_a_node_that_cannot_write_names_itself(make_world: Callable[..., World]) -> None:
    """W15.5 While the journal of this node cannot be written, the reply names that instead
    (J6.6).
    """
    world = make_world(journal="always")
    linked(world, MAKER)
    id = made_there(world.n)
    world.disk().full()
    world.wire().send("ADDJOB", "q", "body", 0, "REPLICATE", 1)
    records = world.n.records
    world.until(lambda: records.is_failing)
    assert world.run("RESULT", id) is None
    world.pass_ms(1000)
    assert world.run.take() == (
        "NOREACH Job or its result is not here, and may be at another node: what this node asks "
        "them waits for its journal, which cannot be written: see journal_error in INFO, or ask "
        "another node"
    )
