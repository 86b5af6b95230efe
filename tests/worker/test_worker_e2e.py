"""The worker program against a real node: work, failures, limits, priorities."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter
from pathlib import Path

import e2e_tasks as tasks
import pytest
from click.testing import CliRunner, Result
from noting import Noting, said
from worker_lab import HERE, Did, Program, StartWorker

from lab import RealServer
from tuque import Client
from tuque.worker import App
from tuque.worker.main import worker as worker_command
from until import until
from world import World


@pytest.fixture(autouse=True)
def _app_talks_to_the_node(node: RealServer) -> None:
    tasks.app.use(node.url)


def is_empty(client: Client) -> bool:
    """No job is known any more: everything was acked."""
    return next(iter(client.jscan()), None) is None


@pytest.mark.parametrize("pool", ["thread", "process", "async"])
def test_every_pool_does_the_work(
    pool: str, client: Client, start_worker: StartWorker, did: Did
) -> None:
    for number in range(20):
        tasks.record.enqueue(f"sync {number}")
        tasks.record_async.enqueue(f"async {number}")
    worker = start_worker("--pool", pool, "-c", "2", "--max-jobs", "40")
    worker.ends(0)
    assert Counter(did()) == Counter(
        f"{kind} {number}" for kind in ("sync", "async") for number in range(20)
    )
    assert is_empty(client)
    assert "40 done" in worker.text


def test_asyncio_programs_enqueue_too_also_from_within_a_task(
    client: Client, start_worker: StartWorker, did: Did
) -> None:
    async def produce() -> str:
        try:
            return await tasks.passes_on.enqueue_async("x")
        finally:
            await tasks.app.aclose()

    assert asyncio.run(produce()).startswith("D-")
    start_worker("--pool", "async")
    until(lambda: len(did()) == 2)
    assert did() == ["pass on x", "x passed on"]


def test_a_job_with_a_key_is_enqueued_once(client: Client) -> None:
    async def again() -> str:
        try:
            return await tasks.record.options(key="order 7").enqueue_async("x")
        finally:
            await tasks.app.aclose()

    first = tasks.record.options(key="order 7", key_ttl_s=60).enqueue("x")
    assert tasks.record.options(key="order 7").enqueue("x") == first == asyncio.run(again())
    assert tasks.record.options(key="order 8").enqueue("x") != first
    assert first.is_new is True
    assert tasks.record.options(key="order 7").enqueue("x").is_new is False
    prepared = tasks.record.options(key="order 9")
    handles = tasks.record.enqueue_many(
        [prepared.call("x"), tasks.record.call("y"), prepared.call("x")]
    )
    assert [handle.is_new for handle in handles] == [True, True, False]
    assert tasks.record.enqueue("y").is_new is True
    assert tasks.app.handle(first.id).is_new is None
    assert client.qlen("q") == 5
    with pytest.raises(ValueError, match="key_ttl_s needs a key"):
        tasks.record.options(key_ttl_s=60)
    for name in ("queue", "key", "dead", "utube"):
        with pytest.raises(ValueError, match=f"{name} is empty: give a name, or leave it out"):
            tasks.record.options(**{name: ""})


def test_the_log_names_the_node_and_each_job_when_asked(
    node: RealServer, start_worker: StartWorker
) -> None:
    tasks.record.enqueue("x")
    worker = start_worker("-v", "--max-jobs", "1")
    worker.ends(0)
    assert f"connected to node 127.0.0.1:{node.port}" in worker.text
    assert f"worker ready: broker {node.url}" in worker.text
    assert re.search(r"\(e2e_tasks\.record\) done in \d+\.\d{3} s", worker.text)
    assert worker.text.rstrip().endswith("stopped: 1 done")


def test_an_app_may_be_given_a_client(client: Client, start_worker: StartWorker, did: Did) -> None:
    mine = App(client)
    mine.task(queue="q", name=tasks.record.name)(tasks.record.function).enqueue("x")
    mine.close()
    assert client.qlen("q") == 1
    start_worker("--max-jobs", "1").ends(0)
    assert did() == ["x"]


def test_a_failed_job_comes_back_until_it_succeeds(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    noting = Noting()
    world.at_work(noting.app)
    noting.third_time_lucky.enqueue("x")
    world.until(lambda: is_empty(world.client()))
    assert noting.did == ["x 1", "x 2", "x 3"]
    assert "ValueError: not on attempt 2; next try in" in caplog.text


def test_at_the_delivery_limit_a_job_goes_where_its_task_says(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    noting, client = Noting(), world.client()
    world.at_work(noting.app)
    noting.never.enqueue("x")
    (dead,) = client.getjob("graves", timeout_ms=60_000)
    assert noting.did == ["x 1", "x 2", "x 3"]
    assert b'"args":["x"]' in dead.body
    world.until(lambda: "no, never; no more tries, it goes to graves" in said(caplog))
    shown = client.dead_show(dead)
    assert (shown.reason, shown.origin, shown.attempts) == ("ValueError: no, never", "q", 3)
    assert b"no, never" in shown.detail
    assert said(caplog).count("Traceback") == 1


def test_a_rejected_job_is_not_tried_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    noting = Noting()
    world.at_work(noting.app)
    noting.rejected.enqueue("x")
    assert world.client().getjob("q.dead", timeout_ms=60_000)
    assert noting.did == ["x"]
    world.until(lambda: "rejected: no such thing" in caplog.text)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\x80\x04no pickle", "the body is not a task call"),
        (
            b'{"task":"nobody.knows","unknown_keep_s":0}',
            "unknown task 'nobody.knows'",
        ),
        (
            b'{"task":"record","args":[1],"unknown_keep_s":0}',
            "bad arguments: argument text: Expected `str`",
        ),
        (
            b'{"task":"record","unknown_keep_s":0}',
            "bad arguments: missing a required argument",
        ),
    ],
)
def test_what_cannot_be_run_is_a_dead_letter_and_no_crash(
    body: bytes, reason: str, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    noting, client = Noting(), world.client()
    world.at_work(noting.app)
    client.addjob("q", body)
    noting.record.enqueue("after it")
    (dead,) = client.getjob("q.dead", timeout_ms=60_000)
    assert dead.body.startswith(body[:-1])
    world.until(lambda: reason in caplog.text)
    world.until(lambda: noting.did == ["after it"])


def test_a_job_delivered_too_often_is_not_run_at_all(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a job without ATTEMPTS the worker counts deliveries."""
    noting, client = Noting(), world.client()
    options = noting.record.options(max_deliveries=1)._options
    client.addjob("q", noting.record.body(options, ("x",), {}))
    client.nack(client.getjob("q")[0])
    world.at_work(noting.app)
    assert client.getjob("q.dead", timeout_ms=60_000)
    world.until(lambda: "delivered 1 times without success, the limit is 1" in caplog.text)
    assert noting.did == []


def test_jobs_longer_than_their_retry_time_run_once(world: World) -> None:
    noting, client = Noting(), world.client()
    world.at_work(noting.app)
    ids = [noting.lasts.enqueue(name, 3.6) for name in "ab"]
    world.until(lambda: world.qlen() == 0)  # both are held by the first worker, until U2.20
    world.at_work(noting.app)
    counts: set[int] = set()
    while infos := [info for info in map(client.show, ids) if info is not None]:
        counts |= {info.additional_deliveries for info in infos}
        world.pass_ms(20)
    assert noting.did == ["begin a", "begin b", "end a", "end b"]
    assert counts == {0}


def test_queues_are_served_by_priority(world: World) -> None:
    noting = Noting()
    app = world.worker(noting.app)
    for queue in ("low", "high"):
        for number in range(5):
            noting.record.options(queue=queue).enqueue(f"{queue} {number}")
    world.at_work(noting.app, queues=("high", "low"), prefetch=2)
    world.until(lambda: is_empty(app.client))
    assert noting.did == [f"{queue} {number}" for queue in ("high", "low") for number in range(5)]


def test_what_is_urgent_overtakes_what_was_fetched_before(world: World) -> None:
    noting = Noting()
    world.at_work(noting.app, queues=("high", "low"), prefetch=4)
    noting.until_go.options(queue="low").enqueue("low 0")
    world.until(lambda: noting.did)
    noting.record.options(queue="low").enqueue("low 1")
    world.until(lambda: world.qlen("low") == 0)  # it is fetched
    noting.record.options(queue="high").enqueue("high 0")
    world.until(lambda: world.qlen("high") == 0)
    noting.go.set()
    world.until(lambda: is_empty(world.client()))
    assert noting.did == ["begin low 0", "end low 0", "high 0", "low 1"]


def test_no_more_is_fetched_than_may_be_held(world: World) -> None:
    noting = Noting()
    world.at_work(noting.app, concurrency=2, prefetch=3)
    for number in range(10):
        noting.until_go.enqueue(str(number))
    world.until(lambda: len(noting.did) == 2)
    world.until(lambda: world.qlen() == 5)  # two run, three are held
    world.pass_ms(30_000)
    assert (len(noting.did), world.qlen()) == (2, 8)  # these were given back (U2.20)
    noting.go.set()
    world.until(lambda: is_empty(world.client()))


def test_a_delayed_job_comes_when_it_is_due(world: World) -> None:
    noting = Noting()
    world.at_work(noting.app)
    noting.record.enqueue("now")
    began_ms = world.now_ms
    noting.record.enqueue_in(1.5, "later")
    world.until(lambda: "later" in noting.did)
    assert 1_500 <= world.now_ms - began_ms < 1_600
    world.until(lambda: is_empty(world.client()))
    assert noting.did == ["now", "later"]


def test_a_killed_child_is_replaced_and_its_job_runs_again(
    client: Client, start_worker: StartWorker, did: Did
) -> None:
    tasks.tells_its_pid.enqueue("x")
    worker = start_worker("--pool", "process", "-c", "1")
    until(did)
    pid = int(did()[0].split()[1])
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_empty(client))
    number, other = did()[1].split()
    assert number == "2"
    assert int(other) != pid
    assert "its process was ended by SIGKILL" in worker.text


def test_a_process_over_its_time_limit_is_ended(
    client: Client, start_worker: StartWorker, did: Did
) -> None:
    tasks.over_its_limit.enqueue("x")
    worker = start_worker("--pool", "process", "-c", "1")
    assert client.getjob("q.dead", timeout_ms=60_000), worker.text
    assert did() == ["begin x", "begin x"]
    worker.says("ran longer than its time limit of 0.3 s")


def test_the_next_attempt_begins_beside_a_thread_over_its_limit(
    client: Client, start_worker: StartWorker, did: Did, tmp_path: Path
) -> None:
    """U2.10 In all cases the attempt has failed at the limit (U2.11), the next one may begin, and
    what the old run returns or raises later goes to a line in the log only.
    """
    tasks.late_at_first.enqueue("x", "go")
    worker = start_worker("-c", "2")
    until(lambda: did() == ["begin x", "begin x"])
    (tmp_path / "go").touch()
    worker.says("has ended after its time limit (timeout), which is not taken")


def without_start(*arguments: str, app_dir: Path) -> Result:
    """What a worker says that does not begin; its pool needs no process around it."""
    found = CliRunner().invoke(
        worker_command, [*arguments, "--pool", "process", "--app-dir", str(app_dir)]
    )
    assert isinstance(found.exception, SystemExit), found.exception
    return found


class TestCommandLine:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["nowhere:app"], "there is no module 'nowhere'"),
            (["e2e_tasks:nothing"], "has no tuque.worker.App named 'nothing'"),
            (["e2e_tasks:app", "-Q", " ,"], "-Q names no queue"),
            (["e2e_tasks:app", "--url", "http://x"], "a client URL starts with"),
            (["e2e_tasks:app", "-c", "0"], "Invalid value for '-c'"),
        ],
    )
    def test_a_wrong_option_is_one_clear_line(self, arguments: list[str], words: str) -> None:
        found = without_start(*arguments, app_dir=HERE)
        assert found.exit_code in (1, 2)
        assert words in found.output
        assert "Traceback" not in found.output

    @pytest.mark.parametrize(
        ("code", "words"),
        [
            ("import not_there", "No module named 'not_there'"),
            ("x = (", "SyntaxError"),
            ("def f():\n    return 1 / 0\n\nf()", "line 2, in f\n"),
        ],
    )
    def test_an_error_in_the_module_is_shown_as_its_own(
        self, code: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "wrong_tasks.py").write_text(code)
        monkeypatch.syspath_prepend(str(tmp_path))  # what it adds goes with the test
        found = without_start("wrong_tasks:app", app_dir=tmp_path)
        assert found.exit_code == 1
        assert found.output.startswith("Error: wrong_tasks:app cannot be loaded:\n")
        assert words in found.output
        assert "importlib" not in found.output and "click" not in found.output
        assert "installation" not in found.output  # that of Tuque is complete

    def test_an_error_of_the_process_of_tasks_is_shown_once(self, tmp_path: Path) -> None:
        log = tmp_path / "worker.log"
        program = Program(log, "worker", "nowhere:app", "--app-dir", str(HERE))
        program.ends(1)
        assert program.text.count("there is no module 'nowhere'") == 1
        assert "Traceback" not in program.text
