"""Several nodes with tubes in one process, over the links of cluster_lab.py (SPEC T17 to T22)."""

from __future__ import annotations

from cluster_lab import Lab, name_of
from refusals import said
from tuque.core.model.task import Task
from tuque.core.node.node import Node, Wake
from tuque.core.node.peers import slot_for
from tuque.core.queues.deliver import serve_ready
from tuque.core.queues.procedures import check
from tuque.tubes.leadership.create import claim_tube
from tuque.tubes.leadership.switchover import move_home, take_home
from tuque.tubes.log.leader import state_of_tube
from tuque.tubes.model.options import PutSpec, TubeOptions
from tuque.tubes.model.tube import RUNNING, Tube
from tuque.tubes.model.tubes import HomeDone, Tubes
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks import operations

BEAT_MS = 500


class HomesLab(Lab):
    """A lab whose nodes have tubes, and say heartbeats while time passes."""

    def __init__(self, count: int, has_journal: bool = False, shift_tasks: int = 2000) -> None:
        self.slow: set[int] = set()  # nodes whose disk syncs nothing
        self.shift_tasks = shift_tasks  # that go in and out in one turn (T19.6)
        super().__init__(count, has_journal)

    def born(self, i: int) -> Node:
        """A node with its journal; after its first start it knows who the others are (K1.1)."""
        self.lives[i] += 1
        n = Node(name_of(i), b"seed %d %d" % (i, self.lives[i]), self.now_ms)
        if self.lives[i] > 1:
            for b in range(len(self.nodes)):
                if b != i:
                    n.others |= 1 << slot_for(n, name_of(b))
        tubes_of(n).shift_tasks = self.shift_tasks
        if self.journals:
            self.journals[i].load(n)
        self.is_blank[i] = not n.remembers
        return n

    def link(self, a: int, b: int) -> None:
        """Connect two nodes, which are of one cluster from then on."""
        for x, y in ((a, b), (b, a)):
            self.nodes[x].others |= 1 << self.slot(x, y)
        super().link(a, b)

    def settle(self, i: int) -> None:
        """End of a turn; a disk that is slow has not synced what the core waits for (T20.3)."""
        records = self.nodes[i].records
        granted = 0 if records is None else records.granted
        safe = 0 if records is None else records.safe
        super().settle(i)
        if records is not None and i in self.slow:
            records.granted = granted
            records.safe = safe

    def t(self, i: int) -> Tubes:
        """The tubes of node i."""
        return tubes_of(self.nodes[i])

    def tube(self, i: int, name: bytes = b"t") -> Tube:
        """The tube as node i knows it."""
        return self.t(i).by_name[name]

    def state(self, i: int, name: bytes = b"t") -> str:
        """Its state there."""
        return state_of_tube(self.tube(i, name)).decode()

    def states(self, name: bytes = b"t") -> list[str]:
        """Its state at each node."""
        return [self.state(i, name) for i in range(len(self.nodes))]

    def make(self, i: int, type: bytes = b"fifottl", name: bytes = b"t", **options: object) -> Tube:
        """CREATE at node i, carried out to its end."""
        o = TubeOptions()
        for word, value in options.items():
            assert hasattr(o, word), word
            setattr(o, word, value)
        n = self.nodes[i]
        n.now_ms = self.now_ms
        tube = claim_tube(n, self.t(i), name, type, o, b"user", 1, 1)
        self.run()
        if tube is None:
            done = self.done(i)
            assert done.tube is not None, said(done)
            tube = done.tube
        return tube

    def done(self, i: int) -> HomeDone:
        """The one answer that came later at node i."""
        (done,) = self.t(i).home_done
        self.t(i).home_done = []
        return done

    def done_last(self, i: int) -> HomeDone:
        """The last of several answers."""
        found = self.t(i).home_done
        self.t(i).home_done = []
        return found[-1]

    def put(self, i: int, body: bytes = b"body", name: bytes = b"t", **options: object) -> Task:
        """PUT at node i; what follows is not carried yet."""
        spec = PutSpec()
        for word, value in options.items():
            setattr(spec, word, value)
        n = self.nodes[i]
        n.now_ms = self.now_ms
        task = operations.put(n, self.t(i), self.tube(i, name), body, 0, spec, 1, 1)
        assert task is not None
        return task

    def take(self, i: int, client: int = 1, name: bytes = b"t") -> Task | None:
        """TAKE at node i."""
        n = self.nodes[i]
        n.now_ms = self.now_ms
        return operations.take(n, self.t(i), self.tube(i, name), client)

    def ack(self, i: int, number: int, client: int = 1, name: bytes = b"t") -> Task:
        """ACK at node i."""
        return operations.ack(self.nodes[i], self.t(i), self.tube(i, name), client, number)

    def move(self, a: int, b: int, name: bytes = b"t") -> bool:
        """TUBE HOME at node a, to node b; what follows is not carried yet."""
        n = self.nodes[a]
        n.now_ms = self.now_ms
        return move_home(n, self.t(a), self.tube(a, name), self.nodes[b].node_id, 5, 7)

    def begin(self, a: int, b: int, name: bytes = b"t") -> None:
        """TUBE HOME at node a, until node b has said that it could serve the tube (T20.1)."""
        assert not self.move(a, b, name)
        for _ in range(4):
            if self.tube(a, name).move is not None:
                return
            self.carry()
        raise AssertionError("the tube does not move")

    def force(self, i: int, name: bytes = b"t") -> None:
        """TUBE HOME FORCE at node i."""
        n = self.nodes[i]
        n.now_ms = self.now_ms
        take_home(n, self.t(i), self.tube(i, name), 5, 7)
        self.run()

    def live(self, span_ms: int) -> None:
        """Let time pass with heartbeats."""
        left_ms = span_ms
        while left_ms > 0:
            step_ms = min(BEAT_MS, left_ms)
            self.pass_ms(step_ms)
            self.beat()
            left_ms -= step_ms

    def picture(self, i: int, name: bytes = b"t") -> dict[int, tuple[object, ...]]:
        """All tasks of the tube as node i has them, as home or as copies."""
        tube = self.tube(i, name)
        found: dict[int, tuple[object, ...]] = {}
        for number, task in sorted({**tube.tasks, **tube.copies}.items()):
            found[number] = (
                task.id, chr(task.status), task.body, task.pri, task.subqueue, task.ttl_ms,
                task.ttr_ms, task.created_ms, task.qtime_ms, task.token, task.deliveries,
                task.delivered_count, task.form,
            )  # fmt: skip
        return found

    def runs_at(self, name: bytes = b"t") -> list[int]:
        """The nodes at which the tube runs: never two."""
        found = []
        for i in range(len(self.nodes)):
            tube = self.t(i).by_name.get(name)
            n = self.nodes[i]
            if tube is None or i in self.still:
                continue
            if tube.state == RUNNING and self.now_ms <= min(self.t(i).lease_ms, tube.lease_ms):
                found.append(i)
                check(n)
        assert len(found) < 2, f"{name!r} runs at {found}"
        return found

    def wakes(self, i: int) -> list[Wake]:
        """What clients that waited at node i are told."""
        n = self.nodes[i]
        serve_ready(n)
        found = n.wakes
        n.wakes = []
        return found
