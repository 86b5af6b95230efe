"""Clients that do one thing after another, may end between any two, and restart.

A script is a generator: it yields a command or a pause and gets the reply. `self` survives a
restart, like the files of a checkpoint; local variables do not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Final

from sim.machines.session import LOST
from sim.workload.programs import Args, Person

if TYPE_CHECKING:
    from sim.runs.cluster import Cluster

PATIENCE_US: Final = 4_000_000  # timeout of a client
IDLE_US: Final = 300_000


class Say:
    """A command to send; `on_sent` gets the reply when the node sends it."""

    def __init__(self, words: list[bytes], on_sent: Callable[[object], None] | None = None) -> None:
        self.words = words
        self.on_sent = on_sent


Steps = Generator[Say | int, object, None]  # an int: pause in microseconds
Told = Generator[Say | int, object, object]  # a sub-script that returns its result


def failed(reply: object) -> bool:
    """Whether a command was refused or got no reply."""
    return reply is LOST or isinstance(reply, Exception)


def says(reply: object, word: str) -> bool:
    """Whether the reply is an error that begins with the word."""
    return isinstance(reply, Exception) and str(reply).startswith(word)


class Script(Person):
    """A client at one node that repeats its steps until its time is over."""

    def __init__(self, cluster: Cluster, name: str, args: Args) -> None:
        super().__init__(cluster, name)
        self.args = args
        self.machine = cluster.machines[args["node"] % len(cluster.machines)]
        self.node = self.machine.name
        self.until_us = self.world.now_us + args["for_ms"] * 1000
        self.p_crash: float = args.get("p_crash", 0.0)
        self.running: Steps | None = None
        self.serial = 0

    def steps(self) -> Steps:
        """The steps of one process of the client."""
        yield IDLE_US

    def begin(self) -> None:
        """Start a process, unless the time is over."""
        if self.world.now_us < self.until_us:
            self.running = self.steps()
            self.go(self.serial, None)

    def go(self, serial: int, reply: object) -> None:
        """Run the next step, unless another one came before; or end this process."""
        if serial != self.serial or self.running is None:
            return
        self.serial += 1
        if self.world.now_us >= self.until_us or self.chance.random() < self.p_crash:
            self.end()
            return
        try:
            wanted = self.running.send(reply)
        except StopIteration:
            self.running = None
            return
        if isinstance(wanted, int):
            self.world.after(wanted, partial(self.go, self.serial, None))
            return
        self.session(self.node).ask(wanted.words, partial(self.go, self.serial), wanted.on_sent)
        self.world.after(PATIENCE_US, partial(self.give_up, self.serial))

    def give_up(self, serial: int) -> None:
        """The reply timed out."""
        if serial == self.serial:
            self.session(self.node).close()

    def end(self) -> None:
        """The client's process ends; another one starts if there is time."""
        self.running = None
        self.serial += 1
        self.session(self.node).close()
        self.history.count("clients that ended between two steps")
        self.world.after(50_000 + self.chance.randrange(3_000_000), self.begin)

    def sometimes(self, name: str) -> bool:
        """Whether a habit of that name applies now."""
        share: float = self.args.get(name, 0.0)
        return self.chance.random() < share
