"""The end of the last segment: torn by a crash, or damaged? (SPEC J5.1, J5.9)"""

from mypy_extensions import i64

from tuque.store.files.disk import Disk
from tuque.store.journal import FOUND, Boot, FrameScanner


def after_bad(scanner: FrameScanner) -> tuple[bool, i64]:
    """Look past the bad frame: are there good ones, and which record do they call durable?

    Does not move the scanner.
    """
    offset = scanner.offset
    durable_seq: i64 = 0
    found = False
    while scanner.resync():
        found = True
        while scanner.next() == FOUND:
            if scanner.frame.synced_seq > durable_seq:
                durable_seq = scanner.frame.synced_seq
    scanner.offset = offset
    return found, durable_seq


def is_torn(found: bool, durable_seq: i64, next_seq: i64, is_booted_once: bool) -> bool:
    """[J5.1, J5.9] Whether a bad place in the last segment is its torn tail.

    `found` and `durable_seq` are from `after_bad`, `next_seq` is the first unreadable record.
    `is_booted_once`: the page cache was not lost since the segment began, so that a write cannot
    have left a hole with whole frames behind it.
    """
    if not found:
        return True
    return durable_seq < next_seq and not is_booted_once


def is_same_boot(a: Boot, b: Boot) -> bool:
    """Whether both are surely from the same boot of the machine."""
    return a.boot_id == b.boot_id and a.boot_id != b"\0" * 16


def keep_aside(disk: Disk, path: str, label: str, offset: i64, size: i64) -> str:
    """Copy bytes of a file to `<path>.<label>-<offset>`, durably; returns that name.

    Replaces the copy of an earlier attempt. Raises OSError.
    """
    aside = f"{path}.{label}-{offset}"
    if disk.exists(aside):
        disk.unlink(aside)
    handle = disk.open_append(aside)
    try:
        while size > 0:
            part = disk.read(path, offset, min(size, i64(4 << 20)))
            if len(part) == 0:
                break
            taken: i64 = disk.write(handle, part)
            offset += taken
            size -= taken
        disk.fdatasync(handle)
    finally:
        disk.close(handle)
    return aside
