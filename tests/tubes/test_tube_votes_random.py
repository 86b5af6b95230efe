"""Walks at random: nodes die, stand still, are cut off, disks are slow (SPEC T23 to T27).

Never two leaders at work, never one epoch for two, nothing lost that was answered, and the tube
runs again once all is well.
"""

from __future__ import annotations

import random

import pytest
from votes_lab import TIMEOUT_MS, VotesLab

from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tube import RUNNING


def tasks(lab: VotesLab, i: int) -> dict[int, tuple[object, ...]]:
    """Id and status of each task on node i."""
    return {number: task[:2] for number, task in lab.picture(i).items()}


class Walk:
    """One walk, from a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.lab = VotesLab(self.chance.choice((3, 3, 4, 5)))
        self.count = len(self.lab.nodes)
        self.down: set[int] = set()
        self.pending: list[tuple[int, int, int, bytes]] = []  # node, epoch, change, id
        self.answered: set[bytes] = set()
        self.led: dict[int, int] = {1: 0}  # by epoch
        self.puts = 0

    def look(self) -> None:
        """Judge what is now."""
        lab = self.lab
        lab.runs_at()
        for i in range(self.count):
            tube = lab.t(i).by_name.get(b"t")
            if tube is None or i in lab.still:
                continue
            if tube.is_mine and tube.is_won and tube.state == RUNNING:
                assert self.led.setdefault(int(tube.epoch), i) == i, "two leaders of one epoch"
        left = []
        for node, epoch, seq, id in self.pending:
            tube = lab.tube(node)
            if node in lab.still or node in self.down:
                left.append((node, epoch, seq, id))
            elif tube.is_mine and tube.is_won and tube.epoch == epoch:
                if lab.answered(node) >= seq:
                    self.answered.add(id)
                else:
                    left.append((node, epoch, seq, id))
        self.pending = left

    def put(self) -> None:
        """A put wherever the tube runs."""
        i = self.chance.randrange(self.count)
        if i in self.lab.still or i in self.down or b"t" not in self.lab.t(i).by_name:
            return
        try:
            task = self.lab.put(i, b"%d" % self.puts)
        except TubeError:
            return
        self.puts += 1
        tube = self.lab.tube(i)
        self.pending.append((i, int(tube.epoch), int(tube.seq), bytes(task.id)))

    def fault(self) -> None:
        """Something breaks or is mended."""
        lab, c = self.lab, self.chance
        i, k = c.randrange(self.count), c.randrange(self.count)
        what = c.randrange(10)
        can_stop = i not in lab.still and len(lab.still) < self.count - 1
        if what == 0 and len(self.down) == 0 and can_stop:
            lab.isolate(i)
            lab.still.add(i)
            self.down.add(i)
        elif what == 1:
            for node in list(self.down):
                self.start(node)
        elif what == 2 and can_stop:
            lab.still.add(i)
        elif what == 3:
            for node in lab.still - self.down:
                lab.go_on(node)
        elif what == 4 and i not in self.down:
            lab.isolate(i)
        elif what == 5 and i != k and not {i, k} & self.down:
            lab.cut(i, k)
        elif what == 6:
            self.heal()
        elif what == 7 and i != k:
            lab.hold(i, k)
        elif what == 8:
            lab.held = set()
        elif what == 9:
            lab.slow = {i} if c.randrange(2) else set()

    def start(self, i: int) -> None:
        """A node that was down starts from its journal."""
        self.down.discard(i)
        self.lab.still.discard(i)
        self.lab.die(i)
        for k in range(self.count):
            if k != i and k not in self.down:
                self.lab.link(i, k)

    def heal(self) -> None:
        """All links between nodes that run are up again."""
        lab = self.lab
        for a in range(self.count):
            for b in range(a + 1, self.count):
                if (a, b) not in lab.linked and not {a, b} & self.down:
                    lab.link(a, b)

    def run(self, steps: int) -> None:
        """Walk, mend all, and judge the end."""
        lab, c = self.lab, self.chance
        for _ in range(steps):
            if c.randrange(4) == 0:
                self.fault()
            if c.randrange(2) == 0:
                self.put()
            lab.live(c.choice((50, 250, 250, 1_000, 1_000, 3_000)))
            self.look()
        lab.held, lab.slow = set(), set()
        for i in list(self.down):
            self.start(i)
        for i in list(lab.still):
            lab.go_on(i)
        self.heal()
        for _ in range(4 * TIMEOUT_MS // 500):
            lab.live(500)
            self.look()
        (home,) = lab.runs_at()
        kept = {task[0] for task in lab.picture(home).values()}
        assert self.answered <= kept, "an answered put is lost"
        lab.put(home)
        lab.live(500)
        assert lab.answered(home) == lab.tube(home).seq
        for i in range(self.count):
            assert tasks(lab, i) == tasks(lab, home), "replicas differ"


@pytest.mark.parametrize("seed", range(12))
def test_a_walk(seed: int) -> None:
    """T27.7 with a majority no failover loses what was answered."""
    Walk(seed).run(60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_200))
def test_many_walks(seed: int) -> None:
    """T25.2 A leader of a tube led by votes is RUNNING only while a majority of the voters, itself
    counted, stands with it under its epoch"""
    Walk(seed).run(60)
