"""Calls that change something and get no answer: when they are sent again, and what is said."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from client_nodes import ADDED, FAST, ID, Connect, ScriptedNode, Words, hello_of, in_turn

from tuque import Retry
from tuque.client.commands.calls import Call
from tuque.errors import Closed, NoJob, NoNode, NoReplica
from tuque.wire.commands.rows import ROWS


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


def die(node: ScriptedNode) -> Callable[[Words], bytes]:
    """The node gets the call, and is gone with its reply."""

    def answer(_: Words) -> bytes:
        node.stop()
        return b""

    return answer


EARLIER = r"\(no answer came to an earlier try: it may have been done\)$"


@pytest.mark.parametrize(
    ("call", "is_read"),
    [
        (("done", ID, "1"), False),
        (("fail", ID, "1"), False),
        (("release", (ID, "1")), False),
        (("cancel", ID), False),
        (("ackjob", ID), False),
        (("getjob", "q"), False),
        (("qlen", "q"), True),
        (("show", ID), True),
    ],
)
def test_a_call_that_may_be_repeated_may_be_done_where_no_node_is_left(
    connect: Connect, node: ScriptedNode, call: tuple[object, ...], is_read: bool
) -> None:
    name = str(call[0])
    node.answers[name.upper()] = die(node)
    client = connect(node.url, timeout=0.3, retry=FAST)
    with pytest.raises(NoNode) as caught:
        getattr(client, name)(*call[1:])
    assert (caught.value.may_be_done, caught.value.retryable) == (not is_read, True)
    assert bool(re.search(EARLIER, str(caught.value))) is not is_read


@pytest.mark.parametrize("answered", [0, 1])
def test_so_may_those_of_a_pipeline(connect: Connect, node: ScriptedNode, answered: int) -> None:
    node.answers["QLEN"] = b":7\r\n" if answered else die(node)
    node.answers["DONE"] = die(node)
    client = connect(node.url, timeout=0.3, retry=FAST)
    asked = [("qlen", "q"), ("done", ID, "1"), ("qlen", "q")]
    if not answered:
        with pytest.raises(NoNode, match=EARLIER) as caught:
            client.piped(*asked)
        assert caught.value.may_be_done
        return
    results = client.piped(*asked, raise_on_error=False)
    assert results[0] == 7
    assert [(type(one), one.may_be_done) for one in results[1:]] == [
        (NoNode, True),
        (NoNode, False),
    ]
    assert re.search(EARLIER, str(results[1]))


def test_a_refusal_of_what_was_repeated_may_be_its_own_doing(
    connect: Connect, node: ScriptedNode
) -> None:
    """Its first try may have ended the job that the second one does not find."""
    node.answers["DONE"] = in_turn(ScriptedNode.CLOSE, b"-NOJOB unknown\r\n")
    with pytest.raises(NoJob, match=EARLIER) as caught:
        connect(node.url, retry=FAST).done(ID, "1")
    assert caught.value.may_be_done


def test_the_client_knows_which_commands_only_read() -> None:
    subs = {row.name.split()[0] for row in ROWS if " " in row.name}
    for row in ROWS:
        words = row.name.split()
        call = Call(args=tuple(words), parse=str)
        if "inspect" in row.right.split() and row.name not in (*subs, "TUBE SUBSCRIBE"):
            assert call.reads, row.name
        if "write" in row.flags or {"consume", "produce"} & set(row.right.split()) - {"inspect"}:
            assert call.reads == ("inspect" in row.right.split()), row.name
        if {"dangerous", "admin"} & set(row.right.split()) and call.reads:
            assert row.name in ("TUBE GRANTS", "CLIENT LIST", "CONFIG GET")


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


def test_a_refusal_after_a_lost_reply_is_not_safe_to_repeat(
    connect: Connect, node: ScriptedNode
) -> None:
    """The node that lost the reply may have done it, whatever it says the second time."""
    refused = b"-NOREPL Not enough reachable nodes for the requested replication level\r\n"
    node.answers["ADDJOB"] = in_turn(ScriptedNode.CLOSE, refused)
    words = r"level \(no answer came to an earlier try: it may have been done\)$"
    with pytest.raises(NoReplica, match=words) as caught:
        connect(node.url, retry=FAST).addjob("q", "b", dedupe="order 7")
    assert (caught.value.may_be_done, caught.value.retryable) == (True, False)


@pytest.mark.parametrize("said", [0, 1])
def test_a_job_that_was_met_is_not_new(connect: Connect, node: ScriptedNode, said: int) -> None:
    node.answers["ADDJOB"] = b"*2\r\n" + ADDED + b":%d\r\n" % said
    client = connect(node.url, retry=FAST)
    assert client.addjob_new("q", "b", dedupe="order 7") == (ID, bool(said))


def test_a_call_that_may_have_met_its_own_job_says_that_it_is_new(
    connect: Connect, node: ScriptedNode
) -> None:
    """The reply to the first ADDJOB is lost, and the second one finds the job under its key."""
    old = b"*2\r\n" + ADDED + b":0\r\n"
    node.answers["ADDJOB"] = in_turn(b"", old)
    client = connect(node.url, retry=FAST)
    assert client.addjob_new("q", "b", dedupe="order 7") == (ID, True)
    assert node.count("ADDJOB") == 2
    assert client.addjob_new("q", "b", dedupe="order 7") == (ID, False)


def test_only_what_was_lost_in_a_pipeline_may_be_new(connect: Connect, node: ScriptedNode) -> None:
    old = b"*2\r\n" + ADDED + b":0\r\n"
    node.answers["ADDJOB"] = in_turn(old, b"", old)
    client = connect(node.url, retry=FAST)
    asked = [("addjob_new", "q", "b", {"dedupe": key}) for key in "abc"]
    assert client.piped(*asked) == [(ID, False), (ID, True), (ID, True)]
