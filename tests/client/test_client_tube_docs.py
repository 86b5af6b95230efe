"""The examples in docs/tubes.md and docs/from-tarantool-queue.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tarantool

from lab import RealServer, free_port
from tuque import Client
from tuque.client.commands import tubes
from tuque.client.sync import Client as Threads
from tuque.client.tube import Tube
from tuque.wire.commands.tube_table import WORDS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MOVES = "from-tarantool-queue.md"


def run_examples(page: str, url: str) -> dict[str, Any]:
    """Run all Python of the page, one after the other; the names at the end."""
    names: dict[str, Any] = {"__name__": "page"}
    for at, text in enumerate(re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.S)):
        example = text.replace("tuque://127.0.0.1:7711", url)
        exec(compile(example, f"{page}, example {at + 1}", "exec"), names)
    return names


def test_tubes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a node where a newcomer took the tour before: no name of a tube clashes."""
    tour = re.findall(r"```python\n(.*?)```", (DOCS / "tour.md").read_text(), re.S)
    (first,) = [text for text in tour if "client.tube(" in text]
    node = RealServer(tmp_path)
    node.start()
    try:
        exec(first.replace("tuque://127.0.0.1:7711", node.url), {})
        names = run_examples("tubes.md", node.url)
        names["on_change"]("mail", "put", 3, "READY", b"")
        assert capsys.readouterr().out.endswith("mail 3: put, now READY\n")
        with Client(node.url) as client:
            assert client.tube_list() == ["pages", "mail", "reports", "visits"]
            assert client.tube("reports").info().taken == 0
    finally:
        node.end()


def test_moving(tmp_path: Path) -> None:
    """From what speaks as Tarantool does, asked by its own client."""
    port = free_port()
    node = RealServer(tmp_path, "--iproto-port", str(port))
    node.start()
    old = tarantool.Connection("127.0.0.1", port)
    sent: list[Any] = [{"n": 1}, "text", b"\x01\xff"]
    try:
        move = run_examples(MOVES, node.url)["move"]
        with Client(node.url) as client:
            new = client.tube("docs-new")
            old.call("queue.create_tube", "docs_old", "fifo")
            new.create("fifo")
            for data in sent:
                old.call("queue.tube.docs_old:put", data)
            assert move(old, "docs_old", new) == len(sent)
            assert [new.take(0).value for _ in sent] == sent
            assert client.tube("docs_old").statistics()["tasks"]["total"] == 0
    finally:
        old.close()
        node.end()


def test_every_call_of_the_table_exists() -> None:
    """The words of RESP are subcommands, the calls of Python are methods, and none is left out."""
    rows = [line.split(" | ") for line in (DOCS / MOVES).read_text().splitlines()]
    rows = [row for row in rows if len(row) == 3 and row[1].startswith("`")]
    words = {word for row in rows for word in re.findall(r"TUBE ([A-Z]+)", row[1])}
    assert words == {name.decode() for name in WORDS}
    called = re.findall(r"`?(tube|client(?:\.tube\(name\))?)\.(\w+)\(", "".join(r[2] for r in rows))
    assert len(called) >= 22
    for owner, name in called:
        kind: type = Threads if owner == "client" and name != "create" else Tube
        assert hasattr(kind, name), name
    assert {name for _, name in called} >= {
        name for name in vars(tubes) if hasattr(Tube, name) and name[0] != "_"
    }
