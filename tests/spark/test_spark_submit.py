"""`tuque spark submit` and `shell`, and a session in a program that spark-submit runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from click.testing import CliRunner

from tuque.spark.cli import submit
from tuque.spark.cli.group import spark as spark_group
from tuque.spark.session import CHECKPOINT_MANAGER, STATE_STORE, defaults

SOURCE = Path(submit.__file__).parents[2]

JOB = """
import sys
from tuque.spark import session
spark = session("job", conf={"spark.sql.shuffle.partitions": "7"})
get = spark.conf.get
print(spark.sparkContext.master, sys.argv[1:], sep="|")
print(get("spark.sql.session.timeZone"), get("spark.sql.shuffle.partitions"), sep="|")
print(get("spark.sql.streaming.stateStore.providerClass"), sep="|")
print(spark.range(3).selectExpr("sum(id) s").first().s)
spark.stop()
"""


@pytest.mark.parametrize(
    ("words", "master"),
    [
        ("", "local[*]"),
        ("--master spark://h:7077 job.py", "spark://h:7077"),
        ("--master=local[3] job.py", "local[3]"),
        ("--conf spark.master=yarn job.py", "yarn"),
        ("--conf=spark.master=local[1] job.py", "local[1]"),
        ("--py-files a.py --master local[4] job.py", "local[4]"),
        ("--executor-memory 1g job.py --master mine", "local[*]"),
    ],
)
def test_the_master_of_arguments(words: str, master: str) -> None:
    assert submit.chosen_master(tuple(words.split()), {}) == master


def test_only_a_local_session_is_bound_to_the_loopback(tmp_path: Path) -> None:
    """Executors elsewhere must reach the driver."""
    assert defaults(tmp_path, "local[2]")["spark.driver.host"] == "127.0.0.1"
    far = defaults(tmp_path, "spark://h:7077")
    assert not [key for key in far if "driver" in key]
    assert far["spark.sql.streaming.checkpointFileManagerClass"] == CHECKPOINT_MANAGER
    assert far["spark.sql.streaming.stateStore.providerClass"] == STATE_STORE


def test_help_is_ours_and_tells_the_way_to_sparks() -> None:
    for name in ("submit", "shell"):
        told = CliRunner().invoke(spark_group, [name, "--help"])
        assert told.exit_code == 0
        assert f"tuque spark {name} -- --help" in " ".join(told.output.split())


def run(*words: str, text: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """A `tuque spark` command that ends with 0."""
    done = subprocess.run(
        [sys.executable, "-m", "tuque", "spark", *words],
        input=text,
        env={**os.environ, "PYTHONPATH": str(SOURCE), **variables},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.mark.slow
@pytest.mark.spark
def test_submit_passes_arguments_and_what_is_given_wins(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    given = ("--master", "local[1]", "--conf", "spark.sql.session.timeZone=Asia/Tokyo")
    done = run("submit", *given, "--driver-memory", "512m", str(job), "--master", "mine")
    assert done.stdout.splitlines() == [
        "local[1]|['--master', 'mine']",
        "Asia/Tokyo|7",
        STATE_STORE,
        "3",
    ]


@pytest.mark.slow
@pytest.mark.spark
def test_the_shell_has_a_session(tmp_path: Path) -> None:
    prompt = {"PYSPARK_DRIVER_PYTHON_OPTS": "-i"}  # as on a terminal
    said = (
        "print('zone', spark.conf.get('spark.sql.session.timeZone'))\n"
        "import tuque.spark\n"
        "print('sum', tuque.spark.session().range(4).selectExpr('sum(id) s').first().s)\n"
    )
    done = run("shell", "--master", "local[1]", "--driver-memory", "512m", text=said, **prompt)
    assert "zone UTC" in done.stdout
    assert "sum 6" in done.stdout
