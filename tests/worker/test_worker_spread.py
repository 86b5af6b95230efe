"""Groups as later steps of a chain, in one thread: what they get, and what is killed (U11)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tuque.errors import JobCancelled, JobFailed, ResultTimeout
from tuque.testing import TestApp, job
from tuque.worker import (
    App,
    Backoff,
    ChainHandle,
    Failed,
    Limit,
    Outgoing,
    Unique,
    chain,
    current_job,
    group,
)
from tuque.worker.workflow.create import Entry, GroupEntry, Making

app = App("tuque://127.0.0.1:1")
ran: list[str] = []
dies: list[str] = []  # where a worker is killed: when it adds a job of that task
at_end: list[ChainHandle[Any]] = []  # cancelled when the group has been made, before DONE
answers: list[str] = []
carried: list[str] = []  # of the steps that follow


@dataclass
class Page:
    text: str


@app.task(queue="first", retry_s=10)
def fetch(number: int) -> int:
    ran.append(f"fetch {number}")
    carried.append(current_job().headers.get("tuque-chain", ""))
    return number + 1


@app.task(queue="parts", retry_s=10, attempts=1)
def double(number: int) -> int:
    ran.append(f"double {number}")
    return number * 2


@app.task(queue="limited", limit=Limit(1), retry_s=10, attempts=1, backoff=Backoff(1, 1))
async def square(number: int) -> int:
    ran.append(f"square {number}")
    if number < 0:
        raise ValueError("it is too low")
    return number * number


@app.task(queue="sums")
def total(numbers: list[int]) -> int:
    ran.append(f"total {numbers}")
    return sum(numbers)


@app.task(queue="sums")
def most(numbers: list[int]) -> int:
    ran.append(f"most {numbers}")
    return max(numbers)


@app.task(queue="joined", retry_s=10)
def join(numbers: list[int]) -> str:
    ran.append(f"join {numbers}")
    return "+".join(map(str, numbers))


@app.task(queue="joined")
def gather(numbers: list[int | Failed]) -> str:
    ran.append(f"gather {numbers}")
    return "+".join(map(str, numbers))


@app.task(queue="counts")
def count(numbers: list[int | Failed]) -> int:
    ran.append(f"count {len(numbers)}")
    return len([one for one in numbers if isinstance(one, Failed)])


@app.task(queue="texts")
def as_text(text: str) -> str:
    ran.append(f"text {text}")
    return f"<{text}>"


@app.task(queue="parts")
def wrap(number: int) -> Page:
    return Page(f"page {number}")


@app.task(queue="parts")
def first_of(pages: list[Page]) -> Page:
    assert all(isinstance(page, Page) for page in pages)
    return pages[0]


@app.task(queue="joined")
def texts(pages: list[Page]) -> str:
    return " ".join(page.text for page in pages)


@app.task(queue="names", unique=Unique("number"))
def named(number: int) -> int:
    return number


@app.on_success
def cancels(done: object, result: object) -> None:
    while at_end:
        answers.append(at_end.pop().cancel("enough"))


@pytest.fixture(autouse=True)
def clean(tuque_app: TestApp) -> Iterator[None]:
    for noted in (ran, dies, at_end, answers, carried):
        noted.clear()

    def kills(out: Outgoing) -> None:
        if out.task in dies:
            dies.clear()
            tuque_app.kill_worker()

    app.on_enqueue(kills)
    yield
    app.on_enqueue.functions.remove(kills)


def rest(tuque_app: TestApp, times: int = 4, seconds: float = 2) -> None:
    """Time passes, and all that can run has run."""
    tuque_app.run_until_idle()
    for _ in range(times):
        tuque_app.advance(seconds)
        tuque_app.run_until_idle()


def made() -> ChainHandle[str]:
    return chain(fetch.call(2), group(double, square), join, as_text).enqueue()


def test_a_group_in_the_middle(tuque_app: TestApp) -> None:
    """U11.6 A later one is a group of tasks, `group(b, c)`: each gets the result of the step
    before. The step after a group gets the list of its results, in their order
    """
    handle = made()
    with pytest.raises(ResultTimeout):
        handle.result(0)
    rest(tuque_app)
    assert handle.result(1) == "<6+9>"
    assert sorted(ran) == ["double 3", "fetch 2", "join [6, 9]", "square 3", "text 6+9"]

    async def on_a_loop() -> None:
        other = await chain(square.call(2), group(double, square)).then(join).enqueue_async()
        rest(tuque_app)
        assert await other == await other.result_async(1) == "8+16"
        shown = await other.progress_async()
        assert (shown.step, shown.of, shown.task, shown.state) == (3, 3, join.name, "done")
        assert await other.cancel_async() == "over"
        last = await chain(square.call(3), group(double, square)).enqueue_async()
        rest(tuque_app)
        assert await last == [18, 81]
        assert (await last.progress_async()).state == "done"
        assert await last.cancel_async() == "over"

    asyncio.run(on_a_loop())


def test_groups_in_a_row(tuque_app: TestApp) -> None:
    """U11.8 Between two groups there is a job of the task `tuque.spread`, which each worker knows.
    It is the callback of the first, and its worker makes the second. Its queue is that of the
    first task after the groups; if there is none, `enqueue` raises TypeError.
    """
    calls = [double.call(1), square.call(3)]
    handles = [
        chain(group(calls), group(total, most), join).enqueue(),
        group(calls).then(group(total, most)).then(join).enqueue(),
        chain(fetch.call(0), group(double, square), group(total, most), join).enqueue(),
    ]
    shown = handles[0].progress()
    assert (shown.step, shown.of, shown.task, shown.state) == (1, 3, "group", "open")
    rest(tuque_app, 8)
    assert [handle.result(1) for handle in handles] == ["11+9", "11+9", "3+2"]
    shown = handles[0].progress()
    assert (shown.step, shown.of, shown.task) == (3, 3, join.name)
    assert handles[2].progress().of == 4
    spread = [one for one in tuque_app.jobs() if one.task == "tuque.spread"]
    assert [one.queue for one in spread] == ["joined"] * 3
    pages = chain(fetch.call(0), group(wrap, wrap), group(first_of, first_of), texts).enqueue()
    rest(tuque_app, 8)
    assert pages.result(1) == "page 1 page 1", "models arrive as such"
    with pytest.raises(TypeError, match="the last two steps of the chain are groups: let a task"):
        chain(group(calls), group(total, most)).enqueue()
    with pytest.raises(TypeError, match="the last two steps of the chain are groups: let a task"):
        chain(fetch.call(0), group(double), group(total)).enqueue()
    many = chain(group(calls), group(total, most), group(total, most), group(total, most), join)
    handle = many.enqueue()
    rest(tuque_app, 12)
    assert handle.result(1) == "31+20"


def test_progress_shows_what_is_between_groups(tuque_app: TestApp) -> None:
    """U11.8 `progress` shows it as the second group."""
    handle = chain(fetch.call(0), group(double), group(total), join).enqueue()
    seen: list[tuple[int, str, str]] = []
    for _ in range(40):
        shown = handle.progress()
        told = (shown.step, shown.task, shown.state)
        if told not in seen:
            seen.append(told)
        if tuque_app.run_one() is None:
            tuque_app.advance(0.5)
    assert seen == [
        (1, fetch.name, "waiting"),
        (2, "group", "open"),
        (3, "group", "waiting"),
        (3, "group", "open"),
        (4, join.name, "waiting"),
        (4, join.name, "done"),
    ]
    assert shown.of == 4 and handle.result(1) == "2"


def test_a_group_is_the_last_step(tuque_app: TestApp) -> None:
    """U11.6 of a group that is the last step, `result` returns that list."""
    handle = chain(fetch.call(2), group(double, square)).enqueue()
    other = group([double.call(1)]).then(total).then(group(double, square)).enqueue()
    tuque_app.run_one()
    shown = handle.progress()
    assert (shown.step, shown.of, shown.task, shown.state) == (2, 2, "group", "open")
    assert shown.group is not None and shown.group.children == 2
    rest(tuque_app)
    assert handle.result(1) == [6, 9] and other.result(1) == [4, 4]
    assert handle.progress().state == "done" and handle.cancel() == "over"


@pytest.mark.parametrize("at", ["start", "end"])
@pytest.mark.parametrize("on_fail", ["stop", "continue"])
def test_the_worker_that_makes_a_group_is_killed(tuque_app: TestApp, at: str, on_fail: Any) -> None:
    """U11.7 So of two groups of a step that runs twice, the children of one begin, and its
    callback. The children of the other one are cancelled.
    """
    children = group(double, square, on_fail=on_fail)
    handle = chain(fetch.call(2), children, gather, as_text).enqueue()
    tuque_app.kill_worker(at)
    rest(tuque_app, 12, 8)
    assert handle.result(1) == "<6+9>"
    wanted = ["double 3", "fetch 2", "gather [6, 9]", "square 3", "text 6+9"]
    assert sorted(ran) == sorted(wanted + ["fetch 2"] * (at == "end"))
    states = [one.state for one in tuque_app.jobs() if one.task in (double.name, square.name)]
    assert sorted(states) == ["cancelled"] * (2 * (at == "end")) + ["done"] * 2
    groups = {one.state for one in tuque_app.client.groups("joined")}
    assert groups == ({"failed"} if (at, on_fail) == ("end", "stop") else set())


@pytest.mark.parametrize("child", [0, 1])
def test_the_worker_is_killed_while_it_makes_a_group(tuque_app: TestApp, child: int) -> None:
    """U11.7 it fails for that, or is cancelled after an hour if it has not got all of them
    (T50.8).
    """
    handle = chain(fetch.call(2), group(double, square), join).enqueue()
    dies.append((double, square)[child].name)
    tuque_app.run_one()
    (left,) = tuque_app.client.groups("joined")
    assert (left.state, left.added, dies) == ("open", 0, [])
    assert len(tuque_app.jobs()) == 1 + child
    rest(tuque_app, 12, 8)
    assert handle.result(1) == "6+9"
    assert sorted(ran) == ["double 3", "fetch 2", "fetch 2", "join [6, 9]", "square 3"]
    tuque_app.advance(3_700)
    assert tuque_app.client.group_show("joined", left.id).state == "cancelled"


@pytest.mark.parametrize("word", ["GROUP", "ADDJOB", "DONE"])
def test_an_answer_is_lost_while_a_group_is_made(tuque_app: TestApp, word: str) -> None:
    """U11.7 Refusals are as in U11.2: the run continues where it was refused."""
    handle = chain(fetch.call(2), group(double, square), join).enqueue()
    tuque_app.lose_next_answer(word)
    rest(tuque_app, 8)
    assert handle.result(1) == "6+9" and handle.progress().state == "done"
    assert sorted(ran) == ["double 3", "fetch 2", "join [6, 9]", "square 3"]


@pytest.mark.parametrize("steps", range(7))
def test_cancel_of_a_chain_with_a_group(tuque_app: TestApp, steps: int) -> None:
    """U11.5 `cancel` cancels the step that is waiting or at work, a group as in U10.4. No step
    begins after the reply
    """
    handle = chain(fetch.call(2), group(double, square), group(total, most), join).enqueue()
    for _ in range(steps):
        tuque_app.run_one() or tuque_app.advance(1)
    before = list(ran)
    assert handle.cancel() == "ended"
    rest(tuque_app, 8, 8)
    assert ran == before
    with pytest.raises(JobCancelled):
        handle.result(1)
    assert handle.cancel() == "over"


@pytest.mark.parametrize("on_fail", ["stop", "continue"])
def test_cancel_when_the_group_has_been_made(tuque_app: TestApp, on_fail: Any) -> None:
    """U11.7 it begins only once the outcome of the step before names that group, and so does the
    callback (U11.3).
    """
    children = group(double, square, on_fail=on_fail)
    handle = chain(fetch.call(2), children, join).enqueue()
    at_end.append(handle)
    rest(tuque_app, 8, 8)
    assert answers == ["flagged"] and ran == ["fetch 2"]
    with pytest.raises(JobCancelled, match=r"in step 1, .*: enough"):
        handle.result(1)
    assert handle.progress().step == 1 and handle.cancel() == "over"


def test_a_later_group_that_fails(tuque_app: TestApp) -> None:
    """U11.6 If a group fails, the chain has failed."""
    handle = chain(fetch.call(-5), group(double, square), join).enqueue()
    last = chain(fetch.call(-5), group(square)).enqueue()
    rest(tuque_app)
    for one in (handle, last):
        with pytest.raises(JobFailed, match=r"child . of group .* it is too low"):
            one.result(1)
        shown = one.progress()
        assert (shown.step, shown.task, shown.state) == (2, "group", "failed")
        assert one.cancel() == "over"
    assert not any(one.startswith("join") for one in ran)
    goes_on = chain(fetch.call(-5), group(double, square, on_fail="continue"), count).enqueue()
    plain = chain(fetch.call(-5), group(double, square, on_fail="continue")).enqueue()
    spread = chain(fetch.call(-5), group(square, on_fail="continue"), group(count), join)
    told = spread.enqueue()
    rest(tuque_app, 8)
    assert goes_on.result(1) == 1 and told.result(1) == "1"
    value, failed = plain.result(1)
    assert value == -8 and isinstance(failed, Failed) and failed.how == "dead"


def test_a_child_has_a_key_of_its_own() -> None:
    """U11.2 The key of the next one (Z4) is the same in all tries of a run, until one was withdrawn
    (R5.2).
    """
    entries: list[Entry] = [GroupEntry([double.name, square.name]), join.name]
    with job() as this:
        made = Making(app, this, entries, 1)
        made.id = "D-7"
        asked = [(at, call.options.key, call.options.headers) for at, call in made.left()]
        headers = {"tuque-after": this.id, "tuque-child": "D-7"}
        assert asked == [(0, "tuque-child D-7 0", headers), (1, "tuque-child D-7 1", headers)]
        made.ids[0] = "D-8"
        made.again.withdrawn += 1
        assert [(at, call.options.key) for at, call in made.left()] == [(1, "tuque-child D-7 1 1")]


def test_how_long_a_group_stays(tuque_app: TestApp) -> None:
    """U11.6 In `tuque-chain` a group is an object: `g` has the names of its tasks, `f` its on_fail
    and `k` its keep_s, if they are given.
    """
    handle = chain(fetch.call(2), group(double, on_fail="wait", keep_s=60)).enqueue()
    other = chain(fetch.call(2), group(double)).enqueue()
    rest(tuque_app)
    assert carried == [
        f'[{{"g":["{double.name}"],"f":"wait","k":60}}]',
        f'[{{"g":["{double.name}"]}}]',
    ]
    assert handle.result(1) == other.result(1) == [6]
    tuque_app.advance(100)
    assert handle.progress().state == "gone" and other.progress().state == "done"


def test_a_group_that_cannot_be_made(tuque_app: TestApp) -> None:
    """U11.7 One that ends without the whole group cancels what it has made."""
    handle = chain(fetch.call(2), group(double, square), join).enqueue()
    tuque_app.client.tube("limited").create("fifo")  # where no task with a limit goes
    tuque_app.run_one()
    (left,) = tuque_app.client.groups("joined")
    assert left.state == "cancelled" and handle.progress().step == 1
    assert [one.state for one in tuque_app.jobs(double)] == ["cancelled"]


def test_what_cannot_be_a_later_group() -> None:
    """U11.6 In a group of a chain there is no group and no chain; that, calls in a later group, and
    a first group of tasks are TypeErrors. No task of a later group may be `unique`, nor the step
    after a group.
    """
    begin: Any = fetch.call(1)
    a_group: Any = group
    a_chain: Any = chain
    with pytest.raises(TypeError, match="no group and no chain in it"):
        a_group(double, a_group(double))
    with pytest.raises(TypeError, match="no group and no chain in it"):
        a_group(chain(begin, double), double)
    with pytest.raises(TypeError, match="is a call of .*double"):
        a_group(double.call(1), double.call(2))
    with pytest.raises(TypeError, match="is a call of .*double"):
        a_group(double.call(1))
    with pytest.raises(TypeError, match="a later step of a chain is"):
        a_group([double, double])
    with pytest.raises(ValueError, match="a group has 1 to 10000 tasks, not 0"):
        a_group()
    with pytest.raises(TypeError, match="has tasks, and groups of tasks .*, not <tuque"):
        a_chain(begin, group([double.call(1)]), join)
    with pytest.raises(TypeError, match="begins with a call, or with a group of calls"):
        a_chain(group(double, double), join)
    with pytest.raises(TypeError, match="is unique: its job may be that of another group"):
        a_group(double, named)
    with pytest.raises(TypeError, match="cannot be unique"):
        a_chain(begin, group(double), named)
    with pytest.raises(TypeError, match="has a utube"):
        a_group(app.task(queue="u", utube="u", name="in a utube")(lambda number: number))
    with pytest.raises(ValueError, match="on_fail is stop, wait or continue"):
        a_group(double, on_fail="go")
    with pytest.raises(ValueError, match="needs a queue of its own: 'parts'"):
        a_chain(begin, group(double), first_of)
    with pytest.raises(ValueError, match="needs a queue of its own: 'joined'"):
        a_chain(group([double.call(1)]), group(texts), group(total), join)
    with pytest.raises(ValueError, match="needs a queue of its own: 'parts'"):
        a_chain(group([double.call(1)]), group(total), first_of)
    with pytest.raises(ValueError, match="1024 bytes"):
        a_chain(begin, group(*[double] * 50), join)
