"""SPEC C11: a node stops, and nobody who has a call in flight hears an error."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from tuque.client.commands import calls
from tuque.server.app import watch_signals
from world import World

MakeWorld = Callable[..., World]
LEAVING = "LEAVING This node is leaving the cluster, please connect to a different one"


def ask_end(world: World, i: int = 0) -> None:
    """SIGTERM."""
    world.node(i).server.ask_end("signal")
    world.node(i).shell.wake()
    world.pass_ms(1)


def is_up(world: World, i: int = 0) -> bool:
    """Whether the process still runs."""
    return world.node(i).is_up


def test_a_node_without_clients_stops_at_once(make_world: MakeWorld) -> None:
    """C11.4 It stops when each client has its `-LEAVING` and no tube can move, and 2 s after the
    signal in any case.
    """
    world = make_world()
    ask_end(world)
    assert not is_up(world)


def test_a_call_in_flight_gets_its_reply(make_world: MakeWorld) -> None:
    """C11.2 Calls in flight run on, and get their replies."""
    world = make_world(2)
    wire = world.wire(0)
    world.hold(0, 1)
    wire.send("ADDJOB", "q", "b", 10_000, "REPLICATE", 2)
    world.pass_ms(10)
    ask_end(world)
    world.pass_ms(500)
    assert is_up(world)
    world.release(0, 1)
    world.pass_ms(50)
    assert wire.take().startswith(b"D-")
    world.pass_ms(200)
    assert not is_up(world)
    assert not wire.is_open()


def test_a_stop_waits_for_two_seconds_at_most(make_world: MakeWorld) -> None:
    """C11.4 It stops when each client has its `-LEAVING` and no tube can move, and 2 s after the
    signal in any case.
    """
    world = make_world(2)
    wire = world.wire(0)
    world.hold(0, 1)
    wire.send("ADDJOB", "q", "b", 10_000, "REPLICATE", 2)
    world.pass_ms(10)
    ask_end(world)
    world.pass_ms(1_900)
    assert is_up(world)
    world.pass_ms(200)
    assert not is_up(world)


def test_clients_are_sent_to_other_nodes(make_world: MakeWorld) -> None:
    """C11.2 Waiting takers get `-LEAVING` (V7), and so do ADDJOB, GETJOB, TOPIC and PING, the adds
    of T15.6, and a TAKE that would wait.
    """
    world = make_world()
    waits, busy = world.wire(), world.wire()
    busy("TUBE", "CREATE", "t", "fifo")
    waits.send("GETJOB", "FROM", "none")
    world.pass_ms(1)
    ask_end(world)
    assert waits.take() == LEAVING
    assert busy("ADDJOB", "q", "b", 0) == LEAVING
    assert busy("GETJOB", "NOHANG", "FROM", "q") == LEAVING
    assert busy("TOPIC", "ADD", "news", "b", 0) == LEAVING
    assert busy("PING") == LEAVING
    assert busy("TUBE", "PUT", "t", "b").startswith(("LEAVING", "READONLY"))


def test_ends_of_jobs_are_taken(make_world: MakeWorld) -> None:
    """C11.2 What ends jobs, and all else, is done."""
    world = make_world()
    wire = world.wire()
    job_id = wire.add("q", "b")
    assert wire.get("q") == [job_id]
    ask_end(world)
    assert wire("ACKJOB", job_id) == 1
    world.pass_ms(150)
    assert not is_up(world)
    world.start(0)
    assert world.run("QLEN", "q") == 0


def test_a_quiet_client_is_told(make_world: MakeWorld) -> None:
    """C11.2 A client with no call in flight gets `-LEAVING` 100 ms after its last call; then the
    node runs no call of it: a call that crossed the `-LEAVING` was not done.
    """
    world = make_world(2)
    quiet, busy = world.wire(), world.wire()
    quiet("PING")
    world.pass_ms(200)
    busy("PING")
    ask_end(world)
    quiet.send("ADDJOB", "q", "b", 0)
    assert quiet.take() == LEAVING
    assert is_up(world)
    assert not world.n.jobs
    world.pass_ms(150)
    assert busy.take() == LEAVING
    assert not is_up(world)


def test_no_connection_is_taken(make_world: MakeWorld) -> None:
    """C11.1 It takes no more connections: clients go to other nodes."""
    world = make_world(2)
    busy = world.wire(0)
    busy("PING")
    ask_end(world)
    assert not world.node(0).pump.acceptors.listeners
    assert is_up(world)


@pytest.mark.parametrize("size", [1, 20])
def test_a_client_hears_no_error(make_world: MakeWorld, size: int) -> None:
    """A client goes on at another node (C11.2), also with the rest of a pipeline."""
    world = make_world(3)
    client = world.client(0, others=True)
    client.addjob("q", b"b")
    ask_end(world)
    if size == 1:
        assert client.addjob("q", b"b").startswith("D-")
    else:
        found = client.run_all([calls.addjob("q", b"b") for _ in range(size)])
        assert all(isinstance(one, str) for one in found), found
    world.pass_ms(200)
    assert not is_up(world)
    client.addjob("q", b"b")


def test_tubes_move_first(make_world: MakeWorld) -> None:
    """C11.3 The tubes that it leads move to other nodes, as those of a node that is about to stop
    (K9.1)."""
    world = make_world(3)
    world.run("TUBE", "CREATE", "t", "fifo", "SYNC", "majority")
    world.pass_ms(60_000)  # what it promised as a voter before its start is over
    assert world.leader("t") == 0
    ask_end(world)
    world.until(lambda: not is_up(world), 2_100)
    assert world.leader("t") in (1, 2)


def test_asked_again_it_stops_at_once(make_world: MakeWorld) -> None:
    """C11.5 A second signal, or SHUTDOWN, stops it at once."""
    world = make_world()
    wire = world.wire()
    wire("PING")
    ask_end(world)
    assert is_up(world)
    ask_end(world)
    assert not is_up(world)


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Signals of this process go where they went before the test, after it."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    ignored = signal.getsignal(signal.SIGHUP)
    fd = signal.set_wakeup_fd(-1)
    yield
    signal.set_wakeup_fd(fd)
    for number, handler in [*kept.items(), (signal.SIGHUP, ignored)]:
        signal.signal(number, handler)


def test_a_signal_counts_once(make_world: MakeWorld, own_signals: None) -> None:
    """C11.5 A second signal, or SHUTDOWN, stops it at once."""
    world = make_world()
    world.wire()("PING")
    pump = world.node().pump
    watch_signals(pump)
    assert pump.s.signal_sockets is not None
    handler = signal.getsignal(signal.SIGTERM)
    assert callable(handler)
    pump.s.signal_sockets[1].send(bytes([signal.SIGTERM]))
    pump.on_signal()
    handler(signal.SIGTERM, None)  # compiled code runs on before the interpreter calls it
    pump.part()
    assert (pump.s.end_asked, pump.s.stop_requested) == ("signal", "")
    signal.raise_signal(signal.SIGTERM)
    pump.on_signal()
    assert pump.s.stop_requested == "signal"


def test_shutdown_does_the_same(make_world: MakeWorld) -> None:
    """C11 SHUTDOWN does the same."""
    world = make_world()
    waits, other = world.wire(), world.wire()
    waits.send("GETJOB", "FROM", "none")
    other.send("SHUTDOWN")
    world.pass_ms(1)
    assert waits.take() == LEAVING
