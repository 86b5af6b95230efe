"""The client for asyncio: the method table and scans on one event loop; tasks may share it."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, overload

from tuque.client import pipeline
from tuque.client.aio.runner import Runner
from tuque.client.aio.tube import Tube
from tuque.client.api import JobId, JobInfo, JobState, Text
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
from tuque.client.commands.dead import IDS_AT_ONCE, DeadFilters, DeadLetter, DeadPage
from tuque.client.commands.groups import ChildEnd, GroupChild, GroupStatus, JobGroup
from tuque.client.commands.operate import KeyRow, WorkerInfo
from tuque.client.commands.schedules import Schedule
from tuque.client.commands.topics import Subscription, topic_page
from tuque.client.commands.values import ValueRow
from tuque.client.retry import Retry, own
from tuque.client.transport.face import as_method
from tuque.client.url import settings
from tuque.errors import NoTube, ReplyError

# ---- Scans: names of queues, ids of jobs and dead letters, page by page


T = TypeVar("T")


# ---- client


P = ParamSpec("P")


def _method(
    build: Callable[P, Call[T]],
) -> Callable[Concatenate[Client, P], Coroutine[Any, Any, T]]:
    async def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(build(*args, **kwargs))

    as_method(build, method, "its result")
    return method


class Client(Runner):
    """Client for one broker or cluster; connects at the first call, reconnects by itself.

    Without a URL it uses TUQUE_URL, else the node on this machine. `timeout` (seconds) bounds
    every call in addition to the time it asks the node to wait, and the search for a node; a
    call may override it. A cancelled task loses the reply to its call; jobs in it are delivered
    again after RETRY, if that is not 0.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout: float | None = None,
        connect_timeout: float | None = None,
        login_timeout: float | None = None,
        search_timeout: float | None = None,
        retry: Retry | None = None,
        max_connections: int | None = None,
        name: str | None = None,
        follow: bool | None = None,
        discover: bool | None = None,
        on_cancel: Callable[[str, str], object] | None = None,
        on_order: Callable[[str, str], object] | None = None,
    ) -> None:
        """`on_cancel` is called with the id and run of a cancelled job that this client works on.

        `on_order` is called with the name of a worker that this client announced, and `quiet` or
        `stop`. Both happen while the client reads from the connection of its last START, WORKING
        or WORKER HERE.
        """
        super().__init__(
            settings(
                url,
                timeout=timeout,
                connect_timeout=connect_timeout,
                login_timeout=login_timeout,
                search_timeout=search_timeout,
                retry=retry,
                max_connections=max_connections,
                name=name,
                follow=follow,
                discover=discover,
            ),
            on_cancel,
            on_order,
        )

    @classmethod
    def from_url(cls, url: str) -> Self:
        return cls(url)

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes idle connections now, and busy ones when their calls end."""
        self._is_closed = True
        if self._is_mine():  # asyncio only
            self._close_idle()
        await asyncio.sleep(0)  # asyncio only: the loop closes the sockets in its next iteration
        # threads only: self._close_idle()

    def __del__(self) -> None:
        if self._is_closed or not self._is_here():
            return
        if any(pool.open_count for pool in self._pools()):
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
            self._close_idle()

    def pipeline(self) -> Pipeline:
        """Collects calls and sends them together."""
        return Pipeline(self)

    def tube(self, name: Text) -> Tube:
        """A tube by its name, whether it exists or not."""
        return Tube(self, name)

    async def tube_identify(self, uuid: Text | None = None, *, timeout: float | None = None) -> str:
        """The uuid of the session that holds the tasks taken; with `uuid`, joins that one."""
        found = await self.run(tubes.identify(uuid, timeout=timeout))
        self._on_identified(found)
        return found

    # The method table

    addjob = _method(calls.addjob)
    addjob_new = _method(staged.addjob_new)
    getjob = _method(calls.getjob)
    ackjob = _method(calls.ackjob)
    fastack = _method(calls.fastack)
    deljob = _method(calls.deljob)
    nack = _method(calls.nack)
    enqueue = _method(calls.enqueue)
    dequeue = _method(calls.dequeue)
    start = _method(work.start)
    working = _method(work.working)
    progress = _method(work.progress)
    release = _method(work.release)
    fail = _method(work.fail)
    done = _method(work.done)
    done_many = _method(work.done_many)
    cancel = _method(work.cancel)
    result = _method(work.result)
    waitjob = _method(work.waitjob)
    updatejob = _method(work.updatejob)
    dead_show = _method(dead.dead_show)
    dead_stat = _method(dead.dead_stat)
    deadletter = _method(calls.deadletter)
    show = _method(calls.show)
    qlen = _method(calls.qlen)
    qstat = _method(calls.qstat)
    qpeek = _method(calls.qpeek)
    history = _method(operate.history)
    history_queues = _method(operate.history_queues)
    pause = _method(calls.pause)
    lease_open = _method(leases.lease_open)
    lease_next = _method(leases.lease_next)
    lease_fetch = _method(leases.lease_fetch)
    lease_columns = _method(leases.lease_columns)
    lease_commit = _method(leases.lease_commit)
    lease_touch = _method(leases.lease_touch)
    lease_nack = _method(leases.lease_nack)
    lease_release = _method(leases.lease_release)
    lease_gone = _method(leases.lease_gone)
    lease_begin = _method(leases.lease_begin)
    lease_split = _method(leases.lease_split)
    lease_defer = _method(leases.lease_defer)
    lease_info = _method(leases.lease_info)
    lease_list = _method(leases.lease_list)
    qlist = _method(operate.qlist)
    queue_set = _method(operate.queue_set)
    queue_show = _method(operate.queue_show)
    queue_purge = _method(operate.queue_purge)
    queue_delete = _method(operate.queue_delete)
    worker_here = _method(operate.worker_here)
    worker_bye = _method(operate.worker_bye)
    worker_quiet = _method(operate.worker_quiet)
    worker_stop = _method(operate.worker_stop)
    worker_deploys = _method(operate.worker_deploys)
    stage = _method(staged.stage)
    stage_id = _method(staged.stage_id)
    publish = _method(staged.publish)
    schedule_add = _method(schedules.schedule_add)
    schedule_show = _method(schedules.schedule_show)
    schedule_pause = _method(schedules.schedule_pause)
    schedule_resume = _method(schedules.schedule_resume)
    schedule_run = _method(schedules.schedule_run)
    schedule_drop = _method(schedules.schedule_drop)
    value_set = _method(values.value_set)
    value_get = _method(values.value_get)
    value_wait = _method(values.value_wait)
    value_drop = _method(values.value_drop)
    value_add = _method(values.value_add)
    value_tally = _method(values.value_tally)
    topic_subscribe = _method(topics.topic_subscribe)
    topic_unsubscribe = _method(topics.topic_unsubscribe)
    topic_add = _method(topics.topic_add)
    group_create = _method(groups.group_create)
    group_add = _method(groups.group_add)
    group_show = _method(groups.group_show)
    group_cancel = _method(groups.group_cancel)
    tube_list = _method(tubes.tube_list)
    tube_state = _method(tubes.tube_state)
    tube_grants = _method(tubes.tube_grants)
    tube_drivers = _method(tubes.tube_drivers)
    register_tube_driver = _method(tubes.register_tube_driver)
    tube_statistics = _method(tubes.tube_statistics)
    tube_cfg = _method(tubes.tube_cfg)
    ping = _method(admin.ping)
    hello = _method(admin.hello)
    time = _method(admin.time)
    info = _method(admin.info)
    config_get = _method(admin.config_get)
    config_set = _method(admin.config_set)
    config_rewrite = _method(admin.config_rewrite)
    config_resetstat = _method(admin.config_resetstat)
    client_list = _method(admin.client_list)
    cluster_nodes = _method(admin.cluster_nodes)
    cluster_info = _method(admin.cluster_info)
    cluster_myid = _method(admin.cluster_myid)
    cluster_meet = _method(admin.cluster_meet)
    cluster_forget = _method(admin.cluster_forget)
    cluster_leaving = _method(admin.cluster_leaving)
    cluster_repair = _method(admin.cluster_repair)
    bgrewriteaof = _method(admin.bgrewriteaof)
    shutdown = _method(admin.shutdown)
    execute = _method(admin.execute)

    # ---- scans

    def qscan(
        self,
        *,
        count: int | None = None,
        minlen: int | None = None,
        maxlen: int | None = None,
        importrate: int | None = None,
        type: Text | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[str]:
        """The names of this node's queues; queues created or removed meanwhile may be missed.

        `type`: only tubes of that type, or with "queue" only queues that are no tubes.
        """
        return self._scan(
            lambda cursor: calls.qscan_page(
                cursor,
                count=count,
                minlen=minlen,
                maxlen=maxlen,
                importrate=importrate,
                type=type,
                timeout=timeout,
            )
        )

    @overload
    def jscan(
        self,
        *,
        queue: Text | None = None,
        states: Iterable[JobState] = (),
        full: Literal[False] = False,
        count: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[str]: ...

    @overload
    def jscan(
        self,
        *,
        queue: Text | None = None,
        states: Iterable[JobState] = (),
        full: Literal[True],
        count: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[JobInfo]: ...

    def jscan(
        self,
        *,
        queue: Text | None = None,
        states: Iterable[JobState] = (),
        full: bool = False,
        count: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[str] | AsyncIterator[JobInfo]:
        """The ids of this node's jobs, or with `full` all it knows about them."""
        wanted = tuple(states)
        if full:
            return self._scan(
                lambda cursor: calls.jscan_full_page(
                    cursor, queue=queue, states=wanted, count=count, timeout=timeout
                )
            )
        return self._scan(
            lambda cursor: calls.jscan_page(
                cursor, queue=queue, states=wanted, count=count, timeout=timeout
            )
        )

    def dead_letters(
        self,
        queue: Text,
        *,
        reason: Text | None = None,
        cause: Text | None = None,
        task: Text | None = None,
        since_ms: int | None = None,
        count: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[DeadLetter]:
        """The dead letters of this node in a queue of them, the oldest first.

        `reason` and `task` are globs, `since_ms` is an instant in unix ms; `count` is how many
        letters a page looks at.
        """
        filters = DeadFilters(reason, cause, task, since_ms)
        return self._scan(
            lambda cursor: dead.dead_page(queue, cursor, filters, count=count, timeout=timeout)
        )

    def schedules(
        self, queue: Text, *, count: int | None = None, timeout: float | None = None
    ) -> AsyncIterator[Schedule]:
        """The schedules of a tube of type tasks, in the order in which they were added."""
        return self._scan(
            lambda cursor: schedules.schedule_page(queue, cursor, count=count, timeout=timeout)
        )

    def value_parts(
        self, queue: Text, name: Text, *, count: int | None = None, timeout: float | None = None
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Index and value of the parts of a set, in order."""
        return self._scan(
            lambda cursor: values.value_parts_page(
                queue, name, cursor, count=count, timeout=timeout
            )
        )

    def value_scan(
        self,
        queue: Text,
        *,
        match: Text | None = None,
        count: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[ValueRow]:
        """The values and sets of parts of a tube of type tasks, in the order of their first SET."""
        return self._scan(
            lambda cursor: values.value_scan_page(
                queue, cursor, match=match, count=count, timeout=timeout
            )
        )

    def groups(
        self,
        queue: Text,
        *,
        state: GroupStatus | None = None,
        count: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[JobGroup]:
        """The groups of jobs of a tube of type tasks, the oldest first: those of that state, or
        all that have not become their callback.
        """
        return self._scan(
            lambda cursor: groups.group_page(
                queue, cursor, count=count, state=state, timeout=timeout
            )
        )

    def group_children(
        self,
        queue: Text,
        id: JobId,
        *,
        state: Literal["open", "done", "failed", "dead"] | None = None,
        count: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[GroupChild]:
        """The children of a group of jobs without their results; `NoJobGroup`."""
        return self._scan(
            lambda cursor: groups.children_page(
                queue, id, cursor, count=count, state=state, timeout=timeout
            )
        )

    def group_results(
        self, queue: Text, id: JobId, *, count: int | None = None, timeout: float | None = None
    ) -> AsyncIterator[ChildEnd]:
        """The children of a group of jobs in the order of their indexes; `NoJobGroup`."""
        return self._scan(
            lambda cursor: groups.ends_page(queue, id, cursor, count=count, timeout=timeout)
        )

    def limits(
        self, queue: Text, *, count: int | None = None, timeout: float | None = None
    ) -> AsyncIterator[KeyRow]:
        """The keys of a tube of type tasks for which tasks wait, then its groups.

        Limits come first, then rates, each with the longest wait first. Keys that come or go
        meanwhile may be missed, or be there twice.
        """
        return self._scan(
            lambda cursor: operate.limits_page(queue, cursor, count=count, timeout=timeout)
        )

    def topics(
        self,
        topic: Text | None = None,
        *,
        count: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[Subscription]:
        """The subscriptions to all topics, or to one of them."""
        return self._scan(
            lambda cursor: topic_page(cursor, topic=topic, count=count, timeout=timeout)
        )

    def workers(
        self,
        *,
        match: Text | None = None,
        count: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[WorkerInfo]:
        """The workers that announced themselves to this node, with what they run.

        `match` is a glob of their names, `count` the number of workers of a page.
        """
        return self._scan(
            lambda cursor: operate.worker_list_page(
                cursor, match=match, count=count, timeout=timeout
            )
        )

    async def dead_replay(
        self,
        queue: Text,
        *,
        ids: Iterable[JobId] = (),
        reason: Text | None = None,
        cause: Text | None = None,
        task: Text | None = None,
        since_ms: int | None = None,
        to: Text | None = None,
        rate: int | None = None,
        on_page: Callable[[int, int], object] | None = None,
        timeout: float | None = None,
    ) -> int:
        """Puts dead letters back into their queues, or into `to`; returns how many.

        Those with `ids`, else all that the filters mean; without filters all. They keep their ids
        and begin anew. Letters that die again meanwhile stay. `rate`: at most so many a second.
        `on_page` gets, once a page, the number of letters changed and the number of letters seen.
        """
        filters = DeadFilters(reason, cause, task, since_ms)
        return await self._change(
            queue,
            list(ids),
            lambda cursor, some: dead.dead_replay_page(
                queue, cursor, filters, ids=some, to=to, rate=rate, timeout=timeout
            ),
            on_page,
            dead.at_once(rate),
        )

    async def dead_purge(
        self,
        queue: Text,
        *,
        ids: Iterable[JobId] = (),
        reason: Text | None = None,
        cause: Text | None = None,
        task: Text | None = None,
        since_ms: int | None = None,
        on_page: Callable[[int, int], object] | None = None,
        timeout: float | None = None,
    ) -> int:
        """Removes dead letters for good; returns how many. The arguments are as in a replay."""
        filters = DeadFilters(reason, cause, task, since_ms)
        return await self._change(
            queue,
            list(ids),
            lambda cursor, some: dead.dead_purge_page(
                queue, cursor, filters, ids=some, timeout=timeout
            ),
            on_page,
        )

    async def _change(
        self,
        queue: Text,
        ids: list[JobId],
        page: Callable[[str, list[JobId]], Call[DeadPage]],
        on_page: Callable[[int, int], object] | None,
        most: int = IDS_AT_ONCE,
    ) -> int:
        """All pages of a replay or purge; ends at the number of letters there were before."""
        done = seen = 0
        cursor = "0"
        there = len(ids) or await self._letters(queue)
        while seen < there:
            some = ids[seen : seen + most]
            found = await self.run(page(cursor, some))
            cursor = found.cursor
            done += found.done
            seen += len(some) or found.seen
            if on_page is not None:
                on_page(done, seen)
            if cursor == "0" and not ids:
                break
        return done

    async def _letters(self, queue: Text) -> int:
        """How many dead letters there are at least, and all that are there now at most.

        QLEN counts none of a tube's letters. STAT is exact below REASONS_MAX reasons.
        """
        reasons = await self.run(dead.dead_stat(queue))
        there = sum(one.count for one in reasons)
        if len(reasons) < dead.REASONS_MAX:
            return there
        try:
            return (await self.run(tubes.statistics(queue)))["tasks"]["buried"]
        except own(NoTube):
            return max(there, await self.run(calls.qlen(queue)))

    async def _scan(self, page: Callable[[str], Call[tuple[str, list[T]]]]) -> AsyncIterator[T]:
        """All items of a scan, each at least once: it restarts when another node takes over."""
        cursor, node = "0", None
        while True:
            try:
                following, items = await self.run(page(cursor))
            except own(ReplyError):
                if cursor == "0" or self._route.current == node:
                    raise
                following, items = "0", []
            now = self._route.current or node  # None: another call has lost its connection
            if cursor != "0" and now != node:
                cursor = "0"  # a cursor is valid on one node only
                continue
            cursor, node = following, now
            for item in items:
                yield item
            if cursor == "0":
                return


class Pipeline(pipeline.Queued):
    """Calls sent together at `execute`, or when an `async with` block ends without an error."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None and len(self):
            await self.execute()

    async def execute(self, *, raise_on_error: bool = True) -> list[Any]:
        """Sends the calls; returns their results in order, and keeps them in `results`.

        Raises the first error among them, or with `raise_on_error=False` leaves it in its place.
        If no reply came at all, raises that error in either case, unless only some were sent.
        """
        asked = self._taken()
        self.results = await self._client.run_all(asked) if asked else []
        if raise_on_error:
            pipeline.raise_first(asked, self.results)
        return self.results
