"""How both faces behave towards a node that fails in every way, played by a scripted one."""

from __future__ import annotations

import gc
import logging
import socket
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from client_nodes import ADDED, FAST, ID, Connect, Face, ScriptedNode, hello_of, in_turn

from own_log import own_records
from quick import is_quick
from tuque import Client, Job, Retry, aio
from tuque.client.url import Address
from tuque.errors import (
    Closed,
    Conflict,
    ConnectionError,
    Error,
    Leaving,
    Loading,
    MaxClients,
    MaxLen,
    NoAuth,
    NoJob,
    NoNode,
    NoPerm,
    ProtocolError,
    ReplyError,
    Timeout,
)


def test_one_connection_serves_call_after_call(connect: Connect, node: ScriptedNode) -> None:
    client = connect(node.url)
    assert [client.ping() for _ in range(5)] == ["PONG"] * 5
    assert node.connections == 1
    assert client.node == f"127.0.0.1:{node.port}"


def test_login_and_name_come_first(connect: Connect, node: ScriptedNode) -> None:
    node.answers |= {"AUTH": b"+OK\r\n", "CLIENT": b"+OK\r\n"}
    connect(f"tuque://me:pw@127.0.0.1:{node.port}/?name=w1").ping()
    assert node.asked == [
        [b"HELLO"],
        [b"AUTH", b"me", b"pw"],
        [b"CLIENT", b"SETNAME", b"w1"],
        [b"HELLO"],
        [b"PING"],
    ]


def test_a_wrong_password_is_not_tried_again(connect: Connect, node: ScriptedNode) -> None:
    node.answers["AUTH"] = b"-ERR invalid password\r\n"
    with pytest.raises(NoAuth) as caught:
        connect(f"tuque://pw@127.0.0.1:{node.port}").ping()
    assert node.connections == 1
    assert caught.value.node == f"127.0.0.1:{node.port}"


def test_a_silent_node_times_out(connect: Connect, node: ScriptedNode) -> None:
    node.answers["QLEN"] = None
    client = connect(node.url, timeout=0.4)
    client.ping(timeout=30)  # connected: the time is that of the call alone
    began = time.monotonic()
    with pytest.raises(Timeout) as caught:
        client.qlen("q")
    assert 0.35 < time.monotonic() - began < 10.0
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.retryable
    node.answers["QLEN"] = b":7\r\n"
    # the late answer to the first call cannot be taken for this one
    assert client.qlen("q", timeout=30) == 7
    assert node.connections == 2


def test_a_call_may_bring_its_own_timeout(connect: Connect, node: ScriptedNode) -> None:
    node.answers["QLEN"] = None
    client = connect(node.url, timeout=60.0)
    client.ping()  # connected: the time is that of the call alone
    with pytest.raises(Timeout):
        client.qlen("q", timeout=0.1)


def test_an_unanswered_addjob_may_have_been_executed(connect: Connect, node: ScriptedNode) -> None:
    node.answers["ADDJOB"] = ScriptedNode.CLOSE
    client = connect(node.url, retry=FAST)
    with pytest.raises(Closed) as caught:
        client.addjob("q", "b")
    assert node.count("ADDJOB") == 1
    assert not caught.value.retryable


def test_an_unanswered_read_is_sent_again(connect: Connect, node: ScriptedNode) -> None:
    node.answers["QLEN"] = in_turn(b"", b"", b":3\r\n")
    assert connect(node.url, retry=FAST).qlen("q") == 3
    assert node.count("QLEN") == 3


def test_retries_end_at_their_count(connect: Connect, node: ScriptedNode) -> None:
    node.answers["QLEN"] = ScriptedNode.CLOSE
    with pytest.raises(Closed):
        connect(node.url + "/?retries=2").qlen("q")
    assert node.count("QLEN") == 3


def test_nobody_there(connect: Connect, node: ScriptedNode) -> None:
    node.stop()
    client = connect(node.url, retry=Retry(attempts=1, base_s=0.01))
    with pytest.raises(NoNode, match=rf"cannot connect to 127\.0\.0\.1:{node.port}") as caught:
        client.addjob("q", "b")
    assert isinstance(caught.value, ConnectionRefusedError | ConnectionError)
    assert caught.value.retryable


WAITING_CALLS: list[Callable[[Face], object]] = [
    lambda client: client.ping(),
    lambda client: client.addjob("q", "b"),
    lambda client: client.addjob("q", "b", timeout_ms=60_000),
    lambda client: client.getjob("q", timeout_ms=60_000),
    lambda client: client.getjob("q"),
]


@pytest.mark.parametrize("call", WAITING_CALLS)
@pytest.mark.parametrize("kind", ["closed", "full", "mute"])
def test_a_dead_port_takes_no_longer_than_the_timeout(
    connect: Connect, kind: str, call: Callable[[Face], object]
) -> None:
    with socket.socket() as listener, socket.socket() as filler:
        listener.bind(("127.0.0.1", 0))
        if kind != "closed":
            listener.listen(0)
        if kind == "full":  # the backlog is taken: connections are not even established
            filler.connect(listener.getsockname())
        # a refusal must be heard in this time; a silence is heard in any
        timeout, why = (0.3, "Connection refused") if kind == "closed" else (0.1, "in time|timed")
        client = connect(f"tuque://127.0.0.1:{listener.getsockname()[1]}", timeout=timeout)

        def attempt() -> None:
            with pytest.raises(NoNode, match=why):
                call(client)

        assert is_quick(attempt, 4.0)  # the shortest wait that a call asks for is 5 s


def test_a_wait_goes_on_when_its_node_comes_back(connect: Connect, node: ScriptedNode) -> None:
    """A node that had the call is looked for as long as `timeout`, from its loss on."""
    job = f"*1\r\n*3\r\n$1\r\nq\r\n$40\r\n{ID}\r\n$1\r\nb\r\n".encode()

    losses = [ScriptedNode.CLOSE]

    def late_loss(_: list[bytes]) -> bytes:
        if not losses:
            return job
        time.sleep(0.7)
        return losses.pop()

    node.answers["GETJOB"] = late_loss
    client = connect(node.url, timeout=0.6, retry=FAST)
    assert client.getjob("q", timeout_ms=30_000) == [Job("q", ID, b"b")]


def test_a_call_outlives_a_short_absence(connect: Connect, node: ScriptedNode) -> None:
    node.answers["ADDJOB"] = ADDED
    client = connect(node.url)
    assert client.addjob("q", "b") == ID
    node.drop()
    assert client.addjob("q", "b") == ID  # the dead connection was noticed before it was used
    assert node.count("ADDJOB") == 2


def test_reconnects_and_says_so(
    connect: Connect, node: ScriptedNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tuque.client")
    node.answers["QLEN"] = in_turn(b"", b":3\r\n", b":4\r\n")
    client = connect(node.url, retry=FAST)
    assert client.ping() == "PONG"
    assert own_records(caplog) == []
    assert client.qlen("q") == 3
    said = [(r.levelname, r.getMessage().partition(":")[0]) for r in own_records(caplog)]
    assert said == [("WARNING", "connection lost"), ("INFO", "connected again, to node 127.0.0.1")]
    node.drop()
    assert client.qlen("q") == 4
    assert [r.levelname for r in own_records(caplog)] == ["WARNING", "INFO"] * 2


def test_what_a_node_answers_commands_no_terminal_by_way_of_the_log(
    connect: Connect, node: ScriptedNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.answers["HELLO"] = b"-LEAVING \x1b]0;owned\x07 bye\r\n"
    client = connect(node.url, retry=FAST, timeout=0.5)
    with pytest.raises(Error):
        client.qlen("q")
    said = "".join(record.getMessage() for record in caplog.records)
    assert r"\x1b]0;owned\x07 bye" in said and "\x1b" not in said


def test_the_next_host_is_tried_when_one_is_dead(
    connect: Connect, node: ScriptedNode, other_node: ScriptedNode
) -> None:
    node.stop()
    url = f"tuque://127.0.0.1:{node.port},127.0.0.1:{other_node.port}"
    for _ in range(6):
        assert connect(url, retry=Retry(attempts=0)).ping() == "PONG"


def test_a_leaving_node_is_left(
    connect: Connect, node: ScriptedNode, other_node: ScriptedNode
) -> None:
    node.answers["ADDJOB"] = b"-LEAVING This node is leaving the cluster\r\n"
    node.answers["HELLO"] = hello_of(("", node.port, 1), ("127.0.0.1", other_node.port, 1))
    other_node.answers["ADDJOB"] = ADDED
    client = connect(node.url, retry=FAST)
    assert client.addjob("q", "b") == ID
    assert client.addjob("q", "b") == ID
    assert (node.count("ADDJOB"), other_node.count("ADDJOB")) == (1, 2)


def test_a_node_in_conflict_is_left(
    connect: Connect, node: ScriptedNode, other_node: ScriptedNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.answers["ADDJOB"] = b"-CONFLICT another node has the id of this one\r\n"
    node.answers["HELLO"] = hello_of(("", node.port, 1), ("127.0.0.1", other_node.port, 1))
    other_node.answers["ADDJOB"] = ADDED
    client = connect(node.url, retry=FAST)
    assert client.addjob("q", "b") == ID
    assert client.addjob("q", "b") == ID
    assert (node.count("ADDJOB"), other_node.count("ADDJOB")) == (1, 2)
    said = [record.getMessage() for record in caplog.records]
    assert any("says that another node has its id: looking for another one" in one for one in said)
    with pytest.raises(Conflict) as caught:
        connect(node.url, retry=Retry(attempts=0)).addjob("q", "b")
    assert caught.value.retryable


def test_a_node_that_says_it_leaves_is_not_taken(
    connect: Connect, node: ScriptedNode, other_node: ScriptedNode
) -> None:
    node.answers["HELLO"] = hello_of(("", node.port, 100), ("127.0.0.1", other_node.port, 1))
    assert connect(node.url).ping() == "PONG"
    assert (node.count("PING"), other_node.count("PING")) == (0, 1)


def test_a_leaving_node_without_others_says_so(connect: Connect, node: ScriptedNode) -> None:
    node.answers["GETJOB"] = b"-LEAVING This node is leaving the cluster\r\n"
    with pytest.raises(Leaving):
        connect(node.url + "/?retries=1").getjob("q", timeout_ms=50)
    assert node.count("GETJOB") == 2


def test_a_loading_node_is_waited_for(connect: Connect, node: ScriptedNode) -> None:
    loading = b"-LOADING Disque is loading the dataset in memory\r\n"
    node.answers["HELLO"] = in_turn(loading, loading, hello_of(("", node.port, 1)))
    node.answers["ADDJOB"] = in_turn(loading, ADDED)
    assert connect(node.url, retry=FAST).addjob("q", "b") == ID
    node.answers["HELLO"] = loading
    with pytest.raises(Loading):
        connect(node.url + "/?retries=1").ping()


def test_a_full_node_is_tried_again(
    connect: Connect, node: ScriptedNode, other_node: ScriptedNode
) -> None:
    full = b"-ERR max number of clients reached\r\n"
    node.answers["ADDJOB"] = ADDED
    node.answers["HELLO"] = in_turn(full, hello_of(("", node.port, 1)))
    assert connect(node.url, retry=FAST).addjob("q", "b") == ID
    node.answers["HELLO"] = full
    url = f"{node.url},127.0.0.1:{other_node.port}/?retries=0"
    assert connect(url).ping() == "PONG"
    with pytest.raises(MaxClients):
        connect(node.url + "/?retries=1").ping()


def test_a_node_that_is_not_open_to_us(connect: Connect, node: ScriptedNode) -> None:
    node.answers["HELLO"] = b"-DENIED protected mode\r\n"
    with pytest.raises(NoPerm):
        connect(node.url).ping()
    assert node.connections == 1


def test_error_answers_are_typed_and_keep_the_connection(
    connect: Connect, node: ScriptedNode
) -> None:
    node.answers["ADDJOB"] = b"-MAXLEN Queue is already longer\r\n"
    node.answers["WORKING"] = b"-NOJOB Job not known in the context of this node.\r\n"
    client = connect(node.url)
    with pytest.raises(MaxLen) as refused:
        client.addjob("q", "b")
    assert (refused.value.retryable, refused.value.node) == (True, client.node)
    with pytest.raises(NoJob) as unknown:
        client.working(ID)
    assert unknown.value.job_id == ID
    with pytest.raises(ReplyError, match="unknown command"):
        client.execute("NOSUCH")
    assert node.connections == 1


def test_a_stranger_on_the_port(connect: Connect, node: ScriptedNode) -> None:
    node.answers["HELLO"] = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with pytest.raises(ProtocolError, match="does not speak RESP"):
        connect(node.url).ping()


def test_too_many_answers(connect: Connect, node: ScriptedNode) -> None:
    node.answers["QLEN"] = in_turn(b":1\r\n:2\r\n", b":5\r\n")
    client = connect(node.url, retry=FAST)
    with pytest.raises(ProtocolError):
        client.qlen("q")
    assert client.qlen("q") == 5


def test_getjob_waits_on_a_connection_of_its_own(connect: Connect, node: ScriptedNode) -> None:
    node.answers["GETJOB"] = f"*1\r\n*3\r\n$1\r\nq\r\n$40\r\n{ID}\r\n$1\r\nb\r\n".encode()
    client = connect(node.url, max_connections=1)
    assert client.getjob("q", timeout_ms=100) == [Job("q", ID, b"b")]
    assert client.ping() == "PONG"
    assert node.connections == 2
    assert client.getjob("q", nohang=True) == [Job("q", ID, b"b")]
    assert node.connections == 2


def test_a_wait_for_ever_is_asked_in_slices(
    connect: Connect, node: ScriptedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sync", "aio"):
        monkeypatch.setattr(f"tuque.client.{module}.runner.SLICE_S", 0.07)
    job = f"*1\r\n*3\r\n$1\r\nq\r\n$40\r\n{ID}\r\n$1\r\nb\r\n".encode()
    node.answers["GETJOB"] = in_turn(b"*-1\r\n", b"*-1\r\n", b"", job)
    client = connect(node.url, retry=FAST)
    assert client.getjob("q") == [Job("q", ID, b"b")]
    waits = [int(words[2]) for words in node.asked if words[0] == b"GETJOB"]
    assert waits[:3] == [70, 70, 70]
    assert 1 <= waits[3] <= 70


def test_a_wait_outlives_a_link_that_died_without_a_word(
    connect: Connect, node: ScriptedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sync", "aio"):
        monkeypatch.setattr(f"tuque.client.{module}.runner.SLICE_S", 0.05)
    job = f"*1\r\n*3\r\n$1\r\nq\r\n$40\r\n{ID}\r\n$1\r\nb\r\n".encode()
    node.answers["GETJOB"] = in_turn(None, None, job)
    client = connect(node.url, timeout=0.3)
    assert client.getjob("q") == [Job("q", ID, b"b")]
    assert node.connections == 3
    node.answers["GETJOB"] = None
    with pytest.raises(Timeout):
        client.getjob("q", timeout_ms=20)


def test_a_wait_ends_when_its_time_is_over(connect: Connect, node: ScriptedNode) -> None:
    def later(words: list[bytes]) -> bytes:
        time.sleep(int(words[2]) / 1000)
        return b"*-1\r\n"

    node.answers["GETJOB"] = later
    assert connect(node.url).getjob("q", timeout_ms=60) == []
    assert node.count("GETJOB") == 1


def test_shutdown_is_answered_by_the_end(connect: Connect, node: ScriptedNode) -> None:
    node.answers["SHUTDOWN"] = ScriptedNode.CLOSE
    assert connect(node.url).shutdown() is None
    node.answers["SHUTDOWN"] = b"-ERR Errors trying to SHUTDOWN. Check logs.\r\n"
    with pytest.raises(ReplyError, match="Check logs"):
        connect(node.url).shutdown()


def test_scans_follow_the_cursor(connect: Connect, node: ScriptedNode) -> None:
    pages = {
        b"0": b"*2\r\n$1\r\n7\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n",
        b"7": b"*2\r\n$1\r\n0\r\n*0\r\n",
    }
    node.answers["QSCAN"] = lambda words: pages[words[1]]
    assert connect(node.url).scanned("qscan", count=2) == ["a", "b"]
    assert node.count("QSCAN") == 2


def test_a_scan_goes_on_when_another_call_has_lost_its_connection(
    connect: Connect, node: ScriptedNode
) -> None:
    client = connect(node.url)

    def second(words: list[bytes]) -> bytes:
        client.client._on_lost(Address("127.0.0.1", node.port), Closed("cut"), 0.0)
        return b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\nb\r\n"

    first = b"*2\r\n$1\r\n7\r\n*1\r\n$1\r\na\r\n"
    node.answers["QSCAN"] = lambda words: first if words[1] == b"0" else second(words)
    assert client.scanned("qscan") == ["a", "b"]
    assert node.count("QSCAN") == 2


def test_a_scan_starts_again_on_another_node(
    connect: Connect, node: ScriptedNode, other_node: ScriptedNode
) -> None:
    node.answers["HELLO"] = hello_of(("", node.port, 1), ("127.0.0.1", other_node.port, 1))
    node.answers["QSCAN"] = in_turn(b"*2\r\n$1\r\n7\r\n*1\r\n$1\r\na\r\n", b"")
    pages = {b"7": b"-ERR another node's cursor\r\n", b"0": b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\nz\r\n"}
    other_node.answers["QSCAN"] = lambda words: pages[words[1]]
    assert connect(node.url, retry=FAST).scanned("qscan") == ["a", "z"]


# Pipelines


def test_a_pipeline_goes_out_at_once_and_comes_back_typed(
    connect: Connect, node: ScriptedNode
) -> None:
    node.answers |= {"ADDJOB": ADDED, "QLEN": b":4\r\n"}
    client = connect(node.url)
    asked = (("addjob", "q", "b"), ("qlen", "q"), ("ping",), ("execute_command", "QLEN", "q"))
    assert client.piped(*asked) == [ID, 4, "PONG", 4]
    assert client.piped() == []


def test_errors_in_a_pipeline(connect: Connect, node: ScriptedNode) -> None:
    node.answers |= {"ADDJOB": b"-MAXLEN full\r\n", "WORKING": b"-NOJOB no\r\n", "QLEN": b"+x\r\n"}
    client = connect(node.url)
    asked = (("ping",), ("addjob", "q", "b"), ("working", ID), ("qlen", "q"), ("ping",))
    results = client.piped(*asked, raise_on_error=False)
    assert [type(r) for r in results] == [str, MaxLen, NoJob, ProtocolError, str]
    assert results[2].job_id == ID
    with pytest.raises(MaxLen) as caught:
        client.piped(*asked)
    assert caught.value.__notes__ == ["call 2 of 5 of a pipeline: ADDJOB"]


def test_a_pipeline_cut_short(connect: Connect, node: ScriptedNode) -> None:
    node.answers["ADDJOB"] = in_turn(ADDED, ADDED, b"")
    results = connect(node.url, retry=FAST).piped(
        *[("addjob", "q", "b")] * 3, ("qlen", "q"), raise_on_error=False
    )
    assert results[:2] == [ID, ID]
    assert [type(r) for r in results[2:]] == [Closed, Closed]
    assert [r.retryable for r in results[2:]] == [False, True]
    assert node.count("ADDJOB") == 3


@pytest.mark.parametrize("answered", [1000, 0])
def test_a_long_pipeline_cut_short_says_what_was_not_sent(
    connect: Connect, node: ScriptedNode, answered: int
) -> None:
    node.answers["ADDJOB"] = in_turn(*[ADDED] * answered, b"")
    asked = [("addjob", "q", "b")] * 2500
    results = connect(node.url, retry=FAST).piped(*asked, raise_on_error=False)
    assert results[:answered] == [ID] * answered
    lost, unsent = results[answered : answered + 1000], results[answered + 1000 :]
    assert {(type(one), one.may_be_done, one.retryable) for one in lost} == {(Closed, True, False)}
    known = {(type(one), one.may_be_done, one.retryable) for one in unsent}
    assert known == {(Closed, False, True)}
    assert str(unsent[0]).startswith("not sent: ")


def test_a_pipeline_of_reads_goes_on_where_it_was_cut(connect: Connect, node: ScriptedNode) -> None:
    node.answers["QLEN"] = in_turn(b":1\r\n", b":2\r\n", b"", b":3\r\n", b":4\r\n")
    assert connect(node.url, retry=FAST).piped(*[("qlen", "q")] * 4) == [1, 2, 3, 4]
    assert node.count("QLEN") == 5


def test_a_long_pipeline_goes_in_batches(connect: Connect, node: ScriptedNode) -> None:
    node.answers["ADDJOB"] = ADDED
    assert connect(node.url).piped(*[("addjob", "q", "b")] * 2500) == [ID] * 2500
    big = b"x" * 700_000
    assert connect(node.url).piped(*[("addjob", "q", big)] * 3) == [ID] * 3


def test_a_pipeline_refuses_to_wait_for_ever(connect: Connect, node: ScriptedNode) -> None:
    with pytest.raises(ValueError, match="timeout_ms"):
        connect(node.url).piped(("getjob", "q"))


# Lifetimes


def test_close_is_final_and_may_be_repeated(connect: Connect, node: ScriptedNode) -> None:
    client = connect(node.url)
    client.ping()
    client.close()
    client.close()
    if client.kind == "sync":
        with pytest.raises(Closed, match="this client is closed"):
            client.ping()


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_an_unclosed_client_warns(node: ScriptedNode, kind: str) -> None:
    def leave_open() -> None:
        if kind == "sync":
            Client(node.url).ping()
        else:
            import asyncio

            async def ask() -> None:
                await aio.Client(node.url).ping()

            asyncio.run(ask())

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        leave_open()
        gc.collect()
    port = node.url.rsplit(":", 1)[1]  # other tests of this process may have left theirs open
    ours = [
        w for w in caught if "unclosed <tuque.client" in str(w.message) and port in str(w.message)
    ]
    assert [w.category for w in ours] == [ResourceWarning]


def test_a_client_never_used_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Client()
        aio.Client()
        gc.collect()


def test_unused_arguments_are_errors(connect: Connect, node: ScriptedNode) -> None:
    options: dict[str, Any] = {"no_such": 1}
    with pytest.raises(TypeError):
        connect(node.url).addjob("q", "b", **options)


@pytest.fixture
def long_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection counts as one that has not been used for long."""
    monkeypatch.setattr("tuque.client.sync.runner.IDLE_S", 0.0)
    monkeypatch.setattr("tuque.client.aio.runner.IDLE_S", 0.0)


@pytest.mark.usefixtures("long_unused")
def test_an_idle_connection_proves_itself(connect: Connect, node: ScriptedNode) -> None:
    """U14.1 A connection that was not used for 5 s proves itself before a call"""
    node.answers["QLEN"] = b":7\r\n"
    client = connect(node.url)
    assert [client.qlen("q") for _ in range(2)] == [7, 7]
    assert node.connections == 1
    assert [words[0] for words in node.asked] == [b"HELLO", b"QLEN", b"PING", b"QLEN"]


@pytest.mark.usefixtures("long_unused")
def test_a_forgotten_connection_costs_a_second_and_no_doubt(
    connect: Connect, node: ScriptedNode
) -> None:
    """U14.1 Else the call goes over a new connection."""
    node.answers |= {"ADDJOB": ADDED, "PING": None}
    client = connect(node.url)
    assert client.addjob("q", b"b") == ID
    began = time.monotonic()
    assert client.addjob("q", b"b") == ID
    assert 0.95 < time.monotonic() - began < 10.0
    assert node.connections == 2
    assert [words[0] for words in node.asked].count(b"ADDJOB") == 2


@pytest.mark.usefixtures("long_unused")
def test_a_refused_ping_is_proof(connect: Connect, node: ScriptedNode) -> None:
    """U14.1 any reply within 1 s, also an error, is the proof."""
    node.answers |= {"QLEN": b":7\r\n", "PING": b"-NOPERM no right\r\n"}
    client = connect(node.url)
    assert [client.qlen("q") for _ in range(2)] == [7, 7]
    assert node.connections == 1
