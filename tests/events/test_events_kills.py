"""Servers and writers that are killed, and full disks: what the segments then hold (SPEC E3)."""

from __future__ import annotations

import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import hiredis
import pytest

from lab import RealServer
from until import until

pq = pytest.importorskip("pyarrow.parquet")


class Line:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), 30)
        self.reader = hiredis.Reader()

    def send(self, *words: str | bytes) -> None:
        self.sock.sendall(hiredis.pack_command(words))

    def reply(self) -> object:
        while (found := self.reader.gets()) is False:
            data = self.sock.recv(65_536)
            if not data:
                raise EOFError
            self.reader.feed(data)
        return found

    def call(self, *words: str | bytes) -> object:
        self.send(*words)
        return self.reply()

    def info(self) -> dict[str, str]:
        text = self.call("INFO", "events")
        assert isinstance(text, bytes)
        return dict(row.split(":", 1) for row in text.decode().split("\r\n") if ":" in row)


@contextmanager
def node(directory: Path, *options: str, file_bytes: int = 0) -> Iterator[tuple[int, int]]:
    """A server's port and pid; `file_bytes` limits the size of its files."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    server = RealServer(directory, "--events", "yes", *options)
    try:
        server.start(before=limit if file_bytes else None)
        yield server.port, server.pid
    finally:
        server.signal(signal.SIGTERM)
        server.wait(60)


def rows(directory: Path) -> list[dict[str, object]]:
    """All sealed rows, by number."""
    found = (directory / "events").glob("date=*/[!.]*.parquet")
    all_rows = [row for path in found for row in pq.ParquetFile(path).read().to_pylist()]
    return sorted(all_rows, key=lambda row: row["seq"])


def is_gone(pid: int) -> bool:
    """Whether the process has ended (it is not our child)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rsplit(")", 1)[1].split()[0] == "Z"


def is_another(line: Line, pid: int) -> bool:
    """Whether the node has a writer, and not that one."""
    return int(line.info()["events_writer_pid"]) not in (0, pid)


@pytest.mark.parametrize("rounds", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_killed_writer_loses_and_doubles_nothing(tmp_path: Path, rounds: int) -> None:
    with node(tmp_path) as (port, _):
        line = Line(port)
        for round_ in range(rounds):
            for _ in range(200):
                line.send("ADDJOB", "q", "body", "0")
            for _ in range(200):
                line.reply()
            pid = int(line.info()["events_writer_pid"])
            if round_ == 1:
                until(lambda: int(line.info()["events_written"]) > 0, "show something written")
            os.kill(pid, signal.SIGKILL)
            until(partial(is_another, line, pid), "show another writer")
        assert int(line.info()["events_writer_restarts"]) == rounds
    assert [row["seq"] for row in rows(tmp_path)] == list(range(200 * rounds + 2))


def test_the_writer_does_without_numpy_and_pandas(tmp_path: Path) -> None:
    """pyarrow imports them where they are installed, to look at a list: 50 MB."""
    with node(tmp_path) as (port, _):
        line = Line(port)
        until(lambda: int(line.info()["events_writer_pid"]) > 0, "show the writer")
        line.call("ADDJOB", "q", "x", 0)
        until(lambda: line.info()["events_written"] not in ("0", ""), "show an event in a segment")
        mapped = Path("/proc", line.info()["events_writer_pid"], "maps").read_text()
    assert "pyarrow" in mapped
    assert "pandas" not in mapped and "numpy" not in mapped


@pytest.mark.slow
def test_a_killed_server_leaves_no_writer_and_no_lie(tmp_path: Path) -> None:
    """E3.1, E3.2: after a kill the stream tells of no ack that the journal does not have."""
    before: list[dict[str, object]] = []
    asked: set[str] = set()  # acks whose events may have been lost with the server
    for _ in range(2):
        journal = ("--appendonly", "yes", "--appendfsync", "always")
        with node(tmp_path, *journal) as (port, pid):
            line = Line(port)
            writer = int(line.info()["events_writer_pid"])
            for _ in range(150):
                for _ in range(20):
                    line.send("ADDJOB", "q", "x" * 100, "0")
                line.send("GETJOB", "NOHANG", "COUNT", "20", "FROM", "q")
                for _ in range(20):
                    line.reply()
                jobs = line.reply()
                assert isinstance(jobs, list)
                line.send("ACKJOB", *[job[1] for job in jobs])
                asked.update(job[1].decode() for job in jobs)
                line.reply()
            for _ in range(500):
                line.send("ADDJOB", "q", "x" * 100, "0")
            os.kill(pid, signal.SIGKILL)
            until(lambda: is_gone(writer), "end the writer")  # noqa: B023 - at once
            assert not list((tmp_path / "events").glob(".raw-*"))
            assert not list((tmp_path / "events").glob(".hot-*"))
        found = rows(tmp_path)
        assert [row["seq"] for row in found] == list(range(len(found)))
        assert len(found) - len(before) > 5_000
        with node(tmp_path, *journal) as (port, _):
            line = Line(port)
            ended = {str(row["job_id"]) for row in found if row["event"] == "acked"}
            for row in found:
                if row["event"] == "acked":
                    assert line.call("SHOW", str(row["job_id"])) is None
                elif row["event"] == "added" and row["job_id"] not in ended | asked:
                    assert line.call("SHOW", str(row["job_id"])) is not None
        before = rows(tmp_path)
        assert [row["seq"] for row in before] == list(range(len(before)))
        line = None  # type: ignore[assignment]  # set anew


@pytest.mark.slow  # the server tries for half a minute
def test_a_full_disk_costs_only_counted_events(tmp_path: Path) -> None:
    """E3.3: a file that may not grow: raw files are cut, segments wait, what is lost is counted."""
    with node(tmp_path, "--events-buffer", "1000", file_bytes=40_000) as (port, _):
        line = Line(port)
        for _ in range(60):
            for _ in range(100):
                line.send("ADDJOB", "q", "x", "0")
            for _ in range(100):
                line.reply()
        info = line.info()
        total, dropped = int(info["events_seq"]), int(info["events_dropped"])
        assert total == 6001
    torn = tmp_path / "events"
    until(lambda: not list(torn.glob("date=*/.tmp-*")), "remove the file that no one will finish")
    found = [row["seq"] for row in rows(tmp_path)]
    assert len(set(found)) == len(found)
    assert len(found) <= total + 1 - dropped
