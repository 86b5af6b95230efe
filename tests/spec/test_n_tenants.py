"""N10, N11: tenants and their quotas."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import NULL, Err, encode
from tuque.core.model.job_id import IdMaker, is_genuine, is_marked
from tuque.core.model.stats import tenant_of
from tuque.server.users.users import Account
from tuque.server.users.users_file import WordError, apply_words, line_of
from world import World
from world_wires import Wire


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    made = make_world()
    root = made.wire()
    for line in (
        "ACL SETUSER ann on nopass +@all ~* tenant:shop",
        "ACL SETUSER kim on nopass +@all ~orders.* tenant:shop",
        "ACL SETUSER bob on nopass +@all ~* tenant:bank",
    ):
        assert root(*line.split(" ")) == b"OK"
    return made


def user(*words: str) -> Account:
    account = Account(b"bob")
    apply_words(account, [word.encode() for word in words])
    return account


def test_words_of_tenants() -> None:
    """N10.1 A user with the word `tenant:<name>` is of that tenant; the others are of none."""
    account = user("on", "tenant:shop-1", "quota:jobs=5", "quota:adds=2", "~*")
    assert line_of(account) == b"user bob on tenant:shop-1 quota:adds=2 quota:jobs=5 ~* -@all"
    again = user(*line_of(account).decode().split(" ")[2:])
    assert (again.tenant, again.quotas) == (account.tenant, account.quotas)
    assert account.copy().is_same(account)
    assert (
        line_of(user("tenant:a", "quota:jobs=5", "quota:jobs=0")) == b"user bob off tenant:a -@all"
    )
    assert line_of(user("tenant:a", "quota:jobs=5", "notenant")) == b"user bob off -@all"
    assert line_of(user("tenant:a", "quota:jobs=5", "reset")) == b"user bob off -@all"
    for word in ("tenant:", "tenant:Shop", "tenant:a/b", "tenant:" + 33 * "a"):
        with pytest.raises(WordError, match="a tenant's name has 1 to 32"):
            user(word)
    for word in ("quota:jobs", "quota:jobs=x", "quota:things=1", "quota:jobs=-1"):
        with pytest.raises(WordError, match="quota:connections=N"):
            user("tenant:a", word)
    with pytest.raises(WordError, match="tenant:NAME comes before it"):
        user("quota:jobs=1")
    with pytest.raises(WordError, match="make another user"):
        apply_words(Account(b"default"), [b"tenant:a"])


def test_whose_a_queue_is() -> None:
    """N10.2 The full name of a tenant's queue, tube, group of leases, transaction, app of PUBLISH
    or worker is `<tenant>/<name>`.
    """
    assert tenant_of(b"shop/orders/new") == b"shop"
    for name in (b"orders", b"/orders", b"Shop/orders", 33 * b"a" + b"/q", b"", b"a b/q"):
        assert tenant_of(name) == b""


def test_long_names_of_a_tenant(world: World) -> None:
    """N10.2 so limits on names leave them that much less, and their patterns (N2.3) are compared
    with `<name>`.
    """
    ann = user("on", "tenant:anns", "~a*")
    assert ann.may_see(b"anns/" + b"a" * 1_024)
    assert not ann.may_see(b"anns/" + b"a" * 1_025)
    bob = user("on", "tenant:bobs", "~*")
    assert bob.may_see(b"bobs/" + b"a" * 60_000)
    assert not bob.may_see(b"anns/" + b"a" * 60_000)
    assert (
        world.wire()("ACL", "SETUSER", "eve", "on", "tenant:eves", "nopass", "~*", "+@all") == b"OK"
    )
    eve = world.wire()
    assert eve("AUTH", "eve", "x") == b"OK"
    name = "q" * 1_021
    assert eve("ADDJOB", name, "b", 0).startswith(b"D-")
    assert isinstance(eve("LEASE", "OPEN", "g", "me", name), int)


def test_users_and_tenants_are_shown(world: World) -> None:
    """N3.6 GETUSER has flags, passwords, commands, keys, channels and selectors; of a tenant's
    user also tenant and quotas.
    """
    root = world.wire()
    assert root("ACL", "SETUSER", "ann", "quota:jobs=7") == b"OK"
    fields = root("ACL", "GETUSER", "ann")
    assert isinstance(fields, list)
    assert fields[-4:] == [b"tenant", b"shop", b"quotas", [b"jobs=7"]]
    assert b"allkeys" in fields[1]
    before = world.server.acl.digest()
    assert root("ACL", "SETUSER", "ann", "quota:jobs=8") == b"OK"
    assert world.server.acl.digest() != before


def test_names_of_a_tenant(world: World) -> None:
    """N10.2 its users give and see `<name>`."""
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    assert isinstance(ann("ADDJOB", "q", "of ann", 0), bytes)
    assert isinstance(bob("ADDJOB", "q", "of bob", 0, "DEAD", "grave"), bytes)
    assert root("QLEN", "shop/q") == 1
    assert root("QLEN", "q") == 0
    got = ann("GETJOB", "NOHANG", "FROM", "q")
    assert isinstance(got, list) and isinstance(got[0], list)
    assert (got[0][0], got[0][2]) == (b"q", b"of ann")
    assert ann("GETJOB", "NOHANG", "FROM", "bank/q") == NULL
    waiting = world.user("ann")
    assert waiting.say(encode("GETJOB", "FROM", "q")) == b""
    assert isinstance(root("ADDJOB", "shop/q", "late", 0), bytes)
    assert waiting.hear().startswith(b"*1\r\n*3\r\n$1\r\nq\r\n")


def test_patterns_of_a_tenant(world: World) -> None:
    """N10.2 their patterns (N2.3) are compared with `<name>`."""
    kim = world.user("kim")
    assert isinstance(kim("ADDJOB", "orders.new", "x", 0), bytes)
    said = kim("ADDJOB", "payments", "x", 0)
    text = "NOPERM user 'kim' has no right to the queue 'payments': no pattern of it fits"
    assert said == Err(text)
    assert world.wire()("ACL", "DRYRUN", "kim", "QLEN", "orders.new") == b"OK"
    denied = world.wire()("ACL", "DRYRUN", "kim", "QLEN", "q")
    assert "the queue 'shop/q'" in str(denied)


def test_ids_of_a_tenant(world: World) -> None:
    """N10.3 To a tenant's user the id of a job in a queue of another tenant, or of none, is an id
    that no node knows.
    """
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    ids = [wire("ADDJOB", "q", "x", 0) for wire in (root, ann, bob)]
    assert [bob("SHOW", id) == NULL for id in ids] == [True, True, False]
    assert [bob("ACKJOB", id) for id in ids] == [0, 0, 1]
    many = [ids[0], *ids] * 400
    assert ann("ACKJOB", *many) == 1
    assert root("ACKJOB", *ids) == 1
    made_up = "D-8a8e11a0-7Q5qIANHFzcFbdAAabcdefgh-05a1"
    for asked in (ids[1], made_up.encode()):
        assert isinstance(asked, bytes)
        rows = bob("WAITJOB", 1, asked)
        assert isinstance(rows, list)
        assert [row[0] for row in rows] == [asked]
    body = ids[0]
    assert isinstance(body, bytes)
    held = bob("ADDJOB", "q", "x", 0, "DELAY", 50)
    assert isinstance(held, bytes)
    assert bob("UPDATEJOB", held, "BODY", body) == b"OK"
    assert world.n.jobs[held].body == body  # a body may look like an id


def test_ids_say_whose_they_are() -> None:
    """G6.7 For a tenant's job (N10.2) the last 5 of the 14 are a code over the tenant's name and
    the characters before, so each node can tell whose it is.
    """
    maker = IdMaker(b"c0ffee00" * 5, b"seed", b"key")
    ids = [maker.make(60, 1, b"shop") for _ in range(300)]
    ids += [maker.make(120, 1, b"shop") for _ in range(3)]
    others = [maker.make(60, 1, b"bank") for _ in range(3)] + [maker.make(60, 1) for _ in range(3)]
    assert all(is_marked(id, b"shop") and is_genuine(b"key", id) for id in ids)
    assert not any(is_marked(id, b"shop") for id in others)
    assert len(set(ids + others)) == len(ids) + len(others)


def test_a_user_that_comes_to_another_tenant(world: World) -> None:
    """N10.6 A user that comes to another tenant is another user: its connections are closed
    (N3.5).
    """
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    assert root("ACL", "SETUSER", "ann", "tenant:bank") == b"OK"
    root.hear()
    assert not ann.is_open()
    assert bob.is_open()
    assert isinstance(bob("ADDJOB", "q", "x", 0), bytes)
    assert world.user("ann")("QLEN", "q") == 1
    assert root("ACL", "SETUSER", "ann", "notenant") == b"OK"
    assert world.user("ann")("QLEN", "bank/q") == 1


def test_jobs_and_bytes(world: World) -> None:
    """N11.2 ADDJOB, STAGE, TUBE PUT, SCHEDULE ADD, SCHEDULE RUN, GROUP CREATE, GROUP ADD and
    TOPIC ADD by its users are refused if there would be more.
    """
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    assert root("ACL", "SETUSER", "ann", "quota:jobs=3") == b"OK"
    assert ann("TUBE", "CREATE", "t", "fifo") == b"OK"
    assert isinstance(ann("TUBE", "PUT", "t", "x"), list)
    ids = [ann("ADDJOB", "q", "x", 0) for _ in range(2)]
    text = (
        "QUOTA tenant 'shop' has 3 jobs at this node, and may have 3: let some end, or ask for more"
    )
    for words in (
        ("ADDJOB", "q", "x", 0),
        ("TUBE", "PUT", "t", "x"),
        ("STAGE", "x", "a", 9000, "q", "x"),
    ):
        assert ann(*words) == Err(text)
    assert isinstance(bob("ADDJOB", "q", "x", 0), bytes)
    assert ann("ACKJOB", *ids) == 2
    for _ in range(2):
        assert isinstance(ann("STAGE", "x", "a", 9000, "q", "x"), int)
    assert ann("STAGE", "x", "a", 9000, "q", "x") == Err(text)
    assert ann("PUBLISH", "app", 1, "x", "a") == 2
    assert root("ACL", "SETUSER", "ann", "quota:jobs=0", "quota:bytes=10") == b"OK"
    assert isinstance(ann("ADDJOB", "q", "1234567", 0), bytes)
    text = "has jobs of 10 bytes at this node, and may have 10: let some end, or ask for more"
    assert ann("ADDJOB", "q", "x", 0) == Err(f"QUOTA tenant 'shop' {text}")
    assert isinstance(ann("ADDJOB", "q", "", 0), bytes)


def test_longer_bodies(world: World) -> None:
    """N11.2 so are UPDATEJOB and DEADLETTER with a longer BODY, and UPDATEJOB with longer
    HEADERS, if there would be more bytes.
    """
    root, ann = world.wire(), world.user("ann")
    assert root("ACL", "SETUSER", "ann", "quota:bytes=10", "quota:jobs=1") == b"OK"
    id = ann("ADDJOB", "q", "12345678", 0)
    assert isinstance(id, bytes)
    text = "has jobs of 8 bytes at this node, and may have 10: let some end, or ask for more"
    full = Err(f"QUOTA tenant 'shop' {text}")
    for words in (("UPDATEJOB", id, "BODY", 11 * "x"), ("DEADLETTER", id, "d", "BODY", 11 * "x")):
        assert ann(*words) == full
        assert root("QLEN", "shop/q") == 1
    assert ann("UPDATEJOB", id, "BODY", 10 * "x") == b"OK"
    assert ann("UPDATEJOB", id, "BODY", 10 * "y") == b"OK"
    assert ann("UPDATEJOB", id, "TTL", 300) == b"OK"
    assert isinstance(ann("DEADLETTER", id, "d", "BODY", 9 * "x"), bytes)


def test_the_smallest_number_holds(world: World) -> None:
    """N11.1 of several users' words the smallest number holds, 0 takes a word away."""
    root, ann = world.wire(), world.user("ann")
    root("ACL", "SETUSER", "ann", "quota:jobs=5")
    root("ACL", "SETUSER", "kim", "quota:jobs=1")
    assert isinstance(ann("ADDJOB", "q", "x", 0), bytes)
    assert "may have 1" in str(ann("ADDJOB", "q", "x", 0))
    assert root("ACL", "DELUSER", "kim") == 1
    assert isinstance(ann("ADDJOB", "q", "x", 0), bytes)


def test_adds_in_a_second(world: World) -> None:
    """N11.3 adds are ADDJOB, STAGE, TUBE PUT, SCHEDULE ADD, SCHEDULE RUN, GROUP CREATE, jobs of a
    TOPIC ADD and jobs of schedules (T45.6) in a second; as many as that may come at once.
    """
    root, ann = world.wire(), world.user("ann")
    root("ACL", "SETUSER", "ann", "quota:adds=4")
    said = [ann("ADDJOB", "q", "x", 0) for _ in range(5)]
    assert [isinstance(one, bytes) for one in said] == [True] * 4 + [False]
    assert said[4] == Err("QUOTA tenant 'shop' adds 4 jobs a second at most: try again in 250 ms")
    world.n.now_ms += 250
    assert isinstance(ann("ADDJOB", "q", "x", 0), bytes)
    assert "try again in 250 ms" in str(ann("ADDJOB", "q", "x", 0))
    assert isinstance(world.user("bob")("ADDJOB", "q", "x", 0), bytes)


def test_connections(world: World) -> None:
    """N11.4 connections are those of its users on all doors."""
    root, ann = world.wire(), world.user("ann")
    root("ACL", "SETUSER", "ann", "quota:connections=2")
    kim = world.user("kim")
    text = "has 2 connections to this node, as many as it may: close some, or ask for more"
    late = world.wire()
    assert late("AUTH", "ann", "x") == Err(f"QUOTA tenant 'shop' {text}")
    assert late("ACL", "WHOAMI") == b"default"
    assert kim("AUTH", "ann", "x") == b"OK"  # the same connection
    assert isinstance(world.user("bob"), Wire)
    ann.close()
    root.hear()
    assert late("AUTH", "ann", "x") == b"OK"


def test_tenants_in_info(world: World) -> None:
    """N11.5 INFO has a section tenants: how many there are, and for each of the first 100 its
    users, connections, queues, jobs, bytes, and commands refused by a quota; behind a `/` what it
    may have. A tenant's user sees its own.
    """
    root, ann = world.wire(), world.user("ann")
    root("ACL", "SETUSER", "ann", "quota:jobs=2", "quota:adds=9")
    for _ in range(3):
        ann("ADDJOB", "q", "abc", 0)
    text = root("INFO", "tenants")
    assert isinstance(text, bytes)
    line = b"users=2,connections=1,queues=1,jobs=2/2,bytes=6,refused=1,adds_per_second=/9"
    assert text.split(b"\r\n")[1:4] == [
        b"tenants:2",
        b"tenant_shop:" + line,
        b"tenant_bank:users=1,connections=0,queues=0,jobs=0,bytes=0,refused=0",
    ]
    assert ann("INFO", "tenants") == b"# Tenants\r\ntenant:" + line + b"\r\n"
    everything = ann("INFO", "all")
    assert isinstance(everything, bytes)
    assert [part for part in everything.split(b"\r\n") if part[:1] == b"#"] == [
        b"# Server",
        b"# Tenants",
    ]


def test_pushes_to_a_tenant(world: World) -> None:
    """N10.2 its users give and see `<name>`."""
    root, ann, bob = world.wire(), world.wire(), world.user("bob")
    assert ann.say(encode("HELLO", 3, "AUTH", "ann", "x")).startswith(b"%")
    for wire in (ann, bob):
        assert wire.say(encode("TUBE", "CREATE", "t", "fifo")) == b"+OK\r\n"
    assert ann.say(encode("TUBE", "SUBSCRIBE", "t")) == b":1\r\n"
    assert isinstance(bob("TUBE", "PUT", "t", "x"), list)
    assert ann.hear() == b""
    assert isinstance(root("TUBE", "PUT", "shop/t", "x"), list)
    assert ann.hear().startswith(b">7\r\n$11\r\ntube-change\r\n$1\r\nt\r\n")
    assert ann.say(encode("WORKER", "HERE", "w", "QUEUES", "q")) == b"$4\r\nnone\r\n"
    assert str(bob("WORKER", "STOP", "w")).startswith("NOWORKER")
    assert root("WORKER", "STOP", "shop/w") == b"OK"
    assert ann.hear() == b">3\r\n$12\r\nworker-order\r\n$1\r\nw\r\n$4\r\nstop\r\n"


def test_workers_of_two_tenants(world: World) -> None:
    """N10.2 Users of no tenant, metrics, logs, events, the audit, MONITOR and SLOWLOG have full
    names.
    """
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    for wire, name in ((ann, "ann"), (bob, "bob")):
        assert wire("WORKER", "HERE", "w", "HOST", name, "QUEUES", "q") == b"none"
        id = wire("ADDJOB", "q", name, 0, "RETRY", 30, "ATTEMPTS", 1)
        assert isinstance(id, bytes)
        got = wire("GETJOB", "NOHANG", "START", "WORKER", "w", "FROM", "q")
        assert name in repr(got)
        rows = wire("WORKER", "LIST")
        told = repr(rows).replace(repr(id), "the id")
        assert told.count("b'w'") == 1 and name in told and "/" not in told
        assert id.decode() in repr(rows)
        assert "b'w'" in repr(wire("RESULT", id))
        assert "worker w since" in str(wire("UPDATEJOB", id, "BODY", "x"))
    rows = repr(root("WORKER", "LIST"))
    assert "b'shop/w'" in rows and "b'bank/w'" in rows


def test_names_in_rows(world: World) -> None:
    """N10.2 its users give and see `<name>`"""
    ann = world.user("ann")
    ids = [ann("ADDJOB", queue, "x", 0) for queue in ("q", "p")]
    epoch = ann("LEASE", "OPEN", "g", "me", "q", "p")
    assert isinstance(epoch, int)
    assert ann("LEASE", "NEXT", "g", epoch, 1, "COUNT", 9, "TTL", 9000) is not None
    fetch = ("LEASE", "FETCH", "g", epoch, 1, 0)
    rows, columns = ann(*fetch), ann(*fetch, "COLUMNS")
    assert isinstance(rows, list) and isinstance(columns, list)
    assert [row[1] for row in rows[2]] == [b"q", b"p"]
    assert columns[5] == [b"q", b"p"]
    info = ann("LEASE", "INFO", "g")
    assert isinstance(info, list)
    assert info[1] == b"g" and [b"q", b"p"] in info
    assert ann("LEASE", "COMMIT", "g", epoch, 1) is not None
    id = ann("ADDJOB", "q", "x", 0, "RETRY", 30, "ATTEMPTS", 1)
    assert isinstance(id, bytes) and id not in ids
    assert b"shop/q.dead" not in repr(ann("SHOW", id)).encode()
    got = ann("GETJOB", "NOHANG", "START", "WORKER", "w", "FROM", "q")
    assert isinstance(got, list)
    run = got[0][4]
    assert ann("FAIL", id, run, "FINAL") == [b"dead", b"q.dead"]
    said = ann("DEAD", "LIST", "q.dead")
    assert isinstance(said, list)
    assert said[1][0][:2] == [id, b"q"]
    for words in (("DEAD", "SHOW", id), ("SHOW", id), ("RESULT", id), ("JSCAN", "REPLY", "all")):
        assert b"shop/" not in repr(ann(*words)).encode(), words


def test_the_whole_node_is_not_shown(world: World) -> None:
    """N10.5 INFO has only the sections server and tenants for them, and HISTORY no points of the
    whole node: `-NOPERM the points of the whole node are not for users of a tenant: name a QUEUE`.
    Workers and deploys without queues are shown to no other tenant.
    """
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    text = "NOPERM the points of the whole node are not for users of a tenant: name a QUEUE"
    closed = "NOPERM user 'ann' may not use CONFIG GET: it is not for users of a tenant"
    assert root("ACL", "SETUSER", "ann", "+config|get") == b"OK"
    assert ann("CONFIG", "GET", "port") == Err(closed)  # N2.7
    assert root("ACL", "DRYRUN", "ann", "CONFIG", "GET", "port") == closed.encode()
    for words in (("5s",), ("1m", "TIMES", "wait"), ("5s", "added")):
        assert ann("HISTORY", *words) == Err(text)
    assert ann("HISTORY", "QUEUES") == []
    assert bob("WORKER", "HERE", "idle", "APP", "bank 1") == b"none"
    assert ann("WORKER", "LIST") == [b"0", []]
    assert ann("WORKER", "DEPLOYS") == []
    for wire in (bob, root):
        assert "idle" in repr(wire("WORKER", "LIST"))
    assert "bank 1" in repr(root("WORKER", "DEPLOYS"))
