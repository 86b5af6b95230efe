"""What decides without I/O: the node in use, the slots of a pool, the tries of a call."""

from __future__ import annotations

import random
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuque import Job, Retry
from tuque.client.api import Hello, NodeInfo
from tuque.client.commands import calls
from tuque.client.retry import Tries
from tuque.client.routing.nodes import REST_S, Route
from tuque.client.transport.face import Claim, Slots
from tuque.client.url import Address, parse, settings
from tuque.errors import (
    Closed,
    Conflict,
    Error,
    Leaving,
    Loading,
    MaxClients,
    MaxLen,
    NoAuth,
    NoNode,
    NoQuorum,
    ReadOnly,
    Timeout,
    TubeHome,
)

A, B, C = Address("a", 1), Address("b", 2), Address("c", 3)
HELLO = Hello(
    1,
    "ida",
    (
        NodeInfo("ida", "", 1, 1),
        NodeInfo("idb", "b", 2, 100),
        NodeInfo("idc", "c", 3, 1),
        NodeInfo("idx", "", 4, 1),
    ),
)


def test_the_first_node_is_chance() -> None:
    firsts = {Route((A, B, C), random.Random(seed)).order(0.0)[0] for seed in range(50)}
    assert firsts == {A, B, C}


def test_a_client_stays_with_its_node() -> None:
    route = Route((A, B, C), random.Random(1))
    assert not route.on_connected(B, None)
    assert route.order(0.0) == [B]


def test_a_failed_node_comes_last_and_is_lost_once() -> None:
    route = Route((A, B, C), random.Random(1))
    route.on_connected(B, None)
    assert route.on_failed(B, 10.0)
    assert not route.on_failed(B, 10.0)
    for _ in range(20):
        assert route.order(10.5)[-1] == B
    assert {route.order(10.0 + REST_S + 0.1)[0] for _ in range(50)} == {A, B, C}
    assert route.on_connected(A, None)
    assert not route.on_connected(A, None)


def test_hello_teaches_other_nodes_and_who_is_bad() -> None:
    route = Route((A,), random.Random(1))
    route.on_connected(A, HELLO)
    assert route.on_failed(A, 0.0)
    assert route.order(0.1) == [C, B, A]
    assert not route.has_better_than(A, 0.1)
    assert route.has_better_than(B, 0.1)
    assert route.on_failed(C, 0.1) is False
    assert not route.has_better_than(B, 0.2)


class Line:
    """A connection that only knows whether it was closed."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def return_good(slots: Slots[Line], claim: Claim[Line]) -> None:
    if claim.slot is not None and claim.has_slot:
        claim.slot.link = claim.slot.use() or Line()
        claim.slot.is_good = True
    slots.give(claim)


def test_slots_are_handed_to_who_waits_longest() -> None:
    slots: Slots[Line] = Slots(2)
    one, two, first, second, late = [Claim[Line]() for _ in range(5)]
    assert slots.take(one)
    assert slots.take(two)
    for claim in (first, second):
        assert not slots.take(claim)
        slots.wait(claim)
    return_good(slots, one)
    assert first.slot is not None
    line = first.slot.use()
    assert line is not None
    assert not slots.take(late)
    slots.give(second)
    slots.give(first)
    assert line.is_closed
    return_good(slots, two)
    assert slots.take(late)
    assert late.slot is not None
    assert late.slot.use() is not None
    slots.give(first)
    assert (slots.open_count, slots.close_idle()) == (1, 0)


@given(st.lists(st.tuples(st.sampled_from(["take", "good", "bad", "dies"]), st.integers(0, 9))))
def test_slots_go_to_the_oldest_calls_that_live(steps: list[tuple[str, int]]) -> None:
    slots: Slots[Line] = Slots(3)
    live: list[Claim[Line]] = []
    for step, at in steps:
        if step == "take":
            live.append(Claim())
            if not slots.take(live[-1]):
                slots.wait(live[-1])
        elif live:
            claim = live.pop(at % len(live))
            if step == "good":
                return_good(slots, claim)
            elif step == "bad":
                slots.give(claim)
            del claim
        slots.admit()
        assert [one.has_slot for one in live] == [at < 3 for at in range(len(live))]
        assert slots.open_count <= 3


def tries(*, repeat: bool, attempts: int | None = None, down_s: float | None = None) -> Tries:
    return Tries(
        Retry(base_s=0.1, cap_s=0.4, attempts=attempts),
        repeat=repeat,
        deadline_s=100.0,
        search_s=40.0,
        down_s=down_s,
        now_s=0.0,
        rng=random.Random(3),
    )


@pytest.mark.parametrize(
    ("error", "sent", "repeat", "again"),
    [
        (NoNode("x"), False, False, True),
        (Closed("x"), True, True, True),
        (Closed("x"), True, False, False),
        (Timeout("x"), False, False, True),
        (Timeout("x"), True, True, False),
        (Leaving("x"), True, False, True),
        (Conflict("x"), True, False, True),
        (Loading("x"), True, False, True),
        (MaxClients("x"), False, False, True),
        (NoAuth("x"), False, True, False),
        (MaxLen("x"), True, True, False),
    ],
)
def test_what_is_tried_again(error: Error, sent: bool, repeat: bool, again: bool) -> None:
    if again:
        assert 0.0 <= tries(repeat=repeat).pause_s(error, sent=sent, now_s=0.0) <= 0.1
        with pytest.raises(type(error)):
            tries(repeat=repeat, attempts=0).pause_s(error, sent=sent, now_s=0.0)
        with pytest.raises(type(error)):
            tries(repeat=repeat).pause_s(error, sent=sent, now_s=100.0)
    else:
        with pytest.raises(type(error)):
            tries(repeat=repeat).pause_s(error, sent=sent, now_s=0.0)


def test_a_lost_call_says_whether_it_may_be_sent_again() -> None:
    for repeat in (True, False):
        with pytest.raises(Closed) as caught:
            tries(repeat=repeat).pause_s(Closed("x"), sent=True, now_s=100.0)
        assert caught.value.retryable is repeat


def test_the_search_for_a_node_ends_before_the_call() -> None:
    looking = tries(repeat=True)
    looking.pause_s(NoNode("x"), sent=False, now_s=39.5)
    with pytest.raises(NoNode):
        looking.pause_s(NoNode("x"), sent=False, now_s=40.0)
    looking.pause_s(Closed("x"), sent=True, now_s=50.0)  # a node had the call: looked for anew
    looking.pause_s(NoNode("x"), sent=False, now_s=89.5)
    with pytest.raises(NoNode):
        looking.pause_s(NoNode("x"), sent=False, now_s=90.0)
    assert looking.deadline_s == 100.0


def test_a_search_has_a_shorter_time_while_no_node_is_there() -> None:
    """A node that is there, and says not now, has the time of a call."""
    looking = tries(repeat=True, down_s=1.0)
    looking.pause_s(NoNode("x"), sent=False, now_s=0.5)
    looking.pause_s(Leaving("x"), sent=True, now_s=5.0)
    with pytest.raises(NoNode, match="x; search_timeout is 1 s"):
        looking.pause_s(NoNode("x"), sent=False, now_s=6.0)


def test_a_refusal_that_names_another_node_is_followed_at_once_only_the_first_time() -> None:
    """Two nodes that name each other end with the call's time."""
    looking = tries(repeat=False)
    home = TubeHome("x")
    assert looking.pause_s(home, sent=True, now_s=0.0) == 0.0
    for span_s in (0.1, 0.2, 0.4, 0.4):
        assert 0.0 < looking.pause_s(home, sent=True, now_s=50.0) <= span_s
    for error in (home, NoQuorum("x"), ReadOnly("x")):
        with pytest.raises(type(error)):
            looking.pause_s(error, sent=True, now_s=100.0)


def test_each_node_that_refusals_name_is_asked_at_once() -> None:
    """So after a failover the new leader is asked at once, whoever was named before."""
    looking = tries(repeat=False)
    named = [TubeHome(f"a:{number} Tube 't' has its leader there") for number in (1, 2)]
    assert [one.home for one in named] == ["a:1", "a:2"]
    for one in named:
        assert looking.pause_s(one, sent=True, now_s=0.0) == 0.0
    for one in named:
        assert looking.pause_s(one, sent=True, now_s=0.0) > 0.0


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_later_than_a_quarter_of_the_outage(seed: int) -> None:
    """A leader that is lost has a successor soon: pauses grow with the outage, not beyond it."""
    looking = Tries(
        Retry(), repeat=True, deadline_s=99.0, search_s=99.0, now_s=0.0, rng=random.Random(seed)
    )
    now_s = failed_s = 5.0
    count = 0
    while now_s < 25.0:
        pause_s = looking.pause_s(NoQuorum("x"), sent=False, now_s=now_s)
        assert pause_s <= min(1.0, max(0.05, (now_s - failed_s) / 4))
        now_s += pause_s
        count += 1
    assert 40 < count < 120, "neither a busy loop nor a sleep"


def test_attempts_are_counted() -> None:
    limited = tries(repeat=True, attempts=2)
    for _ in range(2):
        limited.pause_s(NoNode("x"), sent=False, now_s=0.0)
    with pytest.raises(NoNode):
        limited.pause_s(NoNode("x"), sent=False, now_s=0.0)


def test_jitter_is_full_and_its_span_doubles_up_to_the_cap() -> None:
    retry, rng = Retry(base_s=0.1, cap_s=0.4), random.Random(5)
    for attempt, span_s in enumerate([0.1, 0.2, 0.4, 0.4, 0.4]):
        drawn = [retry.delay_s(attempt, rng) for _ in range(300)]
        assert max(drawn) <= span_s
        assert max(drawn) > span_s * 0.9
        assert min(drawn) < span_s * 0.1
    assert retry.delay_s(10_000, rng) <= 0.4


def test_a_client_told_to_knows_its_own_nodes_only() -> None:
    """As who has a lease must: other nodes do not know it."""
    for discovers, others in ((True, 2), (False, 0)):
        route = Route((A,), random.Random(1), discovers=discovers)
        route.on_connected(A, HELLO)
        route.on_failed(A, 0.0)
        assert len(set(route.order(0.0)) - {A}) == others
    assert not parse("tuque://a:1/?discover=no").discover
    assert not settings("tuque://a:1", discover=False).discover


def test_the_form_of_an_id_for_urls() -> None:
    plain = "D-5a02d844-AOq+vjzc3Ib9fRc/bwXWVmDZ-05a1"
    url = "D_5a02d844_AOq-vjzc3Ib9fRc_bwXWVmDZ_05a1"
    assert Job("q", plain, b"").url_id == url
    assert quote(url, safe="") == url
    for form in (url, url.encode(), plain, Job("q", plain, b"")):
        assert calls.ackjob(form).args == ("ACKJOB", plain.encode())
    assert calls.show(url).job_id == plain
    assert calls.show("D_no id").args == ("SHOW", b"D_no id")
