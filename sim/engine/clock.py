"""The clocks of one machine: a wall clock that jumps, a steady one with a small drift.

A node reads the wall clock once, at its start, and then uses the steady clock.
"""

from __future__ import annotations

from sim.engine.world import START_MS, World
from tuque.store.frames import Boot


class MachineClock:
    """The clocks of a machine. `rate_ppm` is how much too fast they run."""

    def __init__(self, world: World, name: str, rate_ppm: int = 0) -> None:
        self.world = world
        self.name = name
        self.rate_ppm = rate_ppm
        self.wall_offset_ms = 0
        self.jumps = 0
        self.boots = 1
        self.booted_us = 0

    def steady_ms(self, at_us: int) -> int:
        """Milliseconds since boot, by the steady clock."""
        true_us = at_us - self.booted_us
        return (true_us + true_us * self.rate_ppm // 1_000_000) // 1000

    def wall_ms(self) -> int:
        """The wall clock, in ms."""
        true_us = self.world.now_us
        return START_MS + self.wall_offset_ms + (
            true_us + true_us * self.rate_ppm // 1_000_000
        ) // 1000  # fmt: skip

    def jump(self, by_ms: int) -> None:
        """Set the wall clock."""
        self.wall_offset_ms += by_ms
        self.jumps += 1

    def reboot(self) -> None:
        """The machine restarted: its steady clock begins at zero."""
        self.boots += 1
        self.booted_us = self.world.now_us

    def boot_record(self) -> Boot:
        """The current relation of wall and steady clock."""
        boot_id = f"{self.name} boot {self.boots}".encode()
        return Boot(self.wall_ms(), boot_id, self.steady_ms(self.world.now_us))


class NodeClock:
    """The clock of one process: wall time at its start plus the machine's steady time."""

    def __init__(self, machine: MachineClock) -> None:
        self.machine = machine
        self.world = machine.world
        self.offset_ms = machine.wall_ms() - machine.steady_ms(machine.world.now_us)
        self.read_us = -1  # true time when it was read
        self.read_ms = 0

    def now_ms(self) -> int:
        """The time as the process sees it, in ms."""
        now_us = self.world.now_us
        if now_us != self.read_us:
            self.read_us = now_us
            self.read_ms = self.offset_ms + self.machine.steady_ms(now_us)
        return self.read_ms

    def true_us(self, at_ms: int) -> int:
        """The true instant at which this clock reaches `at_ms`, or just after."""
        machine = self.machine
        steady_us = (at_ms - self.offset_ms) * 1000
        slow_us = steady_us * 1_000_000 // (1_000_000 + machine.rate_ppm) + 1
        at_us = machine.booted_us + slow_us
        while machine.steady_ms(at_us) + self.offset_ms < at_ms:
            at_us += 500
        return at_us
