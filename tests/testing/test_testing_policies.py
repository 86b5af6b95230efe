"""TestApp runs what the broker adds by itself: groups, chains, schedules, topics."""

from __future__ import annotations

import pytest

from tuque.testing import TestApp
from tuque.worker import App, Failed, Limit, chain, group

app = App("tuque://127.0.0.1:1")
ran: list[str] = []


@app.task(queue="pages", attempts=2)
def count(page: str) -> int:
    ran.append(f"count {page}")
    if page == "bad":
        raise ValueError("bad")
    return len(page)


@app.task(queue="totals")
def add_up(counts: list[int]) -> int:
    ran.append(f"add up {counts}")
    return sum(counts)


@app.task(queue="totals")
def add_good(counts: list[int | Failed]) -> int:
    return sum(one for one in counts if not isinstance(one, Failed))


@app.task(queue="stored", limit=Limit(1))
def store(total: int) -> str:
    ran.append(f"store {total}")
    return f"total {total}"


@app.task(queue="nightly")
def clean_up(days: int) -> None:
    ran.append(f"clean up {days}")


@pytest.fixture(autouse=True)
def clean() -> None:
    ran.clear()


def test_a_group(tuque_app: TestApp) -> None:
    handle = group(count.call(page) for page in ("a", "bb", "ccc")).then(add_up).enqueue()
    tuque_app.assert_enqueued(count, "bb")
    assert handle.progress().done == 0
    tuque_app.assert_not_enqueued(add_up)  # it is not there before its children have ended
    for _ in range(3):
        tuque_app.run_one()
    assert tuque_app.assert_enqueued(add_up).headers == {}
    assert tuque_app.run_until_idle() == 1
    assert handle.result(1) == 6 and ran[-1] == "add up [1, 2, 3]"
    assert [one.state for one in tuque_app.jobs()] == ["done"] * 4
    plain = group([count.call("a")]).enqueue()
    tuque_app.run_until_idle()
    assert plain.results(1) == [1]


def test_a_child_that_fails(tuque_app: TestApp) -> None:
    handle = group([count.call("bad"), count.call("a")], on_fail="continue").then(add_good)
    made = handle.enqueue()
    tuque_app.run_until_idle()
    tuque_app.advance(10)
    tuque_app.run_until_idle()
    assert made.result(1) == 1
    assert [one.args for one in tuque_app.dead()] == [("bad",)]


def test_a_chain(tuque_app: TestApp) -> None:
    handle = chain(group([count.call("a"), count.call("bb")]), add_up, store).enqueue()
    assert tuque_app.run_until_idle() == 4
    assert handle.result(1) == "total 3"
    assert tuque_app.assert_enqueued(store, 3).state == "done"
    assert tuque_app.assert_enqueued(add_up).state == "done"


def test_the_answer_to_a_step_is_lost(tuque_app: TestApp) -> None:
    for word in ("ADDJOB", "DONE", "RESULT", "START"):
        ran.clear()
        handle = chain(count.call("a"), store).enqueue()
        tuque_app.lose_next_answer(word)
        tuque_app.run_until_idle()
        tuque_app.advance(10)
        tuque_app.run_until_idle()
        assert handle.result(1) == "total 1", word
        assert ran.count("store 1") == 1, word


@pytest.mark.parametrize("answers", [0, 1])
def test_the_enqueue_of_a_group_is_cut(tuque_app: TestApp, answers: int) -> None:
    made = group(count.call(page) for page in ("a", "bb", "ccc")).then(add_up)
    if answers == 0:
        tuque_app.lose_next_answer("GROUP")
        with pytest.raises(ConnectionError):
            made.enqueue()  # its group has no children
    tuque_app.lose_next_answer("ADDJOB")  # these are sent again, and are not there twice
    handle = made.enqueue()
    tuque_app.lose_next_answer("START")
    tuque_app.run_until_idle()
    assert handle.result(1) == 6
    assert sorted(ran) == ["add up [1, 2, 3]", "count a", "count bb", "count ccc"]
    tuque_app.advance(3_700)
    lost = [one.state for one in tuque_app.client.groups("totals")]
    assert lost == ["cancelled"] * (1 - answers)


def test_a_schedule(tuque_app: TestApp) -> None:
    app.schedule("clean up", clean_up.call(30), every_s=600)
    try:
        assert app.send_schedules() == {"clean up": "added"}
        assert tuque_app.run_until_idle() == 0
        tuque_app.advance(600)
        tuque_app.assert_enqueued(clean_up, 30)
        assert tuque_app.run_until_idle() == 1
        tuque_app.advance(1_200)
        assert tuque_app.run_until_idle() == 2
        assert ran == ["clean up 30"] * 3
    finally:
        app.schedules.clear()


def test_a_topic(tuque_app: TestApp) -> None:
    tuque_app.client.topic_subscribe("orders", "pages")
    tuque_app.client.topic_subscribe("orders", "others")
    ids = app.publish("orders", count.options(headers={"shop": "a"}).call("abc"))
    assert len(ids) == 2
    found = tuque_app.assert_enqueued(count, "abc")
    assert found.headers == {"shop": "a"}
    assert sorted(one.queue for one in tuque_app.jobs(count)) == ["others", "pages"]
    assert tuque_app.run_until_idle() == 2
    assert ran == ["count abc"] * 2
