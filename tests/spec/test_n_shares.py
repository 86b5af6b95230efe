"""N11: what tenants share, and that none uses it up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pump_box import PumpBox, as_user, ask
from raw_resp import Err, Wire, encode


@pytest.fixture
def box(tmp_path: Path) -> Iterator[PumpBox]:
    made = PumpBox(tmp_path)
    root = made.connect()
    for name in ("ann", "bob"):
        words = ("ACL", "SETUSER", name, "on", "nopass", "+@all", "~*", f"tenant:{name}s")
        assert ask(made, root, *words) == b"OK"
    now_ms = made.server.system.boot_ns() // 1_000_000
    made.server.clock_offset_ms = int(made.n.now_ms) - now_ms  # time passes here
    yield made
    made.check()
    made.close()


def pass_s(box: PumpBox, seconds: int) -> None:
    box.server.clock_offset_ms += seconds * 1_000
    box.pump.turn(0)
    box.pump.turn(0)


def done(box: PumpBox, wire: Wire, result: str) -> bytes:
    """The id of a job that ended with that result."""
    id = ask(box, wire, "ADDJOB", "q", "x", 0, "ATTEMPTS", 1, "KEEP", 600)
    assert isinstance(id, bytes)
    ask(box, wire, "GETJOB", "FROM", "q")
    run = ask(box, wire, "START", id)
    assert isinstance(run, list)
    assert ask(box, wire, "DONE", id, run[0][0], "RESULT", result) == 1
    return id


def dead(box: PumpBox, wire: Wire, detail: str) -> bytes:
    """The id of a dead letter with that detail."""
    id = ask(box, wire, "ADDJOB", "q", "x", 0, "ATTEMPTS", 1)
    assert isinstance(id, bytes)
    ask(box, wire, "GETJOB", "FROM", "q")
    run = ask(box, wire, "START", id)
    assert isinstance(run, list)
    ask(box, wire, "FAIL", id, run[0][0], "DETAIL", detail)
    return id


def state(box: PumpBox, wire: Wire, id: bytes) -> object:
    said = ask(box, wire, "RESULT", id)
    return said if isinstance(said, Err) else b"kept"


def test_results_of_others_stay(box: PumpBox) -> None:
    """N11.7 Where the bound of all outcomes (W7.4) or of all dead letters (W6.6) is reached, and a
    tenant has more than a quarter of it, the oldest of the tenant that has most go first.
    """
    root, ann, bob = box.connect(), as_user(box, "ann"), as_user(box, "bob")
    ask(box, root, "CONFIG", "SET", "results-max-bytes", 100_000)
    first = done(box, ann, "a" * 1_000)
    flood = [done(box, bob, "b" * 9_000) for _ in range(30)]
    assert state(box, ann, first) == b"kept"
    held = [state(box, bob, id) == b"kept" for id in flood]
    assert held == sorted(held) and 8 <= sum(held) <= 11
    last = [done(box, ann, "a" * 1_000) for _ in range(5)]
    assert {state(box, ann, id) for id in (first, *last)} == {b"kept"}


def test_letters_of_others_stay(box: PumpBox) -> None:
    """N11.7 the oldest of the tenant that has most go first."""
    root, ann, bob = box.connect(), as_user(box, "ann"), as_user(box, "bob")
    ask(box, root, "CONFIG", "SET", "dead-max-bytes", 100_000)
    first = dead(box, ann, "a" * 1_000)
    flood = [dead(box, bob, "b" * 9_000) for _ in range(30)]
    rows = ask(box, ann, "DEAD", "LIST", "q.dead")
    assert isinstance(rows, list) and [row[0] for row in rows[1]] == [first]
    rows = ask(box, bob, "DEAD", "LIST", "q.dead", "COUNT", 100)
    assert isinstance(rows, list)
    left = [row[0] for row in rows[1]]
    assert left == flood[-len(left) :] and 8 <= len(left) <= 11
    ask(box, bob, "DEAD", "PURGE", "q.dead", "ALL")
    assert list(box.n.life.shares.by_name) == [b"anns"], "nothing of it is left"


def test_what_is_kept_counts(box: PumpBox) -> None:
    """N11.2 bytes are those of their bodies, of what is staged, of kept outcomes with their
    results, and of what is known of its dead letters.
    """
    root, ann = box.connect(), as_user(box, "ann")
    ask(box, root, "ACL", "SETUSER", "ann", "quota:bytes=5000")
    done(box, ann, "r" * 5_000)
    assert "QUOTA tenant 'anns' has jobs of 5" in str(ask(box, ann, "ADDJOB", "q", "x", 0))
    pass_s(box, 601)
    dead(box, ann, "d" * 5_000)
    assert "QUOTA" in str(ask(box, ann, "ADDJOB", "q", "x", 0))
    ask(box, ann, "DEAD", "PURGE", "q.dead", "ALL")
    assert isinstance(ask(box, ann, "STAGE", "t", "a", 9000, "q", "x" * 4_900), int)
    assert "QUOTA" in str(ask(box, ann, "STAGE", "t", "a", 9000, "q", "x"))
    pass_s(box, 10)
    assert isinstance(ask(box, ann, "ADDJOB", "q", "x", 0), bytes)


def test_groups_of_leases(box: PumpBox) -> None:
    """N11.8 A tenant's users open no more groups of leases (Y1.4), make no more tubes (T2.7),
    subscribe to no more topics (T60.2) and use no more keys of DEDUPE (Z4.6) than a quarter of what
    the node may have; tubes and keys are refused as there, with the tenant's figures.
    """
    ann, bob = as_user(box, "ann"), as_user(box, "bob")
    for i in range(250):
        assert isinstance(ask(box, ann, "LEASE", "OPEN", f"g{i}", "me", "q"), int)
    text = "QUOTA tenant 'anns' has 250 groups of leases, a quarter of what this node may have"
    assert text in str(ask(box, ann, "LEASE", "OPEN", "more", "me", "q"))
    assert isinstance(ask(box, ann, "LEASE", "OPEN", "g3", "other", "q"), int), "it is there"
    assert isinstance(ask(box, bob, "LEASE", "OPEN", "more", "me", "q"), int)


def test_released_groups_of_a_tenant(box: PumpBox) -> None:
    """N11.8 Before that, an unused group of the tenant makes room as in Y1.4, at once if it was
    released last (Y5.4).
    """
    ann, bob = as_user(box, "ann"), as_user(box, "bob")
    other = ask(box, bob, "LEASE", "OPEN", "bobs", "me", "q")
    assert ask(box, bob, "LEASE", "RELEASE", "bobs", int(str(other))) == 0
    epochs = [ask(box, ann, "LEASE", "OPEN", f"g{i}", "me", "q") for i in range(250)]
    assert "LEASE RELEASE those" in str(ask(box, ann, "LEASE", "OPEN", "more", "me", "q"))
    assert ask(box, ann, "LEASE", "RELEASE", "g7", int(str(epochs[7]))) == 0
    assert isinstance(ask(box, ann, "LEASE", "OPEN", "more", "me", "q"), int)
    assert "NOGROUP" in str(ask(box, ann, "LEASE", "INFO", "g7"))
    assert "NOGROUP" not in str(ask(box, bob, "LEASE", "INFO", "bobs")), "of another tenant"


def test_tubes(box: PumpBox) -> None:
    """N11.8 make no more tubes (T2.7)"""
    root, ann, bob = box.connect(), as_user(box, "ann"), as_user(box, "bob")
    ask(box, root, "CONFIG", "SET", "tubes-max", 20)
    for i in range(5):
        assert ask(box, ann, "TUBE", "CREATE", f"t{i}", "fifo") == b"OK"
    assert "5 tubes exist, and tubes-max is 5" in str(ask(box, ann, "TUBE", "CREATE", "t", "fifo"))
    assert ask(box, bob, "TUBE", "CREATE", "t", "fifo") == b"OK"
    assert ask(box, ann, "TUBE", "DROP", "t0") == b"OK"
    assert ask(box, ann, "TUBE", "CREATE", "t", "fifo") == b"OK"


def test_keys(box: PumpBox) -> None:
    """N11.8 use no more keys of DEDUPE (Z4.6)"""
    root, ann, bob = box.connect(), as_user(box, "ann"), as_user(box, "bob")
    ask(box, root, "CONFIG", "SET", "dedupe-max-keys", 20)
    for i in range(5):
        said = ask(box, ann, "ADDJOB", "q", "x", 0, "DEDUPE", f"k/{i}", "DEDUPETTL", 60_000)
        assert isinstance(said, bytes)
    said = ask(box, ann, "ADDJOB", "q", "x", 0, "DEDUPE", "k", "DEDUPETTL", 60_000)
    assert "OOM this node keeps 5 DEDUPE keys, at most" in str(said)
    assert isinstance(ask(box, bob, "ADDJOB", "q", "x", 0, "DEDUPE", "k"), bytes)
    pass_s(box, 61)
    said = ask(box, ann, "ADDJOB", "q", "x", 0, "DEDUPE", "k", "DEDUPETTL", 60_000)
    assert isinstance(said, bytes)


def test_released_groups_make_room(box: PumpBox) -> None:
    """Y5.4 A group that was released last is unused since ever: where there is no room for another
    one, it goes at once (Y1.4).
    """
    root = box.connect()
    epochs = [ask(box, root, "LEASE", "OPEN", f"g{i}", "me", "q") for i in range(1_000)]
    assert "LEASE RELEASE those" in str(ask(box, root, "LEASE", "OPEN", "more", "me", "q"))
    assert ask(box, root, "LEASE", "RELEASE", "g7", int(str(epochs[7]))) == 0
    assert isinstance(ask(box, root, "LEASE", "OPEN", "more", "me", "q"), int)
    assert "NOGROUP" in str(ask(box, root, "LEASE", "INFO", "g7"))


def test_names_that_are_waited_for(box: PumpBox) -> None:
    """N11.9 A tenant's GETJOB that would wait, and its PAUSE, make no queues if the tenant's queues
    would cost more than a quarter of `maxmemory`, without their jobs
    """
    root, ann, bob = box.connect(), as_user(box, "ann"), as_user(box, "bob")
    assert ask(box, root, "CONFIG", "SET", "maxmemory", "8mb") == b"OK"
    full = b"-QUOTA tenant 'anns' has queues of "
    said, rounds = b"", 0
    while said == b"" and rounds < 20:
        names = [f"{rounds}_{i}" + 900 * "n" for i in range(100)]
        said = box.say(as_user(box, "ann"), encode("GETJOB", "TIMEOUT", 60_000, "FROM", *names))
        rounds += 1
    assert said.startswith(full) and said.endswith(b"wait for fewer names\r\n")
    held = int(box.n.book.owners[b"anns"].queue_bytes)
    assert 2 << 20 >= held > (2 << 20) - 100 * (750 + 4 * 910)
    for i in range(100):
        said = box.say(ann, encode("PAUSE", f"{i}" + 900 * "p", "in"))
        if said.startswith(b"-"):
            break
    assert said.startswith(full)
    assert box.say(ann, encode("GETJOB", "NOHANG", "FROM", *names)) == b"*-1\r\n"
    assert box.say(ann, encode("PAUSE", f"0_0{900 * 'n'}", "in")) == b"+in\r\n"  # it is there
    assert box.say(bob, encode("GETJOB", "TIMEOUT", 60_000, "FROM", "q")) == b""
