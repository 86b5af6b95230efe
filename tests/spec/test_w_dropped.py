"""SPEC W7.5, W15.10: a result that one node has dropped, and others may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuque.core.dispatch.messages import on_link_down, on_link_up, on_message
from tuque.core.life.lookup import LOOK, SHARED
from tuque.core.life.outcomes import is_agreed, on_done
from tuque.core.life.shown import own_fields
from tuque.core.model.job_id import IdMaker
from tuque.core.model.work import Terms
from tuque.core.msgs.bus import GotAck, JobAsk, JobTold
from tuque.core.node.peers import slot_for
from world import World
from world_lives import add, stranger
from world_wires import Wire

Make = Callable[..., World]

KEPT = Terms(0, 0, 0, 0, b"", 600_000, 0)
DROPPED = [b"done", 1, 0, b"w", b"", None, b"", b"its result was dropped", b"", 1]
WHOLE = [b"done", 1, 0, b"w", b"", b"42", b"", b"", b"", 1]
WHY = b"its result of 1000 bytes was dropped: memory was short"
ONE, OTHER = b"b" * 40, b"c" * 40
NOREACH = (
    "NOREACH Job is done, but its result is not here, and may be at a node that did not answer: "
)


def linked(world: World, node_id: bytes) -> int:
    """The slot of a node that is linked."""
    slot = slot_for(world.n, node_id)
    world.n.others |= 1 << slot
    on_link_up(world.n, slot, True)
    return slot


def dropped_here(world: World, *holders: int) -> bytes:
    """A job that is done, and whose result this node has dropped; all `holders` know its end."""
    id = world.add(KEEP=600, REPLICATE=1)
    for slot in holders:
        world.n.jobs[id].holders |= 1 << slot
    world.get()
    assert world.run("DONE", id, "-", "RESULT", "x" * 1_000) == 1
    for slot in holders:
        on_message(world.n, slot, GotAck(id, True, 1))
    assert is_agreed(world.n, id)
    assert world.n.life.thin_result()
    return id


def told(session: Wire) -> tuple[bytes | None, bytes]:
    """Result and reason of the reply to RESULT."""
    flat: Any = session.take()
    assert isinstance(flat, list), flat
    found = dict(zip(flat[::2], flat[1::2], strict=True))
    assert found[b"state"] == b"done"
    return found[b"result"] if isinstance(found[b"result"], bytes) else None, found[b"reason"]


@pytest.mark.parametrize("words", [(), ("WAIT", 0), ("WAIT", 9_000)])
def test_another_holder_has_the_result(world: World, words: tuple[str | int, ...]) -> None:
    """W15.10 A result that this node has dropped (W7.4, M3.4), for memory or its bound, may be kept
    elsewhere. RESULT asks all linked nodes for it, one second at most, also at the end of WAIT; it
    takes an answer without the result only if none has it.
    """
    n = world.n
    id = dropped_here(world)
    one, other = linked(world, b"b" * 40), linked(world, b"c" * 40)
    assert world.run("RESULT", id, *words) is None
    on_message(n, one, JobTold(id, True, 0, True, DROPPED))
    world.settle()
    assert world.run.hear() == b"", "the other one may have it"
    on_message(n, other, JobTold(id, True, 0, True, WHOLE))
    world.settle()
    assert told(world.run) == (b"42", b"")
    assert not n.life.asking
    assert world.run("RESULT", id, *words) is None
    on_message(n, one, JobTold(id, True, 0, True, DROPPED))
    on_message(n, other, JobTold(id, False, 0, False))
    world.settle()
    assert told(world.run) == (None, WHY), "nobody has it"


def test_a_holder_that_does_not_answer_may_have_it(world: World) -> None:
    """W15.10 If none that answers has it, and a member is not in reach or does not answer, the
    result may be there. RESULT replies `-NOREACH Job is done, but its result is not here, and may
    be at a node that did not answer: <id>[, <id>]`, and with WAIT it waits for that node until the
    timeout. WAITJOB needs no result.
    """
    n = world.n
    one, other = linked(world, ONE), linked(world, OTHER)
    id = dropped_here(world, one, other)
    brief, waiter = world.wire(), world.wire()
    assert world.run("RESULT", id) is None
    assert brief("RESULT", id, "WAIT", 2_500) is None
    assert waiter("RESULT", id, "WAIT", 0) is None
    on_message(n, one, JobTold(id, False, 0, False))
    world.pass_ms(900)
    assert world.run.hear() == b""
    world.pass_ms(200)
    assert world.run.take() == NOREACH + OTHER.decode(), "it is linked, and does not answer"
    on_link_down(n, other)
    on_message(n, one, JobTold(id, False, 0, False))
    world.pass_ms(1_000)
    assert brief.hear() == b""
    world.pass_ms(500)
    assert brief.take() == NOREACH + OTHER.decode()
    on_link_down(n, one)
    assert brief("RESULT", id) == f"{NOREACH}{ONE.decode()}, {OTHER.decode()}"
    assert brief("RESULT", id, "WAIT", 2_500) is None, "there is nobody to ask"
    assert world.run("WAITJOB", 0, id) == [[id, b"done"]]
    world.pass_ms(60_000)
    assert brief.take() == f"{NOREACH}{ONE.decode()}, {OTHER.decode()}"
    assert waiter.hear() == b""
    on_link_up(n, other, True)
    world.pass_ms(1_000)
    on_message(n, other, JobTold(id, True, 0, True, WHOLE))
    world.settle()
    assert told(waiter) == (b"42", b"")


def test_a_result_that_nobody_has_is_lost(world: World) -> None:
    """W15.10 It is lost if all members have answered, or if the job had no other holder when it
    ended: then RESULT replies the state `done`, no result, and the reason.
    """
    n = world.n
    one, other = linked(world, ONE), linked(world, OTHER)
    shared, alone = dropped_here(world, one), dropped_here(world)
    waiter = world.wire()
    assert waiter("RESULT", shared, "WAIT", 0) is None
    on_message(n, one, JobTold(shared, True, SHARED, True, DROPPED))
    on_link_down(n, other)
    assert world.run("RESULT", alone, "WAIT", 0) is None
    on_message(n, one, JobTold(alone, False, 0, False))
    world.settle()
    assert told(world.run) == (None, WHY)
    assert waiter.hear() == b""
    on_link_up(n, other, True)
    world.pass_ms(1_000)
    on_message(n, one, JobTold(shared, True, SHARED, True, DROPPED))
    assert waiter.hear() == b""
    on_message(n, other, JobTold(shared, False, 0, False))
    world.settle()
    assert told(waiter) == (None, WHY)


@pytest.mark.parametrize("became", [0, SHARED])
def test_a_node_without_the_job_hears_that_the_result_was_dropped(
    world: World, became: int
) -> None:
    """W15.10 If none that answers has it, and a member is not in reach or does not answer, the
    result may be there.
    """
    n = world.n
    one, other = linked(world, ONE), linked(world, OTHER)
    id = IdMaker(ONE, b"seed", n.ids.key).make(60, 1)
    on_link_down(n, other)
    ends, waiter = world.wire(), world.wire()
    assert world.run("RESULT", id) is None and waiter("RESULT", id, "WAIT", 0) is None
    assert ends("WAITJOB", 0, id) is None
    on_message(n, one, JobTold(id, True, became, True, DROPPED))
    world.settle()
    assert ends.take() == [[id, b"done"]]
    if became == 0:
        assert told(world.run) == told(waiter) == (None, DROPPED[7])
        return
    assert world.run.take() == NOREACH + OTHER.decode()
    assert waiter.hear() == b""
    on_link_up(n, other, True)
    world.pass_ms(1_000)
    on_message(n, one, JobTold(id, True, became, True, DROPPED))
    on_message(n, other, JobTold(id, True, 0, True, WHOLE))
    world.settle()
    assert told(waiter) == (b"42", b"")


def test_a_holder_says_whether_others_may_have_the_result(world: World) -> None:
    """W15.10 or if the job had no other holder when it ended"""
    one = linked(world, ONE)
    for id, became in ((dropped_here(world, one), SHARED), (dropped_here(world), 0)):
        world.n.peers[one].outbox = []
        on_message(world.n, one, JobAsk(id, LOOK, b""))
        (answer,) = world.n.peers[one].outbox
        assert isinstance(answer, JobTold) and answer.became == became
        assert (answer.is_settled, answer.fields[0], answer.fields[5]) == (True, b"done", None)


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_wait_ends_with_the_result_of_another_holder(world: World, is_frozen: bool) -> None:
    """W15.10 RESULT asks all linked nodes for it, one second at most, also at the end of WAIT"""
    n = world.n
    world.run("CONFIG", "SET", "results-max-bytes", 10_000)
    id = world.add(KEEP=600)
    world.get()
    one = linked(world, b"b" * 40)
    waiter, other = world.wire(), world.wire()
    assert waiter("RESULT", id, "WAIT", 0) is None
    assert other("WAITJOB", 0, id) is None
    assert world.run("DONE", id, "-", "RESULT", "x" * 20_000).startswith("ERR the job is done")
    world.settle()
    assert other.take() == [[id, b"done"]], "that needs no result"
    assert waiter.hear() == b""
    if is_frozen:
        world.pass_ms(900)
        assert waiter.hear() == b""
        world.pass_ms(200)
        result, reason = told(waiter)
        assert result is None and reason.endswith(b"too large for results-max-bytes")
        return
    on_message(n, one, JobTold(id, True, 0, True, WHOLE))
    world.settle()
    assert told(waiter) == (b"42", b"")


def test_the_first_answer_lacks_the_result(world: World) -> None:
    """W15.10 it takes an answer without the result only if none has it."""
    n = world.n
    one, other = linked(world, b"b" * 40), linked(world, b"c" * 40)
    id = IdMaker(b"b" * 40, b"seed", n.ids.key).make(60, 1)
    for last, found in ((WHOLE, (b"42", b"")), (DROPPED, (None, DROPPED[7]))):
        assert world.run("RESULT", id) is None
        on_message(n, one, JobTold(id, True, 0, True, DROPPED))
        world.settle()
        assert world.run.hear() == b""
        on_message(n, other, JobTold(id, True, 0, True, last))
        world.settle()
        assert told(world.run) == found


@pytest.mark.parametrize("where", ["holder", "stranger"])
def test_a_node_with_little_room_passes_a_result_on(make_world: Make, where: str) -> None:
    """W7.5 (cluster) Such a result goes to the other holders anyway, with the acks of that
    moment: each keeps it within its own `results-max-bytes`. So it does from a node without the
    job (W14.6).
    """
    world = make_world(4, journal="off")
    id = add(world, 0, retry_s=600, terms=KEPT)
    holders = world.holders(id)
    small = holders[1] if where == "holder" else stranger(world, id)
    mine = world.node(small).core
    mine.limits.results_bytes = 1_000
    assert on_done(mine, id, 0, b"x" * 9_000, 9) == (where == "holder")
    world.settle()
    world.pass_ms(3_000)
    for i in holders:
        found = own_fields(world.node(i).core, id)
        assert found is not None and found["state"] == b"done"
        assert found["result"] == (None if i == small else b"x" * 9_000)
    assert mine.life.in_hand is None
    assert mine.life.kept_bytes < 1_000
