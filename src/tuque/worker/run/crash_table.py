"""The crash table of a worker process: the jobs it holds, and which of them run.

A table in memory that outlives the process: its parent has it open, too. After a task ended the
process, the next one reads which jobs ran. Costs no system call per job.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
from math import isnan, nan
from typing import Final, NamedTuple

from tuque.worker.app.decisions import Outcome, OutcomeKind
from tuque.worker.pools.systems import end_with, nameless_file

MARK_BYTES: Final = 4

WAITING: Final = b"W"  # fetched, not begun
RUNNING: Final = b"R"
SUSPECT: Final = b"S"  # ran beside others when a process died, or runs apart: must run apart
DONE: Final = b"D"  # the task succeeded, the broker may not know
ENDED: Final = b"E"  # it ended otherwise, the broker may not know
FREE: Final = b"\0"

LOADING: Final = 0
WORKING: Final = 1
LEAVING: Final = 2  # a clean end
RETIRED: Final = 3  # a clean end, and another process follows

ID_BYTES: Final = 40
# before the table: the phase, the number of finished runs, the notes with their length, whether
# the broker has the schedules, when heartbeats go on, and the URL of the broker
RUNS_AT: Final = 1
COUNT: Final = struct.Struct("=I")
NOTES_AT: Final = RUNS_AT + 2 * COUNT.size
NOTES_BYTES: Final = 16_384
PLANS_AT: Final = NOTES_AT + NOTES_BYTES
BEATS_AT: Final = PLANS_AT + 1
INSTANT: Final = struct.Struct("=d")
URL_AT: Final = BEATS_AT + INSTANT.size
URL_BYTES: Final = 8192
TABLE_AT: Final = URL_AT + COUNT.size + URL_BYTES
RUN_BYTES: Final = 48
WORDS_BYTES: Final = 512  # of an error's text or a result
# state, number of the attempt, job id, token of the run, checksum of the queue's name
SLOT: Final = struct.Struct(f"=cI40s{RUN_BYTES}sI")
# after it how the job ended: its kind, the delay, the bytes of the words, the words
END: Final = struct.Struct(f"=BdH{WORDS_BYTES}s")
SLOT_BYTES: Final = SLOT.size + END.size
KINDS: Final[tuple[OutcomeKind, ...]] = (
    "done",
    "failed",
    "retry",
    "rejected",
    "timeout",
    "crashed",
    "cancelled",
)
LOST: Final = 0xFFFF  # in the place of a length: a result that was too large for the table
TRACE_LOST: Final = "(lost with its process; the log of the worker may have it)"


class Entry(NamedTuple):
    """A job in the table; `number` counts its deliveries from 1.

    `outcome`: how it ended, if it is DONE or ENDED; `is_result_lost`: its result was too large.
    `run`: its token, "" before START; `queue`: a number that jobs of one queue share.
    """

    state: bytes
    number: int
    job_id: str
    outcome: Outcome | None = None
    is_result_lost: bool = False
    run: str = ""
    queue: int = 0


def new_mark() -> str:
    """[U6] Random hex digits: another worker may have the same host name and pid (U6.4)."""
    return secrets.token_hex(MARK_BYTES)


class CrashTable:
    """The table, in a file descriptor that both processes have."""

    def __init__(
        self,
        fd: int,
        ended: str = "",
        is_last: bool = False,
        is_first: bool = True,
        mark: str = "",
    ) -> None:
        self.fd = fd
        self.fds: tuple[int, ...] = (fd,)  # that the next process must have
        self.name_mark = mark or new_mark()  # in the name of the worker (U6.4)
        self.is_first = is_first  # no process was there before
        self.is_last = is_last  # the process runs nothing: it requeues the jobs in the table
        self.ended = ended  # how the previous process ended, as a predicate
        self._memory = mmap.mmap(fd, os.fstat(fd).st_size)
        self._places = (len(self._memory) - TABLE_AT) // SLOT_BYTES
        self._pipe = self._held = -1
        self._free = list(range(self._places))
        self._place_of: dict[str, int] = {}

    @classmethod
    def made(cls, places: int) -> CrashTable:
        """A new table with so many places."""
        fd = nameless_file("tuque-worker")
        os.truncate(fd, TABLE_AT + places * SLOT_BYTES)
        made = cls(fd)
        made.share_end()
        return made

    @classmethod
    def opened(cls, given: str) -> CrashTable:
        """The parent's table, from its `passed`; from now on this process dies with the parent."""
        fd, pipe, parent, which, mark, ended = given.split(":", 5)
        end_with(int(parent), int(pipe))
        os.set_inheritable(int(fd), False)
        return cls(int(fd), ended, which == "last", which == "first", mark)

    def share_end(self) -> None:
        """[U4] From now on a child can see the end of this process (U4.9)."""
        self._pipe, self._held = os.pipe()  # no child has the second one
        self.fds = (self.fd, self._pipe)

    def passed(self) -> str:
        """The argument for a child process; see `opened`."""
        which = "last" if self.is_last else "first" if self.is_first else ""
        return f"{self.fd}:{self._pipe}:{os.getpid()}:{which}:{self.name_mark}:{self.ended}"

    @property
    def phase(self) -> int:
        return self._memory[0]

    @phase.setter
    def phase(self, phase: int) -> None:
        self._memory[0] = phase

    @property
    def runs(self) -> int:
        """The number of runs that the process has finished."""
        return int(COUNT.unpack_from(self._memory, RUNS_AT)[0])

    @runs.setter
    def runs(self, count: int) -> None:
        COUNT.pack_into(self._memory, RUNS_AT, count & 0xFFFFFFFF)

    @property
    def has_sent_plans(self) -> bool:
        """[U9] Whether a process of this worker has told the broker the schedules (U9.1)."""
        return self._memory[PLANS_AT] != 0

    @has_sent_plans.setter
    def has_sent_plans(self, has_sent: bool) -> None:
        self._memory[PLANS_AT] = has_sent

    @property
    def beats_at(self) -> float:
        """When the loop of the process goes on with its heartbeats, monotonic; inf without one."""
        return float(INSTANT.unpack_from(self._memory, BEATS_AT)[0])

    @beats_at.setter
    def beats_at(self, at_s: float) -> None:
        self.note_beat(at_s)

    def note_beat(self, at_s: float) -> None:
        """Notes for the parent when heartbeats go on."""
        INSTANT.pack_into(self._memory, BEATS_AT, at_s)

    @property
    def url(self) -> str:
        """The broker of the process; "" before it is known, or if the URL is too long."""
        (length,) = COUNT.unpack_from(self._memory, URL_AT)
        at = URL_AT + COUNT.size
        return self._memory[at : at + length].decode()

    @url.setter
    def url(self, url: str) -> None:
        data = url.encode() if len(url.encode()) <= URL_BYTES else b""
        at = URL_AT + COUNT.size
        self._memory[at : at + len(data)] = data
        COUNT.pack_into(self._memory, URL_AT, len(data))

    @property
    def notes(self) -> bytes:
        """Data from one process for the next, beside the table; NOTES_BYTES at most."""
        (length,) = COUNT.unpack_from(self._memory, RUNS_AT + COUNT.size)
        return self._memory[NOTES_AT : NOTES_AT + length]

    @notes.setter
    def notes(self, notes: bytes) -> None:
        assert len(notes) <= NOTES_BYTES
        # the length is written last: a kill leaves all of it or nothing
        COUNT.pack_into(self._memory, RUNS_AT + COUNT.size, 0)
        self._memory[NOTES_AT : NOTES_AT + len(notes)] = notes
        COUNT.pack_into(self._memory, RUNS_AT + COUNT.size, len(notes))

    def entries(self) -> list[Entry]:
        """All jobs in the table."""
        found = []
        for place in range(self._places):
            at = TABLE_AT + place * SLOT_BYTES
            state, number, job_id, token, queue = SLOT.unpack_from(self._memory, at)
            run = token.rstrip(b"\0").decode()
            if state in (DONE, ENDED):
                outcome, is_lost = self._outcome_at(at + SLOT.size)
                found.append(Entry(state, number, job_id.decode(), outcome, is_lost, run, queue))
            elif state != FREE:
                found.append(Entry(state, number, job_id.decode(), run=run, queue=queue))
        return found

    def _outcome_at(self, at: int) -> tuple[Outcome, bool]:
        kind, delay_s, length, words = END.unpack_from(self._memory, at)
        outcome = Outcome(KINDS[kind], delay_s=None if isnan(delay_s) else delay_s, is_told=True)
        if outcome.kind == "done":
            outcome.result = words[: length - 1] if 0 < length < LOST else None
            return outcome, length == LOST
        outcome.text, outcome.trace = words[:length].decode("utf-8", "ignore"), TRACE_LOST
        return outcome, False

    def clear(self) -> None:
        """Empties the table."""
        self._memory[TABLE_AT:] = bytes(len(self._memory) - TABLE_AT)
        self._free = list(range(self._places))
        self._place_of.clear()

    def put(
        self,
        job_id: str,
        number: int,
        state: bytes,
        outcome: Outcome | None = None,
        run: str = "",
        queue: int = 0,
    ) -> None:
        """Stores a job, if there is room; updates one that is there.

        `outcome`: how it ended, of one that is DONE or ENDED. `run`, `queue`: see Entry.
        """
        place = self._place_of.get(job_id)
        if place is None:
            if not self._free or len(job_id) != ID_BYTES:
                return  # it is left to its retry time
            place = self._place_of[job_id] = self._free.pop()
        # the state is written last: a kill leaves a whole entry or none
        at = TABLE_AT + place * SLOT_BYTES
        self._memory[at : at + 1] = FREE
        SLOT.pack_into(self._memory, at, FREE, number, job_id.encode(), run.encode(), queue)
        if outcome is not None:
            self._put_end(at + SLOT.size, outcome)
        self._memory[at : at + 1] = state

    def mark(self, job_id: str, state: bytes) -> None:
        """Sets the state of a job in the table."""
        place = self._place_of.get(job_id)
        if place is not None:
            at = TABLE_AT + place * SLOT_BYTES
            self._memory[at : at + 1] = state

    def end(self, job_id: str, outcome: Outcome) -> None:
        """[U2] Stores how a job in the table ended, without a traceback (U2.14)."""
        place = self._place_of.get(job_id)
        if place is not None:
            at = TABLE_AT + place * SLOT_BYTES
            self._put_end(at + SLOT.size, outcome)
            self._memory[at : at + 1] = DONE if outcome.kind == "done" else ENDED  # last, as above

    def _put_end(self, at: int, outcome: Outcome) -> None:
        result = outcome.result
        if outcome.kind != "done":
            words = outcome.text.encode("utf-8", "backslashreplace")[:WORDS_BYTES]
            length = len(words)
        elif result is None:
            words, length = b"", 0
        elif len(result) <= WORDS_BYTES:
            words, length = result, len(result) + 1
        else:
            words, length = b"", LOST
        delay_s = nan if outcome.delay_s is None else outcome.delay_s
        END.pack_into(self._memory, at, KINDS.index(outcome.kind), delay_s, length, words)

    def drop(self, job_id: str) -> None:
        """Removes a job: the broker knows its result, or will deliver it again."""
        place = self._place_of.pop(job_id, None)
        if place is not None:
            at = TABLE_AT + place * SLOT_BYTES
            self._memory[at : at + 1] = FREE
            self._free.append(place)
