"""The options of jobs that a tube makes by itself: of schedules, and callbacks (SPEC T46, T51).

They are words of ADDJOB. What they say travels with the schedule, or the group, as bytes that a job
carries.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tuque.core.copies.add import letters_refusal
from tuque.core.model.job import AddSpec
from tuque.core.model.work import NO_TERMS
from tuque.server.replies.core_words import core_words
from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.tubes.entries.keys import work_of
from tuque.tubes.entries.schedule import KEYS_MAX
from tuque.tubes.entries.work import unpack_work
from tuque.tubes.work.transitions import packed_of
from tuque.wire.commands.arguments import ArgError, header_pairs

AT_MOST_ONCE: Final = b"ERR RETRY must be 1 or more: the tasks of a tube come back"
LONG: Final = b"ERR the options of a job have %d bytes: at most %d"


def packed_options(s: Server, spec: AddSpec) -> bytes:
    """[T46, T51] Keys and life of the jobs, as they will carry them (T46.2, T51.1)."""
    if spec.retry_s == 0:
        raise ArgError(AT_MOST_ONCE)
    refused = letters_refusal(s.n, spec)
    if refused is not None:
        raise ArgError(core_words(refused))
    packed = packed_of(spec)
    if len(packed) > KEYS_MAX:
        raise ArgError(LONG % (len(packed), KEYS_MAX))
    return packed


def shown_life(c: Client, packed: bytes) -> dict[str, object]:
    """[T46, T51] The options about the work of the jobs that were given (T46.4, T51.3)."""
    work = work_of(packed)
    life = unpack_work(work) if len(work) > 0 else None
    found: dict[str, object] = {}
    if life is None:
        return found
    terms = life.terms
    if terms.attempts > 0:
        found["attempts"] = int(terms.attempts)
    waits = (terms.first_ms, terms.max_ms, terms.jitter)
    if waits != (NO_TERMS.first_ms, NO_TERMS.max_ms, NO_TERMS.jitter):
        found["backoff"] = b" ".join([in_seconds(one) for one in waits])
    if len(terms.dead) > 0:
        found["dead"] = c.named(terms.dead)
    if terms.keep_ms > 0:
        found["keep-ms"] = int(terms.keep_ms)
    if terms.limit_ms > 0:
        found["time-limit-ms"] = int(terms.limit_ms)
    if len(life.headers) > 0:
        found["headers"] = header_pairs(life.headers)
    return found


def in_seconds(ms: i64) -> bytes:
    """The time as an option says it."""
    return b"%d" % (ms // 1000) + (b".%03d" % (ms % 1000)).rstrip(b".0")
