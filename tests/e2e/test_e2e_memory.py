"""A real server near its memory limit: what is refused, what never is, and how it comes back."""

from __future__ import annotations

from collections.abc import Callable

from lab import RealServer
from raw_resp import Err, Wire
from until import until

OOM = "OOM command not allowed when used memory > 'maxmemory': let jobs end, or raise maxmemory"
BODY = "x" * 20_000
MB = 1 << 20


def used_bytes(wire: Wire) -> int:
    """What the server counts as used."""
    return int(wire.info("memory")["used_memory"])


def fill(wire: Wire, most: int, *options: str | int) -> list[str]:
    """Add jobs until one is refused; the ids."""
    ids: list[str] = []
    while len(ids) < most:
        reply = wire("ADDJOB", "full", BODY, 0, *options)
        if isinstance(reply, Err):
            return ids
        ids.append(reply.decode())
    return ids


def test_levels_and_recovery(make_server: Callable[..., RealServer]) -> None:
    """M2 and C3.5: above 75 % no new copies, above 100 % -OOM; acks and deletes always."""
    server = make_server("--set", "maxmemory=0")
    wire = server.wire()
    limit = used_bytes(wire) + 24 * MB
    assert wire("CONFIG", "SET", "maxmemory", limit) == b"OK"
    ids = fill(wire, 3000)
    assert 10 < len(ids) < 3000
    assert wire("ADDJOB", "full", BODY, 0).startswith(
        "OOM used memory is above 75 % of 'maxmemory'"
    )
    assert used_bytes(wire) > 0.75 * limit

    assert wire("CONFIG", "SET", "maxmemory", int(used_bytes(wire) * 0.9)) == b"OK"
    assert wire("ADDJOB", "full", "b", 0) == OOM
    job_id = wire.get("full")[0]
    assert wire("ENQUEUE", job_id) == OOM
    assert wire("WORKING", job_id) == 300
    assert wire("NACK", job_id) == 1
    assert wire("ACKJOB", job_id) == 1
    assert wire("DELJOB", *ids[1:50]) == 49
    assert wire("FASTACK", *ids[50:100]) == 50
    assert wire("QLEN", "full") == len(ids) - 100
    assert wire("PING") == b"PONG"

    assert wire("DELJOB", *ids) == len(ids) - 100
    assert wire("CONFIG", "SET", "maxmemory", limit) == b"OK"
    assert isinstance(wire("ADDJOB", "full", BODY, 0), bytes)
    assert wire("DEBUG", "CHECK") == b"OK"


def test_delivered_at_most_once_jobs_make_room(make_server: Callable[..., RealServer]) -> None:
    """M3: only what nobody waits for any more is dropped, and it is counted."""
    server = make_server("--set", "maxmemory=0")
    wire = server.wire()
    kept = fill(wire, 100)
    amo = [wire.add("amo", BODY, "RETRY", 0, "REPLICATE", 1) for _ in range(300)]
    waiting = amo[200:]
    assert len(wire.get("amo", count=200)) == 200
    assert wire("CONFIG", "SET", "maxmemory", int(used_bytes(wire) / 0.97)) == b"OK"
    assert wire("PING") == b"PONG"
    left = {id.decode() for id in wire("JSCAN", 0, "BUSYLOOP")[1]}
    assert left.issuperset(kept)
    assert left.issuperset(waiting)
    assert amo[0] not in left
    assert wire("DEBUG", "CHECK") == b"OK"


def test_memory_of_client_buffers_counts(make_server: Callable[..., RealServer]) -> None:
    """M1.1 Used memory holds the buffers of clients."""
    server = make_server()
    wire, slow = server.wire(), server.wire()
    before = used_bytes(wire)
    wire.add("big", "x" * (8 * MB))
    for _ in range(8):
        slow.send("QPEEK", "big", 1)
    until(lambda: used_bytes(wire) > before + 40 * MB)
    slow.close()
    until(lambda: used_bytes(wire) < before + 20 * MB)


def test_a_restart_counts_nothing_twice(make_server: Callable[..., RealServer]) -> None:
    """M1.1 Used memory is what the process holds: jobs with bodies, queues, client buffers, and
    journal and events not yet written, in addition to the memory measured at start.
    """
    server = make_server("--appendonly", "yes")
    wire = server.wire()
    empty = used_bytes(wire)
    for _ in range(20):
        for _ in range(100):
            wire.send("ADDJOB", "q", BODY[:200], 0, "ATTEMPTS", 2, "RETRY", 600, "KEEP", 600)
        for _ in range(100):
            wire.read()
        ids = [job[1] for job in wire("GETJOB", "COUNT", 100, "FROM", "q")]
        wire("START", "WORKER", "w", *ids)
    before = used_bytes(wire) - empty
    assert before > MB
    wire.close()
    server.kill()
    server.start()
    wire = server.wire()
    after = used_bytes(wire) - empty
    assert 0.7 * before < after < 1.5 * before, (empty, before, after)
    wire.close()


def test_limits_that_cannot_be_kept_are_told(make_server: Callable[..., RealServer]) -> None:
    """M1.4 If the process alone uses more than 75 % of `maxmemory` when it starts, the log warns
    that no job will be taken.

    M1.5 `results-max-bytes` and `dead-max-bytes` together are more than 75 % of `maxmemory` when
    it starts.
    """
    low = "bytes of maxmemory: no job will be taken, raise maxmemory"
    kept = "bytes are more than 75 % of maxmemory"
    assert low in make_server("--set", "maxmemory=10mb").log()
    assert kept in make_server("--set", "maxmemory=400mb").log()
    for limit in ("0", "1gb"):
        log = make_server("--set", f"maxmemory={limit}").log()
        assert low not in log and kept not in log
