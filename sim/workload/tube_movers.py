"""Clients that move leaderships, pause tubes, and rescue them in the end.

They know node ids, as operators do from CLUSTER NODES; replies tell them the leader.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from sim.engine.plan import Op
from sim.tube_judges.disk import tubes_on
from sim.tube_judges.turns import Pausing
from sim.workload.faults import apply
from sim.workload.programs import Args
from sim.workload.scripts import Say, Steps, Told, failed
from sim.workload.tube_clients import TubeClient
from tuque.core.node.queue import PAUSE_NAMES

if TYPE_CHECKING:
    from sim.machines.machine import Machine
    from sim.runs.cluster import Cluster

RETRY_US: Final = 700_000
TRIES: Final = 12
PAUSES_MAX: Final = 50  # PAUSE commands kept


class TubeMover(TubeClient):
    """Sometimes moves the leadership to another node."""

    def steps(self) -> Steps:
        """Repeated switchovers."""
        machines = self.cluster.machines
        while True:
            yield self.chance.randrange(self.args["idle_ms"] * 1000)
            target = machines[self.chance.randrange(len(machines))]
            reply = yield Say(self.words(b"HOME", target.node_id))
            self.history.count("switchovers asked for")
            if not failed(reply):
                self.history.count("switchovers answered")
                self.node = target.name
            yield from self.mend(reply)


class TubePauser(TubeClient):
    """Sometimes pauses the tube, and resumes it."""

    def steps(self) -> Steps:
        """Repeated pauses; in the end the tube is not paused."""
        while True:
            word = self.chance.choice(["in", "out", "all"]) if "hold_ms" in self.args else "none"
            yield self.chance.randrange(self.args["idle_ms"] * 1000)
            yield from self.pause(word)
            if word != "none":
                yield self.chance.randrange(self.args["hold_ms"] * 1000)
                reply = yield from self.pause("none")
                while failed(reply):
                    reply = yield from self.pause("none")

    def pause(self, word: str) -> Told:
        """PAUSE at the leader."""
        call = Pausing(PAUSE_NAMES.index(word.encode()), self.world.now_us)
        self.facts.pauses.append(call)
        del self.facts.pauses[:-PAUSES_MAX]
        told = partial(self.on_paused, call)
        reply = yield Say([b"PAUSE", self.facts.key, word.encode()], told)
        yield from self.mend(reply)
        return reply

    def on_paused(self, call: Pausing, reply: object) -> None:
        """A PAUSE got its reply."""
        call.is_over = True
        if not failed(reply):
            self.history.count("pauses of tubes")


class TubeForcer(TubeClient):
    """Stops the tube's leader, or finds it gone, and makes another node the leader."""

    def __init__(self, cluster: Cluster, name: str, args: Args) -> None:
        super().__init__(cluster, name, args)
        self.is_done = False

    def home(self) -> Machine | None:
        """The node that last ran the tube."""
        by_name = {m.name: m for m in self.cluster.machines}
        return by_name.get(self.facts.home)

    def steps(self) -> Steps:
        """Once: stop the leader, and ask others until one has taken over."""
        if self.is_done:
            return
        self.is_done = True
        home = self.home()
        if home is not None and home.shell is not None and self.args.get("kill"):
            self.cluster.watcher.on_fault("crash of a home", [home])
            home.die(how=self.args["kill"], back="disk", down_ms=self.args["down_ms"])
        elif home is not None and self.args.get("still_ms"):
            self.cluster.watcher.on_fault("pause", [home])
            home.pause(self.args["still_ms"])
        yield self.args["wait_ms"] * 1000
        for _ in range(TRIES):
            others = [m for m in self.cluster.machines if m is not home and m.shell is not None]
            if not others:
                return
            m = others[self.chance.randrange(len(others))]
            reply = yield from self.force(m)
            if isinstance(reply, list):
                return
            yield RETRY_US

    def force(self, m: Machine) -> Told:
        """TUBE HOME ... FORCE at the node that should lead."""
        self.node = m.name
        earlier = self.facts.forced.get(m.name)  # it may still be in flight
        self.facts.forced[m.name] = self.world.now_us
        self.history.count("failovers asked for")
        reply = yield Say(self.words(b"HOME", m.node_id, b"FORCE"))
        if isinstance(reply, Exception) and "moving" not in str(reply):
            self.facts.forced.pop(m.name, None)  # refused: no change
            if earlier is not None:
                self.facts.forced[m.name] = earlier
        elif isinstance(reply, list):
            self.history.count("failovers answered")
        return reply


class TubeRescuer(TubeForcer):
    """In the end: a tube that its leader has lost continues from a replica (T22.2)."""

    def steps(self) -> Steps:
        """Check repeatedly."""
        while True:
            yield 1_000_000
            if any(line.is_lost for line in self.facts.lines.values()):
                machines = [m for m in self.cluster.machines if m.shell is not None]
                yield from self.force(machines[self.chance.randrange(len(machines))])


class TubeSpoiler(TubeClient):
    """Waits for a vote: then the voter dies, and the candidate is cut off from all others."""

    def steps(self) -> Steps:
        """Once: look each millisecond."""
        while True:
            for m in self.cluster.machines:
                candidate = self.voted_for(m)
                if candidate is not None and m.shell is not None:
                    yield self.chance.randrange(self.args["wait_us"])
                    self.spoil(m, candidate)
                    return
            yield 1_000

    def voted_for(self, m: Machine) -> Machine | None:
        """The node that has this one's newest vote, and that it does not know as leader yet."""
        t = tubes_on(m.shell.n) if m.shell is not None else None
        tube = t.by_name.get(self.facts.key) if t is not None else None
        seat = tube.seat if tube is not None else None
        if tube is None or seat is None or seat.voted_epoch <= tube.epoch:
            return None
        others = [one for one in self.cluster.machines if one is not m]
        return next((one for one in others if one.node_id == seat.voted_node), None)

    def spoil(self, voter: Machine, candidate: Machine) -> None:
        """The faults."""
        self.history.count("votes spoiled")
        at = self.cluster.machines.index
        others = [at(one) for one in self.cluster.machines if one is not candidate]
        cut = {"a": [at(candidate)], "b": others, "for_ms": self.args["cut_ms"]}
        apply(self.cluster, Op(0, "cut", cut))
        self.cluster.watcher.on_fault("crash by kill", [voter])
        voter.die(how="kill", back="disk", down_ms=self.args["down_ms"])
