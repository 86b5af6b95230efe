"""`tuque dead`, `tuque cancel` and `tuque result` at a real node."""

from __future__ import annotations

import json

import pytest
from console_node import Run

from tuque import Client
from tuque.client.commands.life import Run as Begun


def bury(client: Client, queue: str, count: int) -> list[str]:
    ids = []
    for number in range(count):
        headers = {"tuque-task": f"task{number}"}
        ids.append(client.addjob(queue, f"body {number}", attempts=1, retry=30, headers=headers))
        client.getjob(queue)
        (run,) = client.start(ids[-1], worker="w")
        assert isinstance(run, Begun)
        client.fail(ids[-1], run.run, reason="no \x1b way")
    return ids


def test_dead_letters_are_listed_shown_replayed_and_purged(port: int, tuque: Run) -> None:
    with Client(f"tuque://127.0.0.1:{port}") as client:
        ids = bury(client, "mail", 4)
        lines = tuque("dead", "list", "-p", port, "mail.dead").stdout.decode().splitlines()
        assert [line.split("  ")[1:4] for line in lines] == [
            [id, "mail", f"task{number}"] for number, id in enumerate(ids)
        ]
        assert "\x1b" not in lines[0]
        listed = tuque("dead", "list", "-p", port, "mail.dead", "--json", "--task", "task1")
        assert json.loads(listed.stdout)["id"] == ids[1]
        shown = json.loads(tuque("dead", "show", "-p", port, ids[0], "--json").stdout)
        assert (shown["body"], shown["headers"]) == ("body 0", {"tuque-task": "task0"})
        assert "origin: mail" in tuque("dead", "show", "-p", port, ids[0]).stdout.decode()
        assert json.loads(tuque("dead", "stat", "-p", port, "mail.dead", "--json").stdout) == {
            "cause": "failed",
            "reason": "no \x1b way",
            "count": 4,
        }
        done = tuque("dead", "replay", "-p", port, "mail.dead")
        assert done.returncode == 2 and b"say which" in done.stderr
        done = tuque("dead", "replay", "-p", port, "mail.dead", "--task", "task[01]")
        assert done.stdout == b"2 replayed\n"
        assert client.qlen("mail") == 2
        done = tuque("dead", "purge", "-p", port, "mail.dead", ids[2], "--json")
        assert json.loads(done.stdout) == {"purged": 1}
        assert tuque("dead", "purge", "-p", port, "mail.dead", "--all").stdout == b"1 purged\n"
        assert client.qlen("mail.dead") == 0


def test_a_job_is_cancelled_and_its_result_shown(port: int, tuque: Run) -> None:
    with Client(f"tuque://127.0.0.1:{port}") as client:
        id = client.addjob("jobs", "b", keep=60)
        done = tuque("result", "-p", port, id)
        assert (done.returncode, done.stdout) == (1, b"state: waiting\n")
        done = tuque("cancel", "-p", port, id, "--reason", "user left")
        assert (done.returncode, done.stdout) == (0, f"{id} ended\n".encode())
        found = json.loads(tuque("result", "-p", port, id, "--json").stdout)
        assert (found["state"], found["reason"]) == ("cancelled", "user left")
        id = client.addjob("jobs", "b", keep=60)
        client.done(id, "-", result="42")
        done = tuque("result", "-p", port, id, "--wait", "5")
        assert done.returncode == 0 and b"result: 42" in done.stdout


@pytest.mark.parametrize("command", ["cancel", "result"])
def test_an_unknown_job_is_exit_status_1(command: str, port: int, tuque: Run) -> None:
    done = tuque(command, "-p", port, "D-5a02d844-AOq+vjzc3Ib9fRcvbwXWVmDZ-05a1")
    assert done.returncode == 1
