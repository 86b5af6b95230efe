"""A worker in a cluster whose tubes have their homes at different nodes, and move (SPEC T17)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import e2e_tasks as tasks
import pytest
from worker_lab import HERE, Did, Program

from lab import RealCluster, reachable
from tuque import Client
from until import until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RealCluster]:
    made = RealCluster(tmp_path / "cluster", 2)
    try:
        yield made.start()
    finally:
        made.end()


def test_one_worker_for_tubes_at_two_nodes(cluster: RealCluster, tmp_path: Path, did: Did) -> None:
    """Each job once, of a plain queue too, while one of the tubes moves to and fro."""
    urls = [f"tuque://127.0.0.1:{node.port}" for node in cluster.nodes]
    tasks.app.use(urls[0])
    with Client(urls[0]) as first, Client(urls[1], discover=False) as second:
        first.tube("here").create("fifo")
        second.tube("there").create("fifo")
        homes = [first.tube("here").home().home, second.tube("there").home().home]
        until(lambda: sorted(first.tube_list()) == ["here", "there"])
        for number in range(30):
            for queue in ("q", "here", "there"):
                tasks.record.options(queue=queue).enqueue(f"{queue} {number}")
        worker = Program(
            tmp_path / "worker.log",
            "worker",
            "e2e_tasks:app",
            "--app-dir",
            str(HERE),
            "--url",
            urls[0],
            "--queues",
            "q,here,there",
            "-c",
            "12",
            OUT=str(tmp_path),
        )
        try:
            until(lambda: len(did()) >= 90, lambda: worker.text)
            for turn in range(4):
                first.tube("here").move(homes[(turn + 1) % 2])
                for number in range(20):
                    for queue in ("here", "there"):
                        tasks.record.options(queue=queue).enqueue(f"{queue} {turn} {number}")
                due = 90 + 40 * (turn + 1)
                until(lambda due=due: len(did()) >= due, lambda: worker.text)
            acked_together(tmp_path, did)
            began = time.monotonic()
            tasks.record.options(queue="there").enqueue("while it waits at other nodes")
            until(lambda: "while it waits at other nodes" in did(), lambda: worker.text)
            assert time.monotonic() - began < 15, worker.text  # a slice of a wait takes 30 s
            for name in ("here", "there"):
                until(lambda name=name: left(first, name) == 0, lambda: worker.text)
        finally:
            worker.kill()
    assert set(Counter(did()).values()) == {1}
    assert "trying again" not in worker.text


def test_a_burst_waits_for_a_home_that_is_down(tmp_path: Path, did: Did) -> None:
    """
    U4.1 `--burst`: the worker ends when each node of its queues has had nothing for it in one
    wait, no queue is out of reach, and it holds no job.
    """
    cluster = RealCluster(tmp_path / "cluster", 2, "--appendonly", "yes").start()
    urls = [f"tuque://127.0.0.1:{node.port}" for node in cluster.nodes]
    tasks.app.use(urls[0])
    try:
        with Client(urls[0]) as first, Client(urls[1], discover=False) as second:
            second.tube("there").create("fifo")
            until(lambda: first.tube_list() == ["there"])
            tasks.record.options(queue="there").enqueue("there")
            cluster.nodes[1].kill()
            until(lambda: reachable(cluster.nodes[0].wire()) == 0)
            tasks.record.options(queue="q").enqueue("q")
            worker = Program(
                tmp_path / "worker.log",
                "worker",
                "e2e_tasks:app",
                "--app-dir",
                str(HERE),
                "--url",
                urls[0],
                "--queues",
                "there,q",
                "--burst",
                OUT=str(tmp_path),
            )
            worker.says("queue there cannot be reached")
            until(lambda: did() == ["q"], lambda: worker.text)
            cluster.nodes[1].start()
            worker.ends(0)
    finally:
        cluster.end()
    assert did() == ["q", "there"]


def acked_together(place: Path, did: Did) -> None:
    """Jobs of both tubes end at one moment, so that acks for two nodes gather."""
    for number in range(6):
        for queue in ("here", "there"):
            tasks.until_file.options(queue=queue).enqueue(f"{queue} together {number}", "go")
    until(lambda: sum(line.startswith("begin") for line in did()) == 12)
    (place / "go").touch()
    until(lambda: sum(line.startswith("end") for line in did()) == 12)


def left(client: Client, name: str) -> int:
    """Tasks of a tube, as its home tells them."""
    client.qlen(name)  # from now on the client knows where it is
    told = client.tube(name).info()
    return told.ready + told.taken


def test_a_home_that_is_down_keeps_nothing_else_waiting(tmp_path: Path, did: Did) -> None:
    """Jobs of other queues are taken, and acked, while those of its tube wait for it."""
    flags = ("--appendonly", "yes", "--tube-failover", "no")  # the leader stays away
    cluster = RealCluster(tmp_path / "cluster", 3, *flags).start()
    urls = [f"tuque://127.0.0.1:{node.port}" for node in cluster.nodes]
    tasks.app.use(urls[0])
    worker = Program(
        tmp_path / "worker.log",
        "worker",
        "e2e_tasks:app",
        "--app-dir",
        str(HERE),
        "--url",
        urls[0],
        "--queues",
        "here,q,there",
        "-c",
        "12",
        OUT=str(tmp_path),
    )
    try:
        with Client(urls[0]) as first, Client(urls[1], discover=False) as second:
            second.tube("here").create("fifo")
            first.tube("there").create("fifo")
            until(lambda: sorted(first.tube_list()) == ["here", "there"])
            for number in range(5):
                tasks.until_file.options(queue="here").enqueue(f"here {number}", "go")
            until(lambda: len(did()) == 5, lambda: worker.text)
            cluster.nodes[1].kill()
            (tmp_path / "go").touch()  # these cannot be acked now
            for number in range(20):
                for queue in ("q", "there"):
                    tasks.record.options(queue=queue).enqueue(f"{queue} {number}")
            until(lambda: len(did()) == 50, lambda: worker.text)
            until(lambda: left(first, "there") == 0, lambda: worker.text)
            until(lambda: "queue here cannot be reached" in worker.text)
            cluster.nodes[1].start()
            tasks.record.options(queue="here").enqueue("back")
            until(lambda: "back" in did(), lambda: worker.text)
            until(lambda: left(first, "here") == 0, lambda: worker.text)
    finally:
        worker.kill()
        cluster.end()
    assert "queue here is back" in worker.text
    assert set(Counter(did()).values()) == {1}


def test_runs_in_a_tube_whose_home_is_down_are_no_loss_of_the_broker(
    tmp_path: Path, did: Did
) -> None:
    """Nothing but their heartbeats and their ends is said meanwhile, and all of it to that home."""
    flags = ("--appendonly", "yes", "--tube-failover", "no")  # the leader stays away
    cluster = RealCluster(tmp_path / "cluster", 2, *flags).start()
    urls = [f"tuque://127.0.0.1:{node.port}" for node in cluster.nodes]
    tasks.app.use(urls[0])
    worker = Program(
        tmp_path / "worker.log",
        "worker",
        "e2e_tasks:app",
        "--app-dir",
        str(HERE),
        "--url",
        urls[0],
        "--queues",
        "here,q",
        "-c",
        "4",
        OUT=str(tmp_path),
    )
    try:
        with Client(urls[0]) as first, Client(urls[1], discover=False) as second:
            second.tube("here").create("tasks", ttr=3, sync=1)
            until(lambda: first.tube_list() == ["here"])
            for number in range(4):
                tasks.until_file.options(queue="here", retry_s=3).enqueue(f"here {number}", "go")
            until(lambda: len(did()) == 4, lambda: worker.text)
            cluster.nodes[1].kill()
            until(lambda: "cannot use node" in worker.text, lambda: worker.text)
            (tmp_path / "go").touch()
            until(lambda: len(did()) == 8, lambda: worker.text)
            until(lambda: "not accept reports of runs" in worker.text, lambda: worker.text)
            cluster.nodes[1].start()
            until(lambda: left(first, "here") == 0, lambda: worker.text)
    finally:
        worker.kill()
        cluster.end()
    assert "broker lost" not in worker.text and "broker is back" not in worker.text
