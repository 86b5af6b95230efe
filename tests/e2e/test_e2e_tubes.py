"""Tubes over real sockets: takes and puts that wait, sessions, notices (SPEC T1, T7-T9, T16)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import hiredis
import pytest

from lab import RealServer
from raw_resp import NULL, Wire
from until import until

MakeServer = Callable[..., RealServer]

PLUGIN = """
from tuque.tubes.driver import Driver


class Lifo(Driver):
    \"\"\"The youngest READY task first.\"\"\"

    def __init__(self):
        super().__init__()
        self.stack = []

    def enter(self, task):
        self.stack.append(task)
        self.stack.sort(key=lambda one: one.number)

    def first(self):
        return self.stack[-1] if self.stack else None

    def took(self, task):
        self.stack.remove(task)

    def left(self, task):
        self.stack.remove(task)

    def listing(self):
        return self.stack[::-1]

    def check(self, taken):
        pass


def note(tube, event, number, state, body):
    with open(__file__ + ".notes", "a") as out:
        out.write(f"{tube} {event} {number} {state} {body.decode()}\\n")
    raise (ValueError, SystemExit)[number % 2]("a callback may fail")
"""
POINTS = "[tuque.tube_drivers]\nlifo = tube_plugin:Lifo\n"
POINTS += "[tuque.tube_callbacks]\nnote = tube_plugin:note\n"


def make(wire: Wire, name: str, type: str, *options: str | int) -> str:
    assert wire("TUBE", "CREATE", name, type, *options) == b"OK"
    return name


def blocked(wire: Wire, tube: str, count: int) -> None:
    """Until so many takes wait for the tube."""
    until(lambda: figures(wire, tube)["waiting-takes"] == count)


def figures(wire: Wire, tube: str) -> dict[str, object]:
    flat = wire("TUBE", "INFO", tube)
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def test_takes_are_served_in_the_order_they_came(node: RealServer, wire: Wire) -> None:
    """T9.1 whatever their timeouts."""
    make(wire, "order", "fifottl")
    takers = [node.wire() for _ in range(3)]
    for count, (taker, timeout) in enumerate(zip(takers, (20, 5, 10), strict=True), 1):
        taker.send("TUBE", "TAKE", "order", "TIMEOUT", timeout)
        blocked(wire, "order", count)
    refused = wire("TUBE", "DROP", "order")
    assert refused == "ERR There are consumers connected the tube"
    for number in range(3):
        wire("TUBE", "PUT", "order", f"b{number}")
    assert [taker.read()[:3] for taker in takers] == [
        [number, b"TAKEN", f"b{number}".encode()] for number in range(3)
    ]


def test_a_take_that_gets_nothing(wire: Wire) -> None:
    make(wire, "nothing", "fifo")
    begin = time.monotonic()
    assert wire("TUBE", "TAKE", "nothing", "TIMEOUT", "0.15") is NULL
    assert 0.149 <= time.monotonic() - begin < 5  # the clock of the node counts whole ms
    assert wire("TUBE", "TAKE", "nothing", "TIMEOUT", 0) is NULL


def test_commands_behind_a_take_wait(wire: Wire, other: Wire) -> None:
    """T15.8 Like a waiting GETJOB it blocks its connection (C3.9)."""
    make(wire, "behind", "fifo")
    other.send("TUBE", "TAKE", "behind")
    other.send("PING")
    blocked(wire, "behind", 1)
    assert other.is_quiet(0.05)
    wire("TUBE", "PUT", "behind", "x")
    assert other.read()[0] == 0
    assert other.read() == b"PONG"


def test_a_put_waits_for_room(wire: Wire, other: Wire) -> None:
    """T7.2, T7.3, T15.8."""
    make(wire, "room", "limfifottl", "CAPACITY", 1)
    assert wire("TUBE", "PUT", "room", "first")[0] == 0
    assert wire("TUBE", "PUT", "room", "no") is NULL
    begin = time.monotonic()
    assert wire("TUBE", "PUT", "room", "no", "TIMEOUT", "0.1") is NULL
    assert time.monotonic() - begin >= 0.099
    assert wire("ADDJOB", "room", "no", 0).startswith("MAXLEN ")
    other.send("TUBE", "PUT", "room", "second", "TIMEOUT", 20)
    other.send("PING")
    until(lambda: figures(wire, "room")["waiting-puts"] == 1)
    assert wire("TUBE", "DELETE", "room", 0)[1] == b"DONE"
    assert other.read()[:3] == [1, b"READY", b"second"]
    assert other.read() == b"PONG"


def test_a_put_whose_client_goes_is_not_done(node: RealServer, wire: Wire) -> None:
    """T7.3 If the client disconnects, nothing is put."""
    make(wire, "gone", "limfifottl", "CAPACITY", 1)
    wire("TUBE", "PUT", "gone", "first")
    going = node.wire()
    going.send("TUBE", "PUT", "gone", "never", "TIMEOUT", 20)
    until(lambda: figures(wire, "gone")["waiting-puts"] == 1)
    going.sock.close()
    until(lambda: figures(wire, "gone")["waiting-puts"] == 0)
    wire("TUBE", "DELETE", "gone", 0)
    assert figures(wire, "gone")["ready"] == 0


def test_a_muted_put_waits_too(wire: Wire, other: Wire) -> None:
    """T15.8, C7.3: it is put, and nothing is said."""
    make(wire, "muted", "limfifottl", "CAPACITY", 1)
    wire("TUBE", "PUT", "muted", "first")
    other.send("CLIENT", "REPLY", "SKIP")
    other.send("TUBE", "PUT", "muted", "second", "TIMEOUT", 20)
    other.send("PING")
    until(lambda: figures(wire, "muted")["waiting-puts"] == 1)
    wire("TUBE", "DELETE", "muted", 0)
    assert other.read() == b"PONG"
    assert wire("TUBE", "PEEK", "muted", 1)[2] == b"second"


def test_the_end_of_a_session_releases_its_tasks(node: RealServer, wire: Wire) -> None:
    """T8.2 in the order of (tube, number); T8.3: a session is joined by its uuid."""
    make(wire, "ends", "fifo")
    for body in "ab":
        wire("TUBE", "PUT", "ends", body)
    first, second = node.wire(), node.wire()
    uuid = first("TUBE", "IDENTIFY")
    assert second("TUBE", "IDENTIFY", uuid) == uuid
    assert first("TUBE", "TAKE", "ends")[0] == 0
    assert second("TUBE", "TAKE", "ends")[0] == 1
    first.sock.close()
    assert second("TUBE", "ACK", "ends", 0)[1] == b"DONE"
    second.sock.close()
    until(lambda: figures(wire, "ends")["ready"] == 1)
    assert wire("TUBE", "IDENTIFY", uuid).endswith(" is unknown.")


def test_getjob_and_take_share_a_tube(wire: Wire, other: Wire) -> None:
    """T1.3, T1.4: GETJOB's tasks are nobody's; a task that a session took is its own."""
    make(wire, "shared", "fifottl")
    by_job = wire.add("shared", "j", "PRI", 2, "RETRY", 30)
    wire("TUBE", "PUT", "shared", "t", "PRI", 1)
    number, _, _, token, job_id, _ = wire("TUBE", "TAKE", "shared")
    assert (number, token > 0) == (1, True)
    assert other("ACKJOB", job_id) == 0
    assert other("WORKING", job_id) == "NOTTAKEN Task was not taken"
    assert other.get("shared") == [by_job]
    assert wire("TUBE", "ACK", "shared", 0) == "NOTTAKEN Task was not taken"
    assert other("WORKING", by_job) == 30
    assert other("NACK", by_job) == 1
    assert other.get("shared") == [by_job]
    assert other("FASTACK", by_job) == 1
    assert wire("ACKJOB", job_id) == 1
    assert figures(wire, "shared")["next-id"] == 2


def test_a_waiting_getjob_gets_what_is_put(wire: Wire, other: Wire) -> None:
    """T1.3, T2.3: who waits in GETJOB for the name waits for the tube."""
    other.send("GETJOB", "FROM", "later")
    until(lambda: wire("QSTAT", "later") is not NULL)
    make(wire, "later", "utube")
    task = wire("TUBE", "PUT", "later", "x", "UTUBE", "k")
    assert other.read() == [[b"later", task[4], b"x"]]
    assert other("ACKJOB", task[4]) == 1


def test_views_of_a_tube(wire: Wire) -> None:
    """T1.7 SHOW, JSCAN, QLEN, QPEEK, QSTAT, QSCAN and PAUSE treat tubes as queues: READY is
    queued;
    """
    make(wire, "seen", "utubettl")
    ids = [wire.add("seen", f"b{n}", "PRI", 9 - n, "UTUBE", "k") for n in range(3)]
    late = wire.add("seen", "late", "DELAY", 60)
    assert wire("QLEN", "seen") == 3
    assert [row[1].decode() for row in wire("QPEEK", "seen", 5)] == ids[::-1]
    assert wire.show(late)["state"] == b"active"
    assert b"seen" in wire("QSCAN", "BUSYLOOP")[1]
    found = wire("JSCAN", "BUSYLOOP", "QUEUE", "seen", "STATE", "queued")[1]
    assert {one.decode() for one in found} == set(ids)
    flat = wire("QSTAT", "seen")
    assert dict(zip(flat[::2], flat[1::2], strict=True))[b"jobs-in"] == 4
    assert wire("PAUSE", "seen", "in") == b"in"
    assert wire("ADDJOB", "seen", "x", 0).startswith("PAUSED ")
    assert wire("DELJOB", late) == 1
    assert wire("DEBUG", "CHECK") == b"OK"


def test_changes_are_pushed(wire: Wire, other: Wire) -> None:
    """T16.2 Each change in one of the tubes is then pushed."""
    make(wire, "pushed", "fifo")
    other("HELLO", 3)
    assert other("TUBE", "SUBSCRIBE", "pushed") == 1
    wire("TUBE", "PUT", "pushed", "x")
    wire("TUBE", "TAKE", "pushed")
    wire("TUBE", "ACK", "pushed", 0)
    heard = [other.read() for _ in range(3)]
    assert [isinstance(one, list | hiredis.PushNotification) for one in heard] == [True] * 3
    assert [list(one)[:6] for one in heard] == [
        [b"tube-change", b"pushed", 0, b"put", 0, b"READY"],
        [b"tube-change", b"pushed", 1, b"take", 0, b"TAKEN"],
        [b"tube-change", b"pushed", 2, b"ack", 0, b"DONE"],
    ]
    other.sock.close()
    until(lambda: figures(wire, "pushed")["subscribers"] == 0)


def test_a_subscriber_hears_of_a_session_that_ends(node: RealServer, wire: Wire) -> None:
    """T16.2: also of changes that no command made."""
    make(wire, "quiet", "fifo")
    wire("TUBE", "PUT", "quiet", "x")
    taker, listener = node.wire(), node.wire()
    taker("TUBE", "TAKE", "quiet")
    listener("HELLO", 3)
    listener("TUBE", "SUBSCRIBE", "quiet")
    taker.sock.close()
    assert list(listener.read())[3:6] == [b"release", 0, b"READY"]


def test_a_node_that_leaves_sends_takers_home(make_server: MakeServer) -> None:
    """T15.6: so is a TAKE that waits."""
    server = make_server()
    wire, taker = server.wire(), server.wire()
    make(wire, "home", "fifo")
    taker.send("TUBE", "TAKE", "home")
    blocked(wire, "home", 1)
    assert wire("CLUSTER", "LEAVING", "yes") == b"OK"
    assert taker.read().startswith("LEAVING ")


def test_what_was_answered_is_there_after_a_crash(make_server: MakeServer) -> None:
    """T14.2 After a restart each task is in its status; no reply told of more."""
    server = make_server("--appendonly", "yes", "--appendfsync", "always")
    wire = server.wire()
    make(wire, "kept", "utubettl", "PRI", 7)
    make(wire, "short", "fifo", "TEMPORARY")
    wire("TUBE", "PUT", "short", "x")
    for number in range(4):
        wire("TUBE", "PUT", "kept", f"b{number}", "UTUBE", number)
    by_job = wire.add("kept", "job", "PRI", 1, "RETRY", 300)
    assert wire.get("kept") == [by_job]
    assert wire("TUBE", "TAKE", "kept")[0] == 0
    token = wire("TUBE", "TAKE", "kept")[3]
    assert wire("TUBE", "ACK", "kept", 1, "TOKEN", token)[1] == b"DONE"
    assert wire("TUBE", "BURY", "kept", 2)[1] == b"BURIED"
    server.kill()
    server.start()
    wire = server.wire()
    states = {n: wire("TUBE", "PEEK", "kept", n)[1] for n in (0, 2, 3, 4)}
    assert states == {0: b"READY", 2: b"BURIED", 3: b"READY", 4: b"TAKEN"}
    assert wire("TUBE", "PEEK", "kept", 1) == "NOTASK Task 1 not found"
    told = figures(wire, "kept")
    assert (told["type"], told["pri"], told["next-id"]) == (b"utubettl", 7, 5)
    assert wire("TUBE", "TAKE", "kept")[3] > token
    assert figures(wire, "short")["ready"] == 0
    assert wire("ACKJOB", by_job) == 1
    assert wire("DEBUG", "CHECK") == b"OK"


def test_a_new_password_ends_what_waits(make_server: MakeServer) -> None:
    """C5.4, T16.2: who must log in neither waits, nor puts, nor hears of changes."""
    server = make_server()
    wire, taker, putter, listener = (server.wire() for _ in range(4))
    make(wire, "empty", "fifo")
    make(wire, "full", "limfifottl", "CAPACITY", 1)
    wire("TUBE", "PUT", "full", "first")
    taker.send("TUBE", "TAKE", "empty")
    putter.send("TUBE", "PUT", "full", "second", "TIMEOUT", 60)
    listener("HELLO", 3)
    listener("TUBE", "SUBSCRIBE", "full")
    blocked(wire, "empty", 1)
    until(lambda: figures(wire, "full")["waiting-puts"] == 1)
    assert wire("CONFIG", "SET", "requirepass", "pw") == b"OK"
    assert taker.read().startswith("NOAUTH")
    assert putter.read().startswith("NOAUTH")
    assert wire("AUTH", "pw") == b"OK"
    assert wire("TUBE", "DELETE", "full", 0)[1] == b"DONE"
    assert figures(wire, "full") | {"ready": 0, "subscribers": 0} == figures(wire, "full")
    assert listener.is_quiet(0.05)


def install(packages: Path) -> None:
    """The package that brings a type of tube and a callback is there."""
    info = packages / "tube_plugin-1.dist-info"
    info.mkdir()
    (packages / "tube_plugin.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tube-plugin\nVersion: 1\n")
    (info / "entry_points.txt").write_text(POINTS)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where servers look for packages, too."""
    made = tmp_path / "packages"
    made.mkdir()
    paths = [str(made), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return made


@pytest.fixture
def plugged(packages: Path, make_server: MakeServer) -> RealServer:
    """A server beside which that package is installed."""
    install(packages)
    return make_server()


def test_a_type_and_a_callback_of_ones_own(plugged: RealServer, tmp_path: Path) -> None:
    """T3.5, T16.4: entry points; what a callback raises is logged and breaks nothing."""
    wire = plugged.wire()
    make(wire, "stack", "lifo", "ONCHANGE", "note")
    for body in "abc":
        wire("TUBE", "PUT", "stack", body)
    assert [wire("TUBE", "TAKE", "stack")[2] for _ in range(3)] == [b"c", b"b", b"a"]
    notes = tmp_path / "packages" / "tube_plugin.py.notes"
    until(lambda: notes.exists() and len(notes.read_text().splitlines()) == 6)
    lines = notes.read_text().splitlines()
    assert lines[0] == "stack put 0 READY a"
    assert lines[3] == "stack take 2 TAKEN c"
    assert "a callback may fail" in plugged.log()
    assert wire("DEBUG", "CHECK") == b"OK"


def test_a_type_that_is_installed_later(packages: Path, make_server: MakeServer) -> None:
    """T3.6, T3.7, T14.5: its tubes wait for it, and need no restart."""
    install(packages)
    kept = ("--appendonly", "yes", "--dir", str(packages))
    server = make_server(*kept)
    wire = server.wire()
    make(wire, "stack", "lifo")
    loaded = [b"lifo", b"loaded", b"tube_plugin:Lifo (tube-plugin 1)", 1, [], b""]
    assert loaded in wire("TUBE", "DRIVERS")
    assert [b"fifo", b"built-in", b"", 0, [], b""] in wire("TUBE", "DRIVERS")
    assert wire("TUBE", "REGISTERDRIVER", "lifo") == 'ERR overriding registered driver "lifo"'
    assert wire("TUBE", "REGISTERDRIVER", "fifo") == 'ERR overriding registered driver "fifo"'
    server.kill()
    (packages / "tube_plugin-1.dist-info").rename(packages / "away")
    (packages / "tube_plugin.py").unlink()
    server.start()
    wire, taker = server.wire(), server.wire()
    for body in "abc":
        wire("TUBE", "PUT", "stack", body)
    taker.send("TUBE", "TAKE", "stack")
    blocked(wire, "stack", 1)
    assert [b"lifo", b"missing", b"", 1, [], b""] in wire("TUBE", "DRIVERS")
    none = "ERR no package of this server has a driver named '%s'"
    for name in ("lifo", "tube_plugin:Lifo", "os:system", "note"):
        assert wire("TUBE", "REGISTERDRIVER", name) == none % name
    (packages / "away").rename(packages / "tube_plugin-1.dist-info")
    assert [b"lifo", b"installed", loaded[2], 1, [], b""] in wire("TUBE", "DRIVERS")
    broken = wire("TUBE", "REGISTERDRIVER", "lifo")
    assert broken.startswith("ERR the driver 'lifo' cannot be loaded: ModuleNotFoundError: ")
    row = [b"lifo", b"failed", loaded[2], 1, [], broken.removeprefix("ERR ").encode()]
    assert row in wire("TUBE", "DRIVERS")
    assert figures(wire, "stack")["stopped"] == b"the type 'lifo' is not loaded"
    (packages / "tube_plugin.py").write_text(PLUGIN)
    assert wire("TUBE", "REGISTERDRIVER", "lifo") == b"OK"
    assert taker.read()[2] == b"c" and loaded in wire("TUBE", "DRIVERS")
    assert wire("TUBE", "TAKE", "stack")[2] == b"b"
    assert wire("DEBUG", "CHECK") == b"OK"


QUITTERS = """
from tuque.tubes.driver import Driver


class Quits(Driver):
    def first(self):
        raise SystemExit("I quit")


class Never(Driver):
    def __init__(self):
        raise SystemExit(3)
"""
QUITTING = """[tuque.tube_drivers]
quits = tube_quitters:Quits
never = tube_quitters:Never
exits = tube_exits:Exits
[tuque.tube_callbacks]
exits = tube_exits:note
"""


def test_a_package_that_exits(packages: Path, make_server: MakeServer) -> None:
    """T3.8: "no node ends by it, nor fails to start"; T3.7, T11.5, T15.4: people see it."""
    install(packages)
    (packages / "tube_quitters.py").write_text(QUITTERS)
    (packages / "tube_exits.py").write_text("raise SystemExit('at import')\n")
    (packages / "tube_plugin-1.dist-info" / "entry_points.txt").write_text(QUITTING)
    server = make_server()
    wire = server.wire()
    make(wire, "t", "quits")
    make(wire, "sound", "fifo")
    for name in ("t", "sound"):
        wire("TUBE", "PUT", name, "body")
    assert wire("TUBE", "TAKE", "t", "TIMEOUT", 0) is NULL
    assert wire("TUBE", "TAKE", "sound")[2] == b"body"
    why = b"SystemExit: I quit"
    assert figures(wire, "t")["stopped"] == why and figures(wire, "sound")["stopped"] == b""
    assert b"tubes_stopped:1\r\n" in wire("INFO", "tubes")
    rows = {row[0]: [row[1], *row[3:]] for row in wire("TUBE", "DRIVERS")}
    assert rows[b"quits"] == [b"loaded", 1, [[b"t", why]], b""]
    never = "the driver 'never' cannot be loaded: SystemExit: 3"
    assert rows[b"never"] == [b"failed", 0, [], never.encode()]
    exits = "the driver 'exits' cannot be loaded: SystemExit: at import"
    assert rows[b"exits"] == [b"failed", 0, [], exits.encode()]
    assert wire("TUBE", "REGISTERDRIVER", "never") == f"ERR {never}"
    assert wire("TUBE", "REGISTERDRIVER", "exits") == f"ERR {exits}"
    assert "the callback 'exits' cannot be loaded: SystemExit: at import" in server.log()
    assert wire("DEBUG", "CHECK") == b"OK"
