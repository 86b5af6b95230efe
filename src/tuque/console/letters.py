"""The dead letters of a whole cluster, each of them once.

Decides which nodes are asked. A letter with copies is on several nodes; the first of them in
reach shows, replays or removes it, and tells the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tuque.client.commands.dead import IDS_AT_ONCE, DeadCount, DeadJob, DeadLetter, at_once
from tuque.client.sync import Client
from tuque.console.nodes import every_node
from tuque.errors import NoJob, TubeHome
from tuque.nodeoptions import NodeOptions

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
        return any(client.qlen(queue) for client in self._clients)

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
        for client in self._clients:
            mine = [id for c, id in rows if c is client and (not wanted or id in wanted)]
            for at in range(0, len(mine), most):
                page = mine[at : at + most]
                done += change(client)(queue=queue, ids=page)
                seen += len(page)
                on_page(done, seen)
        return done


@contextmanager
def letters_of(node: NodeOptions, is_here: bool) -> Iterator[Letters]:
    """The letters of the cluster of the node in the options; `is_here`: of that node alone.

    ClickException for what a node refuses. A node out of reach is named on standard error.
    """
    with every_node(node, is_here, "letters") as clients:
        yield Letters(clients)
