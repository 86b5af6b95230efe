"""Celery's results and chords at a real node, without a worker: each call as a worker makes it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, chord
from celery._state import _task_stack
from celery.exceptions import BackendStoreError

from tuque import Client
from tuque.errors import ConnectionError
from tuque.testing.nodes import TestNode


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with TestNode(tmp_path_factory.mktemp("node"), "--set", "max-body-bytes=64kb") as node:
        yield f"tuque://127.0.0.1:{node.port}"


@pytest.fixture
def app(url: str, celery_entries: Path, monkeypatch: pytest.MonkeyPatch) -> Celery:
    monkeypatch.syspath_prepend(str(celery_entries))
    made = Celery("shop", broker=url, backend=url, set_as_current=False)

    @made.task(name="shop.add_up")
    def add_up(numbers: list[int]) -> int:
        return sum(numbers)

    return made


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as made:
        yield made


def part(app: Celery, group: str, index: int | None, id: str = "") -> Any:
    """A request of a task in the header of a chord."""
    body = app.signature("shop.add_up", task_id=f"{group}-body")
    return SimpleNamespace(id=id or f"{group}-{index}", group=group, group_index=index, chord=body)


def bodies(client: Client) -> list[bytes]:
    """The bodies of chords that were published since the last look."""
    jobs = client.getjob("celery", count=9, nohang=True)
    client.ackjob(*jobs)
    return [job.body for job in jobs]


def test_a_result_is_there_for_all_and_a_success_stays(app: Celery) -> None:
    app.backend.store_result("a", {"n": 1}, "SUCCESS")
    app.backend.store_result("a", ValueError("late"), "FAILURE")
    assert app.AsyncResult("a").get(timeout=5) == {"n": 1}
    app.backend.store_result("b", ValueError("no"), "FAILURE")
    with pytest.raises(ValueError, match="no"):
        app.AsyncResult("b").get(timeout=5)
    assert app.AsyncResult("c").state == "PENDING"


def test_a_wait_ends_with_the_result(app: Celery) -> None:
    app.backend.store_result("w", None, "STARTED")
    threading.Timer(0.1, app.backend.store_result, ("w", 7, "SUCCESS")).start()
    assert app.AsyncResult("w").get(timeout=5) == 7


def test_many_results_are_waited_for_together(app: Celery) -> None:
    ids = [f"many-{n}" for n in range(700)]
    for n, id in enumerate(ids):
        app.backend.store_result(id, n, "SUCCESS")
    results = app.ResultSet([app.AsyncResult(id) for id in ids])
    assert results.join_native(timeout=10) == list(range(700))


def test_results_that_one_reply_has_no_room_for_come_by_more(app: Celery) -> None:
    keys = [app.backend.get_key_for_task(f"big-{n}") for n in range(80)]
    for key in keys:
        app.backend.set(key, b"x" * 60_000)
    assert [len(value) for value in app.backend.mget(keys)] == [60_000] * 80


def test_what_is_forgotten_is_gone(app: Celery) -> None:
    app.backend.store_result("f", 1, "SUCCESS")
    app.AsyncResult("f").forget()
    assert app.AsyncResult("f").state == "PENDING"


def test_a_result_that_is_too_large_says_what_to_do(app: Celery) -> None:
    with pytest.raises(BackendStoreError, match="`max-body-bytes`, keep large results elsewhere"):
        app.backend.store_result("large", "x" * 70_000, "SUCCESS")


def test_a_chord_publishes_its_body_once_with_the_parts_in_order(
    app: Celery, client: Client
) -> None:
    backend = app.backend
    backend.set_chord_size("g", 3)
    for index in (2, 0, 0, 1):
        backend.on_chord_part_return(part(app, "g", index), "SUCCESS", index * 10)
    [body] = bodies(client)
    assert b"[[[0, 10, 20]]" in body.replace(b"\\", b"")


def test_a_worker_that_died_before_the_body_is_followed_up(
    app: Celery, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = app.backend
    backend.set_chord_size("k", 2)
    backend.on_chord_part_return(part(app, "k", 0), "SUCCESS", 1)
    with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
        broken.setattr(type(backend), "_joined", interrupted)
        backend.on_chord_part_return(part(app, "k", 1), "SUCCESS", 2)
    assert bodies(client) == []
    backend.on_chord_part_return(part(app, "k", 1), "SUCCESS", 2)
    assert len(bodies(client)) == 1


def interrupted(*words: object) -> None:
    """As if the process was killed."""
    raise KeyboardInterrupt


def test_a_body_that_was_published_before_the_death_is_not_published_again(
    app: Celery, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = app.backend
    backend.set_chord_size("d", 1)
    with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
        broken.setattr(type(backend.client), "value_drop", interrupted)
        backend.on_chord_part_return(part(app, "d", 0), "SUCCESS", 1)
    backend.on_chord_part_return(part(app, "d", 0), "SUCCESS", 1)
    assert len(bodies(client)) == 1


def test_parts_with_the_same_index_all_count(app: Celery, client: Client) -> None:
    """Those of a group in the header have it, and those that a task adds to its chord."""
    backend = app.backend
    backend.set_chord_size("same", 60)
    parts = [part(app, "same", 5, f"same-{n}") for n in range(60)]
    for n, request in enumerate([parts[1], *parts]):
        assert bodies(client) == []
        backend.on_chord_part_return(request, "SUCCESS", n)
    [body] = bodies(client)
    numbers = json.loads(json.loads(body)["body"])[0][0]
    assert sorted(numbers) == [0, 1, *range(3, 61)]


def test_a_header_is_published_as_it_is_made(app: Celery, client: Client) -> None:
    waiting: list[int] = []

    def header() -> Iterator[Any]:
        for n in range(4):
            waiting.append(client.qlen("celery"))
            yield app.signature("shop.add_up", ([n],))

    chord(header(), app=app)(app.signature("shop.add_up"))
    assert waiting[0] == 0 and waiting[3] > 0
    assert len(bodies(client)) == 4


@pytest.mark.parametrize("is_first", [True, False])
def test_a_part_may_be_added_to_a_chord(app: Celery, client: Client, is_first: bool) -> None:
    backend, group = app.backend, f"added-{is_first}"
    steps = [lambda: backend.add_to_chord(group, None), lambda: backend.set_chord_size(group, 1)]
    for step in steps if is_first else reversed(steps):
        step()
    backend.on_chord_part_return(part(app, group, 0), "SUCCESS", 1)
    assert bodies(client) == []
    backend.on_chord_part_return(part(app, group, None, "late"), "SUCCESS", 2)
    assert len(bodies(client)) == 1


def test_a_part_that_failed_ends_the_chord(app: Celery, client: Client) -> None:
    backend = app.backend
    backend.set_chord_size("e", 2)
    backend.on_chord_part_return(part(app, "e", 0), "SUCCESS", 1)
    backend.on_chord_part_return(part(app, "e", 1), "FAILURE", ValueError("boom"))
    assert bodies(client) == []
    with pytest.raises(Exception, match="boom"):
        app.AsyncResult("e-body").get(timeout=5)
    assert list(client.value_scan("celery.results", match="*-e.*")) == []


@contextmanager
def running(task: Any) -> Iterator[None]:
    """As in a worker that runs the task."""
    _task_stack.push(task)
    task.push_request(id="running", called_directly=False)
    try:
        yield
    finally:
        task.pop_request()
        _task_stack.pop()


def test_a_result_waits_for_the_node_in_a_task(
    tmp_path: Path, celery_entries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(celery_entries))
    with TestNode(tmp_path, "--set", "appendonly=yes") as node:
        app = Celery("shop", broker=node.url, backend=node.url, set_as_current=False)
        task = app.task(interrupted, name="shop.task")
        app.backend.store_result("a", 1, "SUCCESS")
        node.kill()
        with pytest.raises(ConnectionError):
            app.backend.store_result("b", 2, "SUCCESS")
        started = threading.Thread(target=node.start)
        with running(task):
            started.start()
            app.backend.store_result("c", 3, "SUCCESS")
            task.delay()
        started.join()
        assert app.AsyncResult("c").get(timeout=5) == 3
        assert node.client().qlen("celery") == 1
