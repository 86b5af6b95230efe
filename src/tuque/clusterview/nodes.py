"""The nodes of a cluster: a client for each, and which of them answer.

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
from tuque.client.url import Address, Settings, url_of
from tuque.errors import Error, ReplyError

T = TypeVar("T")
log: Final = logging.getLogger("tuque.web")

SILENT_S: Final = 10.0  # two beats
CALL_S: Final = 3.0
CONNECT_S: Final = 1.0
# A log-in at a seed: after failed ones it waits 5 s for its turn (N6.1), and on a busy machine as
# long for its proof. Who gave up before would never hear that the password is wrong.
LOG_IN_S: Final = 15.0
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
        return str(Address(self.host, self.port))

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
        self.call_s = CALL_S  # how long each node that is learned may take for an answer
        self._seeds: dict[tuple[str, int], Client] = {}  # those that were asked
        self._asked: dict[tuple[str, int], asyncio.Task[None]] = {}  # the seeds that are asked now
        self._errors: dict[tuple[str, int], Error] = {}  # of the seeds, their last ones
        self._homes: dict[str, tuple[str, int]] = {}  # of the seeds: the address that was given
        self.known: dict[str, Node] = {}
        self.when_back: Callable[[], object] = bool  # called when one that was stuck answers
        self.tried_s = 0.0

    def _client(self, host: str, port: int) -> Client:
        """A client of one member."""
        return self._patient(host, port, CONNECT_S)

    def _patient(self, host: str, port: int, connect_s: float) -> Client:
        url = f"tuque+unix://{host}" if port == 0 else url_of(self._settings, host, port)
        return Client(
            url,
            discover=False,
            follow=False,
            timeout=max(self.call_s, connect_s),
            connect_timeout=connect_s,
            login_timeout=connect_s,
            retry=Retry(attempts=1),
            max_connections=CONNECTIONS,
            name="tuque-console",
        )

    @property
    def places(self) -> list[str]:
        """Where the console looks for nodes."""
        seeds = [f"{host}:{port}" if port else host for host, port in self._settings.seeds]
        return [node.place for node in self.known.values()] or seeds

    @property
    def refused(self) -> str:
        """Why the seeds gave no member: what one of them said, else why none could be asked."""
        errors = sorted(self._errors.values(), key=lambda one: not isinstance(one, ReplyError))
        return str(errors[0]) if errors else ""

    @property
    def is_refused(self) -> bool:
        """[O14] Whether a seed answered with an error (O14.35)."""
        return any(isinstance(one, ReplyError) for one in self._errors.values())

    async def look(self) -> None:
        """Asks the seeds who is there, if nobody is known.

        Nobody waits longer than for a call; a log-in that takes longer goes on.
        """
        self.tried_s = time.time()
        if self.known:
            return
        patience_s = LOG_IN_S if self._settings.has_login else CONNECT_S
        for seed in self._settings.seeds:
            if seed not in self._seeds:
                self._seeds[seed] = self._patient(*seed, patience_s)
            if seed not in self._asked:
                self._asked[seed] = asyncio.create_task(self._ask_seed(seed, self._seeds[seed]))
        done, _ = await asyncio.wait(self._asked.values(), timeout=CALL_S)
        for task in done:
            task.result()

    async def _ask_seed(self, seed: tuple[str, int], client: Client) -> None:
        """The members that one seed knows, or why it does not say."""
        try:
            members = await client.cluster_nodes()
        except Error as err:
            if str(err) != str(self._errors.get(seed, "")):
                log.warning("no members from %s:%d: %s", *seed, err)
            self._errors[seed] = err
            return
        finally:
            del self._asked[seed]
        self._errors.pop(seed, None)
        mine = next((one.id for one in members if "myself" in one.flags), None)
        if mine is not None:
            self._homes[mine] = (seed[0], seed[1])
        self.learn(members)

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
        asked = list(self._asked.values())
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        for client in self._seeds.values():
            await client.close()
