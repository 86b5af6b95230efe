"""What a node remembers while it finds out who serves a job (SPEC Q11, Q12).

Plain data: when jobs are held, asked about and let go is core/repair/settle.py's.
"""

from typing import final

from mypy_extensions import i64

from tuque.core.model.job import Job


@final
class Held:
    """Jobs that wait for the answers of their other holders, and whose answers count."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []  # those held, and some that are held no more
        self.starting: i64 = 0  # set of nodes that may yet be linked after the start
        self.until_ms: i64 = 0  # so long
        self.able: i64 = 0  # set of nodes that could answer when they were last looked at
        self.feeds: dict[int, int] = {}  # by slot: the place in `jobs` to go on asking from
        self.sweep_pos: i64 = -1  # place in `jobs` to go on looking from, -1: nothing to look at
        self.kept: i64 = 0  # of those looked at, so many are still held
        self.sweep_ms: i64 = 0  # when to look through `jobs` again
