"""Three real nodes in trouble: nothing is lost, nothing comes back, nothing AMO comes twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_chaos import Chaos


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--appendonly", "yes")], ids=["memory", "journal"])
def test_promises_of_a_cluster(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Kills, pauses, restarts, cuts: promises 1, 2 and 3 of the SPEC hold for all jobs."""
    chaos = Chaos(tmp_path, 3, 11, *flags)
    try:
        chaos.start()
        chaos.trouble(20)
        chaos.finish()
        chaos.end()
        chaos.verify()
    finally:
        chaos.end()
    print(chaos.score())
    assert chaos.history.findings == [], chaos.score() + "\n" + "\n".join(chaos.notes)
    assert chaos.history.counts["adds ok"] > 100
    assert sum(chaos.effective.values()) >= 3, chaos.score()
