"""`tuque dead`, `tuque cancel` and `tuque result` at a real node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from console_node import Run

from lab import RealCluster
from tuque import Client
from tuque.client.commands.work import Run as Begun
from until import until


def bury(client: Client, queue: str, count: int, retry: int = 30, replicate: int = 1) -> list[str]:
    ids = []
    for number in range(count):
        headers = {"tuque-task": f"task{number}"}
        options = {"attempts": 1, "retry": retry, "replicate": replicate}
        ids.append(client.addjob(queue, f"body {number}", headers=headers, **options))
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
        done = tuque("dead", "replay", "-p", port, "mail.dead", "--task", "task[01]", "--rate", "9")
        assert done.stdout == b"2 replayed\n"
        assert client.qlen("mail") == 2
        done = tuque("dead", "purge", "-p", port, "mail.dead", ids[2], "--json")
        assert json.loads(done.stdout) == {"purged": 1}
        assert tuque("dead", "purge", "-p", port, "mail.dead", "--all").stdout == b"1 purged\n"
        assert client.qlen("mail.dead") == 0


def test_dead_letters_of_a_tube(tmp_path: Path, tuque: Run) -> None:
    """T48.15 LIST, STAT, REPLAY and PURGE take the name of the tube, at its leader (T17.3), SHOW
    the id of the task
    """
    with RealCluster(tmp_path / "nodes", 2) as cluster:
        client, other = (Client(node.url) for node in cluster.nodes)
        until(lambda: client.tube("work").create("tasks", sync=1, alone=True) is None)
        ids = [killed(client, "work") for _ in range(3)]
        until(lambda: len(list(other.dead_letters("work"))) == 3)
        port = cluster.nodes[1].port
        for options in (("-p", port), ("-p", cluster.nodes[0].port)):
            lines = tuque("dead", "list", *options, "work", "--json").stdout.splitlines()
            assert [json.loads(line)["id"] for line in lines] == ids
        shown = json.loads(tuque("dead", "show", "-p", port, ids[0], "--json").stdout)
        assert (shown["queue"], shown["origin"], shown["body"]) == ("work", "work", "body")
        stat = json.loads(tuque("dead", "stat", "-p", port, "work", "--json").stdout)
        assert (stat["cause"], stat["count"]) == ("failed", 3)
        assert tuque("dead", "replay", "-p", port, "work", ids[0]).stdout == b"1 replayed\n"
        client.tube("bare").create("tasks", sync=1, alone=True)
        for node in cluster.nodes:
            done = tuque("dead", "list", "-p", node.port, "bare")
            assert (done.returncode, done.stderr) == (0, b"no dead letters in bare\n")
        assert tuque("dead", "purge", "-p", port, "work", "--all").stdout == b"2 purged\n"
        assert [job.id for job in client.getjob("work", count=9)] == [ids[0]]
        for leader, name in ((other, "here"), (client, "there")):
            killed(client, name)  # a queue until now
            leader.tube(name).create("tasks", sync=1, alone=True)
            id = killed(leader, name)
            done = tuque("dead", "replay", "-p", port, f"{name}.dead", "--all")
            assert [job.id for job in leader.getjob(name, count=9)] == [id]
            if name == "here":
                assert (done.stdout, done.returncode) == (b"1 replayed\n", 0)
                assert done.stderr.startswith(b"1 stay dead: if their queue is a tube now")
            else:
                assert (done.stdout, done.returncode) == (b"", 1)
                assert b"in 'there.dead' needs QUEUE; done at other nodes: 1" in done.stderr
        client.close()
        other.close()


def killed(client: Client, tube: str) -> str:
    """A task of the tube that has died."""
    id = client.addjob(tube, "body", attempts=1)
    (job,) = client.getjob(tube)
    assert job.id == id
    (run,) = client.start(id, worker="w")
    assert isinstance(run, Begun)
    client.fail(id, run.run, reason="why")
    return id


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


def test_the_attempts_and_the_body_of_a_job_that_is_done_are_shown(port: int, tuque: Run) -> None:
    with Client(f"tuque://127.0.0.1:{port}") as client:
        id = client.addjob("tried", "the body", keep=60, keep_body=True, backoff=(0, 0, 0))
        for end in ("fail", "done"):
            client.getjob("tried")
            (run,) = client.start(id, worker=f"w-{end}")
            assert isinstance(run, Begun)
            if end == "fail":
                client.fail(id, run.run, reason="no luck", detail="Traceback\nno luck", delay=0)
            else:
                client.done(id, run.run, result="42")
        lines = tuque("result", "-p", port, id, "--body", "--attempts").stdout.decode().splitlines()
        assert {"state: done", "queue: tried", "body: the body"} <= {*lines}, lines
        at = next(i for i, line in enumerate(lines) if line.startswith("attempt 1  failed  w-fail"))
        assert lines[at].endswith("  no luck") and lines[at + 1 : at + 3] == [
            "  Traceback",
            "  no luck",
        ]
        assert lines[at + 3].startswith("attempt 2  done  w-done")
        found = json.loads(tuque("result", "-p", port, id, "--json", "--attempts").stdout)
        assert [one["state"] for one in found["attempts"]] == ["failed", "done"]
        assert "body" not in found


def test_the_result_of_a_group_is_how_it_ended(port: int, tuque: Run) -> None:
    with Client(f"tuque://127.0.0.1:{port}") as client:
        client.tube("jobs of groups").create("tasks")
        id = client.group_create("jobs of groups", 1, body="callback")
        assert tuque("result", "-p", port, id).stdout == b"state: scheduled\n"
        client.group_cancel("jobs of groups", id)
        done = tuque("result", "-p", port, id, "--wait", "60")
        assert done.returncode == 1 and done.stdout.startswith(b"state: cancelled\n")


@pytest.mark.parametrize("command", ["cancel", "result"])
def test_an_unknown_job_is_exit_status_1(command: str, port: int, tuque: Run) -> None:
    done = tuque(command, "-p", port, "D-5a02d844-AOq+vjzc3Ib9fRcvbwXWVmDZ-05a1")
    assert done.returncode == 1


def test_a_queue_of_other_jobs_has_no_dead_letters(port: int, tuque: Run) -> None:
    with Client(f"tuque://127.0.0.1:{port}") as client:
        client.addjob("moved", "by DEADLETTER, or by a producer")
    done = tuque("dead", "list", "-p", port, "moved")
    note = b"no dead letters in moved, but other jobs: tuque cli QPEEK moved 10\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", note)
    done = tuque("dead", "list", "-p", port, "moved", "--task", "x")
    note = b"no dead letters in moved are as the options say\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", note)


def test_lists_without_rows_say_so(port: int, tuque: Run, tmp_path: Path) -> None:
    """Scripts see no line and status 0; people see that there is none."""
    with Client(f"tuque://127.0.0.1:{port}") as client:
        client.tube("bare").create("tasks", sync=1, if_not_exists=True)
    node = ("-p", port)
    for words, note in (
        (("dead", "list", *node, "empty"), b"no dead letters in empty\n"),
        (("dead", "stat", *node, "empty"), b"no dead letters in empty\n"),
        (("dead", "list", *node, "bare"), b"no dead letters in bare\n"),
        (("topics", "list", *node, "empty"), b"no topics\n"),
        (("schedule", "list", *node, "bare"), b"no schedules in bare\n"),
        (("tubes", "group", "list", *node, "bare"), b"no groups in bare\n"),
        (("tubes", "limits", *node, "bare"), b"no limits, rates or groups in bare\n"),
        (("audit", tmp_path), b"no such lines\n"),
    ):
        done = tuque(*words)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", note), words


def test_dead_letters_of_all_nodes(tmp_path: Path, tuque: Run) -> None:
    with RealCluster(tmp_path / "nodes", 2) as cluster:
        ports = [node.port for node in cluster.nodes]
        clients = [Client(node.url, discover=False) for node in cluster.nodes]
        both = [bury(client, "mail", 2, retry=600) for client in clients]
        shared = bury(clients[0], "mail", 1, retry=600, replicate=2)
        ids = {*both[0], *both[1], *shared}
        until(lambda: clients[1].dead_stat("mail.dead")[0].count == 3)

        def listed(*options: str | int) -> list[str]:
            lines = tuque("dead", "list", "mail.dead", "--json", *options).stdout.splitlines()
            return sorted(json.loads(line)["id"] for line in lines)

        for port in ports:
            assert listed("-p", port) == sorted(ids)
        assert listed("-p", ports[1], "--here") == sorted([*both[1], *shared])
        shown = tuque("dead", "show", "-p", ports[1], both[0][0], "--json")
        assert json.loads(shown.stdout)["id"] == both[0][0]
        stat = tuque("dead", "stat", "-p", ports[1], "mail.dead", "--json")
        assert json.loads(stat.stdout)["count"] == 5
        done = tuque("dead", "replay", "-p", ports[1], "mail.dead", both[0][1], shared[0])
        assert done.stdout == b"2 replayed\n"
        until(lambda: clients[0].result(shared[0]).state == "waiting")
        done = tuque("dead", "purge", "-p", ports[1], "mail.dead", "--task", "task*")
        assert done.stdout == b"3 purged\n"
        assert listed("-p", ports[0]) == []
        cluster.nodes[0].kill()
        until(lambda: b"unreachable" in tuque("dead", "list", "-p", ports[1], "mail.dead").stderr)
        for client in clients:
            client.close()


def test_schedules(port: int, tuque: Run) -> None:
    """`tuque schedule` at a real node (SPEC T46)."""
    name = "clean \x1b up"
    with Client(f"tuque://127.0.0.1:{port}") as client:
        client.tube("nightly").create("tasks", ttr=30)
        words = ("-p", port, "nightly", name)
        added = tuque("schedule", "add", *words, "body", "--every", "3600", "--missed", "all")
        assert (added.returncode, added.stdout) == (0, b"added\n")
        assert tuque("schedule", "add", *words, "body", "--every", "60").stdout == b"replaced\n"
        wrong = tuque("schedule", "add", *words, "body")
        assert wrong.returncode == 1 and b"CRON or EVERY" in wrong.stderr
        year = tuque("schedule", "add", *words, "body", "--every", "31622400")
        assert year.stdout == b"replaced\n"
        assert tuque("schedule", "add", *words, "body", "--every", "60").stdout == b"replaced\n"
        plain = tuque("schedule", "list", "-p", port, "plain")
        assert plain.returncode == 1
        assert b"'plain' is no tube of type tasks: only those have schedules" in plain.stderr
        plain = tuque("schedule", "add", "-p", port, "no such", "n", "body", "--every", "60")
        assert plain.returncode == 1
        assert b"make it with `tuque cli TUBE CREATE 'no such' tasks TTR 30`" in plain.stderr
        (line,) = tuque("schedule", "list", "-p", port).stdout.decode().splitlines()
        assert line.startswith("nightly  clean ") and "every 60 s  next " in line
        assert "\x1b" not in line
        listed = tuque("schedule", "list", "-p", port, "nightly", "--json")
        assert json.loads(listed.stdout)["every_s"] == 60.0
        assert "every s: 60.0" in tuque("schedule", "show", *words).stdout.decode()
        assert json.loads(tuque("schedule", "show", *words, "--json").stdout)["body"] == "body"
        assert tuque("schedule", "pause", *words).stdout == b"paused\n"
        assert tuque("schedule", "pause", *words).stdout == b"nothing to change\n"
        assert "  paused  " in tuque("schedule", "list", "-p", port).stdout.decode()
        assert tuque("schedule", "resume", *words).stdout == b"continues\n"
        id = tuque("schedule", "run", *words).stdout.decode().strip()
        assert [job.id for job in client.getjob("nightly", count=9)] == [id]
        assert tuque("schedule", "drop", *words).stdout == b"dropped\n"
        assert tuque("schedule", "drop", *words).returncode == 1


def test_a_group_is_cancelled_by_its_id(port: int, tuque: Run) -> None:
    with Client(f"tuque://127.0.0.1:{port}") as client:
        client.tube("groups to cancel").create("tasks")
        first, second = (
            client.group_create("groups to cancel", 1, body="callback") for _ in range(2)
        )
        job = client.addjob("jobs", "b")
        done = tuque("cancel", "-p", port, first)
        assert (done.returncode, done.stdout) == (0, f"{first} ended\n".encode())
        assert client.group_show("groups to cancel", first).state == "cancelled"
        done = tuque("cancel", "-p", port, job, first, second, "--json")
        assert json.loads(done.stdout) == {job: "ended", first: "over", second: "ended"}
