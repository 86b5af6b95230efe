"""What a load must judge: a torn end or damage, a clock that jumped (SPEC J5.1, J5.8, J5.9)."""

from typing import Final

from mypy_extensions import i64

from tuque.store.files.disk import Disk
from tuque.store.journal import FOUND, Boot, FrameScanner

JUMP_MS: Final = 2_000  # smaller clock differences are ignored


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


def clock_jump_ms(before: Boot, last_ms: i64, after: Boot) -> i64:
    """How far the clock of `after` differs from where that of `before` would be.

    `last_ms` is the latest instant written by `before`. Within one boot the machine's own clock is
    exact. Otherwise only a jump backwards shows: then the time in between counts as none, so that
    nothing expires early.
    """
    if is_same_boot(before, after):
        jump_ms = (after.wall_ms - before.wall_ms) - (after.boottime_ms - before.boottime_ms)
        if -JUMP_MS <= jump_ms <= JUMP_MS:
            return 0
        return jump_ms
    if after.wall_ms < last_ms:
        return after.wall_ms - last_ms
    return 0
