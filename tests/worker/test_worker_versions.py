"""Deploys: jobs that the version at work cannot run wait for the one that can (SPEC U2)."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from functools import cache
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from noting import Noting

from tuque.worker import App
from tuque.worker.app.arguments import BadArguments
from tuque.worker.app.codec import Envelope
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
    """U2.19 A call that the signature of the task does not take is RELEASE as in U2.4: no
    attempt is used up, and no hook runs.
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
    """U2.4 `unknown_keep_s` after the job was added it is FAIL FINAL."""
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
        assert client.tube("q").info().buried == 1 and client.qlen("q.dead") == 0


def test_at_most_once_is_at_once(world: World) -> None:
    """U2.4 A job with RETRY 0 cannot come again: it is a dead letter at once."""
    world.at_work(app_of(v1))
    id = world.client().addjob("q", b'{"task":"resize"}', retry=0, replicate=1)
    world.until(lambda: world.client().result(id).state == "dead")


def test_many_of_them_come_slower() -> None:
    """U2.4 A job of an unknown task is RELEASE DELAY 0.1, 0.2, 0.4, 0.8, then 1 s.

    U2.4 Of n > 500 such jobs each waits n / 500 s, 60 s at most."""
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


def of(outer: Any, *inner: Any) -> Any:
    """A type made of others, such as a list of a class that no checker knows."""
    return outer[inner]


def classes(names: tuple[str, ...]) -> dict[str, Any]:
    """A class of each kind with these fields: numbers, the first one is needed."""
    first, *others = names
    spaces: list[Any] = [(first, int), *((name, int, 0) for name in others)]
    model: dict[str, Any] = {first: (int, ...), **dict.fromkeys(others, (int, 0))}
    by_words: Any = TypedDict
    return {
        "dataclass": dataclasses.make_dataclass("P", spaces, frozen=True),
        "struct": msgspec.defstruct("P", spaces, frozen=True),
        "renamed": msgspec.defstruct("P", spaces, rename="upper", tag="p", omit_defaults=True),
        "array": msgspec.defstruct("P", spaces, array_like=True, tag=7),
        "model": pydantic.create_model("P", **model),
        "typed dict": by_words("P", dict.fromkeys(names, int), total=False),
    }


@cache
def box(kind: Any) -> Any:
    """A class with a field of this kind."""
    return dataclasses.make_dataclass("Box", [("one", kind)])


NEW, OLD = classes(("x", "y")), classes(("x",))
SHAPES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "alone": (lambda one: one, lambda kind: kind),
    "list": (lambda one: [one], lambda kind: of(list, kind)),
    "optional": (lambda one: one, lambda kind: kind | None),
    "dict of lists": (lambda one: {3: [one]}, lambda kind: of(dict, int, of(list, kind))),
    "field": (lambda one: box(one.__class__)(one), box),
}


def takes(hint: Any) -> Any:
    def resize(what: Any) -> str:
        return "x"

    resize.__annotations__["what"] = hint
    return resize


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", NEW)
def test_a_field_of_a_newer_version_is_not_lost(world: World, kind: str, shape: str) -> None:
    """U2.19 A signature does not take a value with a field that its type lacks"""
    if (kind, shape) == ("typed dict", "field"):
        pytest.skip("its values do not show their type")
    filled, hinted = SHAPES[shape]
    new, old = app_of(takes(hinted(NEW[kind]))), app_of(takes(hinted(OLD[kind])))
    world.worker(new)
    handle = new.tasks["resize"].enqueue(filled(NEW[kind](x=1, y=2)))
    shift = world.at_work(old)
    world.pass_ms(3000)
    assert handle.status().state != "done"
    shift.stop()
    world.worker(old)
    known = old.tasks["resize"].enqueue(filled(OLD[kind](x=1)))
    world.at_work(new)
    world.pass_ms(2500)
    assert handle.status().state == known.status().state == "done"


def test_the_log_names_the_field(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """U2.19 Each reason is logged once."""
    new = app_of(takes(SHAPES["list"][1](NEW["struct"])))
    world.worker(new)
    new.tasks["resize"].enqueue([NEW["struct"](1, 2)])
    world.at_work(app_of(takes(SHAPES["list"][1](OLD["struct"]))))
    world.pass_ms(3000)
    assert "bad arguments: what[0].y: the type of this argument has no such field" in caplog.text
    assert caplog.text.count("no such field") == 1


def test_a_step_may_take_a_part_of_a_result() -> None:
    """U2.19 Results that are handed on, to a step or a callback, may have more fields."""
    task: Any = app_of(takes(OLD["struct"])).tasks["resize"]
    envelope = Envelope(task="resize", args=[{"x": 1, "y": 2}])
    assert task.bind(envelope, is_result=True)[0] == (OLD["struct"](1),)
    with pytest.raises(BadArguments, match="what.y: "):
        task.bind(envelope)


@pytest.mark.parametrize("kind", ["struct", "dataclass"])
def test_a_set_loses_no_field(kind: str) -> None:
    """U2.19 A signature does not take a value with a field that its type lacks"""
    task: Any = app_of(takes(of(set, OLD[kind]))).tasks["resize"]
    assert len(task.bind(Envelope("resize", [[{"x": 1}, {"x": 2}]]))[0][0]) == 2
    with pytest.raises(BadArguments, match="what.*y: "):
        task.bind(Envelope("resize", [[{"x": 1}, {"x": 2, "y": 1}]]))
