"""What a type checker must know about the client. Checked by mypy, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

import tuque
from tuque import Client, Error, Job, JobInfo, Pipeline, Retry, aio, errors
from tuque.client.api import ClusterNode, Hello, QueueStat
from tuque.client.commands.leases import LeaseColumns
from tuque.client.commands.tubes import TubeTask


def threads() -> None:
    with Client(
        "tuque://h", timeout=2.0, retry=Retry(attempts=3), max_connections=4, follow=False
    ) as client:
        assert_type(client, Client)
        assert_type(client.addjob("q", b"body", delay=3, retry=0, asynchronous=True), str)
        jobs = client.getjob("a", b"b", timeout_ms=100, count=10, withcounters=True)
        assert_type(jobs, list[Job])
        assert_type(jobs[0].body, bytes)
        assert_type(jobs[0].nacks, int | None)
        assert_type(client.ackjob(*jobs, "D-x", b"D-y"), int)
        assert_type(client.nack(jobs[0], delay=0.5), int)
        assert_type(client.working(jobs[0], timeout=1.0), int)
        assert_type(client.deadletter(jobs[0], "dead", "why"), str)
        assert_type(client.show("D-x"), JobInfo | None)
        stat = client.qstat("q")
        assert_type(stat, QueueStat | None)
        if stat is not None:
            assert_type(stat["jobs-in"], int)
        assert_type(client.pause("q", "in", "bcast"), str)
        assert_type(client.qscan(minlen=1), Iterator[str])
        assert_type(client.jscan(states=["queued"]), Iterator[str])
        assert_type(client.jscan(full=True), Iterator[JobInfo])
        assert_type(client.lease_open("g", "me", "q", b"r"), int)
        assert_type(client.lease_next("g", 1, 1, 10, ttl_ms=1000, parts=2), int)
        assert_type(client.lease_fetch("g", 1, 1, 0, start=5).rows[0].body, bytes | None)
        assert_type(client.lease_columns("g", 1, 1), LeaseColumns)
        assert_type(client.lease_info("g").batches[0].is_expired, bool)
        assert_type(client.lease_nack("g", 1, 1, jobs[0], "D-x"), int)
        tube = client.tube("t")
        assert_type(tube.put({"n": 1}, pri=3, ttl=0.5, utube="k"), TubeTask | None)
        assert_type(tube.take(1.5), TubeTask | None)
        assert_type(tube.ack(7), TubeTask)
        assert_type(tube.statistics()["calls"]["put"], int)
        assert_type(client.tube_list(), list[str])
        assert_type(client.hello(), Hello)
        assert_type(client.info("queues"), dict[str, str | int])
        assert_type(client.config_get("hz"), dict[str, str])
        assert_type(client.cluster_nodes(), list[ClusterNode])
        assert_type(client.shutdown(), None)
        assert_type(client.execute("DEBUG", "SLEEP", 0.1), Any)


def pipelines(client: Client) -> None:
    with client.pipeline() as pipe:
        assert_type(pipe.addjob("q", "b").qlen("q"), Pipeline)
        assert_type(pipe.tube("t").put("x").tube_list(), Pipeline)
        assert_type(pipe.execute(raise_on_error=False), list[Any])


async def tasks() -> None:
    async with tuque.aio.Client() as client:
        assert_type(client, aio.Client)
        assert_type(await client.addjob("q", "b", ttl=60), str)
        assert_type(await client.getjob("q", nohang=True), list[Job])
        assert_type(client.qscan(), AsyncIterator[str])
        assert_type(await client.tube("t").take(), TubeTask | None)
        assert_type(client.jscan(full=True), AsyncIterator[JobInfo])
        async with client.pipeline() as pipe:
            assert_type(pipe.addjob("q", "b").qlen("q"), aio.Pipeline)
            assert_type(await pipe.execute(), list[Any])


def failures(error: Error) -> None:
    assert_type(error.node, str)
    assert_type(error.job_id, str | None)
    assert_type(error.retryable, bool)
    timeout: TimeoutError = errors.Timeout("x")
    connection: ConnectionError = errors.NoNode("x")
    print(timeout, connection)
