"""What machines stand on: a world, a network, and who watches the nodes.

Nobody watches here. The cluster of a seed passes what it is told to its judges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.engine.network import Network
from sim.engine.world import World

if TYPE_CHECKING:
    from sim.machines.machine import Machine
    from sim.machines.shell import Shell


class Ground:
    """The world and the network; each method says what a node did."""

    def __init__(self, world: World, net: Network) -> None:
        self.world = world
        self.net = net
        self.machines: list[Machine] = []
        self.forced_number = 0  # of the last list by FORCE (SPEC T28.8)

    def on_loaded(self, m: Machine, shell: Shell, arrived: dict[bytes, bool]) -> None:
        """A process has loaded its journal, and serves; jobs that `arrived` elsewhere are gone."""

    def on_run(self, m: Machine, shell: Shell) -> None:
        """A turn ran; its output has not left yet."""

    def on_turn(self, m: Machine, shell: Shell) -> None:
        """A turn ended."""

    def on_reply(self, made_us: int) -> None:
        """A reply that was made at that time leaves now."""

    def on_closed(self, m: Machine, shell: Shell, number: int) -> None:
        """The process has closed the connection of the client with that number."""

    def on_death(self, m: Machine, shell: Shell, how: str, back: str) -> None:
        """A process ended; its disk is as the next start finds it."""

    def on_bad_journal(self, m: Machine, text: str) -> None:
        """A journal cannot be loaded, though no fault of its disk excuses that."""

    def on_times_off(self) -> None:
        """Nobody can tell how long a machine was off."""
