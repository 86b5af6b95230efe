"""Signal handlers that raise while a client for threads runs a call (SPEC U14)."""

from __future__ import annotations

import gc
import itertools
import linecache
import opcode
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from client_nodes import ADDED, ScriptedNode

import tuque.client
from lab import RealServer
from tuque import Client
from tuque.client.transport import sockets
from tuque.errors import Closed, NoNode, ReplyError, Timeout
from until import until

HOME = str(Path(tuque.client.__file__).parent)
NO_JOB = b"*-1\r\n"

# Sockets that the standard library held when the exception came: the collector closes them.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning",
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
)


class Stop(Exception):
    """What the signal handler raises."""


def is_safe(frame: FrameType) -> bool:
    """Whether no handler runs before this line: the interpreter takes signals after calls, at
    jumps back and where a function begins. So not between the body of a `with` or `try` and the
    first call after it.
    """
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    name = opcode.opname[frame.f_code.co_code[frame.f_lasti]]
    begins_with = name in ("LOAD_FAST", "LOAD_GLOBAL", "PUSH_NULL")
    return (line.startswith("with ") and not begins_with) or line.startswith("claim.is_over =")


def is_interrupted(
    call: Callable[[], object],
    number: int,
    kept: list[Exception] | None = None,
    raised: Exception | None = None,
) -> bool:
    """Raises at that line, counted from 1, of the client's code; False if there are fewer.

    `kept` gets the exception, whose traceback keeps what the call had.
    """
    left = number
    stop = raised or Stop()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        if event == "line" and not is_safe(frame):
            left -= 1
            if left == 0:
                raise stop
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except type(stop) as ended:
        assert ended is stop, f"another one at line {number}"
        if kept is not None:
            kept.append(stop)
        else:
            stop.__traceback__ = None  # which has `trace`, and so the exception
        return True
    finally:
        sys.settrace(before)
    assert left > 0, "the exception was lost"
    return False


def pipeline(client: Client) -> None:
    with client.pipeline() as pipe:
        pipe.execute_command("FIRST")
        pipe.execute_command("SECOND")


def on_a_new_connection(client: Client) -> None:
    client._close_idle()
    client.ping()


def refused(client: Client) -> None:
    with suppress(ReplyError):
        client.execute("NOTHING")


CALLS: dict[str, Callable[[Client], object]] = {
    "add": lambda client: client.addjob("q", "one"),
    "get": lambda client: client.getjob("q", nohang=True),
    "get_that_waits": lambda client: client.getjob("q", timeout_ms=10),
    "pipeline": pipeline,
    "on_a_new_connection": on_a_new_connection,
    "refused": refused,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_may_end_at_any_line(node: ScriptedNode, name: str) -> None:
    """U14.8 A signal handler may raise while a client for threads runs a call: the call ends, and
    its place in the pool is free for the next one. Its connection is closed, unless the reply had
    come in full.
    """
    both = threading.Barrier(2)  # is passed by two calls at once only
    node.answers["QLEN"] = lambda words: b":1\r\n" if both.wait(10) >= 0 else None
    node.answers |= {"ADDJOB": ADDED, "GETJOB": NO_JOB, "FIRST": None, "SECOND": b"+1\r\n+2\r\n"}
    with Client(node.url, max_connections=2) as client, ThreadPoolExecutor(2) as threads:
        for number in itertools.count(1):
            is_over = not is_interrupted(lambda: CALLS[name](client), number)
            assert list(threads.map(lambda queue: client.qlen(queue, timeout=5), "ab")) == [1, 1]
            until(lambda: len(node._open) <= 3)  # one of them for calls that wait
            if is_over:
                break
    assert number > 100


def test_who_waits_gets_the_place_of_a_call_that_ends_at_any_line(
    node: ScriptedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U14.8 the call ends, and its place in the pool is free for the next one."""
    monkeypatch.setattr(sockets, "CHECK_S", 0.02)
    waits: list[Future[str]] = []
    kept: list[Exception] = []
    with Client(node.url, max_connections=1) as client, ThreadPoolExecutor(1) as threads:

        def answer(words: list[bytes]) -> bytes:
            waiting = threads.submit(client.ping, timeout=5)
            until(lambda: client._pool._slots._waiting or waiting.done())
            waits.append(waiting)
            return b":1\r\n"

        node.answers["QLEN"] = answer
        client.ping()
        seen = 0
        for number in itertools.count(1):
            is_over = not is_interrupted(lambda: client.qlen("q"), number, kept)
            while waits:
                assert waits.pop().result(10) == "PONG"
                seen += 1
            assert client.ping(timeout=5) == "PONG"
            if is_over:
                break
    assert seen > 50


def test_who_waits_may_end_at_any_line(node: ScriptedNode) -> None:
    """U14.8 A signal handler may raise while a client for threads runs a call: the call ends, and
    its place in the pool is free for the next one.
    """
    opened = threading.Event()
    kept: list[Exception] = []
    node.answers["QLEN"] = lambda words: b":1\r\n" if opened.wait(10) else None

    def wait(client: Client) -> None:
        with suppress(Timeout):
            client.ping(timeout=0.005)

    with Client(node.url, max_connections=1) as client, ThreadPoolExecutor(1) as threads:
        held = threads.submit(client.qlen, "q")
        until(lambda: node.count("QLEN") == 1)
        for number in itertools.count(1):
            if not is_interrupted(lambda: wait(client), number, kept):
                break
        assert number > 50
        opened.set()
        assert held.result(10) == 1
        assert client.ping() == "PONG"
        assert node.connections == 1


@pytest.mark.parametrize("kind", [TimeoutError, Closed])
@pytest.mark.parametrize("name", ["get_that_waits", "on_a_new_connection"])
def test_an_error_of_the_handler_is_none_of_the_connection(
    node: ScriptedNode, name: str, kind: type[Exception]
) -> None:
    """U14.8 The call raises that exception, also an OSError or an error of Tuque, and is not tried
    again.
    """
    node.answers["GETJOB"] = NO_JOB
    with Client(node.url) as client:
        for number in itertools.count(1):
            is_over = not is_interrupted(lambda: CALLS[name](client), number, None, kind("stop"))
            assert client.ping(timeout=5) == "PONG"
            if is_over:
                break
    assert number > 100


@pytest.fixture
def alarms() -> Iterator[Callable[[Exception, float], None]]:
    """Sets a handler of SIGALRM that raises the exception, after that many seconds.

    No finalizer of what other tests have left runs then: it would swallow the exception.
    """
    gc.collect()
    gc.disable()
    before = signal.getsignal(signal.SIGALRM)

    def after(error: Exception, delay_s: float) -> None:
        def end(*_: object) -> None:
            raise error

        signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, delay_s)

    yield after
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    gc.enable()


@pytest.mark.parametrize(
    "kind",
    [
        OSError,
        TimeoutError,
        ConnectionResetError,
        BrokenPipeError,
        InterruptedError,
        BlockingIOError,
        Timeout,
        Closed,
        NoNode,
    ],
)
def test_an_alarm_ends_a_call_that_waits(
    node: ScriptedNode, alarms: Callable[[Exception, float], None], kind: type[Exception]
) -> None:
    """U14.8 The call raises that exception, also an OSError or an error of Tuque, and is not tried
    again.
    """
    node.answers["GETJOB"] = node.SILENCE
    error = kind("time is over")
    with Client(node.url, max_connections=1) as client:
        for delay_s in (0.0001, 0.0005, 0.001, 0.01, 0.1):
            with pytest.raises(kind) as caught:
                alarms(error, delay_s)
                client.getjob("nothing", timeout_ms=2000, timeout=1)
            assert caught.value is error
            assert client.ping() == "PONG"
        assert node.count("GETJOB") <= 5


def test_an_alarm_ends_a_connect_that_waits(
    alarms: Callable[[Exception, float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """U14.8 The call raises that exception, also an OSError or an error of Tuque, and is not tried
    again.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        place = full.getsockname()
        two = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place)] * 2
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: two)
        error = TimeoutError("time is over")
        with socket.create_connection(place), Client(f"tuque://two:{place[1]}") as client:
            with pytest.raises(TimeoutError) as caught:
                alarms(error, 0.1)
                client.ping(timeout=1)
            assert caught.value is error


SIGNALS = """
import random, signal, sys
from tuque import Client
class Stop(Exception): pass
raised, kept = 0, []
def stop(*_):
    global raised
    raised += 1
    raise Stop
signal.signal(signal.SIGALRM, stop)
rng = random.Random(1)
client = Client(sys.argv[1], max_connections=1, timeout=5)
while raised < 1_000:
    try:
        was = raised
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.00002, 0.001))
        while raised == was:
            client.addjob("interrupted", "one", ttl=5)
            client.getjob("interrupted", nohang=True)
    except Stop as stopped:
        kept.append(stopped)
print(client.ping())
"""


def test_handlers_that_raise_use_up_no_place(real_node: RealServer) -> None:
    """U14.8 the call ends, and its place in the pool is free for the next one."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SIGNALS, real_node.url],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "PONG\n"), done.stderr
