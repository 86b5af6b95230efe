"""A world of one node whose tests call the functions of tubes themselves, to end and start anew."""

from __future__ import annotations

from tuque.core.model.task import Task
from tuque.store.disk import MemoryDisk
from tuque.tubes.model.options import PutSpec, TubeOptions
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.tasks import admin, operations
from world import World
from world_machines import HandDisk


class TubeWorld(World):
    """A node with tubes whose journal is written at once."""

    def __init__(self) -> None:
        super().__init__(journal="always")

    @property
    def t(self) -> Tubes:
        return self.node().tubes

    @property
    def files(self) -> HandDisk:
        return self.disk().files

    def segment(self) -> str:
        """The path of the file to which the journal is written."""
        return max(name for name in self.files.names if name.endswith(".log"))

    def restart(self, after_ms: int = 10, disk: HandDisk | None = None) -> None:
        """The process dies, with what it has not written, and starts anew, maybe on another disk.

        Time passes meanwhile, or the clock is set back.
        """
        self.machines[0].kill()
        if disk is not None:
            self.machines[0].disk = disk
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

    def rewrite(self) -> None:
        """Begin to write the journal anew."""
        committer = self.server.committer
        assert committer is not None
        assert committer.start_rewrite(self.n, self.n.now_ms)

    def is_rewriting(self) -> bool:
        committer = self.server.committer
        assert committer is not None
        return committer.is_rewriting()

    def make(self, name: bytes, type: bytes, temporary: bool = False) -> Tube:
        o = TubeOptions()
        o.temporary = temporary
        o.on_task_change = b"on " + name
        o.capacity = 20 if type == b"limfifottl" else 0
        tube = admin.create_tube(self.n, self.t, name, type, o, b"")
        self.settle()
        return tube

    def put(self, tube: Tube, body: bytes = b"body", **options: int) -> Task:
        spec = PutSpec()
        for word, value in options.items():
            setattr(spec, word, value)
        spec.utube = b"k%d" % (len(body) % 3)
        task = operations.put(self.n, self.t, tube, body, len(body) % 3, spec, 1, 1)
        assert task is not None
        self.settle()
        return task


def files_of(disk: MemoryDisk) -> dict[str, bytes]:
    """The contents of all files."""
    return {path: bytes(file.data) for path, file in disk.names.items()}
