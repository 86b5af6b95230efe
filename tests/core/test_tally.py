"""What a node counts of its queues' jobs (SPEC O3.3)."""

from __future__ import annotations

import pytest

from tuque.core.copies.ack import on_ackjob
from tuque.core.copies.add import on_addjob, settle
from tuque.core.dispatch.timers import tick
from tuque.core.model.job import AddSpec, Job
from tuque.core.model.stats import (
    BOUNDS,
    Book,
    Histogram,
    Tally,
)
from tuque.core.node.node import Node
from tuque.core.queues.deliver import on_getjob
from tuque.core.queues.procedures import check
from tuque.core.queues.requeue import on_dequeue, on_nack

NOW_MS = 1_800_000_000_000


def node() -> Node:
    return Node(b"c0ffee00" * 5, b"seed", NOW_MS)


def add(n: Node, queue: bytes = b"q", delay_s: int = 0) -> Job:
    spec = AddSpec()
    spec.delay_s, spec.delay_ms = delay_s, delay_s * 1000
    spec.retry_s = 10
    return on_addjob(n, queue, b"body", settle(n, spec))


def level(n: Node) -> tuple[int, int, int]:
    check(n)
    tally = n.book.tallies[b"q"]
    q = n.queues.get(b"q")
    return (0 if q is None else int(q.length), int(tally.delayed), int(tally.at_work))


def test_a_job_counts_as_what_it_is_now() -> None:
    """O3.3 the states of one job, one after the other"""
    n = node()
    job = add(n, delay_s=5)
    assert level(n) == (0, 1, 0)
    n.now_ms += 5_100
    tick(n)
    assert level(n) == (1, 0, 0)
    assert on_getjob(n, 1, [b"q"], 1) == [job]
    assert level(n) == (0, 0, 1)
    on_nack(n, job.id, 3_000)
    assert level(n) == (0, 1, 0)
    n.now_ms += 3_100
    tick(n)
    assert level(n) == (1, 0, 0)
    on_dequeue(n, job.id)
    assert level(n)[0] == 0
    n.now_ms += 10_100
    tick(n)
    assert on_getjob(n, 1, [b"q"], 1) == [job]
    on_ackjob(n, job.id)
    assert level(n) == (0, 0, 0)


def test_counters_of_the_queue_and_of_the_node() -> None:
    """O3.3 The first eleven count what happened at this node"""
    n = node()
    jobs = [add(n), add(n), add(n)]
    add(n, b"other")
    n.now_ms += 70
    taken = on_getjob(n, 1, [b"q"], 2)
    n.now_ms += 400
    on_ackjob(n, taken[0].id)
    on_nack(n, taken[1].id, 0)
    on_getjob(n, 1, [b"q"], 1)
    on_ackjob(n, jobs[2].id)  # nobody had it
    counts = [3, 3, 2, 140, 2, 1, 400, 0, 1, 0, 0]
    assert n.book.tallies[b"q"].counts() == counts
    assert n.book.total.counts() == [4, *counts[1:]]
    assert n.book.put_back == [0, 1, 0, 0, 0, 0]
    assert (n.book.waits.sum, sum(n.book.waits.buckets())) == (140, 2)
    assert (n.book.works.sum, sum(n.book.works.buckets())) == (400, 1)
    assert sum(n.book.adds_of_1.buckets()) == 4


def test_a_tally_lives_as_long_as_its_queue_or_a_job() -> None:
    n = node()
    before = n.queue_bytes
    job = add(n, delay_s=5)  # makes no queue yet
    assert b"q" not in n.queues
    assert n.queue_bytes > before
    on_ackjob(n, job.id)
    assert n.book.tallies == {}
    assert n.queue_bytes == before


def test_each_value_is_in_the_first_bucket_that_holds_it() -> None:
    for place, bound in enumerate(BOUNDS):
        one = Histogram()
        one.add(bound)
        assert one.buckets().index(1) == place
        one.add(bound + 1)
        assert sum(one.buckets()[: place + 1]) == 1


def test_a_tally_that_was_dropped_is_not_found_again() -> None:
    """The tally that was looked for last is kept at hand: with its queue it goes."""
    book = Book()
    name, other = b"queue " * 2, b"other " * 2
    book.tallies[name], book.tallies[other] = Tally(), Tally()
    assert book.of(name) is book.of(name) is book.tallies[name]
    assert book.of(other) is book.tallies[other] and book.of(name) is book.tallies[name]
    book.drop(name)
    with pytest.raises(KeyError):
        book.of(name)
    book.tallies[name] = Tally()
    assert book.of(name) is book.tallies[name]
    empty = Book()
    with pytest.raises(KeyError):
        empty.of(b"")
