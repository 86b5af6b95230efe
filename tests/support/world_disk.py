"""The disk of a machine of the world, and what may happen to it.

Decides nothing of what a node does with it.
"""

from __future__ import annotations

from sim.engine.disk import PATH
from tuque.store.frames import read_manifest
from world_machines import HandDisk, HandMachine, HandThread


class DiskAt:
    """The disk of a machine, and its faults; `well` ends them."""

    def __init__(self, machine: HandMachine) -> None:
        self._machine = machine
        self._image: HandDisk | None = None
        self._conf = b""

    @property
    def files(self) -> HandDisk:
        """The files themselves."""
        found = self._machine.disk
        assert isinstance(found, HandDisk)
        return found

    def full(self, left_bytes: int = 0) -> None:
        """No more bytes than that fit."""
        self.files.capacity = self.files.used() + left_bytes

    def slow(self, ms: int) -> None:
        """Each sync takes that long."""
        self._machine.settings.sync_us = ms * 1000
        shell = self._machine.shell
        if shell is not None and shell.thread is not None:
            shell.thread.sync_us = ms * 1000

    def stick(self, is_stuck: bool = True) -> None:
        """No sync ends until it works again."""
        self._machine.is_stuck = is_stuck
        shell = self._machine.shell
        if not is_stuck and shell is not None and shell.thread is not None:
            assert isinstance(shell.thread, HandThread)
            shell.thread.unstick()

    def fail(self, *, writes: int = 0, syncs: int = 0) -> None:
        """So many writes or syncs fail."""
        self.files.write_errors, self.files.fsync_errors = writes, syncs

    def cut_power_at(self, step: int) -> None:
        """The machine loses its power before that change of the disk, counted from now."""
        self.files.cut_at = self.files.ops + step

    def well(self) -> None:
        """The disk has room, is quick and fails no more."""
        self.stick(False)
        self.files.capacity = 1 << 60
        self.fail()
        self.slow(0)

    def lose_last(self, ms: int) -> None:
        """What was written in the last `ms` is gone, as after a power cut; the node is down."""
        assert self._machine.shell is None, "the node has its files open"
        now_us = self._machine.world.now_us
        self.files.lose_since(now_us - ms * 1000)

    def snapshot(self) -> None:
        """Keep an image of the disk, for `restore` or `start(disk="old")`."""
        self._image = self._copy(self.files)
        self._conf = self._machine.conf

    def restore(self) -> None:
        """The disk is as it was at the snapshot; the node is down."""
        assert self._machine.shell is None, "the node has its files open"
        assert self._image is not None, "there is no snapshot"
        self._machine.disk = self._copy(self._image)
        self._machine.conf = self._conf

    def lose(self) -> None:
        """There is a new disk; the node knows its id and its cluster."""
        self._machine.disk = self.files.empty()

    def segment(self) -> str:
        """The path of the file to which the journal is written."""
        manifest = read_manifest(self.files, PATH)
        assert manifest is not None
        return f"{PATH}/{manifest.segments[-1]}"

    @staticmethod
    def _copy(disk: HandDisk) -> HandDisk:
        found = disk.copy()
        assert isinstance(found, HandDisk)
        return found
