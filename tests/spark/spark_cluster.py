"""A standalone Spark of one master and two workers on three loopback addresses.

The addresses differ because Spark starts no speculative copy of a task on a host that runs it
already. PySpark's package has no start-master.sh; its spark-class starts the same classes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import tuque
from lab import free_port
from tuque.spark.cli.submit import spark_home
from tuque.spark.java import find_java
from until import until

SOURCE = Path(tuque.__file__).parents[1]
PYTHONPATH = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
HOSTS = ("127.0.0.2", "127.0.0.3")
START_S = 90.0
DAEMONS = "org.apache.spark.deploy"
EXECUTOR = b"CoarseGrainedExecutorBackend"


class SparkCluster:
    """Master and workers as processes; a program with `env` and MASTER runs on them."""

    def __init__(self, directory: Path, cores: int = 1) -> None:
        self.directory = directory
        self.cores = cores
        self.master = f"spark://127.0.0.1:{free_port('127.0.0.1')}"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.env = {
            **os.environ,
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": PYTHONPATH,
            "MASTER": self.master,
        }

    def __enter__(self) -> SparkCluster:
        port = self.master.rpartition(":")[2]
        where = ("--host", "127.0.0.1", "--port", port)
        try:
            self._start("master", "127.0.0.1", "master.Master", *where, "--webui-port", "0")
            self._await_log("master", "I have been elected leader", 1)
            for host in HOSTS:
                self._start_worker(host)
            self._await_log("master", "Registering worker", len(HOSTS))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.executors():
            end(pid, signal.SIGKILL)
        for process in reversed(self.processes):
            process.kill()
            process.wait()

    def _start_worker(self, host: str) -> None:
        size = ("--cores", str(self.cores), "--memory", "1g", "--webui-port", "0")
        work = ("--work-dir", str(self.directory / f"work-{host}"))
        self._start(host, host, "worker.Worker", "--host", host, *size, *work, self.master)

    def _start(self, name: str, host: str, daemon: str, *words: str) -> None:
        with (self.directory / f"{name}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    [str(spark_home() / "bin" / "spark-class"), f"{DAEMONS}.{daemon}", *words],
                    env={**self.env, "SPARK_LOCAL_IP": host},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def _await_log(self, name: str, text: str, count: int) -> None:
        log = self.directory / f"{name}.log"

        def found() -> bool:
            for process in self.processes:
                assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            return log.read_text(errors="replace").count(text) >= count

        until(found, lambda: log.read_text(errors="replace")[-2000:], most_s=START_S)

    def executors(self) -> list[int]:
        """The JVMs that our workers started to run tasks."""
        workers = {process.pid for process in self.processes}
        return [pid for pid in processes() if parent(pid) in workers and EXECUTOR in line(pid)]

    def kill_executor(self) -> int:
        """Kills the youngest executor and returns its pid; the worker starts another one."""
        until(lambda: bool(self.executors()), "no executor runs", most_s=START_S)
        pid = max(self.executors())
        end(pid, signal.SIGKILL)
        return pid

    def settings(self) -> dict[str, str]:
        """What a session in a test wants: small executors, small driver."""
        return {
            "spark.driver.memory": "512m",
            "spark.executor.memory": "600m",
            "spark.executor.cores": str(self.cores),
            "spark.cores.max": str(self.cores * len(HOSTS)),
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        }


def processes() -> list[int]:
    """All process ids of this machine."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def parent(pid: int) -> int:
    """The id of the parent; 0 when the process is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def line(pid: int) -> bytes:
    """The command line; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def end(pid: int, number: int) -> None:
    """Signals a process that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
