"""Clients go to the home of a tube: one call, one that waits, a pipeline, jobs, subscriptions."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from client_nodes import ADDED, FAST, ID, Connect, ScriptedNode, Words, hello_of, in_turn
from hypothesis import example, given
from hypothesis import strategies as st

from lab import free_port
from tuque import Retry
from tuque.client.commands import calls, tubes
from tuque.client.commands import tubes as tube_homes
from tuque.client.commands.calls import Call
from tuque.client.commands.dead import DeadFilters, dead_page, dead_show, dead_stat
from tuque.client.commands.tubes import HomeInfo, TubeCopy, TubeLoss
from tuque.client.routing.leaders import Homes, address_of, tubes_in
from tuque.client.url import Address
from tuque.errors import TUBE_HOME, NoQuorum, ReadOnly, ReplyError, TubeHome, reply_error
from until import until
from world import World

THERE = "has its leader there"
TASK = b"*6\r\n:7\r\n+READY\r\n$1\r\nx\r\n:0\r\n$3\r\nD-1\r\n+bytes\r\n"
THREE = Retry(base_s=0.01, cap_s=0.02, attempts=3)
UUID = "0" * 8 + "-0000-4000-8000-" + "0" * 12


def refusal(port: int, name: str = "t") -> bytes:
    text = f"-TUBEHOME 127.0.0.1:{port} Tube '{name}' has its leader there\r\n"
    return text.encode()


def text_of(session: str) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(session), session.encode())


def tube_answers(answers: dict[bytes, bytes]) -> Callable[[Words], bytes]:
    """Answers by the word after TUBE; IDENTIFY joins what is asked for."""

    def answer(words: Words) -> bytes:
        if words[1] == b"IDENTIFY":
            return text_of(words[2].decode() if len(words) > 2 else UUID)
        return answers[words[1]]

    return answer


def asked(node: ScriptedNode, *words: bytes) -> int:
    return sum(tuple(one[: len(words)]) == words for one in node.asked)


# What is decided


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (tubes.put("t", b"x"), [b"t"]),
        (tubes.take("é"), ["é".encode()]),
        (tube_homes.move("t", "abc"), [b"t"]),
        (tube_homes.take_over("t", "abc"), []),  # is for the node that is asked
        (tubes.tube_list(), []),
        (tubes.tube_state(), []),
        (tubes.identify("u"), []),
        (calls.addjob("q", b"from"), [b"q"]),
        (calls.getjob("q", "r", nohang=True), [b"q", b"r"]),
        (calls.getjob("q", start=True, worker="FROM"), [b"q"]),
        (calls.ackjob("D-1"), []),
        (calls.qlen("q"), [b"q"]),
        (calls.show("D-1"), []),
        (dead_stat("q"), [b"q"]),  # of a tube at its leader (SPEC T48.15)
        (dead_page("q", "0", DeadFilters()), [b"q"]),
        (dead_show("D-1"), []),
    ],
)
def test_which_tubes_a_call_is_about(call: Call[object], names: list[bytes]) -> None:
    assert tubes_in(call) == names


@given(st.text(min_size=1).map(lambda name: name.replace("\r", "").replace("\n", "")))
@example("it's")
@example("' has its leader there")
@example("Tube 'x' has its leader there")
@example("two words")
def test_a_refusal_comes_back_as_it_was_written(name: str) -> None:
    error = reply_error(TUBE_HOME % ("[::1]:7711", name))
    assert isinstance(error, TubeHome)
    assert (error.home, error.tube) == ("[::1]:7711", name)


def test_what_a_refusal_says() -> None:
    error = reply_error("TUBEHOME [::1]:7711 Tube 'it's' has its leader there", node="a:1")
    assert isinstance(error, TubeHome)
    assert (error.home, error.retryable, error.node) == ("[::1]:7711", True, "a:1")
    assert address_of(error.home) == Address("::1", 7711)
    assert error.tube == "it's"
    for text in ("", ":7", "h:", "h:0", "h:65536", "h:x", "h"):
        assert address_of(text) is None
    assert isinstance(reply_error("NOQUORUM Tube 't': this node reaches 1 of 3 nodes"), NoQuorum)
    assert isinstance(reply_error("READONLY This node is read-only"), ReadOnly)


def test_homes_are_kept_until_they_fail() -> None:
    homes = Homes(is_on=True)
    one, two = tubes.put("t", b""), tubes.put("u", b"")
    assert homes.of([one]) is None
    assert homes.told(reply_error("TUBEHOME h:1 Tube 't' has its leader there")) == ("h", 1)
    assert homes.of([one, one]) == ("h", 1)
    assert homes.of([one, two]) is None
    assert homes.of([one, calls.ackjob("D-1")]) is None
    homes.told(reply_error("TUBEHOME h:1 Tube 'u' has its leader there"))
    assert homes.of([one, two]) == ("h", 1)
    homes.told(reply_error("TUBEHOME i:2 Tube 'u' has its leader there"))
    assert homes.of([two]) == ("i", 2)
    assert homes.forget(Address("h", 1))
    assert not homes.forget(Address("h", 1))
    assert homes.of([one]) is None
    assert homes.of([two]) == ("i", 2)


# Over sockets, both faces


def test_a_call_goes_to_the_home_and_the_next_one_at_once(
    node: ScriptedNode, other_node: ScriptedNode, connect: Connect
) -> None:
    node.answers["TUBE"] = refusal(other_node.port)
    other_node.answers["TUBE"] = TASK
    client = connect(node.url)
    for _ in range(3):
        task = client.run(tubes.put("t", b"x"))
        assert task is not None and task.number == 7
    assert asked(node, b"TUBE") == 1
    assert asked(other_node, b"TUBE", b"PUT") == 3
    assert client.ping() == "PONG"  # what is about no tube stays
    assert node.count("PING") == 1
    assert other_node.connections == 1


def test_jobs_of_a_tube_go_to_its_home(
    node: ScriptedNode, other_node: ScriptedNode, connect: Connect
) -> None:
    for verb in ("ADDJOB", "GETJOB", "ACKJOB"):
        node.answers[verb] = refusal(other_node.port)
    other_node.answers["ADDJOB"] = b"+D-1\r\n"
    other_node.answers["GETJOB"] = b"*1\r\n*3\r\n$1\r\nt\r\n$3\r\nD-1\r\n$1\r\nx\r\n"
    other_node.answers["ACKJOB"] = b":1\r\n"
    client = connect(node.url)
    assert client.addjob("t", b"x") == "D-1"
    assert [job.id for job in client.getjob("t", timeout_ms=100)] == ["D-1"]
    assert client.ackjob("D-1") == 1
    assert client.ackjob("D-1") == 1
    assert (node.count("ADDJOB"), node.count("GETJOB"), node.count("ACKJOB")) == (1, 0, 2)


def test_a_take_that_waits_goes_where_the_home_moves(
    node: ScriptedNode, other_node: ScriptedNode, connect: Connect
) -> None:
    first = tube_answers({b"TAKE": refusal(other_node.port)})
    node.answers["TUBE"] = first
    other_node.answers["TUBE"] = tube_answers({b"TAKE": TASK})
    client = connect(node.url)
    task = client.run(tubes.take("t", 5))
    assert task is not None and task.data == b"x"
    assert asked(node, b"TUBE", b"TAKE") == 1


def test_each_node_has_its_session_and_a_new_one_is_asked_for_the_one_before(
    node: ScriptedNode, other_node: ScriptedNode, connect: Connect
) -> None:
    node.answers["TUBE"] = tube_answers({b"ACK": TASK, b"TAKE": refusal(other_node.port)})
    far = UUID.replace("4000", "4001")

    def answer(words: Words) -> bytes:
        if words[1] != b"IDENTIFY":
            return TASK
        return text_of(far) if len(words) == 2 else b"-ERR The UUID is unknown.\r\n"

    other_node.answers["TUBE"] = answer
    client = connect(node.url)
    client.run(tubes.ack("s", 7))
    client.run(tubes.take("t", 0))
    client.run(tubes.ack("s", 7))
    client.run(tubes.ack("t", 7))
    assert [w[2:] for w in node.asked if w[1:2] == [b"IDENTIFY"]] == [[]]
    assert [w[2:] for w in other_node.asked if w[1:2] == [b"IDENTIFY"]] == [[UUID.encode()], []]


def test_a_pipeline_is_sent_on_where_it_was_refused(
    node: ScriptedNode, other_node: ScriptedNode, connect: Connect
) -> None:
    def answer(words: Words) -> bytes:
        return refusal(other_node.port) if words[2] == b"t" else TASK

    node.answers["TUBE"] = answer
    other_node.answers["TUBE"] = TASK
    client = connect(node.url)
    puts = [tubes.put(name, b"x") for name in ("t", "u", "t", "u")]
    for _ in range(2):
        assert [task.tube for task in client.run_all(puts)] == ["t", "u", "t", "u"]
    assert asked(other_node, b"TUBE", b"PUT", b"t") == 4
    assert asked(other_node, b"TUBE", b"PUT", b"u") == 0
    assert asked(node, b"TUBE", b"PUT", b"u") == 4
    before = len(node.asked)
    client.run_all([tubes.put("t", b"x")] * 2)  # all of it is known to be there
    assert len(node.asked) == before


def test_tubes_of_two_homes_are_refused_at_once(
    node: ScriptedNode, other_node: ScriptedNode, connect: Connect
) -> None:
    """T17.3: "so is a GETJOB that names it among others": no node has both."""
    node.answers["GETJOB"] = refusal(other_node.port, "there")
    other_node.answers["GETJOB"] = refusal(node.port, "here")
    client = connect(node.url, timeout=30)
    began = time.monotonic()
    with pytest.raises(TubeHome):
        client.getjob("q", "here", "there", timeout_ms=30_000)
    assert time.monotonic() - began < 10
    assert asked(node, b"GETJOB") == asked(other_node, b"GETJOB") == 1


def test_a_watch_begins_at_what_the_leader_knows(
    node: ScriptedNode, other_node: ScriptedNode, connect: Connect
) -> None:
    """T16.5 Each node numbers its own notices."""

    def leader(words: Words) -> bytes:
        assert words[1] == b"CHANGES"
        number = 42 if words[4] == b"41" else 41
        return b"*1\r\n*5\r\n:%d\r\n+put\r\n:7\r\n+READY\r\n:1\r\n" % number

    node.answers["TUBE"] = refusal(other_node.port)
    other_node.answers["TUBE"] = leader
    client = connect(node.url)
    assert client.first(client.client.tube("t").watch()).seq == 42
    assert asked(node, b"TUBE", b"INFO") == 0, "a follower has other numbers"


def test_two_nodes_that_name_each_other_end_with_the_retries(
    node: ScriptedNode, other_node: ScriptedNode, connect: Connect
) -> None:
    node.answers["TUBE"] = refusal(other_node.port)
    other_node.answers["TUBE"] = refusal(node.port)
    client = connect(node.url, retry=THREE)
    with pytest.raises(TubeHome):
        client.run(tubes.put("t", b"x"))
    assert asked(node, b"TUBE") + asked(other_node, b"TUBE") == 6  # two of them at once
    found = client.run_all([tubes.put("t", b"x"), tubes.put("t", b"y")])
    assert [type(one) for one in found] == [TubeHome, TubeHome]
    assert asked(node, b"TUBE") + asked(other_node, b"TUBE") == 6 + 2 * 6


def test_the_tube_comes_back_to_the_node_in_use(
    node: ScriptedNode, other_node: ScriptedNode, connect: Connect
) -> None:
    node.answers["TUBE"] = refusal(other_node.port)
    other_node.answers["TUBE"] = TASK
    client = connect(node.url)
    client.run(tubes.put("t", b"x"))
    node.answers["TUBE"] = TASK
    other_node.answers["TUBE"] = refusal(node.port)
    client.run(tubes.put("t", b"x"))
    client.run(tubes.put("t", b"x"))
    assert asked(other_node, b"TUBE") == 2


def test_a_home_that_is_gone_is_asked_for_anew(
    node: ScriptedNode, other_node: ScriptedNode, connect: Connect
) -> None:
    node.answers["TUBE"] = refusal(other_node.port)
    other_node.answers["TUBE"] = TASK
    client = connect(node.url)
    client.run(tubes.put("t", b"x"))
    other_node.stop()
    until(lambda: not other_node._open)
    node.answers["TUBE"] = TASK
    client.run(tubes.put("t", b"x"))
    assert client.node.endswith(str(node.port))
    node.answers["TUBE"] = refusal(free_port())
    client = connect(node.url, retry=THREE)
    with pytest.raises((TubeHome, ConnectionError)) as caught:
        client.run(tubes.put("it's", b"x"))
    hint = "and no vote chooses another one: tuque tubes home 'it'\"'\"'s' NODE --force"
    assert hint in str(caught.value)
    assert str(caught.value).count("--force") == 1


def test_a_task_with_a_key_is_added_by_whoever_leads_its_tube(
    node: ScriptedNode, other_node: ScriptedNode, connect: Connect
) -> None:
    """Its leader is lost with the reply: the next one knows the keys of the tube."""
    node.answers["HELLO"] = hello_of(("", node.port, 1), ("127.0.0.1", other_node.port, 1))
    node.answers |= {"ADDJOB": ScriptedNode.CLOSE, "TUBE": b"+OK\r\n"}
    other_node.answers["ADDJOB"] = ADDED
    client = connect(node.url, retry=FAST)
    assert client.addjob("t", "b", dedupe="k", limit=("one", 1)) == ID
    assert (node.count("ADDJOB"), other_node.count("ADDJOB")) == (1, 1)
    client = connect(node.url, retry=FAST)
    client.run(tubes.create("u", "tasks"))
    assert client.addjob("u", "b", dedupe="k") == ID
    client = connect(node.url, retry=THREE)
    client.run(tubes.create("u", "tasks"))
    client.run(tubes.drop("u"))
    with pytest.raises(ConnectionError):  # it may be a queue now
        client.addjob("u", "LIMIT", dedupe="k", headers={"LIMIT": "x"})
    assert other_node.count("ADDJOB") == 2


def test_the_node_in_use_leads_after_the_one_that_had_the_call(
    node: ScriptedNode, other_node: ScriptedNode, connect: Connect
) -> None:
    node.answers["ADDJOB"] = in_turn(refusal(other_node.port), ADDED)
    other_node.answers["ADDJOB"] = in_turn(ScriptedNode.CLOSE, refusal(node.port))
    client = connect(node.url, retry=FAST)
    assert client.addjob("t", "b", dedupe="k") == ID
    node.answers["ADDJOB"] = in_turn(ScriptedNode.CLOSE, refusal(other_node.port))
    other_node.answers["ADDJOB"] = in_turn(refusal(node.port), refusal(node.port), ADDED)
    assert connect(node.url, retry=FAST).addjob("t", "b", dedupe="k") == ID


@pytest.mark.parametrize("said", [b"-NOQUORUM Tube 't': x\r\n", b"-READONLY x\r\n"])
def test_a_home_that_cannot_run_now_is_asked_again(
    node: ScriptedNode, connect: Connect, said: bytes
) -> None:
    answers = [said, said, TASK]
    node.answers["TUBE"] = lambda words: answers.pop(0)
    assert connect(node.url).run(tubes.put("t", b"x")).number == 7
    node.answers["TUBE"] = said
    before = asked(node, b"TUBE")
    with pytest.raises(NoQuorum if b"QUORUM" in said else ReadOnly) as caught:
        connect(node.url, retry=THREE).run(tubes.put("t", b"x"))
    assert caught.value.retryable
    assert asked(node, b"TUBE") - before == 4


@pytest.mark.parametrize("said", [b"-NOQUORUM Tube 't': x\r\n", b"-READONLY x\r\n"])
def test_a_pipeline_of_jobs_waits_for_the_leader(
    node: ScriptedNode, other_node: ScriptedNode, connect: Connect, said: bytes
) -> None:
    """As one ADDJOB does."""
    node.answers["ADDJOB"] = in_turn(ADDED, said, said, said, refusal(other_node.port), ADDED)
    other_node.answers["ADDJOB"] = in_turn(said, ADDED)
    jobs = [calls.addjob("t", b"x") for _ in range(3)]
    client = connect(node.url, retry=FAST)
    assert client.run_all(jobs) == [ID] * 3
    assert (asked(node, b"ADDJOB"), asked(other_node, b"ADDJOB")) == (6, 2)
    node.answers["ADDJOB"] = in_turn(*[refusal(other_node.port)] * 3, ADDED)
    other_node.answers["ADDJOB"] = in_turn(*[ADDED] * 3, said)  # and another one leads by then
    for _ in range(2):
        assert client.run_all(jobs) == [ID] * 3
    node.answers["ADDJOB"] = said
    client = connect(node.url, retry=THREE)
    before = asked(node, b"ADDJOB")
    assert all(isinstance(one, NoQuorum | ReadOnly) for one in client.run_all(jobs))
    assert asked(node, b"ADDJOB") - before >= 4 * 3
    node.answers["TUBE"] = said
    assert not client.run_all([tubes.put("t", b"x")] * 2)[0].may_be_done
    assert asked(node, b"TUBE", b"PUT") == 2


def test_a_task_is_acked_in_the_session_that_took_it(
    node: ScriptedNode, other_node: ScriptedNode, connect: Connect
) -> None:
    """T20.5: its tube has moved, with who holds it, to a node where the client has another one."""
    far = UUID.replace("4000", "4001")
    joined: list[bytes] = []

    def at_other(words: Words) -> bytes:
        if words[1] == b"IDENTIFY":
            joined.append(words[2] if len(words) > 2 else b"")
            if words[2:] == [UUID.encode()] and len(joined) < 3:
                return b"-ERR The UUID is unknown.\r\n"
            return text_of(words[2].decode() if len(words) > 2 else far)
        return TASK

    node.answers["TUBE"] = tube_answers({b"TAKE": TASK, b"ACK": refusal(other_node.port)})
    other_node.answers["TUBE"] = at_other
    client = connect(node.url)
    task = client.run(tubes.take("t", 0))
    assert task is not None and task.session == UUID
    client._homes.told(reply_error(f"TUBEHOME 127.0.0.1:{other_node.port} Tube 'u' {THERE}"))
    assert client.run(tubes.take("u", 0)).session == far
    assert client.run(tubes.ack("t", task)).session == UUID
    assert joined == [UUID.encode(), b"", UUID.encode()]
    stranger = connect(other_node.url)
    assert stranger.run(tubes.ack("t", task)).session == far  # a stranger does not become one of us


def test_who_does_not_discover_follows_nobody(
    node: ScriptedNode, other_node: ScriptedNode, connect: Connect
) -> None:
    node.answers["TUBE"] = refusal(other_node.port)
    client = connect(node.url, discover=False)
    with pytest.raises(TubeHome) as caught:
        client.run(tubes.put("t", b"x"))
    assert caught.value.home == f"127.0.0.1:{other_node.port}"
    assert other_node.connections == 0


# What calls about homes say


def test_a_subscription_ends_when_the_tube_moves() -> None:
    """T16.5."""
    with pytest.raises(TubeHome) as caught:
        tubes.pushed_change([b"tube-home", b"t", b"h:7"])
    assert caught.value.home == "h:7"


def test_words_and_results_of_homes() -> None:
    assert tube_homes.state("t").args == ("TUBE", "STATE", b"t")
    assert tube_homes.home("t").args == ("TUBE", "HOME", b"t")
    assert tube_homes.move("t", "ab").args == ("TUBE", "HOME", b"t", b"ab")
    assert tube_homes.take_over("t", "ab").args == ("TUBE", "HOME", b"t", b"ab", "FORCE")
    words: list[object] = [b"tube", b"t", b"home", b"ab", b"address", b"h:1", b"epoch", 2]
    words += [b"state", b"RUNNING", b"sync", 1, b"changes", 9, b"conflict", b""]
    words += [b"copies", [[b"cd", b"h:2", 3, 1]]]
    copy = TubeCopy("cd", "h:2", 3, complete=True)
    info = HomeInfo("t", "ab", "h:1", 2, "RUNNING", 1, 9, "", (copy,))
    assert tube_homes.home("t").read(words) == info
    loss = [b"home", b"ab", b"epoch", 3, b"copy", b"incomplete", b"changes-missing", 4]
    loss += [b"last-heard-ms", 5, b"next-id", 6]
    assert tube_homes.take_over("t", "ab").read(loss) == TubeLoss("ab", 3, False, 4, 5, 6)
    loss += [b"stopped", b"no"]
    assert tube_homes.take_over("t", "ab").read(loss).stopped == "no"
    assert tubes.create("t", "fifo", sync=2).args[-2:] == ("SYNC", 2)
    assert issubclass(TubeHome, ReplyError)


def test_only_the_leader_counts_the_tasks_of_a_tube(make_world: Callable[..., World]) -> None:
    """T15.4 copies (replicated tasks of another leader: where this node does not lead the tube, it
    counts them here, and none from ready to buried)
    """
    world = make_world(3, tube_failover=False)
    world.client(0).tube("t").create("fifo", sync=3, alone=True)
    for _ in range(3):
        world.client(0).tube("t").put("x")
    at = [world.client(i).tube("t").info() for i in range(3)]
    assert [(one.ready, one.copies) for one in at] == [(3, 0), (0, 3), (0, 3)]
    assert len({one.home for one in at}) == 1
