"""Refusals that no job causes: when a worker tries again, and gives a run back (SPEC U11).

Knows no step and no group: only how a call failed, how long the run has tried, and how long it may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuque.errors import Error, Withdrawn
from tuque.worker.app.task import RetryLater

if TYPE_CHECKING:
    from tuque.worker.pools.execute import Job

FIRST_S: Final = 0.25  # until a run that was given back begins again
LATER_MAX_S: Final = 60.0
PAUSES_S: Final = (0.25, 0.5, 1.0, 2.0, 2.0, 2.0, 2.0)  # while the broker refuses the next step
TRIES_S: Final = 10.0  # from the first refusal on
SPARE_S: Final = 0.5  # of the time limit, to give the run back


class RetryRefused:
    """The tries of a run to add the next step."""

    def __init__(self, job: Job) -> None:
        self.withdrawn = 0  # tries that may have left a copy
        self._job = job
        self._clock = job._control().clock
        self._count = 0
        self._began_s = self._clock()  # the try
        self._refused_s = 0.0  # the first one

    def pause_s(self, err: Error) -> float:
        """[U11] Until the next try; RetryLater if there was enough of that (U11.2)."""
        now_s = self._clock()
        took_s = now_s - self._began_s
        if not self._count:
            self._refused_s = now_s
        if self._count == len(PAUSES_S):
            raise given_back(self._job, "the next step could not be added", err)
        pause_s = PAUSES_S[self._count]
        left_s = self._job.time_left
        is_late = left_s is not None and left_s < pause_s + took_s + SPARE_S
        if is_late or now_s + pause_s - self._refused_s > TRIES_S:
            raise given_back(self._job, "the next step could not be added", err)
        self._count += 1
        self._began_s = now_s + pause_s
        self.withdrawn += isinstance(err, Withdrawn)
        return pause_s


def given_back(job: Job, what: str, err: Error) -> RetryLater:
    """What ends a run without a failed attempt, because of that refusal."""
    later = RetryLater(f"{what}: {err}", delay_s=delay_of(job))
    later.__cause__ = err
    return later


def delay_of(job: Job) -> float:
    """Until the run comes again, by how often it has begun."""
    return min(LATER_MAX_S, FIRST_S * 2.0 ** min(max(job.starts - 1, 0), 10))
