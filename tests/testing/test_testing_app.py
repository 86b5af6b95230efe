"""TestApp: the broker and the worker of a user's test."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import ANY

import pytest
import shop
from shop import resize, send, sign_up, smtp

from tuque.errors import Cancelled, JobCancelled, JobFailed, NoResult, ResultTimeout
from tuque.testing import NotRun, TestApp, job
from tuque.worker import App, Backoff, Failure, Job, Outgoing, RetryLater, current_job


def test_the_eighth_example(tuque_app: TestApp) -> None:
    sign_up("ann")
    tuque_app.assert_enqueued(send, "ann", text=ANY)
    smtp.down()
    tuque_app.run_until_idle()
    tuque_app.advance(120)
    smtp.up()
    tuque_app.run_until_idle()
    assert tuque_app.jobs(send)[0].attempt == 2
    assert not tuque_app.dead()
    assert smtp.sent == [("ann", "Welcome, ann!")]
    assert tuque_app.jobs(send)[0].state == "done"


class TestAssertions:
    def test_a_failed_one_shows_what_was_enqueued(self, tuque_app: TestApp) -> None:
        sign_up("ann")
        resize.enqueue("cat.png", width=7)
        with pytest.raises(AssertionError) as found:
            tuque_app.assert_enqueued(send, "bob", ANY)
        assert str(found.value) == (
            "shop.send('bob', <ANY>) was not enqueued. There were:\n"
            "  shop.send('ann', text='Welcome, ann!')  [mail: waiting]\n"
            "  shop.resize('cat.png', width=7)  [default: waiting]"
        )

    def test_defaults_and_names_of_arguments_do_not_matter(self, tuque_app: TestApp) -> None:
        resize.enqueue("cat.png")
        assert tuque_app.assert_enqueued(resize, url="cat.png", width=100).args == ("cat.png",)
        tuque_app.assert_enqueued(resize)
        resize.enqueue("dog.png", 100)
        tuque_app.assert_enqueued(resize, "dog.png")
        tuque_app.assert_not_enqueued(resize, "cat.png", 101)
        tuque_app.assert_not_enqueued(send)
        with pytest.raises(TypeError, match="colour"):
            tuque_app.assert_enqueued(resize, "cat.png", colour="red")

    def test_not_enqueued_fails(self, tuque_app: TestApp) -> None:
        sign_up("ann")
        with pytest.raises(AssertionError, match=r"(?s)was enqueued:.*'ann', text='Welcome"):
            tuque_app.assert_not_enqueued(send, ANY, ANY)

    def test_arguments_go_through_the_codec(self, tuque_app: TestApp) -> None:
        app = App()

        @app.task
        def at(day: dt.date, numbers: tuple[int, ...]) -> None: ...

        at.enqueue(dt.date(2026, 1, 2), (1, 2))
        assert tuque_app.jobs(at)[0].args == (dt.date(2026, 1, 2), (1, 2))
        assert b"2026-01-02" in tuque_app.jobs(at)[0].body
        with pytest.raises(TypeError, match="would not be taken"):
            at.enqueue("x", ())  # type: ignore[arg-type]  # that is the test


class TestResults:
    def test_a_result_comes_in_its_type(self, tuque_app: TestApp) -> None:
        handle = resize.enqueue("cat.png", 640)
        assert tuque_app.run_until_idle() == 1
        assert handle.result(timeout=10) == shop.Image(640, dt.date(2026, 1, 2))
        assert handle.status().state == "done"
        tuque_app.advance(600)
        with pytest.raises(NoResult, match="nothing of it is kept"):
            handle.result()

    def test_a_result_that_is_not_there_yet(self, tuque_app: TestApp) -> None:
        handle = resize.enqueue("cat.png")
        with pytest.raises(NotRun, match=r"is waiting: .* call tuque_app.run_until_idle\(\) first"):
            handle.result()
        with pytest.raises(ResultTimeout):
            handle.result(timeout=10)
        late = resize.options(delay_s=60).enqueue("dog.png")
        with pytest.raises(NotRun, match=r"is scheduled.* tuque_app.advance\(60\) and"):
            late.result()

    def test_a_failed_job(self, tuque_app: TestApp) -> None:
        handle = shop.rejects.options(keep_s=60).enqueue("this")
        tuque_app.run_until_idle()
        with pytest.raises(JobFailed, match="never this") as found:
            handle.result()
        assert found.value.attempts == 1

    def test_in_a_coroutine(self, tuque_app: TestApp) -> None:
        async def program() -> shop.Image:
            handle = await resize.enqueue_async("cat.png", 8)
            with pytest.raises(NotRun):
                await handle
            tuque_app.run_until_idle()  # the task runs beside this loop
            return await handle

        assert asyncio.run(program()).width == 8

    def test_tasks_see_no_loop_of_the_test(self, tuque_app: TestApp) -> None:
        app = App()

        @app.task
        def runs(number: int) -> int:
            return asyncio.run(asyncio.sleep(0, number))

        @app.task
        async def sleeps(number: int) -> int:
            return await asyncio.sleep(60, number)

        async def program() -> list[int]:
            handles = [await runs.enqueue_async(1), await sleeps.enqueue_async(2)]
            tuque_app.run_until_idle(fail_fast=True)
            return [await handle for handle in handles]

        assert asyncio.run(program()) == [1, 2]

    def test_one_that_waits_for_itself(self, tuque_app: TestApp) -> None:
        app = App()
        seen: list[str] = []

        @app.task
        def waits() -> int:
            with pytest.raises(NotRun, match="is running: its task has not returned yet") as found:
                handle.result()
            seen.append(str(found.value))
            return 1

        handle = waits.enqueue()
        tuque_app.run_until_idle(fail_fast=True)
        assert handle.id in seen[0]

    def test_a_task_that_waits_for_another(self, tuque_app: TestApp) -> None:
        handle = shop.asks.options(attempts=1).enqueue(4)
        tuque_app.run_until_idle()
        with pytest.raises(JobFailed, match="NotRun"):
            handle.result()


class TestTrouble:
    def test_a_killed_worker_then_another_attempt(self, tuque_app: TestApp) -> None:
        handle = resize.enqueue("cat.png")
        tuque_app.kill_worker()
        ran = tuque_app.run_one()
        assert ran is not None
        assert ran.state == "running"
        with pytest.raises(NotRun, match="is running, but its worker was killed"):
            handle.result()
        tuque_app.advance(29.9)
        assert tuque_app.run_until_idle() == 0
        tuque_app.advance(0.1 + 2)  # back-off
        assert tuque_app.run_until_idle() == 1
        assert handle.result().width == 100
        assert shop.did == ["cat.png 1", "cat.png 1"], "the work of the first was done, too"
        assert handle.status().worker == "test/2"

    def test_killed_before_its_task_began(self, tuque_app: TestApp) -> None:
        resize.enqueue("cat.png")
        tuque_app.kill_worker(at="start")
        tuque_app.run_until_idle()
        assert shop.did == []
        tuque_app.advance(33)
        tuque_app.run_until_idle()
        assert shop.did == ["cat.png 1"]

    def test_killed_in_the_middle_until_it_is_dead(self, tuque_app: TestApp) -> None:
        app = App()

        @app.task(attempts=2, backoff=Backoff(0, 0))
        def crashes() -> None:
            shop.did.append("begin")
            tuque_app.kill_worker()
            shop.did.append("end")

        crashes.enqueue()
        for _ in range(4):
            tuque_app.run_until_idle()
            tuque_app.advance(31)
        assert shop.did == ["begin", "begin", "begin"]
        assert [(letter.cause, letter.attempt) for letter in tuque_app.dead()] == [("crashed", 0)]

    def test_a_lost_answer_to_start_gives_the_same_run(self, tuque_app: TestApp) -> None:
        handle = resize.enqueue("cat.png")
        tuque_app.lose_next_answer("START")
        assert tuque_app.run_until_idle() == 1
        assert handle.result().width == 100
        assert shop.did == ["cat.png 1"]
        assert tuque_app.broker.node.life.runs == 1

    def test_a_lost_answer_to_done(self, tuque_app: TestApp) -> None:
        handle = resize.enqueue("cat.png")
        tuque_app.lose_next_answer("DONE")
        assert tuque_app.run_until_idle() == 1
        assert handle.result().width == 100

    def test_a_lost_answer_to_enqueue(self, tuque_app: TestApp) -> None:
        tuque_app.lose_next_answer()
        with pytest.raises(ConnectionError) as found:
            resize.enqueue("cat.png")
        assert found.value.may_be_done  # type: ignore[attr-defined]  # of our own
        assert tuque_app.run_until_idle() == 1
        tuque_app.lose_next_answer("addjob")
        tuque_app.client.ping()
        with pytest.raises(ConnectionError):
            resize.enqueue("dog.png")
        tuque_app.lose_next_answer("ADDJOB")
        resize.options(key="bird").enqueue("bird.png")  # asks again
        assert tuque_app.run_until_idle() == 2

    def test_an_endless_retry_is_shown(self, tuque_app: TestApp) -> None:
        shop.again.enqueue()
        with pytest.raises(AssertionError) as found:
            tuque_app.run_until_idle(max_jobs=20)
        assert str(found.value) == (
            "after 20 attempts these jobs have not come to rest:\n"
            "  shop.again()  [default: waiting]"
        )
        assert tuque_app.run_one() is not None

    def test_fail_fast_shows_the_traceback(self, tuque_app: TestApp) -> None:
        smtp.down()
        resize.enqueue("cat.png")
        sign_up("ann")
        sign_up("bob")
        with pytest.raises(AssertionError, match=r"(?s)send\('ann'.*back-off.*Traceback.*refused"):
            tuque_app.run_until_idle(fail_fast=True)
        smtp.up()
        assert tuque_app.run_until_idle(fail_fast=True) == 2

    def test_as_many_as_allowed_is_no_failure(self, tuque_app: TestApp) -> None:
        resize.enqueue("cat.png")
        assert tuque_app.run_until_idle(max_jobs=1) == 1

    def test_an_unknown_task_waits_for_a_worker_that_knows_it(self, tuque_app: TestApp) -> None:
        tuque_app.client.addjob("mail", b'{"task":"new"}', attempts=1, ttl=0, retry=30)
        assert tuque_app.run_until_idle() == 1
        assert tuque_app.jobs()[0].state == "back-off"
        tuque_app.advance(1)
        tuque_app.run_until_idle()
        assert (tuque_app.jobs()[0].due_s, tuque_app.jobs()[0].attempt) == (0.2, 0)
        tuque_app.advance(90_000)
        tuque_app.run_until_idle()
        (letter,) = tuque_app.dead()
        assert letter.reason == "rejected: unknown task 'new'"

    def test_a_job_at_most_once(self, tuque_app: TestApp) -> None:
        handle = shop.once.enqueue("x")
        tuque_app.run_until_idle()
        assert tuque_app.jobs(shop.once)[0].state == "dead"
        (letter,) = tuque_app.dead("default")
        assert (letter.queue, letter.task) == ("default.dead", "shop.once")
        assert "OSError: x" in letter.reason
        assert (letter.id, letter.attempt, letter.cause) == (handle.id, 1, "failed")
        assert "OSError: x" in letter.detail
        assert tuque_app.run_until_idle() == 0, "dead letters are not run"
        assert tuque_app.client.dead_replay("default.dead") == 1
        assert tuque_app.run_until_idle() == 1

    def test_a_body_that_is_no_call(self, tuque_app: TestApp) -> None:
        id = tuque_app.client.addjob("default", b"no call")
        tuque_app.run_until_idle()
        (letter,) = tuque_app.dead()
        assert (letter.id, letter.queue, letter.origin) == (id, "default.dead", "default")
        assert tuque_app.client.qlen("default.dead.dead") == 0


class TestCancel:
    def test_before_it_runs(self, tuque_app: TestApp) -> None:
        handle = resize.enqueue("cat.png")
        assert handle.cancel("user left") == "ended"
        assert tuque_app.run_until_idle() == 0
        with pytest.raises(JobCancelled, match="user left"):
            handle.result()
        assert sign_up("ann") is None
        send.app.handle(tuque_app.jobs(send)[0].id).cancel()
        assert tuque_app.jobs(send)[0].state == "cancelled"
        assert str(tuque_app.jobs()[0]) == "shop.resize('cat.png')  [default: cancelled: user left]"

    def test_while_it_runs(self, tuque_app: TestApp) -> None:
        app = App()
        seen: list[object] = []

        @app.task(keep_s=60)
        def export(rows: int) -> str:
            for row in range(rows):
                current_job().progress({"done": row})
                seen.append(handle.progress())
                if row == 2:
                    seen.append(handle.cancel("user left"))
                current_job().check()
            return "all"

        handle = export.enqueue(100)
        tuque_app.run_until_idle()
        assert seen == [{"done": 0}, {"done": 1}, {"done": 2}, "flagged"]
        with pytest.raises(JobCancelled, match="user left"):
            handle.result()

    def test_a_coroutine_while_it_waits(self, tuque_app: TestApp) -> None:
        app = App()
        seen: list[str] = []

        @app.task
        async def waits() -> int:
            asyncio.get_running_loop().call_later(30, lambda: seen.append(handle.cancel("enough")))
            await asyncio.sleep(3600)
            return 1

        handle = waits.enqueue()
        before = tuque_app.now
        tuque_app.run_until_idle()
        with pytest.raises(JobCancelled, match="enough"):
            handle.result()
        assert seen == ["flagged"]
        assert (tuque_app.now - before).total_seconds() < 31


class TestApps:
    def test_two_in_one_test(self, tuque_app: TestApp) -> None:
        local = App("tuque://third.example.org")

        @local.task(queue="default")
        def triple(number: int) -> int:
            return 3 * number

        handles = [shop.double.enqueue(1), triple.enqueue(1)]
        resize.enqueue("cat.png")
        assert tuque_app.run_until_idle() == 3
        assert [handle.result() for handle in handles] == [2, 3]

    def test_one_that_enqueued_nothing_itself(self, tuque_app: TestApp) -> None:
        body = b'{"task":"shop.double","args":[4]}'
        id = tuque_app.client.addjob("elsewhere", body, attempts=1, keep=60)
        tuque_app.run_until_idle()
        assert shop.other.handle(id, int).result() == 8

    def test_a_task_enqueues_from_a_coroutine(self, tuque_app: TestApp) -> None:
        handle = shop.passes_on.enqueue("cat.png")
        assert tuque_app.run_until_idle() == 2
        assert handle.result() == tuque_app.jobs(resize)[0].id

    def test_the_same_seed_gives_the_same_ids_and_waits(self) -> None:
        def run(seed: int) -> list[object]:
            smtp.down()
            with TestApp(seed) as tuque_app:
                send.enqueue("ann", "x")
                tuque_app.run_until_idle()
                found = tuque_app.jobs()[0]
                started = tuque_app.client.start(
                    tuque_app.client.addjob("q", "x", attempts=3), worker="w"
                )
                app = App()

                @app.task(name="later", retry_s=30)
                def later() -> None:
                    raise RetryLater

                later.enqueue()
                tuque_app.run_until_idle()
                return [found.id, found.due_s, started, tuque_app.jobs(later)[0].due_s]

        assert run(1) == run(1)
        assert run(1)[0] != run(2)[0]
        assert run(1)[1] != run(2)[1]
        assert run(1)[3] != run(2)[3]

    def test_afterwards_apps_have_their_broker_again(self) -> None:
        with TestApp(), TestApp(1):
            assert "in-process" in repr(shop.app.client)
        assert "broker.example.org" in repr(shop.app.client)

    def test_a_tube(self, tuque_app: TestApp) -> None:
        tuque_app.client.tube("line").create("fifo")
        handle = resize.options(queue="line", keep_s=0).enqueue("cat.png")
        assert tuque_app.run_until_idle() == 1
        assert shop.did == ["cat.png 1"]
        assert tuque_app.jobs()[0].id == handle.id

    def test_a_job_with_copies_on_other_nodes(self, tuque_app: TestApp) -> None:
        resize.options(replicate=3, key="x").enqueue("cat.png")
        assert tuque_app.run_until_idle() == 1

    def test_other_threads(self, tuque_app: TestApp) -> None:
        threads = [threading.Thread(target=resize.enqueue, args=(f"{at}",)) for at in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert tuque_app.run_until_idle() == 8

    def test_not_from_within_a_task(self, tuque_app: TestApp) -> None:
        app = App()

        @app.task(attempts=1, keep_s=60)
        def runs() -> None:
            tuque_app.run_until_idle()

        handle = runs.enqueue()
        tuque_app.run_until_idle()
        with pytest.raises(JobFailed, match="a task is running"):
            handle.result()

    def test_a_wait_for_jobs_takes_time_of_the_test(self, tuque_app: TestApp) -> None:
        before = tuque_app.now
        tuque_app.client.addjob("q", "x", delay=3, headers={"tenant": "a", "tuque-task": "x"})
        assert tuque_app.jobs()[0].headers == {"tenant": "a"}
        assert tuque_app.client.getjob("q", timeout_ms=2000) == []
        assert len(tuque_app.client.getjob("q", timeout_ms=2000)) == 1
        assert 3 <= (tuque_app.now - before).total_seconds() <= 3.016  # timers may be so late


def test_a_job_without_a_broker() -> None:
    with job(attempt=2, headers={"tenant": "a"}, queue="mail") as found:
        assert resize("cat.png").width == 100
        assert shop.did[-1] == "cat.png 2"
        assert current_job() is found
        assert (found.headers, found.queue, found.starts) == ({"tenant": "a"}, "mail", 2)
        found.progress(1)
        found.check()
    with job(time_left=30, cancelled=True) as found:
        assert 29 < (found.time_left or 0) <= 30
        with pytest.raises(Cancelled):
            found.check()
    with pytest.raises(LookupError, match=r"tuque\.testing\.job\(\) in tests"):
        current_job()


def test_hooks_and_middleware_of_an_app_run(tuque_app: TestApp) -> None:
    app = App()
    told: list[str] = []

    @app.on_enqueue
    def out(call: Outgoing) -> None:
        call.headers["trace"] = "t"

    @app.middleware
    @contextmanager
    def span(job: Job) -> Iterator[None]:
        told.append(f"span {job.headers['trace']}")
        yield

    @app.on_retry
    async def again(job: Job, failure: Failure) -> None:
        told.append(f"again {failure.delay_s}")

    @app.on_dead
    def dies(job: Job, failure: Failure) -> None:
        told.append(f"dead {failure.queue}")

    @app.task(attempts=2, backoff=Backoff(3, 3, 0))
    def fails() -> None:
        raise ValueError

    fails.enqueue_many([fails.call()])
    tuque_app.run_until_idle()
    tuque_app.advance(3)
    tuque_app.run_until_idle()
    assert told == ["span t", "again 3.0", "span t", "dead default.dead"]
