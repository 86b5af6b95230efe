"""Dead letters: what is there and why, and back into their queues once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from lab import RealServer
from raw_resp import wait_for
from sink_lab import bodies

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

from tuque.spark.cli.deadletters import replay, triage
from tuque.worker.tasks.codec import Envelope, encode


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    running = RealServer(tmp_path, "--events", "yes").start()
    yield running
    running.end()


def die(server: RealServer, queue: str, task: str, reason: str) -> None:
    wire = server.wire()
    body = encode(Envelope(task, [reason]), "json") if task else b"\xff"
    job = wire.add(queue, body)
    wire("DEADLETTER", job, f"{queue}.dead", "REASON", reason)


def run(server: RealServer, command: str, *words: str) -> tuple[int, str]:
    url = f"tuque://127.0.0.1:{server.port}"
    commands = {"triage": triage, "replay": replay}
    done = CliRunner().invoke(commands[command], [*words, "--url", url])
    return done.exit_code, done.output


def fill(server: RealServer) -> None:
    for _ in range(3):
        die(server, "mail", "send", "TimeoutError: slow")
    die(server, "mail", "send", "ValueError: no")
    die(server, "pay", "", "rejected: the body is not a task call")


def test_what_letters_say_commands_no_terminal(server: RealServer, tmp_path: Path) -> None:
    die(server, "mail\x1b[2J", "send\x07", "boom \x1b]0;owned\x07")
    events = str(tmp_path / "events")

    def table() -> str:
        code, output = run(server, "triage", "--events", events)
        return output if code == 0 and "boom" in output else ""

    wait_for(table, "no reason in the table")
    assert "\x1b" not in table() and "\x07" not in table()
    (line,) = [line for line in table().splitlines() if "boom" in line]
    assert line.split("  ")[-1] == r"boom \x1b]0;owned\x07"
    code, output = run(server, "replay", "--dry-run")
    assert (code, output.splitlines()[0]) == (0, r"1 from mail\x1b[2J.dead to mail\x1b[2J")


def test_letters_by_queue_task_and_reason(server: RealServer, tmp_path: Path) -> None:
    fill(server)
    code, output = run(server, "triage", "--json")
    assert code == 0, output
    found = [(row["letters"], row["queue"], row["task"]) for row in json.loads(output)]
    assert found == [(4, "mail.dead", "send"), (1, "pay.dead", "(no task call)")]
    wait_for(lambda: list((tmp_path / "events").rglob("*")), "no segment of events")

    def reasons() -> list[tuple[int, str, str]]:
        code, output = run(server, "triage", "--events", str(tmp_path / "events"), "--json")
        rows = json.loads(output) if code == 0 else []
        return [(row["letters"], row["queue"], row["reason"]) for row in rows]

    wanted = [
        (3, "mail.dead", "TimeoutError: slow"),
        (1, "mail.dead", "ValueError: no"),
        (1, "pay.dead", "rejected: the body is not a task call"),
    ]
    wait_for(lambda: reasons() == wanted, lambda: f"{reasons()}")
    events = str(tmp_path / "events")
    code, output = run(server, "triage", "--events", events, "--where", "reason LIKE 'Value%'")
    assert output.splitlines()[1].split()[:3] == ["1", "mail.dead", "send"]
    assert output.endswith("ValueError: no\n")


def test_a_replay_is_done_once(server: RealServer) -> None:
    fill(server)
    code, output = run(server, "replay", "--dry-run")
    assert "4 from mail.dead to mail\n1 from pay.dead to pay\n5 letters would be" in output
    assert sum(bodies(server, "mail.dead").values()) == 4
    for _ in range(2):
        code, output = run(server, "replay", "--queue", "mail.*", "--keep")
        assert (code, output.splitlines()[-1]) == (0, "4 of 4 letters replayed")
        assert sum(bodies(server, "mail").values()) == 4
    code, output = run(server, "replay", "--queue", "mail.*")
    assert code == 0
    assert sum(bodies(server, "mail").values()) == 4
    assert not bodies(server, "mail.dead")
    assert sum(bodies(server, "pay.dead").values()) == 1
    code, output = run(server, "replay", "--queue", "mail.*")
    assert output == "0 of 0 letters replayed\n"


def test_some_letters_to_another_queue(server: RealServer) -> None:
    fill(server)
    code, output = run(server, "replay", "--where", "args LIKE '%Timeout%'", "--to", "slow")
    assert code == 0, output
    assert sum(bodies(server, "slow").values()) == 3
    assert sum(bodies(server, "mail.dead").values()) == 1


def test_mistakes(server: RealServer, tmp_path: Path) -> None:
    assert run(server, "triage") == (0, "no dead letters\n")
    fill(server)
    code, output = run(server, "triage", "--where", "nonsense = 1")
    assert code == 1
    assert "--where 'nonsense = 1': Binder Error" in output
    code, output = run(server, "triage", "--events", str(tmp_path / "none"))
    assert code == 2
    server.wire()("PAUSE", "mail", "in")
    code, output = run(server, "replay")
    assert code == 1
    assert "4 letters were refused and stay" in output
    assert sum(bodies(server, "mail.dead").values()) == 4
    assert sum(bodies(server, "pay").values()) == 1
