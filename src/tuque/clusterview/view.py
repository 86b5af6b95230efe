"""The cluster as commands show it: every node is asked, and the answers are merged.

Decides how much is read of queues, workers, groups, keys and dead letters. A node that does not
answer is kept as such, without figures.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

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
from tuque.client.sync import Client
from tuque.client.url import Settings, url_of
from tuque.clusterview.figures import NodeRow, merged_worker, node_row, ordered, queues_of
from tuque.errors import Error, NoJob, ReplyError, TubeHome
from tuque.nodeoptions import NodeOptions, ended
from tuque.terminal import printable

logging.getLogger("tuque.client").addHandler(logging.NullHandler())  # commands say it themselves

# ---- What tubes of type tasks have besides jobs, for `tuque top`: groups of jobs, and keys.
#
# Decides how much is read: a page of each of the first tubes, at each node.


T = TypeVar("T")

TUBES: Final = 50  # that are asked
KEYS: Final = 20  # of a tube: those with the longest wait come first
TASKS: Final = "tasks"  # the type of these tubes


def groups_of(client: Client, names: Iterable[str]) -> list[JobGroup]:
    """Groups that are not their callback, of the tubes that this node leads."""
    found = pages(client, names, lambda name: group_page(name, "0"))
    return [one for _, some in found for one in some]


def keys_of(client: Client, names: Iterable[str]) -> list[tuple[str, KeyRow]]:
    """Limits and rates that tasks wait for, each with its tube, of those that this node leads."""
    found = pages(client, names, lambda name: limits_page(name, "0", count=KEYS))
    return [(name, row) for name, some in found for row in some if row.since_ms]


def pages(
    client: Client, names: Iterable[str], page: Callable[[str], Call[tuple[str, list[T]]]]
) -> list[tuple[str, list[T]]]:
    """A page of each tube that this node leads; of another one it names the leader."""
    wanted = list(names)[:TUBES]
    found: list[tuple[str, list[T]]] = []
    replies: list[Any] = client.run_all([page(name) for name in wanted]) if wanted else []
    for name, reply in zip(wanted, replies, strict=True):
        if isinstance(reply, tuple):
            found.append((name, reply[1]))
        elif not isinstance(reply, ReplyError):
            raise reply
    return found


# ---- All nodes of a cluster that are in reach


AWAY: Final = ("handshake", "fail", "fail?", "noaddr")  # flags of nodes that are not asked
ANSWER_S: Final = 3.0
PAGE: Final = 1_000
TOGETHER: Final = 200  # calls sent at once: their replies must find room while they are sent
MORE: Final = 4  # times the rows wanted: a queue may be far down at each node, and high in the sum


def own_first(node: ClusterNode) -> tuple[bool, str, int]:
    """For an order: the node asked, then others by address."""
    return "myself" not in node.flags, node.host, node.port


def is_away(node: ClusterNode) -> bool:
    """Whether the node asked has no link to that one.

    One that is silent because its journal fails is there: it answers clients.
    """
    if "journal-fails" in node.flags:
        return not node.connected
    return not node.connected or any(flag in node.flags for flag in AWAY)


class Board:
    """Asks the nodes, and remembers which of them answered last.

    A block of it has looked, and ends with ClickException for what a node refuses.
    """

    def __init__(
        self, node: NodeOptions, is_here: bool = False, answer_s: float | None = ANSWER_S
    ) -> None:
        """`is_here`: the node asked alone; `answer_s` None: as long as the URL says."""
        self._settings: Settings = node.settings()
        self._is_here = is_here
        self._answer_s = answer_s
        self._first = self._client(node.full_url())
        self._clients: dict[str, Client] = {}
        self.members: list[ClusterNode] = []  # that the node asked knows, itself first
        self.silent: dict[str, str] = {}  # nodes that did not answer, and why
        self.count = 0  # queues that were meant last, at the node that has most

    def _client(self, url: str) -> Client:
        """A client of one node; a person does not wait for one that is not there."""
        return Client(url, discover=False, timeout=self._answer_s, retry=Retry(attempts=1))

    def __enter__(self) -> Board:
        try:
            self.look()
        except BaseException as err:
            self.__exit__(type(err), err, None)
            raise
        return self

    def __exit__(self, kind: object, err: BaseException | None, trace: object) -> None:
        self.close()
        if isinstance(err, Error):
            raise ended(err) from None

    def close(self) -> None:
        """Closes all connections."""
        self._first.close()
        for client in self._clients.values():
            client.close()

    def look(self) -> None:
        """Learns which nodes there are; raises what the first one's client raises."""
        self.silent = {}
        places: dict[str, str] = {}
        if not self._is_here:
            self.members = sorted(self._first.cluster_nodes(), key=own_first)
        for other in self.members:
            if "myself" in other.flags:
                continue
            place = f"{other.host}:{other.port}"
            if is_away(other):
                fails = "journal-fails" in other.flags
                self.silent[place] = "journal-fails" if fails else "unreachable"
                continue
            places[place] = url_of(self._settings, other.host, other.port)
        for place in set(self._clients) - set(places):
            self._clients.pop(place).close()
        for place, url in places.items():
            if place not in self._clients:
                self._clients[place] = self._client(url)

    def warn(self, what: str = "figures") -> None:
        """Names the nodes that do not answer on standard error."""
        for place, why in self.silent.items():
            click.echo(printable(f"{place}: {why}; its {what} are left out"), err=True)

    def letters(self) -> Letters:
        """The dead letters of the nodes that are in reach."""
        return Letters(self.clients())

    def clients(self) -> list[Client]:
        """Clients of the nodes that are in reach."""
        return [client for _, client in self._answering()]

    def _answering(self) -> list[tuple[str, Client]]:
        others = [(p, c) for p, c in self._clients.items() if p not in self.silent]
        return [(self._first.node or "node", self._first), *others]

    def _ask(self, call: Callable[[Client], T]) -> list[tuple[Client, T]]:
        """What each node answers; one that does not is silent from now on."""
        found: list[tuple[Client, T]] = []
        for place, client in self._answering():
            try:
                found.append((client, call(client)))
            except Error as err:
                if client is self._first:
                    raise
                self.silent[place] = str(err)
        return found

    def run_here(self, calls: list[Call[T]]) -> list[Any]:
        """The replies of the node asked, with an exception for each call that failed."""
        return [
            reply
            for at in range(0, len(calls), TOGETHER)
            for reply in self._first.run_all(calls[at : at + TOGETHER])
        ]

    def run_at(self, places: list[str], calls: list[Call[T]]) -> list[Any]:
        """The reply to each call from the node at its place, with few requests a node.

        None where no node of the board is there, or it does not answer.
        """
        replies: list[Any] = [None] * len(calls)
        for place, client in self._answering():
            mine = [i for i, wanted in enumerate(places) if wanted == place]
            try:
                for at in range(0, len(mine), TOGETHER):
                    some = mine[at : at + TOGETHER]
                    found = client.run_all([calls[i] for i in some])
                    for i, reply in zip(some, found, strict=True):
                        replies[i] = reply
            except Error as err:
                if client is self._first:
                    raise
                self.silent[place] = str(err)
        return replies

    def queues(
        self,
        sort: QueueOrder = "oldest",
        desc: bool = True,
        match: str | None = None,
        type: str | None = None,
        limit: int = 50,
    ) -> list[QueueRow]:
        """The first queues of the cluster in an order; figures are sums, ages the greatest."""
        wanted = min(PAGE, max(MORE * limit, 200))
        found = self._ask(
            lambda client: client.qlist(match=match, type=type, sort=sort, desc=desc, count=wanted)
        )
        rows = [(client, {row.name: row for row in page.rows}) for client, page in found]
        names = {name: None for _, some in rows for name in some}
        for client, some in rows if len(rows) > 1 else []:
            self._add_missing(client, some, [name for name in names if name not in some])
        merged = queues_of({client.node: some for client, some in rows})
        self.count = max([len(merged), *(page.total for _, page in found)])
        return ordered([queue.row() for queue in merged.values()], sort, desc)[:limit]

    def _add_missing(self, client: Client, rows: dict[str, QueueRow], names: list[str]) -> None:
        """Asks a node for queues that stand further down with it."""
        for at in range(0, len(names), PAGE):
            for row in client.qlist(names=names[at : at + PAGE], count=PAGE).rows:
                rows[row.name] = row

    def tubes(self, match: str | None) -> list[str]:
        """Tubes of type tasks, by name."""
        return [row.name for row in self.queues("name", False, match, TASKS, TUBES)]

    def groups(self, match: str | None) -> list[JobGroup]:
        """Groups of jobs of these tubes, open ones first, the oldest of them first."""
        names = self.tubes(match)
        rows = [row for _, some in self._ask(lambda one: groups_of(one, names)) for row in some]
        by_id = {row.id: row for row in rows}  # a leader that changes meanwhile
        return sorted(by_id.values(), key=lambda row: (row.state != "open", row.created_ms, row.id))

    def keys(self, match: str | None) -> list[tuple[str, KeyRow]]:
        """Keys that tasks of these tubes wait for, the longest wait first."""
        names = self.tubes(match)
        rows = [row for _, some in self._ask(lambda one: keys_of(one, names)) for row in some]
        return sorted(rows, key=lambda row: (row[1].since_ms, row[0], row[1].key))

    def workers(self) -> list[WorkerInfo]:
        """The workers of the cluster: those that are lost first, then by name."""
        rows: dict[str, list[WorkerInfo]] = {}
        for _, some in self._ask(lambda client: list(client.workers())):
            for one in some:
                rows.setdefault(one.name, []).append(one)
        merged = [merged_worker(some) for some in rows.values()]
        return sorted(merged, key=lambda one: (one.state != "lost", one.name))

    def order(self, name: str, order: str) -> bool:
        """Asks the worker to be quiet or to stop; False: it is alive at no node."""
        found = False
        for client in self.clients():
            for one in client.workers():
                if one.name == name and one.state != "lost":
                    found = True
                    client.worker_quiet(name) if order == "quiet" else client.worker_stop(name)
        return found

    @property
    def host(self) -> str:
        """Where the node asked was found, which may not know its own host."""
        return self._first.node.rpartition(":")[0].strip("[]")

    def infos(self) -> dict[str, dict[str, str | int]]:
        """INFO of each node that answers, by id."""
        return {id: info for _, (id, info) in self._facts()}

    def _facts(self) -> list[tuple[Client, tuple[str, dict[str, str | int]]]]:
        return self._ask(lambda client: (client.cluster_myid(), client.info()))

    def nodes(self) -> list[NodeRow]:
        """All nodes, the one asked first."""
        rows = [node_row(client.node, id, info) for client, (id, info) in self._facts()]
        return rows + [NodeRow(place, error=why) for place, why in sorted(self.silent.items())]


# ---- The dead letters of a whole cluster, each of them once.
#
# Decides which nodes are asked. A letter with copies is on several nodes; the first of them in
# reach shows, replays or removes it, and tells the others.


OnPage = Callable[[int, int], object]


class Letters:
    """The dead letters at these nodes."""

    def __init__(self, clients: list[Client]) -> None:
        self._clients = clients

    def each(self, queue: str, **selected: Any) -> Iterator[DeadLetter]:
        """Those that are selected, in the order of each node."""
        for _, letter in self._found(queue, selected):
            yield letter

    def _found(self, queue: str, selected: dict[str, Any]) -> Iterator[tuple[Client, DeadLetter]]:
        seen: set[str] = set()
        for client in self._clients:
            try:
                for letter in client.dead_letters(queue, **selected):
                    if letter.id not in seen:
                        seen.add(letter.id)
                        yield client, letter
            except TubeHome:  # the letters of a tube are at its leader
                if len(self._clients) == 1:
                    raise

    def show(self, id: str) -> DeadJob:
        """All of one; raises `NoJob` if it is none."""
        for client in self._clients[:-1]:
            try:
                return client.dead_show(id)
            except (NoJob, TubeHome):
                pass
        return self._clients[-1].dead_show(id)

    def counts(self, queue: str) -> list[DeadCount]:
        """How many have a cause and a reason, the greatest count first."""
        if len(self._clients) == 1:
            return self._clients[0].dead_stat(queue)
        found = Counter((one.cause, one.reason) for one in self.each(queue))
        return [DeadCount(*about, count) for about, count in found.most_common()]

    def length(self, queue: str) -> int:
        """How many letters the node has that has the most."""
        most = 0
        for client in self._clients:
            try:
                most = max(most, sum(one.count for one in client.dead_stat(queue)))
            except TubeHome:
                if len(self._clients) == 1:
                    raise
        return most

    def has_jobs(self, queue: str) -> bool:
        """Whether jobs are queued there, whatever they are."""
        for client in self._clients:
            try:
                if client.qlen(queue):
                    return True
            except TubeHome:  # the jobs of a tube are at its leader
                if len(self._clients) == 1:
                    raise
        return False

    def replay(
        self,
        queue: str,
        ids: Iterable[str],
        to: str | None,
        on_page: OnPage,
        rate: int | None = None,
        **selected: Any,
    ) -> int:
        """Puts them back to work, at most `rate` a second; how many."""
        return self._change(
            queue,
            ids,
            selected,
            on_page,
            lambda c: lambda **page: c.dead_replay(**page, to=to, rate=rate),
            at_once(rate),
        )

    def purge(self, queue: str, ids: Iterable[str], on_page: OnPage, **selected: Any) -> int:
        """Removes them; how many."""
        return self._change(queue, ids, selected, on_page, lambda c: c.dead_purge)

    def _change(
        self,
        queue: str,
        ids: Iterable[str],
        selected: dict[str, Any],
        on_page: OnPage,
        change: Callable[[Client], Callable[..., int]],
        most: int = IDS_AT_ONCE,
    ) -> int:
        named = list(dict.fromkeys(ids))
        if len(self._clients) == 1:
            return change(self._clients[0])(queue=queue, ids=named, on_page=on_page, **selected)
        rows = [(c, letter.id) for c, letter in self._found(queue, {} if named else selected)]
        wanted = set(named)
        done = seen = 0
        refused: ReplyError | None = None
        for client in self._clients:
            mine = [id for c, id in rows if c is client and (not wanted or id in wanted)]
            for at in range(0, len(mine), most):
                page = mine[at : at + most]
                try:
                    done += change(client)(queue=queue, ids=page)
                except ReplyError as err:  # those of other nodes may be changed
                    refused = refused or err
                seen += len(page)
                on_page(done, seen)
        if refused is not None:
            refused.args = (f"{refused.message}; done at other nodes: {done:,}",)
            raise refused
        return done


@contextmanager
def letters_of(node: NodeOptions, is_here: bool) -> Iterator[Letters]:
    """The letters of the cluster of the node in the options; `is_here`: of that node alone."""
    with Board(node, is_here, answer_s=None) as board:
        board.warn("letters")
        yield board.letters()
