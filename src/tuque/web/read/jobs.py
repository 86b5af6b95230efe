"""One job as all nodes know it, and the jobs of a queue by state."""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias

import msgspec

from tuque.aio import Client
from tuque.client.api import Job, JobInfo, JobWork
from tuque.client.commands.calls import jscan_full_page
from tuque.client.commands.dead import DeadJob
from tuque.client.commands.schedules import Schedule
from tuque.client.commands.work import Result
from tuque.errors import NoJob, NotInReach, ReplyError, TubeHome
from tuque.web.read.nodes import Node, Nodes

ROWS: Final = 20
LOOKED_AT: Final = 5_000  # ready jobs that one list leaves out, at each node
PAGE: Final = 500
PAGES: Final = 10  # of JSCAN that one list reads, each of up to 5,000 jobs looked at


class Copy(msgspec.Struct, frozen=True):
    """What a node knows of a job; `info` None: no copy, or it does not answer."""

    node: Node
    info: JobInfo | None
    is_up: bool


class JobFacts(msgspec.Struct):
    """What all nodes know of one job."""

    id: str
    copies: list[Copy]
    result: Result | None
    dead: DeadJob | None
    away: str = ""  # why it is not known, or its result: nodes that do not answer
    schedule: str = ""  # the name of the schedule that it is
    plan: Schedule | None = None  # what is known of that

    @property
    def best(self) -> JobInfo | None:
        """The copy that says most: the queued one, then one that has it at work."""
        order = {"queued": 0, "active": 1, "wait-repl": 2, "acked": 3}
        infos = [one.info for one in self.copies if one.info is not None]
        infos.sort(key=lambda one: (order.get(one.state, 9), one.next_requeue_within_ms or 1 << 60))
        return infos[0] if infos else None

    @property
    def work(self) -> JobWork | None:
        """The work on it, by the node that knows of the latest run."""
        found = [one.info.work for one in self.copies if one.info and one.info.work]
        return max(found, key=lambda one: (one.starts, one.failed), default=None)

    @property
    def deliveries(self) -> int:
        """How often nodes that answer have handed it out."""
        return sum(one.info.deliveries for one in self.copies if one.info)

    @property
    def first_delivery_s(self) -> float:
        """When it was handed out first (unix s), as far as a node knows; 0: never."""
        found = [one.info.first_delivery_ms for one in self.copies if one.info]
        return min((ms for ms in found if ms), default=0) / 1000

    @property
    def last_delivery_s(self) -> float:
        """When it was handed out last."""
        found = [one.info.last_delivery_ms for one in self.copies if one.info]
        return max((ms for ms in found if ms), default=0) / 1000

    @property
    def due_ms(self) -> int | None:
        """How long it waits for its time; None if it is queued, or has none."""
        if self.best is None or self.best.state == "queued":
            return None
        found = [one.info.next_requeue_within_ms for one in self.copies if one.info]
        return min((ms for ms in found if ms is not None), default=None)

    @property
    def is_known(self) -> bool:
        return self.best is not None or self.result is not None


async def job_of(nodes: Nodes, id: str) -> JobFacts:
    """Asks all nodes. BadId if it is no id."""

    async def shown(client: Client) -> JobInfo | None:
        return await client.show(id)

    async def dead(client: Client) -> DeadJob | None:
        try:
            return await client.dead_show(id)
        except (NoJob, TubeHome):  # of a tube only its leader has it
            return None

    infos, letters = await asyncio.gather(nodes.ask(shown), nodes.ask(dead))
    up = {node.id for node in nodes.up()}
    copies = [Copy(node, infos.get(node.id), node.id in up) for node in nodes.known.values()]
    copies.sort(key=lambda one: one.node.place)
    holders = [one.node for one in copies if one.info is not None]
    result, away = await outcome_of(nodes, id, holders[:1])
    found = next((one for one in letters.values() if one is not None), None)
    facts = JobFacts(id, copies, result, found, away)
    facts.schedule = max((one.info.schedule for one in copies if one.info), default="")
    if facts.schedule and facts.best is not None:
        facts.plan = await plan_of(nodes, facts.best.queue or "", facts.schedule, holders)
    return facts


async def plan_of(nodes: Nodes, queue: str, name: str, holders: list[Node]) -> Schedule | None:
    """That schedule as the leader of its tube knows it; None: it ends now."""

    async def question(client: Client) -> Schedule:
        return await client.schedule_show(queue, name)

    found = (await nodes.ask(question, holders)).values()
    return next(iter(found), None)


async def outcome_of(nodes: Nodes, id: str, holders: list[Node]) -> tuple[Result | None, str]:
    """[O14] What a holder says became of a job, or any node: one may keep it alone (O14.12).

    Without that, which nodes may know it and do not answer; empty: none.
    """

    async def question(client: Client) -> Result | str:
        try:
            return await client.result(id)
        except NotInReach as err:
            return err.message.removeprefix("NOREACH ")
        except ReplyError:
            return ""

    heard = (await nodes.ask(question, holders or nodes.up())).values()
    results = [one for one in heard if isinstance(one, Result)]
    if results:
        return max(results, key=lambda one: one.ended_ms), ""
    return None, max((one for one in heard if isinstance(one, str)), key=len, default="")


class JobRow(msgspec.Struct, frozen=True):
    """A job in a list."""

    id: str
    node: str
    state: str
    retry_s: int
    age_s: float
    due_ms: int | None
    deliveries: int
    body: bytes


async def peeked(nodes: Nodes, queue: str) -> list[tuple[str, Job]]:
    """The next ready jobs of each node, with the node's name; the oldest first on each."""

    async def question(client: Client) -> list[Job]:
        return await client.qpeek(queue, ROWS)

    answers = await nodes.ask(question)
    rows = [(id[:8], job) for id, jobs in answers.items() for job in jobs]
    return rows[:ROWS]


Found: TypeAlias = tuple[list[JobRow], bool]


async def active(nodes: Nodes, queue: str, now_s: float) -> Found:
    """Jobs that are not ready: delivered, delayed or in back-off; and whether that is all.

    Each job once, by the copy that is due first; no schedules and parts of groups (O14.25).
    """

    async def question(client: Client) -> tuple[list[JobInfo], bool]:
        found: list[JobInfo] = []
        cursor = "0"
        for _ in range(PAGES):
            cursor, infos = await client.run(
                jscan_full_page(cursor, queue=queue, states=("active",), count=PAGE)
            )
            found += infos
            if cursor == "0":
                return found, True
        return found, False

    async def ready(client: Client) -> list[Job]:
        return await client.qpeek(queue, LOOKED_AT)

    answers = await nodes.ask(question)
    queued: set[str] = set()
    if any(infos for infos, _ in answers.values()):
        for jobs in (await nodes.ask(ready)).values():
            queued.update(job.id for job in jobs)
    best: dict[str, JobRow] = {}
    for id, (infos, _) in answers.items():
        for info in infos:
            row = row_of(id[:8], info, now_s)
            other = best.get(info.id)
            is_first = other is None or sooner(row, other)
            if info.is_job and info.id not in queued and is_first:
                best[info.id] = row
    rows = sorted(best.values(), key=lambda row: (row.due_ms is None, row.due_ms or 0, row.id))
    return rows, all(is_all for _, is_all in answers.values())


def sooner(row: JobRow, other: JobRow) -> bool:
    """Whether one copy is due before another."""
    return row.due_ms is not None and (other.due_ms is None or row.due_ms < other.due_ms)


def row_of(node: str, info: JobInfo, now_s: float) -> JobRow:
    """A row of what SHOW says."""
    return JobRow(
        info.id,
        node,
        info.state,
        info.retry_s,
        max(0.0, now_s - info.ctime_ns / 1e9),
        info.next_requeue_within_ms,
        info.nacks + info.additional_deliveries,
        info.body or b"",
    )
