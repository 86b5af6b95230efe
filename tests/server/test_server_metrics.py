"""Metrics and health of a node over HTTP (SPEC O1, O2)."""

from __future__ import annotations

import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from live import Live, ask
from live import make_live as make_live

from tuque.metrics.listener import Listener, open_sockets
from tuque.server.metrics.metrics import take_snapshot
from tuque.server.metrics.metrics_server import (
    Desk,
    close_metrics,
    open_metrics,
    why_no_jobs,
    why_not_ready,
)
from tuque.server.state.server import WATCH
from tuque.tubes.policy import tubes_of
from world import World


class Answer(NamedTuple):
    status: int
    type: str
    text: str


def fetch(port: int, path: str, accept: str = "") -> Answer:
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(asked, timeout=30) as found:
            return Answer(found.status, found.headers["Content-Type"], found.read().decode())
    except urllib.error.HTTPError as refused:
        return Answer(refused.code, refused.headers["Content-Type"], refused.read().decode())


def value(text: str, line: str) -> float:
    """The value of the sample with that name and those labels."""
    found = re.search(rf"^{re.escape(line)} (\S+)$", text, re.M)
    assert found, line
    return float(found[1])


def opened(world: World) -> Desk:
    """Listen on a free port, with a thread that asks the node."""
    desk = Desk(world.server)
    world.server.cfg.metrics_port = -1  # any free port
    desk.listener = Listener(open_sockets(["127.0.0.1"], 0), desk)
    world.pump.watch_bell(desk.bell.fd, desk.on_asked)
    desk.listener.start()
    return desk


@pytest.fixture
def open_desk() -> Iterator[Callable[[World], Desk]]:
    """Opens metrics of nodes; they are closed at the end."""
    made: list[Desk] = []

    def make(world: World) -> Desk:
        made.append(opened(world))
        return made[-1]

    yield make
    for desk in made:
        close_metrics(desk)


@pytest.fixture
def desk(world: World, open_desk: Callable[[World], Desk]) -> Desk:
    """The metrics of the node."""
    return open_desk(world)


def get(desk: Desk, world: World, path: str, accept: str = "") -> Answer:
    """What a thread is told that asks for a page while the node turns."""
    assert desk.listener is not None
    port = desk.listener.port()
    found: list[Answer] = []
    asking = threading.Thread(target=lambda: found.append(fetch(port, path, accept)))
    world.server.watch.turned_ns = time.monotonic_ns()  # the clock of the thread
    asking.start()
    while asking.is_alive():
        if desk.is_asked:  # health and readiness need no turn
            world.settle()
        asking.join(0.001)
    return found[0]


def note_now(world: World) -> None:
    """The next point of HISTORY is due."""
    watch = world.server.watch
    watch.due_ms = world.n.now_ms
    world.server.alarms.set(WATCH, watch.due_ms)
    world.settle()


def test_jobs_by_queue_and_state(world: World, desk: Desk) -> None:
    """O1.4 Figures by queue have the label `queue`."""
    for i in range(3):
        world("ADDJOB", "mail", f"b{i}", 0)
    world("ADDJOB", "mail", "later", 0, "DELAY", 60)
    world("GETJOB", "FROM", "mail")
    note_now(world)
    answer = get(desk, world, "/metrics")
    assert answer.type == "text/plain; version=0.0.4; charset=utf-8"
    text = answer.text
    for state, count in (("ready", 2), ("delayed", 1), ("at-work", 1)):
        assert value(text, f'tuque_queue_jobs{{queue="mail",state="{state}"}}') == count
        assert value(text, f'tuque_queue_jobs{{queue="other",state="{state}"}}') == 0
    assert value(text, 'tuque_jobs_added_total{queue="mail"}') == 4
    assert value(text, 'tuque_jobs_delivered_total{queue="mail"}') == 1
    assert value(text, "tuque_wait_seconds_count") == 1
    assert value(text, 'tuque_add_seconds_count{copies="1"}') == 4
    assert "tuque_queue_oldest_ready_seconds{" in text


def test_open_metrics_by_accept(world: World, desk: Desk) -> None:
    """O1.2 `/metrics` is OpenMetrics 1.0 if the header Accept names it"""
    answer = get(desk, world, "/metrics", "application/openmetrics-text; version=1.0.0")
    assert answer.type.startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("# EOF\n")
    names = re.findall(r"^# TYPE (\S+)", answer.text, re.M)
    assert len(names) == len(set(names))


def test_memory_adds_up(world: World, desk: Desk) -> None:
    """O1.5 `tuque_memory_bytes` by class adds up to the memory used (M1.1)."""
    world("ADDJOB", "mail", "x" * 10_000, 0)
    world("STAGE", "txn", "a", 60_000, "q", "b")
    shot = take_snapshot(world.server)
    assert sum(shot.memory.values()) == world.n.used_bytes()


def test_other_queues_are_one(world: World, desk: Desk) -> None:
    """O1.4 all others together are `other`, whose counters never fall"""
    world("CONFIG", "SET", "metrics-queues", 2)
    for i in range(5):
        world("ADDJOB", f"q{i}", "b", 0)
    note_now(world)
    text = get(desk, world, "/metrics").text
    assert len(re.findall("^tuque_jobs_added_total", text, re.M)) == 3
    added = re.findall(r"^tuque_jobs_added_total.* (\d+)$", text, re.M)
    assert sum(map(int, added)) == 5
    ready = re.findall(r'^tuque_queue_jobs\{.*state="ready"\} (\d+)$', text, re.M)
    assert sum(map(int, ready)) == 5


def test_a_snapshot_does_not_look_at_all_queues(world: World, desk: Desk) -> None:
    """O1.3 Its work depends on `metrics-queues` and the number of tubes (T2.7), not on the number
    of jobs or queues.
    """
    import sys

    def lines() -> int:
        seen = 0

        def count(frame: object, event: str, arg: object) -> Any:
            nonlocal seen
            seen += event == "line"
            return count

        sys.settrace(count)
        take_snapshot(world.server)
        sys.settrace(None)
        return seen

    world("CONFIG", "SET", "metrics-queues", 10)
    world("CONFIG", "SET", "rings-queues", 10)
    for rounds in (20, 300):
        for i in range(rounds):
            world("ADDJOB", f"q{i}", "b", 0)
        note_now(world)
        if rounds == 20:
            few = lines()
    assert lines() < few * 1.2


def test_what_info_says_of_tubes(world: World, desk: Desk) -> None:
    """O1.8 What INFO has of schedules, groups, keys and duplicates (T11.5) and of topics (T62.9)
    is there under the same names, without `tubes_`.
    """
    world("TUBE", "CREATE", "t", "tasks")
    world("SCHEDULE", "ADD", "t", "night", "EVERY", 3600, "x")
    group = world("GROUP", "CREATE", "t", 2).split(b"\r\n")[1]
    world("GROUP", "CREATE", "t", 1, "THEN", "x")
    world("GROUP", "CANCEL", "t", group)
    for _ in range(3):
        world("ADDJOB", "t", "x", 0, "UNIQUE", "u")
    world("ADDJOB", "t", "x", 0, "UNIQUE", "u", "ON", "reject")
    for _ in range(2):
        world("ADDJOB", "t", "x", 0, "LIMIT", "l", 1, "GROUP", "g")
    world("GETJOB", "NOHANG", "COUNT", 9, "FROM", "t")
    world.pass_ms(2_500)
    world("TOPIC", "SUBSCRIBE", "orders", "mail")
    world("TOPIC", "ADD", "orders", "x", 0)
    world("TOPIC", "ADD", "nobody", "x", 0)
    text = get(desk, world, "/metrics").text
    gauges = {"schedules": 1, "groups": 2, "keys": 3, "keys_waited": 1, "unique_keys": 1}
    gauges |= {"topics": 1, "topic_subscriptions": 1, "tubes_homeless": 0}
    counters = {"groups_made": 2, "groups_failed": 1, "duplicates": 3, "schedules_fired": 0}
    counters |= {"topic_adds": 2, "topic_jobs": 1, "topic_adds_unheard": 1, "schedules_late": 0}
    info = world.info()
    for name, count in {**gauges, **counters}.items():
        assert info.get(f"tubes_{name}", info.get(name)) == str(count), name
        tail = "_total" if name in counters else ""
        assert value(text, f"tuque_{name}{tail}") == count, name
    assert 2.4 <= value(text, "tuque_keys_wait_seconds") <= 60
    assert int(info["tubes_keys_wait_ms"]) >= 2_400


def test_leaders_by_reason(world: World, desk: Desk) -> None:
    """O1.8 `tuque_leader_changes_total` counts by reason the tubes that this node came to lead:
    `silent`, `gave_up`, `given`, `again`, `forced`, and `command` (T21).
    """
    world("TUBE", "CREATE", "t", "fifo")
    t = tubes_of(world.n)
    t.voter_state.won_by[:] = [0, 1, 2, 3, 4, 5]
    t.homes_given, t.homes_by_command = 10, 20
    text = get(desk, world, "/metrics").text
    wanted = {"silent": 1, "gave_up": 2, "given": 13, "again": 4, "forced": 5, "command": 20}
    for reason, count in wanted.items():
        assert value(text, f'tuque_leader_changes_total{{reason="{reason}"}}') == count
    assert len(re.findall("^tuque_leader_changes_total", text, re.M)) == len(wanted)


def test_health_needs_no_turn(world: World, desk: Desk) -> None:
    """O2.1 `/healthz`: 200 if the loop has turned within 15 s, else 503."""
    assert desk.listener is not None
    port = desk.listener.port()
    world.server.watch.turned_ns = time.monotonic_ns()
    assert fetch(port, "/healthz") == (200, "text/plain; charset=utf-8", "ok\n")
    world.server.watch.turned_ns -= 20_000_000_000
    answer = fetch(port, "/healthz")
    assert answer.status == 503
    assert "has not turned for 2" in answer.text
    assert fetch(port, "/readyz").status == 503


def test_readiness_says_why_not(world: World, desk: Desk) -> None:
    """O2.2 `/readyz`: 200 if clients are to come; else 503, with one line for each reason"""
    assert get(desk, world, "/readyz").status == 200
    s = world.server
    world("CLUSTER", "LEAVING", "yes")
    answer = get(desk, world, "/readyz")
    assert answer.status == 503
    assert answer.text == "it leaves its cluster\n"
    s.is_loading, s.conflict, s.end_asked = True, "host:1", "signal"
    assert why_not_ready(s)[:3] == [
        "it stops",
        "it reads its journal",
        "another node, at host:1, has its id",
    ]
    s.is_loading, s.conflict, s.end_asked = False, "", ""


def test_a_full_node_still_serves_workers(world: World, desk: Desk) -> None:
    """O2.5 `/readyz?for=writes`: the same, and 503 also while the node takes no more jobs: the
    journal does not work (J6.1), its disk is nearly full (J6.9), or its memory is used up (M2), of
    a node without others already at level 1.
    """
    s = world.server
    assert get(desk, world, "/readyz?for=writes").status == 200
    world("CONFIG", "SET", "maxmemory", 1)
    s.journal_error = "no space"
    assert get(desk, world, "/readyz") == (200, "text/plain; charset=utf-8", "ready\n")
    answer = get(desk, world, "/readyz?for=writes")
    assert answer.status == 503
    assert answer.text == "the journal does not work: no space\nits memory is used up\n"
    s.journal_error = ""
    world("CLUSTER", "LEAVING", "yes")
    answer = get(desk, world, "/readyz?for=writes")
    assert answer.text == "it leaves its cluster\nits memory is used up\n"


def test_a_short_disk_takes_no_writes(make_world: Callable[..., World]) -> None:
    """O2.5 its disk is nearly full (J6.9)"""
    world = make_world(disk_free_min="1mb")
    assert why_no_jobs(world.server) == []
    world.add()
    world.disk().full(100_000)
    world.pass_ms(2_000)
    world.run("PAUSE", "q", "in")
    world.pass_ms(2_000)
    assert why_no_jobs(world.server) == ["its disk is nearly full"]
    assert why_not_ready(world.server) == []


def test_a_lone_node_above_75_percent_takes_no_writes(make_world: Callable[..., World]) -> None:
    """O2.5 its memory is used up (M2), of a node without others already at level 1."""
    full = "its memory is above 75 % of maxmemory, and there is no other node"
    for nodes, faults in ((1, [full]), (2, [])):
        world = make_world(nodes)
        used = world.node(0).core.counted_bytes()
        world.run("CONFIG", "SET", "maxmemory", used * 5 // 4)
        said = world.run("ADDJOB", "q", "b", 0)
        assert isinstance(said, bytes) is not bool(faults), said
        assert why_no_jobs(world.server) == faults


def test_a_real_node_listens(make_live: Callable[..., Live]) -> None:
    """O1.1 With `metrics-port` the node listens there for HTTP, on `metrics-bind` (loopback)"""
    from lab import free_port

    port = free_port()
    live = make_live("--metrics-port", str(port), "--appendonly", "yes")
    with live.connect() as sock:
        ask(sock, "ADDJOB q body 0")
    assert fetch(port, "/healthz").status == 200
    assert fetch(port, "/readyz").status == 200
    text = fetch(port, "/metrics").text
    assert 'tuque_jobs_added_total{queue="' in text
    assert value(text, "tuque_journal_up") == 1
    assert value(text, "tuque_registered_jobs") == 1
    assert fetch(port, "/").status == 404


def test_a_taken_port_ends_the_start(make_world: Callable[..., World]) -> None:
    import socket

    from tuque.server.net.listen import ListenError

    with socket.create_server(("127.0.0.1", 0)) as taken:
        world = make_world(journal="off", metrics_port=taken.getsockname()[1])
        with pytest.raises(ListenError, match="check metrics-port and metrics-bind"):
            open_metrics(world.pump)


def test_tenants(make_world: Callable[..., World], open_desk: Callable[[World], Desk]) -> None:
    """N11.6 The metrics have connections, queues, jobs, bytes and refused commands by the label
    `tenant`, of the first `metrics-queues` (O1.4) tenants; all others are `(other)`. A node
    without tenants has no such label.
    """
    world = make_world(journal="off", metrics_queues=1)
    desk = open_desk(world)
    assert "tuque_tenant" not in get(desk, world, "/metrics").text
    for name in ("shop", "bank", "club"):
        words = ("on", "nopass", "+@all", "~*", f"tenant:{name}", "quota:jobs=2")
        assert world("ACL", "SETUSER", name, *words) == b"+OK\r\n"
        wire = world.user(name)
        for _ in range(3):
            wire("ADDJOB", "q", "abc", 0)
    text = get(desk, world, "/metrics").text
    held = ("connections", 1), ("queues", 1), ("jobs", 2), ("bytes", 6), ("refused_total", 1)
    for what, count in held:
        assert value(text, f'tuque_tenant_{what}{{tenant="shop"}}') == count
        assert value(text, f'tuque_tenant_{what}{{tenant="(other)"}}') == 2 * count
    assert 'tenant="bank"' not in text
