"""What a worker of a Django project loads: `tuque.django.worker:app`.

`manage.py tuque_worker` names the backends in the environment, also for the processes of a pool.
"""

from __future__ import annotations

import os
from typing import Any, Final

import django
from django.conf import settings as project
from django.utils.module_loading import autodiscover_modules

from tuque.django.backend import TuqueBackend
from tuque.django.options import ALIASES
from tuque.django.running import ByPath, Connections
from tuque.django.tasks_api import task_api
from tuque.errors import ConfigError
from tuque.worker.app.app import App


def chosen(aliases: tuple[str, ...]) -> list[TuqueBackend]:
    """The named Tuque backends, or all of them; ConfigError for any other name."""
    configured: dict[str, Any] = getattr(project, "TASKS", {})
    for alias in aliases:
        if alias not in configured:
            raise ConfigError(
                f"TASKS has no {alias!r}; it has {', '.join(configured) or 'nothing'}"
            )
    found: list[TuqueBackend] = []
    for alias in aliases or configured:
        backend = task_api.task_backends[alias]
        if isinstance(backend, TuqueBackend):
            found.append(backend)
        elif aliases:
            raise ConfigError(f"TASKS[{alias!r}] is no backend of Tuque, but {type(backend)}")
    if not found:
        raise ConfigError(
            "TASKS has no backend of Tuque: set 'BACKEND': 'tuque.django.TuqueBackend'"
        )
    return found


def served(backends: list[TuqueBackend]) -> App:
    """The app with the tasks of the project; ConfigError if the backends have several brokers."""
    app = backends[0].app
    for other in backends[1:]:
        if other.app is not app:
            raise ConfigError(
                f"TASKS[{backends[0].alias!r}] and TASKS[{other.alias!r}] have different brokers: "
                f"run a worker for each, manage.py tuque_worker {other.alias}"
            )
    own = app.queues if backends[0].settings.app else []
    autodiscover_modules("tasks")
    queues = [queue for backend in backends for queue in backend.all_queues()]
    app.serves = list(dict.fromkeys([*own, *queues]))
    app.tasks = ByPath(app)
    app.use(Connections())
    return app


django.setup()
app: Final = served(chosen(tuple(filter(None, os.environ.get(ALIASES, "").split(",")))))
