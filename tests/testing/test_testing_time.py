"""TestApp: time passes only when a test says so, for delays, back-offs, limits and coroutines."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from typing import Any, Final, Literal

import pytest
import shop
from shop import send, sign_up, smtp

from tuque.errors import JobFailed, NoResult
from tuque.testing import TestApp
from tuque.worker import App, Backoff, Reject, current_job

ENDS: Final[tuple[Literal["dead", "drop"], ...]] = ("dead", "drop")


def test_back_off_over_time_then_dead(tuque_app: TestApp) -> None:
    smtp.down()
    sign_up("ann")
    assert tuque_app.run_until_idle() == 1
    waits = []
    while (found := tuque_app.jobs(send)[0]).state == "back-off":
        assert found.due_s is not None
        waits.append(found.due_s)
        tuque_app.advance(found.due_s - 0.001)
        assert tuque_app.run_until_idle() == 0
        tuque_app.advance(0.001)
        assert tuque_app.run_until_idle() == 1
    assert 1 <= waits[0] <= 2 <= waits[1] <= 4
    (letter,) = tuque_app.dead("mail.dead")
    assert (letter.task, letter.args, letter.kwargs) == (
        "shop.send",
        ("ann",),
        {"text": "Welcome, ann!"},
    )
    assert (letter.cause, letter.reason) == ("failed", "OSError: connection refused")
    assert (letter.attempt, letter.of, letter.origin) == (3, 3, "mail")
    assert "Traceback" in letter.detail
    assert tuque_app.dead("mail") == [letter]
    assert tuque_app.dead("other") == []


def test_a_job_that_nobody_began_in_time(tuque_app: TestApp) -> None:
    """W6.2 One of which none did expires as G7.2 says: its outcome is `gone`"""
    handles = [send.options(ttl_s=60, keep_s=60, on_expiry=how).enqueue("ann", "x") for how in ENDS]
    tuque_app.advance(61)
    assert tuque_app.run_until_idle() == 0
    assert [(one.id, one.cause) for one in tuque_app.dead()] == [(handles[0].id, "expired")]
    with pytest.raises(NoResult, match="nothing of it is kept"):
        handles[1].result()
    smtp.down()
    send.options(ttl_s=60, on_expiry="drop", backoff=Backoff(80, 80, 0)).enqueue("bob", "x")
    assert tuque_app.run_until_idle() == 1
    tuque_app.advance(61)
    assert [one.args for one in tuque_app.dead()] == [("ann", "x"), ("bob", "x")], "it has failed"
    with pytest.raises(ValueError, match="on_expiry is dead or drop, not 'never'"):
        send.options(on_expiry="never")


def test_seven_days_later_the_dead_letter_is_there(tuque_app: TestApp) -> None:
    smtp.down()
    sign_up("ann")
    before = tuque_app.now
    for _ in range(7):
        tuque_app.run_until_idle()
        tuque_app.advance(86_400)
    assert tuque_app.now - before == dt.timedelta(days=7)
    (letter,) = tuque_app.dead()
    assert (letter.attempt, letter.reason) == (3, "OSError: connection refused")
    smtp.up()
    tuque_app.client.dead_replay("mail.dead")
    tuque_app.run_until_idle()
    assert smtp.sent and not tuque_app.dead()


def test_a_delay(tuque_app: TestApp) -> None:
    send.enqueue_in(60, "ann", "later")
    assert tuque_app.run_one() is None
    tuque_app.advance(59.9)
    assert tuque_app.run_one() is None
    tuque_app.advance(0.1)
    assert str(tuque_app.run_one()) == ("shop.send('ann', 'later')  [mail: done, attempt 1 of 3]")


def test_later_costs_no_attempt(tuque_app: TestApp) -> None:
    shop.is_closed[0] = True
    shop.sync.enqueue("x")
    for _ in range(3):
        assert tuque_app.run_until_idle() == 1
        tuque_app.advance(600)
    shop.is_closed[0] = False
    tuque_app.run_until_idle()
    assert shop.did == ["1 1", "1 2", "1 3", "1 4"]
    assert tuque_app.jobs(shop.sync)[0].state == "done"


def test_a_coroutine_waits_in_no_time(tuque_app: TestApp) -> None:
    handle = shop.count_to.enqueue(10)
    before = tuque_app.now
    tuque_app.run_until_idle()
    assert handle.result() == 10
    assert tuque_app.now - before == dt.timedelta(hours=10)
    assert tuque_app.jobs()[0].attempt == 1, "it beat for ten hours"


def test_a_coroutine_over_its_time_limit(tuque_app: TestApp) -> None:
    handle = shop.count_to.options(time_limit_s=60, attempts=1).enqueue(10)
    tuque_app.run_until_idle()
    with pytest.raises(JobFailed) as found:
        handle.result()
    assert found.value.cause == "timeout"


def test_a_coroutine_that_nobody_wakes(tuque_app: TestApp) -> None:
    app = App()

    @app.task(attempts=1)
    async def waits() -> None:
        await asyncio.Event().wait()

    waits.enqueue()
    tuque_app.run_until_idle()
    assert tuque_app.dead()[0].reason.startswith("the task waits for something that nobody")


def test_a_coroutine_that_waits_for_a_thread(tuque_app: TestApp) -> None:
    app = App()
    come = threading.Event()

    @app.task
    async def waits() -> bool:
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, come.set)  # real time passes up to that
        async with asyncio.timeout(60):
            return await asyncio.to_thread(come.wait, 30)

    handle = waits.enqueue()
    before = tuque_app.now
    tuque_app.run_until_idle(fail_fast=True)
    assert handle.result()
    assert tuque_app.now == before


def test_a_function_over_its_time_limit(tuque_app: TestApp) -> None:
    app = App()
    left: list[float | None] = []

    @app.task(time_limit_s=60, attempts=1, keep_s=60)
    def slow() -> None:
        left.append(current_job().time_left)
        tuque_app.advance(59)
        current_job().check()
        left.append(current_job().time_left)
        tuque_app.advance(2)
        current_job().check()
        left.append(None)

    slow.enqueue()
    tuque_app.run_until_idle()
    assert left == [60, 1]
    assert tuque_app.dead()[0].cause == "timeout"


def test_a_long_run_is_not_silent(tuque_app: TestApp) -> None:
    app = App()

    @app.task(retry_s=2)
    def long() -> int:
        tuque_app.advance(600)
        return current_job().attempt

    handle = long.enqueue()
    assert tuque_app.run_until_idle() == 1
    assert handle.result() == 1


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), 1e18, 3.2e9])
def test_time_goes_forward_at_most_100_years(wrong: float, tuque_app: TestApp) -> None:
    with pytest.raises(ValueError, match=r"0 seconds or more, at most 3153600000 \(100 years\)"):
        tuque_app.advance(wrong)


@pytest.mark.parametrize("wrong", ["x", None, True])
def test_time_is_a_number(wrong: object, tuque_app: TestApp) -> None:
    with pytest.raises(TypeError, match="the time that passes is a number of seconds, not "):
        tuque_app.advance(wrong)  # type: ignore[arg-type]  # is refused


def test_a_long_time_passes_in_few_turns(tuque_app: TestApp) -> None:
    turns = tuque_app.broker.server.figures.turns
    began_at = tuque_app.now
    tuque_app.advance(10 * 365 * 86_400)
    assert tuque_app.now - began_at == dt.timedelta(days=3650)
    assert tuque_app.broker.server.figures.turns - turns < 5_000


def test_a_result_with_nan_is_lost(tuque_app: TestApp, caplog: pytest.LogCaptureFixture) -> None:
    """
    U2.8 So is a result that the codec cannot write: in JSON also one with nan or an infinity in any
    place.
    """
    app = App()
    nan = float("nan")

    @app.task(codec="json", keep_s=60)
    def plain(at: int) -> Any:
        return [nan, {"a": [1, float("-inf")]}, (None, nan), {"a": None}, None][at]

    @app.task(codec="msgpack")
    def packed() -> float:
        return float("inf")

    handles = [plain.enqueue(at) for at in range(5)]
    infinite = packed.enqueue()
    assert tuque_app.run_until_idle() == 6
    for handle in handles[:3]:
        with pytest.raises(NoResult, match="is done and has no result: it cannot be .*JSON has no"):
            handle.result()
        assert f"the result of job {handle.id}" in caplog.text
    assert caplog.text.count("JSON has no ") == 3
    assert [handle.result() for handle in handles[3:]] == [{"a": None}, None]
    assert infinite.result() == float("inf")


def test_a_reject_without_words_has_a_reason(tuque_app: TestApp) -> None:
    app = App()

    @app.task()
    def rejects() -> None:
        raise Reject("")

    rejects.enqueue()
    tuque_app.run_until_idle()
    assert tuque_app.dead()[0].reason == "rejected: Reject"


def test_no_answer_to_an_unknown_command_is_lost(tuque_app: TestApp) -> None:
    with pytest.raises(ValueError, match="no command has the name 'NOSUCH'"):
        tuque_app.lose_next_answer("NOSUCH")
