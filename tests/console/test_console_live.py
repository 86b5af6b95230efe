"""`tuque queues`, `tuque workers` and `tuque top --once` at real nodes; what they merge."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from console_node import DEADLINE_S, Run

from lab import RealCluster
from tuque import Client, terminal
from tuque.cli import queues, shown
from tuque.client.commands.operate import QueueRow, WorkerInfo, WorkerRun
from tuque.clusterview.figures import Queue, merged_worker
from world import World

LOST = WorkerInfo(
    "h/7",
    "h",
    7,
    "1",
    ("q",),
    4,
    1,
    12,
    3,
    9,
    2000,
    "lost",
    "none",
    (WorkerRun("D-1", "q", "m.f", 1, 300, "waiting", 251_000),),
)


def fill(client: Client) -> None:
    """A queue with a job in each state, and one with a job."""
    for _ in range(3):
        client.addjob("mail", "x", retry=60)
    client.addjob("mail", "x", delay=50)
    client.addjob("mail.dead", "x")
    client.getjob("mail")
    client.addjob("web", "x")
    client.pause("web", "out")


def test_queues_are_listed(world: World, tuque_in: Callable[[World, int], Run]) -> None:
    tuque = tuque_in(world, 0)
    with world.client() as client:
        fill(client)
        lines = tuque("queues", "--sort", "ready").stdout.decode().splitlines()
        assert lines[0].split()[:3] == ["QUEUE", "TYPE", "OLDEST"]
        assert [line.split()[0] for line in lines[1:]] == ["mail", "mail.dead", "web"]
        found = tuque("queues", "--match", "ai", "--sort", "name", "--json").stdout
        rows = [json.loads(line) for line in found.splitlines()]
        assert [row["name"] for row in rows] == ["mail", "mail.dead"]
        assert [rows[0][key] for key in ("ready", "delayed", "at_work", "dead")] == [2, 1, 1, 1]
        found = tuque("queues", "--type", "dead", "--json").stdout
        assert json.loads(found)["name"] == "mail.dead"
        assert len(tuque("queues", "--limit", 1, "--json").stdout.splitlines()) == 1
        assert b"no queues" in tuque("queues", "--match", "nothing").stdout
        paused = tuque("queues", "--match", "web", "--json").stdout
        assert json.loads(paused)["pause"] == "out"


def test_figures_of_nodes_are_merged(tmp_path: Path, tuque: Run) -> None:
    """Jobs are sums, ages the greatest; a queue far down at one node is found by its name."""
    with RealCluster(tmp_path, 2) as cluster:
        one, two = (Client(node.url, discover=False) for node in cluster.nodes)
        with one, two:
            for client, count in ((one, 3), (two, 4)):
                for _ in range(count):
                    client.addjob("both", "x", replicate=1)
            one.addjob("only-one", "x", replicate=1)
            found = tuque("queues", "-p", cluster.nodes[1].port, "--sort", "ready", "--json")
            rows = [json.loads(line) for line in found.stdout.splitlines()]
            assert [(row["name"], row["ready"]) for row in rows] == [("both", 7), ("only-one", 1)]
            assert rows[0]["oldest_ms"] > 0
            here = tuque("queues", "-p", cluster.nodes[1].port, "--here", "--json").stdout
            assert json.loads(here)["ready"] == 4
            two.tube("timed").create("tasks", alone=True)
            two.schedule_add("timed", "hourly", "x", every_s=3600)
            two.worker_here("h/1", slots=2)
            one.worker_here("h/2", slots=2)
            told = tuque("workers", "-p", cluster.nodes[0].port, "--json").stdout.splitlines()
            assert [json.loads(line)["name"] for line in told] == ["h/1", "h/2"]
            assert tuque("workers", "quiet", "-p", cluster.nodes[0].port, "h/1").returncode == 0
            assert two.worker_here("h/1") == "quiet"
            picture = json.loads(tuque("top", "--once", "--json", "-u", one_url(cluster)).stdout)
            assert set(picture) == {"queues", "workers", "nodes"}
            assert [row["error"] for row in picture["nodes"]] == ["", ""]
            assert [row["schedules"] for row in picture["nodes"]] == [0, 1]


def one_url(cluster: RealCluster) -> str:
    """The URL of the first node."""
    return cluster.nodes[0].url


def test_workers_are_listed_and_get_orders(port: int, tuque: Run) -> None:
    with Client(f"tuque://127.0.0.1:{port}") as client:
        assert b"no workers" in tuque("workers", "-p", port).stdout
        client.worker_here("h/7", slots=4, busy=1, queues=["mail"])
        shown = tuque("workers", "-p", port).stdout.decode().splitlines()
        assert shown[1].split()[:3] == ["h/7", "alive", "mail"]
        client.worker_here("h/7", slots=4, busy=1, queues=["mail"], app="shop-42")
        shown = tuque("workers", "-p", port).stdout.decode().splitlines()
        assert shown[0].split()[3] == "APP" and shown[1].split()[3] == "shop-42"
        stopped = tuque("workers", "stop", "-p", port, "h/7", "h/8")
        assert (stopped.returncode, stopped.stdout) == (1, b"h/7 is asked: stop\n")
        assert stopped.stderr == b"h/8 is not alive\n"
        assert client.worker_here("h/7") == "stop"
        assert b"alive, told to stop" in tuque("workers", "-p", port).stdout


def test_top_without_a_screen(port: int, tuque: Run) -> None:
    with Client(f"tuque://127.0.0.1:{port}") as client:
        fill(client)
        text = tuque("top", "--once", "-p", port).stdout.decode()
        rows = map(json.loads, tuque("queues", "-p", port, "--json").stdout.splitlines())
        ready = sum(row["ready"] for row in rows if row["type"] == "queue")
        assert text.startswith(f"{ready} ready, ")
        assert f"127.0.0.1:{port}" in text
        assert tuque("top", "--json", "-p", port).returncode == 2
        piped = tuque("top", "-p", port)
        assert (piped.returncode, b"needs a terminal; --once" in piped.stderr) == (2, True)


def test_a_long_name_leaves_room_for_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut in the middle, further on a narrow terminal; JSON has all of it."""
    long = QueueRow("a" * 10_000 + "z", "queue", 1, 0, 0, 0, 5, 0.0, 0.0, 0, "none")
    head, row = shown.queue_table([long]).splitlines()
    assert row.startswith("aaa") and "…" in row and max(len(head), len(row)) < 160
    assert row.split()[0].endswith("az") and len(row.split()[0]) == terminal.NAME_MAX
    monkeypatch.setattr(terminal, "width", lambda: 80)
    head, row, *_ = shown.queue_table([long]).splitlines()
    assert len(row) <= 80 and {"OLDEST", "READY"} <= set(head.split())
    assert terminal.NAME_LEAST <= len(row.split()[0]) < terminal.NAME_MAX
    worker = msgspec.structs.replace(LOST, name="w" * 255, app="v" * 255, queues=("q" * 8_000,))
    assert max(map(len, shown.worker_table([worker]).splitlines()[:2])) <= 160


def test_the_summary_says_what_it_leaves_out() -> None:
    one = QueueRow("q", "queue", 7, 0, 0, 0, 5, 0.0, 0.0, 0, "none")
    assert shown.summary([one], [], 1).startswith("7 ready")
    assert shown.summary([one], [], 1_001).startswith("of 1 of 1,001 queues, 7 ready")


def test_a_worker_that_went_to_another_node_is_not_lost() -> None:
    """O12.4 of several rows of one name the one with the least heard-ms counts, and the runs of
    all of them together.
    """
    here = msgspec.structs.replace(
        LOST, heard_ms=100, state="alive", runs=(WorkerRun("D-2", "q", "", 1, 5, "running", 9),)
    )
    found = merged_worker([LOST, here])
    assert (found.state, found.heard_ms) == ("alive", 100)
    assert [(run.id, run.state) for run in found.runs] == [("D-1", "running"), ("D-2", "running")]
    told = msgspec.structs.replace(here, heard_ms=2_000, order="stop")
    assert merged_worker([here, told]).order == "stop", "by a node that it used before"
    gone = msgspec.structs.replace(LOST, heard_ms=20_000)
    assert merged_worker([gone, LOST]) == LOST


def test_pauses_that_differ_are_shown_as_such() -> None:
    row = QueueRow("q", "queue", 1, 2, 3, 4, 5, 0.5, 0.25, 6, "none")
    other = QueueRow("q", "fifo", 1, 0, 0, 0, 9, 1.0, 1.0, 1, "out")
    assert Queue("q", {"n1": row, "n2": other}).row() == QueueRow(
        "q", "fifo", 2, 2, 3, 4, 9, 1.5, 1.25, 7, "mixed"
    )


def test_jobs_of_a_lost_worker_say_when_they_are_due() -> None:
    table = shown.worker_table([LOST])
    assert table.splitlines()[1].split()[:2] == ["h/7", "lost"]
    assert table.splitlines()[2:] == [
        "h/7 is lost, it had:",
        "  m.f of q, D-1: waiting, due again in 4 m 11 s",
    ]


def test_times_for_people() -> None:
    spans = [shown.span(ms) for ms in (0, 9_940, 59_999, 413_000, 7_500_000, 190_000_000)]
    assert spans == ["0.0 s", "9.9 s", "59 s", "6 m 53 s", "2 h 5 m", "2 d 4 h"]


def test_queues_are_watched(port: int) -> None:
    words = [sys.executable, "-m", "tuque", "queues", "-p", str(port), "--watch", "0.2", "--json"]
    with Client(f"tuque://127.0.0.1:{port}") as client:
        client.addjob("first", "x")
        with subprocess.Popen([*words, "--match", "first"], stdout=subprocess.PIPE) as program:
            assert program.stdout is not None
            assert json.loads(program.stdout.readline())["ready"] == 1
            client.addjob("first", "x")
            while json.loads(program.stdout.readline())["ready"] != 2:
                pass
            program.send_signal(signal.SIGINT)
            assert program.wait(DEADLINE_S) == 0


def test_top_says_what_it_lacks(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    monkeypatch.delitem(sys.modules, "tuque.cli.top", raising=False)
    ran = CliRunner().invoke(queues.top, ["-p", str(port)])
    assert ran.exit_code == 1
    assert "pip install 'tuque[top]'" in ran.output
