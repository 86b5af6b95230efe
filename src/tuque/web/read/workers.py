"""Workers as the nodes know them (SPEC O12), each once, with the runs of all nodes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tuque.aio import Client
from tuque.client.api import to_text
from tuque.client.commands.calls import pairs
from tuque.web.read.nodes import Nodes

PAGE: Final = 1_000
KINDS: Final = {"lost": "gone", "alive": "ok", "quiet": "pause"}  # states and their shapes
ORDER: Final = list(KINDS)


class RunRow(msgspec.Struct, frozen=True):
    """A job of a worker; `due_ms` until it is due again, None: never, or it is queued."""

    id: str
    queue: str
    task: str
    attempt: int
    since_ms: int
    state: str
    due_ms: int | None


class WorkerRow(msgspec.Struct):
    """A worker; `heard_ms` ago was its last sign, `since_ms` is unix ms."""

    name: str
    host: str
    pid: int
    version: str
    queues: list[str]
    slots: int
    busy: int
    done: int
    failed: int
    since_ms: int
    heard_ms: int
    state: str
    order: str
    runs: list[RunRow]
    node: str = ""

    @property
    def longest(self) -> RunRow | None:
        """The run that began first."""
        return max(self.runs, key=lambda one: one.since_ms, default=None)

    @property
    def failing(self) -> float:
        """The share of its attempts that failed, in percent."""
        tried = self.done + self.failed
        return 100.0 * self.failed / tried if tried else 0.0


async def workers_of(nodes: Nodes) -> list[WorkerRow]:
    """All workers, those that need somebody first."""

    async def question(client: Client) -> list[WorkerRow]:
        found: list[WorkerRow] = []
        cursor = b"0"
        while True:
            cursor, rows = await client.execute("WORKER", "LIST", cursor, "COUNT", PAGE)
            cursor = cursor if isinstance(cursor, bytes) else str(cursor).encode()
            found += [row_of(row) for row in rows]
            if cursor == b"0":
                return found

    merged: dict[str, WorkerRow] = {}
    for id, rows in (await nodes.ask(question)).items():
        for row in rows:
            row.node = id
            other = merged.get(row.name)
            if other is None:
                merged[row.name] = row
                continue
            newer, older = (row, other) if row.heard_ms < other.heard_ms else (other, row)
            known = {run.id for run in newer.runs}
            newer.runs += [run for run in older.runs if run.id not in known]  # O12.4
            merged[row.name] = newer
    return sorted(merged.values(), key=lambda one: (ORDER.index(one.state), one.name))


def row_of(reply: Any) -> WorkerRow:
    """One worker out of its names and values."""
    fields = pairs(reply)
    return WorkerRow(
        name=to_text(fields["name"]),
        host=to_text(fields["host"]),
        pid=fields["pid"],
        version=to_text(fields["version"]),
        queues=[to_text(one) for one in fields["queues"]],
        slots=fields["slots"],
        busy=fields["busy"],
        done=fields["done"],
        failed=fields["failed"],
        since_ms=fields["since-ms"],
        heard_ms=fields["heard-ms"],
        state=to_text(fields["state"]),
        order=to_text(fields["order"]),
        runs=[run_of(one) for one in fields["runs"]],
    )


def run_of(reply: Any) -> RunRow:
    """One run."""
    id, queue, task, attempt, since_ms, state, due_ms = reply
    return RunRow(
        to_text(id), to_text(queue), to_text(task), attempt, since_ms, to_text(state), due_ms
    )
