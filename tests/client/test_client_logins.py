"""A log-in that waits for its turn, by both faces and by the command line (SPEC N6.7)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from client_nodes import Connect, ScriptedNode, Words

from tuque.client.transport.raw_link import Link, LinkError, Target
from tuque.errors import NoAuth, NoNode, ReplyError, Timeout


def after(wait_s: float, answer: bytes) -> Callable[[Words], bytes]:
    """An answer that takes its time."""

    def later(words: Words) -> bytes:
        time.sleep(wait_s)
        return answer

    return later


def test_a_log_in_has_a_time_of_its_own(connect: Connect, node: ScriptedNode) -> None:
    """N6.7 Clients, workers and the command line wait up to `login_timeout` (15 s) for the reply
    to a log-in, once the node has answered HELLO within `connect_timeout`; the timeout of a call
    does not include this wait.
    """
    url = f"tuque://pw@127.0.0.1:{node.port}/?connect_timeout=0.4&timeout=0.4"
    node.answers["AUTH"] = after(0.6, b"-ERR invalid password\r\n")
    with pytest.raises(NoAuth):
        connect(url).ping()
    node.answers["AUTH"] = after(0.6, b"+OK\r\n")
    node.answers["PING"] = after(0.2, b"+PONG\r\n")
    assert connect(url).ping() == "PONG"
    assert node.connections == 2


def test_a_log_in_ends_with_its_time(connect: Connect, node: ScriptedNode) -> None:
    node.answers["AUTH"] = None
    url = f"tuque://pw@127.0.0.1:{node.port}/?connect_timeout=0.3&timeout=0.3&login_timeout=0.6"
    began = time.monotonic()
    with pytest.raises((NoNode, Timeout)):
        connect(url).ping()
    assert 0.55 < time.monotonic() - began < 10.0


def test_a_node_that_says_nothing_gets_no_time_for_a_log_in(
    connect: Connect, node: ScriptedNode
) -> None:
    """N6.7 once the node has answered HELLO within `connect_timeout`"""
    node.answers["HELLO"] = None
    began = time.monotonic()
    with pytest.raises((NoNode, Timeout)):
        connect(f"tuque://pw@127.0.0.1:{node.port}/?connect_timeout=0.3&timeout=0.3").ping()
    assert time.monotonic() - began < 10.0
    assert node.count("AUTH") == 0


def test_a_refused_connection_is_told_as_such_before_the_log_in(
    connect: Connect, node: ScriptedNode
) -> None:
    """N6.5 a further one gets `-ERR too many connections of your address have not logged in`"""
    node.answers["HELLO"] = b"-ERR too many connections of your address have not logged in\r\n"
    node.answers["AUTH"] = ScriptedNode.CLOSE
    with pytest.raises(ReplyError, match="too many connections of your address"):
        connect(f"tuque://pw@127.0.0.1:{node.port}").ping()


def test_the_command_line_waits_as_well(node: ScriptedNode) -> None:
    """N6.7 The client, and with it the worker and the command line"""
    target = Target("127.0.0.1", node.port, "", "pw", "")
    node.answers["AUTH"] = after(0.6, b"-ERR invalid password\r\n")
    with pytest.raises(LinkError, match="refused the password: ERR invalid password"):
        Link(target, 0.4).open()
    node.answers["AUTH"] = after(0.6, b"+OK\r\n")
    node.answers["QLEN"] = None
    link = Link(target, 0.4)
    link.open()
    began = time.monotonic()
    with pytest.raises(LinkError):
        link.call([b"QLEN", b"q"])
    assert time.monotonic() - began < 10.0, "a command has the usual time"
    link.close()
    node.answers["HELLO"] = b"-ERR max number of clients reached\r\n"
    node.answers["AUTH"] = ScriptedNode.CLOSE
    with pytest.raises(LinkError, match="max number of clients reached"):
        Link(target, 1.0).open()
