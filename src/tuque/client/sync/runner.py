# Made from src/tuque/client/aio/runner.py by tools/faces.py: change that, and run make docs.
"""How a call of the client for threads runs: its connections, and what follows a failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tuque.client import pipeline
from tuque.client.api import Hello, Reply, to_text
from tuque.client.commands import admin
from tuque.client.commands.calls import Call
from tuque.client.retry import own
from tuque.client.routing.nodes import LIMIT_S
from tuque.client.transport.conn import INFINITE, Lineage, joining, why_closed
from tuque.client.transport.face import (
    IDLE_S,
    IN_SESSION,
    JOIN_S,
    PROOF_S,
    SHORTEST_WAIT_S,
    SLICE_S,
    WAITS,
    WORDS,
    Claim,
    Face,
    Sent,
    Slot,
    Slots,
    greeting,
    log,
    no_answers,
    no_node,
    raise_if_same,
    read_greeting,
)
from tuque.client.transport.sockets import Link, Waiter
from tuque.client.url import Address, Settings, check_call
from tuque.errors import (
    Closed,
    Conflict,
    ConnectionError,
    Error,
    Leaving,
    Loading,
    MaxClients,
    NoQuorum,
    ReadOnly,
    Timeout,
    TubeHome,
)

# ---- The connections of a client to one node: a limited number, and the callers waiting for one


class Pool:
    """Slots for connections; waits for a free one in order, up to a deadline."""

    def __init__(self, limit: int | None) -> None:
        self._slots: Slots[Link] = Slots(limit)
        self._lock = threading.RLock()  # never held over a wait; the collector may call back here

    def take(self, claim: Claim[Link], deadline_s: float) -> Slot[Link]:
        """A slot for the claim, which the caller gives back; Timeout if none is free in time."""
        with self._lock:
            if not self._slots.take(claim):
                claim.waiter = Waiter()
                self._slots.wait(claim)
        while not claim.has_slot:
            assert isinstance(claim.waiter, Waiter)
            if not claim.waiter.wait(deadline_s):
                raise Timeout("all connections of this client stayed busy", retryable=True)
            with self._lock:
                self._slots.admit()
        assert claim.slot is not None
        return claim.slot

    def give(self, claim: Claim[Link]) -> None:
        """Takes back what the claim has, if anything, and closes a connection that is not good."""
        with self._lock:
            self._slots.give(claim)

    def put(self, slot: Slot[Link]) -> None:
        """Takes in an idle connection that was made elsewhere; only if there is no limit."""
        with self._lock:
            self._slots.put(slot)

    def close_idle(self) -> int:
        """Closes the idle connections; returns how many."""
        with self._lock:
            return self._slots.close_idle()

    @property
    def open_count(self) -> int:
        return self._slots.open_count


# ---- runner


T = TypeVar("T")


class Runner(Face):
    """The part of a client that runs calls over its connections."""

    def __init__(
        self,
        settings: Settings,
        on_cancel: Callable[[str, str], object] | None = None,
        on_order: Callable[[str, str], object] | None = None,
    ) -> None:
        check_call("on_cancel", on_cancel)
        check_call("on_order", on_order)
        self._on_cancel = on_cancel
        self._on_order = on_order
        self._forks = -1
        super().__init__(settings)
        self._start_afresh()

    def run(self, call: Call[T]) -> T:
        """Sends a call, retries where that is safe, and returns its typed result."""
        if call.of_nothing is not None:
            self._check_open()
            return call.read(call.of_nothing)  # W1.8
        if not call.may_block:
            return self._read(call, self._ask_one(call), time.monotonic())
        ends_s = INFINITE if call.wait_s is None else time.monotonic() + call.wait_s
        while True:
            slice_s = min(SLICE_S, ends_s - time.monotonic())
            try:
                reply = self._ask_one(call.waiting(slice_s))
            except own(Timeout):  # the link died silently: continue the wait on another one
                if time.monotonic() + SHORTEST_WAIT_S > ends_s:
                    raise
                continue
            if not call.goes_on(reply) or time.monotonic() + SHORTEST_WAIT_S > ends_s:
                return self._read(call, reply, time.monotonic())

    def run_all(self, asked: list[Call[Any]]) -> list[Any]:
        """Sends calls together; returns their results, with an exception for each that failed.

        Raises only if no reply came at all.
        """
        groups = self._by_leader(asked)
        if len(groups) < 2:
            replies = self._answers(asked)
        else:
            replies = [None] * len(asked)
            self._ask_places(groups, asked, replies)
            raise_if_same(replies)
        self._ask_homes(asked, replies)
        results = list(pipeline.read_each(asked, replies))
        return self._seen(asked, results, time.monotonic())

    def _ask_homes(self, asked: list[Call[Any]], replies: list[Reply]) -> None:
        """Asks the leaders of tubes for the calls of a pipeline that were redirected to them, and
        those that can take no jobs yet once more.
        """
        tries = self._tries(asked, time.monotonic())
        while refused := self._homes.refused(asked, replies):
            refusal = replies[next(iter(refused.values()))[0]]
            try:
                pause_s = tries.pause_s(refusal, sent=True, now_s=time.monotonic())
            except own(TubeHome, NoQuorum, ReadOnly):
                return
            time.sleep(pause_s)
            self._ask_places(refused, asked, replies)

    def _ask_places(
        self,
        groups: Mapping[Any, list[int]],
        asked: list[Call[Any]],
        replies: list[Reply],
    ) -> None:
        """Asks each node for its calls of a pipeline, and puts the replies into their places."""
        for at, places in groups.items():
            calls = [asked[place] for place in places]
            found = self._answers(calls, at, is_part=True)
            for place, reply in zip(places, found, strict=True):
                replies[place] = reply

    def _answers(
        self, asked: list[Call[Any]], at: Address | None = None, *, is_part: bool = False
    ) -> list[Reply]:
        """The replies, with an error for each missing one.

        Raises if all are missing, unless some of the calls were sent, or `is_part`.
        """
        replies: list[Reply] = []
        sent = Sent()
        try:
            self._ask(asked, replies, at, sent)
        except own(Error) as e:
            if not replies and not is_part and sent.count in (0, len(asked)):
                raise
            replies += no_answers(e, asked, len(replies), sent.count)
        return replies

    def _ask_one(self, call: Call[Any]) -> Reply:
        replies: list[Reply] = []
        try:
            self._ask([call], replies)
        except own(Error) as e:
            if call.ends_connection and isinstance(e, Closed):
                return None
            e.job_id = e.job_id or call.job_id
            raise
        if isinstance(replies[0], Error):
            replies[0].job_id = call.job_id
            raise replies[0]
        return replies[0]

    def _ask(
        self,
        asked: list[Call[Any]],
        replies: list[Reply],
        at: Address | None = None,
        sent: Sent | None = None,
    ) -> None:
        """Appends a reply for each call, retrying where safe; raises the last error.

        `at` is a node that must be asked first; `sent` counts the calls that were sent.
        """
        sent = sent or Sent()
        self._check_open()
        self._check_owner()
        may_block = any(map(WAITS, asked))
        if self._is_to_move(asked):
            self._move()
        tries = self._tries(asked, time.monotonic())
        lost = len(asked)  # replies from here on: an earlier one may have been lost
        while len(replies) < len(asked):
            had: Address | None = None
            pause_s: float | None = None
            at = at or self._home_of(asked)
            pool = self._pool_of(at, may_block)
            claim: Claim[Link] = Claim()
            try:
                slot, link = self._take(pool, claim, tries.search_until_s, at)
                had = link.address
                tries.logged_in(link)
                self._converse(slot, link, asked, replies, tries.deadline_s, lost, sent)
            except own(Error) as e:
                if had is not None and isinstance(e, ConnectionError):
                    lost = min(lost, len(replies))
                pause_s = self._pause_s(tries, e, had, asked, at)
                at = self._next_at(tries, e)
            finally:
                claim.is_over = True  # a signal handler may raise in `give`, but not before this
                pool.give(claim)
            if pause_s is not None:
                time.sleep(pause_s)
                asked = self._left_of(asked, tries.deadline_s, time.monotonic())
        for call, reply in zip(asked[lost:], replies[lost:], strict=True):
            if not call.reads:
                tries.mark(reply)

    def _converse(
        self,
        slot: Slot[Link],
        link: Link,
        asked: list[Call[Any]],
        replies: list[Reply],
        deadline_s: float,
        lost: int,
        sent: Sent,
    ) -> None:
        """Sends the unanswered calls over the slot's connection, which is good after the last one.

        Those from `lost` on may have been executed before.
        """
        first = len(replies)
        try:
            in_session = any(map(IN_SESSION, asked))
            if in_session:
                self._join(link, asked, deadline_s)
            for batch in pipeline.batches(asked[len(replies) :]):
                sent.count = max(sent.count, len(replies) + len(batch))
                until_s = self._answer_by_s(asked, batch, deadline_s, time.monotonic())
                link.exchange([*map(WORDS, batch)], replies, until_s)
            link.used_s = time.monotonic()
            slot.is_good = not self._is_closed
            if in_session:
                self._sign(asked, replies, link.session)
        except own(ConnectionError) as e:
            refusal = self._stopped(link.address, asked, replies, first)
            if refusal is not None:
                raise refusal from None
            self._on_lost(link.address, e, time.monotonic())
            raise
        finally:
            self._after_loss(asked, replies, max(first, lost))
        if self._refused(link.address, link.session, asked, replies, time.monotonic()):
            raise replies.pop()

    def _join(self, link: Link, asked: list[Call[Any]], deadline_s: float) -> None:
        """Joins a connection to the session that the calls need: the first that the node knows."""
        with self._joining:
            wanted = self._sessions_for(link.address, asked)
            if link.session and wanted[:1] == [link.session]:
                return
            until_s = min(deadline_s, time.monotonic() + JOIN_S)
            replies: list[Reply] = []
            for words in joining(wanted):
                replies.clear()
                link.exchange([words], replies, until_s)
                if not isinstance(replies[0], Error):
                    link.session = to_text(replies[0])
                    self._on_joined(link.address, link.session, wanted)
                    return
            raise replies[0]

    def dedicated(self, at: Address | None = None) -> Link:
        """A connection outside the pools, greeted; the caller closes it.

        `at` is the node to connect to, if it matters.
        """
        self._check_open()
        self._check_owner()
        deadline_s = time.monotonic() + self.settings.timeout_s
        slot: Slot[Link] = Slot()
        try:
            if at is None:
                return self._connect(slot, deadline_s)
            return self._visit(slot, at, deadline_s)
        except BaseException:
            slot.drop()
            raise

    def _pool_of(self, at: Address | None, may_block: bool) -> Pool:
        """The pool for a call: of the node in use, or of a tube's leader."""
        if at is None:
            return self._blocking if may_block else self._pool
        pools = self._elsewhere.get(at)
        if pools is None:
            new = Pool(self.settings.max_connections), Pool(None)
            pools = self._elsewhere.setdefault(at, new)
        return pools[may_block]

    def _take(
        self, pool: Pool, claim: Claim[Link], deadline_s: float, at: Address | None
    ) -> tuple[Slot[Link], Link]:
        """A slot of the pool, and its connection to a tube's leader, or to the node in use."""
        slot = pool.take(claim, deadline_s)
        link = slot.use()
        if link is not None:
            wanted = at or self._route.current
            if link.address == wanted and self._is_usable(link):
                return slot, link
            if at is None and link.address == wanted:
                self._on_stale(link.address)
            slot.drop()
            pool.close_idle()
        until_s = self._search_by_s(deadline_s)
        if at is None:
            return slot, self._connect(slot, until_s)
        return slot, self._visit(slot, at, until_s)

    def _is_usable(self, link: Link) -> bool:
        """[U14] Whether an idle connection is there; one not used lately proves it (U14.1).

        A proxy may have forgotten it: the call that found out would not know whether it is done.
        """
        if link.is_stale():
            return False
        now_s = time.monotonic()
        if now_s < link.used_s + IDLE_S:
            return True
        try:
            link.exchange([("PING",)], [], now_s + PROOF_S)
        except own(ConnectionError):
            return False
        return True

    def _visit(self, slot: Slot[Link], at: Address, deadline_s: float) -> Link:
        """A new connection to the leader of a tube."""
        try:
            now_s = time.monotonic()
            login_by_s = now_s + self.settings.login_timeout_s
            until_s = self._connect_by_s(deadline_s, now_s)
            link, _ = self._open(slot, at, until_s, login_by_s)
        except own(ConnectionError, Conflict, Leaving, Loading, MaxClients) as e:
            self._on_home_unreachable(at, e)
            raise
        self._on_home_reached(at)
        return link

    def _connect(self, slot: Slot[Link], deadline_s: float) -> Link:
        """A new connection to the first usable node."""
        tried: set[Address] = set()
        causes: list[Error] = []
        login_by_s = time.monotonic() + self.settings.login_timeout_s
        while True:
            now_s = time.monotonic()
            untried = [a for a in self._route.order(now_s) if a not in tried]
            if not untried:
                raise no_node(causes)
            address = untried[0]
            tried.add(address)
            until_s = self._connect_by_s(deadline_s, now_s)
            try:
                link, hello = self._open(slot, address, until_s, login_by_s)
            except own(ConnectionError, Conflict, Leaving, Loading, MaxClients) as e:
                self._on_unreachable(address, e, time.monotonic())
                causes.append(e)
                continue
            self._on_connected(address, hello)
            if self._route.has_better_than(address, now_s):
                slot.drop()
                self._on_leaving(address, now_s)
                continue
            return link

    def _move(self) -> None:
        """Moves to the node that creates most of the jobs fetched; stays unless that is well."""
        start = self._follow.take(time.monotonic())
        slot: Slot[Link] = Slot()
        try:
            asked = admin.hello(timeout=LIMIT_S)
            told = asked.read(self._ask_one(asked))
            address = self._route.other(told, start, time.monotonic())
            if address is None:
                return
            _, hello = self._open(slot, address, time.monotonic() + LIMIT_S)
            if not self._on_moved(address, hello, start):
                slot.drop()
                return
        except own(Error) as e:
            log.debug("cannot move to the node %s...: %s", start, e)
            return
        except BaseException:
            slot.drop()
            raise
        self._blocking.close_idle()
        self._blocking.put(slot)

    def _open(
        self, slot: Slot[Link], address: Address, deadline_s: float, login_by_s: float = 0.0
    ) -> tuple[Link, Hello | None]:
        """Connects to one node and greets it; `login_by_s`: of a node that lets log-ins wait."""
        slot.link = link = self._dial(address, deadline_s)
        link.on_cancel, link.on_order = self._on_cancel, self._on_order
        asked = greeting(self.settings, hears=link.hears)
        replies: list[Reply] = []
        first: list[Reply] = []
        try:
            began_s = time.monotonic()
            if self.settings.has_login and login_by_s > deadline_s:
                link.exchange([("HELLO",)], first, deadline_s)  # it is there (N6.7)
                began_s, deadline_s = time.monotonic(), login_by_s
            link.exchange([call.args for call in asked], replies, deadline_s)
            link.login_s = time.monotonic() - began_s if first else 0.0
            return link, read_greeting(asked, replies)
        except own(ConnectionError) as e:
            link.close()
            raise why_closed(first, e) from None
        except BaseException:
            link.close()
            raise

    def _dial(self, address: Address, deadline_s: float) -> Link:
        """A connection to one node, not greeted yet; tests have one without a socket."""
        return Link.open(address, self._tls, deadline_s)

    def _pools(self) -> list[Pool]:
        elsewhere = [pool for pools in self._elsewhere.values() for pool in pools]
        return [self._pool, self._blocking, *elsewhere]

    def _close_idle(self) -> None:
        for pool in self._pools():
            pool.close_idle()

    def _check_owner(self) -> None:
        """Drops connections that belong to the parent process, after a fork."""
        if not self._is_mine():
            self._start_afresh()  # U14.3

    def _is_mine(self) -> bool:
        return self._is_here()

    def _is_here(self) -> bool:
        """Whether the connections were made by this process."""
        return self._forks == Lineage.forks

    def _start_afresh(self) -> None:
        self._pool = Pool(self.settings.max_connections)
        self._blocking = Pool(None)
        self._session, self._sessions, self._own = "", {}, set()
        self._elsewhere: dict[Address, tuple[Pool, Pool]] = {}
        self._joining = threading.RLock()  # U14.5
        self._rng.seed()  # a forked child must not repeat its parent's random numbers
        self._forks = Lineage.forks
