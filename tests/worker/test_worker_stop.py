"""Stopping and outages: nothing is left half done, and no person is needed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import e2e_tasks as tasks
import pytest
from noting import Noting
from test_worker_crashes import children_of
from worker_lab import Did, Program, StartWorker

from forked import EXEC
from lab import RealServer
from tuque import Client
from until import until
from world import World

AS_SHIPPED = {EXEC: "1"}
POOLS = ["thread", "process", pytest.param("async", marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def _app_talks_to_the_node(node: RealServer) -> None:
    tasks.app.use(node.url)


def is_empty(client: Client) -> bool:
    return next(iter(client.jscan()), None) is None


def busy_for_ever(pool: str, grace_s: str, start_worker: StartWorker, did: Did) -> Program:
    """A worker that runs a job which does not end."""
    if pool == "async":
        tasks.for_ever.enqueue("x")
    else:
        tasks.until_file.enqueue("x", "never")
    worker = start_worker("--pool", pool, "--grace", grace_s, "-c", "1")
    until(did)
    return worker


def blocked(client: Client) -> object:
    """How many clients wait for a job."""
    return (client.qstat("q") or {"blocked": 0})["blocked"]


@pytest.mark.parametrize(
    ("pool", "number"),
    [
        ("thread", signal.SIGTERM),
        ("process", signal.SIGINT),
        pytest.param("thread", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("process", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_stop_finishes_what_runs_and_gives_back_what_waits(
    number: signal.Signals,
    pool: str,
    client: Client,
    start_worker: StartWorker,
    did: Did,
    tmp_path: Path,
) -> None:
    for at in range(4):
        tasks.until_file.enqueue(str(at), "go")
    worker = start_worker("--pool", pool, "-c", "1", "--prefetch", "2")
    until(lambda: did() == ["begin 0"] and client.qlen("q") == 1)
    worker.signal(number)
    until(lambda: client.qlen("q") == 3)
    assert worker.process.poll() is None
    (tmp_path / "go").touch()
    worker.ends(0)
    assert did() == ["begin 0", "end 0"]
    assert "stopped: 1 done, 2 given back" in worker.text


@pytest.mark.parametrize("pool", POOLS)
def test_after_the_grace_the_rest_goes_back(
    pool: str, client: Client, start_worker: StartWorker, did: Did
) -> None:
    worker = busy_for_ever(pool, "0.4", start_worker, did)
    began = time.monotonic()
    worker.signal(signal.SIGTERM)
    worker.ends(0)
    assert time.monotonic() - began < 30  # the grace and slow machines, but no retry time
    # its RELEASE may still lie in the node's socket
    (job,) = client.getjob("q", timeout_ms=20_000, withcounters=True, with_meta=True)
    assert (job.nacks, job.attempt) == (0, 1)


@pytest.mark.parametrize("pool", POOLS)
def test_a_second_signal_leaves_at_once(
    pool: str, client: Client, start_worker: StartWorker, did: Did
) -> None:
    worker = busy_for_ever(pool, "3600", start_worker, did)
    worker.signal(signal.SIGTERM)
    worker.says("stopping")
    worker.signal(signal.SIGTERM)
    worker.ends(0)
    # its RELEASE may still lie in the node's socket
    (job,) = client.getjob("q", timeout_ms=20_000, withcounters=True, with_meta=True)
    assert (job.nacks, job.attempt) == (0, 1)


def test_quiet_fetches_no_more_but_stays(
    client: Client, start_worker: StartWorker, did: Did
) -> None:
    worker = start_worker()
    worker.says("worker ready")
    until(lambda: blocked(client))
    worker.signal(signal.SIGTSTP)
    worker.says("quiet")
    # the GETJOB of before may take one more; what comes after it is left alone
    until(lambda: not blocked(client))
    tasks.record.enqueue("x")
    worker.signal(signal.SIGUSR1)
    worker.says("0 run, 0 wait")
    assert client.qlen("q") == 1
    worker.signal(signal.SIGTERM)
    worker.ends(0)
    assert did() == []


def test_a_broker_that_comes_back_has_all_jobs(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    noting = Noting()
    world.at_work(noting.app, concurrency=2, prefetch=20)
    handles = [noting.lasts.options(keep_s=60).enqueue(f"{at}", 0.05) for at in range(60)]
    world.until(lambda: len(noting.did) >= 24)
    world.kill(0)
    world.until(lambda: "broker lost" in caplog.text)
    world.start(0)
    world.until(lambda: "broker is back" in caplog.text)
    world.until(lambda: {f"end {at}" for at in range(60)} <= set(noting.did))
    world.until(lambda: all(handle.status().state == "done" for handle in handles))


@pytest.mark.slow
@pytest.mark.usefixtures("own_node")
@pytest.mark.parametrize("pool", ["async", "thread"])
def test_a_killed_broker_costs_no_job(
    pool: str, node: RealServer, client: Client, start_worker: StartWorker, did: Did
) -> None:
    added = [tasks.takes_a_moment.enqueue(number) for number in range(60)]
    assert len(set(added)) == 60
    worker = start_worker("--pool", pool, "-c", "2", "--prefetch", "20")
    until(lambda: len(did()) >= 12)
    node.kill()
    worker.says("broker lost")
    node.start()
    worker.says("broker is back")
    until(lambda: is_empty(client))
    assert set(did()) == {str(number) for number in range(60)}
    worker.signal(signal.SIGTERM)
    worker.ends(0)


def test_a_worker_waits_for_a_broker_that_is_not_there_yet(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    noting = Noting()
    shift = world.at_work(noting.app)
    noting.record.enqueue("x")
    world.kill(0)
    world.until(lambda: "broker lost" in caplog.text)
    world.pass_ms(60_000)
    assert noting.did == []
    world.start(0)
    world.until(lambda: noting.did == ["x"])
    assert "broker is back" in caplog.text
    shift.stop()
    assert shift.ends()


def test_a_worker_without_a_broker_stops_when_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    shift = world.at_work(Noting().app, grace_s=1.0)
    world.kill(0)
    world.until(lambda: "broker lost" in caplog.text)
    began_ms = world.now_ms
    shift.stop()
    assert shift.ends()
    assert world.now_ms - began_ms <= 3_500  # the grace, and what it would say at the end


def test_a_killed_worker_costs_no_job(world: World) -> None:
    noting = Noting()
    first = world.at_work(noting.app, concurrency=2, prefetch=10)
    handles = [noting.lasts.options(keep_s=60).enqueue(f"{at}", 0.05) for at in range(40)]
    world.until(lambda: noting.did)
    first.kill()
    world.at_work(noting.app, concurrency=2, prefetch=10)
    world.until(lambda: {f"end {at}" for at in range(40)} <= set(noting.did))
    world.until(lambda: all(handle.status().state == "done" for handle in handles))


@pytest.mark.usefixtures("own_node")
def test_a_refused_start_gives_the_job_back(
    node: RealServer, client: Client, start_worker: StartWorker
) -> None:
    """U2.12 If the broker refuses START as a whole (no right, no memory), the jobs are given back
    with RELEASE DELAY 5 and a line in the log each. Their places are free at once.
    """
    client.execute("ACL", "SETUSER", "root", "on", ">longpassword", "+@all", "~*")
    client.execute("ACL", "SETUSER", "mail", "on", ">longpassword", "+@all", "-start", "~*")
    handles = [tasks.record.enqueue(str(at)) for at in range(3)]
    worker = start_worker("-c", "1", "--url", node.url.replace("://", "://mail:longpassword@"))
    given_back = "does not begin and is given back: NOPERM"
    until(lambda: worker.text.count(given_back) >= 3)
    assert "broker" not in worker.text.partition("connected to node")[2]
    until(lambda: all(one.status().state == "back-off" for one in handles))
    told_at = time.monotonic()
    worker.signal(signal.SIGTERM)
    worker.ends(0)
    assert time.monotonic() - told_at < 15, "nothing runs: no grace of 25 s"
    assert "the broker has no report of" not in worker.text


def test_what_is_given_back_does_not_go_to_the_worker_that_leaves(world: World) -> None:
    """U2.22 A worker that stops gives back what ran when its last GETJOB has ended, also after a
    second signal
    """
    noting = Noting()
    shift = world.at_work(noting.app, concurrency=1, prefetch=8, grace_s=30.0)
    handle = noting.until_go.enqueue("x")
    world.until(lambda: noting.did == ["begin x"])
    queue = world.node(0).core.queues[b"q"]
    world.until(lambda: len(queue.waiters) == 1)  # it fetches ahead
    shift.stop()
    shift.stop()
    assert shift.ends()
    # the broker has ended it, and not the worker
    assert shift.worker._fetcher._dry == set(noting.app.queues)
    assert handle.status().state == "waiting" and world.qlen() == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_signal_while_it_starts(
    start_worker: StartWorker, tmp_path: Path, pool: str, number: signal.Signals
) -> None:
    """U4.11 SIGINT while a worker starts ends it as SIGTERM does: at once, without a line"""
    (tmp_path / "hold").touch()
    worker = start_worker("--pool", pool, "-c", "1", app="slow_start:app", **AS_SHIPPED)
    until((tmp_path / "loading").exists)
    worker.signal(number)
    code = worker.process.wait(30)
    assert code in (-number, 128 + number)
    assert "Traceback" not in worker.text and "Abort" not in worker.text


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_other_signals_while_it_starts(
    start_worker: StartWorker, tmp_path: Path, pool: str
) -> None:
    """U4.12 TSTP, USR1 and HUP that come while a worker, or a child process, loads its app wait
    until it has handlers.
    """
    (tmp_path / "hold").touch()
    worker = start_worker("--pool", pool, "-c", "1", app="slow_start:app", **AS_SHIPPED)
    until((tmp_path / "loading").exists)
    for number in (signal.SIGHUP, signal.SIGTSTP, signal.SIGUSR1):
        worker.signal(number)
    (tmp_path / "hold").unlink()
    for words in ("log files are opened anew", "quiet: no more jobs", "0 run, 0 wait"):
        worker.says(words)
    worker.signal(signal.SIGTERM)
    worker.ends(0)


IMPORTS = """
import os, sys
from signal import SIGHUP, SIGTSTP, SIGUSR1

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in ("click", "tuque.worker.main"):
            for number in (SIGHUP, SIGUSR1, SIGTSTP):
                os.kill(os.getpid(), number)

sys.argv = ["tuque", "worker", "--help"]
sys.meta_path.insert(0, Finder())
from tuque.main import main
main()
"""


def test_other_signals_while_it_loads_its_modules() -> None:
    """U4.12 So do those that come while it loads its own modules"""
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert b"Run the tasks of an app" in done.stdout


def test_a_hang_up_while_a_child_process_starts(start_worker: StartWorker) -> None:
    """U4.12, of a child process."""
    worker = start_worker("--pool", "process", "-c", "1")
    until(lambda: children_of(worker.process.pid))
    worker.signal(signal.SIGHUP)
    worker.says("log files are opened anew")
    worker.says("worker ready")
    worker.signal(signal.SIGTERM)
    worker.ends(0)
