"""Options of tasks that stand in one place: of an app, of a group of tasks, by routes."""

from __future__ import annotations

from typing import Any

import pytest

from tuque.errors import ConfigError
from tuque.worker import App, Limit, Options, Tasks
from tuque.worker.app.enqueue import Adding
from tuque.worker.app.task import Task


def nothing() -> None:
    pass


async def nothing_async() -> None:
    pass


def queue_of(task: Task[..., Any]) -> str:
    """Where its jobs go."""
    return Adding(task.call()).words()[0]


def test_nearer_options_win() -> None:
    """U1.14 The options of a task are its own, then those of its `Tasks`, then the queue of the
    first of `App(routes=)` whose pattern fits its name, then `App(defaults=)`.
    """
    app = App(
        defaults=Options(queue="all", attempts=2, keep_s=60),
        routes={"shop.mail.*": "mail", "shop.*": "shop", "shop.mail.late": "never"},
    )
    mail, rest = Tasks(queue="group", attempts=9), Tasks(time_limit_s=5)
    own = mail.task(name="shop.mail.own", queue="own", attempts=1)(nothing)
    in_group = mail.task(name="shop.mail.in_group")(nothing)
    by_route = rest.task(name="shop.mail.late")(nothing_async)
    app.include(mail)
    app.include(rest)
    second = app.task(name="shop.other")(nothing)
    none = app.task(name="other")(nothing)
    queues = [queue_of(one) for one in (own, in_group, by_route, second, none)]
    assert queues == ["own", "group", "mail", "shop", "all"]
    attempts = [one.defaults.attempts for one in (own, in_group, by_route, second, none)]
    assert attempts == [1, 9, 2, 2, 2]
    assert {one.defaults.keep_s for one in app.tasks.values() if one.given or one is none} == {60}
    assert by_route.defaults.time_limit_s == 5 and by_route.is_async
    assert queue_of_one(own) == "one job"
    assert app.queue == "all" and app.queues[:2] == ["own", "group"]


def queue_of_one(task: Task[..., Any]) -> str:
    """The queue of one job with a queue of its own."""
    return task.options(queue="one job").call().options.queue


def test_the_queue_of_an_app_is_a_default() -> None:
    """U1.14 The options of a task are its own, then those of its `Tasks`, then the queue of the
    first of `App(routes=)` whose pattern fits its name, then `App(defaults=)`.
    """
    assert queue_of(App(queue="q").task(name="t")(nothing)) == "q"
    made = App(queue="q", defaults=Options(dead="graves"))
    assert queue_of(made.task(name="t")(nothing)) == "q"
    with pytest.raises(TypeError, match="give one queue: queue is 'a', that of defaults 'b'"):
        App(queue="a", defaults=Options(queue="b"))
    late = Tasks(dead="default").task(name="t")(nothing)  # another queue than that of its app
    assert repr(late) == "<task t queue=?>"


def test_an_unknown_option_is_named_where_it_is_written() -> None:
    """U1.14 An unknown option is a TypeError where it is written; it names those that there are."""
    app = App()
    one = app.task(name="t")(nothing)
    wrong: dict[str, Any] = {"retries": 3}
    for use in (Tasks, Options, app.task, Tasks().task, one.options):
        with pytest.raises(TypeError, match="no task option retries; there are queue, codec"):
            use(**wrong)  # type: ignore[operator]  # the mistake under test


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"defaults": {"queue": "q"}}, TypeError, "defaults is a tuque.worker.Options, not"),
        ({"routes": ["a"]}, TypeError, "routes is a mapping of patterns to queues, not"),
        ({"routes": {"a": 5}}, TypeError, "routes is a mapping .* not of 'a' to 5"),
        ({"routes": {"": "q"}}, ValueError, "routes: '' to 'q': neither may be empty"),
    ],
)
def test_wrong_options_of_an_app_are_refused(
    given: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        App(**given)


def test_wrong_options_of_a_group_are_refused_where_they_are_written() -> None:
    with pytest.raises(ValueError, match="attempts is 1 or more"):
        Tasks(attempts=0)
    group = Tasks(queue="q")
    with pytest.raises(ValueError, match="dead is another queue than 'q'"):
        group.task(dead="q")(nothing)
    with pytest.raises(TypeError, match="by"):
        group.task(limit=Limit(1, by="customer"))(nothing)
    with pytest.raises(TypeError, match=r"include takes a tuque.worker.Tasks, not <tuque"):
        App().include(App())  # type: ignore[arg-type]  # the mistake under test


def test_a_group_is_in_one_app_with_all_its_tasks() -> None:
    """U1.15 `App.include` takes all tasks of a `Tasks`, also those that are defined later, or
    raises ValueError and takes none: if a name is taken, or if they are in an app.
    """
    app, group = App(), Tasks()
    early = group.task(name="early")(nothing)
    with pytest.raises(ValueError, match="there is a task early already"):
        group.task(name="early")(nothing)
    group.task(name="taken")(nothing)
    app.task(name="taken")(nothing)
    with pytest.raises(ValueError, match="there is a task taken already"):
        app.include(group)
    assert "early" not in app.tasks
    other = App()
    other.include(group)
    later = group.task(name="later")(nothing)
    assert other.tasks["early"] is early and other.tasks["later"] is later
    with pytest.raises(ValueError, match="in an app already"):
        app.include(group)


def test_a_task_without_an_app_is_only_a_function() -> None:
    """U1.15 Before that `enqueue`, `call` and `options` of such a task raise ConfigError."""
    task = Tasks().task(name="t")(lambda: 5)
    assert task() == 5
    for use in (task.enqueue, task.call, lambda: task.options(delay_s=1)):
        with pytest.raises(ConfigError, match=r"task t is in no app yet: app.include\(\) its"):
            use()
