"""The options that name a node: the same for all commands, and checked as the client does."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from console_node import Run

from lab import RealServer
from tuque.cli.programs import free_port
from tuque.main import tuque as program
from tuque.nodeoptions import NodeOptions

NODE = {"-h", "--host", "-p", "--port", "-u", "--url", "-a", "--password", "--user"}
COMMANDS = ["cli", "cluster status", "cluster meet", "cluster forget", "cluster drain",
            "cluster repair", "node stop", "tubes", "tubes home", "triage", "replay",
            "spark backfill", "bench"]  # fmt: skip


def at_node(command: str, *options: str) -> list[str]:
    """The command with the options, which stand before the words for a node."""
    names = [word for word in command.split() if word.islower()]
    return [*names, *options, *(word for word in command.split() if word.isupper())]


@pytest.mark.parametrize("words", COMMANDS)
def test_all_commands_that_talk_to_a_node_take_the_same_options(words: str) -> None:
    command: click.Command = program
    for word in words.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    options = {name: one.envvar for one in command.params for name in one.opts}
    assert set(options) >= NODE
    assert (options["-u"], options["-a"]) == ("TUQUE_URL", "TUQUE_PASSWORD")


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("?timeout=x", "timeout must be a number of seconds, not 'x'"),
        ("?timeout=nan", "timeout must be more than 0 and at most 86400 seconds, not nan"),
        ("?timeout=", "timeout must be a number of seconds, not ''"),
        ("?connect_timeout=0", "connect_timeout must be more than 0"),
        ("?retries=1.5", "retries must be a whole number, not '1.5'"),
        ("?max_connections=-1", "max_connections must be a whole number, not '-1'"),
        ("?follow=maybe", "follow must be yes or no, not 'maybe'"),
        ("?name=a%20b", "name must be printable ASCII without spaces"),
        ("?tiemout=5", "unknown client setting 'tiemout' in the URL; there are: timeout,"),
        ("?retries=0", ""),
        ("/queue", "no path after its hosts: /queue"),
        (":x", "not a host and port"),
    ],
)
@pytest.mark.parametrize("command", ["cli PING", "cluster status", "tubes", "bench", "triage"])
def test_a_wrong_setting_of_a_url_is_refused(command: str, end: str, said: str) -> None:
    url = f"tuque://:hush@127.0.0.1:{free_port()}{end}"
    done = CliRunner().invoke(program, at_node(command, "-u", url))
    assert "hush" not in done.output
    if said:
        assert done.exit_code == 2 and said in " ".join(done.output.split()), done.output
    else:
        assert done.exit_code == 1, done.output
    done = CliRunner().invoke(program, command.split(), env={"TUQUE_URL": url})
    assert (done.exit_code == 2) == bool(said), done.output


@pytest.mark.parametrize(
    ("url", "words", "name"),
    [
        ("tuque://127.0.0.1:7", ["-p", "8"], "--port"),
        ("tuque://127.0.0.1:7", ["-h", "127.0.0.2"], "--host"),
        ("tuque://me:hush@127.0.0.1:7", ["-a", "other"], "--password"),
        ("tuque://me:hush@127.0.0.1:7", ["--user", "you"], "--user"),
    ],
)
@pytest.mark.parametrize("command", ["cli PING", "top --once", "cluster status"])
def test_a_typed_option_that_the_url_would_make_void_is_refused(
    command: str, url: str, words: list[str], name: str
) -> None:
    done = CliRunner().invoke(program, at_node(command, "-u", url, *words))
    assert done.exit_code == 2 and "hush" not in done.output
    assert f"the URL has its own: give --url or {name}, not both" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("-p 7 cluster status", "No such option"),
        ("cluster -p 7 status", "No such option"),
        ("node -p 7 stop", "No such option"),
        ("dead -p 7 list mail", "No such option"),
        ("tubes -p 7 home mail", "--port goes behind the subcommand, home"),
        ("tubes --json limits mail", "--json goes behind the subcommand, limits"),
        ("workers -u tuque://there quiet w", "--url goes behind the subcommand, quiet"),
    ],
)
def test_options_stand_behind_the_subcommand(command: str, said: str) -> None:
    """Before it they would name a node that the subcommand does not ask."""
    done = CliRunner().invoke(program, command.split())
    assert done.exit_code == 2 and said in done.output


def test_what_does_not_speak_tls_says_so() -> None:
    done = CliRunner().invoke(program, ["cli", "-u", "tuques://127.0.0.1", "PING"])
    assert done.exit_code == 2 and "TLS" in done.output


def test_single_options_fill_in_what_a_url_leaves_open() -> None:
    at = NodeOptions("::1", 7, "", "p@ss", "me").settings()
    assert (*at.seeds[0], at.password, at.user) == ("::1", 7, "p@ss", "me")
    at = NodeOptions("::1", 7, "tuque://there?timeout=2", "p@ss", "").settings()
    assert (*at.seeds[0], at.password, at.timeout_s) == ("there", 7711, "p@ss", 2.0)
    at = NodeOptions("::1", 7, "tuque://you:own@there", "p@ss", "me").settings()
    assert (at.password, at.user) == ("own", "you")


def test_each_command_finds_its_node(tuque: Run, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    (tmp_path / "shop.py").write_text(
        "from tuque.worker import App\n"
        "app = App('tuque://127.0.0.1:1')\n"
        "@app.task(queue='w')\n"
        "def nothing() -> None: ...\n"
    )
    path = tmp_path / "s"
    port = free_port()  # with a socket, 0 means none
    with RealServer(tmp_path, "--unixsocket", str(path), port=port):
        for node in (
            ("-p", port),
            ("-u", f"tuque://127.0.0.1:{port}"),
            ("-u", f"tuque+unix://{path}"),
        ):
            assert tuque("cli", *node, "PING").stdout == b"PONG\n"
            assert tuque("triage", *node).stdout == b"no dead letters\n"
            done = tuque("bench", *node, "-n", 10, "--json")
            assert done.returncode == 0 and json.loads(done.stdout), done.stderr
        for node in (("-p", port), ("-u", f"tuque://127.0.0.1:{port}")):
            assert tuque("cli", "-p", port, "ADDJOB", "w", "no task", 0).returncode == 0
            words = ("shop:app", "--app-dir", tmp_path, "--max-jobs", 1, *node)
            done = tuque("worker", *words)
            assert done.returncode == 0, done.stderr
        assert tuque("cli", "-p", port, "QLEN", "w.dead").stdout == b"2\n"
        assert b"2  w.dead" in tuque("triage", "-p", port).stdout
