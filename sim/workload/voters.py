"""An operator who changes the list of voters: shrinks it, lets it grow, moves it, forces it.

He knows node ids and lists, as operators do from CLUSTER VOTERS. Faults strike at the instant of a
growth: he waits for it, millisecond by millisecond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sim.engine.plan import Op
from sim.tube_judges.disk import tubes_on
from sim.tube_judges.forces import Force, voters_of
from sim.workload.admin import leave, set_candidate
from sim.workload.faults import apply
from sim.workload.scripts import Say, Script, Steps, failed
from tuque.tubes.model.voter_state import FORCE_GAP

if TYPE_CHECKING:
    from sim.machines.machine import Machine

TRIES: Final = 20
RETRY_US: Final = 300_000
LOOK_US: Final = 1_000
GROWTH_US: Final = 8_000_000  # within it a list that can grow has grown
LEAVING_US: Final = 6_000_000
FORCE_US: Final = 12_000_000  # until a FORCE is done and judged
AWAY_MS: Final = 8_000  # a node that is lost for good, as far as the plan goes
CUT_MS: Final = 5_000
SLOW_MS: Final = 10_000
BLINK_MS: Final = 100  # a node that is back soon


class VoterKeeper(Script):
    """Does the acts of its plan in turn, each as far as it goes."""

    def steps(self) -> Steps:
        """Once: every act."""
        for act in self.args["acts"]:
            yield int(act.get("wait_ms", 500)) * 1000
            if not self.voting():
                return
            yield from ACTS[act["do"]](self, act)

    # ---- what he knows

    def at(self, index: int) -> Machine:
        """A machine of the plan."""
        return self.cluster.machines[index % len(self.cluster.machines)]

    def voting(self) -> list[Machine]:
        """The voters, as the node with the newest list knows them."""
        lists = [voters_of(m) for m in self.cluster.machines]
        known = [one for one in lists if one is not None]
        if not known:
            return []
        newest = max(known, key=lambda one: int(one.number))
        return [m for m in self.cluster.machines if m.node_id in newest.rights]

    def has_three(self, m: Machine) -> bool:
        """Whether that node uses a list that has grown."""
        voters = voters_of(m)
        return voters is not None and len(voters.rights) >= 3

    def has_whole(self, m: Machine) -> bool:
        """Whether the node has a whole copy of each tube: else nobody names it."""
        t = tubes_on(m.shell.n) if m.shell is not None else None
        return t is not None and all(tube.is_complete for tube in t.by_name.values())

    def is_growing(self, m: Machine) -> bool:
        """Whether the node is about to add two voters at once."""
        t = tubes_on(m.shell.n) if m.shell is not None else None
        change = t.voter_state.change if t is not None else None
        return change is not None and len(change.second) > 0

    # ---- lists

    def change(self, at: Machine, verb: bytes, m: Machine) -> Steps:
        """CLUSTER VOTERS ADD or REMOVE, until it is done."""
        for _ in range(TRIES):
            if (m in self.voting()) == (verb == b"ADD"):
                self.history.count(f"voters by {verb.decode()}")
                return
            self.node = at.name
            reply = yield Say([b"CLUSTER", b"VOTERS", verb, m.node_id])
            if failed(reply):
                yield RETRY_US

    def shrink(self, act: dict[str, Any]) -> Steps:
        """One node votes, and the others do not join."""
        only = self.at(act["to"])
        for m in self.cluster.machines:
            set_candidate(m, m is only)
        if only not in self.voting():
            yield from self.change(self.voting()[0], b"ADD", only)
        for m in self.voting():
            if m is not only:
                yield from self.change(only, b"REMOVE", m)

    def move(self, act: dict[str, Any]) -> Steps:
        """Another node votes in the place of one."""
        voting = self.voting()
        others = [m for m in self.cluster.machines if m not in voting]
        if not others or len(voting) < 2:
            return
        joins, goes = others[0], voting[act["which"] % len(voting)]
        set_candidate(goes, False)
        set_candidate(joins, True)
        at = next(m for m in voting if m is not goes)
        yield from self.change(at, b"ADD", joins)
        yield from self.change(at, b"REMOVE", goes)

    def give_away(self, act: dict[str, Any]) -> Steps:
        """The only voter leaves: another node gets its vote and its tubes. Then it stays."""
        m = self.voting()[0]
        for one in self.cluster.machines:
            set_candidate(one, True)
        m.has_left = True
        self.cluster.watcher.on_fault("leaving", [m])
        leave(self.cluster, m, True)
        until_us = self.world.now_us + LEAVING_US
        while self.world.now_us < until_us and m in self.voting():
            yield RETRY_US
        self.history.count("votes given away", m not in self.voting())
        leave(self.cluster, m, False)

    # ---- growth, and what strikes at that instant

    def grow(self, act: dict[str, Any]) -> Steps:
        """The others may vote: the list becomes one of three."""
        only, spoil = self.voting()[0], SPOILS.get(act.get("spoil", ""))
        self.hold_up(only, [m for m in self.cluster.machines if m is not only], act)
        for m in self.cluster.machines:
            set_candidate(m, True)
        until_us = self.world.now_us + GROWTH_US
        while self.world.now_us < until_us and not self.has_three(only):
            if spoil is not None and self.is_growing(only):
                yield from spoil(self, only, act)
                return
            yield LOOK_US
        self.history.count("lists that grew", self.has_three(only))

    def hold_up(self, m: Machine, others: list[Machine], act: dict[str, Any]) -> None:
        """What the machine sends to those is late from now on, if the act says so."""
        late = {"extra_ms": act.get("late_ms", 0), "for_ms": SLOW_MS}
        for one in others if act.get("late_ms") else ():
            apply(self.cluster, Op(0, "slow", {"a": m.index, "b": one.index, **late}))

    def strike(self, m: Machine, down_ms: int) -> None:
        """A machine loses power."""
        args = {"node": m.index, "how": "power", "back": "disk", "fuse": 0, "down_ms": down_ms}
        apply(self.cluster, Op(0, "crash", args))

    def part(self, m: Machine) -> None:
        """A machine is cut off from all others."""
        others = [one.index for one in self.cluster.machines if one is not m]
        apply(self.cluster, Op(0, "cut", {"a": [m.index], "b": others, "for_ms": CUT_MS}))

    def lose_one(self, only: Machine, act: dict[str, Any]) -> Steps:
        """A node loses power during the growth."""
        yield self.chance.randrange(act["within_us"])
        self.history.count("nodes lost in a growth")
        self.strike(self.at(act["node"]), AWAY_MS // 2)

    def cut_one(self, only: Machine, act: dict[str, Any]) -> Steps:
        """A node is cut off during the growth."""
        yield self.chance.randrange(act["within_us"])
        self.history.count("nodes lost in a growth")
        self.part(self.at(act["node"]))

    def lose_twice(self, only: Machine, act: dict[str, Any]) -> Steps:
        """The voter loses power when it uses the list, and again when the others have it."""
        yield from self.wait_for(lambda: self.has_three(only))
        yield self.chance.randrange(act["within_us"])
        self.history.count("nodes lost in a growth")
        self.strike(only, BLINK_MS)
        others = [m for m in self.cluster.machines if m is not only]
        yield from self.wait_for(lambda: all(map(self.has_three, others)))
        self.strike(only, AWAY_MS)

    def lose_and_part(self, only: Machine, act: dict[str, Any]) -> Steps:
        """The voter loses power when another one uses the list, and comes back alone."""
        others = [m for m in self.cluster.machines if m is not only]
        yield from self.wait_for(lambda: any(map(self.has_three, others)))
        self.history.count("nodes lost in a growth")
        self.strike(only, BLINK_MS)
        self.part(only)

    def wait_for(self, is_so: Callable[[], bool]) -> Steps:
        """Until it is so, or the growth has come to nothing."""
        until_us = self.world.now_us + GROWTH_US
        while self.world.now_us < until_us and not is_so():
            yield LOOK_US

    # ---- force

    def force(self, act: dict[str, Any]) -> Steps:
        """A majority of the voters is lost: FORCE names others. Then the lost ones come back."""
        if self.until_us - self.world.now_us < FORCE_US:
            return  # the plan ends before
        voting = self.voting()
        at = self.at(act["at"]) if len(voting) == 1 else voting[act["at"] % len(voting)]
        lost = [m for m in voting if m is not at]
        if at in voting:
            lost = lost[: len(lost) // 2 + 1]
        yield from self.wait_for(lambda: self.has_whole(at))
        if not lost or not self.has_whole(at):
            return
        for m in lost:
            self.hold_up(m, [at], act)
        yield int(act.get("late_ms", 0)) * 1000
        for m in lost:
            self.strike(m, -1)
        yield 3 * self.cluster.plan.node_timeout_ms * 1000
        yield from self.name_all(at, [at])
        yield int(act["back_ms"]) * 1000
        for m in lost:
            m.start()

    def name_all(self, at: Machine, named: list[Machine]) -> Steps:
        """CLUSTER VOTERS FORCE, with each node that must be named."""
        force, times = Force(self.cluster), forces_of(at)
        self.node = at.name
        for _ in range(TRIES):
            ids = [m.node_id for m in named]
            reply = yield Say([b"CLUSTER", b"VOTERS", b"FORCE", *ids])
            if forces_of(at) > times:  # the reply may be lost
                force.is_done(at)
                self.history.count("lists by force")
                return
            wanted = [m for m in self.cluster.machines if m.node_id.decode() in str(reply)]
            newer = [m for m in wanted if "newer changes" in str(reply) and m not in named]
            self.history.count("newer copies named", len(newer))
            named = [at, named[-1]] if "older changes" in str(reply) else named + newer
            yield RETRY_US


def forces_of(m: Machine) -> int:
    """How many FORCEs the list of the node comes from."""
    voters = voters_of(m)
    return int(voters.number) // FORCE_GAP if voters is not None else 0


Act = Callable[[VoterKeeper, dict[str, Any]], Steps]
ACTS: Final[dict[str, Act]] = {
    "shrink": VoterKeeper.shrink,
    "grow": VoterKeeper.grow,
    "move": VoterKeeper.move,
    "leave": VoterKeeper.give_away,
    "force": VoterKeeper.force,
}
SPOILS: Final[dict[str, Callable[[VoterKeeper, Machine, dict[str, Any]], Steps]]] = {
    "lose": VoterKeeper.lose_one,
    "cut": VoterKeeper.cut_one,
    "twice": VoterKeeper.lose_twice,
    "apart": VoterKeeper.lose_and_part,
}
