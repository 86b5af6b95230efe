"""Calls that change something and get no answer: when they are sent again, and what is said."""

from __future__ import annotations

import pytest
from client_nodes import ADDED, FAST, ID, Connect, ScriptedNode, hello_of, in_turn

from tuque import Retry
from tuque.errors import Closed, NoNode


def test_an_error_says_whether_the_call_may_be_done(connect: Connect, node: ScriptedNode) -> None:
    node.answers |= {"ADDJOB": ScriptedNode.CLOSE, "QLEN": ScriptedNode.CLOSE}
    client = connect(node.url, retry=Retry(attempts=0))
    with pytest.raises(Closed, match=r"\(no answer came: it may have been done\)$") as caught:
        client.addjob("q", "b")
    assert caught.value.may_be_done
    with pytest.raises(Closed, match="it closed the connection$") as read:
        client.qlen("q")
    assert not read.value.may_be_done
    node.stop()
    with pytest.raises(NoNode) as unsent:
        client.addjob("q", "b")
    assert not unsent.value.may_be_done


def test_an_addjob_with_a_key_is_sent_again(connect: Connect, node: ScriptedNode) -> None:
    node.answers["ADDJOB"] = in_turn(b"", b"", ADDED)
    client = connect(node.url, retry=FAST)
    assert client.addjob("q", "b", dedupe="order 7") == ID
    assert node.count("ADDJOB") == 3
    assert len({tuple(words) for words in node.asked if words[0] == b"ADDJOB"}) == 1


def test_an_addjob_with_a_key_is_sent_again_to_its_node_only(
    connect: Connect, node: ScriptedNode, other_node: ScriptedNode
) -> None:
    """Another node does not know the key: it would add a second job."""
    node.answers["HELLO"] = hello_of(("", node.port, 1), ("127.0.0.1", other_node.port, 1))
    node.answers["ADDJOB"] = ScriptedNode.CLOSE
    other_node.answers["ADDJOB"] = ADDED
    client = connect(node.url, retry=Retry(attempts=4, base_s=0.01))
    with pytest.raises(Closed, match="it may have been done") as caught:
        client.addjob("q", "b", dedupe="order 7")
    assert (caught.value.may_be_done, caught.value.retryable) == (True, False)
    assert (node.count("ADDJOB"), other_node.count("ADDJOB")) == (5, 0)
