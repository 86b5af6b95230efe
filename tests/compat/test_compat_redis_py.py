"""redis-py works unmodified with its default settings, and with the usual other ones."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from lab import RealServer

NEEDS = "redis"


@pytest.fixture(params=["default", "resp2", "resp3", "decoded"])
def r(request: pytest.FixtureRequest, server: RealServer) -> redis.Redis:
    """A client; the default one greets with HELLO 3 and CLIENT SETINFO."""
    options: dict[str, Any] = {
        "default": {},
        "resp2": {"protocol": 2},
        "resp3": {"protocol": 3, "client_name": "r3", "health_check_interval": 1},
        "decoded": {"decode_responses": True},
    }[request.param]
    return redis.Redis(port=server.port, **options)


def text(value: Any) -> Any:
    """Bytes and strings alike, inside lists too."""
    if isinstance(value, list):
        return [text(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


def test_the_job_cycle(r: redis.Redis) -> None:
    job_id = r.execute_command("ADDJOB", "q", "body", 0, "RETRY", 7)
    assert text(r.execute_command("GETJOB", "WITHCOUNTERS", "FROM", "q")) == [
        ["q", text(job_id), "body", "nacks", 0, "additional-deliveries", 0]
    ]
    assert r.execute_command("WORKING", job_id) == 7
    assert r.execute_command("NACK", job_id) == 1
    assert text(r.execute_command("QPEEK", "q", 5)) == [["q", text(job_id), "body"]]
    assert r.execute_command("ACKJOB", job_id) == 1
    assert r.execute_command("SHOW", job_id) is None
    assert r.execute_command("GETJOB", "NOHANG", "FROM", "q") is None
    assert r.execute_command("GETJOB", "TIMEOUT", 10, "FROM", "q") is None
    with pytest.raises(redis.ResponseError, match="BADID"):
        r.execute_command("ACKJOB", "x")
    with pytest.raises(redis.ResponseError, match="unknown command 'SET'"):
        r.set("a", "b")


def test_what_it_asks_by_itself(r: redis.Redis) -> None:
    assert r.ping()
    assert text(r.client_info()["lib-name"]).startswith("redis-py")
    assert r.client_id() > 0
    assert r.client_setname("me")
    assert text(r.client_getname()) == "me"
    assert any(text(row["name"]) == "me" for row in r.client_list())
    assert r.info()["tcp_port"] > 0
    assert r.info("clients")["connected_clients"] >= 1
    policy = {text(name): text(value) for name, value in r.config_get("maxmemory-p*").items()}
    assert policy == {"maxmemory-policy": "acks"}
    assert r.config_set("slowlog-max-len", 32)
    assert r.time()[0] > 1_700_000_000
    assert r.slowlog_len() >= 0
    assert isinstance(r.slowlog_get(), list)
    assert r.command_count() > 30
    assert "addjob" in {text(name).lower() for name in r.command()}
    assert r.client_pause(1)


def test_pipelines(r: redis.Redis) -> None:
    with r.pipeline(transaction=False) as pipe:
        for i in range(500):
            pipe.execute_command("ADDJOB", "piped", str(i), 0)
        ids = pipe.execute()
        assert len({text(job_id) for job_id in ids}) == 500
        pipe.execute_command("ACKJOB", *ids)
        pipe.execute_command("NOSUCH")
        pipe.execute_command("QLEN", "piped")
        acked, error, left = pipe.execute(raise_on_error=False)
    assert (acked, left) == (500, 0)
    assert isinstance(error, redis.ResponseError)


def test_pool_of_threads(server: RealServer) -> None:
    """Eight threads share a pool; each waits for the job of its neighbour."""
    r = redis.Redis(port=server.port, max_connections=16)
    got: list[Any] = []

    def work(i: int) -> None:
        r.execute_command("ADDJOB", f"ring{(i + 1) % 8}", str(i), 0)
        got.append(r.execute_command("GETJOB", "TIMEOUT", 20_000, "FROM", f"ring{i}"))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(int(jobs[0][2]) for jobs in got) == list(range(8))
    r.close()


def test_asyncio(server: RealServer) -> None:
    async def cycle() -> None:
        r = redis.asyncio.Redis(port=server.port)
        waiting = asyncio.create_task(r.execute_command("GETJOB", "FROM", "aq"))
        job_id = await r.execute_command("ADDJOB", "aq", "b", 0)
        assert await waiting == [[b"aq", job_id, b"b"]]
        async with r.pipeline(transaction=False) as pipe:
            pipe.execute_command("ACKJOB", job_id)
            assert await pipe.execute() == [1]
        await r.aclose()

    asyncio.run(cycle())


def test_monitor(server: RealServer) -> None:
    """After HELLO 3 the lines have Redis' form, else Disque's."""
    r = redis.Redis(port=server.port)
    with r.monitor() as monitor:
        redis.Redis(port=server.port).execute_command("QLEN", "seen")
        while True:
            seen = monitor.next_command()
            if seen["command"] == "QLEN seen":
                break
        assert seen["client_address"] == "127.0.0.1"


def test_reconnects(r: redis.Redis) -> None:
    """A connection that was killed is replaced without a word."""
    assert r.ping()
    number = r.client_id()
    other = redis.Redis(port=r.connection_pool.connection_kwargs["port"])
    assert other.client_kill_filter(_id=str(number)) == 1
    assert r.ping()


def test_password(server: RealServer) -> None:
    once: dict[str, Any] = {"port": server.port, "retry": Retry(NoBackoff(), 0)}
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(**once, password="x").ping()
    admin = redis.Redis(port=server.port)
    admin.config_set("requirepass", "secret")
    try:
        for protocol in (2, 3):
            assert redis.Redis(port=server.port, password="secret", protocol=protocol).ping()
            both = {"username": "default", "password": "secret", "protocol": protocol}
            assert redis.Redis(port=server.port, **both).ping()
            with pytest.raises(redis.AuthenticationError):
                redis.Redis(**once, protocol=protocol).ping()
            with pytest.raises(redis.AuthenticationError):
                redis.Redis(**once, password="no", protocol=protocol).ping()
    finally:
        redis.Redis(port=server.port, password="secret").config_set("requirepass", "")


def test_a_tube(r: redis.Redis) -> None:
    """Tasks come as arrays in every protocol; what one connection took it may finish."""
    r.execute_command("TUBE", "CREATE", "t", "utube", "IFNOTEXISTS")
    put = text(r.execute_command("TUBE", "PUT", "t", "body", "UTUBE", "k"))
    assert put[1:3] == ["READY", "body"]
    with r.client() as one:
        taken = text(one.execute_command("TUBE", "TAKE", "t", "TIMEOUT", "5"))
        assert (taken[0], taken[1], taken[3] > 0) == (put[0], "TAKEN", True)
        done = one.execute_command("TUBE", "ACK", "t", taken[0], "TOKEN", taken[3])
        assert text(done)[1] == "DONE"
    assert r.execute_command("TUBE", "TAKE", "t", "TIMEOUT", "0") is None
    with pytest.raises(redis.ResponseError, match="NOTUBE Tube 'none' not found"):
        r.execute_command("TUBE", "TAKE", "none")


def test_pushed_changes_do_not_confuse_it(server: RealServer) -> None:
    """A connection that subscribes goes on with its commands."""
    with redis.Redis(port=server.port, protocol=3).client() as one:
        one.execute_command("TUBE", "CREATE", "pushed", "fifo")
        assert one.execute_command("TUBE", "SUBSCRIBE", "pushed") == 1
        for number in range(3):
            assert one.execute_command("TUBE", "PUT", "pushed", "x")[0] == number
        assert one.execute_command("TUBE", "UNSUBSCRIBE") == 0


@pytest.mark.parametrize("protocol", [2, 3])
def test_users(server: RealServer, protocol: int) -> None:
    """N3.1: the methods of redis-py for users, and errors of its own classes."""
    root = redis.Redis(port=server.port, protocol=protocol, decode_responses=True)
    assert root.acl_whoami() == "default"
    assert root.acl_log_reset()
    name = f"bob{protocol}"  # failed log-ins slow down later ones
    assert root.acl_setuser(
        name, enabled=True, passwords=["+secret"], categories=["+@produce"], keys=["orders.*"]
    )
    found = root.acl_getuser(name)
    assert found is not None
    assert "on" in found["flags"]
    assert found["keys"] in ("~orders.*", ["~orders.*"])
    assert found["passwords"][0].startswith("scrypt:")
    assert root.acl_users() == ["default", name]
    assert "produce" in root.acl_cat()
    assert "addjob" in root.acl_cat("produce")
    assert len(root.acl_genpass(128)) == 32
    assert root.acl_dryrun(name, "addjob", "orders.a", "x", 0) in ("OK", b"OK", True)
    bob = redis.Redis(
        port=server.port,
        protocol=protocol,
        username=name,
        password="secret",
        decode_responses=True,
    )
    assert bob.execute_command("ADDJOB", "orders.a", "x", 0).startswith("D-")
    for words in (("ADDJOB", "payments", "x", 0), ("GETJOB", "FROM", "orders.a")):
        with pytest.raises(redis.exceptions.NoPermissionError):
            bob.execute_command(*words)
    log = root.acl_log()
    assert [entry["reason"] for entry in log][:2] == ["command", "key"]
    assert root.acl_log_reset()
    wrong = redis.Redis(
        port=server.port,
        protocol=protocol,
        username=name,
        password="wrong",
        socket_timeout=60,
        retry=Retry(NoBackoff(), 0),  # each try counts as a guess, and slows down the next
    )
    with pytest.raises(redis.exceptions.AuthenticationError):
        wrong.ping()
    assert root.acl_deluser(name) == 1
    for client in (root, bob, wrong):
        client.close()
