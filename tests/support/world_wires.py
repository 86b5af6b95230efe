"""Connections of a test to the nodes of its world: RESP and IPROTO, by the byte or by the word.

Each word is carried out at once, with all that follows from it at this instant. Knows no client
library: what it sends is what the test says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import hiredis

from iproto_raw import Talk
from raw_resp import NULL, Err, encode
from sim.engine.network import End
from sim.machines.kernel import CLIENTS
from tuque.server.state.client import Client
from world_machines import IPROTO

if TYPE_CHECKING:
    from world import World

PATIENCE_MS: Final = 60_000  # of a read that waits


class Status(bytes):
    """The text of a status reply."""


class Ear:
    """The client's end of a connection, as the network calls it."""

    def __init__(self, wire: RawWire) -> None:
        self.wire = wire
        self.process: object = self

    def on_connected(self, end: End | None) -> None:
        """The node accepted the connection, or there is none."""
        self.wire.end = end

    def on_data(self, end: End, data: bytes) -> None:
        """Bytes arrived."""
        self.wire.came(data)

    def on_lost(self, end: End) -> None:
        """The node closed the connection."""
        self.wire.is_closed = True
        self.wire.lost()


class RawWire:
    """One connection: bytes in, bytes out."""

    def __init__(
        self, world: World, i: int, port: str, address: str = "", end: End | None = None
    ) -> None:
        """Connect to node i; `end`: of a connection that the node has made itself."""
        self.world = world
        self.end = end
        self.i = i
        self.unread = bytearray()  # what the test has not read
        self.is_closed = False  # by the node
        self.address = address or f"127.0.0.1:{world.next_port()}"  # as the node sees it
        self.place = "#".join(self.address.rsplit(":", 1))
        self.node = f"n{i}"
        ear = Ear(self)
        if end is not None:
            end.owner = ear
            return
        world.lab.net.connect(ear, self.place, self.node, port, ear.on_connected)
        world.settle_wires()
        if self.end is None:
            raise ConnectionError(f"{self.node} does not accept connections")

    def came(self, data: bytes) -> None:
        """Bytes arrived."""
        self.unread += data

    def lost(self) -> None:
        """The node closed the connection."""

    def put(self, data: bytes) -> None:
        """Send bytes; what follows is not carried out yet."""
        assert self.end is not None
        if data:
            self.end.send(data)

    def give(self, data: bytes) -> None:
        """Send bytes, and carry out what follows."""
        self.put(data)
        self.world.settle()

    def say(self, *pieces: bytes) -> bytes:
        """Send the pieces, each read apart; what was answered up to now."""
        for piece in pieces:
            self.put(piece)
            self.world.settle_wires()
        return self.bytes_now()

    def answer(self, *pieces: bytes) -> bytes:
        """The same; it ends with <closed> once the node has closed the connection."""
        heard = self.say(*pieces)
        return heard + b"<closed>" if self.is_closed else heard

    def bytes_now(self) -> bytes:
        """What was answered since the last look, after all that is to be done now."""
        self.world.settle_wires()
        heard = bytes(self.unread)
        self.unread.clear()
        return heard

    def is_open(self) -> bool:
        """Whether the node has the connection open."""
        self.world.settle_wires()
        return not self.is_closed

    def stop_reading(self) -> None:
        """The client reads no more: what the node sends stays on the way."""
        self.world.lab.net.set_cut(self.node, self.place, True)

    def read_on(self) -> None:
        """The client reads again."""
        self.world.lab.net.set_cut(self.node, self.place, False)
        self.world.settle_wires()

    def stop_writing(self) -> None:
        """The client's end of the stream; it still reads."""
        assert self.end is not None
        assert self.end.out is not None
        self.end.out.put(b"")
        self.world.settle_wires()

    def reset(self) -> None:
        """The client resets the connection, and takes no reply any more."""
        assert self.end is not None
        assert self.end.peer is not None
        self.end.peer.lose()
        self.end.lose()

    def close(self) -> None:
        """The client closes the connection."""
        assert self.end is not None
        self.end.close()
        self.is_closed = True
        self.world.settle_wires()


class Wire(RawWire):
    """A connection that speaks RESP: `wire("GETJOB", "FROM", "q")` is the reply.

    A reply that does not come now is None, a null is NULL, an error an `Err`.
    """

    def __init__(self, world: World, i: int, address: str = "") -> None:
        super().__init__(world, i, CLIENTS, address)
        self._served: list[bytes] = []
        self._reader = hiredis.Reader(replyError=Err, protocolError=Err)

    def __call__(self, *words: str | bytes | int) -> Any:
        """Send a command; its reply, None if there is none now."""
        self.send(*words)
        return self.take()

    def ask(self, *words: str | bytes | int) -> Any:
        """Send a command; its reply, whenever it comes: time passes meanwhile."""
        self.send(*words)
        return self.read()

    def send(self, *words: str | bytes | int) -> None:
        """Send a command, and carry it out."""
        self.put(encode(*words))
        self.world.settle_wires()

    def send_in_turn(self, *words: str | bytes | int) -> None:
        """Send a command, and let the node take one turn: what it needs more is not done yet."""
        self.put(encode(*words))
        self.world.turn(self.i)

    def held(self, *words: str | bytes | int) -> tuple[bool, Any]:
        """Send a command: whether its reply waits for a sync of the journal, and the reply."""
        disk = self.world.disk(self.i)
        disk.slow(1)
        self.send(*words)
        self.world.settle()
        is_held = not self.unread
        reply = self.read()
        disk.slow(0)
        return is_held, reply

    def hear(self) -> bytes:
        """The bytes that were answered since the last look, also to what the test did itself."""
        self.world.settle()
        return self.bytes_now()

    def line(self, line: str, *words: str | bytes | int) -> bytes:
        """Send the words of `line` and then `words`; the bytes answered."""
        return self.say(encode(*line.split(), *words))

    def value(self, line: str, *words: str | bytes) -> Any:
        """The same; the reply as a value, a null as None."""
        reader = hiredis.Reader()
        reader.feed(self.line(line, *words))
        return reader.gets()

    @property
    def c(self) -> Client:
        """What the node knows of this connection."""
        clients = self.world.node(self.i).server.clients.values()
        (found,) = [c for c in clients if c.address == self.address]
        return found

    def take(self) -> Any:
        """The only reply that is there; None: there is none."""
        found = self.take_all()
        assert len(found) < 2, f"more than one reply: {found}"
        return found[0] if found else None

    def take_all(self) -> list[Any]:
        """All replies that are there."""
        self.world.settle_wires()
        return self.values()

    def values(self) -> list[Any]:
        """The replies that have come; what is to be done now is not carried out."""
        data = bytes(self.unread)
        self.unread.clear()
        self._reader.feed(data)
        found: list[Any] = []
        while (value := self._reader.gets()) is not False:
            found.append(marked(value, data))
        return found

    def read(self) -> Any:
        """The next reply, whenever it comes: time passes meanwhile."""
        self.world.until(lambda: self.unread or self.is_closed, PATIENCE_MS)
        if not self.unread:
            raise EOFError("the node closed the connection")
        return self.take()

    # ---- shortcuts

    def add(
        self, queue: str | bytes = "q", body: str | bytes = "body", *words: str, **options: Any
    ) -> bytes:
        """ADDJOB; the id. An option is a word, or a name with its number; so is `timeout_ms`."""
        self.send_add(queue, body, *words, **options)
        reply = self.take()
        assert isinstance(reply, Status), reply
        return bytes(reply)

    def begin_add(
        self, queue: str | bytes = "q", body: str | bytes = "body", *words: str, **options: Any
    ) -> bytes:
        """The same, whose reply has not come; the id of the job, which the node has by now."""
        jobs = self.world.node(self.i).core.jobs
        before = set(jobs)
        self.send_add(queue, body, *words, **options)
        assert not self.unread, bytes(self.unread)
        (id,) = set(jobs) - before
        return id

    def send_add(
        self,
        queue: str | bytes,
        body: str | bytes,
        *words: str,
        timeout_ms: int = 0,
        **options: Any,
    ) -> None:
        """ADDJOB; its reply is not read."""
        for name, value in options.items():
            words += (name,) if value is True else (name, str(int(value)))
        self.send("ADDJOB", queue, body, timeout_ms, *words)

    def wait(self, *queues: str | bytes, timeout_ms: int = 0) -> None:
        """GETJOB, whose reply comes when there is a job: see `served`."""
        words = ("TIMEOUT", timeout_ms) if timeout_ms else ()
        self.send("GETJOB", *words, "FROM", *(queues or ("q",)))

    def served(self) -> list[bytes]:
        """The ids of all jobs that came after a `wait`."""
        for reply in self.take_all():
            assert reply is NULL or isinstance(reply, list), reply
            self._served += [] if reply is NULL else [job[1] for job in reply]
        return list(self._served)

    def get(self, *queues: str | bytes, count: int = 1) -> list[bytes]:
        """GETJOB NOHANG; the ids."""
        reply = self("GETJOB", "NOHANG", "COUNT", count, "FROM", *(queues or ("q",)))
        assert reply is NULL or isinstance(reply, list), reply
        return [] if reply is NULL else [job[1] for job in reply]

    def show(self, job_id: str | bytes) -> dict[str, Any]:
        """SHOW, empty for an unknown job."""
        flat = self("SHOW", job_id)
        if flat is NULL:
            return {}
        assert isinstance(flat, list), flat
        return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}

    def state(self, job_id: str | bytes) -> str:
        """The state that SHOW tells, `gone` for an unknown job."""
        shown = self.show(job_id)
        return shown["state"].decode() if shown else "gone"

    def qlen(self, queue: str | bytes = "q") -> int:
        """QLEN."""
        return int(self("QLEN", queue))

    def info(self, section: str = "all") -> dict[str, str]:
        """A section of INFO."""
        lines = self("INFO", section).decode().split("\r\n")
        return dict(line.split(":", 1) for line in lines if ":" in line)


def marked(value: Any, data: bytes) -> Any:
    """A value of hiredis, with NULL for a null and Status for a status; None within an array."""
    if value is None:
        return NULL
    if isinstance(value, Exception):
        return Err(str(value))
    if isinstance(value, list):
        return [None if item is None else marked(item, b"") for item in value]
    if isinstance(value, bytes) and data.startswith(b"+%s\r\n" % value):
        return Status(value)
    return value


class IprotoWire(Talk, RawWire):
    """A connection that speaks IPROTO."""

    def __init__(self, world: World, i: int, address: str = "") -> None:
        RawWire.__init__(self, world, i, IPROTO, address)
        Talk.__init__(self)

    def receive(self) -> bytes:
        """Some bytes, whenever they come: time passes meanwhile; empty at the end."""
        self.world.until(lambda: self.unread or self.is_closed, PATIENCE_MS)
        return self.bytes_now()

    def send(self, data: bytes) -> None:
        """Send bytes, and have the node read them."""
        self.put(data)
        self.world.settle_wires()
