"""The end of a walk through the model of leadership: all faults end, and all must be well soon."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from spec.model.leadership import may_stand
from spec.model.leases import Cluster, is_running, vouches
from spec.model.lists import force_tube
from spec.model.state import BrokenError, Key, Node
from spec.model.walks import Walk, has_newer, has_right, parted

LIMIT: Final = 40  # timeouts in which a cluster is well again after all faults
ELECTED: Final = 5  # in which a tube has a leader whose voters are well


def may_be_given(nodes: list[Node], key: Key) -> bool:
    """Whether the node that gave the tube to another list can give it anew."""
    return any(
        x.disk.tubes[key].given > 0
        and x.disk.tubes[key].vote()[1] == x.disk.tubes[key].leader == x.id
        and x.disk.tubes[key].family == x.disk.list.family
        for x in nodes
    )


def has_copy(w: Cluster, x: Node, key: Key) -> bool:
    """Whether the node is a voter of its list, and has more of it than a vote (T27.8)."""
    copy = x.disk.tubes[key]
    return copy.copy > 0 and may_stand(w, x, copy) is not None


class Healing:
    """After it one list remains, and each tube is led."""

    def __init__(self, walk: Walk) -> None:
        self.walk, self.w = walk, walk.w
        self.wait = max(x.timeout for x in self.w.nodes)
        self.unled: dict[Key, int] = {}  # since when, though its voters are well
        self.latest = 0.0  # the longest of these, in timeouts
        calm = {
            "deliver": 1.0,
            "loss": 0.0,
            "twice": 0.0,
            "synced": 1.0,
            "eager": 0.0,
            "forget": 0.0,
        }
        walk.faults = walk.faults._replace(pulse=1.0, crash=0.0, pinch=0.0, **calm)
        walk.letters = ""
        walk.cut = set()
        walk.rounds = 4  # there and back in less than a quarter of the shortest timeout
        for x in self.w.nodes:
            if not x.is_up:
                walk.restart(x)
            elif x.is_paused:
                walk.wake(x)

    def run(self) -> float:
        """How many timeouts it took; BrokenError when that was too long."""
        walk = self.walk
        if self.is_parted():
            walk.seen["parted"] += 1
            return -1.0
        since = self.walk.w.nodes[0].clock
        for ticks in range(LIMIT * walk.ticks):
            walk.tick()
            if ticks < 2 * walk.ticks:
                walk.meet()
            elif ticks == 2 * walk.ticks:
                walk.meet_all()
            for x in self.w.nodes:
                walk.change(x, is_calm=True)
            if ticks > 0 and ticks % (8 * walk.ticks) == 0:
                self.restart_newer()
                walk.force_some()
                self.force_tubes()
                self.drop_doubles()
            self.look_soon()
            if ticks > 2 * walk.ticks and self.is_well():
                return (self.w.nodes[0].clock - since) / self.wait
        raise BrokenError(f"not well after {LIMIT} timeouts: {self.why()}")

    def look_soon(self) -> None:
        """[T27] A tube whose voters are well has a leader soon (T27.1)."""
        nodes, now = self.w.nodes, self.w.nodes[0].clock
        voters = nodes[0].disk.list
        is_sound = all(x.disk.list is voters for x in nodes)
        is_sound = is_sound and all(vouches(self.w, self.w.nodes[v], voters) for v in voters.voters)
        for key in {key for x in nodes for key in x.disk.tubes}:
            copies = [x.disk.tubes[key] for x in nodes if key in x.disk.tubes]
            is_known = all(key in self.w.nodes[v].disk.tubes for v in voters.voters)
            is_here = all(c.family == voters.family and c.given == 0 for c in copies) and is_known
            if not is_sound or not is_here or self.leader(key) is not None:
                self.unled.pop(key, None)
                continue
            late = (now - self.unled.setdefault(key, now)) / self.wait
            late *= min(1.0, self.walk.ticks / 8)  # turns (T27.2) are no shorter than a tick
            self.latest = max(self.latest, late)
            if late > ELECTED:
                raise BrokenError(f"tube {key} has no leader for {late:.1f} timeouts")

    def leader(self, key: Key) -> Node | None:
        """Who leads the tube now."""
        for x in self.w.nodes:
            if key in x.disk.tubes and is_running(self.w, x, x.disk.tubes[key]):
                return x
        return None

    def is_parted(self) -> bool:
        """Whether two clusters grew apart, which never met (K3.4)."""
        found = False
        for x in self.w.nodes:
            for y in self.w.nodes:
                if parted(x.disk.list, y.disk.list):
                    found = True
                    if y.id in x.disk.known:
                        raise BrokenError(f"two grown lists {x.disk.list} {y.disk.list} met")
        return found

    def drop_doubles(self) -> None:
        """An operator drops all but one of the tubes of one name (T17.5)."""
        keys = sorted({key for x in self.w.nodes for key in x.disk.tubes})
        for key in keys:
            if any(other[0] == key[0] and other < key for other in keys):
                self.walk.judge.dropped(key)
                for x in self.w.nodes:
                    x.disk.tubes.pop(key, None)
                    x.views.pop(key, None)
                    x.is_dirty = True

    def restart_newer(self) -> None:
        """[T28] A node without a journal cannot be named: stopped, it has no copy (T28.8)."""
        lists = {id(x.disk.list): x.disk.list for x in self.w.nodes}
        if len(lists) > 1:
            return
        voters = self.w.nodes[0].disk.list
        named = [x for x in self.w.nodes if x.id in voters.voters and has_right(self.w, x, voters)]
        for x in self.w.nodes:
            if not x.has_journal and 0 < len(named) < voters.majority():
                if has_newer(named, [x], voters.family):
                    self.walk.crash(x, is_power=False)
                    self.walk.restart(x)

    def force_tubes(self) -> None:
        """[T21] TUBE HOME FORCE of a tube of which no voter has a copy, all nodes being here."""
        w = self.w
        for key in sorted({key for x in w.nodes for key in x.disk.tubes}):
            here = [x for x in w.nodes if key in x.disk.tubes]
            if any(has_copy(w, x, key) for x in here):
                continue
            best = max(here, key=lambda x: x.disk.tubes[key].newest())
            copy = best.disk.tubes[key]
            if copy.copy == 0 or may_be_given(here, key):
                continue
            force_tube(w, best, copy)
            self.walk.judge.kept(key, copy.log)
            self.walk.seen["forced tubes"] += 1

    def is_well(self) -> bool:
        """One list, and each tube led under it."""
        return not self.why()

    def why(self) -> str:
        """What is not well."""
        lists = {id(x.disk.list): x.disk.list for x in self.w.nodes}
        if len(lists) > 1:
            return f"lists {list(lists.values())}"
        family = self.w.nodes[0].disk.list.family
        keys = {key for x in self.w.nodes for key, copy in x.disk.tubes.items()}
        for key in keys:
            x = self.leader(key)
            if x is None:
                return f"tube {key} has no leader"
            if x.disk.tubes[key].family != family:
                return f"tube {key} is led by the list that yielded"
            if x.view(key).sure < len(x.disk.tubes[key].log) - 4:
                return f"tube {key} answers nothing"
        return ""


class Result(NamedTuple):
    """Of one walk."""

    error: str
    steps: int
    healed: float
    elected: float
    seen: Counter[str]


def walk(seed: int, profile: str = "", flaw: str = "") -> Result:
    """One walk and its healing, with the faults that reveal the flaw named by `profile`."""
    one = Walk(seed, profile, flaw)
    healed = elected = -1.0
    error = ""
    try:
        one.run(one.rng.choice([60, 120, 240]))
        healing = Healing(one)
        healed = healing.run()
        elected = healing.latest
    except BrokenError as found:
        error = str(found)
    one.seen["elections"] = one.judge.elections
    one.seen["answered"] = sum(len(x) for x in one.judge.answered.values())
    return Result(error, one.steps, healed, elected, one.seen)
