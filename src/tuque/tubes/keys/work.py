"""The life of a task in bytes, as its records and copies have it (SPEC T48).

It follows the keys in the bytes of the task. What only the leader knows is not in it: that a run
began, who runs it, its progress.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from tuque.core.decode.life import LifeRecord, decode_life
from tuque.core.model.life import Failure, Life
from tuque.core.outbox.life_records import put_life

HEAD: Final = 5  # length and kind of a record; the id is left out


def pack_work(life: Life) -> bytes:
    """Terms, headers and failures of the life."""
    kept = Life(life.terms, life.headers)
    kept.failed = life.failed
    kept.is_resting = life.is_resting
    kept.is_cancelled = life.is_cancelled
    kept.cancel_reason = life.cancel_reason
    kept.first = without_detail(life.first)
    kept.last = without_detail(life.last)
    writer = BytesWriter()
    put_life(writer, 0, b"", kept)
    return writer.getvalue()[HEAD:]


def without_detail(failure: Failure | None) -> Failure | None:
    """The failure without its detail, which may be long."""
    if failure is None:
        return None
    return Failure(
        failure.at_ms, failure.attempt, failure.worker, failure.cause, failure.reason, b""
    )


def unpack_work(work: bytes) -> Life | None:
    """The life in the bytes; None: they are none."""
    r = LifeRecord()
    size: i64 = len(work)
    return r.life if decode_life(work, 0, size, r) else None


def is_sound_work(work: bytes) -> bool:
    """Whether bytes from a journal or another node are the life of a task, or none."""
    if len(work) == 0:
        return True
    life = unpack_work(work)
    return life is not None and life.run == 0 and not life.is_dead
