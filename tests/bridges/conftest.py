"""A project of Django for the tests: its settings are made once, in the process of the tests."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tuque.testing import TestApp

HERE = Path(__file__).parent
collect_ignore = ["celery_judge", "celery_shop", "django_judge", "kombu_judge"]
collect_ignore_glob = []
if importlib.util.find_spec("celery") is None:
    collect_ignore_glob.append("test_celery_*.py")
if importlib.util.find_spec("django_tasks") is None:
    collect_ignore_glob.append("test_django_*.py")
else:
    sys.path.insert(0, str(HERE))


@pytest.fixture(scope="session")
def celery_entries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for sys.path, by which Celery finds what pyproject.toml says of this tree."""
    from celery_lab import write_entries

    return write_entries(tmp_path_factory.mktemp("entries"))


@pytest.fixture(scope="session")
def _project(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Django is set up, with the tasks of shop_tasks.py."""
    import django
    from django.conf import settings
    from shop_app.configured import tasks_of

    if not settings.configured:
        place = str(tmp_path_factory.mktemp("django") / "shop.db")
        settings.configure(
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": place}},
            INSTALLED_APPS=[
                "django.contrib.contenttypes",
                "django.contrib.auth",
                "django.contrib.admin",
                "django.contrib.messages",
                "django.contrib.sessions",
                "django_tasks",
                "tuque.django",
                "tuque.django.outbox",
                "shop_app",
            ],
            TASKS={"default": tasks_of()},
            USE_TZ=True,
            SECRET_KEY="of no use",
        )
        django.setup()


@pytest.fixture
def shop(_project: None, tuque_app: TestApp) -> Iterator[Any]:
    """The tasks, and a broker for them in this process."""
    from shop_app import tasks

    tasks.seen.clear()
    yield tasks
