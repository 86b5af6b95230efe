"""The prompt: completion, hints, pasted text, history, and a session on a real terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuque.cli.prompt.repl import (
    completions,
    hint,
    history_path,
    split_words,
    whole_lines,
)
from tuque.cli.replies import commands, describe, keywords
from tuque.wire.proto.strict_reader import ProtocolError, split_inline


def test_names_complete_then_words_of_the_syntax() -> None:
    assert [word for word, _ in completions("addj")] == ["ADDJOB"]
    assert "help" in [word for word, _ in completions("he")]
    assert [word for word, _ in completions("GETJOB NO")] == ["NOHANG"]
    assert "FROM" in [word for word, _ in completions("getjob NOHANG ")]
    assert ("QLEN", "Number of jobs queued on this node.") in completions("help ql")
    assert completions("nosuch x") == []


def test_the_hint_is_the_usage() -> None:
    assert hint("qlen q").startswith("QLEN queue  -  ")
    assert hint("5 PING").startswith("PING")
    assert hint("5 tube put x") == hint("TUBE PUT") and hint("TUBE PUT").startswith("TUBE PUT tube")
    assert hint("TUBE t") == "TUBE TAKE | TOUCH | TASKS | TRUNCATE"
    assert hint("TUBE").startswith("TUBE CREATE | PUT | TAKE | ACK")
    assert hint("LEASE n").startswith("LEASE N") and "CLUSTER MEET host port" in hint("cluster mee")
    assert hint("connect").startswith("connect host port")
    assert "ADDJOB" in hint("AD") and "Tab" in hint("")


def test_help_knows_every_command_and_group() -> None:
    for row in commands().values():
        assert row.ways in describe(row.name.lower()) and row.summary in describe(row.name)
        assert all(way.startswith(row.name) for way in row.ways.splitlines())
        assert row.usage in describe(f"@{row.group}") and row.name in describe("")
    assert "did you mean GETJOB" in describe("getjbo") and "@jobs" in describe("@nothing")
    assert {"REPLICATE", "DELAY", "RETRY", "TTL", "MAXLEN", "ASYNC"} <= set(keywords("addjob"))


def test_pasted_lines_are_single_commands_unless_a_quote_is_open() -> None:
    assert list(whole_lines("PING\nQLEN q")) == ["PING", "QLEN q"]
    (whole,) = whole_lines('ADDJOB q "two\nlines" 0')
    assert split_words(whole) == [b"ADDJOB", b"q", b"two\nlines", b"0"]
    assert split_words('"open') is None and list(whole_lines('"open')) == ['"open']


PIECES = [*(bytes([one]) for one in b"an \t\n\0\"'\\"), b"\\x4", b"\\x41", "é".encode()]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join))
def test_a_line_is_split_as_the_node_splits_it(line: bytes) -> None:
    """The prompt has no node beside it, and a grammar of its own."""
    try:
        split: list[bytes] | None = split_inline(line)
    except ProtocolError:
        split = None
    assert split_words(line.decode()) == split


def test_history_is_readable_by_its_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TUQUE_HISTFILE", raising=False)
    path = history_path()
    assert path == tmp_path / ".tuque_history"
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("TUQUE_HISTFILE", "/nonexistent/x")
    assert history_path() is None


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, home: Path, *args: str, **env: str) -> None:
        self.screen = ""
        master, slave = pty.openpty()
        self.master = master
        termios.tcsetwinsize(slave, (24, 120))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tuque", *args],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={
                **os.environ,
                "HOME": str(home),
                "TERM": "xterm",
                "PROMPT_TOOLKIT_NO_CPR": "1",
                **env,
            },
            start_new_session=True,
        )
        os.close(slave)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def see(self, wanted: str) -> None:
        """Wait until the text was printed after what was seen before."""
        until = time.monotonic() + 60
        while wanted not in self.screen:
            assert time.monotonic() < until, self.screen[-2000:]
            if select.select([self.master], [], [], 0.1)[0]:
                data = os.read(self.master, 4096).decode("utf-8", "replace")
                self.screen += re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|[>=78])", "", data)
        self.screen = self.screen.split(wanted, 1)[1]

    def end(self) -> int:
        until = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < until:
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    os.read(self.master, 4096)
                except OSError:
                    break
        self.process.wait(60)
        os.close(self.master)
        return self.process.returncode


def test_a_session_completes_runs_and_remembers(port: int, tmp_path: Path) -> None:
    pytest.importorskip("prompt_toolkit")
    terminal = Terminal(tmp_path, "cli", "-p", str(port))
    terminal.see(f"127.0.0.1:{port}>")
    terminal.type("QLE\t")
    terminal.see("QLE")
    terminal.see("N")  # completed
    terminal.type(" prompt\r")
    terminal.see("(integer) 0")
    terminal.type("AUTH secret\r")
    terminal.see("(error)")
    terminal.type("nosuchcmd\r")
    terminal.see("(error)")
    terminal.type("exit\r")
    assert terminal.end() == 1  # the last command failed
    kept = (tmp_path / ".tuque_history").read_text()
    assert "+QLEN prompt" in kept and "secret" not in kept


def test_a_session_without_a_node_can_connect_later(port: int, tmp_path: Path) -> None:
    pytest.importorskip("prompt_toolkit")
    terminal = Terminal(tmp_path, "cli", "-p", "1")
    terminal.see("Could not connect")
    terminal.see("not connected>")
    terminal.type(f"connect 127.0.0.1 {port}\r")
    terminal.see(f"127.0.0.1:{port}>")
    terminal.type("PING\r")
    terminal.see("PONG")
    terminal.see(f"127.0.0.1:{port}>")
    terminal.type("\x04")
    assert terminal.end() == 0
