"""The backend of Django's tasks: what is enqueued, what its results say, what its checks find."""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
from typing import Any

import msgspec
import pytest
from shop_app.configured import tasks_of

from tuque.errors import ConnectionError, NoNode
from tuque.testing import TestApp

pytest.importorskip("django_tasks")
READY, RUNNING, FAILED, SUCCESSFUL = "READY", "RUNNING", "FAILED", "SUCCESSFUL"


def with_tasks(**backends: Any) -> Any:
    """Within it TASKS is that."""
    from django.test import override_settings

    return override_settings(TASKS=backends)


def of_options(**options: Any) -> Any:
    return with_tasks(default=tasks_of(**options))


def test_a_task_is_a_job_of_its_path_with_its_arguments(shop: Any, tuque_app: TestApp) -> None:
    result = shop.add.enqueue(1, b=2)
    (job,) = tuque_app.jobs()
    assert (job.task, job.queue, job.args, job.kwargs) == (
        "shop_app.tasks.add",
        "default",
        (1,),
        {"b": 2},
    )
    assert (result.status, result.attempts) == (READY, 0)
    assert shop.add.get_result(result.id) == result
    tuque_app.run_until_idle()
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == (SUCCESSFUL, 3, 1)
    times = [result.enqueued_at, result.started_at, result.last_attempted_at, result.finished_at]
    assert times == sorted(times) and all(time.tzinfo for time in times)


def test_a_coroutine_is_enqueued_and_run_as_one(shop: Any, tuque_app: TestApp) -> None:
    result = asyncio.run(shop.add_later.aenqueue(1, b=2))
    tuque_app.run_until_idle()
    assert asyncio.run(shop.add_later.aget_result(result.id)).return_value == 3


def test_a_task_that_fails_is_a_dead_letter_and_its_result_has_the_error(
    shop: Any, tuque_app: TestApp
) -> None:
    result = shop.fail.enqueue("none left")
    tuque_app.run_until_idle()
    result.refresh()
    assert result.status == FAILED and result.is_finished
    (error,) = result.errors
    assert error.exception_class is shop.OutOfStock
    assert error.traceback.endswith("shop_app.tasks.OutOfStock: none left\n")
    (letter,) = tuque_app.dead()
    assert letter.reason == "OutOfStock: none left"
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_what_json_has_not_makes_the_task_fail(shop: Any, tuque_app: TestApp) -> None:
    result = shop.odd.enqueue()
    tuque_app.run_until_idle()
    result.refresh()
    assert result.status == FAILED and result.errors[0].exception_class is TypeError


def test_attempts_are_those_of_the_options_and_the_result_tells_each(
    shop: Any, tuque_app: TestApp
) -> None:
    with of_options(tasks={"shop_app.tasks.flaky": {"attempts": 3}}):
        result = shop.flaky.enqueue(3)
        tuque_app.run_one()
        waiting = shop.flaky.get_result(result.id)
        assert (waiting.status, waiting.attempts) == (READY, 1)
        assert [error.exception_class for error in waiting.errors] == [shop.OutOfStock]
        for _ in range(2):
            tuque_app.advance(600)
            tuque_app.run_until_idle()
        result.refresh()
    assert (result.status, result.return_value, result.attempts) == (SUCCESSFUL, 3, 3)
    assert [len(errors) for _, _, errors in shop.seen] == [0, 1, 2]
    assert len(result.errors) == 2 and {status for _, status, _ in shop.seen} == {RUNNING}
    assert result.started_at < result.last_attempted_at


def test_the_error_of_each_attempt_is_kept(shop: Any, tuque_app: TestApp) -> None:
    with of_options(tasks={"shop_app.tasks.flaky": {"attempts": 4}}):
        result = shop.flaky.enqueue(4)
        for _ in range(4):
            tuque_app.run_until_idle()
            tuque_app.advance(600)
        result.refresh()
    assert (result.status, result.args, result.attempts) == (SUCCESSFUL, [4], 4)
    for number, error in enumerate(result.errors, 1):
        assert error.exception_class is shop.OutOfStock
        assert error.traceback.endswith(f"shop_app.tasks.OutOfStock: not at {number}\n")
    assert len(result.errors) == 3 and len(set(result.worker_ids)) == 1
    assert (result.last_attempted_at - result.started_at).total_seconds() > 3
    assert tuque_app.client.result(result.id).result == b"4", "what the task returned, alone"


def test_a_task_that_was_cancelled_has_no_result(shop: Any, tuque_app: TestApp) -> None:
    from tuque.django.tasks_api import TaskResultDoesNotExist

    result = shop.add.enqueue(1)
    assert tuque_app.client.cancel(result.id) == ["ended"]
    with pytest.raises(TaskResultDoesNotExist):
        shop.add.get_result(result.id)


def test_signals_come_at_the_enqueue_at_each_start_and_at_the_end(
    shop: Any, tuque_app: TestApp
) -> None:
    from tuque.django.tasks_api import signals

    seen: list[tuple[str, str]] = []
    hooks = {
        name: lambda sender, task_result, name=name, **more: seen.append((name, task_result.status))
        for name in ("task_enqueued", "task_started", "task_finished")
    }
    for name, hook in hooks.items():
        getattr(signals, name).connect(hook)
    with of_options(tasks={"shop_app.tasks.flaky": {"attempts": 2}}):
        shop.flaky.enqueue(9)
        tuque_app.run_until_idle()
        tuque_app.advance(600)
        tuque_app.run_until_idle()
    for name, hook in hooks.items():
        getattr(signals, name).disconnect(hook)
    assert seen == [
        ("task_enqueued", READY),
        ("task_started", RUNNING),
        ("task_started", RUNNING),
        ("task_finished", FAILED),
    ]


def test_run_after_is_a_delay_and_a_past_one_is_none(shop: Any, tuque_app: TestApp) -> None:
    later = shop.add.using(run_after=tuque_app.now + dt.timedelta(seconds=60)).enqueue(1)
    shop.add.using(run_after=tuque_app.now - dt.timedelta(seconds=60)).enqueue(2)
    assert tuque_app.run_until_idle() == 1
    found = shop.add.get_result(later.id)
    assert found.status == READY and found.task.run_after == later.task.run_after
    tuque_app.advance(61)
    assert tuque_app.run_until_idle() == 1


def test_a_prefix_is_before_the_names_of_all_queues(shop: Any, tuque_app: TestApp) -> None:
    with of_options(prefix="eu.", queues=["mail"]):
        result = shop.add.using(queue_name="mail").enqueue(1)
        assert [job.queue for job in tuque_app.jobs()] == ["eu.mail"]
        assert shop.add.get_result(result.id).task.queue_name == "mail"
        from tuque.django.backend import task_backend

        assert task_backend("default").all_queues() == ["eu.mail"]


@pytest.mark.parametrize("is_exact", [False, True])
def test_a_higher_priority_goes_first(shop: Any, tuque_app: TestApp, is_exact: bool) -> None:
    from tuque.django.tasks_api import InvalidTask

    with pytest.raises(InvalidTask, match="priority"):
        shop.add.using(priority=101)
    with of_options(exact_priorities=is_exact):
        ids = {p: shop.flaky.using(priority=p).enqueue(1).id for p in (0, -100, 100, 50)}
        rows = tuque_app.client.qlist(names=["default"]).rows
        assert [row.type for row in rows] == ["tasks" if is_exact else "queue"]
        order: list[int] = []
        for _ in ids:
            tuque_app.run_one()
            done = {p for p, id in ids.items() if shop.flaky.get_result(id).is_finished}
            order += done - set(order)
    assert order == [100, 50, 0, -100]


def test_of_a_priority_the_broker_knows_ten(shop: Any, tuque_app: TestApp) -> None:
    """A task without one has that of any other job."""
    from tuque.django.backend import pri_of

    assert [pri_of(p) for p in (100, 81, 80, 0, -100)] == [0, 0, 1, 5, 9]
    for priority, pri in ((0, 5), (100, 0), (-100, 9)):
        result = shop.add.using(priority=priority).enqueue(1)
        info = tuque_app.client.show(result.id)
        assert info is not None and info.pri == pri
        assert shop.add.get_result(result.id).task.priority == priority


def test_with_on_commit_a_task_is_a_job_once_its_transaction_is_committed(
    shop: Any, tuque_app: TestApp
) -> None:
    from django.db import transaction

    from tuque.django.tasks_api import TaskResultDoesNotExist, signals

    ids: list[str] = []

    def hook(sender: Any, task_result: Any, **more: Any) -> None:
        ids.append(task_result.id)

    signals.task_enqueued.connect(hook)
    with of_options(on_commit=True, prefix="eu."):
        with transaction.atomic():
            result = shop.add.enqueue(1, b=2)
            assert result.id.startswith("t-") and result.enqueued_at is None
            assert tuque_app.jobs() == [] and ids == []
            with pytest.raises(TaskResultDoesNotExist):
                shop.add.get_result(result.id)
        assert ids == [result.id] and result.enqueued_at is not None
        assert [job.task for job in tuque_app.jobs()] == ["shop_app.tasks.add"]
        assert shop.add.get_result(result.id) == result
        tuque_app.run_until_idle()
        result.refresh()
        assert (result.status, result.return_value) == (SUCCESSFUL, 3)
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            rolled_back = shop.add.enqueue(5)
            raise ZeroDivisionError
        assert len(tuque_app.jobs()) == 1
        with pytest.raises(TaskResultDoesNotExist):
            shop.add.get_result(rolled_back.id)
        assert shop.add.enqueue(1).id.startswith("D")  # there is no transaction
        with transaction.atomic():
            seen = shop.seen_id.enqueue()
        tuque_app.run_until_idle()
        assert seen.task.get_result(seen.id).return_value == seen.id
    signals.task_enqueued.disconnect(hook)


def test_an_unknown_id_and_a_result_that_is_no_longer_kept_do_not_exist(
    shop: Any, tuque_app: TestApp
) -> None:
    from tuque.django.tasks_api import TaskResultDoesNotExist

    with pytest.raises(TaskResultDoesNotExist):
        shop.add.get_result("123")
    with of_options(keep_s=10):
        result = shop.add.enqueue(1)
        tuque_app.run_until_idle()
        assert shop.add.get_result(result.id).return_value == 1
        tuque_app.advance(20)
        with pytest.raises(TaskResultDoesNotExist):
            shop.add.get_result(result.id)


def test_a_job_names_tasks_of_installed_apps_alone(shop: Any, tuque_app: TestApp) -> None:
    from tuque.django.running import ByPath
    from tuque.worker import App

    app = App()
    found = ByPath(app)
    assert found.get("shop_app.tasks.add") is not None
    for path in (
        "stray_tasks.stray",
        "os.system",
        "shop_app.tasks.OutOfStock",
        "shop_app.none",
        "",
        "shop_app",
    ):
        assert found.get(path) is None
    assert "stray_tasks" not in sys.modules


@pytest.mark.parametrize(
    ("options", "number", "text"),
    [
        ({"url": ""}, "E001", "names no broker"),
        ({"ulr": "tuque://a"}, "E002", "did you mean 'url'?"),
        ({"nothing": 1}, "E002", "there are url, app"),
        ({"url": "http://a"}, "E003", "starts with one of tuque://"),
        ({"keep_s": "1"}, "E003", "['keep_s'] is int or float, not '1'"),
        ({"keep_s": -1}, "E003", "0 seconds or more"),
        ({"attempts": 0}, "E003", "1 or more"),
        ({"attempts": True}, "E003", "is int, not True"),
        ({"app": "shop.jobs:app"}, "E003", "give url or app"),
        ({"tasks": {"a": {"queue": "b"}}}, "E003", "'queue' is not for tasks of Django"),
        ({"tasks": {"a": {"atempts": 1}}}, "E003", "no task option atempts"),
        ({"tasks": {"a": 1}}, "E003", "options are a dict"),
    ],
)
def test_an_error_of_settings_says_where_and_what_to_change(
    _project: None,
    options: dict[str, Any],
    number: str,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tuque.django.backend import task_backend

    monkeypatch.delenv("TUQUE_URL", raising=False)
    with of_options(**options):
        (found,) = task_backend("default").check()
    assert found.id == f"tuque.{number}" and "TASKS['default']" in found.msg and text in found.msg


def test_the_broker_may_come_from_the_environment(
    _project: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuque.django.backend import check_brokers, task_backend

    with of_options(url=""):
        monkeypatch.setenv("TUQUE_URL", "tuque://127.0.0.1:9")
        assert list(task_backend("default").check()) == []
        assert task_backend("default").app.url == "tuque://127.0.0.1:9"
        (found,) = check_brokers()
        assert found.id == "tuque.W001" and "127.0.0.1:9" in found.msg
        task_backend("default").app.close()


def test_an_enqueue_without_a_broker_raises_what_the_client_raises(_project: None) -> None:
    from shop_app import tasks

    with of_options(url="tuque://127.0.0.1:9"), pytest.raises((ConnectionError, NoNode)):
        tasks.add.enqueue(1)


def test_a_failure_has_the_path_of_its_exception() -> None:
    from tuque.django.results import Fault, fault_of

    trace = 'Traceback:\n  File "a", line 1\nshop.errors.Empty: no\n'
    assert fault_of("failed", "Empty: no", trace) == Fault("shop.errors.Empty", trace)
    assert fault_of("failed", "KeyError: 1", "KeyError: 1\n").kind == "builtins.KeyError"
    assert fault_of("timeout", "ran long", "").kind == "tuque.worker.TimeLimit"
    assert fault_of("failed", "no name", "").kind == "builtins.Exception"


def test_what_a_header_says_is_read_again(_project: None) -> None:
    from tuque.django.results import HEADER, Header, header_in

    header = Header("default", dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC), "mail", 3)
    assert header_in(header.as_headers()) == header
    assert header_in({}) is None and header_in({HEADER: "{"}) is None
    assert msgspec.json.decode(header.as_headers()[HEADER])["priority"] == 3
