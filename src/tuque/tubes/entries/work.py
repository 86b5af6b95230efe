"""The work of a task in bytes, as its records and copies have it (SPEC T48).

It follows the keys in the bytes of the task (core/msgs/packed.py); of the run that lasts it counts
while the task is TAKEN by that take (work/transitions.py). What only the leader knows is not in it:
progress.
"""

from typing import Final

from librt.strings import BytesWriter, read_i64_le
from mypy_extensions import i64

from tuque.core.model.task import TTL_MAX_MS
from tuque.core.model.work import (
    LIVE,
    NO_TERMS,
    Life,
)
from tuque.core.msgs.packed import SERIAL_AT
from tuque.core.records.work import DEAD_BIT, LifeRecord, decode_life, put_life

HEAD: Final = 5  # length and kind of a record; the id is left out


def pack_work(life: Life) -> bytes:
    """Terms, headers and failures of the life."""
    return packed(without_run(life))


def pack_run(life: Life, taken_ms: i64) -> bytes:
    """The same of a task whose run lasts, which began after the take of that instant."""
    kept = without_run(life)
    kept.run, kept.starts, kept.run_state = life.run, life.starts, LIVE
    kept.since_ms = max(0, life.since_ms - taken_ms)
    kept.worker = life.worker
    return packed(kept)


def pack_death(work: Life, serial: i64) -> bytes:
    """The same of a dead letter: also its STARTs, when and why it died, and the detail of its last
    failure.
    """
    made = without_run(work)
    made.is_dead = True
    made.serial = serial
    made.dead_ms = work.dead_ms
    made.dead_cause = work.dead_cause
    made.last = work.last
    made.starts = work.starts
    return packed(made)


def without_run(life: Life) -> Life:
    """What the bytes of a task have of its life."""
    made = Life(life.terms, life.headers)
    made.failed = life.failed
    made.crashes = life.crashes
    made.unstarted = life.unstarted
    made.returned = life.returned
    made.replays = life.replays
    made.ttl_ms = life.ttl_ms
    made.is_resting = life.is_resting
    made.is_cancelled = life.is_cancelled
    made.cancel_reason = life.cancel_reason
    made.attempts = life.attempts
    if life.first is not None:
        made.first = life.first.without_detail()
    if life.last is not None:
        made.last = life.last.without_detail()
    return made


def is_empty(life: Life) -> bool:
    """Whether no task needs such a life in its bytes: it has no terms, and nothing has happened."""
    if life.failed > 0 or life.replays > 0 or life.is_cancelled or life.last is not None:
        return False
    if life.returned > 0 or life.crashes > 0 or len(life.headers) + len(life.attempts) > 0:
        return False
    terms = life.terms
    return terms is NO_TERMS or (terms.attempts == 0 and terms.key() == NO_TERMS.key())


def packed(life: Life) -> bytes:
    """The bytes of the life."""
    writer = BytesWriter()
    put_life(writer, 0, b"", life)
    return writer.getvalue()[HEAD:]


def unpack_work(work: bytes) -> Life | None:
    """The life in the bytes; None: they are none."""
    r = LifeRecord()
    size: i64 = len(work)
    return r.life if decode_life(work, 0, size, r) else None


def detail_in(work: bytes) -> bytes:
    """The detail of the last failure in the bytes of a dead letter."""
    life = unpack_work(work) if len(work) > 0 else None
    return life.last.detail if life is not None and life.last is not None else b""


def serial_in(work: bytes) -> i64:
    """The number of the dead letter in the bytes, which may be unsound; 0: there is none."""
    if len(work) < SERIAL_AT + 8 or work[0] & DEAD_BIT == 0:
        return 0
    return read_i64_le(work, SERIAL_AT)


def is_sound_work(work: bytes) -> bool:
    """Whether bytes from a journal or another node are the life of a task, or none."""
    if len(work) == 0:
        return True
    life = unpack_work(work)
    return life is not None and may_carry(life)


def may_carry(work: Life) -> bool:
    """Whether a task may carry this work: of the bounds of a LIFE, its own are narrower."""
    if work.ttl_ms > TTL_MAX_MS:
        return False
    return work.run == 0 or (work.run_state == LIVE and work.since_ms <= TTL_MAX_MS)
