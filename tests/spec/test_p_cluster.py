"""SPEC P with several nodes: PAUSE ... BCAST."""

from __future__ import annotations

import pytest
from journal_by_hand import Kept

from cluster_lab import Lab
from tuque.core.copies.federation import pause_queue
from tuque.core.dispatch.restore import restore_pause
from tuque.core.msgs import NeedJobs, Pause
from tuque.core.node.queue import PAUSE_IN, PAUSE_OUT


def sent(lab: Lab, kind: type) -> list[tuple[int, int]]:
    """From where to where messages of that kind went, in order."""
    return [(a, b) for a, b, m in lab.log if isinstance(m, kind)]


def pause(lab: Lab, i: int, bits: int, *, bcast: bool = True) -> None:
    """PAUSE q at node i."""
    lab.now_ms += 1
    lab.nodes[i].now_ms = lab.now_ms
    pause_queue(lab.nodes[i], b"q", bits, bcast)
    lab.run()


def rewrite(kept: Kept) -> None:
    """Write a snapshot, as BGREWRITEAOF does."""
    now_ms = kept.box.n.now_ms
    kept.committer.start_rewrite(kept.box.n, now_ms)
    while kept.committer.is_rewriting():
        kept.turn()


def pauses(lab: Lab) -> list[int]:
    """The state of q at each node."""
    queues = [n.queues.get(b"q") for n in lab.nodes]
    return [0 if q is None else int(q.pause) for q in queues]


def test_broadcast_reaches_every_node() -> None:
    """P1.7 (cluster) With `bcast` PAUSE goes to every linked node, even if no other word changes
    the state.
    """
    lab = Lab(3)
    pause(lab, 0, PAUSE_IN, bcast=False)
    assert pauses(lab) == [PAUSE_IN, 0, 0]
    pause(lab, 0, PAUSE_IN)
    assert pauses(lab) == [PAUSE_IN] * 3
    assert sent(lab, Pause) == [(0, 1), (0, 2)]
    pause(lab, 2, 0)
    assert pauses(lab) == [0] * 3


def test_later_nodes_are_told() -> None:
    """P1.8 (cluster) PAUSE is sent again whenever a link comes up, with the instant of the command,
    so that nodes that were away or join later get it too. The journal records that a pause was
    broadcast.
    """
    lab = Lab(3)
    lab.isolate(2)
    pause(lab, 0, PAUSE_OUT)
    lab.die(1)
    lab.revive(1)
    lab.heal()
    lab.run()
    assert pauses(lab) == [PAUSE_OUT, PAUSE_OUT, PAUSE_OUT]
    lab.isolate(1)
    pause(lab, 0, 0)
    assert pauses(lab) == [0, PAUSE_OUT, 0]
    lab.isolate(0)
    lab.heal()
    lab.run()
    assert pauses(lab) == [0, 0, 0]


def test_a_restart_keeps_that_it_was_for_all(kept: Kept) -> None:
    """P1.8 The journal records that a pause was broadcast."""
    kept.box.run("PAUSE", "q", "in", "bcast")
    kept.box.run("PAUSE", "r", "out")
    for _ in range(2):
        kept.restart()
        assert kept.box.run("PAUSE", "q", "state") == "in"
        assert kept.box.run("PAUSE", "r", "state") == "out"
        pauses = kept.box.n.pauses
        assert [name for name, told in pauses.items() if told.is_bcast] == [b"q"]
        rewrite(kept)


@pytest.mark.parametrize("bits", [PAUSE_IN, PAUSE_OUT])
def test_who_is_paused_does_not_ask(bits: int) -> None:
    """P2.3 A node does not ask for jobs of a queue whose input or output it has paused."""
    lab = Lab(2)
    pause(lab, 0, bits, bcast=False)
    lab.wait(0)
    assert sent(lab, NeedJobs) == []
    lab.add(1, replicate=1)
    lab.pass_ms(60_000)
    assert lab.served[0] == {}
    assert sent(lab, NeedJobs) == []
    pause(lab, 0, 0, bcast=False)
    assert len(lab.served[0][7]) == 1


def test_paused_out_gives_nothing() -> None:
    """P2.3 With a paused output the node gives nothing for NEEDJOBS. A node does not ask for jobs
    of a queue whose input or output it has paused.
    """
    lab = Lab(2)
    id = lab.add(1, replicate=1)
    pause(lab, 1, PAUSE_OUT, bcast=False)
    lab.wait(0)
    lab.pass_ms(60_000)
    assert lab.holders_of(id) == [1]
    pause(lab, 1, 0, bcast=False)
    assert [job.id for job in lab.served[0][7]] == [id]


def test_it_is_not_sent_on() -> None:
    """P3.1 The state is replaced as in P1. It is not forwarded, but sent to nodes that link later
    (P1.8).
    """
    lab = Lab(3)
    lab.cut(0, 2)
    pause(lab, 0, PAUSE_IN)
    assert pauses(lab) == [PAUSE_IN, PAUSE_IN, 0]
    assert sent(lab, Pause) == [(0, 1)]
    lab.cut(1, 2)
    lab.link(1, 2)
    lab.run()
    assert pauses(lab) == [PAUSE_IN] * 3


def test_the_last_command_counts() -> None:
    """P3.2 A PAUSE older than the last one of that queue here, local ones included, changes
    nothing."""
    lab = Lab(3)
    pause(lab, 0, PAUSE_IN)
    pause(lab, 1, 0, bcast=False)
    lab.isolate(0)
    lab.heal()
    lab.run()
    assert pauses(lab) == [PAUSE_IN, 0, PAUSE_IN]
    lab.hold(0, 1)
    pause(lab, 0, PAUSE_OUT)
    pause(lab, 2, PAUSE_IN | PAUSE_OUT)
    lab.release(0, 1)
    lab.run()
    assert pauses(lab) == [PAUSE_IN | PAUSE_OUT] * 3


def test_a_pause_from_before_the_restart_is_the_oldest() -> None:
    """P3.2 A PAUSE older than the last one of that queue here, local ones included, changes
    nothing."""
    lab = Lab(2)
    lab.isolate(0)
    restore_pause(lab.nodes[0], b"q", PAUSE_IN | 4, 0)
    pause(lab, 1, PAUSE_OUT)
    lab.heal()
    lab.run()
    assert pauses(lab) == [PAUSE_OUT, PAUSE_OUT]


def set_ahead(lab: Lab, i: int) -> None:
    """The clock of the node is a day ahead of the others, as its next PAUSE will be."""
    lab.nodes[i].last_ctime_ns = (lab.now_ms + 86_400_000) * 1_000_000


def test_a_pause_is_ended_by_a_node_whose_clock_is_behind() -> None:
    """P1.9 (cluster) The instant of a PAUSE comes from the clock of its node, but is always later
    than that of the last PAUSE of that queue known there. So a node whose clock is behind can end a
    pause.
    """
    lab = Lab(3)
    set_ahead(lab, 0)
    pause(lab, 0, PAUSE_OUT)
    pause(lab, 1, 0)
    assert pauses(lab) == [0, 0, 0]
    for i in range(3):
        lab.isolate(i)
        lab.heal()
        lab.run()
        assert pauses(lab) == [0, 0, 0]


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_the_instant_of_a_pause_is_in_the_journal(is_rewritten: bool) -> None:
    """P1.9 The journal keeps the instant, also that of a command that ended a pause."""
    lab = Lab(3, has_journal=True)
    set_ahead(lab, 0)
    pause(lab, 0, PAUSE_OUT)
    if is_rewritten:
        lab.journals[1].rewrite(lab.nodes[1])
    lab.die(1)
    pause(lab, 1, 0, bcast=False)  # before it has met the others again
    assert pauses(lab) == [PAUSE_OUT, 0, PAUSE_OUT]
    for _ in range(2):
        lab.revive(1)
        assert pauses(lab) == [PAUSE_OUT, 0, PAUSE_OUT]
        if is_rewritten:
            lab.journals[1].rewrite(lab.nodes[1])
        lab.die(1)
    lab.revive(1)
    lab.isolate(2)
    pause(lab, 1, 0)
    assert pauses(lab) == [0, 0, PAUSE_OUT]
    for i in (0, 1):
        lab.die(i)
        lab.revive(i)
    assert pauses(lab) == [0, 0, 0], "the last one counts though all that heard it started anew"


def test_the_end_of_a_pause_is_kept_where_there_was_none(kept: Kept) -> None:
    """P1.9 The journal keeps the instant, also that of a command that ended a pause."""
    kept.box.run("PAUSE", "q", "none", "bcast")
    before = kept.box.n.pauses[b"q"].stamp_ns
    kept.restart()
    assert kept.box.n.pauses[b"q"].stamp_ns == before


def test_instants_do_not_move_with_the_clock(kept: Kept) -> None:
    """P1.9 It does not move when the clock jumps (J5.8), because it is compared with the instants
    of other nodes.
    """
    kept.box.run("PAUSE", "q", "in", "bcast")
    before = kept.box.n.pauses[b"q"].stamp_ns
    assert before > 0
    kept.restart(jump_ms=86_400_000)
    assert kept.box.n.pauses[b"q"].stamp_ns == before
    assert kept.box.run("PAUSE", "q", "state") == "in"


def test_flushall_forgets_pauses(kept: Kept) -> None:
    """S7.1 The pauses of these queues are forgotten here."""
    kept.box.run("PAUSE", "q", "in", "bcast")
    kept.box.run("PAUSE", "r", "out")
    rewrite(kept)
    assert kept.box.run("DEBUG", "FLUSHALL") == "OK"
    for _ in range(2):
        assert kept.box.n.pauses == {}
        assert kept.box.run("PAUSE", "q", "state") == "none"
        kept.restart()


def test_a_pause_that_came_while_the_journal_was_loaded_is_later() -> None:
    """P3.2 A PAUSE older than the last one of that queue here, local ones included, changes
    nothing."""
    lab = Lab(2)
    pause(lab, 0, PAUSE_OUT)
    restore_pause(lab.nodes[1], b"q", PAUSE_IN | 4, lab.now_ms)
    assert pauses(lab) == [PAUSE_OUT, PAUSE_OUT]


@pytest.mark.parametrize("other", [0, PAUSE_IN])
def test_of_two_of_one_instant_one_counts_everywhere(other: int) -> None:
    """P3.2 If two have the same instant, every node keeps the one that pauses more."""
    lab = Lab(4)
    set_ahead(lab, 0)
    pause(lab, 0, PAUSE_IN)
    lab.cut(0, 1)
    lab.cut(0, 3)
    lab.cut(2, 1)
    lab.cut(2, 3)
    pause(lab, 0, other)
    pause(lab, 1, PAUSE_OUT)
    assert pauses(lab) == [other, PAUSE_OUT, other, PAUSE_OUT]
    lab.heal()
    lab.run()
    assert pauses(lab) == [PAUSE_OUT] * 4
