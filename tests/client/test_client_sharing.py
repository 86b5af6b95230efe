"""Sharing a client (SPEC U14): threads, tasks, forks, loops, a bounded pool; TLS, unix sockets."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from client_nodes import ID, Connect, ScriptedNode

from certificates import Authority, needs_openssl
from quick import is_quick
from tuque import Client, aio
from tuque.client.aio.runner import Pool as AsyncPool
from tuque.client.sync.runner import Pool
from tuque.client.transport.face import Claim
from tuque.client.transport.sockets import Link
from tuque.client.transport.streams import Link as AsyncLink
from tuque.errors import NoNode, Timeout
from until import until


class Gate:
    """An answer that is held until the gate opens; counts who stands before it."""

    def __init__(self, answer: bytes) -> None:
        self.waiting = 0
        self.most = 0
        self._answer = answer
        self._lock = threading.Lock()
        self._opened = threading.Event()

    def __call__(self, words: list[bytes]) -> bytes:
        with self._lock:
            self.waiting += 1
            self.most = max(self.most, self.waiting)
        self._opened.wait(10)
        with self._lock:
            self.waiting -= 1
        return self._answer

    def open(self) -> None:
        self._opened.set()


def in_threads(count: int, work: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_threads_share_a_bounded_pool(node: ScriptedNode) -> None:
    gate = Gate(b":1\r\n")
    node.answers["QLEN"] = gate
    got: list[int] = []
    with Client(node.url, max_connections=3) as client:
        threads = in_threads(8, lambda: got.append(client.qlen("q")))
        until(lambda: gate.waiting == 3)
        gate.open()
        for thread in threads:
            thread.join(10)
    assert got == [1] * 8
    assert (gate.most, node.connections) == (3, 3)


def test_a_thread_waits_for_a_connection_only_so_long(node: ScriptedNode) -> None:
    gate = Gate(b":1\r\n")
    node.answers["QLEN"] = gate
    with Client(node.url, max_connections=1) as client:
        (thread,) = in_threads(1, lambda: client.qlen("q"))
        until(lambda: gate.waiting == 1)
        with pytest.raises(Timeout, match="stayed busy") as caught:
            client.ping(timeout=0.1)
        assert caught.value.retryable
        gate.open()
        thread.join(10)
        assert client.ping() == "PONG"


def test_blocked_getjobs_do_not_use_up_the_pool(node: ScriptedNode) -> None:
    gate = Gate(b"*-1\r\n")
    node.answers["GETJOB"] = gate
    with Client(node.url, max_connections=1) as client:
        threads = in_threads(3, lambda: client.getjob("q", timeout_ms=20))
        until(lambda: gate.waiting == 3)
        assert client.ping() == "PONG"
        gate.open()
        for thread in threads:
            thread.join(10)


def test_tasks_share_a_bounded_pool(node: ScriptedNode) -> None:
    gate = Gate(b":1\r\n")
    node.answers["QLEN"] = gate

    async def ask() -> list[int]:
        async with aio.Client(node.url, max_connections=3) as client:
            asked = [asyncio.create_task(client.qlen("q")) for _ in range(8)]
            await asyncio.to_thread(until, lambda: gate.waiting == 3)
            with pytest.raises(Timeout, match="stayed busy"):
                await client.ping(timeout=0.1)
            gate.open()
            return await asyncio.gather(*asked)

    assert asyncio.run(ask()) == [1] * 8
    assert gate.most == 3


def test_a_cancelled_task_gives_its_place_back(node: ScriptedNode) -> None:
    gate = Gate(b":1\r\n")
    node.answers["QLEN"] = gate

    async def ask() -> None:
        async with aio.Client(node.url, max_connections=1) as client:
            first = asyncio.create_task(client.qlen("q"))
            await asyncio.to_thread(until, lambda: gate.waiting == 1)
            waiting = [asyncio.create_task(client.ping()) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            first.cancel()
            assert await waiting[1] == await waiting[2] == "PONG"
            for task in (first, waiting[0]):
                with pytest.raises(asyncio.CancelledError):
                    await task

    asyncio.run(ask())
    gate.open()


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
def test_an_aio_client_moves_to_another_loop(node: ScriptedNode) -> None:
    client = aio.Client(node.url)
    assert [asyncio.run(client.ping()) for _ in range(2)] == ["PONG", "PONG"]
    assert node.connections == 2
    asyncio.run(client.close())


def test_a_slot_granted_too_late_is_passed_on() -> None:
    pool = Pool(1)
    first, late, after, more = [Claim[Link]() for _ in range(4)]
    pool.take(first, 0.0)
    with pytest.raises(Timeout):
        pool.take(late, 0.0)
    pool.give(first)
    assert late.has_slot
    pool.give(late)
    pool.take(after, 0.0)
    with pytest.raises(Timeout):
        pool.take(more, 0.0)


@pytest.mark.parametrize("kind", [Pool, AsyncPool])
def test_a_slot_may_come_back_while_its_thread_takes_another(kind: type[Pool]) -> None:
    """As when the garbage collector closes what holds a connection."""
    pool = kind(None)
    with pool._lock:
        assert pool._lock.acquire(blocking=False)
        pool._lock.release()


@pytest.mark.parametrize("granted_first", [True, False])
def test_a_slot_granted_to_a_cancelled_task_is_passed_on(granted_first: bool) -> None:
    async def race() -> None:
        pool = AsyncPool(1)
        first, second, after, more = [Claim[AsyncLink]() for _ in range(4)]

        async def call() -> None:
            try:
                await pool.take(second, time.monotonic() + 10)
            finally:
                pool.give(second)

        await pool.take(first, 0.0)
        waiting = asyncio.create_task(call())
        await asyncio.sleep(0)
        steps: list[Callable[[], object]] = [lambda: pool.give(first), waiting.cancel]
        for step in steps if granted_first else reversed(steps):
            step()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await pool.take(after, time.monotonic() + 1)
        with pytest.raises(Timeout):
            await pool.take(more, 0.0)

    asyncio.run(race())


@pytest.mark.parametrize("has_pid_of_parent", [False, True])
def test_a_forked_child_uses_connections_of_its_own(
    node: ScriptedNode, monkeypatch: pytest.MonkeyPatch, has_pid_of_parent: bool
) -> None:
    """U14.3 A process that was forked uses no connection of its parent: it makes its own, also if
    it has the pid of its parent. It holds none of them open, and what it closes or ends does not
    stop its parent from hearing.
    """
    if has_pid_of_parent:  # as the first process of a container
        monkeypatch.setattr(os, "getpid", lambda: 1)
    with Client(node.url) as client:
        client.ping()
        child = os.fork()
        if child == 0:
            ok = client.ping() == "PONG"
            client.close()
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert client.ping() == "PONG"
    assert node.connections == 2


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_forked_child_holds_no_connection_open(node: ScriptedNode, kind: str) -> None:
    """U14.3 It holds none of them open: the node sees their end while the child lives."""
    read, write = os.pipe()

    def forked() -> int:
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        return child

    async def ask() -> int:
        async with aio.Client(node.url) as client:
            await client.ping()
            return forked()

    if kind == "asyncio":
        child = asyncio.run(ask())
    else:
        with Client(node.url) as client:
            client.ping()
            child = forked()
    until(lambda: not node._open)
    os.close(write)
    assert os.waitpid(child, 0)[1] == 0
    os.close(read)


def test_unix_socket(connect: Connect, tmp_path: Path) -> None:
    scripted = ScriptedNode(path=str(tmp_path / "t.sock"))
    try:
        client = connect(scripted.url)
        assert client.ping() == "PONG"
        assert client.node == str(tmp_path / "t.sock")
        with pytest.raises(NoNode, match="cannot connect to"):
            connect(f"tuque+unix://{tmp_path}/none/?retries=0").ping()
    finally:
        scripted.stop()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_tls(connect: Connect, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    scripted = ScriptedNode(tls=context)
    try:
        client = connect(f"{scripted.url}/?cafile={certificate}")
        assert [client.ping() for _ in range(3)] == ["PONG"] * 3
        assert scripted.connections == 1
        with pytest.raises(NoNode, match="certificate"):
            connect(f"{scripted.url}/?retries=0").ping()
    finally:
        scripted.stop()


@needs_openssl
def test_tls_files_that_change(connect: Connect, tmp_path: Path) -> None:
    """X5.3 The client, so a worker too, and the console look at the files of their certificates and
    authorities before each new connection.

    While these cannot be used, what was read before stays in use, and the log says why.
    """
    wanted = {name: tmp_path / name for name in ("ca.pem", "web.pem", "web.key")}

    def renew(number: int) -> ssl.SSLContext:
        """Another authority, which signs anew for the client and the node."""
        place = tmp_path / str(number)
        place.mkdir()
        authority = Authority(place)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.cafile))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(*authority.sign("node"))
        for path, new in zip(
            wanted.values(), (authority.cafile, *authority.sign("web")), strict=True
        ):
            path.write_bytes(new.read_bytes())
        return context

    scripted = ScriptedNode(tls=renew(1))
    try:
        ca, cert, key = wanted.values()
        client = connect(f"{scripted.url}/?cafile={ca}&certfile={cert}&keyfile={key}&retries=0")
        assert client.ping() == "PONG"
        kept = {path: path.read_bytes() for path in wanted.values()}
        scripted.use(renew(2))
        scripted.drop()
        until(lambda: is_served(client))
        key.write_text("nothing")
        scripted.drop()
        until(lambda: is_served(client))
        for path, old in kept.items():
            path.write_bytes(old)
        scripted.drop()
        assert not is_served(client)
        with pytest.raises(NoNode, match="certificate"):
            client.ping()
    finally:
        scripted.stop()


def is_served(client: Client) -> bool:
    """Whether the node replies; the first call may find that it has closed the connection."""
    try:
        return client.ping() == "PONG"
    except ConnectionError:
        return False


def test_a_node_that_takes_no_connections_is_given_up_in_time(connect: Connect) -> None:
    import socket

    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        url = f"tuque://127.0.0.1:{full.getsockname()[1]}/?connect_timeout=0.2&timeout=0.5"

        def attempt() -> None:
            with pytest.raises((NoNode, Timeout)):
                connect(url).ping()

        assert is_quick(attempt, 4.0)  # a call has 5 s unless told otherwise
        for filler in fillers:
            filler.close()


PLACES = {
    "signal handler": "signal.signal(signal.SIGUSR1, ask)\nwith client._joining:\n"
    "    signal.raise_signal(signal.SIGUSR1)",
    "__del__": "class Held:\n    __del__ = ask\nheld = Held()\nheld.me = held\n"
    "del held\ngc.collect()",
    "fork": "if os.fork():\n    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))\nask()",
    "exit": "atexit.register(ask)",
}
SCRIPT = """
import atexit, gc, os, signal, sys
from tuque import Client
from tuque.worker import App
client, app = Client(sys.argv[1]), App(sys.argv[1])
client.ping()
app.client.ping()
def ask(*more):
    with client._joining:
        print(client.ping(), app.client.ping(), flush=True)
"""


@pytest.mark.parametrize("place", PLACES)
def test_where_a_client_may_be_used(node: ScriptedNode, place: str) -> None:
    """U14.5 A client for threads, and an App, may be used in a signal handler, in `__del__`, after
    a fork and at the exit of the program.
    """
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + PLACES[place], node.url],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout) == (0, "PONG PONG\n"), done.stderr


INTERRUPTED = """
import signal, sys
from tuque.client.transport.conn import pack
from tuque import Client
assert "encodings.idna" in sys.modules  # a look-up of a name imports it, in the middle of a call
class Stop(Exception): pass
def stop(*_): raise Stop
signal.signal(signal.SIGALRM, stop)
for i in range(2_000):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.00003 + i % 60 * 0.000001)
        while True:
            pack(("ADDJOB", "q", b"body", 0, "RETRY", 60, "TTL", 3600))
    except Stop:
        pass
print("well")
"""


def test_a_handler_that_raises_while_a_call_is_written_leaves_the_process_alive() -> None:
    """U14.5 A client for threads, and an App, may be used in a signal handler, in `__del__`, after
    a fork and at the exit of the program.
    """
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr


PARENTS_LOOP = "this event loop is the one of the parent process, which hears through it"
AIO_PLACES = {
    "handler_of_the_loop": ["PONG PONG"],
    "signal_handler": ["PONG PONG"],
    "run_in_a_signal_handler": ["asyncio.run() cannot be called from a running event loop"],
    "collected": ["PONG PONG"],
    "collected_beside_a_loop": ["PONG PONG"],
    "forked": ["PONG PONG", "PONG"],
    "forked_and_left_by_exit": ["1"],
    "forked_in_the_loop_of_its_parent": [PARENTS_LOOP, "PONG"],
    "at_exit": ["PONG PONG"],
    "two_loops": ["is in use on another event loop, which runs", "PONG PONG"],
}


@pytest.mark.parametrize("place", AIO_PLACES)
def test_where_a_client_for_asyncio_may_be_used(node: ScriptedNode, place: str) -> None:
    """U14.6 So may a client for asyncio: with `asyncio.run` where no loop runs in the thread, else
    on the loop that runs, for example with `asyncio.run_coroutine_threadsafe`. At the exit it looks
    up a host name without a thread, since none begins any more.

    U14.7 A client for asyncio serves one loop at a time. A call on another one while the first
    runs, or on the loop of the parent after a fork, raises RuntimeError, and nothing is sent.
    """
    is_asked = threading.Event()

    def asked(words: list[bytes]) -> bytes:
        is_asked.set()
        return b":0\r\n"

    job = f"*1\r\n*3\r\n$1\r\nq\r\n${len(ID)}\r\n{ID}\r\n$1\r\nx\r\n".encode()
    node.answers["GETJOB"] = lambda words: job if is_asked.wait(10) else None
    node.answers["QLEN"] = asked
    url = node.url.replace("127.0.0.1", "localhost")
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("aio_places.py"), place, url],
        capture_output=True,
        text=True,
        timeout=30,
    )
    said = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    for line, due in zip(said, AIO_PLACES[place], strict=True):
        assert due in line, (said, done.stderr)
    if place == "forked":
        assert node.connections == 3  # of the parent, and two of the child


def test_the_collector_ends_a_client_whose_loop_sleeps(node: ScriptedNode) -> None:
    """U14.6, in another thread than that of the loop."""
    loop = asyncio.new_event_loop()
    (thread,) = in_threads(1, loop.run_forever)
    client = aio.Client(node.url)
    assert asyncio.run_coroutine_threadsafe(client.ping(), loop).result(10) == "PONG"
    with pytest.warns(ResourceWarning, match="unclosed"):
        del client
        gc.collect()
    until(lambda: not node._open)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()
