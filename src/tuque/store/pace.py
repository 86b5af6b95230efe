"""The recent speed of the disk, and who syncs the journal under `always` (SPEC J4.5).

A sync in the pump saves two wake-ups, but all clients wait for it. So the pump syncs only on a disk
that has been fast, and pauses longer after each slow sync.
"""

from typing import Final, final

from mypy_extensions import i64

LOOK: Final = 16  # number of recent syncs that are averaged
QUICK_S: Final = 0.001  # the average of a quick disk is at most this
SLOW_S: Final = 0.010  # a longer sync is slow
LEAST_S: Final = 1.0  # minimum time without slow syncs before the pump syncs
MOST_S: Final = 600.0


@final
class Pace:
    """The last syncs of the journal, and the pump's pause after a slow one."""

    def __init__(self) -> None:
        self.last: list[float] = []  # duration of each in s, a ring
        self.at: i64 = 0  # its next position
        self.sum_s: float = 0.0
        self.keep_off_s: float = LEAST_S
        self.since_s: float = -MOST_S  # the last slow sync, or the last halving
        self.slow_s: float = -MOST_S  # the last slow sync

    def note(self, took_s: float, now_s: float, by_pump: bool) -> None:
        """Add a sync that took so long and ended now; times in s of one steady clock."""
        if len(self.last) < LOOK:
            self.last.append(took_s)
            self.sum_s += took_s
        else:
            self.sum_s += took_s - self.last[self.at]
            self.last[self.at] = took_s
        self.at = (self.at + 1) % LOOK
        if took_s > SLOW_S:
            if by_pump:
                self.keep_off_s = min(2 * self.keep_off_s, MOST_S)
            self.slow_s = self.since_s = now_s
        elif now_s - self.since_s >= 2 * self.keep_off_s and self.keep_off_s > LEAST_S:
            self.keep_off_s = max(self.keep_off_s / 2, LEAST_S)
            self.since_s = now_s

    def is_quick(self, now_s: float) -> bool:
        """[J4.5] Whether the pump may sync."""
        if len(self.last) < LOOK or self.sum_s > LOOK * QUICK_S:
            return False
        return now_s - self.slow_s >= self.keep_off_s
