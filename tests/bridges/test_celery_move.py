"""SPEC U16: tasks move from Celery one by one, and each side calls those of the other."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain, chord
from celery.exceptions import ChordError, TaskRevokedError

from lab import RealServer
from program import SOURCE, Program
from tuque import Client
from tuque.celery.entry import add_aliases
from tuque.worker import App, BadBody, celery_task
from tuque.worker.app.celery_messages import (
    FOLLOWS_HEADER,
    Follows,
    Signature,
    follows_of,
    read_message,
    unsuited,
    write_message,
)
from until import until

add_aliases()
HERE = Path(__file__).parent
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def url(node: RealServer) -> str:
    return f"{node.url}/moved"


@pytest.fixture
def old(url: str) -> Celery:
    """The program that is still Celery's."""
    return Celery("shop", broker=url, backend=f"tuque.celery.backend:Backend+{url}")


@pytest.fixture
def moved(worker_process: Callable[..., Program]) -> Iterator[Program]:
    """A native worker of Celery's queue. It stops: one that was killed could take the next job."""
    worker = worker_process("moved_tasks:app", "--app-dir", str(HERE), "-Q", "moved.celery")
    yield worker
    worker.signal(signal.SIGTERM)
    worker.ends(0)


@pytest.fixture
def unmoved(url: str, tmp_path: Path) -> Iterator[None]:
    """A worker of Celery at the same queue."""
    env = {**os.environ, "TUQUE_MOVED": url, "PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE}"}
    words = [sys.executable, "-m", "celery", "-A", "old_tasks", "worker", "-P", "solo"]
    with (tmp_path / "celery.log").open("wb") as log:
        process = subprocess.Popen([*words, "--without-gossip"], env=env, stdout=log, stderr=log)
    yield
    process.kill()
    process.wait()


def test_a_moved_task_is_called_by_programs_of_celery(old: Celery, moved: Program) -> None:
    """U16.1 A worker runs it as a call of its own task of that name; attempts, back-off and
    conversion of arguments are those of the task.

    U16.4 It adds the callbacks and the next step of the chain, each once, and counts the part of a
    chord.
    """
    double, total = old.signature("shop.double"), old.signature("shop.total")
    assert double.delay(21).get(timeout=60) == 42
    assert old.signature("shop.week").delay(dt.date(2026, 7, 1)).get(timeout=60) == 27
    both = chain(double.clone((2,)), double, old.signature("shop.total", ([1, 2],), immutable=True))
    assert both.apply_async().get(timeout=60) == 3
    parts = [double.clone((number,)) for number in (1, 2, 3)]
    assert chord(parts)(total.clone(kwargs={"more": 1})).get(timeout=60) == 13


def test_what_failed_is_a_failure_of_celery(old: Celery, moved: Program, node: RealServer) -> None:
    """U16.4 A dead letter is a FAILURE at Celery: its calls for errors are added."""
    fails, total = old.signature("shop.fails"), old.signature("shop.total")
    link = old.signature("shop.double", (4,), immutable=True).set(task_id=str(uuid.uuid4()))
    with pytest.raises(ValueError, match="not 7"):
        fails.clone((7,)).apply_async(link_error=link).get(timeout=60)
    assert old.AsyncResult(link.options["task_id"]).get(timeout=60) == 8
    ends = chord([fails.clone((1,)), old.signature("shop.double", (1,))])(total)
    with pytest.raises(ChordError, match="raised"):
        old.AsyncResult(ends.id).get(timeout=60)


def test_an_expired_call_is_revoked(old: Celery, node: RealServer, moved: Program) -> None:
    """U16.3 A call that is delivered after its `expires` does not run: it is a dead letter, and
    REVOKED at Celery.
    """
    past = {"task_id": str(uuid.uuid4()), "expires": "2020-01-01T00:00:00+00:00"}
    made = write_message(Signature("shop.double", [1], {}, past), "celery", prefix="moved.")
    with Client(node.url) as client:
        client.addjob(made.queue, made.body, **made.options)
    with pytest.raises(TaskRevokedError, match="the task expired at 2020"):
        old.AsyncResult(made.id).get(timeout=60)


def test_a_pickle_is_a_dead_letter(old: Celery, node: RealServer, moved: Program) -> None:
    """U16.2 A pickle, another format, a compressed body and what is no message are dead letters."""
    old.signature("shop.double", (1,)).apply_async(serializer="pickle")
    text = "rejected: its body is application/x-python-serialize: workers read JSON and msgpack"
    with Client(node.url) as client:

        def is_there() -> bool:
            letters = client.dead_letters("moved.celery.dead")
            return text in {one.reason for one in letters}

        until(is_there, lambda: moved.text)


def test_an_unmoved_task_is_called_by_programs_of_tuque(
    old: Celery, node: RealServer, moved: Program, unmoved: None
) -> None:
    """U16.6 `celery_task` writes such a message. Its id is that of Celery's task."""
    app = App(node.url)
    unmoved_task = celery_task(app, "shop.unmoved", prefix="moved")
    assert old.AsyncResult(unmoved_task.enqueue(3)).get(timeout=60) == 4
    assert old.AsyncResult(unmoved_task.enqueue_in(0.1, number=4)).get(timeout=60) == 5
    both = chain(old.signature("shop.double", (5,)), old.signature("shop.unmoved"))
    assert both.apply_async().get(timeout=60) == 11
    with pytest.raises(TypeError, match=r"shop\.unmoved: the arguments cannot be written as json"):
        unmoved_task.enqueue(object())
    app.close()


def test_a_step_with_parts_is_for_a_worker_of_celery() -> None:
    """U16.5 A call after which a group, a chord or another step with parts comes is given back as
    an unknown task (U2.4), for a worker of Celery.
    """
    parts = Signature("celery.group", subtask_type="group")
    written = write_message(Signature("shop.double", [1]), "q", chain=[parts])
    _, follows = read_message(written.body, "q", NOW)
    assert unsuited(of({FOLLOWS_HEADER: follows})) == "after it comes a group of Celery"
    plain = write_message(
        Signature("shop.double", [1]), "q", chain=[parts, Signature("shop.total")]
    )
    _, follows = read_message(plain.body, "q", NOW)
    assert unsuited(of({FOLLOWS_HEADER: follows})) is None


def of(headers: dict[str, str]) -> Follows:
    found = follows_of(headers)
    assert found is not None
    return found


def message(**changes: Any) -> bytes:
    """The body of a job with a message, some of its parts changed."""
    made = json.loads(write_message(Signature("shop.double", [1]), "q").body)
    made.update(changes)
    return json.dumps(made).encode()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not a message of Celery"),
        (b"[1]", "not a message of Celery"),
        (message(body="[1]"), "not a message of Celery"),
        (message(body="\ud800"), "not a message of Celery"),
        (message(headers={"task": "a"}), "not a message of Celery"),
        (message(headers={"task": "a", "id": "1", "expires": "never"}), "not a message of Celery"),
        (message(headers={"task": "a", "id": "1", "compression": "zip"}), "compressed"),
        (message(**{"content-type": "application/x-yaml"}), "is application/x-yaml"),
        (message(properties={"body_encoding": "base64"}), "not a message of Celery"),
    ],
)
def test_what_is_no_call_says_why(body: bytes, why: str) -> None:
    """U16.2 A pickle, another format, a compressed body and what is no message are dead letters."""
    with pytest.raises(BadBody, match=why):
        read_message(body, "q", NOW)


def test_what_is_written_is_read() -> None:
    envelope, follows = read_message(message(), "shop.q", NOW)
    assert (envelope.task, envelope.args, envelope.kwargs) == ("shop.double", [1], {})
    assert json.loads(follows)["prefix"] == "shop."
