"""A real server with a journal: crashes, restarts, and what must be there afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from lab import RealServer
from raw_resp import NULL, Wire, encode
from until import until

MakeServer = Callable[..., RealServer]
ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")


def all_ids(wire: Wire) -> set[str]:
    """The ids of all jobs that are not acked."""
    states = ("STATE", "active", "STATE", "queued")
    return {job_id.decode() for job_id in wire("JSCAN", 0, "BUSYLOOP", *states)[1]}


class Producer:
    """Adds and acks jobs in a thread until the server is gone; notes what it was answered."""

    def __init__(self, server: RealServer, name: str) -> None:
        self.wire = server.wire()
        self.name = name
        self.added: list[str] = []
        self.acked: list[str] = []
        self.maybe_acked: list[str] = []  # sent, and the answer did not come
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self) -> None:
        """Eight adds in flight; each ninth command acks an older job."""
        try:
            while True:
                self.wire.raw(encode("ADDJOB", self.name, "b" * 100, 0, "RETRY", 3600) * 8)
                for _ in range(8):
                    self.added.append(self.wire.read().decode())
                oldest = self.added[len(self.acked) * 2]
                self.maybe_acked = [oldest]
                assert self.wire("ACKJOB", oldest) == 1
                self.maybe_acked = []
                self.acked.append(oldest)
        except (EOFError, OSError):
            self.wire.close()


def produce_and_kill(server: RealServer, least: int) -> list[Producer]:
    """Run two producers until each has that many answers, then kill -9."""
    producers = [Producer(server, f"p{i}") for i in range(2)]
    until(lambda: all(len(producer.added) >= least for producer in producers))
    server.kill()
    for producer in producers:
        producer.thread.join(20)
        assert not producer.thread.is_alive()
    return producers


@pytest.mark.parametrize("rounds", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_nothing_acknowledged_is_lost_by_kills(make_server: MakeServer, rounds: int) -> None:
    """J4.2 Under always a reply waits for the sync: kill -9, again and again, loses nothing."""
    server = make_server(*ALWAYS)
    added: set[str] = set()
    acked: set[str] = set()
    unsure: set[str] = set()
    for round in range(rounds):
        for producer in produce_and_kill(server, 100 + 50 * round):
            added.update(producer.added)
            acked.update(producer.acked)
            unsure.update(producer.maybe_acked)
        server.start()
        there = all_ids(server.wire())
        assert added - acked - unsure <= there, "acknowledged adds are lost"
        assert not acked & there, "acknowledged acks are undone"
    wire = server.wire()
    assert wire("QLEN", "p0") + wire("QLEN", "p1") == len(there)
    assert wire("DEBUG", "CHECK") == b"OK"
    assert len(added) >= rounds * 200


@pytest.mark.parametrize("rounds", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_kill_during_rewrites(make_server: MakeServer, rounds: int) -> None:
    """J6.4 After a crash at any step either the old or the new journal is complete."""
    server = make_server(*ALWAYS)
    for _ in range(rounds):
        wire = server.wire()
        before = all_ids(wire)
        assert wire("BGREWRITEAOF") == b"Background append only file rewriting started"
        producers = produce_and_kill(server, 40)
        server.start()
        there = all_ids(server.wire())
        for producer in producers:
            added = set(producer.added) - set(producer.acked) - set(producer.maybe_acked)
            assert added <= there
        assert before <= there


def test_custody_of_at_most_once_jobs(make_server: MakeServer) -> None:
    """J5.4 (D6-D10) Not handed out: queued or delayed as before. Handed out: never again."""
    server = make_server(*ALWAYS)
    wire = server.wire()
    amo = ("RETRY", 0, "REPLICATE", 1)
    handed_out = wire.add("amo", "1", *amo)
    assert wire.get("amo") == [handed_out]
    queued = [wire.add("amo", "2", *amo), wire.add("amo", "3", *amo)]
    delayed = wire.add("amo", "4", *amo, "DELAY", 600)
    dequeued = wire.add("amo", "5", *amo)
    assert wire("DEQUEUE", dequeued) == 1
    server.kill()
    wire = server.start().wire()
    assert wire.show(handed_out)["state"] == b"active"
    assert wire("ENQUEUE", handed_out) == 0
    got = wire.get("amo", count=9)
    assert set(got) >= set(queued)
    assert set(got) <= {*queued, dequeued}
    if dequeued not in got:
        assert wire("ENQUEUE", dequeued) == 1
        assert wire.get("amo") == [dequeued]
    assert wire.show(delayed)["state"] == b"active"
    assert 500_000 < wire.show(delayed)["next-awake-within"] <= 600_000
    server.kill()
    wire = server.start().wire()
    assert wire.get("amo", count=9) == []
    assert wire("QLEN", "amo") == 0


def test_counters_due_times_and_pauses_come_back(make_server: MakeServer) -> None:
    server = make_server(*ALWAYS)
    wire = server.wire()
    job_id = wire.add("q", b"\x00\xff", "RETRY", 100, "TTL", 1000)
    assert wire.get("q") == [job_id]
    assert wire("NACK", job_id) == 1
    assert wire.get("q") == [job_id]
    wire("PAUSE", "paused", "in")
    before = wire.show(job_id)
    server.kill()
    wire = server.start().wire()
    after = wire.show(job_id)
    for name in ("next-requeue-within", "next-awake-within", "ttl"):
        assert before[name] - 30_000 < after.pop(name) <= before.pop(name), name
    assert after == before
    assert wire("PAUSE", "paused", "state") == b"in"
    assert wire("ADDJOB", "paused", "b", 0).startswith("PAUSED")


@pytest.mark.parametrize("journal", ["yes", "no"])
def test_planned_restart(make_server: MakeServer, journal: str) -> None:
    """J9.1 SHUTDOWN REWRITE-AOF: the next start brings the queues back, once.

    Flaw 8: the queued at-most-once job is queued, the one that was out stays out.
    """
    server = make_server("--appendonly", journal)
    wire = server.wire()
    ids = [wire.add("q", str(i)) for i in range(20)]
    amo = wire.add("amo", "b", "RETRY", 0, "REPLICATE", 1)
    out = wire.add("out", "b", "RETRY", 0, "REPLICATE", 1)
    assert wire.get("out") == [out]
    assert wire.get("q", count=5) == ids[:5]
    assert wire("ACKJOB", *ids[:2]) == 2
    wire.send("SHUTDOWN", "REWRITE-AOF")
    assert wire.read_to_end() == b""
    assert server.wait() == 0
    wire = server.start().wire()
    assert wire.get("q", count=99) == ids[5:]
    assert wire.get("amo") == [amo]
    assert wire.get("out") == [] and wire.show(out)["state"] == b"active"
    assert {wire.show(job_id)["state"] for job_id in ids[2:5]} == {b"active"}
    assert wire.show(ids[0]) == {}
    if journal == "no":
        server.kill()
        assert all_ids(server.start().wire()) == set()


def test_shutdown_and_sigterm_end_in_order(make_server: MakeServer) -> None:
    server = make_server("--appendonly", "yes", "--appendfsync", "no")
    wire = server.wire()
    ids = {wire.add("q") for _ in range(50)}
    waiting = server.wire()
    waiting.send("GETJOB", "FROM", "nothing")
    server.signal(15)
    assert server.wait() == 0
    assert waiting.read_to_end().startswith(b"-LEAVING ")
    wire = server.start().wire()
    assert all_ids(wire) == ids
    wire.send("SHUTDOWN")
    assert wire.read_to_end() == b""
    assert server.wait() == 0
    assert all_ids(server.start().wire()) == ids


def test_a_torn_end_is_cut(make_server: MakeServer) -> None:
    server = make_server(*ALWAYS)
    wire = server.wire()
    ids = [wire.add("q") for _ in range(10)]
    server.kill()
    segments = sorted((server.directory / "journal").glob("*.seg*")) or sorted(
        path for path in (server.directory / "journal").iterdir() if path.stat().st_size > 1000
    )
    with segments[-1].open("r+b") as file:
        file.truncate(segments[-1].stat().st_size - 3)
    wire = server.start().wire()
    assert wire.get("q", count=99) == ids[:9]
    assert "cut" in server.log() or "torn" in server.log()
    assert wire("GETJOB", "NOHANG", "FROM", "q") is NULL


def test_journal_turned_on_and_off_at_run_time(make_server: MakeServer) -> None:
    server = make_server("--appendfsync", "always")
    wire = server.wire()
    first = wire.add("q")
    assert wire("CONFIG", "SET", "appendonly", "yes") == b"OK"
    second = wire.add("q")
    server.kill()
    wire = server.start("--appendonly", "yes").wire()
    assert all_ids(wire) == {first, second}
    assert wire("CONFIG", "SET", "appendonly", "no") == b"OK"
    wire.add("q")


def test_the_journal_is_switched_on_in_the_background(make_server: MakeServer) -> None:
    """J6.5 Meanwhile [...] replies that wait for a sync wait for the snapshot, and a stop finishes
    it first.
    """
    server = make_server("--appendfsync", "always")
    wire, adding = server.wire(), server.wire()
    for _ in range(20):
        wire.raw(encode("ADDJOB", "q", "b" * 100, 0) * 1000)
        for _ in range(1000):
            assert wire.read().startswith(b"D-")
    wire.raw(encode("CONFIG", "SET", "appendonly", "yes") + encode("INFO", "persistence"))
    assert wire.read() == b"OK"
    assert b"aof_state:wait-rewrite" in wire.read()
    last = adding.add("last")  # answered when it is on the disk, and all the others with it
    assert wire.info("persistence")["aof_state"] == "on"
    server.kill()
    wire = server.start("--appendonly", "yes").wire()
    assert (wire("QLEN", "q"), wire.get("last")) == (20_000, [last])
    assert wire("CONFIG", "SET", "appendonly", "no") == b"OK"
    wire.raw(encode("CONFIG", "SET", "appendonly", "yes") + encode("SHUTDOWN"))
    assert wire.read() == b"OK"
    assert wire.read_to_end() == b""
    assert server.wait() == 0
    assert server.start("--appendonly", "yes").wire()("QLEN", "q") == 20_000


def test_damage_in_a_journal_stops_the_start(make_server: MakeServer) -> None:
    """J5.2 Damage anywhere else stops the start with a text that names the file, the offset and the
    command that repairs it.
    """
    server = make_server(*ALWAYS)
    wire = server.wire()
    for i in range(20):
        wire.add("q", str(i))
    (segment,) = (server.directory / "journal").glob("*.log")
    server.kill()
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with pytest.raises(AssertionError):
        server.start()
    assert "is damaged at offset" in server.log() and "tuque journal repair" in server.log()
    assert segment.read_bytes() == bytes(data)
