"""TCP as it really is: bytes in order, split at random, and ends that learn things late.

A `Line` leads from one place to another and has a delay; it can be cut in one direction or be
slow. Bytes on a cut line wait (TCP retransmits) until the line heals or the connection breaks.
A broken connection loses a suffix of the bytes in flight, at any byte. Ends may learn of it
late, or not before they write again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, Protocol

from sim.engine.meddler import Meddler
from sim.engine.world import World

FLIGHT_MAX: Final = 1 << 20  # bytes in flight above which a sender must wait


class Owner(Protocol):
    """The owner of one end of a connection."""

    process: object  # all its connections end with it

    def on_data(self, end: End, data: bytes) -> None:
        """Bytes arrived."""

    def on_lost(self, end: End) -> None:
        """The other side closed, or the connection broke."""


class Listener(Protocol):
    """A place that accepts connections."""

    def accept(self, end: End, port: str) -> bool:
        """Accept the connection, or refuse it."""


class Line:
    """One direction between two places."""

    def __init__(self, chance: Random, delay_us: int) -> None:
        self.chance = chance
        self.delay_us = delay_us
        self.extra_us = 0  # delay of a slow line
        self.is_cut = False
        self.pipes: list[Pipe] = []  # of open connections

    def draw_us(self) -> int:
        """Draw the delay of the next bytes."""
        drawn = self.chance.random()
        us = int(self.delay_us * (0.5 + drawn))
        if drawn > 0.98:
            us *= 10
        return us + (int(self.extra_us * self.chance.random()) if self.extra_us else 0) + 1


class Pipe:
    """One direction of a connection: the bytes in flight."""

    def __init__(self, net: Network, line: Line, to: End) -> None:
        self.net = net
        self.world = net.world
        self.line = line
        self.to = to
        self.flight: deque[tuple[int, bytes]] = deque()
        self.last_us = 0
        self.is_pumping = False
        self.flying = 0
        self.not_before_us = 0  # nothing arrives before
        self.is_broken = False  # bytes sent from now on never arrive
        self.on_room: Callable[[], None] | None = None  # called when there is room again
        self.meddler: Meddler | None = None
        line.pipes.append(self)

    def put(self, data: bytes) -> None:
        """Send bytes, maybe in pieces."""
        if self.meddler is not None and data:
            data = self.meddler.pass_on(data)
            if not data:
                return
        self.send(data)

    def send(self, data: bytes) -> None:
        """Let them be on their way."""
        if self.is_broken:
            return
        line = self.line
        at_us = self.world.instant(max(self.last_us + 1, self.world.now_us + line.draw_us()))
        self.flying += len(data)
        if len(data) > 1 and line.chance.random() < self.net.split_rate:
            cut = line.chance.randrange(1, len(data))
            self.flight.append((at_us, data[:cut]))
            data = data[cut:]
            at_us += line.chance.randrange(1, 2_000)
        self.flight.append((at_us, data))
        self.last_us = at_us
        if not self.is_pumping:
            self.pump()

    def pump(self) -> None:
        """Schedule the arrival of the next bytes in flight."""
        if not self.is_pumping and self.flight and not self.line.is_cut:
            self.is_pumping = True
            self.world.at(self.flight[0][0], self.arrive)

    def hurry(self) -> None:
        """The line is fast again: bytes in flight arrive soon."""
        instant = self.world.instant
        soon_us = max(self.world.now_us + self.line.delay_us, self.not_before_us)
        if self.last_us > soon_us + len(self.flight):
            flight = enumerate(self.flight)
            self.flight = deque((instant(soon_us + i), data) for i, (_, data) in flight)
            self.last_us = soon_us + len(self.flight)
            self.is_pumping = False
            self.pump()

    def arrive(self) -> None:
        """The next bytes in flight arrive."""
        self.is_pumping = False
        flight = self.flight
        if self.line.is_cut or not flight:
            return
        if flight[0][0] > self.world.now_us:
            self.pump()
            return
        _, data = flight.popleft()
        self.flying -= len(data)
        if flight:
            self.pump()
        if self.on_room is not None:
            on_room, self.on_room = self.on_room, None
            on_room()
        self.to.arrived(data)


class End:
    """One end of a connection."""

    def __init__(self, owner: Owner | None) -> None:
        self.owner = owner
        self.out: Pipe | None = None
        self.peer: End | None = None
        self.is_open = True  # this side may write and read
        self.label = ""
        self.sent = 0
        self.got = 0

    def send(self, data: bytes) -> bool:
        """Write; False if this end is closed."""
        pipe = self.out
        if not self.is_open or pipe is None:
            return False
        self.sent += len(data)
        peer = self.peer
        if peer is not None and not peer.is_open and peer.owner is None:
            pipe.net.refuse_late(self)  # no such connection there: a reset comes back
            return True
        pipe.put(data)
        return True

    def arrived(self, data: bytes) -> None:
        """Bytes arrived; b"" is the end of the stream."""
        if not self.is_open:
            return
        if not data:
            self.lose()
            return
        self.got += len(data)
        if self.owner is not None:
            self.owner.on_data(self, data)

    def lose(self) -> None:
        """This side learns that the connection ended."""
        if self.is_open:
            self.is_open = False
            self.drop()
            if self.owner is not None:
                self.owner.on_lost(self)

    def close(self) -> None:
        """Close this side cleanly: written bytes still arrive, then the end."""
        if not self.is_open:
            return
        self.is_open = False
        if self.out is not None and self.peer is not None and self.peer.is_open:
            self.out.put(b"")
        else:
            self.drop()

    def drop(self) -> None:
        """Drop the bytes in flight from here."""
        pipe = self.out
        if pipe is not None:
            pipe.flight.clear()
            pipe.flying = 0
            if pipe in pipe.line.pipes:
                pipe.line.pipes.remove(pipe)


class Network:
    """All lines and connections."""

    def __init__(self, world: World, split_rate: float, delay_us: int) -> None:
        self.world = world
        self.split_rate = split_rate
        self.delay_us = delay_us
        self.lines: dict[tuple[str, str], Line] = {}
        self.listeners: dict[str, Listener] = {}
        self.conns: list[tuple[End, End]] = []
        self.chance = world.stream("net")
        self.has_meddlers = False  # between nodes that have a secret

    def new_end(self, owner: Owner | None) -> End:
        """One end of a new connection."""
        return End(owner)

    def line(self, a: str, b: str) -> Line:
        """The line between two places, in this direction."""
        found = self.lines.get((a, b))
        if found is None:
            found = Line(self.world.stream(f"line {a} {b}"), self.delay_us)
            self.lines[a, b] = found
        return found

    def connect(
        self, owner: Owner, here: str, there: str, port: str, told: Callable[[End | None], None]
    ) -> None:
        """Connect; `told` gets the end, or None if refused or timed out."""
        out, back = self.line(here, there), self.line(there, here)
        if out.is_cut or back.is_cut:
            self.world.after(1_000_000, partial(told, None))
            return
        self.world.after(
            out.draw_us(), partial(self._reach, owner, here, there, port, told)
        )  # fmt: skip

    def _reach(
        self, owner: Owner, here: str, there: str, port: str, told: Callable[[End | None], None]
    ) -> None:
        """The connection request arrives."""
        listener = self.listeners.get(there)
        back_us = self.line(there, here).draw_us()
        near, far = self.new_end(owner), self.new_end(None)
        if listener is not None:
            near.peer, far.peer = far, near
            near.out = Pipe(self, self.line(here, there), far)
            far.out = Pipe(self, self.line(there, here), near)
            near.label = far.label = f"{here}-{there}"
            if listener.accept(far, port):
                # nothing arrives before the reply
                far.out.last_us = far.out.not_before_us = self.world.now_us + back_us + 1
                self.conns.append((near, far))
                if self.has_meddlers and port == "bus":
                    near.out.meddler = Meddler(near.out)
                    far.out.meddler = Meddler(far.out)
                self.world.after(back_us, partial(self._tell, near, told))
                return
            near.drop()
            far.drop()
        self.world.after(back_us, partial(told, None))

    def _tell(self, near: End, told: Callable[[End | None], None]) -> None:
        """The reply arrives at the dialler."""
        told(near if near.is_open else None)

    def refuse_late(self, end: End) -> None:
        """Bytes reach a place that has no such connection: a reset comes back."""
        pipe = end.out
        if pipe is not None and not pipe.line.is_cut:
            self.world.after(pipe.line.draw_us() * 2, end.lose)

    def break_conn(self, a: End, b: End) -> None:
        """Break a connection: suffixes are lost, each end learns of it in its own time."""
        for end, other in ((a, b), (b, a)):
            pipe = end.out
            if pipe is None:
                continue
            pipe.is_broken = True
            if not pipe.flight:
                continue
            keep = self.chance.randrange(len(pipe.flight) + 1)
            while len(pipe.flight) > keep:
                at_us, data = pipe.flight.pop()
                if len(pipe.flight) == keep and len(data) > 1 and other.is_open:
                    part = data[: self.chance.randrange(1, len(data))]
                    pipe.flight.append((at_us, part))
                    break
            self.world.note(f"break {end.label}")
        for end in (a, b):
            if self.chance.random() < 0.8:
                self.world.after(self.chance.randrange(1, 200_000), end.lose)
            else:
                self.world.after(self.chance.randrange(200_000, 20_000_000), end.lose)

    def crash(self, process: object, is_power_cut: bool) -> None:
        """A process ended: its ends close; peers learn of it soon, when they write, or never."""
        self.conns = [pair for pair in self.conns if pair[0].is_open or pair[1].is_open]
        for a, b in self.conns:
            for mine, other in ((a, b), (b, a)):
                if mine.owner is None or mine.owner.process is not process or not mine.is_open:
                    continue
                mine.is_open = False
                mine.owner = None
                if is_power_cut:
                    mine.drop()
                elif other.is_open and mine.out is not None:
                    mine.out.put(b"")

    def set_cut(self, a: str, b: str, is_cut: bool) -> None:
        """Cut or heal one direction."""
        line = self.line(a, b)
        line.is_cut = is_cut
        if not is_cut:
            for pipe in line.pipes:
                pipe.pump()

    def heal(self) -> None:
        """Restore all lines to their usual speed."""
        for (a, b), line in self.lines.items():
            line.extra_us = 0
            for pipe in line.pipes:
                pipe.hurry()
            if line.is_cut:
                self.set_cut(a, b, False)
