"""`manage.py tuque_worker --autoreload`: an edit of the tasks, also one that mends them."""

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

pytestmark = pytest.mark.slow
pytest.importorskip("django_tasks")
MANAGE = """
import sys
from django.core.management import execute_from_command_line

execute_from_command_line(sys.argv)
"""
SETTINGS = """
DEBUG = True  # Django tells of reloads
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
        paths = (str(SOURCE), os.environ.get("PYTHONPATH", ""))
        own = {"DJANGO_SETTINGS_MODULE": "shop.settings", "TUQUE_URL": url}
        own["PYTHONPATH"] = os.pathsep.join(paths)
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "tuque_worker", "--autoreload"],
                cwd=place, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=os.environ | own,
            )  # fmt: skip

    def reloads_with(self, tasks: str) -> None:
        """Edits the tasks, and again until it is seen: Django first looks once a second."""
        seen = self.text.count("tasks.py changed, reloading.")
        self._tasks.write_text(tasks)

        def again() -> bool:
            os.utime(self._tasks)
            return self.text.count("tasks.py changed, reloading.") > seen

        until(again, lambda: f"reload: {self.text}")


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


def test_the_worker_runs_what_an_edit_makes_of_the_tasks(worker: Worker, node: RealServer) -> None:
    def unused() -> None: ...

    say = App(node.url).task(name="shop.tasks.say", queue="edited")(unused)
    worker.says("InvalidTask")
    worker.reloads_with(TASKS)
    say.enqueue()
    worker.says("first code")
    worker.reloads_with(TASKS.replace("first", "second"))
    say.enqueue()
    worker.says("second code")
    worker.reloads_with("def")
    worker.says("SyntaxError")
    worker.reloads_with(TASKS.replace("first", "third"))
    say.enqueue()
    worker.says("third code")
