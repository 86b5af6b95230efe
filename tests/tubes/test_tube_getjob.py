"""GETJOB of many from tubes whose tasks nobody may get now (SPEC V2.1, T1.7)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))

from world import World


def test_tasks_of_a_busy_sub_queue_end_a_round() -> None:
    """V2.1 until COUNT is reached or a round gave nothing."""
    world = World()
    assert world("TUBE CREATE u utube") == b"+OK\r\n"
    for body in ("first", "second"):
        world("ADDJOB u", body, "0", "UTUBE", "key")
    plain = world.add("q")
    got = world.value("GETJOB NOHANG COUNT 5 FROM u q u")
    assert [job[2] for job in got] == [b"first", b"body"]
    assert got[1][1] == plain
    assert world("QLEN u") == b":1\r\n"
    assert world("GETJOB NOHANG COUNT 5 FROM u q") == b"*-1\r\n"
    world("ACKJOB", got[0][1])
    assert [job[2] for job in world.value("GETJOB NOHANG COUNT 5 FROM u")] == [b"second"]
