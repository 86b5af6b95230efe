# Made from src/tuque/client/aio/client.py by tools/faces.py: change that, and run make docs.
"""The client for threads: the method table on blocking sockets; threads may share it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from tuque.client import pipeline
from tuque.client.api import Text
from tuque.client.commands import (
    admin,
    calls,
    dead,
    leases,
    life,
    operate,
    rights,
    topics,
    tubes,
    writes,
)
from tuque.client.commands.calls import Call
from tuque.client.retry import Retry
from tuque.client.sync.scans import Scans
from tuque.client.sync.tube import Tube
from tuque.client.transport.face import as_method
from tuque.client.url import settings

P = ParamSpec("P")
T = TypeVar("T")


def _method(
    build: Callable[P, Call[T]],
) -> Callable[Concatenate[Client, P], T]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(build(*args, **kwargs))

    as_method(build, method, "its result")
    return method


class Client(Scans):
    """Client for one broker or cluster; connects at the first call, reconnects by itself.

    Without a URL it uses TUQUE_URL, else the node on this machine. `timeout` (seconds) bounds
    every call in addition to the time it asks the node to wait, and the search for a node; a
    call may override it.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout: float | None = None,
        connect_timeout: float | None = None,
        login_timeout: float | None = None,
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

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes idle connections now, and busy ones when their calls end."""
        self._is_closed = True
        self._close_idle()

    def __del__(self) -> None:
        if self._is_closed or self._pid != os.getpid():
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

    def tube_identify(self, uuid: Text | None = None, *, timeout: float | None = None) -> str:
        """The uuid of the session that holds the tasks taken; with `uuid`, joins that one."""
        found = self.run(tubes.identify(uuid, timeout=timeout))
        self._on_identified(found)
        return found

    # The method table

    addjob = _method(calls.addjob)
    addjob_new = _method(writes.addjob_new)
    getjob = _method(calls.getjob)
    ackjob = _method(calls.ackjob)
    fastack = _method(calls.fastack)
    deljob = _method(calls.deljob)
    nack = _method(calls.nack)
    enqueue = _method(calls.enqueue)
    dequeue = _method(calls.dequeue)
    start = _method(life.start)
    working = _method(life.working)
    progress = _method(life.progress)
    release = _method(life.release)
    fail = _method(life.fail)
    done = _method(life.done)
    done_many = _method(life.done_many)
    cancel = _method(life.cancel)
    result = _method(life.result)
    waitjob = _method(life.waitjob)
    updatejob = _method(life.updatejob)
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
    worker_here = _method(operate.worker_here)
    worker_bye = _method(operate.worker_bye)
    worker_quiet = _method(operate.worker_quiet)
    worker_stop = _method(operate.worker_stop)
    worker_deploys = _method(operate.worker_deploys)
    stage = _method(writes.stage)
    publish = _method(writes.publish)
    schedule_add = _method(writes.schedule_add)
    schedule_show = _method(writes.schedule_show)
    schedule_pause = _method(writes.schedule_pause)
    schedule_resume = _method(writes.schedule_resume)
    schedule_run = _method(writes.schedule_run)
    schedule_drop = _method(writes.schedule_drop)
    topic_subscribe = _method(topics.topic_subscribe)
    topic_unsubscribe = _method(topics.topic_unsubscribe)
    topic_add = _method(topics.topic_add)
    group_create = _method(writes.group_create)
    group_add = _method(writes.group_add)
    group_show = _method(writes.group_show)
    group_cancel = _method(writes.group_cancel)
    tube_list = _method(tubes.tube_list)
    tube_state = _method(tubes.tube_state)
    tube_grants = _method(rights.tube_grants)
    tube_drivers = _method(rights.tube_drivers)
    register_tube_driver = _method(rights.register_tube_driver)
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


class Pipeline(pipeline.Queued):
    """Calls sent together at `execute`, or when a `with` block ends without an error."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None and len(self):
            self.execute()

    def execute(self, *, raise_on_error: bool = True) -> list[Any]:
        """Sends the calls; returns their results in order, and keeps them in `results`.

        Raises the first error among them, or with `raise_on_error=False` leaves it in its place.
        If no reply came at all, raises that error in either case.
        """
        asked = self._taken()
        self.results = self._client.run_all(asked) if asked else []
        if raise_on_error:
            pipeline.raise_first(asked, self.results)
        return self.results
