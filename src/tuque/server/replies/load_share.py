"""The progress of the journal's load (SPEC J5.7)."""

from typing import Final

from mypy_extensions import i64

from tuque.server.journal.committer import Committer
from tuque.store.replay import READING, RESTORING

READ_SHARE: Final = 70  # percent of a load's time spent on reading; then the jobs are entered


def load_share(committer: Committer | None) -> float:
    """Percent of the load that is done, 0 to 100."""
    loader = None if committer is None else committer.loaded
    if loader is None:
        return 0.0
    if loader.stage == READING:
        total: i64 = loader.total_bytes
        return float(READ_SHARE) * float(loader.loaded_bytes) / float(total) if total > 0 else 0.0
    jobs = len(loader.order)
    if loader.stage == RESTORING and jobs > 0:
        return READ_SHARE + float(100 - READ_SHARE) * float(loader.restored) / float(jobs)
    return float(READ_SHARE)
