"""`tuque audit` on the files of two nodes, and on those of a real one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click import ClickException
from console_node import Run

from lab import RealServer
from tuque.lazygroup import LocalTime


def row(
    seq: int, ts_ms: int, node: str, act: str = "pause", user: str = "root"
) -> dict[str, object]:
    return {
        "seq": seq,
        "ts_ms": ts_ms,
        "node": node,
        "user": user,
        "from": "10.0.0.1:5",
        "door": "resp",
        "act": act,
        "words": ["PAUSE", "\x1b[1m"],
        "outcome": "ok",
    }


def write(directory: Path, node: str, *rows: dict[str, object] | bytes) -> None:
    """A file of that node."""
    path = directory / f"audit-{node}-{1:020d}.jsonl"
    lines = [one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n" for one in rows]
    path.write_bytes(b"".join(lines))


def test_lines_of_all_nodes(tmp_path: Path, tuque: Run) -> None:
    """N9.6 `tuque audit` prints the lines of all nodes in a directory in the order of time,
    leaves out lines that are cut, and reports where lines are missing.
    """
    first, second = "aa" * 20, "bb" * 20
    write(tmp_path, first, row(1, 1_000, first), b'{"seq": 2, "ts\n', row(4, 4_000, first, "kick"))
    write(tmp_path, second, row(1, 3_000, second, user="eve"), b"[1]\n", b'{"se')
    (tmp_path / "notes.txt").write_text("nothing")
    lines = tuque("audit", tmp_path).stdout.decode().splitlines()
    assert ["aaaaaaaa" in line for line in lines] == [True, False, True, True]
    assert "2 lines are missing here" in lines[2]
    assert lines[0].endswith("root  10.0.0.1:5  pause  ok  PAUSE \\x1b[1m")
    shown = tuque("audit", tmp_path, "--json", "--user", "e*").stdout.decode().splitlines()
    assert [json.loads(line).get("user", "gap") for line in shown] == ["eve", "gap"]
    shown = tuque("audit", tmp_path, "--json", "--act", "kic?").stdout.decode().splitlines()
    assert [json.loads(line).get("act", "gap") for line in shown] == ["gap", "kick"]
    assert tuque("audit", tmp_path, "--since", "2000-01-01").stdout == b""
    assert tuque("audit", tmp_path, "--since", "1902-01-01").stdout.count(b"\n") == len(lines)
    with pytest.raises(ClickException, match="out of range"):
        LocalTime().convert("0001-01-01", None, None)
    assert tuque("audit", tmp_path / "none").returncode == 2


def test_a_real_node(tmp_path: Path, tuque: Run) -> None:
    """N9.1: both doors, also after a restart."""
    node = RealServer(tmp_path, "--audit", "yes", "--audit-dir", "acts")
    for _ in range(2):
        node.start()
        assert node.wire()("CONFIG", "SET", "hz", 11) == b"OK"
        node.end()
    shown = tuque("audit", tmp_path / "acts", "--json").stdout.decode().splitlines()
    assert [(one["seq"], one["act"]) for one in map(json.loads, shown)] == [
        (1, "config|set"),
        (2, "config|set"),
    ]
