"""What tasks and jobs say is text in the worker's log: it commands no terminal, forges no line."""

from __future__ import annotations

import io
import json
import logging
import re
import signal
import sys
from pathlib import Path

import e2e_tasks as tasks
import pytest
from worker_lab import StartWorker

from lab import RealServer
from tuque import Client
from tuque.logtext import VisibleFormatter
from until import until

NASTY = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\nWARNING forged \u2028x\u202ey"


def logged(message: str, *args: object, **more: object) -> str:
    """A line as a handler with the formatter writes it."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(VisibleFormatter("%(levelname)s %(message)s"))
    log = logging.Logger("tests")
    log.addHandler(handler)
    log.warning(message, *args, **more)  # type: ignore[arg-type]  # what a caller of a logger gives
    return out.getvalue()


def test_a_message_is_one_line_without_control_characters() -> None:
    assert logged("to %s\tend", NASTY) == (
        r"WARNING to \x1b]0;owned\x07\x1b[2J\x9b31m\r\nWARNING forged \u2028x\u202ey" + "\tend\n"
    )
    assert logged("\x7f\x00\x85\ud800 žluťoučký 🐎") == (
        r"WARNING \x7f\x00\x85\ud800 " + "žluťoučký 🐎\n"
    )


@pytest.mark.parametrize("way", ["exc_info", "trace", "stack_info", "another handler's"])
def test_a_traceback_has_its_lines_indented_and_visible(way: str) -> None:
    trace = f"Traceback:\n  File x\nValueError: {NASTY}\n"
    if way == "trace":
        said = logged("it failed", extra={"trace": trace})
    elif way == "stack_info":
        said = VisibleFormatter("WARNING %(message)s").format(
            logging.makeLogRecord({"msg": "it failed", "stack_info": trace})
        )
    else:
        try:
            raise ValueError(NASTY)
        except ValueError:
            record = logging.makeLogRecord({"msg": "it failed", "exc_info": sys.exc_info()})
        if way == "another handler's":
            logging.Formatter().format(record)
        said = VisibleFormatter("WARNING %(message)s").format(record)
    first, *rest = said.rstrip().split("\n")
    assert first == "WARNING it failed"
    assert len(rest) >= 4 and all(line.startswith("  ") for line in rest)
    assert any(r"ValueError: \x1b]0;owned\x07\x1b[2J\x9b31m\r" in line for line in rest)
    assert not re.search(r"[^\n\x20-\x7e]", said)


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_the_text_of_an_error_comes_escaped(
    pool: str, node: RealServer, client: Client, start_worker: StartWorker
) -> None:
    tasks.app.use(node.url)
    tasks.bad_address.enqueue(NASTY)
    worker = start_worker("--pool", pool, "-c", "1")
    assert client.getjob("q.dead", timeout_ms=60_000)
    worker.says("is dead, in")
    worker.signal(signal.SIGTERM)
    worker.ends(0)
    assert not re.search(rb"[^\n\x20-\x7e]", worker.log.read_bytes())
    lines = worker.text.splitlines()
    escaped = r"\x1b]0;owned\x07\x1b[2J\x9b31m"
    where = ["failed (attempt 1)", "no more tries", "is dead, in", "  ValueError: bad", "to \\x1b"]
    for words in where:
        assert [line for line in lines if words in line and escaped in line], words
    assert not [line for line in lines if line.startswith("WARNING forged")]


@pytest.mark.parametrize("pool", ["thread", "process"])
@pytest.mark.parametrize(("level", "kind"), [("info", "json"), ("warning", "text")])
def test_what_tasks_log_is_written_in_each_pool(
    pool: str, level: str, kind: str, node: RealServer, start_worker: StartWorker
) -> None:
    """U4.8 What tasks log is written as the worker's own lines are, in each pool, from the level
    of `--log-level` on, unless the app sets up the handlers of its loggers.
    """
    tasks.app.use(node.url)
    handle = tasks.logs_at_each_level.options(keep_s=60).enqueue("here")
    worker = start_worker("--pool", pool, "-c", "1", "--log", kind, "--log-level", level)
    assert handle.result(60) is None
    worker.says("warning here")
    lines = [line for line in worker.text.splitlines() if " here" in line]
    words = [word for word in ("debug", "info", "warning") for line in lines if f"{word} h" in line]
    assert words == (["info", "warning"] if level == "info" else ["warning"])
    if kind == "json":
        assert {json.loads(line)["job"] for line in lines} == {handle.id}
    else:
        assert re.fullmatch(r"[-\d]+ [:,\d]+ \d+ WARNING warning here", lines[0])


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_hang_up_opens_log_files_anew(
    pool: str, node: RealServer, start_worker: StartWorker, tmp_path: Path
) -> None:
    """U4.10 SIGHUP ends no worker: log files that the app writes by handlers of `logging` are
    opened anew, in all processes of the worker.
    """
    tasks.app.use(node.url)
    path, moved = tmp_path / "app.log", tmp_path / "app.log.1"
    task = tasks.logs_to_a_file.options(keep_s=60)
    worker = start_worker("--pool", pool, "-c", "1")
    assert task.enqueue("first", str(path)).result(60) is None
    path.rename(moved)
    worker.signal(signal.SIGHUP)
    worker.says("log files are opened anew")
    until(path.exists)
    assert task.enqueue("second", str(path)).result(60) is None
    assert (moved.read_text(), path.read_text()) == ("first\n", "second\n")
    worker.signal(signal.SIGTERM)
    worker.ends(0)
