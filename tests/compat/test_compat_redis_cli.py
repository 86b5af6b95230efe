"""redis-cli works unmodified: one-shots, scripts on its standard input, --pipe, RESP3."""

from __future__ import annotations

import subprocess

from lab import RealServer
from raw_resp import Wire, encode

NEEDS = "redis-cli"


def cli(server: RealServer, *words: str, stdin: bytes = b"") -> str:
    """Run redis-cli; what it printed."""
    done = subprocess.run(
        ["redis-cli", "-p", str(server.port), *words],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == b""
    return done.stdout.decode()


def test_one_shots(server: RealServer) -> None:
    assert cli(server, "ping") == "PONG\n"
    job_id = cli(server, "addjob", "q", "a body", "0", "retry", "5").strip()
    assert len(job_id) == 40
    assert cli(server, "qlen", "q") == "1\n"
    assert cli(server, "getjob", "from", "q").splitlines() == ["q", job_id, "a body"]
    assert f"id\n{job_id}\nqueue\nq\nstate\nactive\n" in cli(server, "show", job_id)
    assert cli(server, "working", job_id) == "5\n"
    assert cli(server, "ackjob", job_id) == "1\n"
    assert cli(server, "show", job_id) == "\n"
    assert cli(server, "getjob", "nohang", "from", "q") == "\n"
    assert cli(server, "addjob", "q") == ("ERR wrong number of arguments for 'addjob' command\n\n")


def test_types_as_a_person_sees_them(server: RealServer) -> None:
    assert cli(server, "--no-raw", "qlen", "none") == "(integer) 0\n"
    assert cli(server, "--no-raw", "qstat", "none") == "(nil)\n"
    assert cli(server, "--no-raw", "qpeek", "none", "1") == "(empty array)\n"
    assert "(error) ERR unknown command 'nosuch'" in cli(server, "--no-raw", "nosuch")


def test_resp3(server: RealServer) -> None:
    """`-3` greets with HELLO 3; maps are shown as such."""
    assert "1# " in cli(server, "-3", "--no-raw", "config", "get", "maxmemory")
    job_id = cli(server, "-3", "addjob", "q3", "b", "0").strip()
    assert cli(server, "-3", "getjob", "from", "q3").split() == ["q3", job_id, "b"]


def test_session_on_standard_input(server: RealServer) -> None:
    """One connection for several lines, quotes as people write them."""
    out = cli(server, stdin=b'addjob s "two words" 0\nqlen s\nclient getname\nselect 0\nquit\n')
    assert out.splitlines()[1:] == ["1", "", "OK"]
    assert cli(server, "getjob", "from", "s").splitlines()[2] == "two words"


def test_pipe(server: RealServer) -> None:
    """`--pipe` streams commands and ends with an ECHO of its own, which is answered."""
    data = b"".join(encode("ADDJOB", "pipe", f"{i}", 0) for i in range(2000))
    out = subprocess.run(
        ["redis-cli", "-p", str(server.port), "--pipe"],
        input=data,
        capture_output=True,
        timeout=60,
        check=False,
    ).stdout.decode()
    assert "errors: 0, replies: 2000" in out
    assert cli(server, "qlen", "pipe") == "2000\n"


def test_views(server: RealServer) -> None:
    assert "tcp_port:" in cli(server, "info", "server")
    assert "connected_clients:" in cli(server, "info")
    assert f"addr=127.0.0.1:{server.port}" not in cli(server, "client", "list")
    assert cli(server, "config", "set", "slowlog-max-len", "64") == "OK\n"
    assert cli(server, "config", "get", "slowlog-max-len").split() == ["slowlog-max-len", "64"]
    assert int(cli(server, "command", "count")) > 30
    assert cli(server, "latency", "latest").strip() == ""
    assert len(cli(server, "cluster", "myid").strip()) == 40


def test_by_hand_on_a_socket(server: RealServer) -> None:
    """Inline commands, as one types them into nc or telnet."""
    with Wire(server.port) as wire:
        wire.raw(b"ping\r\nADDJOB inline 'a \"b\"' 0\nQLEN inline\n\n\r\nPING 'x y'\nQUIT\n")
        lines = wire.read_to_end().split(b"\r\n")
        assert lines[0] == b"+PONG"
        assert lines[1].startswith(b"+D-")
        assert lines[2:] == [b":1", b"$3", b"x y", b"+OK", b""]
