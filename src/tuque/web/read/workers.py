"""Workers as the nodes know them (SPEC O12), each once, with the runs of all nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tuque.aio import Client
from tuque.client.commands.operate import Deploy, WorkerInfo, WorkerRun
from tuque.console.live.board import merged_worker
from tuque.web.read.nodes import Nodes

PAGE: Final = 1_000
ROLL_S: Final = 300.0
DEPLOYS_KEPT: Final = 1_000
KINDS: Final = {"lost": "gone", "alive": "ok", "quiet": "pause"}  # states and their shapes
ORDER: Final = list(KINDS)


class WorkerRow(msgspec.Struct):
    """A worker; `heard_ms` ago was its last sign, `since_ms` is unix ms."""

    name: str
    host: str
    pid: int
    version: str
    app: str
    queues: list[str]
    slots: int
    busy: int
    done: int
    failed: int
    since_ms: int
    heard_ms: int
    state: str
    order: str
    runs: list[WorkerRun]
    node: str = ""

    @property
    def longest(self) -> WorkerRun | None:
        """The run that began first."""
        return max(self.runs, key=lambda one: one.for_ms, default=None)

    @property
    def failing(self) -> float:
        """The share of its attempts that failed, in percent."""
        tried = self.done + self.failed
        return 100.0 * self.failed / tried if tried else 0.0


class Mark(msgspec.Struct):
    """A deploy: workers of these queues began to run another version, the first at `at_s`.

    Instants are unix s; each queue has its own.
    """

    at_s: float
    text: str
    queues: dict[str, float]


class Deploys:
    """What the nodes told of deploys: one that is away, or began anew, takes none with it."""

    def __init__(self) -> None:
        self._heard: dict[tuple[int, str, tuple[str, ...]], Deploy] = {}

    async def marks(self, nodes: Nodes) -> list[Mark]:
        """All that is known now (SPEC O12.6), oldest first."""

        async def question(client: Client) -> list[Deploy]:
            return await client.worker_deploys()

        for some in (await nodes.ask(question)).values():
            self.learn(some)
        return changes(self._heard.values())

    def learn(self, told: Iterable[Deploy]) -> None:
        """Adds what a node told; the latest stay."""
        self._heard |= {(one.at_ms, one.app, one.queues): one for one in told}
        for key in sorted(self._heard)[:-DEPLOYS_KEPT]:
            del self._heard[key]


def changes(heard: Iterable[Deploy]) -> list[Mark]:
    """What of that changed the version of a queue, which another node may have known before.

    Nodes and workers of other queues that say the same within ROLL_S are one deploy; a queue that
    comes back to a version within that time is another one.
    """
    marks: list[Mark] = []
    known: dict[str, str] = {}
    for one in sorted(heard, key=lambda one: one.at_ms):
        new = {queue for queue in one.queues if known.get(queue, one.app) != one.app}
        known.update(dict.fromkeys(one.queues, one.app))
        if not new:
            continue
        last = next((mark for mark in reversed(marks) if mark.text == one.app), None)
        is_one = last is not None and one.at_ms / 1000 - last.at_s < ROLL_S
        found = dict.fromkeys(new, one.at_ms / 1000)
        if last is not None and is_one and last.queues.keys().isdisjoint(new):
            last.queues |= found
        else:
            marks.append(Mark(one.at_ms / 1000, one.app, found))
    return marks


async def workers_of(nodes: Nodes) -> list[WorkerRow]:
    """All workers, those that need somebody first."""

    async def question(client: Client) -> list[WorkerInfo]:
        return [one async for one in client.workers(count=PAGE)]

    heard: dict[str, list[tuple[str, WorkerInfo]]] = {}
    for id, infos in (await nodes.ask(question)).items():
        for one in infos:
            heard.setdefault(one.name, []).append((id, one))
    rows = [row_of(some) for some in heard.values()]
    return sorted(rows, key=need)


def need(one: WorkerRow) -> tuple[int, bool, str]:
    """[O14] The order of workers: lost ones with jobs come first (O14.3)."""
    return ORDER.index(one.state), one.state == "lost" and not one.runs, one.name


def row_of(heard: list[tuple[str, WorkerInfo]]) -> WorkerRow:
    """One worker out of what the nodes that heard it say (SPEC O12.4)."""
    node, _ = min(heard, key=lambda one: one[1].heard_ms)
    info = merged_worker([one for _, one in heard])
    return WorkerRow(
        name=info.name,
        host=info.host,
        pid=info.pid,
        version=info.version,
        app=info.app,
        queues=list(info.queues),
        slots=info.slots,
        busy=info.busy,
        done=info.done,
        failed=info.failed,
        since_ms=info.since_ms,
        heard_ms=info.heard_ms,
        state=info.state,
        order=info.order,
        runs=list(info.runs),
        node=node,
    )
