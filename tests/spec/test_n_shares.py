"""N11: what tenants share, and that none uses it up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import Err, encode
from tuque.core.node.tables import bare_size
from tuque.core.tables.staged import APP_BYTES, App
from tuque.core.tables.topics import Subscription
from world import World
from world_wires import Wire


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    made = make_world()
    root = made.wire()
    for name in ("ann", "bob"):
        words = ("ACL", "SETUSER", name, "on", "nopass", "+@all", "~*", f"tenant:{name}s")
        assert root(*words) == b"OK"
    return made


def pass_s(world: World, seconds: int) -> None:
    world.pass_ms(seconds * 1_000)


def done(wire: Wire, result: str) -> bytes:
    """The id of a job that ended with that result."""
    id = wire("ADDJOB", "q", "x", 0, "ATTEMPTS", 1, "KEEP", 600)
    assert isinstance(id, bytes)
    wire("GETJOB", "FROM", "q")
    run = wire("START", id)
    assert isinstance(run, list)
    assert wire("DONE", id, run[0][0], "RESULT", result) == 1
    return id


def dead(wire: Wire, detail: str) -> bytes:
    """The id of a dead letter with that detail."""
    id = wire("ADDJOB", "q", "x", 0, "ATTEMPTS", 1)
    assert isinstance(id, bytes)
    wire("GETJOB", "FROM", "q")
    run = wire("START", id)
    assert isinstance(run, list)
    wire("FAIL", id, run[0][0], "DETAIL", detail)
    return id


def state(wire: Wire, id: bytes) -> object:
    said = wire("RESULT", id)
    return said if isinstance(said, Err) else b"kept"


def test_results_of_others_stay(world: World) -> None:
    """N11.7 Where the bound of all outcomes (W7.4) or of all dead letters (W6.6) is reached, and a
    tenant has more than a quarter of it, the oldest of the tenant that has most go first.
    """
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    root("CONFIG", "SET", "results-max-bytes", 100_000)
    first = done(ann, "a" * 1_000)
    flood = [done(bob, "b" * 9_000) for _ in range(30)]
    assert state(ann, first) == b"kept"
    held = [state(bob, id) == b"kept" for id in flood]
    assert held == sorted(held) and 8 <= sum(held) <= 11
    last = [done(ann, "a" * 1_000) for _ in range(5)]
    assert {state(ann, id) for id in (first, *last)} == {b"kept"}


def test_letters_of_others_stay(world: World) -> None:
    """N11.7 the oldest of the tenant that has most go first."""
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    root("CONFIG", "SET", "dead-max-bytes", 100_000)
    first = dead(ann, "a" * 1_000)
    flood = [dead(bob, "b" * 9_000) for _ in range(30)]
    rows = ann("DEAD", "LIST", "q.dead")
    assert isinstance(rows, list) and [row[0] for row in rows[1]] == [first]
    rows = bob("DEAD", "LIST", "q.dead", "COUNT", 100)
    assert isinstance(rows, list)
    left = [row[0] for row in rows[1]]
    assert left == flood[-len(left) :] and 8 <= len(left) <= 11
    bob("DEAD", "PURGE", "q.dead", "ALL")
    assert list(world.n.life.shares.by_name) == [b"anns"], "nothing of it is left"


def test_what_is_kept_counts(world: World) -> None:
    """N11.2 bytes are those of their bodies, of what is staged, of kept outcomes with their
    results, and of what is known of the work on its jobs, dead letters among them: headers,
    progress, reasons and details, and some 330 for each job that has any of it.
    """
    root, ann = world.wire(), world.user("ann")
    root("ACL", "SETUSER", "ann", "quota:bytes=5000")
    done(ann, "r" * 5_000)
    assert "QUOTA tenant 'anns' has jobs of 5" in str(ann("ADDJOB", "q", "x", 0))
    pass_s(world, 601)
    dead(ann, "d" * 4_000)
    assert "QUOTA" in str(ann("ADDJOB", "q", "x" * 1_000, 0))
    ann("DEAD", "PURGE", "q.dead", "ALL")
    assert isinstance(ann("STAGE", "t", "a", 9000, "q", "x" * 4_900), int)
    assert "QUOTA" in str(ann("STAGE", "t", "a", 9000, "q", "x"))
    pass_s(world, 10)
    assert isinstance(ann("ADDJOB", "q", "x", 0), bytes)


def test_groups_of_leases(world: World) -> None:
    """N11.8 Of groups of leases (Y1.4), tubes (T2.7), subscriptions to topics (T60.2), settings
    of queues (T74.5), apps of PUBLISH (Z2.9) and keys of DEDUPE (Z4.6) a tenant has at most a
    quarter of what the node may have and others leave; tubes and keys are refused as there,
    with the tenant's figures.
    """
    ann, bob = world.user("ann"), world.user("bob")
    for i in range(250):
        assert isinstance(ann("LEASE", "OPEN", f"g{i}", "me", "q"), int)
    text = "QUOTA tenant 'anns' has 250 groups of leases, a quarter of what others leave"
    assert text in str(ann("LEASE", "OPEN", "more", "me", "q"))
    assert isinstance(ann("LEASE", "OPEN", "g3", "other", "q"), int), "it is there"
    assert isinstance(bob("LEASE", "OPEN", "more", "me", "q"), int)


def test_released_groups_of_a_tenant(world: World) -> None:
    """N11.8 An unused group of leases of the tenant makes room as in Y1.4, at once if it was
    released last (Y5.4).
    """
    ann, bob = world.user("ann"), world.user("bob")
    other = bob("LEASE", "OPEN", "bobs", "me", "q")
    assert bob("LEASE", "RELEASE", "bobs", int(str(other))) == 0
    epochs = [ann("LEASE", "OPEN", f"g{i}", "me", "q") for i in range(250)]
    assert "LEASE RELEASE those" in str(ann("LEASE", "OPEN", "more", "me", "q"))
    assert ann("LEASE", "RELEASE", "g7", int(str(epochs[7]))) == 0
    assert isinstance(ann("LEASE", "OPEN", "more", "me", "q"), int)
    assert "NOGROUP" in str(ann("LEASE", "INFO", "g7"))
    assert "NOGROUP" not in str(bob("LEASE", "INFO", "bobs")), "of another tenant"


def test_tubes(world: World) -> None:
    """N11.8 tubes (T2.7)"""
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    root("CONFIG", "SET", "tubes-max", 20)
    for i in range(5):
        assert ann("TUBE", "CREATE", f"t{i}", "fifo") == b"OK"
    assert "5 tubes exist, and tubes-max is 5" in str(ann("TUBE", "CREATE", "t", "fifo"))
    assert ann("TUBE", "DROP", "t0") == b"OK"
    assert ann("TUBE", "CREATE", "t", "fifo") == b"OK"
    assert bob("TUBE", "CREATE", "t", "fifo") == b"OK"


def test_keys(world: World) -> None:
    """N11.8 keys of DEDUPE (Z4.6)"""
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    root("CONFIG", "SET", "dedupe-max-keys", 20)
    for i in range(5):
        said = ann("ADDJOB", "q", "x", 0, "DEDUPE", f"k/{i}", "DEDUPETTL", 60_000)
        assert isinstance(said, bytes)
    said = ann("ADDJOB", "q", "x", 0, "DEDUPE", "k", "DEDUPETTL", 60_000)
    assert "OOM this node keeps 5 DEDUPE keys, at most" in str(said)
    assert isinstance(bob("ADDJOB", "q", "x", 0, "DEDUPE", "k"), bytes)
    pass_s(world, 61)
    said = ann("ADDJOB", "q", "x", 0, "DEDUPE", "k", "DEDUPETTL", 60_000)
    assert isinstance(said, bytes)


def test_released_groups_make_room(world: World) -> None:
    """Y5.4 A group that was released last is unused since ever: where there is no room for another
    one, it goes at once (Y1.4).
    """
    root = world.wire()
    epochs = [root("LEASE", "OPEN", f"g{i}", "me", "q") for i in range(1_000)]
    assert "LEASE RELEASE those" in str(root("LEASE", "OPEN", "more", "me", "q"))
    assert root("LEASE", "RELEASE", "g7", int(str(epochs[7]))) == 0
    assert isinstance(root("LEASE", "OPEN", "more", "me", "q"), int)
    assert "NOGROUP" in str(root("LEASE", "INFO", "g7"))


def test_names_of_queues(world: World) -> None:
    """N11.9 A tenant's PAUSE, and what adds jobs to one queue, make no queue if the tenant's queues
    would cost more than a quarter of `maxmemory`, without their jobs
    """
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    assert root("CONFIG", "SET", "maxmemory", "8mb") == b"OK"
    full = b"-QUOTA tenant 'anns' has queues of "
    for word in ("PAUSE", "ADDJOB"):
        for i in range(1_000):
            name = f"{word}{i}" + 9_000 * "p"
            if word == "PAUSE":
                said = ann.say(encode(word, name, "in"))
            else:
                said = ann.say(encode(word, name, "b", 0))
                ann.say(encode("DELJOB", said[1:-2]))
            if said.startswith(b"-"):
                break
        assert said.startswith(full) and said.endswith(b"use fewer names\r\n")
        assert b"and may have 2097152, a quarter of maxmemory" in said
        held = int(world.n.book.owners[b"anns"].queue_bytes)
        assert 2 << 20 >= held > (2 << 20) - 750 - 4 * 9_010
    assert isinstance(bob("ADDJOB", "q" * 9_000, "b", 0), bytes)
    assert ann.say(encode("PAUSE", f"PAUSE0{9_000 * 'p'}", "in")) == b"+in\r\n"  # it is there


def test_names_that_are_waited_for(world: World) -> None:
    """N11.9 Of what bare queues may use (M5.4) a tenant has at most a quarter, as N11.8 counts
    it.

    M5.4 A queue that a GETJOB has made by waiting is bare until it has a job or a pause. Bare
    queues may use an eighth of `maxmemory`
    """
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    assert root("CONFIG", "SET", "maxmemory", "8mb") == b"OK"
    full = b"-QUOTA tenant 'anns' waits for new queues of "
    said, rounds = b"", 0
    before = world.n.counted_bytes()
    while said == b"" and rounds < 100:
        names = [f"{rounds}_{i}" + 900 * "n" for i in range(5)]
        said = world.user("ann").say(encode("GETJOB", "TIMEOUT", 60_000, "FROM", *names))
        rounds += 1
    assert said.startswith(full) and said.endswith(b"wait for fewer names\r\n")
    more = sum(bare_size(f"anns/{name}".encode()) for name in names)
    assert b"and may have 262144, a quarter of what others leave, not %d more" % more in said
    held = int(world.n.book.owners[b"anns"].bare_bytes)
    assert 1 << 18 >= held > (1 << 18) - 5 * (1_200 + 5 * 910)
    assert world.n.counted_bytes() - before < 1 << 18
    assert ann.say(encode("GETJOB", "NOHANG", "FROM", *names)) == b"*-1\r\n"
    assert bob.say(encode("GETJOB", "TIMEOUT", 60_000, "FROM", "q")) == b""
    for i in range(5):  # with jobs they are queues as others are
        assert isinstance(ann("ADDJOB", f"0_{i}" + 900 * "n", "b", 0), bytes)
    assert world.user("ann").say(encode("GETJOB", "TIMEOUT", 60_000, "FROM", *names)) == b""
    assert world.n.bare_bytes == sum(bare_size(name) for name in world.n.bare)


def test_queues_that_nobody_waits_for_make_room(world: World) -> None:
    """M4.1 10 s at level 1, 2 s at level 2 and above, and while bare queues (M5.4) use more than
    half of what they may.
    """
    root = world.wire()
    assert root("CONFIG", "SET", "maxmemory", "8mb") == b"OK"
    wires = []
    while 2 * world.n.bare_bytes <= 1 << 20:
        wires.append(world.wire())
        names = [f"{len(wires)}_{i}" + 900 * "n" for i in range(20)]
        assert wires[-1]("GETJOB", "TIMEOUT", 0, "FROM", *names) is None
    for wire in wires:
        wire.close()
    pass_s(world, 5)
    assert 2 * world.n.bare_bytes <= 1 << 20 and len(world.n.queues) < 20 * len(wires)


def test_workers(world: World) -> None:
    """O11.4 What workers send about themselves uses at most a sixteenth of `maxmemory`, and the
    workers of a tenant at most a quarter of both, as N11.8 counts it: `-OOM workers may use a
    sixteenth of maxmemory, and those of a tenant a quarter of what others leave of that and of
    10000: run fewer, with fewer queues`.
    """
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    assert root("CONFIG", "SET", "maxmemory", "16mb") == b"OK"
    workers = world.server.workers
    queues = [f"{i}{999 * 'q'}" for i in range(8)]
    said: object = b"none"
    count = 0
    while said == b"none":
        count += 1
        said = ann("WORKER", "HERE", f"w{count}", "QUEUES", *queues)
    assert "OOM workers may use a sixteenth of maxmemory" in str(said) and count < 40
    assert (1 << 18) - 10_000 < workers.shares[b"anns"].bytes <= 1 << 18
    assert ann("WORKER", "HERE", "w1", "QUEUES", "q") == b"none", "with less to say"
    assert bob("WORKER", "HERE", "w", "QUEUES", *queues) == b"none"
    for i in range(1, count):
        ann("WORKER", "BYE", f"w{i}")
    bob("WORKER", "BYE", "w")
    assert workers.bytes == 0 and not workers.shares
    assert root("CONFIG", "SET", "maxmemory", "1gb") == b"OK"
    for i in range(2_500):
        assert ann("WORKER", "HERE", f"s{i}") == b"none"
    assert "OOM" in str(ann("WORKER", "HERE", "more"))
    assert ann("WORKER", "HERE", "s7") == b"none" and bob("WORKER", "HERE", "s") == b"none"


def test_keys_of_rates(world: World) -> None:
    """N11.9 Its tubes count with their keys, limits and rates; at that quarter they take no
    task.
    """
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    assert ann("TUBE", "CREATE", "t", "tasks") == b"OK"
    assert bob("TUBE", "CREATE", "t", "tasks") == b"OK"
    root("CONFIG", "SET", "maxmemory", "1mb")
    world.n.base_bytes = 0
    full = "QUOTA tenant 'anns' has queues of"
    said: object = b""
    keys = 0
    while isinstance(said, bytes) and keys < 1_000:
        said = ann("ADDJOB", "t", "b", 0, "RATE", f"{keys:0250d}", "500/h")
        if isinstance(said, bytes):
            ann("GETJOB", "FROM", "t")
            ann("ACKJOB", said)
            keys += 1
    assert full in str(said), said
    owner = world.n.book.owners[b"anns"]
    assert 1 << 18 <= owner.queue_bytes + owner.tube_bytes < (1 << 18) + 3_000, "no more than a job"
    assert isinstance(bob("ADDJOB", "t", "b", 0), bytes)
    pass_s(world, 3_601)  # the buckets are full, and their keys go
    assert isinstance(ann("ADDJOB", "t", "b", 0), bytes)


def started(wire: Wire, *words: object) -> tuple[bytes, bytes]:
    """A job at work, and its run."""
    id = wire("ADDJOB", "q", "x", 0, *words)
    assert isinstance(id, bytes)
    wire("GETJOB", "FROM", "q")
    run = wire("START", id)
    assert isinstance(run, list)
    return id, run[0][0]


def bytes_of(wire: Wire) -> int:
    """The bytes that INFO shows the tenant."""
    text = wire("INFO", "tenants")
    assert isinstance(text, bytes)
    return int(text.split(b"bytes=")[1].split(b",")[0].split(b"/")[0])


def test_what_is_known_of_open_jobs_counts(world: World) -> None:
    """N11.2 what is known of the work on its jobs, dead letters among them: headers, progress,
    reasons and details, and some 330 for each job that has any of it.
    """
    ann = world.user("ann")
    before = bytes_of(ann)
    id, run = started(ann, "HEADERS", 1, "h", "v" * 1_000)
    assert 1_330 < bytes_of(ann) - before < 1_500
    assert ann("PROGRESS", id, run, "p" * 2_000) == b"OK"
    assert 3_330 < bytes_of(ann) - before < 3_500
    ann("CANCEL", "REASON", "c" * 500, id)
    assert 3_830 < bytes_of(ann) - before < 4_000
    ann("DELJOB", id)
    assert bytes_of(ann) == before
    id, run = started(ann, "BACKOFF", 100, 100, 0)
    ann("FAIL", id, run, "REASON", "r" * 500, "DETAIL", "d" * 5_000)
    assert 6_330 < bytes_of(ann) - before < 7_000, "with the first reason, and of the attempt"


def test_failures_within_the_quota(world: World) -> None:
    """N11.10 Of a FAIL that would make more bytes the detail reads `(dropped: its tenant has as
    many bytes as it may)`, and the reason is cut to 256 bytes.
    """
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    root("ACL", "SETUSER", "ann", "quota:bytes=20000")
    for wire in (bob, ann):
        work = [started(wire, "BACKOFF", 100, 100, 0) for _ in range(9)]
        for id, run in work:
            said = wire("FAIL", id, run, "DELAY", 100, "REASON", "r" * 2_000, "DETAIL", "d" * 4_000)
            assert said == [b"retry", 100_000], said
    ids = [id for id, run in work]
    assert bytes_of(ann) < 28_000 < 70_000 < bytes_of(bob)
    last = ann("RESULT", ids[8])
    assert isinstance(last, list)
    assert b"(dropped: its tenant has as many bytes as it may)" in last and b"r" * 256 in last
    first = ann("RESULT", ids[0])
    assert isinstance(first, list) and b"d" * 4_000 in first


def test_progress_within_the_quota(world: World) -> None:
    """N11.10 PROGRESS counts as WORKING, and a CANCEL keeps 256 bytes of its REASON."""
    root, ann = world.wire(), world.user("ann")
    root("ACL", "SETUSER", "ann", "quota:bytes=4000")
    id, run = started(ann)
    assert ann("PROGRESS", id, run, "p" * 3_000) == b"OK"
    assert ann("PROGRESS", id, run, "q" * 4_000) == b"OK"
    assert ann("PROGRESS", id, run, "r" * 2_900) == b"OK"
    held = bytes_of(ann)
    ann("CANCEL", "REASON", "c" * 2_000, id)
    assert bytes_of(ann) == held + 256
    text = "QUOTA tenant 'anns' has jobs of"
    assert text in str(ann("UPDATEJOB", id, "HEADERS", 1, "h", "v" * 1_000))


def test_apps(world: World) -> None:
    """N11.8 apps of PUBLISH (Z2.9)."""
    ann, bob = world.user("ann"), world.user("bob")
    assert {ann("PUBLISH", f"a{i}", 1, "t") for i in range(2_500)} == {0}
    text = "this node keeps the versions of 2500 apps"
    assert text in str(ann("PUBLISH", "more", 1, "t"))
    assert ann("PUBLISH", "a3", 2, "t") == 0, "it is there"
    assert bob("PUBLISH", "more", 1, "t") == 0


def test_memory_of_keys(world: World) -> None:
    """N11.8 Its keys of DEDUPE take at most a quarter of `maxmemory`."""
    ann, bob = world.user("ann"), world.user("bob")
    n = world.n
    n.limits.memory_bytes = 4_000_000_000
    for i in range(3):
        id = ann("ADDJOB", "q", "x", 0, "DEDUPE", "k" * 200 + str(i))
        ann("ACKJOB", id)
    used = 3 * 310 + n.keys.text_of[b"anns"]
    n.limits.memory_bytes = 4 * used
    n.base_bytes = -n.used_bytes() + n.base_bytes
    assert "OOM" in str(ann("ADDJOB", "q", "x", 0, "DEDUPE", "more"))
    assert isinstance(bob("ADDJOB", "q", "x", 0, "DEDUPE", "more"), bytes)


def test_longer_letters_need_room(world: World) -> None:
    """M2.4 A DEADLETTER with a BODY longer than the job's is refused at level 3."""
    root = world.wire()
    id = root("ADDJOB", "q", "xx", 0)
    world.n.limits.memory_bytes = world.n.used_bytes() - 1
    assert "OOM" in str(root("DEADLETTER", id, "d", "BODY", "xxx"))
    assert isinstance(root("DEADLETTER", id, "d", "BODY", "yy"), bytes)


def make_tenants(world: World, count: int) -> list[Wire]:
    """A user of each of so many tenants."""
    root = world.wire()
    for i in range(count):
        words = ("ACL", "SETUSER", f"u{i}", "on", "nopass", "+@all", "~*", f"tenant:t{i}")
        assert root(*words) == b"OK"
    return [world.user(f"u{i}") for i in range(count)]


Make = Callable[[int], tuple[object, ...]]
MAKES: dict[str, Make] = {
    "tubes": lambda i: ("TUBE", "CREATE", f"t{i}", "fifo"),
    "keys": lambda i: ("ADDJOB", "q", "x", 0, "DEDUPE", f"k{i}"),
    "groups": lambda i: ("LEASE", "OPEN", f"g{i}", "me", "q"),
    "topics": lambda i: ("TOPIC", "SUBSCRIBE", f"t{i}", "q"),
    "apps": lambda i: ("PUBLISH", f"a{i}", 1, "t"),
    "workers": lambda i: ("WORKER", "HERE", f"w{i}"),
}


@pytest.mark.parametrize(("what", "whole"), [("tubes", 100), ("keys", 100), ("groups", 1_000)])
def test_tenants_leave_room(make_world: Callable[..., World], what: str, whole: int) -> None:
    """N11.8 So one tenant alone has a quarter, and the next ones find room, until nine tenths
    are taken; the last tenth is for users of no tenant.
    """
    world = make_world(tubes_max="100", dedupe_max_keys="100")
    root, users = world.wire(), make_tenants(world, 12)
    made: list[int] = []
    for user in users:
        count = 0
        while not isinstance(user(*MAKES[what](count)), Err):
            count += 1
        made.append(count)
    assert made[0] == whole // 4 and made[4] >= whole // 20, made
    assert sum(made) == whole * 9 // 10
    for i in range(whole // 10):
        assert not isinstance(root(*MAKES[what](i)), Err), i
    assert isinstance(root(*MAKES[what](whole)), Err)


def put_into(world: World, what: str, name: str) -> None:
    """One entry of a table whose size is fixed."""
    n, full = world.n, name.encode()
    if what == "topics":
        n.topics.put(Subscription(full, full + b"q", [], 1, n.node_id, False))
    elif what == "apps":
        n.staging.apps[full] = App(1, n.now_ms)
        n.staging.bytes += APP_BYTES + len(full)
    else:
        hand = world.server.workers.enter(full, n.now_ms)
        assert hand is not None
        world.server.workers.weigh(hand)


@pytest.mark.parametrize("what", ["topics", "apps", "workers"])
def test_tenants_leave_room_in_large_tables(world: World, what: str) -> None:
    """N11.8 So one tenant alone has a quarter, and the next ones find room, until nine tenths
    are taken; the last tenth is for users of no tenant.
    """
    root, users = world.wire(), make_tenants(world, 5)
    whole = 50_000 if what == "topics" else 10_000
    for i in range(whole * 76 // 100):
        put_into(world, what, f"t{i % 4}/{i}")
    make = MAKES[what]
    assert [isinstance(user(*make(1)), Err) for user in users] == [True] * 4 + [False]
    for i in range(whole * 14 // 100 - 1):
        put_into(world, what, f"t{5 + i % 9}/{i}")
    assert isinstance(users[4](*make(2)), Err)
    assert not isinstance(root(*make(2)), Err)


def test_connections_of_tenants(make_world: Callable[..., World]) -> None:
    """N11.4 While less than a quarter of `maxclients` is free, a tenant has no more than N11.8
    allows of other tables.
    """
    world = make_world(maxclients="40")
    make_tenants(world, 2)
    world.wire()
    said: object = b"OK"
    count = 0
    while said == b"OK":
        wire = world.wire()
        said = wire("AUTH", "u0", "x")
        count += 1
    few = "a quarter of what others leave, and few are free: close some"
    assert str(said).endswith(few) and 20 < count < 32
    assert world.wire()("AUTH", "u1", "x") == b"OK"
    assert isinstance(world.wire()("ADDJOB", "q", "b", 0), bytes)
