"""The worker program on tubes: as on queues, with priorities and sub-queues respected (SPEC T1)."""

from __future__ import annotations

import e2e_tasks as tasks
import pytest
from worker_lab import Did, StartWorker

from lab import RealServer
from tuque import Client
from tuque.errors import JobFailed
from tuque.worker import Limit
from until import until


@pytest.fixture(autouse=True)
def _app_talks_to_the_node(node: RealServer) -> None:
    tasks.app.use(node.url)


def test_priorities(client: Client, start_worker: StartWorker, did: Did) -> None:
    tube = client.tube("tube")
    tube.create("fifottl", pri=5)
    for pri in (9, 2, 7, 1):
        tasks.in_a_tube.options(pri=pri).enqueue(f"pri {pri}", "k")
    tasks.in_a_tube.enqueue("default", "k")
    start_worker("-c", "1", "--queues", "tube", "--max-jobs", "5").ends(0)
    begun = [line for line in did() if line.startswith("begin")]
    assert begun == [f"begin k {what}" for what in ("pri 1", "pri 2", "default", "pri 7", "pri 9")]
    assert tube.statistics()["calls"] | {"take": 5, "ack": 5} == tube.statistics()["calls"]


def test_one_job_of_a_sub_queue_at_a_time(
    client: Client, start_worker: StartWorker, did: Did
) -> None:
    tube = client.tube("tube")
    tube.create("utube")
    for number in range(6):
        for key in "ab":
            tasks.in_a_tube.options(utube=key).enqueue(str(number), key)
    start_worker("-c", "4", "--queues", "tube", "--max-jobs", "12").ends(0)
    for key in "ab":
        own = [line.split() for line in did() if line.split()[1] == key]
        assert own == [[word, key, str(n)] for n in range(6) for word in ("begin", "end")]


def test_a_limit_holds_for_all_jobs_of_a_key(start_worker: StartWorker, did: Did) -> None:
    """U1.8 A task with `unique`, `limit`, `rate` or `group` has its jobs in a tube."""
    limited = tasks.in_a_tube.options(limit=Limit(1, "key"))
    for number in range(6):
        for key in "ab":
            limited.enqueue(str(number), key)
    start_worker("-c", "4", "--queues", "tube", "--max-jobs", "12").ends(0)
    for key in "ab":
        own = [line.split() for line in did() if line.split()[1] == key]
        assert own == [[word, key, str(n)] for n in range(6) for word in ("begin", "end")]


def test_failed_jobs_of_a_tube_come_back_and_end_as_dead_letters(
    client: Client, start_worker: StartWorker, did: Did
) -> None:
    client.tube("q").create("fifottl")
    tasks.third_time_lucky.enqueue("x")
    start_worker("-c", "1")
    until(lambda: client.tube("q").statistics()["calls"]["ack"] == 1)
    assert did() == ["x 1", "x 2", "x 3"]
    assert client.tube("q").statistics()["calls"]["release"] == 2
    tasks.never.enqueue("y")
    until(lambda: client.qlen("graves") == 1)
    until(lambda: client.tube("q").info().taken == 0)


def test_the_broker_counts_the_attempts_of_a_task_with_a_policy(
    client: Client, start_worker: StartWorker, did: Did
) -> None:
    """T48.1 ADDJOB to such a tube takes ATTEMPTS, BACKOFF, DEAD, KEEP, TIMELIMIT and HEADERS
    (W1)."""
    limited = tasks.third_time_lucky.options(limit=Limit(1), headers={"tenant": "north"})
    handle = limited.enqueue("x")
    shown = client.result(handle.id)
    assert (shown.of, shown.state) == (5, "waiting")
    start_worker("-c", "2")
    until(lambda: did() == ["x 1", "x 2", "x 3"])
    until(lambda: client.qlen("q") == 0)
    never = tasks.never.options(limit=Limit(1), keep_s=60).enqueue("y")
    with pytest.raises(JobFailed, match="failed after 3 attempts: ValueError: no, never"):
        never.result(60)
    until(lambda: client.qlen("graves") == 1)
    (letter,) = client.dead_letters("graves")
    assert (letter.origin, letter.attempts, letter.cause) == ("q", 3, "failed")
    assert letter.task == tasks.never.name and letter.reason == "ValueError: no, never"
    assert client.tube("q").info().taken == 0


def test_a_task_with_a_policy_has_a_result_and_puts_itself_off(
    client: Client, start_worker: StartWorker
) -> None:
    added = tasks.adds.options(limit=Limit(1)).enqueue(1, 2)
    start_worker("-c", "2")
    assert added.result(timeout=30) == 3
    put_off = tasks.later.options(limit=Limit(1), keep_s=60).enqueue(3)
    until(lambda: client.result(put_off.id).state == "done")
    assert client.result(put_off.id).attempt == 1
