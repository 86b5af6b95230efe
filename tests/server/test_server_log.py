"""The log of a real server: one object a line, and what CONFIG SET changes of it (SPEC C10)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from live import Live, ask


def in_json(live: Live) -> list[dict[str, Any]]:
    """The lines of the log that are objects."""
    return [json.loads(line) for line in live.log().splitlines() if line.startswith("{")]


def test_each_line_is_an_object(make_live: Callable[..., Live]) -> None:
    """SPEC C10.2: With `log-format json` each line is one object with time, level, process, logger,
    event and message, the fields of its event, and a traceback as trace. Numbers are numbers; in
    texts but the trace control characters are escaped.
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
