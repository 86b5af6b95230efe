"""A real server that can't start, or whose disk fails: a clear text, and nothing lost."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import RealServer, run_server
from until import until

MakeServer = Callable[..., RealServer]


def last_line(text: str) -> str:
    """The line that says what is wrong; there must be no traceback."""
    assert "Traceback" not in text, text
    return text.strip().splitlines()[-1]


def test_port_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, text = run_server(tmp_path, "--port", port)
    assert status == 1
    line = last_line(text)
    assert f"127.0.0.1:{port}" in line
    assert "choose another --port" in line


def test_a_directory_that_everybody_can_write(tmp_path: Path) -> None:
    """C1.5: the start is refused when `dir` can be written by everybody on this machine"""
    there = tmp_path / "open"
    there.mkdir()
    there.chmod(0o777)
    status, text = run_server(there, "--port", 0)
    assert status == 1
    assert f"`chmod o-w {there}`" in last_line(text)


def test_a_configuration_that_everybody_can_read(tmp_path: Path) -> None:
    """C1.6 The server logs a warning if a configuration file with a password, a
    `cluster-secret-file` or an `iproto-users-file` is world-readable."""
    conf = tmp_path / "t.toml"
    conf.write_text('requirepass = "a password of 24 bytes.."\n')
    conf.chmod(0o644)
    with socket.create_server(("127.0.0.1", 0)) as taken:  # so that it ends
        status, text = run_server(tmp_path, str(conf), "--port", taken.getsockname()[1])
    assert status == 1
    assert f" W the configuration file {conf} has passwords" in text


def test_files_of_a_server_are_its_own(make_server: MakeServer) -> None:
    """C1.6 Only the server's user can read the files that the server creates."""
    server = make_server("--appendonly", "yes", "--events", "yes")
    server.wire().add("q")
    server.end()
    written = [path for path in server.directory.rglob("*") if path != server.log_path]
    assert any(path.is_file() for path in written)
    for path in written:
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_file_in_the_place_of_the_directory(tmp_path: Path) -> None:
    there = tmp_path / "file"
    there.write_text("x")
    status, text = run_server(there, "--port", 0)
    assert status == 1
    assert str(there) in last_line(text)


@pytest.mark.parametrize("name", ["journal", "events", "nodes.conf"])
def test_something_else_in_the_place_of_what_it_keeps(tmp_path: Path, name: str) -> None:
    if name == "nodes.conf":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("x")
    status, text = run_server(tmp_path, "--port", 0, "--appendonly", "yes", "--events", "yes")
    assert status == 1
    assert str(tmp_path) in last_line(text)
    assert name in last_line(text)


def test_unwritable_directory(tmp_path: Path) -> None:
    """As root nothing is unwritable: there a read-only mount stands in."""
    if os.geteuid() == 0:
        mounted = mount(tmp_path, "-o", "ro")
    else:
        tmp_path.chmod(0o555)
        mounted = True
    if not mounted:
        pytest.skip("mounting is not allowed here")
    try:
        status, text = run_server(tmp_path, "--port", 0)
    finally:
        tmp_path.chmod(0o755) if os.geteuid() else unmount(tmp_path)
    assert status == 1
    assert str(tmp_path) in last_line(text)
    assert "a directory this user can write" in last_line(text)


def mount(where: Path, *options: str) -> bool:
    """Mount a memory file system, where this process may."""
    command = ["mount", "-t", "tmpfs", *options, "tuque-test", str(where)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def unmount(where: Path) -> None:
    """Undo `mount`."""
    subprocess.run(["umount", "-l", str(where)], check=True)


@pytest.mark.parametrize("journal", ["yes", "no"])
def test_second_server_on_one_directory(make_server: MakeServer, journal: str) -> None:
    server = make_server("--appendonly", journal)
    wire = server.wire()
    job_id = wire.add("q")
    status, text = run_server(server.directory, "--port", 0, "--appendonly", journal)
    assert status == 1
    line = last_line(text)
    assert str(server.directory) in line
    assert "in use" in line or "another" in line
    assert wire.get("q") == [job_id]
    server.kill()  # a lock does not outlive the process
    server.start()


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("port", "77110", "0 .. 65535"),
        ("maxclients", "0", "1"),
        ("appendfsync", "sometimes", "always"),
        ("maxmemory", "12parsecs", "mb"),
        ("max-body-bytes", "1gb", "512"),
        ("bind", "not an address", ""),
        ("appendonly", "maybe", "yes"),
        ("nosuchoption", "1", ""),
    ],
)
def test_bad_config_value(tmp_path: Path, key: str, value: str, allowed: str) -> None:
    """The error names key, value and what is allowed."""
    status, text = run_server(tmp_path, "--set", f"{key}={value}")
    assert status != 0
    assert "Traceback" not in text
    assert key in text
    if key != "nosuchoption":
        assert f"'{value}'" in text
    if allowed:
        assert allowed in text.replace("..", " .. ").replace("  ", " ") or allowed in text
    config = tmp_path / "tuque.toml"
    config.write_text(f'{key.replace("-", "_")} = "{value}"\n')
    status, text = run_server(tmp_path, str(config))
    assert status != 0
    assert key in text.replace("_", "-")
    assert "Traceback" not in text


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB, where this process may make one."""
    where = tmp_path / "disk"
    where.mkdir()
    if not mount(where, "-o", "size=4m,mode=755"):
        pytest.skip("mounting is not allowed here")
    yield where
    unmount(where)


def fill_until_refused(server: RealServer) -> tuple[list[str], str]:
    """Add jobs until the server refuses; their ids and the refusal.

    The one that meets the fault is not answered, its connection is closed: the job is in
    memory, and whether it will be on the disk nobody knows.
    """
    ids: list[str] = []
    wire = server.wire()
    while len(ids) < 5000:
        try:
            reply = wire("ADDJOB", "q", "x" * 10_000, 0)
        except EOFError:
            wire = server.wire()
            continue
        if not isinstance(reply, bytes):
            return ids, str(reply)
        ids.append(reply.decode())
    raise AssertionError("the disk took everything")


def test_disk_full(small_disk: Path) -> None:
    """J6.1 -MISCONF while the disk is full; well again when there is room; nothing lost."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (2 << 20))
    words = ("--appendonly", "yes", "--disk-free-min", "0", "--disk-reserve", "0")
    server = RealServer(small_disk, "--appendfsync", "always", *words)
    server.log_path = small_disk.parent / "log"
    try:
        ids, error = fill_until_refused(server.start())
        wire = server.wire()
        assert error.startswith("MISCONF Errors writing to the AOF file: No space left")
        assert wire("PING").startswith("MISCONF")
        assert wire("QLEN", "q") >= len(ids)
        assert wire.info("persistence")["aof_last_write_status"] == "err"
        ballast.unlink()
        until(lambda: wire("PING") == b"PONG")
        last = wire.add("after")
        server.kill()
        wire = server.start().wire()
        there = {job_id.decode() for job_id in wire("JSCAN", 0, "BUSYLOOP")[1]}
        assert there >= {*ids, last}
    finally:
        server.end()


def test_a_file_may_grow_no_more(make_server: MakeServer) -> None:
    """The same by RLIMIT_FSIZE, which needs no rights."""
    server = make_server()
    server.end()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))

    server.start("--appendonly", "yes", "--appendfsync", "always", before=limit)
    ids, error = fill_until_refused(server)
    assert error.startswith("MISCONF Errors writing to the AOF file: ")
    assert len(ids) > 50
    server.kill()
    wire = server.start("--appendonly", "yes").wire()
    assert {job_id.decode() for job_id in wire("JSCAN", 0, "BUSYLOOP")[1]} >= set(ids)
