"""Several nodes in one process: the real core, links in memory, one hand-set clock.

Messages travel as encoded by msgspec, in order per link, and arrive when `run` or `step` carries
them. A cut link loses what is in flight; a held link keeps it. Nothing happens by itself.
"""

from __future__ import annotations

import msgspec

from refusals import words_of
from tuque.core.copies.add import on_addjob, refusal, settle
from tuque.core.copies.replicate import on_reach_changed
from tuque.core.dispatch import messages as bus
from tuque.core.dispatch.restore import after_load
from tuque.core.dispatch.timers import next_timer_ms, tick
from tuque.core.model.job import ACKED, ACTIVE, QUEUED, AddSpec, Job
from tuque.core.msgs import AnyMessage
from tuque.core.node.node import Added, Node
from tuque.core.node.peers import (
    journal_fails,
    set_failing,
    set_leaver,
    set_reachable,
    slot_for,
)
from tuque.core.node.tables import set_time
from tuque.core.queues.deliver import on_getjob, serve_ready, wait
from tuque.core.queues.procedures import check
from tuque.core.records.jobs import Records
from tuque.core.repair.drain import set_leaving
from tuque.core.repair.node_loss import on_forget, on_incarnation
from tuque.store.disk import MemoryDisk
from tuque.store.frames import Boot
from tuque.store.replay import Loader
from tuque.store.snapshot import Snapshot
from tuque.store.writer import Journal

START_MS = 1_700_000_000_000
PATH = "/journal"
ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(list[AnyMessage])


def name_of(i: int) -> bytes:
    """The id of node i."""
    return (b"%02x" % (i + 10)) * 20


class Kept:
    """The journal of one node, synced at the end of each turn, a lazy one where frames wait."""

    def __init__(self, i: int) -> None:
        self.is_lazy = False
        self.disk = MemoryDisk()
        self.disk.makedirs(PATH)
        self.node_id = name_of(i)
        self.journal = Journal(self.disk, PATH, self.node_id, Boot(START_MS, b"lab", 0))

    def load(self, n: Node) -> None:
        """Start from the recorded journal."""
        boot = Boot(n.now_ms, b"lab", n.now_ms - START_MS)
        loader = Loader(self.disk, PATH, boot, False)
        while not loader.step(n, 1000):
            pass
        self.journal = Journal(self.disk, PATH, self.node_id, boot)
        self.journal.start(loader.manifest, loader.seq(), n.now_ms)
        n.records = Records(n.node_ids, n.lives)
        after_load(n)

    def write(self, n: Node) -> None:
        """Store the turn's records."""
        records = n.records
        if records is None:
            return  # turned off
        count, must_sync = records.count, records.has_custody or not self.is_lazy
        if count > 0:
            assert self.journal.append(records.take(), count, n.now_ms)
        if must_sync:
            assert count == 0 or self.journal.sync()
            records.granted = records.wish
            records.safe = records.query

    def rewrite(self, n: Node) -> None:
        """BGREWRITEAOF, all at once."""
        self.write(n)
        journal = self.journal
        assert journal.begin_rewrite(journal.seq, n.now_ms)
        snapshot = Snapshot(n)
        while True:
            payload = snapshot.slice(n, 100)
            if payload:
                assert journal.add_to_snapshot(
                    payload, snapshot.record_count, snapshot.job_count, n.now_ms
                )
            if snapshot.is_done():
                break
        assert journal.finish_rewrite(n.now_ms)


class Lab:
    """Nodes 0, 1, 2 ... all linked to each other, and the messages in flight between them."""

    def __init__(self, count: int, has_journal: bool = False) -> None:
        self.now_ms = START_MS
        self.lives = [0] * count
        self.is_blank = [True] * count
        self.journals = [Kept(i) for i in range(count)] if has_journal else []
        self.nodes = [self.born(i) for i in range(count)]
        self.wires: dict[tuple[int, int], list[bytes]] = {}
        self.held: set[tuple[int, int]] = set()
        self.still: set[int] = set()  # nodes whose process stands still
        self.linked: set[tuple[int, int]] = set()
        self.told: list[list[Added]] = [[] for _ in range(count)]
        self.served: list[dict[int, list[Job]]] = [{} for _ in range(count)]
        self.log: list[tuple[int, int, AnyMessage]] = []  # all that arrived
        self.changed: set[int] = set()  # nodes that are to be checked
        for a in range(count):
            for b in range(a + 1, count):
                self.link(a, b)
        self.run()

    def born(self, i: int) -> Node:
        """A node with no memory but its journal; its id follows from its number."""
        self.lives[i] += 1
        n = Node(name_of(i), b"seed %d %d" % (i, self.lives[i]), self.now_ms)
        if self.journals:  # nodes.conf names the others, before the journal is read
            for k in range(len(self.lives)):
                n.others |= (1 << slot_for(n, name_of(k))) & ~1
        if self.journals:
            self.journals[i].load(n)
        self.is_blank[i] = not n.remembers
        return n

    def slot(self, a: int, b: int) -> int:
        """The slot of node b on node a."""
        return slot_for(self.nodes[a], self.nodes[b].node_id)

    # ---- links

    def link(self, a: int, b: int) -> None:
        """Connect two nodes, both ways."""
        for x, y in ((a, b), (b, a)):
            self.wires[x, y] = []
            self.linked.add((x, y))
        for x, y in ((a, b), (b, a)):
            n, slot = self.nodes[x], self.slot(x, y)
            if n.lives.get(slot) != self.lives[y]:
                on_incarnation(n, slot, self.is_blank[y], self.lives[y])
            n.peers[slot].is_leaving = self.nodes[y].is_leaving
            bus.on_link_up(n, slot, not self.nodes[y].is_leaving)
            set_leaver(n, slot, self.nodes[y].is_leaving)

    def cut(self, a: int, b: int) -> None:
        """Break the link; messages in flight are lost."""
        for x, y in ((a, b), (b, a)):
            if (x, y) in self.linked:
                self.linked.remove((x, y))
                self.held.discard((x, y))
                self.wires[x, y] = []
                bus.on_link_down(self.nodes[x], self.slot(x, y))

    def hold(self, a: int, b: int) -> None:
        """Let nothing from a arrive at b until `release`."""
        self.held.add((a, b))

    def release(self, a: int, b: int) -> None:
        """Let held messages arrive."""
        self.held.discard((a, b))

    def isolate(self, a: int) -> None:
        """Cut all links of a node."""
        for b in range(len(self.nodes)):
            if b != a:
                self.cut(a, b)

    def heal(self) -> None:
        """Reconnect all nodes."""
        for a in range(len(self.nodes)):
            for b in range(a + 1, len(self.nodes)):
                if (a, b) not in self.linked:
                    self.link(a, b)

    def die(self, i: int) -> None:
        """Stop a node; it keeps only its journal; `revive` starts it again."""
        self.isolate(i)
        self.nodes[i] = self.born(i)

    def revive(self, i: int) -> None:
        """Restart a dead node: its peers see a new incarnation."""
        for b in range(len(self.nodes)):
            if b != i:
                self.link(i, b)
        self.run()

    def forget(self, a: int, b: int) -> None:
        """CLUSTER FORGET of node b on node a."""
        on_forget(self.nodes[a], self.slot(a, b))

    def leave(self, i: int, is_leaving: bool = True) -> None:
        """CLUSTER LEAVING yes|no on a node; all linked nodes learn it at once."""
        set_leaving(self.nodes[i], is_leaving)
        for b in range(len(self.nodes)):
            if b != i:
                n, slot = self.nodes[b], self.slot(b, i)
                n.peers[slot].is_leaving = is_leaving
                set_reachable(n, slot, (b, i) in self.linked and not is_leaving)
                set_leaver(n, slot, (b, i) in self.linked and is_leaving)
                on_reach_changed(n)

    def beat(self) -> None:
        """One heartbeat of every node, answered by all nodes that are linked and not held."""
        for n in self.awake():
            n.round += 1
        self.run()
        for a, b in sorted(self.linked):
            if (a, b) not in self.held and (b, a) not in self.held and not self.still & {a, b}:
                peer = self.nodes[a].peers[self.slot(a, b)]
                peer.echoed_round = self.nodes[a].round
                self.nodes[a].now_ms = self.now_ms
                set_failing(self.nodes[a], self.slot(a, b), journal_fails(self.nodes[b], 0))
        self.run()

    # ---- time and messages

    def awake(self) -> list[Node]:
        """The nodes whose process does not stand still."""
        return [n for i, n in enumerate(self.nodes) if i not in self.still]

    def go_on(self, i: int) -> None:
        """Continue a node's process after a standstill; nothing was read or run yet."""
        self.still.discard(i)
        set_time(self.nodes[i], self.now_ms)

    def settle(self, i: int) -> None:
        """End a node's turn: send its messages, empty its outboxes."""
        n = self.nodes[i]
        n.now_ms = self.now_ms
        if len(n.ready) > 0:
            serve_ready(n)
        for wake in n.wakes:
            self.served[i].setdefault(wake.client, []).extend(wake.jobs)
        n.wakes = []
        self.told[i] += n.added
        n.added = []
        if n.policy is not None:
            n.policy.turn_end(n)
        if self.journals:
            self.journals[i].write(n)
        for peer in n.dirty_peers:
            messages = peer.outbox
            peer.outbox = []
            peer.is_dirty = False
            to = next(k for k, o in enumerate(self.nodes) if o.node_id == peer.node_id)
            if messages and (i, to) in self.linked:
                self.wires[i, to].append(ENCODER.encode(messages))
        n.dirty_peers = []

    def carry(self) -> bool:
        """Let every frame in flight arrive, and send what follows; False if there was none."""
        moved = False
        for i in range(len(self.nodes)):
            if i not in self.still:
                self.settle(i)
        for a, b in sorted(self.wires):
            if (a, b) in self.held or b in self.still:
                continue
            frames = self.wires[a, b]
            self.wires[a, b] = []
            for frame in frames:
                moved = True
                n = self.nodes[b]
                n.now_ms = self.now_ms
                slot = self.slot(b, a)
                for message in DECODER.decode(frame):
                    self.log.append((a, b, message))
                    bus.on_message(n, slot, message)
                self.settle(b)
                self.changed.add(b)
        return moved

    def step(self) -> bool:
        """Run what is due now, and carry messages once; False if there was nothing."""
        for i, n in enumerate(self.nodes):
            if i in self.still:
                continue
            n.now_ms = self.now_ms
            if next_timer_ms(n) <= self.now_ms:
                tick(n)
                self.changed.add(i)
        return self.carry()

    def run(self) -> None:
        """Carry messages and run what is due now until nothing is left; checks all nodes."""
        self.changed.update(range(len(self.nodes)))  # by the test itself
        self.run_due()

    def run_from(self, i: int) -> None:
        """The same, but checks only nodes that did something since; the test acted at node i."""
        self.changed.add(i)
        self.run_due()

    def run_due(self) -> None:
        """The same, but checks only nodes that did something."""
        for _ in range(1000):
            if not self.step() and all(next_timer_ms(n) > self.now_ms for n in self.awake()):
                for i in self.changed:
                    check(self.nodes[i])
                self.changed.clear()
                return
        raise AssertionError("the nodes never come to rest")

    def pass_ms(self, span_ms: int) -> None:
        """Let time pass, stopping at every timer."""
        end_ms = self.now_ms + span_ms
        self.run()
        while True:
            at_ms = min(next_timer_ms(n) for n in self.awake())
            if at_ms > end_ms:
                break
            self.now_ms = max(self.now_ms + 1, at_ms)
            self.run_due()
        self.now_ms = end_ms
        self.run()

    # ---- clients

    def try_add(
        self,
        i: int,
        queue: bytes,
        *,
        client: int = 1,
        timeout_ms: int = 5000,
        body: bytes = b"body",
        **options: int,
    ) -> tuple[Job | None, bytes]:
        """ADDJOB on node i: the job (its producer may still wait), or the refusal."""
        n = self.nodes[i]
        n.now_ms = self.now_ms
        spec = AddSpec()
        for name, value in options.items():
            assert hasattr(spec, name), name
            setattr(spec, name, bool(value) if name == "is_async" else value)
        spec = settle(n, spec)
        refused = refusal(n, queue, spec)
        if refused is not None:
            return None, words_of(refused)
        return on_addjob(n, queue, body, spec, client, len(self.told[i]), timeout_ms), b""

    def add(self, i: int, queue: bytes = b"q", **options: int) -> bytes:
        """ADDJOB on node i, completed; the id."""
        job, refused = self.try_add(i, queue, **options)
        assert job is not None, refused
        self.run_from(i)
        return job.id

    def get(self, i: int, queue: bytes = b"q", client: int = 7) -> list[bytes]:
        """GETJOB NOHANG on node i: the ids, after all consequences."""
        n = self.nodes[i]
        n.now_ms = self.now_ms
        ids = [job.id for job in on_getjob(n, client, [queue], 1)]
        self.run_from(i)
        return ids

    def wait(self, i: int, queue: bytes = b"q", client: int = 7, timeout_ms: int = 0) -> None:
        """A blocking GETJOB on node i; see `served`."""
        n = self.nodes[i]
        n.now_ms = self.now_ms
        wait(n, client, [queue], 1, False, self.now_ms + timeout_ms if timeout_ms else 0)
        self.run_from(i)

    def holders_of(self, id: bytes) -> list[int]:
        """The nodes that have a record of the job."""
        return [i for i, n in enumerate(self.nodes) if id in n.jobs]

    def states_of(self, id: bytes) -> list[int]:
        """Its state on each node, -1 where it is unknown."""
        return [int(n.jobs[id].state) if id in n.jobs else -1 for n in self.nodes]


def external_twice(lab: Lab) -> bytes:
    """An at-most-once job that node 0 adds while leaving: 1 serves it, and 2 has a copy, too.

    Node 0 got neither reply in time, and knows nothing of the job in the end.
    """
    lab.nodes[0].is_leaving = True
    lab.hold(1, 0)
    lab.hold(2, 0)
    job, refused = lab.try_add(0, b"q", replicate=1, retry_s=0)
    assert job is not None, refused
    lab.pass_ms(200)  # no reply comes: a second node gets a copy
    assert [lab.states_of(job.id)[i] for i in (1, 2)] == [ACTIVE, ACTIVE]
    lab.release(1, 0)
    lab.run()
    assert lab.states_of(job.id)[:3] == [-1, QUEUED, ACTIVE]
    return job.id


def copies(lab: Lab, id: bytes) -> list[int]:
    """The nodes with an open copy."""
    return [i for i, n in enumerate(lab.nodes) if id in n.jobs and n.jobs[id].state != ACKED]


def believed(lab: Lab, i: int, id: bytes) -> list[int]:
    """The nodes that have a copy according to node i."""
    holders = lab.nodes[i].jobs[id].holders
    return [k for k in range(len(lab.nodes)) if holders >> lab.slot(i, k) & 1]
