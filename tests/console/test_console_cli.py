"""`tuque cli` against a real node: output, exit status, and what it says when things go wrong."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from console_node import Run

from lab import RealServer
from tuque.cli.programs import free_port
from tuque.client.transport.raw_link import Link, LinkError, Target
from tuque.client.transport.sockets import Wire


def test_one_shots_in_every_mode(tuque: Run, port: int) -> None:
    added = tuque("cli", "-p", port, "ADDJOB", "modes", "hello", "100")
    assert added.returncode == 0 and added.stdout.startswith(b"D-") and added.stderr == b""
    job = added.stdout.strip()
    peek = ("QPEEK", "modes", "-1")
    assert tuque("cli", "-p", port, *peek).stdout == b"modes\n%b\nhello\n" % job
    assert tuque("cli", "-p", port, "--csv", *peek).stdout == b'"modes","%b","hello"\n' % job
    told = json.loads(tuque("cli", "-p", port, "--json", *peek).stdout)
    assert told == [["modes", job.decode(), "hello"]]
    typed = tuque("cli", "-p", port, "--no-raw", *peek).stdout
    assert typed == b'1) 1) "modes"\n   2) "%b"\n   3) "hello"\n' % job
    assert tuque("cli", "-p", port, "-d", ",", *peek).stdout == b"modes,%b,hello\n" % job
    assert tuque("cli", "-p", port, "--no-raw", "ACKJOB", job.decode()).stdout == b"(integer) 1\n"


def test_a_terminal_sees_types_and_info_as_text(tuque: Run, port: int) -> None:
    shown = tuque("cli", "-p", port, "INFO", "server", FAKETTY="1").stdout
    assert shown.startswith(b"# Server") and b"\\r" not in shown
    assert tuque("cli", "-p", port, "QLEN", "none", FAKETTY="1").stdout == b"(integer) 0\n"


def test_the_last_argument_from_standard_input(tuque: Run, port: int) -> None:
    body = b"\x00\r\n binary"
    assert tuque("cli", "-p", port, "--raw", "-x", "PING", stdin=body).stdout == body + b"\n"


def test_a_pipe_gets_no_bytes_that_a_terminal_obeys(tuque: Run, port: int) -> None:
    body = b"\x1b]0;owned\x07\x1b[2J caf\xc3\xa9"
    shown = b"\\x1b]0;owned\\x07\\x1b[2J caf\xc3\xa9\n"
    assert tuque("cli", "-p", port, "-x", "PING", stdin=body).stdout == shown
    assert tuque("cli", "-p", port, "--raw", "-x", "PING", stdin=body).stdout == body + b"\n"
    wrong = tuque("cli", "-p", port, "-x", "CLUSTER", stdin=b"\x1b[2J")
    assert b"\x1b" not in wrong.stdout + wrong.stderr


def test_repeat(tuque: Run, port: int) -> None:
    assert tuque("cli", "-p", port, "-r", "3", "-i", "0.01", "PING").stdout == b"PONG\n" * 3


def test_an_error_reply_is_status_1_and_says_what_to_do(tuque: Run, port: int) -> None:
    for words, hint in (
        (("ADDJOB", "q"), b"hint: usage: ADDJOB queue body"),
        (("ADJOB", "q"), b"did you mean ADDJOB"),
        (("SHOW", "nonsense"), b"hint: an id is 40 bytes"),
        (("--jsno", "PING"), b"hint: --jsno is no option; `tuque cli --help` shows them"),
    ):
        done = tuque("cli", "-p", port, *words)
        assert done.returncode == 1 and done.stdout and hint in done.stderr


def test_help_needs_no_node(tuque: Run) -> None:
    done = tuque("cli", "-p", free_port(), "help", "getjob")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"GETJOB [NOHANG] [TIMEOUT ms]")
    assert b"@queues: " in tuque("cli", "HELP").stdout


def test_no_node_is_status_1_and_says_what_to_do(tuque: Run) -> None:
    done = tuque("cli", "-p", free_port(), "PING")
    assert done.returncode == 1 and done.stdout == b""
    assert b"Could not connect to Tuque at 127.0.0.1" in done.stderr
    assert b"`tuque server` starts one" in done.stderr


def test_wrong_options_are_status_2(tuque: Run) -> None:
    assert tuque("cli", "-p", "99999", "PING").returncode == 2
    assert tuque("cli", "-u", "http://x/", "PING").returncode == 2


def test_a_typed_port_wins_over_the_url_of_the_environment(tuque: Run, port: int) -> None:
    away = f"tuque://127.0.0.1:{free_port()}"
    assert tuque("cli", "PING", TUQUE_URL=f"tuque://127.0.0.1:{port}").stdout == b"PONG\n"
    assert tuque("cli", "-p", port, "PING", TUQUE_URL=away).stdout == b"PONG\n"


def test_password_socket_url_and_shutdown(tuque: Run, tmp_path: Path) -> None:
    path = tmp_path / "s"
    flags = ("--requirepass", "hush", "--unixsocket", str(path))
    port = free_port()  # with a socket, 0 means none
    with RealServer(tmp_path, *flags, port=port) as node:
        refused = tuque("cli", "-p", port, "QLEN", "q")
        assert refused.returncode == 1 and b"TUQUE_PASSWORD" in refused.stderr
        wrong = tuque("cli", "-p", port, "-a", "no", "QLEN", "q")
        assert wrong.returncode == 1 and b"refused the password" in wrong.stderr
        for command in (("queues",), ("dead", "list", "q.dead")):
            wrong = tuque(*command, "-p", port, "-a", "no")
            said = b"Error: ERR invalid password\nhint: check --user and -a, or TUQUE_URL and "
            assert wrong.returncode == 1 and wrong.stderr.startswith(said)
        for options, env in (
            (("-p", port, "-a", "hush"), {}),
            (("-p", port), {"TUQUE_PASSWORD": "hush"}),
            (("-u", f"tuque://:hush@127.0.0.1:{port}/"), {}),
            (("-s", path, "-a", "hush"), {}),
        ):
            done = tuque("cli", *map(str, options), "QLEN", "q", **env)
            assert (done.returncode, done.stdout) == (0, b"0\n"), done.stderr
        assert tuque("cli", "-p", port, "-a", "hush", "SHUTDOWN").returncode == 0
        assert node.wait() == 0


def test_lines_from_a_pipe_run_in_order(tuque: Run, port: int) -> None:
    script = b'ADDJOB pipe "a b" 0\nQLEN pipe\n\n3 PING\nhelp QLEN\nexit\nQLEN never\n'
    lines = tuque("cli", "-p", port, stdin=script).stdout.splitlines()
    assert lines[0].startswith(b"D-") and lines[1:5] == [b"1", b"PONG", b"PONG", b"PONG"]
    assert lines[5] == b"QLEN queue" and len(lines) == 8


@pytest.mark.parametrize("last", [b"NOSUCH", b'PING "open'])
def test_the_last_line_of_a_pipe_gives_the_status(tuque: Run, port: int, last: bytes) -> None:
    assert tuque("cli", "-p", port, stdin=b"PING\n" + last + b"\n").returncode == 1
    assert tuque("cli", "-p", port, stdin=last + b"\nPING\n").returncode == 0


def test_bench_takes_every_job_all_the_way(tuque: Run, port: int) -> None:
    done = tuque("bench", "-p", port, "-n", "2000", "-c", "4", "-P", "16", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [result["stages"][stage]["jobs"] for stage in ("add", "get", "ack")] == [2000] * 3
    told = tuque("bench", "-p", port, "-n", "1200", "-c", "3", "-P", "7")
    table = told.stdout
    assert table.startswith(b"1,200 jobs of 100 bytes, 3 connections, 7 deep") and b"p99" in table
    assert b"one Python process" in table and told.stderr == b""
    assert [line.split()[1] for line in table.splitlines()[3:6]] == [b"1,200"] * 3
    assert tuque("cli", "-p", port, "QLEN", "tuque-bench").stdout == b"0\n"


def test_bench_ends_with_the_first_refusal(tuque: Run, port: int) -> None:
    tuque("cli", "-p", port, "PAUSE", "shut", "in")
    done = tuque("bench", "-p", port, "-n", "100", "-q", "shut")
    assert done.returncode == 1 and b"Error: the node answered: PAUSED" in done.stderr
    tuque("cli", "-p", port, "PAUSE", "shut", "none")
    done = tuque("bench", "-p", port, "-n", "1", "-a", "wrong")
    assert done.returncode == 1 and b"Error: the node answered: " in done.stderr


def test_bench_without_a_node_says_so(tuque: Run) -> None:
    done = tuque("bench", "-p", free_port(), "-n", "1")
    assert done.returncode == 1 and b"Could not connect" in done.stderr


def test_a_prompt_survives_a_restart_of_the_node(tmp_path: Path) -> None:
    with RealServer(tmp_path) as node:
        link = Link(Target(port=node.port))
        assert link.call([b"PING"]) == "PONG"
        node.end()
        with pytest.raises(LinkError, match="Could not connect"):
            link.call([b"PING"])
        node.start()
        assert link.call([b"PING"]) == "PONG"
        link.close()


def test_a_node_that_goes_while_it_answers_leaves_the_outcome_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = Link(Target(port=server.getsockname()[1]))
        link.wire = Wire(socket.create_connection(server.getsockname()))
        theirs, _ = server.accept()
        theirs.sendall(b"$10\r\nhalf")
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(LinkError, match="closed the connection") as info, theirs:
            link.call([b"ADDJOB", b"q", b"b", b"0"])
        assert info.value.sent
