"""SPEC W7.5, W15.10: a result that one node has dropped, and others may have."""

from __future__ import annotations

from typing import Any

import pytest
from node_by_hand import Box, Session

from cluster_lab import Lab
from tuque.core.dispatch.messages import on_link_down, on_link_up, on_message
from tuque.core.life.lookup import LOOK, SHARED
from tuque.core.life.outcomes import is_agreed, on_done, result_fields
from tuque.core.model.job_id import IdMaker
from tuque.core.model.work import Terms
from tuque.core.msgs import GotAck, JobAsk, JobTold
from tuque.core.node.peers import slot_for

KEPT = Terms(0, 0, 0, 0, b"", 600_000, 0)
DROPPED = [b"done", 1, 0, b"w", b"", None, b"", b"its result was dropped", b"", 1]
WHOLE = [b"done", 1, 0, b"w", b"", b"42", b"", b"", b"", 1]
WHY = b"its result of 1000 bytes was dropped: memory was short"
ONE, OTHER = b"b" * 40, b"c" * 40
NOREACH = (
    "NOREACH Job is done, but its result is not here, and may be at a node that did not answer: "
)


def linked(box: Box, node_id: bytes) -> int:
    """The slot of a node that is linked."""
    slot = slot_for(box.n, node_id)
    box.n.others |= 1 << slot
    on_link_up(box.n, slot, True)
    return slot


def dropped_here(box: Box, *holders: int) -> bytes:
    """A job that is done, and whose result this node has dropped; all `holders` know its end."""
    id = box.add(KEEP=600, REPLICATE=1)
    for slot in holders:
        box.n.jobs[id].holders |= 1 << slot
    box.get()
    assert box.run("DONE", id, "-", "RESULT", "x" * 1_000) == 1
    for slot in holders:
        on_message(box.n, slot, GotAck(id, True, 1))
    assert is_agreed(box.n, id)
    assert box.n.life.thin_result()
    return id


def told(session: Session) -> tuple[bytes | None, bytes]:
    """Result and reason of the reply to RESULT."""
    flat: Any = session.take()
    assert isinstance(flat, list), flat
    found = dict(zip(flat[::2], flat[1::2], strict=True))
    assert found[b"state"] == b"done"
    return found[b"result"] if isinstance(found[b"result"], bytes) else None, found[b"reason"]


@pytest.mark.parametrize("words", [(), ("WAIT", 0), ("WAIT", 9_000)])
def test_another_holder_has_the_result(box: Box, words: tuple[str | int, ...]) -> None:
    """W15.10 A result that this node has dropped (W7.4, M3.4), for memory or its bound, may be kept
    elsewhere. RESULT asks all linked nodes for it, one second at most, also at the end of WAIT; it
    takes an answer without the result only if none has it.
    """
    n = box.n
    id = dropped_here(box)
    one, other = linked(box, b"b" * 40), linked(box, b"c" * 40)
    assert box.run("RESULT", id, *words) is None
    on_message(n, one, JobTold(id, True, 0, True, DROPPED))
    box.turn()
    assert box.run.raw() == b"", "the other one may have it"
    on_message(n, other, JobTold(id, True, 0, True, WHOLE))
    box.turn()
    assert told(box.run) == (b"42", b"")
    assert not n.life.asking
    assert box.run("RESULT", id, *words) is None
    on_message(n, one, JobTold(id, True, 0, True, DROPPED))
    on_message(n, other, JobTold(id, False, 0, False))
    box.turn()
    assert told(box.run) == (None, WHY), "nobody has it"


def test_a_holder_that_does_not_answer_may_have_it(box: Box) -> None:
    """W15.10 If none that answers has it, and a member is not in reach or does not answer, the
    result may be there. RESULT replies `-NOREACH Job is done, but its result is not here, and may
    be at a node that did not answer: <id>[, <id>]`, and with WAIT it waits for that node until the
    timeout. WAITJOB needs no result.
    """
    n = box.n
    one, other = linked(box, ONE), linked(box, OTHER)
    id = dropped_here(box, one, other)
    brief, waiter = box.session(), box.session()
    assert box.run("RESULT", id) is None
    assert brief("RESULT", id, "WAIT", 2_500) is None
    assert waiter("RESULT", id, "WAIT", 0) is None
    on_message(n, one, JobTold(id, False, 0, False))
    box.pass_ms(900)
    assert box.run.raw() == b""
    box.pass_ms(200)
    assert box.run.take() == NOREACH + OTHER.decode(), "it is linked, and does not answer"
    on_link_down(n, other)
    on_message(n, one, JobTold(id, False, 0, False))
    box.pass_ms(1_000)
    assert brief.raw() == b""
    box.pass_ms(500)
    assert brief.take() == NOREACH + OTHER.decode()
    on_link_down(n, one)
    assert brief("RESULT", id) == f"{NOREACH}{ONE.decode()}, {OTHER.decode()}"
    assert brief("RESULT", id, "WAIT", 2_500) is None, "there is nobody to ask"
    assert box.run("WAITJOB", 0, id) == [[id, b"done"]]
    box.pass_ms(60_000)
    assert brief.take() == f"{NOREACH}{ONE.decode()}, {OTHER.decode()}"
    assert waiter.raw() == b""
    on_link_up(n, other, True)
    box.pass_ms(1_000)
    on_message(n, other, JobTold(id, True, 0, True, WHOLE))
    box.turn()
    assert told(waiter) == (b"42", b"")


def test_a_result_that_nobody_has_is_lost(box: Box) -> None:
    """W15.10 It is lost if all members have answered, or if the job had no other holder when it
    ended: then RESULT replies the state `done`, no result, and the reason.
    """
    n = box.n
    one, other = linked(box, ONE), linked(box, OTHER)
    shared, alone = dropped_here(box, one), dropped_here(box)
    waiter = box.session()
    assert waiter("RESULT", shared, "WAIT", 0) is None
    on_message(n, one, JobTold(shared, True, SHARED, True, DROPPED))
    on_link_down(n, other)
    assert box.run("RESULT", alone, "WAIT", 0) is None
    on_message(n, one, JobTold(alone, False, 0, False))
    box.turn()
    assert told(box.run) == (None, WHY)
    assert waiter.raw() == b""
    on_link_up(n, other, True)
    box.pass_ms(1_000)
    on_message(n, one, JobTold(shared, True, SHARED, True, DROPPED))
    assert waiter.raw() == b""
    on_message(n, other, JobTold(shared, False, 0, False))
    box.turn()
    assert told(waiter) == (None, WHY)


@pytest.mark.parametrize("became", [0, SHARED])
def test_a_node_without_the_job_hears_that_the_result_was_dropped(box: Box, became: int) -> None:
    """W15.10 If none that answers has it, and a member is not in reach or does not answer, the
    result may be there.
    """
    n = box.n
    one, other = linked(box, ONE), linked(box, OTHER)
    id = IdMaker(ONE, b"seed", n.ids.key).make(60, 1)
    on_link_down(n, other)
    ends, waiter = box.session(), box.session()
    assert box.run("RESULT", id) is None and waiter("RESULT", id, "WAIT", 0) is None
    assert ends("WAITJOB", 0, id) is None
    on_message(n, one, JobTold(id, True, became, True, DROPPED))
    box.turn()
    assert ends.take() == [[id, b"done"]]
    if became == 0:
        assert told(box.run) == told(waiter) == (None, DROPPED[7])
        return
    assert box.run.take() == NOREACH + OTHER.decode()
    assert waiter.raw() == b""
    on_link_up(n, other, True)
    box.pass_ms(1_000)
    on_message(n, one, JobTold(id, True, became, True, DROPPED))
    on_message(n, other, JobTold(id, True, 0, True, WHOLE))
    box.turn()
    assert told(waiter) == (b"42", b"")


def test_a_holder_says_whether_others_may_have_the_result(box: Box) -> None:
    """W15.10 or if the job had no other holder when it ended"""
    one = linked(box, ONE)
    for id, became in ((dropped_here(box, one), SHARED), (dropped_here(box), 0)):
        box.n.peers[one].outbox = []
        on_message(box.n, one, JobAsk(id, LOOK, b""))
        (answer,) = box.n.peers[one].outbox
        assert isinstance(answer, JobTold) and answer.became == became
        assert (answer.is_settled, answer.fields[0], answer.fields[5]) == (True, b"done", None)


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_wait_ends_with_the_result_of_another_holder(box: Box, is_frozen: bool) -> None:
    """W15.10 RESULT asks all linked nodes for it, one second at most, also at the end of WAIT"""
    n = box.n
    box.run("CONFIG", "SET", "results-max-bytes", 10_000)
    id = box.add(KEEP=600)
    box.get()
    one = linked(box, b"b" * 40)
    waiter, other = box.session(), box.session()
    assert waiter("RESULT", id, "WAIT", 0) is None
    assert other("WAITJOB", 0, id) is None
    assert box.run("DONE", id, "-", "RESULT", "x" * 20_000).startswith("ERR the job is done")
    box.turn()
    assert other.take() == [[id, b"done"]], "that needs no result"
    assert waiter.raw() == b""
    if is_frozen:
        box.pass_ms(900)
        assert waiter.raw() == b""
        box.pass_ms(200)
        result, reason = told(waiter)
        assert result is None and reason.endswith(b"too large for results-max-bytes")
        return
    on_message(n, one, JobTold(id, True, 0, True, WHOLE))
    box.turn()
    assert told(waiter) == (b"42", b"")


def test_the_first_answer_lacks_the_result(box: Box) -> None:
    """W15.10 it takes an answer without the result only if none has it."""
    n = box.n
    one, other = linked(box, b"b" * 40), linked(box, b"c" * 40)
    id = IdMaker(b"b" * 40, b"seed", n.ids.key).make(60, 1)
    for last, found in ((WHOLE, (b"42", b"")), (DROPPED, (None, DROPPED[7]))):
        assert box.run("RESULT", id) is None
        on_message(n, one, JobTold(id, True, 0, True, DROPPED))
        box.turn()
        assert box.run.raw() == b""
        on_message(n, other, JobTold(id, True, 0, True, last))
        box.turn()
        assert told(box.run) == found


@pytest.mark.parametrize("where", ["holder", "stranger"])
def test_a_node_with_little_room_passes_a_result_on(where: str) -> None:
    """W7.5 Such a result goes to the other holders all the same, with the acks of that moment: each
    keeps it within its own `results-max-bytes`. So it does from a node without the job (W14.6).
    """
    lab = Lab(4)
    for n in lab.nodes:
        n.ids.key = b""
    id = lab.add(0, replicate=3, retry_s=600, terms=KEPT)
    holders = lab.holders_of(id)
    stranger = next(i for i in range(4) if i not in holders)
    small = holders[1] if where == "holder" else stranger
    lab.nodes[small].limits.results_bytes = 1_000
    assert on_done(lab.nodes[small], id, 0, b"x" * 9_000, 9) == (where == "holder")
    lab.run()
    lab.pass_ms(3_000)
    for i in holders:
        found, _ = result_fields(lab.nodes[i], id)
        assert found is not None and found["state"] == b"done"
        assert found["result"] == (None if i == small else b"x" * 9_000)
    assert lab.nodes[small].life.in_hand is None
    assert lab.nodes[small].life.kept_bytes < 1_000
