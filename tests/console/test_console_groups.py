"""`tuque tubes group` at a real node (SPEC T51)."""

from __future__ import annotations

import json

from console_node import Run

from tuque import Client
from tuque.cli.tubes import child_row, row
from tuque.client.commands.groups import ChildEnd, JobGroup


def test_groups(port: int, tuque: Run) -> None:
    """T51.4 groups that are not their callback yet"""
    with Client(f"tuque://127.0.0.1:{port}") as client:
        client.tube("sums").create("tasks", ttr=30)
        group = client.group_create("sums", 2, body="x")
        child = client.addjob("numbers", "1", keep=600)
        client.group_add("sums", group, {0: child})
    (line,) = tuque("tubes", "group", "list", "-p", port, "sums").stdout.decode().splitlines()
    assert f"{group}  open  0/2 ended  0 failed" in line
    assert "dead" not in line
    listed = tuque("tubes", "group", "list", "-p", port, "sums", "--json")
    assert json.loads(listed.stdout)["children"] == 2
    shown = tuque("tubes", "group", "show", "-p", port, "sums", group, "--children").stdout.decode()
    assert "state: open" in shown and f"0  {child}  open" in shown
    failed = tuque("tubes", "group", "list", "-p", port, "sums", "--state", "failed")
    assert (failed.returncode, failed.stdout) == (0, b"")
    assert tuque("tubes", "group", "cancel", "-p", port, "sums", group).stdout == b"cancelled\n"
    assert tuque("tubes", "group", "cancel", "-p", port, "sums", group).stdout == b"it was over\n"
    assert tuque("tubes", "group", "show", "-p", port, "sums", "D-1").returncode == 1


def test_a_dead_child_that_is_waited_for() -> None:
    """T50.5 With `wait` one that is dead is open, and ended as `dead`, with its reason"""
    one = JobGroup("D-1", "sums", "open", 3, 3, 1, 0, "wait", True, 5, 0, dead=1)
    assert row(one).endswith("D-1  open  1/3 ended  0 failed  1 dead: waits for a replay")
    child = ChildEnd(2, "D-2", "open", None, "dead", "no vat id")
    assert child_row(child) == "     2  D-2  dead, waits for a replay  no vat id"


def test_values(port: int, tuque: Run) -> None:
    """T70.9 name, kind (`value`, `ended`, `fixed` or `parts`)"""
    with Client(f"tuque://127.0.0.1:{port}") as client:
        client.tube("results").create("tasks", if_not_exists=True)
        client.value_set("results", "order", b"do\xffne", ttl=0, fixed=True)
        client.value_tally("results", "pages", 0, b"first", size=2)
    at = ("-p", port, "results")
    first, second = tuque("tubes", "value", "list", *at).stdout.decode().splitlines()
    assert first == "order  fixed  5 bytes  without an end"
    assert second.startswith("pages  parts  1 parts  until ")
    (line,) = tuque("tubes", "value", "list", *at, "--match", "o*", "--json").stdout.splitlines()
    assert json.loads(line) == {"name": "order", "kind": "fixed", "size": 5, "end_ms": 0}
    assert tuque("tubes", "value", "get", *at, "order").stdout == b"do\\xffne\n"
    assert tuque("tubes", "value", "get", *at, "nosuch").returncode == 1
    assert tuque("tubes", "value", "set", *at, "--new", "order", "x").stdout == b"unchanged\n"
    assert tuque("tubes", "value", "set", *at, "--ttl", "0", "sum", "5").stdout == b"set\n"
    assert tuque("tubes", "value", "get", *at, "sum").stdout == b"5\n"
    assert tuque("tubes", "value", "drop", *at, "order", "pages", "x").stdout == b"2\n"


def test_one_queue(port: int, tuque: Run) -> None:
    """T74.6 SHOW replies with queue, expires-ms (0: never), autodelete, ttl-ms (0: any)"""
    at = ("-p", port, "kept")

    def run(word: str, *options: str) -> str:
        return tuque("queues", word, *at, *options).stdout.decode()

    assert tuque("queues", "show", *at).returncode == 1
    assert run("set", "--expires", "600", "--ttl", "1.5", "--maxlen", "2") == "set\n"
    assert run("set", "--expires", "600", "--ttl", "1.5", "--maxlen", "2") == "unchanged\n"
    assert "ttl_s: 1.5" in run("show") and "autodelete: False" in run("show")
    assert json.loads(run("show", "--json"))["maxlen"] == 2
    run("set", "--expires", "600")
    with Client(f"tuque://127.0.0.1:{port}") as client:
        client.addjob("kept", "x")
        client.addjob("kept", "x", delay=60)
        assert run("delete", "--if-empty") == "it stays\n"
        assert [run("purge"), run("purge", "--state", "all", "--here")] == ["1\n", "1\n"]
        client.addjob("kept", "x")
        assert run("delete") == "deleted\n"
    assert tuque("queues", "show", *at).returncode == 1
    assert tuque("queues", "-p", port, "--limit", "1").returncode == 0
