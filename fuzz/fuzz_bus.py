"""Nodes on the bus that know the secret and say what they like; evil addresses."""

from __future__ import annotations

import socket
from random import Random
from typing import Any

import msgspec
from fuzz_box import SECRET, FuzzBox
from fuzz_values import KEYS, QUEUES, change, damage, number, some_bytes

from tuque.core.model.job_id import IdMaker
from tuque.core.model.task import BURIED, DELAYED, READY, TAKEN, Task
from tuque.core.msgs import bus as msgs
from tuque.core.msgs.bus import Heartbeat, Slots
from tuque.core.records.jobs import Records
from tuque.core.records.tubes import tell_task, tell_task_state
from tuque.tubes.model.tube import Tube
from tuque.tubes.policy import tubes_of
from tuque.wire.bus.bus import BusError, head_of, sealed
from tuque.wire.bus.card import Card
from tuque.wire.bus.handshake import Conn

I64 = (1 << 63) - 1
KINDS = list(msgs.AnyMessage.__args__)
NODES = [(b"%02x" % (i + 16)) * 20 for i in range(3)]
STATUSES = [READY, TAKEN, DELAYED, BURIED]
TYPES = [b"fifo", b"fifottl", b"limfifottl", b"utube", b"utubettl", b"nosuch", b""]
ENCODER = msgspec.msgpack.Encoder()
FIELDS = {kind: [one.name for one in msgspec.structs.fields(kind)] for kind in KINDS}


class Peer:
    """One other node that dials this one or is dialled by it."""

    def __init__(self, box: FuzzBox, rng: Random, number: int) -> None:
        self.box = box
        self.rng = rng
        self.me = NODES[number]
        self.ids = IdMaker(self.me, b"a peer", box.n.ids.key)
        self.made: list[bytes] = []
        self.life = 1
        self.mark = rng.randbytes(8)
        self.sock: socket.socket | None = None
        self.conn: Conn | None = None
        self.rounds = 0
        self.chosen: Tube | None = None  # the tube that the message is about

    # ---- connections

    def act(self) -> int:
        """Say something; how much."""
        rng = self.rng
        if self.sock is None:
            self.connect()
            return 1
        if self.conn is None or self.conn.peer is None:
            self.shake()
            return 1
        count = rng.randint(1, 10)
        said = [self.message() for _ in range(count)]
        self.box.now = repr(said)[:500]
        payload = self.payload(said)
        assert self.conn.seal is not None
        data = sealed(payload, self.conn.seal)
        if rng.random() < 0.01:
            data = damage(rng, data)
        self.send(data)
        self.box.turns(2)
        self.hear()
        return count

    def payload(self, said: list[Any]) -> bytes:
        """The messages as bytes; now and then with something changed in them."""
        payload = ENCODER.encode(said)
        roll = self.rng.random()
        if roll < 0.06:
            return ENCODER.encode(change(self.rng, msgspec.msgpack.decode(payload, strict=False)))
        return damage(self.rng, payload) if roll < 0.09 else payload

    def connect(self) -> None:
        """Dial the node, or let it dial this one."""
        rng = self.rng
        card = self.card()
        self.box.server.bus.unauthenticated.meet(
            "127.0.0.1"
        )  # it may come as often as it likes (B1.9)
        if rng.random() < 0.15:
            self.be_dialled(card)
        else:
            self.sock = socket.create_connection(("127.0.0.1", int(self.box.server.bus.port)))
            self.conn = self.conn_of(True, card)
        if self.sock is not None:
            self.sock.setblocking(False)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.box.turns()
            self.shake()

    def be_dialled(self, card: Card) -> None:
        """The node is told to meet this one, and dials."""
        with socket.create_server(("127.0.0.1", 0)) as door:
            port = door.getsockname()[1]
            self.box.server.members.meet("127.0.0.1", port, port)
            self.box.turns()
            self.box.pass_ms(1100)
            door.settimeout(0.2)
            try:
                self.sock, _ = door.accept()
            except TimeoutError:  # many nodes are met, or it has a link with that port
                return
        self.conn = self.conn_of(False, card)

    def conn_of(self, is_dialer: bool, card: Card) -> Conn:
        """This end of the handshake."""
        return Conn(is_dialer, card, [SECRET.encode()], self.rng.randbytes(32), 1 << 24)

    def card(self) -> Card:
        """Who this one says that it is; mostly what can be."""
        rng = self.rng
        if rng.random() < 0.2:
            self.life += 1
            self.mark = rng.randbytes(8)
        card = Card(self.me, self.life, self.mark, rng.random() < 0.5, 7711, 17711, "", False)
        if rng.random() < 0.1:
            host = rng.choice(
                ("here", "a" * 255, "é", "[::1]", "\u202e", "h\xa0h", "x:y", "#", "-")
            )
            fields = {"host": host, "life": number(rng), "port": number(rng, 0, 65535)}
            fields["node_id"] = rng.choice((self.me, NODES[0], self.box.n.node_id, b"f" * 40))
            name = rng.choice(list(fields))
            card = msgspec.structs.replace(card, **{name: fields[name]})
        return card

    def shake(self) -> None:
        """The handshake; its bytes are damaged now and then, and so is a whole HELLO."""
        conn, rng = self.conn, self.rng
        if conn is None or self.sock is None:
            return
        for _ in range(4):
            out = conn.take_out()
            roll = rng.random()
            if out and roll < 0.03:
                out = damage(rng, out)
            elif out and roll < 0.06 and not conn.theirs:
                hello = ENCODER.encode(change(rng, msgspec.msgpack.decode(conn.mine)))
                if rng.random() < 0.5:
                    hello = damage(rng, conn.mine)
                out = head_of(hello, 0) + hello
            self.send(out)
            self.box.turns()
            self.hear()
            if self.sock is None:
                return
            if conn.peer is not None:
                self.send(conn.take_out())
                self.box.turns()
                return
        self.leave()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        try:
            if self.sock is not None:
                self.sock.sendall(data)
        except OSError:
            self.leave()

    def hear(self) -> None:
        """Read what the node says."""
        try:
            while self.sock is not None and self.conn is not None:
                data = self.sock.recv(1 << 20)
                if not data:
                    self.leave()
                    return
                self.conn.feed(data)
        except BlockingIOError:
            pass
        except (OSError, BusError):
            self.leave()

    def leave(self) -> None:
        """Close the connection."""
        if self.sock is not None:
            self.sock.close()
        self.sock = None
        self.conn = None

    # ---- messages

    def message(self) -> Any:
        """One message of any kind, its fields as they may be, for the most part."""
        rng = self.rng
        if rng.random() < 0.1:
            return Slots([(i, one, rng.choice((1, 1 << 40 | 1))) for i, one in self.slots()])
        kind = rng.choice(KINDS)
        if kind is msgs.Refusal and rng.random() < 0.9:
            kind = msgs.ReplJob
        if kind is Heartbeat:
            self.rounds += 1
        tube = self.tube()
        return kind(**{name: self.field(kind, name, tube) for name in FIELDS[kind]})

    def slots(self) -> list[tuple[int, bytes]]:
        """How this one numbers the nodes."""
        return [*enumerate([self.me, self.box.n.node_id, *[n for n in NODES if n != self.me]])]

    def tube(self) -> Tube | None:
        """A tube that the node knows."""
        known = list(tubes_of(self.box.n).by_name.values())
        mine = [one for one in known if one.home == self.me]
        if mine and self.rng.random() < 0.7:
            known = mine
        self.chosen = self.rng.choice(known) if known else None
        return self.chosen

    def field(self, kind: Any, name: str, tube: Tube | None) -> Any:
        """A value for the field of that name."""
        rng = self.rng
        if tube is not None and rng.random() < 0.9:
            known = getattr(tube, name, None)
            if name in ("name", "maker", "made_ns", "epoch") and known is not None:
                return known + (rng.random() < 0.3) if name == "epoch" else known
            if name in ("seq", "from_seq", "to_seq", "begin_seq") and rng.random() < 0.7:
                return int(tube.seq) + rng.choice((0, 0, 0, 1, 2))
        maker = getattr(self, "of_" + name, None)
        if maker is not None:
            return maker(kind)
        if name.startswith("is_") or (name == "known" and kind is msgs.GotAck):
            return rng.random() < 0.5
        if name.endswith("_ns"):
            return number(rng, 0, I64 - 1)
        if name in ("nacks", "deliveries", "retry_s", "delay_s"):
            return number(rng, 0, (1 << 31) - 1)
        if name in ("port", "bus_port"):
            return number(rng, 0, 65535)
        if name in ("flags", "bits", "how", "answer"):
            return number(rng, 0, 31)
        return number(rng)

    def of_id(self, kind: Any) -> bytes:
        """An id: of a job here, an old one, one that was made under the secret, or nonsense."""
        rng, n = self.rng, self.box.n
        roll = rng.random()
        if roll < 0.5 and n.jobs:
            return rng.choice(list(n.jobs)[:300])
        if roll < 0.65 and self.made:
            return rng.choice(self.made[-50:])
        if roll < 0.9:
            made = self.ids.make(rng.choice((60, 86400)), rng.choice((0, 1)))
            self.made.append(made)
            return made
        if roll < 0.97:
            return bytes(some_bytes(rng, 40).ljust(40, b"-")[:40])
        return some_bytes(rng, 41)

    def of_ids(self, kind: Any) -> list[bytes]:
        """Some ids."""
        return [self.of_id(kind) for _ in range(self.rng.choice((0, 1, 1, 2, 5)))]

    of_refused = of_ids

    def of_queue(self, kind: Any) -> bytes:
        """A queue, perhaps a tube."""
        return self.rng.choice(QUEUES) if self.rng.random() < 0.9 else some_bytes(self.rng)

    of_name = of_queue

    def of_body(self, kind: Any) -> bytes:
        """A body."""
        return some_bytes(self.rng, 60)

    def of_holders(self, kind: Any) -> int:
        """A set of nodes, by the sender's numbers."""
        if self.rng.random() < 0.85:
            return self.rng.randrange(16)
        return number(self.rng)

    def of_left_ms(self, kind: Any) -> int:
        """Remaining time."""
        return self.rng.choice((1, 100, 5000, 86_400_000, number(self.rng)))

    of_due_ms = of_delay_ms = of_left_ms

    def of_repl(self, kind: Any) -> int:
        """How many copies."""
        return number(self.rng, 1, 65_535)

    def of_mode(self, kind: Any) -> int:
        """Of a copy."""
        return number(self.rng, 0, 255)

    def of_ctime_ns(self, kind: Any) -> int:
        """When a job was made."""
        now_ns = int(self.box.n.now_ms) * 1_000_000
        return self.rng.choice((now_ns, now_ns + 1, now_ns - 10**9, number(self.rng, 0, I64 - 1)))

    def of_jobs(self, kind: Any) -> list[Any]:
        """Jobs in a message."""
        names = FIELDS[msgs.ReplJob]
        count = self.rng.choice((0, 1, 1, 3))
        return [
            msgs.ReplJob(**{name: self.field(msgs.ReplJob, name, None) for name in names})
            for _ in range(count)
        ]

    def of_nodes(self, kind: Any) -> list[Any]:
        """Nodes in SLOTS or in a heartbeat."""
        rng = self.rng
        if kind is Slots:
            ids = [self.of_node_id(kind) for _ in range(rng.randint(0, 4))]
            return [(number(rng, 0, 61), one, number(rng)) for one in ids]
        names = FIELDS_OF_GOSSIP
        return [
            msgs.Gossip(**{name: self.field(msgs.Gossip, name, None) for name in names})
            for _ in range(rng.choice((0, 0, 1, 3)))
        ]

    def of_node_id(self, kind: Any) -> bytes:
        """A node: known ones, this one, or one that nobody heard of."""
        rng = self.rng
        known = [*NODES, self.box.n.node_id]
        if rng.random() < 0.9:
            return rng.choice(known)
        return rng.choice((rng.randbytes(20).hex().encode(), b"F" * 40, b"g" * 40, b"", b"a\nb"))

    of_maker = of_home = of_node_id

    def of_host(self, kind: Any) -> str:
        """Where a node is said to be."""
        return self.rng.choice(("127.0.0.1", "::1", "", "no.where", "a b", "a\nb", "é", "x" * 300))

    def of_round(self, kind: Any) -> int:
        """The number of a heartbeat."""
        return self.rounds if self.rng.random() < 0.9 else number(self.rng)

    def of_echo(self, kind: Any) -> int:
        """The newest heartbeat heard."""
        return int(self.box.n.round) if self.rng.random() < 0.8 else number(self.rng)

    def of_now_ms(self, kind: Any) -> int:
        """The clock of a home."""
        return int(self.box.n.now_ms) if self.rng.random() < 0.8 else number(self.rng)

    def of_removal(self, kind: Any) -> int:
        """Whether a node is out."""
        return self.rng.choice((0, 0, 0, 0, 1, 2, number(self.rng)))

    def of_text(self, kind: Any) -> str:
        """Why a link must not be."""
        return self.rng.choice(("", "no", "\x1b[2J", "x" * 5000))

    def of_sync(self, kind: Any) -> int:
        """How many nodes must have a change."""
        return number(self.rng, 1, 3)

    def of_words(self, kind: Any) -> list[bytes]:
        """Type, storage mode, engine, callback."""
        return [self.rng.choice(TYPES), b"default", b"", self.rng.choice((b"", b"call"))]

    def of_tubes(self, kind: Any) -> list[Any]:
        """Tubes in TUBES."""
        names = FIELDS_OF_AT
        count = self.rng.choice((0, 1, 1, 2))
        return [
            msgs.TubeAt(**{name: self.field(TUBE_AT, name, self.tube()) for name in names})
            for _ in range(count)
        ]

    def of_gone(self, kind: Any) -> list[int]:
        """Numbers of tasks that are over."""
        return [number(self.rng, 0, 5) for _ in range(self.rng.randint(0, 2))]

    def of_sessions(self, kind: Any) -> list[Any]:
        """Holders of tasks."""
        rng = self.rng
        count = rng.randint(0, 2)
        return [(number(rng, 1, 3), rng.randbytes(16), rng.choice(KEYS)) for _ in range(count)]

    def of_records(self, kind: Any) -> bytes:
        """Tasks as the journal writes them, with numbers nobody would write."""
        rng = self.rng
        records = Records([])
        tube = self.chosen.name if self.chosen is not None else b"t"
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            task = Task(
                self.of_id(kind).ljust(40, b"-")[:40], tube, some_bytes(rng),
                self.inside(I64), rng.randrange(9), self.inside(I64), rng.choice((0, 1, 2, 3, 255)),
            )  # fmt: skip
            task.status = rng.choice(STATUSES) if rng.random() < 0.95 else rng.randrange(256)
            task.subqueue = rng.choice(KEYS)
            for name in ("created_ms", "ttl_ms", "ttr_ms", "qtime_ms", "token", "owner"):
                setattr(task, name, self.inside(I64))
            for name in ("taken_ms", "first_ms", "last_ms"):
                setattr(task, name, self.inside(I64))
            for name in ("nacks", "deliveries", "delivered_count", "delay_s"):
                setattr(task, name, self.inside((1 << 31) - 1))
            tell_task(records, task) if rng.random() < 0.8 else tell_task_state(records, task, True)
        data = records.take()
        return damage(rng, data) if rng.random() < 0.05 else data

    def inside(self, high: int) -> int:
        """A number that its place in a record can hold, whether it makes sense or not."""
        return max(-high - 1, min(high, number(self.rng, 0, high)))


TUBE_AT = msgs.TubeAt
FIELDS_OF_GOSSIP = [one.name for one in msgspec.structs.fields(msgs.Gossip)]
FIELDS_OF_AT = [one.name for one in msgspec.structs.fields(msgs.TubeAt)]
