"""Programs made for Redis and Disque work unmodified against a real server."""

from __future__ import annotations

import shutil
import subprocess

import pydisque.client
import pytest
import redis


def test_redis_py_with_default_settings(port: int) -> None:
    r = redis.Redis(port=port, client_name="tester")  # opens with HELLO 3 and CLIENT SETINFO
    assert r.ping()
    assert r.client_getname() == "tester"
    assert r.client_info()["lib-name"] == "redis-py"
    id = r.execute_command("ADDJOB", "rq", "body", 100)
    assert r.execute_command("GETJOB", "FROM", "rq") == [[b"rq", id, b"body"]]
    assert r.execute_command("ACKJOB", id) == 1
    assert r.config_get("maxmemory-p*") == {"maxmemory-policy": "acks"}
    assert r.config_set("hz", 20)
    assert r.info("jobs")["registered_jobs"] == 0
    assert r.command_count() == len(r.command())
    assert r.client_list()[0]["cmd"]
    assert r.slowlog_len() == 0
    assert r.time()[0] > 0
    with pytest.raises(redis.ResponseError, match="unknown command 'SET'"):
        r.set("a", "b")
    r.close()


def test_redis_py_monitor(port: int) -> None:
    r, other = redis.Redis(port=port), redis.Redis(port=port)
    with r.monitor() as monitor:
        other.ping()
        assert next(monitor.listen())["command"] in ("HELLO 3", "CLIENT SETINFO LIB-NAME redis-py")
    r.close()
    other.close()


def test_redis_py_with_resp2_and_pipelines(port: int) -> None:
    r = redis.Redis(port=port, protocol=2)
    pipe = r.pipeline(transaction=False)
    for i in range(100):
        pipe.execute_command("ADDJOB", "pipe", str(i), 0)
    assert len(pipe.execute()) == 100
    got = r.execute_command("GETJOB", "COUNT", 100, "FROM", "pipe")
    assert [job[2] for job in got] == [b"%d" % i for i in range(100)]
    assert r.execute_command("GETJOB", "NOHANG", "FROM", "pipe") is None
    r.close()


def test_pydisque(port: int) -> None:
    client = pydisque.client.Client([f"127.0.0.1:{port}"])
    client.connect()
    id = client.add_job("pq", "hello", timeout=100)
    assert client.get_job(["pq"]) == [(b"pq", id, b"hello")]
    client.nack_job(id)  # gives nothing back
    assert client.qpeek("pq", 1) == [[b"pq", id, b"hello"]]
    assert client.qlen("pq") == 1
    assert b"pq" in client.qscan()[1]
    client.ack_job(id)
    assert client.show(id) is None


def run(*words: str) -> str:
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout


def test_redis_cli(port: int) -> None:
    at = ("redis-cli", "-p", str(port))
    assert run(*at, "ping") == "PONG\n"
    id = run(*at, "addjob", "cq", "body", "0").strip()
    assert run(*at, "-3", "getjob", "from", "cq").split() == ["cq", id, "body"]
    assert run(*at, "ackjob", id) == "1\n"
    assert run(*at, "config", "get", "appendonly") == "appendonly\nno\n"


def test_redis_benchmark(port: int) -> None:
    out = run("redis-benchmark", "-p", str(port), "-t", "ping", "-n", "500", "-c", "5", "-q")
    assert "requests per second" in out
