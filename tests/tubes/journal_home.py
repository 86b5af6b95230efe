"""A node with tubes whose journal lies in memory, to end and to start again."""

from __future__ import annotations

from tuque.core.dispatch.restore import after_load
from tuque.core.dispatch.timers import tick
from tuque.core.model.task import Task
from tuque.core.node.node import Node
from tuque.core.queues.procedures import check
from tuque.core.records.jobs import Records
from tuque.server.journal.committer import Committer
from tuque.store.disk import MemoryDisk
from tuque.store.frames import Boot
from tuque.store.replay import Loader
from tuque.tubes.model.options import PutSpec, TubeOptions
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks import admin, operations

NODE_ID = b"0123456789abcdef0123456789abcdef01234567"
PATH = "/data/journal"
START_MS = 1_700_000_000_000


class Home:
    """A node with tubes whose journal is written at once, into memory."""

    def __init__(self, disk: MemoryDisk, now_ms: int, seed: bytes = b"1") -> None:
        self.disk = disk
        self.n = Node(NODE_ID, seed, now_ms)
        self.n.records = Records()
        self.committer = Committer(disk, PATH, NODE_ID, now_ms, "always", threaded=False)
        self.committer.boot = Boot(now_ms, b"boot of the test", now_ms - START_MS)
        self.committer.journal.boot = self.committer.boot
        self.committer.lock()
        self.loader: Loader = self.committer.loader()
        self.n.is_loading = True
        while not self.loader.step(self.n, 5):
            pass
        self.n.is_loading = False
        after_load(self.n)
        assert self.n.records is not None
        self.n.records.take()
        self.committer.start(now_ms)
        check(self.n)

    @property
    def t(self) -> Tubes:
        return tubes_of(self.n)

    def turn(self) -> None:
        """End a turn: what was recorded is one frame."""
        assert self.n.records is not None
        self.committer.commit(self.n.records, self.n.now_ms)
        self.committer.on_turn(self.n, self.n.now_ms, 2)

    def pass_ms(self, ms: int) -> None:
        self.n.now_ms += ms
        tick(self.n)
        self.turn()

    def make(self, name: bytes, type: bytes, temporary: bool = False) -> Tube:
        o = TubeOptions()
        o.temporary = temporary
        o.on_task_change = b"on " + name
        o.capacity = 20 if type == b"limfifottl" else 0
        tube = admin.create_tube(self.n, self.t, name, type, o, b"")
        self.turn()
        return tube

    def put(self, tube: Tube, body: bytes = b"body", **options: int) -> Task:
        spec = PutSpec()
        for word, value in options.items():
            setattr(spec, word, value)
        spec.utube = b"k%d" % (len(body) % 3)
        task = operations.put(self.n, self.t, tube, body, len(body) % 3, spec, 1, 1)
        assert task is not None
        self.turn()
        return task


def again(home: Home, after_ms: int = 10) -> Home:
    """The node after its process died and was started anew."""
    home.disk.locks.clear()
    return Home(home.disk, home.n.now_ms + after_ms, b"seed %d" % home.n.now_ms)
