"""pydisque 0.1.5, Disque's Python client, works unmodified."""

from __future__ import annotations

from typing import Any

import pytest

from lab import RealServer

NEEDS = "pydisque"


@pytest.fixture
def client(server: RealServer) -> Any:
    """A connected client."""
    from pydisque.client import Client

    made = Client([f"127.0.0.1:{server.port}"])
    made.connect()
    return made


def test_it_connects_by_hello(client: Any) -> None:
    assert len(client.connected_node.node_id) == 40
    assert client.info()["tcp_port"] > 0


def test_the_job_cycle(client: Any) -> None:
    job_id = client.add_job("q", "body", timeout=100, replicate=1, ttl=600, retry=7)
    assert len(job_id) == 40
    assert client.qlen("q") == 1
    assert client.get_job(["q"]) == [(b"q", job_id, b"body")]
    assert client.get_job(["q"], nohang=True) == []
    assert client.working(job_id) == 7
    client.nack_job(job_id)
    jobs = client.get_job(["none", "q"], timeout=500, count=2, withcounters=True)
    assert jobs == [(b"q", job_id, b"body", 1, 0)]
    client.ack_job(job_id)
    assert client.show(job_id) is None


def test_options_of_addjob(client: Any) -> None:
    delayed = client.add_job("late", "b", delay=100, maxlen=5, asynchronous=True)
    assert client.qlen("late") == 0
    shown = client.show(delayed, return_dict=True)
    assert {k.decode() if isinstance(k, bytes) else k: v for k, v in shown.items()}["delay"] == 100
    client.add_job("limited", "b", maxlen=1)
    with pytest.raises(Exception, match="MAXLEN|Queue is already longer"):
        client.add_job("limited", "b", maxlen=1)


def test_ids(client: Any) -> None:
    ids = [client.add_job("ids", str(i)) for i in range(4)]
    assert client.dequeue(*ids[:2]) == 2
    assert client.enqueue(*ids[:2]) == 2
    client.fast_ack(ids[0])
    assert client.del_job(ids[1]) == 1
    assert client.qlen("ids") == 2
    peeked = client.qpeek("ids", 9)
    assert [job[1] for job in peeked] == ids[2:]


def test_views(client: Any) -> None:
    client.add_job("seen", "b")
    names = client.qscan(count=1000)[1]
    assert b"seen" in names
    ids = client.jscan(count=1000, queue="seen")[1]
    assert len(ids) == 1
    stat = client.qstat("seen", return_dict=True)
    assert stat[b"len" if b"len" in stat else "len"] == 1
    assert client.pause("seen", kw_in=True) == b"in"
    with pytest.raises(Exception, match="PAUSED|paused in input"):
        client.add_job("seen", "b")
    assert client.pause("seen", kw_none=True) == b"none"
    assert client.hello()[0] == 1


def test_a_tube_is_a_queue_for_it(client: Any, server: RealServer) -> None:
    """Priorities are the tube's; ids, counters and acknowledgements as ever."""
    wire = server.wire()
    assert wire("TUBE", "CREATE", "tube", "fifottl") == b"OK"
    wire("TUBE", "PUT", "tube", "later", "PRI", 5)
    job_id = client.add_job("tube", "body", timeout=100, replicate=1, ttl=600, retry=7)
    assert client.qlen("tube") == 2
    assert client.get_job(["tube"]) == [(b"tube", job_id, b"body")]
    assert client.working(job_id) == 7
    client.nack_job(job_id)
    jobs = client.get_job(["tube"], timeout=500, count=2, withcounters=True)
    assert [(job[2], job[3]) for job in jobs] == [(b"body", 1), (b"later", 0)]
    client.ack_job(job_id)
    client.fast_ack(jobs[1][1])
    assert client.show(job_id) is None
    assert client.qstat("tube", return_dict=True)
    assert wire("TUBE", "STATISTICS", "tube")[3][1] == 2
    delayed = client.add_job("tube", "b", delay=100, asynchronous=True)
    assert wire("TUBE", "PEEK", "tube", 2)[1] == b"DELAYED"
    client.del_job(delayed)
    assert wire("TUBE", "DROP", "tube") == b"OK"
