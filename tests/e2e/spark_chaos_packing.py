"""docs/spark-cluster.md: its commands, as they stand there, on a master and two workers.

The executors' Python has no Tuque of its own. Instead of `pip install`, packages are copied.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
sys.path.insert(0, str(Path(__file__).parents[1] / "spark"))

from cluster_driver import assert_once, drain, left
from sink_lab import journaled
from spark_cluster import SOURCE, SparkCluster

from lab import RealServer
from tuque import Client

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark-cluster.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.M | re.S)
SITE = Path(sysconfig.get_path("purelib"))
NEEDED = "pyarrow hiredis msgspec click".split()
TUQUE = ("tuque", "pyspark_tuque")
INSTALL = "env/bin/pip install 'tuque[spark]'"
# Whoever runs the user's own Python leaves the command of the process that started it.
NOTE = (
    "import os, sys; open(os.path.join(sys.prefix, 'started-by'), 'a')"
    ".write(open(f'/proc/{os.getppid()}/cmdline').read() + chr(10))"
)
JOBS = 500


def block(word: str) -> str:
    """The one shell block with that word in it."""
    (found,) = [text for kind, text in BLOCKS if kind == "sh" and word in text]
    return found


def venv(at: Path) -> None:
    """An empty one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(at)], check=True)


def site_of(env: Path) -> Path:
    """Where its packages are."""
    return env / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"


def install(env: Path, packages: Path, names: Sequence[str]) -> None:
    """What pip would bring from the registry, into the venv."""
    site = site_of(env)
    for name in names:
        if (packages / name).is_dir():
            left_out = shutil.ignore_patterns("__pycache__", "include", "tests")
            shutil.copytree(packages / name, site / name, ignore=left_out)
        else:
            shutil.copy(packages / name, site / name)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    running = SparkCluster(tmp_path_factory.mktemp("spark-cluster"))
    del running.env["PYTHONPATH"]  # what is not sent to executors is not there
    with running:
        yield running


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RealServer]:
    running = journaled(tmp_path / "node")
    with Client(f"tuque://127.0.0.1:{running.port}") as client:
        pipe = client.pipeline()
        for number in range(JOBS):
            pipe.addjob("clicks", str(number))
        pipe.execute()
    yield running
    running.end()


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A directory with job.py and programs named `python` and `tuque`, as on a user's machine."""
    desk = tmp_path / "desk"
    (desk / "bin").mkdir(parents=True)
    ((_, job),) = [found for found in BLOCKS if found[0] == "python"]
    (desk / "job.py").write_text(job)
    venv(desk / "user")
    site_of(desk / "user").joinpath("all.pth").write_text(f"{SITE}\n{SOURCE}\n{NOTE}\n")
    for name, words in (("python", ""), ("tuque", "-m tuque")):
        program = desk / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {desk}/user/bin/python {words} "$@"\n')
        program.chmod(0o755)
    return desk


def run(
    code: str, cluster: SparkCluster, broker: RealServer, desk: Path, **env: str
) -> subprocess.CompletedProcess[str]:
    """The commands, with the places that there are here."""
    code = code.replace("spark://host:7077", cluster.master)
    code = code.replace("tuque://broker:7711", f"tuque://127.0.0.1:{broker.port}")
    settings = " ".join(f"--conf {key}={value}" for key, value in cluster.settings().items())
    code = code.replace("tuque spark submit", f"tuque spark submit {settings}")
    clean = {k: v for k, v in cluster.env.items() if k not in ("PYSPARK_PYTHON", "MASTER")}
    return subprocess.run(
        ["bash", "-euc", code],
        cwd=desk,
        env={**clean, "PATH": f"{desk / 'bin'}:{os.environ['PATH']}", **env},
        capture_output=True,
        text=True,
        timeout=600,
    )


def pack_without_tuque(desk: Path) -> None:
    """A venv with what executors need but Tuque, packed."""
    venv(desk / "env")
    install(desk / "env", SITE, NEEDED)
    subprocess.run(["tar", "-C", "env", "-czf", "bare.tar.gz", "."], cwd=desk, check=True)


def test_a_packed_venv(cluster: SparkCluster, broker: RealServer, desk: Path) -> None:
    code = block("--archives")
    before, found, after = code.partition(INSTALL)
    assert found
    made = run(before, cluster, broker, desk)
    assert made.returncode == 0, made.stderr
    install(desk / "env", SITE, NEEDED)
    install(desk / "env", SOURCE, TUQUE)
    done = run(after, cluster, broker, desk)
    assert done.returncode == 0, done.stderr[-4000:]
    assert_once(drain(broker, "done"), JOBS)
    assert left(broker) == 0
    unpacked = list(cluster.directory.glob("work-*/app-*/*/env/bin/python"))
    assert len({path.parts[-6] for path in unpacked}) == 2, "both workers have it"
    started_by = (desk / "user" / "started-by").read_text()
    assert "deploy.SparkSubmit" in started_by
    assert "CoarseGrainedExecutorBackend" not in started_by, "executors ran the driver's Python"
    away = desk / "elsewhere"
    away.mkdir()
    (away / "bin").symlink_to(desk / "bin")
    shutil.copy(desk / "job.py", away)
    shutil.copy(desk / "env.tar.gz", away)
    submit = after.partition(".\n")[2]
    failed = run(submit, cluster, broker, away)
    assert failed.returncode != 0
    said = failed.stdout + failed.stderr  # a job's own words are on the first
    assert 'Cannot run program "./env/bin/python"' in said, said[:6000]


def test_py_files(cluster: SparkCluster, broker: RealServer, desk: Path) -> None:
    """The driver's `env` has Tuque; that of the executors has it not, but for the zip."""
    code = block("--py-files")
    pack_without_tuque(desk)
    sent = code.replace("--py-files", "--archives bare.tar.gz#env --py-files")
    here = {"PYSPARK_PYTHON": "./env/bin/python"}
    failed = run(sent, cluster, broker, desk, **here)
    assert failed.returncode != 0
    said = failed.stdout + failed.stderr
    assert "No module named 'tuque'" in said, said[:6000]
    shutil.rmtree(desk / "checkpoints", ignore_errors=True)
    install(desk / "env", SOURCE, TUQUE)
    done = run(sent, cluster, broker, desk, **here)
    assert done.returncode == 0, done.stderr[-4000:]
    assert_once(drain(broker, "done"), JOBS)
    assert left(broker) == 0
