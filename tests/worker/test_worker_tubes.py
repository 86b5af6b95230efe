"""The worker on tubes: as on queues, with priorities and sub-queues respected (SPEC T1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from noting import Noting

from tuque.errors import JobFailed
from tuque.worker import Limit
from world import World

Make = Callable[..., World]


def test_priorities(world: World) -> None:
    noting, tube = Noting(), world.client().tube("tube")
    tube.create("fifottl", pri=5)
    shift = world.at_work(noting.app, queues=("tube",), max_jobs=5)
    for pri in (9, 2, 7, 1):
        noting.in_a_tube.options(pri=pri).enqueue(f"pri {pri}", "k")
    noting.in_a_tube.enqueue("default", "k")
    assert shift.ends()
    begun = [line for line in noting.did if line.startswith("begin")]
    assert begun == [f"begin k {what}" for what in ("pri 1", "pri 2", "default", "pri 7", "pri 9")]
    assert tube.statistics()["calls"] | {"take": 5, "ack": 5} == tube.statistics()["calls"]


def test_priorities_of_a_queue(world: World) -> None:
    """A task with `pri` needs no tube, and one without has 5 (R1.13)."""
    noting = Noting()
    shift = world.at_work(noting.app, queues=("tube",), max_jobs=5)
    for pri in (9, 2, 7, 0):
        noting.in_a_tube.options(pri=pri).enqueue(f"pri {pri}", "k")
    noting.in_a_tube.enqueue("none", "k")
    assert shift.ends()
    begun = [line for line in noting.did if line.startswith("begin")]
    assert begun == [f"begin k {what}" for what in ("pri 0", "pri 2", "none", "pri 7", "pri 9")]
    assert world.n.policy is None or not world.node().tubes.by_name


def test_one_job_of_a_sub_queue_at_a_time(world: World) -> None:
    noting = Noting()
    world.client().tube("tube").create("utube")
    shift = world.at_work(noting.app, queues=("tube",), concurrency=4, max_jobs=12)
    for number in range(6):
        for key in "ab":
            noting.in_a_tube.options(utube=key).enqueue(str(number), key)
    assert shift.ends()
    one_after_the_other(noting.did)


def one_after_the_other(did: list[str]) -> None:
    """Jobs of a key do not overlap; those of both keys do."""
    for key in "ab":
        own = [line.split() for line in did if line.split()[1] == key]
        assert own == [[word, key, str(n)] for n in range(6) for word in ("begin", "end")]
    assert {line.split()[1] for line in did[:2]} == {"a", "b"}


def test_a_limit_holds_for_all_jobs_of_a_key(world: World) -> None:
    """U1.8 A task with `unique`, `limit`, `rate` or `group` has its jobs in a tube."""
    noting = Noting()
    shift = world.at_work(noting.app, queues=("tube",), concurrency=4, max_jobs=12)
    limited = noting.in_a_tube.options(limit=Limit(1, "key"))
    for number in range(6):
        for key in "ab":
            limited.enqueue(str(number), key)
    assert shift.ends()
    one_after_the_other(noting.did)


@pytest.mark.parametrize("many", [False, True])
def test_an_enqueue_makes_a_tube_that_went_again(make_world: Make, many: bool) -> None:
    """U1.8 The first `enqueue` makes that tube, with the task's `retry_s` as ttr and IMPLICIT
    (T2.9),
    """
    world = make_world(1, tube_idle_time=20)
    noting = Noting()
    shift = world.at_work(noting.app, queues=("tube",), max_jobs=1)
    limited = noting.in_a_tube.options(limit=Limit(1, "key"))
    limited.enqueue("1", "a")
    assert shift.ends()
    assert b"tube" in world.node().tubes.by_name
    world.until(lambda: b"tube" not in world.node().tubes.by_name, 120_000)
    shift = world.at_work(noting.app, queues=("tube",), max_jobs=1)
    if many:
        noting.in_a_tube.enqueue_many([limited.call("2", "a")])
    else:
        limited.enqueue("2", "a")
    assert shift.ends()
    assert [line for line in noting.did if "begin" in line] == ["begin a 1", "begin a 2"]
    assert b"tube" in world.node().tubes.by_name


def test_a_task_that_runs_already_is_given_a_limit(world: World) -> None:
    """U1.8 also if jobs of the task are in a queue of that name."""
    before, noting = Noting(), Noting()
    world.worker(before.app)
    old = [before.until_go.enqueue(f"old {n}") for n in range(3)]
    running = world.at_work(before.app, concurrency=1, max_jobs=1)
    world.until(lambda: before.did == ["begin old 0"])
    limited = noting.until_go.options(limit=Limit(1))
    one = limited.enqueue("one")
    many = noting.until_go.enqueue_many([limited.call(f"new {n}") for n in range(2)])
    old.append(before.until_go.enqueue("old 3"))  # by a program of the version before
    before.go.set()
    noting.go.set()
    shift = world.at_work(noting.app, concurrency=2, max_jobs=6)
    assert running.ends()
    assert shift.ends()
    client = world.client()
    results = [client.result(handle.id).state for handle in (*old, one, *many)]
    assert results == ["done"] * 7
    assert client.tube("q").info().type == "tasks"


def test_failed_jobs_of_a_tube_come_back_and_end_buried(world: World) -> None:
    noting, client = Noting(), world.client()
    tube = client.tube("q")
    tube.create("fifottl")
    world.at_work(noting.app)
    noting.third_time_lucky.enqueue("x")
    world.until(lambda: tube.statistics()["calls"]["ack"] == 1)
    assert noting.did == ["x 1", "x 2", "x 3"]
    assert tube.statistics()["calls"]["release"] == 2
    noting.never.enqueue("y")
    world.until(lambda: tube.info().buried == 1)
    assert (tube.info().taken, client.qlen("graves"), client.qlen("q.dead")) == (0, 0, 0)
    assert noting.did[3:] == ["y 1", "y 2", "y 3"]
    assert tube.kick() == 1
    world.until(lambda: tube.info().buried == 1 and tube.info().taken == 0)
    assert noting.did[6:] == ["y 3"]


def test_the_broker_counts_the_attempts_of_a_task_with_a_policy(world: World) -> None:
    """T48.1 ADDJOB to a tube of type `tasks` takes ATTEMPTS, BACKOFF, DEAD, KEEP, TIMELIMIT,
    ONEXPIRY and HEADERS (W1).
    """
    noting, client = Noting(), world.client()
    world.at_work(noting.app, concurrency=2)
    limited = noting.third_time_lucky.options(limit=Limit(1), headers={"tenant": "north"})
    handle = limited.enqueue("x")
    shown = client.result(handle.id)
    assert (shown.of, shown.state) == (5, "waiting")
    world.until(lambda: noting.did == ["x 1", "x 2", "x 3"])
    world.until(lambda: client.qlen("q") == 0)
    never = noting.never.options(limit=Limit(1), keep_s=60).enqueue("y")
    with pytest.raises(JobFailed, match="failed after 3 attempts: ValueError: no, never"):
        never.result(60)
    world.until(lambda: client.qlen("graves") == 1)
    (letter,) = client.dead_letters("graves")
    assert (letter.origin, letter.attempts, letter.cause) == ("q", 3, "failed")
    assert letter.task == noting.never.name and letter.reason == "ValueError: no, never"
    assert client.tube("q").info().taken == 0


def test_a_task_with_a_policy_has_a_result_and_puts_itself_off(world: World) -> None:
    noting, client = Noting(), world.client()
    world.at_work(noting.app, concurrency=2)
    added = noting.adds.options(limit=Limit(1)).enqueue(1, 2)
    assert added.result(timeout=30) == 3
    put_off = noting.later.options(limit=Limit(1), keep_s=60).enqueue(3)
    world.until(lambda: client.result(put_off.id).state == "done")
    assert client.result(put_off.id).attempt == 1
