"""SPEC Q11, L2: a hundred thousand held jobs, and the work of each turn until they are queued."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from tuque.core.dispatch import messages as bus
from tuque.core.dispatch.restore import after_load, restore_job
from tuque.core.dispatch.timers import next_timer_ms, tick
from tuque.core.model.job import QUEUED as IN_QUEUE
from tuque.core.model.job import Job
from tuque.core.msgs.bus import (
    AnyMessage,
    Ask,
    GotJob,
    Lack,
    ReplJob,
)
from tuque.core.node.node import Node
from tuque.core.node.peers import set_leaver, slot_for
from tuque.core.repair.node_loss import on_incarnation

START_MS = 1_700_000_000_000
JOBS = 100_000
CALLS_OF_A_TURN = 100_000  # of functions, C's too; a turn checks some 2,000 jobs and asks of 500
COUNTED = 20  # of so many turns the calls of one are counted


def name_of(i: int) -> bytes:
    """The id of node i."""
    return (b"%02x" % (i + 10)) * 20


class Loaded:
    """A node that has loaded its journal, and peers that reply as they are told to.

    `have`: the peers that have the jobs; the others deny it.
    """

    def __init__(self, have: list[int], jobs: int = JOBS) -> None:
        self.n = n = Node(name_of(0), b"seed", START_MS)
        self.slots = [slot_for(n, name_of(i)) for i in (1, 2, 3)]
        for slot in self.slots:
            n.others |= 1 << slot
        self.have = {self.slots[i] for i in have}
        n.is_loading = True
        for i in range(jobs):
            id = b"D-0a0a0a0a-%024d-05a1" % i
            job = Job(id, b"q", b"body", i, START_MS + 86_400_000, 30, 0, 3)
            job.state = IN_QUEUE
            job.holders = 1 | 1 << self.slots[0] | 1 << self.slots[1]
            assert restore_job(n, job)
        n.is_loading = False
        after_load(n)
        self.calls: list[int] = []  # of the turns that are counted

    def queued(self) -> int:
        """How many jobs are in the queue."""
        return sum(job.state == IN_QUEUE for job in self.n.jobs.values())

    def link(self, slot: int) -> None:
        """A link comes up."""
        on_incarnation(self.n, slot, False, 1)
        bus.on_link_up(self.n, slot, True)
        set_leaver(self.n, slot, False)

    def count(self, what: Callable[[], None]) -> None:
        """Do that, and note the calls that it takes."""
        calls = 0

        def on_event(_frame: FrameType, event: str, _arg: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(on_event)
        try:
            what()
        finally:
            sys.setprofile(None)
        self.calls.append(calls)

    def run(self) -> None:
        """Turns, until no job is held."""
        replies: list[tuple[int, AnyMessage]] = []

        def turn() -> None:
            if next_timer_ms(self.n) <= self.n.now_ms:
                tick(self.n)
            for slot, message in replies:
                bus.on_message(self.n, slot, message)

        turns = 0
        while self.n.held.jobs or replies:
            turns += 1
            if not replies:
                self.n.now_ms = max(self.n.now_ms, min(next_timer_ms(self.n), START_MS + 60_000))
            if turns % COUNTED == 0:
                self.count(turn)
            else:
                turn()
            replies = self.replies()

    def replies(self) -> list[tuple[int, AnyMessage]]:
        """What the peers reply to the messages of this turn."""
        found: list[tuple[int, AnyMessage]] = []
        for peer in self.n.dirty_peers:
            for message in peer.outbox:
                if isinstance(message, Ask):
                    lacking = [] if peer.slot in self.have else list(message.ids)
                    found.append((peer.slot, Lack(message.number, lacking)))
                elif isinstance(message, ReplJob):
                    found.append((peer.slot, GotJob([message.id])))
            peer.outbox = []
            peer.is_dirty = False
        self.n.dirty_peers = []
        return found


@pytest.mark.slow
@pytest.mark.parametrize("have", [[0, 1], []], ids=["they have them", "they deny it"])
def test_many_held_jobs_are_released_in_many_short_turns(have: list[int]) -> None:
    """Q11.4 When no reply is missing, a job that was queued before the restart is queued."""
    loaded = Loaded(have)
    for slot in loaded.slots:
        loaded.count(lambda slot=slot: loaded.link(slot))
    loaded.run()
    assert loaded.queued() == JOBS
    assert max(loaded.calls) < CALLS_OF_A_TURN


@pytest.mark.long
def test_many_held_jobs_of_a_node_that_stays_alone() -> None:
    """Q11.2 For a holder without a link it waits until `cluster-node-timeout` after the load,
    unless a linked node reports that one as suspected or failed.
    """
    loaded = Loaded([])
    loaded.run()
    assert loaded.queued() == JOBS
    assert max(loaded.calls) < CALLS_OF_A_TURN


def test_scans_that_begin_together_share_their_ids() -> None:
    """K5.2 For the ALO jobs that the node may have, this node asks all other holders with ASK
    whether they have them."""
    loaded = Loaded([], 10)
    loaded.link(loaded.slots[0])
    loaded.link(loaded.slots[1])
    first = loaded.n.losses.walks[0].ids
    assert len(first) == 10 and len(loaded.n.losses.walks) > 2
    assert all(walk.ids is first for walk in loaded.n.losses.walks)
    late = Job(b"D-0a0a0a0a-%024d-05a1" % 10, b"q", b"body", 10, START_MS + 86_400_000, 30, 0, 3)
    assert restore_job(loaded.n, late)
    loaded.link(loaded.slots[2])
    last = loaded.n.losses.walks[len(loaded.n.losses.walks) - 1].ids
    assert late.id in last and late.id not in first


def test_a_scan_that_begins_during_the_load_has_all_jobs() -> None:
    """K5.1 If the node began without a journal, and another incarnation of it was known, it
    leaves the holders of every unacked job, by a scan.
    """
    loaded = Loaded([], 1)
    n, slot = loaded.n, loaded.slots[0]
    loaded.link(slot)
    for _ in range(10):
        tick(n)
    n.is_loading = True
    on_incarnation(n, slot, True, 2)
    late = Job(b"D-0a0a0a0a-%024d-05a1" % 1, b"q", b"body", 1, START_MS + 86_400_000, 30, 0, 1)
    late.state = IN_QUEUE
    late.holders = 1 | 1 << slot
    assert restore_job(n, late)
    n.is_loading = False
    for _ in range(10):
        tick(n)
    assert late.holders & 1 << slot == 0
