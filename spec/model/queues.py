"""A model of QUEUE (spec/values.md): settings with EXPIRES or AUTODELETE, and their owner.

Each node has the settings as it learned them, and its own jobs of the queue. A consumer says SET
where it is, uses the queue there, moves, and ends.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Final, NamedTuple

from spec.model.small import play
from spec.model.state import BrokenError

NODES: Final = 3
STEPS: Final = 150
SPAN: Final = 10  # ticks that a queue may be unused
GRACE: Final = 3  # ticks in which a node may say that it uses the queue
CALM: Final = 12 * SPAN

FLAWS: Final = {
    "gone_is_later": "a deletion is a later version of the settings",
    "nobody_replaces": "a lost owner is not replaced",
    "jobs_stay": "a deletion reaches the node of the owner alone",
    "nobody_objects": "a queue is deleted though it is in use at another node",
    "asks_nobody": "the owner deletes a queue without a word before",
}


LIVE: Final = 0
ENDING: Final = 1  # the owner asks whether anybody uses the queue
GONE: Final = 2


class Settings(NamedTuple):
    """What SET said, or that it was deleted; of two the greater one counts."""

    version: int
    state: int  # a deletion has the version of the settings that it ends
    owner: int


class Node:
    """A node: what it has on disk, and what it knows in memory."""

    def __init__(self) -> None:
        self.settings: Settings | None = None
        self.since = 0  # when it learned its settings, or started
        self.used_at = 0  # by a client here
        self.heard_at = [0] * NODES
        self.jobs = 0
        self.is_up = True


class Walk:
    """One walk."""

    def __init__(self, seed: int, flaw: str = "") -> None:
        self.dice = random.Random(seed)
        self.flaw = flaw
        self.nodes = [Node() for _ in range(NODES)]
        self.now = 0
        self.cut: set[int] = set()  # nodes that are cut off from the others
        self.began_at = 0  # since when it is there
        self.linked_at = 0  # since when all links are as they are
        self.consumer: int | None = None  # the node that it uses
        self.told: Counter[str] = Counter()

    def is_linked(self, a: int, b: int) -> bool:
        """Whether the two nodes hear each other."""
        nodes = self.nodes
        return nodes[a].is_up and nodes[b].is_up and (a in self.cut) == (b in self.cut)

    def learn(self, at: int, told: Settings) -> None:
        """Settings of another node, or of a client here."""
        x = self.nodes[at]
        old = x.settings
        if old is not None and told <= old:
            return
        if told.state != LIVE and self.consumer == at and self.flaw != "nobody_objects":
            told = Settings(told.version + 1, LIVE, at)
            self.told["objected"] += 1
        x.settings = told
        x.since = self.now
        if told.state == GONE and old is not None and old.state != GONE:
            self.purge(at)

    def purge(self, at: int) -> None:
        """The queue is deleted here."""
        if self.consumer == at:
            raise BrokenError("a queue was deleted at the node where it is consumed")
        if self.consumer is not None and self.is_linked(at, self.consumer):
            if self.now > max(self.linked_at, self.began_at) + GRACE + 1:
                raise BrokenError("jobs were deleted that the consumer could have got")
        if self.flaw != "jobs_stay" or self.nodes[at].settings is None:
            self.nodes[at].jobs = 0
        self.told["purged"] += 1

    def use(self, at: int) -> None:
        """SET, then GETJOB and ADDJOB, at this node."""
        x = self.nodes[at]
        old = x.settings
        version = 1 if old is None else old.version + 1
        if old is None or old.state != LIVE or old.owner != at:
            self.learn(at, Settings(version, LIVE, at))
        x.used_at = self.now
        if self.consumer != at:
            self.began_at = self.now
        self.consumer = at

    def look(self, at: int) -> None:
        """What a node does by itself about the queue."""
        x = self.nodes[at]
        mine = x.settings
        if mine is None or mine.state == GONE:
            return
        if self.consumer == at:
            x.used_at = self.now
        if mine.owner == at:
            unused = self.now > max(x.used_at, x.since) + SPAN
            if mine.state == ENDING and self.now > x.since + GRACE:
                self.learn(at, mine._replace(state=GONE))
            elif mine.state == LIVE and unused and self.flaw == "gone_is_later":
                self.learn(at, Settings(mine.version + 1, GONE, at))
            elif mine.state == LIVE and unused:
                self.learn(at, mine._replace(state=GONE if self.flaw == "asks_nobody" else ENDING))
            return
        away = self.now > max(x.heard_at[mine.owner], x.since) + SPAN
        others = [i for i in range(NODES) if self.is_linked(at, i)]
        if away and at == min(others) and self.flaw != "nobody_replaces":
            self.learn(at, Settings(mine.version + 1, LIVE, at))

    def tick(self) -> None:
        """Time passes: nodes that are linked tell what they know, each looks at the queue."""
        self.now += 1
        for a in range(NODES):
            for b in range(NODES):
                if a != b and self.is_linked(a, b):
                    self.nodes[b].heard_at[a] = self.now
                    told = self.nodes[a].settings
                    if told is not None:
                        self.learn(b, told)
        for i, x in enumerate(self.nodes):
            if x.is_up:
                self.look(i)
        if self.consumer is not None and not self.nodes[self.consumer].is_up:
            self.consumer = None

    def step(self) -> None:
        """Something happens."""
        dice = self.dice
        what = dice.random()
        up = [i for i in range(NODES) if self.nodes[i].is_up]
        if what < 0.1 and up:
            self.use(dice.choice(up))
        elif what < 0.13:
            self.consumer = None
        elif what < 0.18:
            self.cut = set() if self.cut else {dice.randrange(NODES)}
            self.linked_at = self.now
        elif what < 0.22:
            x = self.nodes[dice.randrange(NODES)]
            x.is_up = not x.is_up
            x.since = self.linked_at = self.now  # a start: nobody knows of uses before
            x.heard_at = [self.now] * NODES
        elif what < 0.32 and up:
            at = dice.choice(up)
            live = self.nodes[at].settings
            self.nodes[at].jobs += int(live is not None and live.state != GONE)
        self.tick()

    def heal(self) -> None:
        """The consumer has ended; the node that comes back last may be away for long."""
        self.consumer = None
        late = self.dice.choice([None, *range(NODES)])
        for i, x in enumerate(self.nodes):
            x.is_up = i != late
            x.heard_at = [self.now] * NODES
            x.since = self.now
        self.cut = set()
        for _ in range(CALM):
            self.tick()
        if any(x.jobs for i, x in enumerate(self.nodes) if i != late):
            raise BrokenError("a queue that nobody uses is not deleted")
        self.check()
        if late is not None:
            self.nodes[late].is_up = True
            self.nodes[late].heard_at = [self.now] * NODES
            self.nodes[late].since = self.now
            for _ in range(CALM):
                self.tick()
            self.check()
            if any(x.jobs for x in self.nodes):
                raise BrokenError("a node that was away keeps its jobs")

    def check(self) -> None:
        """No node that is up has settings of the queue."""
        for x in self.nodes:
            if x.is_up and x.settings is not None and x.settings.state != GONE:
                raise BrokenError("settings of a queue that nobody uses are left")


def walk(seed: int, flaw: str = "") -> tuple[str, Counter[str]]:
    """What broke, or "", and what happened how often."""
    one = Walk(seed, flaw)
    return play(one, STEPS), one.told
