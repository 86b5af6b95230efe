"""SPEC W16 by chance: changes, cancels, workers and slow links, in any order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tuque.core.life.cancel_update import ENDED, on_cancel, on_update
from tuque.core.life.outcomes import on_done
from tuque.core.life.runs import on_fail, on_nack_of, on_release
from tuque.core.life.start import on_start
from tuque.core.model.job import ACKED, QUEUED, Update
from tuque.core.queues.deliver import on_getjob
from tuque.core.tables.work import Change
from world import World
from world_lives import add, at

ROUNDS = 20
STEPS = 16  # of somebody at most, before the next one does something


@dataclass
class Story:
    """What clients know of one job."""

    id: bytes
    confirmed: int = 0  # the newest body whose UPDATEJOB replied OK
    asked: int = 0
    updates: list[tuple[int, Change, int]] = field(default_factory=list)
    cancels: list[Change] = field(default_factory=list)
    is_ended: bool = False  # CANCEL replied `ended`
    is_done: bool = False
    worker: int = -1  # the node at which somebody got it
    run: int = 0
    gone: int = 1  # counts deliveries that are over


class Play:
    """Three nodes, a job, and one step of somebody at a time."""

    def __init__(self, world: World, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = world
        self.held: set[tuple[int, int]] = set()
        self.story = Story(add(world))

    def look(self) -> None:
        """Read the replies that have come."""
        story = self.story
        for number, change, out in story.updates:
            if change.is_over and change.refused is None:
                assert out != story.gone, "changed although a worker has it"
                story.confirmed = max(story.confirmed, number)
        story.updates = [one for one in story.updates if not one[1].is_over]
        for change in story.cancels:
            story.is_ended = story.is_ended or (change.is_over and change.became == ENDED)
        story.cancels = [change for change in story.cancels if not change.is_over]

    def act(self) -> None:
        """Somebody does something."""
        lot = self.chance.random()
        i = self.chance.randrange(3)
        if lot < 0.15:
            self.update(i)
        elif lot < 0.2:
            became, _, change = on_cancel(at(self.world, i), self.story.id, b"why")
            if change is not None:
                self.story.cancels.append(change)
            elif became == ENDED:
                self.story.is_ended = True
        elif lot < 0.4:
            self.get(i)
        elif lot < 0.55:
            self.work()
        elif lot < 0.65:
            a, b = self.chance.sample(range(3), 2)
            self.world.hold(a, b)
            self.held.add((a, b))
        elif lot < 0.8:
            self.release()
        elif lot < 0.9:
            self.world.jump_ms(self.chance.choice([1, 5, 60, 300]))
        self.world.look()
        for _ in range(self.chance.randrange(STEPS)):
            self.world.step()
        self.look()

    def release(self) -> None:
        """No link is slow any more."""
        for a, b in sorted(self.held):
            self.world.let_go(a, b)
        self.held.clear()

    def update(self, i: int) -> None:
        """UPDATEJOB at node i; one client, so one at a time."""
        story = self.story
        if story.updates:
            return
        story.asked += 1
        update = Update()
        update.body = b"%d" % story.asked
        refused, change = on_update(at(self.world, i), story.id, update)
        if change is not None:
            story.updates.append((story.asked, change, story.gone if story.worker >= 0 else 0))
        elif refused is None:
            story.confirmed = story.asked

    def get(self, i: int) -> None:
        """GETJOB at node i: never an old body after OK, never a job that was cancelled."""
        jobs = on_getjob(at(self.world, i), 7, [b"q"], 1)
        for job in jobs:
            number = int(job.body) if job.body != b"body" else 0
            assert number >= self.story.confirmed, "an old body after OK"
            assert not self.story.is_ended, "a cancelled job was handed out"
            self.story.worker = i
            self.story.run = 0

    def work(self) -> None:
        """START, or what ends a run, at the node that delivered the job."""
        story = self.story
        if story.worker < 0:
            return
        n = at(self.world, story.worker)
        if story.run == 0:
            refused = on_start(n, story.id, b"w", 7)
            if refused is None:
                assert not story.is_ended, "a run began after `ended`"
                story.run = int(n.life.by_id[story.id].run)
            else:
                story.worker = -1
                story.gone += 1
            return
        lot = self.chance.random()
        if lot < 0.3:
            on_fail(n, story.id, story.run, 0, b"no", b"", False)
        elif lot < 0.6:
            on_release(n, story.id, story.run, 0)
        elif lot < 0.8:
            on_nack_of(n, story.id, 0, 7)
        else:
            story.is_done = on_done(n, story.id, story.run, b"42")
        story.worker, story.run = -1, 0
        story.gone += 1

    def rest(self) -> None:
        """All goes on: no change is under way, and an open job is delivered with its body."""
        self.release()
        self.world.pass_ms(3_000)
        self.look()
        assert not self.story.updates and not self.story.cancels, "a client waits for ever"
        assert not any(n.life.updates or n.life.cancels for n in self.world.cores)
        assert not any(n.life.change_bytes for n in self.world.cores)
        jobs = [n.jobs.get(self.story.id) for n in self.world.cores]
        open_jobs = [job for job in jobs if job is not None and job.state != ACKED]
        if self.story.is_ended or self.story.is_done:
            assert not open_jobs, "it ended"
        if not open_jobs:
            return
        assert len({job.body for job in open_jobs}) == 1, "the holders agree"
        assert sum(job.state == QUEUED for job in open_jobs) <= 1
        for _ in range(60):
            if any(self.world.at(i).get() for i in range(3)) or self.is_over():
                return
            self.world.pass_ms(2_000)
        raise AssertionError("an open job is never delivered again")

    def is_over(self) -> bool:
        """The job ended, or is a dead letter."""
        found = [n.jobs.get(self.story.id) for n in self.world.cores]
        return all(job is None or job.state == ACKED or job.queue != b"q" for job in found)


@pytest.mark.parametrize("part", range(12))
def test_changes_and_cancels_in_any_order(make_world: Callable[..., World], part: int) -> None:
    """W10.3 OK comes when all holders in reach have the change.

    W8.5 (cluster) A job with copies is flagged at its holders first (W16.8). After the reply
    `ended` no run of it begins.
    """
    for seed in range(part * ROUNDS, (part + 1) * ROUNDS):
        play = Play(make_world(3, journal="off"), seed)
        try:
            for _ in range(80):
                play.act()
            play.rest()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
