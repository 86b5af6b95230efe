"""A task that ends the process: its neighbours are not blamed, and it is not tried for ever."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import e2e_tasks as tasks
import pytest
from worker_lab import Did, Program, StartWorker

from lab import RealServer
from tuque import Client
from tuque.errors import JobFailed, NoResult
from tuque.worker.app.codec import decode
from until import until


@pytest.fixture(autouse=True)
def _app_talks_to_the_node(node: RealServer) -> None:
    tasks.app.use(node.url)


def is_empty(client: Client, queue: str = "q") -> bool:
    return next(iter(client.jscan(queue=queue)), None) is None


def until_held(client: Client, worker: Program, text: str) -> None:
    """Until the worker has all jobs of q; `text`: how many run and wait, as it says itself."""
    until(lambda: client.qlen("q") == 0)

    asked = 0.0

    def says_so() -> bool:
        nonlocal asked
        if time.monotonic() - asked > 0.25:  # the stacks of all threads are much to say
            asked = time.monotonic()
            worker.signal(signal.SIGUSR1)
        return text in worker.text

    until(says_so)


@pytest.mark.parametrize("pool", ["thread", pytest.param("async", marks=pytest.mark.slow)])
def test_neighbours_of_a_job_that_ends_the_process_are_not_counted(
    pool: str, client: Client, start_worker: StartWorker, did: Did, tmp_path: Path
) -> None:
    neighbours = [f"neighbour {number}" for number in range(3)]
    waiting = [f"waiting {number}" for number in range(3)]
    for name in neighbours:
        tasks.may_run_once_more.enqueue(name, "go")
    tasks.ends_its_process.enqueue("bad", "crash")
    worker = start_worker("--pool", pool, "-c", "4", "--prefetch", "4")
    until(lambda: len(did()) == 4)
    for name in waiting:
        tasks.may_run_once_more.enqueue(name, "go")
    until_held(client, worker, "4 run, 3 wait")
    (tmp_path / "crash").touch()
    worker.says("the worker process left with exit code 7; it held 7 jobs")
    worker.says("4 jobs ran when a process left with exit code 7: they run again one at a time")
    (tmp_path / "go").touch()
    (dead,) = client.getjob("q.dead", timeout_ms=60_000)
    until(lambda: is_empty(client))
    shown = client.dead_show(dead)
    assert (shown.attempts, shown.cause) == (2, "crashed"), "U2.13"
    assert shown.reason == "its process left with exit code 7"
    begun = Counter(line.rsplit(" ", 1)[0] for line in did() if line.startswith("begin"))
    assert all(f"end {name}" in did() for name in neighbours + waiting)
    assert all(line.endswith(" 1") for line in did() if line.startswith("begin neighbour"))
    assert client.getjob("q.dead", nohang=True) == []
    assert begun["begin bad"] <= 4  # beside others, alone, and twice more at its own attempts
    worker.signal(signal.SIGTERM)
    worker.ends(0)


def test_the_last_suspect_runs_alone_as_well(
    client: Client, start_worker: StartWorker, did: Did, tmp_path: Path
) -> None:
    """The job that ended the process is found by its second run, whatever waits beside it."""
    tasks.ends_its_process.enqueue("bad", "crash")
    tasks.may_run_once_more.enqueue("neighbour", "go")
    worker = start_worker("-c", "2", "--prefetch", "8")
    until(lambda: len(did()) == 2)
    for number in range(4):
        tasks.may_run_once_more.enqueue(f"waiting {number}", "wait")
    until_held(client, worker, "2 run, 4 wait")
    (tmp_path / "crash").touch()
    worker.says("the worker process left with exit code 7; it held 6 jobs")
    (tmp_path / "go").touch()
    worker.says("(attempt 1): its process left with exit code 7; next try in")
    before = worker.text.split("(attempt 1): its process left")[0]
    assert before.count("they run again one at a time") == 1
    until(lambda: sum(line.startswith("begin waiting") for line in did()) == 2)  # none is apart
    (tmp_path / "wait").touch()
    assert client.getjob("q.dead", timeout_ms=60_000)
    worker.signal(signal.SIGTERM)
    worker.ends(0)


def test_a_lone_job_that_ends_the_process_is_counted(
    client: Client, start_worker: StartWorker, did: Did, tmp_path: Path
) -> None:
    (tmp_path / "crash").touch()
    tasks.ends_its_process.enqueue("bad", "crash")
    worker = start_worker("-c", "1")
    assert client.getjob("q.dead", timeout_ms=60_000)
    assert did() == ["begin bad 1", "begin bad 2"]
    worker.says("(attempt 1): its process left with exit code 7; next try in")


def test_the_process_may_be_killed_from_outside(
    client: Client, start_worker: StartWorker, did: Did, tmp_path: Path
) -> None:
    for name in "ab":
        tasks.may_run_once_more.enqueue(name, "go")
    worker = start_worker("-c", "2")
    until(lambda: len(did()) == 2)
    (child,) = children_of(worker.process.pid)
    os.kill(child, signal.SIGKILL)
    worker.says("the worker process was ended by SIGKILL; it held 2 jobs")
    (tmp_path / "go").touch()
    until(lambda: is_empty(client))
    assert client.qlen("q.dead") == 0
    assert Counter(did()) == {"begin a 1": 2, "begin b 1": 2, "end a": 1, "end b": 1}


@pytest.mark.slow  # its short sibling is the next one
def test_a_job_that_ends_its_process_again_and_again_holds_up_no_neighbour(
    client: Client, start_worker: StartWorker, did: Did
) -> None:
    tasks.ends_every_process.enqueue(0)
    for number in range(50):
        tasks.beside_poison.enqueue(number)
    worker = start_worker("-Q", "poison", "-c", "2")
    names = {f"beside {number}" for number in range(50)}
    until(lambda: names <= set(did()))
    until(lambda: did().count("poison 0") > 5)
    assert worker.text.count("the worker process left with exit code 7") == 1


@pytest.mark.parametrize(
    ("kind", "attempts"), [("queue", 0), ("tasks", 0), ("tasks", 3), ("fifottl", 0)]
)
def test_a_job_that_ends_its_process_dies_at_its_limit(
    kind: str, attempts: int, client: Client, start_worker: StartWorker, did: Did, tmp_path: Path
) -> None:
    """U2.6 For jobs without ATTEMPTS the worker counts the attempts: deliveries that came back,
    runs that failed, and crashes.
    """
    if kind != "queue":
        client.tube("q").create(kind)
    (tmp_path / "go").touch()
    task, words = tasks.ends_its_process, {"attempts": attempts} if attempts else {}
    options = task.options(attempts=1)._options if attempts else task.defaults
    id = client.addjob("q", task.body(options, ("x", "go"), {}), **words)
    start_worker("-c", "1").says("no more tries, it goes to")
    assert did() == [f"begin x {number + 1}" for number in range(attempts or 2)]
    if kind == "fifottl":
        until(lambda: client.tube("q").info().buried == 1)
    else:
        until(lambda: client.result(id).state == "dead")
        letter = client.dead_show(id)
        assert (letter.cause, letter.attempts) == ("crashed", attempts or 2)


@pytest.mark.parametrize(
    "pool, concurrency",
    [
        ("thread", 4),
        pytest.param("async", 4, marks=pytest.mark.slow),
        pytest.param("thread", 1, marks=pytest.mark.slow),
    ],
)
def test_jobs_that_end_their_process_starve_no_queue(
    pool: str, concurrency: int, client: Client, start_worker: StartWorker, did: Did
) -> None:
    """The first queue has more of them than there are places, at all times, and has priority."""
    for number in range(3 * concurrency):
        tasks.ends_every_process.enqueue(number)
    for number in range(20):
        tasks.in_the_last_queue.enqueue(f"short {number}", 0.01)
    tasks.in_the_last_queue.enqueue("long", 1.0)
    words = ("-Q", "poison,z", "--pool", pool, "-c", str(concurrency), "--prefetch", "2")
    worker = start_worker(*words, "--grace", "1")
    until(lambda: "end long" in did())
    until(lambda: is_empty(client, "z"))
    assert client.qlen("z.dead") == 0
    assert did().count("begin long") <= 2
    crash = "the worker process left with exit code 7"
    before = worker.text.count(crash)
    assert 1 <= before <= 2  # the first one, and one for what had begun when it was known

    (child,) = children_of(worker.process.pid)
    os.kill(child, signal.SIGKILL)  # the next process knows what this one has learned
    worker.says("the worker process was ended by SIGKILL")
    tries = sum(line.startswith("poison") for line in did())
    tasks.in_the_last_queue.enqueue("after", 0.01)
    until(lambda: is_empty(client, "z") and "end after" in did())
    until(lambda: sum(line.startswith("poison") for line in did()) > tries + 2)
    assert worker.text.count(crash) == before
    worker.signal(signal.SIGTERM)
    worker.ends(0)


def test_a_worker_process_dies_with_its_parent(start_worker: StartWorker) -> None:
    worker = start_worker()
    worker.says("worker ready")
    (child,) = children_of(worker.process.pid)
    worker.kill()
    until(lambda: not is_alive(child))


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def reasons(client: Client) -> dict[str, str]:
    """Why each job died, by the first argument of its call."""
    shown = [client.dead_show(row.id) for row in client.dead_letters("q.dead")]
    return {decode(letter.body).args[0]: letter.reason for letter in shown}


def test_a_body_that_is_no_call_is_a_dead_letter_under_its_id(
    client: Client, start_worker: StartWorker
) -> None:
    """U2.2 `Reject`, exceptions in `give_up_on` and a body that is no call are FAIL FINAL"""
    id = client.addjob("q", b"no call")
    start_worker().says("is dead, in q.dead")
    (row,) = client.dead_letters("q.dead")
    letter = client.dead_show(row.id)
    assert (row.id, letter.origin, letter.body, letter.cause) == (id, "q", b"no call", "failed")
    assert letter.reason and client.result(id).state == "dead"


@pytest.mark.usefixtures("own_node")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_next_process_says_how_runs_ended(
    node: RealServer,
    client: Client,
    start_worker: StartWorker,
    did: Did,
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    """U2.14 How a run ended is kept outside of the worker's process until the broker knows it.
    If the process ends before, the next one reports it: done, failed with the reason, or put
    off. The traceback is lost, and so is a result of more than 512 bytes.
    """
    large = "x" * 600
    fails, later, small, lost = (
        tasks.ends_so.enqueue(how, "go") for how in ("fails", "later", "small", large)
    )
    once, result = (tasks.ends_so_once.enqueue(how, "go") for how in ("fails", "small"))
    worker = start_worker("-c", "6")
    until(lambda: len(did()) == 6)
    node.kill()
    (tmp_path / "go").touch()
    until(lambda: has_none_running(worker))
    (child,) = children_of(worker.process.pid)
    if number == signal.SIGTERM:  # the one after it only says what is left
        os.kill(worker.process.pid, signal.SIGSTOP)
        worker.signal(number)
    os.kill(child, signal.SIGKILL)
    node.start()
    os.kill(worker.process.pid, signal.SIGCONT)
    assert result.result(60) == small.result(60) == "small"
    with pytest.raises(NoResult, match="is done and has no result: its process was ended by"):
        lost.result(60)
    worker.says(f"the result of job {lost} (e2e_tasks.ends_so) is lost: its process was ended by")
    until(lambda: once.status().state == "dead")
    letter = client.dead_show(once)
    told = (letter.queue, letter.cause, letter.reason)
    assert told == ("graves", "failed", "the only try (retry_s=0): ValueError: not this time")
    assert letter.detail == b"(lost with its process; the log of the worker may have it)"
    until(lambda: fails.status().state == later.status().state == "back-off")
    failed, put_off = client.result(fails), client.result(later)
    assert (failed.cause, failed.reason) == ("failed", "ValueError: not this time")
    assert (failed.attempt, put_off.reason) == (1, "")
    if number == signal.SIGTERM:
        worker.ends(0)


def has_none_running(worker: Program) -> bool:
    """Whether no task runs, as the worker itself says."""
    worker.signal(signal.SIGUSR1)
    time.sleep(0.05)  # the stacks of all threads are much to say
    return "0 run, 0 wait" in worker.text


class TestOnce:
    """A job with retry_s=0 is delivered once: what it may come to is a dead letter, not silence."""

    def test_a_failure_is_a_dead_letter_and_no_next_try_is_promised(
        self, client: Client, start_worker: StartWorker, did: Did
    ) -> None:
        """U2.5 A job with RETRY 0 ends with DONE or FAIL FINAL, also if its worker stops before it
        ran: the dead letter has its id, the cause and the traceback.
        """
        handle = tasks.only_once.enqueue("x")
        worker = start_worker()
        (dead,) = client.getjob("q.dead", timeout_ms=60_000)
        assert dead.id == handle.id
        letter = client.dead_show(dead.id)
        assert letter.reason == "the only try (retry_s=0): ValueError: not this time"
        assert (letter.cause, letter.attempts, letter.body) == ("failed", 1, dead.body)
        assert b"ValueError: not this time" in letter.detail and b"Traceback" in letter.detail
        with pytest.raises(JobFailed, match=r"after 1 attempt \(failed\): the only try"):
            tasks.app.handle(handle.id).result(5)
        worker.says("no more tries, it goes to q.dead")
        assert "next try" not in worker.text
        assert did() == ["begin x"]

    def test_the_letter_in_a_queue_of_its_own_has_its_id(
        self, client: Client, start_worker: StartWorker
    ) -> None:
        """U2.5 A job with RETRY 0 ends with DONE or FAIL FINAL, also if its worker stops before it
        ran: the dead letter has its id, the cause and the traceback.
        """
        handle = tasks.only_once.options(dead="graves").enqueue("x")
        start_worker()
        (dead,) = client.getjob("graves", timeout_ms=60_000)
        letter = client.dead_show(dead.id)
        assert (dead.id, letter.cause) == (handle.id, "failed") and b"Traceback" in letter.detail

    def test_what_a_stopping_worker_has_not_run_is_a_dead_letter(
        self, client: Client, start_worker: StartWorker, did: Did
    ) -> None:
        for name in "ab":
            tasks.only_once_until_file.enqueue(name, "never")
        worker = start_worker("-c", "1", "--prefetch", "1", "--grace", "0.4")
        until(lambda: did() and client.qlen("q") == 0)
        worker.signal(signal.SIGTERM)
        worker.ends(0)
        assert reasons(client) == {
            "a": "the only try (retry_s=0): the worker stopped while it ran",
            "b": "the only try (retry_s=0): the worker stopped before it ran",
        }

    def test_a_worker_told_to_stop_between_two_processes_leaves_nothing_unsaid(
        self, client: Client, start_worker: StartWorker, did: Did, tmp_path: Path
    ) -> None:
        for name in "ab":
            tasks.only_once_until_file.enqueue(name, "never")
        tasks.until_file.enqueue("c", "never")
        worker = start_worker("-c", "1", "--prefetch", "2")
        until(lambda: did() and client.qlen("q") == 0)
        (child,) = children_of(worker.process.pid)
        os.kill(worker.process.pid, signal.SIGSTOP)
        os.kill(child, signal.SIGKILL)
        worker.signal(signal.SIGTERM)
        os.kill(worker.process.pid, signal.SIGCONT)
        worker.ends(0)
        assert client.qlen("q") == 1
        assert reasons(client) == {
            "a": "the only try (retry_s=0): its process was ended by SIGKILL",
            "b": "the only try (retry_s=0): the worker stopped before it ran",
        }
        assert did() == ["begin a"]

    def test_a_worker_told_to_stop_while_the_next_process_loads_leaves_nothing_unsaid(
        self, client: Client, start_worker: StartWorker, did: Did, tmp_path: Path
    ) -> None:
        """U2.14 If a stop signal comes before the new process can receive signals, the worker
        starts one last process, which runs no task: it reports how the runs ended, and gives
        back the other jobs.
        """
        for name in "ab":
            tasks.only_once_until_file.enqueue(name, "never")
        tasks.until_file.enqueue("c", "never")
        worker = start_worker("-c", "1", "--prefetch", "2", app="slow_start:app")
        until(lambda: did() and client.qlen("q") == 0)
        (tmp_path / "hold").touch()
        (child,) = children_of(worker.process.pid)
        os.kill(child, signal.SIGKILL)
        until((tmp_path / "loading").exists)
        (child,) = children_of(worker.process.pid)
        worker.signal(signal.SIGTERM)
        until(lambda: child not in children_of(worker.process.pid))
        (tmp_path / "hold").unlink()
        worker.ends(0)
        assert client.qlen("q") == 1
        assert reasons(client) == {
            "a": "the only try (retry_s=0): its process was ended by SIGKILL",
            "b": "the only try (retry_s=0): the worker stopped before it ran",
        }

    @pytest.mark.parametrize("pool", ["thread", "process"])
    def test_a_job_whose_process_died_is_a_dead_letter(
        self, pool: str, client: Client, start_worker: StartWorker, did: Did
    ) -> None:
        tasks.only_once_until_file.enqueue("x", "never")
        worker = start_worker("-c", "1", "--pool", pool)
        until(did)
        (child,) = children_of(worker.process.pid)
        os.kill(child, signal.SIGKILL)
        (dead,) = client.getjob("q.dead", timeout_ms=60_000)
        letter = client.dead_show(dead.id)
        assert letter.reason == "the only try (retry_s=0): its process was ended by SIGKILL"
        assert letter.cause == "crashed", "U2.13"
        assert did() == ["begin x"]
