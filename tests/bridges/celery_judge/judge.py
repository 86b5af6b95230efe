"""Runs Celery's own integration tests, from its released sources, on Redis and on Tuque.

    python judge.py FOLDER [--all] [test ...]

FOLDER has `t/integration` of Celery. Each side has a server of its own as broker and for results,
and its tests count in a Redis server in both. Fails if a test is worse with Tuque than with Redis
and is not in `MAY_DIFFER`. One that is expected to fail with Redis may fail. A test that is worse
is tried twice more on both sides, so that a busy machine does not decide. Without --all some forty
tests run; with it some 240, for an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[2]
sys.path[:0] = [str(HERE.parent), str(ROOT / "tests" / "support")]

from celery_lab import redis_server, write_entries  # noqa: E402 - of a path that is set above

from tuque.testing.nodes import TestNode  # noqa: E402 - as that

TRIES: Final = 3
ORDER: Final = ("passed", "skipped", "xfailed", "failed", "not run")
RANK: Final = {"passed": 0, "skipped": 1, "xfailed": 2, "failed": 2, "not run": 3}
OF_RABBITMQ: Final = "asks RabbitMQ alone"
LEFT_OUT: Final = {
    "test_backend.py": "is about Azure",
    "test_mem_leak_in_exception_handling.py": "has no broker",
    "test_native_delayed_delivery_binding.py": OF_RABBITMQ,
    "test_quorum_queue_qos_cluster_simulation.py": OF_RABBITMQ,
    "test_rabbitmq_chord_unlock_routing.py": OF_RABBITMQ,
    "test_rabbitmq_default_queue_type_fallback.py": OF_RABBITMQ,
    "test_rabbitmq_quorum_queue_cycle_detection.py": OF_RABBITMQ,
}
# Tests that ask whether results are in Redis, and count there as well: they ask us, too.
ASKED: Final = (
    ("result_backend.startswith('redis')", "result_backend.startswith(('redis', 'tuque'))"),
    ('result_backend.startswith("redis")', 'result_backend.startswith(("redis", "tuque"))'),
)
# A test that hangs with one side is tried less often: the judge tries it again on both.
HURRIED: Final = (("reruns=5", "reruns=1"), ("timeout=300", "timeout=120"))
# Parts of names of tests: why each may be worse than with Redis.
MAY_DIFFER: Final = {
    "test_chord::test_chord_on_error": "reads the parts of a chord in Redis",
    "test_Inspect::test_scheduled": "tasks with an eta wait in the broker, not in a worker",
}
CANVAS: Final = """
    test_link_error::test_link_error test_chain::test_complex_chain test_chain::test_chain_on_error
    test_chain::test_group_chord_group_chain test_chain::test_second_order_replace
    test_chain::test_chord_soft_timeout_recuperation test_chain::test_chain_error_handler_with_eta
    test_chain::test_chain_of_nine_chords test_chain::test_nested_chain_group_mid
    test_chain::test_chain_with_eb_replaced_with_chain_with_eb
    test_chain::test_chaining_upgraded_chords_mixed_canvas test_chain::test_group_in_center_of_chain
    test_result_set::test_result_set_error test_group::test_empty_group_result
    test_group::test_large_group test_group::test_nested_group_chord_counting_mixed
    test_group::test_errback_called_by_group_fail_multiple
    test_group::test_task_replace_with_group_preserves_group_order test_chord::test_chord_order
    test_chord::test_add_to_chord test_chord::test_add_chord_to_chord
    test_chord::test_nested_group_chain test_chord::test_empty_header_chord
    test_chord::test_generator[3] test_chord::test_parallel_chords
    test_chord::test_chain_chord_chain_chord
""".split()
TASKS: Final = """
    test_class_based_tasks::test_class_based_task_retried test_tasks::test_basic_task
    test_tasks::test_timeout test_tasks::test_expired test_tasks::test_eta test_tasks::test_fail
    test_tasks::test_revoked test_tasks::test_retry test_tasks::test_task_retried_priority
    test_tasks::test_properties test_trace_log_arguments::test_task_failed
    test_task_replacement::test_replaced_task_nesting_chain
""".split()
NAMED: Final = (
    *(f"t/integration/test_canvas.py::{name}" for name in CANVAS),
    *(f"t/integration/test_tasks.py::{name}" for name in TASKS),
    "t/integration/test_inspect.py::test_Inspect::test_ping",
    "t/integration/test_inspect.py::test_Inspect::test_active_queues",
    "t/integration/test_prefork_shutdown.py",
)


@dataclass(frozen=True)
class Side:
    """A broker, and where its tests count."""

    name: str
    url: str
    redis_port: int


Notes = dict[str, tuple[str, str]]  # outcomes and reasons by the names of tests


def copied(source: Path, to: Path) -> None:
    """The tests alone: Celery itself is the installed one."""
    shutil.copytree(source / "t", to / "t", ignore=shutil.ignore_patterns("unit", "smoke"))
    shutil.copy(source / "pyproject.toml", to)
    for name in LEFT_OUT:
        (to / "t" / "integration" / name).unlink(missing_ok=True)
    for path in (to / "t" / "integration").glob("*.py"):
        text = path.read_text()
        for old, new in (*ASKED, *HURRIED):
            text = text.replace(old, new)
        path.write_text(text)


def start(side: Side, place: Path, tests: list[str], number: int) -> subprocess.Popen[bytes]:
    """pytest for one side; its notes are in NAME.jsonl, what it prints in NAME.log."""
    notes = place / f"{side.name}-{number}.jsonl"
    notes.touch()
    paths = [place / "entries", ROOT / "src", HERE]
    env = {
        **os.environ,
        "TEST_BROKER": side.url,
        "TEST_BACKEND": side.url,
        "REDIS_HOST": "127.0.0.1",
        "REDIS_PORT": str(side.redis_port),
        "TUQUE_JUDGE_NOTES": str(notes),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    words = [sys.executable, "-m", "pytest", "-q", "-p", "noted", "-p", "no:cacheprovider"]
    with (place / f"{side.name}-{number}.log").open("wb") as log:
        return subprocess.Popen(
            [*words, "-p", "no:benchmark", *tests], cwd=place, env=env, stdout=log, stderr=log
        )


def run(sides: list[Side], place: Path, tests: list[str], number: int) -> list[Notes]:
    """What became of the tests on each side; the sides run at the same time."""
    running = [start(side, place, tests, number) for side in sides]
    try:
        for one in running:
            one.wait()
    finally:
        for one in running:
            one.kill()
            one.wait()
    found: list[Notes] = []
    for side in sides:
        lines = (place / f"{side.name}-{number}.jsonl").read_text().splitlines()
        found.append({name: (outcome, why) for name, outcome, why in map(json.loads, lines)})
    return found


def worse(redis: Notes, ours: Notes) -> list[str]:
    """The tests whose outcome with Tuque is worse than with Redis."""
    none = "not run", ""
    names = sorted({*redis, *ours})
    return [
        name for name in names if RANK[ours.get(name, none)[0]] > RANK[redis.get(name, none)[0]]
    ]


def reason(name: str) -> str:
    """Why a test may be worse; empty if it may not."""
    return next((why for part, why in MAY_DIFFER.items() if part in name), "")


def judged(sides: list[Side], place: Path, tests: list[str]) -> int:
    """The exit code."""
    redis, ours = run(sides, place, tests, 1)
    for number in range(2, TRIES + 1):
        again = [name for name in worse(redis, ours) if not reason(name)]
        if not again:
            break
        for notes, more in zip((redis, ours), run(sides, place, again, number), strict=True):
            notes.update(more)
    left = worse(redis, ours)
    for side, notes in zip(sides, (redis, ours), strict=True):
        kinds = [outcome for outcome, _ in notes.values()]
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ORDER if kind in kinds)
        print(f"{side.name}: {len(notes)} tests, {counts}")
    for name, (outcome, why) in redis.items():
        if outcome in ("failed", "xfailed") and ours.get(name, ("", ""))[0] == "failed":
            print(f"  {outcome} with Redis, failed: {name}: {why}")
    for name in left:
        mark = "may differ" if reason(name) else "WORSE"
        outcome, why = ours.get(name, ("not run", ""))
        print(f"  {mark}: {name}: {outcome}, with Redis {redis.get(name, ('not run', ''))[0]}")
        print(f"    {reason(name) or why}")
    for name, why in LEFT_OUT.items():
        print(f"  left out: {name} {why}")
    return 0 if redis and not [name for name in left if not reason(name)] else 1


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and the servers end as well
    tests = given.tests or (["t/integration"] if given.all else list(NAMED))
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        copied(given.folder, place)
        write_entries(place / "entries")
        (place / "node").mkdir()
        begun_s = time.monotonic()
        with (
            redis_server(place) as port,
            redis_server(place) as beside,
            TestNode(place / "node") as node,
        ):
            sides = [
                Side("redis", f"redis://127.0.0.1:{port}", port),
                Side("tuque", node.url, beside),
            ]
            code = judged(sides, place, tests)
        print(f"in {time.monotonic() - begun_s:.0f} s")
        if code:
            for side in ("redis", "tuque"):
                for log in sorted(place.glob(f"{side}-*.log")):
                    lines = log.read_text("utf-8", "replace").splitlines()
                    print(f"---- {log.name}", *lines[-30:], sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
