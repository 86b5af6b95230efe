"""Walks at random: nodes die, stand still, are cut off, disks are slow (SPEC T23 to T27).

Never two leaders at work, never one epoch for two, nothing lost that was answered, and the tube
runs again once all is well.
"""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from tubes_world import TIMEOUT_MS, VotesWorld

from tuque.tubes.election.membership import change_voters
from tuque.tubes.election.voters import set_willing
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tube import RUNNING


def tasks(world: VotesWorld, i: int) -> dict[int, tuple[object, ...]]:
    """Id and status of each task on node i."""
    return {number: task[:2] for number, task in world.picture(i).items()}


class Walk:
    """One walk, from a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = VotesWorld(self.chance.choice((3, 3, 4, 5)))
        self.count = len(self.world.nodes)
        self.down: set[int] = set()
        self.still: set[int] = set()  # also those that are down
        self.pending: list[tuple[int, int, int, bytes]] = []  # node, epoch, change, id
        self.answered: set[bytes] = set()
        self.led: dict[int, int] = {1: 0}  # by epoch
        self.puts = 0

    def look(self) -> None:
        """Judge what is now."""
        world = self.world
        world.runs_at()
        for i in range(self.count):
            tube = world.t(i).by_name.get(b"t")
            if tube is None or i in self.still:
                continue
            if tube.is_mine and tube.is_won and tube.state == RUNNING:
                assert self.led.setdefault(int(tube.epoch), i) == i, "two leaders of one epoch"
        left = []
        for node, epoch, seq, id in self.pending:
            tube = world.tube(node)
            if node in self.still or node in self.down:
                left.append((node, epoch, seq, id))
            elif tube.is_mine and tube.is_won and tube.epoch == epoch:
                if world.answered(node) >= seq:
                    self.answered.add(id)
                else:
                    left.append((node, epoch, seq, id))
        self.pending = left

    def put(self) -> None:
        """A put wherever the tube runs."""
        i = self.chance.randrange(self.count)
        if i in self.still or i in self.down or b"t" not in self.world.t(i).by_name:
            return
        try:
            task = self.world.put(i, b"%d" % self.puts)
        except TubeError:
            return
        self.puts += 1
        tube = self.world.tube(i)
        self.pending.append((i, int(tube.epoch), int(tube.seq), bytes(task.id)))

    def fault(self) -> None:
        """Something breaks or is mended."""
        world, c = self.world, self.chance
        i, k = c.randrange(self.count), c.randrange(self.count)
        what = c.randrange(10)
        can_stop = i not in self.still and len(self.still) < self.count - 1
        if what == 0 and len(self.down) == 0 and can_stop:
            world.isolate(i)
            world.stand_still(i)
            self.still.add(i)
            self.down.add(i)
        elif what == 1:
            for node in list(self.down):
                self.start(node)
        elif what == 2 and can_stop:
            world.stand_still(i)
            self.still.add(i)
        elif what == 3:
            for node in list(self.still - self.down):
                world.go_on(node)
                self.still.discard(node)
        elif what == 4 and i not in self.down:
            world.isolate(i)
        elif what == 5 and i != k and not {i, k} & self.down:
            world.cut(i, k)
        elif what == 6:
            self.heal()
        elif what == 7 and i != k:
            world.hold(i, k)
        elif what == 8:
            world.release_all()
        elif what == 9:
            world.stick(*((i,) if c.randrange(2) else ()))

    def start(self, i: int) -> None:
        """A node that was down starts from its journal."""
        self.down.discard(i)
        self.still.discard(i)
        self.world.restart(i)
        for k in range(self.count):
            if k != i and k not in self.down:
                self.world.dial(i, k)

    def heal(self) -> None:
        """All links between nodes that run are up again."""
        for a, b in combinations(range(self.count), 2):
            if not {a, b} & self.down:
                self.world.dial(a, b)

    def run(self, steps: int) -> None:
        """Walk, mend all, and judge the end."""
        world, c = self.world, self.chance
        for _ in range(steps):
            if c.randrange(4) == 0:
                self.fault()
            if c.randrange(2) == 0:
                self.put()
            world.pass_ms(c.choice((50, 250, 250, 1_000, 1_000, 3_000)))
            self.look()
        world.release_all()
        world.stick()
        for i in list(self.down):
            self.start(i)
        for i in list(self.still):
            world.go_on(i)
            self.still.discard(i)
        self.heal()
        for _ in range(4 * TIMEOUT_MS // 500):
            world.pass_ms(500)
            self.look()
        (home,) = world.runs_at()
        kept = {task[0] for task in world.picture(home).values()}
        assert self.answered <= kept, "an answered put is lost"
        world.put(home)
        world.pass_ms(500)
        assert world.answered(home) == world.tube(home).seq
        for i in range(self.count):
            assert tasks(world, i) == tasks(world, home), "replicas differ"


class GrowthWalk(Walk):
    """One voter is left, and two nodes can join it from now on."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        world = self.world = VotesWorld(self.chance.choice((3, 4)), makes=False)
        self.count = len(world.nodes)
        world.pass_ms(2 * TIMEOUT_MS)
        world.make(0)
        for i in range(self.count):
            set_willing(world.t(i), False)
        for i in range(1, self.count):
            world.ask(0, change_voters, world.id(i), False)
            world.pass_ms(1_000)
        for i in range(self.count):
            set_willing(world.t(i), True)

    def run(self, steps: int) -> None:
        """Puts and messages at any instant while the list grows, then as any walk."""
        for _ in range(steps):
            self.put()
            if self.chance.randrange(8) == 0:
                self.fault()
            for _ in range(self.chance.randrange(40)):
                self.world.carry()
            self.world.pass_ms(self.chance.choice((0, 1, 20, 200)))
            self.look()
        super().run(10)


@pytest.mark.parametrize("seed", range(3))
def test_a_walk_of_growth(seed: int) -> None:
    """T28.9 and two of the three have all that was answered before"""
    GrowthWalk(seed).run(40)


@pytest.mark.parametrize("seed", range(12))
def test_a_walk(seed: int) -> None:
    """T27.7 with a majority no failover loses what was answered."""
    Walk(seed).run(60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_200))
def test_many_walks(seed: int) -> None:
    """T25.2 A leader of a tube led by votes is RUNNING only while a majority of the voters,
    itself counted, votes for this node under its epoch
    """
    Walk(seed).run(60)
