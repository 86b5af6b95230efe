"""Steps and children whose results go nowhere: unknown tasks, misfits, what cannot be written."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from tuque.errors import JobFailed, NoResult
from tuque.testing import TestApp
from tuque.worker import App, Failed, Task, chain, group
from tuque.worker.app.codec import Envelope, encode
from tuque.worker.app.enqueue import CHAIN_HEADER, QUEUES_HEADER
from tuque.worker.workflow.create import WHY, Entry, GroupEntry, header_of

app = App("tuque://127.0.0.1:1")
ran: list[str] = []


@app.task(queue="first", attempts=3)
def one_more(number: int) -> int:
    ran.append(f"one_more {number}")
    return number + 1


@app.task(queue="first", retry_s=0)
def at_most_once(number: int) -> int:
    ran.append(f"at_most_once {number}")
    return number


@app.task(queue="second")
def twice(number: int) -> int:
    ran.append(f"twice {number}")
    return number * 2


@app.task(queue="sums")
def total(numbers: list[int]) -> int:
    ran.append(f"total {numbers}")
    return sum(numbers)


@app.task(queue="first", attempts=3)
def made_of(what: str):  # type: ignore[no-untyped-def]  # chain cannot see what it returns
    ran.append(f"made_of {what}")
    known = {"number": 3, "text": "three", "object": object(), "nan": [math.nan]}
    return "x" * int(what) if what.isdigit() else known[what]


@app.task(queue="first", attempts=3)
async def made_later(what: str):  # type: ignore[no-untyped-def]  # as before
    return made_of(what)


@app.task(queue="second")
def wide(number: float) -> float:
    return number


@app.task(queue="second")
def named(name: str) -> str:
    return name


@app.task(queue="second")
def anything(value: object) -> None:
    ran.append(f"anything {value}")


@app.task(queue="second")
def of_two(number: int, other: int) -> int:
    return number + other


@app.task(queue="second")
def of_none() -> int:
    return 1


@app.task(queue="second")
def of_more(number: int, *more: int, **named: int) -> dict[str, int]:
    return {"number": number}


@app.task(queue="lists")
def listed(values: list[Any]) -> str:
    return str([len(one) if isinstance(one, str) else one for one in values])


@app.task(queue="lists")
def told(values: list[int | Failed]) -> list[Any]:
    return [(one.how, one.reason) if isinstance(one, Failed) else one for one in values]


@pytest.fixture(autouse=True)
def clean() -> None:
    ran.clear()


@contextmanager
def unknown(task: Task[..., Any]) -> Iterator[None]:
    """The workers do not know the task meanwhile."""
    del app.tasks[task.name]
    try:
        yield
    finally:
        app.tasks[task.name] = task


def rest(tuque_app: TestApp, seconds: float = 0) -> None:
    """Time passes, and all that can run has run."""
    tuque_app.advance(seconds)
    tuque_app.run_until_idle()


@pytest.mark.parametrize("lacking", [twice, total])
def test_a_worker_does_not_know_what_follows(
    tuque_app: TestApp, lacking: Task[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """U11.2 A worker that does not know the task of the next one, or of a group that follows one
    of its tasks or its callback, treats the step as a job of an unknown task (U2.4, U2.6).
    """
    handle = chain(one_more.call(1), group(twice, one_more), total).enqueue()
    with unknown(lacking):
        rest(tuque_app)
        rest(tuque_app, 1)
        rest(tuque_app, 2)
        (step,) = tuque_app.jobs(one_more)
        assert (step.state, step.attempt, ran) == ("back-off", 0, [])
        assert caplog.text.count(f"unknown task '{lacking.name}': its jobs, and steps of") == 1
    rest(tuque_app, 60)
    assert handle.result(1) == 4 + 3


def test_a_next_task_that_nobody_knows_for_long(tuque_app: TestApp) -> None:
    """U11.2 treats the step as a job of an unknown task (U2.4, U2.6)."""
    first = one_more.options(unknown_keep_s=60).call(1)
    handle, plain = chain(first, twice).enqueue(), chain(at_most_once.call(1), twice).enqueue()
    with unknown(twice):
        rest(tuque_app)
        rest(tuque_app, 61)
    assert ran == []
    reason = f"the step was not run: after it comes the unknown task '{twice.name}'"
    with pytest.raises(JobFailed, match=f"failed after 1 attempt .*: rejected: {reason}"):
        handle.result(1)
    with pytest.raises(JobFailed, match=reason):
        plain.result(1)


@pytest.mark.parametrize("header", ["{", "[]", "[1]"])
def test_a_header_of_no_chain(tuque_app: TestApp, header: str) -> None:
    """U11.1 a job whose header `tuque-chain` has the names of the tasks that follow"""
    body = f'{{"task":"{one_more.name}","args":[1]}}'.encode()
    headers = {CHAIN_HEADER: header}
    tuque_app.client.addjob("first", body, attempts=3, ttl=0, retry=30, headers=headers)
    rest(tuque_app)
    (letter,) = tuque_app.dead()
    assert "the header tuque-chain is none of a chain" in letter.reason and ran == []


@pytest.mark.parametrize("named", ["", "first", "firsts econd", "body"])
@pytest.mark.parametrize("steps", [[twice.name], [GroupEntry([one_more.name, twice.name])]])
def test_a_step_in_a_queue_that_was_not_named(
    tuque_app: TestApp, named: str, steps: list[Entry]
) -> None:
    """U11.9 A worker runs no job after which one would be added to a queue that is neither the
    job's own nor named there: it is FAIL FINAL, as in U8.2."""
    headers = {CHAIN_HEADER: header_of(steps), QUEUES_HEADER: named}
    body = Envelope(task=one_more.name, args=[1])
    if named == "body":
        headers = {CHAIN_HEADER: header_of(steps)}
        body.headers = {QUEUES_HEADER: "second"}
    add = tuque_app.client.addjob
    add("first", encode(body, "json"), attempts=3, ttl=0, retry=30, headers=headers)
    rest(tuque_app)
    (letter,) = tuque_app.dead()
    assert f"{twice.name} is of the queue 'second'" in letter.reason and ran == []


def test_a_step_carries_the_queues_on(tuque_app: TestApp) -> None:
    """U11.9 Jobs of later steps have the same."""
    handle = chain(one_more.call(1), twice, one_more, twice).enqueue()
    shown = tuque_app.client.show(handle.id)
    assert shown is not None and shown.work is not None
    assert shown.work.headers[QUEUES_HEADER] == "second first"
    rest(tuque_app)
    assert handle.result(1) == 10


def test_what_no_step_can_take_is_refused() -> None:
    """U11.1 A step gets one argument, the result of the step before, after a group a list. A task
    that needs another one, or whose argument cannot have the type that the one before returns, is
    a TypeError.
    """
    begin: Any = one_more.call(1)
    a_chain, a_group = cast(Any, chain), cast(Any, group)
    with pytest.raises(TypeError, match=r"of_two: missing .* 'other': a step gets one argument"):
        a_chain(begin, of_two)
    with pytest.raises(TypeError, match="of_none: too many positional arguments: a step gets one"):
        a_chain(begin, twice).then(of_none)
    with pytest.raises(TypeError, match="of_two: missing a required argument"):
        a_chain(begin, a_group(twice, of_two))
    with pytest.raises(TypeError, match="named: argument name is str, and the step .* returns int"):
        a_chain(begin, named)
    with pytest.raises(TypeError, match="twice: argument number is int, and .* returns dict"):
        a_chain(begin, of_more, twice)
    with pytest.raises(TypeError, match="named: argument name is str, and the .* returns list"):
        a_chain(begin, a_group(twice), a_group(named), total)
    with pytest.raises(TypeError, match="named: argument name is str, and the step .* returns int"):
        a_chain(a_group([begin]), total, named)
    with pytest.raises(TypeError, match="twice: argument number is int, and .* returns None"):
        a_chain(begin, anything, twice)
    chain(one_more.call(1), wide)
    chain(one_more.call(1), group(of_more, anything), total)
    a_chain(made_of.call("number"), named)


@pytest.mark.parametrize("first", [made_of, made_later])
@pytest.mark.parametrize(
    ("what", "following", "why"),
    [
        ("text", twice, "task .*twice: argument number: 'three' .str. would not be taken"),
        ("text", group(anything, twice), "task .*twice: argument number: 'three' .str. would not"),
        ("object", anything, "task .*anything: argument value: .* cannot be written as json"),
        ("nan", anything, "task .*anything: argument value.*: nan .* JSON has no such number"),
    ],
)
def test_the_next_step_cannot_take_it(
    tuque_app: TestApp, first: Any, what: str, following: Any, why: str
) -> None:
    """U11.2 If the next one cannot take the result (its type is another one, it cannot be
    written, or it is too long for the broker), the step is FAIL FINAL at once, whatever
    `attempts` is. The reason names what the next one cannot take.
    """
    handle = chain(first.call(what), following).enqueue()
    rest(tuque_app)
    with pytest.raises(JobFailed, match=f"rejected: {re.escape(WHY)}: {why}") as caught:
        handle.result(1)
    assert caught.value.attempts == 1 and len(ran) == 1
    assert {one.state for one in tuque_app.jobs(anything)} <= {"cancelled"}
    (letter,) = tuque_app.dead()
    assert letter.id == handle.id


def test_what_groups_in_a_row_hand_on_may_not_fit(tuque_app: TestApp) -> None:
    """U11.2 the step is FAIL FINAL at once"""
    first = group([made_of.call("text")])
    handle = chain(first, group(total), anything).enqueue()
    rest(tuque_app)
    with pytest.raises(JobFailed, match="cannot take its result .*task .*total: argument numbers"):
        handle.result(1)


UNWRITABLE = [
    ("object", "of type object: Encoding objects of type object is unsupported"),
    ("nan", 'of type list: JSON has no nan; codec="msgpack" has'),
    ("65535", "of type str: it has 65537 bytes, that of a child of a group at most 65536"),
]


@pytest.mark.parametrize("child", [made_of, made_later])
@pytest.mark.parametrize(("what", "why"), UNWRITABLE)
@pytest.mark.parametrize("later", [False, True])
def test_a_result_of_a_child_cannot_be_handed_on(
    tuque_app: TestApp, child: Any, what: str, why: str, later: bool
) -> None:
    """U2.8 But if others wait for the result, of a child of a group (header `tuque-child`) or a
    step of a chain (`tuque-after`), the job is FAIL FINAL, whatever `attempts` is, as is a child
    whose result has more than 65,536 bytes (T50.3). The reason names the type.
    """
    words = rf"rejected: the task has run, but its result, .* it runs again\): {re.escape(why)}"
    if later:
        handle: Any = chain(named.call(what), group(child, named), listed).enqueue()
    else:
        handle = group([child.call(what), one_more.call(1)]).then(listed).enqueue()
    rest(tuque_app)
    with pytest.raises(JobFailed, match=rf"child 0 of group .* failed \(dead\): {words}"):
        handle.result(1)
    assert len([line for line in ran if "made_of" in line]) == 1
    goes_on = group([child.call(what), one_more.call(1)], on_fail="continue").then(told).enqueue()
    rest(tuque_app)
    (how, reason), number = goes_on.result(1)
    assert (how, number) == ("dead", 2) and re.match(words, reason)


def test_the_longest_result_of_a_child(tuque_app: TestApp) -> None:
    """U2.8 as is a child whose result has more than 65,536 bytes (T50.3)."""
    handle = group([made_of.call("65534"), one_more.call(1)]).then(listed).enqueue()
    rest(tuque_app)
    assert handle.result(1) == "[65534, 2]"


@pytest.mark.parametrize(("what", "why"), UNWRITABLE[:2])
def test_a_result_of_the_last_step_cannot_be_written(
    tuque_app: TestApp, what: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """U2.8 a step of a chain (`tuque-after`), the job is FAIL FINAL"""
    handle: Any = chain(named.call(what), made_of).enqueue()
    rest(tuque_app)
    with pytest.raises(JobFailed, match=f"failed after 1 attempt .*: {re.escape(why)}"):
        handle.result(1)
    alone = made_of.options(keep_s=60).enqueue(what)
    rest(tuque_app)
    assert alone.status().state == "done"
    with pytest.raises(NoResult, match=f"it cannot be written: {re.escape(why.split(': ')[1])}"):
        alone.result(0)
    assert f"the result of job {alone.id} (test_worker_unfit.made_of) is lost" in caplog.text


def test_a_child_that_expired_says_so(tuque_app: TestApp) -> None:
    """T50.3 The reason has that one is gone, that the TTL of a dead one was over"""
    late = one_more.options(ttl_s=5).call(1)
    handle = group([late]).then(told).enqueue()
    goes_on = group([late, one_more.call(1)], on_fail="continue").then(told).enqueue()
    tuque_app.client.pause("first", "out")
    rest(tuque_app, 10)
    tuque_app.client.pause("first", "none")
    rest(tuque_app)
    with pytest.raises(JobFailed, match=r"child 0 of .* failed \(dead\): its TTL was over$"):
        handle.result(1)
    assert goes_on.result(1) == [["dead", "its TTL was over"], 2]
