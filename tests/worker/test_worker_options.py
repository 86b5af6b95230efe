"""Options of tasks that stand in one place: of an app, of a group of tasks, by routes."""

from __future__ import annotations

from typing import Any

import e2e_tasks
import pytest
from worker_lab import StartWorker

from lab import RealServer
from tuque.errors import ConfigError
from tuque.worker import App, Limit, Options, Tasks
from tuque.worker.app.enqueue import Adding
from tuque.worker.app.task import Task
from world import World


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
    with pytest.raises(ValueError, match="attempts is from 1 to 65535"):
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


def test_a_task_runs_the_jobs_of_its_former_names(world: World) -> None:
    """U1.18 A task runs the jobs of its `aliases`, too: names that it had. It adds jobs under its
    own name alone, and so are its keys made (U1.8).
    """
    old, new, did = App("tuque://127.0.0.1:1"), App("tuque://127.0.0.1:1"), list[str]()
    before = [old.task(name=name, queue="q", keep_s=60)(did.append) for name in ("a", "b")]
    group = Tasks(queue="q", keep_s=60)

    @group.task(name="c", aliases=("a", "b"))
    def after(text: str) -> None:
        did.append(text)

    new.include(group)
    assert new.queues == ["q"] and after.aliases == ("a", "b")
    world.at_work(new)
    handles = [task.enqueue("old") for task in before]
    handles += [after.enqueue("new")]
    world.until(lambda: all(one.status().state == "done" for one in handles))
    assert did == ["old", "old", "new"]
    assert Adding(after.call("x")).words()[2]["headers"]["tuque-task"] == "c"


def test_a_name_has_one_task() -> None:
    """U1.18 A name or alias that another task of the app has is a ValueError."""
    app, group = App(), Tasks()
    app.task(name="new", aliases=("old",))(nothing)
    group.task(name="free", aliases=("other",))(nothing)
    for make in (app, group):
        for names in (("old", ()), ("fresh", ("new",)), ("free", ()), ("fresh", ("other",))):
            if (make is group) == (names[0] == "free" or "other" in names[1]):
                with pytest.raises(ValueError, match="there is a task .* already"):
                    make.task(name=names[0], aliases=names[1])(nothing)
    group.task(name="mine", aliases=("old",))(nothing)
    with pytest.raises(ValueError, match="there is a task old already"):
        app.include(group)
    for wrong in ("old", ["old"], (5,), ("",)):
        with pytest.raises(TypeError, match="aliases is a tuple of names, such as"):
            app.task(name="t", aliases=wrong)(nothing)  # type: ignore[arg-type]  # the mistake


def test_a_queue_without_a_task_is_named(node: RealServer, start_worker: StartWorker) -> None:
    """U4.13 A worker logs each queue of `-Q` that is that of no task of its app when it starts,
    and serves it.
    """
    e2e_tasks.app.use(node.url)
    handle = e2e_tasks.adds.options(queue="qq").enqueue(1, 2)
    worker = start_worker("-Q", "q,qq")
    worker.says("no task of the app has the queue qq, which -Q names; it is served, for jobs that")
    assert handle.result(30) == 3
    assert "has the queue q," not in worker.text
