"""SPEC F1, F2.1: who asks for jobs, where wishes stand, how much that costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise, permutations

import pytest

from tuque.core.leases.leases import commit, on_next, on_open
from tuque.core.msgs.bus import NeedJobs, YourJobs
from tuque.core.node.node import NODE_LEAVING
from tuque.core.node.peers import say
from tuque.core.node.queue import PAUSE_IN, PAUSE_OUT
from tuque.core.queues.deliver import (
    set_pause,
    wait,
    wake_all,
)
from tuque.core.tables.repair import Demand
from world import World

Make = Callable[..., World]


def asked(world: World) -> list[tuple[int, int, int]]:
    """Every NEEDJOBS: from, to, count."""
    return [(a, b, m.count) for a, b, m in world.heard(NeedJobs)]


def poll(world: World, i: int) -> list[bytes]:
    """GETJOB NOHANG as the server does it."""
    return world.at(i).get()


def block(world: World, i: int, client: int) -> None:
    """GETJOB that waits if it must, as the server does it."""
    world.at(i, client).wait()


def test_a_client_that_waits_makes_the_node_ask(make_world: Make) -> None:
    """F1.1 Causes: a client waits for a queue without a job, or found none with NOHANG; a fetch
    emptied a queue that imports; the jobs received did not serve all waiting clients."""
    world = make_world(3, journal="off")
    world.at(0, 7).wait()
    assert asked(world) == [(0, 1, 1), (0, 2, 1)]
    world.at(2).add(replicate=1)
    assert len(world.at(0, 7).served()) == 1


def test_a_poll_asks_for_the_next_one(make_world: Make) -> None:
    """F1.1 Causes: a client waits for a queue without a job, or found none with NOHANG"""
    world = make_world(3, journal="off")
    id = world.at(1).add(replicate=1)
    assert poll(world, 0) == []
    (wish,) = (m for _, b, m in world.heard(NeedJobs) if b == 1)
    assert not wish.is_waiting, "nobody waits for the answer"
    assert poll(world, 0) == [id]


def test_an_emptied_queue_imports_more(make_world: Make) -> None:
    """F1.1 Causes: a client waits for a queue without a job, or found none with NOHANG; a fetch
    emptied a queue that imports"""
    world = make_world(2, journal="off")
    ids = [world.at(1).add(replicate=1) for _ in range(40)]
    got: list[bytes] = []
    polls = 0
    poll(world, 0)
    while len(got) < 40:
        got += poll(world, 0)
        polls += 1
        assert polls < 60
    assert sorted(got) == sorted(ids)
    assert world.node(0).core.demands[b"q"].rate(world.now_ms) > 0


def test_all_who_wait_are_served(make_world: Make) -> None:
    """F1.1 Causes: a client waits for a queue without a job, or found none with NOHANG; a fetch
    emptied a queue that imports; the jobs received did not serve all waiting clients."""
    world = make_world(2, journal="off")
    for _ in range(30):
        world.at(1).add(replicate=1)
    for client in range(30):
        block(world, 0, client)
    world.pass_ms(100)
    assert sum(len(world.at(0, client).served()) for client in range(30)) == 30


@pytest.mark.parametrize("why", ["leaving", "memory", "pause"])
def test_who_does_not_ask(make_world: Make, why: str) -> None:
    """F1.2 Nothing is asked, and requests are withdrawn, while this node leaves, memory is at
    level 2 or above, or the input or output of the queue is paused here.
    """
    world = make_world(2, journal="off")
    n = world.node(0).core

    def shut(is_shut: bool) -> None:
        if why == "leaving":
            n.is_leaving = is_shut
            if is_shut:
                wake_all(n, NODE_LEAVING)
        elif why == "memory":
            n.limits.memory_bytes = 1_000 if is_shut else 0
            n.base_bytes = 1_000
        else:
            set_pause(n, b"q", PAUSE_OUT if is_shut else 0)

    shut(True)
    wait(n, 7, [b"q"], 1, False, 0)  # commands of clients are refused without memory
    world.pass_ms(5_000)
    assert asked(world) == []
    shut(False)
    if why == "leaving":
        wait(n, 8, [b"q"], 1, False, 0)
    world.pass_ms(2_000)
    assert asked(world) == [(0, 1, 1)]
    shut(True)
    n.asks[b"q"] = None
    world.settle()
    assert asked(world)[1:] == [(0, 1, 0)]
    world.at(1).add(replicate=1)
    assert world.node(1).core.queues[b"q"].length == 1
    world.pass_ms(60_000)
    assert [m for _, _, m in world.heard(YourJobs)] == []


def test_sources_are_asked_for_more(make_world: Make) -> None:
    """F1.3 Nodes that sent jobs of this queue in the last 5 s are sources. NEEDJOBS goes to them
    with count = the larger of import rate / sources and waiting clients, within 5..100."""
    world = make_world(3, journal="off")
    for _ in range(400):
        world.at(1).add(replicate=1)
    for i in range(350):
        block(world, 0, i)
        if i % 10 == 0:
            world.pass_ms(10)
    world.pass_ms(4_000)
    block(world, 0, 1_000)
    counts = [count for a, b, count in asked(world) if (a, b) == (0, 1) and count > 0]
    assert counts[0] == 1
    assert min(counts[1:]) == 20  # one job within 50 ms
    assert max(counts) == 100
    d = Demand(b"q")
    d.count_imports(10_000, 300)
    d.sources = {1: 10_000, 2: 10_000}
    assert d.share(11_000, 0) == 100
    assert d.share(15_000, 0) == 30
    assert d.share(15_000, 44) == 44
    assert d.share(15_001, 0) == 5
    assert d.rate(15_001) == 0
    d.drop_sources(15_001)
    assert d.sources == {}


def test_others_are_asked_for_one(make_world: Make) -> None:
    """F1.4 If clients wait, or looked, NEEDJOBS also goes to all other linked nodes, with
    count 1.
    """
    world = make_world(3, journal="off")
    world.at(1).add(replicate=1)
    world.at(0, 7).wait()
    world.at(0, 7).wait()
    world.pass_ms(100)
    last = {b: count for a, b, count in asked(world) if a == 0}
    assert last == {1: 20, 2: 1}


def test_wishes_stand(make_world: Make) -> None:
    """F1.5 NEEDJOBS is a standing request; a node that has one is not asked again. It ends when
    that node sends jobs, with a count of 0, with the link or after 10 minutes; it is renewed
    after 4. Count 0 is sent 200 ms after the last waiting client left.
    """
    world = make_world(2, journal="off")
    world.at(0, 1).wait()
    world.at(0, 2).wait()
    world.pass_ms(235_000)
    assert asked(world) == [(0, 1, 1)]
    world.pass_ms(40_000)
    assert asked(world) == [(0, 1, 1)] * 2
    world.at(0, 1).close()
    world.pass_ms(1_000)
    assert len(asked(world)) == 2
    world.at(0, 2).close()
    world.pass_ms(190)
    assert len(asked(world)) == 2
    world.pass_ms(20)
    assert asked(world)[2:] == [(0, 1, 0)]
    id = world.at(1).add(replicate=1)
    assert world.holders(id) == [1]


def test_a_wish_without_an_end_ends(make_world: Make) -> None:
    """F1.5 NEEDJOBS is a standing request; a node that has one is not asked again. It ends when
    that node sends jobs, with a count of 0, with the link or after 10 minutes
    """
    world = make_world(2, journal="off")
    say(world.node(0).core, world.slot(0, 1), NeedJobs(b"q", 1, True))
    world.settle()
    world.pass_ms(700_000)
    id = world.at(1).add(replicate=1)
    assert world.holders(id) == [1]
    world.pass_ms(120_000)
    assert world.node(1).core.demands == {}


def test_a_new_link_is_asked_anew(make_world: Make) -> None:
    """F1.5 NEEDJOBS is a standing request; a node that has one is not asked again. It ends when
    that node sends jobs, with a count of 0, with the link or after 10 minutes
    """
    world = make_world(3, journal="off")
    world.at(0, 7).wait()
    world.isolate(0)
    world.at(1).add(replicate=1)
    assert world.at(0, 7).served() == []
    world.link()
    world.pass_ms(100)
    assert len(world.at(0, 7).served()) == 1


@pytest.mark.long
def test_steps_between_asks_are_capped(make_world: Make) -> None:
    """F1.6 Between two requests for a queue there are 0, 25, 50, ... at most 200 ms. Jobs that
    arrive and  links that come up reset the steps.
    """
    world = make_world(2, journal="off")
    times: list[int] = []
    for _ in range(300):  # clients that come and go for a long time
        world.forget_heard()
        world.at(0, 7).wait(timeout_ms=1)
        for _ in range(3):
            times += [world.now_ms for _, _, count in asked(world) if count > 0]
            world.forget_heard()
            world.pass_ms(150)
    gaps = [b - a for a, b in pairwise(times)]
    assert set(gaps[20:]) == {450}, "who comes when nothing is asked for asks at once"
    world.at(1).add(replicate=1)
    world.at(0, 7).wait()
    world.pass_ms(200)
    assert len(world.at(0, 7).served()) == 1
    assert world.node(0).core.demands[b"q"].step_ms <= 25


def test_the_count_is_cut(make_world: Make) -> None:
    """F2.1 The count is limited to 1..100; 0 ends the request."""
    world = make_world(2, journal="off")
    for _ in range(300):
        world.at(1).add(b"long", replicate=1)
    for count, given in ((1 << 40, 100), (-(1 << 40), 0), (0, 0)):
        say(world.node(0).core, world.slot(0, 1), NeedJobs(b"long", count, True))
        before = world.node(1).core.queues[b"long"].length
        world.settle()
        assert before - world.node(1).core.queues[b"long"].length == given


def test_the_link_is_looked_at_first(make_world: Make) -> None:
    """F2.1 Nothing is given over a link that is down or full"""
    world = make_world(2, journal="off", bus_buffer_limit="1mb")
    n = world.node(1).core
    world.at(0, 7).wait()
    world.fill(1, 0)
    ids = [world.at(1).add(replicate=1, retry=retry_s) for retry_s in (0, 10)]
    assert n.queues[b"q"].length == 2
    world.pass_ms(5_000)
    assert n.queues[b"q"].length == 2
    world.release(1, 0)
    world.pass_ms(100)
    assert len(world.at(0, 7).served()) == 1
    world.at(0, 9).wait(b"other")
    world.cut(0, 1)
    more = world.at(1).add(b"other", replicate=1, retry=0)
    assert n.queues[b"other"].length == 1
    assert world.at(1).get(b"other") == [more]
    assert len(set(ids)) == 2


def test_clients_here_come_first(make_world: Make) -> None:
    """F2.1 It is served at once, or when jobs are queued for which no client here waits."""
    world = make_world(2, journal="off")
    world.at(1, 1).wait()
    world.at(0, 2).wait()
    world.at(1).add(replicate=1)
    assert world.at(0, 2).served() == []
    assert len(world.at(1, 1).served()) == 1
    world.at(1).add(replicate=1)
    assert len(world.at(0, 2).served()) == 1


def test_an_importing_node_keeps_what_nobody_waits_for(make_world: Make) -> None:
    """F2.1 Nothing is given to a sender without waiting clients while this node imports the
    queue and a client here polled it in the last 200 ms.
    """
    world = make_world(3, journal="off")
    for _ in range(20):
        world.at(2).add(replicate=1)
    world.at(1, 7).wait()
    world.at(1, 7).wait()
    world.pass_ms(300)  # it asks node 0 no more
    world.at(1, 7).wait()
    world.pass_ms(100)
    held = world.node(1).core.queues[b"q"].length
    assert held > 0
    say(world.node(0).core, world.slot(0, 1), NeedJobs(b"q", 1, False))
    world.settle()
    assert world.node(1).core.queues[b"q"].length == held
    say(world.node(0).core, world.slot(0, 1), NeedJobs(b"q", 1, True))
    world.settle()
    assert world.node(1).core.queues[b"q"].length == held - 1
    say(world.node(0).core, world.slot(0, 1), NeedJobs(b"q", 1, False))
    world.settle()
    assert world.node(1).core.queues[b"q"].length == held - 1
    world.pass_ms(300)
    assert world.node(1).core.queues[b"q"].length == held - 2, "its own clients have gone"


def test_who_found_nothing_has_looked_too(make_world: Make) -> None:
    """F2.1 Nothing is given to a sender without waiting clients while this node imports the queue
    and a client here polled it in the last 200 ms"""
    world = make_world(3, journal="off")
    world.at(2).add(replicate=1)
    world.at(1, 7).wait()
    world.pass_ms(50)
    assert len(world.at(1, 7).served()) == 1, "it imports the queue"
    assert poll(world, 1) == []
    say(world.node(0).core, world.slot(0, 1), NeedJobs(b"q", 1, False))
    world.settle()
    world.forget_heard()
    world.at(1).add(replicate=1)
    world.pass_ms(190)
    assert [(a, b) for a, b, m in world.heard(YourJobs)] == []
    world.pass_ms(20)
    assert (1, 0) in [(a, b) for a, b, m in world.heard(YourJobs)]


@pytest.mark.parametrize(
    ("nodes", "every_ms", "apart_ms"),
    [((1, 2), 250, 1), ((0, 1, 2), 190, 4), ((1, 2, 0), 250, 20), ((1, 2, 0), 0, 3_000)],
)
def test_who_polls_at_all_nodes_in_turn_gets_every_job(
    make_world: Make, nodes: tuple[int, ...], every_ms: int, apart_ms: int
) -> None:
    """F2.1 Jobs that came for a poll, which is such a look, wait for the next poll here, 10
    minutes at most, unless that sender's clients poll twice meanwhile, or its request is 500 ms
    old.

    The last jobs of a queue were always at a node that had been asked a moment before.
    """
    world = make_world(3, journal="off")
    left = {world.at(0).add(replicate=3, delay=2) for _ in range(6)}
    world.pass_ms(100)
    for _ in range(20):
        for i in nodes:
            got = world.at(i).get(count=10)
            for job_id in got:
                world.at(i)("ACKJOB", job_id)
            left.difference_update(got)
            world.pass_ms(apart_ms)
        world.pass_ms(every_ms)
    assert not left


@pytest.mark.parametrize("rest_ms", [0, 100])
def test_who_waits_a_moment_at_all_nodes_in_turn_gets_every_job(
    make_world: Make, rest_ms: int
) -> None:
    """F1.4 If clients wait, or looked, NEEDJOBS also goes to all other linked nodes, with count
    1 and whether they wait or only looked: with NOHANG, or with a TIMEOUT of less than 200 ms.

    Else jobs follow such a client from node to node: each of them sends them on to the next one,
    whose client waits, as it says.
    """
    world = make_world(3, journal="off")
    for a, b in permutations(range(3), 2):
        world.lines(a, b)[0].delay_us = 3_000  # the answer comes when the client has gone
    for _ in range(3):
        job_id = world.at(0, 9).add(replicate=1)
        polls = 0
        while job_id not in world.at(polls % 3).served():
            polls += 1
            assert polls <= 12
            world.at(polls % 3).wait(timeout_ms=1)
            world.pass_ms(2 + rest_ms)


def test_who_polls_at_all_nodes_finds_jobs_where_they_are(make_world: Make) -> None:
    """F2.1 Nothing is given to such a sender, if the last poll here left nothing, before one and a
    half times the longest gap between polls here lately has passed; a gap above 4 s does not count.
    So who polls here finds what came since.
    """
    world = make_world(3, journal="off")

    def round(*nodes: int) -> list[bytes]:
        found = [id for i in nodes for id in world.at(i).get()]
        world.pass_ms(1_000)
        return found

    for _ in range(3):
        assert round(1, 2, 0) == []
    for _ in range(5):
        job_id = world.at(0).add(replicate=1)
        assert round(1, 2, 0) == [job_id]
    assert world.heard(YourJobs) == []
    more = [world.at(0).add(replicate=1) for _ in range(2)]
    assert round(0) == more[:1], "the poll left one"
    assert round(1) == [] and round(1) == more[1:]
    round(0)
    world.at(0).add(replicate=1)
    world.pass_ms(3_400)  # of one and a half times three seconds
    assert world.at(1).get() == [] and len(world.heard(YourJobs)) == 1, "who polls here comes"
    world.pass_ms(200)
    assert len(world.heard(YourJobs)) == 2, "who polled here has not come"


def test_a_client_that_waits_longer_takes_what_came_for_a_poll(make_world: Make) -> None:
    """F1.4 If clients wait, or looked, NEEDJOBS also goes to all other linked nodes, with count
    1 and whether they wait or only looked: with NOHANG, or with a TIMEOUT of less than 200 ms.
    """
    world = make_world(3, journal="off")
    world.at(1, 1).wait(timeout_ms=199)
    world.pass_ms(199)
    world.at(0).add(replicate=1)
    assert world.node(1).core.queues[b"q"].length == 1
    world.at(2, 2).wait(timeout_ms=199)
    assert world.at(2, 2).served() == []
    world.at(2, 3).wait(timeout_ms=225)
    world.pass_ms(25)  # F1.6
    assert len(world.at(2, 2).served()) == 1, "it has waited longest"


def test_jobs_do_not_go_to_and_fro(make_world: Make) -> None:
    """F2.1 Nothing is given to a sender without waiting clients while this node imports the
    queue and a client here polled it in the last 200 ms.
    """
    world = make_world(3, journal="off")
    for _ in range(40):
        world.at(2).add(replicate=1)
    for _ in range(10):
        for i in (0, 1):
            assert poll(world, i) or True
        world.pass_ms(20)
    world.forget_heard()
    for _ in range(20):
        for i in (0, 1):
            poll(world, i)
        world.pass_ms(50)
    moved = [(a, b) for a, b, m in world.heard(YourJobs) for _ in m.jobs]
    assert len([1 for a, b in moved if 2 not in (a, b)]) <= 4, "between the two that poll"


def test_two_importing_nodes_do_not_starve_each_other(make_world: Make) -> None:
    """A client that waits is served, however many nodes believe that others import."""
    world = make_world(2, journal="off")
    for i in range(2):
        world.at(i, 1 + i).wait()
    for i in range(2):
        world.at(1 - i).add(replicate=1)
        world.at(1 - i).add(replicate=1)
    world.pass_ms(10)
    for n in world.cores:
        n.now_ms = world.now_ms
        n.demands[b"q"].count_imports(world.now_ms, 50)
    for i in range(2):
        while world.at(i).get():
            pass
    world.at(0, 10).wait()
    world.at(1, 11).wait()
    world.pass_ms(50)
    world.at(0).add(replicate=1)
    world.at(0).add(replicate=1)
    world.pass_ms(100)
    assert len(world.at(0, 10).served()) + len(world.at(1, 11).served()) == 2


@pytest.mark.long
def test_idle_clients_cost_little(make_world: Make) -> None:
    """A thousand clients that wait for a thousand empty queues cost a few messages a second."""
    world = make_world(3, journal="off")
    for i in range(1_000):
        world.at(0, 1_000 + i).wait(b"q%d" % i)
    assert len(asked(world)) == 2_000
    world.forget_heard()
    world.pass_ms(300_000)
    assert len(world.heard()) < 10 * 300
    frames = Counter(type(m).__name__ for _, _, m in world.heard())
    assert list(frames) == ["NeedJobs"]
    for i in range(1_000):
        world.at(0, 1_000 + i).close()
    world.pass_ms(120_000)
    for n in world.cores:
        assert n.demands == {}
        assert n.looks == []


@pytest.mark.parametrize("nodes", [2, 5])
def test_a_client_is_served_within_two_seconds(make_world: Make, nodes: int) -> None:
    """A client that waits gets a job of any other node within 2 s, with traffic within 100 ms."""
    world = make_world(nodes, journal="off")
    world.at(0, 7).wait()
    for step in range(120):
        world.pass_ms(37 * (step % 41))
        added_ms = world.now_ms
        world.at(1 + step % (nodes - 1)).add(replicate=1)
        while len(world.at(0, 7).served()) <= step:
            world.pass_ms(5)
            assert world.now_ms <= added_ms + 100
        world.at(0, 7).wait()


def lease(world: World, i: int, seq: int, count: int) -> int:
    """LEASE NEXT as the server does it: how many jobs the batch has."""
    n = world.node(i).core
    n.now_ms = world.now_ms
    g = n.leases.groups.get(b"g")
    if g is None:
        on_open(n, b"g", b"me", [b"q"])
        g = n.leases.groups[b"g"]
    taken, error = on_next(n, 7, g, seq, count, 1 << 30, 1, 60_000)
    assert error is None
    commit(n, b"g", g.epoch, seq - 1)
    world.settle()
    return taken


@pytest.mark.long
def test_a_lease_looks_for_what_it_lacks(make_world: Make) -> None:
    """F1.1 a LEASE NEXT took fewer jobs than it may (a look)."""
    world = make_world(3, journal="off")
    for node in (1, 2):
        for _ in range(600):
            world.at(node).add(replicate=1)
    assert lease(world, 0, 1, 500) == 0
    assert 500 <= world.node(0).core.queues[b"q"].length < 800, "it has come, and not all there is"
    assert lease(world, 0, 1, 500) == 500


def test_how_long_a_lease_lacks(make_world: Make) -> None:
    """F1.3 What a LEASE NEXT lacked counts as waiting clients for 200 ms."""
    world = make_world(2, journal="off")
    world.at(0).add(replicate=1)
    assert lease(world, 0, 1, 500) == 1, "it goes on with what there is"
    world.pass_ms(100)
    for _ in range(50):
        world.at(1).add(replicate=1)
    assert world.node(0).core.queues[b"q"].length == 50
    world.pass_ms(300)
    for _ in range(50):
        world.at(1).add(replicate=1)
    world.pass_ms(1000)
    assert world.node(0).core.queues[b"q"].length == 50
    assert lease(world, 0, 2, 60) == 50
    assert lease(world, 0, 3, 60) >= 10, "what it lacked, at least"


@pytest.mark.long
def test_a_lease_goes_on_as_jobs_come(make_world: Make) -> None:
    """A lease empties a queue that imports as clients do (F1.1), and gets more as fast."""
    world = make_world(2, journal="off")
    got = seq = 0
    for _ in range(20):
        for _ in range(100):
            world.at(1).add(replicate=1)
        taken = lease(world, 0, seq + 1, 10_000)
        got, seq = got + taken, seq + (taken > 0)
        world.pass_ms(100)
    assert got >= 1800


def test_jobs_between_nodes_are_counted(make_world: Make) -> None:
    """O1.7 `asked`, jobs that this node asked that one for (F1); `sent`, jobs that it gave to
    it, also if refused (F2); `taken`, jobs that came from it and were queued here (F3).
    """
    world = make_world(2, journal="off")
    here, there = (n.peers[1] for n in world.cores)  # each is 0 for itself
    world.at(0, 7).wait()
    assert (int(here.asked), int(there.asked)) == (1, 0)
    world.at(1).add(replicate=1)
    assert (int(there.sent), int(here.taken)) == (1, 1)
    world.at(0, 7).wait()
    set_pause(world.node(0).core, b"q", PAUSE_IN, False, 1)
    world.at(1).add(replicate=1)
    assert (int(there.sent), int(here.taken)) == (2, 1)
    assert (int(here.sent), int(there.taken)) == (0, 0)
