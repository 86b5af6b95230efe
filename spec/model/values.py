"""A model of VALUE (spec/values.md): named values in the log of a tube, under faults.

Leaders are elected as the other model says: of a majority the node with the longest log. A change
is an entry of the log, and what values there are follows from the log alone.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Final, NamedTuple

from spec.model.small import play
from spec.model.state import BrokenError

NODES: Final = 3
STEPS: Final = 160
PARTS: Final = 3
NONE: Final = -1  # no part has completed the set

# rules that are broken on purpose: each must be found
FLAWS: Final = {
    "dirty_read": "GET shows what a majority lacks",
    "wake_at_once": "WAIT ends before a majority has the value",
    "zero_at_once": "a call that changed nothing is answered at once",
    "fixed_in_memory": "that a value is FIXED is known to its leader alone",
    "last_in_memory": "which part completed the set is known to its leader alone",
    "one_for_all": "each call of a part of a complete set gets the 1",
    "one_once": "the part that completed the set gets the 1 only once",
    "size_grows_on": "SIZE of a complete set can still grow",
    "silent_end": "the end of a TTL is no change",
    "parts_by_name": "parts belong to a name, and are removed after their set",
    "waits_stay": "a leader that stops does not tell those who wait",
}


class Change(NamedTuple):
    """One entry of the log."""

    epoch: int
    kind: str  # begin, set, end, part, set-of-parts, drop, sweep
    name: str = ""
    number: int = 0  # version of a value, index of a part, or size
    is_fixed: bool = False
    last: int = NONE


class Parts:
    """A set of parts as the log says it is."""

    def __init__(self) -> None:
        self.indexes: set[int] = set()
        self.size = 0
        self.last = NONE


class State:
    """What follows from a log."""

    def __init__(self, log: list[Change], flaw: str) -> None:
        self.values: dict[str, tuple[int, bool]] = {}  # version, and whether it is fixed
        self.parts: dict[str, Parts] = {}
        strays: set[int] = set()
        self.sets = 0  # how often values were set
        for one in log:
            if one.kind == "set":
                self.values[one.name] = (one.number, one.is_fixed and flaw != "fixed_in_memory")
                self.sets += 1
            elif one.kind == "end":
                self.values.pop(one.name, None)
            elif one.kind == "drop":
                gone = self.parts.pop(one.name, None)
                strays = gone.indexes if gone is not None else strays
            elif one.kind == "sweep":
                strays = set()
            elif one.kind in ("part", "head"):
                at = self.parts.get(one.name)
                if at is None:
                    at = self.parts[one.name] = Parts()
                    at.indexes |= strays if flaw == "parts_by_name" else set()
                if one.kind == "part":
                    at.indexes.add(one.number)
                else:
                    at.size = one.number
                    at.last = one.last if flaw != "last_in_memory" else NONE


class Node:
    """A node with a log on its disk."""

    def __init__(self) -> None:
        self.log: list[Change] = []
        self.is_up = True


class Call(NamedTuple):
    """A command that waits for copies of the first `length` changes."""

    kind: str
    name: str
    number: int
    epoch: int
    length: int
    reply: tuple[int | None, int, int] = (0, 0, 0)


class Walk:
    """One walk: clients, three nodes, faults, and a judge."""

    def __init__(self, seed: int, flaw: str = "") -> None:
        self.dice = random.Random(seed)
        self.flaw = flaw
        self.nodes = [Node() for _ in range(NODES)]
        self.leader = 0
        self.epoch = 0
        self.got: dict[int, int] = {}  # by follower: confirmed changes
        self.memory: dict[str, int] = {}  # of the leader, lost with it
        self.waiting: list[Call] = []
        self.waits: set[int] = set()  # epochs of leaders at which a client waits
        self.seen: list[Change] = []  # what replies have shown of the log
        self.fixed = (0, 0)  # the last that was answered, and where in the log
        self.gone: dict[str, int] = {}  # shown as gone after so many SETs
        self.ones: set[int] = set()  # parts that got the 1
        self.told: Counter[str] = Counter()
        self.sent: set[int] = set()
        self.todo = list(range(PARTS))  # parts whose worker has no reply yet
        self.generation = 0
        self.is_dropping = False
        self.version = 0
        self.sizes = [PARTS]
        self.elect(0)

    # ---- the log

    @property
    def log(self) -> list[Change]:
        """The log of the leader."""
        return self.nodes[self.leader].log

    def state(self) -> State:
        """What the leader knows."""
        return State(self.log, self.flaw)

    def synced(self) -> int:
        """How many changes a majority has."""
        return sorted([len(self.log), *self.got.values()], reverse=True)[NODES // 2]

    def add(
        self, kind: str, name: str, number: int = 0, is_fixed: bool = False, last: int = NONE
    ) -> None:
        """A change."""
        self.log.append(Change(self.epoch, kind, name, number, is_fixed, last))

    def copy(self) -> None:
        """A follower gets some changes."""
        at = self.dice.choice([i for i in range(NODES) if i != self.leader])
        if self.nodes[at].is_up:
            length = self.dice.randint(self.got.get(at, 0), len(self.log))
            if self.nodes[at].log[:length] != self.log[:length]:
                self.nodes[at].log = self.log[:length]
            self.got[at] = length

    def elect(self, at: int) -> None:
        """This node leads from now on."""
        if self.nodes[at].log[: len(self.seen)] != self.seen:
            raise BrokenError("what a reply has shown is undone")
        self.leader = at
        self.epoch += 1
        self.got = {i: 0 for i in range(NODES) if i != at}
        self.memory = {}
        lost, self.waiting = self.waiting, []
        if self.flaw != "waits_stay" and self.waits:
            self.waits = {self.epoch}  # they are sent to the new leader
        self.add("begin", "")
        for one in lost:
            self.repeat(one)

    def fail_over(self) -> None:
        """The leader is lost; of a majority the longest log wins. It comes back as a follower."""
        up = [i for i in range(NODES) if i != self.leader]
        if self.dice.random() < 0.3:
            up.append(self.leader)  # a restart
        self.elect(max(up, key=lambda i: ([one.epoch for one in self.nodes[i].log[-1:]],
                                          len(self.nodes[i].log))))  # fmt: skip

    # ---- what clients do

    def hold(
        self,
        kind: str,
        name: str,
        number: int,
        now: bool = False,
        reply: tuple[int | None, int, int] = (0, 0, 0),
    ) -> None:
        """The reply waits for copies; `now`: a flaw does not wait."""
        call = Call(kind, name, number, self.epoch, len(self.log), reply)
        if now:
            self.answer(call)
        else:
            self.waiting.append(call)

    def answer_some(self) -> None:
        """Replies leave; some get lost, and their clients call again."""
        done = self.synced()
        ready = [one for one in self.waiting if one.length <= done]
        self.waiting = [one for one in self.waiting if one.length > done]
        for one in ready:
            self.seen = max(self.seen, self.log[: one.length], key=len)
            if self.dice.random() < 0.8:
                self.answer(one)
            else:
                self.repeat(one)

    def repeat(self, call: Call) -> None:
        """The client got no reply. Who sends a part sends it until it has one (finding 4)."""
        if call.kind == "drop":
            self.add("drop", "t")
            self.hold("drop", "t", 0)
        elif call.kind == "tally" and call.reply[2] == self.generation:
            if call.number not in self.todo:
                self.todo.append(call.number)

    def answer(self, call: Call) -> None:
        """[values.md] The client has the reply: what it may not say."""
        self.told[call.kind] += 1
        shown = self.log[: call.length]
        self.seen = max(self.seen, shown, key=len)
        if call.kind == "get":
            self.judge_get(call)
        elif call.kind == "set" and call.number < 0:
            self.fixed = (call.number, call.length)
        elif call.kind == "tally":
            self.judge_tally(call)
        elif call.kind == "drop":
            self.dropped()

    def judge_get(self, call: Call) -> None:
        """What GET may show."""
        value, sets, _ = call.reply
        fixed, since = self.fixed
        ends = any(one.kind == "end" for one in self.log[since : call.length])
        if fixed != 0 and not ends and call.length >= since and value not in (None, fixed):
            raise BrokenError("a FIXED value was overwritten")
        if value is None:
            self.gone[call.name] = sets
        elif self.gone.get(call.name, -1) >= sets:
            raise BrokenError("a value that was gone is back")

    def judge_tally(self, call: Call) -> None:
        """Who may get the 1."""
        parts, is_one, generation = call.reply
        if generation != self.generation:
            return
        if parts is None or parts > len(self.sent):
            raise BrokenError("a part was counted that nobody sent")
        if is_one:
            self.ones.add(call.number)
        if len(self.ones) > 1:
            raise BrokenError("two parts got the 1")
        if call.number in self.todo:
            self.todo.remove(call.number)

    def set_value(self, is_fixed: bool) -> None:
        """SET, perhaps FIXED; the version of a fixed one is negative."""
        old = self.state().values.get("v")
        is_kept = old is not None and (old[1] or self.memory.get("fixed", 0) == old[0])
        if not is_kept:
            self.version += 1
            number = -self.version if is_fixed else self.version
            self.add("set", "v", number, is_fixed=is_fixed)
            if is_fixed:
                self.memory["fixed"] = number
            self.hold("set", "v", number)
        else:
            self.hold("set", "v", 0, self.flaw == "zero_at_once")
        if self.epoch in self.waits and is_fixed and not is_kept:
            self.waits.discard(self.epoch)
            self.hold("wait", "v", 0, self.flaw == "wake_at_once")

    def get_value(self) -> None:
        """GET."""
        state = self.state()
        value = state.values.get("v")
        is_over = self.flaw == "silent_end" and self.memory.get("clock", 0) >= state.sets
        shown = None if value is None or is_over else value[0]
        self.hold("get", "v", 0, self.flaw == "dirty_read", (shown, state.sets, 0))

    def end_value(self) -> None:
        """Its TTL is over by the leader's clock."""
        state = self.state()
        if "v" not in state.values:
            return
        if self.flaw == "silent_end":
            self.memory["clock"] = state.sets  # the clock of another leader says otherwise
        else:
            self.add("end", "v")

    def tally(self, index: int, size: int) -> None:
        """TALLY: the part, then what it makes of its set."""
        self.sent.add(index)
        at = self.state().parts.get("t", Parts())
        is_new = index not in at.indexes
        if is_new:
            self.add("part", "t", index)
        count = len(at.indexes) + is_new
        last = self.memory.get("last", NONE) if self.flaw == "last_in_memory" else at.last
        grown = at.size if last != NONE and self.flaw != "size_grows_on" else max(at.size, size)
        if self.flaw == "size_grows_on" and grown > at.size:
            last = NONE
        is_whole = 0 < grown <= count
        is_first = is_whole and last == NONE
        if is_first:
            last = index
        self.memory["last"] = last
        is_one = is_whole and (last == index or self.flaw == "one_for_all")
        if self.flaw == "one_once":
            is_one = is_first
        is_changed = is_new or (grown, last) != (at.size, at.last)
        if (grown, last) != (at.size, at.last):
            self.add("head", "t", grown, last=last)
        now = self.flaw == "zero_at_once" and not is_changed
        self.hold("tally", "t", index, now, (count, is_one, self.generation))

    def drop(self) -> None:
        """The set has been read: it is dropped, and the name is used again."""
        if len(self.todo) > 0 or "t" not in self.state().parts or len(self.waiting) > 0:
            return
        if len(self.ones) != 1 and self.synced() == len(self.log):
            raise BrokenError("all parts were answered, and nobody got the 1")
        self.add("drop", "t")
        self.is_dropping = True
        self.hold("drop", "t", 0)

    def dropped(self) -> None:
        """Who dropped the set has the reply: the name may be used again."""
        self.is_dropping = False
        self.generation += 1
        self.ones, self.todo, self.sent = set(), list(range(PARTS)), set()

    # ---- the walk

    def step(self) -> None:
        """Something happens."""
        dice = self.dice
        what = dice.random()
        if what < 0.25:
            self.copy()
        elif what < 0.45:
            self.answer_some()
        elif what < 0.5:
            self.fail_over()
        elif what < 0.6:
            self.set_value(dice.random() < 0.3)
        elif what < 0.68:
            self.get_value()
        elif what < 0.71:
            self.end_value()
        elif what < 0.74:
            self.waits.add(self.epoch)
        elif what < 0.76:
            self.drop()
        elif what < 0.77:
            self.add("sweep", "t")
        else:
            self.work()

    def work(self) -> None:
        """A worker reports its part; now and then one that has its reply is run again."""
        if self.is_dropping:
            return
        again = self.dice.random() < 0.3
        index = (
            self.dice.randrange(PARTS) if again or not self.todo else self.dice.choice(self.todo)
        )
        self.tally(index, PARTS if self.dice.random() < 0.7 else self.dice.choice((0, 1, 2)))

    def heal(self) -> None:
        """No more faults: all who wait get what they wait for."""
        for _ in range(30):
            for _ in range(3):
                self.copy()
            for index in [] if self.is_dropping else list(self.todo):
                self.tally(index, PARTS)
            self.answer_some()
        self.end_value()
        self.set_value(True)
        if self.waits:
            raise BrokenError("a client waits for a value at a node that leads no more")


def walk(seed: int, flaw: str = "") -> tuple[str, Counter[str]]:
    """What broke, or "", and what was answered how often."""
    one = Walk(seed, flaw)
    return play(one, STEPS), one.told
