"""The ground on which servers run in the simulator: sockets that fill up, fsyncs that take time."""

from __future__ import annotations

import socket
from typing import cast

import pytest

from sim.engine.plan import Op, Plan
from sim.machines.kernel import ListeningSocket, SimWakeup, Socket
from sim.machines.shell import Shell
from sim.runs.cluster import SETUP_MS, Cluster
from stopped_seed import stopped
from tuque.server.loop.pump import Pump
from tuque.server.net.system import IN, OUT


def shell_of(cluster: Cluster, index: int = 0) -> Shell:
    """The process on that machine."""
    shell = cluster.machines[index].shell
    assert shell is not None
    return shell


def linked_pair() -> tuple[Cluster, Socket]:
    """Two nodes, and the socket of the first to the second."""
    cluster = stopped(Plan(seed="ground", nodes=2), 3)
    (link,) = shell_of(cluster).bus.by_slot.values()
    return cluster, cast(Socket, link.sock)


def test_the_pump_is_the_one_that_ships() -> None:
    cluster, _ = linked_pair()
    assert isinstance(shell_of(cluster).pump, Pump)


def test_a_socket_takes_what_fits_and_tells_when_there_is_room() -> None:
    cluster, sock = linked_pair()
    sock.buffer_bytes = 10
    cluster.net.set_cut("n0", "n1", True)
    assert sock.send(b"x" * 25) == 10
    assert sock.ready() & OUT == 0
    with pytest.raises(BlockingIOError):
        sock.send(b"x")
    shell = shell_of(cluster)
    shell.kernel.epoll.modify(sock.fd, IN | OUT)
    assert shell.kernel.epoll.poll(0, 9) == []
    cluster.net.set_cut("n0", "n1", False)
    assert sock.end is not None and sock.end.out is not None
    while sock.end.out.flying:
        cluster.wait_ms(1)
    assert sock.is_closed or sock.ready() & OUT


def test_a_look_takes_nothing_and_a_read_takes_what_it_asks_for() -> None:
    _, sock = linked_pair()
    assert sock.end is not None
    sock.on_data(sock.end, b"abc")
    sock.on_data(sock.end, b"def")
    assert sock.recv(1, socket.MSG_PEEK) == b"a"
    assert [sock.recv(4), sock.recv(4)] == [b"abcd", b"ef"]
    with pytest.raises(BlockingIOError):
        sock.recv(4)
    sock.on_lost(sock.end)
    assert sock.recv(4) == b""


def test_what_is_ready_stays_ready_until_it_is_taken() -> None:
    cluster, _ = linked_pair()
    kernel = shell_of(cluster).kernel
    bell = SimWakeup(kernel)
    kernel.epoll.register(bell.fd, IN)
    bell.ring()
    assert kernel.epoll.poll(0, 9) == kernel.epoll.poll(0, 9) == [(bell.fd, IN)]
    bell.quiet()
    assert kernel.epoll.poll(0, 9) == []
    with pytest.raises(BlockingIOError):
        ListeningSocket(kernel, 1).accept()


@pytest.mark.parametrize(("sync_us", "is_here"), [(200, True), (20_000, False)])
def test_on_a_quick_disk_the_pump_syncs_itself(sync_us: int, is_here: bool) -> None:
    plan = Plan(seed="here", nodes=1, policy="always", sync_us=sync_us, chaos_ms=9_000)
    for i in range(80):
        args = {"client": "p", "node": 0, "queue": "q", "repl": 1, "retry": 5, "ttl": 60}
        plan.ops.append(Op(100 * i, "add", args))
    thread = shell_of(stopped(plan, SETUP_MS / 1000 + 8.9)).thread
    assert thread is not None
    assert thread.sync_count > 20
    assert (thread.here_count > 0) == is_here
