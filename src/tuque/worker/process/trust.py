"""Which tasks may run in the worker's own process: not those that ended one recently.

A plain table; times are arguments. It passes from one worker process to the next as bytes.
"""

from __future__ import annotations

from typing import Final

import msgspec

GOOD_RUNS: Final = 16  # in a row, after the first crash; doubles with each further job
GOOD_RUNS_MAX: Final = 1024
AGAIN_S: Final = 20.0  # or this time after the first crash; doubles likewise
AGAIN_S_MAX: Final = 300.0


class Crashes(msgspec.Struct):
    """The record of a task that ended its process."""

    jobs: int  # jobs that did so, without repeats of the same one
    job_id: str  # the last of them
    at_s: float  # when, monotonic
    good_runs: int = 0  # since then


_decoder: Final = msgspec.msgpack.Decoder(dict[str, Crashes])


class Trust:
    """The tasks that ended a process, by name."""

    def __init__(self, known: bytes = b"") -> None:
        """`known` is the `kept` of the previous process."""
        self._crashes = _decoder.decode(known) if known else {}

    def kept(self, most_bytes: int) -> bytes:
        """The table for the next process; the latest crashes if not all fit."""
        names = sorted(self._crashes, key=lambda name: self._crashes[name].at_s, reverse=True)
        while True:
            data = msgspec.msgpack.encode({name: self._crashes[name] for name in names})
            if len(data) <= most_bytes:
                return data
            names = names[: len(names) // 2]

    def crashed(self, task: str, job_id: str, now_s: float) -> None:
        """Records that a job of the task ended its process."""
        known = self._crashes.get(task)
        jobs = 0 if known is None or now_s - known.at_s > 2 * AGAIN_S_MAX else known.jobs
        if known is None or known.job_id != job_id or not jobs:
            jobs += 1
        self._crashes[task] = Crashes(jobs, job_id, now_s)

    def ran(self, task: str) -> None:
        """Records a run of the task, apart, that did not end its process."""
        known = self._crashes.get(task)
        if known is not None:
            known.good_runs += 1

    def is_trusted(self, task: str, now_s: float) -> bool:
        """Whether jobs of the task may run beside others."""
        known = self._crashes.get(task)
        if known is None:
            return True
        doublings = min(known.jobs - 1, 16)
        enough = min(GOOD_RUNS_MAX, GOOD_RUNS * 2**doublings)
        return known.good_runs >= enough or now_s - known.at_s > min(
            AGAIN_S_MAX, AGAIN_S * 2.0**doublings
        )
