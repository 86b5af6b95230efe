"""The tasks of Django: of Django itself from 6.0 on, below of the package django-tasks.

Decides which of the two is meant; all other modules take the names from here.
"""

from __future__ import annotations

import django

from tuque.errors import ConfigError

if django.VERSION >= (6, 0):
    from django import tasks as task_api
    from django.tasks import signals
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import (
        Task,
        TaskContext,
        TaskError,
        TaskResult,
        TaskResultStatus,
    )
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.utils.json import normalize_json
else:
    try:
        import django_tasks as task_api
        from django_tasks import signals
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import (
            Task,
            TaskContext,
            TaskError,
            TaskResult,
            TaskResultStatus,
        )
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.utils import normalize_json
    except ImportError:
        raise ConfigError(
            f"tasks came with Django 6.0, and this is {django.__version__}: pip install "
            "django-tasks, and add 'django_tasks' to INSTALLED_APPS"
        ) from None

__all__ = [
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "signals",
    "task_api",
]
