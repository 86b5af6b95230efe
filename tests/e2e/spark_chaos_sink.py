"""The sink of Spark while drivers, tasks and the broker die: `make chaos`.

Each test ends with nothing lost, and nothing twice where the mode promises it, and prints both.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
sys.path.insert(0, str(Path(__file__).parents[1] / "spark"))

from sink_lab import bodies, journaled, once_each

from lab import RealServer
from until import until

SCRIPT = Path(__file__).parents[1] / "spark" / "sink_driver.py"
FILES = 6
ROWS = 2000  # in a file, which is a batch
DEADLINE_S = 300.0


started: list[Driver] = []


class Driver:
    """The process that runs the query, started again as often as it must."""

    def __init__(self, place: Path, broker: RealServer, mode: str, fault: str = "none") -> None:
        self.place = place
        self.words = [str(place), str(broker.port), mode, fault]
        self.process: subprocess.Popen[bytes] | None = None
        started.append(self)

    def start(self) -> None:
        (self.place / "pids").unlink(missing_ok=True)
        src = str(Path(__file__).parents[2] / "src")
        with (self.place / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), *self.words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": src},
            )

    def kill(self) -> None:
        """Python and the JVM at once, as when the machine goes away."""
        assert self.process is not None
        file = self.place / "pids"
        for pid in reversed(file.read_text().split() if file.exists() else []):
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.kill()
        self.process.wait(30)

    def batches(self) -> int:
        """How many batches Spark has begun."""
        offsets = self.place / "checkpoint" / "offsets"
        return len([f for f in offsets.glob("*") if f.name.isdigit()])

    def finish(self, restarts: int = 0) -> None:
        """Wait for the end, starting again what died by its own hand."""
        assert self.process is not None
        for left in range(restarts, -1, -1):
            self.process.wait(DEADLINE_S)
            if (self.place / "done").exists():
                return
            assert left, (self.place / "driver.log").read_text()[-3000:]
            self.start()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RealServer]:
    server = journaled(tmp_path / "node")
    yield server
    for driver in started:
        if driver.process is not None and driver.process.poll() is None:
            driver.kill()
    started.clear()
    server.end()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        rows = range(number * ROWS, (number + 1) * ROWS)
        (tmp_path / "in" / f"{number}.txt").write_text("".join(f"{row}\n" for row in rows))
    return tmp_path


def judge(broker: RealServer, what: str, doubles: tuple[int, int] = (0, 0)) -> None:
    """All rows are there; so many are there twice, from and to."""
    found = bodies(broker, "out")
    lost = once_each(FILES * ROWS) - found
    twice = sum((found - once_each(FILES * ROWS)).values())
    print(f"{what}: {FILES * ROWS} rows, {len(lost)} lost, {twice} duplicates")
    assert not lost
    assert doubles[0] <= twice <= doubles[1]


@pytest.mark.parametrize(
    ("mode", "doubles"), [("append", (ROWS, ROWS)), ("dedupe", (0, 0)), ("staged", (0, 0))]
)
def test_the_driver_dies_between_publish_and_commit_log(
    broker: RealServer, place: Path, mode: str, doubles: tuple[int, int]
) -> None:
    driver = Driver(place, broker, mode, "published")
    driver.start()
    driver.finish(1)
    assert (place / "died").exists()
    judge(broker, f"driver killed after publish, {mode}", doubles)


@pytest.mark.parametrize(
    ("mode", "doubles"), [("append", (0, FILES * ROWS)), ("dedupe", (0, 0)), ("staged", (0, 0))]
)
def test_every_task_fails_once(
    broker: RealServer, place: Path, mode: str, doubles: tuple[int, int]
) -> None:
    driver = Driver(place, broker, mode, "flaky")
    driver.start()
    driver.finish()
    judge(broker, f"tasks retried, {mode}", doubles)


@pytest.mark.parametrize("mode", ["staged", "lease"])
def test_the_driver_is_killed_anywhere(broker: RealServer, place: Path, mode: str) -> None:
    rng = random.Random(mode)
    if mode == "lease":
        wire = broker.wire()
        for row in range(FILES * ROWS):
            wire.send("ADDJOB", "in", str(row), 0)
        Counter(type(wire.read()) for _ in range(FILES * ROWS))
    driver = Driver(place, broker, mode)
    kills = 0
    for batch in (1, 2, 4):
        driver.start()
        until(
            lambda b=batch: driver.batches() > b or (place / "done").exists(),
            "no batch began",
            most_s=DEADLINE_S,
        )
        time.sleep(rng.random())
        if (place / "done").exists():
            break
        driver.kill()
        kills += 1
    if not (place / "done").exists():
        driver.start()
        driver.finish()
    judge(broker, f"driver killed {kills} times, {mode}")
    assert kills
    if mode == "lease":
        assert not bodies(broker, "in")


@pytest.mark.parametrize("mode", ["dedupe", "staged"])
def test_the_broker_is_killed_again_and_again(broker: RealServer, place: Path, mode: str) -> None:
    driver = Driver(place, broker, mode)
    driver.start()
    kills = 0
    while not (place / "done").exists():
        begun = driver.batches()
        assert driver.process is not None
        assert driver.process.poll() in (None, 0), (place / "driver.log").read_text()[-3000:]
        until(
            lambda b=begun: driver.batches() > b or driver.process.poll() is not None,
            "no batch began",
            most_s=DEADLINE_S,
        )
        broker.kill()
        broker.start()
        kills += 1
    driver.finish()
    judge(broker, f"broker killed {kills} times, {mode}")
