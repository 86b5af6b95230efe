"""redis-benchmark runs against the server, also with commands of ours."""

from __future__ import annotations

import subprocess

from lab import RealServer
from raw_resp import Wire

NEEDS = "redis-benchmark"


def bench(server: RealServer, *words: str) -> str:
    """Run redis-benchmark; what it printed."""
    done = subprocess.run(
        ["redis-benchmark", "-p", str(server.port), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=100,
        check=True,
    )
    assert b"ERR" not in done.stdout
    return done.stdout.decode()


def test_ping(server: RealServer) -> None:
    """PING inline and as an array, 50 connections."""
    out = bench(server, "-t", "ping", "-n", "3000", "-c", "50", "--csv")
    assert '"PING_INLINE"' in out
    assert '"PING_MBULK"' in out


def test_the_job_cycle(server: RealServer) -> None:
    """Pipelined ADDJOB, then GETJOB."""
    out = bench(server, "-n", "3000", "-c", "20", "-P", "16", "-q", "ADDJOB", "bq", "x" * 100, "0")
    assert "requests per second" in out
    with Wire(server.port) as wire:
        assert wire("QLEN", "bq") >= 3000
        bench(server, "-n", "1000", "-c", "10", "-q", "GETJOB", "NOHANG", "FROM", "bq")
        assert wire("QLEN", "bq") >= 2000
        wire("DEBUG", "FLUSHALL")
