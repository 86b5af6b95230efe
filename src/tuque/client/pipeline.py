"""Calls gathered to be sent together, and their results; the faces send them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from tuque.client.api import Arg, Reply, Text
from tuque.client.commands import admin, calls, drivers, leases, rights, tubes, writes
from tuque.client.commands.calls import Call
from tuque.client.transport.face import as_method
from tuque.client.tube import QueuedTube
from tuque.errors import Error, ProtocolError, ReplyError

P = ParamSpec("P")
Q = TypeVar("Q", bound="Queued")
BATCH_CALLS = 1000
BATCH_BYTES = 1 << 20


def _queued(build: Callable[P, Call[Any]]) -> Callable[Concatenate[Q, P], Q]:
    def method(self: Q, /, *args: P.args, **kwargs: P.kwargs) -> Q:
        self.queue(build(*args, **kwargs))
        return self

    as_method(build, method, "the pipeline")
    return method


class Queued:
    """The calls of a pipeline in order; every method gives the pipeline itself back."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self._calls: list[Call[Any]] = []

    def __len__(self) -> int:
        return len(self._calls)

    def queue(self, call: Call[Any]) -> None:
        """Adds a call; ValueError for one that would hold the others up for ever."""
        if call.wait_s is None:
            raise ValueError(f"{call.name} in a pipeline needs an end to its wait: give timeout_ms")
        self._calls.append(call)

    def tube(self: Q, name: Text) -> QueuedTube[Q]:
        """A tube by its name: its methods add calls, too."""
        return QueuedTube(self, name)

    def _taken(self) -> list[Call[Any]]:
        taken, self._calls = self._calls, []
        self.results = []
        return taken

    addjob = _queued(calls.addjob)
    getjob = _queued(calls.getjob)
    ackjob = _queued(calls.ackjob)
    fastack = _queued(calls.fastack)
    deljob = _queued(calls.deljob)
    nack = _queued(calls.nack)
    enqueue = _queued(calls.enqueue)
    dequeue = _queued(calls.dequeue)
    working = _queued(calls.working)
    deadletter = _queued(calls.deadletter)
    show = _queued(calls.show)
    qlen = _queued(calls.qlen)
    qstat = _queued(calls.qstat)
    qpeek = _queued(calls.qpeek)
    pause = _queued(calls.pause)
    lease_open = _queued(leases.lease_open)
    lease_next = _queued(leases.lease_next)
    lease_fetch = _queued(leases.lease_fetch)
    lease_columns = _queued(leases.lease_columns)
    lease_commit = _queued(leases.lease_commit)
    lease_touch = _queued(leases.lease_touch)
    lease_nack = _queued(leases.lease_nack)
    lease_release = _queued(leases.lease_release)
    lease_gone = _queued(leases.lease_gone)
    lease_begin = _queued(leases.lease_begin)
    lease_split = _queued(leases.lease_split)
    lease_defer = _queued(leases.lease_defer)
    lease_info = _queued(leases.lease_info)
    lease_list = _queued(leases.lease_list)
    stage = _queued(writes.stage)
    publish = _queued(writes.publish)
    tube_list = _queued(tubes.tube_list)
    tube_state = _queued(tubes.tube_state)
    tube_grants = _queued(rights.tube_grants)
    tube_drivers = _queued(drivers.tube_drivers)
    register_tube_driver = _queued(drivers.register_tube_driver)
    tube_statistics = _queued(tubes.tube_statistics)
    tube_cfg = _queued(tubes.tube_cfg)
    ping = _queued(admin.ping)
    hello = _queued(admin.hello)
    time = _queued(admin.time)
    info = _queued(admin.info)
    config_get = _queued(admin.config_get)
    config_set = _queued(admin.config_set)
    config_rewrite = _queued(admin.config_rewrite)
    config_resetstat = _queued(admin.config_resetstat)
    client_list = _queued(admin.client_list)
    cluster_nodes = _queued(admin.cluster_nodes)
    cluster_info = _queued(admin.cluster_info)
    cluster_myid = _queued(admin.cluster_myid)
    cluster_meet = _queued(admin.cluster_meet)
    cluster_forget = _queued(admin.cluster_forget)
    cluster_leaving = _queued(admin.cluster_leaving)
    cluster_repair = _queued(admin.cluster_repair)
    bgrewriteaof = _queued(admin.bgrewriteaof)
    execute_command = _queued(admin.execute)


def batches(pending: list[Call[Any]]) -> Iterator[list[Call[Any]]]:
    """Cuts calls into batches small enough that neither side must buffer without bound."""
    batch: list[Call[Any]] = []
    size = 0
    for call in pending:
        batch.append(call)
        size += sum(_size(arg) for arg in call.args)
        if len(batch) >= BATCH_CALLS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def read_all(asked: list[Call[Any]], replies: list[Reply]) -> list[Any]:
    """The typed results, an exception in the place of each call that failed."""
    return [_read(call, reply) for call, reply in zip(asked, replies, strict=True)]


def raise_first(asked: list[Call[Any]], results: list[Any]) -> None:
    """Raises the first exception among results, with a note which call it answers."""
    for at, (call, result) in enumerate(zip(asked, results, strict=True)):
        if isinstance(result, Error):
            result.add_note(f"call {at + 1} of {len(asked)} of a pipeline: {call.name}")
            raise result


def _size(arg: Arg) -> int:
    return len(arg) if isinstance(arg, bytes | str) else 8


def _read(call: Call[Any], reply: Reply) -> Any:
    if isinstance(reply, ReplyError):
        reply.job_id = call.job_id
        return reply
    if isinstance(reply, Error):
        return reply
    try:
        return call.read(reply)
    except ProtocolError as e:
        return e
