"""Spark Connect: the server from PySpark's package, a client without a JVM, our source and sink.

Source and sink run where the server is, so the server must be able to import Tuque; the client
needs PySpark's Connect packages only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc")
pytest.importorskip("pandas")

from spark_cluster import PYTHONPATH

from lab import RealServer, free_port
from tuque import Client
from until import until

pytestmark = [pytest.mark.slow, pytest.mark.spark]

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
CLIENT = """
import json, sys
from pyspark.sql import SparkSession
asked = json.loads(sys.argv[1])
spark = SparkSession.builder.remote(asked["remote"]).getOrCreate()
told = {"sum": spark.range(5).selectExpr("sum(id) s").first().s}
options = {"port": str(asked["port"])}
seen = spark.read.format("tuque").options(**options).option("queue", "in").load()
told["peeked"] = seen.count()
(spark.range(300).selectExpr("concat('row ', id) AS body").write.format("tuque").mode("append")
    .options(**options).option("queue", "out").save())
query = (
    spark.readStream.format("tuque").options(**options).option("queue", "in")
    .option("group", "connect").load().select("id", "body")
    .writeStream.format("parquet").option("path", asked["table"])
    .option("checkpointLocation", asked["checkpoint"]).trigger(availableNow=True).start()
)
query.awaitTermination()
rows = spark.read.parquet(asked["table"])
told["rows"], told["jobs"] = rows.count(), rows.select("id").distinct().count()
told["jvm"] = hasattr(spark, "_jvm")
print(json.dumps(told))
spark.stop()
"""


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    """The address of a Connect server that `tuque spark submit` started."""
    port = free_port("127.0.0.1")
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.memory": "768m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.warehouse.dir": tmp_path / "warehouse",
    }
    words = [f"--conf={name}={value}" for name, value in settings.items()]
    log = tmp_path / "connect.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tuque",
                "spark",
                "submit",
                "--master",
                "local[2]",
                *words,
                "--class",
                SERVER,
                "spark-internal",
            ],
            env={**os.environ, "PYTHONPATH": PYTHONPATH},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            process_group=0,
        )

    def is_up() -> bool:
        assert server.poll() is None, log.read_text(errors="replace")[-3000:]
        return "Spark Connect server started at" in log.read_text(errors="replace")

    try:
        until(is_up, lambda: log.read_text(errors="replace")[-3000:], most_s=90)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def test_source_and_sink_over_connect(remote: str, broker: RealServer, tmp_path: Path) -> None:
    with Client(f"tuque://127.0.0.1:{broker.port}") as client:
        for number in range(500):
            client.addjob("in", str(number))
    asked = {
        "remote": remote,
        "port": broker.port,
        "table": str(tmp_path / "table"),
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, json.dumps(asked)],
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "sum": 10, "peeked": 500, "rows": 500, "jobs": 500, "jvm": False,
    }  # fmt: skip
    with Client(f"tuque://127.0.0.1:{broker.port}") as client:
        bodies: Counter[bytes] = Counter()
        while jobs := client.getjob("out", count=1000, nohang=True):
            bodies.update(job.body for job in jobs)
        assert bodies == Counter(b"row %d" % number for number in range(300))
        assert client.qlen("in") == 0
