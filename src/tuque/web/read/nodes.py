"""The nodes of a cluster, each with a client of its own; which of them answer.

Decides when a node counts as silent, and that nobody waits for one twice: after a call without an
answer a node is stuck, and is asked no more until it answers a call that nobody waits for. Members
are learned from the nodes that answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from tuque.aio import Client
from tuque.client.api import ClusterNode
from tuque.client.retry import Retry
from tuque.client.url import Settings, url_of
from tuque.errors import Error, ReplyError

T = TypeVar("T")
log: Final = logging.getLogger("tuque.web")

SILENT_S: Final = 10.0  # two beats
CALL_S: Final = 3.0
CONNECT_S: Final = 1.0
CONNECTIONS: Final = 8  # to each node


class Node:
    """One member: where it is, and when it last answered (unix s, 0: never)."""

    def __init__(self, id: str, host: str, port: int, client: Client) -> None:
        self.id = id
        self.host = host
        self.port = port
        self.client = client
        self.heard_s = 0.0
        self.back_s = 0.0  # when it answered again after it did not; 0: it always did
        self.error = ""
        self.is_stuck = False  # a call got no answer, and none did since
        self.trial: asyncio.Task[None] | None = None  # whether it answers again

    @property
    def short(self) -> str:
        """The first eight characters of its id, as jobs' ids have them."""
        return self.id[:8]

    @property
    def place(self) -> str:
        """Its address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def silent_s(self, now_s: float) -> float:
        """How long it has not answered."""
        return max(0.0, now_s - self.heard_s)

    def is_up(self, now_s: float) -> bool:
        """[O14] Whether it answers, and its figures count: pages ask no other (O14.1)."""
        return not self.error and not self.is_stuck and self.silent_s(now_s) < SILENT_S


class Nodes:
    """All members that are known, by id."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seeds = {seed: self._client(*seed) for seed in settings.seeds}
        self._homes: dict[str, tuple[str, int]] = {}  # of the seeds: the address that was given
        self.known: dict[str, Node] = {}
        self.when_back: Callable[[], object] = bool  # called when one that was stuck answers
        self.tried_s = 0.0
        self.refused = ""  # why the last seed that was tried gave no member
        self.is_refused = False  # and whether it answered so, with an error

    def _client(self, host: str, port: int) -> Client:
        url = f"tuque+unix://{host}" if port == 0 else url_of(self._settings, host, port)
        return Client(
            url,
            discover=False,
            follow=False,
            timeout=CALL_S,
            connect_timeout=CONNECT_S,
            retry=Retry(attempts=1),
            max_connections=CONNECTIONS,
            name="tuque-console",
        )

    @property
    def places(self) -> list[str]:
        """Where the console looks for nodes."""
        seeds = [f"{host}:{port}" if port else host for host, port in self._settings.seeds]
        return [node.place for node in self.known.values()] or seeds

    async def look(self) -> None:
        """Asks the seeds who is there, if nobody is known."""
        self.tried_s = time.time()
        if self.known:
            return

        async def first(seed: tuple[str, int], client: Client) -> None:
            try:
                members = await client.cluster_nodes()
            except Error as err:
                if str(err) != self.refused:
                    log.warning("no members from %s:%d: %s", *seed, err)
                self.refused, self.is_refused = str(err), isinstance(err, ReplyError)
                return
            mine = next((one.id for one in members if "myself" in one.flags), None)
            if mine is not None:
                self._homes[mine] = (seed[0], seed[1])
            self.learn(members)

        await asyncio.gather(*(first(seed, client) for seed, client in self._seeds.items()))

    def learn(self, members: Iterable[ClusterNode]) -> None:
        """Adds the members that a node knows; one that is not listed any more is forgotten."""
        for one in members:
            host, port = self._homes.get(one.id, (one.host, one.port))
            if one.id in self.known or not host or "handshake" in one.flags:
                continue
            self.known[one.id] = Node(one.id, host, port, self._client(host, port))

    async def forget(self, ids: Iterable[str]) -> None:
        """Drops members that left the cluster."""
        for id in list(ids):
            node = self.known.pop(id, None)
            if node is not None:
                await node.client.close()
                if node.trial is not None:
                    node.trial.cancel()
                    await asyncio.gather(node.trial, return_exceptions=True)

    async def ask(
        self,
        question: Callable[[Client], Awaitable[T]],
        of: Iterable[Node] | None = None,
        is_beat: bool = False,
    ) -> dict[str, T]:
        """The answers of the nodes that answer, by id; `is_beat`: it decides who is silent.

        Those that are stuck are left out; at a beat they are tried, and nobody waits for that.
        """
        answers: dict[str, T] = {}

        async def one(node: Node) -> None:
            try:
                answers[node.id] = await question(node.client)
            except Error as err:
                if not isinstance(err, ReplyError):
                    node.is_stuck = True
                if is_beat:
                    node.error = str(err)
                return
            now_s = time.time()
            if node.error or node.is_stuck:
                node.back_s = now_s
            node.heard_s, node.error, node.is_stuck = now_s, "", False

        async def again(node: Node) -> None:
            try:
                await one(node)
            finally:
                node.trial = None
            if not node.is_stuck:
                self.when_back()

        meant = list(self.known.values()) if of is None else list(of)
        if is_beat:
            for node in meant:
                if node.is_stuck and node.trial is None:
                    node.trial = asyncio.create_task(again(node))
        await asyncio.gather(*(one(node) for node in meant if not node.is_stuck))
        return answers

    @property
    def is_cut_off(self) -> bool:
        """Whether nobody answers: what a page asked for is not known."""
        now_s = time.time()
        silent = [not node.is_up(now_s) for node in self.known.values()]
        return all(silent) and bool(silent or self.tried_s)

    def up(self) -> list[Node]:
        """The nodes that answer."""
        now_s = time.time()
        return [node for node in self.known.values() if node.is_up(now_s)]

    async def close(self) -> None:
        """Ends all connections."""
        await self.forget(list(self.known))
        for client in self._seeds.values():
            await client.close()
