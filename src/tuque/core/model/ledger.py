"""Counts where each job came from and went: one counter per cause (SPEC G9).

    created + imported + replicated + loaded
        = live + gc_acked + expired + moved + admin_deleted + evicted + add_failed

A job that leaves without a cause is a bug; `balance` shows it.
"""

from typing import Final, final

from mypy_extensions import i64

CREATED: Final = 0
IMPORTED: Final = 1
REPLICATED: Final = 2
LOADED: Final = 3
GC_ACKED: Final = 4
EXPIRED: Final = 5
MOVED: Final = 6
ADMIN_DELETED: Final = 7
EVICTED: Final = 8
ADD_FAILED: Final = 9

CAUSES: Final = [
    "created",
    "imported",
    "replicated",
    "loaded",
    "gc_acked",
    "expired",
    "moved",
    "admin_deleted",
    "evicted",
    "add_failed",
]


@final
class Ledger:
    """Counts since the process started."""

    def __init__(self) -> None:
        self.created: i64 = 0
        self.imported: i64 = 0
        self.replicated: i64 = 0
        self.loaded: i64 = 0
        self.gc_acked: i64 = 0
        self.expired: i64 = 0
        self.moved: i64 = 0
        self.admin_deleted: i64 = 0
        self.evicted: i64 = 0
        self.add_failed: i64 = 0

    def entered(self) -> i64:
        """Jobs that arrived so far."""
        return self.created + self.imported + self.replicated + self.loaded

    def enter(self, cause: i64) -> None:
        """Count a job that arrived."""
        if cause == CREATED:
            self.created += 1
        elif cause == LOADED:
            self.loaded += 1
        elif cause == REPLICATED:
            self.replicated += 1
        else:
            assert cause == IMPORTED, "unknown way in"
            self.imported += 1

    def leave(self, cause: i64) -> None:
        """Count a job that left."""
        if cause == GC_ACKED:
            self.gc_acked += 1
        elif cause == EXPIRED:
            self.expired += 1
        elif cause == ADMIN_DELETED:
            self.admin_deleted += 1
        elif cause == EVICTED:
            self.evicted += 1
        elif cause == MOVED:
            self.moved += 1
        else:
            assert cause == ADD_FAILED, "unknown way out"
            self.add_failed += 1

    def counts(self) -> list[int]:
        """The counters in the order of CAUSES."""
        return [
            self.created,
            self.imported,
            self.replicated,
            self.loaded,
            self.gc_acked,
            self.expired,
            self.moved,
            self.admin_deleted,
            self.evicted,
            self.add_failed,
        ]

    def balance(self, live: i64) -> i64:
        """0 when every job is accounted for; `live` is the size of the job table."""
        came = self.created + self.imported + self.replicated + self.loaded
        went = self.gc_acked + self.expired + self.moved + self.admin_deleted
        return came - went - self.evicted - self.add_failed - live
