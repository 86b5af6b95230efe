"""The nodes as commands ask them, and what a command shows: queues, workers, dead letters.

Decides which nodes a command asks, and how much is read. What the node of the options refuses ends
the command; another one that does not answer is named, and left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

import click

from tuque.aio import Client
from tuque.client.api import ClusterNode
from tuque.client.commands.calls import Call
from tuque.client.commands.dead import IDS_AT_ONCE, DeadCount, DeadJob, DeadLetter, at_once
from tuque.client.commands.groups import JobGroup, group_page
from tuque.client.commands.operate import (
    KeyRow,
    QueueOrder,
    QueueRow,
    WorkerInfo,
    limits_page,
)
from tuque.client.retry import Retry
from tuque.client.url import Address, url_of
from tuque.clusterview.figures import NodeRow, merged_worker, node_row, ordered
from tuque.clusterview.nodes import Node, Nodes
from tuque.clusterview.queues import FEW, Wish, listed
from tuque.errors import Error, NoJob, ReplyError, TubeHome
from tuque.nodeoptions import NodeOptions, ended
from tuque.terminal import printable

logging.getLogger("tuque.client").addHandler(logging.NullHandler())  # commands say it themselves

T = TypeVar("T")

FAILS: Final = "journal-fails"  # the word of CLUSTER NODES and VOTERS
AWAY: Final = ("handshake", "fail", "fail?", "noaddr")  # flags of nodes that are not asked
ANSWER_S: Final = 3.0
TOGETHER: Final = 200  # calls sent at once: their replies must find room while they are sent
MORE: Final = 4  # times the rows wanted: a queue may be far down at each node, and high in the sum
LEAST: Final = 200  # rows that are asked for
TUBES: Final = 50  # that are asked for groups of jobs and keys: a page of each
KEYS: Final = 20  # of a tube: those with the longest wait come first
TASKS: Final = "tasks"  # the type of these tubes


def own_first(node: ClusterNode) -> tuple[bool, str, int]:
    """For an order: the node asked, then others by address."""
    return "myself" not in node.flags, node.host, node.port


def is_away(node: ClusterNode) -> bool:
    """Whether the node asked has no link to that one.

    One that is silent because its journal fails is there: it answers clients.
    """
    if FAILS in node.flags:
        return not node.connected
    return not node.connected or any(flag in node.flags for flag in AWAY)


class NodesInReach(Nodes):
    """The node of the options, and those that it has a link to.

    What the first one refuses is raised; another one is left out until it is tried again.
    """

    def __init__(
        self, node: NodeOptions, is_here: bool = False, answer_s: float | None = ANSWER_S
    ) -> None:
        """`is_here`: the node asked alone; `answer_s` None: as long as the URL says."""
        super().__init__(node.settings())
        self._is_here = is_here
        self._answer_s = answer_s
        self.first = Node("", "", 0, self._client_of(node.full_url()))
        self.known[""] = self.first
        self.members: list[ClusterNode] = []  # that the node asked knows, itself first
        self._away: dict[str, str] = {}  # those of them without a link, and why

    def _client(self, host: str, port: int) -> Client:
        return self._client_of(url_of(self._settings, host, port))

    def _client_of(self, url: str) -> Client:
        """A client of one node; a person does not wait for one that is not there."""
        return Client(url, discover=False, timeout=self._answer_s, retry=Retry(attempts=1))

    async def look(self) -> None:
        """Learns which nodes there are, and tries silent ones again."""
        if not self._is_here:
            self.members = sorted(await self.first.client.cluster_nodes(), key=own_first)
        own = [one.id for one in self.members if "myself" in one.flags]
        others = [one for one in self.members if one.id not in own]
        near = [one for one in others if not is_away(one)]
        self._away = {
            str(Address(one.host, one.port)): FAILS if FAILS in one.flags else "unreachable"
            for one in others
            if is_away(one)
        }
        del self.known[self.first.id]
        await self.forget(self.known.keys() - {one.id for one in near})
        self.first.id = own[0] if own else ""
        self.first.is_stuck = False
        self.known = {self.first.id: self.first, **self.known}
        self.learn(near)
        for node in self.known.values():
            if not node.is_stuck:
                node.error = ""
        await self.ask(Client.ping, [one for one in self.known.values() if one.is_stuck], True)

    async def ask(
        self,
        question: Callable[[Client], Awaitable[T]],
        of: Iterable[Node] | None = None,
        is_beat: bool = False,
    ) -> dict[str, T]:
        """The answers of the nodes that answer, the first one's first."""
        refused: list[Error] = []

        async def heeded(client: Client) -> T:
            try:
                return await question(client)
            except Error as err:
                if client is self.first.client:
                    refused.append(err)
                raise

        meant = [
            one for one in (self.known.values() if of is None else of) if is_beat or not one.error
        ]
        answers = await super().ask(heeded, meant, is_beat=True)
        if refused:
            raise refused[0]
        return {one.id: answers[one.id] for one in meant if one.id in answers}

    @property
    def silent(self) -> dict[str, str]:
        """Nodes that do not answer, and why."""
        failed = {one.place: one.error for one in self.known.values() if one.error}
        return {**self._away, **failed}

    def warn(self, what: str = "figures") -> None:
        """Names the nodes that do not answer on standard error."""
        for place, why in self.silent.items():
            click.echo(printable(f"{place}: {why}; its {what} are left out"), err=True)

    def clients(self) -> list[Client]:
        """Clients of the first node, and of those that answer."""
        return [one.client for one in self.known.values() if one is self.first or not one.error]

    @property
    def host(self) -> str:
        """Where the node asked was found, which may not know its own host."""
        return self.first.client.node.rpartition(":")[0].strip("[]")

    async def run_here(self, calls: list[Call[T]]) -> list[Any]:
        """The replies of the node asked, with an exception for each call that failed."""
        return await in_parts(self.first.client, calls)

    async def run_at(self, places: list[str], calls: list[Call[T]]) -> list[Any]:
        """The reply to each call from the node at its place, with few requests a node.

        None where no node in reach is there, or it does not answer.
        """
        replies: list[Any] = [None] * len(calls)
        for node in list(self.known.values()):
            mine = [i for i, wanted in enumerate(places) if wanted and wanted == address_of(node)]
            question = partial(in_parts, calls=[calls[i] for i in mine])
            for found in (await self.ask(question, [node] if mine else [])).values():
                for i, reply in zip(mine, found, strict=True):
                    replies[i] = reply
        return replies

    def letters(self) -> Letters:
        """The dead letters of these nodes."""
        return Letters(self.clients())

    async def queues(
        self,
        sort: QueueOrder = "oldest",
        desc: bool = True,
        match: str | None = None,
        type: str | None = None,
        limit: int = 50,
    ) -> tuple[list[QueueRow], int]:
        """The first queues of the cluster in an order, and how many there are.

        Figures are sums, ages the greatest.
        """
        most = min(FEW, max(MORE * limit, LEAST))
        listing = await listed(self, Wish(sort, desc, match, type, most))
        rows = ordered([queue.row() for queue in listing.queues.values()], sort, desc)
        return rows[:limit], max(len(rows), listing.total)

    async def _pages(
        self, match: str | None, page: Callable[[str], Call[tuple[str, list[T]]]]
    ) -> list[tuple[str, T]]:
        """A page of each of the first tubes of type tasks, from its leader: the tube, and a row."""
        tubes, _ = await self.queues("name", False, match, TASKS, TUBES)

        async def question(client: Client) -> list[tuple[str, T]]:
            found: list[tuple[str, T]] = []
            replies: list[Any] = await client.run_all([page(tube.name) for tube in tubes])
            for tube, reply in zip(tubes, replies, strict=True):
                if isinstance(reply, tuple):
                    found += [(tube.name, row) for row in reply[1]]
                elif not isinstance(reply, ReplyError):  # another node names the leader
                    raise reply
            return found

        answers = await self.ask(question) if tubes else {}
        return [row for some in answers.values() for row in some]

    async def groups(self, match: str | None) -> list[JobGroup]:
        """Groups of jobs that are not their callback, open ones first, the oldest of them first."""
        rows = await self._pages(match, lambda tube: group_page(tube, "0"))
        by_id = {row.id: row for _, row in rows}  # a leader that changes meanwhile
        return sorted(by_id.values(), key=lambda row: (row.state != "open", row.created_ms, row.id))

    async def keys(self, match: str | None) -> list[tuple[str, KeyRow]]:
        """Limits and rates that tasks wait for, each with its tube, the longest wait first."""
        rows = await self._pages(match, lambda tube: limits_page(tube, "0", count=KEYS))
        waited = [(tube, row) for tube, row in rows if row.since_ms]
        return sorted(waited, key=lambda row: (row[1].since_ms, row[0], row[1].key))

    async def workers(self) -> list[WorkerInfo]:
        """The workers of the cluster: those that are lost first, then by name."""
        rows: dict[str, list[WorkerInfo]] = {}
        for some in (await self.ask(workers_at)).values():
            for one in some:
                rows.setdefault(one.name, []).append(one)
        merged = [merged_worker(some) for some in rows.values()]
        return sorted(merged, key=lambda one: (one.state != "lost", one.name))

    async def order(self, name: str, word: str) -> bool:
        """Asks the worker to be quiet or to stop; False: it is alive at no node."""
        found = False
        for client in self.clients():
            for one in await workers_at(client):
                if one.name == name and one.state != "lost":
                    found = True
                    ask = client.worker_quiet if word == "quiet" else client.worker_stop
                    await ask(name)
        return found

    async def nodes(self) -> list[NodeRow]:
        """All nodes, the one asked first."""
        found = await self.ask(Client.info)
        rows = [node_row(address_of(self.known[id]), id, info) for id, info in found.items()]
        return rows + [NodeRow(place, error=why) for place, why in sorted(self.silent.items())]


async def workers_at(client: Client) -> list[WorkerInfo]:
    """Those that one node knows."""
    return [one async for one in client.workers()]


async def in_parts(client: Client, calls: list[Call[T]]) -> list[Any]:
    """The replies of a node to many calls."""
    return [
        reply
        for at in range(0, len(calls), TOGETHER)
        for reply in await client.run_all(calls[at : at + TOGETHER])
    ]


def address_of(node: Node) -> str:
    """Where a node was found."""
    return node.client.node or node.place


def asked(
    node: NodeOptions,
    question: Callable[[NodesInReach], Awaitable[T]],
    is_here: bool = False,
    answer_s: float | None = ANSWER_S,
) -> T:
    """What a command wants to know of all nodes; ClickException for what the first one refuses."""

    async def answered() -> T:
        nodes = NodesInReach(node, is_here, answer_s)
        try:
            await nodes.look()
            return await question(nodes)
        finally:
            await nodes.close()

    try:
        return asyncio.run(answered())
    except Error as err:
        raise ended(err) from None


# ---- The dead letters of a whole cluster, each of them once.
#
# Decides which nodes are asked. A letter with copies is on several nodes; the first of them in
# reach shows, replays or removes it, and tells the others.


OnPage = Callable[[int, int], object]


class Letters:
    """The dead letters at these nodes."""

    def __init__(self, clients: list[Client]) -> None:
        self._clients = clients

    async def each(self, queue: str, **selected: Any) -> AsyncIterator[DeadLetter]:
        """Those that are selected, in the order of each node."""
        async for _, letter in self._found(queue, selected):
            yield letter

    async def _found(
        self, queue: str, selected: dict[str, Any]
    ) -> AsyncIterator[tuple[Client, DeadLetter]]:
        seen: set[str] = set()
        for client in self._clients:
            try:
                async for letter in client.dead_letters(queue, **selected):
                    if letter.id not in seen:
                        seen.add(letter.id)
                        yield client, letter
            except TubeHome:  # the letters of a tube are at its leader
                if len(self._clients) == 1:
                    raise

    async def show(self, id: str) -> DeadJob:
        """All of one; raises `NoJob` if it is none."""
        for client in self._clients[:-1]:
            try:
                return await client.dead_show(id)
            except (NoJob, TubeHome):
                pass
        return await self._clients[-1].dead_show(id)

    async def counts(self, queue: str) -> list[DeadCount]:
        """How many have a cause and a reason, the greatest count first."""
        if len(self._clients) == 1:
            return await self._clients[0].dead_stat(queue)
        found = Counter([(one.cause, one.reason) async for one in self.each(queue)])
        return [DeadCount(*about, count) for about, count in found.most_common()]

    async def length(self, queue: str) -> int:
        """How many letters the node has that has the most."""
        most = 0
        for client in self._clients:
            try:
                most = max(most, sum(one.count for one in await client.dead_stat(queue)))
            except TubeHome:
                if len(self._clients) == 1:
                    raise
        return most

    async def has_jobs(self, queue: str) -> bool:
        """Whether jobs are queued there, whatever they are."""
        for client in self._clients:
            try:
                if await client.qlen(queue):
                    return True
            except TubeHome:  # the jobs of a tube are at its leader
                if len(self._clients) == 1:
                    raise
        return False

    async def replay(
        self,
        queue: str,
        ids: Iterable[str],
        to: str | None,
        on_page: OnPage,
        rate: int | None = None,
        **selected: Any,
    ) -> int:
        """Puts them back to work, at most `rate` a second; how many."""
        return await self._change(
            queue,
            ids,
            selected,
            on_page,
            lambda c: lambda **page: c.dead_replay(**page, to=to, rate=rate),
            at_once(rate),
        )

    async def purge(self, queue: str, ids: Iterable[str], on_page: OnPage, **selected: Any) -> int:
        """Removes them; how many."""
        return await self._change(queue, ids, selected, on_page, lambda c: c.dead_purge)

    async def _change(
        self,
        queue: str,
        ids: Iterable[str],
        selected: dict[str, Any],
        on_page: OnPage,
        change: Callable[[Client], Callable[..., Awaitable[int]]],
        most: int = IDS_AT_ONCE,
    ) -> int:
        named = list(dict.fromkeys(ids))
        if len(self._clients) == 1:
            return await change(self._clients[0])(
                queue=queue, ids=named, on_page=on_page, **selected
            )
        found = self._found(queue, {} if named else selected)
        rows = [(client, letter.id) async for client, letter in found]
        wanted = set(named)
        done = seen = 0
        refused: ReplyError | None = None
        for client in self._clients:
            mine = [id for c, id in rows if c is client and (not wanted or id in wanted)]
            for at in range(0, len(mine), most):
                page = mine[at : at + most]
                try:
                    done += await change(client)(queue=queue, ids=page)
                except ReplyError as err:  # those of other nodes may be changed
                    refused = refused or err
                seen += len(page)
                on_page(done, seen)
        if refused is not None:
            refused.args = (f"{refused.message}; done at other nodes: {done:,}",)
            raise refused
        return done
