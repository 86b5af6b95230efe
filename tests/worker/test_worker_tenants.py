"""Two tenants with the same app on one node: the worker and the client as without tenants (N10)."""

from __future__ import annotations

from pathlib import Path

import e2e_tasks as tasks
import pytest
from worker_lab import HERE, Program

from lab import RealServer
from tuque import Client
from until import until


def url_of(node: RealServer, user: str) -> str:
    found = node.url.replace("tuque://", f"tuque://{user}:secret@")
    return f"{found}/?timeout=60&connect_timeout=60"


def lines(out: Path) -> list[str]:
    path = out / "did"
    return sorted(path.read_text().splitlines()) if path.exists() else []


def await_lines(out: Path, wanted: list[str]) -> None:
    until(lambda: len(lines(out)) >= len(wanted))
    assert lines(out) == wanted


@pytest.mark.usefixtures("own_node")
def test_one_app_of_two_tenants(node: RealServer, client: Client, tmp_path: Path) -> None:
    """N10.1 What one tenant has is not there for the users of another"""
    names = ("ann", "bob")
    for name in names:
        words = ("on", "nopass", "+@all", "~*", f"tenant:{name}s")
        client.execute("ACL", "SETUSER", name, *words)
    workers = []
    for name in names:
        out = tmp_path / name
        out.mkdir()
        arguments = ("worker", "e2e_tasks:app", "--app-dir", str(HERE), "-c", "2", "-Q", "q")
        arguments += ("--url", url_of(node, name))
        workers.append(Program(tmp_path / f"{name}.log", *arguments, OUT=str(out)))
    try:
        handles = {}
        for name in names:
            tasks.app.use(url_of(node, name))
            handles[name] = [tasks.record.enqueue(f"{name} {i}") for i in range(10)]
            handles[name].append(tasks.third_time_lucky.enqueue(name))
            handles[name].append(tasks.never.enqueue(f"{name} never"))
        for name in names:
            wanted = [f"{name} {i}" for i in range(10)]
            wanted += [f"{name} {i}" for i in (1, 2, 3)]
            wanted += [f"{name} never {i}" for i in (1, 2, 3)]
            await_lines(tmp_path / name, sorted(wanted))
            with Client(url_of(node, name), timeout=60) as own:
                until(lambda: list(own.workers()))
                (worker,) = own.workers()
                assert (worker.queues, worker.state) == (("q",), "alive")
                until(lambda: own.qlen("graves") == 1)
                assert {queue.name for queue in own.qlist().rows} <= {"q", "graves"}
                (letter,) = own.execute("DEAD", "LIST", "graves")[1]
                assert letter[:2] == [handles[name][-1].id.encode(), b"q"]
        assert {worker.name.partition("/")[0] for worker in client.workers()} == {"anns", "bobs"}
        assert client.qlen("q") == 0
    finally:
        for worker in workers:
            worker.kill()
