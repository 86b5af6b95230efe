"""A task of no installed app: no job must have it imported."""

from __future__ import annotations

from tuque.django.tasks_api import task_api


@task_api.task
def stray() -> None:
    """Does nothing."""
