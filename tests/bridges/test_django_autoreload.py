"""`manage.py tuque_worker --autoreload`: an edit of the tasks, also one that mends them.

A file that Django has not looked at yet is edited unseen, and the worker of before an edit may take
a job until it has ended. So each edit waits until the file is watched, and each job until no worker
is left from before.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import RealServer
from program import SOURCE, Program
from tuque.worker import App
from until import until

pytest.importorskip("django_tasks")
MANAGE = """
import sys
from django.core.management import execute_from_command_line

execute_from_command_line(sys.argv)
"""
WATCHED = "shop/tasks.py first seen"
SETTINGS = """
from django.utils.autoreload import StatReloader

StatReloader.SLEEP_TIME = 0.1

def of_tasks(record):
    return "tasks.py" in record.getMessage()

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"tasks": {"()": lambda: of_tasks}},
    "handlers": {"all": {"class": "logging.StreamHandler", "filters": ["tasks"]}},
    "loggers": {"django.utils.autoreload": {"level": "DEBUG", "handlers": ["all"]}},
}
SECRET_KEY = "of no use"
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = ["django_tasks", "tuque.django", "shop"]
TASKS = {"default": {"BACKEND": "tuque.django.TuqueBackend", "QUEUES": ["edited"]}}
"""
TASKS = """
from django_tasks import task

@task(queue_name="edited")
def say():
    print("first code", flush=True)
"""


class Worker(Program):
    """A running `manage.py tuque_worker --autoreload` of a project in this folder."""

    def __init__(self, place: Path, url: str) -> None:
        self.log = place / "worker.log"
        self._tasks = place / "shop" / "tasks.py"
        self._reloads = 0
        paths = (str(SOURCE), os.environ.get("PYTHONPATH", ""))
        own = {"DJANGO_SETTINGS_MODULE": "shop.settings", "TUQUE_URL": url}
        own["PYTHONPATH"] = os.pathsep.join(paths)
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "tuque_worker", "--autoreload"],
                cwd=place, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=os.environ | own,
            )  # fmt: skip

    def reloads_with(self, tasks: str) -> None:
        """Edits the tasks once they are watched, and waits for the reload."""
        self._reloads += 1
        self._counts(WATCHED, self._reloads)
        made = self._tasks.with_suffix(".new")
        made.write_text(tasks)
        at_s = self._tasks.stat().st_mtime + 1  # later, also by a coarse clock
        os.utime(made, (at_s, at_s))
        made.replace(self._tasks)
        self._counts("tasks.py changed, reloading.", self._reloads)

    def _counts(self, words: str, count: int) -> None:
        """Waits until these words are there so often."""
        until(lambda: self.text.count(words) >= count, lambda: f"say {words!r}: {self.text}")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A project whose tasks are refused: their queue is none of QUEUES."""
    (tmp_path / "manage.py").write_text(MANAGE)
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "__init__.py").touch()
    (shop / "settings.py").write_text(SETTINGS)
    (shop / "tasks.py").write_text(TASKS.replace('"edited"', '"other"'))
    return tmp_path


@pytest.fixture(params=["", "from shop import tasks\n"], ids=["alone", "imported by urls"])
def worker(place: Path, node: RealServer, request: pytest.FixtureRequest) -> Iterator[Worker]:
    """Its worker; the checks import urls.py."""
    (place / "shop" / "urls.py").write_text(f"{request.param}urlpatterns = []\n")
    made = Worker(place, node.url)
    yield made
    made.signal(signal.SIGTERM)
    made.ends()


@pytest.mark.slow
def test_the_worker_runs_what_an_edit_makes_of_the_tasks(worker: Worker, node: RealServer) -> None:
    def unused() -> None: ...

    say = App(node.url).task(name="shop.tasks.say", queue="edited")(unused)
    worker.says("InvalidTask")
    worker.reloads_with(TASKS)
    say.enqueue()
    worker.says("first code")
    worker.reloads_with("def")
    worker.says("SyntaxError")  # the next one begins when the worker before has ended
    worker.reloads_with(TASKS.replace("first", "second"))
    say.enqueue()
    worker.says("second code")


def test_no_worker_begins_once_a_reload_has(tmp_path: Path) -> None:
    from tuque.django.management.commands.tuque_worker import Child

    begun = tmp_path / "begun"
    words = [sys.executable, "-c", f"open({str(begun)!r}, 'w')"]
    child = Child()
    child.end()
    child.run(words)
    assert not begun.exists()
    Child().run(words)
    assert begun.exists()


def test_the_files_of_an_error_are_those_to_mend(tmp_path: Path) -> None:
    from tuque.django.management.commands.tuque_worker import files_of

    outer, broken = tmp_path / "outer.py", tmp_path / "broken.py"
    outer.write_text("compile('def', BROKEN, 'exec')")
    broken.touch()
    try:
        exec(compile(outer.read_text(), outer, "exec"), {"BROKEN": str(broken)})
    except SyntaxError as err:
        assert files_of(err) == {Path(__file__), outer, broken}
