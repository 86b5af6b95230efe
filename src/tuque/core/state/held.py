"""State of finding out who serves a job (SPEC Q11, Q12).

Plain data; core/repair/settle.py decides when jobs are held, asked about and released.
"""

from typing import final

from mypy_extensions import i64

from tuque.core.model.job import Job


@final
class Held:
    """Jobs waiting for replies of other holders, and the nodes that may reply."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []  # held jobs, and some no longer held
        self.starting: i64 = 0  # set of nodes that may still connect after the start
        self.until_ms: i64 = 0  # until then
        self.able: i64 = 0  # set of nodes that could reply at the last check
        self.feeds: dict[int, int] = {}  # by slot: the position in `jobs` to continue asking from
        self.sweep_pos: i64 = -1  # position in `jobs` to check from; -1: nothing to check
        self.unasked: i64 = 0  # set of nodes that checked jobs wait for
        self.kept: i64 = 0  # of the checked ones, how many are still held
        self.sweep_ms: i64 = 0  # when to check `jobs` again
