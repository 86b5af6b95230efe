"""Completion in shells: commands, options, and names of queues if a node answers in time."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from console_node import run_here

from lab import RealServer, free_port
from tuque.completion import asked
from until import until


def tuque(*, shell: str, line: str = "", **env: str) -> str:
    """What the program gives the shell: for `source` its script, else words for `line`."""
    words = line.split(" ")
    words_at = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = run_here([], b"", {"_TUQUE_COMPLETE": shell, **words_at, **env})
    assert done.stderr == b""
    return done.stdout.decode()


def words(line: str, **env: str) -> list[str]:
    """The words that bash would offer at the end of the line."""
    out = tuque(shell="bash_complete", line=line, **env)
    return [one.partition(",")[2] for one in out.splitlines() if one]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    script = tuque(shell=f"{shell}_source")
    assert f"_TUQUE_COMPLETE={shell}_complete" in script


def test_commands_and_options_are_completed() -> None:
    assert words("tuque d") == ["dev", "dead"]
    assert words("tuque dead s") == ["show", "stat"]
    assert words("tuque worker --po") == ["--pool", "--port"]


def test_queues_are_completed(tmp_path: Path) -> None:
    with RealServer(tmp_path, "--requirepass", "0123456789abcdef", port=free_port()) as server:
        url = f"tuque://:0123456789abcdef@127.0.0.1:{server.port}"
        import tuque as client_of

        with client_of.Client(url) as client:
            for name in ("mail.dead", "mail", "other"):
                client.addjob(name, "x")
        found = ["mail", "mail.dead"]  # a machine may be too busy for 200 ms
        until(lambda: words("tuque dead list ma", TUQUE_URL=url) == found, "complete their names")
        assert words("tuque dead list ma", TUQUE_URL=url.replace("0123", "3210")) == []


def test_a_silent_node_costs_little_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        from tuque.client.url import parse

        seed = parse(f"tuque://127.0.0.1:{silent.getsockname()[1]}").seeds[0]
        with pytest.raises(TimeoutError):
            asked(seed, "", "")
    assert words("tuque dead list ma", TUQUE_URL="tuque://127.0.0.1:1") == []
    assert words("tuque dead list ma", TUQUE_URL="nonsense://") == []
