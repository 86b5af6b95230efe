"""The part of both faces without I/O: deadlines, retries, TLS, the log, who has a connection."""

from __future__ import annotations

import functools
import logging
import random
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from tuque.client.api import Hello, Job, Reply, to_bytes
from tuque.client.commands import admin
from tuque.client.commands.calls import Call
from tuque.client.retry import FULL, NOT_NOW, Tries
from tuque.client.routing.leaders import Homes, are_adds, homeless_hint
from tuque.client.routing.nodes import LEAVING_REST_S, REST_S, Follow, Route
from tuque.client.transport.conn import INFINITE, SHORTEST_CONNECT_S, login
from tuque.client.url import Address, Settings
from tuque.errors import (
    Closed,
    ConfigError,
    Conflict,
    ConnectionError,
    Error,
    Leaving,
    Loading,
    NoNode,
    NoQuorum,
    NotTaken,
    ReadOnly,
    ReplyError,
    TubeHome,
)
from tuque.logtext import VisibleMessages
from tuque.smallfile import Renewed

if TYPE_CHECKING:
    import ssl
    from inspect import Signature

# ---- TLS of the client's end; `ssl` is loaded by those who use it


def context_of(settings: Settings) -> ssl.SSLContext:
    """What checks the nodes' certificates, and shows the client's. ConfigError names the file."""
    import ssl

    what = f"cafile={settings.cafile}"
    try:
        context = ssl.create_default_context(cafile=settings.cafile or None)
        if settings.certfile:
            what = f"certfile={settings.certfile}, keyfile={settings.keyfile}"
            context.load_cert_chain(settings.certfile, settings.keyfile or None, password=_refuse)
    except ssl.SSLError as err:
        raise ConfigError(f"{what}: not used, {err.reason or 'not PEM'}") from None
    except OSError as err:
        raise ConfigError(f"{what}: {err.strerror}") from None
    return context


def contexts_of(settings: Settings) -> Renewed[ssl.SSLContext]:
    """The same, read again when a file changes. ConfigError names the file."""
    paths = [one for one in (settings.cafile, settings.certfile, settings.keyfile) if one]
    return Renewed(paths, lambda: context_of(settings), log)


def _refuse() -> str:
    """OpenSSL would ask for the passphrase on the terminal."""
    raise ConfigError("keyfile has a passphrase: take a key without one")


# ---- The first commands of a connection


def greeting(settings: Settings, hears: bool = False) -> list[Call[Any]]:
    """The first commands of a new connection, in one write; HELLO is the last.

    `hears`: the node shall push messages, which it does over RESP3 only.
    """
    calls: list[Call[Any]] = []
    if settings.has_login:
        calls.append(admin.execute(*login(settings.user, settings.password)))
    if settings.name:
        calls.append(admin.execute("CLIENT", "SETNAME", settings.name))
    if hears:
        calls.append(admin.execute("HELLO", 3))
    calls.append(admin.hello())
    return calls


def read_greeting(calls: list[Call[Any]], replies: list[Reply]) -> Hello | None:
    """The node's HELLO, None from a server without it; raises if the connection is useless."""
    for call, reply in zip(calls, replies, strict=True):
        is_unknown = call.name == "HELLO" and type(reply) is ReplyError and reply.code == "ERR"
        if isinstance(reply, ReplyError) and not is_unknown:
            raise reply
    if isinstance(replies[-1], ReplyError):
        return None
    found: Hello = calls[-1].read(replies[-1])
    return found


# ---- face


T = TypeVar("T")

log = logging.getLogger("tuque.client")
log.addFilter(VisibleMessages())  # errors quote other programs

# A long wait is cut into slices, so that a dead link is noticed.
SLICE_S = 30.0
JOIN_S = 5.0  # for the reply to joining a session of tubes
TASK_WORDS = 6  # in a reply that is a task
AWAY = (Leaving, Conflict, Loading)  # refusals of a node that serves nobody now
FULL_S = 10.0  # other nodes get the jobs for that long
IDLE_S = 5.0  # a connection unused for that long proves itself before a call
PROOF_S = 1.0  # for the reply to that PING: who has forgotten it costs no more, and no doubt
ADD_MORE_S = 0.02  # for each further job of a pipeline
SHORTEST_WAIT_S = 0.005  # a shorter remaining wait is over
# of a call; without a frame for each, as this runs for every one
WAITS = attrgetter("wait_arg")
IN_SESSION = attrgetter("in_session")
WORDS = attrgetter("args")


class Face:
    """The part of a client that decides; subclasses wait and do I/O."""

    _is_closed = True  # until the constructor has finished

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._rng = random.Random()
        self._route = Route(settings.seeds, self._rng, discovers=settings.discover)
        # A client of a unix socket stays with it.
        is_socket = settings.seeds[0].port == 0
        self._follow = Follow(is_on=settings.follow and settings.discover and not is_socket)
        self._homes = Homes(is_on=settings.discover and not is_socket)
        self._homes_down: frozenset[Address] = frozenset()
        self._full: dict[Address, float] = {}  # until when nodes are asked last to take jobs
        self._session = ""  # of tubes, on the node joined last
        self._sessions: dict[Address, str] = {}
        self._own: set[str] = set()  # sessions that this client is or was in
        self._add_s: float | None = None
        self._is_closed = False
        self._contexts = contexts_of(settings) if settings.tls else None

    def __repr__(self) -> str:
        state = " closed" if self._is_closed else ""
        kind = type(self)
        home = kind.__module__.removesuffix(".client")  # the package, which users import
        return f"<{home}.{kind.__qualname__} {self.settings.masked_url}{state}>"

    @property
    def node(self) -> str:
        """The "host:port" of the node in use, "" before the first call and after a loss."""
        return str(self._route.current or "")

    @property
    def _tls(self) -> ssl.SSLContext | None:
        """[X5] For the next connection, of the files as they are now (X5.3)."""
        return None if self._contexts is None else self._contexts.now()

    def answers_adds_within(self, seconds: float) -> None:
        """[U1] How long a node may be silent when it gets a job, instead of the timeout (U1.19).

        A pipeline has `ADD_MORE_S` more for each further call.
        """
        self._add_s = seconds

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("this client is closed", retryable=False)

    def _grace_s(self, asked: list[Call[Any]]) -> float:
        """The time for the replies, besides what the calls wait for."""
        longest_s = 0.0
        for call in asked:
            own_s = call.timeout_s
            longest_s = max(longest_s, self.settings.timeout_s if own_s is None else own_s)
        return longest_s

    def _tries(self, asked: list[Call[Any]], now_s: float) -> Tries:
        """The attempts for calls; they end when the replies would be due, had all gone well.

        The time that a call asks the node to wait counts only once a node is found.
        """
        pinned: list[Call[Any]] = []
        repeat = reads = True
        for call in asked:
            repeat = repeat and call.repeat
            reads = reads and call.reads
            if call.pinned:
                pinned.append(call)
        grace_s = self._grace_s(asked)
        deadline_s = _waited_s(asked) + grace_s + now_s
        if deadline_s == INFINITE:  # the reply may take for ever
            deadline_s = now_s + grace_s
        if self._add_s is not None and asked[0].args[0] == "ADDJOB":
            grace_s = min(grace_s, self._add_s)  # nor does a place in the pool take longer
        return Tries(
            self.settings.retry,
            repeat=repeat,
            pinned=bool(pinned) and not self._homes.lead_all(pinned),
            unsure=bool(pinned),
            reads=reads,
            deadline_s=deadline_s,
            search_s=grace_s,
            down_s=self.settings.search_timeout_s,
            now_s=now_s,
            rng=self._rng,
        )

    def _pause_s(
        self,
        tries: Tries,
        error: Error,
        had: Address | None,
        asked: list[Call[Any]],
        at: Address | None,
    ) -> float:
        """Seconds until the next attempt; raises the error, with advice, if there is none.

        `had` is the node that the call was sent to, if any; `at` the leader of a tube, if that was
        asked.
        """
        try:
            now_s = time.monotonic()
            return tries.pause_s(error, sent=had is not None, now_s=now_s, node=had)
        except Error as last:
            hint = homeless_hint(last, asked, at) if self._homes.is_on else ""
            if hint:
                last.args = (f"{last.message}; {hint}",)
            raise

    def _deadline_s(self, asked: list[Call[Any]], now_s: float) -> float:
        """When replies to calls sent now are due: the wait they ask for, and the timeout."""
        return now_s + _waited_s(asked) + self._grace_s(asked)

    def _answer_by_s(
        self, asked: list[Call[Any]], batch: list[Call[Any]], deadline_s: float, now_s: float
    ) -> float:
        """When a batch's replies are due: each batch of a long pipeline has its own time."""
        if self._add_s is not None and are_adds(batch[:1]):
            deadline_s = min(deadline_s, now_s + self._add_s)
            return deadline_s + ADD_MORE_S * (len(batch) - 1)
        if len(asked) == 1 and asked[0].wait_s is not None:
            return deadline_s
        return max(deadline_s, self._deadline_s(batch, now_s))

    def _connect_by_s(self, deadline_s: float, now_s: float) -> float:
        latest_s = now_s + self.settings.connect_timeout_s
        return min(latest_s, max(deadline_s, now_s + SHORTEST_CONNECT_S))

    def _search_by_s(self, deadline_s: float) -> float:
        """When a search for a node that can be reached ends."""
        down_s = self.settings.search_timeout_s
        return deadline_s if down_s is None else min(deadline_s, time.monotonic() + down_s)

    def _left_of(self, asked: list[Call[Any]], deadline_s: float, now_s: float) -> list[Call[Any]]:
        """The calls to send when part of the wait has passed."""
        if len(asked) > 1 or not asked[0].may_block:
            return asked
        left_s = deadline_s - self._grace_s(asked) - now_s
        return [asked[0].waiting(max(0.0, left_s))]

    def _refused(
        self,
        address: Address,
        session: str,
        asked: list[Call[Any]],
        replies: list[Reply],
        now_s: float,
    ) -> bool:
        """True if the only call was refused, and another node, or time, will help."""
        self._homes.note(asked, replies)
        for reply in replies:
            if isinstance(reply, Leaving | Conflict | Loading):
                self._on_leaving(address, now_s, reply)
                break
        if self._is_full(address, asked, replies, now_s):
            return True
        last = replies[-1]
        if len(asked) > 1:
            if isinstance(last, NoQuorum | ReadOnly):
                self._homes.forget(address)
            return self._takes_back(replies, AWAY)
        if isinstance(last, TubeHome):
            return self._homes.told(last) is not None and not self._homes.are_apart(asked)
        if isinstance(last, NotTaken):  # wrong session: the tube was changing its leader
            return asked[0].session in self._own and session != asked[0].session
        if isinstance(last, NoQuorum | ReadOnly):
            self._homes.forget(address)  # others may know another leader
            return True
        return isinstance(last, AWAY)

    def _is_full(
        self, address: Address, asked: list[Call[Any]], replies: list[Reply], now_s: float
    ) -> bool:
        """True if the node took no jobs, or not the last ones, and another one may."""
        if not isinstance(replies[-1], FULL) or not are_adds(asked):
            return False
        if self._homes.of(asked) is not None:
            return False  # only the leader of a tube takes its tasks
        if self._full.get(address, 0.0) <= now_s:
            log.warning("node %s takes no jobs now: %s", address, replies[-1])
        self._full = {**self._full, address: now_s + FULL_S}
        if not self._has_room(now_s):
            return False
        return self._takes_back(replies, FULL)

    def _has_room(self, now_s: float) -> list[Address]:
        """The nodes that may take jobs, that in use first."""
        return [at for at in self._route.usable(now_s) if self._full.get(at, 0.0) <= now_s]

    def _room_for(self, asked: list[Call[Any]]) -> Address | None:
        """The node to ask for jobs to be added, if the node in use took none lately."""
        now_s = time.monotonic()
        current = self._route.current
        if current is None or self._full.get(current, 0.0) <= now_s or not are_adds(asked):
            return None
        found = self._has_room(now_s)
        return found[0] if found else None

    def _stopped(
        self, address: Address, asked: list[Call[Any]], replies: list[Reply], first: int
    ) -> Error | None:
        """The refusal that a stopping node sent last: it ran none of the adds after it."""
        if len(replies) <= first or not isinstance(replies[-1], Leaving) or not are_adds(asked):
            return None
        self._on_leaving(address, time.monotonic(), replies[-1])
        self._takes_back(replies, AWAY)
        last = replies.pop()
        assert isinstance(last, Error)
        return last

    def _takes_back(self, replies: list[Reply], kinds: tuple[type[Error], ...]) -> bool:
        """Drop the refusals at the end of a pipeline but one, if another node, or time, will help.

        What was refused is sent again in its order, and nothing that came after it was done.
        """
        if not isinstance(replies[-1], kinds):
            return False
        while len(replies) > 1 and isinstance(replies[-2], kinds):
            replies.pop()
        return True

    def _home_of(self, asked: list[Call[Any]]) -> Address | None:
        """The node to ask if a tube's leader is not the node in use."""
        address = self._homes.of(asked)
        if address is None and self._full:
            return self._room_for(asked)
        return None if address == self._route.current else address

    def _by_leader(self, asked: list[Call[Any]]) -> dict[Address | None, list[int]]:
        """The calls of a pipeline by the leader that they concern; None: the node in use."""
        found: dict[Address | None, list[int]] = {}
        for at, call in enumerate(asked if self._homes.has_any else ()):
            found.setdefault(self._home_of([call]), []).append(at)
        return found

    def leader_of(self, name: str) -> Address | None:
        """The leader of the tube of that name; None: not known, or a plain queue."""
        leaders = self._homes.by_name
        return leaders.get(to_bytes(name)) if leaders else None

    def home_groups(self, names: Iterable[str]) -> list[list[str]]:
        """Queues by the node that calls about them go to, as far as known."""
        groups: dict[Address | None, list[str]] = {}
        for name in names:
            groups.setdefault(self.leader_of(name), []).append(name)
        return list(groups.values())

    def _next_at(self, tries: Tries, error: Error) -> Address | None:
        """Where to ask after the error: at the leader that it names; None: the node in use."""
        address = self._homes.told(error)
        if address is None:
            return tries.had
        tries.follow()
        return None if address == self._route.current else address

    def home_to_try(self, error: Error) -> Address:
        """The node named in a refusal; raises the error if this client may not go there."""
        address = self._homes.told(error)
        if address is None:
            raise error
        return address

    def _sessions_for(self, address: Address, asked: list[Call[Any]]) -> list[str]:
        """The sessions to try for these calls, in order of preference.

        A task whose tube changed leader is held by the session that took it before. Else it is the
        one on this node, or one that may be shared with another.
        """
        named = [call.session for call in asked if call.session in self._own]
        usual = self._sessions.get(address) or self._session
        return list(dict.fromkeys(one for one in (*named[:1], usual) if one))

    def _on_joined(self, address: Address, session: str, wanted: list[str]) -> None:
        self._own.add(session)
        if address in self._sessions and session in wanted:
            return  # for a task taken on another node
        self._session = session
        self._sessions = {**self._sessions, address: session}

    def _on_identified(self, session: str) -> None:
        """Keeps the session for all nodes that know it."""
        self._own.add(session)
        self._session = session
        self._sessions = {}

    def _sign(self, asked: list[Call[Any]], replies: list[Reply], session: str) -> None:
        """Notes in replied tasks which session they belong to."""
        for call, reply in zip(asked, replies, strict=False):
            if call.in_session and isinstance(reply, list) and len(reply) == TASK_WORDS:
                reply.append(session)

    def _after_loss(self, asked: list[Call[Any]], replies: list[Reply], first: int) -> None:
        """Reads replies from `first` on as those of calls that may have been executed before."""
        for at in range(first, len(replies)):
            read = asked[at].after_loss
            if read is not None:
                replies[at] = read(replies[at])

    def _read(self, call: Call[T], reply: Reply, now_s: float) -> T:
        """The typed result of a reply; counts jobs by the node that created them."""
        result = call.read(reply)
        if call.fetches:
            self._on_fetched(cast(list[Job], result), now_s)
        return result

    def _on_fetched(self, jobs: list[Job], now_s: float) -> None:
        self._follow.on_jobs(jobs, self._route.own, now_s)
        self._homes.on_jobs(jobs)

    def _seen(self, asked: list[Call[Any]], results: list[Any], now_s: float) -> list[Any]:
        """The results of a pipeline unchanged; counts jobs as above."""
        for call, result in zip(asked, results, strict=True):
            if call.fetches and not isinstance(result, Error):
                self._on_fetched(result, now_s)
        return results

    def _is_to_move(self, asked: list[Call[Any]]) -> bool:
        """True if these calls fetch and another node is better for that."""
        return bool(self._follow.wanted) and any(call.fetches for call in asked)

    # Causes, and their log lines

    def _on_connected(self, address: Address, hello: Hello | None) -> None:
        if self._route.on_connected(address, hello):
            log.info("connected again, to node %s", address)
        else:
            log.debug("connected to node %s", address)

    def _on_unreachable(self, address: Address, error: Error, now_s: float) -> None:
        if self._route.on_failed(address, now_s):
            log.warning("cannot use node %s: %s", address, error)

    def _on_lost(self, address: Address, error: Error, now_s: float) -> None:
        if self._homes.forget(address) and address != self._route.current:
            log.warning("connection to a leader of tubes lost: %s", error)
        elif self._route.on_failed(address, now_s):
            log.warning("connection lost: %s", error)

    def _on_stale(self, address: Address) -> None:
        if self._route.on_stale():
            log.warning("connection lost: %s closed it between two calls", address)

    def _on_moved(self, address: Address, hello: Hello | None, start: str) -> bool:
        """True if the node at the address is the one that creates the jobs, and serves."""
        if not self._route.on_moved(address, hello, start):
            log.debug("%s is not the node %s..., or does not serve", address, start)
            return False
        log.info("most jobs come from node %s: fetching there from now on", address)
        return True

    def _on_home_unreachable(self, address: Address, error: Error) -> None:
        self._homes.forget(address)
        self._full = {**self._full, address: time.monotonic() + REST_S}
        if address not in self._homes_down:  # once until it is usable again: calls may try it often
            log.warning("cannot use node %s, a leader of tubes: %s", address, error)
            self._homes_down = self._homes_down | {address}

    def _on_home_reached(self, address: Address) -> None:
        if address in self._homes_down:
            self._homes_down = self._homes_down - {address}
            log.info("node %s, a leader of tubes, is usable again", address)

    def _on_leaving(
        self, address: Address, now_s: float, reply: Leaving | Conflict | Loading | None = None
    ) -> None:
        self._homes.forget(address)
        rest_s = REST_S if isinstance(reply, Loading) else LEAVING_REST_S
        if self._route.on_failed(address, now_s, rest_s):
            why = "is leaving the cluster" if isinstance(reply, Leaving) else "asks to be avoided"
            why = "says that another node has its id" if isinstance(reply, Conflict) else why
            why = "has just started" if isinstance(reply, Loading) else why
            log.warning("node %s %s: looking for another one", address, why)


def _waited_s(asked: list[Call[Any]]) -> float:
    """How long the calls ask the node to wait, one after the other."""
    waits_s = 0.0
    for call in asked:
        waits_s += INFINITE if call.wait_s is None else call.wait_s
    return waits_s


def no_node(causes: list[Error]) -> Error:
    """The error when all known nodes were tried: a node's own if one replied, else NoNode."""
    for cause in causes:
        if isinstance(cause, ReplyError):
            return cause
    return NoNode("no node can be reached: " + "; ".join(map(str, causes)))


class Sent:
    """How many of the calls of a pipeline were sent, the first ones: the others are not done."""

    def __init__(self) -> None:
        self.count = 0


def no_answers(error: Error, asked: list[Call[Any]], known: int, sent: int) -> list[Reply]:
    """The errors of the calls of a pipeline that have no reply: all but the first `known`.

    The first `sent` calls were sent.
    """
    if not known and isinstance(error, ReplyError) and sent in (0, len(asked)):
        return [error] * len(asked)
    return [no_answer(error, asked[at], at < sent) for at in range(known, len(asked))]


def no_answer(error: Error, call: Call[Any], was_sent: bool) -> Error:
    """The error of a call of a pipeline whose connection failed before its reply."""
    if isinstance(error, NOT_NOW) and not (error.may_be_done and was_sent):
        return type(error)(error.message, node=error.node, job_id=call.job_id)
    kind = type(error) if isinstance(error, ConnectionError) else Closed
    retryable = not was_sent or (call.repeat and not call.pinned)
    message = error.message if was_sent else f"not sent: {error.message}"
    found = kind(message, node=error.node, job_id=call.job_id, retryable=retryable)
    found.may_be_done = was_sent and not call.reads
    return found


def raise_if_same(replies: list[Reply]) -> None:
    """Raises if no call of a pipeline has a reply, and what is known of all is the same."""
    found = [one for one in replies if isinstance(one, ConnectionError)]
    if len(found) == len(replies) and len({one.may_be_done for one in found}) == 1:
        raise found[-1]


def as_method(
    build: Callable[..., Any], method: Callable[..., Any], returns: str, skips: int = 0
) -> None:
    """Makes a generated method show the builder's name, docstring and arguments.

    `skips` first arguments of the builder are hidden.
    """
    functools.update_wrapper(method, build)
    method.__wrapped__ = Shown(build, returns, skips)  # type: ignore[attr-defined]  # for inspect


class Shown:
    """What `inspect` asks for the signature of a generated method: that of the builder has no self.

    It is made when it is asked for: `inspect` is large, and a client has a hundred methods.
    """

    def __init__(self, build: Callable[..., Any], returns: str, skips: int) -> None:
        self._build, self._returns, self._skips = build, returns, skips

    @property
    def __signature__(self) -> Signature:
        from inspect import Parameter, signature

        found = signature(self._build)
        own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
        shown = [own, *list(found.parameters.values())[self._skips :]]
        return found.replace(parameters=shown, return_annotation=self._returns)


# ---- Counts the connections of a client: who may have one, and who is next.
#
# A slot is the right to one connection. A freed slot goes straight to the longest waiter, so that
# newcomers cannot overtake it. Knows neither threads nor loops: callers bring lock and wait.
#
# [U14] A signal handler may raise between any two steps (U14.8). So each slot itself names its
# claim, and is free once that is over, or was collected. The lists only spare a search.


class Closes(Protocol):
    """A connection."""

    def close(self) -> object:
        """Ends it; more than once does no harm."""


class Wakes(Protocol):
    """How to wake who waits."""

    def wake(self) -> object:
        """Ends the wait; more than once does no harm."""


C = TypeVar("C", bound=Closes)


class Slot(Generic[C]):
    """The right to one connection, and that connection, if there is one."""

    def __init__(self) -> None:
        self.link: C | None = None
        self.is_good = False  # the connection is idle, and the next call may use it
        self.claim: weakref.ref[Claim[C]] | None = None

    @property
    def is_free(self) -> bool:
        """Whether no call has it."""
        claim = None if self.claim is None else self.claim()
        return claim is None or claim.is_over

    def use(self) -> C | None:
        """The idle connection, if any, for its call; what another call has left is closed."""
        if not self.is_good:
            self.drop()
        self.is_good = False
        return self.link

    def drop(self) -> None:
        """Closes the connection, if there is one."""
        self.is_good = False
        if self.link is not None:
            self.link.close()
        self.link = None


class Claim(Generic[C]):
    """A call's claim to a slot. It ends with `is_over`, or with this object."""

    def __init__(self) -> None:
        self.is_over = False
        self.slot: Slot[C] | None = None  # this claim has it once the slot names it
        self.waiter: Wakes | None = None

    @property
    def has_slot(self) -> bool:
        """Whether a slot is the claim's."""
        claim = None if self.slot is None else self.slot.claim
        return claim is not None and claim() is self


class Slots(Generic[C]):
    """At most `limit` slots (None: no limit), each of a call or with an idle connection."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._all: set[Slot[C]] = set()
        self._idle: dict[Slot[C], None] = {}  # the latest is the last
        self._waiting: deque[weakref.ref[Claim[C]]] = deque()

    @property
    def open_count(self) -> int:
        """Slots of calls, and idle connections."""
        return sum(slot.link is not None or not slot.is_free for slot in list(self._all))

    def take(self, claim: Claim[C]) -> bool:
        """Gives the claim a slot, of the latest idle connection if any; False: it must wait."""
        if self._waiting:
            self.admit()
        slot = None if self._waiting else self._free()
        if slot is None:
            return False
        _hand(slot, claim)
        return True

    def wait(self, claim: Claim[C]) -> None:
        """Queues up for the next free slot."""
        self._waiting.append(weakref.ref(claim))

    def admit(self) -> None:
        """Hands free slots to those who have waited longest."""
        while self._waiting:
            first = self._waiting[0]
            claim = first()
            if claim is not None and not claim.is_over:
                slot = claim.slot if claim.has_slot else self._free()
                if slot is None:
                    return
                _hand(slot, claim)
                if claim.waiter is not None:
                    claim.waiter.wake()
            self._forget(first)

    def give(self, claim: Claim[C]) -> None:
        """Ends a claim: its slot, if it has one, goes to the next, with its good connection."""
        claim.is_over = True
        if self._waiting:
            self._forget(weakref.ref(claim))
        slot = claim.slot
        if slot is not None and claim.has_slot:
            if not slot.is_good or self._is_over():
                slot.drop()
                self._all.discard(slot)
            slot.claim = None
            if slot.is_good:
                self._idle[slot] = None
        if self._waiting:
            self.admit()

    def put(self, slot: Slot[C]) -> None:
        """Takes in another slot, whose connection is good; only if there is no limit."""
        slot.is_good = True
        self._all.add(slot)
        self._idle[slot] = None

    def close_idle(self) -> int:
        """Closes the connections that no call has; returns how many."""
        found = [slot for slot in list(self._all) if slot.is_free]
        count = sum(slot.link is not None for slot in found)
        for slot in found:
            slot.drop()
            self._all.discard(slot)
            self._idle.pop(slot, None)
        return count

    def _free(self) -> Slot[C] | None:
        """A slot that no call has, if there is one, or may be one more."""
        while self._idle:
            slot = self._idle.popitem()[0]
            if slot.is_free and slot in self._all:
                return slot
        for slot in list(self._all):  # of a call that an exception ended between two steps
            if slot.is_free:
                return slot
        if self._limit is not None and len(self._all) >= self._limit:
            return None
        slot = Slot()
        self._all.add(slot)
        return slot

    def _is_over(self) -> bool:
        """Whether a signal handler's call has made one slot too many."""
        return self._limit is not None and len(self._all) > self._limit

    def _forget(self, waiting: weakref.ref[Claim[C]]) -> None:
        with suppress(ValueError):  # it is no longer in the queue
            self._waiting.remove(waiting)


def _hand(slot: Slot[C], claim: Claim[C]) -> None:
    """Makes a free slot the claim's."""
    claim.slot = slot
    slot.claim = weakref.ref(claim)
