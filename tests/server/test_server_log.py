"""The log of a real server: one object a line, and what CONFIG SET changes of it (SPEC C10)."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from live import Live, ask


def in_json(live: Live) -> list[dict[str, Any]]:
    """The lines of the log that are objects."""
    return [json.loads(line) for line in live.log().splitlines() if line.startswith("{")]


def test_each_line_is_an_object(make_live: Callable[..., Live]) -> None:
    """SPEC C10.2: With `log-format json` each line is one object with time, level, process,
    logger, event and message, the fields of its event, and a traceback as trace. Numbers are
    numbers; in texts (except the trace) control characters are escaped.
    """
    live = make_live("--set", "log-format=json")
    lines = in_json(live)
    assert len(lines) == len(live.log().splitlines())
    common = {"time", "level", "process", "logger", "event", "message"}
    assert all(common <= set(line) for line in lines)
    (ready,) = [line for line in lines if line["event"] == "server_ready"]
    assert (ready["port"], ready["level"], ready["process"]) == (live.port, "info", live.pid)
    assert ready["message"].endswith(f"on port {live.port}")
    assert ready["logger"] == "tuque.server"


def test_the_format_and_the_level_change_at_once(make_live: Callable[..., Live]) -> None:
    """SPEC C10.3: `CONFIG SET` of `loglevel` or `log-format` applies from the next line on."""
    live = make_live()
    with live.connect() as sock:
        assert ask(sock, "CONFIG SET log-format json") == b"+OK\r\n"
        assert ask(sock, "CONFIG SET timeout 77") == b"+OK\r\n"
        assert ask(sock, "CONFIG SET loglevel warning") == b"+OK\r\n"
        assert ask(sock, "CONFIG SET timeout 78") == b"+OK\r\n"
        assert ask(sock, "CONFIG SET loglevel notice") == b"+OK\r\n"
        assert ask(sock, "CONFIG SET log-format text") == b"+OK\r\n"
        assert b"-ERR" in ask(sock, "CONFIG SET log-format xml")
    lines = in_json(live)
    assert {line["event"] for line in lines} == {"option_set"}
    assert [line["option"] for line in lines] == ["log-format", "timeout", "loglevel"]
    assert live.log().splitlines()[-1].endswith("I CONFIG SET log-format")


def test_an_error_has_its_trace_and_texts_no_control_characters() -> None:
    import logging

    from tuque.logtext import JsonFormatter, facts

    try:
        raise ValueError("a\x1bb")
    except ValueError as error:
        found = facts("lost", reason=error, seconds=1.25, n=3, is_new=True, none=None)
        text = "lost: %(reason)s"
        kind = (ValueError, error, error.__traceback__)
        record = logging.LogRecord("tuque", logging.ERROR, "", 1, text, (found,), kind)
    line = json.loads(JsonFormatter().format(record))
    assert line["message"] == "lost: a\\x1bb"
    assert (line["event"], line["reason"], line["level"]) == ("lost", "a\\x1bb", "error")
    assert (line["seconds"], line["n"], line["is_new"], line["none"]) == (1.25, 3, True, None)
    assert line["trace"].startswith("Traceback")


def failed_start(here: Path, log: Path, most_bytes: int) -> tuple[list[str], list[str]]:
    """What a node says that cannot write its files, on standard error and in its log."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))

    words = [sys.executable, "-m", "tuque", "server", "--port", "0", "--dir", str(here)]
    done = subprocess.run(
        [*words, "--logfile", str(log)], capture_output=True, text=True, preexec_fn=limit
    )
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr.splitlines(), log.read_text().splitlines()


def test_a_start_that_fails_says_why_in_the_log(tmp_path: Path) -> None:
    """C10.4 A start that fails says why on standard error, and in `logfile` as well once that is
    open."""
    (tmp_path / "nodes.conf").mkdir()
    (said,), (line,) = failed_start(tmp_path, tmp_path / "log", resource.RLIM_INFINITY)
    assert said.startswith("tuque server: cluster-config-file ")
    assert line.endswith(" C the node does not start: " + said.removeprefix("tuque server: "))


def test_a_log_that_is_full_goes_to_standard_error(tmp_path: Path) -> None:
    """C10.4 A line that cannot be written to `logfile`, as on a full disk, goes to standard error.

    No file may grow: neither that of the node's id nor the log.
    """
    (line, said), log = failed_start(tmp_path, tmp_path / "log", 0)
    assert said.startswith("tuque server: cluster-config-file ") and log == []
    assert line.endswith(" C the node does not start: " + said.removeprefix("tuque server: "))
