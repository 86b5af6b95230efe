"""Who moves the homes of tubes, pauses tubes, and helps in the end.

They know node ids, as people do from CLUSTER NODES; where a home is they hear from answers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tuque.core.node.queue import PAUSE_NAMES
from tuque.sim.tube_judges.turns import Pausing
from tuque.sim.workload.programs import Args
from tuque.sim.workload.scripts import Say, Steps, Told, failed
from tuque.sim.workload.tube_clients import TubeClient

if TYPE_CHECKING:
    from tuque.sim.machines.machine import Machine
    from tuque.sim.runs.cluster import Cluster

RETRY_US: Final = 700_000
TRIES: Final = 12
PAUSES_MAX: Final = 50  # commands that are remembered


class TubeMover(TubeClient):
    """Moves the home to another node now and then."""

    def steps(self) -> Steps:
        """Switchover after switchover."""
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
    """Pauses the tube now and then, and lets it go again."""

    def steps(self) -> Steps:
        """Pause after pause; in the end it is not paused."""
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
        """PAUSE at the home."""
        call = Pausing(PAUSE_NAMES.index(word.encode()), self.world.now_us)
        self.facts.pauses.append(call)
        del self.facts.pauses[:-PAUSES_MAX]
        told = partial(self.on_paused, call)
        reply = yield Say([b"PAUSE", self.facts.key, word.encode()], told)
        yield from self.mend(reply)
        return reply

    def on_paused(self, call: Pausing, reply: object) -> None:
        """The answer."""
        call.is_over = True
        if not failed(reply):
            self.history.count("pauses of tubes")


class TubeForcer(TubeClient):
    """Ends or stops the home of the tube, or finds it gone, and makes another node the home."""

    def __init__(self, cluster: Cluster, name: str, args: Args) -> None:
        super().__init__(cluster, name, args)
        self.is_done = False

    def home(self) -> Machine | None:
        """The node that ran the tube last."""
        by_name = {m.name: m for m in self.cluster.machines}
        return by_name.get(self.facts.home)

    def steps(self) -> Steps:
        """Once: the home ends, and others are asked until one has taken the tube."""
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
        """TUBE HOME ... FORCE at the node that is to be the home."""
        self.node = m.name
        earlier = self.facts.forced.get(m.name)  # it may be on its way still
        self.facts.forced[m.name] = self.world.now_us
        self.history.count("failovers asked for")
        reply = yield Say(self.words(b"HOME", m.node_id, b"FORCE"))
        if isinstance(reply, Exception) and "moving" not in str(reply):
            self.facts.forced.pop(m.name, None)  # refused: nothing was done
            if earlier is not None:
                self.facts.forced[m.name] = earlier
        elif isinstance(reply, list):
            self.history.count("failovers answered")
        return reply


class TubeRescuer(TubeForcer):
    """In the end: a tube whose home has lost it goes on from a copy (T22.2)."""

    def steps(self) -> Steps:
        """Look again and again."""
        while True:
            yield 1_000_000
            if any(line.is_lost for line in self.facts.lines.values()):
                machines = [m for m in self.cluster.machines if m.shell is not None]
                yield from self.force(machines[self.chance.randrange(len(machines))])
