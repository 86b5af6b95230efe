"""Files: `Disk`, and its twin in memory; no other deciding module opens any.

`MemoryDisk` simulates what disks do to careless programs: a page cache that a power cut
empties, names that vanish unless their directory was synced, short writes, a full disk,
and an fsync that fails once and then reports success. Both have the same methods, so that
callers take either. Errors are OSError.
"""

import errno
import fcntl
import os
from typing import Final

OCCUPIED_BYTES: Final = 1 << 20  # written at once where the system cannot allocate them
WHOLE_PREFIX: Final = -1  # power_cut: keep all writes


class LockedError(Exception):
    """Another process holds the lock; `pid` is what it wrote there, "" if unknown."""

    def __init__(self, path: str, pid: str) -> None:
        super().__init__(f"{path} is locked by process {pid or 'unknown'}")
        self.path = path
        self.pid = pid


def machine_boot_id() -> bytes:
    """The id of this boot of the machine; b"" if the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return bytes.fromhex(file.read().strip().replace(b"-", b"").decode())
    except (OSError, ValueError):
        return b""


def flush(fd: int) -> None:
    """Make the file durable. The `fsync` of macOS leaves data in the cache of the drive.

    Not each file system there knows the order that empties it.
    """
    order = getattr(fcntl, "F_FULLFSYNC", None)
    if order is not None:
        try:
            fcntl.fcntl(fd, order)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
    os.fsync(fd)


class Disk:
    """Files of the operating system. Paths are strings; a handle is a number."""

    def makedirs(self, path: str) -> None:
        """Create the directory and its parents, unless they exist."""
        os.makedirs(path, mode=0o750, exist_ok=True)

    def listdir(self, path: str) -> list[str]:
        """Names in the directory, sorted."""
        return sorted(os.listdir(path))

    def is_dir(self, path: str) -> bool:
        """Whether it is a directory."""
        return os.path.isdir(path)

    def exists(self, path: str) -> bool:
        """Whether such a file or directory exists."""
        return os.path.exists(path)

    def size(self, path: str) -> int:
        """Bytes of the file."""
        return os.stat(path).st_size

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer only at the end of the file."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            parts: list[bytes] = []
            while size > 0:
                part = os.pread(fd, min(size, 1 << 30), offset)
                if not part:
                    break
                parts.append(part)
                offset += len(part)
                size -= len(part)
            return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            os.close(fd)

    def open_append(self, path: str) -> int:
        """Open for appending, and create the file if missing; returns a handle."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        flags |= os.O_NONBLOCK  # a pipe in the place of a file is an error, not a wait
        return os.open(path, flags, 0o640)

    def write(self, handle: int, data: bytes | memoryview) -> int:
        """Append; returns how many bytes were written, perhaps fewer than given."""
        return os.write(handle, data)

    def fdatasync(self, handle: int) -> None:
        """Make all writes durable. After an error the file's state is unknown."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(handle)
        else:
            flush(handle)

    def truncate(self, path: str, size: int) -> None:
        """Cut the file to that size, durably."""
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.ftruncate(fd, size)
            flush(fd)
        finally:
            os.close(fd)

    def close(self, handle: int) -> None:
        """Close the handle."""
        os.close(handle)

    def rename(self, old: str, new: str) -> None:
        """Rename the file atomically, replacing any file of that name."""
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        """Remove the file."""
        os.unlink(path)

    def fsync_dir(self, path: str) -> None:
        """Make creations, renames and removals in the directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            flush(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> int:
        """Lock the file for this process until `close`; raises LockedError."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise LockedError(path, pid) from None
        except BaseException:
            os.close(fd)
            raise
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        return fd

    def salt(self) -> bytes:
        """Eight unpredictable bytes."""
        return os.urandom(8)

    def free_bytes(self, path: str) -> int:
        """Bytes that this user may still write there; -1: unknown."""
        try:
            found = os.statvfs(path)
        except OSError:
            return -1
        return found.f_bavail * found.f_frsize

    def occupy(self, path: str, size: int) -> None:
        """Create a file of that many bytes, none of which others can use."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, size)
            else:
                for _ in range(0, size, OCCUPIED_BYTES):
                    os.write(fd, bytes(OCCUPIED_BYTES))
            os.fsync(fd)
        finally:
            os.close(fd)


class PowerCut(BaseException):
    """The simulated machine stopped before the operation; see MemoryDisk.cut_at."""


class _File:
    """A simulated file: as programs see it, and as a power cut leaves it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.is_lost = False  # an fsync failed: the kernel reports all as clean


class MemoryDisk(Disk):
    """A disk in memory with the faults of real ones; `ops` counts every operation."""

    def __init__(self) -> None:
        self.names: dict[str, _File] = {}
        self.durable_names: dict[str, _File] = {}
        self.dirs: dict[str, None] = {}
        self.handles: dict[int, _File] = {}
        self.locks: dict[int, str] = {}
        self.last_handle = 100
        self.salts = 0
        self.ops = 0
        self.cut_at = 0  # power fails at that operation; 0: never
        self.capacity = 1 << 60  # bytes; more is ENOSPC
        self.write_most = 1 << 60  # bytes per write
        self.write_errors = 0  # so many writes fail with EIO
        self.fsync_errors = 0  # so many fsyncs fail, and what they covered is lost later
        self.rename_errors = 0

    def step(self) -> None:
        """Count an operation that changes the disk; power may fail here."""
        self.ops += 1
        if self.ops == self.cut_at:
            raise PowerCut

    def power_cut(self, keep: int = 0) -> None:
        """Lose what was not synced, except `keep` bytes of every file's tail."""
        self.names = dict(self.durable_names)
        self.handles = {}
        self.locks = {}
        self.cut_at = 0
        for file in self.names.values():
            cached = bytes(file.data)
            kept = len(cached) if keep == WHOLE_PREFIX else len(file.durable) + keep
            if cached.startswith(file.durable):
                file.data = bytearray(cached[:kept])
            else:
                file.data = bytearray(file.durable)
            file.durable = bytes(file.data)

    def process_crash(self) -> None:
        """Drop the process's handles and locks; the page cache survives."""
        self.handles = {}
        self.locks = {}
        self.cut_at = 0

    def used(self) -> int:
        """Bytes of all files."""
        return sum(len(file.data) for file in self.names.values())

    def file(self, path: str) -> _File:
        """The file of that name or ENOENT."""
        if path not in self.names:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.names[path]

    def makedirs(self, path: str) -> None:
        self.dirs[path] = None

    def listdir(self, path: str) -> list[str]:
        head = path + "/"
        return sorted(name[len(head) :] for name in self.names if name.startswith(head))

    def is_dir(self, path: str) -> bool:
        return path in self.dirs

    def exists(self, path: str) -> bool:
        return path in self.names or path in self.dirs

    def size(self, path: str) -> int:
        return len(self.file(path).data)

    def read(self, path: str, offset: int, size: int) -> bytes:
        return bytes(self.file(path).data[offset : offset + size])

    def open_append(self, path: str) -> int:
        self.step()
        file = self.names.get(path)
        if file is None:
            file = _File()
            self.names[path] = file
        self.last_handle += 1
        self.handles[self.last_handle] = file
        return self.last_handle

    def write(self, handle: int, data: bytes | memoryview) -> int:
        self.step()
        if self.write_errors > 0:
            self.write_errors -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        room = self.capacity - self.used()
        if room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = bytes(data[: min(room, self.write_most)])
        self.handles[handle].data += taken
        return len(taken)

    def fdatasync(self, handle: int) -> None:
        self.step()
        file = self.handles[handle]
        if self.fsync_errors > 0:
            self.fsync_errors -= 1
            file.is_lost = True
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if not file.is_lost:
            file.durable = bytes(file.data)

    def truncate(self, path: str, size: int) -> None:
        self.step()
        file = self.file(path)
        del file.data[size:]
        file.durable = bytes(file.data)

    def close(self, handle: int) -> None:
        self.handles.pop(handle, None)
        self.locks.pop(handle, None)

    def rename(self, old: str, new: str) -> None:
        self.step()
        if self.rename_errors > 0:
            self.rename_errors -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), old)
        self.names[new] = self.file(old)
        del self.names[old]

    def unlink(self, path: str) -> None:
        self.step()
        self.file(path)
        del self.names[path]

    def fsync_dir(self, path: str) -> None:
        self.step()
        head = path + "/"
        kept = {n: f for n, f in self.durable_names.items() if not n.startswith(head)}
        kept.update({n: f for n, f in self.names.items() if n.startswith(head)})
        self.durable_names = kept

    def lock(self, path: str) -> int:
        if path in self.locks.values():
            raise LockedError(path, "1")
        self.last_handle += 1
        self.locks[self.last_handle] = path
        return self.last_handle

    def salt(self) -> bytes:
        self.salts += 1
        return b"salt%04d" % self.salts

    def free_bytes(self, path: str) -> int:
        return max(self.capacity - self.used(), 0)

    def occupy(self, path: str, size: int) -> None:
        handle = self.open_append(path)
        try:
            if self.free_bytes(path) < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            self.write(handle, bytes(size))
        finally:
            self.close(handle)
