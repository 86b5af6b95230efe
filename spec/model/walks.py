"""Walks at random through the model of leadership, with faults."""

from __future__ import annotations

import random
from collections import Counter
from typing import Final, NamedTuple

from spec.model.flaws import FLAWS
from spec.model.judge import Judge
from spec.model.leadership import create, look, on_pulse, on_vote, on_voted, pulse
from spec.model.leases import Cluster, is_running, put, sync, vouches
from spec.model.lists import (
    change_list,
    force,
    hear_list,
    is_heard,
    is_known,
    look_at_growth,
    look_at_move,
    look_at_own,
    move,
    new_disk,
    on_yours,
    standing_by,
    start,
)
from spec.model.state import (
    LEADS,
    Copy,
    Disk,
    Message,
    Node,
    Pulse,
    Vote,
    Voted,
    VoterList,
)

SPEED: Final = 16  # a clock goes 15, 16 or 17 in a tick
WIRE_MOST: Final = 80
MOST_VOTERS: Final = 4


ALL_FAULTS: Final = "clpownmgjsyfd"


class Faults(NamedTuple):
    """How likely they are, in a tick."""

    deliver: float
    loss: float
    twice: float
    pulse: float
    synced: float
    eager: float
    crash: float
    pause: float
    cut: float
    restart: float = 0.15
    jump: float = 0.005
    wipe: float = 0.3
    power: float = 0.05  # of a loss of power at a vote
    forget: float = 0.0
    leave: float = 0.01
    meet: float = 0.05
    mixed: float = 0.0  # three voters and others that are alone
    nodes: float = 0.0
    ticks: float = 0.0  # of a timeout
    names: float = 2.0
    pinch: float = 0.02  # of a move between lists, and of the death of a new leader
    change: float = 0.15


class Walk:
    """One walk: a cluster, its faults, its dice."""

    def __init__(self, seed: int, profile: str = "", flaw: str = "") -> None:
        self.rng = rng = random.Random(f"{profile}{seed}")
        self.flaw = flaw
        self.w = Cluster(flaw)
        self.judge = Judge(self.w)
        self.seen: Counter[str] = Counter()
        self.steps = 0
        self.rounds = rng.choice([1, 2, 4])  # of messages in a tick
        self.cut: set[tuple[int, int]] = set()
        self.ended: set[int] = set()  # nodes whose links have ended in this round
        self.olds: dict[int, list[Disk]] = {}
        self.broken: int | None = None  # its disk was old or lost; one at a time
        self.broken_of = 0  # by whose list it voted then
        self.dead: set[int] = set()  # by the word of the operator
        letters = ALL_FAULTS
        if profile:
            letters = FLAWS[profile].letters + "".join(x for x in "cgnl" if rng.random() < 0.2)
        elif rng.random() < 0.7:
            letters = "".join(x for x in letters if rng.random() < 0.5)
        self.letters = letters
        self.faults = Faults(
            deliver=rng.choice([0.3, 0.6, 0.9]) if "n" in letters else 0.9,
            loss=rng.choice([0.0, 0.05, 0.2]) if "n" in letters else 0.0,
            twice=rng.choice([0.0, 0.05]),
            pulse=rng.choice([0.3, 0.6, 0.9]),
            synced=rng.choice([0.3, 0.7, 1.0]),
            eager=rng.choice([0.0, 0.03, 0.2]),
            crash=rng.choice([0.005, 0.02, 0.05]),
            pause=rng.choice([0.01, 0.04]),
            cut=rng.choice([0.01, 0.04]),
        )
        if profile and rng.random() < 0.8:
            self.faults = self.faults._replace(**FLAWS[profile].knobs)
        self.w.asks_all = "o" in letters or rng.random() < 0.5
        self.ticks = int(self.faults.ticks) or rng.choice([4, 8, 16])
        self.make_nodes()

    # ---- The first state

    def make_nodes(self) -> None:
        """Nodes that are alone, or a cluster of three, or both."""
        rng = self.rng
        count = int(self.faults.nodes) or rng.choice([3, 3, 4, 5])
        unlike = rng.random() < 0.2
        if "m" in self.letters:
            count = max(count, 4)
        count = max(count, 4) if self.faults.mixed else count
        for i in range(count):
            speed = rng.choice([SPEED - 1, SPEED, SPEED + 1])
            has_journal = not ("d" in self.letters and rng.random() < 0.4)
            timeout = SPEED * self.ticks * (rng.choice([1, 2]) if unlike else 1)
            disk = self.w.unlike()
            own = self.w.solo_list(i, has_journal, disk)
            x = Node(i, Disk(own, disk), timeout, speed)
            x.has_journal = has_journal
            self.w.nodes.append(x)
        together = 0
        if self.faults.mixed:
            together = 3
        elif "s" not in self.letters or rng.random() < 0.3:
            together = rng.randint(3, count) if "s" in self.letters else count
        if together:
            self.make_cluster(list(range(count))[:together] if rng.random() < 0.5 else None)
        for x in self.w.nodes:
            sync(self.w, x)

    def make_cluster(self, nodes: list[int] | None) -> None:
        """Three voters; others go by their list."""
        w = self.w
        ids = nodes or [x.id for x in w.nodes]
        for i in ids[:3]:
            w.nodes[i].has_journal = True
        w.families += 1
        disks = {i: w.nodes[i].disk.id for i in ids[:3]}
        voters = VoterList(w.families, 2, dict.fromkeys(ids[:3], 2), disks, ids[0])
        for i in ids:
            x = w.nodes[i]
            x.disk.list, x.disk.right = voters, voters.voters.get(i, 0)
            x.disk.known = frozenset(ids) - {i}
            x.is_dirty = True

    # ---- Steps

    def run(self, ticks: int) -> None:
        """Let ticks pass."""
        for _ in range(ticks):
            self.tick()
            self.fail()

    def tick(self) -> None:
        """Everything that a tick has, in any order."""
        w = self.w
        for x in w.nodes:
            x.clock += x.speed
            if x.is_up and not x.is_paused:
                x.seen = x.clock
        self.round([x for x in w.nodes if x.is_up and not x.is_paused])
        for _ in range(self.rounds - 1):
            self.round([])

    def round(self, nodes: list[Node]) -> None:
        """What these nodes do and some of the messages, in any order."""
        rng, w = self.rng, self.w
        events: list[Message | Node] = [*nodes]
        kept: list[Message] = []
        for m in w.wire[-WIRE_MOST:]:
            if (m.src, m.dst) in self.cut or rng.random() < self.faults.loss:
                continue
            if rng.random() < self.faults.deliver:
                events.append(m)
                if rng.random() >= self.faults.twice:
                    continue
            kept.append(m)
        w.wire = kept
        self.ended = set()
        rng.shuffle(events)
        for event in events:
            if isinstance(event, Node):
                self.act(event)
            else:
                self.deliver(event)
            self.steps += 1
            self.judge.check()

    def deliver(self, m: Message) -> None:
        """A message comes."""
        x = self.w.nodes[m.dst]
        if not x.is_up or x.is_paused or x.id in self.ended:
            return
        elections, before = self.judge.elections, x.safe
        if isinstance(m, Pulse):
            on_pulse(self.w, x, m)
        elif isinstance(m, Vote):
            on_vote(self.w, x, m)
        elif isinstance(m, Voted):
            on_voted(self.w, x, m)
        else:
            on_yours(self.w, x, m)
        if isinstance(m, Vote) and self.faults.forget and not m.is_survey:
            self.forget(x, m, before)
        dies = "c" in self.letters and self.judge.elections > elections
        if dies and self.rng.random() < self.faults.pinch:
            self.crash(x, is_power=False)
        elif "l" in self.letters and isinstance(m, Vote) and self.rng.random() < self.faults.power:
            self.crash(x, is_power=True)
            if self.faults.power > 0.1:  # and the candidate is not heard
                self.cut = {(m.src, y.id) for y in self.w.nodes}
        elif self.rng.random() < self.faults.synced:
            sync(self.w, x)

    def forget(self, x: Node, m: Vote, before: Disk) -> None:
        """A voter has voted, and starts at once with another disk; its candidate is not heard."""
        copy = x.disk.tubes.get(m.key)
        if copy is None or copy.vote() != (m.epoch, m.src) or self.broken is not None:
            return
        if self.rng.random() < self.faults.forget:
            sync(self.w, x)
            self.crash(x, is_power=False)
            if "o" in self.letters:
                self.olds[x.id] = [before]
            self.restart(x)
            self.cut = {(m.src, y.id) for y in self.w.nodes}

    def act(self, x: Node) -> None:
        """What a node does by itself, and its clients."""
        rng, w = self.rng, self.w
        if not x.is_up or x.is_paused:
            return
        for copy in list(x.disk.tubes.values()):
            look(w, x, copy, rng.random() < self.faults.eager)
            look_at_move(w, x, copy)
            if x.view(copy.key).role == LEADS:
                self.use(x, copy)
        look_at_growth(w, x)
        look_at_own(w, x)
        if w.gave is not None and self.faults.pinch > 0.1:
            apart = [(w.gave[0], y.id) for y in w.nodes if y.id not in w.gave]
            self.cut = {*apart, *((b, a) for a, b in apart)}  # only the next leader is heard
            w.gave = None
        if rng.random() < 0.1:
            create(w, x, rng.randrange(int(self.faults.names)))
        if "m" in self.letters and rng.random() < self.faults.change:
            self.change(x)
        if rng.random() < self.faults.synced:
            sync(w, x)
        if rng.random() < self.faults.pulse:
            pulse(w, x)

    def use(self, x: Node, copy: Copy) -> None:
        """Clients of a leader."""
        view = x.view(copy.key)
        if not is_running(self.w, x, copy) or view.ending_to >= 0:
            return
        if self.rng.random() < 0.3 and len(copy.log) < 40:
            put(self.w, x, copy)
            self.seen["puts"] += 1
        voters = x.list_of(copy)
        if voters is None or len(voters.voters) < 2:
            return
        is_asked = "g" in self.letters and self.rng.random() < 0.03
        if is_asked or x.is_leaving:
            to = self.rng.choice([v for v in voters.voters if v != x.id])
            if is_heard(x, to) and not x.heard[to].leaving:
                move(self.w, x, copy, to)
                self.seen["moves"] += 1

    def change(self, x: Node, is_calm: bool = False) -> None:
        """[T28] The next list of voters (T28.4)."""
        old = x.disk.list
        if not vouches(self.w, x, old) or len(old.voters) < 2:
            return
        due = due_changes(self.w, x) if is_calm else any_changes(self.w, x)
        if not due:
            return
        node, is_added = due[0] if is_calm else self.rng.choice(due)
        voters = {v: right for v, right in old.voters.items() if v != node}
        if is_added:
            voters[node] = old.number + 1
        if voters and change_list(self.w, x, voters):
            self.seen["lists"] += 1

    # ---- Faults

    def fail(self) -> None:
        """What goes wrong in a tick."""
        rng, letters = self.rng, self.letters
        self.mend_broken()
        for x in self.w.nodes:
            if not x.is_up:
                if rng.random() < self.faults.restart:
                    self.restart(x)
            elif x.is_paused:
                if rng.random() < 0.15:
                    self.wake(x)
            elif "c" in letters and rng.random() < self.faults.crash:
                self.crash(x, "l" in letters and rng.random() < 0.5)
            elif "p" in letters and rng.random() < self.faults.pause:
                x.is_paused = True
                self.seen["pauses"] += 1
            elif "j" in letters and rng.random() < self.faults.jump:
                self.jump(x)
            elif "y" in letters and rng.random() < self.faults.leave:
                x.is_leaving = not x.is_leaving and len(x.disk.list.voters) > 2
            elif "o" in letters and rng.random() < 0.05 and len(x.safe.list.voters) > 1:
                self.olds[x.id] = [*self.olds.get(x.id, []), x.safe.twin()][-3:]
        if "n" in letters and rng.random() < self.faults.cut:
            self.cut_some()
        if "n" in letters and "c" in letters and rng.random() < self.faults.pinch:
            self.pinch()
        if "s" in letters and rng.random() < self.faults.meet:
            self.meet()
        if "f" in letters and rng.random() < 0.05:
            self.force_some()

    def cut_some(self) -> None:
        """Cut the network in some way, or mend it."""
        rng, count = self.rng, len(self.w.nodes)
        pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
        kind = rng.random()
        if kind < 0.4:
            self.cut = set()
        elif kind < 0.7:
            side = {i for i in range(count) if rng.random() < 0.5}
            self.cut = {(a, b) for a, b in pairs if (a in side) != (b in side)}
        else:
            self.cut = {pair for pair in pairs if rng.random() < 0.4}

    def pinch(self) -> None:
        """Who gives a tube to another list reaches one node only."""
        nodes = [y for y in self.w.nodes if y.is_up]
        pairs = [(y, copy) for y in nodes for copy in y.disk.tubes.values()]
        due = [(y, c) for y, c in pairs if c.leader == y.id and c.family != y.disk.list.family]
        due += [(y, c) for y, c in pairs if c.given > 0]
        if not due:
            return
        _, copy = self.rng.choice(due)
        one = self.rng.randrange(len(self.w.nodes))
        for y in nodes:
            if y.id not in (copy.leader, one):
                self.cut |= {(y.id, copy.leader), (copy.leader, y.id)}

    def crash(self, x: Node, is_power: bool) -> None:
        """The process ends; with the power what was not synced is lost, too."""
        self.seen["crashes"] += 1
        x.is_up = x.is_paused = False
        x.due = []
        self.w.wire = [m for m in self.w.wire if m.dst != x.id]  # its links end
        self.ended.add(x.id)
        if is_power:
            x.disk = x.safe.twin()
            x.is_dirty = False

    def restart(self, x: Node) -> None:
        """With its disk, with an old one, with none."""
        rng, letters = self.rng, self.letters
        olds = [disk for disk in self.olds.get(x.id, []) if disk.own is x.disk.own]
        olds = [disk for disk in olds if disk.list.forced == x.disk.list.forced]
        if x.disk.own is not None:  # of its own list nobody else knows what it said
            own = x.disk.own.family
            tubes = [one.family for d in (x.disk, *olds) for one in d.tubes.values()]
            olds = [] if own in tubes else olds
        if list(x.disk.list.voters) == [x.id]:
            olds = []  # it shrank to this node: nobody else knows what was done since
        if not x.has_journal:
            new_disk(self.w, x)
            self.seen["no journal"] += 1
        elif "w" in letters and rng.random() < self.faults.wipe and self.broken is None:
            self.broken, self.broken_of = x.id, x.disk.list.family
            new_disk(self.w, x)
            self.olds[x.id] = []
            self.seen["lost disks"] += 1
        elif olds and rng.random() < 0.5 and self.broken is None:
            self.broken, self.broken_of = x.id, x.disk.list.family
            x.disk = rng.choice(olds).twin()
            self.seen["old disks"] += 1
        x.safe = x.disk.twin()
        start(self.w, x)
        if x.id in self.dead:
            self.dead.discard(x.id)
            old = x.disk.list
            newer = [y for y in self.w.nodes if y.disk.list.forced > old.forced]
            for other in newer:
                hear_list(self.w, x, other.id, other.disk.list)
            if not newer:  # the disks that had the forced list are lost: it counts again
                self.judge.forced([x], old.family)

    def mend_broken(self) -> None:
        """The next disk may break when the last broken one has its right again."""
        if self.broken is None:
            return
        x = self.w.nodes[self.broken]
        lists = [y.disk.list for y in self.w.nodes if y.disk.list.family == self.broken_of]
        if not lists:
            self.broken = None
            return
        newest = max(lists, key=lambda one: (one.forced, one.number))
        is_well = x.disk.list is newest and vouches(self.w, x, newest)
        if x.is_up and not x.asking and (is_well or x.id not in newest.voters):
            self.broken = None

    def wake(self, x: Node) -> None:
        """The standstill ends."""
        x.is_paused = False
        if self.flaw != "standstill_ignored":
            x.seen = x.clock
        self.judge.check()

    def jump(self, x: Node) -> None:
        """The clock jumps: that is noticed, as promises and leases are by it."""
        self.seen["jumps"] += 1
        x.clock += x.timeout
        x.seen = x.clock
        if self.flaw in ("jump_ignored", "promise_from_sent"):
            return
        x.bound = x.clock + x.timeout
        x.echoed = {}
        x.last = {}
        x.started = x.clock

    def meet(self) -> None:
        """CLUSTER MEET."""
        a, b = self.rng.sample(self.w.nodes, 2)
        if a.is_up and b.is_up and not parted(a.disk.list, b.disk.list):
            a.disk.known |= {b.id}
            a.is_dirty = True
            self.seen["meets"] += 1

    def meet_all(self) -> None:
        """Each node meets each other one."""
        for a in self.w.nodes:
            for b in self.w.nodes:
                if a is not b and not parted(a.disk.list, b.disk.list):
                    a.disk.known |= {b.id}
                    a.is_dirty = True

    def force_some(self) -> bool:
        """[T28] CLUSTER VOTERS FORCE where the majority is dead, and no copy here is newer."""
        for x in self.rng.sample(self.w.nodes, len(self.w.nodes)):
            old = x.disk.list
            here = [v for v in old.voters if has_right(self.w, self.w.nodes[v], old)]
            if not x.is_up or x.is_paused or len(here) >= old.majority():
                continue
            if not x.has_journal and any(y.has_journal and y.is_up for y in self.w.nodes):
                continue
            if any(y.disk.list.forced > old.forced for y in self.w.nodes):
                continue
            named = [self.w.nodes[v] for v in sorted({x.id, *here})]
            if has_newer(named, self.w.nodes, old.family) and self.flaw != "force_takes_older":
                continue
            believed = self.w.nodes if self.flaw == "force_takes_older" else named
            self.judge.forced([y for y in believed if y.is_up], old.family)
            self.dead |= {v for v in old.voters if not self.w.nodes[v].is_up}
            self.seen["forced"] += 1
            force(self.w, x, [y.id for y in named])
            return True
        return False


def parted(a: VoterList, b: VoterList) -> bool:
    """[K3] Whether nodes with these lists do not join (K3.4)."""
    return a.family != b.family and not a.solo and not b.solo


def has_right(w: Cluster, y: Node, voters: VoterList) -> bool:
    """Whether it votes under the list, or may again."""
    if not y.is_up:
        return False
    if y.disk.list.family != voters.family:
        return y.disk.own is voters
    return y.disk.right > 0


def has_newer(named: list[Node], nodes: list[Node], family: int) -> bool:
    """[T21] Whether a node that is here has a newer copy than a majority may have (T28.8).

    Nor may a majority of the named ones elect one that has an older copy.
    """
    for y in nodes:
        for key, copy in y.disk.tubes.items():
            if not y.is_up or copy.copy == 0 or copy.family != family:
                continue
            have = [x.disk.tubes[key].newest() for x in named if key in x.disk.tubes]
            have += [(0, 0)] * (len(named) - len(have))
            behind = [newest for newest in have if newest < max(have)]
            if max(have) < copy.newest():
                return True
            if len(behind) > len(named) // 2 and max(behind) > (0, 0):
                return True
    return False


def any_changes(w: Cluster, x: Node) -> list[tuple[int, bool]]:
    """[T28] What ADD and REMOVE may do (T28.1)."""
    voters = x.disk.list.voters
    found = [(v, False) for v in voters] if len(voters) > 1 else []
    ready = [v for v in x.disk.known if v not in voters and standing_by(w, x, v)]
    tubes = [key for key, copy in x.disk.tubes.items() if copy.family == x.disk.list.family]
    ready = [v for v in ready if not any(is_known(w.nodes[v], key) for key in tubes)]  # T28.1
    return found + [(v, True) for v in ready] * 2


def due_changes(w: Cluster, x: Node) -> list[tuple[int, bool]]:
    """[T28] What the voter with the lowest id does by itself (T28.4)."""
    voters = x.disk.list.voters
    for v in voters:
        if v < x.id and is_heard(x, v) and x.heard[v].vouches and x.heard[v].list is x.disk.list:
            return []
    found = []
    for v, at in x.lame_at.items():
        if v in voters and x.clock > at + 2 * x.timeout and len(voters) > 2:
            found.append((v, False))
    for v in voters:
        is_going = x.is_leaving if v == x.id else is_heard(x, v) and x.heard[v].leaving
        rest = [u for u in voters if u != v and (u == x.id or votes_here(x, u))]
        if is_going and len(rest) >= (len(voters) - 1) // 2 + 1:
            found.append((v, False))
    if len(voters) < MOST_VOTERS:
        ready = [v for v in x.disk.known if v not in voters and standing_by(w, x, v)]
        found += [(v, True) for v in sorted(ready) if is_whole(w, x, v)]
    return found


def votes_here(x: Node, node: int) -> bool:
    """Whether that voter is linked and has its right."""
    return is_heard(x, node) and x.heard[node].vouches


def is_whole(w: Cluster, x: Node, node: int) -> bool:
    """[T28] Whether it has a copy of each tube of the list (T28.4)."""
    tubes = w.nodes[node].disk.tubes
    family = x.disk.list.family
    return all(
        copy.family != family or (key in tubes and tubes[key].copy > 0)
        for key, copy in x.disk.tubes.items()
        if copy.copy > 0
    )
