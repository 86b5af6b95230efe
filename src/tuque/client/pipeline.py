"""Calls collected to be sent together, and their results; the faces send them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from tuque.client.api import Reply, Text, to_bytes, to_text
from tuque.client.commands import (
    admin,
    calls,
    dead,
    groups,
    leases,
    operate,
    schedules,
    staged,
    topics,
    tubes,
    values,
    work,
)
from tuque.client.commands.calls import Call
from tuque.client.retry import own
from tuque.client.transport.face import as_method
from tuque.errors import Error, ProtocolError, ReplyError

P = ParamSpec("P")
Q = TypeVar("Q", bound="Queued")
T = TypeVar("T")
BATCH_CALLS = 1000
BATCH_BYTES = 1 << 20
NUMBER_BYTES = 8
STEPS_S = 0.005  # how long a loop is held


def _queued(build: Callable[P, Call[Any]]) -> Callable[Concatenate[Q, P], Q]:
    def method(self: Q, /, *args: P.args, **kwargs: P.kwargs) -> Q:
        self.queue(build(*args, **kwargs))
        return self

    as_method(build, method, "the pipeline")
    return method


def _tube_queued(
    build: Callable[Concatenate[Text, P], Call[Any]],
) -> Callable[Concatenate[QueuedTube[Q], P], Q]:
    def method(self: QueuedTube[Q], /, *args: P.args, **kwargs: P.kwargs) -> Q:
        self.pipeline.queue(build(self.name, *args, **kwargs))
        return self.pipeline

    as_method(build, method, "the pipeline", skips=1)
    return method


class Queued:
    """The calls of a pipeline in order; every method returns the pipeline itself."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self._calls: list[Call[Any]] = []

    def __len__(self) -> int:
        return len(self._calls)

    def queue(self, call: Call[Any]) -> None:
        """Adds a call; ValueError for one that could block the others for ever."""
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
    addjob_new = _queued(staged.addjob_new)
    getjob = _queued(calls.getjob)
    ackjob = _queued(calls.ackjob)
    fastack = _queued(calls.fastack)
    deljob = _queued(calls.deljob)
    nack = _queued(calls.nack)
    enqueue = _queued(calls.enqueue)
    dequeue = _queued(calls.dequeue)
    start = _queued(work.start)
    working = _queued(work.working)
    progress = _queued(work.progress)
    release = _queued(work.release)
    fail = _queued(work.fail)
    done = _queued(work.done)
    done_many = _queued(work.done_many)
    cancel = _queued(work.cancel)
    result = _queued(work.result)
    waitjob = _queued(work.waitjob)
    updatejob = _queued(work.updatejob)
    dead_show = _queued(dead.dead_show)
    dead_stat = _queued(dead.dead_stat)
    deadletter = _queued(calls.deadletter)
    show = _queued(calls.show)
    qlen = _queued(calls.qlen)
    qstat = _queued(calls.qstat)
    qpeek = _queued(calls.qpeek)
    history = _queued(operate.history)
    history_queues = _queued(operate.history_queues)
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
    qlist = _queued(operate.qlist)
    queue_set = _queued(operate.queue_set)
    queue_show = _queued(operate.queue_show)
    queue_purge = _queued(operate.queue_purge)
    queue_delete = _queued(operate.queue_delete)
    worker_here = _queued(operate.worker_here)
    worker_bye = _queued(operate.worker_bye)
    worker_quiet = _queued(operate.worker_quiet)
    worker_stop = _queued(operate.worker_stop)
    worker_deploys = _queued(operate.worker_deploys)
    stage = _queued(staged.stage)
    stage_id = _queued(staged.stage_id)
    publish = _queued(staged.publish)
    schedule_add = _queued(schedules.schedule_add)
    schedule_show = _queued(schedules.schedule_show)
    schedule_pause = _queued(schedules.schedule_pause)
    schedule_resume = _queued(schedules.schedule_resume)
    schedule_run = _queued(schedules.schedule_run)
    schedule_drop = _queued(schedules.schedule_drop)
    value_set = _queued(values.value_set)
    value_get = _queued(values.value_get)
    value_wait = _queued(values.value_wait)
    value_drop = _queued(values.value_drop)
    value_add = _queued(values.value_add)
    value_tally = _queued(values.value_tally)
    topic_subscribe = _queued(topics.topic_subscribe)
    topic_unsubscribe = _queued(topics.topic_unsubscribe)
    topic_add = _queued(topics.topic_add)
    group_create = _queued(groups.group_create)
    group_add = _queued(groups.group_add)
    group_show = _queued(groups.group_show)
    group_cancel = _queued(groups.group_cancel)
    tube_list = _queued(tubes.tube_list)
    tube_state = _queued(tubes.tube_state)
    tube_grants = _queued(tubes.tube_grants)
    tube_drivers = _queued(tubes.tube_drivers)
    register_tube_driver = _queued(tubes.register_tube_driver)
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


class QueuedTube(Generic[Q]):
    """A tube of a pipeline: every method adds a call and returns the pipeline."""

    def __init__(self, pipeline: Q, name: Text) -> None:
        self.pipeline = pipeline
        self.name = name if isinstance(name, str) else to_text(to_bytes(name, "name"))

    create = _tube_queued(tubes.create)
    put = _tube_queued(tubes.put)
    take = _tube_queued(tubes.take)
    ack = _tube_queued(tubes.ack)
    release = _tube_queued(tubes.release)
    touch = _tube_queued(tubes.touch)
    bury = _tube_queued(tubes.bury)
    kick = _tube_queued(tubes.kick)
    peek = _tube_queued(tubes.peek)
    delete = _tube_queued(tubes.delete)
    tasks_by_state = _tube_queued(tubes.tasks_by_state)
    truncate = _tube_queued(tubes.truncate)
    release_all = _tube_queued(tubes.release_all)
    drop = _tube_queued(tubes.drop)
    info = _tube_queued(tubes.info)
    statistics = _tube_queued(tubes.statistics)
    changes = _tube_queued(tubes.changes)
    grant = _tube_queued(tubes.grant)
    state = _tube_queued(tubes.state)
    home = _tube_queued(tubes.home)
    move = _tube_queued(tubes.move)
    take_over = _tube_queued(tubes.take_over)
    revoke = _tube_queued(tubes.revoke)
    grants = _tube_queued(tubes.grants)


def batches(pending: list[Call[Any]]) -> Iterator[list[Call[Any]]]:
    """Splits calls into batches so small that neither side must buffer without bound."""
    if len(pending) == 1:
        yield pending
        return
    batch: list[Call[Any]] = []
    size = 0
    for call in pending:
        batch.append(call)
        for arg in call.args:
            size += len(arg) if isinstance(arg, bytes | str) else NUMBER_BYTES
        if len(batch) >= BATCH_CALLS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def read_each(asked: list[Call[Any]], replies: list[Reply]) -> Iterator[Any]:
    """The typed results, with an exception for each failed call."""
    for call, reply in zip(asked, replies, strict=True):
        yield _read(call, reply)


async def unhurried(steps: Iterable[T]) -> list[T]:
    """Take the steps to their end; other coroutines of the loop run in between, each 5 ms."""
    import asyncio  # programs without a loop do not wait for it

    done: list[T] = []
    until_s = time.perf_counter() + STEPS_S
    for one in steps:
        done.append(one)
        if time.perf_counter() >= until_s:
            await asyncio.sleep(0)
            until_s = time.perf_counter() + STEPS_S
    return done


def raise_first(asked: list[Call[Any]], results: list[Any]) -> None:
    """Raises the first exception among results, with a note that names its call."""
    for at, (call, result) in enumerate(zip(asked, results, strict=True)):
        if isinstance(result, Error):
            result.add_note(f"call {at + 1} of {len(asked)} of a pipeline: {call.name}")
            raise result


def _read(call: Call[Any], reply: Reply) -> Any:
    if isinstance(reply, ReplyError):
        reply.job_id = call.job_id
        return reply
    if isinstance(reply, Error):
        return reply
    try:
        return call.read(reply)
    except own(ProtocolError) as e:
        return e
