"""A world of one node whose tests call the functions of tubes themselves, to end and start anew."""

from __future__ import annotations

import pytest

from sim.engine.disk import PATH
from tuque.core.copies.ack import on_ackjob
from tuque.core.dispatch.restore import after_load
from tuque.core.dispatch.timers import tick
from tuque.core.model.task import Task
from tuque.core.node.node import GOT_JOBS, Node
from tuque.core.queues.deliver import serve_ready
from tuque.core.queues.procedures import check
from tuque.core.records.jobs import Records
from tuque.server.replies.errors import iproto_words
from tuque.store.disk import MemoryDisk
from tuque.store.replay import Loader
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.options import PutSpec, TubeOptions
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.tasks import admin, operations
from world import World
from world_machines import HandDisk


class TubeWorld(World):
    """A node with tubes; a journal is written at once."""

    def __init__(self, *, has_journal: bool = False) -> None:
        super().__init__(journal="always" if has_journal else "off", events=not has_journal)

    @property
    def t(self) -> Tubes:
        return self.node().tubes

    @property
    def files(self) -> HandDisk:
        return self.disk().files

    def restart(self, after_ms: int = 10) -> None:
        """The process dies, with what it has not written, and starts anew.

        Time passes meanwhile, or the clock is set back.
        """
        self.machines[0].kill()
        if after_ms < 0:
            self.machines[0].clock.jump(after_ms)
        else:
            self.pass_ms(after_ms)
        self.start(0)
        self.check()

    def disk_of(self, files: dict[str, bytes], name: str, size: int) -> HandDisk:
        """A disk with those files, of which one is cut off there."""
        disk = self.files.empty()
        disk.makedirs(max(files).rpartition("/")[0])
        for path, data in files.items():
            handle = disk.open_append(path)
            disk.write(handle, data[:size] if path == name else data)
        return disk

    # ---- the functions of tubes; what follows is carried out by `settle`

    def make(self, type: str, name: str = "t", **options: object) -> Tube:
        """A tube; it is on disk."""
        o = TubeOptions()
        for word, value in options.items():
            assert hasattr(o, word), word
            setattr(o, word, value)
        tube = admin.create_tube(self.n, self.t, name.encode(), type.encode(), o, b"user")
        self.settle()
        return tube

    def put(self, tube: Tube, body: bytes = b"body", utube: bytes | None = None, **o: int) -> Task:
        spec = PutSpec()
        spec.utube = utube
        for word, value in o.items():
            assert hasattr(spec, word), word
            setattr(spec, word, value)
        task = operations.put(self.n, self.t, tube, body, 0, spec, 1, 1)
        assert task is not None
        return task

    def take(self, tube: Tube, client: int = 1) -> int | None:
        task = operations.take(self.n, self.t, tube, client)
        return None if task is None else task.number

    def ack(self, tube: Tube, number: int, client: int = 1, token: int = 0) -> Task:
        return operations.ack(self.n, self.t, tube, client, number, token)

    def ack_all(self, tube: Tube) -> None:
        """Everything taken with GETJOB is done."""
        for task in list(tube.tasks.values()):
            assert on_ackjob(self.n, task.id)

    def tick_ms(self, ms: int) -> None:
        """Let time pass for the core alone, which runs its timers once at the end."""
        self.jump_ms(ms)
        n = self.n
        n.now_ms = self.now_ms
        tick(n)
        serve_ready(n)
        check(n)

    def woken(self) -> list[tuple[int, int | None]]:
        """The clients that waited and need not any more, and the numbers of their tasks."""
        n = self.n
        serve_ready(n)
        found: list[tuple[int, int | None]] = []
        for wake in n.wakes:
            job = wake.jobs[0] if wake.why == GOT_JOBS else None
            found.append((wake.client, job.number if isinstance(job, Task) else None))
        n.wakes = []
        return found

    def calls(self, tube: Tube) -> dict[str, int]:
        return admin.statistics(self.t, tube)["calls"]


def refused(code: int, text: str, call: object, *args: object) -> None:
    """The call is refused with that code and text, and has changed nothing (T13.2)."""
    assert callable(call)
    with pytest.raises(TubeError) as e:
        call(*args)
    told = iproto_words(e.value)
    assert (told.code, told.text.decode()) == (code, text)


def files_of(disk: MemoryDisk) -> dict[str, bytes]:
    """The contents of all files."""
    return {path: bytes(file.data) for path, file in disk.names.items()}


def loaded(home: TubeWorld, files: dict[str, bytes], name: str, size: int) -> Node:
    """A node that has read those files, of which one is cut off there, and has not run yet."""
    machine = home.machines[0]
    loader = Loader(home.disk_of(files, name, size), PATH, machine.clock.boot_record(), True)
    n = Node(machine.node_id, b"2", home.now_ms)
    n.records = Records()
    n.is_loading = True
    while not loader.step(n, 5):
        pass
    n.is_loading = False
    after_load(n)
    check(n)
    return n
