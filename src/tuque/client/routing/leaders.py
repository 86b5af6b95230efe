"""Decides which node a call about tubes goes to: the leader, as far as known.

A node that does not lead a tube names the leader. That is kept until another one is named, or the
leader is unreachable. State is replaced, never changed in place, so that threads may read it
without a lock.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from tuque.client.api import Arg, Job, Reply, to_bytes
from tuque.client.commands.calls import Call
from tuque.client.url import Address
from tuque.errors import ConnectionError, Error, NoQuorum, ReadOnly, TubeHome

NAMES_MAX = 10_000
ID_BYTES = 40
TAKEN_MAX = 20_000  # jobs whose queues are kept
OF_ONE_QUEUE = frozenset({"ADDJOB", "QLEN", "QPEEK", "QSTAT", "PAUSE", "LIMITS"})
KEY_WORDS = frozenset({"UNIQUE", "LIMIT", "RATE", "GROUP"})  # they need a tube
OF_TASKS = frozenset(
    {"ACKJOB", "FASTACK", "NACK", "WORKING", "START", "PROGRESS", "RELEASE", "FAIL", "DONE"}
)
OF_ONE_NODE = frozenset({"LIST", "CFG", "IDENTIFY", "HELP", "GRANT", "REVOKE", "GRANTS"})


class Homes:
    """Leaders of tubes by name; with `is_on` false it keeps nothing and follows no redirects."""

    def __init__(self, *, is_on: bool) -> None:
        self.is_on = is_on
        self.by_name: dict[bytes, Address] = {}
        self._tubes: frozenset[bytes] = frozenset()  # names that are known to be tubes
        self._taken: dict[bytes, bytes] = {}  # queues of the jobs fetched last, by id

    def of(self, asked: Sequence[Call[Any]]) -> Address | None:
        """The leader of all tubes in the calls; None if no node is known to lead them all."""
        if not self.by_name:
            return None
        found: set[Address | None] = set()
        for call in asked:
            found.update(self.by_name.get(name) for name in self._tubes_of(call) or [b""])
            if len(found) > 1:
                return None
        return found.pop() if found else None

    def _tubes_of(self, call: Call[Any]) -> list[bytes]:
        """The names in a call, or the queues of the fetched jobs that it is about."""
        if call.args[0] not in OF_TASKS:
            return tubes_in(call)
        ids = [word for word in call.args if isinstance(word, bytes) and len(word) == ID_BYTES]
        return [name for id in ids if (name := self._taken.get(id)) is not None]

    def on_jobs(self, jobs: Iterable[Job]) -> None:
        """Keeps which queues the jobs are of: what concerns a task goes to its tube's leader."""
        if not self.is_on:
            return
        taken, queue, name = self._taken, "", b""
        for job in jobs:
            if job.queue != queue:
                queue, name = job.queue, to_bytes(job.queue)
            taken[job.id.encode()] = name
        while len(taken) > TAKEN_MAX:
            taken.pop(next(iter(taken), b""), None)

    @property
    def has_any(self) -> bool:
        """Whether a tube is known that another node leads."""
        return bool(self.by_name)

    def note(self, asked: Sequence[Call[Any]], replies: Sequence[Reply]) -> None:
        """Keeps which names are those of tubes, as far as calls that went well say it."""
        for call, reply in zip(asked, replies, strict=False):
            if call.args[0] == "TUBE" and not isinstance(reply, Error):
                self._know(tubes_in(call), call.args[1] != "DROP")

    def _know(self, names: Sequence[bytes], are_tubes: bool) -> None:
        if are_tubes and not self._tubes.issuperset(names) and len(self._tubes) < NAMES_MAX:
            self._tubes = self._tubes.union(names)
        elif not are_tubes:
            self._tubes = self._tubes.difference(names)

    def lead_all(self, asked: Sequence[Call[Any]]) -> bool:
        """Whether all calls are about tubes: whoever leads one knows the keys of its tasks."""
        return all(
            not KEY_WORDS.isdisjoint(_options(call))
            or ((names := tubes_in(call)) and self._tubes.issuperset(names))
            for call in asked
        )

    def are_apart(self, asked: Sequence[Call[Any]]) -> bool:
        """True if no single node leads all tubes that the calls are about."""
        named = {self.by_name.get(name) for call in asked for name in self._tubes_of(call)}
        return len(named - {None}) > 1

    def told(self, error: Error) -> Address | None:
        """Keeps the leader named in a refusal; returns where to go, or None."""
        if not self.is_on or not isinstance(error, TubeHome):
            return None
        address = address_of(error.home)
        name = to_bytes(error.tube)
        if name:
            self._know([name], True)
        if address is not None and name and len(self.by_name) < NAMES_MAX:
            self.by_name = {**self.by_name, name: address}
        return address

    def forget(self, address: Address) -> bool:
        """The node is unusable: others must name its tubes' new leaders. True if it had any."""
        before = len(self.by_name)
        if before:
            self.by_name = {name: at for name, at in self.by_name.items() if at != address}
        return len(self.by_name) < before

    def refused(
        self, asked: Sequence[Call[Any]], replies: Sequence[Reply]
    ) -> dict[Address | None, list[int]]:
        """Which calls of a pipeline are to be asked again, by node; None: the node in use, or the
        one that is known to lead, of adds to a tube whose leader cannot take them yet.
        """
        found: dict[Address | None, list[int]] = {}
        for at, reply in enumerate(replies):
            address = self.told(reply) if isinstance(reply, TubeHome) else None
            is_early = isinstance(reply, NoQuorum | ReadOnly) and are_adds([asked[at]])
            if address is not None or is_early:
                found.setdefault(address, []).append(at)
        return found


def are_adds(asked: Sequence[Call[Any]]) -> bool:
    """Whether these calls only add jobs."""
    return all(call.args[0] == "ADDJOB" or call.args[:2] == ("TOPIC", "ADD") for call in asked)


def _options(call: Call[Any]) -> Iterable[str]:
    """The words of a call that are no values, up to its headers, whose names are words too."""
    for word in call.args:
        if word == "HEADERS":
            return
        if isinstance(word, str):
            yield word


def tubes_in(call: Call[Any]) -> list[bytes]:
    """The names in a call that may be tubes led elsewhere; none for calls to one node."""
    words = call.args
    verb = _word(words[0])
    if verb == "TUBE" and len(words) > 2 and _word(words[1]) not in OF_ONE_NODE:
        to_this_node = _word(words[1]) == "HOME" and _word(words[-1]) == "FORCE"
        return [] if to_this_node else [_name(words[2])]
    if verb in ("SCHEDULE", "GROUP", "VALUE") and len(words) > 2:
        return [_name(words[2])]
    if verb == "DEAD" and len(words) > 2 and _word(words[1]) != "SHOW":
        return [_name(words[2])]
    if verb in OF_ONE_QUEUE and len(words) > 1:
        return [_name(words[1])]
    if verb == "GETJOB":
        at = 1
        while at < len(words) and _word(words[at]) != "FROM":
            at += 2 if _word(words[at]) == "WORKER" else 1  # a worker may be named FROM
        return [_name(word) for word in words[at + 1 :]]
    return []


def homeless_hint(error: Error, asked: Sequence[Call[Any]], at: Address | None) -> str:
    """Advice for an operator whose leader is unreachable; empty for other errors.

    `at` is the node that was asked as the leader of a tube; None: none was.
    """
    home = error.home if isinstance(error, TubeHome) else ""
    if at is not None and isinstance(error, ConnectionError):
        home = str(at)
    names = [name for call in asked for name in tubes_in(call)]
    if not home or not names:
        return ""
    name = shlex.quote(names[0].decode("utf-8", "backslashreplace"))
    return (
        f"the leader of tube {name} was {home}, as far as known, and was not reached in time: "
        f"`tuque tubes` shows the leader; a vote may still be choosing one. "
        f"If that node is lost for good, and no vote chooses another one: "
        f"tuque tubes home {name} NODE --force"
    )


def address_of(text: str) -> Address | None:
    """`host:port` as an address, or None."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) <= 65535:
        return None
    return Address(host, int(port))


def _word(arg: Arg) -> str:
    if isinstance(arg, bytes):
        return arg.decode("latin-1").upper() if len(arg) <= 16 else ""
    return str(arg).upper()


def _name(arg: Arg) -> bytes:
    return arg if isinstance(arg, bytes) else to_bytes(str(arg))
