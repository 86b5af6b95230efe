"""Jobs, workers, groups of jobs and topics as all nodes know them, each once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from typing import Final, Literal, TypeAlias

import msgspec

from tuque.aio import Client
from tuque.client.api import Job, JobInfo, JobWork
from tuque.client.commands.calls import jscan_full_page
from tuque.client.commands.dead import DeadJob
from tuque.client.commands.groups import (
    GroupChild,
    GroupStatus,
    JobGroup,
    children_page,
    group_page,
)
from tuque.client.commands.operate import Deploy, WorkerInfo, WorkerRun
from tuque.client.commands.schedules import Schedule
from tuque.client.commands.topics import Subscription, topic_page
from tuque.client.commands.work import Result
from tuque.clusterview.figures import merged_worker
from tuque.clusterview.nodes import Node, Nodes
from tuque.clusterview.queues import PAGE as ROWS_PAGE
from tuque.clusterview.queues import PLANS, Lists, RefreshBudget, first_of
from tuque.errors import NoJob, NoJobGroup, NotInReach, ReplyError, TubeHome

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
            return await client.result(id, with_body=True, with_attempts=True)
        except NotInReach as err:
            return err.message.removeprefix("NOREACH ")
        except ReplyError:
            return ""

    received = (await nodes.ask(question, holders or nodes.up())).values()
    results = [one for one in received if isinstance(one, Result)]
    if results:
        return max(results, key=lambda one: one.ended_ms), ""
    return None, max((one for one in received if isinstance(one, str)), key=len, default="")


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


# ---- Workers as the nodes know them (SPEC O12), each once, with the runs of all nodes


WORKERS_PAGE: Final = 1_000
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
        self._received: dict[tuple[int, str, tuple[str, ...]], Deploy] = {}

    async def marks(self, nodes: Nodes) -> list[Mark]:
        """All that is known now (SPEC O12.6), oldest first."""

        async def question(client: Client) -> list[Deploy]:
            return await client.worker_deploys()

        for some in (await nodes.ask(question)).values():
            self.learn(some)
        return changes(self._received.values())

    def learn(self, told: Iterable[Deploy]) -> None:
        """Adds what a node told; the latest stay."""
        self._received |= {(one.at_ms, one.app, one.queues): one for one in told}
        for key in sorted(self._received)[:-DEPLOYS_KEPT]:
            del self._received[key]


def changes(received: Iterable[Deploy]) -> list[Mark]:
    """What of that changed the version of a queue, which another node may have known before.

    Nodes and workers of other queues that say the same within ROLL_S are one deploy; a queue that
    comes back to a version within that time is another one.
    """
    marks: list[Mark] = []
    known: dict[str, str] = {}
    for one in sorted(received, key=lambda one: one.at_ms):
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
        return [one async for one in client.workers(count=WORKERS_PAGE)]

    received: dict[str, list[tuple[str, WorkerInfo]]] = {}
    for id, infos in (await nodes.ask(question)).items():
        for one in infos:
            received.setdefault(one.name, []).append((id, one))
    rows = [worker_row(some) for some in received.values()]
    return sorted(rows, key=need)


def need(one: WorkerRow) -> tuple[int, bool, str]:
    """[O14] The order of workers: lost ones with jobs come first (O14.3)."""
    return ORDER.index(one.state), one.state == "lost" and not one.runs, one.name


def worker_row(received: list[tuple[str, WorkerInfo]]) -> WorkerRow:
    """One worker out of what the nodes that heard it say (SPEC O12.4)."""
    node, _ = min(received, key=lambda one: one[1].heard_ms)
    info = merged_worker([one for _, one in received])
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


# ---- Groups of jobs as the leaders of their tubes know them, and the children of one, page by
# page.
#
# Decides how much is read: lists of groups as those of schedules are, children only those shown.


CALLED: Final = "called"
STEPS: Final = 20  # commands for one page of children: each looks at 1,000 of up to 10,000
ChildState: TypeAlias = Literal["", "open", "done", "failed", "dead"]


class GroupRow(msgspec.Struct, frozen=True):
    """A group, and the leader of its tube."""

    node: str
    group: JobGroup

    @property
    def name(self) -> str:
        """Its tube and its id, as filters see it."""
        return f"{self.group.queue} {self.group.id}"


class Read(msgspec.Struct):
    """One list of groups, as it was read last; `is_all`: none has more (O14.28)."""

    rows: list[GroupRow] = []
    is_all: bool = True
    thrift: RefreshBudget = msgspec.field(default_factory=RefreshBudget)
    at: frozenset[str] = frozenset()


class Groups:
    """The groups of all tubes, as they were read last; each at the leader of its tube."""

    def __init__(self, nodes: Nodes, lists: Lists) -> None:
        self._nodes = nodes
        self._lists = lists
        self._kept: dict[bool, Read] = {}

    def expire(self) -> None:
        """They have changed: the next page reads them anew."""
        self._kept.clear()

    async def of(self, queue: str) -> list[GroupRow]:
        """All of one tube, also those that are their callback."""
        both = [await self.every(False), await self.every(True)]
        return [row for read in both for row in read.rows if row.group.queue == queue]

    async def every(self, is_called: bool) -> Read:
        """[O14] Those that are their callback, or all others; open ones first (O14.28)."""
        read = self._kept.setdefault(is_called, Read())
        up = frozenset(node.id for node in self._nodes.up())
        if read.thrift.may() or up != read.at:
            begun_s = time.monotonic()
            listing = await self._lists.of(PLANS)
            names, is_all = list(listing.queues), len(listing.queues) >= listing.total
            state: GroupStatus | None = "called" if is_called else None
            page = partial(group_page, state=state)

            async def question(client: Client) -> tuple[list[JobGroup], bool]:
                return await first_of(client, names, page)

            found = await self._nodes.ask(question) if names else {}
            rows = [GroupRow(id, one) for id, (some, _) in found.items() for one in some]
            read.rows = sorted(rows, key=by_need)
            read.is_all = is_all and all(whole for _, whole in found.values())
            read.at = up
            read.thrift.spent(time.monotonic() - begun_s)
        return read


def by_need(row: GroupRow) -> tuple[bool, int, str]:
    """The order of groups: open ones first, the oldest of them first; then what ended last."""
    one = row.group
    is_open = one.state == "open"
    return not is_open, one.created_ms if is_open else -(one.over_ms or one.created_ms), one.id


class ChildrenFound(msgspec.Struct, frozen=True):
    """A group, and the node that leads its tube; None: `is_gone`, or no node that answers does."""

    node: Node | None = None
    group: JobGroup | None = None
    is_gone: bool = False


async def group_of(nodes: Nodes, tube: str, id: str) -> ChildrenFound:
    """One group, as the leader of its tube says now."""

    async def question(client: Client) -> JobGroup | None:
        try:
            return await client.group_show(tube, id)
        except NoJobGroup:
            return None

    found = await nodes.ask(question)  # other nodes name the leader: an error
    for at, group in found.items():
        node = nodes.known.get(at)
        if group is not None and node is not None:
            return ChildrenFound(node, group)
    return ChildrenFound(is_gone=bool(found))


class Children(msgspec.Struct, frozen=True):
    """Children of a group from an index on; `then`: where the next page begins, 0: nowhere."""

    rows: list[GroupChild]
    then: int


def counts(group: JobGroup) -> dict[ChildState, int]:
    """How many children there are in each state; "": of those that were added."""
    return {
        "": group.added,
        "open": group.added - group.done - group.failed,
        "done": group.done,
        "failed": group.failed,
        "dead": group.dead,
    }


async def children_of(found: ChildrenFound, start: int, state: ChildState) -> Children:
    """[O14] A page of the children of a group, of one state if that is given (O14.29)."""
    node, group = found.node, found.group
    if node is None or group is None:
        return Children([], 0)
    known = counts(group)[state]
    rows: list[GroupChild] = []
    cursor = str(start)
    for _ in range(STEPS):
        if len(rows) >= ROWS_PAGE or (start == 0 and len(rows) >= known):
            break
        page = children_page(
            group.queue,
            group.id,
            cursor,
            count=ROWS_PAGE - len(rows),
            state=state or None,
        )
        cursor, some = await node.client.run(page)
        rows += some
        if cursor == "0":
            break
    is_over = start == 0 and len(rows) >= known
    return Children(rows, 0 if is_over else int(cursor))


# ---- Topics as the nodes know them: each subscription once, with the jobs that came over all nodes


STEP: Final = 1_000  # subscriptions of one reply
TOPIC_STEPS: Final = 10  # a node knows 10,000


class SubscriptionRow(msgspec.Struct):
    """A queue that gets the jobs of a topic; `jobs` came by ADDs at all nodes that answer."""

    topic: str
    queue: str
    filters: dict[str, str]
    jobs: int

    @property
    def name(self) -> str:
        """Its topic and its queue, as filters of the page see it."""
        return f"{self.topic} {self.queue}"


class Topics:
    """All subscriptions, as they were read last."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._rows: list[SubscriptionRow] = []
        self._thrift = RefreshBudget()
        self._read_at: frozenset[str] = frozenset()

    def expire(self) -> None:
        """They have changed: the next page reads them anew."""
        self._thrift = RefreshBudget()

    async def every(self) -> list[SubscriptionRow]:
        """[O14] All that nodes know, by topic and queue (O14.32)."""
        up = frozenset(node.id for node in self._nodes.up())
        if self._thrift.may() or up != self._read_at:
            begun_s = time.monotonic()
            found: dict[tuple[str, str], SubscriptionRow] = {}
            for some in (await self._nodes.ask(all_at)).values():
                for one in some:
                    add(found, one)
            self._rows = [found[at] for at in sorted(found)]
            self._read_at = up
            self._thrift.spent(time.monotonic() - begun_s)
        return self._rows


def add(found: dict[tuple[str, str], SubscriptionRow], one: Subscription) -> None:
    """Count what one node says of a subscription."""
    row = found.setdefault(
        (one.topic, one.queue), SubscriptionRow(one.topic, one.queue, one.filters, 0)
    )
    row.jobs += one.jobs


async def all_at(client: Client) -> list[Subscription]:
    """The subscriptions that a node knows."""
    rows: list[Subscription] = []
    cursor = "0"
    for _ in range(TOPIC_STEPS):
        cursor, some = await client.run(topic_page(cursor, count=STEP))
        rows += some
        if cursor == "0":
            break
    return rows
