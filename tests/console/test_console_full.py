"""What the console says of a node whose journal cannot be written (SPEC J6.8)."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from console_node import Run

from lab import RealServer
from tuque import terminal
from tuque.cli.shown import node_cells, node_color
from tuque.client.api import ClusterNode
from tuque.clusterview.figures import NodeFacts, NodeRow, merged, node_row
from tuque.clusterview.health import (
    Row,
    failing,
    state_of,
    unwell,
)
from tuque.clusterview.view import is_away
from tuque.web.pages.cluster import verdict
from tuque.web.show.verdict import of_node

ERROR = "No space left on device writing /data/journal-1.log; free space, the server retries"


@pytest.fixture
def full(tmp_path: Path) -> Iterator[RealServer]:
    """A node whose files may grow no more."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))

    node = RealServer(tmp_path, "--appendonly", "yes")
    try:
        wire = node.start(before=limit).wire()
        with suppress(EOFError):  # of an ADDJOB that is not in the journal (J6.1)
            for _ in range(1_000):
                if str(wire("ADDJOB", "q", "x" * 10_000, 0)).startswith("MISCONF"):
                    break
        yield node
    finally:
        node.end()


def test_a_node_that_cannot_write_is_named(full: RealServer, tuque: Run) -> None:
    """J6.8 CLUSTER NODES has the flag `journal-fails` of such a node (K4.5). `tuque cluster
    status` shows it with the reason and what to do, and exits with 1; so do `tuque top`, and the
    console on the page Cluster and in the verdict.
    """
    assert b" myself,journal-fails " in full.wire()("CLUSTER", "NODES")
    status = tuque("cluster", "status", "-p", full.port)
    assert status.returncode == 1
    lines = status.stdout.decode().splitlines()
    assert " journal-fails " in lines[1]
    assert f"127.0.0.1:{full.port}: its journal cannot be written: File too large" in lines[2]
    assert lines[2].endswith("; it takes no writes until it can, then it continues")
    told = json.loads(tuque("cluster", "status", "--json", "-p", full.port).stdout)
    assert told[0]["state"] == "journal-fails" and "File too large" in told[0]["reason"]
    assert b" journal-fails " in tuque("top", "--once", "-p", full.port).stdout


def test_a_silent_node_is_named_as_others_know_it() -> None:
    node = ClusterNode("n" * 40, "h", 7711, ("fail", "journal-fails"), 0, 0, True)
    assert state_of(node) == "journal-fails"
    row = Row("n" * 40, "h", 7711, state_of(node))
    assert unwell([row]) == ["h:7711: journal-fails"]
    assert failing([row, Row("m" * 40, "h", 7712, "failed")]) == [
        "h:7711: its journal cannot be written: see its log, and make room on its disk; "
        "it takes no writes until it can, then it continues"
    ]
    assert not is_away(node), "it answers clients"
    assert is_away(msgspec.structs.replace(node, connected=False))
    assert is_away(ClusterNode("n" * 40, "h", 7711, ("fail",), 0, 0, True))


def test_the_row_of_such_a_node_is_red() -> None:
    row = node_row("h:7711", "n" * 40, {"aof_last_write_status": "err"})
    assert (node_cells(row)[1], node_color(row)) == ("journal-fails", terminal.BAD)
    row = node_row("h:7711", "n" * 40, {"aof_last_write_status": "ok"})
    assert (node_cells(row)[1], node_color(row)) == ("up", terminal.GOOD)
    silent = NodeRow("h:7711", error="journal-fails")
    assert (node_cells(silent)[1], node_color(silent)) == ("journal-fails", terminal.BAD)


def test_the_verdicts_of_the_console() -> None:
    """J6.8 and the console on the page Cluster and in the verdict"""
    info: dict[str, str | int] = {"aof_last_write_status": "err", "journal_error": ERROR}
    facts = [
        NodeFacts(id * 40, "h", 9.0, 9.0, info if id == "a" else {}, [], {}, 0) for id in "abc"
    ]
    told = verdict(merged(9.0, facts, frozenset()), [])
    assert (told["kind"], told["loud"], told["title"]) == (
        "bad",
        "aaaaaaaa",
        "cannot write its journal",
    )
    assert told["why"] == f"{ERROR}; stop no other node now"
    assert told["do"].startswith("Make room on the disk, or see the log of the node")
    (notice,) = of_node(facts[0], None)
    assert (notice.says, notice.because) == ("cannot write its journal", f"journal-fails: {ERROR}")
    assert of_node(facts[1], None) == []
