"""Jobs whose attempts the worker counts, and those that run once (SPEC U2.5, U2.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from noting import Noting

from tuque.client.commands.work import Run
from tuque.worker import App, Backoff, RetryLater, current_job
from world import World

NO_RUNS = ["fifo", "fifottl", "utube", "utubettl", "limfifottl"]


def plain(noting: Noting, name: str, *args: object, **options: object) -> bytes:
    """The body of a job of that task, as another client adds it."""
    task = noting.app.tasks[name]
    return task.body(task.options(**options)._options, args, {})


def test_the_worker_counts_what_another_client_added(world: World) -> None:
    """U2.6 For jobs without ATTEMPTS the worker counts the attempts"""
    noting, client = Noting(), world.client()
    world.at_work(noting.app)
    id = client.addjob("q", plain(noting, "never", "x"))
    world.until(lambda: client.result(id).state == "dead")
    assert noting.did == ["x 1", "x 2", "x 3"]
    letter = client.dead_show(id)
    assert (letter.queue, letter.cause, letter.attempts) == ("q.dead", "failed", 3)
    assert letter.reason == "ValueError: no, never" and b"Traceback" in letter.detail
    shown = client.show(id)
    assert shown is not None and (shown.nacks, shown.additional_deliveries) == (0, 0)


def test_its_result_is_known(world: World) -> None:
    noting, client = Noting(), world.client()
    world.at_work(noting.app)
    id = client.addjob("q", plain(noting, "adds", 1, 2), keep=60)
    world.until(lambda: client.result(id).state == "done")
    assert (client.result(id).result, client.result(id).attempt) == (b"3", 1)


@pytest.mark.parametrize("came_back", ["nack", "retry"])
def test_deliveries_that_came_back_are_attempts(world: World, came_back: str) -> None:
    """U2.6 deliveries that came back, runs that failed, and crashes."""
    noting, client = Noting(), world.client()
    id = client.addjob("q", plain(noting, "never", "x"), retry=5)
    assert client.getjob("q")
    if came_back == "nack":
        client.nack(id)
    else:
        world.pass_ms(6_000)
    world.at_work(noting.app)
    world.until(lambda: client.result(id).state == "dead")
    assert noting.did == ["x 2", "x 3"]


def test_a_poisonous_job_does_not_go_round_for_ever(world: World) -> None:
    """U2.6 with FINAL at the limit of the task; a job that is over it does not run."""
    noting, client = Noting(), world.client()
    id = client.addjob("q", plain(noting, "lasts", "poison", 9.0, attempts=2), retry=3)
    for count in (1, 2):
        shift = world.at_work(noting.app)
        world.until(lambda n=count: len(noting.did) == n)
        shift.kill()
        world.until(lambda n=count: client.show(id).work.crashes == n)
    world.at_work(noting.app)
    world.until(lambda: client.result(id).state == "dead")
    letter = client.dead_show(id)
    assert noting.did == ["begin poison"] * 2
    assert letter.reason == "rejected: delivered 2 times without success, the limit is 2"


@pytest.mark.parametrize("kind", ["queue", *NO_RUNS])
def test_later_is_no_attempt(world: World, kind: str) -> None:
    """U2.2 `RetryLater` is RELEASE."""
    client, app, did = world.client(), App("tuque://127.0.0.1:1"), list[str]()
    if kind != "queue":
        client.tube("q").create(kind)

    @app.task(queue="q", name="later", attempts=2)
    def later() -> None:
        did.append(f"{current_job().attempt}")
        if len(did) < 5:
            raise RetryLater("busy", delay_s=1.0)

    world.at_work(app)
    words = {"utube": "a"} if kind.startswith("utube") else {}
    id = client.addjob("q", later.body(later.defaults, (), {}), **words)
    world.until(lambda: len(did) == 5)
    assert did == ["1"] * 5
    world.until(lambda: client.show(id) is None)


@pytest.mark.parametrize("kind", NO_RUNS)
def test_a_tube_without_runs_keeps_what_failed(world: World, kind: str) -> None:
    """U2.6 Tasks of tubes without runs (T48) begin without START. In DONE, FAIL and RELEASE `-`
    is their run (T1.13, T1.14), and deliveries are their attempts.
    """
    noting, client = Noting(), world.client()
    tube = client.tube("q")
    tube.create(kind)
    world.at_work(noting.app)
    words = {"utube": "a"} if kind.startswith("utube") else {}
    id = client.addjob("q", plain(noting, "never", "x"), **words)
    world.until(lambda: tube.info().buried == 1)
    shown = client.show(id)
    assert shown is not None and (shown.nacks, shown.additional_deliveries) == (2, 0)
    assert noting.did == ["x 1", "x 2", "x 3"]


@pytest.mark.parametrize("kind", ["queue", "fifottl"])
def test_what_a_stopping_worker_gives_back_is_no_attempt(world: World, kind: str) -> None:
    noting, client = Noting(), world.client()
    if kind != "queue":
        client.tube("q").create(kind)
    shift = world.at_work(noting.app, grace_s=0.5)
    ids = [client.addjob("q", plain(noting, "until_go", name)) for name in ("a", "b")]
    world.until(lambda: noting.did == ["begin a"])
    shift.stop()
    assert shift.ends()
    for id in ids:
        shown = client.show(id)
        assert shown is not None and (shown.nacks, shown.additional_deliveries) == (0, 0)
    noting.did.clear()
    noting.go.set()
    world.at_work(noting.app)
    world.until(lambda: len(noting.did) == 4)


def test_only_what_a_lost_worker_had_begun_is_a_suspect(world: World) -> None:
    """U2.23 A job with `crashes`, and of tasks without runs one with additional deliveries, is a
    suspect
    """
    noting, client = Noting(), world.client()
    first = world.at_work(noting.app, concurrency=1, prefetch=3)
    bodies = [plain(noting, "lasts", name, 0.5) for name in ("suspect", "x", "y", "z")]
    ids = [client.addjob("q", body, retry=3) for body in bodies]
    world.until(lambda: noting.did == ["begin suspect"])
    world.until(lambda: world.qlen() == 0)
    first.kill()
    world.pass_ms(6_000)
    noting.did.clear()
    world.at_work(noting.app, concurrency=4)
    world.until(lambda: len(noting.did) == 8)
    at = noting.did.index("begin suspect")
    assert noting.did[at + 1] == "end suspect"
    others = [line for line in noting.did if "suspect" not in line]
    assert [line.split()[0] for line in others[:2]] == ["begin", "begin"], noting.did
    world.until(lambda: all(client.show(id) is None for id in ids))


def test_a_task_without_runs_that_came_back_is_a_suspect(world: World) -> None:
    """U2.23 of tasks without runs one with additional deliveries, is a suspect"""
    noting, client = Noting(), world.client()
    client.tube("q").create("fifottl")
    first = world.at_work(noting.app)
    client.addjob("q", plain(noting, "lasts", "suspect", 0.5), retry=3)
    world.until(lambda: noting.did == ["begin suspect"])
    first.kill()
    world.pass_ms(6_000)
    noting.did.clear()
    for name in "xyz":
        client.addjob("q", plain(noting, "lasts", name, 0.5), retry=3)
    world.at_work(noting.app, concurrency=4)
    world.until(lambda: len(noting.did) == 8)
    at = noting.did.index("begin suspect")
    assert noting.did[at + 1] == "end suspect"


# ---- RETRY 0


def test_what_comes_once_begins_with_start(world: World) -> None:
    """U2.1 It runs a job only under the run token of the reply"""
    noting, client = Noting(), world.client()
    world.at_work(noting.app)
    body = plain(noting, "until_go", "x", keep_s=60)
    id = client.addjob("q", body, retry=0, replicate=1, keep=60)
    world.until(lambda: noting.did == ["begin x"])
    assert client.result(id).state == "running" and client.result(id).worker
    noting.go.set()
    world.until(lambda: client.result(id).state == "done")
    assert client.result(id).result == b'"x"'


def test_what_comes_once_is_a_dead_letter_if_its_worker_stops(world: World) -> None:
    """U2.5 A job with RETRY 0 ends with DONE or FAIL FINAL, also if its worker stops before it
    ran: the dead letter has its id, the cause and the traceback.
    """
    noting, client = Noting(), world.client()
    shift = world.at_work(noting.app, concurrency=1, prefetch=1, grace_s=0.5)
    ids = [
        client.addjob("q", plain(noting, "until_go", name), retry=0, replicate=1) for name in "ab"
    ]
    world.until(lambda: noting.did == ["begin a"] and world.qlen() == 0)
    shift.stop()
    assert shift.ends()
    reasons = [client.dead_show(id).reason for id in ids]
    once = "the only try (retry_s=0): the worker stopped"
    assert reasons == [f"{once} while it ran", f"{once} before it ran"]


def test_what_comes_once_does_not_run_twice(world: World) -> None:
    """U2.5 It does not run if the broker has no START for it."""
    noting, client = Noting(), world.client()
    id = client.addjob("q", plain(noting, "until_go", "x"), retry=0, replicate=1)
    first = world.at_work(noting.app)
    world.until(lambda: noting.did == ["begin x"])
    first.kill()
    world.at_work(noting.app)
    world.pass_ms(60_000)
    assert noting.did == ["begin x"] and client.result(id).state == "running"
    (run,) = client.start(id, worker="other")
    assert not isinstance(run, Run)


def test_fail_of_another_client_says_when(world: World) -> None:
    """U2.6 It says FAIL with DELAY"""
    noting, client = Noting(), world.client()
    shift = world.at_work(noting.app)
    id = client.addjob("q", plain(noting, "never", "x", backoff=Backoff(40, 40, 0)))
    world.until(lambda: noting.did == ["x 1"])
    world.until(lambda: client.result(id).state == "back-off")
    world.pass_ms(39_000)
    assert noting.did == ["x 1"]
    world.pass_ms(2_500)
    assert noting.did == ["x 1", "x 2"]
    shift.stop()


@pytest.mark.parametrize("is_done", [False, True])
def test_the_end_of_what_comes_once_outlasts_a_power_cut(
    make_world: Callable[..., World], is_done: bool
) -> None:
    """U2.5 A job with RETRY 0 ends with DONE or FAIL FINAL

    J4.4 The reply to a delivery of an AMO job waits for the sync of its record
    """
    world, noting, failures = make_world(), Noting(), list[str]()
    client, go = world.client(), asyncio.Event()

    @noting.app.task(queue="q", retry_s=0, name="ends")
    async def ends() -> str:
        noting.did.append("begin ends")
        await go.wait()
        if not is_done:
            raise ValueError("not this time")
        return "ended"

    noting.app.on_failure(lambda job, failure: failures.append(failure.text))
    world.at_work(noting.app, concurrency=1, prefetch=1)
    client.addjob("q", plain(noting, "until_go", "first"), retry=600)
    world.until(lambda: noting.did == ["begin first"])
    id = client.addjob("q", ends.body(ends.defaults, (), {}), retry=0, replicate=1, keep=60)
    world.until(lambda: world.qlen() == 0)
    world.pass_ms(3_000)
    client.addjob("other", "x")  # it is synced at once, and what follows a second later
    world.pass_ms(300)
    noting.go.set()
    world.until(lambda: "begin ends" in noting.did)
    world.cut_power(0)
    world.start(0)
    assert world.client().result(id).state == "running", "its START was synced"
    go.set()
    world.until(lambda: world.client().result(id).is_over)
    if is_done:
        assert world.client().result(id).result == b'"ended"'
    else:
        reason = "the only try (retry_s=0): ValueError: not this time"
        assert world.client().dead_show(id).reason == reason
        assert failures == ["ValueError: not this time"]
