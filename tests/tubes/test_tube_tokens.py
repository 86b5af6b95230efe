"""Tokens of takes and the journal (SPEC T5.1): never twice, wherever the clock was set."""

from __future__ import annotations

from tube_world import TubeWorld

from sim.engine.clock import START_MS
from tuque.core.dispatch.restore import after_load
from tuque.tubes.model.tube import Tube
from tuque.tubes.tasks import operations


def taken(home: TubeWorld, tube: Tube) -> int:
    """The token of a new take of a new task, which is acked."""
    home.put(tube)
    home.settle()
    task = operations.take(home.n, home.t, tube, 1)
    assert task is not None
    operations.ack(home.n, home.t, tube, 1, task.number)
    home.settle()
    return int(task.token)


def test_tokens_go_on_after_a_snapshot_when_the_clock_was_set_back() -> None:
    """T5.1 A token is greater than any before it on this node, with a journal also over
    restarts, even if the clock was set back.
    """
    home = TubeWorld(has_journal=True)
    token = taken(home, home.make("fifo"))
    home.restart()  # tokens begin at the time of the start
    for _ in range(3):
        before, token = token, taken(home, home.t.by_name[b"t"])
        assert token > before
        home.rewrite()
        home.restart(-86_400_000)


def test_a_take_that_the_disk_lost_leaves_its_token_used() -> None:
    """T5.1 a number above all tokens in use is on disk before they are given out, also under
    `everysec`.
    """
    home = TubeWorld(has_journal=True)
    tube = home.make("fifo")
    home.put(tube)
    home.settle()
    home.restart()
    after_load(home.n)
    home.settle()
    tube = home.t.by_name[b"t"]
    task = operations.take(home.n, home.t, tube, 1)
    assert task is not None and task.token > START_MS * 1000
    assert home.n.records is not None
    home.n.records.take()  # it is told, and its record goes with the power
    home.restart(-86_400_000)
    assert taken(home, home.t.by_name[b"t"]) > task.token


def test_a_million_takes_are_recorded_in_time() -> None:
    """T14.1 A take binds no reply (J4.2), except with in_replicaset, and once in a million takes
    (T5.1)."""
    home = TubeWorld(has_journal=True)
    tube = home.make("fifo")
    first = taken(home, tube)
    home.put(tube)
    home.settle()
    home.t.token = home.t.token_reserved
    records = home.n.records
    assert records is not None
    binding = records.binding_count
    task = operations.take(home.n, home.t, tube, 1)
    assert task is not None and task.token == home.t.token > first
    assert records.binding_count == binding + 1 and records.has_custody
    assert home.t.token_reserved > task.token + 1_000_000
    home.settle()
    reserved = home.t.token_reserved
    home.restart(-START_MS)
    assert home.t.token >= reserved
