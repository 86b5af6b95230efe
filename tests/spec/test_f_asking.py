"""SPEC F1, F2.1: who asks for jobs, where wishes stand, how much that costs."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from cluster_lab import Lab
from tuque.core.leases.leases import commit, on_next, on_open
from tuque.core.msgs import NeedJobs, YourJobs
from tuque.core.node.node import NODE_LEAVING
from tuque.core.node.peers import say
from tuque.core.node.queue import PAUSE_IN, PAUSE_OUT
from tuque.core.queues.deliver import (
    on_getjob,
    on_poll,
    set_pause,
    wake_all,
)
from tuque.core.queues.procedures import stop_waiting
from tuque.core.tables.repair import Demand


def asked(lab: Lab) -> list[tuple[int, int, int]]:
    """Every NEEDJOBS: from, to, count."""
    return [(a, b, m.count) for a, b, m in lab.log if isinstance(m, NeedJobs)]


def poll(lab: Lab, i: int) -> list[bytes]:
    """GETJOB NOHANG as the server does it."""
    n = lab.nodes[i]
    n.now_ms = lab.now_ms
    jobs = on_getjob(n, 7, [b"q"], 1)
    if not jobs:
        on_poll(n, [b"q"])
    lab.run()
    return [job.id for job in jobs]


def block(lab: Lab, i: int, client: int) -> None:
    """GETJOB that waits if it must, as the server does it."""
    n = lab.nodes[i]
    n.now_ms = lab.now_ms
    jobs = on_getjob(n, client, [b"q"], 1)
    if jobs:
        lab.served[i].setdefault(client, []).extend(jobs)
        lab.run()
    else:
        lab.wait(i, client=client)


def test_a_client_that_waits_makes_the_node_ask() -> None:
    """F1.1 Causes: a client waits for a queue without a job, or found none with NOHANG; a fetch
    emptied a queue that imports; the jobs received did not serve all waiting clients."""
    lab = Lab(3)
    lab.wait(0)
    assert asked(lab) == [(0, 1, 1), (0, 2, 1)]
    lab.add(2, replicate=1)
    assert len(lab.served[0][7]) == 1


def test_a_poll_asks_for_the_next_one() -> None:
    """F1.1 Causes: a client waits for a queue without a job, or found none with NOHANG"""
    lab = Lab(3)
    id = lab.add(1, replicate=1)
    assert poll(lab, 0) == []
    (wish,) = (m for _, b, m in lab.log if isinstance(m, NeedJobs) and b == 1)
    assert not wish.is_waiting, "nobody waits for the answer"
    assert poll(lab, 0) == [id]


def test_an_emptied_queue_imports_more() -> None:
    """F1.1 Causes: a client waits for a queue without a job, or found none with NOHANG; a fetch
    emptied a queue that imports"""
    lab = Lab(2)
    ids = [lab.add(1, replicate=1) for _ in range(40)]
    got: list[bytes] = []
    polls = 0
    poll(lab, 0)
    while len(got) < 40:
        got += poll(lab, 0)
        polls += 1
        assert polls < 60
    assert sorted(got) == sorted(ids)
    assert lab.nodes[0].demands[b"q"].rate(lab.now_ms) > 0


def test_all_who_wait_are_served() -> None:
    """F1.1 Causes: a client waits for a queue without a job, or found none with NOHANG; a fetch
    emptied a queue that imports; the jobs received did not serve all waiting clients."""
    lab = Lab(2)
    for _ in range(30):
        lab.add(1, replicate=1)
    for client in range(30):
        block(lab, 0, client)
    lab.pass_ms(100)
    assert sum(len(jobs) for jobs in lab.served[0].values()) == 30


@pytest.mark.parametrize("why", ["leaving", "memory", "pause"])
def test_who_does_not_ask(why: str) -> None:
    """F1.2 Nothing is asked while this node leaves, memory is at level 2 or above, or the input or
    output of the queue is paused here;"""
    lab = Lab(2)
    n = lab.nodes[0]

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
    lab.wait(0)
    lab.pass_ms(5_000)
    assert asked(lab) == []
    shut(False)
    if why == "leaving":
        lab.wait(0, client=8)
    lab.pass_ms(2_000)
    assert asked(lab) == [(0, 1, 1)]
    shut(True)
    n.asks[b"q"] = None
    lab.run()
    assert asked(lab)[1:] == [(0, 1, 0)]
    lab.add(1, replicate=1)
    assert lab.nodes[1].queues[b"q"].length == 1
    lab.pass_ms(60_000)
    assert [m for _, _, m in lab.log if isinstance(m, YourJobs)] == []


def test_sources_are_asked_for_more() -> None:
    """F1.3 Nodes that sent jobs of this queue in the last 5 s are sources. NEEDJOBS goes to them
    with count = the larger of import rate / sources and waiting clients, within 5..100."""
    lab = Lab(3)
    for _ in range(400):
        lab.add(1, replicate=1)
    for i in range(350):
        block(lab, 0, i)
        if i % 10 == 0:
            lab.pass_ms(10)
    lab.pass_ms(4_000)
    block(lab, 0, 1_000)
    counts = [count for a, b, count in asked(lab) if (a, b) == (0, 1) and count > 0]
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


def test_others_are_asked_for_one() -> None:
    """F1.4 If clients wait, or looked, NEEDJOBS also goes to all other linked nodes, with
    count 1.
    """
    lab = Lab(3)
    lab.add(1, replicate=1)
    lab.wait(0)
    lab.wait(0)
    lab.pass_ms(100)
    last = {b: count for a, b, count in asked(lab) if a == 0}
    assert last == {1: 20, 2: 1}


def test_wishes_stand() -> None:
    """F1.5 NEEDJOBS is a standing request at the node that gets it. It ends when that node sends
    jobs, a count of 0 withdraws it, the link ends or 10 minutes are over; it is renewed after 4. A
    node with a standing request is not asked again. Count 0 is sent 200 ms after the last waiting
    client left."""
    lab = Lab(2)
    lab.wait(0, client=1)
    lab.wait(0, client=2)
    lab.pass_ms(235_000)
    assert asked(lab) == [(0, 1, 1)]
    lab.pass_ms(40_000)
    assert asked(lab) == [(0, 1, 1)] * 2
    stop_waiting(lab.nodes[0], 1)
    lab.pass_ms(1_000)
    assert len(asked(lab)) == 2
    stop_waiting(lab.nodes[0], 2)
    lab.pass_ms(190)
    assert len(asked(lab)) == 2
    lab.pass_ms(20)
    assert asked(lab)[2:] == [(0, 1, 0)]
    id = lab.add(1, replicate=1)
    assert lab.holders_of(id) == [1]


def test_a_wish_without_an_end_ends() -> None:
    """F1.5 NEEDJOBS is a standing request at the node that gets it. It ends when that node sends
    jobs, a count of 0 withdraws it, the link ends or 10 minutes are over;"""
    lab = Lab(2)
    say(lab.nodes[0], lab.slot(0, 1), NeedJobs(b"q", 1, True))
    lab.run()
    lab.pass_ms(700_000)
    id = lab.add(1, replicate=1)
    assert lab.holders_of(id) == [1]
    lab.pass_ms(120_000)
    assert lab.nodes[1].demands == {}


def test_a_new_link_is_asked_anew() -> None:
    """F1.5 NEEDJOBS is a standing request at the node that gets it. It ends when that node sends
    jobs, a count of 0 withdraws it, the link ends or 10 minutes are over;"""
    lab = Lab(3)
    lab.wait(0)
    lab.isolate(0)
    lab.add(1, replicate=1)
    assert lab.served[0] == {}
    lab.heal()
    lab.pass_ms(100)
    assert len(lab.served[0][7]) == 1


@pytest.mark.long
def test_steps_between_asks_are_capped() -> None:
    """F1.6 Between two requests for a queue there are 0, 25, 50, ... at most 1600 ms. Jobs that
    arrive and links that come up reset the steps. Exponents are capped."""
    lab = Lab(2)
    times: list[int] = []
    for _ in range(4_000):  # hours of clients that come and go
        lab.log.clear()
        lab.wait(0, timeout_ms=1)
        for _ in range(3):
            lab.pass_ms(400)
            times += [lab.now_ms for _, _, count in asked(lab) if count > 0]
            lab.log.clear()
    gaps = [b - a for a, b in pairwise(times)]
    assert max(gaps[20:]) <= 3_600
    lab.add(1, replicate=1)
    lab.wait(0)
    lab.pass_ms(1_600)
    assert len(lab.served[0][7]) == 1
    assert lab.nodes[0].demands[b"q"].step_ms <= 25


def test_the_count_is_cut() -> None:
    """F2.1 The count is limited to 1..100; 0 ends the request."""
    lab = Lab(2)
    for _ in range(300):
        lab.add(1, b"long", replicate=1)
    for count, given in ((1 << 40, 100), (-(1 << 40), 0), (0, 0)):
        say(lab.nodes[0], lab.slot(0, 1), NeedJobs(b"long", count, True))
        before = lab.nodes[1].queues[b"long"].length
        lab.run()
        assert before - lab.nodes[1].queues[b"long"].length == given


def test_the_link_is_looked_at_first() -> None:
    """F2.1 Nothing is given over a link that is down or full"""
    lab = Lab(2)
    n = lab.nodes[1]
    lab.wait(0)
    n.peers[lab.slot(1, 0)].has_room = False
    ids = [lab.add(1, replicate=1, retry_s=retry_s) for retry_s in (0, 10)]
    assert n.queues[b"q"].length == 2
    lab.pass_ms(5_000)
    assert n.queues[b"q"].length == 2
    n.peers[lab.slot(1, 0)].has_room = True
    lab.pass_ms(100)
    assert len(lab.served[0][7]) == 1
    lab.wait(0, b"other", client=9)
    lab.cut(0, 1)
    more = lab.add(1, b"other", replicate=1, retry_s=0)
    assert n.queues[b"other"].length == 1
    assert lab.get(1, b"other") == [more]
    assert len(set(ids)) == 2


def test_clients_here_come_first() -> None:
    """F2.1 The request is served at once, or when jobs are queued for which no client here
    waits.
    """
    lab = Lab(2)
    lab.wait(1, client=1)
    lab.wait(0, client=2)
    lab.add(1, replicate=1)
    assert lab.served[0] == {}
    assert len(lab.served[1][1]) == 1
    lab.add(1, replicate=1)
    assert len(lab.served[0][2]) == 1


def test_an_importing_node_keeps_what_nobody_waits_for() -> None:
    """F2.1 Nothing is given to a sender without waiting clients while this node imports the queue
    and a client here polled it in the last 200 ms: jobs must not bounce between nodes with busy
    clients."""
    lab = Lab(3)
    for _ in range(20):
        lab.add(2, replicate=1)
    lab.wait(1)
    lab.wait(1)
    lab.pass_ms(100)
    held = lab.nodes[1].queues[b"q"].length
    assert held > 0
    say(lab.nodes[0], lab.slot(0, 1), NeedJobs(b"q", 1, False))
    lab.run()
    assert lab.nodes[1].queues[b"q"].length == held
    say(lab.nodes[0], lab.slot(0, 1), NeedJobs(b"q", 1, True))
    lab.run()
    assert lab.nodes[1].queues[b"q"].length == held - 1
    say(lab.nodes[0], lab.slot(0, 1), NeedJobs(b"q", 1, False))
    lab.run()
    assert lab.nodes[1].queues[b"q"].length == held - 1
    lab.pass_ms(300)
    assert lab.nodes[1].queues[b"q"].length == held - 2, "its own clients have gone"


def test_who_found_nothing_has_looked_too() -> None:
    """F2.1 Nothing is given to a sender without waiting clients while this node imports the queue
    and a client here polled it in the last 200 ms"""
    lab = Lab(3)
    lab.add(2, replicate=1)
    lab.wait(1)
    lab.pass_ms(300)
    assert len(lab.served[1][7]) == 1, "it imports the queue"
    assert poll(lab, 1) == []
    say(lab.nodes[0], lab.slot(0, 1), NeedJobs(b"q", 1, False))
    lab.run()
    lab.log.clear()
    lab.add(1, replicate=1)
    lab.pass_ms(190)
    assert [(a, b) for a, b, m in lab.log if isinstance(m, YourJobs)] == []
    lab.pass_ms(20)
    assert (1, 0) in [(a, b) for a, b, m in lab.log if isinstance(m, YourJobs)]


def test_jobs_do_not_go_to_and_fro() -> None:
    """F2.1 jobs must not bounce between nodes with busy clients."""
    lab = Lab(3)
    for _ in range(40):
        lab.add(2, replicate=1)
    for _ in range(10):
        for i in (0, 1):
            assert poll(lab, i) or True
        lab.pass_ms(20)
    lab.log.clear()
    for _ in range(20):
        for i in (0, 1):
            poll(lab, i)
        lab.pass_ms(50)
    moved = [(a, b) for a, b, m in lab.log if isinstance(m, YourJobs) for _ in m.jobs]
    assert len([1 for a, b in moved if 2 not in (a, b)]) <= 4, "between the two that poll"


def test_two_importing_nodes_do_not_starve_each_other() -> None:
    """A client that waits is served, however many nodes believe that others import."""
    lab = Lab(2)
    for i in range(2):
        lab.wait(i, client=i)
    for i in range(2):
        lab.add(1 - i, replicate=1)
        lab.add(1 - i, replicate=1)
    lab.pass_ms(10)
    for n in lab.nodes:
        n.now_ms = lab.now_ms
        n.demands[b"q"].count_imports(lab.now_ms, 50)
    for i in range(2):
        while lab.get(i):
            pass
    lab.wait(0, client=10)
    lab.wait(1, client=11)
    lab.pass_ms(50)
    lab.add(0, replicate=1)
    lab.add(0, replicate=1)
    lab.pass_ms(100)
    assert len(lab.served[0].get(10, [])) + len(lab.served[1].get(11, [])) == 2


@pytest.mark.long
def test_idle_clients_cost_little() -> None:
    """A thousand clients that wait for a thousand empty queues cost a few messages a second."""
    lab = Lab(3)
    for i in range(1_000):
        lab.wait(0, b"q%d" % i, client=1_000 + i)
    assert len(asked(lab)) == 2_000
    lab.log.clear()
    lab.pass_ms(600_000)
    assert len(lab.log) < 10 * 600
    frames = Counter(type(m).__name__ for _, _, m in lab.log)
    assert list(frames) == ["NeedJobs"]
    for i in range(1_000):
        stop_waiting(lab.nodes[0], 1_000 + i)
    lab.pass_ms(120_000)
    for n in lab.nodes:
        assert n.demands == {}
        assert n.looks == []


@pytest.mark.parametrize("nodes", [2, 5])
def test_a_client_is_served_within_two_seconds(nodes: int) -> None:
    """A client that waits gets a job of any other node within 2 s, with traffic within 100 ms."""
    lab = Lab(nodes)
    lab.wait(0)
    for step in range(120):
        lab.pass_ms(37 * (step % 41))
        added_ms = lab.now_ms
        lab.add(1 + step % (nodes - 1), replicate=1)
        while len(lab.served[0].get(7, [])) <= step:
            lab.pass_ms(5)
            assert lab.now_ms <= added_ms + 100
        lab.nodes[0].now_ms = lab.now_ms
        lab.wait(0)


def lease(lab: Lab, i: int, seq: int, count: int) -> int:
    """LEASE NEXT as the server does it: how many jobs the batch has."""
    n = lab.nodes[i]
    n.now_ms = lab.now_ms
    g = n.leases.groups.get(b"g")
    if g is None:
        on_open(n, b"g", b"me", [b"q"])
        g = n.leases.groups[b"g"]
    taken, error = on_next(n, 7, g, seq, count, 1 << 30, 1, 60_000)
    assert error is None
    commit(n, b"g", g.epoch, seq - 1)
    lab.run()
    return taken


@pytest.mark.long
def test_a_lease_looks_for_what_it_lacks() -> None:
    """F1.1 A LEASE NEXT that took fewer jobs than it may counts as a look for the missing ones."""
    lab = Lab(3)
    for node in (1, 2):
        for _ in range(600):
            lab.add(node, replicate=1)
    assert lease(lab, 0, 1, 500) == 0
    assert 500 <= lab.nodes[0].queues[b"q"].length < 800, "it has come, and not all there is"
    assert lease(lab, 0, 1, 500) == 500


def test_how_long_a_lease_lacks() -> None:
    """F1.3 The jobs that a LEASE NEXT lacked count as waiting clients for 200 ms."""
    lab = Lab(2)
    lab.add(0, replicate=1)
    assert lease(lab, 0, 1, 500) == 1, "it goes on with what there is"
    lab.pass_ms(100)
    for _ in range(50):
        lab.add(1, replicate=1)
    assert lab.nodes[0].queues[b"q"].length == 50
    lab.pass_ms(300)
    for _ in range(50):
        lab.add(1, replicate=1)
    lab.pass_ms(1000)
    assert lab.nodes[0].queues[b"q"].length == 50
    assert lease(lab, 0, 2, 60) == 50
    assert lease(lab, 0, 3, 60) >= 10, "what it lacked, at least"


@pytest.mark.long
def test_a_lease_goes_on_as_jobs_come() -> None:
    """A lease empties a queue that imports as clients do (F1.1), and gets more as fast."""
    lab = Lab(2)
    got = seq = 0
    for _ in range(20):
        for _ in range(100):
            lab.add(1, replicate=1)
        taken = lease(lab, 0, seq + 1, 10_000)
        got, seq = got + taken, seq + (taken > 0)
        lab.pass_ms(100)
    assert got >= 1800


def test_jobs_between_nodes_are_counted() -> None:
    """O1.7 `asked`, jobs that this node asked that one for (F1); `sent`, jobs that it gave to it,
    also if these were refused (F2); `taken`, jobs that came from it and were queued here (F3).
    """
    lab = Lab(2)
    here, there = (n.peers[1] for n in lab.nodes)  # each is 0 for itself
    lab.wait(0)
    assert (int(here.asked), int(there.asked)) == (1, 0)
    lab.add(1, replicate=1)
    assert (int(there.sent), int(here.taken)) == (1, 1)
    lab.wait(0)
    set_pause(lab.nodes[0], b"q", PAUSE_IN, False, 1)
    lab.add(1, replicate=1)
    assert (int(there.sent), int(here.taken)) == (2, 1)
    assert (int(here.sent), int(there.taken)) == (0, 0)
