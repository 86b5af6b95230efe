"""Deploys: jobs that the version at work cannot run wait for the one that can (SPEC U2)."""

from __future__ import annotations

import enum
from typing import Any

import pytest
from noting import Noting

from tuque.worker import App
from tuque.worker.app.decisions import put_off_s
from world import World


class Size(enum.Enum):
    SMALL = "s"


class Sizes(enum.Enum):
    SMALL = "s"
    LARGE = "l"


def app_of(function: Any, **options: Any) -> App:
    """An app whose task `resize` is this function."""
    app = App("tuque://127.0.0.1:1")
    app.task(queue=options.pop("queue", "q"), name="resize", **options)(function)
    return app


def v1(name: str, size: Size = Size.SMALL) -> str:
    return f"{name} {size.value}"


def optional(name: str, size: Size = Size.SMALL, quality: int = 3) -> str:
    return f"{name} {size.value} {quality}"


def member(name: str, size: Sizes = Sizes.SMALL) -> str:
    return f"{name} {size.value}"


def widened(name: str | int, size: Size = Size.SMALL) -> str:
    return f"{name} {size.value}"


def renamed(title: str, size: Size = Size.SMALL) -> str:
    return f"{title} {size.value}"


async def later(title: str) -> str:
    return f"{title} later"


CALLS = [
    (optional, ("cat", Size.SMALL, 4), {}, "too many positional arguments", "cat s 4"),
    (optional, ("cat",), {"quality": 4}, "unexpected keyword argument 'quality'", "cat s 4"),
    (member, ("cat", Sizes.LARGE), {}, "argument size: Invalid enum value 'l'", "cat l"),
    (widened, (7,), {}, "argument name: Expected `str`, got `int`", "7 s"),
    (renamed, (), {"title": "cat"}, "missing a required argument: 'name'", "cat s"),
    (later, (), {"title": "cat"}, "missing a required argument: 'name'", "cat later"),
]


@pytest.mark.parametrize(("function", "args", "named", "reason", "result"), CALLS)
def test_a_call_of_a_newer_version_waits_for_it(
    world: World,
    caplog: pytest.LogCaptureFixture,
    function: Any,
    args: tuple[Any, ...],
    named: dict[str, Any],
    reason: str,
    result: str,
) -> None:
    """U2.19 A call that the signature of the task does not take is RELEASE as in U2.4: no attempt
    is used up, and no hook runs. The log says why, once for each reason.
    """
    new = app_of(function, attempts=1)
    world.worker(new)
    handle = new.tasks["resize"].enqueue(*args, **named)
    old, failures = app_of(v1, attempts=1), list[str]()
    old.on_start(lambda job: failures.append("on_start"))
    old.on_failure(lambda job, failure: failures.append(failure.text))
    shift = world.at_work(old)
    world.pass_ms(10_000)
    assert (handle.status().state, handle.status().attempt) in [("back-off", 1), ("running", 1)]
    assert caplog.text.count("task resize does not take a call, which is given back") == 1
    assert f"bad arguments: {reason}" in caplog.text.replace("got an unexpected", "unexpected")
    assert failures == []
    shift.stop()
    world.at_work(new)
    world.pass_ms(1500)
    assert (handle.status().state, handle.result(1)) == ("done", result)


@pytest.mark.parametrize(
    ("kind", "attempts"),
    [("queue", 1), ("queue", 0), ("tasks", 1), ("tasks", 0), ("fifo", 0), ("utubettl", 0)],
)
@pytest.mark.parametrize("is_known", [False, True])
def test_they_wait_in_queues_and_tubes_alike(
    world: World, kind: str, is_known: bool, attempts: int
) -> None:
    """U2.4 It begins 1.5 s after a worker knows its task, at the latest, in queues as in tubes."""
    client = world.client()
    if kind != "queue":
        client.tube("q").create(kind)
    words: dict[str, Any] = {"attempts": attempts} if attempts else {}
    id = client.addjob("q", b'{"task":"resize","kwargs":{"title":"cat"}}', retry=30, **words)
    new, did = App("tuque://127.0.0.1:1"), list[str]()

    @new.task(queue="q", name="resize")
    def resize(title: str) -> None:
        did.append(title)

    shift = world.at_work(app_of(v1) if is_known else Noting().app)
    world.pass_ms(10_000)
    shown = client.show(id)
    assert shown is not None
    assert (shown.nacks, shown.additional_deliveries, shown.queue) == (0, 0, "q")
    shift.stop()
    assert shift.ends()
    world.at_work(new)
    world.pass_ms(1500)
    assert did == ["cat"]


@pytest.mark.parametrize("kind", ["queue", "tasks", "fifo"])
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"task":"new","unknown_keep_s":6}', "unknown task 'new'"),
        (b'{"task":"resize","unknown_keep_s":6}', "bad arguments: missing a required argument"),
    ],
)
def test_they_do_not_wait_for_ever(
    world: World, caplog: pytest.LogCaptureFixture, kind: str, body: bytes, why: str
) -> None:
    """U2.4 `unknown_keep_s` after the job was added it is FAIL FINAL, or given up as in U2.6."""
    client = world.client()
    if kind != "queue":
        client.tube("q").create(kind)
    words: dict[str, Any] = {} if kind == "fifo" else {"attempts": 5}
    id = client.addjob("q", body, retry=30, **words)
    world.at_work(app_of(v1))
    world.pass_ms(4_000)
    assert client.show(id) is not None and why in caplog.text and "dead" not in caplog.text
    world.pass_ms(4_000)
    assert f"rejected: {why}" in caplog.text if kind != "fifo" else why in caplog.text
    if kind != "fifo":
        assert client.result(id).state == "dead" and client.result(id).attempt == 1
    else:
        assert client.show(id) is None and client.qlen("q.dead") == 1


def test_at_most_once_is_at_once(world: World) -> None:
    """U2.4 A job with RETRY 0 cannot come again: it is a dead letter at once."""
    world.at_work(app_of(v1))
    id = world.client().addjob("q", b'{"task":"resize"}', retry=0, replicate=1)
    world.until(lambda: world.client().result(id).state == "dead")


def test_many_of_them_come_slower() -> None:
    """U2.4 A job of an unknown task is RELEASE DELAY 0.1, 0.2, 0.4, 0.8, then 1 s.

    U2.4 Of more than 500 such jobs each waits longer, n / 500 s, so that a worker gets 500 of them
    a second at most, and 60 s at most.
    """
    assert [put_off_s(times, 500) for times in range(6)] == [1.0] * 6
    assert [put_off_s(times, 1) for times in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert put_off_s(99, 5_000) == 10.0
    assert put_off_s(99, 10**6) == 60.0


def test_they_are_none_of_the_jobs_of_a_worker(world: World) -> None:
    """U4.1 Jobs in a delay or back-off are not waited for."""
    client, new = world.client(), app_of(renamed)
    world.worker(new)
    ids = [new.tasks["resize"].enqueue(title="cat").id]
    ids.append(client.addjob("q", b'{"task":"new"}', attempts=1, ttl=0, retry=30))
    ids.append(client.addjob("q", b'{"task":"new"}'))
    fits = app_of(v1).tasks["resize"]
    body = fits.body(fits.defaults, ("dog",), {})
    fine = [client.addjob("q", body, attempts=1, keep=60, retry=30) for _ in range(2)]
    shift = world.at_work(app_of(v1), is_burst=True, max_jobs=9)
    assert shift.ends()
    assert [client.result(id).state for id in fine] == ["done"] * 2
    assert all(client.result(id).state not in ("dead", "gone") for id in ids)
