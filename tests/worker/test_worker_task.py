"""Tasks: typed calls, what is refused before it is enqueued, arguments in their declared types."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab import free_port
from tuque.client.url import parse
from tuque.errors import ConfigError, Error, Loading, NoNode
from tuque.testing import job
from tuque.worker import App, Backoff, ChainHandle, Envelope, GroupHandle, RetryLater, load_app
from tuque.worker.app.arguments import BadArguments
from tuque.worker.app.codec import decode
from tuque.worker.app.enqueue import Adding
from tuque.worker.app.handle import LATE_S, Handle, Patience
from tuque.worker.app.task import Task
from world import World


class Order(msgspec.Struct):
    number: int
    due: dt.date


app = App("tuque://127.0.0.1:1")


@app.task
def add(a: int, b: int = 1) -> int:
    return a + b


@app.task(queue="orders", retry_s=60, max_deliveries=3, time_limit_s=5, codec="msgpack")
async def ship(order: Order, *notes: str, by: dt.datetime | None = None) -> None:
    pass


def round_trip(task: Task[..., Any], *args: Any, **kwargs: Any) -> Envelope:
    return decode(task.body(task.defaults, args, kwargs))


def test_a_task_is_still_its_function() -> None:
    assert add(1, 2) == 3


def test_the_name_is_that_of_module_and_function() -> None:
    assert add.name == f"{__name__}.add"
    assert app.tasks[add.name] is add
    assert app.queues == ["default", "orders"]


def test_an_envelope_holds_the_call_and_only_what_differs_from_the_task() -> None:
    envelope = round_trip(add, 1, b=2)
    assert (envelope.task, envelope.args, envelope.kwargs) == (add.name, [1], {"b": 2})
    assert envelope.enqueued_at > 1e9
    assert envelope.max_deliveries is None


def test_arguments_come_back_in_their_declared_types() -> None:
    order = Order(7, dt.date(2026, 1, 2))
    by = dt.datetime(2026, 1, 3, tzinfo=dt.UTC)
    assert ship.bind(round_trip(ship, order, "a", "b", by=by)) == ((order, "a", "b"), {"by": by})


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ([], "missing a required argument: 'a'"),
        (["x"], "argument a: Expected `int`"),
        ([1, 2, 3], "too many"),
    ],
)
def test_data_that_does_not_fit_is_a_bad_argument(args: list[Any], reason: str) -> None:
    with pytest.raises(BadArguments, match=reason):
        add.bind(Envelope(task=add.name, args=args))


def test_a_call_the_function_cannot_take_is_refused_before_it_is_enqueued() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
        add.enqueue(1, c=2)  # type: ignore[call-arg]  # the mistake under test


def test_limits_come_from_the_job_and_then_from_its_task() -> None:
    plain = add.limits(Envelope(task=add.name))
    assert (plain.max_deliveries, plain.time_limit_s) == (5, None)
    own = ship.limits(Envelope(task=ship.name, max_deliveries=9))
    assert (own.max_deliveries, own.time_limit_s) == (9, 5)


def test_a_body_names_no_queue_for_its_dead_letter() -> None:
    """U2.6 No body names the queue of its dead letter: DEAD of ADDJOB does, which needs the
    rights of the producer (N2.3).
    """
    told = Adding(add.options(dead="graves").call(1, 2)).words()
    assert told[2]["dead"] == "graves" and b"graves" not in told[1]


def test_options_of_one_job_travel_in_its_envelope() -> None:
    prepared = add.options(max_deliveries=1, time_limit_s=7)
    envelope = decode(add.body(prepared._options, (1,), {}))
    assert (envelope.max_deliveries, envelope.time_limit_s) == (1, 7)


def test_wrong_options_say_which_there_are() -> None:
    with pytest.raises(TypeError, match="no task option retries; there are queue, codec"):
        add.options(retries=3)  # type: ignore[call-arg]  # the mistake under test
    with pytest.raises(ValueError, match="attempts is from 1 to 65535"):
        app.task(max_deliveries=0, name="zero")(lambda: None)
    with pytest.raises(ValueError, match="codec is one of json, msgpack"):
        add.options(codec="pickle")  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ValueError, match="a delay is 0 seconds or more"):
        add.enqueue_in(-1, 1)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"max_deliveries": 1.5}, TypeError, "attempts is a whole number, not 1.5"),
        ({"max_deliveries": True}, TypeError, "attempts is a whole number, not True"),
        ({"max_deliveries": 2**64}, ValueError, "attempts is from 1 to 65535"),
        ({"ttl_s": -1}, ValueError, "ttl_s is from 0 to 2147483647, not -1"),
        ({"retry_s": 2**31}, ValueError, "retry_s is from 0 to 2147483647, not 2147483648"),
        ({"replicate": 0}, ValueError, "replicate is from 1 to 65535, not 0"),
        ({"maxlen": 0}, ValueError, "maxlen is from 1 to"),
        ({"unknown_keep_s": None}, TypeError, "unknown_keep_s is a number of seconds, not None"),
        ({"retry_s": 1.5}, TypeError, "retry_s is a whole number, not 1.5"),
        ({"time_limit_s": float("nan")}, ValueError, "time_limit_s is more than 0 seconds"),
        ({"time_limit_s": float("inf")}, ValueError, "time_limit_s is more than 0 seconds"),
        ({"time_limit_s": "5"}, TypeError, "time_limit_s is a number of seconds, not '5'"),
        ({"delay_s": float("nan")}, ValueError, "a delay is 0 seconds or more, .* not nan"),
        ({"delay_s": dt.timedelta(1)}, TypeError, "a delay is a number of seconds, not datetime"),
        ({"key": 4711}, TypeError, "key is a str, not 4711"),
        ({"key": "\ud800"}, ValueError, "key cannot be written as UTF-8: '.ud800'"),
        ({"dead_letter": "\udc80"}, ValueError, "dead cannot be written as UTF-8"),
        ({"dead_letter": "default"}, ValueError, "dead is another queue than 'default'"),
        ({"attempts": None}, TypeError, "attempts is a whole number, not None"),
        ({"queue": None}, TypeError, "queue is a str, not None"),
        ({"headers": "x"}, TypeError, "headers is a mapping of names to texts, not 'x'"),
        ({"headers": {"a": 1}}, TypeError, "headers is a mapping of .* not of 'a' to 1"),
        ({"give_up_on": "ValueError"}, TypeError, "give_up_on is a tuple of .* not 'ValueError'"),
        ({"give_up_on": (5,)}, TypeError, r"give_up_on is a tuple of .* not \(5,\)"),
        ({"give_up_on": ValueError}, TypeError, "give_up_on .* such as .ValueError,., not <class"),
        ({"queue": "x", "dead_letter": "x"}, ValueError, "dead is another queue than 'x'"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_its_name(
    changes: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        add.options(**changes)


def test_what_is_no_function_no_calls_and_no_time_is_refused() -> None:
    with pytest.raises(TypeError, match="^app.task takes a function, not 5$"):
        app.task(5)  # type: ignore[call-overload]  # the mistake under test
    with pytest.raises(TypeError, match="^app.task: functools.partial.* has no name, give one"):
        app.task(functools.partial(print))
    with pytest.raises(TypeError, match="^enqueue_many takes calls, such as .*, not None$"):
        add.enqueue_many(None)  # type: ignore[arg-type]  # the mistake under test
    soon: Any = "x"
    with pytest.raises(TypeError, match="^schedule s: every_s is a number of seconds, not 'x'$"):
        app.schedule("s", add.call(1, 2), every_s=soon)
    once = add.options(retry_s=0)
    with pytest.raises(ValueError, match="^schedule s: retry_s is 1 or more: its jobs come back$"):
        app.schedule("s", once.call(1, 2), every_s=5)
    with pytest.raises(TypeError, match="^backoff: first_s is a number, not 'x'$"):
        Backoff("x")  # type: ignore[arg-type]  # the mistake under test


def test_a_job_at_most_once_has_one_copy(make_world: Callable[..., World]) -> None:
    """U1.13 A job of a task with `retry_s=0` has one copy, `replicate=1`, also in a cluster. A
    `replicate` above 1 with it is a ValueError where the task or its options are defined.
    """
    world, noting, did = make_world(3), App(), list[int]()

    @noting.task(queue="q", retry_s=0, name="once")
    def once(number: int) -> None:
        did.append(number)

    worker = world.worker(noting)
    ids = [once.enqueue(1).id, once.enqueue_many([once.call(2)])[0].id]
    assert [world.holders(id.encode()) for id in ids] == [[0], [0]]
    worker.run_until_idle()
    assert did == [1, 2]
    wrong = "^retry_s=0 has one copy, not replicate=2: .* leave replicate out$"
    with pytest.raises(ValueError, match=wrong):
        noting.task(queue="q", retry_s=0, replicate=2, name="twice")(did.append)
    with pytest.raises(ValueError, match=wrong):
        once.options(replicate=2)


def test_a_limit_in_a_body_is_bounded() -> None:
    envelope = Envelope(task=add.name, max_deliveries=10**30)
    assert add.limits(envelope).max_deliveries == 2**31 - 1


def test_a_delay_of_retry_later_is_checked_where_it_is_raised() -> None:
    for delay_s in (-1, float("nan"), float("inf"), 2**31, 1e300, 10**400):
        with pytest.raises(ValueError, match="a delay is 0 seconds or more"):
            RetryLater(delay_s=delay_s)


def test_two_tasks_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="there is a task twin already"):
        app.task(name="twin")(app.task(name="twin")(lambda: None))


class TestLoadApp:
    def test_finds_the_app_in_the_app_dir(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "path", list(sys.path))
        (tmp_path / "shop_one.py").write_text("from tuque.worker import App\nshop = App()\n")
        assert isinstance(load_app("shop_one:shop", str(tmp_path)), App)
        with pytest.raises(ConfigError, match=r"no tuque\.worker\.App named 'app'"):
            load_app("shop_one", str(tmp_path))

    def test_says_where_it_looked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "path", list(sys.path))
        with pytest.raises(ConfigError, match="no module 'nowhere' in .*--app-dir"):
            load_app("nowhere:app", str(tmp_path))

    def test_lets_an_error_inside_the_module_through(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "path", list(sys.path))
        (tmp_path / "shop_two.py").write_text("import not_there_at_all\n")
        with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
            load_app("shop_two", str(tmp_path))


def test_every_option_of_one_job_takes_effect() -> None:
    app = App("tuque://127.0.0.1:1")
    task = app.task(
        name="t", time_limit_s=5, dead_letter="graves", max_deliveries=4, backoff=Backoff(2, 9, 0)
    )(lambda: None)
    own = task.limits(Envelope(task="t"))
    assert (own.time_limit_s, own.max_deliveries) == (5, 4)
    prepared = task.options(
        time_limit_s=None, dead_letter=None, max_deliveries=5, backoff=Backoff(3, 4, 0.25)
    )
    changed = task.limits(decode(task.body(prepared._options, (), {})))
    assert changed.time_limit_s is None
    assert Adding(prepared.call()).words()[2]["dead"] is None  # what the broker goes by (U2.6)
    assert (changed.max_deliveries, changed.backoff) == (5, Backoff(3, 4, 0.25))
    assert task.limits(decode(task.body(task.defaults, (), {}))) == own
    nonsense = Envelope(task="t", backoff=(5.0, 1.0, 0.0), time_limit_s=-1)
    assert task.limits(nonsense).backoff == Backoff(2, 9, 0)


def test_an_app_takes_a_url_or_a_client_only() -> None:
    for broker in (object(), 7711, b"tuque://127.0.0.1"):
        with pytest.raises(TypeError, match=r"App takes a URL or a tuque\.Client, not "):
            App(broker)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(TypeError, match=r"backoff is a tuque\.worker\.Backoff, not 3"):
        add.options(backoff=3)  # type: ignore[arg-type]  # the mistake under test


def test_handles_have_ids_for_urls_and_take_them() -> None:
    """G6.6 Every command that takes an id also accepts the URL form of former versions"""
    plain = "D-5a02d844-AOq+vjzc3Ib9fRc/bwXWVmDZ-05a1"
    url = "D_5a02d844_AOq-vjzc3Ib9fRc_bwXWVmDZ_05a1"
    app = App("tuque://127.0.0.1:1")
    for handle in (app.handle(plain), app.handle(url), app.handle(app.handle(url))):
        assert (handle, handle.id, handle.url_id) == (plain, plain, url)
    for made in (GroupHandle(app, "t", url, [], {}), ChainHandle(url, app, [], None)):
        assert (made.id, made.url_id) == (plain, url)
    with job(id=plain) as running:
        assert running.url_id == url
    today = "D-5a02d844-AOq.vjzc3Ib9fRc~bwXWVmDZ-05a1"
    assert app.handle(today).url_id == app.handle(today.replace("-", "_")) == today


def test_an_enqueue_without_a_broker_ends_soon() -> None:
    """U1.10 While no node can be reached, a call of an app raises `NoNode` after `search_timeout`
    seconds of its URL, 1 by default; the error names it.
    """
    for url, limit in (("", "1"), ("?search_timeout=0.3", "0.3")):
        app = App(f"tuque://127.0.0.1:{free_port()}/{url}")

        @app.task
        def nothing() -> None:
            """Does nothing."""

        began_s = time.monotonic()
        with pytest.raises(NoNode, match=f"search_timeout is {limit} s"):
            nothing.enqueue()
        assert time.monotonic() - began_s < 4  # the timeout of a call is 5 s
        with pytest.raises(NoNode, match=f"search_timeout is {limit} s"):
            asyncio.run(nothing.enqueue_async())


def test_a_generator_is_no_task() -> None:
    """U1.12 A generator function, also an asynchronous one, is no task: a TypeError where it would
    be defined.
    """
    app = App()

    def parts() -> Iterator[int]:
        yield 1

    async def later() -> AsyncIterator[int]:
        yield 1

    for function in (parts, later):
        with pytest.raises(TypeError, match=f"{function.__name__} has a yield: a call of it would"):
            app.task(function)
        with pytest.raises(TypeError, match="has a yield"):
            app.task(queue="q")(function)
    assert not app.tasks


def test_a_fork_while_another_thread_makes_the_client() -> None:
    """U14.4 A fork while another thread of the parent uses the App, also makes its client, does not
    hold up the child.
    """
    app, has_it, may_go = App("tuque://127.0.0.1:1"), threading.Event(), threading.Event()

    def holds() -> None:
        with app._lock:
            has_it.set()
            may_go.wait(60)

    thread = threading.Thread(target=holds)
    thread.start()
    has_it.wait(60)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(5)
        os._exit(0 if app.client is not None else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    may_go.set()
    thread.join()
    assert code == 0


ID = "D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1"


@pytest.mark.parametrize("kind", ["job", "known by its id", "group"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_wait_without_a_limit_lasts_as_long_as_the_client_has_patience(
    kind: str, is_async: bool
) -> None:
    """U1.6 without one, for the client's `timeout`"""
    app = App("tuque://127.0.0.1:1/?timeout=0.3&search_timeout=0.05&retries=0")
    job: Handle[int] = Handle(ID, app, int, task="named" if kind == "job" else "")
    group: GroupHandle[int] = GroupHandle(app, "t", ID, [], {})
    began_s = time.monotonic()
    with pytest.raises(NoNode):
        if is_async:
            asyncio.run(ended(app, group.results_async() if kind == "group" else job))
        elif kind == "group":
            group.results()
        else:
            job.result()
    assert time.monotonic() - began_s > 0.15
    app.close()


async def ended(app: App, waited: Awaitable[Any]) -> Any:
    try:
        return await waited
    finally:
        await app.aclose()


def test_a_wait_ends_soon_after_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """U1.6 It ends 2 s after its limit at the latest, however long a node is silent."""
    monkeypatch.setattr("tuque.worker.app.handle.LATE_S", 0.1)
    app = App("tuque://127.0.0.1:1/?timeout=60&search_timeout=60")
    job: Handle[int] = Handle(ID, app, int, task="named")
    group: GroupHandle[int] = GroupHandle(app, "t", ID, [], {})
    began_s = time.monotonic()
    for wait in (job.result, group.results):
        with pytest.raises(NoNode):
            wait(0.05)
    for waited in (job.result_async(0.05), group.results_async(0.05)):
        with pytest.raises(NoNode):
            asyncio.run(ended(app, waited))
    assert time.monotonic() - began_s < 30
    app.close()


def test_the_patience_of_a_wait() -> None:
    """U1.6 A wait for a result continues while the broker is away, up to its limit"""
    settings = parse("tuque://127.0.0.1:1/?timeout=60&search_timeout=50")
    lost = NoNode("x", retryable=True)
    asked: list[float | None] = []
    limited = Patience(settings, time.monotonic() + 3600)
    assert limited.call_s() == LATE_S
    assert limited.asks_again(lost) and limited.asks_again(Loading("x", retryable=True))
    assert not limited.asks_again(Error("x"))
    over = Patience(settings, time.monotonic() + 0.01)
    assert not over.asks_again(lost)
    assert 0 < (over.call_s() or 0) <= 0.05, "a search is not longer than what is left"
    over.answered()
    assert over.call_s() == LATE_S
    endless = Patience(settings, None)
    assert endless.call_s() is None
    assert endless.asks_again(lost) and not endless.asks_again(Loading("x", retryable=True))

    def answer() -> str:
        asked.append(endless.call_s())
        if len(asked) == 1:
            raise lost
        return "found"

    assert endless.ask(answer) == "found"
    assert asked == [None, LATE_S]
    assert endless.call_s() is None
    hour_ms = endless.wait_ms()
    assert endless.asks_again(lost) and 1 < endless.wait_ms() <= 1000 < hour_ms
    endless.answered()
    assert endless.wait_ms() == hour_ms
