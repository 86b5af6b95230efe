"""Runs the suites of other projects with the bridges of Tuque in the place of their own parts.

    python tools/bridges.py [django kombu ...] [--cache build/bridges]

Their released sources, and each version of them in an environment of its own, come by pip into the
cache, once. Of Django: the tests of its tasks, for 6.0 and 6.1, and for 5.2 with django-tasks the
ones of 6.0. Of Dramatiq: those of its brokers, actors, workers and results. Of kombu: the tests of
its transports. Of Celery: forty of its integration tests, on Redis as well; all of them, for about
an hour, only as `celery-integration`. What is not run is printed, with the reason.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
NODE: Final = ("click", "cronsim", "hiredis", "librt", "msgspec", "mypy_extensions")  # of the tree
PYTHONS: Final = ("python3.12", "python3.13", "python3.14")


@dataclass(frozen=True)
class Run:
    """One suite at one version: what is installed, and whose sources have the tests."""

    name: str
    requires: tuple[str, ...]
    source: str
    judge: str
    needs_new_python: bool = False
    words: tuple[str, ...] = ()  # for the judge
    is_long: bool = False  # runs if its whole name is given


CELERY: Final = (
    "celery==5.6.3",
    "cryptography==48.0.0",
    "django==5.2.*",
    "pydantic==2.14.3",
    "pytest-celery==1.3.0",
    "pytest-click==1.1.0",
    "pytest-order==1.5.0",
    "pytest-rerunfailures==16.7",
    "pytest-subtests==0.15.0",
    "pytest-timeout==2.4.0",
    "pytest==9.2.0",
    "redis==6.4.0",  # later ones end a wait of 60 s after 5
)
RUNS: Final = (
    Run("django-5.2", ("django==5.2.*", "django-tasks==0.12.0"), "django==6.0.10", "django_judge"),
    Run("django-6.0", ("django==6.0.*",), "django==6.0.10", "django_judge", True),
    Run("django-6.1", ("django==6.1.3",), "django==6.1.3", "django_judge", True),
    Run(
        "dramatiq",
        (
            "dramatiq==2.2.1",
            "pika==1.4.1",
            "redis==8.1.0",
            "pytest==9.2.0",
            "pytest-timeout==2.4.0",
        ),
        "dramatiq==2.2.1",
        "dramatiq_judge",
    ),
    Run("kombu-5.7", ("kombu==5.7.0", "pytest==9.2.0"), "kombu==5.7.0", "kombu_judge"),
    Run("celery-5.6", CELERY, "celery==5.6.3", "celery_judge"),
    Run(
        "celery-integration",
        CELERY,
        "celery==5.6.3",
        "celery_judge",
        words=("--all",),
        is_long=True,
    ),
)


def python_for(run: Run) -> str | None:
    """An interpreter for that version; None if this machine has none."""
    if not run.needs_new_python or sys.version_info >= (3, 12):
        return sys.executable
    versions = Path.home() / ".pyenv" / "versions"
    places = [*map(shutil.which, PYTHONS), *map(str, sorted(versions.glob("3.1[2-9]*/bin/python")))]
    for one in filter(None, places):
        asked = [one, "-c", "import sys; sys.exit(sys.version_info < (3, 12))"]
        if subprocess.run(asked, capture_output=True).returncode == 0:
            return one
    return None


def environment(run: Run, python: str, cache: Path) -> str:
    """The interpreter of an environment with the packages of the run."""
    place = cache / run.name
    inside = place / "bin" / "python"
    if not (place / ".whole").exists():
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([python, "-m", "venv", str(place)], check=True)
        pip = [str(inside), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *NODE, *run.requires], check=True)
        (place / ".whole").touch()
    return str(inside)


def sources(run: Run, cache: Path) -> Path:
    """The folder of the released sources."""
    place = cache / "sources" / run.source
    if not place.exists():
        made = place.with_suffix(".part")
        shutil.rmtree(made, ignore_errors=True)
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
        ]
        words = ["--no-binary", ":all:", "--ignore-requires-python", "-d", str(made), run.source]
        subprocess.run([*pip, *words], check=True)
        for archive in made.glob("*.tar.gz"):
            with tarfile.open(archive) as packed:
                packed.extractall(made, filter="data")
        made.rename(place)
    return next(one for one in place.iterdir() if one.is_dir())


def judged(run: Run, cache: Path) -> bool:
    """Runs one suite; True if it passes, or if this machine cannot run it."""
    python = python_for(run)
    if python is None:
        print(f"{run.name}: not run, it needs Python 3.12 or later")
        return True
    judge = ROOT / "tests" / "bridges" / run.judge / "judge.py"
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}", "TUQUE_URL": "tuque://127.0.0.1:7711"}
    words = [environment(run, python, cache), str(judge), str(sources(run, cache)), *run.words]
    return subprocess.run(words, env=env).returncode == 0


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="runs whose names begin so; default: all")
    parser.add_argument("--cache", default=str(ROOT / "build" / "bridges"))
    given = parser.parse_args()
    cache = Path(given.cache)
    cache.mkdir(parents=True, exist_ok=True)
    begun = tuple(given.names) or ""
    chosen = [
        run
        for run in RUNS
        if run.name in given.names or (run.name.startswith(begun) and not run.is_long)
    ]
    failed = [run.name for run in chosen if not judged(run, cache)]
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
