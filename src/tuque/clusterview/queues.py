"""Queues and tubes of all nodes, a page at a time: lists, their order, who is behind, keys.

Decides how many rows are read, and how often: a node with many queues walks over all their names
for each list. Lists are read again only when that takes less than SHARE of its time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Set
from fnmatch import fnmatchcase
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from tuque.aio import Client
from tuque.client.commands.calls import Call
from tuque.client.commands.leases import LeaseInfo
from tuque.client.commands.operate import KeyRow, QueueOrder, QueuePage, QueueRow, limits_page
from tuque.client.commands.schedules import Schedule, schedule_page
from tuque.client.commands.tubes import HomeInfo, TubeCopy, TubeInfo
from tuque.clusterview.figures import Queue, View, queues_of
from tuque.clusterview.history import Points
from tuque.clusterview.nodes import Node, Nodes
from tuque.errors import Error, ReplyError

FEW: Final = 1_000  # queues that are all read each time: the most rows of a QLIST
FIRST: Final = 200  # read of more
SHARE: Final = 0.004  # of a node's time that lists of many queues may take
LOOKED_S: Final = 6.0  # a list is read again while a page asked for it in that time
LISTS_MAX: Final = 50  # kept
Rows: TypeAlias = dict[str, QueueRow]


class Wish(msgspec.Struct, frozen=True):
    """Which queues, in which order, and how many of them: at most FEW."""

    sort: QueueOrder = "oldest"
    is_down: bool = True
    match: str | None = None
    type: str | None = None
    most: int = FIRST


GRAVES: Final = Wish("ready", True, type="dead", most=FEW)
MOST_DEAD: Final = Wish("dead", True, most=FEW)


class Listing(msgspec.Struct):
    """The first queues of the cluster in an order; `total`: how many are meant, at least."""

    queues: dict[str, Queue]
    total: int
    wanted_s: float = 0.0


class RefreshBudget:
    """When lists may be read again, so that they take no more than SHARE of a node's time."""

    def __init__(self) -> None:
        self._free_s = 0.0

    def may(self) -> bool:
        return time.monotonic() >= self._free_s

    def spent(self, took_s: float) -> None:
        """A node was asked for so long."""
        self._free_s = max(self._free_s, time.monotonic()) + took_s / SHARE


class Lists:
    """The lists that pages look at, kept until they may be read again."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._kept: dict[Wish, Listing] = {}
        self.thrift = RefreshBudget()

    async def of(self, wish: Wish) -> Listing:
        """A list: as it was read last, or read now."""
        found = self._kept.get(wish)
        if found is None:
            begun_s = time.monotonic()
            found = await listed(self._nodes, wish)
            self.thrift.spent(time.monotonic() - begun_s)
            while len(self._kept) >= LISTS_MAX:
                del self._kept[next(iter(self._kept))]
            self._kept[wish] = found
        found.wanted_s = time.monotonic()
        return found

    async def renew(self) -> None:
        """Reads the lists again that a page looked at lately, and forgets the others."""
        now_s = time.monotonic()
        for wish, old in list(self._kept.items()):
            if now_s - old.wanted_s > LOOKED_S:
                del self._kept[wish]
                continue
            found = await listed(self._nodes, wish)
            found.wanted_s = old.wanted_s
            self._kept[wish] = found

    async def named(self, names: Iterable[str]) -> dict[str, Queue]:
        """These queues, as they are now; without those that no node knows."""
        wanted = list(names)

        async def question(client: Client) -> Rows:
            return await rows_named(client, wanted)

        return queues_of(await self._nodes.ask(question))

    async def imports(self, name: str) -> dict[str, tuple[str, ...]]:
        """Which nodes fetch jobs of a queue from which others, by the starts of their ids."""

        async def question(client: Client) -> tuple[str, ...]:
            try:
                stat = await client.qstat(name)
            except ReplyError:
                return ()  # a tube that another node leads
            return tuple(one[:8] for one in stat["import-from"]) if stat else ()

        answers = await self._nodes.ask(question)
        return {id[:8]: found for id, found in answers.items() if found}


async def listed(nodes: Nodes, wish: Wish) -> Listing:
    """One list, from all nodes that answer."""

    async def question(client: Client) -> QueuePage:
        return await page_of(client, wish)

    pages = await nodes.ask(question)
    total = max((page.total for page in pages.values()), default=0)
    rows = await filled(nodes, {id: by_name(page.rows) for id, page in pages.items()}, pages)
    return Listing(queues_of(rows), total)


def has_letters(row: QueueRow) -> bool:
    """Whether it is a tube that keeps dead letters of its own."""
    return row.type not in ("queue", "dead") and row.dead > 0


async def page_of(client: Client, wish: Wish) -> QueuePage:
    """What one node has of a list."""
    return await client.qlist(
        match=wish.match, type=wish.type, sort=wish.sort, desc=wish.is_down, count=wish.most
    )


async def filled(
    nodes: Nodes, rows: dict[str, Rows], pages: dict[str, QueuePage]
) -> dict[str, Rows]:
    """The rows of each node, with those of queues that stand further down with it."""
    names = {name for some in rows.values() for name in some}

    async def rest(client: Client, id: str) -> Rows:
        had = rows[id]
        if len(rows) < 2 or pages[id].total <= len(had):
            return had
        return had | await rows_named(client, [name for name in names if name not in had])

    found: dict[str, Rows] = {}
    for id in rows:
        node = nodes.known.get(id)
        if node is None:
            continue

        async def question(client: Client, id: str = id) -> Rows:
            return await rest(client, id)

        found |= await nodes.ask(question, [node])
    return found


async def rows_named(client: Client, names: list[str]) -> Rows:
    """The rows of these queues at one node."""
    found: Rows = {}
    for at in range(0, len(names), FEW):
        page = await client.qlist(names=names[at : at + FEW], count=FEW)
        found |= by_name(page.rows)
    return found


def by_name(rows: Iterable[QueueRow]) -> Rows:
    return {row.name: row for row in rows}


# ---- Rows of the list of queues: sorted, filtered and cut. Decides the order; asks nobody


PAGE: Final = 50


class Row(msgspec.Struct, kw_only=True):
    """One queue; times in seconds, rates per second, None for what is not known."""

    name: str
    type: str
    is_dead: bool
    ready: int
    oldest_s: float
    delayed: int
    work: int
    came_rate: float
    done_rate: float
    wait_s: float | None
    work_s: float | None
    dead: int
    pause: str
    is_away: bool = False  # a tube whose home does not answer: its figures are not known
    state: Any = None
    spark: Any = ""


def row_of(queue: Queue, points: Points) -> Row:
    """The row of a queue."""
    return Row(
        name=queue.name,
        type=queue.type,
        is_dead=queue.is_dead,
        ready=queue.ready,
        oldest_s=queue.oldest_s,
        delayed=queue.delayed,
        work=queue.work,
        came_rate=queue.came_rate,
        done_rate=queue.done_rate,
        wait_s=points.mean_s("wait-ms", "first-delivered"),
        work_s=points.mean_s("work-ms", "worked"),
        dead=queue.ready if queue.is_dead else queue.dead,
        pause=queue.pause,
    )


ORDERS: Final[Mapping[str, Callable[[Row], Any]]] = {
    "name": lambda row: row.name,
    "oldest": lambda row: 0.0 if row.is_dead else row.oldest_s,
    "ready": lambda row: row.ready,
    "delayed": lambda row: row.delayed,
    "work": lambda row: row.work,
    "in": lambda row: row.came_rate,
    "out": lambda row: row.done_rate,
    "dead": lambda row: row.dead,
}


def in_order(rows: list[Row], by: str, is_down: bool) -> list[Row]:
    """The rows sorted; equal ones by their names."""
    rows = sorted(rows, key=lambda row: row.name)
    return sorted(rows, key=ORDERS[by], reverse=is_down)


def matches(row: Row, wanted: str) -> bool:
    """Whether a row has all words of a filter: part of a name, a glob, type:, tenant:, dead:>n."""
    return all(has(row, word) for word in wanted.split())


def has(row: Row, word: str) -> bool:
    """Whether a row has one word of a filter."""
    name, colon, value = word.partition(":")
    if colon and name == "type":
        return row.type == value
    if colon and name == "tenant":
        return row.name.startswith(f"{value}/")
    if colon and name in ("dead", "ready"):
        least = value.removeprefix(">")
        number = row.dead if name == "dead" else row.ready
        return least.isdigit() and number > int(least)
    if colon and name == "state":
        return value.lower() in row.state.word.lower()
    return fnmatchcase(row.name, word) if "*" in word else word.lower() in row.name.lower()


# ---- Since when queues are behind, as far as looks at the nodes, their points and ages say it.
#
# Decides which of these counts: points end with a restart of their node, and jobs of a node that is
# away are not seen. Asks nobody.


BEHIND_S: Final = 60.0  # a queue whose oldest ready job is older is behind
NEAR_S: Final = 15.0  # three points: what lies so near is one moment
WELL_S: Final = 60.0  # so long a queue must be well until it is behind no longer
KEPT_S: Final = 3600.0  # how long one that was behind is remembered


class Since(msgspec.Struct, frozen=True):
    """A moment (unix s, by the nodes' clocks) from which on a queue is behind.

    `is_seen`: just before it the queue was seen not to be; else it may be so for longer.
    """

    at_s: float
    is_seen: bool


class Behind:
    """Which queues are behind, at each look at all nodes; since when."""

    def __init__(self) -> None:
        self._since: dict[str, Since] = {}
        self._ended: dict[str, tuple[float, Since]] = {}  # when they were seen not to be
        self._looked_s = 0.0  # the last look at all nodes

    def look(self, view: View, points: Mapping[str, Points]) -> None:
        """[O14] Keeps what is seen now, and what points of queues say while they do (O14.6)."""
        now_s = view.clock_s
        late = {one.name: one for one in view.work if one.oldest_s > BEHIND_S}
        for name, queue in late.items():
            least_s = late_s(queue, now_s)
            found = self._since.get(name) or self._again(name, least_s, now_s)
            if found is None or (least_s < found.at_s - NEAR_S and not found.is_seen):
                is_seen = abs(least_s - self._looked_s) <= NEAR_S and found is None
                found = Since(least_s, is_seen)
            self._since[name] = found
            self._since[name] = self.of(queue, points.get(name, Points()), view)
        if view.old:
            return  # a queue may be behind at a node that was not asked
        for name in [one for one in self._since if one not in late]:
            self._ended[name] = (now_s, self._since.pop(name))
        for name in [one for one, (at_s, _) in self._ended.items() if at_s < now_s - KEPT_S]:
            del self._ended[name]
        if view.facts:
            self._looked_s = now_s

    def knows(self, name: str) -> bool:
        """Whether a queue was behind at the last look at all nodes, or is since."""
        return name in self._since

    def _again(self, name: str, least_s: float, now_s: float) -> Since | None:
        """What was known of a queue before it seemed to be well.

        None if it was well for long, and its oldest job is younger than that.
        """
        at_s, found = self._ended.pop(name, (0.0, Since(0.0, False)))
        return found if least_s <= at_s or now_s - at_s < WELL_S else None

    def of(self, queue: Queue, points: Points, view: View) -> Since:
        """[O14] Since when a queue is behind that is: the earliest that is known (O14.6).

        It was well before a moment that was seen: an older job came back since.
        """
        found = [Since(late_s(queue, view.clock_s), False)]
        if queue.name in self._since:
            found.append(self._since[queue.name])
        level = points.above_since_s("oldest-ms", BEHIND_S * 1000)
        if level is not None:
            at = points.at_s.index(level)
            before_s = points.at_s[at - 1] if at else 0.0
            has_all = view.old <= {one.id for one in view.facts}
            is_seen = has_all and before_s > max(level - NEAR_S, *begun_s(view))
            found.append(Since(level, is_seen))
        seen = [one for one in found if one.is_seen]
        return min(seen or found, key=lambda one: one.at_s)


def late_s(queue: Queue, now_s: float) -> float:
    """Since when at least a queue is behind: its oldest job has been late since."""
    return now_s - (queue.oldest_s - BEHIND_S)


def begun_s(view: View) -> list[float]:
    """When the nodes began: they have no points from before."""
    return [one.clock_s - one.number("uptime_in_seconds") for one in view.facts]


# ---- Tubes, their schedules and keys, and leases as their nodes show them, a page at a time.
#
# Decides how much a page may ask: the names of all tubes in one command a node, now and then if
# they are many, and the figures only of those that are shown.


T = TypeVar("T")
STAYED_S: Final = 10.0  # between two looks at which tubes fail over
OF_TUBE: Final = 1_000  # schedules, or groups of jobs, of a tube that are read
KEYS: Final = 1_000  # keys of a tube that are read: one reply of LIMITS
KEPT: Final = 50  # tubes whose keys are kept
KEYED: Final = "tasks"  # the type of tubes that have schedules and keys
PLANS: Final = Wish("name", False, type=KEYED, most=FEW)


class TubeRow(msgspec.Struct, frozen=True):
    """A tube at its home: tasks by status, and the copies elsewhere."""

    info: TubeInfo
    copies: tuple[TubeCopy, ...]


class LeaseRow(msgspec.Struct, frozen=True):
    """A group, and the node that has it."""

    node: str
    info: LeaseInfo


class Part(msgspec.Struct, Generic[T], frozen=True):
    """The rows from the place `start` of `total` that fit, out of `known`."""

    rows: list[T]
    start: int
    total: int
    known: int


class ScheduleRow(msgspec.Struct, frozen=True):
    """A schedule, and the leader of its tube."""

    node: str
    plan: Schedule

    @property
    def name(self) -> str:
        """Its queue and its name, as filters see it."""
        return f"{self.plan.queue} {self.plan.name}"


class Schedules:
    """The schedules of all tubes, as they were read last; each at the leader of its tube."""

    def __init__(self, nodes: Nodes, lists: Lists) -> None:
        self._nodes = nodes
        self._lists = lists
        self._rows: list[ScheduleRow] = []
        self._thrift = RefreshBudget()
        self._read_at: frozenset[str] = frozenset()
        self.is_all = True  # no tube has more than OF_TUBE, and no more than FEW tubes have some

    def expire(self) -> None:
        """They have changed: the next page reads them anew."""
        self._thrift = RefreshBudget()

    async def of(self, queue: str) -> list[ScheduleRow]:
        """Those of one queue, the next one first."""
        return [row for row in await self.every() if row.plan.queue == queue]

    async def every(self) -> list[ScheduleRow]:
        """[O14] All that are known, the next one first (O14.23)."""
        up = frozenset(node.id for node in self._nodes.up())
        if self._thrift.may() or up != self._read_at:
            begun_s = time.monotonic()
            listing = await self._lists.of(PLANS)
            names, is_all = list(listing.queues), len(listing.queues) >= listing.total

            async def question(client: Client) -> tuple[list[Schedule], bool]:
                return await first_of(client, names, schedule_page)

            found = await self._nodes.ask(question) if names else {}
            rows = [ScheduleRow(id, one) for id, (some, _) in found.items() for one in some]
            self._rows = sorted(rows, key=soon)
            self.is_all = is_all and all(whole for _, whole in found.values())
            self._read_at = up
            self._thrift.spent(time.monotonic() - begun_s)
        return self._rows


def soon(row: ScheduleRow) -> tuple[bool, int, str]:
    """The order of schedules: those with a next instant first."""
    return not row.plan.next_ms, row.plan.next_ms, row.name


async def first_of(
    client: Client, names: list[str], page: Callable[[str, str], Call[tuple[str, list[T]]]]
) -> tuple[list[T], bool]:
    """What a node leads of these tubes, OF_TUBE of each; and whether that is all of it.

    `page` is one step of the list of a tube, from a cursor on.
    """
    found: list[T] = []
    left = [(name, "0") for name in names]
    for _ in range(OF_TUBE // 100):
        pages = await client.run_all([page(name, cursor) for name, cursor in left])
        replies = zip(left, pages, strict=True)
        told = [(name, page) for (name, _), page in replies if isinstance(page, tuple)]
        found += [one for _, (_, rows) in told for one in rows]
        left = [(name, cursor) for name, (cursor, _) in told if cursor != "0"]
        if not left:
            return found, True
    return found, False


class KeyRows(msgspec.Struct, frozen=True):
    """Keys that tasks of a tube wait for, and its groups; `is_all`: not only the first KEYS."""

    rows: list[KeyRow] = []
    is_all: bool = True


class TubeKeys:
    """The keys of tubes that pages look at, as they were read last."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._kept: dict[str, KeyRows] = {}
        self._thrift: dict[str, RefreshBudget] = {}

    async def of(self, tube: str) -> KeyRows:
        """[O14] Those of one tube, from its leader (O14.26)."""
        thrift = self._thrift.setdefault(tube, RefreshBudget())
        if tube not in self._kept or thrift.may():
            begun_s = time.monotonic()

            async def question(client: Client) -> tuple[str, list[KeyRow]]:
                return await client.run(limits_page(tube, "0", count=KEYS))

            found = await self._nodes.ask(question)  # other nodes name the leader: an error
            pages = [KeyRows(rows, cursor == "0") for cursor, rows in found.values()]
            self._kept[tube] = pages[0] if pages else KeyRows()
            thrift.spent(time.monotonic() - begun_s)
            while len(self._kept) > KEPT:
                oldest = next(iter(self._kept))
                del self._kept[oldest], self._thrift[oldest]
        return self._kept[tube]


class Tubes:
    """The names of all tubes, as they were read last."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._names: list[str] = []
        self._thrift = RefreshBudget()
        self._looking = RefreshBudget()
        self._staying = 0
        self._stayed_s = -STAYED_S

    async def page(self, wanted: str, start: int) -> Part[TubeRow]:
        """The tubes from a place on, by their names, whose names have all words of a filter."""
        names = await self._every()
        meant = [name for name in names if fits(name, wanted)]
        start = max(0, min(start, len(meant) - 1))
        rows = await tubes_named(self._nodes, meant[start : start + PAGE])
        return Part(rows, start, len(meant), len(names))

    async def staying(self) -> int:
        """[O14] How many tubes do not fail over, of the first FEW (O14.19); read now and then."""
        now_s = time.monotonic()
        if now_s - self._stayed_s > STAYED_S and self._looking.may():
            self._stayed_s = now_s
            names, up = (await self._every())[:FEW], self._nodes.up()
            infos = await infos_at(up[0], names) if up else []
            self._staying = sum(not one.failover for one in infos)
            self._looking.spent(time.monotonic() - now_s)
        return self._staying

    async def _every(self) -> list[str]:
        if len(self._names) > FEW and not self._thrift.may():
            return self._names

        async def names(client: Client) -> list[str]:
            return await client.tube_list()

        begun_s = time.monotonic()
        listed = await self._nodes.ask(names)
        if listed:
            self._names = sorted({name for found in listed.values() for name in found})
        self._thrift.spent(time.monotonic() - begun_s)
        return self._names


def fits(name: str, wanted: str) -> bool:
    """Whether a name has all words of a filter: parts of it, or globs."""
    return all(
        fnmatchcase(name, word) if "*" in word else word.lower() in name.lower()
        for word in wanted.split()
    )


async def tubes_named(nodes: Nodes, names: list[str]) -> list[TubeRow]:
    """These tubes as their homes say, or other nodes if a home is silent; in the same order.

    A name costs at most two commands at each node that does not know it, and two at its home.
    """
    found: dict[str, TubeRow] = {}
    homes: dict[str, list[str]] = {}
    for node in nodes.up():  # the first one knows all of them, but for what is new
        missing = [name for name in names if name not in found]
        here = await rows_at(node, missing) if missing else {}
        found |= here
        for name, row in here.items():
            if row.info.home != node.id:
                homes.setdefault(row.info.home, []).append(name)
    asked = [node for node in nodes.up() if node.id in homes]
    for at_home in await asyncio.gather(*(rows_at(node, homes[node.id]) for node in asked)):
        found |= at_home
    return [found[name] for name in names if name in found]


async def rows_at(node: Node, names: Iterable[str]) -> dict[str, TubeRow]:
    """What a node says of these tubes; without those that it does not know."""
    asked = list(names)
    pipe = node.client.pipeline()
    for name in asked:
        pipe.tube(name).info()
        pipe.tube(name).home()
    try:
        replies = await pipe.execute(raise_on_error=False)
    except Error:
        return {}
    pairs = zip(asked, replies[::2], replies[1::2], strict=True)
    return {
        name: TubeRow(info, home.copies)
        for name, info, home in pairs
        if isinstance(info, TubeInfo) and isinstance(home, HomeInfo)
    }


async def infos_at(node: Node, names: Iterable[str]) -> list[TubeInfo]:
    """What a node says of these tubes; without those that it does not know."""
    pipe = node.client.pipeline()
    for name in names:
        pipe.tube(name).info()
    try:
        replies = await pipe.execute(raise_on_error=False)
    except Error:
        return []
    return [one for one in replies if isinstance(one, TubeInfo)]


async def homes_away(nodes: Nodes, names: Iterable[str], old: Set[str]) -> dict[str, TubeInfo]:
    """Those of these tubes whose home is one of the silent nodes; as other nodes know them."""
    wanted = list(names)
    rows = await tubes_named(nodes, wanted) if old and wanted else []
    return {row.info.name: row.info for row in rows if row.info.home in old}


async def tube_of(nodes: Nodes, name: str) -> TubeRow | None:
    """One tube; None if no node in reach knows it."""
    rows = await tubes_named(nodes, [name])
    return rows[0] if rows else None


async def leases_of(nodes: Nodes, wanted: str, start: int) -> Part[LeaseRow]:
    """The groups of all nodes from a place on, by their names; a node has at most 1,000."""

    async def names(client: Client) -> list[str]:
        return await client.lease_list()

    listed = await nodes.ask(names)
    every = sorted((group, id) for id, groups in listed.items() for group in groups)
    meant = [place for place in every if fits(place[0], wanted)]
    start = max(0, min(start, len(meant) - 1))
    shown = meant[start : start + PAGE]
    found: dict[tuple[str, str], LeaseRow] = {}
    for id in sorted({id for _, id in shown}):
        node = nodes.known.get(id)
        if node is not None:
            groups = [group for group, at in shown if at == id]
            found |= {(row.info.group, id): row for row in await leases_at(node, groups)}
    rows = [found[place] for place in shown if place in found]
    return Part(rows, start, len(meant), len(every))


async def leases_at(node: Node, groups: list[str]) -> list[LeaseRow]:
    """These groups of a node; without those that it does not have."""
    pipe = node.client.pipeline()
    for group in groups:
        pipe.lease_info(group)
    try:
        replies = await pipe.execute(raise_on_error=False)
    except Error:
        return []
    return [LeaseRow(node.id, one) for one in replies if isinstance(one, LeaseInfo)]
